//! A home of its own for each measurement, the daemon in it, and the scripted model server beside it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::json;
use tempfile::TempDir;

use crate::line::Line;

/// How long a start or a stop may take before the bench gives up.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long to wait between two attempts to connect: far below what is measured.
const BETWEEN_ATTEMPTS: Duration = Duration::from_micros(100);

/// The programs to measure.
pub(crate) struct Binaries {
    pub(crate) folder: PathBuf,
}

impl Binaries {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn command(&self, name: &str, home: &Home) -> Command {
        let mut command = Command::new(self.path(name));
        command
            .env_clear()
            .envs(home.env())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }
}

/// A temporary home with its XDG folders and a project in it. The path is short: a socket's has 107 bytes.
pub(crate) struct Home {
    root: TempDir,
}

impl Home {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let root = tempfile::Builder::new().prefix("agb").tempdir().context("making a home")?;
        let home = Self { root };
        for folder in ["run", "state", "config/agentd/keys", "cache", "project"] {
            fs::create_dir_all(home.path(folder)).with_context(|| format!("making {folder}"))?;
        }
        for private in ["run", "state", "config", "config/agentd", "config/agentd/keys"] {
            fs::set_permissions(home.path(private), fs::Permissions::from_mode(0o700))?;
        }
        fs::write(home.path("project/README.md"), "# A project\n\nWith a line to read.\n")?;
        Ok(home)
    }

    /// Settings that name the scripted server as the model.
    pub(crate) fn use_model(&self, base_url: &str) -> anyhow::Result<()> {
        let settings = format!(
            "model = \"bench/instant\"\n\n[providers.bench]\ndialect = \"openai-chat\"\nbase_url = \"{base_url}\"\n"
        );
        for (file, text) in
            [("config/agentd/config.toml", settings.as_str()), ("config/agentd/keys/bench", "none\n")]
        {
            fs::write(self.path(file), text).with_context(|| format!("writing {file}"))?;
            fs::set_permissions(self.path(file), fs::Permissions::from_mode(0o600))?;
        }
        Ok(())
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    fn socket(&self) -> PathBuf {
        self.path("run/agentd/agentd.sock")
    }

    fn env(&self) -> Vec<(&'static str, PathBuf)> {
        vec![
            ("HOME", self.root.path().to_owned()),
            ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
            ("XDG_CONFIG_HOME", self.path("config")),
            ("XDG_STATE_HOME", self.path("state")),
            ("XDG_CACHE_HOME", self.path("cache")),
            ("XDG_RUNTIME_DIR", self.path("run")),
        ]
    }
}

/// A running daemon. Stopped in good order when dropped.
pub(crate) struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Daemon {
    /// Starts a daemon and returns it once it has answered `daemon/status`, with the time that took.
    pub(crate) fn start(binaries: &Binaries, home: &Home) -> anyhow::Result<(Self, Line, Duration)> {
        let begun = Instant::now();
        let child = binaries
            .command("agentd", home)
            .spawn()
            .with_context(|| format!("starting {}", binaries.path("agentd").display()))?;
        let mut daemon = Self { child, socket: home.socket() };
        let mut line = daemon.connect(begun)?;
        line.call("daemon/status", &json!({}))?;
        Ok((daemon, line, begun.elapsed()))
    }

    /// One more client.
    pub(crate) fn client(&self) -> anyhow::Result<Line> {
        Line::connect(&self.socket).with_context(|| format!("connecting to {}", self.socket.display()))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn connect(&mut self, begun: Instant) -> anyhow::Result<Line> {
        loop {
            match Line::connect(&self.socket) {
                Ok(line) => return Ok(line),
                Err(error) if begun.elapsed() > PATIENCE => {
                    return Err(error).with_context(|| format!("connecting to {}", self.socket.display()));
                }
                Err(_) => {}
            }
            if let Some(status) = self.child.try_wait()? {
                anyhow::bail!("agentd ended with {status} before it answered");
            }
            std::thread::sleep(BETWEEN_ATTEMPTS);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let asked = Line::connect(&self.socket)
            .ok()
            .and_then(|mut line| line.call("daemon/shutdown", &json!({})).ok())
            .is_some();
        let begun = Instant::now();
        while asked && begun.elapsed() < PATIENCE {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        end(&mut self.child);
    }
}

/// The scripted model server, `agentd playback FILE`.
pub(crate) struct Playback {
    child: Child,
    pub(crate) base_url: String,
}

impl Playback {
    pub(crate) fn start(binaries: &Binaries, home: &Home, script: &Path) -> anyhow::Result<Self> {
        let mut child = binaries.command("agentd", home).arg("playback").arg(script).spawn()?;
        let stdout = child.stdout.take().context("the playback server has no stdout")?;
        let mut said = String::new();
        let read = BufReader::new(stdout).read_line(&mut said);
        let mut playback = Self { child, base_url: String::new() };
        read.context("waiting for the playback server")?;
        let url = url_in(&said)
            .with_context(|| format!("no address in what the playback server said: {said:?}"))?;
        playback.base_url = if url.ends_with("/v1") { url } else { format!("{url}/v1") };
        Ok(playback)
    }
}

impl Drop for Playback {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn end(child: &mut Child) {
    // Either fails only when the process is gone already.
    let _ = child.kill();
    let _ = child.wait();
}

/// The first address in a line, JSON or not, without its last slash.
fn url_in(line: &str) -> Option<String> {
    let from = line.find("http://")?;
    let url =
        line[from..].split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '}')).next()?;
    Some(url.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_json_and_in_prose() {
        for line in
            [r#"{"ready":true,"url":"http://127.0.0.1:81/ab/"}"#, "listening on http://127.0.0.1:81/ab\n"]
        {
            assert_eq!(url_in(line).as_deref(), Some("http://127.0.0.1:81/ab"));
        }
        assert_eq!(url_in("ready"), None);
    }
}
