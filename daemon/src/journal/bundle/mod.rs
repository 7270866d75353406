//! A session as one file: a plain tar of its journal, its blobs and its plan, with a list of them at its head. This module
//! knows bytes, names and digests; what a bundle means for who owns a session is the session's business.

mod read;
#[cfg(test)]
mod tests;
mod write;

use std::io;
use std::path::{Path, PathBuf};

use agentd_protocol::{Mode, Timestamp};
use serde::{Deserialize, Serialize};

use super::JournalError;
use crate::ids::{Digest, Seq, SessionId};

pub use read::Bundle;
pub use write::{Packed, Packing, temporary};
pub(super) use write::{is_free, name, pack};

/// The version of the format that this build writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

/// The list, at the head.
const MANIFEST: &str = "bundle.json";
const PLAN: &str = "plan.md";
const BLOBS: &str = "blobs/";

/// Bytes of the list: about a hundred thousand blobs.
const MAX_MANIFEST: u64 = 16 << 20;
/// Bytes of a plan.
const MAX_PLAN: u64 = 16 << 20;

/// What a bundle says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    #[serde(flatten)]
    pub about: About,
    /// All that is in the bundle, in its order: the journal, the plan, the blobs.
    pub files: Vec<Listed>,
}

/// Whose session it is, and as of when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct About {
    pub format: u32,
    /// The version of agentd that wrote it.
    pub agentd: String,
    pub session_id: SessionId,
    /// How often the session has changed hands, the first owner being 1.
    pub owner_epoch: u64,
    /// Whether the session went on where it was.
    pub copy: bool,
    pub exported_at: Timestamp,
    /// The number of the last record.
    pub seq: Seq,
    pub cwd: String,
    pub title: Option<String>,
    /// The mode that the session had when it was exported; at the last record it may have had another.
    pub mode: Mode,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    pub name: String,
    /// Bytes.
    pub size: u64,
    pub sha256: Digest,
}

/// A bundle could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// In words, with the verb first.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    #[error("{} is no bundle of agentd: {why}", .path.display())]
    NotOne { path: PathBuf, why: String },
    #[error(
        "{} has the format {format}, and this agentd reads up to {FORMAT}; install a newer agentd", .path.display()
    )]
    Newer { path: PathBuf, format: u64 },
    #[error("blob {0} of the session is not what its name says; the disk may be failing")]
    Corrupt(Digest),
    #[error("the session's journal became shorter while it was read; the disk may be failing")]
    Shrunk,
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Adds what was being done, and to what, to an I/O error.
fn doing<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> BundleError + 'a {
    move |source| BundleError::Io { action, path: path.to_owned(), source }
}
