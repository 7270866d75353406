//! The commands of agentctl: one module a group of commands, and below them what they share. `follow` and `ask` hold
//! the rules and do nothing; `watch` and `approve` connect them to the daemon and the terminal.

mod approve;
pub(crate) mod args;
mod ask;
mod auto;
mod blob;
mod breaker;
mod closing;
mod config;
mod context;
mod daemon;
mod demo;
mod diff;
mod editor;
pub(crate) mod exit;
mod follow;
mod key;
mod look;
mod moving;
mod reader;
mod resolve;
mod run;
mod screen;
mod search;
mod sessions;
mod signals;
mod terminal;
mod trust;
mod watch;
mod why;

use std::io;

use args::{Cli, Command, PlanCommand};
use context::Context;
use exit::{Exit, Failure};

use crate::render::{Line, Style};

/// Carries out one command line.
///
/// # Errors
/// Whatever keeps the command from being done, with its exit code.
pub(crate) async fn dispatch(cli: Cli) -> Result<Exit, Failure> {
    let context = Context::new(cli.socket);
    command(&context, cli.command).await.map_err(|failure| failure.called(&context.program, context.home()))
}

async fn command(context: &Context, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Demo(args) => demo::demo(context, args).await,
        Command::Run(args) => run::run(context, args).await,
        Command::Send(args) => run::send(context, args).await,
        Command::Stop(args) => run::stop(context, args).await,
        Command::Attach(args) => run::attach(context, args).await,
        Command::Log(args) => look::log::log(context, args).await,
        Command::Show(args) => look::show::show(context, args).await,
        Command::Events(args) => look::events::events(context, args).await,
        Command::Wait(args) => look::wait::wait(context, args).await,
        Command::Ls(args) => sessions::ls(context, args).await,
        Command::Fork(args) => sessions::fork(context, args).await,
        Command::Rewind(args) => sessions::rewind(context, args).await,
        Command::Archive(args) => sessions::archive(context, args).await,
        Command::Export(args) => moving::export(context, args).await,
        Command::Import(args) => moving::import(context, args).await,
        Command::Diff(args) => diff::diff(context, args).await,
        Command::Search(args) => search::search(context, args).await,
        Command::Rm(args) => sessions::rm(context, args).await,
        Command::Waiting(args) => approve::waiting(context, args).await,
        Command::Approve(args) => approve::approve(context, args).await,
        Command::Deny(args) => approve::deny(context, args).await,
        Command::Mode(args) => sessions::mode(context, args).await,
        Command::Why(args) => why::why(context, args).await,
        Command::Rules(args) => trust::rules(context, args).await,
        Command::Breaker(args) => breaker::breaker(context, args).await,
        Command::Trust(args) => trust::trust(context, args).await,
        Command::Config(command) => config::config(context, command).await,
        Command::Plan(PlanCommand::Show(args)) => sessions::plan_show(context, args).await,
        Command::Key(command) => key::key(context, command).await,
        Command::Daemon(command) => daemon::daemon(context, command).await,
        Command::Rpc(args) => daemon::rpc(context, args).await,
    }
}

/// Says on stderr what went wrong and what to type next.
pub(crate) fn print_failure(failure: &Failure) -> io::Result<()> {
    if failure.message.is_empty() {
        return Ok(());
    }
    let mut lines: Vec<Line> = crate::render::style::lines_of(&failure.message).map(Line::from).collect();
    if let Some(first) = lines.first_mut() {
        *first = std::mem::take(first).behind(&Line::styled(Style::Bad, "agentctl: "));
    }
    lines.extend(failure.next.iter().cloned());
    screen::say(&lines)
}
