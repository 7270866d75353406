//! What whoever follows a session sees of its commands, its changes, and of others' answers.

use serde_json::{Value, json};

use crate::fake::{Fake, Reply, SESSION, digest, error, event, ok, plan_approval, waiting};
use crate::{Script, finished, requested, session, text};

fn command(seq: u64, turn: &Value) -> Value {
    let body = json!({"type": "toolCallStarted", "callId": format!("{SESSION}:c:00112233deadbeef"), "tool": "run_shell",
        "kind": "execute", "title": "run make", "input": {}, "paths": []});
    event(seq, turn, body)
}

fn command_ends(seq: u64, turn: &Value, content: &str) -> Value {
    let body = json!({"type": "toolCallFinished", "callId": format!("{SESSION}:c:00112233deadbeef"), "status": "ok",
        "content": content});
    event(seq, turn, body)
}

/// A turn that runs a command, and what the daemon says that it changed.
fn turn_with_a_command(changes: impl Fn() -> Reply + Send + Sync + 'static) -> Fake {
    let mut script = session(|turn| {
        let output: String = (1..=9).map(|n| format!("line {n} \u{1b}[2J\n")).collect();
        let edited = json!({"type": "fileChanged", "path": "/tmp/by-tool.rs", "before": null, "after": digest('1'),
            "callId": format!("{SESSION}:c:1"), "added": 2, "removed": 0});
        vec![
            event(2, turn, json!({"type": "turnStarted"})),
            event(3, turn, edited),
            command(4, turn),
            command_ends(5, turn, &format!("{output}[exit code 0]")),
            finished(6, turn, "finished"),
        ]
    });
    script.push(("session/changes", Box::new(move |_| changes())));
    Fake::start(script)
}

fn delta(path: &str, kind: &str, added: u64) -> Value {
    json!({"path": path, "kind": kind, "seen": "git", "added": added, "removed": 0, "hunks": 1})
}

#[test]
fn the_end_of_a_commands_output_is_shown_on_a_terminal() {
    let (shown, code) =
        turn_with_a_command(|| error(-32057, "storage", json!({}))).terminal(&["run", "x"], &[]).finish();
    assert_eq!(code, 0, "{shown}");
    assert!(!shown.contains("line 3 "), "{shown}");
    assert!(shown.contains("    line 4 <U+001B>[2J") && shown.contains("    line 9 <U+001B>[2J"), "{shown}");
    assert!(shown.contains("exit code 0 · all 9 lines:"), "{shown}");
    assert!(shown.contains(" show api-otter deadbeef"), "{shown}");
}

#[test]
fn the_end_of_a_turn_counts_what_commands_changed_too() {
    let fake = turn_with_a_command(|| {
        let files = json!([
            delta("by-tool.rs", "modified", 2),
            delta("made.txt", "added", 1),
            delta("old", "deleted", 0)
        ]);
        ok(json!({"root": "/tmp", "seen": "git", "files": files, "added": 3, "removed": 0}))
    });
    let stderr = text(&fake.agentctl(&["run", "x"]).stderr);
    assert!(
        stderr.contains("3 files changed\n  by-tool.rs  +2 -0\n  made.txt  +1 -0\n  old  deleted\n"),
        "{stderr}"
    );
    let asked = fake.wait_for("session/changes");
    assert_eq!(
        (&asked["turn"], &asked["stat"]),
        (&fake.wait_for("session/prompt")["promptId"], &json!(true))
    );
}

#[test]
fn where_commands_changes_are_not_known_the_end_of_a_turn_says_so() {
    let stderr =
        text(&turn_with_a_command(|| error(-32057, "storage", json!({}))).agentctl(&["run", "x"]).stderr);
    assert!(stderr.contains("1 file changed by its tools; all: "), "{stderr}");
    assert!(stderr.contains(" diff api-otter\n  by-tool.rs  +2 -0\n"), "{stderr}");
    let fake = turn_with_a_command(|| {
        ok(json!({"root": "/tmp", "seen": "tools", "files": [], "added": 0, "removed": 0}))
    });
    let stderr = text(&fake.agentctl(&["run", "x"]).stderr);
    assert!(
        stderr.contains("1 file changed by its tools; what commands change is not seen here\n"),
        "{stderr}"
    );
}

/// A plan whose file is edited from outside, which an answer finds out.
fn edited_from_outside() -> Fake {
    let mut script = session(|turn| vec![requested(2, turn, "# Old")]);
    let stale: Script = Box::new(|params| match params["revision"] == digest('3') {
        true => error(-32052, "stale", json!({})),
        false => ok(json!({"status": "accepted", "modeNow": "acceptEdits"})),
    });
    script.push(("approval/respond", stale));
    script.push(("approval/get", Box::new(|_| ok(waiting(edited())))));
    Fake::start(script)
}

fn edited() -> Value {
    let mut current = plan_approval("# New");
    current["plan"]["revision"] = digest('4').into();
    current
}

#[test]
fn an_edit_that_an_answer_finds_out_is_drawn_once() {
    let fake = edited_from_outside();
    let mut terminal = fake.terminal(&["run", "x"], &[]);
    let turn = fake.wait_for("session/prompt")["promptId"].clone();
    terminal.expect("then Enter: ");
    terminal.wait_until_it_listens();
    terminal.type_text("2\n");
    terminal.expect("The plan changed in the meantime");
    terminal.expect("then Enter: ");
    terminal.wait_until_it_listens();
    // The event comes behind the answer.
    let by = json!({"type": "planChanged", "revision": digest('4'), "diff": "", "by": "outside"});
    fake.send(event(3, &turn, by));
    let mut changed = edited();
    changed["type"] = "approvalChanged".into();
    fake.send(event(4, &turn, changed));
    fake.send(json!({"type": "notice", "code": "c", "text": "and then", "sessionId": SESSION}));
    let between = terminal.expect("and then");
    assert!(!between.contains("New"), "{between}");
    terminal.type_text("2\n");
    terminal.expect("mode acceptEdits");
    fake.send(finished(5, &turn, "finished"));
    assert_eq!(terminal.finish().1, 0);
}

#[test]
fn who_answered_first_and_what_is_said_by_the_words_of_the_menu() {
    let by = json!({"principal": "user:1000", "client": "agentctl", "pid": 1963});
    let mut script = session(|turn| vec![requested(2, turn, "# P")]);
    let data = json!({"by": by, "choice": "clearAndExecute"});
    script.push(("approval/respond", Box::new(move |_| error(-32051, "approvalSettled", data.clone()))));
    let fake = Fake::start(script);
    let mut terminal = fake.terminal(&["run", "x"], &[]);
    let turn = fake.wait_for("session/prompt")["promptId"].clone();
    terminal.expect("then Enter: ");
    terminal.wait_until_it_listens();
    terminal.type_text("2\n");
    terminal.expect("Already answered in another terminal (agentctl, pid 1963): Start fresh");
    let mut second = plan_approval("# Two");
    second["approvalId"] = format!("{SESSION}:a:cafecafe").into();
    second["type"] = "approvalRequested".into();
    fake.send(event(3, &turn, second));
    terminal.expect("then Enter: ");
    let resolved = json!({"type": "approvalResolved", "approvalId": format!("{SESSION}:a:cafecafe"),
        "resolution": "answered", "choice": "keepPlanning", "by": by, "feedback": "use cursors"});
    fake.send(event(4, &turn, resolved));
    terminal.expect("Answered in another terminal (agentctl, pid 1963): Keep planning");
    terminal.expect("\"use cursors\"");
    fake.send(finished(5, &turn, "finished"));
    assert_eq!(terminal.finish().1, 0);
}
