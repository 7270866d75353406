//! What is said when a turn has ended or is left: what it did, and what to type next.

use agentd_protocol::approval::Approval;
use agentd_protocol::turn::{Outcome, Usage};

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
    /// Whether no model speaks.
    pub(crate) is_demo: bool,
}

/// `1 prompt`, `2 prompts`.
pub(crate) fn prompts(n: usize) -> String {
    if n == 1 { "1 prompt".to_owned() } else { format!("{n} prompts") }
}

pub(crate) fn prompts_are(n: usize) -> String {
    format!("{} {}", prompts(n), if n == 1 { "is" } else { "are" })
}

pub(crate) fn goes(n: usize) -> &'static str {
    if n == 1 { "goes" } else { "go" }
}

/// Prompts that wait because a turn was interrupted, and both ways out.
pub(crate) fn held(n: usize, program: &str, handle: &str) -> Line {
    let them = if n == 1 { "it" } else { "them" };
    Line::styled(Style::Warn, &format!("{} held. ", prompts_are(n)))
        .plain(&format!("Send anything to let {them} go first; to drop {them}: "))
        .with(Style::Command, &format!("{program} stop --drop {handle}"))
}

/// A turn that has ended. `held`: what it leaves waiting, from [`held`].
pub(crate) fn finished(finished: &Finished, held: Option<Line>, names: Names<'_>) -> Vec<Line> {
    let mut lines = past(finished, names);
    lines.extend(held);
    if names.stays {
        lines.extend(next(names, &[format!("send {} \"…\"", names.handle), "ls".to_owned()]));
    }
    lines
}

/// A turn that had ended before anybody looked.
pub(crate) fn past(finished: &Finished, names: Names<'_>) -> Vec<Line> {
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
    // What a playback counts is nobody's tokens.
    let usage = if names.is_demo { Usage::default() } else { finished.usage };
    let all = format!("{} diff {}", names.program, names.handle);
    lines.extend(summary(&finished.files, finished.seen, &all, &usage, names.cwd));
    for note in &finished.verification {
        lines.push(Line::styled(Style::Dim, "Plan: ").plain(note));
    }
    lines
}

/// How a turn is left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving {
    pub(crate) exit: Exit,
    /// Whether it was asked to stop before.
    pub(crate) stopping: bool,
    /// Whether all that waits was put on the screen.
    pub(crate) shown: bool,
}

/// Left while it goes on or waits.
pub(crate) fn left(leaving: Leaving, waiting: &[Approval], names: Names<'_>) -> Vec<Line> {
    let mut lines = waits(waiting, leaving.shown, names);
    if !lines.is_empty() {
        return lines;
    }
    let attach = format!("attach {}", names.handle);
    if leaving.stopping {
        let text = format!("Left; {} was told to stop and ends without this terminal.", names.handle);
        lines.push(Line::styled(Style::Dim, &text));
        lines.extend(next(names, &[attach]));
    } else if leaving.exit == Exit::Finished {
        lines.push(Line::styled(Style::Dim, "Left; nothing was stopped."));
        lines.extend(next(names, &[attach]));
    } else {
        lines.push(Line::styled(Style::Dim, &format!("{} goes on without this terminal.", names.handle)));
        lines.extend(next(names, &[attach, format!("stop {}", names.handle)]));
    }
    lines
}

/// Left because nobody reads the output any more, while the turn goes on or waits.
pub(crate) fn reader_gone(waiting: &[Approval], names: Names<'_>) -> Vec<Line> {
    let mut lines = waits(waiting, false, names);
    if lines.is_empty() {
        lines.push(Line::styled(Style::Dim, &format!("{} goes on without this client.", names.handle)));
        lines.extend(next(names, &[format!("attach {}", names.handle)]));
    }
    lines
}

/// What waits for an answer, the command that shows it, and, for who has seen it, the one that answers.
fn waits(waiting: &[Approval], shown: bool, names: Names<'_>) -> Vec<Line> {
    let mut lines = Vec::new();
    for approval in waiting {
        lines.push(
            Line::styled(Style::Warn, &format!("{} waits for your answer. ", names.handle))
                .plain(&format!("Approval {}", approval.approval_id)),
        );
        let mut commands = vec![format!("approve {}", short_id(approval))];
        if shown {
            commands.push(next_command(approval));
        }
        lines.extend(next(names, &commands));
    }
    lines
}

/// One command a line, so that each can be taken as it stands.
fn next(names: Names<'_>, commands: &[String]) -> Vec<Line> {
    let start = std::iter::once("Next: ").chain(std::iter::repeat("      "));
    start
        .zip(commands)
        .map(|(start, command)| {
            Line::styled(Style::Dim, start).with(Style::Command, &format!("{} {command}", names.program))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use agentd_protocol::turn::Denial;

    use super::*;
    use crate::render::approval::tests as samples;
    use crate::render::line::{Changed, Seen};

    const NAMES: Names<'_> =
        Names { program: "agentctl", handle: "api-otter", cwd: "/w", stays: true, is_demo: false };

    fn turn(outcome: Outcome) -> Finished {
        Finished {
            turn: None,
            outcome,
            error: None,
            usage: Usage::default(),
            denials: vec![],
            files: BTreeMap::new(),
            seen: Seen::Whole,
            verification: vec![],
        }
    }

    fn text(lines: &[Line]) -> Vec<String> {
        lines.iter().map(Line::text).collect()
    }

    #[test]
    fn a_finished_turn_says_what_it_changed_and_what_comes_next() {
        let mut done = turn(Outcome::Finished);
        done.files.insert("/w/a.rs".into(), Changed { added: 1, ..Changed::default() });
        done.verification.push("not checked: not built yet".into());
        let denial = |reason: &str| Denial { tool: "t".into(), title: "x".into(), reason: reason.into() };
        done.denials = vec![denial("plan.write"), denial("plan.write")];
        assert_eq!(
            text(&finished(&done, None, NAMES)),
            [
                "2 calls were refused: plan.write",
                "1 file changed",
                "  a.rs  +1 -0",
                "Plan: not checked: not built yet",
                "Next: agentctl send api-otter \"…\"",
                "      agentctl ls",
            ]
        );
    }

    #[test]
    fn a_session_that_goes_away_is_no_next_step() {
        let names = Names { stays: false, ..NAMES };
        assert!(finished(&turn(Outcome::Finished), None, names).is_empty());
    }

    #[test]
    fn a_failed_turn_says_why() {
        let mut failed = turn(Outcome::Failed);
        failed.error = Some("the key was refused".into());
        assert_eq!(text(&finished(&failed, None, NAMES))[0], "The turn failed: the key was refused");
    }

    fn leaving(exit: Exit) -> Leaving {
        Leaving { exit, stopping: false, shown: false }
    }

    #[test]
    fn a_turn_left_waiting_names_the_command_that_shows_it_and_then_the_one_that_answers() {
        let waiting = [samples::plan("# P")];
        let lines = text(&left(leaving(Exit::Waiting), &waiting, NAMES));
        assert!(lines[0].contains(&waiting[0].approval_id.to_string()));
        // Nobody has seen it, so nobody is told how to say yes.
        assert_eq!(lines[1], "Next: agentctl approve deadbeef");
        let lines = text(&left(Leaving { shown: true, ..leaving(Exit::Waiting) }, &waiting, NAMES));
        assert_eq!(
            lines[1..],
            [
                "Next: agentctl approve deadbeef",
                "      agentctl approve deadbeef execute --revision 3f3f3f3f3f3f"
            ]
        );
    }

    #[test]
    fn a_turn_left_running_can_be_found_again() {
        let lines = text(&left(leaving(Exit::LeftRunning), &[], NAMES));
        assert_eq!(lines[1..], ["Next: agentctl attach api-otter", "      agentctl stop api-otter"]);
    }

    #[test]
    fn a_turn_that_was_told_to_stop_is_not_said_to_go_on() {
        for exit in [Exit::Finished, Exit::LeftRunning] {
            let lines = text(&left(Leaving { stopping: true, ..leaving(exit) }, &[], NAMES));
            assert!(lines[0].contains("told to stop"), "{lines:?}");
        }
        assert_eq!(text(&left(leaving(Exit::Finished), &[], NAMES))[0], "Left; nothing was stopped.");
    }

    #[test]
    fn held_prompts_come_with_both_ways_out() {
        assert_eq!(
            held(2, "agentctl", "api-otter").text(),
            "2 prompts are held. Send anything to let them go first; to drop them: agentctl stop --drop api-otter"
        );
        assert!(held(1, "agentctl", "x").text().starts_with("1 prompt is held. Send anything to let it go"));
    }

    #[test]
    fn a_playback_has_no_tokens() {
        let mut done = turn(Outcome::Finished);
        done.usage = Usage { requests: 1, input_tokens: 5, ..Usage::default() };
        let names = Names { stays: false, is_demo: true, ..NAMES };
        assert!(finished(&done, None, names).is_empty());
    }
}
