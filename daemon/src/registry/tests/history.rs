//! Looking back over a session, live or not.

use agentd_protocol::Seq;
use agentd_protocol::history::{HistoryParams, HistoryResult};

use super::*;

async fn page(home: &Home, params: HistoryParams) -> (Vec<Value>, HistoryResult) {
    let page = home.registry.history(params).await.unwrap();
    let events = page.events.iter().map(|raw| serde_json::from_str(raw.get()).unwrap()).collect();
    (events, page)
}

/// All events, in pages of `limit` from the beginning or from the end.
async fn whole(home: &Home, id: SessionId, limit: u32, forward: bool, types: Option<&[&str]>) -> Vec<Value> {
    let types = types.map(|types| types.iter().map(|kind| (*kind).to_owned()).collect());
    let mut params = HistoryParams { limit: Some(limit), types, ..HistoryParams::newest(id) };
    if forward {
        params.after_seq = Some(Seq(0));
    }
    let mut pages = Vec::new();
    loop {
        let (events, result) = page(home, params.clone()).await;
        assert!(events.len() <= limit as usize);
        assert_eq!(result.more, result.next.is_some());
        pages.push(events);
        match result.next {
            Some(next) if forward => params.after_seq = Some(next),
            Some(next) => params.before_seq = Some(next),
            None => break,
        }
    }
    if !forward {
        pages.reverse();
    }
    pages.concat()
}

/// What a subscription from the beginning sends before `synced`.
pub(super) async fn subscribed(home: &Home, id: SessionId) -> Vec<Value> {
    let snapshot = home.registry.snapshot(id).await.unwrap();
    let past = crate::session::history::Past { session: id, reader: snapshot.reader, blobs: snapshot.blobs };
    let before = Seq(snapshot.head.0 + 1);
    let wanted = crate::session::history::Wanted { after: Seq(0), before, types: None, limit: usize::MAX };
    let page = crate::session::history::forward(&past, &wanted).await.unwrap();
    assert!(page.next.is_none(), "this session is short");
    page.events.iter().map(|event| serde_json::from_str(&event.json).unwrap()).collect()
}

async fn talked(turns: usize) -> (Home, SessionId) {
    let home = Home::start(json!({ "rules": [
        { "name": "look", "when": { "answers": 0 },
          "reply": { "calls": [{ "name": "read_file", "arguments": { "file_path": "a.txt" } }] } },
        { "name": "say", "reply": { "text": "Hello." } },
    ] }))
    .await;
    let id = home.session(Mode::Default).await;
    for n in 0..turns {
        let turn = home.prompt(id, &format!("prompt {n}")).await.turn_id;
        home.wait(id, turn).await;
    }
    (home, id)
}

#[tokio::test]
async fn pages_of_every_size_and_either_way_hold_every_event_once() {
    let (home, id) = talked(3).await;
    let expected = subscribed(&home, id).await;
    assert!(expected.len() > 15);
    let home = home.restart().await;
    for limit in (1..=expected.len() as u32 + 1).chain([1000, 5000]) {
        for forward in [true, false] {
            assert_eq!(whole(&home, id, limit, forward, None).await, expected, "{limit} {forward}");
        }
        let kinds = ["turnStarted", "message"];
        let of_kinds: Vec<Value> = expected
            .iter()
            .filter(|event| kinds.iter().any(|kind| event["type"] == *kind))
            .cloned()
            .collect();
        for forward in [true, false] {
            assert_eq!(whole(&home, id, limit, forward, Some(&kinds)).await, of_kinds, "{limit} {forward}");
        }
    }
    assert_eq!(home.registry.gauges().live, 0, "looking back takes no session into memory");
    // Live, it is the same.
    assert_eq!(home.state(id).await.turns, 3);
    for forward in [true, false] {
        assert_eq!(whole(&home, id, 4, forward, None).await, expected);
    }
}

#[tokio::test]
async fn a_page_lies_between_the_numbers_that_were_asked_for() {
    let (home, id) = talked(2).await;
    let all = subscribed(&home, id).await;
    let seq = |event: &Value| Seq(event["seq"].as_u64().unwrap());
    let (first, last) = (seq(&all[3]), seq(&all[9]));
    let between =
        HistoryParams { after_seq: Some(first), before_seq: Some(last), ..HistoryParams::newest(id) };
    assert_eq!(page(&home, between).await.0, all[4..9]);
    let newest = HistoryParams { limit: Some(1), ..HistoryParams::newest(id) };
    let (events, result) = page(&home, newest).await;
    assert_eq!((events[0]["type"].as_str(), result.more), (Some("turnFinished"), true));
    let none = HistoryParams { before_seq: Some(Seq(1)), ..HistoryParams::newest(id) };
    assert_eq!(page(&home, none).await.0.len(), 0);
    let at_the_end = HistoryParams { after_seq: Some(result.head), ..HistoryParams::newest(id) };
    let (events, at_the_end) = page(&home, at_the_end).await;
    assert_eq!((events.len(), at_the_end.more), (0, false));
    let beyond = HistoryParams { after_seq: Some(Seq(u64::MAX)), ..HistoryParams::newest(id) };
    assert!(
        matches!(home.registry.history(beyond).await, Err(SessionError::BeyondHead { head }) if head == result.head)
    );
    let far = HistoryParams { before_seq: Some(Seq(u64::MAX)), ..HistoryParams::newest(id) };
    assert_eq!(page(&home, far).await.0, all);
}

#[tokio::test]
async fn large_texts_come_from_their_blobs_and_a_page_ends_at_a_mebibyte() {
    let home = Home::start(says(&"A long answer. ".repeat(14_000))).await;
    let id = home.session(Mode::Default).await;
    for n in 0..6 {
        let turn = home.prompt(id, &format!("{n}")).await.turn_id;
        home.wait(id, turn).await;
    }
    let expected = whole(&home, id, 1, true, None).await;
    let home = home.restart().await;
    let text = |event: &Value| event["text"].as_str().map(str::len);
    assert_eq!(expected.iter().filter(|event| text(event) == Some(15 * 14_000)).count(), 6);
    let (events, result) = page(&home, HistoryParams::newest(id)).await;
    assert!(result.more && events.len() < expected.len());
    assert!(result.events.iter().map(|raw| raw.get().len()).sum::<usize>() <= 1 << 20);
    for forward in [true, false] {
        assert_eq!(whole(&home, id, 1000, forward, None).await, expected);
    }
    // A blob that is gone is no error: its place says what was there.
    std::fs::remove_dir_all(home.paths.session_dir(id).join("blobs")).unwrap();
    let (events, _) = page(&home, HistoryParams::newest(id)).await;
    assert!(events.iter().any(|event| event["text"]["size"] == 15 * 14_000), "{events:?}");
}

#[tokio::test]
async fn history_grows_while_it_is_read_and_holds_up_nothing() {
    let home = Home::start(calls(json!([{ "name": "probe", "arguments": { "act": "wait" } }]))).await;
    let id = home.session(Mode::Default).await;
    let mut listener = home.listen(id).await;
    home.prompt(id, "go").await;
    listener.next("permissionDecided").await;
    let before = whole(&home, id, 3, true, None).await;
    assert_eq!(before.last().unwrap()["type"], "permissionDecided");
    home.probe.gate.0.add_permits(1);
    listener.next("turnFinished").await;
    let after = whole(&home, id, 3, false, None).await;
    assert_eq!(after[..before.len()], before);
    assert_eq!(after.last().unwrap()["type"], "turnFinished");
}

#[tokio::test]
async fn an_interrupted_turn_that_nobody_took_up_is_shown_and_left_alone() {
    let script = json!({ "rules": [
        { "name": "slow", "reply": { "text": "Slow." }, "fault": { "do": { "hang": { "after": 0 } } } },
    ] });
    let home = Home::start(script).await;
    let id = home.session(Mode::Default).await;
    home.prompt(id, "slow").await;
    home.asked(1).await;
    // Without its marker the next start does not know of it.
    let home = home
        .restart_after(|home| {
            let _ = crate::paths::Markers::new(&home.paths).clear(id);
        })
        .await;
    let journal = home.paths.session_dir(id).join("journal.jsonl");
    let bytes = std::fs::read(&journal).unwrap();
    let kinds: Vec<_> = whole(&home, id, 2, false, None).await.iter().map(|e| e["type"].clone()).collect();
    assert_eq!(kinds.last().unwrap(), "message", "{kinds:?}");
    assert_eq!((home.registry.gauges().live, std::fs::read(&journal).unwrap()), (0, bytes));
    home.asked(1).await;
}

#[tokio::test]
async fn damage_is_passed_over_and_a_deleted_session_is_not_found() {
    let (home, id) = talked(2).await;
    let all = subscribed(&home, id).await;
    let home = home
        .restart_after(|home| {
            let journal = home.paths.session_dir(id).join("journal.jsonl");
            let text = std::fs::read_to_string(&journal).unwrap();
            let mut lines: Vec<&str> = text.lines().collect();
            let middle = lines.len() / 2;
            lines[middle] = "{\"v\":1,ruined";
            std::fs::write(&journal, format!("{}\n{{\"v\":1,\"seq\":", lines.join("\n"))).unwrap();
        })
        .await;
    let left = whole(&home, id, 3, true, None).await;
    assert!(left.len() < all.len() && left.iter().all(|event| all.contains(event)));
    assert_eq!(whole(&home, id, 3, false, None).await, left);
    home.registry.ask(id, |reply| Command::Delete { reply }).await.unwrap();
    for id in [id, SessionId::generate()] {
        let gone = home.registry.history(HistoryParams::newest(id)).await;
        assert!(matches!(gone, Err(SessionError::NotFound("session"))), "{gone:?}");
    }
}
