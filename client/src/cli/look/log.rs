//! `agentctl log`: the conversation, the newest turns last.

use std::io::IsTerminal;

use agentd_client::Client;
use agentd_protocol::Seq;
use agentd_protocol::session::{Activity, State};

use super::draw::{Detail, Page};
use super::past::{FromStart, newest_turns, rewinds};
use super::state_of;
use super::transcript::{Transcript, Turn};
use crate::cli::args::LogArgs;
use crate::cli::context::{self, Context, now};
use crate::cli::exit::{Exit, Failure};
use crate::cli::screen;
use crate::render::approval::next_command;
use crate::render::{Line, Style};

/// `agentctl log`.
pub(crate) async fn log(context: &Context, args: LogArgs) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    let session_id =
        context::session(context, &client, args.session.id.as_deref(), |id| format!("log {id}")).await?;
    let state = state_of(&client, session_id).await?;
    let turns = (!args.all).then_some(args.turns);
    let printed = if args.json {
        each_event(&client, &state, turns, |line| Ok(screen::print_json(line)?)).await
    } else {
        print(context, &client, &state, turns).await
    };
    match printed {
        // `head` has what it wanted.
        Err(failure) if failure.reader_gone => Ok(Exit::Finished),
        Err(failure) => Err(failure),
        Ok(()) => Ok(Exit::Finished),
    }
}

/// The events of the newest `turns` turns, or all, as they are journaled.
pub(crate) async fn each_event(
    client: &Client,
    state: &State,
    turns: Option<u64>,
    mut write: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    match turns {
        Some(turns) => {
            for received in newest_turns(client, state, turns).await?.events {
                write(received.raw.get())?;
            }
        }
        None => {
            let mut pages = FromStart::until(client, state);
            while let Some(page) = pages.next().await? {
                for received in page {
                    write(received.raw.get())?;
                }
            }
        }
    }
    Ok(())
}

async fn print(context: &Context, client: &Client, state: &State, turns: Option<u64>) -> Result<(), Failure> {
    if state.turns == 0 {
        let next = format!("{} send {} \"…\"", context.program, state.handle);
        let line = Line::from(format!("{} has had no turn yet. Next: ", state.handle));
        return Ok(screen::say(&[line.with(Style::Command, &next)])?);
    }
    match turns {
        Some(turns) => {
            let tail = newest_turns(client, state, turns).await?;
            if tail.earlier > 0 {
                let hint = format!("{} earlier; all of them: ", count(tail.earlier));
                let all = format!("{} log {} --all", context.program, state.handle);
                screen::print(&[Line::styled(Style::Dim, &hint).with(Style::Command, &all), Line::new()])?;
            }
            let mut transcript = Transcript::after(tail.earlier);
            tail.events.into_iter().for_each(|received| transcript.take(received.event));
            draw(state, transcript.take_rest())?;
        }
        None => {
            // A page is printed before the next is read, and a rewind comes after what it makes forgotten.
            let known =
                if state.forgotten_turns > 0 { rewinds(client, state, Seq(0)).await? } else { Vec::new() };
            let mut transcript = Transcript::after(0).knowing(known);
            let mut pages = FromStart::until(client, state);
            while let Some(page) = pages.next().await? {
                page.into_iter().for_each(|received| transcript.take(received.event));
                draw(state, transcript.take_complete())?;
            }
            draw(state, transcript.take_rest())?;
        }
    }
    let next: Vec<Line> = state
        .approvals
        .iter()
        .map(|approval| {
            let answer = format!("{} {}", context.program, next_command(approval));
            Line::styled(Style::Warn, "Waits for your answer: ").with(Style::Command, &answer)
        })
        .collect();
    Ok(screen::say(&next)?)
}

fn count(turns: u64) -> String {
    if turns == 1 { "1 turn is".to_owned() } else { format!("{turns} turns are") }
}

fn draw(state: &State, turns: Vec<Turn>) -> Result<(), Failure> {
    let page = page(state, Detail::Short);
    let lines: Vec<Line> = turns.iter().flat_map(|turn| page.turn(turn)).collect();
    Ok(screen::print(&lines)?)
}

/// How `state`'s turns are drawn on stdout.
pub(super) fn page(state: &State, detail: Detail) -> Page<'_> {
    Page {
        detail,
        cwd: &state.cwd,
        width: screen::print_width(),
        terminal: std::io::stdout().is_terminal(),
        now: now(),
        open: match state.activity {
            Activity::Waiting => "waiting for you",
            Activity::Running | Activity::Idle => "running",
        },
    }
}
