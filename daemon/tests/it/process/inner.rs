//! Tests that need a process of their own: other tests run this program again for them.

use std::io::Write as _;

use super::*;

/// Where the inner daemon works.
pub(super) const FOLDER: &str = "AGENTD_TEST_FOLDER";

pub(super) fn program() -> &'static str {
    static PROGRAM: std::sync::LazyLock<String> =
        std::sync::LazyLock::new(|| std::env::current_exe().unwrap().into_os_string().into_string().unwrap());
    &PROGRAM
}

/// The inner test ran, exactly one of them, and passed.
pub(super) fn assert_passes(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && printed.contains("1 passed"),
        "{printed}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
#[ignore = "run by sh_05_no_terminal_reaches_the_command, on a terminal"]
async fn terminal() {
    let mut own = std::fs::OpenOptions::new().write(true).open("/dev/tty").expect("the test has a terminal");
    own.write_all(b"\n").unwrap();
    let place = Place::new();
    let look =
        "(echo seen >/dev/tty) 2>&1; read -r _ _ _ _ _ _ terminal _ </proc/$$/stat; echo $terminal; tty";
    let output = place.shell(look).await;
    assert!(output.content.contains("/dev/tty: No such device or address\n0\n"), "{}", output.content);
    assert!(output.content.contains("not a tty"), "{}", output.content);
}

#[tokio::test]
#[ignore = "run by sh_13_nothing_of_the_daemon_is_handed_down, with secrets, descriptors and an odd umask"]
async fn inheritance() {
    assert_eq!(std::env::var("OPENAI_API_KEY").as_deref(), Ok("leak-me"));
    assert!(Path::new("/proc/self/fd/7").exists());
    let place = Place::new();
    let look =
        "env; cat /proc/self/environ | tr '\\0' '\\n'; cat /proc/$PPID/environ 2>/dev/null | tr '\\0' '\\n'";
    let environments = place.shell(look).await;
    assert!(environments.content.contains("GIT_TERMINAL_PROMPT=0"), "{}", environments.content);
    assert!(!environments.content.contains("leak-me"), "{}", environments.content);
    assert!(!environments.content.contains("NOTIFY_SOCKET"), "{}", environments.content);
    let descriptors =
        place.shell("for fd in {3..50}; do [ -e /proc/$$/fd/$fd ] && echo $fd; done; true").await;
    assert_eq!(descriptors.content, "[no output]\n[exit code 0]");
    // A pipe that nobody reads ends its writer, although this program ignores the signal for itself.
    let writer = place.shell("yes | head -n 1; echo ${PIPESTATUS[0]}").await;
    assert_eq!(writer.content, "y\n141\n[exit code 0]");
    let limits = place.shell("umask; ulimit -c; cat /proc/self/oom_score_adj").await;
    assert_eq!(limits.content, "0022\n0\n500\n[exit code 0]");
}

#[tokio::test]
#[ignore = "run by kill_9_of_the_daemon_leaves_no_process, and killed by it"]
async fn daemon() {
    let given = std::env::var_os(FOLDER).unwrap();
    // Inside the outer test's folder, which tidies up: a killed process cannot.
    let place = Place { folder: TempDir::new_in(&given).unwrap(), ..Place::new() };
    let env = vec![("FIFO".to_owned(), Path::new(&given).join("fifo").to_str().unwrap().to_owned())];
    let command = r#"
        exec 9>$FIFO
        trap "" TERM
        echo a >&9
        (setsid bash -c 'trap "" TERM; echo b >&9; touch b; while :; do sleep 600; done' &)
        until [ -e b ]; do sleep 0.01; done
        echo READY
        while :; do sleep 600; done
    "#;
    let spec = CommandSpec { cwd: given.into(), env: [place.env(), env].concat(), ..place.spec(command) };
    let print = |bytes: &[u8]| {
        std::io::stdout().write_all(bytes).unwrap();
        std::io::stdout().flush().unwrap();
    };
    place.spawner.run(spec, CancellationToken::new(), print).await.unwrap();
}

/// One test, since it makes this process a place where orphans come to, as the daemon is one.
#[tokio::test]
#[ignore = "run by a_helper_that_its_command_kills_or_stops_is_made_up_for"]
async fn without_helper() {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let detached = r#"
        exec 9>$FIFO
        trap "" TERM HUP
        (setsid bash -c 'trap "" TERM; echo b >&9; touch b; while :; do sleep 600; done' &)
        until [ -e b ]; do sleep 0.01; done
        echo a >&9
        echo printed
    "#;

    let place = Place::new();
    let fifo = place.fifo();
    // Another call, which begins before the sweep and ends after it, is not touched.
    let go = place.path().join("go");
    let until_then = format!("echo other; until [ -e {} ]; do sleep 0.01; done; echo here", go.display());
    let spec = CommandSpec { cwd: "/".into(), ..place.spec(&until_then) };
    let begun = tokio::sync::Notify::new();
    let other = place.spawner.run(spec, CancellationToken::new(), |_| begun.notify_one());
    let killed = async {
        begun.notified().await;
        let command = format!("{detached}\n kill -9 $PPID; while :; do sleep 600; done");
        let killed = place.run(place.spec(&command)).await;
        std::fs::write(&go, "").unwrap();
        killed
    };
    let both = Box::pin(async { tokio::join!(other, killed) });
    let (other, killed) = soon("the end of both", both).await;
    let other = other.unwrap();
    assert_eq!((killed.status, killed.leftovers), (Status::Lost, Leftovers::Stopped));
    assert_eq!(text(&killed), "printed\n");
    assert_eq!((other.status, text(&other).as_str()), (Status::Code(0), "other\nhere\n"));
    fifo.assert_all_gone("a b").await;

    let place = Place::new();
    let fifo = place.fifo();
    let stopped = place.cancelled(place.spec(&format!("{detached}\n kill -STOP $PPID; echo go; sleep 600")));
    let stopped = stopped.await;
    assert_eq!((stopped.status, stopped.leftovers), (Status::Cancelled, Leftovers::Stopped));
    fifo.assert_all_gone("a b").await;
    assert_eq!(place.spawner.sweep_strays(), 0);
}
