//! The user's permission rules: tools that are denied, asked about, or allowed.
//!
//! A rule is a tool's name, ours or the one that Claude Code's settings use. Rules about *what* a tool does (`Bash(git *)`)
//! are not understood yet: such a deny rule denies the whole tool, such an ask or allow rule is ignored, and each is
//! reported. A bad deny rule closes; it never opens.

use std::collections::BTreeMap;

use agentd_protocol::daemon::Notice;

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
    ("Read", &["read_file"]),
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

const NOTICE: &str = "config.rule";

/// The effective rules of all settings layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Known(Box<Lists>),
    Unreadable,
}

/// Tool name to the rule as the user wrote it.
type List = BTreeMap<String, String>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Lists {
    deny: List,
    ask: List,
    allow: List,
}

/// What the rules say about one tool. Deny wins over ask, ask over allow; how exact a rule is never matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Matched<'a> {
    Deny(&'a str),
    Ask(&'a str),
    Allow(&'a str),
    None,
    Unreadable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Deny,
    Ask,
    Allow,
}

impl Effect {
    fn name(self) -> &'static str {
        match self {
            Effect::Deny => "deny",
            Effect::Ask => "ask",
            Effect::Allow => "allow",
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self(Kind::Known(Box::default()))
    }
}

impl Rules {
    /// Reads the three lists of the settings. Never fails: whatever cannot be carried out is reported, and a deny rule
    /// that cannot be understood at all closes everything, as [`Rules::unreadable`].
    #[must_use]
    pub fn parse(deny: &[String], ask: &[String], allow: &[String]) -> (Self, Vec<Notice>) {
        let mut notices = Vec::new();
        let mut lists = Lists::default();
        let mut closed = false;
        for (effect, texts) in [(Effect::Deny, deny), (Effect::Ask, ask), (Effect::Allow, allow)] {
            for text in texts {
                match parse_rule(effect, text) {
                    Parsed::Tools { tools, problem } => {
                        let list = match effect {
                            Effect::Deny => &mut lists.deny,
                            Effect::Ask => &mut lists.ask,
                            Effect::Allow => &mut lists.allow,
                        };
                        for tool in tools {
                            list.entry(tool).or_insert_with(|| text.clone());
                        }
                        notices.extend(problem.map(notice));
                    }
                    Parsed::Ignored(problem) => notices.push(notice(problem)),
                    Parsed::Closed(problem) => {
                        closed = true;
                        notices.push(notice(problem));
                    }
                }
            }
        }
        (if closed { Self::unreadable() } else { Self(Kind::Known(Box::new(lists))) }, notices)
    }

    /// The rules of settings that cannot be read: some deny rule may be in them, so nothing runs but the session's own
    /// plan file and what only asks a person.
    #[must_use]
    pub fn unreadable() -> Self {
        Self(Kind::Unreadable)
    }

    pub(super) fn find(&self, tool: &str) -> Matched<'_> {
        let lists = match &self.0 {
            Kind::Known(lists) => lists,
            Kind::Unreadable => return Matched::Unreadable,
        };
        if let Some(rule) = lists.deny.get(tool) {
            Matched::Deny(rule)
        } else if let Some(rule) = lists.ask.get(tool) {
            Matched::Ask(rule)
        } else if let Some(rule) = lists.allow.get(tool) {
            Matched::Allow(rule)
        } else {
            Matched::None
        }
    }
}

fn notice(text: String) -> Notice {
    Notice { code: NOTICE.to_owned(), text }
}

enum Parsed {
    Tools {
        tools: Vec<String>,
        problem: Option<String>,
    },
    Ignored(String),
    /// A deny rule that may mean anything.
    Closed(String),
}

fn parse_rule(effect: Effect, text: &str) -> Parsed {
    let (name, specifier) = split(text);
    if !is_name(name) {
        return match effect {
            Effect::Deny => Parsed::Closed(format!(
                "permissions.deny: {text:?} is no tool name, and a deny rule that cannot be understood closes everything: \
                 no tool may run. Correct the rule or take it out; the tools are {}.",
                TOOLS.join(", ")
            )),
            Effect::Ask | Effect::Allow => Parsed::Ignored(format!(
                "permissions.{}: {text:?} is no tool name and is ignored; the tools are {}.",
                effect.name(),
                TOOLS.join(", ")
            )),
        };
    }
    let Some(tools) = tools_named(name) else {
        let guess = nearest(name).map(|near| format!(" Did you mean {near}?")).unwrap_or_default();
        let problem = format!(
            "permissions.{}: there is no tool {name:?}, so {text:?} covers nothing.{guess}",
            effect.name()
        );
        return Parsed::Ignored(problem);
    };
    let tools = tools.iter().map(|tool| (*tool).to_owned()).collect();
    match (effect, specifier) {
        (_, Specifier::None) => Parsed::Tools { tools, problem: None },
        (Effect::Deny, Specifier::Some) => Parsed::Tools {
            tools,
            problem: Some(format!(
                "permissions.deny: this version reads tool names only, so {text:?} denies the whole tool {name}."
            )),
        },
        (Effect::Ask | Effect::Allow, Specifier::Some) => Parsed::Ignored(format!(
            "permissions.{}: this version reads tool names only, so {text:?} is ignored.",
            effect.name()
        )),
    }
}

#[derive(Clone, Copy)]
enum Specifier {
    /// A bare name, or `Name()` and `Name(*)`, which mean the same.
    None,
    Some,
}

fn split(text: &str) -> (&str, Specifier) {
    match text.split_once('(') {
        None => (text.trim(), Specifier::None),
        Some((name, rest)) => {
            let whole = matches!(rest.trim_end().strip_suffix(')').map(str::trim), Some("" | "*"));
            (name.trim(), if whole { Specifier::None } else { Specifier::Some })
        }
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

fn tools_named(name: &str) -> Option<&'static [&'static str]> {
    let ours = TOOLS.iter().position(|tool| tool.eq_ignore_ascii_case(name)).map(|at| &TOOLS[at..=at]);
    ours.or_else(|| {
        ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name)).map(|(_, tools)| *tools)
    })
}

/// The known name that is closest to a mistyped one, if one is close.
fn nearest(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    TOOLS
        .iter()
        .copied()
        .chain(ALIASES.iter().map(|(alias, _)| *alias))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(deny: &[&str], ask: &[&str], allow: &[&str]) -> (Rules, Vec<String>) {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let (rules, notices) = Rules::parse(&owned(deny), &owned(ask), &owned(allow));
        assert!(notices.iter().all(|notice| notice.code == "config.rule"));
        (rules, notices.into_iter().map(|notice| notice.text).collect())
    }

    #[test]
    fn bare_names_and_their_aliases_cover_our_tools() {
        for (rule, tools) in [
            ("run_shell", &["run_shell"][..]),
            ("Bash", &["run_shell"]),
            ("bash", &["run_shell"]),
            (" Bash ", &["run_shell"]),
            ("Bash(*)", &["run_shell"]),
            ("Bash()", &["run_shell"]),
            ("Edit", &["edit_file", "write_file"]),
            ("Write", &["write_file"]),
            ("Read", &["read_file"]),
            ("Glob", &["list_files"]),
            ("Grep", &["grep_search"]),
            ("AskUserQuestion", &["ask_user_question"]),
            ("EnterPlanMode", &["enter_plan_mode"]),
            ("ExitPlanMode", &["exit_plan_mode"]),
        ] {
            let (rules, notices) = parse(&[], &[], &[rule]);
            assert_eq!(notices, Vec::<String>::new(), "{rule}");
            for tool in TOOLS {
                let expected = if tools.contains(tool) { Matched::Allow(rule) } else { Matched::None };
                assert_eq!(rules.find(tool), expected, "{rule} about {tool}");
            }
        }
    }

    #[test]
    fn deny_wins_over_ask_and_ask_over_allow() {
        let (rules, _) = parse(&["Bash"], &["Bash", "Read"], &["Bash", "Read", "Grep"]);
        assert_eq!(rules.find("run_shell"), Matched::Deny("Bash"));
        assert_eq!(rules.find("read_file"), Matched::Ask("Read"));
        assert_eq!(rules.find("grep_search"), Matched::Allow("Grep"));
        assert_eq!(rules.find("write_file"), Matched::None);
    }

    #[test]
    fn a_deny_rule_with_a_specifier_denies_the_whole_tool() {
        for rule in ["Bash(rm *)", "Bash(rm", "run_shell(git push:*)", "Bash (rm)"] {
            let (rules, notices) = parse(&[rule], &[], &[]);
            assert_eq!(rules.find("run_shell"), Matched::Deny(rule));
            assert!(notices[0].contains("denies the whole tool"), "{notices:?}");
        }
    }

    #[test]
    fn ask_and_allow_rules_with_a_specifier_are_ignored_and_said() {
        let (rules, notices) = parse(&[], &["Bash(git push *)"], &["Bash(git *)", "Edit(src/**)"]);
        for tool in TOOLS {
            assert_eq!(rules.find(tool), Matched::None);
        }
        assert_eq!(notices.len(), 3);
        assert!(notices.iter().all(|text| text.contains("is ignored")), "{notices:?}");
    }

    #[test]
    fn an_unknown_tool_is_reported_with_the_nearest_name() {
        for (typo, meant) in [
            ("run_shel", "run_shell"),
            ("Bsh", "Bash"),
            ("readfile", "read_file"),
            ("ExitPlan", "ExitPlanMode"),
        ] {
            let (rules, notices) = parse(&[typo], &[], &[]);
            assert_eq!(rules, Rules::default());
            if typo != "ExitPlan" {
                assert!(notices[0].ends_with(&format!("Did you mean {meant}?")), "{notices:?}");
            }
        }
        let (_, notices) = parse(&["mcp__git__push"], &[], &[]);
        assert!(notices[0].ends_with("covers nothing."), "{notices:?}");
    }

    #[test]
    fn a_deny_rule_that_cannot_be_understood_closes_everything() {
        for bad in ["", "  ", "*", "(rm)", "Ba sh", "Bash;rm", "Bäsh", "mcp__*"] {
            let (rules, notices) = parse(&[bad], &[], &["Read"]);
            assert_eq!(rules, Rules::unreadable(), "{bad:?}");
            assert!(notices[0].contains("closes everything"), "{notices:?}");
            let (rules, notices) = parse(&[], &[bad], &[bad]);
            assert_eq!(rules, Rules::default(), "{bad:?}");
            assert_eq!(notices.len(), 2);
        }
    }

    #[test]
    fn a_hostile_name_costs_little() {
        let (_, notices) = parse(&[], &[], &[&"a".repeat(1 << 20)]);
        assert_eq!(notices.len(), 1);
    }
}
