//! Subscriptions to real sessions, read by a client that takes its time.

use std::collections::BTreeMap;
use std::time::Duration;

use agentd_protocol::approval::By;
use agentd_protocol::initialize::Actor;
use agentd_protocol::session::NewParams;
use jsonrpsee::core::server::Methods;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::clock::Clock;
use crate::ids::DaemonId;
use crate::journal::JournalService;
use crate::paths::{Env, Paths};
use crate::permission::{PlanShell, Rules, Sandbox};
use crate::process::Spawner;
use crate::registry::Registry;
use crate::rpc::connection::ConnectionInfo;
use crate::rpc::detect::Framing;
use crate::rpc::peer::Peer;
use crate::secret::KeyStore;
use crate::session::command::{Caller, Command};
use crate::session::deps::{Deps, Policy, Toolbox};
use crate::session::models::Models;

struct Scene {
    root: tempfile::TempDir,
    registry: Arc<Registry>,
}

impl Scene {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let env = Env::from_vars([("HOME", root.path())]);
        let paths = Paths::resolve(&env, None).unwrap();
        paths.prepare().unwrap();
        let paths = Arc::new(paths.canonical().unwrap());
        let keys = Arc::new(KeyStore::new(&paths, &env));
        let models = Models::new(None, BTreeMap::new(), keys, Arc::new(Spawner::default()), Vec::new());
        let deps = Deps {
            clock: Clock::system(),
            own: Vec::new(),
            paths,
            journals: JournalService::start().unwrap(),
            models: Arc::new(models),
            tools: Toolbox::new(Vec::new()),
            policy: Policy {
                rules: Rules::parse(&[], &[], &[]).0,
                plan_shell: PlanShell::Deny,
                sandbox: Sandbox::None,
                bypass_enabled: false,
                mode: agentd_protocol::Mode::Default,
            },
            home: root.path().to_owned(),
            shell_env: Vec::new(),
            user: "test".into(),
            daemon_id: DaemonId::generate(),
            principal: "user:1".into(),
            leave: CancellationToken::new(),
        };
        Self { root, registry: Registry::new(Arc::new(deps)) }
    }

    async fn session(&self) -> SessionId {
        let cwd = self.root.path().join("project");
        std::fs::create_dir(&cwd).unwrap();
        let params = json!({"cwd": cwd, "model": "demo/tour"});
        let params: NewParams = serde_json::from_value(params).unwrap();
        let by = By { principal: "user:1".into(), client: "test".into(), pid: None };
        let caller = Caller { by, actor: Actor::Person };
        self.registry.create(params, &caller).await.unwrap().session_id
    }

    async fn title(&self, session: SessionId, title: String) {
        self.registry.ask(session, |reply| Command::SetTitle { title, reply }).await.unwrap();
    }

    /// The methods of a connection, as a client's calls reach them.
    fn methods(&self) -> Methods {
        let daemon = Daemon {
            registry: Arc::clone(&self.registry),
            gauges: Arc::default(),
            info: agentd_protocol::initialize::ServerInfo {
                name: "agentd".into(),
                version: "0".into(),
                build: "0".into(),
                daemon_id: DaemonId::generate(),
            },
            socket: String::new(),
            started: std::time::Instant::now(),
            shutdown: CancellationToken::new(),
            notices: Vec::new(),
            doctor: Box::new(|_| Vec::new()),
        };
        let mut module = RpcModule::new(daemon);
        register(&mut module).unwrap();
        let info = ConnectionInfo::new(1, Peer { uid: 1, pid: 1 }, Framing::Lines);
        module.extensions_mut().insert(Arc::new(info));
        module.into()
    }
}

// Time is paused: it passes when nothing else can go on, so the session unloads as soon as it is left alone.
#[tokio::test(start_paused = true)]
async fn who_falls_behind_after_the_session_was_loaded_anew_misses_nothing() {
    const TITLES: usize = 2_000;
    let scene = Scene::new();
    let session = scene.session().await;
    let call =
        json!({"jsonrpc": "2.0", "id": 1, "method": "events/subscribe", "params": {"sessionId": session}});
    let (_, mut events) = scene.methods().raw_json_request(&call.to_string(), 1).await.unwrap();
    let next = async |events: &mut tokio::sync::mpsc::Receiver<Box<RawValue>>| -> Value {
        // An event that never comes is a failure at once, since time is paused.
        let event =
            tokio::time::timeout(Duration::from_secs(3600), events.recv()).await.expect("no event comes");
        let notification: Value = serde_json::from_str(event.unwrap().get()).unwrap();
        notification["params"]["result"].clone()
    };
    assert_eq!(next(&mut events).await["type"], "synced");
    while scene.registry.gauges().live > 0 {
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    // More than the ring holds, while the client reads nothing.
    for number in 0..TITLES {
        scene.title(session, format!("{number} {}", "🦦".repeat(190))).await;
    }
    let mut seen = 0;
    while seen < TITLES {
        let event = next(&mut events).await;
        if event["type"] == "titleChanged" {
            let title = event["title"].as_str().unwrap();
            assert!(title.starts_with(&format!("{seen} ")), "after {seen} titles came {title:.20}");
            seen += 1;
        }
    }
}
