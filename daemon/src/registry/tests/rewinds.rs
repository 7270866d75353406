//! Going back, and putting away.

use agentd_protocol::session::{ListParams, RewindParams, RewindResult};
use agentd_protocol::turn::Outcome;

use super::plans::{planner, presented};
use super::*;

fn back(id: SessionId, before: Option<TurnId>) -> RewindParams {
    RewindParams { session_id: id, before_turn: before, turns: None, files: false }
}

fn forgotten(before_turn: TurnId, turns: u32) -> RewindResult {
    RewindResult { before_turn, turns, files: None }
}

async fn ask(home: &Home, params: RewindParams) -> Result<RewindResult, SessionError> {
    home.registry.ask(params.session_id, |reply| Command::Rewind { params, caller: person(), reply }).await
}

async fn rewind(home: &Home, id: SessionId, before: Option<TurnId>) -> Result<RewindResult, SessionError> {
    ask(home, back(id, before)).await
}

async fn archive(home: &Home, id: SessionId, archived: bool) -> Result<(), SessionError> {
    home.registry.ask(id, |reply| Command::Archive { archived, caller: person(), reply }).await
}

async fn listed(home: &Home, archived: bool) -> Vec<(SessionId, bool)> {
    let params = ListParams { archived, ..ListParams::default() };
    let rows = home.registry.list(&params).await.unwrap().sessions;
    rows.iter().map(|row| (row.session_id, row.archived)).collect()
}

#[tokio::test]
async fn the_model_forgets_from_that_turn_on_and_nothing_else_changes() {
    let home = Home::start(says("Hello.")).await;
    let id = home.session(Mode::Default).await;
    let mut turns = Vec::new();
    for words in ["alpha", "beta", "gamma"] {
        turns.push(home.prompt(id, words).await.turn_id);
        home.wait(id, *turns.last().unwrap()).await;
    }
    home.set_mode(id, Mode::AcceptEdits).await.unwrap();
    let before = home.state(id).await;
    let mut listener = home.listen(id).await;
    let result = rewind(&home, id, Some(turns[1])).await.unwrap();
    assert_eq!(result, forgotten(turns[1], 2));
    let reset = listener.next("contextReset").await;
    assert_eq!(reset["reason"], "rewind");
    assert!(reset["from"].as_u64().unwrap() < reset["seq"].as_u64().unwrap());
    // The list does not go on telling what was asked there, live or from the disk.
    let about = |home: &Home| {
        let registry = std::sync::Arc::clone(&home.registry);
        async move { registry.list(&ListParams::default()).await.unwrap().sessions[0].last_prompt.clone() }
    };
    assert_eq!(about(&home).await, None);
    let after = home.state(id).await;
    assert_eq!((after.mode, after.usage, after.turns), (before.mode, before.usage, before.turns));

    // The same after a restart.
    let home = home.restart().await;
    assert_eq!(about(&home).await, None);
    let turn = home.prompt(id, "delta").await.turn_id;
    home.wait(id, turn).await;
    let request = home.requests().await.pop().unwrap()["messages"].to_string();
    assert!(request.contains("alpha") && request.contains("delta"), "{request}");
    assert!(!request.contains("beta") && !request.contains("gamma"), "{request}");
    assert!(request.contains("took this conversation back"));

    // The last turn, when none is named.
    assert_eq!(rewind(&home, id, None).await.unwrap(), forgotten(turn, 1));
    assert!(matches!(rewind(&home, id, Some(TurnId::generate())).await, Err(SessionError::NotFound("turn"))));
    // Once is enough.
    assert!(matches!(rewind(&home, id, Some(turns[2])).await, Err(SessionError::Conflict(_))));
    let told = home.state(id).await;
    assert_eq!((told.turns, told.forgotten_turns), (4, 3));
    // Or so many, of those that are known.
    let last = |turns| RewindParams { turns: Some(turns), ..back(id, None) };
    assert!(matches!(ask(&home, last(2)).await, Err(SessionError::NotFound("turn"))));
    assert_eq!(ask(&home, last(1)).await.unwrap(), forgotten(turns[0], 1));
    assert!(matches!(ask(&home, last(1)).await, Err(SessionError::NotFound("turn"))));
    // Who did not hear the answer says it again.
    assert_eq!(rewind(&home, id, Some(turns[0])).await.unwrap(), forgotten(turns[0], 0));
    assert!(matches!(ask(&home, last(0)).await, Err(SessionError::Invalid { field: "turns", .. })));
    let both = RewindParams { before_turn: Some(turn), ..last(1) };
    assert!(matches!(ask(&home, both).await, Err(SessionError::Invalid { field: "turns", .. })));
}

#[tokio::test]
async fn in_plan_mode_the_model_is_told_of_it_again() {
    let home = Home::start(says("Hello.")).await;
    let id = home.session(Mode::Default).await;
    home.set_mode(id, Mode::Plan).await.unwrap();
    let turn = home.prompt(id, "alpha").await.turn_id;
    home.wait(id, turn).await;
    rewind(&home, id, None).await.unwrap();
    home.set_mode(id, Mode::Default).await.unwrap();
    let turn = home.prompt(id, "beta").await.turn_id;
    home.wait(id, turn).await;
    home.set_mode(id, Mode::Plan).await.unwrap();
    let last = home.prompt(id, "gamma").await.turn_id;
    home.wait(id, last).await;
    // Back to before plan mode was entered; the session stays in it.
    rewind(&home, id, Some(turn)).await.unwrap();
    let state = home.state(id).await;
    assert_eq!(state.mode, Mode::Plan);
    let turn = home.prompt(id, "delta").await.turn_id;
    home.wait(id, turn).await;
    let request = home.requests().await.pop().unwrap()["messages"].to_string();
    assert!(!request.contains("gamma"), "{request}");
    let newest = format!("Plan file: {}", state.plan.unwrap().path);
    assert!(request.contains(&newest), "{request}");
}

#[tokio::test]
async fn j4_going_back_past_a_fresh_start_brings_back_what_was_before_it_and_no_mode_and_no_plan() {
    let home = Home::start(planner()).await;
    let id = home.session(Mode::Default).await;
    let first = home.prompt(id, "alpha, afterwards").await.turn_id;
    home.wait(id, first).await;
    home.set_mode(id, Mode::Plan).await.unwrap();
    let mut listener = home.listen(id).await;
    let planning = home.prompt(id, "add paging").await.turn_id;
    listener.next("approvalRequested").await;
    let answer = home.answer(id, ChoiceId::ClearAndExecute).await;
    home.respond(answer).await.unwrap();
    assert_eq!(home.wait(id, planning).await.outcome, Outcome::Finished);
    let asked = home.requests().await.pop().unwrap()["messages"].to_string();
    assert!(!asked.contains("alpha, afterwards") && asked.contains("Write b.txt"), "{asked}");

    let before = home.state(id).await;
    let all = RewindParams { turns: Some(3), ..back(id, None) };
    assert!(matches!(ask(&home, all).await, Err(SessionError::NotFound("turn"))));
    assert_eq!(rewind(&home, id, None).await.unwrap(), forgotten(planning, 1));
    let after = home.state(id).await;
    assert_eq!((after.mode, &after.plan, after.usage), (Mode::AcceptEdits, &before.plan, before.usage));
    // By the fold alone, too.
    let home = home.restart().await;
    let turn = home.prompt(id, "beta, afterwards").await.turn_id;
    home.wait(id, turn).await;
    let asked = home.requests().await.pop().unwrap()["messages"].to_string();
    assert!(asked.contains("alpha, afterwards") && asked.contains("beta, afterwards"), "{asked}");
    assert!(!asked.contains("add paging") && !asked.contains("Write b.txt"), "{asked}");
    // The plan's turn is not there to be gone back over; the first one is.
    let both = RewindParams { turns: Some(2), ..back(id, None) };
    assert_eq!(ask(&home, both).await.unwrap(), forgotten(first, 2));
}

#[tokio::test]
async fn only_a_session_at_rest_goes_back_or_away() {
    let (home, id, turn, _) = presented(Mode::Default).await;
    let waits = |error| matches!(error, SessionError::Conflict(why) if why.contains("waits for an answer"));
    assert!(waits(rewind(&home, id, Some(turn)).await.unwrap_err()));
    assert!(waits(archive(&home, id, true).await.unwrap_err()));
    let empty = home.session(Mode::Default).await;
    assert!(matches!(rewind(&home, empty, None).await, Err(SessionError::NotFound("turn"))));
    let caller = someone("ci", agentd_protocol::initialize::Actor::Program);
    let params = back(empty, None);
    let by_program = home.registry.ask(empty, |reply| Command::Rewind { params, caller, reply }).await;
    assert!(matches!(by_program, Err(SessionError::Refused(_))));
}

#[tokio::test]
async fn an_archived_session_is_out_of_the_lists_until_it_is_prompted() {
    let home = Home::start(says("Hello.")).await;
    let (id, other) = (home.session(Mode::Default).await, home.session(Mode::Default).await);
    let mut listener = home.listen(id).await;
    for _ in 0..2 {
        archive(&home, id, true).await.unwrap();
    }
    assert_eq!(listener.next("sessionArchived").await["archived"], true);
    // From memory, then from the disk.
    assert_eq!(listed(&home, false).await, [(other, false)]);
    let home = home.restart().await;
    assert_eq!(listed(&home, false).await, [(other, false)]);
    assert_eq!(listed(&home, true).await, [(id, true), (other, false)]);

    let turn = home.prompt(id, "hello").await.turn_id;
    assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished);
    assert_eq!(listed(&home, false).await, [(id, false), (other, false)]);
    archive(&home, id, true).await.unwrap();
    archive(&home, id, false).await.unwrap();
    assert_eq!(listed(&home, false).await, [(id, false), (other, false)]);
}
