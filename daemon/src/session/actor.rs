//! A session's task: the only holder of its state. It takes the next step, waits for what happens, folds it in.
//!
//! What takes time (the model, tools) runs as one [`Flight`] inside this task: dropping it ends it, a command is heard
//! while it goes on, and nothing else of the daemon waits for it.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agentd_protocol::approval::Approval;
use agentd_protocol::event::EventBody;
use agentd_protocol::initialize::Actor;
use agentd_protocol::session::Row;
use agentd_protocol::turn::TurnWaitResult;
use agentd_protocol::{CallId, Event, Mode, TurnId};
use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::checkpoint::Kept;
use super::classify::Cleared;
use super::command::{Command, Ownership, Reply, Snapshot};
use super::deps::{Deps, Policy};
use super::error::SessionError;
use super::feed::Feed;
use super::flight::{Berth, Landed};
use super::project::{row, view};
use super::record::When;
use super::state::SessionState;
use super::step::{Step, next_step, pause};
use crate::journal::{Journal, JournalReader};
use crate::paths::markers::Markers;
use crate::store::Update;
use crate::store::kept::About;
use crate::tool::{Prepared, ToolError};

/// How long an idle session stays in memory.
const IDLE: Duration = Duration::from_secs(60);

/// Told about changes that concern more than one session: lists, the count of what waits.
pub trait Watcher: Send + Sync {
    fn changed(&self, row: Row, approvals: Vec<Approval>);
    /// Something that whoever watches all sessions hears, also later: [`super::project::fact`].
    fn told(&self, fact: Event);
    /// Commits are journaled and folded in. Told for each, in order; must not wait.
    fn committed(&self, update: Update);
    /// The session is no more. Told before the one who asked for it is.
    fn deleted(&self, id: agentd_protocol::SessionId);
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
    /// What the classifier of mode `auto` has allowed in this process and in this mode, and has not begun.
    pub(super) cleared: HashMap<CallId, Cleared>,
    /// The breaker for all sessions was open when it was last looked at.
    pub(super) shut_everywhere: bool,
    /// Ends what runs for the current turn.
    pub(super) turn_token: CancellationToken,
    /// The session's environment for processes.
    pub(super) env: Arc<Vec<(String, String)>>,
    /// Words that the next plan is named by, while a prompt that enters plan mode is being taken.
    pub(super) naming: Option<String>,
    pub(super) messages: super::request::MessageCache,
    /// Under which mode and rules the waiting approvals were judged last, if they were since the session was loaded.
    pub(super) judged_under: Option<Law>,
    pub(super) stop_at: Option<Instant>,
    pub(super) wait_until: Option<Instant>,
    pub(super) waiters: Vec<(TurnId, Reply<TurnWaitResult>)>,
    /// The daemon is going down: no further step, but prompts still reach the inbox.
    pub(super) parked: bool,
    pub(super) parking: Vec<tokio::sync::oneshot::Sender<()>>,
    /// What the journal has not taken yet and nobody can make again: a model's answer, what a call has done.
    pub(super) unrecorded: VecDeque<Landed>,
    /// A step could not be journaled; nothing is tried again before someone says something.
    pub(super) stalled: bool,
    /// When it is tried again all the same: the disk may have space again.
    pub(super) retry_at: Option<Instant>,
    pub(super) marked: bool,
    pub(super) kept: Kept,
    pub(super) deleted: bool,
    /// Another journal stands in the place of this one.
    pub(super) replaced: bool,
    pub(super) keeping: super::keeping::Keeping,
    /// What the settings said when they were last looked at.
    pub(super) policy: Arc<Policy>,
    /// The root of its project, where patterns of rules may start.
    pub(super) root: PathBuf,
    /// What is kept about that project.
    pub(super) saved: Arc<About>,
    /// They have said something else since the waiting approvals were judged.
    pub(super) rules_changed: bool,
}

/// Where a session's state comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loading {
    /// It was just made.
    Fresh,
    /// From its journal.
    Journal { kept: Kept },
}

/// What a judgement depends on that may change while an approval waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Law {
    pub mode: Mode,
    /// How many rules persons' answers have made.
    pub grants: usize,
}

/// Why a session's task ended.
#[derive(Debug)]
pub enum Ended {
    /// Nothing to do; the next message loads it again.
    Idle,
    /// The daemon is going down.
    Left,
    Deleted,
    /// What it was is gone; the session that stands there now is to be loaded.
    Replaced,
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
        loading: Loading,
    ) -> Self {
        let (marked, kept) = match loading {
            Loading::Fresh => (false, Kept::default()),
            // There may be a marker; taking away one that is not there costs nothing.
            Loading::Journal { kept } => (true, kept),
        };
        feed.reset(state.head);
        let reader = journal.reader();
        let policy = deps.policies.user();
        let root = state.created.cwd.clone();
        let session = Self {
            state,
            journal,
            reader,
            deps,
            feed,
            watcher,
            flight: Berth::default(),
            prepared: HashMap::new(),
            cleared: HashMap::new(),
            shut_everywhere: false,
            turn_token: CancellationToken::new(),
            env,
            naming: None,
            messages: super::request::MessageCache::default(),
            judged_under: None,
            stop_at: None,
            wait_until: None,
            waiters: Vec::new(),
            parked: false,
            parking: Vec::new(),
            unrecorded: VecDeque::new(),
            stalled: false,
            retry_at: None,
            marked,
            kept,
            deleted: false,
            replaced: false,
            keeping: super::keeping::Keeping::default(),
            policy,
            root,
            saved: Arc::default(),
            rules_changed: false,
        };
        session.row_changed();
        session
    }

    /// Closes what the last process left open. Called once after loading, before any command.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub async fn recover(&mut self) -> Result<(), SessionError> {
        if self.state.read_only.is_some() {
            return Ok(());
        }
        if self.state.handed_over.is_some() {
            return self.finish_handing_over().await;
        }
        self.look_at_settings().await;
        // What waited when the last process ended goes on waiting; the answer is judged by the rules of its time.
        self.rules_changed = false;
        let records = super::recover::recover(&self.state);
        self.commit(records).await?;
        self.settle_trust().await;
        self.settle_plan_file().await;
        self.leave_unavailable_mode().await
    }

    /// Serves `commands` until the session is idle, parked or deleted.
    pub async fn run(mut self, commands: &mut mpsc::Receiver<Command>) -> Ended {
        loop {
            self.drive().await;
            if self.deleted {
                return Ended::Deleted;
            }
            if self.replaced {
                return Ended::Replaced;
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
                Woken::Timer => {
                    if self.retry_at.take_if(|at| *at <= Instant::now()).is_some() {
                        self.stalled = false;
                    }
                }
                Woken::Grace => self.drop_flight().await,
                Woken::Idle => {
                    self.waiters.retain(|(_, reply)| !reply.is_closed());
                    // Opened anew, a read-only session may have become whole; who waits for it asks again.
                    if self.waiters.is_empty() || self.state.read_only.is_some() {
                        self.keep_at_rest().await;
                        return Ended::Idle;
                    }
                }
            }
        }
    }

    async fn wait(&mut self, commands: &mut mpsc::Receiver<Command>) -> Woken {
        let can_idle = self.flight.is_free() && !self.parked && next_step(&self.state) == Step::Idle;
        let idle_at = Instant::now() + IDLE;
        let timer = self.wait_until.into_iter().chain(self.retry_at).min();
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
        while self.flight.is_free() && !self.parked && !self.stalled && !self.deleted && !self.replaced {
            if !self.unrecorded.is_empty() {
                let recorded = self.record_landed().await;
                self.put_off(recorded);
                continue;
            }
            let result = match next_step(&self.state) {
                Step::Idle => {
                    // A read-only session does nothing either, but the next start has to look at what it left open.
                    // The next start has to know what is asked, too.
                    if self.state.is_idle() && self.state.trust.is_none() {
                        self.unmark().await;
                    }
                    return;
                }
                Step::Await => {
                    // What was prepared before a person thinks about it is old when the answer comes.
                    self.prepared.clear();
                    self.cleared.clear();
                    self.keeping.waited = true;
                    if !self.law_may_answer() {
                        return;
                    }
                    self.judge_waiting_again().await
                }
                Step::Busy => match super::recover::recover(&self.state) {
                    // Nothing is in flight, so what the journal says is running was lost, as in a crash.
                    lost if !lost.is_empty() => self.commit(lost).await,
                    _ => return,
                },
                Step::WaitUntil(at) => {
                    if !self.pause_is_over(at) {
                        return;
                    }
                    self.start_sample(None).await
                }
                Step::StartTurn(prompt) => self.start_turn(prompt).await,
                Step::Sample { attempt } => self.start_sample(Some(attempt)).await,
                Step::Judge(calls) => self.judge_or_prepare(calls).await,
                Step::Run(calls) => self.run_or_prepare(calls).await,
                Step::Finish(ending) => self.finish_turn(ending).await,
                Step::KeepTree(turn) => {
                    self.keep_tree(turn, When::After);
                    Ok(())
                }
            };
            self.put_off(result);
        }
    }

    /// The journal or a blob could not be written, and a notice has said so.
    pub(super) fn put_off(&mut self, result: Result<(), SessionError>) {
        if let Err(error) = result {
            tracing::warn!(session = %self.state.id(), %error, "a step was put off");
            self.stalled = true;
            self.retry_at = Some(Instant::now() + self.deps.storage_retry);
            if matches!(error, SessionError::Storage { .. }) {
                self.not_saved();
            }
        }
    }

    /// A pause is measured by the wall clock once, so that a restart keeps it, and then by a clock that does not jump.
    fn pause_is_over(&mut self, at: agentd_protocol::Timestamp) -> bool {
        let until = *self.wait_until.get_or_insert_with(|| Instant::now() + pause(at, self.deps.clock.now()));
        until <= Instant::now()
    }

    async fn handle(&mut self, command: Command) {
        if command.needs_owner()
            && let Err(error) = self.owned()
        {
            return command.refuse(error);
        }
        match command {
            Command::Prompt { params, caller, reply } => {
                let answer = self.prompt(*params, &caller).await;
                let used = answer.is_ok() && caller.actor == Actor::Person;
                let _ = reply.send(answer);
                if used {
                    self.look_at_settings().await;
                    self.ask_for_trust().await;
                }
            }
            Command::Interrupt { turn, caller, reply } => {
                let answer = self.interrupt(turn, &caller).await;
                let _ = reply.send(answer);
            }
            Command::LookAtSettings => {
                self.look_at_settings().await;
                self.settle_trust().await;
            }
            Command::SetMode { mode, caller, reply } => {
                self.look_at_settings().await;
                let answer = self.set_mode(mode, &caller).await;
                let _ = reply.send(answer);
            }
            Command::Breaker { action, caller, reply } => {
                let answer = self.set_breaker(action, &caller).await;
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
            Command::Inquiry { reply } => {
                let _ = reply.send(Ok(Box::new(self.inquiry())));
            }
            Command::Changes { reply } => {
                let _ = reply.send(Ok(Box::new(self.changes_view().await)));
            }
            Command::Revert { params, reply } => {
                let answer = Box::pin(self.revert(*params)).await;
                let _ = reply.send(answer);
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
                let known = params == self.state.created.params || Some(params) == self.state.imported;
                let _ = reply.send(if known {
                    Ok(Box::new(view(&self.state, self.feed.text_so_far())))
                } else {
                    Err(SessionError::Conflict("this sessionId exists, with other parameters".into()))
                });
            }
            Command::Rewind { params, caller, reply } => {
                let answer = Box::pin(self.rewind(&params, &caller)).await;
                let _ = reply.send(answer);
            }
            Command::Archive { archived, caller, reply } => {
                let answer = self.archive(archived, &caller).await;
                let _ = reply.send(answer);
            }
            Command::MayHandOver { reply } => {
                let answer = self.ready_to_hand_over().await;
                let _ = reply.send(answer);
            }
            Command::HandOver { handing, reply } => {
                let answer = self.hand_over(*handing).await;
                let _ = reply.send(answer);
            }
            Command::GiveWay { epoch, staged, reply } => {
                let answer = self.give_way(epoch, staged).await;
                let _ = reply.send(answer);
            }
            Command::WaitTurn { turn, reply } => self.wait_turn(turn, reply).await,
            Command::Park { reply } => self.park(reply).await,
            Command::Expire { unchanged_since, reply } => {
                let answer = self.expire(unchanged_since).await;
                let _ = reply.send(answer);
            }
            Command::Delete { reply } => {
                let _ = reply.send(self.delete().await);
            }
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            state: view(&self.state, self.feed.text_so_far()),
            made_by: self.state.created.origin,
            breaker: self.state.breaker,
            ownership: Ownership {
                epoch: self.state.owner_epoch,
                handed_over: self.state.handed_over.clone(),
                plan_files: self.state.plan_files.clone(),
            },
            feed: Arc::clone(&self.feed),
            here: self.feed.here(),
            head: self.state.head,
            reader: self.reader.clone(),
            blobs: self.journal.blobs().clone(),
        }
    }

    pub(super) fn approvals(&self) -> Vec<Approval> {
        self.state.asked().map(|approval| Approval::clone(approval)).collect()
    }

    pub(super) fn row_changed(&self) {
        self.watcher.changed(row(&self.state), self.approvals());
    }

    /// Says on disk that this session is not idle, before the commit that makes it so.
    pub(super) async fn mark(&mut self) -> Result<(), SessionError> {
        if self.marked {
            return Ok(());
        }
        let markers = Markers::new(&self.deps.paths);
        let id = self.state.id();
        super::blocking(move || markers.set(id)).await.map_err(super::heir::unstored)?;
        self.marked = true;
        Ok(())
    }

    pub(super) async fn unmark(&mut self) {
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

    /// Something that clients should know now and that no record tells.
    pub(super) fn say(&self, code: &str, text: &str) {
        self.feed.notice(code, text, self.state.id());
    }

    pub(super) async fn land(&mut self, landed: Landed) {
        let result = match landed {
            Landed::Sampled { .. } => {
                self.flight.clear();
                self.unrecorded.push_back(landed);
                self.record_landed().await
            }
            Landed::Ran { ref call, .. } => {
                self.keeping.ended(call);
                self.unrecorded.push_back(landed);
                self.record_landed().await
            }
            // If the journal does not take the verdicts, the calls are prepared and judged anew.
            Landed::Prepared { purpose, calls } => {
                self.flight.clear();
                self.calls_prepared(purpose, calls).await
            }
            // Likewise.
            Landed::Classified { calls } => {
                self.flight.clear();
                self.classified(calls).await
            }
            // If the journal does not take it, it is taken anew.
            Landed::Kept { turn, when, result } => {
                self.flight.clear();
                Box::pin(self.tree_kept(turn, when, *result)).await
            }
            Landed::AllRan => {
                self.flight.clear();
                self.stopped_running();
                self.renew_token();
                Ok(())
            }
        };
        self.put_off(result);
    }

    /// Records what has landed, in order; what the journal does not take stays.
    pub(super) async fn record_landed(&mut self) -> Result<(), SessionError> {
        while let Some(landed) = self.unrecorded.pop_front() {
            let recorded = match &landed {
                Landed::Sampled { message, result } => self.sampled(message, result).await,
                Landed::Ran { call, output } => self.ran(call, output).await,
                Landed::Prepared { .. }
                | Landed::Classified { .. }
                | Landed::AllRan
                | Landed::Kept { .. } => Ok(()),
            };
            if let Err(error) = recorded {
                self.unrecorded.push_front(landed);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Gives up what the journal refuses again and again, so that an interrupt can end the turn.
    pub(super) async fn record_or_drop_landed(&mut self) {
        if let Err(error) = self.record_landed().await {
            tracing::warn!(session = %self.state.id(), %error, "a result was lost");
            self.unrecorded.clear();
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
    Event::of(id, EventBody::SessionDeleted {})
}
