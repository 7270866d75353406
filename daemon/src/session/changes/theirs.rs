//! What others had made or changed and the session then destroyed, found along the snapshots of a span: what only the
//! ends of it do not show. Pure.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use crate::workspace::snapshot::{Change, Mode, Whose, path_text};

/// What came to differ from one snapshot to the next, each name for itself.
pub(super) struct Step {
    pub(super) changes: Vec<Change>,
    /// Absent: nobody knows whose these changes are.
    pub(super) whose: Option<Whose>,
}

/// A change of the session whose old side is not the session's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Over {
    pub(super) change: Change,
    /// The step that it happened in.
    pub(super) step: usize,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Theirs {
    /// All that came after is the session's: it is measured by what others left, and goes back to that. By path.
    pub(super) last: Vec<Over>,
    /// Somebody wrote there again since: only named.
    pub(super) earlier: Vec<Over>,
}

#[derive(Default)]
struct Place {
    /// The session's first change since others were there last.
    over: Option<Over>,
    /// What the session left.
    now: Option<(Mode, String)>,
}

impl Step {
    /// Names that somebody else may have changed. What is gone in a time that is not known went by the session: to put it
    /// back takes nothing away.
    fn others(&self) -> HashSet<String> {
        match &self.whose {
            Some(whose) => whose.others.iter().cloned().collect(),
            None => {
                let came = self.changes.iter().filter(|change| change.new_mode != Mode::Absent);
                came.map(|change| path_text(&change.path)).collect()
            }
        }
    }
}

pub(super) fn theirs(steps: Vec<Step>) -> Theirs {
    let mut places: BTreeMap<PathBuf, Place> = BTreeMap::new();
    let mut found = Theirs::default();
    for (index, step) in steps.into_iter().enumerate() {
        let others = step.others();
        for change in step.changes {
            if others.contains(&path_text(&change.path)) {
                let place = places.entry(change.path.clone()).or_default();
                let again = (change.new_mode, change.new);
                let over = place.over.take().filter(|over| {
                    over.change.old_mode != Mode::Absent && old_side(&over.change) != (again.0, &again.1)
                });
                found.earlier.extend(over);
            } else if let Some(place) = places.get_mut(&change.path) {
                place.now = Some((change.new_mode, change.new.clone()));
                place.over.get_or_insert(Over { change, step: index });
            }
        }
    }
    for place in places.into_values() {
        let Some(over) = place.over else { continue };
        // The session may have put it back itself.
        if place.now.as_ref().is_some_and(|(mode, object)| old_side(&over.change) != (*mode, object)) {
            found.last.push(over);
        }
    }
    found
}

fn old_side(change: &Change) -> (Mode, &String) {
    (change.old_mode, &change.old)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    type Disk = BTreeMap<&'static str, (Mode, String)>;

    const NAMES: [&str; 4] = ["a", "b", "d/x", "d/y"];

    #[derive(Clone, Debug)]
    enum Act {
        Write(usize, u8),
        Run(usize),
        Remove(usize),
        Move(usize, usize),
        Folder,
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            (0..4_usize, 0..3_u8).prop_map(|(name, text)| Act::Write(name, text)),
            (0..4_usize).prop_map(Act::Run),
            (0..4_usize).prop_map(Act::Remove),
            (0..4_usize, 0..4_usize).prop_map(|(from, to)| Act::Move(from, to)),
            Just(Act::Folder),
        ]
    }

    fn perform(disk: &mut Disk, act: &Act, who: &str) {
        match act {
            Act::Write(name, text) => {
                let mode = disk.get(NAMES[*name]).map_or(Mode::File, |(mode, _)| *mode);
                disk.insert(NAMES[*name], (mode, format!("{who}{text}")));
            }
            Act::Run(name) => {
                if let Some((mode, _)) = disk.get_mut(NAMES[*name]) {
                    *mode = if *mode == Mode::File { Mode::Executable } else { Mode::File };
                }
            }
            Act::Remove(name) => {
                disk.remove(NAMES[*name]);
            }
            Act::Move(from, to) => {
                if let Some(entry) = disk.remove(NAMES[*from]) {
                    disk.insert(NAMES[*to], entry);
                }
            }
            Act::Folder => disk.retain(|name, _| !name.starts_with("d/")),
        }
    }

    fn differ(old: &Disk, new: &Disk) -> Vec<Change> {
        let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
        let side = |disk: &Disk, name| disk.get(name).cloned().unwrap_or((Mode::Absent, String::new()));
        names
            .into_iter()
            .filter(|name| old.get(*name) != new.get(*name))
            .map(|name| {
                let ((old_mode, old), (new_mode, new)) = (side(old, name), side(new, name));
                Change { old, new, ..Change::of_modes(name, old_mode, new_mode) }
            })
            .collect()
    }

    fn step(old: &Disk, new: &Disk, others: bool) -> Step {
        let changes = differ(old, new);
        let others = changes.iter().filter(|_| others).map(|change| path_text(&change.path)).collect();
        Step { changes, whose: Some(Whose { others, ..Whose::default() }) }
    }

    proptest! {
        #[test]
        fn nothing_of_others_is_lost_unnamed_and_nothing_of_the_session_stays(
            acts in prop::collection::vec((any::<bool>(), act()), 0..24)
        ) {
            let first: Disk = [("a", (Mode::File, "0".to_owned())), ("d/x", (Mode::File, "0".to_owned()))].into();
            let (mut disk, mut steps, mut taken) = (first.clone(), Vec::new(), Vec::new());
            // What others left last, of each place that they touched, and whether it is theirs now.
            let mut left: BTreeMap<&str, Option<(Mode, String)>> = BTreeMap::new();
            for (others, act) in &acts {
                let before = disk.clone();
                perform(&mut disk, act, if *others { "person" } else { "session" });
                for change in differ(&before, &disk) {
                    let name = NAMES.into_iter().find(|name| change.path == Path::new(*name)).unwrap();
                    if *others {
                        // What they put back themselves is theirs again, to do with as they like.
                        taken.retain(|(of, theirs)| *of != name || disk.get(name) != Some(theirs));
                        left.insert(name, disk.get(name).cloned());
                    } else if let Some(Some(theirs)) = left.get(name)
                        && before.get(name) == Some(theirs)
                    {
                        taken.push((name, theirs.clone()));
                    }
                }
                steps.push(step(&before, &disk, *others));
            }
            let found = theirs(steps);
            // As a rewind does it: others' last word, else how it was.
            let mut after = disk.clone();
            for name in NAMES {
                let back = match found.last.iter().find(|over| over.change.path == Path::new(name)) {
                    Some(over) => Some((over.change.old_mode, over.change.old.clone())),
                    None if left.contains_key(name) => continue,
                    None => first.get(name).cloned(),
                };
                match back.filter(|(mode, _)| *mode != Mode::Absent) {
                    Some(entry) => after.insert(name, entry),
                    None => after.remove(name),
                };
            }
            for (name, theirs) in taken {
                let named = found.earlier.iter().any(|over| {
                    over.change.path == Path::new(name) && (over.change.old_mode, &over.change.old) == (theirs.0, &theirs.1)
                });
                prop_assert!(named || after.get(name) == Some(&theirs), "{name} {theirs:?}");
            }
            for name in NAMES {
                let theirs = left.get(name).cloned().unwrap_or_else(|| first.get(name).cloned());
                prop_assert_eq!(after.get(name), theirs.as_ref(), "{}", name);
            }
        }
    }

    #[test]
    fn where_nobody_knows_what_came_may_be_theirs_and_what_went_was_the_sessions() {
        let disk = |text: &str| -> Disk { [("a", (Mode::File, text.to_owned()))].into() };
        let unknown = |old: &Disk, new: &Disk| Step { whose: None, ..step(old, new, false) };
        let (a, b, none) = (disk("a"), disk("b"), Disk::new());
        let found = theirs(vec![unknown(&a, &b), unknown(&b, &none)]);
        assert_eq!((found.last.len(), found.earlier.len()), (1, 0));
        assert_eq!((&found.last[0].change.old[..], found.last[0].step), ("b", 1));
        let again = theirs(vec![unknown(&a, &b), step(&b, &a, false), unknown(&a, &disk("c"))]);
        assert_eq!((again.last.len(), again.earlier.len()), (0, 1));
    }
}
