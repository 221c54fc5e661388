//! Which sequence numbers readers may still read at.
//!
//! A reader takes a snapshot number and then the tree's version for it. In between, old versions
//! and records must not be collected: [`Readers::safe`] is a number below which no reader reads any
//! more. Readers never wait: they count themselves in the slot of the current epoch. The maintainer
//! turns the epoch only when the other slot is empty. So a number noted before a turn is safe once
//! all readers of the epoch before it are gone.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Active readers.
#[derive(Default)]
pub(super) struct Readers {
    epoch: AtomicU64,
    active: [AtomicU64; 2],
    moments: Mutex<Moments>,
}

#[derive(Default)]
struct Moments {
    safe: u64,
    /// The number noted at the last turn, not yet known to be safe.
    noted: u64,
}

/// An active reader.
pub(super) struct Reading<'a>(&'a AtomicU64);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Readers {
    /// Registers a reader: numbers that are read while the result lives stay valid.
    pub fn enter(&self) -> Reading<'_> {
        loop {
            let epoch = self.epoch.load(SeqCst);
            let slot = &self.active[(epoch & 1) as usize];
            slot.fetch_add(1, SeqCst);
            if self.epoch.load(SeqCst) == epoch {
                return Reading(slot);
            }
            slot.fetch_sub(1, SeqCst); // turned in between: this slot may be taken for empty
        }
    }

    /// A number that no reader is below, given that all readers that enter from now on read
    /// `visible` or more.
    pub fn safe(&self, visible: u64) -> u64 {
        let mut moments = self.moments.lock();
        for _ in 0..2 {
            let epoch = self.epoch.load(SeqCst);
            if self.active[(epoch & 1 ^ 1) as usize].load(SeqCst) > 0 {
                break;
            }
            moments.safe = moments.noted;
            moments.noted = visible;
            self.epoch.store(epoch + 1, SeqCst);
        }
        moments.safe
    }
}
