//! A session's task: the only holder of its state. It takes the next step, waits for what happens, folds it in.
//!
//! What takes time (the model, tools) runs as one [`Flight`] inside this task: dropping it ends it, a command is heard
//! while it goes on, and nothing else of the daemon waits for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use agentd_protocol::approval::Approval;
use agentd_protocol::event::EventBody;
use agentd_protocol::session::Row;
use agentd_protocol::turn::TurnWaitResult;
use agentd_protocol::{CallId, Event, TurnId};
use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::command::{Command, Reply, Snapshot};
use super::deps::Deps;
use super::error::SessionError;
use super::feed::Feed;
use super::flight::{Berth, Flight, Landed};
use super::project::{row, view};
use super::record::{Record, TurnParked};
use super::state::{Fate, SessionState};
use super::step::{Step, next_step};
use crate::journal::{Durability, Journal, JournalReader};
use crate::paths::markers::Markers;
use crate::tool::{Prepared, ToolError};

/// How long an idle session stays in memory.
const IDLE: Duration = Duration::from_secs(60);
/// How long an interrupted call may take to end before it is dropped.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Told about changes that concern more than one session: lists, the count of what waits.
pub trait Watcher: Send + Sync {
    fn changed(&self, row: Row, approvals: Vec<Approval>);
}

pub struct Session {
    pub(super) state: SessionState,
    pub(super) journal: Journal,
    pub(super) reader: JournalReader,
    pub(super) deps: Arc<Deps>,
    pub(super) feed: Arc<Feed>,
    pub(super) watcher: Arc<dyn Watcher>,
    pub(super) flight: Berth,
    /// Calls made ready for judging and, if nothing intervenes, for running.
    pub(super) prepared: HashMap<CallId, Result<Prepared, ToolError>>,
    /// Ends what runs for the current turn.
    pub(super) turn_token: CancellationToken,
    /// The session's environment for processes.
    pub(super) env: Arc<Vec<(String, String)>>,
    /// Words that the next plan is named by, while a prompt that enters plan mode is being taken.
    pub(super) naming: Option<String>,
    pub(super) messages: super::request::MessageCache,
    stop_at: Option<Instant>,
    wait_until: Option<Instant>,
    waiters: Vec<(TurnId, Reply<TurnWaitResult>)>,
    /// The daemon is going down: no further step, but prompts still reach the inbox.
    parked: bool,
    parking: Vec<tokio::sync::oneshot::Sender<()>>,
    /// A step could not be journaled; nothing is tried again before someone says something.
    stalled: bool,
    marked: bool,
    deleted: bool,
}

/// Why a session's task ended.
#[derive(Debug)]
pub enum Ended {
    /// Nothing to do; the next message loads it again.
    Idle,
    /// The daemon is going down.
    Left,
    Deleted,
}

enum Woken {
    Leave,
    Command(Option<Command>),
    Landed(Landed),
    Timer,
    Grace,
    Idle,
}

impl Session {
    #[must_use]
    pub fn new(
        state: SessionState,
        journal: Journal,
        deps: Arc<Deps>,
        feed: Arc<Feed>,
        watcher: Arc<dyn Watcher>,
        env: Arc<Vec<(String, String)>>,
        marked: bool,
    ) -> Self {
        feed.reset(state.head);
        let reader = journal.reader();
        let session = Self {
            state,
            journal,
            reader,
            deps,
            feed,
            watcher,
            flight: Berth::default(),
            prepared: HashMap::new(),
            turn_token: CancellationToken::new(),
            env,
            naming: None,
            messages: super::request::MessageCache::default(),
            stop_at: None,
            wait_until: None,
            waiters: Vec::new(),
            parked: false,
            parking: Vec::new(),
            stalled: false,
            marked,
            deleted: false,
        };
        session.row_changed();
        session
    }

    /// Closes what the last process left open. Called once after loading, before any command.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub async fn recover(&mut self) -> Result<(), SessionError> {
        let records = super::recover::recover(&self.state);
        self.commit(records, Durability::Synced).await?;
        self.leave_unavailable_mode().await?;
        self.finish_plan_write().await
    }

    /// Serves `commands` until the session is idle, parked or deleted.
    pub async fn run(mut self, commands: &mut mpsc::Receiver<Command>) -> Ended {
        loop {
            self.drive().await;
            if self.deleted {
                return Ended::Deleted;
            }
            if self.flight.is_free() && !self.parking.is_empty() {
                self.finish_parking().await;
            }
            let woken = self.wait(commands).await;
            match woken {
                Woken::Command(Some(command)) => {
                    self.stalled = false;
                    self.handle(command).await;
                }
                Woken::Command(None) | Woken::Leave => return Ended::Left,
                Woken::Landed(landed) => self.land(landed).await,
                Woken::Timer => self.wait_until = None,
                Woken::Grace => self.drop_flight().await,
                Woken::Idle => return Ended::Idle,
            }
        }
    }

    async fn wait(&mut self, commands: &mut mpsc::Receiver<Command>) -> Woken {
        let can_idle = self.flight.is_free()
            && self.wait_until.is_none()
            && self.waiters.is_empty()
            && self.state.is_idle()
            && !self.parked;
        let idle_at = Instant::now() + IDLE;
        let timer = self.wait_until;
        let grace = self.stop_at;
        let flight = async {
            match self.flight.get() {
                Some(flight) => flight.next().await,
                None => std::future::pending().await,
            }
        };
        // Commands first: an interrupt must not queue behind a flood of results. Every branch may be dropped: a
        // flight keeps its place between polls.
        tokio::select! {
            biased;
            () = self.deps.leave.cancelled() => Woken::Leave,
            command = commands.recv() => Woken::Command(command),
            landed = flight => Woken::Landed(landed),
            () = sleep_until(timer) => Woken::Timer,
            () = sleep_until(grace) => Woken::Grace,
            () = tokio::time::sleep_until(idle_at), if can_idle => Woken::Idle,
        }
    }

    /// Takes steps until something has to be waited for.
    async fn drive(&mut self) {
        while self.flight.is_free() && !self.parked && !self.stalled && !self.deleted {
            let result = match next_step(&self.state) {
                Step::Idle => {
                    self.unmark().await;
                    return;
                }
                Step::Await => {
                    // What was prepared before a person thinks about it is old when the answer comes.
                    self.prepared.clear();
                    return;
                }
                Step::Busy => return,
                Step::WaitUntil(at) => {
                    let wait = at.unix_ms() - self.deps.clock.now().unix_ms();
                    if wait > 0 {
                        self.wait_until = Some(Instant::now() + Duration::from_millis(wait.unsigned_abs()));
                        return;
                    }
                    self.start_sample(None).await
                }
                Step::StartTurn(prompt) => self.start_turn(prompt).await,
                Step::Sample { attempt } => self.start_sample(Some(attempt)).await,
                Step::Judge(calls) => self.judge_or_prepare(calls).await,
                Step::Run(calls) => self.run_or_prepare(calls).await,
                Step::Finish(ending) => self.finish_turn(ending).await,
            };
            if let Err(error) = result {
                // The journal or a blob could not be written, and a notice has said so.
                tracing::warn!(session = %self.state.id(), %error, "a step was put off");
                self.stalled = true;
            }
        }
    }

    async fn handle(&mut self, command: Command) {
        match command {
            Command::Prompt { params, caller, reply } => {
                let answer = self.prompt(*params, &caller).await;
                let _ = reply.send(answer);
            }
            Command::Interrupt { turn, caller, reply } => {
                let answer = self.interrupt(turn, &caller).await;
                let _ = reply.send(answer);
            }
            Command::SetMode { mode, caller, reply } => {
                let answer = self.set_mode(mode, &caller).await;
                let _ = reply.send(answer);
            }
            Command::SetTitle { title, reply } => {
                let _ = reply.send(self.set_title(title).await);
            }
            Command::Withdraw { prompt, reply } => {
                let _ = reply.send(self.withdraw(prompt).await);
            }
            Command::Respond { params, caller, reply } => {
                let answer = self.respond(*params, &caller).await;
                let _ = reply.send(answer);
            }
            Command::Approval { id, reply } => {
                let _ = reply.send(self.approval_get(&id).await.map(Box::new));
            }
            Command::PlanGet { reply } => {
                let _ = reply.send(self.plan_get().await);
            }
            Command::Inbox { reply } => {
                let _ = reply.send(Ok(agentd_protocol::session::InboxResult {
                    inbox: super::project::inbox_view(&self.state),
                    held: self.state.inbox_held,
                }));
            }
            Command::Snapshot { reply } => {
                let _ = reply.send(Ok(Box::new(self.snapshot())));
            }
            Command::Row { reply } => {
                let approvals = self.approvals();
                let _ = reply.send(Ok(Box::new((row(&self.state), approvals))));
            }
            Command::SameAs { params, reply } => {
                let same = super::create::params_digest(&params) == self.state.created.params;
                let _ = reply.send(if same {
                    Ok(Box::new(view(&self.state, self.feed.text_so_far())))
                } else {
                    Err(SessionError::Conflict("this sessionId exists, with other parameters".into()))
                });
            }
            Command::WaitTurn { turn, reply } => self.wait_turn(turn, reply).await,
            Command::Park { reply } => self.park(reply).await,
            Command::Delete { reply } => {
                let _ = reply.send(self.delete().await);
            }
        }
    }

    fn snapshot(&self) -> Snapshot {
        let state = view(&self.state, self.feed.text_so_far());

        Snapshot {
            state,
            head: self.state.head,
            reader: self.reader.clone(),
            blobs: self.journal.blobs().clone(),
        }
    }

    pub(super) fn approvals(&self) -> Vec<Approval> {
        self.state.approvals.iter().map(|pending| Approval::clone(&pending.approval)).collect()
    }

    pub(super) fn row_changed(&self) {
        self.watcher.changed(row(&self.state), self.approvals());
    }

    // ---- waiting for turns ----

    async fn wait_turn(&mut self, turn: TurnId, reply: Reply<TurnWaitResult>) {
        let mut wanted = turn;
        loop {
            match self.state.prompts.get(&wanted).map(|prompt| prompt.fate.clone()) {
                None => {
                    let _ = reply.send(Err(SessionError::NotFound("turn")));
                    return;
                }
                Some(Fate::Taken { turn }) if turn != wanted => wanted = turn,
                Some(Fate::Waiting | Fate::Taken { .. }) => {
                    self.waiters.retain(|(_, reply)| !reply.is_closed());
                    if self.waiters.len() >= 1024 {
                        let _ = reply.send(Err(SessionError::Overloaded));
                    } else {
                        self.waiters.push((wanted, reply));
                    }
                    return;
                }
                Some(fate) => {
                    let _ = reply.send(self.turn_result(&fate).await);
                    return;
                }
            }
        }
    }

    async fn turn_result(&self, fate: &Fate) -> Result<TurnWaitResult, SessionError> {
        let empty = |outcome| TurnWaitResult {
            outcome,
            text: String::new(),
            error: None,
            usage: agentd_protocol::turn::Usage::default(),
            denials: Vec::new(),
        };
        let Fate::Finished { record, answer } = fate else {
            return Ok(empty(match fate {
                Fate::Command => agentd_protocol::turn::Outcome::Finished,
                _ => agentd_protocol::turn::Outcome::Withdrawn,
            }));
        };
        let Record::TurnFinished(finished) = self.record_at(*record).await? else {
            return Err(super::commit::storage("a turn's end cannot be read back".into()));
        };
        let text = match answer {
            Some(place) => self.answer_text(*place).await?,
            None => String::new(),
        };
        Ok(TurnWaitResult {
            text,
            error: finished.error,
            usage: finished.usage,
            denials: finished.denials,
            ..empty(finished.outcome)
        })
    }

    async fn answer_text(&self, place: crate::journal::RecordRef) -> Result<String, SessionError> {
        let mut record = self.record_at(place).await?;
        super::history::inline_blobs(&mut record, self.journal.blobs()).await;
        Ok(match record {
            Record::Replied(replied) => match replied.text {
                super::record::Body::Inline(text) => text,
                super::record::Body::Blob { head, .. } => head,
            },
            _ => String::new(),
        })
    }

    /// Answers those who wait for `turn`, or for a prompt that will have none.
    pub(super) async fn wake_waiters(&mut self) {
        let (ready, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiters).into_iter().partition(|(turn, _)| {
                self.state
                    .prompts
                    .get(turn)
                    .is_none_or(|prompt| !matches!(prompt.fate, Fate::Waiting | Fate::Taken { .. }))
            });
        self.waiters = waiting;
        for (turn, reply) in ready {
            let fate = self.state.prompts.get(&turn).map(|prompt| prompt.fate.clone());
            let answer = match fate {
                Some(fate) => self.turn_result(&fate).await,
                None => Err(SessionError::NotFound("turn")),
            };
            let _ = reply.send(answer);
        }
    }

    // ---- markers ----

    /// Says on disk that this session is not idle, before the commit that makes it so.
    pub(super) async fn mark(&mut self) -> Result<(), SessionError> {
        if self.marked {
            return Ok(());
        }
        let markers = Markers::new(&self.deps.paths);
        let id = self.state.id();
        super::blocking(move || markers.set(id))
            .await
            .map_err(|error| super::commit::storage(format!("{error:#}")))?;
        self.marked = true;
        Ok(())
    }

    async fn unmark(&mut self) {
        if !self.marked {
            return;
        }
        let markers = Markers::new(&self.deps.paths);
        let id = self.state.id();
        // A marker too many only costs the next start one look.
        if super::blocking(move || markers.clear(id)).await.is_ok() {
            self.marked = false;
        }
    }

    // ---- stopping ----

    /// What runs for the turn is told to end; after a grace it is dropped.
    pub(super) fn stop_running(&mut self) {
        self.turn_token.cancel();
        self.stop_at = Some(Instant::now() + STOP_GRACE);
    }

    /// A pause that nobody waits for any more.
    pub(super) fn wake_timer(&mut self) {
        self.wait_until = None;
    }

    pub(super) fn stopped_running(&mut self) {
        self.stop_at = None;
    }

    async fn drop_flight(&mut self) {
        self.stop_at = None;
        if let Some(Flight::Run { .. }) = self.flight.get().take()
            && let Err(error) = self.abandon_running().await
        {
            tracing::warn!(session = %self.state.id(), %error, "interrupted calls were not recorded");
            self.stalled = true;
        }
    }

    async fn park(&mut self, reply: tokio::sync::oneshot::Sender<()>) {
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
            Some(Flight::Prepare { .. }) => self.flight.clear(),
            Some(Flight::Run { effects: false, .. }) => self.stop_running(),
            // Calls with effects get the time that the shutdown gives them.
            Some(Flight::Run { .. }) | None => {}
        }
    }

    async fn finish_parking(&mut self) {
        let running =
            self.state.turn.as_ref().filter(|_| !super::step::only_waits(&self.state)).map(|turn| turn.id);
        if let Some(turn_id) = running
            && let Err(error) = self.commit(vec![TurnParked { turn_id }.into()], Durability::Written).await
        {
            tracing::warn!(session = %self.state.id(), %error, "a turn was not parked");
        }
        if let Err(error) = self.journal.sync().await {
            tracing::warn!(session = %self.state.id(), %error, "the journal was not synced");
        }
        for reply in std::mem::take(&mut self.parking) {
            let _ = reply.send(());
        }
    }

    async fn delete(&mut self) -> Result<(), SessionError> {
        self.turn_token.cancel();
        // Dropping a flight ends its processes: their lifeline closes.
        self.flight.clear();
        let id = self.state.id();
        self.deps
            .journals
            .remove_session(self.deps.paths.session_dir(id))
            .await
            .map_err(|error| super::commit::storage(format!("{error:#}")))?;
        let paths = Arc::clone(&self.deps.paths);
        let plans = self.state.plan_files.clone();
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
        self.unmark().await;
        self.deleted = true;
        self.feed.close();
        for (_, reply) in self.waiters.drain(..) {
            let _ = reply.send(Err(SessionError::NotFound("session")));
        }
        Ok(())
    }

    /// Something that clients should know now and that no record tells.
    pub(super) fn say(&self, code: &str, text: &str) {
        self.feed.notice(code, text, self.state.id());
    }

    async fn land(&mut self, landed: Landed) {
        let result = match landed {
            Landed::Sampled { message, result } => {
                self.flight.clear();
                self.sampled(message, *result).await
            }
            Landed::Prepared { purpose, calls } => {
                self.flight.clear();
                self.calls_prepared(purpose, calls).await
            }
            Landed::Ran { call, output } => self.ran(call, output).await,
            Landed::AllRan => {
                self.flight.clear();
                self.stopped_running();
                Ok(())
            }
        };
        if let Err(error) = result {
            tracing::warn!(session = %self.state.id(), %error, "a result was not recorded");
            self.stalled = true;
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Runs a session's task so that a panic in it is that session's failure and nobody else's.
pub async fn guarded(session: Session, commands: &mut mpsc::Receiver<Command>) -> Result<Ended, String> {
    let id = session.state.id();
    let feed = Arc::clone(&session.feed);
    std::panic::AssertUnwindSafe(session.run(commands)).catch_unwind().await.map_err(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "unknown".into());
        tracing::error!(session = %id, panic = %text, "a session's task panicked");
        feed.notice("internal", "this session met a fault of agentd and starts anew from its journal", id);
        text
    })
}

/// A status event for a session that is no more.
#[must_use]
pub fn deleted_event(id: crate::ids::SessionId) -> Event {
    Event {
        body: EventBody::SessionDeleted {},
        session_id: Some(id),
        seq: None,
        at: None,
        turn_id: None,
        origin: None,
    }
}
