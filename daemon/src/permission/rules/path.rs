//! Patterns over paths, as rules write them: gitignore's syntax, with four ways to say where they start.

use std::path::Path;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// The folders that patterns may start in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchors<'a> {
    /// The session's folder.
    pub cwd: &'a Path,
    /// The project's root: `/x` means a path below it, in whatever file the rule stands.
    pub root: &'a Path,
    /// The user's home: `~/x`.
    pub home: &'a Path,
}

/// One pattern.
///
/// | text | means |
/// |---|---|
/// | `//etc/x` | the path `/etc/x` |
/// | `~/x` | below the home |
/// | `/x` | below the project's root |
/// | `./x` | below the session's folder |
/// | `x`, `**/x`, `a/x` | to allow: below the session's folder, as gitignore reads it there; to close: at any depth, anywhere |
///
/// A pattern that matches a folder matches all that is in it.
#[derive(Clone, Debug)]
pub(super) struct PathPattern {
    base: Base,
    matcher: Gitignore,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Disk,
    Home,
    Root,
    Cwd,
}

/// What a pattern is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Allow,
    /// Deny and ask: in doubt it matches. Case is folded, since a volume may fold it.
    Close,
}

impl PathPattern {
    /// # Errors
    /// What is wrong with the text.
    pub(super) fn parse(text: &str, used: Use) -> Result<Self, String> {
        let (base, glob) = match text {
            "" => return Err("a path is missing".to_owned()),
            _ if text.starts_with("//") => (Base::Disk, anchored(&text[1..])),
            _ if text == "~" || text.starts_with("~/") => (Base::Home, anchored(&text[1..])),
            _ if text.starts_with('/') => (Base::Root, anchored(text)),
            _ if text == "." || text.starts_with("./") => (Base::Cwd, anchored(&text[1..])),
            _ => match used {
                Use::Allow => (Base::Cwd, text.to_owned()),
                Use::Close if text.trim_end_matches('/').contains('/') => (Base::Disk, format!("**/{text}")),
                Use::Close => (Base::Disk, text.to_owned()),
            },
        };
        if text.split('/').any(|name| name == "..") {
            return Err("`..` leads out of where the pattern starts".to_owned());
        }
        // Whether the last name is a folder is not known here, and what is in it is meant too.
        let mut glob = match glob.trim_end_matches('/') {
            "" => "/**".to_owned(),
            glob => glob.to_owned(),
        };
        // Whoever means all that is in a folder means looking at the folder too.
        if let Some(folder) = glob.strip_suffix("/**").filter(|folder| !folder.is_empty()) {
            glob = if folder.contains('/') { folder.to_owned() } else { format!("/{folder}") };
        }
        // These begin a comment or a negation for gitignore; here they are names.
        if glob.starts_with(['#', '!']) {
            glob.insert(0, '\\');
        }
        let mut builder = GitignoreBuilder::new("");
        let bad = |error: ignore::Error| format!("it is no path pattern: {error}");
        builder.case_insensitive(used == Use::Close).map_err(bad)?;
        builder.allow_unclosed_class(false);
        builder.add_line(None, &glob).map_err(bad)?;
        let matcher = builder.build().map_err(bad)?;
        if matcher.is_empty() {
            return Err("it is no path pattern".to_owned());
        }
        Ok(Self { base, matcher })
    }

    /// `path`: absolute, without `.` and `..`.
    pub(super) fn matches(&self, path: &Path, anchors: Anchors<'_>) -> bool {
        let base = match self.base {
            Base::Disk => Path::new("/"),
            Base::Home => anchors.home,
            Base::Root => anchors.root,
            Base::Cwd => anchors.cwd,
        };
        let Ok(below) = path.strip_prefix(base) else { return false };
        if below.as_os_str().is_empty() {
            // The folder itself: only what matches everything in it.
            return self.matcher.matched("x\u{1}", false).is_ignore();
        }
        self.matcher.matched_path_or_any_parents(below, false).is_ignore()
    }
}

/// A pattern below its base only, not at any depth.
fn anchored(text: &str) -> String {
    if text.starts_with('/') { text.to_owned() } else { format!("/{text}") }
}

/// The pattern that matches exactly this path: `//home/u/a\*b`. Absent where no rule can say it.
#[must_use]
pub fn exact(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    if !text.starts_with('/') || text.chars().any(char::is_control) {
        return None;
    }
    let mut out = String::from("/");
    for c in text.chars() {
        // A blank at the end would be dropped; elsewhere a backslash before it does no harm.
        if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\' | ' ' | '!' | '#') {
            out.push('\\');
        }
        out.push(c);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;

    fn anchors() -> Anchors<'static> {
        let path = |text| Path::new(text);
        Anchors { cwd: path("/home/u/api/sub"), root: path("/home/u/api"), home: path("/home/u") }
    }

    fn matches(pattern: &str, used: Use, path: &str) -> bool {
        PathPattern::parse(pattern, used).unwrap().matches(Path::new(path), anchors())
    }

    #[test]
    fn each_anchor_starts_where_it_says() {
        for (pattern, path, allow, close) in [
            ("//etc/hosts", "/etc/hosts", true, true),
            ("//etc", "/etc/hosts", true, true),
            ("//etc/", "/etc/hosts", true, true),
            ("//etc", "/srv/etc/hosts", false, false),
            ("//", "/etc/hosts", true, true),
            ("~/.ssh/**", "/home/u/.ssh/id", true, true),
            ("~/.ssh", "/home/u/.ssh", true, true),
            ("~/.ssh", "/home/v/.ssh", false, false),
            ("~", "/home/u/x", true, true),
            ("/src/**", "/home/u/api/src/a.rs", true, true),
            ("/src/**", "/home/u/api/sub/src/a.rs", false, false),
            ("/src", "/srv/src", false, false),
            ("/src/**", "/home/u/api/src", true, true),
            ("src/**", "/home/u/api/sub/src", true, true),
            ("src/**", "/home/u/api/sub/x/src", false, true),
            ("./src/*.rs", "/home/u/api/sub/src/a.rs", true, true),
            ("./src/*.rs", "/home/u/api/src/a.rs", false, false),
            (".", "/home/u/api/sub/x", true, true),
            // Without an anchor: allowing stays below the session's folder, closing holds anywhere.
            ("*.pem", "/home/u/api/sub/deep/a.pem", true, true),
            ("*.pem", "/home/u/api/a.pem", false, true),
            ("*.pem", "/etc/ssl/a.pem", false, true),
            ("src/**", "/home/u/api/sub/src/a", true, true),
            ("src/**", "/home/u/api/sub/x/src/a", false, true),
            ("src/**", "/home/u/other/src/a", false, true),
            ("**/.env", "/home/u/api/sub/a/.env", true, true),
            (".env", "/home/u/api/sub/.ENV", false, true),
            (".env", "/home/u/api/sub/.env/in", true, true),
            (".env", "/home/u/api/sub/.envrc", false, false),
            ("#x", "/home/u/api/sub/#x", true, true),
            ("!x", "/home/u/api/sub/!x", true, true),
            ("a b", "/home/u/api/sub/a b", true, true),
        ] {
            assert_eq!(matches(pattern, Use::Allow, path), allow, "allow {pattern} {path}");
            assert_eq!(matches(pattern, Use::Close, path), close, "close {pattern} {path}");
        }
    }

    #[test]
    fn the_folder_itself_is_meant_by_what_matches_everything_in_it() {
        assert!(matches("~", Use::Close, "/home/u") && matches("./**", Use::Allow, "/home/u/api/sub"));
        assert!(
            !matches("~/.ssh", Use::Close, "/home/u") && !matches("./*.rs", Use::Allow, "/home/u/api/sub")
        );
    }

    #[test]
    fn what_is_no_pattern_is_said() {
        for bad in ["", "[", "../x", "a/../b", "~/..", "//a/../b"] {
            assert!(PathPattern::parse(bad, Use::Allow).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn an_exact_pattern_matches_its_path_and_no_sibling(names in prop::collection::vec("[^/\u{0}]{1,8}", 1..4), other in "[^/\u{0}]{1,8}") {
            prop_assume!(names.iter().chain([&other]).all(|name| name != "." && name != ".."));
            let path = PathBuf::from(format!("/{}", names.join("/")));
            let Some(text) = exact(&path) else { return Ok(()) };
            let pattern = PathPattern::parse(&text, Use::Allow).unwrap();
            prop_assert!(pattern.matches(&path, anchors()), "{text}");
            let sibling = path.with_file_name(&other);
            prop_assert_eq!(pattern.matches(&sibling, anchors()), sibling == path, "{}", text);
        }
    }
}
