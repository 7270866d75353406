//! What the two dialects' stream parsers have in common: pure state machines, fed with events, that hand out deltas and
//! leave a reply.

use agentd_protocol::turn::Usage;
use sse_stream::Sse;

use super::message::{Arguments, Dialect, ProposedCall, Reply, Stop};
use super::{anthropic, conversation, openai_chat};

/// A piece of an answer, for people. Calls are not among them: they come whole, with the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delta<'a> {
    Text(&'a str),
    Thinking(&'a str),
}

/// Where deltas go.
pub(super) type Sink<'a> = &'a mut (dyn FnMut(Delta<'_>) + Send);

/// Whether a stream goes on after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    More,
    /// Nothing that follows matters.
    Done,
}

/// An event that ends a stream the wrong way.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The data of an event is not what the dialect says. Perhaps it was cut.
    Garbled(serde_json::Error),
    /// The provider reports an error inside the stream.
    Reported(Reported),
}

impl From<serde_json::Error> for Trouble {
    fn from(error: serde_json::Error) -> Self {
        Trouble::Garbled(error)
    }
}

/// An error in a provider's own words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reported {
    /// `overloaded_error`, `context_length_exceeded`; empty where the provider names none.
    pub(super) code: String,
    pub(super) message: String,
}

/// The state of one stream.
pub(super) enum Parser {
    OpenaiChat(openai_chat::Stream),
    Anthropic(anthropic::Stream),
}

impl Parser {
    pub(super) fn new(dialect: Dialect) -> Self {
        match dialect {
            Dialect::OpenaiChat => Parser::OpenaiChat(openai_chat::Stream::default()),
            Dialect::Anthropic => Parser::Anthropic(anthropic::Stream::default()),
        }
    }

    pub(super) fn event(&mut self, event: &Sse, sink: Sink<'_>) -> Result<Flow, Trouble> {
        match self {
            Parser::OpenaiChat(stream) => stream.event(event, sink),
            Parser::Anthropic(stream) => stream.event(event, sink),
        }
    }

    /// Whether the model has said that it is done.
    pub(super) fn is_complete(&self) -> bool {
        match self {
            Parser::OpenaiChat(stream) => stream.is_complete(),
            Parser::Anthropic(stream) => stream.is_complete(),
        }
    }

    pub(super) fn finish(self, provider: &str, model: &str) -> Result<Reply, serde_json::Error> {
        match self {
            Parser::OpenaiChat(stream) => stream.finish(provider, model),
            Parser::Anthropic(stream) => stream.finish(provider, model),
        }
    }
}

/// A reply before it has its raw bytes.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) text: String,
    pub(super) thinking: String,
    pub(super) calls: Vec<ProposedCall>,
    pub(super) usage: Usage,
}

impl Draft {
    /// Adds a call; its id becomes unique within the message.
    pub(super) fn call(&mut self, id: String, name: String, arguments: &str) {
        let taken: Vec<&str> = self.calls.iter().map(|call| call.id.as_str()).collect();
        let id = conversation::unique(id, &taken);
        self.calls.push(ProposedCall { id, name, arguments: Arguments::parse(arguments) });
    }

    pub(super) fn reply(self, raw: super::message::Raw, stop: Stop) -> Reply {
        let usage = Usage { requests: 1, ..self.usage };
        Reply { text: self.text, thinking: self.thinking, calls: self.calls, raw, usage, stop }
    }
}
