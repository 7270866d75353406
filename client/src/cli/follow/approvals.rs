//! Which approvals wait, and what `synced` says about them.

use agentd_protocol::ApprovalId;
use agentd_protocol::approval::{Approval, ApprovalKind, By, ChoiceId};
use agentd_protocol::event::Resolution;
use agentd_protocol::session::{Activity, State};

use super::tell;
use super::{Follow, Goal, Output, Phase};
use crate::render::Line;

impl Follow {
    pub(super) fn ask(&mut self, approval: Approval) -> Vec<Output> {
        self.choices.insert(approval.approval_id.clone(), approval.choices.clone());
        // Much of what history asks is settled by now; `synced` has what is not.
        if self.phase != Phase::Live {
            return Vec::new();
        }
        self.ask_now(approval)
    }

    fn ask_now(&mut self, approval: Approval) -> Vec<Output> {
        if approval.subject.kind() == ApprovalKind::Trust {
            return self.tell_trust(approval);
        }
        self.activity = Activity::Waiting;
        match self.asked.iter_mut().find(|asked| asked.approval_id == approval.approval_id) {
            Some(asked) if *asked == approval => Vec::new(),
            Some(asked) => {
                *asked = approval.clone();
                vec![Output::TextEnd, Output::Changed(Box::new(approval))]
            }
            None => {
                self.asked.push(approval.clone());
                vec![Output::TextEnd, Output::Ask(Box::new(approval))]
            }
        }
    }

    /// The turn goes on as if it were answered with no; so it is shown, and keeps no terminal.
    fn tell_trust(&mut self, approval: Approval) -> Vec<Output> {
        if self.trust.as_ref() == Some(&approval) {
            return Vec::new();
        }
        self.trust = Some(approval.clone());
        vec![Output::TextEnd, Output::Told(Box::new(approval))]
    }

    pub(super) fn resolved(
        &mut self,
        id: ApprovalId,
        resolution: Resolution,
        choice: Option<ChoiceId>,
        by: &By,
        feedback: Option<&str>,
    ) -> Vec<Output> {
        self.asked.retain(|asked| asked.approval_id != id);
        self.trust.take_if(|trust| trust.approval_id == id);
        if self.asked.is_empty() && self.activity == Activity::Waiting {
            self.activity = Activity::Running;
        }
        let choices = self.choices.remove(&id).unwrap_or_default();
        let label =
            choices.iter().find(|offered| Some(offered.id) == choice).map(|offered| offered.label.as_str());
        let line = (!self.is_me(by)).then(|| match resolution {
            // Nobody else's terminal is meant by what is looked back at.
            Resolution::Answered if self.phase != Phase::History => {
                tell::answered_elsewhere(choice, label, by, feedback)
            }
            _ => tell::settled(resolution, choice, label, by, feedback),
        });
        vec![Output::Settled { id, line }]
    }

    pub(super) fn synced(&mut self, state: Option<State>) -> Vec<Output> {
        let mut outputs = Vec::new();
        if self.phase == Phase::History {
            if self.earlier_turns > 0 && self.goal == Goal::Session {
                outputs.push(Output::Earlier(self.earlier_turns));
            }
            outputs.append(&mut self.history);
        }
        self.phase = Phase::Live;
        let Some(state) = state else { return outputs };
        self.activity = state.activity;
        self.pre_mode = state.pre_mode;
        self.cwd = state.cwd;
        // Answered while nobody was listening, and the answer is not in what was sent again.
        let gone: Vec<ApprovalId> = self
            .asked
            .iter()
            .map(|asked| asked.approval_id.clone())
            .filter(|id| !state.approvals.iter().any(|approval| approval.approval_id == *id))
            .collect();
        self.trust
            .take_if(|trust| !state.approvals.iter().any(|asked| asked.approval_id == trust.approval_id));
        for id in gone {
            self.asked.retain(|asked| asked.approval_id != id);
            outputs.push(Output::Settled { id, line: Some(Line::from("It was answered meanwhile.")) });
        }
        for approval in state.approvals {
            self.choices.insert(approval.approval_id.clone(), approval.choices.clone());
            outputs.extend(self.ask_now(approval));
        }
        outputs
    }
}
