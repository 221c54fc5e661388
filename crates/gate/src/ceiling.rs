//! Ceilings (rate limits) of users: token buckets. A bucket holds what one second allows, and fills
//! as time passes.

use crate::Share;
use leeward_env::Nanos;
use rustc_hash::FxHashMap;

const SECOND: i128 = 1_000_000_000;
/// A user who was held back may go on when this much time's worth has accumulated: this needs fewer
/// wake-ups than one an operation.
const STEP: i128 = SECOND / 200;
/// Above this many buckets, full ones are dropped.
const BUCKETS_KEPT: usize = 1024;

/// Buckets of users who have a ceiling.
#[derive(Default)]
pub(crate) struct Ceilings {
    by_user: FxHashMap<u32, [Bucket; 2]>,
}

/// What is left, in billionths of an operation or byte; below zero after an operation that was
/// larger than what was left.
#[derive(Clone, Copy)]
struct Bucket {
    /// Amount per second; 0: no ceiling.
    rate: i128,
    left: i128,
    at: Nanos,
    /// Below this no operation may begin.
    least: i128,
}

impl Bucket {
    fn new(rate: u64, least: i128, now: Nanos) -> Bucket {
        let rate = i128::from(rate);
        Bucket { rate, left: rate * SECOND, at: now, least }
    }

    fn fill(&mut self, now: Nanos) {
        let passed = i128::from(now.saturating_sub(self.at));
        self.left = (self.left + passed * self.rate).min(self.rate * SECOND);
        self.at = self.at.max(now);
    }

    fn is_short(&self) -> bool {
        self.rate > 0 && self.left < self.least
    }

    /// When enough has accumulated to go on for a while.
    fn enough_at(&self) -> Nanos {
        let wanted = self.least.max(self.rate * STEP);
        let missing = (wanted - self.left).max(0);
        self.at + ((missing + self.rate - 1) / self.rate) as Nanos
    }
}

impl Ceilings {
    /// Sets the ceilings of a user.
    pub(crate) fn set(&mut self, uid: u32, share: Share, now: Nanos) {
        if !share.has_ceiling() {
            if !self.by_user.is_empty() {
                self.by_user.remove(&uid);
            }
            return;
        }
        if !self.by_user.contains_key(&uid) {
            self.forget_full(now);
        }
        let new = [Bucket::new(share.ops_per_sec, SECOND, now), Bucket::new(share.bytes_per_sec, 1, now)];
        let known = self.by_user.entry(uid).or_insert(new);
        for (bucket, new) in known.iter_mut().zip(new) {
            if bucket.rate != new.rate {
                bucket.fill(now);
                *bucket = Bucket {
                    left: if bucket.rate == 0 { new.left } else { bucket.left.min(new.left) },
                    ..new
                };
            }
        }
    }

    /// When the user may go on, if a ceiling holds the user back.
    pub(crate) fn held_until(&mut self, uid: u32, now: Nanos) -> Option<Nanos> {
        if self.by_user.is_empty() {
            return None;
        }
        let buckets = self.by_user.get_mut(&uid)?;
        buckets.iter_mut().for_each(|b| b.fill(now));
        buckets.iter().filter(|b| b.is_short()).map(Bucket::enough_at).max()
    }

    /// Counts an operation.
    pub(crate) fn spend(&mut self, uid: u32, bytes: u64) {
        let Some([ops, of_bytes]) = self.by_user.get_mut(&uid) else { return };
        ops.left -= SECOND;
        of_bytes.left -= i128::from(bytes) * SECOND;
    }

    fn forget_full(&mut self, now: Nanos) {
        if self.by_user.len() >= BUCKETS_KEPT {
            self.by_user.retain(|_, buckets| {
                buckets.iter_mut().for_each(|b| b.fill(now));
                buckets.iter().any(|b| b.rate > 0 && b.left < b.rate * SECOND)
            });
        }
    }
}
