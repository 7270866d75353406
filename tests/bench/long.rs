//! One session that has become very long.

use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::figures::{Figure, Samples};
use crate::home::{Binaries, Daemon, Home};
use crate::line::Line;
use crate::usage;

/// Bytes of its journal.
const JOURNAL: u64 = 500_000_000;

/// Bytes of each of its messages, below what goes into a blob.
const MESSAGE: usize = 30_000;

/// What a model is asked is never sent in this measurement.
const NOWHERE: &str = "http://127.0.0.1:1/v1";

pub(crate) fn long(binaries: &Binaries, runs: usize) -> anyhow::Result<Vec<Figure>> {
    let home = Home::new()?;
    home.use_model(NOWHERE)?;
    let session = {
        let (_daemon, mut line, _) = Daemon::start(binaries, &home)?;
        line.call("session/new", &json!({"cwd": home.path("project")}))?["sessionId"].take()
    };
    let id = session.as_str().context("a session's id")?;
    lengthen(&home.path("state/agentd/sessions").join(id).join("journal.jsonl"), id)?;

    let whole = {
        let (_daemon, mut line, _) = Daemon::start(binaries, &home)?;
        let whole = attach(&mut line, &session)?;
        // Its next commit makes the session leave a checkpoint behind when the daemon stops.
        line.call("session/setTitle", &json!({"sessionId": session, "title": "long"}))?;
        whole
    };
    let mut times = Vec::new();
    let mut resident = Vec::new();
    for _ in 0..runs.min(10) {
        let (daemon, mut line, _) = Daemon::start(binaries, &home)?;
        times.push(attach(&mut line, &session)?);
        resident.push(usage::memory_mb(daemon.pid(), "VmHWM")?);
    }
    let figure = |what, unit, aim, samples| Figure { what, unit, aim, samples };
    Ok(vec![
        figure("500 MB journal: attach without a checkpoint", "ms", "", Samples::of_times(&[whole])),
        figure("the same with its checkpoint", "ms", "< 100", Samples::of_times(&times)),
        figure("peak of memory after it", "MB", "< 50", Samples::new(resident)),
    ])
}

/// What a client does that attaches: the newest page of the history, then the state and what comes.
fn attach(line: &mut Line, session: &Value) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let state = line.call("session/get", &json!({"sessionId": session}))?;
    line.call("session/history", &json!({"sessionId": session, "limit": 200}))?;
    let head = &state["state"]["seq"];
    anyhow::ensure!(head.is_u64(), "no head in {state}");
    line.call("events/subscribe", &json!({"sessionId": session, "afterSeq": head, "deltas": true}))?;
    line.event(|event| event["type"] == "synced")?;
    Ok(begun.elapsed())
}

/// Adds messages until the journal has its size, each a commit as the daemon writes it.
fn lengthen(journal: &Path, id: &str) -> anyhow::Result<()> {
    let text = fs::read_to_string(journal).with_context(|| format!("reading {}", journal.display()))?;
    let last: Value = serde_json::from_str(text.lines().last().context("an empty journal")?)?;
    let records = last["records"].as_array().map_or(0, Vec::len) as u64;
    let mut seq = last["seq"].as_u64().context("a commit's number")? + records;
    let mut size = text.len() as u64;
    let words = "words and more words ".repeat(MESSAGE / 21);
    let mut out = BufWriter::new(OpenOptions::new().append(true).open(journal)?);
    while size < JOURNAL {
        let said = json!({
            "type": "contextAdded", "messageId": format!("{id}:m:{seq:032x}"), "source": "prompt", "origin": "client",
            "text": words,
        });
        let line = format!("{}\n", json!({"v": 1, "seq": seq, "at": last["at"], "records": [said]}));
        out.write_all(line.as_bytes())?;
        size += line.len() as u64;
        seq += 1;
    }
    out.flush().context("writing a long journal")
}
