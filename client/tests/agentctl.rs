//! The real binary against a scripted daemon: exit codes, what goes where, and a person at a terminal.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod cases;
mod fake;

use std::sync::{Arc, Mutex};

use fake::{APPROVAL, Fake, Reply, SESSION, digest, error, event, ok, plan_approval, state, synced, waiting};
use serde_json::{Value, json};

type Script = Box<dyn Fn(&Value) -> Reply + Send + Sync>;

fn fixed(make: impl Fn() -> Reply + Send + Sync + 'static) -> Script {
    Box::new(move |_| make())
}

/// The calls of `run`: a session, a subscription, and a prompt whose turn has these events.
fn session(events: impl Fn(&Value) -> Vec<Value> + Send + Sync + 'static) -> Vec<(&'static str, Script)> {
    vec![
        (
            "session/new",
            fixed(|| {
                ok(
                    json!({"sessionId": SESSION, "handle": "api-otter", "state": state("default", "idle", json!([]))}),
                )
            }),
        ),
        (
            "events/subscribe",
            fixed(|| ok(json!(null)).then(vec![synced(state("default", "idle", json!([])))])),
        ),
        (
            "session/prompt",
            Box::new(move |params| {
                let turn = &params["promptId"];
                ok(json!({"turnId": turn, "queued": false})).then(events(turn))
            }),
        ),
    ]
}

fn message(seq: u64, turn: &Value, token: &str, text: &str) -> Value {
    let id = format!("{SESSION}:m:{token}");
    event(seq, turn, json!({"type": "message", "messageId": id, "role": "assistant", "text": text}))
}

fn call(seq: u64, turn: &Value, title: &str) -> Value {
    let id = format!("{SESSION}:c:1");
    let body = json!({"type": "toolCallStarted", "callId": id, "tool": "read_file", "kind": "read", "title": title,
        "input": {}, "paths": []});
    event(seq, turn, body)
}

fn finished(seq: u64, turn: &Value, outcome: &str) -> Value {
    let usage = json!({"inputTokens": 1200, "outputTokens": 34, "requests": 2});
    event(seq, turn, json!({"type": "turnFinished", "outcome": outcome, "usage": usage, "denials": []}))
}

fn requested(seq: u64, turn: &Value, content: &str) -> Value {
    let mut body = plan_approval(content);
    body["type"] = "approvalRequested".into();
    event(seq, turn, body)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn off_a_terminal_stdout_is_the_final_text() {
    let fake = Fake::start(session(|turn| {
        vec![
            message(2, turn, "1", "I look first."),
            call(3, turn, "read src/lib.rs"),
            message(4, turn, "2", "Done.\u{1b}[2J"),
            finished(5, turn, "finished"),
        ]
    }));
    let output = fake.agentctl(&["run", "--plan", "--mode", "accept-edits", "do", "it"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "Done.<U+001B>[2J\n");
    let stderr = text(&output.stderr);
    for part in ["the only key found", "mode plan", "I look first.", "• read src/lib.rs", "1.2k in, 34 out"]
    {
        assert!(stderr.contains(part), "{part:?} is missing: {stderr}");
    }
    let new = fake.wait_for("session/new");
    assert_eq!(new["mode"], "acceptEdits");
    assert_eq!(new["env"]["PATH"], "/usr/bin:/bin");
    let prompt = fake.wait_for("session/prompt");
    assert_eq!((&prompt["mode"], &prompt["content"][0]["text"]), (&json!("plan"), &json!("do it")));
}

#[test]
fn every_outcome_has_its_exit_code() {
    for (outcome, code) in
        [("finished", 0), ("failed", 1), ("refused", 5), ("limit", 7), ("interrupted", 130)]
    {
        let fake = Fake::start(session(move |turn| vec![finished(2, turn, outcome)]));
        assert_eq!(fake.agentctl(&["run", "x"]).status.code(), Some(code), "{outcome}");
    }
}

#[test]
fn off_a_terminal_an_approval_ends_the_run_with_4() {
    let fake = Fake::start(session(|turn| vec![requested(2, turn, "# P\n\nOnly for those who read it.")]));
    let output = fake.agentctl(&["run", "x"]);
    assert_eq!(output.status.code(), Some(4));
    let stderr = text(&output.stderr);
    assert!(stderr.contains(APPROVAL), "{stderr}");
    // What is asked, then how to see it again, then how to say yes to exactly that.
    let at = |part: &str| stderr.find(part).unwrap_or_else(|| panic!("{part:?} is missing: {stderr}"));
    assert!(at("Only for those who read it.") < at("Next: "), "{stderr}");
    assert!(at("approve deadbeef\n") < at("approve deadbeef execute --revision 333333333333"), "{stderr}");
    assert!(fake.calls("approval/respond").is_empty());
}

#[test]
fn json_is_one_event_a_line_as_it_came() {
    let fake = Fake::start(session(|turn| {
        vec![
            event(2, turn, json!({"type": "futureThing", "more": [1]})),
            message(3, turn, "1", "hi"),
            finished(4, turn, "finished"),
        ]
    }));
    let output = fake.agentctl_with(&["run", "--json", "-"], &[], "from stdin");
    assert_eq!(output.status.code(), Some(0));
    let events: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["synced", "futureThing", "message", "turnFinished"]);
    assert_eq!(events[1]["more"], json!([1]));
    assert_eq!(fake.wait_for("session/prompt")["content"][0]["text"], "from stdin");
}

#[test]
fn a_key_that_only_the_client_has_is_named() {
    let fake = Fake::start(vec![
        ("session/new", fixed(|| error(-32059, "invalidInput", json!({"field": "model"})))),
        (
            "key/list",
            fixed(|| {
                ok(json!({"keys": [], "providers": [{"provider": "anthropic", "env": "ANTHROPIC_API_KEY"}]}))
            }),
        ),
    ]);
    let output = fake.agentctl_with(&["run", "x"], &[("ANTHROPIC_API_KEY", "sk-secret")], "");
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("ANTHROPIC_API_KEY is set here, but the daemon has no key."), "{stderr}");
    assert!(stderr.contains("key import") && !stderr.contains("sk-secret"), "{stderr}");
}

#[test]
fn a_timeout_stops_the_turn_and_is_124() {
    let mut script = session(|_| vec![]);
    script.push((
        "session/interrupt",
        Box::new(|params| {
            ok(json!({"turnId": params["turnId"]})).then(vec![finished(2, &params["turnId"], "interrupted")])
        }),
    ));
    let fake = Fake::start(script);
    assert_eq!(fake.agentctl(&["run", "--timeout", "10ms", "x"]).status.code(), Some(124));
    assert_eq!(fake.calls("session/interrupt").len(), 1);
}

#[test]
fn without_a_daemon_the_exit_code_is_8() {
    let fake = Fake::start(vec![]);
    let output = fake.agentctl(&["daemon", "status", "--socket", "/tmp/agentd-no-such/s"]);
    assert_eq!(output.status.code(), Some(8));
}

fn one_waiting() -> Vec<(&'static str, Script)> {
    vec![
        ("approval/list", fixed(|| ok(json!({"approvals": [waiting(plan_approval("# The plan"))]})))),
        ("approval/get", fixed(|| ok(waiting(plan_approval("# The plan"))))),
        ("approval/respond", fixed(|| ok(json!({"status": "accepted", "modeNow": "acceptEdits"})))),
        ("session/get", fixed(|| ok(json!({"state": state("plan", "waiting", json!([]))})))),
    ]
}

#[test]
fn approve_with_the_revision_answers_for_exactly_that() {
    let fake = Fake::start(one_waiting());
    let output = fake.agentctl(&["approve", "deadbeef", "execute", "--revision", "333333333333"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let answer = fake.wait_for("approval/respond");
    assert_eq!(answer["approvalId"], APPROVAL);
    assert_eq!((&answer["revision"], &answer["digest"]), (&json!(digest('3')), &json!(digest('7'))));
}

#[test]
fn approve_with_another_revision_answers_nothing() {
    let fake = Fake::start(one_waiting());
    let output = fake.agentctl(&["approve", "execute", "--revision", "aaaaaaaaaaaa"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(fake.agentctl(&["approve", "execute"]).status.code(), Some(2));
    assert!(fake.calls("approval/respond").is_empty());
}

#[test]
fn approve_off_a_terminal_shows_everything_and_is_2() {
    let fake = Fake::start(one_waiting());
    let output = fake.agentctl(&["approve"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stdout).contains("The plan"));
    assert!(text(&output.stderr).contains("--revision 333333333333"));
    assert!(fake.calls("approval/respond").is_empty());
}

#[test]
fn deny_keeps_a_plan_in_planning() {
    let fake = Fake::start(one_waiting());
    assert_eq!(fake.agentctl(&["deny", "-m", "use cursors"]).status.code(), Some(0));
    let answer = fake.wait_for("approval/respond");
    assert_eq!((&answer["choice"], &answer["feedback"]), (&json!("keepPlanning"), &json!("use cursors")));
}

#[test]
fn an_answer_that_comes_too_late_says_who_was_first() {
    let mut script = one_waiting();
    script.retain(|(method, _)| *method != "approval/respond");
    let by = json!({"by": {"principal": "user:1000", "client": "zed", "pid": 5}, "choice": "execute"});
    script.push(("approval/respond", fixed(move || error(-32051, "approvalSettled", by.clone()))));
    let fake = Fake::start(script);
    let output = fake.agentctl(&["approve", "execute", "--revision", "333333333333"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("Already answered by zed (pid 5): Start\n"), "{stderr}");
}

#[test]
fn waiting_prints_the_next_commands() {
    let fake = Fake::start(one_waiting());
    let output = fake.agentctl(&["waiting"]);
    let stdout = text(&output.stdout);
    assert!(stdout.contains(APPROVAL) && stdout.contains("approve deadbeef execute --revision 333333333333"));
}

#[test]
fn a_key_goes_from_stdin_to_the_daemon_and_is_not_printed() {
    let fake = Fake::start(vec![
        (
            "key/list",
            fixed(|| ok(json!({"keys": [], "providers": [{"provider": "anthropic", "env": null}]}))),
        ),
        ("key/test", fixed(|| ok(json!({"ok": false, "error": "401 unauthorized", "model": "m"})))),
    ]);
    let output = fake.agentctl_with(&["key", "add", "anthropic"], &[], "sk-secret\n");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_eq!(fake.wait_for("key/set")["key"], "sk-secret");
    let all = text(&output.stdout) + &text(&output.stderr);
    assert!(all.contains("401 unauthorized") && !all.contains("sk-secret"), "{all}");
}

#[test]
fn rpc_prints_the_answer() {
    let fake = Fake::start(vec![("session/list", Box::new(|params: &Value| ok(json!({"got": params}))))]);
    let output = fake.agentctl(&["rpc", "session/list", "{\"order\":\"updated\"}"]);
    assert_eq!(text(&output.stdout), "{\"got\":{\"order\":\"updated\"}}\n");
}

#[test]
fn the_demo_answers_aloud_and_leaves_the_project_to_be_looked_at() {
    let mut script = session(|turn| vec![requested(2, turn, "# P")]);
    script.push((
        "approval/respond",
        Box::new(|params| {
            ok(json!({"status": "accepted", "modeNow": "plan"})).then(if params["choice"] == "execute" {
                vec![json!({"type": "sessionDeleted", "sessionId": SESSION})]
            } else {
                let mut again = plan_approval("# Two");
                again["approvalId"] = format!("{SESSION}:a:2").into();
                again["type"] = "approvalRequested".into();
                vec![event(3, &Value::Null, again)]
            })
        }),
    ));
    let fake = Fake::start(script);
    let output = fake.agentctl(&["demo", "--auto"]);
    let choices: Vec<Value> =
        fake.calls("approval/respond").iter().map(|call| call["choice"].clone()).collect();
    assert_eq!(choices, ["keepPlanning", "execute"]);
    assert!(text(&output.stderr).contains("--auto answers: keepPlanning"));
    assert!(text(&output.stderr).contains("playback"));
    let new = fake.wait_for("session/new");
    assert_eq!((&new["model"], &new["mode"]), (&json!("demo/tour"), &json!("plan")));
    let cwd = new["cwd"].as_str().unwrap();
    assert!(std::path::Path::new(cwd).exists());
    let stderr = text(&output.stderr);
    assert!(stderr.contains(&format!("rm -r {cwd}")) && !stderr.contains("whole cycle."), "{stderr}");
    assert_eq!(fake.calls("session/delete").len(), 1);
}

#[test]
fn what_was_typed_before_the_question_does_not_answer_it() {
    let mut script = session(|_| vec![]);
    script.push(("approval/respond", fixed(|| ok(json!({"status": "accepted", "modeNow": "acceptEdits"})))));
    let fake = Fake::start(script);
    let mut terminal = fake.terminal(&["run", "x"], &[]);
    let turn = fake.wait_for("session/prompt")["promptId"].clone();
    terminal.expect("agentctl");
    terminal.type_text("1\n3\n");
    fake.send(requested(2, &turn, "# P \u{1b}]52;c;eA==\u{7}\n\n1  Start\u{9b}2J"));
    let drawn = terminal.expect("then Enter: ");
    assert!(drawn.contains("<U+001B>]52;c;eA==<U+0007>") && drawn.contains("<U+009B>2J"), "{drawn}");
    terminal.type_text("1\n");
    terminal.wait_until_it_listens();
    terminal.type_text("2\n");
    let answer = fake.wait_for("approval/respond");
    assert_eq!(answer["choice"], "execute");
    assert_eq!(fake.calls("approval/respond").len(), 1);
    terminal.expect("mode acceptEdits");
    fake.send(finished(3, &turn, "finished"));
    let (rest, code) = terminal.finish();
    assert_eq!(code, 0, "{rest}");
}

#[test]
fn somebody_elses_answer_withdraws_the_question() {
    let fake = Fake::start(session(|turn| vec![requested(2, turn, "# P")]));
    let mut terminal = fake.terminal(&["run", "x"], &[]);
    let turn = fake.wait_for("session/prompt")["promptId"].clone();
    terminal.expect("then Enter: ");
    let by = json!({"principal": "user:1000", "client": "zed", "pid": 5});
    let resolved = json!({"type": "approvalResolved", "approvalId": APPROVAL, "resolution": "answered",
        "choice": "execute", "by": by});
    fake.send(event(3, &turn, resolved));
    terminal.expect("Answered by zed (pid 5): Start");
    fake.send(finished(4, &turn, "finished"));
    assert_eq!(terminal.finish().1, 0);
}

#[test]
fn a_stale_answer_is_asked_again() {
    let mut script = session(|turn| vec![requested(2, turn, "# Old")]);
    script.push((
        "approval/respond",
        Box::new(|params| {
            if params["revision"] == digest('3') {
                return error(-32052, "stale", json!({}));
            }
            ok(json!({"status": "accepted", "modeNow": "acceptEdits"}))
        }),
    ));
    script.push((
        "approval/get",
        fixed(|| {
            let mut current = plan_approval("# New");
            current["plan"]["revision"] = digest('4').into();
            ok(waiting(current))
        }),
    ));
    let fake = Fake::start(script);
    let mut terminal = fake.terminal(&["run", "x"], &[]);
    let turn = fake.wait_for("session/prompt")["promptId"].clone();
    terminal.expect("then Enter: ");
    terminal.wait_until_it_listens();
    terminal.type_text("2\n");
    terminal.expect("The plan changed in the meantime");
    assert!(terminal.expect("then Enter: ").contains("New"));
    terminal.wait_until_it_listens();
    terminal.type_text("2\n");
    terminal.expect("mode acceptEdits");
    assert_eq!(fake.wait_for("approval/respond")["revision"], digest('4'));
    fake.send(finished(3, &turn, "finished"));
    assert_eq!(terminal.finish().1, 0);
}

#[test]
fn a_lost_connection_is_bridged() {
    let turn = Arc::new(Mutex::new(Value::Null));
    let (told, asked) = (Arc::clone(&turn), Arc::clone(&turn));
    let mut script = session(|_| vec![]);
    script.retain(|(method, _)| *method == "session/new");
    script.push((
        "session/prompt",
        Box::new(move |params| {
            *told.lock().unwrap() = params["promptId"].clone();
            let reply = ok(json!({"turnId": params["promptId"], "queued": false}));
            Reply { hang_up: true, ..reply.then(vec![message(2, &params["promptId"], "1", "Before. ")]) }
        }),
    ));
    script.push((
        "events/subscribe",
        Box::new(move |params| {
            let mut events = vec![synced(state("default", "running", json!([])))];
            if params["afterSeq"] == 2 {
                let turn = asked.lock().unwrap();
                events.extend([message(3, &turn, "2", "After."), finished(4, &turn, "finished")]);
            }
            ok(json!(null)).then(events)
        }),
    ));
    let fake = Fake::start(script);
    let output = fake.agentctl(&["run", "x"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "After.\n");
    assert!(text(&output.stderr).contains("Connected again."));
}

/// A session with one finished turn and, perhaps, something that waits.
fn attached(activity: &'static str, approvals: Value) -> Vec<(&'static str, Script)> {
    let turn = json!("0193bbbb-0000-7000-8000-000000000001");
    let waits = approvals.clone();
    vec![
        ("session/list", fixed(|| ok(json!({"sessions": [], "next": null})))),
        ("session/get", fixed(move || ok(json!({"state": state("plan", activity, approvals.clone())})))),
        (
            "session/history",
            fixed(move || {
                let events = [
                    event(2, &turn, json!({"type": "turnStarted"})),
                    message(3, &turn, "1", "All done."),
                    finished(4, &turn, "refused"),
                ];
                ok(json!({"events": events, "head": 4, "more": false}))
            }),
        ),
        (
            "events/subscribe",
            fixed(move || ok(json!(null)).then(vec![synced(state("plan", activity, waits.clone()))])),
        ),
        ("approval/respond", fixed(|| ok(json!({"status": "accepted", "modeNow": "default"})))),
    ]
}

#[test]
fn attach_off_a_terminal_ends_when_nothing_runs() {
    let fake = Fake::start(attached("idle", json!([])));
    let output = fake.agentctl(&["attach", SESSION]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "All done.\n");
}

#[test]
fn attach_asks_what_waits_and_leaves_with_0() {
    let fake = Fake::start(attached("waiting", json!([plan_approval("# P")])));
    let mut terminal = fake.terminal(&["attach", SESSION], &[]);
    terminal.expect("Leave plan mode");
    terminal.expect("then Enter: ");
    terminal.wait_until_it_listens();
    terminal.type_text("3\n");
    terminal.expect("mode default");
    assert_eq!(fake.wait_for("approval/respond")["choice"], "manualExecute");
    let mut terminal = fake.terminal(&["attach", SESSION], &[]);
    terminal.expect("then Enter: ");
    terminal.type_text("\u{3}");
    let (rest, code) = terminal.finish();
    assert_eq!(code, 0, "{rest}");
    assert!(rest.contains("approve deadbeef"), "{rest}");
}

#[test]
fn attach_is_left_by_a_key_while_nothing_is_asked() {
    for key in ["q", "\u{4}"] {
        let fake = Fake::start(attached("idle", json!([])));
        let mut terminal = fake.terminal(&["attach", SESSION], &[]);
        terminal.expect("q or Ctrl-D leaves, which stops nothing");
        terminal.expect("All done.");
        terminal.expect("Idle. q or Ctrl-D leaves.");
        // Neither other keys, nor a `q` within what was pasted or sent by another key.
        for other in ["x", "quit\n", "\u{1b}[q"] {
            terminal.type_text(other);
        }
        fake.send(event(9, &Value::Null, json!({"type": "titleChanged", "title": "t"})));
        fake.send(json!({"type": "notice", "code": "c", "text": "still here", "sessionId": SESSION}));
        terminal.expect("still here");
        terminal.type_text(key);
        let (rest, code) = terminal.finish();
        assert_eq!(code, 0, "{rest}");
        assert!(rest.contains("Left; nothing was stopped."), "{rest}");
        assert_eq!(fake.calls("session/interrupt").len(), 0);
    }
}

#[test]
fn after_an_answer_the_key_leaves_again() {
    let fake = Fake::start(attached("waiting", json!([plan_approval("# P")])));
    let mut terminal = fake.terminal(&["attach", SESSION], &[]);
    terminal.expect("then Enter: ");
    terminal.wait_until_it_listens();
    terminal.type_text("3\n");
    terminal.expect("mode default");
    terminal.wait_until_it_hears_keys();
    terminal.type_text("q");
    let (rest, code) = terminal.finish();
    assert_eq!(code, 0, "{rest}");
}

#[test]
fn a_late_joiner_sees_the_text_so_far_once_and_hears_when_it_is_withdrawn() {
    let mut script = attached("running", json!([]));
    script.retain(|(name, _)| *name != "events/subscribe");
    let id = format!("{SESSION}:m:9");
    let mut writing = state("plan", "running", json!([]));
    writing["text"] = json!([{"messageId": id, "text": "Once upon"}]);
    script.push(("events/subscribe", fixed(move || ok(json!(null)).then(vec![synced(writing.clone())]))));
    let fake = Fake::start(script);
    let mut terminal = fake.terminal(&["attach", SESSION], &[]);
    terminal.expect("Once upon");
    let delta = |offset: u64, text: &str| json!({"type": "messageDelta", "messageId": format!("{SESSION}:m:9"), "offset": offset, "text": text});
    fake.send(delta(5, "upon a time"));
    let between = terminal.expect(" a time");
    assert!(!between.contains("upon"), "{between}");
    let aborted =
        json!({"type": "messageAborted", "messageId": format!("{SESSION}:m:9"), "reason": "overloaded"});
    fake.send(event(9, &Value::Null, aborted));
    terminal.expect("The text above is withdrawn: overloaded");
    terminal.type_text("q");
    assert_eq!(terminal.finish().1, 0);
}

#[test]
fn no_session_of_this_folder_is_a_usage_error() {
    let fake = Fake::start(attached("idle", json!([])));
    for args in [&["attach"][..], &["stop"], &["send", "x"], &["mode"], &["plan", "show"]] {
        let output = fake.agentctl(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(" run \"…\"\n"), "{args:?}");
    }
}

#[test]
fn ctrl_c_stops_the_turn() {
    let mut script = session(|_| vec![]);
    script.push((
        "session/interrupt",
        Box::new(|params| {
            ok(json!({"turnId": params["turnId"]})).then(vec![finished(2, &params["turnId"], "interrupted")])
        }),
    ));
    let fake = Fake::start(script);
    let mut terminal = fake.terminal(&["run", "x"], &[]);
    fake.wait_for("session/prompt");
    terminal.expect("Ctrl-C stops the turn");
    terminal.type_text("\u{3}");
    let (rest, code) = terminal.finish();
    assert_eq!(code, 130, "{rest}");
}

#[test]
fn a_second_ctrl_c_leaves_the_turn_running() {
    let fake = Fake::start({
        let mut script = session(|_| vec![]);
        script.push(("session/interrupt", fixed(|| ok(json!({"turnId": null})))));
        script
    });
    let mut terminal = fake.terminal(&["run", "x"], &[]);
    fake.wait_for("session/prompt");
    terminal.expect("Ctrl-C stops the turn");
    terminal.type_text("\u{3}");
    terminal.expect("Stopping");
    terminal.type_text("\u{3}");
    let (rest, code) = terminal.finish();
    assert_eq!(code, 3);
    assert!(rest.contains("attach api-otter") && rest.contains("told to stop"), "{rest}");
}

#[test]
fn ctrl_c_while_asked_only_leaves() {
    let fake = Fake::start(session(|turn| vec![requested(2, turn, "# P")]));
    let mut terminal = fake.terminal(&["run", "x"], &[]);
    terminal.expect("then Enter: ");
    terminal.type_text("\u{3}");
    let (rest, code) = terminal.finish();
    assert_eq!(code, 4);
    assert!(rest.contains("approve deadbeef"), "{rest}");
    assert!(fake.calls("session/interrupt").is_empty());
}

#[test]
fn the_plan_can_be_edited_before_it_is_approved() {
    let mut script = session(|turn| vec![requested(2, turn, "# Theirs\n")]);
    script.push(("approval/respond", fixed(|| ok(json!({"status": "accepted", "modeNow": "acceptEdits"})))));
    let fake = Fake::start(script);
    let mut terminal = fake.terminal(&["run", "x"], &[("EDITOR", "sed -i s/Theirs/Mine/")]);
    let turn = fake.wait_for("session/prompt")["promptId"].clone();
    terminal.expect("then Enter: ");
    terminal.wait_until_it_listens();
    terminal.type_text("e\n");
    let drawn = terminal.expect("then Enter: ");
    assert!(drawn.contains("Your version") && drawn.contains("Mine"), "{drawn}");
    terminal.wait_until_it_listens();
    terminal.type_text("2\n");
    terminal.expect("mode acceptEdits");
    assert_eq!(fake.wait_for("approval/respond")["editedPlan"], "# Mine\n");
    fake.send(finished(3, &turn, "finished"));
    assert_eq!(terminal.finish().1, 0);
}

#[test]
fn approve_on_a_terminal_asks() {
    let fake = Fake::start(one_waiting());
    let mut terminal = fake.terminal(&["approve"], &[]);
    terminal.type_text("1\n");
    assert!(terminal.expect("then Enter: ").contains("The plan"));
    terminal.wait_until_it_listens();
    terminal.type_text("4\n");
    terminal.expect("What should change?");
    terminal.type_text("use cursors\n");
    let (rest, code) = terminal.finish();
    assert_eq!(code, 0, "{rest}");
    let answer = fake.wait_for("approval/respond");
    assert_eq!((&answer["choice"], &answer["feedback"]), (&json!("keepPlanning"), &json!("use cursors")));
}

#[test]
fn a_key_typed_at_a_terminal_does_not_show() {
    let fake = Fake::start(vec![
        (
            "key/list",
            fixed(|| ok(json!({"keys": [], "providers": [{"provider": "anthropic", "env": null}]}))),
        ),
        ("key/test", fixed(|| ok(json!({"ok": true, "model": "m"})))),
    ]);
    let mut terminal = fake.terminal(&["key", "add", "anthropic"], &[]);
    let before = terminal.expect("it is not shown");
    terminal.type_text("sk-secret\n");
    let (rest, code) = terminal.finish();
    assert_eq!(code, 0, "{rest}");
    assert!(!(before + &rest).contains("sk-secret"), "{rest}");
    assert_eq!(fake.wait_for("key/set")["key"], "sk-secret");
}

#[test]
fn a_reader_that_leaves_does_not_end_the_turn() {
    for (running, code) in [(true, 3), (false, 1)] {
        let mut script = session(|_| vec![]);
        let turn = Arc::new(Mutex::new(Value::Null));
        let (told, asked) = (Arc::clone(&turn), Arc::clone(&turn));
        script.retain(|(method, _)| *method != "session/prompt");
        script.push((
            "session/prompt",
            Box::new(move |params| {
                *told.lock().unwrap() = params["promptId"].clone();
                ok(json!({"turnId": params["promptId"], "queued": false})).then(vec![message(
                    2,
                    &params["promptId"],
                    "1",
                    "hi",
                )])
            }),
        ));
        script.push((
            "session/get",
            fixed(move || {
                let mut state = state("default", if running { "running" } else { "idle" }, json!([]));
                state["lastOutcome"] = json!("failed");
                if running {
                    state["turnId"] = asked.lock().unwrap().clone();
                }
                ok(json!({"state": state}))
            }),
        ));
        let fake = Fake::start(script);
        let output = fake.agentctl_unread(&["run", "--json", "x"]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        let stderr = text(&output.stderr);
        assert_eq!(stderr.contains("api-otter goes on without this client."), running, "{stderr}");
        assert_eq!(stderr.contains("attach api-otter"), running, "{stderr}");
    }
}

#[test]
fn stopping_a_daemon_that_does_not_run_is_no_mistake() {
    let fake = Fake::start(vec![]);
    let output = fake.agentctl(&["daemon", "stop", "--socket", "/tmp/agentd-no-such/s"]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "agentd is not running.\n"));
}

#[test]
fn an_unknown_method_leads_to_a_known_one() {
    let fake = Fake::start(vec![("nope", fixed(|| error(-32601, "x", json!({}))))]);
    let output = fake.agentctl(&["rpc", "nope"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("rpc daemon/status"), "{}", text(&output.stderr));
}

#[test]
fn a_steering_prompt_that_finds_no_turn_starts_one() {
    for (steered, expected) in
        [(false, "api-otter works on it; no turn was running."), (true, "reads it before its next step")]
    {
        let mut script = attached("idle", json!([]));
        script.push((
            "session/prompt",
            Box::new(move |params| {
                let turn = if steered { json!(SESSION) } else { params["promptId"].clone() };
                ok(json!({"turnId": turn, "queued": false}))
            }),
        ));
        let fake = Fake::start(script);
        let output = fake.agentctl(&["send", SESSION, "--at", "step", "x"]);
        assert!(text(&output.stdout).contains(expected), "{}", text(&output.stdout));
    }
}

#[test]
fn several_that_wait_are_listed_and_nothing_is_answered() {
    let fake = Fake::start({
        let mut script = one_waiting();
        script.retain(|(method, _)| *method != "approval/list");
        script.push((
            "approval/list",
            fixed(|| {
                let mut other = plan_approval("# Other");
                other["approvalId"] = format!("{SESSION}:a:cafecafe").into();
                ok(json!({"approvals": [waiting(plan_approval("# The plan")), waiting(other)]}))
            }),
        ));
        script
    });
    for args in [&["approve"][..], &["deny"]] {
        let output = fake.agentctl(args);
        assert_eq!(output.status.code(), Some(2));
        let stderr = text(&output.stderr);
        assert_eq!(stderr.lines().count(), 4, "{stderr}");
        assert!(stderr.contains("\n  deadbeef  plan") && stderr.contains("\n  cafecafe  plan"), "{stderr}");
        assert!(stderr.contains(&format!("{} deadbeef", args[0])), "{stderr}");
    }
    assert!(fake.calls("approval/respond").is_empty());
}

#[test]
fn an_edited_plan_leaves_no_file_once_it_is_accepted() {
    let fake = Fake::start(one_waiting());
    let drafts = || {
        let names = std::fs::read_dir(fake.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("agentd-plan-")).count()
    };
    let mut terminal = fake.terminal(&["approve", "--edit"], &[("EDITOR", "sed -i s/The/My/")]);
    assert!(terminal.expect("then Enter: ").contains("Your version"));
    assert_eq!(drafts(), 1);
    terminal.wait_until_it_listens();
    terminal.type_text("2\n");
    let (rest, code) = terminal.finish();
    assert_eq!(code, 0, "{rest}");
    assert_eq!(fake.wait_for("approval/respond")["editedPlan"], "# My plan");
    assert_eq!(drafts(), 0);
}

#[test]
fn another_clients_edit_draws_the_question_anew() {
    let changed = |seq: u64| {
        let mut current = plan_approval("# New");
        current["plan"]["revision"] = digest('4').into();
        current["type"] = "approvalChanged".into();
        let edited = json!({"type": "planChanged", "revision": digest('4'), "diff": "", "by": "client"});
        [event(seq, &Value::Null, edited), event(seq + 1, &Value::Null, current)]
    };
    let mut script = session(|turn| vec![requested(2, turn, "# Old")]);
    script.extend(one_waiting().into_iter().filter(|(method, _)| *method != "session/get"));
    script.push(("session/get", fixed(|| ok(json!({"state": state("plan", "waiting", json!([]))})))));
    let fake = Fake::start(script);
    for args in [&["run", "x"][..], &["approve"]] {
        let mut terminal = fake.terminal(args, &[]);
        terminal.expect("then Enter: ");
        terminal.wait_until_it_listens();
        changed(10).into_iter().for_each(|event| fake.send(event));
        terminal.expect("Another client edited the plan. This is how it stands now:");
        assert!(terminal.expect("then Enter: ").contains("New"));
        terminal.wait_until_it_listens();
        terminal.type_text("q\n");
        assert_eq!(terminal.finish().1, 4);
    }
}

#[test]
fn a_long_call_is_said_to_run_until_it_ends() {
    let fake = Fake::start(session(|turn| {
        vec![event(2, turn, json!({"type": "turnStarted"})), call(3, turn, "run make")]
    }));
    let mut terminal = fake.terminal(&["run", "x"], &[]);
    let turn = fake.wait_for("session/prompt")["promptId"].clone();
    terminal.expect("run make");
    terminal.expect("running … ");
    fake.send(finished(4, &turn, "finished"));
    terminal.expect("\r\u{1b}[K");
    assert_eq!(terminal.finish().1, 0);
}

#[test]
fn a_second_ctrl_c_does_not_say_that_nothing_was_stopped() {
    let mut script = attached("running", json!([]));
    script.push(("session/interrupt", fixed(|| ok(json!({"turnId": SESSION})))));
    let fake = Fake::start(script);
    let mut terminal = fake.terminal(&["attach", SESSION], &[]);
    terminal.expect("All done.");
    terminal.type_text("\u{3}");
    terminal.expect("Stopping");
    terminal.type_text("\u{3}");
    let (rest, code) = terminal.finish();
    assert_eq!(code, 0, "{rest}");
    assert!(rest.contains("told to stop") && !rest.contains("nothing was stopped"), "{rest}");
}

fn item(n: u8) -> Value {
    json!({"promptId": format!("0193cccc-0000-7000-8000-0000000000{n:02x}"), "origin": "client", "at": "turn",
        "preview": "later", "queuedAt": "2026-01-01T00:00:00.000Z"})
}

#[test]
fn what_an_interrupt_holds_is_said_and_can_be_dropped() {
    let inbox = || fixed(|| ok(json!({"inbox": [item(1), item(2)], "held": true})));
    let interrupted = || {
        let mut script = session(|turn| vec![finished(2, turn, "interrupted")]);
        script.push(("session/inbox", inbox()));
        script
    };
    let fake = Fake::start(interrupted());
    let stderr = text(&fake.agentctl(&["run", "x"]).stderr);
    assert!(stderr.contains("2 prompts are held."), "{stderr}");
    assert!(stderr.contains("stop --drop api-otter"), "{stderr}");

    // Whoever comes later is told, too.
    let mut script = attached("idle", json!([]));
    script.retain(|(method, _)| *method != "session/get");
    script.push((
        "session/get",
        fixed(|| {
            let mut state = state("default", "idle", json!([]));
            state["inbox"] = json!([item(1)]);
            state["inboxHeld"] = true.into();
            ok(json!({"state": state}))
        }),
    ));
    script.push(("session/inbox", inbox()));
    script.push(("session/interrupt", fixed(|| ok(json!({"turnId": null})))));
    script.push((
        "session/prompt",
        Box::new(|params| ok(json!({"turnId": params["promptId"], "queued": true}))),
    ));
    let fake = Fake::start(script);
    let stderr = text(&fake.agentctl(&["attach", SESSION]).stderr);
    assert!(stderr.contains("1 prompt is held."), "{stderr}");
    let stdout = text(&fake.agentctl(&["send", SESSION, "hello"]).stdout);
    assert!(stdout.contains("1 prompt that had been held goes first"), "{stdout}");
    let stdout = text(&fake.agentctl(&["stop", SESSION]).stdout);
    assert!(stdout.contains("2 prompts are held."), "{stdout}");
    assert!(fake.calls("session/withdraw").is_empty());
    let stdout = text(&fake.agentctl(&["stop", "--drop", SESSION]).stdout);
    assert!(stdout.contains("2 prompts are dropped."), "{stdout}");
    let dropped: Vec<Value> =
        fake.calls("session/withdraw").iter().map(|call| call["promptId"].clone()).collect();
    assert_eq!(dropped, [item(1)["promptId"].clone(), item(2)["promptId"].clone()]);
}

fn unsettled() -> (&'static str, Script) {
    let status = fixed(|| {
        ok(json!({"daemonId": SESSION, "version": "0", "build": "b", "pid": 1, "uptimeMs": 0, "socket": "/s",
            "liveSessions": 0, "runningTurns": 0, "waitingApprovals": 0, "connections": 1, "shuttingDown": false,
            "bypassEnabled": false, "shellEnv": [], "notices": [
                {"code": "config.unknownKey", "text": "config.toml:1: unknown key `modle`"},
                {"code": "plan.verify", "text": "not about the file"}]}))
    });
    ("daemon/status", status)
}

#[test]
fn mistakes_in_the_settings_are_in_the_first_lines() {
    let mut script = session(|turn| vec![finished(2, turn, "finished")]);
    script.push(unsettled());
    let run = text(&Fake::start(script).agentctl(&["run", "x"]).stderr);
    let mut script = attached("idle", json!([]));
    script.push(unsettled());
    let attach = text(&Fake::start(script).agentctl(&["attach", SESSION]).stderr);
    for stderr in [run, attach] {
        let second = stderr.lines().nth(1).unwrap_or_default();
        assert_eq!(second, "settings: config.toml:1: unknown key `modle`", "{stderr}");
        assert!(!stderr.contains("not about the file"), "{stderr}");
    }
}

#[test]
fn a_key_in_this_shell_does_not_hide_what_is_wrong_with_the_settings() {
    let fake = Fake::start(vec![
        unsettled(),
        ("session/new", fixed(|| error(-32059, "invalidInput", json!({"field": "model"})))),
        (
            "key/list",
            fixed(|| {
                ok(json!({"keys": [], "providers": [{"provider": "anthropic", "env": "ANTHROPIC_API_KEY"}]}))
            }),
        ),
    ]);
    let output = fake.agentctl_with(&["run", "x"], &[("ANTHROPIC_API_KEY", "sk-secret")], "");
    assert!(text(&output.stderr).contains("invalidInput"), "{}", text(&output.stderr));
    // A model that was typed and cannot be used is a matter of the command line.
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(fake.agentctl(&["run", "--model", "nope/x", "x"]).status.code(), Some(2));
}

#[test]
fn a_silent_model_is_said_to_be_waited_for() {
    let fake = Fake::start(session(|turn| vec![event(2, turn, json!({"type": "turnStarted"}))]));
    let mut terminal = fake.terminal(&["run", "x"], &[]);
    let turn = fake.wait_for("session/prompt")["promptId"].clone();
    terminal.expect("waiting for the model … ");
    fake.send(message(3, &turn, "1", "Here I am."));
    terminal.expect("\r\u{1b}[K");
    terminal.expect("Here I am.");
    fake.send(finished(4, &turn, "finished"));
    assert_eq!(terminal.finish().1, 0);
}

#[test]
fn a_session_that_waits_is_not_deleted_by_the_way() {
    let fake = Fake::start(attached("waiting", json!([plan_approval("# P")])));
    let output = fake.agentctl(&["rm", SESSION]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("waits for your answer") && stderr.contains("rm --force"), "{stderr}");
    assert!(fake.calls("session/delete").is_empty());
    assert_eq!(fake.agentctl(&["rm", "--force", SESSION]).status.code(), Some(0));
    assert_eq!(fake.calls("session/delete").len(), 1);
}

#[test]
fn the_next_command_is_the_one_that_was_typed() {
    let row = |id: &str| {
        let mut row = state("default", "running", json!([]));
        row["sessionId"] = id.into();
        row["handle"] = "otter".into();
        row
    };
    let mut script = attached("idle", json!([]));
    script.retain(|(method, _)| *method != "session/list");
    let rows =
        json!([row("0193aaaa-0000-7000-8000-00000000aaaa"), row("0193aaaa-0000-7000-8000-00000000bbbb")]);
    script.push(("session/list", fixed(move || ok(json!({"sessions": rows, "next": null})))));
    let fake = Fake::start(script);
    for (args, expected) in [
        (&["stop", "otter"][..], "stop 0000aaaa"),
        (&["send", "otter", "x"], "send 0000aaaa \"…\""),
        (&["send", "--at", "step", "otter", "x"], "send 0000aaaa --at step \"…\""),
        (&["mode", "otter", "plan"], "mode 0000aaaa plan"),
        (&["plan", "show", "otter"], "plan show 0000aaaa"),
        (&["attach", "otter"], "attach 0000aaaa"),
    ] {
        let stderr = text(&fake.agentctl(args).stderr);
        assert!(stderr.trim_end().ends_with(expected), "{args:?}: {stderr}");
    }
}

#[test]
fn search_shows_where_something_was_said_and_the_next_command() {
    let found = json!({
        "sessionId": SESSION, "handle": "api-otter", "title": "Paging", "parent": null, "cwd": "/srv/api", "mode": "plan",
        "model": {"provider": "p", "model": "m", "reason": "asked for"}, "createdAt": "2026-11-30T12:00:00.000Z",
        "updatedAt": "2026-11-30T12:00:00.000Z", "activity": "idle", "waitingFor": [], "lastOutcome": null, "health": "ok",
    });
    let hit = json!({
        "session": found, "seq": 7, "at": "2026-11-30T12:00:00.000Z", "role": "assistant",
        "snippet": [{"text": "uses "}, {"text": "cursors", "matched": true}, {"text": " \u{1b}[2Jnow"}],
    });
    let fake = Fake::start(vec![
        ("session/search", fixed(move || ok(json!({"hits": [hit], "complete": false})))),
        ("daemon/reindex", fixed(|| ok(json!({"sessions": 2})))),
        ("session/list", fixed(|| ok(json!({"sessions": [], "next": null})))),
        (
            "session/history",
            fixed(|| {
                let started = |seq| event(seq, &Value::Null, json!({"type": "turnStarted"}));
                ok(json!({"events": [started(2), started(6)], "head": 9, "more": false}))
            }),
        ),
    ]);
    let output = fake.agentctl(&["search", "--limit", "5", "cursors", "now"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    assert!(stdout.starts_with("api-otter  Paging  /srv/api\n"), "{stdout}");
    assert!(stdout.contains("agent  uses cursors <U+001B>[2Jnow\n"), "{stdout}");
    assert!(stdout.trim_end().ends_with("show api-otter '#2'"), "{stdout}");
    assert!(text(&output.stderr).contains("something may be missing"), "{}", text(&output.stderr));
    assert_eq!(fake.wait_for("session/search"), json!({"query": "cursors now", "limit": 5}));

    let output = fake.agentctl(&["daemon", "reindex"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).starts_with("The index is being made anew from 2 sessions.\n"));
}
