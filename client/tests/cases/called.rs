//! Printed commands, and output that nobody reads to its end.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::fake::{Fake, ok, plan_approval, state, waiting};
use crate::{Script, fixed, text};

fn fake() -> Fake {
    let check = json!({"name": "model", "status": "warning", "detail": "no model", "fix": "agentctl key add anthropic"});
    let script: Vec<(&'static str, Script)> = vec![
        ("approval/list", fixed(|| ok(json!({"approvals": [waiting(plan_approval("# The plan"))]})))),
        ("session/list", fixed(|| ok(json!({"sessions": [state("plan", "idle", json!([]))], "next": null})))),
        ("daemon/doctor", fixed(move || ok(json!({"checks": [check]})))),
        ("approval/get", fixed(|| ok(waiting(plan_approval("# The plan"))))),
    ];
    Fake::start(script)
}

#[test]
fn a_command_that_is_printed_can_be_pasted() {
    let fake = fake();
    let socket = fake.socket();
    let program = Path::new(env!("CARGO_BIN_EXE_agentctl"));
    let run = |typed: &str, path: &str, args: &[&str]| {
        let mut command = Command::new(typed);
        command.current_dir(program.parent().unwrap()).args(args).env("PATH", path);
        command.env("AGENTD_SOCKET", &socket).env("HOME", "/nonexistent");
        text(&command.output().unwrap().stdout)
    };
    let whole = program.display().to_string();
    for (args, next) in [(&["waiting"][..], "approve deadbeef"), (&["daemon", "doctor"], "key add anthropic")]
    {
        let said = run("./agentctl", "/usr/bin:/bin", args);
        assert!(said.contains(&format!("{whole} {next}")), "{said}");
        let said = run("./agentctl", program.parent().unwrap().to_str().unwrap(), args);
        assert!(said.contains(&format!("agentctl {next}")) && !said.contains(&whole), "{said}");
    }
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let fake = fake();
    for args in [&["ls"][..], &["ls", "--all"], &["waiting"], &["daemon", "doctor"]] {
        let output = fake.agentctl_unread(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(output.stderr.is_empty(), "{args:?}: {}", text(&output.stderr));
    }
}
