//! `agentctl export` and `agentctl import`: a session as a document, as events, or as a bundle that moves it.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use agentd_client::Client;
use agentd_protocol::method;
use agentd_protocol::plan::PlanGetParams;
use agentd_protocol::session::{SessionParams, State};
use agentd_protocol::transfer::{ExportParams, Format, ImportParams};

use super::args::{ExportArgs, ExportFormat, ImportArgs};
use super::blob::whole;
use super::context::{self, Context};
use super::exit::{Exit, Failure};
use super::look::{log, paper, past, transcript};
use super::resolve::Here;
use super::{run, screen};
use crate::render::{Line, Style};

/// `agentctl export`.
pub(crate) async fn export(context: &Context, args: ExportArgs) -> Result<Exit, Failure> {
    if args.copy && args.format != ExportFormat::Bundle {
        return Err(Failure::usage("only a bundle moves a session; anything else is a copy anyway")
            .next(format!("{} export --format bundle --copy", context.program)));
    }
    let client = context.connect_or_start().await?;
    let session_id =
        context::session(context, &client, args.session.id.as_deref(), |id| format!("export {id}")).await?;
    let state = client.call::<method::SessionGet>(SessionParams { session_id }).await?.state;
    if args.format == ExportFormat::Bundle {
        return bundle(context, &client, &state, args).await;
    }
    let mut paper = Paper::open(args.output.as_deref(), args.force)?;
    let written = match args.format {
        ExportFormat::Jsonl => log::each_event(&client, &state, None, |line| paper.line(line)).await,
        _ => markdown(&client, &state, &mut paper).await,
    };
    match written {
        // `head` has what it wanted.
        Err(failure) if failure.reader_gone => return Ok(Exit::Finished),
        other => other?,
    }
    if let Some(path) = paper.finish()? {
        screen::print(&[Line::from(format!("{} is in {}.", state.handle, path.display()))])?;
    }
    Ok(Exit::Finished)
}

async fn markdown(client: &Client, state: &State, paper: &mut Paper) -> Result<(), Failure> {
    paper.text(&paper::head(state))?;
    let mut turns = transcript::Transcript::after(0);
    let mut pages = past::FromStart::until(client, state);
    while let Some(page) = pages.next().await? {
        page.into_iter().for_each(|received| turns.take(received.event));
        for turn in turns.take_complete() {
            write_turn(client, state, turn, paper).await?;
        }
    }
    for turn in turns.take_rest() {
        write_turn(client, state, turn, paper).await?;
    }
    if state.plan.is_some() {
        let plan = client.call::<method::PlanGet>(PlanGetParams { session_id: state.session_id }).await?;
        paper.text(&paper::plan(&plan.content))?;
    }
    Ok(())
}

async fn write_turn(
    client: &Client,
    state: &State,
    mut turn: transcript::Turn,
    paper: &mut Paper,
) -> Result<(), Failure> {
    for text in paper::texts(&mut turn) {
        *text = whole(client, state.session_id, text.clone()).await?.into();
    }
    paper.text(&paper::turn(&turn))
}

async fn bundle(
    context: &Context,
    client: &Client,
    state: &State,
    args: ExportArgs,
) -> Result<Exit, Failure> {
    let named = args.output.unwrap_or_else(|| format!("{}.agentd", state.handle).into());
    let path = absolute(&named)?;
    let params = ExportParams {
        session_id: state.session_id,
        path: path.clone(),
        format: Format::Bundle,
        copy: args.copy,
        replace: args.force,
    };
    // At work: what to type stands in the daemon's words, which knows what waits.
    let made = client.call::<method::SessionExport>(params).await?;
    let size = made.bytes.div_ceil(1024);
    let import = format!("{} import {}", context.program, context::shell_word(&made.path));
    let lines = match args.copy {
        true => vec![
            Line::from(format!("A copy of {} is in {} ({size} KiB).", state.handle, made.path)),
            Line::from("To make a session of it: ").with(Style::Command, &import),
        ],
        false => vec![
            Line::from(format!("{} is handed over to {} ({size} KiB).", state.handle, made.path)),
            Line::from("It can only be looked at here now. To go on with it, here or elsewhere: ")
                .with(Style::Command, &import),
        ],
    };
    screen::print(&lines)?;
    Ok(Exit::Finished)
}

/// `agentctl import`.
pub(crate) async fn import(context: &Context, args: ImportArgs) -> Result<Exit, Failure> {
    let path = absolute(&args.file)?;
    let cwd = args.cwd.as_deref().map(Here::new).transpose()?.map(|here| here.cwd.display().to_string());
    let client = context.connect_or_start().await?;
    let env = run::session_env(&client).await;
    let params = ImportParams { path, cwd, session_id: args.session_id, env };
    let taken = client.call::<method::SessionImport>(params).await.map_err(|error| {
        let elsewhere = error.data("field").and_then(|field| field.as_str()) == Some("cwd");
        let failure = Failure::from(error);
        match elsewhere && args.cwd.is_none() {
            true => failure.next(format!(
                "{} import {} --cwd DIR",
                context.program,
                context::shell_word(&args.file.display().to_string())
            )),
            false => failure,
        }
    })?;
    let (state, handle) = (&taken.state, &taken.handle);
    let is = if taken.taken_back { "is back" } else { "is here" };
    let turns = if state.turns == 1 { "1 turn".to_owned() } else { format!("{} turns", state.turns) };
    let mut lines = vec![Line::from(format!(
        "{handle} {is}, with {turns} behind it; mode {}, in {}.",
        state.mode, state.cwd
    ))];
    lines.extend(taken.note.as_deref().map(Line::from));
    lines
        .push(Line::from("Next: ").with(Style::Command, &format!("{} send {handle} \"…\"", context.program)));
    screen::print(&lines)?;
    Ok(Exit::Finished)
}

/// The daemon has another working directory.
fn absolute(path: &Path) -> Result<String, Failure> {
    let path = std::path::absolute(path)
        .map_err(|error| Failure::usage(format!("cannot use {}: {error}", path.display())))?;
    match path.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(Failure::usage(format!("the name of {} is not UTF-8", path.display()))),
    }
}

/// Where an export is written: to stdout, or into a new file that is there whole or not at all.
enum Paper {
    Stdout,
    File { file: std::io::BufWriter<tempfile::NamedTempFile>, path: PathBuf, force: bool },
}

impl Paper {
    fn open(path: Option<&Path>, force: bool) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::Stdout) };
        let path: PathBuf = absolute(path)?.into();
        if !force && path.symlink_metadata().is_ok() {
            return Err(exists(&path));
        }
        let folder = path.parent().unwrap_or(Path::new("/"));
        // Only its owner can read it, from the first byte on.
        let file = tempfile::Builder::new()
            .prefix(".agentctl-")
            .tempfile_in(folder)
            .map_err(|error| Failure::failed(format!("cannot write into {}: {error}", folder.display())))?;
        Ok(Self::File { file: std::io::BufWriter::new(file), path, force })
    }

    fn text(&mut self, text: &str) -> Result<(), Failure> {
        match self {
            Self::Stdout => Ok(screen::print_piece(text)?),
            Self::File { file, .. } => Ok(file.write_all(text.as_bytes())?),
        }
    }

    fn line(&mut self, line: &str) -> Result<(), Failure> {
        match self {
            Self::Stdout => Ok(screen::print_json(line)?),
            Self::File { file, .. } => Ok(writeln!(file, "{line}")?),
        }
    }

    fn finish(self) -> Result<Option<PathBuf>, Failure> {
        let Self::File { file, path, force } = self else { return Ok(None) };
        let file = file.into_inner().map_err(|error| Failure::from(error.into_error()))?;
        file.as_file().sync_all()?;
        let kept = if force { file.persist(&path) } else { file.persist_noclobber(&path) };
        match kept {
            Ok(_) => Ok(Some(path)),
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Err(exists(&path)),
            Err(error) => Err(Failure::failed(format!("cannot write {}: {}", path.display(), error.error))),
        }
    }
}

fn exists(path: &Path) -> Failure {
    Failure::failed(format!("{} exists already; nothing was written", path.display()))
        .next("another name, or --force")
}
