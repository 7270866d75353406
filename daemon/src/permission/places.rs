//! The places that the gate tells apart: the workspace, agentd's own folders, the session's own plan file.

use std::path::{Component, Path, PathBuf};

use super::protected::fold_name;

/// Where a session may be. All paths are absolute and canonical; the gate compares, it never looks at a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The session's folders.
    pub workspace: Vec<PathBuf>,
    /// The root of the project that the first of them is in.
    pub root: PathBuf,
    /// agentd's config, state and runtime folders.
    pub own: Vec<PathBuf>,
    /// The session's own plan file, while it has one.
    pub plan_file: Option<PathBuf>,
    /// What in `own` the session may read: its own blobs. Files, or folders with all they hold.
    pub own_readable: Vec<PathBuf>,
    /// The user's home.
    pub home: PathBuf,
}

/// The most specific place that a path is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Not an absolute real path, so it is nowhere.
    Unresolved,
    OwnPlan,
    OwnReadable,
    Own,
    /// A folder that holds one of agentd's own: a list or a search of it would read them.
    AroundOwn,
    Workspace,
    Elsewhere,
}

impl Places {
    pub(super) fn of(&self, path: &Path) -> Place {
        if !is_resolved(path) {
            Place::Unresolved
        } else if self.plan_file.as_deref().is_some_and(|plan| plan.as_os_str() == path.as_os_str()) {
            Place::OwnPlan
        } else if self.own_readable.iter().any(|readable| path.starts_with(readable)) {
            Place::OwnReadable
        } else if self.own.iter().any(|own| starts_with_folded(path, own)) {
            Place::Own
        } else if self.own.iter().any(|own| starts_with_folded(own, path)) {
            Place::AroundOwn
        } else if self.workspace.iter().any(|root| path.starts_with(root)) {
            Place::Workspace
        } else {
            Place::Elsewhere
        }
    }
}

/// Whether a path is absolute and spelled in the one way that the kernel would spell it. `Path` hides `//`, `/./` and a
/// trailing slash from its components, so the bytes are looked at.
fn is_resolved(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes == b"/"
        || (bytes.first() == Some(&b'/')
            && !bytes.contains(&0)
            && bytes[1..].split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b"..")))
}

/// Whether `path` is `root` or below it, names compared as a case-folding volume would. For places that only close: on
/// other volumes it closes a little more than it must.
fn starts_with_folded(path: &Path, root: &Path) -> bool {
    let mut names = path.components();
    root.components().all(|wanted| match (names.next(), wanted) {
        (Some(Component::Normal(name)), Component::Normal(wanted)) => fold_name(name) == fold_name(wanted),
        (Some(name), wanted) => name == wanted,
        (None, _) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places {
        Places {
            workspace: vec!["/home/u/api".into()],
            root: "/home/u/api".into(),
            own: vec!["/home/u/.local/state/agentd".into(), "/home/u/.config/agentd".into()],
            plan_file: Some("/home/u/.local/state/agentd/plans/api-otter.md".into()),
            own_readable: vec!["/home/u/.local/state/agentd/sessions/1/blobs".into()],
            home: "/home/u".into(),
        }
    }

    #[test]
    fn each_path_is_in_its_most_specific_place() {
        for (path, place) in [
            ("/home/u/api", Place::Workspace),
            ("/home/u/api/src/lib.rs", Place::Workspace),
            ("/home/u/api-other/src", Place::Elsewhere),
            ("/home/u", Place::AroundOwn),
            ("/home/u/.config", Place::AroundOwn),
            ("/", Place::AroundOwn),
            ("/home/other", Place::Elsewhere),
            ("/home/u/.local/state/agentd", Place::Own),
            ("/home/u/.local/state/agentd/plans", Place::Own),
            ("/home/u/.local/state/agentd/plans/other.md", Place::Own),
            ("/home/u/.local/state/agentd/plans/api-otter.md", Place::OwnPlan),
            ("/home/u/.local/state/agentd/plans/api-otter.md/x", Place::Own),
            ("/home/u/.local/state/agentd/plans/API-otter.md", Place::Own),
            ("/home/u/.local/state/agentd/sessions/1/blobs/ab", Place::OwnReadable),
            ("/home/u/.local/state/agentd/sessions/1/blobsx", Place::Own),
            ("/home/u/.local/state/agentd/sessions/1/journal.jsonl", Place::Own),
            ("/home/u/.local/state/agentd-other/x", Place::Elsewhere),
            ("/home/u/.CONFIG/AgentD/keys/x", Place::Own),
        ] {
            assert_eq!(places().of(Path::new(path)), place, "{path}");
        }
    }

    #[test]
    fn a_path_that_is_not_a_real_one_is_nowhere() {
        for path in [
            "",
            "src/lib.rs",
            "/home/u/api/../../../etc/passwd",
            "/home/u/api/./x",
            "/home/u/api//x",
            "/home/u/api/",
            "//home/u/api",
            "/home/u/api/x\0y",
            "/home/u/.local/state/agentd/sessions/1/blobs/../journal.jsonl",
            "/home/u/.local/state/agentd/plans/../plans/api-otter.md",
        ] {
            assert_eq!(places().of(Path::new(path)), Place::Unresolved, "{path}");
        }
    }

    #[test]
    fn agentds_folders_stay_closed_inside_a_workspace() {
        let places = Places { workspace: vec!["/home/u".into()], ..places() };
        assert_eq!(places.of(Path::new("/home/u/.config/agentd/config.toml")), Place::Own);
        assert_eq!(places.of(Path::new("/home/u/.config/other")), Place::Workspace);
        assert_eq!(places.of(Path::new("/home/u/code")), Place::Workspace);
        assert_eq!(places.of(Path::new("/home/u")), Place::AroundOwn, "a search there would read the keys");
    }
}
