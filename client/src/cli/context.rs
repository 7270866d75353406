//! What every command needs: the way to the daemon, the names to print, and what its errors mean for the exit code.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use agentd_client::{CallError, Client, ConnectError, ConnectOptions, StartError, StartOptions, Startup};
use agentd_protocol::initialize::{Actor, ClientInfo};
use agentd_protocol::method::Empty;
use agentd_protocol::session::{ListParams, Order, Row};
use agentd_protocol::{ErrorCode, SessionId, Timestamp, method};

use super::exit::{Exit, Failure};
use super::resolve::{self, Here};
use super::screen::say;
use crate::render::line::short_paths;
use crate::render::style::called as called_as_here;
use crate::render::{Line, Style};

/// The newest sessions that names are looked up in; the daemon gives no more at once.
const LIST_LIMIT: u32 = 500;

/// How often a call is made again on another daemon.
const AGAIN: usize = 3;

/// The name of this program.
const PROGRAM: &str = "agentctl";

#[derive(Clone, Debug)]
pub(crate) struct Context {
    socket: Option<PathBuf>,
    /// How agentctl was called, with its `--socket` if one was given, for the commands that are printed.
    pub(crate) program: String,
    pub(crate) home: Option<PathBuf>,
}

impl Context {
    pub(crate) fn new(socket: Option<PathBuf>) -> Self {
        let program = with_socket(&called(), socket.as_deref());
        Self { socket, program, home: std::env::var_os("HOME").map(PathBuf::from) }
    }

    fn options(&self) -> ConnectOptions {
        let client = ClientInfo {
            name: "agentctl".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            actor: Actor::Person,
        };
        ConnectOptions { socket: self.socket.clone(), ..ConnectOptions::new(client) }
    }

    /// Makes a call that may be made again, because it names what it creates or creates nothing. A daemon that died under
    /// it is started, as it would have been a moment earlier.
    pub(crate) async fn again<T>(
        &self,
        call: impl AsyncFn() -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        for _ in 0..AGAIN {
            match call().await {
                // Why it cannot be started, the next call says.
                Err(CallError::Lost | CallError::Connect(_)) => drop(self.start().await),
                other => return other,
            }
        }
        call().await
    }

    /// Connects to a daemon that runs.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        Ok(agentd_client::connect(self.options()).await?)
    }

    /// Connects to a daemon that is about to end: its event streams end with it and do not look for the next one,
    /// which would start it again where the socket is systemd's. `None`: no daemon runs.
    pub(crate) async fn connect_for_the_last_time(&self) -> Result<Option<Client>, Failure> {
        let options = ConnectOptions { reconnect_for: std::time::Duration::ZERO, ..self.options() };
        match agentd_client::connect(options).await {
            Ok(client) => Ok(Some(client)),
            Err(ConnectError::NotRunning { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Connects, and starts a daemon if none runs.
    pub(crate) async fn connect_or_start(&self) -> Result<Client, Failure> {
        let (client, startup) = self.start().await?;
        if let Startup::Started { pid } = startup {
            say(&[Line::styled(Style::Dim, &format!("Started agentd (pid {pid})."))])?;
        }
        Ok(client)
    }

    pub(crate) async fn start(&self) -> Result<(Client, Startup), Failure> {
        self.start_with(Vec::new()).await
    }

    /// The same, with arguments for a daemon that has to be started.
    pub(crate) async fn start_with(&self, args: Vec<OsString>) -> Result<(Client, Startup), Failure> {
        let options = StartOptions { args, ..StartOptions::default() };
        let (client, startup) = agentd_client::connect_or_start(self.options(), options).await?;
        let is_named =
            self.socket.is_some() || std::env::var_os("AGENTD_SOCKET").is_some_and(|set| !set.is_empty());
        let wanted = agentd_client::place::socket(self.socket.clone()).filter(|_| is_named);
        if let Some(line) = elsewhere(wanted.as_deref(), client.socket()) {
            say(&[line])?;
        }
        Ok((client, startup))
    }

    /// The connection is lost: a daemon that fell is started again, one that left is waited for. The stream finds the new
    /// one by itself.
    pub(crate) fn bring_back(&self, it_left: bool) {
        if !it_left {
            let context = self.clone();
            tokio::spawn(async move { context.start().await });
        }
    }

    pub(crate) fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }
}

/// What to say when the daemon listens at another socket than the one that was named.
fn elsewhere(wanted: Option<&Path>, used: &Path) -> Option<Line> {
    wanted.filter(|wanted| *wanted != used)?;
    let text = format!("The daemon of this state folder listens at {}; using that.", used.display());
    Some(Line::styled(Style::Warn, &text))
}

/// The newest sessions, children and archived ones included.
pub(crate) async fn rows(client: &Client) -> Result<Vec<Row>, Failure> {
    let params = ListParams {
        children: true,
        archived: true,
        order: Order::Updated,
        limit: Some(LIST_LIMIT),
        ..ListParams::default()
    };
    Ok(client.call::<method::SessionList>(params).await?.sessions)
}

/// What a session is called in the next command: its handle, where that can be had.
pub(crate) async fn name_of(client: &Client, session_id: SessionId) -> String {
    let params = agentd_protocol::session::SessionParams { session_id };
    client.call::<method::SessionGet>(params).await.map_or(session_id.to_string(), |got| got.state.handle)
}

/// Prints what the daemon answers to a call, as it came, on one line.
pub(crate) async fn print_answer<M: method::Method>(
    client: &Client,
    params: M::Params,
) -> Result<(), Failure> {
    let params = serde_json::value::to_raw_value(&params).map_err(|error| {
        Failure::failed(format!("the parameters of {} cannot be written: {error}", M::NAME))
    })?;
    let answer = client.call_raw(M::NAME, Some(params)).await?;
    Ok(super::screen::print_json(answer.get())?)
}

/// The session that a command is about. `again` makes the same command for a session that is named.
pub(crate) async fn session(
    context: &Context,
    client: &Client,
    spec: Option<&str>,
    again: impl Fn(&str) -> String,
) -> Result<SessionId, Failure> {
    // A full id needs no list, and may be older than the list goes.
    if let Some(id) = spec.and_then(|spec| spec.parse().ok()) {
        return Ok(id);
    }
    let again = |id: &str| format!("{} {}", context.program, again(id));
    resolve::session(&rows(client).await?, spec, &Here::new(Path::new("."))?, context.home(), &again)
}

/// What is wrong with the user's settings, for the first lines of whoever works with a session.
pub(crate) async fn settings_notices(context: &Context, client: &Client) -> Vec<Line> {
    // An older daemon, or one that is busy leaving, says nothing; the settings are no reason to fail.
    let Ok(status) = client.call::<method::DaemonStatus>(Empty {}).await else { return Vec::new() };
    let notices = status
        .notices
        .into_iter()
        .filter(|notice| ["config.", "rule."].iter().any(|kind| notice.code.starts_with(kind)));
    let text = |text: &str| called_as_here(&short_paths(text, context.home()), &context.program);
    notices.map(|notice| Line::styled(Style::Warn, "settings: ").plain(&text(&notice.text))).collect()
}

/// A failure that may come from settings which the daemon has not read: then that is said.
pub(crate) async fn about_settings(client: &Client, failure: Failure) -> Failure {
    let Ok(status) = client.call::<method::DaemonStatus>(Empty {}).await else { return failure };
    let mut changed = status.notices.into_iter().filter(|notice| notice.code == "config.changed");
    match changed.next() {
        Some(notice) => failure.advice(notice.text),
        None => failure,
    }
}

/// The time now, for "5 min ago".
pub(crate) fn now() -> Timestamp {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_ms(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// How this program has to be called again: by its name where that finds it, else as it was called, made absolute.
fn called() -> String {
    let file = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let own = std::env::current_exe().ok().and_then(|path| file(&path));
    let typed = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    called_as(&typed, &path, |found| own.is_some() && file(found) == own)
}

fn called_as(typed: &Path, path: &OsStr, is_own: impl Fn(&Path) -> bool) -> String {
    // A name without a folder was found there by the shell.
    let is_name = typed.components().count() <= 1 && !typed.starts_with("/");
    if is_name || std::env::split_paths(path).any(|folder| is_own(&folder.join(PROGRAM))) {
        return PROGRAM.to_owned();
    }
    let absolute = std::path::absolute(typed).unwrap_or_else(|_| typed.to_owned());
    shell_word(&absolute.to_string_lossy())
}

fn with_socket(program: &str, socket: Option<&Path>) -> String {
    match socket {
        None => program.to_owned(),
        Some(socket) => format!("{program} --socket {}", shell_word(&socket.to_string_lossy())),
    }
}

/// `text` as one word of a shell's command line.
pub(crate) fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%:,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let exit = match &error {
            CallError::Daemon { code: ErrorCode::Refused, .. } => Exit::Refused,
            CallError::Lost => Exit::NoDaemon,
            CallError::Connect(_) | CallError::Malformed { .. } => Exit::NoDaemon,
            CallError::Daemon { .. } | CallError::Rpc { .. } => Exit::Failed,
        };
        Failure::new(exit, with_causes(&error))
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Failure::new(Exit::NoDaemon, with_causes(&error))
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        Failure::new(Exit::NoDaemon, with_causes(&error))
    }
}

/// The error and what caused it, each once.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(&format!(": {cause_text}"));
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use agentd_protocol::ErrorData;

    use super::*;

    fn daemon_error(code: ErrorCode) -> Failure {
        let data = ErrorData { kind: code.kind().into(), more: serde_json::Map::new() };
        CallError::Daemon { code, message: "no".into(), data }.into()
    }

    #[test]
    fn errors_have_their_exit_codes() {
        assert_eq!(daemon_error(ErrorCode::Refused).exit, Exit::Refused);
        assert_eq!(daemon_error(ErrorCode::InvalidInput).exit, Exit::Failed);
        assert_eq!(Failure::from(CallError::Lost).exit, Exit::NoDaemon);
        assert_eq!(Failure::from(ConnectError::Version { ours: 1, theirs: 2 }).exit, Exit::NoDaemon);
        assert_eq!(Failure::from(StartError::NoProgram).exit, Exit::NoDaemon);
    }

    #[test]
    fn printed_commands_reach_the_same_daemon() {
        let program = |socket: Option<&str>| with_socket("agentctl", socket.map(Path::new));
        assert_eq!(program(None), "agentctl");
        assert_eq!(program(Some("/run/a.sock")), "agentctl --socket /run/a.sock");
        assert_eq!(program(Some("/r n/it's")), r"agentctl --socket '/r n/it'\''s'");
    }

    #[test]
    fn printed_commands_can_be_pasted() {
        let path = OsStr::new("/usr/bin:/opt/a b");
        let called =
            |typed: &str, own: &str| called_as(Path::new(typed), path, |found| found == Path::new(own));
        // Its name finds it, whichever way it was called.
        assert_eq!(called("agentctl", "/nowhere"), "agentctl");
        assert_eq!(called("target/release/agentctl", "/usr/bin/agentctl"), "agentctl");
        // It does not, or finds another one.
        assert_eq!(called("/w/agentctl", "/w/agentctl"), "/w/agentctl");
        assert_eq!(called("/w it/agentctl", "/w it/agentctl"), "'/w it/agentctl'");
        let here = std::env::current_dir().unwrap().join("target/agentctl");
        assert_eq!(called("./target/agentctl", "/w/agentctl"), shell_word(here.to_str().unwrap()));
    }

    #[test]
    fn another_socket_than_the_one_named_is_said() {
        let line = |wanted| elsewhere(wanted, Path::new("/run/a")).map(|line| line.text());
        assert_eq!(
            line(Some(Path::new("/tmp/b"))).as_deref(),
            Some("The daemon of this state folder listens at /run/a; using that.")
        );
        assert_eq!(line(Some(Path::new("/run/a"))), None);
        assert_eq!(line(None), None);
    }

    #[test]
    fn causes_are_said_once() {
        let source = std::io::Error::other("permission denied");
        let error = ConnectError::Io { socket: "/s".into(), source };
        assert_eq!(with_causes(&error), "cannot connect to /s: permission denied");
    }
}
