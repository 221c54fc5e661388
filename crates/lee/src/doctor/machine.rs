//! The machine: the kernel's door, limits, memory, the clock.

use super::{Finding, calls};
use crate::group_names::SERVICES;
use crate::{size, system};
use std::fs;
use std::io;
use std::path::Path;

const DEVICE: &str = "/dev/fuse";
/// Whether mounts may use io_uring.
const URING: &str = "/sys/module/fuse/parameters/enable_uring";
/// 0: processes may use io_uring; 1: those of a group; 2: none.
const URING_DISABLED: &str = "/proc/sys/kernel/io_uring_disabled";
/// A cell has a file open for each segment and table in use, a door one for each connection.
const OPEN_FILES_MIN: u64 = 65_536;
/// Memory that must be free for a cell under load, bytes.
const MEMORY_MIN: u64 = 1 << 30;

pub fn look() -> Vec<Finding> {
    let mut all = vec![fuse(fs::File::options().read(true).write(true).open(DEVICE).map(drop))];
    let read = |path| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    all.push(io_uring(read(URING).as_deref(), read(URING_DISABLED).as_deref(), system::uid() == 0));
    if system::uid() != 0 {
        all.push(helper(
            calls::has_program("fusermount3"),
            &fs::read_to_string("/etc/fuse.conf").unwrap_or_default(),
        ));
    }
    all.push(open_files(calls::open_files_max()));
    all.push(memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), calls::memory_max()));
    all.push(clock(calls::clock_is_kept()));
    let switch = fs::read_to_string("/etc/nsswitch.conf").unwrap_or_default();
    all.push(group_names(&switch, Path::new(SERVICES).is_dir()));
    all
}

fn fuse(opened: io::Result<()>) -> Finding {
    match opened {
        Ok(()) => Finding::good("fuse", format!("{DEVICE} can be opened")),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Finding::bad(
            "fuse",
            format!("{DEVICE} may not be opened by this user: nothing can be mounted"),
            format!(
                "chmod 666 {DEVICE}; in a container: give it the device (--device {DEVICE}) and CAP_SYS_ADMIN"
            ),
        ),
        Err(e) => Finding::bad(
            "fuse",
            format!("{DEVICE} cannot be opened ({e}): nothing can be mounted, the doors work"),
            format!("modprobe fuse; in a container: give it the device (--device {DEVICE})"),
        ),
    }
}

fn io_uring(parameter: Option<&str>, disabled: Option<&str>, is_root: bool) -> Finding {
    match (parameter, disabled) {
        (None, _) => Finding::look(
            "io_uring",
            format!(
                "the kernel has none for FUSE: requests come from {DEVICE}, and small operations take about twice as long"
            ),
            "Linux 6.14 or newer",
        ),
        (Some(_), Some("1" | "2")) => Finding::look(
            "io_uring",
            "programs may not use it: small operations take about twice as long",
            "sysctl kernel.io_uring_disabled=0",
        ),
        (Some("N"), _) if !is_root => Finding::look(
            "io_uring",
            "it is off for FUSE: small operations take about twice as long",
            format!("as root: echo Y >{URING}"),
        ),
        (Some("N"), _) => Finding::good("io_uring", "the kernel has it for FUSE; lee up as root turns it on"),
        (Some(_), _) => Finding::good("io_uring", "the kernel has it for FUSE, and it is on"),
    }
}

fn helper(has_helper: bool, conf: &str) -> Finding {
    let others_may = conf.lines().any(|line| line.trim() == "user_allow_other");
    match (has_helper, others_may) {
        (false, _) => Finding::bad(
            "fusermount3",
            "it is missing: only root can mount without it",
            "apt-get install fuse3",
        ),
        (true, false) => Finding::look(
            "fusermount3",
            "other users, root too, cannot use what this user mounts",
            "add the line user_allow_other to /etc/fuse.conf, if they are to",
        ),
        (true, true) => {
            Finding::good("fusermount3", "it is there, and other users may use what this user mounts")
        }
    }
}

/// `has_services`: the user database of systemd looks for services of others.
fn group_names(nsswitch: &str, has_services: bool) -> Finding {
    let groups = nsswitch.lines().find_map(|line| line.trim().strip_prefix("group:"));
    let asks = groups.is_some_and(|sources| sources.split_whitespace().any(|source| source == "systemd"));
    match (asks, has_services) {
        (true, true) => {
            Finding::good("groups", "names of groups that users own are shown here, and count at login")
        }
        (true, false) => Finding::look(
            "groups",
            format!("groups that users own are numbers here: there is no {SERVICES}"),
            format!("mkdir -p {SERVICES}, and start lee again (systemd makes it at boot)"),
        ),
        (false, _) => Finding::look(
            "groups",
            "groups that users own are numbers here, and nobody gets them at login",
            "apt-get install libnss-systemd, if users are to have groups of their own",
        ),
    }
}

fn open_files(max: u64) -> Finding {
    let found = format!("{} at most", size::count(max));
    if max >= OPEN_FILES_MIN {
        return Finding::good("open files", found);
    }
    Finding::look(
        "open files",
        format!("{found}: a cell keeps one for each segment in use, and a door one for each connection"),
        format!("LimitNOFILE={OPEN_FILES_MIN} in the service, or ulimit -Hn {OPEN_FILES_MIN}"),
    )
}

/// `limit`: of the control groups that this process is in, bytes.
fn memory(meminfo: &str, limit: Option<u64>) -> Finding {
    let kib = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|value| value.trim().trim_end_matches(" kB").parse::<u64>().ok())
    };
    let Some(free) = kib("MemAvailable").map(|kib| kib << 10) else {
        return Finding::look("memory", "how much is free cannot be read", "mount /proc");
    };
    let usable = limit.unwrap_or(u64::MAX).min(free);
    let found = match limit.filter(|limit| *limit < free) {
        Some(limit) => format!("{} by the limit of the control group", size::bytes(limit)),
        None => format!("{} are free", size::bytes(free)),
    };
    if usable >= MEMORY_MIN {
        return Finding::good("memory", found);
    }
    Finding::look(
        "memory",
        format!("{found}: under load a cell wants {}", size::bytes(MEMORY_MIN)),
        "more memory, fewer other programs, or a larger MemoryMax of the service",
    )
}

fn clock(is_kept: Option<bool>) -> Finding {
    match is_kept {
        Some(true) => Finding::good("clock", "it is kept by a time service"),
        Some(false) => Finding::look(
            "clock",
            "nothing keeps it: times of files, schedules, locks of snapshots and tokens go by it",
            "apt-get install chrony, or systemd-timesyncd",
        ),
        None => Finding::look("clock", "the kernel does not say whether it is kept", "look at timedatectl"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Grade::{self, Bad, Good, Look};

    fn grade(finding: Finding) -> Grade {
        assert_eq!(finding.todo.is_none(), finding.grade == Good, "{finding:?}");
        finding.grade
    }

    #[test]
    fn doors_of_the_kernel_are_graded() {
        let failed = |kind: io::ErrorKind| fuse(Err(kind.into()));
        assert_eq!(grade(fuse(Ok(()))), Good);
        assert_eq!(grade(failed(io::ErrorKind::NotFound)), Bad);
        let refused = failed(io::ErrorKind::PermissionDenied);
        assert!(refused.found.contains("may not"));
        assert_eq!(grade(refused), Bad);
        assert_eq!(grade(io_uring(None, None, true)), Look);
        assert_eq!(grade(io_uring(Some("Y"), Some("0"), false)), Good);
        assert_eq!(grade(io_uring(Some("Y"), Some("2"), true)), Look);
        assert_eq!(
            (grade(io_uring(Some("N"), None, true)), grade(io_uring(Some("N"), None, false))),
            (Good, Look)
        );
        assert_eq!(grade(helper(false, "")), Bad);
        assert_eq!(grade(helper(true, "# user_allow_other\n")), Look);
        assert_eq!(grade(helper(true, "a\nuser_allow_other\n")), Good);
    }

    #[test]
    fn names_of_groups_are_graded() {
        let of = |text: &str, there| grade(group_names(text, there));
        assert_eq!(of("passwd: files\ngroup:  files systemd\n", true), Grade::Good);
        assert_eq!(of("group: files systemd", false), Grade::Look);
        assert_eq!(of("group: files # systemd-no\npasswd: systemd\n", true), Grade::Look);
        assert_eq!(of("", true), Grade::Look);
    }

    #[test]
    fn limits_are_graded() {
        assert_eq!((grade(open_files(1024)), grade(open_files(1 << 20))), (Look, Good));
        let free = |kib: u64| format!("MemTotal:       99999999 kB\nMemAvailable:   {kib} kB\n");
        assert_eq!((grade(memory(&free(4 << 20), None)), grade(memory(&free(1000), None))), (Good, Look));
        let limited = memory(&free(4 << 20), Some(100 << 20));
        assert!(limited.found.contains("control group"));
        assert_eq!(grade(limited), Look);
        assert_eq!(grade(memory("", None)), Look);
        assert_eq!(
            (grade(clock(Some(true))), grade(clock(Some(false))), grade(clock(None))),
            (Good, Look, Look)
        );
    }
}
