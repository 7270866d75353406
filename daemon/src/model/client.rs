//! One attempt of one streaming request. Dropping the future cancels it.

use std::time::{Duration, SystemTime};

use futures_util::TryStreamExt;
use reqwest::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, ClientBuilder, Response, Url};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::OnceCell;

use super::failure::{self, Kind, Retry, SampleError};
use super::message::{Dialect, Reply, Request};
use super::playback::{self, Running};
use super::sse::{BodyError, Events};
use super::stream::{Delta, Flow, Parser, Trouble};
use super::{anthropic, demo, openai_chat};

/// How long a provider may stay silent, before its first byte and between any two.
pub const DEFAULT_IDLE: Duration = Duration::from_secs(120);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest request that is written on a runtime thread.
const MAX_INLINE: usize = 256 << 10;

/// How much of an error's body is read.
const MAX_ERROR_BODY: usize = 64 << 10;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Where and how to ask.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub provider: String,
    pub dialect: Dialect,
    pub base: Base,
    pub key: Option<SecretString>,
    /// Where the key came from, for people: "the file …", "the variable ANTHROPIC_API_KEY".
    pub key_source: Option<String>,
    /// How long the endpoint may stay silent; [`DEFAULT_IDLE`] unless set.
    pub idle: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    Url(String),
    /// The bundled playback, started when it is first asked.
    Demo,
}

impl Endpoint {
    /// `anthropic at api.anthropic.com`.
    pub(super) fn describe(&self) -> String {
        let host = match &self.base {
            Base::Demo => None,
            Base::Url(url) => Url::parse(url).ok().and_then(|url| {
                let host = url.host_str()?.to_owned();
                Some(url.port().map_or(host.clone(), |port| format!("{host}:{port}")))
            }),
        };
        host.map_or_else(|| self.provider.clone(), |host| format!("{} at {host}", self.provider))
    }

    pub(super) fn dialect_name(&self) -> &'static str {
        match self.dialect {
            Dialect::OpenaiChat => "openai-chat",
            Dialect::Anthropic => "anthropic",
        }
    }

    #[cfg(test)]
    pub(super) fn for_tests(provider: &str, base_url: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            dialect: Dialect::OpenaiChat,
            base: Base::Url(base_url.to_owned()),
            key: None,
            key_source: None,
            idle: DEFAULT_IDLE,
        }
    }
}

/// Sends requests to models. Cheap until first used: no TLS set-up, no connection, nothing read.
#[derive(Default)]
pub struct ModelClient {
    /// For providers on the network, through the proxy that the environment names.
    network: OnceCell<Client>,
    /// For model servers on this host: never through a proxy.
    loopback: OnceCell<Client>,
    /// The same without TLS, so that no certificates are read for a plain local server.
    plain_loopback: OnceCell<Client>,
    demo: OnceCell<Running>,
}

impl std::fmt::Debug for ModelClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelClient").finish_non_exhaustive()
    }
}

impl ModelClient {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks once. Text and thinking go to `on_delta` as they come; calls come with the reply. Cancelled by dropping the
    /// future, at any point.
    ///
    /// # Errors
    /// Everything that keeps a complete reply from coming, sorted by what can be done about it. Nothing is retried here.
    pub async fn sample(
        &self,
        endpoint: &Endpoint,
        request: &Request,
        on_delta: &mut (dyn FnMut(Delta<'_>) + Send),
    ) -> Result<Reply, SampleError> {
        let response = self.send(endpoint, request).await?;
        let response = accept(endpoint, &request.model, response).await?;
        let mut delivered = false;
        let mut sink = |delta: Delta<'_>| {
            delivered = true;
            on_delta(delta);
        };
        let result = read(endpoint, &request.model, response, &mut sink).await;
        result.map_err(|error| error.after_delivery(delivered))
    }

    async fn send(&self, endpoint: &Endpoint, request: &Request) -> Result<Response, SampleError> {
        let url = self.url(endpoint).await?;
        let body = written(endpoint, request).await?;
        let client = self.client(endpoint, &url).await?;
        let send = client.post(url).headers(headers(endpoint)?).body(body).send();
        match tokio::time::timeout(endpoint.idle, send).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(unreachable(endpoint, error)),
            Err(_) => Err(silent(endpoint, endpoint.idle)),
        }
    }

    async fn url(&self, endpoint: &Endpoint) -> Result<Url, SampleError> {
        let base = match &endpoint.base {
            Base::Url(url) => url.clone(),
            Base::Demo => {
                let running =
                    self.demo.get_or_try_init(|| playback::start(demo::script(), playback::Log::Off)).await;
                let running = running.map_err(|error| {
                    let message = "The demo's model server did not start on 127.0.0.1.".to_owned();
                    SampleError::new(Kind::Unreachable, Retry::Never, message).caused_by(error)
                })?;
                running.base_for(endpoint.dialect)
            }
        };
        let trimmed = base.trim().trim_end_matches('/');
        let joined = match endpoint.dialect {
            Dialect::OpenaiChat => format!("{trimmed}/chat/completions"),
            // Both habits of writing this base URL work.
            Dialect::Anthropic => format!("{}/v1/messages", trimmed.strip_suffix("/v1").unwrap_or(trimmed)),
        };
        let parsed =
            Url::parse(&joined).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        parsed.ok_or_else(|| {
            let message = format!(
                "`base_url` of provider `{}` is not an http or https URL: `{}`. Correct it in config.toml.",
                endpoint.provider,
                failure::clean(&base, endpoint.key.as_ref()),
            );
            SampleError::new(Kind::Settings, Retry::Never, message)
        })
    }

    async fn client(&self, endpoint: &Endpoint, url: &Url) -> Result<&Client, SampleError> {
        let made = match (is_loopback(url), url.scheme()) {
            (true, "http") => {
                self.plain_loopback
                    .get_or_try_init(async || plain_loopback_client().map_err(Into::into))
                    .await
            }
            (true, _) => self.loopback.get_or_try_init(|| build_with_roots(ClientBuilder::no_proxy)).await,
            (false, _) => self.network.get_or_try_init(|| build_with_roots(|builder| builder)).await,
        };
        made.map_err(|error: BoxError| {
            let message = format!("No connection to {} could be prepared.", endpoint.describe());
            SampleError::new(Kind::Settings, Retry::Never, message).caused_by(error)
        })
    }
}

/// The body of a request; a large one is written off the runtime's threads.
async fn written(endpoint: &Endpoint, request: &Request) -> Result<Vec<u8>, SampleError> {
    let render = |dialect, provider: &str, request: &Request| match dialect {
        Dialect::OpenaiChat => openai_chat::render(provider, request),
        Dialect::Anthropic => anthropic::render(provider, request),
    };
    let failed = |error: BoxError| {
        let message = format!("The request to {} could not be written.", endpoint.describe());
        SampleError::new(Kind::Settings, Retry::Never, message).caused_by(error)
    };
    if request.weight() <= MAX_INLINE {
        return render(endpoint.dialect, &endpoint.provider, request).map_err(|error| failed(error.into()));
    }
    let (dialect, provider, request) = (endpoint.dialect, endpoint.provider.clone(), request.clone());
    let body = tokio::task::spawn_blocking(move || render(dialect, &provider, &request)).await;
    body.map_err(|error| failed(error.into()))?.map_err(|error| failed(error.into()))
}

/// A client for plain HTTP on this host.
pub(super) fn plain_loopback_client() -> Result<Client, reqwest::Error> {
    build(|builder| builder.no_proxy().tls_certs_only(std::iter::empty()))
}

/// Reads the system's certificates, so it runs off the runtime's threads.
async fn build_with_roots(adapt: fn(ClientBuilder) -> ClientBuilder) -> Result<Client, BoxError> {
    Ok(tokio::task::spawn_blocking(move || build(adapt)).await??)
}

fn build(adapt: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Result<Client, reqwest::Error> {
    // An error means that somebody installed one before, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        // A redirected POST loses its body, and the key must not follow to another host.
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("agentd/", env!("CARGO_PKG_VERSION")));
    adapt(builder).build()
}

fn is_loopback(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
        }
        None => false,
    }
}

fn headers(endpoint: &Endpoint) -> Result<HeaderMap, SampleError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    if endpoint.dialect == Dialect::Anthropic {
        let version = HeaderName::from_static("anthropic-version");
        headers.insert(version, HeaderValue::from_static(anthropic::VERSION));
    }
    if let Some(key) = &endpoint.key {
        let (name, value) = match endpoint.dialect {
            Dialect::OpenaiChat => ("authorization", format!("Bearer {}", key.expose_secret().trim())),
            Dialect::Anthropic => ("x-api-key", key.expose_secret().trim().to_owned()),
        };
        let mut value = HeaderValue::try_from(value).map_err(|_| {
            let source = endpoint.key_source.as_deref().unwrap_or("the settings");
            let message = format!(
                "The key for {} from {source} holds characters that no key has. `agentctl key add {}` stores another.",
                endpoint.provider, endpoint.provider,
            );
            SampleError::new(Kind::Key, Retry::Never, message)
        })?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(headers)
}

/// Lets through only what may be a stream of events.
async fn accept(endpoint: &Endpoint, model: &str, response: Response) -> Result<Response, SampleError> {
    let status = response.status();
    if status.is_redirection() {
        let to = response.headers().get("location").and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
        let message = format!(
            "{} answered {} and points to `{}`. If that is right, set it as `base_url` of provider `{}`.",
            endpoint.describe(),
            status.as_u16(),
            failure::clean(to, endpoint.key.as_ref()),
            endpoint.provider,
        );
        return Err(SampleError::new(Kind::NotFound, Retry::Never, message));
    }
    if !status.is_success() {
        let headers = response.headers().clone();
        let body = read_some(response, endpoint.idle).await;
        return Err(failure::refused(endpoint, model, status, &headers, &body, SystemTime::now()));
    }
    let header =
        |name| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let encoding = header(CONTENT_ENCODING).to_ascii_lowercase();
    if !matches!(encoding.as_str(), "" | "identity") {
        let what = format!("a compressed body ({})", failure::clean(&encoding, None));
        return Err(failure::not_a_stream(endpoint, &what, "not asked for"));
    }
    let media_type = header(CONTENT_TYPE).to_ascii_lowercase();
    let what = match media_type.split(';').next().unwrap_or_default().trim() {
        "application/json" => "JSON",
        "text/html" => "a web page",
        // Servers that do not name the type, or name it wrongly, are common; the bytes will show.
        _ => return Ok(response),
    };
    let body = read_some(response, endpoint.idle).await;
    Err(failure::not_a_stream(endpoint, what, &body))
}

/// The start of a body, as far as it comes.
async fn read_some(mut response: Response, idle: Duration) -> String {
    let mut body = Vec::new();
    while let Ok(Ok(Some(chunk))) = tokio::time::timeout(idle.min(CONNECT_TIMEOUT), response.chunk()).await {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_ERROR_BODY {
            body.truncate(MAX_ERROR_BODY);
            break;
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}

async fn read(
    endpoint: &Endpoint,
    model: &str,
    response: Response,
    sink: &mut (dyn FnMut(Delta<'_>) + Send),
) -> Result<Reply, SampleError> {
    let mut events = Events::new(response.bytes_stream().map_err(reqwest::Error::without_url), endpoint.idle);
    let mut parser = Parser::new(endpoint.dialect);
    let mut n_events = 0_u64;
    loop {
        let event = match events.next().await {
            Ok(Some(event)) => event,
            Ok(None) => break,
            // The answer is complete; only token counts may be missing.
            Err(_) if parser.is_complete() => break,
            Err(error) => return Err(broken(endpoint, error)),
        };
        n_events += 1;
        match parser.event(&event, sink) {
            Ok(Flow::More) if parser.is_complete() => events.hurry(),
            Ok(Flow::More) => {}
            Ok(Flow::Done) => break,
            Err(Trouble::Reported(reported)) => return Err(failure::reported(endpoint, model, &reported)),
            // Cut in the middle of an event, or noise after a whole answer.
            Err(Trouble::Garbled(_)) if events.ended() || parser.is_complete() => break,
            Err(Trouble::Garbled(error)) => {
                let data = event.data.unwrap_or_default();
                return Err(failure::not_a_stream(endpoint, "an event that is not of its dialect", &data)
                    .caused_by(error));
            }
        }
    }
    if !parser.is_complete() {
        let head = events.head();
        if n_events == 0 && head.trim_start().starts_with(['{', '[', '<']) {
            let what = if head.trim_start().starts_with('<') { "a web page" } else { "JSON" };
            return Err(failure::not_a_stream(endpoint, what, &head));
        }
        let message = format!("{} ended its answer before it was complete.", endpoint.describe());
        return Err(SampleError::new(Kind::Incomplete, Retry::Backoff, message));
    }
    parser.finish(&endpoint.provider, model).map_err(|error| {
        let message = format!("The answer of {} cannot be kept.", endpoint.describe());
        SampleError::new(Kind::NotAStream, Retry::Never, message).caused_by(error)
    })
}

fn broken(endpoint: &Endpoint, error: BodyError) -> SampleError {
    let whom = endpoint.describe();
    match error {
        BodyError::Idle(limit) => silent(endpoint, limit),
        BodyError::Transport(error) => {
            let message = format!("The connection to {whom} broke before the answer was complete.");
            SampleError::new(Kind::Incomplete, Retry::Backoff, message).caused_by(error)
        }
        error @ (BodyError::LineTooLong | BodyError::TooLong | BodyError::NotText) => SampleError::new(
            Kind::NotAStream,
            Retry::Never,
            format!("The answer of {whom} was given up: {error}."),
        ),
    }
}

fn silent(endpoint: &Endpoint, limit: Duration) -> SampleError {
    let message = format!(
        "{} sent nothing for {} s. If it needs longer, set `idle_timeout_s` of provider `{}`.",
        endpoint.describe(),
        limit.as_secs(),
        endpoint.provider
    );
    SampleError::new(Kind::Silent, Retry::Backoff, message)
}

fn unreachable(endpoint: &Endpoint, error: reqwest::Error) -> SampleError {
    let whom = endpoint.describe();
    let error = error.without_url();
    if !error.is_connect() {
        let message = format!("The connection to {whom} broke before an answer came.");
        return SampleError::new(Kind::Incomplete, Retry::Backoff, message).caused_by(error);
    }
    let refused = root_io(&error) == Some(std::io::ErrorKind::ConnectionRefused);
    let why = if refused {
        "nothing listens there".to_owned()
    } else if error.is_timeout() {
        format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())
    } else {
        failure::clean(&root_cause(&error), endpoint.key.as_ref())
    };
    let is_distrusted = why.contains("certificate");
    let next = match endpoint.provider.as_str() {
        _ if is_distrusted => {
            "If an authority of your own signed it, name its file in SSL_CERT_FILE.".to_owned()
        }
        "ollama" => "Is it running? `ollama serve` starts it.".to_owned(),
        "lmstudio" => "Is its local server switched on?".to_owned(),
        provider if !has_own_url(endpoint) => {
            format!("Check the network; nothing is wrong with what you set for {provider}.")
        }
        provider if refused => format!(
            "Is that server running? Its address is `base_url` of provider `{provider}` in config.toml; after a change \
             type: agentctl daemon stop"
        ),
        provider => format!(
            "Check the network, and `base_url` of provider `{provider}` in config.toml; after a change type: \
             agentctl daemon stop"
        ),
    };
    // Nothing was sent, so another attempt is safe. It is idle where nothing listens on this host, and where the
    // certificate is not trusted.
    let is_local =
        matches!(&endpoint.base, Base::Url(url) if Url::parse(url).is_ok_and(|url| is_loopback(&url)));
    let retry = if (refused && is_local) || is_distrusted { Retry::Never } else { Retry::Backoff };
    SampleError::new(Kind::Unreachable, retry, format!("{whom} cannot be reached: {why}. {next}"))
        .caused_by(error)
}

/// Whether the settings, and not a preset, say where the provider is.
pub(super) fn has_own_url(endpoint: &Endpoint) -> bool {
    let preset = super::providers::preset(&endpoint.provider);
    match (&endpoint.base, preset.and_then(|preset| preset.base_url)) {
        (Base::Url(url), Some(usual)) => url != usual,
        _ => true,
    }
}

fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

fn root_io(error: &reqwest::Error) -> Option<std::io::ErrorKind> {
    causes(error).filter_map(|error| error.downcast_ref::<std::io::Error>()).last().map(std::io::Error::kind)
}

fn root_cause(error: &reqwest::Error) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_hosts_are_known() {
        for url in ["http://127.0.0.1:1/v1", "http://localhost/x", "http://[::1]:8/", "http://127.9.9.9/"] {
            assert!(is_loopback(&Url::parse(url).unwrap()), "{url}");
        }
        for url in ["http://127.0.0.1.example.com/", "https://api.openai.com/v1", "http://10.0.0.1/"] {
            assert!(!is_loopback(&Url::parse(url).unwrap()), "{url}");
        }
    }

    #[tokio::test]
    async fn base_urls_are_taken_in_both_habits() {
        let client = ModelClient::new();
        for (dialect, base, expected) in [
            (Dialect::OpenaiChat, "https://x.test/v1/", "https://x.test/v1/chat/completions"),
            (Dialect::Anthropic, "https://x.test", "https://x.test/v1/messages"),
            (Dialect::Anthropic, "https://x.test/v1/", "https://x.test/v1/messages"),
            (Dialect::Anthropic, "https://x.test/anthropic", "https://x.test/anthropic/v1/messages"),
        ] {
            let endpoint = Endpoint { dialect, ..Endpoint::for_tests("x", base) };
            assert_eq!(client.url(&endpoint).await.unwrap().as_str(), expected);
        }
        for base in ["", "api.openai.com", "ftp://x.test"] {
            let error = client.url(&Endpoint::for_tests("x", base)).await.unwrap_err();
            assert_eq!(error.kind, Kind::Settings, "{base}: {error}");
        }
    }

    #[test]
    fn keys_with_odd_characters_are_named_by_their_source() {
        let endpoint = Endpoint {
            key: Some(SecretString::from("se\ncret")),
            key_source: Some("the file keys/x".to_owned()),
            ..Endpoint::for_tests("x", "https://x.test")
        };
        let error = headers(&endpoint).unwrap_err();
        assert!(
            error.to_string().contains("the file keys/x") && !error.to_string().contains("cret\""),
            "{error}"
        );
    }
}
