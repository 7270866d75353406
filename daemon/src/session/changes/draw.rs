//! From two contents to a file's entry in `session/changes`. Pure.

use agentd_protocol::changes::{DeltaKind, FileDelta, Seen};
use agentd_protocol::show::show_line;

use crate::workspace::hunks::{compare, is_binary};

/// What is known of a changed file before its contents are compared.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) path: String,
    pub(super) old_path: Option<String>,
    pub(super) kind: DeltaKind,
    pub(super) old_mode: Option<&'static str>,
    pub(super) new_mode: Option<&'static str>,
    pub(super) seen: Seen,
    /// It is not known to be the session's alone.
    pub(super) others: bool,
    /// What others counted, where the contents are not there to be compared.
    pub(super) counted: (u64, u64),
}

/// The entry, and the unified diff if there is one.
pub(super) fn draw(head: Head, contents: Option<(Vec<u8>, Vec<u8>)>) -> (FileDelta, Option<String>) {
    let mut diff = header(&head);
    let mut delta = FileDelta {
        path: head.path,
        old_path: head.old_path,
        kind: head.kind,
        old_mode: head.old_mode.map(str::to_owned),
        new_mode: head.new_mode.map(str::to_owned),
        seen: head.seen,
        others: head.others,
        binary: false,
        added: head.counted.0,
        removed: head.counted.1,
        hunks: 0,
        diff: None,
    };
    let Some((old, new)) = contents else { return (delta, None) };
    if old == new {
        (delta.added, delta.removed) = (0, 0);
        return (delta, Some(diff));
    }
    if is_binary(&old) || is_binary(&new) {
        delta.binary = true;
        (delta.added, delta.removed) = (0, 0);
        return (delta, None);
    }
    let compared = compare(&old, &new);
    (delta.added, delta.removed) = (compared.added, compared.removed);
    let Some(hunks) = compared.hunks else { return (delta, None) };
    delta.hunks = u32::try_from(hunks.len()).unwrap_or(u32::MAX);
    let (old_name, new_name) = names(&delta.path, delta.old_path.as_deref(), delta.kind);
    diff.push_str(&format!("--- {old_name}\n+++ {new_name}\n"));
    hunks.iter().for_each(|hunk| diff.push_str(&hunk.text));
    (delta, Some(diff))
}

/// A line break in a name would begin a line of its own.
fn names(path: &str, old_path: Option<&str>, kind: DeltaKind) -> (String, String) {
    let old = match kind {
        DeltaKind::Added => "/dev/null".to_owned(),
        _ => format!("a/{}", show_line(old_path.unwrap_or(path))),
    };
    let new = match kind {
        DeltaKind::Deleted => "/dev/null".to_owned(),
        _ => format!("b/{}", show_line(path)),
    };
    (old, new)
}

/// The lines before the first hunk, as git writes them.
fn header(head: &Head) -> String {
    let new = show_line(&head.path);
    let old = show_line(head.old_path.as_deref().unwrap_or(&head.path));
    let mut text = format!("diff --git a/{old} b/{new}\n");
    match (head.kind, head.old_mode, head.new_mode) {
        (DeltaKind::Added, _, Some(mode)) => text.push_str(&format!("new file mode {mode}\n")),
        (DeltaKind::Deleted, Some(mode), _) => text.push_str(&format!("deleted file mode {mode}\n")),
        (_, Some(before), Some(now)) if before != now => {
            text.push_str(&format!("old mode {before}\nnew mode {now}\n"));
        }
        _ => {}
    }
    if head.old_path.is_some() {
        text.push_str(&format!("rename from {old}\nrename to {new}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(kind: DeltaKind) -> Head {
        Head {
            path: "a.txt".into(),
            old_path: None,
            kind,
            old_mode: Some("100644"),
            new_mode: Some("100644"),
            seen: Seen::Git,
            others: false,
            counted: (0, 0),
        }
    }

    #[test]
    fn a_change_is_drawn_as_git_draws_it() {
        let (delta, diff) = draw(head(DeltaKind::Modified), Some((b"a\n".to_vec(), b"b\n".to_vec())));
        assert_eq!((delta.added, delta.removed, delta.hunks), (1, 1, 1));
        assert_eq!(
            diff.unwrap(),
            "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a\n+b\n"
        );
        let renamed = Head { old_path: Some("old\nname".into()), ..head(DeltaKind::Renamed) };
        let (_, diff) = draw(renamed, Some((b"a\n".to_vec(), b"a\n".to_vec())));
        assert_eq!(
            diff.unwrap(),
            "diff --git a/old<U+000A>name b/a.txt\nrename from old<U+000A>name\nrename to a.txt\n"
        );
        let mode = Head { new_mode: Some("100755"), ..head(DeltaKind::ModeChanged) };
        let (_, diff) = draw(mode, Some((b"a\n".to_vec(), b"a\n".to_vec())));
        assert_eq!(diff.unwrap(), "diff --git a/a.txt b/a.txt\nold mode 100644\nnew mode 100755\n");
    }

    #[test]
    fn binary_files_and_unknown_contents_have_no_diff() {
        let (delta, diff) = draw(head(DeltaKind::Modified), Some((b"a\0".to_vec(), b"b".to_vec())));
        assert!(delta.binary && diff.is_none());
        let (delta, diff) = draw(Head { counted: (3, 2), ..head(DeltaKind::Modified) }, None);
        assert_eq!((delta.added, delta.removed, diff), (3, 2, None));
    }
}
