//! Lists of sessions: those in memory by their rows, the others by the first and last line of their journals.

use std::sync::Arc;

use agentd_protocol::session::{Activity, Health, ListParams, ListResult, Order, Row};

use super::Registry;
use crate::ids::SessionId;
use crate::journal::Commit;
use crate::session::record::{Parsed, Record};
use crate::session::{SessionError, blocking};

/// Rows in one answer.
const MAX_ROWS: u32 = 500;

impl Registry {
    /// # Errors
    /// The sessions' folder cannot be read.
    pub async fn list(self: &Arc<Self>, params: &ListParams) -> Result<ListResult, SessionError> {
        // A session that waits for a person shows as such from the first list on.
        self.resumed.cancelled().await;
        let limit = params.limit.unwrap_or(MAX_ROWS).clamp(1, MAX_ROWS) as usize;
        let paths = Arc::clone(&self.deps.paths);
        let mut ids = blocking(move || paths.session_ids()).await.map_err(|error| SessionError::Storage {
            message: format!("{:#}", anyhow::Error::new(error)),
            changed: crate::session::error::Changed::No,
        })?;
        ids.sort();
        if params.order == Order::Created
            && let Some(after) = params.after
        {
            ids.retain(|id| *id > after);
        }
        let mut rows = Vec::new();
        let mut next = None;
        for id in ids {
            let Some(row) = self.row(id).await else { continue };
            if !wanted(&row, params) {
                continue;
            }
            if params.order == Order::Created && rows.len() == limit {
                next = rows.last().map(|row: &Row| row.session_id);
                break;
            }
            rows.push(row);
        }
        if params.order == Order::Updated {
            rows.sort_by_key(|row| std::cmp::Reverse((row.updated_at, row.session_id)));
            rows.truncate(limit);
        }
        Ok(ListResult { sessions: rows, next })
    }

    async fn row(&self, id: SessionId) -> Option<Row> {
        let live = self.rows().get(&id).map(|(row, _)| row.clone());
        if live.is_some() {
            return live;
        }
        let ends = self.deps.journals.first_and_last_line(self.deps.paths.session_dir(id)).await.ok()?;
        cold_row(id, ends.first.as_ref()?, ends.last.as_ref())
    }
}

fn wanted(row: &Row, params: &ListParams) -> bool {
    let text = params.text.as_ref().map(|text| text.to_lowercase());
    (params.children || row.parent.is_none())
        && (params.archived || !row.archived)
        && params.cwd.as_ref().is_none_or(|cwd| *cwd == row.cwd)
        && params.activity.is_none_or(|activity| activity == row.activity)
        && text.is_none_or(|text| {
            row.handle.to_lowercase().contains(&text)
                || row.title.as_ref().is_some_and(|title| title.to_lowercase().contains(&text))
        })
}

/// A session that is not in memory is idle: those that are not are loaded at start.
fn cold_row(id: SessionId, first: &Commit, last: Option<&Commit>) -> Option<Row> {
    let Parsed::Known { record, .. } = Record::parse(first.records.first()?) else { return None };
    let Record::Created(created) = *record else { return None };
    let mut row = Row {
        session_id: id,
        handle: created.handle,
        title: created.title,
        parent: created.parent.map(|parent| parent.session_id),
        cwd: created.cwd.display().to_string(),
        mode: None,
        model: created.model,
        created_at: first.at,
        updated_at: last.map_or(first.at, |last| last.at),
        activity: Activity::Idle,
        waiting_for: Vec::new(),
        last_outcome: None,
        health: Health::Ok,
        archived: false,
        last_prompt: None,
        held_prompts: 0,
    };
    for raw in last.map_or(&first.records, |last| &last.records) {
        match Record::parse(raw) {
            Parsed::Known { record, .. } => match *record {
                Record::TurnFinished(finished) => {
                    row.last_outcome = Some(finished.outcome);
                    row.mode = Some(finished.mode);
                    row.last_prompt = finished.last_prompt;
                    row.held_prompts = finished.held_prompts.unwrap_or_default();
                }
                Record::InboxWithdrawn(withdrawn) => {
                    if let Some(rest) = withdrawn.rest {
                        row.mode = Some(rest.mode);
                        row.last_outcome = rest.last_outcome;
                        row.last_prompt = rest.last_prompt;
                        row.held_prompts = rest.held_prompts;
                    }
                }
                Record::TreeKept(kept) => {
                    row.last_outcome = kept.outcome;
                    row.mode = Some(kept.mode);
                }
                Record::ModeChanged(changed) => row.mode = Some(changed.to),
                Record::TitleChanged(changed) => row.title = Some(changed.title),
                Record::SessionArchived(archived) => row.archived = archived.archived,
                Record::SessionForked(forked) => row.mode = Some(forked.mode),
                Record::Created(created) => row.mode = Some(created.mode),
                _ => {}
            },
            Parsed::Unknown { .. } => {}
        }
    }
    Some(row)
}
