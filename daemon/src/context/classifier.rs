//! What the classifier of mode `auto` is asked, and how its answer is read. Pure. It is told what the person typed and what
//! the call is, and nothing that a tool, a file or the agent has said besides; and whatever it answers that is not exactly
//! one of two verdicts is a no.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::message::{Block, Message, Reply, Request, Role, Stop};
use crate::permission::Reason;

/// Constant, so that it is told from every other request, and cached.
pub const CLASSIFIER_PROMPT: &str = include_str!("classifier.md");

/// Characters of the person's texts, the newest first. Beyond it older ones are left out.
const MAX_SAID: usize = 8_000;
/// Characters of one of them.
const MAX_TEXT: usize = 2_000;
/// Bytes of arguments that a classifier is asked about. Cut ones would hide what they do.
pub const MAX_ARGUMENTS: usize = 16 * 1024;
/// Bytes of an answer. One of the wanted form is far shorter.
const MAX_ANSWER: usize = 4 * 1024;
/// Characters of its reason.
const MAX_REASON: usize = 300;

/// A text that a person typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub text: String,
    /// Whether it goes on.
    pub cut: bool,
}

/// One call, put before the classifier.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// What the person typed, oldest first.
    pub person: &'a [Said],
    pub tool: &'a str,
    /// JSON, as the model wrote it.
    pub arguments: &'a str,
    pub cwd: &'a Path,
    /// What the call would do, as a person would be shown it.
    pub effects: &'a [String],
    /// Why the gate did not decide by itself.
    pub gate: Reason,
}

/// What it answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opinion {
    Allow(String),
    Block(String),
    /// Not an answer of the wanted form; why, for people.
    Unreadable(&'static str),
}

#[derive(Serialize)]
struct Told<'a> {
    person: Vec<Typed<'a>>,
    call: Call<'a>,
}

#[derive(Serialize)]
struct Typed<'a> {
    text: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
}

#[derive(Serialize)]
struct Call<'a> {
    tool: &'a str,
    /// A string and not an object: whatever stands in it cannot end its own quotation.
    arguments: &'a str,
    folder: std::borrow::Cow<'a, str>,
    effects: &'a [String],
    gate: &'static str,
}

/// The request: our own text, and one JSON object that holds everything else as strings.
#[must_use]
pub fn question(model: &str, asked: Question<'_>) -> Request {
    let told = Told {
        person: newest(asked.person),
        call: Call {
            tool: asked.tool,
            arguments: asked.arguments,
            folder: asked.cwd.to_string_lossy(),
            effects: asked.effects,
            gate: asked.gate.code(),
        },
    };
    // Strings only: this cannot fail, and an empty message would only be blocked.
    let text = serde_json::to_string(&told).unwrap_or_default();
    Request {
        model: model.to_owned(),
        system: CLASSIFIER_PROMPT.into(),
        tools: Vec::new().into(),
        messages: vec![Arc::new(Message { role: Role::User, blocks: vec![Block::Text { text }], raw: None })],
    }
}

/// As many of the newest texts as there is room for, oldest first.
fn newest(texts: &[Said]) -> Vec<Typed<'_>> {
    let mut room = MAX_SAID;
    let mut typed = Vec::new();
    for Said { text, cut } in texts.iter().rev() {
        let end = text.char_indices().nth(MAX_TEXT).map_or(text.len(), |(end, _)| end);
        let length = text[..end].chars().count();
        if length > room {
            break;
        }
        room -= length;
        typed.push(Typed { text: &text[..end], cut: *cut || end < text.len() });
    }
    typed.reverse();
    typed
}

/// Reads an answer. Nothing is guessed: prose around the object, a code fence, another field, a call are all no answer.
#[must_use]
pub fn opinion(reply: &Reply) -> Opinion {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Answer {
        verdict: String,
        reason: String,
    }
    if !reply.calls.is_empty() {
        return Opinion::Unreadable("it called a tool");
    }
    match reply.stop {
        Stop::End => {}
        Stop::Length => return Opinion::Unreadable("its answer was cut at the length limit"),
        Stop::Refusal(_) => return Opinion::Unreadable("its provider refused to go on"),
    }
    if reply.text.len() > MAX_ANSWER {
        return Opinion::Unreadable("its answer is too long");
    }
    let other = Opinion::Unreadable("its answer is not of the form that was asked for");
    // A struct may come as an array, too; an object was asked for.
    if !reply.text.trim_start().starts_with('{') {
        return other;
    }
    let Ok(Answer { verdict, reason }) = serde_json::from_str(&reply.text) else { return other };
    if reason.chars().count() > MAX_REASON {
        return Opinion::Unreadable("its reason is too long");
    }
    match verdict.as_str() {
        "allow" => Opinion::Allow(reason),
        "block" => Opinion::Block(reason),
        _ => other,
    }
}

#[cfg(test)]
mod tests;
