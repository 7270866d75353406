//! A disk that is full: real file systems of a few megabytes, which need root. Says so where it proves nothing.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use agentd_tests::{Chat, Dialect, Home, Line, Reply, RpcError, Script, Start, World, call};
use serde_json::json;

/// A small file system over a folder of a home.
struct Small(PathBuf);

impl Small {
    /// Absent where none can be mounted.
    fn over(folder: PathBuf) -> Option<Self> {
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs"])
            .arg(&folder)
            .output();
        if mount.is_ok_and(|output| output.status.success()) {
            return Some(Self(folder));
        }
        agentd_tests::skipped("se_07", "no tmpfs can be mounted here; run as root to prove it");
        None
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Takes every page that is left.
    fn fill(&self) {
        let mut file = File::options().create(true).append(true).open(self.filler()).unwrap();
        let error = loop {
            if let Err(error) = file.write_all(&[0; 4096]) {
                break error;
            }
        };
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }

    fn free(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // Lazily: the daemon may still have files open in it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The small disk goes before the home that it lies in.
struct Cramped {
    disk: Small,
    world: World,
}

impl Cramped {
    fn new(script: Script) -> Option<Self> {
        let home = Home::new();
        let disk = Small::over(home.path("state"))?;
        let world = World::in_home(home, script, Dialect::OpenaiChat, "", Start::default());
        Some(Self { disk, world })
    }

    /// Fills the disk, and the last page of the session's journal too, so that not even a short commit has room.
    fn fill_for(&self, chat: &mut Chat) {
        self.disk.fill();
        for length in [200, 50, 1] {
            let title = json!({"sessionId": chat.id, "title": "t".repeat(length)});
            let error = loop {
                if let Err(error) = chat.line.try_call("session/setTitle", title.clone()) {
                    break error;
                }
            };
            not_saved(&error);
        }
    }
}

/// Refused, with why, and certain that nothing has changed.
fn not_saved(error: &RpcError) {
    let told = (error.code, &error.data["kind"], &error.data["changed"]);
    assert_eq!(told, (-32057, &json!("storage"), &json!(false)), "{error:?}");
    assert!(error.message.contains("No space left"), "{}", error.message);
}

fn write_file() -> Reply {
    call("write_file", json!({"file_path": "c", "content": "x"}))
}

#[test]
fn se_07_filled_in_a_turn_nothing_is_done_unrecorded_and_it_goes_on_with_space() {
    let step = write_file().fault(Some(1), json!({"hang": {"after": 0}}));
    let Some(scene) = Cramped::new(Script::new().step(step).step(Reply::text("Done."))) else { return };
    let project = scene.world.home.project();
    let mut chat = scene.world.session("acceptEdits");
    chat.prompt("Go");
    let _ = scene.world.model.requests_until(1);
    scene.fill_for(&mut chat);
    scene.world.model.release();
    let told = chat.line.event("a notice", |event| event["type"] == "notice" && event["code"] == "storage");
    assert!(told["text"].as_str().unwrap().contains("Free some space"), "{told}");
    // A prompt is refused, and what the model wants is not done before it can be written down.
    let long = "word ".repeat(2_000);
    let prompt = json!({"sessionId": chat.id, "content": [{"type": "text", "text": long}]});
    not_saved(&chat.line.refused("session/prompt", prompt));
    let state = chat.state();
    assert_eq!((&state["activity"], &state["health"]), (&json!("running"), &json!("degraded")));
    assert!(!project.path.join("c").exists());
    // Others can still look.
    let listed = scene.world.daemon.connect().call("session/list", json!({}));
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1);

    scene.disk.free();
    // It goes on by itself after a while; at once for whoever asks.
    chat.state();
    assert_eq!(chat.outcome(), "finished");
    assert_eq!((project.read("c").as_str(), chat.state()["health"].as_str()), ("x", Some("ok")));
    assert_eq!(scene.world.model.requests().len(), 2, "the model was not asked twice for one answer");
    assert_eq!(chat.events("toolCallFinished").len(), 1);
}

#[test]
fn se_07_filled_while_it_waits_an_answer_counts_once_it_can_be_written_down() {
    let Some(scene) = Cramped::new(Script::new().step(write_file()).step(Reply::text("Done."))) else {
        return;
    };
    let project = scene.world.home.project();
    let mut chat = scene.world.session("default");
    chat.prompt("Go");
    let approval = chat.approval();
    scene.fill_for(&mut chat);
    not_saved(&chat.respond(&approval, "allowOnce", json!({})).unwrap_err());
    let state = chat.state();
    assert_eq!(
        (&state["activity"], &state["approvals"][0]["approvalId"]),
        (&json!("waiting"), &approval["approvalId"])
    );
    assert!(!project.path.join("c").exists());
    assert!(chat.events("approvalResolved").is_empty(), "nobody was told that it is settled");

    scene.disk.free();
    chat.choose(&approval, "allowOnce");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(project.read("c"), "x");
    assert_eq!(chat.events("approvalResolved").len(), 1);
}

#[test]
fn se_07_killed_and_started_on_a_full_disk_everything_is_still_there() {
    let Some(mut scene) = Cramped::new(Script::new().step(write_file()).step(Reply::text("Done."))) else {
        return;
    };
    let mut chat = scene.world.session("default");
    chat.prompt("Go");
    let approval = chat.approval();
    scene.fill_for(&mut chat);
    let before = std::fs::read(scene.world.home.journal(&chat.id)).unwrap();
    scene.world.kill9_and_restart();
    let mut again = Chat::attach(&scene.world.daemon, &chat.id, "again");
    assert_eq!(again.state()["approvals"][0]["approvalId"], approval["approvalId"]);
    not_saved(&again.respond(&approval, "allowOnce", json!({})).unwrap_err());
    assert_eq!(std::fs::read(scene.world.home.journal(&chat.id)).unwrap(), before);
    // A new session is refused as a whole.
    let cwd = scene.world.home.project().cwd();
    not_saved(&again.line.refused("session/new", json!({"cwd": cwd})));
    let listed = again.line.call("session/list", json!({}));
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1, "{listed}");

    scene.disk.free();
    again.choose(&approval, "allowOnce");
    assert_eq!(again.outcome(), "finished");
    let _ = scene.world.session("default");
}

#[test]
fn se_07_a_key_that_does_not_fit_leaves_the_one_before() {
    let home = Home::new();
    let keys = home.path("config/agentd/keys");
    let Some(disk) = Small::over(keys.clone()) else { return };
    let world = World::in_home(home, Script::new(), Dialect::OpenaiChat, "", Start::default());
    let scene = Cramped { disk, world };
    scene.disk.fill();
    let mut line = Line::connect_as(scene.world.daemon.socket(), "test", "person");
    let set = json!({"provider": "test", "key": format!("sk-{}", "k".repeat(2_000))});
    not_saved(&line.refused("key/set", set.clone()));
    assert_eq!(std::fs::read_to_string(keys.join("test")).unwrap(), "sk-not-a-secret\n");
    assert_eq!(names(&keys), ["filler", "test"], "and nothing half-written beside it");
    scene.disk.free();
    line.call("key/set", set);
    assert_eq!(std::fs::read_to_string(keys.join("test")).unwrap().len(), 2_004);
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_limit_on_the_size_of_files_fails_what_reaches_it_and_nothing_else() {
    let world = World::new(Script::new().rule("say", json!({}), Reply::text("Hello.")));
    let (mut long, mut short) = (world.session("default"), world.session("default"));
    long.prompt("Hi");
    long.finished();
    let limit = |most: Option<u64>| {
        let limit = rustix::process::Rlimit { current: most, maximum: None };
        let pid = rustix::process::Pid::from_raw(world.daemon.pid().cast_signed());
        rustix::process::prlimit(pid, rustix::process::Resource::Fsize, limit).unwrap();
    };
    let journal = std::fs::metadata(world.home.journal(&long.id)).unwrap().len();
    limit(Some(journal + 100));
    let content = json!([{"type": "text", "text": "x".repeat(1000)}]);
    let refused = long.line.refused("session/prompt", json!({"sessionId": long.id, "content": content}));
    assert_eq!(refused.data["kind"], "storage", "{refused:?}");
    limit(None);
    // The other one never noticed, and this one goes on.
    for chat in [&mut short, &mut long] {
        chat.prompt("And now?");
        assert_eq!(chat.finished()["outcome"], "finished");
    }
}
