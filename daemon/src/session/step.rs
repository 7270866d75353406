//! The next step of a session is a function of its state. The program counter is in the journal, not on a stack: after
//! a crash the same state gives the same step.

use std::time::Duration;

use agentd_protocol::time::Timestamp;
use agentd_protocol::turn::Outcome;

use super::record::{ReplyEnd, Source};
use super::state::{Call, CallState, ContextKind, MAX_LENGTH_CUTS, Phase, SessionState, Turn};
use crate::ids::{CallId, TurnId};
use crate::model::MAX_WAIT;
use crate::model::message::Stop;

/// What the engine does next. Closed: later kinds of work (hooks, compaction) become variants here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing until someone says something.
    Idle,
    /// Take this entry out of the inbox.
    StartTurn(TurnId),
    /// Ask the model; steering prompts join the context first.
    Sample {
        attempt: u32,
    },
    /// Put these calls before the gate, together.
    Judge(Vec<CallId>),
    /// Only a person can make it go on.
    Await,
    /// Run these calls side by side; each is judged once more just before.
    Run(Vec<CallId>),
    /// A call is running; its end is an event.
    Busy,
    WaitUntil(Timestamp),
    Finish(Ending),
    /// Keep the work tree as this turn leaves it: before it is said to have ended, so that what a person does then is not taken
    /// for the turn's.
    KeepTree(TurnId),
}

/// How a turn ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    pub outcome: Outcome,
    pub error: Option<String>,
}

impl Ending {
    fn of(outcome: Outcome) -> Self {
        Self { outcome, error: None }
    }
}

/// The step that `state` calls for.
#[must_use]
pub fn next_step(state: &SessionState) -> Step {
    if state.read_only.is_some() || state.handed_over.is_some() {
        return Step::Idle;
    }
    match &state.turn {
        None => match (state.trees.owed(), state.inbox.front()) {
            (Some(turn), _) => Step::KeepTree(turn),
            (None, Some(entry)) if !state.inbox_held => Step::StartTurn(entry.prompt_id),
            _ => Step::Idle,
        },
        Some(turn) => match turn_step(state, turn) {
            // Whoever interrupts it does not wait for that: it comes right after the end.
            Step::Finish(_) if turn.stopping.is_none() && state.trees.lacks_end(turn.id) => {
                Step::KeepTree(turn.id)
            }
            step => step,
        },
    }
}

fn turn_step(state: &SessionState, turn: &Turn) -> Step {
    let running = turn.calls().iter().any(|call| matches!(call.state, CallState::Running { .. }));
    if turn.stopping.is_some() {
        return if running { Step::Busy } else { Step::Finish(Ending::of(Outcome::Interrupted)) };
    }
    if turn.refused {
        return if running { Step::Busy } else { Step::Finish(Ending::of(Outcome::Refused)) };
    }
    match &turn.phase {
        Phase::Ready { attempt } => {
            if turn.length_cuts >= MAX_LENGTH_CUTS {
                Step::Finish(length_limit())
            } else {
                Step::Sample { attempt: *attempt }
            }
        }
        Phase::Backoff { until, .. } => Step::WaitUntil(*until),
        Phase::Sampling { .. } => Step::Busy,
        Phase::Calls(calls) => calls_step(calls),
        Phase::GaveUp { error } => {
            Step::Finish(Ending { outcome: Outcome::Failed, error: Some(error.clone()) })
        }
        Phase::Said { end } => {
            if state.steering().next().is_some() && !state.inbox_held {
                return Step::Sample { attempt: 1 };
            }
            match end {
                ReplyEnd::Model(Stop::End) => Step::Finish(Ending::of(Outcome::Finished)),
                ReplyEnd::Model(Stop::Length) => Step::Finish(length_limit()),
                ReplyEnd::Model(Stop::Refusal(reason)) => Step::Finish(Ending {
                    outcome: Outcome::Failed,
                    error: Some(format!("the provider refused to go on: {reason}")),
                }),
                ReplyEnd::Cut => Step::Finish(Ending::of(Outcome::Interrupted)),
            }
        }
    }
}

fn length_limit() -> Ending {
    Ending {
        outcome: Outcome::Limit,
        error: Some(
            "the model's answer was cut at its length limit; a prompt such as \"go on\" continues".into(),
        ),
    }
}

/// Calls are taken in order, a group at a time; a group is judged when the one before has results.
fn calls_step(calls: &[Call]) -> Step {
    let group = current_group(calls);
    if group.iter().any(|call| matches!(call.state, CallState::Running { .. })) {
        return Step::Busy;
    }
    let ids = |wanted: fn(&CallState) -> bool| -> Vec<CallId> {
        group.iter().filter(|call| wanted(&call.state)).map(|call| call.id.clone()).collect()
    };
    let proposed = ids(|state| matches!(state, CallState::Proposed));
    if !proposed.is_empty() {
        return Step::Judge(proposed);
    }
    if group.iter().any(|call| matches!(call.state, CallState::Waiting(_))) {
        return Step::Await;
    }
    Step::Run(ids(|state| matches!(state, CallState::Allowed { .. })))
}

/// The first group that has a call without a result: neighbouring read-only calls, or one other call alone.
#[must_use]
pub fn current_group(calls: &[Call]) -> &[Call] {
    let mut start = 0;
    while start < calls.len() {
        let end = if calls[start].read_only {
            start + calls[start..].iter().take_while(|call| call.read_only).count()
        } else {
            start + 1
        };
        let group = &calls[start..end];
        if group.iter().any(|call| call.state != CallState::Finished) {
            return group;
        }
        start = end;
    }
    &[]
}

/// Whether the session waits for nothing but a person.
#[must_use]
pub fn only_waits(state: &SessionState) -> bool {
    matches!(next_step(state), Step::Await)
}

/// The numbers of the records that a cleared context keeps: the environment survives, nothing else does.
#[must_use]
pub fn kept_by_clear(state: &SessionState) -> Vec<crate::ids::Seq> {
    state
        .context
        .iter()
        .filter(|item| item.kind == ContextKind::Said(Source::Environment))
        .map(|item| item.seq)
        .collect()
}

/// How long to wait from `now` on for a pause that ends at `until`. No pause is longer than [`MAX_WAIT`]: if it seems so,
/// the clock was set back since the end was written down.
#[must_use]
pub fn pause(until: Timestamp, now: Timestamp) -> Duration {
    let left = until.unix_ms().saturating_sub(now.unix_ms()).max(0);
    Duration::from_millis(left.unsigned_abs()).min(MAX_WAIT)
}
