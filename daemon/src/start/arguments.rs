//! The command line of `agentd`.

use std::path::PathBuf;

#[derive(Debug, clap::Parser)]
#[command(
    name = "agentd",
    version,
    about = "Hosts coding-agent sessions. Talk to it with agentctl, which starts it when needed.",
    after_help = "Exit codes: 0 clean, 1 failure, 2 usage, 75 another agentd owns the state folder or the socket."
)]
pub(super) struct Arguments {
    /// Listen here instead of $XDG_RUNTIME_DIR/agentd/agentd.sock
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Make the mode bypassPermissions available
    #[arg(long)]
    pub allow_bypass: bool,
    /// Die by SIGKILL at a certain write of a journal, for tests: before:N, half:N, written:N, synced:N
    #[cfg(debug_assertions)]
    #[arg(long, value_name = "PLACE:N", hide = true)]
    pub die_at: Option<crate::journal::DieAt>,
    #[command(subcommand)]
    pub command: Option<Subcommand>,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Subcommand {
    /// Print the JSON Schema of the protocol
    Schema {
        /// Of the settings file instead
        #[arg(long)]
        settings: bool,
    },
    /// Serve canned model answers from FILE, for tests
    #[command(hide = true)]
    Playback {
        file: PathBuf,
        /// The address of a playback that has ended, to take its place
        #[arg(long, value_name = "URL")]
        again: Option<String>,
    },
}
