//! The gate's specification: [`rows`] as pages of text, and here what a page does not say well.

use std::sync::Arc;

use agentd_protocol::mode::Mode;
use agentd_protocol::permission::Confinement;
use agentd_protocol::session::Origin;

use super::effect::{CommandTarget, Effect, PathTarget, Via};
use super::shell::analyse;
use super::{
    Answer, Layer, List, Places, PlanShell, Query, Reason, RuleText, Rules, Ruling, Sandbox, judge,
    judge_again_after_answer,
};

mod properties;
mod rows;

use super::Ruling::{Allow, Ask, Deny};

const PLAN: &str = "/home/u/.local/state/agentd/plans/api-paging.md";
const CWD: &str = "/home/u/api";

fn places() -> Places {
    Places {
        workspace: vec![CWD.into()],
        root: CWD.into(),
        own: vec![
            "/home/u/.config/agentd".into(),
            "/home/u/.local/state/agentd".into(),
            "/run/user/1000/agentd".into(),
        ],
        plan_file: Some(PLAN.into()),
        own_readable: vec!["/home/u/.local/state/agentd/sessions/1/blobs".into()],
        home: "/home/u".into(),
    }
}

fn rules<T: AsRef<str>>(deny: &[T], ask: &[T], allow: &[T]) -> Rules {
    let texts = [(List::Deny, deny), (List::Ask, ask), (List::Allow, allow)]
        .into_iter()
        .flat_map(|(list, texts)| {
            texts.iter().map(move |text| RuleText {
                list,
                text: text.as_ref().to_owned(),
                layer: Layer::User,
                place: None,
            })
        })
        .collect();
    Rules::parse(texts).0
}

fn read(path: &str) -> Effect {
    Effect::ReadPath(PathTarget { via: Via::Tool, typed: path.into(), real: path.into() })
}

fn write(path: &str) -> Effect {
    Effect::WritePath(PathTarget { via: Via::Tool, typed: path.into(), real: path.into() })
}

fn run(command: &str) -> Effect {
    Effect::RunCommand(CommandTarget {
        command: command.into(),
        cwd: CWD.into(),
        line: Arc::new(analyse(command)),
        proven: false,
    })
}

/// A query in which a test changes what it is about.
#[derive(Clone, Debug)]
struct Case {
    tool: &'static str,
    effects: Vec<Effect>,
    mode: Mode,
    rules: Rules,
    origin: Origin,
    sandbox: Sandbox,
    plan_shell: PlanShell,
}

impl Case {
    fn new(effect: Effect, mode: Mode) -> Self {
        let tool = match &effect {
            Effect::ReadPath(_) => "read_file",
            Effect::WritePath(_) => "write_file",
            Effect::RunCommand(_) => "run_shell",
            Effect::FetchHost(_) => "web_fetch",
            Effect::CallMcp(_) => "mcp",
            Effect::SpawnAgent(_) => "agent",
            Effect::UseSkill(_) => "skill",
            Effect::Automate(_) => "schedule",
            Effect::Sleep => "sleep",
            Effect::AskPerson => "ask_user_question",
            Effect::EnterPlan => "enter_plan_mode",
            Effect::LeavePlan => "exit_plan_mode",
        };
        Self {
            tool,
            effects: vec![effect],
            mode,
            rules: Rules::default(),
            origin: Origin::Client,
            sandbox: Sandbox::None,
            plan_shell: PlanShell::Deny,
        }
    }

    fn deny(mut self) -> Self {
        self.rules = rules(&[self.tool], &[], &[]);
        self
    }

    fn ask(mut self) -> Self {
        self.rules = rules(&[], &[self.tool], &[]);
        self
    }

    fn allow(mut self) -> Self {
        self.rules = rules(&[], &[], &[self.tool]);
        self
    }

    fn unreadable(mut self) -> Self {
        self.rules = Rules::unreadable();
        self
    }

    fn by(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    fn with(mut self, sandbox: Sandbox, plan_shell: PlanShell) -> Self {
        self.sandbox = sandbox;
        self.plan_shell = plan_shell;
        self
    }

    fn asked<T>(&self, ask: impl FnOnce(&Query<'_>) -> T) -> T {
        ask(&Query {
            tool: self.tool,
            effects: &self.effects,
            mode: self.mode,
            rules: &self.rules,
            places: &places(),
            origin: self.origin,
            stated: None,
            sandbox: self.sandbox,
            plan_shell: self.plan_shell,
        })
    }

    fn judged(&self) -> (Ruling, Reason) {
        let verdict = self.asked(judge);
        (verdict.ruling, verdict.reason)
    }

    fn answered(&self, answer: Answer) -> (Ruling, Reason, Option<Confinement>) {
        let verdict = self.asked(|query| judge_again_after_answer(query, answer));
        (verdict.ruling, verdict.reason, verdict.confinement)
    }
}

#[test]
fn earlier_stages_win() {
    use Reason::*;
    let code = "/home/u/api/src/lib.rs";
    let own = "/home/u/.config/agentd/config.toml";
    let hook = "/home/u/api/.git/hooks/pre-push";
    for (name, case, expected) in [
        ("deny over own folders", Case::new(write(own), Mode::Default).deny(), (Deny, RuleDeny)),
        ("deny over own plan", Case::new(write(PLAN), Mode::Plan).deny(), (Deny, RuleDeny)),
        ("deny over plan mode", Case::new(write(code), Mode::Plan).deny(), (Deny, RuleDeny)),
        ("deny in bypass", Case::new(read(code), Mode::BypassPermissions).deny(), (Deny, RuleDeny)),
        ("deny of leaving", Case::new(Effect::LeavePlan, Mode::Plan).deny(), (Deny, RuleDeny)),
        ("own folders over bypass", Case::new(write(own), Mode::BypassPermissions), (Deny, OwnFolder)),
        ("own folders over plan mode", Case::new(write(own), Mode::Plan), (Deny, OwnFolder)),
        ("own folders over ask", Case::new(read(own), Mode::Default).ask(), (Deny, OwnFolder)),
        ("own folders over allow", Case::new(read(own), Mode::Default).allow(), (Deny, OwnFolder)),
        ("own plan over plan mode", Case::new(write(PLAN), Mode::Plan), (Allow, PlanOwnFile)),
        ("own plan over ask", Case::new(write(PLAN), Mode::Plan).ask(), (Allow, PlanOwnFile)),
        ("own plan over dontAsk", Case::new(write(PLAN), Mode::DontAsk), (Allow, PlanOwnFile)),
        ("plan mode over protected", Case::new(write(hook), Mode::Plan), (Deny, PlanWrite)),
        ("plan mode over critical", Case::new(run("rm -rf /"), Mode::Plan), (Deny, PlanCommand)),
        ("plan mode over ask", Case::new(write(code), Mode::Plan).ask(), (Deny, PlanWrite)),
        ("plan mode over allow", Case::new(write(code), Mode::Plan).allow(), (Deny, PlanWrite)),
        ("plan mode over allowed commands", Case::new(run("ls"), Mode::Plan).allow(), (Deny, PlanCommand)),
        ("protected over ask", Case::new(write(hook), Mode::Default).ask(), (Ask, PathProtected)),
        ("protected over allow", Case::new(write(hook), Mode::Default).allow(), (Ask, PathProtected)),
        ("protected over bypass", Case::new(write(hook), Mode::BypassPermissions), (Ask, PathProtected)),
        ("critical over allow", Case::new(run("rm -rf /"), Mode::Default).allow(), (Ask, CommandCritical)),
        ("ask over the table", Case::new(read(code), Mode::Default).ask(), (Ask, RuleAsk)),
        ("ask in bypass", Case::new(write(code), Mode::BypassPermissions).ask(), (Ask, RuleAsk)),
        ("ask in dontAsk", Case::new(read(code), Mode::DontAsk).ask(), (Deny, RuleAsk)),
        ("ask in acceptEdits", Case::new(write(code), Mode::AcceptEdits).ask(), (Ask, RuleAsk)),
        ("allow over the table", Case::new(write(code), Mode::Default).allow(), (Allow, RuleAllow)),
        ("allow in dontAsk", Case::new(write(code), Mode::DontAsk).allow(), (Allow, RuleAllow)),
        ("allow elsewhere", Case::new(read("/etc/hosts"), Mode::Plan).allow(), (Allow, RuleAllow)),
    ] {
        assert_eq!(case.judged(), expected, "{name}");
    }
}

#[test]
fn an_allow_rule_never_makes_a_command_unconfined() {
    use Reason::*;
    let row = [
        (Ask, CommandUnconfined),
        (Ask, CommandUnconfined),
        (Deny, PlanCommand),
        (Ask, CommandUnconfined),
        (Deny, CommandUnconfined),
        (Allow, ModeBypass),
    ];
    for (mode, expected) in Mode::ALL.into_iter().zip(row) {
        assert_eq!(Case::new(run("ls"), mode).allow().judged(), expected, "{mode}");
    }
    let confined = Case::new(run("ls"), Mode::Default).allow().with(Sandbox::Full, PlanShell::Deny);
    let verdict = confined.asked(judge);
    assert_eq!((verdict.ruling, verdict.confinement), (Allow, Some(Confinement::Workspace)));
}

#[test]
fn confinement_is_said_for_commands_that_may_run() {
    for (sandbox, mode, expected) in [
        (Sandbox::None, Mode::Default, Some(Confinement::Off)),
        (Sandbox::None, Mode::AcceptEdits, Some(Confinement::Off)),
        (Sandbox::None, Mode::BypassPermissions, Some(Confinement::Off)),
        (Sandbox::None, Mode::Plan, None),
        (Sandbox::None, Mode::DontAsk, None),
        (Sandbox::Full, Mode::Default, Some(Confinement::Workspace)),
        (Sandbox::Full, Mode::AcceptEdits, Some(Confinement::Workspace)),
        (Sandbox::Full, Mode::BypassPermissions, Some(Confinement::Off)),
        (Sandbox::Full, Mode::Plan, Some(Confinement::Plan)),
    ] {
        let case = Case::new(run("ls"), mode).with(sandbox, PlanShell::Confined);
        assert_eq!(case.asked(judge).confinement, expected, "{sandbox:?} {mode}");
    }
    assert_eq!(Case::new(read(CWD), Mode::Default).asked(judge).confinement, None);
}

#[test]
fn the_strictest_effect_decides() {
    use Reason::*;
    let mut case = Case::new(read("/home/u/api/a"), Mode::AcceptEdits);
    case.effects = vec![read("/home/u/api/a"), write("/home/u/api/a")];
    assert_eq!(case.judged(), (Allow, ReadWorkspace));
    case.effects.push(read("/etc/hosts"));
    assert_eq!(case.judged(), (Ask, ReadElsewhere));
    case.effects.push(run("ls"));
    assert_eq!(case.judged(), (Ask, ReadElsewhere), "of two equal ones the first is the reason");
    assert_eq!(case.asked(judge).confinement, Some(Confinement::Off), "yet the command's profile is said");
    case.effects.insert(0, write("/home/u/.config/agentd/x"));
    assert_eq!(case.judged(), (Deny, OwnFolder));
}

#[test]
fn a_call_without_effects_runs_unless_a_rule_says_otherwise() {
    for mode in Mode::ALL {
        let mut case = Case::new(Effect::EnterPlan, mode);
        case.effects.clear();
        assert_eq!(case.judged(), (Allow, Reason::NoEffect), "{mode}");
        assert_eq!(case.clone().deny().judged(), (Deny, Reason::RuleDeny), "{mode}");
        let asked = if mode == Mode::DontAsk { Deny } else { Ask };
        assert_eq!(case.clone().ask().judged(), (asked, Reason::RuleAsk), "{mode}");
    }
}

#[test]
fn unreadable_rules_leave_only_the_plan_and_persons() {
    use Reason::*;
    for mode in [Mode::Default, Mode::AcceptEdits, Mode::Plan, Mode::BypassPermissions] {
        for (effect, expected) in [
            (read("/home/u/api/a"), (Deny, RuleUnreadable)),
            (write("/home/u/api/a"), (Deny, RuleUnreadable)),
            (run("ls"), (Deny, RuleUnreadable)),
            (Effect::EnterPlan, (Deny, RuleUnreadable)),
            (read(PLAN), (Allow, PlanOwnFile)),
            (write(PLAN), (Allow, PlanOwnFile)),
            (Effect::AskPerson, (Ask, PersonQuestion)),
            (Effect::LeavePlan, (Ask, PlanLeave)),
        ] {
            assert_eq!(Case::new(effect.clone(), mode).unreadable().judged(), expected, "{effect} in {mode}");
        }
    }
}

/// PM-16, and its sisters: no rule takes a person's place.
#[test]
fn no_allow_rule_answers_for_a_person() {
    for mode in Mode::ALL {
        let leave = Case::new(Effect::LeavePlan, mode);
        for case in [leave.clone(), leave.clone().allow(), leave.clone().ask()] {
            assert_eq!(case.judged(), (Ask, Reason::PlanLeave), "{mode}");
        }
        let question = Case::new(Effect::AskPerson, mode).allow().judged();
        let expected =
            if mode == Mode::DontAsk { (Deny, Reason::ModeDontAsk) } else { (Ask, Reason::PersonQuestion) };
        assert_eq!(question, expected, "{mode}");
    }
}

/// PM-01: after a rejected plan nothing is different; the plan file stays writable.
/// PM-02: in plan mode the gate refuses outright, so no question is ever raised that a client could answer.
#[test]
fn plan_mode_refuses_instead_of_asking() {
    for (effect, reason) in [
        (write("/home/u/api/src/a"), Reason::PlanWrite),
        (write("/home/u/api/src/b"), Reason::PlanWrite),
        (write("/tmp/x"), Reason::PlanWrite),
        (run("touch c"), Reason::PlanCommand),
        (run("ls"), Reason::PlanCommand),
    ] {
        let case = Case::new(effect.clone(), Mode::Plan);
        for case in [case.clone(), case.clone().allow(), case.clone().ask()] {
            assert_eq!(case.judged(), (Deny, reason), "{effect}");
            assert_eq!(case.answered(Answer::Yes), (Deny, reason, None), "{effect}");
        }
    }
    assert_eq!(Case::new(write(PLAN), Mode::Plan).judged(), (Allow, Reason::PlanOwnFile));
}

/// PM-23: only the session's exact plan file.
#[test]
fn the_one_writable_path_cannot_be_bent() {
    for path in [
        "/home/u/.local/state/agentd/plans/../plans/api-paging.md",
        "/home/u/.local/state/agentd/plans/./api-paging.md",
        "/home/u/.local/state/agentd/plans//api-paging.md",
        "/home/u/.local/state/agentd/plans/api-paging.md/",
        "/home/u/.local/state/agentd/plans/api-paging.md/..",
        "/home/u/.local/state/agentd/plans/API-PAGING.md",
        "/home/u/.local/state/agentd/plans/api-paging.md\0",
        "/home/u/.local/state/agentd/plans/api-paging.md.bak",
        "/home/u/.local/state/agentd/plans/other.md",
        "/home/u/.local/state/agentd/plans",
        "/home/u/api/../.local/state/agentd/plans/api-paging.md",
        "plans/api-paging.md",
        "",
        "/home/u/.local/state/agentd/plans/../src/x.md",
        "/home/u/api/api-paging.md",
    ] {
        let verdict = Case::new(write(path), Mode::Plan).judged();
        assert_eq!(verdict.0, Deny, "{path:?}: {}", verdict.1);
    }
}

#[test]
fn a_turn_without_a_person_is_no_wider_than_accept_edits() {
    use Reason::*;
    for origin in [Origin::Program, Origin::Schedule, Origin::Trigger, Origin::Agent, Origin::Hook] {
        for (effect, mode, expected) in [
            (write("/home/u/api/a"), Mode::BypassPermissions, (Allow, ModeBypass)),
            (write("/home/u/other"), Mode::BypassPermissions, (Ask, WriteElsewhere)),
            (read("/etc/hosts"), Mode::BypassPermissions, (Ask, ReadElsewhere)),
            (run("ls"), Mode::BypassPermissions, (Ask, CommandUnconfined)),
            (write("/home/u/api/a"), Mode::AcceptEdits, (Allow, WriteWorkspace)),
            (write("/home/u/api/a"), Mode::Default, (Ask, WriteWorkspace)),
            (write("/home/u/api/a"), Mode::DontAsk, (Deny, ModeDontAsk)),
            (run("ls"), Mode::DontAsk, (Deny, ModeDontAsk)),
            (Effect::AskPerson, Mode::DontAsk, (Deny, ModeDontAsk)),
            (write("/home/u/api/a"), Mode::Plan, (Deny, PlanWrite)),
            (run("ls"), Mode::Plan, (Deny, PlanCommand)),
            (write(PLAN), Mode::Plan, (Allow, PlanOwnFile)),
        ] {
            assert_eq!(Case::new(effect.clone(), mode).by(origin).judged(), expected, "{effect} in {mode}");
        }
    }
    let confined = Case::new(run("ls"), Mode::BypassPermissions)
        .by(Origin::Schedule)
        .with(Sandbox::Full, PlanShell::Confined)
        .asked(judge);
    assert_eq!((confined.ruling, confined.confinement), (Allow, Some(Confinement::Workspace)));
}

/// F25: a yes does not outlive its circumstances.
#[test]
fn deny_and_plan_win_over_an_old_yes() {
    use Reason::*;
    let asked = Case::new(run("cargo test"), Mode::Default);
    assert_eq!(asked.answered(Answer::Yes), (Allow, PersonAllowed, Some(Confinement::Off)));
    assert_eq!(asked.answered(Answer::No), (Deny, PersonDenied, None));
    assert_eq!(asked.clone().deny().answered(Answer::Yes), (Deny, RuleDeny, None));
    assert_eq!(asked.clone().unreadable().answered(Answer::Yes), (Deny, RuleUnreadable, None));
    let planned = Case { mode: Mode::Plan, ..asked.clone() };
    assert_eq!(planned.answered(Answer::Yes), (Deny, PlanCommand, None));
    let refused = Case { mode: Mode::DontAsk, ..asked.clone() };
    assert_eq!(refused.answered(Answer::Yes), (Deny, ModeDontAsk, None));
    let own = Case::new(write("/home/u/.config/agentd/config.toml"), Mode::Default);
    assert_eq!(own.answered(Answer::Yes), (Deny, OwnFolder, None));
    let edit = Case::new(write("/home/u/api/a"), Mode::AcceptEdits);
    assert_eq!(edit.answered(Answer::Yes), (Allow, WriteWorkspace, None));
    let confined = asked.with(Sandbox::Full, PlanShell::Deny);
    assert_eq!(confined.answered(Answer::Yes), (Allow, PersonAllowed, Some(Confinement::Workspace)));
}
