//! `demo`: the bundled playback. The daemon fills the empty folder with the sample project and plays the model's part;
//! everything else is real.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use agentd_client::Client;
use agentd_protocol::method::Empty;
use agentd_protocol::plan::PlanPhase;
use agentd_protocol::session::{At, Content, NewParams, NewResult, PromptParams, SessionParams};
use agentd_protocol::{Mode, Seq, TurnId, method};
use tempfile::TempDir;

use super::args::DemoArgs;
use super::auto::Auto;
use super::context::Context;
use super::exit::{Exit, Failure};
use super::follow::Goal;
use super::run::{answerer, delete, follow_prompt, session_env};
use super::screen::{self, Screen};
use super::watch::{Answerer, Target, Until};
use crate::render::{Line, Style};

/// The provider that is a playback.
pub(crate) const PROVIDER: &str = "demo";

/// The model that plays the scenario.
const MODEL: &str = "demo/tour";

/// What the scenario is asked to do.
const PROMPT: &str = "Add pagination to the list endpoint";

/// `agentctl demo`.
pub(crate) async fn demo(context: &Context, args: DemoArgs) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    let folder = private_folder()?;
    let mut screen = Screen::open(false);
    let answerer = if args.auto { Answerer::Auto(Auto::default()) } else { answerer(&screen) };
    screen.lines(&introduction())?;
    let new = begin(&client, &folder).await?;
    if let Answerer::Person(_) = answerer {
        let pid = client.call::<method::DaemonStatus>(Empty {}).await?.pid;
        screen.lines(&second_terminal(&context.program, &new.handle, pid))?;
    }
    let result = play(context, &client, screen, answerer, &new, args.keep).await;
    match &result {
        // A demo that waits for an answer, or was left, is still somebody's.
        Ok(Exit::Waiting | Exit::LeftRunning) => keep(context, folder, &new)?,
        Ok(exit) => {
            let cycle = if *exit == Exit::Finished { cycle(&client, &new).await? } else { Cycle::Broken };
            if args.keep {
                keep(context, folder, &new)?;
            } else {
                delete(&client, new.session_id).await?;
                screen::say(&left_behind(&context.program, cycle, folder)?)?;
            }
            screen::say(&afterwards(&context.program, cycle))?;
        }
        // What went wrong in the demo matters more than what is left of it.
        Err(_) => drop(clean_up(&client, folder, &new).await),
    }
    result
}

/// How far the scenario went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cycle {
    /// A plan was approved and its turn has ended.
    Whole,
    /// The person left plan mode without a plan.
    NotApproved,
    /// Stopped, refused or failed.
    Broken,
}

async fn cycle(client: &Client, new: &NewResult) -> Result<Cycle, Failure> {
    let params = SessionParams { session_id: new.session_id };
    let plan = client.call::<method::SessionGet>(params).await?.state.plan;
    let approved = plan.is_some_and(|plan| plan.phase == PlanPhase::Approved);
    Ok(if approved { Cycle::Whole } else { Cycle::NotApproved })
}

/// A new folder that only this user can enter.
fn private_folder() -> std::io::Result<TempDir> {
    tempfile::Builder::new().prefix("agentd-demo-").permissions(Permissions::from_mode(0o700)).tempdir()
}

async fn begin(client: &Client, folder: &TempDir) -> Result<NewResult, Failure> {
    let path = std::fs::canonicalize(folder.path())?;
    let cwd = path.to_str().ok_or_else(|| Failure::usage("TMPDIR has a name that is not UTF-8"))?.to_owned();
    let params = NewParams {
        cwd,
        mode: Some(Mode::Plan),
        model: Some(MODEL.to_owned()),
        env: session_env(client).await,
        ..NewParams::default()
    };
    Ok(client.call::<method::SessionNew>(params).await?)
}

async fn play(
    context: &Context,
    client: &Client,
    screen: Screen,
    answerer: Answerer,
    new: &NewResult,
    keep: bool,
) -> Result<Exit, Failure> {
    let turn = TurnId::generate();
    let target = Target {
        session: new.session_id,
        handle: new.handle.clone(),
        cwd: new.state.cwd.clone(),
        goal: Goal::Turn(turn),
        until: Until::Turn(turn),
        after: Seq(0),
        timeout: None,
        stays: keep,
        is_demo: true,
    };
    let prompt = PromptParams {
        session_id: new.session_id,
        prompt_id: Some(turn),
        content: vec![Content::Text { text: PROMPT.to_owned() }],
        at: At::Turn,
        mode: None,
        answers: None,
    };
    follow_prompt(context, client, target, screen, answerer, new, prompt).await
}

fn introduction() -> Vec<Line> {
    vec![
        Line::styled(Style::Bold, "This is a playback."),
        Line::from(
            "The model's words are canned; the daemon, its gate, the tools, the plan and the approvals are the real \
             ones, at work on a sample project in a temporary folder.",
        ),
        Line::styled(Style::Bold, "> ").plain(PROMPT),
    ]
}

fn second_terminal(program: &str, handle: &str, pid: u32) -> Vec<Line> {
    vec![
        Line::from("While it waits, try in a second terminal, and see it go on here:"),
        Line::from("  ").with(Style::Command, &format!("{program} attach {handle}")),
        Line::from("  ").with(Style::Command, &format!("kill -9 {pid}")),
    ]
}

fn afterwards(program: &str, cycle: Cycle) -> Vec<Line> {
    let (first, again) = match cycle {
        Cycle::Whole => ("That was the whole cycle. With a real model, in a folder of your own:", None),
        Cycle::NotApproved => {
            ("No plan was approved, so nothing was carried out. To see the whole cycle:", Some("demo"))
        }
        Cycle::Broken => ("The demo ended before its end. To play it again:", Some("demo")),
    };
    let mut lines = vec![Line::from(first)];
    let commands = match again {
        Some(again) => vec![again],
        None => vec!["key add anthropic", "run --plan \"…\""],
    };
    let command = |command| Line::from("  ").with(Style::Command, &format!("{program} {command}"));
    lines.extend(commands.into_iter().map(command));
    lines
}

/// The session goes; the project stays to be looked at, if there is anything to see in it.
fn left_behind(program: &str, cycle: Cycle, folder: TempDir) -> Result<Vec<Line>, Failure> {
    if cycle == Cycle::NotApproved {
        folder.close()?;
        let text = "The demo's session and its sample project, in which nothing has changed, are removed.";
        return Ok(vec![Line::styled(Style::Dim, text)]);
    }
    let path = folder.keep();
    let path = path.display();
    Ok(vec![
        Line::from("The sample project stays, with its changes: ").with(Style::Code, &path.to_string()),
        Line::styled(Style::Dim, "Remove it with: ").with(Style::Command, &format!("rm -r {path}")),
        Line::styled(Style::Dim, "The demo's session is removed. To keep it too: ")
            .with(Style::Command, &format!("{program} demo --keep")),
    ])
}

fn keep(context: &Context, folder: TempDir, new: &NewResult) -> Result<(), Failure> {
    let path = folder.keep();
    Ok(screen::say(&[
        Line::from(format!("Kept: session {} and {}", new.handle, path.display())),
        Line::styled(Style::Dim, "Remove them with:"),
        Line::from("  ").with(Style::Command, &format!("{} rm --force {}", context.program, new.handle)),
        Line::from("  ").with(Style::Command, &format!("rm -r {}", path.display())),
    ])?)
}

async fn clean_up(client: &Client, folder: TempDir, new: &NewResult) -> Result<(), Failure> {
    delete(client, new.session_id).await?;
    folder.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_plainly_what_it_is() {
        let text = introduction().iter().map(Line::text).collect::<String>();
        assert!(text.contains("playback") && text.contains("canned"), "{text}");
    }

    #[test]
    fn its_folder_is_closed_to_others() {
        let folder = private_folder().unwrap();
        assert_eq!(folder.path().metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn it_offers_to_try_the_worst() {
        let lines = second_terminal("agentctl", "demo-otter", 42);
        let text: Vec<String> = lines.iter().map(Line::text).collect();
        // Each as it has to be typed, with nothing behind it.
        assert_eq!(text[1..], ["  agentctl attach demo-otter", "  kill -9 42"]);
    }

    #[test]
    fn it_ends_with_what_to_type_next_and_claims_no_more_than_was_played() {
        let text =
            |cycle| afterwards("agentctl", cycle).iter().map(Line::text).collect::<Vec<_>>().join("\n");
        let whole = text(Cycle::Whole);
        assert!(
            whole.contains("whole cycle. With") && whole.contains("agentctl key add anthropic"),
            "{whole}"
        );
        assert!(whole.contains("agentctl run --plan"), "{whole}");
        for cycle in [Cycle::NotApproved, Cycle::Broken] {
            let text = text(cycle);
            assert!(!text.contains("That was the whole cycle") && text.ends_with("agentctl demo"), "{text}");
        }
    }

    #[test]
    fn the_project_stays_to_be_looked_at_and_is_said_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let text = |lines: Vec<Line>| lines.iter().map(Line::text).collect::<Vec<_>>().join("\n");
        let said = text(left_behind("agentctl", Cycle::Whole, folder).unwrap());
        assert!(path.exists() && said.contains(&format!("rm -r {}", path.display())), "{said}");
        std::fs::remove_dir(&path).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let said = text(left_behind("agentctl", Cycle::NotApproved, folder).unwrap());
        assert!(!path.exists() && said.contains("are removed"), "{said}");
    }
}
