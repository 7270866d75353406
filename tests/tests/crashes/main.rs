//! Sessions survive `kill -9`: scripted sessions whose daemon is killed at every write of a journal and at random instants,
//! and a checker whose witnesses are outside the daemon. A program of its own, so that it has the machine for itself.
//!
//! A plain run takes a part of the writes, `.ci/run` all of them, `AGENTD_CRASHES=5000` more random ones besides. A failure prints the seed, the case, and the command that repeats it, and
//! leaves the home as it was.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails; helpers of tests too")]

mod check;
mod client;
mod kills;
mod provider;
mod run;
mod scenario;
mod seen;

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use check::Afterwards;
use kills::{Case, Dice, Kill, PLACES};
use run::Run;
use scenario::Scenario;

/// Runs side by side. They wait for the disk and for each other's processes about half of the time.
const WORKERS: usize = 4;

/// Runs unless `AGENTD_CRASHES` says another number; more than there are writes and places covers them all.
const RUNS: usize = 400;

/// Of how many runs one is killed at random instants, as long as there are writes left to be killed at.
const RANDOM: usize = 10;

/// About as long as a daemon takes to start; some are killed a little later.
const STARTING: Duration = Duration::from_millis(60);

/// How often a case with a kill by time is repeated when one asks for it: the instant is never quite the same.
const REPEATS: usize = 20;

/// How a run went that kept all promises.
struct Done {
    killed: usize,
    /// Commits of the journal.
    commits: usize,
    took: Duration,
}

/// Carries out one case and checks it.
fn carry_out(scenario: &Scenario, case: &Case) -> Result<Done, String> {
    let begun = Instant::now();
    let mut run = Run::new(scenario, &case.kills);
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
        run.go()?;
        let took = begun.elapsed();
        let after = run.afterwards()?;
        check::check(&run, &after)?;
        let commits = commits(&run)?;
        anyhow::Ok(Done { killed: run.killed, commits, took })
    }));
    let why = match result {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(error)) => format!("{error:?}"),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
        }
    };
    run.home.keep();
    // Beside the journal, for whoever looks.
    let _ = std::fs::write(run.home.path("told.txt"), run.seen.text());
    let _ =
        std::fs::write(run.home.path("requests.json"), serde_json::json!(run.model.requests()).to_string());
    Err(format!(
        "{case}: {why}\nits home is kept, with told.txt and requests.json: {}\nrepeat it with\n  AGENTD_CRASH='{case}' \
         cargo test -p agentd-tests --test crashes -- --nocapture",
        run.home.path("").display(),
    ))
}

/// Of all journals that are left.
fn commits(run: &Run<'_>) -> anyhow::Result<usize> {
    let sessions = [&run.session, &run.fork].map(|id| run.home.journal(id));
    let lines = |path: &std::path::PathBuf| Ok(std::fs::read_to_string(path)?.lines().count());
    sessions.iter().filter(|journal| journal.exists()).map(lines).sum()
}

/// Carries out all cases, several at a time, and gives the number of kills.
fn carry_out_all(scenarios: &[Scenario], cases: Vec<Case>) -> Result<usize, String> {
    let cases = Mutex::new(VecDeque::from(cases));
    let failed = Mutex::new(None);
    let killed = Mutex::new(0);
    // From which number on a scenario has no more syncs; known as soon as one was waited for in vain.
    let no_sync: Mutex<HashMap<String, usize>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while failed.lock().unwrap().is_none() {
                    let Some(case) = cases.lock().unwrap().pop_front() else { return };
                    let sync = case.only_sync();
                    let end = no_sync.lock().unwrap().get(&case.scenario).copied();
                    if sync.zip(end).is_some_and(|(sync, end)| sync >= end) {
                        continue;
                    }
                    let scenario = scenarios.iter().find(|known| known.name == case.scenario);
                    match scenario
                        .ok_or_else(|| format!("{case}: no such scenario"))
                        .and_then(|s| carry_out(s, &case))
                    {
                        Ok(done) => {
                            *killed.lock().unwrap() += done.killed;
                            if let Some(sync) = sync.filter(|_| done.killed == 0) {
                                let mut no_sync = no_sync.lock().unwrap();
                                let end = no_sync.entry(case.scenario.clone()).or_insert(sync);
                                *end = sync.min(*end);
                            }
                        }
                        Err(why) => drop(failed.lock().unwrap().get_or_insert(why)),
                    }
                }
            });
        }
    });
    match failed.into_inner().unwrap() {
        Some(why) => Err(why),
        None => Ok(killed.into_inner().unwrap()),
    }
}

/// Every write of an undisturbed run, at each of the four places. There are at most as many syncs as writes.
fn at_every_write(name: &str, undisturbed: &Done) -> Vec<Case> {
    let places = PLACES.into_iter().flat_map(|place| (1..=undisturbed.commits).map(move |nth| (place, nth)));
    places
        .map(|(place, nth)| Case { scenario: name.to_owned(), kills: vec![Kill::At { place, nth }] })
        .collect()
}

/// One to three kills, each at a random instant or write, while the daemon starts, or as a request to end.
fn at_random(dice: &mut Dice, name: &str, undisturbed: &Done) -> Case {
    let instant = |dice: &mut Dice, longest: Duration| {
        let longest = usize::try_from(longest.as_micros()).unwrap_or(usize::MAX);
        Duration::from_micros(dice.roll(longest.max(1)) as u64)
    };
    let kills = (0..=dice.roll(3))
        .map(|at| match dice.roll(8) {
            0..3 => Kill::After(instant(dice, undisturbed.took)),
            3 => Kill::Ask(instant(dice, undisturbed.took)),
            // Before there is anything, there is nothing to be lost.
            4 if at > 0 => Kill::Early(instant(dice, STARTING)),
            _ => Kill::At { place: PLACES[dice.roll(PLACES.len())], nth: 1 + dice.roll(undisturbed.commits) },
        })
        .collect();
    Case { scenario: name.to_owned(), kills }
}

fn setting<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} cannot be read")))
}

#[test]
fn sessions_survive_kill_9_at_every_write_and_at_random_instants() {
    let scenarios = scenario::all();
    if let Some(case) = setting::<Case>("AGENTD_CRASH") {
        let by_time = case.kills.iter().any(|kill| !matches!(kill, Kill::At { .. }));
        let cases = vec![case; if by_time { REPEATS } else { 1 }];
        let killed = carry_out_all(&scenarios, cases).unwrap_or_else(|why| panic!("{why}"));
        println!("killed {killed} times, and all is well");
        return;
    }
    let seed = setting("AGENTD_CRASH_SEED").unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
    let mut dice = Dice(seed);
    let undisturbed: Vec<_> = scenarios
        .iter()
        .map(|scenario| {
            let case = Case { scenario: scenario.name.to_owned(), kills: vec![] };
            let done = carry_out(scenario, &case).unwrap_or_else(|why| panic!("{why}"));
            println!("{}: {} commits in {:?}", scenario.name, done.commits, done.took);
            (scenario.name, done)
        })
        .collect();
    let mut cases: Vec<_> = undisturbed.iter().flat_map(|(name, done)| at_every_write(name, done)).collect();
    let wanted = setting("AGENTD_CRASHES").unwrap_or(RUNS);
    // Which ones a small number leaves out is another choice each time.
    dice.shuffle(&mut cases);
    cases.truncate(wanted - wanted / RANDOM);
    while cases.len() < wanted {
        let (name, done) = &undisturbed[dice.roll(undisturbed.len())];
        cases.push(at_random(&mut dice, name, done));
    }
    println!("seed {seed}, {} runs", cases.len());
    let begun = Instant::now();
    let killed =
        carry_out_all(&scenarios, cases).unwrap_or_else(|why| panic!("AGENTD_CRASH_SEED={seed}\n{why}"));
    println!("killed {killed} times in {:?}, and nothing was lost or done twice", begun.elapsed());
    assert!(killed >= wanted / 2, "of {wanted} runs only {killed} were disturbed");
}

/// Something that a broken daemon could have left.
type Break = fn(&Run<'_>, &mut Afterwards);

/// A checker that finds nothing proves nothing.
#[test]
fn the_checker_finds_what_a_broken_daemon_would_leave() {
    let scenarios = scenario::all();
    let scenario = &scenarios[0];
    let mut run = Run::new(scenario, &[]);
    run.go().unwrap();
    let whole = run.afterwards().unwrap();
    check::check(&run, &whole).unwrap();
    let of = |kind: &str| whole.events.iter().position(|event| event["type"] == kind).unwrap();
    let (result, resolved) = (of("toolCallFinished"), of("approvalResolved"));
    let breaks: [(&str, Break, &str); 7] = [
        ("an event is gone", |_, after| drop(after.events.remove(5)), "other events than before"),
        ("two are exchanged", |_, after| after.events.swap(5, 6), "out of order"),
        ("one is another", |_, after| after.events[5]["at"] = "later".into(), "told before as"),
        ("another mode", |_, after| after.state["mode"] = "plan".into(), "told acceptEdits"),
        ("a turn goes on", |_, after| after.state["activity"] = "running".into(), "something goes on"),
        (
            "a file that nobody wrote",
            |run, _| run.home.project().write("stray", "x"),
            "stray was made or changed by no call",
        ),
        (
            "a command ran twice",
            |run, _| {
                let counter = scenario::Places::of(&run.home).counter;
                let once = std::fs::read_to_string(&counter).unwrap();
                std::fs::write(counter, once.repeat(2)).unwrap();
            },
            "it happened 2 times",
        ),
    ];
    for (what, break_it, found) in breaks {
        let mut after = whole.clone();
        break_it(&run, &mut after);
        let why = format!("{:?}", check::check(&run, &after).expect_err(what));
        assert!(why.contains(found), "{what}: {why}");
    }
    // What everybody was told, and was not so.
    for (at, found) in [(result, "has 0 results"), (resolved, "was settled 0 times")] {
        let gone = whole.events[at]["seq"].as_u64().unwrap();
        let mut after = whole.clone();
        after.events.remove(at);
        let event = run.seen.log.remove(&gone).unwrap();
        let why = format!("{:?}", check::check(&run, &after).expect_err(found));
        run.seen.log.insert(gone, event);
        assert!(why.contains(found), "{why}");
    }
}
