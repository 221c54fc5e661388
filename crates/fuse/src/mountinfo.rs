//! What is mounted where, from `/proc/self/mountinfo` (which asks no file system anything, so it
//! cannot hang on a dead one).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Number of the mount: no other one gets it while this one is there.
    pub(crate) id: u64,
    /// `major:minor`, as in /sys/class/bdi.
    pub(crate) device: String,
    pub(crate) at: PathBuf,
    /// Such as `fuse.leeward`.
    pub(crate) kind: String,
    /// Such as the directory of the cell.
    pub(crate) source: PathBuf,
    /// Whether the kernel checks rights by modes and owners.
    pub(crate) is_checked: bool,
}

/// The topmost mount exactly at this path.
pub(crate) fn find(at: &Path) -> Option<Entry> {
    let text = std::fs::read("/proc/self/mountinfo").ok()?;
    parse(&text).filter(|e| e.at == at).last()
}

/// The mount with this number, wherever it is now: a directory above it may have been renamed.
pub(crate) fn find_id(id: u64) -> Option<Entry> {
    let text = std::fs::read("/proc/self/mountinfo").ok()?;
    parse(&text).find(|e| e.id == id)
}

fn parse(text: &[u8]) -> impl Iterator<Item = Entry> + '_ {
    text.split(|b| *b == b'\n').filter_map(parse_line)
}

/// `36 35 98:0 /root /at rw,noatime optional... - kind source options`
fn parse_line(line: &[u8]) -> Option<Entry> {
    let mut fields = line.split(|b| *b == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = fields.nth(1)?;
    let at = fields.nth(1)?;
    let mut rest = fields.skip_while(|f| *f != b"-").skip(1);
    Some(Entry {
        id,
        device: String::from_utf8_lossy(device).into_owned(),
        at: unescape(at),
        kind: String::from_utf8_lossy(rest.next()?).into_owned(),
        source: unescape(rest.next()?),
        is_checked: rest.next()?.split(|b| *b == b',').any(|option| option == b"default_permissions"),
    })
}

/// Spaces, tabs, newlines and backslashes come as `\ooo`.
fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut i = 0;
    while i < field.len() {
        let octal =
            field.get(i + 1..i + 4).filter(|o| field[i] == b'\\' && o.iter().all(|b| b.is_ascii_digit()));
        match octal {
            Some(o) => {
                out.push(o.iter().fold(0u8, |n, b| n.wrapping_mul(8).wrapping_add(b - b'0')));
                i += 4;
            }
            None => {
                out.push(field[i]);
                i += 1;
            }
        }
    }
    OsString::from_vec(out).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_line() {
        let line = b"36 35 0:58 / /mnt/a\\040b\\134c rw,nosuid shared:1 master:2 - fuse.leeward /cells/one rw,user_id=0";
        let checked = [&line[..], b",default_permissions,allow_other"].concat();
        assert!(parse_line(&checked).expect("a mount").is_checked);
        let entry = parse_line(line).expect("a mount");
        assert_eq!(
            entry,
            Entry {
                id: 36,
                device: "0:58".into(),
                at: "/mnt/a b\\c".into(),
                kind: "fuse.leeward".into(),
                source: "/cells/one".into(),
                is_checked: false,
            }
        );
        assert_eq!(parse_line(b"36 35 0:58"), None);
    }
}
