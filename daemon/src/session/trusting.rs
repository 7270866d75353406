//! The question whether a project is trusted, as one approval of a session. No turn waits for it: untrusted is a state that
//! work goes on in, with everything that a project may say against it. It belongs to no call and outlives turns.

use std::path::Path;
use std::sync::Arc;

use agentd_protocol::Digest;
use agentd_protocol::approval::{
    Approval, By, ChoiceId, RespondParams, RespondResult, Subject, TrustSubject,
};
use agentd_protocol::event::Resolution;
use agentd_protocol::session::Origin;
use agentd_protocol::trust::TrustItem;

use super::actor::Session;
use super::answers::{answer_digest, refused};
use super::approval::{Frame, by_daemon, cancel, check_answer};
use super::command::Caller;
use super::deps::Deps;
use super::error::SessionError;
use super::explain::unkept;
use super::policies::Standing;
use super::record::{ApprovalChanged, ApprovalResolved, Record, TrustAsked};
use crate::config::{NoticeCode, Project};
use crate::store::kept::Trusted;
use crate::workspace;

/// Bytes that are put before a person. What is longer is told by a notice, and trusted by `agentctl trust`.
const MAX_SHOWN: usize = 128 * 1024;

/// What there is to ask about a project now.
enum Question {
    /// Its file cannot be read, perhaps for a moment: what was asked stays as it is.
    Unclear,
    Nothing,
    /// A person has said already what becomes of exactly this.
    Answered(Digest),
    TooLong,
    Open(Box<TrustSubject>),
}

impl Session {
    /// A person works here: from now on they are asked.
    pub(super) async fn ask_for_trust(&mut self) {
        self.look_at_trust(true).await;
    }

    /// Takes up what has become of the question, or of what it is about.
    pub(super) async fn settle_trust(&mut self) {
        // What changes under a person's turn is asked at once; else with their next prompt.
        let persons = self.state.turn.as_ref().is_some_and(|turn| turn.origin == Origin::Client);
        self.look_at_trust(persons).await;
    }

    async fn look_at_trust(&mut self, may_ask: bool) {
        if let Err(error) = self.try_to_look_at_trust(may_ask).await {
            // The rules of now hold in any case, and the next look asks again.
            tracing::warn!(session = %self.state.id(), %error, "the question of trust was not written down");
        }
    }

    async fn try_to_look_at_trust(&mut self, may_ask: bool) -> Result<(), SessionError> {
        if self.state.read_only.is_some() || self.state.handed_over.is_some() {
            return Ok(());
        }
        let pending = self.state.trust.as_ref().map(|approval| (Arc::clone(approval), revision(approval)));
        match (&pending, self.policy.trust) {
            (Some((_, asked)), Some((now, Standing::Open))) if *asked == now => return Ok(()),
            (None, Some((_, Standing::Open))) if may_ask => {}
            (None, _) => return Ok(()),
            (Some(_), _) => {}
        }
        let (deps, cwd) = (Arc::clone(&self.deps), self.state.created.cwd.clone());
        let question = super::blocking(move || question(&deps, &cwd)).await;
        let frame = Frame { session: self.state.id(), mode: self.state.mode, now: self.deps.clock.now() };
        let record = match (pending, question) {
            (_, Question::Unclear)
            | (None, Question::Nothing | Question::Answered(_) | Question::TooLong) => {
                return Ok(());
            }
            (None, Question::Open(subject)) => {
                // The next start has to know that it is asked.
                self.mark().await?;
                TrustAsked { approval: Arc::new(frame.trust(None, *subject)) }.into()
            }
            (Some((_, asked)), Question::Open(subject)) if subject.revision == asked => return Ok(()),
            (Some((approval, _)), Question::Open(subject)) => {
                let id = Some(approval.approval_id.clone());
                ApprovalChanged { approval: Arc::new(frame.trust(id, *subject)) }.into()
            }
            (Some((approval, asked)), gone) => {
                let why = match gone {
                    Question::Answered(now) if now == asked => "answered elsewhere",
                    Question::Answered(_) => "it says again what was answered before",
                    Question::TooLong => "it is too long now; agentctl trust shows it",
                    _ => "it switches nothing on any more",
                };
                cancel(&approval.approval_id, by_daemon(why))
            }
        };
        self.commit(vec![record]).await
    }

    /// What ends the question, if there is one, because the session is put away.
    pub(super) fn withdraw_trust(&self, by: impl FnOnce() -> By) -> Vec<Record> {
        self.state
            .trust
            .iter()
            .map(|approval| &approval.approval_id)
            .zip(std::iter::once_with(by))
            .map(|(id, by)| cancel(id, by))
            .collect()
    }

    /// Whether it could be given away now; then the question stays here, since trust is between a person and this machine.
    pub(super) async fn ready_to_hand_over(&mut self) -> Result<(), SessionError> {
        self.may_be_handed_over()?;
        let records = self.withdraw_trust(|| by_daemon("the session is handed over"));
        self.commit(records).await
    }

    pub(super) async fn answer_trust(
        &mut self,
        answer: &RespondParams,
        caller: &Caller,
    ) -> Result<RespondResult, SessionError> {
        // Somebody may have saved the file a moment ago: what is trusted is what stands there now.
        self.look_at_settings().await;
        self.try_to_look_at_trust(false).await?;
        let Some(approval) = self.trust_asked(answer) else { return self.late_answer(answer, caller) };
        check_answer(&approval, answer, caller.actor).map_err(refused)?;
        let Subject::Trust { trust } = &approval.subject else {
            return Err(SessionError::NotFound("approval"));
        };
        // A folder above or below may have become the project since: it would be trusted in what was shown of another.
        if Path::new(&trust.root) != self.root {
            return Err(SessionError::Conflict(format!(
                "the project is {} now, not {}; look at it anew: agentctl trust",
                self.root.display(),
                trust.root
            )));
        }
        let (kept, root, revision) = (Arc::clone(&self.deps.kept), self.root.clone(), trust.revision);
        let trusted = (answer.choice == ChoiceId::Trust).then(|| Trusted {
            digest: revision,
            content: text(&trust.items),
            by: format!("{} {}", caller.by.principal, caller.by.client),
            at: self.deps.clock.now(),
        });
        // Kept before the answer is journaled: whoever is told that it counts is told the truth. A crash in between leaves a
        // question that has its answer, and the next start ends it.
        super::blocking(move || match &trusted {
            Some(trusted) => kept.trust(&root, trusted),
            None => kept.decline(&root, revision),
        })
        .await
        .map_err(unkept)?;
        let resolved = ApprovalResolved {
            approval_id: approval.approval_id.clone(),
            resolution: Resolution::Answered,
            choice: Some(answer.choice),
            by: caller.by.clone(),
            feedback: None,
            answer: Some(answer_digest(answer)),
        };
        self.commit(vec![resolved.into()]).await?;
        self.look_at_settings().await;
        if self.law_may_answer()
            && let Err(error) = self.judge_waiting_again().await
        {
            tracing::warn!(session = %self.state.id(), %error, "waiting approvals were not judged again");
        }
        Ok(RespondResult { status: "accepted".into(), mode_now: self.state.mode })
    }

    /// The pending question, if `answer` is about it.
    pub(super) fn trust_asked(&self, answer: &RespondParams) -> Option<Arc<Approval>> {
        self.state.trust.clone().filter(|approval| approval.approval_id == answer.approval_id)
    }
}

fn revision(approval: &Approval) -> Digest {
    match &approval.subject {
        Subject::Trust { trust } => trust.revision,
        // The fold puts no other kind here; one from a forged journal is about nothing that stands anywhere.
        _ => approval.digest,
    }
}

/// What stands in the project's settings now, and what a person has said to it. Blocks.
fn question(deps: &Deps, cwd: &Path) -> Question {
    let Some(project) = deps.policies.project_now(cwd) else { return Question::Nothing };
    let settings = &project.settings;
    let torn = |code| matches!(code, NoticeCode::UnreadableFile | NoticeCode::UnreadableRules);
    if settings.notices.iter().any(|notice| torn(notice.code)) {
        return Question::Unclear;
    }
    if settings.widening.is_empty() {
        return Question::Nothing;
    }
    if project.standing != Standing::Open {
        return Question::Answered(settings.digest);
    }
    let items = items(settings);
    let now = text(&items);
    let before = deps.kept.about(&project.root).ok().and_then(|about| about.trusted.clone());
    let diff = before.as_ref().map(|before| difference(&before.content, &now));
    if now.len() + diff.as_ref().map_or(0, String::len) > 2 * MAX_SHOWN || now.len() > MAX_SHOWN {
        return Question::TooLong;
    }
    Question::Open(Box::new(TrustSubject {
        root: project.root.display().to_string(),
        file: project.file.display().to_string(),
        items,
        revision: settings.digest,
        diff,
        trusted_by: before.map(|before| before.by),
    }))
}

/// All that a project would switch on, as clients see it.
#[must_use]
pub fn items(project: &Project) -> Vec<TrustItem> {
    let item = |item: &crate::config::Widening| TrustItem {
        key: item.key.clone(),
        content: item.content.clone(),
        place: Some(item.place.clone()),
    };
    project.widening.iter().map(item).collect()
}

/// The same, a line each: what is kept of what was trusted.
#[must_use]
pub fn text(items: &[TrustItem]) -> String {
    items.iter().map(|item| format!("{} = {}\n", item.key, item.content)).collect()
}

/// From what was trusted to what stands there now.
#[must_use]
pub fn difference(before: &str, now: &str) -> String {
    workspace::unified(workspace::PROJECT_SETTINGS, Some(before), Some(now))
        .text(workspace::DiffLimit::Person)
}
