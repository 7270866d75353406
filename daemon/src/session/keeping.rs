//! Snapshots of the work tree, taken at both ends of every turn that has effects: before its first call that could
//! change something, and when it has finished; and between, where others had time to change something that a later call
//! could hide. A turn is never worse off for a snapshot that could not be taken.

use std::time::Duration;

use agentd_protocol::{CallId, TurnId};
use futures_util::FutureExt as _;
use tokio::time::Instant;

use super::actor::Session;
use super::error::SessionError;
use super::flight::{Flight, KeptTree};
use super::record::{Json, Kept, Ran, TreeKept, When};
use super::state::CallState;
use crate::tool::Work;
use crate::workspace::snapshot::{self, Since, SnapshotError, Window};

/// Without an effect for so long, others had time to change something.
const QUIET: Duration = Duration::from_secs(2);
/// A snapshot between takes no more than this part of the time, unless a person was waited for.
const RARELY: u32 = 5;
/// Calls with effects after which there is another snapshot in any case.
const MANY_CALLS: usize = 256;
/// Bytes of a list that stand in the record itself. Lists are often the same, and a blob is kept once.
const SHORT_LIST: usize = 1024;

/// What this process knows about a session's snapshots, beside what is journaled.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    /// The turn that is known to lie in no repository.
    outside: Option<TurnId>,
    /// Taking one took too long, or there is no git. It is not tried again before the session is loaded anew.
    given_up: bool,
    /// The turn that finished in this process: its second snapshot is not late.
    pub(super) ended_here: Option<TurnId>,
    /// The call with effects that runs, or whose result is not recorded yet.
    running: Option<Running>,
    /// When the last effect ended, or the last snapshot. Absent: not in this process.
    quiet: Option<Instant>,
    /// How long the last snapshot took.
    cost: Duration,
    /// When the one that is under way began.
    taking: Option<Instant>,
    /// A person was waited for since.
    pub(super) waited: bool,
    /// The first call of those that the last snapshot was taken for.
    pub(super) looked_for: Option<CallId>,
    /// The turn in which one between could not be taken; no other is tried.
    none_between: Option<TurnId>,
}

#[derive(Debug)]
struct Running {
    call: CallId,
    from: u64,
    until: Option<u64>,
    tells: bool,
}

impl Keeping {
    /// A call with effects begins.
    pub(super) fn begun(&mut self, call: CallId, tells: bool) {
        self.running = Some(Running { call, from: snapshot::stamp(), until: None, tells });
    }

    /// It has ended; its result may be recorded later.
    pub(super) fn ended(&mut self, call: &CallId) {
        if let Some(running) = self.running.as_mut().filter(|running| running.call == *call) {
            running.until.get_or_insert_with(snapshot::stamp);
            self.quiet = Some(Instant::now());
        }
    }

    pub(super) fn ran(&self, call: &CallId) -> Option<Ran> {
        let running = self.running.as_ref().filter(|running| running.call == *call)?;
        Some(Ran { from: running.from, until: running.until?, tells: running.tells })
    }

    /// What a look at this moment is told of the call that runs.
    pub(super) fn open_window(&self) -> Option<Window> {
        let running = self.running.as_ref().filter(|running| running.until.is_none())?;
        Some(Window { from: running.from, until: u64::MAX, only: None })
    }

    fn others_had_time(&self) -> bool {
        self.waited || self.quiet.is_none_or(|since| since.elapsed() > QUIET.max(self.cost * RARELY))
    }
}

impl Session {
    /// The snapshot that has to come before these calls, if one of them could change something.
    pub(super) fn tree_wanted_before(&self, calls: &[CallId]) -> Option<(TurnId, When)> {
        let turn = self.state.turn.as_ref()?.id;
        if self.keeping.given_up || self.keeping.outside == Some(turn) {
            return None;
        }
        let when = match self.state.trees.wanted(turn) {
            Some(when) => when,
            None if self.look_again(turn, calls) => When::Between,
            None => return None,
        };
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

    /// Whether there is to be one more snapshot before these calls of a turn that has its first.
    fn look_again(&self, turn: TurnId, calls: &[CallId]) -> bool {
        let keeping = &self.keeping;
        let Some(since) = self.state.trees.since.as_ref().filter(|_| self.state.trees.has_begun(turn)) else {
            return false;
        };
        // A person may be asked again before the same calls; a slow disk is no reason to look again.
        let seen = keeping.looked_for.is_some() && keeping.looked_for.as_ref() == calls.first();
        keeping.none_between != Some(turn)
            && (keeping.waited || !seen && (keeping.others_had_time() || since.windows.len() >= MANY_CALLS))
    }

    pub(super) fn keep_tree(&mut self, turn: TurnId, when: When) {
        let snapshots = self.deps.snapshots.clone();
        let since = self.state.trees.since.clone();
        let session = self.deps.paths.session_dir(self.state.id());
        let cwd = self.state.created.cwd.clone();
        self.keeping.taking = Some(Instant::now());
        let future = async move { snapshots.take(&session, &cwd, since).await }.boxed();
        self.flight.board(Flight::Keep { turn, when, future });
    }

    /// Journals the snapshot, or why there is none.
    pub(super) async fn tree_kept(
        &mut self,
        turn: TurnId,
        when: When,
        result: KeptTree,
    ) -> Result<(), SessionError> {
        if let Some(began) = self.keeping.taking.take() {
            self.keeping.cost = began.elapsed();
        }
        let kept = match result {
            Ok(Some(taken)) => {
                let left_out = match taken.left_out.is_empty() {
                    true => None,
                    false => Some(self.list(taken.left_out).await?),
                };
                let hidden = self.some_list(taken.hidden).await?;
                let whose = self.some_list(taken.whose).await?;
                Kept::Tree { root: taken.root, tree: taken.tree, left_out, hidden, whose }
            }
            Ok(None) if when != When::After => {
                self.keeping.outside = Some(turn);
                return Ok(());
            }
            Err(error) if when == When::Between => {
                tracing::debug!(session = %self.state.id(), %error, "no snapshot between");
                self.keeping.none_between = Some(turn);
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
        self.commit(vec![TreeKept { turn_id: turn, when, kept, late, mode, outcome }.into()]).await?;
        self.keeping.waited = false;
        self.keeping.quiet = Some(Instant::now());
        Ok(())
    }

    async fn some_list<T: serde::Serialize + Send + 'static>(
        &self,
        list: Option<T>,
    ) -> Result<Option<Json>, SessionError> {
        match list {
            Some(list) => Ok(Some(self.list(list).await?)),
            None => Ok(None),
        }
    }

    async fn list<T: serde::Serialize + Send + 'static>(&self, list: T) -> Result<Json, SessionError> {
        let raw = super::blocking(move || serde_json::value::to_raw_value(&list))
            .await
            .map_err(|error| super::commit::storage(format!("a list cannot be written down: {error}")))?;
        let mut room = SHORT_LIST;
        self.json_within(&mut room, raw).await
    }

    /// The newest snapshot and all that the session could do since, up to this moment.
    pub(super) fn since(&self) -> Option<Since> {
        let mut since = self.state.trees.since.clone()?;
        let calls = self.state.turn.iter().flat_map(|turn| turn.calls());
        if calls.into_iter().any(|call| matches!(call.state, CallState::Running { effects: true })) {
            since.windows.extend(self.keeping.open_window());
        }
        Some(since)
    }

    /// Waits for the snapshot of a turn that has just finished, so that whoever asks sees the turn's end.
    pub(super) async fn settle_tree(&mut self) {
        if let Some(flight @ Flight::Keep { when: When::After, .. }) = self.flight.get() {
            let landed = flight.next().await;
            self.land(landed).await;
        }
    }
}
