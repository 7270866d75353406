//! The index from outside: it may be killed, removed, ruined; nothing of a session is lost.

use agentd_tests::{Daemon, Reply, Script, Start, World, eventually};
use serde_json::{Value, json};

fn world() -> World {
    World::new(Script::new().step(Reply::text("The otter swims.")))
}

/// A session in which a sentence was said and answered.
fn spoken(world: &World) -> String {
    let mut chat = world.session("default");
    chat.prompt("Tell me of animals");
    assert_eq!(chat.finished()["outcome"], "finished");
    chat.id
}

fn search(daemon: &Daemon, words: &str) -> Value {
    daemon.connect().call("session/search", json!({"query": words}))
}

/// The handles of what is found, once everything is searched.
fn found(daemon: &Daemon, words: &str) -> Vec<String> {
    let result = eventually("a whole search", || {
        Some(search(daemon, words)).filter(|result| result["complete"] == true)
    });
    let hits = result["hits"].as_array().unwrap().iter();
    hits.map(|hit| hit["session"]["sessionId"].as_str().unwrap().to_owned()).collect()
}

fn listed(daemon: &Daemon) -> Vec<String> {
    let list = daemon.connect().call("session/list", json!({}));
    let rows = list["sessions"].as_array().unwrap().iter();
    rows.map(|row| row["sessionId"].as_str().unwrap().to_owned()).collect()
}

fn index_check(daemon: &Daemon) -> Value {
    let doctor = daemon.connect().call("daemon/doctor", json!({}));
    let checks = doctor["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == "index").unwrap().clone()
}

#[test]
fn a_hit_has_the_session_the_place_and_the_match_apart() {
    let world = world();
    let id = spoken(&world);
    let hit = search(&world.daemon, "otter")["hits"][0].clone();
    assert_eq!((&hit["session"]["sessionId"], &hit["role"]), (&json!(id), &json!("assistant")));
    assert_eq!(
        hit["snippet"],
        json!([{"text": "The "}, {"text": "otter", "matched": true}, {"text": " swims."}])
    );
    // The number is that of the event that said it.
    let mut chat = agentd_tests::Chat::attach(&world.daemon, &id, "test");
    let _ = chat.line.event_of("synced");
    assert!(chat.events("message").iter().any(|event| event["seq"] == hit["seq"]));
    let refused = world.daemon.connect().try_call("session/search", json!({"query": "\" *"})).unwrap_err();
    assert_eq!((refused.code, &refused.data["field"]), (-32059, &json!("query")));
}

#[test]
fn killed_and_without_its_index_a_daemon_finds_and_lists_everything() {
    let mut world = world();
    let id = spoken(&world);
    assert_eq!(found(&world.daemon, "animals"), [id.as_str()]);
    world.kill9_and_restart();
    assert_eq!(listed(&world.daemon), [id.as_str()]);
    assert_eq!(found(&world.daemon, "animals"), [id.as_str()]);
    let index = world.home.path("state/agentd/index.db");
    for ruin in [None, Some("no database".repeat(1_000))] {
        world.daemon.kill9();
        match ruin {
            None => std::fs::remove_file(&index).unwrap(),
            Some(text) => std::fs::write(&index, text).unwrap(),
        }
        world.daemon.restart(&world.home);
        assert_eq!(listed(&world.daemon), [id.as_str()]);
        assert_eq!(found(&world.daemon, "animals"), [id.as_str()]);
    }
    // Under the running daemon.
    std::fs::remove_file(&index).unwrap();
    assert_eq!(listed(&world.daemon), [id.as_str()]);
    assert_eq!(found(&world.daemon, "otter"), [id.as_str()]);
    world.daemon.connect().call("session/delete", json!({"sessionId": id}));
    assert_eq!(search(&world.daemon, "otter")["hits"], json!([]));
    world.kill9_and_restart();
    assert_eq!(found(&world.daemon, "otter"), [""; 0]);
}

#[test]
fn an_index_that_cannot_be_opened_is_told_and_made_anew_on_demand() {
    let mut world = world();
    let id = spoken(&world);
    world.daemon.kill9();
    let index = world.home.path("state/agentd/index.db");
    std::fs::remove_file(&index).unwrap();
    std::fs::create_dir_all(index.join("in the way")).unwrap();
    world.daemon = Daemon::start(&world.home, Start::default());
    // It is opened at its first use.
    assert_eq!(listed(&world.daemon), [id.as_str()], "lists do without");
    let check = eventually("a check that failed", || {
        Some(index_check(&world.daemon)).filter(|check| !check["fix"].is_null())
    });
    assert_eq!((&check["status"], &check["fix"]), (&json!("warning"), &json!("agentctl daemon reindex")));
    assert_eq!(listed(&world.daemon), [id.as_str()], "lists do without");
    let looked_at = world.daemon.connect().call("session/get", json!({"sessionId": id}));
    assert_eq!(looked_at["state"]["turns"], 1, "and so does who knows the id");
    assert_eq!(
        world.daemon.connect().try_call("session/search", json!({"query": "x"})).unwrap_err().code,
        -32057
    );

    std::fs::remove_dir_all(&index).unwrap();
    assert_eq!(world.daemon.connect().call("daemon/reindex", json!({})), json!({"sessions": 1}));
    eventually("a whole index", || Some(()).filter(|()| index_check(&world.daemon)["status"] == "ok"));
    assert_eq!(found(&world.daemon, "otter"), [id.as_str()]);
}
