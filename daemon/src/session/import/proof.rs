//! What is looked at before a bundle is believed: that its journal is whole, says what its list says, and has the texts that
//! it names. An export asks the same of what it has written, before it gives a session away with it.

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::super::blocking;
use super::super::command::Snapshot;
use super::super::deps::Deps;
use super::super::error::SessionError;
use super::super::heir::{created, made_out, rests, unstored};
use super::super::load::Fold;
use super::super::record::{Created, FORMAT};
use super::super::state::SessionState;
use crate::ids::{Digest, Seq, SessionId, digest_of};
use crate::journal::bundle::About;
use crate::journal::{Commit, Damage, Journal, JournalReader};

/// Characters of a handle, as agentd makes them.
const MAX_HANDLE: usize = 64;
const MAX_TITLE: usize = 200;

/// Numbers of owners stay below what a double holds exactly.
const MAX_EPOCH: u64 = 1 << 53;

/// Bytes of journal that are read at a time.
const PAGE: u64 = 1024 * 1024;

/// Why a bundle is not believed.
pub enum Doubt {
    /// It is not what it should be.
    Not(String),
    /// It could not be looked at.
    Failed(SessionError),
}

impl Doubt {
    /// For whoever named the bundle.
    pub(super) fn of(self, bundle: &str) -> SessionError {
        match self {
            Doubt::Not(why) => {
                SessionError::invalid("path", format!("{bundle} is not to be taken in: {why}"))
            }
            Doubt::Failed(error) => error,
        }
    }
}

impl From<SessionError> for Doubt {
    fn from(error: SessionError) -> Self {
        Doubt::Failed(error)
    }
}

/// An unpacked journal that was looked through.
pub(super) struct Unpacked {
    pub(super) journal: Journal,
    pub(super) first: Commit,
    pub(super) state: SessionState,
}

/// Whether a bundle that was just written would be taken in: unpacked beside the sessions, looked at as an import does,
/// and thrown away.
pub async fn would_be_taken(deps: &Arc<Deps>, bundle: &Path) -> Result<(), Doubt> {
    let not =
        |error: crate::journal::bundle::BundleError| Doubt::Not(format!("{:#}", anyhow::Error::new(error)));
    let bundle = deps.journals.open_bundle(bundle.to_owned()).await.map_err(not)?;
    let place = deps.paths.session_dir(SessionId::generate());
    let (staged, plan) = deps.journals.unpack(&bundle, place).await.map_err(not)?;
    let about = &bundle.manifest().about;
    let proven = match of(deps, about, &staged, plan.as_deref()).await {
        Ok(unpacked) => has_its_texts(&unpacked).await,
        Err(doubt) => Err(doubt),
    };
    if let Err(error) = deps.journals.unstage(staged).await {
        tracing::warn!(%error, "an unpacked bundle was left behind until the next start");
    }
    proven
}

/// Reads an unpacked bundle, and finds it to be what its list says.
pub(super) async fn of(
    deps: &Arc<Deps>,
    about: &About,
    staged: &Path,
    plan: Option<&[u8]>,
) -> Result<Unpacked, Doubt> {
    let unpacked = read(deps, staged).await?;
    check(about, &unpacked.state, plan)?;
    Ok(unpacked)
}

/// Reads a journal as it is read when a session is loaded, and refuses what a whole one has not.
pub(super) async fn read(deps: &Arc<Deps>, staged: &Path) -> Result<Unpacked, Doubt> {
    let not = |why: &str| Err(Doubt::Not(why.to_owned()));
    let (journal, damage, fold, first) = open(deps, staged).await?;
    if let Some(reason) = damage.read_only {
        return not(&reason);
    }
    if damage.torn.is_some() {
        return not("its journal ends in the middle of a line");
    }
    if let Some(what) = fold.unknown_must {
        return not(&format!(
            "it holds {what}, which this version of agentd must not pass over; upgrade agentd"
        ));
    }
    match (fold.state, first) {
        (Some(mut state), Some(first)) => {
            // Records that this version passes over count, too.
            state.head = Seq(journal.next_seq().0 - 1);
            Ok(Unpacked { journal, first, state })
        }
        _ => not("its journal has no readable beginning"),
    }
}

async fn open(
    deps: &Arc<Deps>,
    staged: &Path,
) -> Result<(Journal, Damage, Fold, Option<Commit>), SessionError> {
    let each = |(fold, first): &mut (Fold, Option<Commit>), commit: Commit| {
        fold.add(&commit);
        first.get_or_insert(commit);
    };
    let (journal, damage, (fold, first)) =
        deps.journals.open_each(staged, (Fold::default(), None), each).await.map_err(unstored)?;
    Ok((journal, damage, fold, first))
}

/// Whether the journal is what the list says, and a session that agentd could have left so.
fn check(about: &About, state: &SessionState, plan: Option<&[u8]>) -> Result<(), Doubt> {
    let created = &state.created;
    let handle = &created.handle;
    let handle_is_ours = (1..=MAX_HANDLE).contains(&handle.len())
        && handle.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let title_fits = state.title.as_ref().is_none_or(|title| title.chars().count() <= MAX_TITLE);
    let plan_is_journaled = match (&state.plan, plan) {
        (None, None) => true,
        (Some(known), Some(content)) => match known.revision {
            Some(revision) => revision == digest_of(content),
            None => content.is_empty(),
        },
        _ => false,
    };
    let rules = [
        (created.format <= FORMAT, "a newer agentd wrote its journal; upgrade agentd"),
        (state.id() == about.session_id, "its journal is another session's"),
        (state.head == about.seq && about.seq > Seq(0), "its journal does not end where it says"),
        (state.owner_epoch == about.owner_epoch, "its journal tells of another owner"),
        (about.owner_epoch < MAX_EPOCH, "its journal tells of another owner"),
        (handle_is_ours && title_fits, "its session has a name that agentd does not give"),
        (plan_is_journaled, "its plan is not the one that its journal tells of"),
    ];
    let handed = state.handed_over.as_ref().is_some_and(|handed| handed.seq == state.head);
    let at_rest = state.turn.is_none() && state.asked().next().is_none() && state.inbox.is_empty();
    let rests = match about.copy {
        true => (rests(state), "a call is open where it ends"),
        false => (
            handed && at_rest && state.mode == about.mode,
            "its journal does not say that it was handed over",
        ),
    };
    match rules.into_iter().chain([rests]).find(|(holds, _)| !holds) {
        None => Ok(()),
        Some((_, why)) => Err(Doubt::Not(why.to_owned())),
    }
}

/// Whether a bundle goes on from what was handed over here: the same commits up to the one that gave it away, but for the
/// folder that the first one names. A higher number of owners alone proves nothing.
pub(super) async fn goes_on(source: &Snapshot, unpacked: &Unpacked) -> Result<(), SessionError> {
    let upto = source.ownership.handed_over.as_ref().map_or(source.head, |handed| handed.seq);
    let (ours, theirs) = (past(&source.reader, upto).await?, past(&unpacked.journal.reader(), upto).await?);
    if ours == theirs { Ok(()) } else { Err(not_from_here(source)) }
}

/// The digest of all commits up to a number, whatever folder the first one names; absent if that is the end of none.
async fn past(reader: &JournalReader, upto: Seq) -> Result<Option<Digest>, SessionError> {
    let mut sum = Sha256::new();
    let mut after = Seq(0);
    loop {
        let commits = reader.commits_after(after, PAGE).await.map_err(unstored)?;
        let Some(last) = commits.last().map(Commit::last) else { return Ok(None) };
        sum = blocking(move || {
            for commit in commits.iter().take_while(|commit| commit.last() <= upto) {
                let records = match commit.seq {
                    Seq(1) => {
                        made_out(commit, Created { cwd: std::path::PathBuf::new(), ..created(commit)? })
                    }
                    _ => commit.records.clone(),
                };
                sum.update(format!("{} {}", commit.seq.0, commit.at));
                records
                    .iter()
                    .for_each(|record| sum.update(format!("{} {}", record.get().len(), record.get())));
                after = commit.last();
            }
            Ok::<_, SessionError>((sum, after))
        })
        .await
        .map(|(sum, read)| {
            after = read;
            sum
        })?;
        if last >= upto {
            return Ok((after == upto).then(|| Digest::from_bytes(sum.finalize().into())));
        }
    }
}

fn not_from_here(source: &Snapshot) -> SessionError {
    SessionError::Conflict(format!(
        "this session is here as {}, and the bundle does not go on from what was handed over; nothing was changed",
        source.state.handle
    ))
}

/// A session brings along what its turns need.
pub(super) async fn has_its_texts(unpacked: &Unpacked) -> Result<(), Doubt> {
    let named = super::super::export::texts(&unpacked.journal.reader(), unpacked.state.head).await?;
    for text in named {
        if !unpacked.journal.blobs().has(text).await.map_err(unstored)? {
            return Err(Doubt::Not(format!("its journal names a text that is not in it, {text}")));
        }
    }
    Ok(())
}
