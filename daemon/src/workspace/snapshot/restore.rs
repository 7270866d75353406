//! Putting a work tree, or some files of it, back to what a snapshot holds. Only files that are still as the newer
//! snapshot has them: whatever somebody changed since is left as it is, and named.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::read::{Change, Renames, changes, contents, entries};
use super::{Kept, SnapshotError, Snapshots, TreeId, blocking, path_text};
use crate::workspace::{Entry, MAX_FILE, PathError, locate_below, remove_empty_folders};

/// Bytes of contents that are held at once.
const AT_ONCE: u64 = 128 << 20;
/// Files whose contents are loaded together.
const FILES_AT_ONCE: usize = 500;

/// What was put back, and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Below the root.
    pub done: Vec<PathBuf>,
    pub stays: Vec<Stays>,
}

/// What of a difference is to be undone.
#[derive(Clone, Copy, Debug)]
pub struct Undo<'a> {
    /// These files. `None`: all.
    pub only: Option<&'a HashSet<PathBuf>>,
    /// Folders below the root, as [`path_text`] writes them, that may go when nothing is left in them.
    pub made: &'a HashSet<String>,
    /// A folder that stays in any case.
    pub stay: &'a Path,
}

/// A file that was left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stays {
    pub path: PathBuf,
    /// A sentence for people.
    pub why: String,
    /// Somebody changed it since the newer snapshot.
    pub changed_since: bool,
}

impl Snapshots {
    /// Puts back what `target` holds, for the files that differ between `target` and `known` and are to be undone. `known` is the newest state that the session is answerable for: a file that is not as it says was
    /// changed by somebody else and stays.
    ///
    /// To undo a turn and all after it: `target` is the tree from before the turn, `known` the newest tree of the
    /// session. Nothing may run in the session meanwhile. Ignored files, nested repositories, and files that a snapshot
    /// left out are not touched.
    ///
    /// # Errors
    /// The snapshots cannot be read; files that were put back by then stay so.
    pub async fn restore(
        &self,
        kept: Kept<'_>,
        target: &TreeId,
        known: &TreeId,
        undo: Undo<'_>,
    ) -> Result<Restored, SnapshotError> {
        let mut restored = Restored::default();
        if target == known {
            return Ok(restored);
        }
        let store = self.open(kept).await?;
        // From what is known to what is wanted, each name for itself.
        let mut all = self.in_time(changes(&store, known, target, Renames::Apart)).await?;
        if let Some(only) = undo.only {
            all.retain(|change| only.contains(&change.path));
        }
        // Removals first: a folder may have to give way to a file, and the other way round.
        all.sort_by_key(|change| change.new_mode != super::Mode::Absent);
        // Where a file is to stand, whatever folder stands there now was made since.
        let wanted = all.iter().filter(|change| change.new_mode != super::Mode::Absent);
        let may_go: HashSet<String> =
            undo.made.iter().cloned().chain(wanted.map(|change| path_text(&change.path))).collect();
        let folders = Arc::new(Folders { may_go, stay: undo.stay.to_owned() });
        for some in all.chunks(FILES_AT_ONCE) {
            let contents = self.in_time(contents(&store, some, MAX_FILE, AT_ONCE)).await?;
            let work: Vec<_> = some
                .iter()
                .zip(contents)
                .map(|(change, contents)| (change.clone(), entries(change, contents)))
                .collect();
            let (root, folders) = (kept.root.to_owned(), Arc::clone(&folders));
            let part = blocking(move || put_back(&root, work, &folders)).await;
            restored.done.extend(part.done);
            restored.stays.extend(part.stays);
        }
        Ok(restored)
    }
}

struct Folders {
    may_go: HashSet<String>,
    stay: PathBuf,
}

impl Folders {
    fn may_go(&self, root: &Path, folder: &Path) -> bool {
        !self.stay.starts_with(root.join(folder)) && self.may_go.contains(&path_text(folder))
    }
}

fn put_back(root: &Path, work: Vec<(Change, Option<(Entry, Entry)>)>, folders: &Folders) -> Restored {
    let mut restored = Restored::default();
    for (change, entries) in work {
        let path = change.path;
        let stays = |why: String, changed_since| Stays { path: path.clone(), why, changed_since };
        let Some((known, target)) = entries else {
            restored.stays.push(stays("it is too large, or its content is not kept any more".into(), false));
            continue;
        };
        let put = locate_below(root, &path).and_then(|located| {
            // Somebody has put it back already.
            if located.seen()? == target.seen() { Ok(()) } else { located.put_entry(&target, &known.seen()) }
        });
        match put {
            Ok(()) => {
                if target == Entry::Absent {
                    remove_empty_folders(root, &path, |folder| folders.may_go(root, folder));
                }
                restored.done.push(path);
            }
            Err(PathError::Changed { .. } | PathError::Exists { .. } | PathError::Links { .. }) => {
                restored.stays.push(stays("somebody changed it since".into(), true));
            }
            Err(error) => restored.stays.push(stays(error.explain(), false)),
        }
    }
    restored
}
