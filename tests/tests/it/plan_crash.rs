//! The daemon is killed around a plan's approval.

use std::io::Write as _;

use agentd_tests::{Chat, Daemon, Dialect, Line, Reply, Script, Start, World};
use serde_json::{Value, json};

use crate::plan_approval::presented;
use crate::plan_gate::planning;

const PLAN: &str = "# Plan\n1. keep every word\n";

fn script() -> Script {
    Script::new().step(planning(PLAN)).step(Reply::text("I carry it out."))
}

fn plan_text(approval: &Value) -> String {
    std::fs::read_to_string(approval["plan"]["path"].as_str().unwrap()).unwrap()
}

#[test]
fn pm_20_killed_before_the_answer_the_same_approval_waits() {
    let mut world = World::new(script());
    let (chat, approval) = presented(&world, "default");
    world.kill9_and_restart();
    // J24: nobody is attached; whoever comes answers with what it was shown before.
    let mut line = Line::connect_as(world.daemon.socket(), "other terminal", "person");
    let listed = line.call("approval/list", json!({}));
    assert_eq!(listed["approvals"].as_array().unwrap().len(), 1);
    assert_eq!(listed["approvals"][0]["approvalId"], approval["approvalId"]);
    assert_eq!(listed["approvals"][0]["digest"], approval["digest"]);
    let state = line.call("session/get", json!({"sessionId": chat.id}))["state"].take();
    assert_eq!(
        (&state["mode"], &state["activity"], &state["preMode"]),
        (&json!("plan"), &json!("waiting"), &json!("default"))
    );
    assert_eq!(plan_text(&approval), PLAN);
    let turn = state["turnId"].clone();
    let answered = line.call("approval/respond", Chat::answer_to(&approval, "execute", json!({})));
    assert_eq!(answered["modeNow"], "acceptEdits");
    let ended = line.call("turn/wait", json!({"sessionId": chat.id, "turnId": turn}));
    assert_eq!((&ended["outcome"], &ended["text"]), (&json!("finished"), &json!("I carry it out.")));
}

#[test]
fn pm_20_an_approval_survives_many_kills_without_any_effect() {
    let mut world = World::new(script());
    let before = world.home.project().tree();
    let (chat, approval) = presented(&world, "plan");
    for _ in 0..3 {
        world.kill9_and_restart();
    }
    let mut again = Chat::attach(&world.daemon, &chat.id, "later");
    let synced = again.line.event_of("synced");
    assert_eq!(synced["state"]["approvals"][0]["approvalId"], approval["approvalId"]);
    assert!(again.events("turnResumed").is_empty(), "waiting for a person is no crash of a turn");
    assert_eq!(world.model.requests().len(), 1);
    assert_eq!(world.home.project().tree(), before);
}

#[test]
fn pm_20_killed_after_the_answer_the_plan_is_approved_and_carried_out() {
    let mut world = World::new(script());
    let (mut chat, approval) = presented(&world, "default");
    chat.choose(&approval, "execute");
    world.kill9_and_restart();
    let mut again = Chat::attach(&world.daemon, &chat.id, "test");
    assert_eq!(again.outcome(), "finished");
    assert_eq!(again.mode(), "acceptEdits");
    assert_eq!(again.events("planApproved").len(), 1);
    assert_eq!(again.verdict("exit_plan_mode").line(), "exit_plan_mode ask plan.leave ok");
    assert_eq!(plan_text(&approval), PLAN);
    again.choose(&approval, "execute");
}

/// Where the commit with such a record lies in a journal.
fn commit_of(record: &str, journal: &[u8]) -> (usize, usize) {
    let mut start = 0;
    for line in journal.split_inclusive(|byte| *byte == b'\n') {
        if String::from_utf8_lossy(line).contains(record) {
            return (start, start + line.len());
        }
        start += line.len();
    }
    panic!("no {record} in the journal: {}", String::from_utf8_lossy(journal));
}

#[test]
fn pm_20_killed_inside_of_the_answers_commit_it_is_whole_or_absent() {
    for choice in ["execute", "clearAndExecute"] {
        // Hanging, so that nothing follows the answer.
        let hang = Reply::text("never").fault(None, json!({"hang": {"after": 0}}));
        let script = Script::new()
            .rule("hang", json!({"texts": [{"in": "any", "contains": "word for word"}]}), hang)
            .step(planning(PLAN));
        let mut world = World::new(script);
        let (mut chat, approval) = presented(&world, "default");
        chat.choose(&approval, choice);
        let _ = world.model.requests_until(2);
        world.daemon.kill9();
        let journal = world.home.journal(&chat.id);
        let whole = std::fs::read(&journal).unwrap();
        let (start, end) = commit_of("planApproved", &whole);
        let length = end - start;
        let cuts =
            [0, 1, 2, length / 4, length / 2, length * 3 / 4, length - 3, length - 2, length - 1, length];
        for cut in cuts {
            let mut file = std::fs::File::create(&journal).unwrap();
            file.write_all(&whole[..start + cut]).unwrap();
            file.sync_all().unwrap();
            world.daemon.restart(&world.home);
            let mut line = Line::connect_as(world.daemon.socket(), "test", "person");
            let state = line.call("session/get", json!({"sessionId": chat.id}))["state"].take();
            let pending = state["approvals"].as_array().unwrap();
            match (state["mode"].as_str().unwrap(), pending.len()) {
                ("plan", 1) => {
                    assert!(cut < length, "a whole commit was thrown away");
                    assert_eq!(pending[0]["approvalId"], approval["approvalId"]);
                    assert_eq!(pending[0]["plan"], approval["plan"]);
                    assert_eq!(state["activity"], "waiting");
                    assert_eq!(state["plan"]["phase"], "presented");
                }
                ("acceptEdits", 0) => {
                    assert!(cut == length, "{cut} of {length} bytes are no commit");
                    assert_eq!(state["plan"]["phase"], "approved");
                }
                (mode, pending) => panic!("in between at {cut} of {length}: {mode}, {pending} pending"),
            }
            assert_eq!(state["plan"]["revision"], approval["plan"]["revision"]);
            assert_eq!(plan_text(&approval), PLAN);
            world.daemon.kill9();
        }
    }
}

#[test]
fn pm_20_a_torn_answer_can_be_given_again_and_the_tail_is_kept_aside() {
    let mut world = World::new(script());
    let (mut chat, approval) = presented(&world, "default");
    chat.choose(&approval, "execute");
    assert_eq!(chat.outcome(), "finished");
    world.daemon.kill9();
    let journal = world.home.journal(&chat.id);
    let whole = std::fs::read(&journal).unwrap();
    let (start, end) = commit_of("planApproved", &whole);
    std::fs::write(&journal, &whole[..(start + end) / 2]).unwrap();
    // As the daemon leaves it for a session that is not idle.
    std::fs::write(world.home.path(&format!("state/agentd/active/{}", chat.id)), "").unwrap();
    world.daemon.restart(&world.home);
    let mut again = Chat::attach(&world.daemon, &chat.id, "test");
    again.choose(&approval, "execute");
    assert_eq!(again.outcome(), "finished");
    assert_eq!(again.events("planApproved").len(), 1);
    // SE-02: the new commits are not glued to the torn one.
    world.kill9_and_restart();
    let mut third = Chat::attach(&world.daemon, &chat.id, "test");
    assert_eq!(third.outcome(), "finished");
    assert_eq!(third.mode(), "acceptEdits");
    let aside = std::fs::read_dir(journal.parent().unwrap())
        .unwrap()
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().contains("torn"));
    assert!(aside, "the torn tail is kept");
}

#[test]
fn pm_20_a_plan_file_that_is_gone_after_a_crash_is_written_back() {
    let mut world = World::new(script());
    let (chat, approval) = presented(&world, "plan");
    world.daemon.kill9();
    std::fs::remove_file(approval["plan"]["path"].as_str().unwrap()).unwrap();
    world.daemon.restart(&world.home);
    let mut again = Chat::attach(&world.daemon, &chat.id, "test");
    again.choose(&approval, "execute");
    assert_eq!(again.outcome(), "finished");
    assert_eq!(again.events("planRecovered")[0]["from"], "snapshot");
    assert_eq!(plan_text(&approval), PLAN);
}

#[test]
fn pm_20_killed_between_the_commit_of_an_edited_plan_and_its_file_the_persons_text_is_kept() {
    let hang = Reply::text("never").fault(None, json!({"hang": {"after": 0}}));
    let mut world = World::new(Script::new().step(planning(PLAN)).step(hang));
    let (mut chat, approval) = presented(&world, "plan");
    chat.respond(&approval, "keepPlanning", json!({"feedback": "so", "editedPlan": "# Plan\nby a person\n"}))
        .unwrap();
    let _ = world.model.requests_until(2);
    world.daemon.kill9();
    // What a crash before the write would have left: the answer is the journal's last line.
    let journal = world.home.journal(&chat.id);
    let (_, end) = commit_of("planRejected", &std::fs::read(&journal).unwrap());
    std::fs::File::options().write(true).open(&journal).unwrap().set_len(end as u64).unwrap();
    let file = approval["plan"]["path"].as_str().unwrap();
    std::fs::write(file, PLAN).unwrap();
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    std::fs::File::options().write(true).open(file).unwrap().set_modified(long_ago).unwrap();
    world.daemon.restart(&world.home);
    let mut line = world.daemon.connect();
    let plan = line.call("plan/get", json!({"sessionId": chat.id}));
    assert_eq!(plan["content"], "# Plan\nby a person\n");
    assert_eq!(plan_text(&approval), "# Plan\nby a person\n");
}

#[test]
fn pm_13_a_remembered_mode_that_is_not_enabled_any_more_becomes_the_default() {
    let allowing = Start { args: vec!["--allow-bypass".into()], ..Start::default() };
    let mut world = World::with(script(), Dialect::OpenaiChat, "", allowing);
    let (chat, approval) = presented(&world, "bypassPermissions");
    assert_eq!(approval["choices"][2]["modeAfter"], "bypassPermissions");
    world.daemon.kill9();
    world.daemon = Daemon::start(&world.home, Start::default());
    let mut again = Chat::attach(&world.daemon, &chat.id, "test");
    let refused =
        again.respond(&approval, "manualExecute", json!({"mode": "bypassPermissions"})).unwrap_err();
    assert_eq!(refused.code, -32054);
    assert_eq!(again.choose(&approval, "manualExecute")["modeNow"], "default");
    assert_eq!(again.outcome(), "finished");
}
