//! Walking a folder in order, without what git ignores, without following links, and never without an end.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::error::{Kind, PathError};
use super::facts::is_kernel_folder_name;
use super::folder::{Cut, Folder, FolderEntry};
use super::ignored::{Has, Rules};

/// So many entries are looked at in one walk.
const MAX_ENTRIES: usize = 300_000;
/// Folders nested deeper are left out; the walk recurses.
const MAX_DEPTH: usize = 128;

/// How to walk.
pub struct Walk<'a> {
    pub depth: Depth,
    /// What is passed over, with all that is in it: agentd's own folders, what a rule closes.
    pub skip: &'a dyn Fn(&Path) -> bool,
    /// Asked often; `true` ends the walk.
    pub stop: &'a dyn Fn() -> bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Only the folder's own entries.
    One,
    All,
}

/// Something that was met, folders before what is in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Relative to the folder that is walked.
    pub below: PathBuf,
    pub kind: Kind,
}

/// How a walk went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkEnd {
    /// Entries passed over because git ignores them. A folder counts as one.
    pub ignored: u64,
    /// Folders that could not be read, or were too large or too deep to be read to the end.
    pub incomplete: u64,
    /// The walk ended early: too many entries.
    pub too_many: bool,
    /// The walk ended early: it was told to.
    pub stopped: bool,
}

/// Calls `each` for everything below `folder`, sorted, hidden entries included, `.git` and what git ignores left out.
/// What the folder's own ancestors ignore does not matter: who names an ignored folder means it.
///
/// # Errors
/// The folder itself cannot be read. Trouble below is counted.
pub fn walk(
    folder: &Folder,
    how: &Walk<'_>,
    each: &mut dyn FnMut(Found) -> ControlFlow<()>,
) -> Result<WalkEnd, PathError> {
    let mut walker = Walker { folder, how, each, left: MAX_ENTRIES, end: WalkEnd::default() };
    let rules = Rules::above(folder.real());
    let (entries, cut) = folder.entries(Path::new(""))?;
    // Only stops early; what it means is in `end`.
    let _ = walker.visit(Path::new(""), entries, cut, &rules, 0);
    Ok(walker.end)
}

struct Walker<'a> {
    folder: &'a Folder,
    how: &'a Walk<'a>,
    each: &'a mut dyn FnMut(Found) -> ControlFlow<()>,
    left: usize,
    end: WalkEnd,
}

impl Walker<'_> {
    fn visit(
        &mut self,
        below: &Path,
        entries: Vec<FolderEntry>,
        cut: Cut,
        above: &Rules<'_>,
        depth: usize,
    ) -> ControlFlow<()> {
        self.end.incomplete += u64::from(cut == Cut::Yes);
        let has = |name: &str| entries.iter().any(|entry| entry.name == name);
        let has = Has { git: has(".git"), gitignore: has(".gitignore") };
        let rules = above.enter(self.folder, below, has);
        for entry in entries {
            if (self.how.stop)() {
                self.end.stopped = true;
                return ControlFlow::Break(());
            }
            if self.left == 0 {
                self.end.too_many = true;
                return ControlFlow::Break(());
            }
            self.left -= 1;
            self.meet(below, &entry, &rules, depth)?;
        }
        ControlFlow::Continue(())
    }

    fn meet(
        &mut self,
        below: &Path,
        entry: &FolderEntry,
        rules: &Rules<'_>,
        depth: usize,
    ) -> ControlFlow<()> {
        if entry.name == OsStr::new(".git") {
            return ControlFlow::Continue(());
        }
        let below = below.join(&entry.name);
        let real = self.folder.real().join(&below);
        let is_folder = entry.kind == Kind::Folder;
        if is_kernel_folder_name(&real) || (self.how.skip)(&real) {
            return ControlFlow::Continue(());
        }
        if rules.ignore(&real, is_folder) {
            self.end.ignored += 1;
            return ControlFlow::Continue(());
        }
        (self.each)(Found { below: below.clone(), kind: entry.kind })?;
        if !is_folder || self.how.depth == Depth::One {
            return ControlFlow::Continue(());
        }
        if depth == MAX_DEPTH {
            self.end.incomplete += 1;
            return ControlFlow::Continue(());
        }
        match self.folder.entries(&below) {
            Ok((entries, cut)) => self.visit(&below, entries, cut, rules, depth + 1),
            Err(_) => {
                self.end.incomplete += 1;
                ControlFlow::Continue(())
            }
        }
    }
}
