//! A session with its children over one subscription: each is followed by itself, with its own numbers. One that is made
//! meanwhile joins from its beginning; one that is deleted leaves; with the first session all ends.

use std::collections::{BTreeMap, HashSet};

use agentd_protocol::event::SubscribeParams;
use agentd_protocol::{ErrorCode, Seq, SessionId};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use jsonrpsee::types::ErrorObjectOwned;
use jsonrpsee::{PendingSubscriptionSink, SubscriptionSink};
use serde_json::json;
use tokio::sync::Semaphore;

use super::super::error;
use super::super::handlers::{Daemon, wire};
use super::{Over, Subscription, send, snapshot};
use crate::session::command::Snapshot;
use crate::session::feed::WireEvent;
use crate::session::{SessionError, deleted_event};

/// Sessions of a tree that are brought into memory side by side.
const LOADED_AT_ONCE: usize = 8;

pub(super) async fn follow(
    daemon: &Daemon,
    first: SessionId,
    params: SubscribeParams,
    pending: PendingSubscriptionSink,
) {
    // Before the children are looked for: who is made from now on is noticed, and joins once more at most.
    let mut kin = daemon.registry.watch_kin();
    let begun = match begin(daemon, first, &params).await {
        Ok(begun) => begun,
        Err(error) => return pending.reject(error).await,
    };
    let (root, children) = begun;
    let Ok(sink) = pending.accept().await else { return };
    let tree = Tree { daemon, sink: &sink, params: &params, loading: Semaphore::new(LOADED_AT_ONCE) };
    let mut followed: HashSet<SessionId> = children.iter().copied().chain([first]).collect();
    let mut running: FuturesUnordered<BoxFuture<'_, (SessionId, Result<(), Over>)>> = FuturesUnordered::new();
    let (after, tree) = (params.after.get(&first).copied().or(params.after_seq), &tree);
    running.push(Box::pin(async move { (first, tree.run(first, root, after).await) }));
    for child in children {
        running.push(Box::pin(tree.child(child, tree.after(child))));
    }
    loop {
        tokio::select! {
            ended = running.next() => match ended {
                Some((ended, Ok(()))) if ended == first => break,
                Some((_, Ok(()))) => {}
                // The client is gone, or the first session cannot be read.
                Some((_, Err(Over))) | None => return,
            },
            changed = kin.changed() => {
                if changed.is_err() {
                    return;
                }
                for child in daemon.registry.kin_of(first) {
                    if followed.insert(child) {
                        running.push(Box::pin(tree.child(child, Some(Seq(0)))));
                    }
                }
            }
        }
    }
    // Its descendants were deleted before it, and are told before it.
    while let Some((_, ended)) = running.next().await {
        if ended.is_err() {
            return;
        }
    }
    // An error means that the client has gone.
    let _ = tree.say_deleted(first).await;
}

/// The first session, and the children that there are.
async fn begin(
    daemon: &Daemon,
    first: SessionId,
    params: &SubscribeParams,
) -> Result<(Box<Snapshot>, Vec<SessionId>), ErrorObjectOwned> {
    let after = params.after.get(&first).copied().or(params.after_seq);
    let root = snapshot(daemon, first, after).await?;
    let children = daemon.registry.descendants(first).await.map_err(wire)?;
    for child in &children {
        let Some(after) = params.after.get(child) else { continue };
        match daemon.registry.snapshot(*child).await {
            Ok(snapshot) if *after > snapshot.head => return Err(beyond(*child, snapshot.head)),
            // Whatever is wrong with a child keeps nobody from following the others.
            Ok(_) | Err(_) => {}
        }
    }
    Ok((root, children))
}

fn beyond(session: SessionId, head: Seq) -> ErrorObjectOwned {
    let data = BTreeMap::from([("head", json!(head)), ("sessionId", json!(session))]);
    let data = data.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    error(ErrorCode::Conflict, SessionError::BeyondHead { head }.to_string(), data)
}

struct Tree<'a> {
    daemon: &'a Daemon,
    sink: &'a SubscriptionSink,
    params: &'a SubscribeParams,
    loading: Semaphore,
}

impl Tree<'_> {
    /// Where to begin in a child that was there before the subscription.
    fn after(&self, child: SessionId) -> Option<Seq> {
        self.params.after.get(&child).copied().or(self.params.after_seq.map(|_| Seq(0)))
    }

    async fn child(&self, child: SessionId, after: Option<Seq>) -> (SessionId, Result<(), Over>) {
        let snapshot = {
            let _loading = self.loading.acquire().await;
            self.daemon.registry.snapshot(child).await
        };
        let result = match snapshot {
            Ok(snapshot) => match self.run(child, snapshot, after).await {
                Ok(()) => self.say_deleted(child).await,
                Err(over) => Err(over),
            },
            Err(SessionError::NotFound(_)) => Ok(()),
            Err(error) => {
                tracing::warn!(session = %child, %error, "a child cannot be followed");
                Ok(())
            }
        };
        // A journal that cannot be read ends this one only.
        (child, result.or_else(|over| if self.sink.is_closed() { Err(over) } else { Ok(()) }))
    }

    async fn say_deleted(&self, session: SessionId) -> Result<(), Over> {
        send(self.sink, &WireEvent::new(&deleted_event(session))).await
    }

    async fn run(&self, session: SessionId, snapshot: Box<Snapshot>, after: Option<Seq>) -> Result<(), Over> {
        let subscription = Subscription {
            session,
            sink: self.sink,
            types: self.params.types.as_deref(),
            daemon: self.daemon,
            feed: std::sync::Arc::clone(&snapshot.feed),
        };
        subscription.run(*snapshot, after, self.params.deltas).await
    }
}
