//! The daemon as a service: what the service manager hears, whose environment its commands have, what it hands out in pieces.

use std::os::unix::net::UnixDatagram;

use agentd_tests::{Chat, Dialect, Home, PATIENCE, Reply, Script, Start, World, call};
use serde_json::{Value, json};

/// What a daemon tells its service manager.
fn told(manager: &UnixDatagram) -> String {
    let mut said = [0; 1024];
    let length = manager.recv(&mut said).expect("the service manager is told something");
    String::from_utf8_lossy(&said[..length]).into_owned()
}

#[test]
fn s7_the_service_manager_hears_that_it_is_ready_that_it_lives_and_that_it_ends() {
    let home = Home::new();
    let place = home.path("run/notify");
    let manager = UnixDatagram::bind(&place).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let start = Start {
        env: vec![
            ("NOTIFY_SOCKET".into(), place.display().to_string()),
            ("WATCHDOG_USEC".into(), "200000".into()),
        ],
        ..Start::default()
    };
    let mut world = World::in_home(home, Script::new(), Dialect::OpenaiChat, "", start);
    let mut heard = String::new();
    while !heard.contains("READY=1") || heard.matches("WATCHDOG=1").count() < 3 {
        heard.push_str(&told(&manager));
    }
    assert!(!heard.contains("STOPPING=1"), "{heard}");
    assert!(world.daemon.terminate().success());
    while !heard.contains("STOPPING=1") {
        heard.push_str(&told(&manager));
    }
}

#[test]
fn l1_commands_have_the_environment_of_who_made_the_session_also_after_a_restart() {
    let step = || call("run_shell", json!({"command": "echo \"$VIRTUAL_ENV, $TZ, ${DAEMON_ONLY-nothing}\""}));
    let script = Script::new().step(step()).step(Reply::text("One.")).step(step()).step(Reply::text("Two."));
    let start = Start {
        env: vec![("DAEMON_ONLY".into(), "x".into()), ("TZ".into(), "UTC".into())],
        ..Start::default()
    };
    let mut world = World::with(script, Dialect::OpenaiChat, "", start);
    let env = json!({"PATH": "/usr/bin:/bin", "VIRTUAL_ENV": "/srv/venv", "TZ": "Asia/Tokyo"});
    let id = Chat::start(&world.daemon, json!({"cwd": world.home.project().cwd(), "env": env})).id;
    for said in 1..=2 {
        let mut chat = Chat::attach(&world.daemon, &id, "test");
        let turn = chat.prompt("Go");
        let approval = chat.line.event("a question of this turn", |event| {
            event["type"] == "approvalRequested" && event["turnId"] == turn.as_str()
        });
        chat.choose(&approval, "allowOnce");
        chat.line
            .event("its end", |event| event["type"] == "turnFinished" && event["turnId"] == turn.as_str());
        let results = chat.results();
        assert_eq!(results.len(), said);
        assert!(results[said - 1].contains("/srv/venv, Asia/Tokyo, nothing"), "{results:?}");
        world.kill9_and_restart();
    }
}

#[test]
fn p7_what_is_too_long_for_an_event_is_fetched_in_pieces() {
    const MIB: usize = 1 << 20;
    let world = World::new(Script::new());
    let (mut chat, other) = (world.session("default"), world.session("default"));
    let long = "x".repeat(2 * MIB + 300);
    chat.prompt(&long);
    assert_eq!(chat.outcome(), "finished");
    let accepted = chat.events("promptAccepted")[0].clone();
    let stands_for = accepted["content"][0]["text"].clone();
    assert_eq!(stands_for["size"], long.len(), "{accepted}");
    assert!(accepted.to_string().len() < 16 << 10, "its place is short");
    let get = |session: &str, more: Value| {
        let mut params = json!({"sessionId": session, "sha256": stands_for["blob"]});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        world.daemon.connect().try_call("blob/get", params)
    };
    for (offset, length) in [(0, MIB), (MIB, MIB), (2 * MIB, 300), (long.len(), 0), (10 * MIB, 0)] {
        let part = get(&chat.id, json!({"offset": offset})).unwrap();
        assert_eq!(part["size"], long.len());
        // Three of these letters are four of Base64.
        let data = part["data"].as_str().unwrap();
        assert_eq!(data.len(), length.div_ceil(3) * 4, "from {offset}");
        assert!(data.len() < 4 || data.starts_with("eHh4"), "from {offset}");
    }
    assert_eq!(get(&chat.id, json!({"length": MIB + 1})).unwrap_err().code, -32059);
    let nobodys = format!("sha256:{}", "0".repeat(64));
    assert_eq!(get(&chat.id, json!({"sha256": nobodys})).unwrap_err().code, -32050);
    assert_eq!(get(&other.id, json!({})).unwrap_err().code, -32050, "it is another session's");
}
