//! Folders and files that only their owner can open, whatever the umask.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::PathsError;

pub(super) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PathsError {
    let path = path.to_owned();
    move |source| PathsError::Io { action, path, source }
}

/// Makes a folder and its missing parents, all 0700 whatever the umask. One that is there is left as it is.
///
/// # Errors
/// The reason why it cannot be made.
pub fn make(dir: &Path) -> Result<(), PathsError> {
    match DirBuilder::new().mode(0o700).create(dir) {
        // The umask can only have taken bits away; a strange one may have taken ours.
        Ok(()) => {
            fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(io_error("set the mode of", dir))
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match dir.parent() {
            Some(parent) => {
                make(parent)?;
                make(dir)
            }
            None => Err(io_error("make the folder", dir)(error)),
        },
        Err(error) => Err(io_error("make the folder", dir)(error)),
    }
}

/// Refuses what is no folder of ours, or what others can write. A link is judged by what it leads to.
pub(super) fn check(dir: &Path, uid: u32) -> Result<(), PathsError> {
    let meta = fs::metadata(dir).map_err(io_error("look at", dir))?;
    if !meta.is_dir() {
        return Err(PathsError::NotAFolder(dir.to_owned()));
    }
    if meta.uid() != uid {
        return Err(PathsError::ForeignOwner { path: dir.to_owned(), owner: meta.uid(), uid });
    }
    if meta.mode() & 0o022 != 0 {
        return Err(PathsError::WritableByOthers(dir.to_owned()));
    }
    Ok(())
}

/// As [`check`], and takes reading and entering away from others. What others could write is not closed in silence:
/// they may have been there already.
pub(super) fn close(dir: &Path, uid: u32) -> Result<(), PathsError> {
    check(dir, uid)?;
    let mode = fs::metadata(dir).map_err(io_error("look at", dir))?.mode();
    if mode & 0o777 != 0o700 {
        fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(io_error("set the mode of", dir))?;
    }
    Ok(())
}

/// The path with every link resolved; as it is when it does not exist.
#[must_use]
pub fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Where a program is, looked for in the folders of `path`.
#[must_use]
pub fn find_program(name: &str, path: &str) -> Option<PathBuf> {
    let executable = |file: &PathBuf| {
        fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(executable);
    }
    path.split(':').filter(|dir| dir.starts_with('/')).map(|dir| Path::new(dir).join(name)).find(executable)
}

pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Puts a file of mode 0600 in place, whole and durable, or leaves what was there.
///
/// # Errors
/// Nothing was changed, unless only the last sync failed.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut temporary_name = std::ffi::OsString::from(".");
    temporary_name.push(name);
    temporary_name.push(format!(".{}.tmp", uuid::Uuid::new_v4().simple()));
    let temporary = dir.join(temporary_name);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| {
            file.set_permissions(Permissions::from_mode(0o600))?;
            file.write_all(content)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // A failure here changes nothing: the name is used by nobody.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    sync_dir(dir)
}
