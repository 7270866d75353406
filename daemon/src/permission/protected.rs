//! Protected paths: files that other programs read as configuration or run later. Writing one can mean running something,
//! so no mode writes them without a person.
//!
//! Matched by name anywhere in the path, whether the file exists or not, in any case: a volume may fold case, and a
//! repository may be checked out on one that does.

use std::ffi::OsStr;
use std::path::{Component, Path};

/// Names that protect themselves and everything below.
const NAMES: &[&str] = &[
    // Version control: hooks, filters, and settings that name programs.
    ".git",
    ".gitconfig",
    ".gitmodules",
    ".gitattributes",
    ".hg",
    ".hgrc",
    ".husky",
    ".pre-commit-config.yaml",
    ".pre-commit-config.yml",
    ".pre-commit-hooks.yaml",
    // Agents.
    ".agentd",
    ".claude",
    ".claude.json",
    ".mcp.json",
    // Editors.
    ".vscode",
    ".idea",
    ".zed",
    ".fleet",
    ".devcontainer",
    ".devcontainer.json",
    ".dir-locals.el",
    ".emacs",
    ".emacs.d",
    ".exrc",
    ".nvimrc",
    ".nvim.lua",
    ".vimrc",
    ".gvimrc",
    ".vim",
    ".vimspector.json",
    "pyrightconfig.json",
    // Build tools and package managers, where a setting names a program or a registry.
    ".cargo",
    "rust-toolchain",
    "rust-toolchain.toml",
    ".npmrc",
    ".yarn",
    ".yarnrc",
    ".yarnrc.yml",
    ".pnp.cjs",
    ".pnp.loader.mjs",
    ".pnpmfile.cjs",
    "bunfig.toml",
    ".mvn",
    ".bazelrc",
    "gradle-wrapper.properties",
    ".ripgreprc",
    ".pypirc",
    "pip.conf",
    ".gemrc",
    // Environments that a shell loads on entering a folder.
    ".envrc",
    ".tool-versions",
    "mise.toml",
    ".mise.toml",
    ".mise",
    // Continuous integration.
    ".gitlab-ci.yml",
    ".gitlab-ci.yaml",
    ".circleci",
    ".buildkite",
    ".woodpecker",
    ".woodpecker.yml",
    ".travis.yml",
    ".drone.yml",
    ".cirrus.yml",
    "jenkinsfile",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    "appveyor.yml",
    ".appveyor.yml",
    // Shells and logins.
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".logout",
    ".inputrc",
    ".xinitrc",
    ".xprofile",
    ".xsession",
    ".xsessionrc",
    ".pam_environment",
    ".tmux.conf",
    ".screenrc",
    ".gdbinit",
    // Keys and credentials.
    ".ssh",
    ".gnupg",
    ".netrc",
    ".aws",
    ".kube",
    ".docker",
];

/// Beginnings of names: these tools take several endings.
const PREFIXES: &[&str] = &["lefthook.", ".lefthook.", "lefthook-local.", ".lefthook-local."];

/// Names that protect only one after the other.
const SEQUENCES: &[&[&str]] = &[
    &[".github", "workflows"],
    &[".github", "actions"],
    &[".gitea", "workflows"],
    &[".forgejo", "workflows"],
    &[".config", "git"],
    &[".config", "systemd"],
    &[".config", "autostart"],
    &[".config", "environment.d"],
    &[".config", "fish"],
    &[".config", "nvim"],
    &[".config", "mise"],
    &[".local", "bin"],
    &[".local", "share", "applications"],
    &[".local", "share", "dbus-1"],
    &[".local", "share", "systemd"],
];

/// Whether writing `path` may change what other programs run.
pub(super) fn is_protected(path: &Path) -> bool {
    let names: Vec<String> = path
        .components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(fold_name(name)),
            Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => None,
        })
        .collect();
    names
        .iter()
        .any(|name| NAMES.contains(&name.as_str()) || PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        || SEQUENCES.iter().any(|sequence| names.windows(sequence.len()).any(|window| window == *sequence))
}

/// A file name as the most forgiving file system would read it: case folded, characters that HFS+ ignores removed, the
/// endings that NTFS drops cut off, its short name of `.git` spelled out. Only for comparisons that close.
pub(super) fn fold_name(name: &OsStr) -> String {
    let name: String = name.to_string_lossy().chars().filter(|c| !is_ignorable(*c)).collect();
    // Through upper case, so that letters with two lower-case forms (`ſ`, `ı`) meet their plain ones.
    let folded = name.to_uppercase().to_lowercase();
    let stream = folded.find(':').filter(|at| *at > 0).unwrap_or(folded.len());
    let folded = folded[..stream].trim_end_matches(['.', ' ']);
    if folded == "git~1" { ".git".to_owned() } else { folded.to_owned() }
}

fn is_ignorable(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_already_folded() {
        for name in NAMES.iter().chain(SEQUENCES.iter().copied().flatten()) {
            assert_eq!(fold_name(OsStr::new(name)), *name);
        }
        for prefix in PREFIXES {
            assert_eq!(prefix.to_lowercase(), *prefix);
        }
    }

    #[test]
    fn configuration_that_runs_is_protected_wherever_it_lies() {
        for path in [
            "/p/.git",
            "/p/.git/hooks/pre-commit",
            "/p/.git/config",
            "/p/.git/config.worktree",
            "/p/.git/commondir",
            "/p/.git/info/attributes",
            "/p/.git/modules/x/config",
            "/p/vendor/deep/.git/hooks/post-checkout",
            "/p/.agentd/config.toml",
            "/p/.agentd/agents/new.md",
            "/p/.claude/settings.json",
            "/p/.mcp.json",
            "/p/.vscode/tasks.json",
            "/p/.idea/workspace.xml",
            "/p/.husky/pre-push",
            "/p/.cargo/config.toml",
            "/p/.devcontainer/devcontainer.json",
            "/p/.github/workflows/ci.yml",
            "/p/.gitlab-ci.yml",
            "/p/lefthook.yml",
            "/p/.envrc",
            "/p/.npmrc",
            "/home/u/.bashrc",
            "/home/u/.zshenv",
            "/home/u/.profile",
            "/home/u/.gitconfig",
            "/home/u/.config/git/config",
            "/home/u/.config/systemd/user/x.service",
            "/home/u/.local/bin/ls",
            "/home/u/.ssh/authorized_keys",
        ] {
            assert!(is_protected(Path::new(path)), "{path} was not protected");
        }
    }

    #[test]
    fn spellings_that_some_file_system_folds_are_protected() {
        for path in [
            "/p/.GIT/hooks/pre-commit",
            "/p/.Git/config",
            "/p/.g\u{200c}it/config",
            "/p/.git./config",
            "/p/.git /config",
            "/p/git~1/config",
            "/p/.git::$INDEX_ALLOCATION/config",
            "/p/.gıt/config",
            "/p/.Claude/x",
            "/p/.huſky/pre-push",
            "/p/.vſcode/tasks.json",
            "/p/.MCP.JSON",
            "/p/.GitHub/Workflows/ci.yml",
            "/p/JenkinsFile",
        ] {
            assert!(is_protected(Path::new(path)), "{path} was not protected");
        }
    }

    #[test]
    fn ordinary_files_are_not_protected() {
        for path in [
            "/p/src/lib.rs",
            "/p/.gitignore",
            "/p/.github/CODEOWNERS",
            "/p/.github/ISSUE_TEMPLATE/x.md",
            "/p/git/config",
            "/p/docs/.config/notes",
            "/p/config",
            "/p/Cargo.toml",
            "/p/AGENTS.md",
            "/p/.git-blame-ignore-revs",
            "/p/workflows/x.yml",
            "/home/u/.config/myapp/settings",
        ] {
            assert!(!is_protected(Path::new(path)), "{path} was protected");
        }
    }
}
