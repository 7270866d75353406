//! A session's past as its clients see it: journaled commits projected to events.

use agentd_protocol::Seq;

use super::feed::WireEvent;
use super::project::{WIRE_INLINE_LIMIT, project};
use super::record::{Body, CallInput, Json, Parsed, Part, Record};
use crate::ids::SessionId;
use crate::journal::{Blobs, JournalError, JournalReader};

/// Bytes of journal read at a time.
const PAGE: u64 = 256 * 1024;

/// The events after `after`, some of them, in order, and the number up to which the journal was read. Call again with
/// that number until it reaches the head.
///
/// # Errors
/// The journal could not be read.
pub async fn events_after(
    session: SessionId,
    reader: &JournalReader,
    blobs: &Blobs,
    after: Seq,
) -> Result<(Vec<WireEvent>, Seq), JournalError> {
    let commits = reader.commits_after(after, PAGE).await?;
    let mut events = Vec::new();
    let mut last = after;
    for commit in commits {
        last = commit.last();
        for (seq, raw) in commit.numbered().filter(|(seq, _)| *seq > after) {
            let Parsed::Known { mut record, turn } = Record::parse(raw) else { continue };
            if has_blobs(&record) {
                inline_blobs(&mut record, blobs).await;
            }
            events
                .extend(project(session, seq, commit.at, turn, &record).map(|event| WireEvent::new(&event)));
        }
    }
    Ok((events, last))
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
