//! `waiting`, `approve`, `deny`: answering from any terminal.

mod asking;

use std::path::Path;

use agentd_client::Client;
use agentd_protocol::approval::{
    Approval, ApprovalGetParams, ApprovalListParams, ChoiceId, PlanSubject, RespondParams, RespondResult,
    Subject, WaitingApproval,
};
use agentd_protocol::show::show_line;
use agentd_protocol::{ErrorCode, method};

use self::asking::ask;
use super::args::{ApproveArgs, DenyArgs, WaitingArgs};
use super::context::{self, Context, now};
use super::exit::{Exit, Failure};
use super::resolve::{self, Found, Here};
use super::screen;
use super::watch::{sent, settled_text};
use crate::render::approval::{short_digest, short_id};
use crate::render::style::quoted;
use crate::render::{Line, Style, line};

/// `agentctl waiting`.
pub(crate) async fn waiting(context: &Context, args: WaitingArgs) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    let list = looked_at(&client, pending(&client).await?).await?;
    if args.json {
        // As it is after that look.
        context::print_answer::<method::ApprovalList>(&client, ApprovalListParams::default()).await?;
        return Ok(Exit::Finished);
    }
    if list.is_empty() {
        screen::print(&[Line::from("Nothing waits for you.")])?;
        return Ok(Exit::Finished);
    }
    screen::print(&waiting_lines(context, &list))?;
    Ok(Exit::Finished)
}

fn waiting_lines(context: &Context, list: &[WaitingApproval]) -> Vec<Line> {
    let mut lines = Vec::new();
    for approval in list {
        if !lines.is_empty() {
            lines.push(Line::new());
        }
        lines.extend(line::waiting(approval, &context.program, context.home(), now()));
    }
    lines
}

async fn pending(client: &Client) -> Result<Vec<WaitingApproval>, Failure> {
    Ok(client.call::<method::ApprovalList>(ApprovalListParams::default()).await?.approvals)
}

/// So many plans are looked at anew for a list.
const PLANS_LOOKED_AT: usize = 20;

/// The same, with plans as their files are now: the daemon looks at a file when its approval is asked for.
async fn looked_at(client: &Client, list: Vec<WaitingApproval>) -> Result<Vec<WaitingApproval>, Failure> {
    let (mut looked, mut found) = (0, Vec::new());
    for waiting in list {
        if !matches!(waiting.approval.subject, Subject::Plan { .. }) || looked == PLANS_LOOKED_AT {
            found.push(waiting);
            continue;
        }
        looked += 1;
        let approval_id = waiting.approval.approval_id.clone();
        match client.call::<method::ApprovalGet>(ApprovalGetParams { approval_id }).await {
            Ok(now) => found.push(now),
            // It was answered meanwhile.
            Err(error) if matches!(error.code(), Some(ErrorCode::ApprovalSettled | ErrorCode::NotFound)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// One approval, read anew: a plan that was edited by hand shows as it is now.
async fn find(
    context: &Context,
    client: &Client,
    spec: Option<&str>,
    command: &str,
) -> Result<WaitingApproval, Failure> {
    let list = pending(client).await?;
    let approval_id = match resolve::approval(&list, spec, &Here::new(Path::new("."))?)? {
        Found::One(waiting) => waiting.approval.approval_id.clone(),
        Found::Several(found) => return Err(several(&found, list.len(), context, command)),
        Found::Elsewhere => return Err(elsewhere(&list, context, command)),
    };
    Ok(client.call::<method::ApprovalGet>(ApprovalGetParams { approval_id }).await?)
}

/// Names each that could be meant on one line.
fn several(found: &[&WaitingApproval], all: usize, context: &Context, command: &str) -> Failure {
    let mut message = match all - found.len() {
        0 => format!("{all} approvals wait; name one by its id:"),
        more => {
            format!("{} approvals wait in this folder ({more} elsewhere); name one by its id:", found.len())
        }
    };
    for waiting in found {
        message.push_str(&format!("\n  {}  {}", short_id(&waiting.approval), described(waiting, context)));
    }
    let failure = Failure::usage(message);
    match found.first() {
        Some(first) => failure.next(format!("{} {command} {}", context.program, short_id(&first.approval))),
        None => failure,
    }
}

/// So many are named when a command without a name finds nothing here.
const MOST_ELSEWHERE: usize = 5;

/// Nothing of this folder waits. What waits elsewhere is named, each with the command that means it.
fn elsewhere(list: &[WaitingApproval], context: &Context, command: &str) -> Failure {
    let what = match list.len() {
        1 => "nothing waits in this folder; 1 approval waits elsewhere:".to_owned(),
        n => format!("nothing waits in this folder; {n} approvals wait elsewhere:"),
    };
    let mut failure = Failure::usage(what);
    for waiting in list.iter().take(MOST_ELSEWHERE) {
        failure = failure.advice(format!("  {}", described(waiting, context)));
        failure =
            failure.then("    ", format!("{} {command} {}", context.program, short_id(&waiting.approval)));
    }
    if list.len() > MOST_ELSEWHERE {
        failure = failure.then("All of them: ", format!("{} waiting", context.program));
    }
    failure
}

/// What waits, of which session, where.
fn described(waiting: &WaitingApproval, context: &Context) -> String {
    format!(
        "{}  {}  {}  {}",
        waiting.approval.subject.kind().name(),
        show_line(&waiting.approval.title),
        show_line(&waiting.handle),
        show_line(&line::short_path(&waiting.cwd, context.home())),
    )
}

/// `agentctl approve`.
pub(crate) async fn approve(context: &Context, args: ApproveArgs) -> Result<Exit, Failure> {
    let (id, choice) = words(args.id.as_deref(), args.choice.as_deref());
    let client = context.connect_or_start().await?;
    let waiting = find(context, &client, id, "approve").await?;
    let Some(choice) = choice.map(|word| offered(&waiting.approval, word)).transpose()? else {
        if args.revision.is_some() || args.digest.is_some() {
            return Err(
                Failure::usage("--revision and --digest go with a choice").advice(choices(&waiting.approval))
            );
        }
        return ask(context, &client, waiting, args.edit).await;
    };
    if args.edit {
        return Err(Failure::usage("--edit goes without a choice: you are asked once you have edited"));
    }
    let params = named(&waiting.approval, choice, &args, &context.program)?;
    let told = sent(&params);
    let result = respond(context, &client, &waiting, params).await?;
    say_accepted(context, &waiting, choice, told, &result)
}

/// `agentctl deny`.
pub(crate) async fn deny(context: &Context, args: DenyArgs) -> Result<Exit, Failure> {
    let client = context.connect_or_start().await?;
    let waiting = find(context, &client, args.id.as_deref(), "deny").await?;
    let choice = match waiting.approval.subject {
        Subject::Tool { .. } => ChoiceId::Deny,
        Subject::Plan { .. } => ChoiceId::KeepPlanning,
        Subject::Question { .. } => ChoiceId::Decline,
        Subject::Trust { .. } => ChoiceId::Untrusted,
    };
    // Refusing widens nothing, so nobody has to prove what was seen.
    let params = RespondParams { feedback: args.message, ..RespondParams::to(&waiting.approval, choice) };
    let told = sent(&params);
    let result = respond(context, &client, &waiting, params).await?;
    say_accepted(context, &waiting, choice, told, &result)
}

/// Which approval, which choice: one word alone is a choice if it is the name of one.
fn words<'a>(id: Option<&'a str>, choice: Option<&'a str>) -> (Option<&'a str>, Option<&'a str>) {
    match (id, choice) {
        (Some(word), None) if choice_named(word).is_some() => (None, Some(word)),
        words => words,
    }
}

/// The choice of this name, if the approval has it.
fn offered(approval: &Approval, word: &str) -> Result<ChoiceId, Failure> {
    let choice = choice_named(word)
        .ok_or_else(|| Failure::usage(format!("{} is no choice", quoted(word))).advice(choices(approval)))?;
    if approval.choices.iter().any(|offered| offered.id == choice) {
        return Ok(choice);
    }
    Err(Failure::usage(format!("{} is not offered here", choice.name())).advice(choices(approval)))
}

/// By its name on the wire, or as people type it: `keep-planning`.
fn choice_named(word: &str) -> Option<ChoiceId> {
    let plain: String = word.chars().filter(|c| !matches!(c, '-' | '_')).collect();
    ChoiceId::ALL.into_iter().find(|choice| choice.name().eq_ignore_ascii_case(&plain))
}

fn choices(approval: &Approval) -> String {
    let names: Vec<&str> = approval.choices.iter().map(|choice| choice.id.name()).collect();
    format!("The choices are {}.", names.join(", "))
}

/// The answer that a complete command line gives. It names what was seen, so that nothing else is approved.
fn named(
    approval: &Approval,
    choice: ChoiceId,
    args: &ApproveArgs,
    program: &str,
) -> Result<RespondParams, Failure> {
    let see = format!("{program} approve {}", short_id(approval));
    let (flag, seen, current) = match &approval.subject {
        Subject::Plan { .. } if args.digest.is_some() => {
            ("--digest", args.digest.as_deref(), approval.digest)
        }
        Subject::Plan { plan } => ("--revision", args.revision.as_deref(), plan.revision),
        Subject::Tool { .. } | Subject::Question { .. } | Subject::Trust { .. } => {
            ("--digest", args.digest.as_deref(), approval.digest)
        }
    };
    let Some(seen) = seen else {
        return Err(Failure::usage(format!("say what you have seen with {flag}, 12 hex digits or more"))
            .then("To see it and be asked: ", see));
    };
    if seen.trim_start_matches("sha256:").len() < 12 {
        return Err(Failure::usage(format!("{flag} takes 12 hex digits or more")));
    }
    if !current.has_prefix(seen) {
        return Err(Failure::failed(format!(
            "this is not what you have seen: it changed and is {} now; nothing was answered",
            short_digest(current)
        ))
        .next(see));
    }
    if let Subject::Plan { plan: PlanSubject { note: Some(note), .. } } = &approval.subject
        && args.digest.as_deref().is_none_or(|seen| !approval.digest.has_prefix(seen))
    {
        // The revision names the text; who has seen only that has not seen this.
        let again = format!("{see} {} --digest {}", choice.name(), short_digest(approval.digest));
        return Err(Failure::failed(format!("{note}\nNothing was answered.")).next(again));
    }
    if args.mode.is_some() && !matches!(approval.subject, Subject::Plan { .. }) {
        return Err(Failure::usage("--mode goes with plans only"));
    }
    let mut params = RespondParams { mode: args.mode, ..RespondParams::to(approval, choice) };
    match choice {
        ChoiceId::Answer => {
            if args.message.is_empty() {
                return Err(Failure::usage("give the answer with -m, once for each question"));
            }
            params.answers.clone_from(&args.message);
        }
        _ if args.message.is_empty() => {}
        _ => params.feedback = Some(args.message.join("\n")),
    }
    Ok(params)
}

async fn respond(
    context: &Context,
    client: &Client,
    waiting: &WaitingApproval,
    params: RespondParams,
) -> Result<RespondResult, Failure> {
    client.call::<method::ApprovalRespond>(params).await.map_err(|error| match error.code() {
        Some(ErrorCode::ApprovalSettled) => Failure::failed(settled_text(&error, Some(&waiting.approval))),
        Some(ErrorCode::Stale) => Failure::failed("it changed in the meantime; nothing was answered")
            .next(format!("{} approve {}", context.program, short_id(&waiting.approval))),
        _ => error.into(),
    })
}

fn say_accepted(
    context: &Context,
    waiting: &WaitingApproval,
    choice: ChoiceId,
    told: Option<String>,
    result: &RespondResult,
) -> Result<Exit, Failure> {
    let label = waiting.approval.choices.iter().find(|offered| offered.id == choice);
    let label = told.as_deref().or(label.map(|offered| offered.label.as_str())).unwrap_or(choice.name());
    screen::print(&[
        Line::styled(Style::Good, "→ ")
            .plain(&format!("{}: {label} · mode {}", waiting.handle, result.mode_now)),
        Line::styled(Style::Dim, "Next: ")
            .with(Style::Command, &format!("{} attach {}", context.program, waiting.handle)),
    ])?;
    Ok(Exit::Finished)
}

#[cfg(test)]
mod tests {
    use agentd_protocol::Mode;

    use super::*;
    use crate::render::approval::tests as samples;

    fn args() -> ApproveArgs {
        ApproveArgs {
            id: None,
            choice: None,
            revision: None,
            digest: None,
            message: vec![],
            mode: None,
            edit: false,
        }
    }

    #[test]
    fn one_word_is_a_choice_or_an_id() {
        assert_eq!(words(Some("execute"), None), (None, Some("execute")));
        assert_eq!(words(Some("keep-planning"), None), (None, Some("keep-planning")));
        assert_eq!(words(Some("9b1c44aa"), None), (Some("9b1c44aa"), None));
        assert_eq!(words(None, None), (None, None));
        assert_eq!(words(Some("9b1c"), Some("yes")), (Some("9b1c"), Some("yes")));
    }

    #[test]
    fn a_choice_is_one_that_is_offered() {
        let tool = samples::tool("cargo test");
        assert_eq!(offered(&tool, "allow_once").unwrap(), ChoiceId::AllowOnce);
        assert_eq!(offered(&samples::plan("# P"), "keep-planning").unwrap(), ChoiceId::KeepPlanning);
        for word in ["yes", "execute"] {
            let failure = offered(&tool, word).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage);
            let next = failure.told_next();
            assert!(next.starts_with("The choices are allowOnce") && !next.contains("execute"), "{next}");
        }
    }

    #[test]
    fn no_choice_looks_like_an_id() {
        for choice in ChoiceId::ALL {
            assert!(!choice.name().bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
    }

    #[test]
    fn what_is_noted_beside_a_plan_is_told_before_it_is_approved_by_its_revision() {
        let mut approval = samples::plan("# P");
        if let Subject::Plan { plan } = &mut approval.subject {
            plan.note = Some("a save could not be read".into());
        }
        let answer = |args: ApproveArgs| named(&approval, ChoiceId::Execute, &args, "agentctl");
        let revision = ApproveArgs { revision: Some("3f3f3f3f3f3f".into()), ..args() };
        let failure = answer(revision).unwrap_err();
        assert_eq!(failure.exit, Exit::Failed);
        assert!(failure.message.contains("a save could not be read"), "{}", failure.message);
        assert_eq!(failure.told_next(), "Next: agentctl approve deadbeef execute --digest 777777777777");
        let seen = ApproveArgs { digest: Some("777777777777".into()), ..args() };
        assert_eq!(answer(seen).unwrap().digest, approval.digest);
    }

    #[test]
    fn a_plan_is_approved_only_by_what_was_seen_of_it() {
        let approval = samples::plan("# P");
        let answer = |args: ApproveArgs| named(&approval, ChoiceId::Execute, &args, "agentctl");
        assert_eq!(answer(args()).unwrap_err().exit, Exit::Usage);
        // The digest says all that the revision says, and more.
        let digest = |seen: &str| ApproveArgs { digest: Some(seen.into()), ..args() };
        assert_eq!(answer(digest("777777777777")).unwrap().digest, approval.digest);
        assert_eq!(answer(digest("aaaaaaaaaaaa")).unwrap_err().exit, Exit::Failed);
        let short = ApproveArgs { revision: Some("3f3f3f".into()), ..args() };
        assert_eq!(answer(short).unwrap_err().exit, Exit::Usage);
        let other = ApproveArgs { revision: Some("aaaaaaaaaaaa".into()), ..args() };
        let failure = answer(other).unwrap_err();
        assert_eq!(
            (failure.exit, failure.told_next().as_str()),
            (Exit::Failed, "Next: agentctl approve deadbeef")
        );
        let right = ApproveArgs {
            revision: Some("sha256:3f3f3f3f3f3f".into()),
            mode: Some(Mode::Default),
            message: vec!["and fast".into()],
            ..args()
        };
        let params = answer(right).unwrap();
        assert_eq!(params.mode, Some(Mode::Default));
        assert_eq!(params.feedback.as_deref(), Some("and fast"));
        assert_eq!(params.digest, approval.digest);
    }

    #[test]
    fn a_call_is_approved_only_by_its_digest() {
        let approval = samples::tool("cargo test");
        let seen = ApproveArgs { digest: Some("777777777777".into()), ..args() };
        assert!(named(&approval, ChoiceId::AllowOnce, &seen, "agentctl").is_ok());
        let unseen = named(&approval, ChoiceId::AllowOnce, &args(), "agentctl").unwrap_err();
        assert_eq!(unseen.exit, Exit::Usage);
        let with_mode = ApproveArgs { mode: Some(Mode::AcceptEdits), ..seen };
        assert_eq!(
            named(&approval, ChoiceId::AllowOnce, &with_mode, "agentctl").unwrap_err().exit,
            Exit::Usage
        );
    }

    #[test]
    fn an_answer_needs_words() {
        let approval = samples::question(vec![samples::one_question()]);
        let mut seen = ApproveArgs { digest: Some("777777777777".into()), ..args() };
        assert_eq!(named(&approval, ChoiceId::Answer, &seen, "agentctl").unwrap_err().exit, Exit::Usage);
        seen.message = vec!["opaque".into()];
        assert_eq!(named(&approval, ChoiceId::Answer, &seen, "agentctl").unwrap().answers, ["opaque"]);
    }
}
