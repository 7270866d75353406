//! Settings: what each key holds now, who said so, and changing one.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::daemon::Notice;
use crate::ids::SessionId;

/// Where a setting comes from. Later ones win, as far as the key's scope lets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum ConfigLayer {
    BuiltIn,
    /// The user's own file.
    User,
    /// The project's file.
    Project,
    /// How the daemon was started.
    Flags,
    /// The session itself.
    Session,
}

impl ConfigLayer {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ConfigLayer::BuiltIn => "built-in",
            ConfigLayer::User => "user",
            ConfigLayer::Project => "project",
            ConfigLayer::Flags => "flags",
            ConfigLayer::Session => "session",
        }
    }
}

/// In which files a key counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum ConfigScope {
    /// Only in the user's own file.
    User,
    /// In a project's file too, once a person has trusted it.
    Trusted,
    /// In a project's file always: it only narrows there.
    Project,
}

impl ConfigScope {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ConfigScope::User => "user",
            ConfigScope::Trusted => "trusted",
            ConfigScope::Project => "project",
        }
    }
}

/// `config/get`. Errors: `notFound` (the session); `invalidInput` (no such key; a folder that is none).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ConfigGetParams {
    /// As they hold for this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Without `sessionId`: as they hold for a new session in this folder. Absent: the user's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Only this key, or all below this table: `permissions.allow`, `providers`. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ConfigGetResult {
    /// In the order of the documentation. A key of a named table, such as a provider's, is there once for each name.
    pub entries: Vec<ConfigEntry>,
    /// The files that were looked at: the user's, then the project's.
    pub files: Vec<ConfigFile>,
    /// What is wrong with them, or passed over in them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

/// One key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ConfigEntry {
    /// `permissions.allow`.
    pub key: String,
    pub about: String,
    /// What it may hold, in words.
    pub holds: String,
    pub scope: ConfigScope,
    /// What counts. `null`: nothing is set, or `hidden`.
    pub value: Value,
    /// Something is set that may hold a secret, so it is not told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// Where `value` comes from; of lists that add up, the last that adds to it.
    pub layer: ConfigLayer,
    /// `file:line`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// All that is said about it, the strongest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<ConfigSaid>,
}

/// What one layer says about a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ConfigSaid {
    pub layer: ConfigLayer,
    /// `null` where it is hidden.
    pub value: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Why it does not count. Absent: it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed_over: Option<String>,
}

/// A settings file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ConfigFile {
    pub layer: ConfigLayer,
    pub path: String,
    pub exists: bool,
    /// Nothing of it counts, for this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A file that `config/set` writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum ConfigTarget {
    #[default]
    User,
    Project,
}

/// `config/set`: writes one key into a settings file; comments and layout stay. A person only. Nothing is written unless the
/// file can be read as it is, takes the key, and the value is one that the key holds. A link to the user's file stays a
/// link. Errors: `refused` (a program; a key that does not count in a project's file); `invalidInput` (`key`: there is none of
/// this name; `value`; `cwd`); `conflict` (the file cannot be read, or is being changed by somebody else); `storage`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ConfigSetParams {
    /// `permissions.allow`, `providers.mine.base_url`.
    pub key: String,
    /// The whole value. Exactly one of this and `unset`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Takes the key out of the file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unset: bool,
    #[serde(default)]
    pub target: ConfigTarget,
    /// `project`: a folder of the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ConfigSetResult {
    /// The file, by its true name.
    pub path: String,
    /// It said something else before.
    pub changed: bool,
    /// What counts now, in the folder that was named.
    pub entry: ConfigEntry,
}
