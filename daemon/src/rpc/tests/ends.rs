//! Limits, refusals, slow clients, and how connections end.

use std::time::Duration;

use super::*;

#[tokio::test]
async fn rp_08_a_client_that_does_not_read_holds_up_nobody_and_is_dropped() {
    let scene = scene(Limits { write_stall: Duration::from_millis(200), ..limits() });
    let mut stuck = scene.lines().await;
    stuck.call(1, "events/subscribe", json!({"count": 1_000_000, "size": 10_000})).await;
    scene.toys.until(|toys| toys.subscriptions.load(Ordering::SeqCst) == 1).await;
    let mut other = scene.lines().await;
    other.call(1, "events/subscribe", json!({"count": 100, "size": 10_000})).await;
    assert!(other.next().await["result"].is_string());
    for n in 0..100 {
        assert_eq!(other.next().await["params"]["result"]["n"], n);
    }
    // The stuck one's subscription ends with its connection, long before it sent everything.
    scene.toys.until(|toys| toys.subscriptions.load(Ordering::SeqCst) == 1).await;
    assert_eq!(other.ask("echo", json!([])).await, "[]");
    let mut received = Vec::new();
    stuck.read.read_to_end(&mut received).await.unwrap();
    assert!(received.len() < 100_000_000, "it was closed while it was behind");
}

#[tokio::test]
async fn answers_go_before_events() {
    let scene = scene(limits());
    let mut client = scene.lines().await;
    client.call(1, "events/subscribe", json!({"count": 2_000, "size": 2_000})).await;
    assert_eq!(client.next().await["id"], 1);
    client.call(2, "who", json!({})).await;
    let mut before = 0;
    while client.next().await["id"] != 2 {
        before += 1;
    }
    // What is already in the socket's buffer and in the queue comes first; not the whole flood.
    assert!(before < 1_500, "{before} events came before the answer");
}

#[tokio::test]
async fn rp_10_a_lost_connection_cancels_nothing() {
    let scene = scene(limits());
    let mut client = scene.lines().await;
    client.call(1, "slow", json!({})).await;
    client.call(2, "turn/wait", json!({})).await;
    scene.toys.until(|toys| toys.begun.load(Ordering::SeqCst) == 2).await;
    drop(client);
    // One permit: the wait was dropped with its client, so the call gets it.
    while scene.server.gauges.connections() > 0 {
        tokio::task::yield_now().await;
    }
    scene.toys.gate.0.add_permits(1);
    scene.toys.until(|toys| toys.finished.load(Ordering::SeqCst) == 1).await;
    assert_eq!(scene.lines().await.ask("echo", json!([])).await, "[]");
}

#[tokio::test]
async fn the_slots_for_calls_are_bounded_and_waits_take_none() {
    let scene = scene(Limits { calls: 2, waits: 3, ..limits() });
    let mut client = scene.lines().await;
    for n in 0..3 {
        client.call(n, "turn/wait", json!({})).await;
    }
    client.call(3, "turn/wait", json!({})).await;
    let refused = client.next().await;
    assert_eq!((refused["id"].as_i64(), refused["error"]["code"].as_i64()), (Some(3), Some(-32056)));
    assert_eq!(client.ask("echo", json!([])).await, "[]", "waits do not block other calls");
    client.call(10, "slow", json!({})).await;
    client.call(11, "slow", json!({})).await;
    client.call(12, "echo", json!({})).await;
    scene.toys.until(|toys| toys.begun.load(Ordering::SeqCst) == 5).await;
    scene.toys.gate.0.add_permits(5);
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(client.next().await["id"].as_i64().unwrap());
    }
    assert!(ids.contains(&12) && ids[0] != 12, "the third call waited for a slot: {ids:?}");
}

#[tokio::test]
async fn a_closed_half_still_hears_answers_and_events() {
    let scene = scene(limits());
    let mut client = scene.lines().await;
    client.call(1, "slow", json!({})).await;
    client.call(2, "events/subscribe", json!({"count": 3})).await;
    client.send("{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"echo\"}").await;
    client.write.shutdown().await.unwrap();
    let mut ids = Vec::new();
    let mut events = 0;
    scene.toys.until(|toys| toys.begun.load(Ordering::SeqCst) == 1).await;
    scene.toys.gate.0.add_permits(1);
    while ids.len() < 3 || events < 3 {
        let message = client.next().await;
        match message["id"].as_i64() {
            Some(id) => ids.push(id),
            None => events += 1,
        }
    }
    assert_eq!(scene.toys.subscriptions.load(Ordering::SeqCst), 1, "it lives on");
    drop(client);
    scene.toys.until(|toys| toys.subscriptions.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn a_closed_half_without_subscriptions_ends_after_the_last_answer() {
    let scene = scene(limits());
    let mut client = scene.lines().await;
    client.send("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\"}").await;
    client.write.shutdown().await.unwrap();
    assert_eq!(client.next().await["id"], 1);
    assert_eq!(client.text().await, None);
}

#[tokio::test]
async fn subscriptions_are_bounded_and_unsubscribed_by_name() {
    let scene = scene(Limits { subscriptions: 1, ..limits() });
    let mut client = scene.lines().await;
    let id = client.ask("events/subscribe", json!({})).await;
    client.call(2, "events/subscribe", json!({})).await;
    assert_eq!(client.code().await, -32006);
    let mut other = scene.lines().await;
    assert_eq!(other.ask("events/unsubscribe", json!({"subscription": id})).await, false, "not its own");
    assert_eq!(client.ask("events/unsubscribe", json!({"subscription": id})).await, true);
    scene.toys.until(|toys| toys.subscriptions.load(Ordering::SeqCst) == 0).await;
    assert!(client.ask("events/subscribe", json!({})).await.is_string());
}

#[tokio::test]
async fn connections_are_bounded_and_the_refused_are_told() {
    let scene = scene(Limits { connections: 1, ..limits() });
    let mut first = scene.lines().await;
    assert_eq!(first.ask("echo", json!([])).await, "[]");
    let mut second = scene.lines().await;
    assert_eq!(second.code().await, -32056);
    assert_eq!(second.text().await, None);
    assert_eq!(first.ask("echo", json!([])).await, "[]");
}

#[tokio::test]
async fn a_peer_that_is_the_daemon_itself_is_refused_with_a_reason() {
    let mut scene = scene(limits());
    scene.serving.abort();
    let path = scene.path.with_file_name("strict");
    scene.server.peers = PeerPolicy::Strict;
    tokio::spawn(serve(bind(&path).unwrap(), scene.server.clone()));
    scene.path = path;
    let mut client = scene.lines().await;
    let answer = client.next().await;
    assert_eq!(answer["error"]["code"], -32054);
    assert_eq!(answer["error"]["data"], json!({"kind": "refused", "reason": "peer.ownChild"}));
    assert_eq!(client.text().await, None);
}

#[tokio::test]
async fn stopping_keeps_connections_and_leaving_writes_what_is_in_flight() {
    let scene = scene(limits());
    let mut client = scene.lines().await;
    client.call(1, "events/subscribe", json!({"count": 1})).await;
    client.next().await;
    client.next().await;
    scene.server.stop.cancel();
    scene.serving.await.unwrap();
    assert!(!scene.path.exists(), "nobody is invited any more");
    assert_eq!(client.ask("echo", json!([])).await, "[]", "a connection goes on");
    client.call(2, "slow", json!({})).await;
    client.call(3, "turn/wait", json!({})).await;
    scene.toys.until(|toys| toys.begun.load(Ordering::SeqCst) == 2).await;
    scene.server.leave.cancel();
    scene.toys.until(|toys| toys.subscriptions.load(Ordering::SeqCst) == 0).await;
    scene.toys.gate.0.add_permits(1);
    assert_eq!(client.next().await["id"], 2);
    assert_eq!(client.text().await, None);
    scene.server.tracker.close();
    scene.server.tracker.wait().await;
}
