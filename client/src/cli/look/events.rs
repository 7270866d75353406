//! `agentctl events`: events as they come, one a line, for programs.

use agentd_client::StreamItem;
use agentd_protocol::event::{EventBody, SubscribeParams};
use agentd_protocol::{FeedSeq, Seq, SessionId};

use super::past::FromStart;
use crate::cli::args::EventsArgs;
use crate::cli::context::{self, Context};
use crate::cli::exit::{Exit, Failure};
use crate::cli::reader::Reader;
use crate::cli::screen;
use crate::cli::signals::{Caught, Signals};

/// `agentctl events`.
pub(crate) async fn events(context: &Context, args: EventsArgs) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    let session_id = match args.all {
        true => None,
        false => Some(
            context::session(context, &client, args.session.id.as_deref(), |id| format!("events {id}"))
                .await?,
        ),
    };
    let printed = match session_id.filter(|_| args.no_follow) {
        Some(session) => history(&client, session, args.after.map(Seq).unwrap_or_default()).await,
        None => {
            let params = SubscribeParams {
                session_id,
                after_seq: args.after.filter(|_| session_id.is_some()).map(Seq),
                after_feed_seq: args.after.filter(|_| session_id.is_none()).map(FeedSeq),
                deltas: args.deltas,
                ..SubscribeParams::default()
            };
            follow(context, &client, params).await
        }
    };
    match printed {
        Err(failure) if failure.reader_gone => Ok(Exit::Finished),
        Err(failure) => Err(failure),
        Ok(()) => Ok(Exit::Finished),
    }
}

async fn history(client: &agentd_client::Client, session: SessionId, after: Seq) -> Result<(), Failure> {
    let mut pages = FromStart::new(client, session, after, None);
    while let Some(page) = pages.next().await? {
        for received in page {
            screen::print_json(received.raw.get())?;
        }
    }
    Ok(())
}

async fn follow(
    context: &Context,
    client: &agentd_client::Client,
    params: SubscribeParams,
) -> Result<(), Failure> {
    let mut signals = Signals::catch()?;
    let reader = Reader::of_stdout();
    let mut stream = client.subscribe(params).await?;
    let mut leaving = false;
    loop {
        let item = tokio::select! {
            biased;
            caught = signals.next() => match caught {
                Caught::Interrupt | Caught::Leave => return Ok(()),
                Caught::Resized | Caught::Continued => continue,
            },
            () = reader.gone() => return Ok(()),
            item = stream.next() => item?,
        };
        match item {
            None => return Ok(()),
            Some(StreamItem::Event(received)) => {
                leaving = matches!(received.event.body, EventBody::ShuttingDown {}) || leaving;
                screen::print_json(received.raw.get())?;
            }
            Some(StreamItem::Reconnecting) => context.bring_back(leaving),
            Some(StreamItem::Reconnected) => leaving = false,
        }
    }
}
