//! A session and its children over one subscription.

use std::collections::BTreeMap;

use agentd_protocol::{Mode, SessionId};

use super::sessions::{rise, socket};
use super::*;
use crate::registry::tests::{calls, says};
use crate::session::command::Command;

async fn set_title(socket: &super::sessions::Socket, id: SessionId, title: &str) {
    let set = |reply| Command::SetTitle { title: title.into(), reply };
    socket.home.registry.ask(id, set).await.unwrap();
}

/// The numbers of the journaled events, by session.
fn numbers(events: &[Value]) -> BTreeMap<String, Vec<u64>> {
    let mut numbers: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["type"] != "synced") {
        if let (Some(id), Some(seq)) = (event["sessionId"].as_str(), event["seq"].as_u64()) {
            numbers.entry(id.to_owned()).or_default().push(seq);
        }
    }
    numbers
}

/// Events until each of these sessions has had one of this type.
async fn until(lines: &mut Lines, kind: &str, sessions: &[SessionId]) -> Vec<Value> {
    let mut missing: Vec<String> = sessions.iter().map(ToString::to_string).collect();
    let mut events = Vec::new();
    while !missing.is_empty() {
        let event = lines.event().await;
        if event["type"] == kind {
            missing.retain(|id| event["sessionId"] != id.as_str());
        }
        events.push(event);
    }
    events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_are_followed_each_by_its_own_numbers_and_new_ones_join_from_their_beginning() {
    let socket = socket(says("Hello.")).await;
    let home = &socket.home;
    let root = home.session(Mode::Default).await;
    let (child, stranger) = (home.child(root).await, home.session(Mode::Default).await);
    let grandchild = home.child(child).await;
    let mut lines = socket.subscribe(json!({ "sessionId": root, "afterSeq": 0, "tree": true })).await;
    let mut events = until(&mut lines, "synced", &[root, child, grandchild]).await;
    // Made while it is followed, with things happening at once.
    let (late, other) = tokio::join!(home.child(root), home.child(grandchild));
    for (id, title) in [(late, "late"), (other, "other"), (child, "child"), (stranger, "stranger")] {
        set_title(&socket, id, title).await;
    }
    events.extend(until(&mut lines, "titleChanged", &[late, other, child]).await);
    // A title may be part of what comes before "synced".
    let is_synced = |id: &SessionId| {
        events.iter().any(|event| event["type"] == "synced" && event["sessionId"] == json!(id))
    };
    let open: Vec<_> = [late, other].into_iter().filter(|id| !is_synced(id)).collect();
    events.extend(until(&mut lines, "synced", &open).await);
    let seen = numbers(&events);
    assert_eq!(seen.len(), 5, "{seen:?}");
    for (id, numbers) in &seen {
        assert!(rise(numbers) && numbers[0] == 1, "{id}: {numbers:?}");
    }
    let synced = |id: SessionId| {
        events.iter().filter(|event| event["type"] == "synced" && event["sessionId"] == json!(id)).count()
    };
    assert_eq!([root, child, grandchild, late, other].map(synced), [1; 5]);
    let parent = events.iter().find(|event| event["sessionId"] == json!(other)).unwrap();
    assert_eq!(parent["parent"], json!(grandchild));

    // Back again, from its place in each: what it has not seen, and nothing else.
    let mut after: BTreeMap<_, _> =
        seen.iter().map(|(id, numbers)| (id.clone(), *numbers.last().unwrap())).collect();
    let at_root = after.remove(&root.to_string());
    drop(lines);
    set_title(&socket, grandchild, "missed").await;
    let unseen = home.child(child).await;
    let again = json!({ "sessionId": root, "afterSeq": at_root, "tree": true, "after": after });
    let mut lines = socket.subscribe(again).await;
    let events = until(&mut lines, "synced", &[root, child, grandchild, late, other, unseen]).await;
    let kinds: Vec<_> = numbers(&events).into_iter().collect();
    assert_eq!(kinds.len(), 2, "{kinds:?}");
    assert_eq!(numbers(&events)[&unseen.to_string()][0], 1);
    assert_eq!(numbers(&events)[&grandchild.to_string()].len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_child_leaves_and_with_the_first_session_all_goes_from_below() {
    let socket = socket(says("Hello.")).await;
    let home = &socket.home;
    let root = home.session(Mode::Default).await;
    let (child, leaving) = (home.child(root).await, home.child(root).await);
    let grandchild = home.child(child).await;
    let mut lines = socket.subscribe(json!({ "sessionId": root, "tree": true })).await;
    until(&mut lines, "synced", &[root, child, leaving, grandchild]).await;
    let mut other = socket.lines().await;
    assert!(other.ask("session/delete", json!({ "sessionId": leaving })).await.is_object());
    until(&mut lines, "sessionDeleted", &[leaving]).await;
    set_title(&socket, child, "still here").await;
    until(&mut lines, "titleChanged", &[child]).await;
    other.ask("session/delete", json!({ "sessionId": root })).await;
    let events = until(&mut lines, "sessionDeleted", &[root, child, grandchild]).await;
    let gone: Vec<_> = events.iter().filter(|event| event["type"] == "sessionDeleted").collect();
    assert_eq!((gone.len(), &gone[2]["sessionId"]), (3, &json!(root)), "{gone:?}");
}

#[tokio::test]
async fn a_number_beyond_the_head_of_a_child_is_a_conflict_that_names_it() {
    let socket = socket(calls(json!([]))).await;
    let root = socket.home.session(Mode::Default).await;
    let child = socket.home.child(root).await;
    let mut lines = socket.lines().await;
    let gone = SessionId::generate();
    let after = json!({ (child.to_string()): 1000, (gone.to_string()): 5 });
    lines.call(1, "events/subscribe", json!({ "sessionId": root, "tree": true, "after": after })).await;
    let error = lines.next().await["error"].clone();
    assert_eq!(
        (&error["code"], &error["data"]["sessionId"]),
        (&json!(ErrorCode::Conflict.code()), &json!(child))
    );
    assert!(error["data"]["head"].is_u64());
}
