//! Pages from either end hold every commit once, and looking at a journal changes nothing.

use proptest::prelude::*;

use super::*;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

async fn all_forward(reader: &JournalReader, bytes: u64) -> Vec<(u64, String)> {
    let (mut found, mut after) = (Vec::new(), Seq(0));
    loop {
        let page = reader.commits_after(after, bytes).await.unwrap();
        let Some(last) = page.last() else { return found };
        after = last.last();
        found.extend(texts(&page));
    }
}

async fn all_backward(reader: &JournalReader, bytes: u64) -> Vec<(u64, String)> {
    let (mut pages, mut before) = (Vec::new(), Seq(u64::MAX));
    loop {
        let page = reader.commits_before(before, bytes).await.unwrap();
        let Some(first) = page.first() else { break };
        before = first.seq;
        pages.push(texts(&page));
    }
    pages.into_iter().rev().flatten().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_commit_is_on_exactly_one_page(
        commits in prop::collection::vec(prop::collection::vec(0usize..30_000, 1..4), 1..30),
        bytes in prop_oneof![0u64..100, 1_000u64..200_000],
        ruined in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
    ) {
        runtime().block_on(async {
            let bench = Bench::new();
            let mut journal = bench.create().await;
            for sizes in &commits {
                let filler: Vec<String> = sizes.iter().map(|size| "x".repeat(*size)).collect();
                let filler: Vec<&str> = filler.iter().map(String::as_str).collect();
                add(&mut journal, &filler, Durability::Written).await.unwrap();
            }
            drop(journal);
            // A byte of some lines is ruined: those are passed over, whichever way one reads.
            let mut content = bench.content();
            for at in &ruined {
                let at = at.index(content.len());
                content[at] = if content[at] == b'\n' { b'\n' } else { 0 };
            }
            std::fs::write(bench.file(), &content).unwrap();

            let looked = bench.service.look(bench.dir(), None, |_| None).await.unwrap();
            assert_eq!(bench.content(), content, "looking changes nothing");
            let (journal, opened) = bench.open().await;
            let expected = texts(&opened.commits);
            for reader in [looked, journal.reader()] {
                assert_eq!(all_forward(&reader, bytes).await, expected);
                assert_eq!(all_backward(&reader, bytes).await, expected);
            }
        });
    }
}

#[tokio::test]
async fn a_page_before_a_number_ends_with_the_commit_that_holds_the_one_before_it() {
    let bench = Bench::new();
    let mut journal = bench.create().await;
    let filler = "x".repeat(3000);
    for _ in 0..100 {
        add(&mut journal, &[&filler, "second"], Durability::Written).await.unwrap();
    }
    let reader = journal.reader();
    for before in 0..=203u64 {
        let commits = reader.commits_before(Seq(before), 0).await.unwrap();
        let last = commits.last().map(|commit| commit.seq.0);
        let expected = (before > 1).then(|| (before.min(201) / 2) * 2 - 1);
        assert_eq!((commits.len(), last), (usize::from(before > 1), expected), "before {before}");
    }
    assert_eq!(reader.commits_before(Seq(u64::MAX), u64::MAX).await.unwrap().len(), 100);
    let three = reader.commits_before(Seq(u64::MAX), 10_000).await.unwrap();
    assert_eq!(three.iter().map(|commit| commit.seq.0).collect::<Vec<_>>(), [195, 197, 199]);
}

#[tokio::test]
async fn a_look_leaves_a_torn_tail_where_it_is_and_does_not_read_it() {
    let bench = Bench::with_commits(&["one", "two"]).await;
    let mut content = bench.content();
    content.extend_from_slice(b"{\"v\":1,\"seq\":3,\"at\":\"2026");
    std::fs::write(bench.file(), &content).unwrap();
    let reader = bench.service.look(bench.dir(), None, |_| None).await.unwrap();
    assert_eq!(all_forward(&reader, 100).await, pairs(&[(1, "one"), (2, "two")]));
    assert_eq!((bench.content(), names(&bench.dir())), (content, vec!["blobs".into(), FILE_NAME.into()]));
}

#[tokio::test]
async fn a_second_look_reads_on_from_where_the_first_one_came() {
    let bench = Bench::with_commits(&["one", "two"]).await;
    let mark = bench.service.look(bench.dir(), None, |_| None).await.unwrap().mark().await.unwrap();
    let (mut journal, _) = bench.open().await;
    add(&mut journal, &["three"], Durability::Synced).await.unwrap();
    drop(journal);
    let asked = |_: Beginning<'_>| panic!("the mark fits, so nothing else is asked for");
    let reader = bench.service.look(bench.dir(), mark.clone(), asked).await.unwrap();
    assert_eq!(all_backward(&reader, 0).await, pairs(&[(1, "one"), (2, "two"), (3, "three")]));

    // Another journal has taken its place: the mark means nothing.
    let other = Bench::with_commits(&["uno", "dos"]).await;
    std::fs::write(bench.file(), other.content()).unwrap();
    let reader = bench.service.look(bench.dir(), mark, |_| None).await.unwrap();
    assert_eq!(all_forward(&reader, 0).await, pairs(&[(1, "uno"), (2, "dos")]));
    let missing = bench.service.look(bench.root.path().join("none"), None, |_| None).await;
    assert!(matches!(missing, Err(JournalError::Missing { .. })));
}
