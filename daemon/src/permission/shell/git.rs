//! Commands of git that only read, and options of it that name programs.

use super::cwd::Cwd;
use super::readonly::{MAGIC, Reads};
use super::word::Token;

/// Subcommands that only read, and what may follow them.
const GIT: &[(&str, Args)] = &[
    ("status", Args::Any),
    ("log", Args::Any),
    ("diff", Args::Any),
    ("show", Args::Any),
    ("rev-parse", Args::Any),
    ("rev-list", Args::Any),
    ("ls-files", Args::Any),
    ("ls-tree", Args::Any),
    ("blame", Args::Any),
    ("describe", Args::Any),
    ("merge-base", Args::Any),
    ("name-rev", Args::Any),
    ("show-ref", Args::Any),
    ("for-each-ref", Args::Any),
    ("cat-file", Args::Any),
    ("grep", Args::Any),
    (
        "branch",
        Args::Options(&[
            "-a",
            "-r",
            "-v",
            "-vv",
            "--list",
            "--all",
            "--show-current",
            "--remotes",
            "--no-color",
        ]),
    ),
    ("tag", Args::Options(&["-l", "--list", "-n"])),
    ("remote", Args::Options(&["-v", "--verbose"])),
    ("stash", Args::First(&["list"])),
    ("worktree", Args::First(&["list"])),
];

enum Args {
    Any,
    /// Only these.
    Options(&'static [&'static str]),
    /// One of these first.
    First(&'static [&'static str]),
}

/// Options of any subcommand that write, run a program, or read files that are not in the repository.
const GIT_LONG: &[&str] = &[
    "output",
    "ext-diff",
    "textconv",
    "open-files-in-pager",
    "no-index",
    "exec",
    "upload-pack",
    "contents",
    "file",
    "show-signature",
    "ignore-revs-file",
    "filters",
    "exclude-from",
    "exclude-per-directory",
    "batch-command",
    "index-output",
];

/// What a proven command of git reads beside its repository.
pub(super) fn git(arguments: &[Token], cwd: &Cwd) -> Option<Reads> {
    let mut reads = Reads::default();
    let mut rest = arguments;
    let mut cwd = cwd.clone();
    loop {
        let (word, more) = rest.split_first()?;
        match word.value.as_str() {
            "-C" => {
                let (folder, more) = more.split_first().filter(|(folder, _)| !folder.pattern)?;
                cwd = Cwd(folder.path(&cwd));
                rest = more;
            }
            "--no-pager" | "-P" | "--no-optional-locks" | "--literal-pathspecs" => rest = more,
            value if value.starts_with('-') => return None,
            _ => break,
        }
    }
    if !cwd.is_start() {
        reads.files.push(Token::plain(".").path(&cwd));
    }
    let (command, arguments) = rest.split_first()?;
    let (_, args) = GIT.iter().find(|(name, _)| *name == command.value)?;
    match args {
        Args::Any => {}
        Args::Options(options) => {
            if !arguments.iter().all(|word| options.contains(&word.value.as_str())) {
                return None;
            }
        }
        Args::First(first) => {
            if !arguments.first().is_some_and(|word| first.contains(&word.value.as_str())) {
                return None;
            }
        }
    }
    for word in arguments {
        let value = word.value.as_str();
        // Who has signed is asked of a program that settings name.
        if value.contains("%G") || value.contains("(signature") {
            return None;
        }
        if let Some(long) = value.strip_prefix("--") {
            let name = long.split('=').next().unwrap_or(long);
            if !name.is_empty()
                && GIT_LONG
                    .iter()
                    .any(|bad| bad.starts_with(name) || name == format!("no-{bad}") && *bad == "index")
            {
                return None;
            }
        } else if value.starts_with('-') && !word.home {
            // `-O` opens a pager or names an order file, `-f` and `-S` of some name files.
            if value.starts_with("-O")
                || (matches!(command.value.as_str(), "grep" | "blame")
                    && value.starts_with(['-'])
                    && value.contains(['f', 'O', 'S']))
            {
                return None;
            }
        } else if word.pattern && value.starts_with(MAGIC) {
            return None;
        } else if word.home || value.starts_with('/') || value.split('/').any(|name| name == "..") {
            // git compares files outside of its repository as `diff` does.
            reads.add(word, &cwd);
        }
    }
    Some(reads)
}

/// Whether options before git's subcommand name programs, or settings that may: `-c core.pager=…`, `--exec-path=…`.
pub(super) fn configures(arguments: &[Token]) -> bool {
    const SPEAKING: &[&str] =
        &["color.", "advice.", "user.name", "user.email", "core.quotepath", "diff.renames", "log.date"];
    let options = &arguments[..arguments.len() - after_options(arguments).len()];
    let mut words = options.iter();
    while let Some(word) = words.next() {
        let value = word.value.as_str();
        let setting = match value {
            "-c" => words.next(),
            _ if value.starts_with("-c") => Some(word),
            _ if value.starts_with("--exec-path") || value.starts_with("--config-env") => return true,
            _ => continue,
        };
        let Some(setting) = setting else { return true };
        let name = setting.value.trim_start_matches("-c").to_ascii_lowercase();
        if !setting.known || !SPEAKING.iter().any(|known| name.starts_with(known)) {
            return true;
        }
    }
    false
}

/// What follows git's own options: `git -C dir push` is `git push` to whoever denies that.
pub(super) fn after_options(arguments: &[Token]) -> &[Token] {
    let mut rest = arguments;
    while let Some((word, more)) = rest.split_first() {
        rest = match word.value.as_str() {
            "-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace" | "--config-env" | "--super-prefix"
            | "--attr-source" => more.get(1..).unwrap_or_default(),
            value if value.starts_with('-') => more,
            _ => break,
        };
    }
    rest
}
