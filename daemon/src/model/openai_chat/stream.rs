//! Streams: chunks until `[DONE]` or the end, lenient about everything that servers do differently.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use sse_stream::Sse;

use super::calls::{Calls, Piece};
use super::request::{Assistant, Call, Called};
use crate::model::conversation::wire_name;
use crate::model::message::{Dialect, Raw, Reply, Stop};
use crate::model::stream::{Delta, Draft, Flow, Reported, Sink, Trouble};

#[derive(Deserialize)]
struct Chunk<'a> {
    /// `error` in some servers' way of saying so.
    #[serde(default, borrow)]
    object: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default)]
    usage: Option<Tokens>,
    #[serde(default, borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(default, borrow)]
    delta: Option<Content<'a>>,
    #[serde(default, borrow)]
    finish_reason: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(default, borrow)]
    content: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    reasoning_content: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    reasoning: Option<Cow<'a, str>>,
    #[serde(default)]
    reasoning_details: Option<Vec<Box<RawValue>>>,
    #[serde(default, borrow)]
    refusal: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    tool_calls: Option<Vec<Piece<'a>>>,
}

#[derive(Deserialize)]
struct Tokens {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<PromptDetails>,
    /// DeepSeek's name of it.
    #[serde(default)]
    prompt_cache_hit_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct PromptDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
    #[serde(default)]
    cache_write_tokens: Option<u64>,
}

#[derive(Default)]
pub(in crate::model) struct Stream {
    draft: Draft,
    calls: Calls,
    /// Set when the field was there at all: an empty one must go back as well.
    reasoning_content: Option<String>,
    reasoning_details: Vec<Box<RawValue>>,
    refusal: String,
    finish_reason: Option<String>,
    done: bool,
}

impl Stream {
    pub(in crate::model) fn event(&mut self, event: &Sse, sink: Sink<'_>) -> Result<Flow, Trouble> {
        let data = event.data.as_deref().unwrap_or_default().trim();
        if data.is_empty() {
            return Ok(Flow::More);
        }
        if data == "[DONE]" {
            self.done = true;
            return Ok(Flow::Done);
        }
        let chunk: Chunk<'_> = serde_json::from_str(data)?;
        if let Some(error) = chunk.error.filter(|error| error.get() != "null") {
            return Err(Trouble::Reported(Reported::from_json(error.get())));
        }
        if event.event.as_deref() == Some("error") || chunk.object.as_deref() == Some("error") {
            return Err(Trouble::Reported(Reported::from_json(data)));
        }
        if let Some(tokens) = chunk.usage {
            self.count(&tokens);
        }
        // Only one answer was asked for.
        let choice =
            chunk.choices.unwrap_or_default().into_iter().find(|choice| choice.index.unwrap_or(0) == 0);
        let Some(choice) = choice else { return Ok(Flow::More) };
        if let Some(content) = choice.delta {
            self.take(content, sink);
        }
        if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
            if reason == "error" {
                let message = "the provider ended the answer with an error".to_owned();
                return Err(Trouble::Reported(Reported { code: "error".to_owned(), message }));
            }
            self.finish_reason = Some(reason.into_owned());
        }
        Ok(Flow::More)
    }

    fn take(&mut self, content: Content<'_>, sink: Sink<'_>) {
        if let Some(thinking) = content.reasoning_content {
            self.reasoning_content.get_or_insert_default().push_str(&thinking);
            self.think(&thinking, sink);
        } else if let Some(thinking) = content.reasoning {
            self.think(&thinking, sink);
        }
        self.reasoning_details.extend(content.reasoning_details.unwrap_or_default());
        for text in content.content.iter().chain(&content.refusal).filter(|text| !text.is_empty()) {
            self.draft.text.push_str(text);
            sink(Delta::Text(text));
        }
        self.refusal.push_str(&content.refusal.unwrap_or_default());
        self.calls.add(content.tool_calls.unwrap_or_default());
    }

    fn think(&mut self, thinking: &str, sink: Sink<'_>) {
        if !thinking.is_empty() {
            self.draft.thinking.push_str(thinking);
            sink(Delta::Thinking(thinking));
        }
    }

    /// The newest numbers replace older ones: servers that send them in every chunk send running totals.
    fn count(&mut self, tokens: &Tokens) {
        let usage = &mut self.draft.usage;
        usage.input_tokens = tokens.prompt_tokens.unwrap_or(usage.input_tokens);
        usage.output_tokens = tokens.completion_tokens.unwrap_or(usage.output_tokens);
        let details = tokens.prompt_tokens_details.as_ref();
        let cached = details.and_then(|details| details.cached_tokens).or(tokens.prompt_cache_hit_tokens);
        usage.cache_read_tokens = cached.unwrap_or(usage.cache_read_tokens);
        let written = details.and_then(|details| details.cache_write_tokens);
        usage.cache_write_tokens = written.unwrap_or(usage.cache_write_tokens);
    }

    pub(in crate::model) fn is_complete(&self) -> bool {
        self.done || self.finish_reason.is_some()
    }

    pub(in crate::model) fn finish(
        mut self,
        provider: &str,
        model: &str,
    ) -> Result<Reply, serde_json::Error> {
        for call in self.calls.into_parts() {
            self.draft.call(call.id, call.name, &call.arguments);
        }
        let draft = self.draft;
        let tool_calls = draft.calls.iter().map(|call| Call {
            id: Cow::Borrowed(&call.id),
            r#type: "function",
            function: Called {
                name: wire_name(&call.name),
                arguments: Cow::Owned(call.arguments.for_history().get().to_owned()),
            },
        });
        // Content may be null only beside calls.
        let content = (!draft.text.is_empty() || draft.calls.is_empty()).then_some(draft.text.as_str());
        let body = to_raw_value(&Assistant {
            role: "assistant",
            content: content.map(Cow::Borrowed),
            reasoning_content: self.reasoning_content.as_deref(),
            reasoning_details: &self.reasoning_details,
            tool_calls: tool_calls.collect(),
        })?;
        let raw = Raw {
            provider: provider.to_owned(),
            model: model.to_owned(),
            dialect: Dialect::OpenaiChat,
            body,
        };
        let stop = match self.finish_reason.as_deref() {
            Some("length" | "max_tokens") => Stop::Length,
            Some("content_filter") => Stop::Refusal("stopped by the provider's content filter".to_owned()),
            _ if !self.refusal.is_empty() => Stop::Refusal(self.refusal),
            _ => Stop::End,
        };
        Ok(draft.reply(raw, stop))
    }
}
