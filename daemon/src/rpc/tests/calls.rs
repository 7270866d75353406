//! Calls, notifications, ids, errors, order.

use super::*;

#[tokio::test]
async fn rp_01_a_batch_gets_one_error_and_the_connection_lives() {
    let scene = scene(limits());
    let mut client = scene.lines().await;
    client.send("[]\n[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"who\"}]\n").await;
    assert_eq!((client.code().await, client.code().await), (-32005, -32005));
    assert_eq!(client.ask("who", json!({})).await["framing"], "lines");
}

#[tokio::test]
async fn rp_02_notifications_are_never_answered_and_interrupt_is_run() {
    let scene = scene(limits());
    let mut client = scene.lines().await;
    for _ in 0..2 {
        client.send("{\"jsonrpc\":\"2.0\",\"method\":\"unknown\"}\n").await;
        client.send("{\"jsonrpc\":\"2.0\",\"method\":\"note\",\"params\":{\"name\":\"ignored\"}}\n").await;
        client
            .send("{\"jsonrpc\":\"2.0\",\"method\":\"session/interrupt\",\"params\":{\"name\":\"stop\"}}\n")
            .await;
        client.send("{\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{}}\n").await;
    }
    assert_eq!(client.ask("echo", json!({"a": 1})).await, "{\"a\":1}");
    assert_eq!(*scene.toys.order.lock().unwrap(), ["stop", "stop"]);
}

#[tokio::test]
async fn rp_04_ids_come_back_as_written() {
    let scene = scene(limits());
    let mut client = scene.lines().await;
    let long = format!("\"{}\"", "x".repeat(10_000));
    for id in ["1", "\"1\"", "-1", "1.50", "9007199254740993", "null", "\"\\u00e9🦦\"", &long] {
        for method in ["who", "unknown", "panicLater", "events/subscribe"] {
            client.send(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\"}}\n")).await;
            let answer = client.text().await.unwrap();
            assert!(answer.starts_with(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},")), "{answer:.200}");
        }
    }
}

#[tokio::test]
async fn rp_05_the_same_id_twice_is_answered_twice_and_never_crossed() {
    let scene = scene(limits());
    let (mut one, mut two) = (scene.lines().await, scene.lines().await);
    one.call(5, "slow", json!({})).await;
    one.call(5, "slow", json!({})).await;
    two.call(5, "slow", json!({})).await;
    scene.toys.until(|toys| toys.begun.load(Ordering::SeqCst) == 3).await;
    scene.toys.gate.0.add_permits(3);
    for client in [&mut one, &mut two] {
        assert_eq!(client.next().await["id"], 5);
    }
    assert_eq!(one.next().await["result"], "done");
    assert_eq!(two.ask("echo", json!([])).await, "[]", "nothing else came here");
}

#[tokio::test]
async fn rp_16_errors_keep_the_connection_and_say_their_kind() {
    let scene = scene(limits());
    let mut client = scene.lines().await;
    for (line, code) in [
        ("{\"foo\":1}", -32600),
        ("{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"who\"}", -32600),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\"}", -32601),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}", -32600),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"who\",\"params\":\"x\"}", -32600),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"who\",\"result\":1}", -32600),
    ] {
        client.send(&format!("{line}\n")).await;
        assert_eq!(client.code().await, code, "{line}");
    }
    client.call(1, "fail", json!({})).await;
    let answer = client.next().await;
    assert_eq!(answer["error"]["code"], -32050);
    assert_eq!(answer["error"]["data"], json!({"kind": "notFound", "toy": "x"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_begin_in_the_order_in_which_they_were_written() {
    let scene = scene(limits());
    let mut client = scene.lines().await;
    let names: Vec<String> = (0..500).map(|n| format!("n{n}")).collect();
    let all: String = names
        .iter()
        .map(|name| {
            format!("{}\n", json!({"jsonrpc": "2.0", "id": name, "method": "note", "params": {"name": name}}))
        })
        .collect();
    client.send(&all).await;
    for _ in &names {
        assert_eq!(client.next().await["result"], "noted");
    }
    assert_eq!(*scene.toys.order.lock().unwrap(), names);
}

#[tokio::test]
async fn a_typed_subscription_begins_in_order_and_refuses_what_it_cannot_read() {
    let toys = Arc::new(Toys::default());
    let mut module = RpcModule::from_arc(toys.clone());
    subscription(&mut module, |params, pending, toys: Arc<Toys>, connection| async move {
        toys.note(format!("subscribe {:?} {}", params.after_seq, connection.id));
        let Ok(sink) = pending.accept().await else { return };
        let event = serde_json::value::to_raw_value("hello").unwrap();
        sink.send(SubscriptionMessage::from(event)).await.unwrap();
    })
    .unwrap();
    method::<agentd_protocol::method::DaemonStatus, _, _, _>(&mut module, |_, toys, _| async move {
        toys.note("status".into());
        Err(error(ErrorCode::Overloaded, "later", serde_json::Map::new()))
    })
    .unwrap();
    let scene = scene_with(limits(), module, toys);
    let mut client = scene.lines().await;
    let lines: Vec<String> = ["events/subscribe", "daemon/status", "events/subscribe"]
        .iter()
        .map(|method| format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\"}}\n"))
        .collect();
    client.send(&lines.concat()).await;
    scene.toys.until(|toys| toys.order.lock().unwrap().len() == 3).await;
    assert_eq!(*scene.toys.order.lock().unwrap(), ["subscribe None 1", "status", "subscribe None 1"]);
    let mut messages = Vec::new();
    for _ in 0..5 {
        messages.push(client.next().await);
    }
    let events = messages.iter().filter(|message| message["params"]["result"] == "hello").count();
    assert_eq!(events, 2, "{messages:?}");
    client.call(7, "events/subscribe", json!({"sessionId": 5})).await;
    assert_eq!(client.code().await, -32602);
}

#[tokio::test]
async fn a_panic_is_answered_and_the_next_call_served() {
    let scene = scene(limits());
    let mut client = scene.lines().await;
    for method in ["panic", "panicLater"] {
        client.call(1, method, json!({})).await;
        assert_eq!(client.code().await, -32603);
    }
    assert_eq!(client.ask("echo", json!([])).await, "[]");
}
