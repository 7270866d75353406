//! Calls: made ready, put before the gate, run, recorded. The gate decides; this only carries out.

use std::borrow::Cow;
use std::sync::Arc;

use agentd_protocol::CallId;
use agentd_protocol::approval::{Approval, ChoiceId, PlanSubject, RuleOffer, Subject, ToolSubject};
use agentd_protocol::event::{ToolKind, ToolStatus};
use agentd_protocol::permission::Confinement;
use agentd_protocol::session::Origin;
use futures_util::FutureExt as _;
use futures_util::stream::FuturesOrdered;

use super::actor::{Law, Session};
use super::approval::{Frame, PlanModes, confinement_word, effect_lines};
use super::classify::{Cleared, Doubtful, allowed};
use super::error::SessionError;
use super::flight::{Flight, PreparedCalls, Purpose, contained, contained_prepare};
use super::planning::PlanNow;
use super::record::{
    ApprovalRequested, CallFinished, CallInput, CallJudged, CallStarted, FileChanged, Json, Record,
};
use super::state::{Call, CallState};
use crate::context;
use crate::permission::effect::Effect;
use crate::permission::{self, Answer, Grant, Layer, Offer, Places, Query, Rules, Ruling, Verdict};
use crate::store::kept::SavedRule;
use crate::tool::{Closed, Output, Prepared, Request, RunContext, Scene, ToolError, Work};
use crate::workspace::is_still_there;

/// Bytes of a call's input and diff that can be put before a person: it travels whole inside one event and one commit.
const MAX_ASKED: usize = 512 * 1024;

/// Bytes of a call's input beyond which it can only be allowed once.
const MAX_REMEMBERED: usize = 4 * 1024;

/// What became of one call before the gate.
pub(super) enum Judged {
    Allowed(Verdict),
    Denied(Verdict),
    Ask(Verdict),
    /// The classifier of mode `auto` is asked first.
    Classify(Verdict),
}

impl Session {
    pub(super) async fn judge_or_prepare(&mut self, calls: Vec<CallId>) -> Result<(), SessionError> {
        self.prepare(calls, Purpose::Judge).await
    }

    /// Reads the calls' arguments and lets their tools resolve what they would touch, off the runtime's threads.
    async fn prepare(&mut self, calls: Vec<CallId>, purpose: Purpose) -> Result<(), SessionError> {
        let scene = Arc::new(self.scene());
        let calls: Vec<_> = calls.iter().filter_map(|id| self.state.call(id).cloned()).collect();
        let inputs = self.call_inputs(calls.iter().map(|call| call.place).collect()).await?;
        let mut jobs = Vec::new();
        for (call, input) in calls.into_iter().zip(inputs) {
            let arguments = match input {
                CallInput::Json(Json::Inline(raw)) => Ok(raw),
                CallInput::Json(Json::Blob(blob)) => {
                    let text = self.blob_text(blob).await?;
                    let parse = move || serde_json::value::RawValue::from_string(text);
                    super::blocking(parse).await.map_err(|error| error.to_string())
                }
                CallInput::Malformed { problem, .. } => Err(problem),
            };
            let tool = self.deps.tools.find(&call.tool);
            jobs.push((call.id, call.tool, tool, arguments));
        }
        let known = self.deps.tools.specs().into_iter().map(|spec| spec.name).collect::<Vec<_>>().join(", ");
        let future = async move {
            // One job after the other: each is a few system calls.
            let outcome = tokio::task::spawn_blocking(move || {
                jobs.into_iter()
                    .map(|(id, name, tool, arguments)| {
                        let result = match (tool, arguments) {
                            (_, Err(problem)) => Err(ToolError(context::malformed(&name, &problem))),
                            (None, Ok(_)) => Err(ToolError(context::unknown_tool(&name, &known))),
                            (Some(tool), Ok(_))
                                if needs_folder(tool.kind()) && !is_still_there(&scene.cwd) =>
                            {
                                Err(ToolError(context::folder_gone(&scene.cwd)))
                            }
                            (Some(tool), Ok(arguments)) => {
                                contained_prepare(&name, || tool.prepare(&arguments, &scene))
                            }
                        };
                        (id, result)
                    })
                    .collect::<PreparedCalls>()
            })
            .await;
            // No tool can panic past `contained_prepare`: the runtime is going down, and the calls stay as they are.
            outcome.unwrap_or_default()
        };
        self.flight.board(Flight::Prepare { purpose, future: future.boxed() });
        Ok(())
    }

    pub(super) fn scene(&self) -> Scene {
        Scene {
            session: self.state.id(),
            cwd: self.state.created.cwd.clone(),
            plan_file: self.own_plan_file(),
            reads: self.state.reads.snapshot(),
            env: Arc::clone(&self.env),
            scratch: self.deps.paths.scratch(self.state.id()),
            closed: Closed {
                own: self.deps.own.clone().into(),
                rules: Some(self.rules())
                    .filter(|rules| rules.hides_something())
                    .map(|rules| Arc::new(rules.into_owned())),
                cwd: self.state.created.cwd.clone(),
                root: self.root.clone(),
                home: self.deps.home.clone(),
            },
        }
    }

    pub(super) fn places(&self) -> Places {
        let session = self.deps.paths.session_dir(self.state.id());
        Places {
            workspace: vec![self.state.created.cwd.clone()],
            root: self.root.clone(),
            own: self.deps.own.clone(),
            plan_file: self.own_plan_file(),
            own_readable: vec![session.join("blobs"), self.deps.paths.scratch(self.state.id())],
            home: self.deps.home.clone(),
        }
    }

    /// Asks the gate about a call, with the mode and the rules of this moment.
    pub(super) fn judge(&self, call: &Call, prepared: &Prepared, answer: Option<Answer>) -> Judged {
        let verdict = self.before_gate(&call.tool, &prepared.effects, |query| match answer {
            None => permission::judge(query),
            Some(answer) => permission::judge_again_after_answer(query, answer),
        });
        match verdict.ruling {
            Ruling::Allow => Judged::Allowed(verdict),
            Ruling::Classify => Judged::Classify(verdict),
            Ruling::Ask => Judged::Ask(verdict),
            Ruling::Deny => Judged::Denied(verdict),
        }
    }

    /// Puts a question about a call to the gate, with all that it depends on at this moment.
    pub(super) fn before_gate<T>(
        &self,
        tool: &str,
        effects: &[Effect],
        ask: impl FnOnce(&Query<'_>) -> T,
    ) -> T {
        let places = self.places();
        let origin = self.state.turn.as_ref().map_or(Origin::Client, |turn| turn.origin);
        let rules = self.rules();
        ask(&Query {
            tool,
            effects,
            mode: self.mode_now(),
            rules: &rules,
            places: &places,
            origin,
            stated: None,
            sandbox: self.policy.sandbox,
            plan_shell: self.policy.plan_shell,
        })
    }

    /// The rules of the settings, and those that persons' answers made.
    pub(super) fn rules(&self) -> Cow<'_, Rules> {
        let saved: Vec<Grant> = self.saved.rules.iter().map(kept_grant).collect();
        if self.state.grants.is_empty() && saved.is_empty() {
            return Cow::Borrowed(&self.policy.rules);
        }
        Cow::Owned(self.policy.rules.with_grants(self.state.grants.iter().chain(&saved)))
    }

    pub(super) async fn calls_prepared(
        &mut self,
        purpose: Purpose,
        calls: PreparedCalls,
    ) -> Result<(), SessionError> {
        self.look_at_settings().await;
        self.settle_trust().await;
        match purpose {
            Purpose::Judge => self.judge_group(calls).await,
            Purpose::Run => {
                self.prepared.extend(calls);
                Ok(())
            }
            Purpose::Rejudge => self.rejudge(calls).await,
        }
    }

    /// Takes what the settings say now.
    pub(super) async fn look_at_settings(&mut self) {
        let (deps, cwd) = (Arc::clone(&self.deps), self.state.created.cwd.clone());
        let (now, root, saved, shut) = super::blocking(move || {
            let root = deps.policies.root(&cwd);
            let saved = deps.kept.about(&root).unwrap_or_else(|error| {
                tracing::warn!(%error, "rules that were kept for the project do not count");
                Arc::default()
            });
            let shut = super::breaker::is_open_everywhere(&deps.kept);
            (deps.policies.of(&cwd), root, saved, shut)
        })
        .await;
        (self.root, self.saved, self.shut_everywhere) = (root, saved, shut);
        self.rules_changed |= !Arc::ptr_eq(&now, &self.policy);
        self.policy = now;
    }

    async fn judge_group(&mut self, calls: PreparedCalls) -> Result<(), SessionError> {
        if !self.waits_for_tool() {
            self.judged_under = Some(self.law());
        }
        let mut records = Vec::new();
        let mut doubtful = Vec::new();
        for (id, prepared) in calls {
            let Some(call) = self.state.call(&id).cloned() else { continue };
            let prepared = match prepared {
                Ok(prepared) => prepared,
                Err(error) => {
                    records.push(self.error_result(&id, "call.invalid", &error.0).await?);
                    continue;
                }
            };
            match (self.judge(&call, &prepared, None), &prepared.work) {
                (Judged::Denied(verdict), _) => {
                    records.extend(self.denied_by_gate(&id, &verdict, None).await?)
                }
                (_, Work::Refuse(error)) => {
                    records.push(self.error_result(&id, "call.invalid", &error.0).await?);
                }
                (Judged::Allowed(verdict), _) => {
                    records.push(self.judged(&id, &verdict, None));
                    self.prepared.insert(id, Ok(prepared));
                }
                (Judged::Ask(verdict), _) => {
                    records.extend(self.ask(&call, &prepared, &verdict, None).await?);
                }
                (Judged::Classify(verdict), _) => doubtful.push(Doubtful { call, prepared, verdict }),
            }
        }
        self.commit(records).await?;
        self.classify(doubtful).await
    }

    pub(super) fn judged(&self, id: &CallId, verdict: &Verdict, note: Option<&str>) -> Record {
        CallJudged {
            call_id: id.clone(),
            decision: verdict.ruling.decision(),
            reason: verdict.reason.code().into(),
            rule: verdict.rule.clone(),
            confinement: verdict.confinement,
            mode: self.mode_now(),
            note: note.map(str::to_owned),
        }
        .into()
    }

    pub(super) async fn denied_by_gate(
        &self,
        id: &CallId,
        verdict: &Verdict,
        note: Option<&str>,
    ) -> Result<[Record; 2], SessionError> {
        let text = context::denied_by_gate(verdict.reason, verdict.rule.as_deref());
        let result = self.result(id, ToolStatus::Denied, Some(verdict.reason.code()), text).await?;
        Ok([self.judged(id, verdict, note), result])
    }

    /// Raises the approval that a call needs, of the kind that its work calls for.
    pub(super) async fn ask(
        &mut self,
        call: &Call,
        prepared: &Prepared,
        verdict: &Verdict,
        note: Option<&str>,
    ) -> Result<Vec<Record>, SessionError> {
        let judged = self.judged(&call.id, verdict, note);
        let approval = match &prepared.work {
            Work::Ask(Request::LeavePlan) => return self.present_plan(call, judged).await,
            Work::Ask(Request::AskPerson(questions)) => {
                self.frame().question(call.id.clone(), questions.clone())
            }
            Work::Ask(Request::EnterPlan | Request::WritePlan(_)) | Work::Run(_) | Work::Refuse(_) => {
                match self.tool_approval(call, prepared, verdict, note).await? {
                    Some(approval) => approval,
                    None => {
                        let text = context::TOO_LARGE_TO_SHOW;
                        let result = self.error_result(&call.id, "call.tooLarge", text).await?;
                        return Ok(vec![judged, result]);
                    }
                }
            }
        };
        Ok(vec![judged, self.requested(call, approval)])
    }

    fn requested(&self, call: &Call, approval: Approval) -> Record {
        ApprovalRequested { call_id: call.id.clone(), approval: Arc::new(approval) }.into()
    }

    pub(super) fn frame(&self) -> Frame {
        Frame { session: self.state.id(), mode: self.state.mode, now: self.deps.clock.now() }
    }

    /// Absent: it is too large to be shown whole.
    async fn tool_approval(
        &self,
        call: &Call,
        prepared: &Prepared,
        verdict: &Verdict,
        note: Option<&str>,
    ) -> Result<Option<Approval>, SessionError> {
        let input = match self.call_input(call.place).await? {
            CallInput::Json(Json::Inline(raw)) => raw.get().to_owned(),
            CallInput::Json(Json::Blob(blob)) => self.blob_text(blob).await?,
            CallInput::Malformed { .. } => "null".into(),
        };
        if input.len() + prepared.diff.as_ref().map_or(0, String::len) > MAX_ASKED {
            return Ok(None);
        }
        let offer =
            self.before_gate(&call.tool, &prepared.effects, |query| permission::offer(query, verdict));
        let subject = ToolSubject {
            call_id: call.id.clone(),
            tool: call.tool.clone(),
            input: serde_json::from_str(&input).unwrap_or_default(),
            cwd: self.state.created.cwd.display().to_string(),
            effects: effect_lines(&prepared.effects),
            confinement: verdict.confinement.map(|confinement| confinement_word(confinement).to_owned()),
            reason: verdict.reason.code().into(),
            note: note.map(str::to_owned),
            diff: prepared.diff.clone(),
            // Longer texts are easily not read to their end.
            rules: if input.len() > MAX_REMEMBERED { Vec::new() } else { offered(&offer) },
        };
        Ok(Some(self.frame().tool(subject, prepared.title.clone())))
    }

    /// Puts the plan as it stands in the file now before a person, or tells the model why there is none to present.
    async fn present_plan(&mut self, call: &Call, judged: Record) -> Result<Vec<Record>, SessionError> {
        let mut records = vec![judged];
        if self.state.mode != agentd_protocol::Mode::Plan {
            let text = context::no_plan_to_leave(self.state.mode);
            records.push(self.error_result(&call.id, "plan.notReady", &text).await?);
            return Ok(records);
        }
        let now = self.plan_now().await?;
        match now.unpresentable() {
            None => {
                let approval = self.plan_approval(&now, None).await?;
                records.extend(now.records);
                records.push(self.requested(call, approval));
            }
            Some(text) => {
                records.extend(now.records);
                records.push(self.error_result(&call.id, "plan.notReady", &text).await?);
            }
        }
        Ok(records)
    }

    /// The approval of the plan as it was just read. `pending`: one that waits already and keeps its id.
    pub(super) async fn plan_approval(
        &self,
        now: &PlanNow,
        pending: Option<&Approval>,
    ) -> Result<Approval, SessionError> {
        let Some(plan) = &self.state.plan else { return Err(SessionError::NotFound("plan")) };
        let shown = pending.and_then(|pending| match &pending.subject {
            Subject::Plan { plan } if plan.revision == now.revision => Some(plan),
            _ => None,
        });
        let diff = match (shown, plan.presented.filter(|presented| *presented != now.revision)) {
            (Some(shown), _) => shown.diff.clone(),
            (None, Some(presented)) => {
                let before = self.blob_text(presented).await?;
                super::planning::diff(before, now.content.clone()).await
            }
            (None, None) => None,
        };
        let subject = PlanSubject {
            path: now.path.display().to_string(),
            revision: now.revision,
            content: now.content.clone(),
            diff,
            cycle: plan.cycle,
            // A later save of theirs takes its place.
            note: now.unread.as_ref().or(plan.unread.as_ref()).filter(|_| !now.from_outside).map(|why| {
                format!(
                    "{} could not be read as the plan: {why}. It is not part of what is shown here; to make it count, \
                     save the plan again.",
                    now.path.display()
                )
            }),
            blocked: false,
        };
        let manual = self.still_available(plan.pre_mode);
        let keep = pending.map(|pending| pending.approval_id.clone());
        Ok(self.frame().plan(keep, subject, PlanModes { manual }))
    }

    // ---- running ----

    pub(super) async fn run_or_prepare(&mut self, calls: Vec<CallId>) -> Result<(), SessionError> {
        let stale: Vec<_> = calls.iter().filter(|id| !self.prepared.contains_key(*id)).cloned().collect();
        if !stale.is_empty() {
            return self.prepare(stale, Purpose::Run).await;
        }
        if let Some((turn, when)) = self.tree_wanted_before(&calls) {
            // What was resolved before the snapshot is resolved again after it.
            self.prepared.clear();
            self.keeping.looked_for = calls.into_iter().next();
            self.keep_tree(turn, when);
            return Ok(());
        }
        self.run_group(calls).await
    }

    /// Judges each call once more, with the mode of now, and starts those that may run.
    async fn run_group(&mut self, calls: Vec<CallId>) -> Result<(), SessionError> {
        let doubtful = self.unheard(&calls);
        if !doubtful.is_empty() {
            return self.classify(doubtful).await;
        }
        let mut records = Vec::new();
        let mut ready = Vec::new();
        for id in calls {
            let Some(call) = self.state.call(&id).cloned() else { continue };
            let Some(prepared) = self.prepared.remove(&id) else { continue };
            let prepared = match prepared {
                Ok(prepared) => prepared,
                Err(error) => {
                    records.push(self.error_result(&id, "call.invalid", &error.0).await?);
                    continue;
                }
            };
            let shown = match &call.state {
                CallState::Allowed { shown } => shown.clone(),
                _ => None,
            };
            if let Some(shown) = &shown
                && !matches!(prepared.work, Work::Refuse(_))
                && !still_as_shown(shown, &prepared)
            {
                let text = context::CHANGED_SINCE_SHOWN;
                records.push(self.error_result(&id, "approval.changed", text).await?);
                continue;
            }
            match (self.judge(&call, &prepared, shown.is_some().then_some(Answer::Yes)), &prepared.work) {
                (Judged::Denied(verdict), _) => {
                    records.extend(self.denied_by_gate(&id, &verdict, None).await?)
                }
                (_, Work::Refuse(error)) => {
                    records.push(self.error_result(&id, "call.invalid", &error.0).await?);
                }
                (Judged::Allowed(verdict), _)
                    if shown.as_ref().is_some_and(|shown| !confined_as_shown(shown, &verdict)) =>
                {
                    let text = context::CHANGED_SINCE_SHOWN;
                    records.push(self.error_result(&id, "approval.changed", text).await?);
                }
                (Judged::Allowed(verdict), _) => ready.push((call, prepared, verdict)),
                // The mode was narrowed between the two judgements.
                (Judged::Ask(verdict), _) => {
                    records.extend(self.ask(&call, &prepared, &verdict, None).await?);
                }
                (Judged::Classify(verdict), _) => match self.cleared.remove(&id) {
                    Some(cleared) if cleared == Cleared::of(&prepared, &verdict) => {
                        ready.push((call, prepared, allowed(verdict)));
                    }
                    _ => {
                        let text = context::CHANGED_SINCE_JUDGED;
                        records.push(self.error_result(&id, "auto.changed", text).await?);
                    }
                },
            }
        }
        if let [(_, Prepared { work: Work::Ask(_), .. }, _)] = &ready[..] {
            self.commit(records).await?;
            let Some((call, prepared, _)) = ready.pop() else { return Ok(()) };
            let Work::Ask(request) = prepared.work else { return Ok(()) };
            return self.carry_out(&call, request).await;
        }
        let effects = ready.iter().any(|(_, prepared, _)| !prepared.effects.iter().all(|e| e.is_read_only()));
        for (call, _, _) in &ready {
            records.push(CallStarted { call_id: call.id.clone(), effects }.into());
        }
        self.commit(records).await?;
        self.launch(ready, effects);
        Ok(())
    }

    fn launch(&mut self, ready: Vec<(Call, Prepared, Verdict)>, effects: bool) {
        let mut calls = FuturesOrdered::new();
        for (call, prepared, verdict) in ready {
            let Work::Run(work) = prepared.work else { continue };
            if effects {
                let tells = prepared.effects.iter().all(Effect::is_told);
                self.keeping.begun(call.id.clone(), tells);
            }
            let context = RunContext {
                cancel: self.turn_token.clone(),
                confinement: verdict.confinement.unwrap_or(Confinement::Off),
            };
            calls.push_back(contained(call.id, work(context)));
        }
        if !calls.is_empty() {
            self.flight.board(Flight::Run { calls, effects });
        }
    }

    pub(super) async fn ran(&mut self, call_id: &CallId, output: &Output) -> Result<(), SessionError> {
        let interrupted = self.turn_token.is_cancelled();
        let mut records: Vec<Record> = Vec::new();
        for change in &output.changes {
            // Named by their digests, which the record holds. What cannot be kept cannot be taken back, and no more.
            for content in [&change.contents.before, &change.contents.after].into_iter().flatten() {
                if let Err(error) = self.journal.blobs().put(content.clone()).await {
                    tracing::warn!(session = %self.state.id(), %error, "a replaced content was not kept");
                }
            }
            records.push(
                FileChanged {
                    call_id: call_id.clone(),
                    path: change.path.clone(),
                    before: change.before,
                    after: change.after,
                    added: change.added,
                    removed: change.removed,
                }
                .into(),
            );
        }
        let status = match (interrupted, output.is_error) {
            (true, true) => ToolStatus::Interrupted,
            (_, true) => ToolStatus::Error,
            (_, false) => ToolStatus::Ok,
        };
        let diff = match &output.diff {
            Some(diff) => Some(self.body(diff.clone()).await?),
            None => None,
        };
        records.push(
            CallFinished {
                call_id: call_id.clone(),
                status,
                reason: (status == ToolStatus::Interrupted).then(|| "turn.interrupted".into()),
                content: self.body(context::mark_untrusted(&output.content).into_owned()).await?,
                diff,
                reads: output.reads.clone(),
                ran: self.keeping.ran(call_id),
            }
            .into(),
        );
        self.commit(records).await
    }

    /// Running calls that did not end in time: dropping them ended their processes.
    pub(super) async fn abandon_running(&mut self) -> Result<(), SessionError> {
        let running: Vec<_> = self
            .state
            .turn
            .iter()
            .flat_map(|turn| turn.calls())
            .filter(|call| matches!(call.state, CallState::Running { .. }))
            .map(|call| call.id.clone())
            .collect();
        let mut records = Vec::new();
        for id in running {
            let text = context::call_interrupted(context::Interruption::Person).into();
            records.push(self.result(&id, ToolStatus::Interrupted, Some("turn.interrupted"), text).await?);
        }
        self.commit(records).await
    }

    // ---- after a change of mode or rules ----

    fn law(&self) -> Law {
        Law { mode: self.state.mode, grants: self.state.grants.len() + self.saved.rules.len() }
    }

    /// Whether a tool's approval waits that was not judged under the mode and the rules of now. So it is after a restart:
    /// the rules may have changed, or a crash came between a change of the mode and what follows from it.
    pub(super) fn law_may_answer(&self) -> bool {
        (self.rules_changed || self.judged_under != Some(self.law())) && self.waits_for_tool()
    }

    fn waits_for_tool(&self) -> bool {
        self.state.approvals.iter().any(|pending| matches!(pending.approval.subject, Subject::Tool { .. }))
    }

    /// Puts waiting tool approvals before the gate again.
    pub(super) async fn judge_waiting_again(&mut self) -> Result<(), SessionError> {
        let waiting: Vec<_> = self
            .state
            .approvals
            .iter()
            .filter(|pending| matches!(pending.approval.subject, Subject::Tool { .. }))
            .map(|pending| pending.call.clone())
            .collect();
        if waiting.is_empty() {
            self.rules_changed = false;
            return Ok(());
        }
        if !self.flight.is_free() {
            return Ok(());
        }
        self.prepare(waiting, Purpose::Rejudge).await
    }

    async fn rejudge(&mut self, calls: PreparedCalls) -> Result<(), SessionError> {
        let mut records = Vec::new();
        let changed = self.judged_under.is_some() || self.rules_changed;
        for (id, prepared) in calls {
            let Some(pending) = self.state.approvals.iter().find(|pending| pending.call == id).cloned()
            else {
                continue;
            };
            let Some(call) = self.state.call(&id).cloned() else { continue };
            let approval_id = &pending.approval.approval_id;
            let by = super::approval::by_daemon("the mode or a rule changed");
            let prepared = match prepared {
                Ok(prepared) => prepared,
                // After a restart nothing has changed but that something cannot be looked at now: it waits on.
                Err(_) if !changed => continue,
                Err(error) => {
                    records.push(super::approval::cancel(approval_id, by));
                    records.push(self.error_result(&id, "call.invalid", &error.0).await?);
                    continue;
                }
            };
            match self.judge(&call, &prepared, None) {
                Judged::Allowed(verdict) => {
                    records.push(super::approval::settled_by_mode(approval_id, by));
                    records.push(self.judged(&id, &verdict, None));
                }
                Judged::Denied(verdict) => {
                    records.push(super::approval::cancel(approval_id, by));
                    records.extend(self.denied_by_gate(&id, &verdict, None).await?);
                }
                // Still the person's to answer; a call that cannot be carried out any more says so when it is to run.
                Judged::Ask(_) | Judged::Classify(_) => {}
            }
        }
        self.commit(records).await?;
        self.judged_under = Some(self.law());
        self.rules_changed = false;
        Ok(())
    }
}

pub(super) fn kept_grant(saved: &SavedRule) -> Grant {
    Grant {
        rule: saved.rule.clone(),
        layer: Layer::Saved,
        unconfined: saved.unconfined,
        identity: saved.identity,
    }
}

/// The rules that choices would make, as they are shown.
pub(super) fn offered(offer: &Offer) -> Vec<RuleOffer> {
    [(ChoiceId::AllowForSession, &offer.session), (ChoiceId::AllowAlways, &offer.always)]
        .into_iter()
        .flat_map(|(choice, grants)| {
            grants.iter().map(move |grant| RuleOffer {
                choice,
                rule: grant.rule.clone(),
                server: grant.identity,
            })
        })
        .collect()
}

/// Whether a call would run in the confinement that the person saw: nobody approved a wider one.
fn confined_as_shown(approval: &Approval, verdict: &Verdict) -> bool {
    match &approval.subject {
        Subject::Tool { tool } => tool.confinement.as_deref() == verdict.confinement.map(confinement_word),
        Subject::Plan { .. } | Subject::Question { .. } | Subject::Trust { .. } => false,
    }
}

/// Whether a kind of call works in the session's folder. Without it a write would make the folder anew, below whatever
/// has taken its place.
fn needs_folder(kind: ToolKind) -> bool {
    matches!(kind, ToolKind::Read | ToolKind::Edit | ToolKind::Search | ToolKind::Execute)
}

/// Whether a call would do what the person saw, to the very same files.
fn still_as_shown(approval: &Approval, prepared: &Prepared) -> bool {
    match &approval.subject {
        Subject::Tool { tool } => {
            tool.effects == effect_lines(&prepared.effects) && tool.diff == prepared.diff
        }
        Subject::Plan { .. } | Subject::Question { .. } | Subject::Trust { .. } => false,
    }
}
