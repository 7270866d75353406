//! Following events. The stream survives lost connections and restarts of the daemon: it subscribes again from the
//! last event it passed on, with no gap and no double.

use std::time::Duration;

use agentd_protocol::event::{EventBody, SubscribeParams};
use agentd_protocol::{ErrorCode, Event};
use jsonrpsee::core::client::{Subscription, SubscriptionCloseReason};
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::client::{CallError, Client};
use crate::position::Position;

/// Items that may wait to be taken. Behind them stands the subscription's own buffer.
const WAITING: usize = 64;
/// The pauses between attempts to come back double from the first to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// One event, parsed and as it came: `raw` also has fields and types that this build does not know.
#[derive(Clone, Debug)]
pub struct Received {
    pub event: Event,
    pub raw: Box<RawValue>,
}

/// What a stream yields.
#[derive(Clone, Debug)]
pub enum StreamItem {
    Event(Box<Received>),
    /// The connection is lost; events will go on after [`StreamItem::Reconnected`], or the stream ends with an error.
    Reconnecting,
    /// Subscribed again. What was missed follows, then a new `synced`.
    Reconnected,
}

/// A subscription. Dropping it unsubscribes.
///
/// Deltas of one message follow each other without gap or overlap, so appending every `text` is all a client does: right
/// after `synced` the stream adds a delta of its own with whatever text so far was not passed on yet.
#[derive(Debug)]
pub struct EventStream {
    items: mpsc::Receiver<Result<StreamItem, CallError>>,
    _pump: AbortOnDropHandle<()>,
}

impl EventStream {
    pub(crate) fn start(
        client: Client,
        params: SubscribeParams,
        subscription: Subscription<Box<RawValue>>,
        reconnect_for: Duration,
    ) -> Self {
        let (items, waiting) = mpsc::channel(WAITING);
        let position = Position::new(&params);
        let pump = Pump { client, params, position, items, reconnect_for };
        Self { items: waiting, _pump: AbortOnDropHandle::new(tokio::spawn(pump.run(subscription))) }
    }

    /// The next item; `None` once the daemon ended the subscription for good (the session was deleted). Cancel-safe.
    ///
    /// # Errors
    /// The daemon did not come back in time, or does not know the session any more.
    pub async fn next(&mut self) -> Result<Option<StreamItem>, CallError> {
        self.items.recv().await.transpose()
    }
}

/// Keeps a subscription alive. A task of its own, so that whoever reads the stream may stop waiting at any moment.
struct Pump {
    client: Client,
    params: SubscribeParams,
    position: Position,
    items: mpsc::Sender<Result<StreamItem, CallError>>,
    reconnect_for: Duration,
}

/// Why passing on stopped.
enum Stopped {
    /// Nobody listens, or there is nothing more to hear.
    Ended,
    /// The reader was too slow for the subscription's buffer.
    Lagged,
    Disconnected,
}

impl Pump {
    async fn run(mut self, mut subscription: Subscription<Box<RawValue>>) {
        loop {
            let stopped = self.pass_on(&mut subscription).await;
            let again = match stopped {
                Stopped::Ended => return,
                Stopped::Lagged => self.resubscribe(false).await,
                Stopped::Disconnected => self.resubscribe(true).await,
            };
            match again {
                Ok(Some(next)) => subscription = next,
                Ok(None) => return,
                Err(error) => {
                    // Whether anybody still listens for it does not matter: the stream ends here.
                    let _ = self.items.send(Err(error)).await;
                    return;
                }
            }
        }
    }

    async fn pass_on(&mut self, subscription: &mut Subscription<Box<RawValue>>) -> Stopped {
        while let Some(raw) = subscription.next().await {
            // The buffer holds JSON that was parsed once; were it anything else, skipping it is all that can be done.
            let Ok(raw) = raw else { continue };
            let Ok(event) = serde_json::from_str::<Event>(raw.get()) else { continue };
            let deleted = matches!(event.body, EventBody::SessionDeleted {})
                // With a tree also a child may be.
                && event.session_id.is_none_or(|id| Some(id) == self.params.session_id);
            for (event, changed) in self.position.take(event) {
                let raw =
                    if changed { to_raw_value(&event).unwrap_or_else(|_| raw.clone()) } else { raw.clone() };
                if !self.send(StreamItem::Event(Box::new(Received { event, raw }))).await {
                    return Stopped::Ended;
                }
            }
            if deleted && self.params.session_id.is_some() {
                return Stopped::Ended;
            }
        }
        match subscription.close_reason() {
            Some(SubscriptionCloseReason::Lagged) => Stopped::Lagged,
            _ if self.client.is_connected().await => Stopped::Ended,
            _ => Stopped::Disconnected,
        }
    }

    /// Subscribes again from where the reader is. `None`: nobody listens any more.
    async fn resubscribe(&mut self, lost: bool) -> Result<Option<Subscription<Box<RawValue>>>, CallError> {
        if lost && !self.send(StreamItem::Reconnecting).await {
            return Ok(None);
        }
        let deadline = Instant::now() + self.reconnect_for;
        let mut pause = FIRST_PAUSE;
        let mut params = self.params.clone();
        self.position.resume(&mut params);
        loop {
            match self.client.subscribe_once(&params).await {
                Ok(subscription) => {
                    self.position.resumed(&params);
                    if lost && !self.send(StreamItem::Reconnected).await {
                        return Ok(None);
                    }
                    return Ok(Some(subscription));
                }
                // What the daemon has ends before what was seen: a power cut took the rest. `synced` has all there is.
                Err(error)
                    if error.code() == Some(ErrorCode::Conflict) && Position::start_over(&mut params) =>
                {
                    continue;
                }
                Err(error) if !may_pass(&error) || Instant::now() + pause > deadline => return Err(error),
                Err(_) => {}
            }
            tokio::select! {
                () = self.items.closed() => return Ok(None),
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Whether anybody still listens.
    async fn send(&self, item: StreamItem) -> bool {
        self.items.send(Ok(item)).await.is_ok()
    }
}

fn may_pass(error: &CallError) -> bool {
    match error {
        CallError::Lost => true,
        CallError::Connect(error) => error.may_pass(),
        CallError::Daemon { code, .. } => *code == ErrorCode::Overloaded,
        CallError::Rpc { .. } | CallError::Malformed { .. } => false,
    }
}
