//! Who may speak: this user, from this user namespace, and nothing that the daemon itself started.
//!
//! What a tool, hook or MCP server runs has the same user id as a person's terminal. Ancestry tells them apart: the daemon
//! is a child subreaper, so whatever it started, however often forked, has the daemon among its ancestors.

use std::collections::HashSet;

use rustix::fs::{Mode, OFlags};
use tokio::net::UnixStream;

/// Nobody has so many ancestors; a longer chain is a race that is being lost.
const MAX_DEPTH: usize = 1024;
/// How often the chain of ancestors is read until it is twice the same.
const TRIES: usize = 8;

/// What is asked of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerPolicy {
    /// The whole check.
    Strict,
    /// The user id only: for servers within one process, which is its own ancestor.
    SameUser,
}

/// The process at the other end, as it was when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub uid: u32,
    pub pid: u32,
}

/// Why a peer is refused. What cannot be told is refused too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerRefused {
    #[error("this agentd belongs to another user")]
    OtherUser,
    #[error("the process that connected cannot be seen from here, or is gone")]
    Unseen,
    #[error("the process that connected lives in a container or another user namespace")]
    OtherNamespace,
    #[error(
        "agentd does not take calls from what it started itself: approve from a terminal or an editor of your own"
    )]
    OwnChild,
}

impl PeerRefused {
    /// For `data.reason`.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            PeerRefused::OtherUser => "peer.otherUser",
            PeerRefused::Unseen => "peer.unseen",
            PeerRefused::OtherNamespace => "peer.otherNamespace",
            PeerRefused::OwnChild => "peer.ownChild",
        }
    }
}

/// Checks the process at the other end of `stream`.
///
/// # Errors
/// Why it may not speak.
pub(super) fn check(stream: &UnixStream, policy: PeerPolicy) -> Result<Peer, PeerRefused> {
    let credentials = stream.peer_cred().map_err(|_| PeerRefused::Unseen)?;
    if credentials.uid() != rustix::process::geteuid().as_raw() {
        return Err(PeerRefused::OtherUser);
    }
    let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|&pid| pid != 0);
    let peer = |pid| Peer { uid: credentials.uid(), pid };
    match policy {
        PeerPolicy::SameUser => Ok(peer(pid.unwrap_or(0))),
        PeerPolicy::Strict => {
            let pid = pid.ok_or(PeerRefused::Unseen)?;
            check_process(pid, std::process::id())?;
            Ok(peer(pid))
        }
    }
}

/// Checks process `pid` on behalf of the daemon `own`.
fn check_process(pid: u32, own: u32) -> Result<(), PeerRefused> {
    // The chain is read before and after everything else and must be the same: then none of its processes ended in
    // between, and no number was given to another process.
    let mut before = ancestry(pid);
    for _ in 0..TRIES {
        let seen = look(pid);
        let after = ancestry(pid);
        match (before, after) {
            (Some(before), Some(after)) if before == after => {
                if after.iter().any(|process| process.pid == own) {
                    return Err(PeerRefused::OwnChild);
                }
                return seen;
            }
            (_, after) => before = after,
        }
    }
    Err(PeerRefused::Unseen)
}

/// Whether the process sees the same processes and users as the daemon does. `ns/*` would say it directly, but a client
/// that is not dumpable hides those links even from its own user.
fn look(pid: u32) -> Result<(), PeerRefused> {
    let status = read(&format!("/proc/{pid}/status")).ok_or(PeerRefused::Unseen)?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).ok_or(PeerRefused::Unseen)?;
    if numbers.split_whitespace().count() != 1 {
        return Err(PeerRefused::OtherNamespace);
    }
    let theirs = read(&format!("/proc/{pid}/uid_map")).ok_or(PeerRefused::Unseen)?;
    let ours = read("/proc/self/uid_map").ok_or(PeerRefused::Unseen)?;
    if theirs == ours { Ok(()) } else { Err(PeerRefused::OtherNamespace) }
}

/// A process, told from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Process {
    pid: u32,
    parent: u32,
    /// In clock ticks since the machine started.
    started: u64,
}

/// The process and its ancestors up to the first one. `None`: one of them could not be read.
fn ancestry(pid: u32) -> Option<Vec<Process>> {
    let mut chain: Vec<Process> = Vec::new();
    let mut seen = HashSet::new();
    let mut next = pid;
    while next != 0 {
        if chain.len() == MAX_DEPTH || !seen.insert(next) {
            return None;
        }
        let process = parse_stat(next, &read(&format!("/proc/{next}/stat"))?)?;
        if chain.last().is_some_and(|child| child.started < process.started) {
            return None;
        }
        next = process.parent;
        chain.push(process);
    }
    Some(chain)
}

/// The fields needed of `/proc/PID/stat`. The second one, the program's name in parentheses, may hold anything.
fn parse_stat(pid: u32, stat: &str) -> Option<Process> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    // Fields 3 (state) and 4 (parent), then 22 (start).
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    let parent = fields.next()?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    Some(Process { pid, parent, started })
}

/// A small file of `/proc`.
fn read(path: &str) -> Option<String> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match rustix::io::read(&file, &mut chunk) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    // A program's name need not be UTF-8.
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_program_cannot_lie_by_its_name() {
        let mut stat = String::from("7 (x) S 1 (y) S 42");
        stat.push_str(&" 0".repeat(17));
        stat.push_str(" 999 1");
        assert_eq!(parse_stat(7, &stat), Some(Process { pid: 7, parent: 42, started: 999 }));
        assert_eq!(parse_stat(7, &stat.replace(") S 42", ") Z 42")), None);
        assert_eq!(parse_stat(7, "7 (x S 1"), None);
    }

    #[test]
    fn what_the_daemon_started_is_refused_and_what_started_it_is_not() {
        let own = std::process::id();
        let mut child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let of_child = check_process(child.id(), own);
        let of_self = check_process(own, own);
        // Seen from the child, this process is an ancestor and not a descendant.
        let of_parent = check_process(own, child.id());
        let id = child.id();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(of_child, Err(PeerRefused::OwnChild));
        assert_eq!(of_self, Err(PeerRefused::OwnChild));
        assert_eq!(of_parent, Ok(()));
        assert_eq!(check_process(id, own), Err(PeerRefused::Unseen), "gone");
    }

    #[test]
    fn a_number_that_is_nobody_is_refused() {
        assert_eq!(check_process(u32::MAX, std::process::id()), Err(PeerRefused::Unseen));
    }
}
