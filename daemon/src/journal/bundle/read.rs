//! Reading a bundle that may come from anywhere. Its list is checked first; then everything has to be as the list says, in
//! that order, with those digests, and there is nothing else. So a name that the format does not know, a link, a device, or
//! a second file of one name cannot even be listed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::super::FILE_NAME;
use super::super::folder::{self, must_be_file, new_file, sync_dir};
use super::write::Hashing;
use super::{BLOBS, BundleError, FORMAT, Listed, MANIFEST, MAX_MANIFEST, MAX_PLAN, Manifest, PLAN, doing};
use crate::ids::{Digest, digest_of};

/// A file of a tar.
type Entry<'a> = tar::Entry<'a, &'a File>;

/// An open bundle whose list holds together.
#[derive(Debug)]
pub struct Bundle {
    source: Source,
    manifest: Manifest,
    digest: Digest,
}

/// The file, and what it is called in errors.
#[derive(Debug)]
struct Source {
    file: File,
    path: PathBuf,
}

impl Bundle {
    /// Opens a bundle and reads its list.
    pub(in super::super) fn open(path: &Path) -> Result<Self, BundleError> {
        // A pipe in its place is not waited for.
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(nonblocking)
            .open(path)
            .and_then(|file| must_be_file(&file).map(|()| file))
            .map_err(doing("open", path))?;
        let size = file.metadata().map_err(doing("look at", path))?.len();
        let source = Source { file, path: path.to_owned() };
        let mut text = Vec::new();
        source.each(|index, entry| {
            if index == 0 {
                text = source.list(entry)?;
            }
            // The rest is read when it is unpacked.
            Ok(false)
        })?;
        let manifest = source.parse(&text)?;
        source.check(&manifest, size)?;
        Ok(Self { source, manifest, digest: digest_of(&text) })
    }

    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Of its list, and so of all that is in it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.source.path
    }

    /// Writes journal and blobs into `dir`, which is empty, and gives the plan. Everything is on the disk then, and as the
    /// list says.
    pub(in super::super) fn unpack(&self, dir: &Path) -> Result<Option<Vec<u8>>, BundleError> {
        let blobs = dir.join(folder::BLOBS);
        folder::make_dir(&blobs)?;
        let files = &self.manifest.files;
        let (mut plan, mut seen) = (None, 0);
        self.source.each(|index, mut entry| {
            seen = index;
            let Some(listed) = index.checked_sub(1).map(|at| files.get(at)) else {
                let changed = digest_of(&self.source.list(entry)?) != self.digest;
                return if changed {
                    Err(self.source.not_one("it changes while it is read"))
                } else {
                    Ok(true)
                };
            };
            let listed = listed.ok_or_else(|| self.source.not_one("it holds more than it lists"))?;
            self.source.expect(&entry, &listed.name, listed.size)?;
            let mut content = Hashing::new(&mut entry);
            let mut keep = Vec::new();
            let target = match listed.name.strip_prefix(BLOBS) {
                Some(hex) => Some(blobs.join(hex)),
                None if listed.name == FILE_NAME => Some(dir.join(FILE_NAME)),
                None => None,
            };
            match &target {
                None => self.source.read(io::copy(&mut content, &mut keep))?,
                Some(target) => {
                    let mut file = new_file(target).map_err(doing("write", target))?;
                    // What fails here is the disk that is written to as often as the one that is read.
                    io::copy(&mut content, &mut file).map_err(doing("unpack into", target))?;
                    file.sync_all().map_err(doing("sync", target))?;
                }
            }
            if content.read != listed.size || content.digest() != listed.sha256 {
                return Err(self.source.not_one(&format!("{} is not what it lists", listed.name)));
            }
            if target.is_none() {
                plan = Some(keep);
            }
            Ok(true)
        })?;
        if seen != files.len() {
            return Err(self.source.not_one("it ends before all that it lists has come"));
        }
        sync_dir(&blobs)?;
        sync_dir(dir)?;
        Ok(plan)
    }
}

impl Source {
    fn not_one(&self, why: &str) -> BundleError {
        BundleError::NotOne { path: self.path.clone(), why: why.to_owned() }
    }

    fn read<T>(&self, result: io::Result<T>) -> Result<(), BundleError> {
        // The tar's own words: what is wrong with a header, or that it ends too soon.
        result.map(|_| ()).map_err(|error| self.not_one(&error.to_string()))
    }

    /// Goes through the files from the first one on, as long as `visit` wants more.
    fn each(
        &self,
        mut visit: impl FnMut(usize, Entry<'_>) -> Result<bool, BundleError>,
    ) -> Result<(), BundleError> {
        let mut from = &self.file;
        from.seek(SeekFrom::Start(0)).map_err(doing("read", &self.path))?;
        let mut archive = tar::Archive::new(&self.file);
        let entries = archive.entries().map_err(|error| self.not_one(&error.to_string()))?;
        // Raw: nothing that stands for another file's long name or size is followed, or held in memory.
        for (index, entry) in entries.raw(true).enumerate() {
            let entry = entry.map_err(|error| self.not_one(&error.to_string()))?;
            if !visit(index, entry)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether a file is the one that has to come here.
    fn expect(&self, entry: &Entry<'_>, name: &str, size: u64) -> Result<(), BundleError> {
        let header = entry.header();
        if header.entry_type() != tar::EntryType::Regular || *entry.path_bytes() != *name.as_bytes() {
            let found = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let found: String =
                found.chars().take(100).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
            return Err(self.not_one(&format!("where {name} belongs it has {found}")));
        }
        if entry.size() != size {
            return Err(self.not_one(&format!("{name} has another size than it lists")));
        }
        Ok(())
    }

    /// The text of the list.
    fn list(&self, mut entry: Entry<'_>) -> Result<Vec<u8>, BundleError> {
        self.expect(&entry, MANIFEST, entry.size())?;
        if entry.size() > MAX_MANIFEST {
            return Err(self.not_one("its list is too long"));
        }
        let mut text = Vec::new();
        self.read((&mut entry).take(MAX_MANIFEST).read_to_end(&mut text))?;
        Ok(text)
    }

    fn parse(&self, text: &[u8]) -> Result<Manifest, BundleError> {
        /// A later format may have other fields, so only its number is read.
        #[derive(Deserialize)]
        struct FormatOnly {
            format: u64,
        }
        let only: FormatOnly = serde_json::from_slice(text)
            .map_err(|_| self.not_one("it begins with no list that could be read"))?;
        if only.format > u64::from(FORMAT) {
            return Err(BundleError::Newer { path: self.path.clone(), format: only.format });
        }
        serde_json::from_slice(text)
            .map_err(|error| self.not_one(&format!("its list cannot be read: {error}")))
    }

    /// Whether the list is one that the format allows: the journal, then the plan if there is one, then the blobs by their
    /// names, each once.
    fn check(&self, manifest: &Manifest, size: u64) -> Result<(), BundleError> {
        let wrong =
            |listed: &Listed| self.not_one(&format!("it must not list {:?}", shortened(&listed.name)));
        let mut files = manifest.files.iter().peekable();
        match files.next() {
            Some(first) if first.name == FILE_NAME => {}
            _ => return Err(self.not_one("it lists no journal first")),
        }
        if let Some(plan) = files.next_if(|listed| listed.name == PLAN)
            && plan.size > MAX_PLAN
        {
            return Err(wrong(plan));
        }
        let mut last: Option<&str> = None;
        for listed in files {
            let hex = listed.name.strip_prefix(BLOBS).ok_or_else(|| wrong(listed))?;
            if hex != listed.sha256.hex() || last.is_some_and(|last| hex <= last) {
                return Err(wrong(listed));
            }
            last = Some(hex);
        }
        let all = manifest.files.iter().try_fold(0_u64, |sum, listed| sum.checked_add(listed.size));
        if all.is_none_or(|all| all > size) {
            return Err(self.not_one("it lists more than it can hold"));
        }
        Ok(())
    }
}

fn shortened(name: &str) -> String {
    name.chars().take(100).collect()
}
