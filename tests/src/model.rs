//! The scripted model server, as a process, and scripts for it.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde_json::{Map, Value, json};

use crate::{Home, PATIENCE, program};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    OpenaiChat,
    Anthropic,
}

impl Dialect {
    pub const BOTH: [Dialect; 2] = [Dialect::OpenaiChat, Dialect::Anthropic];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Dialect::OpenaiChat => "openai-chat",
            Dialect::Anthropic => "anthropic",
        }
    }
}

/// What the model says to which request. Steps answer in order within a context; rules before them go by what they match.
#[derive(Clone, Debug, Default)]
pub struct Script {
    rules: Vec<Value>,
    steps: Vec<Value>,
    faults: Vec<Value>,
}

/// One answer of the model.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    reply: Map<String, Value>,
    calls: Vec<Value>,
    fault: Option<Value>,
}

/// A call as a model makes it. `{{plan_path}}` in its arguments is the session's plan file.
#[must_use]
pub fn call(name: &str, arguments: Value) -> Reply {
    Reply::default().call(name, arguments)
}

impl Reply {
    #[must_use]
    pub fn text(text: &str) -> Self {
        let mut reply = Self::default();
        reply.reply.insert("text".into(), text.into());
        reply
    }

    /// One more call in the same message.
    #[must_use]
    pub fn call(mut self, name: &str, arguments: Value) -> Self {
        self.calls.push(json!({"name": name, "arguments": arguments}));
        self
    }

    /// A call whose arguments are this text, JSON or not.
    #[must_use]
    pub fn call_text(mut self, name: &str, arguments: &str) -> Self {
        self.calls.push(json!({"name": name, "arguments_text": arguments}));
        self
    }

    #[must_use]
    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.reply.insert(field.into(), value);
        self
    }

    /// What goes wrong with this answer, `times` times; absent: always.
    #[must_use]
    pub fn fault(mut self, times: Option<u32>, failure: Value) -> Self {
        let mut fault = json!({"do": failure});
        if let Some(times) = times {
            fault["times"] = times.into();
        }
        self.fault = Some(fault);
        self
    }

    fn rule(self, name: String, when: Value) -> Value {
        let mut reply = self.reply;
        reply.insert("calls".into(), self.calls.into());
        let mut rule = json!({"name": name, "when": when, "reply": reply});
        if let Some(fault) = self.fault {
            rule["fault"] = fault;
        }
        rule
    }
}

impl Script {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The next answer in order: the one after as many answers as there are steps before it.
    #[must_use]
    pub fn step(mut self, reply: Reply) -> Self {
        let at = self.steps.len();
        self.steps.push(reply.rule(format!("step{at}"), json!({"total_answers": at})));
        self
    }

    /// An answer to requests that fit; tried before the steps.
    #[must_use]
    pub fn rule(mut self, name: &str, when: Value, reply: Reply) -> Self {
        self.rules.push(reply.rule(name.to_owned(), when));
        self
    }

    /// What goes wrong first, whatever is asked.
    #[must_use]
    pub fn fault(mut self, failure: Value) -> Self {
        self.faults.push(json!({"do": failure}));
        self
    }

    fn json(self) -> String {
        let mut rules = self.rules;
        rules.extend(self.steps);
        rules.push(json!({"name": "rest", "reply": {"text": "That is all."}}));
        let plan = json!({"in": "any", "matches": "^Plan file: (.+)$", "pick": "last"});
        json!({"values": {"plan_path": plan}, "rules": rules, "faults": self.faults}).to_string()
    }
}

/// A running model server.
pub struct Model {
    child: Child,
    base_url: String,
    script: PathBuf,
    env: Vec<(&'static str, PathBuf)>,
    /// Keeps the port while nobody listens there, so that no other test is given it.
    kept: Option<OwnedFd>,
}

impl Model {
    /// Plays `script`.
    ///
    /// # Panics
    /// It does not start; the script is wrong.
    #[must_use]
    pub fn start(home: &Home, script: Script) -> Self {
        let file = home.path("script.json");
        std::fs::write(&file, script.json()).expect("the script");
        let (child, base_url) = playback(&file, &home.env(), None);
        Self { child, base_url, script: file, env: home.env(), kept: None }
    }

    /// Plays the script from its beginning at the same address, after [`Model::stop`]. Requests from before are forgotten.
    ///
    /// # Panics
    /// It was not stopped, or does not start.
    pub fn restart(&mut self) {
        assert!(self.kept.is_some(), "it was not stopped");
        let (child, base_url) = playback(&self.script, &self.env, Some(&self.base_url));
        assert_eq!(base_url, self.base_url);
        self.child = child;
        self.kept = None;
    }

    /// What to set as a provider's `base_url`.
    #[must_use]
    pub fn base_for(&self, dialect: Dialect) -> String {
        match dialect {
            Dialect::OpenaiChat => format!("{}/v1", self.base_url),
            Dialect::Anthropic => self.base_url.clone(),
        }
    }

    /// The bodies of all requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Value> {
        let log: Value = serde_json::from_str(&self.http("GET", "log")).expect("the log is JSON");
        log.as_array().expect("a list").iter().map(|entry| entry["body"].clone()).collect()
    }

    /// Waits until so many requests have come.
    #[must_use]
    pub fn requests_until(&self, count: usize) -> Vec<Value> {
        crate::eventually(&format!("{count} requests at the model server"), || {
            Some(self.requests()).filter(|requests| requests.len() >= count)
        })
    }

    /// Lets streams that hang go on.
    pub fn release(&self) {
        self.http("POST", "release");
    }

    fn http(&self, method: &str, path: &str) -> String {
        let (host, folder) = self.address();
        let mut stream = TcpStream::connect(host).expect("the model server");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let request = format!(
            "{method} /{folder}/{path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
    }

    fn address(&self) -> (&str, &str) {
        self.base_url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("its own address")
    }

    /// Ends it: nobody listens there until [`Model::restart`].
    ///
    /// # Panics
    /// Somebody else has taken its port.
    pub fn stop(&mut self) {
        self.kill();
        self.kept = Some(keep_port(self.address().0).expect("the port of a server that has ended"));
    }

    fn kill(&mut self) {
        // Fails only when the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a playback and waits for its address.
fn playback(script: &Path, env: &[(&'static str, PathBuf)], again: Option<&str>) -> (Child, String) {
    let mut child = Command::new(program("agentd"))
        .arg("playback")
        .arg(script)
        .args(again.map(|base_url| format!("--again={base_url}")))
        .env_clear()
        .envs(env.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("agentd playback");
    let mut said = String::new();
    let read = BufReader::new(child.stdout.take().expect("it was piped")).read_line(&mut said);
    let said: Result<Value, _> = serde_json::from_str(&said);
    match (read, said) {
        (Ok(_), Ok(said)) => (child, said["baseUrl"].as_str().expect("baseUrl").to_owned()),
        problem => {
            // Fails only when the process is gone already.
            let _ = child.kill();
            let _ = child.wait();
            panic!("the script is wrong, or its port taken: {problem:?}")
        }
    }
}

/// Takes an address without listening on it: whoever connects is refused, and only who asks for this port gets it.
fn keep_port(address: &str) -> io::Result<OwnedFd> {
    let address: SocketAddr = address.parse().map_err(io::Error::other)?;
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    // With this on both sides, a server may bind beside a socket that only holds the place.
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

impl Drop for Model {
    fn drop(&mut self) {
        self.kill();
    }
}
