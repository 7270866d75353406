//! Looking back: a session's journaled events, page by page.

use agentd_protocol::history::HistoryParams;
use agentd_protocol::{Event, EventBody, Seq, method};
use serde_json::value::RawValue;

use crate::client::{CallError, Client};
use crate::events::Received;

/// A page of events, in order.
#[derive(Clone, Debug)]
pub struct HistoryPage {
    pub events: Vec<Received>,
    /// The number of the session's newest record.
    pub head: Seq,
    /// What the next page in the direction of reading is asked for with: `after_seq`, or backwards `before_seq`.
    pub next: Option<Seq>,
}

impl Client {
    /// A page of a session's past. Types that this build does not know come as [`EventBody::Unknown`], with their JSON.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn history(&self, params: HistoryParams) -> Result<HistoryPage, CallError> {
        let page = self.call::<method::SessionHistory>(params).await?;
        let events = page.events.into_iter().map(received).collect();
        Ok(HistoryPage { events, head: page.head, next: page.next.filter(|_| page.more) })
    }
}

fn received(raw: Box<RawValue>) -> Received {
    let event = serde_json::from_str(raw.get()).unwrap_or_else(|_| unknown(&raw));
    Received { event, raw }
}

/// A known type with fields that this build cannot read still has its place.
fn unknown(raw: &RawValue) -> Event {
    #[derive(Default, serde::Deserialize)]
    struct Place {
        seq: Option<Seq>,
    }
    let place: Place = serde_json::from_str(raw.get()).unwrap_or_default();
    Event { seq: place.seq, ..Event::new(EventBody::Unknown) }
}
