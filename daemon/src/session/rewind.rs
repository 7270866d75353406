//! Going back: the model forgets the last turns. Putting a session away and taking it back.

use agentd_protocol::event::ResetReason;
use agentd_protocol::session::{RewindParams, RewindResult};

use super::actor::Session;
use super::command::Caller;
use super::error::SessionError;
use super::record::{ContextReset, SessionArchived};
use crate::context;

impl Session {
    pub(super) async fn rewind(
        &mut self,
        params: &RewindParams,
        caller: &Caller,
    ) -> Result<RewindResult, SessionError> {
        self.person(caller)?;
        self.at_rest("rewind it")?;
        let turns = &self.state.trees.turns;
        let first = match (params.before_turn, params.turns) {
            (Some(_), Some(_)) => {
                return Err(SessionError::invalid("turns", "say beforeTurn or turns, not both"));
            }
            (_, Some(0)) => return Err(SessionError::invalid("turns", "at least one turn is forgotten")),
            (Some(id), None) => turns.iter().position(|turn| turn.turn == id),
            (None, count) => turns.len().checked_sub(count.unwrap_or(1) as usize),
        };
        let first = first.ok_or(SessionError::NotFound("turn"))?;
        let (start, mut result) = {
            let turn = &turns[first];
            let count = u32::try_from(turns.len() - first).unwrap_or(u32::MAX);
            (turn.begun, RewindResult { before_turn: turn.turn, turns: count, files: None })
        };
        let keep = self.state.context.iter().map(|item| item.seq).filter(|seq| *seq < start).collect();
        // The files first: if they cannot be put back, nothing is forgotten that tells of them.
        if params.files {
            result.files = Some(self.restore_before(result.before_turn).await?);
        }
        let records = vec![
            ContextReset { reason: ResetReason::Rewind, keep }.into(),
            self.guidance(context::rewound(self.state.mode, params.files)).await?,
        ];
        self.commit(records).await?;
        Ok(result)
    }

    pub(super) async fn archive(&mut self, archived: bool, caller: &Caller) -> Result<(), SessionError> {
        if self.state.archived == archived {
            return Ok(());
        }
        if archived {
            self.at_rest("archive it")?;
        }
        self.commit(vec![SessionArchived { archived, by: caller.by.clone() }.into()]).await
    }

    fn person(&self, caller: &Caller) -> Result<(), SessionError> {
        match caller.actor {
            agentd_protocol::initialize::Actor::Person => Ok(()),
            agentd_protocol::initialize::Actor::Program => Err(SessionError::Refused(
                "only a person may do this; the client said in initialize that it is a program".into(),
            )),
        }
    }

    /// Nothing runs, waits or is about to.
    fn at_rest(&self, doing: &str) -> Result<(), SessionError> {
        if self.state.turn.is_some() {
            return Err(SessionError::Conflict(format!("a turn is running; stop it first, then {doing}")));
        }
        if !self.state.is_idle() {
            return Err(SessionError::Conflict(format!("prompts are waiting; take them back, then {doing}")));
        }
        Ok(())
    }
}
