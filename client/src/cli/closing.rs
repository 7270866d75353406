//! What is said when a turn has ended or is left: what it did, and what to type next.

use agentd_protocol::approval::Approval;
use agentd_protocol::turn::Outcome;

use super::exit::Exit;
use super::follow::Finished;
use crate::render::approval::{next_command, short_id};
use crate::render::line::summary;
use crate::render::{Line, Style};

/// Names that the next commands need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    /// How agentctl was called, with its `--socket`.
    pub(crate) program: &'a str,
    pub(crate) handle: &'a str,
    pub(crate) cwd: &'a str,
    /// Whether the session is still there when its turn has ended; a demo's is not.
    pub(crate) stays: bool,
}

/// A turn that has ended.
pub(crate) fn finished(finished: &Finished, names: Names<'_>) -> Vec<Line> {
    let mut lines = Vec::new();
    let error = finished.error.as_deref().map_or(String::new(), |error| format!(": {error}"));
    match finished.outcome {
        Outcome::Finished => {}
        Outcome::Interrupted => lines.push(Line::styled(Style::Warn, &format!("Interrupted{error}"))),
        Outcome::Refused => {
            lines.push(Line::styled(Style::Warn, &format!("Ended, because a call was denied{error}")));
        }
        Outcome::Failed => lines.push(Line::styled(Style::Bad, &format!("The turn failed{error}"))),
        Outcome::Withdrawn => lines.push(Line::styled(Style::Warn, &format!("Withdrawn{error}"))),
        Outcome::Limit => lines.push(Line::styled(Style::Warn, &format!("Ended by a limit{error}"))),
    }
    if !finished.denials.is_empty() {
        let mut reasons: Vec<&str> = finished.denials.iter().map(|denial| denial.reason.as_str()).collect();
        reasons.sort_unstable();
        reasons.dedup();
        let calls = if finished.denials.len() == 1 {
            "1 call was"
        } else {
            &format!("{} calls were", finished.denials.len())
        };
        lines.push(Line::styled(Style::Dim, &format!("{calls} refused: {}", reasons.join(", "))));
    }
    lines.extend(summary(&finished.files, &finished.usage, names.cwd));
    for note in &finished.verification {
        lines.push(Line::styled(Style::Dim, "Plan: ").plain(note));
    }
    if names.stays {
        lines.push(next(names, &[format!("send {} \"…\"", names.handle), "ls".to_owned()]));
    }
    lines
}

/// Left while it goes on or waits.
pub(crate) fn left(exit: Exit, waiting: &[Approval], interactive: bool, names: Names<'_>) -> Vec<Line> {
    let mut lines = waits(waiting, interactive, names);
    if !lines.is_empty() {
        return lines;
    }
    let attach = format!("attach {}", names.handle);
    if exit == Exit::Finished {
        lines.push(Line::styled(Style::Dim, "Left; nothing was stopped."));
        lines.push(next(names, &[attach]));
    } else {
        lines.push(Line::styled(Style::Dim, &format!("{} goes on without this terminal.", names.handle)));
        lines.push(next(names, &[attach, format!("stop {}", names.handle)]));
    }
    lines
}

/// Left because nobody reads the output any more, while the turn goes on or waits.
pub(crate) fn reader_gone(waiting: &[Approval], names: Names<'_>) -> Vec<Line> {
    let mut lines = waits(waiting, false, names);
    if lines.is_empty() {
        lines.push(Line::styled(Style::Dim, &format!("{} goes on without this client.", names.handle)));
        lines.push(next(names, &[format!("attach {}", names.handle)]));
    }
    lines
}

/// What waits for an answer, and the command that gives it.
fn waits(waiting: &[Approval], interactive: bool, names: Names<'_>) -> Vec<Line> {
    let mut lines = Vec::new();
    for approval in waiting {
        lines.push(
            Line::styled(Style::Warn, &format!("{} waits for your answer. ", names.handle))
                .plain(&format!("Approval {}", approval.approval_id)),
        );
        let command =
            if interactive { format!("approve {}", short_id(approval)) } else { next_command(approval) };
        lines.push(next(names, &[command]));
    }
    lines
}

fn next(names: Names<'_>, commands: &[String]) -> Line {
    let mut line = Line::styled(Style::Dim, "Next: ");
    for (index, command) in commands.iter().enumerate() {
        if index > 0 {
            line.push(Style::Dim, " · ");
        }
        line.push(Style::Command, &format!("{} {command}", names.program));
    }
    line
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use agentd_protocol::turn::{Denial, Usage};

    use super::*;
    use crate::render::approval::tests as samples;
    use crate::render::line::Changed;

    const NAMES: Names<'_> = Names { program: "agentctl", handle: "api-otter", cwd: "/w", stays: true };

    fn turn(outcome: Outcome) -> Finished {
        Finished {
            turn: None,
            outcome,
            error: None,
            usage: Usage::default(),
            denials: vec![],
            files: BTreeMap::new(),
            verification: vec![],
        }
    }

    fn text(lines: &[Line]) -> Vec<String> {
        lines.iter().map(Line::text).collect()
    }

    #[test]
    fn a_finished_turn_says_what_it_changed_and_what_comes_next() {
        let mut done = turn(Outcome::Finished);
        done.files.insert("/w/a.rs".into(), Changed { added: 1, removed: 0, gone: false });
        done.verification.push("not checked: not built yet".into());
        let denial = |reason: &str| Denial { tool: "t".into(), title: "x".into(), reason: reason.into() };
        done.denials = vec![denial("plan.write"), denial("plan.write")];
        assert_eq!(
            text(&finished(&done, NAMES)),
            [
                "2 calls were refused: plan.write",
                "1 file changed",
                "  a.rs  +1 -0",
                "Plan: not checked: not built yet",
                "Next: agentctl send api-otter \"…\" · agentctl ls",
            ]
        );
    }

    #[test]
    fn a_session_that_goes_away_is_no_next_step() {
        let names = Names { stays: false, ..NAMES };
        assert!(finished(&turn(Outcome::Finished), names).is_empty());
    }

    #[test]
    fn a_failed_turn_says_why() {
        let mut failed = turn(Outcome::Failed);
        failed.error = Some("the key was refused".into());
        assert_eq!(text(&finished(&failed, NAMES))[0], "The turn failed: the key was refused");
    }

    #[test]
    fn a_turn_left_waiting_names_the_approval_and_the_exact_command() {
        let waiting = [samples::plan("# P")];
        let lines = text(&left(Exit::Waiting, &waiting, false, NAMES));
        assert!(lines[0].contains(&waiting[0].approval_id.to_string()));
        assert_eq!(lines[1], "Next: agentctl approve deadbeef execute --revision 3f3f3f3f3f3f");
        let lines = text(&left(Exit::Waiting, &waiting, true, NAMES));
        assert_eq!(lines[1], "Next: agentctl approve deadbeef");
    }

    #[test]
    fn a_turn_left_running_can_be_found_again() {
        let lines = text(&left(Exit::LeftRunning, &[], true, NAMES));
        assert_eq!(lines[1], "Next: agentctl attach api-otter · agentctl stop api-otter");
    }
}
