//! One table of a settings file while it is read: typed access key by key, and a notice for all that does not fit.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{self, Key, Scope, Shape};
use super::{Concern, Doubt, Layer, Notice, NoticeCode, RuleText};

/// The file being read, and what has been found wrong with it.
pub(super) struct Source<'a> {
    path: &'a Path,
    layer: Layer,
    text: &'a str,
    /// Each with the place it is about, since tables are not read in the order of the file.
    notices: Vec<(usize, Notice)>,
    /// The first reason to believe that rules are not as the user meant them.
    rules_doubt: Option<String>,
    /// With the place each is about.
    model_doubts: Vec<(usize, Doubt)>,
}

/// What reading the file has found wrong with it.
pub(super) struct Findings {
    /// In the order of the file.
    pub(super) notices: Vec<Notice>,
    /// The reason to doubt the rules.
    pub(super) rules_doubt: Option<String>,
    /// In the order of the file.
    pub(super) model_doubts: Vec<Doubt>,
}

impl<'a> Source<'a> {
    pub(super) fn new(path: &'a Path, layer: Layer, text: &'a str) -> Self {
        Self { path, layer, text, notices: Vec::new(), rules_doubt: None, model_doubts: Vec::new() }
    }

    pub(super) fn finish(mut self) -> Findings {
        self.notices.sort_by_key(|(offset, _)| *offset);
        self.model_doubts.sort_by_key(|(offset, _)| *offset);
        Findings {
            notices: self.notices.into_iter().map(|(_, notice)| notice).collect(),
            rules_doubt: self.rules_doubt,
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
        let before = self.text.get(..span.start).unwrap_or_default();
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        format!("{}:{line}", self.path.display())
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
        self.table.as_mut()?.remove(key.name())
    }

    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn wrong(&mut self, key: &str, span: &Range<usize>, wanted: &str) {
        let full = self.full(key);
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
        let what = format!("`{path}` counts only in your own settings; here it is passed over");
        self.source.tell(&value.span(), NoticeCode::UserOnly, &what);
    }

    /// Takes the names of things that are not built yet, and says so. What a project would switch on by them is
    /// `(key, content)`.
    pub(super) fn reserved(&mut self) -> Vec<(String, String)> {
        let prefix = self.prefix.clone();
        let mut found = Vec::new();
        for key in keys::ALL.iter().filter(|key| key.shape == Shape::Reserved) {
            if key.path.strip_suffix(key.name()) != Some(prefix.as_str()) {
                continue;
            }
            let Some(value) = self.take(*key) else { continue };
            let what = format!("`{}` is not built yet; it does nothing", key.path);
            self.source.tell(&value.span(), NoticeCode::NotBuilt, &what);
            found.push((key.path.to_owned(), canonical(value.get_ref())));
        }
        found
    }

    /// A list of rules that narrow. If it cannot be read, no rule is trusted.
    pub(super) fn closing_rules(&mut self, key: Key) -> Vec<RuleText> {
        let Some(value) = self.take(key) else { return Vec::new() };
        self.as_rules(value.get_ref()).unwrap_or_else(|| {
            let full = self.full(key.name());
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

/// The keys that may have been meant, the likeliest first.
fn near(key: &str, known: &[&'static str]) -> Vec<&'static str> {
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
