//! An approval, whole. Every line of it stands behind a gutter at the left edge, where nothing that a model or a tool
//! wrote can print, and nothing in it is ever cut.

use std::path::Path;

use agentd_protocol::approval::{Approval, PlanSubject, Question, QuestionSubject, Subject, ToolSubject};
use agentd_protocol::mode::Mode;
use agentd_protocol::show::show_line;
use serde_json::Value;

use super::line::short_path;
use super::markdown;
use super::style::{Line, Style, lines_of, text_width};
use super::wrap::wrap;

/// What an approval is drawn with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    /// The session's name.
    pub(crate) handle: &'a str,
    /// Where leaving plan mode leads. Only for plans.
    pub(crate) pre_mode: Option<Mode>,
    /// A person's own version of the plan, shown in place of the session's.
    pub(crate) edited: Option<&'a str>,
    /// Shown as `~`.
    pub(crate) home: Option<&'a Path>,
    /// Columns of the terminal.
    pub(crate) width: usize,
}

/// Everything that `approval` asks, and its choices.
pub(crate) fn draw(approval: &Approval, frame: Frame<'_>) -> Vec<Line> {
    let mut page = Page { width: frame.width, lines: Vec::new() };
    let kind = match &approval.subject {
        Subject::Tool { .. } => "May this run?",
        Subject::Plan { .. } if frame.edited.is_some() => "Your version of the plan. Carry it out?",
        Subject::Plan { .. } => "May this plan be carried out?",
        Subject::Question { .. } => "The session asks you",
    };
    page.edge("╭─ ", Line::styled(Style::Bold, kind).with(Style::Dim, "  ").with(Style::Dim, frame.handle));
    match &approval.subject {
        Subject::Tool { tool } => page.tool(tool, frame.home),
        Subject::Plan { plan } => page.plan(plan, frame),
        Subject::Question { question } => page.questions(question),
    }
    // At the left edge, so a plan cannot end in a list of choices of its own.
    page.edge("├─", Line::new());
    page.choices(approval, frame);
    if let Some(expires) = approval.expires_at {
        page.line(Line::styled(Style::Dim, &format!("Refused by itself at {expires}.")), 0);
    }
    page.edge("╰─", Line::new());
    page.lines
}

/// What has to be typed to answer `approval` from anywhere, without its leading `agentctl`.
pub(crate) fn next_command(approval: &Approval) -> String {
    let id = short_id(approval);
    match &approval.subject {
        Subject::Plan { plan } => format!("approve {id} execute --revision {}", short_digest(plan.revision)),
        Subject::Tool { .. } => format!("approve {id} allowOnce --digest {}", short_digest(approval.digest)),
        Subject::Question { .. } => {
            format!("approve {id} answer --digest {} -m \"your answer\"", short_digest(approval.digest))
        }
    }
}

/// The end of the id; commands find the approval by it.
pub(crate) fn short_id(approval: &Approval) -> String {
    let token = approval.approval_id.token();
    token.get(token.len().saturating_sub(8)..).unwrap_or(token).to_owned()
}

pub(crate) fn short_digest(digest: agentd_protocol::Digest) -> String {
    digest.hex().chars().take(12).collect()
}

/// The numbered answers that `question` offers.
pub(crate) fn options(question: &Question) -> Vec<Line> {
    let mut lines = Vec::new();
    for (number, option) in (1..).zip(&question.options) {
        let line = Line::styled(Style::Bold, &format!("{number}  ")).plain(&option.label);
        lines.push(match &option.description {
            Some(description) => line.with(Style::Dim, &format!("  {description}")),
            None => line,
        });
    }
    if question.multi_select {
        lines.push(Line::styled(Style::Dim, "Several are possible: 1,3"));
    }
    lines
}

struct Page {
    width: usize,
    lines: Vec<Line>,
}

impl Page {
    fn inner(&self) -> usize {
        self.width.saturating_sub(2).max(20)
    }

    fn edge(&mut self, corner: &str, line: Line) {
        let line = line.cut(self.width.saturating_sub(4));
        self.lines.push(line.behind(&Line::styled(Style::Warn, corner)));
    }

    /// A line behind the gutter, wrapped.
    fn line(&mut self, line: Line, hang: usize) {
        for line in wrap(&line, self.inner(), hang) {
            self.lines.push(line.behind(&Line::styled(Style::Warn, "│ ")));
        }
    }

    fn blank(&mut self) {
        self.line(Line::new(), 0);
    }

    /// A value that is one line whatever is in it: a path, an effect.
    fn one_line(&mut self, name: &str, value: &str, style: Style) {
        self.label(name, &show_line(value), style);
    }

    fn label(&mut self, name: &str, value: &str, style: Style) {
        let start = format!("{name:<9} ");
        let hang = start.len();
        for (index, text) in lines_of(value).enumerate() {
            let start = if index == 0 { start.clone() } else { " ".repeat(hang) };
            self.line(Line::styled(Style::Dim, &start).with(style, &text), hang);
        }
    }

    fn tool(&mut self, tool: &ToolSubject, home: Option<&Path>) {
        self.one_line("tool", &tool.tool, Style::Plain);
        let mut shown: Vec<&str> = Vec::new();
        if let Some(Value::String(command)) = tool.input.get("command") {
            shown.push("command");
            self.label("command", command, Style::Bold);
        }
        if tool.diff.is_some() {
            // The diff is these, whole.
            shown.extend(["content", "old_string", "new_string"]);
        }
        self.one_line("in", &short_path(&tool.cwd, home), Style::Code);
        for effect in &tool.effects {
            // A command may have several lines; a name of a file has one, whatever is in it.
            if effect.starts_with("run ") {
                self.label("does", effect, Style::Plain);
            } else {
                self.one_line("does", effect, Style::Plain);
            }
        }
        match tool.confinement.as_deref() {
            Some("off") => self.label("rights", "runs with your full rights", Style::Bad),
            Some("workspace") => self.label("rights", "confined to the project folder", Style::Plain),
            Some("plan") => self.label("rights", "confined: cannot write anything", Style::Plain),
            Some(other) => self.label("rights", other, Style::Plain),
            None => {}
        }
        self.label("asks", &tool.reason, Style::Dim);
        match &tool.input {
            Value::Object(fields) => {
                for (name, value) in fields.iter().filter(|(name, _)| !shown.contains(&name.as_str())) {
                    match value {
                        Value::String(path) if matches!(name.as_str(), "file_path" | "path") => {
                            self.one_line(name, path, Style::Plain);
                        }
                        Value::String(text) => self.label(name, text, Style::Plain),
                        other => self.label(name, &other.to_string(), Style::Plain),
                    }
                }
            }
            other => self.label("input", &other.to_string(), Style::Plain),
        }
        if let Some(diff) = &tool.diff {
            self.blank();
            self.diff(diff);
        }
    }

    fn plan(&mut self, plan: &PlanSubject, frame: Frame<'_>) {
        let edited = frame.edited;
        self.one_line("plan", &short_path(&plan.path, frame.home), Style::Code);
        match edited {
            None => self.label("revision", &short_digest(plan.revision), Style::Dim),
            Some(_) => self.label("replaces", &short_digest(plan.revision), Style::Dim),
        }
        if let (Some(note), None) = (&plan.note, edited) {
            self.blank();
            for text in lines_of(note) {
                self.line(Line::styled(Style::Warn, &text), 0);
            }
        }
        self.blank();
        let content = edited.unwrap_or(&plan.content);
        for line in markdown::render(content, self.inner()) {
            self.line(line, 0);
        }
        if let (Some(diff), None) = (&plan.diff, edited) {
            self.blank();
            self.line(Line::styled(Style::Bold, "Changed since you last saw it"), 0);
            self.diff(diff);
        }
    }

    fn questions(&mut self, subject: &QuestionSubject) {
        for (index, question) in subject.questions.iter().enumerate() {
            if index > 0 {
                self.blank();
            }
            // Options have numbers too.
            if subject.questions.len() > 1 {
                let heading = format!("Question {} of {}", index + 1, subject.questions.len());
                self.line(Line::styled(Style::Dim, &heading), 0);
            }
            for text in lines_of(&question.question) {
                self.line(Line::styled(Style::Bold, &text), 0);
            }
            for line in options(question) {
                self.line(line, 3);
            }
        }
    }

    fn diff(&mut self, diff: &str) {
        for text in lines_of(diff.trim_end_matches('\n')) {
            let style = match text.as_bytes().first() {
                Some(b'+') => Style::Good,
                Some(b'-') => Style::Bad,
                Some(b'@') => Style::Code,
                _ => Style::Plain,
            };
            self.line(Line::styled(style, &text), 2);
        }
    }

    fn choices(&mut self, approval: &Approval, frame: Frame<'_>) {
        match &approval.subject {
            Subject::Question { .. } => {
                self.line(Line::from("A number, or your own words. 0 declines, q leaves it waiting."), 0);
            }
            subject => {
                let leave = match (subject, frame.pre_mode) {
                    (Subject::Plan { .. }, Some(mode)) => Some(("Leave plan mode, nothing is done", mode)),
                    _ => None,
                };
                let labels = approval.choices.iter().map(|choice| choice.label.as_str());
                let column =
                    labels.chain(leave.map(|(label, _)| label)).map(text_width).max().unwrap_or(0).min(60);
                // Where every choice leads to one mode, that mode tells nothing.
                let modes_differ = approval.choices.windows(2).any(|two| match two {
                    [one, other] => one.mode_after != other.mode_after,
                    _ => false,
                });
                for (number, choice) in (1..).zip(&approval.choices) {
                    let then = modes_differ.then_some(choice.mode_after);
                    self.choice(&number.to_string(), &choice.label, then, column);
                }
                if let Subject::Plan { .. } = subject {
                    self.choice("e", "Edit the plan", None, column);
                }
                if let Some((label, mode)) = leave {
                    self.choice("d", label, Some(mode), column);
                }
                self.choice("q", "Leave it waiting", None, column);
            }
        }
    }

    fn choice(&mut self, key: &str, label: &str, then: Option<Mode>, column: usize) {
        let mut line = Line::styled(Style::Bold, &format!("{key}  ")).plain(label);
        if let Some(mode) = then {
            let pad = column.saturating_sub(text_width(label)) + 2;
            line = line.plain(&" ".repeat(pad)).with(Style::Dim, &format!("then mode {mode}"));
        }
        self.line(line, 3);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use agentd_protocol::approval::{Choice, ChoiceId, QuestionOption};
    use agentd_protocol::{ApprovalId, CallId, Digest, SessionId, Timestamp};

    use super::*;

    pub(crate) fn session() -> SessionId {
        "0193aaaa-0000-7000-8000-000000000001".parse().unwrap()
    }

    pub(crate) fn approval_id(token: &str) -> ApprovalId {
        ApprovalId::new(session(), token.into())
    }

    fn approval(subject: Subject, choices: Vec<Choice>) -> Approval {
        Approval {
            approval_id: approval_id("9b1c00000000000000000000deadbeef"),
            subject,
            title: "t".into(),
            choices,
            digest: Digest::from_bytes([0x77; 32]),
            expires_at: None,
            requested_at: Timestamp::from_unix_ms(0),
        }
    }

    fn choice(id: ChoiceId, label: &str, mode_after: Mode) -> Choice {
        Choice { id, label: label.into(), mode_after }
    }

    pub(crate) fn plan(content: &str) -> Approval {
        approval(
            Subject::Plan {
                plan: PlanSubject {
                    path: "/home/u/.local/state/agentd/plans/api-paging.md".into(),
                    revision: Digest::from_bytes([0x3f; 32]),
                    content: content.into(),
                    diff: None,
                    cycle: 1,
                    note: None,
                },
            },
            vec![
                choice(
                    ChoiceId::ClearAndExecute,
                    "Start fresh with only the plan, edits without asking",
                    Mode::AcceptEdits,
                ),
                choice(ChoiceId::Execute, "Start, edits without asking", Mode::AcceptEdits),
                choice(ChoiceId::ManualExecute, "Start in the mode from before planning", Mode::Default),
                choice(ChoiceId::KeepPlanning, "Keep planning, with feedback", Mode::Plan),
            ],
        )
    }

    pub(crate) fn tool(command: &str) -> Approval {
        approval(
            Subject::Tool {
                tool: ToolSubject {
                    call_id: CallId::new(session(), "c1".into()),
                    tool: "run_shell".into(),
                    input: serde_json::json!({"command": command, "timeout_ms": 1000}),
                    cwd: "/home/u/api".into(),
                    effects: vec![format!("run {command}")],
                    confinement: Some("off".into()),
                    reason: "command.unconfined".into(),
                    diff: None,
                },
            },
            vec![
                choice(ChoiceId::AllowOnce, "Allow once", Mode::Default),
                choice(ChoiceId::Deny, "Deny", Mode::Default),
            ],
        )
    }

    pub(crate) fn question(questions: Vec<Question>) -> Approval {
        approval(
            Subject::Question {
                question: QuestionSubject { call_id: CallId::new(session(), "c2".into()), questions },
            },
            vec![
                choice(ChoiceId::Answer, "Answer", Mode::Plan),
                choice(ChoiceId::Decline, "No answer", Mode::Plan),
            ],
        )
    }

    pub(crate) fn one_question() -> Question {
        Question {
            question: "Which cursor?".into(),
            options: vec![
                QuestionOption { label: "opaque".into(), description: Some("an id, encoded".into()) },
                QuestionOption { label: "offset".into(), description: None },
            ],
            multi_select: false,
        }
    }

    fn frame(width: usize) -> Frame<'static> {
        let home = Some(Path::new("/home/u"));
        Frame { handle: "api-paging-otter", pre_mode: Some(Mode::Default), edited: None, home, width }
    }

    fn text(approval: &Approval, frame: Frame<'_>) -> String {
        draw(approval, frame)
            .iter()
            .map(|line| line.text().trim_end().to_owned())
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn a_plan_approval() {
        insta::assert_snapshot!(text(&plan("# Paging\n\n1. Add `Page`.\n2. Test it.\n"), frame(80)));
    }

    #[test]
    fn a_plan_approval_at_160_columns() {
        insta::assert_snapshot!(text(&plan("# Paging\n\n1. Add `Page`.\n2. Test it.\n"), frame(160)));
    }

    #[test]
    fn a_tool_approval() {
        insta::assert_snapshot!(text(&tool("cargo test --workspace && git status"), frame(80)));
    }

    #[test]
    fn a_question() {
        insta::assert_snapshot!(text(&question(vec![one_question()]), frame(80)));
    }

    #[test]
    fn several_questions_are_numbered_apart_from_their_options() {
        let text = text(&question(vec![one_question(), one_question()]), frame(80));
        assert!(text.contains("│ Question 1 of 2\n│ Which cursor?\n│ 1  opaque"), "{text}");
        assert!(text.contains("│ Question 2 of 2\n"), "{text}");
    }

    #[test]
    fn a_line_break_in_a_name_begins_no_line() {
        let mut approval = tool("x");
        if let Subject::Tool { tool } = &mut approval.subject {
            tool.input = serde_json::json!({"file_path": "a\nrights    none"});
            tool.effects = vec!["write a\nrights    none".into()];
            tool.cwd = "/w/a\nb".into();
        }
        let text = text(&approval, frame(80));
        assert_eq!(text.matches("<U+000A>").count(), 3, "{text}");
        assert!(!text.contains("│ rights    none"), "{text}");
    }

    #[test]
    fn an_edit_shows_its_whole_diff_once() {
        let mut approval = tool("x");
        if let Subject::Tool { tool } = &mut approval.subject {
            tool.input =
                serde_json::json!({"file_path": "src/a.rs", "old_string": "OLD", "new_string": "NEW"});
            tool.diff = Some("@@ -1 +1 @@\n-OLD\n+NEW\n".into());
        }
        let text = text(&approval, frame(80));
        assert!(text.contains("src/a.rs"));
        assert_eq!((text.matches("OLD").count(), text.matches("NEW").count()), (1, 1));
    }

    #[test]
    fn a_long_command_is_whole_at_every_width() {
        let command: String = (0..500).map(|n| format!("step{n} && ")).collect::<String>() + "curl x|sh";
        for width in [20, 80, 160] {
            let joined: String = text(&tool(&command), frame(width)).replace(['\n', '│', ' '], "");
            assert!(joined.contains(&command.replace(' ', "")), "{width}");
        }
    }

    #[test]
    fn nothing_prints_in_the_gutter() {
        let hostile = "x\n╰─\n│ 1  Allow\r\u{1b}[1G1  Allow\u{9b}A\n1  Allow once\n\n```\n1 Allow\n```";
        for approval in [plan(hostile), tool(hostile)] {
            for width in [20, 80, 160] {
                let lines = draw(&approval, frame(width));
                let last = lines.len() - 1;
                let edges: Vec<usize> =
                    (0..last).filter(|index| lines[*index].text().starts_with('├')).collect();
                assert_eq!(edges.len(), 1);
                let edge = edges[0];
                for (index, line) in lines.iter().enumerate() {
                    let start = match index {
                        0 => "╭─ ",
                        n if n == edge => "├─",
                        n if n == last => "╰─",
                        _ => "│ ",
                    };
                    let painted = line.paint(super::super::style::Ink::None);
                    assert!(painted.starts_with(start), "{painted:?}");
                    assert!(!painted.contains(['\u{1b}', '\r', '\u{9b}']), "{painted:?}");
                    assert!(line.width() <= width.max(22), "{width}: {painted:?}");
                }
            }
        }
    }

    #[test]
    fn an_edited_plan_shows_the_new_text_only() {
        let approval = plan("# Theirs");
        let text = text(&approval, Frame { edited: Some("# Mine"), ..frame(80) });
        assert!(text.contains("Mine") && !text.contains("Theirs"));
        assert!(text.contains("Your version"));
    }

    #[test]
    fn the_next_command_names_what_was_seen() {
        assert_eq!(next_command(&plan("")), "approve deadbeef execute --revision 3f3f3f3f3f3f");
        assert_eq!(next_command(&tool("x")), "approve deadbeef allowOnce --digest 777777777777");
    }
}
