//! Several calls in one message.

use agentd_tests::{Dialect, Reply, Script, World, call};
use serde_json::{Value, json};

/// The results in a request, in order: the call's id and the text.
fn results(dialect: Dialect, request: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for message in request["messages"].as_array().unwrap() {
        match dialect {
            Dialect::OpenaiChat if message["role"] == "tool" => {
                found.push((
                    message["tool_call_id"].as_str().unwrap().to_owned(),
                    message["content"].to_string(),
                ));
            }
            Dialect::OpenaiChat => {}
            Dialect::Anthropic => {
                for block in message["content"].as_array().into_iter().flatten() {
                    if block["type"] == "tool_result" {
                        found.push((
                            block["tool_use_id"].as_str().unwrap().to_owned(),
                            block["content"].to_string(),
                        ));
                    }
                }
            }
        }
    }
    found
}

#[test]
fn every_call_has_one_result_in_call_order() {
    for dialect in Dialect::BOTH {
        let reads = (0..12).fold(Reply::text("I read."), |reply, at| {
            reply.call("read_file", json!({"file_path": format!("f{at}")}))
        });
        let world = World::speaking(dialect, Script::new().step(reads).step(Reply::text("Done.")));
        for at in 0..12 {
            // Long ones first, so that the order of ending is not the order of the calls.
            world.home.project().write(&format!("f{at}"), &format!("content-{at}\n").repeat(1000 / (at + 1)));
        }
        let mut chat = world.session("default");
        chat.prompt("Read");
        assert_eq!(chat.outcome(), "finished");
        let lines: Vec<_> = chat.verdicts().iter().map(|verdict| verdict.line()).collect();
        assert_eq!(lines, ["read_file allow read.workspace ok"; 12]);
        let requests = world.model.requests();
        let results = results(dialect, &requests[1]);
        let ids: Vec<_> = results.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, (0..12).map(|at| format!("call_step0_0_{at}")).collect::<Vec<_>>(), "{dialect:?}");
        for (at, (_, text)) in results.iter().enumerate() {
            // The end of the line belongs to it: `content-1` begins other files too.
            assert!(text.contains(&format!("content-{at}\\n")), "{at}: {text}");
        }
    }
}

#[test]
fn calls_behind_a_mode_change_are_not_run() {
    for dialect in Dialect::BOTH {
        let script = Script::new()
            .step(
                call("write_file", json!({"file_path": "before", "content": "x"}))
                    .call("enter_plan_mode", json!({}))
                    .call("write_file", json!({"file_path": "after", "content": "x"}))
                    .call("read_file", json!({"file_path": "README.md"})),
            )
            .step(Reply::text("Planning."));
        let world = World::speaking(dialect, script);
        let mut chat = world.session("acceptEdits");
        chat.prompt("Go");
        assert_eq!(chat.outcome(), "finished");
        let lines: Vec<_> = chat.verdicts().iter().map(|verdict| verdict.line()).collect();
        assert_eq!(
            lines,
            [
                "write_file allow write.workspace ok",
                "enter_plan_mode allow plan.enter ok",
                "write_file   notRun notRun.modeChanged",
                "read_file   notRun notRun.modeChanged",
            ]
        );
        assert!(world.home.project().path.join("before").exists());
        assert!(!world.home.project().path.join("after").exists());
        assert_eq!(results(dialect, &world.model.requests()[1]).len(), 4);
    }
}

#[test]
fn calls_behind_an_approved_plan_are_not_run_either() {
    let script = Script::new()
        .step(
            call("write_file", json!({"file_path": "{{plan_path}}", "content": "# Plan\n"}))
                .call("exit_plan_mode", json!({}))
                .call("write_file", json!({"file_path": "smuggled", "content": "x"})),
        )
        .step(Reply::text("Done."));
    let world = World::new(script);
    let mut chat = world.session("plan");
    chat.prompt("Go");
    let approval = chat.approval();
    chat.choose(&approval, "execute");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.verdict("write_file").line(), "write_file   notRun notRun.modeChanged");
    assert!(!world.home.project().path.join("smuggled").exists());
}

#[test]
fn a_denial_leaves_later_calls_not_run() {
    let script = Script::new().step(
        call("write_file", json!({"file_path": "one", "content": "x"}))
            .call("write_file", json!({"file_path": "two", "content": "x"})),
    );
    let world = World::new(script);
    let before = world.home.project().tree();
    let mut chat = world.session("default");
    chat.prompt("Go");
    let approval = chat.approval();
    chat.choose(&approval, "deny");
    assert_eq!(chat.outcome(), "refused");
    let lines: Vec<_> = chat.verdicts().iter().map(|verdict| verdict.line()).collect();
    assert_eq!(
        lines,
        ["write_file ask write.workspace denied person.denied", "write_file   notRun notRun.denied"]
    );
    assert_eq!(world.home.project().tree(), before);
}

#[test]
fn unknown_tools_and_broken_arguments_are_error_results_and_the_history_stays_valid() {
    for dialect in Dialect::BOTH {
        let script = Script::new()
            .step(
                Reply::text("I try.")
                    .call_text("write_file", "{\"file_path\": \"x\", \"content\": \"ab")
                    .call_text("read_file", "[1, 2]")
                    .call("no_such_tool", json!({}))
                    .call("read_file", json!({"path": 7}))
                    .call("read_file", json!({"file_path": "README.md"})),
            )
            .step(Reply::text("Done."));
        let world = World::speaking(dialect, script);
        let before = world.home.project().tree();
        let mut chat = world.session("acceptEdits");
        chat.prompt("Go");
        assert_eq!(chat.outcome(), "finished");
        let statuses: Vec<_> =
            chat.verdicts().iter().map(|verdict| format!("{} {}", verdict.status, verdict.why)).collect();
        assert_eq!(statuses[..4], ["error call.invalid"; 4], "{dialect:?}");
        assert_eq!(statuses[4], "ok ");
        let request = world.model.requests().remove(1);
        assert_eq!(results(dialect, &request).len(), 5);
        // What is sent back as arguments is JSON again: providers refuse anything else.
        let mut sent_back = 0;
        for message in request["messages"].as_array().unwrap() {
            for made in message["tool_calls"].as_array().into_iter().flatten() {
                let arguments = made["function"]["arguments"].as_str().unwrap();
                assert!(
                    serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object()),
                    "{arguments}"
                );
                sent_back += 1;
            }
            let blocks = message["content"].as_array().into_iter().flatten();
            for block in blocks.filter(|block| block["type"] == "tool_use") {
                assert!(block["input"].is_object(), "{block}");
                sent_back += 1;
            }
        }
        assert_eq!(sent_back, 5, "{dialect:?}");
        assert_eq!(world.home.project().tree(), before);
    }
}

#[test]
fn an_answer_cut_at_its_length_runs_none_of_its_calls() {
    for dialect in Dialect::BOTH {
        let cut =
            call("write_file", json!({"file_path": "c", "content": "half"})).with("stop", json!("length"));
        let world = World::speaking(dialect, Script::new().step(cut).step(Reply::text("Shorter now.")));
        let mut chat = world.session("acceptEdits");
        chat.prompt("Go");
        assert_eq!(chat.outcome(), "finished");
        assert_eq!(chat.verdict("write_file").line(), "write_file   error call.cut");
        assert!(!world.home.project().path.join("c").exists());
    }
}

#[test]
fn approvals_of_one_group_are_raised_together_and_a_denial_cancels_the_rest() {
    let script = Script::new().step(
        call("read_file", json!({"file_path": "../outside-1"}))
            .call("read_file", json!({"file_path": "README.md"}))
            .call("read_file", json!({"file_path": "../outside-2"})),
    );
    let allowed = [
        "read_file ask read.elsewhere ok",
        "read_file allow read.workspace ok",
        "read_file ask read.elsewhere ok",
    ];
    let denied = [
        "read_file ask read.elsewhere denied person.denied",
        "read_file allow read.workspace notRun notRun.denied",
        "read_file ask read.elsewhere notRun notRun.denied",
    ];
    let (answered, cancelled) = (("answered", "test"), ("cancelled", "the turn ended"));
    // What is said to the second approval, if anything, before the first is answered.
    for (early, choice, outcome, lines, resolutions) in [
        (Some("allowOnce"), "allowOnce", "finished", allowed, [answered, answered]),
        (Some("allowOnce"), "deny", "refused", denied, [answered, answered]),
        (None, "deny", "refused", denied, [answered, cancelled]),
    ] {
        let world = World::new(script.clone().step(Reply::text("Done.")));
        for name in ["outside-1", "outside-2"] {
            std::fs::write(world.home.path(name), "far\n").unwrap();
        }
        let mut chat = world.session("default");
        chat.prompt("Go");
        let (first, second) = (chat.approval(), chat.approval());
        assert_eq!(chat.state()["waitingFor"], json!([first["approvalId"], second["approvalId"]]));
        if let Some(early) = early {
            chat.choose(&second, early);
        }
        chat.choose(&first, choice);
        assert_eq!(chat.outcome(), outcome, "{early:?}, {choice}");
        let seen: Vec<_> = chat.verdicts().iter().map(|verdict| verdict.line()).collect();
        assert_eq!(seen, lines, "{early:?}, {choice}");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let resolved: Vec<_> = chat
            .events("approvalResolved")
            .iter()
            .map(|event| (text(&event["resolution"]), text(&event["by"]["client"])))
            .collect();
        assert_eq!(
            resolved,
            resolutions.map(|(how, by)| (how.to_owned(), by.to_owned())),
            "{early:?}, {choice}"
        );
        assert_eq!(chat.state()["approvals"], json!([]));
        if early.is_none() {
            let late = chat.respond(&second, "allowOnce", json!({})).unwrap_err();
            assert_eq!((late.code, &late.data["resolution"]), (-32051, &json!("cancelled")));
        }
    }
}

#[test]
fn a_path_outside_of_the_project_asks_also_through_a_link() {
    let world = World::new(
        Script::new()
            .step(call("read_file", json!({"file_path": "box/f"})))
            .step(call("read_file", json!({"file_path": "direct"}))),
    );
    let project = world.home.project();
    let outside = world.home.path("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("f"), "far\n").unwrap();
    std::os::unix::fs::symlink(&outside, project.path.join("box")).unwrap();
    std::os::unix::fs::symlink(outside.join("f"), project.path.join("direct")).unwrap();
    let mut chat = world.session("acceptEdits");
    chat.prompt("Go");
    for _ in 0..2 {
        let approval = chat.approval();
        assert_eq!(approval["tool"]["effects"], json!([format!("read {}", outside.join("f").display())]));
        assert_eq!(approval["tool"]["reason"], "read.elsewhere");
        chat.choose(&approval, "allowOnce");
    }
    assert_eq!(chat.outcome(), "finished");
}
