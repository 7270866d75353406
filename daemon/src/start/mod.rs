//! Start and stop: arguments, the lock, the socket, "ready", signals, the phases of a shutdown.

mod arguments;
mod doctor;
mod shutdown;
mod systemd;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentd_protocol::initialize::ServerInfo;
use anyhow::Context as _;
use clap::Parser as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::config;
use crate::journal::JournalService;
use crate::model::playback;
use crate::paths::{self, Env, LockError, Paths, StateLock};
use crate::permission::Sandbox;
use crate::process::{self, Spawner};
use crate::registry::{self, Registry};
use crate::rpc::handlers::{self, Daemon};
use crate::rpc::{self, Gauges, Limits, ListenError, Listener, PeerPolicy, Server};
use crate::secret::KeyStore;
use crate::session::deps::{Deps, Toolbox};
use crate::session::models::Models;
use crate::session::policies::{Host, Policies, Trust};
use crate::store::kept::KeptState;
use crate::tool;
use crate::workspace::snapshot::Snapshots;

use arguments::{Arguments, Subcommand};
use systemd::EndSignals;

/// The lock or the listener is somebody else's.
const HELD: u8 = 75;
const USAGE: u8 = 2;

/// After which pause a session tries again what the disk did not take.
const STORAGE_RETRY: Duration = Duration::from_secs(5);

/// What this binary was built from, as far as the build knows.
const BUILD: &str = match option_env!("AGENTD_BUILD") {
    Some(build) => build,
    None => concat!(env!("CARGO_PKG_VERSION"), "-dev"),
};
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Closes the daemon's memory and environment to processes of the same user, and keeps its orphans.
pub fn harden() {
    use rustix::process::{
        DumpableBehavior, Resource, Rlimit, set_child_subreaper, set_dumpable_behavior, setrlimit,
    };
    // None of these can fail on a kernel that has openat2, and without them the daemon still works; `doctor` looks.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = set_child_subreaper(Some(rustix::process::getpid()));
    // No terminal of whoever started it; fails harmlessly where it leads a group already.
    let _ = rustix::process::setsid();
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// The program, from its arguments to its exit code.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    if let Some(Subcommand::Schema { settings }) = arguments.command {
        return print_schema(&if settings { config::schema() } else { agentd_protocol::schema::document() });
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8))
        .max_blocking_threads(64)
        .thread_name("agentd")
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(&anyhow::Error::new(error).context("cannot start agentd's threads")),
    };
    let code = runtime.block_on(async {
        match arguments.command {
            Some(Subcommand::Playback { file, again }) => play(&file, again.as_deref()).await,
            _ => daemon(arguments).await,
        }
    });
    // Blocking work that is stuck on a hung file system must not hold up the end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    match code {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

#[expect(clippy::print_stderr, reason = "nobody else hears of a start that failed")]
fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("agentd: {error:#}");
    ExitCode::FAILURE
}

fn print_schema(schema: &serde_json::Value) -> ExitCode {
    let mut text = serde_json::to_string_pretty(schema).unwrap_or_default();
    text.push('\n');
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// `agentd playback FILE`: a scripted model server, for tests.
async fn play(file: &std::path::Path, again: Option<&str>) -> anyhow::Result<ExitCode> {
    let mut end = EndSignals::listen()?;
    let text = config::read_text(file)?;
    let script = playback::Script::parse(&text)?;
    let running = match again {
        Some(base_url) => playback::start_again(script, base_url, playback::Log::Keep).await?,
        None => playback::start(script, playback::Log::Keep).await?,
    };
    say_line(&serde_json::json!({ "baseUrl": running.base_url() }));
    end.first().await;
    Ok(ExitCode::SUCCESS)
}

/// One line of JSON on standard output, for whoever started this program. That nobody reads it is no failure.
fn say_line(value: &serde_json::Value) {
    let _ = writeln!(std::io::stdout(), "{value}");
}

#[expect(clippy::print_stderr, reason = "the client that started this daemon reads it there")]
fn held_elsewhere(socket: Option<String>, pid: Option<u32>) -> ExitCode {
    eprintln!("{}", serde_json::json!({ "kind": "heldElsewhere", "socket": socket, "pid": pid }));
    ExitCode::from(HELD)
}

/// How a start can end without a daemon.
enum Beginning {
    Ready(Box<Parts>),
    Held(ExitCode),
}

struct Parts {
    daemon: Arc<Daemon>,
    listener: Listener,
    journals: Arc<JournalService>,
    spawner: Arc<Spawner>,
    shutdown: CancellationToken,
    retention: registry::Limits,
    /// Held for life.
    _lock: StateLock,
}

async fn daemon(arguments: Arguments) -> anyhow::Result<ExitCode> {
    logging();
    let started = Instant::now();
    let mut end = EndSignals::listen().context("listening for signals")?;
    EndSignals::survive_file_limit().context("listening for signals")?;
    let parts = match begin(&arguments, started)? {
        Beginning::Ready(parts) => parts,
        Beginning::Held(code) => return Ok(code),
    };
    let Parts { daemon, listener, journals, spawner, shutdown, retention, _lock } = *parts;
    let methods = handlers::methods(Arc::clone(&daemon))?;
    let stop = CancellationToken::new();
    let leave = CancellationToken::new();
    let tracker = TaskTracker::new();
    let server = Server {
        methods: methods.into(),
        limits: Limits::default(),
        peers: PeerPolicy::Strict,
        stop: stop.clone(),
        leave: leave.clone(),
        tracker: tracker.clone(),
        gauges: Arc::clone(&daemon.gauges),
    };
    let accepting = tokio::spawn(rpc::serve(listener, server));
    say_line(&serde_json::json!({ "ready": true, "socket": daemon.socket }));
    systemd::ready();
    tracing::info!(socket = %daemon.socket, elapsed = ?started.elapsed(), "ready");
    daemon.registry.keep_feed();
    for notice in daemon.notices() {
        daemon.registry.notice(&notice.code, &notice.text);
    }
    // After "ready": its cost grows with what was going on when the last process ended.
    let registry = Arc::clone(&daemon.registry);
    let resuming = tokio::spawn(async move {
        registry.resume_active().await;
        registry.sweep().await;
    });
    daemon.registry.keep_index();
    daemon.registry.keep_within(retention);
    daemon.registry.keep_settings();
    let watchdog = tokio::spawn(systemd::watchdog(Arc::clone(&journals)));

    tokio::select! {
        () = shutdown.cancelled() => {}
        () = end.first() => shutdown.cancel(),
    }
    watchdog.abort();
    resuming.abort();
    shutdown::run(shutdown::Running { daemon, journals, spawner, stop, leave, tracker, accepting }).await;
    Ok(ExitCode::SUCCESS)
}

/// Everything before "ready". Nothing here is proportional to the number of sessions.
fn begin(arguments: &Arguments, started: Instant) -> anyhow::Result<Beginning> {
    let env = Env::of_process();
    let paths = Paths::resolve(&env, arguments.socket.as_deref())?;
    paths.prepare()?;
    let paths = Arc::new(paths.canonical()?);
    let lock = match StateLock::acquire(&paths, VERSION) {
        Ok(lock) => lock,
        Err(LockError::Held { by, .. }) => {
            let socket = by.socket.map(|socket| socket.display().to_string());
            return Ok(Beginning::Held(held_elsewhere(socket, by.pid)));
        }
        Err(error) => return Err(error.into()),
    };
    let listener = match rpc::activated()? {
        Some(listener) => listener,
        None => match rpc::bind(paths.socket()) {
            Ok(listener) => listener,
            // We hold the lock, so it is no daemon of this state folder: systemd's socket, most likely.
            Err(ListenError::SomebodyListens { path }) => {
                return Ok(Beginning::Held(held_elsewhere(Some(path.display().to_string()), None)));
            }
            Err(error) => return Err(error.into()),
        },
    };
    let socket = listener.path().unwrap_or(paths.socket()).display().to_string();

    let journals = journals(arguments)?;
    let spawner = Arc::new(Spawner::default());
    let keys = Arc::new(KeyStore::new(&paths, &env));
    let home = env.absolute("HOME").unwrap_or_else(|| "/".into());
    let home = paths::canonical(&home);
    // There is no sandbox yet, so nothing counts as confined.
    let host = Host { sandbox: Sandbox::None, allow_bypass: arguments.allow_bypass };
    let kept = Arc::new(KeptState::new(paths.state_db()));
    let policies =
        Policies::open(paths.config_file(), home.clone(), host, Arc::clone(&kept) as Arc<dyn Trust>);
    let settings = policies.started().clone();
    for notice in policies.notices() {
        tracing::warn!(code = %notice.code, "{}", notice.text);
    }
    let user = env.text("USER").or_else(|| env.text("LOGNAME")).unwrap_or("user").to_owned();
    let owner = process::Owner { user: &user, home: &home };
    let client_path = env.text("PATH").map(|path| ("PATH".to_owned(), path.to_owned()));
    let key_env =
        process::base_env(&client_path.into_iter().collect(), &[], owner, std::path::Path::new("/tmp"));
    let models =
        Models::new(settings.model.clone(), settings.providers.clone(), keys, Arc::clone(&spawner), key_env)
            .doubting(settings.model_doubts.clone())
            .set_at(settings.model_at.clone());
    let daemon_id = paths::daemon_id(&paths)?;
    let own: Vec<_> = paths.own_dirs().iter().map(|dir| paths::canonical(dir)).collect();
    // From the usual folders, not from whatever PATH holds: it runs by itself and in every project.
    let git = paths::find_program("git", process::DEFAULT_PATH);
    let snapshots = Snapshots::new(Arc::clone(&spawner), git, home.clone(), own.clone());
    let deps = Arc::new(Deps {
        clock: Clock::system(),
        own,
        paths,
        journals: Arc::clone(&journals),
        models: Arc::new(models),
        tools: Toolbox::new(tool::builtin(&spawner)),
        snapshots,
        policies: Arc::new(policies),
        kept,
        home,
        user,
        shell_env: settings.shell.env.clone(),
        daemon_id,
        principal: format!("user:{}", env.uid()),
        storage_retry: STORAGE_RETRY,
        leave: CancellationToken::new(),
    });
    let retention = registry::Limits {
        max_age_days: settings.retention.max_age_days,
        max_size_mib: settings.retention.max_size_mib,
    };
    let shutdown = CancellationToken::new();
    let daemon = Arc::new(Daemon {
        registry: Registry::new(deps),
        gauges: Arc::new(Gauges::default()),
        info: ServerInfo { name: "agentd".into(), version: VERSION.into(), build: BUILD.into(), daemon_id },
        socket,
        started,
        shutdown: shutdown.clone(),
        doctor: Box::new(move |daemon| doctor::checks(daemon, retention)),
    });
    Ok(Beginning::Ready(Box::new(Parts {
        daemon,
        listener,
        journals,
        spawner,
        shutdown,
        retention,
        _lock: lock,
    })))
}

#[cfg(debug_assertions)]
fn journals(arguments: &Arguments) -> std::io::Result<Arc<JournalService>> {
    arguments.die_at.map_or_else(JournalService::start, JournalService::start_dying)
}

#[cfg(not(debug_assertions))]
fn journals(_: &Arguments) -> std::io::Result<Arc<JournalService>> {
    JournalService::start()
}

/// The daemon's log goes to standard error: the journal of systemd, or nowhere. Never prompts, never keys.
fn logging() {
    use tracing_subscriber::filter::{LevelFilter, Targets};
    use tracing_subscriber::prelude::*;
    let level = std::env::var_os("AGENTD_LOG")
        .map(OsString::into_string)
        .and_then(Result::ok)
        .and_then(|text| text.parse::<LevelFilter>().ok())
        .unwrap_or(LevelFilter::WARN);
    let filter = Targets::new().with_target("agentd", level).with_default(LevelFilter::WARN);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    // A second initialisation in one process, as in tests, keeps the first.
    let _ = tracing_subscriber::registry().with(filter).with(layer).try_init();
}
