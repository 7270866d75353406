//! A rough reading of shell text: simple commands as words, without quotes.
//!
//! This is no parser. It splits wherever a shell might start another command and forgets what was quoted, so it finds more
//! commands than a shell would run, and never claims that a command is harmless. A real parser comes with the sandbox.

use std::iter::Peekable;
use std::str::Chars;

/// One simple command: its words, and the files that its output is sent to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SimpleCommand {
    pub words: Vec<String>,
    pub outputs: Vec<String>,
}

impl SimpleCommand {
    fn is_empty(&self) -> bool {
        self.words.is_empty() && self.outputs.is_empty()
    }
}

/// Splits a text into simple commands, those inside substitutions, groups and here-documents too.
pub(super) fn simple_commands(text: &str) -> Vec<SimpleCommand> {
    let mut reader = Reader::default();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('\n') | None => {}
                Some(escaped) => reader.push(escaped),
            },
            '\'' if !reader.quoted => {
                let ansi = reader.take_dollar();
                reader.open_word();
                while let Some(c) = chars.next() {
                    match c {
                        '\'' => break,
                        '\\' if ansi => reader.push_all(&ansi_escape(&mut chars)),
                        c => reader.push(c),
                    }
                }
            }
            '"' => {
                reader.take_dollar();
                reader.open_word();
                reader.quoted = !reader.quoted;
            }
            '$' => {
                reader.push('$');
                if chars.next_if_eq(&'(').is_some() {
                    reader.open(')');
                } else if chars.next_if_eq(&'{').is_some() {
                    while let Some(c) = chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
                        reader.push(c);
                    }
                    // `${x:-word}`: the operator and its word are read apart, up to the brace.
                    if chars.next_if_eq(&'}').is_none() {
                        reader.open('}');
                    }
                }
            }
            '`' if reader.is_inside('`') => reader.close(),
            '`' => {
                reader.push('$');
                reader.open('`');
            }
            ')' | '}' if reader.is_inside(c) => reader.close(),
            c if reader.quoted => reader.push(c),
            ' ' | '\t' => reader.break_word(),
            '(' => {
                reader.end_command();
                reader.open(')');
            }
            '\n' | '\r' | ';' | '&' | '|' | ')' | '{' | '}' => reader.end_command(),
            '>' => {
                while chars.next_if(|c| matches!(c, '>' | '|' | '&')).is_some() {}
                reader.break_word();
                reader.to_output = true;
            }
            '<' => reader.break_word(),
            c => reader.push(c),
        }
    }
    while !reader.around.is_empty() {
        reader.close();
    }
    reader.end_command();
    reader.commands
}

#[derive(Default)]
struct Reader {
    commands: Vec<SimpleCommand>,
    command: SimpleCommand,
    /// The word being read; `Some("")` once a quote has opened it.
    word: Option<String>,
    quoted: bool,
    /// Whether the next word is the target of `>`.
    to_output: bool,
    /// The commands around the one being read, to go on with when it ends.
    around: Vec<Around>,
}

/// A command that was left for another inside it.
struct Around {
    /// What ends the inner one.
    end: char,
    command: SimpleCommand,
    word: Option<String>,
    quoted: bool,
    to_output: bool,
}

impl Reader {
    fn open_word(&mut self) {
        self.word.get_or_insert_default();
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn push_all(&mut self, text: &str) {
        self.word.get_or_insert_default().push_str(text);
    }

    /// Drops the `$` of `$'…'` and `$"…"`.
    fn take_dollar(&mut self) -> bool {
        match &mut self.word {
            Some(word) if !self.quoted && word.ends_with('$') => {
                word.pop();
                true
            }
            _ => false,
        }
    }

    fn break_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        if std::mem::take(&mut self.to_output) {
            self.command.outputs.push(word);
        } else {
            self.command.words.push(word);
        }
    }

    fn end_command(&mut self) {
        self.break_word();
        self.to_output = false;
        let command = std::mem::take(&mut self.command);
        if !command.is_empty() {
            self.commands.push(command);
        }
    }

    /// Another command begins inside this one, with quotes of its own.
    fn open(&mut self, end: char) {
        self.around.push(Around {
            end,
            command: std::mem::take(&mut self.command),
            word: self.word.take(),
            quoted: std::mem::take(&mut self.quoted),
            to_output: std::mem::take(&mut self.to_output),
        });
    }

    fn is_inside(&self, end: char) -> bool {
        !self.quoted && self.around.last().is_some_and(|around| around.end == end)
    }

    /// The inner command ends; the outer one goes on where it was.
    fn close(&mut self) {
        self.end_command();
        if let Some(around) = self.around.pop() {
            self.command = around.command;
            self.word = around.word;
            self.quoted = around.quoted;
            self.to_output = around.to_output;
        }
    }
}

/// The escape after a backslash inside `$'…'`.
fn ansi_escape(chars: &mut Peekable<Chars<'_>>) -> String {
    let Some(kind) = chars.next() else { return String::new() };
    let (radix, most, mut value) = match kind {
        'x' => (16, 2, 0),
        'u' => (16, 4, 0),
        'U' => (16, 8, 0),
        '0'..='7' => (8, 2, kind.to_digit(8).unwrap_or(0)),
        'n' | 'r' | 't' | 'v' | 'f' => return " ".to_owned(),
        other => return other.to_string(),
    };
    for _ in 0..most {
        let Some(digit) = chars.next_if(|c| c.is_digit(radix)).and_then(|c| c.to_digit(radix)) else { break };
        value = value * radix + digit;
    }
    char::from_u32(value).map(String::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Vec<String>> {
        simple_commands(text).into_iter().map(|command| command.words).collect()
    }

    #[test]
    fn every_separator_starts_a_new_command() {
        for separator in [";", "&&", "||", "|", "|&", "&", "\n", "(", ")", "{ ", " }", "$(", "`"] {
            let found = words(&format!("git status {separator}rm x"));
            assert!(found.contains(&vec!["rm".to_owned(), "x".to_owned()]), "{separator:?}: {found:?}");
        }
    }

    #[test]
    fn quotes_and_escapes_disappear_from_words() {
        for text in [
            "rm -rf /",
            "r\"\"m -rf /",
            "\\rm -rf /",
            "'rm' \"-rf\" '/'",
            "r\\m -r\\f /",
            "$'\\x72m' -rf $'\\57'",
        ] {
            assert_eq!(words(text), [["rm", "-rf", "/"]], "{text}");
        }
        assert_eq!(words("echo ''"), [["echo", ""]]);
        assert_eq!(words("echo 'a; b'"), [["echo", "a; b"]]);
    }

    #[test]
    fn commands_inside_substitutions_are_found_and_the_rest_too() {
        let found = words("echo \"a $(rm x) b\"; ls");
        assert!(found.contains(&vec!["rm".to_owned(), "x".to_owned()]), "{found:?}");
        assert!(found.contains(&vec!["ls".to_owned()]), "{found:?}");
        let found = words("echo `rm y`; ls `pwd` z");
        assert!(found.contains(&vec!["rm".to_owned(), "y".to_owned()]), "{found:?}");
        let found = words("cat <(rm z) | sh");
        assert!(found.contains(&vec!["rm".to_owned(), "z".to_owned()]), "{found:?}");
    }

    #[test]
    fn output_targets_are_kept_apart() {
        for text in [
            "cat x > /dev/sda",
            "cat x >/dev/sda",
            "cat x >> /dev/sda",
            "cat x >| '/dev/sda'",
            "cat x 2>/dev/sda",
        ] {
            let commands = simple_commands(text);
            assert_eq!(commands[0].outputs, ["/dev/sda"], "{text}");
        }
        let commands = simple_commands("echo '>' x");
        assert!(commands[0].outputs.is_empty());
    }

    #[test]
    fn braced_variables_read_like_plain_ones() {
        assert_eq!(words("rm ${HOME}/x"), [["rm", "$HOME/x"]]);
        assert_eq!(words("rm \"${HOME}\"/*"), [["rm", "$HOME/*"]]);
    }

    #[test]
    fn odd_text_ends_somewhere() {
        for text in ["", "\\", "'", "\"", "$", "${", "$(", "`", ">", "$'\\", "$'\\x", "\"$(", ")))", "}{"] {
            let _ = simple_commands(text);
        }
    }
}
