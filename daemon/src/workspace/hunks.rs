//! What differs between two files, as hunks that can be shown, and taken back one by one. Pure, on bytes: line ends and
//! odd encodings survive.

use std::ops::Range;

use similar::{Algorithm, DiffOp, capture_diff_slices, group_diff_ops};

use super::diff::{CONTEXT_LINES, MAX_DIFF_LINES};

/// git takes a file for binary if a NUL is among so many first bytes; so do we.
const LOOKED_AT: usize = 8000;

/// The difference of two contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Lines.
    pub added: u64,
    pub removed: u64,
    /// In order. Absent: the two differ in too many lines to be compared.
    pub hunks: Option<Vec<Hunk>>,
}

/// Neighbouring changed lines with those around them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    old: Range<usize>,
    new: Range<usize>,
    /// As a unified diff has it, `@@` line first.
    pub text: String,
}

/// Why a hunk cannot be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HunkError {
    #[error("its lines are not in the file any more")]
    Gone,
    #[error("its lines are in the file more than once, and none of them where they were")]
    Ambiguous,
}

/// Whether some content is no text, as git sees it.
#[must_use]
pub fn is_binary(content: &[u8]) -> bool {
    content.iter().take(LOOKED_AT).any(|byte| *byte == 0)
}

/// Compares two contents line by line.
#[must_use]
pub fn compare(old: &[u8], new: &[u8]) -> Compared {
    let (old, new) = (lines(old), lines(new));
    let start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let end = old[start..].iter().rev().zip(new[start..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (n_old, n_new) = (old.len() - start - end, new.len() - start - end);
    // Only removing or only adding needs no search, however much it is.
    if n_old.min(n_new) > 0 && n_old.max(n_new) > MAX_DIFF_LINES {
        return Compared { added: n_new as u64, removed: n_old as u64, hunks: None };
    }
    let mut compared = Compared::default();
    let mut hunks = Vec::new();
    for group in group_diff_ops(capture_diff_slices(Algorithm::Myers, &old, &new), CONTEXT_LINES) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let (first, last) = (first.as_tag_tuple(), last.as_tag_tuple());
        let hunk = (first.1.start..last.1.end, first.2.start..last.2.end);
        let mut text = format!("@@ -{} +{} @@\n", place(&hunk.0), place(&hunk.1));
        for op in &group {
            let (_, of_old, of_new) = op.as_tag_tuple();
            if let DiffOp::Equal { .. } = op {
                of_old.for_each(|line| push(&mut text, ' ', old[line]));
                continue;
            }
            compared.removed += of_old.len() as u64;
            compared.added += of_new.len() as u64;
            of_old.for_each(|line| push(&mut text, '-', old[line]));
            of_new.for_each(|line| push(&mut text, '+', new[line]));
        }
        hunks.push(Hunk { old: hunk.0, new: hunk.1, text });
    }
    compared.hunks = Some(hunks);
    compared
}

/// Takes a hunk between `old` and `new` back out of `current`, wherever its lines stand now.
///
/// # Errors
/// The lines that the hunk left behind are not there as they were.
pub fn take_back(current: &[u8], old: &[u8], new: &[u8], hunk: &Hunk) -> Result<Vec<u8>, HunkError> {
    let (old, new, current) = (lines(old), lines(new), lines(current));
    let left_behind = &new[hunk.new.clone()];
    let at = if left_behind.is_empty() {
        // It emptied the file.
        if current.is_empty() { 0 } else { return Err(HunkError::Gone) }
    } else {
        find(&current, left_behind, hunk.new.start)?
    };
    let restored = &old[hunk.old.clone()];
    let after = &current[at + left_behind.len()..];
    Ok([&current[..at], restored, after].concat().concat())
}

fn find(current: &[&[u8]], wanted: &[&[u8]], expected: usize) -> Result<usize, HunkError> {
    if current.get(expected..).is_some_and(|rest| rest.starts_with(wanted)) {
        return Ok(expected);
    }
    let mut found = current.windows(wanted.len()).enumerate().filter(|(_, lines)| *lines == wanted);
    match (found.next(), found.next()) {
        (Some((at, _)), None) => Ok(at),
        (Some(_), Some(_)) => Err(HunkError::Ambiguous),
        (None, _) => Err(HunkError::Gone),
    }
}

fn lines(content: &[u8]) -> Vec<&[u8]> {
    content.split_inclusive(|byte| *byte == b'\n').collect()
}

/// First line, counted from 1, and how many: `3,7`; of none, the line before.
fn place(range: &Range<usize>) -> String {
    match range.len() {
        0 => format!("{},0", range.start),
        1 => (range.start + 1).to_string(),
        count => format!("{},{count}", range.start + 1),
    }
}

fn push(text: &mut String, sign: char, line: &[u8]) {
    text.push(sign);
    text.push_str(&String::from_utf8_lossy(line));
    if !line.ends_with(b"\n") {
        text.push_str("\n\\ No newline at end of file\n");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbered(count: usize) -> String {
        (1..=count).map(|n| format!("line {n}\n")).collect()
    }

    fn hunks(old: &str, new: &str) -> Vec<Hunk> {
        compare(old.as_bytes(), new.as_bytes()).hunks.unwrap()
    }

    #[test]
    fn hunks_read_as_git_writes_them() {
        let old = numbered(30);
        let new = old.replace("line 5\n", "five\n").replace("line 25\n", "");
        let found = hunks(&old, &new);
        assert_eq!(found.len(), 2);
        assert_eq!(
            found[0].text,
            "@@ -2,7 +2,7 @@\n line 2\n line 3\n line 4\n-line 5\n+five\n line 6\n line 7\n line 8\n"
        );
        assert!(found[1].text.starts_with("@@ -22,7 +22,6 @@\n"), "{}", found[1].text);
        let compared = compare(old.as_bytes(), new.as_bytes());
        assert_eq!((compared.added, compared.removed), (1, 2));
        assert_eq!(hunks("", "x")[0].text, "@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n");
        assert_eq!(hunks("x\n", "")[0].text, "@@ -1 +0,0 @@\n-x\n");
        assert!(hunks("same\n", "same\n").is_empty());
    }

    #[test]
    fn one_of_two_hunks_is_taken_back_and_the_other_stays() {
        let old = numbered(30);
        let new = old.replace("line 5\n", "five\n").replace("line 25\n", "twenty-five\n");
        let found = hunks(&old, &new);
        let back = take_back(new.as_bytes(), old.as_bytes(), new.as_bytes(), &found[0]).unwrap();
        assert_eq!(
            String::from_utf8(back).unwrap(),
            new.replace("five\n", "line 5\n").replace("twenty-line 5", "twenty-five")
        );
    }

    #[test]
    fn a_hunk_is_found_where_its_lines_have_moved_to() {
        let old = numbered(20);
        let new = old.replace("line 10\n", "ten\n");
        let current = format!("a\nb\n{new}");
        let hunk = &hunks(&old, &new)[0];
        let back = take_back(current.as_bytes(), old.as_bytes(), new.as_bytes(), hunk).unwrap();
        assert_eq!(String::from_utf8(back).unwrap(), format!("a\nb\n{old}"));
    }

    #[test]
    fn lines_that_changed_since_or_stand_twice_are_refused() {
        let old = "a\nb\nc\n";
        let new = "a\nB\nc\n";
        let hunk = &hunks(old, new)[0];
        let back = |current: &str| take_back(current.as_bytes(), old.as_bytes(), new.as_bytes(), hunk);
        assert_eq!(back("a\nBB\nc\n"), Err(HunkError::Gone));
        assert_eq!(back("x\na\nB\nc\na\nB\nc\n"), Err(HunkError::Ambiguous));
        assert_eq!(back("").unwrap_err(), HunkError::Gone);
        let emptied = &hunks("a\n", "")[0];
        assert_eq!(take_back(b"", b"a\n", b"", emptied).unwrap(), b"a\n");
        assert_eq!(take_back(b"b\n", b"a\n", b"", emptied), Err(HunkError::Gone));
    }

    #[test]
    fn what_differs_in_too_many_lines_is_counted() {
        let many = |word: &str| (0..6000).map(|n| format!("{word}{n}\n")).collect::<String>();
        let compared = compare(many("a").as_bytes(), many("b").as_bytes());
        assert_eq!((compared.added, compared.removed, compared.hunks), (6000, 6000, None));
    }

    #[test]
    fn nul_makes_a_file_binary() {
        assert!(is_binary(b"a\0b") && !is_binary(b"a\r\n\xff"));
    }

    proptest! {
        /// Taking all hunks back, last first, gives the old bytes, whatever they are.
        #[test]
        fn all_hunks_taken_back_are_the_old_file(
            old in proptest::collection::vec(proptest::sample::select(vec!["a\n", "b\r\n", "c\n", "\n", "d"]), 0..40),
            new in proptest::collection::vec(proptest::sample::select(vec!["a\n", "b\r\n", "c\n", "\n", "e"]), 0..40),
        ) {
            let (old, new) = (old.concat(), new.concat());
            let mut current = new.clone().into_bytes();
            for hunk in hunks(&old, &new).iter().rev() {
                current = take_back(&current, old.as_bytes(), new.as_bytes(), hunk).unwrap();
            }
            prop_assert_eq!(current, old.into_bytes());
        }
    }
}
