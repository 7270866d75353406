//! Taking files back never takes somebody else's work: what is not proven to be the session's own change stays, and is
//! named.

use agentd_tests::{Chat, Reply, Script, World, call};
use serde_json::{Value, json};

use super::changes::{ask, changes, done, git, plain_world, shell, told, turn, world};

fn write(path: &str, content: &str) -> Reply {
    call("write_file", json!({"file_path": path, "content": content}))
}

fn read(path: &str) -> Reply {
    call("read_file", json!({"file_path": path}))
}

fn names(list: &Value) -> Vec<String> {
    let list = list.as_array().cloned().unwrap_or_default();
    list.iter().map(|item| item["path"].as_str().or(item.as_str()).unwrap().to_owned()).collect()
}

/// The files that are marked as somebody else's.
fn others(changes: &Value) -> Vec<String> {
    let files = changes["files"].as_array().unwrap();
    files.iter().filter(|file| file["others"] == true).map(|file| names(&json!([file])).remove(0)).collect()
}

/// Forgets `turns` with their files. Gives what was put back, and what stays.
fn rewind(chat: &mut Chat, turns: u32) -> (Vec<String>, Vec<String>) {
    let result = ask(chat, "session/rewind", json!({"files": true, "turns": turns}));
    let mut stays = names(&result["files"]["stays"]);
    stays.sort();
    (names(&result["files"]["reverted"]), stays)
}

fn file(world: &World, below: &str) -> Option<String> {
    std::fs::read_to_string(world.home.project().path.join(below)).ok()
}

fn commit(world: &World) {
    git(world, &["add", "-A"]);
    git(world, &["commit", "-q", "-m", "more"]);
}

#[test]
fn what_git_ignored_before_is_neither_shown_nor_removed() {
    // By a tool alone; and by a command that touches the file, so that its stamp is that of the command.
    for loosen in [
        read(".gitignore").call("write_file", json!({"file_path": ".gitignore", "content": "*.log\n"})),
        shell("chmod 640 .env; echo '*.log' >.gitignore"),
    ] {
        let world = world(Script::new().step(loosen).step(done()));
        let project = world.home.project();
        project.write(".gitignore", "*.log\n.env\nbuild/\n");
        commit(&world);
        project.write(".env", "SECRET=1\n");
        std::fs::create_dir(project.path.join("build")).unwrap();
        project.write("build/out", "a long build\n");
        let mut chat = world.session("bypassPermissions");
        turn(&mut chat);
        let all = changes(&mut chat, json!({}));
        assert_eq!(told(&all), ["modified .gitignore +0 -2"], "{all}");
        assert!(!all.to_string().contains("SECRET"), "{all}");
        assert_eq!(names(&all["leftOut"]), [".env", "build/out"]);
        assert_eq!(rewind(&mut chat, 1), (vec![".gitignore".to_owned()], vec![]));
        assert_eq!(file(&world, ".env").as_deref(), Some("SECRET=1\n"));
        assert_eq!(file(&world, "build/out").as_deref(), Some("a long build\n"));
    }
}

#[test]
fn what_a_command_only_moved_into_sight_stays_and_what_it_moved_in_sight_goes_back() {
    let command = "mv .env env.txt; mv src lib; mv lines.txt words.txt; ln README.md link";
    let world = world(Script::new().step(shell(command)).step(done()));
    let project = world.home.project();
    project.write(".gitignore", "*.log\n.env\n");
    commit(&world);
    project.write(".env", "SECRET=1\n");
    let mut chat = world.session("bypassPermissions");
    turn(&mut chat);
    let (back, stays) = rewind(&mut chat, 1);
    assert_eq!((back.len(), stays), (6, vec!["env.txt".to_owned(), "link".to_owned()]));
    assert_eq!(file(&world, "env.txt").as_deref(), Some("SECRET=1\n"));
    assert_eq!(file(&world, "src/a.rs").as_deref(), Some("fn a() {}\n"));
    for gone in ["lib/a.rs", "words.txt"] {
        assert_eq!(file(&world, gone), None, "{gone}");
    }
    assert!(file(&world, "lines.txt").is_some());
}

#[test]
fn what_a_command_linked_into_sight_may_be_the_last_name() {
    let world = world(Script::new().step(shell("ln .env env; rm .env")).step(done()));
    let project = world.home.project();
    project.write(".gitignore", "*.log\n.env\n");
    commit(&world);
    project.write(".env", "SECRET=1\n");
    let mut chat = world.session("bypassPermissions");
    turn(&mut chat);
    assert_eq!(rewind(&mut chat, 1), (vec![], vec!["env".to_owned()]));
    assert_eq!(file(&world, "env").as_deref(), Some("SECRET=1\n"));
}

#[test]
fn a_folder_that_has_become_a_link_is_a_change_like_others() {
    let world =
        world(Script::new().step(shell("mv src lib; echo more >>lib/a.rs; ln -s lib src")).step(done()));
    let mut chat = world.session("bypassPermissions");
    turn(&mut chat);
    assert!(chat.events("notice").is_empty(), "{:?}", chat.events("notice"));
    let all = told(&changes(&mut chat, json!({})));
    assert!(all.iter().any(|line| line.starts_with("added src ")), "{all:?}");
    assert!(
        all.iter().any(|line| line.starts_with("deleted src/b.rs") || line.contains("lib/b.rs")),
        "{all:?}"
    );
}

#[test]
fn what_a_bundle_says_of_files_takes_nothing_back() {
    let world = world(Script::new().step(write("new.txt", "mine\n")).step(done()).step(Reply::text("Here.")));
    let mut chat = world.session("bypassPermissions");
    turn(&mut chat);
    let bundle = world.home.path("a.agentd").display().to_string();
    ask(&mut chat, "session/export", json!({"path": bundle, "copy": true}));
    let elsewhere = world.home.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let taken = chat.line.call("session/import", json!({"path": bundle, "cwd": elsewhere}));
    let mut copy = Chat::attach(&world.daemon, taken["sessionId"].as_str().unwrap(), "copy");
    for (method, more) in [
        ("session/revert", json!({})),
        ("session/revert", json!({"paths": [world.home.project().at("new.txt")]})),
        ("session/rewind", json!({"files": true})),
    ] {
        let result = ask(&mut copy, method, more);
        let files = if method == "session/rewind" { &result["files"] } else { &result };
        assert!(files["reverted"].as_array().is_none_or(Vec::is_empty), "{result}");
        assert!(files["notes"].to_string().contains("out of a bundle"), "{result}");
    }
    assert_eq!(file(&world, "new.txt").as_deref(), Some("mine\n"));
    // What it came from takes back its own.
    assert_eq!(rewind(&mut chat, 1).0, ["new.txt"]);
}

#[test]
fn a_repository_inside_that_is_none_any_more_keeps_its_files() {
    let world = world(Script::new().step(shell("rm -rf nest/.git; touch nest/mine.txt")).step(done()));
    let project = world.home.project();
    std::fs::create_dir(project.path.join("nest")).unwrap();
    git(&world, &["init", "-q", "nest"]);
    project.write("nest/mine.txt", "mine\n");
    let mut chat = world.session("bypassPermissions");
    turn(&mut chat);
    assert_eq!(told(&changes(&mut chat, json!({}))), Vec::<String>::new());
    assert_eq!(rewind(&mut chat, 1), (vec![], vec![]));
    assert_eq!(file(&world, "nest/mine.txt").as_deref(), Some("mine\n"));
}

#[test]
fn what_changed_between_turns_stays() {
    let script = Script::new()
        .step(shell("echo agent >>README.md; echo agent >>src/a.rs; echo agent >own.txt"))
        .step(done())
        .step(shell("echo more >>README.md; echo more >>own.txt"))
        .step(done());
    let world = world(script);
    let project = world.home.project();
    let mut chat = world.session("bypassPermissions");
    turn(&mut chat);
    // As a person commits, pulls, and goes on.
    commit(&world);
    project.write("README.md", "a person\n");
    project.write("pulled.txt", "a colleague\n");
    std::fs::remove_file(project.path.join("lines.txt")).unwrap();
    turn(&mut chat);
    let all = changes(&mut chat, json!({}));
    // What the session added to a person's text is its own, and told apart from that text.
    assert_eq!(others(&all), ["lines.txt", "pulled.txt"], "{all}");
    assert!(told(&all).contains(&"modified README.md +1 -0".to_owned()), "{all}");
    assert!(all["notes"].to_string().contains("somebody else"), "{all}");
    assert!(all["notes"].to_string().contains("README.md was made or changed by others"), "{all}");
    // Of one turn alone it is the session's, down to what it found.
    assert_eq!(others(&changes(&mut chat, json!({"turn": 2}))), Vec::<String>::new());
    let (back, stays) = rewind(&mut chat, 2);
    assert_eq!(back, ["own.txt", "README.md", "src/a.rs"]);
    assert_eq!(stays, ["lines.txt", "pulled.txt"]);
    assert_eq!(file(&world, "README.md").as_deref(), Some("a person\n"));
    assert_eq!(file(&world, "pulled.txt").as_deref(), Some("a colleague\n"));
    assert_eq!((file(&world, "lines.txt"), file(&world, "own.txt")), (None, None));
    assert_eq!(file(&world, "src/a.rs").as_deref(), Some("fn a() {}\n"));
}

#[test]
fn what_a_person_made_in_the_span_and_a_command_destroyed_goes_back() {
    let many = "MINE\n".repeat(50);
    // What the second turn does to the person's file, and what is left beside it after going back.
    for (command, left) in [
        ("rm mine.txt", None),
        ("echo agent >mine.txt", None),
        ("rm mine.txt; mkdir mine.txt; echo x >mine.txt/x", None),
        ("mv mine.txt t1", None),
        ("mv mine.txt gone.txt", None),
        ("mv mine.txt kept.txt; echo z >>kept.txt", Some("kept.txt")),
    ] {
        let script = Script::new().step(shell("echo 1 >t1")).step(done()).step(shell(command)).step(done());
        let world = world(script);
        let project = world.home.project();
        let mut chat = world.session("bypassPermissions");
        turn(&mut chat);
        project.write("mine.txt", &many);
        turn(&mut chat);
        let all = changes(&mut chat, json!({}));
        let notes = all["notes"].to_string();
        assert!(notes.contains("mine.txt was made or changed by others, then"), "{command}: {all}");
        assert!(notes.contains("by turn 2"), "{command}: {all}");
        let (_, stays) = rewind(&mut chat, 2);
        assert_eq!(stays, left.map(str::to_owned).into_iter().collect::<Vec<_>>(), "{command}");
        assert_eq!(file(&world, "mine.txt"), Some(many.clone()), "{command}");
        assert_eq!((file(&world, "t1"), file(&world, "gone.txt")), (None, None), "{command}");
        assert_eq!(left.map(|left| project.path.join(left).exists()), left.map(|_| true));
        // It is theirs again, and once more changes nothing.
        assert!(names(&ask(&mut chat, "session/revert", json!({}))["reverted"]).is_empty(), "{command}");
        assert_eq!(file(&world, "mine.txt"), Some(many.clone()), "{command}");
    }
}

#[test]
fn what_stands_there_now_and_is_a_persons_stays_and_what_was_before_is_named() {
    let script = Script::new()
        .step(shell("true"))
        .step(done())
        .step(shell("rm mine.txt"))
        .step(done())
        .step(shell("echo own >own.txt"))
        .step(done());
    let world = world(script);
    let project = world.home.project();
    let mut chat = world.session("bypassPermissions");
    turn(&mut chat);
    project.write("mine.txt", "first\n");
    turn(&mut chat);
    project.write("mine.txt", "second\n");
    turn(&mut chat);
    let result = ask(&mut chat, "session/rewind", json!({"files": true, "turns": 3}));
    let notes = result["files"]["notes"].to_string();
    assert!(notes.contains("mine.txt") && notes.contains("agentctl diff --turn 2"), "{result}");
    assert_eq!(file(&world, "mine.txt").as_deref(), Some("second\n"));
    assert_eq!(file(&world, "own.txt"), None);
    // What is named can be had.
    assert_eq!(told(&changes(&mut chat, json!({"turn": 2}))), ["deleted mine.txt +0 -1"]);
    // And what a person changed after all of it stays, too.
    project.write("mine.txt", "third\n");
    ask(&mut chat, "session/revert", json!({"turn": 2}));
    assert_eq!(file(&world, "mine.txt").as_deref(), Some("third\n"));
}

#[test]
fn what_a_person_edited_while_a_turn_waited_and_git_then_threw_away_goes_back() {
    let script = Script::new()
        .step(write("new.txt", "agent\n"))
        .step(shell("git checkout -q -- README.md; rm person.txt; chmod +x lines.txt"))
        .step(done());
    let world = world(script);
    let project = world.home.project();
    let mut chat = world.session("acceptEdits");
    chat.prompt("Go");
    let approval = chat.approval();
    project.write("README.md", "a person\n");
    project.write("person.txt", "a person\n");
    project.write("lines.txt", "a person\n");
    chat.choose(&approval, "allowOnce");
    assert_eq!(chat.outcome(), "finished");
    let (back, stays) = rewind(&mut chat, 1);
    assert_eq!((back.len(), stays), (4, vec![]), "{back:?}");
    for name in ["README.md", "person.txt", "lines.txt"] {
        assert_eq!(file(&world, name).as_deref(), Some("a person\n"), "{name}");
    }
    assert_eq!(file(&world, "new.txt"), None);
}

#[test]
fn what_a_later_command_destroyed_of_others_work_is_shown_over_any_span_and_comes_back() {
    let script = Script::new()
        .step(shell("echo 1 >first.txt"))
        .step(done())
        .step(shell(
            "rm mine.txt; mv kept.txt moved.txt; echo agent >over.txt; chmod 755 tool.sh; rm -r folder",
        ))
        .step(done())
        .step(shell("echo 3 >>first.txt; echo 3 >third.txt"))
        .step(done());
    let world = world(script);
    let project = world.home.project();
    project.write("over.txt", "at the beginning\n");
    commit(&world);
    let mut chat = world.session("bypassPermissions");
    turn(&mut chat);
    project.write("mine.txt", "three hours\n");
    project.write("kept.txt", &"a long text of somebody's\n".repeat(20));
    project.write("over.txt", "a person\n");
    project.write("tool.sh", "#!/bin/sh\n");
    std::fs::create_dir(project.path.join("folder")).unwrap();
    project.write("folder/deep.txt", "deep\n");
    turn(&mut chat);
    turn(&mut chat);
    let all = changes(&mut chat, json!({}));
    let shown = names(&all["files"]);
    for path in ["mine.txt", "over.txt", "folder/deep.txt", "moved.txt", "first.txt", "third.txt"] {
        assert!(shown.iter().any(|name| name == path), "{path} in {shown:?}");
    }
    assert_eq!(others(&all), Vec::<String>::new(), "{all}");
    let (_, stays) = rewind(&mut chat, 3);
    assert_eq!(stays, Vec::<String>::new());
    for (path, content) in [
        ("mine.txt", Some("three hours\n")),
        ("over.txt", Some("a person\n")),
        ("folder/deep.txt", Some("deep\n")),
        ("tool.sh", Some("#!/bin/sh\n")),
        ("moved.txt", None),
        ("first.txt", None),
        ("third.txt", None),
    ] {
        assert_eq!(file(&world, path).as_deref(), content, "{path}");
    }
    assert_eq!(file(&world, "kept.txt").unwrap().lines().count(), 20);
}

#[test]
fn without_git_a_broken_chain_of_tools_stays() {
    let edit = |from: &str, to: &str| {
        call("edit_file", json!({"file_path": "README.md", "old_string": from, "new_string": to}))
    };
    let script = Script::new()
        .step(read("README.md").call("write_file", json!({"file_path": "whole.txt", "content": "1\n"})))
        .step(edit("project", "tool"))
        .step(done())
        .step(read("README.md").call("write_file", json!({"file_path": "whole.txt", "content": "2\n"})))
        .step(edit("tool", "hammer"))
        .step(done());
    let world = plain_world(script);
    let mut chat = world.session("bypassPermissions");
    turn(&mut chat);
    world.home.project().write("README.md", "# A tool\nthree hours of text\n");
    turn(&mut chat);
    assert_eq!(others(&changes(&mut chat, json!({}))), ["README.md"]);
    assert_eq!(rewind(&mut chat, 2), (vec!["whole.txt".to_owned()], vec!["README.md".to_owned()]));
    assert_eq!(file(&world, "README.md").as_deref(), Some("# A hammer\nthree hours of text\n"));
    assert_eq!(file(&world, "whole.txt"), None);
}

#[test]
fn what_others_do_while_a_turn_waits_stays_even_under_a_later_command() {
    let script = Script::new()
        .step(write("new.txt", "agent\n"))
        .step(shell(
            "echo agent >>README.md; echo agent >>src/a.rs; rm -f lines.txt; mkdir -p d/e; echo x >d/e/f",
        ))
        .step(done());
    let mut world = world(script);
    // With the daemon all the time, and killed while it waits.
    for killed in [false, true] {
        let project = world.home.project();
        let mut chat = world.session("acceptEdits");
        chat.prompt("Go");
        let approval = chat.approval();
        project.write("README.md", "a person\n");
        project.write("person.txt", "a person\n");
        if killed {
            world.kill9_and_restart();
            chat = Chat::attach(&world.daemon, &chat.id, "test");
            chat.approval();
        }
        chat.choose(&approval, "allowOnce");
        assert_eq!(chat.outcome(), "finished");
        let all = changes(&mut chat, json!({}));
        assert_eq!(others(&all), ["person.txt"], "{killed} {all}");
        let (back, stays) = rewind(&mut chat, 1);
        assert_eq!((back.len(), stays), (5, vec!["person.txt".to_owned()]));
        assert_eq!(file(&world, "README.md").as_deref(), Some("a person\n"));
        assert_eq!(file(&world, "person.txt").as_deref(), Some("a person\n"));
        assert_eq!((file(&world, "new.txt"), project.path.join("d").exists()), (None, false));
        assert!(file(&world, "lines.txt").is_some());
        std::fs::remove_file(project.path.join("person.txt")).unwrap();
        git(&world, &["checkout", "-q", "."]);
    }
}

#[test]
fn another_sessions_work_stays() {
    let wait = json!({"answers": 1, "texts": [{"in": "any", "contains": "The one that waits"}]});
    let script = Script::new()
        .rule("ask", wait, shell("true"))
        .step(read("src/a.rs").call("write_file", json!({"file_path": "first.txt", "content": "x\n"})))
        .step(
            read("README.md")
                .call("run_shell", json!({"command": "echo other >>README.md; echo other >other.txt"})),
        )
        .step(done());
    let world = world(script);
    let mut waits = world.session("acceptEdits");
    waits.prompt("The one that waits");
    let approval = waits.approval();
    std::fs::remove_file(world.home.project().path.join("first.txt")).unwrap();
    let mut other = world.session("bypassPermissions");
    turn(&mut other);
    std::fs::remove_file(world.home.project().path.join("first.txt")).unwrap();
    waits.choose(&approval, "allowOnce");
    assert_eq!(waits.outcome(), "finished");
    assert_eq!(rewind(&mut waits, 1), (vec![], vec!["README.md".to_owned(), "other.txt".to_owned()]));
    let (back, stays) = rewind(&mut other, 1);
    assert!(back.contains(&"other.txt".to_owned()) && stays.is_empty(), "{back:?} {stays:?}");
    assert_eq!(file(&world, "README.md").as_deref(), Some("# A project\n"));
}

#[test]
fn turns_before_the_first_snapshot_and_of_another_repository_go_back_by_their_tools() {
    let script = Script::new()
        .step(read("README.md").call("write_file", json!({"file_path": "README.md", "content": "agent\n"})))
        .step(done())
        .step(shell("git init -q src"))
        .step(done())
        .step(shell("git init -q ."))
        .step(done())
        .step(write("late.txt", "agent\n").call("run_shell", json!({"command": "echo x >x.txt"})))
        .step(done());
    let world = plain_world(script);
    let project = world.home.project();
    let params = json!({"cwd": project.cwd(), "mode": "bypassPermissions"});
    let mut chat = Chat::start(&world.daemon, params);
    for _ in 0..4 {
        turn(&mut chat);
    }
    let all = changes(&mut chat, json!({}));
    assert_eq!(
        told(&all),
        ["modified README.md +1 -1", "added late.txt +1 -0", "added x.txt +1 -0"],
        "{all}"
    );
    let (mut back, stays) = rewind(&mut chat, 4);
    back.sort();
    assert_eq!((back.len(), stays), (3, vec![]));
    assert_eq!(file(&world, "README.md").as_deref(), Some("# A project\n"));
}

#[test]
fn a_repository_below_the_first_one_breaks_nothing() {
    let script = Script::new()
        .step(read("a.rs").call("write_file", json!({"file_path": "a.rs", "content": "agent\n"})))
        .step(done())
        .step(shell("git init -q ."))
        .step(done())
        .step(write("late.txt", "agent\n"))
        .step(done());
    let world = world(script);
    let cwd = world.home.project().at("src");
    let mut chat = Chat::start(&world.daemon, json!({"cwd": cwd, "mode": "bypassPermissions"}));
    for _ in 0..3 {
        turn(&mut chat);
    }
    assert_eq!(told(&changes(&mut chat, json!({}))), ["modified a.rs +1 -1", "added late.txt +1 -0"]);
    let (mut back, stays) = rewind(&mut chat, 3);
    back.sort();
    assert_eq!((back, stays), (vec!["a.rs".to_owned(), "late.txt".to_owned()], vec![]));
    assert_eq!(file(&world, "src/a.rs").as_deref(), Some("fn a() {}\n"));
}

#[test]
fn what_the_repository_throws_away_is_kept_for_going_back() {
    let world = world(Script::new().step(shell("echo agent >README.md; rm src/b.rs")).step(done()));
    let mut chat = world.session("bypassPermissions");
    turn(&mut chat);
    git(&world, &["add", "-A"]);
    git(&world, &["commit", "-q", "--amend", "-m", "anew"]);
    git(&world, &["reflog", "expire", "--expire=now", "--all"]);
    git(&world, &["gc", "-q", "--prune=now"]);
    let all = changes(&mut chat, json!({}));
    assert_eq!((told(&all).len(), &all["seen"]), (2, &json!("git")), "{all}");
    // If even the session's own are lost, the tools are believed, and it is said.
    let folder = world.home.journal(&chat.id).with_file_name("snapshots");
    std::fs::rename(&folder, world.home.path("aside")).unwrap();
    let all = changes(&mut chat, json!({}));
    assert!(all["seen"] == "tools" && all["notes"].to_string().contains("cannot be read any more"), "{all}");
    std::fs::rename(world.home.path("aside"), &folder).unwrap();
    assert_eq!(rewind(&mut chat, 1), (vec!["README.md".to_owned(), "src/b.rs".to_owned()], vec![]));
    assert_eq!(file(&world, "README.md").as_deref(), Some("# A project\n"));
}

#[test]
fn the_sessions_folder_and_folders_of_others_stay() {
    let script = Script::new()
        .step(shell("echo x >x.txt; mkdir -p made/deep; echo y >made/deep/y; echo z >../theirs/z"))
        .step(done());
    let world = world(script);
    let path = world.home.project().path;
    for folder in ["sub/deep", "sub/theirs"] {
        std::fs::create_dir_all(path.join(folder)).unwrap();
    }
    let cwd = path.join("sub/deep").display().to_string();
    let mut chat = Chat::start(&world.daemon, json!({"cwd": cwd, "mode": "bypassPermissions"}));
    turn(&mut chat);
    let (back, stays) = rewind(&mut chat, 1);
    assert_eq!((back.len(), stays), (3, vec![]));
    let left: Vec<_> = std::fs::read_dir(path.join("sub/deep")).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(path.join("sub/theirs").is_dir());
    assert_eq!(std::fs::read_dir(path.join("sub/theirs")).unwrap().count(), 0);
}
