//! The engine's pure half: records, the fold, the next step, what a restart makes of it, what clients see. No task, no
//! disk. Sessions that run are tested in `registry::tests`.

mod checkpoint;
mod fold;
mod project;
mod recover;
mod replay;
mod settings;
mod simulate;
mod step;

use std::path::PathBuf;
use std::sync::Arc;

use agentd_protocol::Mode;
use agentd_protocol::approval::{Approval, By, ChoiceId, PlanSubject, Question, ToolSubject, TrustSubject};
use agentd_protocol::event::{ResetReason, Resolution, ToolKind, ToolStatus};
use agentd_protocol::permission::Decision;
use agentd_protocol::plan::PlanAuthor;
use agentd_protocol::session::{At, ModelInfo, Origin};
use agentd_protocol::time::Timestamp;
use agentd_protocol::trust::TrustItem;
use agentd_protocol::turn::{Outcome, Usage};

use super::approval::{Frame, PlanModes};
use super::record::*;
use super::state::SessionState;
use crate::ids::{CallId, DaemonId, Digest, MessageId, Seq, SessionId, TurnId, digest_of};
use crate::journal::RecordRef;
use crate::model::message::Stop;
use crate::permission::{Breaker, Grant, Layer};

/// The ids that a made-up history uses: few, so that records meet.
struct Cast {
    session: SessionId,
    turns: [TurnId; 3],
    calls: [CallId; 4],
    messages: [MessageId; 2],
    approvals: [Arc<Approval>; 3],
    trust: Arc<Approval>,
}

impl Cast {
    fn new() -> Self {
        let session = SessionId::generate();
        let calls = std::array::from_fn(|_| CallId::generate(session));
        let frame = Frame { session, mode: Mode::Plan, now: at(0) };
        let tool = frame.tool(tool_subject(&calls[0]), "write a".into());
        let plan = frame.plan(None, plan_subject("# Plan"), PlanModes { manual: Mode::Default });
        let question = Question { question: "Which?".into(), options: vec![], multi_select: false };
        let question = frame.question(calls[2].clone(), vec![question]);
        Self {
            session,
            turns: std::array::from_fn(|_| TurnId::generate()),
            calls,
            messages: std::array::from_fn(|_| MessageId::generate(session)),
            approvals: [tool, plan, question].map(Arc::new),
            trust: Arc::new(frame.trust(None, trust_subject("Bash(make)"))),
        }
    }

    fn created(&self) -> Created {
        Created {
            format: FORMAT,
            daemon_id: DaemonId::generate(),
            session_id: self.session,
            handle: "api-otter".into(),
            title: None,
            cwd: "/home/u/api".into(),
            mode: Mode::Default,
            model: ModelInfo { provider: "demo".into(), model: "tour".into(), reason: "asked for".into() },
            parent: None,
            origin: Origin::Client,
            by: by(),
            system_prompt: digest_of(b"system"),
            tools: digest_of(b"tools"),
            params: digest_of(b"params"),
            forked_from: None,
        }
    }

    fn state(&self) -> SessionState {
        SessionState::new(self.created(), Seq(1), at(0))
    }

    fn prompt(&self, turn: usize, at_point: At) -> Record {
        InboxAdded {
            prompt_id: self.turns[turn],
            origin: Origin::Client,
            at_point,
            content: vec![Part::Text { text: Body::Inline("go".into()) }],
            by: by(),
            params: digest_of(b"p"),
            queued: false,
            queued_at: at(1),
        }
        .into()
    }

    fn taken(&self, prompt: usize, turn: usize) -> Record {
        InboxTaken { prompt_id: self.turns[prompt], turn_id: self.turns[turn] }.into()
    }

    fn started(&self, turn: usize) -> Record {
        TurnStarted { turn_id: self.turns[turn], origin: Origin::Client }.into()
    }

    fn stopping(&self, turn: usize) -> Record {
        TurnStopping { turn_id: self.turns[turn], by: by() }.into()
    }

    fn sampling(&self, attempt: u32) -> Record {
        SampleStarted { message_id: self.messages[0].clone(), attempt }.into()
    }

    fn failed(&self, then: AfterFailure) -> Record {
        SampleFailed { message_id: self.messages[0].clone(), error: "busy".into(), then }.into()
    }

    fn replied(&self, stop: Stop) -> Record {
        self.ended(ReplyEnd::Model(stop))
    }

    fn ended(&self, end: ReplyEnd) -> Record {
        Replied {
            message_id: self.messages[0].clone(),
            text: Body::Inline("text".into()),
            thinking: None,
            message: Some(Json::Inline(raw(r#"{"role":"assistant","blocks":[]}"#))),
            usage: Usage { requests: 1, ..Usage::default() },
            end,
        }
        .into()
    }

    fn proposed(&self, call: usize, read_only: bool) -> Record {
        CallProposed {
            call_id: self.calls[call].clone(),
            provider_id: format!("c{call}"),
            tool: if read_only { "read_file" } else { "write_file" }.into(),
            kind: if read_only { ToolKind::Read } else { ToolKind::Edit },
            title: "a call".into(),
            input: CallInput::Json(Json::Inline(raw(r#"{"file_path":"a"}"#))),
            read_only,
        }
        .into()
    }

    fn judged(&self, call: usize, decision: Decision) -> Record {
        CallJudged {
            call_id: self.calls[call].clone(),
            decision,
            reason: "table".into(),
            note: None,
            rule: None,
            confinement: None,
            mode: Mode::Default,
        }
        .into()
    }

    fn classified(&self, call: usize, heard: Heard) -> Record {
        CallClassified {
            call_id: self.calls[call].clone(),
            heard,
            model: Some("p/m".into()),
            usage: Usage { requests: 1, ..Usage::default() },
        }
        .into()
    }

    fn running(&self, call: usize, effects: bool) -> Record {
        CallStarted { call_id: self.calls[call].clone(), effects }.into()
    }

    fn result(&self, call: usize, status: ToolStatus) -> Record {
        CallFinished {
            call_id: self.calls[call].clone(),
            status,
            reason: None,
            content: Body::Inline("done".into()),
            diff: None,
            reads: vec![("/home/u/api/a".into(), digest_of(b"a"))],
            ran: Some(Ran { from: 1, until: 2, tells: false }),
        }
        .into()
    }

    fn asks(&self, call: usize, approval: usize) -> Record {
        ApprovalRequested {
            call_id: self.calls[call].clone(),
            approval: Arc::clone(&self.approvals[approval]),
        }
        .into()
    }

    fn asks_for_trust(&self) -> Record {
        TrustAsked { approval: Arc::clone(&self.trust) }.into()
    }

    fn trusted(&self, choice: Option<ChoiceId>) -> Record {
        ApprovalResolved {
            approval_id: self.trust.approval_id.clone(),
            resolution: if choice.is_some() { Resolution::Answered } else { Resolution::Cancelled },
            choice,
            by: by(),
            feedback: None,
            answer: None,
        }
        .into()
    }

    fn resolved(&self, approval: usize, choice: Option<ChoiceId>, feedback: Option<&str>) -> Record {
        ApprovalResolved {
            approval_id: self.approvals[approval].approval_id.clone(),
            resolution: if choice.is_some() { Resolution::Answered } else { Resolution::Cancelled },
            choice,
            by: by(),
            feedback: feedback.map(str::to_owned),
            answer: None,
        }
        .into()
    }

    fn tree(&self, turn: usize, when: When, known: bool) -> Record {
        let kept = match known {
            true => Kept::Tree {
                root: "/home/u/api".into(),
                tree: "0123456789".repeat(4).try_into().unwrap(),
                left_out: None,
                hidden: None,
                whose: None,
            },
            false => Kept::Not { reason: "it took too long".into() },
        };
        let turn_id = self.turns[turn];
        TreeKept { turn_id, when, kept, late: false, mode: Mode::Default, outcome: None }.into()
    }

    fn finished(&self, turn: usize, outcome: Outcome) -> Record {
        TurnFinished {
            turn_id: self.turns[turn],
            outcome,
            usage: Usage::default(),
            denials: vec![],
            error: None,
            mode: Mode::Default,
            hold_inbox: false,
            last_prompt: None,
            held_prompts: None,
        }
        .into()
    }

    /// One of every kind of record, with the event that the protocol names for it; none for the engine's own.
    fn handed_over(&self) -> Record {
        HandedOver { bundle: "/b".into(), epoch: 1, version: "1".into(), by: by() }.into()
    }

    fn imported(&self) -> Record {
        SessionImported {
            bundle: "/b".into(),
            params: digest_of(b"import"),
            epoch: 2,
            cwd: "/home/u/api".into(),
            mode: Mode::Plan,
            by: by(),
            plan: None,
            plan_files: vec!["/plans/old.md".into()],
            widest: None,
        }
        .into()
    }

    fn one_of_each(&self) -> Vec<(Record, Option<&'static str>)> {
        let said = |source| ContextAdded {
            message_id: self.messages[1].clone(),
            source,
            origin: Some(Origin::Client),
            text: Body::Inline("hello".into()),
        };
        let revision = digest_of(b"# Plan");
        vec![
            (self.created().into(), Some("sessionCreated")),
            (mode_changed(Mode::Default, Mode::Plan), Some("modeChanged")),
            (TitleChanged { title: "T".into() }.into(), Some("titleChanged")),
            (RuleAdded { grant: grant(Layer::Session), by: by() }.into(), Some("ruleAdded")),
            (
                SessionForked {
                    from: self.session,
                    mode: Mode::Plan,
                    by: by(),
                    plan: None,
                    from_bundle: false,
                    widest: None,
                    breaker: Breaker::default(),
                }
                .into(),
                Some("sessionForked"),
            ),
            (SessionArchived { archived: true, by: by() }.into(), Some("sessionArchived")),
            (self.handed_over(), Some("sessionHandedOver")),
            (BundleNamed { bundle: "/b".into() }.into(), None),
            (self.imported(), Some("sessionImported")),
            (plan_entered(1), Some("planEntered")),
            (plan_written("# Plan", PlanAuthor::Own), Some("planChanged")),
            (
                PlanApproved { revision, choice: ChoiceId::Execute, mode_after: Mode::AcceptEdits }.into(),
                Some("planApproved"),
            ),
            (PlanRejected { revision, feedback: Some("more".into()) }.into(), Some("planRejected")),
            (PlanRecovered { from: "snapshot".into(), revision, unread: None }.into(), Some("planRecovered")),
            (PlanSaved { revision }.into(), None),
            (self.prompt(0, At::Turn), Some("promptAccepted")),
            (self.taken(0, 0), None),
            (InboxWithdrawn { prompt_id: self.turns[1], rest: None }.into(), Some("promptWithdrawn")),
            (
                CommandRun {
                    prompt_id: self.turns[2],
                    name: "plan".into(),
                    params: revision,
                    by: by(),
                    turn_id: None,
                }
                .into(),
                None,
            ),
            (self.started(0), Some("turnStarted")),
            (TurnResumed { turn_id: self.turns[0], after_crash: true }.into(), Some("turnResumed")),
            (TurnParked { turn_id: self.turns[0] }.into(), None),
            (self.stopping(0), None),
            (self.finished(0, Outcome::Finished), Some("turnFinished")),
            (said(Source::Prompt).into(), Some("message")),
            (said(Source::Guidance).into(), None),
            (said(Source::Environment).into(), None),
            (said(Source::Plan).into(), None),
            (
                ContextReset { reason: ResetReason::Clear, keep: vec![Seq(2)], from: None }.into(),
                Some("contextReset"),
            ),
            (self.sampling(1), None),
            (self.failed(AfterFailure::Retry { at: at(9) }), Some("messageAborted")),
            (self.replied(Stop::End), Some("message")),
            (self.proposed(0, true), Some("toolCallStarted")),
            (self.judged(0, Decision::Allow), Some("permissionDecided")),
            (self.classified(0, Heard::Blocked), None),
            (breaker(BreakerChange::Tripped), Some("breakerChanged")),
            (self.running(0, true), None),
            (self.result(0, ToolStatus::Ok), Some("toolCallFinished")),
            (
                FileChanged {
                    call_id: self.calls[0].clone(),
                    path: "/home/u/api/a".into(),
                    before: None,
                    after: Some(revision),
                    added: 1,
                    removed: 0,
                }
                .into(),
                Some("fileChanged"),
            ),
            (self.tree(0, When::Before, true), None),
            (self.asks(0, 0), Some("approvalRequested")),
            (ApprovalChanged { approval: Arc::clone(&self.approvals[1]) }.into(), Some("approvalChanged")),
            (self.resolved(0, Some(ChoiceId::AllowOnce), None), Some("approvalResolved")),
            (self.asks_for_trust(), Some("approvalRequested")),
        ]
    }
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_unix_ms(ms)
}

fn trust_subject(rule: &str) -> TrustSubject {
    TrustSubject {
        root: "/home/u/api".into(),
        file: "/home/u/api/.agentd/config.toml".into(),
        items: vec![TrustItem { key: "permissions.allow".into(), content: rule.into(), place: None }],
        revision: digest_of(rule.as_bytes()),
        diff: None,
        trusted_by: None,
    }
}

fn by() -> By {
    By { principal: "user:1".into(), client: "test".into(), pid: Some(7) }
}

fn raw(text: &str) -> Box<serde_json::value::RawValue> {
    serde_json::from_str(text).unwrap()
}

fn grant(layer: Layer) -> Grant {
    Grant { rule: "Bash(cargo test)".into(), layer, unconfined: true, identity: None }
}

fn tool_subject(call: &CallId) -> ToolSubject {
    ToolSubject {
        call_id: call.clone(),
        tool: "write_file".into(),
        input: serde_json::json!({ "file_path": "a" }),
        cwd: "/home/u/api".into(),
        effects: vec!["write /home/u/api/a".into()],
        confinement: Some("workspace".into()),
        reason: "table".into(),
        note: None,
        diff: Some("+x".into()),
        rules: vec![],
    }
}

fn plan_subject(content: &str) -> PlanSubject {
    let revision: Digest = digest_of(content.as_bytes());
    PlanSubject {
        path: "/plans/a.md".into(),
        revision,
        content: content.into(),
        diff: None,
        cycle: 1,
        note: None,
        blocked: false,
    }
}

fn breaker(change: BreakerChange) -> Record {
    BreakerChanged { change, by: by(), in_row: 0, total: 0 }.into()
}

fn mode_changed(from: Mode, to: Mode) -> Record {
    ModeChanged { from, to, by: by() }.into()
}

fn plan_entered(cycle: u32) -> Record {
    let path = PathBuf::from(format!("/plans/{cycle}.md"));
    PlanEntered { pre_mode: Mode::AcceptEdits, slug: format!("{cycle}"), path, cycle, running: vec![] }.into()
}

fn plan_written(text: &str, by: PlanAuthor) -> Record {
    PlanWritten { revision: digest_of(text.as_bytes()), by, diff: Body::Inline("+".into()) }.into()
}

/// Where the records of these histories would lie: nobody reads them back.
fn place(seq: Seq) -> RecordRef {
    RecordRef { offset: seq.0 * 100, len: 100, index: 0 }
}

fn fold<'a>(state: &mut SessionState, records: impl IntoIterator<Item = &'a Record>) {
    for record in records {
        let seq = Seq(state.head.0 + 1);
        let moment = at(i64::try_from(seq.0).unwrap());
        state.apply(seq, moment, place(seq), record);
    }
}

/// A session in which a turn has begun.
fn turning(cast: &Cast) -> SessionState {
    let mut state = cast.state();
    fold(&mut state, &[cast.prompt(0, At::Turn), cast.started(0), cast.taken(0, 0)]);
    state
}
