//! What a session holds of its journal: the right to append, and cheap readers for everybody else.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use agentd_protocol::Timestamp;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use super::blobs::Blobs;
use super::error::Doing as _;
use super::file::JournalFile;
use super::frame::{self, Decoded};
use super::pages;
use super::service::{Job, blocking};
use super::{
    AppendError, AppendFailure, Appended, Changed, Commit, Durability, JournalError, MAX_LINE, Mark, Place,
    Reach, RecordRef,
};
use crate::ids::Seq;

/// An open journal. There is one for each file, and it alone appends.
pub struct Journal {
    file: Arc<JournalFile>,
    thread: mpsc::Sender<Job>,
    blobs: Blobs,
}

impl Journal {
    pub(super) fn new(file: Arc<JournalFile>, thread: mpsc::Sender<Job>, blobs: Blobs) -> Self {
        Self { file, thread, blobs }
    }

    /// The number that the next record gets; 1 in an empty journal.
    #[must_use]
    pub fn next_seq(&self) -> Seq {
        self.file.index.lock().next
    }

    /// The journal's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Why the journal takes nothing more, if so.
    #[must_use]
    pub fn read_only(&self) -> Option<String> {
        self.file.broken()
    }

    #[must_use]
    pub fn reader(&self) -> JournalReader {
        JournalReader { file: Arc::clone(&self.file) }
    }

    #[must_use]
    pub fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    /// How far the acknowledged commits reach.
    #[must_use]
    pub fn reach(&self) -> Reach {
        let index = self.file.index.lock();
        Reach { bytes: index.len, next: index.next }
    }

    /// Bytes of acknowledged commits.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.file.index.lock().len
    }

    /// How far the journal has come. Absent while it is empty.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn mark(&self) -> Result<Option<Mark>, JournalError> {
        self.reader().mark().await
    }

    /// Adds one commit; `expected` must be [`Journal::next_seq`]. With [`Durability::Synced`] it, and all commits
    /// before it, are on the disk when this returns.
    ///
    /// Not to be dropped half-way: the commit may be added all the same.
    ///
    /// # Errors
    /// The commit is not in the journal; `changed` says whether it may still turn up.
    pub async fn append(
        &mut self,
        expected: Seq,
        at: Timestamp,
        records: Vec<Box<RawValue>>,
        durability: Durability,
    ) -> Result<Appended, AppendError> {
        let (reply, answer) = oneshot::channel();
        let file = Arc::clone(&self.file);
        self.ask(Job::Append { file, expected, at, records, durability, reply }, answer).await
    }

    /// Brings all commits to the disk.
    ///
    /// # Errors
    /// The disk did not confirm. The journal takes nothing more.
    pub async fn sync(&mut self) -> Result<(), AppendError> {
        let (reply, answer) = oneshot::channel();
        self.ask(Job::Sync { file: Arc::clone(&self.file), reply }, answer).await
    }

    async fn ask<T>(
        &self,
        job: Job,
        answer: oneshot::Receiver<Result<T, AppendError>>,
    ) -> Result<T, AppendError> {
        let stopped =
            |changed| AppendError { path: self.file.path.clone(), changed, failure: AppendFailure::Stopped };
        self.thread.send(job).await.map_err(|_| stopped(Changed::False))?;
        // The thread died between taking the commit and answering.
        answer.await.map_err(|_| stopped(Changed::Unknown))?
    }
}

/// Reads acknowledged commits, while others are appended. Cheap to clone.
#[derive(Clone)]
pub struct JournalReader {
    file: Arc<JournalFile>,
}

impl JournalReader {
    pub(super) fn new(file: JournalFile) -> Self {
        Self { file: Arc::new(file) }
    }

    /// How far the journal has come. Absent while it is empty.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn mark(&self) -> Result<Option<Mark>, JournalError> {
        let file = Arc::clone(&self.file);
        let read = move || Mark::of(file.index.lock().clone(), &file.reader).doing("read", &file.path);
        blocking(read).await?
    }

    /// The number of the last acknowledged record; 0 in an empty journal.
    #[must_use]
    pub fn head(&self) -> Seq {
        Seq(self.file.index.lock().next.0 - 1)
    }

    /// How far the acknowledged commits reach.
    #[must_use]
    pub fn reach(&self) -> Reach {
        let index = self.file.index.lock();
        Reach { bytes: index.len, next: index.next }
    }

    /// The commits that hold records with numbers over `after`, in order: at least one if there is any, then as many as
    /// fit `max_bytes` of file. The first may also hold records up to `after`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn commits_after(&self, after: Seq, max_bytes: u64) -> Result<Vec<Commit>, JournalError> {
        let file = Arc::clone(&self.file);
        blocking(move || pages::after(&file, after, max_bytes)).await?
    }

    /// The commits that hold records with numbers under `before`, in order: the newest of them, then as many before it as
    /// fit `max_bytes` of file. The last may also hold records from `before` on.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn commits_before(&self, before: Seq, max_bytes: u64) -> Result<Vec<Commit>, JournalError> {
        let file = Arc::clone(&self.file);
        blocking(move || pages::before(&file, before, max_bytes)).await?
    }

    /// One record again.
    ///
    /// # Errors
    /// `NoRecord` if there is none at this place; else the file cannot be read.
    pub async fn record(&self, at: RecordRef) -> Result<Box<RawValue>, JournalError> {
        Ok(self.records(vec![at]).await?.swap_remove(0))
    }

    /// Several records again, in the order asked for.
    ///
    /// # Errors
    /// As [`JournalReader::record`]; then none is returned.
    pub async fn records(&self, at: Vec<RecordRef>) -> Result<Vec<Box<RawValue>>, JournalError> {
        let file = Arc::clone(&self.file);
        let read = move || {
            // Neighbours in one commit are usual, and a commit may be long.
            let mut commit = None;
            at.into_iter().map(|at| record(&file, at, &mut commit)).collect()
        };
        blocking(read).await?
    }
}

/// `last`: the commit that was read before, which may be the same.
fn record(
    file: &JournalFile,
    at: RecordRef,
    last: &mut Option<Commit>,
) -> Result<Box<RawValue>, JournalError> {
    let none = || JournalError::NoRecord { path: file.path.clone(), offset: at.offset, index: at.index };
    let same = last.take().filter(|commit| commit.place == Place { offset: at.offset, len: at.len });
    let commit = match same {
        Some(commit) => commit,
        None => read_commit(file, at)?.ok_or_else(none)?,
    };
    let found = commit.records.get(at.index as usize).cloned().ok_or_else(none);
    *last = Some(commit);
    found
}

fn read_commit(file: &JournalFile, at: RecordRef) -> Result<Option<Commit>, JournalError> {
    let none = || JournalError::NoRecord { path: file.path.clone(), offset: at.offset, index: at.index };
    let end = at.offset.checked_add(u64::from(at.len)).ok_or_else(none)?;
    if end > file.index.lock().len || at.len as usize > MAX_LINE {
        return Err(none());
    }
    let mut line = vec![0; at.len as usize];
    file.reader.read_exact_at(&mut line, at.offset).doing("read", &file.path)?;
    Ok(match frame::decode(&line, at.offset) {
        Decoded::Commit(commit) => Some(commit),
        Decoded::Newer(_) | Decoded::Bad => None,
    })
}
