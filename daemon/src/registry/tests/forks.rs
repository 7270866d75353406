//! Forks: the same past under another id, and from then on nothing in common.

use agentd_protocol::Seq;
use agentd_protocol::session::{Activity, ForkParams, ForkResult};
use agentd_protocol::turn::Outcome;

use super::history::subscribed;
use super::plans::{PLAN, plan_file, presented};
use super::*;
use crate::journal::faults::Op;

fn of(id: SessionId) -> ForkParams {
    ForkParams { session_id: id, at_seq: None, new_session_id: None }
}

async fn fork(home: &Home, params: &ForkParams) -> Result<ForkResult, SessionError> {
    home.registry.fork(params, &person()).await
}

/// The messages of the newest request to the model.
async fn asked_last(home: &Home) -> Vec<Value> {
    home.requests().await.pop().unwrap()["messages"].as_array().unwrap().clone()
}

async fn delete(home: &Home, id: SessionId) {
    home.registry.ask(id, |reply| Command::Delete { reply }).await.unwrap();
}

#[tokio::test]
async fn a_fork_goes_on_from_the_same_conversation_and_the_source_does_not_notice() {
    let home = Home::start(says("Hello.")).await;
    let id = home.session(Mode::AcceptEdits).await;
    // Long enough to lie in a blob.
    let turn = home.prompt(id, &format!("remember this: {}", "word ".repeat(10_000))).await.turn_id;
    home.wait(id, turn).await;
    let before = home.state(id).await;

    let made = fork(&home, &of(id)).await.unwrap();
    let (state, other) = (&made.state, made.session_id);
    assert_ne!((other, &made.handle), (id, &before.handle));
    assert_eq!(
        (state.activity, state.mode, state.cwd.as_str()),
        (Activity::Idle, Mode::AcceptEdits, &*before.cwd)
    );
    assert_eq!(
        (made.at_seq, state.turns, state.usage),
        (before.seq, 1, agentd_protocol::turn::Usage::default())
    );
    assert_eq!(state.forked_from.as_ref().unwrap().session_id, id);
    assert_eq!(home.state(id).await, before);

    // What the model is asked begins byte for byte with what the source would have asked.
    let turn = home.prompt(other, "go on").await.turn_id;
    home.wait(other, turn).await;
    let of_fork = asked_last(&home).await;
    let turn = home.prompt(id, "go on").await.turn_id;
    home.wait(id, turn).await;
    assert_eq!(of_fork, asked_last(&home).await);

    // The past is in both, the rest apart.
    let (ours, theirs) = (subscribed(&home, other).await, subscribed(&home, id).await);
    let common = ours.iter().position(|event| event["type"] == "sessionForked").unwrap();
    assert_eq!(ours[common]["from"], json!(id));
    for (ours, theirs) in ours[1..common].iter().zip(&theirs[1..]) {
        assert_eq!((&ours["type"], &ours["seq"]), (&theirs["type"], &theirs["seq"]));
        assert_eq!(ours["sessionId"], json!(other));
    }
    delete(&home, id).await;
    let home = home.restart().await;
    let turn = home.prompt(other, "and on").await.turn_id;
    assert_eq!(home.wait(other, turn).await.outcome, Outcome::Finished);
    assert!(json!(asked_last(&home).await).to_string().contains("remember this"), "its blobs are its own");
}

#[tokio::test]
async fn a_fork_of_a_session_that_waits_is_idle_and_was_never_asked() {
    let (home, id, _, _) = presented(Mode::Default).await;
    let source = home.state(id).await;
    let made = fork(&home, &of(id)).await.unwrap();
    assert!(made.at_seq < source.seq);
    assert_eq!(
        (made.state.activity, made.state.approvals.len(), made.state.turn_id),
        (Activity::Idle, 0, None)
    );
    assert_eq!(made.state.mode, Mode::Plan);
    assert_eq!(home.registry.waiting(None).await.len(), 1, "the source still asks");
    // Its plan is a copy.
    let (ours, theirs) = (plan_file(&made.state), plan_file(&source));
    assert_ne!(ours, theirs);
    for file in [&ours, &theirs] {
        assert_eq!(std::fs::read_to_string(file).unwrap(), PLAN);
    }
    std::fs::write(&ours, "# Another plan\n").unwrap();
    delete(&home, made.session_id).await;
    assert!(!ours.exists() && theirs.exists());
    let answer = home.answer(id, ChoiceId::Execute).await;
    home.respond(answer).await.unwrap();
}

#[tokio::test]
async fn a_fork_from_the_past_has_the_narrower_mode_of_then_and_now() {
    let home = Home::start(says("Hello.")).await;
    let id = home.session(Mode::Default).await;
    let turn = home.prompt(id, "hello").await.turn_id;
    home.wait(id, turn).await;
    let then = home.state(id).await.seq;
    let at = |seq| ForkParams { at_seq: Some(seq), ..of(id) };
    for (now, forked) in [
        (Mode::AcceptEdits, Mode::Default),
        (Mode::DontAsk, Mode::DontAsk),
        (Mode::BypassPermissions, Mode::Default),
        (Mode::Plan, Mode::Plan),
    ] {
        home.set_mode(id, now).await.unwrap();
        let made = fork(&home, &at(then)).await.unwrap();
        assert_eq!((made.state.mode, made.at_seq), (forked, then), "{now}");
        assert_eq!(made.state.plan.is_some(), forked == Mode::Plan);
        if forked == Mode::Plan {
            let file = plan_file(&made.state);
            assert!(file.exists() && file != plan_file(&home.state(id).await));
            assert_eq!(made.state.pre_mode, Some(Mode::Default));
        }
    }
    // Right after its creation, and not before or after all there is.
    assert_eq!(fork(&home, &at(Seq(2))).await.unwrap().state.turns, 0);
    assert!(matches!(fork(&home, &at(Seq(0))).await, Err(SessionError::Invalid { field: "atSeq", .. })));
    assert!(matches!(fork(&home, &at(Seq(9_999))).await, Err(SessionError::BeyondHead { .. })));
    assert!(matches!(fork(&home, &of(SessionId::generate())).await, Err(SessionError::NotFound(_))));
}

#[tokio::test]
async fn the_same_fork_asked_for_twice_is_one_session() {
    let home = Home::start(says("Hello.")).await;
    let id = home.session(Mode::Default).await;
    let named = ForkParams { new_session_id: Some(SessionId::generate()), ..of(id) };
    let (one, two) = tokio::join!(fork(&home, &named), fork(&home, &named));
    assert_eq!(one.unwrap(), two.unwrap());
    let home = home.restart().await;
    assert_eq!(Some(fork(&home, &named).await.unwrap().session_id), named.new_session_id);
    let other = ForkParams { at_seq: Some(Seq(1)), ..named.clone() };
    assert!(matches!(fork(&home, &other).await, Err(SessionError::Conflict(_))));
    let taken = ForkParams { new_session_id: Some(id), ..of(id) };
    assert!(matches!(fork(&home, &taken).await, Err(SessionError::Conflict(_))));
}

#[tokio::test]
async fn a_fork_that_cannot_be_finished_leaves_nothing() {
    let (home, id, _, _) = presented(Mode::Default).await;
    let folders = |home: &Home| std::fs::read_dir(home.paths.sessions_dir()).unwrap().count();
    let plans = |home: &Home| std::fs::read_dir(home.paths.plans_dir()).unwrap().count();
    let named = ForkParams { new_session_id: Some(SessionId::generate()), ..of(id) };
    // The copy is synced once when it is opened.
    for (op, nth) in [(Op::Write, 1), (Op::Sync, 2)] {
        home.faults.fail(op, nth);
        assert!(matches!(fork(&home, &named).await, Err(SessionError::Storage { .. })), "{op:?}");
        assert_eq!((folders(&home), plans(&home)), (1, 1), "{op:?}");
    }
    // Killed half-way: what is there goes away with the next start.
    let staged = home.paths.sessions_dir().join(".staged-left");
    std::fs::create_dir(&staged).unwrap();
    std::fs::write(staged.join("journal.jsonl"), "half").unwrap();
    let home = home.restart().await;
    assert!(!staged.exists());
    fork(&home, &named).await.unwrap();
}

#[tokio::test]
async fn a_fork_in_plan_mode_is_told_of_its_own_plan_file() {
    let home = Home::start(says("Hello.")).await;
    let id = home.session(Mode::Plan).await;
    let turn = home.prompt(id, "plan it").await.turn_id;
    home.wait(id, turn).await;
    let made = fork(&home, &of(id)).await.unwrap();
    let turn = home.prompt(made.session_id, "go on").await.turn_id;
    home.wait(made.session_id, turn).await;
    let asked = json!(asked_last(&home).await).to_string();
    let (_, newest) = asked.rsplit_once("Plan file: ").unwrap();
    assert!(newest.starts_with(&*made.state.plan.unwrap().path), "{newest}");
}
