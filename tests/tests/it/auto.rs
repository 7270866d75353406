//! Mode `auto` from outside: a classifier between the gate and the call, and the breaker that takes it out.

use agentd_tests::{Dialect, Reply, Script, Start, World, call, program};
use serde_json::{Value, json};

const ALLOW: &str = r#"{"verdict":"allow","reason":"the person asked for it"}"#;
const BLOCK: &str = r#"{"verdict":"block","reason":"nobody asked for it"}"#;

/// A model that reads the file that the prompt names, beside a classifier.
fn reads(classifier: Reply) -> Script {
    Script::new()
        .rule(
            "classifier",
            json!({"texts": [{"in": "system", "contains": "one tool call of an agent"}]}),
            classifier,
        )
        .rule("read", json!({"answers": 0}), call("read_file", json!({"file_path": "{{prompt}}"})))
}

/// `settings` are lines of the settings file. The classifier has all the time that a busy machine takes.
fn world(script: Script, dialect: Dialect, settings: &str) -> World {
    World::with(script, dialect, &format!("[auto]\ntimeout_s = 600\n{settings}\n"), Start::default())
}

/// A file that is in no session's folder.
fn outside(world: &World) -> String {
    let path = world.home.path("outside.txt");
    std::fs::write(&path, "far away\n").unwrap();
    path.canonicalize().unwrap().display().to_string()
}

fn is_classifier(request: &Value) -> bool {
    let system = request.get("system").unwrap_or(&request["messages"][0]);
    system.to_string().contains("one tool call of an agent")
}

fn classified(world: &World) -> Vec<Value> {
    world.model.requests().into_iter().filter(is_classifier).collect()
}

fn agentctl(world: &World, args: &[&str]) -> (i32, String) {
    let output = std::process::Command::new(program("agentctl"))
        .args(args)
        .current_dir(world.home.project().path)
        .env_clear()
        .envs(world.home.env())
        .output()
        .unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), text)
}

#[test]
fn what_the_classifier_allows_runs_without_a_question_in_both_dialects() {
    for dialect in Dialect::BOTH {
        let world = world(reads(Reply::text(ALLOW)), dialect, "");
        let file = outside(&world);
        let mut chat = world.session("auto");
        chat.prompt(&file);
        assert_eq!(chat.outcome(), "finished");
        assert_eq!(chat.verdict("read_file").line(), "read_file allow auto.allowed ok");
        let asked = classified(&world);
        assert_eq!(asked.len(), 1);
        assert!(asked[0].get("tools").is_none(), "{}", asked[0]);
        assert!(!asked[0].to_string().contains("far away"));
        // Inside of the folder it is not asked.
        chat.prompt("src/a.rs");
        assert_eq!(chat.outcome(), "finished");
        assert_eq!(classified(&world).len(), 1);
    }
}

#[test]
fn three_refusals_open_the_breaker_and_a_command_closes_it() {
    let world = world(reads(Reply::text(BLOCK)), Dialect::OpenaiChat, "");
    let file = outside(&world);
    let mut chat = world.session("auto");
    for _ in 0..3 {
        chat.prompt(&file);
        assert_eq!(chat.outcome(), "finished");
        assert_eq!(chat.verdict("read_file").line(), "read_file deny auto.blocked denied auto.blocked");
    }
    chat.prompt(&file);
    let approval = chat.approval();
    assert_eq!(approval["tool"]["reason"], "read.elsewhere");
    chat.choose(&approval, "deny");
    assert_eq!(chat.outcome(), "refused");
    assert_eq!(classified(&world).len(), 3);
    assert_eq!(chat.state()["breaker"], json!({"open": true, "inRow": 3, "total": 3}));
    let (code, text) = agentctl(&world, &["breaker"]);
    assert!(code == 0 && text.contains("open (3 refused, 3 in a row)"), "{text}");
    let (code, text) = agentctl(&world, &["breaker", "close"]);
    assert!(code == 0 && text.contains("is closed"), "{text}");
    let (code, text) = agentctl(&world, &["why", "--read", &file]);
    assert!(code == 0 && text.starts_with("asks the classifier"), "{text}");
    chat.prompt(&file);
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(classified(&world).len(), 4);
}

#[test]
fn a_classifier_that_does_not_answer_leaves_it_to_a_person() {
    let silent = Reply::text(ALLOW).fault(None, json!({"hang": {"after": 0}}));
    let world = World::with(reads(silent), Dialect::OpenaiChat, "[auto]\ntimeout_s = 1\n", Start::default());
    let file = outside(&world);
    let mut chat = world.session("auto");
    chat.prompt(&file);
    let approval = chat.approval();
    assert_eq!(approval["tool"]["reason"], "auto.noAnswer");
    assert!(approval["tool"]["note"].as_str().unwrap().contains("within 1 s"), "{approval}");
    chat.choose(&approval, "allowOnce");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.verdict("read_file").line(), "read_file ask auto.noAnswer ok");
}

#[test]
fn what_rules_and_protected_paths_decide_is_no_matter_for_it() {
    let prompted = |word: &str| json!({"answers": 0, "texts": [{"in": "prompt", "contains": word}]});
    let script = Script::new()
        .rule(
            "write",
            prompted("hook"),
            call("write_file", json!({"file_path": ".git/hooks/pre-commit", "content": "x"})),
        )
        .rule("run", prompted("run"), call("run_shell", json!({"command": "touch made"})))
        .rule("read", prompted("outside"), call("read_file", json!({"file_path": "{{prompt}}"})));
    let world = world(script, Dialect::OpenaiChat, "[permissions]\ndeny = [\"Read(outside.txt)\"]");
    let file = outside(&world);
    let mut chat = world.session("auto");
    chat.prompt(&file);
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.verdict("read_file").line(), "read_file deny rule.deny denied rule.deny");
    for (prompt, reason) in [("a hook", "path.protected"), ("run it", "command.unconfined")] {
        chat.prompt(prompt);
        let approval = chat.approval();
        assert_eq!(approval["tool"]["reason"], reason);
        chat.choose(&approval, "deny");
        assert_eq!(chat.outcome(), "refused");
    }
    assert_eq!(classified(&world).len(), 0);
}
