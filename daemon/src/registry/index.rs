//! Keeps the index up with the journals: after a start it compares each session's journal with what the index covers and
//! reads only what is missing; later it mends what the index has missed. In the background; nobody waits for it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use agentd_protocol::search::{SearchHit, SearchParams, SearchResult};

use super::Registry;
use crate::ids::SessionId;
use crate::journal::{JournalError, Reach, Tail};
use crate::session::error::Changed;
use crate::session::outline::Outline;
use crate::session::{SessionError, blocking};
use crate::store::{Query, Repair, Standing, Store, StoreError, Update, Work};

/// Bytes of a journal read at a time.
const PIECE: u64 = 4 * 1024 * 1024;

/// How long a search waits for an index that is just catching up.
const CATCHING_UP: Duration = Duration::from_secs(2);

/// Hits in one answer, and when nobody says how many.
const MAX_HITS: u32 = 100;
const HITS: u32 = 20;

impl Registry {
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// From now on somebody has a use for the index.
    pub(crate) fn want_index(&self) {
        self.index_wanted.cancel();
    }

    /// Opens the index once it is wanted and keeps it up, until the daemon leaves. After "ready": its cost grows with the
    /// number of sessions.
    pub fn keep_index(self: &Arc<Self>) {
        let registry = Arc::clone(self);
        self.tracker.spawn(async move {
            let leave = registry.deps.leave.clone();
            tokio::select! {
                () = leave.cancelled() => {}
                () = registry.keep_up() => {}
            }
        });
    }

    async fn keep_up(self: &Arc<Self>) {
        self.index_wanted.cancelled().await;
        self.store.open().await;
        let mut done = 0;
        loop {
            match self.store.work(done).await {
                Work::All { generation } => {
                    match self.compare_all().await {
                        Ok(()) => self.store.caught_up(generation).await,
                        Err(error) => {
                            tracing::warn!(error = %error, "the index was not compared with the journals")
                        }
                    }
                    done = generation;
                }
                Work::Some(due) => {
                    for (id, repair) in due {
                        self.mend(id, repair).await;
                        self.store.repaired(id);
                    }
                }
            }
        }
    }

    async fn compare_all(self: &Arc<Self>) -> Result<(), SessionError> {
        // What is known first: a session that begins meanwhile is then not taken for one whose folder has gone.
        let registry = Arc::clone(self);
        let known = blocking(move || registry.store.known()).await.map_err(failed)?;
        let ids = self.session_ids().await?;
        let dirs = ids.iter().map(|id| self.deps.paths.session_dir(*id)).collect();
        let sizes = self.deps.journals.sizes(dirs).await.map_err(failed)?;
        self.store.begin_pass(ids.len());
        let mut there = HashSet::with_capacity(ids.len());
        for (id, size) in ids.into_iter().zip(sizes) {
            if let Some(size) = size {
                there.insert(id);
                if known.get(&id).is_none_or(|(_, mark)| mark.bytes != size) {
                    self.mend(id, Repair::Tail).await;
                }
            }
            self.store.one_passed();
        }
        for id in known.into_keys().filter(|id| !there.contains(id)) {
            self.take_out(id).await;
        }
        Ok(())
    }

    /// Reads of a journal what the index does not know.
    async fn mend(self: &Arc<Self>, id: SessionId, repair: Repair) {
        let mut whole = repair == Repair::Whole;
        // A journal that is not the one that the index knows is read once more, from its beginning.
        for _ in 0..2 {
            match self.read_on(id, whole).await {
                Ok(true) => return,
                Ok(false) => whole = true,
                Err(JournalError::Missing { .. }) => return self.take_out(id).await,
                Err(error) => {
                    let error = anyhow::Error::new(error);
                    tracing::warn!(session = %id, error = format!("{error:#}"), "a session was not indexed");
                    return;
                }
            }
        }
    }

    /// `false`: the journal is not the one that the index knows.
    async fn read_on(self: &Arc<Self>, id: SessionId, whole: bool) -> Result<bool, JournalError> {
        let known = if whole {
            self.store.forget(id).await;
            None
        } else {
            let registry = Arc::clone(self);
            match blocking(move || registry.store.known_of(id)).await {
                Ok(known) => known,
                // The file has gone or broken; when it is back, everything is compared.
                Err(_) => return Ok(true),
            }
        };
        let (mut row, mut mark) = match known {
            Some((row, mark)) => (Some(row), mark),
            None => (None, Reach::START),
        };
        loop {
            let dir = self.deps.paths.session_dir(id);
            let fold = |outline: &mut Outline, commit| outline.add(&commit);
            let (outline, tail) =
                self.deps.journals.read_on(dir, mark, PIECE, Outline::after(row), fold).await?;
            let Tail::Read { end, more } = tail else { return Ok(false) };
            if let Some(row) = outline.row.clone().filter(|_| end != mark) {
                let update = Update { row, from: mark.bytes, to: end, texts: outline.texts };
                self.store.read_from_file(update, end.bytes - mark.bytes).await;
            }
            if !more {
                return Ok(true);
            }
            (row, mark) = (outline.row, end);
        }
    }

    /// Takes a session out whose journal is not there.
    async fn take_out(&self, id: SessionId) {
        self.store.forget(id).await;
        // A new one may have got the same id between the look at the folder and now.
        let sizes = self.deps.journals.sizes(vec![self.deps.paths.session_dir(id)]).await;
        if sizes.is_ok_and(|sizes| sizes[0].is_some()) {
            self.store.missed(id);
        }
    }

    pub(super) async fn session_ids(&self) -> Result<Vec<SessionId>, SessionError> {
        let paths = Arc::clone(&self.deps.paths);
        let mut ids = blocking(move || paths.session_ids()).await.map_err(failed)?;
        ids.sort();
        Ok(ids)
    }

    /// Throws the index away and has it made anew; says how many sessions there are to read.
    ///
    /// # Errors
    /// The sessions' folder cannot be read.
    pub async fn reindex(&self) -> Result<usize, SessionError> {
        self.want_index();
        let sessions = self.session_ids().await?.len();
        self.store.rebuild().await;
        Ok(sessions)
    }

    /// Where something was said.
    ///
    /// # Errors
    /// The query has no words or too many, or the index cannot be used.
    pub async fn search(self: &Arc<Self>, params: SearchParams) -> Result<SearchResult, SessionError> {
        let limit = params.limit.unwrap_or(HITS).clamp(1, MAX_HITS) as usize;
        let query = Query::new(&params.query, params.cwd, params.session_id, limit)
            .map_err(|error| SessionError::invalid("query", error.to_string()))?;
        // The first one to ask after a start waits a little for what was said before.
        self.want_index();
        let usable = self.store.until(|now| matches!(now, Standing::Ready | Standing::Failed(_)));
        let _ = tokio::time::timeout(CATCHING_UP, usable).await;
        // What was said before this call is found by it, unless there is much to do.
        let settled = self.store.settle().await;
        if let Standing::Failed(reason) = self.store.standing() {
            return Err(unusable(&reason));
        }
        let complete =
            settled && self.store.standing() == Standing::Ready && self.store.unsettled().is_empty();
        // Before reading: what is taken out of the file meanwhile is not marked any more afterwards.
        let unsettled = self.store.unsettled();
        let gone: HashSet<_> = unsettled.into_iter().filter(|id| self.store.is_gone(*id)).collect();
        let registry = Arc::clone(self);
        let found = match blocking(move || registry.store.search(&query)).await {
            Ok(found) => found,
            // It was removed a moment ago, and is being made anew.
            Err(StoreError::NotAtHand) => return Ok(SearchResult { hits: Vec::new(), complete: false }),
            Err(error) => return Err(unusable(&error.to_string())),
        };
        let rows = self.rows();
        let hits = found
            .into_iter()
            .filter(|found| {
                let id = found.row.session_id;
                !gone.contains(&id) && !self.store.is_gone(id)
            })
            .map(|found| SearchHit {
                // What a session is doing now only the session itself knows.
                session: rows.get(&found.row.session_id).map_or(found.row, |(row, _)| row.clone()),
                seq: found.seq,
                at: found.at,
                role: found.role,
                snippet: found.snippet,
            })
            .collect();
        Ok(SearchResult { hits, complete })
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> SessionError {
    SessionError::Storage { message: format!("{:#}", anyhow::Error::new(error)), changed: Changed::No }
}

fn unusable(reason: &str) -> SessionError {
    SessionError::Storage {
        message: format!(
            "the index cannot be used ({reason}). Mend the cause, then: agentctl daemon reindex. Nothing is lost: \
             it is made from the journals"
        ),
        changed: Changed::No,
    }
}
