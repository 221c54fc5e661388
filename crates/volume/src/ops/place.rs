//! Gives a file that was written without a name its name, whole: what `rename` does for programs
//! that must write under another name first.

use super::check_name;
use super::flags::{may_add_name, may_change_inode};
use crate::format::inode::{Dentry, Inode, time};
use crate::format::keys;
use crate::shard::Shard;
use crate::state::Effect;
use crate::tx::{Tx, TxResult};
use leeward_env::Ctx;
use leeward_fs::{Error, Kind, NodeId, Precondition, Reply};

/// Arguments of [`Op::Place`](leeward_fs::Op::Place).
pub struct Placing<'a> {
    /// The file.
    pub node: NodeId,
    /// The directory.
    pub dir: NodeId,
    /// The name.
    pub name: &'a [u8],
    /// The inode that it may replace.
    pub over: Precondition,
}

impl Tx<'_> {
    /// [`Op::Place`](leeward_fs::Op::Place); `Err`: the content of this file must be in the records
    /// first.
    fn place_file(&mut self, p: &Placing<'_>, staged: &[NodeId]) -> TxResult<Result<Reply, NodeId>> {
        let parent = self.live_dir(p.dir)?;
        check_name(p.name)?;
        if p.node.volume() != p.dir.volume() {
            return Err(Error::CrossVolume.into());
        }
        if self.is_snapshot_dir(p.dir, p.name) {
            return Err(Error::Exists.into());
        }
        let mut inode = self.file(p.node)?;
        if inode.is_counted() {
            return Err(Error::Invalid.into());
        }
        let old = self.dentry(p.dir, p.name)?;
        self.check_over(old, p.over)?;
        may_change_inode(&inode)?;
        match old {
            None => may_add_name(&parent)?,
            Some(old) => self.may_remove_name(&parent, old.node)?,
        }
        if self.must_be_staged(p.node, staged) {
            return Ok(Err(p.node));
        }
        if let Some(old) = old {
            self.remove_entry(p.dir, p.name, old.kind)?;
            self.drop_link(p.dir, old.node, Some(p.name))?;
        }
        self.count_first_name(p, &mut inode)?;
        self.place(p.dir, p.name, Dentry { node: p.node, kind: Kind::File })?;
        self.comes_to(p.node, 0);
        Ok(Ok(Reply::Attr(self.attr(p.node, &inode))))
    }

    /// Checks what has a name against the operation's precondition.
    pub(crate) fn check_over(&self, old: Option<Dentry>, over: Precondition) -> TxResult<()> {
        match (old, over) {
            (Some(old), _) if old.kind == Kind::Dir => Err(Error::IsDir.into()),
            (_, Precondition::Any) | (None, Precondition::Nothing) => Ok(()),
            (Some(_), Precondition::Nothing) => Err(Error::Exists.into()),
            (Some(old), Precondition::This(node, changed)) if old.node == node => {
                let same = self.inode(node)?.times[time::C] == changed;
                if same { Ok(()) } else { Err(Error::Changed.into()) }
            }
            (_, Precondition::This(..)) => Err(Error::Changed.into()),
        }
    }

    /// Counts its usage in the directory from now on.
    fn count_first_name(&mut self, p: &Placing<'_>, inode: &mut Inode) -> TxResult<()> {
        inode.nlink = 1;
        if inode.linked {
            // it had several names once, and its names are counted by directory since
            self.add_link(p.node, p.dir, 1)?;
        }
        inode.parent = p.dir.inode();
        inode.name = Some(p.name.into());
        inode.times[time::C] = self.now;
        let usage = self.usage_of(p.node, inode);
        self.charge(p.dir, usage.view)?;
        self.add_stats(p.dir, usage.records);
        self.put_inode(p.node, inode)?;
        self.remove(keys::orphan(p.node));
        self.then(Effect::Named(p.node));
        Ok(())
    }
}

impl Shard {
    /// [`Op::Place`](leeward_fs::Op::Place). Content is in the records before the name is.
    pub(crate) fn place(&self, ctx: &Ctx, p: &Placing<'_>) -> leeward_fs::Result<Reply> {
        self.place_and(ctx, p, |tx| {
            tx.show(p.node);
            Ok(())
        })
    }

    /// [`Op::Place`](leeward_fs::Op::Place), with further changes in the same transaction.
    pub(crate) fn place_and(
        &self,
        ctx: &Ctx,
        p: &Placing<'_>,
        mut and: impl FnMut(&mut Tx<'_>) -> TxResult<()>,
    ) -> leeward_fs::Result<Reply> {
        let mut staged = Vec::new();
        let mut place = |tx: &mut Tx<'_>, staged: &[NodeId]| {
            let placed = tx.place_file(p, staged)?;
            if placed.is_ok() {
                and(tx)?;
            }
            Ok(placed)
        };
        loop {
            match self.transact(ctx, |tx| place(tx, &staged))? {
                Ok(reply) => return Ok(reply),
                Err(node) => {
                    self.stage(ctx, node)?;
                    staged.push(node);
                }
            }
        }
    }
}
