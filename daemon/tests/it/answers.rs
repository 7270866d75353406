//! Approvals and their answers, over the socket of the real daemon, when something else happened first.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::served::{Client, Daemon, root};

/// A session whose plan waits for a person. The demo's model writes and presents it.
struct Waiting {
    _root: tempfile::TempDir,
    _project: tempfile::TempDir,
    daemon: Daemon,
    session: Value,
    approval: Value,
}

impl Waiting {
    fn new() -> Self {
        let (root, project) = (root(), tempfile::tempdir().unwrap());
        let daemon = Daemon::start(root.path());
        let mut client = Client::connect(&daemon.socket);
        let new = json!({ "cwd": project.path(), "model": "demo/tour", "mode": "plan" });
        let session = client.call("session/new", &new).unwrap()["sessionId"].take();
        let prompt = json!({ "sessionId": session, "content": [{ "type": "text", "text": "Plan it" }] });
        client.call("session/prompt", &prompt).unwrap();
        let approval = loop {
            let state = client.call("session/get", &json!({ "sessionId": session })).unwrap();
            assert_ne!(state["state"]["activity"], "idle", "the demo presented no plan: {state}");
            let waiting = state.pointer("/state/approvals/0");
            if let Some(approval) = waiting.filter(|approval| approval["kind"] == "plan") {
                break approval.clone();
            }
        };
        Self { _root: root, _project: project, daemon, session, approval }
    }

    fn answer(&self, more: &Value) -> Result<Value, i64> {
        let approval = &self.approval;
        let mut answer = json!({
            "approvalId": approval["approvalId"],
            "digest": approval["digest"],
            "revision": approval["plan"]["revision"],
        });
        for (name, value) in more.as_object().unwrap() {
            answer[name] = value.clone();
        }
        Client::connect(&self.daemon.socket).call("approval/respond", &answer)
    }

    fn mode(&self) -> Value {
        let get = json!({ "sessionId": self.session });
        Client::connect(&self.daemon.socket).call("session/get", &get).unwrap()["state"]["mode"].take()
    }
}

#[test]
fn what_is_not_in_the_file_any_more_is_not_approved() {
    let waiting = Waiting::new();
    let path = waiting.approval["plan"]["path"].as_str().unwrap();
    std::fs::write(path, "").unwrap();
    assert_eq!(waiting.answer(&json!({ "choice": "execute" })), Err(-32053));
    assert_eq!(waiting.mode(), "plan");
}

#[test]
fn only_the_very_same_answer_is_told_again_that_it_won() {
    let waiting = Waiting::new();
    let first = json!({ "choice": "execute", "mode": "default" });
    assert!(waiting.answer(&first).is_ok());
    assert!(waiting.answer(&first).is_ok(), "its answer may have been lost on the way");
    for other in [
        json!({ "choice": "execute" }),
        json!({ "choice": "execute", "mode": "default", "feedback": "but keep the tests" }),
        json!({ "choice": "execute", "mode": "default", "editedPlan": "# Another" }),
    ] {
        assert_eq!(waiting.answer(&other), Err(-32051), "{other}");
    }
}

/// It used to be an event of any size, and above the journal's limit a turn that never ended.
#[test]
fn what_is_too_large_to_be_shown_is_not_asked() {
    let (root, project) = (root(), tempfile::tempdir().unwrap());
    let call = json!({ "name": "write_file", "arguments": { "file_path": "big", "content": "x".repeat(600 << 10) } });
    let script = json!({ "rules": [
        { "name": "big", "when": { "answers": 0 }, "reply": { "calls": [call], "pace": { "chunk": 1 << 20, "delay_ms": 0 } } },
        { "name": "rest", "reply": { "text": "{{result}}" } },
    ]});
    let file = root.path().join("script.json");
    std::fs::write(&file, script.to_string()).unwrap();
    let mut model = Command::new(env!("CARGO_BIN_EXE_agentd"))
        .arg("playback")
        .arg(&file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut base = String::new();
    BufReader::new(model.stdout.take().unwrap()).read_line(&mut base).unwrap();
    let base: Value = serde_json::from_str(&base).unwrap();
    let config = root.path().join(".config/agentd");
    std::fs::create_dir_all(&config).unwrap();
    let settings = format!(
        "[providers.test]\ndialect = \"openai-chat\"\nbase_url = \"{}/v1\"\n",
        base["baseUrl"].as_str().unwrap()
    );
    std::fs::write(config.join("config.toml"), settings).unwrap();

    let daemon = Daemon::start(root.path());
    let mut client = Client::connect(&daemon.socket);
    let new = json!({ "cwd": project.path(), "model": "test/x" });
    let session = client.call("session/new", &new).unwrap()["sessionId"].take();
    let prompt = json!({ "sessionId": session, "content": [{ "type": "text", "text": "Write it" }] });
    let turn = client.call("session/prompt", &prompt).unwrap()["turnId"].take();
    let end = client.call("turn/wait", &json!({ "sessionId": session, "turnId": turn })).unwrap();
    model.kill().unwrap();
    model.wait().unwrap();
    assert!(end["text"].as_str().unwrap().contains("too large to be shown"), "{end}");
    assert!(!project.path().join("big").exists());
}
