//! Taking back: whole files by what they were, hunks by their lines. Whatever somebody changed since stays as it is.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use agentd_protocol::TurnId;
use agentd_protocol::changes::{HunkRef, RevertParams, RevertResult, Span, Stays, TurnRef};

use super::doubts::Doubt;
use super::find::Found;
use super::tools::{Broken, ToolDelta};
use super::{View, Wanted, below, cut, unread};
use crate::session::SessionError;
use crate::session::actor::Session;
use crate::session::record::{Kept, TreeKept, When};
use crate::workspace::hunks::{compare, take_back};
use crate::workspace::snapshot::{Amend, Kept as Place, TreeId, Undo, path_text};
use crate::workspace::{
    Entry, Expected, Located, MAX_FILE, PathError, Seen as SeenEntry, locate_below, locate_entry,
};

impl Session {
    /// `session/revert`. Inside the session's task: nothing runs meanwhile.
    pub(in crate::session) async fn revert(
        &mut self,
        params: RevertParams,
    ) -> Result<RevertResult, SessionError> {
        let view = self.changes_view().await;
        if self.state.turn.is_some() || !self.flight.is_free() {
            return Err(SessionError::Conflict(
                "a turn runs; wait for it or stop it, then take back what it changed".into(),
            ));
        }
        let (result, amends, end) = Box::pin(view.revert(&params.span, &params.paths, &params.hunks)).await?;
        if !amends.is_empty() {
            self.amend_newest(&view, amends, end).await?;
        }
        Ok(result)
    }

    /// What was taken back is no change of the session any more: its newest tree is without it from here on.
    async fn amend_newest(
        &mut self,
        view: &View,
        mut amends: Vec<Amend>,
        end: Option<TreeId>,
    ) -> Result<(), SessionError> {
        let newest = view.trees.turns.iter().rev().find_map(|turn| Some((turn.turn, turn.after.clone()?)));
        let Some((turn_id, newest)) = newest else { return Ok(()) };
        let was = view.kept(&newest).await?;
        let Kept::Tree { root, tree, left_out, hidden, whose } = was.kept else { return Ok(()) };
        if view.trees.since.as_ref().is_none_or(|since| since.tree != tree || since.root != root) {
            // Something was looked at since: what is taken back differs from that, and is named then.
            return Ok(());
        }
        // A file without a hunk is only known as the span's own end had it.
        if end.as_ref() != Some(&tree) {
            amends.retain(|amend| matches!(amend, Amend::Undone(_)));
        }
        if amends.is_empty() {
            return Ok(());
        }
        let place = Place { session: &view.session, root: &root };
        let tree = view.snapshots.amend(place, &tree, amends).await.map_err(unread)?;
        let kept = Kept::Tree { root, tree, left_out, hidden, whose };
        let (mode, outcome) = (self.state.mode, self.state.last_outcome);
        let record = TreeKept { turn_id, when: When::After, kept, late: was.late, mode, outcome };
        self.commit(vec![record.into()]).await
    }

    /// Puts the files back to how they were before `turn` had its first effect, undoing it and all turns after it.
    /// What somebody changed since stays, and is named.
    pub async fn restore_before(&mut self, turn: TurnId) -> Result<RevertResult, SessionError> {
        let span = Span { from: Some(TurnRef::Id(turn)), ..Span::default() };
        let id = self.state.id();
        self.revert(RevertParams { session_id: id, span, paths: Vec::new(), hunks: Vec::new() }).await
    }
}

impl View {
    async fn revert(
        &self,
        span: &Span,
        paths: &[String],
        hunks: &[HunkRef],
    ) -> Result<(RevertResult, Vec<Amend>, Option<TreeId>), SessionError> {
        let mut amends = Vec::new();
        let mut found = Box::pin(self.find(span)).await?;
        let mut result = RevertResult { notes: std::mem::take(&mut found.notes), ..RevertResult::default() };
        result.notes.extend(
            found.left_out.iter().map(|left| format!("{} is in no snapshot and stays as it is.", left.path)),
        );
        if hunks.is_empty() || !paths.is_empty() {
            self.revert_files(&found, paths, &mut result, &mut amends).await?;
        }
        self.revert_hunks(&found, hunks, &mut result, &mut amends).await?;
        if found.told.is_empty()
            && found.ends.is_none()
            && result.reverted.is_empty()
            && result.stays.is_empty()
        {
            result.notes.push("Nothing that can be taken back is known of it.".into());
        }
        Ok((result, amends, found.ends.map(|(_, new)| new)))
    }

    async fn revert_files(
        &self,
        found: &Found,
        paths: &[String],
        result: &mut RevertResult,
        amends: &mut Vec<Amend>,
    ) -> Result<(), SessionError> {
        let wanted = Wanted::new(&found.root, paths);
        for change in found.changes.iter().filter(|change| wanted.has_either(change)) {
            if let Some(doubt) = found.doubts.get(&change.path) {
                let path = path_text(&change.path);
                result.stays.push(Stays { path, why: doubt.why().into(), changed_since: false });
            }
        }
        cut(&mut result.stays, "files stay as they are", &mut result.notes);
        if let Some(ends) = &found.ends {
            self.restore(found, &wanted, ends, result, amends).await?;
        }
        for (path, delta) in found.told.iter().filter(|(path, _)| wanted.has(below(&found.root, path))) {
            let name = path_text(below(&found.root, path));
            if delta.broken == Broken::No {
                note(result, name, self.put_back(path, delta).await);
            } else {
                let why = Doubt::Others.why().into();
                result.stays.push(Stays { path: name, why, changed_since: false });
            }
        }
        Ok(())
    }

    /// Makes the files what they were in one tree, where they are as in the other.
    async fn restore(
        &self,
        found: &Found,
        wanted: &Wanted,
        (old, new): &(TreeId, TreeId),
        result: &mut RevertResult,
        amends: &mut Vec<Amend>,
    ) -> Result<(), SessionError> {
        // Both names of a renamed file.
        let only: Vec<PathBuf> = found
            .changes
            .iter()
            .filter(|change| wanted.has_either(change) && !found.doubts.contains_key(&change.path))
            .flat_map(|change| std::iter::once(&change.path).chain(&change.old_path).cloned())
            .collect();
        let place = Place { session: &self.session, root: &found.root };
        if only.is_empty() {
            return Ok(());
        }
        let only: HashSet<PathBuf> = only.into_iter().collect();
        let undo = Undo { only: Some(&only), made: &found.made, stay: &self.cwd };
        let restored = self.snapshots.restore(place, old, new, undo).await.map_err(unread)?;
        let done: HashSet<&PathBuf> = restored.done.iter().collect();
        let is_done = |path: &PathBuf| done.contains(path);
        amends.extend(
            found
                .changes
                .iter()
                .filter(|change| is_done(&change.path) && change.old_path.as_ref().is_none_or(is_done))
                .cloned()
                .map(Amend::Undone),
        );
        result.reverted.extend(restored.done.iter().map(|path| path_text(path)));
        result.stays.extend(restored.stays.into_iter().map(|stays| Stays {
            path: path_text(&stays.path),
            why: stays.why,
            changed_since: stays.changed_since,
        }));
        Ok(())
    }

    /// Puts back what a tool changed, from what was kept of it.
    async fn put_back(&self, path: &Path, delta: &ToolDelta) -> Result<(), PathError> {
        let kept = self.blob(delta.before, MAX_FILE).await;
        let (path, delta) = (path.to_owned(), delta.clone());
        crate::session::blocking(move || {
            let located = locate_entry(&path)?;
            let seen = located.seen()?;
            let executable = match (&seen, delta.after) {
                (SeenEntry::File { digest, executable }, Some(after)) if *digest == after => *executable,
                (SeenEntry::Absent, None) => false,
                _ => return Err(PathError::Changed { path }),
            };
            let entry = match (delta.before, kept) {
                (None, _) => Entry::Absent,
                (Some(_), Some(bytes)) => Entry::File { bytes, executable },
                (Some(_), None) => {
                    return Err(PathError::Unsupported { what: "its old content was too large to be kept" });
                }
            };
            located.put_entry(&entry, &seen)
        })
        .await
    }

    async fn revert_hunks(
        &self,
        found: &Found,
        hunks: &[HunkRef],
        result: &mut RevertResult,
        amends: &mut Vec<Amend>,
    ) -> Result<(), SessionError> {
        let mut files: Vec<&str> = hunks.iter().map(|hunk| hunk.path.as_str()).collect();
        files.sort_unstable();
        files.dedup();
        for file in files {
            let name = path_text(below(&found.root, Path::new(file)));
            let mut numbers: Vec<u32> =
                hunks.iter().filter(|hunk| hunk.path == file).map(|hunk| hunk.hunk).collect();
            // The last first, so that those before stay where they are.
            numbers.sort_unstable_by(|a, b| b.cmp(a));
            numbers.dedup();
            let Some((path, old, new)) = self.contents_of(found, file).await? else {
                return Err(SessionError::invalid("hunks", format!("{file} has no hunks in this span")));
            };
            let root = found.root.clone();
            let change = found.changes.iter().find(|change| change.path == path).cloned();
            let taken = crate::session::blocking(move || {
                let located =
                    if path.is_absolute() { locate_entry(&path) } else { locate_below(&root, &path) };
                without_hunks(&located?, &old, &new, &numbers)
            })
            .await;
            match taken {
                Ok(without) => {
                    amends.extend(change.map(|change| Amend::Holds(change, without)));
                    result.reverted.push(name);
                }
                Err(HunkTrouble::NoSuch(number)) => {
                    let text = format!("{file} has no hunk {number} in this span");
                    return Err(SessionError::invalid("hunks", text));
                }
                Err(HunkTrouble::Stays { why, changed_since }) => {
                    result.stays.push(Stays { path: name, why, changed_since });
                }
            }
        }
        Ok(())
    }

    /// A file of the span by the name that it is told by, with what it held before and after.
    async fn contents_of(
        &self,
        found: &Found,
        file: &str,
    ) -> Result<Option<(PathBuf, Vec<u8>, Vec<u8>)>, SessionError> {
        let wanted = path_text(below(&found.root, Path::new(file)));
        if let Some(change) = found.changes.iter().find(|change| path_text(&change.path) == wanted) {
            let place = Place { session: &self.session, root: &found.root };
            let some = std::slice::from_ref(change);
            let contents =
                self.snapshots.contents(place, some, MAX_FILE, 2 * MAX_FILE).await.map_err(unread)?;
            let both = contents.into_iter().next().and_then(|(old, new)| old.zip(new));
            return Ok(both.map(|(old, new)| (change.path.clone(), old, new)));
        }
        let told = found.told.iter().find(|(path, _)| path_text(below(&found.root, path)) == wanted);
        let Some((path, delta)) = told else { return Ok(None) };
        let old = self.blob(delta.before, MAX_FILE).await;
        let new = self.blob(delta.after, MAX_FILE).await;
        Ok(old.zip(new).map(|(old, new)| (path.clone(), old, new)))
    }
}

enum HunkTrouble {
    NoSuch(u32),
    Stays { why: String, changed_since: bool },
}

impl From<PathError> for HunkTrouble {
    fn from(error: PathError) -> Self {
        let changed_since = matches!(error, PathError::Changed { .. } | PathError::Missing { .. });
        HunkTrouble::Stays { why: error.explain(), changed_since }
    }
}

/// Writes the file as it is now, without these hunks of what lies between `old` and `new`. Gives what `new` is without
/// them.
fn without_hunks(located: &Located, old: &[u8], new: &[u8], numbers: &[u32]) -> Result<Vec<u8>, HunkTrouble> {
    let current = located.read(MAX_FILE)?;
    let hunks = compare(old, new).hunks.unwrap_or_default();
    let mut bytes = current.bytes.clone();
    let mut without = new.to_vec();
    for number in numbers {
        let index = (*number as usize).checked_sub(1);
        let Some(hunk) = index.and_then(|index| hunks.get(index)) else {
            return Err(HunkTrouble::NoSuch(*number));
        };
        match take_back(&bytes, old, new, hunk) {
            Ok(taken) => bytes = taken,
            Err(why) => {
                let why = format!("hunk {number}: {why}");
                return Err(HunkTrouble::Stays { why, changed_since: true });
            }
        }
        without = take_back(&without, old, new, hunk).unwrap_or(without);
    }
    located.replace(&bytes, Expected::Content(current.digest))?;
    Ok(without)
}

fn note(result: &mut RevertResult, path: String, put: Result<(), PathError>) {
    match put {
        Ok(()) => result.reverted.push(path),
        Err(PathError::Changed { .. }) => {
            result.stays.push(Stays { path, why: "somebody changed it since".into(), changed_since: true });
        }
        Err(error) => result.stays.push(Stays { path, why: error.explain(), changed_since: false }),
    }
}
