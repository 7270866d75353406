//! What clients have been told, in one place: every event by its number, the same for all; and what follows from it.

use std::collections::{BTreeMap, HashMap};

use agentd_tests::RpcError;
use anyhow::{bail, ensure};
use serde_json::Value;

#[derive(Default)]
pub(crate) struct Seen {
    /// Journaled events by number, as the first client heard them.
    pub(crate) log: BTreeMap<u64, Value>,
    /// Events by type, those that are not journaled too; told again they count again.
    counts: HashMap<String, usize>,
    /// Approvals that wait, oldest first, as the first client knows them.
    pub(crate) pending: Vec<Value>,
    pub(crate) mode: String,
    /// The turn that runs.
    pub(crate) turn: Option<String>,
    /// All text that was streamed.
    pub(crate) streamed: String,
    /// The newest whole message of the model.
    pub(crate) said: String,
    /// The session as it was when it was last `synced`.
    pub(crate) state: Value,
    /// Calls that were answered, in the order of the answers.
    pub(crate) told: Vec<Told>,
}

/// An answered call.
pub(crate) struct Told {
    pub(crate) who: usize,
    pub(crate) method: &'static str,
    pub(crate) params: Value,
    pub(crate) answer: Result<Value, RpcError>,
}

/// The number of a journaled event; `synced` has one too, and is none.
pub(crate) fn number(event: &Value) -> Option<u64> {
    event["seq"].as_u64().filter(|_| event["type"] != "synced")
}

impl Seen {
    /// Takes an event that a client was sent. `leads`: it is the client whose view counts.
    pub(crate) fn take(&mut self, event: &Value, leads: bool) -> anyhow::Result<()> {
        // What a kill in the middle of a write has left is set aside, and everyone is told.
        let torn = event["text"].as_str().is_some_and(|text| text.contains("unfinished last line"));
        if event["type"] == "notice" && !(event["code"] == "journal" && torn) {
            bail!("the daemon has a complaint: {event}");
        }
        if let Some(seq) = number(event) {
            if let Some(before) = self.log.get(&seq) {
                ensure!(before == event, "event {seq} was told as\n  {before}\nand then as\n  {event}");
            } else {
                self.log.insert(seq, event.clone());
            }
        }
        if leads {
            self.follow(event)?;
        }
        Ok(())
    }

    fn follow(&mut self, event: &Value) -> anyhow::Result<()> {
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let kind = text("type");
        *self.counts.entry(kind.clone()).or_default() += 1;
        match kind.as_str() {
            "sessionCreated" => self.mode = text("mode"),
            "modeChanged" => self.mode = text("to"),
            "turnStarted" => self.turn = Some(text("turnId")),
            "turnFinished" => self.turn = None,
            "messageDelta" => self.streamed.push_str(&text("text")),
            "message" if event["role"] == "assistant" => self.said = text("text"),
            "approvalRequested" => self.pending.push(event.clone()),
            "approvalChanged" => {
                self.pending.retain(|pending| pending["approvalId"] != event["approvalId"]);
                self.pending.push(event.clone());
            }
            "approvalResolved" => {
                self.pending.retain(|pending| pending["approvalId"] != event["approvalId"]);
            }
            "synced" => {
                self.agrees(&event["state"])?;
                for text in event["state"]["text"].as_array().into_iter().flatten() {
                    self.streamed.push_str(text["text"].as_str().unwrap_or_default());
                }
                self.state = event["state"].clone();
            }
            _ => {}
        }
        Ok(())
    }

    /// The state that comes with `synced` is what the events before it make.
    fn agrees(&self, state: &Value) -> anyhow::Result<()> {
        ensure!(
            state["mode"] == self.mode.as_str(),
            "events make the mode {}, the state is {state}",
            self.mode
        );
        let ids = |list: &[Value]| -> Vec<Value> {
            list.iter().map(|approval| approval["approvalId"].clone()).collect()
        };
        let (waiting, known) =
            (ids(state["approvals"].as_array().map_or(&[][..], Vec::as_slice)), ids(&self.pending));
        ensure!(waiting == known, "events leave {known:?} waiting, the state has {waiting:?}");
        let turn = state["turnId"].as_str();
        ensure!(turn == self.turn.as_deref(), "events leave turn {:?}, the state has {turn:?}", self.turn);
        Ok(())
    }

    pub(crate) fn first_turn(&self) -> &Value {
        let mut events = self.log.values();
        events.find(|event| event["type"] == "turnStarted").map_or(&Value::Null, |event| &event["turnId"])
    }

    pub(crate) fn count(&self, kind: &str) -> usize {
        self.counts.get(kind).copied().unwrap_or_default()
    }

    /// Everything so far, for a failed test.
    pub(crate) fn text(&self) -> String {
        let short = |text: String| -> String { text.chars().take(400).collect() };
        let events = self.log.values().map(|event| short(event.to_string()));
        let told = self.told.iter().map(|told| {
            short(format!("client {} {} {} -> {:?}", told.who, told.method, told.params, told.answer))
        });
        events.chain(told).collect::<Vec<_>>().join("\n")
    }
}
