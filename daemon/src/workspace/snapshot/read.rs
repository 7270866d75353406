//! Reading snapshots: which files differ between two, and what they hold.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::store::Store;
use super::{Kept, SnapshotError, Snapshots, TreeId, blocking};
use crate::process::ProgramError;
use crate::workspace::Entry;

/// What an entry of a tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Absent,
    File,
    Executable,
    Link,
}

impl Mode {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "000000" => Some(Mode::Absent),
            "100644" => Some(Mode::File),
            "100755" => Some(Mode::Executable),
            "120000" => Some(Mode::Link),
            _ => None,
        }
    }

    /// As git writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::Absent => "000000",
            Mode::File => "100644",
            Mode::Executable => "100755",
            Mode::Link => "120000",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
    Renamed,
    /// The same bytes, executable or not any more.
    Mode,
    /// A file became a link, or a link a file.
    Type,
}

/// A file that differs between two trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub kind: ChangeKind,
    /// Below the root.
    pub path: PathBuf,
    /// Of a renamed file, the name before.
    pub old_path: Option<PathBuf>,
    pub old_mode: Mode,
    pub new_mode: Mode,
    pub old: String,
    pub new: String,
}

impl Change {
    /// A change of which only this much matters.
    #[cfg(test)]
    pub(crate) fn of_modes(path: &str, old_mode: Mode, new_mode: Mode) -> Self {
        let (old, new) = (String::new(), String::new());
        Self { kind: ChangeKind::Modified, path: path.into(), old_path: None, old_mode, new_mode, old, new }
    }

    /// A file that was moved, as the one that is gone and the one that came.
    #[must_use]
    pub fn apart(&self) -> (Option<Change>, Change) {
        let Some(old_path) = &self.old_path else { return (None, self.clone()) };
        let nothing = "0".repeat(self.old.len());
        let gone = Change {
            kind: ChangeKind::Deleted,
            path: old_path.clone(),
            old_path: None,
            new_mode: Mode::Absent,
            new: nothing.clone(),
            ..self.clone()
        };
        let came = Change {
            kind: ChangeKind::Added,
            old_path: None,
            old_mode: Mode::Absent,
            old: nothing,
            ..self.clone()
        };
        (Some(gone), came)
    }
}

/// The two contents of a change. `None`: too large to be loaded.
pub type Contents = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Whether a file that was moved is one change or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renames {
    Found,
    /// Only one that was not changed.
    Exact,
    Apart,
}

impl Snapshots {
    /// The files that differ from `old` to `new`, sorted by path.
    ///
    /// # Errors
    /// The snapshots cannot be read.
    pub async fn changes(
        &self,
        kept: Kept<'_>,
        old: &TreeId,
        new: &TreeId,
    ) -> Result<Vec<Change>, SnapshotError> {
        if old == new {
            return Ok(Vec::new());
        }
        let store = self.open(kept).await?;
        self.in_time(changes(&store, old, new, Renames::Found)).await
    }

    /// The files that differ from each of `trees` to the next, each name for itself: one step fewer than trees.
    ///
    /// # Errors
    /// The snapshots cannot be read.
    pub async fn steps(&self, kept: Kept<'_>, trees: &[TreeId]) -> Result<Vec<Vec<Change>>, SnapshotError> {
        let store = self.open(kept).await?;
        self.in_time(steps(&store, trees)).await
    }

    /// What the files of `changes` held before and after, in their order. Of one that is larger than `each`, or does not
    /// fit into `total` bytes any more, nothing.
    ///
    /// # Errors
    /// The snapshots cannot be read.
    pub async fn contents(
        &self,
        kept: Kept<'_>,
        changes: &[Change],
        each: u64,
        total: u64,
    ) -> Result<Vec<Contents>, SnapshotError> {
        let store = self.open(kept).await?;
        self.in_time(contents(&store, changes, each, total)).await
    }

    /// Which of `paths`, below the root, are in no snapshot because git ignores them.
    ///
    /// # Errors
    /// git does not say.
    pub async fn ignored(&self, kept: Kept<'_>, paths: Vec<PathBuf>) -> Result<Vec<PathBuf>, SnapshotError> {
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let store = self.open(kept).await?;
        let names: Vec<Vec<u8>> = paths.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect();
        let found = self.in_time(ignored(&store, &store.index(), &names)).await?;
        Ok(found.iter().map(|name| OsStr::from_bytes(name).into()).collect())
    }
}

/// Which of `names` git ignores.
pub(super) async fn ignored(
    store: &Store,
    index: &Path,
    names: &[Vec<u8>],
) -> Result<Vec<Vec<u8>>, SnapshotError> {
    // A name that begins with a colon would mean something else.
    let input = names.iter().flat_map(|name| [b"./", &name[..], b"\0"].concat()).collect();
    match store.git_reading(&["check-ignore", "-z", "--stdin"], index, input).await {
        Ok(answer) => {
            let name = |name: &[u8]| name.strip_prefix(b"./").map(<[u8]>::to_vec);
            Ok(super::pieces(&answer).filter_map(name).collect())
        }
        // None of them.
        Err(SnapshotError::Git(ProgramError::Failed { code: 1, .. })) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

pub(super) async fn changes(
    store: &Store,
    old: &TreeId,
    new: &TreeId,
    renames: Renames,
) -> Result<Vec<Change>, SnapshotError> {
    let renames = match renames {
        Renames::Found => "-M",
        Renames::Exact => "-M100%",
        Renames::Apart => "--no-renames",
    };
    let args = [
        "diff-tree",
        "-r",
        "-z",
        "--raw",
        "--no-abbrev",
        renames,
        "--no-ext-diff",
        "--no-textconv",
        "--ignore-submodules=all",
        old.as_str(),
        new.as_str(),
    ];
    let answer = store.git(&args, &store.index(), None).await?;
    blocking(move || parse(&answer)).await
}

/// One run of git for all of them, however long the span is.
async fn steps(store: &Store, trees: &[TreeId]) -> Result<Vec<Vec<Change>>, SnapshotError> {
    let count = trees.len().saturating_sub(1);
    let input: String =
        trees.windows(2).map(|pair| format!("{} {}\n", pair[0].as_str(), pair[1].as_str())).collect();
    if count == 0 {
        return Ok(Vec::new());
    }
    let args = ["diff-tree", "--stdin", "-r", "-z", "--raw", "--no-abbrev", "--no-renames"];
    let more = ["--no-ext-diff", "--no-textconv", "--ignore-submodules=all"];
    let args = [&args[..], &more].concat();
    let answer = store.git_reading(&args, &store.index(), input.into_bytes()).await?;
    let steps = blocking(move || parse_steps(&answer)).await?;
    match steps.len() == count {
        true => Ok(steps),
        false => Err(SnapshotError::Answer(format!("{} of {count} differences", steps.len()))),
    }
}

/// For each pair `<old> <new><LF>`, then its changes.
fn parse_steps(answer: &[u8]) -> Result<Vec<Vec<Change>>, SnapshotError> {
    let mut steps: Vec<Vec<Change>> = Vec::new();
    let mut pieces = super::pieces(answer);
    while let Some(mut head) = pieces.next() {
        while head.first().is_some_and(|first| *first != b':') {
            let end = head.iter().position(|byte| *byte == b'\n');
            let end = end.ok_or_else(|| SnapshotError::Answer(String::from_utf8_lossy(head).into_owned()))?;
            steps.push(Vec::new());
            head = &head[end + 1..];
        }
        if head.is_empty() {
            continue;
        }
        let step = steps.last_mut().ok_or_else(|| SnapshotError::Answer("changes of no tree".into()))?;
        step.extend(parse_change(head, &mut pieces)?);
    }
    Ok(steps)
}

/// `:100644 100644 <old> <new> R100<NUL>name<NUL>new name<NUL>`.
fn parse(answer: &[u8]) -> Result<Vec<Change>, SnapshotError> {
    let mut changes = Vec::new();
    let mut pieces = super::pieces(answer);
    while let Some(head) = pieces.next() {
        changes.extend(parse_change(head, &mut pieces)?);
    }
    Ok(changes)
}

/// One of them; `pieces` holds its names next. None: a nested repository, which is left alone.
fn parse_change<'a>(
    head: &[u8],
    pieces: &mut impl Iterator<Item = &'a [u8]>,
) -> Result<Option<Change>, SnapshotError> {
    let head = String::from_utf8_lossy(head).into_owned();
    let odd = || SnapshotError::Answer(head.clone());
    let words: Vec<&str> = head.trim_start_matches(':').split(' ').collect();
    let [old_mode, new_mode, old, new, status] = words[..] else { return Err(odd()) };
    let mut path = || pieces.next().map(|name| PathBuf::from(OsStr::from_bytes(name))).ok_or_else(odd);
    let first = path()?;
    let (old_path, path) = match status.as_bytes().first() {
        Some(b'R') => (Some(first), path()?),
        _ => (None, first),
    };
    let (Some(old_mode), Some(new_mode)) = (Mode::parse(old_mode), Mode::parse(new_mode)) else {
        return Ok(None);
    };
    let kind = match status.as_bytes().first() {
        Some(b'A') => ChangeKind::Added,
        Some(b'D') => ChangeKind::Deleted,
        Some(b'R') => ChangeKind::Renamed,
        Some(b'T') => ChangeKind::Type,
        Some(b'M') if old == new => ChangeKind::Mode,
        Some(b'M') => ChangeKind::Modified,
        _ => return Err(odd()),
    };
    let (old, new) = (old.to_owned(), new.to_owned());
    Ok(Some(Change { kind, path, old_path, old_mode, new_mode, old, new }))
}

pub(super) async fn contents(
    store: &Store,
    changes: &[Change],
    each: u64,
    total: u64,
) -> Result<Vec<Contents>, SnapshotError> {
    let mut wanted: Vec<String> = changes
        .iter()
        .flat_map(|change| [(change.old_mode, &change.old), (change.new_mode, &change.new)])
        .filter(|(mode, _)| *mode != Mode::Absent)
        .map(|(_, object)| object.clone())
        .collect();
    wanted.sort();
    wanted.dedup();
    let objects = objects(store, wanted, each, total).await?;
    let content = |mode: Mode, object: &str| match mode {
        Mode::Absent => Some(Vec::new()),
        _ => objects.get(object).cloned(),
    };
    Ok(changes
        .iter()
        .map(|change| (content(change.old_mode, &change.old), content(change.new_mode, &change.new)))
        .collect())
}

/// The entries of a change, before and after. `None`: too large.
pub(super) fn entries(change: &Change, (old, new): Contents) -> Option<(Entry, Entry)> {
    let entry = |mode, content: Vec<u8>| match mode {
        Mode::Absent => Entry::Absent,
        Mode::Link => Entry::Link { target: content },
        Mode::File | Mode::Executable => Entry::File { bytes: content, executable: mode == Mode::Executable },
    };
    Some((entry(change.old_mode, old?), entry(change.new_mode, new?)))
}

async fn objects(
    store: &Store,
    wanted: Vec<String>,
    each: u64,
    total: u64,
) -> Result<HashMap<String, Vec<u8>>, SnapshotError> {
    if wanted.is_empty() {
        return Ok(HashMap::new());
    }
    let lines = |objects: &[String]| objects.join("\n").into_bytes();
    let check = ["cat-file", "--buffer", "--batch-check=%(objectsize)"];
    let sizes = store.git_reading(&check, &store.index(), lines(&wanted)).await?;
    let mut room = total;
    let fitting: Vec<String> = wanted
        .into_iter()
        .zip(String::from_utf8_lossy(&sizes).lines())
        .filter(|(_, size)| match size.parse::<u64>() {
            Ok(size) if size <= each.min(room) => {
                room -= size;
                true
            }
            _ => false,
        })
        .map(|(object, _)| object)
        .collect();
    if fitting.is_empty() {
        return Ok(HashMap::new());
    }
    let batch = ["cat-file", "--buffer", "--batch=%(objectname) %(objectsize)"];
    let answer = store.git_reading(&batch, &store.index(), lines(&fitting)).await?;
    blocking(move || parse_objects(&answer)).await
}

/// `<object> <size><LF>bytes<LF>`.
fn parse_objects(mut answer: &[u8]) -> Result<HashMap<String, Vec<u8>>, SnapshotError> {
    let odd = || SnapshotError::Answer("an object is not as long as was said".into());
    let mut objects = HashMap::new();
    while !answer.is_empty() {
        let end = answer.iter().position(|byte| *byte == b'\n').ok_or_else(odd)?;
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let (object, size) = head.split_once(' ').ok_or_else(odd)?;
        let size: usize = size.parse().map_err(|_| odd())?;
        let content = answer.get(end + 1..end + 1 + size).ok_or_else(odd)?;
        objects.insert(object.to_owned(), content.to_vec());
        answer = answer.get(end + 2 + size..).ok_or_else(odd)?;
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raw_diff_is_read_with_renames_and_without_nested_repositories() {
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let answer = format!(
            ":100644 100755 {a} {a} M\0run\0:100644 100644 {a} {b} R090\0old\0newé\0\
             :160000 160000 {a} {b} M\0sub\0:000000 120000 {a} {b} A\0link\0"
        );
        let found = parse(answer.as_bytes()).unwrap();
        let kinds: Vec<_> = found.iter().map(|change| change.kind).collect();
        assert_eq!(kinds, [ChangeKind::Mode, ChangeKind::Renamed, ChangeKind::Added]);
        assert_eq!(found[1].old_path.as_deref(), Some(std::path::Path::new("old")));
        assert!(parse(b":100644 M\0x\0").is_err() && parse(b":100644 100644 a b M\0").is_err());
    }

    #[test]
    fn steps_are_told_apart_by_their_pairs() {
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let change = |name: &str| format!(":100644 100644 {a} {b} M\0{name}\0");
        // A name may look like a pair.
        let odd = format!("{a} {b}\n");
        let answer =
            format!("{a} {a}\n{a} {b}\n{}{}{b} {b}\n{a} {b}\n{}", change("x"), change(&odd), change("z"));
        let steps = parse_steps(answer.as_bytes()).unwrap();
        assert_eq!(steps.iter().map(Vec::len).collect::<Vec<_>>(), [0, 2, 0, 1]);
        let trailing = parse_steps(format!("{a} {b}\n{}{b} {b}\n", change("x")).as_bytes()).unwrap();
        assert_eq!(trailing.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0]);
        assert!(parse_steps(change("x").as_bytes()).is_err());
    }

    #[test]
    fn objects_are_cut_by_their_length() {
        let found = parse_objects(b"aa 3\nx\ny\nbb 0\n\n").unwrap();
        assert_eq!((&found["aa"][..], &found["bb"][..]), (&b"x\ny"[..], &b""[..]));
        assert!(parse_objects(b"aa 9\nx\n").is_err());
    }
}
