//! A session's state as it was at some commit, kept beside its journal so that loading folds only what came after. A cache:
//! without it, or if anything about it is not as expected, the whole journal is folded.

use agentd_protocol::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::actor::Session;
use super::record::Created;
use super::state::SessionState;
use crate::ids::{Digest, digest_of};
use crate::journal::{Beginning, Mark};

/// What the fold makes of a journal. Raised whenever [`SessionState`] or `apply` changes, else an old checkpoint would
/// be taken for the new fold's; a test watches over it.
pub(super) const FOLD: u32 = 9;

/// Bytes of journal that are worth a checkpoint: never fewer than these, and twice what the last one had, so that writing
/// them stays a small part of all writing.
const WORTH: u64 = 256 * 1024;

/// How far the checkpoint of a session has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Bytes of journal that it stands for.
    pub journal: u64,
    /// Its own.
    pub size: u64,
}

impl Kept {
    fn is_worth(self, journal: u64) -> bool {
        journal >= self.journal + WORTH.max(2 * self.size)
    }
}

#[derive(Serialize, Deserialize)]
struct Checkpoint<'a> {
    fold: u32,
    mark: Mark,
    state: std::borrow::Cow<'a, SessionState>,
}

/// The file: a checkpoint, and the digest of its text.
#[derive(Serialize, Deserialize)]
struct Sealed<'a> {
    digest: Digest,
    #[serde(borrow)]
    checkpoint: &'a RawValue,
}

/// The state to go on from, if what was kept is a checkpoint of this fold that fits the journal.
pub(super) fn begin(beginning: &Beginning<'_>) -> Option<(Mark, SessionState, Kept)> {
    let kept = beginning.kept.as_deref()?;
    let sealed: Sealed<'_> = serde_json::from_slice(kept).ok()?;
    let text = sealed.checkpoint.get();
    if digest_of(text.as_bytes()) != sealed.digest {
        return None;
    }
    let Checkpoint { fold, mark, state } = serde_json::from_str(text).ok()?;
    let usable = fold == FOLD && state.head == mark.head() && beginning.fits(&mark);
    let kept = Kept { journal: mark.bytes(), size: kept.len() as u64 };
    usable.then(|| (mark, state.into_owned(), kept))
}

/// What a checkpoint of any fold tells of a session's beginning.
#[derive(Deserialize)]
struct OfAnyFold {
    state: Begun,
}

#[derive(Deserialize)]
struct Begun {
    created: Created,
    created_at: Timestamp,
}

/// How the session began, for a journal whose first line was damaged: what all later lines build on stands only there.
pub(super) fn beginning(beginning: &Beginning<'_>) -> Option<(Created, Timestamp)> {
    let sealed: Sealed<'_> = serde_json::from_slice(beginning.kept.as_deref()?).ok()?;
    let text = sealed.checkpoint.get();
    if digest_of(text.as_bytes()) != sealed.digest {
        return None;
    }
    let OfAnyFold { state } = serde_json::from_str(text).ok()?;
    Some((state.created, state.created_at))
}

/// Absent if the state holds what JSON cannot say, such as a path that is not UTF-8.
pub(super) fn seal(mark: Mark, state: &SessionState) -> Option<Vec<u8>> {
    let checkpoint = Checkpoint { fold: FOLD, mark, state: std::borrow::Cow::Borrowed(state) };
    let checkpoint = serde_json::value::to_raw_value(&checkpoint).ok()?;
    let digest = digest_of(checkpoint.get().as_bytes());
    serde_json::to_vec(&Sealed { digest, checkpoint: &checkpoint }).ok()
}

impl Session {
    /// Keeps a checkpoint if enough has been journaled since the last one. A failure costs time at the next load.
    pub(super) async fn keep_checkpoint(&mut self) {
        if self.kept.is_worth(self.journal.bytes()) {
            self.keep_now().await;
        }
    }

    /// As the session leaves memory: even a short one has its beginning in two places from then on.
    pub(super) async fn keep_at_rest(&mut self) {
        if self.kept == Kept::default() || self.kept.is_worth(self.journal.bytes()) {
            self.keep_now().await;
        }
    }

    async fn keep_now(&mut self) {
        if self.state.read_only.is_some() {
            return;
        }
        let Ok(Some(mark)) = self.journal.mark().await else { return };
        // Nothing is appended meanwhile: this task is the only one that does.
        let (journal, state) = (mark.bytes(), self.state.clone());
        if mark.head() != state.head {
            return;
        }
        let Some(content) = super::blocking(move || seal(mark, &state)).await else { return };
        let dir = self.deps.paths.session_dir(self.state.id());
        let size = content.len() as u64;
        match self.deps.journals.keep_beside(dir, content).await {
            Ok(()) => self.kept = Kept { journal, size },
            Err(error) => {
                tracing::warn!(session = %self.state.id(), %error, "no checkpoint was kept");
            }
        }
    }
}
