//! Journals as crashes, disks and later versions leave them: what a session makes of them, and that the others do not notice.

use agentd_protocol::history::HistoryParams;
use agentd_protocol::session::{ForkParams, Health, ListParams};
use agentd_protocol::turn::Outcome;

use super::*;
use crate::session::load;

fn journal(home: &Home, id: SessionId) -> PathBuf {
    home.paths.session_dir(id).join("journal.jsonl")
}

/// A session with a turn, that nobody has open.
async fn spoken(mode: Mode) -> (Home, SessionId) {
    let home = Home::start(says("Hello.")).await;
    let id = home.session(mode).await;
    let turn = home.prompt(id, "hello").await.turn_id;
    home.wait(id, turn).await;
    home.registry.leave().await;
    (home, id)
}

#[tokio::test]
async fn se_01_cut_at_any_byte_of_its_last_commit_a_session_is_as_before_that_and_says_so() {
    let (home, id) = spoken(Mode::Default).await;
    let path = journal(&home, id);
    let whole = std::fs::read(&path).unwrap();
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    std::fs::write(&path, &whole[..last]).unwrap();
    let before = load(home.registry.deps(), id).await.unwrap().state;
    assert!(before.turn.is_some(), "the last commit is the end of the turn");
    for cut in last + 1..whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let loaded = load(home.registry.deps(), id).await.unwrap();
        assert_eq!(loaded.state, before, "cut at {cut}");
        assert_eq!(loaded.notices.len(), 1, "cut at {cut}");
        assert!(loaded.notices[0].contains("unfinished last line"), "{:?}", loaded.notices);
        drop(loaded);
        if cut % 16 != 0 {
            continue;
        }
        let again = load(home.registry.deps(), id).await.unwrap();
        assert_eq!((again.state, again.notices), (before.clone(), Vec::new()), "it was mended, cut at {cut}");
    }
    // Cut anywhere else, it is whatever was whole before; never an error, as long as it had begun.
    let begun = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for cut in (begun..last).step_by(61) {
        std::fs::write(&path, &whole[..cut]).unwrap();
        assert_eq!(load(home.registry.deps(), id).await.unwrap().state.created.handle, before.created.handle);
    }
}

/// How a journal is changed, and what that makes of the session.
struct Later {
    what: &'static str,
    change: fn(&str) -> String,
    health: Health,
}

/// The text with one more commit at its end.
fn and_then(text: &str, v: u32, record: &str) -> String {
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let next = last["seq"].as_u64().unwrap() + last["records"].as_array().unwrap().len() as u64;
    format!("{text}{{\"v\":{v},\"seq\":{next},\"at\":{},\"records\":[{record}]}}\n", last["at"])
}

#[tokio::test]
async fn se_04_what_a_later_version_wrote_is_kept_and_never_taken_for_less_than_it_is() {
    const MODE: &str =
        r#""type":"modeChanged","must":true,"from":"default","by":{"principal":"u","client":"c"}"#;
    let cases = [
        Later {
            what: "a record of another kind",
            change: |text| and_then(text, 1, r#"{"type":"fromTheFuture","level":3}"#),
            health: Health::Ok,
        },
        Later {
            what: "one that must not be passed over",
            change: |text| and_then(text, 1, r#"{"type":"fromTheFuture","must":true}"#),
            health: Health::ReadOnly,
        },
        Later {
            what: "another field of a known record",
            change: |text| {
                text.replace("\"type\":\"turnFinished\"", "\"type\":\"turnFinished\",\"mood\":\"good\"")
            },
            health: Health::Ok,
        },
        Later {
            what: "another field of the line",
            change: |text| text.replace("{\"v\":1,\"seq\":3,", "{\"v\":1,\"host\":\"a\",\"seq\":3,"),
            health: Health::Ok,
        },
        Later {
            what: "a mode that is not known here",
            change: |text| and_then(text, 1, &format!("{{{MODE},\"to\":\"paranoid\"}}")),
            health: Health::ReadOnly,
        },
        Later {
            what: "a line of another format",
            change: |text| and_then(text, 2, r#"{"type":"modeChanged"}"#),
            health: Health::ReadOnly,
        },
    ];
    for Later { what, change, health } in cases {
        let (home, id) = spoken(Mode::BypassPermissions).await;
        let path = journal(&home, id);
        let old = std::fs::read_to_string(&path).unwrap();
        let new = change(&old);
        assert!(new != old, "{what}");
        std::fs::write(&path, &new).unwrap();
        let home = home.restart().await;
        let state = home.state(id).await;
        assert_eq!((state.health, state.turns), (health, 1), "{what}");
        let listed = home.registry.list(&ListParams::default()).await.unwrap().sessions;
        assert_eq!(listed.len(), 1, "{what}");
        let asked = home.requests().await.len();
        let told = home.try_prompt(prompt(id, "more")).await;
        if health == Health::Ok {
            let turn = told.unwrap().turn_id;
            assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished, "{what}");
            let after = std::fs::read_to_string(&path).unwrap();
            assert!(after.starts_with(&new), "{what}: what was not understood is kept as it is");
        } else {
            assert!(matches!(told, Err(SessionError::Storage { .. })), "{what}: {told:?}");
            let mode = home.set_mode(id, Mode::Default).await;
            assert!(matches!(mode, Err(SessionError::Storage { .. })), "{what}: {mode:?}");
            assert_eq!(home.requests().await.len(), asked, "{what}: nothing runs");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), new, "{what}: nothing is written");
        }
    }
}

#[tokio::test]
async fn se_10_a_line_of_nine_megabytes_costs_nobody_else_anything() {
    let (home, id) = spoken(Mode::Default).await;
    let path = journal(&home, id);
    let text = std::fs::read_to_string(&path).unwrap();
    let filler = format!("{{\"type\":\"fromTheFuture\",\"text\":\"{}\"}}", "x".repeat(9 << 20));
    std::fs::write(&path, and_then(&text, 1, &filler)).unwrap();
    let home = home.restart().await;
    let other = home.session(Mode::Default).await;
    // All of it side by side with a session that talks.
    let looking = async {
        let listed = home.registry.list(&ListParams::default()).await.unwrap().sessions;
        assert_eq!(listed.len(), 2);
        let page = home.registry.history(HistoryParams::newest(id)).await.unwrap();
        assert!(!page.events.is_empty());
        assert_eq!(home.state(id).await.turns, 1);
        let params = ForkParams { session_id: id, at_seq: None, new_session_id: None };
        let fork = home.registry.fork(&params, &person()).await.unwrap().session_id;
        for id in [id, fork] {
            let turn = home.prompt(id, "go on").await.turn_id;
            assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished);
        }
    };
    let talking = async {
        for _ in 0..5 {
            let turn = home.prompt(other, "talk").await.turn_id;
            assert_eq!(home.wait(other, turn).await.outcome, Outcome::Finished);
        }
    };
    tokio::join!(looking, talking);
}

#[tokio::test]
async fn se_10_what_cannot_be_read_is_an_error_of_the_disk_and_not_a_session_that_is_not_there() {
    let (home, id) = spoken(Mode::Default).await;
    let (path, away) = (journal(&home, id), home.paths.session_dir(id).join("away"));
    // Where the journal was there is something that no read gets through.
    std::fs::rename(&path, &away).unwrap();
    std::fs::create_dir(&path).unwrap();
    let home = home.restart().await;
    let named = NewParams { session_id: Some(id), ..home.params(Mode::Default) };
    let fork = ForkParams { session_id: id, at_seq: None, new_session_id: None };
    let answers = [
        ("get", home.registry.snapshot(id).await.map(drop)),
        ("prompt", home.try_prompt(prompt(id, "hello")).await.map(drop)),
        ("history", home.registry.history(HistoryParams::newest(id)).await.map(drop)),
        ("fork", home.registry.fork(&fork, &person()).await.map(drop)),
        ("new", home.registry.create(named, &person()).await.map(drop)),
    ];
    for (what, answer) in answers {
        assert!(matches!(answer, Err(SessionError::Storage { .. })), "{what}: {answer:?}");
    }
    // And when it can be read again, everything is there.
    std::fs::remove_dir(&path).unwrap();
    std::fs::rename(&away, &path).unwrap();
    assert_eq!(home.state(id).await.turns, 1);
}
