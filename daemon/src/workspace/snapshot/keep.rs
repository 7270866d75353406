//! Keeping what is needed to go back, whatever the repository throws away: the old contents of files that changed. New
//! contents and all trees are written into the store anyway.

use super::SnapshotError;
use super::read::{Change, Mode};
use super::store::Store;

/// Bytes that are copied at one snapshot.
const MAX_COPIED: u64 = 64 << 20;

/// Copies the old contents of `changes` that only the repository has. What cannot be copied can be read as long as the
/// repository keeps it.
pub(super) async fn keep(store: &Store, changes: &[Change]) {
    let mut old: Vec<&str> = changes
        .iter()
        .filter(|change| change.old_mode != Mode::Absent)
        .map(|change| change.old.as_str())
        .collect();
    old.sort_unstable();
    old.dedup();
    if let Err(error) = copy(store, &old).await {
        tracing::debug!(%error, "old contents were not copied");
    }
}

async fn copy(store: &Store, objects: &[&str]) -> Result<(), SnapshotError> {
    if objects.is_empty() {
        return Ok(());
    }
    let index = store.index();
    let lines = |objects: &[&str]| format!("{}\n", objects.join("\n")).into_bytes();
    let check = ["cat-file", "--buffer", "--batch-check=%(objecttype)"];
    let found = store.git_alone(&check, &index, lines(objects)).await?;
    let found = String::from_utf8_lossy(&found).into_owned();
    let missing = objects.iter().zip(found.lines()).filter(|(_, kind)| *kind != "blob");
    let missing: Vec<&str> = missing.map(|(object, _)| *object).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let check = ["cat-file", "--buffer", "--batch-check=%(objectsize)"];
    let sizes = store.git_reading(&check, &index, lines(&missing)).await?;
    let sizes = String::from_utf8_lossy(&sizes).into_owned();
    let mut room = MAX_COPIED;
    let fitting = missing.iter().zip(sizes.lines()).filter(|(_, size)| match size.parse::<u64>() {
        Ok(size) if size <= room => {
            room -= size;
            true
        }
        _ => false,
    });
    let fitting: Vec<&str> = fitting.map(|(object, _)| *object).collect();
    if fitting.is_empty() {
        return Ok(());
    }
    let pack = store.git_reading(&["pack-objects", "-q", "--stdout"], &index, lines(&fitting)).await?;
    store.git_alone(&["unpack-objects", "-q"], &index, pack).await?;
    Ok(())
}
