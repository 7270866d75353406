//! Sessions that move: a bundle is written by `session/export` and taken in by `session/import`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{Digest, SessionId};
use crate::session::State;
use crate::time::Timestamp;

/// `session/export`: writes a session into a bundle, which is one file, and hands it over: from then on the session can
/// only be looked at here, and whoever imports the bundle goes on with it. With `copy` it stays as it is, and the bundle
/// becomes another session. Once handed over it may be exported again; the bundle is the same, byte for byte. Errors:
/// `notFound`, `conflict` (a turn runs, an approval or prompts wait), `refused` (a program), `invalidInput` (`path`),
/// `storage` (also: its journal is damaged, and no import would take the bundle; nothing was handed over).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExportParams {
    pub session_id: SessionId,
    /// Absolute path of the new file, in a folder that exists. Only its owner can read it.
    pub path: String,
    /// What it is written as. Default, and all that there is: a bundle. Anything else is refused, so that nobody gives a
    /// session away who wanted to read it; agentctl writes Markdown and JSONL from `session/history`.
    #[serde(default, skip_serializing_if = "Format::is_bundle")]
    pub format: Format,
    /// Leaves the session as it is. One that is at work is taken at its last moment without an open call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub copy: bool,
    /// Takes the place of a file that is there already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
}

/// What a session is exported as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Format {
    #[default]
    Bundle,
}

impl Format {
    fn is_bundle(&self) -> bool {
        *self == Format::Bundle
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExportResult {
    pub path: String,
    /// Of the bundle.
    pub bytes: u64,
    /// Of the bundle's list of contents, which has the digest of everything else in it.
    pub digest: Digest,
    /// Whether the session was handed over, now or before.
    pub handed_over: bool,
}

/// `session/import`: makes a session of a bundle, whole or not at all. One that was handed over keeps its id; where this
/// daemon still has the session that was handed over, it is taken back. A copy becomes a new session. Approvals, waiting
/// prompts and snapshots do not come along; the mode is at most `acceptEdits`, and at most `default` where the folder is the
/// home or holds it. Errors: `invalidInput` (`path`: no bundle, one of a later version, or one that lacks what it names;
/// `cwd`, `sessionId`, `env`), `conflict` (the session is here and was not handed over by this bundle, or the bundle does
/// not go on from what was), `refused` (a program), `storage`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ImportParams {
    /// Absolute path of the bundle.
    pub path: String,
    /// The folder that it works in from now on. Default: the one it worked in, if that exists here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Names the session that becomes of a copy; the same id with the same bundle answers the same session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// As in `session/new`; the environment that the session had is not in the bundle.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ImportResult {
    pub session_id: SessionId,
    pub handle: String,
    /// Whether this daemon had it and gave it away before.
    pub taken_back: bool,
    /// Why it is in a narrower mode than where it came from, if it is: a sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    pub state: State,
}

/// Where a session went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HandedOver {
    /// Path of the bundle, when it was written.
    pub bundle: String,
    pub at: Timestamp,
}

/// `data.reason` of the error that a handed-over session answers.
pub const HANDED_OVER: &str = "session.handedOver";
