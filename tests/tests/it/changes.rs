//! What a session changed on disk, and taking it back: commands and tools, in a repository and outside of one.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use agentd_tests::{Chat, Dialect, Reply, Script, Start, World, call, program};
use serde_json::{Value, json};

/// A world in which nothing asks, with a repository as its project.
pub(super) fn world(script: Script) -> World {
    let world = plain_world(script);
    git(&world, &["init", "-q", "-b", "main", "."]);
    world.home.project().write(".gitignore", "*.log\n");
    world.home.project().write("lines.txt", &lines(40));
    git(&world, &["add", "-A"]);
    git(&world, &["commit", "-q", "-m", "first"]);
    world
}

pub(super) fn plain_world(script: Script) -> World {
    let start = Start { args: vec!["--allow-bypass".into()], ..Start::default() };
    World::with(script, Dialect::OpenaiChat, "", start)
}

fn lines(count: usize) -> String {
    (1..=count).map(|number| format!("line {number}\n")).collect()
}

pub(super) fn git(world: &World, args: &[&str]) {
    let done = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@b"])
        .args(args)
        .current_dir(&world.home.project().path)
        .output()
        .unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

pub(super) fn shell(command: &str) -> Reply {
    call("run_shell", json!({"command": command}))
}

pub(super) fn done() -> Reply {
    Reply::text("Done.")
}

/// One prompt to its end.
pub(super) fn turn(chat: &mut Chat) {
    chat.prompt("Go");
    assert_eq!(chat.outcome(), "finished");
}

pub(super) fn changes(chat: &mut Chat, more: Value) -> Value {
    ask(chat, "session/changes", more)
}

fn revert(chat: &mut Chat, more: Value) -> Value {
    ask(chat, "session/revert", more)
}

pub(super) fn ask(chat: &mut Chat, method: &str, mut params: Value) -> Value {
    params["sessionId"] = chat.id.clone().into();
    chat.line.call(method, params)
}

/// Each file as `kind path +added -removed`.
pub(super) fn told(changes: &Value) -> Vec<String> {
    let files = changes["files"].as_array().unwrap();
    files
        .iter()
        .map(|file| {
            let text = |name: &str| file[name].as_str().unwrap().to_owned();
            format!("{} {} +{} -{}", text("kind"), text("path"), file["added"], file["removed"])
        })
        .collect()
}

/// Mode and bytes of all files, git's own left out.
fn content(root: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.ends_with(".git") {
                continue;
            }
            let meta = path.symlink_metadata().unwrap();
            if meta.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = match meta.is_symlink() {
                true => std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
                false => std::fs::read(&path).unwrap(),
            };
            found.insert(path.display().to_string(), (meta.mode(), bytes));
        }
    }
    found
}

#[test]
fn commands_and_tools_are_told_together_and_a_whole_turn_is_taken_back() {
    let script = Script::new()
        .step(call("read_file", json!({"file_path": "README.md"})))
        .step(done())
        .step(call("write_file", json!({"file_path": "new.txt", "content": "new\n"})).call(
            "run_shell",
            json!({"command": "sed -i s/project/tree/ README.md && rm src/b.rs && chmod +x src/a.rs && \
                        ln -s README.md link && printf 'a\\0b' >bin && echo log >x.log"}),
        ))
        .step(done());
    let world = world(script);
    let root = world.home.project().path;
    let mut chat = world.session("bypassPermissions");
    turn(&mut chat);
    assert_eq!(told(&changes(&mut chat, json!({}))), Vec::<String>::new());
    let journal = std::fs::read_to_string(world.home.journal(&chat.id)).unwrap();
    assert!(!journal.contains("treeKept"), "a turn that only reads costs nothing");
    let before = content(&root);
    turn(&mut chat);
    let all = changes(&mut chat, json!({"turn": 2}));
    assert_eq!(all["seen"], "git");
    assert_eq!(
        told(&all),
        [
            "modified README.md +1 -1",
            "added bin +0 -0",
            "added link +1 -0",
            "added new.txt +1 -0",
            "modeChanged src/a.rs +0 -0",
            "deleted src/b.rs +0 -1",
        ]
    );
    assert!(all["files"][0]["diff"].as_str().unwrap().ends_with("@@ -1 +1 @@\n-# A project\n+# A tree\n"));
    assert_eq!(all["files"][1]["binary"], true);
    let some = changes(&mut chat, json!({"paths": ["src"], "stat": true}));
    assert_eq!(some["files"].as_array().unwrap().len(), 2);
    assert!(some["files"][1].get("diff").is_none());
    assert_eq!(told(&changes(&mut chat, json!({"turn": 1}))), Vec::<String>::new());

    let result = revert(&mut chat, json!({"turn": 2}));
    assert_eq!((result["reverted"].as_array().unwrap().len(), &result["stays"]), (6, &json!([])));
    let mut now = content(&root);
    now.remove(root.join("x.log").to_str().unwrap()).expect("an ignored file is left alone");
    assert_eq!(now, before);
    assert_eq!(told(&changes(&mut chat, json!({"turn": 2}))), Vec::<String>::new());
}

#[test]
fn an_ignored_file_that_a_tool_wrote_is_told_by_the_tool() {
    let script = Script::new()
        .step(
            call("write_file", json!({"file_path": "a.log", "content": "kept by the tool\n"}))
                .call("write_file", json!({"file_path": "brief.txt", "content": "x\n"}))
                .call("run_shell", json!({"command": "rm brief.txt; echo shell >b.log"})),
        )
        .step(done());
    let world = world(script);
    let mut chat = world.session("bypassPermissions");
    turn(&mut chat);
    let all = changes(&mut chat, json!({}));
    assert_eq!(told(&all), ["added a.log +1 -0"]);
    assert_eq!(all["files"][0]["seen"], "tools");
    assert_eq!(revert(&mut chat, json!({}))["reverted"], json!(["a.log"]));
    assert!(!world.home.project().path.join("a.log").exists());
    assert!(world.home.project().path.join("b.log").exists());
}

#[test]
fn what_somebody_changed_since_stays() {
    let script = Script::new().step(shell("echo agent >README.md; echo agent >src/a.rs")).step(done());
    let world = world(script);
    let mut chat = world.session("bypassPermissions");
    turn(&mut chat);
    // The end of the turn has been looked at.
    assert_eq!(told(&changes(&mut chat, json!({}))).len(), 2);
    world.home.project().write("README.md", "a person\n");
    let result = revert(&mut chat, json!({"turn": 1}));
    assert_eq!(result["reverted"], json!(["src/a.rs"]));
    assert_eq!(result["stays"][0]["path"], "README.md");
    assert_eq!(result["stays"][0]["changedSince"], true);
    assert_eq!(world.home.project().read("README.md"), "a person\n");
    assert_eq!(world.home.project().read("src/a.rs"), "fn a() {}\n");
    // What was taken back is no change of the session any more; the rest is.
    assert_eq!(told(&changes(&mut chat, json!({"turn": 1}))), ["modified README.md +1 -1"]);
}

#[test]
fn single_hunks_are_taken_back_where_their_lines_still_stand() {
    let script = Script::new()
        .step(shell("sed -i 's/^line 5$/FIVE/; s/^line 20$/TWENTY/; s/^line 35$/THIRTY/' lines.txt"))
        .step(done());
    let world = world(script);
    let mut chat = world.session("bypassPermissions");
    turn(&mut chat);
    assert_eq!(changes(&mut chat, json!({}))["files"][0]["hunks"], 3);
    // A person adds a line above all, and changes the third place.
    let now = world.home.project().read("lines.txt");
    world.home.project().write("lines.txt", &format!("top\n{}", now.replace("THIRTY", "mine")));
    let hunk = |number: u32| json!({"hunks": [{"path": "lines.txt", "hunk": number}]});
    assert_eq!(revert(&mut chat, hunk(2))["reverted"], json!(["lines.txt"]));
    let expected =
        format!("top\n{}", lines(40).replace("line 5\n", "FIVE\n").replace("line 3FIVE", "line 35"));
    let expected = expected.replace("line 35\n", "mine\n");
    assert_eq!(world.home.project().read("lines.txt"), expected);
    // Of three changes two are left, so the last is the second now.
    assert_eq!(changes(&mut chat, json!({}))["files"][0]["hunks"], 2);
    let refused = revert(&mut chat, hunk(2));
    assert_eq!(refused["reverted"], json!([]));
    assert!(refused["stays"][0]["why"].as_str().unwrap().contains("hunk 2"), "{refused}");
    assert_eq!(world.home.project().read("lines.txt"), expected);
    let params = json!({"sessionId": chat.id, "hunks": [{"path": "lines.txt", "hunk": 3}]});
    assert_eq!(chat.line.try_call("session/revert", params).unwrap_err().code, -32059);
}

#[test]
fn outside_of_a_repository_the_tools_are_believed_and_that_is_said() {
    let script = Script::new()
        .step(
            call("read_file", json!({"file_path": "README.md"}))
                .call(
                    "edit_file",
                    json!({"file_path": "README.md", "old_string": "project", "new_string": "tool"}),
                )
                .call("write_file", json!({"file_path": "new.txt", "content": "new\n"}))
                .call("run_shell", json!({"command": "echo shell >unseen.txt"})),
        )
        .step(done());
    let world = plain_world(script);
    let mut chat = world.session("bypassPermissions");
    turn(&mut chat);
    let all = changes(&mut chat, json!({}));
    assert_eq!(all["seen"], "tools");
    assert!(all["notes"][0].as_str().unwrap().contains("not seen"), "{all}");
    assert_eq!(told(&all), ["modified README.md +1 -1", "added new.txt +1 -0"]);
    assert!(all["files"][0]["diff"].as_str().unwrap().contains("-# A project\n+# A tool\n"));
    let result = revert(&mut chat, json!({}));
    assert_eq!(result["reverted"], json!(["README.md", "new.txt"]));
    assert_eq!(world.home.project().read("README.md"), "# A project\n");
    assert!(!world.home.project().path.join("new.txt").exists());
    assert!(world.home.project().path.join("unseen.txt").exists());
    assert!(!world.home.journal(&chat.id).with_file_name("snapshots").exists());
}

#[test]
fn since_the_plan_is_what_came_after_its_approval() {
    let script = Script::new()
        .step(shell("echo early >early.txt"))
        .step(done())
        .step(
            call("write_file", json!({"file_path": "{{plan_path}}", "content": "# Plan\n"}))
                .call("exit_plan_mode", json!({})),
        )
        .step(call("write_file", json!({"file_path": "late.txt", "content": "late\n"})))
        .step(done());
    let world = world(script);
    let mut chat = world.session("bypassPermissions");
    turn(&mut chat);
    let params = json!({"sessionId": chat.id, "sincePlan": true});
    assert_eq!(chat.line.try_call("session/changes", params).unwrap_err().code, -32050);
    chat.set_mode("plan");
    chat.prompt("Plan");
    let approval = chat.approval();
    chat.choose(&approval, "execute");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(told(&changes(&mut chat, json!({"sincePlan": true}))), ["added late.txt +1 -0"]);
    assert_eq!(told(&changes(&mut chat, json!({}))).len(), 2);
    // A daemon that starts anew knows the same; a session that is deleted leaves nothing.
    let mut world = world;
    world.kill9_and_restart();
    let listed = world.daemon.connect().call("session/list", json!({}));
    let row = &listed["sessions"][0];
    assert_eq!((&row["lastOutcome"], &row["mode"]), (&json!("finished"), &json!("acceptEdits")));
    let mut again = Chat::attach(&world.daemon, &chat.id, "test");
    assert_eq!(told(&changes(&mut again, json!({"sincePlan": true}))), ["added late.txt +1 -0"]);
    let folder = world.home.journal(&chat.id).parent().unwrap().to_owned();
    assert!(folder.join("snapshots").exists());
    ask(&mut again, "session/delete", json!({}));
    assert!(!folder.exists());
}

#[test]
fn a_crash_in_the_middle_loses_no_change_and_the_late_look_is_said() {
    let script = Script::new().step(shell("echo half >half.txt; echo ready >/dev/stderr; sleep 100"));
    let mut world = world(script);
    let mut chat = world.session("bypassPermissions");
    chat.prompt("Go");
    let half = world.home.project().path.join("half.txt");
    agentd_tests::eventually("the first half of the command", || half.exists().then_some(()));
    let running = changes(&mut chat, json!({}));
    assert_eq!(told(&running), ["added half.txt +1 -0"], "as it stands now");
    let params = json!({"sessionId": chat.id});
    assert_eq!(chat.line.try_call("session/revert", params).unwrap_err().code, -32053);
    world.kill9_and_restart();
    let mut again = Chat::attach(&world.daemon, &chat.id, "test");
    assert_eq!(again.outcome(), "interrupted");
    let all = changes(&mut again, json!({"turn": 1}));
    assert_eq!((told(&all), &all["seen"]), (vec!["added half.txt +1 -0".to_owned()], &json!("git")));
    assert!(all["notes"][0].as_str().unwrap().contains("after a restart"), "{all}");
}

#[test]
fn after_a_crash_in_a_command_what_tools_did_goes_back_and_the_rest_is_named() {
    let edit = json!({"file_path": "src/a.rs", "old_string": "fn a", "new_string": "fn z"});
    let script = Script::new()
        .step(call("read_file", json!({"file_path": "src/a.rs"})))
        .step(call("edit_file", edit))
        .step(shell("echo half >half.txt; echo ready >/dev/stderr; sleep 100"));
    let mut world = world(script);
    let mut chat = world.session("bypassPermissions");
    chat.prompt("Go");
    let project = world.home.project();
    let half = project.path.join("half.txt");
    agentd_tests::eventually("the first half of the command", || half.exists().then_some(()));
    world.kill9_and_restart();
    let mut again = Chat::attach(&world.daemon, &chat.id, "test");
    assert_eq!(again.outcome(), "interrupted");
    let result = ask(&mut again, "session/rewind", json!({"files": true}));
    assert_eq!(result["files"]["reverted"], json!(["src/a.rs"]), "{result}");
    let stays = &result["files"]["stays"];
    assert_eq!((&stays[0]["path"], stays.as_array().unwrap().len()), (&json!("half.txt"), 1), "{result}");
    assert_eq!((project.read("src/a.rs").as_str(), half.exists()), ("fn a() {}\n", true));
    let left = changes(&mut again, json!({}));
    assert_eq!(told(&left), ["added half.txt +1 -0"], "what was put back is no change any more");
}

#[test]
fn a_repository_that_git_cannot_read_costs_a_notice_and_no_turn() {
    let script = Script::new().step(shell("echo x >x.txt")).step(done());
    let world = world(script);
    let mut chat = world.session("bypassPermissions");
    let folder = world.home.journal(&chat.id).with_file_name("snapshots");
    std::fs::write(&folder, "in the way").unwrap();
    turn(&mut chat);
    let notice = chat.events("notice").into_iter().find(|event| event["code"] == "snapshot").cloned();
    assert!(notice.is_some_and(|notice| notice["text"].as_str().unwrap().contains("no snapshot")));
    let all = changes(&mut chat, json!({}));
    assert_eq!(all["seen"], "tools");
    assert!(all["notes"][0].as_str().unwrap().contains("no snapshot"), "{all}");
    assert!(world.home.project().path.join("x.txt").exists());
}

#[test]
fn an_interrupt_does_not_wait_for_a_snapshot() {
    let world = world(Script::new().step(shell("echo x >x.txt")).step(done()));
    // git waits for somebody to write to it.
    let pipe = world.home.project().path.join(".git/objects/info/alternates");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut chat = world.session("bypassPermissions");
    chat.prompt("Go");
    let folder = world.home.journal(&chat.id).with_file_name("snapshots");
    agentd_tests::eventually("the beginning of the snapshot", || folder.exists().then_some(()));
    chat.interrupt();
    assert_eq!(chat.outcome(), "interrupted");
    assert!(!world.home.project().path.join("x.txt").exists());
}

#[test]
fn many_and_long_changes_fit_into_one_answer() {
    let script = Script::new()
        .step(shell("seq 60000 >long.txt; mkdir many; for n in $(seq 600); do echo $n >many/$n; done"))
        .step(done());
    let world = world(script);
    let mut chat = world.session("bypassPermissions");
    turn(&mut chat);
    let all = changes(&mut chat, json!({}));
    assert_eq!(all["files"].as_array().unwrap().len(), 500);
    assert!(all["notes"][0].as_str().unwrap().starts_with("101 more files changed"), "{}", all["notes"]);
    let long = &changes(&mut chat, json!({"paths": ["long.txt"]}))["files"][0];
    assert_eq!((&long["added"], long["diff"]["size"].as_u64().unwrap() > 300_000), (&json!(60_000), true));
    let part = ask(&mut chat, "blob/get", json!({"sha256": long["diff"]["blob"], "length": 8}));
    assert_eq!(part["size"], long["diff"]["size"]);
}

#[test]
fn only_a_person_takes_back_or_puts_away_what_a_person_made() {
    let world = world(Script::new().step(shell("echo x >x.txt")).step(done()));
    let mut chat = world.session("bypassPermissions");
    turn(&mut chat);
    let mut program = agentd_tests::Line::connect_as(world.daemon.socket(), "bot", "program");
    let params = json!({"sessionId": chat.id});
    for method in ["session/revert", "session/archive", "session/delete"] {
        assert_eq!(program.try_call(method, params.clone()).unwrap_err().code, -32054, "{method}");
    }
    assert!(world.home.project().path.join("x.txt").exists());
    assert_eq!(chat.state()["activity"], "idle", "it is there");
    let own = program.call("session/new", json!({"cwd": world.home.project().cwd()}));
    for method in ["session/archive", "session/delete"] {
        program.call(method, json!({"sessionId": own["sessionId"]}));
    }
}

#[test]
fn agentctl_shows_the_diff_and_rejects_a_hunk() {
    let script = Script::new()
        .step(shell("sed -i 's/^line 5$/FIVE/; s/^line 20$/TWENTY/' lines.txt; chmod 755 src/a.rs"))
        .step(done());
    let world = world(script);
    let mut chat = world.session("bypassPermissions");
    turn(&mut chat);
    let agentctl = |args: &[&str]| {
        let done = Command::new(program("agentctl"))
            .args(args)
            .env_clear()
            .envs(world.home.env())
            .current_dir(&world.home.project().path)
            .output()
            .unwrap();
        (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned())
    };
    let (code, stat) = agentctl(&["diff", "--stat"]);
    assert_eq!(code, Some(0));
    assert_eq!(stat, " lines.txt | 4 ++--\n src/a.rs  | mode\n 2 files changed, +2 \u{2212}2 lines\n");
    let (_, diff) = agentctl(&["diff", "--turn", "1", "lines.txt"]);
    assert!(diff.starts_with("diff --git a/lines.txt b/lines.txt\n--- a/lines.txt\n"), "{diff}");
    assert!(diff.contains(" :2\n") && !diff.contains('\u{1b}'), "{diff}");
    let (code, said) = agentctl(&["diff", "--reject", "lines.txt:1", "--reject", "src/a.rs"]);
    assert_eq!((code, said.matches("taken back").count()), (Some(0), 2), "{said}");
    assert_eq!(world.home.project().read("lines.txt"), lines(40).replace("line 20\n", "TWENTY\n"));
    let mode = std::fs::metadata(world.home.project().path.join("src/a.rs")).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0);
    let (code, _) = agentctl(&["diff", "--turn", "7"]);
    assert_eq!(code, Some(1));
}

#[test]
fn going_back_with_the_files_undoes_what_was_done_since_and_leaves_what_others_did() {
    let script = Script::new()
        .step(shell("echo first >a.txt"))
        .step(done())
        .step(shell("echo second >a.txt; echo new >b.txt; rm lines.txt; echo mine >c.txt"))
        .step(done());
    let world = world(script);
    let mut chat = world.session("bypassPermissions");
    turn(&mut chat);
    let project = world.home.project();
    let before = content(&project.path);
    turn(&mut chat);
    project.write("c.txt", "somebody else's\n");
    let result = ask(&mut chat, "session/rewind", json!({"files": true}));
    assert_eq!(result["turns"], 1);
    let stays = result["files"]["stays"].as_array().unwrap();
    assert_eq!((stays.len(), &stays[0]["changedSince"]), (1, &json!(true)), "{result}");
    assert_eq!(project.read("c.txt"), "somebody else's\n");
    std::fs::remove_file(project.path.join("c.txt")).unwrap();
    assert!(content(&project.path) == before, "byte for byte");
    // The model is told that the files have changed, and of the turn no more.
    chat.prompt("Go on");
    chat.outcome();
    let asked = world.model.requests()[4].to_string();
    assert!(asked.contains("were put back"), "{asked}");
    assert!(asked.contains("echo first") && !asked.contains("echo second"), "{asked}");
}
