//! Where to read what persons typed: for the classifier of mode `auto`, which is told nothing else of a conversation. Prompts
//! that a turn has taken, and what they said when they denied something.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::ids::Seq;
use crate::journal::RecordRef;

/// Texts that are known. Of them as many are told as there is room for, the newest first.
const MAX: usize = 20;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spoken(VecDeque<Place>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    /// When it came to count.
    seq: Seq,
    place: RecordRef,
}

impl Spoken {
    pub(super) fn said(&mut self, seq: Seq, place: RecordRef) {
        self.0.push_back(Place { seq, place });
        if self.0.len() > MAX {
            self.0.pop_front();
        }
    }

    /// What was said from there on is forgotten.
    pub(super) fn rewound(&mut self, from: Seq) {
        self.0.retain(|place| place.seq < from);
    }

    /// The session comes out of a bundle: what stands in there as a person's words may be anybody's.
    pub(super) fn left_behind(&mut self) {
        self.0.clear();
    }

    /// Oldest first.
    #[must_use]
    pub fn places(&self) -> Vec<RecordRef> {
        self.0.iter().map(|place| place.place).collect()
    }
}
