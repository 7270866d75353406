//! A temporary home with its XDG folders, and a small project in it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A home below `/tmp`, removed when dropped. The path is short: a socket's has 107 bytes.
pub struct Home {
    root: TempDir,
}

/// The folder that sessions work in.
pub struct Project {
    pub path: PathBuf,
}

/// Everything below a folder: bytes, mode, and time of the last change. Equal trees: nothing was touched.
pub type Tree = BTreeMap<String, Entry>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    mode: u32,
    changed: (i64, i64),
    content: String,
}

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

impl Home {
    /// # Panics
    /// The folders cannot be made.
    #[must_use]
    pub fn new() -> Self {
        let root = tempfile::Builder::new().prefix("agt").tempdir_in("/tmp").expect("a folder in /tmp");
        let home = Self { root };
        for folder in ["run", "state", "config/agentd/keys", "project/src"] {
            fs::create_dir_all(home.path(folder)).expect("a new folder");
        }
        for folder in ["run", "state", "config", "config/agentd", "config/agentd/keys"] {
            fs::set_permissions(home.path(folder), fs::Permissions::from_mode(0o700)).expect("chmod");
        }
        let project = home.project();
        project.write("README.md", "# A project\n");
        project.write("src/a.rs", "fn a() {}\n");
        project.write("src/b.rs", "fn b() {}\n");
        home
    }

    /// Leaves the folder behind when dropped, to be looked at.
    pub fn keep(&mut self) {
        self.root.disable_cleanup(true);
    }

    /// A path below the home. Its true name: `/tmp` may be a link.
    ///
    /// # Panics
    /// The home is gone.
    #[must_use]
    pub fn path(&self, below: &str) -> PathBuf {
        self.root.path().canonicalize().expect("the home is there").join(below)
    }

    #[must_use]
    pub fn project(&self) -> Project {
        Project { path: self.path("project") }
    }

    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path("run/agentd/agentd.sock")
    }

    /// The folder of the plans.
    #[must_use]
    pub fn plans(&self) -> PathBuf {
        self.path("state/agentd/plans")
    }

    /// The journal of a session.
    #[must_use]
    pub fn journal(&self, session: &str) -> PathBuf {
        self.path(&format!("state/agentd/sessions/{session}/journal.jsonl"))
    }

    /// Writes the settings.
    ///
    /// # Panics
    /// They cannot be written.
    pub fn settings(&self, toml: &str) {
        self.private("config/agentd/config.toml", toml);
    }

    /// Stores a key, as `agentctl key add` would.
    pub fn key(&self, provider: &str, key: &str) {
        self.private(&format!("config/agentd/keys/{provider}"), &format!("{key}\n"));
    }

    fn private(&self, below: &str, text: &str) {
        fs::write(self.path(below), text).expect("a settings file");
        fs::set_permissions(self.path(below), fs::Permissions::from_mode(0o600)).expect("chmod");
    }

    /// The environment of everything that runs here, and nothing else.
    #[must_use]
    pub fn env(&self) -> Vec<(&'static str, PathBuf)> {
        vec![
            ("HOME", self.path("")),
            ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
            ("XDG_CONFIG_HOME", self.path("config")),
            ("XDG_STATE_HOME", self.path("state")),
            ("XDG_RUNTIME_DIR", self.path("run")),
        ]
    }
}

impl Project {
    /// # Panics
    /// It cannot be written.
    pub fn write(&self, below: &str, text: &str) {
        fs::write(self.path.join(below), text).expect("a project file");
    }

    /// # Panics
    /// It cannot be read.
    #[must_use]
    pub fn read(&self, below: &str) -> String {
        fs::read_to_string(self.path.join(below)).expect("a project file")
    }

    #[must_use]
    pub fn cwd(&self) -> String {
        self.path.display().to_string()
    }

    /// A path below the project, as a tool would be given it.
    #[must_use]
    pub fn at(&self, below: &str) -> String {
        self.path.join(below).display().to_string()
    }

    #[must_use]
    pub fn tree(&self) -> Tree {
        tree(&self.path)
    }
}

/// # Panics
/// Something in it cannot be read.
#[must_use]
pub fn tree(root: &Path) -> Tree {
    let mut found = Tree::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            let meta = path.symlink_metadata().expect("an entry");
            let content = if meta.is_dir() {
                folders.push(path.clone());
                String::new()
            } else if meta.is_symlink() {
                fs::read_link(&path).expect("a link").display().to_string()
            } else if meta.is_file() {
                String::from_utf8_lossy(&fs::read(&path).expect("a file")).into_owned()
            } else {
                String::new()
            };
            let name = path.strip_prefix(root).expect("below its root").display().to_string();
            let changed = (meta.mtime(), meta.mtime_nsec());
            found.insert(name, Entry { mode: meta.mode(), changed, content });
        }
    }
    found
}
