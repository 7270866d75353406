//! The framings of the socket as tokio codecs: one JSON text a line, or LSP headers. Both turn bytes into the same
//! [`Item`]s, so everything behind them is the same. WebSocket frames itself and needs no codec.
//!
//! A codec never fails on what the other side sent: what cannot be a message becomes an item that says so, and the
//! reader decides. Bytes never make it panic, and how they were cut into reads never changes what comes out.

mod headers;
mod lines;

use std::io;

use bytes::{BufMut, BytesMut};
use tokio_util::codec::{Decoder, Encoder};

/// The longest message that the daemon takes unless told otherwise.
pub const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// How messages are told apart in a stream of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// One JSON text a line.
    Lines,
    /// `Content-Length: N`, an empty line, N bytes: what LSP client libraries speak.
    Headers,
}

/// What a reader gets out of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// One message. Valid UTF-8; whether it is JSON is the reader's business.
    Message(String),
    /// A message over the limit. It was skipped; the next one is fine.
    TooLarge,
    /// Something that cannot be a message. It was skipped; the next one is fine.
    Invalid(&'static str),
    /// Where the next message begins is not known any more: nothing more will come.
    Broken(&'static str),
}

/// A codec for either framing.
#[derive(Debug)]
pub struct Codec {
    state: State,
    max_message: usize,
}

#[derive(Debug)]
enum State {
    Lines(lines::Lines),
    Headers(headers::Headers),
}

impl Codec {
    /// `max_message` counts the bytes of one message without its framing.
    #[must_use]
    pub fn new(framing: Framing, max_message: usize) -> Self {
        let state = match framing {
            Framing::Lines => State::Lines(lines::Lines::default()),
            Framing::Headers => State::Headers(headers::Headers::default()),
        };
        Self { state, max_message }
    }

    #[must_use]
    pub fn framing(&self) -> Framing {
        match self.state {
            State::Lines(_) => Framing::Lines,
            State::Headers(_) => Framing::Headers,
        }
    }
}

impl Decoder for Codec {
    type Item = Item;
    type Error = io::Error;

    fn decode(&mut self, source: &mut BytesMut) -> Result<Option<Item>, io::Error> {
        Ok(match &mut self.state {
            State::Lines(lines) => lines.decode(source, self.max_message),
            State::Headers(headers) => headers.decode(source, self.max_message),
        })
    }

    fn decode_eof(&mut self, source: &mut BytesMut) -> Result<Option<Item>, io::Error> {
        Ok(match &mut self.state {
            State::Lines(lines) => lines.decode_eof(source, self.max_message),
            State::Headers(headers) => headers.decode_eof(source, self.max_message),
        })
    }
}

/// Encodes one JSON text.
impl Encoder<&str> for Codec {
    type Error = io::Error;

    fn encode(&mut self, json: &str, target: &mut BytesMut) -> Result<(), io::Error> {
        match self.state {
            State::Lines(_) => {
                target.reserve(json.len() + 1);
                // Between the tokens of a JSON text a line break is a blank like any other, and within a string there is
                // none; so this changes the layout only. A caller's pretty-printed fragment would break the framing.
                let start = target.len();
                target.put_slice(json.as_bytes());
                for byte in &mut target[start..] {
                    if matches!(byte, b'\n' | b'\r') {
                        *byte = b' ';
                    }
                }
                target.put_u8(b'\n');
            }
            State::Headers(_) => {
                let header = format!("Content-Length: {}\r\n\r\n", json.len());
                target.reserve(header.len() + json.len());
                target.put_slice(header.as_bytes());
                target.put_slice(json.as_bytes());
            }
        }
        Ok(())
    }
}

/// A buffer that grew for one message is given back after it: most connections are idle most of the time.
const KEEP: usize = 64 * 1024;

/// Room for the next read in a buffer that was made anew.
const READ: usize = 8 * 1024;

/// After `taken` bytes were taken out of `source`.
fn give_back(source: &mut BytesMut, taken: usize) {
    if taken > KEEP {
        // With some room: a buffer without any is read into by a few bytes at a time.
        let mut smaller = BytesMut::with_capacity(source.len().max(READ));
        smaller.put_slice(source);
        *source = smaller;
    }
}

/// The bytes of one message as an item.
fn message(bytes: &[u8]) -> Item {
    match std::str::from_utf8(bytes) {
        Ok(text) => Item::Message(text.to_owned()),
        Err(_) => Item::Invalid("the message is not valid UTF-8"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_skipped_is_not_read_in_crumbs() {
        let mut lines = Codec::new(Framing::Lines, KEEP);
        let mut source = BytesMut::from(&vec![b'x'; 2 * KEEP][..]);
        assert_eq!(lines.decode(&mut source).unwrap(), Some(Item::TooLarge));
        assert!(source.is_empty() && source.capacity() >= READ, "{} bytes of room", source.capacity());
    }

    #[test]
    fn a_line_break_in_a_text_becomes_a_blank() {
        let mut out = BytesMut::new();
        Codec::new(Framing::Lines, MAX_MESSAGE).encode("{\n\t\"a\":\r\n1}", &mut out).unwrap();
        assert_eq!(&out[..], b"{ \t\"a\":  1}\n");
    }

    #[test]
    fn headers_count_bytes_not_characters() {
        let mut out = BytesMut::new();
        Codec::new(Framing::Headers, MAX_MESSAGE).encode("\"é\n\"", &mut out).unwrap();
        assert_eq!(&out[..], "Content-Length: 5\r\n\r\n\"é\n\"".as_bytes());
    }
}

#[cfg(test)]
mod memory {
    use super::*;

    #[test]
    fn a_large_message_leaves_no_large_buffer() {
        let large = "x".repeat(4 * KEEP);
        for (framing, max) in
            [(Framing::Lines, MAX_MESSAGE), (Framing::Headers, MAX_MESSAGE), (Framing::Lines, 10)]
        {
            let mut source = BytesMut::new();
            Codec::new(framing, max).encode(large.as_str(), &mut source).unwrap();
            let mut codec = Codec::new(framing, max);
            codec.decode(&mut source).unwrap().unwrap();
            // Anything that is still shared with the large buffer would keep it.
            source.reserve(1);
            assert!(source.capacity() <= KEEP, "{framing:?}: {}", source.capacity());
        }
    }
}

#[cfg(test)]
mod properties {
    use proptest::prelude::*;

    use super::*;

    const MAX: usize = 24;

    /// Everything that a stream decodes to when it arrives cut at `cuts`.
    fn decode(framing: Framing, bytes: &[u8], cuts: &[usize]) -> Vec<Item> {
        let mut codec = Codec::new(framing, MAX);
        let mut buffer = BytesMut::new();
        let mut items = Vec::new();
        let mut start = 0;
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        ends.push(bytes.len());
        ends.sort_unstable();
        for end in ends {
            buffer.extend_from_slice(&bytes[start..end]);
            start = end;
            while let Some(item) = codec.decode(&mut buffer).unwrap() {
                items.push(item);
            }
        }
        while let Some(item) = codec.decode_eof(&mut buffer).unwrap() {
            items.push(item);
        }
        assert!(buffer.is_empty(), "nothing stays behind");
        items
    }

    /// Bytes that look like traffic: fragments that matter to a framing, in any order.
    fn traffic() -> impl Strategy<Value = Vec<u8>> {
        let fragment = prop_oneof![
            Just(b"{\"id\":1}".to_vec()),
            Just(b"\n".to_vec()),
            Just(b"\r\n".to_vec()),
            Just(b"\r".to_vec()),
            Just(b"\xef\xbb\xbf".to_vec()),
            Just(b"\xff".to_vec()),
            Just(b"  ".to_vec()),
            Just(b"Content-Length: 8\r\n\r\n".to_vec()),
            Just(b"content-LENGTH:8\n\n".to_vec()),
            Just(b"Content-Length: 30\r\nContent-Type: x\r\n\r\n".to_vec()),
            Just(b"Content-Length: x\r\n\r\n".to_vec()),
            (0usize..40).prop_map(|n| vec![b'a'; n]),
            proptest::collection::vec(any::<u8>(), 0..6),
        ];
        proptest::collection::vec(fragment, 0..12).prop_map(|fragments| fragments.concat())
    }

    proptest! {
        #[test]
        fn cutting_the_stream_changes_nothing(
            bytes in traffic(),
            cuts in proptest::collection::vec(any::<usize>(), 0..40),
        ) {
            for framing in [Framing::Lines, Framing::Headers] {
                let whole = decode(framing, &bytes, &[]);
                prop_assert_eq!(&decode(framing, &bytes, &cuts), &whole);
                let every_byte: Vec<usize> = (0..bytes.len()).collect();
                prop_assert_eq!(&decode(framing, &bytes, &every_byte), &whole);
            }
        }

        #[test]
        fn no_bytes_make_it_panic_and_no_message_is_over_the_limit(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for framing in [Framing::Lines, Framing::Headers] {
                for item in decode(framing, &bytes, &[]) {
                    if let Item::Message(text) = item {
                        prop_assert!(text.len() <= MAX);
                    }
                }
            }
        }

        #[test]
        fn what_is_encoded_is_decoded(texts in proptest::collection::vec("[a-zé{}]{1,10}", 0..6)) {
            for framing in [Framing::Lines, Framing::Headers] {
                let mut bytes = BytesMut::new();
                for text in &texts {
                    Codec::new(framing, MAX).encode(text.as_str(), &mut bytes).unwrap();
                }
                let expected: Vec<Item> = texts.iter().cloned().map(Item::Message).collect();
                prop_assert_eq!(decode(framing, &bytes, &[]), expected);
            }
        }
    }
}
