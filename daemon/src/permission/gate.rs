//! The decision itself: stages in a fixed order for each effect, the strictest verdict for the call.

use agentd_protocol::mode::Mode;
use agentd_protocol::permission::{Confinement, Decision};
use agentd_protocol::session::Origin;

use super::critical::is_critical;
use super::effect::{CommandTarget, Effect, PathTarget};
use super::places::{Place, Places};
use super::protected::is_protected;
use super::reason::Reason;
use super::rules::{Matched, Rules};

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

    fn with_rule(self, rule: &str) -> Self {
        Self { rule: Some(rule.to_owned()), ..self }
    }

    /// The stricter of two, with the tighter confinement. Of two equal ones the first.
    fn and(self, other: Self) -> Self {
        let confinement = match (self.confinement, other.confinement) {
            (Some(one), Some(two)) => Some(tighter(one, two)),
            (one, two) => one.or(two),
        };
        let stricter = if other.ruling > self.ruling { other } else { self };
        let confinement = if stricter.ruling == Ruling::Deny { None } else { confinement };
        Self { confinement, ..stricter }
    }
}

/// May this call run?
///
/// The verdict is the strictest over the call's effects, and over the modes that hold for its turn: a turn that no
/// person started runs in the narrower of the session's mode and `acceptEdits`, cell by cell.
#[must_use]
pub fn judge(query: &Query<'_>) -> Verdict {
    let verdict = judge_in(query, query.mode);
    match query.origin {
        Origin::Client => verdict,
        Origin::Program | Origin::Schedule | Origin::Trigger | Origin::Agent | Origin::Hook => {
            verdict.and(judge_in(query, Mode::AcceptEdits))
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
    let stages = Stages { query, mode, matched: query.rules.find(query.tool) };
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
    matched: Matched<'a>,
}

impl Stages<'_> {
    fn judge(&self, effect: &Effect) -> Verdict {
        let verdict = self
            .deny_rule(effect)
            .or_else(|| self.own_folders(effect))
            .or_else(|| self.own_plan(effect))
            .or_else(|| self.plan_mode(effect))
            .or_else(|| self.dangerous(effect))
            .or_else(|| self.ask_rule().filter(|_| *effect != Effect::LeavePlan))
            .or_else(|| self.allow_rule(effect))
            .unwrap_or_else(|| self.table(effect));
        let confinement = match (verdict.ruling, effect) {
            (Ruling::Allow | Ruling::Classify | Ruling::Ask, Effect::RunCommand(_)) => {
                Some(self.confinement())
            }
            _ => None,
        };
        Verdict { confinement, ..verdict }
    }

    /// A call without effects runs, unless a rule says otherwise.
    fn no_effect(&self) -> Verdict {
        match self.matched {
            Matched::Deny(rule) => Verdict::new(Ruling::Deny, Reason::RuleDeny).with_rule(rule),
            Matched::Ask(_) | Matched::Allow(_) | Matched::None | Matched::Unreadable => {
                self.ask_rule().unwrap_or(Verdict::new(Ruling::Allow, Reason::NoEffect))
            }
        }
    }

    /// Stage 1: deny rules hold in every mode. Where the rules cannot be read any of them may be a deny rule.
    fn deny_rule(&self, effect: &Effect) -> Option<Verdict> {
        match self.matched {
            Matched::Deny(rule) => Some(Verdict::new(Ruling::Deny, Reason::RuleDeny).with_rule(rule)),
            Matched::Unreadable => {
                let harmless = match effect {
                    Effect::AskPerson | Effect::LeavePlan => true,
                    Effect::ReadPath(path) | Effect::WritePath(path) => self.place(path) == Place::OwnPlan,
                    Effect::RunCommand(_) | Effect::EnterPlan => false,
                };
                (!harmless).then(|| Verdict::new(Ruling::Deny, Reason::RuleUnreadable))
            }
            Matched::Ask(_) | Matched::Allow(_) | Matched::None => None,
        }
    }

    /// Stage 2: nobody reads or writes agentd's own folders, lists or searches a folder around them, or reaches what is no
    /// real path.
    fn own_folders(&self, effect: &Effect) -> Option<Verdict> {
        let (place, writes) = match effect {
            Effect::ReadPath(path) => (self.place(path), false),
            Effect::WritePath(path) => (self.place(path), true),
            Effect::RunCommand(_) | Effect::AskPerson | Effect::EnterPlan | Effect::LeavePlan => return None,
        };
        match (place, writes) {
            (Place::Unresolved, _) => Some(Verdict::new(Ruling::Deny, Reason::PathUnresolved)),
            (Place::Own, _) | (Place::OwnReadable, true) => {
                Some(Verdict::new(Ruling::Deny, Reason::OwnFolder))
            }
            (Place::AroundOwn, _) => Some(Verdict::new(Ruling::Deny, Reason::OwnAround)),
            (Place::OwnReadable, false) => Some(Verdict::new(Ruling::Allow, Reason::OwnRead)),
            (Place::OwnPlan | Place::Workspace | Place::Elsewhere, _) => None,
        }
    }

    /// Stage 3: the session's own plan file, exactly.
    fn own_plan(&self, effect: &Effect) -> Option<Verdict> {
        match effect {
            Effect::ReadPath(path) | Effect::WritePath(path) if self.place(path) == Place::OwnPlan => {
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
            Effect::ReadPath(_) | Effect::AskPerson | Effect::EnterPlan | Effect::LeavePlan => return None,
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
    fn ask_rule(&self) -> Option<Verdict> {
        match self.matched {
            Matched::Ask(rule) => Some(self.ask(Reason::RuleAsk, Reason::RuleAsk).with_rule(rule)),
            Matched::Deny(_) | Matched::Allow(_) | Matched::None | Matched::Unreadable => None,
        }
    }

    /// Stage 7: an allow rule. It never takes a person's place, and never makes a command unconfined.
    fn allow_rule(&self, effect: &Effect) -> Option<Verdict> {
        let Matched::Allow(rule) = self.matched else { return None };
        let verdict = match effect {
            Effect::AskPerson | Effect::LeavePlan => return None,
            Effect::RunCommand(_) if self.mode == Mode::BypassPermissions => return None,
            Effect::RunCommand(_) if self.confinement() == Confinement::Off => {
                self.ask(Reason::CommandUnconfined, Reason::CommandUnconfined)
            }
            Effect::RunCommand(_) | Effect::ReadPath(_) | Effect::WritePath(_) | Effect::EnterPlan => {
                Verdict::new(Ruling::Allow, Reason::RuleAllow)
            }
        };
        Some(verdict.with_rule(rule))
    }

    /// Stage 8: the table of README.md, "Modes", in full. `auto` cannot be entered yet: its breaker counts as open, which makes it `default`.
    fn table(&self, effect: &Effect) -> Verdict {
        match effect {
            Effect::ReadPath(path) => match self.place(path) {
                Place::OwnPlan | Place::OwnReadable | Place::Workspace => {
                    Verdict::new(Ruling::Allow, Reason::ReadWorkspace)
                }
                // The first three never come this far; closed is the safe reading.
                Place::Unresolved | Place::Own | Place::AroundOwn | Place::Elsewhere => match self.mode {
                    Mode::Default | Mode::AcceptEdits | Mode::Plan | Mode::Auto | Mode::DontAsk => {
                        self.ask(Reason::ReadElsewhere, Reason::ModeDontAsk)
                    }
                    Mode::BypassPermissions => Verdict::new(Ruling::Allow, Reason::ModeBypass),
                },
            },
            Effect::WritePath(path) => match self.place(path) {
                Place::Workspace => match self.mode {
                    Mode::Default | Mode::Auto | Mode::DontAsk => {
                        self.ask(Reason::WriteWorkspace, Reason::ModeDontAsk)
                    }
                    Mode::AcceptEdits => Verdict::new(Ruling::Allow, Reason::WriteWorkspace),
                    Mode::Plan => Verdict::new(Ruling::Deny, Reason::PlanWrite),
                    Mode::BypassPermissions => Verdict::new(Ruling::Allow, Reason::ModeBypass),
                },
                Place::Unresolved
                | Place::OwnPlan
                | Place::OwnReadable
                | Place::Own
                | Place::AroundOwn
                | Place::Elsewhere => match self.mode {
                    Mode::Default | Mode::AcceptEdits | Mode::Auto | Mode::DontAsk => {
                        self.ask(Reason::WriteElsewhere, Reason::ModeDontAsk)
                    }
                    Mode::Plan => Verdict::new(Ruling::Deny, Reason::PlanWrite),
                    Mode::BypassPermissions => Verdict::new(Ruling::Allow, Reason::ModeBypass),
                },
            },
            Effect::RunCommand(_) => self.table_command(),
            Effect::AskPerson => self.ask(Reason::PersonQuestion, Reason::ModeDontAsk),
            // The one question that `dontAsk` does not refuse: a plan would otherwise have no way out.
            Effect::LeavePlan => Verdict::new(Ruling::Ask, Reason::PlanLeave),
            Effect::EnterPlan => Verdict::new(Ruling::Allow, Reason::PlanEnter),
        }
    }

    /// The rows of commands. That a command only reads is not proven by anything yet, so none is treated so.
    fn table_command(&self) -> Verdict {
        match (self.mode, self.query.sandbox) {
            (Mode::BypassPermissions, _) => Verdict::new(Ruling::Allow, Reason::ModeBypass),
            (Mode::Plan | Mode::AcceptEdits, Sandbox::Full) => {
                Verdict::new(Ruling::Allow, Reason::CommandConfined)
            }
            (Mode::Plan, Sandbox::None) => Verdict::new(Ruling::Deny, Reason::PlanCommand),
            (Mode::Default | Mode::Auto | Mode::DontAsk, Sandbox::Full) => {
                self.ask(Reason::CommandConfined, Reason::ModeDontAsk)
            }
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
    fn confinement(&self) -> Confinement {
        match (self.query.sandbox, self.mode) {
            (Sandbox::None, _) | (Sandbox::Full, Mode::BypassPermissions) => Confinement::Off,
            (Sandbox::Full, Mode::Plan) => Confinement::Plan,
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
