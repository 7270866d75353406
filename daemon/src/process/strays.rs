//! Children of the daemon that it did not start: what a helper left when it was killed.
//!
//! The daemon is a child subreaper, so they come back to it, even those that detached themselves. Its only other
//! children are helpers, which are known by number.

use std::collections::HashSet;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, child_subreaper, waitpid};

use super::tree;

/// How long killed strays may take to go.
const LIMIT: Duration = Duration::from_secs(2);

/// How often they are looked at meanwhile.
const TICK: Duration = Duration::from_millis(20);

/// The helpers that this process has started.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<HashSet<Pid>>);

impl Known {
    /// Starts a helper. Held against a sweep, which would otherwise take the newborn for a stray.
    pub(super) fn start(
        &self,
        spawn: impl FnOnce() -> io::Result<tokio::process::Child>,
    ) -> io::Result<tokio::process::Child> {
        let mut known = self.lock();
        let child = spawn()?;
        known.extend(pid(child.id()));
        Ok(child)
    }

    /// After a helper has been collected.
    pub(super) fn forget(&self, id: Option<u32>) {
        if let Some(pid) = pid(id) {
            self.lock().remove(&pid);
        }
    }

    /// Ends and collects every stray. Blocks for up to two seconds. Says how many would not go: processes of another
    /// user, or stuck in the kernel. Nothing: this process is no place where orphans come to.
    pub(super) fn sweep(&self) -> Option<usize> {
        // Elsewhere orphans do not come here, and children that are not ours to end may exist.
        if !matches!(child_subreaper(), Ok(Some(_))) {
            return None;
        }
        let until = Instant::now() + LIMIT;
        loop {
            let strays = self.kill_strays();
            if strays.is_empty() || Instant::now() >= until {
                return Some(strays.len());
            }
            tree::wait_for_change(&strays, None, TICK);
        }
    }

    fn kill_strays(&self) -> Vec<Pid> {
        let mut known = self.lock();
        let Ok(children) = tree::children() else { return Vec::new() };
        // Helpers whose call was dropped are collected by the runtime, unseen.
        known.retain(|pid| children.contains(pid));
        let is_stray =
            |pid: &Pid| !known.contains(pid) && matches!(waitpid(Some(*pid), WaitOptions::NOHANG), Ok(None));
        let strays: Vec<Pid> = children.into_iter().filter(is_stray).collect();
        tree::kill(&strays);
        strays
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Pid>> {
        // A set of numbers is right whatever panicked beside it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pid(id: Option<u32>) -> Option<Pid> {
    id.and_then(|id| Pid::from_raw(id.cast_signed()))
}
