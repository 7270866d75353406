//! Content too large for a record, in one file each, named by its digest. Written whole and synced before anything
//! names it; never changed.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::service::JournalService;
use super::{JournalError, folder};
use crate::ids::{Digest, digest_of};

/// The blobs of one session.
#[derive(Clone)]
pub struct Blobs {
    dir: PathBuf,
    service: Arc<JournalService>,
}

/// A piece of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobPart {
    pub bytes: Vec<u8>,
    /// Size of the whole blob.
    pub size: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("there is no blob {0}")]
    Missing(Digest),
    #[error("the content of blob {0} is not what its name says; the disk may be failing")]
    Corrupt(Digest),
    #[error("cannot {action} blob {digest}")]
    Io { action: &'static str, digest: Digest, source: io::Error },
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Blobs {
    /// `session` is the session's folder.
    pub(super) fn new(session: &Path, service: Arc<JournalService>) -> Self {
        Self { dir: session.join(folder::BLOBS), service }
    }

    /// Keeps some content. When this returns it is on the disk, under the name that it returns.
    ///
    /// # Errors
    /// It could not be written whole; then nothing has this name.
    pub async fn put(&self, content: Bytes) -> Result<Digest, BlobError> {
        let dir = self.dir.clone();
        self.service.work(move || put(&dir, &content)).await?
    }

    /// Reads at most `len` bytes from `offset` on; less where the blob ends, nothing after its end.
    ///
    /// # Errors
    /// `Missing`, or the reason why it cannot be read.
    pub async fn get(&self, digest: Digest, offset: u64, len: u64) -> Result<BlobPart, BlobError> {
        let path = self.path(digest);
        self.service.work(move || get(&path, digest, offset, len)).await?
    }

    /// Reads a whole blob and checks that it is what its name says.
    ///
    /// # Errors
    /// As [`Blobs::get`], and `Corrupt`.
    pub async fn whole(&self, digest: Digest) -> Result<Vec<u8>, BlobError> {
        let path = self.path(digest);
        let read = move || {
            let part = get(&path, digest, 0, u64::MAX)?;
            if digest_of(&part.bytes) == digest { Ok(part.bytes) } else { Err(BlobError::Corrupt(digest)) }
        };
        self.service.work(read).await?
    }

    /// Whether the blob exists.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub async fn has(&self, digest: Digest) -> Result<bool, BlobError> {
        let path = self.path(digest);
        let look =
            move || fs::exists(&path).map_err(|source| BlobError::Io { action: "look for", digest, source });
        self.service.work(look).await?
    }

    fn path(&self, digest: Digest) -> PathBuf {
        self.dir.join(digest.hex())
    }
}

fn put(dir: &Path, content: &[u8]) -> Result<Digest, BlobError> {
    let digest = digest_of(content);
    // Not the session's own folder: one that somebody has removed does not come back.
    folder::make_inner_dir(dir)?;
    write(dir, content, digest)?;
    // Also for what was there: a crash may have come between its rename and this.
    folder::sync_dir(dir)?;
    Ok(digest)
}

/// How many contents are remembered in [`Shared`].
const MAX_SHARED: usize = 8;

/// What sessions begin with, which is the same for most of them. A blob never changes, so they may have the same file,
/// which is on the disk already. Only of this daemon's own life: what lay on the disk before may have been damaged.
#[derive(Default)]
pub(super) struct Shared(HashMap<Digest, PathBuf>);

impl Shared {
    /// Puts `content` into a blob folder of a new session. The caller syncs the folder.
    pub(super) fn put(&mut self, dir: &Path, content: &[u8], digest: Digest) -> Result<(), BlobError> {
        let path = dir.join(digest.hex());
        let linked = self.0.get(&digest).is_some_and(|known| {
            // Read again: damage to one session must not become that of all new ones.
            folder::holds(known, content) && fs::hard_link(known, &path).is_ok()
        });
        if !linked {
            write(dir, content, digest)?;
            if self.0.len() >= MAX_SHARED {
                self.0.clear();
            }
        }
        // The newest is the one that is the least likely to be deleted soon.
        self.0.insert(digest, path);
        Ok(())
    }
}

fn write(dir: &Path, content: &[u8], digest: Digest) -> Result<(), BlobError> {
    let failed = |action| move |source| BlobError::Io { action, digest, source };
    let path = dir.join(digest.hex());
    // Read, not measured: what was damaged is written anew.
    if !folder::holds(&path, content) {
        // One name for all attempts: what a crash leaves behind is overwritten by the next attempt. Puts never overlap,
        // since one thread does them all.
        let temporary = dir.join(format!(".{}.tmp", digest.hex()));
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(|mut file| {
                file.set_permissions(Permissions::from_mode(0o600))?;
                file.write_all(content)?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(&temporary, &path));
        if written.is_err() {
            // Frees the space, if that was the reason; a failure here changes nothing.
            let _ = fs::remove_file(&temporary);
        }
        written.map_err(failed("write"))?;
    }
    Ok(())
}

fn get(path: &Path, digest: Digest, offset: u64, len: u64) -> Result<BlobPart, BlobError> {
    let failed = |source| BlobError::Io { action: "read", digest, source };
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => BlobError::Missing(digest),
        _ => failed(error),
    })?;
    let size = file.metadata().map_err(failed)?.len();
    let wanted = usize::try_from(len.min(size.saturating_sub(offset)))
        .map_err(|_| failed(io::ErrorKind::FileTooLarge.into()))?;
    let mut bytes = vec![0; wanted];
    file.read_exact_at(&mut bytes, offset).map_err(failed)?;
    Ok(BlobPart { bytes, size })
}
