//! Which approval a command means.

use serde_json::json;

use crate::fake::{Fake, HERE, ok, plan_approval, state, waiting};
use crate::{Script, fixed, text};

/// One approval waits, of a session of `cwd`.
fn one_waiting_in(cwd: &'static str) -> Fake {
    let found = move || {
        let mut found = waiting(plan_approval("# The plan"));
        found["cwd"] = cwd.into();
        found["handle"] = "web-fox".into();
        found
    };
    let script: Vec<(&'static str, Script)> = vec![
        ("approval/list", fixed(move || ok(json!({"approvals": [found()]})))),
        ("approval/get", fixed(move || ok(found()))),
        ("approval/respond", fixed(|| ok(json!({"status": "accepted", "modeNow": "plan"})))),
        ("session/get", fixed(|| ok(json!({"state": state("plan", "waiting", json!([]))})))),
    ];
    Fake::start(script)
}

#[test]
fn what_waits_in_another_folder_is_answered_only_by_its_name() {
    let fake = one_waiting_in("/srv/other");
    for (args, named) in [
        (&["deny"][..], "deny deadbeef"),
        (&["deny", "-m", "no"], "deny deadbeef"),
        (&["approve"], "approve deadbeef"),
        (&["approve", "execute", "--revision", "333333333333"], "approve deadbeef"),
    ] {
        let output = fake.agentctl(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains("nothing waits in this folder; 1 approval waits elsewhere:"), "{stderr}");
        assert!(stderr.contains("plan  Plan  web-fox  /srv/other\n"), "{stderr}");
        assert!(stderr.trim_end().ends_with(named), "{stderr}");
        // Nothing of it was put before anybody as if it had been asked for.
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    // On a terminal it is the same: it could be refused unseen by one key too many.
    let (rest, code) = fake.terminal(&["approve"], &[]).finish();
    assert_eq!(code, 2, "{rest}");
    assert!(!rest.contains("The plan"), "{rest}");
    assert!(fake.calls("approval/respond").is_empty());
    assert_eq!(fake.agentctl(&["deny", "deadbeef"]).status.code(), Some(0));
}

#[test]
fn what_waits_in_this_folder_is_meant_and_its_session_named() {
    let output = one_waiting_in(HERE).agentctl(&["deny"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("web-fox"), "{}", text(&output.stdout));
}
