//! Where a reader of events is: the last event passed on, and how much of each unfinished text. Pure.

use std::collections::{BTreeMap, HashMap};

use agentd_protocol::event::{EventBody, SubscribeParams};
use agentd_protocol::{Event, FeedSeq, MessageId, Seq, SessionId};

/// What was passed on so far.
#[derive(Debug)]
pub(crate) struct Position {
    deltas: bool,
    reached: Place,
    /// What the present subscription was asked to start after.
    resumed_after: Place,
    /// Bytes passed on of messages still being written.
    texts: HashMap<MessageId, Lengths>,
}

/// A place in one of the orders that events have.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// In the daemon's feed.
    Feed(Option<FeedSeq>),
    /// In each session that a subscription follows: one, or with its children several.
    Sessions { first: SessionId, after: BTreeMap<SessionId, Seq> },
}

impl Place {
    /// Where a subscription with these parameters begins.
    fn of(params: &SubscribeParams) -> Self {
        match params.session_id {
            None => Place::Feed(params.after_feed_seq),
            Some(first) => {
                let mut after = params.after.clone();
                after.extend(params.after_seq.map(|seq| (first, seq)));
                Place::Sessions { first, after }
            }
        }
    }

    fn write_to(&self, params: &mut SubscribeParams) {
        match self {
            Place::Feed(after) => params.after_feed_seq = *after,
            Place::Sessions { first, after } => {
                params.after_seq = after.get(first).copied();
                params.after =
                    after.iter().filter(|(id, _)| *id != first).map(|(id, seq)| (*id, *seq)).collect();
            }
        }
    }

    /// Whether an event of this order lies at or before this place.
    fn covers(&self, event: &Event) -> bool {
        match self {
            Place::Feed(after) => event.feed_seq.is_some() && event.feed_seq <= *after,
            Place::Sessions { first, after } => {
                event.seq.is_some() && event.seq <= after.get(&event.session_id.unwrap_or(*first)).copied()
            }
        }
    }

    fn reach(&mut self, event: &Event) {
        match self {
            Place::Feed(after) => *after = (*after).max(event.feed_seq),
            Place::Sessions { first, after } => {
                let Some(seq) = event.seq else { return };
                let reached = after.entry(event.session_id.unwrap_or(*first)).or_insert(seq);
                *reached = seq.max(*reached);
            }
        }
    }

    /// A session is gone: it has no place any more.
    fn leave(&mut self, session: Option<SessionId>) {
        if let (Place::Sessions { after, .. }, Some(session)) = (self, session) {
            after.remove(&session);
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lengths {
    text: u64,
    thinking: u64,
}

impl Position {
    pub(crate) fn new(params: &SubscribeParams) -> Self {
        let place = Place::of(params);
        Self { deltas: params.deltas, reached: place.clone(), resumed_after: place, texts: HashMap::new() }
    }

    /// Lets a new subscription go on where this reader is.
    pub(crate) fn resume(&self, params: &mut SubscribeParams) {
        self.reached.write_to(params);
    }

    /// Lets a new subscription begin at the present. Whether it would have begun anywhere else.
    pub(crate) fn start_over(params: &mut SubscribeParams) -> bool {
        let before = params.clone();
        (params.after_seq, params.after_feed_seq) = (None, None);
        params.after.clear();
        *params != before
    }

    /// A new subscription started with these parameters.
    pub(crate) fn resumed(&mut self, params: &SubscribeParams) {
        self.reached = Place::of(params);
        self.resumed_after = self.reached.clone();
    }

    /// The events to pass on for one that came: none if it was passed on before, more if text was missed. Each with
    /// whether it differs from what came.
    pub(crate) fn take(&mut self, mut event: Event) -> Vec<(Event, bool)> {
        match &mut event.body {
            EventBody::MessageDelta { message_id, offset, text } => {
                let lengths = self.texts.entry(message_id.clone()).or_insert_with(|| starting_at(*offset, 0));
                let (pass, changed) = advance(&mut lengths.text, offset, text);
                if pass { vec![(event, changed)] } else { Vec::new() }
            }
            EventBody::ThinkingDelta { message_id, offset, text } => {
                let lengths = self.texts.entry(message_id.clone()).or_insert_with(|| starting_at(0, *offset));
                let (pass, changed) = advance(&mut lengths.thinking, offset, text);
                if pass { vec![(event, changed)] } else { Vec::new() }
            }
            EventBody::Synced { .. } => {
                self.reached.reach(&event);
                let missed = self.missed(&event);
                let mut events = vec![(event, false)];
                events.extend(missed.into_iter().map(|delta| (delta, true)));
                events
            }
            // Of a session these are not journaled: they have no place in its order.
            EventBody::StateChanged { .. }
            | EventBody::Notice { .. }
            | EventBody::SessionDeleted {}
            | EventBody::ShuttingDown {}
                if matches!(self.reached, Place::Sessions { .. }) =>
            {
                if matches!(event.body, EventBody::SessionDeleted {}) {
                    self.reached.leave(event.session_id);
                }
                vec![(event, false)]
            }
            body => {
                if let EventBody::Message { message_id, .. } | EventBody::MessageAborted { message_id, .. } =
                    body
                {
                    self.texts.remove(message_id);
                }
                if self.resumed_after.covers(&event) {
                    return Vec::new();
                }
                self.reached.reach(&event);
                vec![(event, false)]
            }
        }
    }

    /// Text in `synced` that no delta brought here.
    fn missed(&mut self, synced: &Event) -> Vec<Event> {
        let EventBody::Synced { state: Some(state), .. } = &synced.body else { return Vec::new() };
        let mut missed = Vec::new();
        let mut texts = std::mem::take(&mut self.texts);
        let seen_before = texts.clone();
        texts.retain(|id, _| id.session() != state.session_id);
        for so_far in &state.text {
            let id = &so_far.message_id;
            let seen = seen_before.get(id).copied().unwrap_or_default();
            if self.deltas {
                if let Some((offset, text)) = rest(&so_far.thinking, seen.thinking) {
                    missed.push(EventBody::ThinkingDelta { message_id: id.clone(), offset, text });
                }
                if let Some((offset, text)) = rest(&so_far.text, seen.text) {
                    missed.push(EventBody::MessageDelta { message_id: id.clone(), offset, text });
                }
            }
            let lengths = Lengths {
                text: seen.text.max(so_far.text.len() as u64),
                thinking: seen.thinking.max(so_far.thinking.len() as u64),
            };
            texts.insert(id.clone(), lengths);
        }
        self.texts = texts;
        let delta =
            |body| Event { session_id: synced.session_id, turn_id: state.turn_id, ..Event::new(body) };
        missed.into_iter().map(delta).collect()
    }
}

fn starting_at(text: u64, thinking: u64) -> Lengths {
    Lengths { text, thinking }
}

/// The part of `whole` after the first `seen` bytes, with its offset.
fn rest(whole: &str, seen: u64) -> Option<(u64, String)> {
    let at = usize::try_from(seen).ok()?;
    let rest = whole.get(at..).filter(|rest| !rest.is_empty())?;
    Some((seen, rest.to_owned()))
}

/// Cuts from a delta what was passed on before. Whether to pass it on, and whether it was cut.
fn advance(seen: &mut u64, offset: &mut u64, text: &mut String) -> (bool, bool) {
    let end = *offset + text.len() as u64;
    if end <= *seen {
        return (false, false);
    }
    let known = usize::try_from(seen.saturating_sub(*offset)).unwrap_or(0);
    let mut cut = false;
    if known > 0 && text.is_char_boundary(known) {
        text.drain(..known);
        *offset = *seen;
        cut = true;
    }
    *seen = end;
    (true, cut)
}

#[cfg(test)]
mod tests {
    use agentd_protocol::SessionId;
    use serde_json::{Value, json};

    use super::*;

    struct Reader {
        position: Position,
        session: SessionId,
    }

    impl Reader {
        fn new(after: Option<u64>) -> Self {
            let session = SessionId::generate();
            let params = SubscribeParams {
                session_id: Some(session),
                after_seq: after.map(Seq),
                deltas: true,
                ..SubscribeParams::default()
            };
            Self { position: Position::new(&params), session }
        }

        fn message(&self) -> MessageId {
            MessageId::new(self.session, "1".into())
        }

        /// What is passed on for `event`, as JSON.
        fn take(&mut self, event: Value) -> Vec<Value> {
            let event = serde_json::from_value(event).unwrap();
            self.position.take(event).iter().map(|(event, _)| serde_json::to_value(event).unwrap()).collect()
        }

        /// What a new subscription would go on after.
        fn resume(&self) -> SubscribeParams {
            let mut params = SubscribeParams { session_id: Some(self.session), ..SubscribeParams::default() };
            self.position.resume(&mut params);
            params
        }

        fn resume_after(&self) -> Option<Seq> {
            self.resume().after_seq
        }

        fn resumed(&mut self, after: Option<u64>) {
            let params = SubscribeParams { after_seq: after.map(Seq), ..self.resume() };
            self.position.resumed(&params);
        }

        fn title(&mut self, seq: u64) -> usize {
            self.take(json!({"type": "titleChanged", "title": "t", "seq": seq})).len()
        }

        /// The texts passed on for a delta.
        fn delta(&mut self, offset: u64, text: &str) -> Vec<String> {
            let delta =
                json!({"type": "messageDelta", "messageId": self.message(), "offset": offset, "text": text});
            self.take(delta).iter().map(|event| event["text"].as_str().unwrap().to_owned()).collect()
        }

        /// The texts passed on after a `synced`.
        fn synced(&mut self, seq: u64, text: &str) -> Vec<String> {
            let now = "2026-01-01T00:00:00.000Z";
            let state = json!({
                "sessionId": self.session, "handle": "h", "title": null, "parent": null, "cwd": "/", "mode": "plan",
                "preMode": null, "model": {"provider": "p", "model": "m", "reason": "r"}, "createdAt": now,
                "updatedAt": now, "activity": "running", "turnId": null, "waitingFor": [], "lastOutcome": null,
                "health": "ok", "seq": seq, "plan": null, "approvals": [], "calls": [],
                "text": [{"messageId": self.message(), "text": text}], "inbox": [], "inboxHeld": false, "tasks": [],
                "todo": [], "usage": {},
            });
            let events = self.take(json!({"type": "synced", "seq": seq, "state": state}));
            assert_eq!(events[0]["type"], "synced");
            events[1..].iter().map(|event| event["text"].as_str().unwrap().to_owned()).collect()
        }
    }

    #[test]
    fn a_resumed_reader_sees_every_event_once() {
        let mut reader = Reader::new(Some(0));
        assert_eq!((reader.title(1), reader.title(3)), (1, 1));
        assert_eq!(reader.resume_after(), Some(Seq(3)));
        reader.resumed(Some(3));
        assert_eq!((reader.title(3), reader.title(4)), (0, 1));
        // Two events of one record have one number.
        assert_eq!(reader.title(4), 1);
        assert_eq!(reader.resume_after(), Some(Seq(4)));
    }

    #[test]
    fn a_reader_without_history_resumes_after_its_first_synced() {
        let mut reader = Reader::new(None);
        assert_eq!(reader.resume_after(), None);
        reader.synced(9, "");
        assert_eq!(reader.resume_after(), Some(Seq(9)));
    }

    #[test]
    fn a_reader_that_was_ahead_of_the_journal_starts_over() {
        let mut reader = Reader::new(Some(0));
        reader.title(9);
        reader.resumed(None);
        reader.synced(5, "");
        assert_eq!(reader.title(6), 1);
    }

    #[test]
    fn text_is_passed_on_once_and_whole() {
        let mut reader = Reader::new(None);
        assert_eq!(reader.synced(1, "Hé"), ["Hé"], "what was written before");
        assert_eq!(reader.delta(3, "llo"), ["llo"]);
        // Reconnected: the daemon's text has grown meanwhile, and its deltas overlap.
        assert_eq!(reader.synced(2, "Héllo wor"), [" wor"]);
        assert_eq!(reader.delta(6, " wor"), Vec::<String>::new());
        assert_eq!(reader.delta(8, "orld"), ["ld"]);
        assert_eq!(reader.delta(12, "!"), ["!"]);
    }

    #[test]
    fn a_finished_message_is_forgotten() {
        let mut reader = Reader::new(None);
        reader.delta(0, "abc");
        let id = reader.message();
        reader.take(json!({"type": "messageAborted", "messageId": id, "reason": "r", "seq": 2}));
        assert_eq!(reader.delta(0, "abc"), ["abc"], "asked again, written again");
    }

    #[test]
    fn status_has_no_place_in_the_order() {
        let mut reader = Reader::new(Some(5));
        assert_eq!(reader.take(json!({"type": "shuttingDown", "seq": 3})).len(), 1);
        assert_eq!(reader.resume_after(), Some(Seq(5)));
    }

    #[test]
    fn a_reader_of_a_tree_has_a_place_in_each_session() {
        let mut reader = Reader::new(Some(0));
        let (child, other) = (SessionId::generate(), SessionId::generate());
        let title = |id: SessionId, seq: u64| json!({"type": "titleChanged", "title": "t", "sessionId": id, "seq": seq});
        assert_eq!((reader.title(7), reader.take(title(child, 2)).len()), (1, 1));
        assert_eq!(reader.take(title(other, 4)).len(), 1);
        assert_eq!(reader.take(json!({"type": "sessionDeleted", "sessionId": other})).len(), 1);
        let params = reader.resume();
        assert_eq!(
            (params.after_seq, params.after.clone()),
            (Some(Seq(7)), BTreeMap::from([(child, Seq(2))]))
        );
        reader.position.resumed(&params);
        assert_eq!(
            (reader.title(7), reader.take(title(child, 2)).len(), reader.take(title(child, 3)).len()),
            (0, 0, 1)
        );
    }

    #[test]
    fn a_reader_of_the_feed_goes_on_by_its_numbers() {
        let mut params = SubscribeParams::default();
        let mut position = Position::new(&params);
        let session = SessionId::generate();
        let take = |position: &mut Position, kind: &str, number: u64| {
            let event = json!({"type": kind, "sessionId": session, "feedSeq": number, "sessions": []});
            position.take(serde_json::from_value(event).unwrap()).len()
        };
        assert_eq!(take(&mut position, "synced", 10), 1);
        position.resume(&mut params);
        assert_eq!(params.after_feed_seq, Some(FeedSeq(10)), "also before anything has happened");
        assert_eq!(take(&mut position, "sessionDeleted", 12), 1);
        position.resume(&mut params);
        position.resumed(&params);
        assert_eq!(
            (take(&mut position, "sessionDeleted", 12), take(&mut position, "shuttingDown", 13)),
            (0, 1)
        );
        // What came may be missing something; `synced` says so without moving on.
        assert_eq!(take(&mut position, "synced", 13), 1);
        assert!(Position::start_over(&mut params) && !Position::start_over(&mut params));
        assert_eq!(params, SubscribeParams::default());
    }
}
