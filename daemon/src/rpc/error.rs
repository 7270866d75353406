//! Errors as they go to clients. Ours always carry `data.kind`.

use agentd_protocol::{ErrorCode, ErrorData};
use jsonrpsee::types::ErrorObjectOwned;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

/// Standard codes of JSON-RPC, and those that jsonrpsee uses for the same thing.
pub(super) const PARSE_ERROR: i32 = -32700;
pub(super) const INVALID_REQUEST: i32 = -32600;
pub(super) const INVALID_PARAMS: i32 = -32602;
pub(super) const INTERNAL_ERROR: i32 = -32603;
pub(super) const NO_BATCHES: i32 = -32005;
pub(super) const TOO_LARGE: i32 = -32007;

/// One of our own errors. `data` gets its `kind` here, whatever it held.
#[must_use]
pub fn error(code: ErrorCode, message: impl Into<String>, data: Map<String, Value>) -> ErrorObjectOwned {
    let mut more = data;
    more.remove("kind");
    ErrorObjectOwned::owned(code.code(), message, Some(ErrorData { kind: code.kind().to_owned(), more }))
}

/// One of our own errors with one field of data.
#[must_use]
pub fn error_with(
    code: ErrorCode,
    message: impl Into<String>,
    field: &str,
    value: impl Into<Value>,
) -> ErrorObjectOwned {
    error(code, message, Map::from_iter([(field.to_owned(), value.into())]))
}

/// An error answer as it goes over the wire, with the id exactly as the client wrote it, or `null`.
pub(super) fn answer(id: Option<&RawValue>, error: &ErrorObjectOwned) -> Box<RawValue> {
    #[derive(Serialize)]
    struct Answer<'a> {
        jsonrpc: &'static str,
        id: Option<&'a RawValue>,
        error: &'a ErrorObjectOwned,
    }
    // Strings, numbers and JSON that was parsed before: there is nothing here that cannot be written.
    to_raw_value(&Answer { jsonrpc: "2.0", id, error }).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// An error answer of JSON-RPC itself.
pub(super) fn plain_answer(id: Option<&RawValue>, code: i32, message: &str) -> Box<RawValue> {
    answer(id, &ErrorObjectOwned::owned(code, message, None::<()>))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_errors_always_say_their_kind() {
        let error = error_with(ErrorCode::Conflict, "beyond the head", "head", 7);
        let json: Value = serde_json::from_str(answer(None, &error).get()).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"jsonrpc": "2.0", "id": null, "error":
                {"code": -32053, "message": "beyond the head", "data": {"kind": "conflict", "head": 7}}})
        );
    }

    #[test]
    fn an_id_is_repeated_as_it_was_written() {
        let id = RawValue::from_string("1.50".into()).unwrap();
        assert!(plain_answer(Some(&id), INVALID_REQUEST, "x").get().contains(r#""id":1.50,"#));
    }
}
