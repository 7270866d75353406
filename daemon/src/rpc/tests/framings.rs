//! Bytes into messages and back: lines, LSP headers, WebSocket, and what is none of them.

use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::Message;

use super::*;

async fn web_socket(scene: &Scene) -> tokio_tungstenite::WebSocketStream<UnixStream> {
    let stream = UnixStream::connect(&scene.path).await.unwrap();
    tokio_tungstenite::client_async("ws://localhost/", stream).await.unwrap().0
}

#[tokio::test]
async fn rp_07_a_message_over_the_limit_is_refused_and_the_next_is_served() {
    let scene = scene(Limits { message_bytes: 100, ..limits() });
    let mut client = scene.lines().await;
    client.send(&format!("{}\n", "x".repeat(101))).await;
    assert_eq!(client.code().await, -32007);
    client.send(&"y".repeat(500)).await;
    assert_eq!(client.code().await, -32007);
    client.send("\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\"}\n").await;
    assert_eq!(client.next().await["id"], 1);
}

#[tokio::test]
async fn rp_17_bytes_in_any_portions() {
    let scene = scene(limits());
    let mut client = scene.lines().await;
    for byte in b"\xef\xbb\xbf {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\"}\r\n" {
        client.write.write_all(&[*byte]).await.unwrap();
    }
    assert_eq!(client.next().await["id"], 1);
    let many: String =
        (0..50).map(|n| format!("{{\"jsonrpc\":\"2.0\",\"id\":{n},\"method\":\"echo\"}}\n")).collect();
    client.send(&many).await;
    for n in 0..50 {
        assert_eq!(client.next().await["id"], n);
    }
}

#[tokio::test]
async fn rp_17_hostile_lines_are_answered_one_by_one() {
    let scene = scene(limits());
    let mut client = scene.lines().await;
    let nested = "[".repeat(100_000);
    let deep_params = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\",\"params\":{}1{}}}",
        "[".repeat(50_000),
        "]".repeat(50_000)
    );
    for line in [&b"\xff\xfe"[..], b"{} {}", b"{\"a\":\"\0\"}", nested.as_bytes(), b"nonsense"] {
        client.write.write_all(line).await.unwrap();
        client.send("\n").await;
        assert_eq!(client.code().await, -32700, "{:.40}", String::from_utf8_lossy(line));
    }
    client.send(&format!("{deep_params}\n")).await;
    assert_eq!(client.next().await["id"], 1);
    client.send("{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"echo\",\"params\":[\"\\ud800\"]}\n").await;
    assert_eq!(client.next().await["id"], 2);
    assert_eq!(client.ask("pretty", json!({})).await, json!({"a": 1}), "a line break inside a result");
}

#[tokio::test]
async fn lsp_headers_are_spoken_back() {
    let scene = scene(limits());
    let mut stream = UnixStream::connect(&scene.path).await.unwrap();
    let call = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"who\"}";
    let both = format!("Content-Length: {0}\r\n\r\n{call}content-length:{0}\r\n\r\n{call}", call.len());
    stream.write_all(both.as_bytes()).await.unwrap();
    stream.write_all(b"Content-Length: nonsense\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer.matches("\"framing\":\"headers\"").count(), 2, "{answer}");
    assert_eq!(answer.matches("Content-Length: ").count(), 3, "{answer}");
    assert!(answer.contains("-32700"), "the bad header is answered, then the connection ends: {answer}");
}

#[tokio::test]
async fn web_socket_calls_begin_in_order_and_events_arrive() {
    let scene = scene(limits());
    let mut client = web_socket(&scene).await;
    let names: Vec<String> = (0..50).map(|n| format!("n{n}")).collect();
    for name in &names {
        let call = json!({"jsonrpc": "2.0", "id": -1, "method": "note", "params": {"name": name}});
        client.feed(Message::text(call.to_string())).await.unwrap();
    }
    client.flush().await.unwrap();
    for _ in &names {
        let answer = client.next().await.unwrap().unwrap();
        let answer: Value = serde_json::from_str(answer.to_text().unwrap()).unwrap();
        assert_eq!((&answer["id"], &answer["result"]), (&json!(-1), &json!("noted")));
    }
    assert_eq!(*scene.toys.order.lock().unwrap(), names);
    client.send(Message::Ping(vec![1].into())).await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::Pong(vec![1].into()));
    client
        .send(Message::text(
            json!({"jsonrpc": "2.0", "id": 1, "method": "events/subscribe", "params": {"count": 2}})
                .to_string(),
        ))
        .await
        .unwrap();
    for expected in ["\"id\":1", "\"n\":0", "\"n\":1"] {
        let message = client.next().await.unwrap().unwrap();
        assert!(message.to_text().unwrap().contains(expected), "{message:?}");
    }
    client.close(None).await.unwrap();
    while client.next().await.is_some() {}
    scene.toys.until(|toys| toys.subscriptions.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn web_socket_messages_over_the_limit_are_answered_before_the_end() {
    let scene = scene(Limits { message_bytes: 100, ..limits() });
    let mut client = web_socket(&scene).await;
    client.send(Message::text("x".repeat(1000))).await.unwrap();
    let answer = client.next().await.unwrap().unwrap();
    assert!(answer.to_text().unwrap().contains("-32007"), "{answer:?}");
}

#[tokio::test]
async fn a_plain_http_request_gets_a_plain_answer() {
    let scene = scene(limits());
    let mut stream = UnixStream::connect(&scene.path).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[tokio::test]
async fn an_answer_over_the_limit_is_replaced() {
    let scene = scene(Limits { message_bytes: 140, ..limits() });
    let mut client = scene.lines().await;
    // Each quotation mark takes two bytes on the way in and four on the way out.
    client.call(1, "echo", json!({"a": "\"".repeat(30)})).await;
    assert_eq!(client.code().await, -32008);
    assert_eq!(client.ask("echo", json!([])).await, "[]");
}
