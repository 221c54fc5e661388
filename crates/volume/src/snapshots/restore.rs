//! Restores a file or a tree from a snapshot. Its records are made anew, its data is shared.
//!
//! The tree grows below a *staging* directory that has no name: for others, and after a crash, it
//! is an orphan like an unlinked file, which reclaim frees with everything below it. When it is
//! whole, one transaction gives it its name. With `in_place` the same transaction removes the name
//! of what was there, which becomes an orphan in turn.

use crate::admin::Progress;
use crate::cell::root_dir;
use crate::format::extents::{Extents, Source};
use crate::format::inode::{Body, Dentry, Inode, Stats, encode_xattr, time, xattr_value};
use crate::format::keys;
use crate::format::plain_orphan;
use crate::ops::check_name;
use crate::ops::flags::may_add_name;
use crate::shard::Shard;
use crate::state::Effect;
use crate::state::pending::Pending;
use crate::tx::{Tx, TxResult};
use leeward_env::{Ctx, Work};
use leeward_fs::{Error, Kind, NodeId, Reply, Result, Usage};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// Entries that one step restores.
const STEP_ENTRIES: usize = 64;
/// Windows of a large file that one step restores.
const STEP_WINDOWS: usize = 64;
/// Entries of a directory that are exchanged at once.
const SWAP_ENTRIES: usize = 4096;
/// Name of what is restored in its staging directory.
const STAGED: &[u8] = b"restored";

/// The source and the target of a restore.
pub(crate) struct Restore<'a> {
    /// The inode in the view of the snapshot.
    pub source: NodeId,
    /// The live directory of the target.
    pub dir: NodeId,
    /// The name of the target.
    pub name: &'a [u8],
    /// Whether it replaces what has that name.
    pub in_place: bool,
    /// Whether a replaced file may go to the recycle bin. Directories never do.
    pub keeps: bool,
}

/// A source inode and its new inode.
#[derive(Clone, Copy)]
struct Pair {
    from: NodeId,
    to: NodeId,
}

/// A tree that is being restored.
#[derive(Default)]
struct Tree {
    /// Directories with entries still to be restored, and after which name.
    dirs: Vec<(Pair, Box<[u8]>)>,
    /// Files with windows still to be restored, and from which on.
    files: Vec<(Pair, u32)>,
    /// New inodes of those with several names.
    linked: FxHashMap<u64, NodeId>,
    done: Usage,
}

/// An entry of a directory.
type Named = (Box<[u8]>, Dentry);

impl Tx<'_> {
    /// A new inode like `from`, in `parent` and with one name. Data in windows of their own is left
    /// for later steps (`true`).
    fn restore_inode(&mut self, from: NodeId, parent: NodeId, nlink: u32) -> TxResult<(NodeId, Inode, bool)> {
        // while this transaction runs nobody frees what the snapshot holds
        self.st.snapshot_of(from.volume())?;
        let was = self.inode(from)?;
        let (node, birth) = self.allocate_inode(parent.volume())?;
        let mut inode = Inode {
            nlink,
            parent: parent.inode(),
            birth,
            linked: false,
            binned: false,
            allocated: 0,
            xattrs: 0,
            body: match was.body.clone() {
                Body::Dir { .. } => Body::Dir { entries: 0 },
                other => other,
            },
            ..was.clone()
        };
        inode.times[time::C] = self.now;
        let mut later = false;
        if let Body::File { inline, spilled, windows } = &mut inode.body {
            later = *spilled || *windows;
            let shared = self.share_extents(node, 0, inline)?;
            inode.allocated = shared.allocated();
            *inline = shared;
        }
        if was.xattrs > 0 {
            let (first, last) = keys::xattr_range(from);
            for (key, value) in self.scan(&first, &last, was.xattrs as usize + 1, false)? {
                let Some(parsed) = keys::parse(&key) else { continue };
                let value = xattr_value(parsed.tag, &value);
                self.put_new(keys::xattr(node, parsed.rest), encode_xattr(birth, value));
                inode.xattrs += 1;
            }
        }
        self.put_new_inode(node, &inode);
        Ok((node, inode, later))
    }

    /// The same extents for this window: their data is counted once more, and has back references.
    fn share_extents(&mut self, node: NodeId, window: u32, list: &Extents) -> TxResult<Extents> {
        let birth = self.epoch(node.volume())?;
        let mut shared = Extents::default();
        for e in list.iter() {
            if let Source::Data(addr) = e.source {
                self.put(keys::backref(addr.segment, addr.offset, node, window), [1u8][..].into());
                self.add_reference(addr.segment, i64::from(e.len));
            }
            shared.replace(e.offset..e.offset + e.len, Some(e.source), birth, |_| {});
        }
        Ok(shared)
    }

    /// One step of a file's windows; returns the window to continue at.
    fn restore_windows(&mut self, file: Pair, from: u32) -> TxResult<Option<u32>> {
        self.st.snapshot_of(file.from.volume())?;
        let was = self.inode(file.from)?;
        let windows = self.windows_in(file.from, &was, from..u32::MAX, STEP_WINDOWS + 1, false)?;
        let more = windows.get(STEP_WINDOWS).copied();
        let mut inode = self.inode(file.to)?;
        let mut grown = 0;
        for window in windows.into_iter().take(STEP_WINDOWS) {
            let inline = matches!(&was.body, Body::File { spilled: false, .. }) && window == 0;
            if inline {
                continue;
            }
            let list = self.window(file.from, &was, window)?;
            let shared = self.share_extents(file.to, window, &list)?;
            grown += shared.allocated();
            self.put_extents(file.to, window, &shared)?;
        }
        inode.allocated += grown;
        inode.content_lsn = self.lsn();
        self.put_inode(file.to, &inode)?;
        let dir = Self::counted_in(file.to, &inode);
        self.add_stats(dir, Stats { bytes: grown as i64, ..Stats::default() });
        Ok(more)
    }

    /// Makes the directory that a tree grows in.
    fn make_staging(&mut self, volume: u32) -> TxResult<NodeId> {
        let (node, birth) = self.allocate_inode(volume)?;
        let inode = Inode { nlink: 0, birth, ..root_dir(self.now, 0, 0) };
        self.put_new_inode(node, &inode);
        self.put(keys::orphan(node), plain_orphan());
        Ok(node)
    }

    /// Restores entries into a directory that nobody sees yet. `linked`: restored inodes that may
    /// have other names.
    fn restore_entries(
        &mut self,
        to: NodeId,
        page: &[Named],
        linked: &FxHashMap<u64, NodeId>,
    ) -> TxResult<Vec<Restored>> {
        let mut dir = self.inode(to)?;
        let mut now_linked: FxHashMap<u64, NodeId> = FxHashMap::default();
        let mut all = Vec::with_capacity(page.len());
        for (name, from) in page {
            let number = from.node.inode();
            dir.add_entries(1);
            if let Some(known) = linked.get(&number).or_else(|| now_linked.get(&number)).copied() {
                let mut inode = self.inode(known)?;
                self.add_name(known, &mut inode, to)?;
                self.put_inode(known, &inode)?;
                self.put_dentry(to, name, known, from.kind)?;
                continue;
            }
            let is_dir = from.kind == Kind::Dir;
            let may_be_linked = !is_dir && self.inode(from.node)?.nlink > 1;
            let (node, inode, later) = self.restore_inode(from.node, to, if is_dir { 2 } else { 1 })?;
            self.put_dentry(to, name, node, from.kind)?;
            dir.nlink += u32::from(is_dir && dir.nlink > 0);
            self.add_stats(
                to,
                match is_dir {
                    true => Stats { dirs: 1, ..Stats::default() },
                    false => Stats { files: 1, bytes: inode.allocated as i64, dirs: 0 },
                },
            );
            if may_be_linked {
                now_linked.insert(number, node);
            }
            let bytes = self.inode(from.node)?.allocated;
            all.push(Restored { from: from.node, to: node, is_dir, later, linked: may_be_linked, bytes });
        }
        self.put_inode(to, &dir)?;
        Ok(all)
    }

    /// Removes the name of what is replaced, which becomes an orphan with everything below it.
    pub(crate) fn orphan_replaced(
        &mut self,
        dir: NodeId,
        name: &[u8],
        old: Dentry,
        keeps: bool,
    ) -> TxResult<()> {
        if old.node.volume() != dir.volume() {
            return Err(Error::Busy.into());
        }
        if old.kind != Kind::Dir {
            self.remove_entry(dir, name, Kind::File)?;
            self.drop_link(dir, old.node, keeps.then_some(name))?;
            return Ok(());
        }
        self.check_replaceable(old.node)?;
        if !self.st.bins.is_searched(dir) {
            self.need_no_bin_below(old.node)?;
        }
        self.fold(dir.volume())?;
        let below = self.stats(old.node)?.plus(Stats { dirs: 1, ..Stats::default() });
        let pending = Stats { bytes: self.pending_below(old.node)?, ..Stats::default() };
        self.remove_entry(dir, name, Kind::Dir)?;
        self.charge_moved(dir, below.plus(pending).negated())?;
        self.add_stats(dir, below.negated());
        self.make_orphan(old.node)
    }

    /// A directory that has lost its name goes to reclaim, with everything below it.
    pub(crate) fn make_orphan(&mut self, dir: NodeId) -> TxResult<()> {
        let mut inode = self.inode(dir)?;
        (inode.nlink, inode.parent) = (0, 0);
        self.put_inode(dir, &inode)?;
        self.put(keys::orphan(dir), plain_orphan());
        self.then(Effect::DirMoved(dir.volume()));
        if self.st.quotas.get(dir).is_some() {
            self.remove(keys::quota(dir));
            self.then(Effect::DropQuota(dir));
        }
        self.drop_schedule(dir);
        self.then(Effect::Reclaim(dir));
        Ok(())
    }

    /// Refuses to replace a tree with snapshots taken below it, schedules, or attached volumes.
    fn check_replaceable(&self, top: NodeId) -> TxResult<()> {
        let taken_of = self.st.snapshots.dirs_in(top.volume());
        let attached =
            self.st.volumes.values().map(|v| v.attached_dir).filter(|d| d.volume() == top.volume());
        let beside = self.st.attached.values().map(|at| at.dir).filter(|dir| dir.volume() == top.volume());
        let attached = attached.chain(beside);
        let scheduled = self.st.schedules.dirs_in(top.volume());
        let places = self.st.projects.places_in(top.volume());
        let mut below = FxHashMap::from_iter([(top, true)]);
        for dir in taken_of.chain(attached).chain(scheduled).chain(places) {
            if self.is_among(dir, &mut below)? {
                return Err(Error::Busy.into());
            }
        }
        Ok(())
    }

    /// A directory goes from a copy with all below it, as it has gone where the copy comes from:
    /// its schedules and snapshots go along. Snapshots of the volume's root show it as it was.
    ///
    /// # Errors
    /// `Busy`: a snapshot below is locked.
    pub(crate) fn drop_kept_below(&mut self, top: NodeId, clock: i64) -> TxResult<()> {
        let volume = top.volume();
        let mut taken: Vec<NodeId> = self.st.snapshots.dirs_in(volume).collect();
        taken.sort_unstable();
        let mut below = FxHashMap::from_iter([(top, true)]);
        for dir in taken {
            if !self.is_among(dir, &mut below)? {
                continue;
            }
            let of_dir = self.st.snapshots.of_dir(volume, dir.inode()).into_iter().flatten();
            let epochs: Vec<u32> = of_dir.map(|(_, epoch)| *epoch).collect();
            for epoch in epochs {
                let record = self.st.snapshots.get(volume, epoch);
                if record.is_some_and(|s| s.locked_until_secs > clock) {
                    return Err(Error::Busy.into());
                }
                self.then(Effect::RemoveSnapshot { volume, epoch });
            }
        }
        let scheduled: Vec<NodeId> = self.st.schedules.dirs_in(volume).collect();
        for dir in scheduled {
            if self.is_among(dir, &mut below)? {
                self.drop_schedule(dir);
            }
        }
        Ok(())
    }

    /// Moves the entry `staged` of the staging directory to its target.
    fn place_restored(&mut self, staging: NodeId, staged: &[u8], r: &Restore<'_>) -> TxResult<()> {
        let parent = self.live_dir(r.dir)?;
        self.need_changeable(r.dir.volume())?;
        check_name(r.name)?;
        if self.is_snapshot_dir(r.dir, r.name) {
            return Err(Error::Exists.into());
        }
        if !r.in_place {
            may_add_name(&parent)?;
        }
        if let Some(old) = self.dentry(r.dir, r.name)? {
            if !r.in_place {
                return Err(Error::Exists.into());
            }
            self.orphan_replaced(r.dir, r.name, old, r.keeps)?;
        }
        self.fold(r.dir.volume())?;
        let entry = self.dentry(staging, staged)?.ok_or(Error::Stale)?;
        // the staging directory counts no subdirectories
        self.remove_entry(staging, staged, Kind::File)?;
        self.place(r.dir, r.name, entry)?;
        self.reparent(entry, staging, r.dir, r.name)
    }

    /// Exchanges the entries of `dir` with these names for those of the staging directory; entries
    /// that are missing there are removed.
    fn swap_entries(&mut self, staging: NodeId, dir: NodeId, names: &[Box<[u8]>]) -> TxResult<()> {
        self.need_changeable(dir.volume())?;
        self.need_no_bin_below(dir)?;
        for name in names {
            if self.dentry(staging, name)?.is_some() {
                self.place_restored(
                    staging,
                    name,
                    &Restore { source: staging, dir, name, in_place: true, keeps: false },
                )?;
            } else if let Some(old) = self.dentry(dir, name)?.filter(|d| d.node.volume() == dir.volume()) {
                self.orphan_replaced(dir, name, old, false)?;
            }
        }
        self.check_moved(dir)
    }
}

/// The result for one entry.
struct Restored {
    from: NodeId,
    to: NodeId,
    is_dir: bool,
    /// Whether windows are left for later.
    later: bool,
    /// Whether it may have other names.
    linked: bool,
    bytes: u64,
}

impl Shard {
    /// Restores; durable with the next commit.
    pub(crate) fn restore(
        &self,
        r: &Restore<'_>,
        all_of_dir: bool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Usage> {
        let (volume, epoch) = self.lock().snapshot_of(r.source.volume())?;
        let ctx = self.work_ctx(Work::Restore, Some(volume));
        if volume != r.dir.volume() {
            return Err(Error::CrossVolume);
        }
        self.settle_epoch(&ctx, volume, epoch)?;
        let staging = self.transact(&ctx, |tx| tx.make_staging(volume))?;
        let done = self.grow(&ctx, r.source, staging, all_of_dir, progress).and_then(|done| {
            match all_of_dir {
                true => self.swap(&ctx, staging, r.dir)?,
                false => self.transact(&ctx, |tx| {
                    tx.place_restored(staging, STAGED, r)?;
                    tx.check_moved(r.dir)
                })?,
            }
            Ok(done)
        });
        // empty, or the rest after a failure
        self.transact(&ctx, |tx| tx.make_orphan(staging))?;
        self.maintenance.wake();
        done
    }

    /// Moves content that was written by the end of this epoch into the records.
    pub(crate) fn settle_epoch(&self, ctx: &Ctx, volume: u32, epoch: u32) -> Result<()> {
        let of_epoch = |node: &NodeId, p: &Pending| node.volume() == volume && p.epoch <= epoch;
        let pending: Vec<NodeId> =
            self.lock().files.iter().filter(|(n, p)| of_epoch(n, p)).map(|(n, _)| *n).collect();
        for node in pending {
            while self.lock().files.get(&node).is_some_and(|p| p.epoch <= epoch) {
                self.stage(ctx, node)?;
            }
        }
        Ok(())
    }

    /// Builds the tree in the staging directory: as its one entry, or the source's entries as its
    /// own.
    fn grow(
        &self,
        ctx: &Ctx,
        source: NodeId,
        staging: NodeId,
        all_of_dir: bool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Usage> {
        let mut tree = Tree::default();
        if all_of_dir {
            tree.dirs.push((Pair { from: source, to: staging }, Box::default()));
        } else {
            let kind = self.transact(ctx, |tx| tx.inode(source))?.kind;
            self.restore_page(ctx, staging, &[(STAGED.into(), Dentry { node: source, kind })], &mut tree)?;
        }
        while let Some((dir, after)) = tree.dirs.pop() {
            let (page, more) = self.page_of(dir.from, &after)?;
            if let (true, Some((last, _))) = (more, page.last()) {
                tree.dirs.push((dir, last.clone()));
            }
            self.restore_page(ctx, dir.to, &page, &mut tree)?;
            while let Some((file, window)) = tree.files.pop() {
                self.restore_large(ctx, file, window, &mut tree)?;
            }
            progress(Progress { phase: "files".into(), done: tree.done.files + tree.done.dirs, total: 0 });
        }
        while let Some((file, window)) = tree.files.pop() {
            self.restore_large(ctx, file, window, &mut tree)?;
        }
        Ok(tree.done)
    }

    fn restore_large(&self, ctx: &Ctx, file: Pair, window: u32, tree: &mut Tree) -> Result<()> {
        let restore = || self.transact(ctx, |tx| tx.restore_windows(file, window));
        let next = self.in_turn(ctx, file.to.volume(), restore)?;
        tree.files.extend(next.map(|next| (file, next)));
        Ok(())
    }

    /// Some entries of a directory in a snapshot, after a name, and whether there are more.
    fn page_of(&self, dir: NodeId, after: &[u8]) -> Result<(Vec<Named>, bool)> {
        let most = self.step_size(STEP_ENTRIES);
        let Reply::Entries(entries) = self.list(&Ctx::system(), dir, after, most, false)? else {
            return Ok((Vec::new(), false));
        };
        let more = entries.len() == most;
        let page = entries.into_iter().map(|e| (e.name, Dentry { node: e.node, kind: e.kind }));
        Ok((page.collect(), more))
    }

    fn restore_page(&self, ctx: &Ctx, to: NodeId, page: &[Named], tree: &mut Tree) -> Result<()> {
        // what the transaction reads: each miss would restart it
        let seq = self.lock().publish_seq;
        let read = |(name, from): &Named| [keys::inode(from.node), keys::dentry(to, name)];
        self.load_all(page.iter().flat_map(read).collect(), seq)?;
        let restore = || self.transact(ctx, |tx| tx.restore_entries(to, page, &tree.linked));
        let done = self.in_turn(ctx, to.volume(), restore)?;
        for entry in done {
            let pair = Pair { from: entry.from, to: entry.to };
            if entry.is_dir {
                tree.dirs.push((pair, Box::default()));
                tree.done.dirs += 1;
            } else {
                tree.done.files += 1;
                tree.done.bytes += entry.bytes;
            }
            if entry.later {
                tree.files.push((pair, 0));
            }
            if entry.linked {
                tree.linked.insert(entry.from.inode(), entry.to);
            }
        }
        Ok(())
    }

    /// Replaces the entries of `dir` by those of the staging directory.
    fn swap(&self, ctx: &Ctx, staging: NodeId, dir: NodeId) -> Result<()> {
        let mut names: BTreeSet<Box<[u8]>> = BTreeSet::new();
        for from in [staging, dir] {
            let mut after: Box<[u8]> = Box::default();
            loop {
                let (page, more) = self.page_of(from, &after)?;
                names.extend(page.iter().map(|(name, _)| name.clone()));
                match page.last() {
                    Some((last, _)) if more => after = last.clone(),
                    _ => break,
                }
            }
        }
        let names: Vec<Box<[u8]>> = names.into_iter().collect();
        for step in names.chunks(SWAP_ENTRIES) {
            let swap = || self.transact(ctx, |tx| tx.swap_entries(staging, dir, step));
            self.in_turn(ctx, dir.volume(), swap)?;
            step.iter().for_each(|name| self.invalidate_entry(dir, name));
        }
        Ok(())
    }
}
