//! The writing side of one journal: append, sync, and what follows when either fails.
//!
//! The rule: after an error the file is cut back to its last good commit, so that the caller can say "nothing was
//! changed". Where that cannot be said, the journal is broken: it takes nothing more until it is opened again, when
//! what is really in the file decides. A failed sync is never repeated in the hope of a better answer: the kernel
//! reports it once and then believes the pages clean.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentd_protocol::Timestamp;
use serde_json::value::RawValue;

use super::index::{Index, SharedIndex};
use super::storage::Storage;
use super::{AppendError, AppendFailure, Appended, Changed, MAX_LINE, Place, frame};
use crate::ids::Seq;

pub(super) struct JournalFile {
    pub(super) path: PathBuf,
    /// For reading only; all changes go through `storage`.
    pub(super) reader: Arc<File>,
    storage: Box<dyn Storage>,
    pub(super) index: SharedIndex,
    /// Locked by the file's one commit thread only, so never waited for.
    writer: Mutex<Writer>,
}

struct Writer {
    next: Seq,
    /// Bytes of whole lines in the file.
    len: u64,
    /// Bytes known to be on the disk.
    synced: u64,
    /// Why nothing more is taken.
    broken: Option<String>,
}

impl JournalFile {
    pub(super) fn new(
        path: PathBuf,
        reader: Arc<File>,
        storage: Box<dyn Storage>,
        index: Index,
        synced: u64,
        broken: Option<String>,
    ) -> Self {
        let writer = Writer { next: index.next, len: index.len, synced, broken };
        Self { path, reader, storage, index: SharedIndex::new(index), writer: Mutex::new(writer) }
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A panic between two assignments would leave at worst a length that `facts` contradicts at the next append.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn broken(&self) -> Option<String> {
        self.writer().broken.clone()
    }

    /// Puts a commit into the file. Readers see it after [`JournalFile::publish`].
    pub(super) fn write(
        &self,
        expected: Seq,
        at: Timestamp,
        records: &[Box<RawValue>],
    ) -> Result<Appended, AppendError> {
        let mut writer = self.writer();
        let unchanged = |failure| AppendError::unchanged(&self.path, failure);
        if let Some(reason) = &writer.broken {
            return Err(unchanged(AppendFailure::ReadOnly(reason.clone())));
        }
        let next = writer.next;
        if expected != next {
            return Err(unchanged(AppendFailure::Expected { expected, next }));
        }
        if records.is_empty() {
            return Err(unchanged(AppendFailure::Empty));
        }
        let line = frame::encode(next, at, records);
        let len = match u32::try_from(line.len()) {
            Ok(len) if line.len() <= MAX_LINE => len,
            _ => return Err(unchanged(AppendFailure::TooLarge { bytes: line.len() })),
        };
        self.check_undisturbed(&mut writer)?;

        let offset = writer.len;
        if let Err(source) = self.storage.write_all_at(&line, offset) {
            let changed = match self.storage.set_len(offset) {
                Ok(()) => Changed::False,
                Err(error) => {
                    writer.broken =
                        Some(format!("a write failed ({source}) and could not be undone ({error})"));
                    Changed::Unknown
                }
            };
            return Err(AppendError {
                path: self.path.clone(),
                changed,
                failure: AppendFailure::Write(source),
            });
        }
        let last = Seq(next.0 + records.len() as u64 - 1);
        writer.len = offset + u64::from(len);
        writer.next = Seq(last.0 + 1);
        Ok(Appended { first: next, last, place: Place { offset, len } })
    }

    /// Nobody else may write here. Whoever removed or changed the file did so for good reasons or by accident; adding to
    /// it now would be lost, or ruin it further.
    fn check_undisturbed(&self, writer: &mut Writer) -> Result<(), AppendError> {
        let facts = self
            .storage
            .facts()
            .map_err(|error| AppendError::unchanged(&self.path, AppendFailure::Write(error)))?;
        let reason = if facts.links == 0 {
            "the file was removed while it was in use".to_owned()
        } else if facts.len != writer.len {
            format!("another program changed the file: it has {} bytes, not {}", facts.len, writer.len)
        } else {
            return Ok(());
        };
        writer.broken = Some(reason.clone());
        Err(AppendError::unchanged(&self.path, AppendFailure::ReadOnly(reason)))
    }

    /// Closes the journal after a panic in one of its operations: nobody knows how far that came.
    pub(super) fn panicked(&self) -> AppendError {
        let reason = "agentd made a mistake while writing it; please report this".to_owned();
        self.writer().broken = Some(reason.clone());
        AppendError {
            path: self.path.clone(),
            changed: Changed::Unknown,
            failure: AppendFailure::ReadOnly(reason),
        }
    }

    /// Shows a commit to readers.
    pub(super) fn publish(&self, appended: &Appended) {
        self.index.lock().add(appended.first, appended.last, appended.place);
    }

    /// Brings everything in the file to the disk. If that fails, `line`, the unacknowledged commit at the end, is taken
    /// back.
    pub(super) fn sync(&self, line: Option<&Appended>) -> Result<(), AppendError> {
        let mut writer = self.writer();
        if line.is_none()
            && let Some(reason) = &writer.broken
        {
            return Err(AppendError::unchanged(&self.path, AppendFailure::ReadOnly(reason.clone())));
        }
        let Err(source) = self.storage.sync_data() else {
            writer.synced = writer.len;
            return Ok(());
        };
        let changed = match line {
            None => {
                writer.broken = Some(format!("the disk did not confirm earlier commits ({source})"));
                Changed::Unknown
            }
            Some(line) => {
                let before = line.place.offset;
                match self.storage.set_len(before).and_then(|()| self.storage.sync_all()) {
                    Ok(()) => {
                        writer.len = before;
                        writer.next = line.first;
                        if writer.synced < before {
                            // The kernel now takes the pages of earlier commits for clean, so no later sync could vouch
                            // for them.
                            writer.broken =
                                Some(format!("the disk did not confirm earlier commits ({source})"));
                        }
                        Changed::False
                    }
                    Err(error) => {
                        writer.broken =
                            Some(format!("a sync failed ({source}) and could not be undone ({error})"));
                        Changed::Unknown
                    }
                }
            }
        };
        Err(AppendError { path: self.path.clone(), changed, failure: AppendFailure::Sync(source) })
    }
}
