//! What a session's events mean for the person who watches it: a reducer from events to outputs. It draws nothing and
//! waits for nothing, so every rule in it is a test with a list of events.

mod approvals;
mod calls;
mod ran;
mod tell;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use agentd_protocol::approval::{Approval, ApprovalKind, By, Choice};
use agentd_protocol::event::{Event, EventBody, Role, Text, ToolStatus};
use agentd_protocol::plan::PlanAuthor;
use agentd_protocol::session::Activity;
use agentd_protocol::turn::{Denial, Outcome, Usage};
use agentd_protocol::{ApprovalId, CallId, MessageId, Mode, Seq, TurnId};

use calls::Calls;
pub(crate) use ran::Ran;
pub(crate) use tell::{answered_elsewhere, elsewhere, settled, told};
use tell::{note, who};

use super::exit::Exit;
use crate::render::line::{Changed, Seen, changed_file, short_path};
use crate::render::{Line, Style};

/// What the daemon says of an answer that a person cut off before its first word.
const INTERRUPTED: &str = "interrupted";

/// The notice that goes with a `planRecovered` event.
const RECOVERED: &str = "planRecovered";

/// What is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// One turn, the caller's own, until it ends.
    Turn(TurnId),
    /// The session, for as long as the person likes. History shows the last turn only.
    Session,
    /// The same, with all of its history.
    WholeSession,
}

/// What is to be shown or done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Output {
    /// A line that agentctl says.
    Line(Line),
    /// More of the text that the model writes.
    Text(String),
    /// The model's text ends here, for now.
    TextEnd,
    /// A message of the model, complete. It was shown as [`Output::Text`] where text is streamed.
    Message(Text),
    /// A command has ended: the end of its output, and how it ended.
    Ran(Box<Ran>),
    /// So many turns of the past come before what is shown.
    Earlier(u64),
    /// A person is asked.
    Ask(Box<Approval>),
    /// A person is asked, and nothing waits for the answer.
    Told(Box<Approval>),
    /// The approval with this id is about other content now.
    Changed(Box<Approval>),
    /// The approval needs no answer any more; the line says who settled it, unless it was this client.
    Settled {
        id: ApprovalId,
        line: Option<Line>,
    },
    Finished(Box<Finished>),
    /// A turn of the history ended.
    Past(Box<Finished>),
    /// The session was deleted.
    Gone,
}

/// How a turn ended and what it did.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finished {
    pub(crate) turn: Option<TurnId>,
    pub(crate) outcome: Outcome,
    pub(crate) error: Option<String>,
    pub(crate) usage: Usage,
    pub(crate) denials: Vec<Denial>,
    pub(crate) files: BTreeMap<String, Changed>,
    /// How `files` are known.
    pub(crate) seen: Seen,
    /// What is known about the plan's verification.
    pub(crate) verification: Vec<String>,
}

/// What Ctrl-C does at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnInterrupt {
    StopTurn,
    Detach(Exit),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// History is coming in.
    History,
    Live,
    /// After a lost connection: what was missed is coming in.
    CatchUp,
}

#[derive(Debug)]
pub(crate) struct Follow {
    goal: Goal,
    /// This process, to tell its own answers from others'.
    pid: u32,
    cwd: String,
    home: Option<PathBuf>,
    phase: Phase,
    /// Outputs of the history's last turn so far.
    history: Vec<Output>,
    earlier_turns: u64,
    /// Whether the prompt of the running turn was not shown yet: it was accepted before the first event here.
    prompt_untold: bool,
    last_seq: Seq,
    activity: Activity,
    pre_mode: Option<Mode>,
    /// Text shown of messages that are being written.
    streams: HashMap<MessageId, String>,
    thinking: HashSet<MessageId>,
    calls: Calls,
    /// Why the model's last answer failed, as it was said.
    told: Option<String>,
    prompts: HashMap<TurnId, String>,
    /// Who changed the plan last.
    author: Option<PlanAuthor>,
    /// Approvals that were output and are not settled.
    asked: Vec<Approval>,
    /// The question whether the project is trusted, as it was told.
    trust: Option<Approval>,
    /// What could be chosen, of approvals that are not settled.
    choices: HashMap<ApprovalId, Vec<Choice>>,
    /// Whether a command ran in this turn.
    commands_ran: bool,
    files: BTreeMap<String, Changed>,
    verification: Vec<String>,
    stopping: bool,
    shutting_down: bool,
}

impl Follow {
    pub(crate) fn new(goal: Goal, pid: u32, cwd: String, home: Option<PathBuf>) -> Self {
        Self {
            goal,
            pid,
            cwd,
            home,
            phase: Phase::History,
            history: Vec::new(),
            earlier_turns: 0,
            prompt_untold: false,
            last_seq: Seq(0),
            activity: Activity::Idle,
            pre_mode: None,
            streams: HashMap::new(),
            thinking: HashSet::new(),
            calls: Calls::default(),
            told: None,
            prompts: HashMap::new(),
            author: None,
            asked: Vec::new(),
            trust: None,
            choices: HashMap::new(),
            commands_ran: false,
            files: BTreeMap::new(),
            verification: Vec::new(),
            stopping: false,
            shutting_down: false,
        }
    }

    /// So many turns came before the first event that will be taken.
    pub(crate) fn begins_after(&mut self, turns: u64) {
        self.earlier_turns = turns;
    }

    /// Where leaving plan mode leads, while in plan mode.
    pub(crate) fn pre_mode(&self) -> Option<Mode> {
        self.pre_mode
    }

    /// Who changed the plan since this was last asked.
    pub(crate) fn take_author(&mut self) -> Option<PlanAuthor> {
        self.author.take()
    }

    /// Approvals that wait for an answer, oldest first.
    pub(crate) fn waiting(&self) -> &[Approval] {
        &self.asked
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Live && self.activity == Activity::Idle
    }

    /// Whether the turn was told to stop and has not ended yet.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Whether nothing can come before the model says something.
    pub(crate) fn awaits_model(&self) -> bool {
        self.phase == Phase::Live
            && self.activity == Activity::Running
            && !self.stopping
            && self.calls.len() == 0
            && self.streams.values().all(String::is_empty)
    }

    /// Whether the daemon had said that it would leave.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.shutting_down
    }

    /// The connection came back: what was missed is next.
    pub(crate) fn reconnected(&mut self) {
        self.shutting_down = false;
        if self.phase == Phase::Live {
            self.phase = Phase::CatchUp;
        }
    }

    /// What Ctrl-C means now. Stopping is remembered: the second one detaches.
    pub(crate) fn on_interrupt(&mut self) -> OnInterrupt {
        let own = matches!(self.goal, Goal::Turn(_));
        if !self.asked.is_empty() {
            return OnInterrupt::Detach(if own { Exit::Waiting } else { Exit::Finished });
        }
        if !own && self.activity == Activity::Idle {
            return OnInterrupt::Detach(Exit::Finished);
        }
        if self.stopping {
            return OnInterrupt::Detach(if own { Exit::LeftRunning } else { Exit::Finished });
        }
        self.stopping = true;
        OnInterrupt::StopTurn
    }

    /// The code for leaving now.
    pub(crate) fn detached(&self) -> Exit {
        match self.goal {
            Goal::Turn(_) if !self.asked.is_empty() => Exit::Waiting,
            Goal::Turn(_) => Exit::LeftRunning,
            Goal::Session | Goal::WholeSession => Exit::Finished,
        }
    }

    /// Takes one event.
    pub(crate) fn on_event(&mut self, event: Event) -> Vec<Output> {
        if let (Some(seq), false) = (event.seq, matches!(event.body, EventBody::Synced { .. })) {
            if seq <= self.last_seq {
                return Vec::new();
            }
            self.last_seq = seq;
        }
        let outputs = self.reduce(event);
        // The last turn only: what came before it is counted, not shown.
        if self.phase == Phase::History && self.goal == Goal::Session {
            self.history.extend(outputs);
            return Vec::new();
        }
        outputs
    }

    fn reduce(&mut self, event: Event) -> Vec<Output> {
        let (turn, at) = (event.turn_id, event.at);
        match event.body {
            EventBody::Synced { state, .. } => self.synced(state.map(|state| *state)),
            EventBody::StateChanged { activity, .. } => {
                self.activity = activity;
                Vec::new()
            }
            EventBody::PromptAccepted { prompt_id, content, queued, by } => {
                self.prompt_accepted(prompt_id, &content, queued, &by)
            }
            EventBody::PromptWithdrawn { prompt_id } => self.withdrawn(prompt_id),
            EventBody::TurnStarted {} => self.turn_started(turn),
            EventBody::TurnResumed {} => vec![note(tell::RESUMED)],
            EventBody::TurnFinished { outcome, usage, denials, error } => {
                self.finished(turn, outcome, usage, denials, error)
            }
            EventBody::MessageDelta { message_id, offset, text } => self.delta(message_id, offset, &text),
            EventBody::ThinkingDelta { message_id, .. } => {
                let first = self.thinking.insert(message_id);
                if first { vec![note("thinking …")] } else { Vec::new() }
            }
            EventBody::Message { message_id, role, text, incomplete, .. } => {
                self.message(&message_id, role, text, incomplete)
            }
            EventBody::MessageAborted { message_id, reason, retry_at } => {
                let wait =
                    retry_at.zip(at).map(|(then, now)| then.unix_ms().saturating_sub(now.unix_ms()).max(0));
                self.aborted(&message_id, reason, wait)
            }
            EventBody::ToolCallStarted { call_id, tool, kind, title, .. } => {
                let title = if title.trim().is_empty() { tool } else { title };
                self.calls.start(call_id, title, kind)
            }
            EventBody::PermissionDecided { call_id, reason, note: Some(note), .. } => {
                let Some(line) = tell::classified(&reason, &note) else { return Vec::new() };
                let mut outputs = self.calls.name(&call_id);
                outputs.extend([Output::TextEnd, line]);
                outputs
            }
            EventBody::BreakerChanged { open, in_row, total, by } => {
                vec![Output::TextEnd, tell::breaker_changed(open, in_row, total, &by)]
            }
            EventBody::ToolCallFinished { call_id, status, reason, content, .. } => {
                self.call_finished(&call_id, status, reason.as_deref(), &content)
            }
            EventBody::FileChanged { path, after, added, removed, call_id, .. } => {
                let mut outputs = self.calls.name(&call_id);
                outputs.extend(self.file_changed(path, after.is_none(), added, removed));
                outputs
            }
            EventBody::ApprovalRequested(approval) | EventBody::ApprovalChanged(approval) => {
                self.ask(approval)
            }
            EventBody::ApprovalResolved { approval_id, resolution, choice, by, feedback } => {
                self.resolved(approval_id, resolution, choice, &by, feedback.as_deref())
            }
            EventBody::Notice { code, text } => {
                if code.starts_with("plan.verif") {
                    self.verification.push(text.clone());
                }
                // The journaled event tells it.
                if code == RECOVERED {
                    return Vec::new();
                }
                vec![Output::Line(Line::styled(Style::Warn, "note: ").plain(&text))]
            }
            EventBody::ShuttingDown {} => {
                self.shutting_down = true;
                vec![note("agentd is shutting down; the session goes on when it is back.")]
            }
            EventBody::SessionDeleted {} => vec![Output::TextEnd, Output::Gone],
            EventBody::SessionCreated { cwd, .. } => {
                self.cwd = cwd;
                Vec::new()
            }
            body => self.plan_and_mode(body),
        }
    }

    fn plan_and_mode(&mut self, body: EventBody) -> Vec<Output> {
        match body {
            EventBody::ModeChanged { from, to, by } => {
                if to != Mode::Plan {
                    self.pre_mode = None;
                }
                // Whoever changed it here was told with the answer.
                if self.is_me(&by) { Vec::new() } else { vec![tell::mode_changed(from, to, &by)] }
            }
            EventBody::RuleAdded { rule, layer, by } if !self.is_me(&by) => {
                vec![tell::rule_added(&rule, layer, &by)]
            }
            EventBody::PlanEntered { pre_mode, path, running, .. } => {
                self.pre_mode = Some(pre_mode);
                tell::plan_entered(&short_path(&path, self.home.as_deref()), &running)
            }
            body => {
                if let EventBody::PlanChanged { by, .. } = body {
                    self.author = Some(by);
                    // What changed is shown with the question, and who did it.
                    if self.asked.iter().any(|asked| asked.subject.kind() == ApprovalKind::Plan) {
                        return Vec::new();
                    }
                }
                tell::about_plan(&body).into_iter().collect()
            }
        }
    }

    fn prompt_accepted(
        &mut self,
        id: TurnId,
        content: &[serde_json::Value],
        queued: bool,
        by: &By,
    ) -> Vec<Output> {
        // A long text is a reference, whose head is enough for a line.
        let text_of = |part: &'_ serde_json::Value| -> Option<String> {
            let text = part.get("text")?;
            text.as_str().or_else(|| text.get("head")?.as_str()).map(str::to_owned)
        };
        let texts: Vec<String> = content.iter().filter_map(text_of).collect();
        let text = texts.join("\n");
        let mut outputs = Vec::new();
        let first = text.lines().next().unwrap_or_default();
        // Taken at once while a turn runs: it joins that turn, and never begins one of its own.
        let steers = !queued && self.activity != Activity::Idle && self.goal != Goal::Turn(id);
        if steers {
            outputs.push(note(&format!("for the next step, by {}: {first}", who(by))));
        } else if queued && !self.is_me(by) {
            outputs.push(note(&format!("queued by {}: {first}", who(by))));
        }
        self.prompts.insert(id, text);
        outputs
    }

    fn withdrawn(&mut self, id: TurnId) -> Vec<Output> {
        self.prompts.remove(&id);
        if self.goal != Goal::Turn(id) {
            return vec![note(tell::WITHDRAWN)];
        }
        vec![Output::Finished(Box::new(Finished {
            turn: Some(id),
            outcome: Outcome::Withdrawn,
            error: Some("the prompt was taken back before its turn began".to_owned()),
            usage: Usage::default(),
            denials: Vec::new(),
            files: BTreeMap::new(),
            seen: Seen::Whole,
            verification: Vec::new(),
        }))]
    }

    fn turn_started(&mut self, turn: Option<TurnId>) -> Vec<Output> {
        self.activity = Activity::Running;
        self.files.clear();
        self.commands_ran = false;
        self.verification.clear();
        self.stopping = false;
        if self.phase == Phase::History && self.goal == Goal::Session {
            let another = self.history.iter().any(|output| matches!(output, Output::Past(_)));
            self.earlier_turns += u64::from(another);
            self.history.clear();
        }
        let prompt = turn.and_then(|turn| self.prompts.remove(&turn));
        self.prompt_untold = false;
        match (self.goal, turn, prompt) {
            (Goal::Turn(own), Some(turn), _) if own == turn => Vec::new(),
            (_, _, Some(prompt)) => told_prompt(&prompt),
            (_, _, None) => {
                self.prompt_untold = true;
                Vec::new()
            }
        }
    }

    fn finished(
        &mut self,
        turn: Option<TurnId>,
        outcome: Outcome,
        usage: Usage,
        denials: Vec<Denial>,
        error: Option<String>,
    ) -> Vec<Output> {
        self.activity = Activity::Idle;
        self.streams.clear();
        self.thinking.clear();
        let mut outputs = self.calls.rest();
        self.stopping = false;
        // Said once is enough.
        let told = self.told.take();
        let error = error.filter(|error| told.is_none_or(|told| !error.contains(&told)));
        let finished = Box::new(Finished {
            turn,
            outcome,
            error,
            usage,
            denials,
            files: std::mem::take(&mut self.files),
            // Until somebody asks the daemon.
            seen: if std::mem::take(&mut self.commands_ran) { Seen::Unknown } else { Seen::Whole },
            verification: std::mem::take(&mut self.verification),
        });
        let is_past = self.phase == Phase::History && !matches!(self.goal, Goal::Turn(_));
        outputs.push(Output::TextEnd);
        outputs.push(if is_past { Output::Past(finished) } else { Output::Finished(finished) });
        outputs
    }

    fn delta(&mut self, id: MessageId, offset: u64, text: &str) -> Vec<Output> {
        self.told = None;
        let shown = self.streams.entry(id).or_default();
        // After a lost connection a piece may overlap what is on the screen.
        let known = (shown.len() as u64).saturating_sub(offset);
        let new = usize::try_from(known).ok().and_then(|known| text.get(known..)).unwrap_or_default();
        if new.is_empty() {
            return Vec::new();
        }
        shown.push_str(new);
        vec![Output::Text(new.to_owned())]
    }

    fn message(&mut self, id: &MessageId, role: Role, text: Text, incomplete: bool) -> Vec<Output> {
        let shown = self.streams.remove(id).unwrap_or_default();
        if role != Role::Assistant {
            let untold = role == Role::User && std::mem::take(&mut self.prompt_untold);
            return if untold { told_prompt(text.preview()) } else { Vec::new() };
        }
        self.told = None;
        let whole = text.preview();
        let mut outputs = Vec::new();
        match whole.strip_prefix(shown.as_str()) {
            Some(rest) if !rest.is_empty() => outputs.push(Output::Text(rest.to_owned())),
            Some(_) => {}
            // The head of a blob is shorter than what was shown.
            None if shown.starts_with(whole) => {}
            None => outputs.extend([
                Output::TextEnd,
                note("The text above is replaced by:"),
                Output::Text(whole.to_owned()),
            ]),
        }
        outputs.push(Output::TextEnd);
        if let Text::Blob(blob) = &text
            && (shown.len() as u64) < blob.size
        {
            outputs.push(note(&format!("(the message goes on; it has {} bytes)", blob.size)));
        }
        if incomplete {
            outputs.push(note("(cut off here)"));
        }
        if !whole.is_empty() {
            outputs.push(Output::Message(text));
        }
        outputs
    }

    fn aborted(&mut self, id: &MessageId, reason: String, wait_ms: Option<i64>) -> Vec<Output> {
        let shown = self.streams.remove(id).is_some_and(|text| !text.is_empty());
        if reason == INTERRUPTED {
            return vec![Output::TextEnd, note("The model had not answered yet.")];
        }
        let what = if shown { "The text above is withdrawn" } else { "The model gave no answer" };
        // The same fault again needs no second sentence.
        let news = match self.told.as_deref().filter(|_| !shown) {
            Some(told) => reason.strip_prefix(told),
            None => None,
        };
        let text = match (wait_ms.map(|ms| (ms + 500) / 1000), news) {
            (Some(seconds), Some("")) => format!("{what}; asking again in {seconds} s"),
            (Some(seconds), _) => format!("{what}; asking again in {seconds} s: {reason}"),
            (None, Some(more)) => format!("{what}{more}"),
            (None, None) => format!("{what}: {reason}"),
        };
        self.told = Some(reason);
        vec![Output::TextEnd, Output::Line(Line::styled(Style::Warn, &text))]
    }

    fn call_finished(
        &mut self,
        id: &CallId,
        status: ToolStatus,
        reason: Option<&str>,
        content: &Text,
    ) -> Vec<Output> {
        let mut outputs = self.calls.name(id);
        let is_command = self.calls.is_command(id);
        self.commands_ran |= is_command && !matches!(status, ToolStatus::Denied | ToolStatus::NotRun);
        if let Some(ran) = Ran::of(id, status, reason, content).filter(|_| is_command) {
            outputs.extend([Output::TextEnd, Output::Ran(Box::new(ran))]);
            outputs.extend(self.calls.finish(id));
            return outputs;
        }
        // What a person answered was told when they did.
        let answered = matches!(reason, Some("plan.keepPlanning" | "person.denied"));
        if status != ToolStatus::Ok && !answered {
            // With several calls at once the line must say which one it is about.
            let title = self.calls.title(id).filter(|_| !self.calls.is_last_named(id));
            outputs.extend([Output::TextEnd, tell::call_failed(status, reason, title, content)]);
        }
        outputs.extend(self.calls.finish(id));
        outputs
    }

    /// How many calls have no result yet.
    pub(crate) fn running(&self) -> usize {
        if self.phase == Phase::Live && self.activity == Activity::Running { self.calls.len() } else { 0 }
    }

    fn file_changed(&mut self, path: String, gone: bool, added: u32, removed: u32) -> Vec<Output> {
        let change = Changed { added: added.into(), removed: removed.into(), gone, what: None };
        let line = changed_file(&path, change, &self.cwd);
        let total = self.files.entry(path).or_default();
        total.added += change.added;
        total.removed += change.removed;
        total.gone = gone;
        vec![Output::Line(line)]
    }

    fn is_me(&self, by: &By) -> bool {
        by.pid == Some(self.pid)
    }
}

fn told_prompt(prompt: &str) -> Vec<Output> {
    prompt.lines().map(|text| Output::Line(Line::styled(Style::Bold, "> ").plain(text))).collect()
}

#[cfg(test)]
mod tests;
