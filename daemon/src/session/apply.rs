//! The fold: the only code that changes a session's state, live and on recovery alike. Total and pure.

use std::sync::Arc;

use agentd_protocol::approval::{Approval, ApprovalKind, ChoiceId};
use agentd_protocol::event::{Resolution, ToolStatus};
use agentd_protocol::mode::Mode;
use agentd_protocol::permission::Decision;
use agentd_protocol::plan::{PlanAuthor, PlanPhase};
use agentd_protocol::session::{At, Origin};
use agentd_protocol::time::Timestamp;
use agentd_protocol::turn::{Denial, Usage};

use super::heir::narrower;
use super::record::{
    AfterFailure, ApprovalResolved, BreakerChange, CallFinished, CallInput, CallProposed, Heard, InboxAdded,
    Part, PlanCopy, Record, Replied, ReplyEnd, SessionForked,
};
use super::state::{
    Call, CallState, ContextItem, ContextKind, Fate, HandedOver, InboxEntry, Pending, Phase, Plan, Prompt,
    SessionState, Settled, Turn,
};
use crate::ids::{CallId, Digest, Seq, TurnId, digest_of};
use crate::journal::RecordRef;
use crate::model::message::Stop;
use crate::permission::{Breaker, Layer, Reason};

/// How many settled approvals a session remembers, to tell a late answer who was first.
const MAX_SETTLED: usize = 500;

/// Characters of the newest prompt that a list has.
const FIRST_WORDS: usize = 80;

impl SessionState {
    /// Folds one record in. Any record in any state: one that does not fit changes nothing.
    pub fn apply(&mut self, seq: Seq, at: Timestamp, place: RecordRef, record: &Record) {
        self.head = seq;
        if is_news(record) {
            self.updated_at = at;
        }
        match record {
            // A journal has one creation; a second one is damage and changes nothing.
            Record::Created(_) => {}
            Record::ModeChanged(changed) => {
                self.mode = changed.to;
                if changed.to != Mode::Plan
                    && let Some(plan) = &mut self.plan
                    && matches!(plan.phase, PlanPhase::Planning | PlanPhase::Presented)
                {
                    plan.phase = PlanPhase::Left;
                }
            }
            Record::RuleAdded(added) => {
                // What holds in every session of the project is kept with the project.
                if added.grant.layer == Layer::Session && !self.grants.contains(&added.grant) {
                    self.grants.push(added.grant.clone());
                }
            }
            Record::TitleChanged(changed) => self.title = Some(changed.title.clone()),
            Record::PlanEntered(entered) => {
                self.mode = Mode::Plan;
                self.plan_files.push(entered.path.clone());
                self.plan = Some(Plan {
                    slug: entered.slug.clone(),
                    path: entered.path.clone(),
                    cycle: entered.cycle,
                    pre_mode: entered.pre_mode,
                    phase: PlanPhase::Planning,
                    revision: None,
                    author: PlanAuthor::Own,
                    replaced: None,
                    unread: None,
                    written_at: at,
                    presented: None,
                });
            }
            Record::PlanWritten(written) => {
                if let Some(plan) = &mut self.plan {
                    let before = plan.revision.replace(written.revision);
                    plan.author = written.by;
                    plan.written_at = at;
                    plan.replaced = match written.by {
                        PlanAuthor::Outside => None,
                        PlanAuthor::Own | PlanAuthor::Client => {
                            Some(before.unwrap_or_else(|| digest_of(b"")))
                        }
                    };
                    // A person's later text takes the place of the one that could not be read.
                    if written.by != PlanAuthor::Own {
                        plan.unread = None;
                    }
                }
            }
            Record::PlanApproved(_) => {
                self.trees.plan_approved(seq);
                if let Some(plan) = &mut self.plan {
                    plan.phase = PlanPhase::Approved;
                }
            }
            Record::PlanRejected(_) => {
                if let Some(plan) = &mut self.plan {
                    // Whoever rejected it has read what was said beside it.
                    plan.unread = None;
                    plan.phase = PlanPhase::Planning;
                }
            }
            Record::PlanRecovered(recovered) => {
                if let Some(plan) = &mut self.plan {
                    plan.revision = Some(recovered.revision);
                    plan.replaced = None;
                    if recovered.unread.is_some() {
                        plan.unread.clone_from(&recovered.unread);
                    }
                }
            }
            Record::PlanSaved(saved) => {
                if let Some(plan) = &mut self.plan
                    && plan.revision == Some(saved.revision)
                {
                    plan.replaced = None;
                }
            }
            Record::InboxAdded(added) => self.inbox_added(added, place),
            Record::InboxTaken(taken) => {
                let person = |entry: &&InboxEntry| {
                    entry.prompt_id == taken.prompt_id && entry.origin == Origin::Client
                };
                if let Some(entry) = self.inbox.iter().find(person) {
                    self.spoken.said(seq, entry.place);
                }
                self.inbox.retain(|entry| entry.prompt_id != taken.prompt_id);
                self.set_fate(taken.prompt_id, Fate::Taken { turn: taken.turn_id });
            }
            Record::InboxWithdrawn(withdrawn) => {
                self.last_prompt = self.prompt_without(Some(withdrawn.prompt_id));
                self.inbox.retain(|entry| entry.prompt_id != withdrawn.prompt_id);
                self.set_fate(withdrawn.prompt_id, Fate::Withdrawn);
            }
            Record::CommandRun(run) => {
                let fate = run.turn_id.map_or(Fate::Command, |turn| Fate::Taken { turn });
                self.prompts.entry(run.prompt_id).or_insert(Prompt { params: run.params, fate });
            }
            Record::SessionForked(forked) => {
                self.forked(forked, at);
                if forked.from_bundle {
                    self.spoken.left_behind();
                    self.trees.imported = Some(seq);
                }
            }
            Record::SessionArchived(archived) => self.archived = archived.archived,
            Record::HandedOver(handed) => {
                self.handed_over = Some(HandedOver {
                    bundle: handed.bundle.clone(),
                    at,
                    version: handed.version.clone(),
                    seq,
                    end: place.offset.saturating_add(u64::from(place.len)),
                    named: false,
                });
            }
            Record::BundleNamed(named) => {
                if let Some(handed) = self.handed_over.as_mut().filter(|handed| !handed.named) {
                    handed.bundle.clone_from(&named.bundle);
                    handed.named = true;
                }
            }
            Record::SessionImported(imported) => {
                self.spoken.left_behind();
                self.owner_epoch = imported.epoch;
                self.imported = Some(imported.params);
                self.begins_elsewhere(imported.mode, imported.widest, imported.plan.as_ref());
                self.trees.imported = Some(seq);
                self.plan_files.extend(imported.plan_files.iter().cloned());
            }
            Record::TurnStarted(started) => {
                self.trees.turn_started(started.turn_id, seq);
                self.ran_prompt = self.last_prompt_of(started.turn_id).or(self.ran_prompt.take());
                self.turn = Some(Turn {
                    id: started.turn_id,
                    origin: started.origin,
                    phase: Phase::Ready { attempt: 1 },
                    crashes: 0,
                    parked: false,
                    stopping: None,
                    refused: false,
                    usage: Usage::default(),
                    denials: Vec::new(),
                    length_cuts: 0,
                    last_answer: None,
                });
            }
            Record::TurnResumed(resumed) => self.with_turn(resumed.turn_id, |turn| {
                turn.parked = false;
                turn.crashes += u32::from(resumed.after_crash);
            }),
            Record::TurnParked(parked) => self.with_turn(parked.turn_id, |turn| turn.parked = true),
            Record::TurnStopping(stopping) => {
                self.inbox_held = true;
                self.with_turn(stopping.turn_id, |turn| turn.stopping = Some(stopping.by.clone()));
            }
            Record::TurnFinished(finished) => {
                self.trees.turn_finished(finished.turn_id, seq);
                let turn = self.turn.take_if(|turn| turn.id == finished.turn_id);
                let answer = turn.and_then(|turn| turn.last_answer);
                self.set_fate(finished.turn_id, Fate::Finished { record: place, answer });
                self.last_outcome = Some(finished.outcome);
                self.inbox_held |= finished.hold_inbox;
            }
            Record::ContextAdded(added) => self.extend_context(seq, place, ContextKind::Said(added.source)),
            Record::ContextReset(reset) => {
                self.resets.reset(&mut self.context, &reset.keep, seq);
                if let Some(from) = reset.from {
                    self.spoken.rewound(from);
                    self.trees.rewound(from);
                    self.ran_prompt = None;
                    self.last_prompt = self.prompt_without(None);
                }
            }
            Record::SampleStarted(started) => {
                if let Some(turn) = &mut self.turn {
                    // It has gone on since it was put down: from here on an end without a word is a crash again.
                    turn.parked = false;
                    turn.phase =
                        Phase::Sampling { message: started.message_id.clone(), attempt: started.attempt };
                }
            }
            Record::SampleFailed(failed) => {
                if let Some(turn) = &mut self.turn
                    && let Phase::Sampling { attempt, .. } = turn.phase
                {
                    turn.phase = match failed.then {
                        AfterFailure::Retry { at } => Phase::Backoff { until: at, attempt: attempt + 1 },
                        AfterFailure::Again => Phase::Ready { attempt },
                        AfterFailure::GiveUp => Phase::GaveUp { error: failed.error.clone() },
                    };
                }
            }
            Record::Replied(replied) => self.replied(replied, seq, place),
            Record::CallProposed(proposed) => self.call_proposed(proposed, place),
            Record::CallJudged(judged) => {
                if judged.decision == Decision::Allow {
                    self.set_call(&judged.call_id, |call| {
                        if matches!(call.state, CallState::Proposed | CallState::Waiting(_)) {
                            call.state = CallState::Allowed { shown: None };
                        }
                    });
                } else if judged.decision == Decision::Deny
                    && let Some(turn) = &mut self.turn
                    && let Some(call) = turn.calls().iter().find(|call| call.id == judged.call_id)
                {
                    let denial = Denial {
                        tool: call.tool.clone(),
                        title: call.title.clone(),
                        reason: judged.reason.clone(),
                    };
                    turn.denials.push(denial);
                }
            }
            Record::CallClassified(classified) => {
                self.usage += classified.usage;
                if let Some(turn) = &mut self.turn {
                    turn.usage += classified.usage;
                }
                self.breaker = match classified.heard {
                    Heard::Allowed => self.breaker.allowed(),
                    Heard::Blocked | Heard::Unreadable => self.breaker.refused(),
                    Heard::Nothing | Heard::Dropped => self.breaker,
                };
            }
            Record::BreakerChanged(changed) => {
                self.breaker = match changed.change {
                    BreakerChange::Tripped => self.breaker,
                    BreakerChange::Thrown => self.breaker.thrown(),
                    BreakerChange::Closed => Breaker::default(),
                };
            }
            Record::CallStarted(started) => {
                if let Some(turn) = &mut self.turn {
                    turn.parked = false;
                    if started.effects {
                        self.trees.touched(turn.id);
                    }
                }
                self.set_call(&started.call_id, |call| {
                    if call.state != CallState::Finished {
                        call.state = CallState::Running { effects: started.effects };
                    }
                });
            }
            Record::CallFinished(finished) => self.call_finished(finished, seq, place),
            Record::FileChanged(changed) => {
                self.trees.told(&changed.path);
                match changed.after {
                    Some(after) => self.reads.insert(&changed.path, after),
                    None => self.reads.forget(&changed.path),
                }
            }
            Record::TreeKept(kept) => self.trees.kept(kept, place),
            Record::ApprovalRequested(requested) => {
                let approval = &requested.approval;
                // Only a call that has not begun can wait for a person.
                if !matches!(
                    self.call(&requested.call_id).map(|call| &call.state),
                    Some(CallState::Proposed | CallState::Allowed { .. })
                ) {
                    return;
                }
                self.set_call(&requested.call_id, |call| {
                    call.state = CallState::Waiting(approval.approval_id.clone());
                });
                self.present(approval);
                self.approvals
                    .push(Pending { call: requested.call_id.clone(), approval: Arc::clone(approval) });
            }
            Record::TrustAsked(asked) => self.trust = Some(Arc::clone(&asked.approval)),
            Record::ApprovalChanged(changed) => {
                if let Some(trust) =
                    self.trust.as_mut().filter(|trust| trust.approval_id == changed.approval.approval_id)
                {
                    *trust = Arc::clone(&changed.approval);
                    return;
                }
                self.present(&changed.approval);
                if let Some(pending) =
                    self.approvals.iter_mut().find(|p| p.approval.approval_id == changed.approval.approval_id)
                {
                    pending.approval = Arc::clone(&changed.approval);
                }
            }
            Record::ApprovalResolved(resolved) => {
                let denied = matches!(resolved.choice, Some(ChoiceId::Deny | ChoiceId::KeepPlanning));
                if denied && resolved.feedback.is_some() && self.pending(&resolved.approval_id).is_some() {
                    self.spoken.said(seq, place);
                }
                self.approval_resolved(resolved, at);
            }
        }
    }

    fn present(&mut self, approval: &Approval) {
        if let agentd_protocol::approval::Subject::Plan { plan: subject } = &approval.subject
            && let Some(plan) = &mut self.plan
        {
            plan.phase = PlanPhase::Presented;
            plan.presented = Some(subject.revision);
        }
    }

    fn last_prompt_of(&self, prompt: TurnId) -> Option<String> {
        let entry = self.inbox.iter().find(|entry| entry.prompt_id == prompt)?;
        first_words(&entry.preview)
    }

    /// What the session was asked last, when `withdrawn` is taken back.
    #[must_use]
    pub fn prompt_without(&self, withdrawn: Option<TurnId>) -> Option<String> {
        let waiting = self.inbox.iter().rev().filter(|entry| Some(entry.prompt_id) != withdrawn);
        let mut asked = waiting.filter(|entry| entry.at == At::Turn || self.turn.is_none());
        asked.find_map(|entry| first_words(&entry.preview)).or(self.ran_prompt.clone())
    }

    fn inbox_added(&mut self, added: &InboxAdded, place: RecordRef) {
        // A person's prompt is what a held inbox waits for.
        if added.origin == Origin::Client {
            self.inbox_held = false;
        }
        self.prompts.entry(added.prompt_id).or_insert(Prompt { params: added.params, fate: Fate::Waiting });
        let preview = preview(&added.content);
        // What steers a turn does not say what it is about.
        if added.at_point == At::Turn || self.turn.is_none() {
            self.last_prompt = first_words(&preview).or(self.last_prompt.take());
        }
        self.inbox.push_back(InboxEntry {
            prompt_id: added.prompt_id,
            origin: added.origin,
            at: added.at_point,
            queued_at: added.queued_at,
            preview,
            place,
        });
    }

    fn forked(&mut self, forked: &SessionForked, at: Timestamp) {
        self.created_at = at;
        self.archived = false;
        self.settled.clear();
        // Ids of the other session's prompts mean nothing here.
        self.prompts.clear();
        self.usage = Usage::default();
        self.last_outcome = None;
        (self.owner_epoch, self.imported) = (1, None);
        self.breaker = self.breaker.stricter(forked.breaker);
        self.begins_elsewhere(forked.mode, forked.widest, forked.plan.as_ref());
    }

    /// What only concerned the session where it was before ends.
    fn begins_elsewhere(&mut self, mode: Mode, widest: Option<Mode>, plan: Option<&PlanCopy>) {
        self.mode = mode;
        self.handed_over = None;
        self.inbox.clear();
        self.inbox_held = false;
        self.turn = None;
        self.approvals.clear();
        self.trust = None;
        self.grants.clear();
        self.trees.left_behind();
        // The other session's files are not this one's to remove.
        self.plan_files.clear();
        self.plan = self.plan.take().zip(plan).map(|(plan, copy)| {
            self.plan_files.push(copy.path.clone());
            let phase = match plan.phase {
                PlanPhase::Presented => PlanPhase::Planning,
                phase => phase,
            };
            let (slug, path) = (copy.slug.clone(), copy.path.clone());
            // What is remembered from before planning must not bring back what the session does not have any more.
            let pre_mode = narrower(plan.pre_mode, widest.unwrap_or(Mode::AcceptEdits));
            Plan { slug, path, phase, pre_mode, replaced: None, unread: None, ..plan }
        });
    }

    fn replied(&mut self, replied: &Replied, seq: Seq, place: RecordRef) {
        self.usage += replied.usage;
        if replied.message.is_some() {
            self.extend_context(seq, place, ContextKind::Answer);
        }
        let Some(turn) = &mut self.turn else { return };
        turn.usage += replied.usage;
        if replied.message.is_some() {
            turn.last_answer = Some(place);
        }
        turn.length_cuts = match replied.end {
            ReplyEnd::Model(Stop::Length) => turn.length_cuts + 1,
            _ => 0,
        };
        let attempt = match turn.phase {
            Phase::Sampling { attempt, .. } => attempt,
            _ => 1,
        };
        turn.phase = if replied.message.is_some() {
            // Calls that follow in the same commit replace this.
            Phase::Said { end: replied.end.clone() }
        } else {
            Phase::Ready { attempt }
        };
    }

    fn call_proposed(&mut self, proposed: &CallProposed, place: RecordRef) {
        let Some(turn) = &mut self.turn else { return };
        let call = Call {
            id: proposed.call_id.clone(),
            provider_id: proposed.provider_id.clone(),
            tool: proposed.tool.clone(),
            title: proposed.title.clone(),
            read_only: proposed.read_only,
            malformed: matches!(proposed.input, CallInput::Malformed { .. }),
            place,
            state: CallState::Proposed,
        };
        match &mut turn.phase {
            Phase::Calls(calls) => calls.push(call),
            phase => *phase = Phase::Calls(vec![call]),
        }
    }

    fn call_finished(&mut self, finished: &CallFinished, seq: Seq, place: RecordRef) {
        for (path, digest) in &finished.reads {
            self.reads.insert(path, *digest);
        }
        let Some(turn) = &mut self.turn else { return };
        let Phase::Calls(calls) = &mut turn.phase else { return };
        let Some(call) = calls.iter_mut().find(|call| call.id == finished.call_id) else { return };
        // The first result in the journal is the result; a later one is dropped.
        if call.state == CallState::Finished {
            return;
        }
        if call.state == (CallState::Running { effects: true }) {
            self.trees.ran(finished.ran);
        }
        call.state = CallState::Finished;
        let kind = ContextKind::Result {
            provider_id: call.provider_id.clone(),
            is_error: finished.status != ToolStatus::Ok,
        };
        if calls.iter().all(|call| call.state == CallState::Finished) {
            turn.phase = Phase::Ready { attempt: 1 };
        }
        self.extend_context(seq, place, kind);
    }

    fn approval_resolved(&mut self, resolved: &ApprovalResolved, at: Timestamp) {
        if let Some(trust) = self.trust.take_if(|trust| trust.approval_id == resolved.approval_id) {
            self.settle(resolved, trust.digest, at);
            return;
        }
        let Some(index) = self.approvals.iter().position(|p| p.approval.approval_id == resolved.approval_id)
        else {
            return;
        };
        let pending = self.approvals.remove(index);
        if resolved.choice.is_some_and(allows) {
            let shown = Some(Arc::clone(&pending.approval));
            self.set_call(&pending.call, |call| call.state = CallState::Allowed { shown });
        }
        if resolved.choice == Some(ChoiceId::Deny)
            && let Some(turn) = &mut self.turn
        {
            turn.refused |= resolved.feedback.is_none();
            if let Some(call) = turn.calls().iter().find(|call| call.id == pending.call) {
                let reason = Reason::PersonDenied.code().into();
                let denial = Denial { tool: call.tool.clone(), title: call.title.clone(), reason };
                turn.denials.push(denial);
            }
        }
        if resolved.resolution != Resolution::Answered
            && pending.approval.subject.kind() == ApprovalKind::Plan
            && let Some(plan) = self.plan.as_mut().filter(|plan| plan.phase == PlanPhase::Presented)
        {
            plan.phase = PlanPhase::Planning;
        }
        self.settle(resolved, pending.approval.digest, at);
    }

    fn settle(&mut self, resolved: &ApprovalResolved, digest: Digest, at: Timestamp) {
        self.settled.push_back(Settled {
            approval_id: resolved.approval_id.clone(),
            digest,
            resolution: resolved.resolution,
            choice: resolved.choice,
            by: resolved.by.clone(),
            at,
            answer: resolved.answer,
        });
        if self.settled.len() > MAX_SETTLED {
            self.settled.pop_front();
        }
    }

    fn extend_context(&mut self, seq: Seq, place: RecordRef, kind: ContextKind) {
        self.context.push(ContextItem { seq, place, kind });
    }

    fn set_fate(&mut self, prompt: TurnId, fate: Fate) {
        if let Some(known) = self.prompts.get_mut(&prompt) {
            known.fate = fate;
        }
    }

    fn with_turn(&mut self, id: TurnId, change: impl FnOnce(&mut Turn)) {
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.id == id) {
            change(turn);
        }
    }

    fn set_call(&mut self, id: &CallId, change: impl FnOnce(&mut Call)) {
        if let Some(Turn { phase: Phase::Calls(calls), .. }) = &mut self.turn
            && let Some(call) = calls.iter_mut().find(|call| call.id == *id)
        {
            change(call);
        }
    }
}

/// Whether a record is something that happened in the session. What the daemon writes down because it leaves, comes back
/// or looks at a file does not make a session newer.
pub(super) fn is_news(record: &Record) -> bool {
    !matches!(
        record,
        Record::TurnParked(_)
            | Record::TurnResumed(_)
            | Record::PlanRecovered(_)
            | Record::PlanSaved(_)
            | Record::BundleNamed(_)
    )
}

/// The beginning of a prompt on one line, for lists.
fn first_words(preview: &str) -> Option<String> {
    let line = preview.split_whitespace().collect::<Vec<_>>().join(" ");
    let short: String = line.chars().take(FIRST_WORDS).collect();
    (!short.is_empty()).then_some(short)
}

fn preview(content: &[Part]) -> String {
    let text = content
        .iter()
        .map(|part| match part {
            Part::Text { text } => text.start(),
            Part::Resource { uri, .. } => uri.as_str(),
        })
        .collect::<Vec<_>>()
        .join(" ");
    text.chars().take(200).collect()
}

/// Whether a choice lets the call run that it was asked about.
fn allows(choice: ChoiceId) -> bool {
    match choice {
        ChoiceId::AllowOnce | ChoiceId::AllowForSession | ChoiceId::AllowAlways => true,
        ChoiceId::Deny
        | ChoiceId::ClearAndExecute
        | ChoiceId::Execute
        | ChoiceId::ManualExecute
        | ChoiceId::KeepPlanning
        | ChoiceId::Answer
        | ChoiceId::Decline
        | ChoiceId::Trust
        | ChoiceId::Untrusted => false,
    }
}
