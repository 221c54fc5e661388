//! Where threads that commit meet: one leads, others wait, and their changes are committed with it.

use crate::format::inode::Reserved;
use crate::format::keys::Key;
use crate::state::Frozen;
use crate::wake::Wake;
use leeward_data::Object;
use leeward_env::Flow;
use leeward_env::limits::{RUNNING_BYTES_LARGE, RUNNING_BYTES_MAX, RUNNING_RECORDS_MAX};
use leeward_meta::{Appended, Batch, InlineData};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The state that committers share.
#[derive(Default)]
pub struct Committer {
    pub(crate) progress: Mutex<Progress>,
    pub(crate) changed: Condvar,
    /// A frozen transaction that could not be written; only the leader touches it.
    pub(crate) unwritten: Mutex<Option<FrozenTx>>,
    /// Transactions that are durable and not published yet, the oldest first.
    pub(crate) durable: Mutex<VecDeque<DurableTx>>,
    /// Held while publishing.
    pub(crate) publishing: Mutex<()>,
    /// Wakes the thread that publishes.
    pub unpublished: Wake,
    pub(crate) large: AtomicBool,
    pub(crate) behind: AtomicBool,
    /// Objects that no durable record points to any more.
    pub(crate) garbage: Mutex<Vec<Object>>,
}

#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) committed: u64,
    pub(crate) led: bool,
    pub(crate) wanted: bool,
    /// The flow that changed most of the last commit.
    pub(crate) most: Option<Flow>,
}

pub(crate) struct FrozenTx {
    pub(crate) id: u64,
    pub(crate) records: Frozen,
    pub(crate) inline_data: Vec<InlineData>,
    pub(crate) garbage: Vec<Object>,
    /// Segments whose inline data may go when it is durable.
    pub(crate) released: Vec<u64>,
    /// Names of objects that it reserves, or that were reserved before.
    pub(crate) reserved: Reserved,
    /// The flow that changed most of it.
    pub(crate) most: Option<Flow>,
}

/// A transaction that only has to be published.
pub(crate) struct DurableTx {
    pub(crate) tx: FrozenTx,
    pub(crate) batch: Batch,
    pub(crate) appended: Appended,
}

impl FrozenTx {
    pub(crate) fn batch(&self) -> Batch {
        let records = self.records.iter().filter(|(_, s)| !s.is_nothing());
        let mut writes: Vec<(Key, _)> = records.map(|(k, s)| (k.clone(), s.value.clone())).collect();
        // neighbouring keys go to the tables together
        writes.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Batch { writes, inline_data: self.inline_data.clone() }
    }
}

impl Committer {
    /// The running transaction has this many records now, and bytes in them; from `large` records
    /// on it should be committed.
    pub fn hint(&self, (records, bytes): (usize, usize), large: usize) {
        if records >= RUNNING_RECORDS_MAX || bytes >= RUNNING_BYTES_MAX {
            self.behind.store(true, Ordering::Relaxed);
        }
        let is_large = records >= large || bytes >= RUNNING_BYTES_LARGE;
        if is_large && !self.large.swap(true, Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Whether changes come in so much faster than commits that they must wait.
    pub fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Relaxed)
    }

    /// Wakes the commit thread.
    pub fn wake(&self) {
        self.progress.lock().wanted = true;
        self.changed.notify_all();
    }

    /// Waits until woken or `time` has passed.
    pub fn wait(&self, time: Duration) {
        let mut p = self.progress.lock();
        if !p.wanted {
            self.changed.wait_for(&mut p, time);
        }
        p.wanted = false;
    }

    /// Takes the objects that may be deleted now.
    pub fn take_garbage(&self) -> Vec<Object> {
        std::mem::take(&mut self.garbage.lock())
    }

    /// Returns objects that could not be deleted now.
    pub fn return_garbage(&self, objects: Vec<Object>) {
        self.garbage.lock().extend(objects);
    }

    /// Objects that may be deleted now, or when the transaction is durable that could not be
    /// committed. Call while commits are paused.
    pub fn garbage_so_far(&self) -> Vec<Object> {
        let mut all = self.garbage.lock().clone();
        all.extend(self.unwritten.lock().iter().flat_map(|tx| &tx.garbage));
        all
    }

    /// Waits until nobody leads, and leads.
    pub(crate) fn lead(&self, mut p: MutexGuard<'_, Progress>) -> Lead<'_> {
        while p.led {
            self.changed.wait(&mut p);
        }
        p.led = true;
        Lead(self)
    }
}

/// The right to lead; when it is dropped, the next thread may.
pub(crate) struct Lead<'a>(&'a Committer);

impl Lead<'_> {
    /// Everything up to this transaction is durable.
    pub(crate) fn ends_with(self, id: u64) {
        self.0.progress.lock().committed = id;
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.0.progress.lock().led = false;
        self.0.changed.notify_all();
    }
}
