//! Why a session refuses what it was asked, sorted by who can do something about it. `rpc` maps each to a code.

use std::sync::Arc;

use agentd_protocol::Seq;
use agentd_protocol::approval::Approval;

use super::state::Settled;

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("no such {0}")]
    NotFound(&'static str),
    #[error("this approval is settled already")]
    ApprovalSettled(Box<Settled>),
    #[error("what was shown has changed; look at it again")]
    Stale(Arc<Approval>),
    #[error("{0}")]
    Conflict(String),
    #[error("the session has nothing after number {head}")]
    BeyondHead { head: Seq },
    #[error("{0}")]
    Refused(String),
    #[error("the session has too much to do; try again shortly")]
    Overloaded,
    #[error("{message}")]
    Storage { message: String, changed: Changed },
    #[error("{field} is not built yet")]
    Unsupported { field: &'static str },
    #[error("{message}")]
    Invalid { field: &'static str, message: String },
}

/// Whether a failed write may have happened all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    No,
    Unknown,
}

impl SessionError {
    #[must_use]
    pub fn invalid(field: &'static str, message: impl Into<String>) -> Self {
        SessionError::Invalid { field, message: message.into() }
    }
}
