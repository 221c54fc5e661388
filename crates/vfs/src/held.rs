//! Bytes of waiting requests: how much of a write is kept while it waits.
//!
//! A front end reads a request out of the kernel before it is known whether the request must wait.
//! Its bytes then stay here. Thousands of writers to a store that hangs would fill the memory. So
//! each user may have as many bytes waiting as are still free: one user alone half of the limit,
//! two a third each. Of a write beyond that only the first piece is kept. The answer says how much
//! was written, and the program writes the rest again, as after any short write.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Bytes of waiting requests, of all users.
pub(crate) const BYTES_MAX: usize = 128 << 20;
/// Bytes that are kept of a write beyond a user's limit.
pub(crate) const PIECE: usize = 16 << 10;
/// A piece ends at a multiple of this in the file, as direct writes must.
const PAGE: u64 = 4096;

/// Counts bytes that wait. Cheap to clone. Its lock is a leaf.
#[derive(Clone, Default)]
pub(crate) struct Held(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    total: usize,
    by_user: FxHashMap<u32, usize>,
}

/// Bytes that are counted until this is dropped.
pub(crate) struct Hold {
    held: Held,
    uid: u32,
    bytes: usize,
}

impl Held {
    /// Counts bytes of a request that cannot be cut.
    pub(crate) fn whole(&self, uid: u32, bytes: usize) -> Hold {
        self.0.lock().add(uid, bytes);
        Hold { held: self.clone(), uid, bytes }
    }

    /// Counts as much of a write at `offset` as may wait; that is its first [`Hold::bytes`].
    pub(crate) fn part(&self, uid: u32, offset: u64, bytes: usize) -> Hold {
        let mut counts = self.0.lock();
        let bytes = if counts.fits(uid, bytes) { bytes } else { bytes.min(piece(offset)) };
        counts.add(uid, bytes);
        drop(counts);
        Hold { held: self.clone(), uid, bytes }
    }

    /// Bytes that wait now.
    #[cfg(test)]
    fn total(&self) -> usize {
        self.0.lock().total
    }
}

/// Length of a piece that begins at `offset`.
fn piece(offset: u64) -> usize {
    PIECE - (offset % PAGE) as usize
}

impl Counts {
    fn fits(&self, uid: u32, bytes: usize) -> bool {
        let own = self.by_user.get(&uid).copied().unwrap_or(0);
        own + bytes <= BYTES_MAX.saturating_sub(self.total + bytes)
    }

    fn add(&mut self, uid: u32, bytes: usize) {
        if bytes > 0 {
            self.total += bytes;
            *self.by_user.entry(uid).or_default() += bytes;
        }
    }

    fn sub(&mut self, uid: u32, bytes: usize) {
        self.total -= bytes;
        if let Some(own) = self.by_user.get_mut(&uid) {
            *own -= bytes;
            if *own == 0 {
                self.by_user.remove(&uid);
            }
        }
    }
}

impl Hold {
    /// How many bytes are counted.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.held.0.lock().sub(self.uid, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn fill(held: &Held, uid: u32) -> Vec<Hold> {
        let parts = std::iter::repeat_with(|| held.part(uid, 0, MIB));
        parts.take_while(|hold| hold.bytes() == MIB).collect()
    }

    #[test]
    fn one_alone_has_half_and_the_next_a_part_of_the_rest() {
        let held = Held::default();
        let first = fill(&held, 1);
        assert_eq!(first.len() * MIB, BYTES_MAX / 2);
        let second = fill(&held, 2);
        assert_eq!(second.len() * MIB, BYTES_MAX / 4);
        assert_eq!(held.part(1, 0, MIB).bytes(), PIECE);
        drop(first);
        assert_eq!(fill(&held, 2).len() * MIB, BYTES_MAX / 4, "alone he has half, with what he had");
        drop(second);
        assert_eq!((held.total(), held.0.lock().by_user.len()), (0, 0));
    }

    #[test]
    fn thousands_of_writers_stay_bounded() {
        let held = Held::default();
        let all: Vec<Hold> = (0..4000).map(|n| held.part(n % 40, 0, MIB)).collect();
        assert!(held.total() <= BYTES_MAX + 4000 * PIECE, "{}", held.total());
        assert!(
            (0..40).all(|uid| all.iter().any(|h| h.uid == uid && h.bytes() == MIB)),
            "nobody is left out"
        );
    }

    #[test]
    fn pieces_end_where_direct_writes_may() {
        let held = Held::default();
        let _full = held.whole(1, BYTES_MAX);
        for (offset, bytes, kept) in
            [(0, MIB, PIECE), (4096, MIB, PIECE), (1, MIB, PIECE - 1), (4095, 100, 100), (0, 0, 0)]
        {
            assert_eq!(held.part(1, offset, bytes).bytes(), kept, "{bytes} at {offset}");
        }
    }
}
