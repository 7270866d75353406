//! One session's place in the registry: a mailbox that exists whether or not the session is in memory.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use super::Registry;
use crate::ids::SessionId;
use crate::journal::Journal;
use crate::session::command::Command;
use crate::session::feed::Feed;
use crate::session::state::SessionState;
use crate::session::{Ended, Session, SessionError, Watcher, create, guarded, load};

/// Commands that may wait for one session. A full mailbox answers "try again".
const MAILBOX: usize = 256;
/// Panics in a row after which a session is left alone until the next message.
const MAX_PANICS: u32 = 3;

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

    pub(super) fn cool(&self, receiver: mpsc::Receiver<Command>) {
        *self.lock() = State::Cold(receiver);
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
    let mut panics = 0;
    loop {
        if registry.is_stopping() && matches!(start, Start::Load) {
            refuse(&mut commands, || SessionError::Refused("the daemon is shutting down".into()));
            entry.cool(commands);
            return;
        }
        let session = match bring_up(&registry, &entry, start).await {
            Ok(session) => session,
            Err(error) => {
                let gone = matches!(error, SessionError::NotFound(_));
                let text = error.to_string();
                refuse(&mut commands, || match gone {
                    true => SessionError::NotFound("session"),
                    false => SessionError::Storage {
                        message: text.clone(),
                        changed: crate::session::error::Changed::No,
                    },
                });
                if gone {
                    // Whoever sends now finds the mailbox closed and looks again.
                    registry.entries.remove(&entry.id);
                    return;
                }
                tracing::error!(session = %entry.id, error = %text, "a session cannot be loaded");
                match entry.cool_if_empty(commands) {
                    None => return,
                    Some(more) => {
                        commands = more;
                        start = Start::Load;
                        continue;
                    }
                }
            }
        };
        start = Start::Load;
        match guarded(session, &mut commands).await {
            Ok(Ended::Idle) => {
                registry.unloaded(entry.id);
                entry.feed.rest();
                match entry.cool_if_empty(commands) {
                    None => return,
                    Some(more) => commands = more,
                }
                panics = 0;
            }
            Ok(Ended::Left) => return,
            Ok(Ended::Deleted) => {
                registry.deleted(entry.id);
                refuse(&mut commands, || SessionError::NotFound("session"));
                return;
            }
            Err(_) => {
                panics += 1;
                if panics >= MAX_PANICS {
                    refuse(&mut commands, || SessionError::Overloaded);
                    registry.unloaded(entry.id);
                    entry.cool(commands);
                    return;
                }
            }
        }
    }
}

async fn bring_up(registry: &Arc<Registry>, entry: &Entry, start: Start) -> Result<Session, SessionError> {
    let deps = Arc::clone(&registry.deps);
    let watcher: Arc<dyn Watcher> = Arc::clone(registry) as Arc<dyn Watcher>;
    let (state, journal, notices, fresh) = match start {
        Start::Fresh(parts) => (parts.0, parts.1, Vec::new(), true),
        Start::Load => {
            let loaded = load(&deps, entry.id).await?;
            (loaded.state, loaded.journal, loaded.notices, false)
        }
    };
    let env = create::environment_for_processes(&deps, entry.id).await?;
    for notice in notices {
        entry.feed.notice("journal", &notice, entry.id);
    }
    let mut session = Session::new(state, journal, deps, Arc::clone(&entry.feed), watcher, env, !fresh);
    if let Err(error) = session.recover().await {
        tracing::error!(session = %entry.id, %error, "what the last process left open was not closed");
    }
    Ok(session)
}

/// Answers everything that waits in a mailbox.
fn refuse(commands: &mut mpsc::Receiver<Command>, error: impl Fn() -> SessionError) {
    while let Ok(command) = commands.try_recv() {
        command.refuse(error());
    }
}
