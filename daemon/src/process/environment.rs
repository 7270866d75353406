//! The environment of processes, built from nothing: a process inherits no variable of the daemon, so no key can leak.

use std::collections::BTreeMap;
use std::path::Path;

/// Where programs are looked for when the client sent no PATH.
pub const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// Names end like this when they hold a secret. Asked of whole names in capitals, so `MONKEY` is refused too: only
/// names that nobody should send are lost by that.
const SECRET_ENDINGS: [&str; 9] =
    ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIALS", "AUTH", "COOKIE"];

/// A client sent a variable that looks like a secret. Refused rather than dropped, so that nobody believes it is used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the environment variable {name} looks like a secret, and a session's environment is stored and given to every \
     command; leave it out, and store a model key with `agentctl key add`"
)]
pub struct RefusedName {
    pub name: String,
}

/// Keeps of a client's environment what a session's processes may have: PATH, LANG, LC_*, TZ, VIRTUAL_ENV, and what the
/// user's `shell.env` names (`also`). Drops the rest, and values that no process can be given.
///
/// # Errors
/// A name that looks like a secret.
pub fn filter_client_env(
    env: &BTreeMap<String, String>,
    also: &[String],
) -> Result<BTreeMap<String, String>, RefusedName> {
    if let Some(name) = env.keys().find(|name| looks_secret(name)) {
        return Err(RefusedName { name: name.clone() });
    }
    let kept = env.iter().filter(|(name, value)| is_kept(name, also) && !value.contains('\0'));
    Ok(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
}

fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

fn is_kept(name: &str, also: &[String]) -> bool {
    matches!(name, "PATH" | "LANG" | "TZ" | "VIRTUAL_ENV")
        || also.iter().any(|other| other == name)
        || name.strip_prefix("LC_").is_some_and(|rest| {
            !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
        })
}

/// Whose processes they are.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    pub user: &'a str,
    pub home: &'a Path,
}

/// The whole environment of a session's processes, sorted by name.
///
/// `client_env` is what the client sent with the session; it is filtered once more. `scratch` is the session's private
/// folder for temporary files. Nothing comes from the daemon's own environment: no model keys, no NOTIFY_SOCKET or
/// LISTEN_FDS, no CREDENTIALS_DIRECTORY, no SSH or D-Bus address.
#[must_use]
pub fn base_env(
    client_env: &BTreeMap<String, String>,
    also: &[String],
    owner: Owner<'_>,
    scratch: &Path,
) -> Vec<(String, String)> {
    let mut env = BTreeMap::new();
    let mut set = |name: &str, value: String| env.insert(name.to_owned(), value);
    set("LANG", "C.UTF-8".into());
    for (name, value) in
        client_env.iter().filter(|(name, value)| is_kept(name, also) && !value.contains('\0'))
    {
        set(name, value.clone());
    }
    let path = client_env.get("PATH").map(|path| absolute_entries(path)).filter(|path| !path.is_empty());
    set("PATH", path.unwrap_or_else(|| DEFAULT_PATH.into()));
    set("HOME", owner.home.to_string_lossy().into_owned());
    set("USER", owner.user.into());
    set("LOGNAME", owner.user.into());
    set("SHELL", "/bin/bash".into());
    set("TMPDIR", scratch.to_string_lossy().into_owned());
    // No terminal, nobody to answer, nothing to page: programs that ask are told so.
    set("TERM", "dumb".into());
    set("NO_COLOR", "1".into());
    set("PAGER", "cat".into());
    set("GIT_PAGER", "cat".into());
    set("GIT_TERMINAL_PROMPT", "0".into());
    // Reading a repository must not write to it.
    set("GIT_OPTIONAL_LOCKS", "0".into());
    env.into_iter().collect()
}

/// A relative or empty entry would run programs out of whatever folder a command happens to be in.
fn absolute_entries(path: &str) -> String {
    path.split(':').filter(|entry| entry.starts_with('/')).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn base(client: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owner = Owner { user: "ann", home: Path::new("/home/ann") };
        base_env(&map(client), &[], owner, Path::new("/run/scratch")).into_iter().collect()
    }

    #[test]
    fn the_users_settings_may_name_more_but_no_secret() {
        let also = ["JAVA_HOME".to_owned(), "MY_TOKEN".to_owned()];
        let sent = map(&[("JAVA_HOME", "/jdk"), ("OTHER", "x")]);
        let kept = filter_client_env(&sent, &also).unwrap();
        assert_eq!(kept, map(&[("JAVA_HOME", "/jdk")]));
        assert!(filter_client_env(&map(&[("MY_TOKEN", "x")]), &also).is_err());
        let env =
            base_env(&kept, &also, Owner { user: "ann", home: Path::new("/home/ann") }, Path::new("/s"));
        assert!(env.contains(&("JAVA_HOME".into(), "/jdk".into())));
    }

    #[test]
    fn only_the_known_names_are_kept() {
        let sent = map(&[
            ("PATH", "/bin"),
            ("LANG", "de_DE.UTF-8"),
            ("LC_ALL", "C"),
            ("LC_", "x"),
            ("LC_bad", "x"),
            ("TZ", "UTC"),
            ("VIRTUAL_ENV", "/v"),
            ("LD_PRELOAD", "/evil.so"),
            ("BASH_ENV", "/evil"),
            ("GIT_SSH_COMMAND", "evil"),
            ("SSH_AUTH_SOCK", "/s"),
            ("TERM", "xterm"),
        ]);
        let kept = filter_client_env(&sent, &[]).unwrap();
        assert_eq!(kept.keys().collect::<Vec<_>>(), ["LANG", "LC_ALL", "PATH", "TZ", "VIRTUAL_ENV"]);
    }

    #[test]
    fn names_that_look_like_secrets_are_refused_by_name() {
        for name in [
            "OPENAI_API_KEY",
            "anthropic_api_key",
            "GITHUB_TOKEN",
            "AWS_SECRET",
            "PGPASSWORD",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "NPM_CONFIG__AUTH",
        ] {
            let refused = filter_client_env(&map(&[("PATH", "/bin"), (name, "x")]), &[]).unwrap_err();
            assert_eq!(refused.name, name);
            assert!(refused.to_string().contains("agentctl key add"));
        }
    }

    #[test]
    fn a_value_with_nul_is_dropped() {
        assert!(filter_client_env(&map(&[("PATH", "/bin\0/x")]), &[]).unwrap().is_empty());
    }

    #[test]
    fn the_environment_is_exactly_this() {
        let env = base(&[]);
        insta::assert_snapshot!(
            env.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("\n"),
            @r"
        GIT_OPTIONAL_LOCKS=0
        GIT_PAGER=cat
        GIT_TERMINAL_PROMPT=0
        HOME=/home/ann
        LANG=C.UTF-8
        LOGNAME=ann
        NO_COLOR=1
        PAGER=cat
        PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin
        SHELL=/bin/bash
        TERM=dumb
        TMPDIR=/run/scratch
        USER=ann
        "
        );
    }

    #[test]
    fn a_client_cannot_set_what_is_not_its_own() {
        let env = base(&[("HOME", "/evil"), ("TMPDIR", "/evil"), ("LD_PRELOAD", "/evil"), ("TZ", "UTC")]);
        assert_eq!(env["HOME"], "/home/ann");
        assert_eq!(env["TMPDIR"], "/run/scratch");
        assert!(!env.contains_key("LD_PRELOAD"));
        assert_eq!(env["TZ"], "UTC");
    }

    #[test]
    fn relative_entries_of_the_path_are_left_out() {
        assert_eq!(base(&[("PATH", ".:/opt/bin::bin:/bin")])["PATH"], "/opt/bin:/bin");
        assert_eq!(base(&[("PATH", ".")])["PATH"], DEFAULT_PATH);
    }
}
