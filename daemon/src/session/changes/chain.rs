//! The snapshots of a span that can be compared with each other.

use std::path::{Path, PathBuf};

use crate::ids::TurnId;
use crate::journal::RecordRef;
use crate::session::record::{Json, Kept, TreeKept};
use crate::workspace::snapshot::{Taken, TreeId};

/// One snapshot.
pub(super) struct Point {
    root: PathBuf,
    pub(super) tree: TreeId,
    /// Absent: it is a look at how it is now.
    pub(super) record: Option<RecordRef>,
    /// The turn that it was taken for; absent as well.
    pub(super) turn: Option<TurnId>,
    pub(super) left_out: Option<Json>,
    pub(super) hidden: Option<Json>,
    pub(super) whose: Option<Json>,
    pub(super) looked: Option<Taken>,
}

impl Point {
    pub(super) fn of(record: RecordRef, kept: TreeKept) -> Option<Self> {
        let turn = Some(kept.turn_id);
        let Kept::Tree { root, tree, left_out, hidden, whose } = kept.kept else { return None };
        Some(Self { root, tree, record: Some(record), turn, left_out, hidden, whose, looked: None })
    }

    pub(super) fn now(taken: Taken) -> Self {
        let (root, tree) = (taken.root.clone(), taken.tree.clone());
        let (record, turn, left_out, hidden, whose) = (None, None, None, None, None);
        Self { root, tree, record, turn, left_out, hidden, whose, looked: Some(taken) }
    }
}

/// The newest of them that are of one work tree; never none.
pub(super) struct Chain(Vec<Point>);

impl Chain {
    /// A repository may have come or gone in the middle: what was before is not compared with what came after.
    pub(super) fn new(mut points: Vec<Point>) -> Option<Self> {
        let root = points.last()?.root.clone();
        let start = points.iter().rposition(|point| point.root != root).map_or(0, |index| index + 1);
        points.drain(..start);
        Some(Self(points))
    }

    pub(super) fn points(&self) -> &[Point] {
        &self.0
    }

    pub(super) fn root(&self) -> &Path {
        &self.0[0].root
    }

    pub(super) fn first(&self) -> &Point {
        &self.0[0]
    }

    pub(super) fn last(&self) -> &Point {
        &self.0[self.0.len() - 1]
    }
}
