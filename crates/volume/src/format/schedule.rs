//! Schedules of snapshots: their stored form, what they keep, and when they are due. Pure.

use leeward_env::dates::{self, DAY_SECS};
use leeward_fs::{Error, Result};
use leeward_meta::Value;
use std::fmt;
use std::str::FromStr;

const VERSION: u8 = 1;

/// How many of the newest snapshots are kept: the newest one of each of as many hours, days, weeks
/// (from Monday), months and years in which any was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep([u16; 5]);

/// Letters of the units of [`Keep`], and of intervals (minutes there).
const UNITS: [char; 5] = ['h', 'd', 'w', 'm', 'y'];

impl FromStr for Keep {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Keep, String> {
        let wrong = || {
            format!(
                "`{text}` does not say what to keep: write counts of hours, days, weeks, months and years, such as 24h7d4w12m"
            )
        };
        let mut keep = Keep::default();
        let mut rest = text;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
            let count: u16 = rest[..digits].parse().map_err(|_| wrong())?;
            let letter = rest[digits..].chars().next().ok_or_else(wrong)?;
            let unit = UNITS.iter().position(|u| *u == letter).ok_or_else(wrong)?;
            if count == 0 || std::mem::replace(&mut keep.0[unit], count) != 0 {
                return Err(wrong());
            }
            rest = &rest[digits + letter.len_utf8()..];
        }
        if keep == Keep::default() { Err(wrong()) } else { Ok(keep) }
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().zip(UNITS).filter(|(n, _)| **n > 0).try_for_each(|(n, unit)| write!(f, "{n}{unit}"))
    }
}

impl Keep {
    /// How old, in seconds, snapshots become where one is taken in each period.
    pub fn reach_secs(self) -> i64 {
        let units = [3600, DAY_SECS, 7 * DAY_SECS, 31 * DAY_SECS, 366 * DAY_SECS];
        self.0.into_iter().zip(units).map(|(count, secs)| i64::from(count) * secs).max().unwrap_or(0)
    }
}

/// The number of the hour, day, week, month or year (by its index in [`UNITS`]) that a time is in.
fn period(unit: usize, secs: i64) -> i64 {
    let days = secs.div_euclid(DAY_SECS);
    let (year, month, _) = dates::civil(days);
    match unit {
        0 => secs.div_euclid(3600),
        1 => days,
        // 1970-01-01 was a Thursday
        2 => (days + 3).div_euclid(7),
        3 => year * 12 + month,
        _ => year,
    }
}

/// The times, of these oldest first, whose snapshots are not kept. Times in the future have no
/// effect and are kept.
pub fn expired(taken: &[i64], now: i64, keep: Keep) -> Vec<i64> {
    let past: Vec<i64> = taken.iter().copied().filter(|t| *t <= now).collect();
    let mut kept: Vec<i64> = past.last().copied().into_iter().collect();
    for (unit, count) in keep.0.into_iter().enumerate() {
        let (mut last, mut left) = (None, count);
        for t in past.iter().rev() {
            if left == 0 {
                break;
            }
            if last.replace(period(unit, *t)) != Some(period(unit, *t)) {
                kept.push(*t);
                left -= 1;
            }
        }
    }
    past.into_iter().filter(|t| !kept.contains(t)).collect()
}

/// The last multiple of an interval.
pub fn slot(now: i64, interval_secs: u32) -> i64 {
    now - now.rem_euclid(i64::from(interval_secs.max(60)))
}

/// The multiple of the interval that is due, if nothing ran for it since the last run (or the
/// beginning).
pub fn due(ran: i64, now: i64, interval_secs: u32) -> Option<i64> {
    let at = slot(now, interval_secs);
    (at != slot(ran, interval_secs)).then_some(at)
}

/// Whether the newest run (or, if there is none, the beginning) is longer ago than twice the
/// interval.
pub fn is_late(newest: Option<i64>, since: i64, interval_secs: u32, now: i64) -> bool {
    now - newest.unwrap_or(since) > 2 * i64::from(interval_secs)
}

/// A schedule as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleRecord {
    /// Seconds, a multiple of 60.
    pub interval_secs: u32,
    /// When it was made, seconds since 1970.
    pub since_secs: i64,
    /// The snapshots to keep.
    pub keep: Keep,
}

impl ScheduleRecord {
    /// The encoding: version, interval u32, since i64, five counts u16.
    pub fn encode(&self) -> Value {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.interval_secs.to_be_bytes());
        out.extend_from_slice(&self.since_secs.to_be_bytes());
        self.keep.0.iter().for_each(|n| out.extend_from_slice(&n.to_be_bytes()));
        out.into()
    }

    /// Reads the encoding.
    pub fn decode(bytes: &[u8]) -> Result<ScheduleRecord> {
        let damaged = || Error::Corrupt(format!("schedule record of {} bytes cannot be read", bytes.len()));
        let bytes: &[u8; 23] = bytes.try_into().map_err(|_| damaged())?;
        if bytes[0] != VERSION {
            return Err(damaged());
        }
        let mut since = [0; 8];
        since.copy_from_slice(&bytes[5..13]);
        let count = |i: usize| u16::from_be_bytes([bytes[13 + 2 * i], bytes[14 + 2 * i]]);
        Ok(ScheduleRecord {
            interval_secs: u32::from_be_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]),
            since_secs: i64::from_be_bytes(since),
            keep: Keep(std::array::from_fn(count)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> i64 {
        dates::parse_minute(text).expect("a time")
    }

    #[test]
    fn what_to_keep_is_read_and_shown() {
        for text in ["24h7d4w12m", "1y", "3d", "100h2y"] {
            assert_eq!(text.parse::<Keep>().map(|k| k.to_string()), Ok(text.to_string()));
        }
        assert_eq!("7d24h".parse::<Keep>(), "24h7d".parse::<Keep>());
        for text in ["", "h", "5", "5x", "0h", "1h1h", "-1h", "70000h", "1é", "24 h"] {
            assert!(text.parse::<Keep>().is_err(), "{text}");
        }
        let record = ScheduleRecord { interval_secs: 3600, since_secs: -7, keep: Keep([1, 2, 3, 4, 65535]) };
        assert_eq!(ScheduleRecord::decode(&record.encode()), Ok(record));
        assert!(ScheduleRecord::decode(&record.encode()[1..]).is_err());
    }

    #[test]
    fn the_newest_of_each_period_is_kept() {
        let hours: Vec<i64> = (0..24 * 100).map(|h| at("2026-08-01T00:00Z") + h * 3600).collect();
        let now = *hours.last().expect("many") + 120;
        let keep: Keep = "24h7d4w2m".parse().expect("good");
        let gone = expired(&hours, now, keep);
        let left: Vec<String> =
            hours.iter().filter(|t| !gone.contains(t)).map(|t| dates::minute(*t)).collect();
        // until 2026-11-08T23:00Z, a Sunday: 24 hours, 6 days more, 3 weeks more, 1 month more
        assert_eq!(left.len(), 24 + 6 + 3 + 1, "{left:?}");
        let head = ["2026-10-18T23:00Z", "2026-10-25T23:00Z", "2026-10-31T23:00Z", "2026-11-01T23:00Z"];
        assert_eq!(&left[..4], head);
        assert_eq!(left[4], "2026-11-02T23:00Z");
        // kept snapshots stay kept at the next run
        let again: Vec<i64> = hours.iter().copied().filter(|t| !gone.contains(t)).collect();
        assert_eq!(expired(&again, now, keep), Vec::<i64>::new());
    }

    #[test]
    fn the_last_one_and_those_to_come_are_kept() {
        let keep: Keep = "2d".parse().expect("good");
        assert_eq!(expired(&[], 0, keep), Vec::<i64>::new());
        let (a, b, c) = (at("2026-01-01T00:00Z"), at("2026-01-01T12:00Z"), at("2026-03-05T00:00Z"));
        // periods without any do not count
        assert_eq!(expired(&[a, b, c], c, keep), [a]);
        assert_eq!(expired(&[a, b, c], b, keep), [a]);
    }
}
