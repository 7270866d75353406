//! Registering handlers by a method's type, so that a handler cannot read or answer anything but what the protocol says.

use std::future::Future;
use std::sync::Arc;

use agentd_protocol::Method;
use agentd_protocol::event::SubscribeParams;
use agentd_protocol::method::{EVENT_NOTIFICATION, EventsSubscribe, EventsUnsubscribe};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use jsonrpsee::core::RegisterMethodError;
use jsonrpsee::core::server::{PendingSubscriptionSink, RpcModule};
use jsonrpsee::types::{ErrorObjectOwned, Extensions, Params};
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};

use super::connection::ConnectionInfo;
use super::error::{INTERNAL_ERROR, INVALID_PARAMS};

/// Registers the handler of `M`. It is first polled in the connection's read loop: what it does before its first wait
/// happens in the order in which the client wrote its calls.
///
/// # Errors
/// The name is taken.
pub fn method<M, C, F, Fut>(module: &mut RpcModule<C>, handler: F) -> Result<(), RegisterMethodError>
where
    M: Method,
    C: Send + Sync + 'static,
    F: Fn(M::Params, Arc<C>, Arc<ConnectionInfo>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<M::Result, ErrorObjectOwned>> + Send,
{
    module.register_async_method(M::NAME, move |params, context, extensions| {
        let handler = handler.clone();
        async move {
            let params = parse_params::<M::Params>(&params)?;
            let Some(connection) = extensions.get::<Arc<ConnectionInfo>>().cloned() else {
                return Err(internal("the call belongs to no connection"));
            };
            let result = handler(params, context, connection).await?;
            to_raw_value(&result).map_err(|error| internal(&format!("the result cannot be written: {error}")))
        }
    })?;
    Ok(())
}

/// Registers the handler of `events/subscribe`, and with it `events/unsubscribe`. Like a method it is first polled in the
/// read loop: a subscription that takes its position before its first wait misses nothing of what the client asks for
/// next. jsonrpsee's own registration would start it in a task, at any later time.
///
/// # Errors
/// A name is taken.
pub fn subscription<C, F, Fut>(module: &mut RpcModule<C>, handler: F) -> Result<(), RegisterMethodError>
where
    C: Send + Sync + 'static,
    F: Fn(SubscribeParams, PendingSubscriptionSink, Arc<C>, Arc<ConnectionInfo>) -> Fut
        + Clone
        + Send
        + Sync
        + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let begin =
        move |params: Params<'_>, pending: PendingSubscriptionSink, context, extensions: &Extensions| {
            let parsed = parse_params::<SubscribeParams>(&params);
            let connection = extensions.get::<Arc<ConnectionInfo>>().cloned();
            let mut running: BoxFuture<'static, ()> = match (parsed, connection) {
                (Ok(params), Some(connection)) => handler(params, pending, context, connection).boxed(),
                (Err(error), _) => pending.reject(error).boxed(),
                (_, None) => pending.reject(internal("the call belongs to no connection")).boxed(),
            };
            if (&mut running).now_or_never().is_none() {
                tokio::spawn(running);
            }
        };
    let (name, event) = (EventsSubscribe::NAME, EVENT_NOTIFICATION);
    module.register_subscription_raw(name, event, EventsUnsubscribe::NAME, begin)?;
    Ok(())
}

/// The parameters of a call as `P`. None at all are `{}`.
///
/// # Errors
/// `-32602`, saying which field is wrong.
pub fn parse_params<P: DeserializeOwned>(params: &Params<'_>) -> Result<P, ErrorObjectOwned> {
    let text = params.as_str().unwrap_or("{}");
    if text.starts_with('[') {
        return Err(ErrorObjectOwned::owned(
            INVALID_PARAMS,
            "params must be an object with named fields, not an array",
            None::<()>,
        ));
    }
    serde_json::from_str(text).map_err(|error| {
        ErrorObjectOwned::owned(INVALID_PARAMS, format!("invalid params: {error}"), None::<Box<RawValue>>)
    })
}

fn internal(message: &str) -> ErrorObjectOwned {
    ErrorObjectOwned::owned(INTERNAL_ERROR, message, None::<()>)
}

#[cfg(test)]
mod tests {
    use agentd_protocol::session::SessionParams;

    use super::*;

    fn parse<P: DeserializeOwned>(text: Option<&str>) -> Result<P, ErrorObjectOwned> {
        parse_params(&Params::new(text))
    }

    #[test]
    fn rp_16_params_are_an_object_and_wrong_ones_are_named() {
        assert!(parse::<agentd_protocol::method::Empty>(None).is_ok());
        assert!(parse::<agentd_protocol::method::Empty>(Some(r#"{"more":1}"#)).is_ok());
        for (text, expected) in [
            (None, "missing field `sessionId`"),
            (Some("{}"), "missing field `sessionId`"),
            (Some("[]"), "must be an object"),
            (Some(r#"{"sessionId":5}"#), "expected a string"),
            (Some(r#"{"sessionId":"\ud800"}"#), "hex escape"),
        ] {
            let error = parse::<SessionParams>(text).unwrap_err();
            assert_eq!(error.code(), -32602);
            assert!(error.message().contains(expected), "{text:?}: {}", error.message());
        }
    }
}
