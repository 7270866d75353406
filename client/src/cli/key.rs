//! `key`: keys of model providers. A key goes from stdin or the environment to the daemon and is never printed.

use std::io::{BufRead, IsTerminal};

use agentd_client::Client;
use agentd_protocol::key::{KeyListResult, KeyNameParams, KeySetParams};
use agentd_protocol::method::{self, Empty};

use super::args::KeyCommand;
use super::context::Context;
use super::exit::{Exit, Failure};
use super::screen::{print, say};
use super::signals::{Caught, Signals};
use super::terminal::{Terminal, Typed};
use crate::render::line::short_path;
use crate::render::style::quoted;
use crate::render::{Line, Style};

pub(crate) async fn key(context: &Context, command: KeyCommand) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    match command {
        KeyCommand::Add { provider } => add(context, &client, provider).await,
        KeyCommand::Import { names } => import(context, &client, &names).await,
        KeyCommand::List => list(context, &client).await,
        KeyCommand::Rm { provider } => {
            client.call::<method::KeyDelete>(KeyNameParams { provider: provider.clone() }).await?;
            print(&[Line::from(format!("The stored key for {provider} is gone."))])?;
            Ok(Exit::Finished)
        }
    }
}

async fn add(context: &Context, client: &Client, provider: String) -> Result<Exit, Failure> {
    let known = client.call::<method::KeyList>(Empty {}).await?;
    if !known.providers.iter().any(|known| known.provider == provider) {
        let names: Vec<&str> = known.providers.iter().map(|known| known.provider.as_str()).collect();
        let text = format!("{} takes no key; these do: {}", quoted(&provider), names.join(", "));
        let failure = Failure::usage(text).next(format!("{} key list", context.program));
        return Err(failure.advice("Any other server is set up under [providers.NAME] in config.toml."));
    }
    let key = read_key(&provider).await?;
    store(context, client, provider, key).await
}

/// Stores one key, tries it and says how that went. A key that does not work stays stored: the provider may be out of
/// reach at the moment.
async fn store(context: &Context, client: &Client, provider: String, key: String) -> Result<Exit, Failure> {
    client.call::<method::KeySet>(KeySetParams { provider: provider.clone(), key }).await?;
    let test = client.call::<method::KeyTest>(KeyNameParams { provider: provider.clone() }).await?;
    if test.ok {
        print(&[Line::styled(Style::Good, "✓ ")
            .plain(&format!("{provider}: the key is stored and works ({}).", test.model))])?;
        return Ok(Exit::Finished);
    }
    let why = test.error.unwrap_or_else(|| "no reason was given".to_owned());
    if test.model.is_empty() {
        // Nothing was sent, so nothing speaks against the key.
        say(&[Line::from(format!("{provider}: the key is stored. It was not tried: {why}"))])?;
        return Ok(Exit::Finished);
    }
    Err(Failure::failed(format!(
        "{provider}: the key is stored, but a test with {} failed: {why}",
        test.model
    ))
    .then("If it is the key, replace it: ", format!("{} key add {provider}", context.program)))
}

/// One line, from a pipe as it is, from a terminal without showing it.
async fn read_key(provider: &str) -> Result<String, Failure> {
    let line = if std::io::stdin().is_terminal() {
        read_hidden(provider).await?
    } else {
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        line
    };
    let key = line.trim().to_owned();
    if key.is_empty() { Err(Failure::usage("no key was given; nothing changed")) } else { Ok(key) }
}

async fn read_hidden(provider: &str) -> Result<String, Failure> {
    let Some(mut terminal) = Terminal::open() else {
        return Err(Failure::usage("cannot read from this terminal; pipe the key in"));
    };
    let mut signals = Signals::catch()?;
    say(&[Line::from(format!("Key for {provider}, then Enter (it is not shown):"))])?;
    loop {
        tokio::select! {
            typed = terminal.read() => return match typed? {
                Typed::Line(line) => Ok(line),
                Typed::End => Ok(String::new()),
            },
            signal = signals.next() => match signal {
                Caught::Interrupt | Caught::Leave => {
                    return Err(Failure::new(Exit::Interrupted, "interrupted; nothing changed"));
                }
                Caught::Continued => terminal.reapply(),
                Caught::Resized => {}
            },
        }
    }
}

async fn import(context: &Context, client: &Client, names: &[String]) -> Result<Exit, Failure> {
    let known = client.call::<method::KeyList>(Empty {}).await?;
    let found = importable(&known, names, |name| std::env::var(name).ok())?;
    let mut worst = Exit::Finished;
    for (provider, variable, key) in found {
        say(&[Line::styled(Style::Dim, &format!("{variable} → {provider}"))])?;
        if let Err(failure) = store(context, client, provider, key).await {
            worst = failure.exit;
            super::print_failure(&failure)?;
        }
    }
    Ok(worst)
}

/// The keys to take: provider, variable, key.
fn importable(
    known: &KeyListResult,
    names: &[String],
    value: impl Fn(&str) -> Option<String>,
) -> Result<Vec<(String, String, String)>, Failure> {
    let mut found = Vec::new();
    let variables = || {
        let names: Vec<&str> =
            known.providers.iter().filter_map(|provider| provider.env.as_deref()).collect();
        names.join(", ")
    };
    let set = |variable: &str| value(variable).filter(|value| !value.trim().is_empty());
    for name in names {
        let provider = known
            .providers
            .iter()
            .find(|provider| provider.provider == *name || provider.env.as_deref() == Some(name))
            .ok_or_else(|| {
                Failure::usage(format!("{} is not known; these are: {}", quoted(name), variables()))
            })?;
        let Some(variable) = &provider.env else {
            return Err(Failure::usage(format!("{name} has no variable; use: agentctl key add {name}")));
        };
        let key = set(variable).ok_or_else(|| Failure::failed(format!("{variable} is not set here")))?;
        found.push((provider.provider.clone(), variable.clone(), key));
    }
    if names.is_empty() {
        for provider in &known.providers {
            if let Some((variable, key)) = provider.env.as_ref().and_then(|name| Some((name, set(name)?))) {
                found.push((provider.provider.clone(), variable.clone(), key));
            }
        }
    }
    if found.is_empty() {
        return Err(Failure::failed(format!("no known key is set here; the variables are {}", variables())));
    }
    Ok(found)
}

async fn list(context: &Context, client: &Client) -> Result<Exit, Failure> {
    let known = client.call::<method::KeyList>(Empty {}).await?;
    print(&lines(&known, context))?;
    Ok(Exit::Finished)
}

fn lines(known: &KeyListResult, context: &Context) -> Vec<Line> {
    let mut lines: Vec<Line> = known
        .keys
        .iter()
        .map(|key| {
            Line::styled(Style::Bold, &format!("{:<14} ", key.provider))
                .plain(&short_path(&key.source, context.home()))
        })
        .collect();
    if lines.is_empty() {
        let next = format!("{} key add anthropic", context.program);
        lines.push(Line::from("No key is known. Next: ").with(Style::Command, &next));
    }
    let without: Vec<&str> = known
        .providers
        .iter()
        .map(|provider| provider.provider.as_str())
        .filter(|provider| !known.keys.iter().any(|key| key.provider == *provider))
        .collect();
    if !without.is_empty() {
        lines.push(Line::styled(Style::Dim, &format!("Without a key: {}", without.join(", "))));
    }
    lines
}

#[cfg(test)]
mod tests {
    use agentd_protocol::key::KeyProvider;

    use super::*;

    fn known() -> KeyListResult {
        let provider = |name: &str, env: Option<&str>| KeyProvider {
            provider: name.into(),
            env: env.map(str::to_owned),
        };
        KeyListResult {
            keys: vec![],
            providers: vec![
                provider("anthropic", Some("ANTHROPIC_API_KEY")),
                provider("openai", Some("OPENAI_API_KEY")),
                provider("own", None),
            ],
        }
    }

    fn value(name: &str) -> Option<String> {
        match name {
            "ANTHROPIC_API_KEY" => Some("sk-1".into()),
            "OPENAI_API_KEY" => Some(" ".into()),
            _ => None,
        }
    }

    #[test]
    fn every_known_variable_that_is_set_is_taken() {
        let found = importable(&known(), &[], value).unwrap();
        assert_eq!(found, [("anthropic".into(), "ANTHROPIC_API_KEY".into(), "sk-1".into())]);
    }

    #[test]
    fn names_are_variables_or_providers() {
        for name in ["ANTHROPIC_API_KEY", "anthropic"] {
            assert_eq!(importable(&known(), &[name.into()], value).unwrap().len(), 1);
        }
        for (name, exit) in [("OPENAI_API_KEY", Exit::Failed), ("HOME", Exit::Usage), ("own", Exit::Usage)] {
            assert_eq!(importable(&known(), &[name.into()], value).unwrap_err().exit, exit, "{name}");
        }
    }

    #[test]
    fn nothing_to_take_names_the_variables() {
        let failure = importable(&known(), &[], |_| None).unwrap_err();
        assert!(failure.message.contains("ANTHROPIC_API_KEY, OPENAI_API_KEY"));
    }
}
