//! The index: `index.db`, a projection of the journals for lists and full-text search. It may be deleted at any time, also
//! under a running daemon; then it is made anew. The journals are the truth, and what needs one session never comes here.
//!
//! One thread writes ([`writer`]), from a bounded queue that never makes a session wait. What the index does not know yet
//! is in the [`ledger`], so a list knows which rows to look up elsewhere. Readers have connections of their own and run on
//! blocking threads. Each session's row says how far into its journal the index has come ([`Reach`]); a change is taken
//! only if it begins exactly there, so a change that was missed is always noticed, and repaired from the file.

mod file;
pub mod kept;
mod ledger;
mod query;
mod read;
mod schema;
#[cfg(test)]
mod tests;
mod write;
mod writer;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use agentd_protocol::Timestamp;
use agentd_protocol::search::SearchRole;
use agentd_protocol::session::Row;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use crate::ids::{Seq, SessionId};
use crate::journal::Reach;

pub use ledger::Repair;
pub use query::{BadQuery, Query};
pub use read::{Found, Order};

use ledger::Ledger;
use read::Reader;
use writer::{Job, Writer};

/// Changes that wait for the writer. When full, a change is dropped and its session read from its journal later.
const QUEUE: usize = 512;

/// Changes read from journals that may wait at a time: the rest of the queue is for sessions at work.
const READ_AHEAD: usize = 64;

/// Connections kept for readers; more are opened when more read at once, and closed after.
const READERS: usize = 2;

/// Bytes of one text that are kept for the search.
pub const MAX_TEXT: usize = 16 * 1024;

/// Something said in a session, for the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    pub seq: Seq,
    pub at: Timestamp,
    pub role: SearchRole,
    /// Its first [`MAX_TEXT`] bytes, at most.
    text: String,
}

impl Text {
    /// `None` if there is nothing in it to be found.
    #[must_use]
    pub fn new(seq: Seq, at: Timestamp, role: SearchRole, text: &str) -> Option<Self> {
        let text = text[..text.floor_char_boundary(MAX_TEXT)].replace(query::NOT_KEPT, " ");
        text.chars().any(char::is_alphanumeric).then_some(Self { seq, at, role, text })
    }
}

/// What one or several commits of a session have changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// The row after them. What a session is doing is not kept: one that is not in memory does nothing.
    pub row: Row,
    /// Where in the journal they begin; 0 begins a session.
    pub from: u64,
    pub to: Reach,
    pub texts: Vec<Text>,
}

/// How far the index is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// Nothing was asked of it yet.
    #[default]
    Closed,
    /// It is open, and not every journal has been compared with it.
    Filling,
    /// It knows every session.
    Ready,
    /// It cannot be used, and why.
    Failed(String),
}

/// What has to be compared with the journals next.
#[derive(Debug, PartialEq, Eq)]
pub enum Work {
    /// Everything; to be ended with [`Store::caught_up`].
    All {
        generation: u64,
    },
    Some(Vec<(SessionId, Repair)>),
}

/// Why the index could not answer.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It is not open, or was replaced while it was read.
    #[error("the index is not at hand")]
    NotAtHand,
    #[error("the index cannot be read: {0}")]
    Sql(#[from] rusqlite::Error),
}

/// The index of one daemon. Dropped, its thread ends.
pub struct Store {
    shared: Arc<Shared>,
    jobs: mpsc::Sender<Job>,
    ahead: Arc<Semaphore>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    path: PathBuf,
    ledger: Ledger,
    /// Which opening of the file this is, and how far it is. Readers of an earlier one are of no use.
    standing: watch::Sender<(u64, Standing)>,
    readers: Mutex<Vec<Reader>>,
    /// Bytes of journals that were read to catch up.
    read: AtomicU64,
    /// Of the pass that goes through all sessions: how many it has to look at, and how many are done.
    progress: [AtomicU64; 2],
}

impl Store {
    /// Opens nothing yet: the file is touched by the store's own thread, at the first thing asked of it.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        let (store, writer) = Self::parts(path);
        match std::thread::Builder::new().name("index".to_owned()).spawn(move || writer.run()) {
            Ok(thread) => *store.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread),
            Err(error) => {
                store.shared.stand(Standing::Failed(format!("its thread could not be started ({error})")));
            }
        }
        store
    }

    fn parts(path: PathBuf) -> (Self, Writer) {
        let shared = Arc::new(Shared {
            path,
            ledger: Ledger::default(),
            standing: watch::Sender::default(),
            readers: Mutex::default(),
            read: AtomicU64::new(0),
            progress: Default::default(),
        });
        let (jobs, queue) = mpsc::channel(QUEUE);
        let writer = Writer::new(Arc::clone(&shared), queue);
        let ahead = Arc::new(Semaphore::new(READ_AHEAD));
        (Self { shared, jobs, ahead, thread: Mutex::default() }, writer)
    }

    // ---- what sessions tell; none of it waits ----

    /// Commits were journaled.
    pub fn committed(&self, update: Update) {
        let id = update.row.session_id;
        if update.from == 0 {
            self.shared.ledger.begun(id);
        }
        self.offer(id, Repair::Tail, |queued| Job::Update {
            update: Box::new(update),
            from_file: false,
            _queued: queued,
            _permit: None,
        });
    }

    /// A session's journal was opened and ends at `mark`. What the index knows beyond it is gone from the journal.
    pub fn opened(&self, id: SessionId, mark: Reach) {
        self.offer(id, Repair::Whole, |queued| Job::Opened { id, mark, _queued: queued });
    }

    /// A session is no more. It is hidden from now on, whatever the queue holds.
    pub fn deleted(&self, id: SessionId) {
        self.shared.ledger.deleted(id);
    }

    fn offer(&self, id: SessionId, otherwise: Repair, job: impl FnOnce(ledger::Queued) -> Job) {
        if self.jobs.capacity() < QUEUE / 2 {
            self.wake();
        }
        let queued = self.shared.ledger.queued(&self.shared, id);
        if let Err(refused) = self.jobs.try_send(job(queued)) {
            self.shared.ledger.repair(id, otherwise);
            if matches!(refused, mpsc::error::TrySendError::Closed(_)) {
                self.ended();
            }
        }
    }

    // ---- catching up with the journals ----

    /// Opens the index, if it is not open.
    pub async fn open(&self) {
        self.send(Job::Open).await;
    }

    /// Throws the index away and makes it anew.
    pub async fn rebuild(&self) {
        self.send(Job::Rebuild).await;
    }

    /// Waits until something has to be compared with the journals. `done` is the last generation that was gone through.
    pub async fn work(&self, done: u64) -> Work {
        let mut standing = self.shared.standing.subscribe();
        let mut changed = self.shared.ledger.changed();
        loop {
            let (generation, now) = standing.borrow_and_update().clone();
            if now == Standing::Filling && generation != done {
                return Work::All { generation };
            }
            changed.borrow_and_update();
            // With no file to write to, what is missed is not mended but made anew later.
            if matches!(now, Standing::Filling | Standing::Ready) {
                let due = self.shared.ledger.take_due();
                if !due.is_empty() {
                    return Work::Some(due);
                }
            }
            tokio::select! {
                biased;
                _ = standing.changed() => {}
                _ = changed.changed() => {}
            }
        }
    }

    /// Takes what was read from a journal; waits for room, and for the writer when much is on its way.
    pub async fn read_from_file(&self, update: Update, bytes: u64) {
        self.shared.read.fetch_add(bytes, Ordering::Relaxed);
        let _permit = self.permit().await;
        let _queued = self.shared.ledger.queued(&self.shared, update.row.session_id);
        self.send(Job::Update { update: Box::new(update), from_file: true, _queued, _permit }).await;
    }

    /// Takes a session out whose journal is gone, or is another one.
    pub async fn forget(&self, id: SessionId) {
        let _queued = self.shared.ledger.queued(&self.shared, id);
        self.send(Job::Forget { id, _queued }).await;
    }

    /// A pass through all sessions is over.
    pub async fn caught_up(&self, generation: u64) {
        self.send(Job::CaughtUp { generation }).await;
    }

    async fn send(&self, job: Job) {
        let sent = self.jobs.send(job).await;
        self.wake();
        if sent.is_err() {
            self.ended();
        }
    }

    /// The writer gathers no longer what comes.
    fn wake(&self) {
        if let Some(thread) = &*self.thread.lock().unwrap_or_else(PoisonError::into_inner) {
            thread.thread().unpark();
        }
    }

    /// Nobody writes any more, so what the index knows is old.
    fn ended(&self) {
        self.shared.stand(Standing::Failed("its thread has ended; restart the daemon".to_owned()));
    }

    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.ahead).acquire_owned().await.ok()
    }

    /// Returns when the writer has done what was asked of it before. `false`: it has too much to do.
    pub async fn settle(&self) -> bool {
        let (reply, done) = oneshot::channel();
        let sent = self.jobs.try_send(Job::Reach(reply)).is_ok();
        self.wake();
        sent && done.await.is_ok()
    }

    /// What [`Store::work`] gave of this session is done.
    pub fn repaired(&self, id: SessionId) {
        self.shared.ledger.repaired(id);
    }

    /// The index has missed something of this session.
    pub fn missed(&self, id: SessionId) {
        self.shared.ledger.repair(id, Repair::Tail);
    }

    /// The journal of this session is another one now.
    pub fn replaced(&self, id: SessionId) {
        self.shared.ledger.repair(id, Repair::Whole);
    }

    /// How many sessions a pass has to look at.
    pub fn begin_pass(&self, sessions: usize) {
        self.shared.progress[0].store(sessions as u64, Ordering::Relaxed);
        self.shared.progress[1].store(0, Ordering::Relaxed);
    }

    /// One of them is done.
    pub fn one_passed(&self) {
        self.shared.progress[1].fetch_add(1, Ordering::Relaxed);
    }

    // ---- what can be said without reading ----

    #[must_use]
    pub fn standing(&self) -> Standing {
        self.shared.standing.borrow().1.clone()
    }

    /// Of the last pass: sessions looked at, and how many there are.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        let [all, done] = &self.shared.progress;
        (done.load(Ordering::Relaxed), all.load(Ordering::Relaxed))
    }

    /// Bytes of journals read so far to catch up.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.shared.read.load(Ordering::Relaxed)
    }

    /// Waits until the index stands so.
    pub async fn until(&self, wanted: impl Fn(&Standing) -> bool) {
        let mut standing = self.shared.standing.subscribe();
        // The sender lives as long as `self`.
        let _ = standing.wait_for(|(_, standing)| wanted(standing)).await;
    }

    /// Sessions whose row is, or may be, behind. Those not in here are up to date for whoever reads after this.
    #[must_use]
    pub fn unsettled(&self) -> HashSet<SessionId> {
        self.shared.ledger.unsettled()
    }

    /// Whether this session was deleted a moment ago.
    #[must_use]
    pub fn is_gone(&self, id: SessionId) -> bool {
        self.shared.ledger.is_gone(id)
    }

    // ---- reading; may block ----

    /// Visits rows in this order, with `text` those whose handle or title has it, case ignored, until `visit` says that it has enough. Every row says idle.
    ///
    /// # Errors
    /// The index is not at hand: the journals have to answer.
    pub fn rows(
        &self,
        order: &Order<'_>,
        text: Option<&str>,
        mut visit: impl FnMut(Row) -> std::ops::ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.read(|reader| reader.rows(order, text, &mut visit))
    }

    /// Every session that has a parent, with it.
    ///
    /// # Errors
    /// As [`Store::rows`].
    pub fn children(&self) -> Result<Vec<(SessionId, SessionId)>, StoreError> {
        self.read(|reader| reader.children())
    }

    /// How far each session's journal is known, and its row.
    ///
    /// # Errors
    /// As [`Store::rows`].
    pub fn known(&self) -> Result<HashMap<SessionId, (Row, Reach)>, StoreError> {
        self.read(|reader| reader.known(None))
    }

    /// The same for one session.
    ///
    /// # Errors
    /// As [`Store::rows`].
    pub fn known_of(&self, id: SessionId) -> Result<Option<(Row, Reach)>, StoreError> {
        Ok(self.read(|reader| reader.known(Some(id)))?.remove(&id))
    }

    /// Where something was said, newest first.
    ///
    /// # Errors
    /// As [`Store::rows`].
    pub fn search(&self, query: &Query) -> Result<Vec<Found>, StoreError> {
        self.read(|reader| reader.search(query))
    }

    fn read<T>(&self, read: impl FnOnce(&Reader) -> Result<T, rusqlite::Error>) -> Result<T, StoreError> {
        let generation = match &*self.shared.standing.borrow() {
            (generation, Standing::Filling | Standing::Ready) => *generation,
            _ => return Err(StoreError::NotAtHand),
        };
        let kept = self.shared.readers().pop().filter(|reader| reader.generation() == generation);
        let opened = kept.map_or_else(|| Reader::open(&self.shared.path, generation), Ok);
        let reader = opened.inspect_err(|error| self.look_again(Some(error)))?;
        let result = read(&reader).inspect_err(|error| self.look_again(Some(error)))?;
        // Somebody removed or replaced the file: what was read may be the old one's, or an empty one's.
        if !reader.is_in_place(&self.shared.path) {
            self.look_again(None);
            return Err(StoreError::NotAtHand);
        }
        if self.shared.standing.borrow().0 != generation {
            return Err(StoreError::NotAtHand);
        }
        let mut readers = self.shared.readers();
        if readers.len() < READERS {
            readers.push(reader);
        }
        Ok(result)
    }

    /// Has the writer look whether its file is still there, or make it anew if it is broken.
    fn look_again(&self, error: Option<&rusqlite::Error>) {
        let broken = error.is_some_and(schema::is_broken);
        // A full queue makes it look as well, and who reads next finds the same.
        let _ = self.jobs.try_send(if broken { Job::Rebuild } else { Job::Check });
    }

    /// Does what is queued, and closes the file.
    pub async fn stop(&self) {
        let _ = self.jobs.send(Job::Stop).await;
        self.wake();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        // A thread that panicked has said so by itself.
        let _ = tokio::task::spawn_blocking(move || thread.join()).await;
    }
}

impl Shared {
    fn stand(&self, standing: Standing) {
        self.standing.send_modify(|now| now.1 = standing);
    }

    fn readers(&self) -> std::sync::MutexGuard<'_, Vec<Reader>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
