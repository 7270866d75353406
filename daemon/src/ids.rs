//! Names: the ids of the protocol, digests of content, and the words of handles and slugs.

pub mod words;

pub use agentd_protocol::ids::{ApprovalId, CallId, DaemonId, Digest, MessageId, Seq, SessionId, TurnId};
use sha2::{Digest as _, Sha256};

/// The SHA-256 of some bytes.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> Digest {
    Digest::from_bytes(Sha256::digest(bytes).into())
}
