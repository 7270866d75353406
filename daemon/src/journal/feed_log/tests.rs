use std::sync::Arc;

use super::*;
use crate::journal::faults::{Faults, Op};

const NOW: i64 = 1_700_000_000_000;
const HOUR: i64 = 3_600_000;

struct Scene {
    folder: tempfile::TempDir,
    faults: Faults,
}

impl Scene {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), faults: Faults::default() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("daemon.jsonl")
    }

    /// A daemon starts at this time.
    fn start_at(&self, now: Timestamp) -> (Files, FeedSeq) {
        let mut files = Files::new(self.path(), Arc::new(self.faults.clone()));
        let first = files.begin(now);
        (files, first)
    }

    fn start(&self) -> (Files, FeedSeq) {
        self.start_at(Timestamp::from_unix_ms(NOW))
    }

    fn content(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }
}

fn event(number: FeedSeq, text: &str) -> Entry {
    Entry::Event(number, format!(r#"{{"feedSeq":{number},"type":"notice","text":"{text}"}}"#).into())
}

fn after(number: FeedSeq, n: u64) -> FeedSeq {
    FeedSeq(number.0 + n)
}

fn numbers(page: &Page) -> Vec<FeedSeq> {
    page.events.iter().map(|(number, _)| *number).collect()
}

#[test]
fn numbers_never_go_back_whatever_the_clock_says_and_whatever_is_left_of_the_log() {
    let scene = Scene::new();
    let mut seen = FeedSeq::default();
    let at = |ms: i64| Timestamp::from_unix_ms(NOW + ms);
    let year = 366 * 24 * HOUR;
    let times = [0, 0, -HOUR, year, -HOUR, -NOW, -NOW - 1, i64::MAX - NOW, 0];
    for time in times {
        let (mut files, first) = scene.start_at(at(time));
        assert!(first > seen, "{first} after {seen}, at {time}");
        seen = after(first, 5);
        files.append(&[event(seen, "x")]).unwrap();
    }
    // A power cut took all, or all that can be read; the clock has gone on.
    let later = at(2 * year);
    std::fs::remove_file(scene.path()).unwrap();
    let (_, first) = scene.start_at(later);
    assert!(first > seen);
    std::fs::write(scene.path(), "\0\0\0\0\n\0\0\0").unwrap();
    let (_, again) = scene.start_at(at(2 * year + 1000));
    assert!(again > first);
    assert!(scene.folder.path().join("daemon.damaged.jsonl").exists(), "somebody may want to look at it");
    // Numbers are read by programs that know doubles only.
    assert!(again.0 < 1 << 53);
}

#[test]
fn a_torn_end_is_cut_and_what_comes_next_stands_on_a_line_of_its_own() {
    let scene = Scene::new();
    let (mut files, first) = scene.start();
    files.append(&[event(after(first, 1), "a"), event(after(first, 2), "b")]).unwrap();
    let whole = scene.content();
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for end in last..whole.len() {
        std::fs::write(scene.path(), &whole[..end]).unwrap();
        let (mut files, next) = scene.start();
        files.append(&[event(after(next, 1), "c")]).unwrap();
        let page = files.read_after(first, 1 << 20).unwrap();
        assert_eq!(numbers(&page), [after(first, 1), after(next, 1)], "cut at {end}");
        assert_eq!(page.whole_from, Some(next), "who was there before may have heard more");
    }
}

#[test]
fn its_size_is_bounded_and_who_comes_too_late_is_told() {
    let scene = Scene::new();
    let (mut files, first) = scene.start();
    let text = "x".repeat(1000);
    for n in 1..=2000 {
        files.append(&[event(after(first, n), &text)]).unwrap();
    }
    let old = std::fs::metadata(files.old()).unwrap().len();
    assert!(scene.content().len() as u64 <= FILE_BYTES && old <= FILE_BYTES);
    let mut at = first;
    let mut heard = Vec::new();
    let (mut pages, mut gap) = (0, false);
    loop {
        let page = files.read_after(at, 64 << 10).unwrap();
        pages += 1;
        gap |= page.whole_from.is_none_or(|from| at < from);
        heard.extend(numbers(&page));
        match page.events.last() {
            Some((last, _)) if page.more => at = *last,
            _ => break,
        }
    }
    assert!(gap && pages > 5, "{pages} pages");
    let expected: Vec<_> = (heard[0].0..=first.0 + 2000).map(FeedSeq).collect();
    assert_eq!(heard, expected);
    // From what is kept on nothing is missing, also over the edge of the two files and a restart.
    files.append(&[Entry::Ended(after(first, 2000))]).unwrap();
    let (mut files, _) = scene.start();
    let page = files.read_after(heard[0], usize::MAX).unwrap();
    assert!(page.whole_from.unwrap() <= heard[0] && !page.more);
    assert_eq!(numbers(&page), expected[1..]);
}

#[test]
fn a_disk_that_fails_leaves_nothing_half_written_and_is_used_again() {
    let scene = Scene::new();
    let (mut files, first) = scene.start();
    files.append(&[event(after(first, 1), "a")]).unwrap();
    let before = scene.content();
    scene.faults.fail(Op::Write, 1);
    files.append(&[event(after(first, 2), "b")]).unwrap_err();
    assert_eq!(scene.content(), before);
    // Not even the half line can be cut away: it is when the file is used again.
    scene.faults.fail(Op::Write, 1);
    scene.faults.fail(Op::Truncate, 1);
    files.append(&[event(after(first, 3), "c")]).unwrap_err();
    assert!(scene.content().len() > before.len());
    files.append(&[event(after(first, 4), "d")]).unwrap();
    let page = files.read_after(first, 1 << 20).unwrap();
    assert_eq!((numbers(&page), page.whole_from), (vec![after(first, 1), after(first, 4)], Some(first)));
}

#[test]
fn what_lies_in_its_place_is_neither_followed_nor_waited_for() {
    let scene = Scene::new();
    let elsewhere = scene.folder.path().join("elsewhere");
    std::fs::write(&elsewhere, "mine\n").unwrap();
    std::os::unix::fs::symlink(&elsewhere, scene.path()).unwrap();
    let (mut files, _) = scene.start();
    files.append(&[]).unwrap_err();
    assert_eq!(std::fs::read(&elsewhere).unwrap(), b"mine\n");
    std::fs::remove_file(scene.path()).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        scene.path(),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let (mut files, first) = scene.start();
    files.append(&[]).unwrap_err();
    files.read_after(first, 1).unwrap_err();
    std::fs::remove_file(scene.path()).unwrap();
    files.append(&[]).unwrap();
    // Taken away while it is in use, it is begun anew.
    std::fs::remove_file(scene.path()).unwrap();
    files.append(&[event(after(first, 1), "a")]).unwrap();
    assert_eq!(files.read_after(first, 1).unwrap().whole_from, Some(after(first, 1)));
}
