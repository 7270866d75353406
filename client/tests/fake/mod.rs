//! A scripted daemon on a Unix socket, and agentctl run against it, with pipes or on a terminal of its own.

use std::collections::HashMap;
use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const SESSION: &str = "0193aaaa-0000-7000-8000-000000000001";
/// Stands in answers for the folder that agentctl is called in.
pub(crate) const HERE: &str = "@here";
pub(crate) const APPROVAL: &str = "0193aaaa-0000-7000-8000-000000000001:a:9b1c0000deadbeef";

/// What a method answers: a result or an error object, and events that follow on the newest subscription.
pub(crate) struct Reply {
    pub(crate) answer: Result<Value, Value>,
    pub(crate) events: Vec<Value>,
    /// Ends the connection after this.
    pub(crate) hang_up: bool,
}

pub(crate) fn ok(result: Value) -> Reply {
    Reply { answer: Ok(result), events: Vec::new(), hang_up: false }
}

pub(crate) fn error(code: i32, kind: &str, data: Value) -> Reply {
    let mut data = data;
    data["kind"] = kind.into();
    Reply {
        answer: Err(json!({"code": code, "message": kind, "data": data})),
        events: Vec::new(),
        hang_up: false,
    }
}

impl Reply {
    pub(crate) fn then(mut self, events: Vec<Value>) -> Self {
        self.events = events;
        self
    }
}

type Script = Box<dyn Fn(&Value) -> Reply + Send + Sync>;

struct Inner {
    /// The folder that agentctl is called in.
    here: String,
    script: HashMap<String, Script>,
    calls: Mutex<Vec<(String, Value)>>,
    called: Condvar,
    /// The connection and id of the newest subscription.
    feed: Mutex<Option<(UnixStream, String)>>,
}

/// The daemon.
pub(crate) struct Fake {
    inner: Arc<Inner>,
    pub(crate) folder: TempDir,
}

impl Fake {
    /// Listens, answering each method by its script.
    pub(crate) fn start(script: Vec<(&str, Script)>) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("ctl")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in("/tmp")
            .unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        let inner = Arc::new(Inner {
            here: folder.path().canonicalize().unwrap().display().to_string(),
            script: script.into_iter().map(|(method, script)| (method.to_owned(), script)).collect(),
            calls: Mutex::default(),
            called: Condvar::new(),
            feed: Mutex::default(),
        });
        let shared = Arc::clone(&inner);
        // Ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let inner = Arc::clone(&shared);
                thread::spawn(move || inner.serve(stream));
            }
        });
        Self { inner, folder }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    /// Sends an event on the newest subscription.
    pub(crate) fn send(&self, event: Value) {
        self.inner.send(event);
    }

    /// The parameters of every call of `method` so far.
    pub(crate) fn calls(&self, method: &str) -> Vec<Value> {
        let calls = self.inner.calls.lock().unwrap();
        calls.iter().filter(|(name, _)| name == method).map(|(_, params)| params.clone()).collect()
    }

    /// Waits until `method` has been called, and answers its parameters.
    pub(crate) fn wait_for(&self, method: &str) -> Value {
        let mut calls = self.inner.calls.lock().unwrap();
        loop {
            if let Some((_, params)) = calls.iter().rev().find(|(name, _)| name == method) {
                return params.clone();
            }
            calls = self.inner.called.wait(calls).unwrap();
        }
    }

    pub(crate) fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.folder.path())
            .env("TERM", "xterm")
            .env("TMPDIR", self.folder.path());
        command
    }

    /// agentctl with pipes.
    pub(crate) fn agentctl(&self, args: &[&str]) -> Output {
        self.agentctl_with(args, &[], "")
    }

    pub(crate) fn agentctl_with(&self, args: &[&str], env: &[(&str, &str)], input: &str) -> Output {
        let socket = self.socket();
        let mut all = vec!["--socket", socket.to_str().unwrap()];
        all.extend(args);
        let mut child = self
            .command(env!("CARGO_BIN_EXE_agentctl"), &all)
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that does not read its input closes it early.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// agentctl whose stdout nobody reads.
    pub(crate) fn agentctl_unread(&self, args: &[&str]) -> Output {
        let socket = self.socket();
        let mut all = vec!["--socket", socket.to_str().unwrap()];
        all.extend(args);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = self.command(env!("CARGO_BIN_EXE_agentctl"), &all);
        command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped());
        command.spawn().unwrap().wait_with_output().unwrap()
    }

    /// agentctl on a terminal of 80 columns.
    pub(crate) fn terminal(&self, args: &[&str], env: &[(&str, &str)]) -> Pty {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize { ws_row: 40, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&master, size).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let end = || File::options().read(true).write(true).open(&path).unwrap();
        let socket = self.socket();
        let program = env!("CARGO_BIN_EXE_agentctl");
        let mut all = vec!["--ctty", "--wait", program, "--socket", socket.to_str().unwrap()];
        all.extend(args);
        let child = self
            .command("setsid", &all)
            .envs(env.iter().copied())
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        Pty { reader: File::from(master.try_clone().unwrap()), master, child, seen: String::new(), path }
    }
}

impl Inner {
    fn serve(&self, stream: UnixStream) {
        let mut writer = stream.try_clone().unwrap();
        let mut n_subscriptions = 0;
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            let call: Value = serde_json::from_str(&line).unwrap();
            let Some(id) = call.get("id").cloned() else { continue };
            let method = call["method"].as_str().unwrap().to_owned();
            let params = call.get("params").cloned().unwrap_or(Value::Null);
            let reply = match (method.as_str(), self.script.get(&method)) {
                (_, Some(script)) => script(&params),
                ("initialize", None) => ok(json!({
                    "protocolVersion": 1,
                    "serverInfo": {"name": "agentd", "version": "0", "build": "b", "daemonId": SESSION},
                    "capabilities": {}, "methods": [], "events": [],
                })),
                _ => ok(json!({})),
            };
            // Before the answer, so that whoever has seen its effect finds the call.
            self.calls.lock().unwrap().push((method.clone(), params));
            let mut answer = json!({"jsonrpc": "2.0", "id": id});
            match reply.answer {
                Ok(_) if method == "events/subscribe" => {
                    n_subscriptions += 1;
                    let name = format!("s{n_subscriptions}");
                    answer["result"] = name.clone().into();
                    *self.feed.lock().unwrap() = Some((writer.try_clone().unwrap(), name));
                }
                Ok(result) => answer["result"] = result,
                Err(error) => answer["error"] = error,
            }
            // At once: a test may send an event on the same stream at this moment.
            let answer = answer.to_string().replace(HERE, &self.here);
            writer.write_all(format!("{answer}\n").as_bytes()).unwrap();
            for event in reply.events {
                self.send(event);
            }
            self.called.notify_all();
            if reply.hang_up {
                let _ = writer.shutdown(std::net::Shutdown::Both);
                return;
            }
        }
    }

    fn send(&self, event: Value) {
        let feed = self.feed.lock().unwrap();
        let (stream, id) = feed.as_ref().expect("nobody has subscribed");
        let mut stream = stream;
        let message = json!({"jsonrpc": "2.0", "method": "events/event", "params": {"subscription": id, "result": event}});
        stream.write_all(format!("{message}\n").as_bytes()).unwrap();
    }
}

/// agentctl on a terminal, seen from the person's side.
pub(crate) struct Pty {
    master: OwnedFd,
    reader: File,
    child: Child,
    /// Everything that was printed and not yet passed over.
    seen: String,
    path: String,
}

impl Pty {
    /// Reads until `text` was printed, and answers everything up to and with it.
    pub(crate) fn expect(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            let mut buffer = [0; 4096];
            match self.reader.read(&mut buffer) {
                Ok(n) if n > 0 => self.seen.push_str(&String::from_utf8_lossy(&buffer[..n])),
                _ => panic!("{text:?} was never printed; the last of it: {}", self.seen),
            }
        }
    }

    pub(crate) fn type_text(&mut self, text: &str) {
        self.reader.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until typing shows: agentctl turns echo on once it takes answers.
    pub(crate) fn wait_until_it_listens(&mut self) {
        while !self.echoes() {
            thread::yield_now();
        }
    }

    /// Waits until keys are taken one by one.
    pub(crate) fn wait_until_it_hears_keys(&mut self) {
        let modes = |end: &OwnedFd| rustix::termios::tcgetattr(end).unwrap().local_modes;
        while modes(&self.master).contains(LocalModes::ICANON) {
            thread::yield_now();
        }
    }

    pub(crate) fn echoes(&self) -> bool {
        rustix::termios::tcgetattr(&self.master).unwrap().local_modes.contains(LocalModes::ECHO)
    }

    /// Waits for the end; answers what was still printed and the exit code.
    pub(crate) fn finish(mut self) -> (String, i32) {
        // Keeps the terminal alive until its settings have been looked at.
        let end = File::open(&self.path).unwrap();
        let status = self.child.wait().unwrap();
        assert!(self.echoes(), "the terminal was not put back");
        drop(end);
        let mut buffer = [0; 4096];
        while let Ok(n) = self.reader.read(&mut buffer) {
            if n == 0 {
                break;
            }
            self.seen.push_str(&String::from_utf8_lossy(&buffer[..n]));
        }
        (self.seen, status.code().unwrap_or(-1))
    }
}

pub(crate) fn state(mode: &str, activity: &str, approvals: Value) -> Value {
    json!({
        "sessionId": SESSION, "handle": "api-otter", "title": null, "parent": null, "cwd": "/tmp", "mode": mode,
        "preMode": if mode == "plan" { json!("default") } else { Value::Null },
        "model": {"provider": "anthropic", "model": "m", "reason": "the only key found"},
        "createdAt": "2026-01-01T00:00:00.000Z", "updatedAt": "2026-01-01T00:00:00.000Z", "activity": activity,
        "turnId": null, "waitingFor": [], "lastOutcome": null, "health": "ok", "seq": 1, "plan": null,
        "approvals": approvals, "calls": [], "text": [], "inbox": [], "inboxHeld": false, "tasks": [], "todo": [],
        "usage": {},
    })
}

pub(crate) fn plan_approval(content: &str) -> Value {
    json!({
        "approvalId": APPROVAL, "kind": "plan", "title": "Plan",
        "plan": {"path": "/plans/p.md", "revision": digest('3'), "content": content, "diff": null, "cycle": 1},
        "choices": [
            {"id": "clearAndExecute", "label": "Start fresh", "modeAfter": "acceptEdits"},
            {"id": "execute", "label": "Start", "modeAfter": "acceptEdits"},
            {"id": "manualExecute", "label": "Start asking", "modeAfter": "default"},
            {"id": "keepPlanning", "label": "Keep planning", "modeAfter": "plan"},
        ],
        "digest": digest('7'), "expiresAt": null, "requestedAt": "2026-01-01T00:00:00.000Z",
    })
}

pub(crate) fn waiting(approval: Value) -> Value {
    let mut waiting = approval;
    waiting["sessionId"] = SESSION.into();
    waiting["handle"] = "api-otter".into();
    waiting["cwd"] = HERE.into();
    waiting["mode"] = "plan".into();
    waiting
}

pub(crate) fn digest(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

/// A journaled event.
pub(crate) fn event(seq: u64, turn: &Value, body: Value) -> Value {
    let mut event = body;
    event["seq"] = seq.into();
    event["sessionId"] = SESSION.into();
    if !turn.is_null() {
        event["turnId"] = turn.clone();
    }
    event
}

pub(crate) fn synced(state: Value) -> Value {
    json!({"type": "synced", "sessionId": SESSION, "seq": 1, "state": state})
}
