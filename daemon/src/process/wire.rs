//! What the daemon and a helper say to each other: one order down, reports up. Private to one binary, so it has no
//! version: a daemon starts its helpers from its own image.

use std::ffi::OsString;
use std::io;

use serde::{Deserialize, Serialize};

/// The hidden first argument that makes this program a helper.
pub(super) const HELPER_ARGUMENT: &str = "__helper";

/// The longest frame. An order carries a command line, which the kernel bounds at a few MiB; as JSON every byte of it
/// may take four.
pub(super) const MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;

/// What to run. The daemon's side of the socket then stays silent; its end means: end everything.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    /// Complete: nothing is inherited.
    pub(super) env: Vec<(String, String)>,
    pub(super) cwd: OsString,
    /// Between TERM and KILL.
    pub(super) grace_ms: u64,
    /// The file that it reads on its standard input; else that is at its end.
    pub(super) input: Option<OsString>,
}

/// What happened, in this order: started or not started; exited; ended.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Report {
    Started,
    NotStarted(NotStarted),
    /// The command itself has ended; what it started may still run.
    Exited(Exit),
    /// The last word: how what it started has ended.
    Ended(Rest),
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NotStarted {
    pub(super) stage: Stage,
    pub(super) errno: Option<i32>,
    pub(super) text: String,
}

impl NotStarted {
    pub(super) fn new(stage: Stage, error: &io::Error) -> Self {
        Self { stage, errno: error.raw_os_error(), text: error.to_string() }
    }

    pub(super) fn into_error(self) -> io::Error {
        self.errno.map_or_else(|| io::Error::other(self.text), io::Error::from_raw_os_error)
    }
}

/// What could not be done. An ENOENT alone does not say whether the folder or the program is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Stage {
    /// Setting up the helper itself.
    Helper,
    /// Entering the working directory.
    Folder,
    /// Executing the program.
    Program,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Exit {
    Code(i32),
    Signal(i32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Rest {
    /// Nothing was left.
    Clean,
    /// Processes still ran after the command had ended, and were ended.
    Stopped,
    /// Processes could not be ended.
    Alive,
}

/// A frame: the length as four bytes, big end first, and JSON.
pub(super) fn encode<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(value)?;
    if json.len() > MAX_FRAME_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the command and its environment are too long",
        ));
    }
    let length = u32::try_from(json.len()).map_err(io::Error::other)?;
    Ok([length.to_be_bytes().as_slice(), &json].concat())
}

/// Reads one frame, waiting for it. For the helper; the daemon has a codec.
pub(super) fn read<T: for<'de> Deserialize<'de>>(from: &mut impl io::Read) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the frame is too long"));
    }
    let mut json = vec![0; length];
    from.read_exact(&mut json)?;
    Ok(serde_json::from_slice(&json)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn an_order_survives_the_wire_byte_for_byte() {
        let odd = OsString::from_vec(b"a\xff\n\"".to_vec());
        let order = Order {
            program: odd.clone(),
            args: vec![odd.clone(), OsString::new()],
            env: vec![("A".into(), "\u{4e2d}=\n".into())],
            cwd: odd.clone(),
            grace_ms: 7,
            input: Some(odd.clone()),
        };
        let back: Order = read(&mut encode(&order).unwrap().as_slice()).unwrap();
        assert_eq!(
            (back.program, back.args, back.env, back.cwd, back.grace_ms, back.input),
            (odd.clone(), vec![odd.clone(), OsString::new()], order.env, odd.clone(), 7, Some(odd))
        );
    }

    #[test]
    fn a_frame_that_is_cut_or_too_long_is_an_error() {
        let frame = encode(&Report::Started).unwrap();
        assert_eq!(read::<Report>(&mut frame.as_slice()).unwrap(), Report::Started);
        for length in 0..frame.len() {
            assert!(read::<Report>(&mut &frame[..length]).is_err(), "{length}");
        }
        let problem = read::<Report>(&mut [0xff_u8; 4].as_slice()).unwrap_err();
        assert_eq!(problem.kind(), io::ErrorKind::InvalidData);
    }
}
