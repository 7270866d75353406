//! Taking a snapshot: which files differ from what the private index knows, their bytes into the objects, the tree.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};

use super::read::ignored;
use super::repository::Repository;
use super::store::{Store, failed};
use super::whose::{Since, whose};
use super::{LeftOut, Limits, SnapshotError, Taken, TreeId, Why, blocking, path_text, pieces};
use crate::workspace::locate_entry;

/// A larger index of the repository is not used; then every file is read once.
const MAX_INDEX: u64 = 512 << 20;

/// Places that a snapshot names as left out by git.
const MAX_HIDDEN: usize = 50_000;

const LINK: &[u8] = b"120000";
const NESTED: &[u8] = b"160000";
const NO_OBJECT: &str = "0000000000000000000000000000000000000000";

/// Which index the snapshot is taken with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Index {
    /// The store's own, which remembers what was read.
    Kept,
    /// A copy of it.
    Copied,
}

pub(super) async fn take(store: &Store, index: Index, since: Option<Since>) -> Result<Taken, SnapshotError> {
    let before = store.clone();
    blocking(move || {
        before.prepare()?;
        if index == Index::Kept {
            // The lock of a git that was killed: nobody else uses this index.
            let _ = fs::remove_file(before.dir.join("index.lock"));
        }
        Ok::<_, SnapshotError>(())
    })
    .await?;
    let mut own = store.index();
    let copy = store.passing("index");
    match index {
        Index::Kept if !store.is_ready() => prime(store, &own).await?,
        Index::Kept => {}
        Index::Copied => {
            if store.is_ready() {
                let (from, to) = (own, copy.0.clone());
                blocking(move || fs::copy(&from, &to).map_err(failed("copy", &from))).await?;
            } else {
                prime(store, &copy.0).await?;
            }
            own = copy.0.clone();
        }
    }
    let listed = store.git(&["ls-files", "-z", "-o", "-m", "-d", "--exclude-standard"], &own, None).await?;
    let (root, limits) = (store.repository.root.clone(), store.limits);
    let sorted = blocking(move || sort(&root, &listed, limits)).await?;
    if !sorted.removed.is_empty() {
        store.git_reading(&["update-index", "-z", "--index-info"], &own, sorted.removed).await?;
    }
    if !sorted.changed.is_empty() {
        let update = ["update-index", "-z", "--add", "--remove", "--replace", "--stdin"];
        store.git_reading(&update, &own, sorted.changed).await?;
    }
    let tree = TreeId::parse(&store.git(&["write-tree", "--missing-ok"], &own, None).await?)?;
    let root = store.repository.root.clone();
    let whose = async {
        // Another work tree tells nothing about this one.
        let since = since.filter(|since| since.root == root)?;
        whose(store, since, &tree)
            .await
            .inspect_err(|error| tracing::debug!(%error, "whose is not known"))
            .ok()
    };
    let (whose, hidden) = tokio::join!(whose, hidden(store, &own, sorted.nested));
    Ok(Taken { tree, left_out: sorted.left_out, hidden, whose, root })
}

/// What is there and in no snapshot. `nested`: repositories inside. `None`: too many places, or git does not say.
async fn hidden(store: &Store, index: &Path, nested: Vec<String>) -> Option<Vec<String>> {
    let list = ["ls-files", "-z", "-o", "-i", "--exclude-standard", "--directory"];
    let listed = store.git(&list, index, None).await;
    let listed = listed.inspect_err(|error| tracing::debug!(%error, "what is ignored is not known")).ok()?;
    let (mut names, doubtful) = blocking(move || {
        let mut names: Vec<Vec<u8>> = pieces(&listed).map(<[u8]>::to_vec).collect();
        names.sort();
        // A folder that is named with what lies in it may be one where everything happens to be ignored.
        let holds_next = |pair: &&[Vec<u8>]| pair[0].ends_with(b"/") && pair[1].starts_with(&pair[0]);
        let doubtful: Vec<Vec<u8>> =
            names.windows(2).filter(holds_next).map(|pair| pair[0].clone()).collect();
        (names, doubtful)
    })
    .await;
    if !doubtful.is_empty() {
        let ignored: HashSet<Vec<u8>> = ignored(store, index, &doubtful).await.ok()?.into_iter().collect();
        let open: HashSet<Vec<u8>> = doubtful.into_iter().filter(|name| !ignored.contains(name)).collect();
        names.retain(|name| !open.contains(name));
    }
    blocking(move || {
        let text =
            |name: Vec<u8>| path_text(Path::new(OsStr::from_bytes(name.strip_suffix(b"/").unwrap_or(&name))));
        let mut all = nested;
        all.extend(names.into_iter().map(text));
        all.sort();
        // What lies below another of them needs no word.
        let mut hidden: Vec<String> = Vec::new();
        for place in all {
            if !hidden.last().is_some_and(|last| place == *last || place.starts_with(&format!("{last}/"))) {
                hidden.push(place);
            }
        }
        (hidden.len() <= MAX_HIDDEN).then_some(hidden)
    })
    .await
}

enum Fate {
    In,
    /// Not in the tree; with a reason although it is there.
    Out(Option<Why>),
}

/// What is to be done about files that differ from the index.
#[derive(Default)]
struct Sorted {
    /// Names, each with a NUL behind it.
    changed: Vec<u8>,
    /// Lines for `--index-info` that take out what must not be in the tree.
    removed: Vec<u8>,
    left_out: Vec<LeftOut>,
    /// Repositories inside.
    nested: Vec<String>,
}

/// Looks at the files that git listed, within the limits. Blocks.
fn sort(root: &Path, listed: &[u8], limits: Limits) -> Result<Sorted, SnapshotError> {
    let mut sorted = Sorted::default();
    let mut seen = HashSet::new();
    let mut total = 0_u64;
    let mut links = Links { root, known: HashMap::new() };
    for name in pieces(listed) {
        // A nested repository ends with a slash and is left alone.
        if let Some(nested) = name.strip_suffix(b"/") {
            sorted.nested.push(path_text(Path::new(OsStr::from_bytes(nested))));
            continue;
        }
        // A deleted file is listed twice.
        if !seen.insert(name) {
            continue;
        }
        let below = Path::new(OsStr::from_bytes(name));
        let fate = match fs::symlink_metadata(root.join(below)) {
            // A link has taken the place of its folder: what is seen through it lies elsewhere.
            _ if links.on_the_way_to(below) => Fate::Out(None),
            Ok(meta) if meta.is_file() => {
                if meta.len() > limits.file {
                    Fate::Out(Some(Why::TooLarge))
                } else if rustix::fs::accessat(CWD, root.join(below), Access::READ_OK, AtFlags::empty())
                    .is_err()
                {
                    Fate::Out(Some(Why::Unreadable))
                } else if total.saturating_add(meta.len()) > limits.total {
                    Fate::Out(Some(Why::TooMuch))
                } else {
                    total += meta.len();
                    Fate::In
                }
            }
            Ok(meta) if meta.is_symlink() => Fate::In,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Fate::Out(Some(Why::Unreadable)),
            // Gone, or something in its place that git does not keep.
            _ => Fate::Out(None),
        };
        match fate {
            Fate::In => {
                sorted.changed.extend(name);
                sorted.changed.push(0);
            }
            Fate::Out(why) => {
                sorted.removed.extend(take_out(name));
                sorted.left_out.extend(why.map(|why| LeftOut { path: path_text(below), why }));
            }
        }
    }
    sorted.left_out.sort_by(|a, b| a.path.cmp(&b.path));
    if seen.len() > limits.files {
        return Err(SnapshotError::TooMany { count: seen.len(), limit: limits.files });
    }
    Ok(sorted)
}

/// Which folders below the root are links, each looked at once.
struct Links<'r> {
    root: &'r Path,
    known: HashMap<PathBuf, bool>,
}

impl Links<'_> {
    fn on_the_way_to(&mut self, below: &Path) -> bool {
        let folders = below.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
        for folder in folders {
            let is_link = match self.known.get(folder) {
                Some(known) => *known,
                None => {
                    let meta = fs::symlink_metadata(self.root.join(folder));
                    let is_link = meta.is_ok_and(|meta| meta.is_symlink());
                    self.known.insert(folder.to_owned(), is_link);
                    is_link
                }
            };
            if is_link {
                return true;
            }
        }
        false
    }
}

/// A line for `--index-info` that removes an entry.
pub(super) fn take_out(name: &[u8]) -> Vec<u8> {
    [b"0 ", NO_OBJECT.as_bytes(), b"\t", name, b"\0"].concat()
}

/// Makes the index from the repository's, so that files which are known there need not be read again.
///
/// What the repository knows of a file is taken only where it is the file's own bytes: not where a filter or a change of
/// line ends came between, not where git was told to look away. Those are read at the first snapshot.
async fn prime(store: &Store, index: &Path) -> Result<(), SnapshotError> {
    let configured = store.clone();
    let excludes = store.users_excludes().await;
    blocking(move || configured.configure(&excludes)).await?;
    let new = store.passing("prime");
    let (repository, to) = (store.repository.clone(), new.0.clone());
    let copied = blocking(move || copy_index(&repository, &to)).await?;
    let listed = match copied {
        true => store.git(&["ls-files", "-s", "-v", "-z"], &new.0, None).await,
        false => Ok(Vec::new()),
    };
    match listed {
        Ok(listed) if copied => {
            let doubtful = doubtful(store, &new.0, listed).await?;
            if !doubtful.is_empty() {
                store.git_reading(&["update-index", "-z", "--index-info"], &new.0, doubtful).await?;
            }
        }
        // None, or one that only its repository can read: split, say.
        _ => {
            let _ = fs::remove_file(&new.0);
            store.git(&["read-tree", "--empty"], &new.0, None).await?;
        }
    }
    let (from, to) = (new.0.clone(), index.to_owned());
    blocking(move || fs::rename(&from, &to).map_err(failed("put in place", &to))).await
}

/// Says whether there was one.
fn copy_index(repository: &Repository, to: &Path) -> Result<bool, SnapshotError> {
    let Ok(mut from) =
        locate_entry(&repository.git_dir.join("index")).and_then(|located| located.open(MAX_INDEX))
    else {
        return Ok(false);
    };
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)
        .map_err(failed("make", to))?;
    io::copy(&mut from, &mut file).map_err(failed("write", to))?;
    Ok(true)
}

/// One line of `ls-files -s -v`.
struct Known {
    name: Vec<u8>,
    mode: Vec<u8>,
    object: Vec<u8>,
    /// It counts as it stands there: no flag, no conflict.
    plain: bool,
}

/// `H 100644 <object> 0<TAB>name`.
fn known(line: &[u8]) -> Option<Known> {
    let tab = line.iter().position(|byte| *byte == b'\t')?;
    let mut words = line[..tab].split(|byte| *byte == b' ');
    let (tag, mode, object, stage) = (words.next()?, words.next()?, words.next()?, words.next()?);
    Some(Known {
        name: line[tab + 1..].to_vec(),
        mode: mode.to_vec(),
        object: object.to_vec(),
        plain: tag == b"H" && stage == b"0",
    })
}

/// The lines for `--index-info` that make git read again what cannot be believed, and forget nested repositories.
async fn doubtful(store: &Store, index: &Path, listed: Vec<u8>) -> Result<Vec<u8>, SnapshotError> {
    let (known, objects, names) = blocking(move || {
        let known: Vec<Known> = pieces(&listed).filter_map(known).collect();
        let objects: Vec<u8> = known.iter().flat_map(|known| [&known.object[..], b"\n"].concat()).collect();
        let names: Vec<u8> = known.iter().flat_map(|known| [&known.name[..], b"\0"].concat()).collect();
        (known, objects, names)
    })
    .await;
    let sizes =
        store.git_reading(&["cat-file", "--buffer", "--batch-check=%(objectsize)"], index, objects).await?;
    let filtered = store.attributes(index, names).await?;
    let root = store.repository.root.clone();
    Ok(blocking(move || doubtful_lines(&root, &known, &sizes, &filtered)).await)
}

fn doubtful_lines(root: &Path, known: &[Known], sizes: &[u8], filtered: &[u8]) -> Vec<u8> {
    let answers: Vec<&[u8]> = filtered.split(|byte| *byte == 0).collect();
    let filtered: HashSet<&[u8]> = answers
        .chunks_exact(3)
        .filter(|answer| !matches!(answer[2], b"unspecified" | b"unset"))
        .map(|answer| answer[0])
        .collect();
    let mut lines = Vec::new();
    for (known, size) in known.iter().zip(sizes.split(|byte| *byte == b'\n')) {
        if known.mode == NESTED {
            lines.extend(take_out(&known.name));
            continue;
        }
        let size = std::str::from_utf8(size).ok().and_then(|size| size.parse::<u64>().ok());
        let path: PathBuf = root.join(OsStr::from_bytes(&known.name));
        // A file that changed since has another size too; it is read again anyway.
        let same_size =
            size.is_some() && fs::symlink_metadata(path).is_ok_and(|meta| size == Some(meta.size()));
        let believed =
            known.plain && same_size && (known.mode == LINK || !filtered.contains(&known.name[..]));
        if !believed {
            lines.extend([&known.mode[..], b" ", &known.object, b"\t", &known.name, b"\0"].concat());
        }
    }
    lines
}
