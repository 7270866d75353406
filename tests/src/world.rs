//! The daemon as a process, and everything together.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::Instant;

use serde_json::Value;

use crate::{Chat, Dialect, Home, Line, Model, PATIENCE, Script, program};

/// How to start a daemon.
#[derive(Clone, Debug, Default)]
pub struct Start {
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Shell words before the program: `umask 000; exec`.
    pub shell: Option<String>,
}

/// A running daemon, killed when dropped.
pub struct Daemon {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
    start: Start,
}

impl Daemon {
    /// Starts a daemon and waits until it says that it is ready.
    ///
    /// # Panics
    /// It does not.
    #[must_use]
    pub fn start(home: &Home, start: Start) -> Self {
        let log = home.path("daemon.log");
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&log).expect("a log");
        let mut child =
            command(home, &start).stdout(Stdio::piped()).stderr(file).spawn().expect("agentd can be started");
        let stdout = child.stdout.take().expect("it was piped");
        let (sender, ready) = mpsc::sync_channel(16);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // The test may have given up already.
                let _ = sender.send(line);
            }
        });
        let mut daemon = Self { child, socket: home.socket(), log, start };
        let Ok(line) = ready.recv_timeout(PATIENCE) else { panic!("agentd did not say that it is ready") };
        let ready: Value = serde_json::from_str(&line).expect("a line of JSON");
        assert_eq!(ready["ready"], true, "{line}");
        daemon.socket = ready["socket"].as_str().expect("the socket").into();
        daemon
    }

    /// Starts a daemon and kills it so long after, however far it has come.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn killed_after(home: &Home, start: &Start, wait: std::time::Duration) {
        let child = command(home, start).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let _child = Killed(Some(child.expect("agentd can be started")));
        std::thread::sleep(wait);
    }

    /// Runs a daemon that is expected to end by itself.
    ///
    /// # Panics
    /// It cannot be started, or goes on running.
    #[must_use]
    pub fn run(home: &Home, start: &Start) -> Output {
        let child = command(home, start)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("agentd can be started");
        let mut child = Killed(Some(child));
        let begun = Instant::now();
        while child.0.as_mut().is_some_and(|child| child.try_wait().expect("a child").is_none()) {
            assert!(begun.elapsed() < PATIENCE, "agentd should have ended");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        child.0.take().expect("it is there").wait_with_output().expect("its output")
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    #[must_use]
    pub fn connect(&self) -> Line {
        Line::connect(&self.socket)
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid =
            i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("the daemon runs");
    }

    /// Ends it without a warning.
    ///
    /// # Panics
    /// It had ended already.
    pub fn kill9(&mut self) {
        self.signal(rustix::process::Signal::KILL);
        self.child.wait().expect("a child");
    }

    /// Waits until it has ended by itself.
    ///
    /// # Panics
    /// It goes on.
    pub fn ended(&mut self) -> ExitStatus {
        crate::eventually("the end of agentd", || self.child.try_wait().expect("a child"))
    }

    /// Asks it to end, and waits.
    ///
    /// # Panics
    /// It does not.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        crate::eventually("the end of agentd after SIGTERM", || self.child.try_wait().expect("a child"))
    }

    /// Stops it as a busy machine would.
    pub fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    /// Lets it go on after [`Daemon::stop`].
    pub fn go_on(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    /// A new process with the same state.
    pub fn restart(&mut self, home: &Home) {
        *self = Self::start(home, self.start.clone());
    }

    /// What it logged.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

fn command(home: &Home, start: &Start) -> Command {
    let agentd = program("agentd");
    let mut command = match &start.shell {
        None => Command::new(&agentd),
        Some(words) => {
            let mut shell = Command::new("/bin/sh");
            shell.arg("-c").arg(format!("{words} \"$0\" \"$@\"")).arg(&agentd);
            shell
        }
    };
    command.args(&start.args).env_clear().envs(home.env());
    command.envs(start.env.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
    command
}

impl Drop for Daemon {
    #[expect(clippy::print_stderr, reason = "a failed test shows what the daemon said")]
    fn drop(&mut self) {
        // Either fails only when the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the daemon's log\n{}", self.log());
        }
    }
}

struct Killed(Option<Child>);

impl Drop for Killed {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A home, a model server that plays a script, and a daemon that uses it.
pub struct World {
    pub daemon: Daemon,
    pub model: Model,
    pub home: Home,
}

impl World {
    #[must_use]
    pub fn new(script: Script) -> Self {
        Self::with(script, Dialect::OpenaiChat, "", Start::default())
    }

    #[must_use]
    pub fn speaking(dialect: Dialect, script: Script) -> Self {
        Self::with(script, dialect, "", Start::default())
    }

    /// `settings` are lines of the settings file, before its first table.
    #[must_use]
    pub fn with(script: Script, dialect: Dialect, settings: &str, start: Start) -> Self {
        Self::in_home(Home::new(), script, dialect, settings, start)
    }

    /// In a home that a test has prepared.
    #[must_use]
    pub fn in_home(home: Home, script: Script, dialect: Dialect, settings: &str, start: Start) -> Self {
        let model = Model::start(&home, script);
        home.settings(&format!(
            "model = \"test/m\"\n{settings}\n[providers.test]\ndialect = \"{}\"\nbase_url = \"{}\"\n",
            dialect.name(),
            model.base_for(dialect)
        ));
        home.key("test", "sk-not-a-secret");
        let daemon = Daemon::start(&home, start);
        Self { daemon, model, home }
    }

    pub fn kill9_and_restart(&mut self) {
        self.daemon.kill9();
        self.daemon.restart(&self.home);
    }

    /// A new session in the project, watched from its beginning.
    #[must_use]
    pub fn session(&self, mode: &str) -> Chat {
        Chat::start(&self.daemon, serde_json::json!({"cwd": self.home.project().cwd(), "mode": mode}))
    }
}
