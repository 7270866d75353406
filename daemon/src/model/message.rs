//! What is said to a model and what it says back, in no provider's dialect.

use agentd_protocol::turn::Usage;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// How a provider wants requests written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    OpenaiChat,
    Anthropic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    User,
    Assistant,
}

/// One message of a context. Immutable once journaled: it must render to the same bytes in every later request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Message {
    pub role: Role,
    pub blocks: Vec<Block>,
    /// The bytes of the dialect that made it, replayed verbatim to the same provider and model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<Raw>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Raw {
    pub provider: String,
    pub model: String,
    pub dialect: Dialect,
    /// openai-chat: the whole assistant message object. anthropic: the array of its content blocks.
    #[serde(with = "json_text")]
    pub body: Box<RawValue>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Block {
    Text {
        text: String,
    },
    /// Shown to people; dropped where the dialect cannot replay it.
    Thinking {
        text: String,
    },
    ToolCall {
        /// The provider's id of the call, or a made-up one where it gave none. Unique within its message.
        id: String,
        name: String,
        /// Always a JSON object, as the provider wrote it; `{}` where that was malformed.
        #[serde(with = "json_text")]
        arguments: Box<RawValue>,
    },
    ToolResult {
        /// The `id` of the call that it answers, in the message just before.
        id: String,
        content: String,
        is_error: bool,
    },
}

/// A tool as a model sees it. The list is fixed for a session and its bytes are journaled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// JSON Schema of the arguments; `type: object`.
    #[serde(with = "json_text")]
    pub input_schema: Box<RawValue>,
}

/// Everything a request is made of. The same request renders to the same bytes.
#[derive(Clone, Debug)]
pub struct Request {
    pub model: String,
    pub system: std::sync::Arc<str>,
    pub tools: std::sync::Arc<[ToolSpec]>,
    pub messages: Vec<std::sync::Arc<Message>>,
}

impl Request {
    /// About how many bytes it renders to.
    #[must_use]
    pub fn weight(&self) -> usize {
        let tools = self.tools.iter().map(|tool| tool.description.len() + tool.input_schema.get().len());
        let messages = self.messages.iter().map(|message| {
            let blocks = message.blocks.iter().map(|block| match block {
                Block::Text { text } | Block::Thinking { text } => text.len(),
                Block::ToolCall { arguments, .. } => arguments.get().len(),
                Block::ToolResult { content, .. } => content.len(),
            });
            blocks.sum::<usize>()
        });
        self.system.len() + tools.sum::<usize>() + messages.sum::<usize>()
    }
}

/// A complete answer.
#[derive(Clone, Debug)]
pub struct Reply {
    pub text: String,
    pub thinking: String,
    pub calls: Vec<ProposedCall>,
    pub raw: Raw,
    pub usage: Usage,
    pub stop: Stop,
}

impl Reply {
    /// The message that the context keeps of this answer. Malformed arguments become `{}`: what goes back to a model
    /// must be valid, and the call's error result says what was wrong.
    #[must_use]
    pub fn message(&self) -> Message {
        let mut blocks = Vec::with_capacity(self.calls.len() + 2);
        if !self.thinking.is_empty() {
            blocks.push(Block::Thinking { text: self.thinking.clone() });
        }
        if !self.text.is_empty() {
            blocks.push(Block::Text { text: self.text.clone() });
        }
        blocks.extend(self.calls.iter().map(|call| Block::ToolCall {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.for_history(),
        }));
        Message { role: Role::Assistant, blocks, raw: Some(self.raw.clone()) }
    }
}

#[derive(Clone, Debug)]
pub struct ProposedCall {
    pub id: String,
    pub name: String,
    pub arguments: Arguments,
}

#[derive(Clone, Debug)]
pub enum Arguments {
    /// A JSON object.
    Object(Box<RawValue>),
    /// What came was no JSON object. The call gets an error result and never runs.
    Malformed { text: String, problem: String },
}

impl Arguments {
    /// Reads what a model wrote as the arguments of a call. Nothing at all and `null` mean no arguments.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let trimmed = text.trim();
        let trimmed = if trimmed.is_empty() || trimmed == "null" { "{}" } else { trimmed };
        let malformed = |problem: String| Arguments::Malformed { text: text.to_owned(), problem };
        match RawValue::from_string(trimmed.to_owned()) {
            Ok(raw) => match raw.get().as_bytes().first() {
                Some(b'{') => Arguments::Object(raw),
                Some(b'[') => malformed("an array stands where an object is wanted".to_owned()),
                _ => malformed("a bare value stands where an object is wanted".to_owned()),
            },
            Err(error) => malformed(format!("not valid JSON: {error}")),
        }
    }

    /// What later requests say that the arguments were.
    #[must_use]
    pub fn for_history(&self) -> Box<RawValue> {
        match self {
            Arguments::Object(raw) => raw.clone(),
            // `{}` is JSON; the other arm is for the type only.
            Arguments::Malformed { .. } => {
                RawValue::from_string("{}".to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
            }
        }
    }
}

/// Why the model stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stop {
    /// It said all it wanted to say, or asks for its calls to be run.
    End,
    /// Cut at the length limit. Calls of such a message never run.
    Length,
    /// The provider refused to go on: a filter, a policy.
    Refusal(String),
}

/// JSON kept as a string. Raw JSON survives neither a tagged enum, which a journal's records are, nor a pass through a
/// `Value`; a string survives both, byte for byte.
mod json_text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use serde_json::value::RawValue;

    pub(super) fn serialize<S: Serializer>(raw: &RawValue, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(raw.get())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<RawValue>, D::Error> {
        RawValue::from_string(String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_a_journal_byte_for_byte() {
        #[derive(Serialize, Deserialize)]
        #[serde(tag = "type", rename_all = "camelCase")]
        enum Record {
            Message { message: Message },
        }
        let body = r#"[ {"b": 1.0, "a":"\u00e9"} ]"#;
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let message = Message {
            role: Role::Assistant,
            blocks: vec![Block::ToolCall {
                id: "a".into(),
                name: "f".into(),
                arguments: raw(r#"{ "z":1,"a": 2 }"#),
            }],
            raw: Some(Raw {
                provider: "p".into(),
                model: "m".into(),
                dialect: Dialect::Anthropic,
                body: raw(body),
            }),
        };
        let line = serde_json::to_string(&Record::Message { message }).unwrap();
        let through_value: serde_json::Value = serde_json::from_str(&line).unwrap();
        for text in [line, through_value.to_string()] {
            let Record::Message { message } = serde_json::from_str(&text).unwrap();
            assert_eq!(message.raw.unwrap().body.get(), body);
            let [Block::ToolCall { arguments, .. }] = &message.blocks[..] else {
                panic!("{:?}", message.blocks)
            };
            assert_eq!(arguments.get(), r#"{ "z":1,"a": 2 }"#);
        }
    }
}
