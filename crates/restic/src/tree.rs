//! Directories as restic stores them: one JSON text of nodes, sorted by name.
//!
//! A directory may have millions of names: it is written and read node by node, and only its
//! compressed form is held.

use crate::pack::{Compressed, encoder};
use crate::{Error, Id, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use leeward_env::dates;
use ring::digest;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::io::{BufReader, Read, Write};

/// Longer ones are compressed as they are written, and read in parts.
const HELD_BYTES_MAX: usize = 4 << 20;
/// Bits of a mode as Go has them.
const GO_SETUID: u32 = 1 << 23;
const GO_SETGID: u32 = 1 << 22;
const GO_STICKY: u32 = 1 << 20;

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A device that is read by blocks.
    Dev,
    /// A device that is read by characters.
    CharDev,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// What restic could not read, and what is not known here.
    #[serde(other)]
    Irregular,
}

impl NodeKind {
    fn go_bits(self) -> u32 {
        match self {
            NodeKind::File => 0,
            NodeKind::Dir => 1 << 31,
            NodeKind::Symlink => 1 << 27,
            NodeKind::Dev => 1 << 26,
            NodeKind::CharDev => 1 << 26 | 1 << 21,
            NodeKind::Fifo => 1 << 25,
            NodeKind::Socket => 1 << 24,
            NodeKind::Irregular => 1 << 19,
        }
    }
}

/// A moment, since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Seconds.
    pub secs: i64,
    /// Nanoseconds from there on.
    pub nanos: u32,
}

/// The first and the last second of which restic can read the year: of 1 and 9999.
const YEARS: [i64; 2] = [-62_135_596_800, 253_402_300_799];

impl Moment {
    /// A moment, or the nearest one that can be stored.
    pub fn storable(secs: i64, nanos: u32) -> Moment {
        let nearest = secs.clamp(YEARS[0], YEARS[1]);
        Moment { secs: nearest, nanos: if nearest == secs { nanos } else { 0 } }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = dates::second(self.secs.clamp(YEARS[0], YEARS[1]));
        let whole = text.trim_end_matches('Z');
        if self.nanos == 0 {
            return write!(f, "{whole}Z");
        }
        let nanos = format!("{:09}", self.nanos);
        write!(f, "{whole}.{}Z", nanos.trim_end_matches('0'))
    }
}

impl Moment {
    /// Reads a time as restic writes it, in any zone.
    pub fn parse(text: &str) -> Option<Moment> {
        let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
        let day = dates::day_of(number(0..4)?, number(5..7)?, number(8..10)?)?;
        let time = number(11..13)? * 3600 + number(14..16)? * 60 + number(17..19)?;
        let mut rest = text.get(19..)?;
        let mut nanos = 0;
        if let Some(fraction) = rest.strip_prefix('.') {
            let end = fraction.find(|c: char| !c.is_ascii_digit())?;
            nanos = format!("{:0<9}", fraction.get(..end.min(9))?).parse().ok()?;
            rest = &fraction[end..];
        }
        let zone = match rest.strip_prefix(['+', '-']) {
            None => 0,
            Some(zone) => {
                let part = |range: std::ops::Range<usize>| zone.get(range)?.parse::<i64>().ok();
                let secs = part(0..2)? * 3600 + part(3..5)? * 60;
                if rest.starts_with('-') { -secs } else { secs }
            }
        };
        Some(Moment { secs: day * dates::DAY_SECS + time - zone, nanos })
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Moment, D::Error> {
        let text = String::deserialize(d)?;
        Moment::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("{text:?} is no time")))
    }
}

/// Bytes as base64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Base64(pub Vec<u8>);

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.serialize_str(&BASE64.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Base64, D::Error> {
        let text = Option::<String>::deserialize(d)?.unwrap_or_default();
        BASE64.decode(text).map(Base64).map_err(serde::de::Error::custom)
    }
}

/// An extended attribute. POSIX ACLs are among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// Name.
    pub name: String,
    /// Value.
    pub value: Base64,
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A name in a directory, and what it leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The name, quoted: see [`Node::name`].
    #[serde(rename = "name")]
    quoted: String,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: NodeKind,
    #[serde(default, skip_serializing_if = "is_zero")]
    mode: u32,
    /// Modification.
    #[serde(default)]
    pub mtime: Moment,
    /// Access.
    #[serde(default)]
    pub atime: Moment,
    /// Change of the inode.
    #[serde(default)]
    pub ctime: Moment,
    /// Owner.
    #[serde(default)]
    pub uid: u32,
    /// Group.
    #[serde(default)]
    pub gid: u32,
    /// Inode number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub inode: u64,
    /// The file system that the inode number is of.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub device_id: u64,
    /// Bytes of a file.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub size: u64,
    /// Names of the inode.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub links: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    linktarget: String,
    /// The target of a link that is no UTF-8.
    #[serde(default, skip_serializing_if = "is_zero")]
    linktarget_raw: Base64,
    /// Extended attributes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extended_attributes: Vec<Attribute>,
    /// Device.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub device: u64,
    /// The chunks of a file.
    #[serde(default)]
    pub content: Option<Vec<Id>>,
    /// The tree of a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subtree: Option<Id>,
}

impl Node {
    /// A node with a mode (07777) and nothing else.
    pub fn new(name: &[u8], kind: NodeKind, mode: u32) -> Node {
        let special = [(0o4000, GO_SETUID), (0o2000, GO_SETGID), (0o1000, GO_STICKY)];
        let special = special.iter().filter(|(bit, _)| mode & bit != 0).map(|(_, go)| go).sum::<u32>();
        Node {
            quoted: quote(name),
            kind,
            mode: kind.go_bits() | mode & 0o777 | special,
            mtime: Moment::default(),
            atime: Moment::default(),
            ctime: Moment::default(),
            uid: 0,
            gid: 0,
            inode: 0,
            device_id: 0,
            size: 0,
            links: 0,
            linktarget: String::new(),
            linktarget_raw: Base64::default(),
            extended_attributes: Vec::new(),
            device: 0,
            content: None,
            subtree: None,
        }
    }

    /// The name; `None`: the quotes make no sense.
    pub fn name(&self) -> Option<Vec<u8>> {
        unquote(&self.quoted)
    }

    /// The mode, 07777.
    pub fn mode(&self) -> u32 {
        let special = [(0o4000, GO_SETUID), (0o2000, GO_SETGID), (0o1000, GO_STICKY)];
        let special = special.iter().filter(|(_, go)| self.mode & go != 0).map(|(bit, _)| bit).sum::<u32>();
        self.mode & 0o777 | special
    }

    /// Sets the target of a link.
    pub fn set_target(&mut self, target: &[u8]) {
        self.linktarget = String::from_utf8_lossy(target).into_owned();
        if std::str::from_utf8(target).is_err() {
            self.linktarget_raw = Base64(target.into());
        }
    }

    /// The target of a link.
    pub fn target(&self) -> &[u8] {
        if self.linktarget_raw.0.is_empty() { self.linktarget.as_bytes() } else { &self.linktarget_raw.0 }
    }
}

/// A name as Go quotes strings, without the quotation marks.
fn quote(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                c if u32::from(c) < 32 || c == '\x7f' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
                c => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
    }
    out
}

fn unquote(text: &str) -> Option<Vec<u8>> {
    if !text.contains('\\') {
        return Some(text.into());
    }
    let (mut out, mut chars) = (Vec::with_capacity(text.len()), text.chars());
    while let Some(c) = chars.next() {
        let mut put = |c: char| out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        if c != '\\' {
            put(c);
            continue;
        }
        let digits = match chars.next()? {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            c @ ('\\' | '"' | '\'') => {
                put(c);
                continue;
            }
            c => {
                let at = "abfnrtv".find(c)?;
                out.push(b"\x07\x08\x0c\n\r\t\x0b"[at]);
                continue;
            }
        };
        let code: String = chars.by_ref().take(digits).collect();
        let code = u32::from_str_radix(&code, 16).ok().filter(|_| code.len() == digits)?;
        match digits {
            2 => out.push(code as u8),
            _ => put(char::from_u32(code)?),
        }
    }
    Some(out)
}

/// A directory that is being written.
pub struct TreeWriter {
    sum: digest::Context,
    plain: Vec<u8>,
    plain_len: u64,
    compressed: Option<zstd::stream::write::Encoder<'static, Vec<u8>>>,
    is_first: bool,
}

/// A directory that was written.
pub enum WrittenTree {
    /// Its text.
    Plain(Id, Vec<u8>),
    /// Its text, compressed as it was written.
    Compressed(Id, Compressed),
}

impl Default for TreeWriter {
    fn default() -> Self {
        let mut tree = TreeWriter {
            sum: digest::Context::new(&digest::SHA256),
            plain: Vec::new(),
            plain_len: 0,
            compressed: None,
            is_first: true,
        };
        tree.put(br#"{"nodes":["#);
        tree
    }
}

impl TreeWriter {
    fn put(&mut self, bytes: &[u8]) {
        self.plain.extend_from_slice(bytes);
    }

    /// Adds a node: by the order of names.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn add(&mut self, node: &Node) -> Result<()> {
        if !std::mem::take(&mut self.is_first) {
            self.put(b",");
        }
        let failed = |e: &dyn fmt::Display| Error::damaged(format!("a directory cannot be written: {e}"));
        serde_json::to_writer(&mut self.plain, node).map_err(|e| failed(&e))?;
        if self.plain.len() >= HELD_BYTES_MAX { self.spill().map_err(|e| failed(&e)) } else { Ok(()) }
    }

    fn spill(&mut self) -> std::io::Result<()> {
        self.sum.update(&self.plain);
        self.plain_len += self.plain.len() as u64;
        if self.compressed.is_none() {
            self.compressed = Some(encoder()?);
        }
        if let Some(to) = &mut self.compressed {
            to.write_all(&self.plain)?;
        }
        self.plain.clear();
        Ok(())
    }

    /// Ends it.
    ///
    /// # Errors
    /// When it is longer than a tree can be.
    pub fn finish(mut self) -> Result<WrittenTree> {
        self.put(b"]}\n");
        if self.compressed.is_none() {
            return Ok(WrittenTree::Plain(Id::of(&self.plain), self.plain));
        }
        let failed = |e: std::io::Error| Error::damaged(format!("a directory cannot be written: {e}"));
        self.spill().map_err(failed)?;
        let bytes = self.compressed.take().expect("spilled").finish().map_err(failed)?;
        let id = Id(self.sum.finish().as_ref().try_into().expect("SHA-256 has 32 bytes"));
        let plain_len = u32::try_from(self.plain_len)
            .map_err(|_| Error::damaged("a directory has more names than a tree of restic can"))?;
        Ok(WrittenTree::Compressed(id, Compressed { bytes, plain_len }))
    }
}

/// What hears of each node.
pub type EachNode<'a> = dyn FnMut(Node) -> Result<()> + 'a;

/// Reads what is stored of a tree, which was compressed if `plain_len` is not 0.
pub(crate) fn read_stored(id: &Id, stored: Vec<u8>, plain_len: u32, each: &mut EachNode<'_>) -> Result<()> {
    let damaged =
        |e: &dyn fmt::Display| Error::damaged(format!("tree {id} is damaged ({e}): run lee backup check"));
    match plain_len as usize {
        0 => read_text(id, &stored, each),
        len if len <= HELD_BYTES_MAX => {
            let plain = zstd::bulk::decompress(&stored, len).map_err(|e| damaged(&e))?;
            read_text(id, &plain, each)
        }
        _ => {
            let plain = zstd::stream::read::Decoder::new(&stored[..]).map_err(|e| damaged(&e))?;
            let mut summed = Summed { from: plain, sum: digest::Context::new(&digest::SHA256) };
            let mut from = serde_json::Deserializer::from_reader(BufReader::new(&mut summed));
            nodes(&mut from, each).and_then(|read| read.map_err(|e| damaged(&e)))?;
            std::io::copy(&mut summed, &mut std::io::sink()).map_err(|e| damaged(&e))?;
            if summed.sum.finish().as_ref() == id.0 { Ok(()) } else { Err(damaged(&"it is another one")) }
        }
    }
}

fn read_text(id: &Id, plain: &[u8], each: &mut EachNode<'_>) -> Result<()> {
    let damaged =
        |e: &dyn fmt::Display| Error::damaged(format!("tree {id} is damaged ({e}): run lee backup check"));
    if Id::of(plain) != *id {
        return Err(damaged(&"it is another one"));
    }
    nodes(&mut serde_json::Deserializer::from_slice(plain), each)?.map_err(|e| damaged(&e))
}

/// What is read, summed up.
struct Summed<R> {
    from: R,
    sum: digest::Context,
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let len = self.from.read(buf)?;
        self.sum.update(&buf[..len]);
        Ok(len)
    }
}

/// The failure of `each`, or else of reading.
fn nodes<'de, R: serde_json::de::Read<'de>>(
    from: &mut serde_json::Deserializer<R>,
    each: &mut EachNode<'_>,
) -> Result<serde_json::Result<()>> {
    let mut failed = None;
    let read = from.deserialize_map(Nodes { each, failed: &mut failed });
    match failed {
        Some(failed) => Err(failed),
        None => Ok(read),
    }
}

struct Nodes<'a, 'b> {
    each: &'a mut EachNode<'b>,
    failed: &'a mut Option<Error>,
}

impl<'de> Visitor<'de> for Nodes<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tree of nodes")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> std::result::Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "nodes" {
                map.next_value_seed(&mut self)?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<(), A::Error> {
        while let Some(node) = seq.next_element::<Node>()? {
            if let Err(failed) = (self.each)(node) {
                *self.failed = Some(failed);
                return Err(serde::de::Error::custom("not read to its end"));
            }
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> std::result::Result<(), E> {
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for &mut Nodes<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> std::result::Result<(), D::Error> {
        d.deserialize_any(Nodes { each: &mut *self.each, failed: &mut *self.failed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_bytes_survive() {
        let names: [&[u8]; 6] =
            [b"plain", b"q\"uote\\", b"new\nline\x7f", b"\xff\xfe bad", "b\u{e4}r".as_bytes(), b"\xc3"];
        for name in names {
            assert_eq!(unquote(&quote(name)).as_deref(), Some(name), "{}", quote(name));
        }
        // as Go writes them
        assert_eq!(quote(b"a\n"), "a\\x0a");
        assert_eq!(
            unquote(r"a\n\t\u00e4\U0001f600\xff").expect("good"),
            b"a\n\t\xc3\xa4\xf0\x9f\x98\x80\xff"
        );
        for wrong in [r"\", r"\x1", r"\q", r"\ud800"] {
            assert_eq!(unquote(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_are_written_and_read() {
        let at = |secs, nanos| Moment { secs, nanos };
        for (moment, text) in [
            (at(0, 0), "1970-01-01T00:00:00Z"),
            (at(-1, 999_999_999), "1969-12-31T23:59:59.999999999Z"),
            (at(1_795_257_838, 120_000_000), "2026-11-21T10:43:58.12Z"),
        ] {
            assert_eq!(moment.to_string(), text);
            assert_eq!(Moment::parse(text), Some(moment));
        }
        assert_eq!(Moment::parse("2026-11-21T11:43:58.12+01:00"), Moment::parse("2026-11-21T10:43:58.12Z"));
        assert_eq!(at(i64::MAX, 0).to_string(), "9999-12-31T23:59:59Z");
        assert_eq!(Moment::parse("yesterday"), None);
    }

    #[test]
    fn modes_are_those_of_go() {
        let node = Node::new(b"x", NodeKind::Dir, 0o7751);
        assert_eq!(node.mode, 1 << 31 | 1 << 23 | 1 << 22 | 1 << 20 | 0o751);
        assert_eq!(node.mode(), 0o7751);
    }

    #[test]
    fn large_trees_are_written_and_read_in_parts() {
        for count in [0, 3, 60_000] {
            let mut tree = TreeWriter::default();
            let node = |n: usize| {
                let mut node = Node::new(format!("{n:08}").as_bytes(), NodeKind::File, 0o644);
                (node.content, node.inode) = (Some(vec![Id::of(&n.to_le_bytes())]), n as u64 + 1);
                node
            };
            (0..count).for_each(|n| tree.add(&node(n)).expect("added"));
            let (id, stored, len) = match tree.finish().expect("written") {
                WrittenTree::Plain(id, plain) => (id, plain, 0),
                WrittenTree::Compressed(id, c) => (id, c.bytes, c.plain_len),
            };
            assert_eq!(len > 0, count > 1000);
            let mut seen = 0;
            let mut each = |read: Node| {
                assert_eq!(read, node(seen));
                seen += 1;
                Ok(())
            };
            read_stored(&id, stored.clone(), len, &mut each).expect("read");
            assert_eq!(seen, count);
            assert!(read_stored(&Id::of(b"other"), stored.clone(), len, &mut |_| Ok(())).is_err());
            if count > 0 {
                let ended = read_stored(&id, stored, len, &mut |_| Err(Error::stopped()));
                assert_eq!(ended, Err(Error::stopped()));
            }
        }
    }
}
