//! `session/changes` and `session/revert`: what a session did to the files, and taking it back.
//!
//! From snapshots of the work tree where there are some, else from what the tools themselves told. Worked out beside the
//! session's task, from a cut through it; only taking back is done inside it, since nothing may run meanwhile.

mod base;
mod chain;
mod doubts;
mod draw;
mod find;
mod revert;
mod span;
mod theirs;
mod tools;

use std::path::{Path, PathBuf};

use agentd_protocol::blob::BlobRef;
use agentd_protocol::changes::{ChangesParams, ChangesResult, DeltaKind, FileDelta, LeftOut, Seen};
use agentd_protocol::event::Text;

use super::SessionError;
use super::actor::Session;
use super::commit::storage;
use super::project::WIRE_INLINE_LIMIT;
use super::record::{Json, Parsed, Record, TreeKept};
use super::trees::{Tree, Trees};
use crate::ids::Digest;
use crate::journal::{Blobs, JournalReader};
use crate::workspace::snapshot::{
    self, Change, ChangeKind, Kept as Place, Mode, Since, SnapshotError, Snapshots, Why, path_text,
};
use draw::{Head, draw};
use find::Found;
use tools::{Broken, ToolDelta};

/// Files in one answer, and left-out ones: it is written out at once.
const MAX_FILES: usize = 500;
/// Bytes of a file that is compared.
const MAX_CONTENT: u64 = 4 << 20;
/// Bytes of all contents that are compared.
const MAX_CONTENTS: u64 = 64 << 20;
/// Bytes of diffs in one answer; further ones are blobs.
const MAX_INLINE: usize = 128 << 10;
/// Characters of a long diff that its reference shows of either end.
const ENDS: usize = 2_000;

/// Said where a file is marked.
const OTHERS: &str = "Files that are marked were changed by somebody else too, or may have been: they stay when the rest \
                      is taken back.";

/// What a file held before and after; absent: not to be compared.
type Both = Option<(Vec<u8>, Vec<u8>)>;

/// A cut through a session: all that its changes are worked out from.
pub struct View {
    session: PathBuf,
    cwd: PathBuf,
    trees: Trees,
    /// The newest snapshot, and when the session was at work since.
    since: Option<Since>,
    reader: JournalReader,
    blobs: Blobs,
    snapshots: Snapshots,
}

impl Session {
    /// What `session/changes` works on, with the end of a turn that has just finished.
    pub(super) async fn changes_view(&mut self) -> View {
        self.settle_tree().await;
        View {
            session: self.deps.paths.session_dir(self.state.id()),
            cwd: self.state.created.cwd.clone(),
            trees: self.state.trees.clone(),
            since: self.since(),
            reader: self.reader.clone(),
            blobs: self.journal.blobs().clone(),
            snapshots: self.deps.snapshots.clone(),
        }
    }
}

impl View {
    /// # Errors
    /// The span means nothing here, or what was kept cannot be read.
    pub async fn changes(&self, params: ChangesParams) -> Result<ChangesResult, SessionError> {
        let mut found = Box::pin(self.find(&params.span)).await?;
        let wanted = Wanted::new(&found.root, &params.paths);
        found.changes.retain(|change| wanted.has_either(change));
        found.told.retain(|(path, _)| wanted.has(below(&found.root, path)));
        // What the session did comes first where there is not room for all.
        let doubts = &found.doubts;
        found.changes.sort_by_key(|change| doubts.contains_key(&change.path));
        cut(&mut found.changes, "files changed", &mut found.notes);
        cut(&mut found.told, "files were changed by tools", &mut found.notes);
        cut(&mut found.left_out, "files are left out", &mut found.notes);
        let drawn = self.draw(&found).await?;
        let mut result = ChangesResult {
            root: path_text(&found.root),
            seen: found.seen,
            files: Vec::new(),
            added: 0,
            removed: 0,
            left_out: found.left_out.iter().map(left_out).collect(),
            notes: found.notes,
        };
        if drawn.iter().any(|(file, _)| file.others) {
            result.notes.push(OTHERS.into());
        }
        let mut room = MAX_INLINE;
        for (mut file, diff) in drawn {
            result.added += file.added;
            result.removed += file.removed;
            if let Some(diff) = diff.filter(|_| !params.stat) {
                file.diff = Some(self.text(diff, &mut room).await?);
            }
            result.files.push(file);
        }
        result.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(result)
    }

    /// Compares the contents, in the order found: snapshots, then tools.
    async fn draw(&self, found: &Found) -> Result<Vec<(FileDelta, Option<String>)>, SessionError> {
        let place = Place { session: &self.session, root: &found.root };
        let contents = match found.changes.is_empty() {
            true => Vec::new(),
            false => self
                .snapshots
                .contents(place, &found.changes, MAX_CONTENT, MAX_CONTENTS)
                .await
                .map_err(unread)?,
        };
        let contents = contents.into_iter().map(|(old, new)| old.zip(new));
        let heads = found
            .changes
            .iter()
            .map(|change| Head { others: found.doubts.contains_key(&change.path), ..head(change) });
        let mut work: Vec<(Head, Both)> = heads.zip(contents).collect();
        for (path, delta) in &found.told {
            let old = self.blob(delta.before, MAX_CONTENT).await;
            let new = self.blob(delta.after, MAX_CONTENT).await;
            work.push((told_head(below(&found.root, path), delta), old.zip(new)));
        }
        Ok(super::blocking(move || work.into_iter().map(|(head, contents)| draw(head, contents)).collect())
            .await)
    }

    /// Content that a tool replaced or wrote, if it was small enough to be kept. Of no file: none.
    async fn blob(&self, digest: Option<Digest>, limit: u64) -> Option<Vec<u8>> {
        let Some(digest) = digest else { return Some(Vec::new()) };
        let part = self.blobs.get(digest, 0, limit).await.ok()?;
        (part.size <= limit).then_some(part.bytes)
    }

    async fn text(&self, diff: String, room: &mut usize) -> Result<Text, SessionError> {
        if diff.len() as u64 <= WIRE_INLINE_LIMIT && diff.len() <= *room {
            *room -= diff.len();
            return Ok(Text::Inline(diff));
        }
        let head = diff.chars().take(ENDS).collect();
        let start = diff.char_indices().rev().nth(ENDS - 1).map_or(0, |(index, _)| index);
        let tail = diff[start..].to_owned();
        let size = diff.len() as u64;
        let blob = self.blobs.put(diff.into_bytes().into()).await.map_err(crate::session::heir::unstored)?;
        Ok(Text::Blob(BlobRef {
            blob,
            size,
            media_type: "text/x-diff; charset=utf-8".into(),
            head: Some(head),
            tail: Some(tail),
        }))
    }

    async fn kept(&self, tree: &Tree) -> Result<TreeKept, SessionError> {
        let raw = self.reader.record(tree.record).await.map_err(crate::session::heir::unstored)?;
        match Record::parse(&raw) {
            Parsed::Known { record, .. } => match *record {
                Record::TreeKept(kept) => Ok(kept),
                other => Err(storage(format!("a {} stands where a snapshot was journaled", other.name()))),
            },
            Parsed::Unknown { .. } => Err(storage("a journaled record cannot be read back".into())),
        }
    }

    /// A list that a snapshot was journaled with.
    async fn list<T: serde::de::DeserializeOwned + Send + 'static>(
        &self,
        list: Option<&Json>,
    ) -> Result<Option<T>, SessionError> {
        let text = match list {
            None => return Ok(None),
            Some(Json::Inline(raw)) => raw.get().as_bytes().to_vec(),
            Some(Json::Blob(blob)) => {
                self.blobs.whole(*blob).await.map_err(crate::session::heir::unstored)?
            }
        };
        super::blocking(move || serde_json::from_slice(&text))
            .await
            .map(Some)
            .map_err(|error| storage(format!("a list of files cannot be read back: {error}")))
    }
}

/// The same for the same list.
fn digest_of_list(list: &Json) -> Digest {
    match list {
        Json::Inline(raw) => crate::ids::digest_of(raw.get().as_bytes()),
        Json::Blob(blob) => *blob,
    }
}

/// Keeps what one answer has room for, and says how many it has not.
fn cut<T>(list: &mut Vec<T>, what: &str, notes: &mut Vec<String>) {
    let more = list.len().saturating_sub(MAX_FILES);
    if more > 0 {
        list.truncate(MAX_FILES);
        notes.push(format!("{more} more {what}; name files or folders to see them."));
    }
}

/// Which files are asked for.
struct Wanted(Vec<PathBuf>);

impl Wanted {
    fn new(root: &Path, paths: &[String]) -> Self {
        Self(paths.iter().map(|path| below(root, Path::new(path)).components().collect()).collect())
    }

    fn has(&self, path: &Path) -> bool {
        let text = path_text(path);
        self.0.is_empty()
            || self.0.iter().any(|wanted| path.starts_with(wanted) || Path::new(&text) == wanted)
    }

    /// By any of the names that a renamed file had.
    fn has_either(&self, change: &Change) -> bool {
        self.has(&change.path) || change.old_path.as_ref().is_some_and(|old| self.has(old))
    }
}

/// As it is told: below the root, else whole.
fn below<'a>(root: &Path, path: &'a Path) -> &'a Path {
    path.strip_prefix(root).unwrap_or(path)
}

fn head(change: &Change) -> Head {
    let mode = |mode: Mode| (mode != Mode::Absent).then(|| mode.name());
    Head {
        path: path_text(&change.path),
        old_path: change.old_path.as_deref().map(path_text),
        kind: match change.kind {
            ChangeKind::Added => DeltaKind::Added,
            ChangeKind::Modified => DeltaKind::Modified,
            ChangeKind::Deleted => DeltaKind::Deleted,
            ChangeKind::Renamed => DeltaKind::Renamed,
            ChangeKind::Mode => DeltaKind::ModeChanged,
            ChangeKind::Type => DeltaKind::TypeChanged,
        },
        old_mode: mode(change.old_mode),
        new_mode: mode(change.new_mode),
        seen: Seen::Git,
        others: false,
        counted: (0, 0),
    }
}

fn told_head(path: &Path, delta: &ToolDelta) -> Head {
    Head {
        path: path_text(path),
        old_path: None,
        kind: match (delta.before, delta.after) {
            (None, _) => DeltaKind::Added,
            (_, None) => DeltaKind::Deleted,
            _ => DeltaKind::Modified,
        },
        old_mode: None,
        new_mode: None,
        seen: Seen::Tools,
        others: delta.broken != Broken::No,
        counted: (delta.added, delta.removed),
    }
}

fn left_out(left: &snapshot::LeftOut) -> LeftOut {
    let why = match left.why {
        Why::TooLarge => "too large",
        Why::TooMuch => "too much together with others",
        Why::Unreadable => "cannot be read",
        Why::Hidden => "git ignored it before, or it lay in a repository of its own",
    };
    LeftOut { path: left.path.clone(), why: why.into() }
}

fn unread(error: SnapshotError) -> SessionError {
    storage(format!("the snapshots cannot be used: {}", error.explain()))
}
