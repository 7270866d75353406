//! The lines of tool calls. The calls of one answer come all at once and then run one after the other; each is named
//! when it is its turn, so that what it did stands directly below it.

use agentd_protocol::CallId;
use agentd_protocol::event::ToolKind;

use super::Output;
use crate::render::{Line, Style};

#[derive(Debug)]
struct Call {
    id: CallId,
    title: String,
    kind: ToolKind,
    /// Whether its line is on the screen.
    named: bool,
}

/// Calls without a result, oldest first.
#[derive(Debug, Default)]
pub(super) struct Calls {
    open: Vec<Call>,
    /// The call whose line is the newest of such lines.
    last_named: Option<CallId>,
}

impl Calls {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn title(&self, id: &CallId) -> Option<&str> {
        self.open.iter().find(|call| call.id == *id).map(|call| call.title.as_str())
    }

    /// Whether it runs a command.
    pub(super) fn is_command(&self, id: &CallId) -> bool {
        self.open.iter().any(|call| call.id == *id && call.kind == ToolKind::Execute)
    }

    pub(super) fn is_last_named(&self, id: &CallId) -> bool {
        self.last_named.as_ref() == Some(id)
    }

    /// A call is proposed. It is named at once if no other is in front of it.
    pub(super) fn start(&mut self, id: CallId, title: String, kind: ToolKind) -> Vec<Output> {
        self.open.push(Call { id, title, kind, named: false });
        self.name_next()
    }

    /// Names the call now, if it is not named yet: something is to be said about it.
    pub(super) fn name(&mut self, id: &CallId) -> Vec<Output> {
        let Some(call) = self.open.iter_mut().find(|call| call.id == *id && !call.named) else {
            return Vec::new();
        };
        call.named = true;
        self.last_named = Some(id.clone());
        vec![Output::TextEnd, Output::Line(Line::styled(Style::Bold, "• ").plain(&call.title))]
    }

    /// The call has its result; the next one is named.
    pub(super) fn finish(&mut self, id: &CallId) -> Vec<Output> {
        self.open.retain(|call| call.id != *id);
        self.name_next()
    }

    /// The turn is over: names what never came to its turn.
    pub(super) fn rest(&mut self) -> Vec<Output> {
        let unnamed: Vec<CallId> =
            self.open.iter().filter(|call| !call.named).map(|call| call.id.clone()).collect();
        let outputs = unnamed.iter().flat_map(|id| self.name(id)).collect();
        self.open.clear();
        self.last_named = None;
        outputs
    }

    fn name_next(&mut self) -> Vec<Output> {
        match self.open.first() {
            Some(first) if !first.named => {
                let id = first.id.clone();
                self.name(&id)
            }
            _ => Vec::new(),
        }
    }
}
