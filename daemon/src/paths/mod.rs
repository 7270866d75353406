//! Where everything of agentd lies, worked out once from an environment that tests can make up. Also the few files that
//! belong to no session: the lock, the markers, the daemon's id.

mod disk;
mod env;
mod folders;
mod identity;
pub mod lock;
pub mod markers;
mod session;

use std::io;
use std::path::{Path, PathBuf};

use crate::ids::SessionId;

pub use disk::shared_disk;
pub use env::Env;
pub use folders::{canonical, find_program, make as make_folder, replace_file};
pub use identity::daemon_id;
pub use lock::{HeldBy, LockError, StateLock};
pub use markers::Markers;

/// The longest path a Unix socket can have.
const MAX_SOCKET_PATH: usize = 107;

/// The folders of one daemon. Making one touches nothing; [`Paths::prepare`] makes and checks the folders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    config: PathBuf,
    state: PathBuf,
    socket: PathBuf,
    uid: u32,
}

/// What is wrong with a place.
#[derive(Debug, thiserror::Error)]
pub enum PathsError {
    #[error("HOME is not set to an absolute path; set it, or set XDG_CONFIG_HOME and XDG_STATE_HOME")]
    NoHome,
    #[error(
        "the socket's path {} is longer than {MAX_SOCKET_PATH} bytes; choose another with --socket",
        .0.display()
    )]
    SocketPathTooLong(PathBuf),
    #[error("{} is not an absolute path; give --socket or AGENTD_SOCKET an absolute one", .0.display())]
    SocketPathRelative(PathBuf),
    #[error("{} is not a folder; move it out of the way", .0.display())]
    NotAFolder(PathBuf),
    #[error("{} belongs to user {owner}, not to user {uid} who runs agentd", .path.display())]
    ForeignOwner { path: PathBuf, owner: u32, uid: u32 },
    #[error("others can write in {path}; close it: chmod 700 {path}", path = .0.display())]
    WritableByOthers(PathBuf),
    #[error("{} is no daemon id; remove it and a new one is made", .0.display())]
    BadDaemonId(PathBuf),
    #[error("{} is not UTF-8; choose a place whose name is", .0.display())]
    NotUtf8(PathBuf),
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// In words, with the verb first.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl Paths {
    /// Works out the places. `socket` is what `--socket` says; it wins over `AGENTD_SOCKET`, which wins over the usual
    /// place. XDG variables with relative paths are ignored, as their specification says.
    ///
    /// # Errors
    /// There is no home folder to start from, or the socket's path is relative or too long.
    pub fn resolve(env: &Env, socket: Option<&Path>) -> Result<Self, PathsError> {
        let below_home = |variable, rest: &str| match env.absolute(variable) {
            Some(dir) => Ok(dir),
            None => env.absolute("HOME").map(|home| home.join(rest)).ok_or(PathsError::NoHome),
        };
        let config = below_home("XDG_CONFIG_HOME", ".config")?.join("agentd");
        let state = below_home("XDG_STATE_HOME", ".local/state")?.join("agentd");
        let given = socket.map(Path::to_owned).or_else(|| env.get("AGENTD_SOCKET").map(PathBuf::from));
        let socket = match given {
            Some(path) if path.is_absolute() => path,
            Some(path) => return Err(PathsError::SocketPathRelative(path)),
            None => runtime_dir(env).unwrap_or_else(|| state.join("run")).join("agentd.sock"),
        };
        if socket.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(PathsError::SocketPathTooLong(socket));
        }
        let paths = Self { config, state, socket, uid: env.uid() };
        paths.check_text()?;
        Ok(paths)
    }

    /// Places are journaled and shown as text.
    fn check_text(&self) -> Result<(), PathsError> {
        match [&self.config, &self.state, &self.socket].into_iter().find(|path| path.to_str().is_none()) {
            Some(path) => Err(PathsError::NotUtf8(path.clone())),
            None => Ok(()),
        }
    }

    /// Makes the folders that are missing, 0700 whatever the umask, and refuses those that others own or can write.
    /// agentd's own state folders are closed to readers too; the settings folder is left as its owner made it.
    ///
    /// # Errors
    /// A folder is unsafe or cannot be made.
    pub fn prepare(&self) -> Result<(), PathsError> {
        folders::make(&self.config)?;
        folders::check(&self.config, self.uid)?;
        let mut own = vec![self.state.clone()];
        own.extend(
            [self.sessions_dir(), self.active_dir(), self.plans_dir(), self.scratch_dir(), self.keys_dir()]
                .map(PathBuf::from),
        );
        // A socket's folder that somebody chose with --socket may be shared on purpose, like /tmp: the peer check, not
        // the folder, keeps others out, so only folders of our own making are closed.
        if let Some(dir) = self.socket.parent() {
            if dir.file_name().is_some_and(|name| name == "agentd") || dir.starts_with(&self.state) {
                own.push(dir.to_owned());
            } else {
                folders::make(dir)?;
            }
        }
        for dir in own {
            folders::make(&dir)?;
            folders::close(&dir, self.uid)?;
        }
        Ok(())
    }

    #[must_use]
    pub fn config_dir(&self) -> &Path {
        &self.config
    }
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.config.join("config.toml")
    }
    #[must_use]
    pub fn keys_dir(&self) -> PathBuf {
        self.config.join("keys")
    }
    #[must_use]
    pub fn state_dir(&self) -> &Path {
        &self.state
    }
    #[must_use]
    pub fn state_db(&self) -> PathBuf {
        self.state.join("state.db")
    }
    #[must_use]
    pub fn sessions_dir(&self) -> PathBuf {
        self.state.join("sessions")
    }
    #[must_use]
    pub fn session_dir(&self, id: SessionId) -> PathBuf {
        self.sessions_dir().join(id.to_string())
    }
    #[must_use]
    pub fn active_dir(&self) -> PathBuf {
        self.state.join("active")
    }
    #[must_use]
    pub fn plans_dir(&self) -> PathBuf {
        self.state.join("plans")
    }
    #[must_use]
    pub fn lock_file(&self) -> PathBuf {
        self.state.join("lock")
    }
    #[must_use]
    pub fn index_file(&self) -> PathBuf {
        self.state.join("index.db")
    }
    #[must_use]
    pub fn daemon_log(&self) -> PathBuf {
        self.state.join("daemon.jsonl")
    }
    fn scratch_dir(&self) -> PathBuf {
        self.state.join("scratch")
    }
    /// The folder for a session's temporary files; not made here. It lies outside the session's own folder, so that what
    /// a process may write is never below or beside a journal.
    #[must_use]
    pub fn scratch(&self, id: SessionId) -> PathBuf {
        self.scratch_dir().join(id.to_string())
    }
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }
    /// The folders that no call of a model may touch, apart from its own plan file.
    #[must_use]
    pub fn own_dirs(&self) -> Vec<PathBuf> {
        let mut dirs = vec![self.config.clone(), self.state.clone()];
        if let Some(dir) = self.socket.parent()
            && dir.file_name().is_some_and(|name| name == "agentd")
        {
            dirs.push(dir.to_owned());
        }
        dirs
    }
}

/// `agentd` below the folder for sockets, if there is a usable one: ours, and closed to others.
fn runtime_dir(env: &Env) -> Option<PathBuf> {
    let ours = |dir: &PathBuf| dir.is_dir() && folders::check(dir, env.uid()).is_ok();
    let by_system = env.run_user().join(env.uid().to_string());
    env.absolute("XDG_RUNTIME_DIR")
        .filter(ours)
        .or_else(|| Some(by_system).filter(ours))
        .map(|dir| dir.join("agentd"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn env_in(root: &Path) -> Env {
        Env::from_vars([("HOME", root)]).with_run_user(root.join("run-user"))
    }

    #[test]
    fn places_follow_xdg_and_fall_back_to_home() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::resolve(&env_in(root.path()), None).unwrap();
        assert_eq!(paths.config_dir(), root.path().join(".config/agentd"));
        assert_eq!(paths.state_dir(), root.path().join(".local/state/agentd"));
        assert_eq!(paths.socket(), root.path().join(".local/state/agentd/run/agentd.sock"));

        let env = Env::from_vars([("XDG_CONFIG_HOME", "/c"), ("XDG_STATE_HOME", "/s")])
            .with_run_user("/nowhere".into());
        let paths = Paths::resolve(&env, None).unwrap();
        assert_eq!(paths.config_file(), Path::new("/c/agentd/config.toml"));
        assert_eq!(paths.plans_dir(), Path::new("/s/agentd/plans"));

        let env = Env::from_vars([
            ("HOME", "/h"),
            ("XDG_CONFIG_HOME", "relative"),
            ("XDG_STATE_HOME", ""),
            ("XDG_RUNTIME_DIR", "."),
        ])
        .with_run_user("/nowhere".into());
        let paths = Paths::resolve(&env, None).unwrap();
        assert_eq!(paths.config_dir(), Path::new("/h/.config/agentd"));
        assert_eq!(paths.socket(), Path::new("/h/.local/state/agentd/run/agentd.sock"));

        assert!(matches!(Paths::resolve(&Env::default(), None), Err(PathsError::NoHome)));
        let env = Env::from_vars([("HOME", "not/absolute")]);
        assert!(matches!(Paths::resolve(&env, None), Err(PathsError::NoHome)));
    }

    #[test]
    fn the_socket_lies_in_the_first_usable_runtime_folder() {
        let root = tempfile::tempdir().unwrap();
        let xdg = root.path().join("xdg");
        let by_system = root.path().join("run-user").join(env_in(root.path()).uid().to_string());
        let env = Env::from_vars([("HOME", root.path()), ("XDG_RUNTIME_DIR", &xdg)])
            .with_run_user(root.path().join("run-user"));
        let socket = || Paths::resolve(&env, None).unwrap().socket().to_owned();
        let fallback = root.path().join(".local/state/agentd/run/agentd.sock");

        assert_eq!(socket(), fallback, "neither exists");
        std::fs::create_dir_all(&by_system).unwrap();
        set_mode(&by_system, 0o700);
        assert_eq!(socket(), by_system.join("agentd/agentd.sock"));
        std::fs::create_dir(&xdg).unwrap();
        set_mode(&xdg, 0o1777);
        assert_eq!(socket(), by_system.join("agentd/agentd.sock"), "a folder like /tmp is not usable");
        set_mode(&xdg, 0o700);
        assert_eq!(socket(), xdg.join("agentd/agentd.sock"));

        let stranger = env.clone().with_uid(env.uid() + 1);
        assert_eq!(Paths::resolve(&stranger, None).unwrap().socket(), fallback, "the folders are not ours");
    }

    #[test]
    fn a_named_socket_wins_and_must_fit() {
        let env = Env::from_vars([("HOME", "/h"), ("AGENTD_SOCKET", "/e/sock")]);
        assert_eq!(Paths::resolve(&env, None).unwrap().socket(), Path::new("/e/sock"));
        assert_eq!(Paths::resolve(&env, Some(Path::new("/f/sock"))).unwrap().socket(), Path::new("/f/sock"));
        let relative = Paths::resolve(&env, Some(Path::new("sock")));
        assert!(matches!(relative, Err(PathsError::SocketPathRelative(_))));
        let of_len = |n: usize| PathBuf::from(format!("/{}", "x".repeat(n - 1)));
        assert!(Paths::resolve(&env, Some(&of_len(107))).is_ok());
        assert!(matches!(Paths::resolve(&env, Some(&of_len(108))), Err(PathsError::SocketPathTooLong(_))));
    }

    #[test]
    fn folders_are_made_closed_and_open_ones_of_ours_are_closed() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::resolve(&env_in(root.path()), None).unwrap();
        paths.prepare().unwrap();
        let all = [
            paths.config_dir().to_owned(),
            paths.keys_dir(),
            paths.state_dir().to_owned(),
            paths.sessions_dir(),
            paths.active_dir(),
            paths.plans_dir(),
            paths.state_dir().join("run"),
            root.path().join(".local"),
        ];
        for dir in &all {
            assert_eq!(mode(dir), 0o700, "{}", dir.display());
        }
        set_mode(paths.state_dir(), 0o755);
        set_mode(paths.config_dir(), 0o755);
        paths.prepare().unwrap();
        assert_eq!(mode(paths.state_dir()), 0o700);
        assert_eq!(mode(paths.config_dir()), 0o755, "the user's own folder stays as it is");
    }

    #[test]
    fn folders_that_others_can_write_or_own_are_refused_with_the_cure() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::resolve(&env_in(root.path()), None).unwrap();
        paths.prepare().unwrap();
        for dir in [paths.config_dir().to_owned(), paths.state_dir().to_owned(), paths.keys_dir()] {
            for bad in [0o770, 0o707, 0o722] {
                set_mode(&dir, bad);
                let error = paths.prepare().unwrap_err().to_string();
                assert!(error.ends_with(&format!("chmod 700 {}", dir.display())), "{error}");
            }
            set_mode(&dir, 0o700);
        }
        let env = env_in(root.path());
        let stranger = Paths::resolve(&env.clone().with_uid(env.uid() + 1), None).unwrap();
        assert!(matches!(stranger.prepare(), Err(PathsError::ForeignOwner { .. })));
    }

    #[test]
    fn a_file_or_a_dangling_link_in_the_way_is_named() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::resolve(&env_in(root.path()), None).unwrap();
        std::fs::create_dir_all(root.path().join(".config")).unwrap();
        std::fs::write(paths.config_dir(), "").unwrap();
        assert!(matches!(paths.prepare(), Err(PathsError::NotAFolder(_))));
        std::fs::remove_file(paths.config_dir()).unwrap();
        symlink(root.path().join("nowhere"), paths.config_dir()).unwrap();
        assert!(paths.prepare().is_err());
        std::fs::remove_file(paths.config_dir()).unwrap();
        std::fs::create_dir(root.path().join("dotfiles")).unwrap();
        set_mode(&root.path().join("dotfiles"), 0o755);
        symlink(root.path().join("dotfiles"), paths.config_dir()).unwrap();
        paths.prepare().unwrap();
    }

    #[test]
    fn a_chosen_folder_for_the_socket_is_left_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        let shared = root.path().join("shared");
        std::fs::create_dir(&shared).unwrap();
        set_mode(&shared, 0o1777);
        let paths = Paths::resolve(&env_in(root.path()), Some(&shared.join("x.sock"))).unwrap();
        paths.prepare().unwrap();
        assert_eq!(mode(&shared), 0o1777);
        assert!(!paths.own_dirs().contains(&shared));
    }

    #[test]
    fn scratch_lies_outside_the_session() {
        let paths = Paths::resolve(&Env::from_vars([("HOME", "/h")]), Some(Path::new("/s"))).unwrap();
        let id = SessionId::generate();
        assert!(!paths.scratch(id).starts_with(paths.session_dir(id)));
        assert!(paths.session_dir(id).ends_with(id.to_string()));
    }
}
