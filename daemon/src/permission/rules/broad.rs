//! Allow rules that say so little about what runs that they would leave nothing for the classifier of mode `auto` to judge.

/// Programs that run whatever text or file they are given.
const RUNNERS: &[&str] = &[
    "bash",
    "sh",
    "zsh",
    "dash",
    "ksh",
    "fish",
    "python",
    "python2",
    "python3",
    "node",
    "deno",
    "bun",
    "ruby",
    "perl",
    "php",
    "lua",
    "osascript",
    "pwsh",
    "awk",
    "sed",
    "npx",
    "npm",
    "pnpm",
    "yarn",
    "bunx",
    "uvx",
    "uv",
    "pipx",
    "cargo",
    "make",
    "go",
    "env",
    "sudo",
    "doas",
    "xargs",
    "find",
    "ssh",
    "docker",
    "podman",
    "kubectl",
    "nohup",
    "timeout",
    "setsid",
    "nice",
    "eval",
    "exec",
    "command",
    "git",
];

/// Whether the specifier of a `Bash(…)` rule leaves open what runs: a star for the program, or for all that one of the
/// runners is given.
pub(super) fn is_broad_command(specifier: &str) -> bool {
    let specifier = specifier.trim();
    let Some(star) = first_star(specifier) else { return false };
    let before = specifier[..star].trim_end_matches(':').trim_end();
    let mut words = before.split_whitespace();
    match (words.next(), words.next()) {
        (None, _) => true,
        (Some(program), None) => {
            let program = program.rsplit('/').next().unwrap_or(program);
            // `pyth*` may become any of them.
            let whole = specifier[..star].ends_with([' ', ':']);
            RUNNERS.iter().any(|runner| {
                if whole {
                    program == *runner
                } else {
                    runner.starts_with(program) || program.starts_with(runner)
                }
            })
        }
        // `npm run *` runs what a file of the project says; `git log *` says what it does.
        (Some("npm" | "pnpm" | "yarn" | "bun" | "cargo"), Some("run" | "exec" | "x" | "dlx")) => {
            words.next().is_none()
        }
        (Some(_), Some(option)) => option.starts_with('-') && words.next().is_none(),
    }
}

fn first_star(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let star = c == '*' && !escaped;
        escaped = c == '\\' && !escaped;
        star.then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_open_what_runs_is_broad() {
        for broad in [
            "*",
            "* --version",
            "bash *",
            "bash:*",
            "python *",
            "python3:*",
            "py*",
            "/usr/bin/python3 *",
            "npm run *",
            "npx *",
            "sudo *",
            "env *",
            "git *",
            "node -e *",
            "cargo run *",
            "make *",
        ] {
            assert!(is_broad_command(broad), "{broad}");
        }
        for narrow in [
            "npm test",
            "npm run build",
            "npm run build *",
            "git log *",
            "git log:*",
            "cargo test *",
            "ls *",
            "rm build/\\*",
            "python3 manage.py *",
            "make -j 4",
            "docker ps *",
            "bash script.sh",
        ] {
            assert!(!is_broad_command(narrow), "{narrow}");
        }
    }
}
