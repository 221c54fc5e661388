//! Names of the snapshots that mirrors take: which mirror, and when.

use leeward_env::{Nanos, dates};
use leeward_volume::admin::{MirrorInfo, OF_MIRRORS};

/// They begin with this.
pub const PREFIX: &str = OF_MIRRORS;
/// Then the number of the mirror comes, in hexadecimal digits, and a hyphen.
const NUMBER_DIGITS: usize = 8;
/// And the time, such as `2026-11-27T09:09:24.362Z`.
const TIME_BYTES: usize = 24;

/// The name of a snapshot that is taken at this time.
pub fn new_name(mirror: &MirrorInfo, wall: Nanos) -> String {
    let second = dates::second((wall / 1_000_000_000) as i64);
    format!("{}{}.{:03}Z", mirror.snapshot_prefix(), second.trim_end_matches('Z'), wall / 1_000_000 % 1000)
}

/// The prefix of a snapshot that some mirror has taken, perhaps one of another cell.
pub fn prefix_of(name: &str) -> Option<&str> {
    let (number, time) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let is_number = number.len() == NUMBER_DIGITS && number.bytes().all(|b| b.is_ascii_hexdigit());
    let is_time = time.len() == TIME_BYTES && time.is_ascii() && time.ends_with('Z');
    (is_number && is_time).then(|| &name[..PREFIX.len() + NUMBER_DIGITS + 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_whose_it_is() {
        let mirror = |to: &str| MirrorInfo {
            volume: "v".into(),
            to: to.into(),
            copy: "v".into(),
            ..MirrorInfo::default()
        };
        let (one, other) = (mirror("one"), mirror("other"));
        let name = new_name(&one, 1_795_770_564_362_999_999);
        assert_eq!(name, format!("{}2026-11-27T09:09:24.362Z", one.snapshot_prefix()));
        assert_eq!(prefix_of(&name), Some(&*one.snapshot_prefix()));
        assert_ne!(one.snapshot_prefix(), other.snapshot_prefix());
        for own in
            ["mirror-", "mirror-1", "mirror-0123456x-2026-11-27T09:09:24.362Z", "mirror-01234567-today"]
        {
            assert_eq!(prefix_of(own), None, "{own}");
        }
    }
}
