//! On what kind of disk a folder lies.

use std::path::Path;

use rustix::fs::{FsWord, NFS_SUPER_MAGIC};

/// What kind of file system `dir` lies on, if more than one machine may have it: then a lock of another machine may not be
/// seen, and what was synced may not last.
#[must_use]
pub fn shared_disk(dir: &Path) -> Option<&'static str> {
    over_the_network(rustix::fs::statfs(dir).ok()?.f_type)
}

fn over_the_network(magic: FsWord) -> Option<&'static str> {
    match magic {
        NFS_SUPER_MAGIC => Some("NFS"),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => Some("a Windows share (SMB)"),
        0x6573_5546 => Some("FUSE"),
        0x0102_1997 => Some("9p"),
        0x00c3_6400 => Some("Ceph"),
        0x5346_414f | 0x6b41_4653 => Some("AFS"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s6_a_disk_that_another_machine_may_have_is_known() {
        const EXT4: FsWord = 0xef53;
        const TMPFS: FsWord = 0x0102_1994;
        assert_eq!([EXT4, TMPFS].map(over_the_network), [None, None]);
        for magic in [0x6969, 0xff53_4d42, 0x6573_5546, 0x00c3_6400] {
            assert!(over_the_network(magic).is_some(), "{magic:x}");
        }
        assert_eq!(shared_disk(Path::new("/proc")), None);
    }
}
