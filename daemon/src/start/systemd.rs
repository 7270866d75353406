//! The service manager's side: readiness, the watchdog, signals.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::journal::JournalService;

/// Where no service manager listens, telling it does nothing.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager was not told");
    }
}

pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Pings the watchdog, but only after a round trip through a journal thread and a spawned task: a daemon whose threads
/// are stuck is not alive.
pub(super) async fn watchdog(journals: Arc<JournalService>) {
    let Some(period) = sd_notify::watchdog_enabled() else { return };
    let mut ticks = tokio::time::interval((period / 2).max(Duration::from_millis(100)));
    loop {
        ticks.tick().await;
        let journals = Arc::clone(&journals);
        let round = tokio::spawn(async move { journals.ping().await });
        if matches!(round.await, Ok(Ok(()))) {
            tell(&[NotifyState::Watchdog]);
        }
    }
}

/// The requests to end, SIGTERM and SIGINT, noted from the moment this is made: whoever has heard "ready" may ask.
pub(super) struct EndSignals {
    term: Signal,
    int: Signal,
}

impl EndSignals {
    /// # Errors
    /// The runtime cannot listen for signals.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    /// A file that may not grow any more is an error of whoever writes it, as a full disk is, and no end of the daemon.
    /// Not ignored but caught: what is ignored, commands would inherit.
    ///
    /// # Errors
    /// The runtime cannot listen for signals.
    pub(super) fn survive_file_limit() -> io::Result<()> {
        signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())).map(drop)
    }

    /// Returns at the first of them.
    pub(super) async fn first(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}
