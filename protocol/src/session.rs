//! Sessions: making, listing, prompting, stopping, changing the mode.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::approval::Approval;
use crate::changes::RevertResult;
use crate::ids::{ApprovalId, CallId, MessageId, Seq, SessionId, TurnId};
use crate::mode::Mode;
use crate::permission::Breaker;
use crate::plan::PlanState;
use crate::time::Timestamp;
use crate::transfer::HandedOver;
use crate::turn::{Outcome, Usage};

/// `session/new`. Errors: `invalidInput` (`cwd`, `model`, `env`), `conflict` (`sessionId` reused with other
/// parameters), `refused` (mode not available), `unsupported` (a parameter that this version does not carry out).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NewParams {
    /// Names the session; the same id with the same parameters answers the same session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Absolute path of an existing folder.
    pub cwd: String,
    /// Default: the settings' mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// `provider/model` or `provider`. Default: settings, else by the key found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The client's environment for the session's processes: PATH, LANG, LC_*, TZ, VIRTUAL_ENV. Others are dropped,
    /// and names that look like secrets are refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Not built yet: `unsupported`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_dirs: Option<Value>,
    /// Not built yet: `unsupported`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Value>,
    /// Not built yet: `unsupported`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<Value>,
    /// Not built yet: `unsupported`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Value>,
    /// Not built yet: `unsupported`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_servers: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NewResult {
    pub session_id: SessionId,
    /// A name for people, fixed at creation: `api-paging-otter`.
    pub handle: String,
    pub state: State,
}

/// `session/get`, `session/delete`, `session/inbox`. Errors: `notFound`; of `session/delete` also `refused` (a program, if a
/// person made the session) and `storage`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SessionParams {
    pub session_id: SessionId,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct GetResult {
    pub state: State,
}

/// What a session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Activity {
    Idle,
    Running,
    /// Only a person can make it go on.
    Waiting,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Health {
    #[default]
    Ok,
    Degraded,
    /// The journal cannot be written, or holds what this version must not act on; or the session was handed over.
    ReadOnly,
}

/// Which model a session uses, and why that one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ModelInfo {
    pub provider: String,
    pub model: String,
    /// For people: "from ~/.config/agentd/config.toml", "the only key found".
    pub reason: String,
}

/// A session's full state, folded at `seq`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct State {
    pub session_id: SessionId,
    pub handle: String,
    pub title: Option<String>,
    pub parent: Option<SessionId>,
    pub cwd: String,
    pub mode: Mode,
    /// The mode that leaving plan mode returns to. Only in plan mode.
    pub pre_mode: Option<Mode>,
    pub model: ModelInfo,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub activity: Activity,
    pub turn_id: Option<TurnId>,
    /// How many turns have begun, those of the session that it was forked from included. They are numbered from 1 in the
    /// order of their `turnStarted` events.
    #[serde(default)]
    pub turns: u64,
    /// How many of them a rewind made the model forget. They keep their numbers.
    #[serde(default, skip_serializing_if = "none_forgotten")]
    pub forgotten_turns: u64,
    pub waiting_for: Vec<ApprovalId>,
    pub last_outcome: Option<Outcome>,
    pub health: Health,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archived: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
    /// It went into a bundle and can only be looked at here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed_over: Option<HandedOver>,
    pub seq: Seq,
    pub plan: Option<PlanState>,
    pub approvals: Vec<Approval>,
    pub calls: Vec<CallInfo>,
    /// Text of messages still being written.
    pub text: Vec<TextSoFar>,
    pub inbox: Vec<InboxItem>,
    /// After an interrupt the inbox waits for the next prompt of a person.
    pub inbox_held: bool,
    /// Always empty until background tasks exist.
    pub tasks: Vec<Value>,
    /// Always empty until the todo tool exists.
    pub todo: Vec<Value>,
    pub usage: Usage,
    /// Of mode `auto`: what its classifier has refused, and whether it is asked at all.
    #[serde(default, skip_serializing_if = "Breaker::is_untouched")]
    pub breaker: Breaker,
}

/// A call of the running turn that has no result yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CallInfo {
    pub call_id: CallId,
    pub tool: String,
    pub title: String,
    pub status: CallStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum CallStatus {
    Proposed,
    Waiting,
    Running,
}

/// Text shown as deltas so far. `offset` counts UTF-8 bytes, as in the delta events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TextSoFar {
    pub message_id: MessageId,
    pub text: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thinking: String,
}

/// Where a message comes from. It belongs to the message, not to the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    /// A person at a client.
    Client,
    /// A client that declared itself a program.
    Program,
    Schedule,
    Trigger,
    Agent,
    Hook,
}

/// When an inbox entry is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum At {
    /// Starts a turn of its own once the session is idle.
    #[default]
    Turn,
    /// Steers the running turn before its next request to the model; starts a turn when idle.
    Step,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct InboxItem {
    pub prompt_id: TurnId,
    pub origin: Origin,
    pub at: At,
    /// The first 200 characters.
    pub preview: String,
    pub queued_at: Timestamp,
}

/// One part of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Content {
    Text {
        text: String,
    },
    /// Not built yet: `unsupported`.
    Image {
        #[serde(rename = "mediaType")]
        media_type: String,
        data: String,
    },
    /// Read by the daemon when the prompt arrives, so a replay never reads other content.
    File {
        path: String,
    },
    Resource {
        uri: String,
        text: String,
    },
}

/// `session/prompt`. Answers once the prompt is durable; output comes as events. Errors: `notFound`, `conflict`
/// (`promptId` reused with other parameters), `invalidInput`, `refused`, `overloaded`, `storage`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PromptParams {
    pub session_id: SessionId,
    /// Names the prompt and its turn; the same id with the same parameters gives the same answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_id: Option<TurnId>,
    pub content: Vec<Content>,
    #[serde(default)]
    pub at: At,
    /// Set in the same commit as the prompt, so no other client's change comes between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Makes the text the feedback, or the free answer, of that approval. Never its approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<ApprovalId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PromptResult {
    /// The turn that this prompt starts, or the running one that it steers.
    pub turn_id: TurnId,
    /// Whether another turn goes first.
    pub queued: bool,
    /// The approval that holds up the turn in front.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<ApprovalId>,
}

/// `session/interrupt`; also taken as a notification. Stops the running turn, cancels its approvals, holds the inbox.
/// Errors: `notFound`; `conflict` when `turnId` is given and another turn, or none, runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct InterruptParams {
    pub session_id: SessionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct InterruptResult {
    /// The turn that is being stopped; absent when none ran.
    pub turn_id: Option<TurnId>,
}

/// `session/setMode`. Errors: `notFound`, `refused` (mode not available, or a program widening).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SetModeParams {
    pub session_id: SessionId,
    pub mode: Mode,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SetModeResult {
    pub mode: Mode,
}

/// `session/setTitle`. Errors: `notFound`, `invalidInput` (empty, or over 200 characters).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SetTitleParams {
    pub session_id: SessionId,
    pub title: String,
}

/// `session/fork`: a new idle session that has lived through the same as this one, up to the last moment at which no call
/// was open. It works in the same folder, has a copy of the plan of its own, no approvals, no inbox, and the narrower of
/// the mode that the session has now and the one it had then. Errors: `notFound`, `conflict` (`newSessionId` reused with
/// other parameters; `atSeq` beyond the head), `refused` (the journal holds what this version cannot read), `storage`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ForkParams {
    pub session_id: SessionId,
    /// Nothing after this number is taken along. Default: the head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_seq: Option<Seq>,
    /// Names the new session; the same id with the same parameters answers the same session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_session_id: Option<SessionId>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ForkResult {
    pub session_id: SessionId,
    pub handle: String,
    /// The last number that both sessions have in common.
    pub at_seq: Seq,
    pub state: State,
}

/// `session/rewind`: the model forgets everything from that turn on. What was journaled stays and can be looked at; mode,
/// plan, approvals and usage stay as they are now. Errors: `notFound` (session, turn), `conflict` while a turn runs or
/// prompts wait, `refused` (a program), `invalidInput` (`turns`), `storage`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RewindParams {
    pub session_id: SessionId,
    /// The first turn that is forgotten. Default: by `turns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_turn: Option<TurnId>,
    /// How many of the last turns that the model still knows are forgotten. Default: 1. Not with `beforeTurn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// Puts files back as they were before that turn, too. What somebody changed since stays, and is named.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RewindResult {
    /// The first turn that was forgotten.
    pub before_turn: TurnId,
    /// How many turns were that the model still knew, that one included; 0 where it was forgotten already.
    pub turns: u32,
    /// What became of the files, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<RevertResult>,
}

/// `session/archive`: out of the lists, until it is prompted again or taken back. Errors: `notFound`, `conflict` while it
/// is not idle, `refused` (a program, if a person made the session).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ArchiveParams {
    pub session_id: SessionId,
    /// Default: true.
    #[serde(default = "yes")]
    pub archived: bool,
}

fn yes() -> bool {
    true
}

/// Where a forked session comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ForkedFrom {
    pub session_id: SessionId,
    /// The last number that both have in common.
    pub seq: Seq,
}

/// `session/withdraw`: takes back a prompt that waits in the inbox. Errors: `notFound`, also once its turn has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WithdrawParams {
    pub session_id: SessionId,
    pub prompt_id: TurnId,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct InboxResult {
    pub inbox: Vec<InboxItem>,
    pub held: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Order {
    /// In order of creation; pages are stable.
    #[default]
    Created,
    /// Newest activity first; one answer of at most 500, no further page.
    Updated,
}

/// `session/list`. Never opens whole journals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ListParams {
    /// Only sessions in this folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Only sessions with this activity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<Activity>,
    /// Only sessions whose handle or title contains this, case ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Sessions with a parent are left out unless asked for.
    pub children: bool,
    /// Archived sessions are left out unless asked for.
    pub archived: bool,
    pub order: Order,
    /// Go on after this session (order `created`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<SessionId>,
    /// At most 500, which is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ListResult {
    pub sessions: Vec<Row>,
    /// Pass as `after` for the next page.
    pub next: Option<SessionId>,
}

/// One line of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub session_id: SessionId,
    pub handle: String,
    pub title: Option<String>,
    pub parent: Option<SessionId>,
    pub cwd: String,
    /// Absent for a session that is not in memory and whose last record does not tell.
    pub mode: Option<Mode>,
    pub model: ModelInfo,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub activity: Activity,
    pub waiting_for: Vec<ApprovalId>,
    pub last_outcome: Option<Outcome>,
    pub health: Health,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archived: bool,
    /// The first words of the newest prompt that was neither taken back nor is forgotten, on one line; absent where no prompt was sent, or where the session is not in
    /// memory and its last record does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_prompt: Option<String>,
    /// Prompts that wait in an inbox that an interrupt holds: the next prompt of a person lets them go.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held_prompts: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn none_forgotten(turns: &u64) -> bool {
    *turns == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}
