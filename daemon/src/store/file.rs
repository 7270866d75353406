//! The index's file: made so that only its owner can read it, recognised, removed.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Which file lies at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

/// `None` if there is none.
pub(super) fn identity(path: &Path) -> Option<Identity> {
    let meta = fs::symlink_metadata(path).ok()?;
    Some(Identity { device: meta.dev(), inode: meta.ino() })
}

/// Makes an empty file, 0600 whatever the umask, unless there is one. SQLite's other files take its mode.
pub(super) fn make(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => {
            // Of another file of the same name: SQLite would take it for this one's.
            remove_beside(path)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes the index with all that belongs to it.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    unlink(path)?;
    remove_beside(path)
}

fn remove_beside(path: &Path) -> io::Result<()> {
    for suffix in ["-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        unlink(&PathBuf::from(name))?;
    }
    Ok(())
}

fn unlink(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
