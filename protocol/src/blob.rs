//! `blob/get`: content too large or too binary to travel inside an event.

use serde::{Deserialize, Serialize};

use crate::ids::{Digest, SessionId};

/// Stands where the content would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BlobRef {
    pub blob: Digest,
    /// Bytes.
    pub size: u64,
    pub media_type: String,
    /// The first characters of a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// The last characters of a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<String>,
}

/// Errors: `notFound`; `invalidInput` when `length` is over 1 MiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BlobGetParams {
    pub session_id: SessionId,
    pub sha256: Digest,
    /// Bytes from the start; default 0.
    #[serde(default)]
    pub offset: u64,
    /// Bytes, at most 1 MiB, which is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BlobGetResult {
    /// Base64.
    pub data: String,
    /// Size of the whole blob in bytes.
    pub size: u64,
}
