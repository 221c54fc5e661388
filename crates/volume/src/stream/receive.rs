//! Applies records to the live volume of a copy, which nobody sees: what is shown is a snapshot of
//! it.
//!
//! Each record can be applied again, so a stream that ended early may come again from its
//! beginning. What has no name for a while has one in a *staging* directory: inodes that are new,
//! or on their way from one name to another, under their numbers. What is left there at the end has
//! lost its last name.

use super::record::{Attributes, Record, damaged};
use crate::cell::root_dir;
use crate::format::extents::Extents;
use crate::format::inode::{Body, Dentry, Inode, Stats};
use crate::format::keys;
use crate::format::owned::Owned;
use crate::ops::{Rename, check_name};
use crate::shard::Shard;
use crate::tx::{Tx, TxResult};
use leeward_env::Ctx;
use leeward_env::limits::{SYMLINK_BYTES_MAX, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use leeward_fs::{Allocate, Error, InodeFlags, Kind, NodeId, Precondition, RenameMode, Result, SetAttr};

/// The staging directory: its number, which no other inode gets, and its name in the root
/// directory, which no user can give.
pub(crate) const STAGING: u64 = (1 << 40) - 1;
const STAGING_NAME: &[u8] = b"/receiving";
/// Inode numbers that a volume gives out are below.
pub(super) const NUMBERS_END: u64 = 1 << 39;

/// Applies records.
pub(crate) struct Receiving<'a> {
    shard: &'a Shard,
    ctx: &'a Ctx,
    volume: u32,
    /// The file whose flags do not hinder writes.
    writable: u64,
}

impl<'a> Receiving<'a> {
    /// Begins: makes the staging directory, unless a stream that ended early has left it.
    pub(crate) fn begin(shard: &'a Shard, ctx: &'a Ctx, volume: u32) -> Result<Receiving<'a>> {
        let receiving = Receiving { shard, ctx, volume, writable: 0 };
        let (root, staging) = (receiving.node(1), receiving.node(STAGING));
        receiving.clear_flags(&[1])?;
        shard.transact(ctx, |tx| {
            if tx.dentry(root, STAGING_NAME)?.is_none() {
                tx.insert_made((staging, STAGING_NAME), (root, Kind::Dir), (0, b""))?;
            }
            Ok(())
        })?;
        Ok(receiving)
    }

    /// The inode of a number, which is the root directory's, or one that volumes give out, or that
    /// of staging.
    fn node(&self, inode: u64) -> NodeId {
        debug_assert!(is_number(inode) || inode == STAGING);
        NodeId::new(self.volume, inode)
    }

    fn staging(&self) -> NodeId {
        self.node(STAGING)
    }

    /// Applies one.
    pub(crate) fn apply(&mut self, record: Record<'_>) -> Result<()> {
        check(&record)?;
        match record {
            Record::Gone { dir, name, inode, stays } => self.lose_name((dir, name), inode, stays),
            Record::Made { inode, kind, device, target } => self.make(inode, kind, (device, target)),
            Record::Named { dir, name, inode } => self.give_name((dir, name), inode),
            Record::Xattr { inode, name, value } => {
                self.shard.transact(self.ctx, |tx| tx.receive_xattr(self.node(inode), name, value))
            }
            Record::Cut { inode, size } => self.resize(inode, size),
            Record::Data { inode, offset, bytes } => {
                self.make_writable(inode)?;
                self.shard.write(self.ctx, self.node(inode), offset, bytes).map(drop)
            }
            Record::Unwritten { inode, offset, len } => {
                self.allocate(inode, (offset, len), Allocate::ZeroRange { keep_size: true })
            }
            Record::Hole { inode, offset, len } => self.allocate(inode, (offset, len), Allocate::PunchHole),
            Record::Attr { inode, attributes } => self.set_attributes(inode, &attributes),
        }
    }

    /// Flags of users would refuse what is to be done; an inode that changes gets its own at the
    /// end.
    fn clear_flags(&self, inodes: &[u64]) -> Result<()> {
        self.shard.transact(self.ctx, |tx| {
            for inode in inodes {
                let node = self.node(*inode);
                if tx.get(&keys::inode(node))?.is_none() {
                    continue;
                }
                let mut record = tx.inode(node)?;
                if !record.flags.is_empty() {
                    record.flags = InodeFlags::default();
                    tx.put_inode(node, &record)?;
                }
            }
            Ok(())
        })
    }

    fn make_writable(&mut self, inode: u64) -> Result<()> {
        if self.writable != inode {
            self.clear_flags(&[inode])?;
            self.writable = inode;
        }
        Ok(())
    }

    /// What a name leads to; `None` also where there is no such directory.
    fn entry(&self, (dir, name): (u64, &[u8])) -> Result<Option<Dentry>> {
        self.shard.transact(self.ctx, |tx| tx.dentry(self.node(dir), name))
    }

    fn lose_name(&self, (dir, name): (u64, &[u8]), inode: u64, stays: bool) -> Result<()> {
        let Some(entry) = self.entry((dir, name))?.filter(|entry| entry.node == self.node(inode)) else {
            return Ok(()); // done before
        };
        self.clear_flags(&[dir, inode])?;
        let links = self.shard.transact(self.ctx, |tx| Ok(tx.inode(entry.node)?.nlink))?;
        if entry.kind == Kind::Dir || stays && links == 1 {
            return self.rename((dir, name), (STAGING, &staged(inode)));
        }
        let dir = self.node(dir);
        self.shard.transact(self.ctx, |tx| tx.unlink(dir, name, Precondition::Any)).map(drop)
    }

    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8])) -> Result<()> {
        let rename = Rename {
            from_dir: self.node(from.0),
            from_name: from.1,
            to_dir: self.node(to.0),
            to_name: to.1,
            mode: RenameMode::NoReplace,
        };
        self.shard.rename(self.ctx, &rename).map(drop)
    }

    fn make(&self, inode: u64, kind: Kind, more: (u32, &[u8])) -> Result<()> {
        let (node, name) = (self.node(inode), staged(inode));
        self.shard.transact(self.ctx, |tx| {
            match tx.get(&keys::inode(node))?.map(|record| Inode::decode(&record)).transpose()? {
                None => tx.insert_made((node, &name), (self.staging(), kind), more),
                // one of this number has lost its name, and is not free yet
                Some(there) if there.nlink == 0 => Err(Error::Busy.into()),
                Some(there) if there.kind != kind => {
                    Err(damaged(format_args!("inode {inode} is of another kind")).into())
                }
                Some(_) => Ok(()), // done before
            }
        })
    }

    fn give_name(&self, (dir, name): (u64, &[u8]), inode: u64) -> Result<()> {
        check_name(name).map_err(|_| damaged("it has a name that cannot be"))?;
        let node = self.node(inode);
        match self.entry((dir, name))? {
            Some(there) if there.node == node => return Ok(()), // done before
            Some(_) => return Err(damaged(format_args!("a name in directory {dir} is taken"))),
            None => (),
        }
        self.clear_flags(&[dir, inode])?;
        let staged = staged(inode);
        if self.entry((STAGING, &staged))?.is_some() {
            return self.rename((STAGING, &staged), (dir, name));
        }
        let dir = self.node(dir);
        self.shard.transact(self.ctx, |tx| tx.link(node, dir, name)).map(drop)
    }

    fn allocate(&mut self, inode: u64, (offset, len): (u64, u64), mode: Allocate) -> Result<()> {
        self.make_writable(inode)?;
        self.shard.allocate(self.ctx, self.node(inode), offset, len, mode).map(drop)
    }

    fn resize(&mut self, inode: u64, size: u64) -> Result<()> {
        let node = self.node(inode);
        let (is_file, now) = self.shard.transact(self.ctx, |tx| {
            let record = tx.inode(node)?;
            Ok((record.kind == Kind::File, tx.size_of(node, &record).0))
        })?;
        if is_file && now != size {
            self.make_writable(inode)?;
            self.shard.set_attr(self.ctx, node, &SetAttr { size: Some(size), ..SetAttr::default() })?;
        }
        Ok(())
    }

    fn set_attributes(&mut self, inode: u64, to: &Attributes) -> Result<()> {
        let node = self.node(inode);
        self.resize(inode, to.size)?;
        self.writable = 0;
        self.shard.transact(self.ctx, |tx| {
            let mut record = tx.inode(node)?;
            (record.mode, record.uid, record.gid) = (to.mode, to.uid, to.gid);
            (record.times, record.flags) = (to.times, to.flags);
            tx.put_inode(node, &record)
        })
    }

    /// All records were applied: removes what has lost its last name, and the staging directory.
    /// `root`: what the root directory is to be like.
    ///
    /// # Errors
    /// `Busy`: a directory that is to go has a locked snapshot, or is the place of a project.
    pub(crate) fn end(mut self, root: &Attributes) -> Result<()> {
        self.clear_flags(&[1])?;
        loop {
            let mut names = Vec::new();
            let mut step = |name: Box<[u8]>, entry: Dentry| names.push((name, entry));
            crate::snapshots::tree::Tree { shard: self.shard, volume: self.volume }
                .page(STAGING, None, &mut step)?;
            if names.is_empty() {
                break;
            }
            for (name, entry) in names {
                self.drop_staged(&name, entry)?;
            }
        }
        let dir = self.node(1);
        self.shard.transact(self.ctx, |tx| match tx.dentry(dir, STAGING_NAME)? {
            Some(staging) => {
                tx.remove_entry(dir, STAGING_NAME, Kind::Dir)?;
                tx.drop_dir(dir, STAGING_NAME, staging.node)
            }
            None => Ok(()),
        })?;
        self.set_attributes(1, root)
    }

    fn drop_staged(&self, name: &[u8], entry: Dentry) -> Result<()> {
        self.clear_flags(&[entry.node.inode()])?;
        let staging = self.staging();
        if entry.kind != Kind::Dir {
            return self.shard.transact(self.ctx, |tx| tx.unlink(staging, name, Precondition::Any)).map(drop);
        }
        let clock = self.shard.lock_clock();
        self.shard.transact(self.ctx, |tx| tx.drop_kept_below(entry.node, clock))?;
        self.shard.transact(self.ctx, |tx| tx.orphan_replaced(staging, name, entry, false))
    }
}

/// Whether an inode of a stream may have this number.
pub(crate) fn is_number(inode: u64) -> bool {
    (1..NUMBERS_END).contains(&inode)
}

/// Refuses what no cell sends: a stream may come from anywhere.
fn check(record: &Record<'_>) -> Result<()> {
    let (dir, inode) = match *record {
        Record::Gone { dir, inode, .. } | Record::Named { dir, inode, .. } => (dir, inode),
        Record::Made { inode: 1, .. } => return Err(damaged("it makes a root directory")),
        Record::Made { inode, .. }
        | Record::Xattr { inode, .. }
        | Record::Cut { inode, .. }
        | Record::Data { inode, .. }
        | Record::Unwritten { inode, .. }
        | Record::Hole { inode, .. }
        | Record::Attr { inode, .. } => (1, inode),
    };
    if !is_number(dir) || !is_number(inode) {
        return Err(damaged(format_args!("inode {inode} in directory {dir} is out of range")));
    }
    let fits = match *record {
        Record::Made { kind, target, .. } => {
            (kind == Kind::Symlink) != target.is_empty() && target.len() <= SYMLINK_BYTES_MAX
        }
        Record::Xattr { name, value, .. } => {
            (1..=XATTR_NAME_BYTES_MAX).contains(&name.len())
                && value.is_none_or(|value| value.len() <= XATTR_VALUE_BYTES_MAX)
        }
        Record::Unwritten { offset, len, .. } | Record::Hole { offset, len, .. } => {
            len > 0 && offset.checked_add(len).is_some()
        }
        Record::Attr { attributes, .. } => attributes.times.iter().all(|time| time.nanos < 1_000_000_000),
        _ => true,
    };
    if fits { Ok(()) } else { Err(damaged(format_args!("what it says of inode {inode} cannot be"))) }
}

/// The name of an inode in the staging directory.
fn staged(inode: u64) -> Vec<u8> {
    inode.to_string().into_bytes()
}

impl Tx<'_> {
    /// Makes an inode with a number that is given, under a name.
    fn insert_made(
        &mut self,
        (node, name): (NodeId, &[u8]),
        (dir, kind): (NodeId, Kind),
        (device, target): (u32, &[u8]),
    ) -> TxResult<()> {
        let is_dir = kind == Kind::Dir;
        let by = Stats { files: i64::from(!is_dir), dirs: i64::from(is_dir), ..Stats::default() };
        self.charge(dir, by)?;
        let body = match kind {
            Kind::File => Body::File { inline: Extents::default(), spilled: false, windows: false },
            Kind::Dir => Body::Dir { entries: 0 },
            Kind::Symlink => Body::Symlink(target.into()),
            _ => Body::Special,
        };
        let inode = Inode {
            kind,
            mode: 0,
            nlink: if is_dir { 2 } else { 1 },
            rdev: device,
            size: if kind == Kind::Symlink { target.len() as u64 } else { 0 },
            parent: dir.inode(),
            name: Some(name.into()),
            birth: self.epoch(node.volume())?,
            body,
            ..root_dir(self.now, 0, 0)
        };
        self.place(dir, name, Dentry { node, kind })?;
        let key = keys::inode(node);
        self.count_owner(node, &key, Owned::of(&inode))?;
        self.put(key, inode.encode());
        self.add_stats(dir, by);
        self.gives_out(node);
        Ok(())
    }

    /// No other inode of the volume gets this number.
    fn gives_out(&mut self, node: NodeId) {
        if node.inode() != STAGING
            && let Some(v) = self.st.volumes.get_mut(&node.volume())
        {
            v.next_inode = v.next_inode.max(node.inode() + 1);
            self.st.volumes_dirty.insert(node.volume());
            self.st.sessions.give_to_nobody(node);
        }
    }

    fn receive_xattr(&mut self, node: NodeId, name: &[u8], value: Option<&[u8]>) -> TxResult<()> {
        let mut inode = self.inode(node)?;
        let is_there = inode.xattrs > 0 && self.xattr(node, name)?.is_some();
        match value {
            Some(value) => self.put_xattr(node, name, value)?,
            None if is_there => self.remove_xattr_record(node, name)?,
            None => return Ok(()),
        }
        inode.xattrs = inode.xattrs + u32::from(value.is_some() && !is_there) - u32::from(value.is_none());
        self.put_inode(node, &inode)
    }
}
