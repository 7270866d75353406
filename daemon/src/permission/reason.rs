//! Why the gate decided as it did: a closed list of stable codes, each with one sentence for people and models.

use std::fmt;

/// The reason of a [`Verdict`](super::Verdict). Journaled and sent to clients by its code, so codes never change meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The call has no effect on the world.
    NoEffect,
    RuleDeny,
    RuleAsk,
    RuleAllow,
    /// The settings with the rules cannot be read, so no deny rule in them is known to be absent.
    RuleUnreadable,
    OwnFolder,
    /// A folder that holds agentd's own folders.
    OwnAround,
    OwnRead,
    PlanOwnFile,
    PlanWrite,
    PlanCommand,
    /// `plan.shell = "confined"`, but nothing confines here.
    PlanNoSandbox,
    PlanLeave,
    PlanEnter,
    PathProtected,
    /// A path that was not resolved to its real name. A tool's mistake; never run.
    PathUnresolved,
    CommandCritical,
    /// The command would run with the user's full rights.
    CommandUnconfined,
    CommandConfined,
    /// Every part of the command is proven to only read.
    CommandReadOnly,
    FetchHost,
    McpTool,
    Automation,
    PlanMcp,
    PlanAutomation,
    PlanSleep,
    ReadWorkspace,
    ReadElsewhere,
    WriteWorkspace,
    WriteElsewhere,
    ModeDontAsk,
    ModeBypass,
    PersonQuestion,
    PersonAllowed,
    PersonDenied,
    /// The classifier of mode `auto` said yes.
    AutoAllowed,
    AutoBlocked,
    /// It answered something that is not one of its two answers: a no.
    AutoUnreadable,
    /// It did not answer, so a person is asked.
    AutoNoAnswer,
}

impl Reason {
    pub const ALL: [Reason; 39] = [
        Reason::NoEffect,
        Reason::RuleDeny,
        Reason::RuleAsk,
        Reason::RuleAllow,
        Reason::RuleUnreadable,
        Reason::OwnFolder,
        Reason::OwnAround,
        Reason::OwnRead,
        Reason::PlanOwnFile,
        Reason::PlanWrite,
        Reason::PlanCommand,
        Reason::PlanNoSandbox,
        Reason::PlanLeave,
        Reason::PlanEnter,
        Reason::PathProtected,
        Reason::PathUnresolved,
        Reason::CommandCritical,
        Reason::CommandUnconfined,
        Reason::CommandConfined,
        Reason::CommandReadOnly,
        Reason::FetchHost,
        Reason::McpTool,
        Reason::Automation,
        Reason::PlanMcp,
        Reason::PlanAutomation,
        Reason::PlanSleep,
        Reason::ReadWorkspace,
        Reason::ReadElsewhere,
        Reason::WriteWorkspace,
        Reason::WriteElsewhere,
        Reason::ModeDontAsk,
        Reason::ModeBypass,
        Reason::PersonQuestion,
        Reason::PersonAllowed,
        Reason::PersonDenied,
        Reason::AutoAllowed,
        Reason::AutoBlocked,
        Reason::AutoUnreadable,
        Reason::AutoNoAnswer,
    ];

    /// The stable name, as journaled and on the wire.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Reason::NoEffect => "effect.none",
            Reason::RuleDeny => "rule.deny",
            Reason::RuleAsk => "rule.ask",
            Reason::RuleAllow => "rule.allow",
            Reason::RuleUnreadable => "rule.unreadable",
            Reason::OwnFolder => "own.folder",
            Reason::OwnAround => "own.around",
            Reason::OwnRead => "own.read",
            Reason::PlanOwnFile => "plan.ownFile",
            Reason::PlanWrite => "plan.write",
            Reason::PlanCommand => "plan.command",
            Reason::PlanNoSandbox => "plan.noSandbox",
            Reason::PlanLeave => "plan.leave",
            Reason::PlanEnter => "plan.enter",
            Reason::PathProtected => "path.protected",
            Reason::PathUnresolved => "path.unresolved",
            Reason::CommandCritical => "command.critical",
            Reason::CommandUnconfined => "command.unconfined",
            Reason::CommandConfined => "command.confined",
            Reason::CommandReadOnly => "command.readOnly",
            Reason::FetchHost => "fetch.host",
            Reason::McpTool => "mcp.tool",
            Reason::Automation => "automation",
            Reason::PlanMcp => "plan.mcp",
            Reason::PlanAutomation => "plan.automation",
            Reason::PlanSleep => "plan.sleep",
            Reason::ReadWorkspace => "read.workspace",
            Reason::ReadElsewhere => "read.elsewhere",
            Reason::WriteWorkspace => "write.workspace",
            Reason::WriteElsewhere => "write.elsewhere",
            Reason::ModeDontAsk => "mode.dontAsk",
            Reason::ModeBypass => "mode.bypass",
            Reason::PersonQuestion => "person.question",
            Reason::PersonAllowed => "person.allowed",
            Reason::PersonDenied => "person.denied",
            Reason::AutoAllowed => "auto.allowed",
            Reason::AutoBlocked => "auto.blocked",
            Reason::AutoUnreadable => "auto.unreadable",
            Reason::AutoNoAnswer => "auto.noAnswer",
        }
    }

    /// Which stage of the gate gives it: the earlier one is what has to be known first.
    pub(super) fn stage(self) -> u8 {
        match self {
            Reason::RuleDeny | Reason::RuleUnreadable => 1,
            Reason::OwnFolder | Reason::OwnAround | Reason::OwnRead | Reason::PathUnresolved => 2,
            Reason::PlanOwnFile => 3,
            Reason::PlanWrite
            | Reason::PlanCommand
            | Reason::PlanNoSandbox
            | Reason::PlanMcp
            | Reason::PlanAutomation
            | Reason::PlanSleep => 4,
            Reason::PathProtected | Reason::CommandCritical => 5,
            Reason::RuleAsk => 6,
            Reason::RuleAllow => 7,
            Reason::NoEffect
            | Reason::PlanLeave
            | Reason::PlanEnter
            | Reason::CommandUnconfined
            | Reason::CommandConfined
            | Reason::CommandReadOnly
            | Reason::FetchHost
            | Reason::McpTool
            | Reason::Automation
            | Reason::ReadWorkspace
            | Reason::ReadElsewhere
            | Reason::WriteWorkspace
            | Reason::WriteElsewhere
            | Reason::ModeDontAsk
            | Reason::ModeBypass
            | Reason::PersonQuestion
            | Reason::PersonAllowed
            | Reason::PersonDenied
            | Reason::AutoAllowed
            | Reason::AutoBlocked
            | Reason::AutoUnreadable
            | Reason::AutoNoAnswer => 8,
        }
    }

    /// The reason with this code.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.code() == code)
    }

    /// What the reason means and what is possible instead. Read by models as the result of a refused call, and by people
    /// on an approval; so it claims neither that the call was refused nor that it was allowed.
    #[must_use]
    pub fn explain(self) -> &'static str {
        match self {
            Reason::NoEffect => "The call changes nothing and reads nothing.",
            Reason::RuleDeny => {
                "A deny rule covers this call. It holds in every mode; work without it, or say what you need and let the \
                 user change the rule."
            }
            Reason::RuleAsk => "An ask rule says that a person decides about such a call each time.",
            Reason::RuleAllow => "An allow rule covers this call.",
            Reason::RuleUnreadable => {
                "The user's settings cannot be read, so their permission rules are not known and nothing may run until the \
                 file is mended. `agentctl daemon doctor` names the file and the line."
            }
            Reason::OwnFolder => {
                "The path is in agentd's own folders, which no session may read or change. Work in the session's folder; \
                 the session's own plan file is the one exception."
            }
            Reason::OwnAround => {
                "The folder holds agentd's own folders, which no session may read, so it cannot be listed or searched as a \
                 whole. Name a folder below it that holds the work."
            }
            Reason::OwnRead => "The file belongs to this session.",
            Reason::PlanOwnFile => "It is this session's own plan file.",
            Reason::PlanWrite => {
                "The session is in plan mode: only the plan file may be written until a person approves the plan. Put the \
                 change into the plan, and call exit_plan_mode when the plan is ready."
            }
            Reason::PlanCommand => {
                "The session is in plan mode: no command runs until a person approves the plan. Use read_file, list_files \
                 and grep_search to look around, and name in the plan the commands to run later."
            }
            Reason::PlanNoSandbox => {
                "The session is in plan mode, and the settings allow commands there only inside the sandbox, which this \
                 machine or version does not have. Use read_file, list_files and grep_search, and name in the plan the \
                 commands to run later."
            }
            Reason::PlanLeave => {
                "Only a person can approve a plan; nothing else ends plan mode with an approval."
            }
            Reason::PlanEnter => "Entering plan mode only narrows what the session may do.",
            Reason::PathProtected => {
                "The path is protected: programs read it as configuration or run it later (version control, shells, \
                 editors, build and CI settings), so a person decides about each change."
            }
            Reason::PathUnresolved => {
                "The path could not be resolved to its real place. Give it as an absolute path, or relative to the \
                 session's folder, without links on the way."
            }
            Reason::CommandCritical => {
                "The command looks as if it could destroy a system, a home folder or a whole project, so a person decides \
                 about it. A narrower command that names exact paths may not need that."
            }
            Reason::CommandUnconfined => {
                "The command would run with the user's full rights, so a person decides about each one. The file tools \
                 may be able to do the same without a question."
            }
            Reason::CommandConfined => "The command runs inside the sandbox.",
            Reason::CommandReadOnly => {
                "Every part of the command is known to only read, and runs where nothing can be written."
            }
            Reason::FetchHost => "It sends a request to another machine, so a person decides about it.",
            Reason::McpTool => {
                "What a tool of an MCP server does is not known, so a person decides about it."
            }
            Reason::Automation => {
                "It reaches beyond this turn (schedules, triggers, memory, other agents, work trees), so a person decides \
                 about it."
            }
            Reason::PlanMcp => {
                "The session is in plan mode: tools of MCP servers wait until a person approves the plan, but for those \
                 that the user's own settings name as reading only. Name in the plan what to call later."
            }
            Reason::PlanAutomation => {
                "The session is in plan mode: nothing that lasts beyond it is set up until a person approves the plan. \
                 Put it into the plan."
            }
            Reason::PlanSleep => "The session is in plan mode, where waiting serves nothing. Go on planning.",
            Reason::ReadWorkspace => "It reads in the session's folder.",
            Reason::ReadElsewhere => {
                "The path is outside the session's folder, so a person decides about reading it. Paths inside are read \
                 freely."
            }
            Reason::WriteWorkspace => {
                "It writes in the session's folder. Only a mode that accepts edits leaves that to the session; elsewhere a \
                 person decides about each change."
            }
            Reason::WriteElsewhere => {
                "The path is outside the session's folder, so a person decides about changing it."
            }
            Reason::ModeDontAsk => {
                "The session is in mode dontAsk, which refuses whatever a person would have to be asked about. Go on \
                 without it; the user can change the mode with `agentctl mode`."
            }
            Reason::ModeBypass => "The session is in mode bypassPermissions.",
            Reason::PersonQuestion => "A question to a person waits for that person's answer.",
            Reason::PersonAllowed => "A person allowed exactly this call.",
            Reason::PersonDenied => "A person denied this call.",
            Reason::AutoAllowed => "The classifier of mode auto allowed this call.",
            Reason::AutoBlocked => {
                "The classifier of mode auto blocked this call: it found nothing that the person asked for in it, or too much \
                 else. Do not try the same by another way. Go on without it, or say what you need and why, and let the person \
                 decide."
            }
            Reason::AutoUnreadable => {
                "The classifier of mode auto gave no answer that can be read, which counts as a no. Do not try the same by \
                 another way. Go on without it, or say what you need and why, and let the person decide."
            }
            Reason::AutoNoAnswer => {
                "The classifier of mode auto did not answer, so a person decides about this call."
            }
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn codes_are_distinct_and_found_again() {
        let codes: HashSet<&str> = Reason::ALL.iter().map(|reason| reason.code()).collect();
        assert_eq!(codes.len(), Reason::ALL.len());
        for reason in Reason::ALL {
            assert_eq!(Reason::from_code(reason.code()), Some(reason));
        }
        assert_eq!(Reason::from_code("plan"), None);
    }

    #[test]
    fn every_explanation_is_whole_sentences_on_one_line() {
        for reason in Reason::ALL {
            let text = reason.explain();
            assert!(text.ends_with('.'), "{reason}: {text}");
            assert!(!text.contains('\n') && !text.contains("  "), "{reason}: {text}");
        }
    }

    #[test]
    fn what_plan_mode_refuses_says_what_is_possible_instead() {
        assert!(Reason::PlanWrite.explain().contains("exit_plan_mode"));
        assert!(Reason::PlanCommand.explain().contains("read_file"));
        assert!(Reason::PlanNoSandbox.explain().contains("grep_search"));
    }
}
