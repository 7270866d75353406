//! Torn tails, bad lines, holes: what is found is kept, told, and never appended to.

use proptest::prelude::*;

use super::*;

#[tokio::test]
async fn cut_at_every_byte_of_the_last_line_keeps_all_before_it_and_goes_on() {
    let bench = Bench::with_commits(&["one", "two", "three"]).await;
    let whole = bench.content();
    let last_line = whole[..whole.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
    for cut in last_line..whole.len() {
        std::fs::write(bench.file(), &whole[..cut]).unwrap();
        let (mut journal, opened) = bench.open().await;
        assert_eq!(texts(&opened.commits), pairs(&[(1, "one"), (2, "two")]), "cut at {cut}");
        if cut == last_line {
            assert!(opened.damage.is_none(), "cut between two lines is no damage");
        } else {
            let torn = opened.damage.torn.unwrap();
            assert_eq!(torn.bytes, (cut - last_line) as u64);
            assert_eq!(std::fs::read(torn.kept_at.unwrap()).unwrap(), &whole[last_line..cut]);
        }
        add(&mut journal, &["after"], Durability::Synced).await.unwrap();

        let (_, opened) = bench.open().await;
        assert!(opened.damage.is_none(), "cut at {cut} is mended: {:?}", opened.damage);
        assert_eq!(texts(&opened.commits), pairs(&[(1, "one"), (2, "two"), (3, "after")]));
    }
    let kept = names(&bench.dir()).into_iter().filter(|name| name.starts_with("torn-")).count();
    assert_eq!(kept, whole.len() - last_line - 1, "every torn tail is kept in a file of its own");
}

#[tokio::test]
async fn a_last_line_that_does_not_parse_is_torn_even_with_its_newline() {
    let bench = Bench::with_commits(&["one"]).await;
    let mut content = bench.content();
    content.extend_from_slice(b"\0\0\0\0\n");
    std::fs::write(bench.file(), &content).unwrap();
    let (_, opened) = bench.open().await;
    assert_eq!(opened.damage.torn.unwrap().bytes, 5);
    assert_eq!(bench.content(), &content[..content.len() - 5]);
}

#[tokio::test]
async fn a_bad_middle_line_is_skipped_told_and_left_in_place() {
    let bench = Bench::with_commits(&["one", "two", "three"]).await;
    let content = String::from_utf8(bench.content()).unwrap();
    let lines: Vec<&str> = content.split_inclusive('\n').collect();
    let broken = [lines[0], "garbage\n", "\n", lines[2]].concat();
    std::fs::write(bench.file(), &broken).unwrap();

    let (mut journal, opened) = bench.open().await;
    assert_eq!(texts(&opened.commits), pairs(&[(1, "one"), (3, "three")]));
    let offset = lines[0].len() as u64;
    assert_eq!(
        opened.damage,
        Damage {
            torn: None,
            bad_lines: vec![BadLine { offset, len: 9, number: 2, lines: 2 }],
            missing: vec![(Seq(2), Seq(2))],
            read_only: None,
        }
    );
    add(&mut journal, &["four"], Durability::Synced).await.unwrap();
    let read = journal.reader().commits_after(Seq(0), u64::MAX).await.unwrap();
    assert_eq!(texts(&read), pairs(&[(1, "one"), (3, "three"), (4, "four")]));
    assert!(bench.content().starts_with(broken.as_bytes()), "nothing before the new line was touched");
}

#[tokio::test]
async fn one_wrong_number_disqualifies_one_line_only() {
    for wrong in ["1", "3", "9", "95"] {
        let bench = Bench::with_commits(&["one", "two", "three", "four"]).await;
        let content = String::from_utf8(bench.content()).unwrap();
        let changed = content.replace("\"seq\":2,", &format!("\"seq\":{wrong},"));
        std::fs::write(bench.file(), changed).unwrap();
        let (journal, opened) = bench.open().await;
        assert_eq!(
            texts(&opened.commits),
            pairs(&[(1, "one"), (3, "three"), (4, "four")]),
            "2 became {wrong}"
        );
        assert_eq!(opened.damage.bad_lines.len(), 1);
        assert_eq!(opened.damage.missing, [(Seq(2), Seq(2))]);
        let read = journal.reader().commits_after(Seq(0), u64::MAX).await.unwrap();
        assert_eq!(texts(&read), texts(&opened.commits), "readers see what the fold saw");
    }
}

#[tokio::test]
async fn a_vanished_line_leaves_a_hole_that_is_told() {
    let bench = Bench::with_commits(&["one", "two", "three"]).await;
    let content = String::from_utf8(bench.content()).unwrap();
    let lines: Vec<&str> = content.split_inclusive('\n').collect();
    std::fs::write(bench.file(), [lines[0], lines[2]].concat()).unwrap();
    let (journal, opened) = bench.open().await;
    assert_eq!(texts(&opened.commits), pairs(&[(1, "one"), (3, "three")]));
    assert_eq!(opened.damage.missing, [(Seq(2), Seq(2))]);
    assert_eq!(journal.next_seq(), Seq(4));
}

#[tokio::test]
async fn a_journal_of_a_newer_agentd_is_read_only_and_untouched() {
    let bench = Bench::with_commits(&["one"]).await;
    let mut content = bench.content();
    content.extend_from_slice(b"{\"v\":2,\"what\":\"ever\"}\n{\"v\":2,\"torn");
    std::fs::write(bench.file(), &content).unwrap();
    let (mut journal, opened) = bench.open().await;
    assert_eq!(texts(&opened.commits), pairs(&[(1, "one")]));
    assert!(opened.damage.read_only.unwrap().contains("newer agentd"));
    let error = add(&mut journal, &["two"], Durability::Written).await.unwrap_err();
    assert!(error.is_read_only());
    assert_eq!(error.changed, Changed::False);
    assert_eq!(bench.content(), content);
}

#[tokio::test]
async fn a_line_over_the_limit_is_a_bad_line() {
    let bench = Bench::with_commits(&["one", "two"]).await;
    let content = String::from_utf8(bench.content()).unwrap();
    let (first, second) = content.split_once('\n').unwrap();
    let long = "x".repeat(MAX_LINE + 1);
    std::fs::write(bench.file(), format!("{first}\n{long}\n{second}")).unwrap();
    let (_, opened) = bench.open().await;
    assert_eq!(texts(&opened.commits), pairs(&[(1, "one"), (2, "two")]));
    assert_eq!(opened.damage.bad_lines[0].number, 2);
    assert_eq!(opened.damage.missing, []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_whole_commit_before_the_damage_is_kept(
        sizes in prop::collection::vec(1usize..4, 0..6),
        cut in any::<prop::sample::Index>(),
        junk in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
        behind in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let bench = Bench::new();
            let mut journal = bench.create().await;
            let mut ends = vec![0];
            for size in &sizes {
                let appended = add(&mut journal, &vec!["r"; *size], Durability::Written).await.unwrap();
                ends.push(appended.place.offset + u64::from(appended.place.len));
            }
            drop(journal);
            let whole = bench.content();
            let cut = cut.index(whole.len() + 1);
            let mut damaged = whole[..cut].to_vec();
            damaged.extend_from_slice(&junk);
            if behind {
                damaged.extend_from_slice(&whole[cut..]);
            }
            std::fs::write(bench.file(), &damaged).unwrap();

            let (mut journal, opened) = bench.open().await;
            let n_whole = ends.iter().skip(1).filter(|end| **end <= cut as u64).count();
            let kept: Vec<usize> =
                opened.commits.iter().take(n_whole).map(|commit| commit.records.len()).collect();
            assert_eq!(kept, sizes[..n_whole]);
            let mut next = 1;
            for commit in &opened.commits {
                assert!(commit.seq.0 >= next, "numbers only rise");
                next = commit.last().0 + 1;
            }
            let appended = add(&mut journal, &["new"], Durability::Synced).await.unwrap();
            let read = journal.reader().commits_after(Seq(0), u64::MAX).await.unwrap();
            assert_eq!(read.len(), opened.commits.len() + 1);
            assert_eq!(read.last().unwrap().seq, appended.first);

            let (_, again) = bench.open().await;
            assert_eq!(again.damage.torn, None, "the tail was cut the first time");
            assert_eq!(again.commits.len(), read.len());
        });
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let bench = Bench::new();
            drop(bench.create().await);
            std::fs::write(bench.file(), &bytes).unwrap();
            let (mut journal, opened) = bench.open().await;
            let bad: u64 = opened.damage.bad_lines.iter().map(|line| line.len).sum();
            let torn = opened.damage.torn.map_or(0, |torn| torn.bytes);
            assert_eq!(bad + torn, bytes.len() as u64, "every byte is accounted for");
            let ends = bench.service.first_and_last_line(bench.dir()).await.unwrap();
            assert!(ends.first.is_none() && ends.last.is_none());
            add(&mut journal, &["first"], Durability::Written).await.unwrap();
        });
    }
}
