//! Keys of model providers. A person only; values never come back.

use serde::{Deserialize, Serialize};

/// `key/set`: stores the key in a file of mode 0600. Errors: `invalidInput` (unknown provider, empty key), `refused`
/// (a program asked), `storage` (the disk does not take it; the key before it holds).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct KeySetParams {
    pub provider: String,
    pub key: String,
}

impl std::fmt::Debug for KeySetParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeySetParams").field("provider", &self.provider).finish_non_exhaustive()
    }
}

/// `key/delete` and `key/test`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct KeyNameParams {
    pub provider: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct KeyInfo {
    pub provider: String,
    /// Where the key comes from: a file's path, or the name of an environment variable.
    pub source: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct KeyListResult {
    /// Providers for which a key is known.
    pub keys: Vec<KeyInfo>,
    /// Every provider that takes a key, with the environment variable it is read from.
    pub providers: Vec<KeyProvider>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct KeyProvider {
    pub provider: String,
    pub env: Option<String>,
}

/// `key/test` sends one small request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct KeyTestResult {
    pub ok: bool,
    /// What the provider said when it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The model that was asked.
    pub model: String,
}
