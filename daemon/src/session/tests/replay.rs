//! A session's state comes from its journal and from nothing else: whatever was recorded, in whatever commits, and
//! wherever the file was cut or damaged.

use std::path::PathBuf;

use proptest::prelude::*;

use super::super::load::load_from;
use super::super::project::{row, view};
use super::super::recover::recover;
use super::super::step::{Step, next_step};
use super::fold::{picks, records};
use super::*;
use crate::journal::{Durability, FILE_NAME, Journal, JournalService};

/// A session that was written to a real journal, and its live state after each commit.
struct Written {
    root: tempfile::TempDir,
    journals: Arc<JournalService>,
    id: SessionId,
    /// Where each commit ends in the file, and the state then.
    states: Vec<(u64, SessionState)>,
}

impl Written {
    async fn new(cast: &Cast, commits: &[Vec<Record>]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let journals = JournalService::start().unwrap();
        let mut journal = journals.create(root.path().join("one"), []).await.unwrap().0;
        let mut states = Vec::new();
        let created = cast.created();
        let end = append(&mut journal, &[created.clone().into()], |_, _, _| {}).await;
        let mut live = SessionState::new(created, Seq(1), at(0));
        states.push((end, live.clone()));
        for (index, commit) in commits.iter().enumerate() {
            let end =
                append(&mut journal, commit, |seq, place, record| live.apply(seq, at(0), place, record));
            let end = end.await;
            states.push((end, live.clone()));
            if index == commits.len() / 2 {
                let mark = journal.mark().await.unwrap().unwrap();
                let sealed = super::super::checkpoint::seal(mark, &live).unwrap();
                journals.keep_beside(root.path().join("one"), sealed).await.unwrap();
            }
        }
        Self { root, journals, id: cast.session, states }
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("one")
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.dir().join(FILE_NAME)).unwrap()
    }

    fn overwrite(&self, bytes: &[u8]) {
        std::fs::write(self.dir().join(FILE_NAME), bytes).unwrap();
    }

    /// The state by every way there is to come by it, each with its name: from the checkpoint after half of the commits, if
    /// it still fits, and from the whole journal. They have to agree.
    async fn loaded(&self) -> Vec<(&'static str, Option<SessionState>)> {
        let (kept, away) = (self.dir().join("state.json"), self.dir().join("away"));
        let load = async || {
            let loaded = load_from(&self.journals, self.dir(), self.id).await;
            loaded.ok().map(|loaded| loaded.state)
        };
        let mut ways = Vec::new();
        if kept.exists() {
            ways.push(("the checkpoint and the rest", load().await));
            std::fs::rename(&kept, &away).unwrap();
            ways.push(("the whole journal", load().await));
            std::fs::rename(&away, &kept).unwrap();
        } else {
            ways.push(("the whole journal", load().await));
        }
        ways
    }
}

/// Adds a commit; `each` is told where its records came to lie. Answers where it ends.
async fn append(
    journal: &mut Journal,
    commit: &[Record],
    mut each: impl FnMut(Seq, RecordRef, &Record),
) -> u64 {
    let raw = commit.iter().map(|record| record.to_raw(None)).collect();
    let appended = journal.append(journal.next_seq(), at(0), raw, Durability::Written).await.unwrap();
    for (index, record) in (0u32..).zip(commit) {
        each(Seq(appended.first.0 + u64::from(index)), appended.place.record(index), record);
    }
    appended.place.offset + u64::from(appended.place.len)
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(test)
}

/// Cuts a history into commits of the given sizes, and one for the rest.
fn in_commits(mut records: Vec<Record>, sizes: &[usize]) -> Vec<Vec<Record>> {
    let mut commits = Vec::new();
    for size in sizes {
        let rest = records.split_off((*size).min(records.len()));
        commits.push(std::mem::replace(&mut records, rest));
    }
    commits.push(records);
    commits.retain(|commit| !commit.is_empty());
    commits
}

/// Every history that the simulated engine can have: replayed from any commit on, it is the live one, and a restart there
/// finds something to do or somebody to wait for.
pub(super) fn replays(cast: &Cast, commits: &[Vec<Record>]) {
    run(async {
        let written = Written::new(cast, commits).await;
        let bytes = written.bytes();
        for (end, live) in written.states.iter().rev() {
            written.overwrite(&bytes[..usize::try_from(*end).unwrap()]);
            for (way, state) in written.loaded().await {
                let mut state = state.unwrap_or_else(|| panic!("{way} cannot be loaded"));
                assert_eq!(&state, live, "by {way}");
                fold(&mut state, &recover(live));
                assert_ne!(next_step(&state), Step::Busy, "nothing runs after a restart");
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Arbitrary records, cut at an arbitrary byte: the state is that after the last whole commit.
    #[test]
    fn a_cut_journal_gives_the_state_before_the_cut(
        picks in picks(),
        sizes in prop::collection::vec(1usize..6, 0..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let cast = Cast::new();
        let commits = in_commits(records(&cast, &picks), &sizes);
        run(async {
            let written = Written::new(&cast, &commits).await;
            let bytes = written.bytes();
            let cut = cut.index(bytes.len() + 1);
            written.overwrite(&bytes[..cut]);
            let before = written.states.iter().rev().find(|(end, _)| *end <= cut as u64);
            for (way, state) in written.loaded().await {
                assert_eq!(state.as_ref(), before.map(|(_, state)| state), "by {way}, cut at {cut}");
            }
        });
    }

    /// Arbitrary bytes anywhere: nothing panics, and what was before them still counts.
    #[test]
    fn a_damaged_journal_loads_with_what_was_before_the_damage(
        picks in picks(),
        place in any::<prop::sample::Index>(),
        junk in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
        replaced in 0usize..200,
    ) {
        let cast = Cast::new();
        let commits = in_commits(records(&cast, &picks), &[1; 80]);
        // What comes before a fork does not count after it.
        let forks = commits.iter().flatten().any(|record| matches!(record, Record::SessionForked(_)));
        run(async {
            let written = Written::new(&cast, &commits).await;
            let bytes = written.bytes();
            let place = place.index(bytes.len() + 1);
            let rest = &bytes[(place + replaced).min(bytes.len())..];
            written.overwrite(&[&bytes[..place], &junk, rest].concat());
            let before = written.states.iter().rev().find(|(end, _)| *end <= place as u64);
            for (way, state) in written.loaded().await {
                if let Some((_, before)) = before {
                    let state = state.as_ref().unwrap_or_else(|| panic!("{way} cannot be loaded"));
                    assert!(state.head >= before.head, "by {way}");
                    if forks {
                        continue;
                    }
                    assert!(before.prompts.keys().all(|prompt| state.prompts.contains_key(prompt)), "by {way}");
                    assert!(before.settled.iter().all(|settled| state.settled.contains(settled)), "by {way}");
                }
                if let Some(state) = state {
                    let _ = (view(&state, None), row(&state), recover(&state), next_step(&state));
                }
            }
        });
    }
}
