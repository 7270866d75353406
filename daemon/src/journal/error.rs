//! What can go wrong with a journal, and whether anything was changed by it.

use std::io;
use std::path::{Path, PathBuf};

use crate::ids::Seq;

/// Whether a failed append may show up after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The journal is as it was before.
    False,
    /// The commit may be found in the journal when it is opened again. Repeat with the same ids then.
    Unknown,
}

/// A commit was not added.
#[derive(Debug, thiserror::Error)]
#[error("cannot add to the journal {}", .path.display())]
pub struct AppendError {
    pub path: PathBuf,
    pub changed: Changed,
    #[source]
    pub failure: AppendFailure,
}

impl AppendError {
    pub(super) fn unchanged(path: &Path, failure: AppendFailure) -> Self {
        Self { path: path.to_owned(), changed: Changed::False, failure }
    }

    /// Whether the journal takes nothing more until it is opened again.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.changed == Changed::Unknown || matches!(self.failure, AppendFailure::ReadOnly(_))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum AppendFailure {
    /// Our own mistake: another commit came in between.
    #[error("the next number is {next}, not {expected}")]
    Expected { expected: Seq, next: Seq },
    #[error("a commit has at least one record")]
    Empty,
    #[error("a commit of {bytes} bytes is over the limit of {} MiB", super::MAX_LINE >> 20)]
    TooLarge { bytes: usize },
    /// The reason names what happened before.
    #[error("it is read-only until it is opened again: {0}")]
    ReadOnly(String),
    #[error("the write failed; check the space and the health of the disk")]
    Write(#[source] io::Error),
    #[error("the disk did not confirm the write; check its space and health")]
    Sync(#[source] io::Error),
    #[error("the journals are closed, agentd is stopping")]
    Stopped,
}

/// A journal could not be made, opened, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("there is no journal in {}", .dir.display())]
    Missing { dir: PathBuf },
    #[error("{} has a journal already", .dir.display())]
    Exists { dir: PathBuf },
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// In words, with the verb first: `sync the folder`.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("there is no record {index} at byte {offset} of {}", .path.display())]
    NoRecord { path: PathBuf, offset: u64, index: u32 },
    #[error("the journals are closed, agentd is stopping")]
    Stopped,
}

/// Adds what was being done, and to what, to an I/O error.
pub(super) trait Doing<T> {
    fn doing(self, action: &'static str, path: &Path) -> Result<T, JournalError>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, action: &'static str, path: &Path) -> Result<T, JournalError> {
        self.map_err(|source| JournalError::Io { action, path: path.to_owned(), source })
    }
}
