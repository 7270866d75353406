//! Writing the feed's facts to its log, behind what is told. Nobody waits for it; a disk that takes nothing is tried again,
//! and what could not be kept meanwhile leaves a mark.

use std::time::Duration;

use agentd_protocol::FeedSeq;
use tokio_util::sync::CancellationToken;

use super::DaemonFeed;
use crate::journal::{FEED_BLOCK, FeedEntry as Entry};
use crate::session::feed::WireEvent;

/// Bytes that may wait to be written.
const WAITING: usize = 256 * 1024;
/// After so many numbers without a fact one is written down, so that the next daemon begins after them.
const MARK_EVERY: u64 = 1 << 12;

/// Else a block could be used up between two of them.
const _: () = assert!(MARK_EVERY < 1 << FEED_BLOCK);

/// What waits to be written.
pub(super) struct Unwritten {
    entries: Vec<Entry>,
    bytes: usize,
    /// The last number of those that had to be given up.
    given_up: Option<FeedSeq>,
    /// The last number that was or will be written.
    last: FeedSeq,
}

impl Unwritten {
    pub(super) fn beginning(first: FeedSeq) -> Self {
        Self { entries: Vec::new(), bytes: 0, given_up: None, last: first }
    }

    pub(super) fn event(&mut self, number: FeedSeq, event: &WireEvent) {
        self.add(Entry::Event(number, event.json.clone()), event.json.len());
    }

    pub(super) fn number(&mut self, number: FeedSeq) {
        if number.0 - self.last.0 >= MARK_EVERY {
            self.add(Entry::Mark(number), 0);
        }
    }

    fn add(&mut self, entry: Entry, bytes: usize) {
        self.last = entry.number();
        self.bytes += bytes;
        self.entries.push(entry);
        if self.bytes > WAITING {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        self.entries.clear();
        self.bytes = 0;
        self.given_up = Some(self.last);
    }

    /// All that waits, in the order of the numbers.
    fn take(&mut self) -> Vec<Entry> {
        self.bytes = 0;
        let hole = self.given_up.take().map(Entry::Hole);
        hole.into_iter().chain(std::mem::take(&mut self.entries)).collect()
    }

    /// What was taken could not be written.
    fn put_back(&mut self, mut entries: Vec<Entry>) {
        let holes_follow = self.given_up.is_some();
        entries.append(&mut self.entries);
        self.entries = entries;
        self.bytes = self.entries.iter().map(bytes_of).sum();
        if self.bytes > WAITING || holes_follow {
            self.give_up();
        }
    }
}

fn bytes_of(entry: &Entry) -> usize {
    match entry {
        Entry::Event(_, json) => json.len(),
        Entry::Started(_) | Entry::Ended(_) | Entry::Mark(_) | Entry::Hole(_) => 0,
    }
}

impl DaemonFeed {
    /// Writes what is told until `stop`. `pause`: after which the disk is tried again.
    pub(in crate::registry) async fn keep(&self, stop: CancellationToken, pause: Duration) {
        let mut failing = false;
        while !stop.is_cancelled() {
            let waits = self.to_write.notified();
            match self.write().await {
                Ok(()) => {
                    failing = false;
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = waits => {}
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        let text = format!("what the feed tells is not kept for later: {error}");
                        tracing::warn!("{text}");
                        self.notice("storage", &text);
                    }
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = tokio::time::sleep(pause) => {}
                    }
                }
            }
        }
    }

    pub(super) async fn write(&self) -> Result<(), String> {
        let entries = self.lock().unwritten.take();
        if entries.is_empty() {
            return Ok(());
        }
        let written = self.log.append(entries.clone()).await;
        written.map_err(|error| {
            self.lock().unwritten.put_back(entries);
            format!("{:#}", anyhow::Error::new(error))
        })
    }

    /// The daemon ends in order: all that was told is in the log, and that this is all.
    pub(in crate::registry) async fn finish(&self) {
        let entries = {
            let mut inner = self.lock();
            let mut entries = inner.unwritten.take();
            entries.push(Entry::Ended(inner.head));
            entries
        };
        if let Err(error) = self.log.end(entries).await {
            tracing::warn!("the daemon's log was not finished: {:#}", anyhow::Error::new(error));
        }
    }
}
