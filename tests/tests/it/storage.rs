//! What lies on disk: who may read it, and that it is gone when it should be.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use agentd_tests::{Chat, Dialect, Home, Reply, Script, Start, World, call, eventually};
use serde_json::json;

use crate::plan_gate::planning;

#[test]
fn se_16_everything_is_private_and_holds_no_key_whatever_the_umask() {
    for umask in ["000", "022"] {
        let home = Home::new();
        let project = home.project();
        let git = |args: &[&str]| {
            let mut git = std::process::Command::new("git");
            git.arg("-C").arg(&project.path).args(args).env_clear().envs(home.env());
            assert!(git.output().unwrap().status.success(), "git {args:?}");
        };
        git(&["init", "-q"]);
        let script = Script::new()
            .step(planning(&format!("# Plan\n{}", "long\n".repeat(20_000))))
            .step(call("run_shell", json!({"command": "touch $TMPDIR/scratch; env; umask"})))
            .step(Reply::text("Done."));
        let start = Start {
            shell: Some(format!("umask {umask}; exec")),
            env: vec![("AGENTD_LOG".into(), "trace".into())],
            ..Start::default()
        };
        let mut world = World::in_home(home, script, Dialect::OpenaiChat, "", start);
        let mut chat = world.session("plan");
        // Enough for a checkpoint.
        chat.prompt(&"Plan. ".repeat(5_000));
        let approval = chat.approval();
        chat.choose(&approval, "manualExecute");
        let approval = chat.approval();
        chat.choose(&approval, "allowOnce");
        assert_eq!(chat.outcome(), "finished");
        for _ in 0..10 {
            chat.prompt(&"Go on. ".repeat(4_500));
            assert_eq!(chat.outcome(), "finished");
        }
        eventually("an index", || {
            let found = chat.line.call("session/search", json!({"query": "plan"}));
            (found["complete"] == true).then_some(())
        });

        let state = world.home.path("state/agentd");
        let mut folders = vec![state.clone(), world.home.path("run/agentd")];
        let mut names = std::collections::BTreeSet::new();
        while let Some(folder) = folders.pop() {
            assert_eq!(mode(&folder), 0o700, "{}, umask {umask}", folder.display());
            for entry in std::fs::read_dir(&folder).unwrap().flatten() {
                let (path, kind) = (entry.path(), entry.file_type().unwrap());
                if kind.is_dir() {
                    folders.push(path);
                    continue;
                }
                let name = entry.file_name().into_string().unwrap();
                // A command's own, and objects that git makes read-only.
                let wanted =
                    if path.components().any(|part| part.as_os_str() == "objects") { 0o400 } else { 0o600 };
                if name != "scratch" {
                    assert_eq!(mode(&path) & !0o200, wanted & !0o200, "{}, umask {umask}", path.display());
                }
                if kind.is_file() {
                    let content = std::fs::read(&path).unwrap();
                    assert!(!holds(&content, KEY), "{} has the key", path.display());
                }
                names.insert(name);
            }
        }
        for name in ["agentd.sock", "lock", "journal.jsonl", "state.json", "index.db", "HEAD"] {
            assert!(names.contains(name), "{name} was not looked at: {names:?}");
        }
        assert!(names.iter().any(|name| name.ends_with(".md")), "the plan was not looked at: {names:?}");
        assert!(!chat.line.history.iter().any(|event| holds(event.to_string().as_bytes(), KEY)));
        world.daemon.terminate();
        let log = world.daemon.log();
        assert!(log.contains("DEBUG"), "the log was not at its most talkative");
        assert!(!holds(log.as_bytes(), KEY), "the log has the key");
    }
}

/// What a world's provider is given.
const KEY: &[u8] = b"sk-not-a-secret";

fn holds(content: &[u8], what: &[u8]) -> bool {
    content.windows(what.len()).any(|window| window == what)
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o7777
}

#[test]
fn se_08_deleting_a_session_ends_what_it_runs_and_removes_all_of_it() {
    let script = Script::new()
        .step(planning("# Plan\n"))
        .step(call("run_shell", json!({"command": "echo $$ > pid; exec sleep 1000"})));
    let world = World::new(script);
    let project = world.home.project();
    let mut chat = world.session("plan");
    let turn = chat.prompt("Go");
    let plan = chat.approval();
    let path = std::path::PathBuf::from(plan["plan"]["path"].as_str().unwrap());
    assert!(path.exists());
    chat.choose(&plan, "manualExecute");
    let approval = chat.approval();
    chat.choose(&approval, "allowOnce");
    let pid = eventually("the command's pid", || {
        std::fs::read_to_string(project.path.join("pid")).ok()?.trim().parse::<u32>().ok()
    });
    let mut other = world.daemon.connect();
    let waiting = other.send("turn/wait", json!({"sessionId": chat.id, "turnId": turn}));
    chat.line.call("session/delete", json!({"sessionId": chat.id}));
    eventually("the end of the command", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        (stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))).then_some(())
    });
    let folder = world.home.journal(&chat.id).parent().unwrap().to_owned();
    assert!(!folder.exists() && !path.exists());
    assert_eq!(other.answer(waiting).unwrap_err().code, -32050);
    let error = chat.line.refused("session/get", json!({"sessionId": chat.id}));
    assert_eq!(error.code, -32050);
    assert_eq!(other.call("session/list", json!({}))["sessions"], json!([]));
    assert_eq!(std::fs::read_dir(world.home.path("state/agentd/active")).unwrap().count(), 0);
    // It does not come back as a folder without a beginning.
    assert_eq!(chat.respond(&approval, "allowOnce", json!({})).unwrap_err().code, -32050);
    assert!(!folder.exists());
}

#[test]
fn se_08_files_that_are_removed_under_a_session_are_an_error_and_do_not_come_back() {
    let script = Script::new()
        .step(call("run_shell", json!({"command": "echo $$ > pid; exec sleep 1000"})))
        .rule("hi", json!({"texts": [{"in": "prompt", "contains": "Hi"}]}), Reply::text("Hello."));
    let mut world = World::new(script);
    let project = world.home.project();
    // In a repository, so that a snapshot would be taken as well.
    std::fs::create_dir_all(project.path.join(".git/objects")).unwrap();
    project.write(".git/HEAD", "ref: refs/heads/main\n");
    let (mut chat, mut other) = (world.session("default"), world.session("default"));
    let turn = chat.prompt("Go");
    let approval = chat.approval();
    chat.choose(&approval, "allowOnce");
    let pid = eventually("the command's pid", || {
        std::fs::read_to_string(project.path.join("pid")).ok()?.trim().parse::<u32>().ok()
    });
    let folder = world.home.journal(&chat.id).parent().unwrap().to_owned();
    std::fs::remove_dir_all(&folder).unwrap();

    // Short and long: nothing is written, neither into the journal nor beside it.
    for text in ["Short".to_owned(), "Long ".repeat(20_000)] {
        let prompt = json!({"sessionId": chat.id, "content": [{"type": "text", "text": text}]});
        let error = chat.line.refused("session/prompt", prompt);
        assert_eq!((error.code, &error.data["kind"]), (-32057, &json!("storage")), "{error:?}");
        assert!(!folder.exists());
    }
    let error = chat.line.refused("session/interrupt", json!({"sessionId": chat.id, "turnId": turn}));
    assert_eq!(error.code, -32057, "{error:?}");
    assert_eq!(chat.state()["health"], "readOnly");
    other.prompt("Hi");
    assert_eq!(other.outcome(), "finished");

    chat.line.call("session/delete", json!({"sessionId": chat.id}));
    eventually("the end of the command", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        (stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))).then_some(())
    });
    for _ in 0..2 {
        let mut line = world.daemon.connect();
        assert_eq!(line.refused("session/get", json!({"sessionId": chat.id})).code, -32050);
        let listed = line.call("session/list", json!({}));
        let ids: Vec<_> =
            listed["sessions"].as_array().unwrap().iter().map(|row| &row["sessionId"]).collect();
        assert_eq!(ids, [other.id.as_str()]);
        assert!(!folder.exists());
        assert_eq!(std::fs::read_dir(world.home.path("state/agentd/active")).unwrap().count(), 0);
        world.kill9_and_restart();
    }
}

/// What a crash leaves of a line.
const TORN: &[u8] = b"{\"v\":1,\"seq\":999,\"at\":\"20";

#[test]
fn se_02_what_follows_a_torn_line_is_readable() {
    let mut world = World::new(
        Script::new().step(Reply::text("One.")).step(Reply::text("Two.")).step(Reply::text("Three.")),
    );
    let mut chat = world.session("default");
    chat.prompt("First");
    assert_eq!(chat.outcome(), "finished");
    world.daemon.kill9();
    let journal = world.home.journal(&chat.id);
    let mut bytes = std::fs::read(&journal).unwrap();
    bytes.extend_from_slice(TORN);
    std::fs::write(&journal, &bytes).unwrap();
    for text in ["Second", "Third"] {
        world.daemon.restart(&world.home);
        let mut again = Chat::attach(&world.daemon, &chat.id, "test");
        if text == "Second" {
            let told =
                again.line.event("a notice", |event| event["type"] == "notice" && event["code"] == "journal");
            let told = told["text"].as_str().unwrap();
            let aside = told.split_once("kept at ").map(|(_, path)| path.to_owned());
            assert_eq!(std::fs::read(aside.expect(told)).unwrap(), TORN);
        }
        let turn = again.prompt(text);
        again.line.call("turn/wait", json!({"sessionId": again.id, "turnId": turn}));
        world.daemon.kill9();
    }
    world.daemon.restart(&world.home);
    let mut last = Chat::attach(&world.daemon, &chat.id, "test");
    let _ = last.line.event_of("synced");
    assert_eq!(last.events("turnFinished").len(), 3);
    assert_eq!(last.state()["health"], "ok");
    let whole = std::fs::read_to_string(&journal).unwrap();
    assert!(whole.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
}

#[test]
fn an_idle_daemon_stops_cleanly_and_its_socket_is_gone() {
    let mut world = World::new(Script::new());
    let _ = world.session("default");
    assert!(world.daemon.terminate().success());
    assert!(!world.home.socket().exists());
    world.daemon.restart(&world.home);
    assert_eq!(
        world.daemon.connect().call("session/list", json!({}))["sessions"].as_array().unwrap().len(),
        1
    );
}

#[test]
fn f3_the_daemons_memory_and_environment_are_closed_to_its_own_user_as_user() {
    let world = World::new(Script::new());
    let checks = world.daemon.connect().call("daemon/doctor", json!({}));
    let memory = checks["checks"].as_array().unwrap().iter().find(|check| check["name"] == "memory").unwrap();
    assert_eq!(memory["status"], "ok");
    // Root may read everything, so this half proves something for an ordinary user only.
    if !rustix::process::geteuid().is_root() {
        for file in ["environ", "mem", "maps"] {
            let path = format!("/proc/{}/{file}", world.daemon.pid());
            let error = std::fs::read(&path).expect_err("it can be read");
            assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{path}");
        }
    }
}
