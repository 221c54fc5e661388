//! Names of buckets, for the cell that keeps buckets and the doors that show them.

/// Whether S3 allows the name: 3 to 63 of `a-z`, `0-9`, `-`, `.`; a letter or digit at both ends;
/// no `..`; no IPv4 address.
pub fn is_name(name: &str) -> bool {
    let end = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = name.as_bytes();
    (3..=63).contains(&bytes.len())
        && end(bytes.first())
        && end(bytes.last())
        && bytes.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'))
        && !name.contains("..")
        && name.parse::<std::net::Ipv4Addr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_s3() {
        for name in ["abc", "a.b-c", "0x0", &"x".repeat(63)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["ab", "Abc", "-ab", "ab-", "a_b", "a..b", "1.2.3.4", "", &"x".repeat(64)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
