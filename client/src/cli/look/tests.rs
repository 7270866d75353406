//! Events in, turns and lines out.

use agentd_protocol::approval::{By, ChoiceId};
use agentd_protocol::event::{Event, EventBody, Resolution, Role, Text, ToolKind, ToolStatus};
use agentd_protocol::permission::Decision;
use agentd_protocol::session::Origin;
use agentd_protocol::turn::{Outcome, Usage};
use agentd_protocol::{CallId, MessageId, Mode, Seq, Timestamp};
use serde_json::json;

use super::draw::{Detail, Page, clock};
use super::transcript::{Transcript, Turn};
use crate::render::Line;
use crate::render::approval::tests as samples;

fn call_id() -> CallId {
    CallId::new(samples::session(), "00112233deadbeef".into())
}

fn event(body: EventBody) -> Event {
    let at = Some(Timestamp::from_unix_ms(60_000));
    let origin = matches!(body, EventBody::TurnStarted {}).then_some(Origin::Client);
    Event { seq: Some(Seq(1)), at, origin, ..Event::of(samples::session(), body) }
}

fn said(role: Role, text: &str) -> EventBody {
    EventBody::Message {
        message_id: MessageId::new(samples::session(), "0a0b0c0d0e0f".into()),
        role,
        text: Text::Inline(text.into()),
        thinking: None,
        usage: None,
        incomplete: false,
    }
}

fn call(title: &str) -> EventBody {
    EventBody::ToolCallStarted {
        call_id: call_id(),
        tool: "run_shell".into(),
        kind: ToolKind::Execute,
        title: title.into(),
        input: json!({"command": "one\ntwo", "timeout_ms": 5}),
        paths: vec![],
    }
}

fn ended(outcome: Outcome) -> EventBody {
    EventBody::TurnFinished { outcome, usage: Usage::default(), denials: vec![], error: None }
}

fn result(status: ToolStatus, reason: Option<&str>) -> EventBody {
    EventBody::ToolCallFinished {
        call_id: call_id(),
        status,
        reason: reason.map(Into::into),
        content: Text::Inline("out\u{1b}[2Jput".into()),
        diff: Some(Text::Inline("@@\n-a\n+b".into())),
    }
}

fn by() -> By {
    By { principal: "user:1000".into(), client: "zed".into(), pid: Some(7) }
}

fn turns(earlier: u64, bodies: Vec<EventBody>) -> Vec<Turn> {
    let mut transcript = Transcript::after(earlier);
    bodies.into_iter().for_each(|body| transcript.take(event(body)));
    transcript.take_rest()
}

fn drawn(detail: Detail, turns: &[Turn]) -> String {
    let page = Page {
        detail,
        cwd: "/w",
        width: 80,
        terminal: false,
        now: Timestamp::from_unix_ms(120_000),
        open: "waiting for you",
    };
    turns.iter().flat_map(|turn| page.turn(turn)).map(|line: Line| format!("{}\n", line.text())).collect()
}

fn an_eventful_turn() -> Vec<EventBody> {
    let approval = samples::tool("ls");
    let approval_id = approval.approval_id.clone();
    vec![
        EventBody::TurnStarted {},
        said(Role::User, "go\non"),
        said(Role::System, "guidance"),
        said(Role::Assistant, "I *look*."),
        call("run one"),
        EventBody::PermissionDecided {
            call_id: call_id(),
            decision: Decision::Ask,
            reason: "command.unconfined".into(),
            rule: None,
            confinement: None,
            note: None,
        },
        EventBody::ApprovalRequested(approval),
        EventBody::ApprovalResolved {
            approval_id,
            resolution: Resolution::Answered,
            choice: Some(ChoiceId::AllowOnce),
            by: by(),
            feedback: None,
        },
        EventBody::FileChanged {
            path: "/w/a.rs".into(),
            before: None,
            after: None,
            call_id: call_id(),
            added: 1,
            removed: 0,
        },
        result(ToolStatus::Ok, None),
        ended(Outcome::Finished),
    ]
}

#[test]
fn a_turn_in_short_has_a_line_for_each_thing_that_happened() {
    assert_eq!(
        drawn(Detail::Short, &turns(6, an_eventful_turn())),
        "#7  finished · 1970-01-01 00:01 UTC · 1 min ago · by a person\n> go\n> on\n  I *look*.\n\
        • run one  ok  deadbeef\n  a.rs  deleted\n? tool \"t\": approved by zed (7)\n\n"
    );
}

#[test]
fn a_turn_in_whole_has_input_decision_output_and_diff() {
    let whole = drawn(Detail::Whole, &turns(0, an_eventful_turn()));
    for told in [
        "  message 0c0d0e0f\n",
        "  gate  ask (command.unconfined)\n",
        "    command: \n      one\n      two\n    timeout_ms: 5\n",
        "  output\n    out<U+001B>[2Jput\n",
        "  diff\n    @@\n    -a\n    +b\n",
    ] {
        assert!(whole.contains(told), "{told:?} is missing:\n{whole}");
    }
}

#[test]
fn what_has_no_end_says_so() {
    let approval = samples::tool("ls");
    let open = vec![EventBody::TurnStarted {}, call(""), EventBody::ApprovalRequested(approval)];
    assert_eq!(
        drawn(Detail::Short, &turns(0, open)),
        "#1  waiting for you · 1970-01-01 00:01 UTC · 1 min ago · by a person\n\
        • run_shell  no result yet  deadbeef\n? tool \"t\": waits, deadbeef\n\n"
    );
    let refused = vec![EventBody::TurnStarted {}, call("x"), result(ToolStatus::Denied, Some("plan.shell"))];
    assert!(drawn(Detail::Short, &turns(0, refused)).contains("• x  refused (plan.shell)  deadbeef\n"));
}

#[test]
fn what_happens_between_turns_stands_between_them_and_numbers_go_on() {
    let mode = EventBody::ModeChanged { from: Mode::Default, to: Mode::Plan, by: by() };
    let bodies = vec![
        EventBody::TurnStarted {},
        ended(Outcome::Failed),
        mode,
        EventBody::TurnStarted {},
        ended(Outcome::Finished),
    ];
    let text = drawn(Detail::Short, &turns(40, bodies));
    let heads: Vec<&str> = text.lines().filter_map(|line| line.split(" · ").next()).collect();
    assert_eq!(heads, ["#41  failed", "", "  mode default → plan, by zed (7)", "", "#42  finished", ""]);
}

#[test]
fn only_turns_that_are_over_are_taken_out_early() {
    let mut transcript = Transcript::after(0);
    transcript.take(event(EventBody::TurnStarted {}));
    transcript.take(event(call("x")));
    assert_eq!(transcript.take_complete().len(), 1, "what came before the first turn");
    transcript.take(event(result(ToolStatus::Ok, None)));
    assert_eq!(transcript.take_complete().len(), 0);
    transcript.take(event(ended(Outcome::Finished)));
    transcript.take(event(EventBody::TurnStarted {}));
    let done = transcript.take_complete();
    assert!(drawn(Detail::Short, &done).contains("• x  ok"));
    assert_eq!(transcript.take_rest()[0].number, Some(2));
}

#[test]
fn a_call_is_told_behind_the_answer_that_let_it_run() {
    let mut approval = samples::tool("one");
    if let agentd_protocol::approval::Subject::Tool { tool } = &mut approval.subject {
        tool.call_id = call_id();
    }
    let bodies = vec![
        EventBody::TurnStarted {},
        call("run one"),
        EventBody::ApprovalRequested(approval.clone()),
        EventBody::ApprovalResolved {
            approval_id: approval.approval_id,
            resolution: Resolution::Answered,
            choice: Some(ChoiceId::AllowOnce),
            by: by(),
            feedback: None,
        },
        result(ToolStatus::Ok, None),
    ];
    let text = drawn(Detail::Short, &turns(0, bodies));
    let lines: Vec<&str> = text.lines().skip(1).take(2).collect();
    assert_eq!(lines, ["? tool \"t\": approved by zed (7)", "• run one  ok  deadbeef"]);
}

#[test]
fn the_same_failure_of_the_model_is_one_line() {
    let aborted = |reason: &str| EventBody::MessageAborted {
        message_id: MessageId::new(samples::session(), "0a0b".into()),
        reason: reason.into(),
        retry_at: None,
    };
    let error = Some("no route (after 3 attempts)".to_owned());
    let failed =
        EventBody::TurnFinished { outcome: Outcome::Failed, usage: Usage::default(), denials: vec![], error };
    let bodies = vec![
        EventBody::TurnStarted {},
        aborted("busy"),
        aborted("no route"),
        aborted("no route"),
        aborted("no route (after 3 attempts)"),
        failed,
    ];
    let text = drawn(Detail::Short, &turns(0, bodies));
    assert_eq!(
        text.lines().skip(1).collect::<Vec<_>>(),
        [
            "  The model gave no answer: busy",
            "  The model gave no answer, 3 times: no route (after 3 attempts)",
            "",
        ]
    );
}

#[test]
fn times_are_said_in_utc_to_the_minute() {
    assert_eq!(clock(Timestamp::from_unix_ms(0)), "1970-01-01 00:00 UTC");
}
