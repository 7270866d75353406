//! Tests of the whole module: what is rendered, what is parsed, and both over HTTP on loopback.

mod demo;
mod faults;
mod rendering;
mod streams;
mod talk;

use std::sync::Arc;

use serde_json::value::RawValue;

use super::message::{Block, Message, Request, Role, ToolSpec};

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

fn user(text: &str) -> Arc<Message> {
    message(Role::User, vec![Block::Text { text: text.to_owned() }])
}

fn message(role: Role, blocks: Vec<Block>) -> Arc<Message> {
    Arc::new(Message { role, blocks, raw: None })
}

fn call(id: &str, name: &str, arguments: &str) -> Block {
    Block::ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: raw(arguments) }
}

fn result(id: &str, content: &str, is_error: bool) -> Block {
    Block::ToolResult { id: id.to_owned(), content: content.to_owned(), is_error }
}

fn request(model: &str, messages: Vec<Arc<Message>>) -> Request {
    let tool = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: format!("Does {name}."),
        input_schema: raw(r#"{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"string"}}}"#),
    };
    Request {
        model: model.to_owned(),
        system: "You are a careful engineer.".into(),
        tools: vec![tool("read_file"), tool("write_file")].into(),
        messages,
    }
}
