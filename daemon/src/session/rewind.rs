//! Going back: the model forgets the last turns. Putting a session away and taking it back.

use agentd_protocol::Mode;
use agentd_protocol::event::ResetReason;
use agentd_protocol::session::{RewindParams, RewindResult};

use super::actor::Session;
use super::command::{Caller, may_put_away, person_only};
use super::error::SessionError;
use super::planning::plan_guidance;
use super::record::{ContextReset, SessionArchived};
use crate::context;

impl Session {
    pub(super) async fn rewind(
        &mut self,
        params: &RewindParams,
        caller: &Caller,
    ) -> Result<RewindResult, SessionError> {
        person_only(caller.actor)?;
        self.at_rest("rewind it")?;
        let turns = &self.state.trees.turns;
        let first = match (params.before_turn, params.turns) {
            (Some(_), Some(_)) => {
                return Err(SessionError::invalid("turns", "say beforeTurn or turns, not both"));
            }
            (_, Some(0)) => return Err(SessionError::invalid("turns", "at least one turn is forgotten")),
            (Some(id), None) => turns.iter().position(|turn| turn.turn == id),
            (None, count) => {
                let known: Vec<usize> = (0..turns.len()).filter(|index| !turns[*index].forgotten).collect();
                known.len().checked_sub(count.unwrap_or(1) as usize).map(|first| known[first])
            }
        };
        let first = first.ok_or(SessionError::NotFound("turn"))?;
        // To go back to where one is may be said again, by a client that did not hear the answer.
        let here = turns[first..].iter().all(|turn| turn.forgotten)
            && first.checked_sub(1).is_none_or(|before| !turns[before].forgotten);
        if turns[first].forgotten && !here {
            return Err(SessionError::Conflict("that turn is forgotten already".into()));
        }
        let (start, mut result) = {
            let turn = &turns[first];
            let count = turns[first..].iter().filter(|turn| !turn.forgotten).count();
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            (turn.begun, RewindResult { before_turn: turn.turn, turns: count, files: None })
        };
        // As it was then, whatever was cleared or gone back from since.
        let keep = self.state.resets.before(&self.state.context, start);
        // The files first: if they cannot be put back, nothing is forgotten that tells of them.
        if params.files {
            result.files = Some(self.restore_before(result.before_turn).await?);
        }
        let mut records = vec![
            ContextReset { reason: ResetReason::Rewind, keep, from: Some(start) }.into(),
            self.guidance(context::rewound(self.state.mode, params.files)).await?,
        ];
        // What told the model of plan mode may be among what is forgotten.
        if self.state.mode == Mode::Plan
            && let Some(plan) = &self.state.plan
        {
            let text = plan_guidance(self.policy.commands_in_plan(), &plan.path);
            records.push(self.guidance(context::note(&text)).await?);
        }
        self.commit(records).await?;
        Ok(result)
    }

    pub(super) async fn archive(&mut self, archived: bool, caller: &Caller) -> Result<(), SessionError> {
        if self.state.archived == archived {
            return Ok(());
        }
        may_put_away(caller.actor, self.state.created.origin)?;
        if archived {
            self.at_rest("archive it")?;
        }
        let mut records = self.withdraw_trust(|| caller.by.clone());
        records.push(SessionArchived { archived, by: caller.by.clone() }.into());
        self.commit(records).await
    }

    /// Nothing runs, waits or is about to.
    fn at_rest(&self, doing: &str) -> Result<(), SessionError> {
        if !self.state.approvals.is_empty() {
            let why = format!("it waits for an answer; answer it, or stop the turn, then {doing}");
            return Err(SessionError::Conflict(why));
        }
        if self.state.turn.is_some() {
            return Err(SessionError::Conflict(format!("a turn is running; stop it first, then {doing}")));
        }
        if !self.state.is_idle() {
            return Err(SessionError::Conflict(format!("prompts are waiting; take them back, then {doing}")));
        }
        Ok(())
    }
}
