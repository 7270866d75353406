//! The gate's decisions as pages of text, one a topic, in `rows/`.
//!
//! A page has scenes. A scene begins with `== title`; then come the settings that it has besides the usual ones, a line
//! each, and its rows:
//!
//! ```text
//! sandbox full               what the kernel holds; usually none
//! plan-shell confined        commands in plan mode; usually deny
//! origin schedule            who started the turn; usually client
//! stated plan                the mode that they named
//! deny Bash(rm *)            a rule of the user; `project deny …`, `session allow …`, `saved allow …` for others
//! unreadable                 no rule can be read
//!
//! MODES: CALL => RULING REASON [by RULE]
//! ```
//!
//! MODES is `all`, some modes, or `rest`: those that the rows before it did not name for the same call. A path is relative to
//! the session's folder; `box/f -> /outside/f` is one that a link leads elsewhere. `\n` in a command is the end of a line.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use agentd_protocol::mode::Mode;
use agentd_protocol::session::Origin;

use super::{CWD, PLAN, places};
use crate::ids::digest_of;
use crate::permission::effect::{
    Automation, CommandTarget, Effect, HostTarget, McpLayer, McpTarget, PathTarget, Via,
};
use crate::permission::rules::{Grant, Layer, List, RuleText, Rules};
use crate::permission::shell::{Direction, Word, analyse};
use crate::permission::{PlanShell, Query, Ruling, Sandbox, judge};

const PAGES: &[(&str, &str)] = &[
    ("modes", include_str!("rows/modes.txt")),
    ("own folders", include_str!("rows/own.txt")),
    ("protected paths", include_str!("rows/protected.txt")),
    ("rules about tools", include_str!("rows/tools.txt")),
    ("rules about paths", include_str!("rows/paths.txt")),
    ("hosts, servers, agents", include_str!("rows/beyond.txt")),
    ("origins", include_str!("rows/origins.txt")),
    ("commands", include_str!("rows/commands.txt")),
];

#[derive(Clone)]
struct Scene {
    title: String,
    sandbox: Sandbox,
    plan_shell: PlanShell,
    origin: Origin,
    stated: Option<Mode>,
    rules: Vec<RuleText>,
    grants: Vec<Grant>,
    unreadable: bool,
}

impl Scene {
    fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            sandbox: Sandbox::None,
            plan_shell: PlanShell::Deny,
            origin: Origin::Client,
            stated: None,
            rules: Vec::new(),
            grants: Vec::new(),
            unreadable: false,
        }
    }

    /// Whether the line was a setting.
    fn set(&mut self, line: &str) -> bool {
        let Some((word, rest)) = line.split_once(' ') else {
            self.unreadable |= line == "unreadable";
            return line == "unreadable";
        };
        match (word, rest) {
            ("sandbox", "full") => self.sandbox = Sandbox::Full,
            ("plan-shell", "confined") => self.plan_shell = PlanShell::Confined,
            ("origin", name) => self.origin = origin(name),
            ("stated", name) => self.stated = Some(mode(name)),
            ("project", rule) => return self.rule(Layer::Project, rule),
            ("session" | "saved", rule) => {
                let layer = if word == "session" { Layer::Session } else { Layer::Saved };
                let (rule, unconfined) = match rule.strip_prefix("allow ").expect("answers only allow") {
                    rule if rule.ends_with(" (unconfined)") => (rule.trim_end_matches(" (unconfined)"), true),
                    rule => (rule, false),
                };
                let identity = rule.starts_with("mcp__").then(|| digest_of(b"git-server"));
                self.grants.push(Grant { rule: rule.to_owned(), layer, unconfined, identity });
            }
            _ => return self.rule(Layer::User, line),
        }
        true
    }

    fn rule(&mut self, layer: Layer, text: &str) -> bool {
        let Some((word, rule)) = text.split_once(' ') else { return false };
        let list = match word {
            "deny" => List::Deny,
            "ask" => List::Ask,
            "allow" => List::Allow,
            _ => return false,
        };
        self.rules.push(RuleText { list, text: rule.to_owned(), layer, place: None });
        true
    }

    fn rules(&self) -> Rules {
        if self.unreadable {
            return Rules::unreadable();
        }
        let (rules, notices) = Rules::parse(self.rules.clone());
        assert!(notices.is_empty(), "{}: {notices:?}", self.title);
        rules.with_grants(&self.grants)
    }
}

fn mode(name: &str) -> Mode {
    *Mode::ALL.iter().find(|mode| mode.name() == name).unwrap_or_else(|| panic!("no mode {name}"))
}

fn origin(name: &str) -> Origin {
    match name {
        "program" => Origin::Program,
        "schedule" => Origin::Schedule,
        "trigger" => Origin::Trigger,
        "agent" => Origin::Agent,
        "hook" => Origin::Hook,
        _ => panic!("no origin {name}"),
    }
}

/// The path that the letters alone mean.
pub(super) fn lexical(typed: &str) -> PathBuf {
    let typed = typed.strip_prefix('~').map_or_else(|| typed.to_owned(), |rest| format!("/home/u{rest}"));
    let mut out = PathBuf::from("/");
    for component in Path::new(CWD).join(typed).components() {
        match component {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => drop(out.pop()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    out
}

fn path(text: &str) -> PathTarget {
    if text == "PLAN" {
        return PathTarget { via: Via::Tool, typed: PLAN.into(), real: PLAN.into() };
    }
    let (typed, real) =
        text.split_once(" -> ").map_or((text, lexical(text)), |(typed, real)| (typed, real.into()));
    let typed = if typed.starts_with('~') { lexical(typed).display().to_string() } else { typed.to_owned() };
    PathTarget { via: Via::Tool, typed, real }
}

fn call(text: &str) -> (&'static str, Vec<Effect>) {
    let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
    let (tool, effect) = match verb {
        "read" => ("read_file", Effect::ReadPath(path(rest))),
        "list" => ("list_files", Effect::ReadPath(path(rest))),
        "grep" => ("grep_search", Effect::ReadPath(path(rest))),
        "write" => ("write_file", Effect::WritePath(path(rest))),
        "edit" => ("edit_file", Effect::WritePath(path(rest))),
        "run" => return ("run_shell", command(&rest.replace("\\n", "\n"))),
        "fetch" => {
            let host = rest.trim_start_matches("https://").split('/').next().unwrap_or_default().to_owned();
            ("web_fetch", Effect::FetchHost(HostTarget { host, url: rest.to_owned() }))
        }
        "mcp" => {
            // `user git push`, `project git push`, `reader git log`, `swapped git push`
            let mut words = rest.split(' ');
            let (whose, server, tool) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            let identity = digest_of(if whose == "swapped" { b"another-server" } else { b"git-server" });
            let layer = if whose == "project" { McpLayer::Project } else { McpLayer::User };
            let target = McpTarget {
                server: server.into(),
                tool: tool.into(),
                layer,
                identity,
                reads_only: whose == "reader",
            };
            ("mcp", Effect::CallMcp(target))
        }
        "agent" => ("agent", Effect::SpawnAgent(rest.into())),
        "skill" => ("skill", Effect::UseSkill(rest.into())),
        "schedule" => ("schedule", Effect::Automate(Automation::Schedule)),
        "trigger" => ("trigger", Effect::Automate(Automation::Trigger)),
        "remember" => ("remember", Effect::Automate(Automation::Memory)),
        "message" => ("message", Effect::Automate(Automation::Message)),
        "worktree" => ("worktree", Effect::Automate(Automation::Worktree)),
        "sleep" => ("sleep", Effect::Sleep),
        "ask-person" => ("ask_user_question", Effect::AskPerson),
        "enter-plan" => ("enter_plan_mode", Effect::EnterPlan),
        "leave-plan" => ("exit_plan_mode", Effect::LeavePlan),
        "todo" => return ("todo", Vec::new()),
        _ => panic!("no call {text:?}"),
    };
    (tool, vec![effect])
}

/// As `run_shell` declares it, where every program lies in `/usr/bin` and no link is on the way.
fn command(text: &str) -> Vec<Effect> {
    let line = analyse(text);
    let proven = line.only_reads();
    let at = |word: &Word, via| {
        let typed = match word {
            Word::Known(path) => path.display().to_string(),
            Word::Home(path) => format!("/home/u/{}", path.display()),
            Word::Unknown => return None,
        };
        let real = lexical(&typed);
        Some(PathTarget { via, typed: real.display().to_string(), real })
    };
    let redirects = line.redirects.iter().filter_map(|redirect| {
        let path = at(&redirect.target, Via::Redirect)?;
        Some(match redirect.direction {
            Direction::Read => Effect::ReadPath(path),
            Direction::Write => Effect::WritePath(path),
        })
    });
    let via = if proven { Via::Operand } else { Via::Mention };
    let operands = line.parts.iter().flat_map(|part| &part.operands);
    let operands = operands.filter_map(|word| at(word, via)).map(Effect::ReadPath);
    let paths: Vec<_> = redirects.chain(operands).collect();
    let command = CommandTarget { command: text.into(), cwd: CWD.into(), line: Arc::new(line), proven };
    std::iter::once(Effect::RunCommand(command)).chain(paths).collect()
}

fn ruling(name: &str) -> Ruling {
    match name {
        "allow" => Ruling::Allow,
        "classify" => Ruling::Classify,
        "ask" => Ruling::Ask,
        "deny" => Ruling::Deny,
        _ => panic!("no ruling {name}"),
    }
}

/// A row, and what is wrong with it.
fn check(scene: &Scene, rules: &Rules, mode: Mode, text: &str, expected: &str) -> Option<String> {
    let (tool, effects) = call(text);
    let verdict = judge(&Query {
        tool,
        effects: &effects,
        mode,
        rules,
        places: &places(),
        origin: scene.origin,
        stated: scene.stated,
        sandbox: scene.sandbox,
        plan_shell: scene.plan_shell,
    });
    let (expected, rule) = expected.split_once(" by ").map_or((expected, None), |(e, rule)| (e, Some(rule)));
    let (word, reason) = expected.split_once(' ').expect("a ruling and a reason");
    let wrong = verdict.ruling != ruling(word)
        || verdict.reason.code() != reason
        || rule.is_some_and(|rule| verdict.rule.as_deref() != Some(rule));
    wrong.then(|| {
        format!(
            "{} / {mode}: {text}\n    expected {expected}, found {:?} {} by {:?}",
            scene.title, verdict.ruling, verdict.reason, verdict.rule
        )
    })
}

#[test]
fn every_row_of_every_page_holds() {
    let mut rows = 0;
    let mut wrong = Vec::new();
    for (name, page) in PAGES {
        let mut scene = Scene::new(name);
        let mut named: Vec<Mode> = Vec::new();
        let mut last = String::new();
        let mut rules = scene.rules();
        for line in page.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(title) = line.strip_prefix("== ") {
                scene = Scene::new(&format!("{name}, {title}"));
                (rules, last) = (scene.rules(), String::new());
                continue;
            }
            let Some((row, expected)) = line.split_once(" => ") else {
                assert!(scene.set(line), "{name}: {line:?} is no row and no setting");
                rules = scene.rules();
                continue;
            };
            let (modes, text) = row.split_once(": ").expect("modes, and a call");
            if text != last {
                named.clear();
                text.clone_into(&mut last);
            }
            let modes: Vec<Mode> = match modes {
                "all" => Mode::ALL.to_vec(),
                "rest" => Mode::ALL.into_iter().filter(|mode| !named.contains(mode)).collect(),
                names => names.split(' ').map(mode).collect(),
            };
            assert!(!modes.is_empty(), "{name}: {line:?} is about no mode");
            for mode in modes {
                assert!(!named.contains(&mode), "{name}: {line:?} says a mode twice");
                named.push(mode);
                rows += 1;
                wrong.extend(check(&scene, &rules, mode, text, expected));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {rows} rows:\n{}", wrong.len(), wrong.join("\n"));
    assert!(rows >= 400, "{rows} rows");
}
