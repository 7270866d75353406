//! What a process has used, as the kernel counts it.

use std::fs;
use std::time::Duration;

use anyhow::Context as _;

/// The processor time of all threads that live. In nanoseconds from the scheduler: the ticks of `stat` are 10 ms each.
pub(crate) fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let mut total = 0;
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).context("listing the daemon's threads")?;
    for task in tasks {
        // A thread may end in between.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        total += on_cpu(&text).with_context(|| format!("reading {text:?} of schedstat"))?;
    }
    Ok(Duration::from_nanos(total))
}

/// The first of the three numbers of `schedstat`.
fn on_cpu(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

/// A `VmRSS`-like line of `/proc/PID/status`, in MB of 1,000,000 bytes.
pub(crate) fn memory_mb(pid: u32, field: &str) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("reading the daemon's status")?;
    memory_in(&status, field).with_context(|| format!("no {field} in the daemon's status"))
}

fn memory_in(status: &str, field: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_megabytes() {
        let status = "Name:\tagentd\nVmRSS:\t   10000 kB\nRssAnon:\t    2500 kB\n";
        assert_eq!(memory_in(status, "VmRSS"), Some(10.24));
        assert_eq!(memory_in(status, "RssAnon"), Some(2.56));
        assert_eq!(memory_in(status, "VmSwap"), None);
    }

    #[test]
    fn processor_time_is_the_first_number() {
        assert_eq!(on_cpu("271828 31415 9\n"), Some(271_828));
        assert_eq!(on_cpu(""), None);
    }
}
