//! What a span's changes are measured by: the tree of its first snapshot, but for files that others changed and the
//! session after them. Those are measured by what others left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::View;
use super::chain::Chain;
use super::theirs::{Over, Step, theirs};
use crate::ids::TurnId;
use crate::journal::RecordRef;
use crate::workspace::snapshot::{
    Amend, Change, Kept as Place, Mode, SnapshotError, TreeId, Whose, path_text,
};

/// Files that are named one by one.
const MAX_NAMED: usize = 50;

pub(super) struct Base {
    pub(super) tree: TreeId,
    /// Files that are measured by what others left, and the record of the snapshot which holds that.
    pub(super) marks: Vec<(RecordRef, PathBuf)>,
    last: BTreeMap<PathBuf, Over>,
    earlier: Vec<Over>,
}

impl Base {
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.last.keys().map(PathBuf::as_path)
    }

    /// Whether this file was moved away from a place that others had last.
    pub(super) fn holds_old(&self, change: &Change) -> bool {
        change.old_path.as_ref().is_some_and(|old| self.last.contains_key(old))
    }
}

impl View {
    /// `whose`: of each snapshot but the first.
    pub(super) async fn base(&self, chain: &Chain, whose: &[Option<Whose>]) -> Result<Base, SnapshotError> {
        let plain = |tree: &TreeId| Base {
            tree: tree.clone(),
            marks: Vec::new(),
            last: BTreeMap::new(),
            earlier: Vec::new(),
        };
        let first = &chain.first().tree;
        // Before others did anything there is nothing of theirs to be destroyed.
        let has_others = |whose: &Option<Whose>| whose.as_ref().is_none_or(|whose| !whose.others.is_empty());
        let Some(start) = whose.iter().position(has_others) else { return Ok(plain(first)) };
        let place = Place { session: &self.session, root: chain.root() };
        let trees: Vec<TreeId> = chain.points()[start..].iter().map(|point| point.tree.clone()).collect();
        let steps = self.snapshots.steps(place, &trees).await?;
        let steps = steps.into_iter().zip(&whose[start..]);
        let steps = steps.map(|(changes, whose)| Step { changes, whose: whose.clone() }).collect();
        let mut found = crate::session::blocking(move || theirs(steps)).await;
        for over in found.last.iter_mut().chain(&mut found.earlier) {
            over.step += start;
        }
        if found.last.is_empty() {
            return Ok(Base { earlier: found.earlier, ..plain(first) });
        }
        let amends = found.last.iter().map(|over| Amend::Undone(over.change.clone())).collect();
        let tree = self.snapshots.amend(place, first, amends).await?;
        let mark =
            |over: &Over| Some((chain.points()[over.step].record?, chain.root().join(&over.change.path)));
        Ok(Base {
            tree,
            marks: found.last.iter().filter_map(mark).collect(),
            last: found.last.into_iter().map(|over| (over.change.path.clone(), over)).collect(),
            earlier: found.earlier,
        })
    }

    /// What a person should know of it.
    pub(super) fn notes_of(&self, base: &Base, chain: &Chain) -> Vec<String> {
        let turn = |over: &Over| chain.points()[over.step].turn;
        let said = |over: &Over| {
            let number = turn(over).and_then(|turn| self.number(turn));
            let by = number.map_or("the session".to_owned(), |number| format!("turn {number}"));
            let done = if over.change.new_mode == Mode::Absent { "removed" } else { "changed" };
            (path_text(&over.change.path), format!("{done} by {by}"), number)
        };
        let one_turn = chain.points().iter().filter_map(|point| point.turn).collect::<Vec<_>>();
        let one_turn = one_turn.windows(2).all(|pair| pair[0] == pair[1]);
        let last = base.last.values().map(|over| {
            let (path, done, _) = said(over);
            let theirs = if over.change.old_mode == Mode::Absent { "removed" } else { "made or changed" };
            format!(
                "{path} was {theirs} by others, then {done}: it is compared with what others left, and \
                 goes back to that unless somebody changed it since."
            )
        });
        let earlier = base.earlier.iter().map(|over| {
            let (path, done, number) = said(over);
            let command = match number {
                Some(number) if !one_turn => format!("agentctl diff --turn {number}"),
                _ => {
                    let place = Place { session: &self.session, root: chain.root() };
                    let folder = self.snapshots.folder(place);
                    format!("git --git-dir='{}' cat-file blob {}", folder.display(), over.change.old)
                }
            };
            format!(
                "{path} was made or changed by others, {done}, then changed by others again: to see what it held \
                 before that turn, run `{command}`."
            )
        });
        let count = base.last.len() + base.earlier.len();
        let mut notes: Vec<String> = earlier.chain(last).take(MAX_NAMED).collect();
        if count > MAX_NAMED {
            notes.push(format!(
                "{} more such files; ask for single turns to see them named.",
                count - MAX_NAMED
            ));
        }
        notes
    }

    fn number(&self, turn: TurnId) -> Option<usize> {
        self.trees.turns.iter().position(|known| known.turn == turn).map(|index| index + 1)
    }
}
