//! The daemon's feed over a connection.

use agentd_protocol::ErrorCode;
use agentd_protocol::event::SubscribeParams;
use jsonrpsee::{PendingSubscriptionSink, SubscriptionSink};

use super::super::error_with;
use super::super::handlers::Daemon;
use super::{Over, send};
use crate::registry::{Beyond, Cursor, DaemonFeed};

pub(super) async fn follow_daemon(
    daemon: &Daemon,
    params: SubscribeParams,
    pending: PendingSubscriptionSink,
) {
    let feed = daemon.registry.daemon_feed();
    // Taken before anything is awaited: what the client does next is told to it.
    let cursor = match feed.cursor(params.after_feed_seq) {
        Ok(cursor) => cursor,
        Err(Beyond { head }) => {
            let message = format!("the feed has nothing after number {head}");
            pending.reject(error_with(ErrorCode::Conflict, message, "head", head.0)).await;
            return;
        }
    };
    let Ok(sink) = pending.accept().await else { return };
    // Right after a start the whole is not known yet.
    tokio::select! {
        () = daemon.registry.resumed() => {}
        () = sink.closed() => return,
    }
    // An error means that the client has gone.
    let _ = follow_feed(&feed, cursor, &sink, params.types.as_deref()).await;
}

async fn follow_feed(
    feed: &DaemonFeed,
    mut cursor: Cursor,
    sink: &SubscriptionSink,
    types: Option<&[String]>,
) -> Result<(), Over> {
    let mut watch = feed.watch();
    loop {
        watch.borrow_and_update();
        let events = feed.next(&mut cursor).await;
        for event in &events {
            // `synced` tells that something was passed over, so it is never filtered.
            if event.kind == "synced"
                || types.is_none_or(|types| types.iter().any(|wanted| wanted == event.kind))
            {
                send(sink, event).await?;
            }
        }
        if events.is_empty() {
            tokio::select! {
                changed = watch.changed() => changed.map_err(|_| Over)?,
                () = sink.closed() => return Err(Over),
            }
        }
    }
}
