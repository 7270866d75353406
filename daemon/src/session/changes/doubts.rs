//! Whether a change is known to be the session's: what the digests of its tools prove, and what its snapshots say. Pure.

use std::collections::HashSet;
use std::path::Path;

use super::tools::{Broken, ToolDelta};
use crate::ids::Digest;
use crate::workspace::snapshot::{Change, Mode, path_text};

/// Why a change stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    Others,
    /// Nobody knows when the session was at work, or what was there before.
    Unsure,
}

impl Doubt {
    pub(super) fn why(self) -> &'static str {
        match self {
            Doubt::Others => {
                "somebody else changed it too, between or beside the turns; single hunks of it can be taken back"
            }
            Doubt::Unsure => {
                "how that turn ended is not known, so nobody can tell whether it was changed later; take back single \
                 hunks of it instead"
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// Byte for byte, from the first snapshot to the last.
    Own,
    /// As well, from before the first snapshot on.
    ToolOnly,
    /// Nothing of the session can have made what a tool found.
    Others,
}

/// `old`, `new`: what the snapshots hold; nothing is a file that is not there.
pub(super) fn prove(
    same_mode: bool,
    old: Option<Digest>,
    new: Option<Digest>,
    late: Option<&ToolDelta>,
    early: Option<&ToolDelta>,
) -> Option<Proof> {
    if let Some(early) = early {
        return (early.broken == Broken::No && early.after == new && same_mode).then_some(Proof::ToolOnly);
    }
    let late = late?;
    if late.broken == Broken::ByOthers || (late.before != old && !late.after_command) {
        return Some(Proof::Others);
    }
    let whole = late.broken == Broken::No && late.before == old && late.after == new;
    (whole && same_mode).then_some(Proof::Own)
}

#[derive(Default)]
pub(super) struct Doubts {
    pub(super) others: HashSet<String>,
    pub(super) unsure: HashSet<String>,
    /// Some snapshot does not say whose its changes are.
    pub(super) all_unsure: bool,
    pub(super) hidden: HashSet<String>,
    /// Some snapshot does not say what it left out.
    pub(super) hidden_unknown: bool,
}

impl Doubts {
    pub(super) fn is_hidden(&self, path: &Path) -> bool {
        !self.hidden.is_empty() && path.ancestors().any(|place| self.hidden.contains(&path_text(place)))
    }

    pub(super) fn of(&self, change: &Change, of_tool: Option<&ToolDelta>) -> Option<Doubt> {
        let names = || std::iter::once(&change.path).chain(&change.old_path).map(|path| path_text(path));
        let (mut others, mut unsure) = (false, false);
        for name in names() {
            others |= self.others.contains(&name);
            unsure |= self.unsure.contains(&name);
        }
        let came = change.new_mode != Mode::Absent;
        let was_absent = change.old_mode == Mode::Absent || change.old_path.is_some();
        if others || (came && self.is_hidden(&change.path)) {
            return Some(Doubt::Others);
        }
        // A file that a tool made was not there: the tool looked.
        let seen_absent = of_tool.is_some_and(|delta| delta.before.is_none() && !delta.after_command);
        let perhaps_there = came && was_absent && self.hidden_unknown && !seen_absent;
        (unsure || (self.all_unsure && came) || perhaps_there).then_some(Doubt::Unsure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::digest_of;

    #[test]
    fn only_a_whole_chain_of_digests_proves_a_file() {
        let digest = |text: &str| Some(digest_of(text.as_bytes()));
        let delta = |before: &str, after: &str| ToolDelta {
            before: digest(before),
            after: digest(after),
            ..ToolDelta::default()
        };
        let proof = |delta: &ToolDelta| prove(true, digest("old"), digest("new"), Some(delta), None);
        assert_eq!(proof(&delta("old", "new")), Some(Proof::Own));
        assert_eq!(prove(false, digest("old"), digest("new"), Some(&delta("old", "new")), None), None);
        // What a command left can be the tool's own, taken back in part, too: the snapshots decide.
        assert_eq!(proof(&delta("old", "x")), None);
        assert_eq!(proof(&delta("x", "new")), Some(Proof::Others));
        let after_command = ToolDelta { after_command: true, ..delta("x", "new") };
        assert_eq!(proof(&after_command), None);
        let broken = ToolDelta { broken: Broken::ByOthers, ..delta("old", "new") };
        assert_eq!(proof(&broken), Some(Proof::Others));
        let early = ToolDelta { early: true, ..delta("first", "new") };
        assert_eq!(prove(true, digest("old"), digest("new"), None, Some(&early)), Some(Proof::ToolOnly));
        assert_eq!(prove(true, digest("old"), digest("x"), None, Some(&early)), None);
    }

    #[test]
    fn where_nothing_is_known_only_what_tools_saw_is_the_sessions() {
        let change = |old, new| Change::of_modes("a", old, new);
        let (added, modified) = (change(Mode::Absent, Mode::File), change(Mode::File, Mode::File));
        let deleted = change(Mode::File, Mode::Absent);
        let old = Doubts { all_unsure: true, ..Doubts::default() };
        assert_eq!(old.of(&modified, None), Some(Doubt::Unsure));
        assert_eq!(old.of(&deleted, None), None);
        let blind = Doubts { hidden_unknown: true, ..Doubts::default() };
        assert_eq!((blind.of(&added, None), blind.of(&modified, None)), (Some(Doubt::Unsure), None));
        assert_eq!(blind.of(&added, Some(&ToolDelta::default())), None);
        let others = Doubts { others: ["a".to_owned()].into_iter().collect(), ..Doubts::default() };
        assert_eq!(others.of(&deleted, None), Some(Doubt::Others));
    }

    #[test]
    fn what_lies_at_or_below_a_hidden_place_was_not_absent() {
        let doubts = Doubts {
            hidden: ["build".to_owned(), "a/.env".to_owned()].into_iter().collect(),
            ..Doubts::default()
        };
        for (path, hidden) in
            [("build", true), ("build/x/y", true), ("a/.env", true), ("builder", false), ("a/b", false)]
        {
            assert_eq!(doubts.is_hidden(Path::new(path)), hidden, "{path}");
        }
    }
}
