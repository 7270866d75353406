//! Commands under the real helper. SH numbers are those of the list of known failure cases of shell tools.
//!
//! That nothing is left of a command is seen at a FIFO which the command has open for writing: it reads as ended only
//! when the last process that inherited it is gone.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use agentd::ids::SessionId;
use agentd::permission::effect::Effect;
use agentd::process::{
    CommandSpec, Finished, Leftovers, OutputLimits, Owner, SpawnError, Spawner, Status, base_env,
};
use agentd::tool::run_shell::RunShell;
use agentd::tool::{Output, RunContext, Scene, Tool as _, Work};
use agentd_protocol::permission::Confinement;
use serde_json::json;
use serde_json::value::to_raw_value;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

mod inner;

/// Far beyond anything that is right here: a hanging test is a failed one.
const PATIENCE: Duration = Duration::from_secs(60);

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("never came: {what}"))
}

/// A folder to run commands in.
struct Place {
    folder: TempDir,
    spawner: Arc<Spawner>,
}

impl Place {
    fn new() -> Self {
        let spawner = Arc::new(Spawner::with_helper(env!("CARGO_BIN_EXE_agentd")));
        Self { folder: TempDir::new().unwrap(), spawner }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn env(&self) -> Vec<(String, String)> {
        let owner = Owner { user: "ann", home: self.path() };
        let mut env = base_env(&BTreeMap::new(), &[], owner, self.path());
        env.push(("FIFO".into(), self.fifo_path().to_str().unwrap().into()));
        env
    }

    fn spec(&self, command: &str) -> CommandSpec {
        CommandSpec {
            program: "/bin/bash".into(),
            args: ["--noprofile", "--norc", "-c", command].map(Into::into).to_vec(),
            cwd: self.path().into(),
            env: self.env(),
            timeout: PATIENCE,
            grace: Duration::from_millis(300),
            output: OutputLimits::default(),
        }
    }

    async fn run(&self, spec: CommandSpec) -> Finished {
        soon("the end of the command", self.spawner.run(spec, CancellationToken::new(), |_| {}))
            .await
            .unwrap()
    }

    async fn refused(&self, spec: CommandSpec) -> SpawnError {
        soon("the refusal", self.spawner.run(spec, CancellationToken::new(), |_| {})).await.unwrap_err()
    }

    /// Cancels the command as soon as it has printed something.
    async fn cancelled(&self, spec: CommandSpec) -> Finished {
        let cancel = CancellationToken::new();
        let run = self.spawner.run(spec, cancel.clone(), |_| cancel.cancel());
        soon("the end of the cancelled command", run).await.unwrap()
    }

    fn scene(&self) -> Scene {
        Scene {
            session: SessionId::generate(),
            cwd: self.path().into(),
            plan_file: None,
            reads: Arc::new(HashMap::new()),
            env: Arc::new(self.env()),
            scratch: self.path().into(),
            closed: agentd::tool::Closed::default(),
        }
    }

    /// Through the tool, as a model does it.
    async fn shell(&self, command: &str) -> Output {
        let arguments = to_raw_value(&json!({ "command": command })).unwrap();
        let tool = RunShell::new(Arc::clone(&self.spawner));
        let Work::Run(work) = tool.prepare(&arguments, &self.scene()).unwrap().work else {
            panic!("no work")
        };
        let context = RunContext { cancel: CancellationToken::new(), confinement: Confinement::Off };
        soon("the end of the call", work(context)).await
    }

    fn effects(&self, cwd: &Path) -> Vec<Effect> {
        let arguments = to_raw_value(&json!({ "command": "true" })).unwrap();
        let tool = RunShell::new(Arc::clone(&self.spawner));
        let scene = Scene { cwd: cwd.into(), ..self.scene() };
        tool.prepare(&arguments, &scene).unwrap().effects
    }

    fn fifo_path(&self) -> PathBuf {
        self.path().join("fifo")
    }

    fn fifo(&self) -> Fifo {
        let path = self.fifo_path();
        let made = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let (told, text) = oneshot::channel();
        // A thread of its own: the runtime would wait for it even after the test has failed.
        std::thread::spawn(move || {
            let mut text = String::new();
            // Waits for the first writer, then for the end of the last.
            std::fs::File::open(path).unwrap().read_to_string(&mut text).unwrap();
            let _ = told.send(text);
        });
        Fifo(text)
    }
}

struct Fifo(oneshot::Receiver<String>);

impl Fifo {
    /// Everybody who had it is gone. Each wrote its mark first, so that nobody who never came counts as gone.
    async fn assert_all_gone(self, marks: &str) {
        let mut seen: Vec<String> =
            soon("the end of everybody", self.0).await.unwrap().lines().map(str::to_owned).collect();
        seen.sort();
        assert_eq!(seen.join(" "), marks);
    }
}

/// Runs a command into a time limit that ends all of it. The limit means something only if it comes while the command
/// runs, so one that was too short for a busy machine is doubled.
async fn assert_limit_ends(command: &str) {
    let mut limit = Duration::from_millis(300);
    loop {
        let place = Place::new();
        let fifo = place.fifo();
        let command = format!("exec 9>$FIFO; echo held >&9; echo held; {command}");
        let finished = place.run(CommandSpec { timeout: limit, ..place.spec(&command) }).await;
        assert_eq!(finished.status, Status::TimedOut, "{command}");
        if finished.output.head.starts_with(b"held\n") {
            assert_eq!(finished.leftovers, Leftovers::None, "{command}");
            return fifo.assert_all_gone("held").await;
        }
        limit *= 2;
        assert!(limit < PATIENCE, "it never began: {command}");
    }
}

fn text(finished: &Finished) -> String {
    assert_eq!(finished.output.tail, b"");
    String::from_utf8(finished.output.head.clone()).unwrap()
}

#[tokio::test]
async fn sh_01_a_background_child_does_not_hold_the_call() {
    for child in [
        "sleep 600 &",
        "sleep 600 >/dev/null 2>&1 &",
        "sleep 600 >/dev/null &",
        "nohup sleep 600 2>/dev/null &",
        "(setsid sleep 600 &)",
        "set -m; sleep 600 &",
        "while :; do echo x; sleep 0.01; done >/dev/null &",
    ] {
        let place = Place::new();
        let fifo = place.fifo();
        let output = place.shell(&format!("exec 9>$FIFO; echo held >&9; {child}\necho done")).await;
        assert!(!output.is_error, "{child}: {}", output.content);
        assert!(
            output.content.starts_with("done\n[it left processes running"),
            "{child}: {}",
            output.content
        );
        assert!(output.content.ends_with("[exit code 0]"), "{child}: {}", output.content);
        fifo.assert_all_gone("held").await;
    }
}

#[tokio::test]
async fn sh_01_background_children_that_ignore_term_are_killed() {
    let place = Place::new();
    let fifo = place.fifo();
    let command = r#"
        exec 9>$FIFO
        for i in 1 2; do setsid bash -c 'trap "" TERM HUP INT; echo '$i' >&9; touch '$i'; while :; do sleep 600; done' & done
        until [ -e 1 -a -e 2 ]; do sleep 0.01; done
        exit 3
    "#;
    let finished = place.run(place.spec(command)).await;
    assert_eq!((finished.status, finished.leftovers), (Status::Code(3), Leftovers::Stopped));
    fifo.assert_all_gone("1 2").await;
}

#[tokio::test]
async fn sh_01_what_ends_by_itself_right_after_the_shell_is_heard_to_its_end() {
    let place = Place::new();
    let finished = place.run(place.spec("seq 3 > >(while read n; do echo got $n; done)")).await;
    assert_eq!(text(&finished), "got 1\ngot 2\ngot 3\n");
    assert_eq!((finished.status, finished.leftovers), (Status::Code(0), Leftovers::None));
}

#[tokio::test]
async fn sh_02_the_time_limit_ends_the_whole_tree() {
    for command in [
        r#"trap "" TERM; sleep 600"#,
        "sleep 600 | cat",
        "set -m; sleep 600",
        "setsid -w sleep 600",
        r#"setsid -w bash -c "trap '' TERM; (setsid sleep 600 &); sleep 600""#,
        "while :; do (sleep 600 &); sleep 0.01; done",
        "while :; do (setsid sleep 600 &); sleep 0.01; done",
        // Never stays: each process ends as soon as it has made the next, in a session of its own.
        r#"perl -MPOSIX -e '$SIG{TERM} = "IGNORE"; while (1) { exit if fork; POSIX::setsid(); }'; sleep 600"#,
    ] {
        assert_limit_ends(command).await;
    }
}

#[tokio::test]
async fn sh_02_a_command_that_obeys_term_can_tidy_up() {
    let place = Place::new();
    let command = r#"trap "echo tidy; exit 5" TERM; echo ready; while :; do sleep 0.01; done"#;
    let spec = CommandSpec { grace: PATIENCE, ..place.spec(command) };
    let finished = place.cancelled(spec).await;
    assert_eq!(finished.status, Status::Cancelled);
    assert!(text(&finished).ends_with("tidy\n"), "{}", text(&finished));
}

#[tokio::test]
async fn sh_02_a_cancelled_call_leaves_nothing_that_detached_itself() {
    let place = Place::new();
    let fifo = place.fifo();
    let command = r#"
        exec 9>$FIFO
        setsid bash -c 'trap "" TERM HUP; echo a >&9; (setsid bash -c "trap \"\" TERM; echo b >&9; touch b; while :; do sleep 600; done" &); while :; do sleep 600; done' &
        until [ -e b ]; do sleep 0.01; done
        trap "" TERM
        echo ready
        while :; do sleep 600; done
    "#;
    let finished = place.cancelled(place.spec(command)).await;
    assert_eq!(finished.status, Status::Cancelled);
    fifo.assert_all_gone("a b").await;
}

#[tokio::test]
async fn a_call_that_is_dropped_ends_its_command() {
    let place = Place::new();
    let fifo = place.fifo();
    let ready = tokio::sync::Notify::new();
    let spec = place.spec("exec 9>$FIFO; echo held >&9; echo ready; sleep 600");
    tokio::select! {
        _ = place.spawner.run(spec, CancellationToken::new(), |_| ready.notify_one()) => panic!("it ended"),
        () = soon("the command's start", ready.notified()) => {}
    }
    fifo.assert_all_gone("held").await;
}

#[tokio::test]
async fn a_call_cancelled_before_its_start_runs_nothing() {
    let place = Place::new();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let finished = place.spawner.run(place.spec("touch ran"), cancel, |_| {}).await.unwrap();
    assert_eq!(finished.status, Status::Cancelled);
    assert!(!place.path().join("ran").exists());
}

#[tokio::test]
async fn sh_04_both_streams_are_drained_together_and_in_order() {
    let place = Place::new();
    let megabyte = "head -c 1000000 /dev/zero | tr '\\0'";
    let command = format!("echo first >&2; {megabyte} e >&2; {megabyte} o; echo last; echo very last >&2");
    let finished = place.run(place.spec(&command)).await;
    assert_eq!(finished.status, Status::Code(0));
    assert_eq!(finished.output.total_bytes, 2_000_000 + 6 + 5 + 10);
    assert!(finished.output.head.starts_with(b"first\neee"));
    assert!(finished.output.tail.ends_with(b"ooolast\nvery last\n"));
}

#[tokio::test]
async fn sh_04_interleaved_writes_keep_their_order() {
    let place = Place::new();
    let finished = place.run(place.spec("for i in $(seq 500); do echo o$i; echo e$i >&2; done")).await;
    let expected: String = (1..=500).map(|i| format!("o{i}\ne{i}\n")).collect();
    assert_eq!(text(&finished), expected);
}

#[tokio::test]
async fn sh_05_no_terminal_reaches_the_command() {
    let test = format!("{} --ignored --exact process::inner::terminal", inner::program());
    // `script` gives the inner test a controlling terminal, as a daemon started by hand has one.
    inner::assert_passes(Command::new("script").args(["-qec", &test, "/dev/null"]));
}

#[tokio::test]
async fn sh_07_standard_input_is_at_its_end() {
    let place = Place::new();
    assert_eq!(place.shell("cat").await.content, "[no output]\n[exit code 0]");
    assert_eq!(place.shell("read x; echo $?").await.content, "1\n[exit code 0]");
    assert_eq!(place.shell("bash; [ -t 0 ] || echo no terminal").await.content, "no terminal\n[exit code 0]");
}

#[tokio::test]
async fn sh_08_long_output_of_long_characters_is_cut_between_them() {
    let place = Place::new();
    for pad in 0..3 {
        let command =
            format!("printf %{pad}s; yes \u{4e2d}\u{6587} | head -n 20000 | tr -d '\\n'; echo the end");
        let output = place.shell(&command).await;
        assert!(!output.content.contains('\u{fffd}'), "pad {pad}");
        assert!(output.content.contains(" bytes left out "), "pad {pad}");
        assert!(output.content.ends_with("\u{6587}the end\n[exit code 0]"), "pad {pad}");
    }
}

#[tokio::test]
async fn sh_10_endless_output_is_kept_in_bounded_memory() {
    let place = Place::new();
    let (cancel, mut came) = (CancellationToken::new(), 0);
    let run = place.spawner.run(place.spec("yes"), cancel.clone(), |bytes| {
        came += bytes.len();
        if came > 1_000_000 {
            cancel.cancel();
        }
    });
    let finished = soon("a megabyte", run).await.unwrap();
    assert_eq!(finished.status, Status::Cancelled);
    let limits = OutputLimits::default();
    assert_eq!((finished.output.head.len(), finished.output.tail.len()), (limits.head, limits.tail));
    assert_eq!(finished.output.total_bytes, u64::try_from(came).unwrap());
    let zeros = place.shell("head -c 50000000 /dev/zero").await;
    assert!(zeros.content.len() < 200, "{}", zeros.content.len());
    assert!(zeros.content.contains("49967232 bytes left out"), "{}", zeros.content);
}

#[tokio::test]
async fn sh_11_every_call_starts_in_the_sessions_folder() {
    let place = Place::new();
    std::fs::create_dir(place.path().join("sub")).unwrap();
    let real = place.path().canonicalize().unwrap();
    assert!(!place.shell("cd sub && touch here").await.is_error);
    let (one, two) = tokio::join!(place.shell("cd sub; pwd"), place.shell("cd /; pwd"));
    assert_eq!(one.content, format!("{}/sub\n[exit code 0]", real.display()));
    assert_eq!(two.content, "/\n[exit code 0]");
    assert_eq!(place.shell("pwd").await.content, format!("{}\n[exit code 0]", real.display()));
}

#[tokio::test]
async fn sh_11_a_folder_that_is_gone_is_said_to_be() {
    let place = Place::new();
    let output = place.shell("rmdir \"$PWD\" && echo gone").await;
    assert_eq!(output.content, "gone\n[exit code 0]");
    let output = place.shell("true").await;
    assert!(output.is_error);
    let expected = format!(
        "The command did not run: cannot run `/bin/bash` in {}: the folder cannot be entered: No such file or directory",
        place.path().display()
    );
    assert!(output.content.starts_with(&expected), "{}", output.content);
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let place = Place::new();
    let spec = |program: &str| CommandSpec { program: program.into(), args: Vec::new(), ..place.spec("") };
    let not_found = place.refused(spec("no-such-program")).await;
    assert!(
        matches!(&not_found, SpawnError::Program { source, .. } if source.raw_os_error() == Some(2)),
        "{not_found:?}"
    );
    let forbidden = place.refused(spec("/etc/passwd")).await;
    assert!(
        matches!(&forbidden, SpawnError::Program { source, .. } if source.raw_os_error() == Some(13)),
        "{forbidden:?}"
    );
    let too_long = place.shell(&format!(": {}", "x".repeat(200_000))).await;
    assert!(too_long.is_error);
    assert!(too_long.content.contains("Write the text to a file"), "{}", too_long.content);
    let helper = Spawner::with_helper("/no/helper");
    let problem = helper.run(place.spec("true"), CancellationToken::new(), |_| {}).await.unwrap_err();
    assert!(matches!(problem, SpawnError::Helper { .. }), "{problem:?}");
    let no_helper = Spawner::with_helper("/bin/true");
    let problem = no_helper.run(place.spec("true"), CancellationToken::new(), |_| {}).await.unwrap_err();
    assert!(matches!(problem, SpawnError::Helper { .. }), "{problem:?}");
}

/// SH-13, and whatever else a daemon could hand down: its environment, descriptors, umask, limits.
#[tokio::test]
async fn sh_13_nothing_of_the_daemon_is_handed_down() {
    let leaking = "umask 077; exec 7</dev/null; exec \"$0\" --ignored --exact process::inner::inheritance";
    let mut ran = Command::new("bash");
    ran.args(["-c", leaking, inner::program()])
        .env("OPENAI_API_KEY", "leak-me")
        .env("NOTIFY_SOCKET", "leak-me");
    inner::assert_passes(&mut ran);
}

#[tokio::test]
async fn temporary_files_go_to_the_scratch_folder_of_the_session() {
    let place = Place::new();
    let output = place.shell("f=$(mktemp) && echo ${f%/*}").await;
    assert_eq!(output.content, format!("{}\n[exit code 0]", place.path().display()));
}

/// Root may look into everything; .ci/run asks again as an ordinary user.
#[tokio::test]
async fn the_helper_shows_its_command_nothing_as_user() {
    let place = Place::new();
    let output = place.shell("cat /proc/$PPID/environ; (: >/proc/$PPID/mem) && echo open").await;
    if rustix::process::geteuid().is_root() {
        assert_eq!(output.content, "open\n[exit code 0]");
    } else {
        assert_eq!(output.content.matches("Permission denied").count(), 2, "{}", output.content);
        assert!(!output.content.contains("open"), "{}", output.content);
    }
}

#[tokio::test]
async fn sh_14_endings_are_named() {
    let place = Place::new();
    for (command, expected) in [
        ("exit 7", "[exit code 7]"),
        ("/etc/passwd 2>/dev/null", "[exit code 126: found, but it cannot be executed]"),
        ("kill -9 $$", "[ended by signal 9 (SIGKILL)]"),
        ("kill -SEGV $$", "[ended by signal 11 (SIGSEGV)]"),
        ("(exit 137)", "[exit code 137]"),
    ] {
        let output = place.shell(command).await;
        assert_eq!(
            (output.is_error, &*output.content),
            (true, &*format!("[no output]\n{expected}")),
            "{command}"
        );
    }
    let missing = place.shell("no-such-command").await;
    assert!(
        missing.content.contains("[exit code 127: command not found; PATH is /usr/local/bin:"),
        "{}",
        missing.content
    );
    let late = place.shell("(sleep 600; echo late) & echo early; exit 7").await;
    assert!(late.content.starts_with("early\n[it left processes running"), "{}", late.content);
    assert!(late.content.ends_with("[exit code 7]"), "{}", late.content);
}

#[tokio::test]
async fn sh_14_a_stopped_command_runs_into_its_time_limit() {
    assert_limit_ends("kill -STOP $$").await;
}

/// Promise of the lifeline: not even a daemon that was killed leaves a process.
#[tokio::test]
async fn kill_9_of_the_daemon_leaves_no_process() {
    let place = Place::new();
    let fifo = place.fifo();
    let mut daemon = Command::new(inner::program())
        .args(["--ignored", "--exact", "process::inner::daemon", "--nocapture"])
        .env(inner::FOLDER, place.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut printed = daemon.stdout.take().unwrap();
    let reading = tokio::task::spawn_blocking(move || {
        let mut seen = Vec::new();
        let mut byte = [0];
        while !seen.ends_with(b"READY\n") {
            assert_eq!(printed.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&seen));
            seen.push(byte[0]);
        }
        // Keeps the pipe: a closed one would end the inner test by itself.
        printed
    });
    let printed = soon("the inner daemon's command", reading).await.unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    fifo.assert_all_gone("a b").await;
    drop(printed);
}

#[tokio::test]
async fn a_helper_that_its_command_kills_or_stops_is_made_up_for() {
    let mut ran = Command::new(inner::program());
    ran.args(["--ignored", "--exact", "process::inner::without_helper"]);
    inner::assert_passes(&mut ran);
}

/// What a person approves is bound to these lines, so a folder swapped for a link must change them.
#[test]
fn a_command_declares_the_true_name_of_its_folder() {
    let place = Place::new();
    let root = place.path().canonicalize().unwrap();
    let folder = root.join("project");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::create_dir(root.join("elsewhere")).unwrap();
    let before = place.effects(&folder);
    std::fs::remove_dir(&folder).unwrap();
    std::os::unix::fs::symlink(root.join("elsewhere"), &folder).unwrap();
    let [Effect::RunCommand(command)] = &place.effects(&folder)[..] else { panic!("one effect") };
    assert_eq!(command.cwd, root.join("elsewhere"));
    assert_ne!(before, place.effects(&folder));
}
