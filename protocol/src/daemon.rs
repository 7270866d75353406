//! The daemon itself.

use serde::{Deserialize, Serialize};

use crate::ids::DaemonId;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StatusResult {
    pub daemon_id: DaemonId,
    pub version: String,
    pub build: String,
    pub pid: u32,
    pub uptime_ms: u64,
    pub socket: String,
    /// Sessions in memory.
    pub live_sessions: u32,
    /// Sessions in which a turn runs.
    pub running_turns: u32,
    /// Approvals that wait for a person.
    pub waiting_approvals: u32,
    pub connections: u32,
    /// Set once a shutdown has begun.
    pub shutting_down: bool,
    /// Whether `bypassPermissions` was enabled when the daemon started.
    pub bypass_enabled: bool,
    /// Names of variables that `session/new` takes in `env` besides the usual ones: `shell.env` of the settings.
    #[serde(default)]
    pub shell_env: Vec<String>,
    /// What is wrong with settings files and the like, newest last, at most 200.
    pub notices: Vec<Notice>,
}

/// Something a person should know that belongs to no session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Notice {
    /// A stable name, such as `config.rule`.
    pub code: String,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum CheckStatus {
    Ok,
    Warning,
    Failed,
}

/// One line of `daemon/doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Check {
    pub name: String,
    pub status: CheckStatus,
    pub detail: String,
    /// What to type to mend it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DoctorResult {
    pub checks: Vec<Check>,
}

/// `daemon/reindex` answers at once; nothing is missing from lists meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReindexResult {
    /// Sessions whose journals will be read.
    pub sessions: u32,
}

/// `daemon/shutdown` answers at once; the connection ends when the daemon has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ShutdownResult {
    /// Turns that will be parked and go on at the next start.
    pub running_turns: u32,
}
