//! Dates as HTTP writes them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The last second that HTTP can write: the end of the year 9999.
const LAST: u64 = 253_402_300_799;

/// `Sun, 06 Nov 1994 08:49:37 GMT` of seconds since 1970; a time outside the range of HTTP becomes
/// the nearest one in it.
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
}
