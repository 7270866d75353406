//! What holds for every call, whatever the rules, modes, origins and answers.

use std::path::Path;

use agentd_protocol::mode::Mode;
use agentd_protocol::permission::Confinement;
use agentd_protocol::session::Origin;
use proptest::prelude::*;

use super::{Case, PLAN, read, rules, run, write};
use crate::permission::Ruling::{Allow, Ask, Deny};
use crate::permission::effect::Effect;
use crate::permission::rules::TOOLS;
use crate::permission::{Answer, PlanShell, Rules, Sandbox, judge, judge_again_after_answer};

fn any_effect() -> impl Strategy<Value = Effect> {
    let path = prop_oneof![
        Just(PLAN.to_owned()),
        Just("/home/u/api/src/lib.rs".to_owned()),
        Just("/home/u/api/.git/config".to_owned()),
        Just("/home/u/.local/state/agentd/sessions/1/blobs/ab".to_owned()),
        "(/home/u/api|/home/u|/home/u/.local/state/agentd/plans|)(/(a|\\.\\.|\\.|api-paging\\.md|)){0,4}",
        ".{0,20}",
    ];
    let command = prop_oneof![
        Just("rm -rf /".to_owned()),
        Just("ls".to_owned()),
        Just(format!("echo x > {PLAN}")),
        ".{0,20}",
    ];
    prop_oneof![
        path.clone().prop_map(|path| read(&path)),
        path.prop_map(|path| write(&path)),
        command.prop_map(|command| run(&command)),
        Just(Effect::AskPerson),
        Just(Effect::EnterPlan),
        Just(Effect::LeavePlan),
    ]
}

fn any_rules() -> impl Strategy<Value = Rules> {
    let names = || {
        prop::collection::vec(
            prop_oneof![
                prop::sample::select(TOOLS).prop_map(str::to_owned),
                Just("Edit".to_owned()),
                Just("Bash(*)".to_owned()),
                Just("Bash(ls)".to_owned()),
            ],
            0..3,
        )
    };
    prop_oneof![
        1 => Just(Rules::unreadable()),
        8 => (names(), names(), names()).prop_map(|(deny, ask, allow)| rules(&deny, &ask, &allow)),
    ]
}

fn any_origin() -> impl Strategy<Value = Origin> {
    prop::sample::select(vec![
        Origin::Client,
        Origin::Program,
        Origin::Schedule,
        Origin::Trigger,
        Origin::Agent,
        Origin::Hook,
    ])
}

fn any_case(modes: Vec<Mode>, plan_shell: Vec<PlanShell>) -> impl Strategy<Value = Case> {
    (
        prop::sample::select(TOOLS),
        prop::collection::vec(any_effect(), 1..4),
        prop::sample::select(modes),
        any_rules(),
        any_origin(),
        prop::sample::select(vec![Sandbox::None, Sandbox::Full]),
        prop::sample::select(plan_shell),
    )
        .prop_map(|(tool, effects, mode, rules, origin, sandbox, plan_shell)| Case {
            tool,
            effects,
            mode,
            rules,
            origin,
            sandbox,
            plan_shell,
        })
}

fn writes_elsewhere(case: &Case) -> bool {
    case.effects
        .iter()
        .any(|effect| matches!(effect, Effect::WritePath(path) if path.real != Path::new(PLAN)))
}

fn runs(case: &Case) -> bool {
    case.effects.iter().any(|effect| matches!(effect, Effect::RunCommand(_)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// Promise one: whatever tool, rules, origin and answers, plan mode lets nothing write but the plan file, and no
    /// command run unless the settings say so and the kernel holds it.
    #[test]
    fn plan_mode_never_lets_anything_change(
        case in any_case(vec![Mode::Plan], vec![PlanShell::Deny, PlanShell::Confined]),
    ) {
        let unheld = case.plan_shell == PlanShell::Deny || case.sandbox == Sandbox::None;
        for answer in [Answer::Yes, Answer::No] {
            let verdict = case.asked(judge);
            let answered = case.asked(|query| judge_again_after_answer(query, answer));
            if writes_elsewhere(&case) || (unheld && runs(&case)) {
                prop_assert_eq!(verdict.ruling, Deny);
                prop_assert_eq!(answered.ruling, Deny);
            }
            if runs(&case) {
                prop_assert!(matches!(verdict.confinement, None | Some(Confinement::Plan)));
                prop_assert!(matches!(answered.confinement, None | Some(Confinement::Plan)));
            }
        }
    }

    /// Idea 7: without a person's yes a command is unconfined in bypassPermissions only, and there only for a person.
    #[test]
    fn unconfined_means_a_person_said_so(case in any_case(Mode::ALL.to_vec(), vec![PlanShell::Deny, PlanShell::Confined])) {
        let verdict = case.asked(judge);
        if verdict.ruling == Allow && verdict.confinement == Some(Confinement::Off) {
            prop_assert_eq!(case.mode, Mode::BypassPermissions);
            prop_assert_eq!(case.origin, Origin::Client);
        }
        prop_assert_eq!(runs(&case) && verdict.ruling != Deny, verdict.confinement.is_some());
        let answered = case.asked(|query| judge_again_after_answer(query, Answer::Yes));
        prop_assert_ne!(answered.ruling, Ask);
        prop_assert!(verdict.ruling != Deny || answered.ruling == Deny);
        prop_assert_eq!(case.asked(|query| judge_again_after_answer(query, Answer::No)).ruling, Deny);
    }

    /// A turn that no person started is never judged more freely than a person's.
    #[test]
    fn no_origin_widens(case in any_case(Mode::ALL.to_vec(), vec![PlanShell::Deny, PlanShell::Confined])) {
        let persons = case.clone().by(Origin::Client).asked(judge);
        prop_assert!(case.asked(judge).ruling >= persons.ruling);
    }
}
