//! One session's place in the registry: a mailbox that exists whether or not the session is in memory.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentd_protocol::search::SearchRole;
use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Registry;
use crate::ids::{Seq, SessionId};
use crate::journal::{Journal, JournalError};
use crate::session::command::Command;
use crate::session::error::Changed;
use crate::session::feed::Feed;
use crate::session::project::row;
use crate::session::state::SessionState;
use crate::session::{Ended, Loading, Session, SessionError, Watcher, create, guarded, load};
use crate::store::{Text, Update};

/// Commands that may wait for one session. A full mailbox answers "try again".
const MAILBOX: usize = 256;
/// Panics in a row after which a session is left alone until the next message.
const MAX_PANICS: u32 = 3;
/// A session that served this long between two panics was well: they are not in a row.
const WELL_FOR: Duration = Duration::from_secs(60);

pub(super) struct Entry {
    pub(super) id: SessionId,
    /// Lives as long as the entry: subscribers of a session that was unloaded stay where they are.
    pub(super) feed: Arc<Feed>,
    commands: mpsc::Sender<Command>,
    state: Mutex<State>,
}

enum State {
    /// Not in memory: the mailbox waits for its first message.
    Cold(mpsc::Receiver<Command>),
    Live,
}

pub(super) enum Refused {
    Full,
    Gone(Box<Command>),
}

/// Panics of a session's task, so that one that panics at once is not started for ever.
#[derive(Default)]
struct Panics {
    in_a_row: u32,
    last: Option<Instant>,
}

impl Panics {
    /// Counts one more. Whether the session may be started again at once.
    fn another(&mut self, now: Instant) -> bool {
        let was_well = self.last.is_some_and(|last| now.duration_since(last) >= WELL_FOR);
        self.in_a_row = if was_well { 1 } else { self.in_a_row + 1 };
        self.last = Some(now);
        self.in_a_row < MAX_PANICS
    }
}

/// How a session comes into memory.
pub(super) enum Start {
    Load,
    Fresh(Box<(SessionState, Journal)>),
}

impl Entry {
    fn new(id: SessionId) -> (Self, mpsc::Receiver<Command>) {
        let (commands, receiver) = mpsc::channel(MAILBOX);
        (Self { id, feed: Arc::default(), commands, state: Mutex::new(State::Live) }, receiver)
    }

    pub(super) fn cold(id: SessionId) -> Arc<Self> {
        let (entry, receiver) = Self::new(id);
        *entry.lock() = State::Cold(receiver);
        Arc::new(entry)
    }

    pub(super) fn live(id: SessionId) -> (Arc<Self>, mpsc::Receiver<Command>) {
        let (entry, receiver) = Self::new(id);
        (Arc::new(entry), receiver)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn offer(&self, command: Command) -> Result<(), Refused> {
        self.commands.try_send(command).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Refused::Full,
            mpsc::error::TrySendError::Closed(command) => Refused::Gone(Box::new(command)),
        })
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(*self.lock(), State::Live)
    }

    /// The mailbox, if nobody serves it; the caller does from now on.
    pub(super) fn take_if_cold(&self) -> Option<mpsc::Receiver<Command>> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Live) {
            State::Cold(receiver) => Some(receiver),
            State::Live => None,
        }
    }

    /// Leaves the mailbox cold, unless a message came in meanwhile: then it is handed back and must be served.
    fn cool_if_empty(&self, receiver: mpsc::Receiver<Command>) -> Option<mpsc::Receiver<Command>> {
        // A sender puts its message in first and looks at this state after, so one of the two sees the other.
        let mut state = self.lock();
        if receiver.is_empty() {
            *state = State::Cold(receiver);
            None
        } else {
            Some(receiver)
        }
    }
}

/// Keeps a session in memory while it has something to do.
pub(super) async fn host(
    registry: Arc<Registry>,
    entry: Arc<Entry>,
    mut commands: mpsc::Receiver<Command>,
    mut start: Start,
) {
    let mut panics = Panics::default();
    loop {
        if registry.is_stopping() && matches!(start, Start::Load) {
            return retire(&registry, &entry, commands, shutting_down);
        }
        let brought = AssertUnwindSafe(bring_up(&registry, &entry, start)).catch_unwind().await;
        start = Start::Load;
        let ended = match brought {
            Ok(Ok(session)) => guarded(session, &mut commands).await.ok(),
            Ok(Err(SessionError::NotFound(_))) => {
                let missing = || SessionError::NotFound("session");
                cannot_be_read(&registry, &entry, &mut commands, missing).await;
                return retire(&registry, &entry, commands, || SessionError::NotFound("session"));
            }
            Ok(Err(error)) => {
                let message = error.to_string();
                tracing::error!(session = %entry.id, error = %message, "a session cannot be loaded");
                let unread = || SessionError::Storage { message: message.clone(), changed: Changed::No };
                if cannot_be_read(&registry, &entry, &mut commands, unread).await {
                    return retire(&registry, &entry, commands, || SessionError::NotFound("session"));
                }
                Some(Ended::Idle)
            }
            Err(_) => {
                tracing::error!(session = %entry.id, "loading a session panicked");
                None
            }
        };
        match ended {
            Some(Ended::Idle) => panics = Panics::default(),
            Some(Ended::Replaced) => {
                registry.replaced(entry.id);
                entry.feed.rest();
                continue;
            }
            Some(Ended::Left) => return retire(&registry, &entry, commands, shutting_down),
            Some(Ended::Deleted) => {
                return retire(&registry, &entry, commands, || SessionError::NotFound("session"));
            }
            None => {
                if panics.another(Instant::now()) {
                    continue;
                }
                panics = Panics::default();
                refuse(&mut commands, || SessionError::Overloaded);
            }
        }
        registry.unloaded(entry.id);
        entry.feed.rest();
        match entry.cool_if_empty(commands) {
            None => return,
            Some(more) => commands = more,
        }
    }
}

/// Answers everything that waits for a session that cannot be read. Nobody has to be able to read one to get rid of it, so a
/// deletion is carried out. Whether the session is gone now.
async fn cannot_be_read(
    registry: &Registry,
    entry: &Entry,
    commands: &mut mpsc::Receiver<Command>,
    error: impl Fn() -> SessionError,
) -> bool {
    let mut deletions = Vec::new();
    while let Ok(command) = commands.try_recv() {
        match command {
            Command::Delete { reply } => deletions.push(reply),
            other => other.refuse(error()),
        }
    }
    if deletions.is_empty() {
        return false;
    }
    let dir = registry.deps.paths.session_dir(entry.id);
    let removed = registry.deps.journals.remove_session(dir).await;
    if removed.is_ok() {
        registry.deleted(entry.id);
        entry.feed.close();
    }
    for reply in deletions {
        let _ = reply.send(match &removed {
            Ok(()) => Ok(()),
            Err(JournalError::Missing { .. }) => Err(SessionError::NotFound("session")),
            Err(error) => Err(SessionError::Storage { message: error.to_string(), changed: Changed::No }),
        });
    }
    removed.is_ok()
}

/// Ends an entry for good: who sends later finds the mailbox closed and looks again, who has sent is answered.
fn retire(
    registry: &Registry,
    entry: &Arc<Entry>,
    mut commands: mpsc::Receiver<Command>,
    error: impl Fn() -> SessionError,
) {
    commands.close();
    registry.forget(entry);
    refuse(&mut commands, error);
}

fn shutting_down() -> SessionError {
    SessionError::Refused("the daemon is shutting down".into())
}

/// The place of a session that is being made. Dropped before it is made, it gives the id free again, whatever went wrong.
pub(super) struct Reservation {
    registry: Arc<Registry>,
    entry: Arc<Entry>,
    commands: Option<mpsc::Receiver<Command>>,
}

impl Reservation {
    pub(super) fn new(
        registry: &Arc<Registry>,
        entry: Arc<Entry>,
        commands: mpsc::Receiver<Command>,
    ) -> Self {
        Self { registry: Arc::clone(registry), entry, commands: Some(commands) }
    }

    /// The session is there; its task serves the mailbox from now on.
    pub(super) fn fill(mut self, state: SessionState, journal: Journal) {
        if let Some(commands) = self.commands.take() {
            let start = Start::Fresh(Box::new((state, journal)));
            let host = host(Arc::clone(&self.registry), Arc::clone(&self.entry), commands, start);
            self.registry.tracker.spawn(host);
        }
    }

    /// A session of this id lies on the disk: the next message loads it.
    pub(super) fn was_there(mut self) {
        if let Some(commands) = self.commands.take() {
            let host = host(Arc::clone(&self.registry), Arc::clone(&self.entry), commands, Start::Load);
            self.registry.tracker.spawn(host);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(commands) = self.commands.take() {
            retire(&self.registry, &self.entry, commands, || SessionError::NotFound("session"));
        }
    }
}

async fn bring_up(registry: &Arc<Registry>, entry: &Entry, start: Start) -> Result<Session, SessionError> {
    let deps = Arc::clone(&registry.deps);
    let watcher: Arc<dyn Watcher> = Arc::clone(registry) as Arc<dyn Watcher>;
    let (state, journal, notices, loading) = match start {
        Start::Fresh(parts) => {
            let (state, journal) = *parts;
            registry.store.committed(beginning(&state, &journal));
            (state, journal, Vec::new(), Loading::Fresh)
        }
        Start::Load => {
            let loaded = load(&deps, entry.id).await?;
            registry.store.opened(entry.id, loaded.journal.reach());
            let loading = Loading::Journal { kept: loaded.kept };
            (loaded.state, loaded.journal, loaded.notices, loading)
        }
    };
    let env = create::environment_for_processes(&deps, entry.id).await?;
    for notice in notices {
        tracing::warn!(session = %entry.id, notice, "a journal is damaged");
        entry.feed.found("journal", &notice, entry.id);
    }
    let mut session = Session::new(state, journal, deps, Arc::clone(&entry.feed), watcher, env, loading);
    if let Err(error) = session.recover().await {
        tracing::error!(session = %entry.id, %error, "what the last process left open was not closed");
    }
    Ok(session)
}

/// What the index is told of a session that was just made.
fn beginning(state: &SessionState, journal: &Journal) -> Update {
    let row = row(state);
    let title =
        row.title.as_ref().and_then(|title| Text::new(Seq(1), row.created_at, SearchRole::Title, title));
    Update { row, from: 0, to: journal.reach(), texts: title.into_iter().collect() }
}

/// Answers everything that waits in a mailbox.
fn refuse(commands: &mut mpsc::Receiver<Command>, error: impl Fn() -> SessionError) {
    while let Ok(command) = commands.try_recv() {
        command.refuse(error());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_panics_in_a_row_leave_a_session_alone() {
        let (mut panics, now) = (Panics::default(), Instant::now());
        let after = |secs| now + Duration::from_secs(secs);
        // One a day is no reason.
        for day in 0..9 {
            assert!(panics.another(after(day * 86_400)));
        }
        assert!(panics.another(after(8 * 86_400 + 1)), "the second in a row");
        assert!(!panics.another(after(8 * 86_400 + 2)), "the third in a row");
    }
}
