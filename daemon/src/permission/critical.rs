//! Critical commands: those that can destroy a system, a home folder or a whole project in one line.
//!
//! A recogniser, not a proof: it errs towards asking. A wrong hit costs a person one question; a miss leaves the command
//! to the rest of the gate, which without a sandbox asks about every command anyway.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use super::shell_text::{SimpleCommand, simple_commands};

/// Longer commands count as critical: nobody reads them, and looking for commands inside words costs time.
const MAX_LEN: usize = 64 * 1024;

/// How often a text inside a word (`bash -c 'sh -c "…"'`) is looked into.
const MAX_DEPTH: u32 = 4;

/// Programs that run the command in their arguments. After one of them any word may be the program.
const WRAPPERS: &[&str] = &[
    "sudo",
    "doas",
    "su",
    "run0",
    "pkexec",
    "env",
    "nohup",
    "timeout",
    "nice",
    "ionice",
    "chrt",
    "taskset",
    "stdbuf",
    "setsid",
    "time",
    "command",
    "builtin",
    "exec",
    "xargs",
    "parallel",
    "busybox",
    "toybox",
    "strace",
    "ltrace",
    "watch",
    "flock",
    "unshare",
    "nsenter",
    "chroot",
    "systemd-run",
    "eval",
    "ssh",
    "find",
    "fd",
    "if",
    "then",
    "else",
    "elif",
    "while",
    "until",
    "do",
    "!",
    "coproc",
    "-exec",
];

/// Programs that destroy whatever they are pointed at, or stop the machine.
const ALWAYS: &[&str] = &[
    "shred",
    "wipefs",
    "blkdiscard",
    "mkswap",
    "fdisk",
    "sfdisk",
    "sgdisk",
    "parted",
    "shutdown",
    "reboot",
    "halt",
    "poweroff",
    "telinit",
];

/// Whether `command`, run by a shell in `cwd`, may be critical.
pub(super) fn is_critical(command: &str, cwd: &Path, home: &Path) -> bool {
    if command.len() > MAX_LEN || is_fork_bomb(command) {
        return true;
    }
    let scene = Scene { start: cwd, home };
    // The spellings of "here" and of a blank that would otherwise be split apart.
    let command = command
        .replace("$(pwd)", "$PWD")
        .replace("`pwd`", "$PWD")
        .replace("${IFS}", " ")
        .replace("$IFS", " ");
    scene.text(&command, MAX_DEPTH)
}

struct Scene<'a> {
    /// Where the command starts.
    start: &'a Path,
    home: &'a Path,
}

/// What is known of the shell while the text is read from front to back.
struct Shell {
    /// `None` after a `cd` to a place that is not known.
    cwd: Option<PathBuf>,
    variables: HashMap<String, String>,
}

impl Scene<'_> {
    fn text(&self, text: &str, depth: u32) -> bool {
        let mut shell = Shell { cwd: Some(self.start.to_owned()), variables: HashMap::new() };
        shell.variables.insert("HOME".to_owned(), self.home.to_string_lossy().into_owned());
        shell.variables.insert("PWD".to_owned(), self.start.to_string_lossy().into_owned());
        simple_commands(text).into_iter().any(|command| {
            let inner = depth > 0 && command.words.iter().any(|word| self.inside_word(word, depth - 1));
            inner || self.simple(command, &mut shell)
        })
    }

    /// A word may be a command for another shell (`sh -c '…'`), or a brace expansion (`{rm,-rf,/}`).
    fn inside_word(&self, word: &str, depth: u32) -> bool {
        (word.contains(char::is_whitespace) && self.text(word, depth))
            || (word.contains(',') && self.text(&word.replace(',', " "), depth))
    }

    fn simple(&self, command: SimpleCommand, shell: &mut Shell) -> bool {
        let outputs = command.outputs.iter().map(|word| shell.expand(word));
        if outputs.into_iter().any(|target| is_device(&target)) {
            return true;
        }
        let mut words = Vec::with_capacity(command.words.len());
        for word in &command.words {
            if let Some((name, value)) = word.split_once('=').filter(|(name, _)| is_variable(name)) {
                let value = shell.expand(value);
                shell.variables.insert(name.to_owned(), value);
                // Before the program it is an assignment only; behind it (`export`, `env`, `dd`) a word as well.
                if words.is_empty() {
                    continue;
                }
            }
            // A variable may hold several words: `$CMD` with CMD="rm -rf /".
            words.extend(shell.expand(word).split_whitespace().map(str::to_owned));
        }
        let Some(first) = words.first() else { return false };
        if matches!(program(first).as_str(), "cd" | "pushd") {
            shell.change_folder(self, words.get(1).map(String::as_str));
            return false;
        }
        self.programs(&words, shell)
    }

    /// Looks at the command's program, and behind a wrapper at every word that may be one.
    fn programs(&self, words: &[String], shell: &Shell) -> bool {
        let mut wrapped = false;
        for (at, word) in words.iter().enumerate() {
            let name = program(word);
            if self.is_critical_program(&name, &words[at + 1..], words, shell) {
                return true;
            }
            wrapped |= WRAPPERS.contains(&name.as_str());
            if !wrapped {
                return false;
            }
        }
        false
    }

    fn is_critical_program(&self, name: &str, arguments: &[String], all: &[String], shell: &Shell) -> bool {
        match name {
            "rm" | "unlink" | "rmdir" => self.removes_all(name, arguments, all, shell),
            "chmod" | "chown" | "chgrp" => {
                is_recursive(arguments) && operands(arguments).any(|word| self.is_vital(word, shell))
            }
            "find" => self.find_removes_all(arguments, shell),
            "dd" => arguments.iter().any(|word| word.strip_prefix("of=").is_some_and(is_device)),
            "tee" | "cp" | "mv" | "install" | "cat" | "pv" => arguments.iter().any(|word| is_device(word)),
            "init" => arguments.iter().any(|word| matches!(word.as_str(), "0" | "6")),
            "systemctl" | "loginctl" => arguments.iter().any(|word| {
                matches!(word.as_str(), "poweroff" | "reboot" | "halt" | "kexec" | "soft-reboot")
            }),
            "kill" => arguments.len() > 1 && arguments.iter().skip(1).any(|word| word == "-1"),
            "cryptsetup" => arguments.iter().any(|word| matches!(word.as_str(), "luksFormat" | "erase")),
            // An unknown program with the arguments of a deadly one.
            _ if name.starts_with('$') => self.removes_all("rm", arguments, all, shell),
            _ => name.starts_with("mkfs") || ALWAYS.contains(&name),
        }
    }

    fn removes_all(&self, name: &str, arguments: &[String], all: &[String], shell: &Shell) -> bool {
        let recursive = name != "rm" || is_recursive(arguments);
        if recursive && all.iter().any(|word| matches!(program(word).as_str(), "xargs" | "parallel")) {
            // What is removed comes from elsewhere.
            return true;
        }
        arguments.iter().any(|word| "--no-preserve-root".starts_with(word.as_str()) && word.len() > 4)
            || operands(arguments).any(|word| match self.target(word, shell) {
                Target::Everything => true,
                Target::Whole(path) => recursive && (self.is_vital_path(&path) || self.is_here(&path, shell)),
                Target::Content(path) => self.is_vital_path(&path) || self.is_here(&path, shell),
                Target::Other => false,
            })
    }

    fn find_removes_all(&self, arguments: &[String], shell: &Shell) -> bool {
        let starts = arguments.iter().take_while(|word| !word.starts_with(['-', '(', '!'])).count();
        let (starts, expression) = arguments.split_at(starts);
        let removes = expression.iter().any(|word| word == "-delete")
            || expression.windows(2).any(|pair| pair[0].starts_with("-exec") && program(&pair[1]) == "rm");
        let filtered =
            expression.first().is_some_and(|word| !matches!(word.as_str(), "-delete" | "-exec" | "-depth"));
        removes
            && (starts.iter().any(|word| self.is_vital(word, shell))
                || (!filtered
                    && (starts.is_empty() || starts.iter().any(|word| self.is_current(word, shell)))))
    }

    /// Whether a word names the root, something directly in it, a home, or a folder around the session's.
    fn is_vital(&self, word: &str, shell: &Shell) -> bool {
        match self.target(word, shell) {
            Target::Everything => true,
            Target::Whole(path) | Target::Content(path) => self.is_vital_path(&path),
            Target::Other => false,
        }
    }

    fn is_current(&self, word: &str, shell: &Shell) -> bool {
        matches!(self.target(word, shell), Target::Whole(path) | Target::Content(path) if self.is_here(&path, shell))
    }

    fn is_vital_path(&self, path: &Path) -> bool {
        path.parent().is_none_or(|parent| parent.parent().is_none())
            || self.home.starts_with(path)
            || (self.start.starts_with(path) && self.start != path)
    }

    fn is_here(&self, path: &Path, shell: &Shell) -> bool {
        self.start == path || shell.cwd.as_deref() == Some(path)
    }

    fn target(&self, word: &str, shell: &Shell) -> Target {
        // Trailing `/`, `/*`, `/.*`: the content of what is before.
        let mut base = word;
        let mut content = false;
        loop {
            let trimmed = base.trim_end_matches('/');
            let (front, last) = trimmed.rsplit_once('/').map_or(("", trimmed), |(front, last)| (front, last));
            if last.contains('*') && last.chars().all(|c| matches!(c, '*' | '.' | '?' | '!' | '[' | ']')) {
                content = true;
                base = if trimmed.contains('/') { if front.is_empty() { "/" } else { front } } else { "." };
            } else {
                break;
            }
        }
        if let Some(name) = base.strip_prefix('$') {
            // An unknown variable or substitution with a slash or a glob behind it is the root when it is empty.
            let bare = name.trim_end_matches('/');
            let only = bare.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            return if only && (content || bare.len() < name.len()) {
                Target::Everything
            } else {
                Target::Other
            };
        }
        let path = if let Some(rest) = base.strip_prefix('~') {
            match rest.split_once('/').unwrap_or((rest, "")) {
                ("" | "+" | "-", below) if !rest.starts_with(['+', '-']) => self.home.join(below),
                ("+" | "-", below) => self.start.join(below),
                // Somebody's home.
                (_, below) if below.trim_matches('/').is_empty() => return Target::Everything,
                (_, _) => return Target::Other,
            }
        } else if base.starts_with('/') {
            PathBuf::from(base)
        } else {
            match &shell.cwd {
                Some(cwd) => cwd.join(base),
                // Somewhere unknown: all that is there, or an ordinary name in it.
                None if content
                    || normal(Path::new(base)).as_os_str().is_empty()
                    || base.starts_with("..") =>
                {
                    return Target::Everything;
                }
                None => return Target::Other,
            }
        };
        let path = normal(&path);
        if content { Target::Content(path) } else { Target::Whole(path) }
    }
}

/// What a word of a removing command points at.
enum Target {
    /// Possibly the root, or a whole home.
    Everything,
    /// A file or folder.
    Whole(PathBuf),
    /// All that is in a folder.
    Content(PathBuf),
    Other,
}

impl Shell {
    /// The word with known variables replaced; unknown ones stay.
    fn expand(&self, word: &str) -> String {
        let mut expanded = String::with_capacity(word.len());
        let mut rest = word;
        while let Some(at) = rest.find('$') {
            expanded.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            let len = after.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
            match self.variables.get(&after[..len]) {
                // Values are short; the bound keeps `A=$A$A` from growing without end.
                Some(value) if expanded.len() + value.len() <= MAX_LEN => expanded.push_str(value),
                _ => expanded.push_str(&rest[at..=at + len]),
            }
            rest = &after[len..];
        }
        expanded.push_str(rest);
        expanded
    }

    fn change_folder(&mut self, scene: &Scene<'_>, to: Option<&str>) {
        let folder = match to {
            None => Some(scene.home.to_owned()),
            Some(word) if word.starts_with('-') => None,
            Some(word) => match scene.target(word, self) {
                Target::Whole(path) => Some(path),
                Target::Everything | Target::Content(_) | Target::Other => None,
            },
        };
        self.cwd = folder;
    }
}

/// A program's name without its folder.
fn program(word: &str) -> String {
    word.rsplit('/').next().unwrap_or(word).to_owned()
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn operands(arguments: &[String]) -> impl Iterator<Item = &str> {
    arguments.iter().map(String::as_str).filter(|word| !word.starts_with('-'))
}

/// Any spelling of a recursive flag; an unknown variable may be one.
fn is_recursive(arguments: &[String]) -> bool {
    arguments.iter().any(|word| match word.strip_prefix('-') {
        Some(long) if long.starts_with('-') => word.len() > 2 && "--recursive".starts_with(word.as_str()),
        Some(short) => short.contains(['r', 'R']),
        None => word.starts_with('$'),
    })
}

/// A block device, or memory. The harmless devices are not.
fn is_device(word: &str) -> bool {
    let Some(name) = word.strip_prefix("/dev/") else { return false };
    let harmless = ["null", "zero", "full", "tty", "stdin", "stdout", "stderr", "random", "urandom", "ptmx"];
    !harmless.contains(&name)
        && !["fd/", "shm/", "pts/", "tcp/", "udp/"].iter().any(|kind| name.starts_with(kind))
}

/// `:(){ :|:& };:` under any name: a function that pipes itself into itself.
fn is_fork_bomb(command: &str) -> bool {
    let text: String = command.chars().filter(|c| !c.is_whitespace()).collect();
    text.match_indices("(){").any(|(at, _)| {
        let name: String = text[..at]
            .chars()
            .rev()
            .take_while(|c| !matches!(c, ';' | '&' | '|' | '{' | '}' | '(' | ')'))
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect();
        let name = name.strip_prefix("function").filter(|rest| !rest.is_empty()).unwrap_or(&name).to_owned();
        let body = &text[at + 3..];
        !name.is_empty()
            && (body.contains(&format!("{name}|{name}")) || body.contains(&format!("{name}&{name}")))
    })
}

/// The path without `.`, `..` and doubled slashes, as if no name were a link.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => normal.push(component),
        }
    }
    normal
}

#[cfg(test)]
mod tests;
