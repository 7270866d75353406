//! Whether anybody still reads what goes to stdout. `agentctl events | head -1` should end with `head`, not at the next
//! event.

use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub(crate) struct Reader(Option<AsyncFd<OwnedFd>>);

impl Reader {
    /// Of stdout. Where it is a file there is no reader that could go.
    pub(crate) fn of_stdout() -> Self {
        let Ok(fd) = rustix::io::fcntl_dupfd_cloexec(std::io::stdout(), 3) else { return Self(None) };
        #[expect(
            deprecated,
            reason = "its replacement is unsafe for types that may change their descriptor; an OwnedFd \
            never does, and unsafe code is denied here"
        )]
        let fd = AsyncFd::with_interest(fd, Interest::ERROR);
        Self(fd.ok())
    }

    /// Returns once the reader has closed its end. Cancel-safe.
    pub(crate) async fn gone(&self) {
        match &self.0 {
            // An error of waiting itself would come again at once.
            Some(fd) => drop(fd.ready(Interest::ERROR).await),
            None => std::future::pending().await,
        }
    }
}
