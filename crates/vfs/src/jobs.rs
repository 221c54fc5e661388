//! Jobs of users: which job a process belongs to, and a number for each job, as
//! [`Flow::job`](leeward_env::Flow).
//!
//! A process's job is looked up in the background. Until then, and where nobody knows, its requests
//! have job 0. A process is looked up again after some seconds. So when another process gets its
//! number, that means the wrong job for no longer than that, and only among the same user's.
//! Bounded: the processes and names unused for longest are dropped.

use crate::people::Answers;
use leeward_env::Nanos;
use rustc_hash::FxHashMap;

/// The answer for a process counts as current for this time, nanoseconds.
const GOOD: Nanos = 5_000_000_000;
/// It is used for this time if no newer one came, nanoseconds.
const KEPT: Nanos = 60_000_000_000;
/// Processes that are remembered.
const PROCESSES_MAX: usize = 8192;
/// Names of jobs that are remembered: more than the ledger has flows.
const NAMES_MAX: usize = 4096;

/// A process of a user.
pub(crate) type Process = (u32, u32);

/// The known jobs and processes.
pub(crate) struct Jobs {
    processes: Answers<Process, u32>,
    by_name: FxHashMap<Box<str>, u32>,
    /// Names, and a count of when each was last used.
    by_number: FxHashMap<u32, (Box<str>, u64)>,
    given: u64,
    last: u32,
}

impl Default for Jobs {
    fn default() -> Jobs {
        Jobs {
            processes: Answers::new(GOOD, KEPT, PROCESSES_MAX),
            by_name: FxHashMap::default(),
            by_number: FxHashMap::default(),
            given: 0,
            last: 0,
        }
    }
}

impl Jobs {
    /// The job that a process is known to be in, else 0; and whether the caller must make sure that
    /// somebody looks it up.
    pub(crate) fn of(&mut self, process: Process, now: Nanos) -> (u32, bool) {
        let (known, ask) = self.processes.get(process, now);
        (known.unwrap_or(0), ask)
    }

    /// Processes whose jobs have to be looked up.
    pub(crate) fn wanted(&mut self) -> Vec<Process> {
        self.processes.wanted()
    }

    /// Enters the result of a look-up.
    pub(crate) fn found(&mut self, process: Process, name: Option<&str>, now: Nanos) {
        let number = name.map_or(0, |name| self.number(name));
        self.processes.put(process, number, now);
    }

    /// The name of a job; `None` for 0 and for dropped jobs.
    pub(crate) fn name(&self, job: u32) -> Option<String> {
        self.by_number.get(&job).map(|(name, _)| name.to_string())
    }

    fn number(&mut self, name: &str) -> u32 {
        self.given += 1;
        let given = self.given;
        if let Some(number) = self.by_name.get(name) {
            self.by_number.entry(*number).and_modify(|n| n.1 = given);
            return *number;
        }
        self.make_room();
        self.last = self.last.checked_add(1).unwrap_or(1);
        self.by_name.insert(name.into(), self.last);
        self.by_number.insert(self.last, (name.into(), given));
        self.last
    }

    fn make_room(&mut self) {
        if self.by_number.len() < NAMES_MAX {
            return;
        }
        let oldest = self.by_number.iter().min_by_key(|(_, (_, given))| *given).map(|(number, _)| *number);
        if let Some((name, _)) = oldest.and_then(|number| self.by_number.remove(&number)) {
            self.by_name.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_a_job_have_its_number() {
        let mut jobs = Jobs::default();
        assert_eq!(jobs.of((1, 10), 0), (0, true));
        assert_eq!(jobs.of((1, 11), 0), (0, false));
        assert_eq!(jobs.wanted(), [(1, 10), (1, 11)]);
        jobs.found((1, 10), Some("slurm:7"), 0);
        jobs.found((1, 11), Some("slurm:7"), 0);
        jobs.found((1, 12), None, 0);
        let number = jobs.of((1, 10), 1).0;
        assert_eq!((jobs.of((1, 11), 1).0, jobs.of((1, 12), 1).0), (number, 0));
        assert_eq!((jobs.name(number).as_deref(), jobs.name(0)), (Some("slurm:7"), None));
        assert_eq!(jobs.of((2, 10), 1).0, 0, "the same number of another user is another process");
    }

    #[test]
    fn names_are_bounded_and_those_in_use_stay() {
        let mut jobs = Jobs::default();
        jobs.found((1, 1), Some("stays"), 0);
        let stays = jobs.of((1, 1), 0).0;
        for n in 0..2 * NAMES_MAX as u32 {
            jobs.found((1, 2), Some(&format!("job {n}")), 0);
            jobs.found((1, 1), Some("stays"), 0);
        }
        assert_eq!((jobs.by_name.len(), jobs.by_number.len()), (NAMES_MAX, NAMES_MAX));
        assert_eq!((jobs.of((1, 1), 0).0, jobs.name(stays).as_deref()), (stays, Some("stays")));
    }
}
