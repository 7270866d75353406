//! One daemon for one state folder: a kernel lock, held for life, so it is free again however the holder ended. Its
//! content tells the next one who holds it; only the lock counts. The folder itself is locked too, so that removing the
//! lock's file lets nobody in.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::folders::io_error;
use super::{Paths, PathsError};

/// Held until dropped.
#[derive(Debug)]
pub struct StateLock {
    file: File,
    _folder: File,
}

/// Who holds the lock, as far as is known: it may be just starting, or not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The machine, for state folders on network disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("another agentd owns {}", .state.display())]
    Held { state: PathBuf, by: HeldBy },
    #[error(transparent)]
    Paths(#[from] PathsError),
}

impl StateLock {
    /// Takes the lock of a state folder and writes down who has it.
    ///
    /// # Errors
    /// `Held`, or the lock file cannot be opened, locked or written.
    pub fn acquire(paths: &Paths, version: &str) -> Result<Self, LockError> {
        let folder = File::open(paths.state_dir()).map_err(io_error("open", paths.state_dir()))?;
        let path = paths.lock_file();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path)
            .map_err(io_error("open", &path))?;
        // The folder first: whoever has it has, or is about to have, the file.
        match take(&folder, paths.state_dir(), &file, paths) {
            // Some network disks lock no folders; the file's lock is what counts.
            Ok(()) | Err(LockError::Paths(_)) => {}
            Err(held) => return Err(held),
        }
        let lock = file.try_clone().map_err(io_error("open", &path))?;
        take(&lock, &path, &file, paths)?;
        let holder = HeldBy {
            pid: Some(std::process::id()),
            socket: Some(paths.socket().to_owned()),
            version: Some(version.to_owned()),
            host: rustix::system::uname().nodename().to_str().ok().map(str::to_owned),
        };
        write_holder(&file, &holder, &path)?;
        Ok(Self { file, _folder: folder })
    }
}

/// How long a lock is waited for whose holder is dead, and how often it is tried meanwhile.
const DEAD: (Duration, Duration) = (Duration::from_secs(2), Duration::from_millis(5));

/// Locks `lock`, or says who has it by what stands in `file`.
///
/// A daemon that is killed while it starts a command leaves a child that has all its files until the child is another
/// program, and with them the lock. Nothing tells when that is, and it takes no time to speak of.
fn take(lock: &File, path: &Path, file: &File, paths: &Paths) -> Result<(), LockError> {
    let until = Instant::now() + DEAD.0;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => {
                let by = read_holder(file);
                if Instant::now() >= until || !is_dead(&by) {
                    return Err(LockError::Held { state: paths.state_dir().to_owned(), by });
                }
                std::thread::sleep(DEAD.1);
            }
            Err(TryLockError::Error(error)) => return Err(io_error("lock", path)(error).into()),
        }
    }
}

/// Whether the holder was a process of this machine that is no more.
fn is_dead(by: &HeldBy) -> bool {
    let here = by.host.as_deref().is_some_and(|host| rustix::system::uname().nodename().to_str() == Ok(host));
    let pid = by.pid.and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()));
    here && pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

impl Drop for StateLock {
    fn drop(&mut self) {
        // So that nobody is told of a holder that left. The lock itself goes with the file.
        let _ = self.file.set_len(0);
    }
}

fn write_holder(file: &File, holder: &HeldBy, path: &Path) -> Result<(), PathsError> {
    let write = || -> io::Result<()> {
        file.set_permissions(Permissions::from_mode(0o600))?;
        let mut line = serde_json::to_vec(holder)?;
        line.push(b'\n');
        file.set_len(0)?;
        file.write_all_at(&line, 0)
    };
    write().map_err(io_error("write", path))
}

/// Whatever can be made out: a broken text is no reason to doubt that the lock is held.
fn read_holder(file: &File) -> HeldBy {
    let mut text = vec![0; 64 << 10];
    // From its beginning, however often it is asked.
    let read = file.read_at(&mut text, 0).unwrap_or_default();
    serde_json::from_slice(&text[..read]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::Env;
    use super::*;

    fn paths(root: &Path) -> Paths {
        let paths = Paths::resolve(&Env::from_vars([("HOME", root)]), Some(&root.join("sock"))).unwrap();
        paths.prepare().unwrap();
        paths
    }

    #[test]
    fn the_second_is_told_who_is_first() {
        let root = tempfile::tempdir().unwrap();
        let paths = paths(root.path());
        let lock = StateLock::acquire(&paths, "1.2.3").unwrap();
        let LockError::Held { by, .. } = StateLock::acquire(&paths, "9").unwrap_err() else {
            panic!("not refused as held")
        };
        assert_eq!(by.pid, Some(std::process::id()));
        assert_eq!(by.socket.as_deref(), Some(paths.socket()));
        assert_eq!(by.version.as_deref(), Some("1.2.3"));
        assert!(by.host.is_some());
        drop(lock);
        StateLock::acquire(&paths, "9").unwrap();
    }

    #[test]
    fn only_a_holder_of_this_machine_that_is_gone_is_dead() {
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let gone = child.id();
        child.wait().unwrap();
        let host = rustix::system::uname().nodename().to_str().ok().map(str::to_owned);
        let by = |pid, host: &Option<String>| HeldBy { pid, host: host.clone(), ..HeldBy::default() };
        assert!(is_dead(&by(Some(gone), &host)));
        for alive in [
            by(Some(std::process::id()), &host),
            by(Some(gone), &Some("elsewhere".into())),
            by(Some(gone), &None),
            by(None, &host),
            by(Some(0), &host),
        ] {
            assert!(!is_dead(&alive), "{alive:?}");
        }
    }

    #[test]
    fn removing_the_file_lets_nobody_in() {
        let root = tempfile::tempdir().unwrap();
        let paths = paths(root.path());
        let lock = StateLock::acquire(&paths, "1").unwrap();
        std::fs::remove_file(paths.lock_file()).unwrap();
        assert!(matches!(StateLock::acquire(&paths, "2"), Err(LockError::Held { .. })));
        drop(lock);
        StateLock::acquire(&paths, "2").unwrap();
    }

    #[test]
    fn what_a_dead_holder_wrote_does_not_hold() {
        let root = tempfile::tempdir().unwrap();
        let paths = paths(root.path());
        std::fs::write(paths.lock_file(), "{\"pid\":1,\"socket\":\"/x\",\"and\":\"much longer than ours\"}")
            .unwrap();
        let lock = StateLock::acquire(&paths, "1").unwrap();
        let text = std::fs::read_to_string(paths.lock_file()).unwrap();
        assert_eq!(serde_json::from_str::<HeldBy>(&text).unwrap().version.as_deref(), Some("1"));
        std::fs::write(paths.lock_file(), "gar").unwrap();
        let LockError::Held { by, .. } = StateLock::acquire(&paths, "2").unwrap_err() else {
            panic!("not refused as held")
        };
        assert_eq!(by, HeldBy::default());
        drop(lock);
    }

    #[test]
    fn two_state_folders_have_two_locks() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let _one = StateLock::acquire(&paths(one.path()), "1").unwrap();
        let _two = StateLock::acquire(&paths(two.path()), "1").unwrap();
    }
}
