//! A session's state: a fold over its records, see [`super::apply`]. It holds references to messages, never their text.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use agentd_protocol::approval::{Approval, By, ChoiceId};
use agentd_protocol::event::Resolution;
use agentd_protocol::mode::Mode;
use agentd_protocol::plan::{PlanAuthor, PlanPhase};
use agentd_protocol::session::{At, Origin};
use agentd_protocol::time::Timestamp;
use agentd_protocol::turn::{Denial, Outcome, Usage};
use serde::{Deserialize, Serialize};

use super::record::{Created, ReplyEnd, Source};
use super::resets::Resets;
use super::spoken::Spoken;
use super::trees::Trees;
use crate::ids::{ApprovalId, CallId, Digest, MessageId, Seq, SessionId, TurnId};
use crate::journal::RecordRef;
use crate::permission::{Breaker, Grant};

/// How many file hashes a session remembers; the oldest are forgotten first and must be read again before an edit.
const MAX_READS: usize = 500;
/// Answers cut at the length limit in a row before the turn ends.
pub const MAX_LENGTH_CUTS: u32 = 3;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    pub resets: Resets,
    pub inbox: VecDeque<InboxEntry>,
    pub inbox_held: bool,
    pub turn: Option<Turn>,
    /// Out of the lists.
    pub archived: bool,
    /// How often it has changed hands; the first owner is 1.
    pub owner_epoch: u64,
    /// Somebody else owns it: it can only be looked at.
    pub handed_over: Option<HandedOver>,
    /// The import that it came from, if it did.
    pub imported: Option<Digest>,
    /// Approvals of calls that wait for a person, oldest first.
    pub approvals: Vec<Pending>,
    /// Whether a person trusts the project, if that is asked: one question at most, and nothing waits for it.
    pub trust: Option<Arc<Approval>>,
    pub settled: VecDeque<Settled>,
    /// The rules that persons' answers made for this session, oldest first.
    pub grants: Vec<Grant>,
    pub prompts: HashMap<TurnId, Prompt>,
    pub reads: Reads,
    /// Of mode `auto`.
    pub breaker: Breaker,
    pub spoken: Spoken,
    pub trees: Trees,
    pub usage: Usage,
    pub last_outcome: Option<Outcome>,
    /// The first words of the newest prompt that asked for a turn, on one line.
    pub last_prompt: Option<String>,
    /// The first words of the newest prompt whose turn has begun and is not forgotten.
    pub ran_prompt: Option<String>,
    /// Set when the journal holds what this build must not act on.
    #[serde(skip)]
    pub read_only: Option<String>,
    /// The disk did not take what was last to be written; cleared by the next thing that it takes.
    #[serde(skip)]
    pub unsaved: bool,
}

/// The session's plan of the current cycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub slug: String,
    pub path: PathBuf,
    pub cycle: u32,
    pub pre_mode: Mode,
    pub phase: PlanPhase,
    /// The newest journaled revision; its bytes are the blob of that digest.
    pub revision: Option<Digest>,
    /// Whose work the newest revision is.
    pub author: PlanAuthor,
    /// What the file holds as long as nobody knows that the newest revision, which is agentd's to write, stands there: a
    /// crash or a failed write may have come between the two.
    pub replaced: Option<Digest>,
    /// Why a save could not be read and was set aside; told with the approval until a person's text takes its place.
    pub unread: Option<String>,
    /// When the newest revision was journaled.
    pub written_at: Timestamp,
    /// The revision that was last put before a person in this cycle.
    pub presented: Option<Digest>,
}

/// Where a session went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedOver {
    pub bundle: PathBuf,
    pub at: Timestamp,
    pub version: String,
    pub seq: Seq,
    /// Bytes of journal up to the commit that says so.
    pub end: u64,
    /// Whether the bundle is known to stand there.
    pub named: bool,
}

/// One message of the context: where to read it, and how it pairs with others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextItem {
    pub seq: Seq,
    pub place: RecordRef,
    pub kind: ContextKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContextKind {
    Said(Source),
    Answer,
    /// The result of a call of the nearest answer before.
    Result {
        provider_id: String,
        is_error: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxEntry {
    pub prompt_id: TurnId,
    pub origin: Origin,
    pub at: At,
    pub queued_at: Timestamp,
    pub preview: String,
    pub place: RecordRef,
}

/// What became of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// Digest of its parameters.
    pub params: Digest,
    pub fate: Fate,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    pub call: CallId,
    pub approval: Arc<Approval>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    pub approval_id: ApprovalId,
    pub digest: Digest,
    pub resolution: Resolution,
    pub choice: Option<ChoiceId>,
    pub by: By,
    pub at: Timestamp,
    /// Digest of all that the winning answer said.
    pub answer: Option<Digest>,
}

/// Content hashes of files, newest last, bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reads {
    hashes: Arc<HashMap<PathBuf, Digest>>,
    order: VecDeque<PathBuf>,
}

impl Reads {
    #[must_use]
    pub fn snapshot(&self) -> Arc<HashMap<PathBuf, Digest>> {
        Arc::clone(&self.hashes)
    }

    pub(super) fn insert(&mut self, path: &PathBuf, digest: Digest) {
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

    pub(super) fn forget(&mut self, path: &PathBuf) {
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
            resets: Resets::default(),
            inbox: VecDeque::new(),
            inbox_held: false,
            turn: None,
            archived: false,
            owner_epoch: 1,
            handed_over: None,
            imported: None,
            approvals: Vec::new(),
            trust: None,
            settled: VecDeque::new(),
            grants: Vec::new(),
            prompts: HashMap::new(),
            reads: Reads::default(),
            breaker: Breaker::default(),
            spoken: Spoken::default(),
            trees: Trees::default(),
            usage: Usage::default(),
            last_outcome: None,
            last_prompt: None,
            ran_prompt: None,
            read_only: None,
            unsaved: false,
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

    /// All that a person is asked, what calls wait for first.
    pub fn asked(&self) -> impl Iterator<Item = &Arc<Approval>> {
        self.approvals.iter().map(|pending| &pending.approval).chain(&self.trust)
    }

    /// Entries that join the turn that runs. A turn has the rights of whoever started it, so a person's turn is steered
    /// by persons only; what others send waits for a turn of its own.
    pub fn steering(&self) -> impl Iterator<Item = &InboxEntry> {
        self.inbox.iter().filter(|entry| entry.at == At::Step && self.may_steer(entry.origin))
    }

    /// What has become of a turn, or of the prompt `id`: one that a turn took on its way ends with that turn.
    #[must_use]
    pub fn fate(&self, id: TurnId) -> Option<&Fate> {
        let fate = |id| self.prompts.get(&id).map(|prompt| &prompt.fate);
        match fate(id)? {
            Fate::Taken { turn } if *turn != id => fate(*turn),
            own => Some(own),
        }
    }

    /// Whether a message of `origin` may join the turn that runs.
    #[must_use]
    pub fn may_steer(&self, origin: Origin) -> bool {
        self.turn.as_ref().is_some_and(|turn| origin == Origin::Client || turn.origin != Origin::Client)
    }

    /// The turn that the waiting prompt `id` is going to join.
    #[must_use]
    pub fn steered_by(&self, id: TurnId) -> Option<TurnId> {
        let joins = !self.is_stopping() && self.steering().any(|entry| entry.prompt_id == id);
        self.turn.as_ref().filter(|_| joins).map(|turn| turn.id)
    }

    /// Whether a turn runs that was told to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.stopping.is_some())
    }

    #[must_use]
    pub fn call(&self, id: &CallId) -> Option<&Call> {
        self.turn.as_ref()?.calls().iter().find(|call| call.id == *id)
    }

    /// Prompts that wait for a person to prompt again.
    #[must_use]
    pub fn held_prompts(&self) -> u32 {
        if self.inbox_held { u32::try_from(self.inbox.len()).unwrap_or(u32::MAX) } else { 0 }
    }

    /// Whether nothing is going on that a restart would have to take up again.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.turn.is_none() && (self.inbox.is_empty() || self.inbox_held)
    }
}

impl Call {
    /// Whether a person has said yes to it.
    #[must_use]
    pub fn is_approved(&self) -> bool {
        matches!(self.state, CallState::Allowed { shown: Some(_) })
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
