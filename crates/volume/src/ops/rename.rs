//! Rename: replacing, not replacing, exchanging.

use super::check_name;
use super::flags::may_add_name;
use crate::format::inode::{Dentry, Inode, Stats, time};
use crate::shard::Shard;
use crate::state::Effect;
use crate::tx::{Fail, Tx, TxResult};
use leeward_env::Ctx;
use leeward_fs::{Error, Kind, NodeId, RenameMode, Reply};
use rustc_hash::FxHashMap;

/// Arguments of [`Op::Rename`](leeward_fs::Op::Rename).
#[derive(Clone, Copy)]
pub struct Rename<'a> {
    /// The old directory.
    pub from_dir: NodeId,
    /// The old name.
    pub from_name: &'a [u8],
    /// The new directory.
    pub to_dir: NodeId,
    /// The new name.
    pub to_name: &'a [u8],
    /// What to do about an existing target.
    pub mode: RenameMode,
}

impl Tx<'_> {
    /// Finds both ends and checks everything that can be refused. `None`: both names are the same
    /// inode, nothing to do.
    fn rename_ends(&mut self, r: &Rename<'_>) -> TxResult<Option<(Dentry, Option<Dentry>)>> {
        if r.from_dir.volume() != r.to_dir.volume() {
            return Err(Error::CrossVolume.into());
        }
        let from = self.live_dir(r.from_dir)?;
        let to = if r.to_dir == r.from_dir { None } else { Some(self.live_dir(r.to_dir)?) };
        check_name(r.from_name).map_err(not_a_place)?;
        check_name(r.to_name).map_err(not_a_place)?;
        if self.is_snapshot_dir(r.from_dir, r.from_name) || self.is_snapshot_dir(r.to_dir, r.to_name) {
            return Err(Error::NotPermitted.into());
        }
        let source = self.dentry(r.from_dir, r.from_name)?.ok_or(Error::NotFound)?;
        let target = self.dentry(r.to_dir, r.to_name)?;
        let attached = |d: &Dentry| d.node.volume() != r.from_dir.volume();
        if attached(&source) || target.as_ref().is_some_and(attached) {
            return Err(Error::Busy.into());
        }
        if r.mode == RenameMode::NoReplace && target.is_some() {
            return Err(Error::Exists.into());
        }
        if r.mode == RenameMode::Exchange && target.is_none() {
            return Err(Error::NotFound.into());
        }
        if target.is_some_and(|t| t.node == source.node) {
            return Ok(None);
        }
        if source.kind == Kind::Dir && self.is_below(r.to_dir, source.node)? {
            return Err(Error::Invalid.into());
        }
        self.may_remove_name(&from, source.node)?;
        let to = to.as_ref().unwrap_or(&from);
        match target {
            None => may_add_name(to)?,
            Some(t) => {
                self.may_remove_name(to, t.node)?;
                self.check_target(r, source, t)?;
            }
        }
        Ok(Some((source, target)))
    }

    fn check_target(&self, r: &Rename<'_>, source: Dentry, target: Dentry) -> TxResult<()> {
        let (source_dir, target_dir) = (source.kind == Kind::Dir, target.kind == Kind::Dir);
        if r.mode == RenameMode::Exchange {
            if target_dir && self.is_below(r.from_dir, target.node)? {
                return Err(Error::Invalid.into());
            }
            return Ok(());
        }
        match (source_dir, target_dir) {
            (true, false) => Err(Error::NotDir.into()),
            (false, true) => Err(Error::IsDir.into()),
            (true, true) if self.is_needed(target.node)? => Err(Error::NotEmpty.into()),
            _ => Ok(()),
        }
    }

    /// Whether content of a file must enter the records before the file gets a name. `staged`:
    /// files whose content did since the operation began: content that others write to them
    /// meanwhile is not waited for.
    pub(crate) fn must_be_staged(&self, node: NodeId, staged: &[NodeId]) -> bool {
        self.st.files.contains_key(&node) && !staged.contains(&node)
    }

    /// [`Op::Rename`](leeward_fs::Op::Rename); `Err`: this file is to replace another one, and its
    /// content must be in the records first.
    fn rename(&mut self, r: &Rename<'_>, staged: &[NodeId]) -> TxResult<Result<Reply, NodeId>> {
        let Some((source, target)) = self.rename_ends(r)? else { return Ok(Ok(Reply::Done)) };
        if target.is_some() && self.must_be_staged(source.node, staged) {
            return Ok(Err(source.node));
        }
        let exchange = r.mode == RenameMode::Exchange;
        let moves_dir = source.kind == Kind::Dir || target.is_some_and(|t| t.kind == Kind::Dir);
        if r.from_dir != r.to_dir && moves_dir && self.counts_exactly(r.from_dir.volume()) {
            // a directory's usage in other quotas is then exactly its statistics and pending
            // content
            self.fold(r.from_dir.volume())?;
        }
        match target {
            Some(t) if !exchange => {
                self.remove_entry(r.to_dir, r.to_name, t.kind)?;
                if t.kind == Kind::Dir {
                    self.drop_dir(r.to_dir, r.to_name, t.node)?;
                } else {
                    self.drop_link(r.to_dir, t.node, Some(r.to_name))?;
                }
            }
            _ => {}
        }
        if exchange {
            let t = target.expect("checked");
            self.remove_entry(r.to_dir, r.to_name, t.kind)?;
            self.remove_entry(r.from_dir, r.from_name, source.kind)?;
            self.place(r.from_dir, r.from_name, t)?;
            self.reparent(t, r.to_dir, r.from_dir, r.from_name)?;
        } else {
            self.remove_entry(r.from_dir, r.from_name, source.kind)?;
        }
        self.place(r.to_dir, r.to_name, source)?;
        self.reparent(source, r.from_dir, r.to_dir, r.to_name)?;
        if r.from_dir != r.to_dir {
            self.check_moved(r.to_dir)?;
            if exchange {
                self.check_moved(r.from_dir)?;
            }
        }
        self.comes_to(source.node, 0);
        Ok(Ok(Reply::Done))
    }

    pub(crate) fn place(&mut self, dir: NodeId, name: &[u8], entry: Dentry) -> TxResult<()> {
        let mut inode = self.inode(dir)?;
        inode.touch(self.now);
        inode.add_entries(1);
        inode.nlink += u32::from(entry.kind == Kind::Dir);
        self.put_inode(dir, &inode)?;
        self.put_dentry(dir, name, entry.node, entry.kind)
    }

    pub(crate) fn reparent(&mut self, entry: Dentry, from: NodeId, to: NodeId, name: &[u8]) -> TxResult<()> {
        let mut inode = self.inode(entry.node)?;
        inode.times[time::C] = self.now;
        if entry.kind != Kind::Dir {
            self.relink(entry.node, &mut inode, from, to)?;
        } else if from != to {
            self.move_dir(entry.node, &mut inode, from, to)?;
        }
        inode.name = (inode.parent == to.inode()).then(|| name.into());
        self.put_inode(entry.node, &inode)
    }

    /// A directory counts in another one, with everything below it. Does not write the inode
    /// record. Where there are quotas, statistics must have been folded.
    pub(crate) fn move_dir(
        &mut self,
        dir: NodeId,
        inode: &mut Inode,
        from: NodeId,
        to: NodeId,
    ) -> TxResult<()> {
        let below = self.stats(dir)?;
        let records = below.plus(Stats { dirs: 1, ..Stats::default() });
        if self.counts_exactly(dir.volume()) {
            let view = records.plus(Stats { bytes: self.pending_below(dir)?, ..Stats::default() });
            self.charge_moved(from, view.negated())?;
            self.charge_moved(to, view)?;
        }
        self.add_stats(from, records.negated());
        self.add_stats(to, records);
        self.then(Effect::DirMoved(dir.volume()));
        inode.parent = to.inode();
        Ok(())
    }

    /// How many bytes more than the records say the files below `dir` have allocated.
    pub(crate) fn pending_below(&self, dir: NodeId) -> TxResult<i64> {
        let (mut sum, mut missing) = (0, Vec::new());
        // what is known of directories: many files are in one, and directories have one above
        let mut below = FxHashMap::from_iter([(dir, true)]);
        for (node, pending) in self.st.files.iter().filter(|(node, _)| node.volume() == dir.volume()) {
            let inode = match self.unseen(|tx| tx.inode(*node)) {
                // this operation has removed it
                Err(Fail::Error(Error::Stale)) => continue,
                Err(Fail::Miss(key)) => {
                    missing.push(key);
                    continue;
                }
                other => other?,
            };
            if inode.is_counted() && self.is_among(Self::counted_in(*node, &inode), &mut below)? {
                sum += pending.allocated as i64 - inode.allocated as i64;
            }
        }
        if missing.is_empty() { Ok(sum) } else { Err(Fail::MissAll(missing)) }
    }

    /// A move into another quota must fit there.
    pub(crate) fn check_moved(&self, to: NodeId) -> TxResult<()> {
        if self.ctx.foretold.is_some() {
            return Ok(()); // there was room when it was told
        }
        for of in self.quotas_above(to)? {
            let by = self.charged(of);
            if by.bytes > 0 || by.inodes() > 0 {
                self.check_quota(of, by)?;
                self.leave_room_for_clients(of, by)?;
            }
        }
        Ok(())
    }
}

impl Shard {
    /// [`Op::Rename`](leeward_fs::Op::Rename). Content of a file that replaces another one is
    /// committed with the new name, so that a crash leaves the old file whole or the new file
    /// whole: the content that it has when the operation begins.
    pub(crate) fn rename(&self, ctx: &Ctx, r: &Rename<'_>) -> leeward_fs::Result<Reply> {
        let mut staged = Vec::new();
        loop {
            match self.transact(ctx, |tx| tx.rename(r, &staged)) {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(node)) => {
                    self.stage(ctx, node)?;
                    staged.push(node);
                }
                Err(Error::Quota) if self.purge_what_moves(ctx, r)? => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Purges the oldest entry in the recycle bin below the directories that a rename moves;
    /// `false`: there is none.
    fn purge_what_moves(&self, ctx: &Ctx, r: &Rename<'_>) -> leeward_fs::Result<bool> {
        for (dir, name) in [(r.from_dir, r.from_name), (r.to_dir, r.to_name)] {
            let moved = self.transact(ctx, |tx| tx.dentry(dir, name))?;
            let Some(moved) = moved.filter(|d| d.kind == Kind::Dir) else { continue };
            if !self.lock().bins.is_searched(moved.node) {
                Self::may_wait(ctx)?;
                if self.purge_next_below(moved.node)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// The error for `.` and `..`, which cannot be renamed.
fn not_a_place(e: Error) -> Error {
    if e == Error::Exists { Error::Busy } else { e }
}
