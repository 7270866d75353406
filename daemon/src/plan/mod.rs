//! Plan files: what they are called, how they are made, read and written. What a plan means, and who may write it, is
//! decided elsewhere.
//!
//! Nothing here follows a link. A plan file is one regular file with one name; whatever else is found in its place is
//! not read, and is set aside before the plan is written again.

mod file;

pub use file::{Created, PlanError, PlanFile, Unusable, Written, create, read, write};

use crate::ids::words;
use crate::workspace::{DiffLimit, unified};

/// The largest plan, in bytes. A plan is shown whole to whoever approves it.
pub const MAX_PLAN: u64 = 1 << 20;

/// The words of a plan's name: from the newest prompt, else from the session's handle.
#[must_use]
pub fn stem_from(prompt: Option<&str>, handle: &str) -> String {
    prompt
        .and_then(words::stem)
        .or_else(|| words::stem_of_handle(handle))
        .unwrap_or_else(|| "plan".to_owned())
}

/// What changed between two revisions, as a unified diff. Absent when nothing did.
#[must_use]
pub fn diff(old: &str, new: &str) -> Option<String> {
    let diff = unified("plan", Some(old), Some(new));
    (!diff.is_empty()).then(|| diff.text(DiffLimit::Person))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stem_comes_from_the_prompt_else_the_handle() {
        assert_eq!(stem_from(Some("Add pagination to the API"), "web-app-otter"), "pagination-api");
        assert_eq!(stem_from(Some("go on"), "web-app-otter"), "web-app");
        assert_eq!(stem_from(None, "web-app-otter"), "web-app");
        assert_eq!(stem_from(None, "???"), "plan");
    }

    #[test]
    fn equal_revisions_have_no_difference() {
        assert_eq!(diff("# Plan\n", "# Plan\n"), None);
        assert!(diff("# Plan\n1. a\n", "# Plan\n1. b\n").unwrap().contains("-1. a\n+1. b\n"));
    }
}
