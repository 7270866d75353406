//! `daemon/doctor`: what is in order, what is missing, and what to type.

use agentd_protocol::daemon::{Check, CheckStatus};

use crate::registry::Limits;
use crate::rpc::handlers::Daemon;
use crate::store::{Standing, Store};

pub(super) fn checks(daemon: &Daemon, limits: Limits) -> Vec<Check> {
    let deps = daemon.registry.deps();
    let mut checks = vec![
        ok("daemon", format!("agentd {} at {}", daemon.info.version, daemon.socket)),
        state(deps.paths.state_dir()),
    ];
    checks.push(match rustix::process::dumpable_behavior() {
        Ok(rustix::process::DumpableBehavior::NotDumpable) => {
            ok("memory", "closed to other processes of the same user".into())
        }
        _ => warning("memory", "other processes of the same user can read the daemon's memory".into(), None),
    });
    checks.push(match tokio::runtime::Handle::current().block_on(deps.models.choose(None)) {
        Ok(info) => ok("model", format!("{}/{} ({})", info.provider, info.model, info.reason)),
        Err(error) => {
            let text = error.to_string();
            // A mistake in the settings has its own line below.
            let why = text.lines().next().unwrap_or_default();
            if daemon.notices().iter().any(|notice| notice.text.starts_with(why)) {
                warning(
                    "model",
                    "none is chosen while the settings below leave in doubt which is meant".into(),
                    None,
                )
            } else {
                warning("model", text, None)
            }
        }
    });
    checks.push(warning(
        "sandbox",
        "not built yet: every command asks a person, and plan mode has no shell".into(),
        None,
    ));
    let known = deps.paths.session_ids().map_or(0, |ids| ids.len());
    checks.push(index(daemon.registry.store(), known));
    checks.push(retention(daemon, limits));
    let path = std::env::var("PATH").unwrap_or_default();
    let path = path.as_str();
    for (name, program) in [("shell", "/bin/bash"), ("git", "git")] {
        checks.push(match crate::paths::find_program(program, path) {
            Some(path) => ok(name, path.display().to_string()),
            None => {
                warning(name, format!("{program} is missing"), Some("install it with your package manager"))
            }
        });
    }
    for notice in daemon.notices() {
        checks.push(warning("settings", notice.text, None));
    }
    checks
}

/// Where everything is kept. What another machine may have mounted too is no place for it.
fn state(dir: &std::path::Path) -> Check {
    let shown = dir.display().to_string();
    match crate::paths::shared_disk(dir) {
        None => ok("state", shown),
        Some(kind) => warning(
            "state",
            format!(
                "{shown} lies on {kind}: whether a daemon on another machine has it cannot be seen from here, and what was \
                 synced may not last"
            ),
            Some("set XDG_STATE_HOME to a folder on a disk of this machine"),
        ),
    }
}

/// Whether lists and the search have all they need.
fn index(store: &Store, known: usize) -> Check {
    let (done, all) = store.progress();
    let how_far = if all == 0 { String::new() } else { format!(", {done} of {all} sessions done") };
    let filling = format!(
        "being made from the journals{how_far}; until then lists read the journals, and search may miss something"
    );
    match store.standing() {
        Standing::Ready => ok(
            "index",
            match known {
                0 => "there is no session yet".to_owned(),
                1 => "knows the 1 session there is".to_owned(),
                known => format!("knows all {known} sessions"),
            },
        ),
        Standing::Closed => ok("index", "is opened at its first use".to_owned()),
        Standing::Filling => warning("index", filling, None),
        Standing::Failed(reason) => warning(
            "index",
            format!(
                "cannot be used ({reason}): lists read every journal, search does not work, nothing is lost"
            ),
            Some("agentctl daemon reindex"),
        ),
    }
}

/// How much of the past is kept, and what it takes.
fn retention(daemon: &Daemon, limits: Limits) -> Check {
    let rule = match (limits.max_age_days, limits.max_size_mib) {
        (None, None) => "keeps everything".to_owned(),
        (Some(days), None) => format!("removes what nobody has touched for {days} days"),
        (None, Some(mib)) => format!("beyond {mib} MiB removes what was not touched for longest"),
        (Some(days), Some(mib)) => format!(
            "removes what nobody has touched for {days} days, and beyond {mib} MiB what was not touched for longest"
        ),
    };
    match tokio::runtime::Handle::current().block_on(daemon.registry.weights()) {
        Ok(weights) => {
            let mib = weights.values().sum::<u64>().div_ceil(1 << 20);
            ok("retention", format!("{rule}; {} sessions take {mib} MiB", weights.len()))
        }
        Err(error) => warning("retention", format!("{rule}; what sessions take is not known: {error}"), None),
    }
}

fn ok(name: &str, detail: String) -> Check {
    Check { name: name.into(), status: CheckStatus::Ok, detail, fix: None }
}

fn warning(name: &str, detail: String, fix: Option<&str>) -> Check {
    Check { name: name.into(), status: CheckStatus::Warning, detail, fix: fix.map(str::to_owned) }
}
