//! What resets took out of a session's context and put back, so that going back past one finds what was there before it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::state::ContextItem;
use crate::ids::Seq;

/// Every reset that changed something, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resets(Vec<Reset>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Reset {
    at: Seq,
    removed: Vec<ContextItem>,
    restored: Vec<Seq>,
}

impl Resets {
    /// Makes `context` what `keep` names: of what is in it, and of what an earlier reset took out. Numbers of nothing are
    /// passed over.
    pub(super) fn reset(&mut self, context: &mut Vec<ContextItem>, keep: &[Seq], at: Seq) {
        let keep: BTreeSet<Seq> = keep.iter().copied().collect();
        let here: BTreeSet<Seq> = context.iter().map(|item| item.seq).collect();
        let back: Vec<ContextItem> =
            keep.difference(&here).filter_map(|seq| self.taken_out(*seq).cloned()).collect();
        let (kept, removed) = std::mem::take(context).into_iter().partition(|item| keep.contains(&item.seq));
        *context = kept;
        let restored: Vec<Seq> = back.iter().map(|item| item.seq).collect();
        context.extend(back);
        context.sort_by_key(|item| item.seq);
        if !(restored.is_empty() && Vec::is_empty(&removed)) {
            self.0.push(Reset { at, removed, restored });
        }
    }

    fn taken_out(&self, seq: Seq) -> Option<&ContextItem> {
        self.0.iter().rev().flat_map(|reset| &reset.removed).find(|item| item.seq == seq)
    }

    /// What the context was right before record `start`; `context` is what it is now.
    pub(super) fn before(&self, context: &[ContextItem], start: Seq) -> Vec<Seq> {
        let mut then: BTreeSet<Seq> = context.iter().map(|item| item.seq).collect();
        for reset in self.0.iter().rev().take_while(|reset| reset.at >= start) {
            for seq in &reset.restored {
                then.remove(seq);
            }
            then.extend(reset.removed.iter().map(|item| item.seq));
        }
        then.into_iter().filter(|seq| *seq < start).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::state::ContextKind;
    use super::*;
    use crate::journal::RecordRef;

    fn item(seq: u64) -> ContextItem {
        let place = RecordRef { offset: seq, len: 1, index: 0 };
        ContextItem { seq: Seq(seq), place, kind: ContextKind::Answer }
    }

    proptest! {
        /// Whatever was added and reset, every earlier context is found again, and can be gone back to.
        #[test]
        fn every_earlier_context_is_found_again(
            // Absent: a message. Else a reset that keeps what the bits say of all there ever was.
            does in prop::collection::vec(prop::option::weighted(0.3, prop::collection::vec(any::<bool>(), 40)), 0..40),
        ) {
            let (mut resets, mut context) = (Resets::default(), Vec::new());
            let mut before = Vec::new();
            for (seq, does) in (1..).zip(&does) {
                before.push(context.clone());
                match does {
                    None => context.push(item(seq)),
                    Some(bits) => {
                        let keep: Vec<Seq> = (0u64..).zip(bits).filter(|(_, bit)| **bit).map(|(n, _)| Seq(n)).collect();
                        resets.reset(&mut context, &keep, Seq(seq));
                        let known: Vec<_> = keep.iter().filter(|kept| {
                            kept.0 >= 1 && kept.0 < seq && does_add(&before, kept.0)
                        }).map(|kept| item(kept.0)).collect();
                        prop_assert_eq!(&context, &known);
                    }
                }
            }
            let end = before.len() as u64 + 1;
            for (start, was) in (1..).zip(&before) {
                let found = resets.before(&context, Seq(start));
                let expected: Vec<Seq> = was.iter().map(|item| item.seq).collect();
                prop_assert_eq!(&found, &expected, "before {}", start);
                let (mut resets, mut context) = (resets.clone(), context.clone());
                resets.reset(&mut context, &found, Seq(end));
                prop_assert_eq!(&context, was);
            }
        }
    }

    /// Whether record `seq` was a message: the context after it has it.
    fn does_add(before: &[Vec<ContextItem>], seq: u64) -> bool {
        before.iter().any(|context| context.iter().any(|item| item.seq.0 == seq))
    }
}
