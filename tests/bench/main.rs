//! Figures about speed and size: `cargo build --release && cargo run --release -p agentd-tests --bin bench`.
//!
//! Prints a Markdown table and asserts nothing: figures depend on the machine, and a busy one must not fail a build. What
//! is measured is what a client sees, through the real binaries and a real socket; each in a home of its own.
//! `--bin-dir DIR` measures other binaries than the ones beside this one, `--runs N` sets how often, `--only PART` does one
//! part of it.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it is for")]

mod crowd;
mod figures;
mod home;
mod line;
mod long;
mod many;
mod stream;
mod usage;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use figures::{Figure, Samples, table};
use home::{Binaries, Daemon, Home, Playback};
use line::Line;

/// A round trip is short, so it is taken more often than `--runs` says.
const ROUND_TRIPS: usize = 2_000;

/// What is measured is a daemon at work, not its first pages and caches.
const WARM_UPS: usize = 10;

/// How long a daemon rests before its memory counts as idle.
const REST: Duration = Duration::from_millis(500);

fn main() -> anyhow::Result<()> {
    let Options { binaries, runs, only } = Options::from_args(std::env::args().skip(1))?;
    if cfg!(debug_assertions) {
        eprintln!("bench: this is a debug build; its figures say little. Use --release.");
    }
    let mut figures = Vec::new();
    for (name, part) in PARTS {
        if only.as_deref().is_none_or(|only| only == *name) {
            figures.extend(part(&binaries, runs).with_context(|| format!("measuring {name}"))?);
        }
    }
    println!("{}", table(&figures));
    Ok(())
}

type Part = fn(&Binaries, usize) -> anyhow::Result<Vec<Figure>>;

/// What is measured, in this order. Those that leave the disk with much to do come last.
const PARTS: &[(&str, Part)] = &[
    ("sizes", |binaries, _| sizes(binaries)),
    ("starts", starts),
    ("work", work),
    ("connections", |binaries, _| crowd::connections(binaries)),
    ("streaming", |binaries, _| crowd::streaming(binaries)),
    ("slow-readers", |binaries, _| crowd::slow_readers(binaries)),
    ("long", long::long),
    ("many", many::many),
    ("very-many", many::very_many),
];

struct Options {
    binaries: Binaries,
    runs: usize,
    only: Option<String>,
}

impl Options {
    fn from_args(mut args: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let beside = std::env::current_exe().context("finding the binaries")?;
        let mut folder = beside.parent().context("finding the binaries")?.to_owned();
        let mut runs = 50;
        let mut only = None;
        while let Some(arg) = args.next() {
            let value = args.next().with_context(|| format!("{arg} needs a value"))?;
            match arg.as_str() {
                "--bin-dir" => folder = PathBuf::from(value),
                "--runs" => runs = value.parse().with_context(|| format!("--runs {value}: not a number"))?,
                "--only" if PARTS.iter().any(|(name, _)| *name == value) => only = Some(value),
                "--only" => {
                    let names: Vec<_> = PARTS.iter().map(|(name, _)| *name).collect();
                    bail!("no part is called {value}; there are {}", names.join(", "));
                }
                _ => bail!("unknown option {arg}; there are --bin-dir DIR, --runs N and --only PART"),
            }
        }
        Ok(Self { binaries: Binaries { folder }, runs, only })
    }
}

fn sizes(binaries: &Binaries) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (name, what) in [("agentd", "size of agentd"), ("agentctl", "size of agentctl")] {
        let path = binaries.path(name);
        let size = std::fs::metadata(&path)
            .with_context(|| format!("looking at {}; build it first: cargo build --release", path.display()))?
            .len();
        #[expect(clippy::cast_precision_loss, reason = "a size in MB")]
        let megabytes = size as f64 / 1e6;
        figures.push(Figure { what, unit: "MB", aim: "< 20", samples: Samples::new(vec![megabytes]) });
    }
    Ok(figures)
}

/// From nothing to the first answer, each time in a new home, and what a daemon at rest occupies.
fn starts(binaries: &Binaries, runs: usize) -> anyhow::Result<Vec<Figure>> {
    let mut times = Vec::new();
    for _ in 0..WARM_UPS.min(runs) + runs {
        let home = Home::new()?;
        let (daemon, _, time) = Daemon::start(binaries, &home)?;
        times.push(time);
        drop(daemon);
    }
    let times = &times[WARM_UPS.min(runs)..];

    let mut resident = Vec::new();
    let mut anonymous = Vec::new();
    for _ in 0..3 {
        let home = Home::new()?;
        let (daemon, line, _) = Daemon::start(binaries, &home)?;
        drop(line);
        std::thread::sleep(REST);
        resident.push(usage::memory_mb(daemon.pid(), "VmRSS")?);
        anonymous.push(usage::memory_mb(daemon.pid(), "RssAnon")?);
    }
    Ok(vec![
        Figure { what: "start to first answer", unit: "ms", aim: "< 10", samples: Samples::of_times(times) },
        Figure { what: "idle resident memory", unit: "MB", aim: "< 12", samples: Samples::new(resident) },
        Figure {
            what: "idle memory not shared with files",
            unit: "MB",
            aim: "",
            samples: Samples::new(anonymous),
        },
    ])
}

/// One daemon and its scripted model server at work.
fn work(binaries: &Binaries, runs: usize) -> anyhow::Result<Vec<Figure>> {
    let home = Home::new()?;
    let script = home.path("instant.json");
    std::fs::write(&script, include_str!("instant.json")).context("writing the script")?;
    let playback = Playback::start(binaries, &home, &script)?;
    home.use_model(&playback.base_url)?;
    let (daemon, mut line, _) = Daemon::start(binaries, &home)?;

    let status = measure(ROUND_TRIPS, || line.call("daemon/status", &json!({})).map(drop))?;
    let micros = status.iter().map(|time| time.as_secs_f64() * 1e6).collect();

    let params = json!({"cwd": home.path("project")});
    let new = measure(runs, || line.call("session/new", &params).map(drop))?;

    let said = turns(&daemon, &mut line, &params, runs, "Say something.")?;
    let read = turns(&daemon, &mut line, &params, runs, "Read the README.")?;
    let resident = usage::memory_mb(daemon.pid(), "VmRSS")?;

    Ok(vec![
        Figure { what: "daemon/status round trip", unit: "µs", aim: "< 120", samples: Samples::new(micros) },
        Figure { what: "session/new", unit: "ms", aim: "< 2", samples: Samples::of_times(&new) },
        Figure {
            what: "prompt to turnFinished",
            unit: "ms",
            aim: "< 8",
            samples: Samples::of_times(&said.times),
        },
        Figure { what: "its processor time", unit: "ms", aim: "< 3", samples: Samples::of_times(&said.cpu) },
        Figure {
            what: "the same with one read_file",
            unit: "ms",
            aim: "",
            samples: Samples::of_times(&read.times),
        },
        Figure { what: "its processor time", unit: "ms", aim: "", samples: Samples::of_times(&read.cpu) },
        Figure {
            what: "resident memory after all that",
            unit: "MB",
            aim: "",
            samples: Samples::new(vec![resident]),
        },
    ])
}

struct Turns {
    times: Vec<Duration>,
    cpu: Vec<Duration>,
}

/// Turns in sessions of their own, from the moment the prompt is sent until `turnFinished` has been read.
fn turns(
    daemon: &Daemon,
    line: &mut Line,
    params: &Value,
    runs: usize,
    prompt: &str,
) -> anyhow::Result<Turns> {
    let mut turns = Turns { times: Vec::new(), cpu: Vec::new() };
    for run in 0..WARM_UPS + runs {
        let session = line.call("session/new", params)?["sessionId"].take();
        let subscription = line.call("events/subscribe", &json!({"sessionId": session, "deltas": true}))?;
        line.event(|event| event["type"] == "synced")?;
        let before = usage::cpu(daemon.pid())?;
        let begun = Instant::now();
        let content = json!([{"type": "text", "text": prompt}]);
        line.call("session/prompt", &json!({"sessionId": session, "content": content}))?;
        let finished = line.event(|event| event["type"] == "turnFinished")?;
        let time = begun.elapsed();
        let cpu = usage::cpu(daemon.pid())?.saturating_sub(before);
        if finished["outcome"] != "finished" {
            bail!("a turn ended otherwise than expected: {finished}");
        }
        line.call("events/unsubscribe", &json!({"subscription": subscription}))?;
        line.call("session/delete", &json!({"sessionId": session}))?;
        if run >= WARM_UPS {
            turns.times.push(time);
            turns.cpu.push(cpu);
        }
    }
    Ok(turns)
}

/// How long each of `runs` calls takes, after some that do not count.
fn measure(runs: usize, mut call: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(runs);
    for run in 0..WARM_UPS + runs {
        let begun = Instant::now();
        call()?;
        if run >= WARM_UPS {
            times.push(begun.elapsed());
        }
    }
    Ok(times)
}
