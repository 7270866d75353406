//! When a daemon is killed: at a certain write of its journals, or at some instant.

use std::fmt;
use std::str::FromStr;
use std::sync::mpsc;
use std::time::Duration;

use agentd_tests::Start;
use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kill {
    /// It kills itself at the `nth` write or sync of a journal: `agentd --die-at`.
    At { place: &'static str, nth: usize },
    /// So long after it said that it is ready.
    After(Duration),
    /// So long after its process was started, whatever it has said.
    Early(Duration),
    /// As `After`, and it is asked to end (SIGTERM): it leaves in good order, and everything goes on with the next one.
    Ask(Duration),
}

/// At a write: nothing of it done, half, all with the kernel, all on the disk; each before anybody is told.
pub(crate) const PLACES: [&str; 4] = ["before", "half", "written", "synced"];

impl Kill {
    /// How a daemon that will be killed so is started.
    pub(crate) fn start(kill: Option<&Kill>) -> Start {
        match kill {
            Some(Kill::At { .. }) => Start {
                args: kill.map(|kill| format!("--die-at={kill}")).into_iter().collect(),
                ..Start::default()
            },
            Some(Kill::After(_) | Kill::Early(_) | Kill::Ask(_)) | None => Start::default(),
        }
    }
}

impl fmt::Display for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kill::At { place, nth } => write!(f, "{place}:{nth}"),
            Kill::After(wait) => write!(f, "{}us", wait.as_micros()),
            Kill::Early(wait) => write!(f, "early:{}us", wait.as_micros()),
            Kill::Ask(wait) => write!(f, "ask:{}us", wait.as_micros()),
        }
    }
}

impl FromStr for Kill {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        if let Some(text) = text.strip_suffix("us") {
            let (kind, micros) = text.split_once(':').unwrap_or(("", text));
            let wait = Duration::from_micros(micros.parse()?);
            return match kind {
                "" => Ok(Kill::After(wait)),
                "early" => Ok(Kill::Early(wait)),
                "ask" => Ok(Kill::Ask(wait)),
                _ => anyhow::bail!("an unknown moment"),
            };
        }
        let (place, nth) = text.split_once(':').context("a kill is place:N, Nus, early:Nus or ask:Nus")?;
        let place = PLACES.into_iter().find(|known| *known == place).context("an unknown place")?;
        Ok(Kill::At { place, nth: nth.parse()? })
    }
}

/// One run: a scenario, and the kills of its daemons, one for each in turn. Written `scenario@half:3,8000us`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) scenario: String,
    pub(crate) kills: Vec<Kill>,
}

impl Case {
    /// The number of the sync at which it kills, if it does nothing else.
    pub(crate) fn only_sync(&self) -> Option<usize> {
        match self.kills[..] {
            [Kill::At { place: "synced", nth }] => Some(nth),
            _ => None,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kills: Vec<_> = self.kills.iter().map(Kill::to_string).collect();
        write!(f, "{}@{}", self.scenario, kills.join(","))
    }
}

impl FromStr for Case {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (scenario, kills) = text.split_once('@').context("a case is scenario@kill,kill")?;
        let kills =
            kills.split(',').filter(|kill| !kill.is_empty()).map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self { scenario: scenario.to_owned(), kills })
    }
}

/// Chance that a seed repeats (SplitMix64).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `sides`; `sides` is not 0.
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        let sides = u64::try_from(sides).unwrap_or(u64::MAX);
        usize::try_from(self.next() % sides).unwrap_or_default()
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.roll(at + 1));
        }
    }
}

/// Sends a process a signal after a while, unless dropped before.
pub(crate) struct Timer {
    stop: Option<mpsc::SyncSender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Timer {
    pub(crate) fn start(wait: Duration, pid: u32, signal: Signal) -> anyhow::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("a pid")?;
        let (stop, stopped) = mpsc::sync_channel(0);
        let thread = std::thread::spawn(move || {
            if stopped.recv_timeout(wait) == Err(mpsc::RecvTimeoutError::Timeout) {
                // It may have ended already; its pid is still its own, since the timer is dropped before it is reaped.
                let _ = kill_process(pid, signal);
            }
        });
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn a_case_reads_back_as_it_is_printed() {
    let text = "plan@half:3,8000us,synced:1,early:70us,ask:9us";
    let case: Case = text.parse().unwrap();
    assert_eq!(case.kills.len(), 5);
    assert_eq!(case.to_string(), text);
    for wrong in ["plan@after:3", "plan@late:3us"] {
        assert!(wrong.parse::<Case>().is_err(), "{wrong}");
    }
}
