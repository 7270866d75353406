//! The daemon's own feed: what any session is doing and which approvals come up, for clients that watch everything.
//!
//! Status class: merged, the latest wins. Who falls behind is told the whole again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use agentd_protocol::Event;
use agentd_protocol::approval::Approval;
use agentd_protocol::event::EventBody;
use agentd_protocol::session::{Activity, Row};
use tokio::sync::watch;

use crate::ids::{ApprovalId, SessionId};
use crate::session::feed::WireEvent;

/// Changes kept for subscribers that are a little behind.
const RING: usize = 1024;
/// Bytes kept for them: an approval may carry a whole plan.
const RING_BYTES: usize = 2 * 1024 * 1024;

#[derive(Debug)]
pub struct DaemonFeed {
    inner: Mutex<Inner>,
    version: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    counter: u64,
    ring: VecDeque<(u64, WireEvent)>,
    ring_bytes: usize,
    known: HashMap<SessionId, (WireEvent, Vec<ApprovalId>, Activity)>,
}

/// What a subscriber at a position finds.
#[derive(Debug)]
pub struct FeedNews {
    pub events: Vec<WireEvent>,
    pub position: u64,
}

impl Default for DaemonFeed {
    fn default() -> Self {
        Self { inner: Mutex::default(), version: watch::Sender::new(0) }
    }
}

impl DaemonFeed {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    pub(super) fn changed(&self, row: &Row, approvals: &[Approval]) {
        let id = row.session_id;
        let status = event(
            Some(id),
            EventBody::StateChanged {
                activity: row.activity,
                waiting_for: row.waiting_for.clone(),
                last_outcome: row.last_outcome,
                health: row.health,
            },
        );
        {
            let mut inner = self.lock();
            let known = inner.known.remove(&id);
            let known_approvals = known.as_ref().map(|(_, ids, _)| ids.clone()).unwrap_or_default();
            if known.is_none_or(|(known, _, _)| known.json != status.json) {
                inner.push(status.clone());
            }
            for approval in approvals.iter().filter(|a| !known_approvals.contains(&a.approval_id)) {
                inner.push(event(Some(id), EventBody::ApprovalRequested(approval.clone())));
            }
            let ids = approvals.iter().map(|approval| approval.approval_id.clone()).collect();
            inner.known.insert(id, (status, ids, row.activity));
        }
        self.version.send_modify(|version| *version += 1);
    }

    pub(super) fn deleted(&self, id: SessionId) {
        {
            let mut inner = self.lock();
            inner.known.remove(&id);
            inner.push(event(Some(id), EventBody::SessionDeleted {}));
        }
        self.version.send_modify(|version| *version += 1);
    }

    pub(super) fn shutting_down(&self) {
        self.lock().push(event(None, EventBody::ShuttingDown {}));
        self.version.send_modify(|version| *version += 1);
    }

    /// The whole at this moment: one `synced` naming the sessions that are not idle.
    #[must_use]
    pub fn synced(&self) -> FeedNews {
        let inner = self.lock();
        let mut sessions: Vec<_> = inner
            .known
            .iter()
            .filter(|(_, (_, _, activity))| *activity != Activity::Idle)
            .map(|(id, _)| *id)
            .collect();
        sessions.sort();
        let event = event(None, EventBody::Synced { state: None, sessions: Some(sessions) });
        FeedNews { events: vec![event], position: inner.counter }
    }

    /// What came after `position`; the whole again when that is too long ago.
    #[must_use]
    pub fn news(&self, position: u64) -> FeedNews {
        {
            let inner = self.lock();
            // What left the ring is the number before the oldest kept.
            let kept_from = inner.counter - inner.ring.len() as u64;
            if position >= kept_from {
                let events = inner
                    .ring
                    .iter()
                    .filter(|(number, _)| *number > position)
                    .map(|(_, event)| event.clone())
                    .collect();
                return FeedNews { events, position: inner.counter };
            }
        }
        self.synced()
    }
}

impl Inner {
    fn push(&mut self, event: WireEvent) {
        self.counter += 1;
        self.ring_bytes += event.json.len();
        self.ring.push_back((self.counter, event));
        while self.ring.len() > RING || self.ring_bytes > RING_BYTES {
            let Some((_, oldest)) = self.ring.pop_front() else { break };
            self.ring_bytes -= oldest.json.len();
        }
    }
}

fn event(session_id: Option<SessionId>, body: EventBody) -> WireEvent {
    let event = Event { body, session_id, seq: None, at: None, turn_id: None, origin: None };
    WireEvent::new(&event)
}
