//! Reading on in a journal from where somebody stopped, whether the journal is open elsewhere or not.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::error::Doing as _;
use super::folder::NO_FOLLOW;
use super::index::Index;
use super::scan::scan_some;
use super::{Commit, FILE_NAME, JournalError, Reach};

/// What reading on came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    Read {
        /// Where to read on.
        end: Reach,
        /// Whether there is more than was asked for. What is left otherwise is no whole commit.
        more: bool,
    },
    /// The journal is not the one in which the place was marked: it is shorter, or has no line's end there.
    Stale,
}

/// Hands the commits after `from` to `each`, in order, and stops after about `max_bytes` of the file.
pub(super) fn read_on(
    dir: &Path,
    from: Reach,
    max_bytes: u64,
    each: &mut dyn FnMut(Commit),
) -> Result<Tail, JournalError> {
    let path = dir.join(FILE_NAME);
    let opened = OpenOptions::new().read(true).custom_flags(NO_FOLLOW).open(&path);
    let file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => JournalError::Missing { dir: dir.to_owned() },
        _ => JournalError::Io { action: "open", path: path.clone(), source: error },
    })?;
    let len = file.metadata().doing("look at", &path)?.len();
    if len < from.bytes {
        return Ok(Tail::Stale);
    }
    if let Some(last) = from.bytes.checked_sub(1) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, last).doing("read", &path)?;
        if byte != *b"\n" {
            return Ok(Tail::Stale);
        }
    }
    let (scan, more) =
        scan_some(&file, len, Index::beginning_at(from), max_bytes, each).doing("read", &path)?;
    Ok(Tail::Read { end: Reach { bytes: scan.index.len, next: scan.index.next }, more })
}

/// The size of a journal; `None` if there is none.
pub(super) fn size(dir: &Path) -> Option<u64> {
    fs::symlink_metadata(dir.join(FILE_NAME)).ok().filter(fs::Metadata::is_file).map(|meta| meta.len())
}
