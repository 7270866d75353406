//! A session in a page: how it stands, and what to type next.

use agentd_client::Client;
use agentd_protocol::event::EventBody;
use agentd_protocol::plan::PlanPhase;
use agentd_protocol::session::{Activity, CallStatus, Health, State};

use super::draw::{clock, short};
use super::past::find;
use super::transcript::Rewind;
use crate::cli::context::{Context, now};
use crate::cli::exit::Failure;
use crate::render::approval::{next_command, short_digest};
use crate::render::line::{ago, short_path, tokens};
use crate::render::{Line, Style};

struct Fields(Vec<Line>);

impl Fields {
    /// `name  value`, names in one column.
    fn add(&mut self, name: &str, value: &str) {
        self.0.push(Line::styled(Style::Dim, &format!("{name:<8}")).plain(value));
    }

    fn styled(&mut self, name: &str, style: Style, value: &str) {
        self.0.push(Line::styled(Style::Dim, &format!("{name:<8}")).with(style, value));
    }
}

/// What of the session's past and relations belongs on its page.
#[derive(Debug, Default)]
pub(super) struct About {
    /// The handle of the session that this one was forked from, if that is still there.
    parent: Option<String>,
    /// Whether the newest turn is forgotten.
    last_forgotten: bool,
}

/// Looks for it.
///
/// # Errors
/// What the daemon answers.
pub(super) async fn about(client: &Client, state: &State) -> Result<About, Failure> {
    let mut about = About::default();
    if let Some(from) = &state.forked_from {
        let rows = crate::cli::context::rows(client).await?;
        about.parent = rows.into_iter().find(|row| row.session_id == from.session_id).map(|row| row.handle);
    }
    if state.forgotten_turns > 0 {
        let types = ["contextReset", "turnStarted"];
        let newest = find(client, state, &types, |received| match Rewind::of(&received.event) {
            Some(_) => Some(true),
            None if matches!(received.event.body, EventBody::TurnStarted {}) => Some(false),
            None => None,
        });
        about.last_forgotten = newest.await?.unwrap_or_default();
    }
    Ok(about)
}

pub(super) fn page(state: &State, about: &About, context: &Context) -> Vec<Line> {
    let mut fields = Fields(vec![Line::styled(Style::Bold, &state.handle)]);
    if let Some(title) = state.title.as_deref().filter(|title| !title.is_empty()) {
        fields.add("title", title);
    }
    fields.add("id", &state.session_id.to_string());
    if let Some(parent) = state.parent {
        fields.add("parent", &parent.to_string());
    }
    if let Some(from) = &state.forked_from {
        let id = from.session_id.to_string();
        let parent = about
            .parent
            .as_deref()
            .map_or(format!("{id}, which is not there any more"), |handle| format!("{handle} ({id})"));
        fields.add("fork of", &parent);
    }
    fields.add("folder", &short_path(&state.cwd, context.home()));
    let model = &state.model;
    fields.add("model", &format!("{}/{} ({})", model.provider, model.model, model.reason));
    let back = state.pre_mode.map_or(String::new(), |mode| format!(", then back to {mode}"));
    fields.add("mode", &format!("{}{back}", state.mode));
    if state.breaker.open {
        let text = format!("open: you are asked; {} breaker {} close", context.program, state.handle);
        fields.styled("breaker", Style::Warn, &text);
    }
    doing(state, about, &mut fields);
    if state.forgotten_turns > 0 {
        let forgotten = match state.forgotten_turns {
            1 => "1 is forgotten (rewound)".to_owned(),
            n => format!("{n} are forgotten (rewound)"),
        };
        fields.add("turns", &format!("{}, of which {forgotten}", state.turns));
    }
    if let Some(plan) = &state.plan {
        let phase = match plan.phase {
            PlanPhase::Planning => "being written",
            PlanPhase::Presented => "waits for your answer",
            PlanPhase::Approved => "approved",
            PlanPhase::Left => "left without approval",
        };
        let revision = plan.revision.map_or("still empty".to_owned(), short_digest);
        let path = short_path(&plan.path, context.home());
        fields.add("plan", &format!("{path} · cycle {} · {phase} · {revision}", plan.cycle));
    }
    for call in &state.calls {
        let status = match call.status {
            CallStatus::Proposed => "not begun",
            CallStatus::Waiting => "waits for you",
            CallStatus::Running => "runs",
        };
        fields.add("call", &format!("{} · {status} · {}", call.title, short(call.call_id.token())));
    }
    for item in &state.inbox {
        let held = if state.inbox_held { "held" } else { "queued" };
        let first = item.preview.lines().next().unwrap_or_default();
        fields.add("inbox", &format!("{held} · {first}"));
    }
    let requests = if state.usage.requests == 1 {
        "1 request".to_owned()
    } else {
        format!("{} requests", state.usage.requests)
    };
    fields.add("usage", &format!("{requests} · {}", tokens(&state.usage)));
    let when = |at| format!("{} ({} ago)", clock(at), ago(at, now()));
    fields.add("created", &when(state.created_at));
    fields.add("updated", &when(state.updated_at));
    match state.health {
        Health::Ok => {}
        Health::Degraded => {
            let why = format!("degraded; to see why: {} daemon doctor", context.program);
            fields.styled("health", Style::Warn, &why);
        }
        Health::ReadOnly if let Some(handed) = &state.handed_over => {
            let why = format!(
                "handed over to {} on {}; to take it back: {} import FILE",
                short_path(&handed.bundle, context.home()),
                clock(handed.at),
                context.program
            );
            fields.styled("health", Style::Warn, &why);
        }
        Health::ReadOnly => {
            fields.styled("health", Style::Bad, "read-only: its journal takes nothing more at present");
        }
    }
    next(state, context, &mut fields);
    fields.0
}

fn doing(state: &State, about: &About, fields: &mut Fields) {
    let number = state.turns;
    let (style, text) = match (state.activity, state.last_outcome) {
        (Activity::Waiting, _) => (Style::Warn, format!("turn #{number} waits for you")),
        (Activity::Running, _) if state.turn_id.is_some() => {
            (Style::Good, format!("turn #{number} is running"))
        }
        (Activity::Running, _) => (Style::Good, "running".to_owned()),
        (Activity::Idle, Some(outcome)) => {
            let then = if about.last_forgotten { ", forgotten since" } else { "" };
            (Style::Plain, format!("idle, turn #{number} {}{then}", outcome.name()))
        }
        (Activity::Idle, None) => (Style::Plain, "idle, no turn yet".to_owned()),
    };
    fields.styled("state", style, &text);
}

fn next(state: &State, context: &Context, fields: &mut Fields) {
    for approval in &state.approvals {
        let kind = approval.subject.kind().name();
        fields.styled("waits", Style::Warn, &format!("{kind}: {}", approval.title));
        let answer = format!("{} {}", context.program, next_command(approval));
        fields.styled("", Style::Command, &answer);
    }
    let command = match (state.activity, state.turns) {
        (Activity::Idle, 0) => format!("send {} \"…\"", state.handle),
        (Activity::Idle, _) => format!("log {}", state.handle),
        _ => format!("attach {}", state.handle),
    };
    fields.0.push(
        Line::styled(Style::Dim, "Next: ").with(Style::Command, &format!("{} {command}", context.program)),
    );
}
