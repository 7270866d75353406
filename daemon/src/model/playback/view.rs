//! A request as the rules see it, whichever dialect it came in.

use serde_json::Value;

use super::script::Place;

#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) model: String,
    system: String,
    items: Vec<Item>,
}

#[derive(Debug, PartialEq, Eq)]
enum Item {
    User(String),
    Assistant { text: String, calls: Vec<Call> },
    Result { content: String, is_error: bool },
}

#[derive(Debug, PartialEq, Eq)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

impl View {
    pub(super) fn of_openai(body: &Value) -> Self {
        let mut view = Self { model: text(&body["model"]), ..Self::default() };
        for message in list(&body["messages"]) {
            let content = joined(&message["content"]);
            match message["role"].as_str() {
                Some("system" | "developer") => view.system.push_str(&content),
                Some("assistant") => {
                    let calls = list(&message["tool_calls"]).iter().map(|call| Call {
                        id: text(&call["id"]),
                        name: text(&call["function"]["name"]),
                        arguments: text(&call["function"]["arguments"]),
                    });
                    view.items.push(Item::Assistant { text: content, calls: calls.collect() });
                }
                // This dialect has no mark for errors; the client writes it in front.
                Some("tool") => {
                    let is_error = content.starts_with("Error");
                    view.items.push(Item::Result { content, is_error });
                }
                _ => view.items.push(Item::User(content)),
            }
        }
        view
    }

    pub(super) fn of_anthropic(body: &Value) -> Self {
        let mut view =
            Self { model: text(&body["model"]), system: joined(&body["system"]), ..Self::default() };
        for message in list(&body["messages"]) {
            let content = &message["content"];
            if message["role"] == "assistant" {
                let calls =
                    list(content).iter().filter(|block| block["type"] == "tool_use").map(|block| Call {
                        id: text(&block["id"]),
                        name: text(&block["name"]),
                        arguments: block["input"].to_string(),
                    });
                view.items.push(Item::Assistant { text: joined(content), calls: calls.collect() });
                continue;
            }
            if let Some(text) = content.as_str() {
                view.items.push(Item::User(text.to_owned()));
            }
            for block in list(content) {
                view.items.push(if block["type"] == "tool_result" {
                    Item::Result { content: joined(&block["content"]), is_error: block["is_error"] == true }
                } else {
                    Item::User(text(&block["text"]))
                });
            }
        }
        view
    }

    pub(super) fn total_answers(&self) -> usize {
        self.items.iter().filter(|item| matches!(item, Item::Assistant { .. })).count()
    }

    pub(super) fn answers(&self) -> usize {
        let since = self.items.iter().rev().take_while(|item| !matches!(item, Item::User(_)));
        since.filter(|item| matches!(item, Item::Assistant { .. })).count()
    }

    /// Whether the ids of the newest assistant message's calls begin so.
    pub(super) fn newest_ids_begin(&self, prefix: &str) -> bool {
        self.newest().is_some_and(|(_, calls)| calls.first().is_some_and(|call| call.id.starts_with(prefix)))
    }

    /// The name of the newest call, if it is answered.
    pub(super) fn last_call(&self) -> Option<&str> {
        let (_, calls) = self.newest()?;
        self.newest_results().next()?;
        calls.last().map(|call| call.name.as_str())
    }

    /// Whether a tool was called anywhere in the context.
    pub(super) fn was_called(&self, name: &str) -> bool {
        self.items.iter().any(|item| match item {
            Item::Assistant { calls, .. } => calls.iter().any(|call| call.name == name),
            Item::User(_) | Item::Result { .. } => false,
        })
    }

    pub(super) fn result_is_error(&self) -> bool {
        self.newest_results().any(|(_, is_error)| is_error)
    }

    pub(super) fn texts(&self, place: Place) -> Vec<&str> {
        let users = || {
            self.items.iter().filter_map(|item| match item {
                Item::User(text) => Some(text.as_str()),
                Item::Assistant { .. } | Item::Result { .. } => None,
            })
        };
        match place {
            Place::System => vec![&self.system],
            Place::Prompt => users().next_back().into_iter().collect(),
            Place::User => users().collect(),
            Place::Assistant => self.newest().map(|(text, _)| text).into_iter().collect(),
            Place::Result => self.newest_results().map(|(content, _)| content).collect(),
            Place::Results => self
                .items
                .iter()
                .filter_map(|item| match item {
                    Item::Result { content, .. } => Some(content.as_str()),
                    Item::User(_) | Item::Assistant { .. } => None,
                })
                .collect(),
            Place::Any => {
                let mut texts = vec![self.system.as_str()];
                for item in &self.items {
                    match item {
                        Item::User(text) | Item::Result { content: text, .. } => texts.push(text),
                        Item::Assistant { text, calls } => {
                            texts.push(text);
                            texts.extend(calls.iter().map(|call| call.arguments.as_str()));
                        }
                    }
                }
                texts
            }
        }
    }

    fn newest(&self) -> Option<(&str, &[Call])> {
        self.items.iter().rev().find_map(|item| match item {
            Item::Assistant { text, calls } => Some((text.as_str(), calls.as_slice())),
            Item::User(_) | Item::Result { .. } => None,
        })
    }

    /// Results after the newest assistant message, in order.
    fn newest_results(&self) -> impl Iterator<Item = (&str, bool)> {
        let newest = self.items.iter().rposition(|item| matches!(item, Item::Assistant { .. }));
        let after = newest.map_or(&[][..], |at| &self.items[at + 1..]);
        after.iter().filter_map(|item| match item {
            Item::Result { content, is_error } => Some((content.as_str(), *is_error)),
            Item::User(_) | Item::Assistant { .. } => None,
        })
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A string, or the texts of a list of blocks.
fn joined(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_dialects_look_the_same() {
        let openai = View::of_openai(&json!({"model": "m", "messages": [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "ok", "tool_calls": [
                {"id": "call_a_0_0", "function": {"name": "f", "arguments": "{\"x\":1}"}}]},
            {"role": "tool", "tool_call_id": "call_a_0_0", "content": "Error: no"},
            {"role": "user", "content": "note"},
        ]}));
        let anthropic = View::of_anthropic(
            &json!({"model": "m", "system": [{"type": "text", "text": "S"}], "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                {"role": "assistant", "content": [{"type": "text", "text": "ok"},
                    {"type": "tool_use", "id": "call_a_0_0", "name": "f", "input": {"x": 1}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "call_a_0_0", "content": "Error: no", "is_error": true},
                    {"type": "text", "text": "note"}]},
            ]}),
        );
        assert_eq!(openai.items, anthropic.items);
        assert_eq!(openai.system, anthropic.system);
        assert_eq!((openai.answers(), openai.total_answers()), (0, 1));
        assert_eq!(openai.last_call(), Some("f"));
        assert!(openai.result_is_error() && openai.newest_ids_begin("call_a_"));
        assert!(openai.was_called("f") && !openai.was_called("g"));
        assert_eq!(openai.texts(Place::Prompt), ["note"]);
        assert_eq!(openai.texts(Place::Result), ["Error: no"]);
        assert_eq!(openai.texts(Place::Any), ["S", "hi", "ok", "{\"x\":1}", "Error: no", "note"]);
    }
}
