use super::*;

impl Bench {
    async fn read_on(&self, from: Reach, max_bytes: u64) -> (Vec<Commit>, Tail) {
        let fold = |commits: &mut Vec<Commit>, commit| commits.push(commit);
        self.service.read_on(self.dir(), from, max_bytes, Vec::new(), fold).await.unwrap()
    }
}

#[tokio::test]
async fn what_came_after_a_mark_is_read_and_nothing_before() {
    let bench = Bench::with_commits(&["a", "b"]).await;
    let (commits, tail) = bench.read_on(Reach::START, u64::MAX).await;
    assert_eq!(texts(&commits), pairs(&[(1, "a"), (2, "b")]));
    let size = bench.content().len() as u64;
    let Tail::Read { end, more: false } = tail else { panic!("{tail:?}") };
    assert_eq!(end, Reach { bytes: size, next: Seq(3) });
    assert_eq!(bench.service.sizes(vec![bench.dir(), "/nowhere".into()]).await.unwrap(), [Some(size), None]);

    let (mut journal, _) = bench.open().await;
    assert_eq!(journal.reach(), end);
    add(&mut journal, &["c"], Durability::Written).await.unwrap();
    let (commits, tail) = bench.read_on(end, u64::MAX).await;
    assert_eq!(texts(&commits), pairs(&[(3, "c")]));
    assert_eq!(tail, Tail::Read { end: journal.reach(), more: false });
    // Nothing new: nothing read.
    let (commits, tail) = bench.read_on(journal.reach(), u64::MAX).await;
    assert_eq!((commits.len(), tail), (0, Tail::Read { end: journal.reach(), more: false }));
}

#[tokio::test]
async fn in_pieces_or_at_once_the_same_is_read_whatever_is_damaged() {
    let bench = Bench::with_commits(&["a", "b", "c", "d", "e", "f", "g", "h"]).await;
    let mut lines: Vec<Vec<u8>> =
        bench.content().split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    lines[1] = b"nonsense\n".to_vec();
    // A number that jumps, and is contradicted by the next line.
    lines[3] = String::from_utf8(lines[3].clone()).unwrap().replace("\"seq\":4", "\"seq\":400").into_bytes();
    lines.push(b"{\"v\":1,\"seq\":9,\"at".to_vec());
    std::fs::write(bench.file(), lines.concat()).unwrap();
    let (whole, whole_tail) = bench.read_on(Reach::START, u64::MAX).await;
    assert_eq!(texts(&whole), pairs(&[(1, "a"), (3, "c"), (5, "e"), (6, "f"), (7, "g"), (8, "h")]));

    let (mut mark, mut pieces, mut rounds) = (Reach::START, Vec::new(), 0);
    loop {
        let (commits, tail) = bench.read_on(mark, 1).await;
        pieces.extend(commits);
        rounds += 1;
        let Tail::Read { end, more } = tail else { panic!("{tail:?}") };
        mark = end;
        if !more {
            assert_eq!(tail, whole_tail);
            break;
        }
    }
    assert_eq!(texts(&pieces), texts(&whole));
    assert!(rounds > 2, "{rounds}");
}

#[tokio::test]
async fn a_mark_of_another_journal_is_told_as_such() {
    let bench = Bench::with_commits(&["a", "b"]).await;
    let size = bench.content().len() as u64;
    for bytes in [1, size - 1, size + 1] {
        let (commits, tail) = bench.read_on(Reach { bytes, next: Seq(2) }, u64::MAX).await;
        assert_eq!((commits.len(), tail), (0, Tail::Stale), "{bytes}");
    }
    let missing = bench.service.read_on("/nowhere", Reach::START, 1, (), |(), _| ()).await;
    assert!(matches!(missing, Err(JournalError::Missing { .. })));
}
