//! `ls`, `fork`, `rewind`, `archive`, `rm`, `mode`, `plan show`: looking at sessions and changing one thing.

use agentd_client::CallError;
use agentd_protocol::method;
use agentd_protocol::plan::PlanGetParams;
use agentd_protocol::session::{
    Activity, ArchiveParams, ForkParams, ListParams, Order, RewindParams, SessionParams, SetModeParams,
};
use agentd_protocol::{ErrorCode, Mode, Seq};
use std::io::IsTerminal;
use std::path::Path;

use super::args::{ArchiveArgs, ForkArgs, LsArgs, ModeArgs, RewindArgs, RmArgs, SessionArg};
use super::context::{self, Context, now};
use super::exit::{Exit, Failure};
use super::look::past::{find_turn, turn_from};
use super::resolve::Here;
use super::{run, screen};
use crate::render::{Line, Style, line, list, markdown};

/// `agentctl ls`.
pub(crate) async fn ls(context: &Context, args: LsArgs) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    let params = ListParams { order: Order::Updated, archived: args.all, ..ListParams::default() };
    if args.json {
        context::print_answer::<method::SessionList>(&client, params).await?;
        return Ok(Exit::Finished);
    }
    let rows = client.call::<method::SessionList>(params).await?.sessions;
    let here = Here::new(Path::new("."))?.cwd.display().to_string();
    let lines = if rows.is_empty() {
        vec![
            Line::from("No sessions yet. Next: ")
                .with(Style::Command, &format!("{} run \"…\"", context.program)),
        ]
    } else {
        list::list(&rows, args.all, &here, context.home(), now(), screen::print_width(), &context.program)
    };
    screen::print(&lines)?;
    Ok(Exit::Finished)
}

/// `agentctl rm`.
pub(crate) async fn rm(context: &Context, args: RmArgs) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    let session_id = context::session(context, &client, Some(&args.id), |id| format!("rm {id}")).await?;
    let state = client.call::<method::SessionGet>(SessionParams { session_id }).await?.state;
    let handle = state.handle;
    let does = match state.activity {
        Activity::Idle => None,
        Activity::Running => Some("is at work"),
        Activity::Waiting => Some("waits for your answer"),
    };
    if let Some(does) = does.filter(|_| !args.force) {
        return Err(Failure::failed(format!("{handle} {does}; nothing was deleted"))
            .next(format!("{} rm --force {}", context.program, args.id)));
    }
    run::delete(&client, session_id).await?;
    screen::print(&[Line::from(format!("{handle} is deleted."))])?;
    Ok(Exit::Finished)
}

/// `agentctl fork`.
pub(crate) async fn fork(context: &Context, args: ForkArgs) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    let session_id =
        context::session(context, &client, args.session.id.as_deref(), |id| format!("fork {id}")).await?;
    let params = ForkParams { session_id, at_seq: args.at.map(Seq), new_session_id: None };
    let made = match client.call::<method::SessionFork>(params).await {
        Ok(made) => made,
        Err(error) if args.at.is_some() => {
            // Which number is meant is read off the events.
            let name = context::name_of(&client, session_id).await;
            let see = format!("{} events {name} --after 0 --no-follow", context.program);
            return Err(Failure::from(error).then("Its events and their numbers: ", see));
        }
        Err(error) => return Err(error.into()),
    };
    let turns = counted(made.state.turns.saturating_sub(made.state.forgotten_turns), "turn");
    screen::print(&[
        Line::from(format!("{} has {turns} behind it; mode {}.", made.handle, made.state.mode)),
        Line::styled(
            Style::Dim,
            "It is the newest session of its folder now: commands without a name mean it.",
        ),
        Line::styled(Style::Dim, "Next: ")
            .with(Style::Command, &format!("{} send {} \"…\"", context.program, made.handle)),
    ])?;
    Ok(Exit::Finished)
}

/// `agentctl rewind`.
pub(crate) async fn rewind(context: &Context, args: RewindArgs) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    let session_id =
        context::session(context, &client, args.session.id.as_deref(), |id| format!("rewind {id}")).await?;
    let state = client.call::<method::SessionGet>(SessionParams { session_id }).await?.state;
    let see = format!("{} log {}", context.program, state.handle);
    let known = state.turns.saturating_sub(state.forgotten_turns);
    let mut params = RewindParams { session_id, before_turn: None, turns: None, files: args.files };
    match args.turn {
        None if u64::from(args.turns) > known => {
            let has = match known {
                0 => "no turn that could be forgotten".to_owned(),
                known => format!("{} that could be forgotten", counted(known, "turn")),
            };
            return Err(Failure::usage(format!("{} has {has}", state.handle)).next(see));
        }
        None => params.turns = Some(args.turns),
        Some(number) => {
            let wanted = |turn: u64, _| turn == u64::from(number);
            let Some((_, start)) = find_turn(&client, &state, wanted).await? else {
                let has = counted(state.turns, "turn");
                let text = format!("{} has {has}, there is no turn {number}", state.handle);
                return Err(Failure::usage(text).next(see));
            };
            let turn = turn_from(&client, &state, start).await?;
            params.before_turn = turn.first().and_then(|first| first.event.turn_id);
        }
    }
    let rewound = client.call::<method::SessionRewind>(params).await;
    let result = rewound.map_err(|error| not_at_rest(context, &state.handle, error))?;
    let what = match result.turns {
        0 => "that turn was forgotten already".to_owned(),
        1 => "the last turn is forgotten".to_owned(),
        turns => format!("the last {turns} turns are forgotten"),
    };
    let mut lines = vec![Line::from(format!("{}: {what}.", state.handle))];
    match &result.files {
        Some(files) => lines.extend(crate::render::diff::reverted(files)),
        None => lines.push(Line::styled(Style::Dim, "Files are as they were.")),
    }
    screen::print(&lines)?;
    Ok(Exit::Finished)
}

/// `agentctl archive`.
pub(crate) async fn archive(context: &Context, args: ArchiveArgs) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    let session_id = context::session(context, &client, Some(&args.id), |id| format!("archive {id}")).await?;
    let handle = client.call::<method::SessionGet>(SessionParams { session_id }).await?.state.handle;
    let archived =
        client.call::<method::SessionArchive>(ArchiveParams { session_id, archived: !args.undo }).await;
    archived.map_err(|error| not_at_rest(context, &handle, error))?;
    let lines = match args.undo {
        true => vec![Line::from(format!("{handle} is in the lists again."))],
        false => vec![
            Line::from(format!("{handle} is put away.")),
            Line::from("To take it back: ")
                .with(Style::Command, &format!("{} archive --undo {handle}", context.program)),
        ],
    };
    screen::print(&lines)?;
    Ok(Exit::Finished)
}

/// It works, or waits for somebody, and only a session at rest can be changed like this.
fn not_at_rest(context: &Context, handle: &str, error: CallError) -> Failure {
    let is_conflict = error.code() == Some(ErrorCode::Conflict);
    let (text, failure) = (error.to_string(), Failure::from(error));
    match (is_conflict, text.contains("waits for an answer")) {
        (false, _) => failure,
        (true, true) => failure
            .then("To answer: ", format!("{} attach {handle}", context.program))
            .then("To stop it: ", format!("{} stop {handle}", context.program)),
        (true, false) if text.contains("prompts") => {
            failure.then("To drop them: ", format!("{} stop --drop {handle}", context.program))
        }
        (true, false) if text.contains("running") => {
            failure.then("To stop it: ", format!("{} stop {handle}", context.program))
        }
        (true, false) => failure.next(format!("{} log {handle}", context.program)),
    }
}

fn counted(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

/// `agentctl mode`.
pub(crate) async fn mode(context: &Context, args: ModeArgs) -> Result<Exit, Failure> {
    let (id, mode) = mode_words(&args.words)?;
    let again = |id: &str| mode.map_or(format!("mode {id}"), |mode| format!("mode {id} {mode}"));
    let client = context.connect_or_start().await?;
    let session_id = context::session(context, &client, id.as_deref(), again).await.map_err(|failure| {
        match (&id, mode) {
            // One word that is no mode was taken for a session.
            (Some(word), None) if failure.exit == Exit::Usage && !failure.message.contains("several") => {
                Failure::usage(format!("{word:?} is neither a mode nor a session"))
                    .next(format!("{} mode --help", context.program))
            }
            _ => failure,
        }
    })?;
    let state = client.call::<method::SessionGet>(SessionParams { session_id }).await?.state;
    let line = match mode {
        None => {
            let back = state.pre_mode.map_or(String::new(), |mode| format!(", then back to {mode}"));
            format!("{}: {}{back}", state.handle, state.mode)
        }
        Some(mode) => {
            let result = client.call::<method::SessionSetMode>(SetModeParams { session_id, mode }).await?;
            format!("{}: {} → {}", state.handle, state.mode, result.mode)
        }
    };
    screen::print(&[Line::from(line)])?;
    Ok(Exit::Finished)
}

/// One word alone is a mode if it is the name of one.
fn mode_words(words: &[String]) -> Result<(Option<String>, Option<Mode>), Failure> {
    match words {
        [] => Ok((None, None)),
        [word] => match word.parse() {
            Ok(mode) => Ok((None, Some(mode))),
            Err(_) => Ok((Some(word.clone()), None)),
        },
        [id, mode, ..] => {
            let mode = mode
                .parse()
                .map_err(|error: agentd_protocol::mode::UnknownMode| Failure::usage(error.to_string()))?;
            Ok((Some(id.clone()), Some(mode)))
        }
    }
}

/// `agentctl plan show`.
pub(crate) async fn plan_show(context: &Context, args: SessionArg) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    let session_id =
        context::session(context, &client, args.id.as_deref(), |id| format!("plan show {id}")).await?;
    let plan =
        client.call::<method::PlanGet>(PlanGetParams { session_id }).await.map_err(|error| {
            match error.code() {
                Some(ErrorCode::NotFound) => {
                    Failure::failed("this session has no plan; it was never in plan mode").next(format!(
                        "{} mode plan {}",
                        context.program,
                        args.id.as_deref().unwrap_or("@")
                    ))
                }
                _ => error.into(),
            }
        })?;
    if !std::io::stdout().is_terminal() {
        if plan.content.is_empty() {
            screen::say(&[Line::styled(Style::Dim, "The plan is still empty.")])?;
            return Ok(Exit::Finished);
        }
        screen::print_text(&plan.content)?;
        return Ok(Exit::Finished);
    }
    let revision = plan.plan.revision.map_or("still empty".to_owned(), crate::render::approval::short_digest);
    let mut lines = vec![
        Line::styled(
            Style::Dim,
            &format!("{} · {revision}", line::short_path(&plan.plan.path, context.home())),
        ),
        Line::new(),
    ];
    lines.extend(markdown::render(&plan.content, screen::print_width()));
    screen::print(&lines)?;
    Ok(Exit::Finished)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_is_a_mode_or_a_session() {
        let words =
            |words: &[&str]| mode_words(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(words(&["plan"]).unwrap(), (None, Some(Mode::Plan)));
        assert_eq!(words(&["api-otter"]).unwrap(), (Some("api-otter".into()), None));
        assert_eq!(
            words(&["api-otter", "accept-edits"]).unwrap(),
            (Some("api-otter".into()), Some(Mode::AcceptEdits))
        );
        assert_eq!(words(&["api-otter", "yolo"]).unwrap_err().exit, Exit::Usage);
        assert_eq!(words(&[]).unwrap(), (None, None));
    }
}
