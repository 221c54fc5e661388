//! Requests that need not be waited for when their asker is killed.
//!
//! The kernel says so for every signal. Programs do not expect reads of files to fail at a timer's signal, so only a fatal one
//! counts: then the request is answered EINTR at once and the asker can die; what the operation brings later is dropped. Only
//! requests that leave nothing with the kernel (no reference, no cached name) are entered here.

use super::reply::To;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Interrupts that are remembered because their request was not read yet: the two come by different ways.
const EARLY_MAX: usize = 64;

/// See the module's head.
#[derive(Default)]
pub(crate) struct Pending(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// By number of the request: who asks, and where the answer goes.
    open: FxHashMap<u64, (u32, To)>,
    early: VecDeque<u64>,
}

impl Pending {
    /// Whoever [`Pending::take`]s the request answers it.
    pub(super) fn enter(&self, unique: u64, pid: u32, to: To) {
        let mut table = self.0.lock();
        table.open.insert(unique, (pid, to));
        let is_early = !table.early.is_empty() && table.early.contains(&unique);
        drop(table);
        if is_early {
            self.interrupt(unique);
        }
    }

    /// `None`: it is answered.
    pub(super) fn take(&self, unique: u64) -> Option<To> {
        self.0.lock().open.remove(&unique).map(|(_, to)| to)
    }

    /// The asker has a signal.
    pub(crate) fn interrupt(&self, unique: u64) {
        let mut table = self.0.lock();
        let Some((pid, _)) = table.open.get(&unique) else {
            if table.early.len() >= EARLY_MAX {
                table.early.pop_front();
            }
            return table.early.push_back(unique);
        };
        let pid = *pid;
        drop(table);
        if is_killed(pid)
            && let Some(to) = self.take(unique)
        {
            to.send(-libc::EINTR, &[]);
        }
    }
}

/// Whether a thread is about to die of a signal: the system then notes SIGKILL for it, whatever the signal was.
fn is_killed(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let is_pending = |name: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask >> (libc::SIGKILL - 1) & 1 == 1)
    };
    is_pending("SigPnd") || is_pending("ShdPnd")
}
