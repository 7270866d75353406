//! Subscriptions: a position in a session's feed, sent as fast as the connection takes it. A slow client costs two
//! numbers; nothing is dropped for it and nobody waits for it.

mod feed;
mod tree;

use std::sync::Arc;

use agentd_protocol::event::{EventBody, SubscribeParams};
use agentd_protocol::{ErrorCode, Event, Seq, SessionId};
use jsonrpsee::core::RegisterMethodError;
use jsonrpsee::core::server::RpcModule;
use jsonrpsee::types::ErrorObjectOwned;
use jsonrpsee::{PendingSubscriptionSink, SubscriptionSink};
use serde_json::value::RawValue;

use super::error_with;
use super::handlers::{Daemon, wire};
use crate::session::command::Snapshot;
use crate::session::feed::{Feed, WireEvent};
use crate::session::history::{Past, Wanted, forward};
use crate::session::{SessionError, deleted_event};

pub(super) fn register(m: &mut RpcModule<Daemon>) -> Result<(), RegisterMethodError> {
    super::subscription(m, |params, pending, daemon, _| subscribe(daemon, params, pending))
}

async fn subscribe(daemon: Arc<Daemon>, params: SubscribeParams, pending: PendingSubscriptionSink) {
    if let Err(error) = known_types(params.types.as_deref()) {
        pending.reject(error).await;
        return;
    }
    if let Err(error) = right_numbers(&params) {
        pending.reject(error).await;
        return;
    }
    let Some(session) = params.session_id else { return feed::follow_daemon(&daemon, params, pending).await };
    if params.tree {
        return tree::follow(&daemon, session, params, pending).await;
    }
    let snapshot = match snapshot(&daemon, session, params.after_seq).await {
        Ok(snapshot) => snapshot,
        Err(error) => {
            pending.reject(error).await;
            return;
        }
    };
    let Ok(sink) = pending.accept().await else { return };
    let subscription = Subscription {
        session,
        sink: &sink,
        types: params.types.as_deref(),
        daemon: &daemon,
        feed: Arc::clone(&snapshot.feed),
    };
    // An error means that the client has gone, or that the journal cannot be read; both end it.
    if subscription.run(*snapshot, params.after_seq, params.deltas).await.is_ok() {
        let _ = send(&sink, &WireEvent::new(&deleted_event(session))).await;
    }
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

/// Sessions and the feed have numbers of their own.
fn right_numbers(params: &SubscribeParams) -> Result<(), ErrorObjectOwned> {
    let wrong = match params.session_id {
        Some(_) if params.after_feed_seq.is_some() => Some("afterFeedSeq"),
        None if params.after_seq.is_some() => Some("afterSeq"),
        None if params.tree => Some("tree"),
        _ => (!params.tree && !params.after.is_empty()).then_some("after"),
    };
    match wrong {
        None => Ok(()),
        Some(field) => {
            let message =
                "afterSeq and tree go with a sessionId, after with tree, and afterFeedSeq with none of them";
            Err(error_with(ErrorCode::InvalidInput, message, "field", field))
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

/// One session, followed by one subscription.
struct Subscription<'a> {
    session: SessionId,
    sink: &'a SubscriptionSink,
    types: Option<&'a [String]>,
    daemon: &'a Daemon,
    feed: Arc<Feed>,
}

/// The subscription ends.
struct Over;

impl Subscription<'_> {
    /// Sends what comes after `after`, the state, and what happens then, until the session is deleted. That is for the
    /// caller to tell.
    async fn run(&self, snapshot: Snapshot, after: Option<Seq>, deltas: bool) -> Result<(), Over> {
        let mut watch = snapshot.feed.watch();
        let mut position = snapshot.here.clone();
        position.deltas = deltas;
        if let Some(after) = after {
            self.history(&snapshot, after).await?;
        }
        let turn_id = snapshot.state.turn_id;
        let synced = Event::of(self.session, EventBody::synced(snapshot.state));
        let synced = Event { seq: Some(snapshot.head), turn_id, ..synced };
        // What else is in the snapshot keeps the journal's file open, which only a live session should.
        drop((snapshot.reader, snapshot.blobs));
        send(self.sink, &WireEvent::new(&synced)).await?;
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
                return Ok(());
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
        let mut wanted =
            Wanted { after, before, types: self.types.map(<[String]>::to_vec), limit: usize::MAX };
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
                send(self.sink, event).await?;
            }
        }
        Ok(())
    }
}

/// Waits until the connection takes the event: the only place where a slow client is felt.
async fn send(sink: &SubscriptionSink, event: &WireEvent) -> Result<(), Over> {
    let raw = RawValue::from_string(event.json.to_string()).map_err(|_| Over)?;
    sink.send(raw).await.map_err(|_| Over)
}
