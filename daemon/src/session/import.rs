//! Taking a session in: a bundle becomes a folder in a place of its own, everything about it is looked at, and only then it
//! gets its place among the sessions.

mod proof;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentd_protocol::Mode;
use agentd_protocol::session::ForkedFrom;
use agentd_protocol::transfer::ImportParams;

use super::blocking;
use super::command::{Caller, Snapshot};
use super::deps::Deps;
use super::error::SessionError;
use super::fork::new_handle;
use super::heir::{Heir, created, made_out, narrower, unstored};
use super::record::{BundleNamed, Created, PlanCopy, Record, SessionForked, SessionImported};
use super::state::SessionState;
use crate::ids::{Digest, SessionId, digest_of};
use crate::journal::Durability;
use crate::journal::bundle::{About, Bundle, BundleError};
use crate::{context, process};

use proof::Unpacked;
pub use proof::{Doubt, would_be_taken};

/// An import that was asked for.
pub struct Importing<'a> {
    pub bundle: &'a Arc<Bundle>,
    pub params: &'a ImportParams,
    /// Of the session that it becomes.
    pub id: SessionId,
    pub caller: &'a Caller,
    /// The session that this daemon gave away with it, if it has it still.
    pub given_away: Option<&'a Snapshot>,
}

impl Importing<'_> {
    /// What was asked for, without the new id: the same id with the same bundle is the same session.
    #[must_use]
    pub fn params_digest(bundle: &Bundle, params: &ImportParams) -> Digest {
        digest_of(&serde_json::to_vec(&("import", bundle.digest(), &params.cwd)).unwrap_or_default())
    }

    fn about(&self) -> &About {
        &self.bundle.manifest().about
    }

    fn params(&self) -> Digest {
        Self::params_digest(self.bundle, self.params)
    }
}

/// The id that a bundle's session has here.
///
/// # Errors
/// Another one was asked for than that of a session that was handed over.
pub fn id_of(bundle: &Bundle, wanted: Option<SessionId>) -> Result<SessionId, SessionError> {
    let about = &bundle.manifest().about;
    match wanted {
        wanted if about.copy => Ok(wanted.unwrap_or_else(SessionId::generate)),
        Some(other) if other != about.session_id => Err(SessionError::invalid(
            "sessionId",
            "the session was handed over and keeps its id; only a copy gets another one",
        )),
        _ => Ok(about.session_id),
    }
}

/// The owner that comes after the one who wrote the bundle.
#[must_use]
pub fn next_epoch(bundle: &Bundle) -> u64 {
    bundle.manifest().about.owner_epoch.saturating_add(1)
}

/// The session is here, and is not to be replaced.
#[must_use]
pub fn is_here(handle: &str) -> SessionError {
    SessionError::Conflict(format!(
        "this session is here already, as {handle}, and was not handed over with this bundle; nothing was changed"
    ))
}

/// Why a bundle is not taken.
#[must_use]
pub fn not_taken(error: BundleError) -> SessionError {
    match error {
        BundleError::NotOne { .. } | BundleError::Newer { .. } => {
            SessionError::invalid("path", error.to_string())
        }
        BundleError::Io { action: "open", .. } => {
            SessionError::invalid("path", format!("{:#}", anyhow::Error::new(error)))
        }
        error => unstored(error),
    }
}

/// A session that is whole and nobody sees yet.
pub struct Staged<'a> {
    pub folder: PathBuf,
    heir: Heir<'a>,
}

impl Staged<'_> {
    /// It did not come about.
    pub async fn discard(self) {
        self.heir.discard(self.folder).await;
    }
}

/// Makes the session's folder in a place of its own.
///
/// # Errors
/// The folder it is to work in is not here, the bundle is not what it lists, or holds what this version must not pass over;
/// the disk. Nothing of it is left.
pub async fn stage<'a>(deps: &'a Arc<Deps>, importing: &Importing<'a>) -> Result<Staged<'a>, SessionError> {
    let env = process::filter_client_env(&importing.params.env, &deps.shell_env)
        .map_err(|error| SessionError::invalid("env", error.to_string()))?;
    let cwd = folder(deps, importing).await?;
    let dir = deps.paths.session_dir(importing.id);
    let (staged, plan) = deps.journals.unpack(importing.bundle, dir).await.map_err(not_taken)?;
    let by = &importing.caller.by;
    // It gets its name once the journal is read.
    let mut heir = Heir { deps, id: importing.id, handle: String::new(), by, plan_files: Vec::new() };
    match finish(&mut heir, importing, &staged, cwd, plan, env).await {
        Ok(()) => {
            deps.journals.staged_whole();
            Ok(Staged { folder: staged, heir })
        }
        Err(error) => {
            heir.discard(staged).await;
            Err(error)
        }
    }
}

/// The folder that the session works in from now on.
async fn folder(deps: &Arc<Deps>, importing: &Importing<'_>) -> Result<PathBuf, SessionError> {
    let typed = importing.params.cwd.clone().unwrap_or_else(|| importing.about().cwd.clone());
    let named = importing.params.cwd.is_some();
    let cwd = blocking(move || crate::workspace::project_folder(&typed)).await.map_err(|error| {
        let instead = if named { "" } else { "; say where it works from now on: --cwd DIR" };
        SessionError::invalid("cwd", format!("{error}{instead}"))
    })?;
    if deps.own.iter().any(|own| cwd.starts_with(own)) {
        return Err(SessionError::invalid("cwd", "agentd's own folders are no project"));
    }
    Ok(cwd)
}

async fn finish(
    heir: &mut Heir<'_>,
    importing: &Importing<'_>,
    staged: &Path,
    cwd: PathBuf,
    plan: Option<Vec<u8>>,
    env: BTreeMap<String, String>,
) -> Result<(), SessionError> {
    let deps = heir.deps;
    let refused = |doubt: Doubt| doubt.of(&importing.bundle.path().display().to_string());
    let mut unpacked = proof::of(deps, importing.about(), staged, plan.as_deref()).await.map_err(refused)?;
    if let Some(source) = importing.given_away {
        proof::goes_on(source, &unpacked).await?;
        // A later owner has whatever came by then, but a bundle leaves out what only its maker needs; and one that was
        // tampered with must not cost us what we have.
        let ours = deps.paths.session_dir(importing.id);
        deps.journals.add_blobs(ours, staged.to_owned()).await.map_err(unstored)?;
    }
    proof::has_its_texts(&unpacked).await.map_err(refused)?;
    let handle = &unpacked.state.created.handle;
    heir.handle = if importing.about().copy { new_handle(handle) } else { handle.clone() };

    // What the journal begins with, where that is another session or another folder.
    let was = created(&unpacked.first)?;
    let moved = was.cwd != cwd;
    // Whose child it is only the journals here can say.
    let orphan = was.parent.is_some() && importing.given_away.is_none();
    if importing.about().copy || moved || orphan {
        let begun = unpacked.first.place.offset + u64::from(unpacked.first.place.len);
        let (at, rest) = match importing.about().copy {
            true => (deps.clock.now(), begun..unpacked.journal.bytes()),
            false => (unpacked.first.at, begun..unpacked.journal.bytes()),
        };
        let anew = made_out(&unpacked.first, begins_with(heir, importing, &unpacked.state, was, &cwd));
        drop(unpacked.journal);
        deps.journals.begin_anew(staged.to_owned(), (at, anew), rest).await.map_err(unstored)?;
        unpacked = proof::read(deps, staged).await.map_err(refused)?;
    }
    let Unpacked { mut journal, state, .. } = unpacked;

    let copy = heir.copy_plan(&state, plan.unwrap_or_default()).await?;
    let widest = if holds_home(&deps.home, &cwd) { Mode::Default } else { Mode::AcceptEdits };
    let mode = narrower(narrower(state.mode, importing.about().mode), widest);
    let mut records = vec![begins_here(importing, &state, (mode, widest), &cwd, copy.clone())];
    if !importing.about().copy {
        // The same number as where it was: whoever follows it there goes on with what comes next.
        records.insert(0, BundleNamed { bundle: importing.bundle.path().to_owned() }.into());
    }
    records.extend(heir.take_mode(&state, mode, copy.as_ref()).await?);
    if moved {
        records.push(heir.said(context::moved(&cwd)));
    }
    let raw = records.iter().map(|record| record.to_raw(None)).collect();
    let next = journal.next_seq();
    journal.append(next, deps.clock.now(), raw, Durability::Synced).await.map_err(unstored)?;
    drop(journal);
    let (paths, staged) = (Arc::clone(&deps.paths), staged.to_owned());
    blocking(move || paths.write_env_in(&staged, &env)).await.map_err(unstored)
}

/// The first record of the session that it becomes.
fn begins_with(
    heir: &Heir<'_>,
    importing: &Importing<'_>,
    state: &SessionState,
    was: Created,
    cwd: &Path,
) -> Created {
    if !importing.about().copy {
        let parent = was.parent.filter(|_| importing.given_away.is_some());
        return Created { cwd: cwd.to_owned(), parent, ..was };
    }
    Created {
        daemon_id: heir.deps.daemon_id,
        session_id: importing.id,
        handle: heir.handle.clone(),
        title: state.title.clone(),
        cwd: cwd.to_owned(),
        parent: None,
        origin: importing.caller.origin(),
        by: importing.caller.by.clone(),
        params: importing.params(),
        forked_from: Some(ForkedFrom { session_id: state.id(), seq: importing.about().seq }),
        ..was
    }
}

/// The record from which on it is this daemon's.
fn begins_here(
    importing: &Importing<'_>,
    state: &SessionState,
    (mode, widest): (Mode, Mode),
    cwd: &Path,
    plan: Option<PlanCopy>,
) -> Record {
    let by = importing.caller.by.clone();
    if importing.about().copy {
        let from = importing.about().session_id;
        let widest = Some(widest);
        let forked = SessionForked {
            from,
            mode: state.mode,
            by,
            plan,
            from_bundle: true,
            widest,
            breaker: state.breaker,
        };
        return forked.into();
    }
    SessionImported {
        bundle: importing.bundle.path().to_owned(),
        params: importing.params(),
        epoch: next_epoch(importing.bundle),
        cwd: cwd.to_owned(),
        mode,
        by,
        plan,
        plan_files: importing.given_away.map(|given| given.ownership.plan_files.clone()).unwrap_or_default(),
        widest: Some(widest),
    }
    .into()
}

/// A project that is a person's home, or holds it: a bundle may name it, and edits without asking are for what somebody
/// chose.
fn holds_home(home: &Path, cwd: &Path) -> bool {
    home.starts_with(cwd)
}
