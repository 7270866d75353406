//! What a session changed on disk, and taking parts of it back.

use serde::{Deserialize, Serialize};

use crate::event::Text;
use crate::ids::{SessionId, TurnId};

/// A turn of the session: its id, or its number, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum TurnRef {
    Number(u32),
    Id(TurnId),
}

/// Which of a session's changes are meant: one turn's, those since the last approved plan, or those from one turn to
/// another, both included. With nothing set: all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Span {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnRef>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub since_plan: bool,
    /// Default: the first turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<TurnRef>,
    /// Default: the last turn. One that still runs counts as it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<TurnRef>,
}

/// `session/changes`. Errors: `notFound` (session, turn, plan); `invalidInput` when the span contradicts itself;
/// `storage` when what was kept cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ChangesParams {
    pub session_id: SessionId,
    #[serde(flatten)]
    pub span: Span,
    /// Only these files, and those below these folders: below `root`, or absolute. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Whether to leave out the diffs, and count only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stat: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ChangesResult {
    /// The folder that paths are told from: the repository's, else the session's.
    pub root: String,
    /// How the changes are known.
    pub seen: Seen,
    /// Sorted by path.
    pub files: Vec<FileDelta>,
    /// Lines, over all files.
    pub added: u64,
    pub removed: u64,
    /// Files that are not compared although they may have changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// What else a person should know: sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// How changes are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Seen {
    /// From snapshots of the work tree: complete, commands included, but for what git ignores.
    Git,
    /// From the records of the tools: what commands changed is not in it.
    Tools,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum DeltaKind {
    Added,
    Modified,
    Deleted,
    Renamed,
    /// The same bytes; it can be run now, or not any more.
    ModeChanged,
    /// A file became a link, or a link a file.
    TypeChanged,
}

/// One file that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FileDelta {
    /// Below `root`, or absolute where it lies elsewhere. Bytes that are no UTF-8 are written `\xff`.
    pub path: String,
    /// Of a renamed file: the name before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_path: Option<String>,
    pub kind: DeltaKind,
    /// As git writes it: `100644`, `100755`, `120000`. Absent: no such file, or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_mode: Option<String>,
    pub seen: Seen,
    /// It is not known to be the session's change alone: somebody else changed the file in the span, or may have. It
    /// stays when the rest is taken back; single hunks of it can be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub others: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub binary: bool,
    /// Lines.
    pub added: u64,
    pub removed: u64,
    /// How many hunks the diff has; each can be taken back by its number, counted from 1.
    pub hunks: u32,
    /// A unified diff. Absent: not asked for, or the file is binary, too large, or too different.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<Text>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    pub path: String,
    /// A few words for people.
    pub why: String,
}

/// `session/revert`: takes back what the session changed in the span, in all its files, in some, or in single hunks. A
/// file that somebody else changed in the span, or since, stays as it is, and is named. Persons only. Errors: as
/// `session/changes`; `refused` for a program; `conflict` while a turn runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RevertParams {
    pub session_id: SessionId,
    #[serde(flatten)]
    pub span: Span,
    /// Whole files, and all below folders. With neither these nor `hunks`: all files of the span.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hunks: Vec<HunkRef>,
}

/// One hunk of a file's diff.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HunkRef {
    pub path: String,
    /// Counted from 1, as `session/changes` shows them for the same span.
    pub hunk: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RevertResult {
    /// Files that are as they were before, or without the hunks.
    pub reverted: Vec<String>,
    /// Files that were left as they are.
    pub stays: Vec<Stays>,
    /// What cannot be undone: sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Stays {
    pub path: String,
    pub why: String,
    /// Somebody changed it since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed_since: bool,
}
