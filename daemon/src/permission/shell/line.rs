//! What a command line is made of. Plain data: whoever judges it reads no shell.

use std::path::PathBuf;

/// A command line, taken apart. `Default` is a line without commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Every simple command anywhere in the line, in the order of its text: of lists, pipes, groups, bodies,
    /// substitutions, and of texts that other commands are known to run (`bash -c '…'`).
    pub parts: Vec<Part>,
    /// The files that the shell itself opens.
    pub redirects: Vec<Redirect>,
    /// Why `parts` may not be all that runs. Then no allow rule and no proof counts; what is known of the parts still
    /// counts for deny and ask rules.
    pub doubt: Option<Doubt>,
}

/// One simple command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The command as typed, without redirects, blanks between its words as one. What allow rules are matched against.
    pub text: String,
    /// All that deny and ask rules are matched against: as typed, without quotes, without assignments, with the program by
    /// its base name, and once more for each command that a wrapper (`env`, `timeout 5`, `nohup`) runs. Never empty.
    pub forms: Vec<String>,
    /// Whether a rule may be made of it that a person did not see word for word: no interpreter, no wrapper, no
    /// assignment, nothing that is only known when it runs.
    pub plain: bool,
    /// It changes what later commands of the line mean: `cd`, `export`, `set`, `alias`, a function.
    pub changes_shell: bool,
    /// Words that may be paths.
    pub operands: Vec<Operand>,
    /// Absent: it is not proven that the command only reads.
    pub proof: Option<Proof>,
}

/// A command of the table of those that only read, with options that keep it so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The program's name, without a folder. It holds only if the name is found outside every writable folder.
    pub program: String,
}

/// A word that may name a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    pub word: Word,
}

/// A word as far as it is known before it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// A path: absolute, or relative to the folder where the line starts (a `cd` before it is worked in).
    Known(PathBuf),
    /// Paths that match a pattern, below a folder that is known.
    Below(PathBuf),
    /// Only known when it runs: a variable, a substitution, `~user`, a place after a `cd` that is not known.
    Unknown(String),
}

/// A file that the shell opens for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    pub target: Word,
    pub direction: Direction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
}

/// Why it is not known what a line runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Doubt {
    /// The parser does not understand it, or not as bash does.
    Unparseable,
    /// Longer than anybody reads.
    TooLong,
    /// Control characters, or a word that bash evaluates once more.
    Evaluated,
    /// The program's name is only known when it runs.
    Program,
    /// An assignment that changes what programs run.
    Assignment,
    /// A construct or builtin that is not looked into: arithmetic, tests, declarations, `coproc`, `@` expansions.
    Construct,
}
