//! Journals: the only truth about a session, one append-only file of commits each. This module knows bytes, numbers,
//! times and the frame of a commit; what a record means is the session's business.
//!
//! Writing happens on threads of its own, so that a slow disk or a full blocking pool never stalls a session: see
//! [`service`]. A commit is one line, whole or absent. After a failure the line is cut off again, or the journal takes
//! nothing more until it is opened anew: see [`file`].

mod blobs;
pub mod bundle;
#[cfg(debug_assertions)]
mod dying;
mod error;
#[cfg(test)]
pub(crate) mod faults;
mod feed_log;
mod file;
mod folder;
mod frame;
mod handle;
mod index;
mod lines;
mod mark;
mod moves;
mod pages;
mod scan;
mod service;
mod staging;
mod storage;
mod tail;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use agentd_protocol::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::ids::Seq;

pub use blobs::{BlobError, BlobPart, Blobs};
#[cfg(debug_assertions)]
pub use dying::{DieAt, NoMoment};
pub use error::{AppendError, AppendFailure, Changed, JournalError};
pub use feed_log::{BLOCK as FEED_BLOCK, Entry as FeedEntry, FeedLog, Page as FeedPage};
pub use folder::{Beginning, Ends};
pub use frame::MAX_LINE;
pub use handle::{Journal, JournalReader};
pub use mark::Mark;
pub use service::JournalService;
pub use storage::Reached;
pub use tail::Tail;

/// The name of a journal inside its session's folder.
pub const FILE_NAME: &str = "journal.jsonl";

/// Records that happened together. Record `i` has the number `seq + i`.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The number of the first record.
    pub seq: Seq,
    pub at: Timestamp,
    /// Never empty.
    pub records: Vec<Box<RawValue>>,
    pub place: Place,
}

impl Commit {
    /// The number of the last record.
    #[must_use]
    pub fn last(&self) -> Seq {
        Seq(self.seq.0 + (self.records.len() as u64).saturating_sub(1))
    }

    /// The records with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (Seq, &RawValue)> {
        (self.seq.0..).map(Seq).zip(self.records.iter().map(AsRef::as_ref))
    }
}

/// Where a commit lies in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub offset: u64,
    /// Bytes, the newline included.
    pub len: u32,
}

impl Place {
    /// Names record `index` of the commit here, to be read again by [`JournalReader::record`].
    #[must_use]
    pub fn record(self, index: u32) -> RecordRef {
        RecordRef { offset: self.offset, len: self.len, index }
    }
}

/// One record in a journal, to be read again later. Stays valid for the life of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RecordRef {
    /// Of its commit.
    pub offset: u64,
    /// Of its commit, the newline included.
    pub len: u32,
    /// Of the record in its commit.
    pub index: u32,
}

/// A place between two commits: how far somebody has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Bytes of the journal before it.
    pub bytes: u64,
    /// The number that the next record gets.
    pub next: Seq,
}

impl Reach {
    /// The beginning of a journal.
    pub const START: Self = Self { bytes: 0, next: Seq(1) };
}

/// When an append is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The line is with the kernel: safe from `kill -9`, not from a power cut.
    Written,
    /// The line and all before it are on the disk.
    Synced,
}

/// A commit that is in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub first: Seq,
    pub last: Seq,
    pub place: Place,
}

/// What was found when a journal was opened, with all its commits.
#[derive(Debug)]
pub struct Opened {
    pub commits: Vec<Commit>,
    pub damage: Damage,
}

/// What is wrong with a journal. People are told; nothing of it stops the session, unless `read_only` is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// An unfinished last line. It was moved aside and cut, unless `read_only` says that this failed.
    pub torn: Option<TornTail>,
    /// Lines that were skipped.
    pub bad_lines: Vec<BadLine>,
    /// Numbers that no commit carries: first and last of each hole.
    pub missing: Vec<(Seq, Seq)>,
    /// Why the journal takes nothing more.
    pub read_only: Option<String>,
}

impl Damage {
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether nothing but a line that was never finished is wrong.
    #[must_use]
    pub fn is_only_unfinished(&self) -> bool {
        let unfinished = self.torn.as_ref().is_some_and(|torn| !torn.ended);
        unfinished && self.bad_lines.is_empty() && self.missing.is_empty() && self.read_only.is_none()
    }
}

/// The rest of a commit that was never finished, so never acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    pub bytes: u64,
    /// The file that holds it now. Absent: it could not be moved and is still in the journal.
    pub kept_at: Option<PathBuf>,
    /// Whether it ends as a line does, so that it may have been a commit before something damaged it.
    pub ended: bool,
}

/// One or several neighbouring lines that are no commits, or commits whose numbers go back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadLine {
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Of the first line, counted from 1.
    pub number: u64,
    /// How many. Neighbours are told as one, so that a ruined file does not fill the memory.
    pub lines: u64,
}
