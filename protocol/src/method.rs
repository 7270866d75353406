//! The table of methods: each name with its parameters and result, as types.
//!
//! Both sides use it, so a client cannot send what the daemon does not read, and the schema is made from it.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{
    approval, blob, changes, config, daemon, event, history, initialize, key, permission, plan, search,
    session, transfer, trust, turn,
};

/// A method of the protocol.
pub trait Method {
    const NAME: &'static str;
    type Params: Serialize + DeserializeOwned + Send + 'static;
    type Result: Serialize + DeserializeOwned + Send + 'static;
}

/// The parameters of methods that take none, and the result of those that only succeed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Empty {}

/// What `events/unsubscribe` takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnsubscribeParams {
    pub subscription: String,
}

macro_rules! methods {
    ($($(#[$doc:meta])* $type:ident = $name:literal, $params:ty => $result:ty;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub enum $type {}
            impl Method for $type {
                const NAME: &'static str = $name;
                type Params = $params;
                type Result = $result;
            }
        )*

        /// Every method's name, in the order of the table.
        pub const NAMES: &[&str] = &[$($name),*];

        /// Calls `visit` once for each method with its parameter and result schemas.
        #[cfg(feature = "schema")]
        pub(crate) fn schemas(
            generator: &mut schemars::SchemaGenerator,
            mut visit: impl FnMut(&'static str, schemars::Schema, schemars::Schema),
        ) {
            $({
                let params = generator.subschema_for::<$params>();
                let result = generator.subschema_for::<$result>();
                visit($name, params, result);
            })*
        }
    };
}

methods! {
    /// Says who the client is; optional for scripts.
    Initialize = "initialize", initialize::InitializeParams => initialize::InitializeResult;
    SessionNew = "session/new", session::NewParams => session::NewResult;
    SessionList = "session/list", session::ListParams => session::ListResult;
    SessionGet = "session/get", session::SessionParams => session::GetResult;
    SessionPrompt = "session/prompt", session::PromptParams => session::PromptResult;
    SessionInterrupt = "session/interrupt", session::InterruptParams => session::InterruptResult;
    SessionSetMode = "session/setMode", session::SetModeParams => session::SetModeResult;
    SessionSetTitle = "session/setTitle", session::SetTitleParams => Empty;
    SessionInbox = "session/inbox", session::SessionParams => session::InboxResult;
    SessionWithdraw = "session/withdraw", session::WithdrawParams => Empty;
    /// Makes an idle session of its own from what this one was.
    SessionFork = "session/fork", session::ForkParams => session::ForkResult;
    /// Takes the conversation back to where it was before a turn.
    SessionRewind = "session/rewind", session::RewindParams => session::RewindResult;
    /// Writes it into a bundle, for another daemon or another day.
    SessionExport = "session/export", transfer::ExportParams => transfer::ExportResult;
    /// Makes a session of a bundle.
    SessionImport = "session/import", transfer::ImportParams => transfer::ImportResult;
    SessionArchive = "session/archive", session::ArchiveParams => Empty;
    /// What it changed on disk, as a diff.
    SessionChanges = "session/changes", changes::ChangesParams => changes::ChangesResult;
    /// Takes back some of what it changed.
    SessionRevert = "session/revert", changes::RevertParams => changes::RevertResult;
    /// Stops it and removes everything of it.
    SessionDelete = "session/delete", session::SessionParams => Empty;
    /// Its journaled events, page by page, from either end.
    SessionHistory = "session/history", history::HistoryParams => history::HistoryResult;
    SessionSearch = "session/search", search::SearchParams => search::SearchResult;
    TurnWait = "turn/wait", turn::TurnWaitParams => turn::TurnWaitResult;
    /// Answers the subscription's id; events follow as `events/event` notifications.
    EventsSubscribe = "events/subscribe", event::SubscribeParams => String;
    EventsUnsubscribe = "events/unsubscribe", UnsubscribeParams => bool;
    ApprovalList = "approval/list", approval::ApprovalListParams => approval::ApprovalListResult;
    ApprovalGet = "approval/get", approval::ApprovalGetParams => approval::WaitingApproval;
    ApprovalRespond = "approval/respond", approval::RespondParams => approval::RespondResult;
    /// The rules that hold, and where they come from.
    PermissionRules = "permission/rules", permission::RulesParams => permission::RulesResult;
    /// What the gate would say to a call, and why.
    PermissionCheck = "permission/check", permission::CheckParams => permission::CheckResult;
    /// Forgets a rule that an answer made for a whole project.
    PermissionForget = "permission/forget", permission::ForgetParams => permission::ForgetResult;
    /// Looks at the breaker of mode `auto`, opens or closes it.
    PermissionBreaker = "permission/breaker", permission::BreakerParams => permission::BreakerResult;
    /// What a project's settings would switch on; trusts it, or trusts it no more.
    ProjectTrust = "project/trust", trust::TrustParams => trust::TrustResult;
    /// Each setting with its value, where it comes from, and what else was said.
    ConfigGet = "config/get", config::ConfigGetParams => config::ConfigGetResult;
    /// Writes one setting into a file.
    ConfigSet = "config/set", config::ConfigSetParams => config::ConfigSetResult;
    PlanGet = "plan/get", plan::PlanGetParams => plan::PlanGetResult;
    BlobGet = "blob/get", blob::BlobGetParams => blob::BlobGetResult;
    KeySet = "key/set", key::KeySetParams => Empty;
    KeyList = "key/list", Empty => key::KeyListResult;
    KeyDelete = "key/delete", key::KeyNameParams => Empty;
    KeyTest = "key/test", key::KeyNameParams => key::KeyTestResult;
    DaemonStatus = "daemon/status", Empty => daemon::StatusResult;
    DaemonDoctor = "daemon/doctor", Empty => daemon::DoctorResult;
    /// Throws the index away and makes it anew from the journals. Answers at once; `daemon/doctor` says how far it is.
    DaemonReindex = "daemon/reindex", Empty => daemon::ReindexResult;
    DaemonShutdown = "daemon/shutdown", Empty => daemon::ShutdownResult;
}

/// The notification that carries a subscription's events.
pub const EVENT_NOTIFICATION: &str = "events/event";
