use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{request, user};
use crate::model::choose::{first_model, probe_ollama};
use crate::model::client::plain_loopback_client;
use crate::model::message::{Arguments, Block, Dialect, Message, Reply, Request, Role, Stop};
use crate::model::playback::{self, Log, Running, Script};
use crate::model::{Base, Delta, Endpoint, ModelClient, SampleError};

pub(super) const BOTH: [Dialect; 2] = [Dialect::OpenaiChat, Dialect::Anthropic];

/// A client and a scripted server.
pub(super) struct Talk {
    pub(super) client: ModelClient,
    pub(super) server: Running,
    pub(super) endpoint: Endpoint,
}

impl Talk {
    pub(super) async fn start(dialect: Dialect, script: &str) -> Self {
        let server = playback::start(Script::parse(script).unwrap(), Log::Keep).await.unwrap();
        let base = Base::Url(server.base_for(dialect));
        let endpoint = Endpoint { dialect, base, ..Endpoint::for_tests("p", "") };
        Self { client: ModelClient::new(), server, endpoint }
    }

    pub(super) async fn ask(&self, request: &Request) -> (String, Result<Reply, SampleError>) {
        let mut deltas = String::new();
        let mut sink = |delta: Delta<'_>| match delta {
            Delta::Text(text) => deltas.push_str(text),
            Delta::Thinking(text) => deltas.push_str(&format!("({text})")),
        };
        let reply = self.client.sample(&self.endpoint, request, &mut sink).await;
        (deltas, reply)
    }

    pub(super) async fn get(&self, path: &str) -> serde_json::Value {
        serde_json::from_str(&self.get_text(path).await).unwrap()
    }

    async fn get_text(&self, path: &str) -> String {
        let url = format!("{}{path}", self.server.base_url());
        plain_loopback_client().unwrap().get(url).send().await.unwrap().text().await.unwrap()
    }
}

#[derive(Deserialize)]
struct Entry {
    body: Box<RawValue>,
    rule: String,
    shared: usize,
}

const TALK: &str = r#"{
    "models": ["one", "two"],
    "rules": [
        {"name": "end", "when": {"after": ["look"]}, "reply": {"text": "Found: {{result}}"}},
        {"name": "look", "when": {"answers": 0},
         "reply": {"thinking": "Hm, 思考.", "text": "Ich schaue nach. 🦀", "calls": [
            {"name": "read_file", "arguments": {"file_path": "ü.py"}},
            {"name": "read_file", "arguments_text": "{\"file_path\": "}
         ]}}
    ]}"#;

#[tokio::test]
async fn a_conversation_in_both_dialects() {
    for dialect in BOTH {
        let talk = Talk::start(dialect, TALK).await;
        let mut asked = request("m", vec![user("Where is it?")]);
        let (deltas, reply) = talk.ask(&asked).await;
        let reply = reply.unwrap();
        assert_eq!(deltas, "(Hm, 思考.)Ich schaue nach. 🦀");
        assert_eq!((reply.thinking.as_str(), reply.text.as_str()), ("Hm, 思考.", "Ich schaue nach. 🦀"));
        assert_eq!(reply.stop, Stop::End);
        let [whole, broken] = &reply.calls[..] else { panic!("{:?}", reply.calls) };
        assert_eq!((whole.id.as_str(), broken.id.as_str()), ("call_look_0_0", "call_look_0_1"));
        assert!(matches!(&whole.arguments, Arguments::Object(raw) if raw.get() == r#"{"file_path":"ü.py"}"#));
        assert!(matches!(&broken.arguments, Arguments::Malformed { .. }));
        assert!(reply.usage.input_tokens > 0 && reply.usage.requests == 1, "{:?}", reply.usage);

        asked.messages.push(Arc::new(reply.message()));
        let results = ["in line 3", "bad arguments"].into_iter().zip(&reply.calls).map(|(content, call)| {
            Block::ToolResult {
                id: call.id.clone(),
                content: content.to_owned(),
                is_error: content.starts_with("bad"),
            }
        });
        asked.messages.push(Arc::new(Message { role: Role::User, blocks: results.collect(), raw: None }));
        let (_, second) = talk.ask(&asked).await;
        let second = second.unwrap();
        assert!(
            second.text.starts_with("Found: in line 3\n") && second.text.ends_with("bad arguments"),
            "{}",
            second.text
        );
        assert!(second.usage.cache_read_tokens > 0, "{:?}", second.usage);

        let log = talk.get_text("/log").await;
        let log: Vec<Entry> = serde_json::from_str(&log).unwrap();
        let [first, last] = &log[..] else { panic!("{} requests", log.len()) };
        assert_eq!((first.rule.as_str(), last.rule.as_str()), ("look", "end"));
        // All of the first request but its closing brackets came again, and the answer as it was kept.
        let before = first.body.get().replace(r#","cache_control":{"type":"ephemeral"}"#, "").len();
        assert!(last.shared + 8 > before, "{} of {before}", last.shared);
        assert!(last.body.get().contains(reply.raw.body.get()));
    }
}

#[tokio::test]
async fn odd_servers_are_understood() {
    for odd in [r#"["no_ids"]"#, r#"["no_index"]"#, r#"["no_ids","no_index","no_usage"]"#, r#"["framing"]"#] {
        let script = format!(
            r#"{{"rules": [{{"name": "a", "reply": {{"odd": {odd}, "text": "x", "calls": [
                {{"name": "one", "arguments": {{"n": 1}}}}, {{"name": "two", "arguments": {{"n": 2}}}}]}}}}]}}"#
        );
        for dialect in BOTH {
            let talk = Talk::start(dialect, &script).await;
            let reply = talk.ask(&request("m", vec![user("Hi")])).await.1.unwrap();
            let calls: Vec<(&str, &str)> = reply
                .calls
                .iter()
                .map(|call| match &call.arguments {
                    Arguments::Object(raw) => (call.name.as_str(), raw.get()),
                    Arguments::Malformed { text, .. } => panic!("{odd}: {text}"),
                })
                .collect();
            assert_eq!(calls, [("one", r#"{"n":1}"#), ("two", r#"{"n":2}"#)], "{odd}");
            assert_ne!(reply.calls[0].id, reply.calls[1].id, "{odd}");
        }
    }
}

#[tokio::test]
async fn headers_carry_the_key_and_the_log_hides_it() {
    for (dialect, header) in [(Dialect::OpenaiChat, "authorization"), (Dialect::Anthropic, "x-api-key")] {
        let mut talk = Talk::start(dialect, r#"{"rules": [{"name": "a", "reply": {"text": "x"}}]}"#).await;
        talk.endpoint.key = Some("sk-secret".into());
        talk.ask(&request("m", vec![user("Hi")])).await.1.unwrap();
        let log = talk.get("/log").await;
        assert_eq!(log[0]["headers"][header], "[hidden]");
        assert!(!log.to_string().contains("sk-secret"));
        assert_eq!(log[0]["headers"].get("anthropic-version").is_some(), dialect == Dialect::Anthropic);
    }
}

#[tokio::test]
async fn models_are_listed_and_a_local_server_is_found() {
    let talk = Talk::start(Dialect::OpenaiChat, TALK).await;
    assert_eq!(talk.get("/v1/models").await["data"][1]["id"], "two");
    let base = talk.server.base_for(Dialect::OpenaiChat);
    assert_eq!(first_model(&base).await.as_deref(), Some("one"));
    talk.server.shutdown().await;
    assert_eq!(probe_ollama(&base).await, None);
}

#[tokio::test]
async fn a_request_that_no_rule_fits_says_so() {
    let talk = Talk::start(Dialect::OpenaiChat, r#"{"rules": []}"#).await;
    let error = talk.ask(&request("m", vec![user("Hi")])).await.1.unwrap_err();
    assert!(error.to_string().contains("no rule of the script fits"), "{error}");
}

#[tokio::test]
async fn a_large_request_arrives_whole() {
    for dialect in BOTH {
        let talk =
            Talk::start(dialect, r#"{"rules": [{"name": "a", "reply": {"text": "{{prompt}}"}}]}"#).await;
        let text = "0123456789abcdef".repeat(20_000);
        let reply = talk.ask(&request("m", vec![user(&text)])).await.1.unwrap();
        assert_eq!(reply.text, text);
    }
}
