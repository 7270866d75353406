//! Giving a session away: everything of it that belongs to it goes into a bundle, and then the session is the bundle's.
//!
//! The order is what keeps it from having two owners or none, whenever the daemon dies: the bundle is whole and on the disk
//! under a temporary name; the journal says, synced, that the session was handed over; the bundle gets its name. Before the
//! journal says so the session is here. From then on it is the bundle's, which can be written again at any time, byte for
//! byte, because the record is the end of the journal inside it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentd_protocol::transfer::{self, ExportParams};
use agentd_protocol::{Mode, Timestamp};
use serde_json::Value;

use super::actor::Session;
use super::blocking;
use super::command::{Caller, Snapshot};
use super::commit::storage;
use super::deps::Deps;
use super::error::{Changed, SessionError};
use super::fork::last_rest;
use super::heir::unstored;
use super::import::{Doubt, would_be_taken};
use super::record::{BundleNamed, HandedOver, Record};
use super::state;
use crate::ids::{Digest, Seq};
use crate::journal::bundle::{self, About, BundleError, Packed, Packing};
use crate::journal::{Commit, JournalReader};

/// What this version of agentd calls itself in a bundle.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Bytes of journal that are looked through at a time.
const PAGE: u64 = 1024 * 1024;

/// A bundle that is whole, and what the session has to be for it to be given away with it.
pub struct Handing {
    pub packed: Packed,
    pub target: PathBuf,
    pub replace: bool,
    /// The record that the bundle ends with, and its time. Absent: the session was handed over before.
    pub record: Option<(Timestamp, HandedOver)>,
    /// The number of the last record before it.
    pub head: Seq,
    /// Bytes of journal before it.
    pub journal: u64,
}

/// Where a bundle is to be written: a folder that exists, by its true name, and a name in it.
///
/// # Errors
/// The path is not absolute, its folder is missing, or agentd's own.
pub async fn target(deps: &Arc<Deps>, typed: &str) -> Result<PathBuf, SessionError> {
    let path = Path::new(typed);
    let invalid = |why: String| SessionError::invalid("path", why);
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(invalid(format!("{typed} names no file")));
    };
    if !path.is_absolute() {
        return Err(invalid(format!("{typed} is not an absolute path")));
    }
    let (folder, name) = (folder.display().to_string(), name.to_owned());
    let folder = blocking(move || crate::workspace::project_folder(&folder))
        .await
        .map_err(|error| invalid(error.to_string()))?;
    if deps.own.iter().any(|own| folder.starts_with(own)) {
        return Err(invalid("agentd's own folders are no place for a bundle".into()));
    }
    Ok(folder.join(name))
}

/// Writes a copy of the session as it stood when no call was open.
///
/// # Errors
/// The session has not begun, or the disk.
pub async fn pack_copy(deps: &Arc<Deps>, source: &Snapshot, target: &Path) -> Result<Packed, SessionError> {
    let point = last_rest(&source.reader, source.head)
        .await?
        .ok_or_else(|| storage("the session's journal has no readable beginning".into()))?;
    let about = About {
        copy: true,
        ..about(source, deps.clock.now(), VERSION.to_owned(), point.seq, source.state.mode)
    };
    let packing = Packing {
        source: deps.paths.session_dir(source.state.session_id),
        journal: point.end,
        last: None,
        blobs: blobs(&source.reader, point.seq).await?,
        plan: point.plan,
        about,
    };
    pack(deps, packing, target).await
}

/// Writes the bundle that the session is going to be handed over with, or was.
///
/// # Errors
/// The session is at work, or the disk.
pub async fn pack_to_hand_over(
    deps: &Arc<Deps>,
    source: &Snapshot,
    params: &ExportParams,
    target: &Path,
    caller: &Caller,
) -> Result<Handing, SessionError> {
    let id = source.state.session_id;
    let epoch = source.ownership.epoch;
    let (journal, last, record, about) = match &source.ownership.handed_over {
        Some(handed) => {
            let about = about(source, handed.at, handed.version.clone(), handed.seq, source.state.mode);
            (handed.end, None, None, about)
        }
        None => {
            let reach = source.reader.reach();
            let at = deps.clock.now();
            let record = HandedOver {
                bundle: target.to_owned(),
                epoch,
                version: VERSION.to_owned(),
                by: caller.by.clone(),
            };
            let raw = Record::from(record.clone()).to_raw(None);
            let about = about(source, at, VERSION.to_owned(), reach.next, source.state.mode);
            (reach.bytes, Some((reach.next, at, vec![raw])), Some((at, record)), about)
        }
    };
    let upto = source.ownership.handed_over.as_ref().map_or(source.head, |handed| handed.seq);
    let packing = Packing {
        source: deps.paths.session_dir(id),
        journal,
        last,
        blobs: blobs(&source.reader, upto).await?,
        plan: source.state.plan.as_ref().map(|plan| plan.revision),
        about,
    };
    let packed = pack(deps, packing, target).await?;
    Ok(Handing {
        packed,
        target: target.to_owned(),
        replace: params.replace,
        record,
        head: source.head,
        journal,
    })
}

fn about(source: &Snapshot, exported_at: Timestamp, agentd: String, seq: Seq, mode: Mode) -> About {
    About {
        format: bundle::FORMAT,
        agentd,
        session_id: source.state.session_id,
        owner_epoch: source.ownership.epoch,
        copy: false,
        exported_at,
        seq,
        cwd: source.state.cwd.clone(),
        title: source.state.title.clone(),
        mode,
    }
}

/// Writes a bundle, and takes it in on trial: one that nobody would take in must not become what is left of a session.
async fn pack(deps: &Arc<Deps>, packing: Packing, target: &Path) -> Result<Packed, SessionError> {
    let temporary = bundle::temporary(target, packing.about.session_id, packing.about.copy);
    let packed = deps.journals.pack(packing, temporary).await.map_err(unstored)?;
    let why = match would_be_taken(deps, &packed.temporary).await {
        Ok(()) => return Ok(packed),
        Err(Doubt::Failed(error)) => error,
        Err(Doubt::Not(why)) => storage(format!(
            "a bundle of this session would not be taken in: {why}. Nothing was written, and the session stays as it is; \
             what can be read of it: agentctl log --all"
        )),
    };
    deps.journals.drop_bundle(packed.temporary).await;
    Err(why)
}

/// What went wrong with a bundle's name.
pub fn not_named(error: BundleError) -> SessionError {
    match error {
        BundleError::Exists(path) => SessionError::Conflict(format!(
            "{} exists already; nothing was written. Choose another name, or replace it: --force",
            path.display()
        )),
        error => unstored(error),
    }
}

/// The blobs that the records up to `upto` name. Not those that only keep what a file held before it was changed: they are
/// for taking changes back where they were made.
async fn blobs(reader: &JournalReader, upto: Seq) -> Result<BTreeSet<Digest>, SessionError> {
    named(reader, upto, named_in).await
}

/// The blobs without which what was said cannot be read: prompt, tools, messages.
pub(super) async fn texts(reader: &JournalReader, upto: Seq) -> Result<BTreeSet<Digest>, SessionError> {
    named(reader, upto, texts_in).await
}

async fn named(
    reader: &JournalReader,
    upto: Seq,
    each: fn(&str, &mut BTreeSet<Digest>),
) -> Result<BTreeSet<Digest>, SessionError> {
    let mut found = BTreeSet::new();
    let mut after = Seq(0);
    loop {
        let commits = reader.commits_after(after, PAGE).await.map_err(unstored)?;
        let Some(last) = commits.last().map(Commit::last) else { return Ok(found) };
        found = blocking(move || {
            for commit in commits.iter().take_while(|commit| commit.seq <= upto) {
                commit.records.iter().for_each(|record| each(record.get(), &mut found));
            }
            found
        })
        .await;
        if last >= upto {
            return Ok(found);
        }
        after = last;
    }
}

/// Every digest that a record names, whatever kind of record it is. A digest that is no blob's harms nothing.
fn named_in(record: &str, found: &mut BTreeSet<Digest>) {
    // Most records name none, and parsing is what costs.
    if !record.contains("sha256:") {
        return;
    }
    let Ok(value) = serde_json::from_str::<Value>(record) else { return };
    if value["type"] == "fileChanged" {
        return;
    }
    collect(&value, found);
}

/// The texts that a record keeps in blobs. A snapshot of a file is none: its session goes on without it.
fn texts_in(record: &str, found: &mut BTreeSet<Digest>) {
    if !record.contains("sha256:") {
        return;
    }
    let Ok(value) = serde_json::from_str::<Value>(record) else { return };
    let digest = |value: &Value| value.as_str().and_then(|text| text.parse::<Digest>().ok());
    if value["type"] == "sessionCreated" {
        found.extend([&value["systemPrompt"], &value["tools"]].into_iter().filter_map(digest));
    }
    fn kept(value: &Value, found: &mut BTreeSet<Digest>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| kept(item, found)),
            Value::Object(fields) => {
                if let Some(blob) = fields.get("blob").and_then(Value::as_str) {
                    found.extend(blob.parse::<Digest>().ok());
                }
                fields.values().for_each(|field| kept(field, found));
            }
            _ => {}
        }
    }
    kept(&value, found);
}

fn collect(value: &Value, found: &mut BTreeSet<Digest>) {
    match value {
        Value::String(text) => found.extend(text.parse::<Digest>().ok()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(fields) => {
            // Hashes of files that were read: their contents, where they are kept, are a change's.
            fields.iter().filter(|(name, _)| *name != "reads").for_each(|(_, field)| collect(field, found));
        }
        _ => {}
    }
}

impl state::HandedOver {
    #[must_use]
    pub fn told(&self) -> transfer::HandedOver {
        transfer::HandedOver { bundle: self.bundle.display().to_string(), at: self.at }
    }
}

impl Session {
    /// Whether the session is here, and not in a bundle.
    pub(super) fn owned(&self) -> Result<(), SessionError> {
        match &self.state.handed_over {
            None => Ok(()),
            Some(handed) => Err(SessionError::HandedOver(Box::new(handed.told()))),
        }
    }

    /// Gives the session away with a bundle that is whole. Asked again, the bundle only gets its name.
    pub(super) async fn hand_over(&mut self, handing: Handing) -> Result<(), SessionError> {
        let Handing { packed, target, replace, record, head, journal } = handing;
        let again = record.is_none();
        let given = self.give_away(record, head, journal).await;
        if let Err(error) = given {
            let in_doubt = matches!(error, SessionError::Storage { changed: Changed::Unknown, .. });
            if !in_doubt {
                self.deps.journals.drop_bundle(packed.temporary).await;
            }
            return Err(error);
        }
        let named = self.deps.journals.name_bundle(packed.temporary.clone(), target.clone(), replace).await;
        if let Err(error) = named {
            self.deps.journals.drop_bundle(packed.temporary).await;
            // Two who handed it over at once, to the same place: it has the one bundle that there is.
            let exists = matches!(error, BundleError::Exists(_));
            if exists && self.stands_at(&target).await == Some(packed.digest) {
                return self.bundle_is_there(target).await;
            }
            let why = not_named(error);
            if again {
                return Err(why);
            }
            return Err(storage(format!(
                "the session is handed over, and its bundle is not there: {why}. Write it again, elsewhere if need be: \
                 agentctl export {} --format bundle -o FILE",
                self.state.created.handle
            )));
        }
        self.bundle_is_there(target).await
    }

    async fn give_away(
        &mut self,
        record: Option<(Timestamp, HandedOver)>,
        head: Seq,
        journal: u64,
    ) -> Result<(), SessionError> {
        match (&self.state.handed_over, record) {
            (Some(_), None) => Ok(()),
            (None, Some((at, record))) => {
                self.may_be_handed_over()?;
                if self.state.head != head || self.journal.bytes() != journal {
                    return Err(SessionError::Overloaded);
                }
                // A snapshot of the work tree: of no use to whoever goes on elsewhere.
                self.flight.clear();
                // Until the bundle has its name, a start has to look after it.
                self.mark().await?;
                self.commit_at(at, vec![record.into()]).await
            }
            // It changed hands while it was packed.
            _ => Err(SessionError::Overloaded),
        }
    }

    /// Nothing runs or waits.
    pub(super) fn may_be_handed_over(&self) -> Result<(), SessionError> {
        if self.state.handed_over.is_some() {
            return Ok(());
        }
        let handle = &self.state.created.handle;
        let busy = |what: &str, next: String| {
            Err(SessionError::Busy(format!(
                "{what}, and nothing was handed over. Next: {next}, or a copy: --copy"
            )))
        };
        if let Some(reason) = &self.state.read_only {
            return Err(storage(format!("the session is read-only: {reason}; nothing was handed over")));
        }
        if !self.state.approvals.is_empty() {
            return busy("an approval waits", format!("answer it, or agentctl stop {handle}"));
        }
        if self.state.turn.is_some() {
            return busy("a turn runs", format!("agentctl stop {handle}"));
        }
        if !self.state.inbox.is_empty() {
            return busy("prompts wait", format!("agentctl stop --drop {handle}"));
        }
        Ok(())
    }

    async fn bundle_is_there(&mut self, bundle: PathBuf) -> Result<(), SessionError> {
        match &self.state.handed_over {
            Some(handed) if !handed.named => self.commit(vec![BundleNamed { bundle }.into()]).await,
            _ => Ok(()),
        }
    }

    /// The digest of the bundle of this session, as it is now, that stands there; if one does.
    async fn stands_at(&self, path: &Path) -> Option<Digest> {
        let found = self.deps.journals.open_bundle(path.to_owned()).await.ok()?;
        let about = &found.manifest().about;
        let ours = (self.state.id(), self.state.owner_epoch, false);
        ((about.session_id, about.owner_epoch, about.copy) == ours).then(|| found.digest())
    }

    /// Whether the session can be done without here: it was not handed over, or the bundle that it went into still stands
    /// where it was written. One that was imported elsewhere and thrown away since is not known from one that got lost.
    pub(super) async fn is_not_all_that_is_left(&self) -> bool {
        match &self.state.handed_over {
            None => true,
            Some(handed) => handed.named && self.stands_at(&handed.bundle).await.is_some(),
        }
    }

    /// After a start: a bundle that was whole when the daemon died gets its name.
    pub(super) async fn finish_handing_over(&mut self) -> Result<(), SessionError> {
        let Some(handed) = self.state.handed_over.clone().filter(|handed| !handed.named) else {
            return Ok(());
        };
        let id = self.state.id();
        let temporary = bundle::temporary(&handed.bundle, id, false);
        let named = self.deps.journals.name_bundle(temporary, handed.bundle.clone(), false).await;
        if named.is_err() && self.stands_at(&handed.bundle).await.is_none() {
            tracing::warn!(
                session = %id,
                "the session is handed over and its bundle is not at {}; agentctl export writes it again",
                handed.bundle.display()
            );
            return Ok(());
        }
        self.bundle_is_there(handed.bundle).await
    }

    /// The session that was given away comes back: what is staged takes the place of what it was.
    pub(super) async fn give_way(&mut self, epoch: u64, staged: PathBuf) -> Result<(), SessionError> {
        if self.state.handed_over.is_none() || self.state.owner_epoch >= epoch {
            return Err(super::import::is_here(&self.state.created.handle));
        }
        self.flight.clear();
        let dir = self.deps.paths.session_dir(self.state.id());
        self.deps.journals.exchange(staged, dir).await.map_err(unstored)?;
        self.replaced = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::digest_of;

    #[test]
    fn a_bundle_has_the_blobs_that_records_name_and_not_what_files_held() {
        let digests = ["text", "plan", "later", "before", "read"].map(|name| digest_of(name.as_bytes()));
        let [text, plan, later, before, read] = digests;
        let records = [
            serde_json::json!({"type": "callFinished", "content": {"blob": text, "size": 1, "head": "", "tail": ""},
                "reads": [["/a", read]]}),
            serde_json::json!({"type": "planWritten", "revision": plan}),
            serde_json::json!({"type": "aRecordOfALaterVersion", "deep": [{"inside": later}]}),
            serde_json::json!({"type": "fileChanged", "before": before, "after": read}),
            serde_json::json!({"type": "contextAdded", "text": "sha256:no digest"}),
        ];
        let mut found = BTreeSet::new();
        records.iter().for_each(|record| named_in(&record.to_string(), &mut found));
        assert_eq!(found, BTreeSet::from([text, plan, later]));
    }
}
