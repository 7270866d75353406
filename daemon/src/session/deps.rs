//! What every session of a daemon shares. Passed in, never global, so that two daemons can live in one process.

use std::path::PathBuf;
use std::sync::Arc;

use agentd_protocol::Mode;
use tokio_util::sync::CancellationToken;

use super::models::Models;
use super::policies::{Policies, Standing};
use crate::clock::Clock;
use crate::config::AutoSettings;
use crate::context::PlanCommands;
use crate::ids::{DaemonId, Digest};
use crate::journal::JournalService;
use crate::paths::Paths;
use crate::permission::{PlanShell, Rules, Sandbox};
use crate::store::kept::KeptState;
use crate::tool::Tool;
use crate::workspace::snapshot::Snapshots;

pub struct Deps {
    pub clock: Clock,
    pub paths: Arc<Paths>,
    pub journals: Arc<JournalService>,
    pub models: Arc<Models>,
    pub tools: Toolbox,
    pub snapshots: Snapshots,
    pub policies: Arc<Policies>,
    /// What persons have said about whole projects.
    pub kept: Arc<KeptState>,
    /// agentd's own folders and the user's home, canonical.
    pub own: Vec<PathBuf>,
    pub home: PathBuf,
    /// The user's name, for the environment of processes.
    pub user: String,
    /// Names of variables that a client's environment may bring besides the usual ones.
    pub shell_env: Vec<String>,
    pub daemon_id: DaemonId,
    /// `user:<uid>`.
    pub principal: String,
    /// After which pause a session tries again what the disk did not take.
    pub storage_retry: std::time::Duration,
    /// The last phase of a shutdown: every session's task ends.
    pub leave: CancellationToken,
}

/// Which breakers of mode `auto` are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breakers {
    /// The session's.
    pub own: bool,
    /// The one for all sessions.
    pub everywhere: bool,
}

/// What the settings and this host allow in one project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub rules: Rules,
    pub plan_shell: PlanShell,
    pub sandbox: Sandbox,
    pub bypass_enabled: bool,
    pub auto: AutoSettings,
    /// Mode of new sessions that name none.
    pub mode: Mode,
    /// Model of new sessions that name none, where a trusted project says so.
    pub model: Option<String>,
    /// What the project would switch on, if anything, and what a person has said to that.
    pub trust: Option<(Digest, Standing)>,
}

impl Policy {
    /// What the guidance of plan mode says about commands.
    #[must_use]
    pub fn commands_in_plan(&self) -> PlanCommands {
        match (self.plan_shell, self.sandbox) {
            (PlanShell::Confined, Sandbox::Full) => PlanCommands::Confined,
            _ => PlanCommands::Refused,
        }
    }

    /// Whether a session may be put into `mode`, and why not.
    ///
    /// # Errors
    /// A sentence for the person who asked.
    pub fn mode_available(&self, mode: Mode, breakers: Breakers) -> Result<(), String> {
        match mode {
            Mode::Auto if !self.auto.enabled => {
                Err("mode auto is shut by the settings: enabled under [auto] in config.toml. Use acceptEdits or default"
                    .into())
            }
            Mode::Auto if breakers.everywhere => Err("mode auto is shut for all sessions: its breaker is open. To \
                 close it: agentctl breaker close --all"
                .into()),
            Mode::Auto if breakers.own => Err("mode auto is shut in this session: its breaker is open, because the \
                 classifier has refused too much or somebody opened it. To close it: agentctl breaker close"
                .into()),
            Mode::BypassPermissions if !self.bypass_enabled => {
                Err("bypassPermissions is not enabled. Type: agentctl daemon stop; agentctl daemon start \
                 --allow-bypass. Or for good: allow_bypass = true under [permissions] in config.toml, then agentctl \
                 daemon stop"
                    .into())
            }
            _ => Ok(()),
        }
    }

    /// The mode that a remembered one becomes when it is returned to.
    #[must_use]
    pub fn still_available(&self, mode: Mode, breakers: Breakers) -> Mode {
        if self.mode_available(mode, breakers).is_ok() { mode } else { Mode::Default }
    }
}

/// The tools, in the fixed order in which every session lists them.
#[derive(Clone)]
pub struct Toolbox(Arc<[Arc<dyn Tool>]>);

impl Toolbox {
    #[must_use]
    pub fn new(tools: Vec<Arc<dyn Tool>>) -> Self {
        Self(tools.into())
    }

    #[must_use]
    pub fn find(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.0.iter().find(|tool| tool.spec().name == name).cloned()
    }

    #[must_use]
    pub fn specs(&self) -> Vec<crate::model::message::ToolSpec> {
        self.0.iter().map(|tool| tool.spec()).collect()
    }
}
