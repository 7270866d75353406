//! Commands that only read: a short table, with the options and places that keep them so. The kernel carries the rest.

use super::cwd::Cwd;
use super::git::git;
use super::line::{Among, Proof, Word};
use super::part::base_name;
use super::word::Token;

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
    Row {
        short: "CfmzZ",
        long: &["compile", "files-from", "magic-file", "uncompress", "uncompress-noreport"],
        ..row("file", Words::Files)
    },
    Row {
        short: "Xlr",
        long: &["exclude-from", "paginate", "from-file", "to-file", "recursive"],
        ..row("diff", Words::Files)
    },
    Row {
        short: "oTS",
        long: &[
            "output",
            "temporary-directory",
            "files0-from",
            "compress-program",
            "buffer-size",
            "random-source",
        ],
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
pub(super) const MAGIC: [char; 4] = ['*', '?', '[', '{'];

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

/// The files that a command reads: those among its words, and folders of which it reads several.
#[derive(Default)]
pub(super) struct Reads {
    pub files: Vec<Word>,
    pub among: Vec<Among>,
}

impl Reads {
    pub(super) fn add(&mut self, word: &Token, cwd: &Cwd) {
        self.files.push(word.path(cwd));
        if word.pattern {
            self.among.push(Among { folder: word.path(cwd), levels: word.levels() });
        }
    }

    fn here(cwd: &Cwd) -> Self {
        Reads { files: vec![Token::plain(".").path(cwd)], among: Vec::new() }
    }
}

/// A word that may become an option that nobody has seen: `-{o,r}`, `--outpu[t]=x`.
fn may_become_option(word: &Token) -> bool {
    word.pattern && word.value.starts_with('-')
}

/// The proof that a command only reads, and the files that it reads. Closed: every word has to be known.
pub(super) fn proof(words: &[Token], cwd: &Cwd) -> Option<(Proof, Vec<Word>)> {
    let (name, arguments) = words.split_first()?;
    if !words.iter().all(|word| word.known) || name.pattern || name.home {
        return None;
    }
    if arguments.iter().any(may_become_option) {
        return None;
    }
    let program = base_name(&name.value);
    // A name with a folder is a file that somebody chose.
    if name.value != program
        && !["/bin/", "/usr/bin/"].iter().any(|folder| name.value == format!("{folder}{program}"))
    {
        return None;
    }
    let Reads { files, among } =
        if program == "git" { git(arguments, cwd)? } else { table(program, arguments, cwd)? };
    let builtin = BUILTINS.contains(&name.value.as_str());
    Some((Proof { program: (!builtin).then(|| name.value.clone()), among }, files))
}

fn table(program: &str, arguments: &[Token], cwd: &Cwd) -> Option<Reads> {
    let row = ROWS.iter().find(|row| row.program == program)?;
    if matches!(row.words, Words::Find) {
        return find(arguments, cwd);
    }
    if program == "printf"
        && (arguments.first().is_some_and(|word| word.pattern)
            || arguments.iter().any(|word| word.value.starts_with("-v")))
    {
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
            // Beginnings of both count, and `--directories=recurse`; `rg --files` takes no pattern.
            let begins = |whole: &str| whole.starts_with(name) || name.starts_with(whole);
            pattern_given |= begins("regexp") || name == "files";
            recursive |= begins("recursive") || begins("directories");
        } else {
            // A cluster: any of its letters may be an option, the rest may be an argument.
            if value.chars().skip(1).any(|c| row.short.contains(c)) || value.contains('/') || word.pattern {
                return None;
            }
            pattern_given |= value.contains('e');
            recursive |= value.contains(['r', 'd']);
        }
    }
    // A pattern may become more of them.
    if operands.len() > row.most || row.most < usize::MAX && operands.iter().any(|word| word.pattern) {
        return None;
    }
    let files = |words: &[&Token]| {
        let mut reads = Reads::default();
        // What looks like a file may belong to an option: `ls -I x`, `grep -d recurse x`.
        if !cwd.is_start() && (recursive || matches!(row.words, Words::FilesOrHere)) {
            reads = Reads::here(cwd);
        }
        words.iter().filter(|word| word.value != "-").for_each(|word| reads.add(word, cwd));
        if program == "diff" {
            // Of two folders it compares the files in them.
            let both = words.iter().map(|word| Among { folder: word.path(cwd), levels: word.levels() + 1 });
            reads.among.extend(both);
        }
        reads
    };
    Some(match row.words {
        // Names of files in a folder are something that is read there.
        Words::None => {
            let patterns: Vec<_> = operands.into_iter().filter(|word| word.pattern).collect();
            Reads { among: Vec::new(), ..files(&patterns) }
        }
        Words::Files => files(&operands),
        Words::FilesOrHere if operands.is_empty() => Reads::here(cwd),
        Words::FilesOrHere => files(&operands),
        Words::Pattern => {
            // With the pattern in an option every word is a file; if in doubt, all are.
            let skip = usize::from(!pattern_given).min(operands.len());
            match files(&operands[skip..]) {
                reads if reads.files.is_empty() && recursive => Reads::here(cwd),
                reads => reads,
            }
        }
        Words::Find => return None,
    })
}

fn find(arguments: &[Token], cwd: &Cwd) -> Option<Reads> {
    let magic = |word: &Token| word.pattern && word.value.starts_with(MAGIC);
    // What may stand before the folders.
    let leads = |word: &Token| word.value == "--" || word.value.starts_with("-O") || word.value == "-D";
    if arguments.iter().any(|word| FIND.contains(&word.value.as_str()) || magic(word) || leads(word)) {
        return None;
    }
    let is_test = |word: &&Token| word.value.starts_with(['-', '(', '!']) || word.value == ",";
    let mut found = Reads::default();
    let folders = arguments.iter().skip_while(|word| matches!(word.value.as_str(), "-H" | "-P"));
    folders.take_while(|word| !is_test(word)).for_each(|word| found.add(word, cwd));
    // Tests that look at another file.
    let compared = arguments.windows(2).filter(|pair| {
        pair[0].value.starts_with("-newer")
            || pair[0].value == "-samefile"
            || pair[0].value.ends_with("newer")
    });
    if found.files.is_empty() {
        found = Reads::here(cwd);
    }
    compared.for_each(|pair| found.add(&pair[1], cwd));
    Some(found)
}
