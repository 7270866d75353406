//! Assignments and builtins that change what the rest of a line means, or evaluate their words once more.

use super::word::Token;

/// Variables that change how a program speaks, and not what it runs. A value that leads to files of somebody's choice may:
/// translations and time zones are read from there. In some character sets a backslash is half of a letter.
pub(super) fn is_harmless(name: &str, value: &str) -> bool {
    let value = value.replace(['\'', '"', '\\'], "");
    if value.contains(['$', '`']) || value.starts_with(['/', ':', '~']) || value.contains("..") {
        return false;
    }
    let locale = || {
        let value = value.to_ascii_lowercase();
        matches!(value.as_str(), "" | "c" | "posix") || value.ends_with(".utf-8") || value.ends_with(".utf8")
    };
    (name.starts_with("LC_") || name == "LANG") && locale()
        || matches!(
            name,
            "LANGUAGE"
                | "TZ"
                | "TERM"
                | "NO_COLOR"
                | "FORCE_COLOR"
                | "CLICOLOR"
                | "COLUMNS"
                | "LINES"
                | "CI"
                | "RUST_BACKTRACE"
                | "RUST_LOG"
                | "CARGO_TERM_COLOR"
                | "GIT_PAGER_IN_USE"
                | "PYTHONUNBUFFERED"
                | "DEBUG"
        )
}

/// A name that programs do not read: small letters, but those of proxies and of npm and its kin.
pub(super) fn is_shell_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.ends_with("_proxy")
        && !["npm_", "pnpm_", "yarn_"].iter().any(|start| name.starts_with(start))
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// What the shell does itself and evaluates its words, or changes what later words mean.
pub(super) fn evaluates(program: &str, words: &[Token]) -> bool {
    let has = |wanted: &[&str]| words[1..].iter().any(|word| wanted.contains(&word.value.as_str()));
    match program {
        "." | "source" | "alias" | "unalias" | "bind" | "caller" | "compgen" | "complete" | "compopt"
        | "declare" | "dirs" | "disown" | "enable" | "export" | "fc" | "getopts" | "hash" | "history"
        | "let" | "local" | "logout" | "mapfile" | "popd" | "pushd" | "read" | "readarray" | "readonly"
        | "set" | "shift" | "shopt" | "suspend" | "trap" | "typeset" | "ulimit" | "umask" | "unset" | "["
        | "[[" | "coproc" | "select" | "function" | "eval" | "exec" | "then" | "do" | "done" | "fi"
        | "esac" | "else" | "elif" | "in" | "{" | "}" => true,
        "printf" => {
            // What the first word becomes may be `-v`.
            words.get(1).is_some_and(|word| word.pattern)
                || words[1..]
                    .iter()
                    .any(|word| word.value.starts_with("-v") || !word.known || counts(&word.value))
        }
        // The variable that is to hold who has ended.
        "wait" => words[1..].iter().any(|word| word.value.starts_with('-') && word.value.contains('p')),
        "git" => super::git::configures(&words[1..]),
        "test" => {
            has(&["-v", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-t"])
                || words[1..].iter().any(|word| !word.known || word.pattern || word.value.contains('['))
        }
        _ => false,
    }
}

/// Whether a format has `%n`: how much was printed goes into a variable, `PATH` for one.
fn counts(format: &str) -> bool {
    let format = format.replace("%%", "");
    let flags = |c: char| c.is_ascii_digit() || " #'*+-.Lhjltz".contains(c);
    format.split('%').skip(1).any(|rest| rest.trim_start_matches(flags).starts_with('n'))
}
