//! Approvals to try things with, and how they are drawn.

use agentd_protocol::approval::{Choice, QuestionOption};
use agentd_protocol::{ApprovalId, CallId, Digest, SessionId, Timestamp};

use agentd_protocol::trust::TrustItem;

use super::*;

pub(crate) fn session() -> SessionId {
    "0193aaaa-0000-7000-8000-000000000001".parse().unwrap()
}

pub(crate) fn approval_id(token: &str) -> ApprovalId {
    ApprovalId::new(session(), token.into())
}

fn approval(subject: Subject, choices: Vec<Choice>) -> Approval {
    Approval {
        approval_id: approval_id("9b1c00000000000000000000deadbeef"),
        subject,
        title: "t".into(),
        choices,
        digest: Digest::from_bytes([0x77; 32]),
        expires_at: None,
        requested_at: Timestamp::from_unix_ms(0),
    }
}

fn choice(id: ChoiceId, label: &str, mode_after: Mode) -> Choice {
    Choice { id, label: label.into(), mode_after }
}

pub(crate) fn plan(content: &str) -> Approval {
    approval(
        Subject::Plan {
            plan: PlanSubject {
                path: "/home/u/.local/state/agentd/plans/api-paging.md".into(),
                revision: Digest::from_bytes([0x3f; 32]),
                content: content.into(),
                diff: None,
                cycle: 1,
                note: None,
                blocked: false,
            },
        },
        vec![
            choice(
                ChoiceId::ClearAndExecute,
                "Start fresh with only the plan, edits without asking",
                Mode::AcceptEdits,
            ),
            choice(ChoiceId::Execute, "Start, edits without asking", Mode::AcceptEdits),
            choice(ChoiceId::ManualExecute, "Start in the mode from before planning", Mode::Default),
            choice(ChoiceId::KeepPlanning, "Keep planning, with feedback", Mode::Plan),
        ],
    )
}

pub(crate) fn trust(content: &str, diff: Option<&str>) -> Approval {
    approval(
        Subject::Trust {
            trust: TrustSubject {
                root: "/home/u/api".into(),
                file: "/home/u/api/.agentd/config.toml".into(),
                items: vec![TrustItem {
                    key: "permissions.allow".into(),
                    content: content.into(),
                    place: Some("/home/u/api/.agentd/config.toml:2".into()),
                }],
                revision: Digest::from_bytes([0x3f; 32]),
                diff: diff.map(str::to_owned),
                trusted_by: diff.map(|_| "user:1000 agentctl".to_owned()),
            },
        },
        vec![
            choice(ChoiceId::Trust, "Trust exactly this, in every session of this project", Mode::Default),
            choice(ChoiceId::Untrusted, "Do not; you are asked again when it changes", Mode::Default),
        ],
    )
}

pub(crate) fn tool(command: &str) -> Approval {
    approval(
        Subject::Tool {
            tool: ToolSubject {
                call_id: CallId::new(session(), "c1".into()),
                tool: "run_shell".into(),
                input: serde_json::json!({"command": command, "timeout_ms": 1000}),
                cwd: "/home/u/api".into(),
                effects: vec![format!("run {command}")],
                confinement: Some("off".into()),
                reason: "command.unconfined".into(),
                note: None,
                rules: vec![],
                diff: None,
            },
        },
        vec![
            choice(ChoiceId::AllowOnce, "Allow once", Mode::Default),
            choice(ChoiceId::Deny, "Deny", Mode::Default),
        ],
    )
}

pub(crate) fn question(questions: Vec<Question>) -> Approval {
    approval(
        Subject::Question {
            question: QuestionSubject { call_id: CallId::new(session(), "c2".into()), questions },
        },
        vec![
            choice(ChoiceId::Answer, "Answer", Mode::Plan),
            choice(ChoiceId::Decline, "No answer", Mode::Plan),
        ],
    )
}

pub(crate) fn one_question() -> Question {
    Question {
        question: "Which cursor?".into(),
        options: vec![
            QuestionOption { label: "opaque".into(), description: Some("an id, encoded".into()) },
            QuestionOption { label: "offset".into(), description: None },
        ],
        multi_select: false,
    }
}

fn frame(width: usize) -> Frame<'static> {
    let home = Some(Path::new("/home/u"));
    Frame { handle: "api-paging-otter", pre_mode: Some(Mode::Default), edited: None, home, width }
}

fn text(approval: &Approval, frame: Frame<'_>) -> String {
    draw(approval, frame).iter().map(|line| line.text().trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_plan_approval() {
    insta::assert_snapshot!(text(&plan("# Paging\n\n1. Add `Page`.\n2. Test it.\n"), frame(80)));
}

#[test]
fn a_plan_approval_at_160_columns() {
    insta::assert_snapshot!(text(&plan("# Paging\n\n1. Add `Page`.\n2. Test it.\n"), frame(160)));
}

#[test]
fn a_tool_approval() {
    insta::assert_snapshot!(text(&tool("cargo test --workspace && git status"), frame(80)));
}

#[test]
fn a_question() {
    insta::assert_snapshot!(text(&question(vec![one_question()]), frame(80)));
}

#[test]
fn several_questions_are_numbered_apart_from_their_options() {
    let text = text(&question(vec![one_question(), one_question()]), frame(80));
    assert!(text.contains("│ Question 1 of 2\n│ Which cursor?\n│ 1  opaque"), "{text}");
    assert!(text.contains("│ Question 2 of 2\n"), "{text}");
}

#[test]
fn a_line_break_in_a_name_begins_no_line() {
    let mut approval = tool("x");
    if let Subject::Tool { tool } = &mut approval.subject {
        tool.input = serde_json::json!({"file_path": "a\nrights    none"});
        tool.effects = vec!["write a\nrights    none".into()];
        tool.cwd = "/w/a\nb".into();
    }
    let text = text(&approval, frame(80));
    assert_eq!(text.matches("<U+000A>").count(), 3, "{text}");
    assert!(!text.contains("│ rights    none"), "{text}");
}

#[test]
fn an_edit_shows_its_whole_diff_once() {
    let mut approval = tool("x");
    if let Subject::Tool { tool } = &mut approval.subject {
        tool.input = serde_json::json!({"file_path": "src/a.rs", "old_string": "OLD", "new_string": "NEW"});
        tool.diff = Some("@@ -1 +1 @@\n-OLD\n+NEW\n".into());
    }
    let text = text(&approval, frame(80));
    assert!(text.contains("src/a.rs"));
    assert_eq!((text.matches("OLD").count(), text.matches("NEW").count()), (1, 1));
}

#[test]
fn a_long_command_is_whole_at_every_width() {
    let command: String = (0..500).map(|n| format!("step{n} && ")).collect::<String>() + "curl x|sh";
    for width in [20, 80, 160] {
        let joined: String = text(&tool(&command), frame(width)).replace(['\n', '│', ' '], "");
        assert!(joined.contains(&command.replace(' ', "")), "{width}");
    }
}

#[test]
fn nothing_prints_in_the_gutter() {
    let hostile = "x\n╰─\n│ 1  Allow\r\u{1b}[1G1  Allow\u{9b}A\n1  Allow once\n\n```\n1 Allow\n```";
    for approval in [plan(hostile), tool(hostile)] {
        for width in [20, 80, 160] {
            let lines = draw(&approval, frame(width));
            let last = lines.len() - 1;
            let edges: Vec<usize> = (0..last).filter(|index| lines[*index].text().starts_with('├')).collect();
            assert_eq!(edges.len(), 1);
            let edge = edges[0];
            for (index, line) in lines.iter().enumerate() {
                let start = match index {
                    0 => "╭─ ",
                    n if n == edge => "├─",
                    n if n == last => "╰─",
                    _ => "│ ",
                };
                let painted = line.paint(crate::render::style::Ink::None);
                assert!(painted.starts_with(start), "{painted:?}");
                assert!(!painted.contains(['\u{1b}', '\r', '\u{9b}']), "{painted:?}");
                assert!(line.width() <= width.max(22), "{width}: {painted:?}");
            }
        }
    }
}

#[test]
fn a_reason_is_a_sentence_and_a_danger_a_warning() {
    let of = |reason: &str| {
        let mut approval = tool("x");
        if let Subject::Tool { tool } = &mut approval.subject {
            tool.reason = reason.into();
        }
        let lines = draw(&approval, frame(160));
        lines.into_iter().find(|line| line.text().contains("why")).unwrap()
    };
    for (reason, warns) in [
        ("command.critical", true),
        ("path.protected", true),
        ("write.elsewhere", true),
        ("command.unconfined", false),
    ] {
        let line = of(reason);
        assert!(line.text().ends_with(&format!(" ({reason})")), "{}", line.text());
        assert!(line.width() > reason.len() + 30, "{}", line.text());
        let styled =
            line.spans().iter().any(|span| span.style() == Style::Warn && span.text().contains("it"));
        assert_eq!(styled, warns, "{reason}");
    }
    assert!(of("of.a.later.version").text().ends_with("why        (of.a.later.version)"));
}

#[test]
fn labels_and_options_stand_in_columns_and_a_folder_once() {
    let mut approval = tool("ls");
    if let Subject::Tool { tool } = &mut approval.subject {
        tool.input = serde_json::json!({"command": "ls", "description": "list\nit"});
        tool.effects = vec!["run in /home/u/api".into()];
    }
    let said = text(&approval, frame(80));
    assert!(
        said.contains("│ in          ~/api\n") && said.contains("│ description list\n│             it\n"),
        "{said}"
    );
    assert!(!said.contains("run in"), "{said}");
    let mut question = one_question();
    question.options[0].label = "a longer one".into();
    question.options[1].description = Some("short".into());
    let said: Vec<String> = options(&question).iter().map(Line::text).collect();
    assert_eq!(said, ["1  a longer one  an id, encoded", "2  offset        short"]);
}

#[test]
fn a_plan_that_cannot_be_carried_out_offers_what_works() {
    let mut approval = plan("# Theirs");
    if let Subject::Plan { plan } = &mut approval.subject {
        plan.blocked = true;
    }
    let said = text(&approval, frame(100));
    assert!(said.contains("cannot be approved") && !said.contains("Start"), "{said}");
    assert!(said.contains("4  Keep planning") && said.contains("e  Edit the plan"), "{said}");
    assert_eq!(next_command(&approval), "deny deadbeef -m \"what should change\"");
    // A version of one's own can be carried out.
    let said = text(&approval, Frame { edited: Some("# Mine"), ..frame(100) });
    assert!(said.contains("2  Start") && !said.contains("cannot be approved"), "{said}");
}

#[test]
fn an_edited_plan_shows_the_new_text_only() {
    let approval = plan("# Theirs");
    let text = text(&approval, Frame { edited: Some("# Mine"), ..frame(80) });
    assert!(text.contains("Mine") && !text.contains("Theirs"));
    assert!(text.contains("Your version"));
}

#[test]
fn the_next_command_names_what_was_seen() {
    assert_eq!(next_command(&plan("")), "approve deadbeef execute --revision 3f3f3f3f3f3f");
    assert_eq!(next_command(&tool("x")), "approve deadbeef allowOnce --digest 777777777777");
}

#[test]
fn trust_is_shown_whole_behind_the_gutter_with_what_has_changed_and_how_to_answer() {
    let frame = Frame {
        handle: "api-paging",
        pre_mode: None,
        edited: None,
        home: Some(Path::new("/home/u")),
        width: 80,
    };
    let shown =
        trust("Bash(make)\u{1b}[2J\n╰─ trusted", Some("-permissions.allow = x\n+permissions.allow = y\n"));
    let text = |lines: Vec<Line>| lines.iter().map(Line::text).collect::<Vec<_>>().join("\n");
    let told = text(draw_told(&shown, frame, "agentctl"));
    assert!(!told.contains('\u{1b}') && told.contains("│   ╰─ trusted"), "{told}");
    assert!(told.contains("permissions.allow  ~/api/.agentd/config.toml:2"), "{told}");
    assert!(told.contains("Changed since it was trusted, by user:1000 agentctl"), "{told}");
    assert!(told.contains("Yes: agentctl approve deadbeef trust --digest 777777777777"), "{told}");
    assert!(told.contains("No, until it changes: agentctl deny deadbeef"), "{told}");
    let asked = text(draw(&shown, frame));
    assert!(asked.contains("│ 1  Trust exactly this") && asked.contains("│ 2  Do not"), "{asked}");
}
