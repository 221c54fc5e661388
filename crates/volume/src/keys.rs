//! Keys of the shard's records: big-endian, `volume u32 | inode u64 | tag u8 | rest`, so that one inode's records are
//! neighbours and one directory's names are one scan in name order. Encodings are part of the format (docs/FORMAT.md).
//!
//! Volume numbers from [`SYSTEM`] up are not volumes but the shard's own tables.

use crate::op::NodeId;
use std::sync::Arc;

/// An encoded key; cheap to clone, ordered as the engine orders it.
pub type Key = Arc<[u8]>;

/// First volume number that is a system table.
const SYSTEM: u32 = 0xFFFF_FF00;
const TABLE_CELL: u32 = SYSTEM;
const TABLE_VOLUME: u32 = SYSTEM + 1;
const TABLE_QUOTA: u32 = SYSTEM + 2;
const TABLE_ORPHAN: u32 = SYSTEM + 3;
const TABLE_SEGMENT: u32 = SYSTEM + 4;
const TABLE_BACKREF: u32 = SYSTEM + 5;

/// Tags within an inode.
pub mod tag {
    /// The inode itself.
    pub const INODE: u8 = 0x10;
    /// Recursive statistics of a directory.
    pub const STATS: u8 = 0x20;
    /// A name in a directory.
    pub const DENTRY: u8 = 0x30;
    /// Extents of one window of a file.
    pub const EXTENTS: u8 = 0x40;
    /// An extended attribute.
    pub const XATTR: u8 = 0x50;
    /// How many names an inode with several has in one directory.
    pub const LINK: u8 = 0x60;
}

fn build(volume: u32, inode: u64, tag: u8, rest: &[u8]) -> Key {
    let mut stack = [0u8; 13 + 64];
    let len = 13 + rest.len();
    if len <= stack.len() {
        fill(&mut stack, volume, inode, tag, rest);
        return Arc::from(&stack[..len]);
    }
    let mut heap = vec![0u8; len];
    fill(&mut heap, volume, inode, tag, rest);
    Arc::from(heap)
}

fn fill(out: &mut [u8], volume: u32, inode: u64, tag: u8, rest: &[u8]) {
    out[..4].copy_from_slice(&volume.to_be_bytes());
    out[4..12].copy_from_slice(&inode.to_be_bytes());
    out[12] = tag;
    out[13..13 + rest.len()].copy_from_slice(rest);
}

/// The inode record.
pub fn inode(node: NodeId) -> Key {
    build(node.volume(), node.inode(), tag::INODE, &[])
}

/// Recursive statistics of a directory.
pub fn stats(dir: NodeId) -> Key {
    build(dir.volume(), dir.inode(), tag::STATS, &[])
}

/// A name in a directory.
pub fn dentry(dir: NodeId, name: &[u8]) -> Key {
    build(dir.volume(), dir.inode(), tag::DENTRY, name)
}

/// Extents of window `window` of a file.
pub fn extents(node: NodeId, window: u32) -> Key {
    build(node.volume(), node.inode(), tag::EXTENTS, &window.to_be_bytes())
}

/// An extended attribute.
pub fn xattr(node: NodeId, name: &[u8]) -> Key {
    build(node.volume(), node.inode(), tag::XATTR, name)
}

/// How many names `node` has in `dir`.
pub fn link(node: NodeId, dir: NodeId) -> Key {
    build(node.volume(), node.inode(), tag::LINK, &dir.inode().to_be_bytes())
}

/// The range of all records of a node with this tag.
pub fn tag_range(node: NodeId, tag: u8) -> (Key, Key) {
    (build(node.volume(), node.inode(), tag, &[]), build(node.volume(), node.inode(), tag + 1, &[]))
}

/// The range of all records of a node.
pub fn node_range(node: NodeId) -> (Key, Key) {
    (build(node.volume(), node.inode(), 0, &[]), build(node.volume(), node.inode() + 1, 0, &[]))
}

/// The range of all records of a volume.
pub fn volume_range(volume: u32) -> (Key, Key) {
    (build(volume, 0, 0, &[]), build(volume + 1, 0, 0, &[]))
}

/// The cell's counters.
pub fn cell() -> Key {
    build(TABLE_CELL, 0, 0, &[])
}

/// A volume's record.
pub fn volume(id: u32) -> Key {
    build(TABLE_VOLUME, u64::from(id), 0, &[])
}

/// A quota.
pub fn quota(node: NodeId) -> Key {
    build(TABLE_QUOTA, node.0, 0, &[])
}

/// An unlinked inode that is still open, or being freed.
pub fn orphan(node: NodeId) -> Key {
    build(TABLE_ORPHAN, node.0, 0, &[])
}

/// A segment's record.
pub fn segment(segment: u64) -> Key {
    build(TABLE_SEGMENT, segment, 0, &[])
}

/// That `node` uses (in `window`) data at `offset` of a segment that was written for somebody else.
pub fn backref(segment: u64, offset: u32, node: NodeId, window: u32) -> Key {
    let mut rest = [0u8; 16];
    rest[..4].copy_from_slice(&offset.to_be_bytes());
    rest[4..12].copy_from_slice(&node.0.to_be_bytes());
    rest[12..].copy_from_slice(&window.to_be_bytes());
    build(TABLE_BACKREF, segment, 0, &rest)
}

/// All users of a segment's data besides those it was written for.
pub fn backref_range(segment: u64) -> (Key, Key) {
    (build(TABLE_BACKREF, segment, 0, &[]), build(TABLE_BACKREF, segment + 1, 0, &[]))
}

/// A system table as a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Volumes.
    Volume,
    /// Quotas.
    Quota,
    /// Orphans.
    Orphan,
    /// Segments.
    Segment,
    /// Back references.
    Backref,
}

/// The range of a system table.
pub fn table_range(table: Table) -> (Key, Key) {
    let t = match table {
        Table::Volume => TABLE_VOLUME,
        Table::Quota => TABLE_QUOTA,
        Table::Orphan => TABLE_ORPHAN,
        Table::Segment => TABLE_SEGMENT,
        Table::Backref => TABLE_BACKREF,
    };
    (build(t, 0, 0, &[]), build(t + 1, 0, 0, &[]))
}

/// A decoded key of the volumes' part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed<'a> {
    /// Whose record.
    pub node: NodeId,
    /// Which kind, see [`tag`].
    pub tag: u8,
    /// Name or window.
    pub rest: &'a [u8],
}

/// Takes a key apart; `None` when it is too short.
pub fn parse(key: &[u8]) -> Option<Parsed<'_>> {
    let volume = u32::from_be_bytes(key.get(..4)?.try_into().ok()?);
    let inode = u64::from_be_bytes(key.get(4..12)?.try_into().ok()?);
    if volume >= SYSTEM || inode >> 40 != 0 {
        return None;
    }
    Some(Parsed { node: NodeId::new(volume, inode), tag: *key.get(12)?, rest: &key[13..] })
}

/// The second field of a system table's key: a node, a volume or a segment number.
pub fn table_id(key: &[u8]) -> u64 {
    key.get(4..12).and_then(|b| b.try_into().ok()).map_or(0, u64::from_be_bytes)
}

/// The node and window of a back reference's key.
pub fn parse_backref(key: &[u8]) -> Option<(NodeId, u32)> {
    let node = u64::from_be_bytes(key.get(17..25)?.try_into().ok()?);
    let window = u32::from_be_bytes(key.get(25..29)?.try_into().ok()?);
    Some((NodeId(node), window))
}
