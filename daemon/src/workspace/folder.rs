//! An open folder, and what lies below it. Nothing below is reached through a link.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};

use super::error::{Kind, PathError};
use super::facts::{Facts, is_kernel_file_system, is_kernel_folder_name, kind_of};
use super::file::{FileContent, read_open_file};
use super::is_temp_name;
use super::locate::{Located, Place};

/// A folder with more entries is read no further.
pub(super) const MAX_FOLDER_ENTRIES: usize = 50_000;

const BELOW: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// A folder held open.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    real: PathBuf,
}

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderEntry {
    pub name: OsString,
    pub kind: Kind,
}

impl Located {
    /// Opens the folder that was located.
    ///
    /// # Errors
    /// Nothing there, or no folder.
    pub fn open_folder(&self) -> Result<Folder, PathError> {
        let Place::Folder(parent) = &self.place else {
            return Err(PathError::Missing { path: self.real.clone() });
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(parent, &self.name, flags, Mode::empty())
            .map_err(|errno| PathError::from_errno("open the folder", &self.real, errno))?;
        if is_kernel_file_system(&fd) {
            return Err(PathError::Kernel { path: self.real.clone() });
        }
        Ok(Folder { fd, real: self.real.clone() })
    }
}

impl Folder {
    #[must_use]
    pub fn real(&self) -> &Path {
        &self.real
    }

    /// The entries of the folder `below` this one (empty: this one), sorted by name, and whether there were too many.
    /// Leaves out `.`, `..` and temporary files that a crash of ours left.
    ///
    /// # Errors
    /// No folder, reached through a link, or not readable.
    pub fn entries(&self, below: &Path) -> Result<(Vec<FolderEntry>, Cut), PathError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = self.open(below, flags)?;
        let fail = |errno| PathError::from_errno("list", self.real.join(below), errno);
        if is_kernel_file_system(&fd) {
            return Err(PathError::Kernel { path: self.real.join(below) });
        }
        let mut entries = Vec::new();
        let mut cut = Cut::No;
        for entry in Dir::read_from(&fd).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." || is_temp_name(name) {
                continue;
            }
            if entries.len() == MAX_FOLDER_ENTRIES {
                cut = Cut::Yes;
                break;
            }
            let kind = match entry.file_type() {
                // Some file systems only tell when asked. Something gone by now is left out.
                FileType::Unknown => {
                    match rustix::fs::statat(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                        Ok(stat) => Facts::of(&stat).kind,
                        Err(_) => continue,
                    }
                }
                file_type => kind_of(file_type),
            };
            entries.push(FolderEntry { name: OsString::from_vec(name.to_vec()), kind });
        }
        entries.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
        Ok((entries, cut))
    }

    /// Reads a regular file below this folder.
    ///
    /// # Errors
    /// As [`Located::read`]; also when a link lies on the way.
    pub fn read(&self, below: &Path, limit: u64) -> Result<FileContent, PathError> {
        let fd = self.open_below(below)?;
        read_open_file(fd, &self.real.join(below), limit)
    }

    /// Opens a regular file below this folder for streaming.
    ///
    /// # Errors
    /// As [`Folder::read`].
    pub fn open_file(&self, below: &Path, limit: u64) -> Result<File, PathError> {
        let fd = self.open_below(below)?;
        super::file::check_open_file(&fd, &self.real.join(below), limit)?;
        Ok(File::from(fd))
    }

    /// Where a link below this folder points to, as it is written.
    ///
    /// # Errors
    /// No link, or not readable.
    pub fn link_target(&self, below: &Path) -> Result<PathBuf, PathError> {
        let parent = self.open(below.parent().unwrap_or(Path::new("")), OFlags::PATH | OFlags::CLOEXEC)?;
        let name = below.file_name().unwrap_or_default();
        let target = rustix::fs::readlinkat(&parent, name, Vec::new())
            .map_err(|errno| PathError::from_errno("read the link", self.real.join(below), errno))?;
        Ok(PathBuf::from(OsStr::from_bytes(target.to_bytes())))
    }

    fn open_below(&self, below: &Path) -> Result<OwnedFd, PathError> {
        self.open(
            below,
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC,
        )
    }

    fn open(&self, below: &Path, flags: OFlags) -> Result<OwnedFd, PathError> {
        let real = self.real.join(below);
        if is_kernel_folder_name(&real) {
            return Err(PathError::Kernel { path: real });
        }
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        rustix::fs::openat2(&self.fd, below, flags, Mode::empty(), BELOW)
            .map_err(|errno| PathError::from_errno("open", real, errno))
    }
}

/// Whether a listing leaves something out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    No,
    Yes,
}
