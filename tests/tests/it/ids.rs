//! Ids: echoed as they came, refused where they are none, and the same thing where they come twice.

use agentd_tests::{Script, World};
use serde_json::json;

#[test]
fn rp_04_ids_come_back_letter_for_letter() {
    let world = World::new(Script::new());
    let mut line = world.daemon.connect();
    let long = format!("\"{}\"", "x".repeat(10_000));
    for id in ["\"1\"", "1", "9007199254740993", "-1", "1.5", "\"\u{1f980}\"", &long] {
        line.write(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"daemon/status\"}}"));
        let answer = line.read().unwrap();
        assert_eq!(answer["id"].to_string(), id, "{id:.20}");
        assert!(answer["result"].is_object());
    }
}

#[test]
fn se_14_unknown_and_hostile_ids_are_refused_and_touch_nothing() {
    let world = World::new(Script::new());
    let mut line = world.daemon.connect();
    let before = agentd_tests::tree(&world.home.path("state/agentd/sessions"));
    let unknown = uuid::Uuid::new_v4().to_string();
    for method in [
        "session/get",
        "session/prompt",
        "session/delete",
        "plan/get",
        "session/interrupt",
        "events/subscribe",
        "session/setMode",
    ] {
        let params =
            json!({"sessionId": unknown, "content": [{"type": "text", "text": "x"}], "mode": "plan"});
        let error = line.refused(method, params);
        assert_eq!((error.code, &error.data["kind"]), (-32050, &json!("notFound")), "{method}");
    }
    for id in [
        "../../x",
        "/etc",
        "",
        ".",
        &unknown.to_uppercase(),
        &"a".repeat(10_000),
        "a\u{0}b",
        &format!("{unknown}/.."),
        &format!("{{{unknown}}}"),
    ] {
        // Every method, and every field that holds an id.
        let params = json!({
            "sessionId": id, "turnId": id, "promptId": id, "beforeTurn": id, "newSessionId": id, "after": id,
            "approvalId": format!("{id}:a:00"), "answers": format!("{id}:a:00"), "sha256": format!("sha256:{id}"),
            "cwd": world.home.project().cwd(), "content": [{"type": "text", "text": "x"}], "mode": "plan",
            "choice": "deny", "digest": format!("sha256:{id}"), "subscription": id, "provider": id, "key": "k",
            "query": "x", "title": "x", "archived": true, "protocolVersion": 9, "capabilities": {},
            "clientInfo": {"name": "x", "version": "1", "actor": "person"},
        });
        for method in agentd_protocol::method::NAMES {
            if [
                "initialize",
                "daemon/status",
                "daemon/doctor",
                "daemon/reindex",
                "daemon/shutdown",
                "config/set",
                "key/list",
                "session/search",
            ]
            .contains(method)
            {
                continue;
            }
            match line.try_call(method, params.clone()) {
                Err(error) if method.starts_with("key/") => assert_eq!(error.code, -32059, "{method} {id:?}"),
                Err(error) => assert_eq!(error.code, -32602, "{method} {id:?}: {error:?}"),
                // Names nothing outside of the connection.
                Ok(result) => assert_eq!((*method, &result), ("events/unsubscribe", &json!(false)), "{id:?}"),
            }
        }
    }
    assert_eq!(std::fs::read_dir(world.home.path("config/agentd/keys")).unwrap().count(), 1);
    assert_eq!(agentd_tests::tree(&world.home.path("state/agentd/sessions")), before);
}

#[test]
fn p4_the_same_id_with_the_same_parameters_is_the_same_thing() {
    let world = World::new(Script::new());
    let mut line = world.daemon.connect();
    let cwd = world.home.project().cwd();
    let id = uuid::Uuid::new_v4().to_string();
    let first = line.call("session/new", json!({"cwd": cwd, "sessionId": id}));
    let again = line.call("session/new", json!({"cwd": cwd, "sessionId": id}));
    assert_eq!(first["handle"], again["handle"]);
    let error = line.refused("session/new", json!({"cwd": cwd, "sessionId": id, "mode": "plan"}));
    assert_eq!(error.code, -32053);

    let prompt = uuid::Uuid::new_v4().to_string();
    let params = json!({"sessionId": id, "promptId": prompt, "content": [{"type": "text", "text": "Hi"}]});
    let turn = line.call("session/prompt", params.clone())["turnId"].clone();
    assert_eq!(turn, prompt.as_str());
    line.call("turn/wait", json!({"sessionId": id, "turnId": turn}));
    assert_eq!(line.call("session/prompt", params.clone())["turnId"], turn);
    let mut other = params;
    other["content"][0]["text"] = "Ho".into();
    assert_eq!(line.refused("session/prompt", other).code, -32053);
    assert_eq!(world.model.requests().len(), 1);
}
