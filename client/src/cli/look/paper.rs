//! Turns as a Markdown document, for people and programs that read it later. Pure; whatever a model, a tool or a file said is
//! inside a fence that it cannot end, or is its own Markdown.

use agentd_protocol::approval::{Approval, Subject};
use agentd_protocol::event::{Text, ToolStatus};
use agentd_protocol::session::State;
use agentd_protocol::show::{show, show_line};

use super::draw::{by, clock};
use super::transcript::{Answer, Asked, Call, Ended, Entry, Turn};
use crate::cli::follow::settled;
use crate::render::line::tokens;

/// What stands above the first turn.
pub(crate) fn head(state: &State) -> String {
    let title = state.title.as_deref().unwrap_or(&state.handle);
    let mut text = format!("# {}\n\n", show_line(title));
    for (name, value) in [
        ("Session", format!("{} ({})", state.handle, state.session_id)),
        ("Folder", state.cwd.clone()),
        ("Model", format!("{}/{}", state.model.provider, state.model.model)),
        ("Mode", state.mode.to_string()),
        ("Begun", clock(state.created_at)),
        ("Last changed", clock(state.updated_at)),
    ] {
        text.push_str(&format!("- {name}: {}\n", code(&value)));
    }
    text.push('\n');
    text
}

/// The plan as it is now.
pub(crate) fn plan(content: &str) -> String {
    format!("## Plan\n\n{}\n", fenced("markdown", content))
}

/// One turn; nothing for one in which nothing happened.
pub(crate) fn turn(turn: &Turn) -> String {
    let mut text = String::new();
    if let Some(number) = turn.number {
        let ended = turn.ended.as_ref().map_or("not ended", |ended| ended.outcome.name());
        text.push_str(&format!("## Turn {number}: {ended}\n\n"));
        let begun =
            turn.started.map(clock).into_iter().chain(turn.origin.map(|origin| by(origin).to_owned()));
        let begun: Vec<String> = begun.collect();
        if !begun.is_empty() {
            text.push_str(&format!("{}\n\n", begun.join(", ")));
        }
    }
    for entry in &turn.entries {
        match entry {
            Entry::Prompt(prompt) => text.push_str(&quote(prompt.preview())),
            Entry::Answer(answer) => text.push_str(&self::answer(answer)),
            Entry::Call(call) => text.push_str(&self::call(call)),
            Entry::Asked(asked) => text.push_str(&self::asked(asked)),
            Entry::NoAnswer { reason, times } => {
                let times = if *times > 1 { format!(", {times} times") } else { String::new() };
                text.push_str(&format!("*The model gave no answer{times}: {}*\n\n", show_line(reason)));
            }
            Entry::Note(line) => text.push_str(&format!("*{}*\n\n", show_line(&line.text()))),
        }
    }
    text.push_str(&files(turn));
    if let Some(ended) = &turn.ended {
        text.push_str(&end(ended));
    }
    text
}

fn quote(prompt: &str) -> String {
    let lines: String = show(prompt.trim_end()).lines().map(|line| format!("> {line}\n")).collect();
    format!("**Prompt**\n\n{lines}\n")
}

fn answer(answer: &Answer) -> String {
    let text = answer.text.preview().trim_end();
    let mut out = String::new();
    if !text.is_empty() {
        out.push_str(&format!("{}\n\n", show(text)));
    }
    if answer.incomplete {
        out.push_str("*(cut off here)*\n\n");
    }
    out
}

fn call(call: &Call) -> String {
    let (word, reason) = match &call.result {
        None => ("no result yet", None),
        Some(result) => (status(result.status), result.reason.as_deref()),
    };
    let reason = reason.map_or(String::new(), |reason| format!(" ({})", show_line(reason)));
    let mut out = format!("### {} {}: {word}{reason}\n\n", code(&call.tool), show_line(&call.title));
    for decided in &call.decided {
        let rule =
            decided.rule.as_ref().map_or(String::new(), |rule| format!(", by the rule {}", code(rule)));
        out.push_str(&format!("Gate: {} ({}){rule}\n\n", decided.decision, show_line(&decided.reason)));
    }
    let input = serde_json::to_string_pretty(&call.input).unwrap_or_default();
    out.push_str(&format!("Input:\n\n{}\n", fenced("json", &input)));
    if let Some(result) = &call.result {
        out.push_str(&format!("Output:\n\n{}\n", fenced("", result.content.preview())));
        if let Some(diff) = &result.diff {
            out.push_str(&format!("Change:\n\n{}\n", fenced("diff", diff.preview())));
        }
    }
    out
}

fn status(status: ToolStatus) -> &'static str {
    match status {
        ToolStatus::Ok => "ok",
        ToolStatus::Error => "failed",
        ToolStatus::Denied => "refused",
        ToolStatus::NotRun => "not run",
        ToolStatus::Interrupted => "interrupted",
    }
}

fn asked(asked: &Asked) -> String {
    let Approval { title, subject, .. } = &asked.approval;
    let answer = match &asked.settled {
        Some(by) => {
            let mut offered = asked.approval.choices.iter();
            let label = by.choice.and_then(|choice| offered.find(|offered| offered.id == choice));
            let label = label.map(|offered| offered.label.as_str());
            settled(by.resolution, by.choice, label, &by.by, by.feedback.as_deref()).text()
        }
        None => "not answered yet".to_owned(),
    };
    let mut out =
        format!("**Asked** ({}) {}: {}\n\n", subject.kind().name(), show_line(title), show_line(&answer));
    if let Subject::Plan { plan } = subject {
        out.push_str(&format!("{}\n", fenced("markdown", &plan.content)));
    }
    out
}

fn files(turn: &Turn) -> String {
    let calls = turn.entries.iter().filter_map(|entry| match entry {
        Entry::Call(call) => Some(&call.files),
        _ => None,
    });
    let lines: String = calls
        .flatten()
        .map(|(path, changed)| match changed.gone {
            true => format!("- {} deleted\n", code(path)),
            false => format!("- {} +{} -{}\n", code(path), changed.added, changed.removed),
        })
        .collect();
    if lines.is_empty() { lines } else { format!("Files changed:\n\n{lines}\n") }
}

fn end(ended: &Ended) -> String {
    let mut out = String::new();
    if let Some(error) = &ended.error {
        out.push_str(&format!("**Ended with an error:** {}\n\n", show_line(error)));
    }
    for denial in &ended.denials {
        out.push_str(&format!("Refused ({}): {}\n\n", show_line(&denial.reason), show_line(&denial.title)));
    }
    if ended.usage.requests > 0 {
        out.push_str(&format!("Tokens: {}\n\n", tokens(&ended.usage)));
    }
    out
}

/// The texts of a turn that may have to be fetched.
pub(crate) fn texts(turn: &mut Turn) -> Vec<&mut Text> {
    let mut texts = Vec::new();
    for entry in &mut turn.entries {
        match entry {
            Entry::Prompt(text) => texts.push(text),
            Entry::Answer(answer) => texts.push(&mut answer.text),
            Entry::Call(call) => {
                if let Some(result) = &mut call.result {
                    texts.push(&mut result.content);
                    texts.extend(&mut result.diff);
                }
            }
            Entry::Asked(_) | Entry::NoAnswer { .. } | Entry::Note(_) => {}
        }
    }
    texts
}

/// `text` between two fences longer than any run of backticks in it.
fn fenced(language: &str, text: &str) -> String {
    let fence = "`".repeat(longest_run(text).max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}\n", show(text.trim_end_matches('\n')))
}

/// `text` on one line as code.
fn code(text: &str) -> String {
    let text = show_line(text);
    let ticks = "`".repeat(longest_run(&text) + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{ticks}{pad}{text}{pad}{ticks}")
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_inside_a_fence_ends_it() {
        assert_eq!(fenced("json", "{}\n"), "```json\n{}\n```\n");
        assert_eq!(fenced("", "a\n```\n# no heading"), "````\na\n```\n# no heading\n````\n");
        assert_eq!(code("a`b"), "``a`b``");
        assert_eq!(code("`"), "`` ` ``");
        assert!(!fenced("", "\u{1b}[2J").contains('\u{1b}'));
        assert_eq!(quote("one\n# two\n"), "**Prompt**\n\n> one\n> # two\n\n");
    }
}
