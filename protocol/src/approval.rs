//! Approvals: durable questions to a person, pushed as events, answered by a call. The first valid answer wins.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{ApprovalId, CallId, Digest, SessionId};
use crate::mode::Mode;
use crate::time::Timestamp;
use crate::trust::TrustItem;

/// A pending approval, whole: what a person needs to see to answer it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    pub approval_id: ApprovalId,
    #[serde(flatten)]
    pub subject: Subject,
    /// One line for lists. May be cut; `subject` never is.
    pub title: String,
    /// A closed set. Anything else is refused.
    pub choices: Vec<Choice>,
    /// Digest of everything shown. An answer must repeat it.
    pub digest: Digest,
    /// After this moment it settles as refused. Absent: it waits for ever.
    pub expires_at: Option<Timestamp>,
    pub requested_at: Timestamp,
}

/// What is asked, by kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Subject {
    /// May this call run?
    Tool { tool: ToolSubject },
    /// May this plan be carried out?
    Plan { plan: PlanSubject },
    /// The agent asks a person something.
    Question { question: QuestionSubject },
    /// May this project switch on what its settings say? The turn does not wait for it.
    Trust { trust: TrustSubject },
}

impl Subject {
    #[must_use]
    pub fn kind(&self) -> ApprovalKind {
        match self {
            Subject::Tool { .. } => ApprovalKind::Tool,
            Subject::Plan { .. } => ApprovalKind::Plan,
            Subject::Question { .. } => ApprovalKind::Question,
            Subject::Trust { .. } => ApprovalKind::Trust,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum ApprovalKind {
    Tool,
    Plan,
    Question,
    Trust,
}

impl ApprovalKind {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ApprovalKind::Tool => "tool",
            ApprovalKind::Plan => "plan",
            ApprovalKind::Question => "question",
            ApprovalKind::Trust => "trust",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ToolSubject {
    pub call_id: CallId,
    pub tool: String,
    /// The arguments exactly as they will run.
    pub input: Value,
    pub cwd: String,
    /// What the call would do, one line each: `write /home/u/api/src/lib.rs`, `run cargo test`.
    pub effects: Vec<String>,
    /// `plan`, `workspace` or `off`. `off` means: with your full rights.
    pub confinement: Option<String>,
    /// Why the gate asks: a reason code.
    pub reason: String,
    /// What else is to be known: that the classifier of mode `auto` gave no answer, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// For edits: what would change, as a unified diff.
    pub diff: Option<String>,
    /// The rules that `allowForSession` and `allowAlways` would make, exactly. Empty where neither is offered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleOffer>,
}

/// A rule that a choice would make besides allowing the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RuleOffer {
    /// `allowForSession` or `allowAlways`.
    pub choice: ChoiceId,
    /// In the syntax of settings: `Bash(cargo test)`. It covers exactly what is shown and, of files read for a session,
    /// the folder that it names.
    pub rule: String,
    /// MCP: what the server's name stood for when this was shown. The rule covers no other server of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Digest>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PlanSubject {
    pub path: String,
    /// Digest of `content`. An answer must name it.
    pub revision: Digest,
    pub content: String,
    /// Unified diff from the revision presented before in this cycle, if there was one.
    pub diff: Option<String>,
    pub cycle: u32,
    /// What has to be known before answering, such as a save that could not be read and is not part of `content`. Part of
    /// the approval's digest: whoever has not seen it gets `stale`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The file was changed to something that cannot be approved, empty or too long. Until it is mended, choices that
    /// carry the plan out are `conflict`, but with `editedPlan`. Not part of the digest.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub blocked: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TrustSubject {
    /// The project's folder, by its true name.
    pub root: String,
    /// Its settings.
    pub file: String,
    /// All that they would switch on. Their deny and ask rules are not among it: those count in any case.
    pub items: Vec<TrustItem>,
    /// Of `items`, as `project/trust` tells it.
    pub revision: Digest,
    /// From what was trusted to `items`, as a unified diff, where something else was trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// Who trusted that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_by: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct QuestionSubject {
    pub call_id: CallId,
    pub questions: Vec<Question>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Question {
    pub question: String,
    /// Offered answers. Free text is always possible.
    #[serde(default)]
    pub options: Vec<QuestionOption>,
    /// Whether several options may be taken.
    #[serde(default)]
    pub multi_select: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct QuestionOption {
    pub label: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Choice {
    pub id: ChoiceId,
    pub label: String,
    /// The session's mode once this choice is taken.
    pub mode_after: Mode,
}

/// Every choice that any approval offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum ChoiceId {
    /// tool: run this call once.
    AllowOnce,
    /// tool: run it, and what the shown rules cover, until the session ends.
    AllowForSession,
    /// tool: run it, and what the shown rules cover, in every session of this project.
    AllowAlways,
    /// tool: do not run. With feedback the turn goes on, without it ends.
    Deny,
    /// plan: forget the conversation, keep the plan, edit without asking.
    ClearAndExecute,
    /// plan: keep the conversation, edit without asking.
    Execute,
    /// plan: back to the mode from before planning.
    ManualExecute,
    /// plan: stay in plan mode.
    KeepPlanning,
    /// question: here are the answers.
    Answer,
    /// question: no answer.
    Decline,
    /// trust: it switches on exactly what is shown, in every session of this project.
    Trust,
    /// trust: it does not, and nobody is asked again until it says something else.
    Untrusted,
}

impl ChoiceId {
    pub const ALL: [ChoiceId; 12] = [
        ChoiceId::AllowOnce,
        ChoiceId::AllowForSession,
        ChoiceId::AllowAlways,
        ChoiceId::Deny,
        ChoiceId::ClearAndExecute,
        ChoiceId::Execute,
        ChoiceId::ManualExecute,
        ChoiceId::KeepPlanning,
        ChoiceId::Answer,
        ChoiceId::Decline,
        ChoiceId::Trust,
        ChoiceId::Untrusted,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ChoiceId::AllowOnce => "allowOnce",
            ChoiceId::AllowForSession => "allowForSession",
            ChoiceId::AllowAlways => "allowAlways",
            ChoiceId::Deny => "deny",
            ChoiceId::ClearAndExecute => "clearAndExecute",
            ChoiceId::Execute => "execute",
            ChoiceId::ManualExecute => "manualExecute",
            ChoiceId::KeepPlanning => "keepPlanning",
            ChoiceId::Answer => "answer",
            ChoiceId::Decline => "decline",
            ChoiceId::Trust => "trust",
            ChoiceId::Untrusted => "untrusted",
        }
    }
}

/// A remark on some lines of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Comment {
    /// First line remarked on, counted from 1.
    pub start_line: u32,
    /// Last line remarked on, inclusive.
    pub end_line: u32,
    /// The remarked text as the person saw it.
    pub quote: String,
    pub text: String,
}

/// `approval/respond`. Errors: `notFound`; `approvalSettled` (who, what, when); `stale` (digest or revision changed,
/// carries the current approval); `refused` (a program answered what only a person may); `invalidInput`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RespondParams {
    pub approval_id: ApprovalId,
    /// One of the approval's choices.
    pub choice: ChoiceId,
    /// The digest that the approval carried.
    pub digest: Digest,
    /// plan: the revision that was shown. Required there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Digest>,
    /// Goes to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
    /// plan: remarks on lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comments: Vec<Comment>,
    /// plan: another mode than the choice's own. Not `plan`, not with `keepPlanning`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// plan: the person's own version, written as a new revision first; the choice then applies to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_plan: Option<String>,
    /// question: one entry a question, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<String>,
}

impl RespondParams {
    /// An answer to exactly what `approval` shows, with nothing added: its digest and, for a plan, its revision.
    #[must_use]
    pub fn to(approval: &Approval, choice: ChoiceId) -> Self {
        RespondParams {
            approval_id: approval.approval_id.clone(),
            choice,
            digest: approval.digest,
            revision: match &approval.subject {
                Subject::Plan { plan } => Some(plan.revision),
                Subject::Tool { .. } | Subject::Question { .. } | Subject::Trust { .. } => None,
            },
            feedback: None,
            comments: Vec::new(),
            mode: None,
            edited_plan: None,
            answers: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RespondResult {
    /// Always `accepted`.
    pub status: String,
    pub mode_now: Mode,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ApprovalListParams {
    /// Only this session's. Absent: every session's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}

/// A pending approval together with the session it belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct WaitingApproval {
    pub session_id: SessionId,
    pub handle: String,
    pub cwd: String,
    pub mode: Mode,
    #[serde(flatten)]
    pub approval: Approval,
}

/// Oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ApprovalListResult {
    pub approvals: Vec<WaitingApproval>,
}

/// `approval/get`. Errors: `notFound`, `approvalSettled`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ApprovalGetParams {
    pub approval_id: ApprovalId,
}

/// Who did something: settled an approval, changed a mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct By {
    /// `user:<uid>`, or `agentd` for what the daemon did by itself.
    pub principal: String,
    /// The client's name from `initialize`, or why the daemon did it.
    pub client: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choice_names_agree_with_the_wire() {
        for choice in ChoiceId::ALL {
            assert_eq!(serde_json::to_value(choice).unwrap(), choice.name());
        }
    }

    #[test]
    fn an_approval_is_flat_on_the_wire_and_round_trips() {
        let session = SessionId::generate();
        let approval = Approval {
            approval_id: ApprovalId::generate(session),
            subject: Subject::Plan {
                plan: PlanSubject {
                    path: "/p.md".into(),
                    revision: Digest::from_bytes([1; 32]),
                    content: "# Plan".into(),
                    diff: None,
                    cycle: 1,
                    note: None,
                    blocked: false,
                },
            },
            title: "Plan".into(),
            choices: vec![],
            digest: Digest::from_bytes([2; 32]),
            expires_at: None,
            requested_at: Timestamp::from_unix_ms(0),
        };
        let value = serde_json::to_value(&approval).unwrap();
        assert_eq!(value["kind"], "plan");
        assert_eq!(value["plan"]["content"], "# Plan");
        assert!(value["expiresAt"].is_null());
        assert_eq!(serde_json::from_value::<Approval>(value).unwrap(), approval);
    }
}
