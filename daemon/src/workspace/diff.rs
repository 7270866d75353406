//! What changed between two texts, for people and models. Pure and bounded.

use similar::{Algorithm, ChangeTag, TextDiff};

/// Beyond this many lines on a side, once equal beginnings and ends are left out, finding the shortest difference costs
/// more than it tells.
pub(super) const MAX_DIFF_LINES: usize = 5_000;
pub(super) const CONTEXT_LINES: usize = 3;

/// How long a diff may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffLimit {
    /// For an approval: large enough that nobody is asked about something cut, small enough to travel.
    Person,
    /// For a model's context.
    Model,
}

impl DiffLimit {
    fn bytes(self) -> usize {
        match self {
            DiffLimit::Person => 256 << 10,
            DiffLimit::Model => 20 << 10,
        }
    }
}

/// A unified diff and its size in lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    text: String,
    pub added: u32,
    pub removed: u32,
}

impl Diff {
    /// The diff, cut at a line with a note if it is longer than `limit`.
    #[must_use]
    pub fn text(&self, limit: DiffLimit) -> String {
        let limit = limit.bytes();
        if self.text.len() <= limit {
            return self.text.clone();
        }
        let mut end = limit;
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let end = self.text[..end].rfind('\n').map_or(end, |newline| newline + 1);
        format!("{}… diff cut: {} more bytes\n", &self.text[..end], self.text.len() - end)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added == 0 && self.removed == 0
    }
}

/// Compares line by line, with three lines of context. `name` stands in the header, on one line whatever is in it; a side that is absent is
/// `/dev/null` there.
#[must_use]
pub fn unified(name: &str, old: Option<&str>, new: Option<&str>) -> Diff {
    let (old_text, new_text) = (old.unwrap_or_default(), new.unwrap_or_default());
    // A line break in a name would begin a line of its own.
    let name = agentd_protocol::show::show_line(name);
    // As git writes it: `b/etc/x`, also for a whole path.
    let name = name.trim_start_matches('/');
    let old_name = old.map_or_else(|| "/dev/null".to_owned(), |_| format!("a/{name}"));
    let new_name = new.map_or_else(|| "/dev/null".to_owned(), |_| format!("b/{name}"));
    if let Some((removed, added)) = too_large(old_text, new_text) {
        let text = format!(
            "--- {old_name}\n+++ {new_name}\n… diff not shown: {removed} lines replaced by {added} lines\n"
        );
        return Diff { text, added, removed };
    }
    let diff = TextDiff::configure().algorithm(Algorithm::Myers).diff_lines(old_text, new_text);
    let (mut added, mut removed) = (0, 0);
    for change in diff.iter_all_changes() {
        match change.tag() {
            ChangeTag::Insert => added += 1,
            ChangeTag::Delete => removed += 1,
            ChangeTag::Equal => {}
        }
    }
    let text = diff.unified_diff().context_radius(CONTEXT_LINES).header(&old_name, &new_name).to_string();
    Diff { text, added, removed }
}

/// The sizes of the differing middle, if it is too large to compare.
fn too_large(old: &str, new: &str) -> Option<(u32, u32)> {
    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let new: Vec<&str> = new.split_inclusive('\n').collect();
    let start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[start..], &new[start..]);
    let end = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let (n_old, n_new) = (old.len() - end, new.len() - end);
    // Only removing or only adding needs no search, however much it is.
    if n_old.min(n_new) == 0 || n_old.max(n_new) <= MAX_DIFF_LINES {
        return None;
    }
    let count = |n| u32::try_from(n).unwrap_or(u32::MAX);
    Some((count(n_old), count(n_new)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_path_has_one_slash_behind_its_side() {
        let text = unified("/etc/x", Some("a\n"), Some("b\n")).text;
        assert!(text.starts_with("--- a/etc/x\n+++ b/etc/x\n"), "{text}");
    }

    #[test]
    fn a_small_change_shows_three_lines_around_it() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let new = old.replace("5\n", "five\n");
        let diff = unified("n.txt", Some(old), Some(&new));
        assert_eq!(
            diff.text(DiffLimit::Person),
            "--- a/n.txt\n+++ b/n.txt\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
        );
        assert_eq!((diff.added, diff.removed), (1, 1));
    }

    #[test]
    fn a_new_file_comes_from_nowhere_and_a_missing_newline_is_said() {
        let text = unified("a", None, Some("x")).text(DiffLimit::Person);
        assert!(text.starts_with("--- /dev/null\n+++ b/a\n"), "{text}");
        assert!(text.contains("No newline at end of file"), "{text}");
        assert!(unified("a", Some("x\n"), Some("x\n")).is_empty());
    }

    #[test]
    fn a_long_diff_is_cut_at_a_line_for_a_model_and_whole_for_a_person() {
        let new: String = (0..3_000).map(|n| format!("línea número {n}\n")).collect();
        let diff = unified("a", None, Some(&new));
        assert_eq!(diff.added, 3_000);
        assert!(diff.text(DiffLimit::Person).ends_with("+línea número 2999\n"));
        let cut = diff.text(DiffLimit::Model);
        assert!(cut.len() < (20 << 10) + 100, "{}", cut.len());
        assert!(cut.lines().last().unwrap().starts_with("… diff cut: "), "{cut}");
    }

    #[test]
    fn a_line_break_in_a_name_begins_no_line() {
        let text = unified("a\n+++ b/other", None, Some("x\n")).text;
        assert!(text.starts_with("--- /dev/null\n+++ b/a<U+000A>+++ b/other\n@@"), "{text}");
    }

    #[test]
    fn two_huge_different_texts_are_counted_and_not_compared() {
        let old: String = (0..20_000).map(|n| format!("a{n}\n")).collect();
        let new: String = (0..20_000).map(|n| format!("b{n}\n")).collect();
        let diff = unified("a", Some(&format!("same\n{old}end\n")), Some(&format!("same\n{new}end\n")));
        assert_eq!((diff.added, diff.removed), (20_000, 20_000));
        assert!(diff.text(DiffLimit::Model).contains("20000 lines replaced by 20000 lines"));
    }
}
