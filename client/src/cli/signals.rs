//! Signals as events.

use std::io;

use futures_util::FutureExt;
use tokio::signal::unix::{Signal, SignalKind, signal};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caught {
    /// Ctrl-C.
    Interrupt,
    /// The terminal was closed, or this process is asked to go.
    Leave,
    /// The terminal has another size.
    Resized,
    /// Brought back after Ctrl-Z.
    Continued,
}

pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    resized: Signal,
    continued: Signal,
}

impl Signals {
    /// # Errors
    /// The system has no room for another handler.
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            resized: signal(SignalKind::window_change())?,
            continued: signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?,
        })
    }

    /// The next one. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Caught {
        tokio::select! {
            _ = self.interrupt.recv() => Caught::Interrupt,
            _ = self.terminate.recv() => Caught::Leave,
            _ = self.hang_up.recv() => Caught::Leave,
            _ = self.resized.recv() => Caught::Resized,
            _ = self.continued.recv() => Caught::Continued,
        }
    }

    /// Forgets Ctrl-C that was meant for another program in the terminal.
    pub(crate) fn forget_interrupts(&mut self) {
        while self.interrupt.recv().now_or_never().flatten().is_some() {}
    }
}
