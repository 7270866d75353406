//! Looks at the settings now and then, so that a changed rule reaches what waits for a person, and what is wrong with a
//! file is told before the next call.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::Registry;
use crate::ids::SessionId;
use crate::session::blocking;
use crate::session::command::Command;
use crate::session::deps::Policy;

/// Somebody who saves a rule looks at their terminal next.
const EVERY: Duration = Duration::from_secs(1);

/// Under which settings each waiting session was last seen.
type Seen = HashMap<SessionId, Arc<Policy>>;

impl Registry {
    /// Looks until the daemon leaves.
    pub fn keep_settings(self: &Arc<Self>) {
        let registry = Arc::clone(self);
        self.tracker.spawn(async move {
            let leave = registry.deps.leave.clone();
            let mut seen = Seen::new();
            let rounds = async {
                loop {
                    tokio::time::sleep(EVERY).await;
                    registry.look_at_settings(&mut seen).await;
                }
            };
            tokio::select! {
                () = leave.cancelled() => {}
                () = rounds => {}
            }
        });
    }

    /// One look: only at the user's file and the projects of sessions in memory that wait for a person.
    async fn look_at_settings(self: &Arc<Self>, seen: &mut Seen) {
        let waiting: Vec<(SessionId, PathBuf)> = {
            let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
            let waits = rows.iter().filter(|(_, (_, approvals))| !approvals.is_empty());
            waits.map(|(id, (row, _))| (*id, PathBuf::from(&row.cwd))).collect()
        };
        let policies = Arc::clone(&self.deps.policies);
        let now: Seen = blocking(move || {
            // Also where nobody waits: its mistakes are told.
            let _ = policies.notices();
            waiting.into_iter().map(|(id, cwd)| (id, policies.of(&cwd))).collect()
        })
        .await;
        for notice in self.deps.policies.untold() {
            tracing::warn!(code = %notice.code, "{}", notice.text);
            self.notice(&notice.code, &notice.text);
        }
        for (id, policy) in &now {
            // Also one that is seen for the first time: the change may have come just before.
            if seen.get(id).is_none_or(|before| before != policy) {
                // A full mailbox: it hears of it in the next round.
                if self.send(*id, Command::LookAtSettings).is_err() {
                    tracing::debug!(session = %id, "was not told that settings changed");
                }
            }
        }
        *seen = now;
    }
}
