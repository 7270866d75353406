//! From a call to its handler: jsonrpsee's `Methods` behind its `RpcServiceT`, one value a connection.
//!
//! jsonrpsee knows ids that are unsigned integers or strings only. So an id travels through it as a string that holds
//! the text the client wrote ([`carry_id`]), and is put back when the answer leaves ([`restore_id`]).

use std::future::Future;
use std::sync::Arc;

use agentd_protocol::method::UnsubscribeParams;
use jsonrpsee::core::id_providers::RandomStringIdProvider;
use jsonrpsee::core::middleware::{Batch, Notification, RpcServiceT};
use jsonrpsee::core::server::{
    BoundedSubscriptions, ConnectionId, MethodCallback, MethodResponse, MethodSink, Methods,
    SubscriptionState,
};
use jsonrpsee::types::error::{ErrorCode, ErrorObjectOwned, reject_too_many_subscriptions};
use jsonrpsee::types::{Id, Params, Request};
use serde_json::value::RawValue;

use super::error::NO_BATCHES;

/// Letters of a subscription's id. It is unique within its connection, and secret from nobody.
const SUBSCRIPTION_ID_LENGTH: usize = 12;

/// The innermost service: finds the handler and calls it.
#[derive(Clone, Debug)]
pub(super) struct Dispatch {
    pub(super) methods: Methods,
    pub(super) connection: ConnectionId,
    pub(super) sink: MethodSink,
    pub(super) subscriptions: BoundedSubscriptions,
    pub(super) max_response: usize,
}

impl RpcServiceT for Dispatch {
    type MethodResponse = MethodResponse;
    type NotificationResponse = MethodResponse;
    type BatchResponse = MethodResponse;

    fn call<'a>(&self, request: Request<'a>) -> impl Future<Output = MethodResponse> + Send + 'a {
        let this = self.clone();
        async move {
            let Request { id, method, params, extensions, .. } = request;
            let id = id.into_owned();
            let params = Params::new(params.as_deref().map(RawValue::get)).into_owned();
            match this.methods.method(&method) {
                None => MethodResponse::error(id, ErrorObjectOwned::from(ErrorCode::MethodNotFound)),
                Some(MethodCallback::Sync(callback)) => callback(id, params, this.max_response, extensions),
                Some(MethodCallback::Async(callback)) => {
                    callback(id, params, this.connection, this.max_response, extensions).await
                }
                Some(MethodCallback::Subscription(callback)) => {
                    let Some(permit) = this.subscriptions.acquire() else {
                        let limit = this.subscriptions.max();
                        return MethodResponse::error(id, reject_too_many_subscriptions(limit));
                    };
                    let answered = {
                        let state = SubscriptionState {
                            conn_id: this.connection,
                            id_provider: &RandomStringIdProvider::new(SUBSCRIPTION_ID_LENGTH),
                            subscription_permit: permit,
                        };
                        callback(id, params, this.sink.clone(), state, extensions)
                    };
                    answered.await
                }
                Some(MethodCallback::Unsubscription(callback)) => {
                    let params = positional(params);
                    callback(id, params, this.connection, this.max_response, extensions)
                }
            }
        }
    }

    fn batch<'a>(&self, _: Batch<'a>) -> impl Future<Output = MethodResponse> + Send + 'a {
        std::future::ready(MethodResponse::error(
            Id::Null,
            ErrorObjectOwned::owned(NO_BATCHES, "batches are not supported", None::<()>),
        ))
    }

    fn notification<'a>(&self, _: Notification<'a>) -> impl Future<Output = MethodResponse> + Send + 'a {
        std::future::ready(MethodResponse::notification())
    }
}

/// jsonrpsee reads the parameters of an unsubscribe call from an array only; the protocol names them.
fn positional(params: Params<'static>) -> Params<'static> {
    let Ok(UnsubscribeParams { subscription }) = params.parse() else { return params };
    match serde_json::to_string(&[subscription]) {
        Ok(array) => Params::new(Some(&array)).into_owned(),
        Err(_) => params,
    }
}

/// The id of a call on its way through jsonrpsee.
pub(super) fn carry_id(id: &RawValue) -> Id<'static> {
    Id::Str(id.get().to_owned().into())
}

/// An answer with the client's own id put back. Anything else stays as it is.
pub(super) fn restore_id(answer: Box<RawValue>) -> Box<RawValue> {
    const START: &str = r#"{"jsonrpc":"2.0","id":"#;
    let Some(rest) = answer.get().strip_prefix(START) else { return answer };
    let mut parser = serde_json::Deserializer::from_str(rest).into_iter::<String>();
    let Some(Ok(id)) = parser.next() else { return answer };
    let text = [START, &id, &rest[parser.byte_offset()..]].concat();
    RawValue::from_string(text).unwrap_or(answer)
}

/// The answer of a call that made its handler panic.
pub(super) fn internal_error(id: Id<'_>) -> MethodResponse {
    MethodResponse::error(
        id,
        ErrorObjectOwned::owned(
            ErrorCode::InternalError.code(),
            "this is a bug in agentd; its log has the details: agentctl daemon logs",
            None::<()>,
        ),
    )
}

/// Extensions that every call of a connection carries.
pub(super) fn with_info<'a>(
    mut request: Request<'a>,
    info: &Arc<super::connection::ConnectionInfo>,
) -> Request<'a> {
    request.extensions_mut().insert(info.clone());
    request
}

/// A request as jsonrpsee takes it.
pub(super) fn request(id: Id<'static>, method: String, params: Option<Box<RawValue>>) -> Request<'static> {
    Request::owned(method, params, id)
}

#[cfg(test)]
mod tests {
    use jsonrpsee::core::server::ResponsePayload;

    use super::*;

    #[test]
    fn rp_04_an_id_comes_through_text_for_text() {
        for id in ["1", "-1", "1.50", "9007199254740993", "null", "\"a\\u0041\\\"\"", "\"🦦\""] {
            let raw = RawValue::from_string(id.to_owned()).unwrap();
            let response =
                MethodResponse::response(carry_id(&raw), ResponsePayload::success("\"id\":"), 1000);
            let answer = restore_id(response.into_json());
            assert_eq!(answer.get(), format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"\"id\":"}}"#));
        }
    }

    #[test]
    fn other_messages_are_left_alone() {
        let event = r#"{"jsonrpc":"2.0","method":"events/event","params":{"id":"x"}}"#;
        assert_eq!(restore_id(RawValue::from_string(event.to_owned()).unwrap()).get(), event);
    }

    #[test]
    fn unsubscribing_takes_names_and_places() {
        for (given, expected) in [
            (r#"{"subscription":"s-1"}"#, r#"["s-1"]"#),
            (r#"["s-1"]"#, r#"["s-1"]"#),
            (r#"{"x":1}"#, r#"{"x":1}"#),
        ] {
            let params = positional(Params::new(Some(given)).into_owned());
            assert_eq!(params.as_str(), Some(expected));
        }
    }
}
