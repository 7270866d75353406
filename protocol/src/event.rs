//! Events: what clients see of a session. Journaled events carry `sessionId`, `seq` and `at` and are never lost;
//! deltas are replaced by the journaled text; status events may be merged, the latest wins.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::approval::{Approval, By, ChoiceId};
use crate::blob::BlobRef;
use crate::ids::{ApprovalId, CallId, Digest, FeedSeq, MessageId, Seq, SessionId, TurnId};
use crate::mode::Mode;
use crate::permission::{Confinement, Decision, RuleLayer};
use crate::plan::PlanAuthor;
use crate::session::{Activity, Health, ModelInfo, Origin, State};
use crate::time::Timestamp;
use crate::turn::{Denial, Outcome, Usage};

/// `events/subscribe`. Sends the journaled events after `afterSeq`, then one `synced`, then live ones; no gap, no
/// double. Without `sessionId` it does the same with the daemon's feed and `afterFeedSeq`. Errors: `notFound`;
/// `conflict{head}` when a number is beyond the head; `invalidInput` for a number of the other kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SubscribeParams {
    /// Absent: the daemon's feed, which tells of all sessions what they are doing, which approvals come up and how they
    /// are settled, which sessions are made, put away and deleted; and what concerns no session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Absent: no history. 0: all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_seq: Option<Seq>,
    /// Of the daemon's feed: what came after this number is told first. If some of it is not kept any more, a `synced`
    /// with `gap` comes before the rest of it. Absent: from now on. State changes that a later one has replaced, and
    /// approvals that are settled, may be left out of what is told again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_feed_seq: Option<FeedSeq>,
    /// Whether to send text while it is being written.
    pub deltas: bool,
    /// Only these event types; `synced` always comes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub types: Option<Vec<String>>,
    /// The session's children and theirs too, each with its own numbers and its own `synced`; those made later join by
    /// themselves, from their beginning.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tree: bool,
    /// With `tree`: where to begin in each session, as `afterSeq` does for the first. Of a session that is not named here
    /// all is told if `afterSeq` is given, and no history otherwise.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub after: BTreeMap<SessionId, Seq>,
}

/// One event, flat on the wire with `type` first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Event {
    #[serde(flatten)]
    pub body: EventBody,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
    /// On the daemon's feed only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed_seq: Option<FeedSeq>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// What happened. Clients ignore types they do not know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum EventBody {
    // session
    SessionCreated {
        handle: String,
        title: Option<String>,
        cwd: String,
        mode: Mode,
        model: ModelInfo,
        parent: Option<SessionId>,
    },
    ModeChanged {
        from: Mode,
        to: Mode,
        by: By,
    },
    TitleChanged {
        title: String,
    },
    /// A person's answer made a rule: what it covers is not asked about again.
    RuleAdded {
        /// In the syntax of settings.
        rule: String,
        /// `session` or `saved`.
        layer: RuleLayer,
        by: By,
    },
    ContextReset {
        reason: ResetReason,
        /// Of a rewind: the turns that began with this number or after it, and before this event, are forgotten.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Seq>,
    },
    /// What comes before happened in the session that this one was forked from.
    SessionForked {
        from: SessionId,
        mode: Mode,
        by: By,
    },
    SessionArchived {
        archived: bool,
        by: By,
    },
    /// It was written into a bundle, and can only be looked at from now on.
    SessionHandedOver {
        /// Path of the bundle.
        bundle: String,
        by: By,
    },
    /// What comes before was in a bundle that was imported.
    SessionImported {
        bundle: String,
        cwd: String,
        mode: Mode,
        by: By,
    },

    // turn
    PromptAccepted {
        prompt_id: TurnId,
        /// The parts of the prompt. A text that is too long for an event is a [`BlobRef`].
        content: Vec<Value>,
        queued: bool,
        by: By,
    },
    PromptWithdrawn {
        prompt_id: TurnId,
    },
    TurnStarted {},
    /// The turn goes on after a crash or a restart.
    TurnResumed {},
    /// Replaces all text shown of its `messageId`.
    Message {
        message_id: MessageId,
        role: Role,
        text: Text,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thinking: Option<Text>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// Whether it was cut off: by an interrupt, a shutdown, a length limit.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        incomplete: bool,
    },
    /// Removes all text shown of its `messageId`. When `retryAt` is given the model is asked again then.
    MessageAborted {
        message_id: MessageId,
        reason: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
    },
    TurnFinished {
        outcome: Outcome,
        usage: Usage,
        denials: Vec<Denial>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },

    // tools
    /// A call that the model proposes. Refused ones show too.
    ToolCallStarted {
        call_id: CallId,
        tool: String,
        kind: ToolKind,
        title: String,
        input: Value,
        paths: Vec<String>,
    },
    PermissionDecided {
        call_id: CallId,
        decision: Decision,
        /// A reason code, such as `plan.write`.
        reason: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        confinement: Option<Confinement>,
        /// What the classifier of mode `auto` said of it, or why it said nothing. A model's words, or a provider's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// The breaker of mode `auto` opened or was closed. On the daemon's feed, without a session: the one that holds for all.
    BreakerChanged {
        open: bool,
        by: By,
        /// Refusals of the classifier, of a session's own breaker.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        in_row: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        total: Option<u32>,
    },
    ToolCallFinished {
        call_id: CallId,
        status: ToolStatus,
        /// A reason code when it did not run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        content: Text,
        /// Unified diff of what it changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        diff: Option<Text>,
    },
    FileChanged {
        path: String,
        /// Absent: the file did not exist.
        before: Option<Digest>,
        /// Absent: the file is gone.
        after: Option<Digest>,
        call_id: CallId,
        added: u32,
        removed: u32,
    },

    // approvals
    ApprovalRequested(Approval),
    /// The same approval, now about other content: an edited plan.
    ApprovalChanged(Approval),
    ApprovalResolved {
        approval_id: ApprovalId,
        resolution: Resolution,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        choice: Option<ChoiceId>,
        by: By,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        feedback: Option<String>,
    },

    // plan
    PlanEntered {
        pre_mode: Mode,
        path: String,
        cycle: u32,
        /// What still runs and could write.
        running: Vec<String>,
    },
    PlanChanged {
        revision: Digest,
        diff: Text,
        by: PlanAuthor,
    },
    PlanApproved {
        revision: Digest,
        choice: ChoiceId,
        mode_after: Mode,
    },
    PlanRejected {
        revision: Digest,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        feedback: Option<String>,
    },
    /// The plan file was gone or damaged; its text was found elsewhere and written back.
    PlanRecovered {
        from: String,
        revision: Digest,
    },

    // delta
    /// Text being written. `offset` counts the UTF-8 bytes before it.
    MessageDelta {
        message_id: MessageId,
        offset: u64,
        text: String,
    },
    ThinkingDelta {
        message_id: MessageId,
        offset: u64,
        text: String,
    },

    // control
    /// All history asked for has been sent; this is the state at `seq`.
    Synced {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<Box<State>>,
        /// On the daemon's feed: the sessions that are not idle.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sessions: Option<Vec<SessionId>>,
        /// On the daemon's feed: the approvals that wait; `approval/list` has what they ask.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approvals: Option<Vec<ApprovalId>>,
        /// On the daemon's feed: some of what comes next may be missing, because it is too old, or because the daemon did
        /// not end in order. What is here and in `session/list` is right all the same. What is known follows, and then
        /// another `synced`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        gap: bool,
    },

    // status
    StateChanged {
        activity: Activity,
        waiting_for: Vec<ApprovalId>,
        last_outcome: Option<Outcome>,
        health: Health,
    },
    Notice {
        code: String,
        text: String,
    },
    SessionDeleted {},
    ShuttingDown {},

    /// A type that this build does not know.
    #[serde(other)]
    Unknown,
}

/// What kind of thing a tool does, for icons and grouping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum ToolKind {
    Read,
    Edit,
    Search,
    Execute,
    Ask,
    Plan,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum ToolStatus {
    /// It ran and did what was asked.
    Ok,
    /// It ran, or could not start, and failed.
    Error,
    /// The gate or a person refused it.
    Denied,
    /// It never started: an earlier call changed the mode, was denied, or the turn ended.
    NotRun,
    /// It was stopped, or a crash left it without a result.
    Interrupted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Role {
    User,
    Assistant,
    /// Written by agentd for the model: guidance, reminders.
    System,
}

/// Why the context was rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum ResetReason {
    Clear,
    Compact,
    Rewind,
    Model,
}

/// How an approval left the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Resolution {
    /// A person chose.
    Answered,
    /// A mode or rule change made the answer unnecessary.
    SettledByMode,
    /// The turn ended, or the mode no longer permits it; trust: answered elsewhere, or there is nothing to trust any more.
    Cancelled,
    Expired,
}

/// Text on the wire: inline up to 256 KiB, a blob above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Text {
    Inline(String),
    Blob(BlobRef),
}

impl Text {
    /// The text, or of a blob its head.
    #[must_use]
    pub fn preview(&self) -> &str {
        match self {
            Text::Inline(text) => text,
            Text::Blob(blob) => blob.head.as_deref().unwrap_or(""),
        }
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Text::Inline(text)
    }
}

impl Event {
    /// An event of no session, without a place in any order.
    #[must_use]
    pub fn new(body: EventBody) -> Self {
        Self { body, session_id: None, seq: None, feed_seq: None, at: None, turn_id: None, origin: None }
    }

    /// A session's event that its journal does not hold.
    #[must_use]
    pub fn of(session: SessionId, body: EventBody) -> Self {
        Self { session_id: Some(session), ..Self::new(body) }
    }
}

impl EventBody {
    /// The `synced` of a session.
    #[must_use]
    pub fn synced(state: State) -> Self {
        EventBody::Synced { state: Some(Box::new(state)), sessions: None, approvals: None, gap: false }
    }

    /// The wire name. `unknown` for types this build does not know.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            EventBody::SessionCreated { .. } => "sessionCreated",
            EventBody::ModeChanged { .. } => "modeChanged",
            EventBody::RuleAdded { .. } => "ruleAdded",
            EventBody::TitleChanged { .. } => "titleChanged",
            EventBody::ContextReset { .. } => "contextReset",
            EventBody::SessionForked { .. } => "sessionForked",
            EventBody::SessionArchived { .. } => "sessionArchived",
            EventBody::SessionHandedOver { .. } => "sessionHandedOver",
            EventBody::SessionImported { .. } => "sessionImported",
            EventBody::PromptAccepted { .. } => "promptAccepted",
            EventBody::PromptWithdrawn { .. } => "promptWithdrawn",
            EventBody::TurnStarted {} => "turnStarted",
            EventBody::TurnResumed {} => "turnResumed",
            EventBody::Message { .. } => "message",
            EventBody::MessageAborted { .. } => "messageAborted",
            EventBody::TurnFinished { .. } => "turnFinished",
            EventBody::ToolCallStarted { .. } => "toolCallStarted",
            EventBody::PermissionDecided { .. } => "permissionDecided",
            EventBody::BreakerChanged { .. } => "breakerChanged",
            EventBody::ToolCallFinished { .. } => "toolCallFinished",
            EventBody::FileChanged { .. } => "fileChanged",
            EventBody::ApprovalRequested(_) => "approvalRequested",
            EventBody::ApprovalChanged(_) => "approvalChanged",
            EventBody::ApprovalResolved { .. } => "approvalResolved",
            EventBody::PlanEntered { .. } => "planEntered",
            EventBody::PlanChanged { .. } => "planChanged",
            EventBody::PlanApproved { .. } => "planApproved",
            EventBody::PlanRejected { .. } => "planRejected",
            EventBody::PlanRecovered { .. } => "planRecovered",
            EventBody::MessageDelta { .. } => "messageDelta",
            EventBody::ThinkingDelta { .. } => "thinkingDelta",
            EventBody::Synced { .. } => "synced",
            EventBody::StateChanged { .. } => "stateChanged",
            EventBody::Notice { .. } => "notice",
            EventBody::SessionDeleted {} => "sessionDeleted",
            EventBody::ShuttingDown {} => "shuttingDown",
            EventBody::Unknown => "unknown",
        }
    }

    /// Every type that a daemon of this version sends.
    pub const TYPE_NAMES: &'static [&'static str] = &[
        "sessionCreated",
        "modeChanged",
        "titleChanged",
        "contextReset",
        "sessionForked",
        "sessionArchived",
        "sessionHandedOver",
        "sessionImported",
        "promptAccepted",
        "promptWithdrawn",
        "turnStarted",
        "turnResumed",
        "message",
        "messageAborted",
        "turnFinished",
        "toolCallStarted",
        "permissionDecided",
        "breakerChanged",
        "toolCallFinished",
        "fileChanged",
        "approvalRequested",
        "approvalChanged",
        "approvalResolved",
        "planEntered",
        "planChanged",
        "planApproved",
        "planRejected",
        "planRecovered",
        "messageDelta",
        "thinkingDelta",
        "synced",
        "stateChanged",
        "notice",
        "sessionDeleted",
        "shuttingDown",
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_flat_with_the_type_first() {
        let event = Event {
            body: EventBody::PlanChanged {
                revision: Digest::from_bytes([3; 32]),
                diff: Text::Inline("+x".into()),
                by: PlanAuthor::Own,
            },
            session_id: Some(SessionId::generate()),
            seq: Some(Seq(7)),
            feed_seq: None,
            at: Some(Timestamp::from_unix_ms(0)),
            turn_id: None,
            origin: None,
        };
        let text = serde_json::to_string(&event).unwrap();
        assert!(text.starts_with(r#"{"type":"planChanged""#), "{text}");
        assert!(text.contains(r#""seq":7"#));
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
    }

    #[test]
    fn an_unknown_type_is_kept_apart_not_an_error() {
        let event: Event = serde_json::from_str(r#"{"type":"futureThing","seq":9,"more":[1]}"#).unwrap();
        assert_eq!(event.body, EventBody::Unknown);
        assert_eq!(event.seq, Some(Seq(9)));
    }

    #[test]
    fn type_names_agree_with_the_wire() {
        for (body, name) in [
            (EventBody::TurnStarted {}, "turnStarted"),
            (EventBody::ShuttingDown {}, "shuttingDown"),
            (EventBody::TitleChanged { title: String::new() }, "titleChanged"),
        ] {
            assert_eq!(serde_json::to_value(&body).unwrap()["type"], name);
            assert_eq!(body.type_name(), name);
            assert!(EventBody::TYPE_NAMES.contains(&name));
        }
    }
}
