//! The private repository that a session's snapshots of one work tree lie in, and how git is run on it.
//!
//! `<session>/snapshots/<digest of the root>/`: a configuration and attributes of ours, an index, objects. The
//! repository's objects are an alternate for what reads; what writes does not know of them, so that trees and new contents
//! stay when the repository throws its own away. Its configuration, attributes and hooks lie elsewhere, so git does not
//! know of them either.
//!
//! Several may look at once, beside one that takes. So a file of ours is replaced, never rewritten, and only if it is to
//! hold something else.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::repository::Repository;
use super::{Limits, SnapshotError, Snapshots};
use crate::ids::digest_of;
use crate::process::{DEFAULT_PATH, ProgramSpec, Spawner};
use crate::workspace::locate_entry;

/// Bytes that one run of git may print.
const MAX_ANSWER: usize = 256 << 20;
/// Bytes of the repository's list of excludes.
const MAX_EXCLUDES: u64 = 1 << 20;

/// Whatever the work tree's own attributes say: bytes are kept as they are, and no driver has a name.
/// `working-tree-encoding` may not be unset, only unspecified.
const ATTRIBUTES: &str = "* -text !eol !crlf !ident !filter !working-tree-encoding !diff\n";

/// What has no business with the repository's objects: it would not write what is there already.
const WRITERS: [&str; 3] = ["update-index", "write-tree", "hash-object"];

/// The folder of all snapshots in a session's folder.
const FOLDER: &str = "snapshots";

#[derive(Clone, Debug)]
pub(super) struct Store {
    spawner: Arc<Spawner>,
    git: PathBuf,
    home: PathBuf,
    own: Vec<PathBuf>,
    pub(super) limits: Limits,
    pub(super) dir: PathBuf,
    pub(super) repository: Repository,
}

/// Which repository git works on.
#[derive(Clone, Copy)]
struct At<'a> {
    git_dir: &'a Path,
    /// Whether it knows the objects of the person's repository.
    alternates: bool,
}

/// A file that is gone when this is dropped.
pub(super) struct Passing(pub(super) PathBuf);

impl Drop for Passing {
    fn drop(&mut self) {
        // One that stays lies in the session's folder and goes with it.
        let _ = fs::remove_file(&self.0);
    }
}

/// Where the store of a session for the work tree `root` lies.
pub(super) fn folder(session: &Path, root: &Path) -> PathBuf {
    let name = digest_of(root.as_os_str().as_bytes()).hex();
    session.join(FOLDER).join(&name[..16])
}

impl Store {
    pub(super) fn new(snapshots: &Snapshots, git: PathBuf, session: &Path, repository: Repository) -> Self {
        Self {
            spawner: Arc::clone(&snapshots.spawner),
            git,
            home: snapshots.home.clone(),
            own: snapshots.own.clone(),
            limits: snapshots.limits,
            dir: folder(session, &repository.root),
            repository,
        }
    }

    pub(super) fn index(&self) -> PathBuf {
        self.dir.join("index")
    }

    /// A name in the store that nobody has.
    pub(super) fn passing(&self, what: &str) -> Passing {
        Passing(self.dir.join(format!("{what}-{}", uuid::Uuid::new_v4().simple())))
    }

    /// Whether the store is there, with an index.
    pub(super) fn is_ready(&self) -> bool {
        self.index().is_file()
    }

    /// Makes the store, or brings it up to date with where the repository lies and what it excludes. Blocks.
    pub(super) fn prepare(&self) -> Result<(), SnapshotError> {
        // Not the session's own folder: one that somebody has removed does not come back.
        if let Some(stores) = self.dir.parent() {
            match fs::DirBuilder::new().mode(0o700).create(stores) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(failed("make", stores)(error));
                }
                _ => {}
            }
        }
        for folder in ["objects/info", "refs", "info", "bare/objects", "bare/refs"] {
            let path = self.dir.join(folder);
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed("make", &path))?;
        }
        self.write("HEAD", b"ref: refs/heads/none\n")?;
        self.write("bare/HEAD", b"ref: refs/heads/none\n")?;
        self.write("info/attributes", ATTRIBUTES.as_bytes())?;
        // Of an earlier version.
        let _ = fs::remove_file(self.dir.join("objects/info/alternates"));
        self.write("info/exclude", &self.excludes())
    }

    /// A repository without attributes of ours, to ask what those of the work tree say.
    fn bare(&self) -> PathBuf {
        self.dir.join("bare")
    }

    /// `excludes`: the file of the user's own excludes, for all repositories. Blocks.
    pub(super) fn configure(&self, excludes: &[u8]) -> Result<(), SnapshotError> {
        let (version, format) = match self.repository.sha256 {
            true => (1, "[extensions]\n\tobjectFormat = sha256\n"),
            false => (0, ""),
        };
        let mut config = format!("[core]\n\trepositoryFormatVersion = {version}\n").into_bytes();
        if !excludes.is_empty() && !excludes.contains(&b'\n') {
            config.extend(b"\texcludesFile = \"");
            for byte in excludes {
                if b"\\\"".contains(byte) {
                    config.push(b'\\');
                }
                config.push(*byte);
            }
            config.extend(b"\"\n");
        }
        config.extend(format.as_bytes());
        self.write("config", &config)
    }

    /// What the repository excludes beside its `.gitignore` files, and agentd's own folders.
    fn excludes(&self) -> Vec<u8> {
        let own = self.own.iter().filter_map(|own| own.strip_prefix(&self.repository.root).ok());
        let mut excludes: Vec<u8> = locate_entry(&self.repository.common.join("info/exclude"))
            .and_then(|located| located.read(MAX_EXCLUDES))
            .map(|content| content.bytes)
            .unwrap_or_default();
        excludes.push(b'\n');
        for own in own {
            excludes.push(b'/');
            for byte in own.as_os_str().as_bytes() {
                if b"\\*?[ ".contains(byte) {
                    excludes.push(b'\\');
                }
                excludes.push(*byte);
            }
            excludes.extend(b"/\n");
        }
        excludes
    }

    /// Makes `name` hold `content`, at once and whole: a git that reads it meanwhile sees the one or the other.
    fn write(&self, name: &str, content: &[u8]) -> Result<(), SnapshotError> {
        let path = self.dir.join(name);
        if fs::read(&path).is_ok_and(|old| old == content) {
            return Ok(());
        }
        let new = self.passing("new");
        self.write_to(&new.0, content)?;
        fs::rename(&new.0, &path).map_err(failed("put in place", &path))
    }

    pub(super) fn write_to(&self, path: &Path, content: &[u8]) -> Result<(), SnapshotError> {
        fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)
            .and_then(|mut file| file.write_all(content))
            .map_err(failed("write", path))
    }

    /// Runs git on the store.
    pub(super) async fn git(
        &self,
        args: &[&str],
        index: &Path,
        input: Option<&Path>,
    ) -> Result<Vec<u8>, SnapshotError> {
        let verb = args.iter().find(|word| !word.starts_with('-')).unwrap_or(&"");
        let alternates = !WRITERS.contains(verb);
        self.git_in(At { git_dir: &self.dir, alternates }, args, index, input).await
    }

    async fn git_in(
        &self,
        at: At<'_>,
        args: &[&str],
        index: &Path,
        input: Option<&Path>,
    ) -> Result<Vec<u8>, SnapshotError> {
        let settings = [
            "--no-pager",
            "-c",
            "core.bare=false",
            "-c",
            "core.fsmonitor=false",
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "core.untrackedCache=false",
            "-c",
            "core.fileMode=true",
            "-c",
            "core.symlinks=true",
            "-c",
            "core.autocrlf=false",
            "-c",
            "core.sharedRepository=0600",
            "-c",
            "core.fsync=loose-object",
            "-c",
            "core.fsyncMethod=batch",
            "-c",
            "core.quotePath=false",
            "-c",
            "safe.bareRepository=explicit",
            "-c",
            "index.threads=1",
            "-c",
            "gc.auto=0",
        ];
        let verb = args.iter().find(|word| !word.starts_with('-') && !word.contains('=')).unwrap_or(&"");
        let objects = self.repository.common.join("objects");
        let alternates = match at.alternates {
            true => quoted(objects.as_os_str().as_bytes()),
            false => Vec::new(),
        };
        let name = format!("git {verb}");
        let args = settings.iter().chain(args).map(OsString::from).collect();
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let env = [
            ("PATH", DEFAULT_PATH.to_owned()),
            ("HOME", text(&self.home)),
            ("LANG", "C.UTF-8".to_owned()),
            ("GIT_DIR", text(at.git_dir)),
            ("GIT_WORK_TREE", text(&self.repository.root)),
            ("GIT_INDEX_FILE", text(index)),
            ("GIT_CONFIG_NOSYSTEM", "1".to_owned()),
            ("GIT_CONFIG_GLOBAL", "/dev/null".to_owned()),
            ("GIT_ATTR_NOSYSTEM", "1".to_owned()),
            ("GIT_OPTIONAL_LOCKS", "0".to_owned()),
            ("GIT_TERMINAL_PROMPT", "0".to_owned()),
            ("GIT_NO_REPLACE_OBJECTS", "1".to_owned()),
            // Quoted, so it is ASCII.
            ("GIT_ALTERNATE_OBJECT_DIRECTORIES", String::from_utf8_lossy(&alternates).into_owned()),
            ("GIT_NO_LAZY_FETCH", "1".to_owned()),
            ("GIT_ALLOW_PROTOCOL", "none".to_owned()),
        ];
        let spec = ProgramSpec {
            name,
            program: self.git.clone(),
            args,
            cwd: self.repository.root.clone(),
            env: env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            input: input.map(Path::to_owned),
            timeout: self.limits.time + Duration::from_secs(1),
            limit: MAX_ANSWER,
        };
        Ok(self.spawner.program(spec).await?)
    }

    /// The file that the user's own settings, which no project can change, name for excludes; empty if there is none.
    pub(super) async fn users_excludes(&self) -> Vec<u8> {
        let file = self.home.join(".gitconfig");
        let file = file.to_string_lossy();
        let get = ["config", "--file", &file, "--includes", "--type=path", "--get", "core.excludesFile"];
        let found = self.git(&get, &self.index(), None).await.unwrap_or_default();
        found.strip_suffix(b"\n").unwrap_or(&found).to_vec()
    }

    /// Runs git with `input` on its standard input.
    pub(super) async fn git_reading(
        &self,
        args: &[&str],
        index: &Path,
        input: Vec<u8>,
    ) -> Result<Vec<u8>, SnapshotError> {
        let file = self.input(input).await?;
        self.git(args, index, Some(&file.0)).await
    }

    /// As [`Store::git_reading`], without the repository's objects.
    pub(super) async fn git_alone(
        &self,
        args: &[&str],
        index: &Path,
        input: Vec<u8>,
    ) -> Result<Vec<u8>, SnapshotError> {
        let file = self.input(input).await?;
        self.git_in(At { git_dir: &self.dir, alternates: false }, args, index, Some(&file.0)).await
    }

    /// What the work tree's own attributes say of these `names`, each with a NUL behind it.
    pub(super) async fn attributes(&self, index: &Path, names: Vec<u8>) -> Result<Vec<u8>, SnapshotError> {
        // Beside those of the work tree, the repository may have attributes of its own.
        let file =
            format!("core.attributesFile={}", self.repository.common.join("info/attributes").display());
        let check = ["-c", &file, "check-attr", "-z", "--stdin", "filter", "working-tree-encoding"];
        let input = self.input(names).await?;
        self.git_in(At { git_dir: &self.bare(), alternates: true }, &check, index, Some(&input.0)).await
    }

    async fn input(&self, input: Vec<u8>) -> Result<Passing, SnapshotError> {
        let file = self.passing("input");
        let (store, path) = (self.clone(), file.0.clone());
        super::blocking(move || store.write_to(&path, &input)).await?;
        Ok(file)
    }
}

pub(super) fn failed(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> SnapshotError {
    let path = path.to_owned();
    move |source| SnapshotError::Io { action, path, source }
}

/// As git reads a path that holds odd characters: in quotes, with escapes.
fn quoted(path: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'"'];
    for byte in path {
        match byte {
            b'"' | b'\\' => quoted.extend([b'\\', *byte]),
            b' '..=b'~' => quoted.push(*byte),
            _ => quoted.extend(format!("\\{byte:03o}").into_bytes()),
        }
    }
    quoted.push(b'"');
    quoted
}

#[cfg(test)]
mod tests {
    #[test]
    fn odd_characters_of_a_path_are_escaped_for_git() {
        assert_eq!(super::quoted("a \"b\"\n\\é".as_bytes()), br#""a \"b\"\012\\\303\251""#);
    }
}
