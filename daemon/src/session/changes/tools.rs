//! What the tools themselves said that they changed: all that is known of files outside of a repository.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use crate::ids::{CallId, Digest, Seq};
use crate::journal::{JournalError, JournalReader, RecordRef};
use crate::session::record::{FileChanged, Parsed, Record};

/// Bytes of journal read at a time.
const PAGE: u64 = 256 * 1024;

/// Records of a span.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// By true name; only those that differ in the end.
    pub(super) files: BTreeMap<PathBuf, ToolDelta>,
    /// Those that changed after the snapshot that the span's begin with, whether or not they differ in the end.
    pub(super) late: BTreeMap<PathBuf, ToolDelta>,
    /// Whether a command began before that snapshot.
    pub(super) commands_before: bool,
    /// Whether any call with effects began.
    pub(super) effects: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ToolDelta {
    /// What the file held before the first change; absent: there was none.
    pub(super) before: Option<Digest>,
    pub(super) after: Option<Digest>,
    /// Lines, of all changes together.
    pub(super) added: u64,
    pub(super) removed: u64,
    /// It was changed otherwise in between: a tool found something else than the one before it had left.
    pub(super) broken: Broken,
    /// It changed before the first snapshot, too.
    pub(super) early: bool,
    /// A command ran before the first change.
    pub(super) after_command: bool,
    /// How many commands had run at the last change.
    pub(super) commands: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Broken {
    #[default]
    No,
    /// A command ran in between.
    Perhaps,
    /// Nothing of the session can have done it.
    ByOthers,
}

impl ToolDelta {
    fn add(&mut self, changed: &FileChanged, commands: u64) {
        if self.after != changed.before {
            let broken = if self.commands == commands { Broken::ByOthers } else { Broken::Perhaps };
            self.broken = self.broken.max(broken);
        }
        self.after = changed.after;
        self.added += u64::from(changed.added);
        self.removed += u64::from(changed.removed);
        self.commands = commands;
    }

    fn begin(changed: &FileChanged, commands: u64) -> Self {
        Self {
            before: changed.before,
            after: changed.before,
            after_command: commands > 0,
            commands,
            ..Self::default()
        }
    }
}

/// What the tools tell from `after` to `until`. `first`: the snapshot that the span's begin with; absent: there is none.
/// `marks`: files of which only what comes after that record counts.
///
/// # Errors
/// The journal cannot be read.
pub(super) async fn told(
    reader: &JournalReader,
    after: Seq,
    until: Option<Seq>,
    first: Option<RecordRef>,
    marks: &[(RecordRef, PathBuf)],
) -> Result<Told, JournalError> {
    let mut telling = Telling { first_seen: first.is_none(), ..Telling::default() };
    let mut at = after;
    let mut anew: HashMap<(u64, u32), Vec<&PathBuf>> = HashMap::new();
    for (mark, path) in marks {
        anew.entry((mark.offset, mark.index)).or_default().push(path);
    }
    loop {
        let commits = reader.commits_after(at, PAGE).await?;
        let Some(last) = commits.last() else { break };
        let end = last.last();
        for commit in &commits {
            for (index, (seq, raw)) in (0u32..).zip(commit.numbered()) {
                if seq > after && until.is_none_or(|until| seq <= until) {
                    telling.add(raw);
                }
                let place = commit.place.record(index);
                if first == Some(place) {
                    telling.begin_late();
                }
                for path in anew.remove(&(place.offset, place.index)).into_iter().flatten() {
                    telling.begin_anew(path.clone());
                }
            }
        }
        at = end;
        if until.is_some_and(|until| end >= until) {
            break;
        }
    }
    let mut told = telling.told;
    told.files.retain(|_, delta| delta.before != delta.after);
    Ok(told)
}

#[derive(Default)]
struct Telling {
    told: Told,
    first_seen: bool,
    /// Commands since the span, or the first snapshot, began.
    pub(super) commands: u64,
    commands_late: u64,
    /// Files that begin anew, with both counts of then.
    anew: HashMap<PathBuf, (u64, u64)>,
    /// Calls with effects that run; those of tools that tell everything are no commands.
    open: BTreeSet<CallId>,
}

impl Telling {
    fn begin_late(&mut self) {
        self.first_seen = true;
        self.told.commands_before = self.commands > 0 || !self.open.is_empty();
    }

    fn begin_anew(&mut self, path: PathBuf) {
        self.told.files.remove(&path);
        self.told.late.remove(&path);
        self.anew.insert(path, (self.commands, self.commands_late));
    }

    fn add(&mut self, raw: &serde_json::value::RawValue) {
        let Parsed::Known { record, .. } = Record::parse(raw) else { return };
        match *record {
            Record::FileChanged(changed) => {
                let before = self.anew.get(&changed.path).copied().unwrap_or_default();
                let (all, late) = (self.commands - before.0, self.commands_late - before.1);
                let early = !self.first_seen;
                let delta = self.told.files.entry(changed.path.clone());
                let delta = delta.or_insert_with(|| ToolDelta { early, ..ToolDelta::begin(&changed, all) });
                delta.add(&changed, all);
                if self.first_seen {
                    let delta = self.told.late.entry(changed.path.clone());
                    delta.or_insert_with(|| ToolDelta::begin(&changed, late)).add(&changed, late);
                }
            }
            Record::CallStarted(started) if started.effects => {
                self.told.effects = true;
                self.open.insert(started.call_id);
            }
            Record::CallFinished(finished) => {
                let command = !finished.ran.is_some_and(|ran| ran.tells);
                if self.open.remove(&finished.call_id) && command {
                    self.commands += 1;
                    self.commands_late += u64::from(self.first_seen);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{SessionId, digest_of};
    use crate::session::record::{Body, CallFinished, CallStarted, Ran};
    use agentd_protocol::event::ToolStatus;

    fn call(telling: &mut Telling, tells: bool, change: Option<(&str, &str)>) {
        let call_id = CallId::generate(SessionId::generate());
        telling.add(&Record::from(CallStarted { call_id: call_id.clone(), effects: true }).to_raw(None));
        if let Some((before, after)) = change {
            let changed = FileChanged {
                call_id: call_id.clone(),
                path: "/w/a".into(),
                before: Some(digest_of(before.as_bytes())),
                after: Some(digest_of(after.as_bytes())),
                added: 1,
                removed: 1,
            };
            telling.add(&Record::from(changed).to_raw(None));
        }
        let finished = CallFinished {
            call_id,
            status: ToolStatus::Ok,
            reason: None,
            content: Body::Inline(String::new()),
            diff: None,
            reads: Vec::new(),
            ran: Some(Ran { from: 1, until: 2, tells }),
        };
        telling.add(&Record::from(finished).to_raw(None));
    }

    fn of(steps: &[(bool, Option<(&str, &str)>)]) -> ToolDelta {
        let mut telling = Telling { first_seen: true, ..Telling::default() };
        steps.iter().for_each(|(tells, change)| call(&mut telling, *tells, *change));
        assert_eq!(telling.told.files, telling.told.late);
        telling.told.files.into_values().next().unwrap()
    }

    #[test]
    fn a_chain_of_digests_shows_whether_somebody_came_between() {
        let unbroken = of(&[(true, Some(("0", "1"))), (true, Some(("1", "2")))]);
        assert_eq!((unbroken.broken, unbroken.before), (Broken::No, Some(digest_of(b"0"))));
        let person = of(&[(true, Some(("0", "1"))), (true, Some(("x", "2")))]);
        assert_eq!(person.broken, Broken::ByOthers);
        let command = of(&[(true, Some(("0", "1"))), (false, None), (true, Some(("x", "2")))]);
        assert_eq!((command.broken, command.after_command), (Broken::Perhaps, false));
        assert!(of(&[(false, None), (true, Some(("0", "1")))]).after_command);
    }

    #[test]
    fn of_a_file_that_begins_anew_only_what_follows_counts() {
        let mut telling = Telling { first_seen: true, ..Telling::default() };
        call(&mut telling, true, Some(("0", "1")));
        call(&mut telling, false, None);
        telling.begin_anew("/w/a".into());
        call(&mut telling, true, Some(("x", "2")));
        let delta = &telling.told.late[&PathBuf::from("/w/a")];
        assert_eq!((delta.before, delta.broken), (Some(digest_of(b"x")), Broken::No));
        assert!(!delta.after_command);
    }

    #[test]
    fn what_came_before_the_first_snapshot_is_told_apart() {
        let mut telling = Telling::default();
        call(&mut telling, true, Some(("0", "1")));
        telling.begin_late();
        assert!(!telling.told.commands_before);
        call(&mut telling, true, Some(("1", "2")));
        let told = telling.told;
        let (all, late) = (&told.files[&PathBuf::from("/w/a")], &told.late[&PathBuf::from("/w/a")]);
        assert!(all.early && !late.early);
        assert_eq!((all.before, late.before), (Some(digest_of(b"0")), Some(digest_of(b"1"))));
    }
}
