//! What a call would do to the world, declared by its tool before anything is decided.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::shell::Line;

/// One thing that a call would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    ReadPath(PathTarget),
    WritePath(PathTarget),
    RunCommand(CommandTarget),
    /// The session's own question to a person.
    AskPerson,
    EnterPlan,
    LeavePlan,
}

/// How a call comes to touch a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Via {
    /// A tool opens it.
    #[default]
    Tool,
    /// A command that is proven to only read is given it.
    Operand,
    /// The shell opens it for a command.
    Redirect,
    /// A command that nothing is proven about is given it. It may be no path at all: only rules that close count.
    Mention,
}

/// A path, as typed and as the kernel resolved it when the call was prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathTarget {
    pub via: Via,
    /// As the model wrote it.
    pub typed: String,
    /// The absolute real path: its folder's true name, and the last component. Links in the folder are resolved; the
    /// last component is not a link that would be followed.
    pub real: PathBuf,
}

/// A shell command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTarget {
    /// The whole text handed to the shell.
    pub command: String,
    /// Where it would run.
    pub cwd: PathBuf,
    /// The text taken apart.
    pub line: Arc<Line>,
    /// Every command of it is proven to only read, and its program lies where nothing that agents write does.
    pub proven: bool,
}

impl Effect {
    /// Whether calls with only such effects may run side by side and be repeated.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        matches!(self, Effect::ReadPath(_))
    }

    /// Whether the tool itself tells which files it changed, so that it can have changed no others.
    #[must_use]
    pub fn is_told(&self) -> bool {
        match self {
            Effect::ReadPath(_) | Effect::WritePath(_) => true,
            Effect::AskPerson | Effect::EnterPlan | Effect::LeavePlan => true,
            Effect::RunCommand(_) => false,
        }
    }
}

/// For people, whole: `write /home/u/api/src/lib.rs`, `run cargo test`. Not yet made safe to draw.
impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::ReadPath(path) => write!(f, "read {}", path.real.display()),
            Effect::WritePath(path) => write!(f, "write {}", path.real.display()),
            Effect::RunCommand(command) => write!(f, "run {}", command.command),
            Effect::AskPerson => f.write_str("ask a person"),
            Effect::EnterPlan => f.write_str("enter plan mode"),
            Effect::LeavePlan => f.write_str("leave plan mode"),
        }
    }
}
