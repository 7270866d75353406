//! Loading a session: its journal folded into a state.

use std::path::PathBuf;
use std::sync::Arc;

use agentd_protocol::Timestamp;

use super::checkpoint::Kept;
use super::commit::storage;
use super::deps::Deps;
use super::error::SessionError;
use super::record::{Created, Parsed, Record};
use super::state::SessionState;
use crate::ids::{Seq, SessionId};
use crate::journal::{Beginning, Commit, Damage, Journal, JournalReader, JournalService, Mark};

pub struct Loaded {
    pub state: SessionState,
    pub journal: Journal,
    /// The checkpoint that it was loaded from.
    pub kept: Kept,
    /// What people should know about the journal.
    pub notices: Vec<String>,
}

/// # Errors
/// There is no such session, or its journal cannot be opened.
pub async fn load(deps: &Arc<Deps>, id: SessionId) -> Result<Loaded, SessionError> {
    load_from(&deps.journals, deps.paths.session_dir(id), id).await
}

/// As [`load`], from this folder.
pub(super) async fn load_from(
    journals: &Arc<JournalService>,
    dir: PathBuf,
    id: SessionId,
) -> Result<Loaded, SessionError> {
    let begin = |beginning: Beginning<'_>| match super::checkpoint::begin(&beginning) {
        Some((mark, state, kept)) => (Some(mark), Fold { state: Some(state), kept, ..Fold::default() }),
        None => (None, Fold { spare: super::checkpoint::beginning(&beginning), ..Fold::default() }),
    };
    let (journal, damage, fold) = journals
        .open_from(&dir, begin, |fold: &mut Fold, commit| fold.add(&commit))
        .await
        .map_err(|error| match error {
            crate::journal::JournalError::Missing { .. } => SessionError::NotFound("session"),
            error => storage(format!("{:#}", anyhow::Error::new(error))),
        })?;
    let nothing_begun = damage.is_none() || damage.is_only_unfinished();
    if fold.state.is_none() && journal.next_seq() == Seq(1) && nothing_begun {
        // The daemon died before the end of the first commit: nobody was ever told of this session.
        return Err(SessionError::NotFound("session"));
    }
    let Some(mut state) = fold.state else {
        return Err(storage(format!(
            "the journal in {} has no readable beginning, and nothing else says how the session began. Its other lines are \
             there; with the first line from a backup it goes on. To remove it: agentctl rm {id}",
            dir.display()
        )));
    };
    if state.id() != id {
        return Err(storage(format!("the journal in {} belongs to session {}", dir.display(), state.id())));
    }
    if let Some(what) = fold.unknown_must {
        state.read_only =
            Some(format!("it holds {what}, which this version of agentd must not pass over; upgrade agentd"));
    }
    if let Some(reason) = journal.read_only().or_else(|| damage.read_only.clone()) {
        state.read_only = Some(reason);
    }
    // Numbers that the file has and the fold could not use still count: the next record comes after them.
    state.head = Seq(journal.next_seq().0 - 1);
    let mut notices = notices(&damage);
    if fold.mended {
        notices.push("how the session began was taken from its checkpoint".into());
    } else if fold.kept != Kept::default()
        && journals.first_and_last_line(&dir).await.is_ok_and(|ends| ends.first.is_none())
    {
        notices.push(
            "line 1 of the journal cannot be read; the checkpoint has what it said, and the session cannot be forked or \
             handed over"
                .into(),
        );
    }
    Ok(Loaded { state, journal, kept: fold.kept, notices })
}

/// A reader of the journal of a session that is not in memory. The session stays out of it: nothing is folded, closed or
/// taken up again. `known` is how far an earlier look came.
///
/// # Errors
/// There is no such session, or its journal cannot be read.
pub async fn look(deps: &Deps, id: SessionId, known: Option<Mark>) -> Result<JournalReader, SessionError> {
    let dir = deps.paths.session_dir(id);
    let begin = |beginning: Beginning<'_>| super::checkpoint::begin(&beginning).map(|(mark, ..)| mark);
    let reader = deps.journals.look(&dir, known, begin).await.map_err(|error| match error {
        crate::journal::JournalError::Missing { .. } => SessionError::NotFound("session"),
        error => storage(format!("{:#}", anyhow::Error::new(error))),
    })?;
    // The daemon died before the first commit: nobody was ever told of this session.
    if reader.head() == Seq(0) { Err(SessionError::NotFound("session")) } else { Ok(reader) }
}

/// A journal's commits on their way into a state.
#[derive(Default)]
pub(super) struct Fold {
    pub(super) state: Option<SessionState>,
    /// What this build must not pass over.
    pub(super) unknown_must: Option<String>,
    kept: Kept,
    /// How the session began, should its first line not say so.
    spare: Option<(Created, Timestamp)>,
    /// Whether that was needed.
    mended: bool,
}

impl Fold {
    pub(super) fn add(&mut self, commit: &Commit) {
        if self.state.is_none()
            && commit.seq > Seq(1)
            && let Some((created, at)) = self.spare.take()
        {
            self.state = Some(SessionState::new(created, Seq(1), at));
            self.mended = true;
        }
        for (index, (seq, raw)) in (0u32..).zip(commit.numbered()) {
            match Record::parse(raw) {
                Parsed::Known { record, .. } => match (&mut self.state, *record) {
                    (None, Record::Created(created)) => {
                        self.state = Some(SessionState::new(created, seq, commit.at));
                    }
                    (Some(state), record) => state.apply(seq, commit.at, commit.place.record(index), &record),
                    (None, _) => {}
                },
                Parsed::Unknown { must: true } => {
                    self.unknown_must.get_or_insert_with(|| format!("record {seq}"));
                }
                Parsed::Unknown { must: false } => {}
            }
        }
    }
}

fn notices(damage: &Damage) -> Vec<String> {
    let mut notices = Vec::new();
    if let Some(torn) = &damage.torn {
        let kept =
            torn.kept_at.as_ref().map(|path| format!("; kept at {}", path.display())).unwrap_or_default();
        notices.push(format!("an unfinished last line of {} bytes was set aside{kept}", torn.bytes));
    }
    for bad in &damage.bad_lines {
        notices.push(format!("line {} of the journal cannot be read and was skipped", bad.number));
    }
    for (first, last) in &damage.missing {
        notices.push(format!("records {first} to {last} are missing from the journal"));
    }
    notices
}
