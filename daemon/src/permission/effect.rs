//! What a call would do to the world, declared by its tool before anything is decided.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::shell::Line;
use crate::ids::Digest;

/// One thing that a call would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    ReadPath(PathTarget),
    WritePath(PathTarget),
    RunCommand(CommandTarget),
    /// Sends a request to a host and reads its answer.
    FetchHost(HostTarget),
    /// Calls a tool of a server that agentd knows nothing about.
    CallMcp(McpTarget),
    /// Starts a child with this profile.
    SpawnAgent(String),
    /// Takes the text of a skill into the context.
    UseSkill(String),
    /// Reaches into what comes after this turn, or into another session.
    Automate(Automation),
    /// Lets time pass inside a turn.
    Sleep,
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostTarget {
    /// In lower case, without a dot at its end.
    pub host: String,
    pub url: String,
}

/// A tool of an MCP server, and what the server's name stands for at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpTarget {
    pub server: String,
    pub tool: String,
    pub layer: McpLayer,
    /// Digest of the server's command and arguments, or its URL: a rule given for one thing never covers another of the
    /// same name.
    pub identity: Digest,
    /// The user's own settings name the tool as one that only reads.
    pub reads_only: bool,
}

/// Whose settings name an MCP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum McpLayer {
    User,
    Project,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Automation {
    Schedule,
    Trigger,
    Memory,
    Message,
    Worktree,
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
            Effect::ReadPath(_) | Effect::WritePath(_) | Effect::FetchHost(_) | Effect::UseSkill(_) => true,
            Effect::AskPerson | Effect::EnterPlan | Effect::LeavePlan | Effect::Sleep => true,
            Effect::RunCommand(_) | Effect::CallMcp(_) | Effect::SpawnAgent(_) | Effect::Automate(_) => false,
        }
    }

    /// Whether it is worth a line to whoever decides. What a command only mentions stands in the command.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        !matches!(self, Effect::ReadPath(PathTarget { via: Via::Mention, .. }))
    }
}

impl Automation {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Automation::Schedule => "change a schedule",
            Automation::Trigger => "change a trigger",
            Automation::Memory => "write memory",
            Automation::Message => "message an agent",
            Automation::Worktree => "make a work tree",
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
            Effect::FetchHost(host) => write!(f, "fetch {}", host.url),
            Effect::CallMcp(mcp) => write!(f, "call {} of {}", mcp.tool, mcp.server),
            Effect::SpawnAgent(name) => write!(f, "start agent {name}"),
            Effect::UseSkill(name) => write!(f, "use skill {name}"),
            Effect::Automate(what) => f.write_str(what.name()),
            Effect::Sleep => f.write_str("wait"),
            Effect::AskPerson => f.write_str("ask a person"),
            Effect::EnterPlan => f.write_str("enter plan mode"),
            Effect::LeavePlan => f.write_str("leave plan mode"),
        }
    }
}
