//! What a model is told besides what people say: the system prompt, the first messages of a session, guidance, and the
//! results of calls that did not run. All of it pure text: the same facts make the same bytes, and nothing here reads a
//! file or a clock.
//!
//! The system prompt is constant, so it is a prefix that every request of every session shares. Whatever changes (mode,
//! plan file, reminders) is an appended message, see [`note`].

mod call;
mod classifier;
mod guidance;
mod note;
mod opening;
mod outcome;

pub use call::{
    CALL_CUT, CHANGED_SINCE_JUDGED, CHANGED_SINCE_SHOWN, LEFT_WITHOUT_APPROVAL, NOT_WITHOUT_A_PERSON,
    TOO_LARGE_TO_SHOW, folder_gone, malformed, plan_too_long, plan_written, question_declined, unknown_tool,
};
pub use classifier::{CLASSIFIER_PROMPT, MAX_ARGUMENTS, Opinion, Question, Said, opinion, question};
pub use guidance::{
    Approved, PlanCommands, PlanGuidance, Remarks, already_planning, fresh_start, mode_changed,
    mode_unavailable, moved, no_plan_to_leave, plan_approved, plan_guidance, plan_is_empty, plan_left,
    plan_rejected, rewound,
};
pub use note::{mark_untrusted, note};
pub use opening::{Environment, Instructions, MAX_INSTRUCTIONS, environment, project_instructions};
pub use outcome::{
    Interruption, NotRun, call_interrupted, denied_by_gate, denied_by_person, not_run, turn_interrupted,
};

/// The system prompt of the main agent. Constant: it depends on no session, mode, day or machine.
pub const SYSTEM_PROMPT: &str = include_str!("system.md");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_prompt_names_every_tool_and_mode() {
        for tool in crate::permission::rules::TOOLS {
            assert!(SYSTEM_PROMPT.contains(tool), "{tool} is not explained");
        }
        for mode in agentd_protocol::Mode::ALL {
            assert!(SYSTEM_PROMPT.contains(&format!("- {mode}: ")), "{mode} is not explained");
        }
    }

    #[test]
    fn the_system_prompt_explains_the_tag_that_notes_have() {
        let note = note("x");
        let (open, close) = note.split_once("\nx\n").unwrap();
        assert!(SYSTEM_PROMPT.contains(open) && SYSTEM_PROMPT.contains(close));
    }

    #[test]
    fn the_system_prompt_holds_nothing_that_differs_between_machines() {
        assert!(SYSTEM_PROMPT.is_ascii());
        for changing in ["/home/", "{", "2026", "linux"] {
            assert!(!SYSTEM_PROMPT.contains(changing), "{changing}");
        }
    }
}
