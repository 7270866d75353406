//! `daemon.jsonl`: what the daemon's feed tells that has to outlive the daemon, so that who was away hears it later.
//!
//! It is no truth about anything: sessions have their journals. So it is written behind what is told and not synced while
//! the daemon runs; what a crash or a power cut may have cost shows, because an end in order is written down too. Its size
//! is bounded: a full file becomes the old one, and the old one goes.
//!
//! Numbers never go back. Each start begins a new block of them, the one that the clock says or the
//! next one, whichever is higher: a log that is gone, or has lost its end, brings back no number that somebody has seen.

mod line;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentd_protocol::{FeedSeq, Timestamp};

use super::JournalError;
use super::error::Doing as _;
use super::folder::{NO_FOLLOW, must_be_file, new_file};
use super::lines::{Lines, Text};
use super::service::{JournalService, blocking};
use super::storage::{Disk, Layer, Storage};

pub use line::{Entry, Page};

use line::Picker;

/// Bytes of one of the two files.
const FILE_BYTES: u64 = 512 << 10;
/// How much of a file's end is read to find its last number.
const END: u64 = 64 << 10;
/// Bits of a number that count within its block. A daemon that tells more goes on into the next blocks.
pub const BLOCK: u32 = 13;
/// Milliseconds that a block stands for: less than lies between two starts, so that they have different ones.
const BLOCK_MS: i64 = 4;
/// Blocks by a clock that says more are not believed: the year 2109.
const LATEST: i64 = 1 << 40;

/// The feed's log. Cheap to clone.
#[derive(Clone)]
pub struct FeedLog {
    service: Arc<JournalService>,
    files: Arc<Mutex<Files>>,
}

impl FeedLog {
    /// Opens the log at `path`, or begins one, notes that a daemon begins, and says after which number. Reads a bounded
    /// piece and writes one line, so that a start may wait for it; nobody must be told a number before. A log that cannot
    /// be used is tried again with each append.
    #[must_use]
    pub fn open(service: &Arc<JournalService>, path: PathBuf, now: Timestamp) -> (Self, FeedSeq) {
        let mut files = Files::new(path, Arc::new(Disk));
        let first = files.begin(now);
        (Self { service: Arc::clone(service), files: Arc::new(Mutex::new(files)) }, first)
    }

    /// Adds entries, with rising numbers. They are with the kernel when this returns.
    ///
    /// # Errors
    /// None of them is in the log.
    pub async fn append(&self, entries: Vec<Entry>) -> Result<(), JournalError> {
        let files = Arc::clone(&self.files);
        self.service.work(move || lock(&files).append(&entries)).await?
    }

    /// Adds the last entries of a daemon that ends in order, and brings all to the disk.
    ///
    /// # Errors
    /// They may not be in the log.
    pub async fn end(&self, entries: Vec<Entry>) -> Result<(), JournalError> {
        let files = Arc::clone(&self.files);
        let end = move || {
            let mut files = lock(&files);
            files.append(&entries)?;
            files.sync()
        };
        self.service.work(end).await?
    }

    /// The events after `after`, about `max_bytes` of them.
    ///
    /// # Errors
    /// The log cannot be read.
    pub async fn read_after(&self, after: FeedSeq, max_bytes: usize) -> Result<Page, JournalError> {
        let files = Arc::clone(&self.files);
        blocking(move || lock(&files).read_after(after, max_bytes)).await?
    }
}

/// Locked by threads that may block, never by the runtime's.
fn lock(files: &Mutex<Files>) -> MutexGuard<'_, Files> {
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Files {
    path: PathBuf,
    layer: Arc<dyn Layer>,
    /// Absent as long as it could not be opened.
    open: Option<Open>,
    /// Where this daemon begins, as long as that could not be written.
    unstarted: Option<FeedSeq>,
}

struct Open {
    storage: Box<dyn Storage>,
    /// Bytes of whole lines.
    len: u64,
    /// The last number in it.
    last: FeedSeq,
}

impl Files {
    fn new(path: PathBuf, layer: Arc<dyn Layer>) -> Self {
        Self { path, layer, open: None, unstarted: None }
    }

    fn old(&self) -> PathBuf {
        self.path.with_extension("old.jsonl")
    }

    fn begin(&mut self, now: Timestamp) -> FeedSeq {
        let last = self.opened().map(|open| open.last).unwrap_or_default();
        let by_clock = Some(now.unix_ms() / BLOCK_MS).filter(|block| (0..LATEST).contains(block));
        let by_clock = by_clock.unwrap_or_default().unsigned_abs();
        let first = FeedSeq(((last.0 >> BLOCK) + 1).max(by_clock) << BLOCK);
        self.unstarted = Some(first);
        if let Err(error) = self.append(&[]) {
            tracing::warn!("the daemon's log cannot be used: {:#}", anyhow::Error::new(error));
        }
        first
    }

    fn opened(&mut self) -> Result<&mut Open, JournalError> {
        let open = match self.open.take() {
            Some(open) => open,
            None => self.open_file()?,
        };
        Ok(self.open.insert(open))
    }

    fn open_file(&self) -> Result<Open, JournalError> {
        let path = &self.path;
        let file = OpenOptions::new().read(true).write(true).custom_flags(NO_FOLLOW).open(path);
        let file = match file {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return self.new_file(self.last_of_old());
            }
            other => other.doing("open", path)?,
        };
        must_be_file(&file).doing("open", path)?;
        let size = file.metadata().doing("look at", path)?.len();
        let (len, last) = end_of(&file, size).doing("read", path)?;
        let Some(last) = last else {
            if size > 0 {
                // It holds nothing that can be read, but somebody may want to look at it.
                fs::rename(path, path.with_extension("damaged.jsonl")).doing("put aside", path)?;
                return self.new_file(self.last_of_old());
            }
            let last = self.last_of_old();
            return Ok(Open { storage: self.layer.wrap(Arc::new(file), path), len: 0, last });
        };
        let storage = self.layer.wrap(Arc::new(file), path);
        if len < size {
            storage.set_len(len).doing("cut the unfinished end of", path)?;
        }
        Ok(Open { storage, len, last })
    }

    fn new_file(&self, last: FeedSeq) -> Result<Open, JournalError> {
        let file = new_file(&self.path).doing("make", &self.path)?;
        Ok(Open { storage: self.layer.wrap(Arc::new(file), &self.path), len: 0, last })
    }

    /// The last number of the old file; 0 if there is none. Whatever may be wrong with it, the clock still helps.
    fn last_of_old(&self) -> FeedSeq {
        let old = OpenOptions::new().read(true).custom_flags(NO_FOLLOW).open(self.old());
        let last = old.and_then(|file| {
            must_be_file(&file)?;
            let size = file.metadata()?.len();
            end_of(&file, size)
        });
        last.ok().and_then(|(_, last)| last).unwrap_or_default()
    }

    fn append(&mut self, entries: &[Entry]) -> Result<(), JournalError> {
        let start = self.unstarted.map(Entry::Started);
        let entries = || start.iter().chain(entries);
        let Some(last) = entries().last().map(Entry::number) else { return Ok(()) };
        let path = self.path.clone();
        let mut lines = Vec::new();
        entries().for_each(|entry| entry.encode(&mut lines));
        let open = self.opened()?;
        let facts = open.storage.facts().doing("look at", &path)?;
        if facts.links == 0 || facts.len != open.len {
            // Somebody took it away or wrote to it. What is there now is looked at anew.
            self.open = None;
            self.opened()?;
        }
        if self.opened()?.len + lines.len() as u64 > FILE_BYTES {
            self.turn_over()?;
        }
        let open = self.opened()?;
        if let Err(error) = open.storage.write_all_at(&lines, open.len) {
            if open.storage.set_len(open.len).is_err() {
                // Half a line may stand there; opening it anew cuts that.
                self.open = None;
            }
            return Err(error).doing("write to", &path);
        }
        open.len += lines.len() as u64;
        open.last = last;
        self.unstarted = None;
        Ok(())
    }

    /// The full file becomes the old one.
    fn turn_over(&mut self) -> Result<(), JournalError> {
        let last = self.opened()?.last;
        if self.opened()?.len == 0 {
            return Ok(());
        }
        fs::rename(&self.path, self.old()).doing("put aside", &self.path)?;
        self.open = None;
        let mut open = self.new_file(last)?;
        let mut lines = Vec::new();
        Entry::Mark(last).encode(&mut lines);
        open.storage.write_all_at(&lines, 0).doing("write to", &self.path)?;
        open.len = lines.len() as u64;
        self.open = Some(open);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), JournalError> {
        let path = self.path.clone();
        self.opened()?.storage.sync_data().doing("sync", &path)
    }

    fn read_after(&mut self, after: FeedSeq, max_bytes: usize) -> Result<Page, JournalError> {
        let mut picker = Picker::new(after, max_bytes);
        for path in [self.old(), self.path.clone()] {
            let file = match OpenOptions::new().read(true).custom_flags(NO_FOLLOW).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other.doing("open", &path)?,
            };
            read(&file, &path, &mut picker)?;
        }
        Ok(picker.finish())
    }
}

fn read(file: &File, path: &Path, picker: &mut Picker) -> Result<(), JournalError> {
    must_be_file(file).doing("open", path)?;
    let size = file.metadata().doing("look at", path)?.len();
    let mut lines = Lines::new(file, 0, size);
    while let Some(line) = lines.next().doing("read", path)? {
        match line.text {
            Text::Whole(text) => picker.line(text),
            Text::TooLong | Text::Unfinished => picker.bad(),
        }
    }
    Ok(())
}

/// Where the last whole line of a file ends, and the last number that its end holds.
fn end_of(file: &File, size: u64) -> io::Result<(u64, Option<FeedSeq>)> {
    let from = size.saturating_sub(END);
    let mut tail = vec![0; usize::try_from(size - from).unwrap_or_default()];
    file.read_exact_at(&mut tail, from)?;
    let end = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let last = tail[..end].split(|byte| *byte == b'\n').rev().find_map(line::number);
    Ok((from + end as u64, last))
}

#[cfg(test)]
mod tests;
