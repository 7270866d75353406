//! Reads a file line by line at given offsets, with bounded memory whatever the file holds.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::MAX_LINE;

/// Bytes asked of the kernel at a time.
const CHUNK: usize = 256 << 10;

pub(super) struct Lines<'f> {
    file: &'f File,
    /// Nothing at or after this offset is read.
    end: u64,
    /// Offset of `buffer[start]`.
    offset: u64,
    buffer: Vec<u8>,
    start: usize,
}

pub(super) struct Line<'a> {
    pub(super) offset: u64,
    /// The newline included.
    pub(super) len: u64,
    pub(super) text: Text<'a>,
}

pub(super) enum Text<'a> {
    /// With its newline.
    Whole(&'a [u8]),
    /// Over [`MAX_LINE`]; its text is not kept.
    TooLong,
    /// The end came before a newline.
    Unfinished,
}

impl<'f> Lines<'f> {
    pub(super) fn new(file: &'f File, offset: u64, end: u64) -> Self {
        Self { file, end, offset, buffer: Vec::new(), start: 0 }
    }

    /// The next line; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let offset = self.offset;
        let mut searched = 0;
        let mut dropped: u64 = 0;
        loop {
            let unread = &self.buffer[self.start..];
            if let Some(at) = unread[searched..].iter().position(|byte| *byte == b'\n') {
                let taken = searched + at + 1;
                let first = self.start;
                self.start += taken;
                let len = dropped + taken as u64;
                self.offset += len;
                let text = if dropped > 0 || taken > MAX_LINE {
                    Text::TooLong
                } else {
                    Text::Whole(&self.buffer[first..first + taken])
                };
                return Ok(Some(Line { offset, len, text }));
            }
            searched = unread.len();
            if searched > MAX_LINE {
                dropped += searched as u64;
                self.start = self.buffer.len();
                searched = 0;
            }
            if self.fill(offset + dropped + searched as u64)? == 0 {
                let len = dropped + searched as u64;
                self.start = self.buffer.len();
                self.offset += len;
                return Ok((len > 0).then_some(Line { offset, len, text: Text::Unfinished }));
            }
        }
    }

    fn fill(&mut self, at: u64) -> io::Result<usize> {
        let wanted = usize::try_from(self.end.saturating_sub(at)).unwrap_or(CHUNK).min(CHUNK);
        if wanted == 0 {
            return Ok(0);
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        let old = self.buffer.len();
        self.buffer.resize(old + wanted, 0);
        let result = loop {
            match self.file.read_at(&mut self.buffer[old..], at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.buffer.truncate(old + result.as_ref().copied().unwrap_or(0));
        result
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn shapes(content: &[u8]) -> Vec<(u64, u64, &'static str)> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        let mut lines = Lines::new(&file, 0, content.len() as u64);
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            let kind = match line.text {
                Text::Whole(text) => {
                    let from = usize::try_from(line.offset).unwrap();
                    assert_eq!(text, &content[from..from + text.len()]);
                    "whole"
                }
                Text::TooLong => "long",
                Text::Unfinished => "unfinished",
            };
            found.push((line.offset, line.len, kind));
        }
        found
    }

    #[test]
    fn every_byte_belongs_to_exactly_one_line() {
        assert_eq!(shapes(b""), []);
        assert_eq!(shapes(b"\n"), [(0, 1, "whole")]);
        assert_eq!(shapes(b"ab\n\ncd"), [(0, 3, "whole"), (3, 1, "whole"), (4, 2, "unfinished")]);
        let chunks =
            [vec![b'x'; CHUNK - 1], vec![b'\n'], vec![b'y'; CHUNK], vec![b'\n', b'z', b'\n']].concat();
        let c = CHUNK as u64;
        assert_eq!(shapes(&chunks), [(0, c, "whole"), (c, c + 1, "whole"), (2 * c + 1, 2, "whole")]);
    }

    #[test]
    fn a_line_of_64_mib_is_passed_over_with_bounded_memory() {
        let mut content = vec![b'x'; 64 << 20];
        content.extend_from_slice(b"\nok\n");
        assert_eq!(shapes(&content), [(0, (64 << 20) + 1, "long"), ((64 << 20) + 1, 3, "whole")]);

        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content).unwrap();
        let mut lines = Lines::new(&file, 0, content.len() as u64);
        lines.next().unwrap();
        assert!(lines.buffer.capacity() < 3 * MAX_LINE, "{} bytes are held", lines.buffer.capacity());
    }
}
