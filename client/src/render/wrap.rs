//! Breaking lines at the terminal's width: whole ones by words, and text that is still being written.

use agentd_protocol::show::show;

use super::style::{Line, Style, char_width, last_chars, shown_after};

/// Breaks `line` into lines of at most `width` columns, at spaces where possible. A command is never broken: what does
/// not fit goes on a line of its own, even if that is too long. Nothing is dropped but the spaces at a break. Lines after the first begin with `hang` spaces.
pub(crate) fn wrap(line: &Line, width: usize, hang: usize) -> Vec<Line> {
    let width = width.max(8);
    let hang = hang.min(width / 2);
    let mut wrapper = Wrapper {
        width,
        hang,
        done: Vec::new(),
        line: Line::new(),
        col: 0,
        word: Vec::new(),
        gap: Vec::new(),
    };
    for span in line.spans() {
        for c in span.text().chars() {
            wrapper.take(c, span.style());
        }
    }
    wrapper.finish()
}

struct Wrapper {
    width: usize,
    hang: usize,
    done: Vec<Line>,
    line: Line,
    col: usize,
    /// The word being read; it goes on the line or, whole, on the next.
    word: Vec<(char, Style)>,
    /// The spaces before it, dropped when the line breaks there.
    gap: Vec<(char, Style)>,
}

impl Wrapper {
    fn take(&mut self, c: char, style: Style) {
        if let Some((last, before)) = self.word.last()
            && (*before == Style::Command) != (style == Style::Command)
            && *last != '\u{200d}'
        {
            self.end_word();
        }
        if style == Style::Command {
            self.word.push((c, style));
            return;
        }
        if c == ' ' {
            self.end_word();
            self.gap.push((c, style));
            return;
        }
        // East Asian text has no spaces: every wide character may begin a line, unless it is part of the picture before.
        if char_width(c) == 2 && self.word.last().is_none_or(|(last, _)| *last != '\u{200d}') {
            self.end_word();
        }
        self.word.push((c, style));
    }

    fn end_word(&mut self) {
        let word = std::mem::take(&mut self.word);
        if word.is_empty() {
            return;
        }
        let columns = |chars: &[(char, Style)]| chars.iter().map(|(c, _)| char_width(*c)).sum::<usize>();
        let gap = std::mem::take(&mut self.gap);
        if self.col + columns(&gap) + columns(&word) <= self.width {
            self.put(&gap);
        } else if self.col > self.start() {
            self.break_line();
        }
        self.put(&word);
    }

    /// Puts characters on the line, breaking it wherever they do not fit.
    fn put(&mut self, chars: &[(char, Style)]) {
        for run in chars.chunk_by(|(_, one), (_, other)| one == other) {
            let style = run.first().map_or(Style::Plain, |(_, style)| *style);
            let mut text = String::new();
            for (c, _) in run {
                if self.col + char_width(*c) > self.width && style != Style::Command {
                    self.line.push(style, &std::mem::take(&mut text));
                    self.break_line();
                }
                text.push(*c);
                self.col += char_width(*c);
            }
            self.line.push(style, &text);
        }
    }

    fn start(&self) -> usize {
        if self.done.is_empty() { 0 } else { self.hang }
    }

    fn break_line(&mut self) {
        self.done.push(std::mem::take(&mut self.line));
        self.line = Line::from(" ".repeat(self.hang));
        self.col = self.hang;
    }

    fn finish(mut self) -> Vec<Line> {
        self.end_word();
        self.done.push(self.line);
        self.done
    }
}

/// Columns that streamed text stays clear of, so that what agentctl says itself, at the left edge, cannot be imitated.
const STREAM_INDENT: usize = 2;

/// Turns text that comes in pieces into terminal output. Nothing is held back: when a word turns out not to fit, it is
/// taken back from the end of its line and begun again on the next.
#[derive(Debug)]
pub(crate) struct StreamWrap {
    width: usize,
    /// Whether the terminal understands cursor movement.
    cursor: bool,
    col: usize,
    /// The word at the end of the line, as it was printed.
    word: String,
    word_cols: usize,
    /// The end of the text before, so that combining marks are counted over the border of two pieces.
    tail: String,
}

impl StreamWrap {
    pub(crate) fn new(width: usize, cursor: bool) -> Self {
        Self {
            width: width.max(STREAM_INDENT + 8),
            cursor,
            col: 0,
            word: String::new(),
            word_cols: 0,
            tail: String::new(),
        }
    }

    /// The terminal has another width now.
    pub(crate) fn resize(&mut self, width: usize) {
        self.width = width.max(STREAM_INDENT + 8);
    }

    /// The output for the next piece.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let shown = shown_after(&self.tail, text, show);
        self.tail = last_chars(&format!("{}{text}", self.tail)).to_owned();
        let mut out = String::new();
        for c in shown.chars() {
            self.put(c, &mut out);
        }
        out
    }

    /// Ends the line, if one is begun, and forgets the text before.
    pub(crate) fn end(&mut self) -> &'static str {
        self.tail.clear();
        let open = self.col > 0;
        self.new_line();
        if open { "\n" } else { "" }
    }

    fn put(&mut self, c: char, out: &mut String) {
        match c {
            '\n' => {
                out.push('\n');
                self.new_line();
                return;
            }
            '\t' => {
                for _ in 0..4 {
                    self.put(' ', out);
                }
                return;
            }
            _ => {}
        }
        let columns = char_width(c);
        if self.col == 0 {
            out.push_str(&" ".repeat(STREAM_INDENT));
            self.col = STREAM_INDENT;
        }
        if self.col + columns > self.width {
            if c == ' ' {
                out.push('\n');
                self.new_line();
                return;
            }
            self.break_before_word(columns, out);
        }
        out.push(c);
        self.col += columns;
        if c == ' ' || columns == 2 {
            self.word.clear();
            self.word_cols = 0;
        } else {
            self.word.push(c);
            self.word_cols += columns;
        }
    }

    fn break_before_word(&mut self, next: usize, out: &mut String) {
        let fits = STREAM_INDENT + self.word_cols + next <= self.width;
        let moved =
            if self.cursor && fits && next < 2 { std::mem::take(&mut self.word) } else { String::new() };
        let columns = if moved.is_empty() { 0 } else { self.word_cols };
        if columns > 0 {
            out.push_str(&format!("\u{1b}[{columns}D\u{1b}[K"));
        }
        out.push('\n');
        out.push_str(&" ".repeat(STREAM_INDENT));
        out.push_str(&moved);
        self.col = STREAM_INDENT + columns;
        self.word = moved;
        self.word_cols = columns;
    }

    fn new_line(&mut self) {
        self.col = 0;
        self.word.clear();
        self.word_cols = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(text: &str, width: usize, hang: usize) -> Vec<String> {
        wrap(&Line::from(text), width, hang).iter().map(Line::text).collect()
    }

    #[test]
    fn lines_break_at_spaces_and_hang() {
        assert_eq!(wrapped("one two three four", 9, 2), ["one two", "  three", "  four"]);
        assert_eq!(wrapped("", 20, 0), [""]);
        assert_eq!(wrapped("  kept  inside", 40, 0), ["  kept  inside"]);
    }

    #[test]
    fn a_word_longer_than_the_line_is_broken_not_cut() {
        let lines = wrapped("abcdefghijklmnopqrst", 8, 0);
        assert_eq!(lines.concat(), "abcdefghijklmnopqrst");
        assert!(lines.iter().all(|line| line.len() <= 8));
    }

    #[test]
    fn a_command_is_never_broken() {
        let command = "agentctl --socket /run/user/1000/some/where/s approve deadbeef";
        let line = Line::from("Next: ")
            .with(Style::Command, command)
            .with(Style::Dim, " · ")
            .with(Style::Command, "ls");
        let text = |width| wrap(&line, width, 2).iter().map(Line::text).collect::<Vec<_>>();
        assert_eq!(text(80), [format!("Next: {command} · ls")]);
        assert_eq!(text(66), ["Next:".to_owned(), format!("  {command} ·"), "  ls".to_owned()]);
        assert!(text(30).contains(&format!("  {command}")), "{:?}", text(30));
    }

    #[test]
    fn joined_emoji_stay_together() {
        assert_eq!(wrapped("ab 👩\u{200d}🔬👩\u{200d}🔬", 8, 0), ["ab 👩\u{200d}🔬", "👩\u{200d}🔬"]);
    }

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(wrapped("日本語日本語", 8, 0), ["日本語日", "本語"]);
    }

    #[test]
    fn every_width_keeps_every_word() {
        let text = "The quick brown fox jumps over a verylongwordindeed 日本語 and e\u{301}clairs";
        for width in 8..100 {
            let lines = wrapped(text, width, 3);
            assert!(lines.iter().all(|line| Line::from(line.as_str()).width() <= width), "{width}");
            let joined: String = lines.concat().chars().filter(|c| *c != ' ').collect();
            assert_eq!(joined, text.replace(' ', ""), "{width}");
        }
    }

    /// What a terminal shows after `bytes`, by the two escapes that `StreamWrap` uses.
    fn screen(bytes: &str) -> Vec<String> {
        let mut lines = vec![Vec::<char>::new()];
        let mut col = 0;
        let mut chars = bytes.chars().peekable();
        while let Some(c) = chars.next() {
            let line = lines.last_mut().unwrap();
            match c {
                '\n' => {
                    lines.push(Vec::new());
                    col = 0;
                }
                '\u{1b}' => {
                    assert_eq!(chars.next(), Some('['));
                    let mut n = String::new();
                    while chars.peek().unwrap().is_ascii_digit() {
                        n.push(chars.next().unwrap());
                    }
                    match chars.next().unwrap() {
                        'D' => col -= n.parse::<usize>().unwrap(),
                        'K' => line.truncate(col),
                        other => panic!("unexpected escape {other}"),
                    }
                }
                c => {
                    line.truncate(col);
                    line.push(c);
                    col += 1;
                }
            }
        }
        lines.into_iter().map(|line| line.into_iter().collect::<String>().trim_end().to_owned()).collect()
    }

    #[test]
    fn streamed_text_breaks_at_words_however_it_is_cut() {
        let text = "Let me look at the list endpoint first.\nThen I write the plan.";
        let expected =
            ["  Let me look at the", "  list endpoint", "  first.", "  Then I write the", "  plan."].to_vec();
        for size in 1..text.len() {
            let mut stream = StreamWrap::new(20, true);
            let mut out = String::new();
            for piece in text.as_bytes().chunks(size) {
                out.push_str(&stream.push(std::str::from_utf8(piece).unwrap()));
            }
            assert_eq!(screen(&out), expected, "pieces of {size}");
        }
    }

    #[test]
    fn streamed_text_never_reaches_the_left_edge() {
        let mut stream = StreamWrap::new(30, true);
        let out =
            stream.push("│ 1 allow\n│ \u{1b}[2K\rfake and a long line that has to be broken somewhere\n\n•");
        for line in screen(&out) {
            assert!(line.is_empty() || line.starts_with("  "), "{line:?}");
        }
        assert!(out.contains("<U+001B>[2K<U+000D>fake"));
    }

    #[test]
    fn a_dumb_terminal_gets_no_cursor_movement() {
        let mut stream = StreamWrap::new(12, false);
        let out = stream.push("several words to break");
        assert!(!out.contains('\u{1b}'));
        assert!(out.lines().all(|line| line.len() <= 12));
    }

    #[test]
    fn marks_are_counted_over_pieces() {
        let mut stream = StreamWrap::new(300, true);
        let out: String = (0..20).map(|_| stream.push("\u{301}")).collect();
        assert!(out.matches('\u{301}').count() <= 4, "{out:?}");
    }

    #[test]
    fn ending_closes_an_open_line_once() {
        let mut stream = StreamWrap::new(40, true);
        stream.push("open");
        assert_eq!(stream.end(), "\n");
        assert_eq!(stream.end(), "");
    }
}
