//! How far a journal had come when something was made of it, so that reading can go on from there instead of from the
//! start. A mark is a claim about a file, and is checked against it before it is believed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use serde::{Deserialize, Serialize};

use super::index::Index;
use super::{MAX_LINE, Place};
use crate::ids::{Digest, Seq, digest_of};

/// The end of one commit in a journal, with what reading all before it has shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub(super) index: Index,
    /// Of the newest commit's line: another journal of the same length, or one that was put back, has another.
    line: Digest,
}

impl Mark {
    /// Absent for an empty journal.
    pub(super) fn of(index: Index, file: &File) -> io::Result<Option<Self>> {
        let Some(last) = index.last else { return Ok(None) };
        let line = digest_of(&read_line(file, last)?);
        Ok(Some(Self { index, line }))
    }

    /// Whether a file of `len` bytes begins with what this mark was made of.
    pub(super) fn fits(&self, file: &File, len: u64) -> bool {
        let index = &self.index;
        let Some(last) = index.last else { return false };
        index.len <= len
            && last.offset.checked_add(u64::from(last.len)) == Some(index.len)
            && last.len as usize <= MAX_LINE
            && read_line(file, last).is_ok_and(|line| digest_of(&line) == self.line)
    }

    /// The number of the last record before it.
    #[must_use]
    pub fn head(&self) -> Seq {
        Seq(self.index.next.0.saturating_sub(1))
    }

    /// Bytes of journal before it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.index.len
    }
}

fn read_line(file: &File, place: Place) -> io::Result<Vec<u8>> {
    let mut line = vec![0; place.len as usize];
    file.read_exact_at(&mut line, place.offset)?;
    Ok(line)
}
