//! Settings: rules hold from the moment they are saved, and a project says only what is a project's to say.

use std::path::Path;

use agentd_tests::{Reply, Script, World, call};
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
