//! The order of write, fdatasync and answer, as the kernel sees it. Says that it proves nothing where there is no strace.

use std::process::{Command, Stdio};

use agentd_tests::{Dialect, Reply, Script, Start, World, call};
use serde_json::json;

/// What the daemon asked of the kernel, in order: a call that one thread begins and ends has two moments.
struct Trace(Vec<String>);

impl Trace {
    fn position(&self, after: usize, what: &str, wanted: impl Fn(&str) -> bool) -> usize {
        let found = self.0.iter().skip(after).position(|line| wanted(line));
        after + found.unwrap_or_else(|| panic!("{what} is not in the trace:\n{}", self.0.join("\n")))
    }

    /// Where the first commit that holds `record` is written, and where the sync that follows it has returned.
    fn synced(&self, record: &str) -> (usize, usize) {
        let is_commit = |line: &str| line.contains("pwrite64(") && line.contains(r#"\"seq\":"#);
        let wanted = format!(r#"\"type\":\"{record}\""#);
        let written = self.position(0, record, |line| is_commit(line) && line.contains(&wanted));
        let file = argument(&self.0[written], "pwrite64(");
        let begun = self.position(written, "a sync", |line| {
            line.contains("fdatasync(") && argument(line, "fdatasync(") == file
        });
        let thread = self.0[begun].split_whitespace().next().unwrap_or_default();
        let done = self.position(begun, "the end of a sync", |line| {
            line.starts_with(thread) && line.contains("fdatasync") && line.ends_with("= 0")
        });
        (written, done)
    }
}

/// The first argument of a call: a file descriptor.
fn argument<'l>(line: &'l str, call: &str) -> &'l str {
    let rest = line.split_once(call).map_or("", |(_, rest)| rest);
    rest.split([',', ')', ' ']).next().unwrap_or_default()
}

fn can_trace() -> bool {
    let tried = Command::new("strace").arg("true").stdout(Stdio::null()).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// A session with one call that a person allows, `prompt` and a change of mode, under strace. Absent where there is none.
fn traced(prompt: &str) -> Option<(Trace, String)> {
    if !can_trace() {
        agentd_tests::skipped("order", "there is no strace here");
        return None;
    }
    let script = Script::new().step(call("run_shell", json!({"command": "true"}))).step(Reply::text("Done."));
    let file = std::env::temp_dir().join(format!("agentd-order-{}", uuid::Uuid::new_v4()));
    // The daemon is the process that was started, and strace its grandchild, so that signals reach the daemon.
    let calls = "pwrite64,fdatasync,fsync,rename,write,writev,sendto,sendmsg,execve";
    let shell =
        format!("exec strace -D -f -q -s 100000 -e trace={calls} -e signal=none -o {}", file.display());
    let start = Start { shell: Some(shell), ..Start::default() };
    let mut world = World::with(script, Dialect::OpenaiChat, "", start);
    let mut chat = world.session("default");
    let turn = chat.prompt(prompt);
    let approval = chat.approval();
    chat.choose(&approval, "allowOnce");
    assert_eq!(chat.outcome(), "finished");
    chat.set_mode("acceptEdits");
    assert!(world.daemon.terminate().success());
    // Written by a process of its own, which ends when the daemon has.
    let trace = agentd_tests::eventually("the whole trace", || {
        let text = std::fs::read_to_string(&file).ok()?;
        text.contains("+++ exited with 0 +++").then(|| Trace(text.lines().map(str::to_owned).collect()))
    });
    let _ = std::fs::remove_file(&file);
    Some((trace, turn))
}

#[test]
fn nobody_is_answered_shown_or_run_before_it_is_on_the_disk() {
    let Some((trace, turn)) = traced("Go") else { return };
    let sent = |after: usize, words: &[String]| {
        trace.position(after, &words.join(" and "), |line| {
            !line.contains("pwrite64") && words.iter().all(|word| line.contains(word.as_str()))
        })
    };
    let quoted = |text: &str| text.replace('"', "\\\"");
    let answer = |words: &str| vec![quoted(r#""result":"#), quoted(words)];
    let event =
        |kind: &str| vec![quoted(&format!(r#""type":"{kind}""#)), quoted(r#""method":"events/event""#)];
    for (record, told) in [
        ("inboxAdded", answer(&format!(r#""turnId":"{turn}""#))),
        ("inboxAdded", event("promptAccepted")),
        ("approvalRequested", event("approvalRequested")),
        ("approvalResolved", answer(r#""status":"accepted""#)),
        ("approvalResolved", event("approvalResolved")),
        ("modeChanged", answer(r#""mode":"acceptEdits""#)),
        ("turnFinished", event("turnFinished")),
    ] {
        let (written, synced) = trace.synced(record);
        let told_at = sent(0, &told);
        assert!(
            written < synced && synced < told_at,
            "{record} is written in line {written}, synced in {synced}, and told in {told_at}:\n{}",
            trace.0[told_at]
        );
    }
    let (_, synced) = trace.synced("callStarted");
    let run = trace.position(0, "the command", |line| line.contains("execve(") && line.contains("/bin/bash"));
    assert!(synced < run, "the command runs before it is known to be on the disk that it may have");
}

/// Of system prompt, tools and a long prompt: the file, then its name, then the line that names it.
#[test]
fn a_blob_is_on_the_disk_before_the_line_that_names_it() {
    let Some((trace, _)) = traced(&"word ".repeat(20_000)) else { return };
    let is_blob = |line: &str| line.contains("rename(") && line.contains("/blobs/");
    let renames: Vec<usize> = (0..trace.0.len()).filter(|at| is_blob(&trace.0[*at])).collect();
    assert!(renames.len() >= 3, "{renames:?}");
    for at in renames {
        let line = &trace.0[at];
        let thread = line.split_whitespace().next().unwrap();
        let name = line.rsplit_once('"').and_then(|(path, _)| path.rsplit_once('/')).unwrap().1;
        let named = trace.position(at, name, |line| line.contains("pwrite64(") && line.contains(name));
        let is_sync =
            |line: &&String| line.starts_with(thread) && line.contains("fsync") && line.ends_with("= 0");
        let before = trace.0[..at].iter().rev().find(|line| line.starts_with(thread)).unwrap();
        assert!(is_sync(&before), "{name} gets its name after {before:.200}");
        assert!(
            trace.0[at..named].iter().any(|line| is_sync(&line)),
            "{name} is named before its folder is synced"
        );
    }
}
