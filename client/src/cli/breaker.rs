//! `breaker`: the breaker of mode `auto`, of a session or of all.

use agentd_protocol::method;
use agentd_protocol::permission::{BreakerAction, BreakerParams, BreakerResult};
use agentd_protocol::session::SessionParams;

use super::args::BreakerArgs;
use super::context::{self, Context};
use super::exit::{Exit, Failure};
use super::screen;
use crate::render::line::ago;
use crate::render::{Line, Style};

/// `agentctl breaker`.
pub(crate) async fn breaker(context: &Context, args: BreakerArgs) -> Result<Exit, Failure> {
    let (named, action) = words(&args.words)?;
    if args.all && named.is_some() {
        return Err(Failure::usage("--all is about all sessions, so none is named")
            .next(format!("{} breaker --help", context.program)));
    }
    let client = context.connect_or_start().await?;
    let (session_id, handle) = if args.all {
        (None, None)
    } else {
        let again = |id: &str| match action {
            None => format!("breaker {id}"),
            Some(BreakerAction::Open) => format!("breaker {id} open"),
            Some(BreakerAction::Close) => format!("breaker {id} close"),
        };
        let session_id = context::session(context, &client, named.as_deref(), again).await?;
        let state = client.call::<method::SessionGet>(SessionParams { session_id }).await?.state;
        (Some(session_id), Some(state.handle))
    };
    let params = BreakerParams { session_id, action };
    if args.json {
        context::print_answer::<method::PermissionBreaker>(&client, params).await?;
        return Ok(Exit::Finished);
    }
    let result = client.call::<method::PermissionBreaker>(params).await?;
    screen::print(&lines(&result, handle.as_deref(), &context.program))?;
    Ok(Exit::Finished)
}

/// `[ID] [open|close]`; one word alone is an action if it is the name of one.
fn words(words: &[String]) -> Result<(Option<String>, Option<BreakerAction>), Failure> {
    let action = |word: &str| match word {
        "open" => Some(BreakerAction::Open),
        "close" => Some(BreakerAction::Close),
        _ => None,
    };
    match words {
        [] => Ok((None, None)),
        [word] => Ok(match action(word) {
            Some(action) => (None, Some(action)),
            None => (Some(word.clone()), None),
        }),
        [id, word, ..] => match action(word) {
            Some(action) => Ok((Some(id.clone()), Some(action))),
            None => Err(Failure::usage(format!("{word:?} is neither open nor close"))),
        },
    }
}

/// How things stand, the nearest first, each with what closes it.
fn lines(result: &BreakerResult, handle: Option<&str>, program: &str) -> Vec<Line> {
    let command = |what: &str| Line::styled(Style::Dim, "  to close it: ").with(Style::Command, what);
    let mut lines = Vec::new();
    if let (Some(breaker), Some(handle)) = (&result.session, handle) {
        let counts = match breaker.total {
            0 => "nothing refused".to_owned(),
            total => format!("{total} refused, {} in a row", breaker.in_row),
        };
        if breaker.open {
            let text = format!("{handle}: the breaker of auto is open ({counts}); a person is asked");
            lines.push(Line::styled(Style::Warn, &text));
            lines.push(command(&format!("{program} breaker {handle} close")));
        } else {
            lines.push(Line::from(format!("{handle}: the breaker of auto is closed ({counts})")));
        }
    }
    match &result.everywhere {
        Some(opened) => {
            let when = match opened.at.unix_ms() {
                0 => String::new(),
                _ => format!(", {} ago", ago(opened.at, context::now())),
            };
            let text = format!("All sessions: the breaker of auto is open, by {}{when}", opened.by);
            lines.push(Line::styled(Style::Warn, &text));
            lines.push(command(&format!("{program} breaker close --all")));
        }
        None if handle.is_none() => lines.push(Line::from("All sessions: the breaker of auto is closed")),
        None => {}
    }
    if !result.enabled {
        lines.push(Line::styled(Style::Warn, "auto is shut by the settings: enabled under [auto]"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use agentd_protocol::permission::{Breaker, BreakerOpened};
    use agentd_protocol::time::Timestamp;

    use super::*;

    fn text(result: &BreakerResult, handle: Option<&str>) -> Vec<String> {
        lines(result, handle, "agentctl").iter().map(Line::text).collect()
    }

    #[test]
    fn what_is_open_says_what_closes_it() {
        let open = Breaker { open: true, in_row: 3, total: 4 };
        let result = BreakerResult { enabled: true, everywhere: None, session: Some(open) };
        assert_eq!(
            text(&result, Some("api-otter")),
            [
                "api-otter: the breaker of auto is open (4 refused, 3 in a row); a person is asked",
                "  to close it: agentctl breaker api-otter close",
            ]
        );
        let everywhere =
            Some(BreakerOpened { by: "user:1000 agentctl".into(), at: Timestamp::from_unix_ms(0) });
        let result = BreakerResult { enabled: false, everywhere, session: None };
        assert_eq!(
            text(&result, None),
            [
                "All sessions: the breaker of auto is open, by user:1000 agentctl",
                "  to close it: agentctl breaker close --all",
                "auto is shut by the settings: enabled under [auto]",
            ]
        );
        let result = BreakerResult { enabled: true, everywhere: None, session: Some(Breaker::default()) };
        assert_eq!(
            text(&result, Some("api-otter")),
            ["api-otter: the breaker of auto is closed (nothing refused)"]
        );
    }

    #[test]
    fn one_word_is_an_action_or_a_session() {
        let of = |list: &[&str]| words(&list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).ok();
        assert_eq!(of(&[]), Some((None, None)));
        assert_eq!(of(&["close"]), Some((None, Some(BreakerAction::Close))));
        assert_eq!(of(&["otter"]), Some((Some("otter".into()), None)));
        assert_eq!(of(&["otter", "open"]), Some((Some("otter".into()), Some(BreakerAction::Open))));
        assert_eq!(of(&["otter", "shut"]), None);
    }
}
