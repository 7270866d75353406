//! Files that others made or changed within a span, and the session changed after that. They are told from there: what the
//! others left is what was the session's to destroy, and what goes back. Pure.

use std::collections::{BTreeMap, HashSet};

use crate::workspace::snapshot::{Change, Whose, path_text};

/// For each window between two snapshots the files that others changed in it for the last time, as far as the session may
/// have changed them since. Not those of which some later window does not know whose its changes are, and not those of the
/// last one, after which nothing is seen.
pub(super) fn last_by_others(windows: &[Option<Whose>]) -> BTreeMap<usize, HashSet<String>> {
    let mut last = BTreeMap::<usize, HashSet<String>>::new();
    let mut later: HashSet<&String> = HashSet::new();
    for (index, window) in windows.iter().enumerate().rev() {
        // Before this one nothing is known for sure.
        let Some(whose) = window else { break };
        let known = index + 1 < windows.len() && !whose.unsure;
        for path in &whose.others {
            if later.insert(path) && known {
                last.entry(index).or_default().insert(path.clone());
            }
        }
    }
    last
}

/// `changes` with those of other files than `paths` as they are, names of moved files apart where one of them is told
/// otherwise.
pub(super) fn without(changes: Vec<Change>, paths: &HashSet<String>) -> Vec<Change> {
    let told = |path: &std::path::Path| paths.contains(&path_text(path));
    let mut kept = Vec::new();
    for change in changes {
        if !told(&change.path) && !change.old_path.as_deref().is_some_and(told) {
            kept.push(change);
            continue;
        }
        let (gone, came) = change.apart();
        kept.extend(gone.into_iter().chain([came]).filter(|half| !told(&half.path)));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(others: &[&str], unsure: bool) -> Option<Whose> {
        let others = others.iter().map(|path| (*path).to_owned()).collect();
        Some(Whose { others, unsure, made: Vec::new() })
    }

    fn found(windows: &[Option<Whose>]) -> Vec<(usize, Vec<String>)> {
        let sorted = |paths: HashSet<String>| {
            let mut paths: Vec<_> = paths.into_iter().collect();
            paths.sort();
            paths
        };
        last_by_others(windows).into_iter().map(|(index, paths)| (index, sorted(paths))).collect()
    }

    #[test]
    fn the_last_time_that_others_changed_a_file_is_found_where_it_is_known() {
        let none: Vec<(usize, Vec<String>)> = vec![];
        assert_eq!(found(&[]), none);
        assert_eq!(found(&[window(&["a"], false)]), none, "nothing is seen after it");
        assert_eq!(found(&[window(&["a"], false), window(&[], false)]), [(0, vec!["a".to_owned()])]);
        let twice = [window(&["a", "b"], false), window(&["a"], false), window(&[], false)];
        assert_eq!(found(&twice), [(0, vec!["b".to_owned()]), (1, vec!["a".to_owned()])]);
        let at_the_end = [window(&["a"], false), window(&["a"], false)];
        assert_eq!(found(&at_the_end), none, "others have changed it last");
        assert_eq!(found(&[window(&["a"], false), None, window(&[], false)]), none);
        assert_eq!(found(&[window(&["a"], true), window(&[], false)]), none);
        assert_eq!(found(&[window(&["a"], false), window(&["a"], true), window(&[], false)]), none);
    }
}
