//! Whole sessions in one process: a real journal on a disk that can fail, a scripted model, no socket.

mod auto;
mod checkpoints;
mod clocks;
mod damage;
mod durability;
mod feed;
mod forged;
mod forks;
mod grants;
mod history;
mod index;
mod live;
mod moves;
mod plan_file;
mod plans;
mod retention;
mod rewinds;
mod trees;
mod trust;
mod turns;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agentd_protocol::approval::{By, ChoiceId, RespondParams, RespondResult};
use agentd_protocol::event::ToolKind;
use agentd_protocol::initialize::Actor;
use agentd_protocol::session::{At, Content, NewParams, PromptParams, PromptResult, State};
use agentd_protocol::turn::TurnWaitResult;
use agentd_protocol::{ApprovalId, Mode, SessionId, TurnId};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::Registry;
use crate::clock::Clock;
use crate::config::{Dialect, ProviderSettings};
use crate::journal::JournalService;
use crate::journal::faults::Faults;
use crate::model::message::ToolSpec;
use crate::model::playback::{self, Log, Running, Script};
use crate::paths::{self, Env, Paths};
use crate::permission::Sandbox;
use crate::process::Spawner;
use crate::secret::KeyStore;
use crate::session::SessionError;
use crate::session::command::{Caller, Command};
use crate::session::deps::{Deps, Toolbox};
use crate::session::feed::{Feed, Position};
use crate::session::models::Models;
use crate::session::policies::{Host, Policies};
use crate::session::record::Parent;
use crate::store::kept::KeptState;
use crate::tool::{self, Output, Prepared, Scene, Tool, ToolError, Work};
use crate::workspace::snapshot::Snapshots;

/// A daemon's insides over one state folder, which survive [`Home::restart`].
pub(crate) struct Home {
    pub(crate) registry: Arc<Registry>,
    pub(crate) journals: Arc<JournalService>,
    pub(crate) faults: Faults,
    pub(crate) clock: Clock,
    pub(crate) probe: Arc<Probe>,
    pub(crate) model: Running,
    pub(crate) paths: Arc<Paths>,
    pub(crate) project: PathBuf,
    _root: tempfile::TempDir,
}

/// A tool that does what a test tells it.
pub(crate) struct Probe {
    /// For the next start; an hour, so that a test says itself when something is tried again.
    pub(crate) storage_retry_ms: std::sync::atomic::AtomicU64,
    /// `act: wait` calls end when there is a permit.
    pub(crate) gate: Gate,
    /// The next look at the tool list panics, in the session's own task.
    pub(crate) list_panics: AtomicBool,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            storage_retry_ms: 3_600_000.into(),
            gate: Gate::default(),
            list_panics: AtomicBool::new(false),
        }
    }
}

pub(crate) struct Gate(pub(crate) Semaphore);

impl Default for Gate {
    fn default() -> Self {
        Self(Semaphore::new(0))
    }
}

/// The tool of a session's tests; `act` says what it does.
struct ProbeTool(Arc<Probe>);

impl Tool for ProbeTool {
    fn spec(&self) -> ToolSpec {
        assert!(!self.0.list_panics.swap(false, Ordering::SeqCst), "told to panic");
        ToolSpec {
            name: "probe".into(),
            description: "Does what a test tells it.".into(),
            input_schema: RawValue::from_string(r#"{"type":"object"}"#.into()).unwrap(),
        }
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Search
    }

    fn prepare(&self, arguments: &RawValue, _: &Scene) -> Result<Prepared, ToolError> {
        let arguments: Value = serde_json::from_str(arguments.get()).unwrap();
        let act = arguments["act"].as_str().unwrap_or_default().to_owned();
        assert_ne!(act, "panic early");
        let probe = Arc::clone(&self.0);
        Ok(Prepared {
            title: format!("probe {act}"),
            effects: Vec::new(),
            diff: None,
            work: Work::Run(Box::new(move |context| {
                Box::pin(async move {
                    match act.as_str() {
                        "panic" => panic!("told to panic"),
                        "wait" => tokio::select! {
                            () = context.cancel.cancelled() => Output::error("stopped"),
                            permit = probe.gate.0.acquire() => {
                                permit.unwrap().forget();
                                Output::ok("waited")
                            }
                        },
                        _ => Output::ok("probed"),
                    }
                })
            })),
        })
    }
}

impl Home {
    pub(crate) async fn start(script: Value) -> Self {
        let script = Script::parse(&script.to_string()).unwrap();
        let model = playback::start(script, Log::Keep).await.unwrap();
        let root = tempfile::Builder::new().prefix("h").tempdir_in("/tmp").unwrap();
        let project = root.path().canonicalize().unwrap().join("project");
        std::fs::create_dir(&project).unwrap();
        std::fs::write(project.join("a.txt"), "alpha\n").unwrap();
        let env = Env::from_vars([("HOME", root.path())]).with_run_user(root.path().join("none"));
        let paths = Paths::resolve(&env, None).unwrap();
        paths.prepare().unwrap();
        let paths = Arc::new(paths.canonical().unwrap());
        let faults = Faults::default();
        let journals = faults.service();
        let probe = Arc::new(Probe::default());
        let clock = Clock::fixed(1_700_000_000_000);
        let registry = registry(&paths, &journals, &clock, &probe, &model);
        registry.keep_feed();
        registry.resume_active().await;
        registry.sweep().await;
        registry.keep_index();
        registry.want_index();
        Self { registry, journals, faults, clock, probe, model, paths, project, _root: root }
    }

    /// The daemon dies and another one starts on what it left. Waits until the sessions that were not idle are loaded.
    pub(crate) async fn restart(self) -> Self {
        self.end_and(|_| {}).await
    }

    /// As [`Home::restart`], with something done to the files while no daemon runs.
    pub(crate) async fn restart_after(self, meanwhile: impl FnOnce(&Self)) -> Self {
        self.end_and(meanwhile).await
    }

    /// The machine loses its power: what was not synced is gone.
    pub(crate) async fn power_cut(self, id: SessionId) -> Self {
        self.end_and(|home| home.faults.power_cut(&home.paths.session_dir(id).join("journal.jsonl"))).await
    }

    async fn end_and(mut self, meanwhile: impl FnOnce(&Self)) -> Self {
        self.registry.leave().await;
        self.journals.stop().await;
        meanwhile(&self);
        self.journals = self.faults.service();
        self.registry = registry(&self.paths, &self.journals, &self.clock, &self.probe, &self.model);
        self.registry.keep_feed();
        self.registry.resume_active().await;
        self.registry.sweep().await;
        self.registry.keep_index();
        self.registry.want_index();
        self
    }

    pub(crate) fn params(&self, mode: Mode) -> NewParams {
        NewParams {
            cwd: self.project.display().to_string(),
            mode: Some(mode),
            model: Some("test/m".into()),
            ..NewParams::default()
        }
    }

    pub(crate) async fn session(&self, mode: Mode) -> SessionId {
        self.registry.create(self.params(mode), &person()).await.unwrap().session_id
    }

    /// A session that works for another one.
    pub(crate) async fn child(&self, parent: SessionId) -> SessionId {
        let call_id = agentd_protocol::CallId::new(parent, "00112233deadbeef".into());
        let parent = Some(Parent { session_id: parent, call_id });
        let params = self.params(Mode::Default);
        self.registry.create_once(&params, parent, &person()).await.unwrap().session_id
    }

    pub(crate) async fn prompt(&self, id: SessionId, text: &str) -> PromptResult {
        self.try_prompt(prompt(id, text)).await.unwrap()
    }

    pub(crate) async fn try_prompt(&self, params: PromptParams) -> Result<PromptResult, SessionError> {
        let (id, params) = (params.session_id, Box::new(params));
        self.registry.ask(id, |reply| Command::Prompt { params, caller: person(), reply }).await
    }

    pub(crate) async fn wait(&self, id: SessionId, turn: TurnId) -> TurnWaitResult {
        self.registry.ask(id, |reply| Command::WaitTurn { turn, reply }).await.unwrap()
    }

    pub(crate) async fn state(&self, id: SessionId) -> State {
        self.registry.snapshot(id).await.unwrap().state
    }

    pub(crate) async fn interrupt(&self, id: SessionId) {
        self.registry
            .ask(id, |reply| Command::Interrupt { turn: None, caller: person(), reply })
            .await
            .unwrap();
    }

    pub(crate) async fn set_mode(&self, id: SessionId, mode: Mode) -> Result<Mode, SessionError> {
        let answer = self.registry.ask(id, |reply| Command::SetMode { mode, caller: person(), reply }).await;
        answer.map(|result| result.mode)
    }

    pub(crate) async fn respond(&self, params: RespondParams) -> Result<RespondResult, SessionError> {
        self.respond_as(params, person()).await
    }

    pub(crate) async fn respond_as(
        &self,
        params: RespondParams,
        caller: Caller,
    ) -> Result<RespondResult, SessionError> {
        let id = params.approval_id.session();
        self.registry.ask(id, |reply| Command::Respond { params: Box::new(params), caller, reply }).await
    }

    /// Follows a session from here on.
    pub(crate) async fn listen(&self, id: SessionId) -> Listener {
        let snapshot = self.registry.snapshot(id).await.unwrap();
        Listener { feed: snapshot.feed, position: snapshot.here, heard: Vec::new().into() }
    }

    /// The first approval that waits in a session; it must be there.
    pub(crate) async fn answer(&self, id: SessionId, choice: ChoiceId) -> RespondParams {
        let approval = self.state(id).await.approvals.remove(0);
        RespondParams::to(&approval, choice)
    }

    /// Lets the model's first stream, which hangs, go on. A release that came before its request would be lost.
    pub(crate) async fn release(&self) {
        self.asked(1).await;
        self.ask_model("POST", "release").await;
    }

    /// Waits until the model was asked so many times in all.
    pub(crate) async fn asked(&self, times: usize) {
        while self.requests().await.len() < times {
            tokio::task::yield_now().await;
        }
    }

    /// The bodies of all requests to the model so far.
    pub(crate) async fn requests(&self) -> Vec<Value> {
        let log: Vec<Value> = serde_json::from_str(&self.ask_model("GET", "log").await).unwrap();
        log.into_iter().map(|entry| entry["body"].clone()).collect()
    }

    async fn ask_model(&self, method: &str, path: &str) -> String {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let (host, base) = self.model.base_url().strip_prefix("http://").unwrap().split_once('/').unwrap();
        let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
        let head = format!("{method} /{base}/{path} HTTP/1.0\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }
}

fn registry(
    paths: &Arc<Paths>,
    journals: &Arc<JournalService>,
    clock: &Clock,
    probe: &Arc<Probe>,
    model: &Running,
) -> Arc<Registry> {
    let env = Env::from_vars([("HOME", paths.state_dir())]);
    let spawner = Arc::new(Spawner::default());
    let base_url = Some(model.base_for(crate::model::message::Dialect::OpenaiChat));
    let test =
        ProviderSettings { dialect: Some(Dialect::OpenaiChat), base_url, ..ProviderSettings::default() };
    let providers = std::collections::BTreeMap::from([("test".to_owned(), test)]);
    let keys = Arc::new(KeyStore::new(paths, &env));
    let mut tools = tool::builtin(&spawner);
    tools.push(Arc::new(ProbeTool(Arc::clone(probe))));
    let kept = Arc::new(KeptState::new(paths.state_db()));
    Registry::new(Arc::new(Deps {
        kept: Arc::clone(&kept),
        clock: clock.clone(),
        own: paths.own_dirs().iter().map(|dir| paths::canonical(dir)).collect(),
        journals: Arc::clone(journals),
        models: Arc::new(Models::new(None, providers, keys, Arc::clone(&spawner), Vec::new())),
        tools: Toolbox::new(tools),
        snapshots: Snapshots::new(Arc::clone(&spawner), None, "/nonexistent".into(), Vec::new()),
        policies: Arc::new(Policies::open(
            paths.config_file(),
            "/nonexistent".into(),
            Host { sandbox: Sandbox::None, allow_bypass: true },
            kept,
        )),
        home: "/nonexistent".into(),
        shell_env: Vec::new(),
        user: "tester".into(),
        daemon_id: paths::daemon_id(paths).unwrap(),
        principal: "user:1".into(),
        storage_retry: std::time::Duration::from_millis(probe.storage_retry_ms.load(Ordering::SeqCst)),
        leave: tokio_util::sync::CancellationToken::new(),
        paths: Arc::clone(paths),
    }))
}

pub(crate) fn person() -> Caller {
    someone("one", Actor::Person)
}

pub(crate) fn someone(client: &str, actor: Actor) -> Caller {
    Caller { by: By { principal: "user:1".into(), client: client.into(), pid: Some(1) }, actor }
}

pub(crate) fn prompt(id: SessionId, text: &str) -> PromptParams {
    PromptParams {
        session_id: id,
        prompt_id: None,
        content: vec![Content::Text { text: text.into() }],
        at: At::Turn,
        mode: None,
        answers: None,
    }
}

/// Hears what a session publishes, in order.
pub(crate) struct Listener {
    feed: Arc<Feed>,
    position: Position,
    heard: std::collections::VecDeque<Value>,
}

impl Listener {
    /// The next event of this type; those before it are passed over.
    pub(crate) async fn next(&mut self, kind: &str) -> Value {
        self.until(|event| event["type"] == kind).await
    }

    pub(crate) async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut watch = self.feed.watch();
        loop {
            while let Some(event) = self.heard.pop_front() {
                if wanted(&event) {
                    return event;
                }
            }
            watch.borrow_and_update();
            let news = self.feed.news(&mut self.position);
            let events = news.events.expect("a test's events fit the ring");
            self.heard.extend(
                events
                    .iter()
                    .chain(&news.deltas)
                    .chain(&news.status)
                    .map(|event| serde_json::from_str::<Value>(&event.json).unwrap()),
            );
            if self.heard.is_empty() {
                watch.changed().await.unwrap();
            }
        }
    }

    /// What has been published already, without waiting.
    pub(crate) fn so_far(&mut self) -> Vec<Value> {
        let news = self.feed.news(&mut self.position);
        let mut all: Vec<Value> = self.heard.drain(..).collect();
        all.extend(
            news.events.unwrap().iter().map(|event| serde_json::from_str::<Value>(&event.json).unwrap()),
        );
        all
    }
}

/// A script whose model says one sentence to everything.
pub(crate) fn says(text: &str) -> Value {
    json!({ "rules": [{ "name": "say", "reply": { "text": text } }] })
}

/// A script whose model makes `calls` once a prompt, then says `Done.`.
pub(crate) fn calls(calls: Value) -> Value {
    json!({ "rules": [
        { "name": "work", "when": { "total_answers": 0 }, "reply": { "text": "Now.", "calls": calls } },
        { "name": "rest", "reply": { "text": "Done." } },
    ] })
}

pub(crate) fn approval_id(event: &Value) -> ApprovalId {
    serde_json::from_value(event["approvalId"].clone()).unwrap()
}
