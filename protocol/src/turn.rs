//! Turns: one run of the engine, from an inbox entry to `turnFinished`.

use serde::{Deserialize, Serialize};

use crate::ids::{SessionId, TurnId};

/// How a turn ended. A closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    Finished,
    /// By a person, or by a crash that left an effect's outcome unknown.
    Interrupted,
    /// A person denied a call without saying what to do instead.
    Refused,
    Failed,
    /// The prompt was taken back before its turn began.
    Withdrawn,
    /// A limit was reached.
    Limit,
}

impl Outcome {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Finished => "finished",
            Outcome::Interrupted => "interrupted",
            Outcome::Refused => "refused",
            Outcome::Failed => "failed",
            Outcome::Withdrawn => "withdrawn",
            Outcome::Limit => "limit",
        }
    }
}

/// Tokens as the provider counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Tokens of the request, those read from a cache included.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
    /// Requests that got an answer.
    pub requests: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cache_read_tokens = self.cache_read_tokens.saturating_add(other.cache_read_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(other.cache_write_tokens);
        self.requests = self.requests.saturating_add(other.requests);
    }
}

/// A call that did not run, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Denial {
    pub tool: String,
    pub title: String,
    /// A reason code, such as `plan.write`.
    pub reason: String,
}

/// `turn/wait`: answers when the turn has finished; holds no call slot meanwhile. Errors: `notFound`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TurnWaitParams {
    pub session_id: SessionId,
    pub turn_id: TurnId,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TurnWaitResult {
    pub outcome: Outcome,
    /// The text of the turn's last message.
    pub text: String,
    /// Why, for outcomes other than `finished`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub usage: Usage,
    pub denials: Vec<Denial>,
}
