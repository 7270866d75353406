//! Which sessions are live. Every session has an entry that always takes messages; the first one loads it, sixty idle
//! seconds unload it. What concerns more than one session (lists, what waits, the daemon's feed) is here too.

mod asking;
mod entry;
mod feed;
mod history;
mod index;
mod list;
mod moving;
mod retention;
mod settings;
#[cfg(test)]
pub(crate) mod tests;
mod tree;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentd_protocol::approval::{Approval, WaitingApproval};
use agentd_protocol::session::{Activity, ForkParams, ForkResult, NewParams, NewResult, Row, State};
use agentd_protocol::{Event, Timestamp};
use dashmap::DashMap;
use dashmap::mapref::entry::Entry as Slot;
use futures_util::StreamExt as _;
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ids::{Digest, SessionId};
use crate::journal::FeedLog;
use crate::paths::markers::Markers;
use crate::session::command::{Caller, Command, Reply, Snapshot};
use crate::session::deps::Deps;
use crate::session::project::view;
use crate::session::record::Parent;
use crate::session::{Forking, SessionError, Watcher, blocking, create, fork, models::Models};
use crate::store::{Store, Update};

pub use feed::{Beyond, Cursor, DaemonFeed};
pub use retention::Limits;

use entry::{Entry, Reservation, Start};

/// Tries to make a session whose id is just becoming free.
const NEW_TRIES: usize = 10;
/// Sessions that are loaded side by side at start.
const RESUMED_AT_ONCE: usize = 8;

pub struct Registry {
    deps: Arc<Deps>,
    /// Only ever looked at for a moment: no guard is held across an await.
    entries: DashMap<SessionId, Arc<Entry>>,
    /// Rows and pending approvals of the sessions in memory.
    rows: Mutex<HashMap<SessionId, (Row, Vec<Approval>)>>,
    feed: Arc<DaemonFeed>,
    keeping_feed: Keeping,
    kin: tree::Kin,
    looked: history::Looked,
    store: Store,
    /// Cancelled once somebody has a use for the index: a daemon that nobody asks for anything does not open it.
    index_wanted: CancellationToken,
    tracker: TaskTracker,
    stopping: AtomicBool,
    /// Cancelled once [`Registry::resume_active`] is through: before that the rows do not tell who waits.
    resumed: CancellationToken,
    /// Cancelled once the leftovers of an earlier process are removed.
    swept: CancellationToken,
    /// One session comes or goes as a bundle at a time.
    moving: Semaphore,
}

/// The task that writes the feed's log: it ends after all sessions have.
#[derive(Default)]
struct Keeping {
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Counts for `daemon/status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    pub live: u32,
    pub running: u32,
    pub waiting_approvals: u32,
}

impl Registry {
    #[must_use]
    pub fn new(deps: Arc<Deps>) -> Arc<Self> {
        let store = Store::new(deps.paths.index_file());
        let (log, first) = FeedLog::open(&deps.journals, deps.paths.daemon_log(), deps.clock.now());
        Arc::new(Self {
            deps,
            store,
            entries: DashMap::new(),
            rows: Mutex::default(),
            feed: Arc::new(DaemonFeed::new(log, first)),
            keeping_feed: Keeping::default(),
            kin: tree::Kin::default(),
            looked: history::Looked::default(),
            tracker: TaskTracker::new(),
            stopping: AtomicBool::new(false),
            resumed: CancellationToken::new(),
            swept: CancellationToken::new(),
            moving: Semaphore::new(1),
            index_wanted: CancellationToken::new(),
        })
    }

    #[must_use]
    pub fn deps(&self) -> &Arc<Deps> {
        &self.deps
    }

    #[must_use]
    pub fn models(&self) -> &Models {
        &self.deps.models
    }

    #[must_use]
    pub fn daemon_feed(&self) -> Arc<DaemonFeed> {
        Arc::clone(&self.feed)
    }

    // ---- messages ----

    /// Puts a command into the session's mailbox, in the order of the calls to this function: nothing is awaited
    /// before. A session that does not exist answers so itself.
    ///
    /// # Errors
    /// The mailbox is full.
    pub fn send(self: &Arc<Self>, id: SessionId, mut command: Command) -> Result<(), SessionError> {
        loop {
            let entry = self.entry(id);
            match entry.offer(command) {
                Ok(()) => {
                    self.wake(&entry);
                    return Ok(());
                }
                Err(entry::Refused::Full) => return Err(SessionError::Overloaded),
                // It went away between the look-up and the message; the next look-up finds or makes another.
                Err(entry::Refused::Gone(back)) => {
                    self.forget(&entry);
                    command = *back;
                }
            }
        }
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// What the session says.
    pub async fn ask<T>(
        self: &Arc<Self>,
        id: SessionId,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, SessionError> {
        let (reply, answer) = oneshot::channel();
        self.send(id, command(reply))?;
        // A session that dies without answering is loaded anew by the next message.
        answer.await.unwrap_or(Err(SessionError::Overloaded))
    }

    /// Takes an entry out, unless another one has its place by now.
    fn forget(&self, entry: &Arc<Entry>) {
        self.entries.remove_if(&entry.id, |_, known| Arc::ptr_eq(known, entry));
    }

    fn entry(&self, id: SessionId) -> Arc<Entry> {
        Arc::clone(self.entries.entry(id).or_insert_with(|| Entry::cold(id)).value())
    }

    fn wake(self: &Arc<Self>, entry: &Arc<Entry>) {
        if let Some(commands) = entry.take_if_cold() {
            let registry = Arc::clone(self);
            self.tracker.spawn(entry::host(registry, Arc::clone(entry), commands, Start::Load));
        }
    }

    // ---- creating ----

    /// Makes a session, or answers the one that was made with the same id and parameters.
    ///
    /// # Errors
    /// The parameters, the disk, or an id that exists with other parameters.
    pub async fn create(
        self: &Arc<Self>,
        params: NewParams,
        caller: &Caller,
    ) -> Result<NewResult, SessionError> {
        for _ in 0..NEW_TRIES {
            match self.create_once(&params, None, caller).await {
                // It was there and is just being deleted: its id is free in a moment.
                Err(SessionError::NotFound(_)) => tokio::task::yield_now().await,
                other => return other,
            }
        }
        Err(SessionError::Overloaded)
    }

    async fn create_once(
        self: &Arc<Self>,
        params: &NewParams,
        parent: Option<Parent>,
        caller: &Caller,
    ) -> Result<NewResult, SessionError> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(SessionError::Refused("the daemon is shutting down".into()));
        }
        let id = params.session_id.unwrap_or_else(SessionId::generate);
        let answer = |state: State| NewResult { session_id: id, handle: state.handle.clone(), state };
        let digest = create::params_digest(params);
        let Some(reservation) = self.reserve(id) else { return Ok(answer(*self.same_as(id, digest).await?)) };
        match create::create(&self.deps, id, params, parent, caller).await {
            Ok((state, journal)) => {
                let result = answer(view(&state, None));
                self.made(&result.state);
                reservation.fill(state, journal);
                Ok(result)
            }
            Err(create::CreateError::Exists) => {
                reservation.was_there();
                Ok(answer(*self.same_as(id, digest).await?))
            }
            Err(create::CreateError::Failed(error)) => Err(error),
        }
    }

    /// The place of a session that is about to be made; none if there is one.
    fn reserve(self: &Arc<Self>, id: SessionId) -> Option<Reservation> {
        match self.entries.entry(id) {
            Slot::Occupied(_) => None,
            Slot::Vacant(vacant) => {
                let (entry, commands) = Entry::live(id);
                vacant.insert(Arc::clone(&entry));
                Some(Reservation::new(self, entry, commands))
            }
        }
    }

    /// Makes a session from another one's past, or answers the one that was made with the same id and parameters.
    ///
    /// # Errors
    /// There is no such session, it cannot be copied, or the new id exists with other parameters.
    pub async fn fork(
        self: &Arc<Self>,
        params: &ForkParams,
        caller: &Caller,
    ) -> Result<ForkResult, SessionError> {
        if self.is_stopping() {
            return Err(SessionError::Refused("the daemon is shutting down".into()));
        }
        // What an earlier process left half-made is swept first, so that this one is not swept with it.
        self.swept.cancelled().await;
        let source = self.snapshot(params.session_id).await?;
        let id = params.new_session_id.unwrap_or_else(SessionId::generate);
        let mut made = false;
        if let Some(reservation) = self.reserve(id) {
            made = !self.is_on_disk(id).await;
            if made {
                let forking = Forking { source: &source, params, id, caller };
                fork(&self.deps, &forking).await.map_err(|error| self.while_leaving(error))?;
            }
            reservation.was_there();
        }
        let state = self.same_as(id, Forking::params_digest(params)).await?;
        if made {
            self.made(&state);
        }
        let at_seq = state.forked_from.as_ref().map_or(state.seq, |from| from.seq);
        Ok(ForkResult { session_id: id, handle: state.handle.clone(), at_seq, state: *state })
    }

    /// Tells of a new session.
    fn made(&self, state: &State) {
        self.feed.created(state);
        self.kin.seen(state.session_id, state.parent);
    }

    async fn is_on_disk(&self, id: SessionId) -> bool {
        self.deps.journals.first_and_last_line(self.deps.paths.session_dir(id)).await.is_ok()
    }

    async fn same_as(self: &Arc<Self>, id: SessionId, params: Digest) -> Result<Box<State>, SessionError> {
        self.ask(id, |reply| Command::SameAs { params, reply }).await
    }

    // ---- watching ----

    /// What a subscription to a session starts from.
    ///
    /// # Errors
    /// There is no such session.
    pub async fn snapshot(self: &Arc<Self>, id: SessionId) -> Result<Box<Snapshot>, SessionError> {
        self.ask(id, |reply| Command::Snapshot { reply }).await
    }

    /// Every approval that waits, oldest first; those of one session as they came, whatever the clock did. Right after a start it waits until the sessions that were not idle are in
    /// memory: whoever asks what waits for a person must not hear "nothing" while they are being read.
    pub async fn waiting(&self, only: Option<SessionId>) -> Vec<WaitingApproval> {
        self.resumed.cancelled().await;
        let rows = self.rows();
        let mut waiting: Vec<_> = rows
            .values()
            .filter(|(row, _)| only.is_none_or(|id| id == row.session_id))
            .flat_map(|(row, approvals)| {
                approvals.iter().map(|approval| WaitingApproval {
                    session_id: row.session_id,
                    handle: row.handle.clone(),
                    cwd: row.cwd.clone(),
                    mode: row.mode.unwrap_or(agentd_protocol::Mode::Default),
                    approval: approval.clone(),
                })
            })
            .collect();
        let since: HashMap<SessionId, Timestamp> = rows
            .values()
            .filter_map(|(row, approvals)| Some((row.session_id, approvals.first()?.requested_at)))
            .collect();
        drop(rows);
        // Stable, and by one time for each session: its own approvals keep their order.
        waiting.sort_by_key(|waiting| (since[&waiting.session_id], waiting.session_id));
        waiting
    }

    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let live = self.entries.iter().filter(|entry| entry.is_live()).count();
        let rows = self.rows();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Gauges {
            live: count(live),
            running: count(rows.values().filter(|(row, _)| row.activity == Activity::Running).count()),
            waiting_approvals: count(rows.values().map(|(_, approvals)| approvals.len()).sum()),
        }
    }

    fn rows(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, (Row, Vec<Approval>)>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another journal stands in the place of this session's.
    fn replaced(&self, id: SessionId) {
        self.store.replaced(id);
        self.looked.forget(id);
    }

    /// It is not in memory any more. What it asks a person goes on being listed: a session with nothing but the question
    /// of trust is idle.
    fn unloaded(&self, id: SessionId) {
        let asks = self.rows().get(&id).is_some_and(|(_, approvals)| !approvals.is_empty());
        if !asks {
            self.is_gone(id);
        }
    }

    fn is_gone(&self, id: SessionId) {
        self.rows().remove(&id);
        self.feed.unloaded(id);
    }

    // ---- start and stop ----

    /// Keeps what the feed tells for those who are away. Call once.
    pub fn keep_feed(&self) {
        let (feed, stop) = (Arc::clone(&self.feed), self.keeping_feed.stop.clone());
        let pause = self.deps.storage_retry;
        self.keeping_feed.tasks.spawn(async move { feed.keep(stop, pause).await });
    }

    /// Tells everyone who follows the feed something that concerns no session.
    pub fn notice(&self, code: &str, text: &str) {
        self.feed.notice(code, text);
    }

    /// Returns once the sessions that were not idle when the last process ended are in memory.
    pub async fn resumed(&self) {
        self.resumed.cancelled().await;
    }

    /// Loads the sessions that were not idle when the last process ended: they wait for a person, or go on.
    pub async fn resume_active(self: &Arc<Self>) {
        let _through = self.resumed.clone().drop_guard();
        let markers = Markers::new(&self.deps.paths);
        let ids = match blocking(move || markers.list()).await {
            Ok(ids) => ids,
            Err(error) => {
                tracing::error!(%error, "the list of active sessions cannot be read");
                return;
            }
        };
        // Several at once: one that is slow to load keeps no other from going on.
        futures_util::stream::iter(ids).for_each_concurrent(RESUMED_AT_ONCE, |id| self.resume(id)).await;
    }

    /// Removes what an earlier process had begun to remove or to make, and did not finish. Looks through all sessions, so
    /// it comes after everything that somebody waits for.
    pub async fn sweep(&self) {
        let _through = self.swept.clone().drop_guard();
        if let Err(error) = self.deps.journals.sweep_removed(self.deps.paths.sessions_dir()).await {
            tracing::warn!(%error, "leftovers of an earlier process were not removed");
        }
    }

    async fn resume(self: &Arc<Self>, id: SessionId) {
        match self.ask(id, |reply| Command::Row { reply }).await {
            Ok(_) => {}
            // Deleted, or never begun: the crash came between the marker and the first commit.
            Err(SessionError::NotFound(_)) => {
                let markers = Markers::new(&self.deps.paths);
                let _ = blocking(move || markers.clear(id)).await;
            }
            Err(error) => tracing::error!(session = %id, %error, "an active session was not taken up"),
        }
    }

    /// Tells everyone who watches that the daemon is going down.
    pub fn announce(&self) {
        for entry in self.entries.iter() {
            entry.feed.shutting_down();
        }
        self.feed.shutting_down(self.deps.clock.now());
    }

    /// No session takes a further step; returns once nothing runs, or after `patience`.
    pub async fn park(self: &Arc<Self>, patience: Duration) {
        self.stopping.store(true, Ordering::Relaxed);
        let live: Vec<_> =
            self.entries.iter().filter(|entry| entry.is_live()).map(|entry| entry.id).collect();
        let mut parked = Vec::new();
        for id in live {
            let (reply, answer) = oneshot::channel();
            if self.send(id, Command::Park { reply }).is_ok() {
                parked.push(answer);
            }
        }
        let all = async {
            for answer in parked {
                let _ = answer.await;
            }
        };
        if tokio::time::timeout(patience, all).await.is_err() {
            tracing::warn!("some calls did not end in time; they are cut off");
        }
    }

    /// Ends every session's task. What still ran is dropped, and with it its processes.
    pub async fn leave(&self) {
        self.deps.leave.cancel();
        self.tracker.close();
        self.tracker.wait().await;
        self.store.stop().await;
        self.keeping_feed.stop.cancel();
        self.keeping_feed.tasks.close();
        self.keeping_feed.tasks.wait().await;
        self.feed.finish().await;
    }

    /// What was not stored because the journals were closed under it: the disk is well, and the next daemon does it.
    fn while_leaving(&self, error: SessionError) -> SessionError {
        match error {
            SessionError::Storage { changed: crate::session::error::Changed::No, .. }
                if self.is_stopping() =>
            {
                SessionError::Refused("the daemon is shutting down".into())
            }
            other => other,
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

impl Watcher for Registry {
    fn changed(&self, row: Row, approvals: Vec<Approval>) {
        self.feed.changed(&row, &approvals);
        self.kin.seen(row.session_id, row.parent);
        self.rows().insert(row.session_id, (row, approvals));
    }

    fn told(&self, fact: Event) {
        self.feed.fact(fact);
    }

    fn committed(&self, update: Update) {
        self.want_index();
        self.store.committed(update);
    }

    fn deleted(&self, id: SessionId) {
        self.store.deleted(id);
        self.is_gone(id);
        self.looked.forget(id);
        self.kin.forget(id);
        self.feed.deleted(id, self.deps.clock.now());
    }
}
