//! Whether the settings file is still the one that was read.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longer than a program takes between emptying a file and writing it.
const STILL: Duration = Duration::from_millis(50);

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

    /// How long to wait until the file has been still for a moment. Some programs empty a file and then write it: in between
    /// it has no deny rules. Absent: it is still, is not there, or comes from the future.
    #[must_use]
    pub fn unsettled(&self, now: SystemTime) -> Option<Duration> {
        let (seconds, nanos) = self.found.as_ref()?.changed;
        let changed = UNIX_EPOCH + Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanos).ok()?);
        let age = now.duration_since(changed).ok()?;
        STILL.checked_sub(age).filter(|left| !left.is_zero())
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
    fn a_file_that_was_just_written_is_waited_for_and_no_longer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        let now = SystemTime::now();
        assert_eq!(Stamp::of(&path).unsettled(now), None);
        std::fs::write(&path, "").unwrap();
        let stamp = Stamp::of(&path);
        let (seconds, nanos) = stamp.found.as_ref().unwrap().changed;
        let changed = UNIX_EPOCH + Duration::new(seconds.try_into().unwrap(), nanos.try_into().unwrap());
        for (age, left) in [(0, Some(50)), (30, Some(20)), (50, None), (5000, None)] {
            let left = left.map(Duration::from_millis);
            assert_eq!(stamp.unsettled(changed + Duration::from_millis(age)), left, "{age}");
        }
        assert_eq!(stamp.unsettled(changed - Duration::from_secs(3600)), None, "a clock that was set back");
    }

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
