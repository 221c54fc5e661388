//! Dates as HTTP and WebDAV write them.

use leeward_env::dates::{DAY_SECS, civil};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The last second that HTTP can write: the end of the year 9999.
const LAST: u64 = 253_402_300_799;

/// `Sun, 06 Nov 1994 08:49:37 GMT` of seconds since 1970; what HTTP cannot write is moved to where it can.
pub fn http(secs: i64) -> String {
    httpdate::fmt_http_date(time(secs))
}

/// Seconds since 1970 of a date in any of the forms that HTTP allows.
pub fn parse(text: &str) -> Option<i64> {
    let time: SystemTime = httpdate::parse_http_date(text).ok()?;
    i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
}

fn time(secs: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(secs).unwrap_or(0).min(LAST))
}

/// `1994-11-06T08:49:37Z` of seconds since 1970, as `creationdate` has it.
pub fn iso(secs: i64) -> String {
    let (year, month, day) = civil(secs.div_euclid(DAY_SECS));
    let second = secs.rem_euclid(DAY_SECS);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_there_and_back() {
        assert_eq!(http(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        for text in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            assert_eq!(parse(text), Some(784_111_777), "{text}");
        }
        assert_eq!(parse("tomorrow"), None);
        assert_eq!((http(-5), http(i64::MAX)), (http(0), http(LAST as i64)));
    }

    #[test]
    fn iso_dates() {
        for (secs, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (784_111_777, "1994-11-06T08:49:37Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(iso(secs), text);
        }
    }
}
