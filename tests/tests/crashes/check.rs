//! What must hold after a run, by witnesses outside the daemon: what clients were told, the counter file, the model
//! server's own log, the project, and the lines of the journal.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::run::Run;
use crate::scenario::{Effect, IN_FORK, On, Places};
use crate::seen::{Told, number};

/// What a fresh daemon tells of the session: every event from the beginning, and its state.
#[derive(Clone)]
pub(crate) struct Afterwards {
    pub(crate) events: Vec<Value>,
    pub(crate) state: Value,
    pub(crate) forked: Option<Forked>,
}

/// The same of the session that was forked from it, if there is one.
#[derive(Clone)]
pub(crate) struct Forked {
    pub(crate) state: Value,
    pub(crate) events: Vec<Value>,
}

pub(crate) fn check(run: &Run<'_>, after: &Afterwards) -> anyhow::Result<()> {
    same_events(run, after)?;
    contiguous(&run.home.journal(&run.session))?;
    prompts(run, after)?;
    approvals(run, after)?;
    modes(run, after)?;
    effects(run, after)?;
    project(run)?;
    plan_file(run, after)?;
    fork(run, after)?;
    let (forks, own): (Vec<_>, Vec<_>) =
        run.model.requests().into_iter().partition(|request| request.to_string().contains(IN_FORK));
    crate::provider::check(run.scenario.dialect, &own, count(after, "contextReset"))?;
    crate::provider::check(run.scenario.dialect, &forks, 0)?;
    let active = std::fs::read_dir(run.home.path("state/agentd/active"))?.count();
    ensure!(active == 0, "an idle session is marked as active");
    Ok(())
}

fn of<'e>(after: &'e Afterwards, kind: &str) -> Vec<&'e Value> {
    after.events.iter().filter(|event| event["type"] == kind).collect()
}

fn count(after: &Afterwards, kind: &str) -> usize {
    of(after, kind).len()
}

/// What a client saw is seen again, word for word, in the same order, and nothing has come in between.
fn same_events(run: &Run<'_>, after: &Afterwards) -> anyhow::Result<()> {
    let numbers: Vec<_> = after.events.iter().filter_map(number).collect();
    ensure!(numbers.is_sorted_by(|a, b| a < b), "events are out of order: {numbers:?}");
    ensure!(
        numbers == run.seen.log.keys().copied().collect::<Vec<_>>(),
        "other events than before: {numbers:?}"
    );
    for (again, before) in after.events.iter().zip(run.seen.log.values()) {
        ensure!(again == before, "told before as\n  {before}\nand afterwards as\n  {again}");
    }
    Ok(())
}

/// Every record has the number after the one before it: nothing of the journal was lost on the way.
fn contiguous(journal: &Path) -> anyhow::Result<()> {
    let mut next = 1;
    for line in std::fs::read_to_string(journal)?.lines() {
        let commit: Value = serde_json::from_str(line).context("a line of the journal is no commit")?;
        ensure!(commit["seq"] == next, "record {next} is missing before {line}");
        next += commit["records"].as_array().map_or(0, Vec::len) as u64;
    }
    Ok(())
}

/// A prompt that was acknowledged is there once, and in the end its turn is over, as every turn is.
fn prompts(run: &Run<'_>, after: &Afterwards) -> anyhow::Result<()> {
    let accepted: Vec<_> = of(after, "promptAccepted").iter().map(|event| &event["promptId"]).collect();
    for told in asked(run, "session/prompt") {
        ensure!(told.answer.is_ok(), "a prompt was refused: {:?}", told.answer);
        let id = &told.params["promptId"];
        let times = accepted.iter().filter(|known| *known == &id).count();
        ensure!(times == 1, "prompt {id} was acknowledged and is there {times} times");
    }
    let started: Vec<_> = of(after, "turnStarted").iter().map(|event| &event["turnId"]).collect();
    let finished: Vec<_> = of(after, "turnFinished").iter().map(|event| &event["turnId"]).collect();
    ensure!(started == finished, "turns {started:?} began, {finished:?} ended");
    let order: Vec<_> = accepted.iter().filter(|prompt| started.contains(prompt)).collect();
    ensure!(
        order == started.iter().collect::<Vec<_>>(),
        "prompts {accepted:?} had their turns as {started:?}"
    );
    let state = &after.state;
    ensure!(state["activity"] == "idle" && state["turnId"].is_null(), "something goes on: {state}");
    ensure!(state["inbox"] == serde_json::json!([]), "a prompt was left: {state}");
    Ok(())
}

fn asked<'r>(run: &'r Run<'_>, method: &'r str) -> impl Iterator<Item = &'r Told> {
    let here = |told: &&Told| told.params["sessionId"] == run.session.as_str();
    run.seen.told.iter().filter(move |told| told.method == method).filter(here)
}

/// Every approval was asked for once and settled once, and who was told to have won is who won.
fn approvals(run: &Run<'_>, after: &Afterwards) -> anyhow::Result<()> {
    let asked_for = of(after, "approvalRequested");
    let resolved = of(after, "approvalResolved");
    for approval in &asked_for {
        let id = &approval["approvalId"];
        let of_it = |events: &[&Value]| events.iter().filter(|event| &event["approvalId"] == id).count();
        ensure!(of_it(&asked_for) == 1, "approval {id} is there twice");
        ensure!(of_it(&resolved) == 1, "approval {id} was settled {} times", of_it(&resolved));
    }
    ensure!(resolved.len() == asked_for.len(), "an approval was settled that nobody asked for");
    for told in asked(run, "approval/respond") {
        let id = &told.params["approvalId"];
        let how = resolved.iter().find(|event| &event["approvalId"] == id).context("an unknown approval")?;
        let by = ["one", "two"][told.who];
        let won = how["by"]["client"] == by && how["choice"] == told.params["choice"];
        match &told.answer {
            Ok(_) => ensure!(won, "client {by} was told that its answer counts, but {how}"),
            Err(error) => {
                ensure!(error.code == -32051, "{error:?}");
                ensure!(!won, "client {by} was refused, but {how}");
            }
        }
    }
    Ok(())
}

/// The mode is the last one that was told, and nobody was told of one that never was.
fn modes(run: &Run<'_>, after: &Afterwards) -> anyhow::Result<()> {
    let changes = of(after, "modeChanged");
    let mut mode = run.scenario.mode.to_owned();
    for change in &changes {
        ensure!(change["from"] == mode.as_str(), "the mode was {mode}, but {change}");
        mode = change["to"].as_str().unwrap_or_default().to_owned();
    }
    ensure!(after.state["mode"] == mode.as_str(), "told {mode}, but {}", after.state["mode"]);
    let been =
        |wanted: &Value| *wanted == run.scenario.mode || changes.iter().any(|change| &change["to"] == wanted);
    for told in asked(run, "session/setMode") {
        ensure!(told.answer.is_ok(), "a mode was refused: {:?}", told.answer);
        ensure!(been(&told.params["mode"]), "mode {} was acknowledged and never came", told.params["mode"]);
    }
    for told in asked(run, "approval/respond") {
        let Ok(answer) = &told.answer else { continue };
        ensure!(been(&answer["modeNow"]), "told mode {} that never was", answer["modeNow"]);
    }
    for approved in of(after, "planApproved") {
        let change = changes.iter().find(|change| change["seq"].as_u64() > approved["seq"].as_u64());
        let to = change.map(|change| &change["to"]);
        ensure!(to == Some(&approved["modeAfter"]), "{approved} was followed by mode {to:?}");
    }
    Ok(())
}

/// No effect came twice, none that came is told as one that did not, none that is told is missing.
fn effects(run: &Run<'_>, after: &Afterwards) -> anyhow::Result<()> {
    let mut ends: HashMap<&Value, Vec<&Value>> = HashMap::new();
    for end in of(after, "toolCallFinished") {
        ends.entry(&end["callId"]).or_default().push(end);
    }
    let calls = of(after, "toolCallStarted");
    for call in &calls {
        let results = ends.get(&call["callId"]).map_or(0, Vec::len);
        ensure!(results == 1, "{call} has {results} results");
    }
    let counter = std::fs::read_to_string(Places::of(&run.home).counter).unwrap_or_default();
    for effect in &run.scenario.effects {
        let ends: Vec<_> = calls
            .iter()
            .filter(|call| call["kind"] != "read" && call["input"].to_string().contains(effect.mark))
            .filter_map(|call| ends.get(&call["callId"])?.first().copied())
            .collect();
        happened(run, effect, &ends, &counter)
            .with_context(|| format!("{}: told {ends:?}, the counter holds {counter:?}", effect.mark))?;
    }
    Ok(())
}

fn happened(run: &Run<'_>, effect: &Effect, ends: &[&Value], counter: &str) -> anyhow::Result<()> {
    let times = match effect.on {
        On::Counter => counter.lines().filter(|line| *line == effect.mark).count(),
        On::File { path, before, after } => {
            let found = std::fs::read_to_string(run.home.project().path.join(path)).ok();
            ensure!(
                found.as_deref() == before || found.as_deref() == Some(after),
                "the file holds {found:?}, neither what it held nor what was written"
            );
            usize::from(found.as_deref() == Some(after))
        }
        On::TakenBack { path, before } => {
            let found = std::fs::read_to_string(run.home.project().path.join(path)).ok();
            let left = found.as_deref() != before;
            ensure!(!left || run.killed > 0 && said_to_stay(run, path), "taken back, and it holds {found:?}");
            // What it had done is undone, so nothing is left to be counted.
            return Ok(());
        }
    };
    ensure!(times <= 1, "it happened {times} times");
    let of = |status: &str| ends.iter().filter(|end| end["status"] == status).count();
    // A read that a crash cut off was no read, so the edit after it is refused; that is told as "nothing was done".
    let refused = ends.iter().filter(|end| end["reason"] == "call.invalid").count();
    ensure!(of("error") == refused, "the call failed");
    ensure!(of("ok") <= 1, "told {} times that it happened", of("ok"));
    ensure!(of("ok") <= times, "told that it happened, and it did not");
    let unknown = ends.iter().filter(|end| end["reason"] == "crash.unknownOutcome").count();
    ensure!(times <= of("ok") + unknown, "it happened, and no call says that it may have");
    if run.killed == 0 {
        let statuses: Vec<_> = ends.iter().filter_map(|end| end["status"].as_str()).collect();
        let [status] = statuses[..] else { anyhow::bail!("not one call, undisturbed: {statuses:?}") };
        ensure!(effect.undisturbed.contains(&status), "{status}, undisturbed");
    }
    Ok(())
}

/// After a crash in the middle of a command, what it changed cannot be told from what others did; that is said.
fn said_to_stay(run: &Run<'_>, path: &str) -> bool {
    asked(run, "session/rewind").filter_map(|told| told.answer.as_ref().ok()).any(|answer| {
        answer["files"]["stays"].as_array().into_iter().flatten().any(|stays| stays["path"] == path)
    })
}

/// Nothing is there that no call made, and what no call should touch was not touched.
fn project(run: &Run<'_>) -> anyhow::Result<()> {
    let now = run.home.project().tree();
    for (name, entry) in &now {
        // The edit that was cut off wrote beside its file; such a file is nobody's and is never listed.
        let unfinished = run.killed > 0 && name.contains(".agentd-") && name.ends_with(".tmp");
        let folder = run.untouched.contains_key(name) && run.home.project().path.join(name).is_dir();
        if unfinished || folder || run.scenario.touches(Path::new(name)) {
            continue;
        }
        ensure!(run.untouched.get(name) == Some(entry), "{name} was made or changed by no call");
    }
    for name in run.untouched.keys() {
        ensure!(now.contains_key(name), "{name} is gone");
    }
    Ok(())
}

/// After an approval the plan's file is the plan that was approved.
fn plan_file(run: &Run<'_>, after: &Afterwards) -> anyhow::Result<()> {
    let (Some(plan), true) = (run.scenario.plan, count(after, "planApproved") > 0) else { return Ok(()) };
    let path = after.state["plan"]["path"].as_str().context("a plan")?;
    let found = std::fs::read_to_string(path)?;
    ensure!(found == plan, "{path} holds {found:?}, approved was {plan:?}");
    Ok(())
}

/// A fork is there whole or not at all, holds what its source did up to where it was forked, and one that was deleted is
/// gone. Nothing half of it lies about.
fn fork(run: &Run<'_>, after: &Afterwards) -> anyhow::Result<()> {
    let all = || run.seen.told.iter();
    let deleted = all().any(|told| told.method == "session/delete");
    let made = all().find(|told| told.method == "session/fork");
    let folder = run.home.path("state/agentd/sessions").join(&run.fork);
    let Some(made) = made.filter(|_| !deleted) else {
        ensure!(after.forked.is_none() && !folder.exists(), "there is a fork in {}", folder.display());
        return Ok(());
    };
    let told = made.answer.as_ref().map_err(|error| anyhow::anyhow!("no fork: {error:?}"))?;
    let forked = after.forked.as_ref().context("the fork is gone")?;
    ensure!(forked.state["activity"] == "idle", "the fork is not idle: {}", forked.state);
    contiguous(&run.home.journal(&run.fork))?;
    // The first commit is the fork's own; the rest is what the source has.
    let own = first_commit(&run.home.journal(&run.fork))?;
    let until = told["atSeq"].as_u64().context("where it was forked")?;
    let shared = |events: &[Value]| -> Vec<Value> {
        let within = |event: &&Value| number(event).is_some_and(|seq| seq > own && seq <= until);
        let plain = |event: &Value| {
            let mut event = event.clone();
            event["sessionId"] = Value::Null;
            event
        };
        events.iter().filter(within).map(plain).collect()
    };
    let (source, copy) = (shared(&after.events), shared(&forked.events));
    ensure!(source == copy, "the source has\n  {source:?}\nand the fork\n  {copy:?}");
    ensure!(!source.is_empty(), "nothing was forked");
    Ok(())
}

/// The number of the last record of the first commit.
fn first_commit(journal: &Path) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(journal)?;
    let commit: Value = serde_json::from_str(text.lines().next().context("an empty journal")?)?;
    Ok(commit["records"].as_array().map_or(0, Vec::len) as u64)
}
