//! Where output goes. On a terminal everything goes to stdout; elsewhere the final text goes to stdout and the rest to
//! stderr, or with `--json` the events to stdout.

use std::io::{self, IsTerminal, Write};

use agentd_protocol::show::show;

use super::terminal::columns;
use crate::render::wrap::{StreamWrap, wrap};
use crate::render::{Ink, Line};

/// Wide enough that nothing is wrapped where nobody sees columns.
const NO_WRAP: usize = 100_000;

enum Kind {
    Terminal(StreamWrap),
    /// The newest message, kept back: it is the final text unless another follows. What is said about anything else
    /// meanwhile decides nothing.
    Plain {
        held: Option<String>,
    },
    Json,
}

pub(crate) struct Screen {
    out: Box<dyn Write>,
    err: Box<dyn Write>,
    kind: Kind,
    /// Of the place where [`Screen::line`] goes.
    width: usize,
    ink: Ink,
    /// Whether the terminal understands cursor movement.
    cursor: bool,
    /// Whether the line of the cursor holds a status, which whatever is printed next replaces.
    status: bool,
}

impl Screen {
    /// The screen for a command that follows a session.
    pub(crate) fn open(json: bool) -> Self {
        let (out, err) = (io::stdout(), io::stderr());
        if !json && out.is_terminal() {
            let width = columns(&out);
            let ink = ink(true);
            let cursor = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
            let stream = StreamWrap::new(stream_width(width), cursor);
            let mut screen = Self::new(Box::new(out), Box::new(err), Kind::Terminal(stream), width, ink);
            screen.cursor = cursor;
            return screen;
        }
        let width = if err.is_terminal() { columns(&err) } else { NO_WRAP };
        let ink = ink(err.is_terminal());
        let kind = if json { Kind::Json } else { Kind::Plain { held: None } };
        Self::new(Box::new(out), Box::new(err), kind, width, ink)
    }

    fn new(out: Box<dyn Write>, err: Box<dyn Write>, kind: Kind, width: usize, ink: Ink) -> Self {
        Self { out, err, kind, width, ink, cursor: false, status: false }
    }

    /// Whether a person reads this while it happens.
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self.kind, Kind::Terminal(_))
    }

    pub(crate) fn is_json(&self) -> bool {
        matches!(self.kind, Kind::Json)
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// The terminal has another size now.
    pub(crate) fn resized(&mut self) {
        if let Kind::Terminal(stream) = &mut self.kind {
            self.width = columns(io::stdout());
            stream.resize(stream_width(self.width));
        }
    }

    /// What is going on at the moment, on a line that the next output replaces. Only where a person sees it.
    pub(crate) fn status(&mut self, line: &Line) -> io::Result<()> {
        if !self.is_terminal() || !self.cursor {
            return Ok(());
        }
        self.text_end()?;
        let line = line.clone().cut(stream_width(self.width));
        write!(self.out, "{}", line.paint(self.ink))?;
        self.status = true;
        self.out.flush()
    }

    /// Takes the status off the screen.
    pub(crate) fn clear_status(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.status) {
            self.out.write_all(b"\r\x1b[K")?;
            self.out.flush()?;
        }
        Ok(())
    }

    /// A line that agentctl says.
    pub(crate) fn line(&mut self, line: &Line) -> io::Result<()> {
        self.clear_status()?;
        let lines = wrap(line, self.width, 2);
        if let Kind::Terminal(stream) = &mut self.kind {
            self.out.write_all(stream.end().as_bytes())?;
        }
        let (ink, sink) = (self.ink, self.notes());
        for line in lines {
            writeln!(sink, "{}", line.paint(ink))?;
        }
        sink.flush()
    }

    pub(crate) fn lines<'a>(&mut self, lines: impl IntoIterator<Item = &'a Line>) -> io::Result<()> {
        lines.into_iter().try_for_each(|line| self.line(line))
    }

    fn notes(&mut self) -> &mut dyn Write {
        if self.is_terminal() { &mut self.out } else { &mut self.err }
    }

    /// More of the model's text.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        self.clear_status()?;
        if let Kind::Terminal(stream) = &mut self.kind {
            let shown = stream.push(text);
            self.out.write_all(shown.as_bytes())?;
            self.out.flush()?;
        }
        Ok(())
    }

    pub(crate) fn text_end(&mut self) -> io::Result<()> {
        self.clear_status()?;
        if let Kind::Terminal(stream) = &mut self.kind {
            self.out.write_all(stream.end().as_bytes())?;
            self.out.flush()?;
        }
        Ok(())
    }

    /// A complete message of the model.
    pub(crate) fn message(&mut self, text: &str) -> io::Result<()> {
        self.not_last()?;
        if let Kind::Plain { held } = &mut self.kind {
            *held = Some(show(text));
        }
        Ok(())
    }

    /// The message kept back was not the last: it goes to stderr.
    pub(crate) fn not_last(&mut self) -> io::Result<()> {
        if let Kind::Plain { held } = &mut self.kind
            && let Some(text) = held.take()
        {
            writeln!(self.err, "{}", text.trim_end())?;
        }
        Ok(())
    }

    /// The turn ended: the message kept back is its final text.
    pub(crate) fn final_text(&mut self) -> io::Result<()> {
        if let Kind::Plain { held } = &mut self.kind
            && let Some(text) = held.take()
        {
            writeln!(self.out, "{}", text.trim_end())?;
            self.out.flush()?;
        }
        Ok(())
    }

    /// One event as it came.
    pub(crate) fn json(&mut self, raw: &str) -> io::Result<()> {
        writeln!(self.out, "{}", harmless_json(raw))?;
        self.out.flush()
    }

    /// What stands before the cursor while something is asked.
    pub(crate) fn prompt(&mut self, text: &str) -> io::Result<()> {
        self.text_end()?;
        write!(self.out, "{text}")?;
        self.out.flush()
    }

    /// Ends the line that a prompt began.
    pub(crate) fn end_prompt(&mut self) -> io::Result<()> {
        writeln!(self.out)?;
        self.out.flush()
    }
}

/// An error that ends the command is printed on a line without a status.
impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone shows nothing.
        let _ = self.clear_status();
    }
}

/// Prints lines to stdout: the answer of a command that does not follow anything.
pub(crate) fn print(lines: &[Line]) -> io::Result<()> {
    let out = io::stdout();
    let terminal = out.is_terminal();
    let width = if terminal { columns(&out) } else { NO_WRAP };
    let ink = ink(terminal);
    let mut out = out.lock();
    for line in lines.iter().flat_map(|line| wrap(line, width, 4)) {
        writeln!(out, "{}", line.paint(ink))?;
    }
    out.flush()
}

/// Prints a text to stdout, made harmless.
pub(crate) fn print_text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", show(text).trim_end())?;
    out.flush()
}

/// Prints a piece of a text that is harmless already, as it is.
pub(crate) fn print_piece(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Prints JSON to stdout as it came, made harmless.
pub(crate) fn print_json(raw: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", harmless_json(raw))?;
    out.flush()
}

/// Columns that [`print`] has.
pub(crate) fn print_width() -> usize {
    if io::stdout().is_terminal() { columns(io::stdout()) } else { NO_WRAP }
}

/// Says something on stderr.
pub(crate) fn say(lines: &[Line]) -> io::Result<()> {
    let err = io::stderr();
    let terminal = err.is_terminal();
    let width = if terminal { columns(&err) } else { NO_WRAP };
    let ink = ink(terminal);
    let mut err = err.lock();
    for line in lines.iter().flat_map(|line| wrap(line, width, 4)) {
        writeln!(err, "{}", line.paint(ink))?;
    }
    err.flush()
}

/// The last column stays free: a terminal whose last column was just written is of two minds where its cursor is.
fn stream_width(width: usize) -> usize {
    width.saturating_sub(1)
}

fn ink(terminal: bool) -> Ink {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    if terminal && !no_color && !dumb { Ink::Colour } else { Ink::None }
}

/// The same JSON on one line, with every character that could steer a terminal escaped. Any such character lies inside
/// a string, where `\uXXXX` means the same.
fn harmless_json(raw: &str) -> String {
    let mut line = String::with_capacity(raw.len());
    for c in raw.chars() {
        match c {
            // Only between values; inside a string JSON escapes them itself.
            '\n' | '\r' | '\t' => line.push(' '),
            ' '..='~' => line.push(c),
            c if show(c.encode_utf8(&mut [0; 4])).starts_with("<U+") => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    line.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => line.push(c),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Rc<RefCell<Vec<u8>>>);

    impl Captured {
        fn text(&self) -> String {
            String::from_utf8(self.0.borrow().clone()).unwrap()
        }
    }

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn screen(kind: Kind, width: usize) -> (Screen, Captured, Captured) {
        let (out, err) = (Captured::default(), Captured::default());
        (Screen::new(Box::new(out.clone()), Box::new(err.clone()), kind, width, Ink::None), out, err)
    }

    #[test]
    fn off_a_terminal_only_the_final_text_is_on_stdout() {
        let (mut screen, out, err) = screen(Kind::Plain { held: None }, NO_WRAP);
        screen.message("I look first.").unwrap();
        screen.not_last().unwrap();
        screen.line(&Line::from("• read a")).unwrap();
        screen.text("streamed").unwrap();
        screen.message("Done.\u{1b}[2J\n").unwrap();
        screen.final_text().unwrap();
        screen.line(&Line::from("1 file changed")).unwrap();
        assert_eq!(out.text(), "Done.<U+001B>[2J\n");
        assert_eq!(err.text(), "I look first.\n• read a\n1 file changed\n");
    }

    #[test]
    fn what_is_said_between_the_last_message_and_the_end_leaves_it_the_final_text() {
        let (mut screen, out, err) = screen(Kind::Plain { held: None }, NO_WRAP);
        screen.message("Done.").unwrap();
        screen.line(&Line::from("Connected again.")).unwrap();
        screen.final_text().unwrap();
        assert_eq!((out.text().as_str(), err.text().as_str()), ("Done.\n", "Connected again.\n"));
    }

    #[test]
    fn on_a_terminal_a_line_ends_the_text_before_it() {
        let (mut screen, out, err) = screen(Kind::Terminal(StreamWrap::new(80, true)), 80);
        screen.text("Let me look").unwrap();
        screen.line(&Line::from("• read a")).unwrap();
        screen.message("not shown twice").unwrap();
        screen.final_text().unwrap();
        assert_eq!(out.text(), "  Let me look\n• read a\n");
        assert_eq!(err.text(), "");
    }

    #[test]
    fn a_status_is_replaced_by_whatever_comes_next() {
        let (mut screen, out, _) = screen(Kind::Terminal(StreamWrap::new(80, true)), 80);
        screen.status(&Line::from("not here: a dumb terminal")).unwrap();
        screen.cursor = true;
        screen.status(&Line::from("running … 2 s")).unwrap();
        screen.status(&Line::from("running … 3 s")).unwrap();
        screen.line(&Line::from("done")).unwrap();
        drop(screen);
        assert_eq!(out.text(), "running … 2 s\r\u{1b}[Krunning … 3 s\r\u{1b}[Kdone\n");
    }

    #[test]
    fn off_a_terminal_there_is_no_status() {
        for kind in [Kind::Plain { held: None }, Kind::Json] {
            let (mut screen, out, err) = screen(kind, NO_WRAP);
            screen.cursor = true;
            screen.status(&Line::from("running …")).unwrap();
            drop(screen);
            assert_eq!((out.text(), err.text()), (String::new(), String::new()));
        }
    }

    #[test]
    fn json_goes_to_stdout_alone() {
        let (mut screen, out, err) = screen(Kind::Json, NO_WRAP);
        screen.json(r#"{"type":"x"}"#).unwrap();
        screen.message("m").unwrap();
        screen.final_text().unwrap();
        screen.line(&Line::from("note")).unwrap();
        assert_eq!((out.text().as_str(), err.text().as_str()), ("{\"type\":\"x\"}\n", "note\n"));
    }

    #[test]
    fn json_stays_the_same_value_and_harmless() {
        let value = serde_json::json!({"a": "\u{9b}2J \u{202e} \u{e0041} 日本 é \u{1b}[0m\n"});
        let raw = serde_json::to_string_pretty(&value).unwrap();
        let line = harmless_json(&raw);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), value);
        assert!(!line.contains(['\n', '\u{9b}', '\u{202e}', '\u{e0041}', '\u{1b}']));
        assert!(line.contains("日本 é"));
    }
}
