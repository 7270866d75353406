//! The approval of a plan: its choices, who may answer, what an answer is bound to.

use std::sync::Barrier;

use agentd_tests::{Chat, Line, Reply, Script, World, call};
use serde_json::{Value, json};

use crate::plan_gate::planning;
use crate::plan_modes::texts;

/// A session whose plan waits for a person.
pub(crate) fn presented(world: &World, mode: &str) -> (Chat, Value) {
    let mut chat = world.session(mode);
    if mode != "plan" {
        chat.set_mode("plan");
    }
    chat.prompt("Plan it");
    let approval = chat.approval();
    (chat, approval)
}

fn last_request(world: &World) -> String {
    texts(&world.model.requests().pop().unwrap()["messages"]).join("\n")
}

#[test]
fn the_choices_are_four_and_each_says_which_mode_follows() {
    let world = World::new(Script::new().step(planning("# Pages\n1. do\n")));
    let (chat, approval) = presented(&world, "default");
    let choices: Vec<_> = approval["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|choice| (choice["id"].as_str().unwrap(), choice["modeAfter"].as_str().unwrap()))
        .collect();
    assert_eq!(
        choices,
        [
            ("clearAndExecute", "acceptEdits"),
            ("execute", "acceptEdits"),
            ("manualExecute", "default"),
            ("keepPlanning", "plan"),
        ]
    );
    assert_eq!((&approval["kind"], &approval["title"]), (&json!("plan"), &json!("Pages")));
    assert_eq!(approval["plan"]["content"], "# Pages\n1. do\n");
    assert!(approval["approvalId"].as_str().unwrap().starts_with(&format!("{}:a:", chat.id)));
}

#[test]
fn each_executing_choice_runs_the_approved_plan_in_its_mode() {
    for (choice, mode, decision) in [
        ("execute", "acceptEdits", "allow"),
        ("clearAndExecute", "acceptEdits", "allow"),
        ("manualExecute", "default", "ask"),
    ] {
        let script = Script::new()
            .rule(
                "do",
                json!({"texts": [{"in": "any", "contains": "word for word"}], "not_called": ["list_files"]}),
                call("list_files", json!({})),
            )
            .rule(
                "write",
                json!({"after": ["do"]}),
                call("write_file", json!({"file_path": "c", "content": "x"})),
            )
            .rule("done", json!({"after": ["write"]}), Reply::text("Done."))
            .step(planning("# Plan\nUNIQUE\n"));
        let world = World::new(script);
        let (mut chat, approval) = presented(&world, "default");
        assert_eq!(chat.choose(&approval, choice)["modeNow"], mode);
        if decision == "ask" {
            let asked = chat.approval();
            chat.choose(&asked, "allowOnce");
        }
        assert_eq!(chat.outcome(), "finished", "{choice}");
        let write = chat.verdict("write_file");
        assert_eq!(
            (write.status.as_str(), write.decision.split(',').next()),
            ("ok", Some(decision)),
            "{choice}"
        );
        assert_eq!(chat.events("contextReset").len(), usize::from(choice == "clearAndExecute"));
        let approved = chat.events("planApproved")[0];
        assert_eq!(
            (&approved["choice"], &approved["modeAfter"], &approved["revision"]),
            (&json!(choice), &json!(mode), &approval["plan"]["revision"])
        );
        assert!(last_request(&world).contains("UNIQUE"), "{choice}");
        assert_eq!(chat.state()["plan"]["phase"], "approved");
    }
}

#[test]
fn feedback_and_remarks_reach_the_model_and_planning_goes_on() {
    let script = Script::new()
        .step(planning("# Plan\none\ntwo\n"))
        .step(planning("# Plan\nbetter\n"))
        .step(Reply::text("Done."));
    let world = World::new(script);
    let (mut chat, approval) = presented(&world, "plan");
    let more = json!({
        "feedback": "FEEDBACK-1",
        "comments": [{"startLine": 2, "endLine": 3, "quote": "one\ntwo", "text": "REMARK-1"}],
    });
    assert_eq!(chat.respond(&approval, "keepPlanning", more).unwrap()["modeNow"], "plan");
    let again = chat.approval();
    assert_ne!(again["approvalId"], approval["approvalId"]);
    assert_ne!(again["plan"]["revision"], approval["plan"]["revision"]);
    assert!(again["plan"]["diff"].as_str().unwrap().contains("+better"), "{again}");
    let request = last_request(&world);
    for expected in ["FEEDBACK-1", "REMARK-1", "lines 2 to 3", "> one\n> two"] {
        assert!(request.contains(expected), "{expected}: {request}");
    }
    let rejected = chat.events("planRejected");
    assert_eq!(rejected[0]["feedback"], "FEEDBACK-1");
    chat.respond(&again, "execute", json!({"feedback": "FEEDBACK-2"})).unwrap();
    assert_eq!(chat.outcome(), "finished");
    assert!(last_request(&world).contains("FEEDBACK-2"));
}

#[test]
fn an_edited_plan_is_a_revision_of_its_own_and_is_what_runs() {
    let world = World::new(Script::new().step(planning("# Plan\nMINE\n")).step(Reply::text("Done.")));
    let (mut chat, approval) = presented(&world, "plan");
    chat.respond(&approval, "execute", json!({"editedPlan": "# Plan\nYOURS\n"})).unwrap();
    assert_eq!(chat.outcome(), "finished");
    let changed = chat.events("planChanged").last().copied().cloned().unwrap();
    assert_eq!(changed["by"], "client");
    assert_eq!(chat.events("planApproved")[0]["revision"], changed["revision"]);
    let request = last_request(&world);
    let approved = &request[request.find("word for word").unwrap()..];
    assert!(approved.contains("YOURS") && !approved.contains("MINE"), "{approved}");
    let path = approval["plan"]["path"].as_str().unwrap();
    assert_eq!(std::fs::read_to_string(path).unwrap(), "# Plan\nYOURS\n");
}

#[test]
fn a_plan_edited_by_hand_makes_the_answer_stale_and_the_new_one_is_accepted() {
    let world = World::new(Script::new().step(planning("# Plan\nold\n")).step(Reply::text("Done.")));
    let (mut chat, approval) = presented(&world, "plan");
    std::fs::write(approval["plan"]["path"].as_str().unwrap(), "# Plan\nby hand\n").unwrap();
    let stale = chat.respond(&approval, "execute", json!({})).unwrap_err();
    assert_eq!((stale.code, &stale.data["kind"]), (-32052, &json!("stale")));
    let current = &stale.data["approval"];
    assert_eq!(current["approvalId"], approval["approvalId"]);
    assert_eq!(current["plan"]["content"], "# Plan\nby hand\n");
    assert_eq!(stale.data["revision"], current["plan"]["revision"]);
    assert_eq!(chat.mode(), "plan");
    let changed = chat.line.event_of("approvalChanged");
    assert_eq!(changed["plan"]["content"], "# Plan\nby hand\n");
    let written = chat.events("planChanged").last().copied().cloned().unwrap();
    assert_eq!((&written["by"], &written["revision"]), (&json!("outside"), &stale.data["revision"]));

    chat.choose(current, "execute");
    assert_eq!(chat.outcome(), "finished");
    assert!(last_request(&world).contains("by hand"));
}

#[test]
fn a_plan_saved_as_something_unreadable_is_not_passed_over_for_the_one_shown() {
    let world = World::new(Script::new().step(planning("# Plan\nold\n")).step(Reply::text("Done.")));
    let (mut chat, approval) = presented(&world, "plan");
    let path = approval["plan"]["path"].as_str().unwrap();
    let saved = b"# Plan\nnur die Pr\xfcfung\n";
    for attempt in 0..2 {
        let seen = chat.line.call("approval/get", json!({"approvalId": approval["approvalId"]}));
        std::fs::write(path, saved).unwrap();
        if attempt == 1 {
            // Whoever looks first, all others are told.
            chat.line.call("plan/get", json!({"sessionId": chat.id}));
        }
        let refused = chat.respond(&seen, "execute", json!({})).unwrap_err();
        assert_eq!((refused.code, &refused.data["kind"]), (-32052, &json!("stale")), "{attempt}");
        let note = refused.data["approval"]["plan"]["note"].as_str().unwrap();
        assert!(note.contains("not UTF-8"), "{note}");
        assert_eq!(chat.mode(), "plan");
        assert_eq!(std::fs::read(path).unwrap(), b"# Plan\nold\n", "the plan as shown stands there again");
    }
    let folder = std::path::Path::new(path).parent().unwrap();
    let kept = std::fs::read_dir(folder)
        .unwrap()
        .filter(|entry| std::fs::read(entry.as_ref().unwrap().path()).is_ok_and(|bytes| bytes == saved))
        .count();
    assert_eq!(kept, 2, "what the person saved is never lost");

    // Text sent along with the answer is no plan of before.
    let told = chat.line.call("approval/get", json!({"approvalId": approval["approvalId"]}));
    std::fs::write(path, "").unwrap();
    assert_eq!(chat.respond(&told, "execute", json!({})).unwrap_err().code, -32053, "emptied");
    let more = json!({"editedPlan": "# Plan\nold\n"});
    assert_eq!(chat.respond(&told, "execute", more).unwrap()["modeNow"], "acceptEdits");
    assert_eq!(chat.outcome(), "finished");
    assert!(last_request(&world).contains("old"));
    assert_eq!(chat.line.call("plan/get", json!({"sessionId": chat.id}))["content"], "# Plan\nold\n");
}

#[test]
fn after_an_unreadable_save_whoever_has_read_so_takes_the_plan_as_shown() {
    let script = Script::new()
        .step(planning("# Plan\nfirst\n"))
        .step(planning("# Plan\nold\n"))
        .step(Reply::text("Done."));
    let world = World::new(script);
    let (mut chat, first) = presented(&world, "plan");
    chat.choose(&first, "keepPlanning");
    // Shown with a difference to the first, which belongs to what is answered.
    let approval = chat.approval();
    assert!(approval["plan"]["diff"].is_string());
    std::fs::write(approval["plan"]["path"].as_str().unwrap(), b"\xff").unwrap();
    let told = chat.respond(&approval, "execute", json!({})).unwrap_err();
    // Not once for all: another client that was not told is refused too.
    assert_eq!(chat.respond(&approval, "execute", json!({})).unwrap_err().code, -32052);
    assert_eq!(told.data["approval"]["plan"]["diff"], approval["plan"]["diff"]);
    chat.choose(&told.data["approval"], "execute");
    assert_eq!(chat.outcome(), "finished");
    assert!(last_request(&world).contains("old"));
}

#[test]
fn an_answer_to_the_old_digest_or_without_revision_is_refused() {
    let world = World::new(Script::new().step(planning("# Plan\n")));
    let (mut chat, approval) = presented(&world, "plan");
    let wrong = format!("sha256:{}", "0".repeat(64));
    for more in [json!({"digest": wrong}), json!({"revision": wrong})] {
        let error = chat.respond(&approval, "execute", more).unwrap_err();
        assert_eq!(error.code, -32052);
        assert_eq!(error.data["approval"]["digest"], approval["digest"]);
    }
    let mut bare = Chat::answer_to(&approval, "execute", json!({}));
    bare.as_object_mut().unwrap().remove("revision");
    let error = chat.line.refused("approval/respond", bare);
    assert_eq!((error.code, &error.data["field"]), (-32059, &json!("revision")));
    let error = chat.respond(&approval, "allowOnce", json!({})).unwrap_err();
    assert_eq!((error.code, &error.data["field"]), (-32059, &json!("choice")));
    // Plan mode is no mode to execute in; the others are, and are not to be had here.
    for (mode, code, kind) in [("plan", -32059, "invalidInput"), ("bypassPermissions", -32054, "refused")] {
        let error = chat.respond(&approval, "execute", json!({"mode": mode})).unwrap_err();
        assert_eq!((error.code, &error.data["kind"]), (code, &json!(kind)), "{mode}: {error:?}");
    }
    let cut = approval["approvalId"].as_str().unwrap().rsplit_once(':').unwrap().0.to_owned();
    // What is no id of an approval is told from one that there is not.
    for (id, code) in [("0000", -32050), ("000G", -32602), ("", -32602)] {
        let unknown = json!({"approvalId": format!("{cut}:{id}")});
        let error = chat.respond(&approval, "execute", unknown).unwrap_err();
        assert_eq!(error.code, code, "{id}: {error:?}");
    }
    assert_eq!(chat.state()["approvals"][0]["approvalId"], approval["approvalId"]);
    assert_eq!(chat.mode(), "plan");
}

#[test]
fn pm_19_late_answers_learn_who_won_and_the_winner_may_repeat_itself() {
    let world = World::new(Script::new().step(planning("# Plan\n")).step(Reply::text("Done.")));
    let (mut chat, approval) = presented(&world, "plan");
    chat.choose(&approval, "execute");
    chat.choose(&approval, "execute");
    let mut other = Line::connect_as(world.daemon.socket(), "editor", "person");
    let late = other.refused("approval/respond", Chat::answer_to(&approval, "keepPlanning", json!({})));
    assert_eq!((late.code, &late.data["kind"]), (-32051, &json!("approvalSettled")));
    assert_eq!((&late.data["choice"], &late.data["by"]["client"]), (&json!("execute"), &json!("test")));
    assert_eq!(late.data["by"]["pid"], std::process::id());
    assert!(late.data["at"].is_string(), "{late:?}");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.events("approvalResolved").len(), 1);
    assert_eq!(chat.events("planApproved").len(), 1);
    // The repeated answer of the winner still counts once the turn is over.
    chat.choose(&approval, "execute");
}

#[test]
fn a_program_can_neither_approve_nor_widen() {
    let world = World::new(Script::new().step(planning("# Plan\n")));
    let (mut chat, approval) = presented(&world, "plan");
    let mut program = Line::connect_as(world.daemon.socket(), "bot", "program");
    for choice in ["execute", "clearAndExecute", "manualExecute", "keepPlanning"] {
        let error = program.refused("approval/respond", Chat::answer_to(&approval, choice, json!({})));
        assert_eq!((error.code, &error.data["kind"]), (-32054, &json!("refused")), "{choice}");
    }
    for (method, params) in [
        ("session/setMode", json!({"mode": "acceptEdits"})),
        ("session/prompt", json!({"content": [{"type": "text", "text": "x"}], "mode": "acceptEdits"})),
        ("session/prompt", json!({"content": [{"type": "text", "text": "/plan"}]})),
        (
            "session/prompt",
            json!({"content": [{"type": "text", "text": "go"}], "answers": approval["approvalId"]}),
        ),
    ] {
        let mut params = params;
        params["sessionId"] = chat.id.clone().into();
        assert_eq!(program.refused(method, params).code, -32054, "{method}");
    }
    let state = chat.state();
    assert_eq!((&state["mode"], state["inbox"].as_array().unwrap().len()), (&json!("plan"), 0));
    chat.choose(&approval, "execute");
}

#[test]
fn pm_17_late_clients_get_the_same_pending_approval() {
    let world = World::new(Script::new().step(planning("# Plan\n")).step(Reply::text("Done.")));
    let (chat, approval) = presented(&world, "plan");
    let id = chat.id.clone();
    drop(chat);
    let mut late: Vec<_> = ["one", "two"]
        .iter()
        .map(|name| {
            let mut line = Line::connect_as(world.daemon.socket(), name, "person");
            line.call("events/subscribe", json!({"sessionId": id}));
            let synced = line.event_of("synced");
            assert_eq!(synced["state"]["activity"], "waiting");
            assert_eq!(synced["state"]["waitingFor"], json!([approval["approvalId"]]));
            let pending = &synced["state"]["approvals"][0];
            for field in ["approvalId", "digest", "choices", "plan"] {
                assert_eq!(pending[field], approval[field], "{name}: {field}");
            }
            line
        })
        .collect();
    let listed = late[0].call("approval/list", json!({}));
    assert_eq!(listed["approvals"][0]["approvalId"], approval["approvalId"]);
    let got = late[0].call("approval/get", json!({"approvalId": approval["approvalId"]}));
    assert_eq!(got["plan"], approval["plan"]);
    late[1].call("approval/respond", Chat::answer_to(&approval, "execute", json!({})));
    for line in &mut late {
        assert_eq!(line.event_of("approvalResolved")["by"]["client"], "two");
        assert_eq!(line.event_of("turnFinished")["outcome"], "finished");
    }
}

#[test]
fn pm_19_of_two_answers_in_the_same_instant_one_wins() {
    const ROUNDS: usize = 100;
    let again = Script::new()
        .rule("again", json!({"last_call": "exit_plan_mode"}), call("exit_plan_mode", json!({})))
        .step(planning("# Plan\n"));
    let world = World::new(again);
    let (mut chat, mut approval) = presented(&world, "plan");
    let mut rivals =
        ["one", "two"].map(|name| (name, Line::connect_as(world.daemon.socket(), name, "person")));
    let mut won = std::collections::HashMap::from([("one", 0), ("two", 0)]);
    for round in 0..ROUNDS {
        // Who comes to the barrier last goes on first, so they take turns.
        rivals.reverse();
        let barrier = Barrier::new(2);
        let answers: Vec<_> = std::thread::scope(|scope| {
            let (barrier, approval) = (&barrier, &approval);
            let threads: Vec<_> = rivals
                .iter_mut()
                .map(|(name, line)| {
                    scope.spawn(move || {
                        let answer = Chat::answer_to(
                            approval,
                            "keepPlanning",
                            json!({"feedback": format!("{name} {round}")}),
                        );
                        barrier.wait();
                        line.try_call("approval/respond", answer)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let winners: Vec<_> = (0..2).filter(|at| answers[*at].is_ok()).collect();
        assert_eq!(winners.len(), 1, "round {round}: {answers:?}");
        let (winner, loser) = (winners[0], 1 - winners[0]);
        *won.get_mut(rivals[winner].0).unwrap() += 1;
        let lost = answers[loser].as_ref().unwrap_err();
        assert_eq!((lost.code, &lost.data["by"]["client"]), (-32051, &json!(rivals[winner].0)));
        let resolved = chat.line.event_of("approvalResolved");
        assert_eq!(resolved["feedback"], format!("{} {round}", rivals[winner].0));
        approval = chat.approval();
    }
    assert!(won.values().all(|times| *times > 0), "it was no race: {won:?}");
    assert_eq!(chat.events("approvalResolved").len(), ROUNDS);
    assert_eq!(chat.mode(), "plan");
}

#[test]
fn p11_a_prompt_while_a_plan_waits_says_what_it_waits_for_and_answers_make_it_feedback() {
    let script =
        Script::new().step(planning("# Plan\n")).step(planning("# Plan\n2\n")).step(Reply::text("Done."));
    let world = World::new(script);
    let (mut chat, approval) = presented(&world, "plan");
    let queued = chat.prompt_with("yes, go ahead", json!({}));
    assert_eq!((&queued["queued"], &queued["waitingFor"]), (&json!(true), &approval["approvalId"]));
    assert_eq!(chat.mode(), "plan");
    assert_eq!(chat.state()["inbox"][0]["preview"], "yes, go ahead");
    let answered = chat.prompt_with("approve it already", json!({"answers": approval["approvalId"]}));
    assert_eq!(answered["queued"], false);
    // Text is feedback, never approval.
    let again = chat.approval();
    assert_eq!(chat.mode(), "plan");
    assert!(last_request(&world).contains("approve it already"));
    assert_eq!(chat.events("planApproved").len(), 0);
    chat.choose(&again, "execute");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.outcome(), "finished");
    assert!(last_request(&world).contains("yes, go ahead"));
}

#[test]
fn an_interrupt_cancels_the_approval_and_holds_the_inbox() {
    let world = World::new(Script::new().step(planning("# Plan\n")));
    let (mut chat, approval) = presented(&world, "plan");
    let waiting = chat.prompt_with("later", json!({}))["turnId"].clone();
    chat.line.notify("session/interrupt", json!({"sessionId": chat.id}));
    assert_eq!(chat.outcome(), "interrupted");
    let resolved = chat.events("approvalResolved");
    assert_eq!((resolved.len(), &resolved[0]["resolution"]), (1, &json!("cancelled")));
    let state = chat.state();
    assert_eq!(
        (&state["activity"], &state["inboxHeld"], &state["mode"]),
        (&json!("idle"), &json!(true), &json!("plan"))
    );
    assert_eq!(state["plan"]["phase"], "planning");
    assert_eq!(state["inbox"][0]["promptId"], waiting);
    assert_eq!(chat.respond(&approval, "execute", json!({})).unwrap_err().code, -32051);
    assert_eq!(chat.mode(), "plan");
    // The next prompt of a person lets the inbox go on.
    let next = chat.prompt("go on");
    let (first, second) = (chat.finished(), chat.finished());
    assert_eq!((&first["turnId"], &second["turnId"]), (&waiting, &json!(next)));
}
