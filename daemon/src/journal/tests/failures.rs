//! Failing writes, syncs and truncations, power cuts, and what the caller is told.

use super::super::faults::Op;
use super::*;

#[tokio::test]
async fn a_failed_write_is_undone_and_the_next_one_works() {
    let bench = Bench::with_commits(&["one"]).await;
    let before = bench.content();
    let (mut journal, _) = bench.open().await;
    bench.faults.fail(Op::Write, 1);
    let error = add(&mut journal, &["two"], Durability::Written).await.unwrap_err();
    assert_eq!(error.changed, Changed::False);
    assert!(!error.is_read_only());
    assert_eq!(bench.content(), before, "the half line is gone");
    assert_eq!(journal.next_seq(), Seq(2));

    add(&mut journal, &["two"], Durability::Written).await.unwrap();
    let (_, opened) = bench.open().await;
    assert!(opened.damage.is_none());
    assert_eq!(texts(&opened.commits), pairs(&[(1, "one"), (2, "two")]));
}

#[tokio::test]
async fn a_failed_write_that_cannot_be_undone_closes_the_journal() {
    let bench = Bench::with_commits(&["one"]).await;
    let (mut journal, _) = bench.open().await;
    bench.faults.fail(Op::Write, 1);
    bench.faults.fail(Op::Truncate, 1);
    let error = add(&mut journal, &["two"], Durability::Written).await.unwrap_err();
    assert_eq!(error.changed, Changed::Unknown);

    let error = add(&mut journal, &["three"], Durability::Written).await.unwrap_err();
    assert_eq!(error.changed, Changed::False, "this one never came near the file");
    assert!(error.is_read_only());
    assert!(journal.read_only().is_some());
    assert!(journal.sync().await.is_err());
    let read = journal.reader().commits_after(Seq(0), u64::MAX).await.unwrap();
    assert_eq!(texts(&read), pairs(&[(1, "one")]), "reading goes on");

    let (mut journal, opened) = bench.open().await;
    assert!(opened.damage.torn.is_some());
    add(&mut journal, &["two"], Durability::Written).await.unwrap();
}

#[tokio::test]
async fn a_failed_sync_takes_its_line_back() {
    let bench = Bench::with_commits(&["one"]).await;
    let before = bench.content();
    let (mut journal, _) = bench.open().await;
    bench.faults.take_log();
    bench.faults.fail(Op::Sync, 1);
    let error = add(&mut journal, &["two"], Durability::Synced).await.unwrap_err();
    assert_eq!(error.changed, Changed::False);
    assert_eq!(bench.content(), before);
    assert_eq!(
        bench.faults.take_log(),
        [Op::Write, Op::Sync, Op::Truncate, Op::Sync],
        "the cut is on the disk before anybody hears of it"
    );
    assert_eq!(journal.next_seq(), Seq(2));
    add(&mut journal, &["two"], Durability::Synced).await.unwrap();
}

#[tokio::test]
async fn a_failed_sync_that_cannot_be_taken_back_is_unknown() {
    for second in [(Op::Truncate, 1), (Op::Sync, 2)] {
        let bench = Bench::with_commits(&["one"]).await;
        let (mut journal, _) = bench.open().await;
        bench.faults.fail(Op::Sync, 1);
        bench.faults.fail(second.0, second.1);
        let error = add(&mut journal, &["two"], Durability::Synced).await.unwrap_err();
        assert_eq!(error.changed, Changed::Unknown, "{second:?}");
        assert!(add(&mut journal, &["three"], Durability::Written).await.unwrap_err().is_read_only());
    }
}

#[tokio::test]
async fn after_a_failed_sync_nothing_vouches_for_earlier_unsynced_commits() {
    let bench = Bench::with_commits(&["one"]).await;
    let (mut journal, _) = bench.open().await;
    add(&mut journal, &["two"], Durability::Written).await.unwrap();
    bench.faults.fail(Op::Sync, 1);
    let error = add(&mut journal, &["three"], Durability::Synced).await.unwrap_err();
    assert_eq!(error.changed, Changed::False, "its own line is gone for certain");
    assert!(add(&mut journal, &["three"], Durability::Synced).await.unwrap_err().is_read_only());
    let (_, opened) = bench.open().await;
    assert_eq!(texts(&opened.commits), pairs(&[(1, "one"), (2, "two")]));
}

#[tokio::test]
async fn an_explicit_sync_that_fails_closes_the_journal() {
    let bench = Bench::new();
    let mut journal = bench.create().await;
    add(&mut journal, &["one"], Durability::Written).await.unwrap();
    bench.faults.fail(Op::Sync, 1);
    assert_eq!(journal.sync().await.unwrap_err().changed, Changed::Unknown);
    assert!(add(&mut journal, &["two"], Durability::Synced).await.unwrap_err().is_read_only());
}

#[tokio::test]
async fn a_synced_commit_and_all_before_it_survive_a_power_cut() {
    let bench = Bench::new();
    let mut journal = bench.create().await;
    add(&mut journal, &["one"], Durability::Written).await.unwrap();
    add(&mut journal, &["two"], Durability::Synced).await.unwrap();
    add(&mut journal, &["three"], Durability::Written).await.unwrap();
    drop(journal);
    bench.faults.power_cut(&bench.file());
    let (_, opened) = bench.open().await;
    assert!(opened.damage.is_none());
    assert_eq!(texts(&opened.commits), pairs(&[(1, "one"), (2, "two")]));
}

#[tokio::test]
async fn what_a_killed_daemon_wrote_is_synced_when_opened() {
    let bench = Bench::new();
    let mut journal = bench.create().await;
    add(&mut journal, &["one"], Durability::Written).await.unwrap();
    drop(journal);
    drop(bench.open().await);
    bench.faults.power_cut(&bench.file());
    let (_, opened) = bench.open().await;
    assert_eq!(texts(&opened.commits), pairs(&[(1, "one")]), "it was shown, so it must last");
}

#[tokio::test]
async fn a_synced_append_is_acknowledged_and_seen_only_after_its_sync() {
    let bench = Bench::new();
    let mut journal = bench.create().await;
    let reader = journal.reader();
    let held = bench.faults.hold_next_sync();
    let mut append = Box::pin(add(&mut journal, &["one"], Durability::Synced));
    assert!(futures_util::poll!(append.as_mut()).is_pending());
    held.entered.recv().unwrap();
    assert_eq!(bench.faults.take_log(), [Op::Write, Op::Sync], "the last one is still running");
    assert!(futures_util::poll!(append.as_mut()).is_pending(), "acknowledged before its sync returned");
    assert_eq!(reader.head(), Seq(0));
    held.release.send(()).unwrap();
    append.await.unwrap();
    assert_eq!(reader.head(), Seq(1));
}

#[tokio::test]
async fn one_round_writes_every_commit_before_the_first_sync() {
    let bench = Bench::new();
    let mut journals = Vec::new();
    for i in 0..8 {
        journals.push(bench.service.create(bench.root.path().join(format!("s{i}")), []).await.unwrap().0);
    }
    // Every second journal has the same thread.
    let (first, others) = journals.split_first_mut().unwrap();
    let held = bench.faults.hold_next_sync();
    let mut blocked = Box::pin(add(first, &["blocks its thread"], Durability::Synced));
    assert!(futures_util::poll!(blocked.as_mut()).is_pending());
    held.entered.recv().unwrap();
    bench.faults.take_log();
    let mut queued: Vec<_> = others
        .iter_mut()
        .skip(1)
        .step_by(2)
        .map(|journal| Box::pin(add(journal, &["waits"], Durability::Synced)))
        .collect();
    for append in &mut queued {
        assert!(futures_util::poll!(append.as_mut()).is_pending());
    }
    held.release.send(()).unwrap();
    blocked.await.unwrap();
    for append in queued {
        append.await.unwrap();
    }
    assert_eq!(
        bench.faults.take_log(),
        [Op::Write, Op::Write, Op::Write, Op::Sync, Op::Sync, Op::Sync],
        "three sessions, one round"
    );
}

#[tokio::test]
async fn a_stuck_sync_stops_neither_the_other_thread_nor_blobs() {
    let bench = Bench::new();
    let mut one = bench.service.create(bench.root.path().join("one"), []).await.unwrap().0;
    let mut two = bench.service.create(bench.root.path().join("two"), []).await.unwrap().0;
    let held = bench.faults.hold_next_sync();
    let mut stuck = Box::pin(add(&mut one, &["stuck"], Durability::Synced));
    assert!(futures_util::poll!(stuck.as_mut()).is_pending());
    held.entered.recv().unwrap();
    add(&mut two, &["free"], Durability::Synced).await.unwrap();
    two.blobs().put(bytes::Bytes::from_static(b"free too")).await.unwrap();
    drop(held);
    stuck.await.unwrap();
}

#[tokio::test]
async fn another_number_than_the_next_is_refused() {
    let bench = Bench::with_commits(&["one"]).await;
    let before = bench.content();
    let (mut journal, _) = bench.open().await;
    for wrong in [0, 1, 3] {
        let error = journal.append(Seq(wrong), at(), records(&["x"]), Durability::Written).await.unwrap_err();
        assert_eq!(error.changed, Changed::False);
        assert!(matches!(error.failure, AppendFailure::Expected { next: Seq(2), .. }));
    }
    let error = journal.append(Seq(2), at(), Vec::new(), Durability::Written).await.unwrap_err();
    assert!(matches!(error.failure, AppendFailure::Empty));
    assert_eq!(bench.content(), before);
}

#[tokio::test]
async fn a_commit_that_could_not_be_read_back_is_refused() {
    let bench = Bench::new();
    let mut journal = bench.create().await;
    let long = "x".repeat(MAX_LINE);
    let error = add(&mut journal, &[&long], Durability::Written).await.unwrap_err();
    assert!(matches!(error.failure, AppendFailure::TooLarge { .. }));
    assert_eq!(error.changed, Changed::False);
    add(&mut journal, &["small"], Durability::Written).await.unwrap();
}

#[tokio::test]
async fn a_file_removed_or_changed_by_others_is_not_written_to() {
    let bench = Bench::with_commits(&["one"]).await;
    let (mut journal, _) = bench.open().await;
    std::fs::write(bench.file(), "somebody else was here").unwrap();
    let error = add(&mut journal, &["two"], Durability::Synced).await.unwrap_err();
    assert!(error.is_read_only());
    assert_eq!(bench.content(), b"somebody else was here");

    let bench = Bench::with_commits(&["one"]).await;
    let (mut journal, _) = bench.open().await;
    std::fs::remove_file(bench.file()).unwrap();
    assert!(add(&mut journal, &["two"], Durability::Synced).await.unwrap_err().is_read_only());
    assert!(!bench.file().exists(), "it stays gone");
}

#[tokio::test]
async fn stopping_does_what_is_queued_and_then_refuses() {
    let bench = Bench::new();
    let mut journal = bench.create().await;
    bench.service.ping().await.unwrap();
    let mut append = Box::pin(add(&mut journal, &["one"], Durability::Synced));
    let early = futures_util::poll!(append.as_mut());
    bench.service.stop().await;
    if early.is_pending() {
        append.await.unwrap();
    } else {
        drop(append);
    }
    let error = add(&mut journal, &["two"], Durability::Written).await.unwrap_err();
    assert!(matches!(error.failure, AppendFailure::Stopped));
    assert_eq!(error.changed, Changed::False);
    assert!(matches!(bench.service.ping().await, Err(JournalError::Stopped)));
}

#[tokio::test]
async fn a_panic_over_one_journal_leaves_the_others_alone() {
    for op in [Op::Write, Op::Sync] {
        let bench = Bench::new();
        let mut journals = Vec::new();
        for i in 0..4 {
            journals.push(bench.service.create(bench.root.path().join(format!("s{i}")), []).await.unwrap().0);
        }
        bench.faults.panic(op);
        let error = add(&mut journals[0], &["one"], Durability::Synced).await.unwrap_err();
        assert_eq!(error.changed, Changed::Unknown);
        assert!(add(&mut journals[0], &["two"], Durability::Synced).await.unwrap_err().is_read_only());
        for journal in &mut journals[1..] {
            add(journal, &["fine"], Durability::Synced).await.unwrap();
        }
    }
}
