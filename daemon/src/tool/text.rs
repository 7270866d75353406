//! Text files as a model sees them, and back: encoding, byte order mark, line endings. Pure.

/// U+FEFF in UTF-8.
pub(crate) const BOM: &[u8] = b"\xef\xbb\xbf";

/// Why bytes are not shown as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotText {
    Binary,
    /// Some other encoding, with its name where that can be told.
    Encoding(Option<&'static str>),
}

impl NotText {
    /// What to tell the model about `path`.
    pub(crate) fn explain(&self, path: &str) -> String {
        match self {
            NotText::Binary => {
                format!("{path} is a binary file. Use run_shell with a fitting program to look into it.")
            }
            NotText::Encoding(name) => format!(
                "{path} is not UTF-8 text{}, and is neither shown nor changed, so that nothing of it is lost. \
                 Use run_shell to convert it, for example with iconv.",
                name.map_or_else(String::new, |name| format!(" (it looks like {name})"))
            ),
        }
    }
}

/// The text of a file without its byte order mark, and whether it had one.
pub(crate) fn decode(bytes: &[u8]) -> Result<(&str, bool), NotText> {
    for (mark, name) in [
        (&b"\xff\xfe\0\0"[..], "UTF-32"),
        (b"\0\0\xfe\xff", "UTF-32"),
        (b"\xff\xfe", "UTF-16"),
        (b"\xfe\xff", "UTF-16"),
    ] {
        if bytes.starts_with(mark) {
            return Err(NotText::Encoding(Some(name)));
        }
    }
    let (body, has_bom) = bytes.strip_prefix(BOM).map_or((bytes, false), |body| (body, true));
    if body.contains(&0) {
        return Err(if looks_like_utf16(body) { NotText::Encoding(Some("UTF-16")) } else { NotText::Binary });
    }
    match std::str::from_utf8(body) {
        Ok(text) => Ok((text, has_bom)),
        Err(_) if is_mostly_text(body) => Err(NotText::Encoding(None)),
        Err(_) => Err(NotText::Binary),
    }
}

/// UTF-16 of mostly Latin text without a mark: every second byte is NUL.
fn looks_like_utf16(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(4096)];
    let nuls_at = |parity: usize| head.iter().skip(parity).step_by(2).filter(|&&b| b == 0).count();
    let (even, odd) = (nuls_at(0), nuls_at(1));
    let half = head.len() / 2;
    half >= 2 && (even.max(odd) * 10 >= half * 7) && even.min(odd) * 10 <= half
}

/// Text of an 8-bit encoding has no control characters but blanks; other binary data soon shows one.
fn is_mostly_text(bytes: &[u8]) -> bool {
    bytes.iter().take(4096).all(|&b| b >= 0x20 || matches!(b, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b))
}

/// How lines end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Lf,
    CrLf,
    Cr,
}

impl Ending {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Ending::Lf => "\n",
            Ending::CrLf => "\r\n",
            Ending::Cr => "\r",
        }
    }

    /// The first line ending in `text`.
    pub(crate) fn first(text: &str) -> Option<Self> {
        let at = text.find(['\n', '\r'])?;
        Some(Self::at(text, at))
    }

    /// The last line ending in `text`.
    pub(crate) fn last(text: &str) -> Option<Self> {
        let at = text.rfind(['\n', '\r'])?;
        let start = if text[..=at].ends_with("\r\n") { at - 1 } else { at };
        Some(Self::at(text, start))
    }

    fn at(text: &str, at: usize) -> Self {
        match &text.as_bytes()[at..] {
            [b'\r', b'\n', ..] => Ending::CrLf,
            [b'\r', ..] => Ending::Cr,
            _ => Ending::Lf,
        }
    }

    /// Whether all lines of `text` end so, and there are some.
    pub(crate) fn is_only_crlf(text: &str) -> bool {
        let pairs = text.matches("\r\n").count();
        pairs > 0
            && text.bytes().filter(|&b| b == b'\n').count() == pairs
            && text.bytes().filter(|&b| b == b'\r').count() == pairs
    }
}

/// Cuts `text` after at most `max` characters. Returns the rest's length in characters too, 0 when nothing was cut.
pub(crate) fn cut_chars(text: &str, max: usize) -> (&str, usize) {
    if text.len() <= max {
        return (text, 0);
    }
    match text.char_indices().nth(max) {
        None => (text, 0),
        Some((end, _)) => (&text[..end], text[end..].chars().count()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_told_apart() {
        let utf16: Vec<u8> = "hello there".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let with_mark: Vec<u8> = [b"\xff\xfe".to_vec(), utf16.clone()].concat();
        assert_eq!(decode(b"plain"), Ok(("plain", false)));
        assert_eq!(decode(b""), Ok(("", false)));
        assert_eq!(decode(b"\xef\xbb\xbfx"), Ok(("x", true)));
        assert_eq!(decode(&with_mark), Err(NotText::Encoding(Some("UTF-16"))));
        assert_eq!(decode(&utf16), Err(NotText::Encoding(Some("UTF-16"))));
        assert_eq!(decode(b"\xff\xfe\0\0a\0\0\0"), Err(NotText::Encoding(Some("UTF-32"))));
        assert_eq!(decode(b"na\xefve text"), Err(NotText::Encoding(None)));
        assert_eq!(decode(b"\x89PNG\r\n\x1a\n\0\0"), Err(NotText::Binary));
        assert_eq!(decode(b"a\0b"), Err(NotText::Binary));
        assert_eq!(decode(b"\x01\x02\xff"), Err(NotText::Binary));
    }

    #[test]
    fn endings_are_found_from_both_sides() {
        assert_eq!(Ending::first("a\r\nb\nc"), Some(Ending::CrLf));
        assert_eq!(Ending::last("a\r\nb\nc"), Some(Ending::Lf));
        assert_eq!(Ending::last("a\nb\r\n"), Some(Ending::CrLf));
        assert_eq!(Ending::first("a\rb"), Some(Ending::Cr));
        assert_eq!(Ending::last("a\rb"), Some(Ending::Cr));
        assert_eq!(Ending::first("a"), None);
        assert!(Ending::is_only_crlf("a\r\nb\r\n"));
        for mixed in ["a\r\nb\n", "a\r\nb\r", "a\n", "a"] {
            assert!(!Ending::is_only_crlf(mixed), "{mixed:?}");
        }
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(cut_chars("äöü", 2), ("äö", 1));
        assert_eq!(cut_chars("äöü", 3), ("äöü", 0));
        assert_eq!(cut_chars("abc", 5), ("abc", 0));
    }
}
