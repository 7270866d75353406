//! `agentctl show`: a session in a page, or one turn, call or message of it whole.

use agentd_client::Client;
use agentd_protocol::blob::BlobRef;
use agentd_protocol::event::{EventBody, Text};
use agentd_protocol::session::{SessionParams, State};
use agentd_protocol::{CallId, MessageId, Seq, SessionId, method};
use serde_json::Value;

use super::draw::{Detail, clock};
use super::log::page;
use super::past::{find, find_turn, rewinds, turn_from};
use super::state_of;
use super::transcript::{Call, Entry, Transcript, Turn};
use crate::cli::args::ShowArgs;
use crate::cli::blob;
use crate::cli::context::{self, Context};
use crate::cli::exit::{Exit, Failure};
use crate::cli::screen;
use crate::render::style::quoted;
use crate::render::{Line, Style};

/// The shortest end of an id that is taken.
const MIN_END: usize = 4;
/// An end of so many digits is taken at its first match: another one is as good as impossible.
const SURE: usize = 12;

/// What is shown of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Thing {
    Turn(u64),
    /// A call or a message, by the end of its id.
    End(String),
}

/// `agentctl show`.
pub(crate) async fn show(context: &Context, args: ShowArgs) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    let (session_id, wanted) = words(context, &client, &args.words).await?;
    if args.json {
        if wanted.is_some() {
            let events =
                format!("{} log {} --json", context.program, context::name_of(&client, session_id).await);
            return Err(Failure::usage("show --json prints a session, not one thing of it")
                .then("Its events: ", events));
        }
        context::print_answer::<method::SessionGet>(&client, SessionParams { session_id }).await?;
        return Ok(Exit::Finished);
    }
    let state = state_of(&client, session_id).await?;
    let shown = match wanted {
        None => {
            let about = super::state::about(&client, &state).await?;
            screen::print(&super::state::page(&state, &about, context)).map_err(Failure::from)
        }
        Some(thing) => show_thing(context, &client, &state, thing).await,
    };
    match shown {
        Err(failure) if failure.reader_gone => Ok(Exit::Finished),
        Err(failure) => Err(failure),
        Ok(()) => Ok(Exit::Finished),
    }
}

async fn words(
    context: &Context,
    client: &Client,
    words: &[String],
) -> Result<(SessionId, Option<Thing>), Failure> {
    match words {
        [] => Ok((context::session(context, client, None, |id| format!("show {id}")).await?, None)),
        [word] => {
            if let Some(session) = session_of_id(word) {
                return Ok((session, thing(word)));
            }
            if word.starts_with('#') {
                return Ok((
                    context::session(context, client, None, |id| format!("show {id}")).await?,
                    Some(named(word)?),
                ));
            }
            match context::session(context, client, Some(word), |id| format!("show {id}")).await {
                Ok(session) => Ok((session, None)),
                // What names no session may name something in this folder's.
                Err(failure) => match thing(word) {
                    Some(thing) if !failure.message.contains("several") => {
                        let here = context::session(context, client, None, |id| format!("show {id}"))
                            .await
                            .map_err(|_| failure)?;
                        Ok((here, Some(thing)))
                    }
                    _ => Err(failure),
                },
            }
        }
        [session, word, ..] => Ok((
            context::session(context, client, Some(session), |id| format!("show {id}")).await?,
            Some(named(word)?),
        )),
    }
}

/// The session of a full id of a call or message.
fn session_of_id(word: &str) -> Option<SessionId> {
    let call = word.parse::<CallId>().ok().map(|id| id.session());
    call.or_else(|| word.parse::<MessageId>().ok().map(|id| id.session()))
}

fn named(word: &str) -> Result<Thing, Failure> {
    thing(word).ok_or_else(|| {
        Failure::usage(format!("{} is no turn, call or message", quoted(word)))
            .advice("A turn is named as 7 or '#7', anything else by the end of its id, as log shows it.")
            .next("agentctl log")
    })
}

/// A number is a turn's; four hex digits or more are the end of an id.
fn thing(word: &str) -> Option<Thing> {
    if let Some(number) = word.strip_prefix('#') {
        return number.parse().ok().filter(|number| *number > 0).map(Thing::Turn);
    }
    if let Some(number) = word.parse().ok().filter(|number| *number > 0 && word.len() < MIN_END) {
        return Some(Thing::Turn(number));
    }
    let token = word.rsplit(':').next().unwrap_or(word);
    let is_end = token.len() >= MIN_END
        && token.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        && (token == word || session_of_id(word).is_some());
    is_end.then(|| Thing::End(token.to_owned()))
}

async fn show_thing(context: &Context, client: &Client, state: &State, wanted: Thing) -> Result<(), Failure> {
    match wanted {
        Thing::Turn(number) => {
            let Some((_, start)) = find_turn(client, state, |turn, _| turn == number).await? else {
                let text = match state.turns {
                    0 => format!("{} has had no turn yet", state.handle),
                    turns => format!("{} has no turn #{number}; its turns are 1 to {turns}", state.handle),
                };
                return Err(Failure::failed(text).next(format!("{} log {}", context.program, state.handle)));
            };
            let mut turn = turn(client, state, number, start).await?;
            for entry in &mut turn.entries {
                whole(client, state.session_id, entry).await?;
            }
            screen::print(&page(state, Detail::Whole).turn(&turn)).map_err(Failure::from)
        }
        Thing::End(end) => {
            let found = find_end(client, state, &end).await?;
            let Some((number, start)) = find_turn(client, state, |_, seq| seq <= found).await? else {
                return Err(not_found(context, state, &end));
            };
            let mut turn = turn(client, state, number, start).await?;
            let Some(entry) = turn.entries.iter_mut().find(|entry| has_end(entry, &end)) else {
                return Err(not_found(context, state, &end));
            };
            whole(client, state.session_id, entry).await?;
            let when = turn.started.map_or(String::new(), |at| format!(" · {}", clock(at)));
            let mut lines =
                vec![Line::styled(Style::Dim, &format!("{} · turn #{number}{when}", state.handle))];
            if let Some(entry) = turn.entries.iter().find(|entry| has_end(entry, &end)) {
                page(state, Detail::Whole).entry(entry, &mut lines);
            }
            screen::print(&lines).map_err(Failure::from)
        }
    }
}

async fn turn(client: &Client, state: &State, number: u64, start: Seq) -> Result<Turn, Failure> {
    let mut transcript = Transcript::after(number - 1).knowing(rewinds(client, state, start).await?);
    turn_from(client, state, start).await?.into_iter().for_each(|received| transcript.take(received.event));
    transcript
        .take_rest()
        .into_iter()
        .find(|turn| turn.number.is_some())
        .ok_or_else(|| Failure::failed(format!("turn #{number} cannot be read any more")))
}

fn has_end(entry: &Entry, end: &str) -> bool {
    match entry {
        Entry::Call(call) => call.id.token().ends_with(end),
        Entry::Answer(answer) => answer.id.token().ends_with(end),
        _ => false,
    }
}

fn not_found(context: &Context, state: &State, end: &str) -> Failure {
    Failure::failed(format!("{} has no call or message whose id ends in {end}", state.handle))
        .next(format!("{} log {}", context.program, state.handle))
}

/// The number of the event that begins the one call or message whose id ends like this.
async fn find_end(client: &Client, state: &State, end: &str) -> Result<Seq, Failure> {
    let mut matches: Vec<(String, Seq)> = Vec::new();
    find(client, state, &["toolCallStarted", "message"], |received| {
        let (id, token) = match &received.event.body {
            EventBody::ToolCallStarted { call_id, .. } => (call_id.to_string(), call_id.token()),
            EventBody::Message { message_id, .. } => (message_id.to_string(), message_id.token()),
            _ => return None,
        };
        if token.ends_with(end) {
            matches.push((id, received.event.seq.unwrap_or_default()));
        }
        (!matches.is_empty() && end.len() >= SURE).then_some(())
    })
    .await?;
    match matches.as_slice() {
        [(_, seq)] => Ok(*seq),
        [] => Err(Failure::failed(format!("{} has no call or message whose id ends in {end}", state.handle))
            .next(format!("agentctl log {}", state.handle))),
        several => {
            let ids: Vec<&str> = several.iter().map(|(id, _)| id.as_str()).collect();
            Err(Failure::usage(format!("{end} is the end of several ids:\n  {}", ids.join("\n  "))))
        }
    }
}

/// Fetches what was too long to travel inside the events.
async fn whole(client: &Client, session: SessionId, entry: &mut Entry) -> Result<(), Failure> {
    match entry {
        Entry::Answer(answer) => {
            fetch(client, session, Some(&mut answer.text)).await?;
            fetch(client, session, answer.thinking.as_mut()).await
        }
        Entry::Prompt(text) => fetch(client, session, Some(text)).await,
        Entry::Call(call) => whole_call(client, session, call).await,
        Entry::Asked(_) | Entry::NoAnswer { .. } | Entry::Note(_) => Ok(()),
    }
}

async fn whole_call(client: &Client, session: SessionId, call: &mut Call) -> Result<(), Failure> {
    if let Some(input) = stored_input(&call.input) {
        let text = blob::whole(client, session, input).await?;
        call.input = serde_json::from_str(&text).unwrap_or(Value::String(text));
    }
    if let Some(result) = &mut call.result {
        fetch(client, session, Some(&mut result.content)).await?;
        fetch(client, session, result.diff.as_mut()).await?;
    }
    Ok(())
}

/// Arguments too large for an event are a reference with nothing beside it.
fn stored_input(input: &Value) -> Option<Text> {
    let fields = input.as_object().filter(|fields| fields.len() == 1)?;
    let blob = serde_json::from_value(fields.get("blob")?.clone()).ok()?;
    let media_type = "application/json".to_owned();
    Some(Text::Blob(BlobRef { blob, size: 0, media_type, head: None, tail: None }))
}

async fn fetch(client: &Client, session: SessionId, text: Option<&mut Text>) -> Result<(), Failure> {
    let Some(text @ Text::Blob(_)) = text else { return Ok(()) };
    *text = Text::Inline(blob::whole(client, session, text.clone()).await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_turns_and_hex_digits_are_ends_of_ids() {
        assert_eq!(thing("#7"), Some(Thing::Turn(7)));
        assert_eq!(thing("7"), Some(Thing::Turn(7)));
        assert_eq!(thing("#1234567"), Some(Thing::Turn(1_234_567)));
        assert_eq!(thing("1234"), Some(Thing::End("1234".into())));
        assert_eq!(thing("9b1cdead"), Some(Thing::End("9b1cdead".into())));
        let id = CallId::new(SessionId::generate(), "9b1c".into());
        assert_eq!(thing(&id.to_string()), Some(Thing::End("9b1c".into())));
        for word in ["", "#", "#0", "0", "#x", "abc", "api-otter", "9B1C", "x:9b1c", "#-1"] {
            assert_eq!(thing(word), None, "{word:?}");
        }
    }

    #[test]
    fn only_a_lone_reference_stands_for_arguments() {
        let digest = format!("sha256:{}", "3".repeat(64));
        assert!(stored_input(&serde_json::json!({"blob": digest})).is_some());
        assert!(stored_input(&serde_json::json!({"blob": digest, "x": 1})).is_none());
        assert!(stored_input(&serde_json::json!({"blob": "a file's name"})).is_none());
    }
}
