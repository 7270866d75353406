//! Requests: rendered from structs, so the same request gives the same bytes, but for the cache marks, which move.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::max_tokens;
use crate::model::conversation::{Reader, Turn, turns};
use crate::model::message::{Dialect, Request};

/// The fields stand in the order of their stability: messages last, so that only the end of the body grows.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<[Block<'a>; 1]>,
    messages: Vec<Message<'a>>,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Content<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    /// As the endpoint wrote it.
    Raw(&'a RawValue),
    Blocks(Vec<Block<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    ToolUse {
        id: String,
        name: Cow<'a, str>,
        input: &'a RawValue,
    },
    ToolResult {
        tool_use_id: String,
        content: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
}

/// Everything up to the block that carries it is kept for the next request.
#[derive(Clone, Copy, Serialize)]
struct CacheControl {
    r#type: &'static str,
}

const KEEP: CacheControl = CacheControl { r#type: "ephemeral" };

/// How many of the newest user messages end in a mark: the one that this request adds, and the one that the request
/// before wrote to the cache. With tools and system that makes four, all that the API allows.
const MARKED_MESSAGES: usize = 2;

/// The body of `POST {base_url}/v1/messages`.
///
/// # Errors
/// None in practice: everything in it is a string, or JSON already.
pub(in crate::model) fn render(provider: &str, request: &Request) -> Result<Vec<u8>, serde_json::Error> {
    let reader = Reader { provider, model: &request.model, dialect: Dialect::Anthropic };
    let mut messages: Vec<Message<'_>> = Vec::new();
    for turn in turns(&request.messages, reader) {
        messages.push(match turn {
            Turn::Assistant(said) => {
                let content = said.raw.map_or_else(
                    || {
                        let texts = said
                            .texts
                            .into_iter()
                            .map(|text| Block::Text { text: text.into(), cache_control: None });
                        let calls = said.calls.into_iter().map(|call| Block::ToolUse {
                            id: call.id,
                            name: call.name,
                            input: call.arguments,
                        });
                        Content::Blocks(texts.chain(calls).collect())
                    },
                    Content::Raw,
                );
                Message { role: "assistant", content }
            }
            Turn::User(asked) => {
                let results = asked.results.into_iter().map(|answer| Block::ToolResult {
                    tool_use_id: answer.id,
                    content: answer.content,
                    is_error: answer.is_error,
                    cache_control: None,
                });
                let texts = asked.texts.into_iter().map(|text| Block::Text { text, cache_control: None });
                Message { role: "user", content: Content::Blocks(results.chain(texts).collect()) }
            }
        });
    }
    mark(&mut messages);
    let last = request.tools.len().saturating_sub(1);
    let tools = request.tools.iter().enumerate().map(|(at, tool)| Tool {
        name: &tool.name,
        description: &tool.description,
        input_schema: &tool.input_schema,
        cache_control: (at == last).then_some(KEEP),
    });
    let system = (!request.system.trim().is_empty())
        .then(|| [Block::Text { text: Cow::Borrowed(&request.system), cache_control: Some(KEEP) }]);
    serde_json::to_vec(&Body {
        model: &request.model,
        max_tokens: max_tokens(&request.model),
        stream: true,
        tools: tools.collect(),
        system,
        messages,
    })
}

fn mark(messages: &mut [Message<'_>]) {
    let users = messages.iter_mut().rev().filter(|message| message.role == "user");
    for message in users.take(MARKED_MESSAGES) {
        let Content::Blocks(blocks) = &mut message.content else { continue };
        if let Some(Block::Text { cache_control, .. } | Block::ToolResult { cache_control, .. }) =
            blocks.last_mut()
        {
            *cache_control = Some(KEEP);
        }
    }
}
