//! `search`: where something was said.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use agentd_client::Client;
use agentd_protocol::history::{HistoryParams, MAX_EVENTS};
use agentd_protocol::method;
use agentd_protocol::search::{SearchHit, SearchParams, SearchResult, SearchRole};
use agentd_protocol::session::Row;
use agentd_protocol::{Seq, SessionId, Timestamp};

use super::args::SearchArgs;
use super::context::{self, Context, now};
use super::exit::{Exit, Failure};
use super::resolve::Here;
use super::screen;
use crate::render::{Line, Style, line};

/// So many pages of a session's history are gone through to count its turns.
const PAGES: usize = 4;

/// `agentctl search`.
pub(crate) async fn search(context: &Context, args: SearchArgs) -> Result<Exit, Failure> {
    let cwd = match args.here {
        true => Some(Here::new(Path::new("."))?.cwd.display().to_string()),
        false => None,
    };
    let client = context.connect_or_start().await?;
    let json = args.json;
    let params = SearchParams { query: args.words.join(" "), cwd, session_id: None, limit: Some(args.limit) };
    if json {
        context::print_answer::<method::SessionSearch>(&client, params).await?;
        return Ok(Exit::Finished);
    }
    let result = client.call::<method::SessionSearch>(params).await?;
    let places = places(&client, &result).await?;
    let lines = lines(&result, &places, &context.program, context.home(), now(), screen::print_width());
    screen::print(&lines)?;
    if !result.complete {
        let text = "The index is being brought up to date; something may be missing. How far it is: ";
        screen::say(&[Line::styled(Style::Dim, text)
            .with(Style::Command, &format!("{} daemon doctor", context.program))])?;
    }
    Ok(Exit::Finished)
}

/// The hits of a session together, in the order of its newest one.
fn lines(
    result: &SearchResult,
    places: &Places,
    program: &str,
    home: Option<&Path>,
    now: Timestamp,
    width: usize,
) -> Vec<Line> {
    if result.hits.is_empty() {
        return vec![
            Line::from("Nothing found. Every word has to be there. Next: ")
                .with(Style::Command, &format!("{program} ls --all")),
        ];
    }
    let mut shown: Vec<SessionId> = Vec::new();
    let mut lines = Vec::new();
    for hit in &result.hits {
        let row = &hit.session;
        if shown.contains(&row.session_id) {
            continue;
        }
        shown.push(row.session_id);
        let title = row.title.as_deref().map_or(String::new(), |title| format!("  {title}"));
        lines.push(
            Line::styled(Style::Bold, &row.handle)
                .plain(&title)
                .with(Style::Dim, &format!("  {}", line::short_path(&row.cwd, home)))
                .cut(width),
        );
        let here = result.hits.iter().filter(|other| other.session.session_id == row.session_id);
        lines.extend(here.map(|hit| place(hit, now).cut(width)));
        let name = places.name(row);
        let turn = places.turns.get(&(row.session_id, hit.seq));
        let see = match turn {
            Some(turn) => format!("{program} show {name} '#{turn}'"),
            None => format!("{program} log {name} --all"),
        };
        lines.push(Line::styled(Style::Dim, "  see it  ").with(Style::Command, &see));
    }
    lines
}

/// What the commands need that lead to what was found.
#[derive(Debug, Default)]
struct Places {
    /// Which turn a hit lies in: of each session the newest one that was found.
    turns: HashMap<(SessionId, Seq), u64>,
    /// Handles that more than one session has.
    shared: HashSet<String>,
}

impl Places {
    /// The handle, unless that is another session's too.
    fn name(&self, row: &Row) -> String {
        match self.shared.contains(&row.handle) {
            true => row.session_id.to_string(),
            false => row.handle.clone(),
        }
    }
}

async fn places(client: &Client, result: &SearchResult) -> Result<Places, Failure> {
    let mut places = Places::default();
    if result.hits.is_empty() {
        return Ok(places);
    }
    let mut handles = HashSet::new();
    for row in context::rows(client).await? {
        if !handles.insert(row.handle.clone()) {
            places.shared.insert(row.handle);
        }
    }
    let mut looked = HashSet::new();
    for hit in result.hits.iter().filter(|hit| looked.insert(hit.session.session_id)) {
        if let Some(turn) = turn_of(client, hit).await {
            places.turns.insert((hit.session.session_id, hit.seq), turn);
        }
    }
    Ok(places)
}

/// The number of the turn that a hit lies in: how many turns had begun by then. Absent for a title, and where counting
/// would take long or fails: the hit is shown all the same.
async fn turn_of(client: &Client, hit: &SearchHit) -> Option<u64> {
    if hit.role == SearchRole::Title {
        return None;
    }
    let mut after = Seq(0);
    let mut turns = 0;
    for _ in 0..PAGES {
        let params = HistoryParams {
            after_seq: Some(after),
            before_seq: Some(Seq(hit.seq.0.saturating_add(1))),
            limit: Some(MAX_EVENTS),
            types: Some(vec!["turnStarted".to_owned()]),
            ..HistoryParams::newest(hit.session.session_id)
        };
        let page = client.history(params).await.ok()?;
        turns += page.events.len() as u64;
        match page.next {
            Some(next) => after = next,
            None => return (turns > 0).then_some(turns),
        }
    }
    None
}

fn place(hit: &SearchHit, now: Timestamp) -> Line {
    let who = match hit.role {
        SearchRole::Title => "title",
        SearchRole::User => "you",
        SearchRole::Assistant => "agent",
    };
    let start = format!("  {:>6}  {who:<5}  ", line::ago(hit.at, now));
    hit.snippet.iter().fold(Line::styled(Style::Dim, &start), |line, part| {
        // A line break in a text is no line break of this list.
        let text = part.text.replace(['\n', '\r', '\t'], " ");
        line.with(if part.matched { Style::Good } else { Style::Plain }, &text)
    })
}

#[cfg(test)]
mod tests {
    use agentd_protocol::search::SnippetPart;
    use agentd_protocol::session::Activity;

    use super::*;
    use crate::render::line::tests::row;

    fn hit(session: &agentd_protocol::session::Row, role: SearchRole, parts: &[(&str, bool)]) -> SearchHit {
        SearchHit {
            session: session.clone(),
            seq: Seq(3),
            at: Timestamp::from_unix_ms(0),
            role,
            snippet: parts
                .iter()
                .map(|(text, matched)| SnippetPart { text: (*text).to_owned(), matched: *matched })
                .collect(),
        }
    }

    fn text(result: &SearchResult) -> Vec<String> {
        let now = Timestamp::from_unix_ms(120_000);
        let mut places = Places::default();
        for (index, hit) in (4..).zip(&result.hits) {
            places.turns.entry((hit.session.session_id, hit.seq)).or_insert(index);
        }
        places.shared.insert("web-fox".into());
        lines(result, &places, "agentctl", Some(Path::new("/home/u")), now, 80)
            .iter()
            .map(Line::text)
            .collect()
    }

    #[test]
    fn the_places_of_a_session_stand_together_with_the_next_command() {
        let mut api = row("api-otter", "/home/u/api", Activity::Idle, 0);
        api.title = Some("Paging".into());
        let web = row("web-fox", "/srv/web", Activity::Idle, 0);
        let result = SearchResult {
            hits: vec![
                hit(&api, SearchRole::Assistant, &[("uses ", false), ("cursors", true)]),
                hit(&web, SearchRole::User, &[("a\ncursor", true)]),
                hit(&api, SearchRole::User, &[("…no ", false), ("cursor", true), ("\u{1b}[2J", false)]),
            ],
            complete: true,
        };
        assert_eq!(
            text(&result),
            [
                "api-otter  Paging  ~/api".to_owned(),
                "   2 min  agent  uses cursors".to_owned(),
                "   2 min  you    …no cursor<U+001B>[2J".to_owned(),
                "  see it  agentctl show api-otter '#4'".to_owned(),
                "web-fox  /srv/web".to_owned(),
                "   2 min  you    a cursor".to_owned(),
                format!("  see it  agentctl show {} '#5'", web.session_id),
            ]
        );
    }

    #[test]
    fn nothing_found_says_what_to_do() {
        let result = SearchResult { hits: Vec::new(), complete: true };
        assert_eq!(text(&result), ["Nothing found. Every word has to be there. Next: agentctl ls --all"]);
    }
}
