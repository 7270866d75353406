//! Trust of a project: what its own settings may switch on, and who allowed it.

use serde::{Deserialize, Serialize};

use crate::ids::Digest;
use crate::time::Timestamp;

/// `project/trust`. A person only. A project is the repository that a folder is in, else the folder itself; never the
/// person's home and never `/`. Trust is in exactly the content that was shown, for this project and no folder above or
/// below it. Errors: `invalidInput` (`cwd`: no folder, or no project; `digest` is missing); `stale` reads as `conflict` with
/// the digest of now; `refused` (a program); `storage`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TrustParams {
    /// A folder of the project.
    pub cwd: String,
    #[serde(default)]
    pub action: TrustAction,
    /// `trust`: the digest of what was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum TrustAction {
    /// Only tells.
    #[default]
    Show,
    Trust,
    /// Trusts it no more, or never did: nobody is asked again until its settings say something else.
    Untrust,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TrustResult {
    /// The project's folder, by its true name.
    pub root: String,
    /// Whether what its settings would switch on counts now.
    pub trusted: bool,
    /// All that it would switch on. Its deny and ask rules are not among it: they count in any case.
    pub items: Vec<TrustItem>,
    /// Of `items`.
    pub digest: Digest,
    /// From what was trusted to what stands there now, as a unified diff, where something else was trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// Who trusted it, if somebody did, and when. It may have been something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// Something that a project's settings would switch on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TrustItem {
    /// The setting: `permissions.allow`.
    pub key: String,
    /// Its value, whole.
    pub content: String,
    /// `file:line`. Not part of any digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}
