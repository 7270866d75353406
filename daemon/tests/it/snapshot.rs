//! Snapshots of work trees, with the real git under the real helper.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use agentd::process::Spawner;
use agentd::workspace::snapshot::{
    Change, ChangeKind, Kept, Limits, Restored, SnapshotError, Snapshots, Taken, TreeId, Undo, Why,
};

mod hostile;
mod restore;

/// A repository, and a session's folder beside it.
struct Place {
    folder: tempfile::TempDir,
    snapshots: Snapshots,
}

impl Place {
    /// A repository with one commit.
    fn new() -> Self {
        let place = Self::empty();
        place.git(&["init", "-q", "-b", "main", "."]);
        place.write("a.txt", "one\ntwo\nthree\n");
        place.write("src/b.rs", "fn b() {}\n");
        place.write(".gitignore", "ignored/\n*.log\n");
        place.commit();
        place
    }

    fn empty() -> Self {
        let folder = tempfile::TempDir::new().unwrap();
        for name in ["p", "session", "home"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let spawner = Arc::new(Spawner::with_helper(env!("CARGO_BIN_EXE_agentd")));
        let git = agentd::paths::find_program("git", agentd::process::DEFAULT_PATH);
        let home = folder.path().join("home");
        let snapshots = Snapshots::new(spawner, git, home, vec![folder.path().join("p/own")]);
        Self { folder, snapshots }
    }

    fn with_limits(mut self, limits: Limits) -> Self {
        self.snapshots = self.snapshots.with_limits(limits);
        self
    }

    fn root(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("p")
    }

    fn session(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("session")
    }

    fn path(&self, below: &str) -> PathBuf {
        self.root().join(below)
    }

    fn write(&self, below: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(below).parent().unwrap()).unwrap();
        fs::write(self.path(below), content).unwrap();
    }

    fn commit(&self) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--no-verify", "-m", "x"]);
    }

    fn git(&self, args: &[&str]) -> String {
        git_in(&self.root(), args)
    }

    async fn try_take(&self, cwd: &Path) -> Result<Option<Taken>, SnapshotError> {
        self.snapshots.take(&self.session(), cwd, None).await
    }

    async fn take(&self) -> Taken {
        self.try_take(&self.root()).await.unwrap().expect("a repository")
    }

    async fn changes(&self, old: &TreeId, new: &TreeId) -> Vec<Change> {
        let (session, root) = (self.session(), self.root());
        self.snapshots.changes(Kept { session: &session, root: &root }, old, new).await.unwrap()
    }

    /// The changes of what `work` does, each as `kind path`.
    async fn told(&self, work: impl FnOnce(&Self)) -> Vec<String> {
        let before = self.take().await;
        work(self);
        let after = self.take().await;
        let changes = self.changes(&before.tree, &after.tree).await;
        changes.iter().map(|change| format!("{:?} {}", change.kind, change.path.display())).collect()
    }

    async fn restore(&self, target: &Taken, known: &Taken) -> Restored {
        let (session, root) = (self.session(), self.root());
        let kept = Kept { session: &session, root: &root };
        let made = ["new", "file", "file/now", "file/now/a"].map(str::to_owned).into_iter().collect();
        let undo = Undo { only: None, made: &made, stay: &root };
        self.snapshots.restore(kept, &target.tree, &known.tree, undo).await.unwrap()
    }
}

fn git_in(folder: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"])
        .args(args)
        .current_dir(folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Every file below a folder, with mode and bytes.
fn files(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let (path, meta) = (entry.path(), entry.path().symlink_metadata().unwrap());
            let content = if meta.is_dir() {
                folders.push(path.clone());
                continue;
            } else if meta.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else {
                fs::read(&path).unwrap()
            };
            found.insert(path.strip_prefix(root).unwrap().to_owned(), (meta.mode(), content));
        }
    }
    found
}

#[tokio::test]
async fn a_session_whose_folder_was_removed_does_not_get_it_back() {
    let place = Place::new();
    fs::remove_dir(place.session()).unwrap();
    let error = place.try_take(&place.root()).await.unwrap_err();
    assert!(matches!(error, SnapshotError::Io { .. }), "{error}");
    assert!(!place.session().exists());
}

#[tokio::test]
async fn every_kind_of_change_is_told() {
    let place = Place::new();
    place.write("gone.txt", "x\n");
    place.write("moved.txt", "a long line that is found again\n".repeat(9));
    place.write("run.sh", "#!/bin/sh\n");
    place.write("crlf.txt", "a\r\nb\r\n");
    place.write("binary", b"\0\x01\x02");
    place.write("becomes-link", "x\n");
    place.commit();
    let told = place
        .told(|place| {
            place.write("a.txt", "one\nTWO\nthree\n");
            place.write("new/deep/file", "new\n");
            fs::remove_file(place.path("gone.txt")).unwrap();
            fs::rename(place.path("moved.txt"), place.path("there.txt")).unwrap();
            fs::set_permissions(place.path("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
            place.write("crlf.txt", "a\nb\n");
            place.write("binary", b"\0\x01\x03");
            fs::remove_file(place.path("becomes-link")).unwrap();
            symlink("a.txt", place.path("becomes-link")).unwrap();
            symlink("/nowhere", place.path("link")).unwrap();
            place.write("ignored/x", "no\n");
            place.write("x.log", "no\n");
        })
        .await;
    assert_eq!(
        told,
        [
            "Modified a.txt",
            "Type becomes-link",
            "Modified binary",
            "Modified crlf.txt",
            "Deleted gone.txt",
            "Added link",
            "Added new/deep/file",
            "Mode run.sh",
            "Renamed there.txt",
        ]
    );
    assert!(place.told(|_| ()).await.is_empty());
}

#[tokio::test]
async fn nothing_of_the_repository_is_touched() {
    let place = Place::new();
    place.write("staged.txt", "staged\n");
    place.git(&["add", "staged.txt"]);
    place.write("staged.txt", "staged and changed\n");
    place.write("a.txt", "stash me\n");
    place.git(&["stash", "-q"]);
    place.write("staged.txt", "again\n");
    place.git(&["add", "staged.txt"]);
    place.write("a.txt", "dirty\n");
    let before = files(&place.path(".git"));
    let tree = files(&place.root());
    let told = place.told(|place| place.write("untracked.txt", "x\n")).await;
    assert_eq!(told, ["Added untracked.txt"]);
    assert_eq!(files(&place.path(".git")), before);
    fs::remove_file(place.path("untracked.txt")).unwrap();
    assert_eq!(files(&place.root()), tree);
}

#[tokio::test]
async fn a_repository_without_commits_and_one_without_an_index_work() {
    let place = Place::empty();
    place.git(&["init", "-q", "."]);
    place.write("first.txt", "x\n");
    assert_eq!(place.told(|place| place.write("second.txt", "y\n")).await, ["Added second.txt"]);
    // The repository's index is damaged: every file is read once instead.
    let place = Place::new();
    place.write(".git/index", "no index");
    assert_eq!(place.told(|place| place.write("a.txt", "y\n")).await, ["Modified a.txt"]);
}

#[tokio::test]
async fn a_folder_in_no_repository_has_no_snapshot_and_leaves_nothing() {
    let place = Place::empty();
    assert_eq!(place.try_take(&place.root()).await.unwrap(), None);
    assert_eq!(files(&place.session()).len(), 0);
}

#[tokio::test]
async fn a_subfolder_and_a_second_work_tree_are_the_repository_they_belong_to() {
    let place = Place::new();
    let taken = place.try_take(&place.path("src")).await.unwrap().unwrap();
    assert_eq!(taken.root, place.root());
    let tree = place.folder.path().canonicalize().unwrap().join("tree");
    place.git(&["worktree", "add", "-q", tree.to_str().unwrap()]);
    let before = files(&place.path(".git"));
    let first = place.try_take(&tree).await.unwrap().unwrap();
    assert_eq!((&first.root, &first.tree), (&tree, &taken.tree));
    fs::write(tree.join("a.txt"), "there\n").unwrap();
    let second = place.try_take(&tree).await.unwrap().unwrap();
    assert_ne!(first.tree, second.tree);
    assert_eq!(place.take().await.tree, taken.tree);
    assert_eq!(files(&place.path(".git")), before);
}

#[tokio::test]
async fn repositories_inside_are_left_alone() {
    let place = Place::new();
    fs::create_dir(place.path("nested")).unwrap();
    git_in(&place.path("nested"), &["init", "-q", "."]);
    place.write("nested/x", "x\n");
    git_in(&place.path("nested"), &["add", "-A"]);
    git_in(&place.path("nested"), &["commit", "-qm", "x"]);
    place.git(&["submodule", "add", "-q", "./nested", "module"]);
    place.commit();
    fs::create_dir(place.path("empty")).unwrap();
    git_in(&place.path("empty"), &["init", "-q", "."]);
    let told = place
        .told(|place| {
            place.write("nested/x", "y\n");
            place.write("module/x", "y\n");
            place.write("empty/x", "y\n");
            git_in(&place.path("module"), &["add", "-A"]);
            git_in(&place.path("module"), &["commit", "-qm", "y"]);
            place.write("a.txt", "y\n");
        })
        .await;
    assert_eq!(told, ["Modified a.txt"]);
}

#[tokio::test]
async fn large_files_and_own_folders_are_left_out_and_said_so() {
    let limits = Limits { file: 1000, total: 2500, ..Limits::default() };
    let place = Place::new().with_limits(limits);
    place.write("own/secret", "key\n");
    let before = place.take().await;
    assert_eq!(before.left_out, []);
    place.write("large", vec![b'x'; 1001]);
    place.write("a.txt", vec![b'x'; 1001]);
    for name in ["m1", "m2", "m3"] {
        place.write(name, vec![b'x'; 900]);
    }
    let after = place.take().await;
    let left: Vec<_> = after.left_out.iter().map(|left| (left.path.as_str(), left.why)).collect();
    assert_eq!(left, [("a.txt", Why::TooLarge), ("large", Why::TooLarge), ("m3", Why::TooMuch)]);
    let kept: Vec<_> =
        place.changes(&before.tree, &after.tree).await.iter().map(|c| c.path.clone()).collect();
    assert_eq!(kept, [Path::new("a.txt"), Path::new("m1"), Path::new("m2")]);
}

#[tokio::test]
async fn too_many_files_or_too_little_time_are_no_snapshot() {
    let place = Place::new().with_limits(Limits { files: 2, ..Limits::default() });
    for name in ["1", "2", "3"] {
        place.write(name, "x");
    }
    let error = place.try_take(&place.root()).await.unwrap_err();
    assert!(matches!(error, SnapshotError::TooMany { count: 3, limit: 2 }), "{error}");
    let place = Place::new().with_limits(Limits { time: std::time::Duration::ZERO, ..Limits::default() });
    assert!(matches!(place.try_take(&place.root()).await, Err(SnapshotError::TooSlow(_))));
}

#[tokio::test]
async fn names_that_are_no_text_survive() {
    let place = Place::new();
    let odd = place.root().join(OsStr::from_bytes(b"odd\xff\n\"name"));
    let before = place.take().await;
    fs::write(&odd, "x\n").unwrap();
    let after = place.take().await;
    let changes = place.changes(&before.tree, &after.tree).await;
    assert_eq!(changes[0].path.as_os_str().as_bytes(), b"odd\xff\n\"name");
    place.restore(&before, &after).await;
    assert!(!odd.exists());
    place.restore(&after, &before).await;
    assert_eq!(fs::read(&odd).unwrap(), b"x\n");
}

#[tokio::test]
async fn what_git_is_told_to_look_away_from_is_seen() {
    let place = Place::new();
    place.git(&["update-index", "--assume-unchanged", "a.txt"]);
    place.git(&["update-index", "--skip-worktree", "src/b.rs"]);
    let told = place
        .told(|place| {
            place.write("a.txt", "changed\n");
            place.write("src/b.rs", "changed\n");
        })
        .await;
    assert_eq!(told, ["Modified a.txt", "Modified src/b.rs"]);
}

#[tokio::test]
async fn what_the_person_and_the_repository_exclude_is_left_out() {
    let place = Place::new();
    let home = place.folder.path().join("home");
    fs::write(home.join(".gitconfig"), "[core]\n\texcludesFile = ~/my \\\"ignores\n").unwrap();
    fs::write(home.join("my \"ignores"), "*.mine\n").unwrap();
    place.write(".git/info/exclude", "*.here\n");
    let told = place
        .told(|place| {
            for name in ["x.mine", "x.here", "x.log", "x.txt"] {
                place.write(name, "x\n");
            }
        })
        .await;
    assert_eq!(told, ["Added x.txt"]);
}

#[tokio::test]
async fn a_look_beside_takes_the_same_tree_and_leaves_no_file() {
    let place = Place::new();
    place.take().await;
    place.write("a.txt", "now\n");
    let looked = place.snapshots.look(&place.session(), &place.root(), None).await.unwrap().unwrap();
    assert_eq!(looked.tree, place.take().await.tree);
    let left: Vec<_> = files(&place.session())
        .into_keys()
        .filter(|path| path.to_string_lossy().contains("index-") || path.to_string_lossy().contains("input-"))
        .collect();
    assert_eq!(left, Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_look_beside_rewrites_nothing_that_another_git_reads() {
    let place = Place::new();
    place.take().await;
    let stamps = || -> BTreeMap<PathBuf, (i64, i64)> {
        let known = files(&place.session()).into_keys().map(|path| place.session().join(path));
        let stamp = |path: PathBuf| {
            let meta = path.symlink_metadata().unwrap();
            (path, (meta.ctime(), meta.ctime_nsec()))
        };
        known.filter(|path| !path.to_string_lossy().contains("/objects/")).map(stamp).collect()
    };
    let before = stamps();
    place.snapshots.look(&place.session(), &place.root(), None).await.unwrap().unwrap();
    assert_eq!(stamps(), before);
    // What does change is changed.
    place.write(".git/info/exclude", "*.here\n");
    place.write("x.here", "x\n");
    let looked = place.snapshots.look(&place.session(), &place.root(), None).await.unwrap().unwrap();
    assert_eq!(looked.hidden.unwrap(), ["x.here"]);
}

#[tokio::test]
async fn what_git_leaves_out_is_named() {
    let place = Place::new();
    for name in ["ignored/deep/x", "src/x.log", "own/secret", "kept/a", "kept/b.log", "all/only.log"] {
        place.write(name, "x\n");
    }
    fs::create_dir(place.path("nested")).unwrap();
    git_in(&place.path("nested"), &["init", "-q", "."]);
    place.write("nested/x", "x\n");
    let hidden = place.take().await.hidden.unwrap();
    // A folder only if it is ignored itself: something else may come to lie in it.
    assert_eq!(hidden, ["all/only.log", "ignored", "kept/b.log", "nested", "own", "src/x.log"]);
}

#[tokio::test]
async fn a_lock_that_a_killed_git_left_does_not_matter() {
    let place = Place::new();
    place.take().await;
    let index = files(&place.session()).into_keys().find(|path| path.ends_with("index")).unwrap();
    fs::write(place.session().join(index).with_extension("lock"), "").unwrap();
    place.write("a.txt", "now\n");
    place.take().await;
}

#[tokio::test]
async fn what_is_kept_is_private() {
    let place = Place::new();
    place.write("new", "x\n");
    place.take().await;
    for (path, (mode, _)) in files(&place.session()) {
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
    }
}

#[tokio::test]
async fn kinds_are_those_of_the_wire() {
    let place = Place::new();
    let before = place.take().await;
    fs::set_permissions(place.path("a.txt"), fs::Permissions::from_mode(0o755)).unwrap();
    let after = place.take().await;
    let change = &place.changes(&before.tree, &after.tree).await[0];
    assert_eq!(
        (change.kind, change.old_mode.name(), change.new_mode.name()),
        (ChangeKind::Mode, "100644", "100755")
    );
}
