use std::time::Duration;

use super::talk::{BOTH, Talk};
use super::{request, user};
use crate::model::client::plain_loopback_client;
use crate::model::message::{Arguments, Dialect, Reply, Stop};
use crate::model::{Base, Delta, Endpoint, Kind, MAX_WAIT, Retry, SampleError};

/// A script with one rule, a text and a call, and one fault.
fn script(fault: &str) -> String {
    format!(
        r#"{{"rules": [{{"name": "a", "reply": {{"text": "Hello there", "calls": [{{"name": "f"}}]}}}}],
            "faults": [{{"do": {fault}}}]}}"#
    )
}

async fn failed(dialect: Dialect, fault: &str) -> (Talk, String, SampleError) {
    let talk = Talk::start(dialect, &script(fault)).await;
    let (deltas, reply) = talk.ask(&request("m", vec![user("Hi")])).await;
    let error = reply.unwrap_err();
    (talk, deltas, error)
}

async fn works_now(talk: &Talk) -> Reply {
    talk.ask(&request("m", vec![user("Hi")])).await.1.unwrap()
}

#[tokio::test]
async fn statuses() {
    for dialect in BOTH {
        for (fault, kind, retry) in [
            (
                r#"{"status": {"code": 429, "headers": {"retry-after": "2"}, "message": "slow down"}}"#,
                Kind::Limited,
                Retry::After { wait: Duration::from_secs(2), asked: Duration::from_secs(2) },
            ),
            (
                r#"{"status": {"code": 429, "headers": {"retry-after": "100000"}}}"#,
                Kind::Limited,
                Retry::After { wait: MAX_WAIT, asked: Duration::from_secs(100_000) },
            ),
            (r#"{"status": {"code": 529, "message": "overloaded"}}"#, Kind::Unavailable, Retry::Backoff),
            (
                r#"{"status": {"code": 502, "body": "<html>Bad gateway</html>"}}"#,
                Kind::Unavailable,
                Retry::Backoff,
            ),
            (r#"{"status": {"code": 401, "message": "bad key"}}"#, Kind::Key, Retry::Never),
            (r#"{"status": {"code": 400, "message": "no such parameter"}}"#, Kind::Rejected, Retry::Never),
            (r#"{"status": {"code": 404, "message": "model not found"}}"#, Kind::NotFound, Retry::Never),
            (
                r#"{"status": {"code": 307, "headers": {"location": "https://elsewhere.test/"}}}"#,
                Kind::NotFound,
                Retry::Never,
            ),
        ] {
            let (talk, deltas, error) = failed(dialect, fault).await;
            assert_eq!((error.kind, error.retry, error.delivered), (kind, retry, false), "{error}");
            assert_eq!(deltas, "");
            assert!(error.to_string().starts_with("p at 127.0.0.1:"), "{error}");
            assert_eq!(works_now(&talk).await.text, "Hello there");
        }
    }
}

#[tokio::test]
async fn bodies_that_are_no_stream() {
    for dialect in BOTH {
        for (content_type, text, shown) in [
            ("text/html; charset=utf-8", "<html><body>Log in</body>", "a web page"),
            ("application/json", "{\\\"id\\\": 1}", "JSON instead of an event stream: `{\"id\": 1}`"),
            ("text/plain", "{\\\"object\\\": \\\"chat.completion\\\"}", "JSON"),
            ("text/event-stream", "<!doctype html>", "a web page"),
            (
                "text/event-stream",
                "data: nonsense\\n\\ndata: more\\n\\n",
                "an event that is not of its dialect",
            ),
        ] {
            let fault = format!(r#"{{"body": {{"content_type": "{content_type}", "text": "{text}"}}}}"#);
            let (_, _, error) = failed(dialect, &fault).await;
            assert_eq!((error.kind, error.retry), (Kind::NotAStream, Retry::Never), "{error}");
            assert!(error.to_string().contains(shown), "{error}");
        }
    }
}

#[tokio::test]
async fn cut_streams_are_retried_only_before_content() {
    for dialect in BOTH {
        for reset in [false, true] {
            let whole = Talk::start(dialect, &script(r#"{"cut": {"after": 100000}}"#)).await;
            assert_eq!(works_now(&whole).await.calls.len(), 1);
            let (mut early, mut late) = (0, 0);
            for after in (0..2000).step_by(97) {
                let fault = format!(r#"{{"cut": {{"after": {after}, "reset": {reset}}}}}"#);
                let talk = Talk::start(dialect, &script(&fault)).await;
                let (deltas, reply) = talk.ask(&request("m", vec![user("Hi")])).await;
                // Once the model has said why it stopped, the answer is whole.
                let Err(error) = reply else { break };
                assert_eq!(error.kind, Kind::Incomplete, "{error}");
                assert_eq!(error.delivered, !deltas.is_empty());
                assert_eq!(error.is_retryable(), deltas.is_empty(), "{error}");
                if error.delivered {
                    late += 1
                } else {
                    early += 1
                }
                assert_eq!(works_now(&talk).await.text, "Hello there");
            }
            assert!(early > 0 && late > 0, "{early} {late}");
        }
    }
}

#[tokio::test]
async fn errors_inside_of_a_stream() {
    for dialect in BOTH {
        for (after, delivered) in [(0, false), (1, false), (4, true)] {
            let fault = format!(
                r#"{{"error": {{"after_events": {after}, "code": "overloaded_error", "message": "Too busy"}}}}"#
            );
            let (talk, _, error) = failed(dialect, &fault).await;
            assert_eq!((error.kind, error.delivered), (Kind::Unavailable, delivered), "{error}");
            assert_eq!(error.is_retryable(), !delivered);
            assert!(error.to_string().contains("Too busy"), "{error}");
            assert_eq!(works_now(&talk).await.text, "Hello there");
        }
    }
}

#[tokio::test]
async fn silence_is_an_error_and_release_ends_it() {
    for dialect in BOTH {
        let fault = r#"{"hang": {"after": 0}}"#;
        let mut talk = Talk::start(dialect, &script(fault)).await;
        talk.endpoint.idle = Duration::from_millis(20);
        let error = talk.ask(&request("m", vec![user("Hi")])).await.1.unwrap_err();
        assert_eq!((error.kind, error.retry), (Kind::Silent, Retry::Backoff), "{error}");

        let talk = Talk::start(dialect, &script(r#"{"hang": {"after": 900}}"#)).await;
        let release = format!("{}/release", talk.server.base_url());
        let (first, mut seen) = tokio::sync::oneshot::channel();
        let mut first = Some(first);
        let mut sink = |_: Delta<'_>| {
            if let Some(first) = first.take() {
                let _ = first.send(());
            }
        };
        let asked = request("m", vec![user("Hi")]);
        let mut sampling = std::pin::pin!(talk.client.sample(&talk.endpoint, &asked, &mut sink));
        tokio::select! {
            reply = &mut sampling => panic!("it did not hang: {reply:?}"),
            seen = &mut seen => seen.unwrap(),
        }
        plain_loopback_client().unwrap().post(release).send().await.unwrap();
        assert_eq!(sampling.await.unwrap().text, "Hello there");
    }
}

#[tokio::test]
async fn dropping_the_future_cancels() {
    let talk = Talk::start(Dialect::OpenaiChat, &script(r#"{"hang": {"after": 0}}"#)).await;
    let asked = request("m", vec![user("Hi")]);
    let mut sink = |_: Delta<'_>| {};
    {
        let sampling = talk.client.sample(&talk.endpoint, &asked, &mut sink);
        let wait = async {
            while talk.get("/log").await.as_array().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            reply = sampling => panic!("it did not hang: {reply:?}"),
            () = wait => {}
        }
    }
    assert_eq!(works_now(&talk).await.text, "Hello there");
}

#[tokio::test]
async fn nobody_there() {
    let talk = Talk::start(Dialect::OpenaiChat, &script(r#"{"hang": {"after": 0}}"#)).await;
    let Talk { client, server, mut endpoint } = talk;
    server.shutdown().await;
    let asked = request("m", vec![user("Hi")]);
    endpoint.provider = "ollama".to_owned();
    let error = client.sample(&endpoint, &asked, &mut |_| {}).await.unwrap_err();
    assert_eq!((error.kind, error.retry), (Kind::Unreachable, Retry::Never));
    assert!(
        error.to_string().contains("nothing listens there") && error.to_string().contains("ollama serve"),
        "{error}"
    );
    // A server of one's own: what has to be true after a change of its address.
    endpoint.provider = "mine".to_owned();
    let error = client.sample(&endpoint, &asked, &mut |_| {}).await.unwrap_err().to_string();
    assert!(
        error.contains("`base_url` of provider `mine`") && error.contains("agentctl daemon stop"),
        "{error}"
    );
    // Nobody set the address of a preset, so nobody is sent to look at it.
    let usual = crate::model::providers::preset("lmstudio").and_then(|preset| preset.base_url).unwrap();
    let lmstudio = Endpoint { base: Base::Url(usual.to_owned()), ..Endpoint::for_tests("deepseek", "") };
    assert!(crate::model::client::has_own_url(&lmstudio));
    let preset = Endpoint { provider: "lmstudio".to_owned(), ..lmstudio };
    assert!(!crate::model::client::has_own_url(&preset));
}

#[tokio::test]
async fn cut_at_the_length_limit() {
    let script = r#"{"rules": [{"name": "a", "reply": {"stop": "length",
        "calls": [{"name": "write_file", "arguments_text": "{\"file_path\": \"x\", \"content\": \"abc"}]}}]}"#;
    for dialect in BOTH {
        let reply = works_now(&Talk::start(dialect, script).await).await;
        assert_eq!(reply.stop, Stop::Length);
        assert!(matches!(reply.calls[0].arguments, Arguments::Malformed { .. }));
    }
}

#[tokio::test]
async fn faults_of_a_rule_are_counted_apart() {
    let script = r#"{"rules": [
        {"name": "a", "when": {"texts": [{"in": "prompt", "contains": "one"}]}, "reply": {"text": "one"},
         "fault": {"times": 1, "do": {"status": {"code": 500}}}},
        {"name": "b", "reply": {"text": "two"}, "fault": {"do": {"status": {"code": 503}}}}]}"#;
    let talk = Talk::start(Dialect::OpenaiChat, script).await;
    let ask = async |text: &str| {
        talk.ask(&request("m", vec![user(text)])).await.1.map(|reply| reply.text).map_err(|error| error.kind)
    };
    assert_eq!(ask("one").await, Err(Kind::Unavailable));
    assert_eq!(ask("one").await, Ok("one".to_owned()));
    assert_eq!(ask("two").await, Err(Kind::Unavailable));
    assert_eq!(ask("two").await, Err(Kind::Unavailable));
}
