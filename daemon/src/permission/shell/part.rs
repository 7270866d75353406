//! From the words of one simple command to what is matched and proven.

use super::cwd::Cwd;
use super::git::after_options;
use super::line::{Part, Word};
use super::readonly::proof;
use super::word::Token;

/// One simple command, as rules and proofs see it.
pub(super) fn part(words: &[Token], cwd: &Cwd) -> Part {
    let join = |words: &mut dyn Iterator<Item = &str>| words.collect::<Vec<_>>().join(" ");
    let text = join(&mut words.iter().map(|word| word.raw.as_str()));
    let plain = join(&mut words.iter().map(Token::said));
    let name = words.first().map_or("", |name| name.value.as_str());
    let program = base_name(name);
    let rest = &words[words.len().min(1)..];
    let based = join(&mut std::iter::once(program).chain(rest.iter().map(Token::said)));
    let mut forms = vec![text.clone(), plain, based];
    if program == "git" {
        let after = after_options(rest);
        forms.push(join(&mut std::iter::once("git").chain(after.iter().map(Token::said))));
    }
    forms.dedup();
    let (proof, operands) = match proof(words, cwd) {
        Some((proof, operands)) => (Some(proof), operands),
        None => (None, mentioned(rest, cwd)),
    };
    Part { plain: words.iter().all(|word| word.known), changes_shell: false, text, forms, operands, proof }
}

/// The words that may name files, of a command that nothing is known about.
fn mentioned(words: &[Token], cwd: &Cwd) -> Vec<Word> {
    words
        .iter()
        .filter_map(|word| {
            let value = match word.value.split_once('=') {
                Some((_, value)) => Token { value: value.to_owned(), ..word.clone() },
                None if word.value.starts_with('-') && !word.home => return None,
                None => word.clone(),
            };
            match value.path(cwd) {
                Word::Unknown => None,
                word => Some(word),
            }
        })
        .take(64)
        .collect()
}

pub(super) fn base_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}
