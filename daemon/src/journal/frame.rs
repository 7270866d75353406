//! One commit as one line: `{"v":1,"seq":N,"at":"…","records":[…]}`.

use std::io::Write as _;

use agentd_protocol::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Commit, Place};
use crate::ids::Seq;

/// The longest line that is written or read. What is larger belongs into a blob.
pub const MAX_LINE: usize = 16 << 20;

/// Numbers stay below what a double holds exactly, since clients in JavaScript read them.
const MAX_SEQ: u64 = 1 << 53;

/// The version of the frame that this build writes and reads.
const VERSION: u64 = 1;

/// Writes a commit, newline included.
pub(super) fn encode(seq: Seq, at: Timestamp, records: &[Box<RawValue>]) -> Vec<u8> {
    let text_len: usize = records.iter().map(|record| record.get().len() + 1).sum();
    let mut line = Vec::with_capacity(text_len + 96);
    // Writing to a Vec cannot fail.
    let _ = write!(line, r#"{{"v":{VERSION},"seq":{seq},"at":"{at}","records":["#);
    for (i, record) in records.iter().enumerate() {
        if i > 0 {
            line.push(b',');
        }
        let start = line.len();
        line.extend_from_slice(record.get().as_bytes());
        // A record may carry JSON that somebody else laid out over several lines. Inside a JSON string a line break is
        // always escaped, so those that are left are blanks between tokens.
        for byte in line.iter_mut().skip(start) {
            if *byte == b'\n' {
                *byte = b' ';
            }
        }
    }
    line.extend_from_slice(b"]}\n");
    line
}

/// What a line turned out to be.
#[derive(Debug)]
pub(super) enum Decoded {
    Commit(Commit),
    /// Written by a newer agentd.
    Newer(u64),
    Bad,
}

#[derive(Deserialize)]
struct Frame {
    v: u64,
    seq: Seq,
    at: Timestamp,
    records: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct VersionOnly {
    v: u64,
}

/// Reads a line; `line` ends with its newline, `offset` is where it lies.
pub(super) fn decode(line: &[u8], offset: u64) -> Decoded {
    let Ok(len) = u32::try_from(line.len()) else { return Decoded::Bad };
    match serde_json::from_slice::<Frame>(line) {
        Ok(Frame { v: VERSION, seq, at, records }) => {
            let end = seq.0.checked_add(records.len() as u64);
            if records.is_empty() || seq.0 == 0 || end.is_none_or(|end| end > MAX_SEQ) {
                return Decoded::Bad;
            }
            Decoded::Commit(Commit { seq, at, records, place: Place { offset, len } })
        }
        // A later version may have other fields, so only its number is read.
        _ => match serde_json::from_slice::<VersionOnly>(line) {
            Ok(VersionOnly { v }) if v > VERSION => Decoded::Newer(v),
            _ => Decoded::Bad,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn a_commit_is_one_line_in_the_documented_frame() {
        let line = encode(Seq(7), Timestamp::from_unix_ms(0), &[raw(r#"{"a":1}"#), raw("2")]);
        assert_eq!(
            String::from_utf8(line).unwrap(),
            "{\"v\":1,\"seq\":7,\"at\":\"1970-01-01T00:00:00.000Z\",\"records\":[{\"a\":1},2]}\n"
        );
    }

    #[test]
    fn records_laid_out_over_lines_stay_one_line_and_keep_their_meaning() {
        let record = raw("{\n  \"text\": \"a\\nb\",\n  \"n\": [1,\n 2]\n}");
        let line = encode(Seq(1), Timestamp::from_unix_ms(0), std::slice::from_ref(&record));
        assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
        let Decoded::Commit(commit) = decode(&line, 0) else { panic!("not read back") };
        let before: serde_json::Value = serde_json::from_str(record.get()).unwrap();
        let after: serde_json::Value = serde_json::from_str(commit.records[0].get()).unwrap();
        assert_eq!(after, before);
    }

    #[test]
    fn what_is_no_commit_of_this_version() {
        let at = r#""at":"2026-01-01T00:00:00.000Z""#;
        for bad in [
            "\n".to_owned(),
            "{}\n".to_owned(),
            "null\n".to_owned(),
            format!("{{\"v\":1,\"seq\":1,{at},\"records\":[]}}\n"),
            format!("{{\"v\":1,\"seq\":0,{at},\"records\":[1]}}\n"),
            format!("{{\"v\":1,\"seq\":-1,{at},\"records\":[1]}}\n"),
            format!("{{\"v\":1,\"seq\":{},{at},\"records\":[1]}}\n", u64::MAX),
            format!("{{\"v\":1,\"seq\":{MAX_SEQ},{at},\"records\":[1]}}\n"),
            format!("{{\"v\":0,\"seq\":1,{at},\"records\":[1]}}\n"),
            "{\"v\":1,\"seq\":1,\"at\":\"yesterday\",\"records\":[1]}\n".to_owned(),
            format!("{{\"v\":1,\"seq\":1,{at},\"records\":[1]}} x\n"),
        ] {
            assert!(matches!(decode(bad.as_bytes(), 0), Decoded::Bad), "{bad:?} was taken");
        }
        assert!(matches!(decode(b"{\"v\":2,\"entries\":[]}\n", 0), Decoded::Newer(2)));
    }
}
