//! One table of a settings file while it is read: typed access key by key, and a notice for all that does not fit.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{self, Key, Scope, Shape};
use super::{Concern, Doubt, Layer, Notice, NoticeCode, RuleText, Widening};

/// The file being read, and what has been found wrong with it.
pub(super) struct Source<'a> {
    path: &'a Path,
    layer: Layer,
    /// Where each line ends. A file may have thousands of rules, and each is told with its line.
    newlines: Vec<usize>,
    /// Each with the place it is about, since tables are not read in the order of the file.
    notices: Vec<(usize, Notice)>,
    /// The first reason to believe that rules are not as the user meant them.
    rules_doubt: Option<String>,
    /// With the place each is about.
    model_doubts: Vec<(usize, Doubt)>,
    said: Vec<Said>,
}

/// What a file says about one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// With names in the place of stars.
    pub path: String,
    pub value: serde_json::Value,
    /// `file:line`.
    pub place: String,
    /// Why it does not count, whoever is trusted.
    pub problem: Option<String>,
}

/// What reading the file has found wrong with it.
pub(super) struct Findings {
    /// In the order of the file.
    pub(super) notices: Vec<Notice>,
    /// The reason to doubt the rules.
    pub(super) rules_doubt: Option<String>,
    /// In the order of the file.
    pub(super) model_doubts: Vec<Doubt>,
    /// Every key that has a value, in the order in which they were read.
    pub(super) said: Vec<Said>,
}

impl<'a> Source<'a> {
    pub(super) fn new(path: &'a Path, layer: Layer, text: &'a str) -> Self {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self {
            path,
            layer,
            newlines: newlines.map(|(at, _)| at).collect(),
            notices: Vec::new(),
            rules_doubt: None,
            model_doubts: Vec::new(),
            said: Vec::new(),
        }
    }

    pub(super) fn finish(mut self) -> Findings {
        self.notices.sort_by_key(|(offset, _)| *offset);
        self.model_doubts.sort_by_key(|(offset, _)| *offset);
        Findings {
            notices: self.notices.into_iter().map(|(_, notice)| notice).collect(),
            rules_doubt: self.rules_doubt,
            said: self.said,
            model_doubts: self.model_doubts.into_iter().map(|(_, doubt)| doubt).collect(),
        }
    }

    fn tell(&mut self, span: &Range<usize>, code: NoticeCode, what: &str) {
        let text = self.at(span, what);
        self.notices.push((span.start, Notice { code, text }));
    }

    /// `file:line: what`.
    pub(super) fn at(&self, span: &Range<usize>, what: &str) -> String {
        format!("{}: {what}", self.place(span))
    }

    fn place(&self, span: &Range<usize>) -> String {
        let line = self.newlines.partition_point(|newline| *newline < span.start) + 1;
        format!("{}:{line}", self.path.display())
    }

    /// A key of the file that `what` is said of cannot count.
    fn fault(&mut self, path: &str, what: &str) {
        if let Some(said) = self.said.iter_mut().rev().find(|said| said.path == path) {
            said.problem = Some(what.to_owned());
        }
    }

    fn hear(&mut self, path: String, value: &Spanned<DeValue<'_>>, problem: Option<String>) {
        // Nobody writes so many; each is looked for among all.
        if self.said.len() >= MAX_SAID {
            return;
        }
        let place = self.place(&value.span());
        self.said.retain(|said| said.path != path);
        self.said.push(Said { path, value: json(value.get_ref()), place, problem });
    }

    fn bad_value(&mut self, span: &Range<usize>, what: &str) {
        self.tell(span, NoticeCode::BadValue, what);
    }

    fn doubt_model(&mut self, about: Concern, span: &Range<usize>, what: &str) {
        let why = self.at(span, what);
        self.model_doubts.push((span.start, Doubt { about, why }));
    }

    fn doubt_rules(&mut self, span: &Range<usize>, what: &str) {
        let text = self.at(span, what);
        self.rules_doubt.get_or_insert(text);
    }
}

/// Keys of a file that are known one by one.
const MAX_SAID: usize = 2_000;

/// Keys that hold rules, or did if they were spelt right.
const RULE_KEYS: [&str; 3] = ["permissions", "deny", "ask"];

/// What people call the key itself.
const KEYS: [&str; 5] = ["api_key", "apikey", "key", "secret", "token"];

pub(super) struct Section<'s, 'a, 't> {
    pub(super) source: &'s mut Source<'a>,
    table: Option<DeTable<'t>>,
    /// `plan.`, or empty for the file itself.
    prefix: String,
    known: Vec<&'static str>,
}

impl<'s, 'a, 't> Section<'s, 'a, 't> {
    pub(super) fn root(source: &'s mut Source<'a>, table: DeTable<'t>) -> Self {
        Self { source, table: Some(table), prefix: String::new(), known: Vec::new() }
    }

    fn take(&mut self, key: Key) -> Option<Spanned<DeValue<'t>>> {
        self.known.push(key.name());
        let value = self.table.as_mut()?.remove(key.name())?;
        if key.shape != Shape::Table {
            self.source.hear(self.full(key.name()), &value, None);
        }
        Some(value)
    }

    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn wrong(&mut self, key: &str, span: &Range<usize>, wanted: &str) {
        let full = self.full(key);
        self.source.fault(&full, &format!("it must be {wanted}"));
        if let Some(about) = self.concern(&[key]) {
            let what = format!("`{full}` must be {wanted}");
            self.source.bad_value(span, &what);
            self.source.doubt_model(about, span, &what);
        } else {
            self.source.bad_value(span, &format!("`{full}` must be {wanted}; its default is used"));
        }
    }

    /// What a mistake in a key of this table means for the choice of a model. `keys`: what the key is, or may be meant
    /// to be.
    fn concern(&self, keys: &[&str]) -> Option<Concern> {
        if let Some(name) = self.prefix.strip_prefix("providers.") {
            return Some(match name.trim_end_matches('.') {
                // An entry that is no table.
                "" => Concern::Provider((*keys.first()?).to_owned()),
                name => Concern::Provider(name.to_owned()),
            });
        }
        if !self.prefix.is_empty() {
            return None;
        }
        if keys.contains(&"providers") {
            return Some(Concern::All);
        }
        keys.contains(&"model").then_some(Concern::Model)
    }

    /// A text that `parse` accepts; it says what is wanted otherwise.
    pub(super) fn parsed<T>(&mut self, key: Key, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let value = self.take(key)?;
        let problem = match value.get_ref() {
            DeValue::String(text) => match parse(text) {
                Ok(parsed) => return Some(parsed),
                Err(problem) => problem,
            },
            _ => "a text in quotes".to_owned(),
        };
        self.wrong(key.name(), &value.span(), &problem);
        None
    }

    /// Whether it is a table, and in the file.
    pub(super) fn is_there(&self) -> bool {
        self.table.is_some()
    }

    /// `file:line` of a key, if it is there.
    pub(super) fn place(&self, key: Key) -> Option<String> {
        let span = self.table.as_ref()?.get(key.name())?.span();
        Some(self.source.place(&span))
    }

    pub(super) fn text(&mut self, key: Key) -> Option<String> {
        self.parsed(key, |text| match text.trim() {
            "" => Err("a text that is not empty".to_owned()),
            text => Ok(text.to_owned()),
        })
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&mut self, key: Key, choices: &[(&str, T)]) -> Option<T> {
        self.parsed(key, |text| {
            choices.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice).ok_or_else(|| {
                let names: Vec<String> = choices.iter().map(|(name, _)| format!("\"{name}\"")).collect();
                format!("one of {}", names.join(", "))
            })
        })
    }

    pub(super) fn flag(&mut self, key: Key) -> Option<bool> {
        let value = self.take(key)?;
        if let DeValue::Boolean(flag) = value.get_ref() {
            return Some(*flag);
        }
        self.wrong(key.name(), &value.span(), "true or false");
        None
    }

    /// A whole number of seconds, at least one.
    pub(super) fn seconds(&mut self, key: Key) -> Option<u64> {
        self.whole(key, "a whole number of seconds, at least 1")
    }

    /// A whole number, at least one.
    pub(super) fn whole(&mut self, key: Key, wanted: &str) -> Option<u64> {
        let value = self.take(key)?;
        let number = match value.get_ref() {
            DeValue::Integer(number) => number.as_str().parse::<u64>().ok().filter(|number| *number > 0),
            _ => None,
        };
        if number.is_none() {
            self.wrong(key.name(), &value.span(), wanted);
        }
        number
    }

    pub(super) fn texts(&mut self, key: Key) -> Option<Vec<String>> {
        let value = self.take(key)?;
        let texts = as_texts(value.get_ref());
        if texts.is_none() {
            self.wrong(key.name(), &value.span(), "a list of texts");
        }
        texts
    }

    /// A list of rules that widen. If it cannot be read, none of it counts.
    pub(super) fn rules(&mut self, key: Key) -> Vec<RuleText> {
        let Some(value) = self.take(key) else { return Vec::new() };
        self.as_rules(value.get_ref()).unwrap_or_else(|| {
            self.wrong(key.name(), &value.span(), "a list of texts");
            Vec::new()
        })
    }

    fn as_rules(&self, value: &DeValue<'_>) -> Option<Vec<RuleText>> {
        let DeValue::Array(items) = value else { return None };
        let rule = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
            DeValue::String(text) => Some(RuleText {
                text: text.clone().into_owned(),
                layer: self.source.layer,
                place: self.source.place(&item.span()),
            }),
            _ => None,
        };
        items.iter().map(rule).collect()
    }

    /// Takes what only the user's own file may say, and tells of each.
    pub(super) fn pass_over_user_keys(&mut self) {
        let prefix = self.prefix.clone();
        for key in keys::ALL.iter().filter(|key| key.scope == Scope::User) {
            if key.path.strip_suffix(key.name()) != Some(prefix.as_str()) {
                continue;
            }
            let Some(value) = self.take(*key) else { continue };
            self.pass_over(&self.full(key.name()), &value);
        }
    }

    fn pass_over(&mut self, path: &str, value: &Spanned<DeValue<'_>>) {
        if let DeValue::Table(table) = value.get_ref()
            && !table.is_empty()
        {
            for (name, value) in table {
                self.pass_over(&format!("{path}.{}", show(name.get_ref())), value);
            }
            return;
        }
        self.source.hear(path.to_owned(), value, Some("it counts only in your own settings".to_owned()));
        let what = format!("`{path}` counts only in your own settings; here it is passed over");
        self.source.tell(&value.span(), NoticeCode::UserOnly, &what);
    }

    /// Takes the names of things that are not built yet, and says so. What a project would switch on by them: each entry of
    /// a table by itself, so that a diff names what has changed.
    pub(super) fn reserved(&mut self) -> Vec<Widening> {
        let prefix = self.prefix.clone();
        let mut found = Vec::new();
        for key in keys::ALL.iter().filter(|key| key.shape == Shape::Reserved) {
            if key.path.strip_suffix(key.name()) != Some(prefix.as_str()) {
                continue;
            }
            let Some(value) = self.take(*key) else { continue };
            self.source.fault(key.path, "it is not built yet");
            let what = format!("`{}` is not built yet; it does nothing", key.path);
            self.source.tell(&value.span(), NoticeCode::NotBuilt, &what);
            let item = |key: String, value: &Spanned<DeValue<'_>>| Widening {
                key,
                content: canonical(value.get_ref()),
                place: self.source.place(&value.span()),
            };
            match value.get_ref() {
                DeValue::Table(table) if !table.is_empty() => {
                    let mut items: Vec<_> = table
                        .iter()
                        .map(|(name, value)| item(format!("{}.{}", key.path, bare(name.get_ref())), value))
                        .collect();
                    items.sort_by(|a, b| a.key.cmp(&b.key));
                    found.extend(items);
                }
                _ => found.push(item(key.path.to_owned(), &value)),
            }
        }
        found
    }

    /// A list of rules that narrow. If it cannot be read, no rule is trusted.
    pub(super) fn closing_rules(&mut self, key: Key) -> Vec<RuleText> {
        let Some(value) = self.take(key) else { return Vec::new() };
        self.as_rules(value.get_ref()).unwrap_or_else(|| {
            let full = self.full(key.name());
            self.source.fault(&full, "it must be a list of texts");
            self.source.doubt_rules(&value.span(), &format!("`{full}` must be a list of texts"));
            Vec::new()
        })
    }

    /// A table below this one. If it is something else, it reads as empty.
    pub(super) fn table(&mut self, key: Key) -> Section<'_, 'a, 't> {
        let table = self.take(key).and_then(|value| {
            let span = value.span();
            match value.into_inner() {
                DeValue::Table(table) => Some(table),
                _ if key == keys::PERMISSIONS => {
                    self.source.doubt_rules(&span, "`permissions` must be a table");
                    None
                }
                _ => {
                    self.wrong(key.name(), &span, "a table");
                    None
                }
            }
        });
        let prefix = format!("{}{}.", self.prefix, key.name());
        Section { source: self.source, table, prefix, known: Vec::new() }
    }

    /// All entries of this table as tables of their own.
    pub(super) fn each_table(mut self, mut read: impl FnMut(&str, Section<'_, 'a, 't>)) {
        for (name, value) in self.table.take().into_iter().flatten() {
            let span = value.span();
            let name = name.into_inner();
            if !super::is_provider_name(&name) {
                let what = format!(
                    "a name under `{}` has 1 to 64 of a-z, 0-9, - and _; this one is passed over",
                    self.prefix.trim_end_matches('.')
                );
                self.source.bad_value(&span, &what);
                self.source.doubt_model(Concern::Provider(name.into_owned()), &span, &what);
                continue;
            }
            let DeValue::Table(table) = value.into_inner() else {
                self.wrong(&name, &span, "a table");
                continue;
            };
            let prefix = format!("{}{name}.", self.prefix);
            read(&name, Section { source: self.source, table: Some(table), prefix, known: Vec::new() });
        }
    }

    /// Tells of every key that nobody asked for.
    pub(super) fn finish(mut self) {
        for (key, _) in self.table.take().into_iter().flatten() {
            let near = near(key.get_ref(), &self.known);
            // Somebody who misspelt `deny` meant to forbid something.
            let is_rule = RULE_KEYS.contains(&key.get_ref().as_ref())
                || near.iter().any(|near| RULE_KEYS.contains(near));
            let mut what = format!("unknown key `{}`", self.full(&show(key.get_ref())));
            if self.prefix.starts_with("providers.") && KEYS.contains(&key.get_ref().as_ref()) {
                what.push_str("; keys do not belong here, store it with: agentctl key add");
            } else if let Some(nearest) = near.first() {
                what.push_str(&format!("; did you mean `{}`?", self.full(nearest)));
            }
            if let Some(about) = self.concern(&near) {
                self.source.doubt_model(about, &key.span(), &what);
            }
            if is_rule {
                self.source.doubt_rules(&key.span(), &what);
            } else {
                self.source.tell(&key.span(), NoticeCode::UnknownKey, &what);
            }
        }
    }
}

/// A value in one spelling, whatever the file's: the same for two files that mean the same.
fn canonical(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => format!("{}:{}", number.radix(), number.as_str()),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| canonical(item.get_ref())).collect();
            format!("[{}]", items.join(", "))
        }
        DeValue::Table(table) => {
            let mut entries: Vec<String> = table
                .iter()
                .map(|(name, value)| format!("{:?} = {}", name.get_ref(), canonical(value.get_ref())))
                .collect();
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

fn as_texts(value: &DeValue<'_>) -> Option<Vec<String>> {
    let DeValue::Array(items) = value else { return None };
    items
        .iter()
        .map(|item| match item.get_ref() {
            DeValue::String(text) => Some(text.clone().into_owned()),
            _ => None,
        })
        .collect()
}

/// A name as TOML writes it.
fn bare(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !name.is_empty() && name.chars().all(is_bare) { name.to_owned() } else { format!("{name:?}") }
}

/// A value as clients see it.
fn json(value: &DeValue<'_>) -> serde_json::Value {
    match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| number.as_str().into(), serde_json::Value::from),
        DeValue::Float(number) => {
            number.as_str().parse::<f64>().map_or_else(|_| number.as_str().into(), serde_json::Value::from)
        }
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Datetime(time) => time.to_string().into(),
        DeValue::Array(items) => items.iter().map(|item| json(item.get_ref())).collect(),
        DeValue::Table(table) => {
            let entries =
                table.iter().map(|(name, value)| (name.get_ref().to_string(), json(value.get_ref())));
            serde_json::Value::Object(entries.collect())
        }
    }
}

/// The keys that may have been meant, the likeliest first.
pub(super) fn near<'k>(key: &str, known: &[&'k str]) -> Vec<&'k str> {
    // Case and hyphens are what people get wrong most.
    let plain: String = key.to_lowercase().replace('-', "_").chars().take(64).collect();
    let mut near = similar::get_close_matches(plain.as_str(), known, known.len(), 0.7);
    near.sort_by_key(|known| (slips(&plain, known), known.len().abs_diff(plain.len())));
    near
}

/// How many slips of the keyboard lead from one word to the other: a letter too many, too few, another one, or two that
/// changed places.
fn slips(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let (mut before, mut last): (Vec<usize>, Vec<usize>) = (Vec::new(), (0..=to.len()).collect());
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let mut least = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

/// A key from the file, short and without control characters.
fn show(key: &str) -> String {
    key.chars().take(64).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
