//! The plainest client: one JSON text a line over a Unix socket, nothing of agentd's own client code in between.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

/// How long anything may take before the bench gives up.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Line {
    reader: BufReader<UnixStream>,
    next_id: u64,
    /// Events that came while an answer was awaited.
    events: VecDeque<Value>,
    buffer: String,
}

impl Line {
    pub(crate) fn connect(socket: &Path) -> std::io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            reader: BufReader::new(stream),
            next_id: 0,
            events: VecDeque::new(),
            buffer: String::new(),
        })
    }

    /// Calls a method and waits for its result.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.next_id += 1;
        let id = self.next_id;
        let mut text = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
        text.push('\n');
        self.reader.get_mut().write_all(text.as_bytes()).with_context(|| format!("sending {method}"))?;
        loop {
            let mut message = self.read().with_context(|| format!("waiting for the answer to {method}"))?;
            if message.get("method").is_some() {
                self.events.push_back(message);
            } else if message["id"] == id {
                if let Some(error) = message.get("error") {
                    bail!("{method} answered {error}");
                }
                return Ok(message["result"].take());
            }
        }
    }

    /// The next event for which `wanted` holds; others are dropped.
    pub(crate) fn event(&mut self, mut wanted: impl FnMut(&Value) -> bool) -> anyhow::Result<Value> {
        loop {
            let mut message = match self.events.pop_front() {
                Some(message) => message,
                None => self.read().context("waiting for an event")?,
            };
            let event = message["params"]["result"].take();
            if wanted(&event) {
                return Ok(event);
            }
        }
    }

    fn read(&mut self) -> anyhow::Result<Value> {
        self.buffer.clear();
        if self.reader.read_line(&mut self.buffer)? == 0 {
            bail!("the daemon closed the connection");
        }
        serde_json::from_str(&self.buffer).with_context(|| format!("reading {:?}", self.buffer))
    }
}
