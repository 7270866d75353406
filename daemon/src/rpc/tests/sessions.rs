//! The daemon's own methods over a real socket: subscriptions to sessions that run.

use std::time::{Duration, Instant};

use agentd_protocol::Mode;
use agentd_protocol::initialize::ServerInfo;

use super::*;
use crate::registry::tests::{Home, calls, says};
use crate::rpc::handlers::{self, Daemon};

pub(super) struct Socket {
    pub(super) home: Home,
    path: PathBuf,
    stop: CancellationToken,
    _folder: tempfile::TempDir,
}

pub(super) async fn socket(script: Value) -> Socket {
    socket_with(script, Limits::default()).await
}

async fn socket_with(script: Value, limits: Limits) -> Socket {
    let home = Home::start(script).await;
    let folder = tempfile::Builder::new().prefix("a").tempdir_in("/tmp").unwrap();
    let path = folder.path().join("run/s");
    let daemon = Arc::new(Daemon {
        registry: Arc::clone(&home.registry),
        gauges: Arc::default(),
        info: ServerInfo {
            name: "agentd".into(),
            version: "1".into(),
            build: "test".into(),
            daemon_id: home.registry.deps().daemon_id,
        },
        socket: path.display().to_string(),
        started: Instant::now(),
        shutdown: CancellationToken::new(),
        doctor: Box::new(|_| Vec::new()),
    });
    let stop = CancellationToken::new();
    let server = Server {
        methods: handlers::methods(daemon).unwrap().into(),
        limits,
        peers: PeerPolicy::SameUser,
        stop: stop.clone(),
        leave: CancellationToken::new(),
        tracker: TaskTracker::new(),
        gauges: Arc::default(),
    };
    tokio::spawn(serve(bind(&path).unwrap(), server));
    Socket { home, path, stop, _folder: folder }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Socket {
    pub(super) async fn subscribe(&self, params: Value) -> Lines {
        let mut lines = self.lines().await;
        let id = lines.ask("events/subscribe", params).await;
        assert!(id.is_string(), "{id}");
        lines
    }

    pub(super) async fn lines(&self) -> Lines {
        let (read, write) = UnixStream::connect(&self.path).await.unwrap().into_split();
        Lines { read: BufReader::new(read), write }
    }
}

impl Lines {
    pub(super) async fn event(&mut self) -> Value {
        self.next().await["params"]["result"].clone()
    }

    /// All events up to and with the first of this type.
    pub(super) async fn events_to(&mut self, kind: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = self.event().await;
            let last = event["type"] == kind;
            events.push(event);
            if last {
                return events;
            }
        }
    }
}

/// The numbers of journaled events.
fn numbers(events: &[Value]) -> Vec<u64> {
    let journaled = events.iter().filter(|event| event["type"] != "synced");
    journaled.filter_map(|event| event["seq"].as_u64()).collect()
}

pub(super) fn rise(numbers: &[u64]) -> bool {
    numbers.windows(2).all(|pair| pair[0] < pair[1])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_then_synced_then_live_without_gap_or_repetition() {
    let socket = socket(calls(json!([{ "name": "probe", "arguments": {} }]))).await;
    let id = socket.home.session(Mode::Default).await;
    let mut first = socket.subscribe(json!({ "sessionId": id, "afterSeq": 0 })).await;
    let mut events = first.events_to("synced").await;
    assert_eq!(events[0]["type"], "sessionCreated");
    // Others come while the turn runs, each at another moment.
    socket.home.prompt(id, "go").await;
    let mut late = Vec::new();
    for _ in 0..10 {
        late.push(socket.subscribe(json!({ "sessionId": id, "afterSeq": 0 })).await);
    }
    events.extend(first.events_to("turnFinished").await);
    let expected = numbers(&events);
    assert!(rise(&expected), "{expected:?}");
    for mut lines in late {
        let mut events = lines.events_to("synced").await;
        let synced = events.last().unwrap();
        assert_eq!(synced["seq"], synced["state"]["seq"]);
        if !events.iter().any(|event| event["type"] == "turnFinished") {
            events.extend(lines.events_to("turnFinished").await);
        }
        assert_eq!(numbers(&events), expected);
    }
}

#[tokio::test]
async fn a_position_beyond_the_head_is_a_conflict_that_names_the_head() {
    let socket = socket(says("Hello.")).await;
    let id = socket.home.session(Mode::Default).await;
    let head = socket.home.state(id).await.seq;
    let mut lines = socket.lines().await;
    lines.call(1, "events/subscribe", json!({ "sessionId": id, "afterSeq": head.0 + 1 })).await;
    let answer = lines.next().await;
    assert_eq!(answer["error"]["code"], ErrorCode::Conflict.code());
    assert_eq!(answer["error"]["data"]["head"], head.0);
    // The head itself is fine: nothing is missing.
    let mut lines = socket.subscribe(json!({ "sessionId": id, "afterSeq": head.0 })).await;
    assert_eq!(lines.event().await["type"], "synced");
}

#[tokio::test]
async fn who_falls_behind_the_ring_reads_the_journal_even_after_the_session_was_loaded_anew() {
    // A connection that holds little, and whose client may take its time.
    let limits = Limits { events: 1, write_stall: Duration::from_secs(3600), ..Limits::default() };
    let socket = socket_with(says("Hello."), limits).await;
    let id = socket.home.session(Mode::Default).await;
    let mut slow =
        socket.subscribe(json!({ "sessionId": id, "types": ["promptAccepted", "titleChanged"] })).await;
    assert_eq!(slow.event().await["type"], "synced");
    tokio::time::pause();
    while socket.home.registry.gauges().live > 0 {
        tokio::time::advance(Duration::from_secs(61)).await;
        tokio::task::yield_now().await;
    }
    tokio::time::resume();
    // More than the ring and the connection hold together, and nobody reads.
    let big = "x".repeat(200 * 1024);
    for _ in 0..12 {
        let turn = socket.home.prompt(id, &big).await.turn_id;
        socket.home.wait(id, turn).await;
    }
    socket
        .home
        .registry
        .ask(id, |reply| crate::session::command::Command::SetTitle { title: "last".into(), reply })
        .await
        .unwrap();
    let events = slow.events_to("titleChanged").await;
    assert_eq!(events.len(), 13);
    assert!(rise(&numbers(&events)));
    assert!(events[..12].iter().all(|event| event["content"][0]["text"] == big.as_str()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_joins_in_mid_sentence_gets_the_text_so_far_and_the_rest_of_it() {
    let text: String = (0..400).map(|n| format!("word{n} ")).collect();
    let script = json!({ "rules": [{ "name": "say", "reply": { "text": text },
        "fault": { "times": 1, "do": { "hang": { "after": 9000 } } } }] });
    let socket = socket(script).await;
    let id = socket.home.session(Mode::Default).await;
    let mut first = socket.subscribe(json!({ "sessionId": id, "deltas": true })).await;
    socket.home.prompt(id, "tell").await;
    let mut heard = String::new();
    take_deltas(first.events_to("messageDelta").await, &mut heard);
    let mut second = socket.subscribe(json!({ "sessionId": id, "deltas": true })).await;
    let synced = second.event().await;
    let mut joined = synced["state"]["text"][0]["text"].as_str().unwrap().to_owned();
    assert!(!joined.is_empty() && text.starts_with(&joined));
    socket.home.release().await;
    let events = first.events_to("turnFinished").await;
    let message = events.iter().find(|event| event["role"] == "assistant").unwrap().clone();
    take_deltas(events, &mut heard);
    take_deltas(second.events_to("turnFinished").await, &mut joined);
    // What was streamed is a beginning of the message that replaces it.
    for streamed in [heard, joined] {
        assert!(message["text"].as_str().unwrap().starts_with(&streamed));
    }
    assert_eq!(message["text"], text.as_str());
}

/// Every piece begins where the text so far ends.
fn take_deltas(events: Vec<Value>, text: &mut String) {
    for event in events.iter().filter(|event| event["type"] == "messageDelta") {
        assert_eq!(event["offset"], text.len(), "{event}");
        text.push_str(event["text"].as_str().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_hears_that_the_turn_is_over_also_when_it_subscribed_in_its_middle() {
    for _ in 0..20 {
        let socket = socket(says("Hello.")).await;
        let id = socket.home.session(Mode::Default).await;
        socket.home.prompt(id, "go").await;
        let mut lines = socket.subscribe(json!({ "sessionId": id, "afterSeq": 0 })).await;
        let mut last = lines.events_to("synced").await.pop().unwrap()["state"]["activity"].clone();
        while last != "idle" {
            let event = lines.event().await;
            if event["type"] == "stateChanged" {
                last = event["activity"].clone();
            }
        }
    }
}

#[tokio::test]
async fn a_subscription_says_that_the_session_was_deleted_and_ends() {
    let socket = socket(says("Hello.")).await;
    let id = socket.home.session(Mode::Default).await;
    let mut lines = socket.subscribe(json!({ "sessionId": id })).await;
    assert_eq!(lines.event().await["type"], "synced");
    let mut other = socket.lines().await;
    assert!(other.ask("session/delete", json!({ "sessionId": id })).await.is_object());
    assert_eq!(lines.events_to("sessionDeleted").await.last().unwrap()["sessionId"], json!(id));
    other.call(2, "session/get", json!({ "sessionId": id })).await;
    assert_eq!(other.code().await, i64::from(ErrorCode::NotFound.code()));
}

#[tokio::test]
async fn unknown_types_and_numbers_of_the_wrong_kind_are_refused_by_name() {
    let socket = socket(says("Hello.")).await;
    let id = socket.home.session(Mode::Default).await;
    for (params, code, field) in [
        (json!({ "sessionId": id, "types": ["tokens"] }), ErrorCode::InvalidInput, "types"),
        (json!({ "tree": true }), ErrorCode::InvalidInput, "tree"),
        (json!({ "sessionId": id, "after": { (id.to_string()): 1 } }), ErrorCode::InvalidInput, "after"),
        (json!({ "sessionId": id, "afterFeedSeq": 1 }), ErrorCode::InvalidInput, "afterFeedSeq"),
        (json!({ "afterSeq": 1 }), ErrorCode::InvalidInput, "afterSeq"),
    ] {
        let mut lines = socket.lines().await;
        lines.call(1, "events/subscribe", params).await;
        let answer = lines.next().await;
        assert_eq!(
            (&answer["error"]["code"], &answer["error"]["data"]["field"]),
            (&json!(code.code()), &json!(field))
        );
    }
}

#[tokio::test]
async fn the_daemons_feed_begins_with_the_whole_and_then_tells_every_session() {
    let socket = socket(says("Hello.")).await;
    let mut lines = socket.subscribe(json!({ "types": ["sessionDeleted"] })).await;
    assert_eq!(lines.event().await["type"], "synced");
    let id = socket.home.session(Mode::Default).await;
    let mut other = socket.lines().await;
    other.ask("session/delete", json!({ "sessionId": id })).await;
    let event = lines.event().await;
    assert_eq!((&event["type"], &event["sessionId"]), (&json!("sessionDeleted"), &json!(id)));
}

#[tokio::test]
async fn a_disk_that_fails_is_told_with_whether_anything_changed() {
    let socket = socket(says("Hello.")).await;
    let id = socket.home.session(Mode::Default).await;
    socket.home.faults.fail(crate::journal::faults::Op::Write, 1);
    let mut lines = socket.lines().await;
    let params = json!({ "sessionId": id, "content": [{ "type": "text", "text": "hello" }] });
    lines.call(1, "session/prompt", params.clone()).await;
    let answer = lines.next().await;
    assert_eq!(answer["error"]["code"], ErrorCode::Storage.code());
    assert_eq!(answer["error"]["data"]["changed"], false);
    assert!(lines.ask("session/prompt", params).await["turnId"].is_string());
}
