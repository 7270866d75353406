use super::super::step::{Ending, Step, next_step};
use super::*;

fn after(records: impl IntoIterator<Item = Record>, cast: &Cast) -> Step {
    let mut state = turning(cast);
    fold(&mut state, &records.into_iter().collect::<Vec<_>>());
    next_step(&state)
}

fn judge(cast: &Cast, calls: &[usize]) -> Step {
    Step::Judge(calls.iter().map(|call| cast.calls[*call].clone()).collect())
}

fn run(cast: &Cast, calls: &[usize]) -> Step {
    Step::Run(calls.iter().map(|call| cast.calls[*call].clone()).collect())
}

fn finish(outcome: Outcome) -> Step {
    Step::Finish(Ending { outcome, error: None })
}

#[test]
fn an_idle_session_takes_its_oldest_prompt_unless_the_inbox_is_held() {
    let cast = Cast::new();
    let mut state = cast.state();
    assert_eq!(next_step(&state), Step::Idle);
    fold(&mut state, &[cast.prompt(0, At::Turn), cast.prompt(1, At::Step)]);
    assert_eq!(next_step(&state), Step::StartTurn(cast.turns[0]));
    state.inbox_held = true;
    assert_eq!(next_step(&state), Step::Idle);
    fold(&mut state, &[cast.prompt(2, At::Turn)]);
    assert_eq!(next_step(&state), Step::StartTurn(cast.turns[0]), "a person's prompt lets the inbox go");
    state.read_only = Some("damage".into());
    assert_eq!(next_step(&state), Step::Idle);
}

#[test]
fn the_model_is_asked_waited_for_and_asked_again() {
    let cast = Cast::new();
    assert_eq!(after([], &cast), Step::Sample { attempt: 1 });
    assert_eq!(after([cast.sampling(1)], &cast), Step::Busy);
    let retry = AfterFailure::Retry { at: at(77) };
    assert_eq!(after([cast.sampling(1), cast.failed(retry)], &cast), Step::WaitUntil(at(77)));
    assert_eq!(
        after([cast.sampling(3), cast.failed(AfterFailure::Again)], &cast),
        Step::Sample { attempt: 3 }
    );
    let Step::Finish(ending) = after([cast.sampling(6), cast.failed(AfterFailure::GiveUp)], &cast) else {
        panic!("the turn goes on without a model")
    };
    assert_eq!((ending.outcome, ending.error.as_deref()), (Outcome::Failed, Some("busy")));
}

#[test]
fn what_the_model_says_last_ends_the_turn_unless_someone_steers() {
    let cast = Cast::new();
    let said = |end| [cast.sampling(1), cast.ended(end)];
    assert_eq!(after(said(ReplyEnd::Model(Stop::End)), &cast), finish(Outcome::Finished));
    assert_eq!(after(said(ReplyEnd::Cut), &cast), finish(Outcome::Interrupted));
    for (stop, outcome) in [(Stop::Length, Outcome::Limit), (Stop::Refusal("no".into()), Outcome::Failed)] {
        let Step::Finish(ending) = after(said(ReplyEnd::Model(stop)), &cast) else { panic!("no end") };
        assert_eq!(ending.outcome, outcome);
        assert!(ending.error.is_some());
    }
    let steered = [cast.sampling(1), cast.prompt(1, At::Step), cast.replied(Stop::End)];
    assert_eq!(after(steered, &cast), Step::Sample { attempt: 1 });
    let queued = [cast.sampling(1), cast.prompt(1, At::Turn), cast.replied(Stop::End)];
    assert_eq!(after(queued, &cast), finish(Outcome::Finished));
}

#[test]
fn answers_cut_at_the_length_limit_end_the_turn_at_the_third() {
    let cast = Cast::new();
    let mut state = turning(&cast);
    for round in 1..=3 {
        let cut = [
            cast.sampling(1),
            cast.replied(Stop::Length),
            cast.proposed(0, false),
            cast.result(0, ToolStatus::Error),
        ];
        fold(&mut state, &cut);
        let ended = matches!(next_step(&state), Step::Finish(Ending { outcome: Outcome::Limit, .. }));
        assert_eq!(ended, round == 3, "round {round}");
    }
}

#[test]
fn neighbouring_read_only_calls_form_a_group_and_effects_stand_alone() {
    let cast = Cast::new();
    // read, read, write, read
    let mut state = turning(&cast);
    fold(&mut state, &[cast.sampling(1), cast.replied(Stop::End)]);
    for (call, read_only) in [(0, true), (1, true), (2, false), (3, true)] {
        fold(&mut state, &[cast.proposed(call, read_only)]);
    }
    assert_eq!(next_step(&state), judge(&cast, &[0, 1]));
    fold(&mut state, &[cast.judged(0, Decision::Allow)]);
    assert_eq!(next_step(&state), judge(&cast, &[1]), "a group runs when all of it is judged");
    fold(&mut state, &[cast.asks(1, 0)]);
    assert_eq!(next_step(&state), Step::Await, "one that waits keeps its group");
    fold(&mut state, &[cast.resolved(0, Some(ChoiceId::AllowOnce), None)]);
    assert_eq!(next_step(&state), run(&cast, &[0, 1]));
    fold(&mut state, &[cast.running(0, false), cast.running(1, false), cast.result(0, ToolStatus::Ok)]);
    assert_eq!(next_step(&state), Step::Busy);
    fold(&mut state, &[cast.result(1, ToolStatus::Error)]);
    assert_eq!(
        next_step(&state),
        judge(&cast, &[2]),
        "an error of one call keeps no other from being judged"
    );
    fold(&mut state, &[cast.judged(2, Decision::Deny), cast.result(2, ToolStatus::Denied)]);
    assert_eq!(next_step(&state), judge(&cast, &[3]));
    fold(
        &mut state,
        &[cast.judged(3, Decision::Allow), cast.running(3, false), cast.result(3, ToolStatus::Ok)],
    );
    assert_eq!(next_step(&state), Step::Sample { attempt: 1 });
}

#[test]
fn a_denial_ends_the_turn_unless_it_says_what_to_do_instead() {
    let cast = Cast::new();
    let denied = |feedback| {
        [
            cast.sampling(1),
            cast.replied(Stop::End),
            cast.proposed(0, false),
            cast.proposed(1, false),
            cast.asks(0, 0),
            cast.resolved(0, Some(ChoiceId::Deny), feedback),
            cast.result(0, ToolStatus::Denied),
        ]
    };
    assert_eq!(after(denied(None), &cast), finish(Outcome::Refused));
    assert_eq!(after(denied(Some("use b")), &cast), judge(&cast, &[1]));
}

#[test]
fn an_interrupt_ends_every_phase_and_waits_only_for_what_runs() {
    let cast = Cast::new();
    let calls = || [cast.sampling(1), cast.replied(Stop::End), cast.proposed(0, false)];
    let retry = AfterFailure::Retry { at: at(77) };
    let phases: Vec<Vec<Record>> = vec![
        vec![],
        vec![cast.sampling(1)],
        vec![cast.sampling(1), cast.failed(retry)],
        vec![cast.sampling(1), cast.ended(ReplyEnd::Cut)],
        calls().into(),
        calls().into_iter().chain([cast.asks(0, 0)]).collect(),
    ];
    for mut records in phases {
        records.push(cast.stopping(0));
        let shown = format!("{records:?}");
        assert_eq!(after(records, &cast), finish(Outcome::Interrupted), "{shown}");
    }
    let mut running: Vec<_> = calls().into();
    running.extend([cast.judged(0, Decision::Allow), cast.running(0, true), cast.stopping(0)]);
    assert_eq!(after(running.clone(), &cast), Step::Busy);
    running.push(cast.result(0, ToolStatus::Interrupted));
    assert_eq!(after(running, &cast), finish(Outcome::Interrupted));
}

#[test]
fn a_pause_ends_when_it_was_to_end_and_outlasts_no_clock_that_was_set_back() {
    use crate::model::MAX_WAIT;
    use crate::session::step::pause;
    let at = agentd_protocol::Timestamp::from_unix_ms;
    let (now, hour, year) = (1_700_000_000_000, 3_600_000, 366 * 24 * 3_600_000);
    for (clock, left) in [
        (now - 2_000, std::time::Duration::from_secs(2)),
        (now, std::time::Duration::ZERO),
        (now + year, std::time::Duration::ZERO),
        (now - hour, MAX_WAIT),
        (i64::MIN, MAX_WAIT),
    ] {
        assert_eq!(pause(at(now), at(clock)), left, "{clock}");
    }
}
