//! Many sessions on the disk: how long until the index knows them, and how long lists and searches take then.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::figures::{Figure, Samples};
use crate::home::{Binaries, Daemon, Home, Playback};
use crate::line::Line;
use crate::{REST, measure, usage};

/// Sessions in the home.
const SESSIONS: usize = 5_000;

/// Sessions that must make no difference to a daemon that starts and rests.
const VERY_MANY: usize = 10_000;

/// How long to wait between two looks at the doctor: far below what is measured.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

pub(crate) fn many(binaries: &Binaries, runs: usize) -> anyhow::Result<Vec<Figure>> {
    let (home, _playback) = filled(binaries, SESSIONS)?;

    let begun = Instant::now();
    let (daemon, mut line, _) = Daemon::start(binaries, &home)?;
    until_known(&mut line)?;
    let filled = begun.elapsed();

    let mut calls = |method: &str, params: Value| {
        measure(runs, || line.call(method, &params).map(drop)).map(|times| Samples::of_times(&times))
    };
    let figure = |what, aim, samples| Figure { what, unit: "ms", aim, samples };
    let mut figures = vec![
        figure("5,000 sessions: start to a full index", "", Samples::of_times(&[filled])),
        figure("list, newest 20", "< 20", calls("session/list", json!({"order": "updated", "limit": 20}))?),
        figure("list, newest 500", "< 20", calls("session/list", json!({"order": "updated"}))?),
        figure("list, a page of 500", "< 20", calls("session/list", json!({"children": true}))?),
        figure("list, a text that none has", "< 20", calls("session/list", json!({"text": "otterly"}))?),
        figure(
            "search, a word of every prompt",
            "< 20",
            calls("session/search", json!({"query": "something"}))?,
        ),
        figure(
            "search, a word of one prompt",
            "< 20",
            calls("session/search", json!({"query": "number4321"}))?,
        ),
    ];
    figures.push(Figure {
        what: "resident memory after all that",
        unit: "MB",
        aim: "",
        samples: Samples::new(vec![usage::memory_mb(daemon.pid(), "VmRSS")?]),
    });
    Ok(figures)
}

pub(crate) fn very_many(binaries: &Binaries, runs: usize) -> anyhow::Result<Vec<Figure>> {
    let (home, _playback) = filled(binaries, VERY_MANY)?;
    let (mut times, mut resident) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let (daemon, line, time) = Daemon::start(binaries, &home)?;
        times.push(time);
        drop(line);
        std::thread::sleep(REST);
        resident.push(usage::memory_mb(daemon.pid(), "VmRSS")?);
    }
    Ok(vec![
        Figure {
            what: "10,000 sessions: start to first answer",
            unit: "ms",
            aim: "as with none",
            samples: Samples::of_times(&times),
        },
        Figure {
            what: "their idle resident memory",
            unit: "MB",
            aim: "as with none",
            samples: Samples::new(resident),
        },
    ])
}

/// A home with so many sessions, and the model server that they speak to.
fn filled(binaries: &Binaries, count: usize) -> anyhow::Result<(Home, Playback)> {
    let home = Home::new()?;
    let script = home.path("instant.json");
    fs::write(&script, include_str!("instant.json")).context("writing the script")?;
    let playback = Playback::start(binaries, &home, &script)?;
    home.use_model(&playback.base_url)?;
    let model = one_session(binaries, &home)?;
    copy(&home.path("state/agentd/sessions"), &model, count)?;
    Ok((home, playback))
}

/// A session with one turn, to be copied: so the copies are what a daemon writes. Its id.
fn one_session(binaries: &Binaries, home: &Home) -> anyhow::Result<String> {
    let (_daemon, mut line, _) = Daemon::start(binaries, home)?;
    let session = line.call("session/new", &json!({"cwd": home.path("project")}))?["sessionId"].take();
    let content = json!([{"type": "text", "text": "Say something of number0000."}]);
    let turn = line.call("session/prompt", &json!({"sessionId": session, "content": content}))?;
    line.call("turn/wait", &json!({"sessionId": session, "turnId": turn["turnId"]}))?;
    Ok(session.as_str().context("a session's id")?.to_owned())
}

fn copy(sessions: &Path, model: &str, count: usize) -> anyhow::Result<()> {
    let journal = sessions.join(model).join("journal.jsonl");
    let text = fs::read_to_string(&journal).with_context(|| format!("reading {}", journal.display()))?;
    for n in 1..count {
        let id = format!("01930000-0000-7000-8000-{n:012x}");
        let folder = sessions.join(&id);
        fs::create_dir(&folder)?;
        let text = text.replace(model, &id).replace("number0000", &format!("number{n:04}"));
        fs::write(folder.join("journal.jsonl"), text)?;
    }
    Ok(())
}

fn until_known(line: &mut Line) -> anyhow::Result<()> {
    // It is opened at its first use.
    line.call("session/list", &json!({"limit": 1}))?;
    loop {
        let doctor = line.call("daemon/doctor", &json!({}))?;
        let mut checks = doctor["checks"].as_array().into_iter().flatten();
        let knows = |check: &Value| check["detail"].as_str().is_some_and(|text| text.starts_with("knows"));
        if checks.any(|check| check["name"] == "index" && knows(check)) {
            return Ok(());
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}
