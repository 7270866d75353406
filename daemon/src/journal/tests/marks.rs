//! Reading on from a mark: the same as reading all, or the mark is not believed.

use std::io::Write as _;

use super::*;

/// What opening after `mark` reads, and whether the mark was believed.
async fn read_from(bench: &Bench, mark: &Mark) -> (bool, Journal, Damage, Vec<Commit>) {
    let mark = mark.clone();
    let begin = move |beginning: Beginning<'_>| {
        let fits = beginning.fits(&mark);
        (fits.then_some(mark), (fits, Vec::new()))
    };
    let fold = |read: &mut (bool, Vec<Commit>), commit| read.1.push(commit);
    let (journal, damage, (believed, commits)) =
        bench.service.open_from(bench.dir(), begin, fold).await.unwrap();
    (believed, journal, damage, commits)
}

async fn marked(texts: &[&str]) -> (Bench, Mark) {
    let bench = Bench::with_commits(texts).await;
    let mark = bench.open().await.0.mark().await.unwrap().unwrap();
    (bench, mark)
}

#[tokio::test]
async fn an_empty_journal_has_no_mark() {
    let bench = Bench::new();
    assert!(bench.create().await.mark().await.unwrap().is_none());
}

#[tokio::test]
async fn reading_on_gives_the_rest_and_the_same_journal() {
    let (bench, mark) = marked(&["a", "b"]).await;
    assert_eq!((mark.head(), mark.bytes()), (Seq(2), bench.content().len() as u64));
    let mut journal = bench.open().await.0;
    add(&mut journal, &["c", "d"], Durability::Synced).await.unwrap();
    drop(journal);

    let (believed, mut journal, damage, rest) = read_from(&bench, &mark).await;
    assert!(believed && damage.is_none());
    assert_eq!(texts(&rest), pairs(&[(3, "c"), (4, "d")]));
    add(&mut journal, &["e"], Durability::Synced).await.unwrap();
    let all = journal.reader().commits_after(Seq(0), u64::MAX).await.unwrap();
    assert_eq!(texts(&all), pairs(&[(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]));
    // A mark of what was read on from a mark is that of what was read whole.
    let resumed = journal.mark().await.unwrap();
    drop(journal);
    assert_eq!(bench.open().await.0.mark().await.unwrap(), resumed);
}

#[tokio::test]
async fn damage_before_the_mark_is_still_known_and_passed_over() {
    let bench = Bench::with_commits(&["a", "b", "c", "d"]).await;
    let mut content = bench.content();
    let second = content.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    content[second] = b'?';
    std::fs::write(bench.file(), &content).unwrap();
    let (journal, whole) = bench.open().await;
    let mark = journal.mark().await.unwrap().unwrap();
    drop(journal);
    std::fs::OpenOptions::new().append(true).open(bench.file()).unwrap().write_all(b"torn").unwrap();

    let (believed, journal, damage, _) = read_from(&bench, &mark).await;
    assert!(believed);
    assert_eq!((&damage.bad_lines, &damage.missing), (&whole.damage.bad_lines, &whole.damage.missing));
    assert_eq!(damage.torn.unwrap().bytes, 4);
    let all = journal.reader().commits_after(Seq(0), u64::MAX).await.unwrap();
    assert_eq!(texts(&all), pairs(&[(1, "a"), (3, "c"), (4, "d")]));
}

#[tokio::test]
async fn a_bad_line_after_the_mark_has_its_number_in_the_whole_file() {
    let (bench, mark) = marked(&["a", "b"]).await;
    let mut file = std::fs::OpenOptions::new().append(true).open(bench.file()).unwrap();
    let next =
        String::from_utf8(bench.content()).unwrap().lines().last().unwrap().replace("\"seq\":2", "\"seq\":3");
    file.write_all(format!("nonsense\n{next}\n").as_bytes()).unwrap();
    let (_, whole) = bench.open().await;
    let (believed, _, damage, rest) = read_from(&bench, &mark).await;
    assert!(believed);
    assert_eq!(damage.bad_lines, whole.damage.bad_lines);
    assert_eq!((damage.bad_lines[0].number, rest.len()), (3, 1));
}

#[tokio::test]
async fn a_mark_of_another_file_is_not_believed() {
    let (bench, mark) = marked(&["a", "b"]).await;
    let whole = bench.content();
    let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let changed = String::from_utf8(whole.clone()).unwrap().replace("\"b\"", "\"x\"").into_bytes();
    let longer = [&whole[..first], &whole[..]].concat();
    for other in [whole[..first].to_vec(), whole[..whole.len() - 1].to_vec(), changed, longer, Vec::new()] {
        std::fs::write(bench.file(), &other).unwrap();
        let (believed, ..) = read_from(&bench, &mark).await;
        assert!(!believed, "{}", String::from_utf8_lossy(&other));
    }
    std::fs::write(bench.file(), &whole).unwrap();
    assert!(read_from(&bench, &mark).await.0);
}

#[tokio::test]
async fn what_is_kept_beside_a_journal_comes_back_and_anything_else_in_its_place_is_nothing() {
    let bench = Bench::with_commits(&["a"]).await;
    let kept = |bench: &Bench| {
        let (service, dir) = (Arc::clone(&bench.service), bench.dir());
        async move {
            let begin = |beginning: Beginning<'_>| (None, beginning.kept);
            service.open_from(dir, begin, |_, _| {}).await.unwrap().2
        }
    };
    assert_eq!(kept(&bench).await, None);
    for content in [b"one".to_vec(), b"two".to_vec()] {
        bench.service.keep_beside(bench.dir(), content.clone()).await.unwrap();
        assert_eq!(kept(&bench).await, Some(content));
    }
    assert_eq!(names(&bench.dir()), ["blobs", "journal.jsonl", "state.json"]);
    let path = bench.dir().join("state.json");
    std::fs::remove_file(&path).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert_eq!(kept(&bench).await, None, "a pipe is not waited for");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!(kept(&bench).await, None);
    assert!(bench.service.keep_beside(bench.dir(), Vec::new()).await.is_err());
}
