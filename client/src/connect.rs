//! Reaching a running daemon: is the socket safe to speak to, is it ours, and is it agentd that answers?

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentd_protocol::initialize::{ClientInfo, InitializeParams, InitializeResult};
use agentd_protocol::method::Initialize;
use agentd_protocol::{Method, PROTOCOL_VERSION};
use serde::{Deserialize, Serialize};
use serde_json::Map;
use serde_json::value::RawValue;
use tokio::net::UnixStream;

use crate::client::Client;
use crate::place;
use crate::transport::{self, Receiver, Sender};

/// The kernel's limit of a socket's path, without the final zero.
const MAX_PATH: usize = 107;
/// How long a daemon may take to say who it is. It answers in milliseconds, unless it is stopped.
const INTRODUCTION: Duration = Duration::from_secs(10);

/// Whom to connect to, and as whom.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Absent: `AGENTD_SOCKET`, else the usual place, see [`crate::place::socket`].
    pub socket: Option<PathBuf>,
    /// Shown to people ("approved in zed"), and what the daemon lets this client do.
    pub client: ClientInfo,
    /// How long an [`crate::EventStream`] tries to come back after a lost connection before it ends with an error.
    pub reconnect_for: Duration,
}

impl ConnectOptions {
    /// The usual socket, and a minute for the daemon to come back.
    #[must_use]
    pub fn new(client: ClientInfo) -> Self {
        Self { socket: None, client, reconnect_for: Duration::from_secs(60) }
    }
}

/// Connects to a running daemon and introduces this client.
///
/// # Errors
/// [`ConnectError::NotRunning`] when nobody listens; everything else says what is wrong with who listens there.
pub async fn connect(options: ConnectOptions) -> Result<Client, ConnectError> {
    let socket = place::socket(options.socket.clone()).ok_or(ConnectError::NoPlace)?;
    Client::connect(socket, options).await
}

/// A connection that has been introduced.
pub(crate) struct Introduced {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    pub(crate) server: InitializeResult,
}

/// Connects to `socket` after looking at it, and introduces this client before anything else is sent.
pub(crate) async fn introduce(socket: &Path, client: &ClientInfo) -> Result<Introduced, ConnectError> {
    if socket.as_os_str().len() > MAX_PATH {
        return Err(ConnectError::PathTooLong { socket: socket.to_owned() });
    }
    check_folder(socket)?;
    let io = |source| ConnectError::Io { socket: socket.to_owned(), source };
    let stream = UnixStream::connect(socket).await.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            ConnectError::NotRunning { socket: socket.to_owned() }
        }
        _ => io(source),
    })?;
    // The folder is ours, but what listens may have been started by somebody who was let in.
    let uid = stream.peer_cred().map_err(io)?.uid();
    if uid != rustix::process::geteuid().as_raw() {
        return Err(ConnectError::ForeignServer { socket: socket.to_owned(), uid });
    }
    let (mut sender, mut receiver) = transport::split(stream);
    let asked = tokio::time::timeout(INTRODUCTION, ask(&mut sender, &mut receiver, client)).await;
    let answer = asked.unwrap_or_else(|_| {
        let waited =
            format!("it did not answer for {} s; it may be stopped or stuck", INTRODUCTION.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, waited))
    });
    let server = understand(socket, &answer.map_err(io)?)?;
    Ok(Introduced { sender, receiver, server })
}

/// A folder that others can write to could hold anybody's socket.
fn check_folder(socket: &Path) -> Result<(), ConnectError> {
    let folder = match socket.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let found = match folder.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(ConnectError::NotRunning { socket: socket.to_owned() });
        }
        found => found.map_err(|source| ConnectError::Io { socket: socket.to_owned(), source })?,
    };
    let problem = if !found.is_dir() {
        "it is a link or a file, not a folder"
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        "it belongs to another user"
    } else if found.mode() & 0o077 != 0 {
        "others can enter it; the socket needs a folder of its own, with mode 700"
    } else {
        return Ok(());
    };
    Err(ConnectError::UnsafeFolder { folder: folder.to_owned(), problem: problem.to_owned() })
}

/// Sends `initialize` and gives the first line that comes back.
async fn ask(sender: &mut Sender, receiver: &mut Receiver, client: &ClientInfo) -> io::Result<String> {
    #[derive(Serialize)]
    struct Call {
        jsonrpc: &'static str,
        /// Text, so that it cannot be one of the numbers that follow.
        id: &'static str,
        method: &'static str,
        params: InitializeParams,
    }
    let call = serde_json::to_string(&Call {
        jsonrpc: "2.0",
        id: "hello",
        method: Initialize::NAME,
        params: InitializeParams {
            protocol_version: PROTOCOL_VERSION,
            client_info: client.clone(),
            capabilities: Map::new(),
        },
    })?;
    // A daemon that refuses may have closed its half already; its reason can still be read.
    let sent = sender.line(&call).await;
    match receiver.line().await {
        Ok(line) => Ok(line),
        Err(error) => Err(sent.err().unwrap_or(error)),
    }
}

/// What the answer to `initialize` says.
fn understand(socket: &Path, line: &str) -> Result<InitializeResult, ConnectError> {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        result: Option<&'a RawValue>,
        error: Option<Problem>,
    }
    #[derive(Deserialize)]
    struct Problem {
        message: String,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        protocol_version: u32,
    }
    let not_agentd =
        |found: &str| ConnectError::NotAgentd { socket: socket.to_owned(), found: found.to_owned() };
    let answer: Answer<'_> =
        serde_json::from_str(line).map_err(|_| not_agentd("its answer is not JSON-RPC"))?;
    if let Some(problem) = answer.error {
        return Err(ConnectError::Refused { reason: problem.message });
    }
    let result = answer.result.ok_or_else(|| not_agentd("its answer is not JSON-RPC"))?.get();
    let server = match serde_json::from_str::<InitializeResult>(result) {
        Ok(server) if server.server_info.name == "agentd" => server,
        Ok(server) => return Err(not_agentd(&format!("it calls itself {:?}", server.server_info.name))),
        // A version that this build cannot read is named before anything else is.
        Err(_) => match serde_json::from_str::<Version>(result) {
            Ok(version) if version.protocol_version != PROTOCOL_VERSION => {
                return Err(ConnectError::Version {
                    ours: PROTOCOL_VERSION,
                    theirs: version.protocol_version,
                });
            }
            _ => return Err(not_agentd("its answer to initialize cannot be read")),
        },
    };
    if server.protocol_version != PROTOCOL_VERSION {
        return Err(ConnectError::Version { ours: PROTOCOL_VERSION, theirs: server.protocol_version });
    }
    Ok(server)
}

impl ConnectError {
    /// Whether it may pass: the daemon is starting, leaving, or busy for a moment.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, ConnectError::NotRunning { .. } | ConnectError::Io { .. })
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(
        "there is no place for agentd's socket: neither XDG_RUNTIME_DIR nor HOME is set; name one with --socket"
    )]
    NoPlace,
    #[error("the socket path {} has {} bytes and a Unix socket's may have 107; name a shorter one with --socket",
        .socket.display(), .socket.as_os_str().len())]
    PathTooLong { socket: PathBuf },
    #[error("agentd is not running ({}); start it with: agentctl daemon start", .socket.display())]
    NotRunning { socket: PathBuf },
    #[error("{} is not safe to use: {problem}", .folder.display())]
    UnsafeFolder { folder: PathBuf, problem: String },
    #[error("the program that listens at {} runs as user {uid}, not as you; nothing was sent to it", .socket.display())]
    ForeignServer { socket: PathBuf, uid: u32 },
    #[error("cannot connect to {}", .socket.display())]
    Io {
        socket: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("agentd refused this client: {reason}")]
    Refused { reason: String },
    #[error("what listens at {} is not agentd: {found}", .socket.display())]
    NotAgentd { socket: PathBuf, found: String },
    #[error(
        "agentd speaks protocol {theirs} and this program speaks {ours}; install the same version of both"
    )]
    Version { ours: u32, theirs: u32 },
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const INFO: &str = r#""serverInfo":{"name":"agentd","version":"1","build":"b","daemonId":"01980000-0000-7000-8000-000000000000"},"capabilities":{},"methods":[],"events":[]"#;

    fn outcome(line: &str) -> String {
        match understand(Path::new("/s"), line) {
            Ok(server) => server.server_info.name,
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn only_agentd_of_this_version_is_spoken_to() {
        let cases: &[(String, &str)] = &[
            (format!(r#"{{"id":"hello","result":{{"protocolVersion":1,{INFO}}}}}"#), "agentd"),
            (format!(r#"{{"result":{{"protocolVersion":2,{INFO}}}}}"#), "speaks protocol 2"),
            (r#"{"result":{"protocolVersion":9}}"#.into(), "speaks protocol 9"),
            (
                format!(
                    r#"{{"result":{{"protocolVersion":1,{}}}}}"#,
                    INFO.replace("\"agentd\"", "\"other\"")
                ),
                "calls itself \"other\"",
            ),
            (
                r#"{"id":null,"error":{"code":-32054,"message":"not from a child"}}"#.into(),
                "not from a child",
            ),
            ("HTTP/1.1 400".into(), "not JSON-RPC"),
            (r#"{"result":5}"#.into(), "cannot be read"),
        ];
        for (line, expected) in cases {
            let found = outcome(line);
            assert!(found.contains(expected), "{line}: {found}");
        }
    }

    #[tokio::test]
    async fn unsafe_places_are_not_spoken_to() {
        let folder = tempfile::tempdir().unwrap();
        let who = ClientInfo { name: "t".into(), version: String::new(), actor: Default::default() };
        let socket = folder.path().join("s");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o770)).unwrap();
        let open = introduce(&socket, &who).await.err().unwrap();
        assert!(matches!(open, ConnectError::UnsafeFolder { .. }), "{open}");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let missing = introduce(&socket, &who).await.err().unwrap();
        assert!(matches!(missing, ConnectError::NotRunning { .. }), "{missing}");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let dead = introduce(&socket, &who).await.err().unwrap();
        assert!(matches!(dead, ConnectError::NotRunning { .. }), "{dead}");
        let long = introduce(&folder.path().join("x".repeat(100)), &who).await.err().unwrap();
        assert!(matches!(long, ConnectError::PathTooLong { .. }), "{long}");
    }
}
