//! What a failing disk, a power cut and a crash leave; what a panic reaches.

use agentd_protocol::session::Activity;
use agentd_protocol::turn::Outcome;

use super::*;
use crate::journal::faults::Op;
use crate::session::error::Changed;

fn not_saved<T: std::fmt::Debug>(answer: Result<T, SessionError>) {
    match answer {
        Err(SessionError::Storage { changed: Changed::No, .. }) => {}
        other => panic!("expected a refusal that changed nothing, not {other:?}"),
    }
}

#[tokio::test]
async fn a_prompt_that_cannot_be_saved_changes_nothing_and_works_afterwards() {
    let home = Home::start(says("Hello.")).await;
    let id = home.session(Mode::Default).await;
    for op in [Op::Write, Op::Sync] {
        let before = home.state(id).await;
        home.faults.fail(op, 1);
        not_saved(home.try_prompt(prompt(id, "xylophone")).await);
        let after = home.state(id).await;
        assert_eq!((after.seq, after.inbox.len(), after.activity), (before.seq, 0, Activity::Idle), "{op:?}");
        let again = home.prompt(id, "again").await;
        assert_eq!(home.wait(id, again.turn_id).await.text, "Hello.");
    }
    let requests = home.requests().await;
    assert_eq!(requests.len(), 2);
    assert!(!requests.iter().any(|request| request.to_string().contains("xylophone")), "it ran after all");
}

#[tokio::test]
async fn a_mode_that_cannot_be_saved_is_not_entered_and_leaves_no_plan_file() {
    let home = Home::start(says("Hello.")).await;
    let id = home.session(Mode::Default).await;
    home.faults.fail(Op::Write, 1);
    not_saved(home.set_mode(id, Mode::Plan).await);
    assert_eq!(home.state(id).await.mode, Mode::Default);
    assert_eq!(std::fs::read_dir(home.paths.plans_dir()).unwrap().count(), 0);
    assert_eq!(home.set_mode(id, Mode::Plan).await.unwrap(), Mode::Plan);
}

#[tokio::test]
async fn an_answer_of_the_model_is_kept_until_the_journal_takes_it() {
    let script = json!({ "rules": [
        { "name": "say", "reply": { "text": "A long story." }, "fault": { "times": 1, "do": { "hang": { "after": 1 } } } },
    ] });
    let home = Home::start(script).await;
    let id = home.session(Mode::Default).await;
    let mut listener = home.listen(id).await;
    let turn = home.prompt(id, "tell").await.turn_id;
    listener.next("turnStarted").await;
    listener.until(|event| event["type"] == "stateChanged" && event["activity"] == "running").await;
    // The stream is open: the next write is that of the answer.
    home.asked(1).await;
    home.faults.fail(Op::Write, 1);
    home.release().await;
    listener.until(|event| event["type"] == "notice" && event["code"] == "storage").await;
    // Anyone who asks for anything makes it try again.
    assert_eq!(home.wait(id, turn).await.text, "A long story.");
    assert_eq!(home.requests().await.len(), 1, "the model was not asked twice");
}

#[tokio::test]
async fn a_session_goes_on_by_itself_once_the_disk_takes_it_again() {
    let script = json!({ "rules": [
        { "name": "say", "reply": { "text": "A long story." }, "fault": { "times": 1, "do": { "hang": { "after": 1 } } } },
    ] });
    let home = Home::start(script).await;
    home.probe.storage_retry_ms.store(5, Ordering::SeqCst);
    let home = home.restart().await;
    let id = home.session(Mode::Default).await;
    let mut listener = home.listen(id).await;
    home.prompt(id, "tell").await;
    home.asked(1).await;
    for nth in 1..=3 {
        home.faults.fail(Op::Write, nth);
    }
    home.release().await;
    listener.until(|event| event["type"] == "stateChanged" && event["health"] == "degraded").await;
    // Nobody says anything.
    assert_eq!(listener.next("turnFinished").await["outcome"], "finished");
    assert_eq!(home.state(id).await.health, agentd_protocol::session::Health::Ok);
    let notices = listener.so_far().iter().filter(|event| event["code"] == "storage").count();
    assert_eq!(notices, 0, "it was told once, before it was degraded");
    assert_eq!(home.requests().await.len(), 1, "the model was not asked twice");
}

#[tokio::test]
async fn what_a_call_has_done_is_recorded_when_the_journal_takes_it_again() {
    let home = Home::start(calls(json!([{ "name": "probe", "arguments": { "act": "wait" } }]))).await;
    let id = home.session(Mode::Default).await;
    let mut listener = home.listen(id).await;
    let turn = home.prompt(id, "go").await.turn_id;
    listener.next("permissionDecided").await;
    while home.state(id).await.calls[0].status != agentd_protocol::session::CallStatus::Running {}
    home.faults.fail(Op::Write, 1);
    home.probe.gate.0.add_permits(1);
    listener.until(|event| event["type"] == "notice" && event["code"] == "storage").await;
    assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished);
    let result = listener.next("toolCallFinished").await;
    assert_eq!((&result["status"], &result["content"]), (&json!("ok"), &json!("waited")));
}

#[tokio::test]
async fn j12_a_prompt_of_which_nobody_knows_is_one_turn_when_it_is_sent_again() {
    let home = Home::start(says("Hello.")).await;
    let id = home.session(Mode::Default).await;
    let params = PromptParams { prompt_id: Some(TurnId::generate()), ..prompt(id, "hello") };
    // The line arrives, but not its sync, and it cannot be taken back.
    home.faults.fail(Op::Sync, 1);
    home.faults.fail(Op::Truncate, 1);
    let answer = home.try_prompt(params.clone()).await;
    assert!(matches!(answer, Err(SessionError::Storage { changed: Changed::Unknown, .. })), "{answer:?}");
    assert_eq!(home.state(id).await.health, agentd_protocol::session::Health::ReadOnly);
    not_saved(home.try_prompt(params.clone()).await);
    assert!(home.requests().await.is_empty());

    let home = home.restart().await;
    let turn = home.try_prompt(params).await.unwrap().turn_id;
    assert_eq!(home.wait(id, turn).await.text, "Hello.");
    assert_eq!((home.state(id).await.turns, home.requests().await.len()), (1, 1));
}

#[tokio::test]
async fn a_power_cut_takes_no_prompt_that_was_acknowledged() {
    let script = json!({ "rules": [
        { "name": "say", "reply": { "text": "Hello." }, "fault": { "times": 1, "do": { "hang": { "after": 0 } } } },
    ] });
    let home = Home::start(script).await;
    let id = home.session(Mode::Default).await;
    let turn = home.prompt(id, "hello").await.turn_id;
    home.asked(1).await;
    let home = home.power_cut(id).await;
    let result = home.wait(id, turn).await;
    assert_eq!((result.outcome, result.text.as_str()), (Outcome::Finished, "Hello."));
}

#[tokio::test]
async fn a_power_cut_takes_no_approval_that_was_shown_and_no_answer() {
    let write = json!([{ "name": "write_file", "arguments": { "file_path": "b.txt", "content": "beta\n" } }]);
    let home = Home::start(calls(write)).await;
    let id = home.session(Mode::Default).await;
    let mut listener = home.listen(id).await;
    let turn = home.prompt(id, "write").await.turn_id;
    let shown = listener.next("approvalRequested").await;

    let home = home.power_cut(id).await;
    let answer = home.answer(id, ChoiceId::AllowOnce).await;
    assert_eq!(answer.approval_id, approval_id(&shown), "the same question waits");
    home.respond(answer.clone()).await.unwrap();
    assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished);

    let home = home.power_cut(id).await;
    assert!(home.state(id).await.approvals.is_empty());
    assert_eq!(home.respond(answer).await.unwrap().status, "accepted", "the winner is told so again");
    assert_eq!(std::fs::read_to_string(home.project.join("b.txt")).unwrap(), "beta\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_is_on_the_disk_before_anyone_sees_it() {
    let write = json!([{ "name": "write_file", "arguments": { "file_path": "b.txt", "content": "beta\n" } }]);
    let home = Home::start(calls(write)).await;
    let id = home.session(Mode::Default).await;
    let mut listener = home.listen(id).await;
    home.prompt(id, "write").await;
    // The model's calls are shown; the next sync is that of the approval.
    listener.next("toolCallStarted").await;
    let held = home.faults.hold_next_sync();
    let entered = tokio::task::spawn_blocking(move || {
        held.entered.recv().unwrap();
        held
    });
    let held = entered.await.unwrap();
    let early = listener.so_far();
    let shown = early.iter().any(|event| event["type"] == "approvalRequested");
    assert!(!shown && home.registry.waiting(None).await.is_empty(), "{early:?}");
    held.release.send(()).unwrap();
    listener.next("approvalRequested").await;
}

/// Carries out `call` while its sync does not return, and then lets it: it must not be answered before.
async fn answered_after_its_sync<T: std::fmt::Debug>(
    home: &Home,
    what: &str,
    call: impl Future<Output = Result<T, SessionError>>,
) {
    let held = home.faults.hold_next_sync();
    let mut call = std::pin::pin!(call);
    assert!(futures_util::poll!(call.as_mut()).is_pending());
    let held = tokio::task::spawn_blocking(move || {
        held.entered.recv().unwrap();
        held
    });
    let held = tokio::select! {
        biased;
        early = call.as_mut() => panic!("{what} was answered before its sync: {early:?}"),
        held = held => held.unwrap(),
    };
    // Whoever had answered before the sync began would be heard by now.
    for _ in 0..100 {
        tokio::task::yield_now().await;
        assert!(futures_util::poll!(call.as_mut()).is_pending(), "{what} was answered while its sync ran");
    }
    held.release.send(()).unwrap();
    call.await.unwrap();
}

#[tokio::test]
async fn a_prompt_a_mode_an_answer_and_an_interrupt_are_on_the_disk_before_they_are_answered() {
    let write = json!([{ "name": "write_file", "arguments": { "file_path": "b.txt", "content": "beta\n" } }]);
    let home = Home::start(calls(write)).await;
    let id = home.session(Mode::Default).await;
    // Another session that waits, to be interrupted at the end.
    let waiting = home.session(Mode::Default).await;
    let mut waits = home.listen(waiting).await;
    home.prompt(waiting, "write").await;
    waits.next("approvalRequested").await;
    let mut listener = home.listen(id).await;
    answered_after_its_sync(&home, "a mode", home.set_mode(id, Mode::Plan)).await;
    answered_after_its_sync(&home, "a mode", home.set_mode(id, Mode::Default)).await;
    answered_after_its_sync(&home, "a prompt", home.try_prompt(prompt(id, "write"))).await;
    listener.next("approvalRequested").await;
    let answer = home.answer(id, ChoiceId::AllowOnce).await;
    answered_after_its_sync(&home, "an answer", home.respond(answer)).await;
    listener.next("turnFinished").await;
    let interrupt =
        home.registry.ask(waiting, |reply| Command::Interrupt { turn: None, caller: person(), reply });
    answered_after_its_sync(&home, "an interrupt", interrupt).await;
}

#[tokio::test]
async fn an_effect_begins_after_the_disk_knows_that_it_may_have() {
    let write = json!([{ "name": "write_file", "arguments": { "file_path": "b.txt", "content": "beta\n" } }]);
    let script = json!({ "rules": [
        { "name": "work", "when": { "total_answers": 0 }, "reply": { "calls": write },
          "fault": { "times": 1, "do": { "hang": { "after": 0 } } } },
        { "name": "rest", "reply": { "text": "Done." } },
    ] });
    let home = Home::start(script).await;
    let id = home.session(Mode::AcceptEdits).await;
    let mut listener = home.listen(id).await;
    let turn = home.prompt(id, "write").await.turn_id;
    home.asked(1).await;
    // Nothing of the answer has to be on the disk; the next thing that has is the start of the call.
    let held = home.faults.hold_next_sync();
    home.release().await;
    let held = tokio::task::spawn_blocking(move || {
        held.entered.recv().unwrap();
        held
    });
    let held = held.await.unwrap();
    assert!(listener.so_far().iter().any(|event| event["type"] == "permissionDecided"));
    assert!(!home.project.join("b.txt").exists(), "it began before anybody could know");
    held.release.send(()).unwrap();
    assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished);
    assert!(home.project.join("b.txt").exists());
}

#[tokio::test]
async fn a_tool_that_panics_fails_its_call_and_no_other() {
    for act in ["panic", "panic early"] {
        let home = Home::start(calls(json!([
            { "name": "probe", "arguments": { "act": act } },
            { "name": "probe", "arguments": { "act": "fine" } },
        ])))
        .await;
        let id = home.session(Mode::Default).await;
        let mut listener = home.listen(id).await;
        let turn = home.prompt(id, "go").await.turn_id;
        assert_eq!(home.wait(id, turn).await.text, "Done.");
        let first = listener.next("toolCallFinished").await;
        assert!(first["status"] == "error" && first["content"].as_str().unwrap().contains("fault of agentd"));
        assert_eq!(listener.next("toolCallFinished").await["status"], "ok", "{act}");
    }
}

#[tokio::test]
async fn a_panic_in_a_sessions_task_restarts_it_from_its_journal_and_nobody_else_notices() {
    let home = Home::start(calls(json!([{ "name": "probe", "arguments": {} }]))).await;
    let (id, other) = (home.session(Mode::Default).await, home.session(Mode::Default).await);
    let mut listener = home.listen(id).await;
    home.probe.list_panics.store(true, Ordering::SeqCst);
    home.prompt(id, "go").await;
    // The list of tools is read in the session's task while a call is made ready.
    listener.until(|event| event["type"] == "notice" && event["code"] == "internal").await;
    listener.next("turnResumed").await;
    let end = listener.next("turnFinished").await;
    assert_eq!(end["outcome"], "finished");
    let turn = home.prompt(other, "go").await.turn_id;
    assert_eq!(home.wait(other, turn).await.outcome, Outcome::Finished);
}

#[tokio::test]
async fn a_conversation_that_cannot_be_read_back_fails_the_turn_instead_of_hanging_it() {
    let home = Home::start(says("Hello.")).await;
    let id = home.session(Mode::Default).await;
    let blobs = home.paths.session_dir(id).join("blobs");
    std::fs::rename(&blobs, blobs.with_extension("away")).unwrap();
    // Nor written again.
    std::fs::write(&blobs, "in the way").unwrap();
    let turn = home.prompt(id, "hello").await.turn_id;
    let result = home.wait(id, turn).await;
    assert_eq!(result.outcome, Outcome::Failed);
    let error = result.error.unwrap();
    assert!(error.contains("cannot"), "{error}");
    std::fs::remove_file(&blobs).unwrap();
    std::fs::rename(blobs.with_extension("away"), &blobs).unwrap();
    let turn = home.prompt(id, "again").await.turn_id;
    assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished);
}

#[tokio::test]
async fn a_prompt_that_cannot_be_read_back_fails_and_what_waits_behind_it_runs() {
    let home = Home::start(calls(json!([{ "name": "probe", "arguments": { "act": "wait" } }]))).await;
    let id = home.session(Mode::Default).await;
    let first = home.prompt(id, "first").await.turn_id;
    let lost = home.prompt(id, &"long ".repeat(20_000)).await.turn_id;
    let after = home.prompt(id, "after").await.turn_id;
    let blobs = home.paths.session_dir(id).join("blobs");
    for entry in std::fs::read_dir(blobs).unwrap().flatten() {
        if entry.metadata().unwrap().len() == 100_000 {
            std::fs::write(entry.path(), "x".repeat(100_000)).unwrap();
        }
    }
    home.probe.gate.0.add_permits(1);
    assert_eq!(home.wait(id, first).await.outcome, Outcome::Finished);
    let failed = home.wait(id, lost).await;
    assert_eq!(failed.outcome, Outcome::Failed);
    assert!(failed.error.unwrap().contains("cannot be read back"));
    assert_eq!(home.wait(id, after).await.outcome, Outcome::Finished);
}

#[tokio::test]
async fn a_session_that_cannot_be_read_can_be_deleted() {
    let home = Home::start(says("Hello.")).await;
    let id = home.session(Mode::Default).await;
    home.registry.leave().await;
    let dir = home.paths.session_dir(id);
    for damage in ["", "nonsense\n", "nonsense\nmore\n"] {
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("journal.jsonl"), damage).unwrap();
        let registry = super::registry(&home.paths, &home.journals, &home.clock, &home.probe, &home.model);
        registry.ask(id, |reply| Command::Delete { reply }).await.unwrap();
        assert!(!dir.exists(), "{damage:?}");
        let again = registry.ask(id, |reply| Command::Delete { reply }).await;
        assert!(matches!(again, Err(SessionError::NotFound(_))));
    }
}

#[tokio::test]
async fn a_session_that_cannot_be_begun_leaves_nothing_and_its_id_is_free() {
    let home = Home::start(says("Hello.")).await;
    let id = SessionId::generate();
    let params = NewParams { session_id: Some(id), ..home.params(Mode::Plan) };
    home.faults.fail(Op::Write, 1);
    not_saved(home.registry.create(params.clone(), &person()).await);
    assert!(!home.paths.session_dir(id).exists());
    assert_eq!(std::fs::read_dir(home.paths.plans_dir()).unwrap().count(), 0);
    assert!(matches!(home.registry.snapshot(id).await, Err(SessionError::NotFound(_))));
    home.registry.create(params, &person()).await.unwrap();
}

#[tokio::test]
async fn an_id_whose_creation_was_cut_short_by_a_crash_can_be_used() {
    let home = Home::start(says("Hello.")).await;
    // Nothing of the first commit, and half of it; asked for before it is made again, and not.
    for (written, asked) in [("", true), ("", false), ("{\"v\":1,\"seq\":1,", true), ("{\"v\":1,", false)] {
        let id = SessionId::generate();
        let dir = home.paths.session_dir(id);
        drop(home.journals.create(&dir, []).await.unwrap().0);
        std::fs::write(dir.join(crate::journal::FILE_NAME), written).unwrap();
        if asked {
            assert!(matches!(home.registry.snapshot(id).await, Err(SessionError::NotFound(_))), "{written}");
        }
        let params = NewParams { session_id: Some(id), ..home.params(Mode::Default) };
        home.registry.create(params, &person()).await.unwrap();
        assert_eq!(home.state(id).await.session_id, id);
    }
}

#[tokio::test]
async fn a_first_commit_that_was_finished_and_then_damaged_is_not_taken_for_none() {
    let home = Home::start(says("Hello.")).await;
    let id = SessionId::generate();
    let dir = home.paths.session_dir(id);
    drop(home.journals.create(&dir, []).await.unwrap().0);
    std::fs::write(dir.join(crate::journal::FILE_NAME), "{\"v\":1,\"sXq\":1,\n").unwrap();
    let params = NewParams { session_id: Some(id), ..home.params(Mode::Default) };
    let error = home.registry.create(params, &person()).await.unwrap_err();
    assert!(matches!(error, SessionError::Storage { .. }), "{error:?}");
}

#[tokio::test]
async fn damage_to_what_sessions_begin_with_is_mended_in_each_of_them() {
    let home = Home::start(says("Hello.")).await;
    let (one, two) = (home.session(Mode::Default).await, home.session(Mode::Default).await);
    let blobs = home.paths.session_dir(one).join("blobs");
    for file in std::fs::read_dir(&blobs).unwrap() {
        // In place, so the file of the other session is the same.
        let path = file.unwrap().path();
        let length = path.metadata().unwrap().len();
        std::fs::write(&path, "x".repeat(usize::try_from(length).unwrap())).unwrap();
    }
    let home = home.restart().await;
    for id in [one, two] {
        let turn = home.prompt(id, "hello").await.turn_id;
        assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished);
    }
    let request = home.requests().await.pop().unwrap();
    assert!(!request.to_string().contains("xxxx"), "{request}");
}
