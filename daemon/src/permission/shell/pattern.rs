//! `Bash(...)`: which simple commands a rule covers.

use super::line::Part;

/// The text in a rule's parentheses.
///
/// | text | covers |
/// |---|---|
/// | `git status` | exactly that |
/// | `git log *` | `git log` and whatever follows it; not `git logs` |
/// | `git log:*` | the same, as older settings write it |
/// | `ls*` | whatever begins so |
/// | `npm run * --silent` | a star stands for anything, blanks too |
/// | `rm build/\*` | a star as it is |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandPattern {
    /// What stands between the stars.
    pieces: Vec<String>,
    /// A blank and a star at the end: also without them.
    bare: bool,
}

impl CommandPattern {
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(spec: &str) -> Result<Self, String> {
        let spec = spec.trim();
        let (spec, prefix) = match spec.strip_suffix(":*") {
            Some(rest) if !rest.ends_with('\\') => (rest, true),
            _ => (spec, false),
        };
        let mut pieces = vec![String::new()];
        let mut chars = spec.chars();
        while let Some(c) = chars.next() {
            let piece = pieces.last_mut().expect("there is always a piece");
            match c {
                '\\' => match chars.next() {
                    Some(escaped @ ('*' | '\\')) => piece.push(escaped),
                    Some(other) => piece.extend(['\\', other]),
                    None => return Err("a backslash at its end escapes nothing".to_owned()),
                },
                '*' => pieces.push(String::new()),
                c => piece.push(c),
            }
        }
        if prefix {
            let piece = pieces.last_mut().expect("there is always a piece");
            piece.push(' ');
            pieces.push(String::new());
        }
        if pieces.iter().all(String::is_empty) && pieces.len() == 1 {
            return Err("a command is missing".to_owned());
        }
        let stars = pieces.len() - 1;
        let bare = stars > 0
            && pieces[stars].is_empty()
            && pieces[stars - 1].ends_with(' ')
            && !pieces[stars - 1].trim().is_empty();
        Ok(Self { pieces, bare })
    }

    /// Whether the rule allows this command: its whole text.
    #[must_use]
    pub fn allows(&self, part: &Part) -> bool {
        self.matches(&part.text)
    }

    /// Whether a deny or ask rule is about this command: any of its forms.
    #[must_use]
    pub fn closes(&self, part: &Part) -> bool {
        part.forms.iter().any(|form| self.matches(form))
    }

    fn matches(&self, text: &str) -> bool {
        if self.bare {
            let without = &self.pieces[..self.pieces.len() - 1];
            let (last, before) = without.split_last().expect("a bare pattern has a piece before its star");
            if glob(before, last.trim_end(), text) {
                return true;
            }
        }
        let (last, before) = self.pieces.split_last().expect("there is always a piece");
        glob(before, last, text)
    }
}

/// Whether `text` is `before`, each followed by anything, and then `last` to its end.
fn glob(before: &[String], last: &str, text: &str) -> bool {
    let Some((first, between)) = before.split_first() else { return text == last };
    let Some(mut rest) = text.strip_prefix(first.as_str()) else { return false };
    for piece in between {
        let Some(at) = rest.find(piece.as_str()) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

/// The pattern that covers exactly this text.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn covers(spec: &str, text: &str) -> bool {
        CommandPattern::parse(spec).unwrap().matches(text)
    }

    #[test]
    fn patterns_cover_what_the_table_says() {
        for (spec, text, expected) in [
            ("git status", "git status", true),
            ("git status", "git status -s", false),
            ("git log *", "git log", true),
            ("git log *", "git log -p x", true),
            ("git log *", "git logs", false),
            ("git log:*", "git log -p", true),
            ("git log:*", "git log", true),
            ("git log:*", "git logs", false),
            ("ls*", "lsof -i", true),
            ("ls *", "lsof -i", false),
            ("ls *", "ls", true),
            ("npm run * --silent", "npm run a b --silent", true),
            ("npm run * --silent", "npm run a", false),
            ("* --version", "node --version", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
            ("aa*aa", "aaa", false),
            (r"rm build/\*", "rm build/*", true),
            (r"rm build/\*", "rm build/x ../../home -rf", false),
            (r"echo \\", r"echo \", true),
            (r"grep \n", r"grep \n", true),
            (" ls ", "ls", true),
            ("*", "anything at all", true),
        ] {
            assert_eq!(covers(spec, text), expected, "{spec:?} {text:?}");
        }
        for bad in ["", "  ", "\\"] {
            assert!(CommandPattern::parse(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn an_escaped_text_covers_itself_and_nothing_else(text in r"[a\\* :]{1,12}", other in r"[a\\* :]{0,14}") {
            let text = text.trim().to_owned();
            prop_assume!(!text.is_empty());
            let pattern = CommandPattern::parse(&escape(&text)).unwrap();
            prop_assert!(pattern.matches(&text));
            prop_assert_eq!(pattern.matches(&other), other == text);
        }
    }
}
