//! Streams: `message_start`, blocks, `message_delta`, `message_stop`. Blocks are put together again for the replay,
//! signatures and kinds of blocks that nobody here knows included.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use sse_stream::Sse;

use crate::model::conversation::wire_name;
use crate::model::message::{Dialect, Raw, Reply, Stop};
use crate::model::stream::{Delta, Draft, Flow, Reported, Sink, Trouble};

/// What an event is. The rest is read once this is known: raw JSON cannot be kept inside of a tagged enum.
#[derive(Deserialize)]
struct Typed<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
}

#[derive(Deserialize)]
struct MessageStart {
    message: Started,
}

#[derive(Deserialize)]
struct BlockStarted<'a> {
    index: u64,
    #[serde(borrow)]
    content_block: &'a RawValue,
}

#[derive(Deserialize)]
struct BlockGrew {
    index: u64,
    delta: BlockDelta,
}

#[derive(Deserialize)]
struct MessageDelta {
    #[serde(default)]
    delta: Option<Ending>,
    #[serde(default)]
    usage: Option<Tokens>,
}

#[derive(Deserialize)]
struct Failed<'a> {
    #[serde(borrow)]
    error: &'a RawValue,
}

#[derive(Deserialize)]
struct Started {
    #[serde(default)]
    usage: Option<Tokens>,
}

/// The fields of all kinds of blocks that are understood.
#[derive(Deserialize)]
struct BlockStart {
    #[serde(default)]
    text: String,
    #[serde(default)]
    thinking: String,
    #[serde(default)]
    signature: String,
    #[serde(default)]
    id: String,
    #[serde(default)]
    name: String,
    /// Empty by the book, followed by deltas; some servers send it whole here.
    #[serde(default)]
    input: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum BlockDelta {
    TextDelta {
        text: String,
    },
    ThinkingDelta {
        thinking: String,
    },
    SignatureDelta {
        signature: String,
    },
    InputJsonDelta {
        partial_json: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Ending {
    #[serde(default)]
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct Tokens {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
}

/// A block under construction.
enum Block {
    Text(String),
    Thinking {
        thinking: String,
        signature: String,
    },
    Call {
        id: String,
        name: String,
        whole: Option<Box<RawValue>>,
        pieces: String,
    },
    /// Replayed as it began.
    Unknown(Box<RawValue>),
}

/// A block as it is sent back.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Replayed<'a> {
    Text {
        text: &'a str,
    },
    Thinking {
        thinking: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        signature: &'a str,
    },
    ToolUse {
        id: &'a str,
        name: Cow<'a, str>,
        input: Box<RawValue>,
    },
}

fn type_of(json: &str) -> Result<Cow<'_, str>, serde_json::Error> {
    serde_json::from_str::<Typed<'_>>(json).map(|typed| typed.r#type)
}

#[derive(Default)]
pub(in crate::model) struct Stream {
    draft: Draft,
    blocks: Vec<(u64, Block)>,
    /// Input tokens that were neither read from nor written to a cache.
    fresh_tokens: u64,
    stop_reason: Option<String>,
    stopped: bool,
}

impl Stream {
    pub(in crate::model) fn event(&mut self, event: &Sse, sink: Sink<'_>) -> Result<Flow, Trouble> {
        let data = event.data.as_deref().unwrap_or_default().trim();
        if data.is_empty() || event.event.as_deref() == Some("ping") {
            return Ok(Flow::More);
        }
        match type_of(data)?.as_ref() {
            "message_start" => {
                let MessageStart { message } = serde_json::from_str(data)?;
                self.count(message.usage.as_ref());
            }
            "content_block_start" => {
                let BlockStarted { index, content_block } = serde_json::from_str(data)?;
                self.start(index, content_block, sink)?;
            }
            "content_block_delta" => {
                let BlockGrew { index, delta } = serde_json::from_str(data)?;
                self.extend(index, delta, sink);
            }
            "message_delta" => {
                let MessageDelta { delta, usage } = serde_json::from_str(data)?;
                self.count(usage.as_ref());
                let reason = delta.and_then(|delta| delta.stop_reason);
                self.stop_reason = reason.or(self.stop_reason.take());
            }
            "message_stop" => {
                self.stopped = true;
                return Ok(Flow::Done);
            }
            "error" => {
                let Failed { error } = serde_json::from_str(data)?;
                return Err(Trouble::Reported(Reported::from_json(error.get())));
            }
            // `ping`, `content_block_stop`, and what is yet to be invented.
            _ => {}
        }
        Ok(Flow::More)
    }

    fn start(&mut self, index: u64, raw: &RawValue, sink: Sink<'_>) -> Result<(), Trouble> {
        let kind = type_of(raw.get())?;
        if !matches!(kind.as_ref(), "text" | "thinking" | "tool_use") {
            self.blocks.push((index, Block::Unknown(raw.to_owned())));
            return Ok(());
        }
        let BlockStart { text, thinking, signature, id, name, input } = serde_json::from_str(raw.get())?;
        let block = match kind.as_ref() {
            "text" => {
                self.say(&text, sink);
                Block::Text(text)
            }
            "thinking" => {
                self.think(&thinking, sink);
                Block::Thinking { thinking, signature }
            }
            _ => Block::Call { id, name, whole: input, pieces: String::new() },
        };
        self.blocks.push((index, block));
        Ok(())
    }

    fn extend(&mut self, index: u64, delta: BlockDelta, sink: Sink<'_>) {
        match &delta {
            BlockDelta::TextDelta { text } => self.say(text, sink),
            BlockDelta::ThinkingDelta { thinking } => self.think(thinking, sink),
            BlockDelta::SignatureDelta { .. } | BlockDelta::InputJsonDelta { .. } | BlockDelta::Other => {}
        }
        let known = self.blocks.iter_mut().rfind(|(at, _)| *at == index).map(|(_, block)| block);
        match (known, delta) {
            (Some(Block::Text(text)), BlockDelta::TextDelta { text: more }) => text.push_str(&more),
            (Some(Block::Thinking { thinking, .. }), BlockDelta::ThinkingDelta { thinking: more }) => {
                thinking.push_str(&more);
            }
            (Some(Block::Thinking { signature, .. }), BlockDelta::SignatureDelta { signature: more }) => {
                signature.push_str(&more);
            }
            (Some(Block::Call { pieces, .. }), BlockDelta::InputJsonDelta { partial_json }) => {
                pieces.push_str(&partial_json);
            }
            // Text without a start of its block is kept: it was shown.
            (_, BlockDelta::TextDelta { text }) => self.blocks.push((index, Block::Text(text))),
            _ => {}
        }
    }

    fn say(&mut self, text: &str, sink: Sink<'_>) {
        if !text.is_empty() {
            self.draft.text.push_str(text);
            sink(Delta::Text(text));
        }
    }

    fn think(&mut self, thinking: &str, sink: Sink<'_>) {
        if !thinking.is_empty() {
            self.draft.thinking.push_str(thinking);
            sink(Delta::Thinking(thinking));
        }
    }

    /// Numbers are running totals: newer ones replace older ones.
    fn count(&mut self, tokens: Option<&Tokens>) {
        let Some(tokens) = tokens else { return };
        let usage = &mut self.draft.usage;
        usage.output_tokens = tokens.output_tokens.unwrap_or(usage.output_tokens);
        usage.cache_read_tokens = tokens.cache_read_input_tokens.unwrap_or(usage.cache_read_tokens);
        usage.cache_write_tokens = tokens.cache_creation_input_tokens.unwrap_or(usage.cache_write_tokens);
        self.fresh_tokens = tokens.input_tokens.unwrap_or(self.fresh_tokens);
        usage.input_tokens = self
            .fresh_tokens
            .saturating_add(usage.cache_read_tokens)
            .saturating_add(usage.cache_write_tokens);
    }

    pub(in crate::model) fn is_complete(&self) -> bool {
        self.stopped || self.stop_reason.is_some()
    }

    pub(in crate::model) fn finish(
        mut self,
        provider: &str,
        model: &str,
    ) -> Result<Reply, serde_json::Error> {
        let mut replayed = Vec::with_capacity(self.blocks.len());
        for (_, block) in &self.blocks {
            match block {
                // The API refuses to take blank text back.
                Block::Text(text) if text.trim().is_empty() => {}
                Block::Text(text) => replayed.push(to_raw_value(&Replayed::Text { text })?),
                // Newer models keep their thoughts and send the signature alone.
                Block::Thinking { thinking, signature } if thinking.is_empty() && signature.is_empty() => {}
                Block::Thinking { thinking, signature } => {
                    replayed.push(to_raw_value(&Replayed::Thinking { thinking, signature })?);
                }
                Block::Call { id, name, whole, pieces } => {
                    let whole = whole.as_ref().map_or("", |whole| whole.get());
                    let written = if pieces.trim().is_empty() { whole } else { pieces };
                    self.draft.call(id.clone(), name.clone(), written);
                    if let Some(call) = self.draft.calls.last() {
                        let (name, input) = (wire_name(&call.name), call.arguments.for_history());
                        replayed.push(to_raw_value(&Replayed::ToolUse { id: &call.id, name, input })?);
                    }
                }
                Block::Unknown(raw) => replayed.push(raw.clone()),
            }
        }
        let body = to_raw_value(&replayed)?;
        let raw =
            Raw { provider: provider.to_owned(), model: model.to_owned(), dialect: Dialect::Anthropic, body };
        let stop = match self.stop_reason.as_deref() {
            Some("max_tokens" | "model_context_window_exceeded") => Stop::Length,
            Some("refusal") => Stop::Refusal("the model declined to go on".to_owned()),
            _ => Stop::End,
        };
        Ok(self.draft.reply(raw, stop))
    }
}
