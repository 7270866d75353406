//! What a restart finds, and what it makes of it, as one pure function. Its tests are the table.

use agentd_protocol::event::ToolStatus;
use agentd_protocol::turn::Outcome;

use super::record::{AfterFailure, Body, CallFinished, Record, SampleFailed, TurnFinished, TurnResumed};
use super::state::{CallState, Phase, SessionState};
use crate::context::{self, Interruption, NotRun};

/// The records that close what the last process left open. They are one commit, written before anything else happens.
#[must_use]
pub fn recover(state: &SessionState) -> Vec<Record> {
    let Some(turn) = &state.turn else { return Vec::new() };
    let mut records = Vec::new();
    let mut unknown_outcome = false;
    let mut only_waits = false;
    match &turn.phase {
        Phase::Sampling { message, .. } => records.push(Record::from(SampleFailed {
            message_id: message.clone(),
            error: "the daemon was restarted; asking again".into(),
            then: AfterFailure::Again,
        })),
        Phase::Calls(calls) => {
            for call in calls {
                if let CallState::Running { effects } = call.state {
                    unknown_outcome |= effects;
                    let reason = if effects { "crash.unknownOutcome" } else { "crash.interrupted" };
                    let text = context::call_interrupted(Interruption::Crash);
                    records.push(Record::from(CallFinished {
                        call_id: call.id.clone(),
                        status: ToolStatus::Interrupted,
                        reason: Some(reason.into()),
                        content: Body::Inline(text.into()),
                        diff: None,
                        reads: Vec::new(),
                        ran: None,
                    }));
                }
            }
            // Waiting for a person: nothing ran, nothing is resumed, the same ids still wait.
            only_waits = records.is_empty() && super::step::only_waits(state);
        }
        Phase::Ready { .. } | Phase::Backoff { .. } | Phase::Said { .. } | Phase::GaveUp { .. } => {}
    }
    if turn.stopping.is_some() || turn.refused || only_waits {
        return records;
    }
    let crashed_again = !turn.parked && turn.crashes >= 1;
    if unknown_outcome || crashed_again {
        for call in turn.calls().iter().filter(|call| {
            matches!(call.state, CallState::Proposed | CallState::Waiting(_) | CallState::Allowed { .. })
        }) {
            records.push(Record::from(CallFinished {
                call_id: call.id.clone(),
                status: ToolStatus::NotRun,
                reason: Some(NotRun::Interrupted.code().into()),
                content: Body::Inline(context::not_run(NotRun::Interrupted)),
                diff: None,
                reads: Vec::new(),
                ran: None,
            }));
        }
        records.extend(super::approval::cancel_all(state, "the turn was interrupted by a crash"));
        records.push(Record::from(TurnFinished {
            turn_id: turn.id,
            outcome: Outcome::Interrupted,
            usage: turn.usage,
            denials: turn.denials.clone(),
            error: Some(if unknown_outcome {
                "the daemon died while a call with effects was running; its outcome is unknown".into()
            } else {
                "the daemon died twice in this turn".into()
            }),
            mode: state.mode,
            hold_inbox: unknown_outcome,
            last_prompt: state.last_prompt.clone(),
            held_prompts: u32::try_from(state.inbox.len())
                .ok()
                .filter(|waiting| *waiting > 0 && (unknown_outcome || state.inbox_held)),
        }));
    } else {
        records.push(Record::from(TurnResumed { turn_id: turn.id, after_crash: !turn.parked }));
    }
    records
}
