//! The index against the journals: whatever happens to the file, nothing is lost, and no more is read than is missing.

use agentd_protocol::Timestamp;
use agentd_protocol::search::{SearchParams, SearchRole};
use agentd_protocol::session::{Activity, ListParams, ListResult, ModelInfo, Order, Origin, Row};
use agentd_protocol::turn::{Outcome, Usage};

use super::*;
use crate::ids::digest_of;
use crate::session::record::{Created, FORMAT, Parent, Record, TitleChanged, TurnFinished};
use crate::store::Standing;

impl Home {
    async fn ready(&self) {
        self.registry.store().until(|standing| *standing == Standing::Ready).await;
    }

    fn index(&self) -> PathBuf {
        self.paths.index_file()
    }

    async fn find(&self, words: &str) -> Vec<(SessionId, SearchRole)> {
        let params = SearchParams { query: words.into(), ..SearchParams::default() };
        let result = self.registry.search(params).await.unwrap();
        result.hits.iter().map(|hit| (hit.session.session_id, hit.role)).collect()
    }

    async fn listed(&self) -> Vec<Row> {
        let mut rows = self.registry.list(&ListParams::default()).await.unwrap().sessions;
        // A session in memory tells more than one that is not.
        for row in &mut rows {
            row.activity = Activity::Idle;
        }
        rows
    }

    /// A prompt and its turn, to the end.
    async fn said(&self, id: SessionId, text: &str) {
        let turn = self.prompt(id, text).await.turn_id;
        self.wait(id, turn).await;
    }

    async fn titled(&self, id: SessionId, title: &str) {
        let title = title.to_owned();
        self.registry.ask(id, |reply| Command::SetTitle { title, reply }).await.unwrap();
    }

    fn journal_size(&self, id: SessionId) -> u64 {
        std::fs::metadata(self.paths.session_dir(id).join("journal.jsonl")).unwrap().len()
    }
}

#[tokio::test]
async fn what_was_said_is_found_before_and_after_a_restart() {
    let home = Home::start(says("The otter swims.")).await;
    home.ready().await;
    let id = home.session(Mode::Default).await;
    home.said(id, "Tell me of animals").await;
    home.titled(id, "Wildlife").await;
    let all =
        [("animals", SearchRole::User), ("otter swims", SearchRole::Assistant), ("wild", SearchRole::Title)];
    for (words, role) in all {
        assert_eq!(home.find(words).await, [(id, role)], "{words}");
    }
    let rows = home.listed().await;

    let home = home.restart().await;
    home.ready().await;
    for (words, role) in all {
        assert_eq!(home.find(words).await, [(id, role)], "{words}");
    }
    assert_eq!(home.listed().await, rows);
    assert_eq!(home.registry.store().bytes_read(), 0, "all of it was known");
    let refused = home.registry.search(SearchParams { query: " ".into(), ..SearchParams::default() }).await;
    assert!(matches!(refused, Err(SessionError::Invalid { field: "query", .. })));
}

#[tokio::test]
async fn a_deleted_session_is_not_found_and_not_listed() {
    let home = Home::start(says("Yes.")).await;
    home.ready().await;
    let (kept, gone) = (home.session(Mode::Default).await, home.session(Mode::Default).await);
    for id in [kept, gone] {
        home.said(id, "something unusual").await;
    }
    assert_eq!(home.find("unusual").await.len(), 2);
    home.registry.ask(gone, |reply| Command::Delete { reply }).await.unwrap();
    assert_eq!(home.find("unusual").await, [(kept, SearchRole::User)]);
    let home = home.restart().await;
    home.ready().await;
    assert_eq!(home.find("unusual").await, [(kept, SearchRole::User)]);
    // Removed by hand while no daemon ran.
    let home =
        home.restart_after(|home| std::fs::remove_dir_all(home.paths.session_dir(kept)).unwrap()).await;
    home.ready().await;
    assert_eq!((home.find("unusual").await.len(), home.listed().await.len()), (0, 0));
}

#[tokio::test]
async fn without_the_file_or_with_garbage_in_it_nothing_is_lost() {
    let mut home = Home::start(says("Yes.")).await;
    let id = home.session(Mode::Plan).await;
    home.said(id, "remember this").await;
    home.titled(id, "A title").await;
    home.said(id, "and that").await;
    home.ready().await;
    let rows = home.listed().await;
    let damages: [fn(&Home); 3] = [
        |home| std::fs::remove_file(home.index()).unwrap(),
        |home| std::fs::write(home.index(), "garbage".repeat(5_000)).unwrap(),
        |home| {
            let old = rusqlite::Connection::open(home.index()).unwrap();
            old.pragma_update(None, "user_version", 0).unwrap();
        },
    ];
    for damage in damages {
        home = home.restart_after(damage).await;
        home.ready().await;
        assert_eq!(home.listed().await, rows);
        assert_eq!(home.find("remember").await, [(id, SearchRole::User)]);
        assert_eq!(home.registry.store().bytes_read(), home.journal_size(id), "all of it was read");
    }
}

#[tokio::test]
async fn a_file_removed_under_a_running_daemon_is_made_anew() {
    let home = Home::start(says("Yes.")).await;
    home.ready().await;
    let id = home.session(Mode::Default).await;
    home.said(id, "remember this").await;
    let rows = home.listed().await;
    std::fs::remove_file(home.index()).unwrap();
    assert_eq!(home.listed().await, rows, "a list never misses anything");
    let params = SearchParams { query: "remember".into(), ..SearchParams::default() };
    assert!(!home.registry.search(params).await.unwrap().complete, "it says that something may be missing");
    home.ready().await;
    assert_eq!(home.find("remember").await, [(id, SearchRole::User)]);
    home.said(id, "and that").await;
    assert_eq!(home.find("and that").await, [(id, SearchRole::User)]);

    assert_eq!(home.registry.reindex().await.unwrap(), 1);
    assert!(home.registry.store().settle().await);
    home.ready().await;
    assert_eq!(home.find("remember").await, [(id, SearchRole::User)]);
}

#[tokio::test]
async fn of_a_session_that_was_half_indexed_only_the_rest_is_read() {
    let home = Home::start(says("Yes.")).await;
    home.ready().await;
    let (id, whole) = (home.session(Mode::Default).await, home.session(Mode::Default).await);
    for id in [id, whole] {
        home.said(id, "the first thing").await;
    }
    // From here on the index hears nothing, as if the daemon had been killed before its thread came to it.
    home.registry.store().stop().await;
    let before = home.journal_size(id);
    home.said(id, "the second thing").await;
    home.titled(id, "Later").await;
    let missing = home.journal_size(id) - before;

    let home = home.restart().await;
    home.ready().await;
    assert_eq!(home.find("second").await, [(id, SearchRole::User)]);
    assert_eq!(home.find("later").await, [(id, SearchRole::Title)]);
    assert_eq!(home.find("first").await.len(), 2, "nothing twice");
    assert_eq!(home.registry.store().bytes_read(), missing);
}

#[tokio::test]
async fn what_a_power_cut_took_from_a_journal_is_not_found_either() {
    let home = Home::start(says("Yes.")).await;
    home.ready().await;
    let id = home.session(Mode::Default).await;
    home.said(id, "the first thing").await;
    // A title is not synced.
    home.titled(id, "Unsynced").await;
    assert_eq!(home.find("unsynced").await.len(), 1);
    let home = home.power_cut(id).await;
    home.ready().await;
    assert_eq!((home.find("unsynced").await.len(), home.find("first").await.len()), (0, 1));
    assert_eq!(home.listed().await[0].title, None);

    // The same when the session goes on before anyone compares: it is opened, and tells where its journal ends.
    home.titled(id, "Unsynced again").await;
    assert_eq!(home.find("unsynced").await.len(), 1);
    let registry = Arc::clone(&home.registry);
    let home = home.power_cut(id).await;
    drop(registry);
    home.said(id, "Something longer than the title that was lost, so that the file has grown beyond it")
        .await;
    home.ready().await;
    while !home.registry.store().unsettled().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!((home.find("unsynced").await.len(), home.find("longer").await.len()), (0, 1));
}

async fn titles(home: &Home) -> Vec<(SessionId, Option<String>)> {
    let rows = home.registry.list_by_index(&ListParams::default()).await.unwrap().sessions;
    rows.into_iter().map(|row| (row.session_id, row.title)).collect()
}

#[tokio::test]
async fn a_session_of_which_the_index_has_not_heard_is_listed_from_its_journal() {
    let home = Home::start(says("Yes.")).await;
    home.ready().await;
    let old = home.session(Mode::Default).await;
    assert!(home.registry.store().settle().await);
    // The writer waits for this, as it might for a slow disk.
    let held = rusqlite::Connection::open(home.index()).unwrap();
    held.execute_batch("BEGIN IMMEDIATE").unwrap();
    let new = home.session(Mode::Default).await;
    home.titled(old, "Changed").await;
    // Both leave memory before the index has heard of it.
    home.registry.unloaded(old);
    home.registry.unloaded(new);
    let expected = [(old, Some("Changed".to_owned())), (new, None)];
    assert_eq!(titles(&home).await, expected);
    held.execute_batch("ROLLBACK").unwrap();
    assert!(home.registry.store().settle().await);
    assert_eq!(titles(&home).await, expected);
}

/// Writes the journal of a session that nobody has open.
fn made_up(home: &Home, n: i64) -> SessionId {
    let id =
        SessionId::from_uuid(uuid::Uuid::from_u128(0x0193_0000_0000_7000_8000_0000_0000_0000 + n as u128));
    let created = Created {
        format: FORMAT,
        daemon_id: home.registry.deps().daemon_id,
        session_id: id,
        handle: format!("made-up-{n}"),
        title: (n % 3 == 0).then(|| format!("Überschrift {n}")),
        cwd: format!("/srv/{}", n % 7).into(),
        mode: Mode::Default,
        model: ModelInfo { provider: "test".into(), model: "m".into(), reason: "asked for".into() },
        parent: (n % 5 == 0)
            .then(|| Parent { session_id: id, call_id: agentd_protocol::CallId::generate(id) }),
        origin: Origin::Client,
        by: person().by,
        system_prompt: digest_of(b"s"),
        tools: digest_of(b"t"),
        params: digest_of(b"p"),
        forked_from: None,
    };
    let last: Record = match n % 4 {
        0 => TitleChanged { title: format!("Umbenannt {n}") }.into(),
        _ => TurnFinished {
            turn_id: TurnId::generate(),
            outcome: Outcome::Finished,
            usage: Usage::default(),
            denials: Vec::new(),
            error: None,
            mode: Mode::Default,
            hold_inbox: false,
            last_prompt: Some(format!("prompt {n}")),
            held_prompts: (n % 9 == 0).then_some(1),
        }
        .into(),
    };
    let line = |seq: u64, at: i64, records: &[Record]| {
        let records: Vec<_> = records.iter().map(|record| record.to_raw(None)).collect();
        let at = Timestamp::from_unix_ms(1_600_000_000_000 + at);
        format!("{}\n", json!({"v": 1, "seq": seq, "at": at, "records": records}))
    };
    let mode =
        crate::session::record::ModeChanged { from: Mode::Default, to: Mode::Default, by: person().by };
    // Changed in another order than made, many at the same time. The last line tells the mode, as a list needs it.
    let text = line(1, n, &[created.into()]) + &line(2, n * 7919 % 1000, &[mode.into(), last]);
    let dir = home.paths.session_dir(id);
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("journal.jsonl"), text).unwrap();
    id
}

#[tokio::test]
async fn five_thousand_sessions_are_listed_the_same_by_index_and_by_journals() {
    const MANY: i64 = 5_000;
    let home = Home::start(says("Yes.")).await;
    let home = home
        .restart_after(|home| {
            for n in 0..MANY {
                made_up(home, n);
            }
        })
        .await;
    home.ready().await;
    assert_eq!(home.registry.store().progress(), (5_000, 5_000));
    let all = ListParams { children: true, ..ListParams::default() };
    let cases = [
        ListParams::default(),
        ListParams { limit: Some(7), ..all.clone() },
        ListParams { order: Order::Updated, ..ListParams::default() },
        ListParams { order: Order::Updated, limit: Some(20), ..all.clone() },
        ListParams { cwd: Some("/srv/3".into()), ..all.clone() },
        ListParams { cwd: Some("/srv/3".into()), order: Order::Updated, ..ListParams::default() },
        ListParams { cwd: Some("/nowhere".into()), ..all.clone() },
        ListParams { text: Some("ÜBERSCHRIFT 3".into()), ..all.clone() },
        ListParams { text: Some("made-up-49".into()), order: Order::Updated, ..all.clone() },
        ListParams { text: Some("%".into()), ..all.clone() },
        ListParams { activity: Some(Activity::Idle), ..all.clone() },
        ListParams { activity: Some(Activity::Waiting), ..all.clone() },
    ];
    for params in cases {
        let begun = std::time::Instant::now();
        let by_index = home.registry.list_by_index(&params).await.unwrap();
        let took = begun.elapsed();
        let by_journals = home.registry.list_by_journals(&params).await.unwrap();
        println!("{params:?}: {} rows in {took:?}", by_index.sessions.len());
        assert!(by_index == by_journals, "{params:?}");
    }
    // Page by page, all of them, once.
    let mut params = ListParams { limit: Some(499), ..all };
    let mut seen = Vec::new();
    loop {
        let ListResult { sessions, next } = home.registry.list(&params).await.unwrap();
        seen.extend(sessions.iter().map(|row| row.session_id));
        let Some(next) = next else { break };
        params.after = Some(next);
    }
    assert_eq!(seen.len(), 5_000);
    assert!(seen.is_sorted());
    let params = SearchParams { query: "umbenannt 4".into(), ..SearchParams::default() };
    let found = home.registry.search(params).await.unwrap();
    assert!(found.complete && found.hits.len() == 20, "{}", found.hits.len());
}
