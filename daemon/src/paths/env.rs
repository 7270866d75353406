//! The environment as one value, taken once. Nothing below the start looks at the process's own.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Environment variables and the user. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    vars: Arc<BTreeMap<OsString, OsString>>,
    uid: u32,
    run_user: Arc<Path>,
}

impl Env {
    /// This process's environment and effective user.
    #[must_use]
    pub fn of_process() -> Self {
        Self::from_vars(std::env::vars_os())
    }

    /// Made-up variables, this process's user.
    #[must_use]
    pub fn from_vars<K: Into<OsString>, V: Into<OsString>>(vars: impl IntoIterator<Item = (K, V)>) -> Self {
        let vars = vars.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self {
            vars: Arc::new(vars),
            uid: rustix::process::geteuid().as_raw(),
            run_user: Arc::from(Path::new("/run/user")),
        }
    }

    #[must_use]
    pub fn with_uid(mut self, uid: u32) -> Self {
        self.uid = uid;
        self
    }

    /// Sets the folder in which the system keeps a runtime folder for each user.
    #[must_use]
    pub fn with_run_user(mut self, dir: PathBuf) -> Self {
        self.run_user = Arc::from(dir);
        self
    }

    /// A variable that is set and not empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.vars.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// As [`Env::get`], if it is UTF-8.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(OsStr::to_str)
    }

    /// As [`Env::get`], if it is an absolute path.
    #[must_use]
    pub fn absolute(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    pub(super) fn run_user(&self) -> &Path {
        &self.run_user
    }
}

impl Default for Env {
    /// No variables at all.
    fn default() -> Self {
        Self::from_vars([("", ""); 0])
    }
}

impl fmt::Debug for Env {
    /// Names only: values may be keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env")
            .field("names", &self.vars.keys())
            .field("uid", &self.uid)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_means_unset_and_debug_shows_no_value() {
        let env = Env::from_vars([("EMPTY", ""), ("KEY", "sk-secret"), ("HERE", "/x"), ("REL", "x")]);
        assert_eq!(env.get("EMPTY"), None);
        assert_eq!(env.text("KEY"), Some("sk-secret"));
        assert_eq!(env.absolute("HERE"), Some(PathBuf::from("/x")));
        assert_eq!(env.absolute("REL"), None);
        let shown = format!("{env:?}");
        assert!(shown.contains("KEY") && !shown.contains("sk-secret"), "{shown}");
    }
}
