//! What a restart makes of what it finds.

use agentd_tests::{Chat, Daemon, Dialect, Reply, Script, Start, World, call, eventually};
use serde_json::json;

/// Prompts by `agentctl run`, off a terminal, while the daemon that it met dies at this moment; what is on stdout.
fn run_over(moment: &str) -> (World, String) {
    let mut world = World::new(Script::new().rule("say", json!({}), Reply::text("Here I am.")));
    world.daemon.terminate();
    let args = vec!["--die-at".to_owned(), moment.to_owned()];
    world.daemon = Daemon::start(&world.home, Start { args, ..Start::default() });
    let mut run = std::process::Command::new(agentd_tests::program("agentctl"));
    run.args(["run", "Hello"]).current_dir(world.home.project().path).env_clear().envs(world.home.env());
    let output = run.stdin(std::process::Stdio::null()).output().unwrap();
    let [said, noted] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{moment}: {}\n{said}{noted}", output.status);
    world.daemon.ended();
    (world, said)
}

#[test]
fn a_daemon_that_dies_under_a_run_costs_neither_prompt_nor_answer_and_leaves_one_session() {
    // Its creation, its prompt, its turn, its answer.
    for moment in ["written:1", "before:2", "written:2", "written:3", "written:4"] {
        let (world, said) = run_over(moment);
        assert_eq!(said, "Here I am.\n", "{moment}");
        // The one that agentctl started.
        let mut line = agentd_tests::Line::connect(&world.home.socket());
        let sessions = line.call("session/list", json!({}))["sessions"].clone();
        assert_eq!(sessions.as_array().unwrap().len(), 1, "{moment}: {sessions}");
        assert_eq!(sessions[0]["lastOutcome"], "finished", "{moment}: {sessions}");
        let pid = line.call("daemon/status", json!({}))["pid"].as_i64().unwrap();
        line.call("daemon/shutdown", json!({}));
        drop(line);
        let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
        agentd_tests::eventually("the daemon leaves", || {
            rustix::process::test_kill_process(pid).is_err().then_some(())
        });
    }
}

fn hang(text: &str, times: Option<u32>) -> Reply {
    Reply::text(text).fault(times, json!({"hang": {"after": 0}}))
}

#[test]
fn killed_while_sampling_the_turn_goes_on_once() {
    let mut world = World::new(Script::new().step(hang("Here I am.", Some(1))));
    let mut chat = world.session("default");
    let turn = chat.prompt("Hi");
    let _ = world.model.requests_until(1);
    world.kill9_and_restart();
    let mut again = Chat::attach(&world.daemon, &chat.id, "test");
    let finished = again.finished();
    assert_eq!((&finished["outcome"], &finished["turnId"]), (&json!("finished"), &json!(turn)));
    assert_eq!(again.events("turnResumed").len(), 1);
    assert_eq!(again.events("turnStarted").len(), 1);
    let requests = world.model.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0]["messages"], requests[1]["messages"], "asked the same again");
    let answer = again.line.call("turn/wait", json!({"sessionId": again.id, "turnId": turn}));
    assert_eq!(answer["text"], "Here I am.");
}

#[test]
fn a_second_crash_in_the_same_turn_ends_it_and_the_next_prompt_has_its_turn() {
    let mut world = World::new(Script::new().step(hang("never", None)));
    let mut chat = world.session("default");
    let turn = chat.prompt("Hi");
    let queued = chat.prompt("Later");
    let _ = world.model.requests_until(1);
    world.kill9_and_restart();
    let _ = world.model.requests_until(2);
    world.kill9_and_restart();
    let mut again = Chat::attach(&world.daemon, &chat.id, "test");
    let finished = again.finished();
    assert_eq!((&finished["outcome"], &finished["turnId"]), (&json!("interrupted"), &json!(turn)));
    // Nothing of unknown outcome ran, so nothing keeps what was queued from its turn.
    let _ = world.model.requests_until(3);
    let state = again.state();
    assert_eq!(
        (&state["activity"], &state["inboxHeld"], &state["turnId"]),
        (&json!("running"), &json!(false), &json!(queued))
    );
}

#[test]
fn se_11_a_command_that_ran_when_the_daemon_died_is_gone_and_never_run_again() {
    let script = Script::new()
        .step(call("run_shell", json!({"command": "printf x >> counter; echo $$ > pid; exec sleep 1000"})))
        .step(Reply::text("I look what happened."));
    let mut world = World::new(script);
    let project = world.home.project();
    let mut chat = world.session("default");
    let turn = chat.prompt("Run it");
    let approval = chat.approval();
    assert_eq!(chat.verdict("run_shell").line(), "run_shell ask command.unconfined");
    assert!(!project.path.join("counter").exists());
    chat.choose(&approval, "allowOnce");
    let queued = chat.prompt("Later");
    let pid = eventually("the command's pid", || {
        std::fs::read_to_string(project.path.join("pid")).ok()?.trim().parse::<i32>().ok()
    });
    let is_gone = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        status.is_err() || status.is_ok_and(|stat| stat.contains(") Z "))
    };
    world.daemon.kill9();
    eventually("the end of the command", || is_gone().then_some(()));
    world.daemon.restart(&world.home);
    let mut again = Chat::attach(&world.daemon, &chat.id, "test");
    let finished = again.finished();
    assert_eq!((&finished["outcome"], &finished["turnId"]), (&json!("interrupted"), &json!(turn)));
    assert!(finished["error"].as_str().unwrap().contains("unknown"), "{finished}");
    assert_eq!(
        again.verdict("run_shell").line(),
        "run_shell ask command.unconfined interrupted crash.unknownOutcome"
    );
    let state = again.state();
    assert_eq!((&state["activity"], &state["inboxHeld"]), (&json!("idle"), &json!(true)));
    let row = again.line.call("session/list", json!({}))["sessions"][0].clone();
    assert_eq!((&row["activity"], &row["lastOutcome"]), (&json!("idle"), &json!("interrupted")), "{row}");
    assert_eq!(state["inbox"][0]["promptId"], queued.as_str());
    assert_eq!(
        again.respond(&approval, "allowOnce", json!({})).unwrap()["status"],
        "accepted",
        "told again, not run again"
    );
    assert_eq!(world.model.requests().len(), 1);

    again.prompt("What happened?");
    assert_eq!((again.outcome(), again.outcome()), ("finished".to_owned(), "finished".to_owned()));
    assert_eq!(project.read("counter"), "x");
    let told = world.model.requests()[1]["messages"].to_string();
    assert!(told.contains("outcome unknown"), "{told}");
}

#[test]
fn prompts_that_were_acknowledged_survive_and_run_in_order() {
    let mut world = World::new(
        Script::new().step(hang("one", Some(1))).step(Reply::text("two")).step(Reply::text("three")),
    );
    let mut chat = world.session("default");
    let turns = ["first", "second", "third"].map(|text| chat.prompt(text));
    let _ = world.model.requests_until(1);
    world.kill9_and_restart();
    let mut again = Chat::attach(&world.daemon, &chat.id, "test");
    let ended = [(); 3].map(|()| again.finished()["turnId"].as_str().unwrap().to_owned());
    assert_eq!(ended, turns);
    assert_eq!(again.state()["inbox"], json!([]));
}

#[test]
fn s2_a_terminated_daemon_parks_a_stream_and_goes_on_at_the_next_start() {
    let slow = Reply::text("Half of it, and the other half of the answer.")
        .fault(Some(1), json!({"hang": {"after": 500}}));
    let mut world = World::new(Script::new().step(slow));
    let mut chat = world.session("default");
    let turn = chat.prompt("Hi");
    let delta = chat.line.event_of("messageDelta");
    assert!(world.daemon.terminate().success());
    let told = chat.line.rest();
    assert_eq!(told.iter().filter(|event| event["type"] == "shuttingDown").count(), 1, "{told:?}");
    assert!(told.iter().all(|event| event["type"] != "turnFinished"), "parked, not ended: {told:?}");
    world.daemon.restart(&world.home);
    let mut again = Chat::attach(&world.daemon, &chat.id, "test");
    let finished = again.finished();
    assert_eq!((&finished["outcome"], &finished["turnId"]), (&json!("finished"), &json!(turn)));
    let cut = again
        .events("message")
        .into_iter()
        .find(|event| event["messageId"] == delta["messageId"])
        .cloned()
        .unwrap();
    assert_eq!(cut["incomplete"], true);
    assert_ne!(delta["text"], "");
    assert!(cut["text"].as_str().unwrap().starts_with(delta["text"].as_str().unwrap()), "{cut} {delta}");
    assert_eq!(again.events("turnResumed").len(), 1);
    let answer = again.line.call("turn/wait", json!({"sessionId": again.id, "turnId": turn}));
    assert_eq!(answer["text"], "Half of it, and the other half of the answer.");
    // Parked is not crashed: what was cut is not put before the model as if it had been said.
    let requests = world.model.requests();
    assert_eq!(requests[0]["messages"], requests[1]["messages"]);
}

#[test]
fn a_session_is_the_same_after_a_kill_as_before() {
    let script = Script::new()
        .step(call("read_file", json!({"file_path": "src/a.rs"})))
        .step(call("edit_file", json!({"file_path": "src/a.rs", "old_string": "fn a", "new_string": "fn z"})))
        .step(Reply::text("Done."))
        .step(call(
            "edit_file",
            json!({"file_path": "src/a.rs", "old_string": "fn z", "new_string": "fn y"}),
        ));
    let mut world = World::new(script);
    let mut chat = world.session("acceptEdits");
    chat.prompt("Edit");
    assert_eq!(chat.outcome(), "finished");
    let (before, events) = (chat.state(), chat.line.history.clone());
    world.kill9_and_restart();
    let mut again = Chat::attach(&world.daemon, &chat.id, "test");
    assert_eq!(again.state(), before);
    let _ = again.line.event_of("synced");
    let journaled = |events: &[serde_json::Value]| -> Vec<serde_json::Value> {
        events.iter().filter(|event| event["seq"].is_u64() && event["type"] != "synced").cloned().collect()
    };
    assert_eq!(journaled(&again.line.history), journaled(&events), "every event again, byte for byte");
    assert_eq!(again.state()["seq"], before["seq"]);
    // What was read is still known: no new read is needed before the next edit.
    let turn = again.prompt("Edit it again");
    again.line.event("the end of the second turn", |event| {
        event["type"] == "turnFinished" && event["turnId"] == turn.as_str()
    });
    assert_eq!(again.verdict("edit_file").line(), "edit_file allow write.workspace ok");
    assert_eq!(world.home.project().read("src/a.rs"), "fn y() {}\n");
}

#[test]
fn a_mode_that_the_new_daemon_does_not_allow_is_not_kept() {
    let write = call("run_shell", json!({"command": "touch ran"}));
    let allowing = Start { args: vec!["--allow-bypass".into()], ..Start::default() };
    let mut world = World::with(Script::new().step(write), Dialect::OpenaiChat, "", allowing);
    let chat = world.session("bypassPermissions");
    let mut planning = world.session("bypassPermissions");
    planning.set_mode("plan");
    world.daemon.kill9();
    world.daemon = Daemon::start(&world.home, Start::default());

    let mut again = Chat::attach(&world.daemon, &chat.id, "test");
    assert_eq!(again.mode(), "default");
    again.prompt("Go");
    assert_eq!(again.approval()["tool"]["tool"], "run_shell", "nobody enabled this mode");
    again.interrupt();
    assert_eq!(again.outcome(), "interrupted");
    assert!(!world.home.project().path.join("ran").exists());

    // A mode remembered from before planning does not come back either.
    let mut again = Chat::attach(&world.daemon, &planning.id, "test");
    again.prompt("/plan");
    assert_eq!(again.mode(), "default");
}

/// What happened when the daemon was killed after so many events: absent when the turn was over before.
fn killed_after(world: &mut World, events: usize) -> Option<String> {
    let project = world.home.project();
    let _ = std::fs::remove_file(project.path.join("counter"));
    let mut chat = world.session("plan");
    chat.prompt("Go");
    let mut killed = false;
    // After a restart the history comes again; what is over is not answered again.
    let outcome = loop {
        if !killed && chat.line.history.len() >= events {
            world.kill9_and_restart();
            killed = true;
            chat = Chat::attach(&world.daemon, &chat.id, "test");
            let synced = chat.line.event_of("synced");
            for approval in synced["state"]["approvals"].as_array().unwrap() {
                let choice = if approval["kind"] == "plan" { "execute" } else { "allowOnce" };
                chat.choose(approval, choice);
            }
            if let Some(finished) = chat.events("turnFinished").last() {
                break finished["outcome"].as_str().unwrap().to_owned();
            }
        }
        let event = chat.line.event("anything", |_| true);
        if event["type"] == "approvalRequested" {
            if !killed && chat.line.history.len() >= events {
                continue;
            }
            let choice = if event["kind"] == "plan" { "execute" } else { "allowOnce" };
            chat.choose(&event, choice);
        } else if event["type"] == "turnFinished" {
            break event["outcome"].as_str().unwrap().to_owned();
        }
    };
    if !killed {
        return None;
    }
    let (approved, verdicts) = (chat.events("planApproved").len(), chat.verdicts());
    let runs = std::fs::read_to_string(project.path.join("counter")).unwrap_or_default();
    let seen = chat.line.seen();
    assert!(runs.len() <= 1, "killed after {events}: the command ran {} times\n{seen}", runs.len());
    assert!(
        approved == 1 || runs.is_empty(),
        "killed after {events}: a command without an approved plan\n{seen}"
    );
    assert!(verdicts.iter().all(|verdict| !verdict.status.is_empty()), "killed after {events}: {verdicts:?}");
    assert_eq!(chat.state()["activity"], "idle", "killed after {events}");
    match outcome.as_str() {
        "finished" => assert_eq!((approved, runs.as_str()), (1, "x"), "killed after {events}\n{seen}"),
        "interrupted" => assert!(seen.contains("crash.unknownOutcome"), "killed after {events}\n{seen}"),
        other => panic!("killed after {events}: {other}\n{seen}"),
    }
    Some(outcome)
}

#[test]
fn killed_after_any_event_a_plan_is_carried_out_once_or_the_turn_says_that_it_is_not_known() {
    let script = Script::new()
        .step(call("read_file", json!({"file_path": "src/a.rs"})))
        .step(crate::plan_gate::planning("# Plan\n1. count\n"))
        .step(call("run_shell", json!({"command": "printf x >> counter"})))
        .step(Reply::text("Done."));
    let mut world = World::new(script);
    let mut outcomes = Vec::new();
    while let Some(outcome) = killed_after(&mut world, 4 + outcomes.len()) {
        outcomes.push(outcome);
    }
    assert!(outcomes.len() > 20, "{outcomes:?}");
    assert!(outcomes.iter().any(|outcome| outcome == "finished"));
}
