//! Styled lines. A [`Span`] makes its text visible when it is built, so nothing that a model, a tool or a file wrote
//! can reach the terminal as a control character, whichever path it took.

use agentd_protocol::show::show_line;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Style {
    #[default]
    Plain,
    Bold,
    Dim,
    Italic,
    /// Code, paths.
    Code,
    /// A command to be copied: never broken over lines.
    Command,
    Good,
    Bad,
    Warn,
}

impl Style {
    /// The SGR parameters that switch it on.
    fn sgr(self) -> Option<&'static str> {
        match self {
            Style::Plain => None,
            Style::Bold => Some("1"),
            Style::Dim => Some("2"),
            Style::Italic => Some("3"),
            Style::Code | Style::Command => Some("36"),
            Style::Good => Some("32"),
            Style::Bad => Some("31"),
            Style::Warn => Some("33"),
        }
    }
}

/// Whether the output may carry colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    Colour,
    None,
}

/// Text of one style, without a line break and with every deceptive character made visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    text: String,
    style: Style,
}

impl Span {
    pub(crate) fn new(style: Style, text: &str) -> Self {
        Self { text: show_line(text), style }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn style(&self) -> Style {
        self.style
    }
}

/// One line of output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    spans: Vec<Span>,
}

impl Line {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn styled(style: Style, text: &str) -> Self {
        Self::new().with(style, text)
    }

    #[must_use]
    pub(crate) fn with(mut self, style: Style, text: &str) -> Self {
        self.push(style, text);
        self
    }

    #[must_use]
    pub(crate) fn plain(self, text: &str) -> Self {
        self.with(Style::Plain, text)
    }

    pub(crate) fn push(&mut self, style: Style, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.spans.last_mut() {
            Some(last) if last.style == style => {
                last.text.push_str(&shown_after(&last.text, text, show_line))
            }
            _ => self.spans.push(Span::new(style, text)),
        }
    }

    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Columns that it takes.
    pub(crate) fn width(&self) -> usize {
        self.spans.iter().map(|span| text_width(&span.text)).sum()
    }

    /// The text without styles.
    pub(crate) fn text(&self) -> String {
        self.spans.iter().map(Span::text).collect()
    }

    /// The same, with commands as this agentctl has to be called.
    #[must_use]
    pub(crate) fn called(&self, program: &str) -> Line {
        self.spans.iter().fold(Line::new(), |line, span| line.with(span.style, &called(&span.text, program)))
    }

    /// `self` after `prefix`.
    #[must_use]
    pub(crate) fn behind(self, prefix: &Line) -> Line {
        let mut line = prefix.clone();
        for span in self.spans {
            line.push(span.style, &span.text);
        }
        line
    }

    /// The first `width` columns, with an ellipsis when something is missing. For titles only: what a person
    /// approves is wrapped, never cut.
    #[must_use]
    pub(crate) fn cut(self, width: usize) -> Line {
        if self.width() <= width {
            return self;
        }
        let mut line = Line::new();
        let mut used = 0;
        'spans: for span in &self.spans {
            let mut kept = String::new();
            for c in span.text.chars() {
                if used + char_width(c) + 1 > width {
                    line.push(span.style, kept.trim_end_matches('\u{200d}'));
                    break 'spans;
                }
                used += char_width(c);
                kept.push(c);
            }
            line.push(span.style, &kept);
        }
        line.with(Style::Dim, "…")
    }

    /// The bytes for the terminal, without a line break.
    pub(crate) fn paint(&self, ink: Ink) -> String {
        let mut painted = String::new();
        for span in &self.spans {
            match span.style.sgr() {
                Some(sgr) if ink == Ink::Colour => {
                    painted.push_str(&format!("\u{1b}[{sgr}m{}\u{1b}[0m", span.text));
                }
                _ => painted.push_str(&span.text),
            }
        }
        painted
    }
}

impl From<&str> for Line {
    fn from(text: &str) -> Self {
        Line::styled(Style::Plain, text)
    }
}

impl From<String> for Line {
    fn from(text: String) -> Self {
        Line::from(text.as_str())
    }
}

/// Columns of one character.
pub(crate) fn char_width(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// Columns of a text without line breaks.
pub(crate) fn text_width(text: &str) -> usize {
    // The same sum as when wrapping goes character by character; `str::width` counts some emoji otherwise.
    if text.is_ascii() { text.width() } else { text.chars().map(char_width).sum() }
}

/// How many characters before a text decide how it is shown: more than the marks that one character may carry.
const CONTEXT: usize = 8;

/// `text` as `show` shows it behind `before`, so that marks combining over the border are counted together.
pub(crate) fn shown_after(before: &str, text: &str, show: fn(&str) -> String) -> String {
    let context = last_chars(before);
    let shown = show(&format!("{context}{text}"));
    // What comes after may change how the border itself is shown; then the text stands alone.
    shown.strip_prefix(show(context).as_str()).map_or_else(|| show(text), str::to_owned)
}

/// The end of `text` that [`shown_after`] needs.
pub(crate) fn last_chars(text: &str) -> &str {
    let start = text.char_indices().rev().nth(CONTEXT - 1).map_or(0, |(index, _)| index);
    text.get(start..).unwrap_or_default()
}

/// What follows the name of this program where it is a command.
pub(crate) const COMMANDS: [&str; 32] = [
    "approve", "archive", "attach", "breaker", "config", "daemon", "demo", "deny", "diff", "events",
    "export", "fork", "help", "import", "key", "log", "ls", "mode", "plan", "rewind", "rm", "rpc", "run",
    "search", "send", "show", "rules", "stop", "trust", "wait", "waiting", "why",
];

/// `text` with `agentctl` at the beginning of a command replaced by `program`. The daemon cannot know how its client is
/// called; a command that is printed has to work when it is pasted.
pub(crate) fn called(text: &str, program: &str) -> String {
    const NAME: &str = "agentctl";
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(NAME) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let begins = out.chars().next_back().is_none_or(|c| c.is_whitespace() || "(`\"'".contains(c));
        // Whatever else the name stands in is no command: `approved by agentctl (7)`.
        let after = from.get(NAME.len()..).unwrap_or_default();
        let word = after.strip_prefix(' ').unwrap_or_default();
        let word = word.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next().unwrap_or_default();
        let command = word.starts_with("--") || COMMANDS.contains(&word);
        if begins && command && !from.starts_with(&format!("{program} ")) {
            out.push_str(program);
        } else {
            out.push_str(NAME);
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// `text` in quotes, on one line, with what cannot be seen shown as everywhere else.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", show_line(text))
}

/// Splits a text into lines with tabs made spaces, ready for [`Span::new`].
pub(crate) fn lines_of(text: &str) -> impl Iterator<Item = String> {
    text.split('\n').map(|line| line.replace('\t', "    "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_escape_of_the_text_survives_painting() {
        let line = Line::styled(Style::Bold, "a\u{1b}[2Jb\nc\u{9b}d\u{202e}");
        assert_eq!(line.paint(Ink::None), "a<U+001B>[2Jb<U+000A>c<U+009B>d<U+202E>");
        assert_eq!(line.paint(Ink::Colour).matches('\u{1b}').count(), 2);
    }

    #[test]
    fn no_character_carries_a_flood_of_marks_over_pushes() {
        let mut line = Line::from("a");
        for _ in 0..20 {
            line.push(Style::Plain, "\u{301}");
        }
        assert!(line.text().contains("\u{301}\u{301}\u{301}\u{301}<U+0301>"), "{}", line.text());
        assert!(!line.text().contains(&"\u{301}".repeat(5)));
    }

    #[test]
    fn joined_emoji_survive_and_lose_nothing_behind_them() {
        assert_eq!(shown_after("👩\u{200d}", "🔬 abc", show_line), "🔬 abc");
        assert_eq!(Line::from("👩").plain("\u{200d}🔬 abc").text(), "👩\u{200d}🔬 abc");
        assert_eq!(Line::from("👩\u{200d}🔬🔬").cut(4).text(), "👩…");
    }

    #[test]
    fn commands_are_printed_as_this_agentctl_is_called() {
        for (program, text, expected) in [
            ("/w/agentctl", "type: agentctl daemon stop", "type: /w/agentctl daemon stop"),
            (
                "/w/agentctl",
                "`agentctl key add x`, or agentctl ls",
                "`/w/agentctl key add x`, or /w/agentctl ls",
            ),
            (
                "/w/agentctl",
                "approved by agentctl (7), /x/agentctl ls",
                "approved by agentctl (7), /x/agentctl ls",
            ),
            ("/w/agentctl", "this agentctl cannot read it", "this agentctl cannot read it"),
            ("agentctl --socket /s", "agentctl --socket /s ls", "agentctl --socket /s ls"),
            ("agentctl --socket /s", "agentctl ls", "agentctl --socket /s ls"),
        ] {
            assert_eq!(called(text, program), expected);
        }
    }

    #[test]
    fn quotes_show_what_cannot_be_seen_as_everywhere_else() {
        assert_eq!(quoted("a\n\u{1b}b"), "\"a<U+000A><U+001B>b\"");
    }

    #[test]
    fn cutting_counts_columns() {
        assert_eq!(Line::from("日本語テキスト").cut(7).text(), "日本語…");
        assert_eq!(Line::from("short").cut(5).text(), "short");
        assert_eq!(Line::from("longer").cut(5).text(), "long…");
        assert_eq!(Line::from("日本").width(), 4);
    }

    #[test]
    fn without_ink_there_is_no_escape() {
        assert_eq!(Line::styled(Style::Bad, "no").paint(Ink::None), "no");
    }
}
