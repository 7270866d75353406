//! A session's past as its clients see it: journaled commits projected to events, page by page from either end.

use agentd_protocol::{Seq, Timestamp, TurnId};

use super::feed::WireEvent;
use super::project::{WIRE_INLINE_LIMIT, project};
use super::record::{Body, CallInput, Json, Parsed, Part, Record};
use crate::ids::SessionId;
use crate::journal::{Blobs, Commit, JournalError, JournalReader};

/// Bytes of journal read at a time.
const CHUNK: u64 = 256 * 1024;
/// Bytes of events in one page, unless a single event has more.
const PAGE_BYTES: usize = 1024 * 1024;
/// Bytes of journal gone through for one page. Events of a rare type may lie further apart.
const PAGE_JOURNAL: u64 = 16 * 1024 * 1024;

/// Where a session's past is read.
pub struct Past {
    pub session: SessionId,
    pub reader: JournalReader,
    pub blobs: Blobs,
}

/// Which events a page may hold.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub after: Seq,
    pub before: Seq,
    pub types: Option<Vec<String>>,
    /// Events at most.
    pub limit: usize,
}

/// Events in order, and where the next page begins, if there is more.
#[derive(Debug, Default)]
pub struct Page {
    pub events: Vec<WireEvent>,
    pub next: Option<Seq>,
}

/// The first events that are wanted. `next` is the number that the next page comes after.
///
/// # Errors
/// The journal could not be read.
pub async fn forward(past: &Past, wanted: &Wanted) -> Result<Page, JournalError> {
    let mut page = Filling::default();
    let mut after = wanted.after;
    let mut gone_through = 0;
    while after.0 + 1 < wanted.before.0 {
        let commits = past.reader.commits_after(after, CHUNK).await?;
        let Some(last) = commits.last().map(Commit::last) else { break };
        gone_through += bytes(&commits);
        for entry in parse(commits).await {
            if entry.seq <= after || entry.seq >= wanted.before {
                continue;
            }
            let seq = entry.seq;
            if let Some(event) = past.event(entry, wanted).await
                && !page.take(event, wanted.limit)
            {
                return Ok(Page { events: page.events, next: Some(after) });
            }
            after = seq;
        }
        after = last;
        if gone_through >= PAGE_JOURNAL && after.0 + 1 < wanted.before.0 {
            return Ok(Page { events: page.events, next: Some(after) });
        }
    }
    Ok(Page { events: page.events, next: None })
}

/// The last events that are wanted. `next` is the number that the next page, which is an older one, ends before.
///
/// # Errors
/// The journal could not be read.
pub async fn backward(past: &Past, wanted: &Wanted) -> Result<Page, JournalError> {
    let mut page = Filling::default();
    let mut before = wanted.before;
    let mut gone_through = 0;
    let mut next = None;
    'page: while wanted.after.0 + 1 < before.0 {
        let commits = past.reader.commits_before(before, CHUNK).await?;
        let Some(first) = commits.first().map(|commit| commit.seq) else { break };
        gone_through += bytes(&commits);
        for entry in parse(commits).await.into_iter().rev() {
            if entry.seq >= before || entry.seq <= wanted.after {
                continue;
            }
            let seq = entry.seq;
            if let Some(event) = past.event(entry, wanted).await
                && !page.take(event, wanted.limit)
            {
                next = Some(before);
                break 'page;
            }
            before = seq;
        }
        before = first;
        if gone_through >= PAGE_JOURNAL && wanted.after.0 + 1 < before.0 {
            next = Some(before);
            break;
        }
    }
    page.events.reverse();
    Ok(Page { events: page.events, next })
}

#[derive(Default)]
struct Filling {
    events: Vec<WireEvent>,
    bytes: usize,
}

impl Filling {
    /// Whether there was room for it.
    fn take(&mut self, event: WireEvent, limit: usize) -> bool {
        let size = event.json.len();
        let fits = self.events.len() < limit && self.bytes.saturating_add(size) <= PAGE_BYTES;
        if !fits && !self.events.is_empty() {
            return false;
        }
        self.bytes += size;
        self.events.push(event);
        true
    }
}

/// A record, read.
struct Entry {
    seq: Seq,
    at: Timestamp,
    turn: Option<TurnId>,
    record: Box<Record>,
}

fn bytes(commits: &[Commit]) -> u64 {
    commits.iter().map(|commit| u64::from(commit.place.len)).sum()
}

/// The records that this build knows.
async fn parse(commits: Vec<Commit>) -> Vec<Entry> {
    super::blocking(move || {
        let mut entries = Vec::new();
        for commit in &commits {
            for (seq, raw) in commit.numbered() {
                if let Parsed::Known { record, turn } = Record::parse(raw) {
                    entries.push(Entry { seq, at: commit.at, turn, record });
                }
            }
        }
        entries
    })
    .await
}

impl Past {
    /// The event that clients see of it, if they see any and it is wanted.
    async fn event(&self, entry: Entry, wanted: &Wanted) -> Option<WireEvent> {
        let Entry { seq, at, turn, mut record } = entry;
        let session = self.session;
        if let Some(types) = &wanted.types {
            let kind = project(session, seq, at, turn, &record)?.body.type_name();
            if !types.iter().any(|wanted| wanted == kind) {
                return None;
            }
        }
        if !has_blobs(&record) {
            return project(session, seq, at, turn, &record).map(|event| WireEvent::new(&event));
        }
        inline_blobs(&mut record, &self.blobs).await;
        let write = move || project(session, seq, at, turn, &record).map(|event| WireEvent::new(&event));
        super::blocking(write).await
    }
}

fn bodies(record: &mut Record) -> Vec<&mut Body> {
    match record {
        Record::Replied(replied) => std::iter::once(&mut replied.text).chain(&mut replied.thinking).collect(),
        Record::CallFinished(finished) => {
            std::iter::once(&mut finished.content).chain(&mut finished.diff).collect()
        }
        Record::PlanWritten(written) => vec![&mut written.diff],
        Record::ContextAdded(added) => vec![&mut added.text],
        Record::InboxAdded(added) => added.content.iter_mut().map(Part::text_mut).collect(),
        _ => Vec::new(),
    }
}

/// Whether parts of the record lie in blobs.
#[must_use]
pub fn has_blobs(record: &Record) -> bool {
    let body = |body: &Body| matches!(body, Body::Blob { .. });
    match record {
        Record::Replied(replied) => body(&replied.text) || replied.thinking.as_ref().is_some_and(body),
        Record::CallFinished(finished) => body(&finished.content) || finished.diff.as_ref().is_some_and(body),
        Record::PlanWritten(written) => body(&written.diff),
        Record::ContextAdded(added) => body(&added.text),
        Record::InboxAdded(added) => added.content.iter().any(|part| body(part.text())),
        Record::CallProposed(proposed) => matches!(proposed.input, CallInput::Json(Json::Blob(_))),
        _ => false,
    }
}

/// Puts texts that fit into an event back inline, in order, as long as there is room for all of them together. A blob
/// that is missing or too large stays a reference: shown as such, never an error for the session.
pub async fn inline_blobs(record: &mut Record, blobs: &Blobs) {
    if let Record::CallProposed(proposed) = record
        && let CallInput::Json(Json::Blob(blob)) = &proposed.input
        && let Some(text) = load(blobs, *blob, WIRE_INLINE_LIMIT).await
        && let Ok(raw) = serde_json::value::RawValue::from_string(text)
    {
        proposed.input = CallInput::Json(Json::Inline(raw));
        return;
    }
    let mut room = 2 * WIRE_INLINE_LIMIT;
    for body in bodies(record) {
        if let Body::Blob { blob, size, .. } = body
            && *size <= WIRE_INLINE_LIMIT.min(room)
            && let Some(text) = load(blobs, *blob, WIRE_INLINE_LIMIT).await
        {
            room -= *size;
            *body = Body::Inline(text);
        }
    }
}

/// The text of a blob of at most `limit` bytes.
pub async fn load(blobs: &Blobs, blob: crate::ids::Digest, limit: u64) -> Option<String> {
    let part = blobs.get(blob, 0, limit).await.ok()?;
    (part.size <= limit).then(|| String::from_utf8(part.bytes).ok()).flatten()
}
