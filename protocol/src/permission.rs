//! What the gate decides, as clients see it.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::approval::RuleOffer;
use crate::daemon::Notice;
use crate::ids::SessionId;
use crate::mode::Mode;
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Decision {
    Allow,
    Ask,
    Deny,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Decision::Allow => "allow",
            Decision::Ask => "ask",
            Decision::Deny => "deny",
        })
    }
}

/// The kernel profile that a process runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Confinement {
    /// The whole tree read-only, no network.
    Plan,
    /// The project and a scratch folder writable.
    Workspace,
    /// The user's full rights.
    Off,
}

/// Where a permission rule comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum RuleLayer {
    /// The user's own settings file.
    User,
    /// The project's settings file. Its deny and ask rules always count, its allow rules once a person trusts the project.
    Project,
    /// Flags and environment of the daemon.
    Flags,
    /// A person's answer (`allowForSession`), until the session ends. Forks and imports do not have it.
    Session,
    /// A person's answer (`allowAlways`), for every session of the project.
    Saved,
}

impl RuleLayer {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RuleLayer::User => "user",
            RuleLayer::Project => "project",
            RuleLayer::Flags => "flags",
            RuleLayer::Session => "session",
            RuleLayer::Saved => "saved",
        }
    }
}

/// Which list a permission rule is in. Deny wins over ask, ask over allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum RuleList {
    Deny,
    Ask,
    Allow,
}

impl RuleList {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RuleList::Deny => "deny",
            RuleList::Ask => "ask",
            RuleList::Allow => "allow",
        }
    }
}

/// A permission rule and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RuleInfo {
    pub list: RuleList,
    /// As it was written: `Bash(git push *)`.
    pub rule: String,
    pub layer: RuleLayer,
    /// `file:line`. Absent for rules that do not stand in a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

/// `permission/rules`. Errors: `notFound`; `invalidInput` for a folder that is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RulesParams {
    /// The rules that hold for this session, those that its persons' answers made too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Without `sessionId`: those of a new session in this folder. Absent: the user's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RulesResult {
    /// Deny, then ask, then allow.
    pub rules: Vec<RuleInfo>,
    /// Some rule could not be read and may have been a deny rule: everything with effects is denied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreadable: bool,
    /// What is wrong with the project's settings, or passed over in them, and whether they wait for trust.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

/// `permission/check`: what would the gate say to this call, and why? Nothing runs and nobody is asked. Errors: `notFound`;
/// `invalidInput` (no such tool, arguments that it does not take, a folder that is none).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CheckParams {
    /// As if this session's agent made the call, in answer to a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Without `sessionId`: as if a new session in this folder did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// `run_shell`, `write_file` …
    pub tool: String,
    /// The tool's arguments.
    pub input: Value,
    /// In this mode. Absent: the session's own, or that of new sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CheckResult {
    pub decision: Decision,
    /// Mode `auto`: its classifier would be asked, and a person only if it gives no answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub classified: bool,
    /// The reason's code: `rule.deny`.
    pub reason: String,
    /// The same in words.
    pub explanation: String,
    /// The rule that decided, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleInfo>,
    /// For commands that are not denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confinement: Option<Confinement>,
    /// The mode that it was judged in.
    pub mode: Mode,
    /// What the call would do, one line each.
    pub effects: Vec<String>,
    /// The simple commands that a command line runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartInfo>,
    /// Why it is not known for sure what a command line runs; then rules with a specifier do not allow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
    /// The rules that a person's answer could make of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleOffer>,
}

/// One simple command of a command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PartInfo {
    pub command: String,
    /// It is proven to only read.
    pub reads_only: bool,
    /// The rule that is about it: the first that denies it, else that asks, else that allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleInfo>,
}

/// `permission/forget`: takes back a rule of layer `saved`. A person only. Errors: `invalidInput` for a folder that is none;
/// `refused`; `storage`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ForgetParams {
    /// A folder of the project.
    pub cwd: String,
    /// As `permission/rules` tells it.
    pub rule: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ForgetResult {
    /// Whether there was one.
    pub forgotten: bool,
}

/// `permission/breaker`: looks at the breaker of mode `auto`, opens or closes it. While it is open, `auto` asks a person wherever
/// `default` does. Anyone may open it; only a person closes it. Errors: `notFound`; `refused`; `storage`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BreakerParams {
    /// The breaker of this session. Absent: the one that holds for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Absent: nothing changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<BreakerAction>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum BreakerAction {
    Open,
    /// The counts of a session begin anew.
    Close,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BreakerResult {
    /// `auto.enabled = false` in the user's settings shuts the mode for all sessions.
    pub enabled: bool,
    /// The breaker for all sessions is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub everywhere: Option<BreakerOpened>,
    /// That of the session that was asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Breaker>,
}

/// Who opened the breaker for all sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BreakerOpened {
    /// `user:1000 agentctl`.
    pub by: String,
    pub at: Timestamp,
}

/// A session's breaker of mode `auto`: what the classifier has refused since a person closed it last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Breaker {
    pub open: bool,
    /// Refusals since a call was allowed.
    pub in_row: u32,
    pub total: u32,
}

impl Breaker {
    /// Whether there is nothing to tell of it.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        *self == Self::default()
    }
}
