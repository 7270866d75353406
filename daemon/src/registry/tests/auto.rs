//! Mode `auto`: what the classifier is asked and told, what its answers are worth, and when it is asked no more.

use agentd_protocol::permission::{BreakerAction, BreakerParams, BreakerResult};
use agentd_protocol::session::ForkParams;

use super::*;

/// Where nobody's test works: reading there is the classifier's to decide.
struct Outside {
    home: Home,
    root: PathBuf,
    _folder: tempfile::TempDir,
}

/// A model that reads `a` once a prompt, beside a classifier that answers as `verdict` says.
async fn outside(verdict: Value) -> Outside {
    let folder = tempfile::Builder::new().prefix("o").tempdir_in("/tmp").unwrap();
    let root = folder.path().canonicalize().unwrap();
    for name in ["a", "b"] {
        std::fs::write(root.join(name), "the text of a file\n").unwrap();
    }
    let read = |name: &str| json!({ "name": "read_file", "arguments": { "file_path": root.join(name) } });
    let home = Home::start(json!({ "rules": [
        verdict,
        { "name": "both", "when": { "answers": 0, "texts": [{ "in": "prompt", "contains": "both" }] },
          "reply": { "text": "Now.", "calls": [read("a"), read("b")] } },
        { "name": "read", "when": { "answers": 0 }, "reply": { "text": "I look.", "calls": [read("a")] } },
        { "name": "rest", "reply": { "text": "Done." } },
    ] }))
    .await;
    Outside { home, root, _folder: folder }
}

/// The classifier's answer, whatever it is asked.
fn answers(text: &str) -> Value {
    json!({ "name": "classifier", "when": asked_by_agentd(), "reply": { "text": text } })
}

/// The stream of the classifier's answer does not come.
fn hangs(times: u32) -> Value {
    json!({ "name": "classifier", "when": asked_by_agentd(), "reply": { "text": ALLOW },
        "fault": { "times": times, "do": { "hang": { "after": 0 } } } })
}

fn asked_by_agentd() -> Value {
    json!({ "texts": [{ "in": "system", "contains": "whether one tool call of an agent may be made" }] })
}

const ALLOW: &str = r#"{"verdict":"allow","reason":"asked for"}"#;
const BLOCK: &str = r#"{"verdict":"block","reason":"not asked for"}"#;

impl Home {
    /// What the classifier was told, each time.
    async fn told(&self) -> Vec<Value> {
        let requests = self.requests().await;
        let texts = requests.iter().filter_map(|request| {
            let messages = request["messages"].as_array()?;
            let system = messages.iter().find(|message| message["role"] == "system")?["content"].as_str()?;
            let [user] = messages.iter().filter(|message| message["role"] == "user").collect::<Vec<_>>()[..]
            else {
                return None;
            };
            system.contains("whether one tool call").then(|| user["content"].as_str().unwrap().to_owned())
        });
        texts.map(|text| serde_json::from_str(&text).unwrap()).collect()
    }

    async fn breaker(&self, session_id: Option<SessionId>, action: Option<BreakerAction>) -> BreakerResult {
        self.registry.breaker(BreakerParams { session_id, action }, &person()).await.unwrap()
    }

    /// Runs one turn; the decisions about its calls.
    async fn decisions(&self, id: SessionId, text: &str) -> Vec<String> {
        let mut listener = self.listen(id).await;
        let turn = self.prompt(id, text).await.turn_id;
        self.wait(id, turn).await;
        decided(&listener.so_far())
    }
}

fn decided(events: &[Value]) -> Vec<String> {
    let decided = events.iter().filter(|event| event["type"] == "permissionDecided");
    decided
        .map(|event| format!("{} {}", event["decision"].as_str().unwrap(), event["reason"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn what_it_allows_runs_and_it_is_told_nothing_but_what_a_person_typed_and_the_call() {
    let Outside { home, root, _folder } = outside(answers(ALLOW)).await;
    let id = home.session(Mode::Auto).await;
    let mut listener = home.listen(id).await;
    let mut params = prompt(id, "read it");
    params.content.push(Content::Resource { uri: "file:///x".into(), text: "an attached text".into() });
    let turn = home.try_prompt(params).await.unwrap().turn_id;
    assert_eq!(home.wait(id, turn).await.text, "Done.");
    let events = listener.so_far();
    let said = events.iter().find(|event| event["type"] == "permissionDecided").unwrap();
    assert_eq!(
        (&said["decision"], &said["reason"], &said["note"]),
        (&json!("allow"), &json!("auto.allowed"), &json!("asked for"))
    );
    home.prompt(id, "and again").await;
    let told = loop {
        let told = home.told().await;
        if told.len() == 2 {
            break told;
        }
        tokio::task::yield_now().await;
    };
    let [first, second] = &told[..] else { panic!("{told:?}") };
    let file = root.join("a").display().to_string();
    assert_eq!(
        *first,
        json!({
            "person": [{ "text": "read it" }],
            "call": {
                "tool": "read_file",
                "arguments": json!({ "file_path": file }).to_string(),
                "folder": home.project.display().to_string(),
                "effects": [format!("read {file}")],
                "gate": "read.elsewhere",
            },
        })
    );
    assert_eq!(second["person"], json!([{ "text": "read it" }, { "text": "and again" }]));
    for text in ["I look.", "the text of a file", "an attached text"] {
        assert!(!second.to_string().contains(text), "{text}");
    }
    // Its tokens are the session's.
    assert_eq!(home.wait(id, turn).await.usage.requests, 3);
}

#[tokio::test]
async fn three_refusals_in_a_row_open_the_breaker_and_a_person_is_asked_until_a_person_closes_it() {
    let Outside { home, _folder, .. } = outside(answers(BLOCK)).await;
    let id = home.session(Mode::Auto).await;
    for _ in 0..2 {
        assert_eq!(home.decisions(id, "go").await, ["deny auto.blocked"]);
    }
    assert!(!home.state(id).await.breaker.open);
    let home = home.restart().await;
    let mut listener = home.listen(id).await;
    assert_eq!(home.decisions(id, "go").await, ["deny auto.blocked"]);
    let changed = listener.next("breakerChanged").await;
    assert_eq!(
        (&changed["open"], &changed["inRow"], &changed["total"]),
        (&json!(true), &json!(3), &json!(3))
    );
    assert_eq!(home.told().await.len(), 3);

    // Asked as in `default`, and the mode cannot be chosen elsewhere than where its breaker is closed.
    let turn = home.prompt(id, "go").await.turn_id;
    listener.next("approvalRequested").await;
    home.respond(home.answer(id, ChoiceId::AllowOnce).await).await.unwrap();
    home.wait(id, turn).await;
    assert_eq!(home.told().await.len(), 3);
    assert_eq!(home.set_mode(id, Mode::Default).await.unwrap(), Mode::Default);
    let refused = home.set_mode(id, Mode::Auto).await.unwrap_err().to_string();
    assert!(refused.contains("agentctl breaker close"), "{refused}");
    let fork = ForkParams { session_id: id, at_seq: None, new_session_id: None };
    let fork = home.registry.fork(&fork, &person()).await.unwrap().session_id;
    assert!(home.state(fork).await.breaker.open, "a fork does not close it");

    let program = someone("robot", Actor::Program);
    let close = BreakerParams { session_id: Some(id), action: Some(BreakerAction::Close) };
    assert!(home.registry.breaker(close, &program).await.is_err());
    assert!(home.state(id).await.breaker.open);
    let closed = home.breaker(Some(id), Some(BreakerAction::Close)).await.session.unwrap();
    assert_eq!((closed.open, closed.in_row, closed.total), (false, 0, 0));
    home.set_mode(id, Mode::Auto).await.unwrap();
    assert_eq!(home.decisions(id, "go").await, ["deny auto.blocked"]);
}

#[tokio::test]
async fn in_one_group_what_comes_after_the_opening_is_asked() {
    let Outside { home, _folder, .. } = outside(answers(BLOCK)).await;
    let id = home.session(Mode::Auto).await;
    assert_eq!(home.decisions(id, "both").await, ["deny auto.blocked", "deny auto.blocked"]);
    let mut listener = home.listen(id).await;
    let turn = home.prompt(id, "both").await.turn_id;
    listener.next("breakerChanged").await;
    listener.next("approvalRequested").await;
    home.respond(home.answer(id, ChoiceId::Deny).await).await.unwrap();
    home.wait(id, turn).await;
    let state = home.state(id).await;
    assert_eq!((state.breaker.in_row, state.breaker.total), (3, 3));
}

#[tokio::test]
async fn an_answer_of_another_form_is_a_no() {
    for text in ["Yes, go on.", r#"{"verdict":"allow","reason":"x","more":1}"#, ""] {
        let Outside { home, _folder, .. } = outside(answers(text)).await;
        let id = home.session(Mode::Auto).await;
        assert_eq!(home.decisions(id, "go").await, ["deny auto.unreadable"], "{text}");
        assert_eq!(home.state(id).await.breaker.in_row, 1);
    }
}

#[tokio::test]
async fn who_does_not_answer_in_time_leaves_it_to_a_person() {
    let Outside { home, _folder, .. } = outside(hangs(9)).await;
    let id = home.session(Mode::Auto).await;
    let mut listener = home.listen(id).await;
    let turn = home.prompt(id, "go").await.turn_id;
    home.asked(2).await;
    tokio::time::pause();
    listener.next("approvalRequested").await;
    tokio::time::resume();
    let approval = home.state(id).await.approvals.remove(0);
    let agentd_protocol::approval::Subject::Tool { tool } = &approval.subject else { panic!("{approval:?}") };
    assert_eq!(tool.reason, "auto.noAnswer");
    assert!(tool.note.as_ref().unwrap().contains("within 2 s"), "{:?}", tool.note);
    home.respond(RespondParams::to(&approval, ChoiceId::AllowOnce)).await.unwrap();
    assert_eq!(home.wait(id, turn).await.text, "Done.");
    assert_eq!(home.state(id).await.breaker, Default::default(), "no answer is no refusal");
}

#[tokio::test]
async fn a_provider_that_fails_leaves_it_to_a_person() {
    let failing = json!({ "name": "classifier", "when": asked_by_agentd(), "reply": {},
        "fault": { "do": { "status": { "code": 500, "message": "broken" } } } });
    let Outside { home, _folder, .. } = outside(failing).await;
    let id = home.session(Mode::Auto).await;
    let mut listener = home.listen(id).await;
    home.prompt(id, "go").await;
    let asked = listener.next("approvalRequested").await;
    assert_eq!(asked["tool"]["reason"], "auto.noAnswer");
    // One attempt.
    assert_eq!(home.requests().await.len(), 2);
}

#[tokio::test]
async fn a_change_of_the_mode_drops_what_it_is_about_to_say() {
    for (mode, decided) in
        [(Mode::DontAsk, "deny mode.dontAsk"), (Mode::BypassPermissions, "allow mode.bypass")]
    {
        let Outside { home, _folder, .. } = outside(hangs(1)).await;
        patient(&home);
        let id = home.session(Mode::Auto).await;
        let mut listener = home.listen(id).await;
        let turn = home.prompt(id, "go").await.turn_id;
        home.asked(2).await;
        home.set_mode(id, mode).await.unwrap();
        let said = listener.next("permissionDecided").await;
        assert_eq!(
            format!("{} {}", said["decision"].as_str().unwrap(), said["reason"].as_str().unwrap()),
            decided
        );
        home.wait(id, turn).await;
    }
}

#[tokio::test]
async fn an_interrupt_does_not_wait_for_it() {
    let Outside { home, _folder, .. } = outside(hangs(1)).await;
    patient(&home);
    let id = home.session(Mode::Auto).await;
    let turn = home.prompt(id, "go").await.turn_id;
    home.asked(2).await;
    home.interrupt(id).await;
    let result = home.wait(id, turn).await;
    assert_eq!(result.outcome, agentd_protocol::turn::Outcome::Interrupted);
}

#[tokio::test]
async fn after_a_crash_it_is_asked_anew() {
    let Outside { home, _folder, .. } = outside(hangs(1)).await;
    patient(&home);
    let id = home.session(Mode::Auto).await;
    let turn = home.prompt(id, "go").await.turn_id;
    home.asked(2).await;
    let home = home.restart().await;
    assert_eq!(home.wait(id, turn).await.text, "Done.");
    assert_eq!(home.told().await.len(), 2);
}

#[tokio::test]
async fn the_breaker_for_all_and_the_settings_shut_the_mode_everywhere_and_for_the_next_daemon() {
    let Outside { home, _folder, .. } = outside(answers(ALLOW)).await;
    let id = home.session(Mode::Auto).await;
    let program = someone("robot", Actor::Program);
    let all = |action| BreakerParams { session_id: None, action: Some(action) };
    home.registry.breaker(all(BreakerAction::Open), &program).await.unwrap();
    assert!(home.registry.breaker(all(BreakerAction::Close), &program).await.is_err());
    let mut listener = home.listen(id).await;
    let turn = home.prompt(id, "go").await.turn_id;
    listener.next("approvalRequested").await;
    home.respond(home.answer(id, ChoiceId::Deny).await).await.unwrap();
    home.wait(id, turn).await;
    assert_eq!(home.told().await.len(), 0);

    let home = home.restart().await;
    // What is restored is looked at again.
    assert_eq!(home.state(id).await.mode, Mode::Default);
    let refused = home.registry.create(home.params(Mode::Auto), &person()).await.unwrap_err().to_string();
    assert!(refused.contains("agentctl breaker close --all"), "{refused}");
    assert_eq!(home.breaker(None, None).await.everywhere.unwrap().by, "user:1 robot");
    home.breaker(None, Some(BreakerAction::Close)).await;
    home.set_mode(id, Mode::Auto).await.unwrap();

    std::fs::write(home.paths.config_file(), "[auto]\nenabled = false\n").unwrap();
    let mut listener = home.listen(id).await;
    home.prompt(id, "go").await;
    listener.next("approvalRequested").await;
    let refused = home.registry.create(home.params(Mode::Auto), &person()).await.unwrap_err().to_string();
    assert!(refused.contains("[auto]"), "{refused}");
    assert_eq!(home.told().await.len(), 0);
}

/// Time without end for the classifier, so that a slow machine is no silent one.
fn patient(home: &Home) {
    std::fs::create_dir_all(home.paths.config_file().parent().unwrap()).unwrap();
    std::fs::write(home.paths.config_file(), "[auto]\ntimeout_s = 3600\n").unwrap();
}
