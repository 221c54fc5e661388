//! Dates in UTC, as names of scheduled snapshots and for messages. The proleptic Gregorian
//! calendar; no time zones.

/// Seconds of a day.
pub const DAY_SECS: i64 = 86_400;

/// Year, month and day of a day counted from 1970-01-01. Years are counted from March, so that the
/// leap day is the last one.
pub fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// The day counted from 1970-01-01; `None` when the calendar has no such day.
pub fn day_of(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let year_from_march = year - i64::from(month <= 2);
    let (era, year_of_era) = (year_from_march.div_euclid(400), year_from_march.rem_euclid(400));
    let day_of_year = (153 * from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    (civil(days) == (year, month, day)).then_some(days)
}

/// `2026-11-21T13:00:59Z`, for seconds since 1970.
pub fn second(secs: i64) -> String {
    let (year, month, day) = civil(secs.div_euclid(DAY_SECS));
    let rest = secs.rem_euclid(DAY_SECS);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// `2026-11-21T13:00Z`, for seconds since 1970.
pub fn minute(secs: i64) -> String {
    let text = second(secs);
    format!("{}Z", &text[..text.len() - ":59Z".len()])
}

/// Reads the output of [`minute`], in exactly that form.
pub fn parse_minute(text: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
    let day = day_of(number(0..4)?, number(5..7)?, number(8..10)?)?;
    let secs = day * DAY_SECS + number(11..13)? * 3600 + number(14..16)? * 60;
    (minute(secs) == text).then_some(secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_as_they_are_written() {
        for secs in [0, 951_782_400, 1_795_257_840, 4_102_444_800, -60] {
            assert_eq!(parse_minute(&minute(secs)), Some(secs));
        }
        assert_eq!(minute(1_795_257_838), "2026-11-21T10:43Z");
        for (secs, text) in [
            (784_111_777, "1994-11-06T08:49:37Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(second(secs), text);
        }
        for text in [
            "2026-02-29T00:00Z",
            "2026-11-21T24:00Z",
            "2026-11-21T1:00Z",
            "2026-11-21",
            "x",
            "2026-1é-21T10:43Z",
        ] {
            assert_eq!(parse_minute(text), None, "{text}");
        }
        for day in (-800_000..3_000_000).step_by(977) {
            let (y, m, d) = civil(day);
            if (1..=9999).contains(&y) {
                assert_eq!(day_of(y, m, d), Some(day));
            }
        }
    }
}
