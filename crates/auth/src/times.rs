//! Points in time and spans as credentials write them: RFC 3339 in UTC, durations of ISO 8601.

use leeward_env::dates::{DAY_SECS, day_of, second};

/// Reads [`second`], also with a fraction of a second, which is cut off.
pub(crate) fn parse_utc(text: &str) -> Option<i64> {
    let whole = text.strip_suffix('Z')?;
    let (whole, fraction) = whole.split_once('.').unwrap_or((whole, "0"));
    if fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number = |range: std::ops::Range<usize>| whole.get(range)?.parse::<i64>().ok();
    let day = day_of(number(0..4)?, number(5..7)?, number(8..10)?)?;
    let secs = day * DAY_SECS + number(11..13)? * 3600 + number(14..16)? * 60 + number(17..19)?;
    // only this one spelling; no leap seconds
    (second(secs) == format!("{whole}Z")).then_some(secs)
}

/// Seconds of `P1DT2H30M5S`. Years and months have no fixed length, and are not read.
pub(crate) fn parse_span(text: &str) -> Option<i64> {
    let rest = text.strip_prefix('P')?;
    let (date, time) = rest.split_once('T').map_or((rest, None), |(date, time)| (date, Some(time)));
    if time.is_some_and(str::is_empty) || (date.is_empty() && time.is_none()) {
        return None;
    }
    let days = sum(date, &[('W', 7 * DAY_SECS), ('D', DAY_SECS)])?;
    days.checked_add(sum(time.unwrap_or_default(), &[('H', 3600), ('M', 60), ('S', 1)])?)
}

/// The sum of numbers with these units after them, each at most once and in this order.
fn sum(text: &str, units: &[(char, i64)]) -> Option<i64> {
    let (mut rest, mut total) = (text, 0i64);
    for (letter, secs) in units {
        if let Some((digits, after)) = rest.split_once(*letter) {
            if digits.is_empty() || digits.len() > 9 || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            total = total.checked_add(digits.parse::<i64>().ok()?.checked_mul(*secs)?)?;
            rest = after;
        }
    }
    rest.is_empty().then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_as_they_are_written() {
        for secs in [0, 951_782_400, 1_795_257_838, 4_102_444_799] {
            assert_eq!(parse_utc(&second(secs)), Some(secs));
        }
        assert_eq!(parse_utc("2026-11-21T10:43:58.999Z"), Some(1_795_257_838));
        for text in [
            "",
            "Z",
            "2026-11-21T10:43:58",
            "2026-11-21T10:43:60Z",
            "2026-02-29T00:00:00Z",
            "2026-11-21 10:43:58Z",
            "2026-11-21T10:43:58.Z",
            "2026-11-21T10:43:58.1xZ",
            "2026-11-21T10:43:58+00:00",
            "2026-11-21T+1:43:58Z",
            "2026-11-21T10:43:58é",
        ] {
            assert_eq!(parse_utc(text), None, "{text}");
        }
    }

    #[test]
    fn spans_are_read() {
        for (text, secs) in [
            ("PT30M", 1800),
            ("PT1H", 3600),
            ("P1D", 86_400),
            ("P1W", 604_800),
            ("P1DT1H1M1S", 90_061),
            ("PT0S", 0),
        ] {
            assert_eq!(parse_span(text), Some(secs), "{text}");
        }
        for text in [
            "",
            "P",
            "PT",
            "P1",
            "1H",
            "PT1D",
            "P1H",
            "P1Y",
            "P1M",
            "PT-1H",
            "PT1M1H",
            "PT9999999999S",
            "PTé",
        ] {
            assert_eq!(parse_span(text), None, "{text}");
        }
    }
}
