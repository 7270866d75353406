//! What the tools themselves said that they changed: all that is known of files outside of a repository.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::ids::{Digest, Seq};
use crate::journal::{JournalError, JournalReader};
use crate::session::record::{Parsed, Record};

/// Bytes of journal read at a time.
const PAGE: u64 = 256 * 1024;

/// Records of a span.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// By true name; only those that differ in the end.
    pub(super) files: BTreeMap<PathBuf, ToolDelta>,
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
}

/// # Errors
/// The journal cannot be read.
pub(super) async fn told(
    reader: &JournalReader,
    after: Seq,
    until: Option<Seq>,
) -> Result<Told, JournalError> {
    let mut told = Told::default();
    let mut at = after;
    loop {
        let commits = reader.commits_after(at, PAGE).await?;
        let Some(last) = commits.last() else { break };
        let end = last.last();
        for commit in &commits {
            for (seq, raw) in commit.numbered() {
                if seq > after && until.is_none_or(|until| seq <= until) {
                    add(&mut told, raw);
                }
            }
        }
        at = end;
        if until.is_some_and(|until| end >= until) {
            break;
        }
    }
    told.files.retain(|_, delta| delta.before != delta.after);
    Ok(told)
}

fn add(told: &mut Told, raw: &serde_json::value::RawValue) {
    let Parsed::Known { record, .. } = Record::parse(raw) else { return };
    match *record {
        Record::FileChanged(changed) => {
            let fresh = ToolDelta { before: changed.before, ..ToolDelta::default() };
            let delta = told.files.entry(changed.path).or_insert(fresh);
            delta.after = changed.after;
            delta.added += u64::from(changed.added);
            delta.removed += u64::from(changed.removed);
        }
        Record::CallStarted(started) => told.effects |= started.effects,
        _ => {}
    }
}
