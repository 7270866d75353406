//! A session's folder as the journal sees it: made, opened with its torn tail put aside, listed, removed.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::blobs::{BlobError, Shared};
use super::error::Doing as _;
use super::file::JournalFile;
use super::frame::{self, Decoded};
use super::index::Index;
use super::lines::{Lines, Text};
use super::scan::scan;
use super::staging::STAGED;
use super::storage::{Layer, Storage};
use super::{Commit, Damage, FILE_NAME, JournalError, MAX_LINE, Mark, TornTail};
use crate::ids::{Digest, digest_of};

/// Prefix of a folder that is being removed. No session's id begins with a dot.
const REMOVED: &str = ".removed-";

/// The folder of a session's blobs, inside its own.
pub(super) const BLOBS: &str = "blobs";

/// What a session keeps beside its journal, to load faster.
const CHECKPOINT: &str = "state.json";

/// How much of a journal's end is read to find its last commit.
const END: u64 = 64 << 10;

/// The first and the last commit of a journal, for lists.
#[derive(Debug)]
pub struct Ends {
    pub first: Option<Commit>,
    /// Absent if no commit lies whole in the last 64 KiB.
    pub last: Option<Commit>,
    /// Size of the journal.
    pub bytes: u64,
    /// Whether a line of it was ever finished; if none was, nobody has been told of the session.
    pub begun: bool,
}

pub(super) fn sync_dir(dir: &Path) -> Result<(), JournalError> {
    File::open(dir).and_then(|dir| dir.sync_all()).doing("sync the folder", dir)
}

/// Makes a folder that only its owner can enter, whatever the umask. Its name is durable once the parent is synced.
pub(super) fn new_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(dir)?;
    fs::set_permissions(dir, Permissions::from_mode(0o700))
}

/// Makes a folder that only its owner can enter, and makes its name durable.
pub(super) fn make_dir(dir: &Path) -> Result<(), JournalError> {
    if let Some(parent) = dir.parent()
        && !parent.is_dir()
    {
        make_dir(parent)?;
    }
    make_inner_dir(dir)
}

/// As [`make_dir`], inside a folder that has to be there.
pub(super) fn make_inner_dir(dir: &Path) -> Result<(), JournalError> {
    match new_dir(dir) {
        Ok(()) => dir.parent().map_or(Ok(()), sync_dir),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error).doing("make the folder", dir),
    }
}

/// Makes a new file, 0600 whatever the umask.
pub(super) fn new_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(NO_FOLLOW)
        .open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// No link is followed, and a pipe in a file's place is not waited for.
pub(super) const NO_FOLLOW: i32 =
    rustix::fs::OFlags::NOFOLLOW.union(rustix::fs::OFlags::NONBLOCK).bits().cast_signed();

/// Whatever else may stand in its place.
pub(super) fn must_be_file(file: &File) -> io::Result<()> {
    match file.metadata()?.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// Makes a session's folder with an empty journal and its first blobs. Everything is made before anything is synced: one
/// commit of the file system then takes all of it, and the syncs after the first find little to do.
pub(super) fn create<const N: usize>(
    layer: &dyn Layer,
    dir: &Path,
    contents: &[Bytes; N],
    shared: &mut Shared,
) -> Result<(JournalFile, [Digest; N]), BlobError> {
    let parent = dir.parent().ok_or_else(|| JournalError::Missing { dir: dir.to_owned() })?;
    // Never its parent: where that is gone, the state folder was moved away under the daemon and its lock.
    there_or_new(dir)?;
    let path = dir.join(FILE_NAME);
    let file = match new_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(JournalError::Exists { dir: dir.to_owned() }.into());
        }
        other => Arc::new(other.doing("make the journal", &path)?),
    };
    let storage = layer.wrap(Arc::clone(&file), &path);
    let blobs = dir.join(BLOBS);
    there_or_new(&blobs)?;
    let digests = contents.each_ref().map(|content| digest_of(content));
    for (content, digest) in contents.iter().zip(digests) {
        shared.put(&blobs, content, digest)?;
    }
    // The empty journal itself needs no sync: the first synced commit brings it along.
    for made in [&blobs, dir, parent] {
        sync_dir(made)?;
    }
    Ok((JournalFile::new(path, file, storage, Index::new(), 0, None), digests))
}

fn there_or_new(dir: &Path) -> Result<(), JournalError> {
    match new_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(error).doing("make the folder", dir)
        }
        _ => Ok(()),
    }
}

/// A journal's file, opened and not read yet.
pub(super) struct Opening {
    path: PathBuf,
    file: Arc<File>,
    storage: Box<dyn Storage>,
    size: u64,
    read_only: Option<String>,
}

impl Opening {
    pub(super) fn new(layer: &dyn Layer, dir: &Path) -> Result<Self, JournalError> {
        let path = dir.join(FILE_NAME);
        let (file, read_only) = open_file(dir, &path)?;
        Self::of(layer, path, file, read_only)
    }

    /// For reading only.
    pub(super) fn to_look(layer: &dyn Layer, dir: &Path) -> Result<Self, JournalError> {
        let path = dir.join(FILE_NAME);
        let file =
            OpenOptions::new().read(true).custom_flags(NO_FOLLOW).open(&path).map_err(|error| match error
                .kind()
            {
                io::ErrorKind::NotFound => JournalError::Missing { dir: dir.to_owned() },
                _ => JournalError::Io { action: "open", path: path.clone(), source: error },
            })?;
        Self::of(layer, path, file, Some("it was opened to be looked at".to_owned()))
    }

    fn of(
        layer: &dyn Layer,
        path: PathBuf,
        file: File,
        read_only: Option<String>,
    ) -> Result<Self, JournalError> {
        must_be_file(&file).doing("open", &path)?;
        let file = Arc::new(file);
        let storage = layer.wrap(Arc::clone(&file), &path);
        let size = storage.facts().doing("look at", &path)?.len;
        Ok(Self { path, file, storage, size, read_only })
    }

    pub(super) fn fits(&self, mark: &Mark) -> bool {
        mark.fits(&self.file, self.size)
    }
}

/// What a session has to begin with when its journal is opened.
pub struct Beginning<'a> {
    /// What was kept beside the journal. It may be anything.
    pub kept: Option<Vec<u8>>,
    pub(super) opening: &'a Opening,
}

impl Beginning<'_> {
    /// Whether the journal begins with what this mark was made of.
    #[must_use]
    pub fn fits(&self, mark: &Mark) -> bool {
        self.opening.fits(mark)
    }
}

/// Reads what comes after `from`, and makes the end fit to be appended to.
pub(super) fn read(
    opening: Opening,
    dir: &Path,
    from: Index,
    each: &mut dyn FnMut(Commit),
) -> Result<(JournalFile, Damage), JournalError> {
    let Opening { path, file, storage, size, mut read_only } = opening;
    let scan = scan(&file, size, from, each).doing("read", &path)?;

    if let Some(version) = scan.newer {
        read_only = Some(format!(
            "a newer agentd wrote it (format {version}); install that version to go on with this session"
        ));
    }
    let mut torn = None;
    if scan.torn > 0 {
        let mut tail = TornTail { bytes: scan.torn, kept_at: None, ended: scan.torn_ended };
        if read_only.is_none() {
            match put_aside(&file, storage.as_ref(), dir, scan.index.len) {
                Ok(kept_at) => tail.kept_at = Some(kept_at),
                Err(error) => {
                    read_only = Some(format!("its unfinished last line could not be put aside ({error})"));
                }
            }
        }
        torn = Some(tail);
    }
    // What a killed daemon wrote may be acted on and shown from now on, so it should be on the disk. If it cannot be
    // synced, nothing is known to be there.
    let synced = if read_only.is_none() && storage.sync_data().is_ok() { scan.index.len } else { 0 };
    let damage =
        Damage { torn, bad_lines: scan.bad_lines, missing: scan.missing, read_only: read_only.clone() };
    Ok((JournalFile::new(path, file, storage, scan.index, synced, read_only), damage))
}

/// Finds what comes after `from`, and leaves the end as it is: an unfinished last line is not read.
pub(super) fn look(opening: Opening, from: Index) -> Result<JournalFile, JournalError> {
    let Opening { path, file, storage, size, read_only } = opening;
    let scan = scan(&file, size, from, &mut |_| {}).doing("read", &path)?;
    Ok(JournalFile::new(path, file, storage, scan.index, 0, read_only))
}

/// Replaces the checkpoint. Not synced: it is checked when it is read, and can be made again.
pub(super) fn keep_beside(dir: &Path, content: &[u8]) -> Result<(), JournalError> {
    use std::io::Write as _;
    let path = dir.join(CHECKPOINT);
    let temporary = dir.join(format!(".{CHECKPOINT}.tmp"));
    // Left by a crash, and nobody's.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).doing("write", &temporary);
        }
        _ => {}
    }
    let written = new_file(&temporary)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        // Frees the space, if that was the reason; a failure here changes nothing.
        let _ = fs::remove_file(&temporary);
    }
    written.doing("write", &path)
}

/// The checkpoint, if there is one of at most `limit` bytes. Anything in its place that cannot be read is as good as none.
pub(super) fn kept_beside(dir: &Path, limit: u64) -> Option<Vec<u8>> {
    small_file(&dir.join(CHECKPOINT), limit)
}

/// Whether this is a file with exactly this content.
pub(super) fn holds(path: &Path, content: &[u8]) -> bool {
    small_file(path, content.len() as u64).is_some_and(|found| found == content)
}

fn small_file(path: &Path, limit: u64) -> Option<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(NO_FOLLOW).open(path).ok()?;
    must_be_file(&file).ok()?;
    let mut content = Vec::new();
    file.take(limit + 1).read_to_end(&mut content).ok()?;
    (content.len() as u64 <= limit).then_some(content)
}

/// Opens the file for writing, or where that is forbidden for reading, with the reason.
fn open_file(dir: &Path, path: &Path) -> Result<(File, Option<String>), JournalError> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(NO_FOLLOW);
    let (file, reason) = match options.clone().write(true).open(path) {
        Ok(file) => (file, None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(JournalError::Missing { dir: dir.to_owned() });
        }
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            let file = options.open(path).doing("open", path)?;
            (file, Some(format!("it cannot be opened for writing ({error})")))
        }
        Err(error) => return Err(error).doing("open", path),
    };
    Ok((file, reason))
}

/// Copies everything from `offset` on into a file beside the journal, then cuts it off.
fn put_aside(mut file: &File, storage: &dyn Storage, dir: &Path, offset: u64) -> io::Result<PathBuf> {
    let (path, mut copy) = (1u32..)
        .map(|n| dir.join(format!("torn-{offset}-{n}")))
        .find_map(|path| match new_file(&path) {
            Ok(copy) => Some(Ok((path, copy))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            Err(error) => Some(Err(error)),
        })
        .unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()))?;
    file.seek(SeekFrom::Start(offset))?;
    io::copy(&mut file, &mut copy)?;
    copy.sync_all()?;
    File::open(dir)?.sync_all()?;
    storage.set_len(offset)?;
    storage.sync_all()?;
    Ok(path)
}

/// Reads a little from both ends.
pub(super) fn ends(dir: &Path) -> Result<Ends, JournalError> {
    let path = dir.join(FILE_NAME);
    let (file, bytes) = OpenOptions::new()
        .read(true)
        .custom_flags(NO_FOLLOW)
        .open(&path)
        .and_then(|file| must_be_file(&file).and_then(|()| file.metadata()).map(|meta| (file, meta.len())))
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => JournalError::Missing { dir: dir.to_owned() },
            _ => JournalError::Io { action: "open", path: path.clone(), source: error },
        })?;
    let (first, begun) = first_commit(&file, bytes).doing("read", &path)?;
    let last = last_commit(file, bytes).doing("read", &path)?;
    Ok(Ends { first, last, bytes, begun })
}

/// The first commit, and whether there is a whole line at all.
fn first_commit(file: &File, bytes: u64) -> io::Result<(Option<Commit>, bool)> {
    // A first line is short; only a strange one needs a second, longer look, and none is longer than a line may be.
    for end in [bytes.min(END), bytes.min(MAX_LINE as u64 + 1)] {
        let mut lines = Lines::new(file, 0, end);
        match lines.next()?.map(|line| line.text) {
            Some(Text::Whole(text)) => return Ok((as_commit(text, 0), true)),
            Some(Text::Unfinished) if end > MAX_LINE as u64 => return Ok((None, true)),
            Some(Text::Unfinished) => {}
            Some(Text::TooLong) => return Ok((None, true)),
            None => break,
        }
    }
    Ok((None, false))
}

fn last_commit(mut file: File, bytes: u64) -> io::Result<Option<Commit>> {
    let from = bytes.saturating_sub(END);
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    file.take(END).read_to_end(&mut tail)?;
    let mut end = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    while end > 0 {
        let newline_before = tail[..end - 1].iter().rposition(|byte| *byte == b'\n');
        let start = match newline_before {
            Some(at) => at + 1,
            None if from == 0 => 0,
            // The line begins before what was read.
            None => return Ok(None),
        };
        if let Some(commit) = as_commit(&tail[start..end], from + start as u64) {
            return Ok(Some(commit));
        }
        end = start;
    }
    Ok(None)
}

fn as_commit(line: &[u8], offset: u64) -> Option<Commit> {
    match frame::decode(line, offset) {
        Decoded::Commit(commit) => Some(commit),
        Decoded::Newer(_) | Decoded::Bad => None,
    }
}

/// Removes a session's folder and all in it. It loses its name first, so that a crash half-way leaves no half session.
pub(super) fn remove(dir: &Path) -> Result<(), JournalError> {
    let (parent, name) = match (dir.parent(), dir.file_name()) {
        (Some(parent), Some(name)) => (parent, name),
        _ => return Err(JournalError::Missing { dir: dir.to_owned() }),
    };
    match fs::symlink_metadata(dir) {
        Ok(meta) if meta.is_dir() => {}
        Ok(_) => return Err(io::Error::from(io::ErrorKind::NotADirectory)).doing("remove", dir),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(JournalError::Missing { dir: dir.to_owned() });
        }
        Err(error) => return Err(error).doing("look at", dir),
    }
    let mut doomed_name = std::ffi::OsString::from(REMOVED);
    doomed_name.push(name);
    let doomed = parent.join(doomed_name);
    // Left by an earlier removal of the same name that was cut short.
    remove_tree(&doomed)?;
    fs::rename(dir, &doomed).doing("remove", dir)?;
    sync_dir(parent)?;
    remove_tree(&doomed)
}

pub(super) fn remove_tree(dir: &Path) -> Result<(), JournalError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).doing("remove", dir),
        _ => Ok(()),
    }
}

/// Bytes that a session takes on the disk. A file that sessions share counts for each with its part.
pub(super) fn weigh(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let (mut bytes, mut folders) = (0, vec![dir.to_owned()]);
    while let Some(folder) = folders.pop() {
        // What goes away meanwhile weighs nothing.
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            if found.is_dir() {
                folders.push(entry.path());
            } else {
                bytes += found.len() / found.nlink().max(1);
            }
        }
    }
    bytes
}

/// Finishes removals that a crash cut short, and removes what was never finished. Touches nothing else.
pub(super) fn sweep(sessions: &Path) -> Result<(), JournalError> {
    let entries = match fs::read_dir(sessions) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.doing("list", sessions)?,
    };
    for entry in entries {
        let entry = entry.doing("list", sessions)?;
        let name = entry.file_name();
        if [REMOVED, STAGED].iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes())) {
            remove_tree(&entry.path())?;
        }
    }
    Ok(())
}
