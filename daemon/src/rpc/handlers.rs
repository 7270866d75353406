//! What each method does: parameters in, one message to a session or a look at the registry, a result or an error out.
//! Nothing is decided here.

use std::sync::Arc;
use std::time::Instant;

use agentd_protocol::approval::{ApprovalListResult, By, WaitingApproval};
use agentd_protocol::blob::BlobGetResult;
use agentd_protocol::daemon::{ReindexResult, ShutdownResult, StatusResult};
use agentd_protocol::initialize::{Actor, InitializeResult, ServerInfo};
use agentd_protocol::method::{self, Empty};
use agentd_protocol::session::GetResult;
use agentd_protocol::transfer;
use agentd_protocol::{ErrorCode, PROTOCOL_VERSION, SessionId};
use base64::Engine as _;
use jsonrpsee::core::RegisterMethodError;
use jsonrpsee::core::server::RpcModule;
use jsonrpsee::types::ErrorObjectOwned;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::connection::ConnectionInfo;
use super::limits::Gauges;
use super::subscribe;
use super::{error, error_with, method};
use crate::registry::Registry;
use crate::session::command::{self, Caller, Command, Reply};
use crate::session::error::{Changed, SessionError};
use crate::session::state::Settled;

/// Bytes of a blob in one answer.
const BLOB_PIECE: u64 = 1024 * 1024;

/// What the handlers work with.
pub struct Daemon {
    pub registry: Arc<Registry>,
    pub gauges: Arc<Gauges>,
    pub info: ServerInfo,
    pub socket: String,
    pub started: Instant,
    /// Begins the shutdown.
    pub shutdown: CancellationToken,
    pub doctor: Doctor,
}

impl Daemon {
    /// What is wrong with the settings now. May block.
    #[must_use]
    pub fn notices(&self) -> Vec<agentd_protocol::daemon::Notice> {
        self.registry.deps().policies.notices()
    }
}

/// Looks at what `daemon/doctor` tells. It may block.
pub type Doctor = Box<dyn Fn(&Daemon) -> Vec<agentd_protocol::daemon::Check> + Send + Sync>;

type Answer<T> = Result<T, ErrorObjectOwned>;

/// All methods of the protocol.
///
/// # Errors
/// A name stands twice: a mistake in the code.
pub fn methods(daemon: Arc<Daemon>) -> Result<RpcModule<Daemon>, RegisterMethodError> {
    let mut module = RpcModule::from_arc(daemon);
    let m = &mut module;
    method::<method::Initialize, _, _, _>(m, |params, daemon, connection| async move {
        initialize(&daemon, params, &connection)
    })?;
    sessions(m)?;
    approvals(m)?;
    permissions(m)?;
    keys(m)?;
    about_daemon(m)?;
    subscribe::register(m)?;
    Ok(module)
}

fn initialize(
    daemon: &Daemon,
    params: agentd_protocol::initialize::InitializeParams,
    connection: &ConnectionInfo,
) -> Answer<InitializeResult> {
    if params.protocol_version != PROTOCOL_VERSION {
        return Err(error_with(
            ErrorCode::Unsupported,
            format!(
                "this agentd speaks protocol version {PROTOCOL_VERSION}, not {}",
                params.protocol_version
            ),
            "supported",
            json!([PROTOCOL_VERSION]),
        ));
    }
    if let Err(first) = connection.set_client(params.client_info.clone())
        && *first != params.client_info
    {
        return Err(error(
            ErrorCode::Conflict,
            "this connection has said already who it is; open another one",
            Map::new(),
        ));
    }
    Ok(InitializeResult {
        protocol_version: PROTOCOL_VERSION,
        server_info: daemon.info.clone(),
        capabilities: Map::new(),
        methods: method::NAMES.iter().map(|name| (*name).to_owned()).collect(),
        events: agentd_protocol::EventBody::TYPE_NAMES.iter().map(|name| (*name).to_owned()).collect(),
    })
}

fn sessions(m: &mut RpcModule<Daemon>) -> Result<(), RegisterMethodError> {
    method::<method::SessionNew, _, _, _>(m, |params, daemon, connection| async move {
        let caller = caller(&daemon, &connection);
        daemon.registry.create(params, &caller).await.map_err(wire)
    })?;
    method::<method::SessionList, _, _, _>(m, |params, daemon, _| async move {
        daemon.registry.list(&params).await.map_err(wire)
    })?;
    method::<method::SessionSearch, _, _, _>(m, |params, daemon, _| async move {
        daemon.registry.search(params).await.map_err(wire)
    })?;
    method::<method::SessionGet, _, _, _>(m, |params, daemon, _| async move {
        let snapshot = daemon.registry.snapshot(params.session_id).await.map_err(wire)?;
        Ok(GetResult { state: snapshot.state })
    })?;
    method::<method::SessionPrompt, _, _, _>(m, |params, daemon, connection| {
        // The command is in the mailbox before anything is awaited: order holds, also for a session not yet loaded.
        let caller = caller(&daemon, &connection);
        let id = params.session_id;
        ask(&daemon, id, |reply| Command::Prompt { params: Box::new(params), caller, reply })
    })?;
    method::<method::SessionInterrupt, _, _, _>(m, |params, daemon, connection| {
        let caller = caller(&daemon, &connection);
        async move { daemon.registry.interrupt(params.session_id, params.turn_id, caller).await.map_err(wire) }
    })?;
    method::<method::SessionSetMode, _, _, _>(m, |params, daemon, connection| {
        let caller = caller(&daemon, &connection);
        ask(&daemon, params.session_id, move |reply| Command::SetMode { mode: params.mode, caller, reply })
    })?;
    method::<method::SessionSetTitle, _, _, _>(m, |params, daemon, _| {
        let answer =
            ask(&daemon, params.session_id, move |reply| Command::SetTitle { title: params.title, reply });
        async move { answer.await.map(|()| Empty {}) }
    })?;
    method::<method::SessionInbox, _, _, _>(m, |params, daemon, _| {
        ask(&daemon, params.session_id, |reply| Command::Inbox { reply })
    })?;
    method::<method::SessionWithdraw, _, _, _>(m, |params, daemon, _| {
        let answer = ask(&daemon, params.session_id, move |reply| Command::Withdraw {
            prompt: params.prompt_id,
            reply,
        });
        async move { answer.await.map(|()| Empty {}) }
    })?;
    method::<method::SessionFork, _, _, _>(m, |params, daemon, connection| async move {
        let caller = caller(&daemon, &connection);
        daemon.registry.fork(&params, &caller).await.map_err(wire)
    })?;
    method::<method::SessionExport, _, _, _>(m, |params, daemon, connection| async move {
        person_only(&connection)?;
        let caller = caller(&daemon, &connection);
        daemon.registry.export(&params, &caller).await.map_err(wire)
    })?;
    method::<method::SessionImport, _, _, _>(m, |params, daemon, connection| async move {
        person_only(&connection)?;
        let caller = caller(&daemon, &connection);
        daemon.registry.import(&params, &caller).await.map_err(wire)
    })?;
    method::<method::SessionRewind, _, _, _>(m, |params, daemon, connection| {
        let caller = caller(&daemon, &connection);
        ask(&daemon, params.session_id, |reply| Command::Rewind { params, caller, reply })
    })?;
    method::<method::SessionArchive, _, _, _>(m, |params, daemon, connection| {
        let caller = caller(&daemon, &connection);
        let archived = params.archived;
        let answer =
            ask(&daemon, params.session_id, move |reply| Command::Archive { archived, caller, reply });
        async move { answer.await.map(|()| Empty {}) }
    })?;
    method::<method::SessionChanges, _, _, _>(m, |params, daemon, _| async move {
        let view = daemon.registry.ask(params.session_id, |reply| Command::Changes { reply }).await;
        view.map_err(wire)?.changes(params).await.map_err(wire)
    })?;
    method::<method::SessionRevert, _, _, _>(m, |params, daemon, connection| async move {
        person_only(&connection)?;
        let id = params.session_id;
        let params = Box::new(params);
        daemon.registry.ask(id, |reply| Command::Revert { params, reply }).await.map_err(wire)
    })?;
    method::<method::SessionDelete, _, _, _>(m, |params, daemon, connection| async move {
        if connection.actor() == Actor::Program {
            let made_by = daemon.registry.snapshot(params.session_id).await.map_err(wire)?.made_by;
            command::may_put_away(Actor::Program, made_by).map_err(wire)?;
        }
        daemon.registry.delete(params.session_id).await.map_err(wire)?;
        Ok(Empty {})
    })?;
    method::<method::SessionHistory, _, _, _>(m, |params, daemon, _| async move {
        subscribe::known_types(params.types.as_deref())?;
        daemon.registry.history(params).await.map_err(wire)
    })?;
    method::<method::TurnWait, _, _, _>(m, |params, daemon, _| {
        ask(&daemon, params.session_id, move |reply| Command::WaitTurn { turn: params.turn_id, reply })
    })?;
    method::<method::PlanGet, _, _, _>(m, |params, daemon, _| {
        ask(&daemon, params.session_id, |reply| Command::PlanGet { reply })
    })?;
    method::<method::BlobGet, _, _, _>(m, |params, daemon, _| async move {
        let length = params.length.unwrap_or(BLOB_PIECE);
        if length > BLOB_PIECE {
            return Err(wire(SessionError::invalid("length", "at most 1048576 bytes a call")));
        }
        let snapshot = daemon.registry.snapshot(params.session_id).await.map_err(wire)?;
        let part =
            snapshot.blobs.get(params.sha256, params.offset, length).await.map_err(|error| match error {
                crate::journal::BlobError::Missing(_) => wire(SessionError::NotFound("blob")),
                error => wire(storage(error)),
            })?;
        let data = base64::engine::general_purpose::STANDARD.encode(&part.bytes);
        Ok(BlobGetResult { data, size: part.size })
    })
}

fn approvals(m: &mut RpcModule<Daemon>) -> Result<(), RegisterMethodError> {
    method::<method::ApprovalList, _, _, _>(m, |params, daemon, _| async move {
        if let Some(id) = params.session_id {
            // A session that is not in memory waits for nobody, but it has to exist.
            daemon.registry.ask(id, |reply| Command::Row { reply }).await.map_err(wire)?;
        }
        Ok(ApprovalListResult { approvals: daemon.registry.waiting(params.session_id).await })
    })?;
    method::<method::ApprovalGet, _, _, _>(m, |params, daemon, _| {
        let session = params.approval_id.session();
        let answer = ask(&daemon, session, |reply| Command::Approval { id: params.approval_id, reply });
        async move {
            let (approval, row) = *answer.await?;
            Ok(WaitingApproval {
                session_id: row.session_id,
                handle: row.handle,
                cwd: row.cwd,
                mode: row.mode.unwrap_or(agentd_protocol::Mode::Default),
                approval,
            })
        }
    })?;
    method::<method::ApprovalRespond, _, _, _>(m, |params, daemon, connection| {
        let caller = caller(&daemon, &connection);
        let session = params.approval_id.session();
        ask(&daemon, session, |reply| Command::Respond { params: Box::new(params), caller, reply })
    })
}

fn permissions(m: &mut RpcModule<Daemon>) -> Result<(), RegisterMethodError> {
    method::<method::PermissionRules, _, _, _>(m, |params, daemon, _| async move {
        let inquiry = daemon.registry.inquiry(params.session_id, params.cwd.as_deref()).await;
        Ok(inquiry.map_err(wire)?.rules().await)
    })?;
    method::<method::PermissionForget, _, _, _>(m, |params, daemon, connection| async move {
        person_only(&connection)?;
        daemon.registry.forget_rule(params).await.map_err(wire)
    })?;
    method::<method::PermissionBreaker, _, _, _>(m, |params, daemon, connection| async move {
        let caller = caller(&daemon, &connection);
        daemon.registry.breaker(params, &caller).await.map_err(wire)
    })?;
    method::<method::ProjectTrust, _, _, _>(m, |params, daemon, connection| async move {
        person_only(&connection)?;
        let caller = caller(&daemon, &connection);
        daemon.registry.trust(params, &caller).await.map_err(wire)
    })?;
    method::<method::ConfigGet, _, _, _>(m, |params, daemon, _| async move {
        daemon.registry.config(params).await.map_err(wire)
    })?;
    method::<method::ConfigSet, _, _, _>(m, |params, daemon, connection| async move {
        person_only(&connection)?;
        daemon.registry.set_config(params).await.map_err(wire)
    })?;
    method::<method::PermissionCheck, _, _, _>(m, |params, daemon, _| async move {
        let inquiry =
            daemon.registry.inquiry(params.session_id, params.cwd.as_deref()).await.map_err(wire)?;
        inquiry.check(&params.tool, params.input, params.mode).await.map_err(wire)
    })
}

fn keys(m: &mut RpcModule<Daemon>) -> Result<(), RegisterMethodError> {
    method::<method::KeySet, _, _, _>(m, |params, daemon, connection| async move {
        person_only(&connection)?;
        daemon.registry.models().key_set(params.provider, params.key).await.map_err(wire)?;
        Ok(Empty {})
    })?;
    method::<method::KeyList, _, _, _>(m, |_, daemon, _| async move {
        daemon.registry.models().key_list().await.map_err(wire)
    })?;
    method::<method::KeyDelete, _, _, _>(m, |params, daemon, connection| async move {
        person_only(&connection)?;
        daemon.registry.models().key_delete(params.provider).await.map_err(wire)?;
        Ok(Empty {})
    })?;
    method::<method::KeyTest, _, _, _>(m, |params, daemon, connection| async move {
        person_only(&connection)?;
        daemon.registry.models().key_test(&params.provider).await.map_err(wire)
    })
}

fn about_daemon(m: &mut RpcModule<Daemon>) -> Result<(), RegisterMethodError> {
    method::<method::DaemonStatus, _, _, _>(m, |_, daemon, _| async move {
        Ok(crate::session::blocking(move || status(&daemon)).await)
    })?;
    method::<method::DaemonDoctor, _, _, _>(m, |_, daemon, _| async move {
        let checks = tokio::task::spawn_blocking(move || (daemon.doctor)(&daemon)).await.unwrap_or_default();
        Ok(agentd_protocol::daemon::DoctorResult { checks })
    })?;
    method::<method::DaemonReindex, _, _, _>(m, |_, daemon, _| async move {
        let sessions = daemon.registry.reindex().await.map_err(wire)?;
        Ok(ReindexResult { sessions: u32::try_from(sessions).unwrap_or(u32::MAX) })
    })?;
    method::<method::DaemonShutdown, _, _, _>(m, |_, daemon, connection| async move {
        person_only(&connection)?;
        let running_turns = daemon.registry.gauges().running;
        daemon.shutdown.cancel();
        Ok(ShutdownResult { running_turns })
    })
}

fn status(daemon: &Daemon) -> StatusResult {
    let gauges = daemon.registry.gauges();
    let deps = daemon.registry.deps();
    StatusResult {
        daemon_id: daemon.info.daemon_id,
        version: daemon.info.version.clone(),
        build: daemon.info.build.clone(),
        pid: std::process::id(),
        uptime_ms: u64::try_from(daemon.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        socket: daemon.socket.clone(),
        live_sessions: gauges.live,
        running_turns: gauges.running,
        waiting_approvals: gauges.waiting_approvals,
        connections: daemon.gauges.connections(),
        shutting_down: daemon.shutdown.is_cancelled(),
        bypass_enabled: deps.policies.user().bypass_enabled,
        shell_env: deps.shell_env.clone(),
        notices: daemon.notices(),
    }
}

/// Sends a command at once and gives back the wait for its answer.
fn ask<T: Send + 'static, C: FnOnce(Reply<T>) -> Command>(
    daemon: &Arc<Daemon>,
    id: SessionId,
    command: C,
) -> impl Future<Output = Answer<T>> + Send + use<T, C> {
    let (reply, answer) = tokio::sync::oneshot::channel();
    let sent = daemon.registry.send(id, command(reply));
    async move {
        sent.map_err(wire)?;
        answer.await.unwrap_or(Err(SessionError::Overloaded)).map_err(wire)
    }
}

/// Who is behind a connection.
fn caller(daemon: &Daemon, connection: &ConnectionInfo) -> Caller {
    let client = connection.client();
    Caller {
        by: By {
            principal: daemon.registry.deps().principal.clone(),
            client: client.map(|client| client.name.clone()).unwrap_or_default(),
            pid: Some(connection.peer.pid),
        },
        actor: connection.actor(),
    }
}

fn person_only(connection: &ConnectionInfo) -> Answer<()> {
    command::person_only(connection.actor()).map_err(wire)
}

fn storage(error: impl std::error::Error + Send + Sync + 'static) -> SessionError {
    SessionError::Storage { message: format!("{:#}", anyhow::Error::new(error)), changed: Changed::No }
}

/// The one place where a session's errors get their codes.
pub(super) fn wire(failure: SessionError) -> ErrorObjectOwned {
    let message = failure.to_string();
    match failure {
        SessionError::NotFound(what) => error_with(ErrorCode::NotFound, message, "what", what),
        SessionError::ApprovalSettled(settled) => {
            error(ErrorCode::ApprovalSettled, settled_message(&settled), settled_data(&settled))
        }
        SessionError::Stale(approval) => {
            let mut data = Map::new();
            data.insert("approval".into(), json!(*approval));
            data.insert("digest".into(), json!(approval.digest));
            if let agentd_protocol::approval::Subject::Plan { plan } = &approval.subject {
                data.insert("revision".into(), json!(plan.revision));
            }
            error(ErrorCode::Stale, message, data)
        }
        SessionError::Conflict(_) => error(ErrorCode::Conflict, message, Map::new()),
        SessionError::Busy(_) => error_with(ErrorCode::Conflict, message, "reason", "busy"),
        SessionError::HandedOver(handed) => {
            let mut data = Map::new();
            data.insert("reason".into(), json!(transfer::HANDED_OVER));
            data.insert("bundle".into(), json!(handed.bundle));
            data.insert("at".into(), json!(handed.at));
            error(ErrorCode::Refused, message, data)
        }
        SessionError::BeyondHead { head } => error_with(ErrorCode::Conflict, message, "head", head.0),
        SessionError::Refused(_) => error(ErrorCode::Refused, message, Map::new()),
        SessionError::Overloaded => error_with(ErrorCode::Overloaded, message, "retryAfterMs", 200),
        SessionError::Storage { changed, .. } => {
            let changed = match changed {
                Changed::No => Value::Bool(false),
                Changed::Unknown => Value::String("unknown".into()),
            };
            error_with(ErrorCode::Storage, message, "changed", changed)
        }
        SessionError::Unsupported { field } => error_with(ErrorCode::Unsupported, message, "field", field),
        SessionError::Invalid { field, .. } => error_with(ErrorCode::InvalidInput, message, "field", field),
    }
}

fn settled_message(settled: &Settled) -> String {
    let by = match settled.by.pid {
        Some(pid) if !settled.by.client.is_empty() => format!("{} (pid {pid})", settled.by.client),
        Some(pid) => format!("pid {pid}"),
        None => settled.by.client.clone(),
    };
    match settled.choice {
        Some(choice) => format!("already answered with {} by {by}", choice.name()),
        None => format!("no longer open: {by}"),
    }
}

fn settled_data(settled: &Settled) -> Map<String, Value> {
    let mut data = Map::new();
    data.insert("approvalId".into(), json!(settled.approval_id));
    data.insert("resolution".into(), json!(settled.resolution));
    data.insert("choice".into(), json!(settled.choice));
    data.insert("by".into(), json!(settled.by));
    data.insert("at".into(), json!(settled.at));
    data
}
