//! What differs over a span, and which of it is the session's: proven by the digests of its tools, or by the snapshots'
//! own word on whose a change is. Whatever is not proven is somebody else's.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use agentd_protocol::changes::{Seen, Span};

use super::base::Base;
use super::chain::{Chain, Point};
use super::doubts::{Doubt, Doubts, Proof, prove};
use super::span::{End, Range, resolve};
use super::tools::{self, Told, ToolDelta};
use super::{View, unread};
use crate::ids::digest_of;
use crate::journal::RecordRef;
use crate::session::SessionError;
use crate::session::heir::unstored;
use crate::session::record::Kept;
use crate::workspace::MAX_FILE;
use crate::workspace::snapshot::{self, Change, ChangeKind, Kept as Place, Mode, TreeId, Why, path_text};

/// Bytes of contents that are compared with what tools told.
const MAX_CHECKED: u64 = 64 << 20;

/// The differences of a span, before contents are looked at.
pub(super) struct Found {
    pub(super) root: PathBuf,
    pub(super) seen: Seen,
    /// From snapshots, in the order of paths.
    pub(super) changes: Vec<Change>,
    /// Those of them that are not known to be the session's alone, by path.
    pub(super) doubts: HashMap<PathBuf, Doubt>,
    /// From the tools: files that no snapshot holds.
    pub(super) told: Vec<(PathBuf, ToolDelta)>,
    pub(super) left_out: Vec<snapshot::LeftOut>,
    /// Folders that the session made.
    pub(super) made: HashSet<String>,
    pub(super) notes: Vec<String>,
    pub(super) ends: Option<(TreeId, TreeId)>,
}

impl View {
    /// Looks for all differences of a span.
    pub(super) async fn find(&self, span: &Span) -> Result<Found, SessionError> {
        let range = resolve(&self.trees, span)?;
        let mut notes = Vec::new();
        if self.trees.imported.is_some_and(|imported| range.after < imported) {
            notes.push(
                "What was changed before the session came out of a bundle is not told here, and stays."
                    .into(),
            );
        }
        for gap in &range.gaps {
            if let Kept::Not { reason } = self.kept(gap).await?.kept {
                notes.push(format!(
                    "For a turn there is no snapshot ({reason}): only changes of tools are known."
                ));
            }
        }
        let points = self.points(&range, &mut notes).await?;
        let Some(chain) = Chain::new(points) else {
            let told = self.told(&range, None, &[]).await?;
            return Ok(self.found_by_tools(&range, told, notes));
        };
        let place = Place { session: &self.session, root: chain.root() };
        let new = chain.last().tree.clone();
        let whose = self.whose(&chain).await?;
        let compared = async {
            let base = self.base(&chain, &whose).await?;
            let changes = self.snapshots.changes(place, &base.tree, &new).await?;
            Ok::<_, snapshot::SnapshotError>((base, changes))
        };
        let (base, changes) = match compared.await {
            Ok(compared) => compared,
            Err(error) => {
                notes.push(format!(
                    "The snapshots cannot be read any more ({}): only changes of tools are known.",
                    error.explain()
                ));
                let told = self.told(&range, None, &[]).await?;
                return Ok(self.found_by_tools(&range, told, notes));
            }
        };
        let told = self.told(&range, chain.first().record, &base.marks).await?;
        if told.commands_before {
            notes.push("Before its first snapshot, what commands changed is not seen.".into());
        }
        let mut found = Found {
            root: chain.root().to_owned(),
            seen: Seen::Git,
            changes: Vec::new(),
            doubts: HashMap::new(),
            told: Vec::new(),
            left_out: self.left_out_of(&chain).await?,
            made: HashSet::new(),
            notes,
            ends: Some((base.tree.clone(), new)),
        };
        found.notes.extend(self.notes_of(&base, &chain));
        let doubts = self.doubts(&chain, whose, &base, &mut found).await?;
        self.sort(&mut found, changes, &told, &doubts, &base).await?;
        self.told_besides(&mut found, told).await?;
        found.left_out.sort_by(|a, b| a.path.cmp(&b.path));
        found.left_out.dedup_by(|a, b| a.path == b.path);
        Ok(found)
    }

    /// The snapshots of the span with its end, which may be a look at how it is now.
    async fn points(&self, range: &Range, notes: &mut Vec<String>) -> Result<Vec<Point>, SessionError> {
        let mut points = Vec::new();
        let later = match &range.end {
            End::Later(tree) => Some(tree),
            _ => None,
        };
        for tree in range.points.iter().chain(later) {
            let kept = self.kept(tree).await?;
            let late = kept.late;
            points.extend(Point::of(tree.record, kept));
            if late && matches!(&range.end, End::Kept(end) if end == tree) {
                notes.push(
                    "The end was looked at after a restart: what others changed in between is in it too."
                        .into(),
                );
            }
        }
        if points.is_empty() {
            return Ok(points);
        }
        match &range.end {
            End::Kept(_) => {}
            End::Later(_) => {
                notes.push("How that turn ended is not known: this is how the next one began.".into());
            }
            now @ (End::Now | End::NotKept) => {
                if *now == End::NotKept {
                    notes.push("How that turn ended is not known: this is how it is now.".into());
                }
                match self.snapshots.look(&self.session, &self.cwd, self.since.clone()).await {
                    Ok(looked) => points.extend(looked.map(Point::now)),
                    Err(error) => {
                        points.clear();
                        notes.push(format!(
                            "How it is now cannot be looked at ({}): only changes of tools are known.",
                            error.explain()
                        ));
                    }
                }
            }
        }
        Ok(points)
    }

    async fn told(
        &self,
        range: &Range,
        first: Option<RecordRef>,
        marks: &[(RecordRef, PathBuf)],
    ) -> Result<Told, SessionError> {
        let after = self.trees.imported.map_or(range.after, |imported| range.after.max(imported));
        tools::told(&self.reader, after, range.until, first, marks).await.map_err(unstored)
    }

    /// All that is known without snapshots.
    fn found_by_tools(&self, range: &Range, told: Told, mut notes: Vec<String>) -> Found {
        if told.effects {
            notes.push("Without snapshots, what commands changed is not seen.".into());
        }
        // Where nothing had effects, nothing changed unseen.
        let quiet = range.points.is_empty() && range.gaps.is_empty() && !told.effects;
        Found {
            root: self.cwd.clone(),
            seen: if quiet { Seen::Git } else { Seen::Tools },
            changes: Vec::new(),
            doubts: HashMap::new(),
            told: told.files.into_iter().collect(),
            left_out: Vec::new(),
            made: HashSet::new(),
            notes,
            ends: None,
        }
    }

    async fn left_out_of(&self, chain: &Chain) -> Result<Vec<snapshot::LeftOut>, SessionError> {
        let mut all = Vec::new();
        for point in chain.points() {
            match &point.looked {
                Some(looked) => all.extend(looked.left_out.clone()),
                None => {
                    let list: Option<Vec<snapshot::LeftOut>> = self.list(point.left_out.as_ref()).await?;
                    all.extend(list.unwrap_or_default());
                }
            }
        }
        all.sort_by(|a: &snapshot::LeftOut, b| a.path.cmp(&b.path));
        all.dedup_by(|a, b| a.path == b.path);
        Ok(all)
    }

    /// What each snapshot but the first says of whose the changes to it are.
    async fn whose(&self, chain: &Chain) -> Result<Vec<Option<snapshot::Whose>>, SessionError> {
        let mut all = Vec::new();
        for point in &chain.points()[1..] {
            all.push(match &point.looked {
                Some(looked) => looked.whose.clone(),
                None => self.list::<snapshot::Whose>(point.whose.as_ref()).await?,
            });
        }
        Ok(all)
    }

    /// What the snapshots say of whose the changes are, and of what was there unseen.
    async fn doubts(
        &self,
        chain: &Chain,
        whose: Vec<Option<snapshot::Whose>>,
        base: &Base,
        found: &mut Found,
    ) -> Result<Doubts, SessionError> {
        let mut doubts = Doubts::default();
        // The same places are named again and again.
        let mut last = None;
        for point in &chain.points()[..chain.points().len() - 1] {
            let Some(list) = &point.hidden else {
                doubts.hidden_unknown = true;
                continue;
            };
            let text = super::digest_of_list(list);
            if last.as_ref() != Some(&text) {
                doubts.hidden.extend(self.list::<Vec<String>>(Some(list)).await?.unwrap_or_default());
                last = Some(text);
            }
        }
        for whose in whose {
            let Some(whose) = whose else {
                doubts.all_unsure = true;
                continue;
            };
            if whose.unsure {
                doubts.unsure.extend(whose.others);
            } else {
                doubts.others.extend(whose.others);
            }
            found.made.extend(whose.made);
        }
        // What others did to these is in what they are measured by.
        for path in base.paths() {
            let name = path_text(path);
            doubts.others.remove(&name);
            doubts.unsure.remove(&name);
        }
        Ok(doubts)
    }

    /// Sorts the changes into those of the session and those that are not known to be.
    async fn sort(
        &self,
        found: &mut Found,
        changes: Vec<Change>,
        told: &Told,
        doubts: &Doubts,
        base: &Base,
    ) -> Result<(), SessionError> {
        let is_out = |path: &Path| {
            let text = path_text(path);
            found.left_out.binary_search_by(|left| left.path.cmp(&text)).is_ok()
        };
        let mut all = Vec::new();
        let mut hidden = Vec::new();
        for change in changes.into_iter().filter(|change| !is_out(&change.path)) {
            let was_hidden = change.new_mode != Mode::Absent && doubts.is_hidden(&change.path);
            match (was_hidden, change.kind) {
                // It may have been there all the time, with any content.
                (true, ChangeKind::Added | ChangeKind::Renamed) => {
                    hidden.push(snapshot::LeftOut { path: path_text(&change.path), why: Why::Hidden });
                    all.extend(change.apart().0);
                }
                // What stays under the new name keeps nothing of others from going back to the old one.
                (false, ChangeKind::Renamed)
                    if base.holds_old(&change) && doubts.of(&change, None).is_some() =>
                {
                    let (gone, came) = change.apart();
                    all.extend(gone);
                    all.push(came);
                }
                _ => all.push(change),
            }
        }
        found.left_out.extend(hidden);
        all.sort_by(|a, b| a.path.cmp(&b.path));
        let proofs = self.proofs(found, &all, told).await?;
        for change in all {
            let of_tool = told.late.get(&found.root.join(&change.path));
            // Both from before the first snapshot and from after it: in one piece only the tools know it.
            if told.files.get(&found.root.join(&change.path)).is_some_and(|delta| delta.early) {
                if proofs.get(&change.path) == Some(&Proof::ToolOnly) {
                    continue;
                }
                found.doubts.insert(change.path.clone(), Doubt::Others);
            }
            let doubt = match proofs.get(&change.path) {
                Some(Proof::Own | Proof::ToolOnly) => None,
                Some(Proof::Others) => Some(Doubt::Others),
                None => doubts.of(&change, of_tool),
            };
            if let Some(doubt) = doubt {
                found.doubts.entry(change.path.clone()).or_insert(doubt);
            }
            found.changes.push(change);
        }
        Ok(())
    }

    /// What the tools' digests prove of the files that tools changed.
    async fn proofs(
        &self,
        found: &Found,
        changes: &[Change],
        told: &Told,
    ) -> Result<BTreeMap<PathBuf, Proof>, SessionError> {
        let some: Vec<Change> = changes
            .iter()
            .filter(|change| change.old_path.is_none())
            .filter(|change| {
                told.files.contains_key(&found.root.join(&change.path))
                    || told.late.contains_key(&found.root.join(&change.path))
            })
            .cloned()
            .collect();
        if some.is_empty() {
            return Ok(BTreeMap::new());
        }
        let place = Place { session: &self.session, root: &found.root };
        let contents = self.snapshots.contents(place, &some, MAX_FILE, MAX_CHECKED).await.map_err(unread)?;
        let work: Vec<_> = some
            .into_iter()
            .zip(contents)
            .map(|(change, contents)| {
                let path = found.root.join(&change.path);
                let early = told.files.get(&path).filter(|delta| delta.early).cloned();
                (change, contents, told.late.get(&path).cloned(), early)
            })
            .collect();
        Ok(crate::session::blocking(move || {
            work.into_iter()
                .filter_map(|(change, (old, new), late, early)| {
                    let digest = |mode, content: Option<Vec<u8>>| match mode {
                        Mode::Absent => Some(None),
                        Mode::Link => None,
                        Mode::File | Mode::Executable => content.map(|content| Some(digest_of(&content))),
                    };
                    let same_mode = change.old_mode == change.new_mode
                        || change.old_mode == Mode::Absent
                        || change.new_mode == Mode::Absent;
                    let (old, new) = (digest(change.old_mode, old)?, digest(change.new_mode, new)?);
                    let proof = prove(same_mode, old, new, late.as_ref(), early.as_ref())?;
                    Some((change.path, proof))
                })
                .collect()
        })
        .await)
    }

    /// Adds files that tools changed and that are in no snapshot: outside of the repository, ignored, there unseen before
    /// the first one, or changed before it.
    async fn told_besides(&self, found: &mut Found, told: Told) -> Result<(), SessionError> {
        let known: HashSet<&PathBuf> = found.changes.iter().map(|change| &change.path).collect();
        let hidden: HashSet<&str> = found
            .left_out
            .iter()
            .filter(|left| left.why == Why::Hidden)
            .map(|left| left.path.as_str())
            .collect();
        let mut besides = Vec::new();
        let mut asked = Vec::new();
        for (path, delta) in told.files {
            match path.strip_prefix(&found.root) {
                Ok(below) if known.contains(&below.to_owned()) => {}
                Ok(below) if !delta.early && !hidden.contains(&*path_text(below)) => {
                    asked.push((below.to_owned(), path, delta));
                }
                _ => besides.push((path, delta)),
            }
        }
        let place = Place { session: &self.session, root: &found.root };
        let inside = asked.iter().map(|(below, ..)| below.clone()).collect();
        // If git cannot be asked any more, they are named and nothing is known to be wrong with them.
        let ignored: HashSet<PathBuf> =
            self.snapshots.ignored(place, inside).await.map_err(unread)?.into_iter().collect();
        besides.extend(
            asked
                .into_iter()
                .filter(|(below, ..)| ignored.contains(below))
                .map(|(_, path, delta)| (path, delta)),
        );
        besides.sort_by(|a, b| a.0.cmp(&b.0));
        // The tool tells of it: it is not left out after all.
        let told: HashSet<String> = besides
            .iter()
            .filter_map(|(path, _)| path.strip_prefix(&found.root).ok())
            .map(path_text)
            .collect();
        found.left_out.retain(|left| left.why != Why::Hidden || !told.contains(&left.path));
        found.told = besides;
        Ok(())
    }
}
