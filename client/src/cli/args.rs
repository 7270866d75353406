//! The command line. Every help text is here.

use std::path::PathBuf;
use std::time::Duration;

use agentd_protocol::SessionId;
use agentd_protocol::changes::TurnRef;
use agentd_protocol::mode::Mode;
use clap::{Args, Parser, Subcommand, ValueEnum};

use super::exit::Exit;

/// Talks to agentd, the daemon that keeps your coding-agent sessions.
///
/// A session is one conversation in one folder. It lives in the daemon: closing the terminal stops nothing.
#[derive(Debug, Parser)]
#[command(name = "agentctl", version, after_long_help = Exit::table(), max_term_width = 100,
    after_help = "Try it without a key: agentctl demo. Exit codes: agentctl --help")]
pub(crate) struct Cli {
    /// The daemon's socket [default: AGENTD_SOCKET, else the usual one]
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Plays a bundled scenario on a sample project: no key, no network
    #[command(after_long_help = "Example:\n  agentctl demo\n  agentctl demo --auto | cat")]
    Demo(DemoArgs),
    /// Starts a session in this folder and follows it
    #[command(
        after_long_help = "Examples:\n  agentctl run --plan \"Add pagination to the list endpoint\"\n  \
        git diff | agentctl run -\n  agentctl run --json --timeout 10m \"Fix the failing test\" > events.jsonl\n\n\
        On a terminal, Ctrl-C stops the turn, and a second one leaves without waiting for its end. Elsewhere the final \
        text goes to stdout and everything else to stderr."
    )]
    Run(RunArgs),
    /// Sends a prompt to a session, without following it
    #[command(after_long_help = "Examples:\n  agentctl send \"Also update the README\"\n  \
        agentctl send api-paging-otter --at step \"Skip the tests\"\n\nFollow it with: agentctl attach")]
    Send(SendArgs),
    /// Stops the running turn of a session
    Stop(StopArgs),
    /// Shows a session live and lets you answer its approvals
    #[command(
        after_long_help = "Shows the last turn, then follows. Off a terminal it follows until the session is \
        idle. Leaving never stops anything; Ctrl-C while a turn runs stops the turn first."
    )]
    Attach(AttachArgs),
    /// Prints what was said and done, newest turns last
    #[command(
        after_long_help = "Turns are numbered from 1; show, diff and rewind take the same numbers.\n\nExamples:\n  \
        agentctl log\n  agentctl log api-paging-otter -n 1\n  agentctl log --all --json > session.jsonl"
    )]
    Log(LogArgs),
    /// Shows a session in a page, or one turn, call or message whole
    #[command(
        after_long_help = "THING is a turn (7, or '#7' in quotes), or the end of the id of a call or message, as log \
        prints it.\n\nExamples:\n  agentctl show\n  agentctl show '#7'\n  agentctl show api-paging-otter 4be1d09a"
    )]
    Show(ShowArgs),
    /// Prints events as they come, one line of JSON each
    #[command(
        after_long_help = "Without --after it begins now; --after 0 is the beginning. It goes on over a restart of the \
        daemon.\n\nExamples:\n  agentctl events --after 0 --no-follow\n  agentctl events --all | jq .type\n  agentctl events --all --after FEEDSEQ"
    )]
    Events(EventsArgs),
    /// Waits until a session is idle or needs you
    #[command(
        after_long_help = "The exit code says how it stands: that of its last turn once it is idle, 4 when it waits \
        for an approval, \
        124 when the time has passed; nothing is stopped then.\n\nExample:\n  \
        agentctl send \"Fix the tests\" && agentctl wait --timeout 10m"
    )]
    Wait(WaitArgs),
    /// Lists sessions: what needs you, what works, what is idle
    Ls(LsArgs),
    /// Makes a session of its own from what this one was
    #[command(
        after_long_help = "The fork works in the same folder and waits for its first prompt; the session it comes \
        from goes on as before. Commands without a name mean the newest session of their folder, which is then the \
        fork.\n\nExamples:\n  agentctl fork\n  agentctl fork api-paging-otter --at 120"
    )]
    Fork(ForkArgs),
    /// Lets the model forget the last turns
    #[command(
        after_long_help = "What happened can still be looked at; mode and plan stay as they are, and so do files without \
        --files.\nWith it, only what is known to be this session's own change is taken back, byte for byte;\n\
        what somebody else changed, in these turns, between them or since, stays and is named.\n\nExamples:\n  agentctl rewind\n  agentctl rewind api-paging-otter --turns 3 --files"
    )]
    Rewind(RewindArgs),
    /// Puts a session away: out of the lists until it is prompted
    Archive(ArchiveArgs),
    /// Writes a session as a document, as events, or as a bundle to move it
    #[command(
        after_long_help = "A bundle hands the session over: here it can only be looked at from then on, and whoever imports \
        the bundle goes on with it. With --copy it stays as it is. Neither keys, environment nor snapshots of files are in \
        a bundle, but what was said and read is.\n\nExamples:\n  agentctl export > session.md\n  \
        agentctl export api-paging-otter --format jsonl -o events.jsonl\n  \
        agentctl export --format bundle -o api.agentd"
    )]
    Export(ExportArgs),
    /// Goes on with a session that was exported as a bundle
    #[command(
        after_long_help = "A session that was handed over keeps its name; where it came from, it is taken back. A copy \
        becomes another session.\n\nExamples:\n  agentctl import api.agentd\n  \
        agentctl import api.agentd --cwd ~/src/api"
    )]
    Import(ImportArgs),
    /// Shows what a session changed on disk, and takes parts of it back
    #[command(
        after_long_help = "Shows everything that changed, also by commands, where the folder is in a git repository;\n\
        elsewhere what the agent's own tools changed.\n\nExamples:\n  agentctl diff --stat\n  \
        agentctl diff --turn 3\n  agentctl diff --since-plan src\n  agentctl diff --turn 3 --reject src/a.rs:2\n\n\
        --reject puts files back to how they were before; with :N only the Nth change of that file, as\nshown. \
        What you or others changed since is left as it is."
    )]
    Diff(DiffArgs),
    /// Finds what was said in any session: titles, prompts, answers
    #[command(
        after_long_help = "Every word has to be there; a word also finds longer ones that begin with it. The newest come first.\n\n\
        Examples:\n  agentctl search pagination\n  agentctl search --here cursor tests"
    )]
    Search(SearchArgs),
    /// Deletes a session and everything of it
    Rm(RmArgs),
    /// Lists every approval that waits for you, oldest first
    Waiting(WaitingArgs),
    /// Shows what waits and takes your answer
    #[command(
        after_long_help = "Without CHOICE the whole request is shown and you are asked; that needs a terminal. \
        With CHOICE, say what you have seen: --revision for a plan, --digest for anything else. `agentctl waiting` \
        prints the full command.\n\nExamples:\n  agentctl approve\n  agentctl approve 9b1c44aa execute --revision \
        3f2a9c0d1e77\n  agentctl approve keepPlanning --revision 3f2a9c0d1e77 -m \"Use cursors, not offsets\""
    )]
    Approve(ApproveArgs),
    /// Refuses what waits; a plan is kept in planning
    #[command(
        after_long_help = "With -m the session goes on with what you say. Without it the turn ends; after a plan, the agent asks \
        what should be different.\n\n\
        Example:\n  agentctl deny 9b1c44aa -m \"Do not touch the migrations\""
    )]
    Deny(DenyArgs),
    /// Shows or changes a session's mode
    #[command(
        after_long_help = "Modes: default (asks before changes), acceptEdits (edits without asking), plan \
        (changes nothing but its plan), auto (a classifier answers in your place), dontAsk (refuses what would ask), bypassPermissions (asks almost nothing).\n\n\
        Examples:\n  agentctl mode\n  agentctl mode plan\n  agentctl mode api-paging-otter accept-edits"
    )]
    Mode(ModeArgs),
    /// Says what the rules make of a command; nothing runs
    #[command(
        after_long_help = "Without a command: why the last refused call of this folder's session was refused.\n\nExamples:\n  \
        agentctl why\n  agentctl why 'git log | tee notes'\n  agentctl why --write src/lib.rs --mode plan\n  \
        agentctl why --read ~/.ssh/config"
    )]
    Why(WhyArgs),
    /// Lists the permission rules that hold here, and forgets answers
    #[command(
        after_long_help = "Rules stand in the settings, under [permissions], or come from answers: `session` until the session \
        ends, `saved` for every session of this project.\n\nExamples:\n  agentctl rules\n  \
        agentctl rules --forget 'Bash(make install)'"
    )]
    Rules(RulesArgs),
    /// Shows, opens or closes the breaker of mode auto
    #[command(
        after_long_help = "In mode auto a classifier answers instead of you. Once it has refused three calls in a row, or twenty \
        in all, the session's breaker opens and you are asked again, until you close it. With --all it is the one for all \
        sessions.\n\nExamples:\n  agentctl breaker\n  agentctl breaker close\n  agentctl breaker open --all"
    )]
    Breaker(BreakerArgs),
    /// Shows what this project would switch on, and trusts it
    #[command(
        after_long_help = "A project's settings are in .agentd/config.toml. Its deny and ask rules always hold; its allow rules, \
        mode and model count once you trust exactly what they are.\n\nExamples:\n  agentctl trust\n  \
        agentctl trust --yes 3f2a9c0d1e77\n  agentctl trust --revoke"
    )]
    Trust(TrustArgs),
    /// Settings: what holds here and who said so, and changing one
    #[command(subcommand)]
    Config(ConfigCommand),
    /// A session's plan
    #[command(subcommand)]
    Plan(PlanCommand),
    /// Keys of model providers, kept by the daemon
    #[command(subcommand)]
    Key(KeyCommand),
    /// The daemon itself
    #[command(subcommand)]
    Daemon(DaemonCommand),
    /// Calls a method of the protocol and prints the answer
    #[command(after_long_help = "Example:\n  agentctl rpc session/list '{\"order\":\"updated\"}'")]
    Rpc(RpcArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Answers by itself, saying so: one round of feedback, then execute
    #[arg(long)]
    pub(crate) auto: bool,
    /// Keeps the session as well as the sample project
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Plans first: nothing but the plan is written until you approve it
    #[arg(long)]
    pub(crate) plan: bool,
    /// The session's mode; with --plan the mode to come back to
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub(crate) mode: Option<Mode>,
    /// provider/model or provider [default: AGENTD_MODEL, settings, the key]
    #[arg(long, value_name = "P/M")]
    pub(crate) model: Option<String>,
    /// The session's folder [default: this one]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Prints every event as one line of JSON on stdout
    #[arg(long, conflicts_with = "detach")]
    pub(crate) json: bool,
    /// Prints the session's name and leaves it running, with exit code 3
    #[arg(long)]
    pub(crate) detach: bool,
    /// Stops the turn after this long: 90s, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Names the session; the same id again continues the same one
    #[arg(long, value_name = "UUID")]
    pub(crate) session_id: Option<SessionId>,
    /// What to do; - reads it from stdin
    #[arg(required = true, value_name = "PROMPT")]
    pub(crate) prompt: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// The session [default: this folder's] and what to say; - reads stdin
    #[arg(required = true, num_args = 1..=2, value_names = ["ID", "TEXT"])]
    pub(crate) words: Vec<String>,
    /// turn: after the running one; step: steers the running one
    #[arg(long, value_enum, default_value_t = AtArg::Turn)]
    pub(crate) at: AtArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum AtArg {
    Turn,
    Step,
}

#[derive(Debug, Args)]
pub(crate) struct SessionArg {
    /// A handle or the end of an id [default, and @: this folder's newest]
    pub(crate) id: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    pub(crate) session: SessionArg,
    /// Also drops the prompts that wait; without it they are held
    #[arg(long)]
    pub(crate) drop: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    pub(crate) session: SessionArg,
    /// Shows all turns from the beginning
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    #[command(flatten)]
    pub(crate) session: SessionArg,
    /// How many turns
    #[arg(short = 'n', value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) turns: u64,
    /// All turns from the beginning
    #[arg(long, conflicts_with = "turns")]
    pub(crate) all: bool,
    /// Prints the events, one line of JSON each
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// A session [default: this folder's], and what of it
    #[arg(num_args = 0..=2, value_names = ["ID", "THING"])]
    pub(crate) words: Vec<String>,
    /// Prints the session as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    pub(crate) session: SessionArg,
    /// The daemon's feed: what happens in any session
    #[arg(long, conflicts_with_all = ["id", "no_follow"])]
    pub(crate) all: bool,
    /// Begins after the event of this number: its seq, with --all its feedSeq
    #[arg(long, value_name = "SEQ")]
    pub(crate) after: Option<u64>,
    /// Text too, while it is being written
    #[arg(long)]
    pub(crate) deltas: bool,
    /// Ends with the newest event there is
    #[arg(long, conflicts_with = "deltas")]
    pub(crate) no_follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    pub(crate) session: SessionArg,
    /// Gives up after this long: 90s, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// What to wait for
    #[arg(long = "for", value_name = "WHAT", value_enum, default_value_t = WaitFor::Either)]
    pub(crate) wanted: WaitFor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitFor {
    /// Idle or waiting for you, whichever comes first
    Either,
    /// Nothing runs and nothing waits
    Idle,
    /// An approval waits for you
    Waiting,
    /// The turn that runs has ended
    Turn,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Shows every idle session, not only the newest, and archived ones
    #[arg(long)]
    pub(crate) all: bool,
    /// Prints the daemon's answer as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    #[command(flatten)]
    pub(crate) session: SessionArg,
    /// Takes nothing along that came after this event's number
    #[arg(long, value_name = "SEQ")]
    pub(crate) at: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct RewindArgs {
    #[command(flatten)]
    pub(crate) session: SessionArg,
    /// How many of the last turns are forgotten
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "turn",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) turns: u32,
    /// The first turn that is forgotten, by its number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) turn: Option<u32>,
    /// Puts files back too, except those that somebody else changed, meanwhile or since
    #[arg(long)]
    pub(crate) files: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ArchiveArgs {
    /// A handle, an id or its end, or @
    pub(crate) id: String,
    /// Takes it back into the lists
    #[arg(long)]
    pub(crate) undo: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) session: SessionArg,
    /// As what
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = ExportFormat::Markdown)]
    pub(crate) format: ExportFormat,
    /// A new file that only you can read [default: stdout; bundle: its name]
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replaces the file if it is there
    #[arg(long)]
    pub(crate) force: bool,
    /// A bundle that leaves the session as it is
    #[arg(long)]
    pub(crate) copy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// What was said and done, to be read
    Markdown,
    /// The events, one line of JSON each
    Jsonl,
    /// All of it in one file, for agentctl import
    Bundle,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The bundle
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The folder that it works in from now on [default: the one it had]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Names the session that a copy becomes; the same id again is the same one
    #[arg(long, value_name = "UUID")]
    pub(crate) session_id: Option<SessionId>,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The session [default: this folder's], then files and folders
    #[arg(value_names = ["ID", "PATH"], num_args = 0..)]
    pub(crate) words: Vec<String>,
    /// Only this turn: its number from 1, or its id
    #[arg(long, value_name = "N|ID", value_parser = turn, conflicts_with = "since_plan")]
    pub(crate) turn: Option<TurnRef>,
    /// Only what came after the last approved plan
    #[arg(long)]
    pub(crate) since_plan: bool,
    /// Counts lines and shows no diff
    #[arg(long)]
    pub(crate) stat: bool,
    /// Takes a file back, or its change N; may be given several times
    #[arg(long, value_name = "PATH[:N]", conflicts_with = "stat")]
    pub(crate) reject: Vec<String>,
    /// Prints the daemon's answer as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    /// Only sessions of this folder
    #[arg(long)]
    pub(crate) here: bool,
    /// How many places to show
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) limit: u32,
    /// Prints the daemon's answer as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// What to look for
    #[arg(required = true, value_name = "WORDS")]
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// A handle, an id or its end, or @
    pub(crate) id: String,
    /// Also a session that works or waits for an answer
    #[arg(long, short)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WaitingArgs {
    /// Prints the daemon's answer as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    /// Its id or the end of it, see agentctl waiting [default: the only one here]
    pub(crate) id: Option<String>,
    /// One of its choices, by name
    pub(crate) choice: Option<String>,
    /// The plan's revision that you have seen, 12 hex digits or more
    #[arg(long, value_name = "R")]
    pub(crate) revision: Option<String>,
    /// The digest that you have seen, 12 hex digits or more
    #[arg(long, value_name = "D", conflicts_with = "revision")]
    pub(crate) digest: Option<String>,
    /// What the session should know; the answer, once for each question
    #[arg(short = 'm', long = "message", value_name = "TEXT")]
    pub(crate) message: Vec<String>,
    /// Another mode than the choice leads to; plans only
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub(crate) mode: Option<Mode>,
    /// Opens the plan in your editor first; needs a terminal
    #[arg(long)]
    pub(crate) edit: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DenyArgs {
    /// The approval's id or its end [default: the only one of this folder]
    pub(crate) id: Option<String>,
    /// What to do instead
    #[arg(short = 'm', long = "message", value_name = "TEXT")]
    pub(crate) message: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ModeArgs {
    /// [ID] [MODE]: neither shows the mode of this folder's session
    #[arg(num_args = 0..=2, value_names = ["ID", "MODE"])]
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct BreakerArgs {
    /// [ID] [open|close]: neither shows that of this folder's session
    #[arg(num_args = 0..=2, value_names = ["ID", "ACTION"])]
    pub(crate) words: Vec<String>,
    /// The one for all sessions
    #[arg(long)]
    pub(crate) all: bool,
    /// Prints the answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RulesArgs {
    /// Takes back what an answer allowed in this project for good
    #[arg(long, value_name = "RULE", conflicts_with_all = ["session", "json"])]
    pub(crate) forget: Option<String>,
    /// Of this session [default: this folder's, else a new one's]
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Prints the answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// A folder of the project [default: this one]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Trusts what has this digest, as it was shown
    #[arg(long, value_name = "DIGEST", conflicts_with = "revoke")]
    pub(crate) yes: Option<String>,
    /// Trusts it no more
    #[arg(long)]
    pub(crate) revoke: bool,
    /// Prints the answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// A command line, in quotes if the shell would read it
    #[arg(num_args = 0.., value_name = "COMMAND", trailing_var_arg = true, conflicts_with_all = ["read", "write", "tool"])]
    pub(crate) command: Vec<String>,
    /// Asks about reading a file
    #[arg(long, value_name = "PATH")]
    pub(crate) read: Option<PathBuf>,
    /// Asks about writing a file
    #[arg(long, value_name = "PATH", conflicts_with = "read")]
    pub(crate) write: Option<PathBuf>,
    /// Asks about a call of this tool
    #[arg(long, value_name = "TOOL", conflicts_with_all = ["read", "write"])]
    pub(crate) tool: Option<String>,
    /// The arguments of --tool
    #[arg(long, value_name = "JSON", requires = "tool")]
    pub(crate) input: Option<String>,
    /// As this session's agent [default: this folder's session, else a new one]
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// In another mode than the session's
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub(crate) mode: Option<Mode>,
    /// Prints the answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// Prints the plan as it is now
    Show(SessionArg),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Prints settings, each with its value and where it comes from
    #[command(
        after_long_help = "Examples:\n  agentctl config get\n  agentctl config get permissions\n  agentctl config get mode"
    )]
    Get(ConfigGetArgs),
    /// Writes one setting; comments and layout of the file stay
    #[command(
        after_long_help = "A value is written as in the file; a text needs no quotes. A list is given whole. What a key holds: \
        agentctl config get KEY\n\nExamples:\n  agentctl config set mode plan\n  \
        agentctl config set permissions.deny '[\"Bash(rm *)\"]' --project"
    )]
    Set {
        /// permissions.allow, providers.mine.base_url, …
        #[arg(value_name = "KEY")]
        key: String,
        #[arg(value_name = "VALUE", allow_hyphen_values = true)]
        value: String,
        /// Into this project's .agentd/config.toml instead of your own file
        #[arg(long)]
        project: bool,
    },
    /// Takes one setting out of the file
    Unset {
        #[arg(value_name = "KEY")]
        key: String,
        /// Out of this project's .agentd/config.toml instead of your own file
        #[arg(long)]
        project: bool,
    },
    /// Prints where settings are read from
    Path,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigGetArgs {
    /// One key, or all below a table [default: all]
    #[arg(value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// As they hold for this session [default: for a new one in this folder]
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Prints the answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Reads a key from stdin, stores it, tries it
    #[command(
        after_long_help = "Examples:\n  agentctl key add anthropic\n  pass show openai | agentctl key add openai\n\n\
        The key is stored by the daemon in a file only you can read. It is never printed."
    )]
    Add {
        /// anthropic, openai, deepseek, …
        provider: String,
    },
    /// Takes keys from this shell's environment
    #[command(after_long_help = "Examples:\n  agentctl key import\n  agentctl key import ANTHROPIC_API_KEY")]
    Import {
        /// Variables or providers [default: every known variable that is set]
        names: Vec<String>,
    },
    /// Shows which keys are known and where they come from
    List,
    /// Forgets a stored key
    Rm { provider: String },
}

#[derive(Debug, Subcommand)]
pub(crate) enum DaemonCommand {
    /// Starts it, if it does not run
    Start {
        /// Lets sessions use the mode bypassPermissions until it stops
        #[arg(long)]
        allow_bypass: bool,
    },
    /// Stops it; running turns go on at the next start
    Stop,
    /// Shows what it is doing
    Status,
    /// Checks what it needs and says what to type
    Doctor,
    /// Makes the index of lists and search anew; nothing is lost meanwhile
    Reindex,
}

#[derive(Debug, Args)]
pub(crate) struct RpcArgs {
    /// A method, such as session/get
    pub(crate) method: String,
    /// Its parameters, as JSON; - reads them from stdin
    pub(crate) params: Option<String>,
}

fn mode(text: &str) -> Result<Mode, String> {
    text.parse().map_err(|error: agentd_protocol::mode::UnknownMode| error.to_string())
}

fn turn(text: &str) -> Result<TurnRef, String> {
    if let Ok(number) = text.parse() {
        return Ok(TurnRef::Number(number));
    }
    text.parse().map(TurnRef::Id).map_err(|_| format!("{text:?} is neither a turn's number nor its id"))
}

/// `90s`, `10m`, `2h`, `500ms`; a bare number counts seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let error = || format!("{text:?} is no duration; write 90s, 10m or 2h");
    let number: u64 = number.parse().map_err(|_| error())?;
    let milliseconds = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => return Err(error()),
    };
    match number.checked_mul(milliseconds) {
        Some(0) | None => Err(error()),
        Some(ms) => Ok(Duration::from_millis(ms)),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_says_what_it_does_in_one_line() {
        fn check(command: &clap::Command) {
            for sub in command.get_subcommands() {
                let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
                assert!(!about.is_empty() && about.len() <= 72, "{}: {about:?}", sub.get_name());
                check(sub);
            }
        }
        check(&Cli::command());
    }

    #[test]
    fn the_long_help_has_the_exit_codes() {
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("124") && help.contains("waiting for an approval"), "{help}");
    }

    #[test]
    fn the_help_fits_80_columns() {
        fn check(command: &clap::Command) {
            let help = command.clone().term_width(80).render_long_help().to_string();
            for line in help.lines() {
                assert!(line.chars().count() <= 80, "{}: {line:?}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn no_paragraph_of_the_help_is_wrapped_twice() {
        fn check(command: &clap::Command) {
            let help = command.clone().term_width(100).render_long_help().to_string();
            let lines: Vec<&str> = help.lines().collect();
            for pair in lines.windows(2) {
                // A short line in the middle of a sentence: the source broke it and the terminal did again.
                let goes_on = pair[1].starts_with(|c: char| c.is_ascii_lowercase());
                let is_short =
                    !pair[0].is_empty() && pair[0].chars().count() < 60 && !pair[0].starts_with(' ');
                assert!(!(goes_on && is_short), "{}: {pair:?}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
        assert!(
            Cli::command()
                .try_get_matches_from(["agentctl", "help", "run"])
                .is_err_and(|help| { help.kind() == clap::error::ErrorKind::DisplayHelp })
        );
    }

    #[test]
    fn printed_commands_are_known_by_their_names() {
        for sub in Cli::command().get_subcommands() {
            let name = sub.get_name();
            assert!(crate::render::style::COMMANDS.contains(&name), "{name}");
        }
    }

    #[test]
    fn durations() {
        for (text, ms) in [("90s", 90_000), ("10m", 600_000), ("2h", 7_200_000), ("5", 5000), ("250ms", 250)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)));
        }
        for text in ["", "m", "-1s", "1d", "0", "99999999999999999999s", "18446744073709551615h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn modes_are_taken_as_people_type_them() {
        let cli =
            Cli::try_parse_from(["agentctl", "run", "--plan", "--mode", "accept-edits", "do", "it"]).unwrap();
        let Command::Run(run) = cli.command else { panic!("not run") };
        assert_eq!((run.mode, run.prompt.join(" ")), (Some(Mode::AcceptEdits), "do it".to_owned()));
        assert!(Cli::try_parse_from(["agentctl", "run", "--mode", "yolo", "x"]).is_err());
        assert!(Cli::try_parse_from(["agentctl", "run"]).is_err());
    }
}
