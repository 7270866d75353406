//! From the text of a rule to what it covers, or to what is wrong with it.

use agentd_protocol::daemon::Notice;

use super::names::{Kind, is_name, kind_of, nearest, tools_named};
use super::path::{PathPattern, Use};
use super::{Covers, HostPattern, List, McpPattern, Rule, RuleText, Rules, TOOLS};
use crate::permission::shell::CommandPattern;

const NOTICE: &str = "config.rule";

pub(super) enum Parsed {
    Rule {
        rule: Box<Rule>,
        problem: Option<String>,
    },
    Ignored(String),
    /// A deny rule that may mean anything.
    Closed(String),
}

impl Rules {
    /// Reads the rules of all layers. Never fails: whatever cannot be carried out is reported, and a deny rule that cannot
    /// be understood at all closes everything, as [`Rules::unreadable`].
    #[must_use]
    pub fn parse(texts: Vec<RuleText>) -> (Self, Vec<Notice>) {
        let mut rules = Self::default();
        let mut notices = Vec::new();
        for text in texts {
            let place = text.place.clone();
            let mut tell = |problem: String| {
                let text = place.as_ref().map_or(problem.clone(), |place| format!("{place}: {problem}"));
                notices.push(Notice { code: NOTICE.to_owned(), text });
            };
            match rule(text) {
                Parsed::Rule { rule, problem } => {
                    if let Some(problem) = problem {
                        tell(problem);
                    }
                    match rule.source.list {
                        List::Deny => rules.deny.push(*rule),
                        List::Ask => rules.ask.push(*rule),
                        List::Allow => rules.allow.push(*rule),
                    }
                }
                Parsed::Ignored(problem) => tell(problem),
                Parsed::Closed(problem) => {
                    rules.unreadable = true;
                    tell(problem);
                }
            }
        }
        (rules, notices)
    }
}

/// `Tool`, `Tool(specifier)`, or a name and what cannot be read of it.
enum Shape<'a> {
    Whole(&'a str),
    With(&'a str, &'a str),
    Torn(&'a str),
}

fn shape(text: &str) -> Shape<'_> {
    let text = text.trim();
    let Some((name, rest)) = text.split_once('(') else { return Shape::Whole(text) };
    let name = name.trim();
    let Some(specifier) = rest.strip_suffix(')') else { return Shape::Torn(name) };
    match specifier.trim() {
        "" | "*" => Shape::Whole(name),
        _ => Shape::With(name, specifier),
    }
}

pub(super) fn rule(source: RuleText) -> Parsed {
    let list = source.list;
    let text = source.text.clone();
    let made = |covers: Covers, problem: Option<String>| Parsed::Rule {
        rule: Box::new(Rule { source: source.clone(), covers, unconfined: false, identity: None }),
        problem,
    };
    let of = format!("permissions.{}", list.name());
    let shape = shape(&text);
    let (Shape::Whole(name) | Shape::With(name, _) | Shape::Torn(name)) = shape;
    if let Some(rest) = name.strip_prefix("mcp__") {
        return match (mcp(rest, list), shape) {
            (Ok(pattern), Shape::Whole(_)) => made(Covers::Mcp(pattern), None),
            (Err(problem), _) => Parsed::Ignored(format!("{of}: {text:?} is ignored: {problem}.")),
            (Ok(pattern), _) if list != List::Allow => {
                let problem = format!(
                    "{of}: rules about MCP tools have no specifier, so {text:?} covers all of {name}."
                );
                made(Covers::Mcp(pattern), Some(problem))
            }
            (Ok(_), _) => Parsed::Ignored(format!(
                "{of}: rules about MCP tools have no specifier, so {text:?} is ignored."
            )),
        };
    }
    if !is_name(name) {
        let tools = TOOLS.join(", ");
        return match list {
            List::Deny => Parsed::Closed(format!(
                "{of}: {text:?} is no tool name, and a deny rule that cannot be understood closes everything: no tool may \
                 run. Correct the rule or take it out; the tools are {tools}."
            )),
            List::Ask | List::Allow => Parsed::Ignored(format!(
                "{of}: {text:?} is no tool name and is ignored; the tools are {tools}."
            )),
        };
    }
    let Some(kind) = kind_of(name) else {
        let guess = nearest(name).map(|near| format!(" Did you mean {near}?")).unwrap_or_default();
        return Parsed::Ignored(format!(
            "{of}: there is no tool {name:?}, so {text:?} covers nothing.{guess}"
        ));
    };
    let whole = || match kind {
        Kind::Host => Covers::Host(HostPattern::Any),
        Kind::Agent => Covers::Agent(None),
        Kind::Skill => Covers::Skill(None),
        Kind::Command | Kind::Read | Kind::Write | Kind::None => {
            Covers::Tools(tools_named(name).unwrap_or_default())
        }
    };
    let found = match shape {
        Shape::Whole(_) => return made(whole(), None),
        Shape::With(_, specifier) => covers(kind, specifier, list),
        Shape::Torn(_) => Err("its parenthesis is not closed".to_owned()),
    };
    match (found, list) {
        (Ok(covers), _) => made(covers, None),
        (Err(problem), List::Deny | List::Ask) => {
            let does = if list == List::Deny { "denies" } else { "asks about" };
            let problem = format!(
                "{of}: of {text:?} only the name is understood, since {problem}; it {does} all of {name}."
            );
            made(whole(), Some(problem))
        }
        (Err(problem), List::Allow) => Parsed::Ignored(format!("{of}: {text:?} is ignored: {problem}.")),
    }
}

fn covers(kind: Kind, specifier: &str, list: List) -> Result<Covers, String> {
    let used = if list == List::Allow { Use::Allow } else { Use::Close };
    match kind {
        Kind::Command => CommandPattern::parse(specifier).map(Covers::Command),
        Kind::Read => PathPattern::parse(specifier.trim(), used).map(Covers::Read),
        Kind::Write => PathPattern::parse(specifier.trim(), used).map(Covers::Write),
        Kind::Host => host(specifier.trim(), list).map(Covers::Host),
        Kind::Agent => Ok(Covers::Agent(Some(specifier.trim().to_owned()))),
        Kind::Skill => Ok(Covers::Skill(Some(specifier.trim().to_owned()))),
        Kind::None => Err("this tool takes no specifier".to_owned()),
    }
}

fn host(specifier: &str, list: List) -> Result<HostPattern, String> {
    let Some(host) = specifier.strip_prefix("domain:") else {
        return Err("WebFetch takes `domain:` and a host".to_owned());
    };
    let host = host.trim().trim_end_matches('.').to_ascii_lowercase();
    let plain = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':' | b'[' | b']'))
    };
    match host.strip_prefix("*.") {
        None if host == "*" && list != List::Allow => Ok(HostPattern::Any),
        None if plain(&host) => Ok(HostPattern::Exactly(host)),
        Some(suffix) if plain(suffix) => Ok(HostPattern::Below(format!(".{suffix}"))),
        None | Some(_) => Err(format!("{host:?} is no host")),
    }
}

fn mcp(rest: &str, list: List) -> Result<McpPattern, String> {
    match rest {
        "" => Err("the server's name is missing".to_owned()),
        "*" if list == List::Allow => Err("an allow rule names the server".to_owned()),
        "*" => Ok(McpPattern::All),
        _ if rest.trim_end_matches("__*").contains('*') => {
            Err("a star stands only for all tools of one server, as in mcp__server__*".to_owned())
        }
        _ => Ok(McpPattern::Named(rest.to_owned())),
    }
}
