//! A project as a whole: its folder, what it says about itself, and the sample that the demo starts from.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Base, Kind, Located, PathError, locate, locate_entry};

/// Bytes read of one file of instructions; a little more than is passed on, so that a cut is noticed.
const MAX_INSTRUCTIONS: u64 = 256 * 1024;

/// The folder that a session is to work in, by its true name.
///
/// # Errors
/// The path is relative, missing, or no folder.
pub fn project_folder(typed: &str) -> Result<PathBuf, PathError> {
    let path = Path::new(typed);
    if !path.is_absolute() {
        return Err(PathError::NotAbsolute { path: path.to_owned() });
    }
    if path == Path::new("/") {
        return Ok(path.to_owned());
    }
    let located = locate(Base { cwd: Path::new("/"), home: None }, typed)?;
    match located.must_exist()? {
        Kind::Folder => Ok(located.real),
        _ => Err(PathError::NotAFolder { path: located.real }),
    }
}

/// Whether `folder`, the true name of a session's folder, still is that: not gone, and not a link to another one.
#[must_use]
pub fn is_still_there(folder: &Path) -> bool {
    folder.to_str().is_some_and(|typed| project_folder(typed).is_ok_and(|now| now == folder))
}

/// Where a project's settings stand, below its root.
pub const PROJECT_SETTINGS: &str = ".agentd/config.toml";

/// The folder whose settings hold in `cwd`: the nearest one above with `.git` in it, else `cwd`. Never the home folder
/// nor `/`: what lies there belongs to no project.
#[must_use]
pub fn project_root(cwd: &Path, home: &Path) -> Option<PathBuf> {
    let no_project = |folder: &Path| folder == home || folder == Path::new("/");
    let in_repository = cwd
        .ancestors()
        .take_while(|folder| !no_project(folder))
        .find(|folder| fs::symlink_metadata(folder.join(".git")).is_ok());
    in_repository.or_else(|| (!no_project(cwd)).then_some(cwd)).map(Path::to_owned)
}

/// The bytes of the settings of the project at `root`, its true name; `None` if it has none.
///
/// # Errors
/// It is a link or lies behind one, no regular file, over `limit` bytes, or not readable.
pub fn project_settings(root: &Path, limit: u64) -> Result<Option<Vec<u8>>, PathError> {
    let located = match locate_project_settings(root) {
        Ok(located) => located,
        Err(PathError::Missing { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    if located.found().is_none() {
        return Ok(None);
    }
    located.read(limit).map(|content| Some(content.bytes))
}

/// Where the settings of the project at `root`, its true name, stand or would stand.
///
/// # Errors
/// It is a link or lies behind one.
pub fn locate_project_settings(root: &Path) -> Result<Located, PathError> {
    let expected = root.join(PROJECT_SETTINGS);
    let located = locate_entry(&expected)?;
    if located.real != expected {
        return Err(PathError::NotRegular { path: expected, kind: Kind::Link });
    }
    Ok(located)
}

/// Whether there is anything at `path`.
#[must_use]
pub fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// What a project says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectFacts {
    pub git_branch: Option<String>,
    /// Name and text of its instruction files, in the order in which they are passed on.
    pub instructions: Vec<(String, String)>,
}

/// Reads a project's instruction files and branch. What is missing, too large or no text is left out: the session works
/// without it.
#[must_use]
pub fn project_facts(folder: &Path) -> ProjectFacts {
    let read = |name: &str| -> Option<String> {
        let located = locate(Base { cwd: folder, home: None }, name).ok()?;
        // A link out of the project would send something else to the provider.
        if !located.real.starts_with(folder) {
            return None;
        }
        let content = located.read(MAX_INSTRUCTIONS).ok()?;
        String::from_utf8(content.bytes).ok()
    };
    let instructions = ["AGENTS.md", "CLAUDE.md"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), read(name)?)))
        .collect();
    let git_branch = read(".git/HEAD")
        .and_then(|head| Some(head.trim().strip_prefix("ref: refs/heads/")?.to_owned()))
        .filter(|branch| branch.len() <= 255);
    ProjectFacts { git_branch, instructions }
}

/// Puts the demo's sample project into a folder that holds nothing.
///
/// # Errors
/// The folder holds something already, or a file cannot be written.
pub fn fill_if_empty(folder: &Path, files: &[(&str, &str)]) -> io::Result<()> {
    if fs::read_dir(folder)?.next().is_some() {
        return Err(io::Error::new(
            io::ErrorKind::DirectoryNotEmpty,
            "the demo plays in an empty folder only; start it with `agentctl demo`",
        ));
    }
    for (name, content) in files {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, content)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_folder_is_absolute_there_and_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        assert_eq!(project_folder(dir.path().to_str().unwrap()).unwrap(), real);
        fs::write(real.join("file"), "x").unwrap();
        for bad in [
            "relative",
            "",
            "/proc/self",
            &format!("{}/gone", real.display()),
            &format!("{}/file", real.display()),
        ] {
            assert!(project_folder(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn a_name_that_is_not_text_is_refused_however_it_is_reached() {
        use std::os::unix::ffi::OsStrExt as _;
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join(std::ffi::OsStr::from_bytes(b"odd\xff"));
        fs::create_dir(&odd).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&odd, &link).unwrap();
        let error = project_folder(link.to_str().unwrap()).unwrap_err();
        assert!(matches!(error, PathError::NotUtf8 { .. }), "{error}");
    }

    #[test]
    fn instructions_do_not_follow_links_out_of_the_project() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        let project = real.join("p");
        fs::create_dir(&project).unwrap();
        fs::write(real.join("secret"), "canary").unwrap();
        std::os::unix::fs::symlink(real.join("secret"), project.join("CLAUDE.md")).unwrap();
        fs::write(project.join("AGENTS.md"), "Use tabs.").unwrap();
        fs::create_dir(project.join(".git")).unwrap();
        fs::write(project.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        let facts = project_facts(&project);
        assert_eq!(facts.instructions, [("AGENTS.md".to_owned(), "Use tabs.".to_owned())]);
        assert_eq!(facts.git_branch.as_deref(), Some("main"));
    }

    #[test]
    fn the_sample_only_goes_into_an_empty_folder() {
        let dir = tempfile::tempdir().unwrap();
        fill_if_empty(dir.path(), &[("a/b.txt", "x")]).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("a/b.txt")).unwrap(), "x");
        assert!(fill_if_empty(dir.path(), &[("c", "y")]).is_err());
    }
}
