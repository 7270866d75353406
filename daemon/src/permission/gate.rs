//! The decision itself: stages in a fixed order for each effect, the strictest verdict for the call.

use std::path::{Path, PathBuf};

use agentd_protocol::mode::Mode;
use agentd_protocol::permission::{Confinement, Decision};
use agentd_protocol::session::Origin;

use super::critical::is_critical;
use super::effect::{CommandTarget, Effect, PathTarget, Via};
use super::places::{Place, Places};
use super::protected::is_protected;
use super::reason::Reason;
use super::rules::{Allowed, Anchors, Asked, Rule, Rules};

/// One question to the gate. Everything the answer depends on is in it.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    pub tool: &'a str,
    pub effects: &'a [Effect],
    /// The session's mode at this moment.
    pub mode: Mode,
    pub rules: &'a Rules,
    pub places: &'a Places,
    /// Who made the message that the turn answers.
    pub origin: Origin,
    /// The mode that whoever started the turn named for it, where that was no person.
    pub stated: Option<Mode>,
    pub sandbox: Sandbox,
    pub plan_shell: PlanShell,
}

/// What the kernel here can hold a process to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sandbox {
    /// Nothing: a process that runs has the user's rights, so a person has to know it.
    None,
    /// Every profile, as probed at start.
    Full,
}

/// `plan.shell`: whether commands may run in plan mode, inside the sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanShell {
    #[default]
    Deny,
    Confined,
}

/// What a person answered to a tool approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Yes,
    No,
}

/// What becomes of a call, from open to closed. The stricter of two is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ruling {
    Allow,
    /// Mode `auto`: its classifier decides, and a person where it does not.
    Classify,
    Ask,
    Deny,
}

impl Ruling {
    /// As clients and journals see it. What the classifier is asked about is a question until it has answered.
    #[must_use]
    pub fn decision(self) -> Decision {
        match self {
            Ruling::Allow => Decision::Allow,
            Ruling::Classify | Ruling::Ask => Decision::Ask,
            Ruling::Deny => Decision::Deny,
        }
    }
}

/// The gate's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub ruling: Ruling,
    pub reason: Reason,
    /// The rule that matched, as the user wrote it.
    pub rule: Option<String>,
    /// For calls that run a command and are not denied: the profile it runs in, or would run in after a yes.
    pub confinement: Option<Confinement>,
}

impl Verdict {
    fn new(ruling: Ruling, reason: Reason) -> Self {
        Self { ruling, reason, rule: None, confinement: None }
    }

    fn with_rule(self, rule: &Rule) -> Self {
        Self { rule: Some(rule.text().to_owned()), ..self }
    }

    /// The stricter of two, with the tighter confinement. Of two equal ones that of the earlier stage, then the first.
    fn and(self, other: Self) -> Self {
        let confinement = match (self.confinement, other.confinement) {
            (Some(one), Some(two)) => Some(tighter(one, two)),
            (one, two) => one.or(two),
        };
        let rank = |verdict: &Self| (verdict.ruling, std::cmp::Reverse(verdict.reason.stage()));
        let stricter = if rank(&other) > rank(&self) { other } else { self };
        let confinement = if stricter.ruling == Ruling::Deny { None } else { confinement };
        Self { confinement, ..stricter }
    }
}

/// May this call run?
///
/// The verdict is the strictest over the call's effects, and over the modes that hold for its turn: a turn that no
/// person started runs in the narrowest of the session's mode, its stated mode and `acceptEdits`, cell by cell.
#[must_use]
pub fn judge(query: &Query<'_>) -> Verdict {
    let verdict = judge_in(query, query.mode);
    match query.origin {
        Origin::Client => verdict,
        Origin::Program | Origin::Schedule | Origin::Trigger | Origin::Agent | Origin::Hook => {
            let verdict = verdict.and(judge_in(query, Mode::AcceptEdits));
            query.stated.map_or(verdict.clone(), |stated| verdict.and(judge_in(query, stated)))
        }
    }
}

/// May this call run now that a person has answered? The gate is asked once more, with what holds at this moment: a deny
/// rule, plan mode and agentd's own folders win over a yes. Never [`Ruling::Ask`].
#[must_use]
pub fn judge_again_after_answer(query: &Query<'_>, answer: Answer) -> Verdict {
    let now = judge(query);
    match (now.ruling, answer) {
        (Ruling::Deny, _) => now,
        (Ruling::Allow | Ruling::Classify | Ruling::Ask, Answer::No) => {
            Verdict::new(Ruling::Deny, Reason::PersonDenied)
        }
        (Ruling::Allow, Answer::Yes) => now,
        (Ruling::Classify | Ruling::Ask, Answer::Yes) => {
            Verdict { ruling: Ruling::Allow, reason: Reason::PersonAllowed, ..now }
        }
    }
}

fn judge_in(query: &Query<'_>, mode: Mode) -> Verdict {
    let stages = Stages::new(query, mode);
    query
        .effects
        .iter()
        .map(|effect| stages.judge(effect))
        .reduce(Verdict::and)
        .unwrap_or_else(|| stages.no_effect())
}

/// One effect's way through the stages, in one mode.
struct Stages<'a> {
    query: &'a Query<'a>,
    mode: Mode,
    asked: Asked<'a>,
    /// The rules that allow the call's command, if they do.
    command: Option<Allowed<'a>>,
}

impl<'a> Stages<'a> {
    fn new(query: &'a Query<'a>, mode: Mode) -> Self {
        let cwd = query.places.workspace.first().map_or(Path::new("/"), PathBuf::as_path);
        let anchors = Anchors { cwd, root: &query.places.root, home: &query.places.home };
        let asked = Asked { tool: query.tool, mode, anchors, persons: query.origin == Origin::Client };
        let command = query.effects.iter().find_map(|effect| match effect {
            Effect::RunCommand(command) => query.rules.allow_command(command, asked),
            _ => None,
        });
        Self { query, mode, asked, command }
    }

    fn judge(&self, effect: &Effect) -> Verdict {
        let verdict = self
            .deny_rule(effect)
            .or_else(|| self.own_folders(effect))
            .or_else(|| self.mention(effect))
            .or_else(|| self.own_plan(effect))
            .or_else(|| self.plan_mode(effect))
            .or_else(|| self.dangerous(effect))
            .or_else(|| self.ask_rule(Some(effect)).filter(|_| *effect != Effect::LeavePlan))
            .or_else(|| self.allow_rule(effect))
            .unwrap_or_else(|| self.table(effect));
        let confinement = match (verdict.ruling, effect) {
            (Ruling::Allow | Ruling::Classify | Ruling::Ask, Effect::RunCommand(command)) => {
                Some(self.confinement(command))
            }
            _ => None,
        };
        Verdict { confinement, ..verdict }
    }

    /// A call without effects runs, unless a rule says otherwise.
    fn no_effect(&self) -> Verdict {
        match self.query.rules.denied(None, self.asked) {
            Some(rule) => Verdict::new(Ruling::Deny, Reason::RuleDeny).with_rule(rule),
            None => self.ask_rule(None).unwrap_or(Verdict::new(Ruling::Allow, Reason::NoEffect)),
        }
    }

    /// Stage 1: deny rules hold in every mode. Where the rules cannot be read any of them may be a deny rule.
    fn deny_rule(&self, effect: &Effect) -> Option<Verdict> {
        if let Some(rule) = self.query.rules.denied(Some(effect), self.asked) {
            return Some(Verdict::new(Ruling::Deny, Reason::RuleDeny).with_rule(rule));
        }
        let harmless = match effect {
            Effect::AskPerson | Effect::LeavePlan => true,
            Effect::ReadPath(path) | Effect::WritePath(path) => self.place(path) == Place::OwnPlan,
            Effect::RunCommand(_)
            | Effect::FetchHost(_)
            | Effect::CallMcp(_)
            | Effect::SpawnAgent(_)
            | Effect::UseSkill(_)
            | Effect::Automate(_)
            | Effect::Sleep
            | Effect::EnterPlan => false,
        };
        (self.query.rules.is_unreadable() && !harmless)
            .then(|| Verdict::new(Ruling::Deny, Reason::RuleUnreadable))
    }

    /// Stage 2: nobody reads or writes agentd's own folders, lists or searches a folder around them, or reaches what is no
    /// real path.
    fn own_folders(&self, effect: &Effect) -> Option<Verdict> {
        let (path, writes) = match effect {
            Effect::ReadPath(path) => (path, false),
            Effect::WritePath(path) => (path, true),
            _ => return None,
        };
        match (self.place(path), writes) {
            // A word that is no path names nothing; a folder around agentd's is only named.
            (Place::Unresolved | Place::AroundOwn, false) if path.via == Via::Mention => None,
            (Place::Unresolved, _) => Some(Verdict::new(Ruling::Deny, Reason::PathUnresolved)),
            (Place::Own, _) | (Place::OwnReadable, true) => {
                Some(Verdict::new(Ruling::Deny, Reason::OwnFolder))
            }
            (Place::AroundOwn, _) => Some(Verdict::new(Ruling::Deny, Reason::OwnAround)),
            (Place::OwnReadable, false) => Some(Verdict::new(Ruling::Allow, Reason::OwnRead)),
            (Place::OwnPlan | Place::Workspace | Place::Elsewhere, _) => None,
        }
    }

    /// What a command only mentions: the command itself is judged, and here only what closes counts.
    fn mention(&self, effect: &Effect) -> Option<Verdict> {
        match effect {
            Effect::ReadPath(PathTarget { via: Via::Mention, .. }) => {
                Some(self.ask_rule(Some(effect)).unwrap_or(Verdict::new(Ruling::Allow, Reason::NoEffect)))
            }
            _ => None,
        }
    }

    /// Stage 3: the session's own plan file, exactly.
    fn own_plan(&self, effect: &Effect) -> Option<Verdict> {
        match effect {
            Effect::ReadPath(path) | Effect::WritePath(path)
                if path.via == Via::Tool && self.place(path) == Place::OwnPlan =>
            {
                Some(Verdict::new(Ruling::Allow, Reason::PlanOwnFile))
            }
            _ => None,
        }
    }

    /// Stage 4: what plan mode denies, whatever rules and people say.
    fn plan_mode(&self, effect: &Effect) -> Option<Verdict> {
        if self.mode != Mode::Plan {
            return None;
        }
        let reason = match effect {
            Effect::WritePath(_) => Reason::PlanWrite,
            Effect::RunCommand(_) => match (self.query.plan_shell, self.query.sandbox) {
                (PlanShell::Deny, _) => Reason::PlanCommand,
                (PlanShell::Confined, Sandbox::None) => Reason::PlanNoSandbox,
                (PlanShell::Confined, Sandbox::Full) => return None,
            },
            Effect::CallMcp(target) if !target.reads_only => Reason::PlanMcp,
            Effect::Automate(_) => Reason::PlanAutomation,
            Effect::Sleep => Reason::PlanSleep,
            Effect::ReadPath(_)
            | Effect::CallMcp(_)
            | Effect::FetchHost(_)
            | Effect::SpawnAgent(_)
            | Effect::UseSkill(_)
            | Effect::AskPerson
            | Effect::EnterPlan
            | Effect::LeavePlan => return None,
        };
        Some(Verdict::new(Ruling::Deny, reason))
    }

    /// Stage 5: protected paths and critical commands. No rule settles them; only plan mode and `dontAsk` are stricter.
    fn dangerous(&self, effect: &Effect) -> Option<Verdict> {
        let reason = match effect {
            Effect::WritePath(path) if is_protected(&path.real) => Reason::PathProtected,
            Effect::RunCommand(command) if self.is_critical(command) => Reason::CommandCritical,
            _ => return None,
        };
        Some(match self.mode {
            Mode::Default | Mode::AcceptEdits | Mode::Auto | Mode::BypassPermissions => {
                Verdict::new(Ruling::Ask, reason)
            }
            Mode::Plan | Mode::DontAsk => Verdict::new(Ruling::Deny, reason),
        })
    }

    /// Stage 6: an ask rule asks even in `bypassPermissions`. Leaving plan mode is a question already.
    fn ask_rule(&self, effect: Option<&Effect>) -> Option<Verdict> {
        let rule = self.query.rules.asked(effect, self.asked)?;
        Some(self.ask(Reason::RuleAsk, Reason::RuleAsk).with_rule(rule))
    }

    /// Stage 7: an allow rule. It never takes a person's place, and never makes a command unconfined, but where it is the
    /// answer of a person who saw that.
    fn allow_rule(&self, effect: &Effect) -> Option<Verdict> {
        match effect {
            Effect::AskPerson | Effect::LeavePlan => None,
            Effect::RunCommand(command) => {
                let allowed = self.command.filter(|_| self.mode != Mode::BypassPermissions)?;
                let confined = self.confinement(command) != Confinement::Off;
                let verdict = if confined || allowed.unconfined {
                    Verdict::new(Ruling::Allow, Reason::RuleAllow)
                } else {
                    self.ask(Reason::CommandUnconfined, Reason::CommandUnconfined)
                };
                Some(verdict.with_rule(allowed.rule))
            }
            // Whoever allows a command allows it what it is given.
            Effect::ReadPath(PathTarget { via: Via::Operand, .. }) if self.command.is_some() => {
                let allowed = self.command?;
                Some(Verdict::new(Ruling::Allow, Reason::RuleAllow).with_rule(allowed.rule))
            }
            Effect::ReadPath(_)
            | Effect::WritePath(_)
            | Effect::FetchHost(_)
            | Effect::CallMcp(_)
            | Effect::SpawnAgent(_)
            | Effect::UseSkill(_)
            | Effect::Automate(_)
            | Effect::Sleep
            | Effect::EnterPlan => {
                let rule = self.query.rules.allowed(effect, self.asked)?;
                Some(Verdict::new(Ruling::Allow, Reason::RuleAllow).with_rule(rule))
            }
        }
    }

    /// Stage 8: the table of README.md, "Modes", in full.
    fn table(&self, effect: &Effect) -> Verdict {
        match effect {
            Effect::ReadPath(path) => match self.place(path) {
                Place::OwnPlan | Place::OwnReadable | Place::Workspace => {
                    Verdict::new(Ruling::Allow, Reason::ReadWorkspace)
                }
                // The first three never come this far; closed is the safe reading.
                Place::Unresolved | Place::Own | Place::AroundOwn | Place::Elsewhere => {
                    self.beyond(Reason::ReadElsewhere)
                }
            },
            Effect::WritePath(path) => match self.place(path) {
                Place::Workspace => match self.mode {
                    Mode::Default | Mode::DontAsk => self.ask(Reason::WriteWorkspace, Reason::ModeDontAsk),
                    Mode::AcceptEdits | Mode::Auto => Verdict::new(Ruling::Allow, Reason::WriteWorkspace),
                    Mode::Plan => Verdict::new(Ruling::Deny, Reason::PlanWrite),
                    Mode::BypassPermissions => Verdict::new(Ruling::Allow, Reason::ModeBypass),
                },
                Place::Unresolved
                | Place::OwnPlan
                | Place::OwnReadable
                | Place::Own
                | Place::AroundOwn
                | Place::Elsewhere => match self.mode {
                    Mode::Plan => Verdict::new(Ruling::Deny, Reason::PlanWrite),
                    _ => self.beyond(Reason::WriteElsewhere),
                },
            },
            Effect::RunCommand(command) => self.table_command(command),
            Effect::FetchHost(_) => self.beyond(Reason::FetchHost),
            Effect::CallMcp(_) => self.beyond(Reason::McpTool),
            Effect::Automate(_) => self.beyond(Reason::Automation),
            Effect::SpawnAgent(_) | Effect::UseSkill(_) | Effect::Sleep => {
                Verdict::new(Ruling::Allow, Reason::NoEffect)
            }
            Effect::AskPerson => self.ask(Reason::PersonQuestion, Reason::ModeDontAsk),
            // The one question that `dontAsk` does not refuse: a plan would otherwise have no way out.
            Effect::LeavePlan => Verdict::new(Ruling::Ask, Reason::PlanLeave),
            Effect::EnterPlan => Verdict::new(Ruling::Allow, Reason::PlanEnter),
        }
    }

    /// The rows that a person is asked about in every mode but those that never ask.
    fn beyond(&self, reason: Reason) -> Verdict {
        match self.mode {
            Mode::Default | Mode::AcceptEdits | Mode::Plan => Verdict::new(Ruling::Ask, reason),
            Mode::Auto => Verdict::new(Ruling::Classify, reason),
            Mode::DontAsk => Verdict::new(Ruling::Deny, Reason::ModeDontAsk),
            Mode::BypassPermissions => Verdict::new(Ruling::Allow, Reason::ModeBypass),
        }
    }

    /// The rows of commands.
    fn table_command(&self, command: &CommandTarget) -> Verdict {
        match (self.mode, self.query.sandbox) {
            (Mode::BypassPermissions, _) => Verdict::new(Ruling::Allow, Reason::ModeBypass),
            (Mode::Plan, Sandbox::None) => Verdict::new(Ruling::Deny, Reason::PlanCommand),
            (_, Sandbox::Full) if command.proven => Verdict::new(Ruling::Allow, Reason::CommandReadOnly),
            (Mode::Plan | Mode::AcceptEdits, Sandbox::Full) => {
                Verdict::new(Ruling::Allow, Reason::CommandConfined)
            }
            (Mode::Auto, Sandbox::Full) => Verdict::new(Ruling::Classify, Reason::CommandConfined),
            (Mode::Default | Mode::DontAsk, Sandbox::Full) => {
                self.ask(Reason::CommandConfined, Reason::ModeDontAsk)
            }
            // Unconfined means that a person said so, and a classifier is none.
            (Mode::Default | Mode::AcceptEdits | Mode::Auto | Mode::DontAsk, Sandbox::None) => {
                self.ask(Reason::CommandUnconfined, Reason::ModeDontAsk)
            }
        }
    }

    /// Ask for one reason; in `dontAsk` deny, for the other.
    fn ask(&self, reason: Reason, refused: Reason) -> Verdict {
        match self.mode {
            Mode::DontAsk => Verdict::new(Ruling::Deny, refused),
            Mode::Default | Mode::AcceptEdits | Mode::Plan | Mode::Auto | Mode::BypassPermissions => {
                Verdict::new(Ruling::Ask, reason)
            }
        }
    }

    /// The profile that a command of this call gets if it runs.
    fn confinement(&self, command: &CommandTarget) -> Confinement {
        match (self.query.sandbox, self.mode) {
            (Sandbox::None, _) | (Sandbox::Full, Mode::BypassPermissions) => Confinement::Off,
            (Sandbox::Full, Mode::Plan) => Confinement::Plan,
            (Sandbox::Full, _) if command.proven => Confinement::Plan,
            (Sandbox::Full, Mode::Default | Mode::AcceptEdits | Mode::Auto | Mode::DontAsk) => {
                Confinement::Workspace
            }
        }
    }

    fn place(&self, path: &PathTarget) -> Place {
        self.query.places.of(&path.real)
    }

    fn is_critical(&self, command: &CommandTarget) -> bool {
        is_critical(&command.command, &command.cwd, &self.query.places.home)
    }
}

fn tighter(one: Confinement, two: Confinement) -> Confinement {
    let rights = |confinement| match confinement {
        Confinement::Plan => 0,
        Confinement::Workspace => 1,
        Confinement::Off => 2,
    };
    if rights(two) < rights(one) { two } else { one }
}
