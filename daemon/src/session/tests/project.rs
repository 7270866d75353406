use agentd_protocol::{Event, EventBody};

use super::super::project::project;
use super::*;

#[test]
fn every_record_gives_the_event_that_the_protocol_names_and_private_ones_none() {
    let cast = Cast::new();
    let turn = Some(cast.turns[0]);
    for (number, (record, expected)) in (1..).zip(cast.one_of_each()) {
        let event = project(cast.session, Seq(number), at(5), turn, &record);
        let name = record.name();
        assert_eq!(event.as_ref().map(|event| event.body.type_name()), expected, "{name}");
        let Some(event) = event else { continue };
        assert_eq!(
            (event.session_id, event.seq, event.at),
            (Some(cast.session), Some(Seq(number)), Some(at(5)))
        );
        let text = serde_json::to_string(&event).unwrap();
        assert!(text.starts_with(&format!(r#"{{"type":"{}""#, event.body.type_name())), "{text}");
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event, "{name}");
    }
}

#[test]
fn the_table_of_records_is_complete() {
    let cast = Cast::new();
    let mut names: Vec<_> = cast.one_of_each().iter().map(|(record, _)| record.name()).collect();
    names.sort_unstable();
    names.dedup();
    // Counted from the list in `record`; a new record belongs into the table above.
    assert_eq!(names.len(), Record::NAMES.len(), "{names:?}");
}

#[test]
fn text_that_was_cut_is_marked_as_incomplete() {
    let cast = Cast::new();
    let incomplete = |end| match project(cast.session, Seq(1), at(0), None, &cast.ended(end)).unwrap().body {
        EventBody::Message { incomplete, .. } => incomplete,
        other => panic!("{other:?}"),
    };
    assert!(!incomplete(ReplyEnd::Model(Stop::End)));
    assert!(incomplete(ReplyEnd::Model(Stop::Length)));
    assert!(incomplete(ReplyEnd::Cut));
}
