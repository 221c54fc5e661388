//! Changes the ACLs of a tree, some entries of a directory at a time, in the caller's turns of
//! background work. What is attached below it is another volume, and is left alone.

use super::acl::{AclChange, AclChanged};
use crate::admin::Progress;
use crate::shard::Shard;
use crate::tx::{Tx, TxResult};
use leeward_env::{Ctx, Wait, Work};
use leeward_fs::rights::{self, R, X};
use leeward_fs::{Entry, Error, Kind, NodeId, Reply, Result};
use serde::{Deserialize, Serialize};

/// Entries of a directory that one step changes.
const STEP_ENTRIES: usize = 256;

/// What became of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclChangedInfo {
    /// Files and directories that have other rights now.
    pub changed: u64,
    /// Those that had these already, and symbolic links, which have none.
    pub same: u64,
    /// Those of somebody else, or that `chattr` protects.
    pub refused: u64,
    /// Directories that the caller may not look into: nothing in them has changed.
    pub closed: u64,
}

impl AclChangedInfo {
    fn count(&mut self, changed: AclChanged) {
        *match changed {
            AclChanged::Changed => &mut self.changed,
            AclChanged::Same => &mut self.same,
            AclChanged::Refused => &mut self.refused,
        } += 1;
    }

    fn all(&self) -> u64 {
        self.changed + self.same + self.refused
    }
}

/// Of a directory that was removed since it was listed, `value`.
fn gone_is<T>(value: T, found: Result<T>) -> Result<T> {
    match found {
        Err(Error::Stale) => Ok(value),
        found => found,
    }
}

impl Tx<'_> {
    /// Whether the caller may list a directory and reach what is in it.
    fn may_walk(&self, dir: NodeId) -> TxResult<bool> {
        let inode = self.inode(dir)?;
        let attr = self.attr(dir, &inode);
        let acl = match rights::asks_acl(self.ctx, &attr) {
            true => self.stored_acls(dir, &inode)?[0].take(),
            false => None,
        };
        Ok(rights::permit(self.ctx, &attr, acl.as_deref(), R | X).is_ok())
    }
}

impl Shard {
    /// Changes the ACLs of an inode, and of all below it where `recursive`. Durable with the next
    /// commit; front ends have dropped what they knew when this returns.
    ///
    /// # Errors
    /// What is changed until then stays so.
    pub(crate) fn change_acls(
        &self,
        caller: &Ctx,
        (top, recursive): (NodeId, bool),
        changes: &[AclChange],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<AclChangedInfo> {
        let ctx = Ctx { flow: caller.flow.of_work(Work::Rights), wait: Wait::Allowed, ..*caller };
        let mut done = AclChangedInfo::default();
        self.change_some(&ctx, &[top], changes, &mut done)?;
        let mut dirs: Vec<(NodeId, Box<[u8]>)> = Vec::new();
        let mut total = 0;
        if recursive && self.transact(&ctx, |tx| Ok(tx.inode(top)?.is_dir()))? {
            let below = self.transact(&Ctx::system(), |tx| tx.exact_stats(top))?;
            total = 1 + (below.files + below.dirs).max(0) as u64;
            dirs.push((top, Box::default()));
        }
        while let Some((dir, after)) = dirs.pop() {
            let may_walk = || self.transact(&ctx, |tx| tx.may_walk(dir));
            if after.is_empty() && !gone_is(true, may_walk())? {
                done.closed += 1;
                continue;
            }
            let page = gone_is(Vec::new(), self.entries_of(dir, &after))?;
            if let Some(last) = page.last() {
                dirs.push((dir, last.name.clone()));
            }
            let own = page.iter().filter(|entry| entry.node.volume() == top.volume());
            let nodes: Vec<NodeId> = own.clone().map(|entry| entry.node).collect();
            self.change_some(&ctx, &nodes, changes, &mut done)?;
            let inner = own.filter(|entry| entry.kind == Kind::Dir);
            dirs.extend(inner.map(|entry| (entry.node, Box::default())));
            progress(Progress { phase: "rights".into(), done: done.all(), total });
        }
        self.wait_invalidated();
        Ok(done)
    }

    /// Some entries after a name; none: that was all.
    fn entries_of(&self, dir: NodeId, after: &[u8]) -> Result<Vec<Entry>> {
        match self.list(&Ctx::system(), dir, after, self.step_size(STEP_ENTRIES), false)? {
            Reply::Entries(entries) => Ok(entries),
            _ => Ok(Vec::new()),
        }
    }

    fn change_some(
        &self,
        ctx: &Ctx,
        nodes: &[NodeId],
        changes: &[AclChange],
        done: &mut AclChangedInfo,
    ) -> Result<()> {
        let Some(first) = nodes.first() else { return Ok(()) };
        // other machines give back what they keep of these before the turn, which waits for nobody
        let _recalling = self.recall(ctx, nodes)?;
        // one transaction for each: to load a record repeats little then, and holds up nobody
        let change = |node: &NodeId| match self.transact(ctx, |tx| tx.change_acl(*node, changes)) {
            Err(Error::Stale) => None, // removed since it was listed
            changed => Some(changed.map(|changed| (*node, changed))),
        };
        let change_all = || nodes.iter().filter_map(change).collect::<Result<Vec<_>>>();
        for (node, changed) in self.in_turn(ctx, first.volume(), change_all)? {
            done.count(changed);
            if changed == AclChanged::Changed && self.has_watchers() {
                self.invalidate_known_inode(ctx, node);
            }
        }
        Ok(())
    }
}
