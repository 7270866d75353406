//! The plan's file between the agent, an editor and crashes: nobody's save is lost, and none is taken for another's.

use agentd_protocol::turn::Outcome;

use super::plans::{PLAN, plan_file, presented};
use super::*;

const THEIRS: &str = "# Theirs\n\n1. What I want\n";

/// Waits, beside the runtime, until a commit is about to be synced; until it is released the disk has not confirmed it.
async fn next_sync(home: &Home) -> tokio::task::JoinHandle<crate::journal::faults::HeldSync> {
    let held = home.faults.hold_next_sync();
    tokio::task::spawn_blocking(move || {
        held.entered.recv().unwrap();
        held
    })
}

/// As if the file had been written so long after (or before) the fixed clock of these tests.
fn touched_at(file: &std::path::Path, ms: i64) {
    let at = std::time::UNIX_EPOCH
        + std::time::Duration::from_millis(u64::try_from(1_700_000_000_000 + ms).unwrap());
    std::fs::File::options().write(true).open(file).unwrap().set_modified(at).unwrap();
}

/// The journal as it is when the daemon died before it noted that the plan's file was written.
fn forget_saves(home: &Home, id: SessionId) {
    let journal = home.paths.session_dir(id).join("journal.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    assert!(text.contains("planSaved"));
    std::fs::write(&journal, text.replace("planSaved", "forgotten")).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_while_the_agents_own_is_written_is_kept_and_presented() {
    let script = json!({
        "values": { "plan": { "in": "any", "matches": "^Plan file: (.+)$", "pick": "last", "default": "none" } },
        "rules": [
            { "name": "plan", "when": { "total_answers": 0 },
              "fault": { "times": 1, "do": { "hang": { "after": 0 } } },
              "reply": { "calls": [{ "name": "write_file", "arguments": { "file_path": "{{plan}}", "content": PLAN } }] } },
            { "name": "present", "reply": { "calls": [{ "name": "exit_plan_mode", "arguments": {} }] } },
        ],
    });
    let home = Home::start(script).await;
    let id = home.session(Mode::Plan).await;
    let mut listener = home.listen(id).await;
    home.prompt(id, "add paging").await;
    home.asked(1).await;
    let held = next_sync(&home).await;
    home.release().await;
    let held = held.await.unwrap();
    // The agent's revision is on its way into the journal; its text is not in the file yet.
    let folder = home.paths.plans_dir();
    let file = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
    std::fs::write(&file, THEIRS).unwrap();
    held.release.send(()).unwrap();

    assert_eq!(listener.next("planChanged").await["by"], "own");
    assert_eq!(listener.next("planChanged").await["by"], "outside");
    assert_eq!(listener.next("approvalRequested").await["plan"]["content"], THEIRS);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), THEIRS);
    // Told that theirs stands, they undo it: that is theirs as well.
    std::fs::write(&file, "").unwrap();
    touched_at(&file, 0);
    let answer = home.answer(id, ChoiceId::Execute).await;
    assert!(matches!(home.respond(answer).await, Err(SessionError::Conflict(_))));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
}

#[tokio::test]
async fn a_save_that_cannot_be_read_is_told_also_before_there_is_a_plan() {
    let script = json!({
        "values": { "plan": { "in": "any", "matches": "^Plan file: (.+)$", "pick": "last", "default": "none" } },
        "rules": [
            { "name": "plan", "when": { "total_answers": 0 },
              "reply": { "calls": [{ "name": "write_file", "arguments": { "file_path": "{{plan}}", "content": PLAN } }] } },
            { "name": "present", "when": { "after": ["plan"] }, "reply": { "calls": [{ "name": "exit_plan_mode", "arguments": {} }] } },
            { "name": "rest", "reply": { "text": "Done." } },
        ],
    });
    let home = Home::start(script).await;
    let id = home.session(Mode::Plan).await;
    let file = plan_file(&home.state(id).await);
    std::fs::write(&file, b"# caf\xe9\n").unwrap();
    let mut listener = home.listen(id).await;
    home.prompt(id, "add paging").await;
    let asked = listener.next("approvalRequested").await;
    assert_eq!(asked["plan"]["content"], PLAN);
    assert!(asked["plan"]["note"].as_str().unwrap().contains("not UTF-8"), "{asked}");
    // Saved again, it counts, and there is nothing to tell any more.
    std::fs::write(&file, THEIRS).unwrap();
    let answer = home.answer(id, ChoiceId::Execute).await;
    let Err(SessionError::Stale(now)) = home.respond(answer).await else { panic!("not looked at") };
    let agentd_protocol::approval::Subject::Plan { plan } = &now.subject else { panic!("no plan") };
    assert_eq!((plan.content.as_str(), &plan.note), (THEIRS, &None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_while_an_edited_plan_is_written_stays_in_the_file_and_is_not_executed() {
    let (home, id, turn, mut listener) = presented(Mode::Default).await;
    let mut answer = home.answer(id, ChoiceId::Execute).await;
    answer.edited_plan = Some("# Mine\n\n1. Only this\n".into());
    let file = plan_file(&home.state(id).await);
    let held = next_sync(&home).await;
    let registry = Arc::clone(&home.registry);
    let answered = tokio::spawn(async move {
        let respond = |reply| Command::Respond { params: Box::new(answer), caller: person(), reply };
        registry.ask(id, respond).await
    });
    let held = held.await.unwrap();
    std::fs::write(&file, THEIRS).unwrap();
    held.release.send(()).unwrap();
    answered.await.unwrap().unwrap();
    let notice = listener.until(|event| event["type"] == "notice" && event["code"] == "planFile").await;
    assert!(notice["text"].as_str().unwrap().contains("saved by somebody"), "{notice}");
    home.wait(id, turn).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), THEIRS);
    let executing = home.requests().await.pop().unwrap().to_string();
    assert!(executing.contains("Only this") && !executing.contains("What I want"), "{executing}");
}

#[tokio::test]
async fn an_edit_after_the_approval_keeps_what_a_person_saved_since() {
    let plan = "{{plan}}";
    let script = json!({
        "values": { "plan": { "in": "any", "matches": "^Plan file: (.+)$", "pick": "last", "default": "none" } },
        "rules": [
            { "name": "tick", "when": { "texts": [{ "in": "prompt", "contains": "tick" }], "not_called": ["edit_file"] },
              "reply": { "calls": [{ "name": "edit_file", "arguments": { "file_path": plan, "old_string": "1. Write", "new_string": "1. (done) Write" } }] } },
            { "name": "rest", "when": { "texts": [{ "in": "prompt", "contains": "tick" }] }, "reply": { "text": "Ticked." } },
            { "name": "plan", "when": { "total_answers": 0 },
              "reply": { "calls": [{ "name": "write_file", "arguments": { "file_path": plan, "content": PLAN } }] } },
            { "name": "present", "when": { "after": ["plan"] }, "reply": { "calls": [{ "name": "exit_plan_mode", "arguments": {} }] } },
            { "name": "done", "reply": { "text": "Done." } },
        ],
    });
    let home = Home::start(script).await;
    let id = home.session(Mode::Plan).await;
    let mut listener = home.listen(id).await;
    let turn = home.prompt(id, "add paging").await.turn_id;
    listener.next("approvalRequested").await;
    let answer = home.answer(id, ChoiceId::Execute).await;
    home.respond(answer).await.unwrap();
    home.wait(id, turn).await;
    let file = plan_file(&home.state(id).await);
    std::fs::write(&file, format!("{PLAN}2. Remember the docs\n")).unwrap();
    let turn = home.prompt(id, "tick it off").await.turn_id;
    assert_eq!(home.wait(id, turn).await.text, "Ticked.");
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text, "# Plan\n\n1. (done) Write b.txt\n2. Remember the docs\n");
    assert_eq!(listener.next("planChanged").await["by"], "outside");
    assert_eq!(listener.next("planChanged").await["by"], "own");
}

#[tokio::test]
async fn a_plan_whose_file_a_crash_left_behind_the_journal_is_written_again_at_once() {
    let (home, id, _, _) = presented(Mode::Default).await;
    let file = plan_file(&home.state(id).await);
    let home = home
        .restart_after(|home| {
            forget_saves(home, id);
            std::fs::write(&file, "").unwrap();
            touched_at(&file, 0);
        })
        .await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), PLAN);
    // From here on the same bytes are a person's save again, also after another crash.
    std::fs::write(&file, "").unwrap();
    let home = home.restart().await;
    let answer = home.answer(id, ChoiceId::Execute).await;
    assert!(matches!(home.respond(answer).await, Err(SessionError::Conflict(_))));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
}

#[tokio::test]
async fn what_a_person_put_back_while_no_daemon_ran_is_theirs() {
    let (home, id, _, _) = presented(Mode::Default).await;
    let file = plan_file(&home.state(id).await);
    let home = home
        .restart_after(|home| {
            // Killed between the file and the note that it was written, and then undone in an editor.
            forget_saves(home, id);
            std::fs::write(&file, "").unwrap();
        })
        .await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
    let answer = home.answer(id, ChoiceId::Execute).await;
    assert!(matches!(home.respond(answer).await, Err(SessionError::Conflict(_))));
}

#[tokio::test]
async fn a_file_written_before_the_crash_needs_no_mending_and_later_saves_are_a_persons() {
    let (home, id, _, _) = presented(Mode::Default).await;
    let file = plan_file(&home.state(id).await);
    let home = home.restart_after(|home| forget_saves(home, id)).await;
    // An undo in an editor, to exactly what stood there before the agent wrote.
    std::fs::write(&file, "").unwrap();
    let answer = home.answer(id, ChoiceId::Execute).await;
    assert!(matches!(home.respond(answer).await, Err(SessionError::Conflict(_))));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
}

#[tokio::test]
async fn whoever_answers_is_told_of_an_unreadable_save_also_after_a_crash() {
    let (home, id, turn, _) = presented(Mode::Default).await;
    let file = plan_file(&home.state(id).await);
    std::fs::write(&file, b"# caf\xe9\n").unwrap();
    let old = home.answer(id, ChoiceId::Execute).await;
    // Somebody looks, and the file is set aside.
    home.registry.ask(id, |reply| Command::PlanGet { reply }).await.unwrap();
    let home = home.restart().await;
    let answer = home.answer(id, ChoiceId::Execute).await;
    let Err(SessionError::Stale(_)) = home.respond(old).await else {
        panic!("it was answered by somebody who was not told")
    };
    let told = home.state(id).await.approvals.remove(0);
    let agentd_protocol::approval::Subject::Plan { plan } = &told.subject else { panic!("no plan") };
    assert!(plan.note.as_ref().unwrap().contains("not UTF-8"), "{plan:?}");
    // Whoever has seen the note answers, and so does it after another crash.
    let home = home.restart().await;
    home.respond(answer).await.unwrap();
    assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished);
    assert_eq!(std::fs::read(file.with_extension("md.aside-1")).unwrap(), b"# caf\xe9\n");
}

#[tokio::test]
async fn an_answer_during_a_shutdown_is_carried_out_at_the_next_start() {
    let script = json!({
        "values": { "plan": { "in": "any", "matches": "^Plan file: (.+)$", "pick": "last", "default": "none" } },
        "faults": [{ "times": 1, "do": { "hang": { "after": 0 } } }],
        "rules": [
            { "name": "plan", "when": { "not_called": ["write_file"] },
              "reply": { "calls": [{ "name": "write_file", "arguments": { "file_path": "{{plan}}", "content": PLAN } }] } },
            { "name": "present", "when": { "after": ["plan"] }, "reply": { "calls": [{ "name": "exit_plan_mode", "arguments": {} }] } },
            { "name": "rest", "reply": { "text": "Done." } },
        ],
    });
    let home = Home::start(script).await;
    let id = home.session(Mode::Plan).await;
    let turn = home.prompt(id, "add paging").await.turn_id;
    home.asked(1).await;
    // The turn has one crash behind it when it comes to wait.
    let home = home.restart().await;
    let mut listener = home.listen(id).await;
    if home.state(id).await.approvals.is_empty() {
        listener.next("approvalRequested").await;
    }
    let answer = home.answer(id, ChoiceId::Execute).await;
    home.registry.park(std::time::Duration::from_secs(10)).await;
    home.respond(answer).await.unwrap();
    let home = home.restart().await;
    let ended = home.wait(id, turn).await;
    assert_eq!((ended.outcome, ended.error), (Outcome::Finished, None));
}
