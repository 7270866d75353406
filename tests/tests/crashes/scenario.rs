//! What a scenario is: what the model says, what people do and when, and what must have come of it.

use std::path::{Path, PathBuf};

use agentd_tests::{Dialect, Home, Reply, Script, call};
use serde_json::{Value, json};

/// The model's last word: with it a scenario is through.
pub(crate) const END: &str = "That is all.";

/// What every prompt to a fork has in it, so that its requests can be told apart.
pub(crate) const IN_FORK: &str = "(in the fork)";

/// Where effects go that no session knows of.
pub(crate) struct Places {
    /// Commands append a line each.
    pub(crate) counter: PathBuf,
}

impl Places {
    pub(crate) fn of(home: &Home) -> Self {
        Self { counter: home.path("counter") }
    }

    /// A call that leaves a line behind each time it runs.
    pub(crate) fn count(&self, token: &str) -> Reply {
        self.and_count(Reply::default(), token)
    }

    pub(crate) fn and_count(&self, reply: Reply, token: &str) -> Reply {
        let command = format!("printf '%s\\n' count-{token} >> {}", self.counter.display());
        reply.call("run_shell", json!({"command": command}))
    }
}

pub(crate) fn presents(text: &str) -> Reply {
    call("write_file", json!({"file_path": "{{plan_path}}", "content": text}))
        .call("exit_plan_mode", json!({}))
}

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) dialect: Dialect,
    /// The session's mode at its beginning.
    pub(crate) mode: &'static str,
    /// Whether the project is a git repository.
    pub(crate) git: bool,
    pub(crate) script: fn(&Places) -> Script,
    pub(crate) acts: Vec<Act>,
    /// How an approval is answered: by one client, or by both at once.
    pub(crate) answers: fn(&Value) -> Vec<Says>,
    pub(crate) effects: Vec<Effect>,
    /// What the plan's file holds once a plan was approved.
    pub(crate) plan: Option<&'static str>,
}

/// What people do, in order. What has not become due when the session is idle is done then.
#[derive(Clone, Debug)]
pub(crate) struct Act {
    pub(crate) when: When,
    /// Sent at once, before any answer is read.
    pub(crate) does: Vec<(usize, Does)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    Now,
    /// An approval waits whose content has this in it.
    Asked(&'static str),
    /// The model has begun to say this.
    Streamed(&'static str),
    Idle,
}

#[derive(Clone, Debug)]
pub(crate) enum Does {
    Prompt {
        text: &'static str,
        more: Value,
    },
    Interrupt,
    SetMode(&'static str),
    /// Back to before the first turn, with the files.
    RewindAll,
    Archive,
    /// Another session is made of it, and may be prompted and deleted.
    Fork,
    PromptFork(&'static str),
    DeleteFork,
}

/// An answer to an approval.
pub(crate) struct Says {
    pub(crate) who: usize,
    pub(crate) choice: &'static str,
    pub(crate) more: Value,
}

/// Something that a call does to the world, told by words in its arguments.
pub(crate) struct Effect {
    pub(crate) mark: &'static str,
    pub(crate) on: On,
    /// The statuses that the call may have when nobody is killed.
    pub(crate) undisturbed: &'static [&'static str],
}

pub(crate) enum On {
    /// A line `mark` in the counter.
    Counter,
    /// This file of the project; absent before where `before` is.
    File { path: &'static str, before: Option<&'static str>, after: &'static str },
    /// This file of the project, which was taken back in the end.
    TakenBack { path: &'static str, before: Option<&'static str> },
}

impl Scenario {
    /// Files of the project that no call of this scenario touches stay as they are.
    pub(crate) fn touches(&self, below: &Path) -> bool {
        self.effects
            .iter()
            .any(|effect| matches!(effect.on, On::File { path, .. } | On::TakenBack { path, .. } if Path::new(path) == below))
    }
}

fn one(choice: &'static str, more: Value) -> Vec<Says> {
    vec![Says { who: 0, choice, more }]
}

fn holds(approval: &Value, words: &str) -> bool {
    approval.to_string().contains(words)
}

fn act(when: When, who: usize, does: Does) -> Act {
    Act { when, does: vec![(who, does)] }
}

fn prompt(text: &'static str, more: Value) -> Does {
    Does::Prompt { text, more }
}

fn counted(mark: &'static str, undisturbed: &'static [&'static str]) -> Effect {
    Effect { mark, on: On::Counter, undisturbed }
}

fn written(
    mark: &'static str,
    before: Option<&'static str>,
    after: &'static str,
    undisturbed: &'static [&'static str],
) -> Effect {
    Effect { mark, on: On::File { path: mark, before, after }, undisturbed }
}

pub(crate) fn all() -> Vec<Scenario> {
    vec![
        edited_plan(),
        fresh_start(),
        manual_plan(),
        queue(),
        race(),
        retries(),
        taken_back(),
        forked(),
        fork_deleted(),
    ]
}

/// Planning with a round of feedback and an edit by the person; what planning may not touch; then the plan is carried out.
fn edited_plan() -> Scenario {
    Scenario {
        name: "edited-plan",
        dialect: Dialect::OpenaiChat,
        mode: "default",
        git: false,
        script: |places| {
            let edit = json!({"file_path": "src/a.rs", "old_string": "fn a", "new_string": "fn z"});
            Script::new()
                .step(
                    call("read_file", json!({"file_path": "src/a.rs"}))
                        .call("list_files", json!({"path": "."}))
                        .call("grep_search", json!({"pattern": "fn"})),
                )
                .step(
                    call("write_file", json!({"file_path": "forbidden", "content": "x"}))
                        .call("write_file", json!({"file_path": "{{plan_path}}", "content": "# PLAN ONE\n"}))
                        .call("exit_plan_mode", json!({})),
                )
                .step(presents("# PLAN TWO\n"))
                .step(places.and_count(call("edit_file", edit), "a"))
        },
        acts: vec![act(When::Now, 0, prompt("Plan the change", json!({"mode": "plan"})))],
        answers: |approval| {
            // The second one comes with its difference from the first.
            if holds(approval, "PLAN TWO") {
                one("execute", json!({"editedPlan": "# PLAN THREE\n"}))
            } else if holds(approval, "PLAN ONE") {
                one("keepPlanning", json!({"feedback": "Smaller steps."}))
            } else {
                one("allowOnce", json!({}))
            }
        },
        effects: vec![
            written("src/a.rs", Some("fn a() {}\n"), "fn z() {}\n", &["ok"]),
            written("forbidden", None, "x", &["denied"]),
            counted("count-a", &["ok"]),
        ],
        plan: Some("# PLAN THREE\n"),
    }
}

/// The plan is carried out in a fresh context, and a prompt waits meanwhile.
fn fresh_start() -> Scenario {
    Scenario {
        name: "fresh-start",
        dialect: Dialect::Anthropic,
        mode: "plan",
        git: false,
        script: |places| {
            let fresh = json!({"total_answers": 0, "texts": [{"in": "user", "contains": "FRESH PLAN"}]});
            let write = call("write_file", json!({"file_path": "new.txt", "content": "new\n"}));
            Script::new()
                .rule("carry-out", fresh, places.and_count(write, "b"))
                .step(presents("# FRESH PLAN\n"))
        },
        acts: vec![
            act(When::Now, 0, prompt("Plan it", json!({}))),
            act(When::Asked("FRESH PLAN"), 1, prompt("And then?", json!({}))),
        ],
        answers: |approval| match approval["kind"].as_str() {
            Some("plan") => one("clearAndExecute", json!({})),
            _ => one("allowOnce", json!({})),
        },
        effects: vec![written("new.txt", None, "new\n", &["ok"]), counted("count-b", &["ok"])],
        plan: Some("# FRESH PLAN\n"),
    }
}

/// The other client approves; in the old mode every write asks, and a person says no twice.
fn manual_plan() -> Scenario {
    Scenario {
        name: "manual-plan",
        dialect: Dialect::OpenaiChat,
        mode: "default",
        git: false,
        script: |places| {
            Script::new()
                .step(presents("# MANUAL PLAN\n"))
                .step(call("write_file", json!({"file_path": "first.txt", "content": "1"})))
                .step(places.count("c"))
                .step(
                    call("write_file", json!({"file_path": "second.txt", "content": "2"}))
                        .call("write_file", json!({"file_path": "third.txt", "content": "3"})),
                )
        },
        acts: vec![
            act(When::Now, 0, prompt("/plan Add a thing", json!({}))),
            act(When::Idle, 0, prompt("Once more", json!({}))),
        ],
        answers: |approval| {
            if approval["kind"] == "plan" {
                vec![Says { who: 1, choice: "manualExecute", more: json!({}) }]
            } else if holds(approval, "first.txt") {
                one("deny", json!({"feedback": "Count instead."}))
            } else if holds(approval, "count-c") {
                one("allowOnce", json!({}))
            } else {
                one("deny", json!({}))
            }
        },
        effects: vec![
            written("first.txt", None, "1", &["denied"]),
            written("second.txt", None, "2", &["denied"]),
            written("third.txt", None, "3", &["notRun"]),
            counted("count-c", &["ok"]),
        ],
        plan: Some("# MANUAL PLAN\n"),
    }
}

/// Prompts that wait, one that joins the turn, a mode that answers an approval, an interrupt that holds the rest.
fn queue() -> Scenario {
    Scenario {
        name: "queue",
        dialect: Dialect::Anthropic,
        mode: "default",
        git: false,
        script: |places| {
            let talk = json!({"texts": [{"in": "prompt", "contains": "Talk for long"}]});
            let long = "Word by word it comes, and it does not end. ".repeat(40);
            Script::new()
                .rule("talk", talk, Reply::text(&long).fault(None, json!({"hang": {"after": 2500}})))
                .step(
                    call("read_file", json!({"file_path": "src/a.rs"}))
                        .call("read_file", json!({"file_path": "src/b.rs"}))
                        .call("read_file", json!({"file_path": "missing"})),
                )
                .step(call("write_file", json!({"file_path": "asked.txt", "content": "yes"})))
                .step(places.count("d"))
        },
        acts: vec![
            act(When::Now, 0, prompt("First", json!({}))),
            act(When::Asked("asked.txt"), 0, prompt("Talk for long", json!({}))),
            act(When::Asked("asked.txt"), 1, prompt("Third", json!({}))),
            act(When::Asked("asked.txt"), 1, prompt("By the way", json!({"at": "step"}))),
            act(When::Asked("asked.txt"), 0, Does::SetMode("acceptEdits")),
            act(When::Streamed("Word by word"), 1, Does::Interrupt),
            act(When::Idle, 0, prompt("Fifth", json!({}))),
        ],
        // The mode answers what it can.
        answers: |approval| {
            if holds(approval, "asked.txt") { vec![] } else { one("allowOnce", json!({})) }
        },
        effects: vec![written("asked.txt", None, "yes", &["ok"]), counted("count-d", &["ok"])],
        plan: None,
    }
}

/// Two clients at the same instant.
fn race() -> Scenario {
    Scenario {
        name: "race",
        dialect: Dialect::OpenaiChat,
        mode: "default",
        git: false,
        script: |places| {
            Script::new()
                .step(places.count("e"))
                .step(call("write_file", json!({"file_path": "raced.txt", "content": "raced"})))
                .step(Reply::text("One."))
        },
        acts: vec![
            Act {
                when: When::Now,
                does: vec![(0, prompt("Mine", json!({}))), (1, prompt("No, mine", json!({})))],
            },
            Act {
                when: When::Idle,
                does: vec![
                    (0, Does::SetMode("acceptEdits")),
                    (1, Does::SetMode("plan")),
                    (0, prompt("More", json!({}))),
                    (1, Does::Interrupt),
                ],
            },
        ],
        answers: |approval| {
            let second = if holds(approval, "count-e") {
                Says { who: 1, choice: "deny", more: json!({"feedback": "No."}) }
            } else {
                Says { who: 1, choice: "allowOnce", more: json!({}) }
            };
            vec![Says { who: 0, choice: "allowOnce", more: json!({}) }, second]
        },
        effects: vec![counted("count-e", &["ok", "denied"]), written("raced.txt", None, "raced", &["ok"])],
        plan: None,
    }
}

/// A provider that asks for patience, again and again.
fn retries() -> Scenario {
    Scenario {
        name: "retries",
        dialect: Dialect::Anthropic,
        mode: "acceptEdits",
        git: false,
        script: |places| {
            let busy = |code: u16| json!({"status": {"code": code, "headers": {"retry-after-ms": "1"}, "message": "slow down"}});
            let edit = json!({"file_path": "src/b.rs", "old_string": "fn b", "new_string": "fn y"});
            Script::new()
                .fault(busy(429))
                .step(call("read_file", json!({"file_path": "src/b.rs"})).fault(Some(2), busy(529)))
                .step(places.and_count(call("edit_file", edit), "f").fault(Some(2), busy(429)))
        },
        acts: vec![act(When::Now, 0, prompt("Be patient", json!({})))],
        answers: |_| one("allowOnce", json!({})),
        effects: vec![
            written("src/b.rs", Some("fn b() {}\n"), "fn y() {}\n", &["ok"]),
            counted("count-f", &["ok"]),
        ],
        plan: None,
    }
}

/// A turn that edits, makes and counts is forgotten, and its files go back; then something else is asked.
fn taken_back() -> Scenario {
    Scenario {
        name: "taken-back",
        dialect: Dialect::OpenaiChat,
        mode: "acceptEdits",
        git: true,
        script: |places| {
            let at = |n: u32| json!({"answers": n, "texts": [{"in": "prompt", "contains": "Change it"}]});
            let edit = json!({"file_path": "src/a.rs", "old_string": "fn a", "new_string": "fn z"});
            let make = format!("echo made > made.txt; printf 'count-g\\n' >> {}", places.counter.display());
            Script::new()
                .rule("look", at(0), call("read_file", json!({"file_path": "src/a.rs"})))
                .rule("edit", at(1), call("edit_file", edit))
                .rule("make", at(2), call("run_shell", json!({"command": make})))
        },
        acts: vec![
            act(When::Now, 0, prompt("Change it", json!({}))),
            act(When::Idle, 0, Does::RewindAll),
            act(When::Idle, 1, prompt("Something else", json!({}))),
        ],
        answers: |_| one("allowOnce", json!({})),
        effects: vec![
            Effect {
                mark: "src/a.rs",
                on: On::TakenBack { path: "src/a.rs", before: Some("fn a() {}\n") },
                undisturbed: &["ok"],
            },
            Effect {
                mark: "made.txt",
                on: On::TakenBack { path: "made.txt", before: None },
                undisturbed: &["ok"],
            },
            counted("count-g", &["ok"]),
        ],
        plan: None,
    }
}

/// A session is forked while the other client prompts it, put away, and taken up again by a prompt.
fn forked() -> Scenario {
    Scenario {
        name: "forked",
        dialect: Dialect::Anthropic,
        mode: "default",
        git: false,
        script: |places| Script::new().step(places.count("i")).step(Reply::text("Done with it.")),
        acts: vec![
            act(When::Now, 0, prompt("Begin", json!({}))),
            Act { when: When::Idle, does: vec![(0, Does::Fork), (1, prompt("More", json!({})))] },
            act(When::Idle, 0, Does::Archive),
            act(When::Idle, 1, prompt("Last", json!({}))),
        ],
        answers: |_| one("allowOnce", json!({})),
        effects: vec![counted("count-i", &["ok"])],
        plan: None,
    }
}

/// A fork is deleted in the middle of its turn, and stays away.
fn fork_deleted() -> Scenario {
    Scenario {
        name: "fork-deleted",
        dialect: Dialect::OpenaiChat,
        mode: "default",
        git: false,
        script: |places| {
            let talk = json!({"texts": [{"in": "prompt", "contains": IN_FORK}]});
            let long = "Word by word it comes, and it does not end. ".repeat(40);
            Script::new()
                .rule("talk", talk, Reply::text(&long).fault(None, json!({"hang": {"after": 2500}})))
                .step(places.count("j"))
        },
        acts: vec![
            act(When::Now, 0, prompt("Begin", json!({}))),
            act(When::Idle, 0, Does::Fork),
            act(When::Idle, 1, Does::PromptFork("Talk for long (in the fork)")),
            Act {
                when: When::Idle,
                does: vec![
                    (0, Does::DeleteFork),
                    (1, Does::PromptFork("Never (in the fork)")),
                    (0, prompt("More", json!({}))),
                ],
            },
        ],
        answers: |_| one("allowOnce", json!({})),
        effects: vec![counted("count-j", &["ok"])],
        plan: None,
    }
}
