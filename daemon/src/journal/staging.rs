//! Session folders in the making: filled in a place of their own, and seen only when they are whole.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use agentd_protocol::Timestamp;
use serde_json::value::RawValue;

use super::error::Doing as _;
use super::folder::{BLOBS, NO_FOLLOW, make_dir, new_dir, new_file, remove_tree, sync_dir};
use super::{FILE_NAME, JournalError, frame};
use crate::ids::Seq;

/// Prefix of a folder that is being made from another session, or out of a bundle.
pub(super) const STAGED: &str = ".staged-";

/// A session's folder with the beginning of another one's journal and its blobs, in a place of its own beside `dir` until
/// it is finished. `first` takes the place of the source's first commit, `rest` are the bytes that follow it.
pub(super) fn stage(
    source: &Path,
    dir: &Path,
    first: (Timestamp, &[Box<RawValue>]),
    rest: &Range<u64>,
) -> Result<PathBuf, JournalError> {
    staged(dir, |staged| {
        write_journal(&source.join(FILE_NAME), &staged.join(FILE_NAME), first, rest)?;
        let blobs = staged.join(BLOBS);
        new_dir(&blobs).doing("make the folder", &blobs)?;
        add_blobs(source, staged)?;
        sync_dir(staged)
    })
    .map(|(staged, ())| staged)
}

/// Gives a staged session the blobs of another one that it has not.
pub(super) fn add_blobs(source: &Path, staged: &Path) -> Result<(), JournalError> {
    let (from, to) = (source.join(BLOBS), staged.join(BLOBS));
    let entries = match fs::read_dir(&from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        other => Some(other.doing("list", &from)?),
    };
    for entry in entries.into_iter().flatten() {
        let entry = entry.doing("list", &from)?;
        let (blob, copy) = (entry.path(), to.join(entry.file_name()));
        if fs::exists(&copy).doing("look for", &copy)? {
            continue;
        }
        // A blob never changes, so both sessions may have the same file.
        if fs::hard_link(&blob, &copy).is_err() {
            fs::copy(&blob, &copy).doing("copy", &blob)?;
            fs::File::open(&copy).and_then(|file| file.sync_all()).doing("sync", &copy)?;
        }
    }
    sync_dir(&to)
}

/// Makes an empty folder beside `dir` and has it filled. After an error nothing of it is left.
pub(super) fn staged<T, E: From<JournalError>>(
    dir: &Path,
    fill: impl FnOnce(&Path) -> Result<T, E>,
) -> Result<(PathBuf, T), E> {
    let staged = staged_for(dir)?;
    // Left by an earlier attempt that was cut short.
    remove_tree(&staged)?;
    make_dir(&staged)?;
    match fill(&staged) {
        Ok(filled) => Ok((staged, filled)),
        Err(error) => {
            // What is left all the same is swept at the next start.
            let _ = remove_tree(&staged);
            Err(error)
        }
    }
}

/// A journal that begins with `first` and goes on with the bytes `rest` of another one.
fn write_journal(
    from: &Path,
    path: &Path,
    first: (Timestamp, &[Box<RawValue>]),
    rest: &Range<u64>,
) -> Result<(), JournalError> {
    use std::io::Write as _;
    let mut journal = new_file(path).doing("make the journal", path)?;
    journal.write_all(&frame::encode(Seq(1), first.0, first.1)).doing("write", path)?;
    let mut original =
        OpenOptions::new().read(true).custom_flags(NO_FOLLOW).open(from).doing("open", from)?;
    original.seek(SeekFrom::Start(rest.start)).doing("read", from)?;
    let wanted = rest.end.saturating_sub(rest.start);
    let copied = io::copy(&mut original.take(wanted), &mut journal).doing("copy", from)?;
    if copied != wanted {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof)).doing("copy", from);
    }
    journal.sync_all().doing("sync", path)
}

/// Gives a staged journal another first commit; `rest` are the bytes that follow the one it has.
pub(super) fn begin_anew(
    staged: &Path,
    first: (Timestamp, &[Box<RawValue>]),
    rest: &Range<u64>,
) -> Result<(), JournalError> {
    let (path, anew) = (staged.join(FILE_NAME), staged.join(".journal.tmp"));
    write_journal(&path, &anew, first, rest)?;
    fs::rename(&anew, &path).doing("write", &path)?;
    sync_dir(staged)
}

fn staged_for(dir: &Path) -> Result<PathBuf, JournalError> {
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
        return Err(JournalError::Missing { dir: dir.to_owned() });
    };
    let mut staged = std::ffi::OsString::from(STAGED);
    staged.push(name);
    Ok(parent.join(staged))
}

/// Gives what was staged its place, whole or not at all.
pub(super) fn unveil(staged: &Path, dir: &Path) -> Result<(), JournalError> {
    use rustix::fs::{CWD, RenameFlags};
    match rustix::fs::renameat_with(CWD, staged, CWD, dir, RenameFlags::NOREPLACE) {
        Err(rustix::io::Errno::EXIST) => return Err(JournalError::Exists { dir: dir.to_owned() }),
        other => other.map_err(io::Error::from).doing("finish", dir)?,
    }
    dir.parent().map_or(Ok(()), sync_dir)
}

/// Puts what was staged into the place of a session's folder, in one step, and removes what was there.
pub(super) fn exchange(staged: &Path, dir: &Path) -> Result<(), JournalError> {
    use rustix::fs::{CWD, RenameFlags};
    rustix::fs::renameat_with(CWD, staged, CWD, dir, RenameFlags::EXCHANGE)
        .map_err(io::Error::from)
        .doing("replace", dir)?;
    dir.parent().map_or(Ok(()), sync_dir)?;
    // It is done: what could not be removed is swept at the next start.
    let _ = remove_tree(staged);
    Ok(())
}
