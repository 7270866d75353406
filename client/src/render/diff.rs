//! What a session changed, as lines: a table of files, and diffs in colour.

use agentd_protocol::changes::{ChangesResult, DeltaKind, FileDelta, RevertResult, Seen};
use agentd_protocol::show::show_line;

use super::style::{lines_of, text_width};
use super::{Line, Style};

/// Columns of the longest bar of `--stat`.
const BAR: u64 = 40;
/// Behind a file that is not known to be changed by the session alone.
const OTHERS: &str = "  (somebody else's too)";
/// A name takes no more columns of the table.
const NAME: usize = 60;

/// The lines of `--stat`: each file with its counts, then the sum.
pub(crate) fn stat(changes: &ChangesResult) -> Vec<Line> {
    let names: Vec<String> = changes.files.iter().map(name).collect();
    let widest = names.iter().map(|name| text_width(name)).max().unwrap_or(0).min(NAME);
    let most = changes.files.iter().map(|file| file.added + file.removed).max().unwrap_or(0).max(1);
    let digits = most.to_string().len();
    let mut lines = Vec::new();
    for (file, name) in changes.files.iter().zip(names) {
        let mark = if file.others { OTHERS } else { "" };
        let pad = " ".repeat(widest.saturating_sub(text_width(&name)));
        let line = Line::from(format!(" {name}{pad} | "));
        lines.push(match counted(file) {
            None => line.with(Style::Dim, what(file)).with(Style::Warn, mark),
            Some(total) => {
                // Few lines show as they are; many are scaled, and none that changed shows as nothing.
                let bar = |count: u64| match most > BAR {
                    true => (count * BAR / most).max(u64::from(count > 0)),
                    false => count,
                };
                let signs = |sign: &str, count| sign.repeat(usize::try_from(bar(count)).unwrap_or(0));
                line.plain(&format!("{total:>digits$} "))
                    .with(Style::Good, &signs("+", file.added))
                    .with(Style::Bad, &signs("-", file.removed))
                    .with(Style::Warn, mark)
            }
        });
    }
    lines.push(sum(changes));
    lines
}

/// The lines that are counted, where that says something.
fn counted(file: &FileDelta) -> Option<u64> {
    let total = file.added + file.removed;
    (total > 0).then_some(total)
}

/// What happened to a file of which no lines are counted.
pub(crate) fn what(file: &FileDelta) -> &'static str {
    match (file.binary, file.kind) {
        (true, _) => "binary",
        (_, DeltaKind::Added) => "new, empty or not compared",
        (_, DeltaKind::Deleted) => "deleted",
        (_, DeltaKind::Renamed) => "renamed",
        (_, DeltaKind::ModeChanged) => "mode",
        (_, DeltaKind::TypeChanged) => "another kind of file",
        (_, DeltaKind::Modified) => "not compared",
    }
}

fn name(file: &FileDelta) -> String {
    match &file.old_path {
        Some(old) => format!("{} => {}", show_line(old), show_line(&file.path)),
        None => show_line(&file.path),
    }
}

fn sum(changes: &ChangesResult) -> Line {
    let files = changes.files.len();
    let plural = if files == 1 { "" } else { "s" };
    Line::styled(
        Style::Dim,
        &format!(" {files} file{plural} changed, +{} \u{2212}{} lines", changes.added, changes.removed),
    )
}

/// A file's diff. `diff`: the whole text, absent if there is none. Hunks carry the number that takes them back.
pub(crate) fn file(file: &FileDelta, diff: Option<&str>) -> Vec<Line> {
    let Some(diff) = diff else {
        let mark = if file.others { OTHERS } else { "" };
        let line = Line::styled(Style::Bold, &format!("{}: {}", name(file), what(file)));
        return vec![line.with(Style::Warn, mark)];
    };
    let mut hunk = 0;
    let mut in_header = true;
    let mut lines = Vec::new();
    if file.others {
        // Programs that apply a diff skip lines above its header.
        lines.push(Line::styled(Style::Warn, "# changed by somebody else too, or perhaps:"));
    }
    for text in lines_of(diff.trim_end_matches('\n')) {
        let style = match text.as_bytes().first() {
            Some(b'@') => {
                in_header = false;
                hunk += 1;
                let line = Line::styled(Style::Code, &text);
                lines.push(match file.hunks > 1 {
                    true => line.with(Style::Dim, &format!(" :{hunk}")),
                    false => line,
                });
                continue;
            }
            _ if in_header => Style::Bold,
            Some(b'+') => Style::Good,
            Some(b'-') => Style::Bad,
            _ => Style::Plain,
        };
        lines.push(Line::styled(style, &text));
    }
    lines
}

/// What a person should know beside the diffs.
pub(crate) fn remarks(changes: &ChangesResult) -> Vec<Line> {
    let mut lines = Vec::new();
    if changes.seen == Seen::Tools {
        lines.push(Line::styled(
            Style::Warn,
            "Only what the agent's own tools changed: there are no snapshots, so changes by commands are not seen.",
        ));
    }
    lines.extend(changes.notes.iter().map(|note| Line::styled(Style::Warn, note)));
    for left in &changes.left_out {
        lines.push(Line::styled(Style::Dim, &format!("left out: {} ({})", show_line(&left.path), left.why)));
    }
    lines
}

/// What was taken back, and what was not.
pub(crate) fn reverted(result: &RevertResult) -> Vec<Line> {
    let mut lines: Vec<Line> = result
        .reverted
        .iter()
        .map(|path| Line::styled(Style::Good, "taken back  ").plain(&show_line(path)))
        .collect();
    for stays in &result.stays {
        lines.push(
            Line::styled(Style::Warn, "left as is  ")
                .plain(&show_line(&stays.path))
                .with(Style::Dim, &format!(": {}", show_line(&stays.why))),
        );
    }
    lines.extend(result.notes.iter().map(|note| Line::styled(Style::Dim, note)));
    if result.reverted.is_empty() && result.stays.is_empty() {
        lines.push(Line::from("Nothing was taken back."));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::Ink;

    fn delta(path: &str, added: u64, removed: u64) -> FileDelta {
        FileDelta {
            path: path.into(),
            old_path: None,
            kind: DeltaKind::Modified,
            old_mode: None,
            new_mode: None,
            seen: Seen::Git,
            others: false,
            binary: false,
            added,
            removed,
            hunks: 1,
            diff: None,
        }
    }

    fn changes(files: Vec<FileDelta>) -> ChangesResult {
        ChangesResult {
            root: "/w".into(),
            seen: Seen::Git,
            added: files.iter().map(|file| file.added).sum(),
            removed: files.iter().map(|file| file.removed).sum(),
            files,
            left_out: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn texts(lines: &[Line]) -> Vec<String> {
        lines.iter().map(Line::text).collect()
    }

    #[test]
    fn what_others_changed_is_marked() {
        let others = FileDelta { others: true, ..delta("a", 1, 0) };
        assert_eq!(texts(&stat(&changes(vec![others.clone()])))[0], " a | 1 +  (somebody else's too)");
        let lines = texts(&file(&others, Some("diff --git a/a b/a\n@@ -0,0 +1 @@\n+x\n")));
        assert_eq!(lines[..2], ["# changed by somebody else too, or perhaps:", "diff --git a/a b/a"]);
        assert_eq!(texts(&file(&others, None)), ["a: not compared  (somebody else's too)"]);
    }

    #[test]
    fn the_table_has_a_line_for_each_file_and_a_sum() {
        let binary = FileDelta { binary: true, ..delta("logo.png", 0, 0) };
        let renamed = FileDelta { old_path: Some("a".into()), kind: DeltaKind::Renamed, ..delta("b", 0, 0) };
        let lines = stat(&changes(vec![delta("src/a.rs", 2, 1), binary, renamed]));
        assert_eq!(
            texts(&lines),
            [
                " src/a.rs | 3 ++-",
                " logo.png | binary",
                " a => b   | renamed",
                " 3 files changed, +2 \u{2212}1 lines",
            ]
        );
        let lines = texts(&stat(&changes(vec![delta("big", 4000, 0), delta("small", 1, 0)])));
        assert_eq!(lines[0], format!(" big   | 4000 {}", "+".repeat(40)));
        assert_eq!(lines[1], " small |    1 +");
    }

    #[test]
    fn a_diff_is_coloured_and_its_hunks_are_numbered() {
        let diff =
            "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+\u{1b}[2Jy\n@@ -9 +9 @@\n-p\n+q\n";
        let lines = file(&FileDelta { hunks: 2, ..delta("a", 2, 2) }, Some(diff));
        assert_eq!(lines[3].text(), "@@ -1 +1 @@ :1");
        assert_eq!(lines[6].text(), "@@ -9 +9 @@ :2");
        assert_eq!(lines[5].paint(Ink::Colour), "\u{1b}[32m+<U+001B>[2Jy\u{1b}[0m");
        // The names are no added and removed lines.
        assert_eq!(lines[1].paint(Ink::Colour), "\u{1b}[1m--- a/a\u{1b}[0m");
        assert_eq!(texts(&file(&FileDelta { binary: true, ..delta("a", 0, 0) }, None)), ["a: binary"]);
    }

    #[test]
    fn what_is_missing_is_said() {
        let mut all = changes(Vec::new());
        assert!(remarks(&all).is_empty());
        all.seen = Seen::Tools;
        all.left_out.push(agentd_protocol::changes::LeftOut { path: "big".into(), why: "too large".into() });
        let said = texts(&remarks(&all));
        assert!(said[0].contains("not seen") && said[1] == "left out: big (too large)", "{said:?}");
    }
}
