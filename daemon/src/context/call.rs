//! Results that the engine itself gives to calls: ones that cannot run, and ones that only the session carries out.

use std::path::Path;

use super::note::mark_untrusted;
use crate::ids::Digest;

/// The error result of a call while the session's folder is not there.
#[must_use]
pub fn folder_gone(folder: &std::path::Path) -> String {
    format!(
        "The session's folder {} is gone, or something else is in its place; nothing was done. Tell the person: the \
         session works again once the folder is back.",
        folder.display()
    )
}

/// Characters of a plan's diff that its author reads back.
const MAX_DIFF: usize = 8_000;

/// The error result of a call whose arguments are no JSON object.
#[must_use]
pub fn malformed(tool: &str, problem: &str) -> String {
    format!(
        "The arguments of this call to {} could not be read ({}); nothing was done. Send the call again with one JSON \
         object.",
        mark_untrusted(tool),
        mark_untrusted(problem)
    )
}

/// The error result of a call to a tool that is not there.
#[must_use]
pub fn unknown_tool(tool: &str, known: &str) -> String {
    format!("There is no tool named {}. The tools are {known}.", mark_untrusted(tool))
}

/// The result of calls in an answer that was cut at the length limit.
pub const CALL_CUT: &str = "Not run: the answer was cut at the length limit, so the arguments may be incomplete. Nothing was \
                            done. Make smaller calls: split a large file into several edits.";

/// The result of an approved call whose meaning changed between the question and the run.
pub const CHANGED_SINCE_SHOWN: &str = "Not run: what this call would do has changed since a person approved it (a file or a \
                                       link is not what it was). Nothing was done. Look again, then make the call anew.";

/// The result of a call whose meaning changed between the classifier's yes and the run.
pub const CHANGED_SINCE_JUDGED: &str = "Not run: what this call would do has changed since it was judged (a file or a link is \
                                        not what it was). Nothing was done. Look again, then make the call anew.";

/// The result of a call that a person would have to judge and could not see whole.
pub const TOO_LARGE_TO_SHOW: &str = "Not run: a person has to approve this call, and it is too large to be shown to one. \
                                     Nothing was done. Do it in several smaller calls.";

/// The result of `exit_plan_mode` when a person left plan mode by another way meanwhile.
pub const LEFT_WITHOUT_APPROVAL: &str = "A person left plan mode without approving the plan. Do not carry it out unless they \
                                         ask for it.";

/// The result of a call that waits for a person by its nature and was let through by none.
pub const NOT_WITHOUT_A_PERSON: &str = "Not done: only a person can decide this.";

/// The result of a change to the session's own plan file. `outside`: something else had changed the file before.
#[must_use]
pub fn plan_written(path: &Path, revision: Digest, diff: &str, outside: bool) -> String {
    let outside = if outside {
        "\nThe file had been changed outside this session since you last wrote it; your change was made on top of that. \
         Read it again if you are not sure what it says."
    } else {
        ""
    };
    let end = diff.floor_char_boundary(MAX_DIFF);
    let cut = if end < diff.len() { "\n[the rest of the diff is left out]" } else { "" };
    format!(
        "The plan file is written.\n\nPlan file: {}\nRevision: {revision}{outside}\n\n{}{cut}",
        path.display(),
        mark_untrusted(&diff[..end])
    )
}

/// The error result of `exit_plan_mode` for a plan that no person would read.
#[must_use]
pub fn plan_too_long(bytes: usize, limit: usize) -> String {
    format!(
        "The plan has {bytes} bytes; at most {limit} can be put before a person. Shorten it, then call exit_plan_mode again."
    )
}

/// The result of `ask_user_question` when the person gives no answer.
#[must_use]
pub fn question_declined(feedback: Option<&str>) -> String {
    match feedback.map(str::trim).filter(|text| !text.is_empty()) {
        Some(text) => format!("The person did not answer. They say:\n\n{}", mark_untrusted(text)),
        None => "The person did not answer. Go on with your best judgement, and say what you assumed.".into(),
    }
}
