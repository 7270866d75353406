//! Looking at sessions from the command line: `log`, `show`, `events`, `wait`, `attach`, and `session/history` below them.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Output, Stdio};

use agentd_tests::{Chat, Reply, Script, World, call, program};
use serde_json::{Value, json};

fn command(world: &World, args: &[&str]) -> Command {
    let program = program("agentctl");
    let mut command = Command::new(&program);
    command.args(args).current_dir(world.home.project().path).env_clear().envs(world.home.env());
    // Where its name finds it, the commands that it prints begin with its name.
    let folder = std::path::Path::new(&program).parent().unwrap().display();
    command.env("PATH", format!("{folder}:/usr/bin:/bin"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn agentctl(world: &World, args: &[&str]) -> Output {
    command(world, args).output().unwrap()
}

/// What it printed; it has to end with `code`.
#[track_caller]
fn printed(world: &World, args: &[&str], code: i32) -> String {
    let output = agentctl(world, args);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{out}\n{err}");
    format!("{out}{err}")
}

/// Without what changes while time passes.
fn ageless(text: &str) -> String {
    let without_age = |line: &str| match (line.find(" UTC · "), line.find(" ago")) {
        (Some(from), Some(to)) => format!("{}{}\n", &line[..from], &line[to..]),
        _ => format!("{line}\n"),
    };
    text.lines().map(without_age).collect()
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn journaled(chat: &Chat) -> Vec<Value> {
    let is_journaled = |event: &&Value| event["seq"].is_u64() && event["type"] != "synced";
    chat.line.history.iter().filter(is_journaled).cloned().collect()
}

/// A session with three turns: one that edits, one whose call is denied, one that only talks.
fn three_turns() -> (World, Chat) {
    let script = Script::new()
        .step(Reply::text("I **look**.").call("read_file", json!({"file_path": "src/a.rs"})))
        .step(call("write_file", json!({"file_path": "c.txt", "content": "one\ntwo\n"})))
        .step(Reply::text("Written \u{1b}[2J it is."))
        .step(call("run_shell", json!({"command": "true"})))
        .step(Reply::text("Only words."));
    let world = World::new(script);
    let mut chat = world.session("acceptEdits");
    chat.prompt("Write c");
    assert_eq!(chat.outcome(), "finished");
    chat.prompt("Run it");
    let approval = chat.approval();
    chat.choose(&approval, "deny");
    assert_eq!(chat.outcome(), "refused");
    chat.prompt("Say something");
    assert_eq!(chat.outcome(), "finished");
    (world, chat)
}

#[test]
fn log_tells_the_newest_turns_by_their_numbers_on_stdout() {
    let (world, chat) = three_turns();
    let log = printed(&world, &["log"], 0);
    for told in [
        "#1  finished",
        "> Write c",
        "I **look**.",
        "• read src/a.rs",
        "  c.txt  +2 -0",
        "Written <U+001B>[2J it is.",
        "#2  refused",
        "denied by test",
        "#3  finished",
        "Only words.",
    ] {
        assert!(log.contains(told), "{told:?} is missing:\n{log}");
    }
    assert!(!log.contains('\u{1b}'));
    let last = printed(&world, &["log", &chat.id, "-n", "1"], 0);
    assert!(last.contains("2 turns are earlier") && last.contains("#3  finished") && !last.contains("#2"));
    let all = printed(&world, &["log", "@", "--all"], 0);
    assert_eq!(ageless(&all), ageless(&log));
    let events = json_lines(&printed(&world, &["log", "--all", "--json"], 0));
    assert_eq!(events, journaled(&chat));
    let events = json_lines(&printed(&world, &["log", "-n", "2", "--json"], 0));
    assert_eq!(events[0]["type"], "turnStarted");
    assert!(journaled(&chat).ends_with(&events));
}

#[test]
fn show_has_a_session_in_a_page_and_any_part_of_it_whole() {
    let big = "A line of some length.\n".repeat(20_000);
    let script = Script::new()
        .step(call("write_file", json!({"file_path": "big.txt", "content": big})))
        .step(Reply::text("Done."));
    let world = World::new(script);
    let mut chat = world.session("acceptEdits");
    chat.prompt("Write much");
    assert_eq!(chat.outcome(), "finished");
    let page = printed(&world, &["show"], 0);
    let handle = chat.state()["handle"].as_str().unwrap().to_owned();
    for told in [handle.as_str(), &chat.id, "acceptEdits", "idle, turn #1 finished", "test/m"] {
        assert!(page.contains(told), "{told:?} is missing:\n{page}");
    }
    let turn = printed(&world, &["show", "#1"], 0);
    assert!(ageless(&turn) == ageless(&printed(&world, &["show", &handle, "1"], 0)), "the same turn");
    assert!(
        turn.contains("> Write much") && turn.contains("Done.") && turn.contains("gate  allow"),
        "{turn:.2000}"
    );
    let call_id = chat.events("toolCallStarted")[0]["callId"].as_str().unwrap().to_owned();
    let end = &call_id[call_id.len() - 8..];
    for args in [&["show", &chat.id, end][..], &["show", end], &["show", &call_id]] {
        let call = printed(&world, args, 0);
        assert!(call.contains("write_file") && call.contains(&call_id), "{call:.2000}");
        // Nothing of it is cut, though it was too long for an event.
        assert!(call.matches("A line of some length.").count() >= 20_000, "{}", call.len());
    }
    let message = chat.events("message").pop().unwrap()["messageId"].as_str().unwrap().to_owned();
    let shown = printed(&world, &["show", "@", &message[message.len() - 6..]], 0);
    assert!(shown.contains("Done.") && !shown.contains("write_file"), "{shown}");
    assert!(printed(&world, &["show", "#2"], 1).contains("its turns are 1 to 1"));
    assert!(printed(&world, &["show", "@", "0123456789abcdef"], 1).contains("agentctl log"));
    assert!(printed(&world, &["show", "@", "nonsense"], 2).contains("nonsense"));
}

#[test]
fn a_session_without_a_turn_says_what_to_type() {
    let world = World::new(Script::new());
    let chat = world.session("default");
    let output = agentctl(&world, &["log"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
    assert!(String::from_utf8_lossy(&output.stderr).contains("agentctl send"));
    assert!(printed(&world, &["show"], 0).contains("no turn yet"));
    assert!(printed(&world, &["show", &chat.id, "1"], 1).contains("no turn yet"));
    printed(&world, &["wait"], 0);
}

#[test]
fn a_session_is_forked_taken_back_and_put_away_by_its_handle() {
    let world = World::new(Script::new().step(Reply::text("One.")).step(Reply::text("Two.")));
    let mut chat = world.session("default");
    for _ in 0..2 {
        chat.prompt("Go");
        chat.outcome();
    }
    let handle = chat.state()["handle"].as_str().unwrap().to_owned();
    let made = printed(&world, &["fork", &handle], 0);
    assert!(
        made.contains("has 2 turns behind it; mode default.") && made.contains("Next: agentctl send "),
        "{made}"
    );
    let back = printed(&world, &["rewind", &handle, "--turn", "2"], 0);
    assert!(
        back.contains("the last turn is forgotten") && back.contains("Files are as they were."),
        "{back}"
    );
    assert!(printed(&world, &["rewind", &handle, "--turn", "3"], 2).contains("there is no turn 3"));
    assert!(printed(&world, &["rewind", &handle, "--turn", "2"], 0).contains("forgotten already"));
    assert!(
        printed(&world, &["rewind", &handle, "--turns", "2"], 2).contains("1 turn that could be forgotten")
    );
    for args in [&["log", &handle][..], &["log", &handle, "--all"], &["show", &handle, "2"]] {
        let told = printed(&world, args, 0);
        assert!(told.contains("#2  forgotten (rewound ") && !told.contains("#1  forgotten"), "{told}");
    }
    assert!(printed(&world, &["show", &handle], 0).contains("idle, turn #2 finished, forgotten since"));
    assert!(printed(&world, &["fork", &handle], 0).contains("has 1 turn behind it"));
    assert!(printed(&world, &["search", "Two"], 0).contains(" '#2'"));
    let away = printed(&world, &["archive", &handle], 0);
    let undo = away.lines().find_map(|line| line.strip_prefix("To take it back: agentctl ")).unwrap();
    assert!(!printed(&world, &["ls"], 0).contains(&handle));
    assert!(printed(&world, &["ls", "--all"], 0).contains(&handle));
    printed(&world, &undo.split(' ').collect::<Vec<_>>(), 0);
    assert!(printed(&world, &["ls"], 0).contains(&handle));
}

#[test]
fn wait_ends_with_how_the_session_stands() {
    let script = Script::new()
        .step(call("write_file", json!({"file_path": "c", "content": "x"})))
        .step(Reply::text("Done."))
        .step(Reply::text("never").fault(None, json!({"hang": {"after": 0}})));
    let world = World::new(script);
    let mut chat = world.session("default");
    chat.prompt("Go");
    let waits = printed(&world, &["wait"], 4);
    // Nothing was shown here, so the command that shows it comes first.
    assert!(waits.contains("Next: agentctl approve ") && !waits.contains("--digest"), "{waits}");
    assert_eq!(printed(&world, &["wait", "--for", "waiting"], 4), waits);
    // Neither is it put away by the way, nor is what waits here meant from elsewhere.
    let away = printed(&world, &["archive", &chat.id], 1);
    assert!(away.contains("it waits for an answer") && away.contains("To stop it: agentctl stop "), "{away}");
    let elsewhere = command(&world, &["deny"]).current_dir("/").output().unwrap();
    assert_eq!(elsewhere.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&elsewhere.stderr).contains("nothing waits in this folder"));
    printed(&world, &["wait", "--for", "turn", "--timeout", "50ms"], 124);
    // It waits while somebody answers.
    let mut idle = command(&world, &["wait", "--for", "idle"]).spawn().unwrap();
    let approval = chat.approval();
    chat.choose(&approval, "allowOnce");
    assert_eq!(idle.wait().unwrap().code(), Some(0));
    chat.prompt("Hang");
    assert!(printed(&world, &["wait", "--timeout", "50ms"], 124).contains("nothing was stopped"));
    let mut turn = command(&world, &["wait", "--for", "turn"]).spawn().unwrap();
    let _ = world.model.requests_until(3);
    chat.interrupt();
    assert_eq!(turn.wait().unwrap().code(), Some(130));
    printed(&world, &["wait"], 130);
    assert_eq!(chat.state()["lastOutcome"], "interrupted");
    let mut gone = command(&world, &["wait", "--for", "waiting"]).spawn().unwrap();
    chat.line.call("session/delete", json!({"sessionId": chat.id}));
    let code = gone.wait().unwrap().code();
    assert!(matches!(code, Some(1 | 2)), "{code:?}");
}

/// Events of a running `agentctl events`, one by one.
struct Events {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Events {
    fn start(world: &World, args: &[&str]) -> Self {
        let mut child = command(world, args).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut seen = Vec::new();
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "no {kind} came: {seen:?}");
            let event: Value = serde_json::from_str(&line).unwrap();
            let found = event["type"] == kind;
            seen.push(event);
            if found {
                return seen;
            }
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

#[test]
fn events_go_on_over_a_restart_of_the_daemon_and_end_with_0_at_ctrl_c() {
    let script = Script::new()
        .step(call("write_file", json!({"file_path": "c", "content": "x"})))
        .step(Reply::text("Done."));
    let mut world = World::new(script);
    let mut chat = world.session("default");
    let mut events = Events::start(&world, &["events", "--after", "0"]);
    let mut seen = events.until("synced");
    chat.prompt("Go");
    seen.extend(events.until("approvalRequested"));
    // One that is killed would be started again by the client itself, before the test can.
    world.daemon.terminate();
    world.daemon.restart(&world.home);
    seen.extend(events.until("synced"));
    let mut again = Chat::attach(&world.daemon, &chat.id, "test");
    let _ = again.line.event_of("synced");
    let approval = again.state()["approvals"][0].clone();
    again.choose(&approval, "allowOnce");
    seen.extend(events.until("turnFinished"));
    assert_eq!(again.outcome(), "finished");
    let numbers: Vec<u64> = seen
        .iter()
        .filter(|event| event["type"] != "synced")
        .filter_map(|event| event["seq"].as_u64())
        .collect();
    let expected: Vec<u64> = journaled(&again).iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert_eq!(numbers, expected, "no gap and no double");
    events.signal(rustix::process::Signal::INT);
    assert_eq!(events.child.wait().unwrap().code(), Some(0));
    let past = json_lines(&printed(&world, &["events", "--after", "0", "--no-follow"], 0));
    assert_eq!(past, journaled(&again));
}

#[test]
fn events_of_the_daemon_tell_of_every_session() {
    let world = World::new(Script::new());
    let mut events = Events::start(&world, &["events", "--all"]);
    let begun = events.until("synced").pop().unwrap()["feedSeq"].to_string();
    let mut chat = world.session("default");
    chat.prompt("Hi");
    let seen = events.until("stateChanged");
    assert_eq!(seen.last().unwrap()["sessionId"], chat.id);
    events.signal(rustix::process::Signal::INT);
    assert_eq!(events.child.wait().unwrap().code(), Some(0));
    let mut events = Events::start(&world, &["events", "--all", "--after", &begun]);
    assert_eq!(events.until("sessionCreated"), seen[..1]);
    events.signal(rustix::process::Signal::INT);
    assert_eq!(events.child.wait().unwrap().code(), Some(0));
}

#[test]
fn whoever_closes_the_pipe_ends_events_and_log_with_0() {
    let (world, _chat) = three_turns();
    let mut events = Events::start(&world, &["events"]);
    events.until("synced");
    // Nothing more happens: only the closed pipe can end it.
    drop(events.lines);
    assert_eq!(events.child.wait().unwrap().code(), Some(0));
    for args in
        [&["log", "--all"][..], &["log", "--all", "--json"], &["events", "--after", "0", "--no-follow"]]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut child = command(&world, args).stdout(writer).spawn().unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn attach_off_a_terminal_shows_the_last_turn_or_all_of_them() {
    let (world, _chat) = three_turns();
    let output = agentctl(&world, &["attach"]);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!((output.status.code(), out.as_ref()), (Some(0), "Only words.\n"), "{err}");
    assert!(err.contains("2 earlier turns") && err.contains("> Say something"), "{err}");
    assert!(!err.contains("Write c"), "{err}");
    let output = agentctl(&world, &["attach", "--all"]);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(out, "Only words.\n", "{err}");
    assert!(err.contains("> Write c") && err.contains("Ended, because a call was denied"), "{err}");
}

#[test]
fn history_is_bounded_checks_what_it_is_asked_and_takes_nothing_into_memory() {
    let (mut world, chat) = three_turns();
    let expected = journaled(&chat);
    world.daemon.terminate();
    world.daemon.restart(&world.home);
    let mut line = world.daemon.connect();
    let page = line.call("session/history", json!({"sessionId": chat.id, "afterSeq": 0, "limit": 5}));
    assert_eq!(page["events"].as_array().unwrap()[..], expected[..5]);
    assert_eq!((&page["more"], &page["next"]), (&json!(true), &expected[4]["seq"]));
    let newest = line.call("session/history", json!({"sessionId": chat.id, "types": ["message"]}));
    assert_eq!(newest["events"].as_array().unwrap().last().unwrap()["text"], "Only words.");
    assert_eq!(line.call("daemon/status", json!({}))["liveSessions"], 0);
    let ask = |more: Value| {
        let mut params = json!({"sessionId": chat.id});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    let error = line.refused("session/history", ask(json!({"types": ["mesage"]})));
    assert_eq!((error.code, &error.data["field"]), (-32059, &json!("types")));
    let error = line.refused("session/history", ask(json!({"afterSeq": 100_000})));
    assert_eq!((error.code, &error.data["head"]), (-32053, &page["head"]));
    let unknown = json!({"sessionId": "0193aaaa-0000-7000-8000-000000000001"});
    assert_eq!(line.refused("session/history", unknown).code, -32050);
    line.call("session/delete", ask(json!({})));
    assert_eq!(line.refused("session/history", ask(json!({}))).code, -32050);
}
