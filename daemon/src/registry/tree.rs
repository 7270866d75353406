//! A session with its children and theirs: who they are, wherever they lie; ending and removing them together.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use agentd_protocol::TurnId;
use agentd_protocol::session::{InterruptResult, ListParams};
use futures_util::future::join_all;
use tokio::sync::watch;

use super::Registry;
use crate::ids::SessionId;
use crate::session::command::{Caller, Command};
use crate::session::{SessionError, blocking};
use crate::store::Standing;

/// The children that were in memory since the daemon began, by their parents.
#[derive(Default)]
pub(super) struct Kin {
    parents: Mutex<HashMap<SessionId, SessionId>>,
    version: watch::Sender<u64>,
}

impl Kin {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, SessionId>> {
        self.parents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn seen(&self, id: SessionId, parent: Option<SessionId>) {
        let Some(parent) = parent else { return };
        if self.lock().insert(id, parent).is_none() {
            self.version.send_modify(|version| *version += 1);
        }
    }

    pub(super) fn forget(&self, id: SessionId) {
        self.lock().remove(&id);
    }
}

impl Registry {
    /// Wakes when a child is made or comes into memory.
    #[must_use]
    pub fn watch_kin(&self) -> watch::Receiver<u64> {
        self.kin.version.subscribe()
    }

    /// The descendants of a session that were in memory since the daemon began, parents before their children.
    #[must_use]
    pub fn kin_of(&self, id: SessionId) -> Vec<SessionId> {
        below(id, self.kin.lock().iter().map(|(child, parent)| (*child, *parent)))
    }

    /// All descendants of a session, parents before their children.
    ///
    /// # Errors
    /// The sessions cannot be looked through.
    pub async fn descendants(self: &Arc<Self>, id: SessionId) -> Result<Vec<SessionId>, SessionError> {
        self.want_index();
        // First: a child that is made from now on is in memory, and so among those that are asked for last.
        let mut pairs = match self.children_by_index().await {
            Some(pairs) => pairs,
            None => self.children_by_journals().await?,
        };
        pairs.extend(self.kin.lock().iter().map(|(child, parent)| (*child, *parent)));
        Ok(below(id, pairs))
    }

    async fn children_by_index(self: &Arc<Self>) -> Option<Vec<(SessionId, SessionId)>> {
        // One whose row is behind has its parent in it all the same, and one that was just made is among the kin.
        if self.store.standing() != Standing::Ready {
            return None;
        }
        let registry = Arc::clone(self);
        blocking(move || registry.store.children()).await.ok()
    }

    async fn children_by_journals(self: &Arc<Self>) -> Result<Vec<(SessionId, SessionId)>, SessionError> {
        let mut params = ListParams { children: true, archived: true, ..ListParams::default() };
        let mut pairs = Vec::new();
        loop {
            let page = self.list_by_journals(&params).await?;
            pairs.extend(page.sessions.iter().filter_map(|row| Some((row.session_id, row.parent?))));
            match page.next {
                Some(next) => params.after = Some(next),
                None => return Ok(pairs),
            }
        }
    }

    /// Stops the running turn of a session, and what its descendants run. One that is not in memory runs nothing.
    ///
    /// # Errors
    /// What the session says; then its descendants are left alone.
    pub async fn interrupt(
        self: &Arc<Self>,
        id: SessionId,
        turn: Option<TurnId>,
        caller: Caller,
    ) -> Result<InterruptResult, SessionError> {
        let by = caller.clone();
        let result = self.ask(id, |reply| Command::Interrupt { turn, caller: by, reply }).await?;
        let running: Vec<_> = {
            let rows = self.rows();
            self.kin_of(id).into_iter().filter(|child| rows.contains_key(child)).collect()
        };
        let stopping = running.into_iter().map(|child| {
            let caller = caller.clone();
            self.ask(child, |reply| Command::Interrupt { turn: None, caller, reply })
        });
        for stopped in join_all(stopping).await {
            if let Err(error) = stopped {
                tracing::warn!(session = %id, %error, "a child was not stopped");
            }
        }
        Ok(result)
    }

    /// Removes a session with all its descendants, children before their parents, so that a crash on the way leaves none
    /// without its parent.
    ///
    /// # Errors
    /// One of them could not be removed; those above it are left as they were.
    pub async fn delete(self: &Arc<Self>, id: SessionId) -> Result<(), SessionError> {
        let family = self.descendants(id).await?;
        for child in family.into_iter().rev() {
            match self.ask(child, |reply| Command::Delete { reply }).await {
                Ok(()) | Err(SessionError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.ask(id, |reply| Command::Delete { reply }).await
    }
}

/// The descendants of `id` among children with their parents, parents before their children, each once.
fn below(id: SessionId, pairs: impl IntoIterator<Item = (SessionId, SessionId)>) -> Vec<SessionId> {
    let mut children: HashMap<SessionId, Vec<SessionId>> = HashMap::new();
    for (child, parent) in pairs {
        children.entry(parent).or_default().push(child);
    }
    // Whoever wrote a circle into journals gets each session once.
    let mut seen = HashSet::from([id]);
    let (mut found, mut next) = (Vec::new(), VecDeque::from([id]));
    while let Some(parent) = next.pop_front() {
        let mut of_this = children.remove(&parent).unwrap_or_default();
        of_this.sort();
        for child in of_this {
            if seen.insert(child) {
                found.push(child);
                next.push_back(child);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_walked_from_its_root_and_a_circle_once() {
        let ids: Vec<_> = (0..6).map(|_| SessionId::generate()).collect();
        let pairs = [(1, 0), (2, 0), (3, 1), (4, 5), (3, 1)].map(|(child, parent)| (ids[child], ids[parent]));
        assert_eq!(below(ids[0], pairs), [ids[1], ids[2], ids[3]]);
        assert_eq!(below(ids[3], pairs), []);
        let circle = [(ids[0], ids[1]), (ids[1], ids[0]), (ids[2], ids[2])];
        assert_eq!(below(ids[0], circle), [ids[1]]);
        assert_eq!(below(ids[2], circle), []);
    }
}
