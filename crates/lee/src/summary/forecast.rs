//! When something will be full, if it goes on to grow as it did.

use leeward_volume::admin::{Day, UsedOnDay};

/// From fewer days nothing is said.
const DAYS_MIN: usize = 7;
/// What is farther away than this is not said.
const DAYS_AHEAD: f64 = 3650.0;

/// The day on which it reaches the limit: by the line that fits its days best. `None`: not in ten
/// years, or too little is known.
pub fn full_on(days: &[UsedOnDay], limit: u64) -> Option<Day> {
    // of a pool that was away nothing is known
    let known: Vec<(f64, f64)> = days
        .iter()
        .filter(|day| day.used.bytes > 0)
        .map(|day| (f64::from(day.day.0), day.used.bytes as f64))
        .collect();
    let last = days.iter().rev().find(|day| day.used.bytes > 0)?;
    if limit == 0 || last.used.bytes >= limit {
        return (limit > 0).then_some(last.day);
    }
    if known.len() < DAYS_MIN {
        return None;
    }
    let left = (limit - last.used.bytes) as f64 / slope(&known)?;
    (left < DAYS_AHEAD).then(|| last.day.plus(left.ceil() as u32))
}

/// Bytes a day; `None`: it does not grow.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let (mut together, mut alone) = (0.0, 0.0);
    for point in points {
        together += (point.0 - x) * (point.1 - y);
        alone += (point.0 - x) * (point.0 - x);
    }
    (together > 0.0 && alone > 0.0).then(|| together / alone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_volume::admin::Used;

    fn days(bytes: impl Iterator<Item = u64>) -> Vec<UsedOnDay> {
        let used = |bytes| Used { bytes, files: 1 };
        (20_000..).zip(bytes).map(|(day, bytes)| UsedOnDay { day: Day(day), used: used(bytes) }).collect()
    }

    #[test]
    fn what_grows_is_full_some_day() {
        // 10 a day; 290 on day 20_029
        assert_eq!(full_on(&days((0..30).map(|n| n * 10)), 1000), Some(Day(20_029 + 71)));
        assert_eq!(full_on(&days((0..30).map(|n| 1000 - n * 10)), 2000), None, "it shrinks");
        assert_eq!(full_on(&days((0..30).map(|_| 500)), 1000), None, "it stays");
        assert_eq!(full_on(&days((1..30).map(|n| 10 + n / 10)), u64::MAX), None, "not in our time");
        assert_eq!(full_on(&days((0..30).map(|_| 1000)), 1000), Some(Day(20_029)), "it is full");
        assert_eq!(full_on(&days((1..5).map(|n| n * 10)), 1000), None, "too little is known");
        assert_eq!(full_on(&days(std::iter::repeat_n(0, 30)), 1000), None, "nothing is known");
        assert_eq!(full_on(&days((1..30).map(|n| n * 10)), 0), None, "there is no limit");
    }

    #[test]
    fn days_of_which_nothing_is_known_do_not_count() {
        let with_gap = days((0..30).map(|n| if n % 5 == 3 { 0 } else { 100 + n * 10 }));
        assert_eq!(full_on(&with_gap, 1390), Some(Day(20_029 + 100)));
    }
}
