//! Answers as streams of events, in both dialects.

use serde_json::{Value, json};

use super::answer::Answer;
use super::script::{Odd, Pace, Stop, Tokens};

/// The events of one answer, each with its framing.
pub(super) struct Written<'a> {
    pub(super) answer: &'a Answer,
    pub(super) model: &'a str,
    pub(super) tokens: Tokens,
    pub(super) stop: Stop,
    pub(super) pace: Pace,
    pub(super) odd: &'a [Odd],
}

impl Written<'_> {
    fn is_odd(&self, odd: Odd) -> bool {
        self.odd.contains(&odd)
    }

    /// An event in the framing of this answer.
    pub(super) fn frame(&self, event: Option<&str>, data: &str) -> String {
        let (end, blank) = if self.is_odd(Odd::Framing) { ("\r\n", "") } else { ("\n", " ") };
        let comment = if self.is_odd(Odd::Framing) { ": still here\r\n" } else { "" };
        let event = event.map(|name| format!("event:{blank}{name}{end}")).unwrap_or_default();
        format!("{comment}{event}data:{blank}{data}{end}{end}")
    }

    pub(super) fn openai(&self) -> Vec<String> {
        let chunk = |delta: Value, finish: Option<&str>| {
            let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
            self.frame(None, &self.openai_chunk(json!([choice]), Value::Null))
        };
        let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), None)];
        events.extend(
            self.pieces(&self.answer.thinking).map(|piece| chunk(json!({"reasoning_content": piece}), None)),
        );
        events.extend(self.pieces(&self.answer.text).map(|piece| chunk(json!({"content": piece}), None)));
        for (at, call) in self.answer.calls.iter().enumerate() {
            let named = |mut piece: Value| {
                if !self.is_odd(Odd::NoIndex) {
                    piece["index"] = json!(at);
                }
                json!({"tool_calls": [piece]})
            };
            let id = if self.is_odd(Odd::NoIds) { Value::Null } else { json!(call.id) };
            let begin =
                json!({"id": id, "type": "function", "function": {"name": call.name, "arguments": ""}});
            let halves = split(&call.arguments);
            if self.is_odd(Odd::NoIds) && self.is_odd(Odd::NoIndex) {
                // Such servers send every call whole.
                let whole =
                    json!({"type": "function", "function": {"name": call.name, "arguments": call.arguments}});
                events.push(chunk(named(whole), None));
                continue;
            }
            events.push(chunk(named(begin), None));
            for half in [halves.0, halves.1] {
                events.push(chunk(named(json!({"function": {"arguments": half}})), None));
            }
        }
        let finish = match self.stop {
            Stop::Length => "length",
            Stop::Refusal => "content_filter",
            Stop::End if self.answer.calls.is_empty() => "stop",
            Stop::End => "tool_calls",
        };
        events.push(chunk(json!({}), Some(finish)));
        if !self.is_odd(Odd::NoUsage) {
            let Tokens { input, output, cache_read, .. } = self.tokens;
            let usage = json!({
                "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
                "prompt_tokens_details": {"cached_tokens": cache_read},
            });
            events.push(self.frame(None, &self.openai_chunk(json!([]), usage)));
        }
        events.push(self.frame(None, "[DONE]"));
        events
    }

    fn openai_chunk(&self, choices: Value, usage: Value) -> String {
        let id = "chatcmpl-playback";
        json!({"id": id, "object": "chat.completion.chunk", "created": 0, "model": self.model, "choices": choices, "usage": usage})
            .to_string()
    }

    pub(super) fn anthropic(&self) -> Vec<String> {
        let event = |name: &str, mut data: Value| {
            data["type"] = json!(name);
            self.frame(Some(name), &data.to_string())
        };
        let Tokens { input, output, cache_read, cache_write } = self.tokens;
        let usage = if self.is_odd(Odd::NoUsage) {
            json!({})
        } else {
            json!({
                "input_tokens": input.saturating_sub(cache_read + cache_write), "output_tokens": 1,
                "cache_read_input_tokens": cache_read, "cache_creation_input_tokens": cache_write,
            })
        };
        let message = json!({"id": "msg_playback", "type": "message", "role": "assistant", "model": self.model,
            "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage});
        let mut events = vec![event("message_start", json!({"message": message})), event("ping", json!({}))];
        let mut index = 0;
        let mut block = |start: Value, deltas: Vec<Value>| {
            events.push(event("content_block_start", json!({"index": index, "content_block": start})));
            events.extend(
                deltas
                    .into_iter()
                    .map(|delta| event("content_block_delta", json!({"index": index, "delta": delta}))),
            );
            events.push(event("content_block_stop", json!({"index": index})));
            index += 1;
        };
        if !self.answer.thinking.is_empty() {
            let mut deltas: Vec<Value> = self
                .pieces(&self.answer.thinking)
                .map(|piece| json!({"type": "thinking_delta", "thinking": piece}))
                .collect();
            deltas.push(json!({"type": "signature_delta", "signature": "cGxheWJhY2s="}));
            block(json!({"type": "thinking", "thinking": "", "signature": ""}), deltas);
        }
        if !self.answer.text.is_empty() {
            let deltas = self
                .pieces(&self.answer.text)
                .map(|piece| json!({"type": "text_delta", "text": piece}))
                .collect();
            block(json!({"type": "text", "text": ""}), deltas);
        }
        for call in &self.answer.calls {
            let id = if self.is_odd(Odd::NoIds) { "" } else { &call.id };
            let (head, tail) = split(&call.arguments);
            let deltas = [head, tail].map(|half| json!({"type": "input_json_delta", "partial_json": half}));
            block(json!({"type": "tool_use", "id": id, "name": call.name, "input": {}}), deltas.into());
        }
        let stop = match self.stop {
            Stop::Length => "max_tokens",
            Stop::Refusal => "refusal",
            Stop::End if self.answer.calls.is_empty() => "end_turn",
            Stop::End => "tool_use",
        };
        let usage = if self.is_odd(Odd::NoUsage) { json!({}) } else { json!({"output_tokens": output}) };
        let ending = json!({"delta": {"stop_reason": stop, "stop_sequence": null}, "usage": usage});
        events.push(event("message_delta", ending));
        events.push(event("message_stop", json!({})));
        events
    }

    /// `text` in pieces of the pace's size.
    fn pieces<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> + use<'t> {
        let size = self.pace.chunk.max(1);
        let mut rest = text;
        std::iter::from_fn(move || {
            let end = rest.char_indices().nth(size).map_or(rest.len(), |(at, _)| at);
            let (piece, after) = rest.split_at(end);
            rest = after;
            (!piece.is_empty()).then_some(piece)
        })
    }
}

/// Arguments never come in one piece from a real server.
fn split(text: &str) -> (&str, &str) {
    let mut middle = text.len() / 2;
    while !text.is_char_boundary(middle) {
        middle -= 1;
    }
    text.split_at(middle)
}

/// An error in the body of an answer, or inside of a stream.
pub(super) fn error(anthropic: bool, code: &str, message: &str) -> String {
    if anthropic {
        json!({"type": "error", "error": {"type": code, "message": message}}).to_string()
    } else {
        json!({"error": {"message": message, "type": code, "code": code}}).to_string()
    }
}
