//! A session made from another one's past: its journal up to a moment at which no call was open, under an id of its own.

use std::sync::Arc;

use agentd_protocol::Mode;
use agentd_protocol::session::{ForkParams, ForkedFrom};

use super::blocking;
use super::command::{Caller, Snapshot};
use super::commit::storage;
use super::deps::Deps;
use super::error::SessionError;
use super::heir::{self, Heir, created, made_out, narrower, unstored, widest_for};
use super::load::Fold;
use super::record::{Created, Record, SessionForked};
use crate::ids::{Digest, Seq, SessionId, digest_of, words};
use crate::journal::{Commit, Durability, JournalError, JournalReader};

/// Bytes of journal that are folded at a time.
const PAGE: u64 = 1024 * 1024;

/// A fork that was asked for.
pub struct Forking<'a> {
    pub source: &'a Snapshot,
    pub params: &'a ForkParams,
    /// Of the new session.
    pub id: SessionId,
    pub caller: &'a Caller,
}

impl Forking<'_> {
    /// The parameters without the new id: the same id with the same parameters is the same session.
    #[must_use]
    pub fn params_digest(params: &ForkParams) -> Digest {
        let said = ("fork", params.session_id, params.at_seq);
        digest_of(&serde_json::to_vec(&said).unwrap_or_default())
    }
}

/// Where a session can be taken up: the end of a commit after which no call was open.
pub(super) struct Point {
    pub(super) seq: Seq,
    /// Bytes of journal up to there.
    pub(super) end: u64,
    pub(super) first: Commit,
    /// The plan that the session had there, and its revision.
    pub(super) plan: Option<Option<Digest>>,
}

/// Makes the session on disk, whole or not at all, and says up to where it is the source's.
///
/// # Errors
/// `atSeq` is beyond the head or before the first rest; the disk; a session of this id exists (`Conflict`).
pub async fn fork(deps: &Arc<Deps>, forking: &Forking<'_>) -> Result<Seq, SessionError> {
    let source = forking.source;
    if let Some(at) = forking.params.at_seq.filter(|at| *at > source.head) {
        tracing::debug!(%at, "a fork beyond the head");
        return Err(SessionError::BeyondHead { head: source.head });
    }
    let upto = forking.params.at_seq.unwrap_or(source.head);
    let point = last_rest(&source.reader, upto).await?.ok_or_else(|| {
        SessionError::invalid(
            "atSeq",
            "the session has not begun there; the first number is that of its creation",
        )
    })?;
    let now = deps.clock.now();
    let handle = new_handle(&source.state.handle);
    let first = first_records(deps, forking, &point, handle.clone())?;
    let rest = point.first.place.offset + u64::from(point.first.place.len)..point.end;
    let dirs = |id| deps.paths.session_dir(id);
    let (from, to) = (dirs(source.state.session_id), dirs(forking.id));
    let staged = deps.journals.stage(from, to.clone(), (now, first), rest).await.map_err(unstored)?;
    let mut heir = Heir { deps, id: forking.id, handle, by: &forking.caller.by, plan_files: Vec::new() };
    let finished = match finish(&mut heir, forking, &staged).await {
        Ok(()) => deps.journals.unveil(staged.clone(), to).await.map_err(|error| match error {
            JournalError::Exists { .. } => SessionError::Conflict("this newSessionId exists already".into()),
            error => unstored(error),
        }),
        Err(error) => Err(error),
    };
    match finished {
        Ok(()) => Ok(point.seq),
        Err(error) => {
            heir.discard(staged).await;
            Err(error)
        }
    }
}

/// The same words with another noun.
pub(super) fn new_handle(of: &str) -> String {
    words::handle_from(&words::stem_of_handle(of).unwrap_or_else(|| of.to_owned()), &mut words::random_noun)
}

/// Finds the last commit up to `upto` after which no call was open.
pub(super) async fn last_rest(reader: &JournalReader, upto: Seq) -> Result<Option<Point>, SessionError> {
    let mut fold = Fold::default();
    let mut first = None;
    let mut found = None;
    let mut after = Seq(0);
    loop {
        let commits = reader.commits_after(after, PAGE).await.map_err(unstored)?;
        let Some(last) = commits.last().map(Commit::last) else { break };
        after = last;
        first = first.or_else(|| commits.first().cloned());
        let (folded, rest) = blocking(move || {
            let mut rest = None;
            for commit in commits.iter().take_while(|commit| commit.last() <= upto) {
                fold.add(commit);
                if let Some(state) = fold.state.as_ref().filter(|state| heir::rests(state)) {
                    let plan = state.plan.as_ref().map(|plan| plan.revision);
                    rest = Some((commit.last(), commit.place.offset + u64::from(commit.place.len), plan));
                }
            }
            (fold, rest)
        })
        .await;
        fold = folded;
        found = rest.or(found);
        if last >= upto {
            break;
        }
    }
    if let Some(what) = fold.unknown_must {
        return Err(SessionError::Refused(format!(
            "the session holds {what}, which this version of agentd must not pass over; upgrade agentd"
        )));
    }
    Ok(found.zip(first).map(|((seq, end, plan), first)| Point { seq, end, first, plan }))
}

/// The source's first commit, made out to the new session.
fn first_records(
    deps: &Deps,
    forking: &Forking<'_>,
    point: &Point,
    handle: String,
) -> Result<Vec<Box<serde_json::value::RawValue>>, SessionError> {
    let created = Created {
        daemon_id: deps.daemon_id,
        session_id: forking.id,
        handle,
        // As it is called now: the source may have been renamed since.
        title: forking.source.state.title.clone(),
        parent: None,
        origin: forking.caller.origin(),
        by: forking.caller.by.clone(),
        params: Forking::params_digest(forking.params),
        forked_from: Some(ForkedFrom { session_id: forking.source.state.session_id, seq: point.seq }),
        ..created(&point.first)?
    };
    Ok(made_out(&point.first, created))
}

/// Ends in the copy what only concerned the source.
async fn finish(
    heir: &mut Heir<'_>,
    forking: &Forking<'_>,
    staged: &std::path::Path,
) -> Result<(), SessionError> {
    let deps = heir.deps;
    let fold = |fold: &mut Fold, commit: Commit| fold.add(&commit);
    let (mut journal, _, folded) =
        deps.journals.open_each(staged, Fold::default(), fold).await.map_err(unstored)?;
    let Some(state) = folded.state else {
        return Err(storage("the copied journal has no readable beginning".into()));
    };
    let content = match state.plan.as_ref().and_then(|plan| plan.revision) {
        Some(revision) => journal.blobs().whole(revision).await.map_err(unstored)?,
        None => Vec::new(),
    };
    let copy = heir.copy_plan(&state, content).await?;
    let source = forking.source;
    // In plan mode what counts is what it would go back to.
    let now = match source.state.mode {
        Mode::Plan => source.state.pre_mode.unwrap_or(Mode::Default),
        mode => mode,
    };
    let may = widest_for(forking.caller.actor);
    let widest = narrower(now, may);
    let mut records = vec![Record::from(SessionForked {
        from: forking.source.state.session_id,
        mode: state.mode,
        by: forking.caller.by.clone(),
        plan: copy.clone(),
        from_bundle: false,
        widest: Some(widest),
        breaker: source.breaker,
    })];
    let mode = narrower(narrower(state.mode, source.state.mode), may);
    records.extend(heir.take_mode(&state, mode, copy.as_ref()).await?);
    let raw = records.iter().map(|record| record.to_raw(None)).collect();
    let next = journal.next_seq();
    journal.append(next, deps.clock.now(), raw, Durability::Synced).await.map_err(unstored)?;
    drop(journal);
    let (paths, from, to) = (Arc::clone(&deps.paths), forking.source.state.session_id, staged.to_owned());
    blocking(move || paths.copy_session_env(from, &to)).await.map_err(unstored)
}
