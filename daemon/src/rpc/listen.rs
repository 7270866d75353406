//! The listening socket: made in a folder that is only ours, or handed over by systemd.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{PidfdFlags, PidfdGetfdFlags};
use tokio::net::{UnixListener, UnixStream};

/// The kernel's limit of a socket's path, without the final zero.
const MAX_PATH: usize = 107;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// What the socket is called in `agentd.socket` (`FileDescriptorName=`).
const ACTIVATION_NAME: &str = "rpc";

/// A socket that listens. Dropping it removes the file that [`bind`] made, and no other.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    path: Option<PathBuf>,
    /// The file that is ours to remove: device and inode.
    made: Option<(u64, u64)>,
}

impl Listener {
    /// Where it listens, for people and `daemon/status`.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let (Some(path), Some(made)) = (&self.path, self.made)
            && status(path).is_ok_and(|now| identity(&now) == made)
        {
            // A file that stays behind is a dead socket, which the next daemon replaces.
            let _ = rustix::fs::unlink(path);
        }
    }
}

/// Why there is no listening socket.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("the socket path {} has {} bytes and a Unix socket's may have {MAX_PATH}; choose a shorter one with --socket",
        .path.display(), .path.as_os_str().len())]
    PathTooLong { path: PathBuf },
    #[error("the socket path {} names no file in a folder; give an absolute path with --socket", .path.display())]
    NoName { path: PathBuf },
    #[error("{} must be a folder of yours that nobody else can enter, but it {problem}", .folder.display())]
    UnsafeFolder { folder: PathBuf, problem: &'static str },
    /// Exit code 75: somebody serves there already.
    #[error("somebody already listens at {}; talk to it with agentctl, or choose another place with --socket", .path.display())]
    SomebodyListens { path: PathBuf },
    #[error("{} exists and is not a socket; it was left alone: move it away, or choose another place with --socket", .path.display())]
    NotASocket { path: PathBuf },
    #[error("cannot {doing} {}", .path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "systemd handed over {found} sockets and none of them, or more than one, is called \"rpc\"; see FileDescriptorName= in agentd.socket"
    )]
    WhichSocket { found: usize },
    #[error(
        "what systemd handed over as \"rpc\" is not a listening Unix stream socket; see ListenStream= in agentd.socket"
    )]
    NotListening,
    #[error("cannot take the socket that systemd handed over")]
    Activation(#[source] io::Error),
}

/// Makes a socket at `path` and listens. The folder is made if missing. Call it holding the state folder's lock: then who
/// answers at the path is no other daemon of this state folder.
///
/// # Errors
/// See [`ListenError`]. Nothing that is alive, or not a socket, is ever removed.
pub fn bind(path: &Path) -> Result<Listener, ListenError> {
    if path.as_os_str().len() > MAX_PATH {
        return Err(ListenError::PathTooLong { path: path.to_owned() });
    }
    let (Some(folder), Some(_), true) = (path.parent(), path.file_name(), path.is_absolute()) else {
        return Err(ListenError::NoName { path: path.to_owned() });
    };
    make_folder(folder)?;
    // Held to the end of this function: of two daemons that find a dead socket, one must not remove the other's new one.
    let folder = check_folder(folder)?;
    rustix::fs::flock(&folder, FlockOperation::LockExclusive).map_err(|errno| ListenError::Io {
        doing: "lock the folder of",
        path: path.to_owned(),
        source: errno.into(),
    })?;
    let io =
        |doing| move |errno: Errno| ListenError::Io { doing, path: path.to_owned(), source: errno.into() };
    let address = SocketAddrUnix::new(path).map_err(io("make an address of"))?;
    clear(path, &address)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(io("make a socket for"))?;
    // The file gets the mode of the socket it is made of, so it is 0600 from the start, whatever the umask.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(io("protect the socket"))?;
    match rustix::net::bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => return Err(ListenError::SomebodyListens { path: path.to_owned() }),
        bound => bound.map_err(io("bind"))?,
    }
    rustix::net::listen(&socket, BACKLOG).map_err(io("listen at"))?;
    let made = status(path).map_err(io("look at"))?;
    let listener = listener(socket).map_err(|source| ListenError::Io {
        doing: "listen at",
        path: path.to_owned(),
        source,
    })?;
    Ok(Listener { listener, path: Some(path.to_owned()), made: Some(identity(&made)) })
}

fn make_folder(folder: &Path) -> Result<(), ListenError> {
    match rustix::fs::mkdir(folder, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(Errno::NOENT) if folder.parent().is_some() => {
            make_folder(folder.parent().unwrap_or(folder))?;
            match rustix::fs::mkdir(folder, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(errno) => Err(cannot_make(folder, errno)),
            }
        }
        Err(errno) => Err(cannot_make(folder, errno)),
    }
}

fn cannot_make(folder: &Path, errno: Errno) -> ListenError {
    ListenError::Io { doing: "make the folder", path: folder.to_owned(), source: errno.into() }
}

/// Nobody else may put a socket in front of ours, or reach it. As the folder is ours, it cannot be swapped either.
fn check_folder(folder: &Path) -> Result<OwnedFd, ListenError> {
    let is_unsafe = |problem| ListenError::UnsafeFolder { folder: folder.to_owned(), problem };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match rustix::fs::open(folder, flags, Mode::empty()) {
        Err(Errno::LOOP | Errno::NOTDIR) => return Err(is_unsafe("is a link or a file")),
        Err(Errno::ACCESS) => return Err(is_unsafe("cannot be read by you")),
        opened => opened.and_then(|opened| Ok((rustix::fs::fstat(&opened)?, opened))),
    };
    let (status, opened) = opened.map_err(|errno| ListenError::Io {
        doing: "look at",
        path: folder.to_owned(),
        source: errno.into(),
    })?;
    if status.st_uid != rustix::process::geteuid().as_raw() {
        return Err(is_unsafe("belongs to another user"));
    }
    if status.st_mode & 0o077 != 0 {
        return Err(is_unsafe("is open to others; close it with chmod 700"));
    }
    Ok(opened)
}

/// Makes room at `path`: removes a socket that nobody listens at.
fn clear(path: &Path, address: &SocketAddrUnix) -> Result<(), ListenError> {
    let io =
        |doing| move |errno: Errno| ListenError::Io { doing, path: path.to_owned(), source: errno.into() };
    let found = match status(path) {
        Err(Errno::NOENT) => return Ok(()),
        found => found.map_err(io("look at"))?,
    };
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        return Err(ListenError::NotASocket { path: path.to_owned() });
    }
    // Not blocking: a stopped process with a full backlog answers nothing, and is not dead either.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(io("make a socket for"))?;
    match rustix::net::connect(&probe, address) {
        Err(Errno::CONNREFUSED) => rustix::fs::unlink(path).map_err(io("remove the dead socket")),
        Err(Errno::NOENT) => Ok(()),
        Ok(()) | Err(Errno::AGAIN) => Err(ListenError::SomebodyListens { path: path.to_owned() }),
        // A socket of another type, or one we may not even connect to: not ours to judge.
        Err(_) => Err(ListenError::SomebodyListens { path: path.to_owned() }),
    }
}

fn status(path: &Path) -> Result<Stat, Errno> {
    rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
}

fn identity(status: &Stat) -> (u64, u64) {
    (status.st_dev, status.st_ino)
}

fn listener(socket: OwnedFd) -> io::Result<UnixListener> {
    let listener = StdListener::from(socket);
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// The socket that systemd handed over, if it did: the one named `rpc`, or the only one.
///
/// # Errors
/// It is unclear which one, or it is no listening Unix stream socket.
pub fn activated() -> Result<Option<Listener>, ListenError> {
    let handed: Vec<(i32, String)> =
        sd_notify::listen_fds_with_names().map_err(ListenError::Activation)?.collect();
    if handed.is_empty() {
        return Ok(None);
    }
    let names: Vec<&str> = handed.iter().map(|(_, name)| name.as_str()).collect();
    let number = handed[choose(&names)?].0;
    from_handed(own_handle(number).map_err(ListenError::Activation)?).map(Some)
}

/// Turns the number of an open file of this process into a handle, by asking the kernel for a copy. The copy is
/// close-on-exec, like the original since sd_notify looked at it.
fn own_handle(number: i32) -> io::Result<OwnedFd> {
    let own = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    Ok(rustix::process::pidfd_getfd(own, number, PidfdGetfdFlags::empty())?)
}

/// Which of several sockets is meant.
fn choose(names: &[&str]) -> Result<usize, ListenError> {
    let mut called = names.iter().enumerate().filter(|(_, name)| **name == ACTIVATION_NAME);
    match (called.next(), called.next(), names.len()) {
        (Some((at, _)), None, _) => Ok(at),
        (None, _, 1) => Ok(0),
        (_, _, found) => Err(ListenError::WhichSocket { found }),
    }
}

fn from_handed(socket: OwnedFd) -> Result<Listener, ListenError> {
    let fd = socket.as_fd();
    let fits = rustix::net::sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX)
        && rustix::net::sockopt::socket_type(fd) == Ok(SocketType::STREAM)
        && rustix::net::sockopt::socket_acceptconn(fd) == Ok(true);
    if !fits {
        return Err(ListenError::NotListening);
    }
    let listener = listener(socket).map_err(ListenError::Activation)?;
    let path = listener.local_addr().ok().and_then(|address| address.as_pathname().map(Path::to_owned));
    Ok(Listener { listener, path, made: None })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    fn folder() -> tempfile::TempDir {
        // Short, as a socket's path must be.
        let closed = fs::Permissions::from_mode(0o700);
        tempfile::Builder::new().prefix("a").permissions(closed).tempdir_in("/tmp").unwrap()
    }

    #[tokio::test]
    async fn rp_14_the_socket_is_ours_alone() {
        let folder = folder();
        let path = folder.path().join("run/agentd/agentd.sock");
        let listener = bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        drop(listener);
        assert!(!path.exists(), "the file goes with its listener");
    }

    #[tokio::test]
    async fn rp_14_a_path_that_is_too_long_is_named() {
        let path = PathBuf::from(format!("/tmp/{}", "x".repeat(103)));
        assert!(matches!(bind(&path), Err(ListenError::PathTooLong { .. })));
        let text = bind(&path).unwrap_err().to_string();
        assert!(text.contains("108 bytes") && text.contains("--socket"), "{text}");
    }

    #[tokio::test]
    async fn rp_14_folders_of_others_and_links_are_refused() {
        let folder = folder();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let open = bind(&folder.path().join("a.sock"));
        assert!(matches!(open, Err(ListenError::UnsafeFolder { .. })), "{open:?}");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::create_dir(folder.path().join("real")).unwrap();
        symlink(folder.path().join("real"), folder.path().join("link")).unwrap();
        let link = bind(&folder.path().join("link/a.sock"));
        assert!(matches!(link, Err(ListenError::UnsafeFolder { .. })), "{link:?}");
    }

    #[tokio::test]
    async fn rp_13_a_live_listener_is_never_replaced() {
        let folder = folder();
        let path = folder.path().join("a.sock");
        let first = bind(&path).unwrap();
        assert!(matches!(bind(&path), Err(ListenError::SomebodyListens { .. })));
        assert!(path.exists());
        drop(first);
    }

    #[tokio::test]
    async fn a_dead_socket_is_replaced_and_other_files_are_left_alone() {
        let folder = folder();
        let path = folder.path().join("a.sock");
        drop(StdListener::bind(&path).unwrap());
        let listener = bind(&path).unwrap();
        // Somebody replaced the file: it is not ours to remove any more.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        drop(listener);
        assert!(matches!(bind(&path), Err(ListenError::NotASocket { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn the_socket_is_found_by_name_or_by_being_alone() {
        assert_eq!(choose(&["rpc"]).unwrap(), 0);
        assert_eq!(choose(&["unknown"]).unwrap(), 0);
        assert_eq!(choose(&["http", "rpc"]).unwrap(), 1);
        for names in [&["http", "other"][..], &["rpc", "rpc"]] {
            assert!(matches!(choose(names), Err(ListenError::WhichSocket { found: 2 })));
        }
    }

    #[tokio::test]
    async fn a_number_becomes_a_handle_that_children_do_not_get() {
        use std::os::fd::AsRawFd as _;
        let folder = folder();
        let original = StdListener::bind(folder.path().join("a.sock")).unwrap();
        let copy = own_handle(original.as_raw_fd()).unwrap();
        let flags = rustix::io::fcntl_getfd(&copy).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        drop(original);
        assert!(from_handed(copy).is_ok(), "it is the same listening socket");
        assert!(own_handle(1_000_000).is_err());
    }

    #[tokio::test]
    async fn only_a_listening_unix_stream_socket_is_taken() {
        let folder = folder();
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(matches!(from_handed(one.into()), Err(ListenError::NotListening)));
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(matches!(from_handed(tcp.into()), Err(ListenError::NotListening)));
        let path = folder.path().join("a.sock");
        let listener = from_handed(StdListener::bind(&path).unwrap().into()).unwrap();
        assert_eq!(listener.path(), Some(&*path));
        drop(listener);
        assert!(path.exists(), "systemd's socket stays");
    }
}
