//! The daemon's own feed, for clients that watch everything: what any session is doing, which approvals come up, and facts
//! about sessions and the daemon. Every event has a number of the feed's own, by which a client that was away goes on.
//!
//! Two kinds. A *status* (what a session is doing, what it asks) is replaced by the next one: who was away is told the
//! latest. A *fact* (made, put away, deleted, settled, going down) is told to everybody; the newest are in memory, the
//! others in the log, which [`keep`] writes behind what is told here.

mod keep;
mod known;
mod reading;

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use agentd_protocol::approval::Approval;
use agentd_protocol::event::EventBody;
use agentd_protocol::session::{Row, State};
use agentd_protocol::{Event, FeedSeq, Timestamp};
use tokio::sync::{Notify, watch};

use crate::ids::SessionId;
use crate::journal::FeedLog;
use crate::session::feed::WireEvent;

pub use reading::{Beyond, Cursor};

use keep::Unwritten;
use known::Known;

/// Events kept for subscribers that are a little behind.
const RING: usize = 1024;
/// Bytes kept for them: an approval may carry a whole plan.
const RING_BYTES: usize = 2 * 1024 * 1024;
/// Bytes of facts kept besides; older ones are read from the log.
const FACT_BYTES: usize = 256 * 1024;

pub struct DaemonFeed {
    inner: Mutex<Inner>,
    version: watch::Sender<u64>,
    log: FeedLog,
    /// Something waits to be written.
    to_write: Notify,
}

struct Inner {
    /// Where this life of the daemon began.
    first: FeedSeq,
    head: FeedSeq,
    /// Every event after its beginning.
    ring: Recent,
    /// Every fact after its beginning.
    facts: Recent,
    known: Known,
    unwritten: Unwritten,
}

/// The newest events of a kind.
struct Recent {
    events: VecDeque<(FeedSeq, WireEvent)>,
    bytes: usize,
    /// Those after this number are here.
    from: FeedSeq,
}

impl Recent {
    fn new(from: FeedSeq) -> Self {
        Self { events: VecDeque::new(), bytes: 0, from }
    }

    fn push(&mut self, number: FeedSeq, event: WireEvent, max: usize, max_bytes: usize) {
        self.bytes += event.json.len();
        self.events.push_back((number, event));
        while self.events.len() > max || self.bytes > max_bytes {
            let Some((left, oldest)) = self.events.pop_front() else { break };
            self.bytes -= oldest.json.len();
            self.from = left;
        }
    }

    fn after(&self, number: FeedSeq) -> impl Iterator<Item = &(FeedSeq, WireEvent)> {
        let begin = self.events.partition_point(|(known, _)| *known <= number);
        self.events.range(begin..)
    }
}

impl DaemonFeed {
    /// A feed whose next number comes after `first`.
    #[must_use]
    pub fn new(log: FeedLog, first: FeedSeq) -> Self {
        let inner = Inner {
            first,
            head: first,
            ring: Recent::new(first),
            facts: Recent::new(first),
            known: Known::default(),
            unwritten: Unwritten::beginning(first),
        };
        Self { inner: Mutex::new(inner), version: watch::Sender::new(0), log, to_write: Notify::new() }
    }

    /// Nothing inside can be left half-changed, so a panic elsewhere does not spoil it.
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes on every change from now on.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    fn told(&self) {
        self.version.send_modify(|version| *version += 1);
        self.to_write.notify_one();
    }

    /// What a session is doing, and what it asks.
    pub(super) fn changed(&self, row: &Row, approvals: &[Approval]) {
        let id = row.session_id;
        let status = EventBody::StateChanged {
            activity: row.activity,
            waiting_for: row.waiting_for.clone(),
            last_outcome: row.last_outcome,
            health: row.health,
        };
        let asked = self.lock().known.unasked(id, approvals);
        // Written out before the lock is taken again: an approval may be long. Only the session itself tells of itself, so
        // nothing about it comes in between.
        let asked: Vec<_> = asked
            .into_iter()
            .map(|(approval, asked)| (approval, WireEvent::new(&Event::of(id, asked))))
            .collect();
        let status_event = WireEvent::new(&Event::of(id, status.clone()));
        {
            let mut inner = self.lock();
            if !inner.known.is_doing(id, &status) {
                let event = inner.tell(status_event);
                inner.known.does(id, row.activity, status, event);
            }
            inner.known.asks_only(id, approvals);
            for (approval, event) in asked {
                let event = inner.tell(event);
                inner.known.asks(id, approval, event);
            }
        }
        self.told();
    }

    pub(super) fn created(&self, state: &State) {
        let body = EventBody::SessionCreated {
            handle: state.handle.clone(),
            title: state.title.clone(),
            cwd: state.cwd.clone(),
            mode: state.mode,
            model: state.model.clone(),
            parent: state.parent,
        };
        self.fact(Event { at: Some(state.created_at), ..Event::of(state.session_id, body) });
    }

    pub(super) fn deleted(&self, id: SessionId, at: Timestamp) {
        self.lock().known.forget(id);
        self.fact(Event { at: Some(at), ..Event::of(id, EventBody::SessionDeleted {}) });
    }

    pub(super) fn shutting_down(&self, at: Timestamp) {
        self.fact(Event { at: Some(at), ..Event::new(EventBody::ShuttingDown {}) });
    }

    /// Something that is told for good.
    pub(super) fn fact(&self, event: Event) {
        let event = WireEvent::new(&event);
        {
            let mut inner = self.lock();
            let (number, event) = inner.tell(event);
            inner.unwritten.event(number, &event);
            inner.facts.push(number, event, usize::MAX, FACT_BYTES);
        }
        self.told();
    }

    /// Something that concerns no session, and is found anew by the next daemon if it is still so.
    pub(super) fn notice(&self, code: &str, text: &str) {
        let body = EventBody::Notice { code: code.into(), text: text.into() };
        let event = WireEvent::new(&Event::new(body));
        self.lock().tell(event);
        self.told();
    }

    /// A session leaves memory: it does nothing any more, which `synced` says by not naming it.
    pub(super) fn unloaded(&self, id: SessionId) {
        self.lock().known.forget(id);
    }
}

impl Inner {
    /// Gives an event the next number and shows it.
    fn tell(&mut self, event: WireEvent) -> (FeedSeq, WireEvent) {
        self.head = FeedSeq(self.head.0 + 1);
        let event = numbered(&event, self.head);
        self.ring.push(self.head, event.clone(), RING, RING_BYTES);
        self.unwritten.number(self.head);
        (self.head, event)
    }
}

/// The same event with its number in the feed, added to the text so that a long one is not written out twice.
fn numbered(event: &WireEvent, number: FeedSeq) -> WireEvent {
    let fields = event.json.strip_suffix('}').unwrap_or(&event.json);
    WireEvent { json: format!(r#"{fields},"feedSeq":{number}}}"#).into(), ..event.clone() }
}

#[cfg(test)]
mod tests;
