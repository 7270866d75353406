//! A disk for tests that fails when told to, stops in a sync until released, and forgets unsynced bytes in a power cut.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use super::JournalService;
use super::storage::{DiskFile, Facts, Layer, Storage};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Write,
    Sync,
    Truncate,
}

/// Shared by all files of a service. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Faults(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    calls: HashMap<Op, usize>,
    /// Calls of an operation that fail, counted from the first ever.
    failing: Vec<(Op, usize)>,
    log: Vec<Op>,
    /// What a file held at its last successful sync.
    on_disk: HashMap<PathBuf, Vec<u8>>,
    hold: Option<Hold>,
    panics: Option<Op>,
}

struct Hold {
    entered: mpsc::SyncSender<()>,
    release: mpsc::Receiver<()>,
}

/// Holds the next sync until dropped or released.
pub(crate) struct HeldSync {
    pub(crate) entered: mpsc::Receiver<()>,
    pub(crate) release: mpsc::SyncSender<()>,
}

impl Faults {
    pub(crate) fn service(&self) -> Arc<JournalService> {
        JournalService::start_on(Arc::new(self.clone())).unwrap()
    }

    /// Makes the `nth` call from now on fail; 1 is the next one.
    pub(crate) fn fail(&self, op: Op, nth: usize) {
        self.with(|script| {
            let done = script.calls.get(&op).copied().unwrap_or(0);
            script.failing.push((op, done + nth));
        });
    }

    /// Makes the next call panic.
    pub(crate) fn panic(&self, op: Op) {
        self.with(|script| script.panics = Some(op));
    }

    pub(crate) fn hold_next_sync(&self) -> HeldSync {
        let (entered_tx, entered) = mpsc::sync_channel(1);
        let (release, release_rx) = mpsc::sync_channel(1);
        self.with(|script| script.hold = Some(Hold { entered: entered_tx, release: release_rx }));
        HeldSync { entered, release }
    }

    /// The calls so far, in order. Clears the list.
    pub(crate) fn take_log(&self) -> Vec<Op> {
        self.with(|script| std::mem::take(&mut script.log))
    }

    /// Puts back what the file held at its last sync. Nobody may have it open.
    pub(crate) fn power_cut(&self, path: &Path) {
        let bytes = self.with(|script| script.on_disk.get(path).cloned().unwrap_or_default());
        std::fs::write(path, bytes).unwrap();
    }

    fn with<T>(&self, change: impl FnOnce(&mut Script) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn call(&self, op: Op) -> io::Result<()> {
        let (fails, hold) = self.with(|script| {
            script.log.push(op);
            let count = script.calls.entry(op).or_default();
            *count += 1;
            let fails = script.failing.contains(&(op, *count));
            (fails, if op == Op::Sync { script.hold.take() } else { None })
        });
        let panics = self.with(|script| script.panics.take_if(|panics| *panics == op).is_some());
        assert!(!panics, "{op:?} was told to panic");
        if let Some(hold) = hold {
            let _ = hold.entered.send(());
            let _ = hold.release.recv();
        }
        if fails { Err(io::Error::other(format!("{op:?} was told to fail"))) } else { Ok(()) }
    }
}

impl Layer for Faults {
    fn wrap(&self, file: Arc<File>, path: &Path) -> Box<dyn Storage> {
        Box::new(FaultyFile { disk: DiskFile(file), path: path.to_owned(), faults: self.clone() })
    }
}

struct FaultyFile {
    disk: DiskFile,
    path: PathBuf,
    faults: Faults,
}

impl FaultyFile {
    fn remember(&self) -> io::Result<()> {
        let bytes = std::fs::read(&self.path)?;
        self.faults.with(|script| script.on_disk.insert(self.path.clone(), bytes));
        Ok(())
    }
}

impl Storage for FaultyFile {
    fn facts(&self) -> io::Result<Facts> {
        self.disk.facts()
    }
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if let Err(error) = self.faults.call(Op::Write) {
            // As a full disk does: some of it arrives.
            self.disk.write_all_at(&bytes[..bytes.len() / 2], offset)?;
            return Err(error);
        }
        self.disk.write_all_at(bytes, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.faults.call(Op::Sync)?;
        self.disk.sync_data()?;
        self.remember()
    }
    fn sync_all(&self) -> io::Result<()> {
        self.faults.call(Op::Sync)?;
        self.disk.sync_all()?;
        self.remember()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.faults.call(Op::Truncate)?;
        self.disk.set_len(len)
    }
}
