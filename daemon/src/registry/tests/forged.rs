//! Bundles that somebody has written by hand: they take nothing here that the journals here do not confirm.

use super::moves::{bundle, export, files, from, import, spoken, to, write};
use std::path::Path;

use agentd_protocol::transfer::{ExportParams, ImportParams};
use agentd_protocol::turn::Outcome;

use super::*;

/// Changes records of the journal inside a bundle.
fn forge(path: &Path, target: &Path, change: impl Fn(&mut Value), about: impl FnOnce(&mut Value)) {
    let mut files = files(path);
    let journal = files.iter_mut().find(|(name, _)| name == "journal.jsonl").unwrap();
    let lines = String::from_utf8(std::mem::take(&mut journal.1)).unwrap();
    for line in lines.lines() {
        let mut commit: Value = serde_json::from_str(line).unwrap();
        commit["records"].as_array_mut().unwrap().iter_mut().for_each(&change);
        journal.1.extend(serde_json::to_vec(&commit).unwrap());
        journal.1.push(b'\n');
    }
    write(target, files, about);
}

#[tokio::test]
async fn an_imported_session_is_nobodys_child() {
    let (home, there) = (Home::start(says("Hello.")).await, Home::start(says("Hello.")).await);
    let (victim, id) = (there.session(Mode::Default).await, spoken(&home).await);
    let (honest, forged) = (bundle(&home, "a.agentd"), bundle(&home, "f.agentd"));
    export(&home, &to(id, &honest)).await.unwrap();
    let call = agentd_protocol::CallId::new(victim, "00112233deadbeef".into());
    let parent = json!({ "sessionId": victim, "callId": call });
    let adopt = |record: &mut Value| {
        if record["type"] == "sessionCreated" {
            record["parent"] = parent.clone();
        }
    };
    forge(&honest, &forged, adopt, |_| {});
    let taken = import(&there, &from(&forged)).await.unwrap();
    assert_eq!((taken.session_id, taken.state.parent), (id, None));
    there.registry.ask(victim, |reply| Command::Delete { reply }).await.unwrap();
    assert_eq!(there.state(id).await.turns, 1, "it did not go with what it was said to belong to");
    let there = there.restart().await;
    assert_eq!(there.state(id).await.parent, None);
}

#[tokio::test]
async fn a_higher_number_of_owners_takes_nothing_that_was_handed_over_here() {
    let home = Home::start(says("Hello.")).await;
    let id = spoken(&home).await;
    let (first, second) = (bundle(&home, "a.agentd"), bundle(&home, "b.agentd"));
    export(&home, &to(id, &first)).await.unwrap();
    import(&home, &from(&first)).await.unwrap();
    let turn = home.prompt(id, "newer work").await.turn_id;
    home.wait(id, turn).await;
    export(&home, &to(id, &second)).await.unwrap();
    // The old bundle, with owners that it never had.
    let forged = bundle(&home, "f.agentd");
    let raise = |record: &mut Value| {
        if record["type"] == "sessionHandedOver" {
            record["epoch"] = json!(99);
        }
    };
    let imported = |record: &mut Value| raise(record);
    forge(&first, &forged, imported, |about| about["ownerEpoch"] = json!(99));
    let refused = import(&home, &from(&forged)).await.unwrap_err();
    assert!(matches!(&refused, SessionError::Conflict(_) | SessionError::Invalid { .. }), "{refused}");
    // One that agrees with itself, and goes on from something else.
    let forged = bundle(&home, "g.agentd");
    let rewrite = |record: &mut Value| {
        if record["type"] == "inboxAdded" && record.to_string().contains("newer work") {
            *record = serde_json::from_str(&record.to_string().replace("newer work", "other work")).unwrap();
        }
    };
    forge(&second, &forged, rewrite, |_| {});
    let refused = import(&home, &from(&forged)).await.unwrap_err();
    assert!(refused.to_string().contains("does not go on from what was handed over"), "{refused}");
    let taken = import(&home, &from(&second)).await.unwrap();
    assert_eq!((taken.taken_back, taken.state.turns), (true, 2));
}

#[tokio::test]
async fn a_session_that_is_new_here_brings_the_texts_of_its_journal() {
    let (home, there) = (Home::start(says("Hello.")).await, Home::start(says("Hello.")).await);
    let id = spoken(&home).await;
    let (honest, poor) = (bundle(&home, "a.agentd"), bundle(&home, "p.agentd"));
    export(&home, &to(id, &honest)).await.unwrap();
    let mut kept = files(&honest);
    let all = kept.len();
    kept.retain(|(name, _)| !name.starts_with("blobs/"));
    assert!(kept.len() + 3 <= all, "prompt, tools and a long message are blobs");
    write(&poor, kept, |_| {});
    let refused = import(&there, &from(&poor)).await.unwrap_err();
    assert!(refused.to_string().contains("names a text that is not in it"), "{refused}");
    assert!(there.registry.snapshot(id).await.is_err(), "nothing of it is here");
    // Who gave it away has them, and has them still when it is back.
    import(&there, &from(&honest)).await.unwrap();
    assert!(import(&home, &from(&poor)).await.unwrap().taken_back);
    let turn = home.prompt(id, "go on").await.turn_id;
    assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished);
    assert!(home.requests().await.pop().unwrap().to_string().contains("word word word"));
}

#[tokio::test]
async fn what_a_later_owner_added_has_to_come_back_with_it() {
    let (home, there) = (Home::start(says("Hello.")).await, Home::start(says("Hello.")).await);
    let id = spoken(&home).await;
    let (first, honest, poor) =
        (bundle(&home, "a.agentd"), bundle(&home, "b.agentd"), bundle(&home, "p.agentd"));
    export(&home, &to(id, &first)).await.unwrap();
    import(&there, &from(&first)).await.unwrap();
    let turn = there.prompt(id, &"other ".repeat(10_000)).await.turn_id;
    there.wait(id, turn).await;
    export(&there, &to(id, &honest)).await.unwrap();
    let (had, mut kept) = (files(&first), files(&honest));
    let names: Vec<_> = had.into_iter().map(|(name, _)| name).collect();
    kept.retain(|(name, _)| !name.starts_with("blobs/") || names.contains(name));
    write(&poor, kept, |_| {});
    let journal = home.paths.session_dir(id).join("journal.jsonl");
    let before = std::fs::read(&journal).unwrap();
    let refused = import(&home, &from(&poor)).await.unwrap_err();
    assert!(refused.to_string().contains("names a text that is not in it"), "{refused}");
    assert_eq!(std::fs::read(&journal).unwrap(), before, "ours is as it was");
    let back = import(&home, &from(&honest)).await.unwrap();
    assert_eq!((back.taken_back, back.state.turns), (true, 2));
}

#[tokio::test]
async fn a_session_whose_journal_no_import_would_take_stays_where_it_is() {
    type Damage = fn(Vec<u8>) -> Vec<u8>;
    let text = |journal: Vec<u8>| String::from_utf8(journal).unwrap();
    let damages: [(&str, Damage); 3] = [
        ("no readable beginning", |mut journal| {
            let end = journal.iter().position(|byte| *byte == b'\n').unwrap();
            journal[..end].fill(0);
            journal
        }),
        ("must not pass over", |journal| {
            String::from_utf8(journal).unwrap().replacen("\"cwd\"", "\"cwe\"", 1).into_bytes()
        }),
        ("a newer agentd wrote it", |journal| {
            let text = String::from_utf8(journal).unwrap();
            let (first, rest) = text.split_once('\n').unwrap();
            format!("{first}\n{}", rest.replacen("\"v\":1", "\"v\":5", 1)).into_bytes()
        }),
    ];
    for (why, damage) in damages {
        let home = Home::start(says("Hello.")).await;
        let id = spoken(&home).await;
        let path = home.paths.session_dir(id).join("journal.jsonl");
        let whole = std::fs::read(&path).unwrap();
        // In memory it is well.
        std::fs::write(&path, damage(whole.clone())).unwrap();
        for copy in [false, true] {
            let file = bundle(&home, "a.agentd");
            let refused = export(&home, &ExportParams { copy, ..to(id, &file) }).await.unwrap_err();
            assert!(refused.to_string().contains(why), "{refused}");
            assert!(!file.exists());
        }
        let state = home.state(id).await;
        assert_eq!(state.handed_over, None);
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(text(std::fs::read(&path).unwrap()), text(whole), "not a byte was added");
        let left = std::fs::read_dir(home.paths.sessions_dir()).unwrap().count();
        assert_eq!(left, 1, "nothing of the trial is left");
        assert!(export(&home, &to(id, &bundle(&home, "b.agentd"))).await.unwrap().handed_over);
    }
}

#[tokio::test]
async fn a_bundle_that_names_a_home_is_asked_about_each_edit() {
    let (home, there) = (Home::start(says("Hello.")).await, Home::start(says("Hello.")).await);
    let id = spoken(&home).await;
    let file = bundle(&home, "a.agentd");
    export(&home, &to(id, &file)).await.unwrap();
    let whole = ImportParams { cwd: Some("/".into()), ..from(&file) };
    let taken = import(&there, &whole).await.unwrap();
    assert_eq!(taken.state.mode, Mode::Default);
    assert!(taken.note.unwrap().starts_with("It was in acceptEdits before"));
    let back = import(&home, &from(&file)).await.unwrap();
    assert_eq!(back.state.mode, Mode::AcceptEdits, "where it has a project of its own it keeps its mode");
}

#[tokio::test]
async fn of_two_who_hand_it_over_at_once_to_one_place_both_have_the_bundle() {
    let home = Home::start(says("Hello.")).await;
    let id = spoken(&home).await;
    let file = bundle(&home, "a.agentd");
    let params = to(id, &file);
    let (one, two) = tokio::join!(export(&home, &params), export(&home, &params));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!((one.digest, one.handed_over), (two.digest, two.handed_over));
    // Where something else stands it is said plainly.
    let other = bundle(&home, "other");
    std::fs::write(&other, "mine").unwrap();
    let refused = export(&home, &to(id, &other)).await.unwrap_err();
    assert!(refused.to_string().contains("exists already; nothing was written"), "{refused}");
    assert_eq!(std::fs::read(&other).unwrap(), b"mine");
}
