//! The plainest client: one JSON text a line over a Unix socket, and nothing of agentd's own client code in between.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::PATIENCE;

/// An error that the daemon answered.
#[derive(Clone, Debug, PartialEq)]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    pub data: Value,
}

impl RpcError {
    #[must_use]
    pub fn of(error: &Value) -> Self {
        Self {
            code: error["code"].as_i64().unwrap_or_default(),
            message: error["message"].as_str().unwrap_or_default().to_owned(),
            data: error["data"].clone(),
        }
    }
}

pub struct Line {
    reader: BufReader<UnixStream>,
    next_id: u64,
    answers: HashMap<u64, Value>,
    waiting: VecDeque<Value>,
    /// Every event so far, in order, taken or not.
    pub history: Vec<Value>,
}

impl Line {
    /// Connects without a word of introduction, as a script would.
    ///
    /// # Panics
    /// Nobody listens.
    #[must_use]
    pub fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket)
            .unwrap_or_else(|error| panic!("cannot connect to {}: {error}", socket.display()));
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self {
            reader: BufReader::new(stream),
            next_id: 0,
            answers: HashMap::new(),
            waiting: VecDeque::new(),
            history: Vec::new(),
        }
    }

    /// Connects and says who it is: `actor` is `person` or `program`.
    #[must_use]
    pub fn connect_as(socket: &Path, name: &str, actor: &str) -> Self {
        let mut line = Self::connect(socket);
        line.call(
            "initialize",
            json!({"protocolVersion": 1, "clientInfo": {"name": name, "version": "1", "actor": actor}, "capabilities": {}}),
        );
        line
    }

    /// Sends a call; [`Line::answer`] waits for what comes back.
    pub fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        id
    }

    pub fn notify(&mut self, method: &str, params: Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    /// Writes one line as it stands.
    ///
    /// # Panics
    /// The daemon does not take it.
    pub fn write(&mut self, text: &str) {
        let mut line = text.to_owned();
        line.push('\n');
        self.reader.get_mut().write_all(line.as_bytes()).expect("the daemon takes what is written");
    }

    /// # Errors
    /// What the daemon answered.
    pub fn answer(&mut self, id: u64) -> Result<Value, RpcError> {
        loop {
            if let Some(mut answer) = self.answers.remove(&id) {
                return match answer.get("error") {
                    Some(error) => Err(RpcError::of(error)),
                    None => Ok(answer["result"].take()),
                };
            }
            self.pump(&format!("the answer to call {id}"));
        }
    }

    /// # Errors
    /// What the daemon answered.
    pub fn try_call(&mut self, method: &str, params: Value) -> Result<Value, RpcError> {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// # Panics
    /// The daemon answered with an error.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        let shown = params.to_string();
        self.try_call(method, params).unwrap_or_else(|error| panic!("{method} {shown} answered {error:?}"))
    }

    /// The error that a call is answered with.
    ///
    /// # Panics
    /// It worked.
    pub fn refused(&mut self, method: &str, params: Value) -> RpcError {
        let shown = params.to_string();
        match self.try_call(method, params) {
            Err(error) => error,
            Ok(result) => panic!("{method} {shown} worked: {result}"),
        }
    }

    /// The next event for which `wanted` holds; others are passed over.
    pub fn event(&mut self, what: &str, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        loop {
            while let Some(event) = self.waiting.pop_front() {
                if wanted(&event) {
                    return event;
                }
            }
            self.pump(what);
        }
    }

    /// The next event of a type.
    pub fn event_of(&mut self, kind: &str) -> Value {
        self.event(kind, |event| event["type"] == kind)
    }

    /// Reads one whole message, whatever it is; absent when the daemon has closed.
    #[must_use]
    pub fn read(&mut self) -> Option<Value> {
        let mut text = String::new();
        match self.reader.read_line(&mut text) {
            Ok(0) => None,
            Ok(_) => Some(serde_json::from_str(&text).unwrap_or_else(|_| panic!("not JSON: {text:?}"))),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("nothing more came ({error}); seen so far:\n{}", self.seen()),
        }
    }

    fn pump(&mut self, what: &str) {
        let Some(message) = self.read() else {
            panic!("the daemon closed the connection before {what}; seen so far:\n{}", self.seen());
        };
        self.take(message);
    }

    fn take(&mut self, mut message: Value) {
        if message.get("method").is_some() {
            let event = message["params"]["result"].take();
            self.history.push(event.clone());
            self.waiting.push_back(event);
        } else if let Some(id) = message["id"].as_u64() {
            self.answers.insert(id, message);
        } else {
            panic!("an answer to nobody: {message}");
        }
    }

    /// Everything until the daemon closes, as events in order.
    pub fn rest(&mut self) -> &[Value] {
        while let Some(message) = self.read() {
            self.take(message);
        }
        &self.history
    }

    /// Everything so far, one event a line, for messages.
    #[must_use]
    pub fn seen(&self) -> String {
        self.history
            .iter()
            .map(|event| {
                let mut line = event.to_string();
                if let Some((at, _)) = line.char_indices().nth(600) {
                    line.truncate(at);
                }
                line
            })
            .collect::<Vec<_>>()
            .join("\n")
    }
}
