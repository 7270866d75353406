//! Settings: rules hold from the moment they are saved, and a project says only what is a project's to say.

use std::path::Path;

use agentd_tests::{Reply, Script, World, call, program};
use serde_json::json;

/// Puts a new text in place of a file at once, as an editor does.
fn save(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, path).unwrap();
}

#[test]
fn a_deny_rule_holds_from_the_next_call_on_until_it_is_taken_out() {
    let search = || call("grep_search", json!({"pattern": "fn"}));
    let script = (0..3).fold(Script::new(), |script, _| script.step(search()).step(Reply::text("Done.")));
    let world = World::new(script);
    let file = world.home.path("config/agentd/config.toml");
    let before = std::fs::read_to_string(&file).unwrap();
    let mut chat = world.session("default");
    for (rules, line) in [
        ("", "grep_search allow read.workspace ok"),
        ("\n[permissions]\ndeny = [\"Grep\"]\n", "grep_search deny rule.deny denied rule.deny"),
        ("", "grep_search allow read.workspace ok"),
    ] {
        save(&file, &format!("{before}{rules}"));
        chat.prompt("Go");
        assert_eq!(chat.outcome(), "finished");
        assert_eq!(chat.verdict("grep_search").line(), line);
    }
}

#[test]
fn a_rule_of_a_project_that_nobody_trusts_ends_what_waits_and_allows_nothing() {
    let write = || call("write_file", json!({"file_path": "new.txt", "content": "x"}));
    let script =
        Script::new().step(write()).step(Reply::text("Done.")).step(write()).step(Reply::text("Done."));
    let world = World::new(script);
    let project = world.home.project();
    let mut chat = world.session("default");
    chat.prompt("Go");
    chat.approval();
    std::fs::create_dir(project.path.join(".agentd")).unwrap();
    save(
        &project.path.join(".agentd/config.toml"),
        "permissions.deny = ['Write']\npermissions.allow = ['Write']\n",
    );
    let resolved = chat.line.event_of("approvalResolved");
    assert_eq!(resolved["resolution"], "cancelled", "{resolved}");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.verdict("write_file").reason, "write.workspace,rule.deny");
    save(
        &project.path.join(".agentd/config.toml"),
        "mode = 'bypassPermissions'\npermissions.allow = ['Write']\n",
    );
    chat.prompt("Go");
    chat.approval();
    assert!(!project.path.join("new.txt").exists());
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
fn a_setting_is_asked_for_and_changed_by_command_and_the_rest_of_the_file_stays() {
    let world = World::new(Script::new());
    let file = world.home.path("config/agentd/config.toml");
    let before = std::fs::read_to_string(&file).unwrap();
    save(&file, &format!("# mine\n{before}"));
    let (code, text) = agentctl(&world, &["config", "set", "permissions.deny", "['Bash(rm *)']"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        format!("# mine\n{before}\n[permissions]\ndeny = [\"Bash(rm *)\"]\n")
    );
    let (code, text) = agentctl(&world, &["why", "rm x"]);
    assert!(code == 0 && text.contains("rule.deny") || text.contains("deny"), "{text}");
    let (code, text) = agentctl(&world, &["config", "set", "shell.env", "['X']", "--project"]);
    assert_eq!(code, 5, "{text}");
    let (code, text) = agentctl(&world, &["config", "set", "mode", "acceptEdits", "--project"]);
    assert!(code == 0 && text.contains("nobody has trusted it") && text.contains("agentctl trust"), "{text}");
    let (code, text) = agentctl(&world, &["config", "get", "mode"]);
    assert!(code == 0 && text.contains("passed over: nobody has trusted it"), "{text}");
    let (code, text) = agentctl(&world, &["config", "set", "mdoe", "plan"]);
    assert!(code == 1 && text.contains("did you mean `mode`?"), "{text}");
    let (code, text) = agentctl(&world, &["config", "unset", "permissions.deny"]);
    assert_eq!(code, 0, "{text}");
    let (code, text) = agentctl(&world, &["config", "path"]);
    assert!(code == 0 && text.lines().count() == 2, "{text}");
}
