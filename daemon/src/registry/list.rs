//! Lists of sessions: those in memory by their rows, the others by the index. Where the index does not know a session, and
//! as long as it does not know all, by the first and last line of the journals.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use agentd_protocol::session::{Activity, ListParams, ListResult, Order, Row};

use super::Registry;
use crate::ids::SessionId;
use crate::journal::{Commit, Reach};
use crate::session::outline::first_row;
use crate::session::record::{Parsed, Record};
use crate::session::{SessionError, blocking};
use crate::store::{self, Standing};

/// Rows in one answer.
const MAX_ROWS: u32 = 500;

/// What the index knows of sessions.
type Known = HashMap<SessionId, (Row, Reach)>;

impl Registry {
    /// # Errors
    /// The sessions' folder cannot be read.
    pub async fn list(self: &Arc<Self>, params: &ListParams) -> Result<ListResult, SessionError> {
        // A session that waits for a person shows as such from the first list on.
        self.resumed.cancelled().await;
        self.want_index();
        match self.list_by_index(params).await {
            Some(list) => Ok(list),
            None => self.list_by_journals(params).await,
        }
    }

    /// `None`: the index does not know all sessions, or is not at hand.
    pub(super) async fn list_by_index(self: &Arc<Self>, params: &ListParams) -> Option<ListResult> {
        if self.store.standing() != Standing::Ready {
            return None;
        }
        // In this order: a session that leaves memory in between is in the second if it is not yet in the index.
        let mut over: HashMap<SessionId, Row> =
            self.rows().iter().map(|(id, (row, _))| (*id, row.clone())).collect();
        let unsettled = self.store.unsettled();
        for id in &unsettled {
            if !over.contains_key(id)
                && let Some(row) = self.row(*id, &Known::new()).await
            {
                over.insert(*id, row);
            }
        }
        let mut rows: Vec<Row> = over.values().filter(|row| wanted(row, params)).cloned().collect();
        // Sessions that are not in memory are idle.
        if params.activity.is_none_or(|activity| activity == Activity::Idle) {
            let hidden = over.into_keys().chain(unsettled).collect();
            let (registry, params) = (Arc::clone(self), params.clone());
            rows.extend(blocking(move || registry.indexed_rows(&params, &hidden)).await.ok()?);
        }
        Some(cut(rows, params))
    }

    /// One row more than fits an answer, so that it is known whether there is another page.
    fn indexed_rows(
        &self,
        params: &ListParams,
        hidden: &HashSet<SessionId>,
    ) -> Result<Vec<Row>, store::StoreError> {
        let cwd = params.cwd.as_deref();
        let order = match params.order {
            Order::Created => store::Order::Created { after: params.after, cwd },
            Order::Updated => store::Order::Updated { cwd },
        };
        let enough = limit(params) + 1;
        let mut rows = Vec::new();
        self.store.rows(&order, params.text.as_deref(), |row| {
            if !hidden.contains(&row.session_id) && wanted(&row, params) {
                rows.push(row);
            }
            if rows.len() < enough { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(rows)
    }

    pub(super) async fn list_by_journals(
        self: &Arc<Self>,
        params: &ListParams,
    ) -> Result<ListResult, SessionError> {
        let ids = self.session_ids().await?;
        let registry = Arc::clone(self);
        // What the index knows of a journal as long as it is now tells more than two lines do.
        let known = blocking(move || registry.store.known()).await.unwrap_or_default();
        let after = params.after.filter(|_| params.order == Order::Created);
        let mut rows = Vec::new();
        for id in ids.into_iter().filter(|id| after.is_none_or(|after| *id > after)) {
            let Some(row) = self.row(id, &known).await else { continue };
            if wanted(&row, params) {
                rows.push(row);
            }
            if params.order == Order::Created && rows.len() > limit(params) {
                break;
            }
        }
        Ok(cut(rows, params))
    }

    async fn row(&self, id: SessionId, known: &Known) -> Option<Row> {
        let live = self.rows().get(&id).map(|(row, _)| row.clone());
        if live.is_some() {
            return live;
        }
        let ends = self.deps.journals.first_and_last_line(self.deps.paths.session_dir(id)).await.ok()?;
        match known.get(&id) {
            Some((row, mark)) if mark.bytes == ends.bytes => Some(row.clone()),
            _ => cold_row(ends.first.as_ref()?, ends.last.as_ref()),
        }
    }
}

fn limit(params: &ListParams) -> usize {
    params.limit.unwrap_or(MAX_ROWS).clamp(1, MAX_ROWS) as usize
}

/// One answer of the rows that there are.
fn cut(mut rows: Vec<Row>, params: &ListParams) -> ListResult {
    let limit = limit(params);
    match params.order {
        Order::Created => rows.sort_by_key(|row| row.session_id),
        Order::Updated => rows.sort_by_key(|row| std::cmp::Reverse((row.updated_at, row.session_id))),
    }
    let more = params.order == Order::Created && rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().map(|row| row.session_id).filter(|_| more);
    ListResult { sessions: rows, next }
}

fn wanted(row: &Row, params: &ListParams) -> bool {
    let text = params.text.as_ref().map(|text| text.to_lowercase());
    let after = params.after.filter(|_| params.order == Order::Created);
    (params.children || row.parent.is_none())
        && (params.archived || !row.archived)
        && after.is_none_or(|after| row.session_id > after)
        && params.cwd.as_ref().is_none_or(|cwd| *cwd == row.cwd)
        && params.activity.is_none_or(|activity| activity == row.activity)
        && text.is_none_or(|text| {
            row.handle.to_lowercase().contains(&text)
                || row.title.as_ref().is_some_and(|title| title.to_lowercase().contains(&text))
        })
}

/// A session that is not in memory is idle: those that are not are loaded at start.
fn cold_row(first: &Commit, last: Option<&Commit>) -> Option<Row> {
    let Parsed::Known { record, .. } = Record::parse(first.records.first()?) else { return None };
    let Record::Created(created) = *record else { return None };
    let mut row = Row {
        mode: None,
        updated_at: last.map_or(first.at, |last| last.at),
        ..first_row(&created, first.at)
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
                Record::PlanEntered(_) => row.mode = Some(agentd_protocol::Mode::Plan),
                Record::TitleChanged(changed) => row.title = Some(changed.title),
                Record::SessionArchived(archived) => row.archived = archived.archived,
                Record::SessionForked(forked) => row.mode = Some(forked.mode),
                Record::SessionImported(imported) => row.mode = Some(imported.mode),
                Record::Created(created) => row.mode = Some(created.mode),
                _ => {}
            },
            Parsed::Unknown { .. } => {}
        }
    }
    Some(row)
}
