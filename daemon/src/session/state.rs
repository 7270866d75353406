//! A session's state: a fold over its records. [`SessionState::apply`] is total and pure, and the only code that changes
//! it, live and on recovery alike. It holds references to messages, never their text.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use agentd_protocol::approval::{Approval, ApprovalKind, By, ChoiceId};
use agentd_protocol::event::{Resolution, ToolStatus};
use agentd_protocol::mode::Mode;
use agentd_protocol::permission::Decision;
use agentd_protocol::plan::{PlanAuthor, PlanPhase};
use agentd_protocol::session::{At, Origin};
use agentd_protocol::time::Timestamp;
use agentd_protocol::turn::{Denial, Outcome, Usage};

use super::record::{
    AfterFailure, ApprovalResolved, CallFinished, CallInput, CallProposed, Created, InboxAdded, Record,
    Replied, ReplyEnd, Source,
};
use crate::ids::{ApprovalId, CallId, Digest, MessageId, Seq, SessionId, TurnId};
use crate::journal::RecordRef;
use crate::model::message::Stop;
use crate::permission::Reason;

/// How many file hashes a session remembers; the oldest are forgotten first and must be read again before an edit.
const MAX_READS: usize = 500;
/// How many settled approvals a session remembers, to tell a late answer who was first.
const MAX_SETTLED: usize = 500;
/// Answers cut at the length limit in a row before the turn ends.
pub const MAX_LENGTH_CUTS: u32 = 3;

#[derive(Clone, Debug)]
pub struct SessionState {
    pub created: Arc<Created>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// The number of the last record folded in.
    pub head: Seq,
    pub title: Option<String>,
    pub mode: Mode,
    pub plan: Option<Plan>,
    /// The plan files of all cycles, for the day the session is deleted.
    pub plan_files: Vec<PathBuf>,
    pub context: Vec<ContextItem>,
    pub inbox: VecDeque<InboxEntry>,
    pub inbox_held: bool,
    pub turn: Option<Turn>,
    /// Approvals that wait for a person, oldest first.
    pub approvals: Vec<Pending>,
    pub settled: VecDeque<Settled>,
    pub prompts: HashMap<TurnId, Prompt>,
    pub reads: Reads,
    pub usage: Usage,
    pub last_outcome: Option<Outcome>,
    /// Set when the journal holds what this build must not act on.
    pub read_only: Option<String>,
}

/// The session's plan of the current cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub slug: String,
    pub path: PathBuf,
    pub cycle: u32,
    pub pre_mode: Mode,
    pub phase: PlanPhase,
    /// The newest journaled revision; its bytes are the blob of that digest.
    pub revision: Option<Digest>,
    /// The one before it in this cycle, if any.
    pub previous: Option<Digest>,
    /// Whose work the newest revision is.
    pub author: PlanAuthor,
    /// The revision that was last put before a person in this cycle.
    pub presented: Option<Digest>,
}

/// One message of the context: where to read it, and how it pairs with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextItem {
    pub seq: Seq,
    pub place: RecordRef,
    pub kind: ContextKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContextKind {
    Said(Source),
    Answer,
    /// The result of a call of the nearest answer before.
    Result {
        provider_id: String,
        is_error: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxEntry {
    pub prompt_id: TurnId,
    pub origin: Origin,
    pub at: At,
    pub queued_at: Timestamp,
    pub preview: String,
    pub place: RecordRef,
}

/// What became of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Digest of its parameters.
    pub params: Digest,
    pub fate: Fate,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Waiting,
    Taken {
        turn: TurnId,
    },
    Withdrawn,
    Finished {
        record: RecordRef,
        answer: Option<RecordRef>,
    },
    /// It was a control command such as `/plan`: carried out at once, no turn.
    Command,
}

#[derive(Clone, Debug)]
pub struct Turn {
    pub id: TurnId,
    pub origin: Origin,
    pub phase: Phase,
    /// Crashes that this turn has survived.
    pub crashes: u32,
    pub parked: bool,
    /// Someone wants it to end; no further step is taken.
    pub stopping: Option<By>,
    /// A person denied a call without saying what to do instead; the turn ends.
    pub refused: bool,
    pub usage: Usage,
    pub denials: Vec<Denial>,
    /// Answers in a row that were cut at the length limit.
    pub length_cuts: u32,
    pub last_answer: Option<RecordRef>,
}

/// The program counter of a turn.
#[derive(Clone, Debug)]
pub enum Phase {
    /// The model is asked next. `attempt` counts tries for the same answer.
    Ready {
        attempt: u32,
    },
    /// The provider asked for patience, or failed for now.
    Backoff {
        until: Timestamp,
        attempt: u32,
    },
    Sampling {
        message: MessageId,
        attempt: u32,
    },
    /// The answer's calls, in order; at least one has no result.
    Calls(Vec<Call>),
    /// The model has said all it wanted to say.
    Said {
        end: ReplyEnd,
    },
    /// The model cannot be reached.
    GaveUp {
        error: String,
    },
}

#[derive(Clone, Debug)]
pub struct Call {
    pub id: CallId,
    pub provider_id: String,
    pub tool: String,
    pub title: String,
    pub read_only: bool,
    pub malformed: bool,
    pub place: RecordRef,
    pub state: CallState,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CallState {
    Proposed,
    /// Waits for a person.
    Waiting(ApprovalId),
    /// May run; judged once more just before. A person's yes carries what was shown, which must still hold then.
    Allowed {
        shown: Option<Arc<Approval>>,
    },
    Running {
        effects: bool,
    },
    Finished,
}

#[derive(Clone, Debug)]
pub struct Pending {
    pub call: CallId,
    pub approval: Arc<Approval>,
}

#[derive(Clone, Debug)]
pub struct Settled {
    pub approval_id: ApprovalId,
    pub digest: Digest,
    pub resolution: Resolution,
    pub choice: Option<ChoiceId>,
    pub by: By,
    pub at: Timestamp,
}

/// Content hashes of files, newest last, bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    hashes: Arc<HashMap<PathBuf, Digest>>,
    order: VecDeque<PathBuf>,
}

impl Reads {
    #[must_use]
    pub fn snapshot(&self) -> Arc<HashMap<PathBuf, Digest>> {
        Arc::clone(&self.hashes)
    }

    fn insert(&mut self, path: &PathBuf, digest: Digest) {
        let hashes = Arc::make_mut(&mut self.hashes);
        if hashes.insert(path.clone(), digest).is_some() {
            self.order.retain(|known| known != path);
        }
        self.order.push_back(path.clone());
        if self.order.len() > MAX_READS
            && let Some(oldest) = self.order.pop_front()
        {
            hashes.remove(&oldest);
        }
    }

    fn forget(&mut self, path: &PathBuf) {
        if Arc::make_mut(&mut self.hashes).remove(path).is_some() {
            self.order.retain(|known| known != path);
        }
    }
}

impl SessionState {
    /// The state after a journal's first record.
    #[must_use]
    pub fn new(created: Created, seq: Seq, at: Timestamp) -> Self {
        Self {
            mode: created.mode,
            title: created.title.clone(),
            created: Arc::new(created),
            created_at: at,
            updated_at: at,
            head: seq,
            plan: None,
            plan_files: Vec::new(),
            context: Vec::new(),
            inbox: VecDeque::new(),
            inbox_held: false,
            turn: None,
            approvals: Vec::new(),
            settled: VecDeque::new(),
            prompts: HashMap::new(),
            reads: Reads::default(),
            usage: Usage::default(),
            last_outcome: None,
            read_only: None,
        }
    }

    #[must_use]
    pub fn id(&self) -> SessionId {
        self.created.session_id
    }

    #[must_use]
    pub fn pending(&self, id: &ApprovalId) -> Option<&Pending> {
        self.approvals.iter().find(|pending| pending.approval.approval_id == *id)
    }

    #[must_use]
    pub fn call(&self, id: &CallId) -> Option<&Call> {
        self.turn.as_ref()?.calls().iter().find(|call| call.id == *id)
    }

    /// Whether nothing is going on that a restart would have to take up again.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.turn.is_none() && (self.inbox.is_empty() || self.inbox_held)
    }

    /// Folds one record in. Any record in any state: one that does not fit changes nothing.
    pub fn apply(&mut self, seq: Seq, at: Timestamp, place: RecordRef, record: &Record) {
        self.head = seq;
        self.updated_at = at;
        match record {
            // A journal has one creation; a second one is damage and changes nothing.
            Record::Created(_) => {}
            Record::ModeChanged(changed) => {
                self.mode = changed.to;
                if changed.to != Mode::Plan
                    && let Some(plan) = &mut self.plan
                    && matches!(plan.phase, PlanPhase::Planning | PlanPhase::Presented)
                {
                    plan.phase = PlanPhase::Left;
                }
            }
            Record::TitleChanged(changed) => self.title = Some(changed.title.clone()),
            Record::PlanEntered(entered) => {
                self.mode = Mode::Plan;
                self.plan_files.push(entered.path.clone());
                self.plan = Some(Plan {
                    slug: entered.slug.clone(),
                    path: entered.path.clone(),
                    cycle: entered.cycle,
                    pre_mode: entered.pre_mode,
                    phase: PlanPhase::Planning,
                    revision: None,
                    previous: None,
                    author: PlanAuthor::Own,
                    presented: None,
                });
            }
            Record::PlanWritten(written) => {
                if let Some(plan) = &mut self.plan {
                    plan.previous = plan.revision.replace(written.revision);
                    plan.author = written.by;
                }
            }
            Record::PlanApproved(_) => {
                if let Some(plan) = &mut self.plan {
                    plan.phase = PlanPhase::Approved;
                }
            }
            Record::PlanRejected(_) => {
                if let Some(plan) = &mut self.plan {
                    plan.phase = PlanPhase::Planning;
                }
            }
            Record::PlanRecovered(recovered) => {
                if let Some(plan) = &mut self.plan {
                    plan.revision = Some(recovered.revision);
                }
            }
            Record::InboxAdded(added) => self.inbox_added(added, place),
            Record::InboxTaken(taken) => {
                self.inbox.retain(|entry| entry.prompt_id != taken.prompt_id);
                self.set_fate(taken.prompt_id, Fate::Taken { turn: taken.turn_id });
            }
            Record::InboxWithdrawn(withdrawn) => {
                self.inbox.retain(|entry| entry.prompt_id != withdrawn.prompt_id);
                self.set_fate(withdrawn.prompt_id, Fate::Withdrawn);
            }
            Record::CommandRun(run) => {
                let prompt = Prompt { params: run.params, fate: Fate::Command };
                self.prompts.entry(run.prompt_id).or_insert(prompt);
            }
            Record::TurnStarted(started) => {
                self.turn = Some(Turn {
                    id: started.turn_id,
                    origin: started.origin,
                    phase: Phase::Ready { attempt: 1 },
                    crashes: 0,
                    parked: false,
                    stopping: None,
                    refused: false,
                    usage: Usage::default(),
                    denials: Vec::new(),
                    length_cuts: 0,
                    last_answer: None,
                });
            }
            Record::TurnResumed(resumed) => self.with_turn(resumed.turn_id, |turn| {
                turn.parked = false;
                turn.crashes += u32::from(resumed.after_crash);
            }),
            Record::TurnParked(parked) => self.with_turn(parked.turn_id, |turn| turn.parked = true),
            Record::TurnStopping(stopping) => {
                self.inbox_held = true;
                self.with_turn(stopping.turn_id, |turn| turn.stopping = Some(stopping.by.clone()));
            }
            Record::TurnFinished(finished) => {
                let turn = self.turn.take_if(|turn| turn.id == finished.turn_id);
                let answer = turn.and_then(|turn| turn.last_answer);
                self.set_fate(finished.turn_id, Fate::Finished { record: place, answer });
                self.last_outcome = Some(finished.outcome);
                self.inbox_held |= finished.hold_inbox;
            }
            Record::ContextAdded(added) => self.extend_context(seq, place, ContextKind::Said(added.source)),
            Record::ContextReset(reset) => self.context.retain(|item| reset.keep.contains(&item.seq)),
            Record::SampleStarted(started) => {
                if let Some(turn) = &mut self.turn {
                    turn.phase =
                        Phase::Sampling { message: started.message_id.clone(), attempt: started.attempt };
                }
            }
            Record::SampleFailed(failed) => {
                if let Some(turn) = &mut self.turn
                    && let Phase::Sampling { attempt, .. } = turn.phase
                {
                    turn.phase = match failed.then {
                        AfterFailure::Retry { at } => Phase::Backoff { until: at, attempt: attempt + 1 },
                        AfterFailure::Again => Phase::Ready { attempt },
                        AfterFailure::GiveUp => Phase::GaveUp { error: failed.error.clone() },
                    };
                }
            }
            Record::Replied(replied) => self.replied(replied, seq, place),
            Record::CallProposed(proposed) => self.call_proposed(proposed, place),
            Record::CallJudged(judged) => {
                if judged.decision == Decision::Allow {
                    self.set_call(&judged.call_id, |call| {
                        if matches!(call.state, CallState::Proposed | CallState::Waiting(_)) {
                            call.state = CallState::Allowed { shown: None };
                        }
                    });
                } else if judged.decision == Decision::Deny
                    && let Some(turn) = &mut self.turn
                    && let Some(call) = turn.calls().iter().find(|call| call.id == judged.call_id)
                {
                    let denial = Denial {
                        tool: call.tool.clone(),
                        title: call.title.clone(),
                        reason: judged.reason.clone(),
                    };
                    turn.denials.push(denial);
                }
            }
            Record::CallStarted(started) => self.set_call(&started.call_id, |call| {
                if call.state != CallState::Finished {
                    call.state = CallState::Running { effects: started.effects };
                }
            }),
            Record::CallFinished(finished) => self.call_finished(finished, seq, place),
            Record::FileChanged(changed) => match changed.after {
                Some(after) => self.reads.insert(&changed.path, after),
                None => self.reads.forget(&changed.path),
            },
            Record::ApprovalRequested(requested) => {
                let approval = &requested.approval;
                self.set_call(&requested.call_id, |call| {
                    call.state = CallState::Waiting(approval.approval_id.clone());
                });
                self.present(approval);
                self.approvals
                    .push(Pending { call: requested.call_id.clone(), approval: Arc::clone(approval) });
            }
            Record::ApprovalChanged(changed) => {
                self.present(&changed.approval);
                if let Some(pending) =
                    self.approvals.iter_mut().find(|p| p.approval.approval_id == changed.approval.approval_id)
                {
                    pending.approval = Arc::clone(&changed.approval);
                }
            }
            Record::ApprovalResolved(resolved) => self.approval_resolved(resolved, at),
        }
    }

    fn present(&mut self, approval: &Approval) {
        if let agentd_protocol::approval::Subject::Plan { plan: subject } = &approval.subject
            && let Some(plan) = &mut self.plan
        {
            plan.phase = PlanPhase::Presented;
            plan.presented = Some(subject.revision);
        }
    }

    fn inbox_added(&mut self, added: &InboxAdded, place: RecordRef) {
        // A person's prompt is what a held inbox waits for.
        if added.origin == Origin::Client {
            self.inbox_held = false;
        }
        self.prompts.entry(added.prompt_id).or_insert(Prompt { params: added.params, fate: Fate::Waiting });
        self.inbox.push_back(InboxEntry {
            prompt_id: added.prompt_id,
            origin: added.origin,
            at: added.at_point,
            queued_at: added.queued_at,
            preview: preview(&added.content),
            place,
        });
    }

    fn replied(&mut self, replied: &Replied, seq: Seq, place: RecordRef) {
        self.usage += replied.usage;
        if replied.message.is_some() {
            self.extend_context(seq, place, ContextKind::Answer);
        }
        let Some(turn) = &mut self.turn else { return };
        turn.usage += replied.usage;
        if replied.message.is_some() {
            turn.last_answer = Some(place);
        }
        turn.length_cuts = match replied.end {
            ReplyEnd::Model(Stop::Length) => turn.length_cuts + 1,
            _ => 0,
        };
        let attempt = match turn.phase {
            Phase::Sampling { attempt, .. } => attempt,
            _ => 1,
        };
        turn.phase = if replied.message.is_some() {
            // Calls that follow in the same commit replace this.
            Phase::Said { end: replied.end.clone() }
        } else {
            Phase::Ready { attempt }
        };
    }

    fn call_proposed(&mut self, proposed: &CallProposed, place: RecordRef) {
        let Some(turn) = &mut self.turn else { return };
        let call = Call {
            id: proposed.call_id.clone(),
            provider_id: proposed.provider_id.clone(),
            tool: proposed.tool.clone(),
            title: proposed.title.clone(),
            read_only: proposed.read_only,
            malformed: matches!(proposed.input, CallInput::Malformed { .. }),
            place,
            state: CallState::Proposed,
        };
        match &mut turn.phase {
            Phase::Calls(calls) => calls.push(call),
            phase => *phase = Phase::Calls(vec![call]),
        }
    }

    fn call_finished(&mut self, finished: &CallFinished, seq: Seq, place: RecordRef) {
        for (path, digest) in &finished.reads {
            self.reads.insert(path, *digest);
        }
        let Some(turn) = &mut self.turn else { return };
        let Phase::Calls(calls) = &mut turn.phase else { return };
        let Some(call) = calls.iter_mut().find(|call| call.id == finished.call_id) else { return };
        // The first result in the journal is the result; a later one is dropped.
        if call.state == CallState::Finished {
            return;
        }
        call.state = CallState::Finished;
        let kind = ContextKind::Result {
            provider_id: call.provider_id.clone(),
            is_error: finished.status != ToolStatus::Ok,
        };
        if calls.iter().all(|call| call.state == CallState::Finished) {
            turn.phase = Phase::Ready { attempt: 1 };
        }
        self.extend_context(seq, place, kind);
    }

    fn approval_resolved(&mut self, resolved: &ApprovalResolved, at: Timestamp) {
        let Some(index) = self.approvals.iter().position(|p| p.approval.approval_id == resolved.approval_id)
        else {
            return;
        };
        let pending = self.approvals.remove(index);
        if resolved.choice == Some(ChoiceId::AllowOnce) {
            let shown = Some(Arc::clone(&pending.approval));
            self.set_call(&pending.call, |call| call.state = CallState::Allowed { shown });
        }
        if resolved.choice == Some(ChoiceId::Deny)
            && let Some(turn) = &mut self.turn
        {
            turn.refused |= resolved.feedback.is_none();
            if let Some(call) = turn.calls().iter().find(|call| call.id == pending.call) {
                let reason = Reason::PersonDenied.code().into();
                let denial = Denial { tool: call.tool.clone(), title: call.title.clone(), reason };
                turn.denials.push(denial);
            }
        }
        if resolved.resolution != Resolution::Answered
            && pending.approval.subject.kind() == ApprovalKind::Plan
            && let Some(plan) = self.plan.as_mut().filter(|plan| plan.phase == PlanPhase::Presented)
        {
            plan.phase = PlanPhase::Planning;
        }
        self.settled.push_back(Settled {
            approval_id: resolved.approval_id.clone(),
            digest: pending.approval.digest,
            resolution: resolved.resolution,
            choice: resolved.choice,
            by: resolved.by.clone(),
            at,
        });
        if self.settled.len() > MAX_SETTLED {
            self.settled.pop_front();
        }
    }

    fn extend_context(&mut self, seq: Seq, place: RecordRef, kind: ContextKind) {
        self.context.push(ContextItem { seq, place, kind });
    }

    fn set_fate(&mut self, prompt: TurnId, fate: Fate) {
        if let Some(known) = self.prompts.get_mut(&prompt) {
            known.fate = fate;
        }
    }

    fn with_turn(&mut self, id: TurnId, change: impl FnOnce(&mut Turn)) {
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.id == id) {
            change(turn);
        }
    }

    fn set_call(&mut self, id: &CallId, change: impl FnOnce(&mut Call)) {
        if let Some(Turn { phase: Phase::Calls(calls), .. }) = &mut self.turn
            && let Some(call) = calls.iter_mut().find(|call| call.id == *id)
        {
            change(call);
        }
    }
}

impl Turn {
    /// The calls of the answer being worked through; none in other phases.
    #[must_use]
    pub fn calls(&self) -> &[Call] {
        match &self.phase {
            Phase::Calls(calls) => calls,
            _ => &[],
        }
    }
}

fn preview(content: &[agentd_protocol::session::Content]) -> String {
    use agentd_protocol::session::Content;
    let text = content
        .iter()
        .map(|part| match part {
            Content::Text { text } => text.as_str(),
            Content::Image { .. } => "[image]",
            Content::File { path } => path.as_str(),
            Content::Resource { uri, .. } => uri.as_str(),
        })
        .collect::<Vec<_>>()
        .join(" ");
    text.chars().take(200).collect()
}
