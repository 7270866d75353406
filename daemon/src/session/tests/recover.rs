//! What a restart makes of each thing that it may find, case by case.

use super::super::recover::recover;
use super::super::step::{Step, next_step};
use super::*;

fn names(records: &[Record]) -> Vec<&'static str> {
    records.iter().map(Record::name).collect()
}

/// What a restart makes of `records`: the names of what it journals, and the state after.
fn restart(cast: &Cast, records: &[Record]) -> (Vec<&'static str>, SessionState) {
    let mut state = turning(cast);
    fold(&mut state, records);
    let found = recover(&state);
    fold(&mut state, &found);
    (names(&found), state)
}

#[test]
fn waiting_for_a_person_still_waits_under_the_same_id_and_counts_no_crash() {
    let cast = Cast::new();
    let waiting = [cast.sampling(1), cast.replied(Stop::End), cast.proposed(0, false), cast.asks(0, 0)];
    for _ in 0..3 {
        let (found, state) = restart(&cast, &waiting);
        assert_eq!(found, [""; 0]);
        assert_eq!(next_step(&state), Step::Await);
        assert_eq!(state.approvals[0].approval.approval_id, cast.approvals[0].approval_id);
        assert_eq!(state.turn.unwrap().crashes, 0);
    }
}

#[test]
fn an_inbox_entry_without_a_turn_starts_one() {
    let cast = Cast::new();
    let mut state = cast.state();
    fold(&mut state, &[cast.prompt(0, At::Turn)]);
    assert_eq!(names(&recover(&state)), [""; 0]);
    assert_eq!(next_step(&state), Step::StartTurn(cast.turns[0]));
}

#[test]
fn sampling_goes_on_once_and_a_second_crash_ends_the_turn() {
    let cast = Cast::new();
    let (found, mut state) = restart(&cast, &[cast.sampling(2)]);
    assert_eq!(found, ["sampleFailed", "turnResumed"]);
    assert_eq!(next_step(&state), Step::Sample { attempt: 2 });

    fold(&mut state, &[cast.sampling(2), cast.prompt(1, At::Turn)]);
    let second = recover(&state);
    assert_eq!(names(&second), ["sampleFailed", "turnFinished"]);
    fold(&mut state, &second);
    assert_eq!(state.last_outcome, Some(Outcome::Interrupted));
    assert_eq!(next_step(&state), Step::StartTurn(cast.turns[1]), "what waited behind it is not to blame");
}

#[test]
fn read_only_calls_are_interrupted_and_the_turn_goes_on() {
    let cast = Cast::new();
    let running = [
        cast.sampling(1),
        cast.replied(Stop::End),
        cast.proposed(0, true),
        cast.proposed(1, true),
        cast.judged(0, Decision::Allow),
        cast.judged(1, Decision::Allow),
        cast.running(0, false),
        cast.running(1, false),
        cast.result(0, ToolStatus::Ok),
    ];
    let (found, state) = restart(&cast, &running);
    assert_eq!(found, ["callFinished", "turnResumed"], "only what had no result gets one");
    assert_eq!(next_step(&state), Step::Sample { attempt: 1 });
}

#[test]
fn an_effect_without_a_result_ends_the_turn_and_holds_the_inbox_until_a_person_prompts() {
    let cast = Cast::new();
    let running = [
        cast.sampling(1),
        cast.replied(Stop::End),
        cast.proposed(0, false),
        cast.proposed(1, false),
        cast.judged(0, Decision::Allow),
        cast.running(0, true),
        cast.prompt(1, At::Turn),
    ];
    let (found, mut state) = restart(&cast, &running);
    assert_eq!(found, ["callFinished", "callFinished", "turnFinished"], "every call has one result");
    assert_eq!(state.last_outcome, Some(Outcome::Interrupted));
    assert!(state.turn.is_none() && state.inbox_held);
    assert_eq!(next_step(&state), Step::Idle);
    fold(&mut state, &[cast.prompt(2, At::Turn)]);
    assert_eq!(next_step(&state), Step::StartTurn(cast.turns[1]));
}

#[test]
fn a_parked_turn_goes_on_and_the_shutdown_is_no_crash() {
    let cast = Cast::new();
    let (found, state) = restart(&cast, &[TurnParked { turn_id: cast.turns[0] }.into()]);
    assert_eq!(found, ["turnResumed"]);
    let turn = state.turn.as_ref().unwrap();
    assert_eq!((turn.crashes, turn.parked), (0, false));
}

#[test]
fn a_turn_that_waited_when_it_was_parked_goes_on_once_answered_and_then_crashes_count_again() {
    let cast = Cast::new();
    let parked = || Record::from(TurnParked { turn_id: cast.turns[0] });
    let crashed = || Record::from(TurnResumed { turn_id: cast.turns[0], after_crash: true });
    let waiting = [cast.sampling(1), cast.replied(Stop::End), cast.proposed(0, false), cast.asks(0, 0)];
    let yes = cast.resolved(0, Some(ChoiceId::AllowOnce), None);

    // Answered while the daemon was going down.
    let mut records: Vec<_> = [crashed()].into_iter().chain(waiting.clone()).collect();
    records.extend([parked(), yes.clone()]);
    let (found, state) = restart(&cast, &records);
    assert_eq!(found, ["turnResumed"]);
    assert_eq!(state.turn.unwrap().crashes, 1, "the shutdown was none");

    // Answered after the next start; from its first step on a crash is a crash.
    for step in [cast.running(0, false), cast.sampling(1)] {
        let mut records: Vec<_> = [crashed()].into_iter().chain(waiting.clone()).collect();
        records.extend([parked(), yes.clone(), step]);
        let (found, state) = restart(&cast, &records);
        assert_eq!(found.last(), Some(&"turnFinished"), "{found:?}");
        assert!(state.turn.is_none());
    }
}

#[test]
fn a_turn_that_was_being_stopped_ends_and_does_not_go_on() {
    let cast = Cast::new();
    let (found, state) = restart(&cast, &[cast.sampling(1), cast.stopping(0)]);
    assert_eq!(found, ["sampleFailed"]);
    assert!(matches!(next_step(&state), Step::Finish(ending) if ending.outcome == Outcome::Interrupted));
}

#[test]
fn a_pause_before_the_next_attempt_survives() {
    let cast = Cast::new();
    let (found, state) =
        restart(&cast, &[cast.sampling(1), cast.failed(AfterFailure::Retry { at: at(99_000) })]);
    assert_eq!(found, ["turnResumed"]);
    assert_eq!(next_step(&state), Step::WaitUntil(at(99_000)));
}

#[test]
fn what_recovery_writes_leaves_nothing_to_recover() {
    let cast = Cast::new();
    let running = [
        cast.sampling(1),
        cast.replied(Stop::End),
        cast.proposed(0, false),
        cast.judged(0, Decision::Allow),
        cast.running(0, true),
    ];
    let (_, state) = restart(&cast, &running);
    assert_eq!(names(&recover(&state)), [""; 0]);
}
