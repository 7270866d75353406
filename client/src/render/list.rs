//! `agentctl ls`: sessions as a list, by what they need, in whatever room there is.

use std::path::Path;

use agentd_protocol::session::{Activity, Health, Row};
use agentd_protocol::show::show_line;
use agentd_protocol::{Mode, Timestamp};

use super::line::{ago, short_path};
use super::style::{Line, Style, char_width, text_width};

/// `agentctl ls`, by what they need. `all` also shows sessions that have nothing to do.
pub(crate) fn list(
    rows: &[Row],
    all: bool,
    here: &str,
    home: Option<&Path>,
    now: Timestamp,
    width: usize,
    program: &str,
) -> Vec<Line> {
    let mut lines = Vec::new();
    let widest = |column: fn(&Row) -> usize| rows.iter().map(column).max().unwrap_or(0);
    let columns = Columns {
        handle: widest(|row| text_width(&row.handle)),
        mode: widest(|row| mode_name(row).len()),
        width,
    };
    let mut hidden = 0;
    for (activity, title) in
        [(Activity::Waiting, "needs you"), (Activity::Running, "working"), (Activity::Idle, "idle")]
    {
        let group: Vec<&Row> = rows.iter().filter(|row| row.activity == activity).collect();
        if group.is_empty() {
            continue;
        }
        let shown = if all || activity != Activity::Idle { group.len() } else { group.len().min(IDLE_SHOWN) };
        hidden += group.len() - shown;
        lines.push(Line::styled(Style::Bold, title));
        lines.extend(group.into_iter().take(shown).flat_map(|row| list_row(row, here, home, now, columns)));
    }
    if rows.iter().any(|row| row.cwd == here) {
        lines.push(Line::styled(Style::Good, "● ").with(Style::Dim, "= in this folder"));
    }
    if hidden > 0 {
        lines.push(
            Line::styled(Style::Dim, &format!("and {hidden} more idle: "))
                .with(Style::Command, &format!("{program} ls --all")),
        );
    }
    lines
}

/// Idle sessions that a plain `agentctl ls` shows.
const IDLE_SHOWN: usize = 10;

/// What a list measures before it draws.
#[derive(Clone, Copy)]
struct Columns {
    handle: usize,
    mode: usize,
    /// Of the terminal.
    width: usize,
}

fn mode_name(row: &Row) -> &'static str {
    row.mode.map_or("-", Mode::name)
}

/// A folder is never shortened below this.
const MIN_FOLDER: usize = 12;

/// In less room than this, with the gap before it, a longer title says nothing.
const MIN_TITLE: usize = 14;

/// Behind name and age a line has room for this, or becomes two.
const NARROW: usize = 30;

/// One session on one line; on two, where one has no room for more than its name.
fn list_row(row: &Row, here: &str, home: Option<&Path>, now: Timestamp, columns: Columns) -> Vec<Line> {
    let mark = if row.cwd == here { "● " } else { "  " };
    let age = format!("{:>7}  ", ago(row.updated_at, now));
    let mut state = Line::new();
    match row.health {
        Health::Ok => {}
        Health::Degraded => state.push(Style::Warn, "  degraded"),
        Health::ReadOnly => state.push(Style::Bad, "  read-only"),
    }
    if !row.waiting_for.is_empty() {
        state.push(Style::Warn, &format!("  {} to approve", row.waiting_for.len()));
    }
    if row.held_prompts > 0 {
        state.push(Style::Warn, &format!("  {} held", row.held_prompts));
    }
    if let Some(outcome) = row.last_outcome.filter(|_| row.activity == Activity::Idle) {
        state.push(Style::Dim, &format!("  {}", outcome.name()));
    }
    if row.archived {
        state.push(Style::Dim, "  archived");
    }
    let folder = short_path(&row.cwd, home);
    let name = Line::styled(Style::Good, mark).plain(&row.handle);
    if 2 + columns.handle + age.len() + NARROW > columns.width {
        let line = Line::styled(Style::Dim, &age).plain(mode_name(row));
        let line = state.behind(&line);
        let room = columns.width.saturating_sub(line.width() + 2);
        // The mark says already that it is this one.
        let line = match room >= MIN_FOLDER && row.cwd != here {
            true => line.with(Style::Code, &format!("  {}", end_of_path(&folder, room))),
            false => line,
        };
        return vec![name.cut(columns.width), line.cut(columns.width)];
    }
    let pad = " ".repeat(columns.handle.saturating_sub(text_width(&row.handle)));
    let line = name.plain(&pad).with(Style::Dim, &format!(" {age}")).plain(&format!(
        "{:<1$}  ",
        mode_name(row),
        columns.mode
    ));
    // What it is about: its title, else what it was last asked.
    let title = row.title.as_deref().filter(|title| !title.is_empty());
    let about = title.or(row.last_prompt.as_deref()).map(show_line);
    let wanted = about.as_deref().map_or(0, |about| (text_width(about) + 2).min(MIN_TITLE));
    // The folder gives way before what it is about does.
    let room = columns.width.saturating_sub(line.width() + state.width());
    let room = room.saturating_sub(wanted).max(room.min(MIN_FOLDER));
    let line = state.behind(&line.with(Style::Code, &end_of_path(&folder, room)));
    let left = columns.width.saturating_sub(line.width());
    let line = match about.filter(|about| left >= (text_width(about) + 2).min(MIN_TITLE)) {
        Some(about) => line.with(Style::Dim, &format!("  {about}")),
        None => line,
    };
    vec![line.cut(columns.width)]
}

/// The end of `path` in at most `room` columns: what tells folders apart is at their end.
fn end_of_path(path: &str, room: usize) -> String {
    let path = show_line(path);
    if text_width(&path) <= room {
        return path;
    }
    let mut width = 1;
    let fits = |c: &char| {
        width += char_width(*c);
        width <= room
    };
    let kept = path.chars().rev().take_while(fits).count();
    let end: String = path.chars().skip(path.chars().count() - kept).collect();
    format!("…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::approval::tests as samples;
    use crate::render::line::tests::row;

    fn text(lines: &[Line]) -> String {
        lines.iter().map(Line::text).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn lists_put_what_needs_a_person_first() {
        let mut rows = vec![
            row("done-fox", "/w", Activity::Idle, 5000),
            row("busy-owl", "/home/u/api", Activity::Running, 4000),
            row("asks-otter", "/home/u/api", Activity::Waiting, 3000),
        ];
        rows[2].waiting_for.push(samples::approval_id("aa"));
        let lines = list(
            &rows,
            false,
            "/home/u/api",
            Some(Path::new("/home/u")),
            Timestamp::from_unix_ms(65_000),
            80,
            "agentctl",
        );
        insta::assert_snapshot!(text(&lines));
    }

    #[test]
    fn a_row_says_what_it_is_about_and_what_is_held() {
        let mut rows = vec![row("otter", "/w", Activity::Idle, 0)];
        rows[0].last_prompt = Some("Add paging\u{1b} to the API".into());
        rows[0].held_prompts = 2;
        let line = |rows: &[Row]| {
            list(rows, false, "/", None, Timestamp::from_unix_ms(0), 160, "agentctl")[1].text()
        };
        assert!(
            line(&rows).ends_with("/w  2 held  finished  Add paging<U+001B> to the API"),
            "{}",
            line(&rows)
        );
        rows[0].title = Some("Paging".into());
        assert!(line(&rows).ends_with("finished  Paging"), "{}", line(&rows));
    }

    #[test]
    fn a_row_stays_one_line_and_keeps_the_end_of_its_folder() {
        let folder = "/home/u/work/customers/somebody/services/billing/api-gateway";
        let mut rows = vec![row("api-gateway-careful-otter", folder, Activity::Idle, 0)];
        rows[0].title = Some("a title that is far too long for what is left of the line here".into());
        let now = Timestamp::from_unix_ms(0);
        for width in [80, 100, 160] {
            for line in list(&rows, true, "/", Some(Path::new("/home/u")), now, width, "agentctl") {
                assert!(line.width() <= width, "{}", line.text());
            }
        }
        let line = list(&rows, true, "/", Some(Path::new("/home/u")), now, 80, "agentctl")[1].text();
        assert!(line.contains("…") && line.contains("api-gateway  finished"), "{line}");
    }

    #[test]
    fn what_needs_a_person_and_what_it_is_about_is_seen_at_every_width() {
        let mut rows =
            vec![row("agentd-demo-mwu5gk-bobcat", "/tmp/agentd-demo-mwU5gk", Activity::Waiting, 0)];
        rows[0].waiting_for.push(samples::approval_id("aa"));
        rows[0].last_prompt = Some("SAY x".into());
        for width in [40, 60, 80, 100, 160] {
            let lines = list(&rows, true, "/", None, Timestamp::from_unix_ms(0), width, "agentctl");
            assert!(lines.iter().all(|line| line.width() <= width), "{}", text(&lines));
            assert!(text(&lines).contains("agentd-demo-mwu5gk-bobcat"), "{}", text(&lines));
            assert!(text(&lines).contains("1 to approve"), "{}", text(&lines));
            assert_eq!(text(&lines).contains("SAY x"), width >= 80, "{}", text(&lines));
        }
        rows[0].archived = true;
        let lines = list(&rows, true, "/", None, Timestamp::from_unix_ms(0), 80, "agentctl");
        assert!(text(&lines).contains("  archived"), "{}", text(&lines));
    }

    #[test]
    fn a_long_tail_of_idle_sessions_is_folded() {
        let rows: Vec<Row> = (0..15).map(|n| row(&format!("s{n}"), "/w", Activity::Idle, n)).collect();
        let now = Timestamp::from_unix_ms(0);
        assert!(
            text(&list(&rows, false, "/", None, now, 80, "agentctl"))
                .ends_with("and 5 more idle: agentctl ls --all")
        );
        assert_eq!(list(&rows, true, "/", None, now, 80, "agentctl").len(), 16);
    }
}
