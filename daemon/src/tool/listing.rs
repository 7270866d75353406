//! What `list_files` and `grep_search` share: globs, names that can be shown, and when to stop.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use globset::{GlobBuilder, GlobMatcher};
use tokio_util::sync::CancellationToken;

use super::ToolError;

/// A listing or search that takes longer ends with what it has. Long enough for a cold disk, short enough to wait for.
const TIME_LIMIT: Duration = Duration::from_secs(30);
const MAX_GLOB: usize = 1_000;

/// A glob for paths below a folder. Without a slash it is for names at any depth.
#[derive(Debug)]
pub(super) enum PathGlob {
    Name(GlobMatcher),
    Path(GlobMatcher),
}

impl PathGlob {
    pub(super) fn parse(argument: &str, text: &str) -> Result<Self, ToolError> {
        let fail = |why: &str| Err(ToolError(format!("The argument `{argument}` is no usable glob: {why}.")));
        let glob = text.strip_prefix("./").unwrap_or(text);
        if glob.is_empty() {
            return fail("it is empty");
        }
        if glob.len() > MAX_GLOB {
            return fail("it is too long");
        }
        if glob.starts_with('/') || glob.split('/').any(|part| part == "..") {
            return fail(
                "it is matched below `path`, so it must not begin with `/` or hold `..`; set `path` instead",
            );
        }
        // `src/` means what is in it.
        let whole = if glob.ends_with('/') { Cow::Owned(format!("{glob}**")) } else { Cow::Borrowed(glob) };
        match GlobBuilder::new(&whole).literal_separator(true).build() {
            Ok(matcher) if whole.contains('/') => Ok(Self::Path(matcher.compile_matcher())),
            Ok(matcher) => Ok(Self::Name(matcher.compile_matcher())),
            Err(error) => fail(&error.kind().to_string()),
        }
    }

    pub(super) fn matches(&self, below: &Path) -> bool {
        match self {
            PathGlob::Name(glob) => below.file_name().is_some_and(|name| glob.is_match(name)),
            PathGlob::Path(glob) => glob.is_match(below),
        }
    }
}

/// A path on one line: control characters escaped, bytes that are not UTF-8 replaced, and then marked, because it cannot
/// be typed back.
pub(super) fn one_line(path: &Path) -> String {
    let text = path.to_string_lossy();
    let replaced = matches!(text, Cow::Owned(_));
    let has_control = text.chars().any(char::is_control);
    if !replaced && !has_control {
        return text.into_owned();
    }
    let mut shown = String::with_capacity(text.len() + 32);
    for c in text.chars() {
        if c.is_control() {
            let _ = write!(shown, "{}", c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown.push_str(if replaced { " [name is not UTF-8]" } else { " [name has control characters]" });
    shown
}

/// Whether to go on.
pub(super) struct Stop<'a> {
    cancel: &'a CancellationToken,
    deadline: Instant,
}

impl<'a> Stop<'a> {
    pub(super) fn new(cancel: &'a CancellationToken) -> Self {
        Self { cancel, deadline: Instant::now() + TIME_LIMIT }
    }

    pub(super) fn now(&self) -> bool {
        self.is_cancelled() || Instant::now() >= self.deadline
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn globs_match_names_or_paths() {
        let cases = [
            ("*.rs", "a.rs", true),
            ("*.rs", "src/deep/a.rs", true),
            ("*.rs", "a.rst", false),
            ("src/*.rs", "src/a.rs", true),
            ("src/*.rs", "src/deep/a.rs", false),
            ("src/**/*.rs", "src/deep/a.rs", true),
            ("src/**/*.rs", "src/a.rs", true),
            ("**/*.rs", "a.rs", true),
            ("./src/*", "src/a", true),
            ("src/", "src/deep/a", true),
            ("*.{js,ts}", "a.ts", true),
            ("-rf", "x/-rf", true),
            (".*", ".github", true),
        ];
        for (glob, path, expected) in cases {
            let glob_set = PathGlob::parse("pattern", glob).unwrap();
            assert_eq!(glob_set.matches(Path::new(path)), expected, "{glob} {path}");
        }
    }

    #[test]
    fn bad_globs_are_explained() {
        let long = "a".repeat(2_000);
        for (glob, why) in [
            ("", "empty"),
            ("/etc/*", "below `path`"),
            ("a/../b", "below `path`"),
            ("[", "class"),
            (&long, "long"),
            ("{a", "alternat"),
        ] {
            let error = PathGlob::parse("include", glob).unwrap_err().0;
            assert!(error.contains("`include`") && error.contains(why), "{glob}: {error}");
        }
    }

    #[test]
    fn strange_names_fit_on_one_line() {
        assert_eq!(one_line(Path::new("a b/ü")), "a b/ü");
        assert_eq!(one_line(Path::new("a\nb\t\u{1b}")), "a\\nb\\t\\u{1b} [name has control characters]");
        let bytes = Path::new(OsStr::from_bytes(b"a\xffb\n"));
        assert_eq!(one_line(bytes), "a\u{fffd}b\\n [name is not UTF-8]");
    }
}
