//! Pages of a journal: the commits next after a number, or next before one. Both begin at a point of the sparse table, so
//! the end of a long journal is as near as its beginning, and neither holds more than a page and one commit in memory.

use std::ops::ControlFlow;

use super::error::Doing as _;
use super::file::JournalFile;
use super::frame::{self, Decoded};
use super::lines::{Lines, Text};
use super::{Commit, JournalError};
use crate::ids::Seq;

/// The commits with records over `after`, oldest first: one at least, more as long as they fit `max_bytes`.
pub(super) fn after(file: &JournalFile, after: Seq, max_bytes: u64) -> Result<Vec<Commit>, JournalError> {
    let (offset, len) = {
        let index = file.index.lock();
        if index.next.0 <= after.0.saturating_add(1) {
            return Ok(Vec::new());
        }
        (index.offset_for(Seq(after.0 + 1)), index.len)
    };
    let mut commits = Vec::new();
    let mut taken = 0;
    each(file, offset, len, |commit| {
        if commit.last() <= after {
            return ControlFlow::Continue(());
        }
        taken += u64::from(commit.place.len);
        if taken > max_bytes && !commits.is_empty() {
            return ControlFlow::Break(());
        }
        commits.push(commit);
        ControlFlow::Continue(())
    })?;
    Ok(commits)
}

/// The commits with records under `before`, oldest first: the newest one at least, those before it as long as they fit
/// `max_bytes`.
pub(super) fn before(file: &JournalFile, before: Seq, max_bytes: u64) -> Result<Vec<Commit>, JournalError> {
    let mut segments: Vec<Vec<Commit>> = Vec::new();
    let mut taken = 0;
    let mut at = file.index.lock().points_before(before);
    while let Some(point) = at.checked_sub(1) {
        let (from, to) = file.index.lock().segment(point);
        let mut segment = Vec::new();
        each(file, from, to, |commit| {
            if commit.seq >= before {
                return ControlFlow::Break(());
            }
            segment.push(commit);
            ControlFlow::Continue(())
        })?;
        let wanted = segment.iter().rev().take_while(|commit| {
            let is_newest = taken == 0;
            taken += u64::from(commit.place.len);
            is_newest || taken <= max_bytes
        });
        let dropped = segment.len() - wanted.count();
        segments.push(segment.split_off(dropped));
        if taken >= max_bytes.max(1) {
            break;
        }
        at = point;
    }
    Ok(segments.into_iter().rev().flatten().collect())
}

/// Hands the commits that begin in `from..to` to `visit`, in order, until it breaks off. Bad lines are passed over unread.
fn each(
    file: &JournalFile,
    from: u64,
    to: u64,
    mut visit: impl FnMut(Commit) -> ControlFlow<()>,
) -> Result<(), JournalError> {
    let bad = file.index.lock().bad_between(from, to);
    let mut from = from;
    let good = bad.iter().map(|bad| (bad.offset, bad.offset + bad.len)).chain([(to, to)]);
    for (end, next) in good {
        let mut lines = Lines::new(&file.reader, from, end);
        while let Some(line) = lines.next().doing("read", &file.path)? {
            let Text::Whole(text) = line.text else { continue };
            // Only commits are left here, unless the file was changed behind our back.
            let Decoded::Commit(commit) = frame::decode(text, line.offset) else { continue };
            if visit(commit).is_break() {
                return Ok(());
            }
        }
        from = next;
    }
    Ok(())
}
