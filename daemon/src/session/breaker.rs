//! The breakers of mode `auto`: the session's own, which is in its journal, and the one for all. While one is open, or the
//! settings shut the mode, a session in `auto` is judged as one in `default`.

use agentd_protocol::Mode;
use agentd_protocol::approval::By;
use agentd_protocol::permission::{Breaker, BreakerAction};

use super::actor::Session;
use super::command::{Caller, person_only};
use super::deps::Breakers;
use super::error::SessionError;
use super::project::breaker_view;
use super::record::{BreakerChange, BreakerChanged, Record};
use crate::permission;
use crate::store::kept::KeptState;

/// Whether the breaker for all sessions is open. What cannot be read may be. Blocks.
pub(super) fn is_open_everywhere(kept: &KeptState) -> bool {
    kept.breaker().map_or_else(
        |error| {
            tracing::warn!(%error, "the breaker of mode auto counts as open");
            true
        },
        |thrown| thrown.is_some(),
    )
}

impl Session {
    pub(super) fn breakers(&self) -> Breakers {
        Breakers { own: self.state.breaker.is_open(), everywhere: self.shut_everywhere }
    }

    pub(super) fn mode_available(&self, mode: Mode) -> Result<(), SessionError> {
        self.policy.mode_available(mode, self.breakers()).map_err(SessionError::Refused)
    }

    /// The mode that a remembered one becomes when it is returned to.
    pub(super) fn still_available(&self, mode: Mode) -> Mode {
        self.policy.still_available(mode, self.breakers())
    }

    /// The mode that calls are judged in.
    pub(super) fn mode_now(&self) -> Mode {
        self.still_available(self.state.mode)
    }

    pub(super) async fn set_breaker(
        &mut self,
        action: Option<BreakerAction>,
        caller: &Caller,
    ) -> Result<Breaker, SessionError> {
        let before = self.state.breaker;
        let change = match action {
            Some(BreakerAction::Open) if !before.is_open() => Some(BreakerChange::Thrown),
            Some(BreakerAction::Close) => {
                person_only(caller.actor)?;
                // Also one that is closed, if it has counted something: the counts begin anew.
                (before != permission::Breaker::default()).then_some(BreakerChange::Closed)
            }
            Some(BreakerAction::Open) | None => None,
        };
        if let Some(change) = change {
            let counts =
                if change == BreakerChange::Closed { permission::Breaker::default() } else { before };
            self.commit(vec![changed(change, caller.by.clone(), counts)]).await?;
            self.drop_opinions();
        }
        Ok(breaker_view(self.state.breaker))
    }
}

pub(super) fn changed(change: BreakerChange, by: By, counts: permission::Breaker) -> Record {
    BreakerChanged { change, by, in_row: counts.in_row(), total: counts.total() }.into()
}
