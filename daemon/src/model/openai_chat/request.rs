//! Requests: rendered from structs, so the same request gives the same bytes.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::model::conversation::{Reader, Turn, turns};
use crate::model::message::{Dialect, Request};

/// OpenAI's models that think by themselves and then refuse tools on this API, unless told not to think.
const THINK_OR_CALL: [&str; 4] = ["gpt-5.4", "gpt-5.5", "gpt-5.6", "gpt-6"];

/// The fields stand in the order of their stability: messages last, so that only the end of the body grows.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    messages: Vec<Message<'a>>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a RawValue,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Message<'a> {
    /// As the endpoint wrote it.
    Raw(&'a RawValue),
    Plain {
        role: &'static str,
        content: Cow<'a, str>,
    },
    Assistant(Assistant<'a>),
    Result {
        role: &'static str,
        tool_call_id: String,
        content: Cow<'a, str>,
    },
}

/// An assistant's message: what is replayed is made of it too.
#[derive(Serialize)]
pub(super) struct Assistant<'a> {
    pub(super) role: &'static str,
    pub(super) content: Option<Cow<'a, str>>,
    /// DeepSeek refuses to go on after a call if the thinking before it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_content: Option<&'a str>,
    /// OpenRouter's form of the same, in whatever shape the model behind it needs.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) reasoning_details: &'a [Box<RawValue>],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<Call<'a>>,
}

#[derive(Serialize)]
pub(super) struct Call<'a> {
    pub(super) id: Cow<'a, str>,
    pub(super) r#type: &'static str,
    pub(super) function: Called<'a>,
}

#[derive(Serialize)]
pub(super) struct Called<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) arguments: Cow<'a, str>,
}

/// The body of `POST {base_url}/chat/completions`.
///
/// # Errors
/// None in practice: everything in it is a string, or JSON already.
pub(in crate::model) fn render(provider: &str, request: &Request) -> Result<Vec<u8>, serde_json::Error> {
    let reader = Reader { provider, model: &request.model, dialect: Dialect::OpenaiChat };
    let mut messages = Vec::new();
    if !request.system.trim().is_empty() {
        messages.push(Message::Plain { role: "system", content: Cow::Borrowed(&request.system) });
    }
    for turn in turns(&request.messages, reader) {
        match turn {
            Turn::Assistant(said) => messages.push(match said.raw {
                Some(raw) => Message::Raw(raw),
                None => Message::Assistant(Assistant {
                    role: "assistant",
                    content: join(&said.texts),
                    reasoning_content: None,
                    reasoning_details: &[],
                    tool_calls: said
                        .calls
                        .into_iter()
                        .map(|call| Call {
                            id: Cow::Owned(call.id),
                            r#type: "function",
                            function: Called {
                                name: call.name,
                                arguments: Cow::Borrowed(call.arguments.get()),
                            },
                        })
                        .collect(),
                }),
            }),
            Turn::User(asked) => {
                for answer in asked.results {
                    messages.push(Message::Result {
                        role: "tool",
                        tool_call_id: answer.id,
                        content: result(answer.content, answer.is_error),
                    });
                }
                for text in asked.texts {
                    messages.push(Message::Plain { role: "user", content: text });
                }
            }
        }
    }
    let tools: Vec<Tool<'_>> = request
        .tools
        .iter()
        .map(|tool| Tool {
            r#type: "function",
            function: Function {
                name: &tool.name,
                description: &tool.description,
                parameters: &tool.input_schema,
            },
        })
        .collect();
    let must_not_think = provider == "openai"
        && !tools.is_empty()
        && THINK_OR_CALL.iter().any(|prefix| request.model.starts_with(prefix));
    serde_json::to_vec(&Body {
        model: &request.model,
        stream: true,
        stream_options: StreamOptions { include_usage: true },
        reasoning_effort: must_not_think.then_some("none"),
        tools,
        messages,
    })
}

fn join<'a>(texts: &[&'a str]) -> Option<Cow<'a, str>> {
    match texts {
        [] => None,
        [one] => Some(Cow::Borrowed(one)),
        several => Some(Cow::Owned(several.join("\n\n"))),
    }
}

/// This dialect has no mark for a failed call, so the text says it.
fn result(content: &str, is_error: bool) -> Cow<'_, str> {
    if is_error && !content.starts_with("Error") {
        Cow::Owned(format!("Error: {content}"))
    } else {
        Cow::Borrowed(content)
    }
}
