//! Taking a person's answer to one approval: a state machine from typed lines to what is to be done. It does no input
//! or output of its own.

use std::path::Path;

use agentd_protocol::Mode;
use agentd_protocol::approval::{Approval, ChoiceId, Question, RespondParams, Subject};

use crate::render::approval::{BLOCKED, Frame, draw, options};
use crate::render::style::quoted;
use crate::render::{Line, Style};

/// What came from the person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Line(String),
    /// Ctrl-D.
    End,
    /// The editor is done; `None` when it failed or was left without saving.
    Edited(Option<String>),
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Print lines and wait for the next input, asking with [`Ask::prompt`].
    Say(Vec<Line>),
    /// Draw everything again; what was typed before is not an answer to it.
    Redraw,
    /// Open the person's editor on this text.
    Edit(String),
    Respond(Box<RespondParams>),
    /// `session/setMode` to this mode.
    LeavePlan(Mode),
    /// Leave it waiting.
    Detach,
}

/// One approval that is being shown.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    approval: Approval,
    handle: String,
    pre_mode: Option<Mode>,
    /// The person's own version of the plan.
    edited: Option<String>,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Choosing,
    /// A choice that takes a word of explanation.
    Feedback(ChoiceId),
    /// The answers so far; the next one belongs to the question after them.
    Answering(Vec<String>),
}

impl Ask {
    pub(crate) fn new(approval: Approval, handle: String, pre_mode: Option<Mode>) -> Self {
        let stage = Self::first_stage(&approval);
        Self { approval, handle, pre_mode, edited: None, stage }
    }

    fn first_stage(approval: &Approval) -> Stage {
        match approval.subject {
            Subject::Question { .. } => Stage::Answering(Vec::new()),
            Subject::Tool { .. } | Subject::Plan { .. } | Subject::Trust { .. } => Stage::Choosing,
        }
    }

    pub(crate) fn approval(&self) -> &Approval {
        &self.approval
    }

    /// The text of the plan as it would be carried out now: the person's version, else the session's.
    pub(crate) fn plan_text(&self) -> Option<&str> {
        match &self.approval.subject {
            Subject::Plan { plan } => Some(self.edited.as_deref().unwrap_or(&plan.content)),
            _ => None,
        }
    }

    /// Whether the person has a version of the plan that is not sent.
    pub(crate) fn is_edited(&self) -> bool {
        self.edited.is_some()
    }

    /// The approval's content changed: everything is asked anew, and an edit of the old text is given up.
    /// Answers the edit that was lost.
    pub(crate) fn replace(&mut self, approval: Approval) -> Option<String> {
        self.stage = Self::first_stage(&approval);
        self.approval = approval;
        self.edited.take()
    }

    pub(crate) fn draw(&self, width: usize, home: Option<&Path>) -> Vec<Line> {
        let edited = self.edited.as_deref();
        let frame = Frame { handle: &self.handle, pre_mode: self.pre_mode, edited, home, width };
        draw(&self.approval, frame)
    }

    /// What stands before the cursor.
    pub(crate) fn prompt(&self) -> String {
        match &self.stage {
            Stage::Choosing => "Your choice, then Enter: ".to_owned(),
            Stage::Feedback(_) => "> ".to_owned(),
            Stage::Answering(answers) => match self.questions() {
                [_] | [] => "Your answer, then Enter: ".to_owned(),
                questions => format!(
                    "Your answer to question {} of {}, then Enter: ",
                    answers.len() + 1,
                    questions.len()
                ),
            },
        }
    }

    pub(crate) fn take(&mut self, input: Input) -> Action {
        match (input, &self.stage) {
            (Input::End, Stage::Feedback(_)) => {
                self.stage = Stage::Choosing;
                Action::Say(vec![Line::from("Not sent.")])
            }
            (Input::End, _) => Action::Detach,
            (Input::Edited(text), _) => self.edited(text),
            (Input::Line(line), Stage::Choosing) => self.choose(line.trim()),
            (Input::Line(line), Stage::Feedback(choice)) => {
                let text = line.trim();
                self.respond(*choice, (!text.is_empty()).then(|| text.to_owned()), Vec::new())
            }
            (Input::Line(line), Stage::Answering(_)) => self.answer(line.trim()),
        }
    }

    fn choose(&mut self, typed: &str) -> Action {
        let is_plan = matches!(self.approval.subject, Subject::Plan { .. });
        match typed {
            "q" => return Action::Detach,
            "e" if is_plan => return Action::Edit(self.plan_text().unwrap_or_default().to_owned()),
            "d" if is_plan => {
                if let Some(mode) = self.pre_mode {
                    return Action::LeavePlan(mode);
                }
            }
            _ => {}
        }
        let number = typed.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let Some(choice) = number.and_then(|index| self.approval.choices.get(index)) else {
            return Action::Say(vec![self.what_to_type(typed)]);
        };
        let blocked = matches!(&self.approval.subject, Subject::Plan { plan } if plan.blocked);
        if blocked && !self.is_edited() && choice.id != ChoiceId::KeepPlanning {
            return Action::Say(vec![
                Line::styled(Style::Warn, BLOCKED),
                Line::from("Mend it; or type e to edit the plan here, or the number that keeps planning."),
            ]);
        }
        match choice.id {
            ChoiceId::KeepPlanning => {
                self.stage = Stage::Feedback(choice.id);
                Action::Say(vec![
                    Line::from("What should change? One line; Enter sends it, Ctrl-D goes back."),
                    Line::styled(Style::Dim, "Empty: the agent asks what should be different, and plans on."),
                ])
            }
            ChoiceId::Deny => {
                self.stage = Stage::Feedback(choice.id);
                Action::Say(vec![
                    Line::from("What should it do instead? One line; Enter sends it, Ctrl-D goes back."),
                    Line::styled(Style::Dim, "Empty: the turn ends here."),
                ])
            }
            id => self.respond(id, None, Vec::new()),
        }
    }

    fn what_to_type(&self, typed: &str) -> Line {
        let mut keys = format!("a digit from 1 to {}", self.approval.choices.len());
        if let Subject::Plan { .. } = self.approval.subject {
            keys.push_str(if self.pre_mode.is_some() { ", e, d" } else { ", e" });
        }
        let line = if typed.is_empty() {
            Line::new()
        } else {
            Line::from(format!("{} is no choice. ", quoted(typed)))
        };
        line.plain(&format!("Type {keys} or q, then Enter."))
    }

    fn questions(&self) -> &[Question] {
        match &self.approval.subject {
            Subject::Question { question } => &question.questions,
            _ => &[],
        }
    }

    fn answer(&mut self, typed: &str) -> Action {
        let Stage::Answering(answers) = &self.stage else { return Action::Redraw };
        let mut answers = answers.clone();
        match typed {
            "" => {
                return Action::Say(vec![Line::from(
                    "Type a number or a few words, 0 to decline, q to leave it.",
                )]);
            }
            "q" => return Action::Detach,
            "0" => return self.respond(ChoiceId::Decline, None, Vec::new()),
            _ => {}
        }
        let Some(question) = self.questions().get(answers.len()) else {
            return self.respond(ChoiceId::Answer, None, answers);
        };
        answers.push(match chosen(question, typed) {
            Ok(answer) => answer,
            Err(message) => return Action::Say(vec![Line::from(message)]),
        });
        if let Some(next) = self.questions().get(answers.len()) {
            let lines =
                next.question.lines().map(|text| Line::styled(Style::Bold, text)).chain(options(next));
            let lines = lines.collect();
            self.stage = Stage::Answering(answers);
            return Action::Say(lines);
        }
        self.respond(ChoiceId::Answer, None, answers)
    }

    fn edited(&mut self, text: Option<String>) -> Action {
        match text {
            None => Action::Say(vec![Line::from("The editor did not save a plan; nothing changed.")]),
            Some(text) if text.trim().is_empty() => {
                Action::Say(vec![Line::from("The plan would be empty; nothing changed.")])
            }
            Some(text) if Some(text.as_str()) == self.plan_text() => {
                Action::Say(vec![Line::from("The plan is unchanged.")])
            }
            Some(text) => {
                let original =
                    matches!(&self.approval.subject, Subject::Plan { plan } if plan.content == text);
                self.edited = (!original).then_some(text);
                self.stage = Stage::Choosing;
                Action::Redraw
            }
        }
    }

    fn respond(&mut self, choice: ChoiceId, feedback: Option<String>, answers: Vec<String>) -> Action {
        // Whatever the daemon answers, the next line belongs to a new question.
        self.stage = Self::first_stage(&self.approval);
        Action::Respond(Box::new(RespondParams {
            edited_plan: self.edited.clone(),
            feedback,
            answers,
            ..RespondParams::to(&self.approval, choice)
        }))
    }
}

/// What `typed` answers: the options whose numbers it lists, else its own words.
pub(crate) fn chosen(question: &Question, typed: &str) -> Result<String, String> {
    let numbers: Option<Vec<usize>> = typed.split(',').map(|part| part.trim().parse().ok()).collect();
    let Some(numbers) = numbers.filter(|_| !question.options.is_empty()) else { return Ok(typed.to_owned()) };
    if numbers.len() > 1 && !question.multi_select {
        return Err("One number only, please.".to_owned());
    }
    let labels: Option<Vec<&str>> = numbers
        .iter()
        .map(|number| number.checked_sub(1).and_then(|index| question.options.get(index)))
        .map(|option| option.map(|option| option.label.as_str()))
        .collect();
    match labels {
        Some(labels) => Ok(labels.join(", ")),
        None => Err(format!("The options are 1 to {}.", question.options.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::approval::tests as samples;

    fn plan() -> Ask {
        Ask::new(samples::plan("# Plan\n"), "otter".into(), Some(Mode::AcceptEdits))
    }

    fn line(text: &str) -> Input {
        Input::Line(text.into())
    }

    fn responded(action: Action) -> RespondParams {
        match action {
            Action::Respond(params) => *params,
            other => panic!("no response: {other:?}"),
        }
    }

    #[test]
    fn a_digit_takes_that_choice_for_exactly_what_was_shown() {
        for (digit, choice) in
            [("1", ChoiceId::ClearAndExecute), ("2", ChoiceId::Execute), ("3", ChoiceId::ManualExecute)]
        {
            let mut ask = plan();
            let params = responded(ask.take(line(digit)));
            assert_eq!(params, RespondParams::to(ask.approval(), choice));
            assert!(params.revision.is_some());
        }
    }

    #[test]
    fn nothing_but_a_listed_key_answers() {
        for typed in ["", " ", "0", "5", "9", "y", "yes", "execute", "12", "-1", "1 2", "\u{1b}[A1"] {
            let mut ask = plan();
            assert!(matches!(ask.take(line(typed)), Action::Say(_)), "{typed:?} was taken");
        }
    }

    #[test]
    fn keep_planning_asks_for_words_first() {
        let mut ask = plan();
        assert!(matches!(ask.take(line("4")), Action::Say(_)));
        assert_eq!(ask.prompt(), "> ");
        let params = responded(ask.take(line(" use cursors ")));
        assert_eq!(
            (params.choice, params.feedback.as_deref()),
            (ChoiceId::KeepPlanning, Some("use cursors"))
        );
    }

    #[test]
    fn feedback_may_be_empty_or_given_up() {
        let mut ask = plan();
        ask.take(line("4"));
        assert!(matches!(ask.take(Input::End), Action::Say(_)));
        assert_eq!(responded(ask.take(line("2"))).choice, ChoiceId::Execute);
        let mut ask = plan();
        ask.take(line("4"));
        assert_eq!(responded(ask.take(line(""))).feedback, None);
    }

    #[test]
    fn digits_typed_as_feedback_are_feedback() {
        let mut ask = plan();
        ask.take(line("4"));
        assert_eq!(responded(ask.take(line("1"))).choice, ChoiceId::KeepPlanning);
    }

    #[test]
    fn a_plan_that_cannot_be_carried_out_is_not_but_an_edited_one_is() {
        let mut approval = samples::plan("# Plan\n");
        if let Subject::Plan { plan } = &mut approval.subject {
            plan.blocked = true;
        }
        let mut ask = Ask::new(approval, "otter".into(), None);
        assert!(matches!(ask.take(line("2")), Action::Say(_)));
        assert_eq!(ask.take(Input::Edited(Some("# Mine\n".into()))), Action::Redraw);
        assert_eq!(responded(ask.take(line("2"))).edited_plan.as_deref(), Some("# Mine\n"));
        assert!(matches!(ask.take(line("4")), Action::Say(_)));
        assert_eq!(responded(ask.take(line(""))).choice, ChoiceId::KeepPlanning);
    }

    #[test]
    fn an_edited_plan_is_shown_again_and_goes_with_the_choice() {
        let mut ask = plan();
        assert_eq!(ask.take(line("e")), Action::Edit("# Plan\n".into()));
        assert_eq!(ask.take(Input::Edited(Some("# Mine\n".into()))), Action::Redraw);
        assert!(ask.draw(80, None).iter().any(|line| line.text().contains("Mine")));
        let params = responded(ask.take(line("2")));
        assert_eq!(params.edited_plan.as_deref(), Some("# Mine\n"));
        // A second edit begins with the first one's text.
        assert_eq!(ask.take(line("e")), Action::Edit("# Mine\n".into()));
        // Back to the original: nothing edited any more.
        assert_eq!(ask.take(Input::Edited(Some("# Plan\n".into()))), Action::Redraw);
        assert_eq!(responded(ask.take(line("2"))).edited_plan, None);
    }

    #[test]
    fn an_edit_without_effect_changes_nothing() {
        for text in [None, Some("# Plan\n".to_owned()), Some("  \n".to_owned())] {
            let mut ask = plan();
            assert!(matches!(ask.take(Input::Edited(text)), Action::Say(_)));
            assert_eq!(responded(ask.take(line("2"))).edited_plan, None);
        }
    }

    #[test]
    fn leaving_plan_mode_returns_to_the_remembered_mode() {
        assert_eq!(plan().take(line("d")), Action::LeavePlan(Mode::AcceptEdits));
        let mut unknown = Ask::new(samples::plan("x"), "h".into(), None);
        assert!(matches!(unknown.take(line("d")), Action::Say(_)));
        let mut tool = Ask::new(samples::tool("ls"), "h".into(), Some(Mode::Default));
        assert!(matches!(tool.take(line("d")), Action::Say(_)));
        assert!(matches!(tool.take(line("e")), Action::Say(_)));
    }

    #[test]
    fn q_and_end_of_input_leave_it_waiting() {
        assert_eq!(plan().take(line("q")), Action::Detach);
        assert_eq!(plan().take(Input::End), Action::Detach);
    }

    #[test]
    fn a_changed_approval_starts_over() {
        let mut ask = plan();
        ask.take(Input::Edited(Some("# Mine\n".into())));
        ask.take(line("4"));
        let changed = samples::plan("# Changed\n");
        assert_eq!(ask.replace(changed), Some("# Mine\n".into()));
        assert_eq!(responded(ask.take(line("2"))).edited_plan, None);
    }

    #[test]
    fn a_denied_call_asks_what_to_do_instead() {
        let mut ask = Ask::new(samples::tool("rm x"), "h".into(), None);
        assert!(matches!(ask.take(line("2")), Action::Say(_)));
        let params = responded(ask.take(line("list it")));
        assert_eq!((params.choice, params.feedback.as_deref()), (ChoiceId::Deny, Some("list it")));
        assert_eq!(params.revision, None);
    }

    #[test]
    fn questions_take_numbers_or_words_one_after_the_other() {
        let mut second = samples::one_question();
        second.multi_select = true;
        let mut ask = Ask::new(samples::question(vec![samples::one_question(), second]), "h".into(), None);
        assert!(matches!(ask.take(line("")), Action::Say(_)));
        assert!(matches!(ask.take(line("7")), Action::Say(_)));
        assert!(matches!(ask.take(line("1,2")), Action::Say(_)));
        assert!(ask.prompt().contains("1 of 2"));
        let Action::Say(next) = ask.take(line("both of them")) else { panic!("not asked on") };
        assert!(next.iter().any(|line| line.text() == "1  opaque  an id, encoded"), "{next:?}");
        assert!(ask.prompt().contains("2 of 2"));
        let params = responded(ask.take(line("1,2")));
        assert_eq!(params.choice, ChoiceId::Answer);
        assert_eq!(params.answers, ["both of them", "opaque, offset"]);
    }

    #[test]
    fn a_question_can_be_declined() {
        let mut ask = Ask::new(samples::question(vec![samples::one_question()]), "h".into(), None);
        assert_eq!(responded(ask.take(line("0"))).choice, ChoiceId::Decline);
    }
}
