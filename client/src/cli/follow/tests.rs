//! Events in, outputs out.

use agentd_protocol::SessionId;
use agentd_protocol::approval::ChoiceId;
use agentd_protocol::event::{Resolution, ToolKind};
use agentd_protocol::session::State;

use super::*;
use crate::render::approval::tests as samples;
use crate::render::line::tests as lines;

const ME: u32 = 77;

fn turn(n: u8) -> TurnId {
    format!("0193bbbb-0000-7000-8000-0000000000{n:02x}").parse().unwrap()
}

fn session() -> SessionId {
    samples::session()
}

fn message_id(token: &str) -> MessageId {
    MessageId::new(session(), token.into())
}

fn call_id(token: &str) -> CallId {
    CallId::new(session(), token.into())
}

fn by(client: &str, pid: u32) -> By {
    By { principal: "user:1000".into(), client: client.into(), pid: Some(pid) }
}

/// A follower together with the number of its next event.
struct Watch {
    follow: Follow,
    seq: u64,
}

impl Watch {
    fn new(goal: Goal) -> Self {
        Self { follow: Follow::new(goal, ME, "/home/u/api".into(), Some("/home/u".into())), seq: 0 }
    }

    fn live(goal: Goal) -> Self {
        let mut watch = Self::new(goal);
        watch.synced(lines::state(Activity::Idle));
        watch
    }

    fn send(&mut self, turn: Option<TurnId>, body: EventBody) -> Vec<Output> {
        self.seq += 1;
        self.follow.on_event(Event {
            seq: Some(Seq(self.seq)),
            at: Some(agentd_protocol::Timestamp::from_unix_ms(0)),
            turn_id: turn,
            ..Event::of(session(), body)
        })
    }

    fn synced(&mut self, state: State) -> Vec<Output> {
        let synced = Event::of(session(), EventBody::synced(state));
        self.follow.on_event(Event { seq: Some(Seq(self.seq)), ..synced })
    }

    fn delta(&mut self, offset: u64, text: &str) -> Vec<Output> {
        let delta = EventBody::MessageDelta { message_id: message_id("1"), offset, text: text.into() };
        self.follow.on_event(Event::of(session(), delta))
    }

    fn message(&mut self, text: &str) -> Vec<Output> {
        self.send(
            None,
            EventBody::Message {
                message_id: message_id("1"),
                role: Role::Assistant,
                text: Text::Inline(text.into()),
                thinking: None,
                usage: None,
                incomplete: false,
            },
        )
    }

    fn start(&mut self, n: u8) -> Vec<Output> {
        self.send(Some(turn(n)), EventBody::TurnStarted {})
    }

    fn finish(&mut self, n: u8) -> Vec<Output> {
        self.send(
            Some(turn(n)),
            EventBody::TurnFinished {
                outcome: Outcome::Finished,
                usage: Usage::default(),
                denials: vec![],
                error: None,
            },
        )
    }

    fn prompt(&mut self, n: u8, text: &str) -> Vec<Output> {
        self.send(
            None,
            EventBody::PromptAccepted {
                prompt_id: turn(n),
                content: vec![serde_json::json!({"type": "text", "text": text})],
                queued: false,
                by: by("zed", 5),
            },
        )
    }

    fn call(&mut self, token: &str, title: &str) -> Vec<Output> {
        self.send(
            None,
            EventBody::ToolCallStarted {
                call_id: call_id(token),
                tool: "write_file".into(),
                kind: ToolKind::Edit,
                title: title.into(),
                input: serde_json::json!({}),
                paths: vec![],
            },
        )
    }

    fn call_ends(&mut self, token: &str, status: ToolStatus, reason: &str, content: &str) -> Vec<Output> {
        self.send(
            None,
            EventBody::ToolCallFinished {
                call_id: call_id(token),
                status,
                reason: Some(reason.into()),
                content: Text::Inline(content.into()),
                diff: None,
            },
        )
    }

    fn resolved(&mut self, approval: &Approval, who: By) -> Vec<Output> {
        self.send(
            None,
            EventBody::ApprovalResolved {
                approval_id: approval.approval_id.clone(),
                resolution: Resolution::Answered,
                choice: Some(ChoiceId::Execute),
                by: who,
                feedback: None,
            },
        )
    }
}

/// The outputs as text: lines behind `|`, streamed text as it is.
fn text(outputs: &[Output]) -> String {
    let mut text = String::new();
    for output in outputs {
        text.push_str(&match output {
            Output::Line(line) => format!("|{}\n", line.text()),
            Output::Text(text) => text.clone(),
            Output::TextEnd => String::new(),
            Output::Message(message) => format!("[message {}]\n", message.preview()),
            Output::Ran(ran) => {
                let lines = ran.lines(80, |id| format!("show {id}"));
                lines.iter().map(|line| format!("|{}\n", line.text())).collect()
            }
            Output::Earlier(turns) => format!("[{turns} earlier]\n"),
            Output::Ask(approval) => format!("[ask {}]\n", approval.approval_id.token()),
            Output::Told(approval) => format!("[told {}]\n", approval.approval_id.token()),
            Output::Changed(_) => "[changed]\n".into(),
            Output::Settled { line, .. } => {
                format!("[settled {}]\n", line.as_ref().map(Line::text).unwrap_or_default())
            }
            Output::Finished(finished) => format!("[{}]\n", finished.outcome.name()),
            Output::Past(finished) => format!("[past {}]\n", finished.outcome.name()),
            Output::Gone => "[gone]\n".into(),
        });
    }
    text
}

#[test]
fn text_streams_and_the_message_adds_only_what_is_missing() {
    let mut watch = Watch::live(Goal::Turn(turn(1)));
    assert_eq!(text(&watch.delta(0, "Let me ")), "Let me ");
    assert_eq!(text(&watch.delta(7, "look")), "look");
    assert_eq!(text(&watch.message("Let me look.")), ".[message Let me look.]\n");
}

#[test]
fn text_after_a_reconnect_is_not_shown_twice() {
    let mut watch = Watch::live(Goal::Turn(turn(1)));
    watch.delta(0, "Let me ");
    watch.follow.reconnected();
    watch.synced(lines::state(Activity::Running));
    assert_eq!(text(&watch.delta(0, "Let me look")), "look");
    assert_eq!(text(&watch.delta(3, "me")), "");
}

#[test]
fn a_message_that_differs_replaces_the_text() {
    let mut watch = Watch::live(Goal::Turn(turn(1)));
    watch.delta(0, "Wrong");
    assert_eq!(text(&watch.message("Right")), "|The text above is replaced by:\nRight[message Right]\n");
}

#[test]
fn an_aborted_message_says_so_and_when_it_goes_on() {
    let mut watch = Watch::live(Goal::Turn(turn(1)));
    watch.delta(0, "Half");
    let body = EventBody::MessageAborted {
        message_id: message_id("1"),
        reason: "the connection ended".into(),
        retry_at: Some(agentd_protocol::Timestamp::from_unix_ms(8_200)),
    };
    assert_eq!(
        text(&watch.send(None, body)),
        "|The text above is withdrawn; asking again in 8 s: the connection ended\n"
    );
}

#[test]
fn a_call_is_one_line_and_only_trouble_adds_another() {
    let mut watch = Watch::live(Goal::Turn(turn(1)));
    assert_eq!(text(&watch.call("a1", "read src/lib.rs")), "|• read src/lib.rs\n");
    assert_eq!(text(&watch.call_ends("a1", ToolStatus::Ok, "", "text")), "");
    watch.call("a2", "write src/a.rs");
    assert_eq!(
        text(&watch.call_ends(
            "a2",
            ToolStatus::Denied,
            "plan.write",
            "\nPlan mode: nothing is written.\nmore"
        )),
        "|  ✗ refused (plan.write): Plan mode: nothing is written.\n"
    );
}

#[test]
fn every_call_is_named_when_it_is_its_turn() {
    let mut watch = Watch::live(Goal::Turn(turn(1)));
    assert_eq!(text(&watch.call("a1", "write a")), "|• write a\n");
    assert_eq!(text(&watch.call("a2", "write b")), "");
    let changed = |token: &str, path: &str| EventBody::FileChanged {
        path: path.into(),
        before: None,
        after: Some(agentd_protocol::Digest::from_bytes([1; 32])),
        call_id: call_id(token),
        added: 2,
        removed: 0,
    };
    assert_eq!(text(&watch.send(None, changed("a1", "/home/u/api/a"))), "|  a  +2 -0\n");
    assert_eq!(text(&watch.call_ends("a1", ToolStatus::Ok, "", "")), "|• write b\n");
    assert_eq!(text(&watch.send(None, changed("a2", "/home/u/api/b"))), "|  b  +2 -0\n");
    assert_eq!(text(&watch.call_ends("a2", ToolStatus::Ok, "", "")), "");
}

#[test]
fn of_several_calls_the_one_that_failed_is_named() {
    let mut watch = Watch::live(Goal::Turn(turn(1)));
    watch.call("a1", "read a");
    watch.call("a2", "read b");
    // Out of order: named first, then told.
    assert_eq!(
        text(&watch.call_ends("a2", ToolStatus::Error, "io", "no such file")),
        "|• read b\n|  ✗ failed (io): no such file\n"
    );
    assert_eq!(
        text(&watch.call_ends("a1", ToolStatus::Error, "io", "no such file")),
        "|  ✗ failed (io) read a: no such file\n"
    );
}

#[test]
fn calls_that_never_ran_are_named_at_the_end() {
    let mut watch = Watch::live(Goal::Turn(turn(1)));
    watch.call("a1", "read a");
    watch.call("a2", "read b");
    assert_eq!(text(&watch.finish(1)), "|• read b\n[finished]\n");
}

#[test]
fn why_a_turn_failed_is_said_once() {
    let failed = |watch: &mut Watch, error: &str| {
        let body = EventBody::TurnFinished {
            outcome: Outcome::Failed,
            usage: Usage::default(),
            denials: vec![],
            error: Some(error.into()),
        };
        match watch.send(Some(turn(1)), body).pop() {
            Some(Output::Finished(finished)) => finished.error,
            other => panic!("{other:?}"),
        }
    };
    let mut watch = Watch::live(Goal::Turn(turn(1)));
    let aborted = EventBody::MessageAborted {
        message_id: message_id("1"),
        reason: "the key was refused".into(),
        retry_at: None,
    };
    assert_eq!(text(&watch.send(None, aborted.clone())), "|The model gave no answer: the key was refused\n");
    assert_eq!(failed(&mut watch, "the key was refused"), None);
    watch.send(None, aborted);
    assert_eq!(failed(&mut watch, "the disk is full").as_deref(), Some("the disk is full"));
}

#[test]
fn a_command_leaves_its_end_and_makes_the_changes_of_its_turn_uncertain() {
    let mut watch = Watch::live(Goal::Turn(turn(1)));
    let command = |watch: &mut Watch, status: ToolStatus, reason: Option<&str>, content: &str| {
        let call_id = call_id("deadbeef");
        watch.send(
            None,
            EventBody::ToolCallStarted {
                call_id: call_id.clone(),
                tool: "run_shell".into(),
                kind: ToolKind::Execute,
                title: "run make".into(),
                input: serde_json::json!({}),
                paths: vec![],
            },
        );
        let (reason, content) = (reason.map(Into::into), Text::Inline(content.into()));
        watch.send(None, EventBody::ToolCallFinished { call_id, status, reason, content, diff: None })
    };
    let seen = |outputs: Vec<Output>| match outputs.last() {
        Some(Output::Finished(finished)) => finished.seen,
        other => panic!("{other:?}"),
    };
    watch.start(1);
    let outputs = command(&mut watch, ToolStatus::Error, None, "no rule\n[exit code 2]");
    assert_eq!(text(&outputs), "|    no rule\n|  ✗ exit code 2\n");
    assert_eq!(seen(watch.finish(1)), Seen::Unknown);
    watch.start(2);
    let outputs = command(&mut watch, ToolStatus::Denied, Some("plan.command"), "No commands here.");
    assert_eq!(text(&outputs), "|  ✗ refused (plan.command): No commands here.\n");
    assert_eq!(seen(watch.finish(2)), Seen::Whole);
}

#[test]
fn files_add_up_over_a_turn() {
    let mut watch = Watch::live(Goal::Turn(turn(1)));
    watch.start(1);
    for (added, removed) in [(10, 2), (1, 1)] {
        watch.send(
            None,
            EventBody::FileChanged {
                path: "/home/u/api/src/a.rs".into(),
                before: None,
                after: Some(agentd_protocol::Digest::from_bytes([1; 32])),
                call_id: call_id("a1"),
                added,
                removed,
            },
        );
    }
    let outputs = watch.finish(1);
    let Some(Output::Finished(finished)) = outputs.last() else { panic!("{outputs:?}") };
    assert_eq!(finished.turn, Some(turn(1)));
    assert_eq!(
        finished.files.get("/home/u/api/src/a.rs"),
        Some(&Changed { added: 11, removed: 3, ..Changed::default() })
    );
}

#[test]
fn approvals_of_the_past_are_not_asked_and_pending_ones_are() {
    let mut watch = Watch::new(Goal::Session);
    let old = samples::plan("# Old");
    let mut pending = samples::tool("cargo test");
    pending.approval_id = samples::approval_id("aa");
    watch.start(1);
    assert!(watch.send(None, EventBody::ApprovalRequested(old.clone())).is_empty());
    watch.resolved(&old, by("zed", 5));
    watch.send(None, EventBody::ApprovalRequested(pending.clone()));
    let mut state = lines::state(Activity::Waiting);
    state.approvals = vec![pending];
    let shown = text(&watch.synced(state));
    assert_eq!(shown, "[settled approved by zed (5): Start, edits without asking]\n[ask aa]\n");
}

#[test]
fn somebody_elses_answer_is_named_and_ones_own_is_not() {
    let approval = samples::plan("# P");
    let mut watch = Watch::live(Goal::Turn(turn(1)));
    watch.send(None, EventBody::ApprovalRequested(approval.clone()));
    assert_eq!(
        text(&watch.resolved(&approval, by("zed", 5))),
        "[settled Answered by zed (pid 5): Start, edits without asking]\n"
    );
    assert!(watch.follow.waiting().is_empty());
    let mut watch = Watch::live(Goal::Turn(turn(1)));
    watch.send(None, EventBody::ApprovalRequested(approval.clone()));
    assert_eq!(text(&watch.resolved(&approval, by("agentctl", ME))), "[settled ]\n");
}

#[test]
fn an_approval_answered_during_a_reconnect_is_withdrawn() {
    let mut watch = Watch::live(Goal::Turn(turn(1)));
    watch.send(None, EventBody::ApprovalRequested(samples::plan("# P")));
    watch.follow.reconnected();
    assert_eq!(
        text(&watch.synced(lines::state(Activity::Running))),
        "[settled It was answered meanwhile.]\n"
    );
}

#[test]
fn an_approval_that_still_waits_after_a_reconnect_is_not_asked_twice() {
    let mut watch = Watch::live(Goal::Turn(turn(1)));
    let approval = samples::plan("# P");
    watch.send(None, EventBody::ApprovalRequested(approval.clone()));
    watch.follow.reconnected();
    let mut state = lines::state(Activity::Waiting);
    state.approvals = vec![approval];
    assert_eq!(text(&watch.synced(state.clone())), "");
    // Another revision is shown again.
    let mut changed = samples::plan("# Other");
    changed.digest = agentd_protocol::Digest::from_bytes([9; 32]);
    state.approvals = vec![changed];
    assert_eq!(text(&watch.synced(state)), "[changed]\n");
}

#[test]
fn attach_shows_the_last_turn_and_counts_the_others() {
    let mut watch = Watch::new(Goal::Session);
    for n in 1..=3 {
        watch.prompt(n, &format!("prompt {n}"));
        watch.start(n);
        watch.message(&format!("answer {n}"));
        watch.finish(n);
    }
    let shown = text(&watch.synced(lines::state(Activity::Idle)));
    assert_eq!(shown, "[2 earlier]\n|> prompt 3\nanswer 3[message answer 3]\n[past finished]\n");
}

#[test]
fn the_whole_history_is_shown_as_it_comes_and_kept_nowhere() {
    let mut watch = Watch::new(Goal::WholeSession);
    for n in 1..=2 {
        watch.prompt(n, &format!("prompt {n}"));
        assert_eq!(text(&watch.start(n)), format!("|> prompt {n}\n"));
        assert_eq!(text(&watch.finish(n)), "[past finished]\n");
    }
    assert_eq!(text(&watch.synced(lines::state(Activity::Idle))), "");
}

#[test]
fn a_turn_whose_prompt_came_before_the_first_event_shows_it_all_the_same() {
    let mut watch = Watch::new(Goal::Session);
    watch.follow.begins_after(299);
    watch.start(1);
    for text in ["go on\nplease", "and faster"] {
        watch.send(
            Some(turn(1)),
            EventBody::Message {
                message_id: message_id("0"),
                role: Role::User,
                text: Text::Inline(text.into()),
                thinking: None,
                usage: None,
                incomplete: false,
            },
        );
    }
    watch.finish(1);
    let shown = text(&watch.synced(lines::state(Activity::Idle)));
    assert_eq!(shown, "[299 earlier]\n|> go on\n|> please\n[past finished]\n");
}

#[test]
fn events_that_come_twice_count_once() {
    let mut watch = Watch::live(Goal::Turn(turn(1)));
    watch.message("once");
    watch.seq -= 1;
    assert!(watch.message("once").is_empty());
}

#[test]
fn a_withdrawn_prompt_ends_its_own_run_only() {
    let mut watch = Watch::live(Goal::Turn(turn(1)));
    assert_eq!(
        text(&watch.send(None, EventBody::PromptWithdrawn { prompt_id: turn(2) })),
        "|A queued prompt was taken back.\n"
    );
    assert_eq!(text(&watch.send(None, EventBody::PromptWithdrawn { prompt_id: turn(1) })), "[withdrawn]\n");
}

#[test]
fn interrupt_stops_first_and_then_leaves() {
    let mut watch = Watch::live(Goal::Turn(turn(1)));
    watch.start(1);
    assert_eq!(watch.follow.on_interrupt(), OnInterrupt::StopTurn);
    assert_eq!(watch.follow.on_interrupt(), OnInterrupt::Detach(Exit::LeftRunning));
}

#[test]
fn interrupt_leaves_at_once_while_a_person_is_asked() {
    for (goal, exit) in [(Goal::Turn(turn(1)), Exit::Waiting), (Goal::Session, Exit::Finished)] {
        let mut watch = Watch::live(goal);
        watch.start(1);
        watch.send(None, EventBody::ApprovalRequested(samples::plan("# P")));
        assert_eq!(watch.follow.on_interrupt(), OnInterrupt::Detach(exit));
        assert_eq!(watch.follow.detached(), exit);
    }
}

#[test]
fn interrupt_in_an_idle_attach_leaves() {
    let mut watch = Watch::live(Goal::Session);
    assert_eq!(watch.follow.on_interrupt(), OnInterrupt::Detach(Exit::Finished));
    watch.start(1);
    assert_eq!(watch.follow.on_interrupt(), OnInterrupt::StopTurn);
    watch.finish(1);
    assert!(watch.follow.is_idle());
    assert_eq!(watch.follow.on_interrupt(), OnInterrupt::Detach(Exit::Finished));
}

#[test]
fn plan_mode_is_remembered_for_leaving_it() {
    let mut watch = Watch::live(Goal::Session);
    watch.send(
        None,
        EventBody::PlanEntered {
            pre_mode: Mode::AcceptEdits,
            path: "/p.md".into(),
            cycle: 1,
            running: vec!["npm run dev".into()],
        },
    );
    assert_eq!(watch.follow.pre_mode(), Some(Mode::AcceptEdits));
    let shown = text(
        &watch
            .send(None, EventBody::ModeChanged { from: Mode::Plan, to: Mode::AcceptEdits, by: by("zed", 5) }),
    );
    assert_eq!(shown, "|mode plan → acceptEdits, by zed (5)\n");
    assert_eq!(watch.follow.pre_mode(), None);
}

#[test]
fn notes_about_verification_are_kept_for_the_end() {
    let mut watch = Watch::live(Goal::Turn(turn(1)));
    watch.send(None, EventBody::Notice { code: "plan.verify".into(), text: "not built yet".into() });
    let outputs = watch.finish(1);
    let Some(Output::Finished(finished)) = outputs.last() else { panic!("{outputs:?}") };
    assert_eq!(finished.verification, ["not built yet"]);
}

#[test]
fn events_of_a_later_version_are_ignored() {
    let mut watch = Watch::live(Goal::Session);
    assert!(watch.send(None, EventBody::Unknown).is_empty());
}

#[test]
fn a_daemon_that_says_goodbye_is_not_one_that_fell() {
    let mut watch = Watch::live(Goal::Session);
    assert!(!watch.follow.is_shutting_down());
    watch.send(None, EventBody::ShuttingDown {});
    assert!(watch.follow.is_shutting_down());
    watch.follow.reconnected();
    assert!(!watch.follow.is_shutting_down());
}

#[test]
fn what_steers_a_turn_is_told_and_a_first_prompt_is_not() {
    for goal in [Goal::Session, Goal::Turn(turn(1))] {
        let mut watch = Watch::live(goal);
        assert_eq!(watch.prompt(1, "go"), [], "{goal:?}");
        watch.start(1);
        assert_eq!(
            watch.prompt(2, "Keep the tests\nplease"),
            [note("for the next step, by zed (5): Keep the tests")]
        );
        watch.finish(1);
        assert_eq!(watch.prompt(3, "more"), []);
    }
    // In the history, too.
    let mut watch = Watch::new(Goal::WholeSession);
    watch.prompt(1, "go");
    watch.start(1);
    assert_eq!(watch.prompt(2, "Keep the tests"), [note("for the next step, by zed (5): Keep the tests")]);
}

#[test]
fn an_answer_cut_off_before_its_first_word_did_not_fail() {
    let mut watch = Watch::live(Goal::Session);
    watch.start(1);
    let outputs = watch.send(Some(turn(1)), aborted("interrupted", None));
    assert_eq!(outputs, [Output::TextEnd, note("The model had not answered yet.")]);
}

fn aborted(reason: &str, retry_at: Option<i64>) -> EventBody {
    EventBody::MessageAborted {
        message_id: message_id("1"),
        reason: reason.into(),
        retry_at: retry_at.map(agentd_protocol::Timestamp::from_unix_ms),
    }
}

#[test]
fn the_same_fault_is_told_once() {
    let mut watch = Watch::live(Goal::Session);
    watch.start(1);
    let mut said = |reason: &str, retry_at| match watch.send(Some(turn(1)), aborted(reason, retry_at)).pop() {
        Some(Output::Line(line)) => line.text(),
        other => panic!("{other:?}"),
    };
    assert_eq!(said("no route", Some(1000)), "The model gave no answer; asking again in 1 s: no route");
    assert_eq!(said("no route", Some(2000)), "The model gave no answer; asking again in 2 s");
    assert_eq!(said("busy", Some(2000)), "The model gave no answer; asking again in 2 s: busy");
    assert_eq!(said("busy (after 6 attempts)", None), "The model gave no answer (after 6 attempts)");
}

#[test]
fn a_model_is_waited_for_until_it_says_something() {
    let mut watch = Watch::live(Goal::Session);
    assert!(!watch.follow.awaits_model());
    watch.start(1);
    assert!(watch.follow.awaits_model());
    watch.delta(0, "Let me");
    assert!(!watch.follow.awaits_model());
    watch.message("Let me look");
    watch.call("1", "read a");
    assert!(!watch.follow.awaits_model());
    watch.call_ends("1", ToolStatus::Ok, "", "");
    assert!(watch.follow.awaits_model());
    watch.follow.on_interrupt();
    assert!(!watch.follow.awaits_model() && watch.follow.is_stopping());
    watch.finish(1);
    assert!(!watch.follow.awaits_model() && !watch.follow.is_stopping());
}

#[test]
fn a_question_of_trust_is_told_once_and_nothing_waits_for_it() {
    let mut watch = Watch::live(Goal::Turn(turn(1)));
    watch.send(Some(turn(1)), EventBody::TurnStarted {});
    let trust = crate::render::approval::tests::trust("Bash(make)", None);
    let told = watch.send(None, EventBody::ApprovalRequested(trust.clone()));
    assert_eq!(text(&told), format!("[told {}]\n", trust.approval_id.token()));
    assert!(watch.follow.waiting().is_empty());
    assert_eq!(watch.follow.detached(), Exit::LeftRunning);
    assert_eq!(text(&watch.send(None, EventBody::ApprovalRequested(trust))), "");
    assert!(watch.follow.awaits_model());
}

#[test]
fn what_the_classifier_said_and_that_its_breaker_opened_is_a_line_each() {
    let mut watch = Watch::live(Goal::Turn(turn(1)));
    let decided = |reason: &str, note: Option<&str>| EventBody::PermissionDecided {
        call_id: call_id("1"),
        decision: agentd_protocol::permission::Decision::Deny,
        reason: reason.into(),
        rule: None,
        confinement: None,
        note: note.map(str::to_owned),
    };
    let told = text(&watch.send(None, decided("auto.blocked", Some("nobody asked for it"))));
    assert!(told.contains("the classifier refused it: nobody asked for it"), "{told}");
    let told = text(&watch.send(None, decided("auto.allowed", Some("asked for"))));
    assert!(told.contains("the classifier allowed it: asked for"), "{told}");
    // The question says it.
    assert_eq!(text(&watch.send(None, decided("auto.noAnswer", Some("too late")))), "");
    assert_eq!(text(&watch.send(None, decided("rule.deny", None))), "");
    let by = By { principal: "user:1".into(), client: "the classifier refused too much".into(), pid: None };
    let changed = |open, by| EventBody::BreakerChanged { open, by, in_row: Some(3), total: Some(5) };
    let told = text(&watch.send(None, changed(true, by)));
    assert!(told.contains("3 calls in a row, 5 in all") && told.contains("agentctl breaker close"), "{told}");
    let by = By { principal: "user:1".into(), client: "agentctl".into(), pid: Some(7) };
    let told = text(&watch.send(None, changed(false, by)));
    assert!(told.contains("closed by agentctl (7)"), "{told}");
}
