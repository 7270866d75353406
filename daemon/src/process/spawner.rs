//! The daemon's side of a process: starts a helper, drains the output, keeps the time, and reports how it ended.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio::time::{sleep_until, timeout, timeout_at};
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};
use tokio_util::sync::CancellationToken;

use super::capture::{Capture, Captured, OutputLimits};
use super::strays::Known;
use super::wire::{self, Exit, HELPER_ARGUMENT, NotStarted, Order, Report, Rest, Stage};

/// How long a process has between TERM and KILL.
pub const GRACE: Duration = Duration::from_secs(2);

/// This very program, even after an upgrade replaced the file it was started from. A helper and its daemon are
/// therefore always of one build.
const OWN_IMAGE: &str = "/proc/self/exe";

/// How long a helper may take for its own work on top of the grace: killing takes it up to three seconds when something
/// does not go. After that it is stuck, say stopped by its own command, and is killed itself.
const HELPER_SLACK: Duration = Duration::from_secs(5);

/// How long an order may take to reach a helper, which reads it at once.
const ORDER_LIMIT: Duration = Duration::from_secs(10);

/// How long the output is read on after the helper has gone. Only something that could not be ended makes it take that
/// long: everything else has closed its end.
const DRAIN: Duration = Duration::from_millis(250);

/// As much as a pipe holds, so that a flood is read in few steps.
const READ_BYTES: usize = 64 * 1024;

/// Bytes of standard error that are kept where it is read apart.
const SAID_BYTES: usize = 4 * 1024;

/// What to run and within which limits.
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// A path, or a name to be found in the `PATH` of `env`.
    pub program: OsString,
    pub args: Vec<OsString>,
    pub cwd: PathBuf,
    /// Complete: nothing is inherited from the daemon.
    pub env: Vec<(String, String)>,
    pub timeout: Duration,
    /// Between TERM and KILL when it has to be ended.
    pub grace: Duration,
    pub output: OutputLimits,
}

/// A process that is gone, with everything it started.
#[derive(Clone, Debug)]
pub struct Finished {
    pub status: Status,
    /// Standard output and standard error, interleaved as they were written.
    pub output: Captured,
    pub leftovers: Leftovers,
    pub duration: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Code(i32),
    Signal(i32),
    /// It ran into its time limit and was ended.
    TimedOut,
    /// It was ended because the caller asked for that.
    Cancelled,
    /// Its helper was killed, so how the command itself ended is not known.
    Lost,
}

/// What still ran when the command itself had ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftovers {
    None,
    /// Background processes; they were ended.
    Stopped,
    /// Something that could not be ended: it belongs to another user, or is stuck in the kernel.
    Alive,
}

/// Nothing ran.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The daemon's own trouble: no descriptors or processes left.
    #[error("cannot start the helper {} that would run `{}`", helper.display(), program.display())]
    Helper {
        helper: PathBuf,
        program: OsString,
        #[source]
        source: io::Error,
    },
    #[error("cannot run `{}` in {}: the folder cannot be entered", program.display(), cwd.display())]
    Folder {
        program: OsString,
        cwd: PathBuf,
        #[source]
        source: io::Error,
    },
    /// It, or the interpreter that it names, does not exist, is not executable, or the arguments are too long.
    #[error("cannot run `{}` in {}", program.display(), cwd.display())]
    Program {
        program: OsString,
        cwd: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Starts processes. One per daemon: it knows which children of the daemon are its own.
#[derive(Clone, Debug)]
pub struct Spawner {
    pub(super) helper: PathBuf,
    known: Arc<Known>,
}

impl Default for Spawner {
    fn default() -> Self {
        Self::with_helper(OWN_IMAGE)
    }
}

impl Spawner {
    /// Another program as the helper: for processes that are not agentd themselves, such as tests.
    #[must_use]
    pub fn with_helper(helper: impl Into<PathBuf>) -> Self {
        Self { helper: helper.into(), known: Arc::default() }
    }

    /// Runs one command to its end. `on_output` sees every piece of output as it comes.
    ///
    /// Returns soon after the command itself has ended: what it left in the background is ended too. After a
    /// cancellation or the time limit it returns when everything is gone, at the latest some seconds after the grace.
    /// Dropping the future ends the command just as well, without waiting for it.
    ///
    /// # Errors
    /// Nothing ran: see [`SpawnError`].
    pub async fn run(
        &self,
        spec: CommandSpec,
        cancel: CancellationToken,
        mut on_output: impl FnMut(&[u8]),
    ) -> Result<Finished, SpawnError> {
        let begun = Instant::now();
        if cancel.is_cancelled() {
            return Ok(Finished {
                status: Status::Cancelled,
                output: Captured::default(),
                leftovers: Leftovers::None,
                duration: begun.elapsed(),
            });
        }
        let mut call = self.launch(&spec, None, Streams::Together).await?;
        let mut capture = Capture::new(spec.output);
        let mut take = |bytes: &[u8]| {
            capture.push(bytes);
            on_output(bytes);
        };
        call.follow(&spec, &cancel, &mut take).await;
        let swept = self.collect(&mut call).await;
        call.drain(&mut take).await;
        let (status, leftovers) =
            call.outcome(swept).map_err(|problem| problem.into_error(&self.helper, spec))?;
        Ok(Finished { status, output: capture.finish(), leftovers, duration: begun.elapsed() })
    }

    /// Ends and collects children of this process that no helper watches over any more. Does nothing in a process that
    /// is no child subreaper. Blocks for up to two seconds when something does not go. Says how many would not.
    pub fn sweep_strays(&self) -> usize {
        self.known.sweep().unwrap_or(0)
    }

    pub(super) async fn launch(
        &self,
        spec: &CommandSpec,
        input: Option<&Path>,
        streams: Streams,
    ) -> Result<Call, SpawnError> {
        let failed = |source| SpawnError::Helper {
            helper: self.helper.clone(),
            program: spec.program.clone(),
            source,
        };
        let order = Order {
            program: spec.program.clone(),
            args: spec.args.clone(),
            env: spec.env.clone(),
            cwd: spec.cwd.clone().into_os_string(),
            grace_ms: u64::try_from(spec.grace.as_millis()).unwrap_or(u64::MAX),
            input: input.map(|file| file.as_os_str().to_owned()),
        };
        let order = wire::encode(&order).map_err(failed)?;
        let mut call = self.start_helper(streams).map_err(failed)?;
        // Bounded, since a helper can be stopped by a stranger.
        let handed = timeout(ORDER_LIMIT, call.orders.write_all(&order)).await;
        let problem = match handed {
            Ok(Ok(())) => return Ok(call),
            Ok(Err(problem)) => problem,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
        self.collect(&mut call).await;
        Err(failed(problem))
    }

    fn start_helper(&self, streams: Streams) -> io::Result<Call> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (reports, orders) = UnixStream::from_std(ours)?.into_split();
        let (reader, writer) = io::pipe()?;
        let output = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
        let (errors, error_writer) = match streams {
            // One pipe for both streams: only so does the order in which they were written survive.
            Streams::Together => (None, writer.try_clone()?),
            Streams::Apart => {
                let (reader, writer) = io::pipe()?;
                (Some(pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?), writer)
            }
        };
        let mut command = Command::new(&self.helper);
        command
            .arg0("agentd")
            .arg(HELPER_ARGUMENT)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(writer))
            .stderr(Stdio::from(error_writer));
        let helper = self.known.start(|| command.spawn())?;
        let mut codec = LengthDelimitedCodec::new();
        codec.set_max_frame_length(wire::MAX_FRAME_BYTES);
        Ok(Call {
            helper,
            orders,
            reports: FramedRead::new(reports, codec),
            output,
            output_open: true,
            errors,
            said: Vec::new(),
            buffer: vec![0; READ_BYTES],
            ending: None,
            exit: None,
            heard: Heard::Nothing,
        })
    }

    /// Waits for the helper, which has closed its socket or is stuck, and for what it could not end. Says how many
    /// processes would not go, where that was looked at.
    pub(super) async fn collect(&self, call: &mut Call) -> Option<usize> {
        let id = call.helper.id();
        if !matches!(call.heard, Heard::NotStarted(_) | Heard::Ended(_)) {
            // Without its last word it is stuck, or was killed, and then this does nothing.
            let _ = call.helper.start_kill();
        }
        let _ = call.helper.wait().await;
        self.known.forget(id);
        if matches!(call.heard, Heard::NotStarted(_) | Heard::Ended(Rest::Clean | Rest::Stopped)) {
            return None;
        }
        let known = Arc::clone(&self.known);
        tokio::task::spawn_blocking(move || known.sweep()).await.ok().flatten()
    }
}

/// Where a command's standard error goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Streams {
    /// To its output.
    Together,
    /// Into [`Call::said`].
    Apart,
}

/// A helper and what is known of its command.
pub(super) struct Call {
    helper: Child,
    orders: OwnedWriteHalf,
    reports: FramedRead<OwnedReadHalf, LengthDelimitedCodec>,
    output: pipe::Receiver,
    /// Until nobody has the other end any more.
    output_open: bool,
    /// Standard error, where it is read apart, until nobody has the other end any more.
    errors: Option<pipe::Receiver>,
    /// The beginning of what came there.
    pub(super) said: Vec<u8>,
    buffer: Vec<u8>,
    /// Why it has to end, once it has to.
    ending: Option<Status>,
    /// How the command ended by itself.
    exit: Option<Status>,
    heard: Heard,
}

/// The helper's newest word.
enum Heard {
    Nothing,
    Started,
    NotStarted(NotStarted),
    Ended(Rest),
}

enum Event {
    Output(usize),
    Error(Vec<u8>),
    Report(Report),
    HelperGone,
    End(Status),
    /// The helper did not end in time.
    HelperStuck,
}

impl Call {
    /// Until the helper is gone or stuck.
    pub(super) async fn follow(
        &mut self,
        spec: &CommandSpec,
        cancel: &CancellationToken,
        take: &mut impl FnMut(&[u8]),
    ) {
        let mut deadline = Instant::now() + spec.timeout;
        loop {
            let event = tokio::select! {
                read = self.output.read(&mut self.buffer), if self.output_open => Event::Output(read.unwrap_or(0)),
                said = read_error(&mut self.errors), if self.errors.is_some() => Event::Error(said),
                frame = self.reports.next() => parse(frame),
                () = cancel.cancelled(), if self.ending.is_none() => Event::End(Status::Cancelled),
                () = sleep_until(deadline.into()) => match self.ending {
                    None => Event::End(Status::TimedOut),
                    Some(_) => Event::HelperStuck,
                },
            };
            match event {
                Event::Output(0) => self.output_open = false,
                Event::Output(n) => take(&self.buffer[..n]),
                Event::Error(said) => self.hear_error(&said),
                Event::Report(report) => self.hear(report),
                Event::End(status) => {
                    self.ending = Some(status);
                    deadline = Instant::now() + spec.grace + HELPER_SLACK;
                    // The helper's end of file. If it fails, the helper is gone, and the next report says so.
                    let _ = self.orders.shutdown().await;
                }
                Event::HelperGone | Event::HelperStuck => return,
            }
        }
    }

    fn hear(&mut self, report: Report) {
        match report {
            Report::Started => self.heard = Heard::Started,
            Report::NotStarted(problem) => self.heard = Heard::NotStarted(problem),
            Report::Ended(rest) => self.heard = Heard::Ended(rest),
            // After it was told to end, how it obeyed is of no interest.
            Report::Exited(_) if self.ending.is_some() => {}
            Report::Exited(Exit::Code(code)) => self.exit = Some(Status::Code(code)),
            Report::Exited(Exit::Signal(signal)) => self.exit = Some(Status::Signal(signal)),
        }
    }

    /// What is still in the pipe. Everybody who wrote to it is gone, or cannot be waited for.
    pub(super) async fn drain(&mut self, take: &mut impl FnMut(&[u8])) {
        let until = tokio::time::Instant::now() + DRAIN;
        while self.output_open {
            match timeout_at(until, self.output.read(&mut self.buffer)).await {
                Ok(Ok(n)) if n > 0 => take(&self.buffer[..n]),
                _ => self.output_open = false,
            }
        }
        while self.errors.is_some() {
            let said = timeout_at(until, read_error(&mut self.errors)).await.unwrap_or_default();
            self.hear_error(&said);
        }
    }

    /// Nothing said is the end.
    fn hear_error(&mut self, said: &[u8]) {
        if said.is_empty() {
            self.errors = None;
        }
        let room = SAID_BYTES.saturating_sub(self.said.len()).min(said.len());
        self.said.extend_from_slice(&said[..room]);
    }

    pub(super) fn outcome(self, swept: Option<usize>) -> Result<(Status, Leftovers), NoStart> {
        let leftovers = match (self.heard, swept) {
            (Heard::NotStarted(problem), _) => return Err(NoStart::Said(problem)),
            (Heard::Nothing, _) if self.ending.is_none() => return Err(NoStart::Vanished),
            (Heard::Ended(Rest::Clean), _) => Leftovers::None,
            (Heard::Ended(Rest::Stopped), _) | (_, Some(0)) => Leftovers::Stopped,
            (Heard::Ended(Rest::Alive) | Heard::Started | Heard::Nothing, _) => Leftovers::Alive,
        };
        Ok((self.exit.or(self.ending).unwrap_or(Status::Lost), leftovers))
    }
}

/// A frame that cannot be read comes from something that is no helper of ours.
fn parse(frame: Option<io::Result<bytes::BytesMut>>) -> Event {
    let report = frame.and_then(Result::ok).and_then(|frame| serde_json::from_slice(&frame).ok());
    report.map_or(Event::HelperGone, Event::Report)
}

async fn read_error(errors: &mut Option<pipe::Receiver>) -> Vec<u8> {
    let Some(errors) = errors else { return Vec::new() };
    let mut buffer = vec![0; SAID_BYTES];
    let n = errors.read(&mut buffer).await.unwrap_or(0);
    buffer.truncate(n);
    buffer
}

/// Why there is no command.
pub(super) enum NoStart {
    Said(NotStarted),
    Vanished,
}

impl NoStart {
    pub(super) fn into_error(self, helper: &Path, spec: CommandSpec) -> SpawnError {
        let (stage, source) = match self {
            NoStart::Said(problem) => (problem.stage, problem.into_error()),
            NoStart::Vanished => (Stage::Helper, io::Error::other("it ended before it started anything")),
        };
        let CommandSpec { program, cwd, .. } = spec;
        match stage {
            Stage::Helper => SpawnError::Helper { helper: helper.to_owned(), program, source },
            Stage::Folder => SpawnError::Folder { program, cwd, source },
            Stage::Program => SpawnError::Program { program, cwd, source },
        }
    }
}
