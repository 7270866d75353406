//! What a script says. See the module above for the format.

use std::collections::BTreeMap;

use grep_matcher::{Captures, Matcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use serde::{Deserialize, Deserializer};

/// A whole script, checked.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// Tried in order; the first that fits answers.
    pub rules: Vec<Rule>,
    /// Values for `{{name}}` in every rule.
    #[serde(default)]
    pub values: BTreeMap<String, Value>,
    /// Texts that stand for `{{name}}` in several rules.
    #[serde(default)]
    pub constants: BTreeMap<String, String>,
    /// What goes wrong first, whatever the requests say. Each fault stands for its number of `times`.
    #[serde(default)]
    pub faults: Vec<Fault>,
    #[serde(default)]
    pub pace: Pace,
    /// The names that `/v1/models` and `/api/tags` list.
    #[serde(default)]
    pub models: Vec<String>,
}

/// How text comes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pace {
    /// Characters in each delta.
    pub chunk: usize,
    /// Wait before each delta.
    pub delay_ms: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { chunk: 24, delay_ms: 0 }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Lower-case letters, digits and `-`. The ids of its calls carry it.
    pub name: String,
    #[serde(default)]
    pub when: When,
    #[serde(default)]
    pub values: BTreeMap<String, Value>,
    #[serde(default)]
    pub reply: Reply,
    #[serde(default)]
    pub fault: Option<Fault>,
}

/// All that is given must hold.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// Assistant messages since the newest user text.
    pub answers: Option<usize>,
    /// Assistant messages in all.
    pub total_answers: Option<usize>,
    /// The newest assistant message is one of these rules', by the ids of its calls.
    pub after: Vec<String>,
    /// The newest call has this name, and is answered.
    pub last_call: Option<String>,
    /// Tools that were not called anywhere in the context.
    pub not_called: Vec<String>,
    /// Whether a result of the newest calls is an error.
    pub result_is_error: Option<bool>,
    pub texts: Vec<TextCheck>,
    /// Values that are not empty.
    pub has: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextCheck {
    pub r#in: Place,
    #[serde(default)]
    pub contains: Option<String>,
    #[serde(default)]
    pub matches: Option<Pattern>,
    #[serde(default)]
    pub lacks: Option<String>,
    #[serde(default)]
    pub lacks_match: Option<Pattern>,
}

/// Which texts of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// All of them, arguments of calls included.
    Any,
    System,
    /// The newest user text.
    Prompt,
    /// All user texts.
    User,
    /// The text of the newest assistant message.
    Assistant,
    /// Results of the newest calls.
    Result,
    /// All results.
    Results,
}

/// A value taken from a request: the first group of the pattern.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    pub r#in: Place,
    pub matches: Pattern,
    #[serde(default)]
    pub pick: Pick,
    #[serde(default)]
    pub default: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    First,
    #[default]
    Last,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reply {
    pub thinking: String,
    pub text: String,
    pub calls: Vec<Call>,
    /// Absent: counted from the bytes of the request and the reply.
    pub usage: Option<Tokens>,
    pub stop: Stop,
    pub pace: Option<Pace>,
    pub odd: Vec<Odd>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    pub name: String,
    #[serde(default)]
    pub arguments: serde_json::Value,
    /// Sent instead of `arguments`, as it stands: for arguments that are no JSON.
    #[serde(default)]
    pub arguments_text: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tokens {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    #[default]
    End,
    Length,
    Refusal,
}

/// Ways in which servers differ from the book.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Odd {
    /// Calls have no ids.
    NoIds,
    /// Pieces of calls have no index (openai-chat only).
    NoIndex,
    /// No token counts.
    NoUsage,
    /// Lines end in CR LF, `data:` has no blank after it, comments stand between.
    Framing,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// How many requests it hits. Absent: one in a script's list, every one in a rule.
    #[serde(default)]
    pub times: Option<u32>,
    pub r#do: Failure,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Failure {
    /// Another status, with headers and a body: the dialect's error object around `message`, or `body` as it stands.
    Status {
        code: u16,
        #[serde(default)]
        headers: BTreeMap<String, String>,
        #[serde(default)]
        message: String,
        #[serde(default)]
        body: Option<String>,
    },
    /// The stream ends after so many bytes; with `reset`, the connection breaks.
    Cut {
        after: usize,
        #[serde(default)]
        reset: bool,
    },
    /// The stream stops after so many bytes and goes on after `POST release`.
    Hang { after: usize },
    /// Success, but no stream.
    Body { content_type: String, text: String },
    /// An error inside of the stream, after so many events.
    Error { after_events: usize, code: String, message: String },
}

/// A regular expression; `^` and `$` stand for lines, classes for ASCII: Unicode tables would take longer to build than a
/// whole demo takes to play.
#[derive(Clone, Debug)]
pub struct Pattern(RegexMatcher);

impl Pattern {
    pub(super) fn is_in(&self, text: &str) -> bool {
        self.0.is_match(text.as_bytes()).unwrap_or(false)
    }

    /// The first groups of all matches.
    pub(super) fn groups(&self, text: &str) -> Vec<String> {
        let mut groups = Vec::new();
        let Ok(mut captures) = self.0.new_captures() else { return groups };
        let _ = self.0.captures_iter(text.as_bytes(), &mut captures, |captures| {
            // The pattern sees bytes of a string, so a match that splits a character is skipped.
            groups.extend(
                captures.get(1).and_then(|group| text.get(group.start()..group.end())).map(str::to_owned),
            );
            true
        });
        groups
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let matcher = RegexMatcherBuilder::new().multi_line(true).unicode(false).build(&text);
        matcher.map(Self).map_err(serde::de::Error::custom)
    }
}

/// A script that cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error("the script is not valid")]
    Json(#[from] serde_json::Error),
    #[error("rule `{0}`: a name is 1 to 24 lower-case letters, digits or `-`, and stands once")]
    Name(String),
    #[error("rule `{rule}` comes after `{after}`, which is no rule")]
    After { rule: String, after: String },
    #[error("rule `{rule}` uses the value `{value}`, which nothing defines")]
    Value { rule: String, value: String },
}

/// Values that every request has.
pub(super) const BUILT_IN: [&str; 4] = ["prompt", "result", "model", "answers"];

impl Script {
    /// Reads and checks a script.
    ///
    /// # Errors
    /// Not the format; names that are not plain or stand twice; references to nothing.
    pub fn parse(json: &str) -> Result<Self, ScriptError> {
        let script: Script = serde_json::from_str(json)?;
        for (at, rule) in script.rules.iter().enumerate() {
            let name = &rule.name;
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            let stands_twice = script.rules[..at].iter().any(|earlier| earlier.name == *name);
            if name.is_empty() || name.len() > 24 || !name.chars().all(plain) || stands_twice {
                return Err(ScriptError::Name(name.clone()));
            }
            let is_rule = |name: &String| script.rules.iter().any(|other| other.name == *name);
            if let Some(after) = rule.when.after.iter().find(|after| !is_rule(after)) {
                return Err(ScriptError::After { rule: name.clone(), after: after.clone() });
            }
            let known = |value: &str| {
                BUILT_IN.contains(&value)
                    || script.constants.contains_key(value)
                    || script.values.contains_key(value)
                    || rule.values.contains_key(value)
            };
            let used = rule.reply.used_values();
            if let Some(value) = used.iter().chain(&rule.when.has).find(|value| !known(value)) {
                return Err(ScriptError::Value { rule: name.clone(), value: value.clone() });
            }
        }
        Ok(script)
    }

    /// A script that always says the same.
    #[must_use]
    pub fn saying(text: &str) -> Self {
        let rule = Rule {
            name: "say".to_owned(),
            when: When::default(),
            values: BTreeMap::new(),
            reply: Reply { text: text.to_owned(), ..Reply::default() },
            fault: None,
        };
        Self { rules: vec![rule], ..Self::default() }
    }
}

impl Reply {
    fn used_values(&self) -> Vec<String> {
        let mut used = Vec::new();
        let arguments = self.calls.iter().map(|call| call.arguments.to_string());
        for text in [self.thinking.clone(), self.text.clone()].into_iter().chain(arguments) {
            let starts = text.split("{{").skip(1);
            used.extend(
                starts.filter_map(|rest| rest.split_once("}}")).map(|(name, _)| name.trim().to_owned()),
            );
        }
        used
    }
}
