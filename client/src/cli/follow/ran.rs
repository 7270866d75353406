//! What a command left on the screen: the last lines of what it printed, and how it ended.

use agentd_protocol::CallId;
use agentd_protocol::event::{Text, ToolStatus};

use crate::render::style::lines_of;
use crate::render::{Line, Style};

/// So many lines of the output are shown.
const TAIL: usize = 6;

/// What the daemon writes for a command that printed nothing.
const NO_OUTPUT: &str = "[no output]";

/// A command that has ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    call: CallId,
    is_ok: bool,
    /// The end of what it printed.
    tail: Vec<String>,
    /// How many lines it printed.
    printed: usize,
    /// How it ended: `exit code 0`.
    ending: String,
}

impl Ran {
    /// What the result of a call tells. Absent: it is not that of a command that ran to an end.
    pub(super) fn of(id: &CallId, status: ToolStatus, reason: Option<&str>, content: &Text) -> Option<Self> {
        let ended = matches!(status, ToolStatus::Ok | ToolStatus::Error) && reason.is_none();
        let text = match content {
            _ if !ended => return None,
            Text::Inline(text) => text.as_str(),
            Text::Blob(blob) => blob.tail.as_deref()?,
        };
        let (output, last) = text.trim_end().rsplit_once('\n').unwrap_or(("", text.trim_end()));
        let ending = last.strip_prefix('[')?.strip_suffix(']')?.to_owned();
        let mut lines: Vec<String> = lines_of(output.trim_end()).collect();
        lines.retain(|line| line != NO_OUTPUT);
        if lines.iter().all(|line| line.trim().is_empty()) {
            lines.clear();
        }
        let printed = lines.len();
        let tail = lines.split_off(printed.saturating_sub(TAIL));
        Some(Self { call: id.clone(), is_ok: status == ToolStatus::Ok, tail, printed, ending })
    }

    /// The end of the call's id, by which `show` finds it.
    fn short_id(&self) -> &str {
        let token = self.call.token();
        token.get(token.len().saturating_sub(8)..).unwrap_or(token)
    }

    /// Each line of what it printed stays one line. `show` makes the command that shows all of it.
    pub(crate) fn lines(&self, width: usize, show: impl Fn(&str) -> String) -> Vec<Line> {
        let printed =
            self.tail.iter().map(|line| Line::styled(Style::Dim, &format!("    {line}")).cut(width));
        let mut lines: Vec<Line> = printed.collect();
        let mut end = match self.is_ok {
            true => Line::styled(Style::Dim, &format!("  {}", self.ending)),
            false => Line::styled(Style::Bad, &format!("  ✗ {}", self.ending)),
        };
        match self.printed {
            0 => end.push(Style::Dim, ", no output"),
            printed if printed > self.tail.len() || lines.iter().any(|line| line.text().ends_with('…')) => {
                end.push(Style::Dim, &format!(" · all {printed} lines: "));
                end.push(Style::Command, &show(self.short_id()));
            }
            _ => {}
        }
        lines.push(end);
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::approval::tests as samples;

    fn said(status: ToolStatus, content: &str) -> Vec<String> {
        let id = CallId::new(samples::session(), "00112233deadbeef".into());
        let ran = Ran::of(&id, status, None, &Text::Inline(content.into())).unwrap();
        ran.lines(40, |id| format!("agentctl show otter {id}")).iter().map(Line::text).collect()
    }

    #[test]
    fn a_short_output_is_shown_whole() {
        assert_eq!(
            said(ToolStatus::Ok, "one\n\u{1b}[31mtwo\n[exit code 0]"),
            ["    one", "    <U+001B>[31mtwo", "  exit code 0"]
        );
        assert_eq!(said(ToolStatus::Ok, "[no output]\n[exit code 0]"), ["  exit code 0, no output"]);
        assert_eq!(said(ToolStatus::Error, "out\n[exit code 3]"), ["    out", "  ✗ exit code 3"]);
    }

    #[test]
    fn of_a_long_output_the_end_is_shown_and_the_command_for_the_rest() {
        let output: String = (1..=41).map(|n| format!("line {n}\n")).collect();
        let said = said(ToolStatus::Ok, &format!("{output}[exit code 0]"));
        assert_eq!((said.len(), said[0].as_str()), (TAIL + 1, "    line 36"));
        assert_eq!(said[TAIL], "  exit code 0 · all 41 lines: agentctl show otter deadbeef");
    }

    #[test]
    fn a_line_stays_one_line() {
        let said = said(ToolStatus::Ok, &format!("{}\n[exit code 0]", "x".repeat(5000)));
        assert_eq!(said[0].chars().count(), 40);
        assert!(said[1].ends_with("show otter deadbeef"), "{said:?}");
    }

    #[test]
    fn what_did_not_run_to_an_end_is_told_otherwise() {
        let id = CallId::new(samples::session(), "1".into());
        let of = |status, reason, text: &str| Ran::of(&id, status, reason, &Text::Inline(text.into()));
        assert_eq!(of(ToolStatus::Denied, None, "[x]"), None);
        assert_eq!(of(ToolStatus::Error, Some("call.invalid"), "[x]"), None);
        assert_eq!(of(ToolStatus::Error, None, "cannot start it"), None);
    }
}
