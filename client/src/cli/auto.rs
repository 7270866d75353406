//! Answers that the demo gives by itself when nobody sits at the terminal. Only for the bundled playback: no option
//! makes agentctl answer for a person in a real session.

use agentd_protocol::approval::{Approval, ChoiceId, RespondParams, Subject};

use crate::render::{Line, Style};

/// What the demo asks to be changed, once.
pub(crate) const FEEDBACK: &str = "Short lists must stay as they are. Test that, please.";

#[derive(Debug, Default)]
pub(crate) struct Auto {
    plans_seen: u32,
}

impl Auto {
    /// The answer, and the line that says it aloud.
    pub(crate) fn answer(&mut self, approval: &Approval) -> (Line, RespondParams) {
        let (choice, feedback, answers) = match &approval.subject {
            Subject::Plan { .. } => {
                self.plans_seen += 1;
                if self.plans_seen == 1 {
                    (ChoiceId::KeepPlanning, Some(FEEDBACK.to_owned()), Vec::new())
                } else {
                    (ChoiceId::Execute, None, Vec::new())
                }
            }
            Subject::Tool { .. } => (ChoiceId::AllowOnce, None, Vec::new()),
            // The sample project asks for none.
            Subject::Trust { .. } => (ChoiceId::Untrusted, None, Vec::new()),
            Subject::Question { question } => {
                let first = |question: &agentd_protocol::approval::Question| {
                    question
                        .options
                        .first()
                        .map_or("As you think best.".to_owned(), |option| option.label.clone())
                };
                (ChoiceId::Answer, None, question.questions.iter().map(first).collect())
            }
        };
        let mut line = Line::styled(Style::Bold, "--auto answers: ").plain(choice.name());
        for text in feedback.iter().chain(&answers) {
            line.push(Style::Plain, &format!(" \"{text}\""));
        }
        (line, RespondParams { feedback, answers, ..RespondParams::to(approval, choice) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::approval::tests as samples;

    #[test]
    fn one_round_of_feedback_and_then_the_plan_is_carried_out() {
        let mut auto = Auto::default();
        let (line, first) = auto.answer(&samples::plan("# One"));
        assert_eq!((first.choice, first.feedback.as_deref()), (ChoiceId::KeepPlanning, Some(FEEDBACK)));
        assert!(line.text().contains("keepPlanning") && line.text().contains(FEEDBACK));
        let second = samples::plan("# Two");
        assert_eq!(auto.answer(&second).1, RespondParams::to(&second, ChoiceId::Execute));
        assert_eq!(auto.answer(&samples::tool("cargo test")).1.choice, ChoiceId::AllowOnce);
    }

    #[test]
    fn questions_get_their_first_option() {
        let (_, answer) = Auto::default().answer(&samples::question(vec![samples::one_question()]));
        assert_eq!(answer.answers, ["opaque"]);
    }
}
