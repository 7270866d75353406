//! Bad input of every kind: a clear error, nothing lost, nobody else disturbed.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use agentd_tests::{Daemon, Home, Line, Reply, RpcError, Script, Start, World, call, program};
use serde_json::json;

fn error_of(line: &mut Line) -> RpcError {
    RpcError::of(&line.read().expect("an answer")["error"])
}

#[test]
fn rp_16_and_17_bad_lines_are_answered_and_the_connection_lives() {
    let world = World::new(Script::new());
    let mut line = world.daemon.connect();
    for (text, code) in [
        ("{\"jsonrpc\": ", -32700),
        ("nonsense", -32700),
        ("{} {}", -32700),
        ("{\"jsonrpc\":\"2.0\",\"id\":1}", -32600),
        ("{\"id\":1,\"method\":7}", -32600),
        ("[]", -32005),
        ("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"daemon/status\"}]", -32005),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"no/such\"}", -32601),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session/get\",\"params\":{}}", -32602),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session/get\",\"params\":\"x\"}", -32600),
    ] {
        line.write(text);
        let error = error_of(&mut line);
        assert_eq!(error.code, code, "{text}: {error:?}");
        assert!(!error.message.is_empty());
    }
    line.write(&"[".repeat(100_000));
    assert_eq!(error_of(&mut line).code, -32700, "not one JSON text, and so no batch either");
    // Half of a character, in each place where text may stand. What cannot be a text is no name, and no id of a session.
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"method":"\ud800"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"session/get","params":{"sessionId":"\udc00"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"daemon/status","params":{"\ud800":1}}"#,
    ] {
        line.write(text);
        let answer = line.read().expect("an answer");
        let code = answer["error"]["code"].as_i64();
        assert!(code.is_none_or(|code| [-32700, -32600, -32601, -32602].contains(&code)), "{text}: {answer}");
    }
    // A notification of anything is not answered.
    line.write("{\"jsonrpc\":\"2.0\",\"method\":\"no/such\"}");
    let status = line.call("daemon/status", json!({}));
    assert_eq!(status["connections"], 1);
}

#[test]
fn without_a_model_or_a_key_the_error_says_what_to_type() {
    let home = Home::new();
    let daemon = Daemon::start(&home, Start::default());
    let mut line = daemon.connect();
    let cwd = home.project().cwd();
    let error = line.refused("session/new", json!({"cwd": cwd}));
    assert_eq!((error.code, &error.data["field"]), (-32059, &json!("model")));
    assert!(
        error.message.contains("agentctl key add") && error.message.contains("demo"),
        "{}",
        error.message
    );
    let error = line.refused("session/new", json!({"cwd": cwd, "model": "nobody/x"}));
    assert_eq!((error.code, &error.data["field"]), (-32059, &json!("model")));
    assert!(error.message.contains("anthropic"), "{}", error.message);
    assert_eq!(line.call("session/list", json!({}))["sessions"], json!([]), "no session is left behind");

    let error = line.refused("session/new", json!({"cwd": cwd, "model": "anthropic/claude-x"}));
    assert_eq!((error.code, &error.data["field"]), (-32059, &json!("model")));
    assert!(error.message.contains("agentctl key add anthropic"), "{}", error.message);
    assert_eq!(line.call("session/list", json!({}))["sessions"], json!([]), "no session is left behind");
}

#[test]
fn a_key_that_is_gone_fails_the_turn_and_says_what_to_type() {
    let world = World::new(Script::new());
    world.home.settings("model = \"openai/x\"\n");
    world.home.key("openai", "sk-x");
    let mut world = world;
    world.daemon.terminate();
    world.daemon.restart(&world.home);
    let mut chat = world.session("default");
    std::fs::remove_file(world.home.path("config/agentd/keys/openai")).unwrap();
    chat.prompt("Hi");
    let finished = chat.finished();
    assert_eq!(finished["outcome"], "failed");
    assert!(finished["error"].as_str().unwrap().contains("agentctl key add openai"), "{finished}");
    assert_eq!(chat.state()["activity"], "idle");
}

#[test]
fn a_slip_in_the_settings_sends_no_prompt_to_another_provider() {
    const MINE: &str = "[providers.mine]\ndialect = \"openai-chat\"\nbase_url = \"http://127.0.0.1:9/v1\"\n";
    for (settings, place, explicit_works) in [
        (format!("model = \n{MINE}"), "config.toml:1: the file cannot be parsed", false),
        (
            format!("modle = \"mine/m\"\n{MINE}"),
            "config.toml:1: unknown key `modle`; did you mean `model`?",
            true,
        ),
        (
            "model = \"openai/m\"\n[provider.openai]\nbase_url = \"http://127.0.0.1:9\"\n".into(),
            "config.toml:2:",
            false,
        ),
        (
            "model = \"openai/m\"\n[providers.openai]\nbase-url = \"http://127.0.0.1:9\"\n".into(),
            "config.toml:3:",
            false,
        ),
    ] {
        let home = Home::new();
        home.settings(&settings);
        home.key("openai", "sk-not-a-secret");
        let daemon = Daemon::start(&home, Start::default());
        let mut line = daemon.connect();
        let cwd = home.project().cwd();
        let error = line.refused("session/new", json!({"cwd": cwd}));
        assert_eq!((error.code, &error.data["field"]), (-32059, &json!("model")), "{settings}");
        assert!(error.message.contains(place), "{}", error.message);
        assert!(error.message.contains("agentctl daemon stop"), "{}", error.message);
        assert_eq!(line.call("session/list", json!({}))["sessions"], json!([]));
        let notices = line.call("daemon/status", json!({}))["notices"].clone();
        assert_eq!(notices.as_array().unwrap().len(), 1, "told once: {notices}");
        // Who names a model says which one is meant.
        let named = line.try_call("session/new", json!({"cwd": cwd, "model": "openai/m"}));
        assert_eq!(named.is_ok(), explicit_works, "{settings}: {named:?}");
        let empty = home.path("empty");
        std::fs::create_dir(&empty).unwrap();
        let demo = line.try_call("session/new", json!({"cwd": empty, "model": "demo"}));
        assert!(demo.is_ok(), "{settings}: {demo:?}");
    }
}

#[test]
fn wrong_parameters_name_their_field() {
    let world = World::new(Script::new());
    let mut line = world.daemon.connect();
    let cwd = world.home.project().cwd();
    let state = world.home.path("state/agentd").display().to_string();
    for (params, code, field) in [
        (json!({"cwd": "relative"}), -32059, "cwd"),
        (json!({"cwd": "/no/such/folder"}), -32059, "cwd"),
        (json!({"cwd": world.home.project().at("README.md")}), -32059, "cwd"),
        (json!({"cwd": state}), -32059, "cwd"),
        (json!({"cwd": cwd, "env": {"OPENAI_API_KEY": "x"}}), -32059, "env"),
        (json!({"cwd": cwd, "worktree": true}), -32058, "worktree"),
        (json!({"cwd": cwd, "mcpServers": []}), -32058, "mcpServers"),
        (json!({"cwd": cwd, "title": "x".repeat(300)}), -32059, "title"),
    ] {
        let error = line.refused("session/new", params.clone());
        assert_eq!((error.code, &error.data["field"]), (code, &json!(field)), "{params}: {error:?}");
    }
    let error = line.refused("session/new", json!({"cwd": cwd, "mode": "bypassPermissions"}));
    assert_eq!(error.code, -32054, "{error:?}");
    assert_eq!(line.call("session/list", json!({}))["sessions"], json!([]));
    let mut chat = world.session("default");
    for content in [
        json!([]),
        json!([{"type": "text", "text": " \n"}]),
        json!([{"type": "file", "path": "/no/such"}]),
        json!([{"type": "file", "path": format!("{state}/lock")}]),
    ] {
        let error = chat.line.refused("session/prompt", json!({"sessionId": chat.id, "content": content}));
        assert_eq!((error.code, &error.data["field"]), (-32059, &json!("content")), "{error:?}");
    }
    assert_eq!(chat.state()["inbox"], json!([]));
}

#[test]
fn a_folder_that_vanishes_makes_errors_for_the_model_and_no_more() {
    let script = Script::new()
        .step(
            call("read_file", json!({"file_path": "README.md"}))
                .call("list_files", json!({}))
                .call("grep_search", json!({"pattern": "x"})),
        )
        .step(call("write_file", json!({"file_path": "new", "content": "x"})))
        .step(call("run_shell", json!({"command": "pwd"})))
        .step(Reply::text("It is gone."));
    let world = World::new(script);
    let mut chat = world.session("acceptEdits");
    std::fs::remove_dir_all(world.home.project().path).unwrap();
    chat.prompt("Go");
    // Nobody is asked about a command that has no place to run in.
    assert_eq!(chat.outcome(), "finished");
    assert!(chat.events("approvalRequested").is_empty());
    let lines: Vec<_> = chat.verdicts().iter().map(|verdict| verdict.line()).collect();
    let tools = ["read_file", "list_files", "grep_search", "write_file", "run_shell"];
    assert_eq!(lines, tools.map(|tool| format!("{tool}   error call.invalid")));
    let results = chat.results();
    assert_eq!(results.len(), 5);
    for result in results {
        assert!(result.contains("The session's folder") && result.contains("is gone"), "{result}");
    }
    assert!(!world.home.project().path.exists(), "the folder is not made again");
    let error = chat.line.refused("session/new", json!({"cwd": world.home.project().cwd()}));
    assert_eq!((error.code, &error.data["field"]), (-32059, &json!("cwd")));
}

#[test]
fn a_second_daemon_on_the_same_state_says_who_holds_it() {
    let world = World::new(Script::new());
    for args in [vec![], vec!["--socket".to_owned(), world.home.path("run/other.sock").display().to_string()]]
    {
        let output = Daemon::run(&world.home, &Start { args, ..Start::default() });
        assert_eq!(output.status.code(), Some(75));
        let said: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(said["kind"], "heldElsewhere");
        assert_eq!(said["socket"], world.daemon.socket().display().to_string());
        assert_eq!(said["pid"], world.daemon.pid());
    }
    // The first one is not disturbed.
    let mut chat = world.session("default");
    chat.prompt("Hi");
    assert_eq!(chat.outcome(), "finished");
}

#[test]
fn s1_a_socket_that_somebody_else_listens_on_is_left_to_them() {
    let home = Home::new();
    std::fs::create_dir(home.path("run/agentd")).unwrap();
    std::fs::set_permissions(home.path("run/agentd"), std::fs::Permissions::from_mode(0o700)).unwrap();
    let listener = UnixListener::bind(home.socket()).unwrap();
    let output = Daemon::run(&home, &Start::default());
    assert_eq!(output.status.code(), Some(75), "{}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!((&said["kind"], &said["socket"]), (&json!("heldElsewhere"), &json!(home.socket())));
    // It still is theirs, and when they are gone the place is free.
    drop(std::os::unix::net::UnixStream::connect(home.socket()).unwrap());
    drop(listener);
    let daemon = Daemon::start(&home, Start::default());
    daemon.connect().call("daemon/status", json!({}));
}

/// A program that is ended when dropped.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Fails only when the process is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn s1_socket_activation_works_and_a_daemon_started_by_hand_keeps_off() {
    let home = Home::new();
    std::fs::create_dir(home.path("run/agentd")).unwrap();
    std::fs::set_permissions(home.path("run/agentd"), std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = Command::new("systemd-socket-activate");
    command.arg("-l").arg(home.socket()).arg("--fdname=rpc");
    for (name, value) in home.env() {
        command.arg("-E").arg(format!("{name}={}", value.display()));
    }
    let activate = command
        .arg(program("agentd"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut activate = match activate {
        Ok(child) => Ended(child),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            agentd_tests::skipped("s1", "systemd-socket-activate is missing; .ci/run installs it");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    agentd_tests::eventually("the socket of systemd-socket-activate", || {
        home.socket().exists().then_some(())
    });
    let mut line = agentd_tests::eventually("a connection", || {
        std::os::unix::net::UnixStream::connect(home.socket()).ok().map(|_| Line::connect(&home.socket()))
    });
    let status = line.call("daemon/status", json!({}));
    assert_eq!(status["socket"], home.socket().display().to_string());
    let by_hand = Daemon::run(&home, &Start::default());
    assert_eq!(by_hand.status.code(), Some(75), "{}", String::from_utf8_lossy(&by_hand.stderr));
    line.call("daemon/status", json!({}));
    line.call("daemon/shutdown", json!({}));
    // It has become the daemon, so its end is the daemon's.
    let ended = agentd_tests::eventually("the daemon's end", || activate.0.try_wait().unwrap());
    assert!(ended.success(), "{ended}");
    assert!(home.socket().exists(), "the socket is systemd's, not ours to remove");
}

#[test]
fn rp_14_bad_places_for_the_socket_are_clear_errors() {
    let home = Home::new();
    let folder = home.path("run/agentd");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(home.socket(), "precious").unwrap();
    let run = |args: &[&str]| {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let output = Daemon::run(&home, &Start { args, ..Start::default() });
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    let error = run(&[]);
    assert!(error.contains("is not a socket") && error.contains("left alone"), "{error}");
    assert_eq!(std::fs::read_to_string(home.socket()).unwrap(), "precious");

    let long = home.path(&format!("run/{}", "x".repeat(100))).display().to_string();
    let error = run(&["--socket", &long]);
    assert!(error.contains("107"), "{error}");

    let open = home.path("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
    let error = run(&["--socket", &open.join("s").display().to_string()]);
    assert!(error.contains("nobody else can enter"), "{error}");
    std::os::unix::fs::symlink(&folder, home.path("link")).unwrap();
    let error = run(&["--socket", &home.path("link/s").display().to_string()]);
    assert!(error.contains("nobody else can enter, but it is a link or a file"), "{error}");
    assert!(error.contains(&home.path("link").display().to_string()), "{error}");
    assert!(!folder.join("s").exists(), "nothing is made behind the link");
}

#[test]
fn a_bad_settings_file_is_told_and_closes_rather_than_opens() {
    let script = Script::new().step(call("write_file", json!({"file_path": "c", "content": "x"})));
    let world = World::with(
        script,
        agentd_tests::Dialect::OpenaiChat,
        "[permissions]\ndeny = \"write_file\"\n",
        Start::default(),
    );
    let mut chat = world.session("acceptEdits");
    chat.prompt("Go");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(
        chat.verdict("write_file").line(),
        "write_file deny rule.unreadable denied rule.unreadable",
        "a deny rule that cannot be read never opens"
    );
    assert!(!world.home.project().path.join("c").exists());
    let status = chat.line.call("daemon/status", json!({}));
    assert!(status["notices"].to_string().contains("config.toml:"), "{status}");
}
