//! Records of the event log of a volume: what changed, in order, in blocks that a commit writes
//! with the changes themselves. docs/FORMAT.md describes them.
//!
//! Each block names the digest of the block before, so a block that is changed, left out or put in
//! later does not go with the next one, nor with the head.

use crate::format::inode::{Reader, damaged, kind_of};
use crate::format::keys::{self, Key};
use crate::format::numbers::{
    put_bytes, put_difference, put_number, take_bytes, take_difference, take_number,
};
use leeward_env::{Door, Machine, Work};
use leeward_fs::{Kind, NodeId};
use leeward_meta::Value;
use ring::digest::{Context, SHA256};
use rustc_hash::FxHashSet;

/// The digest of a block.
pub type BlockDigest = [u8; 32];

/// Who changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor {
    /// User id.
    pub uid: u32,
    /// The way in which it came.
    pub door: Door,
    /// The work of the file system itself that did it, if it was one.
    pub work: Option<Work>,
    /// The machine, where it is another one.
    pub machine: Option<Machine>,
}

/// A name in a directory of the event's volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Inode of the directory; 0: it has none.
    pub dir: u64,
    /// The name.
    pub name: Box<[u8]>,
}

/// Attributes that somebody may want to know of after a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Mode, 07777.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The inode has this name now, and had none before.
    Created {
        /// The name.
        at: Named,
    },
    /// The inode has this name now besides others.
    Linked {
        /// The name.
        at: Named,
    },
    /// The inode has this name no more.
    Removed {
        /// The name.
        at: Named,
    },
    /// The inode has another name.
    Renamed {
        /// The name that it had.
        from: Named,
        /// The name that it has.
        to: Named,
    },
    /// The inode and another one have each other's name now.
    Exchanged {
        /// The name that it had, and the other has.
        from: Named,
        /// The name that it has, and the other had.
        to: Named,
        /// The other inode.
        other: NodeId,
        /// Its type.
        other_kind: Kind,
    },
    /// Its content changed: at least once since the block before.
    Written {
        /// A name of it.
        at: Named,
    },
    /// Mode, owner or group changed.
    Rights {
        /// A name of it.
        at: Named,
        /// Before.
        was: Rights,
        /// After.
        is: Rights,
    },
    /// Times or flags were set.
    Attributes {
        /// A name of it.
        at: Named,
    },
    /// An extended attribute, which an ACL is, too, was set or removed.
    Xattr {
        /// A name of it.
        at: Named,
        /// Name of the attribute.
        xattr: Box<[u8]>,
        /// Whether it was removed.
        removed: bool,
    },
    /// A snapshot of the directory was taken.
    SnapshotTaken {
        /// The directory and the name of the snapshot.
        at: Named,
    },
    /// A snapshot of the directory was removed.
    SnapshotRemoved {
        /// The directory and the name of the snapshot.
        at: Named,
    },
    /// A snapshot of the directory has another name.
    SnapshotRenamed {
        /// The directory and the name that the snapshot had.
        from: Named,
        /// The directory and the name that the snapshot has.
        to: Named,
    },
    /// A snapshot of the directory was locked, or its lock removed.
    SnapshotLocked {
        /// The directory and the name of the snapshot.
        at: Named,
        /// Nobody may remove it before this second since 1970; 0: it is not locked.
        until_secs: i64,
    },
    /// An operator asked for this: JSON.
    Asked(Box<[u8]>),
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since 1970. Not always in order: other machines tell later of what they did.
    pub at: u64,
    /// Who did it.
    pub by: Actor,
    /// The inode.
    pub node: NodeId,
    /// Its type.
    pub kind: Kind,
    /// What happened.
    pub what: What,
}

impl What {
    /// Whether names, content or attributes of what is live differ after it.
    pub fn is_change(&self) -> bool {
        match self {
            What::Created { .. }
            | What::Linked { .. }
            | What::Removed { .. }
            | What::Renamed { .. }
            | What::Exchanged { .. }
            | What::Written { .. }
            | What::Rights { .. }
            | What::Attributes { .. }
            | What::Xattr { .. } => true,
            What::SnapshotTaken { .. }
            | What::SnapshotRemoved { .. }
            | What::SnapshotRenamed { .. }
            | What::SnapshotLocked { .. }
            | What::Asked(_) => false,
        }
    }
}

impl Event {
    /// Where directories of this volume were until now that were moved or removed: their inodes and
    /// those names.
    pub fn moved(&self, volume: u32) -> impl Iterator<Item = (NodeId, &Named)> {
        let own = (self.node, self.kind);
        let moved = match &self.what {
            What::Renamed { from: at, .. } | What::Removed { at } => [Some((own, at)), None],
            What::Exchanged { from, to, other, other_kind } => {
                [Some((own, from)), Some(((*other, *other_kind), to))]
            }
            _ => [None, None],
        };
        let is_dir = move |(node, kind): (NodeId, Kind)| kind == Kind::Dir && node.volume() == volume;
        moved.into_iter().flatten().filter(move |(inode, _)| is_dir(*inode)).map(|((node, _), at)| (node, at))
    }
}

/// A block of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Digest of the block before.
    pub before: BlockDigest,
    /// The events.
    pub events: Vec<Event>,
}

/// A block of so many bytes takes no more events.
const BLOCK_BYTES_MAX: usize = 64 << 10;

/// A block that is being made.
#[derive(Default)]
pub struct OpenBlock {
    count: u32,
    actors: Vec<Actor>,
    /// The encoded events.
    body: Vec<u8>,
    last_at: u64,
    /// Inodes that have [`What::Written`] in it, and by which actor.
    written: FxHashSet<(NodeId, usize)>,
}

const VERSION: u8 = 1;
/// Bits of a node that are its inode.
const INODE_BITS: u32 = 40;
const DOORS: [Door; 4] = [Door::Mount, Door::S3, Door::Http, Door::Remote];

/// Kinds of [`What`].
mod kind {
    pub const CREATED: u8 = 1;
    pub const LINKED: u8 = 2;
    pub const REMOVED: u8 = 3;
    pub const RENAMED: u8 = 4;
    pub const WRITTEN: u8 = 5;
    pub const RIGHTS: u8 = 6;
    pub const ATTRIBUTES: u8 = 7;
    pub const XATTR: u8 = 8;
    pub const XATTR_REMOVED: u8 = 9;
    pub const ASKED: u8 = 10;
    pub const SNAPSHOT_TAKEN: u8 = 11;
    pub const SNAPSHOT_REMOVED: u8 = 12;
    pub const SNAPSHOT_RENAMED: u8 = 13;
    pub const SNAPSHOT_LOCKED: u8 = 14;
    pub const EXCHANGED: u8 = 15;
}

fn put_named(named: &Named, out: &mut Vec<u8>) {
    put_number(named.dir, out);
    put_bytes(&named.name, out);
}

fn take_named(r: &mut Reader<'_>) -> Option<Named> {
    Some(Named { dir: take_number(r)?, name: take_bytes(r)? })
}

/// A node by what distinguishes it from the volume: its inode, if it is in it.
fn put_node(node: NodeId, volume: u32, out: &mut Vec<u8>) {
    put_number(node.0 ^ u64::from(volume) << INODE_BITS, out);
}

fn take_node(r: &mut Reader<'_>, volume: u32) -> Option<NodeId> {
    Some(NodeId(take_number(r)? ^ u64::from(volume) << INODE_BITS))
}

fn put_rights(rights: Rights, out: &mut Vec<u8>) {
    [rights.mode, rights.uid, rights.gid].into_iter().for_each(|n| put_number(n.into(), out));
}

fn take_rights(r: &mut Reader<'_>) -> Option<Rights> {
    let [mode, uid, gid] = [(); 3].map(|()| take_number(r).and_then(|n| u32::try_from(n).ok()));
    Some(Rights { mode: mode?, uid: uid?, gid: gid? })
}

impl Actor {
    fn encode(&self, out: &mut Vec<u8>) {
        put_number(self.uid.into(), out);
        let door = DOORS.iter().position(|door| *door == self.door).unwrap_or_default();
        let work = self.work.map_or(0, |work| work as u8 + 1);
        out.extend_from_slice(&[door as u8, work]);
        put_bytes(self.machine.map_or("", Machine::name).as_bytes(), out);
    }

    fn decode(r: &mut Reader<'_>) -> Option<Actor> {
        let uid = u32::try_from(take_number(r)?).ok()?;
        let [door, work] = r.take()?;
        let machine = take_bytes(r)?;
        let machine = std::str::from_utf8(&machine).ok()?;
        Some(Actor {
            uid,
            door: *DOORS.get(usize::from(door))?,
            work: match work {
                0 => None,
                n => Some(Work::of_number(u32::from(n) - 1)?),
            },
            machine: (!machine.is_empty()).then(|| Machine::named(machine)),
        })
    }
}

impl What {
    fn encode(&self, volume: u32, out: &mut Vec<u8>) {
        out.push(self.number());
        match self {
            What::Created { at }
            | What::Linked { at }
            | What::Removed { at }
            | What::Written { at }
            | What::Attributes { at }
            | What::SnapshotTaken { at }
            | What::SnapshotRemoved { at } => put_named(at, out),
            What::Renamed { from, to } | What::SnapshotRenamed { from, to } => {
                put_named(from, out);
                put_named(to, out);
            }
            What::Exchanged { from, to, other, other_kind } => {
                put_named(from, out);
                put_named(to, out);
                put_node(*other, volume, out);
                out.push(*other_kind as u8);
            }
            What::Rights { at, was, is } => {
                put_named(at, out);
                put_rights(*was, out);
                put_rights(*is, out);
            }
            What::Xattr { at, xattr, .. } => {
                put_named(at, out);
                put_bytes(xattr, out);
            }
            What::SnapshotLocked { at, until_secs } => {
                put_named(at, out);
                put_difference(*until_secs, out);
            }
            What::Asked(request) => put_bytes(request, out),
        }
    }

    fn number(&self) -> u8 {
        match self {
            What::Created { .. } => kind::CREATED,
            What::Linked { .. } => kind::LINKED,
            What::Removed { .. } => kind::REMOVED,
            What::Renamed { .. } => kind::RENAMED,
            What::Exchanged { .. } => kind::EXCHANGED,
            What::Written { .. } => kind::WRITTEN,
            What::Rights { .. } => kind::RIGHTS,
            What::Attributes { .. } => kind::ATTRIBUTES,
            What::Xattr { removed: false, .. } => kind::XATTR,
            What::Xattr { removed: true, .. } => kind::XATTR_REMOVED,
            What::Asked(_) => kind::ASKED,
            What::SnapshotTaken { .. } => kind::SNAPSHOT_TAKEN,
            What::SnapshotRemoved { .. } => kind::SNAPSHOT_REMOVED,
            What::SnapshotRenamed { .. } => kind::SNAPSHOT_RENAMED,
            What::SnapshotLocked { .. } => kind::SNAPSHOT_LOCKED,
        }
    }

    fn decode(r: &mut Reader<'_>, volume: u32) -> Option<What> {
        let [kind] = r.take()?;
        Some(match kind {
            kind::CREATED => What::Created { at: take_named(r)? },
            kind::LINKED => What::Linked { at: take_named(r)? },
            kind::REMOVED => What::Removed { at: take_named(r)? },
            kind::RENAMED => What::Renamed { from: take_named(r)?, to: take_named(r)? },
            kind::EXCHANGED => What::Exchanged {
                from: take_named(r)?,
                to: take_named(r)?,
                other: take_node(r, volume)?,
                other_kind: kind_of(r.take::<1>()?[0])?,
            },
            kind::SNAPSHOT_TAKEN => What::SnapshotTaken { at: take_named(r)? },
            kind::SNAPSHOT_REMOVED => What::SnapshotRemoved { at: take_named(r)? },
            kind::SNAPSHOT_RENAMED => What::SnapshotRenamed { from: take_named(r)?, to: take_named(r)? },
            kind::SNAPSHOT_LOCKED => {
                What::SnapshotLocked { at: take_named(r)?, until_secs: take_difference(r)? }
            }
            kind::WRITTEN => What::Written { at: take_named(r)? },
            kind::RIGHTS => What::Rights { at: take_named(r)?, was: take_rights(r)?, is: take_rights(r)? },
            kind::ATTRIBUTES => What::Attributes { at: take_named(r)? },
            kind::XATTR | kind::XATTR_REMOVED => {
                let (at, xattr) = (take_named(r)?, take_bytes(r)?);
                What::Xattr { at, xattr, removed: kind == kind::XATTR_REMOVED }
            }
            kind::ASKED => What::Asked(take_bytes(r)?),
            _ => return None,
        })
    }
}

impl OpenBlock {
    /// How many events it has.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether the next event goes to another block.
    pub fn is_full(&self) -> bool {
        self.body.len() >= BLOCK_BYTES_MAX
    }

    /// Adds an event; whether it is new. That a user writes to a file is said once in a block.
    pub fn add(&mut self, event: &Event, volume: u32) -> bool {
        let actor = self.actor(event.by);
        if matches!(event.what, What::Written { .. }) && !self.written.insert((event.node, actor)) {
            return false;
        }
        let out = &mut self.body;
        put_number(actor as u64, out);
        put_difference(event.at.wrapping_sub(self.last_at) as i64, out);
        put_node(event.node, volume, out);
        out.push(event.kind as u8);
        event.what.encode(volume, out);
        self.last_at = event.at;
        self.count += 1;
        true
    }

    fn actor(&mut self, actor: Actor) -> usize {
        let known = self.actors.iter().rposition(|known| *known == actor);
        known.unwrap_or_else(|| {
            self.actors.push(actor);
            self.actors.len() - 1
        })
    }

    /// The record of the block: version, digest of the block before, number of actors, actors,
    /// number of events, events.
    pub fn encode(&self, before: &BlockDigest) -> Value {
        let mut out = Vec::with_capacity(64 + self.body.len());
        out.push(VERSION);
        out.extend_from_slice(before);
        put_number(self.actors.len() as u64, &mut out);
        self.actors.iter().for_each(|actor| actor.encode(&mut out));
        put_number(self.count.into(), &mut out);
        out.extend_from_slice(&self.body);
        out.into()
    }
}

impl Block {
    /// Reads the record of a block of this volume.
    ///
    /// # Errors
    /// [`leeward_fs::Error::Corrupt`].
    pub fn decode(volume: u32, bytes: &[u8]) -> leeward_fs::Result<Block> {
        Block::parse(volume, bytes).ok_or_else(|| damaged("events", bytes))
    }

    fn parse(volume: u32, bytes: &[u8]) -> Option<Block> {
        let mut r = Reader(bytes);
        let [version] = r.take()?;
        let before = r.take()?;
        let actors = take_number(&mut r)?;
        let actors = (0..actors).map(|_| Actor::decode(&mut r)).collect::<Option<Vec<Actor>>>()?;
        let count = take_number(&mut r)?;
        let (mut events, mut at) = (Vec::new(), 0u64);
        for _ in 0..count {
            let by = *actors.get(usize::try_from(take_number(&mut r)?).ok()?)?;
            at = at.wrapping_add(take_difference(&mut r)? as u64);
            let node = take_node(&mut r, volume)?;
            let [kind] = r.take()?;
            events.push(Event { at, by, node, kind: kind_of(kind)?, what: What::decode(&mut r, volume)? });
        }
        (version == VERSION && r.0.is_empty()).then_some(Block { before, events })
    }
}

/// The digest of a block: of its key and its record.
pub fn digest_of(key: &Key, record: &[u8]) -> BlockDigest {
    let mut sum = Context::new(&SHA256);
    sum.update(key);
    sum.update(record);
    sum.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// What is kept of a volume's log, and where it goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogHead {
    /// Number of the first event that is kept.
    pub first: u64,
    /// Number of the next event.
    pub next: u64,
    /// Bytes of the blocks that are kept.
    pub bytes: u64,
    /// When names, content or attributes last changed, nanoseconds since 1970; 0: never.
    pub changed_at: u64,
    /// Digest of the last block.
    pub digest: BlockDigest,
}

impl LogHead {
    /// The record: version, first, next, bytes, last change u64, digest.
    pub fn encode(&self) -> Value {
        let mut out = vec![VERSION];
        for n in [self.first, self.next, self.bytes, self.changed_at] {
            out.extend_from_slice(&n.to_be_bytes());
        }
        out.extend_from_slice(&self.digest);
        out.into()
    }

    /// Reads the record.
    ///
    /// # Errors
    /// [`leeward_fs::Error::Corrupt`].
    pub fn decode(bytes: &[u8]) -> leeward_fs::Result<LogHead> {
        let mut r = Reader(bytes);
        let parsed = (|| {
            let [version] = r.take()?;
            let [first, next, bytes, changed_at] = [r.u64()?, r.u64()?, r.u64()?, r.u64()?];
            let head = LogHead { first, next, bytes, changed_at, digest: r.take()? };
            (version == VERSION && r.0.is_empty()).then_some(head)
        })();
        parsed.ok_or_else(|| damaged("head of an event log", bytes))
    }
}

impl Named {
    /// The record that says where a directory was: version, directory u64, name.
    pub fn encode(&self) -> Value {
        [&[VERSION], &self.dir.to_be_bytes()[..], &self.name].concat().into()
    }

    /// Reads the record.
    ///
    /// # Errors
    /// [`leeward_fs::Error::Corrupt`].
    pub fn decode(bytes: &[u8]) -> leeward_fs::Result<Named> {
        let mut r = Reader(bytes);
        let parsed = (|| {
            let [version] = r.take()?;
            let named = Named { dir: r.u64()?, name: r.0.into() };
            (version == VERSION).then_some(named)
        })();
        parsed.ok_or_else(|| damaged("place of a directory", bytes))
    }
}

/// Follows the blocks of a log, each of which must go with the one before, up to its head.
pub struct Chain {
    volume: u32,
    head: LogHead,
    next: u64,
    bytes: u64,
    /// Of the last block; `None`: there was none yet.
    digest: Option<BlockDigest>,
}

impl Chain {
    /// For the log of a volume with this head.
    pub fn new(volume: u32, head: LogHead) -> Chain {
        Chain { volume, head, next: head.first, bytes: 0, digest: None }
    }

    /// The number of the event after the last block, and the digest of that block.
    pub fn reached(&self) -> (u64, Option<BlockDigest>) {
        (self.next, self.digest)
    }

    /// The next block.
    ///
    /// # Errors
    /// What does not go with the block before.
    pub fn block(&mut self, key: &Key, record: &[u8]) -> Result<Block, String> {
        let first = keys::parse_event(key).unwrap_or(u64::MAX);
        if first != self.next {
            return Err(format!("event {} is missing: the next block begins with {first}", self.next));
        }
        let block = Block::decode(self.volume, record).map_err(|e| format!("event {first}: {e}"))?;
        if self.digest.is_some_and(|digest| digest != block.before) {
            return Err(format!("the block before event {first} is not the one that was written"));
        }
        self.next += block.events.len() as u64;
        self.bytes += record.len() as u64;
        self.digest = Some(digest_of(key, record));
        Ok(block)
    }

    /// There is no other block.
    ///
    /// # Errors
    /// What does not go with the head.
    pub fn end(&self) -> Result<(), String> {
        let head = &self.head;
        if (self.next, self.bytes) != (head.next, head.bytes) {
            let (next, bytes) = (self.next, self.bytes);
            return Err(format!(
                "the events end before {next} with {bytes} bytes: by the head before {} with {}",
                head.next, head.bytes
            ));
        }
        if self.digest.is_some_and(|digest| digest != head.digest) {
            return Err(format!("the block before event {} is not the one that was written", head.next));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(dir: u64, name: &str) -> Named {
        Named { dir, name: name.as_bytes().into() }
    }

    #[test]
    fn a_block_is_read_as_it_was_made() {
        let by = Actor { uid: 1000, door: Door::Mount, work: None, machine: None };
        let machine = Some(Machine::named("node7"));
        let other = Actor { uid: 0, door: Door::Remote, work: Some(Work::Restore), machine };
        let (node, away) = (NodeId::new(7, 300), NodeId::new(9, 1));
        let was = Rights { mode: 0o644, uid: 1, gid: u32::MAX };
        let whats = [
            What::Created { at: named(1, "a") },
            What::Linked { at: named(u64::MAX >> 24, "b") },
            What::Removed { at: named(1, "") },
            What::Renamed { from: named(1, "a"), to: named(2, "\u{e4}") },
            What::Written { at: named(0, "x") },
            What::Rights { at: named(1, "a"), was, is: Rights::default() },
            What::Attributes { at: named(1, "a") },
            What::Xattr { at: named(1, "a"), xattr: (*b"user.x").into(), removed: true },
            What::Xattr { at: named(1, "a"), xattr: (*b"user.y").into(), removed: false },
            What::Asked((*b"{}").into()),
            What::Exchanged { from: named(1, "s"), to: named(9, "t"), other: away, other_kind: Kind::Dir },
            What::SnapshotTaken { at: named(1, "s") },
            What::SnapshotRemoved { at: named(1, "s") },
            What::SnapshotRenamed { from: named(1, "s"), to: named(1, "t") },
            What::SnapshotLocked { at: named(1, "s"), until_secs: -1 },
        ];
        let mut open = OpenBlock::default();
        let mut events = Vec::new();
        for (n, what) in whats.into_iter().enumerate() {
            let by = if n % 2 == 0 { by } else { other };
            // the clock goes back now and then
            let at = 1_800_000_000_000_000_000 + n as u64 % 3 * 1_000_000_007;
            let event = Event { at, by, node: if n == 1 { away } else { node }, kind: Kind::File, what };
            assert!(open.add(&event, 7));
            events.push(event);
        }
        assert!(!open.add(&events[4], 7), "a file that is written to again");
        let record = open.encode(&[7; 32]);
        assert_eq!(Block::decode(7, &record).expect("a block"), Block { before: [7; 32], events });
        for cut in 0..record.len() {
            assert!(Block::decode(7, &record[..cut]).is_err(), "cut at {cut}");
        }
        assert!(Block::decode(7, &[&record[..], &[0]].concat()).is_err());
    }

    #[test]
    fn numbers_take_as_few_bytes_as_they_need() {
        for (n, len) in [(0, 1), (127, 1), (128, 2), (1 << 40, 6), (u64::MAX, 10)] {
            let mut out = Vec::new();
            put_number(n, &mut out);
            assert_eq!((out.len(), take_number(&mut Reader(&out))), (len, Some(n)));
        }
        assert_eq!(take_number(&mut Reader(&[0xFF; 11])), None);
        for n in [0, 1, -1, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            put_difference(n, &mut out);
            assert_eq!(take_difference(&mut Reader(&out)), Some(n));
        }
    }

    #[test]
    fn heads_and_places_are_read_as_they_were_written() {
        let head = LogHead { first: 3, next: 9, bytes: 77, changed_at: 5, digest: [5; 32] };
        assert_eq!(LogHead::decode(&head.encode()).expect("a head"), head);
        let place = named(5, "dir");
        assert_eq!(Named::decode(&place.encode()).expect("a place"), place);
        assert!(LogHead::decode(b"x").is_err() && Named::decode(b"x").is_err());
    }
}
