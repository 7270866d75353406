//! A client that watches one session, and what a test usually asks of it.

use serde_json::{Value, json};

use crate::{Daemon, Line, RpcError};

pub struct Chat {
    pub line: Line,
    pub id: String,
}

/// What became of one proposed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub tool: String,
    /// `allow`, `ask` or `deny`; every decision in order, joined by `,`.
    pub decision: String,
    /// The reason codes of those decisions.
    pub reason: String,
    /// `ok`, `error`, `denied`, `notRun`, `interrupted`; empty without a result.
    pub status: String,
    /// The result's own reason code, if it has one.
    pub why: String,
}

impl Chat {
    /// Makes a session and follows it from its first event.
    ///
    /// # Panics
    /// It cannot be made.
    #[must_use]
    pub fn start(daemon: &Daemon, params: Value) -> Self {
        let mut line = Line::connect_as(daemon.socket(), "test", "person");
        let made = line.call("session/new", params);
        let id = made["sessionId"].as_str().expect("a session id").to_owned();
        let mut chat = Self { line, id };
        chat.subscribe(0);
        chat
    }

    /// Follows a session that exists, from its first event.
    #[must_use]
    pub fn attach(daemon: &Daemon, id: &str, name: &str) -> Self {
        let line = Line::connect_as(daemon.socket(), name, "person");
        let mut chat = Self { line, id: id.to_owned() };
        chat.subscribe(0);
        chat
    }

    fn subscribe(&mut self, after: u64) {
        self.line.call("events/subscribe", json!({"sessionId": self.id, "afterSeq": after, "deltas": true}));
    }

    /// Prompts, and gives the turn's id.
    ///
    /// # Panics
    /// It is refused.
    pub fn prompt(&mut self, text: &str) -> String {
        self.prompt_with(text, json!({}))["turnId"].as_str().expect("a turn").to_owned()
    }

    /// Prompts with more parameters.
    pub fn prompt_with(&mut self, text: &str, more: Value) -> Value {
        self.on("session/prompt", json!({"content": [{"type": "text", "text": text}]}), more)
    }

    fn on(&mut self, method: &str, mut params: Value, more: Value) -> Value {
        params["sessionId"] = self.id.clone().into();
        for (name, value) in more.as_object().into_iter().flatten() {
            params[name] = value.clone();
        }
        self.line.call(method, params)
    }

    pub fn set_mode(&mut self, mode: &str) {
        self.on("session/setMode", json!({"mode": mode}), json!({}));
    }

    /// The session as it is now.
    pub fn state(&mut self) -> Value {
        self.on("session/get", json!({}), json!({}))["state"].take()
    }

    pub fn mode(&mut self) -> String {
        self.state()["mode"].as_str().unwrap_or_default().to_owned()
    }

    pub fn interrupt(&mut self) {
        self.on("session/interrupt", json!({}), json!({}));
    }

    /// The next approval that is asked for.
    pub fn approval(&mut self) -> Value {
        self.line.event_of("approvalRequested")
    }

    /// An answer to `approval`, as it was shown.
    #[must_use]
    pub fn answer_to(approval: &Value, choice: &str, more: Value) -> Value {
        let mut params =
            json!({"approvalId": approval["approvalId"], "choice": choice, "digest": approval["digest"]});
        if approval["kind"] == "plan" {
            params["revision"] = approval["plan"]["revision"].clone();
        }
        for (name, value) in more.as_object().into_iter().flatten() {
            params[name] = value.clone();
        }
        params
    }

    /// # Errors
    /// What the daemon answered.
    pub fn respond(&mut self, approval: &Value, choice: &str, more: Value) -> Result<Value, RpcError> {
        self.line.try_call("approval/respond", Self::answer_to(approval, choice, more))
    }

    /// Answers, and expects to win.
    ///
    /// # Panics
    /// It did not.
    pub fn choose(&mut self, approval: &Value, choice: &str) -> Value {
        let answered =
            self.respond(approval, choice, json!({})).unwrap_or_else(|error| panic!("{choice}: {error:?}"));
        assert_eq!(answered["status"], "accepted");
        answered
    }

    /// Waits for the end of the turn and gives its event.
    pub fn finished(&mut self) -> Value {
        self.line.event_of("turnFinished")
    }

    /// Waits for the end of the turn, and gives its outcome.
    ///
    /// # Panics
    /// The event has none.
    pub fn outcome(&mut self) -> String {
        self.finished()["outcome"].as_str().expect("an outcome").to_owned()
    }

    /// Events of a type so far.
    #[must_use]
    pub fn events(&self, kind: &str) -> Vec<&Value> {
        self.line.history.iter().filter(|event| event["type"] == kind).collect()
    }

    /// Every call so far: what the gate said, and how it ended.
    #[must_use]
    pub fn verdicts(&self) -> Vec<Verdict> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.events("toolCallStarted")
            .into_iter()
            .map(|started| {
                let of = |kind: &str| -> Vec<&Value> {
                    self.events(kind)
                        .into_iter()
                        .filter(|event| event["callId"] == started["callId"])
                        .collect()
                };
                let decided = of("permissionDecided");
                let all = |field: &str| {
                    decided.iter().map(|event| text(&event[field])).collect::<Vec<_>>().join(",")
                };
                let finished = of("toolCallFinished");
                assert!(finished.len() <= 1, "a call has two results: {finished:?}");
                let finished = finished.first().map(|event| (*event).clone()).unwrap_or_default();
                Verdict {
                    tool: text(&started["tool"]),
                    decision: all("decision"),
                    reason: all("reason"),
                    status: text(&finished["status"]),
                    why: text(&finished["reason"]),
                }
            })
            .collect()
    }

    /// The newest call of a tool.
    ///
    /// # Panics
    /// There was none.
    #[must_use]
    pub fn verdict(&self, tool: &str) -> Verdict {
        self.verdicts()
            .into_iter()
            .rfind(|verdict| verdict.tool == tool)
            .unwrap_or_else(|| panic!("no call of {tool}; seen so far:\n{}", self.line.seen()))
    }

    /// The results of all calls so far, as the model is told.
    #[must_use]
    pub fn results(&self) -> Vec<String> {
        let finished = self.events("toolCallFinished");
        finished.into_iter().map(|event| event["content"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

impl Verdict {
    /// `tool decision reason status why`, for tables.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { tool, decision, reason, status, why } = self;
        format!("{tool} {decision} {reason} {status} {why}").trim_end().to_owned()
    }
}
