//! An approval, whole. Every line of it stands behind a gutter at the left edge, where nothing that a model or a tool
//! wrote can print, and nothing in it is ever cut.

use std::path::Path;

use agentd_protocol::approval::{
    Approval, ChoiceId, PlanSubject, Question, QuestionSubject, Subject, ToolSubject, TrustSubject,
};
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
    let mut page = Page { width: frame.width, labels: *LABELS.start(), lines: Vec::new() };
    let kind = question(approval, frame);
    page.edge("╭─ ", Line::styled(Style::Bold, kind).with(Style::Dim, "  ").with(Style::Dim, frame.handle));
    page.subject(approval, frame);
    // At the left edge, so a plan cannot end in a list of choices of its own.
    page.edge("├─", Line::new());
    page.choices(approval, frame);
    if let Some(expires) = approval.expires_at {
        page.line(Line::styled(Style::Dim, &format!("Refused by itself at {expires}.")), 0);
    }
    page.edge("╰─", Line::new());
    page.lines
}

fn question(approval: &Approval, frame: Frame<'_>) -> &'static str {
    match &approval.subject {
        Subject::Tool { .. } => "May this run?",
        Subject::Plan { .. } if frame.edited.is_some() => "Your version of the plan. Carry it out?",
        Subject::Plan { .. } => "May this plan be carried out?",
        Subject::Question { .. } => "The session asks you",
        Subject::Trust { .. } => "Do you trust this project?",
    }
}

/// The same for one that nobody is asked here and now: with the commands that answer it in the place of choices.
pub(crate) fn draw_told(approval: &Approval, frame: Frame<'_>, program: &str) -> Vec<Line> {
    let mut page = Page { width: frame.width, labels: *LABELS.start(), lines: Vec::new() };
    page.edge(
        "╭─ ",
        Line::styled(Style::Bold, question(approval, frame))
            .with(Style::Dim, "  ")
            .with(Style::Dim, frame.handle),
    );
    page.subject(approval, frame);
    page.edge("╰─", Line::new());
    let deny = format!("deny {}", short_id(approval));
    // Below it and on lines of their own, to be copied.
    for (what, command) in [("Yes: ", next_command(approval)), ("No, until it changes: ", deny)] {
        page.lines.push(Line::styled(Style::Dim, what).with(Style::Command, &format!("{program} {command}")));
    }
    page.lines
}

/// What has to be typed to answer `approval` from anywhere, without its leading `agentctl`.
pub(crate) fn next_command(approval: &Approval) -> String {
    let id = short_id(approval);
    match &approval.subject {
        // Carrying it out would be refused.
        Subject::Plan { plan } if plan.blocked => format!("deny {id} -m \"what should change\""),
        Subject::Plan { plan } => format!("approve {id} execute --revision {}", short_digest(plan.revision)),
        Subject::Tool { .. } => format!("approve {id} allowOnce --digest {}", short_digest(approval.digest)),
        Subject::Trust { .. } => format!("approve {id} trust --digest {}", short_digest(approval.digest)),
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

/// Longer names of options put their descriptions out of the column.
const WIDEST_OPTION: usize = 30;

/// The numbered answers that `question` offers.
pub(crate) fn options(question: &Question) -> Vec<Line> {
    let mut lines = Vec::new();
    let described = question.options.iter().filter(|option| option.description.is_some());
    let column = described.map(|option| text_width(&option.label)).max().unwrap_or(0).min(WIDEST_OPTION);
    for (number, option) in (1..).zip(&question.options) {
        let line = Line::styled(Style::Bold, &format!("{number}  ")).plain(&option.label);
        lines.push(match &option.description {
            Some(description) => {
                let pad = " ".repeat(column.saturating_sub(text_width(&option.label)) + 2);
                line.plain(&pad).with(Style::Dim, description)
            }
            None => line,
        });
    }
    if question.multi_select {
        lines.push(Line::styled(Style::Dim, "Several are possible: 1,3"));
    }
    lines
}

/// What a reason code of the gate means to a person, and whether it is a warning.
fn reason_text(code: &str) -> Option<(&'static str, Style)> {
    Some(match code {
        "command.critical" => {
            ("this command can destroy much at once; it is asked about in every mode", Style::Warn)
        }
        "command.unconfined" => {
            ("nothing limits a command once it runs, so each is asked about", Style::Plain)
        }
        "write.workspace" => ("it changes a file of the project", Style::Plain),
        "write.elsewhere" => ("it writes outside of the project folder", Style::Warn),
        "read.elsewhere" => ("it reads outside of the project folder", Style::Plain),
        "path.protected" => (
            "what is in this file may run by itself later, as hooks, start-up files, CI and editor settings do; it is \
             asked about in every mode",
            Style::Warn,
        ),
        "path.unresolved" => ("it could not be found out where this path leads", Style::Warn),
        "auto.noAnswer" => ("mode auto would have asked its classifier", Style::Plain),
        "rule.ask" => ("a rule of your settings asks about it", Style::Plain),
        _ => return None,
    })
}

/// Labels stand in a column as wide as the widest of them, within these bounds.
const LABELS: std::ops::RangeInclusive<usize> = 9..=14;

/// Said of a plan whose file is empty or too long.
pub(crate) const BLOCKED: &str = "The plan's file was changed since, and what is in it now cannot be approved: it is empty \
                                  or too long. Until it is mended, this plan cannot be carried out.";

struct Page {
    width: usize,
    /// Columns of the labels.
    labels: usize,
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
        let name = show_line(name);
        let pad = " ".repeat(self.labels.saturating_sub(text_width(&name)) + 1);
        let hang = self.labels + 1;
        for (index, text) in lines_of(value).enumerate() {
            let start = if index == 0 { format!("{name}{pad}") } else { " ".repeat(hang) };
            self.line(Line::styled(Style::Dim, &start).with(style, &text), hang);
        }
    }

    fn tool(&mut self, tool: &ToolSubject, home: Option<&Path>) {
        let names = tool.input.as_object().into_iter().flat_map(serde_json::Map::keys);
        let widest = names.map(|name| text_width(&show_line(name))).max().unwrap_or(0);
        self.labels = widest.clamp(*LABELS.start(), *LABELS.end());
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
        // Where it runs stands above.
        let in_its_folder = format!("run in {}", tool.cwd);
        for effect in tool.effects.iter().filter(|effect| **effect != in_its_folder) {
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
        let (why, style) = reason_text(&tool.reason)
            .map_or((String::new(), Style::Dim), |(text, style)| (format!("{text} "), style));
        self.label("why", &format!("{why}({})", tool.reason), style);
        if let Some(note) = &tool.note {
            self.label("note", note, Style::Warn);
        }
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
        if plan.blocked && edited.is_none() {
            self.blank();
            self.line(Line::styled(Style::Warn, BLOCKED), 0);
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

    fn subject(&mut self, approval: &Approval, frame: Frame<'_>) {
        match &approval.subject {
            Subject::Tool { tool } => self.tool(tool, frame.home),
            Subject::Plan { plan } => self.plan(plan, frame),
            Subject::Question { question } => self.questions(question),
            Subject::Trust { trust } => self.trust(trust, frame.home),
        }
    }

    fn trust(&mut self, trust: &TrustSubject, home: Option<&Path>) {
        self.one_line("project", &short_path(&trust.root, home), Style::Code);
        let text =
            "Its deny and ask rules hold in any case. Until you trust it, what stands here does not count:";
        self.line(Line::from(text), 0);
        for item in &trust.items {
            self.blank();
            let place = item.place.as_deref().map(|place| short_path(place, home)).unwrap_or_default();
            let place = show_line(&place);
            self.line(
                Line::styled(Style::Bold, &show_line(&item.key)).with(Style::Dim, &format!("  {place}")),
                2,
            );
            for text in lines_of(&item.content) {
                self.line(Line::styled(Style::Plain, "  ").plain(&text), 2);
            }
        }
        if let Some(diff) = &trust.diff {
            self.blank();
            let by =
                trust.trusted_by.as_deref().map(|by| format!(", by {}", show_line(by))).unwrap_or_default();
            self.line(Line::styled(Style::Bold, &format!("Changed since it was trusted{by}")), 0);
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
                let blocked =
                    matches!(subject, Subject::Plan { plan } if plan.blocked && frame.edited.is_none());
                let works = |id: ChoiceId| !blocked || id == ChoiceId::KeepPlanning;
                for (number, choice) in (1..).zip(&approval.choices).filter(|(_, choice)| works(choice.id)) {
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
pub(crate) mod tests;
