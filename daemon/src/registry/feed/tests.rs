//! A feed with a subscriber that comes and goes, over restarts and crashes, against what was really told.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use agentd_protocol::session::{Activity, Health, ModelInfo, Row};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::ids::SessionId;
use crate::journal::JournalService;

fn now() -> Timestamp {
    Timestamp::from_unix_ms(1_700_000_000_000)
}

struct Scene {
    folder: tempfile::TempDir,
    journals: Arc<JournalService>,
    feed: DaemonFeed,
    ids: Vec<SessionId>,
    /// Facts in the order in which they were told, by a number of the test's own.
    facts: Vec<u64>,
    doing: BTreeMap<SessionId, Activity>,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let journals = JournalService::start().unwrap();
        let feed = open(&folder, &journals);
        let ids = (0..3).map(|_| SessionId::generate()).collect();
        Self { folder, journals, feed, ids, facts: Vec::new(), doing: BTreeMap::new() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("daemon.jsonl")
    }

    /// A fact that says which one it is.
    fn tell(&mut self) {
        let number = self.facts.len() as u64;
        self.facts.push(number);
        self.feed.deleted(self.ids[0], Timestamp::from_unix_ms(i64::try_from(number).unwrap()));
        self.doing.remove(&self.ids[0]);
    }

    fn does(&mut self, session: usize, activity: Activity) {
        let id = self.ids[session];
        self.feed.changed(&row(id, activity), &[]);
        self.doing.insert(id, activity);
    }

    fn unload(&mut self, session: usize) {
        self.feed.unloaded(self.ids[session]);
        self.doing.remove(&self.ids[session]);
    }

    async fn restart(&mut self, in_order: bool) {
        if in_order {
            self.feed.finish().await;
        }
        self.feed = open(&self.folder, &self.journals);
        self.doing.clear();
    }

    fn busy(&self) -> BTreeSet<SessionId> {
        self.doing.iter().filter(|(_, doing)| **doing != Activity::Idle).map(|(id, _)| *id).collect()
    }
}

fn open(folder: &tempfile::TempDir, journals: &Arc<JournalService>) -> DaemonFeed {
    let (log, first) = FeedLog::open(journals, folder.path().join("daemon.jsonl"), now());
    DaemonFeed::new(log, first)
}

fn row(id: SessionId, activity: Activity) -> Row {
    Row {
        session_id: id,
        handle: "h".into(),
        title: None,
        parent: None,
        cwd: "/".into(),
        mode: None,
        model: ModelInfo { provider: "p".into(), model: "m".into(), reason: "r".into() },
        created_at: now(),
        updated_at: now(),
        activity,
        waiting_for: Vec::new(),
        last_outcome: None,
        health: Health::Ok,
        archived: false,
        last_prompt: None,
        held_prompts: 0,
    }
}

/// Who follows the feed, and checks what it hears.
#[derive(Default)]
struct Follower {
    last: Option<FeedSeq>,
    /// The test's own numbers of the facts heard.
    facts: Vec<u64>,
    doing: BTreeMap<SessionId, String>,
    cursor: Option<Cursor>,
    /// Facts up to this one may have been missed, and it was told so.
    excused: u64,
}

impl Follower {
    fn come(&mut self, feed: &DaemonFeed) {
        self.cursor = Some(feed.cursor(self.last).expect("no number was ever given back"));
    }

    /// Hears some events, or all there is.
    async fn hear(&mut self, scene: &Scene, at_most: usize) {
        for _ in 0..at_most {
            let Some(cursor) = &mut self.cursor else { return };
            let events = scene.feed.next(cursor).await;
            if events.is_empty() {
                return;
            }
            for event in events {
                self.take(scene, &serde_json::from_str(&event.json).unwrap());
            }
        }
    }

    fn take(&mut self, scene: &Scene, event: &Value) {
        let number = FeedSeq(event["feedSeq"].as_u64().unwrap());
        let id = event["sessionId"].as_str().map(|id| id.parse::<SessionId>().unwrap());
        match event["type"].as_str().unwrap() {
            "synced" => {
                assert!(self.last.is_none_or(|last| last <= number));
                let named: BTreeSet<SessionId> = serde_json::from_value(event["sessions"].clone()).unwrap();
                assert_eq!(named, scene.busy(), "what is going on");
                self.doing.retain(|id, _| named.contains(id));
                if event["gap"] == true {
                    // It would ask for the list of sessions now.
                    self.excused = scene.facts.len() as u64;
                } else {
                    let told = self.doing.iter().all(|(id, doing)| *doing == word(scene.doing[id]));
                    assert!(told, "the latest: {:?}, not {:?}", scene.doing, self.doing);
                }
            }
            kind => {
                assert!(self.last.is_none_or(|last| last < number), "{kind} {number} after {:?}", self.last);
                match kind {
                    "sessionDeleted" => {
                        let at: Timestamp = serde_json::from_value(event["at"].clone()).unwrap();
                        self.facts.push(u64::try_from(at.unix_ms()).unwrap());
                        self.doing.remove(&id.unwrap());
                    }
                    "stateChanged" => {
                        self.doing.insert(id.unwrap(), event["activity"].as_str().unwrap().into());
                    }
                    other => panic!("{other}"),
                }
            }
        }
        self.last = self.last.max(Some(number));
    }

    /// Every fact since it first came once and in order, but for those that it was told to be missing.
    fn has_all(&self, since: u64, scene: &Scene) {
        assert!(self.facts.is_sorted_by(|a, b| a < b), "{:?}", self.facts);
        let heard: BTreeSet<_> = self.facts.iter().copied().collect();
        let missed: Vec<_> =
            scene.facts.iter().filter(|fact| **fact >= since && !heard.contains(fact)).collect();
        assert!(
            missed.iter().all(|fact| **fact < self.excused),
            "{missed:?} were missed, {} excused",
            self.excused
        );
    }
}

fn word(activity: Activity) -> String {
    serde_json::to_value(activity).unwrap().as_str().unwrap().into()
}

#[derive(Clone, Debug)]
enum Happens {
    Fact,
    /// So many that the ring does not hold them.
    Flood,
    State(usize, bool),
    Unload(usize),
    Written,
    Ends,
    Crash,
    Leave,
    Come,
    Hear(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        6 => Just(Happens::Fact),
        1 => Just(Happens::Flood),
        6 => (0..3usize, any::<bool>()).prop_map(|(session, busy)| Happens::State(session, busy)),
        1 => (0..3usize).prop_map(Happens::Unload),
        4 => Just(Happens::Written),
        1 => Just(Happens::Ends),
        1 => Just(Happens::Crash),
        3 => Just(Happens::Leave),
        4 => Just(Happens::Come),
        4 => (1..4usize).prop_map(Happens::Hear),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn who_comes_and_goes_hears_every_fact_once_and_the_latest_of_all_else(
        all in prop::collection::vec(happens(), 1..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut scene = Scene::new();
            let mut follower = Follower::default();
            follower.come(&scene.feed);
            for one in all {
                match one {
                    Happens::Fact => scene.tell(),
                    Happens::Flood => {
                        for n in 0..RING + 10 {
                            let activity = if n % 2 == 0 { Activity::Running } else { Activity::Waiting };
                            scene.does(2, activity);
                        }
                    }
                    Happens::State(session, true) => scene.does(session, Activity::Running),
                    Happens::State(session, false) => scene.does(session, Activity::Idle),
                    Happens::Unload(session) => scene.unload(session),
                    Happens::Written => scene.feed.write().await.unwrap(),
                    // Who was connected is not any more, and has heard what it has heard.
                    Happens::Ends => {
                        scene.restart(true).await;
                        follower.cursor = None;
                    }
                    Happens::Crash => {
                        scene.restart(false).await;
                        follower.cursor = None;
                    }
                    Happens::Leave => follower.cursor = None,
                    // Whoever was never told a number begins now, and is excused from what came before.
                    Happens::Come if follower.last.is_none() => {
                        follower.excused = scene.facts.len() as u64;
                        follower.come(&scene.feed);
                    }
                    Happens::Come => follower.come(&scene.feed),
                    Happens::Hear(times) => follower.hear(&scene, times).await,
                }
            }
            if follower.last.is_none() {
                follower.excused = scene.facts.len() as u64;
            }
            follower.come(&scene.feed);
            follower.hear(&scene, usize::MAX).await;
            follower.has_all(0, &scene);
            scene.journals.stop().await;
        });
    }
}

#[tokio::test]
async fn after_an_end_in_order_nothing_is_missing_and_after_a_crash_that_may_be_said() {
    for in_order in [true, false] {
        let mut scene = Scene::new();
        let mut follower = Follower::default();
        follower.come(&scene.feed);
        scene.tell();
        follower.hear(&scene, usize::MAX).await;
        scene.tell();
        if !in_order {
            scene.feed.write().await.unwrap();
            // Told, and not written any more.
            scene.tell();
        }
        scene.restart(in_order).await;
        scene.tell();
        follower.come(&scene.feed);
        follower.hear(&scene, usize::MAX).await;
        let (heard, excused): (&[u64], _) = if in_order { (&[0, 1, 2], 0) } else { (&[0, 1, 3], 4) };
        assert_eq!((follower.facts.as_slice(), follower.excused), (heard, excused), "in order: {in_order}");
        // It has heard of it: the next time there is no gap any more.
        follower.excused = 0;
        scene.tell();
        follower.come(&scene.feed);
        follower.hear(&scene, usize::MAX).await;
        assert_eq!(follower.excused, 0);
        follower.has_all(3, &scene);
    }
}

#[tokio::test]
async fn a_log_that_cannot_be_written_stops_nobody_and_leaves_a_mark() {
    let mut scene = Scene::new();
    let mut follower = Follower::default();
    follower.come(&scene.feed);
    std::fs::remove_file(scene.path()).unwrap();
    std::fs::create_dir(scene.path()).unwrap();
    for _ in 0..3 {
        scene.tell();
    }
    scene.feed.write().await.unwrap_err();
    follower.hear(&scene, usize::MAX).await;
    assert_eq!(follower.facts, [0, 1, 2]);
    // More than waits for a disk.
    let before = follower.last;
    for _ in 0..4000 {
        scene.tell();
    }
    scene.feed.write().await.unwrap_err();
    std::fs::remove_dir(scene.path()).unwrap();
    scene.tell();
    scene.feed.write().await.unwrap();
    scene.restart(true).await;
    let mut late = Follower { last: before, ..Follower::default() };
    late.come(&scene.feed);
    late.hear(&scene, usize::MAX).await;
    assert_eq!((late.facts.last(), late.excused), (scene.facts.last(), 4004));
}

#[tokio::test]
async fn who_is_slow_holds_nothing_and_loses_no_fact() {
    let mut scene = Scene::new();
    let mut follower = Follower::default();
    follower.come(&scene.feed);
    follower.hear(&scene, usize::MAX).await;
    scene.does(1, Activity::Running);
    for _ in 0..3 {
        // Longer than what memory keeps of facts.
        for _ in 0..FACT_BYTES / 200 {
            scene.tell();
        }
        scene.feed.write().await.unwrap();
    }
    {
        let inner = scene.feed.lock();
        assert!(inner.ring.events.len() <= RING && inner.facts.bytes <= FACT_BYTES);
    }
    follower.hear(&scene, usize::MAX).await;
    assert_eq!((follower.facts.len(), follower.excused), (scene.facts.len(), 0));
    assert_eq!(follower.doing[&scene.ids[1]], "running");
}
