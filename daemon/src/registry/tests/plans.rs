//! Plans and approvals between several people, an editor and the gate.

use agentd_protocol::session::{Activity, CallStatus};
use agentd_protocol::turn::Outcome;

use super::*;

pub(super) const PLAN: &str = "# Plan\n\n1. Write b.txt\n";

/// Writes the plan, presents it, and after the answer writes `b.txt`.
pub(super) fn planner() -> Value {
    json!({
        "values": { "plan": { "in": "any", "matches": "^Plan file: (.+)$", "pick": "last", "default": "none" } },
        "rules": [
            { "name": "stay", "when": { "texts": [{ "in": "prompt", "contains": "afterwards" }] }, "reply": { "text": "After." } },
            { "name": "plan", "when": { "not_called": ["write_file"], "has": ["plan"], "texts": [{ "in": "any", "lacks": "The person approved" }] },
              "reply": { "calls": [{ "name": "write_file", "arguments": { "file_path": "{{plan}}", "content": PLAN } }] } },
            { "name": "present", "when": { "after": ["plan"] }, "reply": { "calls": [{ "name": "exit_plan_mode", "arguments": {} }] } },
            { "name": "rest", "reply": { "text": "Done." } },
        ],
    })
}

/// A session whose plan waits for its approval.
pub(super) async fn presented(mode: Mode) -> (Home, SessionId, TurnId, Listener) {
    let home = Home::start(planner()).await;
    let id = home.session(mode).await;
    home.set_mode(id, Mode::Plan).await.unwrap();
    let mut listener = home.listen(id).await;
    let turn = home.prompt(id, "add paging").await.turn_id;
    listener.next("approvalRequested").await;
    (home, id, turn, listener)
}

pub(super) fn plan_file(state: &State) -> PathBuf {
    state.plan.as_ref().unwrap().path.clone().into()
}

#[tokio::test]
async fn entering_plan_mode_twice_keeps_the_mode_to_return_to() {
    let home = Home::start(planner()).await;
    let id = home.session(Mode::AcceptEdits).await;
    for _ in 0..2 {
        assert_eq!(home.set_mode(id, Mode::Plan).await.unwrap(), Mode::Plan);
        let state = home.state(id).await;
        assert_eq!((state.pre_mode, state.plan.unwrap().cycle), (Some(Mode::AcceptEdits), 1));
    }
}

#[tokio::test]
async fn an_approved_plan_changes_the_mode_and_the_winner_is_told_again() {
    let (home, id, turn, mut listener) = presented(Mode::AcceptEdits).await;
    let mut answer = home.answer(id, ChoiceId::ManualExecute).await;
    let other = someone("two", Actor::Person);
    answer.feedback = Some("carefully".into());
    let accepted = home.respond(answer.clone()).await.unwrap();
    assert_eq!(accepted.mode_now, Mode::AcceptEdits, "the mode from before planning");
    assert_eq!(home.respond(answer.clone()).await.unwrap(), accepted);
    let Err(SessionError::ApprovalSettled(settled)) = home.respond_as(answer.clone(), other).await else {
        panic!("another person's answer was taken")
    };
    assert_eq!(settled.by, person().by);
    let Err(SessionError::ApprovalSettled(_)) =
        home.respond(RespondParams { choice: ChoiceId::Execute, ..answer }).await
    else {
        panic!("a second answer was taken")
    };
    let resolved = listener.next("approvalResolved").await;
    assert_eq!(resolved["choice"], "manualExecute");
    assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished);
}

#[tokio::test]
async fn programs_answer_no_plan_and_leave_no_plan_mode() {
    let (home, id, _, _) = presented(Mode::Default).await;
    let answer = home.answer(id, ChoiceId::Execute).await;
    let program = || someone("ci", Actor::Program);
    assert!(matches!(home.respond_as(answer, program()).await, Err(SessionError::Refused(_))));
    let mode = Mode::Default;
    let left = home.registry.ask(id, |reply| Command::SetMode { mode, caller: program(), reply }).await;
    assert!(matches!(left, Err(SessionError::Refused(_))));
    assert_eq!(home.state(id).await.activity, Activity::Waiting);
}

#[tokio::test]
async fn a_change_of_the_file_makes_the_answer_stale_and_the_approval_new() {
    let (home, id, turn, mut listener) = presented(Mode::Default).await;
    let answer = home.answer(id, ChoiceId::Execute).await;
    let file = plan_file(&home.state(id).await);
    std::fs::write(&file, "# Plan\n\n1. Something else\n").unwrap();
    let Err(SessionError::Stale(now)) = home.respond(answer.clone()).await else {
        panic!("what nobody saw was approved")
    };
    assert_eq!(now.approval_id, answer.approval_id, "the question keeps its id");
    let changed = listener.next("approvalChanged").await;
    assert_eq!(changed["digest"], json!(now.digest));
    let again = home.answer(id, ChoiceId::Execute).await;
    home.respond(again).await.unwrap();
    assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished);
}

#[tokio::test]
async fn a_plan_that_was_emptied_cannot_be_approved_until_it_is_mended() {
    let (home, id, turn, mut listener) = presented(Mode::Default).await;
    let answer = home.answer(id, ChoiceId::Execute).await;
    let file = plan_file(&home.state(id).await);
    let blocked = async |home: &Home| match &home.state(id).await.approvals[0].subject {
        agentd_protocol::approval::Subject::Plan { plan } => plan.blocked,
        other => panic!("{other:?}"),
    };
    for unfit in [String::new(), "x".repeat(300 * 1024)] {
        std::fs::write(&file, unfit).unwrap();
        for _ in 0..2 {
            assert!(matches!(home.respond(answer.clone()).await, Err(SessionError::Conflict(_))));
        }
        assert_eq!(home.state(id).await.mode, Mode::Plan);
        assert!(blocked(&home).await);
    }
    // Whoever looks is told once, and the question they saw is the same.
    let changed = listener.next("approvalChanged").await;
    assert_eq!((&changed["plan"]["blocked"], &changed["digest"]), (&json!(true), &json!(answer.digest)));
    std::fs::write(&file, PLAN).unwrap();
    home.registry.ask(id, |reply| Command::PlanGet { reply }).await.unwrap();
    assert!(!blocked(&home).await);
    // Word for word what was shown, so the answer to that counts: nobody has to look again.
    assert_eq!(home.respond(answer).await.unwrap().mode_now, Mode::AcceptEdits);
    assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished);
}

#[tokio::test]
async fn a_plan_that_was_emptied_can_be_sent_back() {
    let (home, id, _, mut listener) = presented(Mode::Default).await;
    let answer = home.answer(id, ChoiceId::KeepPlanning).await;
    std::fs::write(plan_file(&home.state(id).await), "").unwrap();
    let answer = RespondParams { feedback: Some("write it again".into()), ..answer };
    assert_eq!(home.respond(answer).await.unwrap().mode_now, Mode::Plan);
    listener.next("planRejected").await;
}

#[tokio::test]
async fn an_edited_plan_is_a_revision_that_was_seen_by_all_and_too_long_a_one_is_refused() {
    let (home, id, turn, mut listener) = presented(Mode::Default).await;
    let mut answer = home.answer(id, ChoiceId::Execute).await;
    answer.edited_plan = Some("x".repeat(300 * 1024));
    assert!(matches!(
        home.respond(answer.clone()).await,
        Err(SessionError::Invalid { field: "editedPlan", .. })
    ));
    answer.edited_plan = Some("# Mine\n\n1. Only this\n".into());
    home.respond(answer).await.unwrap();
    let changed = listener.next("planChanged").await;
    assert_eq!(changed["by"], "client");
    assert_eq!(listener.next("planApproved").await["revision"], changed["revision"]);
    home.wait(id, turn).await;
    let requests = home.requests().await;
    assert!(requests.last().unwrap().to_string().contains("Only this"));
    let file = plan_file(&home.state(id).await);
    assert!(std::fs::read_to_string(file).unwrap().contains("Only this"));
}

#[tokio::test]
async fn a_cleared_context_begins_with_the_plan_and_what_waited_runs_after_it() {
    let (home, id, turn, mut listener) = presented(Mode::Default).await;
    let queued = home.prompt(id, "afterwards").await;
    assert!(queued.queued && queued.waiting_for.is_some());
    let answer = home.answer(id, ChoiceId::ClearAndExecute).await;
    home.respond(answer).await.unwrap();
    listener.next("contextReset").await;
    home.wait(id, turn).await;
    assert_eq!(home.wait(id, queued.turn_id).await.text, "After.");
    let requests = home.requests().await;
    let [.., executing, after] = &requests[..] else { panic!("too few requests") };
    for request in [executing, after] {
        let text = request["messages"].to_string();
        assert!(text.contains("Write b.txt") && !text.contains("add paging"), "{text}");
    }
    assert!(after["messages"].to_string().contains("afterwards"));
    assert_eq!(home.state(id).await.mode, Mode::AcceptEdits);
}

#[tokio::test]
async fn leaving_plan_mode_withdraws_the_plan_with_its_reason() {
    let (home, id, turn, mut listener) = presented(Mode::Default).await;
    let answer = home.answer(id, ChoiceId::Execute).await;
    home.set_mode(id, Mode::Default).await.unwrap();
    assert_eq!(listener.next("approvalResolved").await["resolution"], "cancelled");
    assert!(matches!(home.respond(answer).await, Err(SessionError::ApprovalSettled(_))));
    assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished);
}

#[tokio::test]
async fn a_mode_change_judges_waiting_calls_again() {
    let write =
        || json!([{ "name": "write_file", "arguments": { "file_path": "b.txt", "content": "beta\n" } }]);
    for (mode, resolution, status) in
        [(Mode::AcceptEdits, "settledByMode", "ok"), (Mode::Plan, "cancelled", "denied")]
    {
        let home = Home::start(calls(write())).await;
        let id = home.session(Mode::Default).await;
        let mut listener = home.listen(id).await;
        let turn = home.prompt(id, "write").await.turn_id;
        listener.next("approvalRequested").await;
        home.set_mode(id, mode).await.unwrap();
        assert_eq!(listener.next("approvalResolved").await["resolution"], resolution);
        assert_eq!(listener.next("toolCallFinished").await["status"], status);
        assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished);
        assert_eq!(home.project.join("b.txt").exists(), mode == Mode::AcceptEdits);
    }
}

#[tokio::test]
async fn a_mode_that_was_saved_judges_waiting_calls_whatever_came_between() {
    let write = json!([{ "name": "write_file", "arguments": { "file_path": "b.txt", "content": "beta\n" } }]);
    for dies in [true, false] {
        let mut home = Home::start(calls(write.clone())).await;
        let id = home.session(Mode::Default).await;
        let mut listener = home.listen(id).await;
        let turn = home.prompt(id, "write").await.turn_id;
        listener.next("approvalRequested").await;
        // The mode is saved; what follows from it is not.
        home.faults.fail(crate::journal::faults::Op::Write, 2);
        home.set_mode(id, Mode::AcceptEdits).await.unwrap();
        listener.until(|event| event["type"] == "notice" && event["code"] == "storage").await;
        assert!(!home.project.join("b.txt").exists());
        if dies {
            home = home.restart().await;
        }
        assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished, "dies: {dies}");
        assert_eq!(std::fs::read_to_string(home.project.join("b.txt")).unwrap(), "beta\n");
    }
}

#[tokio::test]
async fn an_answer_and_a_mode_change_at_once_settle_it_once_and_plan_mode_wins() {
    let write =
        || json!([{ "name": "write_file", "arguments": { "file_path": "b.txt", "content": "beta\n" } }]);
    for mode_first in [true, false] {
        let home = Home::start(calls(write())).await;
        let id = home.session(Mode::Default).await;
        let mut listener = home.listen(id).await;
        let turn = home.prompt(id, "write").await.turn_id;
        listener.next("approvalRequested").await;
        let yes = home.answer(id, ChoiceId::AllowOnce).await;
        // Both wait in the mailbox before the session looks at either.
        let (plan, answer) = (home.set_mode(id, Mode::Plan), home.respond(yes));
        let (mode, answered) = if mode_first {
            tokio::join!(biased; plan, answer)
        } else {
            let (answered, mode) = tokio::join!(biased; answer, plan);
            (mode, answered)
        };
        assert_eq!(mode.unwrap(), Mode::Plan);
        // Taken, in either order, and told in which mode it counts: what it allows is judged again.
        let mode_now = if mode_first { Mode::Plan } else { Mode::Default };
        assert_eq!(answered.unwrap().mode_now, mode_now);
        assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished);
        assert!(!home.project.join("b.txt").exists(), "it was written in plan mode");
        let events = listener.so_far();
        let told = |kind: &str, field: &str| -> Vec<Value> {
            let of_kind = events.iter().filter(|event| event["type"] == kind);
            of_kind.map(|event| event[field].clone()).collect()
        };
        assert_eq!(told("approvalResolved", "resolution"), ["answered"], "{events:?}");
        assert_eq!(told("toolCallFinished", "status"), ["denied"], "{events:?}");
    }
}

#[tokio::test]
async fn an_approved_call_whose_file_has_changed_meanwhile_does_not_run() {
    let edit = json!([
        { "name": "read_file", "arguments": { "file_path": "a.txt" } },
        { "name": "write_file", "arguments": { "file_path": "a.txt", "content": "beta\n" } },
    ]);
    let home = Home::start(calls(edit)).await;
    let id = home.session(Mode::Default).await;
    let mut listener = home.listen(id).await;
    let turn = home.prompt(id, "write").await.turn_id;
    listener.next("approvalRequested").await;
    let yes = home.answer(id, ChoiceId::AllowOnce).await;
    std::fs::write(home.project.join("a.txt"), "precious\n").unwrap();
    home.respond(yes).await.unwrap();
    assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished);
    // Prepared anew, the write finds a file that the model has not seen. The reading before it is passed over.
    let refused =
        listener.until(|event| event["type"] == "toolCallFinished" && event["status"] != "ok").await;
    assert_eq!((&refused["status"], &refused["reason"]), (&json!("error"), &json!("call.invalid")));
    assert_eq!(std::fs::read_to_string(home.project.join("a.txt")).unwrap(), "precious\n");
}

#[tokio::test]
async fn text_never_approves() {
    let (home, id, _, mut listener) = presented(Mode::Default).await;
    let pending = home.state(id).await.approvals[0].approval_id.clone();
    let yes = || PromptParams { answers: Some(pending.clone()), ..prompt(id, "yes, do it") };
    home.try_prompt(yes()).await.unwrap();
    assert_eq!(listener.next("approvalResolved").await["choice"], "keepPlanning");
    assert_eq!(home.state(id).await.mode, Mode::Plan);
    // Its repetition changes nothing; other words come too late.
    home.try_prompt(yes()).await.unwrap();
    let other = PromptParams { answers: Some(pending), ..prompt(id, "really") };
    assert!(matches!(home.try_prompt(other).await, Err(SessionError::ApprovalSettled(_))));
    assert_eq!(home.state(id).await.mode, Mode::Plan);
}

#[tokio::test]
async fn an_interrupt_takes_waiting_approvals_back() {
    let (home, id, turn, mut listener) = presented(Mode::Default).await;
    assert_eq!(home.state(id).await.calls[0].status, CallStatus::Waiting);
    home.interrupt(id).await;
    assert_eq!(listener.next("approvalResolved").await["resolution"], "cancelled");
    assert_eq!(home.wait(id, turn).await.outcome, Outcome::Interrupted);
    assert!(home.registry.waiting(None).await.is_empty());
}
