//! The words that agentd and its clients say to each other, protocol version 1.
//!
//! Plain data: method parameters and results by resource, events, error codes, ids. The crate does no I/O and knows
//! nothing that only the daemon knows. Behind features: `schema` (JSON Schema of everything), `codec` (the framings of
//! the socket). Wire names are camelCase; times are RFC 3339 UTC with milliseconds; durations end in `Ms`.

pub mod approval;
pub mod blob;
pub mod changes;
#[cfg(feature = "codec")]
pub mod codec;
pub mod config;
pub mod daemon;
pub mod error;
pub mod event;
pub mod history;
pub mod ids;
pub mod initialize;
pub mod key;
pub mod method;
pub mod mode;
pub mod permission;
pub mod plan;
#[cfg(feature = "schema")]
pub mod schema;
pub mod search;
pub mod session;
pub mod show;
pub mod time;
pub mod transfer;
pub mod trust;
pub mod turn;

pub use error::{ErrorCode, ErrorData};
pub use event::{Event, EventBody};
pub use ids::{ApprovalId, CallId, Digest, FeedSeq, MessageId, Seq, SessionId, TurnId};
pub use method::Method;
pub use mode::Mode;
pub use time::Timestamp;

/// The version of this protocol. A daemon refuses others and names those it speaks.
pub const PROTOCOL_VERSION: u32 = 1;
