//! A disk at which the daemon dies on purpose, for the crash tests. Debug builds only: a release has neither this module
//! nor the option that starts it.

use std::fs::File;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::storage::{DiskFile, Facts, Layer, Reached, Storage};

/// When the process kills itself: `before:3`, `half:3`, `written:3`, `synced:3`. Counted over all journals of the process,
/// from 1; `synced` counts syncs, the first three writes. `packed:1`, `named:1`, `staged:1` and `inPlace:1` count how often a
/// session that moves has come so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DieAt {
    place: DyingPlace,
    nth: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DyingPlace {
    /// Nothing of the commit is in the file.
    Before,
    /// The first half of its line is.
    Half,
    /// All of it is with the kernel, and nobody has been told.
    Written,
    /// It is on the disk, and nobody has been told.
    Synced,
    Moving(Reached),
}

#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` is no such moment; say before:N, half:N, written:N, synced:N, packed:N, named:N, staged:N or inPlace:N, counted \
     from 1"
)]
pub struct NoMoment(String);

impl FromStr for DieAt {
    type Err = NoMoment;

    fn from_str(text: &str) -> Result<Self, NoMoment> {
        let wrong = || NoMoment(text.to_owned());
        let (place, nth) = text.split_once(':').ok_or_else(wrong)?;
        let place = match place {
            "before" => DyingPlace::Before,
            "half" => DyingPlace::Half,
            "written" => DyingPlace::Written,
            "synced" => DyingPlace::Synced,
            "packed" => DyingPlace::Moving(Reached::Packed),
            "named" => DyingPlace::Moving(Reached::Named),
            "staged" => DyingPlace::Moving(Reached::Staged),
            "inPlace" => DyingPlace::Moving(Reached::InPlace),
            _ => return Err(wrong()),
        };
        let nth = nth.parse().ok().filter(|nth| *nth > 0).ok_or_else(wrong)?;
        Ok(Self { place, nth })
    }
}

pub(super) struct Dying(Arc<Counts>);

struct Counts {
    at: DieAt,
    writes: AtomicUsize,
    syncs: AtomicUsize,
    reached: AtomicUsize,
}

impl Dying {
    pub(super) fn new(at: DieAt) -> Self {
        Self(Arc::new(Counts {
            at,
            writes: AtomicUsize::new(0),
            syncs: AtomicUsize::new(0),
            reached: AtomicUsize::new(0),
        }))
    }
}

impl Layer for Dying {
    fn wrap(&self, file: Arc<File>, _: &Path) -> Box<dyn Storage> {
        Box::new(DyingFile { disk: DiskFile(file), counts: Arc::clone(&self.0) })
    }

    fn reached(&self, reached: Reached) {
        if self.0.at.place != DyingPlace::Moving(reached) {
            return;
        }
        if self.0.reached.fetch_add(1, Ordering::Relaxed) + 1 == self.0.at.nth {
            die();
        }
    }
}

struct DyingFile {
    disk: DiskFile,
    counts: Arc<Counts>,
}

impl DyingFile {
    fn synced(&self) {
        let count = self.counts.syncs.fetch_add(1, Ordering::Relaxed) + 1;
        if self.counts.at == (DieAt { place: DyingPlace::Synced, nth: count }) {
            die();
        }
    }
}

impl Storage for DyingFile {
    fn facts(&self) -> io::Result<Facts> {
        self.disk.facts()
    }
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let count = self.counts.writes.fetch_add(1, Ordering::Relaxed) + 1;
        let place = (count == self.counts.at.nth).then_some(self.counts.at.place);
        match place {
            Some(DyingPlace::Before) => die(),
            Some(DyingPlace::Half) => {
                self.disk.write_all_at(&bytes[..bytes.len() / 2], offset)?;
                die()
            }
            Some(DyingPlace::Written) => {
                self.disk.write_all_at(bytes, offset)?;
                die()
            }
            Some(DyingPlace::Synced | DyingPlace::Moving(_)) | None => self.disk.write_all_at(bytes, offset),
        }
    }
    fn sync_data(&self) -> io::Result<()> {
        self.disk.sync_data()?;
        self.synced();
        Ok(())
    }
    fn sync_all(&self) -> io::Result<()> {
        self.disk.sync_all()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.set_len(len)
    }
}

/// As from outside: nothing is unwound, flushed or closed.
fn die() -> ! {
    loop {
        // It cannot fail: a process may always signal itself. The signal may take a moment.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_place_and_a_number() {
        assert_eq!("half:12".parse::<DieAt>().unwrap(), DieAt { place: DyingPlace::Half, nth: 12 });
        for wrong in ["", "half", "half:", "half:0", "half:-1", "after:1", "half:1:2"] {
            assert!(wrong.parse::<DieAt>().is_err(), "{wrong:?}");
        }
    }
}
