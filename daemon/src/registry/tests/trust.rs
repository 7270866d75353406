//! The question of trust: written down, kept apart from turns, and settled once whatever dies in between.

use std::time::Duration;

use agentd_protocol::approval::{Approval, Subject, TrustSubject};
use agentd_protocol::session::{Activity, ForkParams};

use super::super::retention::Limits;
use super::*;
use crate::store::kept::Trusted;

const ALLOWS: &str = "permissions.allow = ['Bash(make)']\n";

impl Home {
    fn project_says(&self, text: &str) {
        std::fs::create_dir_all(self.project.join(".agentd")).unwrap();
        std::fs::write(self.project.join(".agentd/new"), text).unwrap();
        std::fs::rename(self.project.join(".agentd/new"), self.project.join(".agentd/config.toml")).unwrap();
    }

    /// A session with the question pending, and nothing going on.
    async fn untrusting(&self) -> (SessionId, Approval) {
        self.project_says(ALLOWS);
        let id = self.session(Mode::Default).await;
        let turn = self.prompt(id, "hello").await.turn_id;
        self.wait(id, turn).await;
        (id, self.question(id).await.unwrap())
    }

    async fn question(&self, id: SessionId) -> Option<Approval> {
        self.state(id)
            .await
            .approvals
            .into_iter()
            .find(|asked| matches!(asked.subject, Subject::Trust { .. }))
    }

    /// Lets the idle time pass until no session is in memory.
    async fn left_alone(&self) {
        tokio::time::pause();
        while self.registry.gauges().live > 0 {
            tokio::time::advance(Duration::from_secs(61)).await;
            for _ in 0..12 {
                tokio::task::yield_now().await;
            }
        }
        tokio::time::resume();
    }

    async fn asking(&self) -> Vec<ApprovalId> {
        self.registry.waiting(None).await.into_iter().map(|waiting| waiting.approval.approval_id).collect()
    }
}

fn subject(approval: &Approval) -> &TrustSubject {
    match &approval.subject {
        Subject::Trust { trust } => trust,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_idle_session_that_asks_leaves_memory_and_its_question_stays_listed() {
    let home = Home::start(says("Hello.")).await;
    let (id, approval) = home.untrusting().await;
    let state = home.state(id).await;
    assert_eq!((state.activity, state.waiting_for), (Activity::Idle, vec![approval.approval_id.clone()]));
    home.left_alone().await;
    assert_eq!(home.asking().await, std::slice::from_ref(&approval.approval_id));
    // The same one after a restart, and the answer finds its session.
    let home = home.restart().await;
    assert_eq!(home.asking().await, std::slice::from_ref(&approval.approval_id));
    assert_eq!(home.question(id).await, Some(approval.clone()));
    home.respond(RespondParams::to(&approval, ChoiceId::Trust)).await.unwrap();
    assert_eq!(home.asking().await, []);
    let home = home.restart().await;
    assert_eq!(home.registry.gauges().live, 0, "nothing is open");
    let late = home.respond(RespondParams::to(&approval, ChoiceId::Untrusted)).await;
    assert!(matches!(late, Err(SessionError::ApprovalSettled(_))), "{late:?}");
}

#[tokio::test]
async fn an_answer_that_was_kept_and_not_journaled_is_the_answer() {
    for choice in [ChoiceId::Trust, ChoiceId::Untrusted] {
        let home = Home::start(says("Hello.")).await;
        let (id, approval) = home.untrusting().await;
        // As a kill between the two writes leaves it.
        let (kept, digest) = (&home.registry.deps().kept, subject(&approval).revision);
        match choice {
            ChoiceId::Trust => {
                let (by, at) = ("user:1 one".to_owned(), home.clock.now());
                kept.trust(&home.project, &Trusted { digest, content: "x".into(), by, at }).unwrap();
            }
            _ => kept.decline(&home.project, digest).unwrap(),
        }
        let home = home.restart().await;
        assert_eq!(home.question(id).await, None, "{choice:?}");
        assert_eq!(home.asking().await, []);
        let turn = home.prompt(id, "again").await.turn_id;
        home.wait(id, turn).await;
        assert_eq!(home.question(id).await, None, "{choice:?} is remembered");
    }
}

#[tokio::test]
async fn a_question_that_the_disk_did_not_take_is_asked_with_the_next_prompt() {
    let home = Home::start(says("Hello.")).await;
    let (id, approval) = home.untrusting().await;
    // It was synced before anybody saw it.
    let home = home.power_cut(id).await;
    assert_eq!(home.question(id).await, Some(approval));
}

#[tokio::test]
async fn what_is_put_away_or_made_of_a_session_takes_no_question_along() {
    let home = Home::start(says("Hello.")).await;
    let (id, approval) = home.untrusting().await;
    let fork = ForkParams { session_id: id, at_seq: None, new_session_id: None };
    let fork = home.registry.fork(&fork, &person()).await.unwrap();
    assert_eq!(fork.state.approvals, []);
    home.registry
        .ask(id, |reply| Command::Archive { archived: true, caller: person(), reply })
        .await
        .unwrap();
    assert_eq!(home.question(id).await, None);
    let turn = home.prompt(id, "again").await.turn_id;
    home.wait(id, turn).await;
    let again = home.question(id).await.unwrap();
    assert_ne!(again.approval_id, approval.approval_id);
    let bundle = home.project.parent().unwrap().join("s.bundle");
    let params = super::moves::to(id, &bundle);
    let exported = home.registry.export(&params, &person()).await.unwrap();
    assert!(exported.handed_over);
    assert_eq!(home.question(id).await, None);
}

#[tokio::test]
async fn retention_removes_a_session_that_only_asks_for_trust() {
    let home = Home::start(says("Hello.")).await;
    let (id, _) = home.untrusting().await;
    // Others are used, a day each.
    home.project_says("permissions.deny = []\n");
    for day in 1..8 {
        home.clock.set(1_700_000_000_000 + day * 86_400_000);
        let other = home.session(Mode::Default).await;
        let turn = home.prompt(other, "hello").await.turn_id;
        home.wait(other, turn).await;
    }
    home.project_says(ALLOWS);
    let home = home.restart().await;
    assert_eq!(home.asking().await.len(), 1);
    home.left_alone().await;
    home.registry.store().settle().await;
    let limits = Limits { max_age_days: Some(4), max_size_mib: None };
    home.registry.remove_old(limits).await.unwrap();
    assert!(matches!(home.registry.snapshot(id).await, Err(SessionError::NotFound(_))));
    assert_eq!(home.asking().await, [], "what is gone asks nothing");
}

#[tokio::test]
async fn a_torn_file_leaves_the_question_as_it_is_and_words_trust_nothing() {
    let home = Home::start(says("Hello.")).await;
    let (id, approval) = home.untrusting().await;
    home.project_says("permissions.allow = ['Ba");
    home.registry.send(id, Command::LookAtSettings).unwrap();
    assert_eq!(home.question(id).await, Some(approval.clone()));
    // What cannot be read cannot be what was shown, and nothing of it counts in any case.
    home.project_says(ALLOWS);
    let by_text = PromptParams { answers: Some(approval.approval_id.clone()), ..prompt(id, "yes, trust it") };
    assert!(home.try_prompt(by_text).await.is_err());
    let bot = someone("bot", Actor::Program);
    let answer = RespondParams::to(&approval, ChoiceId::Trust);
    assert!(matches!(home.respond_as(answer, bot).await, Err(SessionError::Refused(_))));
    assert_eq!(home.question(id).await, Some(approval));
}

#[tokio::test]
async fn what_is_too_long_to_be_read_through_is_not_asked_about() {
    let home = Home::start(says("Hello.")).await;
    let rules: Vec<String> = (0..8000).map(|number| format!("'Bash(make target-{number})'")).collect();
    home.project_says(&format!("permissions.allow = [{}]\n", rules.join(",")));
    let id = home.session(Mode::Default).await;
    let turn = home.prompt(id, "hello").await.turn_id;
    home.wait(id, turn).await;
    assert_eq!(home.question(id).await, None);
}
