//! Model servers that fail, seen through the whole daemon.

use agentd_tests::{Dialect, Reply, Script, Start, World, call};
use serde_json::{Value, json};

fn failing(fault: Value) -> Script {
    Script::new().fault(fault).step(Reply::text("At last."))
}

/// Prompts, and gives the end of the turn.
fn turn(world: &World) -> (agentd_tests::Chat, Value) {
    let mut chat = world.session("default");
    chat.prompt("Hi");
    let finished = chat.finished();
    (chat, finished)
}

#[test]
fn too_many_requests_are_waited_out() {
    for dialect in Dialect::BOTH {
        let fault = json!({"status": {"code": 429, "headers": {"retry-after": "1"}, "message": "slow down"}});
        let world = World::speaking(dialect, failing(fault));
        let (chat, finished) = turn(&world);
        assert_eq!(finished["outcome"], "finished", "{dialect:?}");
        let aborted = chat.events("messageAborted");
        assert_eq!(aborted.len(), 1);
        assert!(aborted[0]["reason"].as_str().unwrap().contains("slow down"), "{}", aborted[0]);
        assert!(aborted[0]["retryAt"].is_string());
        assert_eq!(world.model.requests().len(), 2);
    }
}

#[test]
fn an_interrupt_ends_the_wait_for_a_limited_provider() {
    let fault = json!({"status": {"code": 429, "headers": {"retry-after": "1000"}}});
    let world = World::new(failing(fault));
    let mut chat = world.session("default");
    chat.prompt("Hi");
    let _ = chat.line.event_of("messageAborted");
    chat.interrupt();
    assert_eq!(chat.outcome(), "interrupted");
}

#[test]
fn a_refused_key_is_named_by_its_source_and_never_shown() {
    for dialect in Dialect::BOTH {
        let world = World::speaking(dialect, failing(json!({"status": {"code": 401, "message": "bad key"}})));
        let (chat, finished) = turn(&world);
        assert_eq!(finished["outcome"], "failed");
        let error = finished["error"].as_str().unwrap();
        assert!(error.contains("keys/test") && error.contains("agentctl key"), "{error}");
        assert!(!chat.line.seen().contains("sk-not-a-secret"));
        let journal = std::fs::read_to_string(world.home.journal(&chat.id)).unwrap();
        assert!(!journal.contains("sk-not-a-secret") && !world.daemon.log().contains("sk-not-a-secret"));
    }
}

#[test]
fn a_server_that_is_not_there_fails_the_turn_and_the_next_one_works_with_it_back() {
    for dialect in Dialect::BOTH {
        let mut world = World::speaking(dialect, Script::new().step(Reply::text("Back again.")));
        world.model.stop();
        let (mut chat, finished) = turn(&world);
        assert_eq!(finished["outcome"], "failed");
        let error = finished["error"].as_str().unwrap();
        assert!(error.contains("nothing listens there"), "{error}");
        assert_eq!(chat.state()["activity"], "idle");

        world.model.restart();
        let turn = chat.prompt("And now?");
        assert_eq!(chat.outcome(), "finished", "{dialect:?}");
        let answer = chat.line.call("turn/wait", json!({"sessionId": chat.id, "turnId": turn}));
        assert_eq!(answer["text"], "Back again.");
        // What could not be sent before is part of the conversation.
        let requests = world.model.requests();
        assert_eq!(requests.len(), 1);
        let messages = requests[0]["messages"].to_string();
        assert!(messages.contains("Hi") && messages.contains("And now?"), "{messages}");
    }
}

#[test]
fn a_web_page_instead_of_a_stream_is_said_to_be_one() {
    for dialect in Dialect::BOTH {
        let page =
            json!({"body": {"content_type": "text/html", "text": "<html><body>Log in first</body></html>"}});
        let world = World::speaking(dialect, failing(page));
        let (_, finished) = turn(&world);
        assert_eq!(finished["outcome"], "failed");
        assert!(finished["error"].as_str().unwrap().contains("a web page"), "{finished}");
        assert_eq!(world.model.requests().len(), 1);
    }
}

#[test]
fn a_stream_that_is_cut_before_any_content_is_asked_for_again() {
    for dialect in Dialect::BOTH {
        let world = World::speaking(dialect, failing(json!({"cut": {"after": 0, "reset": true}})));
        let (chat, finished) = turn(&world);
        assert_eq!(finished["outcome"], "finished", "{dialect:?}: {finished}");
        assert_eq!(chat.events("messageAborted").len(), 1);
        assert_eq!(chat.events("message").len(), 2, "the prompt and the answer");
    }
}

#[test]
fn a_stream_that_is_cut_after_content_fails_the_turn_and_runs_nothing() {
    for dialect in Dialect::BOTH {
        let script = Script::new()
            .fault(json!({"cut": {"after": 1200}}))
            .step(
                Reply::text(&"I begin. ".repeat(20))
                    .call("write_file", json!({"file_path": "c", "content": "x"})),
            )
            .step(Reply::text("Done."));
        let world = World::speaking(dialect, script);
        let mut chat = world.session("acceptEdits");
        chat.prompt("Go");
        assert_eq!(chat.outcome(), "failed", "{dialect:?}");
        assert_eq!(world.model.requests().len(), 1, "what was shown is not asked for twice by itself");
        assert!(!world.home.project().path.join("c").exists());
        assert!(chat.verdicts().is_empty());
        // The person asks again, and the history is valid.
        chat.prompt("Again");
        assert_eq!(chat.outcome(), "finished", "{dialect:?}");
    }
}

#[test]
fn an_error_inside_of_a_stream_is_shown() {
    for dialect in Dialect::BOTH {
        let fault =
            json!({"error": {"after_events": 6, "code": "server_error", "message": "the model fell over"}});
        let script = Script::new().fault(fault).step(Reply::text(&"I begin. ".repeat(20)));
        let world = World::speaking(dialect, script);
        let (_, finished) = turn(&world);
        assert_eq!(finished["outcome"], "failed");
        assert!(finished["error"].as_str().unwrap().contains("the model fell over"), "{finished}");
    }
}

#[test]
fn odd_servers_are_understood() {
    for dialect in Dialect::BOTH {
        let odd = call("read_file", json!({"file_path": "README.md"}))
            .with("odd", json!(["no_ids", "no_index", "no_usage", "framing"]));
        let world = World::speaking(dialect, Script::new().step(odd).step(Reply::text("Done.")));
        let (chat, finished) = turn(&world);
        assert_eq!(finished["outcome"], "finished", "{dialect:?}: {finished}");
        assert_eq!(chat.verdict("read_file").status, "ok");
    }
}

#[test]
fn the_prefix_of_a_session_never_changes() {
    for dialect in Dialect::BOTH {
        let script = Script::new()
            .step(call("read_file", json!({"file_path": "README.md"})))
            .step(Reply::text("One."))
            .step(Reply::text("Two."))
            .step(Reply::text("Three."));
        let mut world = World::with(script, dialect, "", Start::default());
        let (mut chat, _) = turn(&world);
        chat.set_mode("plan");
        chat.prompt("And?");
        assert_eq!(chat.outcome(), "finished");
        let id = chat.id.clone();
        world.kill9_and_restart();
        let mut chat = agentd_tests::Chat::attach(&world.daemon, &id, "test");
        chat.prompt("More?");
        while chat.events("turnFinished").len() < 3 {
            let _ = chat.finished();
        }
        let requests = world.model.requests();
        assert_eq!(requests.len(), 4);
        for pair in requests.windows(2) {
            assert_eq!(pair[0]["system"], pair[1]["system"]);
            assert_eq!(pair[0]["tools"], pair[1]["tools"]);
            let (before, after) = (messages(&pair[0]), messages(&pair[1]));
            // Only what a provider merges into the newest message may grow with it.
            assert_eq!(before[..], after[..before.len()], "{dialect:?}");
        }
    }
}

/// The messages as one list of role and block, without marks of the cache.
fn messages(request: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for message in request["messages"].as_array().unwrap() {
        match message["content"].as_array() {
            Some(blocks) => {
                for block in blocks {
                    let mut block = block.clone();
                    block.as_object_mut().unwrap().remove("cache_control");
                    found.push(format!("{} {block}", message["role"]));
                }
            }
            None => found.push(message.to_string()),
        }
    }
    found
}
