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
use crate::registry::{DaemonFeed, Registry};
use crate::session::SessionError;
use crate::session::command::Snapshot;
use crate::session::feed::{Feed, Position};
use crate::session::history::events_after;

pub(super) fn register(m: &mut RpcModule<Daemon>) -> Result<(), RegisterMethodError> {
    super::subscription(m, |params, pending, daemon, _| subscribe(daemon, params, pending))
}

async fn subscribe(daemon: Arc<Daemon>, params: SubscribeParams, pending: PendingSubscriptionSink) {
    if params.tree {
        pending.reject(wire(SessionError::Unsupported { field: "tree" })).await;
        return;
    }
    if let Some(types) = &params.types
        && let Some(unknown) = types.iter().find(|name| !EventBody::TYPE_NAMES.contains(&name.as_str()))
    {
        let message = format!("there is no event type {unknown:?}");
        pending.reject(error_with(ErrorCode::InvalidInput, message, "field", "types")).await;
        return;
    }
    let Some(session) = params.session_id else {
        if let Ok(sink) = pending.accept().await {
            let _ = follow_daemon(&daemon.registry.daemon_feed(), &sink, params.types.as_deref()).await;
        }
        return;
    };
    let prepared = prepare(&daemon, session, &params).await;
    let (snapshot, feed, watch) = match prepared {
        Ok(parts) => parts,
        Err(error) => {
            pending.reject(error).await;
            return;
        }
    };
    let Ok(sink) = pending.accept().await else { return };
    let registry = Arc::clone(&daemon.registry);
    let mut subscription = Subscription { session, sink, types: params.types, feed, registry };
    // An error means that the client has gone, or that the journal cannot be read; both end it.
    let _ = subscription.run(*snapshot, params.after_seq, params.deltas, watch).await;
}

async fn prepare(
    daemon: &Daemon,
    session: SessionId,
    params: &SubscribeParams,
) -> Result<(Box<Snapshot>, Arc<Feed>, watch::Receiver<u64>), ErrorObjectOwned> {
    let (snapshot, feed) = daemon.registry.snapshot(session).await.map_err(wire)?;
    if let Some(after) = params.after_seq
        && after > snapshot.head
    {
        return Err(wire(SessionError::BeyondHead { head: snapshot.head }));
    }
    let watch = feed.watch();
    Ok((snapshot, feed, watch))
}

struct Subscription {
    session: SessionId,
    sink: SubscriptionSink,
    types: Option<Vec<String>>,
    feed: Arc<Feed>,
    registry: Arc<Registry>,
}

/// The subscription ends.
struct Over;

impl Subscription {
    async fn run(
        &mut self,
        mut snapshot: Snapshot,
        after: Option<Seq>,
        deltas: bool,
        mut watch: watch::Receiver<u64>,
    ) -> Result<(), Over> {
        if let Some(after) = after {
            self.history(&snapshot, after, snapshot.head).await?;
        }
        let mut position = Position::after(snapshot.head, deltas);
        position.at_text(&snapshot.state.text);
        self.feed.skip_status(&mut position);
        let synced = Event {
            body: EventBody::Synced { state: Some(Box::new(snapshot.state.clone())), sessions: None },
            session_id: Some(self.session),
            seq: Some(snapshot.head),
            at: None,
            turn_id: snapshot.state.turn_id,
            origin: None,
        };
        send(&self.sink, &crate::session::feed::WireEvent::new(&synced).json).await?;
        loop {
            watch.borrow_and_update();
            let news = self.feed.news(&mut position);
            match news.events {
                Some(events) => {
                    for event in events {
                        self.send_if_wanted(event.kind, &event.json).await?;
                    }
                }
                None => {
                    // The session may have left memory since and come back: then only its present reader knows what was
                    // journaled meanwhile. One that is gone has nothing more to tell than the old one knows.
                    if let Ok((present, _)) = self.registry.snapshot(self.session).await {
                        snapshot = *present;
                    }
                    self.history(&snapshot, position.seq, news.head).await?;
                    position.seq = news.head;
                    continue;
                }
            }
            for delta in news.deltas {
                self.send_delta(&delta).await?;
            }
            for status in news.status {
                self.send_status(&status).await?;
            }
            if news.gone {
                let event = crate::session::deleted_event(self.session);
                return send(&self.sink, &crate::session::feed::WireEvent::new(&event).json).await;
            }
            tokio::select! {
                changed = watch.changed() => changed.map_err(|_| Over)?,
                () = self.sink.closed() => return Err(Over),
            }
        }
    }

    /// Sends what the journal holds after `after`, up to `head`.
    async fn history(&self, snapshot: &Snapshot, mut after: Seq, head: Seq) -> Result<(), Over> {
        while after < head {
            let (events, read) =
                events_after(self.session, &snapshot.reader, &snapshot.blobs, after).await.map_err(|error| {
                    tracing::warn!(session = %self.session, %error, "a subscription ends: its journal cannot be read");
                    Over
                })?;
            if read <= after {
                return Ok(());
            }
            for event in events.iter().filter(|event| event.seq <= head) {
                self.send_if_wanted(event.kind, &event.json).await?;
            }
            after = read;
        }
        Ok(())
    }

    async fn send_if_wanted(&self, kind: &str, json: &str) -> Result<(), Over> {
        match &self.types {
            Some(types) if !types.iter().any(|wanted| wanted == kind) => Ok(()),
            _ => send(&self.sink, json).await,
        }
    }

    async fn send_delta(&self, json: &str) -> Result<(), Over> {
        let kind =
            if json.starts_with(r#"{"type":"thinkingDelta""#) { "thinkingDelta" } else { "messageDelta" };
        self.send_if_wanted(kind, json).await
    }

    async fn send_status(&self, json: &str) -> Result<(), Over> {
        let kind = if json.starts_with(r#"{"type":"notice""#) { "notice" } else { "stateChanged" };
        self.send_if_wanted(kind, json).await
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
        for json in &news.events {
            let wanted = types.is_none_or(|types| {
                json.starts_with(r#"{"type":"synced""#)
                    || types.iter().any(|kind| json.starts_with(&format!(r#"{{"type":"{kind}""#)))
            });
            if wanted {
                send(sink, json).await?;
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
async fn send(sink: &SubscriptionSink, json: &str) -> Result<(), Over> {
    let raw = RawValue::from_string(json.to_owned()).map_err(|_| Over)?;
    sink.send(raw).await.map_err(|_| Over)
}

#[cfg(test)]
mod tests;
