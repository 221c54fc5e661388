//! Answers the questions of the gate and the doors about users and processes of this machine: users
//! and groups from the user database, the users of rootless containers from `/etc/subuid`, jobs
//! from the cgroups of processes (docs/decisions/0013).

use crate::system;
#[cfg(test)]
use leeward_auth::Authority;
use leeward_auth::UserDatabase;
use leeward_vfs::{People, Subordinates};
use parking_lot::Mutex;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
#[cfg(test)]
use std::sync::Arc;

/// Longest name of a job, in characters; the rest is left out.
const NAME_MAX: usize = 64;

/// The file with the owners of users of containers.
const SUBORDINATES: &str = "/etc/subuid";

/// The machine that this process runs on.
pub struct Machine {
    subordinates: PathBuf,
    /// The state of the file when it was read; `None`: not read yet.
    read: Mutex<Option<Stamp>>,
}

/// Values that change with a file: device, inode, size, time of change. All 0: there is no file.
type Stamp = (u64, u64, u64, (i64, i64));

impl Default for Machine {
    fn default() -> Machine {
        Machine { subordinates: SUBORDINATES.into(), read: Mutex::default() }
    }
}

impl People for Machine {
    fn groups_of(&self, uid: u32) -> Vec<u32> {
        system::groups_of(uid)
    }

    fn job_of(&self, pid: u32) -> Option<String> {
        job_in(&std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
    }

    fn subordinates(&self) -> Option<Vec<Subordinates>> {
        let mut read = self.read.lock();
        let stamp = stamp(&self.subordinates);
        if *read == Some(stamp) {
            return None;
        }
        let text = std::fs::read_to_string(&self.subordinates).unwrap_or_default();
        // where the user database does not answer, the file is read again next time
        let ranges = subordinates_in(&text, &system::uid_named).ok()?;
        *read = Some(stamp);
        Some(ranges)
    }
}

fn stamp(path: &Path) -> Stamp {
    std::fs::metadata(path)
        .map_or(Stamp::default(), |m| (m.dev(), m.ino(), m.size(), (m.ctime(), m.ctime_nsec())))
}

/// The lines OWNER:FIRST:COUNT of `/etc/subuid`, the owner by name or number. Other lines, and
/// those of unknown users, are ignored.
fn subordinates_in<E>(
    text: &str,
    uid_of: &dyn Fn(&str) -> Result<Option<u32>, E>,
) -> Result<Vec<Subordinates>, E> {
    let mut ranges = Vec::new();
    for line in text.lines() {
        let mut fields = line.trim().splitn(3, ':');
        let (Some(owner), Some(first), Some(count)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (Ok(first), Ok(count)) = (first.parse(), count.parse()) else { continue };
        let owner = owner.parse().map_or_else(|_| uid_of(owner), |uid| Ok(Some(uid)))?;
        ranges.extend(owner.map(|owner| Subordinates { first, count, owner }));
    }
    Ok(ranges)
}

impl UserDatabase for Machine {
    fn find(&self, name: &str) -> Result<Option<(u32, Vec<u32>)>, String> {
        system::user_with_groups(name).map_err(|fail| fail.to_string())
    }
}

/// The job in a `/proc/PID/cgroup`: Slurm's, else the name of the deepest cgroup. `None` for the
/// root of all.
fn job_in(cgroups: &str) -> Option<String> {
    // NUMBER:CONTROLLERS:PATH; one line with cgroups v2, one for each controller with v1
    let paths = cgroups.lines().filter_map(|line| line.splitn(3, ':').nth(2)).map(parts);
    let paths: Vec<Vec<&str>> = paths.collect();
    let named = paths.iter().find_map(|path| slurm(path)).or_else(|| {
        let deepest = paths.iter().rev().max_by_key(|path| path.len())?;
        deepest.last().map(ToString::to_string)
    })?;
    Some(named.chars().take(NAME_MAX).collect())
}

fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty()).collect()
}

/// Slurm keeps steps and tasks of a job in cgroups of their own below `slurm/uid_N/job_N` (v1) or
/// `slurmstepd.scope/JOB` (v2).
fn slurm(path: &[&str]) -> Option<String> {
    let above = |part: &str| part.starts_with("uid_") || part.ends_with("slurmstepd.scope");
    let n = path.iter().position(|part| above(part))?;
    let by_slurm = path[..=n].iter().any(|part| part.contains("slurm"));
    let job = path.get(n + 1).filter(|_| by_slurm)?;
    Some(format!("slurm:{}", job.strip_prefix("job_").unwrap_or(job)))
}

/// Knows the users of a cell, on a machine that has none.
#[cfg(test)]
pub fn of_cell_alone(env: &leeward_env::Env, cell: &leeward_volume::Cell) -> Arc<Authority> {
    struct NoUsers;
    impl UserDatabase for NoUsers {
        fn find(&self, _: &str) -> Result<Option<(u32, Vec<u32>)>, String> {
            Ok(None)
        }
    }
    let fetch = Arc::new(leeward_auth::HttpFetch::new());
    let authority = Authority::new(env, &[], cell.accounts(), Arc::new(NoUsers), fetch);
    Arc::new(authority.expect("an authority"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_called_what_their_cgroups_are() {
        for (cgroups, job) in [
            ("0::/\n", None),
            ("", None),
            ("0::/user.slice/user-1000.slice/session-5.scope\n", Some("session-5.scope")),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-r7.scope\n",
                Some("run-r7.scope"),
            ),
            ("0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_3\n", Some("slurm:42")),
            (
                "0::/system.slice/node7_slurmstepd.scope/s5K1KKYAYG5D00/step_batch\n",
                Some("slurm:s5K1KKYAYG5D00"),
            ),
            ("0::/system.slice/slurmstepd.scope\n", Some("slurmstepd.scope")),
            (
                "4:memory:/slurm/uid_1000/job_42/step_batch\n1:name=systemd:/system.slice/slurmd.service\n0::/\n",
                Some("slurm:42"),
            ),
            ("9:cpu,cpuacct:/uid_5/x\n", Some("x")),
            (
                "3:memory:/htcondor/condor_execute_slot1_2@node\n1:name=systemd:/condor.service\n",
                Some("condor_execute_slot1_2@node"),
            ),
            ("0::/odd:name/with:colons\n", Some("with:colons")),
        ] {
            assert_eq!(job_in(cgroups).as_deref(), job, "{cgroups}");
        }
        let long = format!("0::/docker-{}.scope", "0".repeat(64));
        assert_eq!(job_in(&long).map(|name| name.len()), Some(NAME_MAX));
    }

    #[test]
    fn this_process_is_somewhere() {
        let pid = std::process::id();
        let cgroups = std::fs::read_to_string("/proc/self/cgroup").expect("cgroups");
        let machine = Machine::default();
        assert_eq!(machine.job_of(pid), job_in(&cgroups));
        assert_eq!(machine.job_of(u32::MAX), None);
        assert!(machine.groups_of(0).contains(&0), "root is in its group");
    }

    #[test]
    fn subordinates_are_read_when_they_change() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("subuid");
        let machine = Machine { subordinates: file.clone(), read: Mutex::default() };
        assert_eq!(machine.subordinates(), Some(Vec::new()), "there is none");
        assert_eq!(machine.subordinates(), None, "nothing has changed");
        std::fs::write(&file, "root:100000:65536\n").expect("write");
        let range = |first, owner| Subordinates { first, count: 65_536, owner };
        assert_eq!(machine.subordinates(), Some(vec![range(100_000, 0)]));
        assert_eq!(machine.subordinates(), None);
        std::fs::write(&file, "root:100000:65536\n1000:165536:65536\n").expect("write");
        assert_eq!(machine.subordinates(), Some(vec![range(100_000, 0), range(165_536, 1000)]));
    }

    #[test]
    fn lines_that_say_nothing_are_passed_over() {
        let known =
            |name: &str| if name == "silent" { Err("no answer") } else { Ok((name == "a").then_some(7)) };
        let of = |text| subordinates_in(text, &known);
        let one = Subordinates { first: 100, count: 10, owner: 7 };
        assert_eq!(of("# a:1:1\n\na:100:10\nb:200:10\na:x:10\na:5\na:1:-1\n"), Ok(vec![one]));
        assert_eq!(of("a:100:10\nsilent:1:1\n"), Err("no answer"));
    }
}
