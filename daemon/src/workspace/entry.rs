//! One entry of a work tree as git knows them: nothing, a file that can be run or not, a link. Seen as it is, and put in
//! the place of another that is still as expected.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use super::error::{Kind, PathError};
use super::facts::Facts;
use super::file::Expected;
use super::locate::{Located, Place, locate_entry};
use super::{MAX_FILE, TEMP_PREFIX, TEMP_SUFFIX};
use crate::ids::{Digest, digest_of};

const RUN_BITS: u32 = 0o111;

/// What is to be at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Absent,
    File { bytes: Vec<u8>, executable: bool },
    Link { target: Vec<u8> },
}

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Absent,
    File { digest: Digest, executable: bool },
    Link { target: Vec<u8> },
    Other(Kind),
}

impl Entry {
    /// How it would be seen.
    #[must_use]
    pub fn seen(&self) -> Seen {
        match self {
            Entry::Absent => Seen::Absent,
            Entry::File { bytes, executable } => {
                Seen::File { digest: digest_of(bytes), executable: *executable }
            }
            Entry::Link { target } => Seen::Link { target: target.clone() },
        }
    }
}

/// The place of `below` in the folder `root`, a true name. The last component is not followed, and no link lies on the
/// way there.
///
/// # Errors
/// As [`locate_entry`]; `Links` when the way leads elsewhere.
pub fn locate_below(root: &Path, below: &Path) -> Result<Located, PathError> {
    let path = root.join(below);
    let located = locate_entry(&path)?;
    if located.real == path { Ok(located) } else { Err(PathError::Links { path }) }
}

impl Located {
    /// What is there now.
    ///
    /// # Errors
    /// It cannot be looked at, or is a file too large to be compared.
    pub fn seen(&self) -> Result<Seen, PathError> {
        let Place::Folder(folder) = &self.place else { return Ok(Seen::Absent) };
        let Some(facts) = self.look(folder.as_fd())? else { return Ok(Seen::Absent) };
        match facts.kind {
            Kind::File => {
                Ok(Seen::File { digest: self.read(MAX_FILE)?.digest, executable: facts.mode & RUN_BITS != 0 })
            }
            Kind::Link => Ok(Seen::Link { target: self.link_target(folder.as_fd())? }),
            kind => Ok(Seen::Other(kind)),
        }
    }

    fn link_target(&self, folder: BorrowedFd<'_>) -> Result<Vec<u8>, PathError> {
        rustix::fs::readlinkat(folder, &self.name, Vec::new())
            .map(std::ffi::CString::into_bytes)
            .map_err(|errno| PathError::from_errno("read the link", &self.real, errno))
    }

    /// Puts `entry` here, if what is here is still `expected`.
    ///
    /// # Errors
    /// `Changed` when it is not; else what keeps it from being put.
    pub fn put_entry(&self, entry: &Entry, expected: &Seen) -> Result<(), PathError> {
        if self.seen()? != *expected {
            return Err(PathError::Changed { path: self.real.clone() });
        }
        match (entry, expected) {
            (Entry::Absent, Seen::Absent) => Ok(()),
            (Entry::Absent, _) => self.remove(),
            (Entry::File { bytes, executable }, Seen::File { digest, executable: now }) => {
                if digest_of(bytes) != *digest {
                    self.replace(bytes, Expected::Content(*digest))?;
                }
                if executable == now { Ok(()) } else { self.set_executable(*executable) }
            }
            (Entry::File { bytes, executable }, _) => {
                if *expected != Seen::Absent {
                    self.remove()?;
                }
                self.replace(bytes, Expected::Absent)?;
                if *executable { self.set_executable(true) } else { Ok(()) }
            }
            (Entry::Link { target }, _) => self.put_link(target, *expected != Seen::Absent),
        }
    }

    /// Who can read the file can run it, or nobody can.
    fn set_executable(&self, executable: bool) -> Result<(), PathError> {
        let fail = |errno| PathError::from_errno("set the mode of", &self.real, errno);
        let file = self.open(MAX_FILE)?;
        let mode = Facts::of(&rustix::fs::fstat(&file).map_err(fail)?).mode;
        let mode = if executable { mode | ((mode & 0o444) >> 2) } else { mode & !RUN_BITS };
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).map_err(fail)
    }

    fn remove(&self) -> Result<(), PathError> {
        let Place::Folder(folder) = &self.place else { return Ok(()) };
        self.check_folder_kept_its_name(folder.as_fd())?;
        rustix::fs::unlinkat(folder, &self.name, AtFlags::empty())
            .map_err(|errno| PathError::from_errno("remove", &self.real, errno))
    }

    fn put_link(&self, target: &[u8], over: bool) -> Result<(), PathError> {
        let fail = |errno| PathError::from_errno("make the link", &self.real, errno);
        let made;
        let folder = match &self.place {
            Place::Folder(folder) => folder.as_fd(),
            Place::Missing { above, names } => {
                made = self.make_folders(above.as_fd(), names, super::file::folder_mode)?;
                made.as_fd()
            }
        };
        self.check_folder_kept_its_name(folder)?;
        let target = OsStr::from_bytes(target);
        if !over {
            return rustix::fs::symlinkat(target, folder, &self.name).map_err(fail);
        }
        let temp = format!("{TEMP_PREFIX}{}{TEMP_SUFFIX}", uuid::Uuid::new_v4().simple());
        rustix::fs::symlinkat(target, folder, &temp).map_err(fail)?;
        rustix::fs::renameat(folder, &temp, folder, &self.name).map_err(|errno| {
            let _ = rustix::fs::unlinkat(folder, &temp, AtFlags::empty());
            fail(errno)
        })
    }
}

/// Removes the folders of `below` that hold nothing any more, from the deepest up to the first that may not go. `root`
/// stays.
pub fn remove_empty_folders(root: &Path, below: &Path, may_go: impl Fn(&Path) -> bool) {
    for folder in below.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()) {
        if !may_go(folder) {
            return;
        }
        let Ok(located) = locate_below(root, folder) else { return };
        let Place::Folder(above) = &located.place else { continue };
        match rustix::fs::unlinkat(above, &located.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(_) => return,
        }
    }
}
