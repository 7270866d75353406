//! One word of a command line: what it says once the quotes are off, as far as that is known before it runs.

use std::path::{Component, Path, PathBuf};

use tree_sitter::Node;

use super::line::Word;

/// A word of the parsed text.
#[derive(Clone, Debug, Default)]
pub(super) struct Token {
    /// As typed.
    pub raw: String,
    /// Without quotes; what is not known in it is left as typed.
    pub value: String,
    /// `value` is what the program is given.
    pub known: bool,
    /// Characters in it that the shell replaces by names of files, or by several words.
    pub pattern: bool,
    /// It begins with an unquoted `~/` or is `~`, or with `$HOME`; `value` is the rest.
    pub home: bool,
}

impl Token {
    pub(super) fn of(node: Node<'_>, source: &str) -> Self {
        let raw = text(node, source).to_owned();
        let mut token = Token { raw, known: true, ..Token::default() };
        token.read(node, source, true);
        token
    }

    /// What the program is given, as somebody would write it.
    pub(super) fn said(&self) -> &str {
        if self.home { &self.raw } else { &self.value }
    }

    /// A word of a text that is known.
    pub(super) fn plain(text: &str) -> Self {
        Token { raw: text.to_owned(), value: text.to_owned(), known: true, pattern: false, home: false }
    }

    fn read(&mut self, node: Node<'_>, source: &str, first: bool) {
        let raw = text(node, source);
        match node.kind() {
            "word" | "number" | "regex" | "extglob_pattern" => self.unquoted(raw, first),
            "raw_string" => self.value.push_str(raw.trim_matches('\'')),
            "string" => self.quoted(node, source, first),
            "concatenation" | "command_name" => {
                let mut cursor = node.walk();
                let children: Vec<_> = node.children(&mut cursor).collect();
                let mut end = node.start_byte();
                for (index, child) in children.into_iter().enumerate() {
                    // Characters between the parts belong to the word too.
                    self.unquoted(source.get(end..child.start_byte()).unwrap_or_default(), false);
                    end = child.end_byte();
                    if child.is_named() {
                        self.read(child, source, first && index == 0);
                    } else {
                        self.unquoted(text(child, source), false);
                    }
                }
            }
            "simple_expansion" if first && raw == "$HOME" => self.home = true,
            "expansion" if first && raw == "${HOME}" => self.home = true,
            _ => {
                self.known = false;
                self.value.push_str(raw);
            }
        }
    }

    fn unquoted(&mut self, raw: &str, first: bool) {
        let mut chars = raw.chars().peekable();
        if first && chars.peek() == Some(&'~') {
            match raw.get(1..) {
                Some("") => {
                    self.home = true;
                    return;
                }
                Some(rest) if rest.starts_with('/') => {
                    self.home = true;
                    chars.next();
                }
                // Somebody's home, or a place that the shell remembers.
                _ => self.known = false,
            }
        }
        while let Some(c) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some('\n') | None => {}
                    Some(escaped) => self.value.push(escaped),
                },
                _ => {
                    self.pattern |= matches!(c, '*' | '?' | '[' | '{' | '!' | '@' | '+') && is_magic(c, raw);
                    self.value.push(c);
                }
            }
        }
    }

    fn quoted(&mut self, node: Node<'_>, source: &str, first: bool) {
        let mut cursor = node.walk();
        let children: Vec<_> = node.named_children(&mut cursor).collect();
        let mut end = node.start_byte() + 1;
        for (index, child) in children.iter().enumerate() {
            self.inside(source.get(end..child.start_byte()).unwrap_or_default());
            end = child.end_byte();
            let raw = text(*child, source);
            match child.kind() {
                "string_content" => self.inside(raw),
                "simple_expansion" | "expansion"
                    if first && index == 0 && matches!(raw, "$HOME" | "${HOME}") =>
                {
                    self.home = true;
                }
                _ => {
                    self.known = false;
                    self.value.push_str(raw);
                }
            }
        }
        self.inside(source.get(end..node.end_byte().saturating_sub(1)).unwrap_or_default());
    }

    /// Text between double quotes.
    fn inside(&mut self, raw: &str) {
        let mut chars = raw.chars().peekable();
        while let Some(c) = chars.next() {
            match (c, chars.peek()) {
                ('\\', Some('\n')) => drop(chars.next()),
                ('\\', Some(escaped @ ('$' | '`' | '"' | '\\'))) => {
                    self.value.push(*escaped);
                    chars.next();
                }
                _ => self.value.push(c),
            }
        }
    }

    /// The word as a path, seen from the folder where the line starts.
    pub(super) fn path(&self, cwd: &Cwd) -> Word {
        let value = match (self.known, self.pattern) {
            (false, _) => return Word::Unknown,
            (true, false) => self.value.as_str(),
            // Whatever matches lies below the last folder that is known.
            (true, true) => {
                let magic = self.value.find(['*', '?', '[', '{', '!', '@', '+']).unwrap_or(0);
                match (self.value[..magic].rfind('/'), self.value[magic..].contains("..")) {
                    (_, true) => return Word::Unknown,
                    (Some(0), _) => "/",
                    (Some(end), _) => &self.value[..end],
                    (None, _) => ".",
                }
            }
        };
        if self.home {
            return Word::Home(lexical(Path::new(value.trim_start_matches('/'))));
        }
        if value.starts_with('/') {
            return Word::Known(lexical(Path::new(value)));
        }
        match cwd {
            Cwd::At(Word::Known(folder)) => Word::Known(lexical(&folder.join(value))),
            Cwd::At(Word::Home(folder)) => Word::Home(lexical(&folder.join(value))),
            Cwd::At(Word::Unknown) => Word::Unknown,
        }
    }
}

/// Where the shell is.
#[derive(Clone, Debug)]
pub(super) enum Cwd {
    At(Word),
}

impl Cwd {
    pub(super) fn start() -> Self {
        Cwd::At(Word::Known(PathBuf::from(".")))
    }

    pub(super) fn is_start(&self) -> bool {
        matches!(self, Cwd::At(Word::Known(folder)) if folder.as_os_str() == ".")
    }
}

/// Whether a character may stand for other names here. `!`, `@` and `+` do so only before a parenthesis, which is no word.
fn is_magic(c: char, raw: &str) -> bool {
    match c {
        '{' => raw.contains(',') || raw.contains(".."),
        '!' | '@' | '+' => raw.contains('('),
        _ => true,
    }
}

/// `.` and what `..` takes back worked out by the letters alone; a relative path may begin with `..`.
fn lexical(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => match out.components().next_back() {
                Some(Component::Normal(_)) => drop(out.pop()),
                Some(Component::RootDir) => {}
                _ => out.push(".."),
            },
            other => out.push(other),
        }
    }
    if out.as_os_str().is_empty() { PathBuf::from(".") } else { out }
}

pub(super) fn text<'s>(node: Node<'_>, source: &'s str) -> &'s str {
    source.get(node.byte_range()).unwrap_or_default()
}
