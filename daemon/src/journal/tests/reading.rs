//! Readers beside a writer.

use super::*;

#[tokio::test]
async fn commits_come_back_as_they_were_appended() {
    let bench = Bench::new();
    let mut journal = bench.create().await;
    assert_eq!(journal.next_seq(), Seq(1));
    let first = add(&mut journal, &["a", "b", "c"], Durability::Written).await.unwrap();
    assert_eq!((first.first, first.last), (Seq(1), Seq(3)));
    let second = add(&mut journal, &["d"], Durability::Synced).await.unwrap();
    assert_eq!((second.first, second.last), (Seq(4), Seq(4)));
    assert_eq!(second.place.offset, u64::from(first.place.len));

    let (journal, opened) = bench.open().await;
    assert_eq!(texts(&opened.commits), pairs(&[(1, "a"), (2, "b"), (3, "c"), (4, "d")]));
    assert_eq!(opened.commits[0].place, first.place);
    assert_eq!(opened.commits[0].at, at());
    assert_eq!(journal.next_seq(), Seq(5));
}

#[tokio::test]
async fn reading_begins_after_a_number_wherever_it_lies() {
    let bench = Bench::new();
    let mut journal = bench.create().await;
    let filler = "x".repeat(3000);
    for _ in 0..100 {
        add(&mut journal, &[&filler, "second"], Durability::Written).await.unwrap();
    }
    let reader = journal.reader();
    assert_eq!(reader.head(), Seq(200));
    for after in 0..=201 {
        let commits = reader.commits_after(Seq(after), u64::MAX).await.unwrap();
        let first = commits.first().map(|commit| commit.seq.0);
        let expected = (after < 200).then_some(after / 2 * 2 + 1);
        assert_eq!(first, expected, "after {after}");
        assert_eq!(commits.len() as u64, 100 - (after.min(200) / 2));
    }
    assert_eq!(reader.commits_after(Seq(u64::MAX), u64::MAX).await.unwrap().len(), 0);
}

#[tokio::test]
async fn pages_are_bounded_but_never_empty_before_the_end() {
    let bench = Bench::with_commits(&["one", "two", "three"]).await;
    let (journal, opened) = bench.open().await;
    let reader = journal.reader();
    assert_eq!(reader.commits_after(Seq(0), 0).await.unwrap().len(), 1);
    let two = u64::from(opened.commits[0].place.len + opened.commits[1].place.len);
    assert_eq!(reader.commits_after(Seq(0), two).await.unwrap().len(), 2);
    assert_eq!(reader.commits_after(Seq(0), two - 1).await.unwrap().len(), 1);
    assert_eq!(reader.commits_after(Seq(3), two).await.unwrap().len(), 0);
}

#[tokio::test]
async fn a_record_is_found_again_by_its_reference() {
    let bench = Bench::new();
    let mut journal = bench.create().await;
    add(&mut journal, &["zero"], Durability::Written).await.unwrap();
    let place = add(&mut journal, &["a", "b"], Durability::Written).await.unwrap().place;
    let reader = journal.reader();
    assert_eq!(reader.record(place.record(1)).await.unwrap().get(), "\"b\"");
    let two = reader.records(vec![place.record(1), place.record(0)]).await.unwrap();
    assert_eq!(two.iter().map(|record| record.get()).collect::<Vec<_>>(), ["\"b\"", "\"a\""]);

    let hostile = [
        place.record(2),
        RecordRef { offset: place.offset + 1, len: place.len - 1, index: 0 },
        RecordRef { offset: u64::MAX, len: 1, index: 0 },
        RecordRef { offset: 0, len: u32::MAX, index: 0 },
        RecordRef { offset: 0, len: 0, index: 0 },
    ];
    for at in hostile {
        assert!(matches!(reader.record(at).await, Err(JournalError::NoRecord { .. })), "{at:?}");
    }
}

#[tokio::test]
async fn a_fold_sees_each_commit_once_without_keeping_them() {
    let bench = Bench::with_commits(&["one", "two", "three"]).await;
    let (journal, damage, numbers) = bench
        .service
        .open_each(bench.dir(), Vec::new(), |numbers, commit| numbers.push(commit.seq.0))
        .await
        .unwrap();
    assert!(damage.is_none());
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!(journal.next_seq(), Seq(4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sessions_append_side_by_side_on_the_real_disk() {
    let root = tempfile::tempdir().unwrap();
    let service = JournalService::start().unwrap();
    let mut sessions = tokio::task::JoinSet::new();
    for i in 0..16 {
        let (service, dir) = (Arc::clone(&service), root.path().join(format!("s{i}")));
        sessions.spawn(async move {
            let mut journal = service.create(&dir, []).await.unwrap().0;
            for n in 0..20 {
                let durability = if n % 5 == 0 { Durability::Synced } else { Durability::Written };
                add(&mut journal, &[&format!("{i}/{n}")], durability).await.unwrap();
            }
            journal.sync().await.unwrap();
            drop(journal);
            let (_, opened) = service.open(&dir).await.unwrap();
            assert!(opened.damage.is_none());
            let expected: Vec<(u64, String)> = (0..20).map(|n| (n + 1, format!("{i}/{n}"))).collect();
            assert_eq!(texts(&opened.commits), expected);
        });
    }
    while let Some(done) = sessions.join_next().await {
        done.unwrap();
    }
    service.stop().await;
}
