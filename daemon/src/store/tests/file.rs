use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::*;

#[tokio::test]
async fn what_is_told_is_there_after_a_restart() {
    let bench = Bench::new().await;
    let mut child = row("/a");
    child.parent = Some(SessionId::generate());
    child.title = None;
    bench.says(&child, &[(SearchRole::User, "hello")]).await;
    let bench = bench.reopen(|_| {}).await;
    assert_eq!(bench.store.known_of(child.session_id).unwrap(), Some((child, mark(100, 2))));
    assert_eq!(bench.find("hello"), ["[hello]"]);
}

#[tokio::test]
async fn only_its_owner_can_read_it() {
    let bench = Bench::new().await;
    bench.says(&row("/a"), &[]).await;
    for name in ["index.db", "index.db-wal", "index.db-shm"] {
        let mode = std::fs::metadata(bench.folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

/// A name for it, and what it does to the file.
type Damage<'a> = (&'a str, &'a dyn Fn(&Path));

#[tokio::test]
async fn garbage_a_half_file_and_another_version_are_made_anew() {
    let version = |path: &Path| {
        rusqlite::Connection::open(path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    };
    let table = |path: &Path| {
        rusqlite::Connection::open(path).unwrap().execute_batch("DROP TABLE texts").unwrap();
    };
    let other = |path: &Path| {
        std::fs::remove_file(path).unwrap();
        rusqlite::Connection::open(path).unwrap().execute_batch("CREATE TABLE sessions (id)").unwrap();
    };
    let garbage =
        |path: &Path| std::fs::write(path, "not a database at all, but some text".repeat(300)).unwrap();
    let half = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    };
    let empty = |path: &Path| std::fs::write(path, "").unwrap();
    let gone = |path: &Path| std::fs::remove_file(path).unwrap();
    let all: [Damage<'_>; 7] = [
        ("version", &version),
        ("table", &table),
        ("other", &other),
        ("garbage", &garbage),
        ("half", &half),
        ("empty", &empty),
        ("gone", &gone),
    ];
    for (what, damage) in all {
        let bench = Bench::new().await;
        bench.says(&row("/a"), &[(SearchRole::User, "hello")]).await;
        let bench = bench.reopen(damage).await;
        let again = row("/b");
        bench.says(&again, &[(SearchRole::User, "once more")]).await;
        // A table that is gone is noticed when it is written to; then everything is to be told again.
        if what == "table" {
            let Work::All { generation } = bench.store.work(1).await else { panic!("{what}") };
            bench.store.caught_up(generation).await;
            bench.says(&again, &[(SearchRole::User, "once more")]).await;
        }
        assert_eq!(bench.ids().last(), Some(&again.session_id), "{what}");
        assert_eq!(bench.find("once"), ["[once] more"], "{what}");
    }
}

#[tokio::test]
async fn a_file_that_is_removed_in_use_is_noticed_and_made_anew() {
    let bench = Bench::new().await;
    bench.says(&row("/a"), &[]).await;
    assert_eq!(bench.ids().len(), 1);
    std::fs::remove_file(bench.path()).unwrap();
    // Whoever reads is told, and the writer looks.
    assert!(matches!(bench.store.known(), Err(StoreError::NotAtHand)));
    assert_eq!(bench.store.work(1).await, Work::All { generation: 2 });
    assert_eq!(bench.store.standing(), Standing::Filling);
    bench.store.caught_up(1).await;
    assert!(bench.store.settle().await);
    assert_eq!(bench.store.standing(), Standing::Filling, "a pass over the file before does not count");
    assert_eq!(bench.ids(), []);

    // The same when somebody writes.
    std::fs::remove_file(bench.path()).unwrap();
    bench.says(&row("/a"), &[]).await;
    assert_eq!(bench.store.work(2).await, Work::All { generation: 3 });
    assert_eq!(bench.ids().len(), 1);
}

#[tokio::test]
async fn damage_that_only_a_reader_meets_has_it_made_anew() {
    use std::os::unix::fs::FileExt as _;
    let bench = Bench::new().await;
    bench.says(&row("/a"), &[(SearchRole::User, "hello")]).await;
    // In the file, and in nobody's memory.
    let bench = bench.reopen(|_| {}).await;
    let file = std::fs::OpenOptions::new().write(true).open(bench.path()).unwrap();
    let size = file.metadata().unwrap().len();
    file.write_all_at(&vec![0xAA; usize::try_from(size).unwrap() - 4096], 4096).unwrap();
    assert!(matches!(bench.store.known(), Err(StoreError::Sql(_))));
    assert_eq!(bench.store.work(1).await, Work::All { generation: 2 });
    assert_eq!(bench.ids(), []);
}

#[tokio::test]
async fn where_no_file_can_be_it_says_so_and_a_rebuild_tries_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("index.db");
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("x"), "").unwrap();
    let bench = Bench { store: Store::new(path.clone()), folder };
    bench.store.open().await;
    bench.store.until(|standing| matches!(standing, Standing::Failed(_))).await;
    // Nothing is lost, and nothing is done over and over: it is to be compared once there is a file.
    let session = row("/a");
    bench.store.committed(Update { row: session.clone(), from: 0, to: mark(9, 2), texts: Vec::new() });
    assert!(bench.store.settle().await);
    assert!(bench.store.unsettled().contains(&session.session_id));
    assert!(matches!(bench.store.known(), Err(StoreError::NotAtHand)));

    std::fs::remove_dir_all(&path).unwrap();
    bench.store.rebuild().await;
    assert_eq!(bench.store.work(0).await, Work::All { generation: 1 });
    assert_eq!(bench.store.work(1).await, Work::Some(vec![(session.session_id, Repair::Tail)]));
}

#[tokio::test]
async fn a_rebuild_forgets_everything() {
    let bench = Bench::new().await;
    bench.says(&row("/a"), &[(SearchRole::User, "hello")]).await;
    assert_eq!(bench.ids().len(), 1);
    bench.store.rebuild().await;
    assert!(bench.store.settle().await);
    assert_eq!((bench.ids().len(), bench.find("hello").len()), (0, 0));
    assert_eq!(bench.store.work(1).await, Work::All { generation: 2 });
}
