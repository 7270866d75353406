use proptest::prelude::*;

use agentd_protocol::session::Row;

use super::super::outline::Outline;
use super::super::project::{row, view};
use super::super::recover::recover;
use super::super::step::{Step, next_step};
use super::*;

const HEARD: [Heard; 5] = [Heard::Allowed, Heard::Blocked, Heard::Unreadable, Heard::Nothing, Heard::Dropped];

/// Records of every kind in any order, with ids that meet.
pub(super) fn records(cast: &Cast, picks: &[(usize, usize, usize)]) -> Vec<Record> {
    let modes = Mode::ALL;
    let statuses = [ToolStatus::Ok, ToolStatus::Error, ToolStatus::Denied, ToolStatus::Interrupted];
    let stops = [Stop::End, Stop::Length, Stop::Refusal("no".into())];
    let afters = [AfterFailure::Again, AfterFailure::GiveUp, AfterFailure::Retry { at: at(3) }];
    let choices = [Some(ChoiceId::AllowOnce), Some(ChoiceId::Deny), None];
    let each = cast.one_of_each();
    picks
        .iter()
        .map(|&(kind, a, b)| match kind % 21 {
            0 => cast.prompt(a % 3, if b % 2 == 0 { At::Turn } else { At::Step }),
            1 => cast.taken(a % 3, b % 3),
            2 => cast.started(a % 3),
            3 => cast.stopping(a % 3),
            4 => cast.sampling(1),
            5 => cast.failed(afters[a % 3]),
            6 => cast.replied(stops[a % 3].clone()),
            7 => cast.proposed(a % 4, b % 2 == 0),
            8 => cast.judged(a % 4, [Decision::Allow, Decision::Ask, Decision::Deny][b % 3]),
            9 => cast.running(a % 4, b % 2 == 0),
            10 => cast.result(a % 4, statuses[b % 4]),
            11 => cast.asks(a % 4, b % 3),
            12 => cast.resolved(a % 3, choices[b % 3], (a % 2 == 0).then_some("why")),
            13 => cast.finished(a % 3, Outcome::Finished),
            14 => mode_changed(Mode::Default, modes[a % modes.len()]),
            15 => cast.tree(a % 3, [When::Before, When::Plan, When::Between, When::After][b % 4], a % 2 == 0),
            16 => cast.asks_for_trust(),
            17 => cast.trusted([Some(ChoiceId::Trust), Some(ChoiceId::Untrusted), None][a % 3]),
            18 => cast.classified(a % 4, HEARD[b % HEARD.len()]),
            19 => breaker([BreakerChange::Tripped, BreakerChange::Thrown, BreakerChange::Closed][b % 3]),
            _ => each[a % each.len()].0.clone(),
        })
        .collect()
}

pub(super) fn picks() -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
    prop::collection::vec((0usize..64, 0usize..64, 0usize..64), 0..80)
}

proptest! {
    /// What the index is told of a session, folded record by record, is what the session itself would say when idle.
    #[test]
    fn the_outline_tells_what_the_fold_does(picks in picks()) {
        let cast = Cast::new();
        let mut state = cast.state();
        let mut outline = Outline::default();
        outline.apply(Seq(1), at(0), &cast.created().into());
        for record in records(&cast, &picks) {
            // A session is begun once.
            if matches!(record, Record::Created(_)) {
                continue;
            }
            fold(&mut state, [&record]);
            outline.apply(state.head, state.updated_at, &record);
        }
        let idle = outline.row.unwrap();
        let live = row(&state);
        let expected = Row {
            session_id: idle.session_id,
            activity: idle.activity,
            waiting_for: Vec::new(),
            health: idle.health,
            // What waits in the inbox, and for whom, is told by the records that end a turn.
            last_prompt: idle.last_prompt.clone(),
            held_prompts: idle.held_prompts,
            ..live
        };
        prop_assert_eq!(idle, expected);
    }

    /// Any record in any state: no panic, here or in what looks at the state.
    #[test]
    fn the_fold_is_total(picks in picks()) {
        let cast = Cast::new();
        let mut state = cast.state();
        for record in records(&cast, &picks) {
            fold(&mut state, [&record]);
            match next_step(&state) {
                Step::Judge(calls) | Step::Run(calls) => prop_assert!(!calls.is_empty(), "{state:?}"),
                Step::StartTurn(prompt) => {
                    prop_assert!(state.inbox.iter().any(|entry| entry.prompt_id == prompt));
                }
                _ => {}
            }
            let _ = (view(&state, None), row(&state), recover(&state));
        }
    }

    /// What is folded live and what is folded from the journal's bytes are the same state.
    #[test]
    fn a_replay_gives_the_live_state(picks in picks()) {
        let cast = Cast::new();
        let (mut live, mut again) = (cast.state(), cast.state());
        again.created = Arc::clone(&live.created);
        for record in records(&cast, &picks) {
            fold(&mut live, [&record]);
            let Parsed::Known { record, turn } = Record::parse(&record.to_raw(Some(cast.turns[0]))) else {
                panic!("a record cannot be read back")
            };
            prop_assert_eq!(turn, Some(cast.turns[0]));
            fold(&mut again, [&*record]);
            prop_assert_eq!(&live, &again);
        }
    }
}

#[test]
fn the_first_result_of_a_call_is_its_result() {
    let cast = Cast::new();
    let mut state = turning(&cast);
    fold(
        &mut state,
        &[cast.sampling(1), cast.replied(Stop::End), cast.proposed(0, true), cast.proposed(1, true)],
    );
    fold(&mut state, &[cast.result(0, ToolStatus::Ok)]);
    let before = state.context.clone();
    fold(&mut state, &[cast.result(0, ToolStatus::Error)]);
    assert_eq!(state.context, before);
}

#[test]
fn an_approval_for_a_call_that_is_over_is_no_approval() {
    let cast = Cast::new();
    let mut state = turning(&cast);
    fold(
        &mut state,
        &[cast.sampling(1), cast.replied(Stop::End), cast.proposed(0, false), cast.proposed(1, false)],
    );
    fold(&mut state, &[cast.result(0, ToolStatus::Ok), cast.asks(0, 0), cast.asks(3, 2)]);
    assert!(state.approvals.is_empty());
    fold(&mut state, &[cast.asks(1, 0)]);
    assert_eq!(state.approvals.len(), 1);
}

#[test]
fn leaving_plan_mode_ends_the_plan_and_an_approval_keeps_it_approved() {
    use agentd_protocol::plan::PlanPhase;
    let cast = Cast::new();
    let phase = |records: &[Record]| {
        let mut state = cast.state();
        fold(&mut state, &[mode_changed(Mode::AcceptEdits, Mode::Plan), plan_entered(1)]);
        fold(&mut state, records);
        let plan = state.plan.unwrap();
        assert_eq!(plan.pre_mode, Mode::AcceptEdits);
        plan.phase
    };
    let revision = digest_of(b"# Plan");
    let approved = PlanApproved { revision, choice: ChoiceId::Execute, mode_after: Mode::Default }.into();
    assert_eq!(phase(&[]), PlanPhase::Planning);
    assert_eq!(phase(&[mode_changed(Mode::Plan, Mode::Default)]), PlanPhase::Left);
    assert_eq!(phase(&[approved, mode_changed(Mode::Plan, Mode::Default)]), PlanPhase::Approved);
}

#[test]
fn the_hashes_of_files_are_bounded_and_the_oldest_go_first() {
    let cast = Cast::new();
    let mut state = turning(&cast);
    for n in 0..600 {
        let changed = FileChanged {
            call_id: cast.calls[0].clone(),
            path: format!("/f{n}").into(),
            before: None,
            after: Some(digest_of(b"x")),
            added: 1,
            removed: 0,
        };
        fold(&mut state, &[changed.into()]);
    }
    let known = state.reads.snapshot();
    assert_eq!(known.len(), 500);
    assert!(!known.contains_key(&PathBuf::from("/f99")) && known.contains_key(&PathBuf::from("/f100")));
}

#[test]
fn what_the_daemon_does_for_itself_makes_no_session_newer() {
    let cast = Cast::new();
    let mut state = turning(&cast);
    let before = state.updated_at;
    let later = at(1_000);
    let place = place(Seq(90));
    let turn_id = cast.turns[0];
    for record in [
        Record::from(TurnParked { turn_id }),
        TurnResumed { turn_id, after_crash: true }.into(),
        PlanSaved { revision: digest_of(b"x") }.into(),
    ] {
        state.apply(Seq(90), later, place, &record);
        assert_eq!(state.updated_at, before, "{record:?}");
    }
    state.apply(Seq(91), later, place, &cast.stopping(0));
    assert_eq!(state.updated_at, later);
}

#[test]
fn a_session_is_about_its_newest_prompt_and_not_about_what_steered_it() {
    let cast = Cast::new();
    let mut state = cast.state();
    let prompt = |turn: usize, at_point, text: &str| {
        let Record::InboxAdded(mut added) = cast.prompt(turn, at_point) else { unreachable!() };
        added.content = vec![Part::Text { text: Body::Inline(text.into()) }];
        Record::from(added)
    };
    fold(&mut state, &[prompt(0, At::Step, " Add\n paging ")]);
    assert_eq!(state.last_prompt.as_deref(), Some("Add paging"));
    fold(&mut state, &[cast.started(0), cast.taken(0, 0), prompt(1, At::Step, "keep the tests")]);
    assert_eq!(state.last_prompt.as_deref(), Some("Add paging"));
    fold(&mut state, &[prompt(2, At::Turn, &"long ".repeat(50))]);
    assert_eq!(state.last_prompt.unwrap().chars().count(), 80);
    assert_eq!(row(&cast.state()).held_prompts, 0);
}
