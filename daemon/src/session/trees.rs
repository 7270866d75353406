//! Which snapshots of the work tree a session has: a fold over its records. The trees themselves lie in the session's
//! folder, see [`crate::workspace::snapshot`].

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::record::{Kept, Ran, TreeKept, When};
use crate::ids::{Seq, TurnId};
use crate::journal::RecordRef;
use crate::workspace::snapshot::{Since, TreeId, Window};

/// Windows since a snapshot that are told apart; a snapshot between comes long before.
const MAX_WINDOWS: usize = 4096;

/// Every turn with its snapshots, and where the last approved plan began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trees {
    /// Oldest first; the first is turn number 1.
    pub turns: Vec<TurnTrees>,
    pub plan: Option<PlanTree>,
    /// Where the session came out of a bundle. What its journal says of files before that comes from who knows where, and
    /// perhaps concerns another folder: nothing is told or taken back by it.
    pub imported: Option<Seq>,
    /// The newest snapshot, and when the session was at work since.
    pub since: Option<Since>,
    /// What the tool that runs has told of.
    pub told: Vec<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnTrees {
    pub turn: TurnId,
    /// Of the turn's first record.
    pub begun: Seq,
    /// Of its last one.
    pub ended: Option<Seq>,
    /// From before its first effect. Absent: it had none, or lies in no repository.
    pub before: Option<Tree>,
    /// Further ones before later effects, in order.
    pub between: Vec<Tree>,
    pub after: Option<Tree>,
    /// Whether a rewind made the model forget it. What it did to files is known all the same.
    pub forgotten: bool,
}

/// An approved plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanTree {
    pub approved: Seq,
    /// The turn that it was approved in, as an index.
    pub turn: usize,
    /// From before the first effect after the approval. Absent: there was none yet, or it lies in no repository.
    pub tree: Option<Tree>,
}

/// A snapshot, or that there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tree {
    /// Absent: it could not be taken; the record says why.
    pub id: Option<TreeId>,
    pub record: RecordRef,
}

impl TurnTrees {
    /// Without a first snapshot a second tells nothing.
    fn lacks_end(&self) -> bool {
        self.before.as_ref().is_some_and(|tree| tree.id.is_some()) && self.after.is_none()
    }
}

impl Trees {
    pub(super) fn turn_started(&mut self, turn: TurnId, seq: Seq) {
        self.turns.push(TurnTrees {
            turn,
            begun: seq,
            ended: None,
            before: None,
            between: Vec::new(),
            after: None,
            forgotten: false,
        });
    }

    pub(super) fn turn_finished(&mut self, turn: TurnId, seq: Seq) {
        if let Some(known) = self.find_mut(turn) {
            known.ended.get_or_insert(seq);
        }
    }

    pub(super) fn plan_approved(&mut self, seq: Seq) {
        self.plan = Some(PlanTree { approved: seq, turn: self.turns.len().saturating_sub(1), tree: None });
    }

    pub(super) fn kept(&mut self, kept: &TreeKept, record: RecordRef) {
        let id = match &kept.kept {
            Kept::Tree { root, tree, .. } => {
                let (root, tree) = (root.clone(), tree.clone());
                self.since = Some(Since { root, tree: tree.clone(), windows: Vec::new(), unsure: false });
                Some(tree)
            }
            // Nothing is known of how it is now, so what was known before still counts.
            Kept::Not { .. } => None,
        };
        let tree = Tree { id, record };
        let Some(known) = self.find_mut(kept.turn_id) else { return };
        match kept.when {
            When::Before => known.before = Some(tree.clone()),
            When::After => known.after = Some(tree.clone()),
            When::Plan | When::Between => known.between.push(tree.clone()),
        }
        // A tree from before effects is that of a plan which waits for one, too.
        if kept.when != When::After
            && let Some(plan) = self.plan.as_mut().filter(|plan| plan.tree.is_none())
        {
            plan.tree = Some(tree);
        }
    }

    /// The model forgets all that began with this record or after it.
    pub(super) fn rewound(&mut self, from: Seq) {
        for turn in self.turns.iter_mut().rev().take_while(|turn| turn.begun >= from) {
            turn.forgotten = true;
        }
    }

    /// A tool changed this file.
    pub(super) fn told(&mut self, path: &Path) {
        if self.since.is_some() {
            self.told.push(path.to_owned());
        }
    }

    /// A call with effects has ended.
    pub(super) fn ran(&mut self, ran: Option<Ran>) {
        let told = std::mem::take(&mut self.told);
        let Some(since) = &mut self.since else { return };
        match ran.filter(|_| since.windows.len() < MAX_WINDOWS) {
            Some(Ran { from, until, tells }) => {
                since.windows.push(Window { from, until, only: tells.then_some(told) });
            }
            None => since.unsure = true,
        }
    }

    /// The snapshots lie in the folder of the session that this one was forked from.
    pub(super) fn left_behind(&mut self) {
        for turn in &mut self.turns {
            (turn.before, turn.after) = (None, None);
            turn.between.clear();
        }
        (self.plan, self.since) = (None, None);
        self.told.clear();
    }

    fn find_mut(&mut self, turn: TurnId) -> Option<&mut TurnTrees> {
        self.turns.iter_mut().rfind(|known| known.turn == turn)
    }

    /// The snapshot that has to be taken before `turn`, which runs, has its next effect.
    #[must_use]
    pub fn wanted(&self, turn: TurnId) -> Option<When> {
        let known = self.turns.iter().rfind(|known| known.turn == turn)?;
        if known.before.is_none() {
            return Some(When::Before);
        }
        let waits = |plan: &PlanTree| plan.tree.is_none();
        self.plan.as_ref().is_some_and(waits).then_some(When::Plan)
    }

    /// The finished turn that lacks its second snapshot.
    #[must_use]
    pub fn owed(&self) -> Option<TurnId> {
        let last = self.turns.last()?;
        (last.ended.is_some() && last.lacks_end()).then_some(last.turn)
    }

    /// Whether `turn`, which is about to end, lacks its second snapshot.
    #[must_use]
    pub fn lacks_end(&self, turn: TurnId) -> bool {
        self.turns.last().is_some_and(|last| last.turn == turn && last.lacks_end())
    }

    /// Whether `turn` has its first snapshot.
    #[must_use]
    pub fn has_begun(&self, turn: TurnId) -> bool {
        let known = self.turns.iter().rfind(|known| known.turn == turn);
        known.and_then(|known| known.before.as_ref()).is_some_and(|tree| tree.id.is_some())
    }

    /// `turn` goes on to change things: what was kept of its end is none.
    pub(super) fn touched(&mut self, turn: TurnId) {
        if let Some(known) = self.find_mut(turn) {
            known.between.extend(known.after.take());
        }
    }
}
