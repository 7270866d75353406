//! Many clients, slow ones, ones that go and come back, ones that may not speak at all.

use std::io::Write as _;
use std::os::unix::net::UnixStream;

use agentd_client::{ConnectOptions, StreamItem, connect};
use agentd_protocol::event::{EventBody, SubscribeParams};
use agentd_protocol::initialize::{Actor, ClientInfo};
use agentd_tests::{Chat, Line, Reply, Script, World, call};
use serde_json::json;

/// What the daemon has in memory, in MiB.
fn resident(world: &World) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", world.daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() / 1024
}

#[test]
fn rp_08_a_client_that_never_reads_delays_nobody_costs_no_memory_and_misses_no_question() {
    // Each turn is 440 KB of deltas, for eight subscriptions; what is not read comes to over 200 MB.
    const TURNS: usize = 60;
    let big = Reply::text(&"All work and no play. ".repeat(20_000))
        .with("pace", json!({"chunk": 4000, "delay_ms": 0}));
    let ask = call("write_file", json!({"file_path": "c", "content": "x"}));
    let asked = json!({"answers": 0, "texts": [{"in": "prompt", "contains": "Ask"}]});
    let world = World::new(Script::new().rule("ask", asked, ask).rule("big", json!({}), big));
    let mut chat = world.session("default");
    let mut deaf = UnixStream::connect(world.daemon.socket()).unwrap();
    for id in 0..8 {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "events/subscribe", "params": {"sessionId": chat.id, "afterSeq": 0, "deltas": true}});
        deaf.write_all(format!("{call}\n").as_bytes()).unwrap();
    }
    let mut before = 0;
    for turn in 0..TURNS {
        chat.prompt("Talk");
        assert_eq!(chat.outcome(), "finished");
        chat.line.history.clear();
        // Else each turn would send all those before it to the model.
        chat.line.call("session/rewind", json!({"sessionId": chat.id}));
        if turn == 5 {
            before = resident(&world);
        }
    }
    let grown = resident(&world).saturating_sub(before);
    assert!(grown < 24, "{grown} MiB for a client that does not read");
    chat.prompt("Ask");
    let approval = chat.approval();
    drop(deaf);
    // Back again, it is asked as everybody else was.
    let mut back = Chat::attach(&world.daemon, &chat.id, "deaf");
    assert_eq!(back.state()["approvals"][0]["approvalId"], approval["approvalId"]);
    back.choose(&approval, "allowOnce");
    assert_eq!(chat.outcome(), "finished");
    let status = chat.line.call("daemon/status", json!({}));
    assert_eq!(status["runningTurns"], 0);
}

/// The numbers of what was journaled among these events; each is there once, in order.
fn seqs(history: &[serde_json::Value]) -> Vec<u64> {
    let journaled = history.iter().filter(|event| event["type"] != "synced");
    let seqs: Vec<_> = journaled.filter_map(|event| event["seq"].as_u64()).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "a double, or out of order: {seqs:?}");
    seqs
}

/// The numbers of everything that a session has journaled so far.
fn all_seqs(world: &World, id: &str) -> Vec<u64> {
    let mut whole = Line::connect(world.daemon.socket());
    whole.call("events/subscribe", json!({"sessionId": id, "afterSeq": 0}));
    let _ = whole.event_of("synced");
    seqs(&whole.history)
}

#[test]
fn rp_10_a_lost_connection_cancels_nothing_and_events_go_on_without_gap_or_double() {
    let text = "Word by word it comes, and the connection is lost between two of them.";
    let slow = Reply::text(text).fault(Some(1), json!({"hang": {"after": 500}}));
    let world = World::new(Script::new().step(slow));
    let mut chat = world.session("default");
    let turn = chat.prompt("Talk");
    // In the middle of an answer, which does not go on by itself.
    let delta = chat.line.event_of("messageDelta");
    assert!(delta["text"].as_str().unwrap().len() < text.len(), "{delta}");
    let (id, before) = (chat.id.clone(), seqs(&chat.line.history));
    drop(chat);
    let mut line = Line::connect_as(world.daemon.socket(), "test", "person");
    world.model.release();
    let last = *before.last().unwrap();
    line.call("events/subscribe", json!({"sessionId": id, "afterSeq": last}));
    let finished = line.event_of("turnFinished");
    assert_eq!((&finished["outcome"], &finished["turnId"]), (&json!("finished"), &json!(turn)));
    assert_eq!(line.call("turn/wait", json!({"sessionId": id, "turnId": turn}))["text"], text);
    assert_eq!(world.model.requests().len(), 1, "nothing was begun anew");
    let rest = seqs(&line.history);
    assert!(rest[0] > last, "{rest:?} after {last}");
    // Both parts together are the whole.
    let all = all_seqs(&world, &id);
    assert_eq!([before, rest].concat(), all);
    let error = line.refused("events/subscribe", json!({"sessionId": id, "afterSeq": 100_000}));
    assert_eq!((error.code, error.data["head"].as_u64()), (-32053, all.last().copied()));
}

#[test]
fn rp_11_all_clients_hear_of_the_answer_and_a_returning_one_sees_no_stale_question() {
    let world = World::new(Script::new().step(call("write_file", json!({"file_path": "c", "content": "x"}))));
    let mut asked = world.session("default");
    asked.prompt("Go");
    let approval = asked.approval();
    let id = asked.id.clone();
    let mut others: Vec<_> =
        (0..3).map(|at| Chat::attach(&world.daemon, &id, &format!("client {at}"))).collect();
    drop(asked);
    let (last, watchers) = others.split_last_mut().unwrap();
    last.choose(&approval, "allowOnce");
    for watcher in watchers {
        let resolved = watcher.line.event_of("approvalResolved");
        assert_eq!(
            (&resolved["approvalId"], &resolved["by"]["client"]),
            (&approval["approvalId"], &json!("client 2"))
        );
    }
    let mut back = Chat::attach(&world.daemon, &id, "back");
    assert_eq!(back.outcome(), "finished");
    assert_eq!(back.state()["approvals"], json!([]));
    assert_eq!(back.line.call("approval/list", json!({}))["approvals"], json!([]));
}

#[test]
fn every_client_sees_the_same_events_in_the_same_order() {
    let world = World::new(
        Script::new().step(call("read_file", json!({"file_path": "README.md"}))).step(Reply::text("Done.")),
    );
    let mut chat = world.session("default");
    let mut others: Vec<_> =
        (0..4).map(|at| Chat::attach(&world.daemon, &chat.id, &format!("c{at}"))).collect();
    chat.prompt("Go");
    let journaled = |chat: &mut Chat| {
        let _ = chat.finished();
        chat.line
            .history
            .iter()
            .filter(|event| event["seq"].is_u64() && event["type"] != "synced")
            .cloned()
            .collect::<Vec<_>>()
    };
    let first = journaled(&mut chat);
    for other in &mut others {
        assert_eq!(journaled(other), first);
    }
}

#[tokio::test]
async fn the_client_crate_resumes_over_a_kill_and_answers_the_approval_that_survived() {
    let script = Script::new()
        .step(call("write_file", json!({"file_path": "c", "content": "x"})))
        .step(Reply::text("Done."));
    let mut world = World::new(script);
    let mut chat = world.session("default");
    let who = ClientInfo { name: "typed".into(), version: "1".into(), actor: Actor::Person };
    let options =
        ConnectOptions { socket: Some(world.daemon.socket().to_owned()), ..ConnectOptions::new(who) };
    let client = connect(options).await.unwrap();
    let session_id = Some(chat.id.parse().unwrap());
    let params = SubscribeParams {
        session_id,
        after_seq: Some(agentd_protocol::Seq(0)),
        deltas: true,
        ..SubscribeParams::default()
    };
    let mut events = client.subscribe(params).await.unwrap();
    chat.prompt("Go");
    let (mut received_seqs, mut reconnected, mut asked) = (Vec::new(), false, None);
    let outcome = loop {
        let item = tokio::time::timeout(agentd_tests::PATIENCE, events.next()).await.unwrap().unwrap();
        match item.expect("the stream goes on") {
            StreamItem::Reconnecting => {}
            StreamItem::Reconnected => reconnected = true,
            StreamItem::Event(received) => {
                match &received.event.body {
                    EventBody::Synced { .. } if reconnected && asked.is_some() => {
                        let approval: agentd_protocol::approval::Approval = Option::take(&mut asked).unwrap();
                        let answer = json!({"approvalId": approval.approval_id, "choice": "allowOnce", "digest": approval.digest});
                        let raw = serde_json::value::to_raw_value(&answer).unwrap();
                        client.call_raw("approval/respond", Some(raw)).await.unwrap();
                        continue;
                    }
                    EventBody::Synced { .. } => continue,
                    EventBody::ApprovalRequested(approval) => {
                        asked = Some(approval.clone());
                        world.kill9_and_restart();
                    }
                    EventBody::TurnFinished { outcome, .. } => {
                        received_seqs.extend(received.event.seq.map(|seq| seq.0));
                        break *outcome;
                    }
                    _ => {}
                }
                received_seqs.extend(received.event.seq.map(|seq| seq.0));
            }
        }
    };
    assert_eq!(outcome.name(), "finished");
    assert!(reconnected);
    assert_eq!(received_seqs, all_seqs(&world, &chat.id), "no gap, no double");
    assert_eq!(world.home.project().read("c"), "x");
}

/// Connects from within a command of the session and asks for the daemon's status.
const KNOCK: &str = r#"
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.settimeout(20)
try:
    s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"approval/list","params":{}}\n')
except OSError:
    pass  # Refused already: what was said is still to be read.
said = s.makefile().readline()
open(sys.argv[2], "w").write(said)
"#;

#[test]
fn s3_what_the_daemon_started_may_not_speak_to_it_however_often_forked() {
    for (name, wrap) in [
        ("directly", "python3 knock.py \"$(cat where)\" said"),
        (
            "double fork",
            "setsid sh -c '(python3 knock.py \"$(cat where)\" said &)'; while [ ! -s said ]; do sleep 0.05; done",
        ),
    ] {
        let run = call("run_shell", json!({"command": "{{prompt}}", "timeout_ms": 20_000}));
        let world = World::new(Script::new().rule("run", json!({"answers": 0}), run));
        world.home.project().write("knock.py", KNOCK);
        // The gate refuses a command that names it.
        world.home.project().write("where", &world.daemon.socket().display().to_string());
        let mut chat = world.session("default");
        chat.prompt(wrap);
        let approval = chat.approval();
        chat.choose(&approval, "allowOnce");
        assert_eq!(chat.outcome(), "finished");
        let said = std::fs::read_to_string(world.home.project().path.join("said")).unwrap_or_default();
        assert!(
            said.contains("-32054") && said.contains("peer.ownChild"),
            "{name}: {said}\n{:?}",
            chat.results()
        );
        // The test itself is no child of the daemon, and still may.
        chat.line.call("approval/list", json!({}));
    }
}

#[test]
fn rp_13_a_daemon_that_is_stopped_for_a_while_keeps_its_place() {
    let world = World::new(Script::new());
    let mut chat = world.session("default");
    world.daemon.stop();
    let second = agentd_tests::Daemon::run(&world.home, &agentd_tests::Start::default());
    assert_eq!(second.status.code(), Some(75), "{second:?}");
    world.daemon.go_on();
    chat.prompt("Hi");
    assert_eq!(chat.outcome(), "finished");
}

#[test]
fn l4_an_interrupt_does_not_wait_behind_the_text_that_streams() {
    let long = "All work and no play. ".repeat(40_000);
    let streams = Reply::text(&long).with("pace", json!({"chunk": 1000, "delay_ms": 1}));
    let world = World::new(Script::new().step(streams));
    let mut chat = world.session("default");
    chat.prompt("Talk");
    let _ = chat.line.event_of("messageDelta");
    chat.interrupt();
    assert_eq!(chat.outcome(), "interrupted");
    let cut = chat.events("message").into_iter().find(|event| event["role"] == "assistant").unwrap();
    assert_eq!(cut["incomplete"], true);
}

#[test]
fn a_session_that_is_stuck_slows_no_other() {
    let hang = Reply::text("never").fault(None, json!({"hang": {"after": 0}}));
    let stuck = json!({"texts": [{"in": "prompt", "contains": "STUCK"}]});
    let world = World::new(Script::new().rule("stuck", stuck, hang).step(Reply::text("Here.")));
    let mut stuck = world.session("default");
    stuck.prompt("STUCK");
    let _ = world.model.requests_until(1);
    for _ in 0..5 {
        let mut chat = world.session("default");
        chat.prompt("Hi");
        assert_eq!(chat.outcome(), "finished");
    }
    assert_eq!(stuck.state()["activity"], "running");
    stuck.interrupt();
    assert_eq!(stuck.outcome(), "interrupted");
}
