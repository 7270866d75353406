//! A subscriber's place in the feed, and what it finds there. It costs the feed nothing: what is told is in memory once for
//! all, and what has left memory is read from the log piece by piece.

use std::collections::BTreeMap;

use agentd_protocol::event::EventBody;
use agentd_protocol::{Event, FeedSeq, Seq};

use super::{DaemonFeed, Inner, numbered};
use crate::journal::FeedPage;
use crate::session::feed::WireEvent;

/// Events handed out at a time.
const BATCH: usize = 64;
/// Bytes read from the log at a time.
const PAGE: usize = 256 * 1024;

/// A subscriber's place.
#[derive(Clone, Debug)]
pub struct Cursor {
    at: FeedSeq,
    /// Up to here it was told that something may be missing.
    gap_to: FeedSeq,
    /// When it has caught up it is told so.
    owes_synced: bool,
}

/// A number that the feed has not come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beyond {
    pub head: FeedSeq,
}

enum Found {
    Events(Vec<WireEvent>),
    /// What comes next has left the ring.
    Far,
}

impl DaemonFeed {
    /// The place after `after`, or now.
    ///
    /// # Errors
    /// The feed has not come that far.
    pub fn cursor(&self, after: Option<FeedSeq>) -> Result<Cursor, Beyond> {
        let head = self.lock().head;
        match after {
            Some(after) if after > head => Err(Beyond { head }),
            after => Ok(Cursor { at: after.unwrap_or(head), gap_to: FeedSeq::default(), owes_synced: true }),
        }
    }

    /// What comes next at a place, which moves on: events with rising numbers, a `synced` when they are through, then
    /// nothing until more is told. Who falls behind what is kept in memory is told the rest from the log, without the
    /// states that others have replaced, and then a `synced` again. If some of it is missing, a `synced` that says so comes
    /// before anything that lies behind the gap, so that nobody can pass it unawares.
    pub async fn next(&self, cursor: &mut Cursor) -> Vec<WireEvent> {
        loop {
            let near = self.lock().near(cursor);
            let events = match near {
                Found::Events(events) => return events,
                Found::Far => self.far(cursor).await,
            };
            if !events.is_empty() {
                return events;
            }
        }
    }

    /// The next piece of what has left the ring: facts, and the latest of what was told besides.
    async fn far(&self, cursor: &mut Cursor) -> Vec<WireEvent> {
        let (at, edge) = {
            let inner = self.lock();
            // What comes after the edge is in memory.
            (cursor.at, inner.facts.from.min(inner.ring.from))
        };
        let mut found = BTreeMap::new();
        let mut until = at;
        if at < edge {
            let (page, gap_to) = self.page(at, edge).await;
            if gap_to > cursor.gap_to {
                cursor.gap_to = gap_to;
                return vec![self.lock().synced(at, true)];
            }
            let last = page.events.last().map(|(number, _)| *number);
            let events = page.events.iter().filter(|(number, _)| *number <= edge);
            found.extend(events.map(|(number, json)| (*number, kept(json))));
            until = last.filter(|last| page.more && *last < edge).unwrap_or(edge);
        }
        let inner = self.lock();
        if until >= edge && inner.facts.from <= until {
            let facts = inner.facts.after(until).take_while(|(number, _)| *number <= inner.ring.from);
            found.extend(facts.cloned());
            until = inner.ring.from.max(until);
        }
        found.extend(inner.known.between(at, until).cloned());
        cursor.at = until;
        found.into_values().collect()
    }

    /// Reads on in the log, and says up to where something of what came before `edge` may be missing.
    async fn page(&self, at: FeedSeq, edge: FeedSeq) -> (FeedPage, FeedSeq) {
        let page = self.log.read_after(at, PAGE).await.unwrap_or_else(|error| {
            tracing::warn!("the daemon's log cannot be read: {:#}", anyhow::Error::new(error));
            FeedPage::default()
        });
        let first = self.lock().first;
        let lags_behind = edge > first && page.last < edge;
        // The last daemon was cut off, and this one's beginning could not be written.
        let was_cut_off = page.last < first && !page.ended;
        let gap_to = match page.whole_from {
            _ if lags_behind => edge,
            _ if was_cut_off => first,
            Some(from) if at < from => from,
            None => edge,
            Some(_) => FeedSeq::default(),
        };
        (page, gap_to)
    }
}

impl Inner {
    fn near(&self, cursor: &mut Cursor) -> Found {
        if cursor.at < self.ring.from {
            cursor.owes_synced = true;
            return Found::Far;
        }
        let batch: Vec<_> = self.ring.after(cursor.at).take(BATCH).cloned().collect();
        if let Some((last, _)) = batch.last() {
            cursor.at = *last;
            return Found::Events(batch.into_iter().map(|(_, event)| event).collect());
        }
        if !std::mem::take(&mut cursor.owes_synced) {
            return Found::Events(Vec::new());
        }
        Found::Events(vec![self.synced(self.head, false)])
    }

    /// What holds at this moment, told at `number`.
    fn synced(&self, number: FeedSeq, gap: bool) -> WireEvent {
        let body = EventBody::Synced {
            state: None,
            sessions: Some(self.known.busy()),
            approvals: Some(self.known.waiting()),
            gap,
        };
        numbered(&WireEvent::new(&Event::new(body)), number)
    }
}

/// An event from the log.
fn kept(json: &str) -> WireEvent {
    let kind = serde_json::from_str::<Event>(json).map_or("unknown", |event| event.body.type_name());
    WireEvent { seq: Seq::default(), kind, json: json.into() }
}
