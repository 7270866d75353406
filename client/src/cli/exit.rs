//! The exit codes of agentctl, and the errors that lead to them. Scripts rely on both: a code never changes meaning.

use std::path::Path;
use std::process::ExitCode;

use agentd_protocol::turn::Outcome;

use crate::render::line::short_paths;
use crate::render::style::called;
use crate::render::{Line, Style};

/// How agentctl ends. The same on a terminal and off it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The turn, or the command, finished.
    Finished,
    /// It failed; stderr says why.
    Failed,
    /// The command line does not say exactly one thing to do.
    Usage,
    /// Detached; the turn goes on without this client.
    LeftRunning,
    /// An approval waits; stderr has its id and the next command.
    Waiting,
    /// A person denied a call, or the daemon refused the request.
    Refused,
    /// The verifier found steps of the plan that were not carried out as approved.
    Deviations,
    /// A limit ended the turn.
    Limit,
    /// No daemon answers, or one that speaks another version.
    NoDaemon,
    /// `--timeout` passed; the turn was stopped.
    Timeout,
    /// The turn was interrupted.
    Interrupted,
}

impl Exit {
    pub(crate) const ALL: [Exit; 11] = [
        Exit::Finished,
        Exit::Failed,
        Exit::Usage,
        Exit::LeftRunning,
        Exit::Waiting,
        Exit::Refused,
        Exit::Deviations,
        Exit::Limit,
        Exit::NoDaemon,
        Exit::Timeout,
        Exit::Interrupted,
    ];

    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Finished => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::LeftRunning => 3,
            Exit::Waiting => 4,
            Exit::Refused => 5,
            Exit::Deviations => 6,
            Exit::Limit => 7,
            Exit::NoDaemon => 8,
            Exit::Timeout => 124,
            Exit::Interrupted => 130,
        }
    }

    /// One line for `--help`.
    fn meaning(self) -> &'static str {
        match self {
            Exit::Finished => "finished",
            Exit::Failed => "failed, or the prompt was taken back",
            Exit::Usage => "usage: the arguments are wrong or ambiguous",
            Exit::LeftRunning => "left running: run was left, its turn goes on (attach ends with 0)",
            Exit::Waiting => "waiting for an approval; stderr has its id and the next command",
            Exit::Refused => "refused, by a person or by the daemon",
            Exit::Deviations => "the verifier found deviations from the plan (not built yet)",
            Exit::Limit => "a limit was reached",
            Exit::NoDaemon => "no daemon, or one of another version",
            Exit::Timeout => "--timeout passed; run has stopped its turn",
            Exit::Interrupted => "interrupted",
        }
    }

    /// The code for a turn that ended like this.
    pub(crate) fn of_outcome(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Finished => Exit::Finished,
            Outcome::Interrupted => Exit::Interrupted,
            Outcome::Refused => Exit::Refused,
            Outcome::Failed | Outcome::Withdrawn => Exit::Failed,
            Outcome::Limit => Exit::Limit,
        }
    }

    /// The table that every `--help` ends with.
    pub(crate) fn table() -> String {
        let mut table = String::from("Exit codes:");
        for exit in Exit::ALL {
            table.push_str(&format!("\n  {:>3}  {}", exit.code(), exit.meaning()));
        }
        table
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// Why a command stops: an exit code, what is wrong, and what to type next.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    /// What leads on: one command a line, or a sentence without one.
    pub(crate) next: Vec<Line>,
    /// Whoever read the output closed it: they have what they wanted.
    pub(crate) reader_gone: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), next: Vec::new(), reader_gone: false }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// The command to type now.
    #[must_use]
    pub(crate) fn next(self, command: impl AsRef<str>) -> Self {
        self.then("Next: ", command)
    }

    /// A command, and before it what it is for: `To see it: `.
    #[must_use]
    pub(crate) fn then(mut self, why: &str, command: impl AsRef<str>) -> Self {
        self.next.push(Line::styled(Style::Dim, why).with(Style::Command, command.as_ref()));
        self
    }

    /// A sentence that leads on where no single command does.
    #[must_use]
    pub(crate) fn advice(mut self, sentence: impl AsRef<str>) -> Self {
        self.next.push(Line::styled(Style::Dim, sentence.as_ref()));
        self
    }

    /// What leads on, as text.
    #[cfg(test)]
    pub(crate) fn told_next(&self) -> String {
        self.next.iter().map(Line::text).collect::<Vec<_>>().join("\n")
    }

    /// The same, with every command as this agentctl has to be called, see [`called`], and the home folder as `~`.
    #[must_use]
    pub(crate) fn called(mut self, program: &str, home: Option<&Path>) -> Self {
        self.message = called(&short_paths(&self.message, home), program);
        self.next = self.next.iter().map(|line| line.called(program)).collect();
        self
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Failure { reader_gone: true, ..Failure::failed("") };
        }
        Failure::failed(format!("cannot use the terminal or a file: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_those_that_scripts_know() {
        assert_eq!(Exit::ALL.map(Exit::code), [0, 1, 2, 3, 4, 5, 6, 7, 8, 124, 130]);
    }

    #[test]
    fn every_code_is_in_the_help() {
        let table = Exit::table();
        for exit in Exit::ALL {
            assert!(table.contains(&format!("{:>3}  {}", exit.code(), exit.meaning())), "{exit:?}");
        }
    }

    #[test]
    fn outcomes_have_their_codes() {
        let codes = [
            Outcome::Finished,
            Outcome::Interrupted,
            Outcome::Refused,
            Outcome::Failed,
            Outcome::Withdrawn,
            Outcome::Limit,
        ]
        .map(|outcome| Exit::of_outcome(outcome).code());
        assert_eq!(codes, [0, 130, 5, 1, 1, 7]);
    }
}
