//! Whether the settings file is still the one that was read. It is read once, when the daemon starts; whoever wonders why a
//! change does nothing should be told so.

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
}

impl Stamp {
    /// To be taken before the file is read: a change in between then counts as one.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), found: look(path) }
    }

    /// What to tell people if the file is another one now. May block.
    #[must_use]
    pub fn changed(&self) -> Option<String> {
        (look(&self.path) != self.found).then(|| {
            format!(
                "{} was changed after agentd had read it, at its start. To have it read: agentctl daemon stop",
                self.path.display()
            )
        })
    }
}

fn look(path: &Path) -> Option<Found> {
    let found = path.metadata().ok()?;
    Some(Found { modified: found.modified().ok(), len: found.len(), inode: found.ino() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_comes_changes_or_goes_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        let absent = Stamp::of(&path);
        assert_eq!(absent.changed(), None);
        std::fs::write(&path, "model = \"x/y\"").unwrap();
        assert!(absent.changed().unwrap().contains("config.toml was changed"));
        let stamp = Stamp::of(&path);
        assert_eq!(stamp.changed(), None);
        std::fs::write(&path, "model = \"x/yz\"").unwrap();
        assert!(stamp.changed().unwrap().ends_with("agentctl daemon stop"));
        let stamp = Stamp::of(&path);
        std::fs::remove_file(&path).unwrap();
        assert!(stamp.changed().is_some());
    }
}
