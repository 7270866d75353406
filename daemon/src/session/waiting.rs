//! Who waits for the end of a turn, and what they are told.

use agentd_protocol::TurnId;
use agentd_protocol::turn::TurnWaitResult;

use super::actor::Session;
use super::command::Reply;
use super::error::SessionError;
use super::record::Record;
use super::state::Fate;

/// Calls of `turn/wait` that one session keeps; beyond it they are told to try again.
const MAX_WAITERS: usize = 1024;

impl Session {
    pub(super) async fn wait_turn(&mut self, turn: TurnId, reply: Reply<TurnWaitResult>) {
        let answer = match self.state.fate(turn).cloned() {
            Some(Fate::Waiting | Fate::Taken { .. }) => {
                self.waiters.retain(|(_, reply)| !reply.is_closed());
                if self.waiters.len() < MAX_WAITERS {
                    self.waiters.push((turn, reply));
                    return;
                }
                Err(SessionError::Overloaded)
            }
            fate => self.outcome(fate).await,
        };
        let _ = reply.send(answer);
    }

    async fn outcome(&self, fate: Option<Fate>) -> Result<TurnWaitResult, SessionError> {
        match fate {
            Some(fate) => self.turn_result(&fate).await,
            None => Err(SessionError::NotFound("turn")),
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
        let ends = |turn| !matches!(self.state.fate(turn), Some(Fate::Waiting | Fate::Taken { .. }));
        let (ready, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiters).into_iter().partition(|(turn, _)| ends(*turn));
        self.waiters = waiting;
        for (turn, reply) in ready {
            let _ = reply.send(self.outcome(self.state.fate(turn).cloned()).await);
        }
    }
}
