//! A day in UTC, `2026-11-21` in JSON.

use crate::format::samples;
use leeward_env::dates;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A day, counted from 1970-01-01. What is said of a day was so when it began, at 0:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(pub u32);

impl Day {
    /// Reads what [`fmt::Display`] writes, and no other form.
    pub fn parse(text: &str) -> Option<Day> {
        let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
        let day = dates::day_of(number(0..4)?, number(5..7)?, number(8..10)?)?;
        let day = Day(u32::try_from(day).ok()?);
        (day.to_string() == text).then_some(day)
    }

    /// The day so many days later.
    pub fn plus(self, days: u32) -> Day {
        Day(self.0.saturating_add(days))
    }

    /// The day so many days before.
    pub fn minus(self, days: u32) -> Day {
        Day(self.0.saturating_sub(days))
    }

    /// The first day of its month.
    pub fn first_of_month(self) -> Day {
        Day(samples::first_of_month(self.0))
    }

    /// The first day of the month after its own.
    pub fn first_of_next_month(self) -> Day {
        Day(samples::first_of_next_month(self.0))
    }

    /// Year and month.
    pub fn month(self) -> (i64, i64) {
        let (year, month, _) = dates::civil(self.0.into());
        (year, month)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = dates::civil(self.0.into());
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

impl Serialize for Day {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Day {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Day, D::Error> {
        let text = String::deserialize(deserializer)?;
        Day::parse(&text).ok_or_else(|| D::Error::custom(format!("{text} is no day")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_read_as_they_are_written() {
        for text in ["1970-01-01", "2024-02-29", "2026-11-21", "9999-12-31"] {
            assert_eq!(Day::parse(text).map(|day| day.to_string()).as_deref(), Some(text));
        }
        for text in ["", "2026-02-29", "2026-1-1", "2026-11-21x", "1969-12-31", "+026-11-21"] {
            assert_eq!(Day::parse(text), None, "{text}");
        }
        assert_eq!(Day::parse("2026-03-01").map(|day| day.minus(1).month()), Some((2026, 2)));
    }
}
