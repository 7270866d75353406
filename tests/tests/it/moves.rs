//! Sessions that move between daemons: with a kill at every step there is one owner, never two and never none.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use agentd_tests::{Chat, Daemon, Reply, RpcError, Script, Start, World, call, eventually, program};
use serde_json::{Value, json};

fn agentctl(world: &World, args: &[&str]) -> Output {
    let mut command = Command::new(program("agentctl"));
    command.args(args).current_dir(world.home.project().path).env_clear().envs(world.home.env());
    command.stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn printed(world: &World, args: &[&str], code: i32) -> String {
    let output = agentctl(world, args);
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{text}");
    text
}

/// A session with one finished turn.
fn spoken() -> (World, String) {
    let world = World::new(Script::new().step(Reply::text("Hello.")).step(Reply::text("And on.")));
    let mut chat = world.session("default");
    chat.prompt("Tell me of animals");
    assert_eq!(chat.finished()["outcome"], "finished");
    (world, chat.id)
}

fn dying(world: &mut World, moment: &str) {
    world.daemon.terminate();
    let args = vec!["--die-at".to_owned(), moment.to_owned()];
    world.daemon = Daemon::start(&world.home, Start { args, ..Start::default() });
}

fn reborn(world: &mut World) {
    world.daemon.ended();
    world.daemon = Daemon::start(&world.home, Start::default());
}

fn prompt(world: &World, id: &str) -> Result<(), RpcError> {
    let mut line = world.daemon.connect();
    let content = json!([{"type": "text", "text": "Go on"}]);
    let turn =
        line.try_call("session/prompt", json!({"sessionId": id, "content": content}))?["turnId"].clone();
    let ended = line.call("turn/wait", json!({"sessionId": id, "turnId": turn}));
    assert_eq!(ended["outcome"], "finished");
    Ok(())
}

fn is_given_away(world: &World, id: &str) -> bool {
    let state = world.daemon.connect().call("session/get", json!({"sessionId": id}))["state"].clone();
    assert_eq!(state["handedOver"].is_null(), state["health"] == "ok", "{state}");
    !state["handedOver"].is_null()
}

fn leftovers(folder: &Path) -> Vec<PathBuf> {
    let hidden = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes()[0] == b'.');
    std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).filter(hidden).collect()
}

#[test]
fn killed_at_any_step_of_handing_over_a_session_has_one_owner() {
    let mut given = 0;
    // Opening the journal syncs it once, and that of the bundle's trial once more; the two commits are the record, and that
    // the bundle has its name.
    for moment in [
        "packed:1",
        "before:1",
        "half:1",
        "written:1",
        "synced:2",
        "synced:3",
        "named:1",
        "before:2",
        "half:2",
        "written:2",
        "synced:4",
    ] {
        let (mut world, id) = spoken();
        dying(&mut world, moment);
        let out = world.home.path("out");
        std::fs::create_dir(&out).unwrap();
        let file = out.join("a.agentd");
        let export = json!({"sessionId": id, "path": file});
        world.daemon.connect().send("session/export", export.clone());
        reborn(&mut world);
        let import = json!({"path": file});
        if is_given_away(&world, &id) {
            given += 1;
            let refused = prompt(&world, &id).unwrap_err();
            assert_eq!(
                (refused.code, &refused.data["reason"]),
                (-32054, &json!("session.handedOver")),
                "{moment}"
            );
            // The bundle got its name when the session was loaded.
            assert!(file.exists() && leftovers(&out).is_empty(), "{moment}");
            assert!(leftovers(&world.home.path("state/agentd/sessions")).is_empty(), "{moment}");
            let again = out.join("again");
            world.daemon.connect().call("session/export", json!({"sessionId": id, "path": again}));
            assert_eq!(std::fs::read(&file).unwrap(), std::fs::read(&again).unwrap(), "{moment}");
        } else {
            assert!(!file.exists(), "{moment}");
            let mut line = world.daemon.connect();
            assert_eq!(line.call("session/export", export)["handedOver"], true, "{moment}");
            assert!(leftovers(&out).is_empty(), "{moment}");
        }
        assert_eq!(world.daemon.connect().call("session/import", import)["takenBack"], true, "{moment}");
        prompt(&world, &id).unwrap();
    }
    assert!((6..10).contains(&given), "{given}");
}

#[test]
fn killed_at_any_step_of_an_import_a_session_is_there_or_can_be_imported_again() {
    let (world, id) = spoken();
    let file = world.home.path("a.agentd");
    world.daemon.connect().call("session/export", json!({"sessionId": id, "path": file}));
    let moments = ["staged:1", "before:1", "half:1", "written:1", "synced:1", "synced:2", "inPlace:1"];
    // Where it never was.
    for moment in moments {
        let mut there = World::new(Script::new().step(Reply::text("Hello.")));
        dying(&mut there, moment);
        there.daemon.connect().send("session/import", json!({"path": file}));
        reborn(&mut there);
        let list = there.daemon.connect().call("session/list", json!({}))["sessions"].clone();
        let is_there = moment == "inPlace:1";
        assert_eq!(list.as_array().unwrap().len(), usize::from(is_there), "{moment}");
        let taken = there.daemon.connect().call("session/import", json!({"path": file}));
        assert_eq!((&taken["sessionId"], &taken["takenBack"]), (&json!(id), &json!(false)), "{moment}");
        prompt(&there, &id).unwrap();
        let sessions = there.home.path("state/agentd/sessions");
        eventually("the end of what was half made", || leftovers(&sessions).is_empty().then_some(()));
    }
    // Where it was given away.
    for moment in moments {
        let (mut world, id) = spoken();
        let file = world.home.path("a.agentd");
        world.daemon.connect().call("session/export", json!({"sessionId": id, "path": file}));
        // Looking at what is there syncs its journal once more.
        let moment = moment.replace("synced:2", "synced:3");
        dying(&mut world, &moment);
        world.daemon.connect().send("session/import", json!({"path": file}));
        reborn(&mut world);
        assert_eq!(is_given_away(&world, &id), moment != "inPlace:1", "{moment}");
        world.daemon.connect().call("session/import", json!({"path": file}));
        prompt(&world, &id).unwrap();
        let sessions = world.home.path("state/agentd/sessions");
        eventually("the end of what was half made", || leftovers(&sessions).is_empty().then_some(()));
        assert_eq!(std::fs::read_dir(&sessions).unwrap().count(), 1, "{moment}");
    }
}

#[test]
fn agentctl_moves_a_session_to_another_daemon_and_back() {
    let (here, id) = spoken();
    // The first answer of the conversation was given here.
    let there = World::new(Script::new().step(Reply::text("Hello.")).step(Reply::text("From there.")));
    let mut watching = Chat::attach(&here.daemon, &id, "watcher");
    let _ = watching.line.event_of("synced");

    let said = printed(&here, &["export", "--format", "bundle", "-o", "a.agentd"], 0);
    assert!(said.contains("handed over") && said.contains("agentctl import"), "{said}");
    let file = here.home.project().path.join("a.agentd");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    let refused = printed(&here, &["send", "More"], 5);
    assert!(refused.contains("handed over to the bundle"), "{refused}");
    let shown = printed(&here, &["show"], 0);
    assert!(shown.contains("a.agentd on ") && shown.contains("agentctl import FILE"), "{shown}");
    assert!(printed(&here, &["log"], 0).contains("Tell me of animals"));

    let path = file.to_str().unwrap();
    std::fs::remove_dir_all(there.home.project().path.join("src")).unwrap();
    let said = printed(&there, &["import", path, "--cwd", "."], 0);
    assert!(said.contains("is here, with 1 turn behind it"), "{said}");
    printed(&there, &["send", "Go on there"], 0);
    printed(&there, &["wait"], 0);
    printed(&there, &["export", "--format", "bundle", "-o", "b.agentd"], 0);
    let back = there.home.project().path.join("b.agentd");
    let older = printed(&there, &["import", path, "--cwd", "."], 1);
    assert!(older.contains("handed over since") && older.contains("b.agentd"), "{older}");
    let refused = printed(&here, &["import", path, "--cwd", "/nowhere"], 2);
    assert!(refused.contains("/nowhere"), "{refused}");
    let said = printed(&here, &["import", back.to_str().unwrap(), "--cwd", "."], 0);
    assert!(said.contains("is back, with 2 turns behind it"), "{said}");
    // Whoever watched has missed nothing.
    let imported = |event: &Value| event["type"] == "sessionImported" && event["sessionId"] == json!(id);
    watching.line.event("the first import", imported);
    let answer = |event: &Value| event["type"] == "message" && event["text"] == "From there.";
    watching.line.event("what was said there", answer);
    watching.line.event("the second import", imported);
    let numbers: Vec<u64> = watching.line.history.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] <= pair[1]), "{numbers:?}");
    prompt(&here, &id).unwrap();
    let log = printed(&here, &["log", "--all"], 0);
    assert!(log.contains("From there.") && log.contains("Taken in from the bundle"), "{log}");
}

#[test]
fn an_export_is_a_document_or_events_whole_and_closed_to_others() {
    let script = Script::new()
        .step(Reply::text("I **look**.").call("read_file", json!({"file_path": "src/a.rs"})))
        .step(call("write_file", json!({"file_path": "c.txt", "content": "```\n\u{1b}[2J\n"})))
        .step(Reply::text("Done."));
    let world = World::new(script);
    let mut chat = world.session("default");
    chat.prompt("Write c\n# not a heading");
    let approval = chat.approval();
    chat.choose(&approval, "allowOnce");
    assert_eq!(chat.outcome(), "finished");
    let document = printed(&world, &["export"], 0);
    for told in [
        "## Turn 1: finished",
        "> Write c\n> # not a heading\n",
        "I **look**.",
        "### `read_file` ",
        "```json\n{\n  \"file_path\": \"src/a.rs\"\n}\n```",
        "**Asked** (tool) ",
        "approved by test",
        "Files changed:\n\n- `",
        "c.txt` +2 -0",
        "Done.",
    ] {
        assert!(document.contains(told), "{told:?} is not in\n{document}");
    }
    assert!(!document.contains('\u{1b}'), "{document}");
    let fences = document.lines().filter(|line| line.starts_with("```")).count();
    assert_eq!(fences % 2, 0, "{document}");

    let events = printed(&world, &["export", "--format", "jsonl"], 0);
    assert_eq!(events, printed(&world, &["log", "--all", "--json"], 0));
    printed(&world, &["export", "-o", "out.md"], 0);
    let out = world.home.project().path.join("out.md");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), document);
    assert_eq!(out.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    let refused = printed(&world, &["export", "-o", "out.md", "--format", "jsonl"], 1);
    assert!(refused.contains("exists already") && refused.contains("--force"), "{refused}");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), document);
    printed(&world, &["export", "-o", "out.md", "--format", "jsonl", "--force"], 0);
    assert_eq!(std::fs::read_to_string(&out).unwrap(), events);
    assert!(leftovers(&world.home.project().path).is_empty());
    let _: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    printed(&world, &["export", "--copy"], 2);
}

#[test]
fn a_program_moves_no_session_and_one_at_work_stays() {
    let script = Script::new().step(call("run_shell", json!({"command": "true"})));
    let world = World::new(script);
    let mut chat = world.session("default");
    chat.prompt("Go");
    let _ = chat.approval();
    let file = world.home.path("a.agentd");
    let params = json!({"sessionId": chat.id, "path": file});
    let mut program = agentd_tests::Line::connect_as(world.daemon.socket(), "bot", "program");
    assert_eq!(program.refused("session/export", params.clone()).code, -32054);
    assert_eq!(program.refused("session/import", json!({"path": file})).code, -32054);
    let busy = chat.line.refused("session/export", params);
    assert_eq!((busy.code, &busy.data["reason"]), (-32053, &json!("busy")));
    let said = printed(&world, &["export", "--format", "bundle", "-o", file.to_str().unwrap()], 1);
    assert!(said.contains("agentctl stop"), "{said}");
    assert!(!file.exists());
    let said = printed(&world, &["export", "--format", "bundle", "--copy", "-o", file.to_str().unwrap()], 0);
    assert!(said.contains("A copy of"), "{said}");
    assert!(printed(&world, &["import", file.to_str().unwrap()], 0).contains("is here"));
}
