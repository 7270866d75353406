//! The private records of a session: what the journal holds and what is folded into its state.
//!
//! Clients never see these; [`super::project`] turns each into at most one public event. A record that changes what may
//! run is marked `must`: a build that does not know it opens the session read-only instead of running wider.

use std::path::PathBuf;
use std::sync::Arc;

use agentd_protocol::approval::{Approval, By, ChoiceId};
use agentd_protocol::event::{ResetReason, Resolution, ToolKind, ToolStatus};
use agentd_protocol::mode::Mode;
use agentd_protocol::permission::{Confinement, Decision};
use agentd_protocol::plan::PlanAuthor;
use agentd_protocol::session::{At, ForkedFrom, ModelInfo, Origin};
use agentd_protocol::time::Timestamp;
use agentd_protocol::turn::{Denial, Outcome, Usage};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::ids::{ApprovalId, CallId, DaemonId, Digest, MessageId, Seq, SessionId, TurnId};
use crate::model::message::Stop;
use crate::permission::Breaker;
use crate::permission::Grant;
use crate::workspace::snapshot::TreeId;

/// The major version of this format. Raised when an older build could no longer read what a newer one writes.
pub const FORMAT: u32 = 1;

/// Text over this many bytes becomes a blob, so that journal lines stay short: long lines are the ones that tear.
pub const INLINE_LIMIT: usize = 32 * 1024;

/// Text of any length: inline while short, else a blob of the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Body {
    Inline(String),
    Blob { blob: Digest, size: u64, head: String, tail: String },
}

impl Body {
    /// The text, or of a blob its first characters.
    #[must_use]
    pub fn start(&self) -> &str {
        match self {
            Body::Inline(text) => text,
            Body::Blob { head, .. } => head,
        }
    }
}

/// JSON of any length: inline while short, else a blob of the session.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Json {
    Inline(Box<RawValue>),
    Blob(Digest),
}

macro_rules! records {
    ($($(#[$doc:meta])* $variant:ident($type:ident) = $name:literal $(, $must:ident)?;)*) => {
        /// One thing that happened.
        #[derive(Clone, Debug)]
        pub enum Record {
            $($(#[$doc])* $variant($type)),*
        }

        $(impl From<$type> for Record {
            fn from(body: $type) -> Self {
                Record::$variant(body)
            }
        })*

        impl Record {
            /// Every kind of record.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            #[must_use]
            pub fn name(&self) -> &'static str {
                match self { $(Record::$variant(_) => $name),* }
            }

            /// The record as one JSON object, `type` first. `turn` is the turn it belongs to.
            ///
            /// # Panics
            /// Never: every field has string keys and no type here fails to serialise.
            #[must_use]
            pub fn to_raw(&self, turn: Option<TurnId>) -> Box<RawValue> {
                let raw = match self {
                    $(Record::$variant(body) => serde_json::value::to_raw_value(&Tagged {
                        kind: $name,
                        must: [$(stringify!($must))?].contains(&"must"),
                        turn,
                        body,
                    })),*
                };
                raw.expect("records have string keys only")
            }

            /// Reads a record back. See [`Parsed`] for what is not one of ours.
            #[must_use]
            pub fn parse(raw: &RawValue) -> Parsed {
                let Ok(tag) = serde_json::from_str::<Tag<'_>>(raw.get()) else {
                    return Parsed::Unknown { must: false };
                };
                let record = match &*tag.kind {
                    $($name => serde_json::from_str::<$type>(raw.get()).map(Record::$variant).ok(),)*
                    _ => None,
                };
                match record {
                    Some(record) => Parsed::Known { record: Box::new(record), turn: tag.turn },
                    None => Parsed::Unknown { must: tag.must },
                }
            }
        }
    };
}

/// What a journaled object turned out to be.
#[derive(Debug)]
pub enum Parsed {
    Known {
        record: Box<Record>,
        /// The turn it belongs to.
        turn: Option<TurnId>,
    },
    /// Written by a newer version, or damaged. Kept in the journal and skipped; with `must` the session is read-only.
    Unknown { must: bool },
}

#[derive(Serialize)]
struct Tagged<'a, T> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    must: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<TurnId>,
    #[serde(flatten)]
    body: &'a T,
}

#[derive(Deserialize)]
struct Tag<'a> {
    #[serde(rename = "type", borrow)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(default)]
    must: bool,
    #[serde(default)]
    turn: Option<TurnId>,
}

records! {
    /// The first record of every journal.
    Created(Created) = "sessionCreated", must;
    ModeChanged(ModeChanged) = "modeChanged", must;
    TitleChanged(TitleChanged) = "titleChanged";
    RuleAdded(RuleAdded) = "ruleAdded";
    SessionForked(SessionForked) = "sessionForked", must;
    SessionArchived(SessionArchived) = "sessionArchived";
    HandedOver(HandedOver) = "sessionHandedOver", must;
    BundleNamed(BundleNamed) = "bundleNamed";
    SessionImported(SessionImported) = "sessionImported", must;
    PlanEntered(PlanEntered) = "planEntered", must;
    PlanWritten(PlanWritten) = "planWritten";
    PlanApproved(PlanApproved) = "planApproved";
    PlanRejected(PlanRejected) = "planRejected";
    PlanRecovered(PlanRecovered) = "planRecovered";
    PlanSaved(PlanSaved) = "planSaved";
    InboxAdded(InboxAdded) = "inboxAdded";
    InboxTaken(InboxTaken) = "inboxTaken";
    InboxWithdrawn(InboxWithdrawn) = "inboxWithdrawn";
    CommandRun(CommandRun) = "commandRun";
    TurnStarted(TurnStarted) = "turnStarted";
    TurnResumed(TurnResumed) = "turnResumed";
    TurnParked(TurnParked) = "turnParked";
    TurnStopping(TurnStopping) = "turnStopping", must;
    TurnFinished(TurnFinished) = "turnFinished";
    ContextAdded(ContextAdded) = "contextAdded";
    ContextReset(ContextReset) = "contextReset", must;
    SampleStarted(SampleStarted) = "sampleStarted";
    SampleFailed(SampleFailed) = "sampleFailed";
    Replied(Replied) = "replied";
    CallProposed(CallProposed) = "callProposed";
    CallJudged(CallJudged) = "callJudged";
    CallClassified(CallClassified) = "callClassified";
    BreakerChanged(BreakerChanged) = "breakerChanged";
    CallStarted(CallStarted) = "callStarted";
    CallFinished(CallFinished) = "callFinished";
    FileChanged(FileChanged) = "fileChanged";
    TreeKept(TreeKept) = "treeKept";
    ApprovalRequested(ApprovalRequested) = "approvalRequested", must;
    ApprovalChanged(ApprovalChanged) = "approvalChanged", must;
    TrustAsked(TrustAsked) = "trustAsked", must;
    ApprovalResolved(ApprovalResolved) = "approvalResolved", must;
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Created {
    pub format: u32,
    pub daemon_id: DaemonId,
    pub session_id: SessionId,
    pub handle: String,
    pub title: Option<String>,
    pub cwd: PathBuf,
    pub mode: Mode,
    pub model: ModelInfo,
    /// A child names the session and the call it belongs to.
    pub parent: Option<Parent>,
    pub origin: Origin,
    pub by: By,
    /// Blobs of the prefix, fixed until the context is reset.
    pub system_prompt: Digest,
    pub tools: Digest,
    /// Digest of the parameters: the same id with the same parameters is the same session.
    pub params: Digest,
    /// The records up to that number are those of another session; `sessionForked` comes right after them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
}

/// From here on the journal is this session's own. What only concerned the session before ends: its turn, its approvals,
/// its inbox, its plan's file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionForked {
    pub from: SessionId,
    pub mode: Mode,
    pub by: By,
    /// The copy of the plan.
    pub plan: Option<PlanCopy>,
    /// It came out of a bundle.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_bundle: bool,
    /// The widest mode that it may go back to from plan mode. Absent: `acceptEdits`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub widest: Option<Mode>,
    /// The other session's breaker of mode `auto` as it is now, whatever it was at the point of the fork.
    #[serde(default)]
    pub breaker: Breaker,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanCopy {
    pub slug: String,
    pub path: PathBuf,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionArchived {
    pub archived: bool,
    pub by: By,
}

/// The session belongs to whoever has the bundle, of which this record is the end. Written once the bundle is whole and
/// before it has a name, so that it has an owner at every moment and never two.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandedOver {
    pub bundle: PathBuf,
    pub epoch: u64,
    /// The version of agentd that wrote the bundle, which is written again as it was.
    pub version: String,
    pub by: By,
}

/// The bundle stands where it was to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleNamed {
    pub bundle: PathBuf,
}

/// The session came out of a bundle and is owned here from now on.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionImported {
    pub bundle: PathBuf,
    /// Digest of the parameters: the same import is the same session.
    pub params: Digest,
    pub epoch: u64,
    pub cwd: PathBuf,
    pub mode: Mode,
    pub by: By,
    /// The plan's file here.
    pub plan: Option<PlanCopy>,
    /// Plan files of the session that was here before, for the day it is deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan_files: Vec<PathBuf>,
    /// The widest mode that it may go back to from plan mode. Absent: `acceptEdits`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub widest: Option<Mode>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Parent {
    pub session_id: SessionId,
    pub call_id: CallId,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModeChanged {
    pub from: Mode,
    pub to: Mode,
    pub by: By,
}

/// A person's answer made a rule.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleAdded {
    pub grant: Grant,
    pub by: By,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TitleChanged {
    pub title: String,
}

/// Plan mode begins: sets the mode, names the file, remembers where to return to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanEntered {
    pub pre_mode: Mode,
    pub slug: String,
    pub path: PathBuf,
    pub cycle: u32,
    pub running: Vec<String>,
}

/// A revision of the plan; its bytes are the blob of that digest, written before this record.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanWritten {
    pub revision: Digest,
    pub by: PlanAuthor,
    pub diff: Body,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanApproved {
    pub revision: Digest,
    pub choice: ChoiceId,
    pub mode_after: Mode,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanRejected {
    pub revision: Digest,
    pub feedback: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanRecovered {
    pub from: String,
    pub revision: Digest,
    /// Why what stood in the plan's place could not be read; it was set aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
}

/// The plan's file holds this revision, which was agentd's to write.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanSaved {
    pub revision: Digest,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InboxAdded {
    pub prompt_id: TurnId,
    pub origin: Origin,
    pub at_point: At,
    pub content: Vec<Part>,
    pub by: By,
    /// Digest of the parameters: the same id with the same parameters is the same prompt.
    pub params: Digest,
    pub queued: bool,
    /// When the prompt arrived.
    pub queued_at: Timestamp,
}

/// A part of a prompt as it came; a file that it named is a resource, read when the prompt arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Part {
    Text { text: Body },
    Resource { uri: String, text: Body },
}

impl Part {
    #[must_use]
    pub fn text(&self) -> &Body {
        match self {
            Part::Text { text } | Part::Resource { text, .. } => text,
        }
    }

    pub fn text_mut(&mut self) -> &mut Body {
        match self {
            Part::Text { text } | Part::Resource { text, .. } => text,
        }
    }
}

/// An entry leaves the inbox and joins a turn: its own, or the running one that it steers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InboxTaken {
    pub prompt_id: TurnId,
    pub turn_id: TurnId,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InboxWithdrawn {
    pub prompt_id: TurnId,
    /// What a list says of the session from here on, should this be the last line of its journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<AtRest>,
}

/// What a list tells of a session at rest.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AtRest {
    pub mode: Mode,
    pub last_outcome: Option<Outcome>,
    pub last_prompt: Option<String>,
    pub held_prompts: u32,
}

/// A prompt was a control command, or answered an approval; what it did is in the records beside this one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandRun {
    pub prompt_id: TurnId,
    pub name: String,
    pub params: Digest,
    pub by: By,
    /// The turn that goes on with it, if it answered one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnStarted {
    pub turn_id: TurnId,
    pub origin: Origin,
}

/// The turn goes on after a restart.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnResumed {
    pub turn_id: TurnId,
    /// Whether the daemon had died in the turn. A second crash ends it.
    pub after_crash: bool,
}

/// A clean shutdown put the turn down.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnParked {
    pub turn_id: TurnId,
}

/// A person interrupts: no further step is taken and the inbox waits for the next prompt of a person.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnStopping {
    pub turn_id: TurnId,
    pub by: By,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnFinished {
    pub turn_id: TurnId,
    pub outcome: Outcome,
    pub usage: Usage,
    pub denials: Vec<Denial>,
    pub error: Option<String>,
    /// The mode at the end, so that a list can read it from a journal's last line.
    pub mode: Mode,
    /// Whether the inbox waits for a person from here on.
    pub hold_inbox: bool,
    /// The first words of the newest prompt, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_prompt: Option<String>,
    /// Prompts that are held from here on, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_prompts: Option<u32>,
}

/// A message enters the context.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContextAdded {
    pub message_id: MessageId,
    pub source: Source,
    /// Of a prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    pub text: Body,
}

/// Who a context message is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// The folder, the date, the project's own instructions. Survives resets.
    Environment,
    /// A prompt; shown to clients.
    Prompt,
    /// Written by agentd: guidance, a mode change.
    Guidance,
    /// The approved plan that a cleared context begins with.
    Plan,
}

/// The context becomes the kept messages, then whatever is added after.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContextReset {
    pub reason: ResetReason,
    /// Numbers of the records that it is made of now, in their old order; an earlier reset may have taken them out.
    pub keep: Vec<Seq>,
    /// Of a rewind: the first record of the first turn that is forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Seq>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SampleStarted {
    pub message_id: MessageId,
    pub attempt: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SampleFailed {
    pub message_id: MessageId,
    pub error: String,
    pub then: AfterFailure,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum AfterFailure {
    /// Asked again at that moment.
    Retry { at: Timestamp },
    /// Asked again at once: a restart cut it off, not a fault of the provider.
    Again,
    /// The turn ends.
    GiveUp,
}

/// The model's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Replied {
    pub message_id: MessageId,
    pub text: Body,
    pub thinking: Option<Body>,
    /// The neutral message with its raw bytes. Absent for a text that was cut off and will be asked for again: people
    /// saw it, the model will not.
    pub message: Option<Json>,
    pub usage: Usage,
    pub end: ReplyEnd,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReplyEnd {
    /// As the model wanted it.
    Model(Stop),
    /// Cut by an interrupt or a shutdown.
    Cut,
}

/// One call of the answer just recorded; calls follow in order, in the same commit.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallProposed {
    pub call_id: CallId,
    /// The id inside the provider's message.
    pub provider_id: String,
    pub tool: String,
    pub kind: ToolKind,
    pub title: String,
    pub input: CallInput,
    /// Neighbouring read-only calls form one group.
    pub read_only: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum CallInput {
    Json(Json),
    Malformed { problem: String, text: Body },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallJudged {
    pub call_id: CallId,
    pub decision: Decision,
    pub reason: String,
    pub rule: Option<String>,
    pub confinement: Option<Confinement>,
    /// The mode it was judged in.
    pub mode: Mode,
    /// What the classifier of mode `auto` said besides, or why it said nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The classifier of mode `auto` was asked about a call. What became of the call is said by the `callJudged` beside it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallClassified {
    pub call_id: CallId,
    pub heard: Heard,
    /// `provider/model`. Absent: none could be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    pub usage: Usage,
}

/// What the breaker counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Heard {
    Allowed,
    Blocked,
    Unreadable,
    /// Too late, not to be reached, or not asked: the call was too long.
    Nothing,
    /// The mode, the rules or the breaker had changed meanwhile, so the answer counted for nothing.
    Dropped,
}

/// The breaker of mode `auto` opened, or a person closed it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BreakerChanged {
    pub change: BreakerChange,
    pub by: By,
    pub in_row: u32,
    pub total: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BreakerChange {
    /// By what the classifier has refused, which other records say.
    Tripped,
    /// By hand.
    Thrown,
    Closed,
}

/// Effects may have happened from here on.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallStarted {
    pub call_id: CallId,
    pub effects: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallFinished {
    pub call_id: CallId,
    pub status: ToolStatus,
    /// A reason code when it did not run.
    pub reason: Option<String>,
    pub content: Body,
    pub diff: Option<Body>,
    /// Content hashes that the session now knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<(PathBuf, Digest)>,
    /// Of a call with effects. Absent though it ran: it is not known when it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<Ran>,
}

/// The time in which a call could change files, in nanoseconds since 1970, as the stamps of files have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ran {
    pub from: u64,
    pub until: u64,
    /// A tool that tells all that it changes; else a command.
    pub tells: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileChanged {
    pub call_id: CallId,
    pub path: PathBuf,
    pub before: Option<Digest>,
    pub after: Option<Digest>,
    pub added: u32,
    pub removed: u32,
}

/// A snapshot of the work tree was taken at one end of a turn, or could not be.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TreeKept {
    pub turn_id: TurnId,
    pub when: When,
    pub kept: Kept,
    /// After a restart: what others changed in between is in it too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// As at the end of the turn before, so that a list can read them from a journal's last line.
    pub mode: Mode,
    pub outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum When {
    /// Before the turn's first effect.
    Before,
    /// Before its first effect after a plan was approved in it.
    Plan,
    /// Before a later effect, where others had time to change something.
    Between,
    After,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Kept {
    Tree {
        /// Of the repository.
        root: PathBuf,
        tree: TreeId,
        /// A list of `LeftOut`. Absent: nothing was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left_out: Option<Json>,
        /// A list of places, as text, that git leaves out. Absent: not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hidden: Option<Json>,
        /// A `Whose`: what came about since the session's snapshot before. Absent: not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        whose: Option<Json>,
    },
    Not {
        reason: String,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequested {
    pub call_id: CallId,
    pub approval: Arc<Approval>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalChanged {
    pub approval: Arc<Approval>,
}

/// Whether the project may switch something on. It belongs to no call and no turn waits for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrustAsked {
    pub approval: Arc<Approval>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalResolved {
    pub approval_id: ApprovalId,
    pub resolution: Resolution,
    pub choice: Option<ChoiceId>,
    pub by: By,
    pub feedback: Option<String>,
    /// Digest of all that the answer said, so that its repetition is known from another answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Digest>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_record_is_one_object_with_its_type_first_and_round_trips() {
        let by = By { principal: "user:1".into(), client: "test".into(), pid: None };
        let record = Record::from(ModeChanged { from: Mode::Default, to: Mode::Plan, by });
        let text = record.to_raw(None);
        assert!(text.get().starts_with(r#"{"type":"modeChanged","must":true"#), "{}", text.get());
        let Parsed::Known { record: again, turn: None } = Record::parse(&text) else {
            panic!("not read back")
        };
        assert_eq!(again.to_raw(None).get(), text.get());
    }

    #[test]
    fn raw_json_survives_byte_for_byte() {
        let input = r#"{"b":1.50,"a":"é\u0041"}"#;
        let session = SessionId::generate();
        let turn = Some(TurnId::generate());
        let record = Record::from(CallProposed {
            call_id: CallId::generate(session),
            provider_id: "x".into(),
            tool: "read_file".into(),
            kind: ToolKind::Read,
            title: "read".into(),
            input: CallInput::Json(Json::Inline(raw(input))),
            read_only: true,
        });
        let Parsed::Known { record: again, turn: t } = Record::parse(&record.to_raw(turn)) else {
            panic!("not read back")
        };
        assert_eq!(t, turn);
        let Record::CallProposed(CallProposed { input: CallInput::Json(Json::Inline(json)), .. }) = *again
        else {
            panic!("another record")
        };
        assert_eq!(json.get(), input);
    }

    #[test]
    fn unknown_records_are_skipped_and_must_ones_noticed() {
        assert!(matches!(Record::parse(&raw(r#"{"type":"future"}"#)), Parsed::Unknown { must: false }));
        assert!(matches!(
            Record::parse(&raw(r#"{"type":"future","must":true}"#)),
            Parsed::Unknown { must: true }
        ));
        // A known name whose fields this version cannot read is no less dangerous.
        let broken = raw(r#"{"type":"modeChanged","must":true,"to":"warp"}"#);
        assert!(matches!(Record::parse(&broken), Parsed::Unknown { must: true }));
        assert!(matches!(Record::parse(&raw("[1]")), Parsed::Unknown { must: false }));
    }
}
