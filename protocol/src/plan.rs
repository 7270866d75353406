//! Plans: a Markdown file owned by one session for one planning cycle.

use serde::{Deserialize, Serialize};

use crate::ids::{Digest, SessionId};

/// Where a plan stands within its cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum PlanPhase {
    /// Being written, in plan mode.
    Planning,
    /// Presented, waits for a person.
    Presented,
    /// A person approved it.
    Approved,
    /// Plan mode was left without an approval.
    Left,
}

/// A session's plan as `session/get` and `synced` show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PlanState {
    pub path: String,
    /// Digest of the newest journaled bytes. Absent while the file is still empty.
    pub revision: Option<Digest>,
    /// Counts the session's planning cycles from 1.
    pub cycle: u32,
    pub phase: PlanPhase,
}

/// Who changed a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum PlanAuthor {
    /// The session's own agent.
    Own,
    /// A client, through the protocol.
    Client,
    /// Something else wrote the file. Never worded as a person's will.
    Outside,
}

/// `plan/get`. Reads and hashes the file first, so an edit by hand shows. Errors: `notFound` when the session never
/// planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PlanGetParams {
    pub session_id: SessionId,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PlanGetResult {
    #[serde(flatten)]
    pub plan: PlanState,
    pub content: String,
}
