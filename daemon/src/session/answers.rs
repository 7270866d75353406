//! Answers to approvals: the first valid one wins, and it, its mode change, its context change and its result are one
//! commit.

use std::sync::Arc;

use agentd_protocol::approval::{Approval, ChoiceId, RespondParams, RespondResult, Subject};
use agentd_protocol::event::{ResetReason, Resolution, ToolStatus};
use agentd_protocol::permission::Confinement;
use agentd_protocol::plan::PlanAuthor;
use agentd_protocol::session::Row;
use agentd_protocol::{ApprovalId, MessageId, Mode};

use super::actor::Session;
use super::approval::{AnswerError, answers_text, check_answer, confinement_word};
use super::command::Caller;
use super::error::SessionError;
use super::explain::unkept;
use super::record::{
    ApprovalResolved, CommandRun, ContextAdded, ContextReset, PlanApproved, PlanRejected, PlanWritten,
    Record, RuleAdded, Source,
};
use super::state::{Call, Pending, Settled};
use crate::context;
use crate::ids::{Digest, digest_of};
use crate::permission::{Grant, Layer};
use crate::store::kept::SavedRule;

/// An answer on its way, and how it came.
struct Answering<'a> {
    answer: RespondParams,
    caller: &'a Caller,
    /// The prompt that it came as.
    prompt: Option<CommandRun>,
}

impl Session {
    pub(super) async fn respond(
        &mut self,
        answer: RespondParams,
        caller: &Caller,
    ) -> Result<RespondResult, SessionError> {
        self.respond_as(Answering { answer, caller, prompt: None }).await
    }

    async fn respond_as(&mut self, answering: Answering<'_>) -> Result<RespondResult, SessionError> {
        let Answering { answer, caller, .. } = &answering;
        if self.trust_asked(answer).is_some() {
            return self.answer_trust(answer, caller).await;
        }
        let pending = match self.state.pending(&answer.approval_id) {
            Some(pending) => pending.clone(),
            None => return self.late_answer(answer, caller),
        };
        if matches!(pending.approval.subject, Subject::Plan { .. }) {
            // The person may have saved the file a moment ago: what is approved is what stands there now. To plan on, no
            // file is needed.
            let refreshed = self.refresh_plan().await;
            if answer.choice != ChoiceId::KeepPlanning {
                refreshed?;
            }
        }
        let Some(pending) = self.state.pending(&pending.approval.approval_id).cloned() else {
            return self.late_answer(answer, caller);
        };
        check_answer(&pending.approval, answer, caller.actor).map_err(refused)?;
        self.check_plan_is_shown(&pending, answer)?;
        let Some(call) = self.state.call(&pending.call).cloned() else {
            return Err(SessionError::NotFound("call"));
        };
        match &pending.approval.subject {
            Subject::Tool { .. } => self.answer_tool(&pending, &call, &answering).await?,
            Subject::Plan { .. } => self.answer_plan(&pending, &call, &answering).await?,
            Subject::Question { question } => {
                let questions = question.questions.clone();
                self.answer_question(&pending, &call, &questions, &answering).await?;
            }
            // No call asks for it.
            Subject::Trust { .. } => return Err(SessionError::NotFound("approval")),
        }
        Ok(RespondResult { status: "accepted".into(), mode_now: self.state.mode })
    }

    /// The winner repeating itself is told again that it won; anyone else learns who did.
    pub(super) fn late_answer(
        &self,
        answer: &RespondParams,
        caller: &Caller,
    ) -> Result<RespondResult, SessionError> {
        let settled = self.settled(&answer.approval_id).ok_or(SessionError::NotFound("approval"))?;
        // The same words from the same client may come over another connection, after a restart of either side. Another
        // word is another answer, and must not be told that it counts.
        let same_client =
            settled.by.principal == caller.by.principal && settled.by.client == caller.by.client;
        if settled.resolution == Resolution::Answered
            && settled.digest == answer.digest
            && settled.answer == Some(answer_digest(answer))
            && same_client
        {
            return Ok(RespondResult { status: "accepted".into(), mode_now: self.state.mode });
        }
        Err(SessionError::ApprovalSettled(Box::new(settled.clone())))
    }

    fn settled(&self, id: &ApprovalId) -> Option<&Settled> {
        self.state.settled.iter().rev().find(|settled| settled.approval_id == *id)
    }

    /// A file that was emptied, or grew too long to be shown, makes no new revision of the approval; the old one must
    /// not be carried out as if nothing had happened.
    fn check_plan_is_shown(&self, pending: &Pending, answer: &RespondParams) -> Result<(), SessionError> {
        let Subject::Plan { plan: shown } = &pending.approval.subject else { return Ok(()) };
        let newest = self.state.plan.as_ref().and_then(|plan| plan.revision);
        if !takes_shown_plan(answer) || newest == Some(shown.revision) {
            return Ok(());
        }
        Err(SessionError::Conflict(format!(
            "the plan file {} was changed and can no longer be approved: it is empty or over {} KiB; mend it, or \
             keep planning",
            shown.path,
            super::planning::MAX_PRESENTED / 1024
        )))
    }

    fn resolved(&self, pending: &Pending, answering: &Answering<'_>) -> impl Iterator<Item = Record> {
        let Answering { answer, caller, prompt } = answering;
        let resolved = ApprovalResolved {
            approval_id: pending.approval.approval_id.clone(),
            resolution: Resolution::Answered,
            choice: Some(answer.choice),
            by: caller.by.clone(),
            feedback: answer.feedback.clone().filter(|text| !text.trim().is_empty()),
            answer: Some(answer_digest(answer)),
        };
        [resolved.into()].into_iter().chain(prompt.clone().map(Record::from))
    }

    async fn answer_tool(
        &mut self,
        pending: &Pending,
        call: &Call,
        answering: &Answering<'_>,
    ) -> Result<(), SessionError> {
        let Answering { answer, caller, .. } = answering;
        let mut records: Vec<_> = self.resolved(pending, answering).collect();
        let made = self.remembered(&pending.approval, answer.choice);
        self.keep(&made).await?;
        records.extend(made.into_iter().map(|grant| RuleAdded { grant, by: caller.by.clone() }.into()));
        if answer.choice == ChoiceId::Deny {
            let text = context::denied_by_person(answer.feedback.as_deref());
            records.push(self.result(&call.id, ToolStatus::Denied, Some("person.denied"), text).await?);
        }
        // What a call would touch is resolved anew before it runs.
        self.prepared.clear();
        self.commit(records).await?;
        if self.state.turn.as_ref().is_some_and(|turn| turn.refused) {
            // Nothing more of the turn runs: what is still asked about other calls of it is of no use.
            self.drop_opinions();
        }
        // Others may wait for what is allowed now.
        if self.law_may_answer()
            && let Err(error) = self.judge_waiting_again().await
        {
            tracing::warn!(session = %self.state.id(), %error, "waiting approvals were not judged again");
        }
        Ok(())
    }

    /// The rules that an answer makes: exactly those that were shown.
    fn remembered(&self, approval: &Approval, choice: ChoiceId) -> Vec<Grant> {
        let Subject::Tool { tool } = &approval.subject else { return Vec::new() };
        let layer = match choice {
            ChoiceId::AllowForSession => Layer::Session,
            ChoiceId::AllowAlways => Layer::Saved,
            _ => return Vec::new(),
        };
        let unconfined = tool.confinement.as_deref() == Some(confinement_word(Confinement::Off));
        let made = tool.rules.iter().filter(|offer| offer.choice == choice);
        made.map(|offer| Grant { rule: offer.rule.clone(), layer, unconfined, identity: offer.server })
            .collect()
    }

    /// Keeps what is to hold in every session of the project, before the answer that says so is journaled: whoever is told
    /// that it holds is told the truth, and a crash in between leaves a rule that the person has asked for.
    async fn keep(&mut self, grants: &[Grant]) -> Result<(), SessionError> {
        let saved: Vec<_> = grants
            .iter()
            .filter(|grant| grant.layer == Layer::Saved)
            .map(|grant| SavedRule {
                rule: grant.rule.clone(),
                unconfined: grant.unconfined,
                identity: grant.identity,
            })
            .collect();
        if saved.is_empty() {
            return Ok(());
        }
        let (kept, root) = (Arc::clone(&self.deps.kept), self.root.clone());
        self.saved = super::blocking(move || {
            saved.iter().try_for_each(|rule| kept.save(&root, rule))?;
            kept.about(&root)
        })
        .await
        .map_err(unkept)?;
        Ok(())
    }

    async fn answer_question(
        &mut self,
        pending: &Pending,
        call: &Call,
        questions: &[agentd_protocol::approval::Question],
        answering: &Answering<'_>,
    ) -> Result<(), SessionError> {
        let answer = &answering.answer;
        let text = match answer.choice {
            ChoiceId::Decline => context::question_declined(answer.feedback.as_deref()),
            _ => answers_text(questions, &answer.answers, answer.feedback.as_deref()),
        };
        let result = self.result(&call.id, ToolStatus::Ok, None, text).await?;
        let records = self.resolved(pending, answering).chain([result]).collect();
        self.commit(records).await
    }

    async fn answer_plan(
        &mut self,
        pending: &Pending,
        call: &Call,
        answering: &Answering<'_>,
    ) -> Result<(), SessionError> {
        let Answering { answer, caller, .. } = answering;
        let Subject::Plan { plan: shown } = &pending.approval.subject else { return Ok(()) };
        let mut records = Vec::new();
        let (content, revision) = match &answer.edited_plan {
            Some(edited) => {
                let revision = self.put_blob(edited.clone().into_bytes()).await?;
                // Against the newest one: a file that was emptied is a revision that was never shown.
                if self.state.plan.as_ref().and_then(|plan| plan.revision) != Some(revision) {
                    let diff = super::planning::diff(shown.content.clone(), edited.clone()).await;
                    let diff = self.body(diff.unwrap_or_default()).await?;
                    records.push(PlanWritten { revision, by: PlanAuthor::Client, diff }.into());
                }
                (edited.clone(), revision)
            }
            None => (shown.content.clone(), shown.revision),
        };
        records.extend(self.resolved(pending, answering));

        let Some(own_mode) = pending
            .approval
            .choices
            .iter()
            .find(|choice| choice.id == answer.choice)
            .map(|choice| choice.mode_after)
        else {
            return Err(SessionError::invalid("choice", "not a choice of this approval"));
        };
        if answer.choice == ChoiceId::KeepPlanning {
            records.push(PlanRejected { revision, feedback: answer.feedback.clone() }.into());
            let path = self.state.plan.as_ref().map(|plan| plan.path.clone()).unwrap_or_default();
            let mut text = context::plan_rejected(&path, &remarks(answer));
            if answer.edited_plan.is_some() {
                text.push_str("\n\nThe person also edited the plan file; read it before you change it.");
            }
            records.push(self.result(&call.id, ToolStatus::Denied, Some("plan.keepPlanning"), text).await?);
        } else {
            self.look_at_settings().await;
            // The mode from before planning may have become unavailable since it was shown: then it is the default.
            let mode = answer.mode.unwrap_or_else(|| self.still_available(own_mode));
            self.mode_available(mode)?;
            records.extend(self.execution(call, answer, &content, revision, mode, caller).await?);
        }
        self.commit(records).await?;
        self.save_plan_file(content).await;
        Ok(())
    }

    /// What an executing choice journals, in this order: approved, mode, result, and then the context.
    async fn execution(
        &self,
        call: &Call,
        answer: &RespondParams,
        content: &str,
        revision: crate::ids::Digest,
        mode: Mode,
        caller: &Caller,
    ) -> Result<Vec<Record>, SessionError> {
        let plan = self.state.plan.as_ref();
        let path = plan.map(|plan| plan.path.clone()).unwrap_or_default();
        let mut records = vec![
            PlanApproved { revision, choice: answer.choice, mode_after: mode }.into(),
            self.mode_changed(mode, caller.by.clone()),
        ];
        let approved = context::Approved { path: &path, plan: content, mode, remarks: remarks(answer) };
        let text = context::plan_approved(&approved);
        records.push(self.result(&call.id, ToolStatus::Ok, None, text).await?);
        records.extend(self.later_calls_not_run(call, mode).await?);
        if answer.choice == ChoiceId::ClearAndExecute {
            records.push(
                ContextReset {
                    reason: ResetReason::Clear,
                    keep: super::step::kept_by_clear(&self.state),
                    from: None,
                }
                .into(),
            );
            records.push(
                ContextAdded {
                    message_id: MessageId::generate(self.state.id()),
                    source: Source::Plan,
                    origin: None,
                    text: self.body(context::fresh_start(&approved)).await?,
                }
                .into(),
            );
        }
        Ok(records)
    }

    pub(super) async fn approval_get(&mut self, id: &ApprovalId) -> Result<(Approval, Row), SessionError> {
        if let Some(pending) = self.state.pending(id)
            && matches!(pending.approval.subject, Subject::Plan { .. })
        {
            self.refresh_plan().await?;
        }
        if self.state.trust.as_ref().is_some_and(|trust| trust.approval_id == *id) {
            self.look_at_settings().await;
            self.settle_trust().await;
        }
        match self.state.asked().find(|approval| approval.approval_id == *id) {
            Some(approval) => Ok((Approval::clone(approval), super::project::row(&self.state))),
            None => Err(self.not_pending(id)),
        }
    }

    fn not_pending(&self, id: &ApprovalId) -> SessionError {
        self.settled(id).map_or(SessionError::NotFound("approval"), |settled| {
            SessionError::ApprovalSettled(Box::new(settled.clone()))
        })
    }

    /// A prompt that answers an approval: feedback or a free answer, never approval.
    pub(super) async fn answer_by_text(
        &mut self,
        id: &ApprovalId,
        text: String,
        prompt: CommandRun,
        caller: &Caller,
    ) -> Result<(), SessionError> {
        let (choice, digest, revision) = match self.state.pending(id).map(|pending| &pending.approval) {
            Some(approval) => match &approval.subject {
                Subject::Tool { .. } => (ChoiceId::Deny, approval.digest, None),
                Subject::Plan { plan } => (ChoiceId::KeepPlanning, approval.digest, Some(plan.revision)),
                Subject::Question { .. } => (ChoiceId::Answer, approval.digest, None),
                Subject::Trust { .. } => return Err(no_words()),
            },
            None if self.state.trust.as_ref().is_some_and(|trust| trust.approval_id == *id) => {
                return Err(no_words());
            }
            // Settled already, perhaps by this very prompt, whose answer was lost on the way.
            None => match self.settled(id) {
                Some(settled) => (settled.choice.unwrap_or(ChoiceId::Deny), settled.digest, None),
                None => return Err(self.not_pending(id)),
            },
        };
        let answer = RespondParams {
            approval_id: id.clone(),
            choice,
            digest,
            revision,
            feedback: Some(text),
            comments: Vec::new(),
            mode: None,
            edited_plan: None,
            answers: Vec::new(),
        };
        self.respond_as(Answering { answer, caller, prompt: Some(prompt) }).await.map(|_| ())
    }
}

/// Whether this would carry out the plan as it was shown, rather than text that came with the answer.
fn takes_shown_plan(answer: &RespondParams) -> bool {
    answer.choice != ChoiceId::KeepPlanning && answer.edited_plan.is_none()
}

fn remarks(answer: &RespondParams) -> context::Remarks<'_> {
    context::Remarks { feedback: answer.feedback.as_deref(), comments: &answer.comments }
}

/// All that an answer says, without what it was said to.
pub(super) fn answer_digest(answer: &RespondParams) -> Digest {
    let RespondParams {
        approval_id: _,
        digest: _,
        revision: _,
        choice,
        feedback,
        comments,
        mode,
        edited_plan,
        answers,
    } = answer;
    let said = (choice, feedback, comments, mode, edited_plan, answers);
    // Plain data with string keys always serialises.
    digest_of(&serde_json::to_vec(&said).unwrap_or_default())
}

/// Words alone trust nothing.
fn no_words() -> SessionError {
    SessionError::invalid("answers", "trust is not given or refused by a prompt; answer the approval")
}

/// Why an answer is not taken, for whoever gave it.
pub(super) fn refused(error: AnswerError) -> SessionError {
    match error {
        AnswerError::Invalid { field, message } => SessionError::Invalid { field, message },
        AnswerError::PersonOnly => SessionError::Refused(
            "only a person may answer this; the client said in initialize that it is a program".into(),
        ),
        AnswerError::Stale(approval) => SessionError::Stale(approval),
    }
}
