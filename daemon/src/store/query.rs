//! What is searched for, as FTS5 takes it: every word quoted, so that nothing a person types is syntax.

use agentd_protocol::search::SnippetPart;

use crate::ids::SessionId;

/// Bytes of a query.
const MAX_BYTES: usize = 1_000;
const MAX_WORDS: usize = 32;

/// What stands around a match in a snippet. Taken out of every text before it is kept, so only SQLite writes them.
pub(super) const MATCH_BEGINS: char = '\u{2}';
pub(super) const MATCH_ENDS: char = '\u{3}';

/// NUL would end a text for SQLite.
pub(super) const NOT_KEPT: [char; 3] = ['\0', MATCH_BEGINS, MATCH_ENDS];

/// A search, checked.
#[derive(Clone, Debug)]
pub struct Query {
    pub(super) expression: String,
    pub(super) cwd: Option<String>,
    pub(super) session: Option<SessionId>,
    pub(super) limit: usize,
}

/// Why a query is refused. For the person who typed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadQuery {
    #[error("give at least one word with a letter or a digit")]
    NoWord,
    #[error("at most {MAX_WORDS} words in {MAX_BYTES} bytes")]
    TooLong,
}

impl Query {
    /// # Errors
    /// There is nothing to look for, or too much.
    pub fn new(
        text: &str,
        cwd: Option<String>,
        session: Option<SessionId>,
        limit: usize,
    ) -> Result<Self, BadQuery> {
        if text.len() > MAX_BYTES {
            return Err(BadQuery::TooLong);
        }
        // SQLite's text ends at a NUL, and a quote would be left open.
        let words: Vec<String> = text
            .split(|c: char| c.is_whitespace() || c.is_control())
            .filter(|word| word.chars().any(char::is_alphanumeric))
            .map(|word| format!("\"{}\" *", word.replace('"', "\"\"")))
            .collect();
        match words.len() {
            0 => Err(BadQuery::NoWord),
            n if n > MAX_WORDS => Err(BadQuery::TooLong),
            _ => Ok(Self { expression: words.join(" "), cwd, session, limit }),
        }
    }
}

/// A snippet as SQLite made it, taken apart.
pub(super) fn parts(snippet: &str) -> Vec<SnippetPart> {
    let mut parts = Vec::new();
    let mut matched = false;
    for piece in snippet.split_inclusive([MATCH_BEGINS, MATCH_ENDS]) {
        let mark = piece.chars().next_back().filter(|c| matches!(*c, MATCH_BEGINS | MATCH_ENDS));
        let text = piece.strip_suffix([MATCH_BEGINS, MATCH_ENDS]).unwrap_or(piece);
        if !text.is_empty() {
            parts.push(SnippetPart { text: text.to_owned(), matched });
        }
        if let Some(mark) = mark {
            matched = mark == MATCH_BEGINS;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expression(text: &str) -> Result<String, BadQuery> {
        Query::new(text, None, None, 1).map(|query| query.expression)
    }

    #[test]
    fn every_word_is_quoted() {
        assert_eq!(expression(" two  words ").unwrap(), r#""two" * "words" *"#);
        assert_eq!(expression("a\"b OR NOT").unwrap(), r#""a""b" * "OR" * "NOT" *"#);
        assert_eq!(expression("a\0b").unwrap(), r#""a" * "b" *"#);
        assert_eq!(expression("-- * \"").unwrap_err(), BadQuery::NoWord);
        assert_eq!(expression("").unwrap_err(), BadQuery::NoWord);
        assert_eq!(expression(&"x ".repeat(33)).unwrap_err(), BadQuery::TooLong);
        assert_eq!(expression(&"x".repeat(1_001)).unwrap_err(), BadQuery::TooLong);
    }

    #[test]
    fn a_snippet_is_taken_apart_at_its_matches() {
        let text = |parts: &[SnippetPart]| {
            parts.iter().map(|part| (part.text.clone(), part.matched)).collect::<Vec<_>>()
        };
        let owned = |parts: &[(&str, bool)]| {
            parts.iter().map(|(text, matched)| ((*text).to_owned(), *matched)).collect::<Vec<_>>()
        };
        assert_eq!(text(&parts("a \u{2}b\u{3} c")), owned(&[("a ", false), ("b", true), (" c", false)]));
        assert_eq!(text(&parts("\u{2}b\u{3}")), owned(&[("b", true)]));
        assert_eq!(text(&parts("plain")), owned(&[("plain", false)]));
        assert_eq!(text(&parts("")), []);
    }
}
