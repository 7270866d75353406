//! Where the shell is, as far as that is known.

use std::path::{Component, Path, PathBuf};

use super::line::Word;
use super::word::Token;

/// Where the shell is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cwd(pub(super) Word);

impl Cwd {
    pub(super) fn start() -> Self {
        Cwd(Word::Known(PathBuf::from(".")))
    }

    pub(super) fn is_start(&self) -> bool {
        matches!(self, Cwd(Word::Known(folder)) if folder.as_os_str() == ".")
    }
}

/// Where the shell is after a `cd` that worked.
pub(super) fn moved(program: &str, words: &[Token], cwd: &Cwd) -> Cwd {
    let mut arguments = words[1..].iter().filter(|word| !matches!(word.value.as_str(), "--" | "-L"));
    Cwd(match (program, arguments.next(), arguments.next()) {
        ("cd", None, _) => Word::Home(".".into()),
        // `cd ..` takes back the name that led here, where `cat ../x` goes up from where that leads. `-P` goes up as `cat`.
        ("cd", Some(target), None) if !target.pattern && (target.home || !target.value.starts_with('-')) => {
            match target.path(cwd) {
                Word::Known(path) => Word::Known(lexical(&path)),
                Word::Home(path) => Word::Home(lexical(&path)),
                Word::Unknown => Word::Unknown,
            }
        }
        _ => Word::Unknown,
    })
}

/// `.` and what `..` takes back worked out by the letters alone, as `cd` does it; a relative path may begin with `..`.
fn lexical(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => match out.components().next_back() {
                Some(Component::Normal(_)) => drop(out.pop()),
                Some(Component::RootDir) => {}
                _ => out.push(".."),
            },
            other => out.push(other),
        }
    }
    if out.as_os_str().is_empty() { PathBuf::from(".") } else { out }
}
