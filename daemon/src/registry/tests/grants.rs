//! What a person allows for longer than once: exactly what was shown, and for this session only.

use agentd_protocol::approval::{Approval, Subject};
use agentd_protocol::session::ForkParams;

use super::*;

/// A model that reads the file named in the prompt, outside of the project.
fn reads(files: &[String]) -> Value {
    let rule = |(index, file): (usize, &String)| {
        json!({
            "name": format!("read{index}"), "when": { "answers": 0, "texts": [{ "in": "prompt", "contains": file }] },
            "reply": { "text": "Looking.", "calls": [{ "name": "read_file", "arguments": { "file_path": file } }] },
        })
    };
    let mut rules: Vec<Value> = files.iter().enumerate().map(rule).collect();
    rules.push(json!({ "name": "rest", "reply": { "text": "Done." } }));
    json!({ "rules": rules })
}

struct Outside {
    home: Home,
    files: Vec<String>,
    _folder: tempfile::TempDir,
}

/// Files `near/a`, `near/b`, `near/deep/c` and `far/d` in a folder that no session works in.
async fn outside() -> Outside {
    let folder = tempfile::Builder::new().prefix("o").tempdir_in("/tmp").unwrap();
    let root = folder.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("near/deep")).unwrap();
    std::fs::create_dir(root.join("far")).unwrap();
    let files: Vec<String> = ["near/a", "near/b", "near/deep/c", "far/d"]
        .iter()
        .map(|name| {
            std::fs::write(root.join(name), "text\n").unwrap();
            root.join(name).display().to_string()
        })
        .collect();
    Outside { home: Home::start(reads(&files)).await, files, _folder: folder }
}

fn offered(approval: &Approval, choice: ChoiceId) -> Vec<String> {
    let Subject::Tool { tool } = &approval.subject else { panic!("{approval:?}") };
    tool.rules.iter().filter(|offer| offer.choice == choice).map(|offer| offer.rule.clone()).collect()
}

/// Whether reading the file raises an approval; it is denied then.
async fn asks(home: &Home, id: SessionId, file: &str) -> bool {
    let turn = home.prompt(id, file).await.turn_id;
    let mut listener = home.listen(id).await;
    let event =
        listener.until(|event| event["type"] == "approvalRequested" || event["type"] == "turnFinished").await;
    let asked = event["type"] == "approvalRequested" || !home.state(id).await.approvals.is_empty();
    if asked {
        home.respond(home.answer(id, ChoiceId::Deny).await).await.unwrap();
    }
    home.wait(id, turn).await;
    asked
}

#[tokio::test]
async fn for_this_session_covers_the_folder_that_was_shown_and_ends_with_the_session() {
    let Outside { home, files, _folder } = outside().await;
    let id = home.session(Mode::Default).await;
    let mut listener = home.listen(id).await;
    let turn = home.prompt(id, &files[0]).await.turn_id;
    listener.next("approvalRequested").await;
    let approval = home.state(id).await.approvals.remove(0);
    let near = files[0].strip_suffix("/a").unwrap();
    assert_eq!(offered(&approval, ChoiceId::AllowForSession), [format!("Read(/{near}/**)")]);
    let choice = approval.choices.iter().find(|choice| choice.id == ChoiceId::AllowForSession).unwrap();
    assert!(choice.label.contains(&format!("Read(/{near}/**)")), "{}", choice.label);
    home.respond(RespondParams::to(&approval, ChoiceId::AllowForSession)).await.unwrap();
    let added = listener.next("ruleAdded").await;
    assert_eq!((&added["layer"], &added["by"]["client"]), (&json!("session"), &json!("one")));
    home.wait(id, turn).await;

    for (file, asked) in [(1, false), (2, false), (3, true)] {
        assert_eq!(asks(&home, id, &files[file]).await, asked, "{}", files[file]);
    }
    let home = home.restart().await;
    assert!(!asks(&home, id, &files[1]).await, "a restart forgets nothing");
    let fork = ForkParams { session_id: id, at_seq: None, new_session_id: None };
    let fork = home.registry.fork(&fork, &person()).await.unwrap().session_id;
    assert!(asks(&home, fork, &files[1]).await, "a fork is another session");
    let other = home.session(Mode::Default).await;
    assert!(asks(&home, other, &files[1]).await, "another session was not asked about");
    assert!(!asks(&home, id, &files[1]).await);
}

#[tokio::test]
async fn an_answer_lets_others_that_wait_for_the_same_go_on() {
    let folder = tempfile::Builder::new().prefix("o").tempdir_in("/tmp").unwrap();
    let root = folder.path().canonicalize().unwrap();
    let read = |name: &str| {
        std::fs::write(root.join(name), "text\n").unwrap();
        json!({ "name": "read_file", "arguments": { "file_path": root.join(name) } })
    };
    std::fs::create_dir(root.join("in")).unwrap();
    let home = Home::start(calls(json!([read("in/a"), read("in/b")]))).await;
    let id = home.session(Mode::Default).await;
    let mut listener = home.listen(id).await;
    let turn = home.prompt(id, "go").await.turn_id;
    listener.next("approvalRequested").await;
    let second = listener.next("approvalRequested").await;
    let answer = home.answer(id, ChoiceId::AllowForSession).await;
    home.respond(answer).await.unwrap();
    let settled = listener
        .until(|event| event["approvalId"] == second["approvalId"] && event["type"] == "approvalResolved")
        .await;
    assert_eq!(settled["resolution"], "settledByMode");
    let result = home.wait(id, turn).await;
    assert_eq!((result.text.as_str(), result.denials.len()), ("Done.", 0));
}
