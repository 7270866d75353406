//! Where the daemon's socket is. The daemon finds the same place by the same rules.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The socket's path: `explicit`, else `AGENTD_SOCKET`, else `agentd/agentd.sock` in `XDG_RUNTIME_DIR` or
/// `/run/user/<uid>`, else `agentd/run/agentd.sock` in the state folder. `None`: not even `HOME` is set.
#[must_use]
pub fn socket(explicit: Option<PathBuf>) -> Option<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let is_ours = |folder: &Path| folder.metadata().is_ok_and(|found| found.is_dir() && found.uid() == uid);
    find(explicit, uid, |name| std::env::var_os(name), is_ours)
}

fn find(
    explicit: Option<PathBuf>,
    uid: u32,
    env: impl Fn(&str) -> Option<OsString>,
    is_ours: impl Fn(&Path) -> bool,
) -> Option<PathBuf> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = explicit.or_else(|| set("AGENTD_SOCKET")) {
        // Fails for an empty path only, and with no current folder; then connecting says what is wrong.
        return Some(std::path::absolute(&path).unwrap_or(path));
    }
    // The XDG rules: a relative path counts as unset.
    let folder = |name| set(name).filter(|path| path.is_absolute());
    let runtime = folder("XDG_RUNTIME_DIR")
        .into_iter()
        .chain([PathBuf::from(format!("/run/user/{uid}"))])
        .find(|path| is_ours(path));
    if let Some(runtime) = runtime {
        return Some(runtime.join("agentd/agentd.sock"));
    }
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    Some(state.join("agentd/run/agentd.sock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_usable_place_wins() {
        type Case = (
            Option<&'static str>,
            &'static [(&'static str, &'static str)],
            &'static [&'static str],
            Option<&'static str>,
        );
        let cases: &[Case] = &[
            (Some("/x/s"), &[("AGENTD_SOCKET", "/y/s")], &[], Some("/x/s")),
            (None, &[("AGENTD_SOCKET", "/y/s"), ("XDG_RUNTIME_DIR", "/r")], &["/r"], Some("/y/s")),
            (
                None,
                &[("AGENTD_SOCKET", ""), ("XDG_RUNTIME_DIR", "/r")],
                &["/r"],
                Some("/r/agentd/agentd.sock"),
            ),
            (None, &[("XDG_RUNTIME_DIR", "/r")], &["/run/user/7"], Some("/run/user/7/agentd/agentd.sock")),
            (
                None,
                &[("XDG_RUNTIME_DIR", "r"), ("HOME", "/h")],
                &["r"],
                Some("/h/.local/state/agentd/run/agentd.sock"),
            ),
            (None, &[("XDG_STATE_HOME", "/st"), ("HOME", "/h")], &[], Some("/st/agentd/run/agentd.sock")),
            (None, &[], &[], None),
        ];
        for (explicit, env, ours, expected) in cases {
            let found = find(
                explicit.map(PathBuf::from),
                7,
                |name| env.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()),
                |path| ours.iter().any(|known| Path::new(known) == path),
            );
            assert_eq!(found.as_deref(), expected.map(Path::new), "{explicit:?} {env:?}");
        }
    }
}
