//! Histogram of durations, in buckets of powers of two: small, exact to a factor of two, and cheap
//! to add to.

use crate::Nanos;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets of a [`Histogram`].
pub const BUCKETS: usize = 26;

/// Histogram of durations: bucket `n` counts those below 2^n microseconds (and at least half of
/// that), the last bucket all longer ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// Counts by bucket.
    pub counts: [u64; BUCKETS],
    /// Sum of all durations, nanoseconds.
    pub nanos: u64,
}

impl Histogram {
    /// Counts one duration.
    pub fn add(&mut self, nanos: Nanos) {
        self.counts[bucket(nanos)] += 1;
        self.nanos += nanos;
    }

    /// Adds all counts of another histogram.
    pub fn add_all(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, count)| *sum += count);
        self.nanos += other.nanos;
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Quantile: the upper bound of the bucket that has it, nanoseconds. 0 if the histogram is
    /// empty.
    pub fn quantile(&self, share: f64) -> Nanos {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut below = 0;
        let bucket = self.counts.iter().position(|count| {
            below += count;
            below >= wanted
        });
        if below == 0 { 0 } else { (1u64 << bucket.unwrap_or(BUCKETS - 1)) * 1000 }
    }

    /// Halves all counts so far.
    pub fn halve(&mut self) {
        self.counts.iter_mut().for_each(|count| *count /= 2);
        self.nanos /= 2;
    }

    /// Upper bounds of the buckets except the last, seconds.
    pub fn bounds() -> impl Iterator<Item = f64> {
        (0..BUCKETS - 1).map(|n| (1u64 << n) as f64 / 1e6)
    }
}

/// A [`Histogram`] that several threads count in, without a lock.
#[derive(Debug, Default)]
pub struct Durations {
    counts: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

impl Durations {
    /// Counts one duration.
    pub fn add(&self, nanos: Nanos) {
        self.counts[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// The counts so far; counts that other threads are just adding may be included in part.
    pub fn histogram(&self) -> Histogram {
        Histogram {
            counts: std::array::from_fn(|n| self.counts[n].load(Ordering::Relaxed)),
            nanos: self.nanos.load(Ordering::Relaxed),
        }
    }
}

fn bucket(nanos: Nanos) -> usize {
    let micros = nanos / 1000;
    ((u64::BITS - micros.leading_zeros()) as usize).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_below_their_bounds() {
        let bounds: Vec<f64> = Histogram::bounds().collect();
        assert_eq!((bounds.len(), bounds[0], bounds[10]), (BUCKETS - 1, 1e-6, 1024e-6));
        for nanos in [0, 999, 1000, 1_999, 2_000, 5_000_000, 16_000_000_000] {
            let n = bucket(nanos);
            assert!((nanos as f64) < bounds[n] * 1e9, "{nanos}");
            assert!(n == 0 || nanos as f64 >= bounds[n - 1] * 1e9, "{nanos}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        let shared = Durations::default();
        let mut plain = Histogram::default();
        for nanos in [1, 3_000, 3_100, 1 << 50] {
            shared.add(nanos);
            plain.add(nanos);
        }
        assert_eq!(shared.histogram(), plain);
        plain.add_all(&shared.histogram());
        assert_eq!(plain.count(), 8);
    }

    #[test]
    fn quantiles_are_upper_bounds() {
        let mut all = Histogram::default();
        assert_eq!(all.quantile(0.95), 0);
        (0..95).for_each(|_| all.add(100_000));
        (0..5).for_each(|_| all.add(10_000_000));
        assert_eq!(all.quantile(0.5), 128_000);
        assert_eq!(all.quantile(0.95), 128_000);
        assert_eq!(all.quantile(0.96), 16_384_000);
        all.halve();
        assert_eq!((all.count(), all.quantile(0.5)), (49, 128_000));
        assert_eq!(all.quantile(1.0), 16_384_000);
    }
}
