//! `config`: what each setting holds and who said so, and changing one.

use std::path::Path;

use agentd_protocol::config::{
    ConfigEntry, ConfigFile, ConfigGetParams, ConfigGetResult, ConfigLayer, ConfigSetParams, ConfigSetResult,
    ConfigTarget,
};
use agentd_protocol::method;
use serde_json::Value;

use super::args::{ConfigCommand, ConfigGetArgs};
use super::context::{self, Context};
use super::exit::{Exit, Failure};
use super::resolve::Here;
use super::screen;
use crate::render::line::{short_path, short_paths};
use crate::render::style::called;
use crate::render::wrap::wrap;
use crate::render::{Line, Style};

/// `agentctl config`.
pub(crate) async fn config(context: &Context, command: ConfigCommand) -> Result<Exit, Failure> {
    match command {
        ConfigCommand::Get(args) => get(context, args).await,
        ConfigCommand::Set { key, value, project } => {
            set(context, key, Some(value_of(&value)?), project).await
        }
        ConfigCommand::Unset { key, project } => set(context, key, None, project).await,
        ConfigCommand::Path => path(context).await,
    }
}

async fn get(context: &Context, args: ConfigGetArgs) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    let params = match args.session.as_deref() {
        Some(named) => {
            let again = |id: &str| format!("config get --session {id}");
            let id = context::session(context, &client, Some(named), again).await?;
            ConfigGetParams { session_id: Some(id), cwd: None, key: args.key.clone() }
        }
        None => ConfigGetParams { session_id: None, cwd: Some(here()?), key: args.key.clone() },
    };
    if args.json {
        context::print_answer::<method::ConfigGet>(&client, params).await?;
        return Ok(Exit::Finished);
    }
    let result = client.call::<method::ConfigGet>(params).await?;
    let lines = match (&args.key, &result.entries[..]) {
        (Some(_), [entry]) => details(entry, context.home()),
        _ => list(&result, context),
    };
    print(&lines)?;
    Ok(Exit::Finished)
}

async fn set(context: &Context, key: String, value: Option<Value>, project: bool) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    let target = if project { ConfigTarget::Project } else { ConfigTarget::User };
    let unset = value.is_none();
    let params = ConfigSetParams { key: key.clone(), value, unset, target, cwd: Some(here()?) };
    let result = client
        .call::<method::ConfigSet>(params)
        .await
        .map_err(|error| Failure::from(error).next(format!("{} config get", context.program)))?;
    print(&set_lines(&result, unset, target, &context.program, context.home()))?;
    Ok(Exit::Finished)
}

async fn path(context: &Context) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    let params = ConfigGetParams { cwd: Some(here()?), ..ConfigGetParams::default() };
    let result = client.call::<method::ConfigGet>(params).await?;
    print(&result.files.iter().flat_map(|file| file_lines(file, context.home())).collect::<Vec<_>>())?;
    Ok(Exit::Finished)
}

fn here() -> Result<String, Failure> {
    Ok(Here::new(Path::new("."))?.cwd.display().to_string())
}

fn print(lines: &[Line]) -> std::io::Result<()> {
    let width = screen::print_width();
    screen::print(&lines.iter().flat_map(|line| wrap(line, width, 4)).collect::<Vec<_>>())
}

/// A value as TOML writes it; a bare word is a text.
fn value_of(typed: &str) -> Result<Value, Failure> {
    let parsed = toml::from_str::<toml::Table>(&format!("value = {typed}")).ok();
    if let Some(value) = parsed.filter(|table| table.len() == 1).and_then(|mut table| table.remove("value")) {
        return serde_json::to_value(value).map_err(|error| Failure::usage(format!("the value: {error}")));
    }
    if typed.trim_start().starts_with(['[', '{', '"', '\'']) {
        return Err(Failure::usage("the value is not written as TOML writes one; nothing was written")
            .advice("A text needs no quotes; a list is written '[\"one\", \"two\"]'."));
    }
    Ok(Value::from(typed))
}

fn list(result: &ConfigGetResult, context: &Context) -> Vec<Line> {
    let home = context.home();
    let mut lines: Vec<Line> = result.entries.iter().map(|entry| short(entry, home)).collect();
    let text = |text: &str| called(&short_paths(text, home), &context.program);
    let told = result.notices.iter();
    lines.extend(told.map(|notice| Line::styled(Style::Warn, "settings: ").plain(&text(&notice.text))));
    let key = result.entries.first().map_or("model", |entry| entry.key.as_str());
    lines.push(
        Line::styled(Style::Dim, "All about one: ")
            .with(Style::Command, &format!("{} config get {key}", context.program)),
    );
    lines
}

fn short(entry: &ConfigEntry, home: Option<&Path>) -> Line {
    Line::styled(Style::Bold, &entry.key)
        .plain(&format!(" = {}", shown(entry)))
        .with(Style::Dim, &format!("  {}", whence(entry.layer, entry.place.as_deref(), home)))
}

fn shown(entry: &ConfigEntry) -> String {
    match (&entry.value, entry.hidden) {
        (_, true) => "(set, not shown)".to_owned(),
        (Value::Null, false) => "(not set)".to_owned(),
        (value, false) => value.to_string(),
    }
}

fn whence(layer: ConfigLayer, place: Option<&str>, home: Option<&Path>) -> String {
    place.map_or_else(
        || layer.name().to_owned(),
        |place| format!("{} {}", layer.name(), short_path(place, home)),
    )
}

/// Everything about one key.
fn details(entry: &ConfigEntry, home: Option<&Path>) -> Vec<Line> {
    let mut lines = vec![short(entry, home), Line::from(entry.about.replace('`', ""))];
    lines.push(Line::styled(
        Style::Dim,
        &format!("Holds {}. Scope: {}.", entry.holds.replace('`', ""), entry.scope.name()),
    ));
    for said in &entry.said {
        let value = if entry.hidden { "(not shown)".to_owned() } else { said.value.to_string() };
        let line = Line::from(format!("{}: {value}", whence(said.layer, said.place.as_deref(), home)));
        lines.push(match &said.passed_over {
            Some(why) => line.with(Style::Warn, &format!("  passed over: {why}")),
            None => line.with(Style::Good, "  counts"),
        });
    }
    lines
}

fn set_lines(
    result: &ConfigSetResult,
    unset: bool,
    target: ConfigTarget,
    program: &str,
    home: Option<&Path>,
) -> Vec<Line> {
    let file = short_path(&result.path, home);
    let key = &result.entry.key;
    let done = match (result.changed, unset) {
        (true, false) => format!("{key} is set in {file}."),
        (true, true) => format!("{key} is taken out of {file}."),
        (false, false) => format!("{file} says that already; nothing was written."),
        (false, true) => format!("{key} is not set in {file}; nothing was written."),
    };
    let mut lines = vec![Line::from(done)];
    let layer = match target {
        ConfigTarget::User => ConfigLayer::User,
        ConfigTarget::Project => ConfigLayer::Project,
    };
    let own = result.entry.said.iter().filter(|said| said.layer == layer);
    if let Some(why) = own.filter_map(|said| said.passed_over.as_ref()).next_back() {
        lines.push(Line::styled(Style::Warn, &format!("It does not count: {why}.")));
        let next = match () {
            () if why.contains("next start") => format!("{program} daemon stop"),
            () if why.contains("trusted") => format!("{program} trust"),
            () => format!("{program} config get {key}"),
        };
        lines.push(Line::styled(Style::Dim, "Next: ").with(Style::Command, &next));
    }
    lines
}

fn file_lines(file: &ConfigFile, home: Option<&Path>) -> Vec<Line> {
    let there = if file.exists { "" } else { "  (not there)" };
    let mut lines = vec![
        Line::styled(Style::Bold, &format!("{:<8}", file.layer.name()))
            .plain(&short_path(&file.path, home))
            .with(Style::Dim, there),
    ];
    lines.extend(file.problem.iter().map(|why| Line::styled(Style::Bad, &short_paths(why, home))));
    lines
}

#[cfg(test)]
mod tests {
    use agentd_protocol::config::{ConfigSaid, ConfigScope};
    use serde_json::json;

    use super::*;

    fn text(lines: &[Line]) -> String {
        lines.iter().map(Line::text).collect::<Vec<_>>().join("\n")
    }

    fn entry() -> ConfigEntry {
        let said = |layer, value: Value, place: &str, passed_over: Option<&str>| ConfigSaid {
            layer,
            value,
            place: Some(place.into()),
            passed_over: passed_over.map(str::to_owned),
        };
        ConfigEntry {
            key: "mode".into(),
            about: "Mode of new sessions that name none.".into(),
            holds: "`\"default\"`, `\"plan\"`".into(),
            scope: ConfigScope::Trusted,
            value: json!("plan"),
            hidden: false,
            layer: ConfigLayer::User,
            place: Some("/home/u/.config/agentd/config.toml:2".into()),
            said: vec![
                said(
                    ConfigLayer::Project,
                    json!("default"),
                    "/home/u/api/.agentd/config.toml:1",
                    Some("nobody has trusted it"),
                ),
                said(ConfigLayer::User, json!("plan"), "/home/u/.config/agentd/config.toml:2", None),
            ],
        }
    }

    #[test]
    fn values_are_typed_as_toml_and_words_as_they_are() {
        for (typed, value) in [
            ("plan", json!("plan")),
            ("true", json!(true)),
            ("90", json!(90)),
            ("'a b'", json!("a b")),
            ("[\"a\", 'b',]", json!(["a", "b"])),
            ("openai/gpt-5", json!("openai/gpt-5")),
            ("x\nmodel = 1", json!("x\nmodel = 1")),
            ("1\nmodel = 1", json!("1\nmodel = 1")),
        ] {
            assert_eq!(value_of(typed).unwrap(), value, "{typed}");
        }
        assert_eq!(value_of("[\"a\"").unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn a_key_is_told_with_all_that_was_said_about_it() {
        let home = Some(Path::new("/home/u"));
        insta::assert_snapshot!(text(&details(&entry(), home)), @r#"
        mode = "plan"  user ~/.config/agentd/config.toml:2
        Mode of new sessions that name none.
        Holds "default", "plan". Scope: trusted.
        project ~/api/.agentd/config.toml:1: "default"  passed over: nobody has trusted it
        user ~/.config/agentd/config.toml:2: "plan"  counts
        "#);
        let hidden = ConfigEntry { hidden: true, value: Value::Null, ..entry() };
        assert!(text(&[short(&hidden, home)]).starts_with("mode = (set, not shown)"));
        let result =
            ConfigSetResult { path: "/home/u/api/.agentd/config.toml".into(), changed: true, entry: entry() };
        insta::assert_snapshot!(text(&set_lines(&result, false, ConfigTarget::Project, "ctl", home)), @r"
        mode is set in ~/api/.agentd/config.toml.
        It does not count: nobody has trusted it.
        Next: ctl trust
        ");
    }
}
