//! The real daemon, and a client that says what it likes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longer than all phases of a shutdown together.
pub(super) const PATIENCE: Duration = Duration::from_secs(40);

pub(super) struct Daemon {
    child: Child,
    pub(super) socket: PathBuf,
}

impl Daemon {
    pub(super) fn start(root: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_agentd"))
            .env_clear()
            .env("HOME", root)
            .env("XDG_RUNTIME_DIR", root)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        Self { child, socket: ready["socket"].as_str().unwrap().into() }
    }

    pub(super) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Whether it ends by itself.
    pub(super) fn ends(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if self.child.try_wait().unwrap().is_some() {
                return true;
            }
            std::thread::yield_now();
        }
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        false
    }
}

pub(super) fn line(method: &str, params: &Value) -> String {
    format!("{}\n", json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Harmless if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A short folder that only its owner can enter, as a socket needs.
pub(super) fn root() -> tempfile::TempDir {
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    tempfile::Builder::new().prefix("a").permissions(closed).tempdir_in("/tmp").unwrap()
}

/// One connection, one call at a time.
pub(super) struct Client {
    stream: UnixStream,
    answers: BufReader<UnixStream>,
}

impl Client {
    pub(super) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let answers = BufReader::new(stream.try_clone().unwrap());
        Self { stream, answers }
    }

    /// The result, or the code of the error.
    pub(super) fn call(&mut self, method: &str, params: &Value) -> Result<Value, i64> {
        self.stream.write_all(line(method, params).as_bytes()).unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        let mut answer: Value = serde_json::from_str(&answer).unwrap();
        match answer["error"]["code"].as_i64() {
            Some(code) => Err(code),
            None => Ok(answer["result"].take()),
        }
    }
}
