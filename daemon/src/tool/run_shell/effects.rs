//! What a command line would touch, as far as that can be known before it runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::permission::effect::{CommandTarget, Effect, PathTarget, Via};
use crate::permission::shell::{Among, Direction, Line, Part, Word, analyse};
use crate::process::DEFAULT_PATH;
use crate::tool::Scene;
use crate::workspace::{self, Base};

/// Paths of one line that are looked at. Of more, nothing is proven.
const MAX_PATHS: usize = 256;
/// Names in folders that a pattern may stand for. Of more, nothing is proven.
const MAX_NAMES: usize = 2_000;

/// The command itself, then the files that it is known to read, that the shell opens for it, and that it names.
pub(super) fn effects(command: &str, cwd: &Path, scene: &Scene) -> Vec<Effect> {
    let mut line = analyse(command);
    let mut places = Places { cwd, home: home(scene), left: MAX_PATHS };
    let mut proven = line.only_reads() && only_foreign_programs(&line, cwd, scene);
    let mut paths = Vec::new();
    for redirect in &mut line.redirects {
        match places.real(&redirect.target, Via::Redirect) {
            Some(path) => paths.push(match redirect.direction {
                Direction::Read => Effect::ReadPath(path),
                Direction::Write => Effect::WritePath(path),
            }),
            // Where it leads cannot be looked at: as good as a name that is only known when it runs.
            None => {
                redirect.target = Word::Unknown;
                proven = false;
            }
        }
    }
    for part in &line.parts {
        let via = if proven { Via::Operand } else { Via::Mention };
        for word in &part.operands {
            match places.real(word, via) {
                Some(path) => paths.push(Effect::ReadPath(path)),
                None => proven = false,
            }
        }
    }
    if proven {
        // A link among the names that a pattern stands for is followed like one that was typed.
        let mut names = MAX_NAMES;
        for among in line.parts.iter().filter_map(|part| part.proof.as_ref()).flat_map(|proof| &proof.among) {
            match places.links(among, &mut names) {
                Some(links) => paths.extend(links.into_iter().map(Effect::ReadPath)),
                None => proven = false,
            }
        }
    }
    if !proven {
        // Nothing is proven of any part, whichever it was that could not be looked at.
        for effect in &mut paths {
            if let Effect::ReadPath(path) = effect
                && path.via == Via::Operand
            {
                path.via = Via::Mention;
            }
        }
    }
    let target =
        CommandTarget { command: command.to_owned(), cwd: cwd.to_owned(), line: Arc::new(line), proven };
    std::iter::once(Effect::RunCommand(target)).chain(paths).collect()
}

fn variable<'a>(scene: &'a Scene, name: &str) -> Option<&'a str> {
    scene.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn home(scene: &Scene) -> Option<&Path> {
    variable(scene, "HOME").map(Path::new)
}

/// A program of the project, or of a folder that anybody writes to, does what its author likes, whatever its name.
fn only_foreign_programs(line: &Line, cwd: &Path, scene: &Scene) -> bool {
    let path = variable(scene, "PATH").unwrap_or(DEFAULT_PATH);
    let writable = [cwd, scene.cwd.as_path(), scene.scratch.as_path()];
    let program = |part: &Part| part.proof.as_ref().and_then(|proof| proof.program.clone());
    line.parts.iter().filter_map(program).all(|name| workspace::is_foreign_program(&name, path, &writable))
}

struct Places<'a> {
    cwd: &'a Path,
    home: Option<&'a Path>,
    left: usize,
}

impl Places<'_> {
    fn real(&mut self, word: &Word, via: Via) -> Option<PathTarget> {
        self.left = self.left.checked_sub(1)?;
        self.locate(&self.path(word)?, via)
    }

    fn path(&self, word: &Word) -> Option<PathBuf> {
        match word {
            Word::Known(path) => Some(self.cwd.join(path)),
            Word::Home(path) => Some(self.home?.join(path)),
            Word::Unknown => None,
        }
    }

    fn locate(&self, path: &Path, via: Via) -> Option<PathTarget> {
        let typed = path.to_str()?.to_owned();
        let located = workspace::locate(Base { cwd: self.cwd, home: None }, &typed).ok()?;
        Some(PathTarget { via, typed, real: located.real })
    }

    /// Where the links lead that lie where the pattern looks. Absent: that cannot be known.
    fn links(&mut self, among: &Among, names: &mut usize) -> Option<Vec<PathTarget>> {
        let links = workspace::links_among(&self.path(&among.folder)?, among.levels, names)?;
        self.left = self.left.checked_sub(links.len())?;
        links.iter().map(|link| self.locate(link, Via::Operand)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::ids::SessionId;
    use crate::tool::Closed;

    #[test]
    fn links_on_the_way_of_a_proven_command_are_read_too() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let cwd = root.join("project");
        for folder in ["project/src/deep", "project/other", "secret/below"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::fs::write(root.join("secret/key"), "").unwrap();
        std::fs::write(cwd.join("src/a.rs"), "").unwrap();
        symlink(root.join("secret/key"), cwd.join("src/deep/link")).unwrap();
        symlink(root.join("secret/below"), cwd.join("into")).unwrap();
        let scene = Scene {
            session: SessionId::from_uuid(uuid::Uuid::nil()),
            cwd: cwd.clone(),
            plan_file: None,
            reads: Arc::new(HashMap::new()),
            env: Arc::new(vec![("HOME".to_owned(), root.display().to_string())]),
            scratch: root.join("scratch"),
            closed: Closed::default(),
        };
        for (line, proven, reads) in [
            ("cat src/*", true, "project/src"),
            ("cat src/deep/*", true, "project/src/deep secret/key"),
            ("cat src/*/link", true, "project/src secret/key"),
            // A link to a folder that the pattern goes on into.
            ("cat */key", false, "project"),
            ("cat into/../key", true, "secret/key"),
            ("cd into && cat ../key", true, "secret/key"),
            ("cd src/.. && cat into/x", true, "secret/below/x"),
            ("cd src && cat ../src/a.rs", true, "project/src/a.rs"),
            ("diff src/deep other", true, "project/other project/src/deep secret/key"),
            ("head -n1 ~/secret/k*", true, "secret"),
        ] {
            let effects = effects(line, &cwd, &scene);
            let Some(Effect::RunCommand(target)) = effects.first() else { panic!("{line}: no command") };
            assert_eq!(target.proven, proven, "{line}");
            let mut read: Vec<_> = effects
                .iter()
                .filter_map(|effect| match effect {
                    Effect::ReadPath(path) => {
                        assert_eq!(path.via, if proven { Via::Operand } else { Via::Mention }, "{line}");
                        Some(path.real.strip_prefix(&root).unwrap().display().to_string())
                    }
                    _ => None,
                })
                .collect();
            read.sort();
            read.dedup();
            assert_eq!(read.join(" "), reads, "{line}");
        }
    }
}
