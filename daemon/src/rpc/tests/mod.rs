//! The whole socket with toy methods: real Unix sockets, no daemon behind.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use agentd_protocol::ErrorCode;
use jsonrpsee::core::RpcResult;
use jsonrpsee::core::server::{RpcModule, SubscriptionMessage};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;

mod calls;
mod ends;
mod framings;
mod sessions;
mod trees;

/// What the toy methods share with a test.
#[derive(Default)]
struct Toys {
    /// `slow` answers once there is a permit.
    gate: Gate,
    /// `slow` calls that have begun.
    begun: AtomicU32,
    /// Names in the order in which `note` and `session/interrupt` began.
    order: std::sync::Mutex<Vec<String>>,
    changed: Notify,
    /// `slow` calls that came to their end.
    finished: AtomicU32,
    /// Subscriptions that are alive.
    subscriptions: AtomicU32,
}

struct Gate(Semaphore);
impl Default for Gate {
    fn default() -> Self {
        Self(Semaphore::new(0))
    }
}

impl Toys {
    /// Waits until `true_now` holds; woken by the methods, never by time.
    async fn until(&self, mut true_now: impl FnMut(&Self) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if true_now(self) {
                return;
            }
            changed.await;
        }
    }

    fn note(&self, what: String) {
        self.order.lock().unwrap().push(what);
        self.changed.notify_waiters();
    }
}

fn methods(toys: Arc<Toys>) -> RpcModule<Toys> {
    let mut module = RpcModule::from_arc(toys);
    module.register_method("echo", |params, _, _| params.as_str().map(ToOwned::to_owned)).unwrap();
    module
        .register_method("pretty", |_, _, _| {
            RpcResult::Ok(serde_json::value::RawValue::from_string("{\n  \"a\": 1\r\n}".into()).unwrap())
        })
        .unwrap();
    module.register_method::<Value, _>("panic", |_, _, _| panic!("on purpose")).unwrap();
    module
        .register_async_method::<Value, _, _>("panicLater", |_, _, _| async {
            tokio::task::yield_now().await;
            panic!("on purpose")
        })
        .unwrap();
    module
        .register_method("who", |_, _, ext| {
            let info = ext.get::<Arc<ConnectionInfo>>().unwrap();
            json!({"id": info.id, "framing": info.framing.name(), "uid": info.peer.uid})
        })
        .unwrap();
    for name in ["slow", "turn/wait"] {
        module
            .register_async_method(name, |_, toys, _| async move {
                toys.begun.fetch_add(1, Ordering::SeqCst);
                toys.changed.notify_waiters();
                toys.gate.0.acquire().await.unwrap().forget();
                toys.finished.fetch_add(1, Ordering::SeqCst);
                toys.changed.notify_waiters();
                "done"
            })
            .unwrap();
    }
    for name in ["note", "session/interrupt"] {
        module
            .register_async_method(name, |params, toys, _| async move {
                let params: Value = params.parse().unwrap();
                // Like a session's inbox with room: ready at once, unless the runtime wants others to have a turn.
                drop(Semaphore::new(1).acquire().await.unwrap());
                toys.note(params["name"].as_str().unwrap().to_owned());
                // Whoever is polled later has begun later.
                tokio::task::yield_now().await;
                "noted"
            })
            .unwrap();
    }
    module
        .register_method("fail", |_, _, _| {
            Err::<(), _>(error_with(ErrorCode::NotFound, "no such toy", "toy", "x"))
        })
        .unwrap();
    // Sends numbers up to `count`, each with `size` bytes, then stays.
    module
        .register_subscription(
            "events/subscribe",
            "events/event",
            "events/unsubscribe",
            |params, pending, toys, _| async move {
                let params: Value = params.parse().unwrap_or_default();
                let Ok(sink) = pending.accept().await else { return };
                toys.subscriptions.fetch_add(1, Ordering::SeqCst);
                toys.changed.notify_waiters();
                let filler = "x".repeat(params["size"].as_u64().unwrap_or(0) as usize);
                for n in 0..params["count"].as_u64().unwrap_or(0) {
                    let message =
                        serde_json::value::to_raw_value(&json!({"n": n, "filler": filler})).unwrap();
                    if sink.send(SubscriptionMessage::from(message)).await.is_err() {
                        break;
                    }
                }
                sink.closed().await;
                toys.subscriptions.fetch_sub(1, Ordering::SeqCst);
                toys.changed.notify_waiters();
            },
        )
        .unwrap();
    module
}

/// A server in a folder of its own.
struct Scene {
    toys: Arc<Toys>,
    path: PathBuf,
    server: Server,
    serving: tokio::task::JoinHandle<()>,
    _folder: tempfile::TempDir,
}

fn limits() -> Limits {
    Limits { message_bytes: 1024 * 1024, ..Limits::default() }
}

fn scene(limits: Limits) -> Scene {
    let toys = Arc::new(Toys::default());
    scene_with(limits, methods(toys.clone()), toys)
}

fn scene_with(limits: Limits, module: RpcModule<Toys>, toys: Arc<Toys>) -> Scene {
    let folder = tempfile::Builder::new().prefix("a").tempdir_in("/tmp").unwrap();
    let path = folder.path().join("run/s");
    let server = Server {
        methods: module.into(),
        limits,
        peers: PeerPolicy::SameUser,
        stop: CancellationToken::new(),
        leave: CancellationToken::new(),
        tracker: TaskTracker::new(),
        gauges: Arc::default(),
    };
    let serving = tokio::spawn(serve(bind(&path).unwrap(), server.clone()));
    Scene { toys, path, server, serving, _folder: folder }
}

/// A client that speaks lines.
struct Lines {
    read: BufReader<tokio::net::unix::OwnedReadHalf>,
    write: tokio::net::unix::OwnedWriteHalf,
}

impl Scene {
    async fn lines(&self) -> Lines {
        let (read, write) = UnixStream::connect(&self.path).await.unwrap().into_split();
        Lines { read: BufReader::new(read), write }
    }
}

impl Lines {
    async fn send(&mut self, text: &str) {
        self.write.write_all(text.as_bytes()).await.unwrap();
    }

    async fn call(&mut self, id: impl Into<Value>, method: &str, params: Value) {
        let call = json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params});
        self.send(&format!("{call}\n")).await;
    }

    async fn text(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.read.read_line(&mut line).await.unwrap();
        (read > 0).then_some(line)
    }

    async fn next(&mut self) -> Value {
        serde_json::from_str(&self.text().await.expect("the connection ended")).unwrap()
    }

    /// The code of the next answer, which must be an error.
    async fn code(&mut self) -> i64 {
        let answer = self.next().await;
        answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {answer}"))
    }

    /// Calls and gives the result. No other message may be under way.
    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.call("ask", method, params).await;
        let answer = self.next().await;
        assert_eq!(answer["id"], "ask", "{answer}");
        answer["result"].clone()
    }
}
