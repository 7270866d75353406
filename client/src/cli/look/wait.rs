//! `agentctl wait`: until a session is idle or needs a person, for scripts.

use agentd_client::{Client, EventStream, StreamItem};
use agentd_protocol::event::{EventBody, SubscribeParams};
use agentd_protocol::session::{Activity, State};
use agentd_protocol::{SessionId, TurnId};

use super::state_of;
use crate::cli::args::{WaitArgs, WaitFor};
use crate::cli::closing::{self, Leaving, Names};
use crate::cli::context::{self, Context};
use crate::cli::demo;
use crate::cli::exit::{Exit, Failure};
use crate::cli::screen;
use crate::render::{Line, Style};

/// `agentctl wait`.
pub(crate) async fn wait(context: &Context, args: WaitArgs) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    let session_id =
        context::session(context, &client, args.session.id.as_deref(), |id| format!("wait {id}")).await?;
    let reached = reached(context, &client, session_id, args.wanted);
    let state = match args.timeout {
        None => reached.await?,
        Some(timeout) => match tokio::time::timeout(timeout, reached).await {
            Ok(state) => state?,
            Err(_) => {
                let state = state_of(&client, session_id).await?;
                let text = format!("{} is not there yet; nothing was stopped.", state.handle);
                screen::say(&[Line::styled(Style::Warn, &text)])?;
                return Ok(Exit::Timeout);
            }
        },
    };
    let names = Names {
        program: &context.program,
        handle: &state.handle,
        cwd: &state.cwd,
        stays: true,
        is_demo: state.model.provider == demo::PROVIDER,
    };
    if state.activity == Activity::Waiting && args.wanted != WaitFor::Turn {
        let leaving = Leaving { exit: Exit::Waiting, stopping: false, shown: false };
        screen::say(&closing::left(leaving, &state.approvals, names))?;
        return Ok(Exit::Waiting);
    }
    let outcome = state.last_outcome;
    let told = outcome.map_or("has had no turn yet", agentd_protocol::turn::Outcome::name);
    screen::say(&[Line::from(format!("{}: {told}", state.handle))])?;
    Ok(outcome.map_or(Exit::Finished, Exit::of_outcome))
}

/// Whether what is waited for has come.
fn is_there(wanted: WaitFor, state: &State, turn: Option<TurnId>) -> bool {
    match wanted {
        WaitFor::Either => state.activity != Activity::Running,
        WaitFor::Idle => state.activity == Activity::Idle,
        WaitFor::Waiting => state.activity == Activity::Waiting,
        WaitFor::Turn => match turn {
            Some(turn) => state.turn_id != Some(turn),
            // One that has been asked for may not have begun.
            None => state.activity == Activity::Idle,
        },
    }
}

/// The session's state once it is as wanted.
async fn reached(
    context: &Context,
    client: &Client,
    session_id: SessionId,
    wanted: WaitFor,
) -> Result<State, Failure> {
    let params = SubscribeParams { session_id: Some(session_id), ..SubscribeParams::default() };
    let mut stream: EventStream = client.subscribe(params).await?;
    let (mut turn, mut leaving) = (None, false);
    loop {
        let body = match stream.next().await? {
            None => return Err(Failure::failed("the session was deleted")),
            Some(StreamItem::Reconnecting) => {
                context.bring_back(leaving);
                continue;
            }
            Some(StreamItem::Reconnected) => {
                leaving = false;
                continue;
            }
            Some(StreamItem::Event(received)) => received.event.body,
        };
        let state = match body {
            EventBody::Synced { state: Some(state), .. } => *state,
            EventBody::SessionDeleted {} => return Err(Failure::failed("the session was deleted")),
            EventBody::ShuttingDown {} => {
                leaving = true;
                continue;
            }
            // Something may have changed: how it stands now counts, not how it stood when this was said.
            EventBody::StateChanged { .. } | EventBody::TurnFinished { .. } => {
                state_of(client, session_id).await?
            }
            _ => continue,
        };
        turn = turn.or(state.turn_id);
        if is_there(wanted, &state, turn) {
            return Ok(state);
        }
    }
}
