//! Plan mode refuses what it must, and says by which guard.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use agentd_tests::{Chat, Dialect, Reply, Script, Start, World, call, tree};
use serde_json::json;

/// Writes the plan, then presents it.
pub(crate) fn planning(text: &str) -> Reply {
    call("write_file", json!({"file_path": "{{plan_path}}", "content": text}))
        .call("exit_plan_mode", json!({}))
}

#[test]
fn pm_01_after_a_rejected_plan_nothing_but_the_plan_file_can_be_written() {
    let script = Script::new()
        .step(planning("# Plan\n1. change a\n"))
        .step(
            call("write_file", json!({"file_path": "src/a.rs", "content": "broken"}))
                .call(
                    "edit_file",
                    json!({"file_path": "src/b.rs", "old_string": "fn b", "new_string": "fn c"}),
                )
                .call("run_shell", json!({"command": "touch c"}))
                .call("write_file", json!({"file_path": "{{plan_path}}", "content": "# Plan\n1. other\n"})),
        )
        .step(Reply::text("I keep planning."));
    let world = World::new(script);
    let project = world.home.project();
    let before = project.tree();
    let mut chat = world.session("plan");
    chat.prompt("Change a");
    let approval = chat.approval();
    chat.respond(&approval, "keepPlanning", json!({"feedback": "not like that"})).unwrap();
    assert_eq!(chat.outcome(), "finished");
    let lines: Vec<_> = chat.verdicts().iter().map(|verdict| verdict.line()).collect();
    assert_eq!(
        lines,
        [
            "write_file allow plan.ownFile ok",
            "exit_plan_mode ask plan.leave denied plan.keepPlanning",
            "write_file deny plan.write denied plan.write",
            "edit_file deny plan.write denied plan.write",
            "run_shell deny plan.command denied plan.command",
            "write_file allow plan.ownFile ok",
        ]
    );
    assert_eq!(chat.mode(), "plan");
    assert_eq!(project.tree(), before);
    let plan = std::fs::read_to_string(approval["plan"]["path"].as_str().unwrap()).unwrap();
    assert_eq!(plan, "# Plan\n1. other\n");
    assert_eq!(chat.events("approvalRequested").len(), 1);
}

#[test]
fn pm_02_plan_mode_asks_nobody_about_a_write() {
    let script = Script::new()
        .step(call("read_file", json!({"file_path": "src/a.rs"})))
        .step(call("edit_file", json!({"file_path": "src/a.rs", "old_string": "fn a", "new_string": "fn z"})))
        .step(Reply::text("Refused."));
    let world = World::new(script);
    let before = world.home.project().tree();
    let mut chat = world.session("plan");
    chat.prompt("Edit a");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.verdict("read_file").line(), "read_file allow read.workspace ok");
    assert_eq!(chat.verdict("edit_file").line(), "edit_file deny plan.write denied plan.write");
    assert!(chat.events("approvalRequested").is_empty());
    assert_eq!(world.home.project().tree(), before);
}

#[test]
fn an_approved_plan_is_carried_out() {
    let script = Script::new()
        .step(planning("# Plan\n1. add c\n"))
        .step(call("write_file", json!({"file_path": "src/c.rs", "content": "fn c() {}\n"})))
        .step(Reply::text("Done."));
    let world = World::new(script);
    let mut chat = world.session("plan");
    chat.prompt("Add c");
    let approval = chat.approval();
    assert_eq!(approval["plan"]["content"], "# Plan\n1. add c\n");
    assert_eq!(chat.choose(&approval, "execute")["modeNow"], "acceptEdits");
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.verdict("write_file").line(), "write_file allow write.workspace ok");
    assert_eq!(world.home.project().read("src/c.rs"), "fn c() {}\n");
}

/// Calls `write_file` with the path that the prompt consists of.
fn writes_what_is_asked() -> Script {
    Script::new().rule(
        "write",
        json!({"answers": 0}),
        call("write_file", json!({"file_path": "{{prompt}}", "content": "bent\n"})),
    )
}

#[test]
fn pm_23_only_this_sessions_exact_plan_file_can_be_written() {
    let world = World::new(writes_what_is_asked());
    let mut other = world.session("plan");
    let others_plan = other.state()["plan"]["path"].as_str().unwrap().to_owned();
    let mut chat = world.session("plan");
    let own = chat.state()["plan"]["path"].as_str().unwrap().to_owned();
    let plans = world.home.plans().display().to_string();
    let project = world.home.project();
    let (before, plans_before) = (project.tree(), tree(&world.home.plans()));
    for (path, guard) in [
        (format!("{plans}/../../../project/src/x.md"), "plan.write"),
        (format!("{plans}/../plans/new.md"), "own.folder"),
        (format!("{plans}/new.md"), "own.folder"),
        (others_plan.clone(), "own.folder"),
        (world.home.path("state/agentd/active/x").display().to_string(), "own.folder"),
        (world.home.path("config/agentd/config2.toml").display().to_string(), "own.folder"),
        (format!("{own}.md"), "own.folder"),
    ] {
        chat.prompt(&path);
        assert_eq!(chat.outcome(), "finished");
        let verdict = chat.verdict("write_file");
        assert_eq!(
            (verdict.decision.as_str(), verdict.status.as_str()),
            ("deny", "denied"),
            "{path}: {verdict:?}"
        );
        assert_eq!(verdict.reason, guard, "{path}");
    }
    assert_eq!(project.tree(), before);
    assert_eq!(tree(&world.home.plans()), plans_before);

    chat.prompt(&format!("{plans}/../plans/{}", own.rsplit('/').next().unwrap()));
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.verdict("write_file").line(), "write_file allow plan.ownFile ok");
    assert_eq!(std::fs::read_to_string(&own).unwrap(), "bent\n");
    assert!(chat.events("approvalRequested").is_empty());
}

/// A session in plan mode, whose plan file `bend` has replaced with a link to a file of the project, after a prompt. Gives
/// it with what has happened by the time the plan is presented, and with the path of the plan.
fn bent(world: &World, bend: fn(&Path, &Path)) -> (Vec<String>, Chat, PathBuf) {
    let mut chat = world.session("plan");
    let plan = PathBuf::from(chat.state()["plan"]["path"].as_str().unwrap());
    std::fs::remove_file(&plan).unwrap();
    bend(&world.home.project().path.join("src/a.rs"), &plan);
    chat.prompt("Plan");
    let approval = chat.approval();
    assert_eq!(approval["plan"]["content"], "# Plan\n");
    (chat.verdicts().iter().map(|verdict| verdict.line()).collect(), chat, plan)
}

/// What has become of the plan, the file that was linked to, and the link.
fn led_nowhere(world: &World, chat: &mut Chat, plan: &Path) -> PathBuf {
    assert_eq!(world.home.project().read("src/a.rs"), "fn a() {}\n");
    assert_eq!(std::fs::read_to_string(plan).unwrap(), "# Plan\n");
    let meta = plan.symlink_metadata().unwrap();
    assert!(meta.is_file() && meta.nlink() == 1, "a file of the plan's own");
    assert_eq!(chat.mode(), "plan");
    let aside = PathBuf::from(format!("{}.aside-1", plan.display()));
    let told = chat.events("notice");
    let told = told.iter().find(|event| event["code"] == "planAside").unwrap();
    assert!(told["text"].as_str().unwrap().ends_with(&aside.display().to_string()), "{told}");
    assert_eq!(std::fs::read_dir(world.home.plans()).unwrap().count(), 2, "the plan and what was set aside");
    aside
}

#[test]
fn pm_23_a_symbolic_link_in_the_plans_place_is_refused_and_set_aside() {
    let world = World::new(Script::new().step(planning("# Plan\n")).step(planning("# Plan\n")));
    let before = world.home.project().tree();
    let (lines, mut chat, plan) =
        bent(&world, |source, plan| std::os::unix::fs::symlink(source, plan).unwrap());
    assert_eq!(
        lines,
        [
            // Where the link leads is no plan file. Presenting finds the link and puts a plan of its own in its place.
            "write_file deny plan.write denied plan.write",
            "exit_plan_mode ask plan.leave error plan.notReady",
            "write_file allow plan.ownFile ok",
            "exit_plan_mode ask plan.leave",
        ]
    );
    let aside = led_nowhere(&world, &mut chat, &plan);
    assert_eq!(std::fs::read_link(aside).unwrap(), world.home.project().path.join("src/a.rs"));
    assert_eq!(world.home.project().tree(), before);
}

#[test]
fn pm_23_a_hard_link_in_the_plans_place_is_set_aside_and_the_plan_written_beside_it() {
    let world = World::new(Script::new().step(planning("# Plan\n")));
    let before = world.home.project().tree();
    let (lines, mut chat, plan) = bent(&world, |source, plan| std::fs::hard_link(source, plan).unwrap());
    assert_eq!(lines, ["write_file allow plan.ownFile ok", "exit_plan_mode ask plan.leave"]);
    let aside = led_nowhere(&world, &mut chat, &plan).metadata().unwrap();
    let source = world.home.project().path.join("src/a.rs").metadata().unwrap();
    assert_eq!((aside.ino(), aside.nlink()), (source.ino(), 2), "the very file, and not a copy");
    assert_eq!(world.home.project().tree(), before);
}

#[test]
fn pm_22_no_command_runs_in_plan_mode_however_harmless() {
    let commands =
        ["ls 2>&1", "grep '>' README.md", "ls *.md", "cat README.md 2>/dev/null", "find . -name x"];
    let script = commands
        .iter()
        .fold(Script::new(), |script, command| script.step(call("run_shell", json!({"command": command}))));
    let world = World::new(script);
    let before = world.home.project().tree();
    let mut chat = world.session("plan");
    chat.prompt("Look around");
    assert_eq!(chat.outcome(), "finished");
    for verdict in chat.verdicts() {
        assert_eq!(verdict.line(), "run_shell deny plan.command denied plan.command");
    }
    assert_eq!(chat.verdicts().len(), commands.len());
    assert_eq!(world.home.project().tree(), before);
}

#[test]
fn pm_16_no_rule_leaves_plan_mode() {
    let script = Script::new()
        .step(planning("# Plan\n"))
        .step(call("write_file", json!({"file_path": "c", "content": "x"})))
        .step(Reply::text("Stopped."));
    let rules = "[permissions]\nallow = [\"exit_plan_mode\", \"write_file\", \"edit_file\", \"run_shell\"]\n";
    let start = Start { args: vec!["--allow-bypass".into()], ..Start::default() };
    let world = World::with(script, Dialect::OpenaiChat, rules, start);
    // The widest mode before planning does not help either.
    let mut chat = world.session("bypassPermissions");
    chat.set_mode("plan");
    chat.prompt("Plan");
    let approval = chat.approval();
    assert_eq!(chat.verdict("exit_plan_mode").line(), "exit_plan_mode ask plan.leave");
    assert_eq!(chat.mode(), "plan");
    chat.respond(&approval, "keepPlanning", json!({"feedback": "more"})).unwrap();
    assert_eq!(chat.outcome(), "finished");
    assert_eq!(chat.verdict("exit_plan_mode").status, "denied");
    assert_eq!(chat.verdict("write_file").line(), "write_file deny plan.write denied plan.write");
    assert_eq!(chat.mode(), "plan");
    assert!(!world.home.project().path.join("c").exists());
}
