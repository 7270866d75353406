//! What a session begins with that is made of another one's past, by a fork or out of a bundle: a place where the
//! conversation rests, a plan of its own, a mode that is no wider.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentd_protocol::Mode;
use agentd_protocol::approval::By;
use agentd_protocol::initialize::Actor;

use super::blocking;
use super::commit::storage;
use super::deps::Deps;
use super::error::SessionError;
use super::record::{self, Body, ContextAdded, Created, ModeChanged, PlanCopy, PlanEntered, Record, Source};
use super::state::{Phase, SessionState};
use crate::ids::{MessageId, SessionId, digest_of, words};
use crate::journal::Commit;
use crate::{context, plan};

/// The session that is being made.
pub(super) struct Heir<'a> {
    pub(super) deps: &'a Arc<Deps>,
    pub(super) id: SessionId,
    pub(super) handle: String,
    pub(super) by: &'a By,
    /// The plan files that were made for it; they go if it does not come about.
    pub(super) plan_files: Vec<PathBuf>,
}

impl Heir<'_> {
    /// A plan file of its own with this content, if the session it comes from has a plan.
    pub(super) async fn copy_plan(
        &mut self,
        state: &SessionState,
        content: Vec<u8>,
    ) -> Result<Option<PlanCopy>, SessionError> {
        if state.plan.is_none() {
            return Ok(None);
        }
        let content =
            String::from_utf8(content).map_err(|_| storage("the plan's snapshot is not text".into()))?;
        let plan::Created { slug, path } = self.new_plan_file().await?;
        let copy = PlanCopy { slug, path: path.clone() };
        if !content.is_empty() {
            blocking(move || plan::write(&path, &content, Some(digest_of(b"")))).await.map_err(unstored)?;
        }
        Ok(Some(copy))
    }

    /// What makes the mode `mode`, and tells the model where its plan lies now.
    pub(super) async fn take_mode(
        &mut self,
        state: &SessionState,
        mode: Mode,
        copy: Option<&PlanCopy>,
    ) -> Result<Vec<Record>, SessionError> {
        let changed = mode != state.mode;
        match mode {
            Mode::Plan if changed || state.plan.is_none() => {
                let (entered, text) = self.enter_plan(state).await?;
                let changed = ModeChanged { from: state.mode, to: mode, by: self.by.clone() };
                Ok(vec![changed.into(), entered.into(), self.said(text)])
            }
            Mode::Plan => {
                let text = copy.map(|copy| self.plan_guidance(&copy.path));
                Ok(text.map(|text| self.said(text)).into_iter().collect())
            }
            mode if changed => {
                let changed = ModeChanged { from: state.mode, to: mode, by: self.by.clone() };
                Ok(vec![changed.into(), self.said(context::mode_changed(mode))])
            }
            _ => Ok(Vec::new()),
        }
    }

    /// It goes into plan mode with a plan that begins anew.
    async fn enter_plan(&mut self, state: &SessionState) -> Result<(PlanEntered, String), SessionError> {
        let plan::Created { slug, path } = self.new_plan_file().await?;
        let cycle = state.plan.as_ref().map_or(0, |plan| plan.cycle) + 1;
        let text = self.plan_guidance(&path);
        Ok((PlanEntered { pre_mode: state.mode, slug, path, cycle, running: Vec::new() }, text))
    }

    fn plan_guidance(&self, path: &Path) -> String {
        context::note(&super::planning::plan_guidance(self.deps.policies.user().commands_in_plan(), path))
    }

    async fn new_plan_file(&mut self) -> Result<plan::Created, SessionError> {
        let (folder, handle, id) = (self.deps.paths.plans_dir(), self.handle.clone(), self.id);
        let created = blocking(move || {
            let stem = plan::stem_from(None, &handle);
            plan::create(&folder, &stem, id, &mut words::random_noun)
        })
        .await
        .map_err(unstored)?;
        self.plan_files.push(created.path.clone());
        Ok(created)
    }

    pub(super) fn said(&self, text: String) -> Record {
        ContextAdded {
            message_id: MessageId::generate(self.id),
            source: Source::Guidance,
            origin: None,
            text: Body::Inline(text),
        }
        .into()
    }

    /// It did not come about.
    pub(super) async fn discard(self, staged: PathBuf) {
        let _ = self.deps.journals.unstage(staged).await;
        let paths = Arc::clone(&self.deps.paths);
        let files = self.plan_files;
        blocking(move || {
            for path in files {
                if let Err(error) = paths.remove_plan(&path) {
                    tracing::warn!(%error, "a plan file was left behind");
                }
            }
        })
        .await;
    }
}

/// How a journal begins.
pub(super) fn created(first: &Commit) -> Result<Created, SessionError> {
    let unreadable = || storage("the session's journal has no readable beginning".into());
    let raw = first.records.first().ok_or_else(unreadable)?;
    let record::Parsed::Known { record, .. } = Record::parse(raw) else { return Err(unreadable()) };
    match *record {
        Record::Created(created) => Ok(created),
        _ => Err(unreadable()),
    }
}

/// Another beginning for the same commit.
pub(super) fn made_out(first: &Commit, created: Created) -> Vec<Box<serde_json::value::RawValue>> {
    let mut records = vec![Record::from(created).to_raw(None)];
    records.extend(first.records.iter().skip(1).cloned());
    records
}

/// Whether a conversation that ends here is one that a provider takes.
pub(super) fn rests(state: &SessionState) -> bool {
    state.turn.as_ref().is_none_or(|turn| !matches!(turn.phase, Phase::Calls(_)))
}

/// The mode that lets less happen without a person.
pub(super) fn narrower(a: Mode, b: Mode) -> Mode {
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

/// The widest mode of a session that somebody makes. A program has no say in what happens without a person.
pub(super) fn widest_for(actor: Actor) -> Mode {
    match actor {
        Actor::Person => Mode::BypassPermissions,
        Actor::Program => Mode::AcceptEdits,
    }
}

/// What the disk, or somebody on its way to it, did not do.
pub fn unstored(error: impl std::error::Error + Send + Sync + 'static) -> SessionError {
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
