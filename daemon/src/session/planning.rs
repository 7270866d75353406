//! The life of a plan: entering, writing, watching the file, leaving. The file is the person's and the agent's common
//! desk; the journal's snapshots are what counts.

use std::path::PathBuf;

use agentd_protocol::approval::{By, Subject};
use agentd_protocol::event::ToolStatus;
use agentd_protocol::plan::{PlanAuthor, PlanGetResult, PlanPhase};
use agentd_protocol::session::SetModeResult;
use agentd_protocol::{MessageId, Mode};

use super::actor::Session;
use super::blocking;
use super::command::Caller;
use super::commit::storage;
use super::error::SessionError;
use super::flight::Flight;
use super::record::{
    ApprovalChanged, ContextAdded, ModeChanged, PlanEntered, PlanRecovered, PlanSaved, PlanWritten, Record,
    Source,
};
use super::state::{Call, CallState, Plan};
use crate::context;
use crate::ids::words::random_noun;
use crate::ids::{Digest, digest_of};
use crate::plan::{self, PlanError, PlanFile};
use crate::tool::{PlanEdit, Request};

/// Bytes of a plan that can be put before a person: it travels whole inside one event.
pub(super) const MAX_PRESENTED: usize = 256 * 1024;

/// Looks at a file that somebody keeps saving before it is given up for now.
const LOOKS: usize = 5;

/// The plan file as it is at this moment.
pub(super) struct PlanNow {
    pub path: PathBuf,
    pub content: String,
    pub revision: Digest,
    /// What has to be journaled before this content may be relied on.
    pub records: Vec<Record>,
    /// Somebody else's text, which no record told of before.
    pub from_outside: bool,
    /// Why a save was just set aside.
    pub unread: Option<String>,
}

impl PlanNow {
    fn known(path: PathBuf, content: String, revision: Digest) -> Self {
        Self { path, content, revision, records: Vec::new(), from_outside: false, unread: None }
    }

    /// Why it cannot be put before a person, in words for the model.
    pub(super) fn unpresentable(&self) -> Option<String> {
        if self.content.trim().is_empty() {
            return Some(context::plan_is_empty(&self.path));
        }
        (self.content.len() > MAX_PRESENTED)
            .then(|| context::plan_too_long(self.content.len(), MAX_PRESENTED))
    }
}

impl Session {
    /// The one file that may be written in plan mode: that of the newest cycle. What was approved is the journaled
    /// snapshot, so writing it later changes no approval.
    pub(super) fn own_plan_file(&self) -> Option<PathBuf> {
        self.state.plan.as_ref().map(|plan| plan.path.clone())
    }

    fn is_planning(&self) -> bool {
        let phase = self.state.plan.as_ref().map(|plan| plan.phase);
        matches!(phase, Some(PlanPhase::Planning | PlanPhase::Presented))
    }

    /// The plan that counts: while planning what stands in the file, afterwards the newest snapshot, whatever happens to
    /// the file.
    pub(super) async fn plan_now(&mut self) -> Result<PlanNow, SessionError> {
        let Some(plan) = self.state.plan.clone() else { return Err(SessionError::NotFound("plan")) };
        // Of a session that was handed over the file is nobody's any more.
        if self.is_planning() && self.state.handed_over.is_none() {
            return self.plan_on_desk().await;
        }
        let (content, revision) = match plan.revision {
            Some(revision) => (self.blob_text(revision).await?, revision),
            None => (String::new(), digest_of(b"")),
        };
        Ok(PlanNow::known(plan.path, content, revision))
    }

    /// Reads and hashes the file. A change that nobody journaled becomes a revision from outside; a file that is gone
    /// is written back from the last snapshot. The records are the caller's to commit.
    async fn plan_on_desk(&mut self) -> Result<PlanNow, SessionError> {
        for _ in 0..LOOKS {
            if let Some(now) = self.look_at_plan().await? {
                return Ok(now);
            }
        }
        Err(storage("the plan file keeps changing while it is read; try again".into()))
    }

    /// Absent: it changed while it was read or written back, and has to be looked at again.
    async fn look_at_plan(&mut self) -> Result<Option<PlanNow>, SessionError> {
        let Some(plan) = self.state.plan.clone() else { return Err(SessionError::NotFound("plan")) };
        let file = plan.path.clone();
        let found = blocking(move || plan::read(&file)).await.map_err(plan_error)?;
        match found {
            PlanFile::Plan { content, revision, modified } => {
                // A new plan's file is empty until something is written: that is no revision.
                if plan.revision == Some(revision) || (plan.revision.is_none() && content.is_empty()) {
                    if plan.replaced.is_some() {
                        self.commit(vec![PlanSaved { revision }.into()]).await?;
                    }
                    return Ok(Some(PlanNow::known(plan.path, content, revision)));
                }
                // What it held before it was written, and nobody has touched it since: the writing is still to come.
                if plan.replaced == Some(revision) && modified <= plan.written_at {
                    let why = "the plan file had not been written yet";
                    return self.recover_plan(&plan, Some(revision), why, None).await;
                }
                let before = match plan.revision {
                    Some(known) => self.blob_text(known).await?,
                    None => String::new(),
                };
                if self.put_blob(content.clone().into_bytes()).await? != revision {
                    return Ok(None);
                }
                let diff = self.body(diff(before, content.clone()).await.unwrap_or_default()).await?;
                let record = PlanWritten { revision, by: PlanAuthor::Outside, diff }.into();
                let known = PlanNow::known(plan.path, content, revision);
                Ok(Some(PlanNow { records: vec![record], from_outside: true, ..known }))
            }
            PlanFile::Missing => self.recover_plan(&plan, None, "the plan file was gone", None).await,
            PlanFile::Unusable(why) => {
                let why = why.to_string();
                self.recover_plan(&plan, None, &why, Some(why.clone())).await
            }
        }
    }

    /// Writes the newest snapshot over what was found, `over`. Absent: something else stands there by now.
    async fn recover_plan(
        &mut self,
        plan: &Plan,
        over: Option<Digest>,
        why: &str,
        unread: Option<String>,
    ) -> Result<Option<PlanNow>, SessionError> {
        let content = match plan.revision {
            Some(revision) => self.blob_text(revision).await?,
            None => String::new(),
        };
        let aside = match self.write_plan_file(plan.path.clone(), content.clone(), over).await {
            Ok(aside) => aside,
            Err(PlanError::Changed { .. }) => return Ok(None),
            Err(error) => return Err(plan_error(error)),
        };
        // Where it lies now tells one such save from the next.
        let unread = unread.map(|why| match aside {
            Some(aside) => format!("{why}. It was moved to {}", aside.display()),
            None => why,
        });
        self.say("planRecovered", &format!("{why}; the plan was written back from the journal"));
        let revision = match plan.revision {
            // Nothing was written before that somebody's save, which has to be remembered all the same.
            None if unread.is_some() => Some(self.put_blob(Vec::new()).await?),
            known => known,
        };
        let digest = digest_of(content.as_bytes());
        let mut now =
            PlanNow { unread: unread.clone(), ..PlanNow::known(plan.path.clone(), content, digest) };
        if let Some(revision) = revision {
            now.records.push(PlanRecovered { from: "snapshot".into(), revision, unread }.into());
        }
        Ok(Some(now))
    }

    async fn write_plan_file(
        &self,
        file: PathBuf,
        content: String,
        over: Option<Digest>,
    ) -> Result<Option<PathBuf>, PlanError> {
        let written = blocking(move || plan::write(&file, &content, over)).await?;
        if let Some(aside) = &written.set_aside {
            let text =
                format!("what stood in the plan's place was no ordinary file; it is now {}", aside.display());
            self.say("planAside", &text);
        }
        Ok(written.set_aside)
    }

    /// Writes the newest revision, `content`, after it was journaled: snapshot blob, commit, file. A failure changes
    /// nothing that was decided: the snapshot counts, and the file is written again when it is next looked at. A save that
    /// came in between stands, and is then taken up as a revision from outside.
    pub(super) async fn save_plan_file(&mut self, content: String) {
        let Some(plan) = self.state.plan.clone() else { return };
        let (Some(over), Some(revision)) = (plan.replaced, plan.revision) else { return };
        match self.write_plan_file(plan.path, content, Some(over)).await {
            Ok(_) => {
                // Not journaled, it is found out when the file is next looked at.
                let _ = self.commit(vec![PlanSaved { revision }.into()]).await;
            }
            Err(PlanError::Changed { path }) => {
                let text = format!(
                    "{} was saved by somebody in the same moment: their text stands there, and what it took the place of \
                     is kept in the journal",
                    path.display()
                );
                self.say("planFile", &text);
                // Taken up at once: from here on another save, whatever it says, is another save.
                self.take_up_plan_file().await;
            }
            Err(error) => {
                let error = format!("{:#}", anyhow::Error::new(error));
                self.say("planFile", &format!("the plan's file was not written, its text is kept: {error}"));
            }
        }
    }

    /// After a crash between the journal and the file: looks which of the two came last, before anyone else can save.
    pub(super) async fn settle_plan_file(&mut self) {
        if self.state.plan.as_ref().is_none_or(|plan| plan.replaced.is_none()) {
            return;
        }
        self.take_up_plan_file().await;
    }

    /// Journals what stands in the file if nobody has yet.
    async fn take_up_plan_file(&mut self) {
        let settled = match self.is_planning() {
            true => self.refresh_plan().await.map(|_| ()),
            false => match self.plan_on_desk().await {
                Ok(now) => self.commit(now.records).await,
                Err(error) => Err(error),
            },
        };
        if let Err(error) = settled {
            tracing::warn!(session = %self.state.id(), %error, "the plan file was not looked at");
        }
    }

    // ---- modes ----

    pub(super) async fn set_mode(
        &mut self,
        mode: Mode,
        caller: &Caller,
    ) -> Result<SetModeResult, SessionError> {
        let records = self.mode_records(mode, caller).await?;
        if !records.is_empty() {
            self.commit(records).await?;
            self.after_mode_change().await;
        }
        Ok(SetModeResult { mode: self.state.mode })
    }

    /// The change itself is journaled, so whoever asked for it is told so; if an approval cannot be judged again, the gate
    /// is still asked when it is answered.
    pub(super) async fn after_mode_change(&mut self) {
        // What was started before could still write, and nobody asked for that in plan mode.
        if self.state.mode == Mode::Plan
            && matches!(self.flight.get(), Some(Flight::Run { effects: true, .. }))
        {
            self.stop_running();
        }
        self.drop_opinions();
        if let Err(error) = self.judge_waiting_again().await {
            tracing::warn!(session = %self.state.id(), %error, "waiting approvals were not judged again");
        }
    }

    /// What a change to `mode` by someone outside has to journal. Nothing if it is the mode already.
    pub(super) async fn mode_records(
        &mut self,
        mode: Mode,
        caller: &Caller,
    ) -> Result<Vec<Record>, SessionError> {
        if mode == self.state.mode {
            return Ok(Vec::new());
        }
        self.mode_available(mode)?;
        if caller.actor == agentd_protocol::initialize::Actor::Program && mode != Mode::Plan {
            return Err(SessionError::Refused(
                "only a person may leave or widen a mode; a program may enter plan".into(),
            ));
        }
        if mode == Mode::Plan {
            return self.enter_plan_records(&caller.by, None).await;
        }
        let mut records = self.leave_plan_records(&caller.by).await?;
        records.push(self.mode_changed(mode, caller.by.clone()));
        let text = match self.state.mode {
            Mode::Plan => context::plan_left(mode),
            _ => context::mode_changed(mode),
        };
        records.push(self.guidance(text).await?);
        Ok(records)
    }

    /// What one daemon was started with does not bind the next: a session does not keep a mode that nobody enabled now.
    pub(super) async fn leave_unavailable_mode(&mut self) -> Result<(), SessionError> {
        let mode = self.mode_now();
        if mode == self.state.mode {
            return Ok(());
        }
        let by = super::approval::by_daemon("mode not available");
        let records =
            vec![self.mode_changed(mode, by), self.guidance(context::mode_unavailable(mode)).await?];
        self.commit(records).await
    }

    pub(super) fn mode_changed(&self, to: Mode, by: By) -> Record {
        ModeChanged { from: self.state.mode, to, by }.into()
    }

    pub(super) async fn guidance(&self, text: String) -> Result<Record, SessionError> {
        Ok(ContextAdded {
            message_id: MessageId::generate(self.state.id()),
            source: Source::Guidance,
            origin: None,
            text: self.body(text).await?,
        }
        .into())
    }

    /// A person leaves plan mode without an approval: what was presented is withdrawn, with its reason.
    async fn leave_plan_records(&self, by: &By) -> Result<Vec<Record>, SessionError> {
        let mut records = Vec::new();
        if self.state.mode != Mode::Plan {
            return Ok(records);
        }
        for pending in &self.state.approvals {
            if let Subject::Plan { .. } = pending.approval.subject {
                records.push(super::approval::cancel(&pending.approval.approval_id, by.clone()));
                let text = context::LEFT_WITHOUT_APPROVAL.into();
                records.push(self.result(&pending.call, ToolStatus::NotRun, Some("plan.left"), text).await?);
            }
        }
        Ok(records)
    }

    /// Every way into plan mode is these records, with the same guidance. `call`: entered by the agent's own call,
    /// whose result carries the guidance.
    pub(super) async fn enter_plan_records(
        &mut self,
        by: &By,
        call: Option<&Call>,
    ) -> Result<Vec<Record>, SessionError> {
        let (slug, path) = self.new_plan_file().await?;
        let cycle = self.state.plan.as_ref().map_or(0, |plan| plan.cycle) + 1;
        let text = plan_guidance(self.policy.commands_in_plan(), &path);
        let running = self.still_running(call);
        let mut records = vec![
            self.mode_changed(Mode::Plan, by.clone()),
            PlanEntered { pre_mode: self.state.mode, slug, path, cycle, running }.into(),
        ];
        match call {
            Some(call) => records.push(self.result(&call.id, ToolStatus::Ok, None, text).await?),
            None => records.push(self.guidance(context::note(&text)).await?),
        }
        Ok(records)
    }

    /// Calls that were started before plan mode and may still change something. They are stopped.
    fn still_running(&self, entering: Option<&Call>) -> Vec<String> {
        let calls = self.state.turn.iter().flat_map(|turn| turn.calls());
        calls
            .filter(|call| matches!(call.state, CallState::Running { effects: true }))
            .filter(|call| entering.is_none_or(|entering| entering.id != call.id))
            .map(|call| call.title.clone())
            .collect()
    }

    /// Names the plan by the newest prompt's words, else the handle's, and makes its empty file.
    async fn new_plan_file(&self) -> Result<(String, PathBuf), SessionError> {
        let words = match (&self.naming, self.state.inbox.back()) {
            (Some(prompt), _) => Some(prompt.clone()),
            (None, Some(entry)) => Some(entry.preview.clone()),
            (None, None) => self.newest_prompt().await,
        };
        let handle = self.state.created.handle.clone();
        let folder = self.deps.paths.plans_dir();
        let id = self.state.id();
        let created = blocking(move || {
            let stem = plan::stem_from(words.as_deref(), &handle);
            plan::create(&folder, &stem, id, &mut random_noun)
        });
        let plan::Created { slug, path } = created.await.map_err(plan_error)?;
        Ok((slug, path))
    }

    async fn newest_prompt(&self) -> Option<String> {
        let item = self
            .state
            .context
            .iter()
            .rev()
            .find(|item| item.kind == super::state::ContextKind::Said(Source::Prompt))?;
        match self.record_at(item.place).await.ok()? {
            Record::ContextAdded(added) => match added.text {
                super::record::Body::Inline(text) => Some(text),
                super::record::Body::Blob { head, .. } => Some(head),
            },
            _ => None,
        }
    }

    // ---- what tools ask of the session ----

    pub(super) async fn carry_out(&mut self, call: &Call, request: Request) -> Result<(), SessionError> {
        match request {
            Request::EnterPlan => {
                if self.state.mode == Mode::Plan {
                    let text = context::already_planning(
                        self.state
                            .plan
                            .as_ref()
                            .map(|plan| plan.path.as_path())
                            .unwrap_or_else(|| "".as_ref()),
                    );
                    let result = self.result(&call.id, ToolStatus::Ok, None, text).await?;
                    return self.commit(vec![result]).await;
                }
                let by = super::approval::by_daemon("enter_plan_mode");
                let mut records = self.enter_plan_records(&by, Some(call)).await?;
                records.extend(self.later_calls_not_run(call, Mode::Plan).await?);
                self.commit(records).await?;
                self.after_mode_change().await;
                Ok(())
            }
            Request::WritePlan(edit) => self.edit_plan(call, edit).await,
            // These are approvals: the gate asks about them in every mode, so they never come here allowed.
            Request::LeavePlan | Request::AskPerson(_) => {
                let result = self.error_result(&call.id, "internal", context::NOT_WITHOUT_A_PERSON).await?;
                self.commit(vec![result]).await
            }
        }
    }

    async fn edit_plan(&mut self, call: &Call, edit: PlanEdit) -> Result<(), SessionError> {
        // In every mode what stands in the file, which somebody may have saved since: an edit must not drop that.
        let now = self.plan_on_desk().await?;
        let edited = match edit.apply(&now.content) {
            Ok(edited) => edited,
            Err(text) => {
                let mut records = now.records;
                records.push(self.error_result(&call.id, "call.failed", &text).await?);
                return self.commit(records).await;
            }
        };
        let outside = now.from_outside;
        let diff = diff(now.content, edited.clone()).await.unwrap_or_default();
        let revision = self.put_blob(edited.clone().into_bytes()).await?;
        let mut records = now.records;
        if revision != now.revision {
            records.push(
                PlanWritten { revision, by: PlanAuthor::Own, diff: self.body(diff.clone()).await? }.into(),
            );
        }
        let text = context::plan_written(&now.path, revision, &diff, outside);
        records.push(self.result(&call.id, ToolStatus::Ok, None, text).await?);
        self.commit(records).await?;
        self.save_plan_file(edited).await;
        Ok(())
    }

    /// A call that changes the mode ends its message.
    pub(super) async fn later_calls_not_run(
        &self,
        call: &Call,
        mode: Mode,
    ) -> Result<Vec<Record>, SessionError> {
        let mut records = Vec::new();
        let later: Vec<_> = self
            .state
            .turn
            .iter()
            .flat_map(|turn| turn.calls())
            .skip_while(|other| other.id != call.id)
            .skip(1)
            .map(|other| other.id.clone())
            .collect();
        for id in later {
            let why = context::NotRun::ModeChanged(mode);
            records
                .push(self.result(&id, ToolStatus::NotRun, Some(why.code()), context::not_run(why)).await?);
        }
        Ok(records)
    }

    pub(super) async fn plan_get(&mut self) -> Result<PlanGetResult, SessionError> {
        let content = self.refresh_plan().await?;
        let Some(plan) = super::project::plan_view(&self.state) else {
            return Err(SessionError::NotFound("plan"));
        };
        Ok(PlanGetResult { plan, content })
    }

    /// Takes up a change of the plan file from outside, moving a pending approval to the new revision.
    pub(super) async fn refresh_plan(&mut self) -> Result<String, SessionError> {
        let now = self.plan_now().await?;
        let content = now.content.clone();
        if now.records.is_empty() {
            return Ok(content);
        }
        let pending = self
            .state
            .approvals
            .iter()
            .find(|pending| matches!(pending.approval.subject, Subject::Plan { .. }))
            .map(|pending| std::sync::Arc::clone(&pending.approval));
        let Some(pending) = pending else {
            self.commit(now.records).await?;
            return Ok(content);
        };
        if now.unpresentable().is_some() {
            // Nothing that could be approved: the revision is kept, and executing answers are a conflict until it is
            // mended.
            let records = now.records.into_iter().chain(blocked(&pending, true)).collect();
            self.commit(records).await?;
            return Ok(content);
        }
        if now.unread.is_none()
            && matches!(&pending.subject, Subject::Plan { plan } if plan.revision == now.revision)
        {
            // Written back as it was: what is shown stays as it is, with its digest and its place in the queue.
            let records = now.records.into_iter().chain(blocked(&pending, false)).collect();
            self.commit(records).await?;
            return Ok(content);
        }
        let approval = self.plan_approval(&now, Some(&pending)).await?;
        let mut records = now.records;
        records.push(ApprovalChanged { approval: std::sync::Arc::new(approval) }.into());
        self.commit(records).await?;
        Ok(content)
    }
}

/// The pending approval of a plan, told that its file can or cannot be approved; nothing if it is told already. Its
/// digest stays: whoever keeps planning, or sends a plan of their own, need not see it anew.
fn blocked(pending: &agentd_protocol::approval::Approval, now: bool) -> Option<Record> {
    let mut approval = pending.clone();
    match &mut approval.subject {
        Subject::Plan { plan } if plan.blocked != now => plan.blocked = now,
        _ => return None,
    }
    Some(ApprovalChanged { approval: std::sync::Arc::new(approval) }.into())
}

/// What changed between two revisions. Absent when nothing did.
pub(super) async fn diff(before: String, after: String) -> Option<String> {
    super::offload(before.len() + after.len(), move || plan::diff(&before, &after)).await
}

fn plan_error(error: PlanError) -> SessionError {
    storage(format!("{:#}", anyhow::Error::new(error)))
}

/// The text of every way into plan mode.
#[must_use]
pub(super) fn plan_guidance(commands: context::PlanCommands, path: &std::path::Path) -> String {
    context::plan_guidance(&context::PlanGuidance { path, commands, running: &[] })
}
