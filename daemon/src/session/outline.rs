//! What lists and the search know of a session: its row and what was said, taken from its records one by one. A session in
//! memory tells both as it commits; for one that is not, the same is read from its journal, see `registry::index`.

use agentd_protocol::search::SearchRole;
use agentd_protocol::session::{Activity, Health, Row};
use agentd_protocol::{Mode, Seq, Timestamp};

use super::apply::is_news;
use super::record::{Body, ContextReset, Created, InboxWithdrawn, Parsed, Record, Source};
use crate::journal::Commit;
use crate::store::Text;

/// The row after some commits, and what was said in them.
#[derive(Clone, Debug, Default)]
pub struct Outline {
    /// Absent as long as no commit began the session.
    pub row: Option<Row>,
    pub texts: Vec<Text>,
}

impl Outline {
    /// To go on from a row that is known.
    #[must_use]
    pub fn after(row: Option<Row>) -> Self {
        Self { row, texts: Vec::new() }
    }

    pub fn add(&mut self, commit: &Commit) {
        for (seq, raw) in commit.numbered() {
            // As in the fold, what is not known changes nothing.
            let Parsed::Known { record, .. } = Record::parse(raw) else { continue };
            self.apply(seq, commit.at, &record);
        }
    }

    pub(super) fn apply(&mut self, seq: Seq, at: Timestamp, record: &Record) {
        let row = match (&mut self.row, record) {
            (None, Record::Created(created)) => self.row.insert(first_row(created, at)),
            (None, _) => return,
            (Some(row), _) => row,
        };
        if is_news(record) {
            row.updated_at = at;
        }
        match record {
            Record::ModeChanged(changed) => row.mode = Some(changed.to),
            Record::PlanEntered(_) => row.mode = Some(Mode::Plan),
            Record::TitleChanged(changed) => row.title = Some(changed.title.clone()),
            Record::TurnFinished(finished) => {
                row.last_outcome = Some(finished.outcome);
                row.last_prompt = finished.last_prompt.clone().or(row.last_prompt.take());
                row.held_prompts = finished.held_prompts.unwrap_or_default();
            }
            Record::InboxWithdrawn(InboxWithdrawn { rest: Some(rest), .. }) => {
                row.held_prompts = rest.held_prompts;
                row.last_prompt = rest.last_prompt.clone();
            }
            // What was asked is forgotten; what waits in the inbox since is told by the end of its turn.
            Record::ContextReset(ContextReset { from: Some(_), .. }) => row.last_prompt = None,
            Record::SessionForked(forked) => {
                row.created_at = at;
                row.mode = Some(forked.mode);
                row.last_outcome = None;
                row.archived = false;
                row.held_prompts = 0;
            }
            Record::SessionArchived(archived) => row.archived = archived.archived,
            Record::SessionImported(imported) => {
                row.mode = Some(imported.mode);
                row.held_prompts = 0;
            }
            _ => {}
        }
        self.texts.extend(text(seq, at, record));
    }
}

/// What is kept of a record for the search. Of a text that lies in a blob that is its beginning and its end.
#[must_use]
pub fn text(seq: Seq, at: Timestamp, record: &Record) -> Option<Text> {
    let (role, text) = match record {
        Record::Created(created) => (SearchRole::Title, created.title.clone()?),
        Record::TitleChanged(changed) => (SearchRole::Title, changed.title.clone()),
        Record::ContextAdded(added) if added.source == Source::Prompt => {
            (SearchRole::User, ends(&added.text))
        }
        Record::Replied(replied) => (SearchRole::Assistant, ends(&replied.text)),
        _ => return None,
    };
    Text::new(seq, at, role, &text)
}

fn ends(body: &Body) -> String {
    match body {
        Body::Inline(text) => text.clone(),
        Body::Blob { head, tail, .. } => format!("{head} … {tail}"),
    }
}

/// A session that is not in memory does nothing: those that did something are loaded at start.
pub(crate) fn first_row(created: &Created, at: Timestamp) -> Row {
    Row {
        session_id: created.session_id,
        handle: created.handle.clone(),
        title: created.title.clone(),
        parent: created.parent.as_ref().map(|parent| parent.session_id),
        cwd: created.cwd.display().to_string(),
        mode: Some(created.mode),
        model: created.model.clone(),
        created_at: at,
        updated_at: at,
        activity: Activity::Idle,
        waiting_for: Vec::new(),
        last_outcome: None,
        health: Health::Ok,
        archived: false,
        last_prompt: None,
        held_prompts: 0,
    }
}
