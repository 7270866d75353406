//! The files themselves.

use std::path::{Path, PathBuf};

use agentd_protocol::Timestamp;

use crate::ids::words::Nouns;
use crate::ids::{Digest, SessionId, digest_of};
use crate::plan::MAX_PLAN;
use crate::workspace::{Expected, Kind, Located, PathError, locate_entry, private_folder};

const TRIES: usize = 10;
const MAX_ASIDE: u32 = 1_000;

/// Why a plan file could not be made, read or written.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("the plan file: {}", .0.explain())]
    Path(PathError),
    #[error("the plan's folder {} leads elsewhere now ({}): put it back, nothing was touched", path.display(), now.display())]
    Moved { path: PathBuf, now: PathBuf },
    #[error("the plan has {size} bytes, at most {MAX_PLAN} are allowed: shorten it")]
    TooLarge { size: usize },
    #[error("{} is in the way of the plan and could not be set aside: remove it", path.display())]
    InTheWay { path: PathBuf },
    #[error("{} was saved by somebody else in this moment; their text stands", path.display())]
    Changed { path: PathBuf },
}

impl From<PathError> for PlanError {
    fn from(error: PathError) -> Self {
        Self::Path(error)
    }
}

/// A new, empty plan file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    pub slug: String,
    /// Its true name; everything later is done by this.
    pub path: PathBuf,
}

/// What stands at a plan's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanFile {
    Plan {
        content: String,
        revision: Digest,
        /// When somebody last wrote it, by the file system's clock.
        modified: Timestamp,
    },
    Missing,
    Unusable(Unusable),
}

/// Why something at a plan's path is not taken for the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    NotRegular(Kind),
    /// It has other names: whoever made them could change it from there.
    Linked,
    TooLarge,
    NotUtf8,
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unusable::NotRegular(kind) => write!(f, "there is {kind} in its place"),
            Unusable::Linked => f.write_str("the file has a second hard link"),
            Unusable::TooLarge => write!(f, "the file is larger than {MAX_PLAN} bytes"),
            Unusable::NotUtf8 => f.write_str("the file is not UTF-8 text"),
        }
    }
}

/// A finished write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub revision: Digest,
    /// Where what stood in the plan's place is now, if it was no plain file.
    pub set_aside: Option<PathBuf>,
}

/// Makes an empty plan file `{stem}-{noun}.md`, readable by its owner only. The folder is made if it is missing.
///
/// # Errors
/// The folder cannot be made or written to.
pub fn create(
    plans_dir: &Path,
    stem: &str,
    session: SessionId,
    nouns: Nouns<'_>,
) -> Result<Created, PlanError> {
    let folder = private_folder(plans_dir)?;
    let mut slug = String::new();
    for _ in 0..TRIES {
        slug = format!("{stem}-{}", nouns());
        if let Some(created) = try_create(&folder, slug.clone())? {
            return Ok(created);
        }
    }
    // So many plans about one thing: the session's id is its own.
    let slug = format!("{slug}-{session}");
    let path = folder.join(format!("{slug}.md"));
    try_create(&folder, slug)?.ok_or(PlanError::InTheWay { path })
}

/// Absent when the name is taken, by whatever.
fn try_create(folder: &Path, slug: String) -> Result<Option<Created>, PlanError> {
    let path = folder.join(format!("{slug}.md"));
    let entry = entry_at(&path)?;
    match entry.create_exclusive(b"") {
        Ok(()) => Ok(Some(Created { slug, path })),
        Err(PathError::Exists { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Reads a plan without following a link.
///
/// # Errors
/// The file is there and looks right, but cannot be read.
pub fn read(path: &Path) -> Result<PlanFile, PlanError> {
    let content = match entry_at(path)?.read(MAX_PLAN) {
        Ok(content) => content,
        Err(PathError::Missing { .. }) => return Ok(PlanFile::Missing),
        Err(PathError::NotRegular { kind, .. }) => return Ok(PlanFile::Unusable(Unusable::NotRegular(kind))),
        Err(PathError::TooLarge { .. }) => return Ok(PlanFile::Unusable(Unusable::TooLarge)),
        Err(error) => return Err(error.into()),
    };
    if content.links > 1 {
        return Ok(PlanFile::Unusable(Unusable::Linked));
    }
    match String::from_utf8(content.bytes) {
        Ok(text) => {
            Ok(PlanFile::Plan { content: text, revision: content.digest, modified: content.modified })
        }
        Err(_) => Ok(PlanFile::Unusable(Unusable::NotUtf8)),
    }
}

/// Writes a plan over what the writer has read there, all or nothing. `over` is that revision; absent when there was none.
/// A file that is gone is written anew. Something at the path that is no plan, or no plain file of one name, is renamed
/// first, to `<name>.aside-<n>`, and what it leads to is left as it is: a file that only looks like a plan is somebody's
/// work too, one that grew too long or was saved in another encoding.
///
/// # Errors
/// `Changed`: another plan stands there, and stays. Too large, or the file cannot be written; the old plan then still
/// stands.
pub fn write(path: &Path, content: &str, over: Option<Digest>) -> Result<Written, PlanError> {
    if content.len() as u64 > MAX_PLAN {
        return Err(PlanError::TooLarge { size: content.len() });
    }
    let entry = entry_at(path)?;
    let (expected, set_aside) = match read(path)? {
        PlanFile::Plan { revision, .. } if Some(revision) == over => (Expected::Content(revision), None),
        PlanFile::Plan { .. } => return Err(PlanError::Changed { path: path.to_owned() }),
        PlanFile::Missing => (Expected::Absent, None),
        PlanFile::Unusable(_) => (Expected::Absent, Some(set_aside(&entry, path)?)),
    };
    match entry.replace_private(content.as_bytes(), expected) {
        Ok(_) => Ok(Written { revision: digest_of(content.as_bytes()), set_aside }),
        Err(PathError::Changed { .. } | PathError::Exists { .. } | PathError::NotRegular { .. }) => {
            Err(PlanError::Changed { path: path.to_owned() })
        }
        Err(error) => Err(error.into()),
    }
}

fn set_aside(entry: &Located, path: &Path) -> Result<PathBuf, PlanError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    for n in 1..=MAX_ASIDE {
        let aside = format!("{name}.aside-{n}");
        match entry.set_aside(&aside) {
            Ok(()) => return Ok(path.with_file_name(aside)),
            Err(PathError::Exists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(PlanError::InTheWay { path: path.to_owned() })
}

/// A plan's path is a true name since it was made. If it is none any more, a folder above it was replaced by a link, and
/// the plan is not to be had through that.
fn entry_at(path: &Path) -> Result<Located, PlanError> {
    let entry = locate_entry(path)?;
    if entry.real == path {
        Ok(entry)
    } else {
        Err(PlanError::Moved { path: path.to_owned(), now: entry.real })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    struct Place {
        _dir: tempfile::TempDir,
        root: PathBuf,
    }

    impl Place {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().canonicalize().unwrap();
            Self { _dir: dir, root }
        }

        fn create(&self, nouns: &[&'static str]) -> Created {
            let mut nouns = nouns.iter().copied().cycle();
            let next: Nouns<'_> = &mut || nouns.next().unwrap();
            create(&self.root.join("state/plans"), "api-paging", SessionId::generate(), next).unwrap()
        }
    }

    /// Writes over what stands there, as a writer does that has just read it.
    fn save(path: &Path, content: &str) -> Result<Written, PlanError> {
        let over = match read(path)? {
            PlanFile::Plan { revision, .. } => Some(revision),
            PlanFile::Missing | PlanFile::Unusable(_) => None,
        };
        write(path, content, over)
    }

    fn plan(content: &str) -> Option<(String, Digest)> {
        Some((content.into(), digest_of(content.as_bytes())))
    }

    /// The plan that stands there; absent if it is none.
    fn plan_at(path: &Path) -> Option<(String, Digest)> {
        match read(path).unwrap() {
            PlanFile::Plan { content, revision, .. } => Some((content, revision)),
            PlanFile::Missing | PlanFile::Unusable(_) => None,
        }
    }

    #[test]
    fn a_new_plan_is_an_empty_private_file_with_a_name_of_its_own() {
        let place = Place::new();
        let first = place.create(&["otter"]);
        assert_eq!(first.slug, "api-paging-otter");
        assert_eq!(first.path, place.root.join("state/plans/api-paging-otter.md"));
        assert_eq!(plan_at(&first.path), plan(""));
        assert_eq!(first.path.metadata().unwrap().mode() & 0o7777, 0o600);
        for folder in ["state", "state/plans"] {
            assert_eq!(place.root.join(folder).metadata().unwrap().mode() & 0o7777, 0o700, "{folder}");
        }
        assert_eq!(place.create(&["otter", "otter", "lynx"]).slug, "api-paging-lynx");
    }

    #[test]
    fn what_somebody_saved_in_the_plans_place_is_kept_aside() {
        let place = Place::new();
        let path = place.create(&["otter"]).path;
        let too_long = vec![b'x'; usize::try_from(MAX_PLAN).unwrap() + 1];
        for (n, work) in [(1, b"# caf\xe9\n".to_vec()), (2, too_long)] {
            std::fs::write(&path, &work).unwrap();
            let aside = save(&path, "# Plan\n").unwrap().set_aside.unwrap();
            assert_eq!(aside, place.root.join(format!("state/plans/api-paging-otter.md.aside-{n}")));
            assert_eq!(std::fs::read(aside).unwrap(), work);
            assert_eq!(plan_at(&path), plan("# Plan\n"));
        }
        assert_eq!(save(&path, "# Other\n").unwrap().set_aside, None, "a plan is simply replaced");
    }

    #[test]
    fn after_ten_taken_names_the_session_tells_plans_apart() {
        let place = Place::new();
        place.create(&["otter"]);
        let session = SessionId::generate();
        let mut tries = 0;
        let nouns: Nouns<'_> = &mut || {
            tries += 1;
            "otter"
        };
        let created = create(&place.root.join("state/plans"), "api-paging", session, nouns).unwrap();
        assert_eq!(created.slug, format!("api-paging-otter-{session}"));
        assert_eq!(tries, 10);
    }

    #[test]
    fn a_link_with_the_name_of_a_new_plan_counts_as_taken() {
        let place = Place::new();
        std::fs::create_dir_all(place.root.join("state/plans")).unwrap();
        symlink("../../victim", place.root.join("state/plans/api-paging-otter.md")).unwrap();
        assert_eq!(place.create(&["otter", "lynx"]).slug, "api-paging-lynx");
        assert!(!place.root.join("victim").exists());
    }

    #[test]
    fn a_plan_is_written_whole_and_read_back_by_revision() {
        let place = Place::new();
        let path = place.create(&["otter"]).path;
        let written = save(&path, "# Plan\n").unwrap();
        assert_eq!(written, Written { revision: digest_of(b"# Plan\n"), set_aside: None });
        assert_eq!(plan_at(&path), plan("# Plan\n"));
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read(&path).unwrap(), PlanFile::Missing);
        save(&path, "# Again\n").unwrap();
        assert_eq!(plan_at(&path), plan("# Again\n"));
        let huge = "x".repeat(usize::try_from(MAX_PLAN).unwrap() + 1);
        assert!(matches!(save(&path, &huge), Err(PlanError::TooLarge { .. })));
        assert_eq!(plan_at(&path), plan("# Again\n"));
    }

    #[test]
    fn a_plan_that_somebody_saved_since_it_was_read_is_not_written_over() {
        let place = Place::new();
        let path = place.create(&["otter"]).path;
        std::fs::write(&path, "# Theirs\n").unwrap();
        for over in [None, Some(digest_of(b"")), Some(digest_of(b"# Older\n"))] {
            assert!(matches!(write(&path, "# Ours\n", over), Err(PlanError::Changed { .. })), "{over:?}");
            assert_eq!(plan_at(&path), plan("# Theirs\n"));
        }
        write(&path, "# Ours\n", Some(digest_of(b"# Theirs\n"))).unwrap();
        assert_eq!(plan_at(&path), plan("# Ours\n"));
        // One that is gone holds nothing that could be lost.
        std::fs::remove_file(&path).unwrap();
        write(&path, "# Again\n", Some(digest_of(b"# Ours\n"))).unwrap();
        assert_eq!(plan_at(&path), plan("# Again\n"));
    }

    #[test]
    fn what_is_no_plan_is_told_apart() {
        let place = Place::new();
        let path = place.create(&["otter"]).path;
        std::fs::write(&path, b"caf\xe9").unwrap();
        assert_eq!(read(&path).unwrap(), PlanFile::Unusable(Unusable::NotUtf8));
        std::fs::write(&path, vec![b'x'; usize::try_from(MAX_PLAN).unwrap() + 1]).unwrap();
        assert_eq!(read(&path).unwrap(), PlanFile::Unusable(Unusable::TooLarge));
        std::fs::remove_file(&path).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert_eq!(read(&path).unwrap(), PlanFile::Unusable(Unusable::NotRegular(Kind::Fifo)));
    }

    #[test]
    fn pm_23_a_link_in_the_plans_place_is_not_read_and_its_target_not_written() {
        let place = Place::new();
        let path = place.create(&["otter"]).path;
        let source = place.root.join("x.rs");
        std::fs::write(&source, "source").unwrap();
        std::fs::remove_file(&path).unwrap();
        symlink(&source, &path).unwrap();
        assert_eq!(read(&path).unwrap(), PlanFile::Unusable(Unusable::NotRegular(Kind::Link)));
        let aside = path.with_file_name("api-paging-otter.md.aside-1");
        assert_eq!(save(&path, "# Plan\n").unwrap().set_aside, Some(aside.clone()));
        assert_eq!(std::fs::read_link(&aside).unwrap(), source);
        assert_eq!(std::fs::read_to_string(&source).unwrap(), "source");
        assert_eq!(plan_at(&path), plan("# Plan\n"));
    }

    #[test]
    fn pm_23_a_hard_link_is_set_aside_and_the_other_name_unchanged() {
        let place = Place::new();
        let path = place.create(&["otter"]).path;
        let source = place.root.join("x.rs");
        std::fs::write(&source, "source").unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::hard_link(&source, &path).unwrap();
        assert_eq!(read(&path).unwrap(), PlanFile::Unusable(Unusable::Linked));
        let written = save(&path, "# Plan\n").unwrap();
        assert!(written.set_aside.is_some());
        assert_eq!(std::fs::read_to_string(&source).unwrap(), "source");
        assert_eq!(plan_at(&path), plan("# Plan\n"));
    }

    #[test]
    fn pm_23_folders_and_earlier_asides_are_set_aside_too() {
        let place = Place::new();
        let path = place.create(&["otter"]).path;
        for n in 1..=3 {
            std::fs::remove_file(&path).unwrap();
            std::fs::create_dir(&path).unwrap();
            let aside = path.with_file_name(format!("api-paging-otter.md.aside-{n}"));
            assert_eq!(save(&path, "# Plan\n").unwrap().set_aside, Some(aside));
        }
    }

    #[test]
    fn pm_23_a_plans_folder_that_leads_elsewhere_is_not_used() {
        let place = Place::new();
        let path = place.create(&["otter"]).path;
        let plans = path.parent().unwrap();
        std::fs::rename(plans, place.root.join("moved")).unwrap();
        std::fs::create_dir(place.root.join("agents")).unwrap();
        symlink("../agents", plans).unwrap();
        assert!(matches!(save(&path, "# Plan\n"), Err(PlanError::Moved { .. })));
        assert!(matches!(read(&path), Err(PlanError::Moved { .. })));
        assert_eq!(std::fs::read_dir(place.root.join("agents")).unwrap().count(), 0);
    }

    #[test]
    fn pm_23_swapped_links_never_lead_a_plan_outside() {
        let place = Place::new();
        let path = place.create(&["otter"]).path;
        let source = place.root.join("x.rs");
        std::fs::write(&source, "source").unwrap();
        let spare = path.with_file_name("spare");
        symlink(&source, &spare).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let flags = rustix::fs::RenameFlags::EXCHANGE;
                    let cwd = rustix::fs::CWD;
                    if rustix::fs::renameat_with(cwd, &path, cwd, &spare, flags).is_err()
                        || !spare.is_symlink()
                    {
                        let _ = std::fs::remove_file(&spare);
                        let _ = symlink(&source, &spare);
                    }
                }
            });
            let mut written = 0;
            // Each attack may leave one more thing aside; fewer rounds than there are names for them.
            for round in 0..500 {
                written += usize::from(save(&path, &format!("# Plan {round}\n")).is_ok());
                assert_eq!(std::fs::read_to_string(&source).unwrap(), "source", "round {round}");
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(written > 0, "nothing was written, so nothing was shown");
        });
    }
}
