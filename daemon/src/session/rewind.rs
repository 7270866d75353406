//! Going back: the model forgets the last turns. Putting a session away and taking it back.

use agentd_protocol::Mode;
use agentd_protocol::event::ResetReason;
use agentd_protocol::session::{RewindParams, RewindResult};

use super::actor::Session;
use super::command::{Caller, person_only};
use super::error::SessionError;
use super::planning::plan_guidance;
use super::record::{ContextReset, SessionArchived};
use super::trees::TurnTrees;
use crate::context;
use crate::ids::{Seq, TurnId};

impl Session {
    pub(super) async fn rewind(
        &mut self,
        params: &RewindParams,
        caller: &Caller,
    ) -> Result<RewindResult, SessionError> {
        person_only(caller.actor)?;
        self.at_rest("rewind it")?;
        let (start, before_turn) = match (params.before_turn, params.turns) {
            (Some(_), Some(_)) => {
                return Err(SessionError::invalid("turns", "say beforeTurn or turns, not both"));
            }
            (_, Some(0)) => return Err(SessionError::invalid("turns", "at least one turn is forgotten")),
            (Some(id), None) => {
                let mut turns = self.state.trees.turns.iter();
                turns.find(|turn| turn.turn == id).map(|turn| (turn.begun, id))
            }
            (None, count) => self.turns_back().nth(count.unwrap_or(1) as usize - 1),
        }
        .ok_or(SessionError::NotFound("turn"))?;
        let turns = self.turns_back().take_while(|(begun, _)| *begun >= start).count();
        let turns = u32::try_from(turns).unwrap_or(u32::MAX);
        let mut result = RewindResult { before_turn, turns, files: None };
        // As it was then, whatever was cleared or gone back from since.
        let keep = self.state.resets.before(&self.state.context, start);
        // The files first: if they cannot be put back, nothing is forgotten that tells of them.
        if params.files {
            result.files = Some(self.restore_before(result.before_turn).await?);
        }
        let mut records = vec![
            ContextReset { reason: ResetReason::Rewind, keep }.into(),
            self.guidance(context::rewound(self.state.mode, params.files)).await?,
        ];
        // What told the model of plan mode may be among what is forgotten.
        if self.state.mode == Mode::Plan
            && let Some(plan) = &self.state.plan
        {
            let text = plan_guidance(self.deps.policy.commands_in_plan(), &plan.path);
            records.push(self.guidance(context::note(&text)).await?);
        }
        self.commit(records).await?;
        Ok(result)
    }

    /// The turns that there are to go back over, newest first, each with its first record: not those that were gone back
    /// from, but those before a fresh start.
    fn turns_back(&self) -> impl Iterator<Item = (Seq, TurnId)> {
        let step = |before: Option<Seq>| {
            let context = match before {
                None => self.state.context.iter().map(|item| item.seq).collect(),
                Some(start) => self.state.resets.before(&self.state.context, start),
            };
            // What is said between turns belongs to none.
            let known = |turn: &&TurnTrees| {
                let from = context.partition_point(|seq| *seq < turn.begun);
                context.get(from).is_some_and(|seq| turn.ended.is_none_or(|ended| *seq <= ended))
            };
            let turn = self.state.trees.turns.iter().rev().find(known)?;
            Some((turn.begun, turn.turn))
        };
        std::iter::successors(step(None), move |(begun, _)| step(Some(*begun)))
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
