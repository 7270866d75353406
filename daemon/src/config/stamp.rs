//! Whether the settings file is still the one that was read.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A file as it was at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    path: PathBuf,
    found: Option<Found>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    modified: Option<SystemTime>,
    len: u64,
    inode: u64,
    /// Set by the kernel at each change, also where the other time is set back.
    changed: (i64, i64),
}

impl Stamp {
    /// To be taken before the file is read: a change in between then counts as one.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), found: look(path) }
    }
}

fn look(path: &Path) -> Option<Found> {
    let found = path.metadata().ok()?;
    Some(Found {
        modified: found.modified().ok(),
        len: found.len(),
        inode: found.ino(),
        changed: (found.ctime(), found.ctime_nsec()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_comes_changes_or_goes_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        let absent = Stamp::of(&path);
        assert_eq!(absent, Stamp::of(&path));
        std::fs::write(&path, "model = \"x/y\"").unwrap();
        let first = Stamp::of(&path);
        assert_ne!(first, absent);
        assert_eq!(first, Stamp::of(&path));
        std::fs::write(&path, "model = \"x/yz\"").unwrap();
        assert_ne!(first, Stamp::of(&path));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(absent, Stamp::of(&path));
    }
}
