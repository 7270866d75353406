//! The sentences of [`super::Follow`].

use agentd_protocol::Mode;
use agentd_protocol::approval::{By, ChoiceId};
use agentd_protocol::event::{EventBody, ResetReason, Resolution, Text, ToolStatus};
use agentd_protocol::permission::RuleLayer;
use agentd_protocol::plan::PlanAuthor;

use super::Output;
use crate::render::{Line, Style};

pub(super) const RESUMED: &str = "The turn goes on after a restart.";
pub(super) const WITHDRAWN: &str = "A queued prompt was taken back.";

/// A remark at the side.
pub(super) fn note(text: &str) -> Output {
    Output::Line(Line::styled(Style::Dim, text))
}

/// `zed (4242)`, or what the daemon says it did by itself.
pub(crate) fn who(by: &By) -> String {
    match by.pid {
        Some(pid) => format!("{} ({pid})", by.client),
        None => by.client.clone(),
    }
}

pub(super) fn mode_changed(from: Mode, to: Mode, by: &By) -> Output {
    // By the daemon itself: an answer did it, and that was said.
    let by = by.pid.map_or(String::new(), |_| format!(", by {}", who(by)));
    note(&format!("mode {from} → {to}{by}"))
}

pub(super) fn plan_entered(path: &str, running: &[String]) -> Vec<Output> {
    let mut outputs = vec![note(&format!("Plan mode: only {path} can be written."))];
    if !running.is_empty() {
        let line = format!("Still running and able to write: {}", running.join(", "));
        outputs.push(Output::Line(Line::styled(Style::Warn, &line)));
    }
    outputs
}

/// What happened to the plan or the conversation, if it is worth a line.
pub(super) fn about_plan(body: &EventBody) -> Option<Output> {
    let text = match body {
        EventBody::PlanChanged { by: PlanAuthor::Outside, .. } => {
            "The plan file was changed from outside this session.".to_owned()
        }
        EventBody::PlanChanged { by: PlanAuthor::Client, .. } => {
            "The plan was edited by a client.".to_owned()
        }
        EventBody::PlanRecovered { from, .. } => {
            // Whatever it was found in: what a person needs to know is that it is back.
            let from = if from == "file" { "as it was" } else { "from the journal" };
            format!("The plan file was gone or damaged; the plan was written back {from}.")
        }
        EventBody::ContextReset { reason, .. } => match reason {
            ResetReason::Clear => "The conversation was cleared; the plan is kept.",
            ResetReason::Compact => "The conversation was compacted.",
            ResetReason::Rewind => "The conversation was taken back.",
            ResetReason::Model => "The conversation goes on with another model.",
        }
        .to_owned(),
        _ => return None,
    };
    Some(note(&text))
}

/// What happened at the side of a conversation, for looking back.
pub(crate) fn told(body: &EventBody) -> Option<Line> {
    let output = match body {
        EventBody::ModeChanged { from, to, by } => mode_changed(*from, *to, by),
        EventBody::PlanEntered { path, .. } => note(&format!("Plan mode: only {path} can be written.")),
        EventBody::TitleChanged { title } => note(&format!("The session is called \"{title}\" now.")),
        EventBody::RuleAdded { rule, layer, by } => rule_added(rule, *layer, by),
        EventBody::BreakerChanged { open, in_row, total, by } => breaker_changed(*open, *in_row, *total, by),
        EventBody::TurnResumed {} => note(RESUMED),
        EventBody::SessionHandedOver { bundle, by } => {
            note(&format!("Handed over to the bundle {bundle} by {}.", who(by)))
        }
        EventBody::SessionImported { bundle, cwd, .. } => {
            note(&format!("Taken in from the bundle {bundle}; it works in {cwd}."))
        }
        EventBody::PromptWithdrawn { .. } => note(WITHDRAWN),
        body => about_plan(body)?,
    };
    match output {
        Output::Line(line) => Some(line),
        _ => None,
    }
}

/// A rule that an answer made.
pub(super) fn rule_added(rule: &str, layer: RuleLayer, by: &By) -> Output {
    let reach = match layer {
        RuleLayer::Session => "in this session",
        RuleLayer::User | RuleLayer::Project | RuleLayer::Flags | RuleLayer::Saved => "in this project",
    };
    note(&format!("Allowed {reach} by {}: {rule}", who(by)))
}

/// What the classifier of mode `auto` said of a call. Where it gave no answer the question says so.
pub(super) fn classified(reason: &str, note: &str) -> Option<Output> {
    let said = match reason {
        "auto.allowed" => "allowed",
        "auto.blocked" | "auto.unreadable" => "refused",
        _ => return None,
    };
    Some(self::note(&format!("  the classifier {said} it: {note}")))
}

/// The breaker of mode `auto`.
pub(super) fn breaker_changed(open: bool, in_row: Option<u32>, total: Option<u32>, by: &By) -> Output {
    if !open {
        return note(&format!("The breaker of mode auto was closed by {}.", who(by)));
    }
    let text = match (by.pid, in_row.zip(total)) {
        (None, Some((in_row, total))) => format!(
            "The classifier refused {in_row} calls in a row, {total} in all: you are asked now. To trust it again: agentctl \
             breaker close"
        ),
        _ => format!(
            "The breaker of mode auto was opened by {}: you are asked now. To close it: agentctl breaker close",
            who(by)
        ),
    };
    Output::Line(Line::styled(Style::Warn, &text))
}

/// A call that did not do what was asked: how, why, and the first line of what was said about it.
pub(super) fn call_failed(
    status: ToolStatus,
    reason: Option<&str>,
    title: Option<&str>,
    content: &Text,
) -> Output {
    let (mark, word, style) = match status {
        ToolStatus::Ok => ("✓", "done", Style::Good),
        ToolStatus::Error => ("✗", "failed", Style::Bad),
        ToolStatus::Denied => ("✗", "refused", Style::Bad),
        ToolStatus::NotRun => ("–", "not run", Style::Dim),
        ToolStatus::Interrupted => ("✗", "interrupted", Style::Warn),
    };
    let mut line = Line::styled(style, &format!("  {mark} {word}"));
    if let Some(reason) = reason {
        line.push(style, &format!(" ({reason})"));
    }
    if let Some(title) = title {
        line.push(Style::Plain, &format!(" {title}"));
    }
    let text = content.preview();
    let mut told = text.lines().filter(|line| !line.trim().is_empty());
    // How a command ended tells more than the first thing it printed.
    let ended = told.clone().next_back().filter(|last| last.starts_with("[exit code "));
    if let Some(first) = ended.or_else(|| told.next()) {
        line.push(Style::Dim, &format!(": {}", without_preamble(first.trim(), reason)));
    }
    Output::Line(line)
}

/// The gate tells the model its reason code first; here it stands before the text already.
fn without_preamble<'a>(text: &'a str, reason: Option<&str>) -> &'a str {
    let told = reason.map(|reason| format!("Refused ({reason}); nothing was done. "));
    told.and_then(|told| text.strip_prefix(told.as_str())).unwrap_or(text)
}

/// Who else answered, and what: for whoever was asked too. `label`: what the choice is called in the menu.
pub(crate) fn answered_elsewhere(
    choice: Option<ChoiceId>,
    label: Option<&str>,
    by: &By,
    feedback: Option<&str>,
) -> Line {
    let line = Line::styled(Style::Warn, &format!("Answered {}", elsewhere(by)));
    let line = match label.or(choice.map(ChoiceId::name)) {
        Some(label) => line.with(Style::Warn, &format!(": {label}")),
        None => line,
    };
    match feedback {
        Some(feedback) => line.plain(&format!(" \"{feedback}\"")),
        None => line,
    }
}

/// `in another terminal (agentctl, pid 7)`, or which program it was.
pub(crate) fn elsewhere(by: &By) -> String {
    let pid = by.pid.map_or(String::new(), |pid| format!("pid {pid}"));
    match (by.client.as_str(), pid.as_str()) {
        ("agentctl", "") => "in another terminal".to_owned(),
        ("agentctl", pid) => format!("in another terminal (agentctl, {pid})"),
        (client, "") => format!("by {client}"),
        (client, pid) => format!("by {client} ({pid})"),
    }
}

/// Who settled an approval, and how.
pub(crate) fn settled(
    resolution: Resolution,
    choice: Option<ChoiceId>,
    label: Option<&str>,
    by: &By,
    feedback: Option<&str>,
) -> Line {
    let who = who(by);
    let text = match (resolution, choice) {
        (Resolution::Answered, Some(choice)) => {
            match choice {
                ChoiceId::Deny | ChoiceId::Decline => format!("denied by {who}"),
                ChoiceId::KeepPlanning => format!("kept in planning by {who}"),
                ChoiceId::Answer => format!("answered by {who}"),
                ChoiceId::Trust => format!("trusted by {who}"),
                ChoiceId::Untrusted => format!("not trusted by {who}"),
                ChoiceId::AllowOnce => format!("approved by {who}"),
                ChoiceId::AllowForSession => format!("approved for this session by {who}"),
                ChoiceId::AllowAlways => format!("approved for this project by {who}"),
                // Three ways to carry a plan out.
                ChoiceId::ClearAndExecute | ChoiceId::Execute | ChoiceId::ManualExecute => {
                    format!("approved by {who}: {}", label.unwrap_or(choice.name()))
                }
            }
        }
        (Resolution::Answered, None) => format!("answered by {who}"),
        (Resolution::SettledByMode, _) => "no answer is needed: the mode decides it now".to_owned(),
        (Resolution::Cancelled, _) => format!("cancelled: {who}"),
        (Resolution::Expired, _) => "expired, which counts as refused".to_owned(),
    };
    let line = Line::styled(Style::Warn, &text);
    match feedback {
        Some(feedback) => line.plain(&format!(" \"{feedback}\"")),
        None => line,
    }
}
