//! Why a path cannot be used, in words for models and people.

use std::fmt;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// What is found at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Folder,
    Link,
    Fifo,
    Socket,
    Device,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::File => "a file",
            Kind::Folder => "a folder",
            Kind::Link => "a link",
            Kind::Fifo => "a named pipe",
            Kind::Socket => "a socket",
            Kind::Device => "a device",
        })
    }
}

/// Why a path cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    #[error("the path is empty: give the path of a file or folder")]
    Empty,
    #[error("the path holds a NUL byte, which no file name can")]
    Nul,
    #[error("the path is too long: a path has at most 4095 bytes and each name in it at most 255")]
    TooLong,
    #[error("{} is not absolute: give the whole path, from / on", path.display())]
    NotAbsolute { path: PathBuf },
    #[error("{} has a name that is not UTF-8, which cannot be handled here: rename it first", path.display())]
    NotUtf8 { path: PathBuf },
    #[error("{} does not exist", path.display())]
    Missing { path: PathBuf },
    #[error("{} is not a folder", path.display())]
    NotAFolder { path: PathBuf },
    #[error("{} is {kind}, not a regular file", path.display())]
    NotRegular { path: PathBuf, kind: Kind },
    #[error("{} has {size} bytes, more than the {limit} that can be handled here", path.display())]
    TooLarge { path: PathBuf, size: u64, limit: u64 },
    #[error("{} is refused: /proc, /sys and /dev are the kernel's, not files of a project", path.display())]
    Kernel { path: PathBuf },
    #[error("{} leads through too many links, or through a link of the kernel", path.display())]
    Links { path: PathBuf },
    #[error("{} changed in the meantime and was left as it is: read it again, then repeat", path.display())]
    Changed { path: PathBuf },
    #[error("{} exists already", path.display())]
    Exists { path: PathBuf },
    #[error("unsupported: {what}")]
    Unsupported { what: &'static str },
    #[error("cannot {doing} {}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
}

impl PathError {
    /// Names the failed system call's meaning where it has one of its own; else keeps the cause.
    pub(super) fn from_errno(doing: &'static str, path: impl Into<PathBuf>, errno: Errno) -> Self {
        let path = path.into();
        match errno {
            Errno::NOENT => Self::Missing { path },
            Errno::NOTDIR => Self::NotAFolder { path },
            Errno::LOOP => Self::Links { path },
            Errno::NAMETOOLONG => Self::TooLong,
            Errno::EXIST => Self::Exists { path },
            Errno::NOSYS => {
                Self::Unsupported { what: "this kernel has no openat2 (Linux 5.6 or newer is needed)" }
            }
            _ => Self::Io { doing, path, source: errno.into() },
        }
    }

    /// The whole chain on one line: what was being done, to what, and why it failed.
    #[must_use]
    pub fn explain(&self) -> String {
        match self {
            Self::Io { source, .. } => format!("{self}: {source}"),
            _ => self.to_string(),
        }
    }
}
