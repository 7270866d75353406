//! `enter_plan_mode` and `exit_plan_mode`, and what a change of the plan does to its text.

use agentd_protocol::event::ToolKind;
use serde_json::json;
use serde_json::value::RawValue;

use super::arguments::schema;
use super::edit_text::replace;
use super::{PlanEdit, Prepared, Request, Scene, Tool, ToolError, Work};
use crate::model::message::ToolSpec;
use crate::permission::effect::Effect;

pub(super) struct EnterPlanMode;

impl Tool for EnterPlanMode {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "enter_plan_mode".to_owned(),
            description: "Enters plan mode: you explore and write a plan first, and change nothing else until a person \
                has approved it. Use it before work that is large, risky, or can be done in several ways; not for small \
                or obvious changes. The answer names the plan file and the steps."
                .to_owned(),
            input_schema: schema(json!({}), &[]),
        }
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Plan
    }

    fn prepare(&self, _: &RawValue, _: &Scene) -> Result<Prepared, ToolError> {
        Ok(Prepared {
            title: "enter plan mode".to_owned(),
            effects: vec![Effect::EnterPlan],
            diff: None,
            work: Work::Ask(Request::EnterPlan),
        })
    }
}

pub(super) struct ExitPlanMode;

impl Tool for ExitPlanMode {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "exit_plan_mode".to_owned(),
            description: "Presents the plan file to a person for approval and waits for the answer. Call it in plan mode \
                once the plan is complete in the plan file; it takes no arguments, the file is what is presented. Do not \
                ask for approval in prose. Do not use it for questions: use ask_user_question."
                .to_owned(),
            input_schema: schema(json!({}), &[]),
        }
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Plan
    }

    /// Some models send the plan along. The file is what counts, so it is ignored.
    fn prepare(&self, _: &RawValue, _: &Scene) -> Result<Prepared, ToolError> {
        Ok(Prepared {
            title: "present the plan".to_owned(),
            effects: vec![Effect::LeavePlan],
            diff: None,
            work: Work::Ask(Request::LeavePlan),
        })
    }
}

impl PlanEdit {
    /// The plan's text after this change.
    ///
    /// # Errors
    /// The text for the model when the edit does not fit the plan, or the plan would become too large.
    pub fn apply(&self, current: &str) -> Result<String, String> {
        let new = match self {
            PlanEdit::Replace { content } => content.clone(),
            PlanEdit::Edit { old, new, all } => replace(current, old, new, *all)?.text,
        };
        if new.len() as u64 > crate::plan::MAX_PLAN {
            return Err(format!(
                "A plan has at most {} bytes; this would have {}.",
                crate::plan::MAX_PLAN,
                new.len()
            ));
        }
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::test_scene::TestScene;

    #[test]
    fn the_mode_tools_only_ask_the_session() {
        let test = TestScene::new();
        let scene = test.scene();
        let plan = RawValue::from_string(r##"{"plan":"# Mine"}"##.to_owned()).unwrap();
        let enter = EnterPlanMode.prepare(&plan, &scene).unwrap();
        assert_eq!(enter.effects, [Effect::EnterPlan]);
        assert!(matches!(enter.work, Work::Ask(Request::EnterPlan)));
        let exit = ExitPlanMode.prepare(&plan, &scene).unwrap();
        assert_eq!(exit.effects, [Effect::LeavePlan]);
        assert!(matches!(exit.work, Work::Ask(Request::LeavePlan)));
    }

    #[test]
    fn plan_edits_are_applied_like_file_edits() {
        let replace = PlanEdit::Replace { content: "# New".into() };
        assert_eq!(replace.apply("old").unwrap(), "# New");
        let edit = PlanEdit::Edit { old: "b".into(), new: "c".into(), all: false };
        assert_eq!(edit.apply("a b").unwrap(), "a c");
        assert!(edit.apply("b b").unwrap_err().contains("2 times"));
        assert!(edit.apply("").unwrap_err().contains("not found"));
        let huge = PlanEdit::Replace { content: "x".repeat(crate::plan::MAX_PLAN as usize + 1) };
        assert!(huge.apply("").unwrap_err().contains("at most"));
    }
}
