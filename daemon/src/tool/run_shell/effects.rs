//! What a command line would touch, as far as that can be known before it runs.

use std::path::Path;
use std::sync::Arc;

use crate::permission::effect::{CommandTarget, Effect, PathTarget, Via};
use crate::permission::shell::{Direction, Line, Part, Word, analyse};
use crate::process::DEFAULT_PATH;
use crate::tool::Scene;
use crate::workspace::{self, Base};

/// Paths of one line that are looked at. Of more, nothing is proven.
const MAX_PATHS: usize = 256;

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
        let path = match word {
            Word::Known(path) => self.cwd.join(path),
            Word::Home(path) => self.home?.join(path),
            Word::Unknown => return None,
        };
        let typed = path.to_str()?.to_owned();
        let located = workspace::locate(Base { cwd: self.cwd, home: None }, &typed).ok()?;
        Some(PathTarget { via, typed, real: located.real })
    }
}
