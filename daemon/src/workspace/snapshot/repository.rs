//! Finding the repository that a folder is in. Files only: git itself is not asked, because it would read whatever
//! configuration it finds on the way.

use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace::{Base, locate};

/// Bytes of the small files that say where a repository lies.
const MAX_POINTER: u64 = 8 * 1024;
const MAX_CONFIG: u64 = 1 << 20;

/// A repository with a work tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repository {
    /// Of the work tree.
    pub(super) root: PathBuf,
    /// Where the work tree's own index lies.
    pub(super) git_dir: PathBuf,
    /// What all its work trees share: objects, excludes.
    pub(super) common: PathBuf,
    /// The digest that names objects, if it is not SHA-1.
    pub(super) sha256: bool,
}

/// The innermost repository around `cwd`, which is a true name. A bare one has no work tree and does not count.
pub(super) fn find(cwd: &Path) -> Option<Repository> {
    cwd.ancestors().find_map(|root| {
        let dot_git = root.join(".git");
        let meta = fs::metadata(&dot_git).ok()?;
        let git_dir = if meta.is_dir() {
            dot_git
        } else {
            let text = pointer(root, ".git")?;
            root.join(text.strip_prefix("gitdir:")?.trim())
        };
        let common = match pointer(&git_dir, "commondir") {
            Some(text) => git_dir.join(text.trim()),
            None => git_dir.clone(),
        };
        let is_one = fs::metadata(git_dir.join("HEAD")).is_ok_and(|meta| meta.is_file())
            && fs::metadata(common.join("objects")).is_ok_and(|meta| meta.is_dir());
        is_one.then(|| {
            let common = fs::canonicalize(&common).unwrap_or(common);
            Repository { root: root.to_owned(), git_dir, sha256: names_by_sha256(&common), common }
        })
    })
}

/// A short text file in `folder`; regular, whatever is planted there.
fn pointer(folder: &Path, name: &str) -> Option<String> {
    let content = locate(Base { cwd: folder, home: None }, name).ok()?.read(MAX_POINTER).ok()?;
    String::from_utf8(content.bytes).ok()
}

/// `extensions.objectFormat = sha256`. Nothing else of a repository's configuration matters here.
fn names_by_sha256(common: &Path) -> bool {
    let Some(content) = locate(Base { cwd: common, home: None }, "config")
        .ok()
        .and_then(|located| located.read(MAX_CONFIG).ok())
    else {
        return false;
    };
    String::from_utf8_lossy(&content.bytes).lines().any(|line| {
        let line = line.to_ascii_lowercase();
        let mut words = line.split('=').map(str::trim);
        words.next().is_some_and(|name| name.ends_with("objectformat")) && words.next() == Some("sha256")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(git_dir: &Path) {
        fs::create_dir_all(git_dir.join("objects")).unwrap();
        fs::write(git_dir.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    }

    #[test]
    fn a_repository_is_found_from_below_and_a_bare_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        assert_eq!(find(&root), None);
        make(&root.join("p/.git"));
        fs::create_dir_all(root.join("p/sub/deep")).unwrap();
        let found = find(&root.join("p/sub/deep")).unwrap();
        assert_eq!((&found.root, found.sha256), (&root.join("p"), false));
        // Planted in the folder: it has no `.git`, so the one around it is meant.
        make(&root.join("p/sub"));
        assert_eq!(find(&root.join("p/sub")).unwrap().root, root.join("p"));
        // An empty `.git` is none either.
        fs::create_dir_all(root.join("p/sub/deep/.git")).unwrap();
        assert_eq!(find(&root.join("p/sub/deep")).unwrap().root, root.join("p"));
    }

    #[test]
    fn a_work_tree_shares_the_objects_of_its_repository() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        make(&root.join("main/.git"));
        let git_dir = root.join("main/.git/worktrees/w");
        fs::create_dir_all(&git_dir).unwrap();
        fs::write(git_dir.join("HEAD"), "ref: refs/heads/w\n").unwrap();
        fs::write(git_dir.join("commondir"), "../..\n").unwrap();
        fs::write(root.join("main/.git/config"), "[extensions]\n\tobjectFormat = sha256\n").unwrap();
        fs::create_dir_all(root.join("w")).unwrap();
        fs::write(root.join("w/.git"), format!("gitdir: {}\n", git_dir.display())).unwrap();
        let found = find(&root.join("w")).unwrap();
        assert_eq!((found.git_dir, found.common), (git_dir, root.join("main/.git")));
        assert!(found.sha256);
        fs::write(root.join("w/.git"), "gitdir: /nowhere\n").unwrap();
        assert_eq!(find(&root.join("w")), None);
    }
}
