//! Permission rules from outside: what they cover of commands and paths, what answers make of them, and who says why.

use agentd_tests::{Dialect, Script, Start, World, call, program};
use serde_json::{Value, json};

fn with_rules(script: Script, rules: &str) -> World {
    World::with(script, Dialect::OpenaiChat, &format!("[permissions]\n{rules}\n"), Start::default())
}

/// A model that runs the prompt as a command, once a prompt.
fn runs() -> Script {
    Script::new().rule("run", json!({"answers": 0}), call("run_shell", json!({"command": "{{prompt}}"})))
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
fn pr_01_a_deny_rule_about_a_command_is_found_in_every_part_of_a_line() {
    let world = with_rules(runs(), "deny = [\"Bash(rm *)\"]");
    world.home.project().write("d", "kept\n");
    let mut chat = world.session("acceptEdits");
    for line in
        ["true && rm d", "timeout 5 rm d", "bash -c 'rm d'", "echo $(rm d)", "/bin/rm d", "FOO=1 rm d"]
    {
        chat.prompt(line);
        assert_eq!(chat.outcome(), "finished", "{line}");
        assert_eq!(chat.verdict("run_shell").line(), "run_shell deny rule.deny denied rule.deny", "{line}");
    }
    assert_eq!(world.home.project().read("d"), "kept\n");
}

#[test]
fn pr_20_what_may_not_be_read_is_closed_to_every_tool_and_to_operands() {
    let secret = "hunter2";
    let script = Script::new()
        .rule(
            "cat",
            json!({"answers": 0, "texts": [{"in": "prompt", "contains": "cat"}]}),
            call("run_shell", json!({"command": "cat .env"})),
        )
        .rule(
            "edit",
            json!({"answers": 0, "texts": [{"in": "prompt", "contains": "write"}]}),
            call("write_file", json!({"file_path": ".env", "content": "x"})),
        )
        .rule(
            "grep",
            json!({"answers": 0, "texts": [{"in": "prompt", "contains": "grep"}]}),
            call("grep_search", json!({"pattern": secret})),
        )
        .rule(
            "read",
            json!({"answers": 0, "texts": [{"in": "prompt", "contains": "read"}]}),
            call("read_file", json!({"file_path": "link"})),
        );
    let world = with_rules(script, "deny = [\"Read(.env)\"]");
    world.home.project().write(".env", &format!("KEY={secret}\n"));
    std::os::unix::fs::symlink(".env", world.home.project().path.join("link")).unwrap();
    let mut chat = world.session("acceptEdits");
    for word in ["cat", "write", "read", "grep"] {
        chat.prompt(word);
        assert_eq!(chat.outcome(), "finished", "{word}");
    }
    let denied: Vec<_> =
        chat.events("permissionDecided").iter().map(|event| event["reason"].clone()).collect();
    assert_eq!(denied, ["rule.deny", "rule.deny", "rule.deny", "read.workspace"], "{denied:?}");
    let requests = format!("{:?}", world.model.requests());
    assert!(!requests.contains(&format!("KEY={secret}")), "the secret reached the model");
}

#[test]
fn pr_17_what_is_allowed_for_a_session_is_the_command_that_was_shown() {
    let world = World::new(runs());
    let mut chat = world.session("default");
    chat.prompt("echo one >> log");
    let approval = chat.approval();
    let offers = |approval: &Value| -> Vec<String> {
        let rules = approval["tool"]["rules"].as_array().cloned().unwrap_or_default();
        rules.iter().map(|offer| offer["rule"].as_str().unwrap().to_owned()).collect()
    };
    let log = world.home.project().at("log");
    assert_eq!(offers(&approval), ["Bash(echo one)".to_owned(), format!("Edit(/{log})")]);
    chat.choose(&approval, "allowForSession");
    assert_eq!(chat.outcome(), "finished");
    // The same again runs; another does not.
    chat.prompt("echo one >> log");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.verdict("run_shell").line(), "run_shell allow rule.allow ok");
    assert_eq!(world.home.project().read("log"), "one\none\n");
    for other in ["echo two >> log", "echo one >> other", "echo one; true", "X=1 echo one"] {
        chat.prompt(other);
        let approval = chat.approval();
        chat.choose(&approval, "deny");
        assert_eq!(chat.outcome(), "refused", "{other}");
    }
    // What is only known when it runs makes no rule.
    for other in ["echo $x", "echo $(date)", "cd sub && echo one", "rm -rf /"] {
        chat.prompt(other);
        let approval = chat.approval();
        assert_eq!(offers(&approval), Vec::<String>::new(), "{other}");
        chat.choose(&approval, "deny");
        assert_eq!(chat.outcome(), "refused", "{other}");
    }
}

#[test]
fn why_says_what_would_happen_and_what_has() {
    let world = with_rules(runs(), "deny = [\"Bash(tee *)\"]\nallow = [\"Bash(cargo *)\"]");
    let (code, text) = agentctl(&world, &["why", "git log | tee x"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.starts_with("denied in mode default\n"), "{text}");
    for line in [
        "why   rule.deny: ",
        "rule  deny Bash(tee *) (user",
        "part  git log  only reads",
        "part  tee x  deny Bash(tee *)",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
    let (_, text) = agentctl(&world, &["why", "cargo", "test"]);
    assert!(text.starts_with("asks a person in mode default, with your full rights\n"), "{text}");
    assert!(text.contains("command.unconfined") && text.contains("allow Bash(cargo *)"), "{text}");
    let (_, text) = agentctl(&world, &["why", "--mode", "plan", "--write", "src/a.rs"]);
    assert!(text.starts_with("denied in mode plan\n") && text.contains("plan.write"), "{text}");
    let (_, text) = agentctl(&world, &["why", "echo $((1+1)); ls"]);
    assert!(text.contains("doubt It holds something that is not looked into"), "{text}");
    let (code, text) = agentctl(&world, &["why", "--tool", "run_shel", "--input", "{}"]);
    assert!(code == 1 && text.contains("there is no tool"), "{code} {text}");
    let (_, json) = agentctl(&world, &["why", "--json", "tee x"]);
    let answer: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&answer["decision"], &answer["rule"]["layer"]), (&json!("deny"), &json!("user")));

    let (_, text) = agentctl(&world, &["why"]);
    assert!(text.contains("no session"), "{text}");
    let mut chat = world.session("default");
    let (_, text) = agentctl(&world, &["why"]);
    assert!(text.starts_with("Nothing was refused in "), "{text}");
    chat.prompt("tee x");
    assert_eq!(chat.outcome(), "finished");
    let (code, text) = agentctl(&world, &["why"]);
    assert!(code == 0 && text.starts_with("denied run tee x (rule.deny)\n"), "{text}");
    assert!(text.contains("Bash(tee *)"), "{text}");

    let rules = chat.line.call("permission/rules", json!({"sessionId": chat.id}));
    let rules: Vec<_> = rules["rules"].as_array().unwrap().iter().map(|rule| rule["rule"].clone()).collect();
    assert_eq!(rules, ["Bash(tee *)", "Bash(cargo *)"]);
}

#[test]
fn what_is_allowed_for_good_holds_in_every_session_of_the_project_until_it_is_forgotten() {
    let mut world = World::new(runs());
    let mut chat = world.session("default");
    chat.prompt("echo one");
    let approval = chat.approval();
    let choices = approval["choices"].as_array().unwrap();
    let always = choices.iter().find(|choice| choice["id"] == "allowAlways").unwrap();
    assert!(always["label"].as_str().unwrap().ends_with(": Bash(echo one)"), "{always}");
    chat.choose(&approval, "allowAlways");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.events("ruleAdded")[0]["layer"], "saved");

    world.kill9_and_restart();
    let mut other = world.session("default");
    other.prompt("echo one");
    assert_eq!(other.outcome(), "finished");
    assert_eq!(other.verdict("run_shell").line(), "run_shell allow rule.allow ok");
    let (_, text) = agentctl(&world, &["rules"]);
    assert!(text.contains("allow Bash(echo one)  saved"), "{text}");
    // Kept with agentd, and not where a repository would carry it.
    assert!(!world.home.project().path.join(".agentd").exists());

    let (code, text) = agentctl(&world, &["rules", "--forget", "Bash(echo one)"]);
    assert_eq!(code, 0, "{text}");
    let (code, text) = agentctl(&world, &["rules", "--forget", "Bash(echo one)"]);
    assert!(code == 2 && text.contains("no answer has made the rule"), "{code} {text}");
    other.prompt("echo one");
    let approval = other.approval();
    other.choose(&approval, "deny");
}

/// F7: trust is in what was shown, and in no more.
#[test]
fn a_project_is_trusted_in_exactly_what_it_would_switch_on() {
    let read = call("read_file", json!({"file_path": "{{prompt}}"}));
    let world = World::new(Script::new().rule("read", json!({"answers": 0}), read));
    let project = world.home.project();
    std::fs::create_dir(project.path.join(".agentd")).unwrap();
    let outside = world.home.path("outside");
    std::fs::create_dir(&outside).unwrap();
    for name in ["a", "b"] {
        std::fs::write(outside.join(name), "text\n").unwrap();
    }
    let file = |name: &str| outside.join(name).display().to_string();
    let settings = |rules: &[&str]| {
        let rules: Vec<_> = rules.iter().map(|name| format!("\"Read(/{})\"", file(name))).collect();
        // As editors save: under another name first.
        project.write(".agentd/new", &format!("[permissions]\nallow = [{}]\n", rules.join(", ")));
        std::fs::rename(project.path.join(".agentd/new"), project.path.join(".agentd/config.toml")).unwrap();
    };
    let mut chat = world.session("default");
    let mut asks = |name: &str| {
        chat.prompt(&file(name));
        let either = |event: &Value| {
            event["type"] == "approvalRequested" && event["kind"] == "tool" || event["type"] == "turnFinished"
        };
        let event = chat.line.event("an approval, or the end", either);
        let asked = event["type"] == "approvalRequested";
        if asked {
            chat.choose(&event, "deny");
            assert_eq!(chat.outcome(), "refused");
        }
        asked
    };
    settings(&["a"]);
    assert!(asks("a"), "nobody has trusted it");
    let (_, text) = agentctl(&world, &["trust"]);
    assert!(text.contains("is not trusted.") && text.contains("permissions.allow"), "{text}");
    let digest = text.split("--yes ").nth(1).unwrap().trim().to_owned();
    settings(&["a", "b"]);
    let (code, text) = agentctl(&world, &["trust", "--yes", &digest]);
    assert!(code == 1 && text.contains("something else now"), "{code} {text}");
    settings(&["a"]);
    let (code, text) = agentctl(&world, &["trust", "--yes", &digest]);
    assert!(code == 0 && text.contains("is trusted, by "), "{code} {text}");
    assert!(!asks("a"));
    settings(&["a", "b"]);
    assert!(asks("b"), "it was trusted without that");
    assert!(asks("a"), "and what was trusted is not what stands there now");
    let (_, text) = agentctl(&world, &["trust"]);
    assert!(text.contains("has changed since") && text.contains("+permissions.allow"), "{text}");
    settings(&["a"]);
    assert!(!asks("a"), "it is what was trusted again");
    let (_, text) = agentctl(&world, &["trust", "--revoke"]);
    assert!(text.contains("is not trusted."), "{text}");
    assert!(asks("a"));
    let (code, text) = agentctl(&world, &["trust", world.home.path("").to_str().unwrap()]);
    assert!(code != 0 && text.contains("is no project"), "{code} {text}");
}
