//! What git would ignore. The patterns are matched by the `ignore` crate; finding and reading the files is ours, so that
//! it follows the rules of this module.

use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::folder::Folder;
use super::locate::locate_entry;

const MAX_IGNORE_FILE: u64 = 1 << 20;

/// The rules in force in one folder: its own, then those of the folders above, up to the repository's root.
///
/// Outside a repository nothing is ignored, as git has it.
#[derive(Debug)]
pub(super) struct Rules<'a> {
    above: Option<&'a Rules<'a>>,
    /// In order of precedence.
    own: Vec<Gitignore>,
    in_repository: bool,
}

impl<'a> Rules<'a> {
    /// The rules that a folder inherits from those above it, itself left out.
    pub(super) fn above(folder: &Path) -> Rules<'static> {
        let mut own = Vec::new();
        let mut in_repository = false;
        for parent in folder.ancestors().skip(1) {
            own.extend(read_at(&parent.join(".gitignore"), parent));
            if is_repository(parent) {
                own.extend(repository_wide(parent, read_at(&parent.join(".git/info/exclude"), parent)));
                in_repository = true;
                break;
            }
        }
        if !in_repository {
            own.clear();
        }
        Rules { above: None, own, in_repository }
    }

    /// The rules inside `below`, a folder under `root` that has the entries told.
    pub(super) fn enter(&'a self, root: &Folder, below: &Path, has: Has) -> Rules<'a> {
        let real = root.real().join(below);
        let mut own = Vec::new();
        let in_repository = self.in_repository || has.git;
        if has.gitignore && in_repository {
            own.extend(read_below(root, &below.join(".gitignore"), &real));
        }
        if has.git {
            let exclude = read_below(root, &below.join(".git/info/exclude"), &real);
            own.extend(repository_wide(&real, exclude));
        }
        // A repository inside another one answers to its own rules only.
        Rules { above: (!has.git).then_some(self), own, in_repository }
    }

    pub(super) fn ignore(&self, path: &Path, is_folder: bool) -> bool {
        let mut rules = Some(self);
        while let Some(at) = rules {
            for matcher in &at.own {
                match matcher.matched(path, is_folder) {
                    Match::Ignore(_) => return true,
                    Match::Whitelist(_) => return false,
                    Match::None => {}
                }
            }
            rules = at.above;
        }
        false
    }
}

/// Which of the entries that matter here a folder has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Has {
    pub(super) git: bool,
    pub(super) gitignore: bool,
}

fn is_repository(folder: &Path) -> bool {
    locate_entry(&folder.join(".git")).is_ok_and(|located| located.found().is_some())
}

/// The repository's own excludes, then the user's for all repositories.
fn repository_wide(root: &Path, exclude: Option<Gitignore>) -> impl Iterator<Item = Gitignore> {
    let (global, _) = GitignoreBuilder::new(root).build_global();
    exclude.into_iter().chain([global])
}

/// A link is not read, as in git: it could lead anywhere.
fn read_at(path: &Path, root: &Path) -> Option<Gitignore> {
    let content = locate_entry(path).ok()?.read(MAX_IGNORE_FILE).ok()?;
    parse(&content.bytes, path.to_owned(), root)
}

fn read_below(folder: &Folder, below: &Path, root: &Path) -> Option<Gitignore> {
    let content = folder.read(below, MAX_IGNORE_FILE).ok()?;
    parse(&content.bytes, folder.real().join(below), root)
}

fn parse(bytes: &[u8], from: PathBuf, root: &Path) -> Option<Gitignore> {
    let mut builder = GitignoreBuilder::new(root);
    let text = String::from_utf8_lossy(bytes);
    for line in text.strip_prefix('\u{feff}').unwrap_or(&text).lines() {
        // A line that is no pattern ignores nothing, as in git.
        let _ = builder.add_line(Some(from.clone()), line);
    }
    builder.build().ok()
}
