//! The lines of the feed's log, and what a reader makes of them.

use std::io::Write as _;

use agentd_protocol::FeedSeq;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Numbers stay below what a double holds exactly, since clients in JavaScript read them.
const MAX_NUMBER: u64 = 1 << 53;

/// What the log holds, each with its number.
#[derive(Clone, Debug)]
pub enum Entry {
    /// An event as it went over the wire.
    Event(FeedSeq, std::sync::Arc<str>),
    /// A daemon begins here.
    Started(FeedSeq),
    /// A daemon ended in order: nothing that it told is missing before.
    Ended(FeedSeq),
    /// The numbers have come this far.
    Mark(FeedSeq),
    /// Some of what came before was not written.
    Hole(FeedSeq),
}

impl Entry {
    #[must_use]
    pub fn number(&self) -> FeedSeq {
        match self {
            Entry::Event(number, _)
            | Entry::Started(number)
            | Entry::Ended(number)
            | Entry::Mark(number)
            | Entry::Hole(number) => *number,
        }
    }

    /// Writes the line, newline included.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let number = self.number();
        let kind = match self {
            Entry::Event(_, json) => {
                // Writing to a Vec cannot fail. An event was serialised here and has no line breaks.
                let _ = writeln!(out, r#"{{"feedSeq":{number},"event":{json}}}"#);
                return;
            }
            Entry::Started(_) => "started",
            Entry::Ended(_) => "ended",
            Entry::Mark(_) => "mark",
            Entry::Hole(_) => "hole",
        };
        let _ = writeln!(out, r#"{{"feedSeq":{number},"is":"{kind}"}}"#);
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    feed_seq: u64,
    #[serde(default)]
    is: Option<Is>,
    #[serde(default, borrow)]
    event: Option<&'a RawValue>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Is {
    Started,
    Ended,
    Mark,
    Hole,
    /// Written by a later version.
    #[serde(other)]
    Other,
}

/// What every event on the feed has.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    #[serde(rename = "type", borrow)]
    _kind: std::borrow::Cow<'a, str>,
    feed_seq: u64,
}

/// A line that says something, and an event that is one: damage to a name must not pass for a line of a later version.
fn parse(line: &[u8]) -> Option<Line<'_>> {
    let line: Line<'_> = serde_json::from_slice(line).ok()?;
    let is_event = |event: &RawValue| {
        serde_json::from_str::<Event<'_>>(event.get()).is_ok_and(|event| event.feed_seq == line.feed_seq)
    };
    let says = match (line.event, line.is) {
        (Some(event), _) => is_event(event),
        (None, is) => is.is_some(),
    };
    (says && line.feed_seq < MAX_NUMBER).then_some(line)
}

/// The number of a line, if it is one.
pub(super) fn number(line: &[u8]) -> Option<FeedSeq> {
    parse(line).map(|line| FeedSeq(line.feed_seq))
}

/// A piece of what the log holds after a number.
#[derive(Debug, Default)]
pub struct Page {
    /// Events as they went over the wire, in order.
    pub events: Vec<(FeedSeq, Box<str>)>,
    /// Nothing is missing after this number. `None`: nothing is known to be whole.
    pub whole_from: Option<FeedSeq>,
    /// The last number in the log.
    pub last: FeedSeq,
    /// Whether the last line says that a daemon ended in order.
    pub ended: bool,
    /// Whether there are more events than were asked for.
    pub more: bool,
}

/// Goes through all lines and picks a page.
pub(super) struct Picker {
    page: Page,
    after: FeedSeq,
    room: usize,
    /// No line has come yet.
    first: bool,
    damaged: bool,
}

impl Picker {
    pub(super) fn new(after: FeedSeq, room: usize) -> Self {
        Self { page: Page::default(), after, room, first: true, damaged: false }
    }

    pub(super) fn bad(&mut self) {
        self.damaged = true;
    }

    pub(super) fn line(&mut self, text: &[u8]) {
        let Some(line) = parse(text) else { return self.bad() };
        let number = FeedSeq(line.feed_seq);
        // An end has the number of the last event before it, and a new file begins with the last of the old one.
        if number < self.page.last || (line.event.is_some() && number == self.page.last) {
            return self.bad();
        }
        let first = std::mem::replace(&mut self.first, false);
        let damaged = std::mem::replace(&mut self.damaged, false);
        let cut_off = line.is == Some(Is::Started) && !self.page.ended;
        if first || damaged || cut_off || line.is == Some(Is::Hole) {
            self.page.whole_from = Some(number);
        }
        self.page.ended = line.is == Some(Is::Ended);
        self.page.last = number;
        if let Some(event) = line.event.filter(|_| number > self.after) {
            self.pick(number, event.get());
        }
    }

    fn pick(&mut self, number: FeedSeq, event: &str) {
        if self.page.more || (event.len() > self.room && !self.page.events.is_empty()) {
            self.page.more = true;
            return;
        }
        self.room = self.room.saturating_sub(event.len());
        self.page.events.push((number, event.into()));
    }

    pub(super) fn finish(self) -> Page {
        // What a damaged end held nobody knows.
        let whole_from = self.page.whole_from.filter(|_| !self.damaged);
        Page { whole_from, ended: self.page.ended && !self.damaged, ..self.page }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(after: u64, lines: &[&str]) -> (Vec<u64>, Option<u64>, u64, bool) {
        let mut picker = Picker::new(FeedSeq(after), 75);
        for line in lines {
            picker.line(line.as_bytes());
        }
        let page = picker.finish();
        let events = page.events.iter().map(|(number, _)| number.0).collect();
        (events, page.whole_from.map(|number| number.0), page.last.0, page.more)
    }

    #[test]
    fn a_page_says_what_is_missing() {
        let (start, end) = (r#"{"feedSeq":10,"is":"started"}"#, r#"{"feedSeq":12,"is":"ended"}"#);
        let (e11, e12, e21) = (event(11), event(12), event(21));
        let again = r#"{"feedSeq":20,"is":"started"}"#;
        let all = [start, &e11, &e12, end, again, &e21];
        assert_eq!(picked(0, &all), (vec![11, 12, 21], Some(10), 21, false));
        assert_eq!(picked(11, &all), (vec![12, 21], Some(10), 21, false));
        assert_eq!(picked(21, &all), (vec![], Some(10), 21, false));
        // It was killed: what it had told last may not have been written.
        assert_eq!(picked(0, &[start, &e11, &e12, again, &e21]), (vec![11, 12, 21], Some(20), 21, false));
        let hole = r#"{"feedSeq":12,"is":"hole"}"#;
        assert_eq!(picked(0, &[start, &e11, hole, &e21]), (vec![11, 21], Some(12), 21, false));
        assert_eq!(picked(0, &[start, "rubbish", &e12]), (vec![12], Some(12), 12, false));
        assert_eq!(picked(0, &[start, &e12, &e11]), (vec![12], None, 12, false), "numbers do not go back");
        assert_eq!(picked(0, &[start, &e12, &e12]), (vec![12], None, 12, false), "nor do they repeat");
        assert_eq!(picked(0, &[start, &e11, "{"]), (vec![11], None, 11, false));
        assert_eq!(picked(0, &[]), (vec![], None, 0, false));
        let later = r#"{"feedSeq":13,"is":"somethingNew","event":{"feedSeq":13,"type":"t"}}"#;
        assert_eq!(picked(0, &[start, later]).0, [13]);
        assert_eq!(picked(0, &[r#"{"feedSeq":9007199254740992,"is":"started"}"#]).2, 0);
    }

    fn event(number: u64) -> String {
        format!(r#"{{"feedSeq":{number},"event":{{"feedSeq":{number},"type":"t"}}}}"#)
    }

    #[test]
    fn whatever_byte_of_a_line_is_damaged_its_event_is_told_as_it_was_or_its_loss_is() {
        let (start, line, next) = (r#"{"feedSeq":10,"is":"started"}"#, event(11), event(12));
        for at in 0..line.len() {
            for bit in 0..7 {
                let mut bytes = line.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                let mut picker = Picker::new(FeedSeq(10), 1000);
                for line in [start.as_bytes(), &bytes, next.as_bytes()] {
                    picker.line(line);
                }
                let page = picker.finish();
                let told = page.events.iter().any(|(number, _)| *number == FeedSeq(11));
                let text = String::from_utf8_lossy(&bytes);
                assert!(told || page.whole_from == Some(FeedSeq(12)), "{text}");
                for (number, event) in page.events {
                    let event: serde_json::Value = serde_json::from_str(&event).unwrap();
                    assert!(event["type"].is_string() && event["feedSeq"] == number.0, "{text}");
                }
            }
        }
    }

    #[test]
    fn a_page_holds_one_event_at_least_and_says_that_there_are_more() {
        let event = |n: u64, len: usize| {
            format!(r#"{{"feedSeq":{n},"event":{{"type":"{}","feedSeq":{n}}}}}"#, "x".repeat(len))
        };
        let (long, short, next) = (event(1, 100), event(2, 10), event(3, 10));
        let lines = [long.as_str(), &short, &next];
        assert_eq!(picked(0, &lines), (vec![1], Some(1), 3, true));
        assert_eq!(picked(1, &lines), (vec![2, 3], Some(1), 3, false));
    }
}
