//! The permission rules of all settings layers: what is denied, asked about, or allowed, and by which line of whose file.
//!
//! A rule is `Tool` or `Tool(specifier)`, in the syntax that Claude Code's settings use. Deny wins over ask, ask over
//! allow; how exact a rule is never matters. A bad deny rule closes; it never opens.

mod broad;
mod names;
mod parse;
mod path;
#[cfg(test)]
mod tests;

use std::path::{Component, Path, PathBuf};

use agentd_protocol::mode::Mode;
pub use agentd_protocol::permission::{RuleLayer as Layer, RuleList as List};
use serde::{Deserialize, Serialize};

pub use names::TOOLS;
pub use path::{Anchors, exact as exact_path};

use self::path::PathPattern;
use super::effect::{CommandTarget, Effect, HostTarget, McpLayer, McpTarget, PathTarget, Via};
use super::shell::CommandPattern;
use crate::ids::Digest;

/// A rule as somebody wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleText {
    pub list: List,
    pub text: String,
    pub layer: Layer,
    /// `file:line`, if it stands in one.
    pub place: Option<String>,
}

/// A rule that is understood.
#[derive(Clone, Debug)]
pub struct Rule {
    pub source: RuleText,
    covers: Covers,
    /// A person saw exactly this command, and that it runs with all their rights.
    unconfined: bool,
    /// The MCP server that a person saw. Absent: any of the rule's layer.
    identity: Option<Digest>,
}

/// What a rule is about.
#[derive(Clone, Debug)]
enum Covers {
    /// Every call of these tools.
    Tools(Vec<&'static str>),
    Command(CommandPattern),
    Read(PathPattern),
    Write(PathPattern),
    Host(HostPattern),
    Mcp(McpPattern),
    /// Absent: any.
    Agent(Option<String>),
    Skill(Option<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPattern {
    Any,
    Exactly(String),
    /// A suffix with its dot: `*.example.com` does not cover `example.com`.
    Below(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum McpPattern {
    /// `mcp__*`; only to close.
    All,
    /// The rest of the rule after `mcp__`. Compared from the side of the call, so names are never cut apart.
    Named(String),
}

/// A rule that a person's answer made, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// The rule, in the syntax of settings.
    pub rule: String,
    pub layer: Layer,
    /// The person saw that the command runs with all their rights.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unconfined: bool,
    /// What the MCP server's name stood for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Digest>,
}

/// The effective rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    deny: Vec<Rule>,
    ask: Vec<Rule>,
    allow: Vec<Rule>,
    /// Some deny rule may be missing.
    unreadable: bool,
}

/// By what was written: the same text always means the same.
impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        let written = |rule: &Rule| (rule.source.clone(), rule.unconfined, rule.identity);
        written(self) == written(other)
    }
}

impl Eq for Rule {}

/// What is known of a call when rules are asked about one of its effects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub tool: &'a str,
    pub mode: Mode,
    pub anchors: Anchors<'a>,
    /// Whether rules that a person's answers made count.
    pub persons: bool,
}

/// That rules allow a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed<'a> {
    /// One of them.
    pub rule: &'a Rule,
    /// They allow it without the kernel's confinement too.
    pub unconfined: bool,
}

impl Rules {
    /// The rules of settings that cannot be read: some deny rule may be in them, so nothing runs but the session's own
    /// plan file and what only asks a person.
    #[must_use]
    pub fn unreadable() -> Self {
        Self { unreadable: true, ..Self::default() }
    }

    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        self.unreadable
    }

    /// Every rule: deny, then ask, then allow.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.deny.iter().chain(&self.ask).chain(&self.allow)
    }

    /// These, and what persons' answers have added.
    #[must_use]
    pub fn with_grants<'g>(&self, grants: impl IntoIterator<Item = &'g Grant>) -> Self {
        let mut rules = self.clone();
        rules.allow.extend(grants.into_iter().filter_map(Rule::of_grant));
        rules
    }

    pub(super) fn denied(&self, effect: Option<&Effect>, asked: Asked<'_>) -> Option<&Rule> {
        self.deny.iter().find(|rule| rule.closes(effect, asked))
    }

    pub(super) fn asked(&self, effect: Option<&Effect>, asked: Asked<'_>) -> Option<&Rule> {
        self.ask.iter().find(|rule| rule.closes(effect, asked))
    }

    /// The rule that allows an effect. Of commands see [`Rules::allow_command`].
    pub(super) fn allowed(&self, effect: &Effect, asked: Asked<'_>) -> Option<&Rule> {
        self.open(asked).find(|rule| rule.allows(effect, asked))
    }

    /// Whether every part of a command is allowed by some rule, or `proven` to only read. What is not known for sure to be
    /// all that runs is allowed by no rule with a specifier.
    pub(super) fn allow_command(&self, command: &CommandTarget, asked: Asked<'_>) -> Option<Allowed<'_>> {
        let whole =
            |rule: &&Rule| matches!(&rule.covers, Covers::Tools(tools) if tools.contains(&asked.tool));
        if let Some(rule) = self.open(asked).find(whole) {
            return Some(Allowed { rule, unconfined: false });
        }
        let line = &command.line;
        if line.doubt.is_some() || line.parts.is_empty() || line.opens_unknown() {
            return None;
        }
        let mut found: Option<Allowed<'_>> = None;
        let mut unconfined = true;
        for part in &line.parts {
            let matching = || {
                self.open(asked)
                    .filter(|rule| matches!(&rule.covers, Covers::Command(pattern) if pattern.allows(part)))
            };
            let rule = match (matching().find(|rule| rule.unconfined), matching().next()) {
                (Some(rule), _) => rule,
                (None, Some(rule)) => {
                    unconfined = false;
                    rule
                }
                (None, None) => return None,
            };
            found.get_or_insert(Allowed { rule, unconfined });
        }
        found.map(|allowed| Allowed { unconfined, ..allowed })
    }

    /// The rule that is about one simple command: for people who ask why.
    #[must_use]
    pub fn about_part(&self, part: &super::shell::Part) -> Option<&Rule> {
        let closes = |rule: &&Rule| matches!(&rule.covers, Covers::Command(pattern) if pattern.closes(part));
        let allows = |rule: &&Rule| matches!(&rule.covers, Covers::Command(pattern) if pattern.allows(part));
        let (deny, ask) = (self.deny.iter().find(closes), || self.ask.iter().find(closes));
        deny.or_else(ask).or_else(|| self.allow.iter().find(allows))
    }

    /// Whether a deny rule keeps a tool from reading this path, inside a folder that it may search.
    #[must_use]
    pub fn hides(&self, path: &Path, anchors: Anchors<'_>) -> bool {
        self.deny
            .iter()
            .any(|rule| matches!(&rule.covers, Covers::Read(pattern) if pattern.matches(path, anchors)))
    }

    /// Whether [`Rules::hides`] can be true of anything.
    #[must_use]
    pub fn hides_something(&self) -> bool {
        self.deny.iter().any(|rule| matches!(rule.covers, Covers::Read(_)))
    }

    fn open(&self, asked: Asked<'_>) -> impl Iterator<Item = &Rule> {
        self.allow.iter().filter(move |rule| rule.counts(asked))
    }
}

impl Rule {
    fn of_grant(grant: &Grant) -> Option<Self> {
        let source =
            RuleText { list: List::Allow, text: grant.rule.clone(), layer: grant.layer, place: None };
        let parse::Parsed::Rule { rule, .. } = parse::rule(source) else { return None };
        Some(Rule { unconfined: grant.unconfined, identity: grant.identity, ..*rule })
    }

    /// Whether an allow rule counts at all for this call.
    fn counts(&self, asked: Asked<'_>) -> bool {
        // In `auto` the classifier is to judge what such a rule would wave through.
        if asked.mode == Mode::Auto && self.is_broad() {
            return false;
        }
        match self.source.layer {
            Layer::Session => asked.persons,
            Layer::User | Layer::Project | Layer::Flags | Layer::Saved => true,
        }
    }

    /// Whether a deny or ask rule is about this effect, or, without one, about the call as such.
    fn closes(&self, effect: Option<&Effect>, asked: Asked<'_>) -> bool {
        if let Covers::Tools(tools) = &self.covers {
            return tools.contains(&asked.tool);
        }
        let Some(effect) = effect else { return false };
        match (&self.covers, effect) {
            (Covers::Command(pattern), Effect::RunCommand(command)) => {
                command.line.parts.iter().any(|part| pattern.closes(part))
            }
            // What may not be read may not be changed either.
            (Covers::Read(pattern), Effect::ReadPath(path) | Effect::WritePath(path)) => {
                either_name(path, asked.anchors, pattern)
            }
            (Covers::Write(pattern), Effect::WritePath(path)) => either_name(path, asked.anchors, pattern),
            (Covers::Host(pattern), Effect::FetchHost(target)) => pattern.matches(target),
            (Covers::Mcp(pattern), Effect::CallMcp(target)) => pattern.matches(target),
            (Covers::Agent(name), Effect::SpawnAgent(target)) => {
                name.as_ref().is_none_or(|name| name == target)
            }
            (Covers::Skill(name), Effect::UseSkill(target)) => {
                name.as_ref().is_none_or(|name| name == target)
            }
            _ => false,
        }
    }

    fn allows(&self, effect: &Effect, asked: Asked<'_>) -> bool {
        match (&self.covers, effect) {
            // A tool's name says nothing about the files that a shell opens besides.
            (Covers::Tools(tools), Effect::ReadPath(path) | Effect::WritePath(path)) => {
                path.via == Via::Tool && tools.contains(&asked.tool)
            }
            (Covers::Tools(tools), _) => tools.contains(&asked.tool),
            (Covers::Read(pattern), Effect::ReadPath(path)) => both_names(path, asked.anchors, pattern),
            (Covers::Write(pattern), Effect::WritePath(path)) => both_names(path, asked.anchors, pattern),
            (Covers::Host(pattern), Effect::FetchHost(target)) => pattern.matches(target),
            (Covers::Mcp(pattern), Effect::CallMcp(target)) => {
                let layer = match target.layer {
                    McpLayer::Project => self.source.layer != Layer::User,
                    McpLayer::User => self.source.layer != Layer::Project,
                };
                let answered = matches!(self.source.layer, Layer::Session | Layer::Saved);
                let same = self.identity.map_or(!answered, |identity| identity == target.identity);
                // Such a name could be cut apart in more than one way.
                let plain = !target.server.contains("__");
                layer && same && plain && pattern.matches(target)
            }
            (Covers::Agent(name), Effect::SpawnAgent(target)) => {
                name.as_ref().is_none_or(|name| name == target)
            }
            (Covers::Skill(name), Effect::UseSkill(target)) => {
                name.as_ref().is_none_or(|name| name == target)
            }
            _ => false,
        }
    }

    /// Whether it leaves open what runs. Suspended in mode `auto`.
    #[must_use]
    pub fn is_broad(&self) -> bool {
        match &self.covers {
            Covers::Tools(tools) => tools.contains(&"run_shell"),
            Covers::Command(_) => {
                let specifier = self.source.text.split_once('(').map_or("", |(_, rest)| rest);
                broad::is_broad_command(specifier.trim_end().strip_suffix(')').unwrap_or(specifier))
            }
            Covers::Agent(name) => name.is_none(),
            Covers::Read(_) | Covers::Write(_) | Covers::Host(_) | Covers::Mcp(_) | Covers::Skill(_) => false,
        }
    }

    #[must_use]
    pub fn text(&self) -> &str {
        &self.source.text
    }
}

impl HostPattern {
    fn matches(&self, target: &HostTarget) -> bool {
        match self {
            HostPattern::Any => true,
            HostPattern::Exactly(host) => *host == target.host,
            HostPattern::Below(suffix) => {
                target.host.len() > suffix.len() && target.host.ends_with(suffix.as_str())
            }
        }
    }
}

impl McpPattern {
    fn matches(&self, target: &McpTarget) -> bool {
        match self {
            McpPattern::All => true,
            McpPattern::Named(name) => {
                *name == target.server
                    || *name == format!("{}__*", target.server)
                    || *name == format!("{}__{}", target.server, target.tool)
            }
        }
    }
}

/// To close, one of a path's two names is enough; to open, both must be meant. What a command was given has been resolved
/// already: its typed name is no path of its own.
fn either_name(path: &PathTarget, anchors: Anchors<'_>, pattern: &PathPattern) -> bool {
    pattern.matches(&path.real, anchors) || pattern.matches(&typed(path, anchors.cwd), anchors)
}

fn both_names(path: &PathTarget, anchors: Anchors<'_>, pattern: &PathPattern) -> bool {
    pattern.matches(&path.real, anchors) && pattern.matches(&typed(path, anchors.cwd), anchors)
}

/// The path as it was typed, absolute, `.` and `..` worked out by the letters alone.
fn typed(path: &PathTarget, cwd: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for component in cwd.join(&path.typed).components() {
        match component {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => drop(out.pop()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    out
}
