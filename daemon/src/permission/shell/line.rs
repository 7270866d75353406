//! What a command line is made of. Plain data: whoever judges it reads no shell.

use std::path::PathBuf;

/// A command line, taken apart. `Default` is a line without commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Every simple command anywhere in the line: of lists, pipes, groups, bodies, substitutions, those behind wrappers
    /// (`timeout 5 make` is two: itself and `make`), and those of texts that other commands run (`bash -c '…'`).
    pub parts: Vec<Part>,
    /// The files that the shell itself opens.
    pub redirects: Vec<Redirect>,
    /// Why `parts` may not be all that runs. Then no allow rule and no proof counts; what is known of the parts still
    /// counts for deny and ask rules.
    pub doubt: Option<Doubt>,
}

impl Line {
    /// Whether the shell opens a file of which the name is only known when it runs.
    #[must_use]
    pub fn opens_unknown(&self) -> bool {
        self.redirects.iter().any(|redirect| !matches!(redirect.target, Word::Known(_) | Word::Home(_)))
    }

    /// Whether every part is in the table of those that only read, given files that are known.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        self.doubt.is_none()
            && !self.parts.is_empty()
            && !self.opens_unknown()
            && self.parts.iter().all(|part| {
                part.proof.is_some() && !part.operands.iter().any(|word| matches!(word, Word::Unknown))
            })
    }
}

/// One simple command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The command as typed, without redirects and harmless assignments, its words parted by one blank. What allow rules
    /// are matched against.
    pub text: String,
    /// All that deny and ask rules are matched against: as typed, without quotes, with the program by its base name,
    /// without options that come before a subcommand. Never empty.
    pub forms: Vec<String>,
    /// The text means the same whenever it runs: no variable, no substitution.
    pub plain: bool,
    /// It changes what later commands of the line mean.
    pub changes_shell: bool,
    /// Words that may be paths.
    pub operands: Vec<Word>,
    /// Absent: it is not proven that the command only reads.
    pub proof: Option<Proof>,
}

/// A command of the table of those that only read, with options that keep it so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The program as typed. It holds only if that is found outside of every folder that agents write to; absent for what
    /// the shell does itself.
    pub program: Option<String>,
    /// Folders of which the command reads what a pattern matches, or all. A link in one is followed.
    pub among: Vec<Among>,
}

/// The files that some names in a folder may stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Among {
    pub folder: Word,
    /// So many folders down: 1 is what lies in it.
    pub levels: usize,
}

/// A word as far as it is known before it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// A path: absolute, or relative to the folder where the line starts (a `cd` before it is worked in). Its `..` are the
    /// kernel's: behind a link they lead to where that is.
    Known(PathBuf),
    /// The same below the home.
    Home(PathBuf),
    /// Only known when it runs: a variable, a substitution, `~user`, a place after a `cd` that is not known.
    Unknown,
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
    /// Longer or deeper than anybody reads.
    TooLong,
    /// Control characters, or a word that bash evaluates once more.
    Evaluated,
    /// The program's name is only known when it runs.
    Program,
    /// An assignment that changes what programs run.
    Assignment,
    /// A construct or builtin that is not looked into: arithmetic, tests, declarations, functions, `@` expansions.
    Construct,
}

impl Doubt {
    /// One sentence for people.
    #[must_use]
    pub fn explain(self) -> &'static str {
        match self {
            Doubt::Unparseable => "It is not understood as bash would.",
            Doubt::TooLong => "It is too long to be looked through.",
            Doubt::Evaluated => "It holds control characters, or a word that bash evaluates once more.",
            Doubt::Program => "The name of a program in it is only known when it runs.",
            Doubt::Assignment => "An assignment in it may change what programs run.",
            Doubt::Construct => {
                "It holds something that is not looked into: arithmetic, a test, a declaration, a function, a builtin."
            }
        }
    }
}
