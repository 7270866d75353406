//! Subscriptions: a position in a session's feed, sent as fast as the connection takes it. A slow client costs two
//! numbers; nothing is dropped for it and nobody waits for it.

use std::sync::Arc;

use agentd_protocol::event::{EventBody, SubscribeParams};
use agentd_protocol::{ErrorCode, Event, Seq, SessionId};
use jsonrpsee::core::RegisterMethodError;
use jsonrpsee::core::server::RpcModule;
use jsonrpsee::types::ErrorObjectOwned;
use jsonrpsee::{PendingSubscriptionSink, SubscriptionSink};
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::error_with;
use super::handlers::{Daemon, wire};
use crate::registry::DaemonFeed;
use crate::session::SessionError;
use crate::session::command::Snapshot;
use crate::session::feed::{Feed, Position, WireEvent};
use crate::session::history::{Past, Wanted, forward};

pub(super) fn register(m: &mut RpcModule<Daemon>) -> Result<(), RegisterMethodError> {
    super::subscription(m, |params, pending, daemon, _| subscribe(daemon, params, pending))
}

async fn subscribe(daemon: Arc<Daemon>, params: SubscribeParams, pending: PendingSubscriptionSink) {
    if params.tree {
        pending.reject(wire(SessionError::Unsupported { field: "tree" })).await;
        return;
    }
    if let Err(error) = known_types(params.types.as_deref()) {
        pending.reject(error).await;
        return;
    }
    let Some(session) = params.session_id else {
        if let Ok(sink) = pending.accept().await {
            let _ = follow_daemon(&daemon.registry.daemon_feed(), &sink, params.types.as_deref()).await;
        }
        return;
    };
    let snapshot = match snapshot(&daemon, session, params.after_seq).await {
        Ok(snapshot) => snapshot,
        Err(error) => {
            pending.reject(error).await;
            return;
        }
    };
    let Ok(sink) = pending.accept().await else { return };
    let watch = snapshot.feed.watch();
    let mut position = snapshot.here.clone();
    position.deltas = params.deltas;
    let subscription =
        Subscription { session, sink, types: params.types, daemon, feed: Arc::clone(&snapshot.feed) };
    // An error means that the client has gone, or that the journal cannot be read; both end it.
    let _ = subscription.run(*snapshot, params.after_seq, position, watch).await;
}

/// Whether there are such events. A misspelt type would look like silence.
///
/// # Errors
/// Which one there is not.
pub(super) fn known_types(types: Option<&[String]>) -> Result<(), ErrorObjectOwned> {
    let known = |name: &&String| EventBody::TYPE_NAMES.contains(&name.as_str());
    match types.unwrap_or_default().iter().find(|name| !known(name)) {
        None => Ok(()),
        Some(unknown) => {
            let message = format!("there is no event type {unknown:?}");
            Err(error_with(ErrorCode::InvalidInput, message, "field", "types"))
        }
    }
}

async fn snapshot(
    daemon: &Daemon,
    session: SessionId,
    after: Option<Seq>,
) -> Result<Box<Snapshot>, ErrorObjectOwned> {
    let snapshot = daemon.registry.snapshot(session).await.map_err(wire)?;
    match after {
        Some(after) if after > snapshot.head => Err(wire(SessionError::BeyondHead { head: snapshot.head })),
        _ => Ok(snapshot),
    }
}

struct Subscription {
    session: SessionId,
    sink: SubscriptionSink,
    types: Option<Vec<String>>,
    daemon: Arc<Daemon>,
    feed: Arc<Feed>,
}

/// The subscription ends.
struct Over;

impl Subscription {
    async fn run(
        &self,
        snapshot: Snapshot,
        after: Option<Seq>,
        mut position: Position,
        mut watch: watch::Receiver<u64>,
    ) -> Result<(), Over> {
        if let Some(after) = after {
            self.history(&snapshot, after).await?;
        }
        let turn_id = snapshot.state.turn_id;
        let synced = Event {
            body: EventBody::Synced { state: Some(Box::new(snapshot.state)), sessions: None },
            session_id: Some(self.session),
            seq: Some(snapshot.head),
            at: None,
            turn_id,
            origin: None,
        };
        // What else is in the snapshot keeps the journal's file open, which only a live session should.
        drop((snapshot.reader, snapshot.blobs));
        send(&self.sink, &WireEvent::new(&synced)).await?;
        loop {
            watch.borrow_and_update();
            let news = self.feed.news(&mut position);
            match news.events {
                Some(events) => self.send_wanted(&events).await?,
                None if news.gone => {}
                None => match self.daemon.registry.snapshot(self.session).await {
                    // A reader of now: the session may have been unloaded and loaded since this subscription began.
                    Ok(snapshot) => {
                        self.history(&snapshot, position.seq).await?;
                        position.seq = snapshot.head;
                        continue;
                    }
                    Err(SessionError::Overloaded) => {}
                    Err(_) => return Err(Over),
                },
            }
            self.send_wanted(&news.deltas).await?;
            self.send_wanted(&news.status).await?;
            if news.gone {
                return send(&self.sink, &WireEvent::new(&crate::session::deleted_event(self.session))).await;
            }
            tokio::select! {
                changed = watch.changed() => changed.map_err(|_| Over)?,
                () = self.sink.closed() => return Err(Over),
            }
        }
    }

    /// Sends what the journal holds after `after`, up to the snapshot's head.
    async fn history(&self, snapshot: &Snapshot, after: Seq) -> Result<(), Over> {
        let (reader, blobs) = (snapshot.reader.clone(), snapshot.blobs.clone());
        let past = Past { session: self.session, reader, blobs };
        let before = Seq(snapshot.head.0 + 1);
        let mut wanted = Wanted { after, before, types: self.types.clone(), limit: usize::MAX };
        loop {
            let page = forward(&past, &wanted).await.map_err(|error| {
                tracing::warn!(session = %self.session, %error, "a subscription ends: its journal cannot be read");
                Over
            })?;
            self.send_wanted(&page.events).await?;
            match page.next {
                Some(next) => wanted.after = next,
                None => return Ok(()),
            }
        }
    }

    async fn send_wanted(&self, events: &[WireEvent]) -> Result<(), Over> {
        for event in events {
            if self.types.as_ref().is_none_or(|types| types.iter().any(|wanted| wanted == event.kind)) {
                send(&self.sink, event).await?;
            }
        }
        Ok(())
    }
}

async fn follow_daemon(
    feed: &DaemonFeed,
    sink: &SubscriptionSink,
    types: Option<&[String]>,
) -> Result<(), Over> {
    let mut watch = feed.watch();
    let mut news = feed.synced();
    loop {
        for event in &news.events {
            // `synced` tells that something was passed over, so it is never filtered.
            if event.kind == "synced"
                || types.is_none_or(|types| types.iter().any(|wanted| wanted == event.kind))
            {
                send(sink, event).await?;
            }
        }
        tokio::select! {
            changed = watch.changed() => changed.map_err(|_| Over)?,
            () = sink.closed() => return Err(Over),
        }
        watch.borrow_and_update();
        news = feed.news(news.position);
    }
}

/// Waits until the connection takes the event: the only place where a slow client is felt.
async fn send(sink: &SubscriptionSink, event: &WireEvent) -> Result<(), Over> {
    let raw = RawValue::from_string(event.json.to_string()).map_err(|_| Over)?;
    sink.send(raw).await.map_err(|_| Over)
}
