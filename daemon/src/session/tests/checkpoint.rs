//! A checkpoint holds the whole state, and its version is that of the fold.

use proptest::prelude::*;

use super::super::checkpoint::FOLD;
use super::fold::{picks, records};
use super::*;

proptest! {
    /// Whatever was folded, what a checkpoint says of it is the same state, and the same records lead on from it.
    #[test]
    fn a_state_written_down_is_the_state(before in picks(), after in picks()) {
        let cast = Cast::new();
        let mut state = cast.state();
        fold(&mut state, &records(&cast, &before));
        let text = serde_json::to_string(&state).unwrap();
        let mut again: SessionState = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&again, &state);
        let later = records(&cast, &after);
        fold(&mut state, &later);
        fold(&mut again, &later);
        prop_assert_eq!(again, state);
    }
}

/// What the fold makes of a made-up session, with names in the place of ids.
fn folded() -> String {
    let cast = Cast::new();
    let mut state = cast.state();
    fold(&mut state, &cast.one_of_each().into_iter().map(|(record, _)| record).collect::<Vec<_>>());
    fold(
        &mut state,
        &[
            cast.prompt(1, At::Turn),
            cast.started(1),
            cast.taken(1, 1),
            plan_entered(2),
            plan_written("# Plan", PlanAuthor::Own),
            cast.sampling(1),
            cast.replied(Stop::End),
            cast.proposed(1, true),
            cast.proposed(2, false),
            cast.judged(1, Decision::Deny),
            cast.result(1, ToolStatus::Denied),
            cast.asks(2, 1),
        ],
    );
    let mut value = serde_json::to_value(&state).unwrap();
    // Rises with every record of the list above, which grows with every new kind.
    for (name, sample) in [("head", serde_json::json!(0)), ("updated_at", serde_json::json!(at(0)))] {
        value[name] = sample;
    }
    let mut text = serde_json::to_string_pretty(&value).unwrap();
    let ids = |kind: &str, ids: Vec<String>| -> Vec<(String, String)> {
        ids.into_iter().enumerate().map(|(n, id)| (id, format!("{kind}{n}"))).collect()
    };
    let approvals: Vec<_> = cast.approvals.iter().chain([&cast.trust]).collect();
    let known = [
        ids("call", cast.calls.iter().map(ToString::to_string).collect()),
        ids("message", cast.messages.iter().map(ToString::to_string).collect()),
        ids("approval", approvals.iter().map(|a| a.approval_id.to_string()).collect()),
        ids("digest", approvals.iter().map(|a| a.digest.to_string()).collect()),
        ids("turn", cast.turns.iter().map(ToString::to_string).collect()),
        ids("session", vec![cast.session.to_string()]),
        ids("daemon", vec![state.created.daemon_id.to_string()]),
    ];
    for (id, name) in known.into_iter().flatten() {
        text = text.replace(&id, &name);
    }
    // Places and numbers say where records lie, not what the fold makes of them.
    text.lines()
        .filter(|line| !["\"offset\"", "\"seq\"", "\"at\"", "At\""].iter().any(|name| line.contains(name)))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// If this fails, a checkpoint of an older build means something else to this one: raise `FOLD`, then write the new text
/// and the new number here.
#[test]
fn the_version_of_checkpoints_rises_with_the_fold() {
    let folded = folded();
    assert_eq!(
        (FOLD, digest_of(folded.as_bytes()).hex()),
        (9, "10055d143ce07691dba32649cc305e8e79ce4ad2b141b110b666c6804cc01ee5".into()),
        "{folded}"
    );
}
