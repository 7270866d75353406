//! Commands that only read: a short table, with the options and places that keep them so. The kernel carries the rest.

use super::line::{Proof, Word};
use super::parse::base_name;
use super::word::{Cwd, Token};

/// What a command does with its words.
#[derive(Clone, Copy)]
enum Words {
    /// Prints them or looks at the system: no files.
    None,
    /// Files; without any it reads its input.
    Files,
    /// Files; without any the folder it runs in.
    FilesOrHere,
    /// A pattern, then files; the folder it runs in where it searches folders.
    Pattern,
    /// Folders, then tests.
    Find,
}

struct Row {
    program: &'static str,
    words: Words,
    /// Letters of short options that write, run, read files that are not among the words, or follow the links they meet.
    short: &'static str,
    /// Long options of the same kinds, without their dashes. Beginnings of them count, as programs take those.
    long: &'static [&'static str],
    /// So many words at most.
    most: usize,
}

const fn row(program: &'static str, words: Words) -> Row {
    Row { program, words, short: "", long: &[], most: usize::MAX }
}

const ROWS: &[Row] = &[
    row("pwd", Words::None),
    row("true", Words::None),
    row("false", Words::None),
    row(":", Words::None),
    row("echo", Words::None),
    row("printf", Words::None),
    row("cd", Words::None),
    row("basename", Words::None),
    row("dirname", Words::None),
    row("uname", Words::None),
    row("whoami", Words::None),
    row("id", Words::None),
    row("seq", Words::None),
    row("cat", Words::Files),
    row("head", Words::Files),
    row("tail", Words::Files),
    Row { long: &["files0-from"], ..row("wc", Words::Files) },
    row("nl", Words::Files),
    row("tac", Words::Files),
    row("cut", Words::Files),
    row("cmp", Words::Files),
    row("comm", Words::Files),
    Row { most: 1, ..row("uniq", Words::Files) },
    row("tr", Words::None),
    row("stat", Words::FilesOrHere),
    row("realpath", Words::Files),
    row("readlink", Words::Files),
    Row { short: "L", long: &["dereference"], ..row("ls", Words::FilesOrHere) },
    Row {
        short: "XL",
        long: &["files0-from", "exclude-from", "dereference"],
        ..row("du", Words::FilesOrHere)
    },
    Row { short: "Cfm", long: &["compile", "files-from", "magic-file"], ..row("file", Words::Files) },
    Row {
        short: "Xlr",
        long: &["exclude-from", "paginate", "from-file", "to-file", "recursive"],
        ..row("diff", Words::Files)
    },
    Row {
        short: "oTS",
        long: &["output", "temporary-directory", "files0-from", "compress-program", "buffer-size"],
        ..row("sort", Words::Files)
    },
    Row {
        short: "fR",
        long: &["file", "exclude-from", "dereference-recursive"],
        ..row("grep", Words::Pattern)
    },
    Row {
        short: "fzL",
        long: &["file", "pre", "pre-glob", "hostname-bin", "search-zip", "ignore-file", "follow"],
        ..row("rg", Words::Pattern)
    },
    row("find", Words::Find),
];

/// What a word begins with that may become any name.
const MAGIC: [char; 4] = ['*', '?', '[', '{'];

/// Options and tests of `find` that write, run, or follow links.
const FIND: &[&str] = &[
    "-L",
    "-follow",
    "-exec",
    "-execdir",
    "-ok",
    "-okdir",
    "-delete",
    "-fprint",
    "-fprint0",
    "-fprintf",
    "-fls",
    "-files0-from",
];

/// What the shell does itself: no program is looked for.
const BUILTINS: &[&str] = &["pwd", "true", "false", ":", "echo", "printf", "cd"];

/// The proof that a command only reads, and the files that it reads. Closed: every word has to be known.
pub(super) fn proof(words: &[Token], cwd: &Cwd) -> Option<(Proof, Vec<Word>)> {
    let (name, arguments) = words.split_first()?;
    if !words.iter().all(|word| word.known) || name.pattern || name.home {
        return None;
    }
    let program = base_name(&name.value);
    // A name with a folder is a file that somebody chose.
    if name.value != program
        && !["/bin/", "/usr/bin/"].iter().any(|folder| name.value == format!("{folder}{program}"))
    {
        return None;
    }
    let operands = if program == "git" { git(arguments, cwd)? } else { table(program, arguments, cwd)? };
    let builtin = BUILTINS.contains(&name.value.as_str());
    Some((Proof { program: (!builtin).then(|| name.value.clone()) }, operands))
}

fn table(program: &str, arguments: &[Token], cwd: &Cwd) -> Option<Vec<Word>> {
    let row = ROWS.iter().find(|row| row.program == program)?;
    if matches!(row.words, Words::Find) {
        return find(arguments, cwd);
    }
    if program == "printf" && arguments.iter().any(|word| word.value.starts_with("-v")) {
        return None;
    }
    let mut operands: Vec<&Token> = Vec::new();
    let (mut options, mut pattern_given, mut recursive) = (true, false, program == "rg");
    for word in arguments {
        let value = word.value.as_str();
        if !options || !value.starts_with('-') || value == "-" || word.home {
            // It may become the name of a file that looks like an option.
            if options
                && word.pattern
                && value.starts_with(MAGIC)
                && !(row.short.is_empty() && row.long.is_empty())
            {
                return None;
            }
            operands.push(word);
        } else if value == "--" {
            options = false;
        } else if matches!(row.words, Words::None) {
        } else if let Some(long) = value.strip_prefix("--") {
            let name = long.split('=').next().unwrap_or(long);
            if row.long.iter().any(|bad| bad.starts_with(name)) || long.contains('/') {
                return None;
            }
            pattern_given |= name.starts_with("regexp");
            recursive |= name.starts_with("recursive");
        } else {
            // A cluster: any of its letters may be an option, the rest may be an argument.
            if value.chars().skip(1).any(|c| row.short.contains(c)) || value.contains('/') || word.pattern {
                return None;
            }
            pattern_given |= value.contains('e');
            recursive |= value.contains('r');
        }
    }
    if operands.len() > row.most {
        return None;
    }
    let here = || Token::plain(".").path(cwd);
    let files = |words: &[&Token]| {
        words.iter().filter(|word| word.value != "-").map(|word| word.path(cwd)).collect::<Vec<_>>()
    };
    Some(match row.words {
        Words::None => Vec::new(),
        Words::Files => files(&operands),
        Words::FilesOrHere if operands.is_empty() => vec![here()],
        Words::FilesOrHere => files(&operands),
        Words::Pattern => {
            // With the pattern in an option every word is a file; if in doubt, all are.
            let skip = usize::from(!pattern_given).min(operands.len());
            match files(&operands[skip..]) {
                files if files.is_empty() && recursive => vec![here()],
                files => files,
            }
        }
        Words::Find => return None,
    })
}

fn find(arguments: &[Token], cwd: &Cwd) -> Option<Vec<Word>> {
    let magic = |word: &Token| word.pattern && word.value.starts_with(MAGIC);
    if arguments.iter().any(|word| FIND.contains(&word.value.as_str()) || magic(word)) {
        return None;
    }
    let is_test = |word: &&Token| word.value.starts_with(['-', '(', '!']) || word.value == ",";
    let folders: Vec<_> = arguments
        .iter()
        .skip_while(|word| matches!(word.value.as_str(), "-H" | "-P"))
        .take_while(|word| !is_test(word))
        .map(|word| word.path(cwd))
        .collect();
    // Tests that look at another file.
    let compared = arguments.windows(2).filter(|pair| {
        pair[0].value.starts_with("-newer")
            || pair[0].value == "-samefile"
            || pair[0].value.ends_with("newer")
    });
    let compared = compared.map(|pair| pair[1].path(cwd));
    let mut found: Vec<_> = if folders.is_empty() { vec![Token::plain(".").path(cwd)] } else { folders };
    found.extend(compared);
    Some(found)
}

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

fn git(arguments: &[Token], cwd: &Cwd) -> Option<Vec<Word>> {
    let mut operands = Vec::new();
    let mut rest = arguments;
    let mut cwd = cwd.clone();
    loop {
        let (word, more) = rest.split_first()?;
        match word.value.as_str() {
            "-C" => {
                let (folder, more) = more.split_first()?;
                cwd = Cwd::At(folder.path(&cwd));
                rest = more;
            }
            "--no-pager" | "-P" | "--no-optional-locks" | "--literal-pathspecs" => rest = more,
            value if value.starts_with('-') => return None,
            _ => break,
        }
    }
    if !cwd.is_start() {
        operands.push(Token::plain(".").path(&cwd));
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
        if let Some(long) = value.strip_prefix("--") {
            let name = long.split('=').next().unwrap_or(long);
            if !name.is_empty()
                && GIT_LONG
                    .iter()
                    .any(|bad| bad.starts_with(name) || name == format!("no-{bad}") && *bad == "index")
            {
                return None;
            }
            if value.contains("%G") {
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
            operands.push(word.path(&cwd));
        }
    }
    Some(operands)
}

/// Whether options before git's subcommand name programs, or settings that may: `-c core.pager=…`, `--exec-path=…`.
pub(super) fn configures(arguments: &[Token]) -> bool {
    const SPEAKING: &[&str] =
        &["color.", "advice.", "user.name", "user.email", "core.quotepath", "diff.renames", "log.date"];
    let options = &arguments[..arguments.len() - after_git_options(arguments).len()];
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
pub(super) fn after_git_options(arguments: &[Token]) -> &[Token] {
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
