//! From the bytes of a body to server-sent events, with what a body may not do: stay silent, or grow without end.

use std::error::Error;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use sse_stream::{Sse, SseByteStream};

/// The longest line of a stream. A whole file in one call's arguments fits.
const MAX_LINE: usize = 16 << 20;

/// The longest body. Nothing that a model writes in one answer comes near.
const MAX_BODY: usize = 64 << 20;

/// How much of a body's start is kept, to show what an endpoint sent that is no stream.
const HEAD: usize = 2048;

/// How long a finished answer waits for the token counts that may follow it.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("no byte came for {} s", .0.as_secs())]
    Idle(Duration),
    #[error("the connection broke")]
    Transport(#[source] Box<dyn Error + Send + Sync>),
    #[error("a line is longer than {} MiB", MAX_LINE >> 20)]
    LineTooLong,
    #[error("the answer is longer than {} MiB", MAX_BODY >> 20)]
    TooLong,
    #[error("the stream is not valid UTF-8")]
    NotText,
}

/// What is known about a body beside its events.
#[derive(Default)]
struct Watch {
    ended: AtomicBool,
    hurry: AtomicBool,
    head: Mutex<Vec<u8>>,
}

type Guarded = Pin<Box<dyn Stream<Item = Result<Bytes, BodyError>> + Send>>;

/// The events of one body.
pub(super) struct Events {
    inner: SseByteStream<Guarded>,
    watch: Arc<Watch>,
}

impl Events {
    pub(super) fn new<S, E>(body: S, idle: Duration) -> Self
    where
        S: Stream<Item = Result<Bytes, E>> + Send + 'static,
        E: Error + Send + Sync + 'static,
    {
        let watch = Arc::new(Watch::default());
        let guarded = guard(Box::pin(body), idle, Arc::clone(&watch));
        Self { inner: SseByteStream::new(Box::pin(guarded)), watch }
    }

    /// The next event that has data; nothing at the end of the body.
    ///
    /// # Errors
    /// The body broke, stayed silent, or went over a limit. Nothing comes after that.
    pub(super) async fn next(&mut self) -> Result<Option<Sse>, BodyError> {
        loop {
            match self.inner.next().await {
                None => return Ok(None),
                Some(Ok(event)) if event.data.is_none() => {}
                Some(Ok(event)) => return Ok(Some(event)),
                Some(Err(sse_stream::Error::Body(error))) => {
                    return Err(match error.downcast::<BodyError>() {
                        Ok(error) => *error,
                        Err(other) => BodyError::Transport(other),
                    });
                }
                Some(Err(_)) => return Err(BodyError::NotText),
            }
        }
    }

    /// Whether the body has ended, so that the event at hand may have been cut.
    pub(super) fn ended(&self) -> bool {
        self.watch.ended.load(Ordering::Relaxed)
    }

    /// Says that the answer is complete: what may still come is not waited for long.
    pub(super) fn hurry(&self) {
        self.watch.hurry.store(true, Ordering::Relaxed);
    }

    /// The first bytes of the body.
    pub(super) fn head(&self) -> String {
        let head = self.watch.head.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&head).into_owned()
    }
}

/// The body with its limits, and a blank line at its end: the framing drops a last event that lacks one.
fn guard<S, E>(
    body: S,
    idle: Duration,
    watch: Arc<Watch>,
) -> impl Stream<Item = Result<Bytes, BodyError>> + Send
where
    S: Stream<Item = Result<Bytes, E>> + Send + Unpin,
    E: Error + Send + Sync + 'static,
{
    struct State<S> {
        body: S,
        line: usize,
        total: usize,
        over: bool,
    }
    let state = State { body, line: 0, total: 0, over: false };
    stream::unfold((state, watch), move |(mut state, watch)| async move {
        if state.over {
            return None;
        }
        let limit = if watch.hurry.load(Ordering::Relaxed) { idle.min(GRACE) } else { idle };
        let item = match tokio::time::timeout(limit, state.body.next()).await {
            Err(_) => Err(BodyError::Idle(limit)),
            Ok(Some(Err(error))) => Err(BodyError::Transport(Box::new(error))),
            Ok(Some(Ok(bytes))) => {
                state.total = state.total.saturating_add(bytes.len());
                state.line = longest_open_line(state.line, &bytes);
                remember(&watch, &bytes);
                if state.line > MAX_LINE {
                    Err(BodyError::LineTooLong)
                } else if state.total > MAX_BODY {
                    Err(BodyError::TooLong)
                } else {
                    Ok(bytes)
                }
            }
            Ok(None) => {
                state.over = true;
                watch.ended.store(true, Ordering::Relaxed);
                Ok(Bytes::from_static(b"\n\n"))
            }
        };
        state.over |= item.is_err();
        Some((item, (state, watch)))
    })
}

/// The length of the line that is open after `bytes`, if `open` bytes of it came before.
fn longest_open_line(open: usize, bytes: &[u8]) -> usize {
    match bytes.iter().rposition(|byte| matches!(byte, b'\n' | b'\r')) {
        Some(end) => bytes.len() - end - 1,
        None => open.saturating_add(bytes.len()),
    }
}

fn remember(watch: &Watch, bytes: &[u8]) {
    let mut head = watch.head.lock().unwrap_or_else(PoisonError::into_inner);
    let room = HEAD.saturating_sub(head.len());
    head.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(chunks: Vec<Vec<u8>>) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static {
        stream::iter(chunks.into_iter().map(|chunk| Ok(Bytes::from(chunk))))
    }

    async fn read(chunks: Vec<Vec<u8>>) -> Result<Vec<String>, BodyError> {
        let mut events = Events::new(body(chunks), Duration::from_secs(60));
        let mut data = Vec::new();
        while let Some(event) = events.next().await? {
            data.extend(event.data);
        }
        Ok(data)
    }

    #[tokio::test]
    async fn last_event_without_blank_line_is_seen() {
        for end in ["", "\n", "\r", "\r\n", "\n\n"] {
            let got = read(vec![format!("data: one\n\ndata:two{end}").into_bytes()]).await.unwrap();
            assert_eq!(got, ["one", "two"], "{end:?}");
        }
    }

    #[tokio::test]
    async fn line_endings_may_be_cut_anywhere() {
        for text in
            ["data: a\r\ndata: b\r\n\r\n: note\r\ndata: ü\r\n\r\n", "data: a\rdata: b\r\r:note\rdata:ü\r\r"]
        {
            for cut in 0..text.len() {
                let (head, tail) = text.as_bytes().split_at(cut);
                let got = read(vec![head.to_vec(), tail.to_vec()]).await.unwrap();
                assert_eq!(got, ["a\nb", "ü"], "cut at {cut}");
            }
        }
    }

    #[tokio::test]
    async fn a_line_without_end_is_refused() {
        let chunk = vec![b'x'; 4 << 20];
        let error = read(vec![chunk; 5]).await.unwrap_err();
        assert!(matches!(error, BodyError::LineTooLong), "{error}");
    }

    #[tokio::test]
    async fn a_body_without_end_is_refused() {
        let mut chunk = vec![b'x'; 4 << 20];
        *chunk.last_mut().unwrap() = b'\n';
        let error = read(vec![chunk; 17]).await.unwrap_err();
        assert!(matches!(error, BodyError::TooLong), "{error}");
    }

    #[tokio::test]
    async fn bytes_that_are_no_text_are_refused() {
        let error = read(vec![b"data: \xff\n\n".to_vec()]).await.unwrap_err();
        assert!(matches!(error, BodyError::NotText), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_the_body() {
        let silent = body(vec![b"data: a\n\n".to_vec()]).chain(stream::pending());
        let mut events = Events::new(silent, Duration::from_secs(60));
        assert!(events.next().await.unwrap().is_some());
        let error = events.next().await.unwrap_err();
        assert!(matches!(error, BodyError::Idle(limit) if limit == Duration::from_secs(60)), "{error}");
        assert!(events.next().await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_complete_answer_waits_only_a_little() {
        let mut events = Events::new(body(vec![]).chain(stream::pending()), Duration::from_secs(600));
        events.hurry();
        let error = events.next().await.unwrap_err();
        assert!(matches!(error, BodyError::Idle(limit) if limit == GRACE), "{error}");
    }
}
