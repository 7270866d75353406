//! Sessions that come and go as bundles.

use std::sync::Arc;

use agentd_protocol::Mode;
use agentd_protocol::session::State;
use agentd_protocol::transfer::{ExportParams, ExportResult, ImportParams, ImportResult};

use super::{NEW_TRIES, Registry};
use crate::ids::SessionId;
use crate::journal::JournalError;
use crate::journal::bundle::Bundle;
use crate::session::command::{Caller, Command, Snapshot};
use crate::session::export::{not_named, pack_copy, pack_to_hand_over, target};
use crate::session::import::{Importing, Staged, id_of, is_here, next_epoch, not_taken, stage};
use crate::session::{SessionError, unstored};

/// How often a session is packed anew because it did something meanwhile.
const PACK_TRIES: usize = 3;

/// What an import came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// A session that was not here.
    New,
    /// The place of the session that was given away.
    Back,
    /// Made of the same bundle before.
    Before,
}

impl Registry {
    /// Writes a session into a bundle, and gives it away unless it is a copy.
    ///
    /// # Errors
    /// There is no such session, it is at work, or the bundle cannot be written.
    pub async fn export(
        self: &Arc<Self>,
        params: &ExportParams,
        caller: &Caller,
    ) -> Result<ExportResult, SessionError> {
        self.may_move()?;
        // The bundle is taken in on trial, beside the sessions, where leftovers are swept after a start.
        self.swept.cancelled().await;
        let id = params.session_id;
        let path = target(&self.deps, &params.path).await?;
        self.deps.journals.is_free(path.clone(), params.replace).await.map_err(not_named)?;
        let _turn = self.moving.acquire().await.map_err(|_| SessionError::Overloaded)?;
        for _ in 0..PACK_TRIES {
            // A change of the plan from outside is journaled first, so that it comes along.
            match self.ask(id, |reply| Command::PlanGet { reply }).await {
                Err(error) if !params.copy && !matches!(error, SessionError::NotFound("plan")) => {
                    return Err(error);
                }
                // A copy is made of what is journaled, whatever has become of the file.
                Ok(_) | Err(_) => {}
            }
            if !params.copy {
                self.ask(id, |reply| Command::MayHandOver { reply }).await?;
            }
            let source = self.snapshot(id).await?;
            let packed = if params.copy {
                let packed = pack_copy(&self.deps, &source, &path).await?;
                let (journals, temporary) = (&self.deps.journals, packed.temporary.clone());
                if let Err(error) =
                    journals.name_bundle(temporary.clone(), path.clone(), params.replace).await
                {
                    journals.drop_bundle(temporary).await;
                    return Err(not_named(error));
                }
                packed
            } else {
                let handing = pack_to_hand_over(&self.deps, &source, params, &path, caller).await?;
                let packed = handing.packed.clone();
                let handing = Box::new(handing);
                match self.ask(id, |reply| Command::HandOver { handing, reply }).await {
                    Ok(()) => packed,
                    // It did something since it was packed.
                    Err(SessionError::Overloaded) => continue,
                    Err(error) => return Err(error),
                }
            };
            return Ok(ExportResult {
                path: path.display().to_string(),
                bytes: packed.bytes,
                digest: packed.digest,
                handed_over: !params.copy || source.ownership.handed_over.is_some(),
            });
        }
        Err(SessionError::Overloaded)
    }

    /// Makes a session of a bundle, or answers the one that was made of it before.
    ///
    /// # Errors
    /// The bundle is not to be taken in, the session is here and was not given away with it, or the disk.
    pub async fn import(
        self: &Arc<Self>,
        params: &ImportParams,
        caller: &Caller,
    ) -> Result<ImportResult, SessionError> {
        self.may_move()?;
        // What an earlier process left half-made is swept first, so that this one is not swept with it.
        self.swept.cancelled().await;
        let _turn = self.moving.acquire().await.map_err(|_| SessionError::Overloaded)?;
        if !std::path::Path::new(&params.path).is_absolute() {
            return Err(SessionError::invalid("path", format!("{} is not an absolute path", params.path)));
        }
        let bundle = self.deps.journals.open_bundle(params.path.clone().into()).await.map_err(not_taken)?;
        let id = id_of(&bundle, params.session_id)?;
        let digest = Importing::params_digest(&bundle, params);
        for _ in 0..NEW_TRIES {
            let taken = self.import_once(&bundle, params, id, caller).await;
            let taken = match taken {
                Ok(taken) => taken,
                // It was there and is just being deleted: its id is free in a moment.
                Err(SessionError::NotFound(_)) => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let state = self.same_as(id, digest).await?;
            if let Some(handed) = state.handed_over.as_ref().filter(|_| taken == Taken::Before) {
                return Err(SessionError::Conflict(format!(
                    "this session was taken out of that bundle before, and has been handed over since, to {}; import that one",
                    handed.bundle
                )));
            }
            if taken == Taken::New {
                self.made(&state);
            }
            return Ok(ImportResult {
                session_id: id,
                handle: state.handle.clone(),
                taken_back: taken == Taken::Back,
                note: narrowed(&bundle, &state).filter(|_| taken != Taken::Before),
                state: *state,
            });
        }
        Err(SessionError::Overloaded)
    }

    async fn import_once(
        self: &Arc<Self>,
        bundle: &Arc<Bundle>,
        params: &ImportParams,
        id: SessionId,
        caller: &Caller,
    ) -> Result<Taken, SessionError> {
        if let Some(reservation) = self.reserve(id) {
            if !self.is_on_disk(id).await {
                let importing = Importing { bundle, params, id, caller, given_away: None };
                let staged = stage(&self.deps, &importing).await?;
                self.unveil(staged, id).await?;
                reservation.was_there();
                return Ok(Taken::New);
            }
            reservation.was_there();
        }
        // Made of the same bundle before.
        let digest = Importing::params_digest(bundle, params);
        match self.same_as(id, digest).await {
            Ok(_) => return Ok(Taken::Before),
            Err(SessionError::Conflict(_)) => {}
            Err(error) => return Err(error),
        }
        let source: Box<Snapshot> = self.snapshot(id).await?;
        let epoch = next_epoch(bundle);
        let here = &source.ownership;
        if bundle.manifest().about.copy || here.handed_over.is_none() || here.epoch >= epoch {
            return Err(is_here(&source.state.handle));
        }
        let importing = Importing { bundle, params, id, caller, given_away: Some(&source) };
        let staged = stage(&self.deps, &importing).await?;
        let folder = staged.folder.clone();
        match self.ask(id, |reply| Command::GiveWay { epoch, staged: folder, reply }).await {
            Ok(()) => Ok(Taken::Back),
            Err(error) => {
                staged.discard().await;
                Err(error)
            }
        }
    }

    async fn unveil(&self, staged: Staged<'_>, id: SessionId) -> Result<(), SessionError> {
        let dir = self.deps.paths.session_dir(id);
        match self.deps.journals.unveil(staged.folder.clone(), dir).await {
            Ok(()) => Ok(()),
            Err(error) => {
                staged.discard().await;
                Err(match error {
                    JournalError::Exists { .. } => {
                        SessionError::Conflict("a session of this id exists already".into())
                    }
                    error => unstored(error),
                })
            }
        }
    }

    fn may_move(&self) -> Result<(), SessionError> {
        match self.is_stopping() {
            true => Err(SessionError::Refused("the daemon is shutting down".into())),
            false => Ok(()),
        }
    }
}

/// What is said of a mode that did not come along.
fn narrowed(bundle: &Bundle, state: &State) -> Option<String> {
    let was = bundle.manifest().about.mode;
    (state.mode != was).then(|| match state.mode {
        Mode::Default => format!(
            "It was in {was} before: where the folder is your home or holds it, each edit is asked about."
        ),
        _ => format!("It was in {was} before: a bundle brings no wider mode than acceptEdits."),
    })
}
