use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;

use crate::model::message::{Arguments, Dialect, Reply, Stop};
use crate::model::sse::Events;
use crate::model::stream::{Delta, Flow, Parser, Trouble};

const OPENAI: &str = include_str!("recorded/openai.sse");
const DEEPSEEK: &str = include_str!("recorded/deepseek.sse");
const ANTHROPIC: &str = include_str!("recorded/anthropic.sse");

/// What a stream leads to, in full.
async fn replay(dialect: Dialect, chunks: Vec<Vec<u8>>) -> (String, Result<Reply, String>) {
    let body = stream::iter(chunks.into_iter().map(|chunk| Ok::<_, std::io::Error>(Bytes::from(chunk))));
    let mut events = Events::new(body, Duration::from_secs(1));
    let mut parser = Parser::new(dialect);
    let mut deltas = String::new();
    let mut sink = |delta: Delta<'_>| match delta {
        Delta::Text(text) => deltas.push_str(text),
        Delta::Thinking(text) => deltas.push_str(&format!("({text})")),
    };
    let mut trouble = None;
    while let Some(event) = events.next().await.unwrap() {
        match parser.event(&event, &mut sink) {
            Ok(Flow::More) => {}
            Ok(Flow::Done) => break,
            Err(Trouble::Garbled(error)) => trouble = Some(error.to_string()),
            Err(Trouble::Reported(reported)) => {
                trouble = Some(format!("{}: {}", reported.code, reported.message))
            }
        }
    }
    let reply = match trouble {
        Some(trouble) => Err(trouble),
        None if !parser.is_complete() => Err("incomplete".to_owned()),
        None => Ok(parser.finish("p", "m").unwrap()),
    };
    (deltas, reply)
}

async fn whole(dialect: Dialect, text: &str) -> (String, Result<Reply, String>) {
    replay(dialect, vec![text.as_bytes().to_vec()]).await
}

fn shown((deltas, reply): &(String, Result<Reply, String>)) -> String {
    format!("{deltas}\n{reply:#?}")
}

/// The same for machines: thousands of these are compared.
fn short((deltas, reply): &(String, Result<Reply, String>)) -> String {
    format!("{deltas} {reply:?}")
}

#[tokio::test]
async fn openai_stream() {
    insta::assert_snapshot!(shown(&whole(Dialect::OpenaiChat, OPENAI).await));
}

#[tokio::test]
async fn deepseek_stream() {
    insta::assert_snapshot!(shown(&whole(Dialect::OpenaiChat, DEEPSEEK).await));
}

#[tokio::test]
async fn anthropic_stream() {
    insta::assert_snapshot!(shown(&whole(Dialect::Anthropic, ANTHROPIC).await));
}

#[tokio::test]
async fn every_cut_gives_the_same_reply() {
    for (dialect, text) in
        [(Dialect::OpenaiChat, DEEPSEEK), (Dialect::OpenaiChat, OPENAI), (Dialect::Anthropic, ANTHROPIC)]
    {
        let expected = short(&whole(dialect, text).await);
        for text in [
            text.to_owned(),
            text.replace('\n', "\r\n"),
            text.replace('\n', "\r"),
            text.trim_end().to_owned(),
        ] {
            let bytes = text.as_bytes();
            // One byte at a time cuts everywhere at once; two pieces cut at one place, here at each, there at some.
            let step = if bytes.contains(&b'\r') { 11 } else { 1 };
            for cut in (0..bytes.len()).step_by(step) {
                let (head, tail) = bytes.split_at(cut);
                let got = replay(dialect, vec![head.to_vec(), tail.to_vec()]).await;
                assert_eq!(short(&got), expected, "cut at {cut}");
            }
            let single = bytes.iter().map(|byte| vec![*byte]).collect();
            assert_eq!(short(&replay(dialect, single).await), expected);
        }
    }
}

#[tokio::test]
async fn a_stream_that_just_ends_is_incomplete() {
    for (dialect, text) in [(Dialect::OpenaiChat, OPENAI), (Dialect::Anthropic, ANTHROPIC)] {
        let end = text.find("finish_reason\":\"").or_else(|| text.find("\"stop_reason\":\"")).unwrap();
        let ends: Vec<usize> = text[..end].match_indices("\n\n").map(|(at, _)| at + 2).collect();
        assert!(ends.len() > 4);
        for end in [0].into_iter().chain(ends) {
            let (_, reply) = whole(dialect, &text[..end]).await;
            assert_eq!(reply.unwrap_err(), "incomplete", "after {end} bytes");
        }
    }
}

fn openai(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("data: {line}\n\n")).collect()
}

#[tokio::test]
async fn openai_oddities_do_no_harm() {
    let text = openai(&[
        r#"{"choices":[]}"#,
        r#"{"choices":null,"usage":null}"#,
        r#"{"choices":[{"index":0,"delta":null,"finish_reason":null}],"usage":{"prompt_tokens":5,"completion_tokens":1}}"#,
        r#"{"choices":[{"index":1,"delta":{"content":"other"}},{"index":0,"delta":{"content":"one"}}],"usage":{"prompt_tokens":5,"completion_tokens":2}}"#,
        r#"{"choices":[{"delta":{"content":null,"tool_calls":null},"finish_reason":""}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":3}}"#,
    ]);
    let (deltas, reply) = whole(Dialect::OpenaiChat, &text).await;
    let reply = reply.unwrap();
    assert_eq!((deltas.as_str(), reply.text.as_str()), ("one", "one"));
    assert_eq!((reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.requests), (5, 3, 1));
}

#[tokio::test]
async fn arguments_that_are_no_object_stay_out_of_the_history() {
    for (arguments, wanted) in [
        ("", Ok("{}")),
        ("null", Ok("{}")),
        (r#" {"a": 1,"a":2} "#, Ok(r#"{"a": 1,"a":2}"#)),
        (r#"{"a":1"#, Err("not valid JSON")),
        (r#"{"a":1,}"#, Err("not valid JSON")),
        (r#"{"a":1}{"a":1}"#, Err("not valid JSON")),
        (r#"["a"]"#, Err("an array")),
        (r#""{}""#, Err("a bare value")),
    ] {
        let quoted = serde_json::to_string(arguments).unwrap();
        let call = format!(
            r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":0,"id":"a","function":{{"name":"f","arguments":{quoted}}}}}]}},"finish_reason":"tool_calls"}}]}}"#
        );
        let block = format!(
            "data: {{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\",\"input\":{{}}}}}}\n\n\
             data: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"input_json_delta\",\"partial_json\":{quoted}}}}}\n\n\
             data: {{\"type\":\"message_stop\"}}\n\n"
        );
        for (dialect, text) in [(Dialect::OpenaiChat, openai(&[&call])), (Dialect::Anthropic, block)] {
            let reply = whole(dialect, &text).await.1.unwrap();
            let sent = reply.raw.body.get();
            match (&reply.calls[0].arguments, wanted) {
                (Arguments::Object(raw), Ok(wanted)) => assert_eq!(raw.get(), wanted),
                (Arguments::Malformed { text, problem }, Err(wanted)) => {
                    assert_eq!(text, arguments);
                    assert!(problem.contains(wanted), "{problem}");
                    assert!(sent.contains(r#""arguments":"{}""#) || sent.contains(r#""input":{}"#), "{sent}");
                }
                (got, wanted) => panic!("{arguments}: {got:?}, not {wanted:?}"),
            }
        }
    }
}

#[tokio::test]
async fn ids_are_made_up_and_kept_apart() {
    let text = openai(&[
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}},{"index":1,"function":{"name":"f","arguments":"{}"}},{"index":2,"id":"call_0","function":{"name":"f","arguments":"{}"}}]}}]}"#,
        "[DONE]",
    ]);
    let reply = whole(Dialect::OpenaiChat, &text).await.1.unwrap();
    let ids: Vec<&str> = reply.calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["call_0", "call_1", "call_0_2"]);
    for id in ids {
        assert!(reply.raw.body.get().contains(&format!(r#""id":"{id}""#)));
    }
}

#[tokio::test]
async fn why_it_stopped() {
    for (reason, stop) in [
        ("stop", Stop::End),
        ("tool_calls", Stop::End),
        ("length", Stop::Length),
        ("content_filter", Stop::Refusal("stopped by the provider's content filter".into())),
    ] {
        let text = openai(&[&format!(
            r#"{{"choices":[{{"delta":{{"content":"x"}},"finish_reason":"{reason}"}}]}}"#
        )]);
        assert_eq!(whole(Dialect::OpenaiChat, &text).await.1.unwrap().stop, stop);
    }
    let text = openai(&[r#"{"choices":[{"delta":{"refusal":"I will not."},"finish_reason":"stop"}]}"#]);
    let (deltas, reply) = whole(Dialect::OpenaiChat, &text).await;
    assert_eq!((deltas.as_str(), reply.unwrap().stop), ("I will not.", Stop::Refusal("I will not.".into())));
    for (reason, stop) in [
        ("end_turn", Stop::End),
        ("max_tokens", Stop::Length),
        ("refusal", Stop::Refusal("the model declined to go on".into())),
    ] {
        let text =
            format!("data: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"{reason}\"}}}}\n\n");
        assert_eq!(whole(Dialect::Anthropic, &text).await.1.unwrap().stop, stop);
    }
}

#[tokio::test]
async fn errors_in_a_stream_are_reported() {
    let text = openai(&[r#"{"error":{"message":"Provider down","code":502},"choices":[]}"#]);
    assert_eq!(whole(Dialect::OpenaiChat, &text).await.1.unwrap_err(), "502: Provider down");
    for text in [
        "event: error\ndata: {\"message\":\"No\"}\n\n",
        "data: {\"object\":\"error\",\"message\":\"No\",\"code\":400}\n\n",
    ] {
        let error = whole(Dialect::OpenaiChat, text).await.1.unwrap_err();
        assert!(error.ends_with(": No"), "{error}");
    }
    let text = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    assert_eq!(whole(Dialect::Anthropic, text).await.1.unwrap_err(), "overloaded_error: Overloaded");
}
