//! Which session, which approval: from what a person typed to one id, or a clear reason why not.

use std::path::{Path, PathBuf};

use agentd_protocol::SessionId;
use agentd_protocol::approval::WaitingApproval;
use agentd_protocol::session::{Activity, Row};
use agentd_protocol::show::show_line;

use super::exit::{Exit, Failure};
use crate::render::line::short_path;
use crate::render::style::{quoted, text_width};

/// The shortest end of an id that is taken.
const MIN_SUFFIX: usize = 4;

/// Where the command was given.
#[derive(Clone, Debug)]
pub(crate) struct Here {
    /// This folder's real path.
    pub(crate) cwd: PathBuf,
    /// The folder of the repository that it is in, if it is in one.
    pub(crate) repository: Option<PathBuf>,
}

impl Here {
    /// `folder` and the repository around it.
    ///
    /// # Errors
    /// The folder does not exist.
    pub(crate) fn new(folder: &Path) -> Result<Self, Failure> {
        let cwd = std::fs::canonicalize(folder).map_err(|error| {
            Failure::usage(format!("cannot use the folder {}: {error}", folder.display()))
        })?;
        let repository = cwd.ancestors().find(|folder| folder.join(".git").exists()).map(Path::to_path_buf);
        Ok(Self { cwd, repository })
    }

    /// This folder, then its parents up to the repository's.
    fn folders(&self) -> impl Iterator<Item = &Path> {
        let last = self.repository.as_deref().unwrap_or(&self.cwd);
        self.cwd.ancestors().take_while(move |folder| folder.starts_with(last))
    }
}

/// The session that `spec` names: a full id, a handle, the end of an id, `@` for the newest here, or nothing for the
/// session of this folder. `rows` may be in any order. `again` makes the command to type instead, for one session.
pub(crate) fn session(
    rows: &[Row],
    spec: Option<&str>,
    here: &Here,
    home: Option<&Path>,
    again: &dyn Fn(&str) -> String,
) -> Result<SessionId, Failure> {
    let Some(spec) = spec else { return of_folder(rows, here, home, again).map(|row| row.session_id) };
    if spec == "@" {
        return newest_here(rows, here)
            .map(|rows| rows.first().map_or_else(|| Err(none_here(here)), |row| Ok(row.session_id)))?;
    }
    if let Ok(id) = spec.parse() {
        return Ok(id);
    }
    let named: Vec<&Row> = rows.iter().filter(|row| row.handle == spec).collect();
    match named.as_slice() {
        [row] => return Ok(row.session_id),
        [] => {}
        several => {
            return Err(ambiguous(
                &format!("several sessions are named {}", quoted(spec)),
                rows,
                several,
                home,
                again,
            ));
        }
    }
    let found: Vec<&Row> = if is_suffix(spec) {
        rows.iter().filter(|row| row.session_id.to_string().ends_with(spec)).collect()
    } else {
        Vec::new()
    };
    match found.as_slice() {
        [row] => Ok(row.session_id),
        [] => Err(Failure::usage(format!("there is no session {}", quoted(spec))).next("agentctl ls --all")),
        several => {
            Err(ambiguous(&format!("{} is the end of several ids", quoted(spec)), rows, several, home, again))
        }
    }
}

/// The handle of the session that a word is exactly the name of: its handle, its id, or the end of one.
pub(crate) fn named<'a>(rows: &'a [Row], word: &str) -> Option<&'a str> {
    let is_end = |row: &&Row| is_suffix(word) && row.session_id.to_string().ends_with(word);
    let row = rows.iter().find(|row| row.handle == word).or_else(|| rows.iter().find(is_end));
    row.map(|row| row.handle.as_str())
}

fn is_suffix(spec: &str) -> bool {
    spec.len() >= MIN_SUFFIX && spec.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// Whether a session may be meant without being named.
fn belongs(row: &Row) -> bool {
    row.parent.is_none() && !row.archived
}

/// The sessions of the nearest folder that has any, newest first.
fn newest_here<'a>(rows: &'a [Row], here: &Here) -> Result<Vec<&'a Row>, Failure> {
    for folder in here.folders() {
        let mut found: Vec<&Row> =
            rows.iter().filter(|row| belongs(row) && Path::new(&row.cwd) == folder).collect();
        if !found.is_empty() {
            found.sort_by_key(|row| std::cmp::Reverse((row.updated_at, row.session_id)));
            return Ok(found);
        }
    }
    Err(none_here(here))
}

fn of_folder<'a>(
    rows: &'a [Row],
    here: &Here,
    home: Option<&Path>,
    again: &dyn Fn(&str) -> String,
) -> Result<&'a Row, Failure> {
    let found = newest_here(rows, here)?;
    let busy: Vec<&Row> = found.iter().copied().filter(|row| row.activity != Activity::Idle).collect();
    if busy.len() > 1 {
        return Err(ambiguous("several sessions of this folder are not idle", rows, &busy, home, again));
    }
    found.first().copied().ok_or_else(|| none_here(here))
}

fn none_here(here: &Here) -> Failure {
    Failure::usage(format!("no session belongs to {}", here.cwd.display()))
        .then("To start one: ", "agentctl run \"…\"")
        .then("To see the others: ", "agentctl ls")
}

/// Names each of `found` so that it can be told from the others, and by an end of its id that no session of `rows`
/// shares.
fn ambiguous(
    what: &str,
    rows: &[Row],
    found: &[&Row],
    home: Option<&Path>,
    again: &dyn Fn(&str) -> String,
) -> Failure {
    let mut message = format!("{what}:");
    let widest = found.iter().map(|row| text_width(&row.handle)).max().unwrap_or(0);
    for row in found {
        let pad = " ".repeat(widest - text_width(&row.handle));
        let folder = show_line(&short_path(&row.cwd, home));
        let does = match row.activity {
            Activity::Idle => "",
            Activity::Running => "  works",
            Activity::Waiting => "  waits for you",
        };
        let handle = show_line(&row.handle);
        message.push_str(&format!("\n  {handle}{pad}  {}  {folder}{does}", suffix(rows, row)));
    }
    let failure = Failure::usage(message);
    match found.first() {
        Some(first) => failure.then("Name one by the end of its id: ", again(&suffix(rows, first))),
        None => failure,
    }
}

/// The shortest end of the id, of eight characters or more, that is only this session's.
fn suffix(rows: &[Row], row: &Row) -> String {
    let id = row.session_id.to_string();
    let is_own =
        |end: &str| rows.iter().filter(|other| other.session_id.to_string().ends_with(end)).count() <= 1;
    (8..id.len())
        .filter_map(|length| id.get(id.len() - length..))
        .find(|end| is_own(end))
        .unwrap_or(&id)
        .to_owned()
}

/// The approval that a command is about.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    One(&'a WaitingApproval),
    /// Nothing was named, and these of this folder could be meant.
    Several(Vec<&'a WaitingApproval>),
    /// Nothing was named, and nothing of this folder waits. What waits elsewhere is never meant by itself.
    Elsewhere,
}

/// The approval that `spec` names: a full id, the end of one, or nothing for the only one of this folder.
pub(crate) fn approval<'a>(
    waiting: &'a [WaitingApproval],
    spec: Option<&str>,
    here: &Here,
) -> Result<Found<'a>, Failure> {
    let Some(spec) = spec else {
        if waiting.is_empty() {
            return Err(Failure::new(Exit::Failed, "nothing waits for you"));
        }
        let is_here =
            |waiting: &&WaitingApproval| here.folders().any(|folder| Path::new(&waiting.cwd) == folder);
        let of_here: Vec<&WaitingApproval> = waiting.iter().filter(is_here).collect();
        return Ok(match of_here.as_slice() {
            [] => Found::Elsewhere,
            [one] => Found::One(one),
            _ => Found::Several(of_here),
        });
    };
    let found: Vec<&WaitingApproval> = waiting
        .iter()
        .filter(|waiting| {
            let id = &waiting.approval.approval_id;
            id.to_string() == spec || (is_suffix(spec) && id.token().ends_with(spec))
        })
        .collect();
    match found.as_slice() {
        [one] => Ok(Found::One(one)),
        [] => Err(Failure::failed(format!("no approval {} waits; it may have been answered", quoted(spec)))
            .next("agentctl waiting")),
        several => Err(Failure::usage(format!(
            "{} approvals end in {}: type more of the id",
            several.len(),
            quoted(spec)
        ))
        .next("agentctl waiting")),
    }
}

#[cfg(test)]
mod tests {
    use agentd_protocol::Mode;

    use super::*;
    use crate::render::approval::tests as samples;
    use crate::render::line::tests::row;

    fn here(cwd: &str, repository: Option<&str>) -> Here {
        Here { cwd: cwd.into(), repository: repository.map(PathBuf::from) }
    }

    fn stop(id: &str) -> String {
        format!("agentctl stop {id}")
    }

    fn name(rows: &[Row], spec: Option<&str>, here: &Here) -> Result<String, String> {
        let id = session(rows, spec, here, None, &stop).map_err(|failure| {
            assert_eq!(failure.exit, Exit::Usage);
            failure.message
        })?;
        Ok(rows.iter().find(|row| row.session_id == id).map_or("?".into(), |row| row.handle.clone()))
    }

    #[test]
    fn nothing_named_is_the_newest_of_this_folder() {
        let rows = [
            row("old", "/w/api", Activity::Idle, 1),
            row("new", "/w/api", Activity::Idle, 2),
            row("elsewhere", "/w/web", Activity::Idle, 3),
        ];
        assert_eq!(name(&rows, None, &here("/w/api", None)), Ok("new".into()));
        assert_eq!(name(&rows, Some("@"), &here("/w/web", None)), Ok("elsewhere".into()));
    }

    #[test]
    fn parents_count_up_to_the_repository_and_no_further() {
        let rows = [row("root", "/w/api", Activity::Idle, 1), row("top", "/w", Activity::Idle, 2)];
        assert_eq!(name(&rows, None, &here("/w/api/src/deep", Some("/w/api"))), Ok("root".into()));
        assert!(name(&rows, None, &here("/w/api/src", None)).is_err());
        assert!(name(&rows, None, &here("/w/other", Some("/w/other"))).is_err());
    }

    #[test]
    fn two_at_work_are_both_named() {
        let rows = [
            row("one", "/w", Activity::Running, 1),
            row("two", "/w", Activity::Waiting, 2),
            row("idle", "/w", Activity::Idle, 3),
        ];
        let error = name(&rows, None, &here("/w", None)).unwrap_err();
        let said: Vec<&str> = error.lines().map(str::trim).collect();
        assert!(said[1].starts_with("two") && said[1].ends_with("waits for you"), "{error}");
        assert!(said[2].starts_with("one") && said[2].ends_with("works"), "{error}");
        assert_eq!(said.len(), 3, "{error}");
        assert_eq!(name(&rows, Some("@"), &here("/w", None)), Ok("idle".into()));
    }

    #[test]
    fn children_are_never_the_session_of_a_folder() {
        let mut child = row("child", "/w", Activity::Idle, 9);
        child.parent = Some(SessionId::generate());
        let rows = [child, row("main", "/w", Activity::Idle, 1)];
        assert_eq!(name(&rows, None, &here("/w", None)), Ok("main".into()));
        assert_eq!(name(&rows, Some("child"), &here("/w", None)), Ok("child".into()));
    }

    #[test]
    fn names_ids_and_ends_of_ids() {
        let mut rows = [row("api-otter", "/w", Activity::Idle, 1), row("web-fox", "/w", Activity::Idle, 2)];
        rows[0].session_id = "0193aaaa-0000-7000-8000-00000000beef".parse().unwrap();
        rows[1].session_id = "0193aaaa-0000-7000-8000-0000000fbeef".parse().unwrap();
        let here = here("/elsewhere", None);
        assert_eq!(name(&rows, Some("web-fox"), &here), Ok("web-fox".into()));
        assert_eq!(name(&rows, Some("0beef"), &here), Ok("api-otter".into()));
        assert_eq!(name(&rows, Some(&rows[1].session_id.to_string()), &here), Ok("web-fox".into()));
        let error = name(&rows, Some("beef"), &here).unwrap_err();
        assert!(error.contains("api-otter") && error.contains("web-fox"), "{error}");
        assert!(name(&rows, Some("eef"), &here).is_err());
        // The beginning of an id names nothing: sessions of one day share it.
        assert!(name(&rows, Some("0193"), &here).is_err());
    }

    #[test]
    fn a_word_that_names_a_session_is_known() {
        let mut rows = [row("api-otter", "/w", Activity::Idle, 1)];
        rows[0].session_id = "0193aaaa-0000-7000-8000-00000000beef".parse().unwrap();
        for word in ["api-otter", "0000beef", "0193aaaa-0000-7000-8000-00000000beef"] {
            assert_eq!(named(&rows, word), Some("api-otter"), "{word}");
        }
        for word in ["api", "otter", "eef", "hello", ""] {
            assert_eq!(named(&rows, word), None, "{word:?}");
        }
    }

    #[test]
    fn one_handle_of_two_sessions_names_neither() {
        let mut rows =
            [row("otter", "/home/u/api", Activity::Idle, 1), row("otter", "/w", Activity::Idle, 2)];
        rows[0].session_id = "0193aaaa-0000-7000-8000-0000aaaabeef".parse().unwrap();
        rows[1].session_id = "0193aaaa-0000-7000-8000-0000bbbbbeef".parse().unwrap();
        let here = here("/elsewhere", None);
        let failure = session(&rows, Some("otter"), &here, Some(Path::new("/home/u")), &stop).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert_eq!(
            failure.message,
            "several sessions are named \"otter\":\n  otter  aaaabeef  ~/api\n  otter  bbbbbeef  /w"
        );
        assert!(failure.told_next().ends_with("agentctl stop aaaabeef"));
        assert_eq!(session(&rows, Some("aaaabeef"), &here, None, &stop).unwrap(), rows[0].session_id);
        // Ids that share more than eight characters are told apart all the same.
        rows[0].session_id = "0193aaaa-0000-7000-8000-0001bbbbbeef".parse().unwrap();
        assert_eq!(suffix(&rows, &rows[0]), "1bbbbbeef");
    }

    fn waiting(token: &str) -> WaitingApproval {
        let mut approval = samples::plan("# P");
        approval.approval_id = samples::approval_id(token);
        WaitingApproval {
            session_id: samples::session(),
            handle: "h".into(),
            cwd: "/w".into(),
            mode: Mode::Plan,
            approval,
        }
    }

    fn found<'a>(list: &'a [WaitingApproval], spec: Option<&str>, here: &Here) -> &'a WaitingApproval {
        match approval(list, spec, here).unwrap() {
            Found::One(one) => one,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_approval_is_named_by_its_end_or_is_the_only_one() {
        let list = [waiting("aaaa1111"), waiting("bbbb1111")];
        let here = here("/elsewhere", None);
        assert_eq!(found(&list, Some("a1111"), &here), &list[0]);
        assert_eq!(found(&list, Some(&list[1].approval.approval_id.to_string()), &here), &list[1]);
        assert_eq!(approval(&list, Some("1111"), &here).unwrap_err().exit, Exit::Usage);
        assert_eq!(approval(&list, Some("111"), &here).unwrap_err().exit, Exit::Failed);
        // The only one of all is not meant either: it may be another project's.
        for list in [&list[..], &list[..1]] {
            assert!(matches!(approval(list, None, &here), Ok(Found::Elsewhere)));
        }
        assert_eq!(approval(&[], None, &here).unwrap_err().exit, Exit::Failed);
    }

    #[test]
    fn nothing_named_is_what_waits_in_this_folder() {
        let mut list = [waiting("aaaa1111"), waiting("bbbb1111"), waiting("cccc1111")];
        list[1].cwd = "/w/api".into();
        assert_eq!(found(&list, None, &here("/w/api/src", Some("/w/api"))), &list[1]);
        list[2].cwd = "/w/api".into();
        let here = here("/w/api", None);
        assert!(matches!(approval(&list, None, &here), Ok(Found::Several(of_here)) if of_here.len() == 2));
    }
}
