//! `session/history`: reading back, whether the session is in memory or not. One that is not stays out of it, so that
//! looking at a session never makes it do anything.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use agentd_protocol::Seq;
use agentd_protocol::history::{DEFAULT_EVENTS, HistoryParams, HistoryResult, MAX_EVENTS};
use serde_json::value::RawValue;

use super::Registry;
use crate::ids::SessionId;
use crate::journal::{JournalError, Mark};
use crate::session::error::Changed;
use crate::session::history::{Past, Wanted, backward, forward};
use crate::session::{SessionError, blocking, look};

/// Sessions of which it is remembered how far their journals were looked through.
const REMEMBERED: usize = 16;

/// How far journals were looked through, the newest last: the next page of a long one need not begin at its start.
#[derive(Default)]
pub(super) struct Looked(Mutex<VecDeque<(SessionId, Mark)>>);

impl Looked {
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(SessionId, Mark)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, id: SessionId) -> Option<Mark> {
        self.lock().iter().find(|(known, _)| *known == id).map(|(_, mark)| mark.clone())
    }

    fn keep(&self, id: SessionId, mark: Mark) {
        let mut looked = self.lock();
        looked.retain(|(known, _)| *known != id);
        looked.push_back((id, mark));
        if looked.len() > REMEMBERED {
            looked.pop_front();
        }
    }

    pub(super) fn forget(&self, id: SessionId) {
        self.lock().retain(|(known, _)| *known != id);
    }
}

impl Registry {
    /// A page of a session's events.
    ///
    /// # Errors
    /// There is no such session, `afterSeq` is beyond its head, or the journal cannot be read.
    pub async fn history(self: &Arc<Self>, params: HistoryParams) -> Result<HistoryResult, SessionError> {
        let (past, head) = self.past(params.session_id).await?;
        if params.after_seq.is_some_and(|after| after > head) {
            return Err(SessionError::BeyondHead { head });
        }
        let end = Seq(head.0.saturating_add(1));
        let limit = params.limit.unwrap_or(DEFAULT_EVENTS).clamp(1, MAX_EVENTS);
        let wanted = Wanted {
            after: params.after_seq.unwrap_or_default(),
            before: params.before_seq.unwrap_or(end).min(end),
            types: params.types,
            limit: limit as usize,
        };
        let page = if params.after_seq.is_some() {
            forward(&past, &wanted).await
        } else {
            backward(&past, &wanted).await
        };
        let page = page.map_err(unreadable)?;
        let next = page.next;
        let events = blocking(move || {
            let raw = |json: &str| RawValue::from_string(json.to_owned());
            page.events.iter().map(|event| raw(&event.json)).collect::<Result<Vec<_>, _>>()
        })
        .await
        .map_err(|error| unreadable_because(error.to_string()))?;
        Ok(HistoryResult { events, head, more: next.is_some(), next })
    }

    /// Where to read, and the number of the last record that counts.
    async fn past(self: &Arc<Self>, id: SessionId) -> Result<(Past, Seq), SessionError> {
        if !self.is_live(id) {
            let looked = self.look_at(id).await;
            // Whoever took it into memory meanwhile writes to it.
            if !self.is_live(id) {
                return looked;
            }
        }
        let snapshot = self.snapshot(id).await?;
        Ok((Past { session: id, reader: snapshot.reader, blobs: snapshot.blobs }, snapshot.head))
    }

    async fn look_at(&self, id: SessionId) -> Result<(Past, Seq), SessionError> {
        let known = self.looked.get(id);
        let known_head = known.as_ref().map(Mark::head);
        let reader = look(&self.deps, id, known).await?;
        let head = reader.head();
        if known_head != Some(head)
            && let Some(mark) = reader.mark().await.map_err(unreadable)?
        {
            self.looked.keep(id, mark);
        }
        let blobs = self.deps.journals.blobs(&self.deps.paths.session_dir(id));
        Ok((Past { session: id, reader, blobs }, head))
    }

    pub(super) fn is_live(&self, id: SessionId) -> bool {
        self.entries.get(&id).is_some_and(|entry| entry.is_live())
    }
}

fn unreadable(error: JournalError) -> SessionError {
    unreadable_because(format!("{:#}", anyhow::Error::new(error)))
}

fn unreadable_because(message: String) -> SessionError {
    SessionError::Storage { message, changed: Changed::No }
}
