//! From a path as somebody typed it to a thing whose true name is known and whose folder is held open.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::error::{Kind, PathError};
use super::facts::{Facts, is_kernel_file_system, is_kernel_folder_name};

/// As many links as the kernel itself follows.
const MAX_LINKS: usize = 40;
/// PATH_MAX, which counts the closing NUL.
const MAX_PATH: usize = 4096;
const MAX_NAME: usize = 255;

pub(super) const FOLDER_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Where typed paths start.
#[derive(Clone, Copy, Debug)]
pub struct Base<'a> {
    /// Relative paths start here.
    pub cwd: &'a Path,
    /// What `~/` stands for. Absent: nothing.
    pub home: Option<&'a Path>,
}

/// A file, a folder, or the place for a new one: resolved, with its folder held open.
///
/// The real name is the folder's true name plus one last component that was not a link. What the gate judges is that
/// name; what reads and writes touch is that component in that folder.
#[derive(Debug)]
pub struct Located {
    /// As it was asked for.
    pub typed: String,
    pub real: PathBuf,
    pub(super) place: Place,
    pub(super) name: OsString,
    /// What was there when it was resolved.
    found: Option<Kind>,
}

#[derive(Debug)]
pub(super) enum Place {
    Folder(OwnedFd),
    /// The deepest folder that exists, and the names to make below it before the thing itself.
    Missing {
        above: OwnedFd,
        names: Vec<OsString>,
    },
}

impl Located {
    /// Another name in the same folder. Absent: the folder is not there, or the system gives no more handles.
    pub(super) fn beside(&self, name: OsString) -> Option<Self> {
        let Place::Folder(folder) = &self.place else { return None };
        let place = Place::Folder(folder.try_clone().ok()?);
        Some(Self { typed: self.typed.clone(), real: self.real.clone(), place, name, found: None })
    }

    /// What was found when the path was resolved. Absent: nothing, so far.
    #[must_use]
    pub fn found(&self) -> Option<Kind> {
        self.found
    }

    /// # Errors
    /// `Missing` when there was nothing.
    pub fn must_exist(&self) -> Result<Kind, PathError> {
        self.found.ok_or_else(|| PathError::Missing { path: self.real.clone() })
    }
}

/// Resolves `typed`, following links, the last component's too: writing through a link changes what it points to and
/// keeps the link. Missing folders are allowed; they are made when something is written.
///
/// # Errors
/// A path that cannot be resolved, or that leads to the kernel's own file systems.
pub fn locate(base: Base<'_>, typed: &str) -> Result<Located, PathError> {
    let located = locate_bytes(base, typed)?;
    // Paths travel and are journaled as text. A link, or the folder one starts in, may lead to a name that is none.
    match located.real.to_str() {
        Some(_) => Ok(located),
        None => Err(PathError::NotUtf8 { path: located.real }),
    }
}

fn locate_bytes(base: Base<'_>, typed: &str) -> Result<Located, PathError> {
    if typed.is_empty() {
        return Err(PathError::Empty);
    }
    let expanded = match (typed.strip_prefix('~'), base.home) {
        (Some(""), Some(home)) => home.to_owned(),
        (Some(rest), Some(home)) if rest.starts_with('/') => {
            // Joining an absolute path would drop the home.
            home.join(rest.trim_start_matches('/'))
        }
        _ => base.cwd.join(typed),
    };
    resolve(expanded, typed, LastLink::Follow)
}

/// Resolves an absolute path without following a link at its end: the thing that has this name, whatever it is.
///
/// # Errors
/// As [`locate`].
pub fn locate_entry(path: &Path) -> Result<Located, PathError> {
    resolve(path.to_owned(), &path.to_string_lossy(), LastLink::Keep)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LastLink {
    Follow,
    Keep,
}

fn resolve(mut path: PathBuf, typed: &str, last_link: LastLink) -> Result<Located, PathError> {
    let mut must_be_folder = false;
    for _ in 0..=MAX_LINKS {
        check_text(&path)?;
        let bytes = path.as_os_str().as_bytes();
        must_be_folder |= bytes.ends_with(b"/") || bytes.ends_with(b"/.");
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            // The root, or a path that ends with `..`: a folder that has to be asked for its name.
            let fd = open_folder(&path)?;
            let real = true_name(fd.as_fd(), &path)?;
            if real == Path::new("/") {
                check_place(&real, fd.as_fd())?;
                let name = OsString::from(".");
                return Ok(Located {
                    typed: typed.to_owned(),
                    real,
                    place: Place::Folder(fd),
                    name,
                    found: Some(Kind::Folder),
                });
            }
            must_be_folder = true;
            path = real;
            continue;
        };
        let name = name.to_owned();
        let (place, true_folder) = open_place(folder)?;
        let real = true_folder.join(&name);
        let Place::Folder(fd) = &place else {
            check_place(&real, place.above())?;
            if must_be_folder {
                return Err(PathError::Missing { path: real });
            }
            return Ok(Located { typed: typed.to_owned(), real, place, name, found: None });
        };
        check_place(&real, fd.as_fd())?;
        let found = match rustix::fs::statat(fd, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(Facts::of(&stat).kind),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(PathError::from_errno("look at", real, errno)),
        };
        match found {
            Some(Kind::Link) if last_link == LastLink::Follow => {
                let target = rustix::fs::readlinkat(fd, &name, Vec::new())
                    .map_err(|errno| PathError::from_errno("read the link", &real, errno))?;
                path = true_folder.join(OsStr::from_bytes(target.to_bytes()));
            }
            None if must_be_folder => return Err(PathError::Missing { path: real }),
            Some(kind) if must_be_folder && kind != Kind::Folder => {
                return Err(PathError::NotAFolder { path: real });
            }
            found => return Ok(Located { typed: typed.to_owned(), real, place, name, found }),
        }
    }
    Err(PathError::Links { path })
}

impl Place {
    fn above(&self) -> BorrowedFd<'_> {
        match self {
            Place::Folder(fd) | Place::Missing { above: fd, .. } => fd.as_fd(),
        }
    }
}

fn check_text(path: &Path) -> Result<(), PathError> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.contains(&0) {
        return Err(PathError::Nul);
    }
    if bytes.len() >= MAX_PATH || bytes.split(|&b| b == b'/').any(|name| name.len() > MAX_NAME) {
        return Err(PathError::TooLong);
    }
    Ok(())
}

/// Opens the folder of a path, or the deepest one above it that exists. Returns the true name that the folder has or
/// will have.
fn open_place(folder: &Path) -> Result<(Place, PathBuf), PathError> {
    match open_folder(folder) {
        Ok(fd) => {
            let real = true_name(fd.as_fd(), folder)?;
            return Ok((Place::Folder(fd), real));
        }
        Err(PathError::Missing { .. }) => {}
        Err(error) => return Err(error),
    }
    let mut names = Vec::new();
    let mut at = folder;
    loop {
        // A `..` below something that does not exist means nothing.
        let (Some(above), Some(name)) = (at.parent(), at.file_name()) else {
            return Err(PathError::Missing { path: folder.to_owned() });
        };
        names.push(name.to_owned());
        at = above;
        let fd = match open_folder(at) {
            Ok(fd) => fd,
            Err(PathError::Missing { .. }) => continue,
            Err(error) => return Err(error),
        };
        names.reverse();
        // Something that has the name but could not be entered is a link to nothing: nothing is made through it.
        if !matches!(rustix::fs::statat(&fd, &names[0], AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT)) {
            return Err(PathError::Missing { path: folder.to_owned() });
        }
        let mut real = true_name(fd.as_fd(), at)?;
        real.extend(&names);
        return Ok((Place::Missing { above: fd, names }, real));
    }
}

fn open_folder(path: &Path) -> Result<OwnedFd, PathError> {
    rustix::fs::openat2(CWD, path, FOLDER_FLAGS, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
        .map_err(|errno| PathError::from_errno("open the folder", path, errno))
}

/// The name that the kernel gives an open folder: absolute, without links, without `..`.
pub(super) fn true_name(folder: BorrowedFd<'_>, asked: &Path) -> Result<PathBuf, PathError> {
    let link = format!("/proc/self/fd/{}", folder.as_raw_fd());
    let name = rustix::fs::readlinkat(CWD, link, Vec::new()).map_err(|errno| match errno {
        Errno::NOENT => PathError::Unsupported { what: "/proc is not mounted, so no path can be checked" },
        errno => PathError::from_errno("find the true name of", asked, errno),
    })?;
    let gone = || PathError::Missing { path: asked.to_owned() };
    // A folder that was removed is still open, and its "name" then ends in words of the kernel's.
    let stat = rustix::fs::fstat(folder).map_err(|errno| PathError::from_errno("look at", asked, errno))?;
    if Facts::of(&stat).links == 0 {
        return Err(gone());
    }
    let name = PathBuf::from(OsString::from_vec(name.into_bytes()));
    if name.is_absolute() { Ok(name) } else { Err(gone()) }
}

/// Refuses the kernel's own folders by true name, and its file systems wherever they are mounted.
fn check_place(real: &Path, folder: BorrowedFd<'_>) -> Result<(), PathError> {
    if is_kernel_folder_name(real) || is_kernel_file_system(folder) {
        return Err(PathError::Kernel { path: real.to_owned() });
    }
    Ok(())
}
