//! Why an attempt failed: for the engine, whether to try again and when; for people, what happened and what to do.

use std::time::{Duration, SystemTime};

use agentd_protocol::show::show_line;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::client::Endpoint;
use super::providers::OLLAMA;
use super::stream::Reported;

/// The longest wait that is taken from a provider. Who asks for more gets asked again after this.
pub const MAX_WAIT: Duration = Duration::from_secs(300);

/// How much of an unexpected body is shown.
const SHOWN: usize = 200;

/// An attempt that gave no reply. Its text is for people and holds no key.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SampleError {
    pub kind: Kind,
    pub retry: Retry,
    /// Whether text or thinking of this attempt was already handed out. Then it is never retried.
    pub delivered: bool,
    message: String,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What went wrong, as far as somebody may act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Settings make no usable request: a bad URL, a key that is no header value.
    Settings,
    /// Nobody answered at that address.
    Unreachable,
    /// The key is missing, wrong, or may not do this.
    Key,
    /// No money or quota left.
    Quota,
    /// Too many requests.
    Limited,
    /// The provider cannot answer now.
    Unavailable,
    /// No such model, or no such API at that address.
    NotFound,
    /// The context is longer than the model can read.
    TooLong,
    /// The provider refuses the request for another reason.
    Rejected,
    /// The answer is not a stream of events, or not of this dialect.
    NotAStream,
    /// The answer ended before it was complete.
    Incomplete,
    /// Nothing came for too long.
    Silent,
}

/// Whether the same request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    Never,
    /// Yes; the provider does not say when.
    Backoff,
    /// Yes, after `wait`, which is what the provider asked for, but at most [`MAX_WAIT`].
    After {
        wait: Duration,
        asked: Duration,
    },
}

impl SampleError {
    /// Whether the same request may be sent again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.retry != Retry::Never
    }

    /// The settings make no request that could be sent.
    #[must_use]
    pub fn settings(message: impl Into<String>) -> Self {
        Self::new(Kind::Settings, Retry::Never, message.into())
    }

    pub(super) fn new(kind: Kind, retry: Retry, message: String) -> Self {
        Self { kind, retry, delivered: false, message, source: None }
    }

    pub(super) fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Once something was handed out, a second attempt would say it twice.
    pub(super) fn after_delivery(mut self, delivered: bool) -> Self {
        self.delivered = delivered;
        if delivered {
            self.retry = Retry::Never;
        }
        self
    }
}

/// An answer with a status that is no success.
pub(super) fn refused(
    endpoint: &Endpoint,
    model: &str,
    status: StatusCode,
    headers: &HeaderMap,
    body: &str,
    now: SystemTime,
) -> SampleError {
    let reported = Reported::from_json(body);
    let said = clean(&reported.message, endpoint.key.as_ref());
    let kind = kind_of(status, &reported);
    let retry = match kind {
        Kind::Quota | Kind::Key | Kind::TooLong => Retry::Never,
        _ if is_transient(status) => wait_of(headers, now)
            .map_or(Retry::Backoff, |asked| Retry::After { wait: asked.min(MAX_WAIT), asked }),
        _ => Retry::Never,
    };
    let whom = endpoint.describe();
    let mut message = format!("{whom} answered {}", status.as_u16());
    if !said.is_empty() {
        message.push_str(&format!(": {said}"));
    }
    message.push_str(&format!(". {}", advice(kind, endpoint, model, retry)));
    SampleError::new(kind, retry, message.trim_end().to_owned())
}

/// An error event inside of a stream that had begun well.
pub(super) fn reported(endpoint: &Endpoint, model: &str, reported: &Reported) -> SampleError {
    let code = reported.code.as_str();
    let as_status = code.parse().ok().and_then(|status| StatusCode::from_u16(status).ok());
    let kind = match as_status {
        Some(status) => kind_of(status, reported),
        None if code.starts_with("rate_limit") => Kind::Limited,
        // The request was accepted, so what goes wrong now is the provider's trouble, unless it says otherwise.
        None => match kind_of(StatusCode::BAD_REQUEST, reported) {
            Kind::Rejected if !blames_the_request(code) => Kind::Unavailable,
            kind => kind,
        },
    };
    let retry = if matches!(kind, Kind::Unavailable | Kind::Limited) { Retry::Backoff } else { Retry::Never };
    let said = clean(&reported.message, endpoint.key.as_ref());
    let said = if said.is_empty() { "no reason given".to_owned() } else { said };
    let whom = endpoint.describe();
    let advice = advice(kind, endpoint, model, retry);
    SampleError::new(
        kind,
        retry,
        format!("{whom} broke off its answer: {said}. {advice}").trim_end().to_owned(),
    )
}

fn blames_the_request(code: &str) -> bool {
    ["invalid", "authentication", "permission", "not_supported", "content_filter", "bad_request"]
        .iter()
        .any(|word| code.contains(word))
}

/// A body that is no stream of events.
pub(super) fn not_a_stream(endpoint: &Endpoint, what: &str, head: &str) -> SampleError {
    let said = clean(head, endpoint.key.as_ref());
    let said = if said.is_empty() { "an empty body".to_owned() } else { format!("`{said}`") };
    let message = format!(
        "{} sent {what} instead of an event stream: {said}. Check that `base_url` of provider `{}` is that of an API \
         of dialect `{}`.",
        endpoint.describe(),
        endpoint.provider,
        endpoint.dialect_name(),
    );
    SampleError::new(Kind::NotAStream, Retry::Never, message)
}

fn is_transient(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status.as_u16(), 408 | 409 | 429)
}

fn kind_of(status: StatusCode, reported: &Reported) -> Kind {
    let code = reported.code.as_str();
    let message = reported.message.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if code == "context_length_exceeded"
        || code == "request_too_large"
        || has(&[
            "prompt is too long",
            "maximum context length",
            "context window",
            "exceeds the available context",
        ])
    {
        return Kind::TooLong;
    }
    if matches!(code, "insufficient_quota" | "billing_error") || has(&["credit balance is too low"]) {
        return Kind::Quota;
    }
    match status.as_u16() {
        401 | 403 => Kind::Key,
        402 => Kind::Quota,
        404 => Kind::NotFound,
        413 => Kind::TooLong,
        429 => Kind::Limited,
        _ if matches!(code, "model_not_found" | "not_found_error") => Kind::NotFound,
        408 | 409 | 500..=599 => Kind::Unavailable,
        _ => Kind::Rejected,
    }
}

fn advice(kind: Kind, endpoint: &Endpoint, model: &str, retry: Retry) -> String {
    let provider = &endpoint.provider;
    match kind {
        Kind::Key => match &endpoint.key_source {
            Some(source) => format!(
                "The key came from {source}. Is it the right one? `agentctl key add {provider}` stores another."
            ),
            None => format!("No key was sent. `agentctl key add {provider}` stores one."),
        },
        Kind::Quota => format!("The account at {provider} has nothing left; waiting will not help."),
        Kind::NotFound if provider == OLLAMA => {
            format!(
                "`ollama pull {}` gets a model, `ollama list` shows those that are there.",
                show_line(model)
            )
        }
        Kind::NotFound => format!(
            "Does {provider} have a model `{}`? Name another with `--model {provider}/NAME`.",
            show_line(model)
        ),
        Kind::TooLong => "The context is longer than this model reads.".to_owned(),
        Kind::Limited | Kind::Unavailable => match retry {
            Retry::After { wait, asked } if asked > wait => {
                format!("It asks to wait {}; agentd waits {} at most.", seconds(asked), seconds(wait))
            }
            Retry::After { wait, .. } => format!("It asks to wait {}.", seconds(wait)),
            Retry::Backoff | Retry::Never => String::new(),
        },
        Kind::Settings
        | Kind::Unreachable
        | Kind::Rejected
        | Kind::NotAStream
        | Kind::Incomplete
        | Kind::Silent => String::new(),
    }
}

fn seconds(wait: Duration) -> String {
    format!("{} s", wait.as_secs_f64().ceil())
}

/// The wait that an answer asks for: `retry-after-ms`, or `retry-after` in seconds or as a date.
fn wait_of(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let number = |text: &str| text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    if let Some(ms) = text("retry-after-ms").and_then(number) {
        return Some(Duration::try_from_secs_f64(ms / 1000.0).unwrap_or(Duration::MAX));
    }
    let value = text("retry-after")?;
    if let Some(seconds) = number(value) {
        return Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or(Duration::ZERO))
}

/// A few words out of a body that somebody else wrote, in one line, without the key.
pub(super) fn clean(text: &str, key: Option<&SecretString>) -> String {
    let mut text = text.to_owned();
    if let Some(key) = key.map(ExposeSecret::expose_secret).filter(|key| !key.is_empty()) {
        text = text.replace(key, "[key]");
    }
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > SHOWN * 4 {
            break;
        }
    }
    if line.chars().count() > SHOWN {
        line = line.chars().take(SHOWN).collect();
        line.push('…');
    }
    show_line(line.trim_end_matches('.'))
}

impl Reported {
    /// Reads an error body in the shapes that providers use; what is no JSON is the message itself.
    pub(super) fn from_json(body: &str) -> Self {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Shape {
            Wrapped { error: Box<Shape> },
            Object(Fields),
            Text(String),
        }
        #[derive(Default, Deserialize)]
        struct Fields {
            #[serde(default)]
            message: Option<String>,
            #[serde(default)]
            detail: Option<serde_json::Value>,
            #[serde(default)]
            code: Option<serde_json::Value>,
            #[serde(default)]
            r#type: Option<String>,
            /// OpenRouter's: what the provider behind it said.
            #[serde(default)]
            metadata: Option<Metadata>,
        }
        #[derive(Deserialize)]
        struct Metadata {
            #[serde(default)]
            raw: Option<serde_json::Value>,
        }
        let mut shape = match serde_json::from_str::<Shape>(body) {
            Ok(shape) => shape,
            Err(_) => return Self { code: String::new(), message: body.to_owned() },
        };
        loop {
            match shape {
                Shape::Wrapped { error } => shape = *error,
                Shape::Text(message) => return Self { code: String::new(), message },
                Shape::Object(fields) => {
                    let code = match fields.code {
                        Some(serde_json::Value::String(code)) => Some(code),
                        Some(serde_json::Value::Number(code)) => Some(code.to_string()),
                        _ => None,
                    };
                    let detail = fields.detail.map(|detail| match detail {
                        serde_json::Value::String(text) => text,
                        other => other.to_string(),
                    });
                    let mut message = fields.message.or(detail).unwrap_or_else(|| body.to_owned());
                    if let Some(serde_json::Value::String(raw)) =
                        fields.metadata.and_then(|metadata| metadata.raw)
                    {
                        message.push_str(": ");
                        message.push_str(&raw);
                    }
                    return Self { code: code.or(fields.r#type).unwrap_or_default(), message };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;

    fn endpoint() -> Endpoint {
        Endpoint {
            key: Some(SecretString::from("sk-very-secret")),
            key_source: Some("the file keys/anthropic".to_owned()),
            ..Endpoint::for_tests("anthropic", "https://api.anthropic.com")
        }
    }

    fn refuse(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> SampleError {
        let headers =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
        let status = StatusCode::from_u16(status).unwrap();
        // 2026-11-30T12:00:00Z
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_040_000);
        refused(&endpoint(), "some-model", status, &headers.collect(), body, now)
    }

    #[test]
    fn only_passing_states_are_retried() {
        for status in [408, 409, 429, 500, 502, 503, 504, 529] {
            assert_eq!(refuse(status, &[], "").retry, Retry::Backoff, "{status}");
        }
        for status in [301, 400, 401, 402, 403, 404, 405, 413, 422] {
            assert_eq!(refuse(status, &[], "").retry, Retry::Never, "{status}");
        }
        let empty = r#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#;
        let error = refuse(429, &[("retry-after", "1")], empty);
        assert_eq!((error.kind, error.retry), (Kind::Quota, Retry::Never));
    }

    #[test]
    fn waits_are_read_and_capped() {
        let s = Duration::from_secs;
        for (name, value, asked) in [
            ("retry-after", "7", s(7)),
            ("retry-after", "0", s(0)),
            ("retry-after", "0.5", Duration::from_millis(500)),
            ("retry-after-ms", "250", Duration::from_millis(250)),
            ("retry-after", "Mon, 30 Nov 2026 12:01:00 GMT", s(60)),
            ("retry-after", "Mon, 30 Nov 2026 11:00:00 GMT", s(0)),
            ("retry-after", "86400", s(86_400)),
        ] {
            let expected = Retry::After { wait: asked.min(MAX_WAIT), asked };
            assert_eq!(refuse(429, &[(name, value)], "").retry, expected, "{name}: {value}");
        }
        for value in ["soon", "-1", "NaN", ""] {
            assert_eq!(refuse(429, &[("retry-after", value)], "").retry, Retry::Backoff, "{value}");
        }
        assert!(matches!(
            refuse(503, &[("retry-after", "1e300")], "").retry,
            Retry::After { wait: MAX_WAIT, .. }
        ));
    }

    #[test]
    fn messages_say_who_what_and_what_next() {
        let messages = [
            refuse(401, &[], r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key sk-very-secret"}}"#),
            refuse(404, &[], r#"{"error":{"type":"not_found_error","message":"model: some-model"}}"#),
            refuse(429, &[("retry-after", "1200")], r#"{"error":{"message":"Slow down."}}"#),
            refuse(400, &[], r#"{"error":"tools are not supported"}"#),
            refuse(400, &[], r#"{"error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#),
            refuse(402, &[], r#"{"message":"Insufficient Balance"}"#),
            refuse(502, &[], "<html>\n<h1>502\u{202e} Bad Gateway</h1>"),
            refuse(529, &[], ""),
            refuse(
                400,
                &[],
                r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"no tools here"}}}"#,
            ),
            refuse(422, &[], r#"{"detail":[{"loc":["body"],"msg":"field required"}]}"#),
        ]
        .map(|error| format!("{:?}: {error}", error.kind))
        .join("\n");
        insta::assert_snapshot!(messages);
    }

    #[test]
    fn errors_in_a_stream_are_sorted() {
        for (code, kind, retry) in [
            ("overloaded_error", Kind::Unavailable, true),
            ("rate_limit_error", Kind::Limited, true),
            ("502", Kind::Unavailable, true),
            ("429", Kind::Limited, true),
            ("internal_error", Kind::Unavailable, true),
            ("invalid_request_error", Kind::Rejected, false),
            ("400", Kind::Rejected, false),
            ("insufficient_quota", Kind::Quota, false),
            ("context_length_exceeded", Kind::TooLong, false),
            ("", Kind::Unavailable, true),
        ] {
            let told = Reported { code: code.to_owned(), message: "x".to_owned() };
            let error = reported(&endpoint(), "m", &told);
            assert_eq!((error.kind, error.is_retryable()), (kind, retry), "{code}");
            assert!(!error.after_delivery(true).is_retryable(), "{code}");
        }
    }

    #[test]
    fn long_bodies_are_cut_and_made_harmless() {
        let shown = clean(&"ä\u{1b}[2J ".repeat(500), None);
        assert!(shown.chars().count() < SHOWN * 3 && !shown.contains('\u{1b}'), "{shown}");
        assert!(shown.ends_with('…'));
    }
}
