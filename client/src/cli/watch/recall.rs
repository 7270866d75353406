//! What was before this client came: the newest turn, or all of them page by page, then the live events.

use agentd_client::Received;
use agentd_protocol::turn::Outcome;

use super::{Answerer, End, Watch};
use crate::cli::closing;
use crate::cli::exit::{Exit, Failure};
use crate::cli::follow::{Finished, Goal};
use crate::cli::look::past::{FromStart, Tail};
use crate::cli::signals::Caught;
use crate::render::{Line, Style};

/// The newest turn of the past that has ended.
#[derive(Default)]
pub(super) struct Past {
    outcome: Option<Outcome>,
    /// It, as long as its end is not said.
    unsaid: Option<Box<Finished>>,
}

impl Watch {
    /// Shows the newest turn, then follows.
    pub(crate) async fn run_after(mut self, tail: Tail) -> Result<Exit, Failure> {
        self.follow.begins_after(tail.earlier);
        match self.recall(tail.events).await {
            Err(failure) if failure.reader_gone => self.reader_gone().await,
            Err(failure) => Err(failure),
            Ok(()) => self.run().await,
        }
    }

    async fn recall(&mut self, events: Vec<Received>) -> Result<(), Failure> {
        for received in events {
            for output in self.follow.on_event(received.event) {
                self.output(output).await?;
            }
        }
        Ok(())
    }

    /// Shows the whole past page by page, then follows.
    pub(crate) async fn run_from_start(mut self, mut pages: FromStart<'_>) -> Result<Exit, Failure> {
        loop {
            let page = tokio::select! {
                biased;
                caught = self.signals.next() => match caught {
                    Caught::Interrupt | Caught::Leave => {
                        let exit = self.follow.detached();
                        return self.close(End::Left(exit), None);
                    }
                    Caught::Resized => {
                        self.screen.resized();
                        continue;
                    }
                    Caught::Continued => continue,
                },
                page = pages.next() => page?,
            };
            let Some(page) = page else { break };
            match self.recall(page).await {
                Err(failure) if failure.reader_gone => return self.reader_gone().await,
                recalled => recalled?,
            }
        }
        self.run().await
    }

    /// A turn of the past has ended. Its message may be the final text that belongs on stdout: only what follows can tell, so
    /// off a terminal nothing is said yet.
    pub(super) async fn past_turn(&mut self, mut finished: Box<Finished>) -> Result<(), Failure> {
        self.say_past()?;
        // Of a whole history each turn would have to be compared anew.
        if self.target.goal == Goal::Session {
            self.look_at_changes(&mut finished).await;
        }
        self.past = Past { outcome: Some(finished.outcome), unsaid: Some(finished) };
        if self.screen.is_terminal() { self.say_past() } else { Ok(()) }
    }

    /// Says how the newest turn of the past ended, if that was not said.
    pub(super) fn say_past(&mut self) -> Result<(), Failure> {
        let Some(past) = self.past.unsaid.take() else { return Ok(()) };
        let lines = closing::past(&past, self.names());
        Ok(self.screen.lines(&lines)?)
    }

    /// Nothing runs, and that was all that was waited for.
    pub(super) fn idle_at_once(&mut self) -> End {
        match (self.last.take().or(self.past.unsaid.take()), self.past.outcome) {
            (Some(finished), _) => End::Turn(finished),
            (None, Some(outcome)) => End::Told(Exit::of_outcome(outcome)),
            (None, None) => End::Left(Exit::Finished),
        }
    }

    pub(super) fn say_idle(&mut self) -> Result<(), Failure> {
        let leaves = match self.answerer {
            Answerer::Person(_) => "Idle. q or Ctrl-D leaves.",
            Answerer::Auto(_) | Answerer::Nobody => "Idle. Ctrl-C leaves.",
        };
        self.say(Line::styled(Style::Dim, leaves))
    }
}
