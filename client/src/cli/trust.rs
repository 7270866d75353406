//! `trust`, `rules`: what a project may switch on, and which rules hold here.

use std::path::Path;

use agentd_protocol::method;
use agentd_protocol::permission::{ForgetParams, RuleInfo, RulesParams, RulesResult};
use agentd_protocol::trust::{TrustAction, TrustParams, TrustResult};

use super::args::{RulesArgs, TrustArgs};
use super::context::{self, Context};
use super::exit::{Exit, Failure};
use super::resolve::Here;
use super::screen;
use crate::render::approval::short_digest;
use crate::render::line::{short_path, short_paths};
use crate::render::style::{called, lines_of, quoted};
use crate::render::{Line, Style};

/// `agentctl trust`.
pub(crate) async fn trust(context: &Context, args: TrustArgs) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    let cwd = Here::new(args.dir.as_deref().unwrap_or(Path::new(".")))?.cwd.display().to_string();
    let show = TrustParams { cwd: cwd.clone(), action: TrustAction::Show, digest: None };
    let params = match &args.yes {
        None if args.revoke => TrustParams { action: TrustAction::Untrust, ..show },
        None => show,
        Some(seen) => {
            let now = client.call::<method::ProjectTrust>(show.clone()).await?;
            if seen.trim_start_matches("sha256:").len() < 12 {
                return Err(Failure::usage("--yes takes 12 hex digits or more of the digest that was shown")
                    .next(format!("{} trust", context.program)));
            }
            if !now.digest.has_prefix(seen) {
                return Err(Failure::failed(format!(
                    "it would switch on something else now ({}); nothing was trusted",
                    short_digest(now.digest)
                ))
                .next(format!("{} trust", context.program)));
            }
            TrustParams { action: TrustAction::Trust, digest: Some(now.digest), ..show }
        }
    };
    if args.json {
        context::print_answer::<method::ProjectTrust>(&client, params).await?;
        return Ok(Exit::Finished);
    }
    let result = client.call::<method::ProjectTrust>(params).await?;
    screen::print(&trust_lines(&result, &context.program, context.home()))?;
    Ok(Exit::Finished)
}

fn trust_lines(result: &TrustResult, program: &str, home: Option<&Path>) -> Vec<Line> {
    let root = short_path(&result.root, home);
    if result.items.is_empty() {
        return vec![Line::from(format!(
            "{root} switches nothing on. Its deny and ask rules, if it has any, hold in any case."
        ))];
    }
    let mut lines = vec![match (result.trusted, &result.by) {
        (true, Some(by)) => Line::styled(Style::Good, &format!("{root} is trusted, by {by}.")),
        (true, None) => Line::styled(Style::Good, &format!("{root} is trusted.")),
        (false, Some(by)) => Line::styled(
            Style::Warn,
            &format!("{root} was trusted by {by}, and has changed since: it counts no more."),
        ),
        (false, None) => Line::styled(Style::Warn, &format!("{root} is not trusted.")),
    }];
    let title = if result.trusted { "It switches on:" } else { "It would switch on:" };
    lines.push(Line::from(title));
    for item in &result.items {
        // Behind a gutter, where nothing that a file holds can print.
        for (index, text) in lines_of(&item.content).enumerate() {
            let name = if index == 0 { format!("{} = ", item.key) } else { "    ".to_owned() };
            lines.push(Line::styled(Style::Warn, "│ ").with(Style::Dim, &name).plain(&text));
        }
    }
    if let Some(diff) = &result.diff {
        lines.push(Line::from("What has changed since it was trusted:"));
        lines.extend(lines_of(diff.trim_end()).map(|text| Line::styled(Style::Warn, "│ ").plain(&text)));
    }
    let (what, command) = match result.trusted {
        true => ("To take it back: ", format!("{program} trust --revoke")),
        false => {
            ("To trust exactly this: ", format!("{program} trust --yes {}", short_digest(result.digest)))
        }
    };
    lines.push(Line::styled(Style::Dim, what).with(Style::Command, &command));
    lines
}

/// `agentctl rules`.
pub(crate) async fn rules(context: &Context, args: RulesArgs) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    let cwd = Here::new(Path::new("."))?.cwd.display().to_string();
    if let Some(rule) = args.forget {
        let result =
            client.call::<method::PermissionForget>(ForgetParams { cwd, rule: rule.clone() }).await?;
        if !result.forgotten {
            return Err(Failure::usage(format!("no answer has made the rule {} here", quoted(&rule)))
                .next(format!("{} rules", context.program)));
        }
        screen::print(&[Line::from(format!("{} is forgotten: it is asked about again.", quoted(&rule)))])?;
        return Ok(Exit::Finished);
    }
    let named = args.session.as_deref();
    let params = match (
        context::session(context, &client, named, |id| format!("rules --session {id}")).await,
        named,
    ) {
        (Ok(id), _) => RulesParams { session_id: Some(id), cwd: None },
        (Err(failure), Some(_)) => return Err(failure),
        (Err(_), None) => RulesParams { session_id: None, cwd: Some(cwd) },
    };
    if args.json {
        context::print_answer::<method::PermissionRules>(&client, params).await?;
        return Ok(Exit::Finished);
    }
    let result = client.call::<method::PermissionRules>(params).await?;
    screen::print(&rule_lines(&result, &context.program, context.home()))?;
    Ok(Exit::Finished)
}

fn rule_lines(result: &RulesResult, program: &str, home: Option<&Path>) -> Vec<Line> {
    let mut lines = Vec::new();
    if result.unreadable {
        lines.push(Line::styled(
            Style::Bad,
            "Some rule cannot be read and may forbid anything: every call with effects is denied.",
        ));
        lines.push(
            Line::styled(Style::Dim, "Next: ").with(Style::Command, &format!("{program} daemon doctor")),
        );
    }
    if result.rules.is_empty() && !result.unreadable {
        lines.push(Line::from("No rules: the session's mode decides alone."));
    }
    lines.extend(result.rules.iter().map(|rule| rule_line(rule, home)));
    let text = |text: &str| called(&short_paths(text, home), program);
    let notices = result.notices.iter();
    lines.extend(notices.map(|notice| Line::styled(Style::Warn, "settings: ").plain(&text(&notice.text))));
    if !result.rules.is_empty() {
        lines.push(
            Line::styled(Style::Dim, "What they make of a command: ")
                .with(Style::Command, &format!("{program} why 'cargo test'")),
        );
    }
    lines
}

fn rule_line(rule: &RuleInfo, home: Option<&Path>) -> Line {
    let place = rule.place.as_ref().map_or(String::new(), |place| format!("  {}", short_path(place, home)));
    Line::styled(Style::Bold, &format!("{:<6}", rule.list.name()))
        .plain(&rule.rule)
        .with(Style::Dim, &format!("  {}{place}", rule.layer.name()))
}

#[cfg(test)]
mod tests {
    use agentd_protocol::Digest;
    use agentd_protocol::daemon::Notice;
    use agentd_protocol::permission::{RuleLayer, RuleList};
    use agentd_protocol::trust::TrustItem;

    use super::*;

    fn text(lines: &[Line]) -> String {
        lines.iter().map(Line::text).collect::<Vec<_>>().join("\n")
    }

    fn result(trusted: bool, by: Option<&str>, content: &str) -> TrustResult {
        TrustResult {
            root: "/home/u/api".into(),
            trusted,
            items: vec![TrustItem { key: "permissions.allow".into(), content: content.into(), place: None }],
            digest: Digest::from_bytes([0x3f; 32]),
            diff: (!trusted && by.is_some()).then(|| "-a\n+b\n".to_owned()),
            by: by.map(str::to_owned),
            at: None,
        }
    }

    #[test]
    fn what_would_be_switched_on_is_shown_whole_and_with_the_command_that_trusts_it() {
        let shown = |result| text(&trust_lines(&result, "agentctl", Some(Path::new("/home/u"))));
        insta::assert_snapshot!(shown(result(false, None, "[\"Bash(make)\"]")), @r#"
        ~/api is not trusted.
        It would switch on:
        │ permissions.allow = ["Bash(make)"]
        To trust exactly this: agentctl trust --yes 3f3f3f3f3f3f
        "#);
        insta::assert_snapshot!(shown(result(false, Some("user:1000 agentctl"), "[\"Bash(make)\"]")), @r#"
        ~/api was trusted by user:1000 agentctl, and has changed since: it counts no more.
        It would switch on:
        │ permissions.allow = ["Bash(make)"]
        What has changed since it was trusted:
        │ -a
        │ +b
        To trust exactly this: agentctl trust --yes 3f3f3f3f3f3f
        "#);
        let hostile = shown(result(true, Some("me"), "x\u{1b}[2J\nTo trust exactly this: curl"));
        assert!(
            !hostile.contains('\u{1b}') && hostile.contains("│     To trust exactly this: curl"),
            "{hostile}"
        );
    }

    #[test]
    fn rules_say_where_they_come_from() {
        let rule = |list, rule: &str, layer, place: Option<&str>| RuleInfo {
            list,
            rule: rule.into(),
            layer,
            place: place.map(str::to_owned),
        };
        let rules = vec![
            rule(RuleList::Deny, "Read(.env)", RuleLayer::User, Some("/home/u/.config/agentd/config.toml:4")),
            rule(RuleList::Allow, "Bash(make)", RuleLayer::Saved, None),
        ];
        let notices = vec![Notice {
            code: "config.untrusted".into(),
            text: "/home/u/api/.agentd/config.toml: passed over. To see it: agentctl trust".into(),
        }];
        let result = RulesResult { rules, unreadable: false, notices };
        let lines = rule_lines(&result, "ctl", Some(Path::new("/home/u")));
        insta::assert_snapshot!(text(&lines), @r"
        deny  Read(.env)  user  ~/.config/agentd/config.toml:4
        allow Bash(make)  saved
        settings: ~/api/.agentd/config.toml: passed over. To see it: ctl trust
        What they make of a command: ctl why 'cargo test'
        ");
        let none =
            rule_lines(&RulesResult { rules: vec![], unreadable: true, notices: vec![] }, "agentctl", None);
        assert!(text(&none).contains("daemon doctor"));
    }
}
