//! A client whose daemon may die at any moment: a lost connection is an answer, anything else that is odd an error.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use agentd_tests::{PATIENCE, RpcError};
use serde_json::{Value, json};

/// Why nothing came back.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The connection is gone; what was asked may have been done or not.
    Lost,
    /// The daemon broke a promise, or the test did.
    Wrong(anyhow::Error),
}

impl From<anyhow::Error> for Trouble {
    fn from(error: anyhow::Error) -> Self {
        Trouble::Wrong(error)
    }
}

/// What a daemon says that was asked to end, to all that it does not take down for the next one.
const LEAVING: &str = "the daemon is shutting down";

pub(crate) type Talk<T> = Result<T, Trouble>;

pub(crate) type Answer = Result<Value, RpcError>;

pub(crate) struct Wire {
    reader: BufReader<UnixStream>,
    next_id: u64,
    answers: HashMap<u64, Answer>,
}

impl Wire {
    pub(crate) fn connect(socket: &Path) -> Talk<Self> {
        let stream = UnixStream::connect(socket).map_err(|_| Trouble::Lost)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(|error| Trouble::Wrong(error.into()))?;
        Ok(Self { reader: BufReader::new(stream), next_id: 0, answers: HashMap::new() })
    }

    pub(crate) fn send(&mut self, method: &str, params: &Value) -> Talk<u64> {
        self.next_id += 1;
        let call = json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params});
        let line = format!("{call}\n");
        self.reader.get_mut().write_all(line.as_bytes()).map_err(|_| Trouble::Lost)?;
        Ok(self.next_id)
    }

    /// The answer to a call, if it has come.
    pub(crate) fn take(&mut self, id: u64) -> Option<Answer> {
        self.answers.remove(&id)
    }

    /// Reads one message. An event is handed back with its subscription, an answer kept.
    pub(crate) fn read(&mut self) -> Talk<Option<(Value, Value)>> {
        let mut text = String::new();
        match self.reader.read_line(&mut text) {
            // A line that was cut by the end was never said.
            Ok(_) if !text.ends_with('\n') => return Err(Trouble::Lost),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                return Err(Trouble::Lost);
            }
            Err(error) => return Err(Trouble::Wrong(anyhow::Error::new(error).context("nothing more came"))),
        }
        let mut message: Value =
            serde_json::from_str(&text).map_err(|error| anyhow::anyhow!("not JSON ({error}): {text}"))?;
        if message.get("method").is_some() {
            let params = &mut message["params"];
            return Ok(Some((params["subscription"].take(), params["result"].take())));
        }
        let Some(id) = message["id"].as_u64() else {
            return Err(Trouble::Wrong(anyhow::anyhow!("an answer to nobody: {message}")));
        };
        let answer = match message.get("error") {
            // To be asked again of the next one, as if it had not been asked.
            Some(error) if error["message"] == LEAVING => return Err(Trouble::Lost),
            Some(error) => Err(RpcError::of(error)),
            None => Ok(message["result"].take()),
        };
        self.answers.insert(id, answer);
        Ok(None)
    }
}
