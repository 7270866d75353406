//! What the index does not know yet, by session: changes on their way to it, changes that it missed, deletions. Small:
//! sessions that have just done something, or whose change was dropped.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::Shared;
use crate::ids::SessionId;

/// What has to be read of a journal again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Repair {
    /// What the index does not cover.
    Tail,
    /// All of it: the index knows something that the journal does not say.
    Whole,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    sessions: Mutex<HashMap<SessionId, Unsettled>>,
    /// Rises when there is something to repair.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Unsettled {
    /// Changes on their way.
    queued: usize,
    repair: Option<Due>,
    /// Deleted, and still in the index.
    gone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Waiting(Repair),
    /// Somebody is at it.
    Taken,
}

/// A change on its way; dropped when it is in the index, or lost.
pub(super) struct Queued {
    shared: Arc<Shared>,
    id: SessionId,
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.shared.ledger.change(self.id, |unsettled| unsettled.queued = unsettled.queued.saturating_sub(1));
    }
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Unsettled>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, id: SessionId, change: impl FnOnce(&mut Unsettled)) {
        let mut sessions = self.lock();
        let unsettled = sessions.entry(id).or_default();
        change(unsettled);
        if unsettled.queued == 0 && unsettled.repair.is_none() && !unsettled.gone {
            sessions.remove(&id);
        }
    }

    pub(super) fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(super) fn queued(&self, shared: &Arc<Shared>, id: SessionId) -> Queued {
        self.change(id, |unsettled| unsettled.queued += 1);
        Queued { shared: Arc::clone(shared), id }
    }

    /// The session has to be read again.
    pub(super) fn repair(&self, id: SessionId, repair: Repair) {
        self.change(id, |unsettled| {
            let waiting = match unsettled.repair {
                Some(Due::Waiting(waiting)) => waiting.max(repair),
                _ => repair,
            };
            unsettled.repair = Some(Due::Waiting(waiting));
        });
        self.changed.send_modify(|times| *times += 1);
    }

    pub(super) fn deleted(&self, id: SessionId) {
        self.change(id, |unsettled| unsettled.gone = true);
        self.repair(id, Repair::Tail);
    }

    /// A session of this id begins; one that was deleted under it is over.
    pub(super) fn begun(&self, id: SessionId) {
        self.change(id, |unsettled| unsettled.gone = false);
    }

    /// A deleted session is out of the index.
    pub(super) fn left(&self, id: SessionId) {
        self.change(id, |unsettled| unsettled.gone = false);
    }

    /// What has to be read again; whoever takes it says [`Ledger::repaired`] for each.
    pub(super) fn take_due(&self) -> Vec<(SessionId, Repair)> {
        let mut sessions = self.lock();
        let due = sessions.iter_mut().filter_map(|(id, unsettled)| match unsettled.repair {
            Some(Due::Waiting(repair)) => {
                unsettled.repair = Some(Due::Taken);
                Some((*id, repair))
            }
            _ => None,
        });
        due.collect()
    }

    /// What was taken is done, as far as it goes: what was missed meanwhile is due again by itself.
    pub(super) fn repaired(&self, id: SessionId) {
        self.change(id, |unsettled| {
            if unsettled.repair == Some(Due::Taken) {
                unsettled.repair = None;
            }
        });
    }

    pub(super) fn unsettled(&self) -> HashSet<SessionId> {
        self.lock().keys().copied().collect()
    }

    pub(super) fn is_gone(&self, id: SessionId) -> bool {
        self.lock().get(&id).is_some_and(|unsettled| unsettled.gone)
    }
}
