//! Points in time for a person, always in UTC, so that lines from several machines can be compared.

use leeward_env::dates;
use std::time::Duration;

/// `2026-11-21 10:43:58 UTC`.
pub fn utc(secs: i64) -> String {
    let (days, rest) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    let (year, month, day) = dates::civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", rest / 3600, rest / 60 % 60, rest % 60)
}

/// A duration: `12 s`, `5 min`, `3 h`, `4 d`.
pub fn ago(secs: i64) -> String {
    match secs.max(0) {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7_200 => format!("{} min", s / 60),
        s @ 7_200..172_800 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

/// A date on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Seconds since 1970.
    At(i64),
    /// Seconds from now.
    In(i64),
}

impl Until {
    /// Seconds since 1970.
    pub fn at(self, now: i64) -> i64 {
        match self {
            Until::At(secs) => secs,
            Until::In(secs) => now + secs,
        }
    }
}

/// Parses `2027-01-01`, `2027-01-01T12:00Z`, `+30d`.
pub fn parse_until(text: &str) -> Result<Until, String> {
    let until = match text.strip_prefix('+') {
        Some(span) => parse_span(span).map(Until::In),
        None if text.len() == 10 => dates::parse_minute(&format!("{text}T00:00Z")).map(Until::At),
        None => dates::parse_minute(text).map(Until::At),
    };
    until.ok_or_else(|| {
        format!(
            "`{text}` is no date: write 2027-01-01, 2027-01-01T12:00Z (UTC), or from now on +12h, +30d or +8w"
        )
    })
}

/// Parses `2027-01-01`, `2027-01-01T12:00Z` as the last second of that day or minute.
pub fn parse_at(text: &str) -> Result<i64, String> {
    let at = match text.len() {
        10 => dates::parse_minute(&format!("{text}T23:59Z")),
        _ => dates::parse_minute(text),
    };
    at.map(|secs| secs + 59).ok_or_else(|| no_time(text))
}

/// Parses `2027-01-01`, `2027-01-01T12:00Z` as the first second of that day or minute.
pub fn parse_from(text: &str) -> Result<i64, String> {
    let from = match text.len() {
        10 => dates::parse_minute(&format!("{text}T00:00Z")),
        _ => dates::parse_minute(text),
    };
    from.ok_or_else(|| no_time(text))
}

fn no_time(text: &str) -> String {
    format!("`{text}` is no time: write 2027-01-01 or 2027-01-01T12:00Z (UTC)")
}

/// Parses `15m`, `1h`, `1d`, `1w`.
pub fn parse_interval(text: &str) -> Result<u32, String> {
    let secs = parse_span(text).and_then(|secs| u32::try_from(secs).ok());
    secs.ok_or_else(|| {
        format!("`{text}` is no interval: write minutes, hours, days or weeks, such as 15m, 1h, 1d or 1w")
    })
}

/// Parses a duration: `50ms`, `1s`, `10m`, `1h`, `1d`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit_ms = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let unit_ms = unit_ms.into_iter().find(|(name, _)| *name == unit).map(|(_, ms)| ms);
    let ms = unit_ms.zip(digits.parse::<u32>().ok()).map(|(unit, count)| u64::from(count) * unit);
    ms.filter(|ms| *ms > 0).map(Duration::from_millis).ok_or_else(|| {
        format!("`{text}` is no duration: write a number with ms, s, m, h or d, such as 50ms, 1s or 10m")
    })
}

/// The inverse of [`parse_interval`].
pub fn interval(secs: u32) -> String {
    let unit = SPANS.iter().rev().find(|(_, unit)| i64::from(secs) % unit == 0);
    unit.map_or_else(|| format!("{secs} s"), |(letter, unit)| format!("{}{letter}", i64::from(secs) / unit))
}

const SPANS: [(char, i64); 4] = [('m', 60), ('h', 3600), ('d', 86_400), ('w', 604_800)];

fn parse_span(text: &str) -> Option<i64> {
    let letter = text.chars().next_back()?;
    let (_, unit) = SPANS.iter().find(|(l, _)| *l == letter)?;
    let digits = &text[..text.len() - 1];
    let count = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<u32>().ok()).flatten()?;
    (count > 0).then_some(i64::from(count) * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        for (secs, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_795_257_838, "2026-11-21 10:43:58 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(utc(secs), text);
        }
        assert_eq!(parse_until("2000-02-29"), Ok(Until::At(951_782_400)));
        assert_eq!(parse_until("2000-02-29T00:01Z"), Ok(Until::At(951_782_460)));
        assert_eq!(parse_at("2000-02-29"), Ok(951_782_400 + 86_399));
        assert_eq!(parse_at("2000-02-29T00:01Z"), Ok(951_782_460 + 59));
        assert!(parse_at("+30d").is_err());
        assert_eq!(parse_until("+30d").map(|u| u.at(1)), Ok(30 * 86_400 + 1));
        for text in [
            "",
            "2026-02-30",
            "2026-1-1",
            "+",
            "+d",
            "-1d",
            "+0d",
            "+1x",
            "+5",
            "30d",
            "2027-01-01T12:00",
            "+1é",
        ] {
            assert!(parse_until(text).is_err(), "{text}");
        }
        for text in ["15m", "1h", "36h", "1d", "2w"] {
            assert_eq!(parse_interval(text).map(interval), Ok(text.to_string()));
        }
        assert!(parse_interval("1s").is_err() && parse_interval("9999999999w").is_err());
        assert_eq!(parse_duration("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7200)));
        for text in ["", "5", "s", "0s", "-1s", "1.5s", "1w", "9999999999s", "1 s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(ago(90), "90 s");
        assert_eq!(ago(3 * 86_400), "3 d");
    }
}
