//! One key of a settings file changed, as text: everything around it stays byte for byte. Reads and writes no file.

use std::ops::Range;
use std::path::Path;

use serde_json::Value;
use toml::de::{DeTable, DeValue};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike};

use super::keys::Key;
use super::{Layer, NoticeCode, Project, load};

/// No settings file of a person is longer.
pub const MAX_USER_BYTES: u64 = load::MAX_BYTES;
/// A list that would be wider has an item a line.
const WIDE: usize = 80;

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change<'a> {
    Set(&'a Value),
    Unset,
}

/// Why a text was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// What stands there now cannot be read; nobody can say what a change would make of it.
    #[error("{0}")]
    Broken(String),
    #[error("{0}")]
    Value(String),
}

/// `text`, the settings at `file`, with `key` under its name `path` changed; `None` if that changes nothing.
///
/// # Errors
/// The text cannot be read as it is, or the key cannot hold the value.
pub fn edit(
    file: &Path,
    layer: Layer,
    text: &str,
    (key, path): (Key, &str),
    change: Change<'_>,
) -> Result<Option<String>, EditError> {
    let before = whole(file, layer, text)?;
    let words: Vec<&str> = path.split('.').collect();
    let mut wanted = before.clone();
    let wanted_value = match change {
        Change::Set(value) => Some(value_of(value)?),
        Change::Unset => None,
    };
    if !put(&mut wanted, &words, wanted_value.clone()) {
        return Err(EditError::Value(format!(
            "`{path}` has no place in {}: what stands above it is no table; mend that yourself first",
            file.display()
        )));
    }
    if wanted == before {
        return Ok(None);
    }
    let new = match (&wanted_value, cut(text, &words)) {
        (None, Some(lines)) => [&text[..lines.start], &text[lines.end..]].concat(),
        (value, _) => by_document(text, &words, value.as_ref())?,
    };
    // The editor is trusted no further than this: the file says exactly what it said before, but for the key.
    if toml::from_str::<toml::Table>(&new).ok().as_ref().map(pruned) != Some(pruned(&wanted)) {
        return Err(EditError::Value(format!(
            "`{path}` cannot be changed where it stands; change it in {} yourself",
            file.display()
        )));
    }
    let problem = problem_of(file, layer, &new, path);
    if let Some(problem) = problem.filter(|_| wanted_value.is_some()) {
        return Err(EditError::Value(format!("`{path}`: {problem}; it holds {}", key.shape.holds())));
    }
    Ok(Some(new))
}

/// The whole text as a table; where a rule cannot be read, that is what is wrong with it, too.
fn whole(file: &Path, layer: Layer, text: &str) -> Result<toml::Table, EditError> {
    if super::nesting::is_too_deep(text) {
        return Err(EditError::Broken(format!("{}: it is nested too deep", file.display())));
    }
    toml::from_str(text).map_err(|_| {
        let notices = match layer {
            Layer::User => load::parse(file, text).notices,
            Layer::Project => Project::parse(file, text.as_bytes()).notices,
        };
        let told = notices.into_iter().find(|notice| notice.code == NoticeCode::UnreadableFile);
        // Up to the first full stop: what a broken file means for calls is not what is asked here.
        let why =
            told.map_or_else(|| format!("{}: it cannot be parsed", file.display()), |notice| notice.text);
        EditError::Broken(why.split(". Until").next().unwrap_or_default().to_owned())
    })
}

fn problem_of(file: &Path, layer: Layer, text: &str, path: &str) -> Option<String> {
    let said = match layer {
        Layer::User => load::parse(file, text).said,
        Layer::Project => Project::parse(file, text.as_bytes()).said,
    };
    match said.into_iter().find(|said| said.path == path) {
        Some(said) => said.problem,
        None => Some("it is not read there".to_owned()),
    }
}

/// Whether it could be put there: what stands above it has to be a table.
fn put(table: &mut toml::Table, words: &[&str], value: Option<toml::Value>) -> bool {
    let Some((first, rest)) = words.split_first() else { return false };
    match (rest.is_empty(), value) {
        (true, Some(value)) => drop(table.insert((*first).to_owned(), value)),
        (true, None) => drop(table.remove(*first)),
        (false, value) => {
            if value.is_none() && !table.contains_key(*first) {
                return true;
            }
            let below = table.entry(*first).or_insert_with(|| toml::Value::Table(toml::Table::new()));
            return match below {
                toml::Value::Table(below) => put(below, rest, value),
                _ => false,
            };
        }
    }
    true
}

/// Without empty tables: the last key of one written with dots takes the table with it.
fn pruned(table: &toml::Table) -> toml::Table {
    let pruned_value = |value: &toml::Value| match value {
        toml::Value::Table(table) => {
            Some(pruned(table)).filter(|table| !table.is_empty()).map(toml::Value::Table)
        }
        other => Some(other.clone()),
    };
    table.iter().filter_map(|(name, value)| Some((name.clone(), pruned_value(value)?))).collect()
}

fn value_of(value: &Value) -> Result<toml::Value, EditError> {
    toml::Value::try_from(value)
        .map_err(|_| EditError::Value("the value holds nothing, or a number that is too large".to_owned()))
}

/// The lines that a key has to itself, comment behind it included. What is written above it stays.
fn cut(text: &str, words: &[&str]) -> Option<Range<usize>> {
    let table = DeTable::parse(text).ok()?.into_inner();
    let mut at = &table;
    let (last, above) = words.split_last()?;
    for word in above {
        let DeValue::Table(below) = at.get(*word)?.get_ref() else { return None };
        at = below;
    }
    let (key, value) = at.iter().find(|(name, _)| name.get_ref() == last)?;
    let start = text[..key.span().start].rfind('\n').map_or(0, |newline| newline + 1);
    let end = value.span().end.max(key.span().end);
    let rest = text[end..].split_inclusive('\n').next().unwrap_or_default();
    let alone = text[start..key.span().start].chars().all(|c| c.is_alphanumeric() || " \t.\"'-_".contains(c));
    let behind = rest.trim();
    (alone && (behind.is_empty() || behind.starts_with('#'))).then_some(start..end + rest.len())
}

fn by_document(text: &str, words: &[&str], value: Option<&toml::Value>) -> Result<String, EditError> {
    let broken = |error: toml_edit::TomlError| EditError::Broken(error.message().to_owned());
    let mut document: DocumentMut = text.parse().map_err(broken)?;
    let no_table = || EditError::Value(format!("`{}` is no table there", words[..words.len() - 1].join(".")));
    let (last, above) = words.split_last().ok_or_else(no_table)?;
    let mut at: &mut dyn TableLike = document.as_table_mut();
    for (depth, word) in above.iter().enumerate() {
        let new = || {
            let mut table = Table::new();
            // `[providers.mine]` needs no `[providers]` above it.
            table.set_implicit(depth + 1 < above.len());
            Item::Table(table)
        };
        let below = at.entry(word).or_insert_with(new);
        at = below.as_table_like_mut().ok_or_else(no_table)?;
    }
    let Some(value) = value else {
        at.remove(last);
        return Ok(document.to_string());
    };
    let mut new = written(value);
    match at.get_mut(last).and_then(Item::as_value_mut) {
        Some(old) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        None => drop(at.insert(last, Item::Value(new))),
    }
    let new = document.to_string();
    let all_crlf = text.contains("\r\n") && !text.replace("\r\n", "").contains('\n');
    Ok(if all_crlf { new.replace("\r\n", "\n").replace('\n', "\r\n") } else { new })
}

fn written(value: &toml::Value) -> toml_edit::Value {
    match value {
        toml::Value::String(text) => text.as_str().into(),
        toml::Value::Integer(number) => (*number).into(),
        toml::Value::Float(number) => (*number).into(),
        toml::Value::Boolean(flag) => (*flag).into(),
        // From JSON there are none.
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(items) => {
            let mut array: Array = items.iter().map(written).collect();
            if array.to_string().chars().count() > WIDE {
                for item in array.iter_mut() {
                    item.decor_mut().set_prefix("\n    ");
                }
                array.set_trailing("\n");
                array.set_trailing_comma(true);
            }
            array.into()
        }
        toml::Value::Table(table) => {
            let table: InlineTable =
                table.iter().map(|(name, value)| (name.as_str(), written(value))).collect();
            table.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys;
    use super::*;

    fn set(text: &str, path: &str, value: Value) -> Result<Option<String>, EditError> {
        let key = keys::find(path).unwrap();
        edit(Path::new("F"), Layer::User, text, (key, path), Change::Set(&value))
    }

    fn unset(text: &str, path: &str) -> Result<Option<String>, EditError> {
        edit(Path::new("F"), Layer::User, text, (keys::find(path).unwrap(), path), Change::Unset)
    }

    #[test]
    fn what_stands_around_a_key_stays_as_it_is() {
        let text = "# mine\n\nmodel = \"a/b\" # why\nmode   =  'plan'\n\n[permissions]\n# never\ndeny = [ 'Bash(rm *)' ,]\n\n\
                    [providers.x]\nbase_url = \"http://localhost\"\n";
        for (path, value, from, to) in [
            ("model", Value::from("c/d"), "\"a/b\"", "\"c/d\""),
            ("mode", "default".into(), "'plan'", "\"default\""),
            ("permissions.deny", vec!["Bash"].into(), "[ 'Bash(rm *)' ,]", "[\"Bash\"]"),
            ("providers.x.idle_timeout_s", 9.into(), "localhost\"\n", "localhost\"\nidle_timeout_s = 9\n"),
            ("permissions.allow_bypass", true.into(), " ,]\n", " ,]\nallow_bypass = true\n"),
            ("plan.verify", "off".into(), "localhost\"\n", "localhost\"\n\n[plan]\nverify = \"off\"\n"),
            (
                "providers.y.base_url",
                "https://y".into(),
                "localhost\"\n",
                "localhost\"\n\n[providers.y]\nbase_url = \"https://y\"\n",
            ),
        ] {
            assert_eq!(set(text, path, value).unwrap().unwrap(), text.replace(from, to), "{path}");
        }
        for (path, gone) in [
            ("model", "model = \"a/b\" # why\n"),
            ("permissions.deny", "deny = [ 'Bash(rm *)' ,]\n"),
            ("providers.x.base_url", "base_url = \"http://localhost\"\n"),
        ] {
            assert_eq!(unset(text, path).unwrap().unwrap(), text.replace(gone, ""), "{path}");
        }
        assert_eq!(set(text, "model", "a/b".into()), Ok(None));
        assert_eq!(unset(text, "shell.env"), Ok(None));
    }

    #[test]
    fn every_spelling_of_a_table_is_written_into() {
        for (text, path, value, expected) in [
            ("", "plan.shell", "deny", "[plan]\nshell = \"deny\"\n"),
            (
                "plan = { verify = 'off' }",
                "plan.shell",
                "deny",
                "plan = { verify = 'off' , shell = \"deny\" }\n",
            ),
            ("plan.verify = 'off'\n", "plan.shell", "deny", "plan.verify = 'off'\nplan.shell = \"deny\"\n"),
            (
                "model = \"a\"\r\nmode = \"plan\"\r\n",
                "mode",
                "default",
                "model = \"a\"\r\nmode = \"default\"\r\n",
            ),
        ] {
            let new = set(text, path, value.into()).unwrap().unwrap();
            assert_eq!(load::parse(Path::new("F"), &new).notices, [], "{new}");
            assert_eq!(new.replace(" , ", ", "), expected.replace(" , ", ", "), "{text:?}");
        }
        for (text, path, expected) in [
            ("plan = { verify = 'off', shell = 'deny' }\n", "plan.shell", "plan = { verify = 'off'}\n"),
            ("plan.shell = 'deny' # x\n# y\n", "plan.shell", "# y\n"),
            (
                "[permissions]\nallow = [\n  # a\n  'x',\n]\ndeny = []\n",
                "permissions.allow",
                "[permissions]\ndeny = []\n",
            ),
        ] {
            assert_eq!(unset(text, path).unwrap().unwrap(), expected);
        }
        let long: Vec<String> = (0..9).map(|number| format!("Bash(cargo test {number})")).collect();
        let new = set("", "permissions.allow", long.into()).unwrap().unwrap();
        assert!(new.starts_with("[permissions]\nallow = [\n    \"Bash(cargo test 0)\",\n"), "{new}");
        assert!(new.ends_with("8)\",\n]\n"), "{new}");
    }

    #[test]
    fn what_a_key_cannot_hold_is_not_written() {
        for (path, value, why) in [
            ("mode", Value::from("yolo"), "must be one of \"default\""),
            ("model", 3.into(), "a text"),
            ("model", "".into(), "not empty"),
            ("retention.max_age_days", 0.into(), "at least 1"),
            ("retention.max_age_days", Value::from(1.5), "at least 1"),
            ("permissions.deny", "Bash".into(), "a list of texts"),
            ("permissions.deny", vec![1].into(), "a list of texts"),
            ("permissions.allow", Value::Null, "holds nothing"),
            ("providers.x.base_url", "localhost".into(), "begins with https://"),
            ("hooks", serde_json::json!({"a": 1}), "not built yet"),
        ] {
            let error = set("", path, value).unwrap_err().to_string();
            assert!(error.contains(why), "{path}: {error}");
        }
        let key = keys::SHELL_ENV;
        let value = Value::from(vec!["X"]);
        let change = Change::Set(&value);
        let error = edit(Path::new("P"), Layer::Project, "", (key, key.path), change).unwrap_err();
        assert!(error.to_string().contains("only in your own settings"), "{error}");
    }

    #[test]
    fn a_broken_file_is_named_with_its_line_and_left_alone() {
        for text in ["model = \"a\"\nmode = ", "model = \"a\"\nmode = 'plan'\nmode = 'plan'"] {
            let EditError::Broken(why) = set(text, "model", "b".into()).unwrap_err() else {
                panic!("{text}")
            };
            assert!(why.starts_with("F:") && !why.contains("Until"), "{why}");
        }
        // A mistake elsewhere is no reason not to mend this key.
        let mended = set("mode = 'yolo'\nzebra = 1\n", "mode", "plan".into()).unwrap().unwrap();
        assert_eq!(mended, "mode = \"plan\"\nzebra = 1\n");
    }

    proptest::proptest! {
        #[test]
        fn no_edit_changes_another_key(
            lines in proptest::collection::vec(0..8_usize, 0..8),
            path in 0..5_usize,
            take in proptest::bool::ANY,
        ) {
            const LINES: [&str; 8] = [
                "# comment", "", "model = 'a' # x", "mode='plan'", "plan.verify = \"off\"",
                "retention = { max_age_days = 3 }", "shell.env = [\n 'A', # b\n]", "permissions.deny = ['x']",
            ];
            const PATHS: [(&str, &str); 5] =
                [("model", "q"), ("mode", "default"), ("plan.verify", "loop"), ("plan.shell", "deny"), ("model", "a")];
            let text: String = lines.iter().map(|line| format!("{}\n", LINES[*line])).collect();
            let (path, value) = PATHS[path];
            let changed = if take { unset(&text, path) } else { set(&text, path, value.into()) };
            if let Ok(Some(new)) = changed {
                let (mut old, mut now): (toml::Table, toml::Table) =
                    (toml::from_str(&text).unwrap(), toml::from_str(&new).unwrap());
                let words: Vec<_> = path.split('.').collect();
                put(&mut old, &words, None);
                put(&mut now, &words, None);
                proptest::prop_assert_eq!(pruned(&old), pruned(&now));
                let comments = |text: &str| text.matches("# comment").count();
                proptest::prop_assert_eq!(comments(&text), comments(&new));
            }
        }
    }
}
