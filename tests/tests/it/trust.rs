//! Trust of a project as an approval: asked once for a content, answered from anywhere, never in the way of work.

use agentd_tests::{Chat, Reply, Script, World, call, program};
use serde_json::{Value, json};

const ALLOWS: &str = "permissions.allow = ['Write']\n";

/// A model that writes a file, once a prompt.
fn writes() -> Script {
    Script::new().rule(
        "write",
        json!({"answers": 0}),
        call("write_file", json!({"file_path": "{{prompt}}", "content": "x"})),
    )
}

/// Puts a new text in place of the project's settings at once, as an editor does.
fn settings(world: &World, text: &str) {
    let folder = world.home.project().path.join(".agentd");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("new"), text).unwrap();
    std::fs::rename(folder.join("new"), folder.join("config.toml")).unwrap();
}

fn agentctl(world: &World, args: &[&str]) -> (i32, String) {
    let output = std::process::Command::new(program("agentctl"))
        .args(args)
        .current_dir(world.home.project().path)
        .env_clear()
        .envs(world.home.env())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), text)
}

/// The arguments of the command that a line offers.
fn command_after(text: &str, what: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(what)).unwrap_or_else(|| panic!("{text}"));
    line.split_once("agentctl ").unwrap().1.to_owned()
}

fn asked(chat: &mut Chat) -> Value {
    chat.line.event("the question of trust", |event| {
        matches!(event["type"].as_str(), Some("approvalRequested" | "approvalChanged"))
            && event["kind"] == "trust"
    })
}

fn settled(chat: &mut Chat, approval: &Value) -> Value {
    let id = approval["approvalId"].clone();
    chat.line.event("its end", |event| event["type"] == "approvalResolved" && event["approvalId"] == id)
}

fn listed(chat: &mut Chat) -> Vec<Value> {
    let listed = chat.line.call("approval/list", json!({}));
    listed["approvals"].as_array().unwrap().iter().map(|approval| approval["approvalId"].clone()).collect()
}

#[test]
fn trust_is_asked_once_holds_up_no_turn_and_counts_from_the_answer_on() {
    let world = World::new(Script::new().step(Reply::text("One.")).step(Reply::text("Two.")));
    settings(&world, &format!("{ALLOWS}hooks.build = {{ run = 'make' }}\npermissions.deny = ['Bash']\n"));
    let mut chat = world.session("default");
    chat.prompt("Go");
    let approval = asked(&mut chat);
    assert_eq!(chat.outcome(), "finished", "nobody has answered");
    let items: Vec<_> = approval["trust"]["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["key"].as_str().unwrap(), item["content"].as_str().unwrap()))
        .collect();
    assert_eq!(items, [("permissions.allow", "Write"), ("hooks.build", "{\"run\" = \"make\"}")]);
    let place = approval["trust"]["items"][1]["place"].as_str().unwrap();
    assert!(place.ends_with(".agentd/config.toml:2"), "{place}");
    assert!(approval["trust"].get("diff").is_none(), "nothing was trusted before: {approval}");
    chat.prompt("Again");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(listed(&mut chat), [approval["approvalId"].clone()]);
    assert_eq!(chat.state()["activity"], "idle");
    let rules = |chat: &mut Chat| {
        let id = chat.id.clone();
        chat.line.call("permission/rules", json!({"sessionId": id}))["rules"].to_string()
    };
    assert!(!rules(&mut chat).contains("Write"));
    chat.choose(&approval, "trust");
    assert!(rules(&mut chat).contains("Write"), "it counts at once");
    assert_eq!(listed(&mut chat), Vec::<Value>::new());
    // The same words again from the same client are the same answer.
    chat.choose(&approval, "trust");
    let other = chat.respond(&approval, "untrusted", json!({})).unwrap_err();
    assert_eq!(other.code, -32051, "{other:?}");
}

#[test]
fn a_hook_that_is_added_while_it_runs_asks_anew_with_that_diff_and_what_is_declined_is_not_asked_again() {
    let world = World::new(writes());
    settings(&world, ALLOWS);
    let mut chat = world.session("default");
    let cwd = world.home.project().cwd();
    let shown = chat.line.call("project/trust", json!({"cwd": cwd}));
    chat.line.call("project/trust", json!({"cwd": cwd, "action": "trust", "digest": shown["digest"]}));
    chat.prompt("one.txt");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.verdict("write_file").line(), "write_file allow rule.allow ok");
    settings(&world, &format!("{ALLOWS}hooks.evil = {{ run = 'curl x' }}\n"));
    chat.prompt("two.txt");
    let approval = asked(&mut chat);
    let diff = approval["trust"]["diff"].as_str().unwrap();
    assert!(
        diff.contains("+hooks.evil = {\"run\" = \"curl x\"}") && !diff.contains("-permissions"),
        "{diff}"
    );
    // What was trusted counts no more either: it is another content.
    let write =
        chat.line.event("the call", |event| event["type"] == "approvalRequested" && event["kind"] == "tool");
    chat.choose(&write, "allowOnce");
    assert_eq!(chat.outcome(), "finished");
    chat.choose(&approval, "untrusted");
    chat.prompt("three.txt");
    let write =
        chat.line.event("the call", |event| event["type"] == "approvalRequested" && event["kind"] == "tool");
    chat.choose(&write, "deny");
    assert_eq!(chat.outcome(), "refused");
    assert_eq!(listed(&mut chat), Vec::<Value>::new(), "it was declined");
    // Nor in another session of the project; until it says something else.
    let mut other = world.session("default");
    other.prompt("four.txt");
    let write = other.approval();
    assert_eq!(write["kind"], "tool");
    settings(&world, &format!("{ALLOWS}hooks.evil = {{ run = 'curl y' }}\n"));
    other.choose(&write, "deny");
    assert_eq!(other.outcome(), "refused");
    other.prompt("five.txt");
    assert!(asked(&mut other)["trust"]["diff"].as_str().unwrap().contains("curl y"));
}

#[test]
fn what_changed_between_the_look_and_the_answer_is_shown_first_and_a_forged_digest_trusts_nothing() {
    let world = World::new(Script::new().step(Reply::text("Done.")));
    settings(&world, ALLOWS);
    let mut chat = world.session("default");
    chat.prompt("Go");
    let approval = asked(&mut chat);
    assert_eq!(chat.outcome(), "finished");
    let forged = json!({"digest": format!("sha256:{}", "0".repeat(64))});
    assert_eq!(chat.respond(&approval, "trust", forged).unwrap_err().code, -32052);
    settings(&world, "permissions.allow = ['Write', 'Bash']\n");
    let error = chat.respond(&approval, "trust", json!({})).unwrap_err();
    assert_eq!(error.code, -32052, "{error:?}");
    let current = error.data["approval"].clone();
    assert_eq!(current["approvalId"], approval["approvalId"]);
    assert_eq!(current["trust"]["items"].as_array().unwrap().len(), 2);
    let cwd = world.home.project().cwd();
    let stands = |chat: &mut Chat| chat.line.call("project/trust", json!({"cwd": cwd}))["trusted"].clone();
    assert_eq!(stands(&mut chat), false);
    let program_answers = {
        let mut line = agentd_tests::Line::connect_as(world.daemon.socket(), "bot", "program");
        line.refused("approval/respond", Chat::answer_to(&current, "trust", json!({})))
    };
    assert_eq!(program_answers.code, -32054);
    // Taken out, there is nothing to ask.
    settings(&world, "permissions.deny = ['Bash']\n");
    let end = settled(&mut chat, &approval);
    assert_eq!(
        (&end["resolution"], &end["by"]["client"]),
        (&json!("cancelled"), &json!("it switches nothing on any more"))
    );
    assert_eq!(chat.respond(&current, "trust", json!({})).unwrap_err().code, -32051);
}

#[test]
fn one_answer_settles_it_for_every_session_of_the_project_and_by_command_too() {
    let world = World::new(Script::new().rule("any", json!({}), Reply::text("Done.")));
    settings(&world, ALLOWS);
    let mut chats: Vec<Chat> = (0..3).map(|_| world.session("default")).collect();
    let mut approvals = Vec::new();
    for chat in &mut chats {
        chat.prompt("Go");
        approvals.push(asked(chat));
        assert_eq!(chat.outcome(), "finished");
    }
    // Two clients at once: one wins, the other learns who did.
    let mut second = Chat::attach(&world.daemon, &chats[0].id, "second");
    let first = chats[0].line.send("approval/respond", Chat::answer_to(&approvals[0], "trust", json!({})));
    let later = second.line.send("approval/respond", Chat::answer_to(&approvals[0], "untrusted", json!({})));
    let answers = [chats[0].line.answer(first), second.line.answer(later)];
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
    let lost = answers.iter().find_map(|answer| answer.as_ref().err()).unwrap();
    assert_eq!(lost.code, -32051, "{lost:?}");
    for (chat, approval) in chats.iter_mut().zip(&approvals).skip(1) {
        let end = settled(chat, approval);
        assert_eq!(end["by"]["client"], "answered elsewhere", "{end}");
    }
    settings(&world, "permissions.allow = ['Edit']\n");
    chats[1].prompt("Go");
    let approval = asked(&mut chats[1]);
    assert_eq!(chats[1].outcome(), "finished");
    let digest =
        approval["trust"]["revision"].as_str().unwrap().trim_start_matches("sha256:")[..12].to_owned();
    let (code, text) = agentctl(&world, &["trust", "--yes", &digest]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(settled(&mut chats[1], &approval)["by"]["client"], "answered elsewhere");
}

#[test]
fn a_question_of_trust_survives_kill_9_and_is_nobodys_business_but_a_persons() {
    let mut world = World::new(Script::new().rule("any", json!({}), Reply::text("Done.")));
    settings(&world, ALLOWS);
    // A program's prompt asks nobody.
    let mut bot = agentd_tests::Line::connect_as(world.daemon.socket(), "bot", "program");
    let made = bot.call("session/new", json!({"cwd": world.home.project().cwd()}));
    let mut watched = Chat::attach(&world.daemon, made["sessionId"].as_str().unwrap(), "watch");
    bot.call("session/prompt", json!({"sessionId": watched.id, "content": [{"type": "text", "text": "Go"}]}));
    assert_eq!(watched.outcome(), "finished");
    assert_eq!(listed(&mut watched), Vec::<Value>::new());

    let mut chat = world.session("default");
    chat.prompt("Go");
    let approval = asked(&mut chat);
    assert_eq!(chat.outcome(), "finished");
    world.kill9_and_restart();
    let mut chat = Chat::attach(&world.daemon, &chat.id, "again");
    assert_eq!(listed(&mut chat), [approval["approvalId"].clone()]);
    assert_eq!(chat.state()["approvals"][0]["digest"], approval["digest"]);
    // Put away, it is asked no more.
    let id = chat.id.clone();
    chat.line.call("session/archive", json!({"sessionId": id, "archived": true}));
    assert_eq!(settled(&mut chat, &approval)["resolution"], "cancelled");
    // Handing over goes on with the question pending: it stays here.
    chat.prompt("Again");
    let again = asked(&mut chat);
    assert_eq!(chat.outcome(), "finished");
    let bundle = world.home.path("s.bundle");
    chat.line.call("session/export", json!({"sessionId": id, "path": bundle}));
    assert_eq!(settled(&mut chat, &again)["by"]["client"], "the session is handed over");
}

#[test]
fn run_off_a_terminal_shows_it_and_ends_as_its_turn_does() {
    let world = World::new(Script::new().rule("any", json!({}), Reply::text("Done.")));
    settings(&world, ALLOWS);
    let (code, text) = agentctl(&world, &["run", "Go"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("Do you trust this project?") && text.contains("permissions.allow"), "{text}");
    let (code, waiting) = agentctl(&world, &["waiting"]);
    assert!(code == 0 && waiting.contains(" trust"), "{waiting}");
    let command = command_after(&text, "Yes: ");
    let (code, text) = agentctl(&world, &command.split_whitespace().collect::<Vec<_>>());
    assert_eq!(code, 0, "{text}");
    let (_, text) = agentctl(&world, &["trust"]);
    assert!(text.contains("is trusted"), "{text}");
    settings(&world, "permissions.allow = ['Edit']\n");
    let (_, text) = agentctl(&world, &["run", "Go"]);
    let command = command_after(&text, "No, until it changes: ");
    let (code, text) = agentctl(&world, &command.split_whitespace().collect::<Vec<_>>());
    assert_eq!(code, 0, "{text}");
    let (_, text) = agentctl(&world, &["trust"]);
    assert!(!text.contains("is trusted"), "{text}");
}

#[test]
fn a_home_and_the_root_of_the_disk_are_never_asked_about() {
    let world = World::new(Script::new().rule("any", json!({}), Reply::text("Done.")));
    let home = world.home.path("");
    std::fs::create_dir_all(home.join(".agentd")).unwrap();
    std::fs::write(home.join(".agentd/config.toml"), ALLOWS).unwrap();
    for cwd in [home.to_str().unwrap().trim_end_matches('/'), "/"] {
        let mut chat = Chat::start(&world.daemon, json!({"cwd": cwd}));
        chat.prompt("Go");
        assert_eq!(chat.outcome(), "finished");
        assert_eq!(chat.events("approvalRequested").len(), 0);
        let mut line = world.daemon.connect();
        assert!(line.try_call("project/trust", json!({"cwd": cwd})).is_err());
    }
}
