//! `daemon` and `rpc`: the daemon itself.

use std::io::Read;
use std::path::Path;

use agentd_client::{CallError, Startup, StreamItem};
use agentd_protocol::daemon::{CheckStatus, DoctorResult, StatusResult};
use agentd_protocol::event::SubscribeParams;
use agentd_protocol::method::{self, Empty};
use serde_json::value::RawValue;

use super::args::{DaemonCommand, RpcArgs};
use super::context::Context;
use super::exit::{Exit, Failure};
use super::screen::{print, print_json};
use crate::render::line::short_paths;
use crate::render::style::{called, lines_of};
use crate::render::{Line, Style};

pub(crate) async fn daemon(context: &Context, command: DaemonCommand) -> Result<Exit, Failure> {
    match command {
        DaemonCommand::Start { allow_bypass } => {
            let args = if allow_bypass { vec!["--allow-bypass".into()] } else { Vec::new() };
            let (client, startup) = context.start_with(args).await?;
            let status = client.call::<method::DaemonStatus>(Empty {}).await?;
            if allow_bypass && !status.bypass_enabled {
                let pid = status.pid;
                let what = format!("agentd already runs (pid {pid}), and without --allow-bypass");
                let program = &context.program;
                return Err(Failure::failed(what)
                    .next(format!("{program} daemon stop"))
                    .then("Then: ", format!("{program} daemon start --allow-bypass")));
            }
            let text = match startup {
                Startup::Running => format!("agentd already runs (pid {}) at {}", status.pid, status.socket),
                Startup::Started { .. } => format!("agentd runs (pid {}) at {}", status.pid, status.socket),
            };
            print(&[Line::from(text)])?;
            Ok(Exit::Finished)
        }
        DaemonCommand::Stop => stop(context).await,
        DaemonCommand::Status => {
            let client = context.connect().await?;
            print(&status_lines(&client.call::<method::DaemonStatus>(Empty {}).await?))?;
            Ok(Exit::Finished)
        }
        DaemonCommand::Reindex => {
            let client = context.connect_or_start().await?;
            let sessions = client.call::<method::DaemonReindex>(Empty {}).await?.sessions;
            print(&[
                Line::from(format!("The index is being made anew from {}.", count(sessions))),
                Line::styled(Style::Dim, "How far it is: ")
                    .with(Style::Command, &format!("{} daemon doctor", context.program)),
            ])?;
            Ok(Exit::Finished)
        }
        DaemonCommand::Doctor => {
            let client = context.connect_or_start().await?;
            let doctor = client.call::<method::DaemonDoctor>(Empty {}).await?;
            print(&doctor_lines(&doctor, &context.program, context.home()))?;
            let failed = doctor.checks.iter().any(|check| check.status == CheckStatus::Failed);
            Ok(if failed { Exit::Failed } else { Exit::Finished })
        }
    }
}

fn count(sessions: u32) -> String {
    if sessions == 1 { "1 session".to_owned() } else { format!("{sessions} sessions") }
}

async fn stop(context: &Context) -> Result<Exit, Failure> {
    let Some(client) = context.connect_for_the_last_time().await? else {
        print(&[Line::from("agentd is not running.")])?;
        return Ok(Exit::Finished);
    };
    let mut feed = client.subscribe(SubscribeParams::default()).await?;
    let result = client.call::<method::DaemonShutdown>(Empty {}).await?;
    let text = match result.running_turns {
        0 => "agentd is stopping.".to_owned(),
        1 => "agentd is stopping; 1 running turn goes on at the next start.".to_owned(),
        n => format!("agentd is stopping; {n} running turns go on at the next start."),
    };
    print(&[Line::from(text)])?;
    // The daemon holds its connections until it has left.
    while let Ok(Some(StreamItem::Event(_))) = feed.next().await {}
    print(&[Line::from("Stopped.")])?;
    Ok(Exit::Finished)
}

fn status_lines(status: &StatusResult) -> Vec<Line> {
    let minutes = status.uptime_ms / 60_000;
    let mut lines = vec![
        Line::styled(Style::Bold, &format!("agentd {}", status.version))
            .with(Style::Dim, &format!("  build {}  pid {}  up {minutes} min", status.build, status.pid)),
        Line::from(status.socket.as_str()),
        Line::from(format!(
            "Live sessions: {} · running turns: {} · waiting approvals: {} · connections: {}",
            status.live_sessions, status.running_turns, status.waiting_approvals, status.connections
        )),
    ];
    if status.bypass_enabled {
        lines.push(Line::styled(Style::Warn, "bypassPermissions is enabled"));
    }
    if status.shutting_down {
        lines.push(Line::styled(Style::Warn, "It is shutting down."));
    }
    lines.extend(
        status
            .notices
            .iter()
            .map(|notice| Line::styled(Style::Warn, &notice.code).plain(&format!("  {}", notice.text))),
    );
    lines
}

fn doctor_lines(doctor: &DoctorResult, program: &str, home: Option<&Path>) -> Vec<Line> {
    let mut lines = Vec::new();
    for check in &doctor.checks {
        let (style, mark) = match check.status {
            CheckStatus::Ok => (Style::Good, "✓ "),
            CheckStatus::Warning => (Style::Warn, "! "),
            CheckStatus::Failed => (Style::Bad, "✗ "),
        };
        let detail = short_paths(&check.detail, home);
        let mut detail = lines_of(&detail);
        let first = detail.next().unwrap_or_default();
        lines.push(Line::styled(style, mark).plain(&format!("{}: {}", check.name, called(&first, program))));
        lines.extend(detail.map(|line| Line::from("  ").plain(&called(&line, program))));
        if let Some(fix) = &check.fix {
            lines.push(Line::styled(Style::Dim, "  type: ").with(Style::Command, &called(fix, program)));
        }
    }
    lines
}

/// `agentctl rpc`.
pub(crate) async fn rpc(context: &Context, args: RpcArgs) -> Result<Exit, Failure> {
    let params = params(args.params)?;
    let client = context.connect_or_start().await?;
    match client.call_raw(&args.method, params).await {
        Ok(result) => {
            print_json(result.get())?;
            Ok(Exit::Finished)
        }
        Err(CallError::Daemon { code, message, data }) => {
            let data = serde_json::to_string(&data).unwrap_or_default();
            Err(Failure::failed(format!("{message} (code {}) {data}", code.code())))
        }
        Err(error @ CallError::Rpc { code: METHOD_NOT_FOUND, .. }) => Err(Failure::from(error)
            .next(format!("{} rpc daemon/status", context.program))
            .advice("The names of all methods are in the protocol's schema.")),
        Err(error) => Err(error.into()),
    }
}

/// JSON-RPC's code for a method that does not exist.
const METHOD_NOT_FOUND: i32 = -32601;

fn params(text: Option<String>) -> Result<Option<Box<RawValue>>, Failure> {
    let Some(mut text) = text else { return Ok(None) };
    if text == "-" {
        text.clear();
        std::io::stdin().read_to_string(&mut text)?;
    }
    let value: Box<RawValue> = serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("the parameters are no JSON: {error}")))?;
    match value.get().trim_start().as_bytes().first() {
        Some(b'{' | b'[') => Ok(Some(value)),
        _ => Err(Failure::usage("the parameters must be a JSON object or array")),
    }
}

#[cfg(test)]
mod tests {
    use agentd_protocol::daemon::Check;

    use super::*;

    #[test]
    fn parameters_are_an_object_or_an_array() {
        assert!(params(None).unwrap().is_none());
        assert_eq!(params(Some(" {\"a\": 1}".into())).unwrap().unwrap().get(), "{\"a\": 1}");
        for text in ["", "{", "1", "\"x\"", "null"] {
            assert_eq!(params(Some(text.into())).unwrap_err().exit, Exit::Usage, "{text:?}");
        }
    }

    #[test]
    fn the_doctor_says_what_to_type() {
        let doctor = DoctorResult {
            checks: vec![
                Check { name: "socket".into(), status: CheckStatus::Ok, detail: "fine".into(), fix: None },
                Check {
                    name: "model".into(),
                    status: CheckStatus::Failed,
                    detail: "no key".into(),
                    fix: Some("agentctl key add anthropic".into()),
                },
            ],
        };
        let text: Vec<String> = doctor_lines(&doctor, "agentctl", None).iter().map(Line::text).collect();
        assert_eq!(text, ["✓ socket: fine", "✗ model: no key", "  type: agentctl key add anthropic"]);
    }

    #[test]
    fn what_the_doctor_says_keeps_its_lines() {
        let detail = "no model is set up. Type one of:\n  agentctl key add anthropic\n  agentctl demo".into();
        let check = Check { name: "model".into(), status: CheckStatus::Warning, detail, fix: None };
        let text: Vec<String> = doctor_lines(&DoctorResult { checks: vec![check] }, "agentctl", None)
            .iter()
            .map(Line::text)
            .collect();
        assert_eq!(
            text,
            [
                "! model: no model is set up. Type one of:",
                "    agentctl key add anthropic",
                "    agentctl demo"
            ]
        );
    }
}
