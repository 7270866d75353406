//! Approvals: how each kind is made, what an answer must satisfy. The decision is a person's; the record is here; the
//! gate in `permission` is asked again afterwards.

use std::path::Path;
use std::sync::Arc;

use agentd_protocol::approval::{
    Approval, ApprovalKind, By, Choice, ChoiceId, PlanSubject, Question, QuestionSubject, RespondParams,
    Subject, ToolSubject, TrustSubject,
};
use agentd_protocol::event::Resolution;
use agentd_protocol::initialize::Actor;
use agentd_protocol::mode::Mode;
use agentd_protocol::permission::Confinement;
use agentd_protocol::time::Timestamp;

use super::planning::MAX_PRESENTED;
use super::record::{ApprovalResolved, Record};
use super::state::SessionState;
use crate::ids::{ApprovalId, CallId, Digest, SessionId, digest_of};
use crate::permission::effect::Effect;

/// What every approval has, whatever it asks.
pub struct Frame {
    pub session: SessionId,
    pub mode: Mode,
    pub now: Timestamp,
}

/// The modes that the choices of a plan approval lead to.
#[derive(Clone, Copy, Debug)]
pub struct PlanModes {
    /// The mode from before planning, as far as it is still available.
    pub manual: Mode,
}

impl Frame {
    fn approval(
        &self,
        id: Option<ApprovalId>,
        subject: Subject,
        title: String,
        choices: Vec<Choice>,
    ) -> Approval {
        let digest = digest_of_shown(&subject, &title, &choices);
        Approval {
            approval_id: id.unwrap_or_else(|| ApprovalId::generate(self.session)),
            subject,
            title,
            choices,
            digest,
            expires_at: None,
            requested_at: self.now,
        }
    }

    #[must_use]
    pub fn tool(&self, subject: ToolSubject, title: String) -> Approval {
        let mut choices = vec![choice(ChoiceId::AllowOnce, "Allow this once", self.mode)];
        for (id, until) in [
            (ChoiceId::AllowForSession, "Allow until this session ends"),
            (
                ChoiceId::AllowAlways,
                "Allow in this project from now on (kept with agentd, not in the project)",
            ),
        ] {
            let rules: Vec<_> = subject.rules.iter().filter(|offer| offer.choice == id).collect();
            if !rules.is_empty() {
                let rules = rules.iter().map(|offer| offer.rule.as_str()).collect::<Vec<_>>().join(" and ");
                choices.push(choice(id, &format!("{until}: {rules}"), self.mode));
            }
        }
        choices.push(choice(ChoiceId::Deny, "Deny; say what to do instead, or end the turn", self.mode));
        self.approval(None, Subject::Tool { tool: subject }, title, choices)
    }

    /// `id` keeps its value when the plan changes under a pending approval.
    #[must_use]
    pub fn plan(&self, id: Option<ApprovalId>, subject: PlanSubject, modes: PlanModes) -> Approval {
        let title = plan_title(&subject.content);
        let choices = vec![
            choice(
                ChoiceId::ClearAndExecute,
                "Start fresh with only the plan, edits without asking",
                Mode::AcceptEdits,
            ),
            choice(ChoiceId::Execute, "Start, edits without asking", Mode::AcceptEdits),
            choice(ChoiceId::ManualExecute, "Start in the mode from before planning", modes.manual),
            choice(ChoiceId::KeepPlanning, "Keep planning, with feedback", Mode::Plan),
        ];
        self.approval(id, Subject::Plan { plan: subject }, title, choices)
    }

    /// `id` keeps its value when the settings change under a pending approval.
    #[must_use]
    pub fn trust(&self, id: Option<ApprovalId>, subject: TrustSubject) -> Approval {
        let count = subject.items.len();
        let things = if count == 1 { "1 thing".to_owned() } else { format!("{count} things") };
        let title = cut(&format!("{} would switch on {things}", subject.root));
        let choices = vec![
            choice(ChoiceId::Trust, "Trust exactly this, in every session of this project", self.mode),
            choice(ChoiceId::Untrusted, "Do not; you are asked again when it changes", self.mode),
        ];
        self.approval(id, Subject::Trust { trust: subject }, title, choices)
    }

    #[must_use]
    pub fn question(&self, call_id: CallId, questions: Vec<Question>) -> Approval {
        let title = questions.first().map_or_else(|| "A question".to_owned(), |q| cut(&q.question));
        let choices = vec![
            choice(ChoiceId::Answer, "Answer", self.mode),
            choice(ChoiceId::Decline, "Do not answer", self.mode),
        ];
        self.approval(
            None,
            Subject::Question { question: QuestionSubject { call_id, questions } },
            title,
            choices,
        )
    }
}

fn choice(id: ChoiceId, label: &str, mode_after: Mode) -> Choice {
    Choice { id, label: label.into(), mode_after }
}

/// Bytes of each thing that an answer may say: they travel whole inside events.
const MAX_SAID: usize = 64 * 1024;

/// Binds an answer to all that was shown: tool, input, folder, effects, confinement, or the plan's very bytes.
fn digest_of_shown(subject: &Subject, title: &str, choices: &[Choice]) -> Digest {
    // Serialising plain data with string keys cannot fail; an empty text would still only make answers stale.
    let shown = serde_json::to_vec(&(subject, title, choices)).unwrap_or_default();
    digest_of(&shown)
}

fn plan_title(content: &str) -> String {
    let line = content.lines().map(|line| line.trim_start_matches('#').trim()).find(|line| !line.is_empty());
    cut(line.unwrap_or("Plan"))
}

fn cut(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= 120 {
        line.to_owned()
    } else {
        line.chars().take(119).chain(['…']).collect()
    }
}

/// The lines that tell a person what a call would do. They are compared when the approved call runs, so a path that
/// came to mean another file is noticed.
#[must_use]
pub fn effect_lines(effects: &[Effect]) -> Vec<String> {
    effects
        .iter()
        .filter(|effect| effect.is_shown())
        .map(|effect| match effect {
            Effect::ReadPath(path) => format!("read {}", shown(&path.real)),
            Effect::WritePath(path) => format!("write {}", shown(&path.real)),
            Effect::RunCommand(command) => format!("run in {}", shown(&command.cwd)),
            Effect::AskPerson => "ask a question".into(),
            Effect::FetchHost(_)
            | Effect::CallMcp(_)
            | Effect::SpawnAgent(_)
            | Effect::UseSkill(_)
            | Effect::Automate(_)
            | Effect::Sleep
            | Effect::EnterPlan
            | Effect::LeavePlan => effect.to_string(),
        })
        .collect()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The wire word for a confinement.
#[must_use]
pub fn confinement_word(confinement: Confinement) -> &'static str {
    match confinement {
        Confinement::Plan => "plan",
        Confinement::Workspace => "workspace",
        Confinement::Off => "off",
    }
}

/// Why an answer is not taken.
#[derive(Debug)]
pub enum AnswerError {
    /// Not one of this approval's choices, or fields that do not go with it.
    Invalid { field: &'static str, message: String },
    /// A program answered what only a person may.
    PersonOnly,
    /// Another digest or revision than the pending one.
    Stale(Arc<Approval>),
}

/// Everything about an answer that can be checked against the record alone.
///
/// # Errors
/// See [`AnswerError`].
pub fn check_answer(
    approval: &Arc<Approval>,
    answer: &RespondParams,
    actor: Actor,
) -> Result<(), AnswerError> {
    let kind = approval.subject.kind();
    if actor == Actor::Program {
        return Err(AnswerError::PersonOnly);
    }
    let invalid = |field: &'static str, message: String| Err(AnswerError::Invalid { field, message });
    if !approval.choices.iter().any(|choice| choice.id == answer.choice) {
        let offered: Vec<_> = approval.choices.iter().map(|choice| choice.id.name()).collect();
        return invalid("choice", format!("this approval offers {}", offered.join(", ")));
    }
    if kind != ApprovalKind::Plan
        && (answer.mode.is_some() || answer.edited_plan.is_some() || !answer.comments.is_empty())
    {
        return invalid("mode", "mode, editedPlan and comments go with a plan only".into());
    }
    if let Some(mode) = answer.mode
        && (answer.choice == ChoiceId::KeepPlanning || mode == Mode::Plan)
    {
        return invalid(
            "mode",
            "an executing choice takes any mode but plan; keepPlanning takes none".into(),
        );
    }
    if let Some(plan) = &answer.edited_plan
        && plan.trim().is_empty()
    {
        return invalid("editedPlan", "an empty plan cannot be carried out".into());
    }
    if let Some(plan) = &answer.edited_plan
        && plan.len() > MAX_PRESENTED
    {
        return invalid(
            "editedPlan",
            format!("a plan that is approved has at most {} KiB", MAX_PRESENTED / 1024),
        );
    }
    let said = [
        ("feedback", answer.feedback.as_ref().map_or(0, String::len)),
        ("comments", answer.comments.iter().map(|note| note.text.len() + note.quote.len() + 64).sum()),
        ("answers", answer.answers.iter().map(|text| text.len() + 16).sum()),
    ];
    if let Some((field, _)) = said.into_iter().find(|(_, bytes)| *bytes > MAX_SAID) {
        return invalid(field, format!("at most {} KiB are taken", MAX_SAID / 1024));
    }
    match &approval.subject {
        Subject::Plan { plan } => {
            let Some(revision) = answer.revision else {
                return invalid("revision", "an answer to a plan names the revision that was shown".into());
            };
            if revision != plan.revision || answer.digest != approval.digest {
                return Err(AnswerError::Stale(Arc::clone(approval)));
            }
        }
        Subject::Question { question } => {
            if answer.digest != approval.digest {
                return Err(AnswerError::Stale(Arc::clone(approval)));
            }
            let free_text = answer.feedback.as_ref().is_some_and(|text| !text.trim().is_empty());
            if answer.choice == ChoiceId::Answer
                && answer.answers.len() != question.questions.len()
                && !free_text
            {
                let wanted = question.questions.len();
                return invalid("answers", format!("there are {wanted} questions; give one answer each"));
            }
        }
        Subject::Tool { .. } | Subject::Trust { .. } => {
            if answer.digest != approval.digest {
                return Err(AnswerError::Stale(Arc::clone(approval)));
            }
        }
    }
    Ok(())
}

/// The daemon itself, as the one who did something.
#[must_use]
pub fn by_daemon(why: &str) -> By {
    By { principal: "agentd".into(), client: why.into(), pid: None }
}

/// Records that take every pending approval off the list.
#[must_use]
pub fn cancel_all(state: &SessionState, why: &str) -> Vec<Record> {
    state.approvals.iter().map(|pending| cancel(&pending.approval.approval_id, by_daemon(why))).collect()
}

#[must_use]
pub fn cancel(approval_id: &ApprovalId, by: By) -> Record {
    Record::from(ApprovalResolved {
        approval_id: approval_id.clone(),
        resolution: Resolution::Cancelled,
        choice: None,
        by,
        feedback: None,
        answer: None,
    })
}

/// A mode change has made the answer unnecessary: the call may run.
#[must_use]
pub fn settled_by_mode(approval_id: &ApprovalId, by: By) -> Record {
    Record::from(ApprovalResolved {
        approval_id: approval_id.clone(),
        resolution: Resolution::SettledByMode,
        choice: None,
        by,
        feedback: None,
        answer: None,
    })
}

/// Answers as the model reads them.
#[must_use]
pub fn answers_text(questions: &[Question], answers: &[String], free: Option<&str>) -> String {
    let mut text = String::from("The person answered:\n");
    for (question, answer) in questions.iter().zip(answers) {
        text.push_str(&format!("\nQ: {}\nA: {answer}\n", question.question));
    }
    if let Some(free) = free.filter(|free| !free.trim().is_empty()) {
        text.push_str(&format!("\n{free}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use agentd_protocol::approval::RuleOffer;

    use super::*;

    fn frame() -> Frame {
        Frame { session: SessionId::generate(), mode: Mode::Plan, now: Timestamp::from_unix_ms(0) }
    }

    fn plan(content: &str) -> PlanSubject {
        PlanSubject {
            path: "/p.md".into(),
            revision: digest_of(content.as_bytes()),
            content: content.into(),
            diff: None,
            cycle: 1,
            note: None,
            blocked: false,
        }
    }

    #[test]
    fn a_plan_approval_offers_four_choices_and_says_which_mode_follows() {
        let approval = frame().plan(None, plan("# Do it\n"), PlanModes { manual: Mode::Default });
        let choices: Vec<_> = approval.choices.iter().map(|c| (c.id, c.mode_after)).collect();
        assert_eq!(
            choices,
            [
                (ChoiceId::ClearAndExecute, Mode::AcceptEdits),
                (ChoiceId::Execute, Mode::AcceptEdits),
                (ChoiceId::ManualExecute, Mode::Default),
                (ChoiceId::KeepPlanning, Mode::Plan),
            ]
        );
        assert_eq!(approval.title, "Do it");
    }

    #[test]
    fn an_answer_is_bound_to_what_was_shown() {
        let modes = PlanModes { manual: Mode::Default };
        let shown = Arc::new(frame().plan(None, plan("one"), modes));
        let changed = frame().plan(Some(shown.approval_id.clone()), plan("two"), modes);
        let mut late = RespondParams::to(&shown, ChoiceId::Execute);
        assert!(check_answer(&shown, &late, Actor::Person).is_ok());
        let now = Arc::new(changed);
        assert!(matches!(check_answer(&now, &late, Actor::Person), Err(AnswerError::Stale(_))));
        late.revision = None;
        assert!(matches!(
            check_answer(&shown, &late, Actor::Person),
            Err(AnswerError::Invalid { field: "revision", .. })
        ));
    }

    #[test]
    fn programs_and_foreign_choices_are_refused() {
        let shown = Arc::new(frame().plan(None, plan("one"), PlanModes { manual: Mode::Default }));
        let good = RespondParams::to(&shown, ChoiceId::Execute);
        assert!(matches!(check_answer(&shown, &good, Actor::Program), Err(AnswerError::PersonOnly)));
        let foreign = RespondParams::to(&shown, ChoiceId::AllowOnce);
        assert!(matches!(
            check_answer(&shown, &foreign, Actor::Person),
            Err(AnswerError::Invalid { field: "choice", .. })
        ));
        let mut plan_again = good;
        plan_again.mode = Some(Mode::Plan);
        assert!(matches!(
            check_answer(&shown, &plan_again, Actor::Person),
            Err(AnswerError::Invalid { field: "mode", .. })
        ));
    }

    #[test]
    fn the_digest_binds_everything_that_is_shown() {
        let call = CallId::generate(SessionId::generate());
        let subject = || ToolSubject {
            call_id: call.clone(),
            tool: "run_shell".into(),
            input: serde_json::json!({ "command": "ls" }),
            cwd: "/w".into(),
            effects: vec!["run in /w".into()],
            confinement: Some("workspace".into()),
            reason: "table.ask".into(),
            note: None,
            diff: Some("+a".into()),
            rules: vec![],
        };
        let digest = |change: &dyn Fn(&mut ToolSubject)| {
            let mut changed = subject();
            change(&mut changed);
            frame().tool(changed, "run ls".into()).digest
        };
        let shown = digest(&|_| {});
        assert_eq!(shown, digest(&|_| {}), "the same is the same again");
        let rule = || RuleOffer { choice: ChoiceId::AllowForSession, rule: "Bash(ls)".into(), server: None };
        let changes: [&dyn Fn(&mut ToolSubject); 8] = [
            &|s| s.rules.push(rule()),
            &|s| s.tool = "write_file".into(),
            &|s| s.input = serde_json::json!({ "command": "ls " }),
            &|s| s.cwd = "/".into(),
            &|s| s.effects.push("write /w/a".into()),
            &|s| s.confinement = Some("off".into()),
            &|s| s.reason = "critical".into(),
            &|s| s.diff = None,
        ];
        for change in changes {
            assert_ne!(digest(change), shown);
        }
        assert_ne!(frame().tool(subject(), "run rm".into()).digest, shown, "the title");
        let other_mode = Frame { mode: Mode::Default, ..frame() };
        assert_ne!(other_mode.tool(subject(), "run ls".into()).digest, shown, "the mode that follows");

        let modes = PlanModes { manual: Mode::Default };
        let plan_digest = |subject: PlanSubject| frame().plan(None, subject, modes).digest;
        let shown = plan_digest(plan("one"));
        let with_diff = PlanSubject { diff: Some("+x".into()), ..plan("one") };
        let elsewhere = PlanSubject { path: "/q.md".into(), ..plan("one") };
        let noted = PlanSubject { note: Some("by the way".into()), ..plan("one") };
        for other in [plan("two"), with_diff, elsewhere, noted, PlanSubject { cycle: 2, ..plan("one") }] {
            assert_ne!(plan_digest(other), shown);
        }
    }

    #[test]
    fn trust_is_bound_to_everything_that_is_shown_and_is_a_persons() {
        let subject = |change: &dyn Fn(&mut TrustSubject)| {
            let mut subject = TrustSubject {
                root: "/w".into(),
                file: "/w/.agentd/config.toml".into(),
                items: vec![],
                revision: digest_of(b"x"),
                diff: None,
                trusted_by: None,
            };
            change(&mut subject);
            Arc::new(frame().trust(None, subject))
        };
        let shown = subject(&|_| {});
        assert_eq!(
            shown.choices.iter().map(|c| c.id).collect::<Vec<_>>(),
            [ChoiceId::Trust, ChoiceId::Untrusted]
        );
        let changes: [&dyn Fn(&mut TrustSubject); 4] = [
            &|s| s.root = "/v".into(),
            &|s| s.diff = Some("+a".into()),
            &|s| s.revision = digest_of(b"y"),
            &|s| {
                s.items.push(agentd_protocol::trust::TrustItem {
                    key: "hooks.a".into(),
                    content: "x".into(),
                    place: None,
                })
            },
        ];
        for change in changes {
            assert_ne!(subject(change).digest, shown.digest);
        }
        let good = RespondParams::to(&shown, ChoiceId::Trust);
        assert!(check_answer(&shown, &good, Actor::Person).is_ok());
        assert!(matches!(check_answer(&shown, &good, Actor::Program), Err(AnswerError::PersonOnly)));
        let forged = RespondParams { digest: digest_of(b"forged"), ..good };
        assert!(matches!(check_answer(&shown, &forged, Actor::Person), Err(AnswerError::Stale(_))));
    }

    #[test]
    fn an_edited_plan_must_be_one_that_could_be_shown() {
        let shown = Arc::new(frame().plan(None, plan("one"), PlanModes { manual: Mode::Default }));
        for (edited, fits) in [
            (" \n".to_owned(), false),
            ("x".repeat(MAX_PRESENTED), true),
            ("x".repeat(MAX_PRESENTED + 1), false),
        ] {
            let mut good = RespondParams::to(&shown, ChoiceId::Execute);
            good.edited_plan = Some(edited);
            assert_eq!(check_answer(&shown, &good, Actor::Person).is_ok(), fits);
        }
    }
}
