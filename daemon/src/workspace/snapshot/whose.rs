//! Whose a change is. Between two snapshots of a session, what it did itself lies in windows of time, and the kernel stamps
//! every change of a file with its own clock, which no program sets: a change that lies in no window is somebody else's.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::read::{Change, ChangeKind, Renames, changes};
use super::store::Store;
use super::{SnapshotError, TreeId, blocking, path_text};

/// The kernel may stamp with a clock that is one tick behind.
const TICK: Duration = Duration::from_millis(20);

/// The time of now, as stamps of files tell it: nanoseconds since 1970.
#[must_use]
pub fn stamp() -> u64 {
    nanoseconds(SystemTime::now()).unwrap_or(0)
}

fn nanoseconds(time: SystemTime) -> Option<u64> {
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}

/// A time in which the session could change files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    pub from: u64,
    pub until: u64,
    /// The only files that it could change, by true name. Absent: a command ran.
    pub only: Option<Vec<PathBuf>>,
}

impl Window {
    fn has(&self, stamp: u64) -> bool {
        let tick = u64::try_from(TICK.as_nanos()).unwrap_or(0);
        self.from.saturating_sub(tick) <= stamp && stamp <= self.until
    }

    fn covers(&self, stamp: u64, path: &Path) -> bool {
        self.has(stamp) && self.only.as_ref().is_none_or(|only| only.iter().any(|known| known == path))
    }
}

/// A session's snapshot before, and what the session could do since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Since {
    pub root: PathBuf,
    pub tree: TreeId,
    pub windows: Vec<Window>,
    /// There was a time in which it could change files that is not known: a crash.
    pub unsure: bool,
}

/// What came to differ from one snapshot to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Whose {
    /// Files that are not known to be changed by the session alone, as [`path_text`] writes them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// They may be the session's after all: it is not known when it was at work.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unsure: bool,
    /// Folders that the session made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<String>,
}

/// Tells what changed from `since` to `tree`, which the work tree is as now.
pub(super) async fn whose(store: &Store, since: Since, tree: &TreeId) -> Result<Whose, SnapshotError> {
    if since.tree == *tree {
        return Ok(Whose::default());
    }
    let changes = changes(store, &since.tree, tree, Renames::Exact).await?;
    super::keep::keep(store, &changes).await;
    let root = store.repository.root.clone();
    Ok(blocking(move || tell(&root, &changes, &since)).await)
}

fn tell(root: &Path, changes: &[Change], since: &Since) -> Whose {
    let mut whose = Whose { unsure: since.unsure, ..Whose::default() };
    let mut stamps = Stamps { root, since, folders: HashMap::new() };
    for change in changes {
        // A file that is gone has no stamp. Where commands ran it was theirs: undoing that takes nothing away.
        let own = match change.kind {
            ChangeKind::Deleted => stamps.may_delete(&change.path),
            ChangeKind::Renamed => {
                stamps.may_delete(change.old_path.as_ref().unwrap_or(&change.path))
                    && (stamps.own(&change.path) || stamps.moved(&change.path))
            }
            ChangeKind::Added => stamps.own(&change.path) && stamps.born(&change.path),
            ChangeKind::Modified | ChangeKind::Mode | ChangeKind::Type => stamps.own(&change.path),
        };
        if !own {
            whose.others.push(path_text(&change.path));
            whose.others.extend(change.old_path.as_deref().map(path_text));
        } else if change.kind != ChangeKind::Deleted {
            whose.made.extend(stamps.made(&change.path));
        }
    }
    whose
}

struct Stamps<'a> {
    root: &'a Path,
    since: &'a Since,
    /// Those that were looked at, and whether the session made them.
    folders: HashMap<PathBuf, bool>,
}

impl Stamps<'_> {
    fn own(&self, path: &Path) -> bool {
        let path = self.root.join(path);
        let Ok(meta) = path.symlink_metadata() else { return false };
        changed(&meta)
            .is_some_and(|stamp| self.since.windows.iter().any(|window| window.covers(stamp, &path)))
    }

    fn may_delete(&self, path: &Path) -> bool {
        let path = self.root.join(path);
        self.since.unsure
            || self
                .since
                .windows
                .iter()
                .any(|window| window.only.as_ref().is_none_or(|only| only.contains(&path)))
    }

    /// Whether a file that is new here was made by the session. One that a command moved or linked here was there before,
    /// perhaps where no snapshot sees it, and its bytes may lie nowhere else, now or later.
    fn born(&self, path: &Path) -> bool {
        let Ok(meta) = self.root.join(path).symlink_metadata() else { return false };
        self.made_in_window(&meta)
    }

    fn made_in_window(&self, meta: &std::fs::Metadata) -> bool {
        let birth = meta.created().ok().and_then(nanoseconds);
        birth.is_some_and(|birth| self.since.windows.iter().any(|window| window.has(birth)))
    }

    /// Whether a command moved a folder that this file lies in: only the folder is stamped then. The file is what it
    /// was, byte for byte, and no longer where it was.
    fn moved(&self, path: &Path) -> bool {
        folders_of(path).any(|folder| {
            let stamp = self.root.join(folder).symlink_metadata().ok().as_ref().and_then(changed);
            stamp.is_some_and(|stamp| {
                self.since.windows.iter().any(|window| window.only.is_none() && window.has(stamp))
            })
        })
    }

    /// Folders of this file that did not exist before the session made them, each once.
    fn made(&mut self, path: &Path) -> Vec<String> {
        let mut made = Vec::new();
        for folder in folders_of(path) {
            if self.folders.contains_key(folder) {
                break;
            }
            let meta = self.root.join(folder).symlink_metadata();
            let own = meta.is_ok_and(|meta| self.made_in_window(&meta));
            self.folders.insert(folder.to_owned(), own);
            if own {
                made.push(path_text(folder));
            }
        }
        made
    }
}

/// The folders of `path`, the deepest first, without the root.
fn folders_of(path: &Path) -> impl Iterator<Item = &Path> {
    path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty())
}

fn changed(meta: &std::fs::Metadata) -> Option<u64> {
    let seconds = u64::try_from(meta.ctime()).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(u64::try_from(meta.ctime_nsec()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::super::Mode;
    use super::*;

    fn change(kind: ChangeKind, path: &str, old_path: Option<&str>) -> Change {
        Change {
            kind,
            path: path.into(),
            old_path: old_path.map(Into::into),
            old_mode: Mode::File,
            new_mode: Mode::File,
            old: String::new(),
            new: String::new(),
        }
    }

    fn since(windows: Vec<Window>) -> Since {
        let tree = "0".repeat(40).try_into().unwrap();
        Since { root: "/w".into(), tree, windows, unsure: false }
    }

    #[test]
    fn a_change_belongs_to_the_session_only_in_a_window_that_could_make_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let from = stamp();
        std::fs::create_dir(root.join("new")).unwrap();
        std::fs::write(root.join("new/a"), "x").unwrap();
        let until = stamp();
        let window = |from, until, only| Window { from, until, only };
        let path = root.join("new/a");
        let told = |windows: Vec<Window>| {
            tell(&root, &[change(ChangeKind::Modified, "new/a", None)], &since(windows))
        };
        let own = told(vec![window(from, until, None)]);
        assert_eq!((own.others.len(), &own.made[..]), (0, &["new".to_owned()][..]));
        assert!(told(vec![window(from, until, Some(vec![path]))]).others.is_empty());
        assert_eq!(told(vec![window(from, until, Some(vec![root.join("b")]))]).others, ["new/a"]);
        assert_eq!(told(vec![]).others, ["new/a"]);
        let second = 1_000_000_000;
        let earlier = told(vec![window(from - 2 * second, from - second, None)]);
        assert_eq!((earlier.others.len(), earlier.made.len()), (1, 0));
        assert_eq!(told(vec![window(until + second, until + 2 * second, None)]).others, ["new/a"]);
    }

    #[test]
    fn a_file_that_was_only_moved_or_linked_here_is_not_the_sessions_to_remove() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::write(root.join(".env"), "x").unwrap();
        std::fs::write(root.join("linked"), "x").unwrap();
        let birth = root.join(".env").metadata().unwrap().created().ok().and_then(nanoseconds).unwrap();
        let windows = vec![Window { from: birth + 2 * 20_000_000, until: u64::MAX, only: None }];
        while stamp() < birth + 3 * 20_000_000 {
            std::hint::spin_loop();
        }
        std::fs::rename(root.join(".env"), root.join("env")).unwrap();
        std::fs::hard_link(root.join("linked"), root.join("link")).unwrap();
        std::fs::write(root.join("new"), "x").unwrap();
        let told =
            |path| tell(&root, &[change(ChangeKind::Added, path, None)], &since(windows.clone())).others;
        assert_eq!((told("env").len(), told("link").len(), told("new").len()), (1, 1, 0));
    }

    #[test]
    fn what_is_gone_went_by_a_command_if_one_ran() {
        let gone = [change(ChangeKind::Deleted, "a", None)];
        let only = |only| vec![Window { from: 1, until: 2, only }];
        let told = |windows| tell(Path::new("/w"), &gone, &since(windows)).others.len();
        assert_eq!((told(only(None)), told(vec![])), (0, 1));
        assert_eq!((told(only(Some(vec!["/w/a".into()]))), told(only(Some(vec![])))), (0, 1));
        let unsure = Since { unsure: true, ..since(vec![]) };
        assert!(tell(Path::new("/w"), &gone, &unsure).others.is_empty());
        // A file that is moved, and not there any more when it is looked at.
        let moved = [change(ChangeKind::Renamed, "b", Some("a"))];
        assert_eq!(tell(Path::new("/w"), &moved, &since(only(None))).others, ["b", "a"]);
    }
}
