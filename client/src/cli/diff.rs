//! `diff`: what a session changed on disk, and taking parts of it back.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use agentd_client::Client;
use agentd_protocol::changes::{ChangesParams, HunkRef, RevertParams, RevertResult, Span};
use agentd_protocol::method::Method as _;
use agentd_protocol::{SessionId, method};

use super::args::DiffArgs;
use super::context::{self, Context};
use super::exit::{Exit, Failure};
use super::resolve::{self, Here};
use super::{blob, screen};
use crate::render::{Line, Style, diff as render};

/// `agentctl diff`.
pub(crate) async fn diff(context: &Context, args: DiffArgs) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    let (session_id, paths) = session_and_paths(context, &client, &args.words).await?;
    let span = Span { turn: args.turn, since_plan: args.since_plan, from: None, to: None };
    if !args.reject.is_empty() {
        return reject(context, &client, session_id, span, &args).await;
    }
    let paths = paths.iter().map(|path| absolute(path)).collect::<Result<_, _>>()?;
    let params = ChangesParams { session_id, span, paths, stat: args.stat };
    if args.json {
        return match context::print_answer::<method::SessionChanges>(&client, params).await {
            Ok(()) => Ok(Exit::Finished),
            Err(failure) => Err(lead_on(context, &client, session_id, failure).await),
        };
    }
    let mut changes = match client.call::<method::SessionChanges>(params).await {
        Ok(changes) => changes,
        Err(error) => return Err(lead_on(context, &client, session_id, error.into()).await),
    };
    let mut lines = Vec::new();
    if args.stat {
        lines.extend(render::stat(&changes));
    } else {
        for file in &mut changes.files {
            let diff = match file.diff.take() {
                Some(diff) => Some(blob::whole(&client, session_id, diff).await?),
                None => None,
            };
            lines.extend(render::file(file, diff.as_deref()));
        }
    }
    if changes.files.is_empty() {
        lines = vec![Line::styled(Style::Dim, "Nothing changed.")];
    }
    screen::print(&lines)?;
    // Beside the diff where a program may read it.
    let remarks = render::remarks(&changes);
    match std::io::stdout().is_terminal() {
        true => screen::print(&remarks)?,
        false => screen::say(&remarks)?,
    }
    Ok(Exit::Finished)
}

/// Which turns and files there are.
async fn lead_on(context: &Context, client: &Client, session_id: SessionId, failure: Failure) -> Failure {
    let name = context::name_of(client, session_id).await;
    failure
        .then("Its turns: ", format!("{} log {name}", context.program))
        .then("All it changed: ", format!("{} diff {name} --stat", context.program))
}

async fn reject(
    context: &Context,
    client: &Client,
    session_id: SessionId,
    span: Span,
    args: &DiffArgs,
) -> Result<Exit, Failure> {
    let mut params = RevertParams { session_id, span, paths: Vec::new(), hunks: Vec::new() };
    for what in &args.reject {
        let (path, hunk) = path_and_hunk(what);
        let path = absolute(path)?;
        match hunk {
            None => params.paths.push(path),
            Some(hunk) => params.hunks.push(HunkRef { path, hunk }),
        }
    }
    let answer = match client.call_raw(method::SessionRevert::NAME, Some(raw(&params)?)).await {
        Ok(answer) => answer,
        Err(error) => return Err(lead_on(context, client, session_id, error.into()).await),
    };
    let result: RevertResult = serde_json::from_str(answer.get())
        .map_err(|error| Failure::failed(format!("agentd's answer cannot be read: {error}")))?;
    if args.json {
        screen::print_json(answer.get())?;
    } else if result.reverted.is_empty() && result.stays.is_empty() {
        let what = format!("nothing was taken back: no change of it is known: {}", args.reject.join(", "));
        return Err(lead_on(context, client, session_id, Failure::failed(what)).await);
    } else {
        screen::print(&render::reverted(&result))?;
    }
    // Something that was asked for was not done.
    Ok(if result.stays.is_empty() && !result.reverted.is_empty() { Exit::Finished } else { Exit::Failed })
}

/// The first word is a session if it names one, else a path as the others are.
async fn session_and_paths(
    context: &Context,
    client: &Client,
    words: &[String],
) -> Result<(SessionId, Vec<String>), Failure> {
    let own = || context::session(context, client, None, |id| format!("diff {id}"));
    let Some((first, rest)) = words.split_first() else { return Ok((own().await?, Vec::new())) };
    if let Ok(id) = first.parse() {
        return Ok((id, rest.to_vec()));
    }
    let here = Here::new(Path::new("."))?;
    let again = |id: &str| format!("{} diff {id}", context.program);
    match resolve::session(&context::rows(client).await?, Some(first), &here, context.home(), &again) {
        Ok(id) => Ok((id, rest.to_vec())),
        // What looks like a path, or is one, was meant as one.
        Err(_) if first.contains(['/', '.']) || Path::new(first).symlink_metadata().is_ok() => {
            Ok((own().await?, words.to_vec()))
        }
        Err(failure) => Err(failure),
    }
}

fn raw(params: &RevertParams) -> Result<Box<serde_json::value::RawValue>, Failure> {
    serde_json::value::to_raw_value(params)
        .map_err(|error| Failure::failed(format!("the parameters cannot be written: {error}")))
}

/// `src/a.rs:2` is the second change of that file.
fn path_and_hunk(what: &str) -> (&str, Option<u32>) {
    match what.rsplit_once(':').map(|(path, hunk)| (path, hunk.parse())) {
        Some((path, Ok(hunk))) if !path.is_empty() => (path, Some(hunk)),
        _ => (what, None),
    }
}

/// Paths are typed from this folder on; the daemon knows another one.
fn absolute(path: &str) -> Result<String, Failure> {
    let cwd = std::fs::canonicalize(".").map_err(Failure::from)?;
    let mut whole = PathBuf::new();
    for part in cwd.join(path).components() {
        match part {
            std::path::Component::ParentDir => {
                whole.pop();
            }
            std::path::Component::CurDir => {}
            part => whole.push(part),
        }
    }
    whole
        .to_str()
        .map(str::to_owned)
        .ok_or_else(|| Failure::usage(format!("the path {} is not UTF-8", whole.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_behind_the_path_is_one_change_of_it() {
        assert_eq!(path_and_hunk("src/a.rs:2"), ("src/a.rs", Some(2)));
        assert_eq!(path_and_hunk("src/a.rs"), ("src/a.rs", None));
        assert_eq!(path_and_hunk("odd:name"), ("odd:name", None));
        assert_eq!(path_and_hunk(":2"), (":2", None));
    }

    #[test]
    fn paths_are_made_whole() {
        let cwd = std::fs::canonicalize(".").unwrap();
        let parent = cwd.parent().unwrap().join("x");
        assert_eq!(absolute("./../x").unwrap(), parent.to_str().unwrap());
        assert_eq!(absolute("/a/b").unwrap(), "/a/b");
    }
}
