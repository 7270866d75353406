//! A tree that differs from another in a few files: what a session is answerable for once some of its changes were taken
//! back.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::read::Change;
use super::store::Store;
use super::take::take_out;
use super::{Kept, Mode, SnapshotError, Snapshots, TreeId};

/// What a file of the new tree is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Amend {
    /// As before this change, under both its names.
    Undone(Change),
    /// It holds these bytes, in the mode that the change left.
    Holds(Change, Vec<u8>),
}

impl Snapshots {
    /// Makes the tree that `base` is with these files in it.
    ///
    /// # Errors
    /// It cannot be made.
    pub async fn amend(
        &self,
        kept: Kept<'_>,
        base: &TreeId,
        files: Vec<Amend>,
    ) -> Result<TreeId, SnapshotError> {
        let store = self.open(kept).await?;
        self.in_time(amend(&store, base, files)).await
    }
}

async fn amend(store: &Store, base: &TreeId, files: Vec<Amend>) -> Result<TreeId, SnapshotError> {
    let index = store.passing("index");
    store.git(&["read-tree", base.as_str()], &index.0, None).await?;
    let mut lines = Vec::new();
    for file in files {
        match file {
            Amend::Undone(change) => {
                lines.extend(take_out(change.path.as_os_str().as_bytes()));
                let path = change.old_path.unwrap_or(change.path);
                lines.extend(entry(change.old_mode, &change.old, &path));
            }
            Amend::Holds(change, bytes) => {
                let hash = ["hash-object", "-w", "--no-filters", "--stdin"];
                let object = store.git_reading(&hash, &index.0, bytes).await?;
                let object = String::from_utf8_lossy(&object).trim().to_owned();
                lines.extend(entry(change.new_mode, &object, &change.path));
            }
        }
    }
    // A folder may stand where a file was, and the other way round.
    store.git_reading(&["update-index", "-z", "--replace", "--index-info"], &index.0, lines).await?;
    TreeId::parse(&store.git(&["write-tree", "--missing-ok"], &index.0, None).await?)
}

/// A line for `--index-info`; none for what is not there.
fn entry(mode: Mode, object: &str, path: &Path) -> Vec<u8> {
    match mode {
        Mode::Absent => Vec::new(),
        mode => [mode.name().as_bytes(), b" ", object.as_bytes(), b"\t", path.as_os_str().as_bytes(), b"\0"]
            .concat(),
    }
}
