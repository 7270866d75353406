//! From private records to public events: one pure function, so a rename inside a session never changes the wire.

use agentd_protocol::approval::Approval;
use agentd_protocol::blob::BlobRef;
use agentd_protocol::event::{EventBody, Role, Text};
use agentd_protocol::permission::Breaker;
use agentd_protocol::plan::PlanState;
use agentd_protocol::session::{
    Activity, CallInfo, CallStatus, Health, InboxItem, Origin, Row, State, TextSoFar,
};
use agentd_protocol::transfer::HandedOver;
use agentd_protocol::{Event, Seq, Timestamp, TurnId};
use serde_json::{Value, json};

use super::record::{AfterFailure, Body, BreakerChange, CallInput, Json, Part, Record, ReplyEnd, Source};
use super::state::{CallState, Plan, SessionState};
use super::step::{Step, next_step};
use crate::ids::SessionId;
use crate::model::message::Stop;

/// Texts up to this size are loaded from their blob and sent inline.
pub const WIRE_INLINE_LIMIT: u64 = 256 * 1024;

/// The event that clients see of a record, if they see any.
#[must_use]
pub fn project(
    session: SessionId,
    seq: Seq,
    at: Timestamp,
    turn: Option<TurnId>,
    record: &Record,
) -> Option<Event> {
    let (body, origin) = project_body(record)?;
    Some(Event { seq: Some(seq), at: Some(at), turn_id: turn, origin, ..Event::of(session, body) })
}

/// What those hear of a record who watch all sessions and may have been away. Short: a person's words stay in the session.
#[must_use]
pub fn fact(session: SessionId, seq: Seq, at: Timestamp, record: &Record) -> Option<Event> {
    let body = match record {
        Record::SessionArchived(archived) => {
            EventBody::SessionArchived { archived: archived.archived, by: archived.by.clone() }
        }
        Record::ApprovalResolved(resolved) => EventBody::ApprovalResolved {
            approval_id: resolved.approval_id.clone(),
            resolution: resolved.resolution,
            choice: resolved.choice,
            by: resolved.by.clone(),
            feedback: None,
        },
        _ => return None,
    };
    Some(Event { seq: Some(seq), at: Some(at), ..Event::of(session, body) })
}

fn project_body(record: &Record) -> Option<(EventBody, Option<Origin>)> {
    let body = match record {
        Record::Created(created) => EventBody::SessionCreated {
            handle: created.handle.clone(),
            title: created.title.clone(),
            cwd: created.cwd.display().to_string(),
            mode: created.mode,
            model: created.model.clone(),
            parent: created.parent.as_ref().map(|parent| parent.session_id),
        },
        Record::ModeChanged(changed) => {
            EventBody::ModeChanged { from: changed.from, to: changed.to, by: changed.by.clone() }
        }
        Record::TitleChanged(changed) => EventBody::TitleChanged { title: changed.title.clone() },
        Record::RuleAdded(added) => EventBody::RuleAdded {
            rule: added.grant.rule.clone(),
            layer: added.grant.layer,
            by: added.by.clone(),
        },
        Record::SessionForked(forked) => {
            EventBody::SessionForked { from: forked.from, mode: forked.mode, by: forked.by.clone() }
        }
        Record::SessionArchived(archived) => {
            EventBody::SessionArchived { archived: archived.archived, by: archived.by.clone() }
        }
        Record::HandedOver(handed) => EventBody::SessionHandedOver {
            bundle: handed.bundle.display().to_string(),
            by: handed.by.clone(),
        },
        Record::SessionImported(imported) => EventBody::SessionImported {
            bundle: imported.bundle.display().to_string(),
            cwd: imported.cwd.display().to_string(),
            mode: imported.mode,
            by: imported.by.clone(),
        },
        Record::PlanEntered(entered) => EventBody::PlanEntered {
            pre_mode: entered.pre_mode,
            path: entered.path.display().to_string(),
            cycle: entered.cycle,
            running: entered.running.clone(),
        },
        Record::PlanWritten(written) => EventBody::PlanChanged {
            revision: written.revision,
            diff: text_of(&written.diff),
            by: written.by,
        },
        Record::PlanApproved(approved) => EventBody::PlanApproved {
            revision: approved.revision,
            choice: approved.choice,
            mode_after: approved.mode_after,
        },
        Record::PlanRejected(rejected) => {
            EventBody::PlanRejected { revision: rejected.revision, feedback: rejected.feedback.clone() }
        }
        Record::PlanRecovered(recovered) => {
            EventBody::PlanRecovered { from: recovered.from.clone(), revision: recovered.revision }
        }
        Record::InboxAdded(added) => {
            let content = added.content.iter().map(part_value).collect();
            let body = EventBody::PromptAccepted {
                prompt_id: added.prompt_id,
                content,
                queued: added.queued,
                by: added.by.clone(),
            };
            return Some((body, Some(added.origin)));
        }
        Record::InboxWithdrawn(withdrawn) => EventBody::PromptWithdrawn { prompt_id: withdrawn.prompt_id },
        Record::TurnStarted(started) => return Some((EventBody::TurnStarted {}, Some(started.origin))),
        Record::TurnResumed(_) => EventBody::TurnResumed {},
        Record::TurnFinished(finished) => EventBody::TurnFinished {
            outcome: finished.outcome,
            usage: finished.usage,
            denials: finished.denials.clone(),
            error: finished.error.clone(),
        },
        Record::ContextAdded(added) if added.source == Source::Prompt => {
            let body = EventBody::Message {
                message_id: added.message_id.clone(),
                role: Role::User,
                text: text_of(&added.text),
                thinking: None,
                usage: None,
                incomplete: false,
            };
            return Some((body, added.origin));
        }
        Record::ContextReset(reset) => EventBody::ContextReset { reason: reset.reason, from: reset.from },
        Record::SampleFailed(failed) => EventBody::MessageAborted {
            message_id: failed.message_id.clone(),
            reason: failed.error.clone(),
            retry_at: match failed.then {
                AfterFailure::Retry { at } => Some(at),
                AfterFailure::Again | AfterFailure::GiveUp => None,
            },
        },
        Record::Replied(replied) => EventBody::Message {
            message_id: replied.message_id.clone(),
            role: Role::Assistant,
            text: text_of(&replied.text),
            thinking: replied.thinking.as_ref().map(text_of),
            usage: Some(replied.usage),
            incomplete: matches!(replied.end, ReplyEnd::Cut | ReplyEnd::Model(Stop::Length)),
        },
        Record::CallProposed(proposed) => EventBody::ToolCallStarted {
            call_id: proposed.call_id.clone(),
            tool: proposed.tool.clone(),
            kind: proposed.kind,
            title: proposed.title.clone(),
            input: input_value(&proposed.input),
            paths: paths_of(&proposed.input),
        },
        Record::CallJudged(judged) => EventBody::PermissionDecided {
            call_id: judged.call_id.clone(),
            decision: judged.decision,
            reason: judged.reason.clone(),
            rule: judged.rule.clone(),
            confinement: judged.confinement,
            note: judged.note.clone(),
        },
        Record::BreakerChanged(changed) => EventBody::BreakerChanged {
            open: changed.change != BreakerChange::Closed,
            by: changed.by.clone(),
            in_row: Some(changed.in_row),
            total: Some(changed.total),
        },
        Record::CallFinished(finished) => EventBody::ToolCallFinished {
            call_id: finished.call_id.clone(),
            status: finished.status,
            reason: finished.reason.clone(),
            content: text_of(&finished.content),
            diff: finished.diff.as_ref().map(text_of),
        },
        Record::FileChanged(changed) => EventBody::FileChanged {
            path: changed.path.display().to_string(),
            before: changed.before,
            after: changed.after,
            call_id: changed.call_id.clone(),
            added: changed.added,
            removed: changed.removed,
        },
        Record::TrustAsked(asked) => EventBody::ApprovalRequested(Approval::clone(&asked.approval)),
        Record::ApprovalRequested(requested) => {
            EventBody::ApprovalRequested(Approval::clone(&requested.approval))
        }
        Record::ApprovalChanged(changed) => EventBody::ApprovalChanged(Approval::clone(&changed.approval)),
        Record::ApprovalResolved(resolved) => EventBody::ApprovalResolved {
            approval_id: resolved.approval_id.clone(),
            resolution: resolved.resolution,
            choice: resolved.choice,
            by: resolved.by.clone(),
            feedback: resolved.feedback.clone(),
        },
        // The engine's own bookkeeping.
        Record::ContextAdded(_)
        | Record::CommandRun(_)
        | Record::BundleNamed(_)
        | Record::PlanSaved(_)
        | Record::InboxTaken(_)
        | Record::TurnParked(_)
        | Record::TurnStopping(_)
        | Record::SampleStarted(_)
        | Record::TreeKept(_)
        | Record::CallClassified(_)
        | Record::CallStarted(_) => return None,
    };
    Some((body, None))
}

fn text_of(body: &Body) -> Text {
    match body {
        Body::Inline(text) => Text::Inline(text.clone()),
        Body::Blob { blob, size, head, tail } => Text::Blob(BlobRef {
            blob: *blob,
            size: *size,
            media_type: "text/plain; charset=utf-8".into(),
            head: Some(head.clone()),
            tail: Some(tail.clone()),
        }),
    }
}

fn part_value(part: &Part) -> Value {
    match part {
        Part::Text { text } => json!({ "type": "text", "text": text_of(text) }),
        Part::Resource { uri, text } => json!({ "type": "resource", "uri": uri, "text": text_of(text) }),
    }
}

fn input_value(input: &CallInput) -> Value {
    match input {
        CallInput::Json(Json::Inline(raw)) => serde_json::from_str(raw.get()).unwrap_or(Value::Null),
        CallInput::Json(Json::Blob(blob)) => json!({ "blob": blob }),
        CallInput::Malformed { text, problem } => {
            json!({ "malformed": text_of(text).preview(), "problem": problem })
        }
    }
}

fn paths_of(input: &CallInput) -> Vec<String> {
    let CallInput::Json(Json::Inline(raw)) = input else { return Vec::new() };
    let Ok(Value::Object(arguments)) = serde_json::from_str(raw.get()) else { return Vec::new() };
    ["file_path", "path"]
        .iter()
        .filter_map(|name| arguments.get(*name)?.as_str().map(str::to_owned))
        .collect()
}

/// What a session is doing, from its state alone.
#[must_use]
pub fn activity(state: &SessionState) -> Activity {
    match next_step(state) {
        Step::Idle => Activity::Idle,
        // Whoever prompts it is served: nothing that it works on is left.
        Step::KeepTree(_) if state.turn.is_none() => Activity::Idle,
        Step::Await => Activity::Waiting,
        _ => Activity::Running,
    }
}

#[must_use]
pub fn health(state: &SessionState) -> Health {
    match state {
        SessionState { read_only: Some(_), .. } | SessionState { handed_over: Some(_), .. } => {
            Health::ReadOnly
        }
        SessionState { unsaved: true, .. } => Health::Degraded,
        _ => Health::Ok,
    }
}

fn plan_state(plan: &Plan) -> PlanState {
    PlanState {
        path: plan.path.display().to_string(),
        revision: plan.revision,
        cycle: plan.cycle,
        phase: plan.phase,
    }
}

/// The state as clients see it. `text` is what has been streamed of the message being written.
#[must_use]
pub fn view(state: &SessionState, text: Option<TextSoFar>) -> State {
    let turn = state.turn.as_ref();
    State {
        session_id: state.id(),
        handle: state.created.handle.clone(),
        title: state.title.clone(),
        parent: state.created.parent.as_ref().map(|parent| parent.session_id),
        cwd: state.created.cwd.display().to_string(),
        mode: state.mode,
        pre_mode: pre_mode(state),
        model: state.created.model.clone(),
        created_at: state.created_at,
        updated_at: state.updated_at,
        activity: activity(state),
        turn_id: turn.map(|turn| turn.id),
        turns: state.trees.turns.len() as u64,
        forgotten_turns: state.trees.turns.iter().filter(|turn| turn.forgotten).count() as u64,
        waiting_for: waiting_for(state),
        last_outcome: state.last_outcome,
        health: health(state),
        archived: state.archived,
        forked_from: state.created.forked_from.clone(),
        handed_over: state
            .handed_over
            .as_ref()
            .map(|handed| HandedOver { bundle: handed.bundle.display().to_string(), at: handed.at }),
        seq: state.head,
        plan: state.plan.as_ref().map(plan_state),
        approvals: state.asked().map(|approval| Approval::clone(approval)).collect(),
        calls: turn.map_or(&[][..], |turn| turn.calls()).iter().filter_map(call_info).collect(),
        text: text.into_iter().collect(),
        inbox: inbox_view(state),
        inbox_held: state.inbox_held,
        tasks: Vec::new(),
        todo: Vec::new(),
        usage: state.usage,
        breaker: breaker_view(state.breaker),
    }
}

#[must_use]
pub fn breaker_view(breaker: crate::permission::Breaker) -> Breaker {
    Breaker { open: breaker.is_open(), in_row: breaker.in_row(), total: breaker.total() }
}

#[must_use]
pub fn plan_view(state: &SessionState) -> Option<PlanState> {
    state.plan.as_ref().map(plan_state)
}

/// The mode that leaving plan mode returns to.
#[must_use]
pub fn pre_mode(state: &SessionState) -> Option<agentd_protocol::Mode> {
    (state.mode == agentd_protocol::Mode::Plan)
        .then(|| state.plan.as_ref().map(|plan| plan.pre_mode))
        .flatten()
}

#[must_use]
pub fn waiting_for(state: &SessionState) -> Vec<agentd_protocol::ApprovalId> {
    state.asked().map(|approval| approval.approval_id.clone()).collect()
}

#[must_use]
pub fn inbox_view(state: &SessionState) -> Vec<InboxItem> {
    state
        .inbox
        .iter()
        .map(|entry| InboxItem {
            prompt_id: entry.prompt_id,
            origin: entry.origin,
            at: entry.at,
            preview: entry.preview.clone(),
            queued_at: entry.queued_at,
        })
        .collect()
}

fn call_info(call: &super::state::Call) -> Option<CallInfo> {
    let status = match call.state {
        CallState::Proposed | CallState::Allowed { .. } => CallStatus::Proposed,
        CallState::Waiting(_) => CallStatus::Waiting,
        CallState::Running { .. } => CallStatus::Running,
        CallState::Finished => return None,
    };
    Some(CallInfo { call_id: call.id.clone(), tool: call.tool.clone(), title: call.title.clone(), status })
}

/// One line of a list.
#[must_use]
pub fn row(state: &SessionState) -> Row {
    Row {
        session_id: state.id(),
        handle: state.created.handle.clone(),
        title: state.title.clone(),
        parent: state.created.parent.as_ref().map(|parent| parent.session_id),
        cwd: state.created.cwd.display().to_string(),
        mode: Some(state.mode),
        model: state.created.model.clone(),
        created_at: state.created_at,
        updated_at: state.updated_at,
        activity: activity(state),
        waiting_for: waiting_for(state),
        last_outcome: state.last_outcome,
        health: health(state),
        archived: state.archived,
        last_prompt: state.last_prompt.clone(),
        held_prompts: state.held_prompts(),
    }
}

/// The status event that tells what a session is doing.
#[must_use]
pub fn state_changed(state: &SessionState) -> Event {
    let body = EventBody::StateChanged {
        activity: activity(state),
        waiting_for: waiting_for(state),
        last_outcome: state.last_outcome,
        health: health(state),
    };
    Event { turn_id: state.turn.as_ref().map(|turn| turn.id), ..Event::of(state.id(), body) }
}
