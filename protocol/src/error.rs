//! Error codes beyond those of JSON-RPC, each with a `data` object whose `kind` is its name.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// agentd's own error codes. Clients should switch on the code or on `data.kind`, never on the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// No such session, turn, approval, plan, blob.
    NotFound,
    /// The approval was already answered, cancelled or expired; `data` says by whom, how and when.
    ApprovalSettled,
    /// A plan's revision or an approval's digest changed; `data` carries the current one.
    Stale,
    /// An id reused with other parameters, a guard that failed, or not while a turn runs.
    Conflict,
    /// Mode not available, policy, untrusted project, peer or actor not allowed.
    Refused,
    /// Another daemon owns this state folder.
    HeldElsewhere,
    /// Too much at once; try again after `data.retryAfterMs`.
    Overloaded,
    /// Not durable. `data.changed` is `false` or `"unknown"`.
    Storage,
    /// The kernel or this build lacks it.
    Unsupported,
    /// Well formed but wrong; `data.field` names the field.
    InvalidInput,
}

impl ErrorCode {
    pub const ALL: [ErrorCode; 10] = [
        ErrorCode::NotFound,
        ErrorCode::ApprovalSettled,
        ErrorCode::Stale,
        ErrorCode::Conflict,
        ErrorCode::Refused,
        ErrorCode::HeldElsewhere,
        ErrorCode::Overloaded,
        ErrorCode::Storage,
        ErrorCode::Unsupported,
        ErrorCode::InvalidInput,
    ];

    /// The JSON-RPC code.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            ErrorCode::NotFound => -32050,
            ErrorCode::ApprovalSettled => -32051,
            ErrorCode::Stale => -32052,
            ErrorCode::Conflict => -32053,
            ErrorCode::Refused => -32054,
            ErrorCode::HeldElsewhere => -32055,
            ErrorCode::Overloaded => -32056,
            ErrorCode::Storage => -32057,
            ErrorCode::Unsupported => -32058,
            ErrorCode::InvalidInput => -32059,
        }
    }

    /// `data.kind`.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            ErrorCode::NotFound => "notFound",
            ErrorCode::ApprovalSettled => "approvalSettled",
            ErrorCode::Stale => "stale",
            ErrorCode::Conflict => "conflict",
            ErrorCode::Refused => "refused",
            ErrorCode::HeldElsewhere => "heldElsewhere",
            ErrorCode::Overloaded => "overloaded",
            ErrorCode::Storage => "storage",
            ErrorCode::Unsupported => "unsupported",
            ErrorCode::InvalidInput => "invalidInput",
        }
    }

    #[must_use]
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.code() == code)
    }
}

/// The `data` of an error of ours: `kind`, and whatever else that kind carries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorData {
    pub kind: String,
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_found_again() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_code(code.code()), Some(code));
        }
        assert_eq!(ErrorCode::from_code(-32601), None);
    }
}
