//! A clock that jumps: order is by number, so it changes nothing but the times that are shown.

use std::time::Duration;

use agentd_protocol::FeedSeq;
use agentd_protocol::session::ListParams;
use agentd_protocol::turn::Outcome;

use super::*;

const START: i64 = 1_700_000_000_000;
const HOUR: i64 = 3_600_000;
const YEAR: i64 = 366 * 24 * HOUR;

#[tokio::test]
async fn a_clock_that_goes_back_an_hour_and_on_a_year_changes_no_order_and_settles_nothing() {
    let write = json!([
        { "name": "write_file", "arguments": { "file_path": "b.txt", "content": "beta\n" } },
    ]);
    let mut home = Home::start(calls(write)).await;
    let first = home.session(Mode::Default).await;
    let mut cursor = home.registry.daemon_feed().cursor(None).unwrap();
    let mut listener = home.listen(first).await;
    let turn = home.prompt(first, "one").await;
    listener.next("approvalRequested").await;
    let mut numbers = Vec::new();
    let mut sessions = vec![first];
    for (step, time) in
        [START - HOUR, START + YEAR, START - 2 * HOUR, START + 2 * YEAR].into_iter().enumerate()
    {
        home.clock.set(time);
        let id = home.session(Mode::Default).await;
        assert!(sessions.iter().all(|known| *known < id), "ids rise, so pages of lists leave nobody out");
        sessions.push(id);
        let seq = home.state(first).await.seq;
        home.registry
            .ask(first, |reply| Command::SetTitle { title: format!("title {step}"), reply })
            .await
            .unwrap();
        assert!(home.state(first).await.seq > seq);
        let waiting = home.registry.waiting(None).await;
        assert_eq!(waiting.len(), 1, "no time has passed for whoever is asked");
        if step == 1 {
            home = home.restart().await;
            cursor = home.registry.daemon_feed().cursor(numbers.last().copied().map(FeedSeq)).unwrap();
        }
        loop {
            let events = home.registry.daemon_feed().next(&mut cursor).await;
            if events.is_empty() {
                break;
            }
            numbers.extend(events.iter().map(|event| {
                serde_json::from_str::<Value>(&event.json).unwrap()["feedSeq"].as_u64().unwrap()
            }));
        }
    }
    assert!(numbers.is_sorted(), "{numbers:?}");
    let rows = home.registry.list(&ListParams::default()).await.unwrap().sessions;
    assert_eq!(rows.iter().map(|row| row.session_id).collect::<Vec<_>>(), sessions);
    let answer = home.answer(first, ChoiceId::AllowOnce).await;
    home.respond(answer).await.unwrap();
    assert_eq!(home.wait(first, turn.turn_id).await.outcome, Outcome::Finished);
    assert_eq!(std::fs::read_to_string(home.project.join("b.txt")).unwrap(), "beta\n");
    // And the journal, whose times went to and fro, is read as it was written.
    let before = home.state(first).await;
    let home = home.restart().await;
    assert_eq!(home.state(first).await, before);
}

#[tokio::test]
async fn what_waits_is_listed_by_age_and_in_a_session_as_it_came() {
    let read = |path: &str| json!({ "name": "read_file", "arguments": { "file_path": path } });
    let home = Home::start(calls(json!([read("/etc/passwd"), read("/etc/group"), read("/etc/hosts")]))).await;
    let (early, late) = (home.session(Mode::Default).await, home.session(Mode::Default).await);
    let mut expected = Vec::new();
    for (id, time) in [(early, START), (late, START - HOUR)] {
        home.clock.set(time);
        let mut listener = home.listen(id).await;
        home.prompt(id, "go").await;
        listener.next("approvalRequested").await;
        let asked = home.state(id).await.approvals;
        assert_eq!(asked.len(), 3);
        expected.splice(0..0, asked.into_iter().map(|approval| approval.approval_id));
    }
    let waiting = home.registry.waiting(None).await;
    assert_eq!(waiting.into_iter().map(|waiting| waiting.approval.approval_id).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn an_idle_session_leaves_memory_after_a_minute_whatever_the_clock_says() {
    let home = Home::start(says("Hello.")).await;
    let id = home.session(Mode::Default).await;
    home.state(id).await;
    tokio::time::pause();
    for time in [START + YEAR, START - HOUR] {
        home.clock.set(time);
        for _ in 0..12 {
            tokio::task::yield_now().await;
        }
        assert_eq!(home.registry.gauges().live, 1);
    }
    while home.registry.gauges().live > 0 {
        tokio::time::advance(Duration::from_secs(61)).await;
        tokio::task::yield_now().await;
    }
    tokio::time::resume();
}
