//! Turns out of events: what was said, called, asked and changed, each thing once and with how it ended. Pure.

use std::collections::VecDeque;

use agentd_protocol::approval::{Approval, By, ChoiceId, Subject};
use agentd_protocol::event::{Event, EventBody, ResetReason, Resolution, Role, Text, ToolStatus};
use agentd_protocol::permission::Decision;
use agentd_protocol::session::Origin;
use agentd_protocol::turn::{Denial, Outcome, Usage};
use agentd_protocol::{CallId, MessageId, Seq, Timestamp};
use serde_json::Value;

use crate::cli::follow::told;
use crate::render::Line;
use crate::render::line::Changed;

/// One turn, or what came before the first one that is shown.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// Counted from 1 by the `turnStarted` events of the session. Absent: events that belong to no turn.
    pub(crate) number: Option<u64>,
    pub(crate) started: Option<Timestamp>,
    /// The number of its first event.
    pub(crate) begun: Seq,
    /// When a rewind made the model forget it.
    pub(crate) forgotten: Option<Timestamp>,
    pub(crate) origin: Option<Origin>,
    pub(crate) ended: Option<Ended>,
    pub(crate) entries: Vec<Entry>,
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    pub(crate) error: Option<String>,
    pub(crate) usage: Usage,
    pub(crate) denials: Vec<Denial>,
}

#[derive(Debug)]
pub(crate) enum Entry {
    /// What a person, or whoever the turn's origin is, told the model.
    Prompt(Text),
    Answer(Answer),
    Call(Box<Call>),
    Asked(Box<Asked>),
    /// The model gave none, so many times in a row.
    NoAnswer {
        reason: String,
        times: u32,
    },
    /// A remark at the side.
    Note(Line),
}

/// The tool that presents a plan.
const LEAVE_PLAN: &str = "exit_plan_mode";

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) id: MessageId,
    pub(crate) text: Text,
    pub(crate) thinking: Option<Text>,
    pub(crate) incomplete: bool,
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) id: CallId,
    pub(crate) tool: String,
    pub(crate) title: String,
    pub(crate) input: Value,
    pub(crate) decided: Vec<Decided>,
    pub(crate) result: Option<CallResult>,
    pub(crate) files: Vec<(String, Changed)>,
}

#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) decision: Decision,
    pub(crate) reason: String,
    pub(crate) rule: Option<String>,
    pub(crate) note: Option<String>,
}

#[derive(Debug)]
pub(crate) struct CallResult {
    pub(crate) status: ToolStatus,
    pub(crate) reason: Option<String>,
    pub(crate) content: Text,
    pub(crate) diff: Option<Text>,
}

/// A question to a person.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) approval: Approval,
    pub(crate) settled: Option<Settled>,
}

#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) resolution: Resolution,
    pub(crate) choice: Option<ChoiceId>,
    pub(crate) by: By,
    pub(crate) feedback: Option<String>,
}

/// The model was made to forget the turns that began from one event on, and before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rewind {
    from: Seq,
    before: Seq,
    at: Timestamp,
}

impl Rewind {
    pub(crate) fn of(event: &Event) -> Option<Self> {
        match event.body {
            EventBody::ContextReset { reason: ResetReason::Rewind, from: Some(from) } => {
                Some(Self { from, before: event.seq?, at: event.at? })
            }
            _ => None,
        }
    }

    fn covers(&self, begun: Seq) -> bool {
        self.from <= begun && begun < self.before
    }
}

/// Takes events in order, gives turns.
#[derive(Debug)]
pub(crate) struct Transcript {
    /// Rewinds that are known before their events are taken.
    rewinds: Vec<Rewind>,
    turns: VecDeque<Turn>,
    /// Of the turn that begins next.
    next_number: u64,
}

impl Transcript {
    /// `earlier` turns came before the first event that will be taken.
    pub(crate) fn after(earlier: u64) -> Self {
        Self { rewinds: Vec::new(), turns: VecDeque::from([Turn::default()]), next_number: earlier + 1 }
    }

    /// With rewinds that came after the events that will be taken.
    pub(crate) fn knowing(self, rewinds: Vec<Rewind>) -> Self {
        Self { rewinds, ..self }
    }

    /// Takes out the turns to which nothing more can be added.
    pub(crate) fn take_complete(&mut self) -> Vec<Turn> {
        let keep = self.turns.len().min(1);
        self.turns.drain(..self.turns.len() - keep).collect()
    }

    /// Takes out the rest.
    pub(crate) fn take_rest(mut self) -> Vec<Turn> {
        self.turns.drain(..).collect()
    }

    fn turn(&mut self) -> &mut Turn {
        if self.turns.is_empty() {
            self.turns.push_back(Turn::default());
        }
        let last = self.turns.len() - 1;
        &mut self.turns[last]
    }

    fn add(&mut self, entry: Entry) {
        if self.turn().ended.is_some() {
            // Between two turns.
            self.turns.push_back(Turn::default());
        }
        self.turn().entries.push(entry);
    }

    fn call(&mut self, id: &CallId) -> Option<&mut Call> {
        self.turn().entries.iter_mut().rev().find_map(|entry| match entry {
            Entry::Call(call) if call.id == *id => Some(call.as_mut()),
            _ => None,
        })
    }

    pub(crate) fn take(&mut self, event: Event) {
        let (at, origin) = (event.at, event.origin);
        let begun = event.seq.unwrap_or_default();
        if let Some(rewind) = Rewind::of(&event) {
            for turn in
                self.turns.iter_mut().filter(|turn| turn.number.is_some() && rewind.covers(turn.begun))
            {
                turn.forgotten = turn.forgotten.or(Some(rewind.at));
            }
        }
        match event.body {
            EventBody::TurnStarted {} => {
                let number = Some(self.next_number);
                self.next_number += 1;
                let forgotten =
                    self.rewinds.iter().find(|rewind| rewind.covers(begun)).map(|rewind| rewind.at);
                self.turns.push_back(Turn {
                    number,
                    started: at,
                    begun,
                    forgotten,
                    origin,
                    ..Turn::default()
                });
            }
            EventBody::TurnFinished { outcome, usage, denials, error } => {
                self.turn().ended = Some(Ended { outcome, error, usage, denials });
            }
            EventBody::Message { message_id, role, text, thinking, incomplete, .. } => match role {
                Role::User => self.add(Entry::Prompt(text)),
                Role::Assistant => {
                    self.add(Entry::Answer(Answer { id: message_id, text, thinking, incomplete }));
                }
                Role::System => {}
            },
            EventBody::ToolCallStarted { call_id, tool, title, input, .. } => {
                let (decided, files) = (Vec::new(), Vec::new());
                let title = if title.trim().is_empty() { tool.clone() } else { title };
                let call = Call { id: call_id, tool, title, input, decided, result: None, files };
                self.add(Entry::Call(Box::new(call)));
            }
            EventBody::PermissionDecided { call_id, decision, reason, rule, note, .. } => {
                if let Some(call) = self.call(&call_id) {
                    call.decided.push(Decided { decision, reason, rule, note });
                }
            }
            EventBody::ToolCallFinished { call_id, status, reason, content, diff } => {
                if let Some(call) = self.call(&call_id) {
                    call.result = Some(CallResult { status, reason, content, diff });
                }
            }
            EventBody::FileChanged { path, after, added, removed, call_id, .. } => {
                let changed = Changed {
                    added: added.into(),
                    removed: removed.into(),
                    gone: after.is_none(),
                    what: None,
                };
                if let Some(call) = self.call(&call_id) {
                    call.files.push((path, changed));
                }
            }
            EventBody::ApprovalRequested(approval) => {
                self.ask(Asked { approval, settled: None });
            }
            EventBody::ApprovalChanged(approval) => {
                if let Some(asked) = self.asked(&approval.approval_id) {
                    asked.approval = approval;
                }
            }
            EventBody::ApprovalResolved { approval_id, resolution, choice, by, feedback } => {
                if let Some(asked) = self.asked(&approval_id) {
                    asked.settled = Some(Settled { resolution, choice, by, feedback });
                }
            }
            EventBody::MessageAborted { reason, .. } => self.no_answer(reason),
            body => {
                if let Some(line) = told(&body) {
                    self.add(Entry::Note(line));
                }
            }
        }
    }

    /// A question stands before the call that it is about: its answer comes first, too.
    fn ask(&mut self, asked: Asked) {
        let about = match &asked.approval.subject {
            Subject::Tool { tool } => Some(&tool.call_id),
            Subject::Question { question } => Some(&question.call_id),
            Subject::Plan { .. } | Subject::Trust { .. } => None,
        };
        let is_about = |call: &Call| match about {
            Some(id) => call.id == *id,
            None => call.tool == LEAVE_PLAN && call.result.is_none(),
        };
        let turn = self.turn();
        let place =
            turn.entries.iter().rposition(|entry| matches!(entry, Entry::Call(call) if is_about(call)));
        match place {
            Some(place) => turn.entries.insert(place, Entry::Asked(Box::new(asked))),
            None => self.add(Entry::Asked(Box::new(asked))),
        }
    }

    /// The model gave no answer. The same reason again is counted, not told again.
    fn no_answer(&mut self, reason: String) {
        if let Some(Entry::NoAnswer { reason: told, times }) = self.turn().entries.last_mut() {
            // The last attempt's reason may say how many there were.
            if reason.starts_with(told.as_str()) {
                *told = reason;
                *times += 1;
                return;
            }
        }
        self.add(Entry::NoAnswer { reason, times: 1 });
    }

    fn asked(&mut self, id: &agentd_protocol::ApprovalId) -> Option<&mut Asked> {
        self.turn().entries.iter_mut().rev().find_map(|entry| match entry {
            Entry::Asked(asked) if asked.approval.approval_id == *id => Some(asked.as_mut()),
            _ => None,
        })
    }
}
