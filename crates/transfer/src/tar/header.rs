//! One header of an archive: the block of POSIX's `ustar`, and the pax records before it for what
//! the block has no room for.

use super::{BLOCK, padding};
use crate::sys::Time;

/// The type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A file with content.
    File,
    /// A further name of an entry before.
    HardLink,
    /// A symbolic link.
    Symlink,
    /// A device that is read by characters.
    CharDevice,
    /// A device that is read by blocks.
    BlockDevice,
    /// A directory.
    Directory,
    /// A FIFO.
    Fifo,
}

impl Type {
    fn letter(self) -> u8 {
        match self {
            Type::File => b'0',
            Type::HardLink => b'1',
            Type::Symlink => b'2',
            Type::CharDevice => b'3',
            Type::BlockDevice => b'4',
            Type::Directory => b'5',
            Type::Fifo => b'6',
        }
    }
}

/// An entry of an archive, without its content.
#[derive(Clone, Debug)]
pub struct Header {
    /// Its path; of a directory with `/` at the end.
    pub path: Vec<u8>,
    /// Where a link leads.
    pub link: Vec<u8>,
    /// What it is.
    pub kind: Type,
    /// Permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The owner's name; empty: none.
    pub user: String,
    /// The group's name; empty: none.
    pub group: String,
    /// Bytes of content that follow.
    pub size: u64,
    /// Of a file with holes: its length. What follows is the map, then the data.
    pub sparse_size: Option<u64>,
    /// Last change of content.
    pub mtime: Time,
    /// Numbers of a device.
    pub device: (u32, u32),
    /// Records of our own choice: key and value.
    pub records: Vec<(Vec<u8>, Vec<u8>)>,
}

const NAME_BYTES: usize = 100;
const PREFIX_BYTES: usize = 155;
const OWNER_NAME_BYTES: usize = 31;
/// The largest number of an octal field: seven digits, and eleven.
const SHORT_MAX: u64 = 0o7777777;
const LONG_MAX: u64 = 0o77777777777;

impl Header {
    /// The bytes of the header, with the records before it.
    pub fn encode(&self) -> Vec<u8> {
        let records = self.pax_records();
        let mut out = Vec::new();
        if !records.is_empty() {
            let size = records.len() as u64;
            let (name, mtime) = (beside(&self.path, b"PaxHeaders"), self.whole_mtime());
            let numbers = Numbers { mode: 0o644, uid: 0, gid: 0, size, mtime, device: (0, 0) };
            out.extend(block(&numbers, &cut(&name), b'x', b"", "", ""));
            out.extend(&records);
            out.extend(padding(size));
        }
        let name = match self.sparse_size {
            Some(_) => cut(&beside(&self.path, b"GNUSparseFile.0")),
            None => cut(&self.path),
        };
        let small = |id: u32| if u64::from(id) > SHORT_MAX { 0 } else { id };
        let numbers = Numbers {
            mode: self.mode,
            uid: small(self.uid),
            gid: small(self.gid),
            size: if self.size > LONG_MAX { 0 } else { self.size },
            mtime: self.whole_mtime(),
            device: self.device,
        };
        let link = &self.link[..self.link.len().min(NAME_BYTES)];
        out.extend(block(&numbers, &name, self.kind.letter(), link, &self.user, &self.group));
        out
    }

    fn whole_mtime(&self) -> u64 {
        u64::try_from(self.mtime.secs).ok().filter(|secs| *secs <= LONG_MAX).unwrap_or(0)
    }

    fn pax_records(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let long_path = self.sparse_size.is_some() || !fits(&self.path);
        let long_link = self.link.len() > NAME_BYTES;
        let raw = |needed: bool, text: &[u8]| needed && std::str::from_utf8(text).is_err();
        if raw(long_path, &self.path) || raw(long_link, &self.link) {
            record(&mut out, b"hdrcharset", b"BINARY");
        }
        if self.sparse_size.is_none() && (long_path || needs_charset(&self.path)) {
            record(&mut out, b"path", &self.path);
        }
        if long_link || needs_charset(&self.link) {
            record(&mut out, b"linkpath", &self.link);
        }
        if let Some(size) = self.sparse_size {
            record(&mut out, b"GNU.sparse.major", b"1");
            record(&mut out, b"GNU.sparse.minor", b"0");
            record(&mut out, b"GNU.sparse.name", &self.path);
            record(&mut out, b"GNU.sparse.realsize", size.to_string().as_bytes());
        }
        let numbers = [
            (&b"uid"[..], u64::from(self.uid), SHORT_MAX),
            (b"gid", u64::from(self.gid), SHORT_MAX),
            (b"size", self.size, LONG_MAX),
        ];
        for (key, value, _) in numbers.into_iter().filter(|(_, value, most)| value > most) {
            record(&mut out, key, value.to_string().as_bytes());
        }
        if self.mtime.nanos != 0 || self.whole_mtime() as i64 != self.mtime.secs {
            record(&mut out, b"mtime", decimal(self.mtime).as_bytes());
        }
        for (key, value) in &self.records {
            record(&mut out, key, value);
        }
        out
    }
}

/// A moment as pax writes it: `-1.5` is half a second before 1969-12-31 23:59:59.
fn decimal(time: Time) -> String {
    let nanos = time.as_nanos();
    let (sign, nanos) = if nanos < 0 { ("-", -nanos) } else { ("", nanos) };
    let (secs, fraction) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let text = format!("{sign}{secs}.{fraction:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Adds a record: its own length, a blank, key, `=`, value, end of line.
fn record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + digits(length) {
        length = rest + digits(length);
    }
    out.extend_from_slice(length.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

fn digits(number: usize) -> usize {
    number.to_string().len()
}

/// Whether readers must know that a name is in UTF-8. One that is not stays as it is.
fn needs_charset(name: &[u8]) -> bool {
    !name.is_ascii() && std::str::from_utf8(name).is_ok()
}

/// Where a path is divided between the two fields of the block, if it fits.
fn division(path: &[u8]) -> Option<usize> {
    if path.len() <= NAME_BYTES {
        return Some(0);
    }
    let possible = path.len() - NAME_BYTES - 1..path.len().min(PREFIX_BYTES + 1);
    possible.into_iter().find(|at| *at > 0 && path[*at] == b'/' && at + 1 < path.len())
}

fn fits(path: &[u8]) -> bool {
    division(path).is_some()
}

/// The fields for name and prefix; of a path that is too long its end, for readers that do not know
/// pax.
fn cut(path: &[u8]) -> (Vec<u8>, Vec<u8>) {
    match division(path) {
        Some(0) => (path.to_vec(), Vec::new()),
        Some(at) => (path[at + 1..].to_vec(), path[..at].to_vec()),
        None => (path[path.len() - NAME_BYTES..].to_vec(), Vec::new()),
    }
}

/// `DIRECTORY/WORD/NAME` of `DIRECTORY/NAME`, as GNU tar calls what belongs to an entry.
fn beside(path: &[u8], word: &[u8]) -> Vec<u8> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let at = path.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    [&path[..at], word, b"/", &path[at..]].concat()
}

struct Numbers {
    mode: u32,
    uid: u32,
    gid: u32,
    size: u64,
    mtime: u64,
    device: (u32, u32),
}

fn block(
    numbers: &Numbers,
    (name, prefix): &(Vec<u8>, Vec<u8>),
    letter: u8,
    link: &[u8],
    user: &str,
    group: &str,
) -> [u8; BLOCK as usize] {
    let mut block = [0; BLOCK as usize];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    let short = |number: u32| format!("{number:07o}");
    let long = |number: u64| format!("{number:011o}");
    put(0, name);
    put(100, short(numbers.mode).as_bytes());
    put(108, short(numbers.uid).as_bytes());
    put(116, short(numbers.gid).as_bytes());
    put(124, long(numbers.size).as_bytes());
    put(136, long(numbers.mtime).as_bytes());
    put(148, b"        ");
    put(156, &[letter]);
    put(157, link);
    put(257, b"ustar\x0000");
    let short_name = |name: &str| name.len() <= OWNER_NAME_BYTES && name.is_ascii();
    for (at, owner) in [(265, user), (297, group)].into_iter().filter(|(_, name)| short_name(name)) {
        put(at, owner.as_bytes());
    }
    put(329, short(numbers.device.0).as_bytes());
    put(337, short(numbers.device.1).as_bytes());
    put(345, prefix);
    let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(path: &[u8]) -> Header {
        Header {
            path: path.to_vec(),
            link: Vec::new(),
            kind: Type::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            user: String::new(),
            group: String::new(),
            size: 0,
            sparse_size: None,
            mtime: Time { secs: 1, nanos: 0 },
            device: (0, 0),
            records: Vec::new(),
        }
    }

    #[test]
    fn records_count_their_own_length() {
        for (value, length) in
            [(1, "8"), (2, "9"), (3, "11"), (91, "99"), (92, "101"), (990, "999"), (991, "1001")]
        {
            let mut out = Vec::new();
            record(&mut out, b"key", &vec![b'x'; value]);
            let text = String::from_utf8(out).expect("ASCII");
            assert_eq!(text.split(' ').next(), Some(length), "{value}");
            assert_eq!(text.len().to_string(), length);
        }
    }

    #[test]
    fn times_before_1970_and_fractions() {
        let time = |secs, nanos| decimal(Time { secs, nanos });
        assert_eq!(time(1, 500_000_000), "1.5");
        assert_eq!(time(10, 0), "10");
        assert_eq!(time(0, 1), "0.000000001");
        assert_eq!(time(-2, 500_000_000), "-1.5");
        assert_eq!(time(-1, 0), "-1");
    }

    #[test]
    fn names_go_to_the_block_while_they_fit() {
        let plain = header(b"./a").encode();
        assert_eq!(plain.len(), 512);
        assert_eq!(&plain[..4], b"./a\0");
        let two = [&[b'd'; 150][..], b"/", &[b'f'; 100]].concat();
        let encoded = header(&two).encode();
        assert_eq!(encoded.len(), 512);
        assert_eq!((encoded[0], encoded[345]), (b'f', b'd'));
        for long in [vec![b'n'; 101], [&[b'd'; 156][..], b"/", &[b'f'; 100]].concat(), vec![b'n'; 300]] {
            assert_eq!(header(&long).encode().len(), 3 * 512);
        }
        assert_eq!(header("./ä".as_bytes()).encode().len(), 3 * 512);
        assert_eq!(header(b"./\xff").encode().len(), 512, "bytes that are no text stay as they are");
        let long = [b"./\xff", &[b'x'; 120][..]].concat();
        let encoded = header(&long).encode();
        assert!(encoded.windows(17).any(|w| w == b"hdrcharset=BINARY"));
    }

    #[test]
    fn large_numbers_become_records() {
        let large = Header { uid: 3_000_000, size: 1 << 33, ..header(b"./a") };
        let text = String::from_utf8_lossy(&large.encode()).into_owned();
        assert!(text.contains(" uid=3000000\n") && text.contains(" size=8589934592\n"), "{text}");
        assert!(!text.contains("mtime="));
        let fits = Header { uid: SHORT_MAX as u32, size: LONG_MAX, ..header(b"./a") };
        assert_eq!(fits.encode().len(), 512);
    }
}
