//! Snapshots of the work tree, taken at both ends of every turn that has effects: before its first call that could
//! change something, and when it has finished. A turn is never worse off for a snapshot that could not be taken.

use agentd_protocol::{CallId, TurnId};
use futures_util::FutureExt as _;

use super::actor::Session;
use super::error::SessionError;
use super::flight::{Flight, KeptTree};
use super::record::{Json, Kept, TreeKept, When};
use crate::tool::Work;
use crate::workspace::snapshot::{LeftOut, SnapshotError};

/// What this process knows about a session's snapshots, beside what is journaled.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    /// The turn that is known to lie in no repository.
    outside: Option<TurnId>,
    /// Taking one took too long, or there is no git. It is not tried again before the session is loaded anew.
    given_up: bool,
    /// The turn that finished in this process: its second snapshot is not late.
    pub(super) ended_here: Option<TurnId>,
}

impl Session {
    /// The snapshot that has to come before these calls, if one of them could change something.
    pub(super) fn tree_wanted_before(&self, calls: &[CallId]) -> Option<(TurnId, When)> {
        let turn = self.state.turn.as_ref()?.id;
        if self.keeping.given_up || self.keeping.outside == Some(turn) {
            return None;
        }
        let when = self.state.trees.wanted(turn)?;
        let changes = |id: &CallId| {
            self.prepared.get(id).is_some_and(|prepared| {
                prepared.as_ref().is_ok_and(|prepared| {
                    matches!(prepared.work, Work::Run(_))
                        && !prepared.effects.iter().all(|effect| effect.is_read_only())
                })
            })
        };
        calls.iter().any(changes).then_some((turn, when))
    }

    pub(super) fn keep_tree(&mut self, turn: TurnId, when: When) {
        let snapshots = self.deps.snapshots.clone();
        let session = self.deps.paths.session_dir(self.state.id());
        let cwd = self.state.created.cwd.clone();
        let future = async move { snapshots.take(&session, &cwd).await }.boxed();
        self.flight.board(Flight::Keep { turn, when, future });
    }

    /// Journals the snapshot, or why there is none.
    pub(super) async fn tree_kept(
        &mut self,
        turn: TurnId,
        when: When,
        result: KeptTree,
    ) -> Result<(), SessionError> {
        let kept = match result {
            Ok(Some(taken)) => {
                let left_out = self.left_out_json(taken.left_out).await?;
                Kept::Tree { root: taken.root, tree: taken.tree, left_out }
            }
            Ok(None) if when != When::After => {
                self.keeping.outside = Some(turn);
                return Ok(());
            }
            Ok(None) => Kept::Not { reason: "the repository is not there any more".into() },
            Err(error) => {
                self.keeping.given_up |= matches!(error, SnapshotError::TooSlow(_) | SnapshotError::NoGit);
                let reason = error.explain();
                self.say(
                    "snapshot",
                    &format!(
                        "no snapshot of the work tree: {reason}. What commands change in this turn is not shown and \
                         cannot be taken back."
                    ),
                );
                Kept::Not { reason }
            }
        };
        let runs = self.state.turn.as_ref().is_some_and(|running| running.id == turn);
        let late = when == When::After && !runs && self.keeping.ended_here != Some(turn);
        let (mode, outcome) = (self.state.mode, self.state.last_outcome);
        self.commit(vec![TreeKept { turn_id: turn, when, kept, late, mode, outcome }.into()]).await
    }

    async fn left_out_json(&self, left_out: Vec<LeftOut>) -> Result<Option<Json>, SessionError> {
        if left_out.is_empty() {
            return Ok(None);
        }
        let raw = super::blocking(move || serde_json::value::to_raw_value(&left_out))
            .await
            .map_err(|error| super::commit::storage(format!("a list cannot be written down: {error}")))?;
        Ok(Some(self.json(raw).await?))
    }

    /// Waits for the snapshot of a turn that has just finished, so that whoever asks sees the turn's end.
    pub(super) async fn settle_tree(&mut self) {
        if let Some(flight @ Flight::Keep { when: When::After, .. }) = self.flight.get() {
            let landed = flight.next().await;
            self.land(landed).await;
        }
    }
}
