//! Requests that need not be waited for when their asker is killed.
//!
//! The kernel says so for every signal. Programs do not expect reads of files to fail at a timer's
//! signal, so only a fatal one counts: then the request is answered EINTR at once and the asker can
//! die; what the operation brings later is dropped. Only requests that leave nothing with the
//! kernel (no reference, no cached name) are entered here.

use super::reply::To;
use leeward_env::Env;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Interrupts that are remembered because their request was not read yet: the two come by different
/// ways.
const EARLY_MAX: usize = 64;
/// The kernel tells of the first signal only. When that was not fatal, a later one is looked for so
/// often.
const LOOK: Duration = Duration::from_millis(250);

/// See the module's head.
pub(crate) struct Pending {
    env: Env,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// By number of the request.
    open: FxHashMap<u64, Open>,
    early: VecDeque<u64>,
    /// Whether a thread looks for askers that are killed after another signal.
    watched: bool,
}

struct Open {
    /// Who asks.
    pid: u32,
    /// Whether it had a signal.
    signalled: bool,
    /// Where the answer goes.
    to: To,
}

impl Pending {
    pub(crate) fn new(env: &Env) -> Pending {
        Pending { env: env.clone(), table: Mutex::default() }
    }

    /// Whether the interrupt of a request that was entered has come: it may have been answered for
    /// that.
    pub(crate) fn has_signal(&self, unique: u64) -> bool {
        self.table.lock().open.get(&unique).is_none_or(|open| open.signalled)
    }

    /// Whoever [`Pending::take`]s the request answers it.
    pub(super) fn enter(self: &Arc<Self>, unique: u64, pid: u32, to: To) {
        let mut table = self.table.lock();
        table.open.insert(unique, Open { pid, signalled: false, to });
        let early = table.early.iter().position(|n| *n == unique);
        early.map(|at| table.early.remove(at));
        drop(table);
        if early.is_some() {
            self.interrupt(unique);
        }
    }

    /// `None`: it is answered.
    pub(super) fn take(&self, unique: u64) -> Option<To> {
        self.table.lock().open.remove(&unique).map(|open| open.to)
    }

    /// The asker has a signal.
    pub(crate) fn interrupt(self: &Arc<Self>, unique: u64) {
        let mut table = self.table.lock();
        let Some(open) = table.open.get_mut(&unique) else {
            if table.early.len() >= EARLY_MAX {
                table.early.pop_front();
            }
            return table.early.push_back(unique);
        };
        open.signalled = true;
        let pid = open.pid;
        drop(table);
        if !self.answer_if_killed(unique, pid) {
            self.watch();
        }
    }

    fn answer_if_killed(&self, unique: u64, pid: u32) -> bool {
        let is_killed = is_killed(pid);
        if is_killed && let Some(to) = self.take(unique) {
            to.send(-libc::EINTR, &[]);
        }
        is_killed
    }

    /// Starts the thread that looks again, unless it is there.
    fn watch(self: &Arc<Self>) {
        let mut table = self.table.lock();
        if !std::mem::replace(&mut table.watched, true) {
            let pending = self.clone();
            // where the system refuses a thread, the next signal tries again
            table.watched = self.env.try_spawn("fuse-signals", move || pending.look()).is_ok();
        }
    }

    /// Looks until nobody with a signal waits.
    fn look(&self) {
        loop {
            self.env.sleep(LOOK);
            let mut table = self.table.lock();
            let signalled = table.open.iter().filter(|(_, open)| open.signalled);
            let signalled: Vec<(u64, u32)> = signalled.map(|(unique, open)| (*unique, open.pid)).collect();
            table.watched = !signalled.is_empty();
            drop(table);
            if signalled.is_empty() {
                return;
            }
            signalled.into_iter().for_each(|(unique, pid)| _ = self.answer_if_killed(unique, pid));
        }
    }
}

/// Whether a thread is about to die of a signal: the system then notes SIGKILL for it, whatever the
/// signal was.
fn is_killed(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let is_pending = |name: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask >> (libc::SIGKILL - 1) & 1 == 1)
    };
    is_pending("SigPnd") || is_pending("ShdPnd")
}
