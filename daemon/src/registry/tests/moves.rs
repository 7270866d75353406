//! Sessions that are handed over, taken back and copied: one owner at every moment, and nothing lost on the way.

use std::io::Read as _;
use std::path::Path;

use agentd_protocol::session::{Activity, ForkParams, Health};
use agentd_protocol::transfer::{ExportParams, ExportResult, Format, ImportParams, ImportResult};
use agentd_protocol::turn::Outcome;

use super::history::subscribed;
use super::plans::{PLAN, plan_file, presented};
use super::*;
use crate::ids::digest_of;

pub(super) fn to(id: SessionId, path: &Path) -> ExportParams {
    ExportParams {
        session_id: id,
        path: path.display().to_string(),
        format: Format::Bundle,
        copy: false,
        replace: false,
    }
}

pub(super) fn from(path: &Path) -> ImportParams {
    ImportParams { path: path.display().to_string(), ..ImportParams::default() }
}

pub(super) async fn export(home: &Home, params: &ExportParams) -> Result<ExportResult, SessionError> {
    home.registry.export(params, &person()).await
}

pub(super) async fn import(home: &Home, params: &ImportParams) -> Result<ImportResult, SessionError> {
    home.registry.import(params, &person()).await
}

pub(super) fn bundle(home: &Home, name: &str) -> PathBuf {
    home.project.parent().unwrap().join(name)
}

/// A session with a turn whose prompt lies in a blob.
pub(super) async fn spoken(home: &Home) -> SessionId {
    let id = home.session(Mode::AcceptEdits).await;
    let turn = home.prompt(id, &format!("remember this: {}", "word ".repeat(10_000))).await.turn_id;
    home.wait(id, turn).await;
    id
}

async fn go_on(home: &Home, id: SessionId) -> Value {
    let turn = home.prompt(id, "go on").await.turn_id;
    assert_eq!(home.wait(id, turn).await.outcome, Outcome::Finished);
    home.requests().await.pop().unwrap()["messages"].clone()
}

/// Names and contents, in their order.
pub(super) type Files = Vec<(String, Vec<u8>)>;
/// Changes what a bundle says of itself.
type Lie = Box<dyn FnOnce(&mut Value)>;

pub(super) fn files(path: &Path) -> Files {
    let mut archive = tar::Archive::new(std::fs::File::open(path).unwrap());
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (entry.path().unwrap().display().to_string(), content)
    });
    entries.collect()
}

/// Writes a bundle whose list agrees with what is in it.
pub(super) fn write(path: &Path, mut files: Files, about: impl FnOnce(&mut Value)) {
    let mut manifest: Value = serde_json::from_slice(&files[0].1).unwrap();
    about(&mut manifest);
    manifest["files"] = files[1..]
        .iter()
        .map(|(name, content)| json!({"name": name, "size": content.len(), "sha256": digest_of(content)}))
        .collect();
    files[0].1 = serde_json::to_vec(&manifest).unwrap();
    let mut builder = tar::Builder::new(std::fs::File::create(path).unwrap());
    for (name, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, name, &content[..]).unwrap();
    }
    builder.into_inner().unwrap();
}

#[tokio::test]
async fn a_session_goes_on_elsewhere_exactly_where_it_was() {
    let (here, there) = (Home::start(says("Hello.")).await, Home::start(says("Hello.")).await);
    let id = spoken(&here).await;
    // What the model would be asked next.
    let fork = ForkParams { session_id: id, at_seq: None, new_session_id: None };
    let fork = here.registry.fork(&fork, &person()).await.unwrap().session_id;
    let expected = go_on(&here, fork).await;
    let (before, events) = (here.state(id).await, subscribed(&here, id).await);

    let file = bundle(&here, "a.agentd");
    let made = export(&here, &to(id, &file)).await.unwrap();
    assert!(made.handed_over);
    let taken = import(&there, &from(&file)).await.unwrap();
    assert!(!taken.taken_back);
    assert_eq!((taken.session_id, &taken.handle), (id, &before.handle));
    let state = &taken.state;
    assert_eq!((state.mode, &state.cwd, state.turns), (before.mode, &before.cwd, before.turns));
    assert_eq!((state.usage, state.created_at, state.health), (before.usage, before.created_at, Health::Ok));

    let mut after = subscribed(&there, id).await;
    let new = after.split_off(events.len());
    assert_eq!(after, events);
    let types: Vec<_> = new.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["sessionHandedOver", "sessionImported"]);
    assert_eq!(go_on(&there, id).await, expected);

    // What stays behind can be looked at, and no more.
    assert_eq!(here.state(id).await.health, Health::ReadOnly);
    assert_eq!(subscribed(&here, id).await[..events.len()], events);
    let here = here.restart().await;
    let refused = here.try_prompt(prompt(id, "go on")).await.unwrap_err();
    assert!(
        matches!(&refused, SessionError::HandedOver(over) if over.bundle.ends_with("a.agentd")),
        "{refused}"
    );
    assert!(refused.to_string().contains("agentctl import"), "{refused}");
    assert!(matches!(here.set_mode(id, Mode::Plan).await, Err(SessionError::HandedOver(_))));
    // It comes home, with what happened elsewhere.
    let back = bundle(&there, "b.agentd");
    export(&there, &to(id, &back)).await.unwrap();
    let taken = import(&here, &from(&back)).await.unwrap();
    assert!(taken.taken_back);
    assert_eq!(taken.state.turns, 2);
    go_on(&here, id).await;
    // An old bundle does not bring back what is gone on.
    assert!(matches!(import(&here, &from(&file)).await, Err(SessionError::Conflict(_))));
    export(&here, &to(id, &bundle(&here, "c.agentd"))).await.unwrap();
    assert!(matches!(import(&here, &from(&file)).await, Err(SessionError::Conflict(_))));
    here.registry.ask(id, |reply| Command::Delete { reply }).await.unwrap();
}

#[tokio::test]
async fn what_was_given_away_is_taken_back_under_those_who_watch() {
    let home = Home::start(says("Hello.")).await;
    let id = spoken(&home).await;
    let mut listener = home.listen(id).await;
    let file = bundle(&home, "a.agentd");
    export(&home, &to(id, &file)).await.unwrap();
    listener.next("sessionHandedOver").await;
    let taken = import(&home, &from(&file)).await.unwrap();
    assert!(taken.taken_back);
    assert_eq!(subscribed(&home, id).await.pop().unwrap()["type"], "sessionImported");
    let mut listener = home.listen(id).await;
    // Asked again, word for word, it is the same.
    assert_eq!(import(&home, &from(&file)).await.unwrap().state.seq, taken.state.seq);
    go_on(&home, id).await;
    listener.next("turnFinished").await;
    let home = home.restart().await;
    assert_eq!(home.state(id).await.turns, 2);
    assert_eq!(std::fs::read_dir(home.paths.sessions_dir()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_session_that_was_given_away_gives_the_same_bundle_again() {
    let home = Home::start(says("Hello.")).await;
    let id = spoken(&home).await;
    let (one, two) = (bundle(&home, "one"), bundle(&home, "two"));
    let first = export(&home, &to(id, &one)).await.unwrap();
    home.clock.set(1_800_000_000_000);
    let home = home.restart().await;
    let second = export(&home, &to(id, &two)).await.unwrap();
    assert_eq!((first.digest, std::fs::read(&one).unwrap()), (second.digest, std::fs::read(&two).unwrap()));
    assert!(
        matches!(export(&home, &to(id, &one)).await, Err(SessionError::Conflict(_))),
        "never over another"
    );
    let replace = ExportParams { replace: true, ..to(id, &one) };
    assert_eq!(export(&home, &replace).await.unwrap().digest, first.digest);
    for wrong in ["relative", "/", "/nowhere/there/x"] {
        let params = ExportParams { path: wrong.into(), ..to(id, &one) };
        assert!(matches!(export(&home, &params).await, Err(SessionError::Invalid { field: "path", .. })));
    }
    let own = home.paths.state_dir().join("x");
    assert!(matches!(export(&home, &to(id, &own)).await, Err(SessionError::Invalid { field: "path", .. })));
}

#[tokio::test]
async fn a_session_at_work_is_copied_at_its_rest_and_not_given_away() {
    let (home, id, _, _) = presented(Mode::Default).await;
    let before = home.state(id).await;
    let file = bundle(&home, "a.agentd");
    let refused = export(&home, &to(id, &file)).await.unwrap_err();
    assert!(matches!(&refused, SessionError::Busy(text) if text.contains("agentctl stop")), "{refused}");
    assert!(
        !file.exists()
            && std::fs::read_dir(home.project.parent().unwrap())
                .unwrap()
                .flatten()
                .all(|entry| !entry.file_name().to_string_lossy().ends_with(".tmp"))
    );
    assert_eq!(home.state(id).await, before);

    let copy = ExportParams { copy: true, ..to(id, &file) };
    assert!(!export(&home, &copy).await.unwrap().handed_over);
    let taken = import(&home, &from(&file)).await.unwrap();
    assert_ne!(taken.session_id, id);
    let state = taken.state;
    assert_eq!((state.activity, state.approvals.len(), state.mode), (Activity::Idle, 0, Mode::Plan));
    assert_eq!(state.forked_from.as_ref().unwrap().session_id, id);
    // Its plan is a file of its own.
    let (ours, theirs) = (plan_file(&state), plan_file(&before));
    assert_ne!(ours, theirs);
    assert_eq!(std::fs::read_to_string(&ours).unwrap(), PLAN);
    assert_eq!(home.registry.waiting(None).await.len(), 1, "the source still asks");
    // The same bundle again under the same name is the same session, and without a name another one.
    let named = ImportParams { session_id: Some(taken.session_id), ..from(&file) };
    assert_eq!(import(&home, &named).await.unwrap().handle, taken.handle);
    assert_ne!(import(&home, &from(&file)).await.unwrap().session_id, taken.session_id);
    let taken_by_another = ImportParams { session_id: Some(id), ..from(&file) };
    assert!(matches!(import(&home, &taken_by_another).await, Err(SessionError::Conflict(_))));
}

#[tokio::test]
async fn a_plan_comes_along_into_a_file_of_its_own_and_the_model_is_told_which() {
    let (here, id, _, _) = presented(Mode::Default).await;
    home_is_stopped(&here, id).await;
    // Edited by hand right before.
    let edited = format!("{PLAN}\nBy hand.\n");
    std::fs::write(plan_file(&here.state(id).await), &edited).unwrap();
    let file = bundle(&here, "a.agentd");
    export(&here, &to(id, &file)).await.unwrap();
    assert_eq!(files(&file)[2], ("plan.md".to_owned(), edited.clone().into_bytes()));
    let there = Home::start(says("Hello.")).await;
    let state = import(&there, &from(&file)).await.unwrap().state;
    assert_eq!((state.mode, state.pre_mode), (Mode::Plan, Some(Mode::Default)));
    let path = plan_file(&state);
    assert!(path.starts_with(there.paths.plans_dir()));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), edited);
    let asked = go_on(&there, id).await.to_string();
    assert!(asked.contains(path.to_str().unwrap()), "{asked}");
    // Where it was, the plan can still be read.
    let plan = here.registry.ask(id, |reply| Command::PlanGet { reply }).await.unwrap();
    assert_eq!(plan.content, edited);
}

async fn home_is_stopped(home: &Home, id: SessionId) {
    home.interrupt(id).await;
    while home.state(id).await.activity != Activity::Idle {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_folder_that_is_not_here_is_asked_for_and_the_model_is_told() {
    let (here, there) = (Home::start(says("Hello.")).await, Home::start(says("Hello.")).await);
    let id = spoken(&here).await;
    let file = bundle(&there, "a.agentd");
    export(&here, &to(id, &file)).await.unwrap();
    drop(here);
    let refused = import(&there, &from(&file)).await.unwrap_err();
    assert!(
        matches!(&refused, SessionError::Invalid { field: "cwd", message } if message.contains("--cwd")),
        "{refused}"
    );
    let own = ImportParams { cwd: Some(there.paths.state_dir().display().to_string()), ..from(&file) };
    assert!(matches!(import(&there, &own).await, Err(SessionError::Invalid { field: "cwd", .. })));
    let secret = [("API_KEY".to_owned(), "x".to_owned())].into();
    let cwd = Some(there.project.display().to_string());
    let env = ImportParams { env: secret, cwd: cwd.clone(), ..from(&file) };
    assert!(matches!(import(&there, &env).await, Err(SessionError::Invalid { field: "env", .. })));
    let state = import(&there, &ImportParams { cwd, ..from(&file) }).await.unwrap().state;
    assert_eq!(state.cwd, there.project.display().to_string());
    let asked = go_on(&there, id).await;
    let last: Vec<_> = asked.as_array().unwrap().iter().rev().take(2).collect();
    assert!(json!(last).to_string().contains(&state.cwd), "{last:?}");
}

#[tokio::test]
async fn a_bundle_has_neither_environment_nor_snapshots_nor_keys() {
    let home = Home::start(says("Hello.")).await;
    let params = agentd_protocol::session::NewParams {
        env: [("LANG".to_owned(), "not-to-be-told-env".to_owned())].into(),
        ..home.params(Mode::Default)
    };
    let id = home.registry.create(params, &person()).await.unwrap().session_id;
    let turn = home.prompt(id, "hello").await.turn_id;
    home.wait(id, turn).await;
    // What tools keep of files, to take changes back.
    let kept = home.journals.blobs(&home.paths.session_dir(id));
    kept.put(b"not-to-be-told file".to_vec().into()).await.unwrap();
    std::fs::create_dir(home.paths.session_dir(id).join("snapshots")).unwrap();
    let file = bundle(&home, "a.agentd");
    export(&home, &to(id, &file)).await.unwrap();
    let all = std::fs::read(&file).unwrap();
    assert!(!String::from_utf8_lossy(&all).contains("not-to-be-told"));
    let known = |name: &str| {
        ["bundle.json", "journal.jsonl", "plan.md"].contains(&name) || name.starts_with("blobs/")
    };
    assert!(files(&file).iter().all(|(name, _)| known(name)));
}

#[tokio::test]
async fn journals_that_are_not_what_they_say_are_refused() {
    let (here, there) = (Home::start(says("Hello.")).await, Home::start(says("Hello.")).await);
    let id = spoken(&here).await;
    let (file, made) = (bundle(&here, "a.agentd"), bundle(&here, "made"));
    export(&here, &to(id, &file)).await.unwrap();
    let good = files(&file);
    let lines = String::from_utf8(good[1].1.clone()).unwrap();
    let journal = |text: String| {
        let mut files = good.clone();
        files[1].1 = text.into_bytes();
        files
    };
    let head: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    let next = |record: &str| {
        let seq = head["seq"].as_u64().unwrap() + 1;
        format!(
            "{lines}{{\"v\":1,\"seq\":{seq},\"at\":\"2026-01-01T00:00:00.000Z\",\"records\":[{record}]}}\n"
        )
    };
    let one_more = |about: &mut Value| about["seq"] = json!(about["seq"].as_u64().unwrap() + 1);
    let other = SessionId::generate();
    let cases: Vec<(&str, Files, Lie)> = vec![
        ("another session's", good.clone(), Box::new(move |about| about["sessionId"] = json!(other))),
        ("another owner's", good.clone(), Box::new(|about| about["ownerEpoch"] = json!(7))),
        ("shorter", good.clone(), Box::new(|about| about["seq"] = json!(3))),
        ("a wider mode", good.clone(), Box::new(|about| about["mode"] = json!("bypassPermissions"))),
        ("torn", journal(lines[..lines.len() - 9].to_owned()), Box::new(|_| {})),
        (
            "without a beginning",
            journal(lines.lines().skip(1).map(|line| format!("{line}\n")).collect()),
            Box::new(|_| {}),
        ),
        ("a must that nobody knows", journal(next(r#"{"type":"future","must":true}"#)), Box::new(one_more)),
        ("a mode that nobody knows", journal(lines.replacen("acceptEdits", "warp", 1)), Box::new(|_| {})),
        (
            "going on after it was given",
            journal(next(r#"{"type":"titleChanged","title":"x"}"#)),
            Box::new(one_more),
        ),
        ("of a newer agentd", journal(format!("{lines}{{\"v\":9,\"entries\":[]}}\n")), Box::new(|_| {})),
        (
            "a handle that is a command",
            journal(lines.replacen("\"handle\":\"", "\"handle\":\"$(x) ", 1)),
            Box::new(|_| {}),
        ),
        ("empty", journal(String::new()), Box::new(|_| {})),
        (
            "not given away",
            journal(
                lines
                    .lines()
                    .rev()
                    .skip(1)
                    .map(|line| format!("{line}\n"))
                    .collect::<Vec<_>>()
                    .into_iter()
                    .rev()
                    .collect(),
            ),
            Box::new(|about| about["seq"] = json!(about["seq"].as_u64().unwrap() - 1)),
        ),
        (
            "with a plan from nowhere",
            {
                let mut files = good.clone();
                files.insert(2, ("plan.md".into(), b"# P".to_vec()));
                files
            },
            Box::new(|_| {}),
        ),
    ];
    let folders = || std::fs::read_dir(there.paths.sessions_dir()).unwrap().count();
    for (what, files, about) in cases {
        write(&made, files, about);
        let refused = import(&there, &from(&made)).await.expect_err(what);
        assert!(matches!(refused, SessionError::Invalid { field: "path", .. }), "{what}: {refused:?}");
        assert_eq!(
            (folders(), std::fs::read_dir(there.paths.plans_dir()).unwrap().count()),
            (0, 0),
            "{what}"
        );
    }
    // The tool with which they were made makes good ones too.
    write(&made, good, |_| {});
    import(&there, &from(&made)).await.unwrap();
}

#[tokio::test]
async fn a_mode_that_asks_almost_nothing_stays_where_it_was_given() {
    let (here, there) = (Home::start(says("Hello.")).await, Home::start(says("Hello.")).await);
    let id = spoken(&here).await;
    here.set_mode(id, Mode::BypassPermissions).await.unwrap();
    let file = bundle(&here, "a.agentd");
    export(&here, &to(id, &file)).await.unwrap();
    assert_eq!(import(&there, &from(&file)).await.unwrap().state.mode, Mode::AcceptEdits);
}

#[tokio::test]
async fn a_disk_that_fails_leaves_one_owner() {
    use crate::journal::faults::Op;
    let home = Home::start(says("Hello.")).await;
    let id = spoken(&home).await;
    let file = bundle(&home, "a.agentd");
    home.faults.fail(Op::Write, 1);
    assert!(matches!(export(&home, &to(id, &file)).await, Err(SessionError::Storage { .. })));
    assert!(!file.exists());
    go_on(&home, id).await;
    export(&home, &to(id, &file)).await.unwrap();
    // The import's own commit; what was unpacked is synced once when it is opened.
    for (op, nth) in [(Op::Write, 1), (Op::Sync, 2)] {
        home.faults.fail(op, nth);
        assert!(matches!(import(&home, &from(&file)).await, Err(SessionError::Storage { .. })), "{op:?}");
        assert!(matches!(home.try_prompt(prompt(id, "go on")).await, Err(SessionError::HandedOver(_))));
        assert_eq!(std::fs::read_dir(home.paths.sessions_dir()).unwrap().count(), 1, "{op:?}");
    }
    import(&home, &from(&file)).await.unwrap();
    go_on(&home, id).await;
}
