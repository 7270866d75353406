//! One JSON text a line. Lines end in LF or CRLF; empty ones count for nothing; a byte order mark is dropped. The last
//! line needs no end, so `printf '{…}' | nc -NU` works.

use bytes::{Buf, BytesMut};

use super::{Item, give_back, message};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[derive(Debug, Default)]
pub(super) struct Lines {
    /// How many bytes at the front are known to hold no newline: a long line in small pieces is scanned once.
    scanned: usize,
    /// Whether the rest of a line that is too long is being thrown away.
    skipping: bool,
}

impl Lines {
    pub(super) fn decode(&mut self, source: &mut BytesMut, max: usize) -> Option<Item> {
        loop {
            let Some(end) = newline(&source[self.scanned..]).map(|at| self.scanned + at) else {
                self.scanned = source.len();
                if self.skipping {
                    self.discard(source);
                } else if is_over(source, max) {
                    self.discard(source);
                    self.skipping = true;
                    return Some(Item::TooLarge);
                }
                return None;
            };
            let line = source.split_to(end);
            source.advance(1);
            self.scanned = 0;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            let item = item(&line, max);
            let taken = line.len();
            drop(line);
            give_back(source, taken);
            if item.is_some() {
                return item;
            }
        }
    }

    pub(super) fn decode_eof(&mut self, source: &mut BytesMut, max: usize) -> Option<Item> {
        if let Some(item) = self.decode(source, max) {
            return Some(item);
        }
        let line = source.split();
        self.scanned = 0;
        item(&line, max)
    }

    fn discard(&mut self, source: &mut BytesMut) {
        let taken = source.len();
        source.clear();
        give_back(source, taken);
        self.scanned = 0;
    }
}

fn newline(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|&byte| byte == b'\n')
}

/// The text of a line, without what belongs to the framing.
fn content(line: &[u8]) -> &[u8] {
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Whether a line that begins so is too long, whatever follows. A final CR may still turn out to belong to the line's
/// end, and is not counted.
fn is_over(begun: &[u8], max: usize) -> bool {
    content(begun).len() > max
}

fn item(line: &[u8], max: usize) -> Option<Item> {
    let content = content(line);
    if content.len() > max {
        return Some(Item::TooLarge);
    }
    if content.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
        return None;
    }
    Some(message(content))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], max: usize) -> Vec<Item> {
        let (mut lines, mut source) = (Lines::default(), BytesMut::from(bytes));
        let mut items: Vec<Item> = std::iter::from_fn(|| lines.decode(&mut source, max)).collect();
        items.extend(std::iter::from_fn(|| lines.decode_eof(&mut source, max)));
        items
    }

    fn text(text: &str) -> Item {
        Item::Message(text.to_owned())
    }

    #[test]
    fn rp_17_line_ends_marks_and_blank_lines() {
        let cases: &[(&[u8], &[Item])] = &[
            (b"", &[]),
            (b"\n\r\n  \n", &[]),
            (b"a\nb\r\nc", &[text("a"), text("b"), text("c")]),
            (b"\xef\xbb\xbfa\n", &[text("a")]),
            (b"\xff\xfe\na\n", &[Item::Invalid("the message is not valid UTF-8"), text("a")]),
            (b"a\0b\n", &[text("a\0b")]),
        ];
        for (bytes, expected) in cases {
            assert_eq!(all(bytes, 100), *expected, "{bytes:?}");
        }
    }

    #[test]
    fn rp_07_the_limit_holds_when_the_newline_comes_in_the_same_chunk() {
        assert_eq!(
            all(b"12345\n123456\n12345\r\nx\n", 5),
            [text("12345"), Item::TooLarge, text("12345"), text("x")]
        );
    }

    #[test]
    fn a_line_that_is_too_long_is_reported_once_and_not_kept() {
        let (mut lines, mut source) = (Lines::default(), BytesMut::new());
        let mut items = Vec::new();
        for _ in 0..10 {
            source.extend_from_slice(b"123456");
            items.extend(lines.decode(&mut source, 5));
            assert!(source.is_empty());
        }
        source.extend_from_slice(b"9\nok\n");
        items.extend(lines.decode(&mut source, 5));
        assert_eq!(items, [Item::TooLarge, text("ok")]);
    }

    #[test]
    fn a_cut_off_line_that_was_too_long_ends_in_nothing_more() {
        assert_eq!(all(b"1234567", 5), [Item::TooLarge]);
    }
}
