//! The names that rules may use for tools.

/// The tools of this version. The gate knows them by name only.
pub const TOOLS: &[&str] = &[
    "read_file",
    "write_file",
    "edit_file",
    "list_files",
    "grep_search",
    "run_shell",
    "ask_user_question",
    "enter_plan_mode",
    "exit_plan_mode",
];

/// Names that people know from Claude Code's settings, and the tools they cover.
const ALIASES: &[(&str, &[&str])] = &[
    ("Bash", &["run_shell"]),
    ("Read", &["read_file", "list_files", "grep_search"]),
    ("Edit", &["edit_file", "write_file"]),
    ("MultiEdit", &["edit_file"]),
    ("Write", &["write_file"]),
    ("Glob", &["list_files"]),
    ("LS", &["list_files"]),
    ("Grep", &["grep_search"]),
    ("AskUserQuestion", &["ask_user_question"]),
    ("EnterPlanMode", &["enter_plan_mode"]),
    ("ExitPlanMode", &["exit_plan_mode"]),
];

/// What the text in a rule's parentheses says something about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Command,
    Read,
    Write,
    Host,
    Agent,
    Skill,
    /// Nothing: the tool has no specifier.
    None,
}

/// Every name with the kind of its specifier, in the spelling that people are shown. The last four are tools to come:
/// rules about them are kept and hold once the tools are there.
const KINDS: &[(&str, Kind)] = &[
    ("Bash", Kind::Command),
    ("run_shell", Kind::Command),
    ("Read", Kind::Read),
    ("read_file", Kind::Read),
    ("Glob", Kind::Read),
    ("LS", Kind::Read),
    ("list_files", Kind::Read),
    ("Grep", Kind::Read),
    ("grep_search", Kind::Read),
    ("Edit", Kind::Write),
    ("MultiEdit", Kind::Write),
    ("Write", Kind::Write),
    ("edit_file", Kind::Write),
    ("write_file", Kind::Write),
    ("WebFetch", Kind::Host),
    ("Agent", Kind::Agent),
    ("Task", Kind::Agent),
    ("Skill", Kind::Skill),
];

/// The tools that a name covers.
pub(super) fn tools_named(name: &str) -> Option<Vec<&'static str>> {
    let ours = TOOLS.iter().find(|tool| tool.eq_ignore_ascii_case(name)).map(|tool| vec![*tool]);
    ours.or_else(|| {
        ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name)).map(|(_, tools)| tools.to_vec())
    })
}

pub(super) fn kind_of(name: &str) -> Option<Kind> {
    let known = KINDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, kind)| *kind);
    known.or_else(|| tools_named(name).map(|_| Kind::None))
}

pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

/// The known name that is closest to a mistyped one, if one is close.
pub(super) fn nearest(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    TOOLS
        .iter()
        .copied()
        .chain(ALIASES.iter().map(|(alias, _)| *alias))
        .chain(KINDS.iter().map(|(known, _)| *known))
        .map(|known| (distance(&name, &known.to_ascii_lowercase()), known))
        .filter(|(distance, known)| *distance <= 2.max(known.len() / 4))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// Levenshtein's distance in bytes. Names are short; a long "name" of a hostile file is cut.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (&a.as_bytes()[..a.len().min(64)], b.as_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(left != right);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
