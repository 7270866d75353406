//! Calls: a method's type in, its result out. A lost connection is made anew at the next call.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentd_protocol::event::SubscribeParams;
use agentd_protocol::initialize::InitializeResult;
use agentd_protocol::method::{EventsSubscribe, EventsUnsubscribe};
use agentd_protocol::{ErrorCode, ErrorData, Method};
use jsonrpsee::core::client::{ClientT as _, Error as RpcError, Subscription, SubscriptionClientT as _};
use jsonrpsee::core::traits::ToRpcParams;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::connect::{ConnectError, ConnectOptions, introduce};
use crate::events::EventStream;

/// jsonrpsee wants a limit for answers. `turn/wait` answers when its turn ends, which may take days.
const ANSWER_LIMIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Calls of one client under way. The daemon bounds them too.
const CALLS: usize = 256;
/// Events that may wait for a slow reader before the subscription is made anew from where the reader is.
const EVENTS: usize = 4096;

type Link = jsonrpsee::async_client::Client;

/// A connection to one daemon. Clones share it.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    socket: PathBuf,
    options: ConnectOptions,
    /// Held while connecting, so that those who need the connection at the same time share one.
    link: tokio::sync::Mutex<Arc<Link>>,
    server: Mutex<Arc<InitializeResult>>,
}

impl Client {
    pub(crate) async fn connect(socket: PathBuf, options: ConnectOptions) -> Result<Self, ConnectError> {
        let (link, server) = open(&socket, &options).await?;
        Ok(Self(Arc::new(Inner {
            socket,
            options,
            link: tokio::sync::Mutex::new(link),
            server: Mutex::new(server),
        })))
    }

    /// Calls a method and waits for its answer, however long that takes (`turn/wait` answers when the turn ends).
    /// Dropping the future gives up the answer only: the daemon finishes what it began.
    ///
    /// # Errors
    /// What the daemon answered, or why there is no answer. After [`CallError::Lost`] it is not known whether the call
    /// was carried out; calls that name what they create (`sessionId`, `promptId`) may simply be made again.
    pub async fn call<M: Method>(&self, params: M::Params) -> Result<M::Result, CallError> {
        let malformed = |source| CallError::Malformed { method: M::NAME.to_owned(), source };
        let params = to_raw_value(&params).map_err(malformed)?;
        let result = self.call_raw(M::NAME, Some(params)).await?;
        serde_json::from_str(result.get()).map_err(malformed)
    }

    /// Calls a method by name with JSON as it stands, for `agentctl rpc`. `params` is an object or array, or absent.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn call_raw(
        &self,
        method: &str,
        params: Option<Box<RawValue>>,
    ) -> Result<Box<RawValue>, CallError> {
        let link = self.link().await?;
        link.request(method, Raw(params)).await.map_err(|error| CallError::from_rpc(method, error))
    }

    /// Follows a session's events, or with no `session_id` the daemon's feed. A feed that was away may have missed something
    /// that is not kept any more: a `synced` with `gap` says so, and lists that were read before are to be read again.
    ///
    /// # Errors
    /// As [`Client::call`]; later losses of the connection are the stream's own business.
    pub async fn subscribe(&self, params: SubscribeParams) -> Result<EventStream, CallError> {
        let subscription = self.subscribe_once(&params).await?;
        Ok(EventStream::start(self.clone(), params, subscription, self.0.options.reconnect_for))
    }

    /// One subscription, which ends with its connection.
    pub(crate) async fn subscribe_once(
        &self,
        params: &SubscribeParams,
    ) -> Result<Subscription<Box<RawValue>>, CallError> {
        let method = EventsSubscribe::NAME;
        let params = to_raw_value(params)
            .map_err(|source| CallError::Malformed { method: method.to_owned(), source })?;
        let link = self.link().await?;
        link.subscribe(method, Raw(Some(params)), EventsUnsubscribe::NAME)
            .await
            .map_err(|error| CallError::from_rpc(method, error))
    }

    /// Whether the connection stands, as far as is known.
    pub(crate) async fn is_connected(&self) -> bool {
        self.0.link.lock().await.is_connected()
    }

    /// The connection; made anew if it was lost.
    async fn link(&self) -> Result<Arc<Link>, ConnectError> {
        let mut link = self.0.link.lock().await;
        if !link.is_connected() {
            let (new, server) = open(&self.0.socket, &self.0.options).await?;
            *link = new;
            *self.0.server.lock().unwrap_or_else(PoisonError::into_inner) = server;
        }
        Ok(link.clone())
    }

    /// What the daemon said of itself when this client last connected.
    #[must_use]
    pub fn server(&self) -> Arc<InitializeResult> {
        self.0.server.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The socket in use.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.0.socket
    }
}

async fn open(
    socket: &Path,
    options: &ConnectOptions,
) -> Result<(Arc<Link>, Arc<InitializeResult>), ConnectError> {
    let introduced = introduce(socket, &options.client).await?;
    let link = jsonrpsee::async_client::ClientBuilder::new()
        .request_timeout(ANSWER_LIMIT)
        .max_concurrent_requests(CALLS)
        .max_buffer_capacity_per_subscription(EVENTS)
        .build_with_tokio(introduced.sender, introduced.receiver);
    Ok((Arc::new(link), Arc::new(introduced.server)))
}

/// Parameters that are JSON already.
struct Raw(Option<Box<RawValue>>);

impl ToRpcParams for Raw {
    fn to_rpc_params(self) -> Result<Option<Box<RawValue>>, serde_json::Error> {
        Ok(self.0)
    }
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The daemon answered with one of its own errors.
    #[error("{message}")]
    Daemon { code: ErrorCode, message: String, data: ErrorData },
    /// The daemon answered with an error of JSON-RPC itself, or one that this build does not know.
    #[error("the daemon did not take the call: {message} (code {code})")]
    Rpc { code: i32, message: String, data: Option<Value> },
    /// The connection ended before the answer came.
    #[error("the connection to agentd was lost before it answered")]
    Lost,
    /// The connection had been lost and could not be made anew.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The answer is not what the protocol says. One side is older than the other.
    #[error("agentd answered {method} with something this agentctl cannot read; are both of one version?")]
    Malformed {
        method: String,
        #[source]
        source: serde_json::Error,
    },
}

impl CallError {
    fn from_rpc(method: &str, error: RpcError) -> Self {
        let answer = match error {
            RpcError::Call(answer) => answer,
            RpcError::ParseError(source) => {
                return CallError::Malformed { method: method.to_owned(), source };
            }
            _ => return CallError::Lost,
        };
        let message = answer.message().to_owned();
        let data = answer.data().map_or("null", RawValue::get);
        match ErrorCode::from_code(answer.code()) {
            Some(code) => {
                let bare = || ErrorData { kind: code.kind().to_owned(), more: serde_json::Map::new() };
                CallError::Daemon {
                    code,
                    message,
                    data: serde_json::from_str(data).unwrap_or_else(|_| bare()),
                }
            }
            None => CallError::Rpc {
                code: answer.code(),
                message,
                data: serde_json::from_str(data).unwrap_or_default(),
            },
        }
    }

    /// The daemon's own error code, if it is one of those.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            CallError::Daemon { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// A field of the error's `data`.
    #[must_use]
    pub fn data(&self, field: &str) -> Option<&Value> {
        match self {
            CallError::Daemon { data, .. } => data.more.get(field),
            _ => None,
        }
    }
}
