//! Ways into plan mode and out of it.

use agentd_tests::{Chat, Reply, Script, World, call};
use serde_json::{Value, json};

use crate::plan_gate::planning;

/// All texts of a request, wherever they stand.
pub(crate) fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(fields) => fields.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

/// The guidance of plan mode in a request, with the plan's path replaced.
fn guidance(request: &Value, chat: &mut Chat) -> String {
    let path = chat.state()["plan"]["path"].as_str().unwrap().to_owned();
    let all: Vec<_> =
        texts(&request["messages"]).into_iter().filter(|text| text.contains("is in plan mode.\n")).collect();
    let [text] = &all[..] else { panic!("the guidance stands {} times: {all:?}", all.len()) };
    let from = text.find("The session is in plan mode.").unwrap();
    let to = text.find("from the plan alone.").unwrap();
    assert!(text.contains(&format!("Plan file: {path}\n")), "{path}: {text}");
    text[from..to].replace(&path, "PATH")
}

#[test]
fn every_way_into_plan_mode_gives_the_model_the_same_guidance() {
    let script = Script::new()
        .rule(
            "enter",
            json!({"answers": 0, "texts": [{"in": "prompt", "contains": "ENTER"}]}),
            call("enter_plan_mode", json!({})),
        )
        .rule("entered", json!({"after": ["enter"]}), Reply::text("I plan."));
    let world = World::new(script);
    let mut found = Vec::new();
    type Way = (&'static str, &'static str, fn(&mut Chat));
    let ways: [Way; 5] = [
        ("session/new", "plan", |chat| drop(chat.prompt("Look"))),
        ("prompt's mode", "default", |chat| drop(chat.prompt_with("Look", json!({"mode": "plan"})))),
        ("/plan", "default", |chat| drop(chat.prompt("/plan Look"))),
        ("setMode", "default", |chat| {
            chat.set_mode("plan");
            chat.prompt("Look");
        }),
        ("enter_plan_mode", "default", |chat| drop(chat.prompt("ENTER"))),
    ];
    for (way, mode, enter) in ways {
        let mut chat = world.session(mode);
        enter(&mut chat);
        assert_eq!(chat.outcome(), "finished", "{way}");
        assert_eq!(chat.mode(), "plan", "{way}");
        let entered = chat.events("planEntered");
        assert_eq!(entered.len(), 1, "{way}");
        assert_eq!((&entered[0]["preMode"], &entered[0]["cycle"]), (&json!("default"), &json!(1)), "{way}");
        let request = world.model.requests().pop().unwrap();
        found.push((way, guidance(&request, &mut chat)));
    }
    for (way, text) in &found {
        assert_eq!(text, &found[0].1, "{way}");
        for needed in [
            "Plan file: PATH",
            "six steps",
            "6. Present",
            "Write nothing but the plan file",
            "exit_plan_mode, do not ask in prose",
        ] {
            assert!(text.contains(needed), "{way} lacks {needed:?}: {text}");
        }
    }
}

#[test]
fn every_tool_stays_visible_in_plan_mode() {
    let world = World::new(Script::new());
    for mode in ["default", "plan"] {
        let mut chat = world.session(mode);
        chat.prompt("Hi");
        assert_eq!(chat.outcome(), "finished");
    }
    let requests = world.model.requests();
    assert_eq!(requests[0]["tools"], requests[1]["tools"]);
    assert!(texts(&requests[0]["tools"]).contains(&"write_file".to_owned()));
}

#[test]
fn pm_13_a_named_mode_wins_and_otherwise_the_remembered_one_comes_back() {
    for (named, after) in [(Some("default"), "default"), (None, "acceptEdits")] {
        let script = Script::new()
            .step(planning("# Plan\n"))
            .step(call("write_file", json!({"file_path": "c", "content": "x"})))
            .step(Reply::text("Done."));
        let world = World::new(script);
        let mut chat = world.session("acceptEdits");
        chat.set_mode("plan");
        chat.prompt("Plan");
        let approval = chat.approval();
        let manual =
            approval["choices"].as_array().unwrap().iter().find(|choice| choice["id"] == "manualExecute");
        assert_eq!(manual.unwrap()["modeAfter"], "acceptEdits");
        let more = named.map_or(json!({}), |mode| json!({"mode": mode}));
        let answered = chat.respond(&approval, "manualExecute", more).unwrap();
        assert_eq!(answered["modeNow"], after);
        if named.is_some() {
            let asked = chat.approval();
            assert_eq!(asked["kind"], "tool");
            assert_eq!(chat.verdict("write_file").line(), "write_file ask write.workspace");
            chat.choose(&asked, "allowOnce");
        }
        assert_eq!(chat.outcome(), "finished");
        assert_eq!(chat.verdict("write_file").status, "ok");
        assert_eq!(chat.mode(), after);
        assert_eq!(world.home.project().read("c"), "x");
    }
}

#[test]
fn pm_14_entering_twice_keeps_the_remembered_mode() {
    let script = Script::new().step(call("enter_plan_mode", json!({}))).step(Reply::text("I plan already."));
    let world = World::new(script);
    let mut chat = world.session("acceptEdits");
    chat.set_mode("plan");
    chat.set_mode("plan");
    chat.prompt("Plan");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.verdict("enter_plan_mode").line(), "enter_plan_mode allow plan.enter ok");
    let state = chat.state();
    assert_eq!((&state["mode"], &state["preMode"]), (&json!("plan"), &json!("acceptEdits")));
    assert_eq!(chat.events("planEntered").len(), 1);
    chat.prompt("/plan");
    assert_eq!(chat.mode(), "acceptEdits");
    assert_eq!(chat.state()["preMode"], Value::Null);
}

#[test]
fn a_new_cycle_gets_a_new_file_and_the_old_one_stays() {
    let world = World::new(Script::new().step(planning("# One\n")).step(Reply::text("Done.")));
    let mut chat = world.session("plan");
    chat.prompt("Plan");
    let approval = chat.approval();
    chat.choose(&approval, "execute");
    assert_eq!(chat.outcome(), "finished");
    let first = approval["plan"]["path"].as_str().unwrap().to_owned();
    chat.set_mode("plan");
    let state = chat.state();
    assert_eq!(state["plan"]["cycle"], 2);
    assert_ne!(state["plan"]["path"], first.as_str());
    assert_eq!(state["preMode"], "acceptEdits");
    assert_eq!(std::fs::read_to_string(&first).unwrap(), "# One\n");
}

#[test]
fn exit_plan_mode_outside_of_plan_mode_is_an_error_result() {
    let world = World::new(Script::new().step(call("exit_plan_mode", json!({}))).step(Reply::text("Right.")));
    let mut chat = world.session("acceptEdits");
    chat.prompt("Go");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.verdict("exit_plan_mode").line(), "exit_plan_mode ask plan.leave error plan.notReady");
    assert!(chat.events("approvalRequested").is_empty());
    assert!(chat.results()[0].contains("not in plan mode"), "{:?}", chat.results());
}

#[test]
fn an_empty_plan_is_not_presented() {
    let world = World::new(Script::new().step(call("exit_plan_mode", json!({}))).step(Reply::text("Right.")));
    let mut chat = world.session("plan");
    chat.prompt("Go");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.verdict("exit_plan_mode").line(), "exit_plan_mode ask plan.leave error plan.notReady");
    assert_eq!(chat.mode(), "plan");
    assert!(chat.events("approvalRequested").is_empty());
}

#[test]
fn leaving_plan_mode_by_hand_cancels_the_presented_plan() {
    let world = World::new(Script::new().step(planning("# Plan\n")).step(Reply::text("Left.")));
    let mut chat = world.session("plan");
    chat.prompt("Plan");
    let approval = chat.approval();
    chat.set_mode("default");
    let resolved = chat.line.event_of("approvalResolved");
    assert_eq!(
        (&resolved["approvalId"], &resolved["resolution"]),
        (&approval["approvalId"], &json!("cancelled"))
    );
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.verdict("exit_plan_mode").line(), "exit_plan_mode ask plan.leave notRun plan.left");
    assert!(chat.events("planApproved").is_empty());
    assert_eq!(chat.mode(), "default");
    let late = chat.respond(&approval, "execute", json!({})).unwrap_err();
    assert_eq!(late.code, -32051);
    assert_eq!(chat.mode(), "default");
}

#[test]
fn pm_26_a_queued_prompt_starts_after_the_switch_exactly_once() {
    let script = Script::new()
        .rule(
            "second",
            json!({"answers": 0, "texts": [{"in": "prompt", "contains": "SECOND"}]}),
            call("write_file", json!({"file_path": "second", "content": "2"})),
        )
        .rule(
            "first",
            json!({"answers": 0, "texts": [{"in": "prompt", "contains": "word for word"}]}),
            call("write_file", json!({"file_path": "first", "content": "1"})),
        )
        .rule("plan", json!({"answers": 0}), planning("# Plan\n"));
    let world = World::new(script);
    let mut chat = world.session("plan");
    let first = chat.prompt("Plan");
    let approval = chat.approval();
    let queued = chat.prompt_with("SECOND", json!({}));
    assert_eq!((&queued["queued"], &queued["waitingFor"]), (&json!(true), &approval["approvalId"]));
    assert_eq!(chat.choose(&approval, "clearAndExecute")["modeNow"], "acceptEdits");
    assert_eq!(chat.finished()["turnId"], first.as_str());
    let ended = chat.finished();
    assert_eq!(ended["turnId"], queued["turnId"]);
    let order: Vec<_> = chat
        .line
        .history
        .iter()
        .filter_map(|event| event["type"].as_str())
        .filter(|kind| {
            ["planApproved", "modeChanged", "contextReset", "turnFinished", "turnStarted"].contains(kind)
        })
        .collect();
    assert_eq!(
        order,
        [
            "turnStarted",
            "planApproved",
            "modeChanged",
            "contextReset",
            "turnFinished",
            "turnStarted",
            "turnFinished"
        ]
    );
    let writes: Vec<_> = chat.verdicts().iter().skip(2).map(|verdict| verdict.line()).collect();
    assert_eq!(writes, ["write_file allow write.workspace ok"; 2]);
    assert_eq!(world.home.project().read("first") + &world.home.project().read("second"), "12");
    // After the reset nothing of the conversation before it is sent, and the plan is.
    let last = texts(&world.model.requests().pop().unwrap()["messages"]).join("\n");
    assert!(last.contains("word for word") && last.contains("# Plan"), "{last}");
    assert!(!last.contains("exit_plan_mode, do not ask in prose"), "{last}");
}
