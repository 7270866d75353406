//! One word of a command line: what it says once the quotes are off, as far as that is known before it runs.

use std::path::{Component, Path, PathBuf};

use tree_sitter::Node;

use super::cwd::Cwd;
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
    /// An unquoted brace: with a comma or two dots anywhere the shell makes several words of it.
    pub brace: bool,
}

impl Token {
    pub(super) fn of(node: Node<'_>, source: &str) -> Self {
        let raw = text(node, source).to_owned();
        let mut token = Token { raw, known: true, ..Token::default() };
        token.read(node, source, true);
        token.pattern |= token.brace && (token.raw.contains(',') || token.raw.contains(".."));
        // Somebody else's home, a neighbour of it, or no home at all: `~{a,b}`, `$HOME-old`, `~''`.
        let beside = !(token.value.is_empty() || token.value.starts_with('/'));
        let tilde = token.raw.strip_prefix('~');
        token.known &=
            !token.home || !beside && tilde.is_none_or(|rest| rest.is_empty() || rest.starts_with('/'));
        token
    }

    /// What the program is given, as somebody would write it.
    pub(super) fn said(&self) -> &str {
        if self.home { &self.raw } else { &self.value }
    }

    /// A word of a text that is known.
    pub(super) fn plain(text: &str) -> Self {
        Token { raw: text.to_owned(), value: text.to_owned(), known: true, ..Token::default() }
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
        let mut last = None;
        while let Some(c) = chars.next() {
            // A home after `=` and `:` too, an empty substitution, a variable that is no node of its own.
            self.known &= match c {
                '~' => !matches!(last, Some('=' | ':')),
                '`' => false,
                '$' => !names_variable(chars.peek().copied()),
                _ => true,
            };
            last = Some(c);
            match c {
                '\\' => match chars.next() {
                    Some('\n') | None => {}
                    Some(escaped) => self.value.push(escaped),
                },
                _ => {
                    self.brace |= c == '{';
                    self.pattern |= match c {
                        '*' | '?' | '[' => true,
                        // Only before a parenthesis, which is no word.
                        '!' | '@' | '+' => raw.contains('('),
                        _ => false,
                    };
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
                ('`', _) => self.known = false,
                ('$', next) if names_variable(next.copied()) => self.known = false,
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
                let (before, after) = self.value.split_at(magic(&self.value));
                if after.contains("..") || begins_anywhere(&self.value) {
                    return Word::Unknown;
                }
                match before.rfind('/') {
                    Some(0) => "/",
                    Some(end) => &before[..end],
                    None => ".",
                }
            }
        };
        if self.home {
            return Word::Home(plain(Path::new(value.trim_start_matches('/'))));
        }
        if value.starts_with('/') {
            return Word::Known(plain(Path::new(value)));
        }
        match cwd {
            Cwd(Word::Known(folder)) => Word::Known(plain(&folder.join(value))),
            Cwd(Word::Home(folder)) => Word::Home(plain(&folder.join(value))),
            Cwd(Word::Unknown) => Word::Unknown,
        }
    }

    /// How many folders below [`Token::path`] the names lie that a pattern may become.
    pub(super) fn levels(&self) -> usize {
        if self.pattern { 1 + self.value[magic(&self.value)..].matches('/').count() } else { 0 }
    }
}

/// Whether a dollar with this behind it stands for something else.
fn names_variable(next: Option<char>) -> bool {
    next.is_some_and(|c| c.is_ascii_alphanumeric() || "_{([@*#?$!-".contains(c))
}

/// Where the first character stands that the shell may have replaced.
fn magic(value: &str) -> usize {
    value.find(['*', '?', '[', '{', '!', '@', '+']).unwrap_or(value.len())
}

/// A brace at the beginning may make a word that begins elsewhere: `{/etc,x}`, `{,x}/etc`, `{~,x}`.
fn begins_anywhere(value: &str) -> bool {
    value.starts_with('{')
        && ["{/", ",/", "{~", ",~", "{,", ",,", ",}", "{}"].iter().any(|start| value.contains(start))
}

/// Without `.`. A `..` stays: the kernel takes it from where a link before it leads.
fn plain(path: &Path) -> PathBuf {
    let out: PathBuf = path.components().filter(|component| *component != Component::CurDir).collect();
    if out.as_os_str().is_empty() { PathBuf::from(".") } else { out }
}

pub(super) fn text<'s>(node: Node<'_>, source: &'s str) -> &'s str {
    source.get(node.byte_range()).unwrap_or_default()
}
