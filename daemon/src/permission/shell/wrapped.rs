//! Commands that run the command in their arguments.

use super::part::base_name;
use super::word::Token;

/// What a command runs besides itself.
pub(super) enum Inner {
    Words(Vec<Token>),
    /// Read as a command line of its own.
    Text(String),
    /// Something that is not known.
    Unknown,
}

/// Options of each wrapper that take a word after them.
const WRAPPERS: &[(&str, &[&str])] = &[
    ("builtin", &[]),
    ("chronic", &[]),
    ("chroot", &["--userspec", "--groups"]),
    ("chrt", &["-T", "-P", "-D"]),
    ("command", &[]),
    ("dbus-run-session", &["--config-file"]),
    ("doas", &["-u", "-C"]),
    ("env", &["-u", "--unset", "-C", "--chdir"]),
    ("exec", &["-a"]),
    ("fakeroot", &["-l", "-s", "-i", "-b"]),
    ("flock", &["-w", "--timeout", "--wait", "-E", "--conflict-exit-code"]),
    ("ionice", &["-c", "-n", "--class", "--classdata"]),
    ("ltrace", &["-e", "-o", "-p", "-s"]),
    ("nice", &["-n", "--adjustment"]),
    ("nohup", &[]),
    ("nsenter", &["-t", "--target"]),
    ("parallel", &["-j", "--jobs", "-a", "-I"]),
    ("pkexec", &["--user"]),
    ("prlimit", &["-p", "--pid"]),
    ("setarch", &[]),
    ("setsid", &[]),
    ("stdbuf", &["-i", "-o", "-e"]),
    ("strace", &["-e", "-o", "-p", "-s"]),
    ("sudo", &["-u", "-g", "-C", "-h", "-p", "-D", "-R", "-T", "-U", "--user", "--group", "--chdir"]),
    ("systemd-run", &["-u", "-p", "-E", "-M", "-H", "--unit", "--property", "--setenv"]),
    ("taskset", &["-c", "--cpu-list"]),
    ("time", &["-f", "-o"]),
    ("timeout", &["-s", "--signal", "-k", "--kill-after"]),
    ("unbuffer", &[]),
    ("unshare", &[]),
    ("valgrind", &[]),
    ("watch", &["-n", "--interval"]),
    (
        "xargs",
        &[
            "-n",
            "-I",
            "-L",
            "-P",
            "-d",
            "-E",
            "-s",
            "-a",
            "--max-args",
            "--max-procs",
            "--arg-file",
            "--delimiter",
            "--replace",
        ],
    ),
    ("busybox", &[]),
    ("toybox", &[]),
];

const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "ash", "fish"];

/// What runs inside a command with these words.
pub(super) fn inner(words: &[Token]) -> Vec<Inner> {
    let Some((name, arguments)) = words.split_first() else { return Vec::new() };
    let program = base_name(&name.value);
    if SHELLS.contains(&program) {
        return shell(arguments);
    }
    match program {
        "eval" => vec![text(arguments)],
        // `command -v name` looks a name up.
        "command" if arguments.first().is_some_and(|word| matches!(word.value.as_str(), "-v" | "-V")) => {
            Vec::new()
        }
        "jobs" => match arguments.split_first() {
            Some((option, words)) if option.value == "-x" => vec![Inner::Words(words.to_vec())],
            _ => Vec::new(),
        },
        "trap" => arguments.iter().find(|word| !word.value.starts_with('-')).map(one).into_iter().collect(),
        "coproc" => vec![Inner::Words(arguments.to_vec())],
        "alias" => {
            let texts = arguments.iter().filter_map(|word| word.value.split_once('='));
            texts.map(|(_, text)| Inner::Text(text.to_owned())).collect()
        }
        "find" | "fd" => found(arguments),
        "su" | "runuser" | "script" => after(arguments, &["-c", "--command"]),
        "ssh" => arguments.iter().filter(|word| word.value.contains(' ')).map(one).collect(),
        "env" if arguments.iter().any(|word| splits(&word.value)) => {
            let texts = arguments
                .iter()
                .filter(|word| !word.value.starts_with("--split-string") || word.value.contains('='));
            texts
                .map(|word| {
                    let value = word.value.trim_start_matches("--split-string=");
                    let value = if splits(value) {
                        value.split_once('S').map_or("", |(_, rest)| rest)
                    } else {
                        value
                    };
                    if word.known { Inner::Text(value.to_owned()) } else { Inner::Unknown }
                })
                .collect()
        }
        _ => match WRAPPERS.iter().find(|(wrapper, _)| *wrapper == program) {
            Some((wrapper, options)) => wrapped(wrapper, options, arguments),
            None => Vec::new(),
        },
    }
}

/// `-S text`, `-iS text`, `--split-string=text` of `env`.
fn splits(value: &str) -> bool {
    value.starts_with("--split") || value.starts_with('-') && !value.starts_with("--") && value.contains('S')
}

fn one(word: &Token) -> Inner {
    if word.known { Inner::Text(word.value.clone()) } else { Inner::Unknown }
}

fn text(words: &[Token]) -> Inner {
    if words.iter().all(|word| word.known) {
        Inner::Text(words.iter().map(|word| word.value.as_str()).collect::<Vec<_>>().join(" "))
    } else {
        Inner::Unknown
    }
}

/// `sh -c 'text' name …`, `sh -ec 'text'`; `sh file` runs what nobody has looked into, as any program does.
fn shell(arguments: &[Token]) -> Vec<Inner> {
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let value = word.value.as_str();
        if !value.starts_with(['-', '+']) {
            return Vec::new();
        }
        if value.starts_with('-') && !value.starts_with("--") && value.contains('c') {
            return words.find(|word| !word.value.starts_with(['-', '+'])).map(one).into_iter().collect();
        }
        if matches!(value, "-O" | "+O" | "-o" | "+o" | "--rcfile" | "--init-file") {
            words.next();
        }
    }
    Vec::new()
}

/// What stands after one of these options.
fn after(arguments: &[Token], options: &[&str]) -> Vec<Inner> {
    let mut found = Vec::new();
    for pair in arguments.windows(2) {
        let value = pair[0].value.as_str();
        // `-qc`: the last letter of a cluster may take the next word.
        let cluster = value.starts_with('-') && !value.starts_with("--") && value.ends_with('c');
        if cluster || options.contains(&value) {
            found.push(one(&pair[1]));
        }
    }
    found
}

/// `find … -exec words ;`.
fn found(arguments: &[Token]) -> Vec<Inner> {
    let mut inner = Vec::new();
    let mut rest = arguments;
    while let Some(at) = rest.iter().position(|word| {
        matches!(
            word.value.as_str(),
            "-exec" | "-execdir" | "-ok" | "-okdir" | "-x" | "-X" | "--exec" | "--exec-batch"
        )
    }) {
        let words = &rest[at + 1..];
        let end =
            words.iter().position(|word| matches!(word.value.as_str(), ";" | "+")).unwrap_or(words.len());
        inner.push(Inner::Words(words[..end].to_vec()));
        rest = &words[end..];
    }
    inner
}

fn wrapped(wrapper: &str, options: &[&str], arguments: &[Token]) -> Vec<Inner> {
    let mut rest = arguments;
    let mut found = Vec::new();
    // Options, and assignments of `env` and `sudo`.
    while let Some((word, more)) = rest.split_first() {
        let value = word.value.as_str();
        let assigns =
            matches!(wrapper, "env" | "sudo" | "doas") && value.contains('=') && !value.starts_with('-');
        if value == "--" {
            rest = more;
            break;
        }
        if !value.starts_with('-') && !assigns {
            break;
        }
        if assigns || !word.known {
            // Nobody has looked at what it sets.
            return vec![Inner::Unknown, Inner::Words(more.to_vec())];
        }
        let takes = options.contains(&value);
        // `-nu root`: the last letter of a cluster may take the next word.
        let last = value.chars().next_back().map(|letter| format!("-{letter}"));
        if !takes && value.len() > 2 && last.is_some_and(|last| options.contains(&last.as_str())) {
            found.push(Inner::Words(more.get(1..).unwrap_or_default().to_vec()));
        }
        rest = if takes { more.get(1..).unwrap_or_default() } else { more };
    }
    // What comes before the command: a time, a lock, a mask, a root.
    let skip = match wrapper {
        "timeout" | "flock" | "chroot" | "chrt" | "setarch" => 1,
        "taskset" if !arguments.iter().any(|word| matches!(word.value.as_str(), "-c" | "--cpu-list")) => 1,
        _ => 0,
    };
    let rest = rest.get(skip..).unwrap_or_default();
    match (wrapper, rest) {
        (_, []) => {}
        ("flock", [option, line]) if matches!(option.value.as_str(), "-c" | "--command") => {
            found.push(one(line))
        }
        // It hands its words to a shell.
        ("watch" | "parallel", words) => found.push(text(words)),
        ("xargs", words) => {
            // More words come from its input.
            let mut words = words.to_vec();
            words.push(Token { raw: "…".into(), value: "…".into(), ..Token::default() });
            found.push(Inner::Words(words));
        }
        (_, words) => found.push(Inner::Words(words.to_vec())),
    }
    found
}
