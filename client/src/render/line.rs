//! Lines about sessions: the header of a run, tool calls, what waits, the summary at the end.

use std::collections::BTreeMap;
use std::path::Path;

use agentd_protocol::Timestamp;
use agentd_protocol::approval::WaitingApproval;
use agentd_protocol::session::State;
use agentd_protocol::turn::Usage;

use super::approval::next_command;
use super::style::{Line, Style};

/// `path` with the home folder as `~`.
pub(crate) fn short_path(path: &str, home: Option<&Path>) -> String {
    let rest = home.and_then(|home| Path::new(path).strip_prefix(home).ok());
    match rest {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", rest.display()),
        None => path.to_owned(),
    }
}

/// `text` with the home folder as `~` in every path.
pub(crate) fn short_paths(text: &str, home: Option<&Path>) -> String {
    match home.and_then(Path::to_str).filter(|home| home.len() > 1) {
        Some(home) => text.replace(&format!("{}/", home.trim_end_matches('/')), "~/"),
        None => text.to_owned(),
    }
}

/// The first line of a session on the screen: its name, folder, model and why that one, mode.
pub(crate) fn header(state: &State, home: Option<&Path>) -> Line {
    // Whoever named the model knows why.
    let why = Some(state.model.reason.as_str()).filter(|reason| *reason != "asked for");
    let why = why.map_or(String::new(), |reason| format!(" ({})", short_paths(reason, home)));
    // What is long, and may be broken anywhere, stands last.
    Line::styled(Style::Bold, &state.handle)
        .with(Style::Dim, " · ")
        .plain(&short_path(&state.cwd, home))
        .with(Style::Dim, " · mode ")
        .plain(state.mode.name())
        .with(Style::Dim, " · ")
        .plain(&format!("{}/{}", state.model.provider, state.model.model))
        .with(Style::Dim, &why)
}

/// How long ago `then` was, roughly. A clock that was set back counts as no time.
pub(crate) fn ago(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.unix_ms().saturating_sub(then.unix_ms()).max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86400),
    }
}

/// `12345` as `12.3k`.
fn count(n: u64) -> String {
    match n {
        0..1000 => n.to_string(),
        1000..1_000_000 => format!("{}.{}k", n / 1000, n % 1000 / 100),
        _ => format!("{}.{}M", n / 1_000_000, n % 1_000_000 / 100_000),
    }
}

/// Tokens as the provider counted them.
pub(crate) fn tokens(usage: &Usage) -> String {
    let mut text = format!("{} in, {} out", count(usage.input_tokens), count(usage.output_tokens));
    if usage.cache_read_tokens > 0 {
        text.push_str(&format!(", {} from the cache", count(usage.cache_read_tokens)));
    }
    if usage.cache_write_tokens > 0 {
        text.push_str(&format!(", {} to the cache", count(usage.cache_write_tokens)));
    }
    text
}

/// Lines added and removed in one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) added: u64,
    pub(crate) removed: u64,
    /// Whether the file is gone.
    pub(crate) gone: bool,
    /// What happened to it, where lines are not counted.
    pub(crate) what: Option<&'static str>,
}

/// How the files that a turn changed are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Seen {
    /// All of them.
    #[default]
    Whole,
    /// What tools changed. Commands ran, too, and where there are no snapshots nothing shows what they did.
    ToolsOnly,
    /// What tools changed. Commands ran, too, and what they did was not found out here.
    Unknown,
}

/// So many files are named at the end of a turn.
const FILES_NAMED: usize = 20;

pub(crate) fn changed_file(path: &str, changed: Changed, cwd: &str) -> Line {
    let short = Path::new(path).strip_prefix(cwd).map_or(path.to_owned(), |rest| rest.display().to_string());
    let line = Line::from("  ").plain(&short);
    if changed.gone {
        return line.with(Style::Bad, "  deleted");
    }
    if let Some(what) = changed.what {
        return line.with(Style::Dim, &format!("  {what}"));
    }
    line.with(Style::Good, &format!("  +{}", changed.added))
        .with(Style::Bad, &format!(" -{}", changed.removed))
}

/// What a turn leaves: the files it changed, the tokens it took. `all`: the command that shows every change.
pub(crate) fn summary(
    files: &BTreeMap<String, Changed>,
    seen: Seen,
    all: &str,
    usage: &Usage,
    cwd: &str,
) -> Vec<Line> {
    let mut lines = Vec::new();
    let count = match files.len() {
        0 if seen == Seen::Whole => None,
        0 => Some("No file changed".to_owned()),
        1 => Some("1 file changed".to_owned()),
        n => Some(format!("{n} files changed")),
    };
    let count = count.map(|count| Line::styled(Style::Bold, &count));
    lines.extend(count.map(|line| match seen {
        Seen::Whole => line,
        Seen::ToolsOnly => line.with(Style::Dim, " by its tools; what commands change is not seen here"),
        Seen::Unknown => line.with(Style::Dim, " by its tools; all: ").with(Style::Command, all),
    }));
    lines.extend(files.iter().take(FILES_NAMED).map(|(path, changed)| changed_file(path, *changed, cwd)));
    if files.len() > FILES_NAMED {
        let more = format!("  and {} more: ", files.len() - FILES_NAMED);
        lines.push(Line::styled(Style::Dim, &more).with(Style::Command, all));
    }
    // A server that does not count says nothing, rather than nothing at all.
    if usage.input_tokens + usage.output_tokens > 0 {
        lines.push(Line::styled(Style::Dim, &format!("Tokens: {}", tokens(usage))));
    }
    lines
}

/// One entry of `agentctl waiting`.
pub(crate) fn waiting(
    waiting: &WaitingApproval,
    program: &str,
    home: Option<&Path>,
    now: Timestamp,
) -> Vec<Line> {
    let approval = &waiting.approval;
    vec![
        Line::styled(Style::Bold, approval.subject.kind().name())
            .plain(&format!("  {}", approval.title))
            .with(Style::Dim, &format!("  {}", waiting.handle))
            .with(Style::Dim, &format!("  {}", short_path(&waiting.cwd, home)))
            .with(Style::Dim, &format!("  for {}", ago(approval.requested_at, now))),
        Line::styled(Style::Dim, &format!("  id      {}", approval.approval_id)),
        Line::styled(Style::Dim, "  see it  ")
            .with(Style::Command, &format!("{program} approve {}", super::approval::short_id(approval))),
        Line::styled(Style::Dim, "  answer  ")
            .with(Style::Command, &format!("{program} {}", next_command(approval))),
    ]
}

#[cfg(test)]
pub(crate) mod tests {
    use agentd_protocol::session::{Activity, Health, ModelInfo, Row};
    use agentd_protocol::turn::Outcome;
    use agentd_protocol::{Mode, Seq, SessionId};

    use super::*;

    pub(crate) fn model() -> ModelInfo {
        ModelInfo {
            provider: "anthropic".into(),
            model: "claude-opus-4".into(),
            reason: "the only key found".into(),
        }
    }

    pub(crate) fn row(handle: &str, cwd: &str, activity: Activity, updated_ms: i64) -> Row {
        Row {
            session_id: SessionId::generate(),
            handle: handle.into(),
            title: None,
            parent: None,
            cwd: cwd.into(),
            mode: Some(Mode::Plan),
            model: model(),
            created_at: Timestamp::from_unix_ms(0),
            updated_at: Timestamp::from_unix_ms(updated_ms),
            activity,
            waiting_for: vec![],
            last_outcome: (activity == Activity::Idle).then_some(Outcome::Finished),
            health: Health::Ok,
            archived: false,
            last_prompt: None,
            held_prompts: 0,
        }
    }

    pub(crate) fn state(activity: Activity) -> State {
        State {
            session_id: super::super::approval::tests::session(),
            handle: "api-paging-otter".into(),
            title: None,
            parent: None,
            cwd: "/home/u/api".into(),
            mode: Mode::Plan,
            pre_mode: Some(Mode::Default),
            model: model(),
            created_at: Timestamp::from_unix_ms(0),
            updated_at: Timestamp::from_unix_ms(0),
            activity,
            turn_id: None,
            turns: 0,
            forgotten_turns: 0,
            waiting_for: vec![],
            last_outcome: None,
            health: Health::Ok,
            archived: false,
            forked_from: None,
            handed_over: None,
            seq: Seq(2),
            plan: None,
            approvals: vec![],
            calls: vec![],
            text: vec![],
            inbox: vec![],
            inbox_held: false,
            tasks: vec![],
            todo: vec![],
            usage: Usage::default(),
            breaker: agentd_protocol::permission::Breaker::default(),
        }
    }

    fn text(lines: &[Line]) -> String {
        lines.iter().map(Line::text).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_header_says_which_model_and_why() {
        assert_eq!(
            header(&state(Activity::Idle), Some(Path::new("/home/u"))).text(),
            "api-paging-otter · ~/api · mode plan · anthropic/claude-opus-4 (the only key found)"
        );
    }

    #[test]
    fn the_header_gives_no_reason_that_is_none_and_no_long_home() {
        let mut asked = state(Activity::Idle);
        asked.model.reason = "asked for".into();
        assert!(!header(&asked, None).text().contains('('));
        asked.model.reason = "its key is the only one found, in /home/u/.config/agentd/keys/openai".into();
        let text = header(&asked, Some(Path::new("/home/u"))).text();
        assert!(text.contains("(its key is the only one found, in ~/.config/agentd/keys/openai)"), "{text}");
    }

    #[test]
    fn the_summary_counts_files_and_tokens() {
        let files = BTreeMap::from([
            ("/home/u/api/src/a.rs".to_owned(), Changed { added: 12, removed: 3, ..Changed::default() }),
            ("/home/u/api/old.rs".to_owned(), Changed { gone: true, ..Changed::default() }),
        ]);
        let usage = Usage {
            input_tokens: 12_345,
            output_tokens: 678,
            cache_read_tokens: 9_000,
            cache_write_tokens: 0,
            requests: 3,
        };
        let whole = |files: &BTreeMap<String, Changed>, usage: &Usage| {
            text(&summary(files, Seen::Whole, "agentctl diff otter", usage, "/home/u/api"))
        };
        assert_eq!(
            whole(&files, &usage),
            "2 files changed\n  old.rs  deleted\n  src/a.rs  +12 -3\nTokens: 12.3k in, 678 out, 9.0k from the cache"
        );
        assert_eq!(whole(&BTreeMap::new(), &Usage::default()), "");
        let uncounted = Usage { requests: 1, ..Usage::default() };
        assert_eq!(whole(&BTreeMap::new(), &uncounted), "");
    }

    #[test]
    fn what_is_not_known_of_a_turns_changes_is_said() {
        let said = |files: usize, seen| {
            let files = (0..files).map(|n| (format!("/w/f{n:02}"), Changed::default())).collect();
            text(&summary(&files, seen, "agentctl diff otter", &Usage::default(), "/w"))
        };
        assert_eq!(
            said(1, Seen::Unknown),
            "1 file changed by its tools; all: agentctl diff otter\n  f00  +0 -0"
        );
        assert!(said(0, Seen::Unknown).starts_with("No file changed by its tools; all: agentctl diff otter"));
        assert!(said(2, Seen::ToolsOnly).starts_with("2 files changed by its tools; what commands change"));
        assert!(said(25, Seen::Whole).ends_with("\n  f19  +0 -0\n  and 5 more: agentctl diff otter"));
    }

    #[test]
    fn what_waits_comes_with_the_command_that_answers_it() {
        let approval = super::super::approval::tests::plan("# P");
        let waiting_approval = WaitingApproval {
            session_id: approval.approval_id.session(),
            handle: "api-paging-otter".into(),
            cwd: "/home/u/api".into(),
            mode: Mode::Plan,
            approval,
        };
        insta::assert_snapshot!(text(&waiting(
            &waiting_approval,
            "agentctl",
            None,
            Timestamp::from_unix_ms(120_000)
        )));
    }

    #[test]
    fn clocks_set_back_are_no_time() {
        assert_eq!(ago(Timestamp::from_unix_ms(9000), Timestamp::from_unix_ms(0)), "0 s");
        assert_eq!(ago(Timestamp::from_unix_ms(0), Timestamp::from_unix_ms(7_200_000)), "2 h");
    }
}
