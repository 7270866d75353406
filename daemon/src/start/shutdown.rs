//! The phases of a shutdown: announce, park, end, sync, leave. An upgrade is exactly this.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::systemd;
use crate::journal::JournalService;
use crate::process::Spawner;
use crate::rpc::handlers::Daemon;

/// No new step; streams are cut, effects get time.
const PARK: Duration = Duration::from_secs(10);
/// What still runs is ended.
const END: Duration = Duration::from_secs(3);
/// Every journal is synced.
const SYNC: Duration = Duration::from_secs(5);
/// Answers in flight are written.
const LEAVE: Duration = Duration::from_secs(2);

pub(super) struct Running {
    pub daemon: Arc<Daemon>,
    pub journals: Arc<JournalService>,
    pub spawner: Arc<Spawner>,
    /// Ends accepting.
    pub stop: CancellationToken,
    /// Ends connections.
    pub leave: CancellationToken,
    pub tracker: TaskTracker,
    pub accepting: JoinHandle<()>,
}

pub(super) async fn run(running: Running) {
    let Running { daemon, journals, spawner, stop, leave, tracker, accepting } = running;
    phase("announce");
    systemd::stopping();
    daemon.registry.announce();
    stop.cancel();

    phase("park");
    daemon.registry.park(PARK).await;

    phase("end");
    // Dropping what still runs closes the lifelines of its processes; their helpers end them.
    within("end", END, daemon.registry.leave()).await;
    let swept = tokio::task::spawn_blocking(move || spawner.sweep_strays());
    within("end", END, swept).await;

    phase("sync");
    within("sync", SYNC, journals.stop()).await;

    phase("leave");
    leave.cancel();
    tracker.close();
    within("leave", LEAVE, tracker.wait()).await;
    within("leave", LEAVE, accepting).await;
}

fn phase(name: &str) {
    tracing::info!(phase = name, "shutting down");
}

async fn within<T>(name: &str, limit: Duration, work: impl Future<Output = T>) {
    if tokio::time::timeout(limit, work).await.is_err() {
        tracing::warn!(phase = name, "the phase took too long and was left");
    }
}
