//! The daemon's feed over whole sessions: what it tells, and what it tells again.

use agentd_protocol::FeedSeq;

use super::*;
use crate::registry::Cursor;

/// Hears all there is.
pub(super) async fn hear(home: &Home, cursor: &mut Cursor) -> Vec<Value> {
    let feed = home.registry.daemon_feed();
    let mut heard = Vec::new();
    loop {
        let events = feed.next(cursor).await;
        if events.is_empty() {
            return heard;
        }
        heard.extend(events.iter().map(|event| serde_json::from_str::<Value>(&event.json).unwrap()));
    }
}

async fn hear_from(home: &Home, last: &Value) -> Vec<Value> {
    let after = last["feedSeq"].as_u64().map(FeedSeq);
    hear(home, &mut home.registry.daemon_feed().cursor(after).unwrap()).await
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

fn write() -> Value {
    calls(json!([{ "name": "write_file", "arguments": { "file_path": "b.txt", "content": "beta\n" } }]))
}

#[tokio::test]
async fn it_tells_of_every_session_what_it_does_and_asks_and_how_that_ends() {
    let home = Home::start(write()).await;
    let mut cursor = home.registry.daemon_feed().cursor(None).unwrap();
    assert_eq!(kinds(&hear(&home, &mut cursor).await), ["synced"]);
    let id = home.session(Mode::Default).await;
    let mut listener = home.listen(id).await;
    home.prompt(id, "write").await;
    listener.next("approvalRequested").await;
    let heard = hear(&home, &mut cursor).await;
    let asked = ["sessionCreated", "stateChanged", "stateChanged", "stateChanged", "approvalRequested"];
    assert_eq!(kinds(&heard), asked);
    assert!(hear(&home, &mut cursor).await.is_empty());

    let deny =
        RespondParams { feedback: Some("a secret reason".into()), ..home.answer(id, ChoiceId::Deny).await };
    home.respond(deny).await.unwrap();
    listener.next("turnFinished").await;
    archive(&home, id).await;
    let heard = hear(&home, &mut cursor).await;
    assert_eq!(kinds(&heard)[0], "approvalResolved");
    assert!(heard[0]["seq"].is_u64() && heard[0]["by"]["client"] == "one");
    assert!(!heard[0].to_string().contains("secret"), "what a person said stays in the session");
    assert!(kinds(&heard).contains(&"sessionArchived"), "{heard:?}");
    home.registry.ask(id, |reply| Command::Delete { reply }).await.unwrap();
    assert_eq!(kinds(&hear(&home, &mut cursor).await), ["sessionDeleted"]);
}

async fn archive(home: &Home, id: SessionId) {
    let archive = |reply| Command::Archive { archived: true, caller: person(), reply };
    home.registry.ask(id, archive).await.unwrap();
}

#[tokio::test]
async fn who_was_away_over_a_restart_hears_what_was_settled_deleted_and_what_still_waits() {
    let home = Home::start(write()).await;
    let (settled, waits, gone) = (
        home.session(Mode::Default).await,
        home.session(Mode::Default).await,
        home.session(Mode::Default).await,
    );
    for id in [settled, waits] {
        let mut listener = home.listen(id).await;
        home.prompt(id, "write").await;
        listener.next("approvalRequested").await;
    }
    let heard = hear(&home, &mut home.registry.daemon_feed().cursor(None).unwrap()).await;
    let last = heard.last().unwrap();
    assert_eq!(last["approvals"].as_array().unwrap().len(), 2, "{last}");
    let mut listener = home.listen(settled).await;
    home.respond(home.answer(settled, ChoiceId::Deny).await).await.unwrap();
    listener.next("turnFinished").await;
    home.registry.ask(gone, |reply| Command::Delete { reply }).await.unwrap();
    let home = home.restart().await;
    let heard = hear_from(&home, last).await;
    assert_eq!(
        kinds(&heard),
        ["approvalResolved", "sessionDeleted", "stateChanged", "approvalRequested", "synced"],
        "{heard:?}"
    );
    assert_eq!((&heard[0]["sessionId"], &heard[1]["sessionId"]), (&json!(settled), &json!(gone)));
    let synced = heard.last().unwrap();
    assert_eq!(synced["sessions"], json!([waits]));
    assert_eq!(synced["approvals"], json!([home.state(waits).await.approvals[0].approval_id]));
    assert!(synced.get("gap").is_none(), "{synced}");
    let numbers: Vec<_> = heard.iter().map(|event| event["feedSeq"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted() && numbers[0] > last["feedSeq"].as_u64().unwrap());
}

#[tokio::test]
async fn a_session_that_left_memory_is_not_told_as_busy() {
    let home = Home::start(says("Hello.")).await;
    let id = home.session(Mode::Default).await;
    let turn = home.prompt(id, "hello").await.turn_id;
    home.wait(id, turn).await;
    tokio::time::pause();
    while home.registry.gauges().live > 0 {
        tokio::time::advance(std::time::Duration::from_secs(61)).await;
        tokio::task::yield_now().await;
    }
    tokio::time::resume();
    let heard = hear(&home, &mut home.registry.daemon_feed().cursor(None).unwrap()).await;
    assert_eq!((kinds(&heard), &heard[0]["sessions"]), (vec!["synced"], &json!([])));
}
