//! The client against a daemon made of a script: every answer is written by the test.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use agentd_protocol::event::SubscribeParams;
use agentd_protocol::initialize::{Actor, ClientInfo};
use agentd_protocol::session::{ListParams, SessionParams};
use agentd_protocol::{ErrorCode, Seq, SessionId, method};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixListener;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::*;

/// A place for sockets and programs.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let closed = fs::Permissions::from_mode(0o700);
        Self(tempfile::Builder::new().prefix("a").permissions(closed).tempdir_in("/tmp").unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn listen(&self, name: &str) -> UnixListener {
        UnixListener::bind(self.path(name)).unwrap()
    }

    fn options(&self, name: &str) -> ConnectOptions {
        let who = ClientInfo { name: "test".into(), version: "1".into(), actor: Actor::Program };
        ConnectOptions { socket: Some(self.path(name)), ..ConnectOptions::new(who) }
    }

    fn program(&self, script: &str) -> StartOptions {
        let path = self.path("agentd");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        StartOptions { program: Some(path), ..StartOptions::default() }
    }
}

/// One connection, seen from the daemon.
struct Side {
    read: BufReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
}

impl Side {
    /// The next connection, introduced.
    async fn accept(listener: &UnixListener) -> Self {
        let (read, write) = listener.accept().await.unwrap().0.into_split();
        let mut side = Self { read: BufReader::new(read), write };
        let hello = side.expect("initialize").await;
        assert_eq!(hello["params"]["clientInfo"]["name"], "test");
        let server = json!({
            "name": "agentd", "version": "1", "build": "b", "daemonId": "01980000-0000-7000-8000-000000000000"
        });
        let result = json!({"protocolVersion": 1, "serverInfo": server, "capabilities": {}, "methods": [], "events": []});
        side.answer(&hello, result).await;
        side
    }

    async fn expect(&mut self, method: &str) -> Value {
        let mut line = String::new();
        self.read.read_line(&mut line).await.unwrap();
        let call: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(call["method"], method, "{call}");
        call
    }

    async fn send(&mut self, message: Value) {
        assert!(self.try_send(message).await, "the client is gone");
    }

    /// Whether the client was still there.
    async fn try_send(&mut self, message: Value) -> bool {
        self.write.write_all(format!("{message}\n").as_bytes()).await.is_ok()
    }

    async fn answer(&mut self, call: &Value, result: Value) {
        self.send(json!({"jsonrpc": "2.0", "id": call["id"], "result": result})).await;
    }

    async fn refuse(&mut self, call: &Value, code: i32, data: Value) {
        let error = json!({"code": code, "message": "no", "data": data});
        self.send(json!({"jsonrpc": "2.0", "id": call["id"], "error": error})).await;
    }

    async fn event(&mut self, result: Value) {
        let params = json!({"subscription": "s", "result": result});
        self.send(json!({"jsonrpc": "2.0", "method": "events/event", "params": params})).await;
    }

    async fn title(&mut self, seq: u64) {
        self.event(json!({"type": "titleChanged", "title": "t", "seq": seq})).await;
    }
}

fn follow(session: SessionId) -> SubscribeParams {
    SubscribeParams { session_id: Some(session), after_seq: Some(Seq(0)), ..SubscribeParams::default() }
}

/// The next item in short: a number, or a word.
async fn next(stream: &mut EventStream) -> String {
    match stream.next().await.unwrap() {
        Some(StreamItem::Event(received)) => {
            let event = received.event;
            event.seq.map_or_else(|| event.body.type_name().to_owned(), |seq| seq.to_string())
        }
        Some(StreamItem::Reconnecting) => "reconnecting".into(),
        Some(StreamItem::Reconnected) => "reconnected".into(),
        None => "end".into(),
    }
}

#[tokio::test]
async fn answers_and_errors_come_back_typed() {
    let place = Place::new();
    let listener = place.listen("s");
    let daemon = async {
        let mut side = Side::accept(&listener).await;
        let list = side.expect("session/list").await;
        side.answer(&list, json!({"sessions": [], "next": null})).await;
        let get = side.expect("session/get").await;
        side.refuse(&get, -32050, json!({"kind": "notFound", "session": "x"})).await;
        let get = side.expect("session/get").await;
        side.refuse(&get, -32601, Value::Null).await;
        let get = side.expect("session/get").await;
        side.answer(&get, json!({"state": 5})).await;
        let _ = side.expect("session/get").await;
        // Gone without an answer.
    };
    let client = async {
        let client = connect(place.options("s")).await.unwrap();
        assert_eq!(client.server().server_info.name, "agentd");
        assert!(client.call::<method::SessionList>(ListParams::default()).await.unwrap().sessions.is_empty());
        let get = || client.call::<method::SessionGet>(SessionParams { session_id: SessionId::generate() });
        let missing = get().await.unwrap_err();
        assert_eq!(missing.code(), Some(ErrorCode::NotFound));
        assert_eq!(missing.data("session"), Some(&json!("x")));
        assert!(matches!(get().await, Err(CallError::Rpc { code: -32601, .. })));
        assert!(matches!(get().await, Err(CallError::Malformed { .. })));
        assert!(matches!(get().await, Err(CallError::Lost)));
    };
    tokio::join!(daemon, client);
}

#[tokio::test]
async fn rp_10_a_stream_goes_on_after_a_lost_connection_without_gap_or_double() {
    let place = Place::new();
    let listener = place.listen("s");
    let session = SessionId::generate();
    let daemon = async {
        let mut side = Side::accept(&listener).await;
        let call = side.expect("events/subscribe").await;
        assert_eq!(call["params"]["afterSeq"], 0);
        side.answer(&call, json!("s")).await;
        side.title(1).await;
        side.title(3).await;
        drop(side);
        let mut side = Side::accept(&listener).await;
        let call = side.expect("events/subscribe").await;
        assert_eq!(call["params"]["afterSeq"], 3);
        side.answer(&call, json!("s")).await;
        side.title(3).await;
        side.title(4).await;
        side.event(json!({"type": "sessionDeleted"})).await;
        side
    };
    let client = async {
        let client = connect(place.options("s")).await.unwrap();
        let mut stream = client.subscribe(follow(session)).await.unwrap();
        let mut seen = Vec::new();
        while seen.last().is_none_or(|last| last != "end") {
            seen.push(next(&mut stream).await);
        }
        assert_eq!(seen, ["1", "3", "reconnecting", "reconnected", "4", "sessionDeleted", "end"]);
    };
    tokio::join!(daemon, client);
}

#[tokio::test]
async fn a_stream_survives_a_restart_that_lost_the_last_events() {
    let place = Place::new();
    let session = SessionId::generate();
    let first = place.listen("s");
    let (restart, restarted) = tokio::sync::oneshot::channel();
    let daemon = async {
        let mut side = Side::accept(&first).await;
        let call = side.expect("events/subscribe").await;
        side.answer(&call, json!("s")).await;
        side.title(9).await;
        fs::remove_file(place.path("s")).unwrap();
        drop((side, first));
        restarted.await.unwrap();
        let second = place.listen("s");
        let mut side = Side::accept(&second).await;
        let call = side.expect("events/subscribe").await;
        side.refuse(&call, -32053, json!({"kind": "conflict", "head": 5})).await;
        let call = side.expect("events/subscribe").await;
        assert_eq!(call["params"].get("afterSeq"), None);
        side.answer(&call, json!("s")).await;
        side.title(6).await;
        side
    };
    let client = async {
        let client = connect(place.options("s")).await.unwrap();
        let mut stream = client.subscribe(follow(session)).await.unwrap();
        assert_eq!([next(&mut stream).await, next(&mut stream).await], ["9", "reconnecting"]);
        restart.send(()).unwrap();
        assert_eq!([next(&mut stream).await, next(&mut stream).await], ["reconnected", "6"]);
        client
    };
    tokio::join!(daemon, client);
}

#[tokio::test]
async fn a_stream_whose_daemon_stays_away_ends_with_an_error() {
    let place = Place::new();
    let listener = place.listen("s");
    let daemon = async {
        let mut side = Side::accept(&listener).await;
        let call = side.expect("events/subscribe").await;
        side.answer(&call, json!("s")).await;
        drop((side, listener));
    };
    let options = ConnectOptions { reconnect_for: Duration::ZERO, ..place.options("s") };
    let client = async {
        let client = connect(options).await.unwrap();
        client.subscribe(follow(SessionId::generate())).await.unwrap()
    };
    let ((), mut stream) = tokio::join!(daemon, client);
    assert_eq!(next(&mut stream).await, "reconnecting");
    let error = stream.next().await.unwrap_err();
    assert!(matches!(error, CallError::Connect(ConnectError::NotRunning { .. })), "{error:?}");
    assert_eq!(next(&mut stream).await, "end");
}

#[tokio::test]
async fn a_reader_that_is_too_slow_still_sees_everything() {
    const EVENTS: u64 = 6_000;
    let place = Place::new();
    let listener = place.listen("s");
    let (written, all_written) = tokio::sync::oneshot::channel();
    let daemon = tokio::spawn(async move {
        let mut side = Side::accept(&listener).await;
        let call = side.expect("events/subscribe").await;
        side.answer(&call, json!("s")).await;
        for seq in 1..=EVENTS {
            side.title(seq).await;
        }
        written.send(()).unwrap();
        let mut subscriptions = 1;
        loop {
            let mut line = String::new();
            if side.read.read_line(&mut line).await.unwrap_or(0) == 0 {
                return subscriptions;
            }
            let call: Value = serde_json::from_str(&line).unwrap();
            // The reader leaves once it has seen all there is, in the middle of whatever is being sent then.
            let answer = |result: Value| json!({"jsonrpc": "2.0", "id": call["id"], "result": result});
            if call["method"] == "events/unsubscribe" {
                side.try_send(answer(json!(true))).await;
                continue;
            }
            subscriptions += 1;
            let id = format!("s{subscriptions}");
            side.try_send(answer(json!(id))).await;
            for seq in call["params"]["afterSeq"].as_u64().unwrap() + 1..=EVENTS {
                let result = json!({"type": "titleChanged", "title": "t", "seq": seq});
                let params = json!({"subscription": id, "result": result});
                let event = json!({"jsonrpc": "2.0", "method": "events/event", "params": params});
                if !side.try_send(event).await {
                    return subscriptions;
                }
            }
        }
    });
    let client = connect(place.options("s")).await.unwrap();
    let mut stream = client.subscribe(follow(SessionId::generate())).await.unwrap();
    all_written.await.unwrap();
    for seq in 1..=EVENTS {
        assert_eq!(next(&mut stream).await, seq.to_string());
    }
    drop((stream, client));
    assert!(daemon.await.unwrap() > 1, "the buffer was never full, so this proves nothing");
}

#[tokio::test]
async fn a_daemon_is_started_only_where_none_runs() {
    let place = Place::new();
    let listener = place.listen("running");
    let daemon = async { Side::accept(&listener).await };
    let never = place.program("echo started by mistake >&2; exit 1");
    let (_side, started) = tokio::join!(daemon, connect_or_start(place.options("running"), never));
    assert_eq!(started.unwrap().1, Startup::Running);
}

#[tokio::test]
async fn a_started_daemon_is_spoken_to_once_it_says_it_is_ready() {
    let place = Place::new();
    let listener = place.listen("other");
    let ready = json!({"ready": true, "socket": place.path("other")});
    let program =
        place.program(&format!("echo noise; echo \"$*\" > {}; echo '{ready}'", place.path("args").display()));
    let daemon = async { Side::accept(&listener).await };
    let (_side, started) = tokio::join!(daemon, connect_or_start(place.options("s"), program));
    let (client, startup) = started.unwrap();
    assert!(matches!(startup, Startup::Started { .. }));
    assert_eq!(client.socket(), place.path("other"));
    let args = fs::read_to_string(place.path("args")).unwrap();
    assert_eq!(args.trim(), format!("--socket {}", place.path("s").display()));
}

#[tokio::test]
async fn a_daemon_that_holds_the_folder_already_is_spoken_to() {
    let place = Place::new();
    let listener = place.listen("holder");
    let held = json!({"kind": "heldElsewhere", "socket": place.path("holder"), "pid": 7});
    let program = place.program(&format!("echo '{held}' >&2; exit 75"));
    let daemon = async { Side::accept(&listener).await };
    let (_side, started) = tokio::join!(daemon, connect_or_start(place.options("s"), program));
    let (client, startup) = started.unwrap();
    assert_eq!((client.socket().to_owned(), startup), (place.path("holder"), Startup::Running));
}

#[tokio::test]
async fn a_daemon_that_does_not_start_says_why() {
    let place = Place::new();
    let program = place.program("echo 'config.toml, line 3: no such mode' >&2; exit 1");
    let error = connect_or_start(place.options("s"), program).await.unwrap_err().to_string();
    assert!(error.contains("line 3: no such mode"), "{error}");
    let missing = StartOptions { program: Some(place.path("nothing")), ..StartOptions::default() };
    let error = connect_or_start(place.options("s"), missing).await.unwrap_err();
    assert!(matches!(error, StartError::NoProgram), "{error}");
}
