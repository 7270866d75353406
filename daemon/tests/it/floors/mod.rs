//! The shape of the daemon, held by a test: a lower floor never imports a higher one, and what touches files, starts
//! processes or speaks JSON-RPC stays in the modules that own it. See ARCHITECTURE.md, "The floors of the daemon".

mod source;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Every top-level module and the floor it is on. A module that is not here fails the test: decide where it belongs.
const FLOORS: &[(&str, u32)] = &[
    ("clock", 1),
    ("config", 1),
    ("ids", 1),
    ("paths", 1),
    ("secret", 1),
    ("journal", 2),
    ("model", 2),
    ("permission", 2),
    ("plan", 2),
    ("process", 2),
    ("store", 2),
    ("workspace", 2),
    ("context", 3),
    ("tool", 3),
    ("session", 4),
    ("registry", 5),
    ("rpc", 6),
    ("lib", 7),
    ("main", 7),
    ("start", 7),
];

const FILES: &[&str] = &["workspace", "journal", "store", "config", "secret", "paths"];

/// Paths that only some modules may name, and what the others do instead.
const OWNED: &[Owned] = &[
    Owned {
        path: "std::fs",
        only_in: FILES,
        instead: "go through `workspace` (project files), `journal` or `paths`",
    },
    Owned {
        path: "tokio::fs",
        only_in: FILES,
        instead: "go through `workspace` (project files), `journal` or `paths`",
    },
    Owned {
        path: "File",
        only_in: FILES,
        instead: "go through `workspace` (project files), `journal` or `paths`",
    },
    // `process` opens what it hands to a child; `rpc` owns its socket file and looks at its peers in /proc.
    Owned {
        path: "rustix::fs",
        only_in: &["workspace", "journal", "config", "secret", "paths", "process", "rpc"],
        instead: "go through `workspace` (project files), `journal` or `paths`",
    },
    Owned { path: "std::process::Command", only_in: &["process"], instead: "start it through `process`" },
    Owned { path: "tokio::process", only_in: &["process"], instead: "start it through `process`" },
    Owned { path: "Command::new", only_in: &["process"], instead: "start it through `process`" },
    Owned { path: "jsonrpsee", only_in: &["rpc", "start"], instead: "leave JSON-RPC to `rpc`" },
    Owned {
        path: "unbounded_channel",
        only_in: &[],
        instead: "use a bounded channel and say what happens when it is full",
    },
    Owned { path: "std::sync::mpsc::channel", only_in: &[], instead: "use `sync_channel`, which is bounded" },
    Owned {
        path: "mpsc::UnboundedSender",
        only_in: &[],
        instead: "use a bounded channel and say what happens when it is full",
    },
    Owned { path: "pre_exec", only_in: &[], instead: "let the helper subcommand do it after the start" },
];

/// Methods of `Path` that look at a disk without naming `std::fs`.
const LOOKS: &[&str] = &[
    "canonicalize",
    "exists",
    "try_exists",
    "is_dir",
    "is_file",
    "is_symlink",
    "read_dir",
    "read_link",
    "symlink_metadata",
];

struct Owned {
    path: &'static str,
    only_in: &'static [&'static str],
    instead: &'static str,
}

impl Owned {
    /// Whether `path` names this one: from its start, or from any later segment when ours is no absolute one.
    fn is_named_by(&self, path: &str) -> bool {
        let wanted: Vec<&str> = self.path.split("::").collect();
        let named: Vec<&str> = path.split("::").collect();
        let absolute = matches!(wanted[0], "std" | "tokio" | "rustix" | "jsonrpsee");
        if absolute {
            named.starts_with(&wanted)
        } else if self.path == "File" {
            // The type as such appears in signatures everywhere; its constructors are what opens.
            named.len() >= 2 && named[named.len() - 2] == "File"
        } else {
            named.windows(wanted.len()).any(|window| window == wanted)
        }
    }
}

/// Everything wrong with one file's text. `file` is relative to `src`.
fn violations(file: &Path, text: &str) -> Vec<String> {
    let modules = module_path(file);
    let Some(top) = modules.first().map(String::as_str) else { return Vec::new() };
    let mut found = Vec::new();
    let mut report =
        |line: usize, problem: String| found.push(format!("src/{}:{line}: {problem}", file.display()));

    let Some(floor) = floor_of(top) else {
        report(1, format!("module `{top}` has no floor; add it to FLOORS in tests/it/floors"));
        return found;
    };
    for (line, path) in source::paths(text) {
        if let Some(other) = imported_module(&path, modules.len()) {
            match floor_of(other) {
                Some(theirs) if theirs > floor => report(
                    line,
                    format!(
                        "`{top}` (floor {floor}) imports `{other}` (floor {theirs}); a lower floor never imports a higher one"
                    ),
                ),
                Some(_) => {}
                None => report(line, format!("`{path}` is in no module of FLOORS in tests/it/floors")),
            }
        }
        for owned in OWNED.iter().filter(|owned| owned.is_named_by(&path) && !owned.only_in.contains(&top)) {
            report(line, format!("`{path}` is not for `{top}`; {}", owned.instead));
        }
    }
    if !FILES.contains(&top) && top != "process" {
        for method in LOOKS {
            for (at, _) in text.match_indices(&format!(".{method}(")) {
                report(
                    source::line_of(text, at),
                    format!("`.{method}()` looks at the disk; go through `workspace` or `paths`"),
                );
            }
        }
    }
    found
}

/// The top-level module that a path leads to, if it leads out of its own: by `crate::`, or by enough `super::`.
fn imported_module(path: &str, depth: usize) -> Option<&str> {
    let mut segments = path.split("::").peekable();
    if segments.peek() == Some(&"crate") {
        segments.next();
        return segments.next().filter(|name| !matches!(*name, "self" | "*"));
    }
    let mut supers = 0;
    while segments.next_if_eq(&"super").is_some() {
        supers += 1;
    }
    // Deeper than the file is: from an inline module. Its names are known modules or the file's own.
    (supers >= depth && supers > 0)
        .then(|| segments.next())
        .flatten()
        .filter(|name| supers == depth || floor_of(name).is_some())
        .filter(|name| !matches!(*name, "*"))
}

fn floor_of(module: &str) -> Option<u32> {
    FLOORS.iter().find(|(name, _)| *name == module).map(|(_, floor)| *floor)
}

/// `permission/critical/tests.rs` as `permission`, `critical`, `tests`.
fn module_path(file: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        file.with_extension("").iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if names.len() > 1 && names.last().is_some_and(|name| name == "mod") {
        names.pop();
    }
    names
}

/// All source files that are not test code, by their path below `src`, reduced to what the rules look at.
fn sources(src: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    collect(src, &mut files);
    let mut tests = HashSet::new();
    let mut reduced = Vec::new();
    for file in files {
        let relative = file.strip_prefix(src).unwrap().to_owned();
        let text = source::without_comments_and_literals(&std::fs::read_to_string(&file).unwrap());
        let (text, test_modules) = source::without_tests(&text);
        let own = module_path(&relative);
        let own = if own == ["lib"] || own == ["main"] { Vec::new() } else { own };
        tests.extend(test_modules.into_iter().map(|name| [own.clone(), vec![name]].concat()));
        reduced.push((relative, text));
    }
    reduced.retain(|(file, _)| {
        let path = module_path(file);
        !(1..=path.len()).any(|len| tests.contains(&path[..len]))
    });
    reduced
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
}

#[test]
fn the_daemon_keeps_its_floors() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let sources = sources(&src);
    assert!(sources.len() > FLOORS.len() / 2, "found only {} files under {}", sources.len(), src.display());
    let found: Vec<String> = sources.iter().flat_map(|(file, text)| violations(file, text)).collect();
    assert!(found.is_empty(), "{} places break the floors:\n{}", found.len(), found.join("\n"));
}

#[test]
fn every_module_of_the_table_exists_once() {
    let names: HashSet<&str> = FLOORS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), FLOORS.len());
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for name in names {
        let exists = src.join(format!("{name}.rs")).is_file() || src.join(name).join("mod.rs").is_file();
        assert!(exists, "there is no module {name}");
    }
}

/// What the rules find in a snippet, as it would be found in a file.
fn found_in(file: &str, snippet: &str) -> Vec<String> {
    let (text, _) = source::without_tests(&source::without_comments_and_literals(snippet));
    violations(Path::new(file), &text)
}

#[test]
fn bad_snippets_are_caught() {
    for (file, snippet) in [
        ("journal/mod.rs", "use crate::session::State;"),
        ("journal/mod.rs", "fn f() { crate::rpc::serve(); }"),
        ("journal/mod.rs", "use crate::{ids::Seq, session::State};"),
        ("journal/mod.rs", "use super::session::State;"),
        ("journal/line.rs", "use super::super::session::State;"),
        ("journal/line.rs", "mod inner { use super::super::super::session::State; }"),
        ("clock.rs", "use super::journal::Line;"),
        ("permission/gate.rs", "use crate::tool::Tool;"),
        ("tool/mod.rs", "use crate::start::run;"),
        ("tool/mod.rs", "use crate::unheard_of::Thing;"),
        ("novel/mod.rs", "fn f() {}"),
        ("tool/read.rs", "use std::fs;"),
        ("tool/read.rs", "use std::{fs, io};"),
        ("tool/read.rs", "use std::{fs as files};"),
        ("tool/read.rs", "fn f() { std::fs::read(x) }"),
        ("tool/read.rs", "fn f() { tokio::fs::read(x) }"),
        ("tool/read.rs", "use std::fs::File;"),
        ("tool/read.rs", "fn f() { File::open(x) }"),
        ("tool/read.rs", "fn f() { tokio :: fs :: File :: open(x) }"),
        ("tool/read.rs", "use rustix::fs::open;"),
        ("tool/read.rs", "fn f() { path.canonicalize() }"),
        ("tool/read.rs", "fn f() { path.exists() }"),
        ("session/turn.rs", "use std::process::Command;"),
        ("session/turn.rs", "use std::process::{Command, Stdio};"),
        ("session/turn.rs", "fn f() { Command::new(x) }"),
        ("session/turn.rs", "use tokio::process::Command;"),
        ("process/mod.rs", "fn f() { command.pre_exec(x) }"),
        ("session/actor.rs", "use tokio::sync::mpsc::unbounded_channel;"),
        ("session/actor.rs", "fn f() { mpsc::unbounded_channel() }"),
        ("session/actor.rs", "fn f() { std::sync::mpsc::channel() }"),
        ("session/mod.rs", "use jsonrpsee::types::ErrorObject;"),
        ("session/mod.rs", "fn f() -> jsonrpsee::RpcModule<()> {}"),
    ] {
        assert!(!found_in(file, snippet).is_empty(), "not caught in {file}: {snippet}");
    }
}

#[test]
fn good_snippets_pass() {
    for (file, snippet) in [
        ("session/mod.rs", "use crate::{journal::Line, tool::Tool};"),
        ("session/mod.rs", "use super::journal::Line;"),
        ("session/turn.rs", "use super::state::State;"),
        ("journal/mod.rs", "use std::fs::File; fn f() { File::open(x) }"),
        ("workspace/open.rs", "use rustix::fs::openat2; fn f() { path.exists() }"),
        ("process/mod.rs", "use tokio::process::Command; fn f() { Command::new(x) }"),
        ("rpc/mod.rs", "use jsonrpsee::RpcModule;"),
        ("start.rs", "use crate::rpc::serve; use std::process::ExitCode;"),
        ("main.rs", "fn main() { agentd::start::main() }"),
        ("tool/mod.rs", "// use crate::session::State;\n/* std::fs */ const X: &str = \"std::fs::read\";"),
        ("tool/mod.rs", "#[cfg(test)]\nmod tests { use std::fs; use crate::session::State; }"),
        ("tool/mod.rs", "use tokio::sync::mpsc; fn f() { mpsc::channel(8) }"),
    ] {
        assert_eq!(found_in(file, snippet), Vec::<String>::new(), "{file}: {snippet}");
    }
}

#[test]
fn a_violation_names_its_place_and_the_way_out() {
    let found = found_in("tool/read.rs", "\n\nfn f() { std::fs::read(x) }");
    assert_eq!(
        found,
        [
            "src/tool/read.rs:3: `std::fs::read` is not for `tool`; go through `workspace` (project files), `journal` or `paths`"
        ]
    );
}
