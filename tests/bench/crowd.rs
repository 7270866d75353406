//! Many at once: sessions that stream, connections that rest, and a client that does not read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::figures::{Figure, Samples};
use crate::home::{Binaries, Daemon, Home};
use crate::line::Line;
use crate::stream::{FLOOD, FLOOD_WORD, StreamServer, ages};
use crate::usage;

/// Sessions in memory, and how many of them stream at once.
const SESSIONS: usize = 1_000;
const STREAMING: usize = 200;

/// Clients that watch the streaming ones.
const WATCHERS: usize = 4;

const CONNECTIONS: usize = 1_000;

/// Sessions that flood, one after the other: 200 MB together.
const FLOODS: usize = 200_000_000 / FLOOD;

/// Clients that never read. Several, since one adds less than the memory of two runs differs by.
const SLOW: usize = 20;

/// Between two looks at the daemon's memory.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

fn ready(binaries: &Binaries) -> anyhow::Result<(Home, Daemon, Line)> {
    let home = Home::new()?;
    home.use_model(&StreamServer::start()?.base_url)?;
    let (daemon, line, _) = Daemon::start(binaries, &home)?;
    Ok((home, daemon, line))
}

fn new_session(line: &mut Line, home: &Home) -> anyhow::Result<Value> {
    Ok(line.call("session/new", &json!({"cwd": home.path("project")}))?["sessionId"].take())
}

fn prompt(line: &mut Line, session: &Value, text: &str) -> anyhow::Result<()> {
    let content = json!([{"type": "text", "text": text}]);
    line.call("session/prompt", &json!({"sessionId": session, "content": content})).map(drop)
}

/// A client that follows some sessions.
fn subscribed(daemon: &Daemon, sessions: &[Value]) -> anyhow::Result<Line> {
    let mut line = daemon.client()?;
    for session in sessions {
        line.call("events/subscribe", &json!({"sessionId": session, "deltas": true}))?;
    }
    Ok(line)
}

/// Reads until that many turns have finished. How old each stamp was when it was read.
fn watch(mut line: Line, turns: usize) -> JoinHandle<anyhow::Result<Vec<f64>>> {
    std::thread::spawn(move || {
        let mut seen = Vec::new();
        for _ in 0..turns {
            let finished = line.event(|event| {
                if event["type"] == "messageDelta" {
                    seen.extend(ages(event["text"].as_str().unwrap_or_default()));
                }
                event["type"] == "turnFinished"
            })?;
            anyhow::ensure!(finished["outcome"] == "finished", "a turn ended otherwise: {finished}");
        }
        Ok(seen)
    })
}

fn joined<T>(thread: JoinHandle<anyhow::Result<T>>) -> anyhow::Result<T> {
    thread.join().map_err(|_| anyhow::anyhow!("a client of the bench panicked"))?
}

pub(crate) fn streaming(binaries: &Binaries) -> anyhow::Result<Vec<Figure>> {
    let (home, daemon, mut line) = ready(binaries)?;
    let sessions: Vec<_> =
        (0..SESSIONS).map(|_| new_session(&mut line, &home)).collect::<anyhow::Result<_>>()?;
    let watchers: Vec<_> = sessions[..STREAMING]
        .chunks(STREAMING / WATCHERS)
        .map(|some| Ok(watch(subscribed(&daemon, some)?, some.len())))
        .collect::<anyhow::Result<_>>()?;
    for session in &sessions[..STREAMING] {
        prompt(&mut line, session, "ticks")?;
    }
    let mut delays = Vec::new();
    for watcher in watchers {
        delays.extend(joined(watcher)?);
    }
    let peak = usage::memory_mb(daemon.pid(), "VmHWM")?;
    Ok(vec![
        Figure {
            what: "1,000 sessions, 200 stream: a delta's way",
            unit: "ms",
            aim: "p99 < 50",
            samples: Samples::new(delays),
        },
        memory("their peak of memory", "< 150", peak),
    ])
}

pub(crate) fn connections(binaries: &Binaries) -> anyhow::Result<Vec<Figure>> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .context("raising the limit of open files")?;

    let (_home, daemon, line) = ready(binaries)?;
    drop(line);
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let mut client = daemon.client()?;
            client.call("daemon/status", &json!({}))?;
            Ok(client)
        })
        .collect::<anyhow::Result<_>>()?;
    let resident = usage::memory_mb(daemon.pid(), "VmRSS")?;
    drop(clients);
    Ok(vec![memory("1,000 idle connections", "< 30", resident)])
}

/// The same stream twice: once with clients that subscribe to all of it and never read.
pub(crate) fn slow_readers(binaries: &Binaries) -> anyhow::Result<Vec<Figure>> {
    let without = behind(binaries, 0)?;
    let with = behind(binaries, SLOW)?;
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let each = (with.peak - without.peak) / SLOW as f64;
    let delay = |what, delays| Figure { what, unit: "ms", aim: "", samples: Samples::new(delays) };
    Ok(vec![
        memory("200 MB of stream: peak of memory", "", without.peak),
        memory("added by each of 20 clients that do not read", "< 4", each),
        delay("a delta's way for another client, without them", without.delays),
        delay("the same, with them", with.delays),
    ])
}

struct Behind {
    peak: f64,
    delays: Vec<f64>,
}

fn behind(binaries: &Binaries, slow: usize) -> anyhow::Result<Behind> {
    let (home, daemon, mut line) = ready(binaries)?;
    let floods: Vec<_> = (0..FLOODS).map(|_| new_session(&mut line, &home)).collect::<anyhow::Result<_>>()?;
    let ticking = new_session(&mut line, &home)?;
    // Subscribed, and from here on nobody reads them.
    let _slow: Vec<_> = (0..slow).map(|_| subscribed(&daemon, &floods)).collect::<anyhow::Result<_>>()?;
    let watcher = watch(subscribed(&daemon, std::slice::from_ref(&ticking))?, 1);
    let reader = watch(subscribed(&daemon, &floods)?, FLOODS);
    prompt(&mut line, &ticking, "ticks")?;

    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let peak = scope.spawn(|| {
            let mut peak = 0.0_f64;
            while !done.load(Ordering::Relaxed) {
                peak = peak.max(usage::memory_mb(daemon.pid(), "VmRSS")?);
                std::thread::sleep(BETWEEN_LOOKS);
            }
            anyhow::Ok(peak)
        });
        let run = || {
            for session in &floods {
                let content = json!([{"type": "text", "text": format!("a {FLOOD_WORD}, please")}]);
                let turn = line.call("session/prompt", &json!({"sessionId": session, "content": content}))?;
                line.call("turn/wait", &json!({"sessionId": session, "turnId": turn["turnId"]}))?;
            }
            joined(reader)?;
            joined(watcher)
        };
        let delays = run();
        done.store(true, Ordering::Relaxed);
        let peak = peak.join().map_err(|_| anyhow::anyhow!("looking at the memory panicked"))??;
        Ok(Behind { peak, delays: delays? })
    })
}

fn memory(what: &'static str, aim: &'static str, megabytes: f64) -> Figure {
    Figure { what, unit: "MB", aim, samples: Samples::new(vec![megabytes]) }
}
