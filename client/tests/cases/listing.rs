//! Looking at sessions: names, JSON, what is forgotten, and what leads on from a mistake.

use serde_json::{Value, json};

use crate::fake::{Fake, HERE, SESSION, error, event, ok, plan_approval, state, waiting};
use crate::{Script, finished, fixed, text};

fn row(handle: &str) -> Value {
    let mut row = state("default", "idle", json!([]));
    row["handle"] = handle.into();
    row["cwd"] = HERE.into();
    row
}

/// Two turns, the second of which is forgotten.
fn rewound() -> Fake {
    let turn = |n: u8| json!(format!("0193bbbb-0000-7000-8000-00000000000{n}"));
    let at = |mut event: Value| {
        event["at"] = "2026-01-01T00:00:00.000Z".into();
        event
    };
    let history = move |params: &Value| {
        let reset = json!({"type": "contextReset", "reason": "rewind", "from": 5});
        let all = [
            at(event(2, &turn(1), json!({"type": "turnStarted"}))),
            at(finished(3, &turn(1), "finished")),
            at(event(5, &turn(2), json!({"type": "turnStarted"}))),
            at(finished(6, &turn(2), "finished")),
            at(event(8, &Value::Null, reset)),
        ];
        let types = params["types"].as_array().cloned();
        let after = params["afterSeq"].as_u64().unwrap_or_default();
        let wanted = |event: &Value| {
            types.as_ref().is_none_or(|types| types.contains(&event["type"]))
                && event["seq"].as_u64().unwrap() > after
        };
        let events: Vec<Value> = all.into_iter().filter(wanted).collect();
        ok(json!({"events": events, "head": 8, "more": false}))
    };
    let script: Vec<(&'static str, Script)> = vec![
        ("session/list", fixed(|| ok(json!({"sessions": [row("api-otter")], "next": null})))),
        (
            "session/get",
            fixed(|| {
                let mut state = state("default", "idle", json!([]));
                (state["turns"], state["forgottenTurns"], state["seq"]) = (2.into(), 1.into(), 8.into());
                state["lastOutcome"] = "finished".into();
                ok(json!({"state": state}))
            }),
        ),
        ("session/history", Box::new(history)),
        (
            "session/fork",
            fixed(|| {
                let mut made = state("default", "idle", json!([]));
                (made["turns"], made["forgottenTurns"]) = (2.into(), 1.into());
                ok(json!({"sessionId": SESSION, "handle": "api-seal", "atSeq": 8, "state": made}))
            }),
        ),
        ("session/rewind", fixed(|| error(-32053, "conflict", json!({})))),
        ("session/archive", fixed(|| error(-32053, "conflict", json!({})))),
        ("session/changes", fixed(|| error(-32050, "notFound", json!({})))),
        ("session/revert", fixed(|| ok(json!({"reverted": [], "stays": []})))),
        (
            "key/list",
            fixed(|| ok(json!({"keys": [], "providers": [{"provider": "anthropic", "env": null}]}))),
        ),
    ];
    Fake::start(script)
}

#[test]
fn a_forgotten_turn_is_said_to_be_wherever_turns_are_listed() {
    let fake = rewound();
    let said = |args: &[&str]| {
        let output = fake.agentctl(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    for args in [&["log"][..], &["log", "--all"], &["log", "-n", "1"]] {
        let log = said(args);
        assert!(log.contains("#2  forgotten (rewound "), "{log}");
        assert!(!log.contains("#1  forgotten"), "{log}");
    }
    assert!(said(&["show", "2"]).starts_with("#2  forgotten (rewound "));
    assert!(said(&["show", "1"]).starts_with("#1  finished"));
    let page = said(&["show"]);
    assert!(page.contains("idle, turn #2 finished, forgotten since\n"), "{page}");
    assert!(page.contains("2, of which 1 is forgotten (rewound)\n"), "{page}");
    let fork = said(&["fork"]);
    assert!(fork.contains("api-seal has 1 turn behind it"), "{fork}");
    assert!(fork.contains("commands without a name mean it"), "{fork}");
}

#[test]
fn a_sessions_name_alone_is_no_prompt() {
    let fake = rewound();
    for word in ["api-otter", SESSION, "00000001"] {
        let output = fake.agentctl(&["send", word]);
        assert_eq!(output.status.code(), Some(2), "{word}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains("is the name of a session (api-otter)"), "{stderr}");
        assert!(stderr.contains(&format!("send {word} \"…\"\n")), "{stderr}");
        assert!(stderr.contains(&format!("send @ {word}\n")), "{stderr}");
    }
    assert!(fake.calls("session/prompt").is_empty());
    fake.agentctl(&["send", "@", "api-otter"]);
    fake.agentctl(&["send", "hello"]);
    let sent: Vec<Value> =
        fake.calls("session/prompt").iter().map(|call| call["content"][0]["text"].clone()).collect();
    assert_eq!(sent, ["api-otter", "hello"]);
}

#[test]
fn a_mistake_leads_on() {
    let fake = rewound();
    for (args, next) in [
        (&["rewind", "--turns", "9"][..], " log api-otter\n"),
        (&["rewind", "--turn", "9"], " log api-otter\n"),
        (&["rewind"], " log api-otter\n"),
        (&["archive", "api-otter"], " log api-otter\n"),
        (&["diff", "--turn", "9"], " --stat\n"),
        (&["diff", "--reject", "nosuch.py"], " --stat\n"),
        (&["key", "add", "foo"], " key list\n"),
        (&["run", ""], "Say what to do, in quotes"),
    ] {
        let output = fake.agentctl(args);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{args:?}");
        assert!(text(&output.stderr).contains(next), "{args:?}: {}", text(&output.stderr));
    }
    assert_eq!(fake.calls("session/rewind").len(), 1);
}

#[test]
fn json_is_the_daemons_answer_on_one_line() {
    let waits = || waiting(plan_approval("# P\n\u{1b}"));
    let script: Vec<(&'static str, Script)> = vec![
        ("session/list", fixed(|| ok(json!({"sessions": [row("api-otter")], "next": null, "later": 1})))),
        ("session/get", fixed(|| ok(json!({"state": {"later": 2}})))),
        ("session/changes", fixed(|| ok(json!({"later": 3})))),
        ("session/search", fixed(|| ok(json!({"later": 4})))),
        ("approval/list", fixed(move || ok(json!({"approvals": [waits()], "later": 5})))),
        ("approval/get", fixed(move || ok(waits()))),
    ];
    let fake = Fake::start(script);
    for (args, later) in [
        (&["ls", "--json"][..], 1),
        (&["show", "--json"], 2),
        (&["diff", "--json", "--stat"], 3),
        (&["search", "--json", "x"], 4),
        (&["waiting", "--json"], 5),
    ] {
        let output = fake.agentctl(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
        let stdout = text(&output.stdout);
        assert_eq!(stdout.lines().count(), 1, "{args:?}: {stdout}");
        let answer: Value = serde_json::from_str(&stdout).unwrap();
        let told = answer["state"]["later"].as_i64().or(answer["later"].as_i64());
        assert_eq!(told, Some(later), "{args:?}");
    }
}

#[test]
fn a_plan_that_cannot_be_carried_out_is_listed_with_what_works() {
    let blocked = || {
        let mut now = plan_approval("# P");
        now["plan"]["blocked"] = true.into();
        waiting(now)
    };
    let script: Vec<(&'static str, Script)> = vec![
        ("approval/list", fixed(|| ok(json!({"approvals": [waiting(plan_approval("# P"))]})))),
        // The daemon looks at the file when it is asked for the approval.
        ("approval/get", fixed(move || ok(blocked()))),
    ];
    let stdout = text(&Fake::start(script).agentctl(&["waiting"]).stdout);
    assert!(
        stdout.contains(" deny deadbeef -m \"what should change\"") && !stdout.contains("execute"),
        "{stdout}"
    );
}
