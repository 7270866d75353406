//! File work of a call, off the runtime's threads.

use tokio_util::sync::CancellationToken;

use super::Output;

/// Runs `work` on a thread that may block. It is not begun once the call is cancelled; work that takes long asks the
/// token itself. A write that has begun is waited for: its result must be true.
pub(super) async fn blocking<F>(cancel: CancellationToken, work: F) -> Output
where
    F: FnOnce(&CancellationToken) -> Output + Send + 'static,
{
    if cancel.is_cancelled() {
        return Output::error("Interrupted before it began; nothing was done.");
    }
    match tokio::task::spawn_blocking(move || work(&cancel)).await {
        Ok(output) => output,
        Err(error) => {
            tracing::error!(%error, "a tool failed inside");
            Output::error("The tool failed inside agentd; what it did is unknown. Look before you repeat it.")
        }
    }
}
