//! A session made from another one's past: its journal up to a moment at which no call was open, under an id of its own.

use std::path::PathBuf;
use std::sync::Arc;

use agentd_protocol::Mode;
use agentd_protocol::session::{ForkParams, ForkedFrom};

use super::command::{Caller, Snapshot};
use super::commit::storage;
use super::deps::Deps;
use super::error::SessionError;
use super::load::Fold;
use super::record::{Body, ContextAdded, Created, PlanCopy, PlanEntered, Record, SessionForked, Source};
use super::state::{Phase, SessionState};
use super::{blocking, record};
use crate::ids::{Digest, MessageId, Seq, SessionId, digest_of, words};
use crate::journal::{Commit, Durability, Journal, JournalError};
use crate::{context, plan};

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
struct Point {
    seq: Seq,
    /// Bytes of journal up to there.
    end: u64,
    first: Commit,
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
    let point = last_rest(source, upto).await?.ok_or_else(|| {
        SessionError::invalid(
            "atSeq",
            "the session has not begun there; the first number is that of its creation",
        )
    })?;
    let now = deps.clock.now();
    let handle = words::handle_from(
        &words::stem_of_handle(&source.state.handle).unwrap_or_else(|| source.state.handle.clone()),
        &mut words::random_noun,
    );
    let first = first_records(deps, forking, &point, handle.clone())?;
    let rest = point.first.place.offset + u64::from(point.first.place.len)..point.end;
    let dirs = |id| deps.paths.session_dir(id);
    let (from, to) = (dirs(source.state.session_id), dirs(forking.id));
    let staged = deps.journals.stage(from, to.clone(), (now, first), rest).await.map_err(unstored)?;
    let mut plan_file = None;
    let finished = finish(deps, forking, &staged, &handle, &mut plan_file).await;
    let finished = match finished {
        Ok(()) => deps.journals.unveil(staged.clone(), to).await.map_err(|error| match error {
            JournalError::Exists { .. } => SessionError::Conflict("this newSessionId exists already".into()),
            error => unstored(error),
        }),
        Err(error) => Err(error),
    };
    if let Err(error) = finished {
        let _ = deps.journals.unstage(staged).await;
        if let Some(path) = plan_file {
            let paths = Arc::clone(&deps.paths);
            let _ = blocking(move || paths.remove_plan(&path)).await;
        }
        return Err(error);
    }
    Ok(point.seq)
}

/// Finds the last commit up to `upto` after which no call was open.
async fn last_rest(source: &Snapshot, upto: Seq) -> Result<Option<Point>, SessionError> {
    let mut fold = Fold::default();
    let mut first = None;
    let mut found = None;
    let mut after = Seq(0);
    loop {
        let commits = source.reader.commits_after(after, PAGE).await.map_err(unstored)?;
        let Some(last) = commits.last().map(Commit::last) else { break };
        after = last;
        first = first.or_else(|| commits.first().cloned());
        let (folded, rest) = blocking(move || {
            let mut rest = None;
            for commit in commits.iter().take_while(|commit| commit.last() <= upto) {
                fold.add(commit);
                if fold.state.as_ref().is_some_and(rests) {
                    rest = Some((commit.last(), commit.place.offset + u64::from(commit.place.len)));
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
    Ok(found.zip(first).map(|((seq, end), first)| Point { seq, end, first }))
}

/// Whether a conversation that ends here is one that a provider takes.
fn rests(state: &SessionState) -> bool {
    state.turn.as_ref().is_none_or(|turn| !matches!(turn.phase, Phase::Calls(_)))
}

/// The source's first commit, made out to the new session.
fn first_records(
    deps: &Deps,
    forking: &Forking<'_>,
    point: &Point,
    handle: String,
) -> Result<Vec<Box<serde_json::value::RawValue>>, SessionError> {
    let unreadable = || storage("the session's journal has no readable beginning".into());
    let raw = point.first.records.first().ok_or_else(unreadable)?;
    let record::Parsed::Known { record, .. } = Record::parse(raw) else { return Err(unreadable()) };
    let Record::Created(created) = *record else { return Err(unreadable()) };
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
        ..created
    };
    let mut records = vec![Record::from(created).to_raw(None)];
    records.extend(point.first.records.iter().skip(1).cloned());
    Ok(records)
}

/// Ends in the copy what only concerned the source.
async fn finish(
    deps: &Arc<Deps>,
    forking: &Forking<'_>,
    staged: &std::path::Path,
    handle: &str,
    plan_file: &mut Option<PathBuf>,
) -> Result<(), SessionError> {
    let fold = |fold: &mut Fold, commit: Commit| fold.add(&commit);
    let (mut journal, _, folded) =
        deps.journals.open_each(staged, Fold::default(), fold).await.map_err(unstored)?;
    let Some(state) = folded.state else {
        return Err(storage("the copied journal has no readable beginning".into()));
    };
    let copy = copy_plan(deps, forking, &state, &journal, handle).await?;
    *plan_file = copy.as_ref().map(|copy| copy.path.clone());
    let by = forking.caller.by.clone();
    let mut records = vec![Record::from(SessionForked {
        from: forking.source.state.session_id,
        mode: state.mode,
        by: by.clone(),
        plan: copy,
    })];
    let mode = narrower(state.mode, forking.source.state.mode);
    if mode == state.mode
        && mode == Mode::Plan
        && let Some(path) = &plan_file
    {
        // What the copy has heard so far names the source's file.
        records.push(said(forking.id, plan_guidance(deps, path)));
    }
    if mode != state.mode {
        records.push(record::ModeChanged { from: state.mode, to: mode, by }.into());
        let text = match mode {
            Mode::Plan => {
                let (entered, text) = enter_plan(deps, forking, &state, handle).await?;
                *plan_file = Some(entered.path.clone());
                records.push(entered.into());
                text
            }
            mode => context::mode_changed(mode),
        };
        records.push(said(forking.id, text));
    }
    let raw = records.iter().map(|record| record.to_raw(None)).collect();
    let next = journal.next_seq();
    journal.append(next, deps.clock.now(), raw, Durability::Synced).await.map_err(unstored)?;
    drop(journal);
    let (paths, from, to) = (Arc::clone(&deps.paths), forking.source.state.session_id, staged.to_owned());
    blocking(move || paths.copy_session_env(from, &to)).await.map_err(|error| storage(format!("{error:#}")))
}

/// A plan file of its own, with the plan as it stood at that moment.
async fn copy_plan(
    deps: &Deps,
    forking: &Forking<'_>,
    state: &SessionState,
    journal: &Journal,
    handle: &str,
) -> Result<Option<PlanCopy>, SessionError> {
    let Some(plan) = &state.plan else { return Ok(None) };
    let content = match plan.revision {
        Some(revision) => journal.blobs().whole(revision).await.map_err(unstored)?,
        None => Vec::new(),
    };
    let content =
        String::from_utf8(content).map_err(|_| storage("the plan's snapshot is not text".into()))?;
    let plan::Created { slug, path } = new_plan_file(deps, forking.id, handle).await?;
    let copy = PlanCopy { slug, path: path.clone() };
    if content.is_empty() {
        return Ok(Some(copy));
    }
    let written = blocking(move || {
        let written = plan::write(&path, &content, Some(digest_of(b"")));
        (written, path)
    });
    match written.await {
        (Ok(_), _) => Ok(Some(copy)),
        (Err(error), path) => {
            let paths = Arc::clone(&deps.paths);
            let _ = blocking(move || paths.remove_plan(&path)).await;
            Err(unstored(error))
        }
    }
}

/// The source has gone into plan mode since: so does its fork, with a plan of its own.
async fn enter_plan(
    deps: &Deps,
    forking: &Forking<'_>,
    state: &SessionState,
    handle: &str,
) -> Result<(PlanEntered, String), SessionError> {
    let plan::Created { slug, path } = new_plan_file(deps, forking.id, handle).await?;
    let cycle = state.plan.as_ref().map_or(0, |plan| plan.cycle) + 1;
    let text = plan_guidance(deps, &path);
    Ok((PlanEntered { pre_mode: state.mode, slug, path, cycle, running: Vec::new() }, text))
}

fn plan_guidance(deps: &Deps, path: &std::path::Path) -> String {
    context::note(&super::planning::plan_guidance(deps.policy.commands_in_plan(), path))
}

async fn new_plan_file(deps: &Deps, id: SessionId, handle: &str) -> Result<plan::Created, SessionError> {
    let (folder, handle) = (deps.paths.plans_dir(), handle.to_owned());
    blocking(move || {
        let stem = plan::stem_from(None, &handle);
        plan::create(&folder, &stem, id, &mut words::random_noun)
    })
    .await
    .map_err(unstored)
}

fn said(id: SessionId, text: String) -> Record {
    ContextAdded {
        message_id: MessageId::generate(id),
        source: Source::Guidance,
        origin: None,
        text: Body::Inline(text),
    }
    .into()
}

/// The mode that lets less happen without a person.
fn narrower(a: Mode, b: Mode) -> Mode {
    let rank = |mode| match mode {
        Mode::Plan => 0,
        Mode::DontAsk => 1,
        Mode::Default => 2,
        Mode::AcceptEdits => 3,
        Mode::Auto => 4,
        Mode::BypassPermissions => 5,
    };
    if rank(b) < rank(a) { b } else { a }
}

fn unstored(error: impl std::error::Error + Send + Sync + 'static) -> SessionError {
    storage(format!("{:#}", anyhow::Error::new(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrower_mode_is_one_of_the_two_and_never_the_wider() {
        for a in Mode::ALL {
            assert_eq!(narrower(a, a), a);
            for b in Mode::ALL {
                assert_eq!(narrower(a, b), narrower(b, a));
            }
            assert_eq!(narrower(Mode::Plan, a), Mode::Plan);
        }
        assert_eq!(narrower(Mode::BypassPermissions, Mode::Default), Mode::Default);
        assert_eq!(narrower(Mode::AcceptEdits, Mode::DontAsk), Mode::DontAsk);
    }
}
