//! Where a program's name leads.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Folders that anybody may write to.
const OPEN_TO_ALL: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// Whether the first program of this name on `path` (folders parted by `:`) lies outside of every one of `writable`, links
/// followed. A name with a folder is that file. What is not found, or not looked up in an absolute folder first, does not.
#[must_use]
pub fn is_foreign_program(name: &str, path: &str, writable: &[&Path]) -> bool {
    let Some(real) = find(name, path) else { return false };
    let open = OPEN_TO_ALL.iter().map(Path::new);
    !writable.iter().copied().chain(open).any(|folder| real.starts_with(folder))
}

fn find(name: &str, path: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return name.starts_with('/').then(|| std::fs::canonicalize(name).ok()).flatten();
    }
    for folder in path.split(':') {
        // An empty or relative one means the folder where the command runs.
        if !folder.starts_with('/') {
            return None;
        }
        let file = Path::new(folder).join(name);
        let runs = std::fs::metadata(&file)
            .is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0);
        if runs {
            return std::fs::canonicalize(file).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(file: &Path) {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_program_counts_where_nobody_but_the_system_writes() {
        let home = tempfile::Builder::new()
            .prefix("p")
            .tempdir_in("/var/lib")
            .or_else(|_| tempfile::tempdir_in(std::env::current_dir().unwrap()))
            .unwrap();
        let root = home.path().canonicalize().unwrap();
        let (project, tools) = (root.join("project"), root.join("tools"));
        program(&project.join("bin/ls"));
        program(&tools.join("rg"));
        std::os::unix::fs::symlink(project.join("bin/ls"), tools.join("linked")).unwrap();
        std::fs::write(tools.join("plain"), "").unwrap();
        let writable = [project.as_path()];
        let (bin, tools_path) = (project.join("bin"), tools.display());
        for (name, path, expected) in [
            ("ls", "/usr/bin:/bin".to_owned(), true),
            ("ls", format!("{}:/usr/bin", bin.display()), false),
            ("ls", ".:/usr/bin".to_owned(), false),
            ("ls", ":/usr/bin".to_owned(), false),
            ("/bin/ls", "/usr/bin".to_owned(), true),
            ("./ls", "/usr/bin".to_owned(), false),
            ("rg", format!("{tools_path}:/usr/bin"), true),
            ("linked", format!("{tools_path}"), false),
            ("plain", format!("{tools_path}"), false),
            ("no-such-program", "/usr/bin".to_owned(), false),
        ] {
            assert_eq!(is_foreign_program(name, &path, &writable), expected, "{name} on {path}");
        }
    }
}
