//! What readers of a journal share with its writer: how far it is acknowledged, and a sparse table from numbers to
//! offsets, so that reading from the middle does not begin at the start.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::{BadLine, Place, Reach};
use crate::ids::Seq;

/// One point of the table for so many bytes of the journal.
const SPACING: u64 = 64 << 10;

/// Never held while anything waits.
#[derive(Debug)]
pub(super) struct SharedIndex(Mutex<Index>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Index {
    /// The number that the next record gets.
    pub(super) next: Seq,
    /// Bytes that are acknowledged; nothing after them is read.
    pub(super) len: u64,
    /// Lines in them, bad ones included.
    pub(super) lines: u64,
    /// The newest commit.
    pub(super) last: Option<Place>,
    /// Rising in both.
    points: Vec<(Seq, u64)>,
    /// Sorted, apart; set once, when the journal is opened.
    bad: Vec<BadLine>,
    /// Numbers that no commit carries; set once, when the journal is opened.
    pub(super) missing: Vec<(Seq, Seq)>,
}

impl Index {
    pub(super) fn new() -> Self {
        Self {
            next: Seq(1),
            len: 0,
            lines: 0,
            last: None,
            points: Vec::new(),
            bad: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// What is known of a journal of which only the end is read.
    pub(super) fn beginning_at(reach: Reach) -> Self {
        Self { next: reach.next, len: reach.bytes, ..Self::new() }
    }

    /// A commit is in the file.
    pub(super) fn add(&mut self, first: Seq, last: Seq, place: Place) {
        let due = self.points.last().is_none_or(|(_, offset)| place.offset - offset >= SPACING);
        if due {
            self.points.push((first, place.offset));
        }
        self.next = Seq(last.0 + 1);
        self.len = place.offset + u64::from(place.len);
        self.lines += 1;
        self.last = Some(place);
    }

    pub(super) fn set_bad(&mut self, bad: Vec<BadLine>) {
        self.bad = bad;
    }

    pub(super) fn bad(&self) -> &[BadLine] {
        &self.bad
    }

    /// Where to begin reading for the commit that holds `seq`.
    pub(super) fn offset_for(&self, seq: Seq) -> u64 {
        let after = self.points.partition_point(|(first, _)| *first <= seq);
        after.checked_sub(1).map_or(0, |i| self.points[i].1)
    }

    /// How many points begin before `seq`.
    pub(super) fn points_before(&self, seq: Seq) -> usize {
        self.points.partition_point(|(first, _)| *first < seq)
    }

    /// Where the lines from a point on begin, and where those of the next one do. Empty for a point that there is not.
    pub(super) fn segment(&self, point: usize) -> (u64, u64) {
        let offset = |point: usize| self.points.get(point).map_or(self.len, |(_, offset)| *offset);
        (offset(point), offset(point + 1))
    }

    /// The bad lines in `from..to`, which are borders of lines. A copy: readers keep no lock.
    pub(super) fn bad_between(&self, from: u64, to: u64) -> Vec<BadLine> {
        let first = self.bad.partition_point(|line| line.offset < from);
        let count = self.bad[first..].partition_point(|line| line.offset < to);
        self.bad[first..first + count].to_vec()
    }
}

impl SharedIndex {
    pub(super) fn new(index: Index) -> Self {
        Self(Mutex::new(index))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Index> {
        // Each change is a few assignments that cannot stop half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_begins_at_or_before_the_commit_sought() {
        let mut index = Index::new();
        let len = 40 << 10;
        for i in 0..100u32 {
            let first = Seq(u64::from(i) * 3 + 1);
            index.add(first, Seq(first.0 + 2), Place { offset: u64::from(i * len), len });
        }
        assert_eq!(index.points.len(), 50, "one point for 64 KiB, not one a commit");
        assert_eq!(index.offset_for(Seq(0)), 0);
        assert_eq!(index.offset_for(Seq(1)), 0);
        for i in 0..100u64 {
            let offset = index.offset_for(Seq(i * 3 + 2));
            let wanted = i * u64::from(len);
            assert!(offset <= wanted && wanted - offset < 2 * SPACING, "{offset} for {wanted}");
        }
        assert_eq!(index.next, Seq(301));
    }
}
