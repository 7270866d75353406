//! Retention: what is old goes, and never what anybody works with, waits for or watches.

use agentd_protocol::transfer::{ExportParams, Format};

use super::super::retention::{Limits, Removed};
use super::plans::{plan_file, presented};
use super::*;

const DAY: i64 = 86_400_000;
const BEGIN: i64 = 1_700_000_000_000;

fn days(days: u64) -> Limits {
    Limits { max_age_days: Some(days), max_size_mib: None }
}

/// A session that was spoken to on this day and has left memory since.
async fn spoken_on(home: &Home, day: i64) -> SessionId {
    home.clock.set(BEGIN + day * DAY);
    let id = home.session(Mode::Default).await;
    let turn = home.prompt(id, "hello, afterwards").await.turn_id;
    home.wait(id, turn).await;
    id
}

/// A session a day for so many days, none of them in memory.
async fn used(count: i64) -> (Home, Vec<SessionId>) {
    let home = Home::start(says("Hello.")).await;
    let mut ids = Vec::new();
    for day in 0..count {
        ids.push(spoken_on(&home, day).await);
    }
    home.store_settled().await;
    (home.restart().await, ids)
}

impl Home {
    async fn store_settled(&self) {
        self.registry.store().settle().await;
    }

    async fn round(&self, limits: Limits) -> Removed {
        self.store_settled().await;
        self.registry.remove_old(limits).await.unwrap()
    }

    fn on_disk(&self) -> Vec<SessionId> {
        let mut ids = self.paths.session_ids().unwrap();
        ids.sort();
        ids
    }
}

#[tokio::test]
async fn what_is_older_than_the_limit_goes_with_all_of_it_and_is_told_once() {
    let (home, ids) = used(8).await;
    let mut cursor = home.registry.daemon_feed().cursor(None).unwrap();
    super::feed::hear(&home, &mut cursor).await;
    let removed = home.round(days(4)).await;
    assert_eq!(removed.handles.len(), 3);
    assert_eq!(home.on_disk(), ids[3..]);
    let heard = super::feed::hear(&home, &mut cursor).await;
    let notices: Vec<_> = heard.iter().filter(|event| event["type"] == "notice").collect();
    assert_eq!(notices.len(), 1);
    assert!(notices[0]["text"].as_str().unwrap().contains("retention removed 3 sessions"), "{}", notices[0]);
    // Nothing more to do, nothing to tell.
    assert_eq!(home.round(days(4)).await, Removed::default());
    for id in &ids[..3] {
        assert!(matches!(home.registry.snapshot(*id).await, Err(SessionError::NotFound(_))));
    }
    let list = home.registry.list(&agentd_protocol::session::ListParams::default()).await.unwrap();
    assert_eq!(list.sessions.len(), 5);
    assert_eq!(home.round(Limits::default()).await, Removed::default(), "no limit, nothing goes");
}

#[tokio::test]
async fn beyond_the_size_the_oldest_go_and_never_the_fresh() {
    let (home, ids) = used(4).await;
    // Weighty, all four.
    for id in &ids {
        let blobs = home.journals.blobs(&home.paths.session_dir(*id));
        blobs.put(id.to_string().repeat(50_000).into()).await.unwrap();
    }
    let size = |mib| Limits { max_age_days: None, max_size_mib: Some(mib) };
    assert_eq!(home.round(size(100)).await, Removed::default());
    let removed = home.round(size(4)).await;
    assert_eq!(removed.handles.len(), 2, "{removed:?}");
    assert!(removed.bytes > 2 << 20);
    assert_eq!(home.on_disk(), ids[2..]);
    home.round(size(1)).await;
    assert_eq!(home.on_disk(), ids[2..], "of today, and less than a day of use ago");
}

#[tokio::test]
async fn se_13_sessions_that_begin_meanwhile_survive() {
    let (home, ids) = used(8).await;
    let begin = async {
        let mut begun = Vec::new();
        for _ in 0..40 {
            begun.push(home.session(Mode::Default).await);
            tokio::task::yield_now().await;
        }
        begun
    };
    let rounds = async {
        for _ in 0..20 {
            home.registry.remove_old(days(1)).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let (begun, ()) = tokio::join!(begin, rounds);
    home.round(days(1)).await;
    let left = home.on_disk();
    assert!(begun.iter().all(|id| left.contains(id)));
    assert!(!left.contains(&ids[0]));
    let home = home.restart().await;
    for id in begun {
        assert_eq!(home.state(id).await.session_id, id);
    }
}

#[tokio::test]
async fn what_is_live_waits_is_watched_or_halfway_given_away_stays_however_old() {
    let (home, waiting, _, _) = presented(Mode::Default).await;
    home.clock.set(BEGIN);
    let mut ids = Vec::new();
    for day in 1..=4 {
        ids.push(spoken_on(&home, day).await);
    }
    let [again, watched, halfway, plain] = ids.try_into().unwrap();
    let turn = home.prompt(again, "once more, afterwards").await.turn_id;
    home.wait(again, turn).await;
    let file = home.project.parent().unwrap().join("a.agentd");
    let params = ExportParams {
        session_id: halfway,
        path: file.display().to_string(),
        format: Format::Bundle,
        copy: false,
        replace: false,
    };
    home.registry.export(&params, &person()).await.unwrap();
    for day in 5..60 {
        spoken_on(&home, day).await;
    }
    home.store_settled().await;
    // The bundle never got its name, as after a crash: the journal ends with the record before that.
    let journal = home.paths.session_dir(halfway).join("journal.jsonl");
    let home = home
        .restart_after(|_| {
            let text = std::fs::read_to_string(&journal).unwrap();
            let cut: String = text
                .lines()
                .filter(|line| !line.contains("bundleNamed"))
                .map(|line| format!("{line}\n"))
                .collect();
            std::fs::write(&journal, cut).unwrap();
            std::fs::remove_file(&file).unwrap();
        })
        .await;
    let feed = home.registry.snapshot(watched).await.unwrap().feed;
    let _watching = feed.watch();
    let plan = plan_file(&home.state(waiting).await);
    home.round(days(10)).await;
    let left = home.on_disk();
    for (what, id) in
        [("it waits", waiting), ("it is watched", watched), ("it is given away halfway", halfway)]
    {
        assert!(left.contains(&id), "{what}");
    }
    assert!(plan.exists());
    for (what, id) in [("it is old", plain), ("it was touched twice, long ago", again)] {
        assert!(!left.contains(&id), "{what}");
    }
}

#[tokio::test]
async fn what_was_handed_over_goes_only_while_its_bundle_is_there() {
    let home = Home::start(says("Hello.")).await;
    home.clock.set(BEGIN);
    let mut handed = Vec::new();
    for (day, name) in [(1, "kept.agentd"), (2, "lost.agentd"), (3, "other.agentd")] {
        let id = spoken_on(&home, day).await;
        let file = home.project.parent().unwrap().join(name);
        let params = ExportParams {
            session_id: id,
            path: file.display().to_string(),
            format: Format::Bundle,
            copy: false,
            replace: false,
        };
        home.registry.export(&params, &person()).await.unwrap();
        handed.push((id, file));
    }
    std::fs::remove_file(&handed[1].1).unwrap();
    // Another bundle in its place is not its own.
    std::fs::copy(&handed[0].1, &handed[2].1).unwrap();
    for day in 5..60 {
        spoken_on(&home, day).await;
    }
    home.store_settled().await;
    let home = home.restart().await;
    home.round(days(10)).await;
    let left = home.on_disk();
    let stays: Vec<_> = handed.iter().map(|(id, _)| left.contains(id)).collect();
    assert_eq!(stays, [false, true, true]);
}

#[tokio::test]
async fn a_session_that_was_touched_since_it_was_looked_up_stays() {
    let (home, ids) = used(3).await;
    let row = home.registry.list(&agentd_protocol::session::ListParams::default()).await.unwrap().sessions;
    let seen = row.iter().find(|row| row.session_id == ids[0]).unwrap().updated_at;
    home.clock.set(BEGIN + 30 * DAY);
    let turn = home.prompt(ids[0], "again").await.turn_id;
    home.wait(ids[0], turn).await;
    let expire =
        |unchanged_since| home.registry.ask(ids[0], move |reply| Command::Expire { unchanged_since, reply });
    assert!(!expire(seen).await.unwrap());
    let now = home.state(ids[0]).await.updated_at;
    assert!(expire(now).await.unwrap());
    assert!(matches!(expire(now).await, Err(SessionError::NotFound(_))));
}

#[tokio::test]
async fn a_clock_far_ahead_takes_nothing() {
    let (home, ids) = used(5).await;
    home.clock.set(BEGIN + 40 * 365 * DAY);
    assert_eq!(home.round(days(30)).await, Removed::default());
    home.clock.set(BEGIN - 40 * 365 * DAY);
    assert_eq!(home.round(days(1)).await, Removed::default());
    assert_eq!(home.on_disk(), ids);
}
