//! LSP headers: `Content-Length: N`, an empty line, N bytes. Names in any case, other headers ignored. A header that
//! cannot be read leaves no way to find the next message, so the stream ends there.

use bytes::{Buf, BytesMut};

use super::{Item, give_back, message};

/// No header block is longer. Real ones have 22 to 80 bytes.
const MAX_HEADER: usize = 4096;

#[derive(Debug, Default)]
pub(super) enum Headers {
    #[default]
    Header,
    Body {
        length: usize,
    },
    /// A body over the limit is thrown away as it comes.
    Skip {
        left: u64,
    },
    /// After a header that could not be read.
    Broken,
}

impl Headers {
    pub(super) fn decode(&mut self, source: &mut BytesMut, max: usize) -> Option<Item> {
        loop {
            match self {
                Headers::Header => {
                    let blanks = source.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
                    source.advance(blanks);
                    let Some(end) = header_end(source) else {
                        if source.len() >= MAX_HEADER {
                            return self.give_up(source, "the header is longer than 4 KiB");
                        }
                        return None;
                    };
                    match content_length(&source.split_to(end)) {
                        Err(problem) => return self.give_up(source, problem),
                        Ok(length) => match usize::try_from(length) {
                            Ok(length) if length <= max => *self = Headers::Body { length },
                            _ => {
                                *self = Headers::Skip { left: length };
                                return Some(Item::TooLarge);
                            }
                        },
                    }
                }
                Headers::Body { length } => {
                    if source.len() < *length {
                        return None;
                    }
                    let body = source.split_to(*length);
                    *self = Headers::Header;
                    let item = message(&body);
                    let taken = body.len();
                    drop(body);
                    give_back(source, taken);
                    return Some(item);
                }
                Headers::Skip { left } => {
                    let here = usize::try_from(*left).map_or(source.len(), |left| left.min(source.len()));
                    source.advance(here);
                    *left -= here as u64;
                    if *left > 0 {
                        return None;
                    }
                    *self = Headers::Header;
                }
                Headers::Broken => {
                    source.clear();
                    return None;
                }
            }
        }
    }

    pub(super) fn decode_eof(&mut self, source: &mut BytesMut, max: usize) -> Option<Item> {
        if let Some(item) = self.decode(source, max) {
            return Some(item);
        }
        match self {
            Headers::Header if source.is_empty() => None,
            Headers::Header | Headers::Body { .. } => {
                self.give_up(source, "the stream ended within a message")
            }
            Headers::Skip { .. } | Headers::Broken => None,
        }
    }

    fn give_up(&mut self, source: &mut BytesMut, problem: &'static str) -> Option<Item> {
        *self = Headers::Broken;
        source.clear();
        Some(Item::Broken(problem))
    }
}

/// Where the header block ends, its empty line included, if it does within the limit.
fn header_end(source: &[u8]) -> Option<usize> {
    let window = &source[..source.len().min(MAX_HEADER)];
    let mut line_start = 0;
    for (at, _) in window.iter().enumerate().filter(|&(_, &byte)| byte == b'\n') {
        if matches!(&window[line_start..at], b"" | b"\r") {
            return Some(at + 1);
        }
        line_start = at + 1;
    }
    None
}

fn content_length(header: &[u8]) -> Result<u64, &'static str> {
    let header = std::str::from_utf8(header).map_err(|_| "the header is not text")?;
    let mut length = None;
    for line in header.lines().filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or("a header line has no colon")?;
        if !name.trim().eq_ignore_ascii_case("content-length") {
            continue;
        }
        let value = value.trim();
        // `parse` alone would take "+5".
        if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err("Content-Length is not a number");
        }
        let value = value.parse().map_err(|_| "Content-Length is absurd")?;
        if length.replace(value).is_some() {
            return Err("Content-Length is given twice");
        }
    }
    length.ok_or("the header has no Content-Length")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], max: usize) -> Vec<Item> {
        let (mut headers, mut source) = (Headers::default(), BytesMut::from(bytes));
        let mut items: Vec<Item> = std::iter::from_fn(|| headers.decode(&mut source, max)).collect();
        items.extend(std::iter::from_fn(|| headers.decode_eof(&mut source, max)));
        items
    }

    #[test]
    fn messages_follow_each_other_in_any_spelling() {
        let stream = b"Content-Length: 2\r\n\r\n{}content-LENGTH:3\nContent-Type: application/json\n\n[1]\r\nContent-Length: 1\r\n\r\n5";
        let expected: Vec<Item> = ["{}", "[1]", "5"].map(|text| Item::Message(text.into())).into();
        assert_eq!(all(stream, 100), expected);
    }

    #[test]
    fn a_body_over_the_limit_is_skipped() {
        let stream = b"Content-Length: 6\r\n\r\n123456Content-Length: 2\r\n\r\n{}";
        assert_eq!(all(stream, 5), [Item::TooLarge, Item::Message("{}".into())]);
        assert_eq!(all(b"Content-Length: 99999999999999\r\n\r\n123", 5), [Item::TooLarge]);
    }

    #[test]
    fn hostile_headers_end_the_stream_with_one_item() {
        let long = [b"X: ".to_vec(), vec![b'y'; 5000]].concat();
        let cases: &[&[u8]] = &[
            b"Content-Length: -1\r\n\r\n{}",
            b"Content-Length: +1\r\n\r\n{}",
            b"Content-Length: 1 2\r\n\r\n{}",
            b"Content-Length: 99999999999999999999999\r\n\r\n{}",
            b"Content-Length:\r\n\r\n{}",
            b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
            b"Content-Type: x\r\n\r\n{}",
            b"nonsense\r\n\r\n{}",
            b"\xff: 1\r\n\r\n{}",
            b"Content-Length: 2\r\n\r\n{",
            b"Content-Len",
            &long,
        ];
        for bytes in cases {
            let items = all(bytes, 100);
            assert!(
                matches!(items[..], [Item::Broken(_)]),
                "{:?}: {items:?}",
                String::from_utf8_lossy(bytes)
            );
        }
    }
}
