//! Resources that this process uses, from /proc; a value that cannot be read is 0.

use std::fs;

/// Resources that the process uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Processor time, seconds.
    pub cpu_secs: f64,
    /// Memory in RAM, bytes.
    pub resident_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Open descriptors.
    pub descriptors: u64,
}

impl Usage {
    /// The current values.
    pub fn now() -> Usage {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // SAFETY: these calls only read settings.
        let (ticks, page) = unsafe { (libc::sysconf(libc::_SC_CLK_TCK), libc::sysconf(libc::_SC_PAGESIZE)) };
        let descriptors = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as u64;
        parse(&stat, ticks.max(1) as f64, page.max(0) as u64, descriptors)
    }
}

/// The line of `stat`, see proc(5); the name of the program in it may have spaces and ends with the
/// last parenthesis.
fn parse(stat: &str, ticks_per_sec: f64, page_bytes: u64, descriptors: u64) -> Usage {
    let fields: Vec<&str> = stat.rsplit_once(") ").map_or(vec![], |(_, rest)| rest.split(' ').collect());
    // numbers as in the manual, where the state is the third
    let field = |n: usize| fields.get(n - 3).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    Usage {
        cpu_secs: (field(14) + field(15)) as f64 / ticks_per_sec,
        resident_bytes: field(24) * page_bytes,
        threads: field(20),
        descriptors,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_stat_is_read() {
        let line = "7 (a ) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 100 1000000 300 18446744073709551615 1";
        let expected = Usage { cpu_secs: 3.0, resident_bytes: 300 * 4096, threads: 9, descriptors: 5 };
        assert_eq!(parse(line, 100.0, 4096, 5), expected);
        assert_eq!(parse("", 100.0, 4096, 0), Usage::default());
        let now = Usage::now();
        assert!(now.resident_bytes > 100_000 && now.threads > 0 && now.descriptors > 2, "{now:?}");
    }
}
