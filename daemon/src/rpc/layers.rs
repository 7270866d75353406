//! What surrounds every call, whatever its framing: a span, a net under panics, and the one notification that is run.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use agentd_protocol::Method as _;
use agentd_protocol::method::SessionInterrupt;
use futures_util::FutureExt as _;
use jsonrpsee::core::middleware::{Batch, Notification, RpcServiceT};
use jsonrpsee::core::server::MethodResponse;
use jsonrpsee::types::{Id, Request};
use tracing::Instrument as _;

use super::dispatch::internal_error;

/// What an `RpcServiceT` of this module is: answers are jsonrpsee's, and it can be kept.
pub(super) trait Service:
    RpcServiceT<
        MethodResponse = MethodResponse,
        NotificationResponse = MethodResponse,
        BatchResponse = MethodResponse,
    > + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> Service for S where
    S: RpcServiceT<
            MethodResponse = MethodResponse,
            NotificationResponse = MethodResponse,
            BatchResponse = MethodResponse,
        > + Clone
        + Send
        + Sync
        + 'static
{
}

/// All layers around `inner`, the outermost first.
pub(super) fn around<S: Service>(inner: S) -> impl Service {
    NotificationAsCall(Traced(CatchPanic(inner)))
}

/// A panicking handler answers `-32603`; without this its client would wait for ever.
#[derive(Clone, Debug)]
struct CatchPanic<S>(S);

impl<S: Service> RpcServiceT for CatchPanic<S> {
    type MethodResponse = MethodResponse;
    type NotificationResponse = MethodResponse;
    type BatchResponse = MethodResponse;

    fn call<'a>(&self, request: Request<'a>) -> impl Future<Output = MethodResponse> + Send + 'a {
        let inner = self.0.clone();
        async move {
            let id = request.id().into_owned();
            let method = request.method_name().to_owned();
            // The handler's state is the session's, which has its own task; nothing half-changed is looked at here.
            let outcome = AssertUnwindSafe(async move { inner.call(request).await }).catch_unwind().await;
            outcome.unwrap_or_else(|panic| {
                tracing::error!(%method, panic = %text_of(&*panic), "a handler panicked");
                internal_error(id)
            })
        }
    }

    fn batch<'a>(&self, batch: Batch<'a>) -> impl Future<Output = MethodResponse> + Send + 'a {
        self.0.batch(batch)
    }

    fn notification<'a>(&self, n: Notification<'a>) -> impl Future<Output = MethodResponse> + Send + 'a {
        self.0.notification(n)
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(not a text)")
}

/// A span a call, below the connection's. Parameters stay out of it: they hold prompts and keys.
#[derive(Clone, Debug)]
struct Traced<S>(S);

impl<S: Service> RpcServiceT for Traced<S> {
    type MethodResponse = MethodResponse;
    type NotificationResponse = MethodResponse;
    type BatchResponse = MethodResponse;

    fn call<'a>(&self, request: Request<'a>) -> impl Future<Output = MethodResponse> + Send + 'a {
        let inner = self.0.clone();
        let span = tracing::debug_span!("call", method = request.method_name());
        async move {
            let response = inner.call(request).await;
            tracing::debug!(error = response.as_error_code(), "answered");
            response
        }
        .instrument(span)
    }

    fn batch<'a>(&self, batch: Batch<'a>) -> impl Future<Output = MethodResponse> + Send + 'a {
        self.0.batch(batch)
    }

    fn notification<'a>(&self, n: Notification<'a>) -> impl Future<Output = MethodResponse> + Send + 'a {
        self.0.notification(n)
    }
}

/// Methods that may be sent as a notification. ACP sends its cancel so; everything else of that kind is ignored, as the
/// specification wants.
const AS_NOTIFICATION: &[&str] = &[SessionInterrupt::NAME];

#[derive(Clone, Debug)]
struct NotificationAsCall<S>(S);

impl<S: Service> RpcServiceT for NotificationAsCall<S> {
    type MethodResponse = MethodResponse;
    type NotificationResponse = MethodResponse;
    type BatchResponse = MethodResponse;

    fn call<'a>(&self, request: Request<'a>) -> impl Future<Output = MethodResponse> + Send + 'a {
        self.0.call(request)
    }

    fn batch<'a>(&self, batch: Batch<'a>) -> impl Future<Output = MethodResponse> + Send + 'a {
        self.0.batch(batch)
    }

    fn notification<'a>(&self, n: Notification<'a>) -> impl Future<Output = MethodResponse> + Send + 'a {
        let inner = self.0.clone();
        async move {
            if AS_NOTIFICATION.contains(&n.method_name()) {
                let Notification { jsonrpc, method, params, extensions } = n;
                inner.call(Request { jsonrpc, id: Id::Null, method, params, extensions }).await;
            }
            MethodResponse::notification()
        }
    }
}
