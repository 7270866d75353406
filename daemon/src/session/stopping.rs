//! Ends: of what runs for a turn, of a session's task when the daemon goes down, of the session itself.

use std::sync::Arc;
use std::time::Duration;

use agentd_protocol::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::actor::Session;
use super::error::SessionError;
use super::flight::{Flight, Landed};
use super::record::TurnParked;
use super::step::{Step, next_step};
use crate::journal::JournalError;

/// How long an interrupted call may take to end before it is dropped.
const STOP_GRACE: Duration = Duration::from_secs(5);

impl Session {
    /// What runs for the turn is told to end; after a grace it is dropped.
    pub(super) fn stop_running(&mut self) {
        self.turn_token.cancel();
        self.stop_at = Some(Instant::now() + STOP_GRACE);
    }

    /// A pause that is over, or that nobody waits for any more.
    pub(super) fn wake_timer(&mut self) {
        self.wait_until = None;
    }

    /// Calls were stopped but not their turn: what it runs next has a token of its own.
    pub(super) fn renew_token(&mut self) {
        let stopping = self.state.turn.as_ref().is_some_and(|turn| turn.stopping.is_some());
        if self.turn_token.is_cancelled() && !stopping {
            self.turn_token = CancellationToken::new();
        }
    }

    pub(super) fn stopped_running(&mut self) {
        self.stop_at = None;
    }

    pub(super) async fn drop_flight(&mut self) {
        self.stop_at = None;
        if let Some(Flight::Run { .. }) = self.flight.get().take() {
            let recorded = self.abandon_running().await;
            self.put_off(recorded);
            self.renew_token();
        }
    }

    pub(super) async fn park(&mut self, reply: tokio::sync::oneshot::Sender<()>) {
        self.parked = true;
        self.parking.push(reply);
        match self.flight.get() {
            Some(Flight::Sample { .. }) => {
                self.flight.clear();
                let cut = self.cut_sample(super::turn::Cut::Parked).await;
                if let Err(error) = cut {
                    tracing::warn!(session = %self.state.id(), %error, "a parked answer was not kept");
                }
            }
            // Asked again at the next start.
            Some(Flight::Prepare { .. } | Flight::Classify { .. }) => self.flight.clear(),
            Some(Flight::Run { effects: false, .. }) => self.stop_running(),
            // Calls with effects get the time that the shutdown gives them.
            Some(Flight::Run { .. } | Flight::Keep { .. }) | None => {}
        }
    }

    pub(super) async fn finish_parking(&mut self) {
        let recorded = self.record_landed().await;
        self.put_off(recorded);
        // Also one that only waits: an answer that is accepted from now on leaves it where the next start goes on.
        if let Some(turn_id) = self.state.turn.as_ref().map(|turn| turn.id)
            && let Err(error) = self.commit(vec![TurnParked { turn_id }.into()]).await
        {
            tracing::warn!(session = %self.state.id(), %error, "a turn was not parked");
        }
        if let Err(error) = self.journal.sync().await {
            tracing::warn!(session = %self.state.id(), %error, "the journal was not synced");
        }
        self.keep_checkpoint().await;
        for reply in std::mem::take(&mut self.parking) {
            let _ = reply.send(());
        }
    }

    /// Gives what runs the time to end, so that nothing is written after it was said to be over.
    async fn see_the_end_of_calls(&mut self) {
        let Some(flight @ Flight::Run { .. }) = self.flight.get() else { return };
        let ended = async { while !matches!(flight.next().await, Landed::AllRan) {} };
        if tokio::time::timeout(STOP_GRACE, ended).await.is_err() {
            tracing::warn!(session = %self.state.id(), "calls of a deleted session did not end in time");
        }
    }

    /// Removes the session if nobody has a use for it. Whether it is gone.
    pub(super) async fn expire(&mut self, unchanged_since: Timestamp) -> Result<bool, SessionError> {
        self.waiters.retain(|(_, reply)| !reply.is_closed());
        let state = &self.state;
        let changed = state.updated_at > unchanged_since;
        let at_work = state.turn.is_some() || !self.flight.is_free() || next_step(state) != Step::Idle;
        let waits = !state.approvals.is_empty() || !state.inbox.is_empty();
        if changed || at_work || waits || self.feed.is_watched() || !self.waiters.is_empty() {
            return Ok(false);
        }
        if !self.is_not_all_that_is_left().await {
            tracing::info!(session = %self.state.id(), "retention: its bundle is not where it was written, so it stays");
            return Ok(false);
        }
        self.delete().await.map(|()| true)
    }

    pub(super) async fn delete(&mut self) -> Result<(), SessionError> {
        self.turn_token.cancel();
        self.see_the_end_of_calls().await;
        // Dropping a flight ends its processes: their lifeline closes.
        self.flight.clear();
        let id = self.state.id();
        let paths = Arc::clone(&self.deps.paths);
        let plans = self.state.plan_files.clone();
        // Before the journal, which alone knows of them. Had the daemon died in between, the plan's file would come back from
        // its last snapshot.
        super::blocking(move || {
            for path in plans {
                if let Err(error) = paths.remove_plan(&path) {
                    tracing::warn!(%error, "a plan file was left behind");
                }
            }
            if let Err(error) = paths.remove_scratch(id) {
                tracing::warn!(%error, "temporary files were left behind");
            }
        })
        .await;
        match self.deps.journals.remove_session(self.deps.paths.session_dir(id)).await {
            // Somebody has removed it already; what else there is of it goes as well.
            Ok(()) | Err(JournalError::Missing { .. }) => {}
            Err(error) => return Err(super::heir::unstored(error)),
        }
        self.unmark().await;
        self.deleted = true;
        self.watcher.deleted(id);
        self.feed.close();
        for (_, reply) in self.waiters.drain(..) {
            let _ = reply.send(Err(SessionError::NotFound("session")));
        }
        Ok(())
    }
}
