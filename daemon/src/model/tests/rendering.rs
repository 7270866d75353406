use std::sync::Arc;

use proptest::prelude::*;

use super::{call, message, raw, request, result, user};
use crate::model::message::{Block, Dialect, Message, Raw, Request, Role};
use crate::model::{anthropic, openai_chat};

fn render(dialect: Dialect, provider: &str, request: &Request) -> String {
    let bytes = match dialect {
        Dialect::OpenaiChat => openai_chat::render(provider, request),
        Dialect::Anthropic => anthropic::render(provider, request),
    };
    String::from_utf8(bytes.unwrap()).unwrap()
}

/// Bytes matter, so a snapshot shows them, with line breaks for people.
fn shown(rendered: &str) -> String {
    rendered.replace(r#"{"role""#, "\n{\"role\"").replace(r#","messages""#, ",\n\"messages\"")
}

fn with_raw(message: &Arc<Message>, dialect: Dialect, body: &str) -> Arc<Message> {
    let body = raw(body);
    let raw = Raw { provider: "p".to_owned(), model: "m".to_owned(), dialect, body };
    Arc::new(Message { raw: Some(raw), ..(**message).clone() })
}

/// Everything that a context may hold, the unusual included.
fn everything() -> Vec<Arc<Message>> {
    vec![
        user("Hello"),
        user("Guidance: plan first."),
        message(
            Role::Assistant,
            vec![
                Block::Thinking { text: "never sent".to_owned() },
                Block::Text { text: "I look.".to_owned() },
                call("functions.read:0", "read_file", r#"{ "z" : "1", "a": "ü" }"#),
                call("functions.read/0", "mcp.files/read", "{}"),
            ],
        ),
        message(
            Role::User,
            vec![
                result("functions.read/0", "second", true),
                Block::Text { text: "A note.".to_owned() },
                result("functions.read:0", "first", false),
                result("functions.read:0", "once more", false),
                result("unknown", "lost", false),
            ],
        ),
        message(Role::Assistant, vec![]),
        user("   "),
        user("Go on."),
        message(Role::Assistant, vec![call("call_0", "read_file", "{}")]),
        user("I interrupted you."),
    ]
}

#[test]
fn openai_request() {
    insta::assert_snapshot!(shown(&render(Dialect::OpenaiChat, "p", &request("m", everything()))));
}

#[test]
fn anthropic_request() {
    insta::assert_snapshot!(shown(&render(Dialect::Anthropic, "p", &request("m", everything()))));
}

#[test]
fn no_tools_and_no_system_leave_no_trace() {
    let bare = Request { system: "".into(), tools: Arc::from([]), ..request("m", vec![user("Hi")]) };
    for dialect in [Dialect::OpenaiChat, Dialect::Anthropic] {
        let rendered = render(dialect, "p", &bare);
        assert!(!rendered.contains("tools") && !rendered.contains("system"), "{rendered}");
    }
}

#[test]
fn own_messages_are_replayed_verbatim_and_others_are_not() {
    let said = message(Role::Assistant, vec![Block::Text { text: "plain".to_owned() }]);
    for (dialect, body) in [
        (Dialect::OpenaiChat, r#"{"role":"assistant",  "content":"as it was","odd":1e2}"#),
        (
            Dialect::Anthropic,
            r#"[{"type":"thinking","thinking":"","signature":"s=="}, {"type":"text","text":"x"}]"#,
        ),
    ] {
        let request = request("m", vec![user("Hi"), with_raw(&said, dialect, body), user("more")]);
        assert!(render(dialect, "p", &request).contains(body));
        // Another provider, another model, another dialect.
        let other_model = Request { model: "m2".to_owned(), ..request.clone() };
        let other = if dialect == Dialect::Anthropic { Dialect::OpenaiChat } else { Dialect::Anthropic };
        for rendered in [
            render(dialect, "p2", &request),
            render(dialect, "p", &other_model),
            render(other, "p", &request),
        ] {
            assert!(!rendered.contains(body) && rendered.contains("plain"), "{rendered}");
        }
    }
}

#[test]
fn openai_models_that_think_are_told_to_call_instead() {
    let mut asked = request("gpt-5.6-terra", vec![user("Hi")]);
    assert!(render(Dialect::OpenaiChat, "openai", &asked).contains(r#""reasoning_effort":"none""#));
    assert!(!render(Dialect::OpenaiChat, "openrouter", &asked).contains("reasoning_effort"));
    asked.model = "gpt-5.1".to_owned();
    assert!(!render(Dialect::OpenaiChat, "openai", &asked).contains("reasoning_effort"));
}

/// A conversation as the engine builds one: each request is sent when every call has its result.
fn conversation() -> impl Strategy<Value = Vec<Vec<Arc<Message>>>> {
    let text = "[a-zü\"\\\\\n]{0,12}";
    let calls = proptest::collection::vec(("[a-z.:]{0,4}", "[a-z ]{0,9}"), 0..4);
    let turn = (text, calls, proptest::collection::vec(text, 0..3), any::<bool>(), any::<bool>());
    proptest::collection::vec(turn, 1..7).prop_map(|turns| {
        let mut requests = Vec::new();
        let mut messages = vec![user("start")];
        requests.push(messages.clone());
        for (said, calls, notes, is_raw, apart) in turns {
            let mut blocks = vec![Block::Text { text: said }];
            for (at, (id, value)) in calls.iter().enumerate() {
                let arguments = serde_json::json!({ "v": value }).to_string();
                blocks.push(call(&format!("{id}{at}"), "read_file", &arguments));
            }
            let assistant = message(Role::Assistant, blocks);
            messages.push(if is_raw && !calls.is_empty() {
                with_raw(&assistant, Dialect::Anthropic, r#"[{"type":"text","text":"raw"}]"#)
            } else {
                assistant
            });
            let results: Vec<Block> = calls
                .iter()
                .enumerate()
                .map(|(at, (id, value))| result(&format!("{id}{at}"), value, at == 1))
                .collect();
            if apart {
                messages.extend(results.into_iter().map(|result| message(Role::User, vec![result])));
            } else {
                messages.push(message(Role::User, results));
            }
            requests.push(messages.clone());
            for note in notes {
                messages.push(user(&note));
                requests.push(messages.clone());
            }
        }
        requests
    })
}

/// A request without what moves from one to the next: closing brackets and cache marks.
fn stable(dialect: Dialect, rendered: &str) -> String {
    let unmarked = rendered.replace(r#","cache_control":{"type":"ephemeral"}"#, "");
    let tail = if dialect == Dialect::Anthropic { "]}]}" } else { "]}" };
    unmarked.strip_suffix(tail).unwrap_or(&unmarked).to_owned()
}

proptest! {
    #[test]
    fn each_request_begins_with_the_one_before(requests in conversation()) {
        for dialect in [Dialect::OpenaiChat, Dialect::Anthropic] {
            let rendered: Vec<String> = requests
                .iter()
                .map(|messages| render(dialect, "p", &request("m", messages.clone())))
                .collect();
            for pair in rendered.windows(2) {
                let (before, after) = (stable(dialect, &pair[0]), stable(dialect, &pair[1]));
                prop_assert!(after.starts_with(&before), "{before}\n{after}");
                prop_assert!(serde_json::from_str::<serde_json::Value>(&pair[1]).is_ok());
            }
        }
    }

    #[test]
    fn anthropic_gets_at_most_four_marks(requests in conversation()) {
        for messages in requests {
            let rendered = render(Dialect::Anthropic, "p", &request("m", messages));
            let n_marks = rendered.matches(r#""cache_control":"#).count();
            prop_assert!((3..=4).contains(&n_marks), "{n_marks}: {rendered}");
        }
    }
}
