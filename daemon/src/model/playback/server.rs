//! The HTTP side: routes, faults, the log.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use bytes::Bytes;
use futures_util::stream;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::answer::{answer, matching};
use super::script::{Failure, Fault, Script, Tokens};
use super::view::View;
use super::wire::{self, Written};
use crate::model::message::Dialect;

/// The longest request. More than any context that is sent here.
const MAX_REQUEST: usize = 64 << 20;

/// How many requests a log keeps: many more than a test sends.
const MAX_LOGGED: usize = 4096;

/// Whether requests are kept for `GET log`. A demo in a daemon keeps none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    Keep,
    Off,
}

/// A server that plays. Dropping it stops it.
#[derive(Debug)]
pub struct Running {
    base_url: String,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<io::Result<()>>,
}

impl Running {
    /// `http://127.0.0.1:PORT/RANDOM`, without a slash at the end.
    #[must_use]
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// What to set as a provider's `base_url`.
    #[must_use]
    pub fn base_for(&self, dialect: Dialect) -> String {
        match dialect {
            Dialect::OpenaiChat => format!("{}/v1", self.base_url),
            Dialect::Anthropic => self.base_url.clone(),
        }
    }

    /// Runs until it fails, which it does not do by itself.
    ///
    /// # Errors
    /// The listener broke.
    pub async fn wait(mut self) -> io::Result<()> {
        (&mut self.task).await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Stops, and waits until that has happened.
    pub async fn shutdown(self) {
        self.stop.cancel();
        // A failure of a server that is going away concerns nobody.
        let _ = self.wait().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Plays `script` on a free port of 127.0.0.1.
///
/// # Errors
/// No port can be had.
pub async fn start(script: Script, log: Log) -> io::Result<Running> {
    let path = format!("/{}", uuid::Uuid::new_v4().simple());
    serve(script, TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?, &path, log)
}

/// Plays `script` where a server was before: as `base_url`, which that one had. So whoever knows it finds the new one.
///
/// # Errors
/// `base_url` is none of a playback, or somebody else has its port by now.
pub async fn start_again(script: Script, base_url: &str, log: Log) -> io::Result<Running> {
    let strange =
        || io::Error::new(io::ErrorKind::InvalidInput, format!("{base_url} is no playback's address"));
    let (host, path) = base_url
        .strip_prefix("http://")
        .and_then(|rest| rest.find('/').map(|slash| rest.split_at(slash)))
        .ok_or_else(strange)?;
    let address: SocketAddr = host.parse().map_err(|_| strange())?;
    // The path is made into routes, where some characters mean more than themselves.
    if !address.ip().is_loopback()
        || path.len() < 2
        || !path[1..].bytes().all(|byte| byte.is_ascii_alphanumeric())
    {
        return Err(strange());
    }
    serve(script, TcpListener::bind(address).await?, path, log)
}

/// Plays `script` on `listener`, below `path`.
fn serve(script: Script, listener: TcpListener, path: &str, log: Log) -> io::Result<Running> {
    let base_url = format!("http://{}{path}", listener.local_addr()?);
    let stop = CancellationToken::new();
    let server = Arc::new(Server {
        counts: Mutex::new(Counts { script: 0, rules: vec![0; script.rules.len()] }),
        script,
        log: Mutex::new(Requests { keep: log == Log::Keep, previous: String::new(), entries: Vec::new() }),
        released: watch::Sender::new(0),
        stop: stop.clone(),
    });
    let routes = Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/messages", post(messages))
        .route("/v1/models", get(models))
        .route("/api/tags", get(tags))
        .route("/log", get(log_of))
        .route("/release", post(release))
        .layer(axum::extract::DefaultBodyLimit::max(MAX_REQUEST))
        .with_state(server);
    // Small writes must not wait for each other.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let done = stop.clone().cancelled_owned();
    let serving = axum::serve(listener, Router::new().nest(path, routes)).with_graceful_shutdown(done);
    let task = tokio::spawn(serving.into_future());
    Ok(Running { base_url, stop, task })
}

struct Server {
    script: Script,
    counts: Mutex<Counts>,
    log: Mutex<Requests>,
    /// How often `release` was called.
    released: watch::Sender<u64>,
    stop: CancellationToken,
}

/// How many requests met which faults. The only state that answers depend on.
struct Counts {
    script: u32,
    rules: Vec<u32>,
}

struct Requests {
    keep: bool,
    /// The body of the newest request, without cache marks.
    previous: String,
    entries: Vec<Entry>,
}

#[derive(Clone, Serialize)]
struct Entry {
    path: &'static str,
    headers: BTreeMap<String, String>,
    body: Box<RawValue>,
    rule: Option<String>,
    shared: usize,
}

async fn chat(State(server): State<Arc<Server>>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    respond(&server, Dialect::OpenaiChat, &headers, &body)
}

async fn messages(State(server): State<Arc<Server>>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    respond(&server, Dialect::Anthropic, &headers, &body)
}

async fn models(State(server): State<Arc<Server>>) -> Response<Body> {
    let list: Vec<_> =
        server.script.models.iter().map(|id| serde_json::json!({"id": id, "object": "model"})).collect();
    json(StatusCode::OK, serde_json::json!({"object": "list", "data": list}).to_string())
}

async fn tags(State(server): State<Arc<Server>>) -> Response<Body> {
    let list: Vec<_> = server.script.models.iter().map(|name| serde_json::json!({"name": name})).collect();
    json(StatusCode::OK, serde_json::json!({"models": list}).to_string())
}

async fn log_of(State(server): State<Arc<Server>>) -> Response<Body> {
    let entries = server.log.lock().unwrap_or_else(PoisonError::into_inner).entries.clone();
    match serde_json::to_string(&entries) {
        Ok(entries) => json(StatusCode::OK, entries),
        Err(error) => json(StatusCode::INTERNAL_SERVER_ERROR, wire::error(false, "log", &error.to_string())),
    }
}

async fn release(State(server): State<Arc<Server>>) -> StatusCode {
    server.released.send_modify(|times| *times += 1);
    StatusCode::NO_CONTENT
}

fn respond(server: &Arc<Server>, dialect: Dialect, headers: &HeaderMap, body: &Bytes) -> Response<Body> {
    let anthropic = dialect == Dialect::Anthropic;
    let refuse = |message: &str| {
        json(StatusCode::BAD_REQUEST, wire::error(anthropic, "invalid_request_error", message))
    };
    let parsed: Result<serde_json::Value, _> = serde_json::from_slice(body);
    let Ok(parsed) = parsed else { return refuse("the body is not JSON") };
    let view = if anthropic { View::of_anthropic(&parsed) } else { View::of_openai(&parsed) };
    let at = matching(&server.script, &view);
    let rule = at.map(|at| &server.script.rules[at]);
    let shared = server.note(dialect, headers, body, rule.map(|rule| rule.name.clone()));
    let Some((at, rule)) = at.zip(rule) else { return refuse("no rule of the script fits this request") };
    let answer = answer(&server.script, rule, &view);
    let said = answer.text.len()
        + answer.thinking.len()
        + answer.calls.iter().map(|call| call.arguments.len()).sum::<usize>();
    let written = Written {
        model: &view.model,
        tokens: rule.reply.usage.unwrap_or_else(|| estimate(body.len(), shared, said)),
        stop: rule.reply.stop,
        pace: rule.reply.pace.unwrap_or(server.script.pace),
        odd: &rule.reply.odd,
        answer: &answer,
    };
    let events = if anthropic { written.anthropic() } else { written.openai() };
    let delay = Duration::from_millis(written.pace.delay_ms);
    match server.fault(at, rule.fault.as_ref()) {
        None => stream(steps(events, delay), server),
        Some(Failure::Status { code, headers, message, body }) => {
            status(anthropic, *code, headers, message, body.as_deref())
        }
        Some(Failure::Body { content_type, text }) => plain(content_type, text),
        Some(Failure::Cut { after, reset }) => {
            let mut steps = cut(steps(events, delay), *after).0;
            if *reset {
                steps.push(Step::Reset);
            }
            stream(steps, server)
        }
        Some(Failure::Hang { after }) => {
            let (mut head, tail) = cut(steps(events, delay), *after);
            head.push(Step::Hang);
            head.extend(tail);
            stream(head, server)
        }
        Some(Failure::Error { after_events, code, message }) => {
            let mut events = events;
            events.truncate(*after_events);
            let error = wire::error(anthropic, code, message);
            events.push(written.frame(anthropic.then_some("error"), &error));
            stream(steps(events, delay), server)
        }
    }
}

impl Server {
    /// Keeps a request; tells how many bytes it repeats.
    fn note(&self, dialect: Dialect, headers: &HeaderMap, body: &Bytes, rule: Option<String>) -> usize {
        let text = String::from_utf8_lossy(body).into_owned();
        let unmarked = text.replace(r#","cache_control":{"type":"ephemeral"}"#, "");
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = unmarked.bytes().zip(log.previous.bytes()).take_while(|(a, b)| a == b).count();
        log.previous = unmarked;
        if log.keep && log.entries.len() < MAX_LOGGED {
            let path = match dialect {
                Dialect::OpenaiChat => "/v1/chat/completions",
                Dialect::Anthropic => "/v1/messages",
            };
            let shown = |name: &str, value: &str| match name {
                "authorization" | "x-api-key" => "[hidden]".to_owned(),
                _ => value.to_owned(),
            };
            let headers = headers.iter().filter_map(|(name, value)| {
                Some((name.to_string(), shown(name.as_str(), value.to_str().ok()?)))
            });
            let body = RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned());
            log.entries.push(Entry { path, headers: headers.collect(), body, rule, shared });
        }
        shared
    }

    /// The fault that this request meets: the script's first, then the rule's own.
    fn fault<'a>(&'a self, at: usize, own: Option<&'a Fault>) -> Option<&'a Failure> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut until = 0;
        for fault in &self.script.faults {
            until += fault.times.unwrap_or(1);
            if counts.script < until {
                counts.script += 1;
                return Some(&fault.r#do);
            }
        }
        let own = own?;
        let met = &mut counts.rules[at];
        *met = met.saturating_add(1);
        own.times.is_none_or(|times| *met <= times).then_some(&own.r#do)
    }
}

/// About four bytes make a token. What repeats the request before is read from the cache.
fn estimate(request: usize, shared: usize, said: usize) -> Tokens {
    let tokens = |bytes: usize| u64::try_from(bytes / 4).unwrap_or(u64::MAX);
    Tokens {
        input: tokens(request),
        output: tokens(said) + 1,
        cache_read: tokens(shared),
        cache_write: tokens(request) - tokens(shared.min(request)),
    }
}

/// What a stream does.
enum Step {
    Send(Bytes),
    Wait(Duration),
    /// Until released.
    Hang,
    /// The connection breaks.
    Reset,
}

fn steps(events: Vec<String>, delay: Duration) -> Vec<Step> {
    if delay.is_zero() {
        return vec![Step::Send(events.concat().into())];
    }
    events.into_iter().flat_map(|event| [Step::Wait(delay), Step::Send(event.into())]).collect()
}

/// What comes within the first `after` bytes, and the rest.
fn cut(steps: Vec<Step>, after: usize) -> (Vec<Step>, Vec<Step>) {
    let mut room = after;
    let (mut head, mut tail) = (Vec::new(), Vec::new());
    for step in steps {
        match step {
            Step::Send(mut bytes) => {
                let first = bytes.split_to(room.min(bytes.len()));
                room -= first.len();
                if !first.is_empty() {
                    head.push(Step::Send(first));
                }
                if !bytes.is_empty() {
                    tail.push(Step::Send(bytes));
                }
            }
            other if room > 0 => head.push(other),
            other => tail.push(other),
        }
    }
    (head, tail)
}

fn stream(steps: Vec<Step>, server: &Arc<Server>) -> Response<Body> {
    let body = match <[Step; 1]>::try_from(steps) {
        Ok([Step::Send(whole)]) => Body::from(whole),
        Ok(other) => play(other.into(), server),
        Err(steps) => play(steps, server),
    };
    with(StatusCode::OK, "text/event-stream", body)
}

fn play(steps: Vec<Step>, server: &Arc<Server>) -> Body {
    let mut released = server.released.subscribe();
    // Counted from the request on, so that a release cannot come too early.
    let before = *released.borrow_and_update();
    let stop = server.stop.clone();
    let state = (steps.into_iter(), released, stop);
    Body::from_stream(stream::unfold(state, move |(mut steps, mut released, stop)| async move {
        loop {
            match steps.next()? {
                Step::Send(bytes) => return Some((Ok(bytes), (steps, released, stop))),
                Step::Wait(time) => tokio::time::sleep(time).await,
                Step::Hang => tokio::select! {
                    _ = released.wait_for(|times| *times > before) => {}
                    () = stop.cancelled() => return None,
                },
                Step::Reset => {
                    // What was sent must be on its way first: an error throws away what the connection has buffered.
                    tokio::task::yield_now().await;
                    let error = io::Error::from(io::ErrorKind::ConnectionReset);
                    return Some((Err(error), (Vec::new().into_iter(), released, stop)));
                }
            }
        }
    }))
}

fn status(
    anthropic: bool,
    code: u16,
    headers: &BTreeMap<String, String>,
    message: &str,
    body: Option<&str>,
) -> Response<Body> {
    let body = body.map_or_else(|| wire::error(anthropic, "scripted", message), str::to_owned);
    let mut response = json(StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body);
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (name.parse::<header::HeaderName>(), value.parse()) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn plain(content_type: &str, text: &str) -> Response<Body> {
    with(StatusCode::OK, content_type, Body::from(text.to_owned()))
}

fn json(status: StatusCode, body: String) -> Response<Body> {
    with(status, "application/json", Body::from(body))
}

fn with(status: StatusCode, content_type: &str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    if let Ok(value) = content_type.parse() {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = r#"{"rules": [{"name": "say", "reply": {"text": "Hello."}}]}"#;

    #[tokio::test]
    async fn the_place_of_a_server_that_has_ended_can_be_taken_and_no_other() {
        let script = || Script::parse(SCRIPT).unwrap();
        let first = start(script(), Log::Off).await.unwrap();
        let base_url = first.base_url().to_owned();
        let taken = start_again(script(), &base_url, Log::Off).await.unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        first.shutdown().await;
        let second = start_again(script(), &base_url, Log::Off).await.unwrap();
        assert_eq!(second.base_url(), base_url);
        for strange in [
            "",
            "http://127.0.0.1:1",
            "http://127.0.0.1:1/",
            "http://127.0.0.1:1/{a}",
            "http://192.0.2.1:1/a",
        ] {
            let refused = start_again(script(), strange, Log::Off).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{strange}");
        }
    }
}
