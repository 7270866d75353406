//! What the kernel says about an open or named thing.

use std::os::fd::AsFd;
use std::path::Path;

use agentd_protocol::Timestamp;
use rustix::fs::{FileType, Stat};

use super::error::Kind;

/// The parts of `stat` that matter here, in types of one width on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) kind: Kind,
    pub(super) size: u64,
    /// Permission bits, set-id bits included.
    pub(super) mode: u32,
    pub(super) links: u64,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) modified: Timestamp,
}

impl Facts {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            kind: kind_of(FileType::from_raw_mode(stat.st_mode)),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mode: stat.st_mode & 0o7777,
            links: wide(stat.st_nlink),
            uid: stat.st_uid,
            gid: stat.st_gid,
            modified: modified(stat),
        }
    }
}

fn modified(stat: &Stat) -> Timestamp {
    let nanos = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    Timestamp::from_unix_ms(stat.st_mtime.saturating_mul(1000).saturating_add(nanos / 1_000_000))
}

pub(super) fn kind_of(file_type: FileType) -> Kind {
    match file_type {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Folder,
        FileType::Symlink => Kind::Link,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => Kind::Device,
    }
}

/// The width of these fields differs between machines.
fn wide(number: impl Into<u64>) -> u64 {
    number.into()
}

/// Magic numbers of file systems whose "files" are the kernel's state: proc, sysfs, devpts, debugfs, tracefs,
/// securityfs, cgroup 1 and 2, bpf, configfs, pstore, efivarfs, binfmt_misc, selinuxfs, nsfs, fusectl, mqueue. They
/// may be mounted anywhere, so names alone do not find them.
const KERNEL_FILE_SYSTEMS: [u64; 17] = [
    0x9fa0,
    0x6265_6572,
    0x1cd1,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x0027_e0eb,
    0x6367_7270,
    0xcafe_4a11,
    0x6265_6570,
    0x6165_676c,
    0xde5e_81e4,
    0x4249_4e4d,
    0xf97c_ff8c,
    0x6e73_6673,
    0x6573_5543,
    0x1980_0202,
];

/// Whether `fd` lies on a file system of the kernel's own. A file system that cannot be asked counts as one.
pub(super) fn is_kernel_file_system(fd: impl AsFd) -> bool {
    match rustix::fs::fstatfs(fd) {
        // The type is a signed word on some machines; the magic numbers have 32 bits.
        Ok(stat) => KERNEL_FILE_SYSTEMS.contains(&(stat.f_type as u64 & 0xffff_ffff)),
        Err(_) => true,
    }
}

/// Folders that no path may lead into, whatever is mounted there.
const KERNEL_FOLDERS: [&str; 3] = ["/proc", "/sys", "/dev"];

pub(super) fn is_kernel_folder_name(real: &Path) -> bool {
    KERNEL_FOLDERS.iter().any(|folder| real.starts_with(folder))
}
