//! `session/history`: a session's journaled events, page by page, from either end.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::ids::{Seq, SessionId};

/// Events of one answer if `limit` is absent.
pub const DEFAULT_EVENTS: u32 = 200;
/// Events of one answer at most.
pub const MAX_EVENTS: u32 = 1000;

/// `session/history`. With `afterSeq` the page begins there; without it the page ends before `beforeSeq`, or at the
/// newest event. Events come in order either way. The session need not be in memory, and is not taken into it. Errors:
/// `notFound`; `conflict{head}` when `afterSeq` is beyond the head; `invalidInput` (an unknown event type).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HistoryParams {
    pub session_id: SessionId,
    /// Only events after this number. 0 is the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_seq: Option<Seq>,
    /// Only events before this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_seq: Option<Seq>,
    /// Events at most: 1 to 1,000, default 200. A page also ends at about 1 MiB; it has one event at least, if there is
    /// any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Only these event types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub types: Option<Vec<String>>,
}

impl HistoryParams {
    /// The newest page of all events.
    #[must_use]
    pub fn newest(session_id: SessionId) -> Self {
        Self { session_id, after_seq: None, before_seq: None, limit: None, types: None }
    }
}

/// A page of events.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HistoryResult {
    /// Each as a subscription would send it.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::event::Event>"))]
    pub events: Vec<Box<RawValue>>,
    /// The number of the session's newest record.
    pub head: Seq,
    /// Whether there is more in the direction of reading. With `types` a page may be empty and this true all the same:
    /// one call reads only so much of a long journal.
    pub more: bool,
    /// The `afterSeq`, or reading backwards the `beforeSeq`, of the next page. Present when there is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Seq>,
}
