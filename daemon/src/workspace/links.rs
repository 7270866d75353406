//! Links that a pattern's names may be.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Every link that lies in `folder`, or up to `levels` folders down, 1 being the folder itself. Absent where not all can be
/// looked at: more than `names` of them, of which each takes one off; a folder that cannot be read; a link to a folder that
/// the pattern goes on into. A file in the place of the folder holds none.
#[must_use]
pub fn links_among(folder: &Path, levels: usize, names: &mut usize) -> Option<Vec<PathBuf>> {
    let mut links = Vec::new();
    let mut folders = vec![(folder.to_owned(), levels)];
    while let Some((folder, levels)) = folders.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
            Err(_) => return None,
        };
        for entry in entries {
            *names = names.checked_sub(1)?;
            let entry = entry.ok()?;
            let (kind, path) = (entry.file_type().ok()?, entry.path());
            if kind.is_symlink() {
                if levels > 1 && path.is_dir() {
                    return None;
                }
                links.push(path);
            } else if kind.is_dir() && levels > 1 {
                folders.push((path, levels - 1));
            }
        }
    }
    links.sort_unstable();
    Some(links)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_found_as_deep_as_a_pattern_looks() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        std::fs::create_dir_all(at("a/b/c")).unwrap();
        std::fs::write(at("a/file"), "").unwrap();
        symlink("/etc/passwd", at("a/one")).unwrap();
        symlink("nowhere", at("a/b/two")).unwrap();
        symlink("/etc", at("a/b/c/three")).unwrap();
        let found = |name: &str, levels| links_among(&at(name), levels, &mut 100);
        assert_eq!(found("a", 1), Some(vec![at("a/one")]));
        assert_eq!(found("a", 2), Some(vec![at("a/b/two"), at("a/one")]));
        assert_eq!(found("a", 3), Some(vec![at("a/b/c/three"), at("a/b/two"), at("a/one")]));
        // Beyond the third level the last one leads somewhere else.
        assert_eq!(found("a", 4), None);
        assert_eq!(found("a/file", 1), Some(Vec::new()));
        assert_eq!(found("missing", 1), Some(Vec::new()));
        let mut few = 4;
        assert_eq!(links_among(&at("a"), 2, &mut few), None, "5 names");
    }
}
