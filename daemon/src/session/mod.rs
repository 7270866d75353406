//! The engine: one task per session, driven by its journal.
//!
//! Read [`record`] (what is written down), [`state`] and [`apply`] (the fold), [`step`] (what comes next), then [`actor`] (the task).

mod actor;
mod answers;
mod apply;
pub mod approval;
mod breaker;
mod calls;
pub mod changes;
mod checkpoint;
mod classify;
pub mod command;
mod commit;
pub mod create;
pub mod deps;
pub mod error;
mod explain;
pub mod export;
pub mod feed;
mod flight;
mod fork;
mod heir;
pub mod history;
pub mod import;
mod inbox;
mod keeping;
mod load;
pub mod models;
pub mod outline;
mod planning;
pub mod policies;
pub mod project;
pub mod record;
pub mod recover;
mod request;
pub mod resets;
mod rewind;
pub mod settings;
pub mod spoken;
pub mod state;
pub mod step;
mod stopping;
#[cfg(test)]
mod tests;
pub mod trees;
pub mod trusting;
mod turn;
mod waiting;

pub use actor::{Ended, Loading, Session, Watcher, deleted_event, guarded};
pub use checkpoint::Kept;
pub use error::SessionError;
pub use explain::{Inquiry, unkept};
pub use fork::{Forking, fork};
pub use heir::unstored;
pub use load::{Loaded, load, look};

/// Bytes that may be read through, written out or hashed on a thread of the runtime.
const LIGHT: usize = 256 * 1024;

/// Works on about `bytes` of data: at once if that is little, else away from the runtime's threads.
///
/// # Panics
/// If `work` does.
pub async fn offload<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
    if bytes <= LIGHT { work() } else { blocking(work).await }
}

/// Runs what may block away from the runtime's threads.
///
/// # Panics
/// If `work` does.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going down and nobody waits for the answer any more.
            Err(_) => std::future::pending().await,
        },
    }
}
