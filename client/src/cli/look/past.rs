//! Finding one's way in a session's past, from its end: long sessions are never read from their start.

use agentd_client::{Client, Received};
use agentd_protocol::history::{HistoryParams, MAX_EVENTS};
use agentd_protocol::session::State;
use agentd_protocol::{EventBody, Seq, SessionId};

use super::transcript::Rewind;
use crate::cli::exit::Failure;

/// Bytes of events that are held at once. A single turn that has more is shown from where they end.
const MAX_HELD: usize = 32 << 20;

/// The newest turns, complete or cut off at their beginning.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) events: Vec<Received>,
    /// Turns before them.
    pub(crate) earlier: u64,
}

/// The events of the newest `turns` turns of a session that stands as `state` says; all of them if it has fewer.
///
/// # Errors
/// What the daemon answers.
pub(crate) async fn newest_turns(client: &Client, state: &State, turns: u64) -> Result<Tail, Failure> {
    let mut pages: Vec<Vec<Received>> = Vec::new();
    let (mut found, mut held) = (0, 0);
    let mut before = end(state);
    loop {
        let params = HistoryParams { before_seq: Some(before), ..HistoryParams::newest(state.session_id) };
        let page = client.history(params).await?;
        let mut events = page.events;
        for index in (0..events.len()).rev() {
            held += events[index].raw.get().len();
            found += u64::from(is_start(&events[index]));
            let enough = found == turns && is_start(&events[index]);
            if enough || held > MAX_HELD {
                pages.push(events.split_off(index));
                return Ok(joined(pages, state.turns.saturating_sub(found)));
            }
        }
        pages.push(events);
        match page.next {
            Some(next) if turns > 0 => before = next,
            _ => return Ok(joined(pages, state.turns.saturating_sub(found))),
        }
    }
}

fn joined(pages: Vec<Vec<Received>>, earlier: u64) -> Tail {
    Tail { events: pages.into_iter().rev().flatten().collect(), earlier }
}

fn end(state: &State) -> Seq {
    Seq(state.seq.0.saturating_add(1))
}

fn is_start(received: &Received) -> bool {
    matches!(received.event.body, EventBody::TurnStarted {})
}

/// All events from the first one on, in pages.
pub(crate) struct FromStart<'a> {
    client: &'a Client,
    session: SessionId,
    /// `None` once all was read.
    after: Option<Seq>,
    before: Option<Seq>,
}

impl<'a> FromStart<'a> {
    /// `before`: where it ends; absent, with the newest.
    pub(crate) fn new(client: &'a Client, session: SessionId, after: Seq, before: Option<Seq>) -> Self {
        Self { client, session, after: Some(after), before }
    }

    /// What the state has seen.
    pub(crate) fn until(client: &'a Client, state: &State) -> Self {
        Self::new(client, state.session_id, Seq(0), Some(end(state)))
    }

    /// The next page; `None` after the last one.
    ///
    /// # Errors
    /// What the daemon answers.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Received>>, Failure> {
        let Some(after) = self.after else { return Ok(None) };
        let params = HistoryParams {
            after_seq: Some(after),
            before_seq: self.before,
            ..HistoryParams::newest(self.session)
        };
        let page = self.client.history(params).await?;
        self.after = page.next;
        Ok(Some(page.events))
    }
}

/// Number and first event of the newest turn for which `wanted` holds.
///
/// # Errors
/// What the daemon answers.
pub(crate) async fn find_turn(
    client: &Client,
    state: &State,
    wanted: impl Fn(u64, Seq) -> bool,
) -> Result<Option<(u64, Seq)>, Failure> {
    let mut number = state.turns;
    let found = find(client, state, &["turnStarted"], |received| {
        let seq = received.event.seq.unwrap_or_default();
        let turn = number;
        number = number.saturating_sub(1);
        wanted(turn, seq).then_some((turn, seq))
    });
    found.await
}

/// Every rewind after the event of this number, oldest first.
///
/// # Errors
/// What the daemon answers.
pub(crate) async fn rewinds(client: &Client, state: &State, after: Seq) -> Result<Vec<Rewind>, Failure> {
    let mut params = HistoryParams {
        after_seq: Some(after),
        before_seq: Some(end(state)),
        limit: Some(MAX_EVENTS),
        types: Some(vec!["contextReset".to_owned()]),
        ..HistoryParams::newest(state.session_id)
    };
    let mut found = Vec::new();
    loop {
        let page = client.history(params.clone()).await?;
        found.extend(page.events.iter().filter_map(|received| Rewind::of(&received.event)));
        match page.next {
            Some(next) => params.after_seq = Some(next),
            None => return Ok(found),
        }
    }
}

/// Goes back through events of these types until `wanted` answers something.
///
/// # Errors
/// What the daemon answers.
pub(crate) async fn find<T>(
    client: &Client,
    state: &State,
    types: &[&str],
    mut wanted: impl FnMut(&Received) -> Option<T>,
) -> Result<Option<T>, Failure> {
    let mut params = HistoryParams {
        before_seq: Some(end(state)),
        limit: Some(MAX_EVENTS),
        types: Some(types.iter().map(|kind| (*kind).to_owned()).collect()),
        ..HistoryParams::newest(state.session_id)
    };
    loop {
        let page = client.history(params.clone()).await?;
        if let Some(found) = page.events.iter().rev().find_map(&mut wanted) {
            return Ok(Some(found));
        }
        match page.next {
            Some(next) => params.before_seq = Some(next),
            None => return Ok(None),
        }
    }
}

/// The events of the turn that begins with number `start`.
///
/// # Errors
/// What the daemon answers.
pub(crate) async fn turn_from(client: &Client, state: &State, start: Seq) -> Result<Vec<Received>, Failure> {
    let mut pages =
        FromStart::new(client, state.session_id, Seq(start.0.saturating_sub(1)), Some(end(state)));
    let mut turn: Vec<Received> = Vec::new();
    while let Some(page) = pages.next().await? {
        for received in page {
            if is_start(&received) && !turn.is_empty() {
                return Ok(turn);
            }
            let is_end = matches!(received.event.body, EventBody::TurnFinished { .. });
            turn.push(received);
            if is_end {
                return Ok(turn);
            }
        }
    }
    Ok(turn)
}
