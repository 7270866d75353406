//! Ending whole trees of processes, race-free.
//!
//! Only direct children of this process are ever signalled, alone or as the group they are in: nobody but us can reap
//! them, so their numbers cannot have passed to a stranger. This process is a child subreaper, so when a child dies its
//! own children become ours, and the next round reaches them, however they detached themselves.

use std::collections::HashSet;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpgid, getpgrp, kill_process, kill_process_group, pidfd_open,
};

/// How many children are waited for at once. The death of one among more is noticed at the next tick.
const MAX_WATCHED: usize = 64;

/// The living and unreaped children of every thread of this process. The kernel may skip some while others die, so an
/// empty list proves nothing: only ECHILD does.
pub(super) fn children() -> Result<Vec<Pid>, Errno> {
    let mut found = Vec::new();
    for thread in rustix::fs::Dir::new(open("/proc/self/task", OFlags::DIRECTORY)?)? {
        let thread = thread?;
        let Ok(thread) = thread.file_name().to_str() else { continue };
        if thread.starts_with('.') {
            continue;
        }
        match read_text(&format!("/proc/self/task/{thread}/children")) {
            Ok(text) => found.extend(pids(&text)),
            // The thread has ended meanwhile.
            Err(Errno::NOENT | Errno::SRCH) => {}
            Err(problem) => return Err(problem),
        }
    }
    Ok(found)
}

fn pids(text: &str) -> impl Iterator<Item = Pid> {
    text.split_ascii_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?))
}

fn open(path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | flags, Mode::empty())
}

fn read_text(path: &str) -> Result<String, Errno> {
    let file = open(path, OFlags::empty())?;
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut buffer))? {
            0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
            n => text.extend_from_slice(&buffer[..n]),
        }
    }
}

/// What a signal goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    Group(Pid),
    Process(Pid),
}

/// The groups that these children are in. A whole group is signalled in one step of the kernel, so that even one that
/// forks all the time cannot get away; a child in our own group is signalled alone.
fn targets(children: &[Pid]) -> HashSet<Target> {
    let own = getpgrp();
    let target = |&child: &Pid| match getpgid(Some(child)) {
        Ok(group) if group != own => Target::Group(group),
        _ => Target::Process(child),
    };
    children.iter().map(target).collect()
}

impl Target {
    /// A failure is that of a process that belongs to somebody else, or is gone: the caller sees from its children
    /// which.
    fn signal(self, signal: Signal) {
        let _ = match self {
            Target::Group(group) => kill_process_group(group, signal),
            Target::Process(pid) => kill_process(pid, signal),
        };
    }
}

/// Asks each target to end that was not asked before, and wakes it in case it is stopped.
pub(super) fn terminate(children: &[Pid], asked: &mut HashSet<Target>) {
    for target in targets(children) {
        if asked.insert(target) {
            target.signal(Signal::TERM);
            target.signal(Signal::CONT);
        }
    }
}

pub(super) fn kill(children: &[Pid]) {
    targets(children).into_iter().for_each(|target| target.signal(Signal::KILL));
}

/// Waits until a child ends, something is to be read from `control`, or the time is over. Says whether it was
/// `control`.
pub(super) fn wait_for_change(children: &[Pid], control: Option<BorrowedFd<'_>>, limit: Duration) -> bool {
    let open = |&child: &Pid| pidfd_open(child, PidfdFlags::empty()).ok();
    let watched: Vec<OwnedFd> = children.iter().take(MAX_WATCHED).filter_map(open).collect();
    let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
    let mut fds: Vec<PollFd<'_>> = control.into_iter().map(readable).collect();
    fds.extend(watched.iter().map(|fd| readable(fd.as_fd())));
    let limit = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: limit.subsec_nanos().into() };
    // An interruption is one more round of the caller.
    let _ = poll(&mut fds, Some(&limit));
    control.is_some() && !fds[0].revents().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_read() {
        let list: Vec<i32> = pids("12 7 \n0 x 99").map(|pid| pid.as_raw_nonzero().get()).collect();
        assert_eq!(list, [12, 7, 99]);
        assert!(children().is_ok());
    }
}
