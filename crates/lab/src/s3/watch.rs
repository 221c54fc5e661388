//! Memory and processor time of a server's processes on this machine, from `/proc`.

use serde::Serialize;
use std::fs;

/// Sums over all watched processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Usage {
    /// Resident memory, in bytes. Socket buffers in the kernel do not count.
    pub rss_bytes: u64,
    /// Processor time since the processes started, in seconds.
    pub cpu_s: f64,
}

/// Reads what these processes use now. Returns `None` if one of them does not exist.
pub fn usage(pids: &[u32]) -> Option<Usage> {
    let mut all = pids.iter().map(|pid| {
        let read = |name| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        Some((rss(&read("status")?)?, cpu_ticks(&read("stat")?)?))
    });
    let sum = |sum: (u64, u64), one: Option<(u64, u64)>| one.map(|one| (sum.0 + one.0, sum.1 + one.1));
    let (rss_bytes, ticks) = all.try_fold((0, 0), sum)?;
    // SAFETY: takes and returns a number.
    let hertz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1);
    Some(Usage { rss_bytes, cpu_s: ticks as f64 / hertz as f64 })
}

fn rss(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// Cuts at the last bracket: the name of a process may have blanks and brackets in it.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_read() {
        let us = usage(&[std::process::id()]).expect("we are there");
        assert!(us.rss_bytes > 100_000);
        assert_eq!(usage(&[std::process::id(), 0]), None);
        assert_eq!(cpu_ticks("1 (a) b) S 1 1 1 0 -1 4 1 0 0 0 30 12 0 0 20 0"), Some(42));
        assert_eq!(rss("Name: x\nVmRSS:\t   100 kB\n"), Some(102_400));
    }
}
