//! What a turn changed on disk, commands included: the daemon keeps the work tree from both ends of a turn.

use std::path::Path;
use std::time::Duration;

use agentd_protocol::changes::{self, ChangesParams, ChangesResult, DeltaKind, FileDelta, Span, TurnRef};
use agentd_protocol::method;

use super::Watch;
use crate::cli::follow::Finished;
use crate::render::diff;
use crate::render::line::{Changed, Seen};

/// The end of a turn does not wait longer for it.
const PATIENCE: Duration = Duration::from_secs(5);

impl Watch {
    /// Asks what the turn changed, if tools do not tell it all. Where that cannot be had, what they tell stays.
    pub(super) async fn look_at_changes(&self, finished: &mut Finished) {
        let Some(turn) = finished.turn.filter(|_| finished.seen == Seen::Unknown) else { return };
        let params = ChangesParams {
            session_id: self.target.session,
            span: Span { turn: Some(TurnRef::Id(turn)), ..Span::default() },
            paths: Vec::new(),
            stat: true,
        };
        let asked = self.client.call::<method::SessionChanges>(params);
        if let Ok(Ok(changes)) = tokio::time::timeout(PATIENCE, asked).await {
            take(changes, finished);
        }
    }
}

fn take(changes: ChangesResult, finished: &mut Finished) {
    if changes.seen == changes::Seen::Tools {
        finished.seen = Seen::ToolsOnly;
        return;
    }
    finished.seen = Seen::Whole;
    finished.files = changes
        .files
        .iter()
        .map(|file| (Path::new(&changes.root).join(&file.path).display().to_string(), changed(file)))
        .collect();
}

fn changed(file: &FileDelta) -> Changed {
    let counted = file.added + file.removed > 0;
    Changed {
        added: file.added,
        removed: file.removed,
        gone: file.kind == DeltaKind::Deleted,
        what: (!counted).then(|| diff::what(file)),
    }
}
