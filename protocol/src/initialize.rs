//! `initialize`: who speaks, and what both sides can do.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::DaemonId;

/// Who sits behind a connection. Self-declared: it guards against mistakes. Attackers are met by the peer check and by
/// the confinement of what the daemon starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Actor {
    /// A person decides what is sent. May answer every approval.
    #[default]
    Person,
    /// A program decides. May not answer plan, question, trust and limit approvals, nor widen a mode.
    Program,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClientInfo {
    /// Shown to people: "approved in zed".
    pub name: String,
    #[serde(default)]
    pub version: String,
    #[serde(default)]
    pub actor: Actor,
}

/// Optional for scripts: a connection that never calls it is a person speaking version 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct InitializeParams {
    pub protocol_version: u32,
    pub client_info: ClientInfo,
    /// Nothing is defined yet; unknown capabilities are ignored.
    #[serde(default)]
    pub capabilities: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ServerInfo {
    /// Always `agentd`. Clients check it: other programs carry the name too.
    pub name: String,
    pub version: String,
    /// What this binary was built from; differs when the binary on disk was replaced.
    pub build: String,
    pub daemon_id: DaemonId,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult {
    pub protocol_version: u32,
    pub server_info: ServerInfo,
    pub capabilities: Map<String, Value>,
    /// Every method this daemon answers.
    pub methods: Vec<String>,
    /// Every event type this daemon sends.
    pub events: Vec<String>,
}
