//! The threads that write journals. Two take the commits of all sessions, each session always by the same thread, so its
//! commits keep their order. A third does what may take longer: blobs, lists, removals. None of it waits for the
//! runtime's pools.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use agentd_protocol::Timestamp;
use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use super::blobs::{BlobError, Blobs, Shared};
use super::file::JournalFile;
use super::folder::{self, Beginning, Ends};
use super::handle::{Journal, JournalReader};
use super::index::Index;
use super::staging;
use super::storage::{Disk, Layer, Reached};
use super::tail::{self, Tail};
use super::{AppendError, Appended, Commit, Damage, Durability, JournalError, Mark, Opened, Reach};
use crate::ids::{Digest, Seq};

const COMMIT_THREADS: usize = 2;

/// Commits that wait for one thread. When full, sessions wait; each has at most one commit on its way.
const COMMIT_QUEUE: usize = 256;

/// Pieces of other work that wait. When full, callers wait.
const WORK_QUEUE: usize = 64;

/// Bytes of what is kept beside a journal; more is not read.
const MAX_KEPT: u64 = 64 << 20;

/// Jobs of one round: commits are written, then synced file by file, so this bounds how long the first one waits.
const ROUND: usize = 64;

/// Writes the journals of all sessions. One for a daemon.
pub struct JournalService {
    pub(super) layer: Arc<dyn Layer>,
    commits: Vec<mpsc::Sender<Job>>,
    work: mpsc::Sender<Work>,
    /// Taken by the thread for files only, so nobody ever waits for it.
    shared: Arc<Mutex<Shared>>,
    next_thread: AtomicUsize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

pub(super) enum Job {
    Append {
        file: Arc<JournalFile>,
        expected: Seq,
        at: Timestamp,
        records: Vec<Box<RawValue>>,
        durability: Durability,
        reply: oneshot::Sender<Result<Appended, AppendError>>,
    },
    Sync {
        file: Arc<JournalFile>,
        reply: oneshot::Sender<Result<(), AppendError>>,
    },
    Ping(oneshot::Sender<()>),
    Stop,
}

enum Work {
    Run(Box<dyn FnOnce() + Send>),
    Stop,
}

impl JournalService {
    /// Starts the threads. They end with [`JournalService::stop`], or when nothing refers to the service any more.
    ///
    /// # Errors
    /// The system gives no more threads.
    pub fn start() -> io::Result<Arc<Self>> {
        Self::start_on(Arc::new(Disk))
    }

    /// Starts the threads of a daemon that kills itself at a certain write or sync.
    ///
    /// # Errors
    /// As [`JournalService::start`].
    #[cfg(debug_assertions)]
    pub fn start_dying(at: super::DieAt) -> io::Result<Arc<Self>> {
        Self::start_on(Arc::new(super::dying::Dying::new(at)))
    }

    pub(super) fn start_on(layer: Arc<dyn Layer>) -> io::Result<Arc<Self>> {
        let mut threads = Vec::new();
        let mut commits = Vec::new();
        for i in 1..=COMMIT_THREADS {
            let (tx, rx) = mpsc::channel(COMMIT_QUEUE);
            commits.push(tx);
            let builder = std::thread::Builder::new().name(format!("journal-{i}"));
            threads.push(builder.spawn(move || commit_loop(rx))?);
        }
        let (work, rx) = mpsc::channel(WORK_QUEUE);
        let builder = std::thread::Builder::new().name("journal-files".to_owned());
        threads.push(builder.spawn(move || work_loop(rx))?);
        let threads = Mutex::new(threads);
        let shared = Arc::default();
        Ok(Arc::new(Self { layer, commits, work, shared, next_thread: AtomicUsize::new(0), threads }))
    }

    /// Makes a session's folder with an empty journal and the blobs that it begins with, whose digests are returned; all
    /// their names are durable when this returns.
    ///
    /// # Errors
    /// `Exists` if there is a journal; else the reason why it cannot be made.
    pub async fn create<const N: usize>(
        self: &Arc<Self>,
        dir: impl Into<PathBuf>,
        blobs: [Bytes; N],
    ) -> Result<(Journal, [Digest; N]), BlobError> {
        let dir = dir.into();
        let layer = Arc::clone(&self.layer);
        let shared = Arc::clone(&self.shared);
        let (file, digests) = {
            let dir = dir.clone();
            let create = move || {
                let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                folder::create(layer.as_ref(), &dir, &blobs, &mut shared)
            };
            self.work(create).await??
        };
        Ok((self.journal(&dir, file), digests))
    }

    /// Opens a journal and reads all of it into memory. See [`JournalService::open_each`].
    ///
    /// # Errors
    /// As [`JournalService::open_each`].
    pub async fn open(self: &Arc<Self>, dir: impl Into<PathBuf>) -> Result<(Journal, Opened), JournalError> {
        let (journal, damage, commits) = self
            .open_each(dir, Vec::new(), |commits, commit| {
                commits.push(commit);
            })
            .await?;
        Ok((journal, Opened { commits, damage }))
    }

    /// Opens a journal and folds its commits in order into `state`, one in memory at a time. An unfinished last line is
    /// put aside and cut; bad lines are skipped; both are told, and neither is an error. The journal must not be open
    /// elsewhere.
    ///
    /// # Errors
    /// `Missing`, or the reason why it cannot be read.
    pub async fn open_each<S, F>(
        self: &Arc<Self>,
        dir: impl Into<PathBuf>,
        state: S,
        fold: F,
    ) -> Result<(Journal, Damage, S), JournalError>
    where
        S: Send + 'static,
        F: FnMut(&mut S, Commit) + Send + 'static,
    {
        self.open_from(dir, move |_| (None, state), fold).await
    }

    /// As [`JournalService::open_each`], and need not begin at the start: `begin` says after which mark, which has to fit,
    /// and with which state.
    ///
    /// # Errors
    /// As [`JournalService::open_each`].
    pub async fn open_from<S, B, F>(
        self: &Arc<Self>,
        dir: impl Into<PathBuf>,
        begin: B,
        mut fold: F,
    ) -> Result<(Journal, Damage, S), JournalError>
    where
        S: Send + 'static,
        B: FnOnce(Beginning<'_>) -> (Option<Mark>, S) + Send + 'static,
        F: FnMut(&mut S, Commit) + Send + 'static,
    {
        let dir = dir.into();
        let layer = Arc::clone(&self.layer);
        let (dir, file, damage, state) = blocking(move || {
            let opening = folder::Opening::new(layer.as_ref(), &dir)?;
            let kept = folder::kept_beside(&dir, MAX_KEPT);
            let (mark, mut state) = begin(Beginning { kept, opening: &opening });
            let from = mark.map_or_else(Index::new, |mark| mark.index);
            let mut each = |commit| fold(&mut state, commit);
            let (file, damage) = folder::read(opening, &dir, from, &mut each)?;
            Ok::<_, JournalError>((dir, file, damage, state))
        })
        .await??;
        Ok((self.journal(&dir, file), damage, state))
    }

    /// A reader of a journal that nobody has open, which leaves everything as it is: no line is put aside or cut, nothing
    /// is synced. `known` is a mark from an earlier look; where it does not fit any more, `begin` says after which one to
    /// read, as in [`JournalService::open_from`].
    ///
    /// # Errors
    /// `Missing`, or the reason why it cannot be read.
    pub async fn look<B>(
        &self,
        dir: impl Into<PathBuf>,
        known: Option<Mark>,
        begin: B,
    ) -> Result<JournalReader, JournalError>
    where
        B: FnOnce(Beginning<'_>) -> Option<Mark> + Send + 'static,
    {
        let dir = dir.into();
        let layer = Arc::clone(&self.layer);
        let file = blocking(move || {
            let opening = folder::Opening::to_look(layer.as_ref(), &dir)?;
            let mark = known.filter(|mark| opening.fits(mark)).or_else(|| {
                let kept = folder::kept_beside(&dir, MAX_KEPT);
                begin(Beginning { kept, opening: &opening })
            });
            folder::look(opening, mark.map_or_else(Index::new, |mark| mark.index))
        })
        .await??;
        Ok(JournalReader::new(file))
    }

    /// Keeps something beside a journal that can be made again from it. A crash may lose it, or leave the one before.
    ///
    /// # Errors
    /// It could not be written.
    pub async fn keep_beside(&self, dir: impl Into<PathBuf>, content: Vec<u8>) -> Result<(), JournalError> {
        let dir = dir.into();
        self.work(move || folder::keep_beside(&dir, &content)).await?
    }

    fn journal(self: &Arc<Self>, dir: &Path, file: JournalFile) -> Journal {
        let thread = self.next_thread.fetch_add(1, Ordering::Relaxed) % self.commits.len();
        Journal::new(Arc::new(file), self.commits[thread].clone(), self.blobs(dir))
    }

    /// The blobs of the session whose folder this is; it need not be open.
    #[must_use]
    pub fn blobs(self: &Arc<Self>, dir: &Path) -> Blobs {
        Blobs::new(dir, Arc::clone(self))
    }

    /// The first and last commit of a journal that may be open or not: enough for a list.
    ///
    /// # Errors
    /// `Missing`, or the reason why it cannot be read.
    pub async fn first_and_last_line(&self, dir: impl Into<PathBuf>) -> Result<Ends, JournalError> {
        let dir = dir.into();
        self.work(move || folder::ends(&dir)).await?
    }

    /// Folds the commits after `from` into `state`, in order, and stops after about `max_bytes` of the file. The journal
    /// may be open or not; of one that is open, commits may be seen that are written and not yet acknowledged.
    ///
    /// # Errors
    /// `Missing`, or the reason why it cannot be read.
    pub async fn read_on<S, F>(
        &self,
        dir: impl Into<PathBuf>,
        from: Reach,
        max_bytes: u64,
        state: S,
        mut fold: F,
    ) -> Result<(S, Tail), JournalError>
    where
        S: Send + 'static,
        F: FnMut(&mut S, Commit) + Send + 'static,
    {
        let dir = dir.into();
        blocking(move || {
            let mut state = state;
            let tail = tail::read_on(&dir, from, max_bytes, &mut |commit| fold(&mut state, commit))?;
            Ok((state, tail))
        })
        .await?
    }

    /// The sizes of journals, by their sessions' folders; `None` where there is no journal.
    ///
    /// # Errors
    /// `Stopped`.
    pub async fn sizes(&self, dirs: Vec<PathBuf>) -> Result<Vec<Option<u64>>, JournalError> {
        blocking(move || dirs.iter().map(|dir| tail::size(dir)).collect()).await
    }

    /// Removes a session's folder with all in it. A journal that is still open there takes nothing more.
    ///
    /// # Errors
    /// `Missing`, or the reason why something of it is left; [`JournalService::sweep_removed`] takes that up again.
    pub async fn remove_session(&self, dir: impl Into<PathBuf>) -> Result<(), JournalError> {
        let dir = dir.into();
        self.work(move || folder::remove(&dir)).await?
    }

    /// Makes a session's folder from another's: `first` as its first commit, then the source's bytes in `rest`, and the
    /// source's blobs. It lies in a place of its own, which is returned, until [`JournalService::unveil`].
    ///
    /// # Errors
    /// The reason why it could not be made; nothing of it is left.
    pub async fn stage(
        &self,
        source: PathBuf,
        dir: PathBuf,
        first: (Timestamp, Vec<Box<RawValue>>),
        rest: Range<u64>,
    ) -> Result<PathBuf, JournalError> {
        // Not on the thread for files: it may copy for long, and other sessions' blobs would wait.
        blocking(move || staging::stage(&source, &dir, (first.0, &first.1), &rest)).await?
    }

    /// Gives a staged folder its place.
    ///
    /// # Errors
    /// `Exists` if a session is there; else the reason why it could not be moved.
    pub async fn unveil(&self, staged: PathBuf, dir: PathBuf) -> Result<(), JournalError> {
        let layer = Arc::clone(&self.layer);
        self.work(move || staging::unveil(&staged, &dir).inspect(|()| layer.reached(Reached::InPlace)))
            .await?
    }

    /// Takes a staged folder away again.
    ///
    /// # Errors
    /// Something of it is left; [`JournalService::sweep_removed`] takes that up again.
    pub async fn unstage(&self, staged: PathBuf) -> Result<(), JournalError> {
        self.work(move || folder::remove_tree(&staged)).await?
    }

    /// Finishes removals that a crash cut short. Lists all sessions, so it belongs after "ready".
    ///
    /// # Errors
    /// The reason why something is left.
    pub async fn sweep_removed(&self, sessions: impl Into<PathBuf>) -> Result<(), JournalError> {
        let sessions = sessions.into();
        self.work(move || folder::sweep(&sessions)).await?
    }

    /// Returns when every commit thread has come round, which shows that none is stuck.
    ///
    /// # Errors
    /// `Stopped`.
    pub async fn ping(&self) -> Result<(), JournalError> {
        for thread in &self.commits {
            let (tx, rx) = oneshot::channel();
            thread.send(Job::Ping(tx)).await.map_err(|_| JournalError::Stopped)?;
            rx.await.map_err(|_| JournalError::Stopped)?;
        }
        Ok(())
    }

    /// Does all that is queued, then ends the threads. Later calls answer `Stopped`.
    pub async fn stop(&self) {
        for thread in &self.commits {
            // An error means that it has ended already.
            let _ = thread.send(Job::Stop).await;
        }
        let _ = self.work.send(Work::Stop).await;
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let _ = blocking(move || {
            for thread in threads {
                // A thread that panicked has told so by itself.
                let _ = thread.join();
            }
        })
        .await;
    }

    /// Runs `work` on the thread for files.
    pub(super) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JournalError> {
        let (tx, rx) = oneshot::channel();
        let run = Work::Run(Box::new(move || {
            // Nobody waits for the answer if the caller has gone.
            let _ = tx.send(work());
        }));
        self.work.send(run).await.map_err(|_| JournalError::Stopped)?;
        rx.await.map_err(|_| JournalError::Stopped)
    }
}

/// Runs a read on the runtime's blocking pool: it may take long, and nothing waits behind it.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JournalError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => JournalError::Stopped,
    })
}

fn work_loop(mut queue: mpsc::Receiver<Work>) {
    while let Some(work) = queue.blocking_recv() {
        match work {
            // A panic here must not take the blobs of all other sessions with it. The caller sees its reply dropped.
            Work::Run(run) => drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run))),
            Work::Stop => queue.close(),
        }
    }
}

fn commit_loop(mut queue: mpsc::Receiver<Job>) {
    let mut held_back = None;
    while let Some(job) = held_back.take().or_else(|| queue.blocking_recv()) {
        let mut round = Round::default();
        let mut next = Some(job);
        let mut taken = 0;
        while let Some(job) = next.take() {
            taken += 1;
            match round.add(job) {
                Step::Taken if taken < ROUND => next = queue.try_recv().ok(),
                Step::Taken => {}
                Step::NextRound(job) => held_back = Some(job),
                Step::Stop => queue.close(),
            }
        }
        round.settle();
    }
}

/// A panic over one journal must not end the thread of all others.
fn guarded<T>(file: &JournalFile, work: impl FnOnce() -> Result<T, AppendError>) -> Result<T, AppendError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|_| Err(file.panicked()))
}

/// Commits written together, and then synced.
#[derive(Default)]
struct Round {
    waiting: Vec<Waiting>,
}

enum Waiting {
    Append(Arc<JournalFile>, Appended, oneshot::Sender<Result<Appended, AppendError>>),
    Sync(Arc<JournalFile>, oneshot::Sender<Result<(), AppendError>>),
}

impl Waiting {
    fn file(&self) -> &Arc<JournalFile> {
        match self {
            Waiting::Append(file, ..) | Waiting::Sync(file, _) => file,
        }
    }
}

enum Step {
    Taken,
    NextRound(Job),
    Stop,
}

impl Round {
    /// Writes at once what is to be written. Answers that must wait for a sync are kept.
    fn add(&mut self, job: Job) -> Step {
        let file = match &job {
            Job::Append { file, .. } | Job::Sync { file, .. } => file,
            Job::Ping(_) | Job::Stop => return Self::control(job),
        };
        // A file has at most one commit in a round, so that a failed sync takes back that one and no other.
        if self.waiting.iter().any(|waiting| Arc::ptr_eq(waiting.file(), file)) {
            return Step::NextRound(job);
        }
        // An answer that nobody waits for is dropped: the caller has gone, the commit is in the journal all the same.
        match job {
            Job::Append { file, expected, at, records, durability, reply } => {
                let written = guarded(&file, || file.write(expected, at, &records));
                match (written, durability) {
                    (Ok(appended), Durability::Synced) => {
                        self.waiting.push(Waiting::Append(file, appended, reply));
                    }
                    (Ok(appended), Durability::Written) => {
                        file.publish(&appended);
                        let _ = reply.send(Ok(appended));
                    }
                    (Err(error), _) => drop(reply.send(Err(error))),
                }
            }
            Job::Sync { file, reply } => self.waiting.push(Waiting::Sync(file, reply)),
            Job::Ping(_) | Job::Stop => {}
        }
        Step::Taken
    }

    fn control(job: Job) -> Step {
        match job {
            Job::Ping(reply) => {
                let _ = reply.send(());
                Step::Taken
            }
            _ => Step::Stop,
        }
    }

    /// One sync for each file, then its answer.
    fn settle(self) {
        for waiting in self.waiting {
            match waiting {
                Waiting::Append(file, appended, reply) => {
                    let result = guarded(&file, || file.sync(Some(&appended))).map(|()| {
                        file.publish(&appended);
                        appended
                    });
                    let _ = reply.send(result);
                }
                Waiting::Sync(file, reply) => drop(reply.send(guarded(&file, || file.sync(None)))),
            }
        }
    }
}
