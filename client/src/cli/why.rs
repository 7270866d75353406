//! `why`: what the gate would say to a call, or why it refused the last one here. Nothing runs.

use std::path::Path;

use agentd_client::{Client, Received};
use agentd_protocol::event::{Text, ToolStatus};
use agentd_protocol::history::{HistoryParams, MAX_EVENTS};
use agentd_protocol::permission::{CheckParams, CheckResult, Confinement, Decision, RuleInfo};
use agentd_protocol::{CallId, EventBody, SessionId, method};
use serde_json::{Value, json};

use super::args::WhyArgs;
use super::context::{self, Context};
use super::exit::{Exit, Failure};
use super::resolve::Here;
use super::screen;
use crate::render::line::{short_path, short_paths};
use crate::render::{Line, Style};

/// `agentctl why`.
pub(crate) async fn why(context: &Context, args: WhyArgs) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    let Some((tool, input)) = call(&args)? else {
        let again = |id: &str| format!("why --session {id}");
        let session_id = context::session(context, &client, args.session.as_deref(), again).await?;
        return last_refusal(context, &client, session_id).await;
    };
    let params = CheckParams { mode: args.mode, ..about(context, &client, &args, tool, input).await? };
    if args.json {
        context::print_answer::<method::PermissionCheck>(&client, params).await?;
        return Ok(Exit::Finished);
    }
    let answer = client.call::<method::PermissionCheck>(params).await?;
    screen::print(&lines(&answer, context.home()))?;
    Ok(Exit::Finished)
}

/// The call that is asked about, if one is.
fn call(args: &WhyArgs) -> Result<Option<(String, Value)>, Failure> {
    let path = |path: &Path| json!({ "file_path": path });
    Ok(Some(match (&args.tool, &args.read, &args.write) {
        (Some(tool), _, _) => {
            let text = args.input.as_deref().unwrap_or("{}");
            let input = serde_json::from_str(text)
                .map_err(|error| Failure::usage(format!("--input is no JSON: {error}")))?;
            (tool.clone(), input)
        }
        (None, Some(file), _) => ("read_file".to_owned(), path(file)),
        (None, None, Some(file)) => {
            let mut input = path(file);
            input["content"] = json!("");
            ("write_file".to_owned(), input)
        }
        (None, None, None) if args.command.is_empty() => return Ok(None),
        (None, None, None) => ("run_shell".to_owned(), json!({ "command": args.command.join(" ") })),
    }))
}

/// As this folder's session would make the call, or a new one if there is none.
async fn about(
    context: &Context,
    client: &Client,
    args: &WhyArgs,
    tool: String,
    input: Value,
) -> Result<CheckParams, Failure> {
    let named = args.session.as_deref();
    let again = |id: &str| format!("why --session {id} …");
    let (session_id, cwd) = match (context::session(context, client, named, again).await, named) {
        (Ok(id), _) => (Some(id), None),
        (Err(failure), Some(_)) => return Err(failure),
        (Err(_), None) => (None, Some(Here::new(Path::new("."))?.cwd.display().to_string())),
    };
    Ok(CheckParams { session_id, cwd, tool, input, mode: None })
}

fn lines(answer: &CheckResult, home: Option<&Path>) -> Vec<Line> {
    let (word, style) = match (answer.decision, answer.classified) {
        (Decision::Allow, _) => ("allowed", Style::Good),
        (Decision::Ask, true) => ("asks the classifier, and a person if it gives no answer", Style::Warn),
        (Decision::Ask, false) => ("asks a person", Style::Warn),
        (Decision::Deny, _) => ("denied", Style::Bad),
    };
    let mut first = Line::styled(style, word).plain(&format!(" in mode {}", answer.mode));
    match answer.confinement {
        Some(Confinement::Plan) => first.push(Style::Plain, ", where nothing can be written"),
        Some(Confinement::Workspace) => first.push(Style::Plain, ", confined to the project"),
        Some(Confinement::Off) => first.push(Style::Plain, ", with your full rights"),
        None => {}
    }
    let mut lines = vec![first];
    lines.push(field("why", &format!("{}: {}", answer.reason, answer.explanation)));
    if let Some(rule) = &answer.rule {
        lines.push(field("rule", &rule_text(rule, home)));
    }
    for effect in &answer.effects {
        lines.push(field("does", &short_paths(effect, home)));
    }
    for part in &answer.parts {
        let mut line = field("part", &part.command);
        match &part.rule {
            Some(rule) => line.push(Style::Dim, &format!("  {}", rule_text(rule, home))),
            None if part.reads_only => line.push(Style::Dim, "  only reads"),
            None => line.push(Style::Dim, "  no rule"),
        }
        lines.push(line);
    }
    if let Some(doubt) = &answer.doubt {
        lines.push(field("doubt", doubt));
    }
    lines
}

fn field(name: &str, text: &str) -> Line {
    Line::styled(Style::Dim, &format!("  {name:<6}")).plain(text)
}

fn rule_text(rule: &RuleInfo, home: Option<&Path>) -> String {
    let place = rule.place.as_ref().map_or(String::new(), |place| format!(", {}", short_path(place, home)));
    format!("{} {} ({}{place})", rule.list.name(), rule.rule, rule.layer.name())
}

/// The newest call of a session that was refused.
async fn last_refusal(context: &Context, client: &Client, session_id: SessionId) -> Result<Exit, Failure> {
    let name = context::name_of(client, session_id).await;
    let mut before = None;
    let mut refused: Option<(CallId, Option<String>, Text)> = None;
    loop {
        let types = ["toolCallStarted", "toolCallFinished"].map(str::to_owned).to_vec();
        let params = HistoryParams {
            before_seq: before,
            limit: Some(MAX_EVENTS),
            types: Some(types),
            ..HistoryParams::newest(session_id)
        };
        let page = client.history(params).await?;
        for Received { event, .. } in page.events.into_iter().rev() {
            match (event.body, &refused) {
                (
                    EventBody::ToolCallFinished {
                        call_id, status: ToolStatus::Denied, reason, content, ..
                    },
                    None,
                ) => {
                    refused = Some((call_id, reason, content));
                }
                (EventBody::ToolCallStarted { call_id, title, .. }, Some((id, reason, content)))
                    if call_id == *id =>
                {
                    let reason = reason.as_deref().map_or(String::new(), |reason| format!(" ({reason})"));
                    screen::print(&[
                        Line::styled(Style::Bad, "denied").plain(&format!(" {title}{reason}")),
                        field("why", content.preview()),
                        Line::styled(Style::Dim, "Next: ")
                            .with(Style::Command, &format!("{} log {name} -n 1", context.program)),
                    ])?;
                    return Ok(Exit::Finished);
                }
                _ => {}
            }
        }
        match page.next {
            Some(next) => before = Some(next),
            None => break,
        }
    }
    screen::print(&[
        Line::from(format!("Nothing was refused in {name}.")),
        Line::styled(Style::Dim, "To ask about a command: ")
            .with(Style::Command, &format!("{} why 'cargo test'", context.program)),
    ])?;
    Ok(Exit::Finished)
}

#[cfg(test)]
mod tests {
    use agentd_protocol::Mode;
    use agentd_protocol::permission::{PartInfo, RuleLayer, RuleList};

    use super::*;

    fn text(answer: &CheckResult) -> String {
        let lines = lines(answer, Some(Path::new("/home/u")));
        lines.iter().map(Line::text).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn an_answer_names_decision_reason_rule_and_parts() {
        let rule = RuleInfo {
            list: RuleList::Deny,
            rule: "Bash(tee *)".into(),
            layer: RuleLayer::User,
            place: Some("/home/u/.config/agentd/config.toml:12".into()),
        };
        let part = |command: &str, reads_only, rule: Option<&RuleInfo>| PartInfo {
            command: command.into(),
            reads_only,
            rule: rule.cloned(),
        };
        let answer = CheckResult {
            decision: Decision::Deny,
            classified: false,
            reason: "rule.deny".into(),
            explanation: "A deny rule covers this call.".into(),
            rule: Some(rule.clone()),
            confinement: None,
            mode: Mode::Default,
            effects: vec!["run in /home/u/api".into()],
            parts: vec![
                part("git log", true, None),
                part("tee x", false, Some(&rule)),
                part("make", false, None),
            ],
            doubt: Some("It is not understood as bash would.".into()),
            rules: vec![],
        };
        insta::assert_snapshot!(text(&answer), @r"
        denied in mode default
          why   rule.deny: A deny rule covers this call.
          rule  deny Bash(tee *) (user, ~/.config/agentd/config.toml:12)
          does  run in ~/api
          part  git log  only reads
          part  tee x  deny Bash(tee *) (user, ~/.config/agentd/config.toml:12)
          part  make  no rule
          doubt It is not understood as bash would.
        ");
    }

    #[test]
    fn what_is_shown_cannot_draw() {
        let answer = CheckResult {
            decision: Decision::Ask,
            classified: true,
            reason: "command.confined".into(),
            explanation: "x".into(),
            rule: None,
            confinement: Some(Confinement::Off),
            mode: Mode::Auto,
            effects: vec!["run \u{1b}[2J\u{202e}".into()],
            parts: vec![],
            doubt: None,
            rules: vec![],
        };
        let text = text(&answer);
        assert!(text.contains("<U+001B>[2J<U+202E>"), "{text}");
        assert!(text.starts_with("asks the classifier"), "{text}");
        assert!(text.contains("with your full rights"), "{text}");
    }
}
