//! Clients that go while something is asked, come back later, or come together; and one that finds no daemon.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use agentd_tests::{Chat, Dialect, Line, Reply, Script, Start, World, call, program};
use serde_json::{Value, json};

fn asks() -> World {
    let step = call("write_file", json!({"file_path": "c", "content": "x"}));
    World::new(Script::new().step(step).step(Reply::text("Done.")))
}

/// The last number that a client has seen.
fn last_seq(chat: &Chat) -> u64 {
    chat.line.history.iter().filter_map(|event| event["seq"].as_u64()).max().unwrap()
}

#[test]
fn rp_11_who_was_away_when_it_was_called_off_hears_so_and_cannot_answer_any_more() {
    let world = asks();
    let mut asked = world.session("default");
    asked.prompt("Go");
    let approval = asked.approval();
    let (id, seen) = (asked.id.clone(), last_seq(&asked));
    drop(asked);
    Chat::attach(&world.daemon, &id, "other").interrupt();

    let mut back = Line::connect_as(world.daemon.socket(), "test", "person");
    back.call("events/subscribe", json!({"sessionId": id, "afterSeq": seen}));
    let settled = back.event_of("approvalResolved");
    assert_eq!(settled["approvalId"], approval["approvalId"]);
    assert!(settled["choice"].is_null(), "{settled}");
    assert_eq!(back.event_of("synced")["state"]["approvals"], json!([]));
    assert_eq!(back.call("approval/list", json!({}))["approvals"], json!([]));
    let late = back.try_call("approval/respond", Chat::answer_to(&approval, "allowOnce", json!({})));
    assert_eq!(late.unwrap_err().code, -32051);
    assert!(!world.home.project().path.join("c").exists());
}

#[test]
fn rp_11_an_answer_that_was_sent_just_before_the_connection_was_lost_counts_once() {
    let world = asks();
    let mut asked = world.session("default");
    asked.prompt("Go");
    let approval = asked.approval();
    let answer = Chat::answer_to(&approval, "allowOnce", json!({}));
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "approval/respond", "params": answer});
    let mut hasty = UnixStream::connect(world.daemon.socket()).unwrap();
    hasty.write_all(format!("{call}\n").as_bytes()).unwrap();
    drop(hasty);
    assert_eq!(asked.outcome(), "finished");
    assert_eq!(asked.events("approvalResolved").len(), 1);
    assert_eq!(asked.events("toolCallFinished").len(), 1);
    assert_eq!(world.home.project().read("c"), "x");
    // Another client's yes comes too late, whatever became of the connection of the first.
    assert_eq!(asked.respond(&approval, "deny", json!({})).unwrap_err().code, -32051);
}

#[test]
fn se_05_clients_that_wake_a_session_together_share_it() {
    const CLIENTS: usize = 8;
    let mut world = World::new(Script::new());
    let id = world.session("default").id;
    world.kill9_and_restart();
    let start = std::sync::Barrier::new(CLIENTS);
    let turns: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|at| {
                let (start, id, daemon) = (&start, &id, &world.daemon);
                scope.spawn(move || {
                    start.wait();
                    let mut chat = Chat::attach(daemon, id, &format!("client {at}"));
                    let turn = chat.prompt(&format!("From client {at}"));
                    chat.line.event("the end of its turn", |event| {
                        event["type"] == "turnFinished" && event["turnId"] == turn.as_str()
                    });
                    turn
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let mut line = world.daemon.connect();
    assert_eq!(line.call("daemon/status", json!({}))["liveSessions"], 1);
    assert_eq!(line.call("session/get", json!({"sessionId": id}))["state"]["turns"], CLIENTS);
    // One history: every number once, none left out, and every turn in it.
    let journal = std::fs::read_to_string(world.home.journal(&id)).unwrap();
    let mut next = 1;
    for commit in journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        assert_eq!(commit["seq"], next, "{commit}");
        next += commit["records"].as_array().unwrap().len() as u64;
    }
    for turn in turns {
        assert_eq!(journal.matches(&format!(r#""type":"turnStarted","turn":"{turn}""#)).count(), 1, "{turn}");
    }
}

fn agentctl(world: &World, args: &[&str]) -> String {
    let output = Command::new(program("agentctl"))
        .args(args)
        .current_dir(world.home.project().path)
        .env_clear()
        .envs(world.home.env())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    assert!(output.status.success(), "{args:?}: {said}");
    said
}

/// A daemon that somebody else has started, told to end when dropped.
struct Started<'w>(&'w World);

impl Drop for Started<'_> {
    fn drop(&mut self) {
        agentctl(self.0, &["daemon", "stop"]);
    }
}

#[test]
fn j24_an_approval_is_answered_where_no_daemon_runs_and_the_turn_goes_on_unwatched() {
    let mut world = asks();
    let mut chat = world.session("default");
    let turn = chat.prompt("Go");
    let approval = chat.approval();
    world.daemon.kill9();
    let _ = std::fs::remove_file(world.home.path("state/agentd/index.db"));
    let id = approval["approvalId"].as_str().unwrap();
    let digest = approval["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    agentctl(&world, &["approve", id, "allowOnce", "--digest", &digest[..12]]);
    let started = Started(&world);
    let mut line = Line::connect(&world.home.socket());
    let ended = line.call("turn/wait", json!({"sessionId": chat.id, "turnId": turn}));
    assert_eq!((&ended["outcome"], &ended["text"]), (&json!("finished"), &json!("Done.")));
    assert_eq!(world.home.project().read("c"), "x");
    drop(started);
}

#[test]
fn agentctl_finds_the_daemon_of_its_state_folder_wherever_that_listens() {
    let home = agentd_tests::Home::new();
    let elsewhere = home.path("run/elsewhere.sock").display().to_string();
    let start = Start { args: vec!["--socket".into(), elsewhere.clone()], ..Start::default() };
    let world = World::in_home(home, Script::new(), Dialect::OpenaiChat, "", start);
    let handle = world.session("default").state()["handle"].as_str().unwrap().to_owned();
    // Nobody listens where it looks, so it starts a daemon, which says who holds the folder.
    assert!(!world.home.socket().exists());
    assert!(agentctl(&world, &["ls"]).contains(&handle));
    assert!(agentctl(&world, &["show", &handle]).contains(&handle));
    assert!(!world.home.socket().exists(), "there is no second one");
}

#[test]
fn j10_a_rule_that_came_while_nobody_answered_wins_over_the_answer() {
    let mut world = asks();
    let mut chat = world.session("default");
    chat.prompt("Go");
    let approval = chat.approval();
    world.daemon.kill9();
    let base = world.model.base_for(Dialect::OpenaiChat);
    world.home.settings(&format!(
        "model = \"test/m\"\n[permissions]\ndeny = [\"write_file\"]\n\
         [providers.test]\ndialect = \"openai-chat\"\nbase_url = \"{base}\"\n"
    ));
    world.daemon = agentd_tests::Daemon::start(&world.home, Start::default());
    let mut again = Chat::attach(&world.daemon, &chat.id, "test");
    // Whether the question is withdrawn at once or the answer comes to nothing: it does not run.
    let _ = again.respond(&approval, "allowOnce", json!({}));
    let _ = again.outcome();
    assert_eq!(again.verdict("write_file").status, "denied", "{:?}", again.verdicts());
    assert!(!world.home.project().path.join("c").exists());
}

/// Connects and reads the first line, as somebody else.
const KNOCK: &str = r"
import socket, sys
s = socket.socket(socket.AF_UNIX)
try:
    s.connect(sys.argv[1])
except OSError as error:
    print(type(error).__name__)
    sys.exit()
s.settimeout(20)
print(s.makefile().readline())
";

#[test]
fn rp_14_another_user_is_kept_out_by_the_folder_and_refused_where_it_is_open() {
    use std::os::unix::fs::PermissionsExt as _;
    if !rustix::process::geteuid().is_root() {
        agentd_tests::skipped("rp_14", "only root can be another user");
        return;
    }
    let world = World::with(
        Script::new(),
        Dialect::OpenaiChat,
        "",
        Start { shell: Some("umask 000; exec".into()), ..Start::default() },
    );
    let knock = || {
        let output = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", KNOCK])
            .arg(world.daemon.socket())
            .current_dir("/")
            .env_clear()
            .output()
            .unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let open = |below: &str, mode: u32| {
        std::fs::set_permissions(world.home.path(below), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open("", 0o755);
    open("run", 0o755);
    assert_eq!(knock().trim(), "PermissionError");
    // Somebody has opened it all the same.
    open("run/agentd", 0o755);
    open("run/agentd/agentd.sock", 0o666);
    let said = knock();
    assert!(said.contains("-32054") && said.contains("peer.otherUser"), "{said}");
    world.daemon.connect().call("daemon/status", json!({}));
}
