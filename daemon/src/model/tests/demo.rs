//! The demo's script, played against stand-ins for the tools: what the engine will do, without the engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::talk::{BOTH, Talk};
use super::{request, user};
use crate::model::message::{Arguments, Block, Dialect, Message, ProposedCall, Request, Role};
use crate::model::playback::{Log, Pace, Script, start};
use crate::model::{Base, Endpoint, ModelClient, demo};

const PLAN: &str = "/state/plans/paging-otter.md";

/// Arguments of all tools that the script calls.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Given {
    file_path: String,
    content: String,
    old_string: String,
    new_string: String,
    pattern: String,
}

/// A session: files, a context, and people's answers to come.
struct Session {
    talk: Talk,
    files: BTreeMap<String, String>,
    asked: Request,
    is_planning: bool,
    answers: Vec<Reaction>,
    presented: Vec<String>,
    calls: Vec<String>,
}

/// What a person does when a plan is presented.
enum Reaction {
    Keep(&'static str),
    /// Replaces the whole plan, and wants more.
    TurnOver(&'static str),
    Execute,
    ClearAndExecute,
    /// Changes the file first.
    EditAndExecute(&'static str, &'static str),
    EditAndClear(&'static str, &'static str),
}

impl Session {
    async fn start(dialect: Dialect, messages: Vec<Arc<Message>>, mut answers: Vec<Reaction>) -> Self {
        let script = Script { pace: Pace::default(), ..demo::script() };
        let server = start(script, Log::Keep).await.unwrap();
        let base = Base::Url(server.base_for(dialect));
        let endpoint = Endpoint { dialect, base, ..Endpoint::for_tests("demo", "") };
        let files = demo::project().iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        answers.reverse();
        Self {
            talk: Talk { client: ModelClient::new(), server, endpoint },
            files: files.collect(),
            is_planning: messages.len() > 1,
            asked: request("tour", messages),
            answers,
            presented: Vec::new(),
            calls: Vec::new(),
        }
    }

    /// Runs turns until the model calls nothing; gives its last words.
    async fn run(&mut self) -> String {
        for _ in 0..40 {
            let (_, reply) = self.talk.ask(&self.asked).await;
            let reply = reply.unwrap();
            if reply.calls.is_empty() {
                return reply.text;
            }
            self.asked.messages.push(Arc::new(reply.message()));
            let mut results = Vec::new();
            for call in &reply.calls {
                let (content, is_error) = match self.call(call) {
                    Ok(content) => (content, false),
                    Err(problem) => (problem, true),
                };
                results.push(Block::ToolResult { id: call.id.clone(), content, is_error });
            }
            if self.asked.messages.is_empty() {
                // The context was reset to the plan.
                let plan = self.files[PLAN].clone();
                self.asked.messages.push(user(&format!("Carry out this plan.\n\n{plan}")));
            } else {
                self.asked.messages.push(Arc::new(Message { role: Role::User, blocks: results, raw: None }));
            }
        }
        panic!("the script goes round in circles: {:?}", self.calls);
    }

    fn call(&mut self, call: &ProposedCall) -> Result<String, String> {
        let Arguments::Object(arguments) = &call.arguments else { panic!("{call:?}") };
        let given: Given = serde_json::from_str(arguments.get()).unwrap();
        self.calls.push(format!("{} {}", call.name, given.file_path));
        let may_write = !self.is_planning || given.file_path == PLAN;
        match call.name.as_str() {
            "list_files" => Ok(self.files.keys().cloned().collect::<Vec<_>>().join("\n")),
            "grep_search" => Ok(format!("todo/service.py:21: {}", given.pattern)),
            "read_file" => {
                let text = self.files.get(&given.file_path).ok_or("no such file")?;
                Ok(text.lines().enumerate().map(|(at, line)| format!("{:>6}\t{line}\n", at + 1)).collect())
            }
            "write_file" if may_write => {
                self.files.insert(given.file_path, given.content);
                Ok("written".to_owned())
            }
            "edit_file" if may_write => {
                let text = self.files.get_mut(&given.file_path).ok_or("no such file")?;
                if text.matches(&given.old_string).count() != 1 {
                    return Err("old_string is not there once".to_owned());
                }
                *text = text.replace(&given.old_string, &given.new_string);
                Ok("edited".to_owned())
            }
            "write_file" | "edit_file" => {
                Err("Refused (plan.write): plan mode lets you write the plan only.".to_owned())
            }
            "enter_plan_mode" => {
                self.is_planning = true;
                Ok(format!("Plan mode.\n1. Explore.\n5. Call exit_plan_mode.\nPlan file: {PLAN}\n"))
            }
            "exit_plan_mode" => Ok(self.present()),
            other => panic!("{other} is not part of the demo"),
        }
    }

    fn present(&mut self) -> String {
        self.presented.push(self.files[PLAN].clone());
        let reaction = self.answers.pop().expect("no more answers");
        if let Reaction::EditAndExecute(old, new) | Reaction::EditAndClear(old, new) = &reaction {
            let plan = self.files[PLAN].replace(old, new);
            self.files.insert(PLAN.to_owned(), plan);
        }
        if let Reaction::TurnOver(_) = &reaction {
            self.files.insert(PLAN.to_owned(), "# Mine\n".to_owned());
        }
        match reaction {
            Reaction::Keep(feedback) | Reaction::TurnOver(feedback) => {
                return format!(
                    "The plan is not approved: the person wants to keep planning.\nFeedback: {feedback}\n\nRevise it."
                );
            }
            Reaction::ClearAndExecute | Reaction::EditAndClear(..) => self.asked.messages.clear(),
            Reaction::Execute | Reaction::EditAndExecute(..) => {}
        }
        self.is_planning = false;
        "The plan was approved. Carry it out.".to_owned()
    }
}

fn in_plan_mode() -> Vec<Arc<Message>> {
    let guidance = format!(
        "You are in plan mode.\n1. Explore.\n5. Call `exit_plan_mode`.\nPlan file: {PLAN}\nWrite nothing else."
    );
    vec![user(demo::PROMPT), user(&guidance)]
}

fn assert_carried_out(session: &Session) {
    assert!(session.files["todo/service.py"].contains("limit=50, offset=0"));
    assert!(session.files["todo/service.py"].contains("MAX_LIMIT = 100"));
    assert!(session.files["todo/server.py"].contains("parse_qsl(url.query)"));
    assert!(session.files["README.md"].contains("limit=50&offset=0"));
    assert!(session.files.contains_key("tests/test_paging.py"));
    assert!(!session.files.contains_key("todo/paging.py"));
}

#[test]
fn the_script_is_valid() {
    Script::parse(include_str!("../../../assets/demo/script.json")).unwrap();
}

#[tokio::test]
async fn every_choice_carries_the_plan_out() {
    for dialect in BOTH {
        for reaction in [Reaction::Execute, Reaction::ClearAndExecute] {
            let mut session = Session::start(dialect, in_plan_mode(), vec![reaction]).await;
            let words = session.run().await;
            assert!(words.starts_with("The plan “Add pagination to GET /todos” is carried out"), "{words}");
            assert!(!words.contains("not mine"), "{words}");
            assert_carried_out(&session);
            assert!(!session.calls.iter().any(|call| call.starts_with("run_shell")));
        }
    }
}

#[tokio::test]
async fn the_way_to_the_plan() {
    let mut session = Session::start(Dialect::OpenaiChat, in_plan_mode(), vec![Reaction::Execute]).await;
    session.run().await;
    insta::assert_snapshot!(session.calls.join("\n"));
}

#[tokio::test]
async fn feedback_stands_in_the_plan_word_for_word() {
    for dialect in BOTH {
        let answers = vec![
            Reaction::Keep("Use a cursor, not \"offset\"."),
            Reaction::Keep("And say why."),
            Reaction::Execute,
        ];
        let mut session = Session::start(dialect, in_plan_mode(), answers).await;
        session.run().await;
        let [first, second, third] = &session.presented[..] else { panic!("{:?}", session.presented) };
        assert!(!first.contains("cursor, not"));
        assert!(second.contains("Use a cursor, not \"offset\".\n"), "{second}");
        assert!(third.contains("Use a cursor, not \"offset\".") && third.contains("And say why."), "{third}");
        assert_carried_out(&session);
    }
}

#[tokio::test]
async fn feedback_survives_a_plan_that_was_turned_over() {
    let answers = vec![Reaction::TurnOver("Smaller."), Reaction::Execute];
    let mut session = Session::start(Dialect::OpenaiChat, in_plan_mode(), answers).await;
    session.run().await;
    assert!(session.presented[1].contains("Smaller."), "{}", session.presented[1]);
    assert_carried_out(&session);
}

#[tokio::test]
async fn a_plan_edited_by_hand_is_honoured() {
    for dialect in BOTH {
        for clear in [false, true] {
            let (old, new) =
                ("## Not in this change", "5. Write a changelog entry.\n\n## Not in this change");
            let edit =
                if clear { Reaction::EditAndClear(old, new) } else { Reaction::EditAndExecute(old, new) };
            let mut session = Session::start(dialect, in_plan_mode(), vec![edit]).await;
            let words = session.run().await;
            assert!(words.contains("“Write a changelog entry.”"), "{words}");

            let (old, new) = ("# Add pagination to GET /todos", "# Pages for everyone");
            let edit =
                if clear { Reaction::EditAndClear(old, new) } else { Reaction::EditAndExecute(old, new) };
            let mut session = Session::start(dialect, in_plan_mode(), vec![edit]).await;
            let words = session.run().await;
            assert!(
                words.starts_with("The plan “Pages for everyone”") && !words.contains("not mine"),
                "{words}"
            );
        }
    }
}

#[tokio::test]
async fn outside_plan_mode_it_enters_plan_mode_first() {
    let mut session =
        Session::start(Dialect::Anthropic, vec![user("Add paging")], vec![Reaction::Execute]).await;
    session.run().await;
    assert_eq!(session.calls[0], "enter_plan_mode ");
    assert_carried_out(&session);
}

#[tokio::test]
async fn later_prompts_say_that_the_demo_is_over() {
    let mut session = Session::start(Dialect::OpenaiChat, in_plan_mode(), vec![Reaction::Execute]).await;
    let words = session.run().await;
    let said = Message { role: Role::Assistant, blocks: vec![Block::Text { text: words }], raw: None };
    session.asked.messages.extend([Arc::new(said), user("And now?")]);
    assert!(session.run().await.contains("agentctl key add"));
}

#[tokio::test]
async fn the_client_starts_the_demo_by_itself() {
    let client = ModelClient::new();
    let endpoint = Endpoint { base: Base::Demo, ..Endpoint::for_tests("demo", "") };
    let asked = request("tour", in_plan_mode());
    let reply = client.sample(&endpoint, &asked, &mut |_| {}).await.unwrap();
    assert_eq!(reply.calls[0].name, "list_files");
    assert!(reply.text.contains("playback"), "{}", reply.text);
}

#[tokio::test]
async fn a_plan_that_was_carried_out_in_part_is_not_called_carried_out() {
    for dialect in BOTH {
        for clear in [false, true] {
            let reaction = if clear { Reaction::ClearAndExecute } else { Reaction::Execute };
            let mut session = Session::start(dialect, in_plan_mode(), vec![reaction]).await;
            session.files.remove("README.md");
            let words = session.run().await;
            assert!(words.starts_with("Not every change went in"), "{words}");
        }
    }
}

#[tokio::test]
async fn several_steps_of_a_person_are_not_taken_for_one() {
    let edit = Reaction::EditAndExecute(
        "## Not in this change",
        "5. Write a changelog entry.\n6. And a release note.\n\n## Not in this change",
    );
    let mut session = Session::start(Dialect::OpenaiChat, in_plan_mode(), vec![edit]).await;
    let words = session.run().await;
    assert!(words.contains("What else stands in the plan, such as"), "{words}");
}
