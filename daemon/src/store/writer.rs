//! The one thread that writes the index: takes what is queued in batches, and makes the file anew when it is gone, broken
//! or of another version.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::TransactionBehavior;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::ledger::{Queued, Repair};
use super::schema::{Database, is_ruin};
use super::write::{self, Taken};
use super::{Shared, Standing, Update, file};
use crate::ids::SessionId;
use crate::journal::Reach;

/// Changes of one transaction.
const BATCH: usize = 64;

/// How long changes of sessions are gathered before they are written.
const GATHER: Duration = Duration::from_millis(200);

/// How long an index that could not be opened is left alone, unless somebody asks for it.
const AGAIN_AFTER: Duration = Duration::from_secs(30);

/// The fields with an underscore say by being dropped that the change is through.
pub(super) enum Job {
    Update {
        update: Box<Update>,
        _queued: Queued,
        from_file: bool,
        _permit: Option<OwnedSemaphorePermit>,
    },
    Opened {
        id: SessionId,
        mark: Reach,
        _queued: Queued,
    },
    Forget {
        id: SessionId,
        _queued: Queued,
    },
    CaughtUp {
        generation: u64,
    },
    /// Looks whether the file is there and whole.
    Check,
    Open,
    Rebuild,
    /// Everything before this is done.
    Reach(oneshot::Sender<()>),
    Stop,
}

pub(super) struct Writer {
    shared: Arc<Shared>,
    queue: mpsc::Receiver<Job>,
    database: Option<Database>,
    failed_at: Option<Instant>,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, queue: mpsc::Receiver<Job>) -> Self {
        Self { shared, queue, database: None, failed_at: None }
    }

    pub(super) fn run(mut self) {
        while let Some(job) = self.queue.blocking_recv() {
            if matches!(&job, Job::Update { from_file: false, .. }) {
                // A session commits several times in a row, and whatever is written here makes its syncs wait. Whoever
                // waits for this thread wakes it.
                std::thread::park_timeout(GATHER);
            }
            let mut changes = Vec::new();
            let mut next = Some(job);
            while let Some(job) = next.take() {
                match job {
                    Job::Update { .. } | Job::Opened { .. } | Job::Forget { .. } => changes.push(job),
                    control => {
                        self.change(std::mem::take(&mut changes));
                        self.control(control);
                    }
                }
                if changes.len() < BATCH {
                    next = self.queue.try_recv().ok();
                }
            }
            self.change(changes);
        }
    }

    fn control(&mut self, job: Job) {
        match job {
            Job::CaughtUp { generation } => {
                self.make_ready();
                self.shared.standing.send_if_modified(|(now, standing)| {
                    let through = *now == generation && *standing == Standing::Filling;
                    if through {
                        *standing = Standing::Ready;
                    }
                    through
                });
            }
            Job::Open => {
                self.failed_at = None;
                self.make_ready();
            }
            Job::Check => self.make_ready(),
            Job::Rebuild => {
                self.throw_away();
                self.failed_at = None;
                self.make_ready();
            }
            Job::Reach(reply) => drop(reply.send(())),
            Job::Stop => {
                self.queue.close();
                if let Some(database) = &self.database {
                    database.settle();
                }
            }
            Job::Update { .. } | Job::Opened { .. } | Job::Forget { .. } => {}
        }
    }

    /// Opens the file, if the one that is open is not there any more.
    fn make_ready(&mut self) {
        let path = self.shared.path.clone();
        if self.database.as_ref().is_some_and(|database| database.is_in_place(&path)) {
            return;
        }
        if self.failed_at.is_some_and(|at| at.elapsed() < AGAIN_AFTER) {
            return;
        }
        self.close();
        match Database::open(&path) {
            Ok(database) => {
                self.database = Some(database);
                self.failed_at = None;
                // Whatever was known before, all sessions are compared with this file now.
                self.shared.standing.send_modify(|(generation, standing)| {
                    *generation += 1;
                    *standing = Standing::Filling;
                });
            }
            Err(error) => self.fail(&path, &error),
        }
    }

    fn close(&mut self) {
        self.database = None;
        self.shared.readers().clear();
    }

    fn fail(&mut self, path: &Path, error: &dyn std::error::Error) {
        self.close();
        self.failed_at = Some(Instant::now());
        let reason = format!("{}: {error}", path.display());
        tracing::warn!(%reason, "the index cannot be used; lists read the journals");
        self.shared.stand(Standing::Failed(reason));
    }

    fn throw_away(&mut self) {
        self.close();
        let path = self.shared.path.clone();
        if let Err(error) = file::remove(&path) {
            self.fail(&path, &error);
        }
    }

    /// Takes changes as one transaction. What cannot be taken is read from the journals later.
    fn change(&mut self, changes: Vec<Job>) {
        if changes.is_empty() {
            return;
        }
        self.make_ready();
        let Some(database) = &mut self.database else { return self.put_off(&changes) };
        match take(database, &changes) {
            Ok(outcomes) => {
                for (job, taken) in changes.iter().zip(outcomes) {
                    self.settle(job, taken);
                }
            }
            Err(error) => {
                self.put_off(&changes);
                if is_ruin(&error) {
                    tracing::warn!(%error, "the index is damaged and is made anew");
                    self.throw_away();
                    self.make_ready();
                } else {
                    let path = self.shared.path.clone();
                    self.fail(&path, &error);
                }
            }
        }
    }

    fn settle(&self, job: &Job, taken: Taken) {
        let ledger = &self.shared.ledger;
        match (job, taken) {
            (Job::Forget { id, .. }, _) => ledger.left(*id),
            (Job::Update { update, .. }, Taken::Needs(repair)) => {
                ledger.repair(update.row.session_id, repair);
            }
            (Job::Opened { id, .. }, Taken::Needs(repair)) => ledger.repair(*id, repair),
            _ => {}
        }
    }

    fn put_off(&self, changes: &[Job]) {
        for job in changes {
            let (id, repair) = match job {
                Job::Update { update, .. } => (update.row.session_id, Repair::Tail),
                Job::Opened { id, .. } => (*id, Repair::Whole),
                Job::Forget { id, .. } => (*id, Repair::Tail),
                _ => continue,
            };
            self.shared.ledger.repair(id, repair);
        }
    }
}

fn take(database: &mut Database, changes: &[Job]) -> Result<Vec<Taken>, rusqlite::Error> {
    // Not upgraded from reading, so that it waits for another writer, such as a person with a shell for databases.
    let transaction = database.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut outcomes = Vec::with_capacity(changes.len());
    for job in changes {
        outcomes.push(match job {
            Job::Update { update, from_file, .. } => write::update(&transaction, update, *from_file)?,
            Job::Opened { id, mark, .. } => write::opened(&transaction, *id, *mark)?,
            Job::Forget { id, .. } => {
                write::forget(&transaction, *id)?;
                Taken::Yes
            }
            _ => Taken::Yes,
        });
    }
    transaction.commit()?;
    Ok(outcomes)
}
