//! What an agent can do. A tool parses its arguments, declares effects, and hands back the work; it decides nothing.

mod arguments;
mod ask_user_question;
mod blocking;
#[cfg(test)]
mod builtin_tests;
mod edit_file;
#[cfg(test)]
mod edit_tests;
mod edit_text;
mod file_edit;
mod grep_search;
#[cfg(test)]
mod grep_tests;
mod list_files;
mod listing;
mod plan_mode;
mod read_file;
pub mod run_shell;
#[cfg(test)]
pub(crate) mod test_scene;
mod text;
mod write_file;

use std::collections::HashMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use agentd_protocol::approval::Question;
use agentd_protocol::event::ToolKind;
use agentd_protocol::permission::Confinement;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::ids::{Digest, SessionId};
use crate::model::message::ToolSpec;
use crate::permission::effect::Effect;
use crate::permission::{Anchors, Rules};
use crate::process::Spawner;

use blocking::blocking;

/// Every built-in tool, in the order in which models see them. The order never changes: the list is part of the prefix
/// that providers cache.
#[must_use]
pub fn builtin(spawner: &Arc<Spawner>) -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(read_file::ReadFile),
        Arc::new(write_file::WriteFile),
        Arc::new(edit_file::EditFile),
        Arc::new(list_files::ListFiles),
        Arc::new(grep_search::GrepSearch),
        Arc::new(run_shell::RunShell::new(Arc::clone(spawner))),
        Arc::new(ask_user_question::AskUserQuestion),
        Arc::new(plan_mode::EnterPlanMode),
        Arc::new(plan_mode::ExitPlanMode),
    ]
}

/// One tool, the same for every session.
pub trait Tool: Send + Sync {
    fn spec(&self) -> ToolSpec;

    fn kind(&self) -> ToolKind;

    /// Parses the arguments and resolves every path. Changes nothing. May block on the file system, so the engine calls
    /// it off the runtime's threads. It is called again right before the work runs, after a person's answer too, so what
    /// is judged last is what runs.
    ///
    /// # Errors
    /// Arguments that cannot be carried out: the text goes to the model as the call's error result.
    fn prepare(&self, arguments: &RawValue, scene: &Scene) -> Result<Prepared, ToolError>;
}

/// What a call may know about its session. A snapshot.
#[derive(Clone)]
pub struct Scene {
    pub session: SessionId,
    /// The session's folder; relative paths start here.
    pub cwd: PathBuf,
    /// The session's own plan file, while it has one.
    pub plan_file: Option<PathBuf>,
    /// Content hashes of files as this session last read or wrote them.
    pub reads: Arc<HashMap<PathBuf, Digest>>,
    /// The environment for processes, complete: nothing is inherited from the daemon.
    pub env: Arc<Vec<(String, String)>>,
    /// A private folder of the session for temporary files.
    pub scratch: PathBuf,
    /// What is never listed and never searched, whatever folder above it a call names.
    pub closed: Closed,
}

/// agentd's own folders, and what deny rules keep from being read.
#[derive(Clone, Debug, Default)]
pub struct Closed {
    pub own: Arc<[PathBuf]>,
    /// Absent: no rule closes anything to readers.
    pub rules: Option<Arc<Rules>>,
    /// Where patterns start: the session's folder, its project's root, the home.
    pub cwd: PathBuf,
    pub root: PathBuf,
    pub home: PathBuf,
}

impl Closed {
    #[must_use]
    pub fn holds(&self, path: &Path) -> bool {
        self.own.iter().any(|own| path.starts_with(own))
            || self.rules.as_ref().is_some_and(|rules| {
                rules.hides(path, Anchors { cwd: &self.cwd, root: &self.root, home: &self.home })
            })
    }
}

/// A call that is ready to be judged and then to run.
pub struct Prepared {
    /// One line for people: `read src/lib.rs`.
    pub title: String,
    pub effects: Vec<Effect>,
    /// What would change, as a unified diff, for the approval.
    pub diff: Option<String>,
    pub work: Work,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared")
            .field("title", &self.title)
            .field("effects", &self.effects)
            .finish_non_exhaustive()
    }
}

/// What a permitted call leads to.
pub enum Work {
    /// Something the tool does by itself. Called at most once.
    Run(RunFn),
    /// Something only the session can do, journaled by it as a step.
    Ask(Request),
    /// What it would do is known, and that it cannot be done. The gate is asked all the same, so a call that is not
    /// permitted learns that and nothing about the file; no person is asked.
    Refuse(ToolError),
}

pub type RunFn = Box<dyn FnOnce(RunContext) -> Pin<Box<dyn Future<Output = Output> + Send>> + Send + Sync>;

/// What tools may ask of their session. Closed: a new kind is a new step of the engine.
#[derive(Clone, Debug)]
pub enum Request {
    EnterPlan,
    LeavePlan,
    AskPerson(Vec<Question>),
    /// A change of the session's own plan file; only the session writes it, so that a snapshot is journaled first.
    WritePlan(PlanEdit),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanEdit {
    Replace { content: String },
    Edit { old: String, new: String, all: bool },
}

/// What the engine gives a running call.
pub struct RunContext {
    /// Cancelled by an interrupt and at shutdown. The call ends soon after, whatever it does.
    pub cancel: CancellationToken,
    /// The kernel profile that the gate chose for processes of this call.
    pub confinement: Confinement,
}

/// A finished call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    pub is_error: bool,
    /// For the model, already bounded by the tool.
    pub content: String,
    /// For people: a unified diff of what was changed.
    pub diff: Option<String>,
    pub changes: Vec<FileChange>,
    /// Files whose content the session now knows.
    pub reads: Vec<(PathBuf, Digest)>,
}

impl Output {
    #[must_use]
    pub fn ok(content: impl Into<String>) -> Self {
        Self { content: content.into(), ..Self::default() }
    }
    #[must_use]
    pub fn error(content: impl Into<String>) -> Self {
        Self { is_error: true, content: content.into(), ..Self::default() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    pub path: PathBuf,
    /// Absent: the file did not exist before.
    pub before: Option<Digest>,
    /// Absent: the file is gone.
    pub after: Option<Digest>,
    /// Lines.
    pub added: u32,
    pub removed: u32,
    /// The bytes before and after, to be kept so that the change can be shown and taken back.
    pub contents: Contents,
}

/// What a change replaced and wrote. Empty: not to be kept, because it is large.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub before: Option<bytes::Bytes>,
    pub after: Option<bytes::Bytes>,
}

/// Why a call cannot be carried out; written for the model, names the argument and what to do instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ToolError(pub String);
