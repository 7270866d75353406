//! What a process printed, in bounded memory: the beginning, the end, and how much there was.

use std::collections::VecDeque;

/// How many bytes of an output are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimits {
    /// From the beginning.
    pub head: usize,
    /// From the end.
    pub tail: usize,
}

impl Default for OutputLimits {
    /// 16 KiB each: the beginning says what a build was doing, the end says how it went.
    fn default() -> Self {
        Self { head: 16 * 1024, tail: 16 * 1024 }
    }
}

/// Takes output as it comes. Never holds more than its limits.
#[derive(Debug)]
pub(super) struct Capture {
    limits: OutputLimits,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total_bytes: u64,
}

impl Capture {
    pub(super) fn new(limits: OutputLimits) -> Self {
        Self { limits, head: Vec::new(), tail: VecDeque::new(), total_bytes: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total_bytes += bytes.len() as u64;
        let to_head = bytes.len().min(self.limits.head - self.head.len());
        let (head, rest) = bytes.split_at(to_head);
        self.head.extend_from_slice(head);
        let newest = &rest[rest.len().saturating_sub(self.limits.tail)..];
        let surplus = (self.tail.len() + newest.len()).saturating_sub(self.limits.tail);
        self.tail.drain(..surplus);
        self.tail.extend(newest);
    }

    pub(super) fn finish(self) -> Captured {
        Captured { head: self.head, tail: self.tail.into(), total_bytes: self.total_bytes }
    }
}

/// A finished output. Bytes, since nothing says that a program prints UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    pub head: Vec<u8>,
    /// Empty as long as everything fits into the head.
    pub tail: Vec<u8>,
    pub total_bytes: u64,
}

/// An output as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parts {
    Whole(String),
    Cut { head: String, left_out_bytes: u64, tail: String },
}

impl Captured {
    /// Decodes the output. A character that the cut went through counts as left out; bytes that are no UTF-8 become
    /// replacement characters.
    #[must_use]
    pub fn parts(&self) -> Parts {
        let kept = (self.head.len() + self.tail.len()) as u64;
        if kept >= self.total_bytes {
            let whole = [self.head.as_slice(), self.tail.as_slice()].concat();
            return Parts::Whole(String::from_utf8_lossy(&whole).into_owned());
        }
        let head = &self.head[..self.head.len() - split_at_end(&self.head)];
        let tail = &self.tail[split_at_start(&self.tail)..];
        Parts::Cut {
            head: String::from_utf8_lossy(head).into_owned(),
            left_out_bytes: self.total_bytes - (head.len() + tail.len()) as u64,
            tail: String::from_utf8_lossy(tail).into_owned(),
        }
    }
}

/// How many bytes at the end begin a character that is not complete.
fn split_at_end(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - back];
        let length = match byte {
            0b1100_0000..=0b1101_1111 => 2,
            0b1110_0000..=0b1110_1111 => 3,
            0b1111_0000..=0b1111_0111 => 4,
            0b1000_0000..=0b1011_1111 => continue,
            _ => return 0,
        };
        return if length > back { back } else { 0 };
    }
    0
}

/// How many bytes at the start continue a character that began earlier.
fn split_at_start(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|byte| matches!(byte, 0b1000_0000..=0b1011_1111)).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn capture(limits: (usize, usize), chunks: &[&[u8]]) -> Captured {
        let mut capture = Capture::new(OutputLimits { head: limits.0, tail: limits.1 });
        for chunk in chunks {
            capture.push(chunk);
        }
        capture.finish()
    }

    fn cut(head: &str, left_out_bytes: u64, tail: &str) -> Parts {
        Parts::Cut { head: head.into(), left_out_bytes, tail: tail.into() }
    }

    #[test]
    fn what_fits_is_kept_whole_across_the_seam() {
        assert_eq!(capture((3, 3), &[b"ab", b"cd", b"ef"]).parts(), Parts::Whole("abcdef".into()));
    }

    #[test]
    fn a_character_across_the_seam_is_whole_when_nothing_was_left_out() {
        assert_eq!(capture((2, 9), &["a\u{4e2d}b".as_bytes()]).parts(), Parts::Whole("a\u{4e2d}b".into()));
    }

    #[test]
    fn the_middle_is_left_out() {
        assert_eq!(capture((2, 3), &[b"abcdefghij"]).parts(), cut("ab", 5, "hij"));
        assert_eq!(capture((2, 3), &[b"a", b"bc", b"defghi", b"j"]).parts(), cut("ab", 5, "hij"));
    }

    #[test]
    fn no_room_keeps_only_the_count() {
        assert_eq!(capture((0, 0), &[b"abc"]).parts(), cut("", 3, ""));
    }

    /// SH-08: every offset of the cut inside a character.
    #[test]
    fn sh_08_the_cut_never_splits_a_character() {
        for pad in 0..8 {
            let text = format!("{}{}", "x".repeat(pad), "\u{1f600}\u{4e2d}\u{e9}".repeat(40));
            let Parts::Cut { head, left_out_bytes, tail } = capture((37, 41), &[text.as_bytes()]).parts()
            else {
                panic!("expected a cut at pad {pad}");
            };
            assert!(text.starts_with(&head), "pad {pad}: {head}");
            assert!(text.ends_with(&tail), "pad {pad}: {tail}");
            assert_eq!(head.len() as u64 + left_out_bytes + tail.len() as u64, text.len() as u64);
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(capture((9, 9), &[b"a\xffb"]).parts(), Parts::Whole("a\u{fffd}b".into()));
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_the_ends_are_right(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20),
            head in 0_usize..30,
            tail in 0_usize..30,
        ) {
            let all = chunks.concat();
            let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            let captured = capture((head, tail), &chunks);
            prop_assert_eq!(&captured.head[..], &all[..all.len().min(head)]);
            let rest = &all[captured.head.len()..];
            prop_assert_eq!(&captured.tail[..], &rest[rest.len().saturating_sub(tail)..]);
            prop_assert_eq!(captured.total_bytes, all.len() as u64);
            let _ = captured.parts();
        }
    }
}
