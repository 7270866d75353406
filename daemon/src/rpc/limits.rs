//! Every bound of a connection, in one place, and the numbers to watch.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use agentd_protocol::codec::MAX_MESSAGE;

/// What one connection may take, and how many there may be. What happens when a bound is reached stands beside it.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a message, either way. Over it: answered `-32007` (a call) or `-32008` (its result); the connection lives.
    pub message_bytes: usize,
    /// Calls in flight. At the bound nothing more is read until one has ended.
    pub calls: usize,
    /// `turn/wait` calls in flight, apart from the others, since the turns they wait for may need an answer that comes on
    /// the same connection. Over it: `-32056`.
    pub waits: usize,
    /// Subscriptions. Over it: `-32006`.
    pub subscriptions: u32,
    /// Connections of all clients. Over it: one `-32056` line, then closed.
    pub connections: usize,
    /// Answers that wait to be written. At the bound the calls that made them wait.
    pub answers: usize,
    /// Events that wait to be written. At the bound the subscriptions wait, each with nothing but its position.
    pub events: usize,
    /// How long the client may take nothing at all before the connection ends.
    pub write_stall: Duration,
    /// How long answers may take to be written once the daemon leaves.
    pub leave: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: MAX_MESSAGE,
            calls: 64,
            waits: 256,
            subscriptions: 256,
            connections: 1024,
            answers: 32,
            events: 16,
            write_stall: Duration::from_secs(10),
            leave: Duration::from_secs(2),
        }
    }
}

/// Numbers for `daemon/status`.
#[derive(Debug, Default)]
pub struct Gauges {
    connections: AtomicU32,
}

impl Gauges {
    /// Connections now open.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Counts one connection until the guard is dropped.
    pub(super) fn connection(self: &std::sync::Arc<Self>) -> ConnectionGauge {
        self.connections.fetch_add(1, Ordering::Relaxed);
        ConnectionGauge(self.clone())
    }
}

pub(super) struct ConnectionGauge(std::sync::Arc<Gauges>);

impl Drop for ConnectionGauge {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
