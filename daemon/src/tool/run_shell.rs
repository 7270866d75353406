//! `run_shell`: one command line in a fresh shell.

mod effects;
mod plain;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agentd_protocol::event::ToolKind;
use agentd_protocol::permission::Confinement;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use self::effects::effects;
use self::plain::plain;
use super::{Output, Prepared, RunContext, Scene, Tool, ToolError, Work};
use crate::model::message::ToolSpec;
use crate::process::{
    Captured, CommandSpec, DEFAULT_PATH, Finished, GRACE, Leftovers, OutputLimits, Parts, SpawnError,
    Spawner, Status,
};
use crate::workspace::{self, Base};

const NAME: &str = "run_shell";

/// A tool call is not the place for a server; two minutes are enough for most builds and tests.
const DEFAULT_TIMEOUT_MS: u64 = 120_000;

const MAX_TIMEOUT_MS: u64 = 600_000;

/// Longer titles are cut: the approval shows the whole command.
const TITLE_CHARS: usize = 80;

/// The shell, and nothing of the person's start-up files.
const SHELL: &str = "/bin/bash";
const SHELL_OPTIONS: [&str; 3] = ["--noprofile", "--norc", "-c"];

/// Runs commands.
#[derive(Clone, Debug)]
pub struct RunShell {
    spawner: Arc<Spawner>,
}

impl RunShell {
    #[must_use]
    pub fn new(spawner: Arc<Spawner>) -> Self {
        Self { spawner }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    command: String,
    #[serde(default)]
    timeout_ms: Option<u64>,
    /// For whoever reads the call; the command says what it does.
    #[serde(default, rename = "description")]
    _description: Option<String>,
}

impl Tool for RunShell {
    fn spec(&self) -> ToolSpec {
        let description = format!(
            "Runs a command with {SHELL} and returns what it printed (standard output and standard error together) and \
             its exit code. Every call starts in the session's folder in a fresh shell: `cd`, variables and functions \
             last for that call only. There is no terminal and standard input is at end of file, so programs that ask \
             questions fail: pass their non-interactive options. Nothing runs on after the call: processes left in the \
             background are ended. Of long output the beginning and the end are kept."
        );
        let schema = json!({
            "type": "object",
            "properties": {
                "command": { "type": "string", "description": "The command line." },
                "timeout_ms": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_TIMEOUT_MS,
                    "description": format!(
                        "After how many milliseconds the command is ended. Default {DEFAULT_TIMEOUT_MS}."
                    ),
                },
                "description": {
                    "type": "string",
                    "description": "What the command is for, in a few words.",
                },
            },
            "required": ["command"],
            "additionalProperties": false,
        });
        ToolSpec {
            name: NAME.into(),
            description,
            #[expect(clippy::unwrap_used, reason = "a JSON value made of literals is JSON")]
            input_schema: to_raw_value(&schema).unwrap(),
        }
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Execute
    }

    fn prepare(&self, arguments: &RawValue, scene: &Scene) -> Result<Prepared, ToolError> {
        let Arguments { command, timeout_ms, .. } = serde_json::from_str(arguments.get())
            .map_err(|problem| ToolError(format!("{NAME}: the arguments are not right: {problem}")))?;
        if command.trim().is_empty() {
            return Err(ToolError(format!("{NAME}: `command` is empty; give a command line")));
        }
        if command.contains('\0') {
            return Err(ToolError(format!(
                "{NAME}: `command` holds a NUL character, which no program can be given; write it as $'\\x00' or by printf"
            )));
        }
        let timeout_ms = timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS);
        if timeout_ms == 0 || timeout_ms > MAX_TIMEOUT_MS {
            return Err(ToolError(format!(
                "{NAME}: `timeout_ms` is {timeout_ms}; it can be from 1 to {MAX_TIMEOUT_MS}"
            )));
        }
        // By its true name, so that a person sees, and the approval is bound to, the folder where it really runs. If it
        // is gone the command is told so when it starts.
        let base = Base { cwd: &scene.cwd, home: None };
        let cwd = workspace::locate(base, ".").map_or_else(|_| scene.cwd.clone(), |folder| folder.real);
        let effects = effects(&command, &cwd, scene);
        let title = title(&command);
        let spec = spec(command, cwd, Duration::from_millis(timeout_ms), scene);
        let spawner = Arc::clone(&self.spawner);
        Ok(Prepared {
            title,
            effects,
            diff: None,
            work: Work::Run(Box::new(move |context| Box::pin(run(spawner, spec, context)))),
        })
    }
}

fn spec(command: String, cwd: PathBuf, timeout: Duration, scene: &Scene) -> CommandSpec {
    let mut env = scene.env.to_vec();
    env.retain(|(name, _)| name != "TMPDIR");
    env.push(("TMPDIR".into(), scene.scratch.to_string_lossy().into_owned()));
    let options = SHELL_OPTIONS.into_iter().map(OsString::from);
    CommandSpec {
        program: SHELL.into(),
        args: options.chain([command.into()]).collect(),
        cwd,
        env,
        timeout,
        grace: GRACE,
        output: OutputLimits::default(),
    }
}

fn title(command: &str) -> String {
    let mut lines = command.trim().lines();
    let first = lines.next().unwrap_or_default().trim_end();
    let mut title: String = first.chars().take(TITLE_CHARS).collect();
    if title.len() < first.len() || lines.next().is_some() {
        title.push_str(" \u{2026}");
    }
    format!("run {title}")
}

async fn run(spawner: Arc<Spawner>, spec: CommandSpec, context: RunContext) -> Output {
    match context.confinement {
        Confinement::Off => {}
        // Never run with more rights than were decided.
        Confinement::Plan | Confinement::Workspace => {
            return Output::error(
                "This command was to run confined, and this version of agentd cannot confine processes. It did not run.",
            );
        }
    }
    let timeout = spec.timeout;
    let path = spec.env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
    match spawner.run(spec, context.cancel, |_| {}).await {
        Ok(finished) => Output {
            is_error: finished.status != Status::Code(0),
            content: describe(&finished, timeout, path.as_deref()),
            ..Output::default()
        },
        Err(problem) => Output::error(refusal(&problem)),
    }
}

/// What the model reads: the output, then facts in brackets, each on a line.
fn describe(finished: &Finished, timeout: Duration, path: Option<&str>) -> String {
    let mut text = shown(&finished.output);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    if finished.output.total_bytes == 0 {
        text.push_str("[no output]\n");
    }
    match finished.leftovers {
        Leftovers::None => {}
        Leftovers::Stopped if finished.status == Status::Lost => {}
        Leftovers::Stopped => text.push_str(
            "[it left processes running in the background; they were ended, since nothing outlives its call]\n",
        ),
        Leftovers::Alive => text.push_str(
            "[some of its processes could not be ended and still run: they belong to another user or hang in the kernel]\n",
        ),
    }
    text.push_str(&ending(finished.status, timeout, path));
    text
}

fn shown(output: &Captured) -> String {
    match output.parts() {
        Parts::Whole(whole) => plain(&whole),
        Parts::Cut { head, left_out_bytes, tail } => {
            format!("{}\n[\u{2026} {left_out_bytes} bytes left out \u{2026}]\n{}", plain(&head), plain(&tail))
        }
    }
}

fn ending(status: Status, timeout: Duration, path: Option<&str>) -> String {
    match status {
        Status::Code(126) => "[exit code 126: found, but it cannot be executed]".into(),
        Status::Code(127) => {
            let mut text = "[exit code 127: command not found".to_owned();
            if let Some(path) = path {
                // Writing to a string cannot fail.
                let _ = write!(text, "; PATH is {}, {}", plain(path), origin(path));
            }
            text + "]"
        }
        Status::Code(code) => format!("[exit code {code}]"),
        Status::Signal(signal) => format!("[ended by signal {signal}{}]", name_of(signal)),
        Status::TimedOut => format!(
            "[ended after {} ms, its time limit; `timeout_ms` can be up to {MAX_TIMEOUT_MS}]",
            timeout.as_millis()
        ),
        Status::Cancelled => "[interrupted before it was done]".into(),
        Status::Lost => {
            "[the process that watches over the command was killed, so the command was ended; how far it came is unknown]"
                .into()
        }
    }
}

fn origin(path: &str) -> &'static str {
    if path == DEFAULT_PATH {
        "the default, as the client that made the session sent none"
    } else {
        "sent by the client that made the session"
    }
}

/// The numbers of the signals that end programs by themselves, the same on every Linux that agentd is built for.
fn name_of(signal: i32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        3 => " (SIGQUIT)",
        4 => " (SIGILL)",
        5 => " (SIGTRAP)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        14 => " (SIGALRM)",
        15 => " (SIGTERM)",
        24 => " (SIGXCPU)",
        25 => " (SIGXFSZ)",
        31 => " (SIGSYS)",
        _ => "",
    }
}

fn refusal(problem: &SpawnError) -> String {
    let cause = std::error::Error::source(problem).map(|cause| format!(": {cause}")).unwrap_or_default();
    let advice = match problem {
        SpawnError::Folder { .. } => {
            " If it was moved or deleted, tell the person: a session stays in its folder."
        }
        SpawnError::Program { source, .. } if source.kind() == std::io::ErrorKind::ArgumentListTooLong => {
            " Write the text to a file and run that."
        }
        SpawnError::Program { .. } => "",
        SpawnError::Helper { .. } => {
            " This is trouble of the machine, not of the command; trying again later may help."
        }
    };
    format!("The command did not run: {problem}{cause}.{advice}")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::PathBuf;

    use agentd_protocol::ids::SessionId;
    use std::path::Path;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::permission::effect::Effect;
    use crate::tool::Closed;

    fn scene() -> Scene {
        Scene {
            session: SessionId::from_uuid(uuid::Uuid::nil()),
            cwd: PathBuf::from("/w"),
            plan_file: None,
            reads: Arc::new(HashMap::new()),
            env: Arc::new(Vec::new()),
            scratch: PathBuf::from("/s"),
            closed: Closed::default(),
        }
    }

    fn prepare(arguments: serde_json::Value) -> Result<Prepared, ToolError> {
        RunShell::new(Arc::new(Spawner::default())).prepare(&to_raw_value(&arguments).unwrap(), &scene())
    }

    fn refused(arguments: serde_json::Value) -> String {
        prepare(arguments).unwrap_err().0
    }

    #[test]
    fn the_gate_sees_the_whole_command_and_where_it_would_run() {
        let prepared = prepare(json!({"command": "cd sub\nmake", "description": "builds"})).unwrap();
        assert_eq!(prepared.title, "run cd sub \u{2026}");
        let [Effect::RunCommand(target)] = &prepared.effects[..] else { panic!("{:?}", prepared.effects) };
        assert_eq!((target.command.as_str(), target.cwd.as_path()), ("cd sub\nmake", Path::new("/w")));
        let parts: Vec<_> = target.line.parts.iter().map(|part| part.text.as_str()).collect();
        assert_eq!((parts, target.proven), (vec!["cd sub", "make"], false));
    }

    #[test]
    fn arguments_that_cannot_be_carried_out_are_refused() {
        assert!(refused(json!({"command": " \n"})).contains("empty"));
        assert!(refused(json!({"command": "a\0b"})).contains("NUL"));
        assert!(refused(json!({"command": "a", "timeout_ms": 0})).contains("from 1 to 600000"));
        assert!(refused(json!({"command": "a", "timeout_ms": 600_001})).contains("from 1 to 600000"));
        assert!(refused(json!({"command": "a", "background": true})).contains("background"));
        assert!(refused(json!({})).contains("command"));
    }

    #[test]
    fn long_titles_are_cut_at_a_character() {
        assert_eq!(
            title(&"\u{4e2d}".repeat(200)),
            format!("run {} \u{2026}", "\u{4e2d}".repeat(TITLE_CHARS))
        );
        assert_eq!(title("ls\n"), "run ls");
    }

    #[tokio::test]
    async fn a_profile_that_is_not_built_is_never_run_unconfined() {
        for confinement in [Confinement::Plan, Confinement::Workspace] {
            let Work::Run(work) = prepare(json!({"command": "true"})).unwrap().work else {
                panic!("no work")
            };
            let output = work(RunContext { cancel: CancellationToken::new(), confinement }).await;
            assert!(output.is_error);
            assert!(output.content.contains("did not run"), "{}", output.content);
        }
    }

    fn finished(status: Status, printed: &str, leftovers: Leftovers) -> String {
        let output = Captured { head: printed.into(), tail: Vec::new(), total_bytes: printed.len() as u64 };
        let finished = Finished { status, output, leftovers, duration: Duration::ZERO };
        describe(&finished, Duration::from_millis(1500), Some(DEFAULT_PATH))
    }

    #[test]
    fn sh_14_results_name_the_ending() {
        for (status, expected) in [
            (Status::Code(0), "[exit code 0]"),
            (Status::Code(7), "[exit code 7]"),
            (Status::Code(126), "[exit code 126: found, but it cannot be executed]"),
            (Status::Signal(11), "[ended by signal 11 (SIGSEGV)]"),
            (Status::Signal(64), "[ended by signal 64]"),
            (Status::TimedOut, "[ended after 1500 ms, its time limit; `timeout_ms` can be up to 600000]"),
            (Status::Cancelled, "[interrupted before it was done]"),
        ] {
            assert_eq!(finished(status, "out", Leftovers::None), format!("out\n{expected}"));
        }
        let missing = finished(Status::Code(127), "out\n", Leftovers::None);
        assert_eq!(
            missing,
            format!(
                "out\n[exit code 127: command not found; PATH is {DEFAULT_PATH}, the default, as the client that made \
                 the session sent none]"
            )
        );
    }

    #[test]
    fn results_say_what_was_left_running() {
        let stopped = finished(Status::Code(0), "", Leftovers::Stopped);
        assert!(stopped.contains("[no output]\n[it left processes running in the background"), "{stopped}");
        assert!(stopped.ends_with("\n[exit code 0]"), "{stopped}");
        let alive = finished(Status::TimedOut, "", Leftovers::Alive);
        assert!(alive.contains("still run"), "{alive}");
        // Whatever a lost command left, it did not leave it on purpose.
        let lost = finished(Status::Lost, "", Leftovers::Stopped);
        assert_eq!(lost.lines().count(), 2, "{lost}");
    }
}
