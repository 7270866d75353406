//! Writing a bundle: whole and on the disk under a temporary name, and only then under its own.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use agentd_protocol::Timestamp;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::super::folder::{self, NO_FOLLOW, new_file, sync_dir};
use super::super::{FILE_NAME, frame};
use super::{About, BLOBS, BundleError, Listed, MANIFEST, Manifest, PLAN, doing};
use crate::ids::{Digest, Seq, SessionId, digest_of};

/// What goes into a bundle.
pub struct Packing {
    /// The session's folder.
    pub source: PathBuf,
    /// Bytes of its journal, from its beginning; the end of a commit.
    pub journal: u64,
    /// A commit that comes right after them, once the bundle is there.
    pub last: Option<(Seq, Timestamp, Vec<Box<RawValue>>)>,
    /// Those that the session does not have are passed over.
    pub blobs: BTreeSet<Digest>,
    /// The plan as it is, or `None` inside for one that is still empty.
    pub plan: Option<Option<Digest>>,
    pub about: About,
}

/// A bundle that is whole, and has no name of its own yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    pub temporary: PathBuf,
    pub bytes: u64,
    /// Of its list.
    pub digest: Digest,
}

/// Where a bundle is written before it gets its name: beside it, one for each session, so that what a crash leaves is found
/// and used or overwritten.
#[must_use]
pub fn temporary(target: &Path, id: SessionId, copy: bool) -> PathBuf {
    let kind = if copy { "copy" } else { "bundle" };
    target.with_file_name(format!(".agentd-{id}.{kind}.tmp"))
}

/// Writes a bundle; when this returns it is on the disk. After an error nothing of it is left.
pub(in super::super) fn pack(packing: &Packing, temporary: &Path) -> Result<Packed, BundleError> {
    match fs::remove_file(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(doing("write", temporary)(error));
        }
        _ => {}
    }
    let file = new_file(temporary).map_err(doing("write", temporary))?;
    let written = write(packing, temporary, file);
    if written.is_err() {
        // A failure here changes nothing: the next attempt overwrites it.
        let _ = fs::remove_file(temporary);
    }
    written
}

fn write(packing: &Packing, temporary: &Path, file: File) -> Result<Packed, BundleError> {
    let line =
        packing.last.as_ref().map_or_else(Vec::new, |(seq, at, records)| frame::encode(*seq, *at, records));
    let journal = packing.source.join(FILE_NAME);
    let plan = packing.plan.map(|revision| plan(&packing.source, revision)).transpose()?;

    let mut files = vec![listed_journal(packing, &journal, &line)?];
    files.extend(plan.as_ref().map(|plan| Listed {
        name: PLAN.to_owned(),
        size: plan.len() as u64,
        sha256: digest_of(plan),
    }));
    for digest in &packing.blobs {
        let found = fs::symlink_metadata(blob(&packing.source, *digest)).ok().filter(fs::Metadata::is_file);
        files.extend(found.map(|found| Listed {
            name: format!("{BLOBS}{}", digest.hex()),
            size: found.len(),
            sha256: *digest,
        }));
    }
    let manifest = Manifest { about: packing.about.clone(), files };
    let mut text = serde_json::to_vec_pretty(&manifest)
        .map_err(|error| doing("write", temporary)(io::Error::other(error)))?;
    text.push(b'\n');

    let mut tar = Tar {
        builder: tar::Builder::new(BufWriter::with_capacity(256 << 10, file)),
        mtime: packing.about.exported_at.unix_ms().div_euclid(1000).max(0).unsigned_abs(),
        path: temporary,
    };
    let list = Listed { name: MANIFEST.to_owned(), size: text.len() as u64, sha256: digest_of(&text) };
    tar.add(&list, &text[..])?;
    for listed in &manifest.files {
        match listed.name.strip_prefix(BLOBS) {
            None if listed.name == PLAN => tar.add(listed, plan.as_deref().unwrap_or_default())?,
            None => {
                let file = open(&journal)?.take(packing.journal);
                tar.add(listed, file.chain(&line[..]))?;
            }
            Some(_) => tar.add(listed, open(&blob(&packing.source, listed.sha256))?)?,
        }
    }
    let file = tar.finish()?;
    file.sync_all().map_err(doing("sync", temporary))?;
    let bytes = file.metadata().map_err(doing("look at", temporary))?.len();
    Ok(Packed { temporary: temporary.to_owned(), bytes, digest: list.sha256 })
}

fn blob(source: &Path, digest: Digest) -> PathBuf {
    source.join(folder::BLOBS).join(digest.hex())
}

fn open(path: &Path) -> Result<File, BundleError> {
    OpenOptions::new().read(true).custom_flags(NO_FOLLOW).open(path).map_err(doing("open", path))
}

fn listed_journal(packing: &Packing, path: &Path, line: &[u8]) -> Result<Listed, BundleError> {
    let mut hashing = Hashing::new(open(path)?.take(packing.journal).chain(line));
    io::copy(&mut hashing, &mut io::sink()).map_err(doing("read", path))?;
    let size = packing.journal + line.len() as u64;
    if hashing.read != size {
        return Err(BundleError::Shrunk);
    }
    Ok(Listed { name: FILE_NAME.to_owned(), size, sha256: hashing.digest() })
}

fn plan(source: &Path, revision: Option<Digest>) -> Result<Vec<u8>, BundleError> {
    let Some(revision) = revision else { return Ok(Vec::new()) };
    let path = blob(source, revision);
    let mut content = Vec::new();
    open(&path)?.take(super::MAX_PLAN).read_to_end(&mut content).map_err(doing("read", &path))?;
    if digest_of(&content) == revision { Ok(content) } else { Err(BundleError::Corrupt(revision)) }
}

struct Tar<'a> {
    builder: tar::Builder<BufWriter<File>>,
    /// Nothing about the moment or the machine of this writing goes in: the same session gives the same bundle.
    mtime: u64,
    path: &'a Path,
}

impl Tar<'_> {
    fn add(&mut self, listed: &Listed, content: impl Read) -> Result<(), BundleError> {
        let failed = || doing("write", self.path);
        let mut header = tar::Header::new_ustar();
        header.set_path(&listed.name).map_err(failed())?;
        header.set_size(listed.size);
        header.set_mode(0o600);
        header.set_mtime(self.mtime);
        header.set_cksum();
        let mut hashing = Hashing::new(content.take(listed.size));
        self.builder.append(&header, &mut hashing).map_err(failed())?;
        let whole = hashing.read == listed.size && hashing.digest() == listed.sha256;
        if whole { Ok(()) } else { Err(BundleError::Corrupt(listed.sha256)) }
    }

    fn finish(self) -> Result<File, BundleError> {
        let buffered = self.builder.into_inner().map_err(doing("write", self.path))?;
        buffered.into_inner().map_err(|error| doing("write", self.path)(error.into_error()))
    }
}

/// Counts and hashes what is read through it.
pub(super) struct Hashing<R> {
    from: R,
    pub(super) read: u64,
    sha256: Sha256,
}

impl<R> Hashing<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, read: 0, sha256: Sha256::new() }
    }

    pub(super) fn digest(self) -> Digest {
        Digest::from_bytes(self.sha256.finalize().into())
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(buffer)?;
        self.read += n as u64;
        self.sha256.update(&buffer[..n]);
        Ok(n)
    }
}

/// Whether a bundle can get this name: nothing has it, or a file that may be replaced.
pub(in super::super) fn is_free(target: &Path, replace: bool) -> Result<(), BundleError> {
    match fs::symlink_metadata(target) {
        Ok(found) if replace && found.is_file() => Ok(()),
        Ok(_) => Err(BundleError::Exists(target.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(doing("look at", target)(error)),
    }
}

/// Gives a bundle its name, durably. With `replace` a file of this name gives way; anything else never does.
pub(in super::super) fn name(temporary: &Path, target: &Path, replace: bool) -> Result<(), BundleError> {
    use rustix::fs::{CWD, RenameFlags};
    let is_file = || fs::symlink_metadata(target).is_ok_and(|found| found.is_file());
    if replace && is_file() {
        fs::rename(temporary, target).map_err(doing("write", target))?;
    } else {
        match rustix::fs::renameat_with(CWD, temporary, CWD, target, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            // A file system that cannot rename so can link so, if it can link.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                fs::hard_link(temporary, target).map_err(|error| exists_or(error, target))?;
                fs::remove_file(temporary).map_err(doing("remove", temporary))?;
            }
            Err(error) => return Err(exists_or(error.into(), target)),
        }
    }
    target.parent().map_or(Ok(()), |folder| sync_dir(folder).map_err(BundleError::from))
}

fn exists_or(error: io::Error, target: &Path) -> BundleError {
    match error.kind() {
        io::ErrorKind::AlreadyExists => BundleError::Exists(target.to_owned()),
        _ => doing("write", target)(error),
    }
}
