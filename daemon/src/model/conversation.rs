//! From a context's messages to the turns that providers accept: every call answered once, directly after it was made,
//! and nothing empty. What comes out depends on the messages alone, and appending a message never changes the turns
//! before it, so that prompt caches keep hitting.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::message::{Block, Dialect, Message, Role};

/// Said where a call has no result: providers refuse a call without one.
const NO_RESULT: &str = "This call has no recorded result.";

/// The longest id of a call that all providers take.
const MAX_ID: usize = 40;

/// The longest name of a tool that all providers take.
const MAX_NAME: usize = 64;

pub(super) enum Turn<'a> {
    Assistant(Said<'a>),
    User(Asked<'a>),
}

/// An assistant's message, to be replayed or rendered.
pub(super) struct Said<'a> {
    /// Set when the endpoint made this message itself: it goes back as it came.
    pub(super) raw: Option<&'a RawValue>,
    pub(super) texts: Vec<&'a str>,
    pub(super) calls: Vec<Call<'a>>,
}

pub(super) struct Call<'a> {
    pub(super) id: String,
    pub(super) name: Cow<'a, str>,
    pub(super) arguments: &'a RawValue,
}

/// Everything between two assistant messages.
#[derive(Default)]
pub(super) struct Asked<'a> {
    /// One for each call of the message before, in the order of the calls.
    pub(super) results: Vec<Answer<'a>>,
    pub(super) texts: Vec<Cow<'a, str>>,
}

pub(super) struct Answer<'a> {
    /// The id as the call before it was sent.
    pub(super) id: String,
    pub(super) content: &'a str,
    pub(super) is_error: bool,
}

/// Whom the turns are for: decides which messages are replayed verbatim.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) provider: &'a str,
    pub(super) model: &'a str,
    pub(super) dialect: Dialect,
}

pub(super) fn turns<'a>(messages: &'a [Arc<Message>], reader: Reader<'_>) -> Vec<Turn<'a>> {
    let mut turns = Vec::new();
    let mut pending: Option<Pending<'a>> = None;
    for message in messages {
        match message.role {
            Role::User => pending.get_or_insert_default().add(&message.blocks),
            Role::Assistant => {
                let Some(said) = said(message, reader) else { continue };
                if let Some(pending) = pending.take() {
                    pending.close(&mut turns);
                }
                let open = said.calls.iter().map(|call| call.id.clone()).collect();
                let ids = call_ids(message);
                turns.push(Turn::Assistant(said));
                pending = Some(Pending { open, ids, ..Pending::default() });
            }
        }
    }
    if let Some(pending) = pending {
        pending.close(&mut turns);
    }
    turns
}

/// A user turn under construction.
#[derive(Default)]
struct Pending<'a> {
    /// The ids of the calls before it: as sent, and as the context knows them.
    open: Vec<String>,
    ids: Vec<&'a str>,
    /// By position of the call. The first result of a call counts.
    results: Vec<(usize, &'a str, bool)>,
    texts: Vec<Cow<'a, str>>,
}

impl<'a> Pending<'a> {
    fn add(&mut self, blocks: &'a [Block]) {
        for block in blocks {
            match block {
                Block::Text { text } if !text.trim().is_empty() => self.texts.push(Cow::Borrowed(text)),
                Block::ToolResult { id, content, is_error } => {
                    match self.ids.iter().position(|known| known == id) {
                        Some(call) if self.results.iter().any(|(answered, ..)| *answered == call) => {}
                        Some(call) => self.results.push((call, content, *is_error)),
                        // The call is not in the message before: said in words, for no provider takes the block.
                        None => self.texts.push(Cow::Owned(format!("Result of an earlier call:\n{content}"))),
                    }
                }
                Block::Text { .. } | Block::Thinking { .. } | Block::ToolCall { .. } => {}
            }
        }
    }

    fn close(self, turns: &mut Vec<Turn<'a>>) {
        let results: Vec<Answer<'a>> = self
            .open
            .into_iter()
            .enumerate()
            .map(|(call, id)| {
                let found = self.results.iter().find(|(answered, ..)| *answered == call);
                let (content, is_error) =
                    found.map_or((NO_RESULT, true), |(_, content, is_error)| (*content, *is_error));
                Answer { id, content, is_error }
            })
            .collect();
        if !results.is_empty() || !self.texts.is_empty() {
            turns.push(Turn::User(Asked { results, texts: self.texts }));
        }
    }
}

/// Nothing, for a message that says nothing and calls nothing: providers refuse empty ones.
fn said<'a>(message: &'a Message, reader: Reader<'_>) -> Option<Said<'a>> {
    let raw = message.raw.as_ref().filter(|raw| {
        raw.provider == reader.provider && raw.model == reader.model && raw.dialect == reader.dialect
    });
    let mut texts = Vec::new();
    let mut calls: Vec<Call<'a>> = Vec::new();
    for block in &message.blocks {
        match block {
            Block::Text { text } if !text.trim().is_empty() => texts.push(text.as_str()),
            Block::ToolCall { id, name, arguments } => {
                let taken: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
                // A verbatim message holds its ids as the context knows them.
                let id = if raw.is_some() { id.clone() } else { unique(plain(id, MAX_ID).into(), &taken) };
                calls.push(Call { id, name: wire_name(name), arguments });
            }
            Block::Text { .. } | Block::Thinking { .. } | Block::ToolResult { .. } => {}
        }
    }
    if texts.is_empty() && calls.is_empty() {
        return None;
    }
    Some(Said { raw: raw.map(|raw| raw.body.as_ref()), texts, calls })
}

fn call_ids(message: &Message) -> Vec<&str> {
    let mut ids = Vec::new();
    for block in &message.blocks {
        if let Block::ToolCall { id, .. } = block {
            ids.push(id.as_str());
        }
    }
    ids
}

/// `name` as every provider takes it back. A model may invent a tool with any name; the call gets an error result, and
/// the history must stay acceptable.
pub(super) fn wire_name(name: &str) -> Cow<'_, str> {
    if name.is_empty() { Cow::Borrowed("unnamed") } else { plain(name, MAX_NAME) }
}

/// `text` with everything but ASCII letters, digits, `_` and `-` replaced, and not too long.
fn plain(text: &str, max: usize) -> Cow<'_, str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if text.len() <= max && text.chars().all(allowed) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().take(max).map(|c| if allowed(c) { c } else { '_' }).collect())
}

/// `id`, with a suffix if it is taken. An empty one gets a made-up name, which is the same at every rendering.
pub(super) fn unique(id: String, taken: &[&str]) -> String {
    let id = if id.is_empty() { format!("call_{}", taken.len()) } else { id };
    if !taken.contains(&id.as_str()) {
        return id;
    }
    (2..)
        .map(|n: u32| {
            let suffix = format!("_{n}");
            let kept: String = id.chars().take(MAX_ID - suffix.len()).collect();
            kept + &suffix
        })
        .find(|candidate| !taken.contains(&candidate.as_str()))
        .unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_become_acceptable_and_stay_apart() {
        assert_eq!(plain("functions.read:0", MAX_ID), "functions_read_0");
        assert_eq!(plain(&"x".repeat(90), MAX_ID).len(), MAX_ID);
        assert_eq!(unique("a".into(), &["a", "a_2"]), "a_3");
        assert_eq!(unique(String::new(), &["a"]), "call_1");
        assert_eq!(unique("x".repeat(MAX_ID), &[&"x".repeat(MAX_ID)]).len(), MAX_ID);
    }

    #[test]
    fn names_become_acceptable() {
        assert_eq!(wire_name(""), "unnamed");
        assert_eq!(wire_name("mcp.files/read"), "mcp_files_read");
        assert_eq!(wire_name("read_file"), "read_file");
    }
}
