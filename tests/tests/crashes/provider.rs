//! What a strict provider accepts, and that a conversation only grows.

use agentd_tests::Dialect;
use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

/// Every request is one that the provider takes, and repeats the one before it from its beginning, but for `resets`.
pub(crate) fn check(dialect: Dialect, requests: &[Value], resets: usize) -> anyhow::Result<()> {
    for (at, request) in requests.iter().enumerate() {
        let valid = match dialect {
            Dialect::OpenaiChat => openai(request),
            Dialect::Anthropic => anthropic(request),
        };
        valid.with_context(|| format!("request {at} would be refused: {}", request["messages"]))?;
    }
    let mut begun_anew = 0;
    for (at, pair) in requests.windows(2).enumerate() {
        let (before, after) = (pieces(&pair[0]), pieces(&pair[1]));
        ensure!(
            pair[0]["system"] == pair[1]["system"] && pair[0]["tools"] == pair[1]["tools"],
            "system prompt or tools changed after request {at}"
        );
        if !after.starts_with(&before) {
            begun_anew += 1;
            ensure!(
                begun_anew <= resets,
                "request {} does not repeat request {at}:\n{before:#?}\n{after:#?}",
                at + 1
            );
        }
    }
    Ok(())
}

fn messages(request: &Value) -> anyhow::Result<&[Value]> {
    request["messages"].as_array().map(Vec::as_slice).filter(|list| !list.is_empty()).context("no messages")
}

fn openai(request: &Value) -> anyhow::Result<()> {
    let mut messages = messages(request)?.iter().peekable();
    ensure!(messages.next().is_some_and(|first| first["role"] == "system"), "it does not begin with system");
    let mut last = "system";
    while let Some(message) = messages.next() {
        let role = message["role"].as_str().unwrap_or_default();
        match role {
            "user" => ensure!(!text(&message["content"]).is_empty(), "an empty message"),
            "assistant" => {
                ensure!(last != "assistant" && last != "system", "an answer follows {last}");
                let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
                ensure!(!calls.is_empty() || !text(&message["content"]).is_empty(), "an empty answer");
                distinct(calls.iter().map(|call| &call["id"]))?;
                for call in calls {
                    let arguments = call["function"]["arguments"].as_str().context("no arguments")?;
                    serde_json::from_str::<Value>(arguments).context("arguments that are no JSON")?;
                    let result = messages.next().context("a call without a result at the end")?;
                    ensure!(result["role"] == "tool", "{} stands where a result belongs", result["role"]);
                    ensure!(
                        result["tool_call_id"] == call["id"],
                        "{} is answered where {} should be",
                        result["tool_call_id"],
                        call["id"]
                    );
                    last = "tool";
                }
                if !calls.is_empty() {
                    continue;
                }
            }
            other => bail!("{other:?} stands alone"),
        }
        last = role;
    }
    ensure!(last != "assistant", "it ends with an answer");
    Ok(())
}

fn anthropic(request: &Value) -> anyhow::Result<()> {
    ensure!(request["system"].as_array().is_some_and(|system| !system.is_empty()), "no system prompt");
    let messages = messages(request)?;
    let mut open: Vec<&Value> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let wanted = if at % 2 == 0 { "user" } else { "assistant" };
        ensure!(message["role"] == wanted, "message {at} is of {}", message["role"]);
        let blocks = message["content"].as_array().context("content that is no list")?;
        ensure!(!blocks.is_empty(), "an empty message");
        let of = |kind: &str, field: &str| -> Vec<&Value> {
            blocks.iter().filter(|block| block["type"] == kind).map(|block| &block[field]).collect()
        };
        for text in of("text", "text") {
            ensure!(!text.as_str().unwrap_or_default().trim().is_empty(), "an empty text");
        }
        let results = of("tool_result", "tool_use_id");
        ensure!(results == open, "calls {open:?} are answered by {results:?}");
        let first = blocks.iter().take(results.len());
        ensure!(
            first.clone().all(|block| block["type"] == "tool_result"),
            "something stands before the results"
        );
        open = of("tool_use", "id");
        ensure!(open.is_empty() || wanted == "assistant", "a person makes a call");
        distinct(open.iter().copied())?;
    }
    ensure!(messages.len() % 2 == 1, "it ends with an answer");
    Ok(())
}

fn text(content: &Value) -> &str {
    content.as_str().unwrap_or_default().trim()
}

fn distinct<'a>(ids: impl Iterator<Item = &'a Value>) -> anyhow::Result<()> {
    let ids: Vec<_> = ids.collect();
    for (at, id) in ids.iter().enumerate() {
        ensure!(!ids[..at].contains(id), "the id {id} is given twice");
    }
    Ok(())
}

/// The conversation as its smallest parts, so that what one message becomes by growing is seen as growth.
fn pieces(request: &Value) -> Vec<String> {
    let mut pieces = Vec::new();
    for message in request["messages"].as_array().into_iter().flatten() {
        match message["content"].as_array() {
            None => pieces.push(message.to_string()),
            Some(blocks) => {
                for block in blocks {
                    let mut block = block.clone();
                    if let Some(block) = block.as_object_mut() {
                        // Where the cache is told to keep moves along.
                        block.remove("cache_control");
                    }
                    pieces.push(format!("{} {block}", message["role"]));
                }
            }
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn openai_of(messages: &Value) -> Value {
        let mut all = vec![json!({"role": "system", "content": "s"})];
        all.extend(messages.as_array().unwrap().clone());
        json!({"messages": all})
    }

    #[test]
    fn a_strict_provider_refuses_what_it_would_refuse() {
        let call = |id: &str| json!({"id": id, "function": {"arguments": "{}"}});
        let user = json!({"role": "user", "content": "hi"});
        let said = json!({"role": "assistant", "content": "yes"});
        let calls = json!({"role": "assistant", "content": null, "tool_calls": [call("a"), call("b")]});
        let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "r"});
        let table = [
            (json!([user, calls, result("a"), result("b")]), true),
            (json!([user, said, user]), true),
            (json!([user, user]), true),
            (json!([user, calls, result("a")]), false),
            (json!([user, calls, result("b"), result("a")]), false),
            (json!([user, calls, result("a"), result("a"), result("b")]), false),
            (json!([user, calls, user, result("a"), result("b")]), false),
            (json!([user, said, said, user]), false),
            (json!([user, result("a")]), false),
            (json!([user, said]), false),
        ];
        for (messages, fine) in table {
            assert_eq!(openai(&openai_of(&messages)).is_ok(), fine, "{messages}");
        }
        let text = json!({"type": "text", "text": "t"});
        let made = json!({"type": "tool_use", "id": "a"});
        let answered = json!({"type": "tool_result", "tool_use_id": "a"});
        let of = |contents: &[Value]| {
            let roles = ["user", "assistant"].into_iter().cycle();
            let all: Vec<_> =
                contents.iter().zip(roles).map(|(c, role)| json!({"role": role, "content": c})).collect();
            json!({"system": ["s"], "messages": all})
        };
        for (contents, fine) in [
            (vec![json!([text]), json!([text, made]), json!([answered, text])], true),
            (vec![json!([text]), json!([made]), json!([text, answered])], false),
            (vec![json!([text]), json!([made]), json!([text])], false),
            (vec![json!([text]), json!([made]), json!([answered, answered])], false),
            (vec![json!([text]), json!([text])], false),
        ] {
            assert_eq!(anthropic(&of(&contents)).is_ok(), fine, "{contents:?}");
        }
    }

    #[test]
    fn a_conversation_that_loses_a_word_is_found() {
        let of = |texts: &[&str]| {
            let texts: Vec<_> = texts.iter().map(|text| json!({"role": "user", "content": text})).collect();
            openai_of(&json!(texts))
        };
        let lost = [of(&["a", "b"]), of(&["a", "c"])];
        assert!(check(Dialect::OpenaiChat, &[of(&["a"]), of(&["a"]), of(&["a", "b"])], 0).is_ok());
        assert!(check(Dialect::OpenaiChat, &lost, 0).is_err());
        assert!(check(Dialect::OpenaiChat, &lost, 1).is_ok());
    }
}
