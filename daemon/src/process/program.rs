//! Programs that agentd itself uses, such as git: their output is data, so it is whole or an error, and standard error
//! is apart from it. Run under the helper as any other process is.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::capture::OutputLimits;
use super::spawner::{CommandSpec, GRACE, SpawnError, Spawner, Status, Streams};

/// What to run. It is agentd's own choice, never that of a model or a project.
#[derive(Clone, Debug)]
pub struct ProgramSpec {
    /// As errors call it: `git status`.
    pub name: String,
    pub program: PathBuf,
    pub args: Vec<OsString>,
    pub cwd: PathBuf,
    /// Complete: nothing is inherited.
    pub env: Vec<(String, String)>,
    /// The file that it reads; absent: an empty input.
    pub input: Option<PathBuf>,
    pub timeout: Duration,
    /// Bytes of output; more is an error.
    pub limit: usize,
}

/// Why there is no output.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("{program} ended with code {code}: {said}")]
    Failed { program: String, code: i32, said: String },
    #[error("{program} did not end in {} s and was stopped", limit.as_secs_f32())]
    TimedOut { program: String, limit: Duration },
    #[error("{program} was stopped before it was done")]
    Stopped { program: String },
    #[error("{program} printed more than {limit} bytes")]
    TooMuch { program: String, limit: usize },
}

impl Spawner {
    /// Runs a program to its end and gives all that it printed. Dropping the future ends it.
    ///
    /// # Errors
    /// It did not run, ended otherwise than with code 0, took too long, or printed too much.
    pub async fn program(&self, spec: ProgramSpec) -> Result<Vec<u8>, ProgramError> {
        let program = spec.name;
        let command = CommandSpec {
            program: spec.program.into_os_string(),
            args: spec.args,
            cwd: spec.cwd,
            env: spec.env,
            timeout: spec.timeout,
            grace: GRACE,
            output: OutputLimits::default(),
        };
        let mut call = self.launch(&command, spec.input.as_deref(), Streams::Apart).await?;
        let cancel = CancellationToken::new();
        let mut output = Vec::new();
        let mut take = |bytes: &[u8]| {
            if output.len() + bytes.len() > spec.limit {
                cancel.cancel();
            } else {
                output.extend_from_slice(bytes);
            }
        };
        call.follow(&command, &cancel, &mut take).await;
        let swept = self.collect(&mut call).await;
        call.drain(&mut take).await;
        let said = String::from_utf8_lossy(&std::mem::take(&mut call.said)).trim().to_owned();
        let limit = command.timeout;
        let (status, _) = call.outcome(swept).map_err(|problem| problem.into_error(&self.helper, command))?;
        if cancel.is_cancelled() {
            return Err(ProgramError::TooMuch { program, limit: spec.limit });
        }
        match status {
            Status::Code(0) => Ok(output),
            Status::Code(code) => Err(ProgramError::Failed { program, code, said }),
            Status::TimedOut => Err(ProgramError::TimedOut { program, limit }),
            Status::Signal(_) | Status::Cancelled | Status::Lost => Err(ProgramError::Stopped { program }),
        }
    }
}
