//! A snapshot for a program that reads all of it, or what has changed since an older one: backups.
//!
//! Reading is background work in the name of the volume's owner. While it lasts the snapshot must
//! stay: when it is removed, calls answer `Stale`.

use crate::cell::turns::Paced;
use crate::format::inode::{Body, Inode, xattr_value};
use crate::format::keys;
use crate::ops::PAGE;
use crate::shard::Shard;
use crate::snapshots::tree::Tree;
use crate::state::snapshots::View;
use leeward_env::{Ctx, Work};
use leeward_fs::{Attr, Error, Kind, Reply, Result, Seek};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The root directory of each volume.
const ROOT: u64 = 1;

/// A snapshot of a volume's root directory.
pub struct SnapshotReader {
    shard: Arc<Shard>,
    volume: u32,
    epoch: u32,
    ctx: Ctx,
}

/// A name in a directory of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// The name.
    pub name: Box<[u8]>,
    /// The inode's number.
    pub inode: u64,
    /// What it is.
    pub kind: Kind,
}

/// Names and values of extended attributes.
type Xattrs = Vec<(Box<[u8]>, Box<[u8]>)>;

/// An inode of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInode {
    /// Attributes.
    pub attr: Attr,
    /// The target of a symbolic link.
    pub target: Box<[u8]>,
    /// Extended attributes, POSIX ACLs among them.
    pub xattrs: Xattrs,
}

/// What has changed between two snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotChanges {
    /// Inodes of which records differ, and whether the content of files may.
    pub inodes: BTreeMap<u64, bool>,
    /// Directories with names that differ, or that lead to such inodes, and all above them.
    pub dirs: BTreeSet<u64>,
}

impl SnapshotReader {
    /// The snapshot of a volume with this epoch. What was written before it is in the records from
    /// now on.
    pub(crate) fn open(shard: &Arc<Shard>, volume: u32, epoch: u32) -> Result<SnapshotReader> {
        let ctx = shard.work_ctx(Work::Transfer, Some(volume));
        shard.settle_epoch(&ctx, volume, epoch)?;
        Ok(SnapshotReader { shard: shard.clone(), volume, epoch, ctx })
    }

    fn tree(&self) -> Result<Tree<'_>> {
        let st = &mut *self.shard.lock();
        st.snapshots.get(self.volume, self.epoch).ok_or(Error::Stale)?;
        let volume = st.snapshots.number(View::Snapshot { volume: self.volume, epoch: self.epoch });
        Ok(Tree { shard: &self.shard, volume })
    }

    fn in_turn<T>(&self, step: impl FnOnce() -> Result<T>) -> Result<T> {
        self.shard.in_turn(&self.ctx, self.volume, step)
    }

    /// The next names of a directory after one (`None`: the first), in the order of their bytes.
    /// Those of attached volumes are not among them. None: that was all.
    ///
    /// # Errors
    /// Stale when the snapshot is gone.
    pub fn page(&self, dir: u64, after: Option<&[u8]>) -> Result<Vec<SnapshotEntry>> {
        let tree = self.tree()?;
        let mut from = after.map(|name| keys::after(&keys::dentry(tree.node(dir), name)));
        let mut page = Vec::new();
        self.in_turn(|| {
            loop {
                from = tree.page(dir, from.take(), |name, entry| {
                    page.push(SnapshotEntry { name, inode: entry.node.inode(), kind: entry.kind });
                })?;
                if from.is_none() || !page.is_empty() {
                    return Ok(());
                }
            }
        })?;
        Ok(page)
    }

    fn record(&self, inode: u64) -> Result<Option<Inode>> {
        self.tree()?.inode(inode)
    }

    /// An inode; `None`: the snapshot has none of this number.
    ///
    /// # Errors
    /// Stale when the snapshot is gone.
    pub fn inode(&self, inode: u64) -> Result<Option<SnapshotInode>> {
        let tree = self.tree()?;
        self.in_turn(|| {
            let Some(record) = tree.inode(inode)? else { return Ok(None) };
            let target = match &record.body {
                Body::Symlink(target) => target.clone(),
                _ => Box::default(),
            };
            let xattrs = if record.xattrs > 0 { xattrs(tree, inode)? } else { Vec::new() };
            Ok(Some(SnapshotInode { attr: record.attr(tree.node(inode)), target, xattrs }))
        })
    }

    /// The directory that an inode is in; of one with several names one of them.
    ///
    /// # Errors
    /// Stale when the snapshot is gone.
    pub fn parent(&self, inode: u64) -> Result<Option<u64>> {
        Ok(self.record(inode)?.map(|record| record.parent).filter(|parent| *parent != 0))
    }

    /// Bytes of a file, fewer than asked for only where the file ends or a request is too large.
    ///
    /// # Errors
    /// Stale when the snapshot is gone.
    pub fn read(&self, inode: u64, offset: u64, len: u32) -> Result<Vec<u8>> {
        let tree = self.tree()?;
        match self.in_turn(|| self.shard.read(&self.ctx, tree.node(inode), offset, len))? {
            Reply::Data(data) => Ok(data),
            _ => Err(Error::Invalid),
        }
    }

    /// Where the next data of a file begins that is no hole.
    ///
    /// # Errors
    /// Stale when the snapshot is gone.
    pub fn next_data(&self, inode: u64, offset: u64) -> Result<Option<u64>> {
        let tree = self.tree()?;
        match self.in_turn(|| self.shard.seek(&self.ctx, tree.node(inode), offset, Seek::Data)) {
            Ok(Reply::Offset(at)) => Ok(Some(at)),
            Err(Error::NoSuchPosition) => Ok(None),
            Ok(_) => Err(Error::Invalid),
            Err(e) => Err(e),
        }
    }

    /// What has changed since an older snapshot of the same volume, in time in proportion to that.
    ///
    /// # Errors
    /// Stale when one of them is gone; Invalid when the other one is not older.
    pub fn changes_since(&self, older: &SnapshotReader) -> Result<SnapshotChanges> {
        if older.volume != self.volume || older.epoch >= self.epoch {
            return Err(Error::Invalid);
        }
        let (old, new) = (older.tree()?, self.tree()?);
        let paced = Paced { shard: &self.shard, ctx: &self.ctx, volume: self.volume };
        let between = (older.epoch, Some(self.epoch));
        let differing = self.shard.differing(Some(paced), self.volume, between, &mut |_| ())?;
        let mut changes = SnapshotChanges::default();
        let mut linked = Vec::new();
        let mut dirs: BTreeSet<u64> = differing.names.iter().map(|name| name.0).collect();
        for inode in differing.inodes.keys().copied() {
            let Some(is) = new.inode(inode)?.filter(|is| is.nlink > 0) else { continue };
            let was = old.inode(inode)?;
            // records of extents do not tell: those that come where a hole was leave no older
            // version
            let content = |of: &Inode| (of.content_lsn, of.size, of.allocated, of.body.clone());
            let content = is.kind == Kind::File && was.is_none_or(|was| content(&was) != content(&is));
            changes.inodes.insert(inode, content);
            if is.linked {
                linked.push(inode);
            } else {
                dirs.insert(is.parent);
            }
        }
        dirs.extend(self.shard.dirs_of_links(new, &linked)?);
        changes.dirs = reached(new, dirs)?;
        // what differs is known while both are there
        older.tree().and_then(|_| self.tree())?;
        Ok(changes)
    }
}

/// Directories that names lead to, and all above them.
fn reached(tree: Tree<'_>, dirs: BTreeSet<u64>) -> Result<BTreeSet<u64>> {
    let (mut found, mut lost) = (BTreeSet::new(), BTreeSet::new());
    for dir in dirs {
        let (mut above, mut at) = (Vec::new(), dir);
        let is_reached = loop {
            if found.contains(&at) {
                break true;
            }
            if lost.contains(&at) {
                break false;
            }
            above.push(at);
            if at == ROOT {
                break true;
            }
            match tree.inode(at)? {
                Some(record) if record.is_dir() && record.nlink > 0 => at = record.parent,
                _ => break false,
            }
        };
        if is_reached { &mut found } else { &mut lost }.extend(above);
    }
    Ok(found)
}

fn xattrs(tree: Tree<'_>, inode: u64) -> Result<Xattrs> {
    let mut all = Xattrs::new();
    let (mut from, to) = keys::xattr_range(tree.node(inode));
    loop {
        let (page, next) = tree.shard.scan(&from, &to, PAGE)?;
        for (key, value) in &page {
            if let Some(parsed) = keys::parse(key) {
                all.push((parsed.rest.into(), xattr_value(parsed.tag, value).into()));
            }
        }
        match next {
            Some(next) => from = next,
            None => return Ok(all),
        }
    }
}
