//! Quantiles of latencies.

use leeward_env::Nanos;
use serde::{Deserialize, Serialize};

/// Summary of latencies, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of latencies.
    pub count: u64,
    /// Median: half of the latencies were at most this.
    pub p50_us: f64,
    /// 90 % of the latencies were at most this.
    pub p90_us: f64,
    /// 99 % of the latencies were at most this.
    pub p99_us: f64,
    /// The longest latency.
    pub max_us: f64,
}

impl Summary {
    /// Summarizes latencies in microseconds, in any order. All fields are zero if there are none.
    pub fn of(us: &[f64]) -> Summary {
        let sorted = sorted(us);
        let at = |q| quantile(&sorted, q).unwrap_or_default();
        Summary {
            count: us.len() as u64,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            max_us: at(1.0),
        }
    }
}

/// The same values in ascending order.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// Quantile `q` of ascending values, by nearest rank: the smallest value that at least the part `q`
/// of them does not exceed.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// The geometric mean of positive values. `None` if there are no values, or one is not positive.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    let usable = !values.is_empty() && values.iter().all(|v| *v > 0.0);
    usable.then(|| (values.iter().map(|v| v.ln()).sum::<f64>() / values.len() as f64).exp())
}

/// Rounds microseconds to one decimal: such values are shown, kept and compared.
pub fn micros(ns: Nanos) -> f64 {
    (ns as f64 / 100.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_by_nearest_rank() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let summary = Summary::of(&hundred);
        assert_eq!(
            (summary.p50_us, summary.p90_us, summary.p99_us, summary.max_us),
            (50.0, 90.0, 99.0, 100.0)
        );
        assert_eq!(summary.count, 100);
        let one = Summary::of(&[7.0]);
        assert_eq!((one.p50_us, one.p99_us, one.max_us), (7.0, 7.0, 7.0));
        assert_eq!(Summary::of(&[]), Summary::default());
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.0), Some(1.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn means_are_geometric() {
        assert!((geometric_mean(&[1.0, 100.0]).unwrap_or_default() - 10.0).abs() < 1e-9);
        assert_eq!(geometric_mean(&[]), None);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
    }

    #[test]
    fn micros_keep_one_decimal() {
        assert_eq!(micros(1_234), 1.2);
        assert_eq!(micros(1_900_051), 1900.1);
    }
}
