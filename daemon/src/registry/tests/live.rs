//! Which sessions are in memory: loading, unloading, creating, deleting, lists.

use std::time::Duration;

use agentd_protocol::session::{Activity, ListParams, Order};
use agentd_protocol::turn::Outcome;

use super::*;

async fn set_title(home: &Home, id: SessionId, title: &str) -> Result<(), SessionError> {
    home.registry.ask(id, |reply| Command::SetTitle { title: title.into(), reply }).await
}

fn live(home: &Home) -> u32 {
    home.registry.gauges().live
}

/// Lets time pass, and lets sessions do what it makes due.
async fn pass(time: Duration) {
    tokio::time::advance(time).await;
    for _ in 0..12 {
        tokio::task::yield_now().await;
    }
}

/// Lets the idle time pass until the session has left memory.
async fn unload(home: &Home) {
    tokio::time::pause();
    while live(home) > 0 {
        pass(Duration::from_secs(61)).await;
    }
    tokio::time::resume();
}

#[tokio::test]
async fn an_idle_session_leaves_memory_and_the_next_message_loads_it() {
    let home = Home::start(says("Hello.")).await;
    let id = home.session(Mode::Default).await;
    let turn = home.prompt(id, "hello").await.turn_id;
    home.wait(id, turn).await;
    let before = home.state(id).await;
    unload(&home).await;
    // However short: its beginning stands in a second place from then on.
    assert!(home.paths.session_dir(id).join("state.json").exists());
    assert_eq!(home.state(id).await, before);
    assert_eq!(live(&home), 1);
    let turn = home.prompt(id, "more").await.turn_id;
    assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_hears_of_a_turns_end_counts_it_no_more() {
    let home = Home::start(says("Hello.")).await;
    let id = home.session(Mode::Default).await;
    for _ in 0..40 {
        let Listener { feed, mut position, .. } = home.listen(id).await;
        let registry = Arc::clone(&home.registry);
        // On a thread of its own, and always looking: nothing may lie between an event and what lists say.
        let running = tokio::task::spawn_blocking(move || {
            loop {
                let events = feed.news(&mut position).events.expect("a turn fits the ring");
                if events.iter().any(|event| event.kind == "turnFinished") {
                    return registry.gauges().running;
                }
                std::hint::spin_loop();
            }
        });
        home.prompt(id, "hello").await;
        assert_eq!(running.await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_listener_stays_where_it_is_while_the_session_is_unloaded() {
    let home = Home::start(says("Hello.")).await;
    let id = home.session(Mode::Default).await;
    let mut listener = home.listen(id).await;
    unload(&home).await;
    set_title(&home, id, "later").await.unwrap();
    assert_eq!(listener.next("titleChanged").await["title"], "later");
}

#[tokio::test]
async fn a_session_that_waits_for_a_person_stays_in_memory() {
    let write = json!([{ "name": "write_file", "arguments": { "file_path": "b.txt", "content": "beta\n" } }]);
    let home = Home::start(calls(write)).await;
    let (id, idle) = (home.session(Mode::Default).await, home.session(Mode::Default).await);
    let mut listener = home.listen(id).await;
    home.prompt(id, "write").await;
    listener.next("approvalRequested").await;
    home.state(idle).await;
    assert_eq!(live(&home), 2);
    tokio::time::pause();
    // The idle one beside it shows that it had time enough to leave.
    while live(&home) == 2 {
        pass(Duration::from_secs(61)).await;
    }
    for _ in 0..5 {
        pass(Duration::from_secs(600)).await;
        assert_eq!(live(&home), 1);
    }
    tokio::time::resume();
    let waiting = home.registry.waiting(None).await;
    let sessions: Vec<_> = waiting.iter().map(|waiting| waiting.session_id).collect();
    assert_eq!((sessions, live(&home)), (vec![id], 1));
}

#[tokio::test]
async fn a_message_that_meets_the_unloading_is_never_lost() {
    let home = Home::start(says("Hello.")).await;
    let id = home.session(Mode::Default).await;
    home.state(id).await;
    tokio::time::pause();
    // Whether the session was in memory when the message came, with its idle time not yet over, and just over.
    let (mut early, mut due) = (Vec::new(), Vec::new());
    for n in 0..300 {
        let title = format!("title {n}");
        match n % 3 {
            0 => {
                tokio::time::advance(Duration::from_secs(59)).await;
                early.push(live(&home));
            }
            1 => {
                tokio::time::advance(Duration::from_millis(60_001)).await;
                due.push(live(&home));
            }
            _ => {
                while live(&home) > 0 {
                    pass(Duration::from_secs(61)).await;
                }
            }
        }
        set_title(&home, id, &title).await.unwrap();
        assert_eq!(home.state(id).await.title, Some(title));
    }
    tokio::time::resume();
    assert_eq!(early, [1; 100]);
    assert!(due.contains(&1), "no message came while the session was about to leave");
}

/// What one thread cannot show: the message comes in between the session's last look at its mailbox and its leaving.
#[tokio::test]
async fn a_message_from_another_thread_that_meets_the_unloading_is_never_lost() {
    const ROUNDS: usize = 300;
    let home = Home::start(says("Hello.")).await;
    let id = home.session(Mode::Default).await;
    home.state(id).await;
    tokio::time::pause();
    let (mut stayed, mut left) = (0, 0);
    for n in 0..ROUNDS {
        let title = format!("title {n}");
        let go = Arc::new(AtomicBool::new(false));
        let sender = tokio::task::spawn_blocking({
            let (registry, title, go) = (Arc::clone(&home.registry), title.clone(), Arc::clone(&go));
            let runtime = tokio::runtime::Handle::current();
            move || {
                while !go.load(Ordering::SeqCst) {
                    std::hint::spin_loop();
                }
                // Each round a little later than the one before.
                for _ in 0..n * 32 % 4096 {
                    std::hint::spin_loop();
                }
                let was_live = registry.gauges().live == 1;
                let ask = registry.ask(id, |reply| Command::SetTitle { title, reply });
                runtime.block_on(ask).map(|()| was_live)
            }
        });
        tokio::time::advance(Duration::from_millis(60_001)).await;
        go.store(true, Ordering::SeqCst);
        let was_live = sender.await.unwrap().unwrap();
        *(if was_live { &mut stayed } else { &mut left }) += 1;
        assert_eq!(home.state(id).await.title, Some(title));
    }
    tokio::time::resume();
    assert!(stayed > 0 && left > 0, "only one side of the moment was met: {stayed} and {left}");
}

#[tokio::test]
async fn an_unknown_id_is_not_found_and_leaves_nothing_behind() {
    let home = Home::start(says("Hello.")).await;
    for _ in 0..20 {
        let id = SessionId::generate();
        assert!(matches!(home.registry.snapshot(id).await, Err(SessionError::NotFound("session"))));
        assert!(!home.paths.session_dir(id).exists());
    }
    // The entry goes right after the answer.
    while !home.registry.entries.is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_same_id_with_the_same_parameters_is_the_same_session() {
    let home = Home::start(says("Hello.")).await;
    let id = SessionId::generate();
    let params = NewParams { session_id: Some(id), ..home.params(Mode::Default) };
    let other = NewParams { title: Some("other".into()), ..params.clone() };
    let caller = person();
    let (first, second, third) = tokio::join!(
        home.registry.create(params.clone(), &caller),
        home.registry.create(params.clone(), &caller),
        home.registry.create(other.clone(), &caller),
    );
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!((first.session_id, &first.handle), (id, &second.handle));
    assert!(matches!(third, Err(SessionError::Conflict(_))));

    let home = home.restart().await;
    assert_eq!(home.registry.create(params, &caller).await.unwrap().handle, first.handle);
    assert!(matches!(home.registry.create(other, &caller).await, Err(SessionError::Conflict(_))));
}

#[tokio::test]
async fn a_failed_creation_answers_those_who_came_early() {
    let home = Home::start(says("Hello.")).await;
    let id = SessionId::generate();
    let params =
        NewParams { session_id: Some(id), cwd: "/does/not/exist".into(), ..home.params(Mode::Default) };
    let caller = person();
    let (made, looked) = tokio::join!(home.registry.create(params, &caller), home.registry.snapshot(id));
    assert!(matches!(made, Err(SessionError::Invalid { field: "cwd", .. })));
    assert!(matches!(looked, Err(SessionError::NotFound(_))));
    assert!(home.registry.entries.is_empty());
}

#[tokio::test]
async fn deleting_a_running_session_ends_it_and_removes_all_of_it() {
    let home = Home::start(calls(json!([{ "name": "probe", "arguments": { "act": "wait" } }]))).await;
    let id = home.session(Mode::Plan).await;
    let plan = home.state(id).await.plan.unwrap().path;
    let mut listener = home.listen(id).await;
    let turn = home.prompt(id, "go").await.turn_id;
    listener.next("permissionDecided").await;
    let waiting = tokio::spawn({
        let registry = Arc::clone(&home.registry);
        async move { registry.ask(id, |reply| Command::WaitTurn { turn, reply }).await }
    });
    home.registry.ask(id, |reply| Command::Delete { reply }).await.unwrap();
    assert!(matches!(waiting.await.unwrap(), Err(SessionError::NotFound(_))));
    assert!(matches!(home.registry.snapshot(id).await, Err(SessionError::NotFound(_))));
    assert!(!home.paths.session_dir(id).exists() && !std::path::Path::new(&plan).exists());
    assert_eq!(live(&home), 0);
    assert!(crate::paths::Markers::new(&home.paths).list().unwrap().is_empty());
    // The id is free again.
    let params = NewParams { session_id: Some(id), ..home.params(Mode::Default) };
    home.registry.create(params, &person()).await.unwrap();
}

#[tokio::test]
async fn lists_hold_cold_and_live_sessions_and_page_in_order_of_creation() {
    let home = Home::start(says("Hello.")).await;
    let mut ids = Vec::new();
    for n in 0..5 {
        let params = NewParams { title: Some(format!("Number {n}")), ..home.params(Mode::Default) };
        ids.push(home.registry.create(params, &person()).await.unwrap().session_id);
    }
    let home = home.restart().await;
    assert_eq!(live(&home), 0, "idle sessions are not loaded at start");
    home.clock.set(1_700_000_500_000);
    set_title(&home, ids[1], "Renamed").await.unwrap();
    assert_eq!(live(&home), 1);

    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = ListParams { limit: Some(2), after, ..ListParams::default() };
        let page = home.registry.list(&page).await.unwrap();
        assert!(page.sessions.len() <= 2);
        seen.extend(page.sessions.iter().map(|row| (row.session_id, row.title.clone().unwrap())));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids);
    let titles: Vec<_> = seen.iter().map(|(_, title)| title.as_str()).collect();
    assert_eq!(titles, ["Number 0", "Renamed", "Number 2", "Number 3", "Number 4"]);

    let newest = ListParams { order: Order::Updated, limit: Some(1), ..ListParams::default() };
    assert_eq!(home.registry.list(&newest).await.unwrap().sessions[0].session_id, ids[1]);
    let found = ListParams { text: Some("nUmBer 3".into()), ..ListParams::default() };
    let found = home.registry.list(&found).await.unwrap().sessions;
    assert_eq!(found.iter().map(|row| row.session_id).collect::<Vec<_>>(), [ids[3]]);
    let running = ListParams { activity: Some(Activity::Running), ..ListParams::default() };
    assert!(home.registry.list(&running).await.unwrap().sessions.is_empty());
}

#[tokio::test]
async fn a_list_tells_of_a_session_on_the_disk_what_it_was_asked_and_what_is_held() {
    let home = Home::start(calls(json!([{ "name": "probe", "arguments": { "act": "wait" } }]))).await;
    let id = home.session(Mode::Default).await;
    let mut listener = home.listen(id).await;
    let turn = home.prompt(id, "Add\n  paging").await.turn_id;
    listener.next("permissionDecided").await;
    home.prompt(id, "and a question").await;
    let dropped = home.prompt(id, "never mind").await.turn_id;
    let stop = home.registry.ask(id, |reply| Command::Interrupt { turn: None, caller: person(), reply });
    stop.await.unwrap();
    assert_eq!(home.wait(id, turn).await.outcome, Outcome::Interrupted);
    let rows = |home: &Home| {
        let registry = Arc::clone(&home.registry);
        async move { registry.list(&ListParams::default()).await.unwrap().sessions }
    };
    let live_row = rows(&home).await.remove(0);
    assert_eq!((live_row.last_prompt.as_deref(), live_row.held_prompts), (Some("never mind"), 2));
    let home = home.restart().await;
    assert_eq!(live(&home), 0);
    assert_eq!(rows(&home).await, [live_row]);

    home.registry.ask(id, |reply| Command::Withdraw { prompt: dropped, reply }).await.unwrap();
    let live_row = rows(&home).await.remove(0);
    assert_eq!((live_row.last_outcome, live_row.held_prompts), (Some(Outcome::Interrupted), 1));
    // What was dropped before it ran is not what the session is about.
    assert_eq!(live_row.last_prompt.as_deref(), Some("and a question"));
    let home = home.restart().await;
    assert_eq!(rows(&home).await, [live_row]);
}

#[tokio::test]
async fn a_restart_makes_no_session_newer() {
    let write = json!([{ "name": "write_file", "arguments": { "file_path": "b.txt", "content": "beta\n" } }]);
    let home = Home::start(calls(write)).await;
    let id = home.session(Mode::Default).await;
    let mut listener = home.listen(id).await;
    home.prompt(id, "write").await;
    listener.next("approvalRequested").await;
    let before = home.state(id).await.updated_at;
    home.clock.set(1_700_000_500_000);
    home.registry.park(Duration::from_secs(10)).await;
    let home = home.restart().await;
    let row = home.registry.list(&ListParams::default()).await.unwrap().sessions.remove(0);
    assert_eq!((row.activity, row.updated_at), (Activity::Waiting, before));
}

#[tokio::test]
async fn a_start_takes_up_what_was_going_on_and_nothing_else() {
    let script = json!({ "rules": [
        { "name": "slow", "when": { "texts": [{ "in": "prompt", "contains": "slow" }] },
          "reply": { "text": "Slow." }, "fault": { "times": 1, "do": { "hang": { "after": 0 } } } },
        { "name": "say", "reply": { "text": "Hello." } },
    ] });
    let home = Home::start(script).await;
    let (idle, busy) = (home.session(Mode::Default).await, home.session(Mode::Default).await);
    let turn = home.prompt(idle, "hello").await.turn_id;
    home.wait(idle, turn).await;
    let turn = home.prompt(busy, "slow").await.turn_id;
    home.asked(2).await;
    // The marker of the idle one goes when its task is next idle.
    home.state(idle).await;
    let home = home.restart().await;
    assert_eq!(live(&home), 1);
    assert_eq!(home.wait(busy, turn).await.text, "Slow.");
}

#[tokio::test]
async fn j6_a_marker_too_many_is_harmless_and_one_of_nobody_goes() {
    let home = Home::start(says("Hello.")).await;
    let (idle, nobody) = (home.session(Mode::Default).await, SessionId::generate());
    let markers = |home: &Home| crate::paths::Markers::new(&home.paths);
    let home = home
        .restart_after(|home| {
            for id in [idle, nobody] {
                markers(home).set(id).unwrap();
            }
        })
        .await;
    assert_eq!(home.registry.list(&ListParams::default()).await.unwrap().sessions.len(), 1);
    assert_eq!(home.state(idle).await.activity, Activity::Idle);
    assert!(matches!(home.registry.snapshot(nobody).await, Err(SessionError::NotFound(_))));
    assert!(!home.paths.session_dir(nobody).exists());
    home.registry.leave().await;
    assert!(markers(&home).list().unwrap().is_empty());
}

#[tokio::test]
async fn after_the_end_every_message_is_refused_at_once() {
    let home = Home::start(says("Hello.")).await;
    let id = home.session(Mode::Default).await;
    home.state(id).await;
    home.registry.park(Duration::from_secs(5)).await;
    let kept = home.prompt(id, "kept for later").await;
    // Nothing is before it, and still it does not begin.
    assert_eq!((kept.queued, home.state(id).await.inbox.len()), (false, 1));
    assert!(home.requests().await.is_empty());
    home.registry.leave().await;
    for id in [id, SessionId::generate()] {
        assert!(matches!(home.registry.snapshot(id).await, Err(SessionError::Refused(_))));
    }
    let home = home.restart().await;
    assert_eq!(home.wait(id, kept.turn_id).await.outcome, Outcome::Finished);
    assert_eq!(home.requests().await.len(), 1);
}
