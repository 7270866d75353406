//! Full-text search over what was said in all sessions.

use serde::{Deserialize, Serialize};

use crate::ids::{Seq, SessionId};
use crate::session::Row;
use crate::time::Timestamp;

/// `session/search`: titles, prompts and answers of the model in which every word of the query stands, newest first.
/// Errors: `invalidInput` (`query`), `storage` (the index cannot be opened).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SearchParams {
    /// 1 to 32 words in at most 1,000 bytes. A word also finds longer ones that begin with it; case and accents do not
    /// count. Words joined by punctuation are found in that order. There is no further syntax.
    pub query: String,
    /// Only sessions in this folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Only this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// 1 to 100; default 20. Of one session at most three are given, unless `sessionId` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SearchResult {
    pub hits: Vec<SearchHit>,
    /// Whether everything was searched. `false` while the index is being made, or is a little behind.
    pub complete: bool,
}

/// One place where the words stand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SearchHit {
    pub session: Row,
    /// Of the event that said it.
    pub seq: Seq,
    pub at: Timestamp,
    pub role: SearchRole,
    /// The words with some text around them, in order.
    pub snippet: Vec<SnippetPart>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum SearchRole {
    /// The session's present title.
    Title,
    /// A prompt.
    User,
    /// An answer of the model.
    Assistant,
}

/// A piece of a snippet: plain text as it was said, which is not safe to print unchecked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SnippetPart {
    pub text: String,
    /// Whether this is what was searched for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub matched: bool,
}
