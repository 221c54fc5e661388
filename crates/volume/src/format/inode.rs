//! Records of inodes, names, volumes, segments, quotas and statistics, and their encodings
//! (big-endian, hand-laid, with a version byte; golden bytes in `tests/golden.rs`; described in
//! docs/FORMAT.md).

use crate::format::extents::Extents;
use crate::format::versions::FORMAT_COMPARED;
use leeward_data::{Object, PoolId};
use leeward_fs::flows::UserOrGroup;
use leeward_fs::{Attr, Error, InodeFlags, Kind, NodeId, Result, Time};
use leeward_meta::Value;
use leeward_pool::{StoreState, TierOptions};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The part of an inode that depends on its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A directory with this many names in it.
    Dir {
        /// Names.
        entries: u64,
    },
    /// A file: extents of window 0, unless they outgrew the inode.
    File {
        /// Extents of window 0; empty when `spilled`.
        inline: Extents,
        /// Whether window 0 has a record of its own.
        spilled: bool,
        /// Whether any other window has, or had, a record.
        windows: bool,
    },
    /// The target of a symbolic link.
    Symlink(Box<[u8]>),
    /// Pipes, devices, sockets.
    Special,
}

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Type.
    pub kind: Kind,
    /// Mode, 07777.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device.
    pub rdev: u32,
    /// Bytes.
    pub size: u64,
    /// Allocated bytes.
    pub allocated: u64,
    /// Times of access, modification, change, birth.
    pub times: [Time; 4],
    /// The directory that its usage counts in (for a directory: its parent). 0 for a volume's root.
    pub parent: u64,
    /// The last name that it got in `parent`, as a hint: code that uses it checks whether that name
    /// leads here. It is not updated when names come and go otherwise than by creation and
    /// renaming, and records from before format 3 have none.
    pub name: Option<Box<[u8]>>,
    /// Whether it has, or had, several names: then records count them by directory.
    pub linked: bool,
    /// Whether it has no name and is in the recycle bin: it still counts in `parent`.
    pub binned: bool,
    /// How many extended attributes it has.
    pub xattrs: u32,
    /// Number of the pool for its new data, and for files made below it; 0: the volume's. A number
    /// that is not in [`Properties::dir_pools`] means nothing.
    pub pool: u8,
    /// Flags, as `chattr` sets them.
    pub flags: InodeFlags,
    /// The number of the last change of content that is in the records; 0: none that has one.
    pub content_lsn: u64,
    /// Epoch of the volume in which this version of the record was written.
    pub birth: u32,
    /// The rest.
    pub body: Body,
}

/// Index of the times.
pub mod time {
    /// Access.
    pub const A: usize = 0;
    /// Modification.
    pub const M: usize = 1;
    /// Change of the inode.
    pub const C: usize = 2;
    /// Birth.
    pub const B: usize = 3;
}

const VERSION: u8 = 1;
/// Version of records that have a birth which their first version had not.
const VERSION_BORN: u8 = 2;
/// Version of inodes with a name.
const VERSION_NAMED: u8 = 2;
/// Version of inodes with a pool.
const VERSION_POOL: u8 = 3;
/// Version of inodes with flags that users set.
const VERSION_FLAGS: u8 = 4;
/// Version of inodes with the number of a change.
const VERSION_NUMBERED: u8 = 5;
/// Version of volumes with properties that are not the defaults.
const VERSION_PROPERTIES: u8 = 2;
/// Version of volumes that keep what changed for other than [`AUDIT_DAYS`].
const VERSION_AUDITED: u8 = 3;
/// Version of segments with their volume and pool.
const VERSION_PLACED: u8 = 2;
/// Version of pools with a hot pool in front.
const VERSION_TIERED: u8 = 2;
/// Offset of the byte in an encoded inode that says which fields it has.
pub(super) const MARKS_AT: usize = 2;
/// Where an encoded inode has its mode, its owner and group, and the times of access and
/// modification.
const MODE: Range<usize> = 4..8;
const OWNERS: Range<usize> = 12..20;
const TIMES: Range<usize> = 56..80;
/// Offset of the birth in an encoded inode.
const BIRTH_AT: usize = 28;
const FLAG_SPILLED: u8 = 1;
const FLAG_WINDOWS: u8 = 2;
const FLAG_LINKED: u8 = 4;
pub(super) const FLAG_BINNED: u8 = 8;
const FLAG_NAMED: u8 = 16;
const FLAG_POOL: u8 = 32;
const FLAG_FLAGS: u8 = 64;
const FLAG_NUMBERED: u8 = 128;

impl Inode {
    /// Attributes for stat.
    pub fn attr(&self, node: NodeId) -> Attr {
        Attr {
            node,
            kind: self.kind,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            rdev: self.rdev,
            size: match &self.body {
                Body::Dir { entries } => *entries,
                _ => self.size,
            },
            blocks: self.allocated.div_ceil(512),
            atime: self.times[time::A],
            mtime: self.times[time::M],
            ctime: self.times[time::C],
            btime: self.times[time::B],
            flags: self.flags,
        }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Dir
    }

    /// Whether statistics and quotas count it: with a name, or in the recycle bin.
    pub fn is_counted(&self) -> bool {
        self.nlink > 0 || self.binned
    }

    /// Names in a directory; 0 for other kinds.
    pub fn entries(&self) -> u64 {
        match self.body {
            Body::Dir { entries } => entries,
            _ => 0,
        }
    }

    /// Changes the number of names of a directory.
    pub fn add_entries(&mut self, by: i64) {
        if let Body::Dir { entries } = &mut self.body {
            *entries =
                entries.checked_add_signed(by).expect("a directory's count of names never goes below zero");
        }
    }

    /// Sets modification and change time, as a change of content does.
    pub fn touch(&mut self, now: Time) {
        self.times[time::M] = now;
        self.times[time::C] = now;
    }

    /// The encoding.
    pub fn encode(&self) -> Value {
        self.encode_born(self.birth)
    }

    /// The encoding of a version written in epoch `birth`.
    pub fn encode_born(&self, birth: u32) -> Value {
        let mut out = Vec::with_capacity(160);
        let marks = match &self.body {
            Body::File { spilled, windows, .. } => {
                u8::from(*spilled) * FLAG_SPILLED + u8::from(*windows) * FLAG_WINDOWS
            }
            _ => 0,
        };
        let marks = marks + u8::from(self.linked) * FLAG_LINKED + u8::from(self.binned) * FLAG_BINNED;
        let name = self.name.as_deref().unwrap_or_default();
        let marks = marks + u8::from(!name.is_empty()) * FLAG_NAMED + u8::from(self.pool > 0) * FLAG_POOL;
        let numbered = self.content_lsn > 0;
        let marks =
            marks + u8::from(!self.flags.is_empty()) * FLAG_FLAGS + u8::from(numbered) * FLAG_NUMBERED;
        let version = match (numbered, self.flags.is_empty(), self.pool, name.len()) {
            (true, ..) => VERSION_NUMBERED,
            (_, false, ..) => VERSION_FLAGS,
            (_, true, 0, 0) => VERSION,
            (_, true, 0, _) => VERSION_NAMED,
            _ => VERSION_POOL,
        };
        let name_len = u8::try_from(name.len()).expect("names have at most 255 bytes");
        out.extend_from_slice(&[version, self.kind as u8, marks, name_len]);
        for v in [self.mode, self.nlink, self.uid, self.gid, self.rdev, self.xattrs, birth] {
            out.extend_from_slice(&v.to_be_bytes());
        }
        for v in [self.size, self.allocated, self.parent] {
            out.extend_from_slice(&v.to_be_bytes());
        }
        for t in self.times {
            out.extend_from_slice(&t.secs.to_be_bytes());
            out.extend_from_slice(&t.nanos.to_be_bytes());
        }
        if self.pool > 0 {
            out.push(self.pool);
        }
        if !self.flags.is_empty() {
            out.extend_from_slice(&self.flags.bits().to_be_bytes());
        }
        if numbered {
            out.extend_from_slice(&self.content_lsn.to_be_bytes());
        }
        out.extend_from_slice(name);
        match &self.body {
            Body::Dir { entries } => out.extend_from_slice(&entries.to_be_bytes()),
            Body::File { inline, .. } => inline.encode(1, &mut out),
            Body::Symlink(target) => out.extend_from_slice(target),
            Body::Special => {}
        }
        out.into()
    }

    /// The flags, without reading the rest of the encoding.
    pub fn flags_encoded(bytes: &[u8]) -> Result<InodeFlags> {
        let marks = bytes.get(MARKS_AT).ok_or_else(|| damaged("inode", bytes))?;
        match marks & FLAG_FLAGS {
            0 => Ok(InodeFlags::default()),
            _ => Self::decode(bytes).map(|inode| inode.flags),
        }
    }

    /// Whether mode, owner, group, times of access and modification or flags differ in two
    /// encodings, without reading the rest; also where flags are the same.
    pub fn differs_visibly(a: &[u8], b: &[u8]) -> bool {
        let has_flags = |bytes: &[u8]| bytes.get(MARKS_AT).is_none_or(|marks| marks & FLAG_FLAGS != 0);
        let differ = |range: Range<usize>| a.get(range.clone()) != b.get(range);
        [MODE, OWNERS, TIMES].into_iter().any(differ) || has_flags(a) || has_flags(b)
    }

    /// Reads the encoding.
    pub fn decode(bytes: &[u8]) -> Result<Inode> {
        Self::parse(bytes).ok_or_else(|| damaged("inode", bytes))
    }

    fn parse(bytes: &[u8]) -> Option<Inode> {
        let mut r = Reader(bytes);
        let [version, kind, marks, name_len] = r.take()?;
        let (named, in_pool) = (marks & FLAG_NAMED != 0, marks & FLAG_POOL != 0);
        let (flagged, numbered) = (marks & FLAG_FLAGS != 0, marks & FLAG_NUMBERED != 0);
        if !matches!(
            (version, named, in_pool, flagged, numbered),
            (VERSION, false, false, false, false)
                | (VERSION_NAMED, true, false, false, false)
                | (VERSION_POOL, _, true, false, false)
                | (VERSION_FLAGS, _, _, true, false)
                | (VERSION_NUMBERED, _, _, _, true)
        ) {
            return None;
        }
        let kind = kind_of(kind)?;
        let [mode, nlink, uid, gid, rdev, xattrs, birth] = [(); 7].map(|()| r.u32());
        let [size, allocated, parent] = [(); 3].map(|()| r.u64());
        let mut times = [Time::default(); 4];
        for t in &mut times {
            *t = Time { secs: r.u64()? as i64, nanos: r.u32()? };
        }
        let pool = if in_pool { r.take::<1>()?[0] } else { 0 };
        let flags = InodeFlags::from_bits(if flagged { r.u32()? } else { 0 });
        let content_lsn = if numbered { r.u64()? } else { 0 };
        let name = if named { Some(r.bytes(name_len.into())?.into()) } else { None };
        let body = match kind {
            Kind::Dir => Body::Dir { entries: r.u64()? },
            Kind::File => Body::File {
                inline: Extents::decode(r.0)?,
                spilled: marks & FLAG_SPILLED != 0,
                windows: marks & FLAG_WINDOWS != 0,
            },
            Kind::Symlink => Body::Symlink(r.0.into()),
            _ => Body::Special,
        };
        Some(Inode {
            kind,
            mode: mode?,
            nlink: nlink?,
            uid: uid?,
            gid: gid?,
            rdev: rdev?,
            xattrs: xattrs?,
            pool,
            flags,
            content_lsn,
            birth: birth?,
            size: size?,
            allocated: allocated?,
            parent: parent?,
            name,
            linked: marks & FLAG_LINKED != 0,
            binned: marks & FLAG_BINNED != 0,
            times,
            body,
        })
    }
}

/// The inode that a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dentry {
    /// The inode; of another volume where one is attached.
    pub node: NodeId,
    /// Type of the inode.
    pub kind: Kind,
}

/// A name as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredDentry {
    /// What it stands for.
    pub dentry: Dentry,
    /// Epoch in which this version was written.
    pub birth: u32,
    /// Whether an entry on the deadlist says that the name did not exist before `birth`.
    pub noted: bool,
}

const FLAG_NOTED: u8 = 0x80;

impl StoredDentry {
    /// The encoding: version 1, kind, node; or, when the birth is not 1, version 2, kind and flag,
    /// node, birth.
    pub fn encode(self) -> Value {
        let mut out = [0u8; 14];
        out[1] = self.dentry.kind as u8;
        out[2..10].copy_from_slice(&self.dentry.node.0.to_be_bytes());
        if self.birth == 1 && !self.noted {
            out[0] = VERSION;
            return Value::from(&out[..10]);
        }
        out[0] = VERSION_BORN;
        out[1] |= u8::from(self.noted) * FLAG_NOTED;
        out[10..].copy_from_slice(&self.birth.to_be_bytes());
        Value::from(&out[..])
    }

    /// Reads the encoding.
    pub fn decode(bytes: &[u8]) -> Result<StoredDentry> {
        let mut r = Reader(bytes);
        let parsed = (|| {
            let [version, kind] = r.take()?;
            let node = NodeId(r.u64()?);
            let (birth, noted) = match version {
                VERSION => (1, false),
                VERSION_BORN => (r.u32()?, kind & FLAG_NOTED != 0),
                _ => return None,
            };
            Some(StoredDentry { dentry: Dentry { node, kind: kind_of(kind & !FLAG_NOTED)? }, birth, noted })
        })();
        parsed.ok_or_else(|| damaged("name", bytes))
    }
}

impl Dentry {
    /// Reads the inode that a stored name leads to.
    pub fn decode(bytes: &[u8]) -> Result<Dentry> {
        StoredDentry::decode(bytes).map(|s| s.dentry)
    }
}

/// An attribute's value as it is stored: birth u32, value.
pub fn encode_xattr(birth: u32, value: &[u8]) -> Value {
    [&birth.to_be_bytes()[..], value].concat().into()
}

/// The value of an attribute stored under `tag`.
pub fn xattr_value(tag: u8, stored: &[u8]) -> &[u8] {
    if tag == crate::format::keys::tag::XATTR { stored.get(4..).unwrap_or_default() } else { stored }
}

/// The epoch in which a versioned record was written; `None` for a record without versions.
pub fn birth_of(tag: u8, value: &[u8]) -> Result<u32> {
    use crate::format::keys::tag;
    let found = match tag {
        tag::INODE => u32_at(value, BIRTH_AT),
        tag::DENTRY => return StoredDentry::decode(value).map(|s| s.birth),
        tag::EXTENTS => Extents::birth_encoded(value),
        tag::XATTR => u32_at(value, 0),
        _ => Some(1),
    };
    found.ok_or_else(|| damaged("record", value))
}

fn u32_at(value: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(value.get(at..at + 4)?.try_into().ok()?))
}

/// Recursive statistics: figures of everything below a directory, without itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Allocated bytes.
    pub bytes: i64,
    /// Inodes other than directories.
    pub files: i64,
    /// Directories.
    pub dirs: i64,
}

impl Stats {
    /// Sum.
    pub fn plus(self, o: Stats) -> Stats {
        Stats { bytes: self.bytes + o.bytes, files: self.files + o.files, dirs: self.dirs + o.dirs }
    }

    /// Negation.
    pub fn negated(self) -> Stats {
        Stats { bytes: -self.bytes, files: -self.files, dirs: -self.dirs }
    }

    /// All zero.
    pub fn is_zero(self) -> bool {
        self == Stats::default()
    }

    /// Inodes of any kind.
    pub fn inodes(self) -> i64 {
        self.files + self.dirs
    }

    /// The encoding: version, bytes, files, dirs.
    pub fn encode(self) -> Value {
        let mut out = vec![VERSION];
        for v in [self.bytes, self.files, self.dirs] {
            out.extend_from_slice(&v.to_be_bytes());
        }
        out.into()
    }

    /// Reads the encoding.
    pub fn decode(bytes: &[u8]) -> Result<Stats> {
        let mut r = Reader(bytes);
        let parsed = (|| {
            let [version] = r.take()?;
            let s = Stats { bytes: r.u64()? as i64, files: r.u64()? as i64, dirs: r.u64()? as i64 };
            (version == VERSION).then_some(s)
        })();
        parsed.ok_or_else(|| damaged("statistics", bytes))
    }
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Name.
    pub name: String,
    /// Owner.
    pub uid: u32,
    /// Next inode number to give out.
    pub next_inode: u64,
    /// The epoch that changes belong to; each snapshot ends one.
    pub epoch: u32,
    /// Time of creation, seconds since 1970.
    pub created_secs: i64,
    /// The directory it is attached in; 0 for the root volume.
    pub attached_dir: NodeId,
    /// The name there.
    pub attached_name: Box<[u8]>,
    /// Whether it is being freed.
    pub removing: bool,
    /// Settings of the volume.
    pub properties: Properties,
}

/// Settings of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Name of the directory of snapshots in each directory.
    pub snapshot_dir: Box<[u8]>,
    /// Whether listings show it.
    pub snapshot_dir_visible: bool,
    /// Most snapshots.
    pub snapshots_max: u32,
    /// Whether the quota of the root directory counts data that only snapshots hold.
    pub quota_counts_snapshots: bool,
    /// Users and groups that may take and remove snapshots, besides root and the owner.
    pub snapshot_rights: Vec<UserOrGroup>,
    /// How many days the recycle bin keeps removed files; 0: there is none.
    pub bin_days: u16,
    /// How many days it is kept what changed; 0: nothing is.
    pub audit_days: u16,
    /// Whether doors let everybody read what file modes let others read, also without a credential.
    pub public: bool,
    /// The pool of its data.
    pub pool: PoolId,
    /// Pools that directories of it name, in order.
    pub dir_pools: Vec<u8>,
    /// It is a copy of a volume of another cell.
    pub copy: Option<CopyState>,
    /// Where copies of it are kept up to date.
    pub mirrors: Vec<MirrorRecord>,
}

/// [`Properties::audit_days`] of a volume for which nobody has said otherwise.
pub const AUDIT_DAYS: u16 = 30;

/// Most mirrors of a volume.
pub const MIRRORS_MAX: usize = 16;

/// A copy of a volume in another cell that is kept up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorRecord {
    /// The other cell: servers with ports and commas between them, or a place on this machine.
    pub to: String,
    /// The public key of the other cell; `None`: it is on this machine.
    pub key: Option<[u8; 32]>,
    /// Name of the copy.
    pub copy: String,
    /// Seconds from one snapshot to the next.
    pub every_secs: u32,
    /// Most bytes in a second; 0: no limit.
    pub bytes_per_sec: u64,
    /// Which of its snapshots the copy keeps, see `Keep`.
    pub keep: String,
    /// When it was made, seconds since 1970.
    pub since_secs: i64,
    /// The last comparison in full.
    pub compared: Option<Compared>,
}

/// What came of comparing a volume with its copy in full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// When it ended, seconds since 1970.
    pub at_secs: i64,
    /// How they differ; empty: they are the same.
    pub differs: String,
}

const MIRROR_HAS_KEY: u8 = 1;
const MIRROR_WAS_COMPARED: u8 = 2;

impl MirrorRecord {
    fn encode(&self, format: u32, out: &mut Vec<u8>) {
        let compared = self.compared.as_ref().filter(|_| format >= FORMAT_COMPARED);
        for text in [&self.to, &self.copy, &self.keep] {
            put_short_text(out, text);
        }
        let has_key = u8::from(self.key.is_some()) * MIRROR_HAS_KEY;
        out.push(has_key + u8::from(compared.is_some()) * MIRROR_WAS_COMPARED);
        out.extend_from_slice(&self.key.unwrap_or_default());
        out.extend_from_slice(&self.every_secs.to_be_bytes());
        out.extend_from_slice(&self.bytes_per_sec.to_be_bytes());
        out.extend_from_slice(&self.since_secs.to_be_bytes());
        if let Some(compared) = compared {
            out.extend_from_slice(&compared.at_secs.to_be_bytes());
            put_short_text(out, &compared.differs);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Option<MirrorRecord> {
        let (to, copy, keep) = (r.short_text()?, r.short_text()?, r.short_text()?);
        let [flags] = r.take()?;
        let key: [u8; 32] = r.take()?;
        let key = (flags & MIRROR_HAS_KEY != 0).then_some(key);
        let (every_secs, bytes_per_sec, since_secs) = (r.u32()?, r.u64()?, r.u64()? as i64);
        let compared = match flags & MIRROR_WAS_COMPARED != 0 {
            true => Some(Compared { at_secs: r.u64()? as i64, differs: r.short_text()? }),
            false => None,
        };
        Some(MirrorRecord { to, key, copy, every_secs, bytes_per_sec, keep, since_secs, compared })
    }
}

/// The state of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyState {
    /// The epoch of the snapshot that it shows.
    pub shown: u32,
    /// Which stream has come in part, behind a mark where what is shown was made here; empty:
    /// neither.
    pub receiving: Box<[u8]>,
}

impl Default for Properties {
    fn default() -> Properties {
        Properties {
            snapshot_dir: (*b".snap").into(),
            snapshot_dir_visible: false,
            snapshots_max: 20_000,
            quota_counts_snapshots: false,
            snapshot_rights: Vec::new(),
            bin_days: 0,
            audit_days: AUDIT_DAYS,
            public: false,
            pool: 0,
            dir_pools: Vec::new(),
            copy: None,
            mirrors: Vec::new(),
        }
    }
}

const PROPERTY_VISIBLE: u8 = 1;
const PROPERTY_QUOTA_COUNTS: u8 = 2;
const PROPERTY_BIN: u8 = 4;
const PROPERTY_POOL: u8 = 8;
const PROPERTY_DIR_POOLS: u8 = 16;
const PROPERTY_PUBLIC: u8 = 32;
const PROPERTY_COPY: u8 = 64;
const PROPERTY_MIRRORS: u8 = 128;

impl Properties {
    /// flags u8, most snapshots u32, length u8 and name, number u16 and rights (0 user or 1 group
    /// u8, id u32), and, where flagged, days of the recycle bin u16, pool u32, number u8 and pools
    /// of directories u8 each, of a copy the epoch shown u32, length u16 and what is noted of a
    /// stream (which one, bytes of its records that are durable u64, attributes of the root
    /// directory), number u8 and mirrors each with length u16 and text of `to`, `copy` and `keep`,
    /// flags u8 (1 there is a key, 2 it was compared), key (32 bytes), interval u32, bytes in a
    /// second u64, since i64, and, where it was compared, when i64, length u16 and text of what
    /// differs.
    fn encode(&self, format: u32, out: &mut Vec<u8>) {
        let flags = u8::from(self.snapshot_dir_visible) * PROPERTY_VISIBLE
            + u8::from(self.quota_counts_snapshots) * PROPERTY_QUOTA_COUNTS
            + u8::from(self.bin_days > 0) * PROPERTY_BIN
            + u8::from(self.pool > 0) * PROPERTY_POOL
            + u8::from(!self.dir_pools.is_empty()) * PROPERTY_DIR_POOLS
            + u8::from(self.public) * PROPERTY_PUBLIC
            + u8::from(self.copy.is_some()) * PROPERTY_COPY
            + u8::from(!self.mirrors.is_empty()) * PROPERTY_MIRRORS;
        out.push(flags);
        out.extend_from_slice(&self.snapshots_max.to_be_bytes());
        out.push(self.snapshot_dir.len() as u8);
        out.extend_from_slice(&self.snapshot_dir);
        out.extend_from_slice(&(self.snapshot_rights.len() as u16).to_be_bytes());
        for who in &self.snapshot_rights {
            let (kind, id) = match who {
                UserOrGroup::User(id) => (0, id),
                UserOrGroup::Group(id) => (1, id),
            };
            out.push(kind);
            out.extend_from_slice(&id.to_be_bytes());
        }
        if self.bin_days > 0 {
            out.extend_from_slice(&self.bin_days.to_be_bytes());
        }
        if self.pool > 0 {
            out.extend_from_slice(&self.pool.to_be_bytes());
        }
        if !self.dir_pools.is_empty() {
            out.push(self.dir_pools.len() as u8);
            out.extend_from_slice(&self.dir_pools);
        }
        if let Some(copy) = &self.copy {
            out.extend_from_slice(&copy.shown.to_be_bytes());
            out.extend_from_slice(&(copy.receiving.len() as u16).to_be_bytes());
            out.extend_from_slice(&copy.receiving);
        }
        if !self.mirrors.is_empty() {
            out.push(self.mirrors.len() as u8);
            self.mirrors.iter().for_each(|mirror| mirror.encode(format, out));
        }
    }

    fn decode(r: &mut Reader<'_>) -> Option<Properties> {
        let [flags] = r.take()?;
        let snapshots_max = r.u32()?;
        let [len] = r.take()?;
        let snapshot_dir = r.bytes(len as usize)?.into();
        let rights = u16::from_be_bytes(r.take()?);
        let snapshot_rights = (0..rights)
            .map(|_| {
                let [kind] = r.take()?;
                let id = r.u32()?;
                Some(if kind == 0 { UserOrGroup::User(id) } else { UserOrGroup::Group(id) })
            })
            .collect::<Option<Vec<UserOrGroup>>>()?;
        let bin_days = if flags & PROPERTY_BIN != 0 { u16::from_be_bytes(r.take()?) } else { 0 };
        let pool = if flags & PROPERTY_POOL != 0 { r.u32()? } else { 0 };
        let mut dir_pools = Vec::new();
        if flags & PROPERTY_DIR_POOLS != 0 {
            let [count] = r.take()?;
            dir_pools.extend_from_slice(r.bytes(count as usize)?);
        }
        let copy = match flags & PROPERTY_COPY != 0 {
            true => {
                let shown = r.u32()?;
                let len = u16::from_be_bytes(r.take()?);
                Some(CopyState { shown, receiving: r.bytes(len as usize)?.into() })
            }
            false => None,
        };
        let mirrors = match flags & PROPERTY_MIRRORS != 0 {
            true => {
                let [count] = r.take()?;
                (0..count).map(|_| MirrorRecord::decode(r)).collect::<Option<Vec<MirrorRecord>>>()?
            }
            false => Vec::new(),
        };
        Some(Properties {
            snapshot_dir,
            snapshot_dir_visible: flags & PROPERTY_VISIBLE != 0,
            snapshots_max,
            quota_counts_snapshots: flags & PROPERTY_QUOTA_COUNTS != 0,
            snapshot_rights,
            bin_days,
            audit_days: AUDIT_DAYS,
            public: flags & PROPERTY_PUBLIC != 0,
            pool,
            dir_pools,
            copy,
            mirrors,
        })
    }
}

impl VolumeRecord {
    /// The encoding: version 2 has the properties before the name, version 1 (with the defaults)
    /// does not. Version 3 has the days for which it is kept what changed, u16, behind the
    /// properties. `format`: of the cell; what an older one does not have is left out.
    pub fn encode(&self, format: u32) -> Value {
        let plain = self.properties == Properties::default();
        let audited = self.properties.audit_days != AUDIT_DAYS;
        let version = match (plain, audited) {
            (true, _) => VERSION,
            (false, false) => VERSION_PROPERTIES,
            (false, true) => VERSION_AUDITED,
        };
        let mut out = vec![version, u8::from(self.removing)];
        out.extend_from_slice(&self.uid.to_be_bytes());
        out.extend_from_slice(&self.epoch.to_be_bytes());
        out.extend_from_slice(&self.next_inode.to_be_bytes());
        out.extend_from_slice(&self.created_secs.to_be_bytes());
        out.extend_from_slice(&self.attached_dir.0.to_be_bytes());
        out.extend_from_slice(&(self.attached_name.len() as u16).to_be_bytes());
        out.extend_from_slice(&self.attached_name);
        if !plain {
            self.properties.encode(format, &mut out);
        }
        if audited {
            out.extend_from_slice(&self.properties.audit_days.to_be_bytes());
        }
        out.extend_from_slice(self.name.as_bytes());
        out.into()
    }

    /// Reads the encoding.
    pub fn decode(bytes: &[u8]) -> Result<VolumeRecord> {
        let mut r = Reader(bytes);
        let parsed = (|| {
            let [version, removing] = r.take()?;
            let (uid, epoch) = (r.u32()?, r.u32()?);
            let (next_inode, created) = (r.u64()?, r.u64()?);
            let attached_dir = NodeId(r.u64()?);
            let len = u16::from_be_bytes(r.take()?) as usize;
            let attached_name = r.bytes(len)?.into();
            let properties = match version {
                VERSION => Properties::default(),
                VERSION_PROPERTIES => Properties::decode(&mut r)?,
                VERSION_AUDITED => {
                    let properties = Properties::decode(&mut r)?;
                    Properties { audit_days: u16::from_be_bytes(r.take()?), ..properties }
                }
                _ => return None,
            };
            Some(VolumeRecord {
                name: String::from_utf8(r.0.to_vec()).ok()?,
                uid,
                next_inode,
                epoch,
                created_secs: created as i64,
                attached_dir,
                attached_name,
                removing: removing != 0,
                properties,
            })
        })();
        parsed.ok_or_else(|| damaged("volume", bytes))
    }
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// Inode of the directory it was taken of.
    pub dir: u64,
    /// Name in that directory's directory of snapshots.
    pub name: Box<[u8]>,
    /// User id of the user who took it.
    pub uid: u32,
    /// Time when it was taken.
    pub time: Time,
    /// Nobody may remove it before this second since 1970; 0: not locked.
    pub locked_until_secs: i64,
}

impl SnapshotRecord {
    /// The encoding: version, dir u64, uid u32, seconds i64, nanoseconds u32, locked until i64,
    /// name.
    pub fn encode(&self) -> Value {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.dir.to_be_bytes());
        out.extend_from_slice(&self.uid.to_be_bytes());
        out.extend_from_slice(&self.time.secs.to_be_bytes());
        out.extend_from_slice(&self.time.nanos.to_be_bytes());
        out.extend_from_slice(&self.locked_until_secs.to_be_bytes());
        out.extend_from_slice(&self.name);
        out.into()
    }

    /// Reads the encoding.
    pub fn decode(bytes: &[u8]) -> Result<SnapshotRecord> {
        let mut r = Reader(bytes);
        let parsed = (|| {
            let [version] = r.take()?;
            let (dir, uid) = (r.u64()?, r.u32()?);
            let time = Time { secs: r.u64()? as i64, nanos: r.u32()? };
            let locked_until_secs = r.u64()? as i64;
            let name = r.0.into();
            (version == VERSION).then_some(SnapshotRecord { dir, name, uid, time, locked_until_secs })
        })();
        parsed.ok_or_else(|| damaged("snapshot", bytes))
    }
}

/// An entry of the recycle bin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinRecord {
    /// User id of the user who removed it.
    pub uid: u32,
    /// Its last name, in the directory that its inode still counts in.
    pub name: Box<[u8]>,
}

impl BinRecord {
    /// The encoding: version, uid u32, name.
    pub fn encode(&self) -> Value {
        [&[VERSION], &self.uid.to_be_bytes()[..], &self.name].concat().into()
    }

    /// Reads the encoding.
    pub fn decode(bytes: &[u8]) -> Result<BinRecord> {
        let mut r = Reader(bytes);
        let parsed = (|| {
            let [version] = r.take()?;
            let uid = r.u32()?;
            (version == VERSION).then(|| BinRecord { uid, name: r.0.into() })
        })();
        parsed.ok_or_else(|| damaged("recycle bin", bytes))
    }
}

/// A segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentRecord {
    /// Referenced bytes: every extent of every record version counts.
    pub live_bytes: u64,
    /// Raw bytes the object holds; 0 while not sealed.
    pub data_bytes: u64,
    /// Bytes of the object; 0 while not sealed.
    pub object_bytes: u64,
    /// Generation of the object.
    pub generation: u32,
    /// Whether the object is durable in the pool; before that its live bytes are inline data in the
    /// journal.
    pub sealed: bool,
    /// The pool that the object is in, or will be put to.
    pub pool: PoolId,
    /// The volume whose data it holds, or holds most of; `None`: not recorded when it was written,
    /// and it may have data of several.
    pub volume: Option<u32>,
}

const NO_VOLUME: u32 = u32::MAX;

impl SegmentRecord {
    /// Bytes of the object's data that nothing refers to (shared data may hide some).
    pub fn dead_bytes(&self) -> u64 {
        self.data_bytes.saturating_sub(self.live_bytes)
    }

    /// The object.
    pub fn object(&self, segment: u64) -> Object {
        Object { pool: self.pool, segment, generation: self.generation }
    }

    /// The encoding: version 2 has pool and volume at the end, version 1 (in pool 0, volume not
    /// noted) does not.
    pub fn encode(self) -> Value {
        let plain = self.pool == 0 && self.volume.is_none();
        let mut out = vec![if plain { VERSION } else { VERSION_PLACED }, u8::from(self.sealed)];
        out.extend_from_slice(&self.generation.to_be_bytes());
        for v in [self.live_bytes, self.data_bytes, self.object_bytes] {
            out.extend_from_slice(&v.to_be_bytes());
        }
        if !plain {
            out.extend_from_slice(&self.pool.to_be_bytes());
            out.extend_from_slice(&self.volume.unwrap_or(NO_VOLUME).to_be_bytes());
        }
        out.into()
    }

    /// Reads the encoding.
    pub fn decode(bytes: &[u8]) -> Result<SegmentRecord> {
        let mut r = Reader(bytes);
        let parsed = (|| {
            let [version, sealed] = r.take()?;
            let generation = r.u32()?;
            let [live_bytes, data_bytes, object_bytes] = [r.u64()?, r.u64()?, r.u64()?];
            let (pool, volume) = match version {
                VERSION => (0, None),
                VERSION_PLACED => (r.u32()?, Some(r.u32()?).filter(|v| *v != NO_VOLUME)),
                _ => return None,
            };
            let sealed = sealed != 0;
            Some(SegmentRecord { live_bytes, data_bytes, object_bytes, generation, sealed, pool, volume })
        })();
        parsed.ok_or_else(|| damaged("segment", bytes))
    }
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRecord {
    /// Unique name.
    pub name: String,
    /// How it keeps objects in its stores, such as `single` or `erasure(4+2)`.
    pub layout: String,
    /// Its stores.
    pub stores: Vec<StoreRecord>,
    /// The hot pool in front of it.
    pub tier: Option<TierRecord>,
}

/// A hot pool in front of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierRecord {
    /// The hot pool.
    pub hot: PoolId,
    /// When data is flushed and evicted.
    pub options: TierOptions,
}

/// A store of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreRecord {
    /// Its position in the layout, from 0.
    pub slot: u16,
    /// Id of the store, as in its label: random, for ever.
    pub id: u128,
    /// URL of the store.
    pub url: String,
    /// What the operator wants done with it.
    pub state: StoreState,
}

impl PoolRecord {
    /// The encoding: version, flags 0, length u8 and layout, number u16 and stores (slot u16, id
    /// u128, state u8, length u16 and URL), in version 2 the hot pool in front of it (pool u32,
    /// shares in percent from which on it flushes and evicts u8 each, 1 when it is ending u8),
    /// name.
    pub fn encode(&self) -> Value {
        let mut out = vec![if self.tier.is_some() { VERSION_TIERED } else { VERSION }, 0];
        out.push(self.layout.len() as u8);
        out.extend_from_slice(self.layout.as_bytes());
        out.extend_from_slice(&(self.stores.len() as u16).to_be_bytes());
        for store in &self.stores {
            out.extend_from_slice(&store.slot.to_be_bytes());
            out.extend_from_slice(&store.id.to_be_bytes());
            out.push(match store.state {
                StoreState::Active => 1,
                StoreState::Draining => 2,
                StoreState::Missing => 3,
            });
            out.extend_from_slice(&(store.url.len() as u16).to_be_bytes());
            out.extend_from_slice(store.url.as_bytes());
        }
        if let Some(TierRecord { hot, options }) = self.tier {
            out.extend_from_slice(&hot.to_be_bytes());
            out.extend([options.flush_percent, options.evict_percent, u8::from(options.ending)]);
        }
        out.extend_from_slice(self.name.as_bytes());
        out.into()
    }

    /// Reads the encoding.
    pub fn decode(bytes: &[u8]) -> Result<PoolRecord> {
        let mut r = Reader(bytes);
        let parsed = (|| {
            let [version, _] = r.take()?;
            let [len] = r.take()?;
            let layout = r.text(len as usize)?;
            let count = u16::from_be_bytes(r.take()?);
            let stores = (0..count).map(|_| StoreRecord::parse(&mut r)).collect::<Option<Vec<_>>>()?;
            let tier = match version {
                VERSION => None,
                VERSION_TIERED => Some(TierRecord::parse(&mut r)?),
                _ => return None,
            };
            let name = r.text(r.0.len())?;
            Some(PoolRecord { name, layout, stores, tier })
        })();
        parsed.ok_or_else(|| damaged("pool", bytes))
    }
}

impl TierRecord {
    fn parse(r: &mut Reader<'_>) -> Option<TierRecord> {
        let hot = r.u32()?;
        let [flush_percent, evict_percent, ending] = r.take()?;
        let options = TierOptions { flush_percent, evict_percent, ending: ending != 0 };
        options.is_sound().then_some(TierRecord { hot, options })
    }
}

impl StoreRecord {
    fn parse(r: &mut Reader<'_>) -> Option<StoreRecord> {
        let slot = u16::from_be_bytes(r.take()?);
        let id = u128::from_be_bytes(r.take()?);
        let state = match r.take()? {
            [1] => StoreState::Active,
            [2] => StoreState::Draining,
            [3] => StoreState::Missing,
            _ => return None,
        };
        let len = u16::from_be_bytes(r.take()?) as usize;
        Some(StoreRecord { slot, id, url: r.text(len)?, state })
    }
}

/// The limits of names of objects that may be used: from the cell's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Numbers of segments are below this.
    pub segments: u64,
    /// Generations are below this; 0: none was ever reserved, as in cells of older programs.
    pub generations: u32,
}

/// The cell's counters: the next numbers to use. As a [`Pair`]: generations reserved in the upper
/// and next volume in the lower half of the first number, segment numbers reserved up to in the
/// second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The next volume's number.
    pub next_volume: u32,
    /// Names of objects that were or may be used.
    pub reserved: Reserved,
}

impl Counters {
    /// The encoding.
    pub fn encode(self) -> Value {
        let first = u64::from(self.reserved.generations) << 32 | u64::from(self.next_volume);
        Pair(first, self.reserved.segments).encode()
    }

    /// Reads the encoding.
    pub fn decode(bytes: &[u8]) -> Result<Counters> {
        let Pair(first, segments) = Pair::decode(bytes)?;
        let reserved = Reserved { segments, generations: (first >> 32) as u32 };
        Ok(Counters { next_volume: first as u32, reserved })
    }
}

/// Openings of a cell that are stored: those before belong to the first of them.
const OPENINGS_MAX: usize = 1024;

/// Openings of the cell: the first number of a segment that each could use, and a random number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Openings(pub Vec<(u64, u64)>);

impl Openings {
    /// Adds an opening. One before that used no number is forgotten.
    pub fn add(&mut self, first: u64, number: u64) {
        self.0.retain(|(used_from, _)| *used_from < first);
        self.0.push((first, number));
        let surplus = self.0.len().saturating_sub(OPENINGS_MAX);
        self.0.drain(..surplus);
    }

    /// The number of the opening in which a segment was made, or of the first that is known.
    pub fn of(&self, segment: u64) -> u64 {
        let after = self.0.partition_point(|(first, _)| *first <= segment);
        self.0.get(after.saturating_sub(1)).map_or(0, |(_, number)| *number)
    }

    /// The encoding.
    pub fn encode(&self) -> Value {
        let mut out = vec![VERSION];
        for (first, number) in &self.0 {
            out.extend_from_slice(&first.to_be_bytes());
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.into()
    }

    /// Reads the encoding.
    pub fn decode(bytes: &[u8]) -> Result<Openings> {
        let (version, all) = bytes.split_first().ok_or_else(|| damaged("openings", bytes))?;
        let (pairs, rest) = all.as_chunks::<16>();
        let number = |pair: &[u8; 16], at: usize| {
            pair[at..].first_chunk().map_or(0, |number| u64::from_be_bytes(*number))
        };
        let openings = Openings(pairs.iter().map(|pair| (number(pair, 0), number(pair, 8))).collect());
        let is_ordered = openings.0.is_sorted_by_key(|(first, _)| *first);
        if *version != VERSION || !rest.is_empty() || !is_ordered {
            return Err(damaged("openings", bytes));
        }
        Ok(openings)
    }
}

/// Two numbers with a version: limits of a quota (bytes, files; 0: none), or the cell's
/// [`Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair(pub u64, pub u64);

impl Pair {
    /// The encoding.
    pub fn encode(self) -> Value {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.0.to_be_bytes());
        out.extend_from_slice(&self.1.to_be_bytes());
        out.into()
    }

    /// Reads the encoding.
    pub fn decode(bytes: &[u8]) -> Result<Pair> {
        let mut r = Reader(bytes);
        let parsed = (|| {
            let [version] = r.take()?;
            let p = Pair(r.u64()?, r.u64()?);
            (version == VERSION).then_some(p)
        })();
        parsed.ok_or_else(|| damaged("counter", bytes))
    }
}

/// Reads an encoding field by field.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

/// Length u16, then the text: what [`Reader::short_text`] reads.
pub(crate) fn put_short_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn text(&mut self, len: usize) -> Option<String> {
        String::from_utf8(self.bytes(len)?.to_vec()).ok()
    }

    /// Length u16, then as much text.
    pub(crate) fn short_text(&mut self) -> Option<String> {
        let len = u16::from_be_bytes(self.take()?);
        self.text(len.into())
    }

    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    /// 0 or 1.
    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.take()? {
            [flag @ 0..=1] => Some(flag == 1),
            _ => None,
        }
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }
}

pub(crate) fn kind_of(b: u8) -> Option<Kind> {
    use Kind::{BlockDev, CharDev, Dir, Fifo, File, Socket, Symlink};
    [File, Dir, Symlink, Fifo, CharDev, BlockDev, Socket].into_iter().find(|k| *k as u8 == b)
}

pub(crate) fn damaged(what: &str, bytes: &[u8]) -> Error {
    Error::Corrupt(format!("{what} record of {} bytes cannot be read", bytes.len()))
}
