//! Goes through a whole journal once: finds its commits, and what is wrong with it.
//!
//! A line that is no commit is torn if it is the last one, else bad. Numbers that go back make a line bad. Numbers that
//! jump are a hole, since lines were lost before; but a single flipped bit in one number must not disqualify all that
//! follows, so a jump is believed only if the next commit does not contradict it.

use std::fs::File;
use std::io;

use super::frame::{self, Decoded};
use super::index::Index;
use super::lines::{Line, Lines, Text};
use super::{BadLine, Commit};
use crate::ids::Seq;

pub(super) struct Scan {
    /// Its `len` is where the next commit goes: the end of the last whole line.
    pub(super) index: Index,
    pub(super) bad_lines: Vec<BadLine>,
    pub(super) missing: Vec<(Seq, Seq)>,
    /// Bytes after `index.len` that belong to no whole line.
    pub(super) torn: u64,
    /// Whether the last of them is a newline.
    pub(super) torn_ended: bool,
    /// A line has this later version of the frame.
    pub(super) newer: Option<u64>,
}

/// Hands every commit after `from` to `each`, in order. `from`: what is known of the beginning, empty for all of it.
pub(super) fn scan(file: &File, len: u64, from: Index, each: &mut dyn FnMut(Commit)) -> io::Result<Scan> {
    let (scan, _) = scan_some(file, len, from, u64::MAX, each)?;
    Ok(scan)
}

/// As [`scan`], and not much further than `max_bytes`. Says whether it stopped before the end; never where the next line
/// decides what becomes of the one before.
pub(super) fn scan_some(
    file: &File,
    len: u64,
    from: Index,
    max_bytes: u64,
    each: &mut dyn FnMut(Commit),
) -> io::Result<(Scan, bool)> {
    let begin = from.len;
    let mut lines = Lines::new(file, begin, len);
    let mut scanner = Scanner::new(from, each);
    let mut more = false;
    while let Some(line) = lines.next()? {
        if scanner.end - begin >= max_bytes && scanner.is_settled() {
            more = true;
            break;
        }
        scanner.line(&line);
    }
    Ok((scanner.finish(), more))
}

struct Scanner<'a> {
    each: &'a mut dyn FnMut(Commit),
    scan: Scan,
    /// Lines seen.
    number: u64,
    /// End of the last line seen.
    end: u64,
    /// Whether that line has its newline.
    ended: bool,
    /// The line before this one was unreadable: bad if another comes, else torn.
    unreadable: Option<BadLine>,
    /// A commit whose number jumps ahead, with its line's number.
    jump: Option<(Commit, u64)>,
}

impl<'a> Scanner<'a> {
    fn new(from: Index, each: &'a mut dyn FnMut(Commit)) -> Self {
        let (number, end) = (from.lines, from.len);
        let (bad_lines, missing) = (from.bad().to_vec(), from.missing.clone());
        let scan = Scan { index: from, bad_lines, missing, torn: 0, torn_ended: false, newer: None };
        Self { each, scan, number, end, ended: false, unreadable: None, jump: None }
    }

    /// Whether no line seen so far waits for the next one.
    fn is_settled(&self) -> bool {
        self.unreadable.is_none() && self.jump.is_none()
    }

    fn line(&mut self, line: &Line<'_>) {
        if let Some(bad) = self.unreadable.take() {
            self.bad(bad);
        }
        self.number += 1;
        self.end = line.offset + line.len;
        self.ended = !matches!(line.text, Text::Unfinished);
        let this = BadLine { offset: line.offset, len: line.len, number: self.number, lines: 1 };
        let decoded = match line.text {
            Text::Whole(text) => frame::decode(text, line.offset),
            Text::TooLong | Text::Unfinished => Decoded::Bad,
        };
        match decoded {
            Decoded::Commit(commit) => self.commit(commit, self.number),
            Decoded::Newer(version) => {
                self.scan.newer = self.scan.newer.max(Some(version));
                self.bad(this);
            }
            Decoded::Bad => self.unreadable = Some(this),
        }
    }

    fn commit(&mut self, commit: Commit, number: u64) {
        if let Some((jump, jump_number)) = self.jump.take() {
            if commit.seq < self.scan.index.next {
                // It says nothing about the jump: it would be wrong with or without.
                self.jump = Some((jump, jump_number));
                return self.bad_commit(&commit, number);
            }
            if commit.seq > jump.last() {
                self.accept(jump);
            } else {
                self.bad_commit(&jump, jump_number);
            }
        }
        let next = self.scan.index.next;
        if commit.seq < next {
            self.bad_commit(&commit, number);
        } else if commit.seq == next {
            self.accept(commit);
        } else {
            self.jump = Some((commit, number));
        }
    }

    fn accept(&mut self, commit: Commit) {
        let next = self.scan.index.next;
        if commit.seq > next {
            self.scan.missing.push((next, Seq(commit.seq.0 - 1)));
        }
        self.scan.index.add(commit.seq, commit.last(), commit.place);
        (self.each)(commit);
    }

    fn bad_commit(&mut self, commit: &Commit, number: u64) {
        let place = commit.place;
        self.bad(BadLine { offset: place.offset, len: u64::from(place.len), number, lines: 1 });
    }

    fn bad(&mut self, line: BadLine) {
        match self.scan.bad_lines.last_mut() {
            Some(last) if last.offset + last.len == line.offset => {
                last.len += line.len;
                last.lines += line.lines;
            }
            _ => self.scan.bad_lines.push(line),
        }
    }

    fn finish(mut self) -> Scan {
        if let Some((jump, _)) = self.jump.take() {
            self.accept(jump);
        }
        let unfinished = self.unreadable.take();
        let torn = unfinished.as_ref().map_or(0, |line| line.len);
        let mut scan = self.scan;
        scan.torn = torn;
        scan.torn_ended = torn > 0 && self.ended;
        scan.index.len = self.end - torn;
        scan.index.lines = self.number - u64::from(unfinished.is_some());
        scan.index.missing.clone_from(&scan.missing);
        scan.bad_lines.sort_by_key(|line| line.offset);
        scan.index.set_bad(scan.bad_lines.clone());
        scan
    }
}
