//! One entry of a work tree as git knows them: nothing, a file that can be run or not, a link. Seen as it is, and put in
//! the place of another that is still as expected.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, RenameFlags};
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
            (Entry::Absent, _) => self.remove(expected),
            (Entry::File { bytes, executable }, Seen::File { digest, executable: now }) => {
                if digest_of(bytes) != *digest {
                    self.replace(bytes, Expected::Content(*digest))?;
                }
                if executable == now { Ok(()) } else { self.set_executable(*executable) }
            }
            (Entry::File { bytes, executable }, _) => {
                if *expected != Seen::Absent {
                    self.remove(expected)?;
                }
                self.replace(bytes, Expected::Absent)?;
                if *executable { self.set_executable(true) } else { Ok(()) }
            }
            (Entry::Link { target }, _) => {
                if *expected != Seen::Absent {
                    self.remove(expected)?;
                }
                self.put_link(target)
            }
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

    /// Removes what is here, if it is `expected`. It is moved aside and looked at again before it goes: what somebody has
    /// saved since the last look comes back.
    fn remove(&self, expected: &Seen) -> Result<(), PathError> {
        let Place::Folder(folder) = &self.place else { return Ok(()) };
        self.check_folder_kept_its_name(folder.as_fd())?;
        let fail = |errno| PathError::from_errno("remove", &self.real, errno);
        let changed = || PathError::Changed { path: self.real.clone() };
        let name = format!("{TEMP_PREFIX}{}{TEMP_SUFFIX}", uuid::Uuid::new_v4().simple());
        let aside = self.beside(name.into()).ok_or(Errno::MFILE).map_err(fail)?;
        rustix::fs::renameat(folder, &self.name, folder, &aside.name).map_err(|errno| match errno {
            Errno::NOENT => changed(),
            errno => fail(errno),
        })?;
        if aside.seen().is_ok_and(|seen| seen == *expected) {
            return rustix::fs::unlinkat(folder, &aside.name, AtFlags::empty()).map_err(fail);
        }
        // Where somebody has saved once more, what was moved aside keeps the name that it has, rather than being lost.
        let back = rustix::fs::renameat_with(folder, &aside.name, folder, &self.name, RenameFlags::NOREPLACE);
        if let Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) = back {
            // Some network and FUSE file systems cannot. A second name does the same.
            rustix::fs::linkat(folder, &aside.name, folder, &self.name, AtFlags::empty())
                .and_then(|()| rustix::fs::unlinkat(folder, &aside.name, AtFlags::empty()))
                .map_err(fail)?;
        }
        Err(changed())
    }

    /// Nothing is here.
    fn put_link(&self, target: &[u8]) -> Result<(), PathError> {
        let made;
        let folder = match &self.place {
            Place::Folder(folder) => folder.as_fd(),
            Place::Missing { above, names } => {
                made = self.make_folders(above.as_fd(), names, super::file::folder_mode)?;
                made.as_fd()
            }
        };
        self.check_folder_kept_its_name(folder)?;
        rustix::fs::symlinkat(OsStr::from_bytes(target), folder, &self.name).map_err(|errno| match errno {
            Errno::EXIST => PathError::Changed { path: self.real.clone() },
            errno => PathError::from_errno("make the link", &self.real, errno),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A place in a folder of its own.
    fn place(name: &str) -> (tempfile::TempDir, Located) {
        let folder = tempfile::tempdir().unwrap();
        let path = std::fs::canonicalize(folder.path()).unwrap().join(name);
        (folder, locate_entry(&path).unwrap())
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn what_was_saved_since_the_last_look_is_not_removed() {
        let (folder, located) = place("f");
        let path = folder.path().join("f");
        std::fs::write(&path, "as it was").unwrap();
        let looked = located.seen().unwrap();
        std::fs::write(&path, "saved since").unwrap();
        assert!(matches!(located.remove(&looked), Err(PathError::Changed { .. })));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "saved since");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("nowhere", &path).unwrap();
        assert!(matches!(located.remove(&looked), Err(PathError::Changed { .. })));
        assert_eq!(names(folder.path()), ["f"]);
        let link = located.seen().unwrap();
        located.remove(&link).unwrap();
        assert_eq!(names(folder.path()), [""; 0]);
        assert!(matches!(located.remove(&link), Err(PathError::Changed { .. })), "nor is what is gone");
    }

    #[test]
    fn a_link_takes_no_place_that_is_taken() {
        let (folder, located) = place("f");
        let entry = Entry::Link { target: b"there".to_vec() };
        located.put_entry(&entry, &Seen::Absent).unwrap();
        assert!(matches!(located.put_entry(&entry, &Seen::Absent), Err(PathError::Changed { .. })));
        assert!(matches!(located.put_link(b"elsewhere"), Err(PathError::Changed { .. })));
        let there = located.seen().unwrap();
        located.put_entry(&Entry::File { bytes: b"x".to_vec(), executable: false }, &there).unwrap();
        let file = located.seen().unwrap();
        located.put_entry(&entry, &file).unwrap();
        assert_eq!(std::fs::read_link(folder.path().join("f")).unwrap(), Path::new("there"));
        assert_eq!(names(folder.path()), ["f"]);
    }
}
