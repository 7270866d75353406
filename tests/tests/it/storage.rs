//! What lies on disk: who may read it, and that it is gone when it should be.

use std::os::unix::fs::PermissionsExt as _;

use agentd_tests::{Dialect, Reply, Script, Start, World, call, eventually};
use serde_json::json;

use crate::plan_gate::planning;

#[test]
fn se_16_everything_is_private_whatever_the_umask() {
    let start = Start { shell: Some("umask 000; exec".into()), ..Start::default() };
    let script = Script::new()
        .step(planning(&format!("# Plan\n{}", "long\n".repeat(20_000))))
        .step(call("run_shell", json!({"command": "touch $TMPDIR/scratch; umask"})))
        .step(Reply::text("Done."));
    let world = World::with(script, Dialect::OpenaiChat, "", start);
    let mut chat = world.session("plan");
    chat.prompt("Plan");
    let approval = chat.approval();
    chat.choose(&approval, "manualExecute");
    let approval = chat.approval();
    chat.choose(&approval, "allowOnce");
    assert_eq!(chat.outcome(), "finished");
    let mut folders = vec![world.home.path("state/agentd"), world.home.path("run/agentd")];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        let mode = folder.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, 0o700, "{}", folder.display());
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_none_or(|name| name != "scratch") {
                files += 1;
                let mode = path.symlink_metadata().unwrap().permissions().mode() & 0o7777;
                assert_eq!(mode, 0o600, "{}", path.display());
            }
        }
    }
    assert!(files > 5, "journal, plan, blobs, lock, socket: {files}");
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
    bytes.extend_from_slice(b"{\"v\":1,\"seq\":999,\"at\":\"20");
    std::fs::write(&journal, &bytes).unwrap();
    for text in ["Second", "Third"] {
        world.daemon.restart(&world.home);
        let mut again = agentd_tests::Chat::attach(&world.daemon, &chat.id, "test");
        let turn = again.prompt(text);
        again.line.call("turn/wait", json!({"sessionId": again.id, "turnId": turn}));
        world.daemon.kill9();
    }
    world.daemon.restart(&world.home);
    let mut last = agentd_tests::Chat::attach(&world.daemon, &chat.id, "test");
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
