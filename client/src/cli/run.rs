//! `run`, `attach`, `send`, `stop`: prompting sessions and following them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{IsTerminal, Read};
use std::path::Path;

use agentd_client::{CallError, Client};
use agentd_protocol::method::{DaemonStatus, Empty, KeyList};
use agentd_protocol::session::{
    At, Content, InboxResult, InterruptParams, NewParams, NewResult, PromptParams, SessionParams,
    WithdrawParams,
};
use agentd_protocol::{ErrorCode, Mode, Seq, SessionId, TurnId, method};

use super::args::{AtArg, AttachArgs, RunArgs, SendArgs, StopArgs};
use super::closing::{goes, held, prompts, prompts_are};
use super::context::{self, Context};
use super::demo;
use super::exit::{Exit, Failure};
use super::follow::Goal;
use super::look::past::{FromStart, newest_turns};
use super::resolve::{self, Here};
use super::screen::{self, Screen};
use super::terminal::Terminal;
use super::watch::{Answerer, Target, Until, Watch};
use crate::render::line::header;
use crate::render::style::quoted;
use crate::render::{Line, Style};

/// `agentctl run`.
pub(crate) async fn run(context: &Context, args: RunArgs) -> Result<Exit, Failure> {
    let prompt = prompt_text(&args.prompt.join(" "))?;
    let here = Here::new(args.cwd.as_deref().unwrap_or(Path::new(".")))?;
    let client = context.connect_or_start().await?;
    let model = args.model.or_else(|| std::env::var("AGENTD_MODEL").ok().filter(|model| !model.is_empty()));
    let params = NewParams {
        // Named here, so that making it again makes one session.
        session_id: args.session_id.or_else(|| Some(SessionId::generate())),
        cwd: utf8(&here.cwd)?,
        mode: args.mode,
        model: model.clone(),
        env: session_env(&client).await,
        ..NewParams::default()
    };
    let new = match context.again(|| client.call::<method::SessionNew>(params.clone())).await {
        Ok(new) => new,
        Err(error) => return Err(no_session(context, &client, error, model.as_deref()).await),
    };
    let turn = TurnId::generate();
    let prompt = PromptParams {
        session_id: new.session_id,
        prompt_id: Some(turn),
        content: vec![Content::Text { text: prompt }],
        at: At::Turn,
        // In the same commit as the prompt, so `--mode` stays the mode to come back to.
        mode: args.plan.then_some(Mode::Plan),
        answers: None,
    };
    if args.detach {
        context.again(|| client.call::<method::SessionPrompt>(prompt.clone())).await?;
        screen::print_text(&new.handle)?;
        let next = format!("{} attach {}", context.program, new.handle);
        screen::say(&[Line::styled(Style::Dim, "Next: ").with(Style::Command, &next)])?;
        return Ok(Exit::LeftRunning);
    }
    let target = Target {
        session: new.session_id,
        handle: new.handle.clone(),
        cwd: new.state.cwd.clone(),
        goal: Goal::Turn(turn),
        until: Until::Turn(turn),
        // A session that was named may have a past; it is not this run's.
        after: if args.session_id.is_some() { new.state.seq } else { Seq(0) },
        timeout: args.timeout,
        stays: true,
        is_demo: new.state.model.provider == demo::PROVIDER,
    };
    let screen = Screen::open(args.json);
    let answerer = answerer(&screen);
    follow_prompt(context, &client, target, screen, answerer, &new, prompt).await
}

/// Shows the header, sends the prompt, follows its turn.
pub(crate) async fn follow_prompt(
    context: &Context,
    client: &Client,
    target: Target,
    mut screen: Screen,
    answerer: Answerer,
    new: &NewResult,
    prompt: PromptParams,
) -> Result<Exit, Failure> {
    let mut state = new.state.clone();
    state.mode = prompt.mode.unwrap_or(state.mode);
    screen.line(&header(&state, context.home()))?;
    // A demo needs no settings.
    if state.model.provider != demo::PROVIDER {
        screen.lines(&context::settings_notices(context, client).await)?;
    }
    if screen.is_terminal() {
        screen.line(
            &Line::styled(Style::Dim, "Ctrl-C stops the turn · closing the terminal keeps it running · ")
                .with(Style::Command, &format!("{} attach {}", context.program, new.handle)),
        )?;
    }
    let watch = Watch::begin(client, context, target, screen, answerer).await?;
    context.again(|| client.call::<method::SessionPrompt>(prompt.clone())).await?;
    watch.run().await
}

/// Who answers approvals: the person, if there is one to see them.
pub(crate) fn answerer(screen: &Screen) -> Answerer {
    if !screen.is_terminal() {
        return Answerer::Nobody;
    }
    Terminal::open().map_or(Answerer::Nobody, Answerer::Person)
}

/// `agentctl attach`.
pub(crate) async fn attach(context: &Context, args: AttachArgs) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    let session_id =
        context::session(context, &client, args.session.id.as_deref(), |id| format!("attach {id}")).await?;
    let state = client.call::<method::SessionGet>(SessionParams { session_id }).await?.state;
    let mut screen = Screen::open(false);
    screen.line(&header(&state, context.home()))?;
    screen.lines(&context::settings_notices(context, &client).await)?;
    if state.inbox_held && !state.inbox.is_empty() {
        screen.line(&held(state.inbox.len(), &context.program, &state.handle))?;
    }
    let answerer = answerer(&screen);
    if screen.is_terminal() {
        let leaves = match answerer {
            Answerer::Person(_) => "q or Ctrl-D leaves, which stops nothing · Ctrl-C stops a running turn",
            Answerer::Auto(_) | Answerer::Nobody => {
                "Ctrl-C stops a running turn, else it leaves; leaving stops nothing"
            }
        };
        screen.line(&Line::styled(Style::Dim, leaves))?;
    }
    // Before the signals are caught: until then Ctrl-C ends it at once.
    let tail = if args.all { None } else { Some(newest_turns(&client, &state, 1).await?) };
    let target = Target {
        session: session_id,
        handle: state.handle.clone(),
        cwd: state.cwd.clone(),
        goal: if args.all { Goal::WholeSession } else { Goal::Session },
        until: if screen.is_terminal() { Until::Left } else { Until::Idle },
        after: state.seq,
        timeout: None,
        stays: true,
        is_demo: state.model.provider == demo::PROVIDER,
    };
    let watch = Watch::begin(&client, context, target, screen, answerer).await?;
    match tail {
        None => watch.run_from_start(FromStart::until(&client, &state)).await,
        Some(tail) => watch.run_after(tail).await,
    }
}

/// `agentctl send`.
pub(crate) async fn send(context: &Context, args: SendArgs) -> Result<Exit, Failure> {
    let (id, text) = match args.words.as_slice() {
        [text] => (None, text),
        [id, text] => (Some(id.as_str()), text),
        _ => return Err(Failure::usage("send takes a text, or a session and a text")),
    };
    let text = prompt_text(text)?;
    let client = context.connect_or_start().await?;
    if id.is_none() {
        not_a_name(context, &client, text.trim()).await?;
    }
    let again = |id: &str| match args.at {
        AtArg::Turn => format!("send {id} \"…\""),
        AtArg::Step => format!("send {id} --at step \"…\""),
    };
    let session_id = context::session(context, &client, id, again).await?;
    let before = client.call::<method::SessionGet>(SessionParams { session_id }).await?.state;
    let own = TurnId::generate();
    let params = PromptParams {
        session_id,
        prompt_id: Some(own),
        content: vec![Content::Text { text }],
        at: match args.at {
            AtArg::Turn => At::Turn,
            AtArg::Step => At::Step,
        },
        mode: None,
        answers: None,
    };
    let result = client.call::<method::SessionPrompt>(params).await?;
    let handle = before.handle;
    // A prompt for a running turn answers with that turn; one that found none starts its own.
    let mut lines = vec![Line::from(match (result.queued, result.turn_id == own, args.at) {
        (true, ..) if before.inbox_held && !before.inbox.is_empty() => {
            let first = prompts(before.inbox.len());
            format!("Queued for {handle}; {first} that had been held {} first.", goes(before.inbox.len()))
        }
        (true, ..) => format!("Queued for {handle}; another turn goes first."),
        (false, true, AtArg::Step) => format!("{handle} works on it; no turn was running."),
        (false, true, AtArg::Turn) => format!("{handle} works on it."),
        (false, false, _) => format!("{handle} reads it before its next step."),
    })];
    let next = match result.waiting_for {
        Some(approval) => {
            lines.push(Line::styled(
                Style::Warn,
                &format!("That turn waits for your answer: approval {approval}"),
            ));
            let token = approval.token();
            format!("approve {}", token.get(token.len().saturating_sub(8)..).unwrap_or(token))
        }
        None => format!("attach {handle}"),
    };
    lines.push(
        Line::styled(Style::Dim, "Next: ").with(Style::Command, &format!("{} {next}", context.program)),
    );
    screen::print(&lines)?;
    Ok(Exit::Finished)
}

/// A session's name alone is no prompt: its text was forgotten, and it would go to another session.
async fn not_a_name(context: &Context, client: &Client, word: &str) -> Result<(), Failure> {
    if word.contains(char::is_whitespace) {
        return Ok(());
    }
    let rows = context::rows(client).await?;
    let Some(handle) = resolve::named(&rows, word) else { return Ok(()) };
    Err(Failure::usage(format!(
        "{} is the name of a session ({handle}), and there is no text; nothing was sent",
        quoted(word)
    ))
    .then("To send it something: ", format!("{} send {word} \"…\"", context.program))
    .then("To send that very word to this folder's session: ", format!("{} send @ {word}", context.program)))
}

/// `agentctl stop`.
pub(crate) async fn stop(context: &Context, args: StopArgs) -> Result<Exit, Failure> {
    let client = context.connect().await?;
    let drop = if args.drop { " --drop" } else { "" };
    let again = |id: &str| format!("stop{drop} {id}");
    let session_id = context::session(context, &client, args.session.id.as_deref(), again).await?;
    let handle = client.call::<method::SessionGet>(SessionParams { session_id }).await?.state.handle;
    let result =
        client.call::<method::SessionInterrupt>(InterruptParams { session_id, turn_id: None }).await?;
    let mut lines = vec![Line::from(match result.turn_id {
        Some(_) => format!("{handle}: the turn is being stopped."),
        None => format!("{handle}: no turn is running."),
    })];
    let inbox = client.call::<method::SessionInbox>(SessionParams { session_id }).await?;
    if args.drop {
        let dropped = withdraw(&client, session_id, &inbox).await?;
        lines.push(Line::from(format!("{} dropped.", prompts_are(dropped))));
    } else if inbox.held && !inbox.inbox.is_empty() {
        lines.push(held(inbox.inbox.len(), &context.program, &handle));
    }
    screen::print(&lines)?;
    Ok(Exit::Finished)
}

/// Takes back what waits; how many prompts that were.
async fn withdraw(client: &Client, session_id: SessionId, inbox: &InboxResult) -> Result<usize, Failure> {
    let mut dropped = 0;
    for item in &inbox.inbox {
        match client
            .call::<method::SessionWithdraw>(WithdrawParams { session_id, prompt_id: item.prompt_id })
            .await
        {
            Ok(_) => dropped += 1,
            // Its turn has begun, or somebody else took it back.
            Err(error) if error.code() == Some(ErrorCode::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(dropped)
}

/// What to say, from the arguments or, for `-`, from stdin.
fn prompt_text(words: &str) -> Result<String, Failure> {
    if words != "-" {
        return non_empty(words.to_owned());
    }
    let mut stdin = std::io::stdin();
    if stdin.is_terminal() {
        screen::say(&[Line::styled(Style::Dim, "Reading the prompt from here; Ctrl-D ends it.")])?;
    }
    let mut bytes = Vec::new();
    stdin.read_to_end(&mut bytes)?;
    non_empty(String::from_utf8(bytes).map_err(|_| Failure::usage("the prompt on stdin is not UTF-8"))?)
}

fn non_empty(text: String) -> Result<String, Failure> {
    if text.trim().is_empty() {
        Err(Failure::usage("the prompt is empty").advice("Say what to do, in quotes; - reads it from stdin."))
    } else {
        Ok(text)
    }
}

fn utf8(path: &Path) -> Result<String, Failure> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Failure::usage(format!("the folder {} has a name that is not UTF-8", path.display())))
}

/// The part of this environment that a session's commands get: the usual names, and those that the user's settings
/// name to the daemon.
pub(crate) async fn session_env(client: &Client) -> BTreeMap<String, String> {
    // An older daemon that does not say takes the usual names only.
    let also = client.call::<DaemonStatus>(Empty {}).await.map(|status| status.shell_env).unwrap_or_default();
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    harmless(std::env::vars_os().filter_map(text), &also)
}

fn harmless(vars: impl Iterator<Item = (String, String)>, also: &[String]) -> BTreeMap<String, String> {
    vars.filter(|(name, _)| {
        matches!(name.as_str(), "PATH" | "LANG" | "TZ" | "VIRTUAL_ENV")
            || name.starts_with("LC_")
            || also.contains(name)
    })
    .collect()
}

/// Why no session was made. The commonest reason has its own sentence: the key is in this shell, where the daemon,
/// which was started from another, does not see it.
async fn no_session(context: &Context, client: &Client, error: CallError, model: Option<&str>) -> Failure {
    let about_model = error.code() == Some(ErrorCode::InvalidInput)
        && error.data("field").and_then(|field| field.as_str()) == Some("model");
    // Where the settings are wrong, the daemon's own words say more.
    if about_model
        && context::settings_notices(context, client).await.is_empty()
        && let Ok(keys) = client.call::<KeyList>(Empty {}).await
    {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if let Some(variable) = key_only_here(&keys, model, is_set) {
            return Failure::failed(format!("{variable} is set here, but the daemon has no key."))
                .next(format!("{} key import", context.program));
        }
    }
    let failure = context::about_settings(client, Failure::from(error)).await;
    // What was typed cannot be used.
    if about_model && model.is_some() { Failure { exit: Exit::Usage, ..failure } } else { failure }
}

/// The variable of a provider that could be used, if only this environment has its key.
fn key_only_here(
    keys: &agentd_protocol::key::KeyListResult,
    model: Option<&str>,
    is_set: impl Fn(&str) -> bool,
) -> Option<String> {
    let wanted = model.map(|model| model.split('/').next().unwrap_or(model));
    keys.providers
        .iter()
        .filter(|provider| wanted.is_none_or(|wanted| wanted == provider.provider))
        .filter(|provider| !keys.keys.iter().any(|key| key.provider == provider.provider))
        .filter_map(|provider| provider.env.clone())
        .find(|variable| is_set(variable))
}

/// Removes a session.
pub(crate) async fn delete(client: &Client, session_id: SessionId) -> Result<(), Failure> {
    client.call::<method::SessionDelete>(SessionParams { session_id }).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use agentd_protocol::key::{KeyInfo, KeyListResult, KeyProvider};

    use super::*;

    #[test]
    fn only_harmless_variables_travel() {
        let vars = [
            ("PATH", "/bin"),
            ("LANG", "C"),
            ("LC_ALL", "C.UTF-8"),
            ("TZ", "UTC"),
            ("VIRTUAL_ENV", "/v"),
            ("ANTHROPIC_API_KEY", "secret"),
            ("LD_PRELOAD", "/x.so"),
            ("HOME", "/home/u"),
            ("PATHS", "no"),
        ];
        let env = |also: &[String]| {
            harmless(vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())), also)
        };
        let usual = ["LANG", "LC_ALL", "PATH", "TZ", "VIRTUAL_ENV"];
        assert_eq!(env(&[]).keys().collect::<Vec<_>>(), usual);
        assert!(env(&["HOME".to_owned()]).contains_key("HOME"));
    }

    fn keys(known: &[&str]) -> KeyListResult {
        let provider =
            |provider: &str, env: &str| KeyProvider { provider: provider.into(), env: Some(env.into()) };
        KeyListResult {
            keys: known
                .iter()
                .map(|known| KeyInfo { provider: (*known).into(), source: "file".into() })
                .collect(),
            providers: vec![provider("anthropic", "ANTHROPIC_API_KEY"), provider("openai", "OPENAI_API_KEY")],
        }
    }

    #[test]
    fn a_key_that_only_this_shell_has_is_named() {
        let set = |name: &str| name == "ANTHROPIC_API_KEY";
        assert_eq!(key_only_here(&keys(&[]), None, set), Some("ANTHROPIC_API_KEY".into()));
        assert_eq!(key_only_here(&keys(&["anthropic"]), None, set), None);
        assert_eq!(key_only_here(&keys(&[]), None, |_| false), None);
        // Another provider was asked for: its key is not here.
        assert_eq!(key_only_here(&keys(&[]), Some("openai/gpt"), set), None);
        assert_eq!(key_only_here(&keys(&[]), Some("anthropic"), set), Some("ANTHROPIC_API_KEY".into()));
    }

    #[test]
    fn an_empty_prompt_is_a_usage_error() {
        assert_eq!(prompt_text("  ").unwrap_err().exit, Exit::Usage);
        assert_eq!(prompt_text("do it").unwrap(), "do it");
    }
}
