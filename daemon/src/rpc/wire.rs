//! The two halves of a connection, the same for every framing: what comes in is text or its refusal, what goes out is
//! JSON.

use std::io::{self, Cursor};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use agentd_protocol::codec::{Codec, Item};
use bytes::BytesMut;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, Chain, Join, join};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, Sleep};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message};
use tokio_util::codec::{Encoder as _, FramedRead};

use super::detect::Framing;
use super::error::{PARSE_ERROR, TOO_LARGE, plain_answer};

/// Encoded bytes gathered before they are written. One message may be larger; more of them are not piled up.
const GATHER: usize = 256 * 1024;

/// For a browser or curl at a socket that speaks something else.
const NOT_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
    This is agentd. It speaks JSON-RPC: one JSON text a line, LSP headers, or WebSocket.\n";

type ReadHalf = Chain<Cursor<BytesMut>, OwnedReadHalf>;
type WriteHalf = Stalling<OwnedWriteHalf>;
type WebSocket = WebSocketStream<Join<ReadHalf, WriteHalf>>;

/// What came in.
#[derive(Debug)]
pub(super) enum Received {
    Message(String),
    /// No message; this is the answer, and the next message is fine.
    Wrong(Box<RawValue>),
    /// No message; this is the answer, and the last one.
    Broken(Box<RawValue>),
}

#[derive(Debug)]
pub(super) enum Reader {
    Stream(FramedRead<ReadHalf, Codec>),
    WebSocket(SplitStream<WebSocket>),
}

#[derive(Debug)]
pub(super) enum Writer {
    Stream { to: WriteHalf, codec: Codec, buffer: BytesMut },
    WebSocket(SplitSink<WebSocket, Message>),
}

/// Sets up both halves. `prefix` is what was read to tell the framing.
///
/// # Errors
/// The WebSocket handshake failed.
pub(super) async fn open(
    framing: Framing,
    prefix: BytesMut,
    (read, write): (OwnedReadHalf, OwnedWriteHalf),
    max_message: usize,
    stall: Duration,
) -> io::Result<(Reader, Writer)> {
    let read = Cursor::new(prefix).chain(read);
    let write = Stalling::new(write, stall);
    let Some(stream_framing) = framing.codec() else {
        let config = WebSocketConfig::default()
            .max_message_size(Some(max_message))
            .max_frame_size(Some(max_message))
            .write_buffer_size(GATHER);
        let mut io = join(read, write);
        // Lent only, so that a handshake that fails can still be answered. Nothing is lost with what it returns: bytes
        // that follow the handshake before its answer are an error.
        if let Err(error) = tokio_tungstenite::accept_async_with_config(&mut io, Some(config)).await {
            io.write_all(NOT_HTTP).await?;
            return Err(io::Error::other(error));
        }
        let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
        let (sink, stream) = socket.split();
        return Ok((Reader::WebSocket(stream), Writer::WebSocket(sink)));
    };
    let reader = FramedRead::new(read, Codec::new(stream_framing, max_message));
    let codec = Codec::new(stream_framing, max_message);
    Ok((Reader::Stream(reader), Writer::Stream { to: write, codec, buffer: BytesMut::new() }))
}

impl Reader {
    /// The next thing that came in; `None` at the end. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Received> {
        match self {
            Reader::Stream(stream) => match stream.next().await? {
                Ok(Item::Message(text)) => Some(Received::Message(text)),
                Ok(Item::TooLarge) => Some(Received::Wrong(too_large())),
                Ok(Item::Invalid(problem)) => Some(Received::Wrong(plain_answer(None, PARSE_ERROR, problem))),
                Ok(Item::Broken(problem)) => Some(Received::Broken(plain_answer(None, PARSE_ERROR, problem))),
                Err(error) => {
                    tracing::debug!(%error, "reading failed");
                    None
                }
            },
            Reader::WebSocket(stream) => loop {
                match stream.next().await? {
                    Ok(Message::Text(text)) => return Some(Received::Message(text.as_str().to_owned())),
                    Ok(Message::Binary(bytes)) => {
                        return Some(match String::from_utf8(bytes.into()) {
                            Ok(text) => Received::Message(text),
                            Err(_) => Received::Wrong(plain_answer(
                                None,
                                PARSE_ERROR,
                                "the message is not valid UTF-8",
                            )),
                        });
                    }
                    // Pings are answered by the library while it reads.
                    Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
                    Ok(Message::Close(_)) => return None,
                    Err(WebSocketError::Capacity(_)) => return Some(Received::Broken(too_large())),
                    Err(error) => {
                        tracing::debug!(%error, "reading failed");
                        return None;
                    }
                }
            },
        }
    }
}

fn too_large() -> Box<RawValue> {
    plain_answer(None, TOO_LARGE, "the message is too large and was skipped")
}

impl Writer {
    /// Writes all of `messages`, few writes for many.
    ///
    /// # Errors
    /// The client is gone, or has taken nothing for too long.
    pub(super) async fn write(&mut self, messages: impl Iterator<Item = Box<RawValue>>) -> io::Result<()> {
        match self {
            Writer::Stream { to, codec, buffer } => {
                for message in messages {
                    codec.encode(message.get(), buffer)?;
                    if buffer.len() >= GATHER {
                        to.write_all_buf(buffer).await?;
                    }
                }
                to.write_all_buf(buffer).await?;
                // Most connections are idle most of the time.
                *buffer = BytesMut::new();
                Ok(())
            }
            Writer::WebSocket(sink) => {
                for message in messages {
                    let text = String::from(Box::<str>::from(message));
                    sink.feed(Message::text(text)).await.map_err(io::Error::other)?;
                }
                sink.flush().await.map_err(io::Error::other)
            }
        }
    }

    /// Says goodbye where the framing has a word for it.
    pub(super) async fn close(&mut self) {
        if let Writer::WebSocket(sink) = self {
            // The client may have gone first; then there is nobody to say it to.
            let _ = sink.close().await;
        }
    }
}

/// A writer that fails once the other side has taken no byte for a while. Slow is fine, stuck is not.
#[derive(Debug)]
pub(super) struct Stalling<W> {
    inner: W,
    limit: Duration,
    /// Armed while a write waits.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<W> Stalling<W> {
    fn new(inner: W, limit: Duration) -> Self {
        Self { inner, limit, deadline: None }
    }

    fn check<T>(&mut self, cx: &mut Context<'_>, progress: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.deadline = None;
            return progress;
        }
        let limit = self.limit;
        let deadline =
            self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + limit)));
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("the client took nothing for {limit:?}"),
        )))
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Stalling<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.check(cx, progress)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.inner).poll_flush(cx);
        self.check(cx, progress)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.check(cx, progress)
    }
}
