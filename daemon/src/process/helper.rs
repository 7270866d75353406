//! The thin process between the daemon and a command: starts it, waits, ends everything it leaves behind.
//!
//! Runs single-threaded, before the runtime exists. It talks to the daemon over its standard input, a socket; the
//! command gets /dev/null there, or the file that its order names, and the helper's output as its own.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus, getpid, set_child_subreaper,
    set_dumpable_behavior, setrlimit, setsid, umask, wait,
};

use super::tree;
use super::wire::{self, Exit, HELPER_ARGUMENT, NotStarted, Order, Report, Rest, Stage};

/// How long what the command left behind may still run after it, before it is asked to end: the `tee` of
/// `make > >(tee log)` is not waited for by the shell, and must not lose its last lines.
const LINGER: Duration = Duration::from_millis(200);

/// How often orphans are collected while a command runs. Each is a dead entry in the process table until then.
const REAP_TICK: Duration = Duration::from_secs(1);

/// How often the list of children is looked at while they are being ended.
const END_TICK: Duration = Duration::from_millis(20);

/// How long killed processes may take to go. Those of another user never do, and one can hang in the kernel.
const KILL_LIMIT: Duration = Duration::from_secs(3);

/// Commands go before the daemon and before the person's editor when memory runs out.
const OOM_SCORE: &[u8] = b"500";

/// Whether this process was started to be a helper. Asked first of all in `main`.
#[must_use]
pub fn is_called() -> bool {
    std::env::args_os().nth(1).as_deref() == Some(OsStr::new(HELPER_ARGUMENT))
}

/// Runs one command to its end and the end of everything it started.
#[must_use]
pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            // The daemon is gone, or somebody tries this by hand. There is nobody else to tell.
            let _ =
                writeln!(io::stderr(), "agentd {HELPER_ARGUMENT}: {problem}; it is started by agentd only");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    let prepared = prepare();
    let mut control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let order: Order = wire::read(&mut control)?;
    let started = match prepared {
        Ok(()) => start(&order),
        Err(problem) => Err(NotStarted::new(Stage::Helper, &problem)),
    };
    match started {
        Ok(command) => {
            send(&mut control, &Report::Started);
            let rest = Supervisor::new(&mut control, command, Duration::from_millis(order.grace_ms)).watch();
            send(&mut control, &Report::Ended(rest));
        }
        Err(problem) => send(&mut control, &Report::NotStarted(problem)),
    }
    Ok(())
}

/// A daemon that is gone cannot be told; what it would have decided happens anyway.
fn send(control: &mut UnixStream, report: &Report) {
    let _ = wire::encode(report).and_then(|frame| control.write_all(&frame));
}

fn prepare() -> io::Result<()> {
    // A name that `pgrep -x agentd` does not find.
    let _ = rustix::thread::set_name(c"agentd-helper");
    close_on_exec()?;
    // No controlling terminal: nothing below can open /dev/tty, and no Ctrl-C meant for the daemon comes here.
    setsid()?;
    // Whoever detaches itself from its parent becomes a child of this process, and is found.
    set_child_subreaper(Some(getpid()))?;
    // Best effort: some containers mount /proc read-only.
    let _ = set_oom_score();
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    // The daemon's own files are private; what a build creates is to be as if the person had run it.
    umask(Mode::from_raw_mode(0o022));
    // Last, since it takes away this process's own files under /proc. It ends with exec, so the command is not affected.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

fn set_oom_score() -> Result<(), Errno> {
    let file = rustix::fs::open("/proc/self/oom_score_adj", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, OOM_SCORE).map(drop)
}

/// Descriptors that the daemon itself inherited, say from a shell that started it, end here. Everything the daemon
/// opens has the mark already.
fn close_on_exec() -> Result<(), Errno> {
    let folder = rustix::fs::open(
        "/proc/self/fd",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    for entry in rustix::fs::Dir::new(folder)? {
        let entry = entry?;
        let Some(fd) = entry.file_name().to_str().ok().and_then(|name| name.parse::<RawFd>().ok()) else {
            continue;
        };
        if fd > 2 {
            mark(fd)?;
        }
    }
    Ok(())
}

#[expect(unsafe_code, reason = "a number from /proc/self/fd can become a descriptor in no other way")]
fn mark(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: the kernel has just listed the descriptor as open, this process has one thread, and nothing closes a
    // descriptor between the listing and the end of this borrow.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC)
}

fn start(order: &Order) -> Result<Pid, NotStarted> {
    std::env::set_current_dir(&order.cwd).map_err(|problem| NotStarted::new(Stage::Folder, &problem))?;
    let input = match &order.input {
        None => Stdio::null(),
        Some(file) => open_input(file).map_err(|problem| NotStarted::new(Stage::Helper, &problem.into()))?,
    };
    let child = Command::new(&order.program)
        .args(&order.args)
        .env_clear()
        .envs(order.env.iter().map(|(name, value)| (name, value)))
        .stdin(input)
        .process_group(0)
        .spawn()
        .map_err(|problem| NotStarted::new(Stage::Program, &problem))?;
    // So that the folder can be unmounted or deleted while something still lingers.
    let _ = std::env::set_current_dir("/");
    // Reaped by `Supervisor::reap` with everybody else; the handle does nothing when dropped.
    Ok(Pid::from_child(&child))
}

fn open_input(file: &OsStr) -> Result<Stdio, Errno> {
    rustix::fs::open(file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(Stdio::from)
}

/// Where a call is. Only ever goes down this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// The command has ended by itself; what it left may end by itself too.
    Lingering {
        until: Instant,
    },
    /// Everything was asked to end.
    Terminating {
        until: Instant,
    },
    Killing {
        until: Instant,
    },
}

struct Supervisor<'a> {
    control: &'a mut UnixStream,
    daemon: Daemon,
    /// Until it has been collected: after that its number may be another's.
    command: Option<Pid>,
    grace: Duration,
    phase: Phase,
    asked: HashSet<tree::Target>,
    rest: Rest,
}

/// Whether the daemon still wants the command to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Daemon {
    Listening,
    /// It closed its side, or is dead.
    Done,
}

/// What a look at the children found.
enum Family {
    Some(Vec<Pid>),
    Nobody,
}

impl<'a> Supervisor<'a> {
    fn new(control: &'a mut UnixStream, command: Pid, grace: Duration) -> Self {
        Self {
            control,
            daemon: Daemon::Listening,
            command: Some(command),
            grace,
            phase: Phase::Running,
            asked: HashSet::new(),
            rest: Rest::Clean,
        }
    }

    /// Returns when nothing of the call is left, or what is left cannot be ended.
    fn watch(mut self) -> Rest {
        loop {
            let Family::Some(children) = self.reap() else { return self.rest };
            self.advance(Instant::now());
            let now = Instant::now();
            let limit = match self.phase {
                Phase::Running => REAP_TICK,
                Phase::Lingering { until } => until.saturating_duration_since(now).min(END_TICK),
                Phase::Terminating { .. } => {
                    tree::terminate(&children, &mut self.asked);
                    END_TICK
                }
                Phase::Killing { until } if now >= until => return Rest::Alive,
                Phase::Killing { .. } => {
                    tree::kill(&children);
                    END_TICK
                }
            };
            let control = (self.daemon == Daemon::Listening).then(|| self.control.as_fd());
            if tree::wait_for_change(&children, control, limit) {
                self.hear();
            }
        }
    }

    /// Moves on to the phase that the time and the daemon ask for.
    fn advance(&mut self, now: Instant) {
        let terminating = Phase::Terminating { until: now + self.grace };
        self.phase = match self.phase {
            Phase::Running if self.daemon == Daemon::Done => terminating,
            Phase::Lingering { until } if self.daemon == Daemon::Done || now >= until => {
                self.rest = Rest::Stopped;
                terminating
            }
            Phase::Terminating { until } if now >= until => Phase::Killing { until: now + KILL_LIMIT },
            phase => phase,
        };
    }

    /// The daemon says nothing after its order: whatever comes, it is the end of the call.
    fn hear(&mut self) {
        let mut buffer = [0; 64];
        match self.control.read(&mut buffer) {
            Err(problem) if problem.kind() == io::ErrorKind::Interrupted => {}
            _ => self.daemon = Daemon::Done,
        }
    }

    /// Collects the dead, tells the daemon of the command's end, and lists the living.
    fn reap(&mut self) -> Family {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if Some(pid) == self.command => self.command_ended(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                // ECHILD: there is no child, dead or alive.
                Err(_) => return Family::Nobody,
            }
        }
        // Without the list, which every usual kernel has, the command's own group is still reached through it.
        Family::Some(tree::children().unwrap_or_else(|_| self.command.into_iter().collect()))
    }

    fn command_ended(&mut self, status: WaitStatus) {
        self.command = None;
        let exit = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Exit::Code(code),
            // Neither is a stop or a continuation, which are not asked for; SIGKILL is the honest guess.
            (None, signal) => Exit::Signal(signal.unwrap_or(Signal::KILL.as_raw())),
        };
        send(self.control, &Report::Exited(exit));
        if self.phase == Phase::Running {
            self.phase = Phase::Lingering { until: Instant::now() + LINGER };
        }
    }
}
