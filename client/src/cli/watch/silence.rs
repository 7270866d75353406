//! What is said while nothing comes: since when a call has run, or the model has been waited for.

use std::time::Duration;

use tokio::time::Instant;

use super::Watch;
use crate::cli::exit::Failure;
use crate::render::{Line, Style};

/// A call that takes longer than this is said to run.
const QUIET: Duration = Duration::from_secs(2);

/// A model that says nothing for longer than this is said to be waited for.
const SILENT: Duration = Duration::from_secs(1);

/// What goes on without a word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Calls(usize),
    /// The model is waited for, since this many outputs.
    Model(u64),
}

/// Since when it has gone on.
#[derive(Clone, Copy)]
pub(super) struct Busy {
    doing: Doing,
    since: Instant,
    tick: Instant,
}

impl Busy {
    /// When to say again how long it has been.
    pub(super) fn next_tick(self) -> Instant {
        self.tick
    }
}

impl Watch {
    /// Keeps in mind since when the same has been going on without a word.
    pub(super) fn notice_silence(&mut self) {
        let doing = if self.shown.is_some() || !self.screen.is_terminal() {
            None
        } else {
            match self.follow.running() {
                0 => self.follow.awaits_model().then_some(Doing::Model(self.heard)),
                calls => Some(Doing::Calls(calls)),
            }
        };
        if self.busy.map(|busy| busy.doing) != doing {
            let since = Instant::now();
            self.busy = doing.map(|doing| {
                let quiet = if matches!(doing, Doing::Calls(_)) { QUIET } else { SILENT };
                Busy { doing, since, tick: since + quiet }
            });
        }
    }

    pub(super) fn tick(&mut self) -> Result<(), Failure> {
        let Some(busy) = &mut self.busy else { return Ok(()) };
        busy.tick += Duration::from_secs(1);
        let what = match busy.doing {
            Doing::Calls(_) => "running",
            Doing::Model(_) => "waiting for the model",
        };
        let line = Line::styled(Style::Dim, &format!("  {what} … {} s", busy.since.elapsed().as_secs()));
        Ok(self.screen.status(&line)?)
    }
}
