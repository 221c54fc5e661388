//! Keys of the shard's records: big-endian, `volume u32 | inode u64 | tag u8 | rest`, so that one
//! inode's records are neighbours and one directory's names are one scan in name order. Encodings
//! are part of the format (docs/FORMAT.md).
//!
//! Volume numbers from [`SYSTEM`] up are not volumes but the shard's own tables. Versions of
//! records that only snapshots see are in the history of their volume, under the record's key and
//! the epoch in which they died. The deadlist of a volume orders its entries by the epochs that see
//! them. Numbers from [`leeward_fs::VIEW_FIRST`] up to [`leeward_fs::VIEW_END`] are never stored:
//! they name snapshots in node numbers and cached keys, see `snapshots.rs`.

use leeward_fs::flows::UserOrGroup;
use leeward_fs::groups::Member;
use leeward_fs::{NodeId, VIEW_END};
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
const TABLE_SNAPSHOT: u32 = SYSTEM + 6;
const TABLE_TALLY: u32 = SYSTEM + 7;
const TABLE_SCHEDULE: u32 = SYSTEM + 8;
const TABLE_BIN: u32 = SYSTEM + 9;
const TABLE_UNFOLDED: u32 = SYSTEM + 10;
const TABLE_POOL: u32 = SYSTEM + 11;
const TABLE_FLOW: u32 = SYSTEM + 12;
const TABLE_BUCKET: u32 = SYSTEM + 16;
const TABLE_USER: u32 = SYSTEM + 13;
const TABLE_KEY: u32 = SYSTEM + 14;
const TABLE_SIGNING: u32 = SYSTEM + 15;
const TABLE_SCRUB: u32 = SYSTEM + 17;
const TABLE_SCRUB_PLACE: u32 = SYSTEM + 18;
const TABLE_UPLOAD: u32 = SYSTEM + 19;
const TABLE_HOST: u32 = SYSTEM + 20;
const TABLE_IDENTITY: u32 = SYSTEM + 21;
const TABLE_SESSION: u32 = SYSTEM + 22;
const TABLE_OUTCOME: u32 = SYSTEM + 23;
const TABLE_BACKUPS: u32 = SYSTEM + 24;
const TABLE_OWNED: u32 = SYSTEM + 25;
const TABLE_OWNER_LIMIT: u32 = SYSTEM + 26;
const TABLE_UNCOUNTED: u32 = SYSTEM + 27;
const TABLE_EVENTS: u32 = SYSTEM + 28;
const TABLE_LOG_HEAD: u32 = SYSTEM + 29;
const TABLE_WAS_AT: u32 = SYSTEM + 30;
const TABLE_SAMPLES: u32 = SYSTEM + 31;
const TABLE_GROUP: u32 = SYSTEM + 32;
const TABLE_MEMBER: u32 = SYSTEM + 33;
const TABLE_GROUP_LIMIT: u32 = SYSTEM + 34;
const TABLE_PROJECT: u32 = SYSTEM + 35;
const TABLE_PROJECT_VOLUME: u32 = SYSTEM + 36;
const TABLE_TRANSFERS: u32 = SYSTEM + 37;
const TABLE_MIRRORS: u32 = SYSTEM + 38;
const TABLE_ATTACHED: u32 = SYSTEM + 39;
/// In place of a volume's number: the whole cell.
const WHOLE_CELL: u64 = CELL_LOG as u64;
/// In place of a volume's number: the event log of the cell itself.
pub const CELL_LOG: u32 = 0xFFFF_FFFF;
/// Added to a volume's number: its history, its deadlist.
const HISTORY: u32 = 0x4000_0000;
const DEADLIST: u32 = 0x8000_0000;

/// Kinds of members of a group.
const MEMBER_USER: u8 = 0;
const MEMBER_GROUP: u8 = 1;

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
    /// An extended attribute as it was written before there were snapshots: without a birth, that
    /// is with birth 1.
    pub const XATTR_PLAIN: u8 = 0x50;
    /// An extended attribute.
    pub const XATTR: u8 = 0x51;
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

/// The inode of an inode record.
pub fn parse_inode(key: &[u8]) -> Option<NodeId> {
    let (volume, rest) = key.split_first_chunk::<4>()?;
    let (inode, rest) = rest.split_first_chunk::<8>()?;
    let volume = u32::from_be_bytes(*volume);
    (rest == [tag::INODE] && volume < leeward_fs::VIEW_FIRST)
        .then(|| NodeId::new(volume, u64::from_be_bytes(*inode)))
}

/// The inode that a record tells of, if it is one of those that somebody sees who asks for the
/// inode, its names, its content or its extended attributes.
pub fn seen_inode(key: &[u8]) -> Option<NodeId> {
    let seen = [tag::INODE, tag::DENTRY, tag::EXTENTS, tag::XATTR_PLAIN, tag::XATTR];
    let is_seen = key.get(12).is_some_and(|tag| seen.contains(tag));
    (is_seen && volume_of(key) < leeward_fs::VIEW_FIRST).then(|| NodeId::new(volume_of(key), table_id(key)))
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

/// An extended attribute without a birth.
pub fn xattr_plain(node: NodeId, name: &[u8]) -> Key {
    build(node.volume(), node.inode(), tag::XATTR_PLAIN, name)
}

/// The range of all extended attributes of a node.
pub fn xattr_range(node: NodeId) -> (Key, Key) {
    (tag_range(node, tag::XATTR_PLAIN).0, tag_range(node, tag::XATTR).1)
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

/// The time of the last commit while a snapshot is locked.
pub fn clock() -> Key {
    build(TABLE_CELL, 1, 0, &[])
}

/// The number of the last change of a client, and that of the process.
pub fn told() -> Key {
    build(TABLE_CELL, 3, 0, &[])
}

/// The range of [`told`].
pub fn told_range() -> (Key, Key) {
    (told(), build(TABLE_CELL, 4, 0, &[]))
}

/// Number of the next pool.
pub fn pools() -> Key {
    build(TABLE_CELL, 2, 0, &[])
}

/// Openings of the cell.
pub fn openings() -> Key {
    build(TABLE_CELL, 4, 0, &[])
}

/// The last turn of a server, where several share the cell.
pub fn ownership() -> Key {
    build(TABLE_CELL, 5, 0, &[])
}

/// A pool.
pub fn pool(id: u32) -> Key {
    build(TABLE_POOL, u64::from(id), 0, &[])
}

/// How often a pool is scrubbed, and the result of the last scrub.
pub fn scrub(pool: u32) -> Key {
    build(TABLE_SCRUB, u64::from(pool), 0, &[])
}

/// The position of an unfinished scrub of a pool.
pub fn scrub_place(pool: u32) -> Key {
    build(TABLE_SCRUB_PLACE, u64::from(pool), 0, &[])
}

/// The schedule of snapshots of a directory.
pub fn schedule(dir: NodeId) -> Key {
    build(TABLE_SCHEDULE, dir.0, 0, &[])
}

/// The places that a volume is backed up to.
pub fn backups(volume: u32) -> Key {
    build(TABLE_BACKUPS, u64::from(volume), 0, &[])
}

/// What is kept of a volume's mirrors.
pub fn mirrors(volume: u32) -> Key {
    build(TABLE_MIRRORS, u64::from(volume), 0, &[])
}

/// Where a volume of another shard is attached here.
pub fn attached(volume: u32) -> Key {
    build(TABLE_ATTACHED, u64::from(volume), 0, &[])
}

/// An entry of a volume's recycle bin by its stamp (nanoseconds since 1970, unique in the volume,
/// in the order of removal).
pub fn binned(node: NodeId, stamp: u64) -> Key {
    let mut rest = [0u8; 16];
    rest[..8].copy_from_slice(&stamp.to_be_bytes());
    rest[8..].copy_from_slice(&node.inode().to_be_bytes());
    build(TABLE_BIN, u64::from(node.volume()), 0, &rest)
}

/// The range of a volume's recycle bin from a stamp on.
pub fn bin_range(volume: u32, from: u64) -> (Key, Key) {
    let end = build(TABLE_BIN, u64::from(volume) + 1, 0, &[]);
    (build(TABLE_BIN, u64::from(volume), 0, &from.to_be_bytes()), end)
}

/// The change of a directory's statistics that is not folded yet.
pub fn unfolded(dir: NodeId) -> Key {
    build(TABLE_UNFOLDED, dir.0, 0, &[])
}

/// The settings of a user or a group at the gate.
pub fn flow(who: UserOrGroup) -> Key {
    build(TABLE_FLOW, owner_id(who), 0, &[])
}

/// The user or group in a key of flows.
pub fn parse_flow(key: &[u8]) -> Option<UserOrGroup> {
    parse_owner_id(table_id(key))
}

/// What a user or a group owns in a volume.
pub fn owned(volume: u32, who: UserOrGroup) -> Key {
    build(TABLE_OWNED, u64::from(volume), 0, &owner_id(who).to_be_bytes())
}

/// The limits of a user or a group in a volume; `None`: in the cell.
pub fn owner_limit(volume: Option<u32>, who: UserOrGroup) -> Key {
    let id = volume.map_or(WHOLE_CELL, u64::from);
    build(TABLE_OWNER_LIMIT, id, 0, &owner_id(who).to_be_bytes())
}

/// Volume, and user or group, in a key of [`owned`] or [`owner_limit`].
pub fn parse_owned(key: &[u8]) -> Option<(Option<u32>, UserOrGroup)> {
    let who = parse_owner_id(u64::from_be_bytes(key.get(13..21)?.try_into().ok()?))?;
    let volume = table_id(key);
    Some(((volume != WHOLE_CELL).then_some(volume as u32), who))
}

/// From which inode on a volume's inodes are still to be counted for their owners.
pub fn uncounted(volume: u32) -> Key {
    build(TABLE_UNCOUNTED, u64::from(volume), 0, &[])
}

/// Says that what users and groups own is counted in this cell.
pub fn owners_counted() -> Key {
    build(TABLE_CELL, 6, 0, &[])
}

/// The ranges of what is stored of the owners in a volume.
pub fn owner_ranges(volume: u32) -> [(Key, Key); 3] {
    let range =
        |table| (build(table, u64::from(volume), 0, &[]), build(table, u64::from(volume) + 1, 0, &[]));
    [range(TABLE_OWNED), range(TABLE_OWNER_LIMIT), range(TABLE_UNCOUNTED)]
}

/// A block of a volume's event log, by the number of its first event.
pub fn events(volume: u32, first: u64) -> Key {
    build(TABLE_EVENTS, u64::from(volume), 0, &first.to_be_bytes())
}

/// The range of a volume's event log from the block on that begins with this event.
pub fn events_range(volume: u32, first: u64) -> (Key, Key) {
    (events(volume, first), build(TABLE_EVENTS, u64::from(volume) + 1, 0, &[]))
}

/// The number in a key of [`events`] or [`was_at`].
pub fn parse_event(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(13..21)?.try_into().ok()?))
}

/// What is kept of a volume's event log.
pub fn log_head(volume: u32) -> Key {
    build(TABLE_LOG_HEAD, u64::from(volume), 0, &[])
}

/// Where a directory was before the event of this number, which moved or removed it.
pub fn was_at(dir: NodeId, event: u64) -> Key {
    build(TABLE_WAS_AT, dir.0, 0, &event.to_be_bytes())
}

/// The range of [`was_at`] of a directory from this event on.
pub fn was_at_range(dir: NodeId, event: u64) -> (Key, Key) {
    (was_at(dir, event), build(TABLE_WAS_AT, dir.0 + 1, 0, &[]))
}

/// The ranges of what is stored of a volume's event log.
pub fn log_ranges(volume: u32) -> [(Key, Key); 3] {
    let of_dirs = |inode| build(TABLE_WAS_AT, inode, 0, &[]);
    [
        events_range(volume, 0),
        (log_head(volume), build(TABLE_LOG_HEAD, u64::from(volume) + 1, 0, &[])),
        (of_dirs(NodeId::new(volume, 0).0), of_dirs(NodeId::new(volume + 1, 0).0)),
    ]
}

/// Where the sampling of usage is.
pub fn sampling() -> Key {
    build(TABLE_CELL, 7, 0, &[])
}

/// What some volumes, users, groups or pools used at the beginning of a day, counted from
/// 1970-01-01.
pub fn samples(chunk: u64, day: u32) -> Key {
    build(TABLE_SAMPLES, chunk, 0, &day.to_be_bytes())
}

/// The names of some volumes or pools.
pub fn sampled_names(chunk: u64) -> Key {
    build(TABLE_SAMPLES, chunk, 1, &[])
}

/// The range of all that is kept of usage, from this chunk on.
pub fn all_samples(chunk: u64) -> (Key, Key) {
    (build(TABLE_SAMPLES, chunk, 0, &[]), build(TABLE_SAMPLES + 1, 0, 0, &[]))
}

/// The day in a key of [`samples`]; `None`: it is one of [`sampled_names`].
pub fn parse_sampled_day(key: &[u8]) -> Option<u32> {
    let rest = key.get(12..)?;
    (rest.first() == Some(&0)).then(|| rest.get(1..5)?.try_into().ok().map(u32::from_be_bytes))?
}

fn owner_id(who: UserOrGroup) -> u64 {
    match who {
        UserOrGroup::User(uid) => u64::from(uid),
        UserOrGroup::Group(gid) => 1 << 32 | u64::from(gid),
    }
}

fn parse_owner_id(id: u64) -> Option<UserOrGroup> {
    match id >> 32 {
        0 => Some(UserOrGroup::User(id as u32)),
        1 => Some(UserOrGroup::Group(id as u32)),
        _ => None,
    }
}

/// A bucket, by name.
pub fn bucket(name: &str) -> Key {
    build(TABLE_BUCKET, 0, 0, name.as_bytes())
}

/// A user, by name.
pub fn user(name: &str) -> Key {
    build(TABLE_USER, 0, 0, name.as_bytes())
}

/// An S3 key, by access key id.
pub fn s3_key(id: &str) -> Key {
    build(TABLE_KEY, 0, 0, id.as_bytes())
}

/// A host, by name.
pub fn host(name: &str) -> Key {
    build(TABLE_HOST, 0, 0, name.as_bytes())
}

/// The cell's own key pair.
pub fn identity() -> Key {
    build(TABLE_IDENTITY, 0, 0, &[])
}

/// A group that a user owns, by number.
pub fn group(gid: u32) -> Key {
    build(TABLE_GROUP, u64::from(gid), 0, &[])
}

/// A member of a group.
pub fn member(gid: u32, member: &Member) -> Key {
    let rest = match member {
        Member::User(name) => [&[MEMBER_USER], name.as_bytes()].concat(),
        Member::Group(inner) => [&[MEMBER_GROUP], &inner.to_be_bytes()[..]].concat(),
    };
    build(TABLE_MEMBER, u64::from(gid), 0, &rest)
}

/// The group and the member in a key of [`member`].
pub fn parse_member(key: &[u8]) -> Option<(u32, Member)> {
    let gid = u32::try_from(table_id(key)).ok()?;
    let (kind, rest) = key.get(13..)?.split_first()?;
    match *kind {
        MEMBER_USER => Some((gid, Member::User(std::str::from_utf8(rest).ok()?.into()))),
        MEMBER_GROUP => Some((gid, Member::Group(u32::from_be_bytes(rest.try_into().ok()?)))),
        _ => None,
    }
}

/// How many groups a user may have, by name.
pub fn group_limit(prefix: &str) -> Key {
    build(TABLE_GROUP_LIMIT, 0, 0, prefix.as_bytes())
}

/// A project, by number.
pub fn project(id: u32) -> Key {
    build(TABLE_PROJECT, u64::from(id), 0, &[])
}

/// The project that a volume is in.
pub fn project_of(volume: u32) -> Key {
    build(TABLE_PROJECT_VOLUME, u64::from(volume), 0, &[])
}

/// What went through a door on a day, in one address family.
pub fn transfers(day: u32, door: u8, ipv6: bool) -> Key {
    build(TABLE_TRANSFERS, u64::from(day), 0, &[door, if ipv6 { 6 } else { 4 }])
}

/// The door and whether it is IPv6, of a key of [`transfers`].
pub fn parse_transfers(key: &[u8]) -> Option<(u8, bool)> {
    match key.get(13..)? {
        [door, 4] => Some((*door, false)),
        [door, 6] => Some((*door, true)),
        _ => None,
    }
}

/// The number of the next project.
pub fn next_project() -> Key {
    build(TABLE_CELL, 9, 0, &[])
}

/// The numbers that groups get.
pub fn group_ranges() -> Key {
    build(TABLE_CELL, 8, 0, &[])
}

/// A session of a client, by number.
pub fn session(number: u64) -> Key {
    build(TABLE_SESSION, number, 0, &[])
}

/// What came of the last change in a slot of a session.
pub fn outcome(session: u64, slot: u16) -> Key {
    build(TABLE_OUTCOME, session, 0, &slot.to_be_bytes())
}

/// What came of the last changes in all slots of a session.
pub fn outcome_range(session: u64) -> (Key, Key) {
    (build(TABLE_OUTCOME, session, 0, &[]), build(TABLE_OUTCOME, session + 1, 0, &[]))
}

/// The slot in a key of [`outcome`].
pub fn parse_outcome(key: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(key.get(13..)?.try_into().ok()?))
}

/// The name in a key of users, of hosts and of buckets, the id in a key of S3 keys.
pub fn parse_named(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key.get(13..)?).ok()
}

/// A key that tokens are signed with.
pub fn signing_key(number: u32) -> Key {
    build(TABLE_SIGNING, u64::from(number), 0, &[])
}

/// The stamp and the node in a key of the recycle bin.
pub fn parse_binned(key: &[u8]) -> Option<(u64, NodeId)> {
    let stamp = u64::from_be_bytes(key.get(13..21)?.try_into().ok()?);
    let inode = u64::from_be_bytes(key.get(21..29)?.try_into().ok()?);
    Some((stamp, NodeId::new(table_id(key) as u32, inode)))
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

/// An upload in parts, which has a number of its volume as inodes have.
pub fn upload(upload: NodeId) -> Key {
    build(TABLE_UPLOAD, upload.0, 0, &[])
}

/// A segment's record.
pub fn segment(segment: u64) -> Key {
    build(TABLE_SEGMENT, segment, 0, &[])
}

/// A back reference: `node` uses (in `window`) data at `offset` of a segment that was written for
/// another file.
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

/// A snapshot.
pub fn snapshot(volume: u32, epoch: u32) -> Key {
    build(TABLE_SNAPSHOT, u64::from(volume) << 32 | u64::from(epoch), 0, &[])
}

/// The tally of a volume's deadlist under one pair of epochs.
pub fn tally(volume: u32, pair: EpochPair) -> Key {
    build(TABLE_TALLY, u64::from(volume) << 32 | u64::from(pair.death), 0, &pair.birth.to_be_bytes())
}

/// Volume and epochs of a tally's key.
pub fn parse_tally(key: &[u8]) -> Option<(u32, EpochPair)> {
    let id = table_id(key);
    let birth = u32::from_be_bytes(key.get(13..17)?.try_into().ok()?);
    Some(((id >> 32) as u32, EpochPair { death: id as u32, birth }))
}

/// The range of a volume's snapshots, and that of its tallies.
pub fn snapshot_ranges(volume: u32) -> [(Key, Key); 2] {
    let range = |table| {
        (build(table, u64::from(volume) << 32, 0, &[]), build(table, (u64::from(volume) + 1) << 32, 0, &[]))
    };
    [range(TABLE_SNAPSHOT), range(TABLE_TALLY)]
}

/// The epochs between which something existed. A snapshot of epoch s sees it when birth <= s <
/// death. Birth 0: it did not exist before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochPair {
    /// First epoch that does not see it.
    pub death: u32,
    /// First epoch that sees it.
    pub birth: u32,
}

/// Ends the key of a record in the key of a version of it: names do not contain it.
const VERSION_OF: u8 = 0;
/// Bytes that the key of a version has more than that of the record.
const VERSION_BYTES: usize = 5;

/// The version of the record `key` that died in epoch `death`.
pub fn version(key: &[u8], death: u32) -> Key {
    let mut out: Key = key.iter().copied().chain([VERSION_OF]).chain(death.to_be_bytes()).collect();
    Arc::get_mut(&mut out).expect("just made")[0] |= (HISTORY >> 24) as u8;
    out
}

/// The range of all versions of the record `key` that died in epoch `from` or later.
pub fn versions(key: &[u8], from: u32) -> (Key, Key) {
    let mut end = history_of(key);
    end.push(VERSION_OF + 1);
    (version(key, from), end.into())
}

/// Where the versions of the records from `from` on begin; `from` may be a key followed by a zero
/// (the next key).
pub fn versions_from(from: &[u8]) -> Key {
    let mut out = history_of(from);
    if parse(from).is_some_and(|p| p.tag != tag::EXTENTS && p.rest.last() == Some(&VERSION_OF)) {
        *out.last_mut().expect("not empty") = VERSION_OF + 1;
    }
    out.into()
}

fn history_of(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + VERSION_BYTES);
    out.extend_from_slice(key);
    out[0] |= (HISTORY >> 24) as u8;
    out
}

/// The record's key and the epoch of death in the key of a version.
pub fn parse_version(key: &[u8]) -> Option<(Key, u32)> {
    let split = key.len().checked_sub(VERSION_BYTES).filter(|n| *n >= 13)?;
    let mut record = key[..split].to_vec();
    record[0] &= !((HISTORY >> 24) as u8);
    Some((record.into(), u32::from_be_bytes(key[split + 1..].try_into().ok()?)))
}

/// The range of a volume's history.
pub fn history_range(volume: u32) -> (Key, Key) {
    (build(HISTORY | volume, 0, 0, &[]), build(HISTORY | (volume + 1), 0, 0, &[]))
}

/// An entry of a deadlist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dead {
    /// Versions of these records are in the history (birth 0: there were none before).
    Records(Vec<Key>),
    /// Data that was at a byte of an inode.
    Data(NodeId, u64, leeward_data::Addr, u32),
}

impl Dead {
    /// How many entries the tally counts it as.
    pub fn count(&self) -> usize {
        match self {
            Dead::Records(records) => records.len(),
            Dead::Data(..) => 1,
        }
    }
}

const DEAD_RECORD: u8 = 1;
const DEAD_DATA: u8 = 2;

fn dead_prefix(volume: u32, pair: EpochPair, kind: u8, rest: &[u8]) -> Key {
    build(DEADLIST | volume, u64::from(pair.death) << 32 | u64::from(pair.birth), kind, rest)
}

/// The entry of a record on the deadlist. The value is empty, or lists others that died with it,
/// see [`dead_with`].
pub fn dead_record(key: &[u8], pair: EpochPair) -> Key {
    let volume = volume_of(key);
    dead_prefix(volume, pair, DEAD_RECORD, &key[4..])
}

/// More records of the same volume that died under the same epochs: for each the length of the rest
/// (u16) and the rest of its key.
pub fn dead_with<'a>(others: impl IntoIterator<Item = &'a Key>) -> leeward_meta::Value {
    let mut out = Vec::new();
    for key in others {
        out.extend_from_slice(&((key.len() - 4) as u16).to_be_bytes());
        out.extend_from_slice(&key[4..]);
    }
    out.into()
}

/// The entry of data on the deadlist; the value is segment, offset, length, see
/// [`dead_data_value`].
pub fn dead_data(node: NodeId, offset: u64, pair: EpochPair) -> Key {
    let mut rest = [0u8; 16];
    rest[..8].copy_from_slice(&node.inode().to_be_bytes());
    rest[8..].copy_from_slice(&offset.to_be_bytes());
    dead_prefix(node.volume(), pair, DEAD_DATA, &rest)
}

/// Where the data is, and how long it is: segment u64, offset in it u32, length u32.
pub fn dead_data_value(addr: leeward_data::Addr, len: u32) -> leeward_meta::Value {
    let mut out = [0u8; 16];
    out[..8].copy_from_slice(&addr.segment.to_be_bytes());
    out[8..12].copy_from_slice(&addr.offset.to_be_bytes());
    out[12..].copy_from_slice(&len.to_be_bytes());
    out[..].into()
}

fn parse_dead_with(volume: u32, mut value: &[u8]) -> Option<Vec<Key>> {
    let mut out = Vec::new();
    while let Some((len, rest)) = value.split_first_chunk() {
        let (key, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        out.push([&volume.to_be_bytes()[..], key].concat().into());
        value = rest;
    }
    value.is_empty().then_some(out)
}

fn parse_dead_data(value: &[u8]) -> Option<(leeward_data::Addr, u32)> {
    let value: &[u8; 16] = value.try_into().ok()?;
    let u32_at = |at: usize| u32::from_be_bytes([value[at], value[at + 1], value[at + 2], value[at + 3]]);
    let segment = u64::from(u32_at(0)) << 32 | u64::from(u32_at(4));
    Some((leeward_data::Addr { segment, offset: u32_at(8) }, u32_at(12)))
}

/// The range of a deadlist under one pair of epochs.
pub fn dead_range(volume: u32, pair: EpochPair) -> (Key, Key) {
    (dead_prefix(volume, pair, 0, &[]), dead_prefix(volume, pair, 0xFF, &[]))
}

/// The range of a whole deadlist.
pub fn deadlist_range(volume: u32) -> (Key, Key) {
    (build(DEADLIST | volume, 0, 0, &[]), build(DEADLIST | (volume + 1), 0, 0, &[]))
}

/// The range of entries that died in the epochs `from..to`.
pub fn deaths_range(volume: u32, from: u32, to: u32) -> (Key, Key) {
    let start = |death| build(DEADLIST | volume, u64::from(death) << 32, 0, &[]);
    (start(from), start(to))
}

/// Parses an entry of a deadlist.
pub fn parse_dead(key: &[u8], value: &[u8]) -> Option<(EpochPair, Dead)> {
    let volume = u32::from_be_bytes(key.get(..4)?.try_into().ok()?) & !DEADLIST;
    let epochs = table_id(key);
    let pair = EpochPair { death: (epochs >> 32) as u32, birth: epochs as u32 };
    let rest = key.get(13..)?;
    let dead = match key[12] {
        DEAD_RECORD => {
            let mut records = parse_dead_with(volume, value)?;
            records.push([&volume.to_be_bytes()[..], rest].concat().into());
            Dead::Records(records)
        }
        DEAD_DATA => {
            let inode = u64::from_be_bytes(rest.get(..8)?.try_into().ok()?);
            let offset = u64::from_be_bytes(rest.get(8..16)?.try_into().ok()?);
            let (addr, len) = parse_dead_data(value)?;
            Dead::Data(NodeId::new(volume, inode), offset, addr, len)
        }
        _ => return None,
    };
    Some((pair, dead))
}

/// The next key.
pub fn after(key: &[u8]) -> Key {
    [key, &[0]].concat().into()
}

/// Whether the key is one of a history, a deadlist or an event log: those are found by scans only.
pub fn is_scanned(key: &[u8]) -> bool {
    (0x40..0xC0).contains(&key[0]) || [TABLE_EVENTS, TABLE_WAS_AT].contains(&volume_of(key))
}

/// The volume (or view, or table) in a key.
pub fn volume_of(key: &[u8]) -> u32 {
    u32::from_be_bytes([key[0], key[1], key[2], key[3]])
}

/// The number of the snapshot's view that the key is about, if it is one.
pub fn view_of(key: &[u8]) -> Option<u32> {
    (key[0] == 0 && key[1] >= 0x80).then(|| volume_of(key))
}

/// The same key in another volume (or view).
pub fn with_volume(key: &[u8], volume: u32) -> Key {
    let mut out: Key = key.into();
    Arc::get_mut(&mut out).expect("just made")[..4].copy_from_slice(&volume.to_be_bytes());
    out
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
    /// Snapshots.
    Snapshot,
    /// Tallies of deadlists, by epochs.
    Tally,
    /// Schedules of snapshots.
    Schedule,
    /// Recycle bins.
    Bin,
    /// Changes of statistics that are not folded yet.
    Unfolded,
    /// Pools.
    Pool,
    /// Settings of users and groups at the gate.
    Flow,
    /// Buckets.
    Bucket,
    /// Users.
    User,
    /// S3 keys.
    S3Key,
    /// Keys that tokens are signed with.
    SigningKey,
    /// Scrubbing of pools.
    Scrub,
    /// Positions of unfinished scrubs.
    ScrubPlace,
    /// Uploads in parts.
    Upload,
    /// Hosts.
    Host,
    /// The cell's own key pair.
    Identity,
    /// Sessions of clients.
    Session,
    /// What came of their changes.
    Outcome,
    /// Backups of volumes.
    Backups,
    /// Usage samples, and their names.
    Samples,
    /// What users and groups own.
    Owned,
    /// Limits of users and groups.
    OwnerLimit,
    /// Volumes whose inodes are still to be counted for their owners.
    Uncounted,
    /// Event logs.
    Events,
    /// What is kept of them.
    LogHead,
    /// Where directories were before they were moved or removed.
    WasAt,
    /// Groups that users own.
    Group,
    /// Their members.
    Member,
    /// How many groups users may have.
    GroupLimit,
    /// Projects.
    Project,
    /// Which volumes are in projects.
    ProjectVolume,
    /// What went through doors.
    Transfers,
    /// What is kept of mirrors.
    Mirrors,
    /// Where volumes of other shards are attached.
    Attached,
}

/// The range of a system table.
pub fn table_range(table: Table) -> (Key, Key) {
    let t = match table {
        Table::Volume => TABLE_VOLUME,
        Table::Quota => TABLE_QUOTA,
        Table::Orphan => TABLE_ORPHAN,
        Table::Segment => TABLE_SEGMENT,
        Table::Backref => TABLE_BACKREF,
        Table::Snapshot => TABLE_SNAPSHOT,
        Table::Tally => TABLE_TALLY,
        Table::Schedule => TABLE_SCHEDULE,
        Table::Bin => TABLE_BIN,
        Table::Unfolded => TABLE_UNFOLDED,
        Table::Pool => TABLE_POOL,
        Table::Flow => TABLE_FLOW,
        Table::Bucket => TABLE_BUCKET,
        Table::User => TABLE_USER,
        Table::S3Key => TABLE_KEY,
        Table::SigningKey => TABLE_SIGNING,
        Table::Scrub => TABLE_SCRUB,
        Table::ScrubPlace => TABLE_SCRUB_PLACE,
        Table::Upload => TABLE_UPLOAD,
        Table::Host => TABLE_HOST,
        Table::Identity => TABLE_IDENTITY,
        Table::Session => TABLE_SESSION,
        Table::Outcome => TABLE_OUTCOME,
        Table::Backups => TABLE_BACKUPS,
        Table::Owned => TABLE_OWNED,
        Table::OwnerLimit => TABLE_OWNER_LIMIT,
        Table::Samples => TABLE_SAMPLES,
        Table::Uncounted => TABLE_UNCOUNTED,
        Table::Events => TABLE_EVENTS,
        Table::LogHead => TABLE_LOG_HEAD,
        Table::WasAt => TABLE_WAS_AT,
        Table::Group => TABLE_GROUP,
        Table::Member => TABLE_MEMBER,
        Table::GroupLimit => TABLE_GROUP_LIMIT,
        Table::Project => TABLE_PROJECT,
        Table::ProjectVolume => TABLE_PROJECT_VOLUME,
        Table::Transfers => TABLE_TRANSFERS,
        Table::Mirrors => TABLE_MIRRORS,
        Table::Attached => TABLE_ATTACHED,
    };
    (build(t, 0, 0, &[]), build(t + 1, 0, 0, &[]))
}

/// A decoded key of the volumes' part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed<'a> {
    /// The inode that the record belongs to.
    pub node: NodeId,
    /// The kind of record, see [`tag`].
    pub tag: u8,
    /// Name or window.
    pub rest: &'a [u8],
}

/// Parses a key; `None` when it is too short.
pub fn parse(key: &[u8]) -> Option<Parsed<'_>> {
    let volume = u32::from_be_bytes(key.get(..4)?.try_into().ok()?);
    let inode = u64::from_be_bytes(key.get(4..12)?.try_into().ok()?);
    if volume >= VIEW_END || inode >> 40 != 0 {
        return None;
    }
    Some(Parsed { node: NodeId::new(volume, inode), tag: *key.get(12)?, rest: &key[13..] })
}

/// The second field of a system table's key: a node, a volume or a segment number.
pub fn table_id(key: &[u8]) -> u64 {
    key.get(4..12).and_then(|b| b.try_into().ok()).map_or(0, u64::from_be_bytes)
}

/// The volume that a record belongs to, also one of its history, its deadlist, or of a table with
/// records of volumes.
pub fn owner(key: &[u8]) -> Option<u32> {
    let id = table_id(key);
    match volume_of(key) {
        TABLE_QUOTA | TABLE_ORPHAN | TABLE_SCHEDULE | TABLE_UNFOLDED | TABLE_UPLOAD | TABLE_WAS_AT => {
            Some(NodeId(id).volume())
        }
        // the cell's own log
        TABLE_EVENTS | TABLE_LOG_HEAD if id == WHOLE_CELL => None,
        TABLE_EVENTS | TABLE_LOG_HEAD => Some(id as u32),
        TABLE_SNAPSHOT | TABLE_TALLY => Some((id >> 32) as u32),
        TABLE_BIN | TABLE_BACKUPS | TABLE_MIRRORS | TABLE_OWNED | TABLE_OWNER_LIMIT | TABLE_UNCOUNTED => {
            Some(id as u32)
        }
        table if table >= SYSTEM => None,
        number => Some(number & !(HISTORY | DEADLIST)),
    }
}

/// The node and window of a back reference's key.
pub fn parse_backref(key: &[u8]) -> Option<(NodeId, u32)> {
    let node = u64::from_be_bytes(key.get(17..25)?.try_into().ok()?);
    let window = u32::from_be_bytes(key.get(25..29)?.try_into().ok()?);
    Some((NodeId(node), window))
}
