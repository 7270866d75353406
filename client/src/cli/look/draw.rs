//! Turns as lines: in short, a line for each thing that happened, or whole, with everything that is known about it.

use agentd_protocol::Timestamp;
use agentd_protocol::approval::Approval;
use agentd_protocol::event::{Text, ToolStatus};
use agentd_protocol::session::Origin;
use agentd_protocol::turn::Outcome;
use serde_json::Value;

use super::transcript::{Answer, Asked, Call, Ended, Entry, Turn};
use crate::cli::follow::settled;
use crate::render::line::{ago, changed_file, tokens};
use crate::render::style::lines_of;
use crate::render::wrap::wrap;
use crate::render::{Line, Style, approval, markdown};

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    Short,
    Whole,
}

/// What drawing needs to know besides the turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page<'a> {
    pub(crate) detail: Detail,
    pub(crate) cwd: &'a str,
    /// Columns; Markdown is rendered only where a person sees it.
    pub(crate) width: usize,
    pub(crate) terminal: bool,
    pub(crate) now: Timestamp,
    /// What a turn without an end is doing.
    pub(crate) open: &'a str,
}

/// How far everything below a turn's header is moved in.
const INDENT: usize = 2;

/// `2026-11-30 17:40 UTC`.
pub(crate) fn clock(at: Timestamp) -> String {
    let text = at.to_string();
    match (text.get(..10), text.get(11..16)) {
        (Some(day), Some(minute)) => format!("{day} {minute} UTC"),
        _ => text,
    }
}

/// The end of an id, by which `show` finds what it names.
pub(crate) fn short(token: &str) -> &str {
    token.get(token.len().saturating_sub(8)..).unwrap_or(token)
}

impl Page<'_> {
    pub(crate) fn turn(&self, turn: &Turn) -> Vec<Line> {
        let mut lines = Vec::new();
        if let Some(number) = turn.number {
            lines.push(self.header(number, turn));
        } else if turn.entries.is_empty() {
            return lines;
        }
        for entry in &turn.entries {
            self.entry(entry, &mut lines);
        }
        if let Some(ended) = &turn.ended {
            // Why there was no answer, and why the turn failed, is one thing.
            let told = turn.entries.iter().any(|entry| match (entry, &ended.error) {
                (Entry::NoAnswer { reason, .. }, Some(error)) => {
                    error.contains(reason.as_str()) || reason.contains(error)
                }
                _ => false,
            });
            self.end(ended, told, &mut lines);
        }
        lines.push(Line::new());
        lines
    }

    fn header(&self, number: u64, turn: &Turn) -> Line {
        let mut line = Line::styled(Style::Bold, &format!("#{number}"));
        let (style, word) = match turn.ended.as_ref().map(|ended| ended.outcome) {
            None => (Style::Warn, self.open),
            Some(outcome @ Outcome::Finished) => (Style::Good, outcome.name()),
            Some(outcome @ (Outcome::Failed | Outcome::Limit)) => (Style::Bad, outcome.name()),
            Some(outcome) => (Style::Warn, outcome.name()),
        };
        if let Some(at) = turn.forgotten {
            let ago = ago(at, self.now);
            line.push(Style::Warn, &format!("  forgotten (rewound {ago} ago)"));
            line.push(Style::Dim, " ·");
        }
        line.push(style, &format!("{}{word}", if turn.forgotten.is_some() { " " } else { "  " }));
        if let Some(at) = turn.started {
            line.push(Style::Dim, &format!(" · {} · {} ago", clock(at), ago(at, self.now)));
        }
        match turn.origin {
            Some(origin) => line.with(Style::Dim, &format!(" · {}", by(origin))),
            None => line,
        }
    }

    pub(crate) fn entry(&self, entry: &Entry, lines: &mut Vec<Line>) {
        match entry {
            Entry::Prompt(text) => self.prompt(text, lines),
            Entry::Answer(answer) => self.answer(answer, lines),
            Entry::Call(call) => self.call(call, lines),
            Entry::Asked(asked) => self.asked(asked, lines),
            Entry::NoAnswer { reason, times } => {
                let times = if *times > 1 { format!(", {times} times") } else { String::new() };
                let text = format!("  The model gave no answer{times}: {reason}");
                lines.push(Line::styled(Style::Dim, &text));
            }
            Entry::Note(line) => lines.push(line.clone().behind(&Line::from("  "))),
        }
    }

    fn prompt(&self, text: &Text, lines: &mut Vec<Line>) {
        let mark = Line::styled(Style::Bold, "> ");
        for line in lines_of(text.preview().trim_end()) {
            lines.extend(self.wrapped(Line::from(line), &mark));
        }
        self.rest(text, lines);
    }

    /// `line` in as many as it needs, each behind `mark`.
    fn wrapped(&self, line: Line, mark: &Line) -> Vec<Line> {
        let room = self.width.saturating_sub(mark.width()).max(20);
        wrap(&line, room, 0).into_iter().map(|line| line.behind(mark)).collect()
    }

    /// Says that a text goes on where it was too long to come along.
    fn rest(&self, text: &Text, lines: &mut Vec<Line>) {
        if let Text::Blob(blob) = text {
            let note = format!("  (it goes on; all of it has {} bytes, see agentctl show)", blob.size);
            lines.push(Line::styled(Style::Dim, &note));
        }
    }

    fn answer(&self, answer: &Answer, lines: &mut Vec<Line>) {
        if self.detail == Detail::Whole {
            lines.push(Line::styled(Style::Dim, &format!("  message {}", short(answer.id.token()))));
            if let Some(thinking) = &answer.thinking {
                lines.push(Line::styled(Style::Dim, "  thinking:"));
                self.text(thinking, Style::Dim, lines);
            }
        }
        let text = answer.text.preview();
        if !text.trim().is_empty() {
            let room = self.width.saturating_sub(INDENT).max(20);
            let body = if self.terminal {
                markdown::render(text, room)
            } else {
                markdown::plain(text, usize::MAX / 2)
            };
            lines.extend(body.into_iter().map(indented));
        }
        self.rest(&answer.text, lines);
        if answer.incomplete {
            lines.push(Line::styled(Style::Dim, "  (cut off here)"));
        }
    }

    fn call(&self, call: &Call, lines: &mut Vec<Line>) {
        let (style, word) = match call.result.as_ref().map(|result| result.status) {
            None => (Style::Warn, "no result yet"),
            Some(ToolStatus::Ok) => (Style::Good, "ok"),
            Some(ToolStatus::Error) => (Style::Bad, "failed"),
            Some(ToolStatus::Denied) => (Style::Bad, "refused"),
            Some(ToolStatus::NotRun) => (Style::Dim, "not run"),
            Some(ToolStatus::Interrupted) => (Style::Warn, "interrupted"),
        };
        let mut end = Line::styled(style, &format!("  {word}"));
        if let Some(reason) = call.result.as_ref().and_then(|result| result.reason.as_deref()) {
            end.push(style, &format!(" ({reason})"));
        }
        end.push(Style::Dim, &format!("  {}", short(call.id.token())));
        let title = Line::styled(Style::Bold, "• ").plain(&call.title);
        // One line a call: what is long is its title, and `show` has it whole.
        let room = self.width.saturating_sub(end.width()).max(20);
        let title = if self.detail == Detail::Short && self.terminal { title.cut(room) } else { title };
        lines.push(end.behind(&title));
        lines.extend(call.files.iter().map(|(path, changed)| changed_file(path, *changed, self.cwd)));
        if self.detail == Detail::Whole {
            self.call_inside(call, lines);
        }
    }

    fn call_inside(&self, call: &Call, lines: &mut Vec<Line>) {
        lines.push(Line::styled(Style::Dim, "  tool  ").plain(&call.tool));
        lines.push(Line::styled(Style::Dim, "  id    ").plain(&call.id.to_string()));
        for decided in &call.decided {
            let rule = decided.rule.as_ref().map_or(String::new(), |rule| format!(", by the rule {rule}"));
            lines.push(
                Line::styled(Style::Dim, "  gate  ")
                    .plain(&format!("{} ({}){rule}", decided.decision, decided.reason)),
            );
            if let Some(note) = &decided.note {
                lines.push(Line::styled(Style::Dim, "        ").plain(note));
            }
        }
        lines.push(Line::styled(Style::Dim, "  input"));
        self.input(&call.input, lines);
        let Some(result) = &call.result else { return };
        self.part("  output", &result.content, Style::Plain, lines);
        if let Some(diff) = &result.diff {
            lines.push(Line::styled(Style::Dim, "  diff"));
            for line in lines_of(diff.preview().trim_end()) {
                let style = match line.chars().next() {
                    Some('+') => Style::Good,
                    Some('-') => Style::Bad,
                    Some('@') => Style::Dim,
                    _ => Style::Plain,
                };
                lines.extend(self.wrapped(Line::styled(style, &line), &Line::from("    ")));
            }
            self.rest(diff, lines);
        }
    }

    /// Arguments by name, texts as texts.
    fn input(&self, input: &Value, lines: &mut Vec<Line>) {
        let Some(fields) = input.as_object() else {
            let text = input.as_str().map_or_else(|| input.to_string(), str::to_owned);
            return self.text(&Text::Inline(text), Style::Code, lines);
        };
        for (name, value) in fields {
            let name = Line::styled(Style::Dim, &format!("    {name}: "));
            match value.as_str() {
                Some(text) if text.contains('\n') => {
                    lines.push(name);
                    for line in lines_of(text.trim_end()) {
                        lines.extend(self.wrapped(Line::styled(Style::Code, &line), &Line::from("      ")));
                    }
                }
                Some(text) => lines.push(name.with(Style::Code, text)),
                None => lines.push(name.with(Style::Code, &value.to_string())),
            }
        }
    }

    fn part(&self, name: &str, text: &Text, style: Style, lines: &mut Vec<Line>) {
        lines.push(Line::styled(Style::Dim, name));
        self.text(text, style, lines);
    }

    fn text(&self, text: &Text, style: Style, lines: &mut Vec<Line>) {
        for line in lines_of(text.preview().trim_end()) {
            lines.extend(self.wrapped(Line::styled(style, &line), &Line::from("    ")));
        }
        self.rest(text, lines);
    }

    fn asked(&self, asked: &Asked, lines: &mut Vec<Line>) {
        let Approval { title, subject, .. } = &asked.approval;
        let line = Line::styled(Style::Warn, "? ").plain(&format!("{} \"{title}\": ", subject.kind().name()));
        let answer = match &asked.settled {
            Some(by) => {
                let offered = asked.approval.choices.iter().find(|offered| Some(offered.id) == by.choice);
                let label = offered.map(|offered| offered.label.as_str());
                settled(by.resolution, by.choice, label, &by.by, by.feedback.as_deref())
            }
            None => Line::styled(Style::Warn, &format!("waits, {}", approval::short_id(&asked.approval))),
        };
        lines.push(answer.behind(&line));
    }

    fn end(&self, ended: &Ended, told: bool, lines: &mut Vec<Line>) {
        if let Some(error) = ended.error.as_ref().filter(|_| !told) {
            lines.push(Line::styled(Style::Bad, &format!("  {error}")));
        }
        if self.detail == Detail::Short {
            return;
        }
        for denial in &ended.denials {
            let text = format!("  refused ({}): {}", denial.reason, denial.title);
            lines.push(Line::styled(Style::Dim, &text));
        }
        if ended.usage.requests > 0 {
            lines.push(Line::styled(Style::Dim, &format!("  Tokens: {}", tokens(&ended.usage))));
        }
    }
}

fn indented(line: Line) -> Line {
    if line.is_empty() { line } else { line.behind(&Line::from("  ")) }
}

pub(crate) fn by(origin: Origin) -> &'static str {
    match origin {
        Origin::Client => "by a person",
        Origin::Program => "by a program",
        Origin::Schedule => "by a schedule",
        Origin::Trigger => "by a trigger",
        Origin::Agent => "by an agent",
        Origin::Hook => "by a hook",
    }
}
