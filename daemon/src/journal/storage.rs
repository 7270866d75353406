//! The few operations by which a journal changes its file, behind a trait so that tests can make each of them fail.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;

/// Makes the storage of a file. One for the whole service.
pub(crate) trait Layer: Send + Sync {
    fn wrap(&self, file: Arc<File>, path: &Path) -> Box<dyn Storage>;

    /// A session that moves has come so far. For tests that end the daemon there.
    fn reached(&self, _: Reached) {}
}

/// How far a session that moves has come: what is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// A bundle is whole and has no name yet.
    Packed,
    /// It has.
    Named,
    /// A bundle is unpacked, and nobody sees it yet.
    Staged,
    /// It has become a session.
    InPlace,
}

pub(crate) trait Storage: Send + Sync {
    fn facts(&self) -> io::Result<Facts>;
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Data, and what is needed to find it.
    fn sync_data(&self) -> io::Result<()>;
    fn sync_all(&self) -> io::Result<()>;
    fn set_len(&self, len: u64) -> io::Result<()>;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) len: u64,
    /// Names that the file has; none after `rm`.
    pub(crate) links: u64,
}

pub(crate) struct Disk;

impl Layer for Disk {
    fn wrap(&self, file: Arc<File>, _: &Path) -> Box<dyn Storage> {
        Box::new(DiskFile(file))
    }
}

pub(crate) struct DiskFile(pub(crate) Arc<File>);

impl Storage for DiskFile {
    fn facts(&self) -> io::Result<Facts> {
        let meta = self.0.metadata()?;
        Ok(Facts { len: meta.len(), links: meta.nlink() })
    }
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
}
