//! Loading from a checkpoint and loading from the whole journal give the same session.

use std::path::Path;

use super::*;
use crate::session::state::SessionState;
use crate::session::{Kept, load};

/// A session whose journal is worth a checkpoint, with some turns after it; nothing has it open any more.
async fn long_session() -> (Home, SessionId) {
    let home = Home::start(calls(json!([{ "name": "probe", "arguments": {} }]))).await;
    let id = home.session(Mode::Default).await;
    for words in [10, 5_000, 5_000, 5_000, 5_000, 5_000, 10] {
        let turn = home.prompt(id, &"word ".repeat(words)).await.turn_id;
        home.wait(id, turn).await;
    }
    home.set_mode(id, Mode::AcceptEdits).await.unwrap();
    home.registry.leave().await;
    (home, id)
}

async fn loaded(home: &Home, id: SessionId) -> (SessionState, Kept) {
    let loaded = load(home.registry.deps(), id).await.unwrap();
    assert_eq!(loaded.notices, [""; 0]);
    (loaded.state, loaded.kept)
}

fn checkpoint(home: &Home, id: SessionId) -> PathBuf {
    home.paths.session_dir(id).join("state.json")
}

#[tokio::test]
async fn a_checkpoint_and_the_rest_of_the_journal_are_the_whole_journal() {
    let (home, id) = long_session().await;
    let (fast, kept) = loaded(&home, id).await;
    let journal = std::fs::metadata(home.paths.session_dir(id).join("journal.jsonl")).unwrap().len();
    assert!(kept.journal > 0 && kept.journal < journal, "{kept:?} of {journal}");
    std::fs::remove_file(checkpoint(&home, id)).unwrap();
    let (whole, kept) = loaded(&home, id).await;
    assert_eq!(kept, Kept::default());
    assert_eq!(fast, whole);
}

#[tokio::test]
async fn a_checkpoint_that_is_not_as_expected_is_passed_over() {
    let (home, id) = long_session().await;
    let path = checkpoint(&home, id);
    let good = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let (whole, _) = loaded(&home, id).await;
    let other_fold = good.replacen("\"fold\":", "\"fold\":9", 1);
    let resealed = {
        let text = serde_json::from_str::<Value>(&other_fold).unwrap()["checkpoint"].to_string();
        json!({ "digest": crate::ids::digest_of(text.as_bytes()), "checkpoint": serde_json::from_str::<Value>(&text).unwrap() })
            .to_string()
    };
    let variants = [
        String::new(),
        "{}".into(),
        good[..good.len() / 2].to_owned(),
        good.replacen("\"default\"", "\"bypassPermissions\"", 1),
        other_fold,
        resealed,
    ];
    for bad in variants.iter().map(|text| text.as_bytes()).chain([&[0; 4096][..], b"\xff\xfe"]) {
        assert_ne!(bad, good.as_bytes());
        std::fs::write(&path, bad).unwrap();
        let (state, kept) = loaded(&home, id).await;
        assert_eq!(kept, Kept::default(), "{}", String::from_utf8_lossy(&bad[..bad.len().min(200)]));
        assert_eq!(state, whole);
    }
    std::fs::write(&path, good).unwrap();
    assert_ne!(loaded(&home, id).await.1, Kept::default());
}

/// Zeroes the first line of the journal.
fn lose_beginning(home: &Home, id: SessionId) {
    let path = home.paths.session_dir(id).join("journal.jsonl");
    let mut journal = std::fs::read(&path).unwrap();
    let end = journal.iter().position(|byte| *byte == b'\n').unwrap();
    journal[..end].fill(0);
    std::fs::write(path, journal).unwrap();
}

#[tokio::test]
async fn a_first_line_that_was_damaged_costs_no_session_that_has_a_checkpoint() {
    let (home, id) = long_session().await;
    let (whole, _) = loaded(&home, id).await;
    lose_beginning(&home, id);
    let with = load(home.registry.deps(), id).await.unwrap();
    assert_eq!(with.state, whole);
    assert!(
        with.notices.iter().any(|notice| notice.starts_with("line 1 of the journal")),
        "{:?}",
        with.notices
    );

    // Also one that another version's fold made.
    let path = checkpoint(&home, id);
    let mut sealed: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    sealed["checkpoint"]["fold"] = json!(1);
    sealed["checkpoint"]["state"]["context"] = json!("as it was then");
    sealed["digest"] = json!(crate::ids::digest_of(sealed["checkpoint"].to_string().as_bytes()));
    std::fs::write(&path, sealed.to_string()).unwrap();
    let mended = load(home.registry.deps(), id).await.unwrap();
    assert_eq!((&mended.state.created, &mended.state.trees.turns), (&whole.created, &whole.trees.turns));
    assert_eq!((mended.state.mode, mended.kept), (whole.mode, Kept::default()));
    assert!(mended.notices.iter().any(|notice| notice.contains("was taken from its checkpoint")));
    // It goes on.
    let home = home.restart().await;
    let turn = home.prompt(id, "go on").await.turn_id;
    assert_eq!(home.wait(id, turn).await.outcome, agentd_protocol::turn::Outcome::Finished);
    home.registry.leave().await;

    std::fs::remove_file(&path).unwrap();
    let lost = load(home.registry.deps(), id).await.err().unwrap().to_string();
    assert!(lost.contains("no readable beginning") && lost.contains(&format!("agentctl rm {id}")), "{lost}");
}

fn cut(path: &Path, keep: impl Fn(&str) -> bool) {
    let text = std::fs::read_to_string(path).unwrap();
    let end = text.lines().take_while(|line| keep(line)).map(|line| line.len() + 1).sum::<usize>();
    std::fs::write(path, &text[..end]).unwrap();
}

#[tokio::test]
async fn a_checkpoint_of_what_a_power_cut_took_is_passed_over() {
    let (home, id) = long_session().await;
    let journal = home.paths.session_dir(id).join("journal.jsonl");
    // The journal lost its end, the checkpoint survived; then the session went on.
    let mut turns = std::cell::Cell::new(0);
    cut(&journal, |line| {
        turns.set(turns.get() + usize::from(line.contains("\"turnFinished\"")));
        turns.get() < 2
    });
    assert_eq!(*turns.get_mut(), 2);
    let (state, kept) = loaded(&home, id).await;
    assert_eq!((kept, state.mode), (Kept::default(), Mode::Default));
    let home = home.restart().await;
    let turn = home.prompt(id, "go on").await.turn_id;
    home.wait(id, turn).await;
    home.registry.leave().await;
    let (state, _) = loaded(&home, id).await;
    std::fs::remove_file(checkpoint(&home, id)).unwrap();
    assert_eq!(loaded(&home, id).await.0, state);
}

#[tokio::test]
async fn a_session_that_is_read_only_gets_no_checkpoint() {
    let (home, id) = long_session().await;
    std::fs::remove_file(checkpoint(&home, id)).unwrap();
    let journal = home.paths.session_dir(id).join("journal.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    std::fs::write(&journal, text.replacen("\"type\":\"modeChanged\"", "\"type\":\"fromTheFuture\"", 1))
        .unwrap();
    let home = home.restart().await;
    assert_eq!(home.state(id).await.health, agentd_protocol::session::Health::ReadOnly);
    home.registry.park(std::time::Duration::from_secs(5)).await;
    home.registry.leave().await;
    assert!(!checkpoint(&home, id).exists(), "it would hide what must not be passed over");
}
