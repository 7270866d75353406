//! Telling calls, notifications and nonsense apart, by the specification's rules rather than jsonrpsee's: any number is
//! an id, and what is wrong is told from what is not JSON.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::error::{INVALID_REQUEST, NO_BATCHES, PARSE_ERROR, plain_answer};

/// One message of a client.
#[derive(Debug)]
pub(super) enum Incoming {
    Call(Call),
    /// A call that wants no answer.
    Notification {
        method: String,
        params: Option<Box<RawValue>>,
    },
    /// An answer. The daemon asks clients nothing, and answering an answer might never end.
    Answer,
    /// Not a message. This is the answer.
    Wrong(Box<RawValue>),
}

#[derive(Debug)]
pub(super) struct Call {
    /// As the client wrote it, so that it is repeated text for text.
    pub(super) id: Box<RawValue>,
    pub(super) method: String,
    /// An object or an array.
    pub(super) params: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// A field that is there, even if it is `null`: a call may have the id `null`.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// What `text` is. Cannot fail, and cannot overflow the stack: nothing here descends into nested values.
pub(super) fn classify(text: &str) -> Incoming {
    let envelope: Envelope<'_> = match parse(text) {
        Ok(envelope) => envelope,
        Err(wrong) => return Incoming::Wrong(wrong),
    };
    let id = match envelope.id {
        Some(id) if !is_id(id) => {
            return wrong(None, "an id is a string, a number or null");
        }
        id => id,
    };
    if envelope.jsonrpc.is_none_or(|version| version.get() != "\"2.0\"") {
        return wrong(id, "\"jsonrpc\" must be \"2.0\"");
    }
    let is_answer = envelope.result.is_some() || envelope.error.is_some();
    let Some(method) = envelope.method else {
        return if is_answer { Incoming::Answer } else { wrong(id, "there is no \"method\"") };
    };
    if is_answer {
        return wrong(id, "a message is either a call or an answer");
    }
    let Ok(method) = serde_json::from_str::<Cow<'_, str>>(method.get()) else {
        return wrong(id, "\"method\" must be a string");
    };
    let params = match envelope.params.map(RawValue::get) {
        // Several client libraries write this where they have no parameters.
        None | Some("null") => None,
        Some(params) if params.starts_with(['{', '[']) => envelope.params.map(ToOwned::to_owned),
        Some(_) => return wrong(id, "\"params\" must be an object"),
    };
    let method = method.into_owned();
    match id {
        Some(id) => Incoming::Call(Call { id: id.to_owned(), method, params }),
        None => Incoming::Notification { method, params },
    }
}

fn parse(text: &str) -> Result<Envelope<'_>, Box<RawValue>> {
    // Skipping a value goes by a loop, not by recursion, so depth does not matter; and it checks the whole text.
    let whole: &RawValue = serde_json::from_str(text)
        .map_err(|error| plain_answer(None, PARSE_ERROR, &format!("this is not one JSON text: {error}")))?;
    match whole.get().as_bytes().first() {
        Some(b'{') => serde_json::from_str(text)
            .map_err(|error| plain_answer(None, INVALID_REQUEST, &format!("this is no call: {error}"))),
        Some(b'[') => {
            Err(plain_answer(None, NO_BATCHES, "batches are not supported; send the calls one by one"))
        }
        _ => Err(plain_answer(None, INVALID_REQUEST, "a call is an object")),
    }
}

fn is_id(id: &RawValue) -> bool {
    id.get() == "null" || id.get().starts_with(|first: char| matches!(first, '"' | '-' | '0'..='9'))
}

fn wrong(id: Option<&RawValue>, message: &str) -> Incoming {
    Incoming::Wrong(plain_answer(id, INVALID_REQUEST, message))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Code and id of the answer to something that is no message.
    fn answer_to(text: &str) -> (i64, Value) {
        match classify(text) {
            Incoming::Wrong(answer) => {
                let answer: Value = serde_json::from_str(answer.get()).unwrap();
                (answer["error"]["code"].as_i64().unwrap(), answer["id"].clone())
            }
            other => panic!("{text:.80} was taken as {other:?}"),
        }
    }

    #[test]
    fn rp_04_every_string_and_number_is_an_id_and_kept_as_written() {
        let long = format!("\"{}\"", "x".repeat(10_000));
        for id in [
            "\"1\"",
            "1",
            "0",
            "9007199254740993",
            "-1",
            "1.5",
            "1.50",
            "1e3",
            "\"🦦\"",
            "\"\\u0041\"",
            "\"\\ud800\"",
            "null",
            &long,
        ] {
            match classify(&format!(r#"{{"jsonrpc":"2.0","id": {id} ,"method":"m"}}"#)) {
                Incoming::Call(call) => assert_eq!(call.id.get(), id),
                other => panic!("id {id:.20}: {other:?}"),
            }
        }
        for id in ["{}", "[1]", "true"] {
            assert_eq!(
                answer_to(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#)),
                (-32600, Value::Null)
            );
        }
    }

    #[test]
    fn rp_16_bad_shapes() {
        let cases: &[(&str, i64, Value)] = &[
            (r#"{"foo":1}"#, -32600, Value::Null),
            (r#"{"id":1,"method":"m"}"#, -32600, 1.into()),
            (r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, -32600, 1.into()),
            (r#"{"jsonrpc":2.0,"id":1,"method":"m"}"#, -32600, 1.into()),
            (r#"{"jsonrpc":"2.0","id":1}"#, -32600, 1.into()),
            (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, -32600, 1.into()),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":"x"}"#, -32600, 1.into()),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":5}"#, -32600, 1.into()),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","result":5}"#, -32600, 1.into()),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#, -32600, Value::Null),
            ("5", -32600, Value::Null),
            ("\"x\"", -32600, Value::Null),
            ("null", -32600, Value::Null),
        ];
        for (text, code, id) in cases {
            assert_eq!(answer_to(text), (*code, id.clone()), "{text}");
        }
    }

    #[test]
    fn rp_17_what_is_no_json_is_a_parse_error() {
        let nested = "[".repeat(100_000);
        for text in [
            "",
            "{",
            "nonsense",
            "{}{}",
            r#"{"jsonrpc":"2.0","id":1,"method":"m"} {"jsonrpc":"2.0","id":2,"method":"m"}"#,
            "{\"a\":\"\0\"}",
            "\0",
            &nested,
            "[1,",
        ] {
            assert_eq!(answer_to(text), (-32700, Value::Null), "{text:.80}");
        }
    }

    #[test]
    fn rp_01_batches_get_one_stated_error() {
        let many = format!("[{}1]", "1,".repeat(9_999));
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for text in ["[]", "[1]", r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#, &many, &deep] {
            assert_eq!(answer_to(text), (-32005, Value::Null));
        }
    }

    #[test]
    fn notifications_and_answers_are_told_apart() {
        let notification = classify(r#"{"jsonrpc":"2.0","method":"session/interrupt","params":{"a":1}}"#);
        assert!(matches!(notification, Incoming::Notification { params: Some(_), .. }));
        for text in [r#"{"jsonrpc":"2.0","id":1,"result":null}"#, r#"{"jsonrpc":"2.0","id":1,"error":{}}"#] {
            assert!(matches!(classify(text), Incoming::Answer), "{text}");
        }
    }

    #[test]
    fn unknown_fields_and_null_params_are_fine() {
        let call = classify(r#"{"jsonrpc":"2.0","id":1,"method":"","params":null,"extra":[{}]}"#);
        assert!(matches!(call, Incoming::Call(Call { params: None, .. })));
    }
}
