//! Why a session refuses what it was asked, sorted by who can do something about it. `rpc` maps each to a code.

use std::sync::Arc;

use agentd_protocol::approval::Approval;
use agentd_protocol::transfer::HandedOver;
use agentd_protocol::{Seq, Timestamp};

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
    /// Not while something runs or waits.
    #[error("{0}")]
    Busy(String),
    #[error(
        "this session was handed over to the bundle {} on {}; `agentctl import FILE` takes it back", .0.bundle, day(.0.at)
    )]
    HandedOver(Box<HandedOver>),
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

fn day(at: Timestamp) -> String {
    at.to_string().chars().take(10).collect()
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
