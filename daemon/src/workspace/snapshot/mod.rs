//! Snapshots of a work tree, taken by git's own plumbing and kept in the session's folder.
//!
//! git never sees the repository's configuration, hooks or attributes: it works on a private repository of ours
//! ([`store`]), with its own index, whose objects are added to the repository's, which are only read. So nothing in the
//! repository is touched, nothing that it configures is run, and what is kept is what lies on the disk, byte for byte:
//! no conversion of line ends, no filter. Ignored files, nested repositories and files that are too large are left out.

mod amend;
mod keep;
mod read;
mod repository;
mod restore;
mod store;
mod take;
mod whose;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use amend::Amend;
pub use read::{Change, ChangeKind, Contents, Mode};
pub use restore::{Restored, Stays, Undo};
pub use whose::{Since, Whose, Window, stamp};

use super::PathError;
use crate::process::{ProgramError, Spawner};
use repository::Repository;
use store::Store;

/// How long one snapshot, or one look at some, may take in all.
const TIME: Duration = Duration::from_secs(30);

/// Takes and reads snapshots. One for a daemon.
#[derive(Clone, Debug)]
pub struct Snapshots {
    spawner: Arc<Spawner>,
    /// Absent: this machine has no git.
    git: Option<PathBuf>,
    home: PathBuf,
    /// agentd's own folders, which are in no snapshot.
    own: Vec<PathBuf>,
    limits: Limits,
}

/// What a snapshot may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one file that is new or changed. Larger ones could not be put back either.
    pub file: u64,
    /// Bytes of all files together that one snapshot adds.
    pub total: u64,
    /// Files that one snapshot adds.
    pub files: usize,
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { file: super::MAX_FILE, total: 512 << 20, files: 50_000, time: TIME }
    }
}

/// The name that git gives a tree: what it holds, in 40 or 64 hex digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TreeId(String);

impl TreeId {
    fn parse(text: &[u8]) -> Result<Self, SnapshotError> {
        let text = String::from_utf8_lossy(text).trim().to_owned();
        Self::try_from(text).map_err(SnapshotError::Answer)
    }

    fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for TreeId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            Ok(Self(text))
        } else {
            Err(format!("{text:?} is no name of a tree"))
        }
    }
}

impl From<TreeId> for String {
    fn from(id: TreeId) -> Self {
        id.0
    }
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The repository's work tree.
    pub root: PathBuf,
    pub tree: TreeId,
    pub left_out: Vec<LeftOut>,
    /// Files and folders that are in no snapshot because git ignores them, or they are repositories of their own; as
    /// [`path_text`] writes them. `None`: not known.
    pub hidden: Option<Vec<String>>,
    /// What changed since the snapshot before. `None`: not known, or there is none of this work tree.
    pub whose: Option<Whose>,
}

/// A file that is not in a snapshot although git would take it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// Below the root, as [`path_text`] writes it.
    pub path: String,
    pub why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Why {
    /// The file alone.
    TooLarge,
    /// All changed files together.
    TooMuch,
    Unreadable,
    /// Something was there before that git ignored, or that lay in a repository of its own.
    Hidden,
}

/// Which snapshots a tree belongs to: those of one session, of one work tree.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    /// The session's folder.
    pub session: &'a Path,
    pub root: &'a Path,
}

/// Why there is no snapshot, or why it cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("git is not installed; install it, and changes of commands are seen too")]
    NoGit,
    #[error("it took longer than {} s", .0.as_secs())]
    TooSlow(Duration),
    #[error(
        "{count} new or changed files are more than the {limit} that one snapshot takes; let git ignore some"
    )]
    TooMany { count: usize, limit: usize },
    #[error(transparent)]
    Git(#[from] ProgramError),
    #[error("git answered what cannot be understood: {0}")]
    Answer(String),
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("the repository of {} is not there any more", .0.display())]
    Gone(PathBuf),
}

impl SnapshotError {
    /// The whole chain on one line.
    #[must_use]
    pub fn explain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(source) = cause {
            let more = source.to_string();
            if !text.contains(&more) {
                text.push_str(&format!(": {more}"));
            }
            cause = source.source();
        }
        text
    }
}

impl Snapshots {
    /// `git`: the program, if there is one. `own`: folders that no snapshot may hold.
    #[must_use]
    pub fn new(spawner: Arc<Spawner>, git: Option<PathBuf>, home: PathBuf, own: Vec<PathBuf>) -> Self {
        Self { spawner, git, home, own, limits: Limits::default() }
    }

    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Keeps the work tree of the repository that `cwd` is in, as it is now, in the folder of `session`. `since`: the
    /// session's snapshot before. `None`: it is in no repository. At most one at a time for a session.
    ///
    /// # Errors
    /// There is no snapshot, and nothing is known to be wrong with the repository.
    pub async fn take(
        &self,
        session: &Path,
        cwd: &Path,
        since: Option<Since>,
    ) -> Result<Option<Taken>, SnapshotError> {
        self.take_with(session, cwd, take::Index::Kept, since).await
    }

    /// As [`Snapshots::take`], beside another one that may be under way.
    ///
    /// # Errors
    /// As [`Snapshots::take`].
    pub async fn look(
        &self,
        session: &Path,
        cwd: &Path,
        since: Option<Since>,
    ) -> Result<Option<Taken>, SnapshotError> {
        self.take_with(session, cwd, take::Index::Copied, since).await
    }

    async fn take_with(
        &self,
        session: &Path,
        cwd: &Path,
        index: take::Index,
        since: Option<Since>,
    ) -> Result<Option<Taken>, SnapshotError> {
        let cwd = cwd.to_owned();
        let Some(repository) = blocking(move || repository::find(&cwd)).await else { return Ok(None) };
        let store = self.store(session, repository)?;
        let limit = self.limits.time;
        match tokio::time::timeout(limit, take::take(&store, index, since)).await {
            Ok(taken) => Ok(Some(taken?)),
            Err(_) => Err(SnapshotError::TooSlow(limit)),
        }
    }

    fn store(&self, session: &Path, repository: Repository) -> Result<Store, SnapshotError> {
        let git = self.git.clone().ok_or(SnapshotError::NoGit)?;
        Ok(Store::new(self, git, session, repository))
    }

    /// The folder that git finds the contents of these snapshots in.
    #[must_use]
    pub fn folder(&self, kept: Kept<'_>) -> PathBuf {
        store::folder(kept.session, kept.root)
    }

    /// Opens what was kept before.
    async fn open(&self, kept: Kept<'_>) -> Result<Store, SnapshotError> {
        let root = kept.root.to_owned();
        let found = blocking(move || repository::find(&root)).await;
        match found.filter(|found| found.root == kept.root) {
            Some(repository) => self.store(kept.session, repository),
            None => Err(SnapshotError::Gone(kept.root.to_owned())),
        }
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, SnapshotError>>,
    ) -> Result<T, SnapshotError> {
        let limit = self.limits.time;
        tokio::time::timeout(limit, work).await.unwrap_or(Err(SnapshotError::TooSlow(limit)))
    }
}

/// A path as text that is one line and tells every name from every other that is text: bytes that are no UTF-8 are
/// written `\xff`.
#[must_use]
pub fn path_text(path: &Path) -> String {
    let mut text = String::new();
    for chunk in std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Runs what may block away from the runtime's threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going down and nobody waits for the answer any more.
            Err(_) => std::future::pending().await,
        },
    }
}

/// The pieces of an answer that end with NUL.
fn pieces(answer: &[u8]) -> impl Iterator<Item = &[u8]> {
    answer.split(|byte| *byte == 0).filter(|piece| !piece.is_empty())
}
