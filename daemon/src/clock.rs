//! Time, injected so that tests can set it. Waiting itself is tokio's business, which tests can pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use agentd_protocol::Timestamp;

/// Tells the time of day. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Fixed(Arc<AtomicI64>),
}

impl Clock {
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands still until [`Clock::set`] moves it.
    #[must_use]
    pub fn fixed(unix_ms: i64) -> Self {
        Self(Source::Fixed(Arc::new(AtomicI64::new(unix_ms))))
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        let ms = match &self.0 {
            Source::Fixed(ms) => ms.load(Ordering::Relaxed),
            // A clock set before 1970 reads as 1970: order never depends on it.
            Source::System => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX)),
        };
        Timestamp::from_unix_ms(ms)
    }

    /// Moves a fixed clock; does nothing to the system's.
    pub fn set(&self, unix_ms: i64) {
        if let Source::Fixed(ms) = &self.0 {
            ms.store(unix_ms, Ordering::Relaxed);
        }
    }
}
