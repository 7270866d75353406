//! Turns as people meet them: queueing, steering, taking back, interrupting, pausing.

use std::time::Duration;

use agentd_protocol::session::{Activity, InterruptResult};
use agentd_protocol::turn::Outcome;

use super::*;

/// A model whose first answer stops in the middle until it is released.
fn hangs_once(reply: Value) -> Value {
    json!({ "rules": [
        { "name": "first", "when": { "total_answers": 0 }, "reply": reply,
          "fault": { "times": 1, "do": { "hang": { "after": 600 } } } },
        { "name": "rest", "reply": { "text": "Done." } },
    ] })
}

const LONG: &str = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen \
    seventeen eighteen nineteen twenty one two three four five six seven eight nine ten eleven twelve thirteen";

#[tokio::test]
async fn prompts_are_answered_one_after_the_other_and_a_repeated_one_is_the_same() {
    let home = Home::start(hangs_once(json!({ "text": LONG }))).await;
    let id = home.session(Mode::Default).await;
    let first = home.prompt(id, "first").await;
    assert!(!first.queued);
    let named = PromptParams { prompt_id: Some(TurnId::generate()), ..prompt(id, "second") };
    let second = home.try_prompt(named.clone()).await.unwrap();
    assert!(second.queued && Some(second.turn_id) == named.prompt_id);
    assert_eq!(home.try_prompt(named.clone()).await.unwrap(), second);
    assert_eq!(home.state(id).await.inbox.len(), 1);
    let other = PromptParams { content: vec![Content::Text { text: "else".into() }], ..named.clone() };
    assert!(matches!(home.try_prompt(other).await, Err(SessionError::Conflict(_))));
    home.release().await;
    assert_eq!(home.wait(id, first.turn_id).await.text, LONG);
    assert_eq!(home.wait(id, second.turn_id).await.text, "Done.");
    let late = home.try_prompt(named).await.unwrap();
    assert_eq!((late.turn_id, late.queued), (second.turn_id, false));
    assert_eq!(home.requests().await.len(), 2);
}

#[tokio::test]
async fn a_steering_prompt_joins_the_running_turn_exactly_once() {
    let home = Home::start(hangs_once(json!({ "text": LONG }))).await;
    let id = home.session(Mode::Default).await;
    let mut listener = home.listen(id).await;
    let turn = home.prompt(id, "first").await.turn_id;
    listener.next("turnStarted").await;
    let steer = PromptParams { at: At::Step, ..prompt(id, "mind the gap") };
    let steered = home.try_prompt(steer).await.unwrap();
    assert_eq!((steered.turn_id, steered.queued), (turn, false));
    home.release().await;
    assert_eq!(home.wait(id, turn).await.text, "Done.", "the model was asked once more");
    let requests = home.requests().await;
    let times = |request: &Value| request.to_string().matches("mind the gap").count();
    assert_eq!(requests.iter().map(times).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(home.state(id).await.activity, Activity::Idle, "no turn of its own");
}

#[tokio::test]
async fn a_steering_prompt_whose_answer_was_lost_is_answered_again_and_can_be_waited_for() {
    let home = Home::start(hangs_once(json!({ "text": LONG }))).await;
    let id = home.session(Mode::Default).await;
    let mut listener = home.listen(id).await;
    let turn = home.prompt(id, "first").await.turn_id;
    listener.next("turnStarted").await;
    let own = TurnId::generate();
    let steer = PromptParams { prompt_id: Some(own), at: At::Step, ..prompt(id, "mind the gap") };
    let steered = home.try_prompt(steer.clone()).await.unwrap();
    assert_eq!(home.try_prompt(steer.clone()).await.unwrap(), steered, "while it waits");
    let (told, ()) = tokio::join!(home.wait(id, own), home.release());
    assert_eq!(told.text, "Done.", "by the id of the prompt, asked before the turn took it");
    assert_eq!(home.wait(id, own).await.text, "Done.");
    assert_eq!(home.try_prompt(steer).await.unwrap().turn_id, turn, "after the turn");
}

#[tokio::test]
async fn a_prompt_that_answers_is_the_same_however_often_it_comes() {
    let question = json!({ "questions": [{ "question": "Which?", "header": "Which",
        "options": [{ "label": "a", "description": "" }, { "label": "b", "description": "" }] }] });
    let home = Home::start(calls(json!([{ "name": "ask_user_question", "arguments": question }]))).await;
    let id = home.session(Mode::Default).await;
    let mut listener = home.listen(id).await;
    let turn = home.prompt(id, "go").await.turn_id;
    let approval = approval_id(&listener.next("approvalRequested").await);
    let own = TurnId::generate();
    let said = PromptParams { prompt_id: Some(own), answers: Some(approval), ..prompt(id, "neither") };
    let first = home.try_prompt(said.clone()).await.unwrap();
    assert_eq!((first.turn_id, first.queued), (turn, false));
    home.wait(id, turn).await;
    let home = home.restart().await;
    assert_eq!(home.try_prompt(said.clone()).await.unwrap(), first, "after the turn, and a restart");
    assert_eq!(home.wait(id, own).await, home.wait(id, turn).await);
    let other = PromptParams { content: vec![Content::Text { text: "a".into() }], ..said.clone() };
    assert!(matches!(home.try_prompt(other).await, Err(SessionError::Conflict(_))));
    let no_answer = PromptParams { answers: None, ..said };
    assert!(matches!(home.try_prompt(no_answer).await, Err(SessionError::Conflict(_))));
}

#[tokio::test]
async fn a_withdrawn_prompt_never_runs_and_its_waiter_is_told() {
    let home = Home::start(hangs_once(json!({ "text": LONG }))).await;
    let id = home.session(Mode::Default).await;
    let first = home.prompt(id, "first").await.turn_id;
    let second = home.prompt(id, "xylophone").await.turn_id;
    let withdraw = |prompt| home.registry.ask(id, move |reply| Command::Withdraw { prompt, reply });
    let (told, taken) = tokio::join!(home.wait(id, second), withdraw(second));
    taken.unwrap();
    assert_eq!(told.outcome, Outcome::Withdrawn);
    assert!(matches!(withdraw(second).await, Err(SessionError::NotFound("waiting prompt"))));
    home.release().await;
    home.wait(id, first).await;
    let requests = home.requests().await;
    assert_eq!(requests.len(), 1);
    assert!(!requests[0].to_string().contains("xylophone"));
}

#[tokio::test]
async fn an_interrupt_keeps_the_text_so_far_and_holds_the_inbox_for_a_person() {
    let home = Home::start(hangs_once(json!({ "text": LONG }))).await;
    let id = home.session(Mode::Default).await;
    let mut listener = home.listen(id).await;
    listener.position.deltas = true;
    let turn = home.prompt(id, "first").await.turn_id;
    let queued = home.prompt(id, "queued").await.turn_id;
    listener.next("messageDelta").await;
    home.interrupt(id).await;
    let message = listener.until(|event| event["type"] == "message" && event["role"] == "assistant").await;
    assert_eq!(message["incomplete"], true);
    let text = message["text"].as_str().unwrap();
    assert!(!text.is_empty() && text.len() < LONG.len() && LONG.starts_with(text), "{text}");
    assert_eq!(home.wait(id, turn).await.outcome, Outcome::Interrupted);

    let state = home.state(id).await;
    assert!(state.inbox_held && state.activity == Activity::Idle && state.inbox.len() == 1);
    // A program's prompt waits behind it; a person's lets both go, in their order.
    let params = Box::new(prompt(id, "from a program"));
    let caller = someone("ci", Actor::Program);
    let program = home.registry.ask(id, |reply| Command::Prompt { params, caller, reply }).await.unwrap();
    assert!(program.queued && home.state(id).await.inbox.len() == 2);
    let person = home.prompt(id, "go on").await;
    assert!(person.queued, "two are before it");
    for turn in [queued, program.turn_id, person.turn_id] {
        assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished);
    }
}

#[tokio::test]
async fn an_interrupt_ends_a_running_call_and_guards_by_turn() {
    let home = Home::start(calls(json!([{ "name": "probe", "arguments": { "act": "wait" } }]))).await;
    let id = home.session(Mode::Default).await;
    let interrupt =
        |turn| home.registry.ask(id, move |reply| Command::Interrupt { turn, caller: person(), reply });
    assert_eq!(interrupt(None).await.unwrap(), InterruptResult { turn_id: None });
    let mut listener = home.listen(id).await;
    let turn = home.prompt(id, "go").await.turn_id;
    listener.next("permissionDecided").await;
    assert!(matches!(interrupt(Some(TurnId::generate())).await, Err(SessionError::Conflict(_))));
    assert_eq!(interrupt(Some(turn)).await.unwrap(), InterruptResult { turn_id: Some(turn) });
    assert_eq!(listener.next("toolCallFinished").await["status"], "interrupted");
    assert_eq!(home.wait(id, turn).await.outcome, Outcome::Interrupted);
}

#[tokio::test]
async fn an_interrupt_ends_a_pause_before_the_next_attempt() {
    let script = json!({ "rules": [{ "name": "say", "reply": { "text": "Hello." } }],
        "faults": [{ "times": 9, "do": { "status": { "code": 429, "headers": { "retry-after": "3000" }, "message": "slow down" } } }] });
    let home = Home::start(script).await;
    let id = home.session(Mode::Default).await;
    let mut listener = home.listen(id).await;
    let turn = home.prompt(id, "hello").await.turn_id;
    listener.next("messageAborted").await;
    home.interrupt(id).await;
    assert_eq!(home.wait(id, turn).await.outcome, Outcome::Interrupted);
    assert_eq!(home.requests().await.len(), 1);
}

#[tokio::test]
async fn a_pause_ends_by_itself_although_the_wall_clock_jumped_back() {
    let script = json!({ "rules": [{ "name": "say", "reply": { "text": "Hello." } }],
        "faults": [{ "times": 1, "do": { "status": { "code": 503, "headers": { "retry-after": "1" }, "message": "busy" } } }] });
    let home = Home::start(script).await;
    let id = home.session(Mode::Default).await;
    let mut listener = home.listen(id).await;
    let turn = home.prompt(id, "hello").await.turn_id;
    listener.next("messageAborted").await;
    home.clock.set(0);
    home.state(id).await;
    assert_eq!(home.wait(id, turn).await.text, "Hello.");
}

#[tokio::test]
async fn a_shutdown_cuts_the_model_and_the_next_start_asks_it_again() {
    let home = Home::start(hangs_once(json!({ "text": LONG }))).await;
    let id = home.session(Mode::Default).await;
    let mut listener = home.listen(id).await;
    listener.position.deltas = true;
    let turn = home.prompt(id, "first").await.turn_id;
    listener.next("messageDelta").await;
    home.registry.announce();
    home.registry.park(Duration::from_secs(5)).await;
    let shown = listener.until(|event| event["type"] == "message" && event["role"] == "assistant").await;
    assert_eq!(shown["incomplete"], true, "people keep what they saw");
    let home = home.restart().await;
    assert_eq!(home.wait(id, turn).await.text, LONG);
    let requests = home.requests().await;
    assert_eq!(requests[0]["messages"], requests[1]["messages"], "the model does not see the half");
}

#[tokio::test]
async fn many_parts_and_many_calls_make_no_long_lines_and_too_many_are_refused() {
    let many = |n: usize| -> Vec<Value> {
        let arguments = json!({ "act": "fine", "why": "x".repeat(20_000) });
        (0..n).map(|_| json!({ "name": "probe", "arguments": arguments })).collect()
    };
    let home = Home::start(calls(json!(many(150)))).await;
    let id = home.session(Mode::Default).await;
    let part = |n: usize| Content::Text { text: format!("{n} {}", "words ".repeat(5_000)) };
    let parts = |n: usize| PromptParams { content: (0..n).map(part).collect(), ..prompt(id, "") };
    let turn = home.try_prompt(parts(100)).await.unwrap().turn_id;
    assert_eq!(home.wait(id, turn).await.text, "Done.");
    assert!(home.requests().await.pop().unwrap().to_string().contains("99 words words"));
    let journal = std::fs::read_to_string(home.paths.session_dir(id).join("journal.jsonl")).unwrap();
    let longest = journal.lines().map(str::len).max().unwrap();
    assert!(longest < 512 * 1024, "{longest} bytes in one line");
    assert!(matches!(home.try_prompt(parts(101)).await, Err(SessionError::Invalid { field: "content", .. })));

    let home = Home::start(calls(json!(many(201)))).await;
    let id = home.session(Mode::Default).await;
    let turn = home.prompt(id, "go").await.turn_id;
    let ended = home.wait(id, turn).await;
    assert_eq!(ended.outcome, Outcome::Failed);
    assert!(ended.error.unwrap().contains("201 calls at once"));
}

#[tokio::test]
async fn a_long_prompt_lies_in_a_blob_and_is_asked_whole() {
    let home = Home::start(says("Hello.")).await;
    let id = home.session(Mode::Default).await;
    let mut listener = home.listen(id).await;
    // One that fits into an event, and one that does not.
    for (kib, inline) in [(100, true), (600, false)] {
        let text = format!("{}END{kib}", "long words ".repeat(kib * 1024 / 11));
        let turn = home.prompt(id, &text).await.turn_id;
        let accepted = listener.next("promptAccepted").await;
        let content = &accepted["content"][0];
        assert_eq!(content["type"], "text");
        match inline {
            true => assert_eq!(content["text"], json!(text)),
            false => assert_eq!(content["text"]["size"], text.len()),
        }
        home.wait(id, turn).await;
        let request = home.requests().await.pop().unwrap();
        assert!(request["messages"].to_string().contains(&format!("END{kib}")));
    }
    let journal = std::fs::read_to_string(home.paths.session_dir(id).join("journal.jsonl")).unwrap();
    let longest = journal.lines().map(str::len).max().unwrap();
    assert!(longest < 32 * 1024, "{longest} bytes in one line");
}
