//! Sizes and counts, as people write and read them: bytes in powers of 1024 (`10G` is 10 GiB),
//! counts in powers of 1000 (`1M` is a million files). `none` means no limit, which is 0 in
//! requests.

/// A limit given on the command line; 0 is "no limit".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub u64);

/// Parses a limit in bytes: `none`, `512`, `1.5G`, `10GiB`.
pub fn parse_bytes(text: &str) -> Result<Limit, String> {
    parse_limit(text, 1024).ok_or_else(|| {
        format!("`{text}` is no size: write bytes with K, M, G, T or P (powers of 1024), such as 10G or 1.5T, or `none`")
    })?
    .above_zero(text)
}

/// Parses a size in bytes: as [`parse_bytes`], without `none`.
pub fn parse_space(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        Limit(0) => Err(format!("`{text}` is no size here: write how much may be used, such as 2G")),
        Limit(bytes) => Ok(bytes),
    }
}

/// Parses a limit in files: `none`, `5000`, `1M`.
pub fn parse_count(text: &str) -> Result<Limit, String> {
    parse_limit(text, 1000).ok_or_else(|| {
        format!("`{text}` is no count: write a number with k, M or G (powers of 1000), such as 500k or 1M, or `none`")
    })?
    .above_zero(text)
}

/// A parsed limit, before zero is refused.
enum Parsed {
    None,
    Value(u64),
}

impl Parsed {
    fn above_zero(self, text: &str) -> Result<Limit, String> {
        match self {
            Parsed::None => Ok(Limit(0)),
            Parsed::Value(0) => {
                Err(format!("`{text}` would allow nothing: write at least 1, or `none` for no limit"))
            }
            Parsed::Value(value) => Ok(Limit(value)),
        }
    }
}

fn parse_limit(text: &str, base: u64) -> Option<Parsed> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("none") {
        return Some(Parsed::None);
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = u128::from(unit_value(unit.trim(), base)?);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 || number.ends_with('.') {
        return None;
    }
    let mut value = whole.parse::<u128>().ok()?.checked_mul(unit)?;
    if !fraction.is_empty() {
        value += fraction.parse::<u128>().ok()? * unit / 10u128.pow(fraction.len() as u32);
    }
    // Above i64 nothing can be counted.
    (value <= i64::MAX as u128).then_some(Parsed::Value(value as u64))
}

/// The value of a unit: nothing, `B`, or a letter, followed by nothing, `B` or `iB` (bytes only).
fn unit_value(unit: &str, base: u64) -> Option<u64> {
    let bytes = base == 1024;
    if unit.is_empty() || (bytes && unit.eq_ignore_ascii_case("b")) {
        return Some(1);
    }
    let power = match unit.as_bytes()[0].to_ascii_lowercase() {
        b'k' => 1,
        b'm' => 2,
        b'g' => 3,
        b't' => 4,
        b'p' => 5,
        _ => return None,
    };
    let rest = &unit[1..];
    let known =
        rest.is_empty() || (bytes && (rest.eq_ignore_ascii_case("b") || rest.eq_ignore_ascii_case("ib")));
    known.then(|| base.pow(power))
}

/// Bytes for a person: `0 B`, `3.9 KiB`, `10 GiB`. Three digits at most before the unit changes.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if value < 1024 {
        return format!("{value} B");
    }
    let mut scaled = value as f64 / 1024.0;
    let mut unit = 0;
    // A value that would be shown as 1024 belongs to the next unit.
    while scaled >= 1023.5 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let digits = if scaled >= 99.95 { format!("{scaled:.0}") } else { format!("{scaled:.1}") };
    format!("{} {}", digits.strip_suffix(".0").unwrap_or(&digits), UNITS[unit])
}

/// A limit in bytes for a person.
pub fn bytes_limit(value: u64) -> String {
    if value == 0 { "none".into() } else { bytes(value) }
}

/// A limit in files for a person.
pub fn count_limit(value: u64) -> String {
    if value == 0 { "none".into() } else { count(value) }
}

/// A count for a person: digits in groups of three.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A count with its noun: `1 file`, `3,000 files`.
pub fn counted(value: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(value), if value == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, value) in
            [("none", 0), ("1", 1), ("10G", 10 << 30), ("1.5k", 1536), ("2 MiB", 2 << 20), ("7TB", 7 << 40)]
        {
            assert_eq!(parse_bytes(text), Ok(Limit(value)), "{text}");
        }
        for text in ["", "G", "-1", "1.", ".5", "1X", "1Gb/s", "10 G B", "0", "0.1", "9999999999P", "é", "1é"]
        {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        assert_eq!(parse_count("1M"), Ok(Limit(1_000_000)));
        assert_eq!(parse_count("2.5k"), Ok(Limit(2500)));
        assert!(parse_count("1MiB").is_err());
        for (value, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (3901, "3.8 KiB"),
            (10 << 30, "10 GiB"),
            ((1 << 20) - 1, "1 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(counted(1, "file", "files"), "1 file");
    }
}
