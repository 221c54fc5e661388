//! The entries of a recycle bin as a tree, and how they are restored.
//!
//! Several entries with one path may be in the bin, and something else may have that path again: a
//! path stands for all directories that had it. Each entry is restored by a transaction of its own,
//! directories before their content.

use super::STEP_ENTRIES;
use crate::format::inode::{BinRecord, Dentry, Inode, Stats, time};
use crate::format::keys;
use crate::ops::check_name;
use crate::ops::flags::may_add_name;
use crate::paths::{DirPaths, ShownPath};
use crate::shard::Shard;
use crate::tx::{Fail, Tx, TxResult};
use leeward_env::Ctx;
use leeward_fs::{Error, Kind, NodeId, Result, Usage, rights};
use rustc_hash::{FxHashMap, FxHashSet};

/// An entry of the bin.
#[derive(Clone, Debug)]
pub(crate) struct Binned {
    /// Nanoseconds since 1970, unique in the volume.
    pub stamp: u64,
    /// The inode.
    pub node: NodeId,
    /// The user who removed it, and its name.
    pub record: BinRecord,
    /// The directory that it was in, which may be in the bin itself.
    pub parent: u64,
    /// Type.
    pub kind: Kind,
    /// Owner.
    pub owner: u32,
    /// Allocated bytes.
    pub bytes: u64,
}

impl Binned {
    /// When it was removed, seconds since 1970.
    pub fn removed_secs(&self) -> i64 {
        (self.stamp / 1_000_000_000) as i64
    }
}

/// The entries of a volume's bin that somebody may see, and all its directories: they have names in
/// paths of others.
pub(crate) struct BinTree {
    volume: u32,
    /// The user who looks at it; 0: may see all of it.
    viewer: u32,
    /// In the order of removal.
    all: Vec<Binned>,
    by_inode: FxHashMap<u64, usize>,
    /// Entries by the directory that they were in.
    children: FxHashMap<u64, Vec<usize>>,
}

impl BinTree {
    fn new(volume: u32, viewer: u32) -> BinTree {
        let (by_inode, children) = Default::default();
        BinTree { volume, viewer, all: Vec::new(), by_inode, children }
    }

    fn add(&mut self, entry: Binned) {
        self.by_inode.insert(entry.node.inode(), self.all.len());
        self.children.entry(entry.parent).or_default().push(self.all.len());
        self.all.push(entry);
    }

    /// Whether its viewer may see an entry and restore it.
    pub(crate) fn shows(&self, entry: &Binned) -> bool {
        [0, entry.record.uid, entry.owner].contains(&self.viewer)
    }

    /// Entries that were in a directory, newest first.
    fn below(&self, dir: u64) -> impl Iterator<Item = &Binned> {
        self.children.get(&dir).into_iter().flatten().rev().map(|n| &self.all[*n])
    }

    fn get(&self, inode: u64) -> Option<&Binned> {
        self.by_inode.get(&inode).map(|n| &self.all[*n])
    }

    /// The path that an entry had. Directories that have names have those of now.
    pub(crate) fn path(&self, entry: &Binned, dirs: &mut DirPaths<'_>) -> ShownPath {
        let removed = |dir: NodeId| {
            let entry = self.get(dir.inode()).filter(|_| dir.volume() == self.volume)?;
            Some((NodeId::new(self.volume, entry.parent), entry.record.name.clone()))
        };
        dirs.of(NodeId::new(self.volume, entry.parent), removed).with(&entry.record.name)
    }
}

/// What to restore from recycle bins.
pub(crate) struct RestoreBin<'a> {
    /// The path to restore, in the cell.
    pub path: &'a str,
    /// Only entries removed up to this second since 1970.
    pub at: Option<i64>,
    /// A directory, and the name that it gets there; `None`: its old place.
    pub to: Option<(NodeId, &'a [u8])>,
}

/// What a path leads to.
struct Found {
    tree: BinTree,
    /// Directories that have the path, or had it (by inode).
    dirs: Vec<u64>,
    /// The entry that had the path and was removed last.
    removed: Option<Binned>,
}

/// A running restore.
struct RestoreRun<'a> {
    ctx: &'a Ctx,
    tree: &'a BinTree,
    at: i64,
    /// Whether it goes to another place.
    moves: bool,
    /// Where directories of the bin are now: themselves, or the one that has their name.
    places: FxHashMap<u64, NodeId>,
    /// Entries whose place is taken by such a directory.
    merged: Vec<Binned>,
    done: Usage,
    /// Number of entries that were not restored because their names are taken.
    left: u64,
}

impl RestoreRun<'_> {
    fn takes(&self, entry: &Binned) -> bool {
        entry.removed_secs() <= self.at && self.tree.shows(entry)
    }

    /// Whether it is somebody else's, and restored by who looks after the project.
    fn is_of_another(&self, entry: &Binned) -> bool {
        self.tree.viewer == 0 && ![0, entry.owner].contains(&self.ctx.uid)
    }

    /// Whether an entry comes back to `dir` with rights for its owner only: of a directory that was
    /// there all the time nobody knows who could get to it then. Below one that comes back with it,
    /// an entry is as closed as that.
    fn closes(&self, entry: &Binned, dir: NodeId) -> bool {
        let comes_along = !self.moves && self.places.get(&dir.inode()) == Some(&dir);
        self.is_of_another(entry) && !comes_along
    }
}

impl Tx<'_> {
    /// Gives an entry of the bin a name. [`Error::NotFound`] when it is not in the bin any more.
    /// `closed`: only its owner keeps rights.
    fn restore_binned(&mut self, entry: &Binned, to: NodeId, name: &[u8], closed: bool) -> TxResult<()> {
        let (key, node) = (keys::binned(entry.node, entry.stamp), entry.node);
        if self.get(&key)?.is_none() {
            return Err(Error::NotFound.into());
        }
        let parent = self.live_dir(to)?;
        check_name(name)?;
        if self.is_snapshot_dir(to, name) || self.dentry(to, name)?.is_some() {
            return Err(Error::Exists.into());
        }
        may_add_name(&parent)?;
        let epoch = self.epoch(node.volume())?;
        if self.st.files.get(&node).is_some_and(|p| p.epoch < epoch) {
            // content of a file without a name may be of an earlier epoch; with a name it would be
            // in that snapshot
            return Err(Fail::Stage(node));
        }
        self.remove(key);
        let mut inode = self.inode(node)?;
        let from = Self::counted_in(node, &inode);
        let is_dir = inode.is_dir();
        inode.binned = false;
        inode.nlink = if is_dir { 2 } else { 1 };
        inode.times[time::C] = self.now;
        if closed {
            self.close(node, &mut inode)?;
        }
        if inode.linked {
            self.add_link(node, to, 1)?;
        }
        if from != to && is_dir {
            self.fold(to.volume())?;
            self.move_dir(node, &mut inode, from, to)?;
        } else if from != to {
            self.move_usage(node, &mut inode, to)?;
        }
        self.put_inode(node, &inode)?;
        self.place(to, name, Dentry { node, kind: entry.kind })?;
        self.check_moved(to).map_err(|e| match e {
            // purging the bin to make room for what is restored from it would be circular
            Fail::Quota { .. } | Fail::Owner(_) => Error::Quota.into(),
            e => e,
        })
    }

    /// Leaves rights to the owner only.
    fn close(&mut self, node: NodeId, inode: &mut Inode) -> TxResult<()> {
        inode.mode &= 0o700;
        for acl in [rights::ACL, rights::DEFAULT_ACL] {
            if inode.xattrs > 0 && self.xattr(node, acl)?.is_some() {
                self.remove_xattr_record(node, acl)?;
                inode.xattrs -= 1;
            }
        }
        Ok(())
    }

    /// Removes a directory of the bin whose name another one has now: with all its content
    /// restored, it is not needed any more.
    fn drop_merged(&mut self, entry: &Binned) -> TxResult<()> {
        self.fold(entry.node.volume())?;
        if self.stats(entry.node)? == Stats::default() {
            self.purge(&keys::binned(entry.node, entry.stamp))?;
        }
        Ok(())
    }
}

impl Shard {
    /// Hands over all that is in the bin of a volume, in the order of removal.
    pub(crate) fn each_binned(&self, volume: u32, mut each: impl FnMut(Binned)) -> Result<()> {
        let (mut from, to) = keys::bin_range(volume, 0);
        loop {
            let (page, next) = self.scan(&from, &to, STEP_ENTRIES)?;
            let entries = self.transact(&Ctx::system(), |tx| {
                let entries = page.iter().filter_map(|(key, value)| tx.binned(key, value).transpose());
                entries.collect::<TxResult<Vec<Binned>>>()
            })?;
            entries.into_iter().for_each(&mut each);
            match next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    /// The bin of a volume for somebody who looks at it. `files`: also what is no directory.
    pub(crate) fn bin_tree(&self, ctx: &Ctx, volume: u32, files: bool) -> Result<BinTree> {
        let mut tree = BinTree::new(volume, self.bin_viewer(ctx, volume));
        self.each_binned(volume, |entry| {
            if entry.kind == Kind::Dir || files && tree.shows(&entry) {
                tree.add(entry);
            }
        })?;
        Ok(tree)
    }

    /// What has this path, or had it.
    fn find_binned(&self, ctx: &Ctx, path: &str, at: i64) -> Result<Found> {
        let names: Vec<&[u8]> = path.split('/').filter(|n| !n.is_empty()).map(str::as_bytes).collect();
        // the existing part of the path tells the volume; above it nothing can be in its bin
        let (mut dir, mut passed) = (NodeId::ROOT, 0);
        for (n, name) in names.iter().enumerate() {
            match self.beside(dir, |shard| shard.transact(&Ctx::system(), |tx| tx.dentry(dir, name)))? {
                Some(entry) if entry.kind == Kind::Dir => {
                    if entry.node.volume() != dir.volume() {
                        passed = n + 1;
                    }
                    dir = entry.node;
                }
                _ => break,
            }
        }
        let tree = self.bin_tree(ctx, dir.volume(), true)?;
        let mut found = Found { tree, dirs: vec![1], removed: None };
        for (n, name) in names[passed..].iter().enumerate() {
            let is_last = passed + n + 1 == names.len();
            let mut next = Vec::new();
            let mut removed: Vec<Binned> = Vec::new();
            for dir in &found.dirs {
                if found.tree.get(*dir).is_none() {
                    let dir = NodeId::new(found.tree.volume, *dir);
                    let entry = self.transact(&Ctx::system(), |tx| tx.dentry(dir, name))?;
                    let is_dir = |d: &Dentry| d.kind == Kind::Dir && d.node.volume() == dir.volume();
                    next.extend(entry.filter(is_dir).map(|d| d.node.inode()));
                }
                removed.extend(found.tree.below(*dir).filter(|e| *e.record.name == **name).cloned());
            }
            if is_last {
                removed.retain(|e| e.removed_secs() <= at && found.tree.shows(e));
                found.removed = removed.into_iter().max_by_key(|e| e.stamp);
            } else {
                next.extend(removed.iter().filter(|e| e.kind == Kind::Dir).map(|e| e.node.inode()));
            }
            found.dirs = next;
        }
        Ok(found)
    }

    /// Restores what had a path, with everything that was removed below it. Returns the usage of
    /// what was restored, and how many entries were left in the bin because their names are taken
    /// or their directories immutable. Durable with the next commit.
    pub(crate) fn restore_bin(&self, ctx: &Ctx, r: &RestoreBin<'_>) -> Result<(Usage, u64)> {
        let at = r.at.unwrap_or(i64::MAX);
        let found = self.find_binned(ctx, r.path, at)?;
        let tree = &found.tree;
        let mut run = RestoreRun {
            ctx,
            tree,
            at,
            moves: r.to.is_some(),
            places: FxHashMap::default(),
            merged: Vec::new(),
            done: Usage::default(),
            left: 0,
        };
        match (&found.removed, r.to) {
            (Some(entry), Some((dir, name))) => {
                if dir.volume() != tree.volume {
                    return Err(Error::CrossVolume);
                }
                self.may_restore_to(ctx, dir)?;
                // what others may not read stays where they do not
                if ctx.uid != 0 && ![entry.record.uid, entry.owner].contains(&ctx.uid) {
                    return Err(Error::NotPermitted);
                }
                self.restore_entry(&mut run, entry, dir, name)?;
                self.restore_below(&mut run, entry.node.inode(), entry.node)?;
            }
            (None, Some(_)) => return Err(Error::NotFound),
            (removed, None) => {
                if let Some(entry) = removed {
                    self.restore_in_place(&mut run, entry)?;
                }
                for dir in &found.dirs {
                    self.restore_below_live(&mut run, NodeId::new(tree.volume, *dir))?;
                }
                if removed.is_none() && run.done == Usage::default() && run.left == 0 {
                    return Err(Error::NotFound);
                }
            }
        }
        for entry in run.merged.iter().rev() {
            self.transact(&Ctx::system(), |tx| tx.drop_merged(entry))?;
        }
        Ok((run.done, run.left))
    }

    /// As whom the caller looks at a volume's bin: root and who looks after its project see all.
    fn bin_viewer(&self, ctx: &Ctx, volume: u32) -> u32 {
        if self.looks_after(ctx, volume) { 0 } else { ctx.uid }
    }

    /// Whether the caller looks after the project of a volume.
    pub(crate) fn looks_after(&self, ctx: &Ctx, volume: u32) -> bool {
        let st = self.lock();
        st.projects.is_owner(ctx, st.projects.of_volume(volume))
    }

    /// Users other than root restore to directories of their own, or to the old place.
    fn may_restore_to(&self, ctx: &Ctx, dir: NodeId) -> Result<()> {
        let owner = self.transact(&Ctx::system(), |tx| tx.inode(dir))?.uid;
        if ctx.uid == 0 || ctx.uid == owner { Ok(()) } else { Err(Error::NotPermitted) }
    }

    /// Restores what `dir` (a directory that has a name) and those below it lost.
    fn restore_below_live(&self, run: &mut RestoreRun<'_>, dir: NodeId) -> Result<()> {
        let tree = run.tree;
        let mut parents: Vec<u64> =
            tree.children.keys().copied().filter(|p| tree.get(*p).is_none()).collect();
        parents.sort_unstable();
        for parent in parents.into_iter().map(|p| NodeId::new(tree.volume, p)) {
            if self.transact(&Ctx::system(), |tx| tx.is_below(parent, dir))? {
                self.restore_below(run, parent.inode(), parent)?;
            }
        }
        Ok(())
    }

    /// Restores an entry to its old place, and everything below it.
    fn restore_in_place(&self, run: &mut RestoreRun<'_>, entry: &Binned) -> Result<()> {
        let dir = self.place_of(run, entry.parent)?;
        match self.restore_or_merge(run, entry, dir)? {
            Some(place) if entry.kind == Kind::Dir => self.restore_below(run, entry.node.inode(), place),
            Some(_) => Ok(()),
            None => Err(Error::Exists),
        }
    }

    /// The current directory for a directory of the bin: it is restored, if its name is not taken
    /// by another one.
    fn place_of(&self, run: &mut RestoreRun<'_>, dir: u64) -> Result<NodeId> {
        let mut missing = Vec::new();
        let mut at = dir;
        let mut place = loop {
            if let Some(known) = run.places.get(&at) {
                break *known;
            }
            match run.tree.get(at) {
                None => break NodeId::new(run.tree.volume, at),
                Some(entry) => {
                    missing.push(entry);
                    at = entry.parent;
                }
            }
        };
        for entry in missing.into_iter().rev() {
            if !run.tree.shows(entry) {
                return Err(Error::NotPermitted);
            }
            place = self.restore_or_merge(run, entry, place)?.ok_or(Error::Exists)?;
        }
        Ok(place)
    }

    /// Restores an entry under its own name in `dir`, or finds the directory that has its name.
    /// `None`: the name is taken.
    fn restore_or_merge(
        &self,
        run: &mut RestoreRun<'_>,
        entry: &Binned,
        dir: NodeId,
    ) -> Result<Option<NodeId>> {
        let name = &*entry.record.name;
        match self.restore_entry(run, entry, dir, name) {
            Err(Error::Exists) => {}
            other => return other.map(|()| Some(entry.node)),
        }
        let there = self.transact(&Ctx::system(), |tx| tx.dentry(dir, name))?;
        let merges = |d: &Dentry| d.kind == Kind::Dir && d.node.volume() == dir.volume();
        match there.filter(merges) {
            // another directory of the name may let others read what this one did not
            Some(_) if run.is_of_another(entry) => Ok(None),
            Some(there) if entry.kind == Kind::Dir => {
                run.places.insert(entry.node.inode(), there.node);
                run.merged.push(entry.clone());
                Ok(Some(there.node))
            }
            _ => Ok(None),
        }
    }

    fn restore_entry(
        &self,
        run: &mut RestoreRun<'_>,
        entry: &Binned,
        dir: NodeId,
        name: &[u8],
    ) -> Result<()> {
        let closed = run.closes(entry, dir);
        self.transact(run.ctx, |tx| tx.restore_binned(entry, dir, name, closed))?;
        self.invalidate_entry(dir, name);
        self.invalidate_inode(dir);
        self.invalidate_inode(entry.node);
        match entry.kind {
            Kind::Dir => {
                run.places.insert(entry.node.inode(), entry.node);
                run.done.dirs += 1;
            }
            _ => {
                run.done.files += 1;
                run.done.bytes += entry.bytes;
            }
        }
        Ok(())
    }

    /// Restores the entries of a directory of the bin (or of an existing one): of each name the one
    /// removed last.
    fn restore_below(&self, run: &mut RestoreRun<'_>, dir: u64, place: NodeId) -> Result<()> {
        let tree = run.tree;
        let mut waiting = vec![(dir, place)];
        while let Some((dir, place)) = waiting.pop() {
            let mut seen: FxHashSet<&[u8]> = FxHashSet::default();
            for entry in tree.below(dir) {
                if run.places.contains_key(&entry.node.inode()) {
                    // restored on the way here
                    seen.insert(&entry.record.name);
                    continue;
                }
                if !run.takes(entry) || !seen.insert(&entry.record.name) {
                    continue;
                }
                match self.restore_or_merge(run, entry, place) {
                    Ok(Some(at)) if entry.kind == Kind::Dir => waiting.push((entry.node.inode(), at)),
                    Ok(Some(_)) => {}
                    // the name is taken, or the directory immutable
                    Ok(None) | Err(Error::NotPermitted) => run.left += 1,
                    // purged meanwhile
                    Err(Error::NotFound) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(())
    }
}

impl Tx<'_> {
    /// An entry of the bin in its current state; `None` when its inode is gone.
    fn binned(&self, key: &[u8], value: &[u8]) -> TxResult<Option<Binned>> {
        let Some((stamp, node)) = keys::parse_binned(key) else { return Ok(None) };
        let inode = match self.inode(node) {
            Err(Fail::Error(Error::Stale)) => return Ok(None),
            other => other?,
        };
        let bytes = self.size_of(node, &inode).1;
        let record = BinRecord::decode(value)?;
        let (parent, kind, owner) = (inode.parent, inode.kind, inode.uid);
        Ok(Some(Binned { stamp, node, record, parent, kind, owner, bytes }))
    }
}
