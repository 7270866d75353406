//! What was told last of each session in memory: so that nothing is told twice, and who was away is told the latest.

use std::collections::HashMap;

use agentd_protocol::approval::Approval;
use agentd_protocol::event::EventBody;
use agentd_protocol::session::Activity;
use agentd_protocol::{ApprovalId, FeedSeq};

use crate::ids::{Digest, SessionId};
use crate::session::feed::WireEvent;

#[derive(Default)]
pub(super) struct Known(HashMap<SessionId, Doing>);

struct Doing {
    activity: Activity,
    status: EventBody,
    told: (FeedSeq, WireEvent),
    asks: Vec<(Asked, (FeedSeq, WireEvent))>,
}

/// An approval, and what it asks.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Asked {
    id: ApprovalId,
    digest: Digest,
}

impl Asked {
    fn of(approval: &Approval) -> Self {
        Self { id: approval.approval_id.clone(), digest: approval.digest }
    }
}

impl Known {
    pub(super) fn is_doing(&self, id: SessionId, status: &EventBody) -> bool {
        self.0.get(&id).is_some_and(|known| known.status == *status)
    }

    /// The approvals that were not told yet, or ask something else now.
    pub(super) fn unasked(&self, id: SessionId, approvals: &[Approval]) -> Vec<(Asked, EventBody)> {
        let told = self.0.get(&id).map_or(&[][..], |known| &known.asks);
        let mut news = Vec::new();
        for approval in approvals {
            let asked = Asked::of(approval);
            match told.iter().find(|(known, _)| known.id == asked.id) {
                Some((known, _)) if *known == asked => {}
                Some(_) => news.push((asked, EventBody::ApprovalChanged(approval.clone()))),
                None => news.push((asked, EventBody::ApprovalRequested(approval.clone()))),
            }
        }
        news
    }

    pub(super) fn does(
        &mut self,
        id: SessionId,
        activity: Activity,
        status: EventBody,
        told: (FeedSeq, WireEvent),
    ) {
        let asks = self.0.remove(&id).map(|known| known.asks).unwrap_or_default();
        self.0.insert(id, Doing { activity, status, told, asks });
    }

    /// Forgets approvals that do not wait any more.
    pub(super) fn asks_only(&mut self, id: SessionId, approvals: &[Approval]) {
        if let Some(known) = self.0.get_mut(&id) {
            known.asks.retain(|(asked, _)| approvals.iter().any(|approval| approval.approval_id == asked.id));
        }
    }

    pub(super) fn asks(&mut self, id: SessionId, asked: Asked, told: (FeedSeq, WireEvent)) {
        if let Some(known) = self.0.get_mut(&id) {
            known.asks.retain(|(known, _)| known.id != asked.id);
            known.asks.push((asked, told));
        }
    }

    pub(super) fn forget(&mut self, id: SessionId) {
        self.0.remove(&id);
    }

    /// The latest of each with numbers after `after`, up to `until`.
    pub(super) fn between(
        &self,
        after: FeedSeq,
        until: FeedSeq,
    ) -> impl Iterator<Item = &(FeedSeq, WireEvent)> {
        self.0
            .values()
            .flat_map(|known| std::iter::once(&known.told).chain(known.asks.iter().map(|(_, told)| told)))
            .filter(move |(number, _)| *number > after && *number <= until)
    }

    /// The sessions that are not idle.
    pub(super) fn busy(&self) -> Vec<SessionId> {
        let busy = self.0.iter().filter(|(_, known)| known.activity != Activity::Idle);
        let mut ids: Vec<_> = busy.map(|(id, _)| *id).collect();
        ids.sort();
        ids
    }

    /// The approvals that wait, by session and in each as they came.
    pub(super) fn waiting(&self) -> Vec<ApprovalId> {
        let mut sessions: Vec<_> = self.0.iter().collect();
        sessions.sort_by_key(|(id, _)| **id);
        sessions.iter().flat_map(|(_, known)| known.asks.iter().map(|(asked, _)| asked.id.clone())).collect()
    }
}
