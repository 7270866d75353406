//! Which framing a client speaks, told by the first bytes it sends.

use agentd_protocol::codec::Framing as StreamFraming;
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// How a connection frames its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    Lines,
    Headers,
    WebSocket,
}

impl Framing {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Framing::Lines => "lines",
            Framing::Headers => "headers",
            Framing::WebSocket => "websocket",
        }
    }

    /// The codec of a plain stream; WebSocket frames itself.
    pub(super) fn codec(self) -> Option<StreamFraming> {
        match self {
            Framing::Lines => Some(StreamFraming::Lines),
            Framing::Headers => Some(StreamFraming::Headers),
            Framing::WebSocket => None,
        }
    }
}

/// What is not decided after so many bytes is nonsense, and line framing answers that.
const ENOUGH: usize = 64;

/// The framing that begins so; `None` while more bytes are needed.
fn framing_of(prefix: &[u8]) -> Option<Framing> {
    let begun = prefix.trim_ascii_start();
    if begun.is_empty() {
        return (prefix.len() >= ENOUGH).then_some(Framing::Lines);
    }
    let mut undecided = false;
    for (start, framing) in [(&b"content-"[..], Framing::Headers), (&b"get "[..], Framing::WebSocket)] {
        let common = start.len().min(begun.len());
        if begun[..common].eq_ignore_ascii_case(&start[..common]) {
            if common == start.len() {
                return Some(framing);
            }
            undecided = true;
        }
    }
    if undecided { None } else { Some(Framing::Lines) }
}

/// Reads until the framing is known. Gives back what was read, which belongs to the first message. A stream that ends
/// before is line framing: whatever it sent is answered.
///
/// # Errors
/// The stream's own.
pub(super) async fn detect(reader: &mut (impl AsyncRead + Unpin)) -> std::io::Result<(Framing, BytesMut)> {
    let mut prefix = BytesMut::with_capacity(1024);
    loop {
        let ended = reader.read_buf(&mut prefix).await? == 0;
        match framing_of(&prefix) {
            Some(framing) => return Ok((framing, prefix)),
            None if ended => return Ok((Framing::Lines, prefix)),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_decide() {
        let blanks = [b' '; ENOUGH];
        let cases: &[(&[u8], Option<Framing>)] = &[
            (b"", None),
            (b"{", Some(Framing::Lines)),
            (b" \r\n\t{", Some(Framing::Lines)),
            (b"[", Some(Framing::Lines)),
            (b"C", None),
            (b"content", None),
            (b"Content-", Some(Framing::Headers)),
            (b"CONTENT-Type", Some(Framing::Headers)),
            (b"Contents", Some(Framing::Lines)),
            (b"GET", None),
            (b"GET ", Some(Framing::WebSocket)),
            (b"GETX", Some(Framing::Lines)),
            (b"POST / HTTP/1.1", Some(Framing::Lines)),
            (b"\xef\xbb\xbf{", Some(Framing::Lines)),
            (b"\0", Some(Framing::Lines)),
            (b" ", None),
            (&blanks, Some(Framing::Lines)),
        ];
        for (bytes, expected) in cases {
            assert_eq!(framing_of(bytes), *expected, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[tokio::test]
    async fn what_was_read_is_given_back() {
        let mut stream: &[u8] = b"\n{\"a\":1}";
        let (framing, prefix) = detect(&mut stream).await.unwrap();
        assert_eq!((framing, &prefix[..]), (Framing::Lines, &b"\n{\"a\":1}"[..]));
        let mut stream: &[u8] = b"Con";
        assert_eq!(detect(&mut stream).await.unwrap().0, Framing::Lines);
    }
}
