//! Accepting: who may speak gets a connection, others a line that says why not.

use std::sync::Arc;
use std::time::Duration;

use agentd_protocol::ErrorCode;
use jsonrpsee::core::server::Methods;
use jsonrpsee::types::ErrorObjectOwned;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use super::connection;
use super::error::{answer, error_with};
use super::limits::{Gauges, Limits};
use super::listen::Listener;
use super::peer::{PeerPolicy, check};

/// How long to wait after the system had no room for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a refused client may take to read why.
const REFUSAL: Duration = Duration::from_secs(1);

/// What connections need.
#[derive(Clone, Debug)]
pub struct Server {
    pub methods: Methods,
    pub limits: Limits,
    pub peers: PeerPolicy,
    /// Ends accepting. Connections go on: prompts are still taken while turns are parked.
    pub stop: CancellationToken,
    /// Ends connections: answers in flight are written, for at most [`Limits::leave`].
    pub leave: CancellationToken,
    /// Every connection, and every call that outlives one.
    pub tracker: TaskTracker,
    pub gauges: Arc<Gauges>,
}

/// Accepts connections until `stop`. They run on the tracker; wait for it after `leave`.
pub async fn serve(listener: Listener, server: Server) {
    let server = Arc::new(server);
    let places = Arc::new(Semaphore::new(server.limits.connections));
    let mut last_id = 0;
    loop {
        let accepted = tokio::select! {
            biased;
            () = server.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                // Out of file descriptors, most likely: trying again at once would spin.
                tokio::select! {
                    () = server.stop.cancelled() => return,
                    () = tokio::time::sleep(ACCEPT_PAUSE) => continue,
                }
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            tracing::warn!("refused a connection: all {} are in use", server.limits.connections);
            server.tracker.spawn(refuse(stream, overloaded()));
            continue;
        };
        last_id += 1;
        let span = tracing::info_span!("connection", id = last_id);
        let (id, shared) = (last_id, server.clone());
        let task = async move {
            let _place = place;
            accept(stream, id, &shared).await;
        };
        server.tracker.spawn(task.instrument(span));
    }
}

async fn accept(stream: UnixStream, id: usize, server: &Server) {
    let _gauge = server.gauges.connection();
    let peer = match check(&stream, server.peers) {
        Ok(peer) => peer,
        Err(refused) => {
            tracing::warn!(reason = %refused, "refused a client");
            let error = error_with(ErrorCode::Refused, refused.to_string(), "reason", refused.code());
            return refuse(stream, error).await;
        }
    };
    if let Err(error) = connection::run(stream, peer, id, server).await {
        tracing::debug!(%error, pid = peer.pid, "a connection ended");
    }
}

fn overloaded() -> ErrorObjectOwned {
    error_with(ErrorCode::Overloaded, "agentd has no room for another connection", "retryAfterMs", 1000)
}

async fn refuse(mut stream: UnixStream, error: ErrorObjectOwned) {
    let line = format!("{}\n", answer(None, &error).get());
    // Whether it is read is the client's business.
    let _ = tokio::time::timeout(REFUSAL, async {
        stream.write_all(line.as_bytes()).await?;
        stream.shutdown().await
    })
    .await;
}
