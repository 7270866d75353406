//! Reading and replacing one located file.
//!
//! A replaced file is a new one with the old one's name, mode and owner. Two consequences are policy: another hard link
//! to the old file keeps the old content (so a link planted in a project never carries a write outside), and extended
//! attributes are not carried over. Both kinds of loss that a person may care about are told in [`Replaced`].

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use agentd_protocol::Timestamp;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;

use super::error::{Kind, PathError};
use super::facts::{Facts, is_kernel_file_system};
use super::locate::{Base, FOLDER_FLAGS, Located, Place, locate, locate_entry, true_name};
use super::{MAX_FILE, TEMP_PREFIX, TEMP_SUFFIX};
use crate::ids::{Digest, digest_of};

/// Opening never follows a link, never waits for the other end of a pipe, never becomes a terminal's owner.
const READ_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);
const CREATE_FLAGS: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A whole file, as it was at one moment.
#[derive(Clone, Debug)]
pub struct FileContent {
    pub bytes: Vec<u8>,
    pub digest: Digest,
    /// How many names the file has.
    pub links: u64,
    /// When it was last written, by the file system's clock.
    pub modified: Timestamp,
}

/// What a file must contain for a write to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Absent,
    Content(Digest),
}

/// What a new file looks like from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dress {
    /// Mode and owner of the old one; without one, as open as its folder.
    AsBefore,
    Private,
}

/// A finished write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// Absent: the file is new.
    pub before: Option<Digest>,
    pub after: Digest,
    /// The old file had other names, which keep the old content.
    pub left_other_links: bool,
    /// The old file belonged to somebody else and the new one could not be given to them.
    pub owner_changed: bool,
}

impl Located {
    /// What is there now.
    ///
    /// # Errors
    /// The folder cannot be searched.
    pub fn kind(&self) -> Result<Option<Kind>, PathError> {
        match &self.place {
            Place::Folder(folder) => Ok(self.look(folder.as_fd())?.map(|facts| facts.kind)),
            Place::Missing { .. } => Ok(None),
        }
    }

    /// Reads the whole file, at most `limit` bytes.
    ///
    /// # Errors
    /// Nothing there, no regular file, too large, or not readable.
    pub fn read(&self, limit: u64) -> Result<FileContent, PathError> {
        match &self.place {
            Place::Folder(folder) => self.read_in(folder.as_fd(), limit),
            Place::Missing { .. } => Err(PathError::Missing { path: self.real.clone() }),
        }
    }

    /// Opens the file for streaming, if it has at most `limit` bytes.
    ///
    /// # Errors
    /// As [`Located::read`].
    pub fn open(&self, limit: u64) -> Result<File, PathError> {
        let Place::Folder(folder) = &self.place else {
            return Err(PathError::Missing { path: self.real.clone() });
        };
        let fd = self.open_in(folder.as_fd(), limit)?;
        check_open_file(&fd, &self.real, limit)?;
        Ok(File::from(fd))
    }

    /// Puts `bytes` in the place of what is there, all or nothing: a full disk or a crash leaves the old content.
    /// Missing folders are made. Immediately before the new file takes the name, the old content is checked again.
    ///
    /// # Errors
    /// `Changed` when the content is not the expected one; `Exists` when a file was not expected; anything that keeps
    /// the new file from being written.
    pub fn replace(&self, bytes: &[u8], expected: Expected) -> Result<Replaced, PathError> {
        self.put(bytes, expected, Dress::AsBefore)
    }

    /// As [`Located::replace`]; only the owner can read the file afterwards, and its name is on the disk too.
    ///
    /// # Errors
    /// As [`Located::replace`].
    pub fn replace_private(&self, bytes: &[u8], expected: Expected) -> Result<Replaced, PathError> {
        self.put(bytes, expected, Dress::Private)
    }

    fn put(&self, bytes: &[u8], expected: Expected, dress: Dress) -> Result<Replaced, PathError> {
        let size = bytes.len() as u64;
        if size > MAX_FILE {
            return Err(PathError::TooLarge { path: self.real.clone(), size, limit: MAX_FILE });
        }
        let made;
        let folder = match &self.place {
            Place::Folder(folder) => folder.as_fd(),
            Place::Missing { above, names } => {
                made = self.make_folders(above.as_fd(), names, folder_mode)?;
                made.as_fd()
            }
        };
        let old = self.check(folder, expected)?;
        let mut temp = Temp::create(folder, &self.real)?;
        temp.write(bytes)?;
        let owner_changed = match dress {
            // As it was created.
            Dress::Private => false,
            Dress::AsBefore => self.dress(folder, &temp, old.as_ref().map(|(facts, _)| facts))?,
        };
        temp.sync()?;

        // Looked at once more, and what was really replaced is looked at again after the two have changed places: whoever
        // saved in between gets the place back.
        let before = old.as_ref().map(|(_, digest)| *digest);
        let again = self.check(folder, before.map_or(Expected::Absent, Expected::Content))?;
        self.check_folder_kept_its_name(folder)?;
        let left_other_links = again.is_some_and(|(facts, _)| facts.links > 1);
        match before {
            Some(before) => temp.change_places(&self.name, before)?,
            None => temp.rename_to_new(&self.name)?,
        }
        if dress == Dress::Private {
            let fail = |errno| PathError::from_errno("sync the folder of", &self.real, errno);
            // The handle that paths are resolved by cannot be synced itself.
            let flags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
            let readable = rustix::fs::openat(folder, ".", flags, Mode::empty()).map_err(fail)?;
            rustix::fs::fsync(readable).map_err(fail)?;
        }
        Ok(Replaced { before, after: digest_of(bytes), left_other_links, owner_changed })
    }

    /// Makes a new file that only its owner can read. Its folder must exist.
    ///
    /// # Errors
    /// `Exists` when the name is taken, by whatever.
    pub fn create_exclusive(&self, bytes: &[u8]) -> Result<(), PathError> {
        let Place::Folder(folder) = &self.place else {
            return Err(PathError::Missing { path: self.real.clone() });
        };
        let fail = |errno| PathError::from_errno("create", &self.real, errno);
        let fd =
            rustix::fs::openat(folder, &self.name, CREATE_FLAGS, Mode::RUSR | Mode::WUSR).map_err(fail)?;
        let mut file = File::from(fd);
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(|source| {
            // Half a file under a fresh name is worse than none.
            let _ = rustix::fs::unlinkat(folder, &self.name, AtFlags::empty());
            PathError::Io { doing: "write", path: self.real.clone(), source }
        })
    }

    /// Gives the thing here, whatever it is, another name in the same folder that is not taken yet. A link is renamed
    /// itself.
    ///
    /// # Errors
    /// `Exists` when the new name is taken.
    pub fn set_aside(&self, name: &str) -> Result<(), PathError> {
        let Place::Folder(folder) = &self.place else {
            return Err(PathError::Missing { path: self.real.clone() });
        };
        rustix::fs::renameat_with(folder, &self.name, folder, name, RenameFlags::NOREPLACE)
            .map_err(|errno| PathError::from_errno("set aside", &self.real, errno))
    }

    pub(super) fn look(&self, folder: BorrowedFd<'_>) -> Result<Option<Facts>, PathError> {
        match rustix::fs::statat(folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Facts::of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(PathError::from_errno("look at", &self.real, errno)),
        }
    }

    fn read_in(&self, folder: BorrowedFd<'_>, limit: u64) -> Result<FileContent, PathError> {
        read_open_file(self.open_in(folder, limit)?, &self.real, limit)
    }

    fn open_in(&self, folder: BorrowedFd<'_>, limit: u64) -> Result<OwnedFd, PathError> {
        // Looked at before it is opened: opening some devices already does something.
        let facts = self.look(folder)?.ok_or_else(|| PathError::Missing { path: self.real.clone() })?;
        check_facts(facts, &self.real, limit)?;
        rustix::fs::openat(folder, &self.name, READ_FLAGS, Mode::empty()).map_err(|errno| match errno {
            Errno::LOOP => PathError::Changed { path: self.real.clone() },
            errno => PathError::from_errno("open", &self.real, errno),
        })
    }

    /// What is there, after making sure that it is what was expected.
    fn check(
        &self,
        folder: BorrowedFd<'_>,
        expected: Expected,
    ) -> Result<Option<(Facts, Digest)>, PathError> {
        let Some(facts) = self.look(folder)? else {
            return match expected {
                Expected::Absent => Ok(None),
                Expected::Content(_) => Err(PathError::Changed { path: self.real.clone() }),
            };
        };
        if expected == Expected::Absent {
            return Err(PathError::Exists { path: self.real.clone() });
        }
        if facts.kind != Kind::File {
            return Err(PathError::NotRegular { path: self.real.clone(), kind: facts.kind });
        }
        let content = self.read_in(folder, MAX_FILE)?;
        match expected {
            Expected::Content(digest) if digest != content.digest => {
                Err(PathError::Changed { path: self.real.clone() })
            }
            _ => Ok(Some((facts, content.digest))),
        }
    }

    /// Makes the missing folders one by one, each in the one before, so that a link put there meanwhile is an error.
    pub(super) fn make_folders(
        &self,
        above: BorrowedFd<'_>,
        names: &[OsString],
        mode: fn(BorrowedFd<'_>) -> Result<Mode, Errno>,
    ) -> Result<OwnedFd, PathError> {
        let fail = |errno| PathError::from_errno("make the folder of", &self.real, errno);
        let mode = mode(above).map_err(fail)?;
        let mut folder: Option<OwnedFd> = None;
        for name in names {
            let at = folder.as_ref().map_or(above, AsFd::as_fd);
            match rustix::fs::mkdirat(at, name, mode) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(fail(errno)),
            }
            let flags = FOLDER_FLAGS.union(OFlags::NOFOLLOW);
            folder = Some(rustix::fs::openat(at, name, flags, Mode::empty()).map_err(fail)?);
        }
        folder.ok_or_else(|| PathError::Missing { path: self.real.clone() })
    }

    /// A folder that was moved since it was judged is not written to.
    pub(super) fn check_folder_kept_its_name(&self, folder: BorrowedFd<'_>) -> Result<(), PathError> {
        let name = true_name(folder, &self.real)?;
        if Some(name.as_path()) == self.real.parent() {
            Ok(())
        } else {
            Err(PathError::Changed { path: self.real.clone() })
        }
    }

    /// Gives the temporary file the mode and owner of the old one; a new file is as open as its folder. Returns
    /// whether the owner could not be kept.
    fn dress(&self, folder: BorrowedFd<'_>, temp: &Temp<'_>, old: Option<&Facts>) -> Result<bool, PathError> {
        let fail = |errno| PathError::from_errno("set the mode of", &self.real, errno);
        let Some(old) = old else {
            // The daemon's own umask hides everything from everybody else; projects are shared as their folders are.
            let mode = folder_mode(folder).map_err(fail)?.intersection(Mode::from_raw_mode(0o664));
            rustix::fs::fchmod(&temp.file, mode).map_err(fail)?;
            return Ok(false);
        };
        let now = Facts::of(&rustix::fs::fstat(&temp.file).map_err(fail)?);
        let mut owner_changed = false;
        if (now.uid, now.gid) != (old.uid, old.gid) {
            let uid = Uid::from_raw(old.uid);
            let gid = Gid::from_raw(old.gid);
            if rustix::fs::fchown(&temp.file, Some(uid), Some(gid)).is_err() {
                // The group at least, where we are a member of it.
                let _ = rustix::fs::fchown(&temp.file, None, Some(gid));
                owner_changed = now.uid != old.uid;
            }
        }
        // After the owner, because changing that clears the set-id bits; and never those for another owner than theirs.
        let kept = if owner_changed { 0o777 } else { 0o7777 };
        rustix::fs::fchmod(&temp.file, Mode::from_raw_mode(old.mode & kept)).map_err(fail)?;
        Ok(owner_changed)
    }
}

/// Makes a folder that only its owner can enter, with those missing above it, unless it is there. Returns its true name.
///
/// # Errors
/// Something else is there, or it cannot be made.
pub fn private_folder(path: &Path) -> Result<PathBuf, PathError> {
    // A folder that is there may be reached through links: the person set it up so.
    let located = locate(Base { cwd: path, home: None }, ".").or_else(|error| match error {
        PathError::Missing { .. } => locate_entry(path),
        error => Err(error),
    })?;
    match (located.found(), &located.place) {
        (Some(Kind::Folder), _) => {}
        (Some(_), _) => return Err(PathError::NotAFolder { path: located.real }),
        (None, Place::Folder(above)) => {
            located.make_folders(above.as_fd(), std::slice::from_ref(&located.name), |_| Ok(Mode::RWXU))?;
        }
        (None, Place::Missing { above, names }) => {
            let mut names = names.clone();
            names.push(located.name.clone());
            located.make_folders(above.as_fd(), &names, |_| Ok(Mode::RWXU))?;
        }
    }
    Ok(located.real)
}

/// Reads an open file whole, after making sure what it is.
pub(super) fn read_open_file(fd: OwnedFd, path: &Path, limit: u64) -> Result<FileContent, PathError> {
    let facts = check_open_file(&fd, path, limit)?;
    let mut bytes = Vec::with_capacity(usize::try_from(facts.size).unwrap_or(0));
    // One byte more than allowed, to notice a file that grows while it is read.
    File::from(fd).take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|source| PathError::Io {
        doing: "read",
        path: path.to_owned(),
        source,
    })?;
    let size = bytes.len() as u64;
    if size > limit {
        return Err(PathError::TooLarge { path: path.to_owned(), size, limit });
    }
    let digest = digest_of(&bytes);
    Ok(FileContent { bytes, digest, links: facts.links, modified: facts.modified })
}

/// Makes sure that an open file is a regular one, of an ordinary file system, and within the limit.
pub(super) fn check_open_file(fd: &OwnedFd, path: &Path, limit: u64) -> Result<Facts, PathError> {
    let stat = rustix::fs::fstat(fd).map_err(|errno| PathError::from_errno("look at", path, errno))?;
    let facts = Facts::of(&stat);
    check_facts(facts, path, limit)?;
    if is_kernel_file_system(fd) {
        return Err(PathError::Kernel { path: path.to_owned() });
    }
    Ok(facts)
}

fn check_facts(facts: Facts, path: &Path, limit: u64) -> Result<(), PathError> {
    if facts.kind != Kind::File {
        return Err(PathError::NotRegular { path: path.to_owned(), kind: facts.kind });
    }
    if facts.size > limit {
        return Err(PathError::TooLarge { path: path.to_owned(), size: facts.size, limit });
    }
    Ok(())
}

/// The mode for something new in a folder: as the folder is, never writable for the whole world, always for its owner.
pub(super) fn folder_mode(folder: BorrowedFd<'_>) -> Result<Mode, Errno> {
    let facts = Facts::of(&rustix::fs::fstat(folder)?);
    Ok(Mode::from_raw_mode((facts.mode & 0o775) | 0o700))
}

/// A file that is being written beside the one it will replace, and is removed unless it does.
struct Temp<'a> {
    folder: BorrowedFd<'a>,
    name: String,
    file: File,
    path: &'a Path,
    in_place: bool,
}

impl<'a> Temp<'a> {
    fn create(folder: BorrowedFd<'a>, path: &'a Path) -> Result<Self, PathError> {
        let name = format!("{TEMP_PREFIX}{}{TEMP_SUFFIX}", uuid::Uuid::new_v4().simple());
        let fd = rustix::fs::openat(folder, &name, CREATE_FLAGS, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| PathError::from_errno("write beside", path, errno))?;
        Ok(Self { folder, name, file: File::from(fd), path, in_place: false })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), PathError> {
        self.file.write_all(bytes).map_err(|source| self.failed(source))
    }

    fn sync(&self) -> Result<(), PathError> {
        self.file.sync_all().map_err(|source| self.failed(source))
    }

    fn failed(&self, source: std::io::Error) -> PathError {
        PathError::Io { doing: "write (the old content is untouched)", path: self.path.to_owned(), source }
    }

    /// Takes the place of the file that had the content `before`, and of no other.
    fn change_places(mut self, name: &OsString, before: Digest) -> Result<(), PathError> {
        let swap =
            |folder, from: &str| rustix::fs::renameat_with(folder, from, folder, name, RenameFlags::EXCHANGE);
        match swap(self.folder, &self.name) {
            Ok(()) => {}
            // Some network and FUSE file systems cannot. There the last look was the last.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => return self.rename_over(name),
            // It is gone, so nothing is lost by being there instead; but it was to be replaced, not made.
            Err(Errno::NOENT) => return Err(PathError::Changed { path: self.path.to_owned() }),
            Err(errno) => return Err(self.refused(errno)),
        }
        let replaced = rustix::fs::openat(self.folder, &self.name, READ_FLAGS, Mode::empty())
            .map_err(|errno| PathError::from_errno("open", self.path, errno))
            .and_then(|fd| read_open_file(fd, self.path, MAX_FILE));
        if replaced.is_ok_and(|replaced| replaced.digest == before) {
            // Dropping removes what was replaced.
            return Ok(());
        }
        if swap(self.folder, &self.name).is_err() {
            // What was replaced keeps the name that it has now, rather than being removed.
            self.in_place = true;
        }
        Err(PathError::Changed { path: self.path.to_owned() })
    }

    fn rename_over(mut self, name: &OsString) -> Result<(), PathError> {
        rustix::fs::renameat(self.folder, &self.name, self.folder, name)
            .map_err(|errno| self.refused(errno))?;
        self.in_place = true;
        Ok(())
    }

    fn rename_to_new(mut self, name: &OsString) -> Result<(), PathError> {
        let renamed =
            rustix::fs::renameat_with(self.folder, &self.name, self.folder, name, RenameFlags::NOREPLACE);
        match renamed {
            Ok(()) => self.in_place = true,
            // Some network and FUSE file systems cannot. A second name does the same; dropping removes the first.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                rustix::fs::linkat(self.folder, &self.name, self.folder, name, AtFlags::empty())
                    .map_err(|errno| self.refused(errno))?;
            }
            Err(errno) => return Err(self.refused(errno)),
        }
        Ok(())
    }

    fn refused(&self, errno: Errno) -> PathError {
        match errno {
            // The name has become a folder, or was taken in the last moment.
            Errno::EXIST | Errno::ISDIR | Errno::NOTEMPTY => {
                PathError::Changed { path: self.path.to_owned() }
            }
            errno => PathError::from_errno("replace", self.path, errno),
        }
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        if !self.in_place {
            // If even this fails, the name says what it is and it is never listed.
            let _ = rustix::fs::unlinkat(self.folder, &self.name, AtFlags::empty());
        }
    }
}
