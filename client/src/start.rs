//! Starting a daemon where none runs. It says on its standard output when it is ready, so nobody has to guess; another
//! one that holds the state folder already is found by what the new one says before it ends.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::client::Client;
use crate::connect::{ConnectError, ConnectOptions, connect};
use crate::place;

/// What `agentd` exits with when the state folder or the socket is somebody else's.
const HELD: i32 = 75;
/// Of what a daemon says while it starts, so much is kept.
const KEPT: u64 = 64 * 1024;
/// Between attempts to connect to a daemon that another program has just started.
const PAUSE: Duration = Duration::from_millis(50);

/// How to start a daemon.
#[derive(Clone, Debug)]
pub struct StartOptions {
    /// Absent: `AGENTD_BIN`, else `agentd` beside the running program, else on `PATH`.
    pub program: Option<PathBuf>,
    /// More arguments for it.
    pub args: Vec<OsString>,
    /// How long it may take to say that it is ready.
    pub ready_within: Duration,
}

impl Default for StartOptions {
    fn default() -> Self {
        Self { program: None, args: Vec::new(), ready_within: Duration::from_secs(20) }
    }
}

/// Whether a daemon had to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Startup {
    Running,
    Started { pid: u32 },
}

/// Connects; starts a daemon if, and only if, nobody listens at the socket.
///
/// # Errors
/// As [`crate::connect`], and what kept the daemon from starting.
pub async fn connect_or_start(
    options: ConnectOptions,
    start: StartOptions,
) -> Result<(Client, Startup), StartError> {
    let deadline = Instant::now() + start.ready_within;
    let program = start.program.clone().unwrap_or_else(find_program);
    let mut options = options;
    loop {
        match connect(options.clone()).await {
            Ok(client) => return Ok((client, Startup::Running)),
            Err(ConnectError::NotRunning { .. }) => {}
            // A daemon that is just going down still takes connections for a moment.
            Err(error) if error.may_pass() && Instant::now() + PAUSE < deadline => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        }
        let mut child = spawn(&program, &options, &start)?;
        let pid = child.id().unwrap_or_default();
        let beginning = tokio::time::timeout_at(deadline, watch(&mut child)).await;
        match beginning.map_err(|_| StartError::NotReady { pid, within: start.ready_within })? {
            Beginning::Ready(ready) => {
                let socket = ready.socket.or(options.socket.clone());
                let options = ConnectOptions { socket, ..options };
                return Ok((connect(options).await?, Startup::Started { pid }));
            }
            // Somebody else has the state folder, or had it until a moment ago: look again, there.
            Beginning::Ended { status, stderr }
                if status.code() == Some(HELD) && Instant::now() + PAUSE < deadline =>
            {
                options.socket = held_socket(&stderr).or(options.socket);
                tokio::time::sleep(PAUSE).await;
            }
            Beginning::Ended { status, stderr } => return Err(StartError::Ended { status, stderr }),
            Beginning::Unreadable(source) => return Err(StartError::Spawn { program, source }),
        }
    }
}

fn find_program() -> PathBuf {
    if let Some(named) = std::env::var_os("AGENTD_BIN").filter(|named| !named.is_empty()) {
        return named.into();
    }
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("agentd")));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from("agentd"))
}

fn spawn(program: &Path, options: &ConnectOptions, start: &StartOptions) -> Result<Child, StartError> {
    let mut command = Command::new(program);
    if options.socket.is_some()
        && let Some(socket) = place::socket(options.socket.clone())
    {
        command.arg("--socket").arg(socket);
    }
    command
        .args(&start.args)
        // The daemon outlives this program: it keeps no folder busy, and no key pressed here reaches it.
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => StartError::NoProgram,
        _ => StartError::Spawn { program: program.to_owned(), source },
    })
}

/// How a new daemon's first moments went.
enum Beginning {
    Ready(Ready),
    Ended { status: ExitStatus, stderr: String },
    Unreadable(io::Error),
}

/// The line a daemon writes once it accepts connections.
#[derive(Deserialize)]
struct Ready {
    ready: bool,
    #[serde(default)]
    socket: Option<PathBuf>,
}

/// Waits until the daemon is ready or has ended.
async fn watch(child: &mut Child) -> Beginning {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let complaints = async {
        let mut kept = Vec::new();
        if let Some(stderr) = stderr {
            keep(stderr, &mut kept).await;
        }
        String::from_utf8_lossy(&kept).into_owned()
    };
    let ready = async {
        let mut lines = BufReader::new(stdout?).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if let Ok(ready) = serde_json::from_str::<Ready>(&line)
                && ready.ready
            {
                return Some(ready);
            }
        }
        None
    };
    tokio::pin!(complaints, ready);
    let stderr = tokio::select! {
        biased;
        ready = &mut ready => match ready {
            Some(ready) => return Beginning::Ready(ready),
            None => complaints.await,
        },
        stderr = &mut complaints => match ready.await {
            Some(ready) => return Beginning::Ready(ready),
            None => stderr,
        },
    };
    match child.wait().await {
        Ok(status) => Beginning::Ended { status, stderr },
        Err(error) => Beginning::Unreadable(error),
    }
}

/// Reads to the end and keeps the first part, so that a talkative daemon never waits for its reader.
async fn keep(mut from: impl AsyncRead + Unpin, kept: &mut Vec<u8>) {
    // What could not be read cannot be shown; the exit status still tells.
    let _ = (&mut from).take(KEPT).read_to_end(kept).await;
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
}

/// The socket of the daemon that holds the state folder, by what the second one said.
fn held_socket(stderr: &str) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Held {
        kind: String,
        socket: PathBuf,
    }
    let held =
        |line: &str| serde_json::from_str::<Held>(line).ok().filter(|held| held.kind == "heldElsewhere");
    stderr.lines().rev().find_map(held).map(|held| held.socket)
}

/// Why there is no daemon to talk to.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(
        "agentd is not running, and no program agentd is beside this one or on PATH; install it, or name it with AGENTD_BIN"
    )]
    NoProgram,
    #[error("cannot start {}", .program.display())]
    Spawn {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("agentd ended while it was starting ({status}){}", said(.stderr))]
    Ended { status: ExitStatus, stderr: String },
    #[error("agentd was started (pid {pid}) but did not say it is ready within {} s; see what it does with: agentctl daemon status", .within.as_secs())]
    NotReady { pid: u32, within: Duration },
}

fn said(stderr: &str) -> String {
    if stderr.trim().is_empty() { String::new() } else { format!(":\n{}", stderr.trim_end()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_among_other_lines() {
        let stderr = "warning\n{\"kind\":\"heldElsewhere\",\"socket\":\"/r/s\",\"pid\":7}\n";
        assert_eq!(held_socket(stderr).as_deref(), Some(Path::new("/r/s")));
        assert_eq!(held_socket("{\"kind\":\"other\",\"socket\":\"/r/s\"}"), None);
    }
}
