//! The daemon's feed over ends and kills of the daemon: who was away hears what happened, once, or that some is missing.

use std::collections::BTreeSet;

use agentd_client::{ConnectOptions, StreamItem, connect};
use agentd_protocol::event::{EventBody, SubscribeParams};
use agentd_protocol::initialize::{Actor, ClientInfo};
use agentd_tests::{Line, Reply, Script, World, call};
use serde_json::{Value, json};

/// A client that comes and goes.
#[derive(Default)]
struct Watcher {
    last: Option<u64>,
    /// Facts, each as `type session`.
    heard: Vec<String>,
    /// Since when nothing may be missing.
    whole_since: usize,
}

impl Watcher {
    /// Comes, hears at least what has happened, and leaves.
    fn look(&mut self, world: &World, told: usize) -> Value {
        let mut line = world.daemon.connect();
        line.call("events/subscribe", json!({"afterFeedSeq": self.last}));
        loop {
            let event = line.event("an event of the feed", |_| true);
            let number = event["feedSeq"].as_u64().unwrap();
            if event["type"] == "synced" {
                assert!(self.last.is_none_or(|last| last <= number), "{event}");
                self.last = Some(number);
                if event["gap"] != true {
                    return event;
                }
                self.whole_since = told;
                continue;
            }
            assert!(self.last.is_none_or(|last| last < number), "{event} after {:?}", self.last);
            self.last = Some(number);
            let kind = event["type"].as_str().unwrap();
            if ["sessionCreated", "approvalResolved", "sessionArchived", "sessionDeleted"].contains(&kind) {
                self.heard.push(format!("{kind} {}", event["sessionId"].as_str().unwrap()));
            }
        }
    }
}

/// Makes a session, has it ask and be answered, puts it away and removes it.
fn live_through(world: &World, told: &mut Vec<String>, keep: bool) {
    let mut chat = world.session("default");
    let id = chat.id.clone();
    chat.prompt("Go");
    let approval = chat.approval();
    chat.choose(&approval, "deny");
    let _ = chat.outcome();
    for kind in ["sessionCreated", "approvalResolved"] {
        told.push(format!("{kind} {id}"));
    }
    if !keep {
        chat.line.call("session/archive", json!({"sessionId": id}));
        chat.line.call("session/delete", json!({"sessionId": id}));
        told.push(format!("sessionArchived {id}"));
        told.push(format!("sessionDeleted {id}"));
    }
}

fn asks() -> Script {
    let write = call("write_file", json!({"file_path": "c", "content": "x"}));
    Script::new().rule("ask", json!({"answers": 0}), write).step(Reply::text("Done."))
}

#[test]
fn p8_who_was_away_over_ends_and_kills_hears_every_fact_once_or_that_some_may_be_missing() {
    let mut world = World::new(asks());
    let (mut watcher, mut told) = (Watcher::default(), Vec::new());
    watcher.look(&world, 0);
    let mut kills = 0;
    for round in 0..8 {
        live_through(&world, &mut told, round % 3 == 0);
        if round % 2 == 1 {
            watcher.look(&world, told.len());
        }
        live_through(&world, &mut told, false);
        if round % 4 == 3 {
            world.kill9_and_restart();
            kills += 1;
        } else {
            assert!(world.daemon.terminate().success());
            world.daemon.restart(&world.home);
        }
        if round % 3 != 1 {
            let gap_before = watcher.whole_since;
            watcher.look(&world, told.len());
            assert!(kills > 0 || gap_before == watcher.whole_since, "an end in order leaves no gap");
        }
    }
    live_through(&world, &mut told, true);
    let synced = watcher.look(&world, told.len());
    assert_eq!((&synced["sessions"], &synced["approvals"]), (&json!([]), &json!([])));
    let heard: BTreeSet<_> = watcher.heard.iter().collect();
    assert_eq!(heard.len(), watcher.heard.len(), "nothing twice");
    let missed: Vec<_> = told.iter().enumerate().filter(|(_, fact)| !heard.contains(fact)).collect();
    assert!(missed.iter().all(|(at, _)| *at < watcher.whole_since), "{missed:?} of {}", told.len());
    let in_order: Vec<_> = told.iter().filter(|fact| heard.contains(fact)).collect();
    assert_eq!(watcher.heard.iter().collect::<Vec<_>>(), in_order);
}

#[test]
fn a_number_that_the_feed_has_not_come_to_is_a_conflict_and_says_where_it_is() {
    let mut world = World::new(Script::new());
    let mut line = world.daemon.connect();
    line.call("events/subscribe", json!({}));
    let head = line.event_of("synced")["feedSeq"].as_u64().unwrap();
    let error = line.refused("events/subscribe", json!({"afterFeedSeq": head + 1}));
    assert_eq!((error.code, error.data["head"].as_u64()), (-32053, Some(head)));
    for params in
        [json!({"afterSeq": 1}), json!({"sessionId": world.session("default").id, "afterFeedSeq": 1})]
    {
        assert_eq!(line.refused("events/subscribe", params).code, -32059);
    }
    // Long before what is kept: the whole, and that something is missing.
    world.kill9_and_restart();
    let mut line = world.daemon.connect();
    line.call("events/subscribe", json!({"afterFeedSeq": 1}));
    let synced = line.event_of("synced");
    assert_eq!((&synced["gap"], &synced["feedSeq"]), (&json!(true), &json!(1)));
    assert!(line.event_of("synced").get("gap").is_none());
}

#[test]
fn a_damaged_log_of_the_feed_stops_no_start_and_no_number_goes_back() {
    let mut world = World::new(Script::new());
    let log = world.home.path("state/agentd/daemon.jsonl");
    let mut last = 0;
    for damage in [&b"\0\0\0\0"[..], b"no line\n", b"{\"feedSeq\":1,\"is\":\"started\"}\n{\"feed", b""] {
        let mut line = world.daemon.connect();
        line.call("events/subscribe", json!({}));
        let head = line.event_of("synced")["feedSeq"].as_u64().unwrap();
        assert!(head > last, "{head} after {last}");
        last = head;
        world.daemon.kill9();
        std::fs::write(&log, damage).unwrap();
        world.daemon.restart(&world.home);
    }
    std::fs::remove_file(&log).unwrap();
    std::fs::create_dir(&log).unwrap();
    world.kill9_and_restart();
    let mut line = world.daemon.connect();
    line.call("events/subscribe", json!({"afterFeedSeq": last}));
    assert_eq!(line.event_of("synced")["gap"], true);
    let id = world.session("default").id;
    assert_eq!(line.event_of("sessionCreated")["sessionId"], id);
}

#[tokio::test]
async fn the_client_crate_goes_on_in_the_feed_over_a_kill() {
    let mut world = World::new(asks());
    let who = ClientInfo { name: "typed".into(), version: "1".into(), actor: Actor::Person };
    let options =
        ConnectOptions { socket: Some(world.daemon.socket().to_owned()), ..ConnectOptions::new(who) };
    let client = connect(options).await.unwrap();
    let mut events = client.subscribe(SubscribeParams::default()).await.unwrap();
    let (mut made, mut gone, mut numbers) = (None, 0, Vec::new());
    while gone < 2 {
        let item = tokio::time::timeout(agentd_tests::PATIENCE, events.next()).await.unwrap().unwrap();
        let StreamItem::Event(received) = item.expect("the stream goes on") else { continue };
        numbers.extend(received.event.feed_seq);
        match received.event.body {
            EventBody::Synced { .. } if made.is_none() => {
                made = Some((world.session("default").id, world.session("default").id));
            }
            EventBody::SessionCreated { .. }
                if received.event.session_id.map(|id| id.to_string()) == made.clone().map(|made| made.1) =>
            {
                let mut line = Line::connect_as(world.daemon.socket(), "other", "person");
                line.call("session/delete", json!({"sessionId": made.as_ref().unwrap().0}));
            }
            EventBody::SessionDeleted {} => {
                gone += 1;
                if gone == 1 {
                    world.kill9_and_restart();
                    let mut line = Line::connect_as(world.daemon.socket(), "other", "person");
                    line.call("session/delete", json!({"sessionId": made.as_ref().unwrap().1}));
                }
            }
            _ => {}
        }
    }
    assert!(numbers.is_sorted(), "{numbers:?}");
}
