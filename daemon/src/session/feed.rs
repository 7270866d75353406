//! What a session publishes: a head, a ring of recent events serialised once, the text being written.
//!
//! A subscription is a position in it. The session never waits for a subscriber and holds nothing for one: who falls
//! behind the ring reads the journal.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentd_protocol::event::EventBody;
use agentd_protocol::session::TextSoFar;
use agentd_protocol::{Event, MessageId, Seq};
use tokio::sync::watch;

/// Serialised events kept per live session.
const RING_BYTES: usize = 1024 * 1024;

/// Bytes of a text that are shown while it is written: they are part of every state that is sent. The whole text comes with
/// its message.
const LIVE_BYTES: usize = 256 * 1024;

/// An event as it goes on the wire, made once for all subscribers.
#[derive(Clone, Debug)]
pub struct WireEvent {
    pub seq: Seq,
    pub kind: &'static str,
    pub json: Arc<str>,
}

impl WireEvent {
    /// # Panics
    /// Never: an event has string keys only.
    #[must_use]
    pub fn new(event: &Event) -> Self {
        Self {
            seq: event.seq.unwrap_or_default(),
            kind: event.body.type_name(),
            json: serde_json::to_string(event).expect("events have string keys only").into(),
        }
    }
}

/// Where a session's news come from. Shared by the session's task and its subscribers; outlives the task.
#[derive(Debug)]
pub struct Feed {
    inner: Mutex<Inner>,
    /// Bumped on every change; subscribers wait on it and then look.
    version: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    head: Seq,
    ring: VecDeque<WireEvent>,
    ring_bytes: usize,
    /// Every event after this number is in the ring.
    ring_from: Seq,
    live: Option<TextSoFar>,
    status: Option<(u64, WireEvent)>,
    notices: VecDeque<(u64, WireEvent)>,
    /// What was found when the session was loaded. Nobody can listen to it before that.
    found: Vec<WireEvent>,
    counter: u64,
    gone: bool,
}

/// What a subscriber at a position finds.
#[derive(Debug, Default)]
pub struct News {
    /// Events after the position, in order. `None`: they have left the ring; read the journal up to `head`.
    pub events: Option<Vec<WireEvent>>,
    pub head: Seq,
    /// Pieces of the text being written that this subscriber has not seen.
    pub deltas: Vec<WireEvent>,
    /// Status events newer than the last seen.
    pub status: Vec<WireEvent>,
    /// The session was deleted.
    pub gone: bool,
}

/// A subscriber's place: two numbers and an offset.
#[derive(Debug, Clone)]
pub struct Position {
    pub seq: Seq,
    /// Whether this subscriber wants the text while it is written.
    pub deltas: bool,
    text: Option<(MessageId, usize, usize)>,
    status: u64,
    /// Whether this subscriber was told what was found when the session was loaded.
    told: bool,
}

impl Position {
    #[must_use]
    pub fn after(seq: Seq, deltas: bool) -> Self {
        Self { seq, deltas, text: None, status: 0, told: false }
    }
}

impl Default for Feed {
    fn default() -> Self {
        Self { inner: Mutex::default(), version: watch::Sender::new(0) }
    }
}

impl Feed {
    /// Nothing inside can be left half-changed, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bump(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    /// Wakes on every change from now on.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Whether anybody follows it.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.version.receiver_count() > 0
    }

    /// The session was loaded and stands at `head`; the ring starts empty there.
    pub fn reset(&self, head: Seq) {
        {
            let mut inner = self.lock();
            if inner.head != head || inner.ring_from > head {
                inner.ring.clear();
                inner.ring_bytes = 0;
                inner.ring_from = head;
            }
            inner.head = head;
        }
        self.bump();
    }

    /// The session leaves memory, and its recent events with it: who still needs one reads the journal.
    pub fn rest(&self) {
        let mut inner = self.lock();
        inner.ring = VecDeque::new();
        inner.ring_bytes = 0;
        inner.ring_from = inner.head;
    }

    /// Publishes a commit: its events and the new head, together with the end of the text they replace.
    pub fn publish(&self, head: Seq, events: Vec<WireEvent>, text_done: bool, status: Option<&Event>) {
        {
            let mut inner = self.lock();
            inner.head = head;
            for event in events {
                inner.ring_bytes += event.json.len();
                inner.ring.push_back(event);
            }
            while inner.ring_bytes > RING_BYTES {
                let Some(oldest) = inner.ring.pop_front() else { break };
                inner.ring_bytes -= oldest.json.len();
                inner.ring_from = oldest.seq;
            }
            if text_done {
                inner.live = None;
            }
            if let Some(event) = status {
                inner.set_status(event);
            }
        }
        self.bump();
    }

    /// Says something that belongs to no record: to those who listen now.
    pub fn notice(&self, code: &str, text: &str, session: agentd_protocol::SessionId) {
        let event = Event::of(session, EventBody::Notice { code: code.into(), text: text.into() });
        {
            let mut inner = self.lock();
            inner.counter += 1;
            let entry = (inner.counter, WireEvent::new(&event));
            inner.notices.push_back(entry);
            if inner.notices.len() > 20 {
                inner.notices.pop_front();
            }
        }
        self.bump();
    }

    /// As [`Feed::notice`], and to everyone who comes later: what is wrong with a journal is found before anybody can listen.
    pub fn found(&self, code: &str, text: &str, session: agentd_protocol::SessionId) {
        self.notice(code, text, session);
        let mut inner = self.lock();
        let newest = inner.notices.iter().rev().find(|(_, event)| event.kind == "notice");
        let Some((_, event)) = newest.cloned() else { return };
        // The same each time that it is loaded.
        if inner.found.len() < 20 && inner.found.iter().all(|known| known.json != event.json) {
            inner.found.push(event);
        }
    }

    /// The daemon is going down; the session goes on at its next start.
    pub fn shutting_down(&self) {
        let event = Event::new(EventBody::ShuttingDown {});
        {
            let mut inner = self.lock();
            inner.counter += 1;
            let entry = (inner.counter, WireEvent::new(&event));
            inner.notices.push_back(entry);
        }
        self.bump();
    }

    pub fn begin_text(&self, message_id: MessageId) {
        self.lock().live = Some(TextSoFar { message_id, text: String::new(), thinking: String::new() });
    }

    /// What is over [`LIVE_BYTES`] is not shown before the message is whole.
    pub fn push_text(&self, text: &str) {
        if let Some(live) = &mut self.lock().live {
            push_within(&mut live.text, text);
        }
        self.bump();
    }

    /// As [`Feed::push_text`].
    pub fn push_thinking(&self, text: &str) {
        if let Some(live) = &mut self.lock().live {
            push_within(&mut live.thinking, text);
        }
        self.bump();
    }

    #[must_use]
    pub fn text_so_far(&self) -> Option<TextSoFar> {
        self.lock().live.clone()
    }

    /// The session was deleted: subscriptions say so and end.
    pub fn close(&self) {
        self.lock().gone = true;
        self.bump();
    }

    #[must_use]
    pub fn head(&self) -> Seq {
        self.lock().head
    }

    /// What is new for a subscriber at `position`; moves it past what is returned.
    pub fn news(&self, position: &mut Position) -> News {
        let inner = self.lock();
        let mut news = News { head: inner.head, gone: inner.gone, ..News::default() };
        if position.seq < inner.ring_from {
            // The journal tells the rest; text and status follow once the subscriber has caught up.
            return news;
        }
        let fresh: Vec<WireEvent> =
            inner.ring.iter().skip_while(|event| event.seq <= position.seq).cloned().collect();
        position.seq = position.seq.max(inner.head);
        news.events = Some(fresh);
        if position.deltas {
            inner.deltas(position, &mut news.deltas);
        }
        let seen = position.status;
        if !std::mem::replace(&mut position.told, true) {
            news.status.extend(inner.found.iter().cloned());
        }
        for (number, event) in inner.notices.iter().chain(&inner.status) {
            if *number > seen {
                news.status.push(event.clone());
                position.status = position.status.max(*number);
            }
        }
        news
    }

    /// The place of who knows all there is at this moment.
    #[must_use]
    pub fn here(&self) -> Position {
        let inner = self.lock();
        let text = inner.live.as_ref();
        Position {
            seq: inner.head,
            deltas: false,
            text: text.map(|live| (live.message_id.clone(), live.text.len(), live.thinking.len())),
            status: inner.counter,
            told: false,
        }
    }
}

/// Once a text is full nothing more is added, so that it has no holes.
fn push_within(text: &mut String, more: &str) {
    let room = LIVE_BYTES.saturating_sub(text.len());
    match more.len() <= room {
        true => text.push_str(more),
        false => {
            text.push_str(&more[..more.floor_char_boundary(room)]);
            // Whatever is left of the room is too small for the next character.
            text.extend(std::iter::repeat_n(' ', LIVE_BYTES.saturating_sub(text.len())));
        }
    }
}

impl Inner {
    fn set_status(&mut self, event: &Event) {
        let event = WireEvent::new(event);
        if self.status.as_ref().is_none_or(|(_, known)| known.json != event.json) {
            self.counter += 1;
            self.status = Some((self.counter, event));
        }
    }

    fn deltas(&self, position: &mut Position, out: &mut Vec<WireEvent>) {
        let Some(live) = &self.live else {
            position.text = None;
            return;
        };
        let (text_seen, thinking_seen) = match &position.text {
            Some((id, text, thinking)) if *id == live.message_id => (*text, *thinking),
            _ => (0, 0),
        };
        let mut delta = |body: EventBody| {
            out.push(WireEvent::new(&Event::new(body)));
        };
        if let Some(text) = live.thinking.get(thinking_seen..).filter(|text| !text.is_empty()) {
            delta(EventBody::ThinkingDelta {
                message_id: live.message_id.clone(),
                offset: thinking_seen as u64,
                text: text.to_owned(),
            });
        }
        if let Some(text) = live.text.get(text_seen..).filter(|text| !text.is_empty()) {
            delta(EventBody::MessageDelta {
                message_id: live.message_id.clone(),
                offset: text_seen as u64,
                text: text.to_owned(),
            });
        }
        position.text = Some((live.message_id.clone(), live.text.len(), live.thinking.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SessionId;

    fn event(seq: u64, size: usize) -> WireEvent {
        WireEvent { seq: Seq(seq), kind: "message", json: "x".repeat(size).into() }
    }

    fn seqs(news: &News) -> Vec<u64> {
        news.events.as_ref().expect("in the ring").iter().map(|event| event.seq.0).collect()
    }

    #[test]
    fn a_position_sees_each_event_once_and_in_order() {
        let feed = Feed::default();
        let mut position = Position::after(Seq(0), false);
        feed.publish(Seq(2), vec![event(1, 10), event(2, 10)], false, None);
        assert_eq!(seqs(&feed.news(&mut position)), [1, 2]);
        assert_eq!(seqs(&feed.news(&mut position)), [0u64; 0]);
        // A commit without public events moves the head all the same.
        feed.publish(Seq(5), vec![], false, None);
        feed.publish(Seq(6), vec![event(6, 10)], false, None);
        assert_eq!(seqs(&feed.news(&mut position)), [6]);
    }

    #[test]
    fn who_falls_behind_the_ring_is_sent_to_the_journal() {
        let feed = Feed::default();
        for seq in 1..=5 {
            feed.publish(Seq(seq), vec![event(seq, RING_BYTES / 2)], false, None);
        }
        let mut late = Position::after(Seq(0), false);
        assert!(feed.news(&mut late).events.is_none());
        let mut near = Position::after(Seq(3), false);
        assert_eq!(seqs(&feed.news(&mut near)), [4, 5]);
    }

    #[test]
    fn a_session_at_rest_keeps_no_events_and_loses_none() {
        let feed = Feed::default();
        feed.publish(Seq(2), vec![event(1, 10), event(2, 10)], false, None);
        let (mut behind, mut there) = (Position::after(Seq(1), false), Position::after(Seq(2), false));
        feed.rest();
        assert_eq!(feed.lock().ring.capacity(), 0);
        assert!(feed.news(&mut behind).events.is_none(), "it has to read the journal");
        assert_eq!(seqs(&feed.news(&mut there)), [0u64; 0]);
        // The session is loaded again and goes on.
        feed.reset(Seq(2));
        feed.publish(Seq(3), vec![event(3, 10)], false, None);
        assert_eq!(seqs(&feed.news(&mut there)), [3]);
    }

    #[test]
    fn deltas_merge_and_never_repeat() {
        let feed = Feed::default();
        let id = MessageId::generate(SessionId::generate());
        let mut position = Position::after(Seq(0), true);
        feed.begin_text(id);
        feed.push_text("one ");
        feed.push_text("two");
        let first = feed.news(&mut position).deltas;
        assert_eq!(first.len(), 1);
        assert!(first[0].json.contains(r#""offset":0,"text":"one two""#), "{first:?}");
        feed.push_text(" three");
        let second = feed.news(&mut position).deltas;
        assert!(second[0].json.contains(r#""offset":7,"text":" three""#), "{second:?}");
        feed.publish(Seq(1), vec![event(1, 1)], true, None);
        assert!(feed.news(&mut position).deltas.is_empty());
    }

    #[test]
    fn a_text_that_is_too_long_to_be_shown_live_stops_without_a_hole() {
        let feed = Feed::default();
        let mut position = Position::after(Seq(0), true);
        feed.begin_text(MessageId::generate(SessionId::generate()));
        feed.push_text(&"x".repeat(LIVE_BYTES - 1));
        feed.push_text("é and more");
        feed.push_text("even more");
        let text = feed.text_so_far().unwrap().text;
        assert_eq!((text.len(), text.trim_end().len()), (LIVE_BYTES, LIVE_BYTES - 1));
        let sent: usize = feed.news(&mut position).deltas.iter().map(|delta| delta.json.len()).sum();
        assert!(sent < LIVE_BYTES + 1024, "{sent}");
    }

    #[test]
    fn what_was_found_at_loading_is_told_once_to_everyone() {
        let (feed, session) = (Feed::default(), SessionId::generate());
        let mut early = feed.here();
        assert!(feed.news(&mut early).status.is_empty());
        for _ in 0..2 {
            feed.found("journal", "a line is missing", session);
        }
        let mut late = feed.here();
        // Who was there has heard it each time.
        for (position, times) in [(&mut early, 2), (&mut late, 1)] {
            let told = feed.news(position).status;
            assert_eq!(told.len(), times);
            assert!(told[0].json.contains("a line is missing"));
            assert!(feed.news(position).status.is_empty());
        }
        feed.notice("storage", "not saved", session);
        assert_eq!(feed.news(&mut feed.here()).status.len(), 1, "what was said meanwhile is over");
    }

    #[test]
    fn status_is_merged_to_the_latest() {
        let feed = Feed::default();
        let session = SessionId::generate();
        let mut position = Position::after(Seq(0), false);
        feed.notice("a", "first", session);
        feed.notice("b", "second", session);
        assert_eq!(feed.news(&mut position).status.len(), 2);
        assert!(feed.news(&mut position).status.is_empty());
    }
}
