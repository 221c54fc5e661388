//! What an operation changes of what users and groups own, and the limits on that.

use super::alone::room_for;
use crate::format::inode::{Inode, Stats};
use crate::format::keys::Key;
use crate::format::owned::Owned;
use crate::state::owners::Over;
use crate::tx::{Fail, OwnedChange, Tx, TxResult};
use leeward_fs::NodeId;
use leeward_fs::flows::UserOrGroup;

impl Tx<'_> {
    /// The record of an inode is about to be replaced by one that counts so; `None`: by none, or by
    /// one that does not count.
    pub(crate) fn count_owner(&mut self, node: NodeId, key: &Key, now: Option<Owned>) -> TxResult<()> {
        let was = self.unseen(|tx| tx.get(key))?.and_then(|record| Owned::of_record(&record));
        self.count_owned(node, was, now);
        Ok(())
    }

    /// The inode has counted so, and counts so now.
    pub(crate) fn count_owned(&mut self, node: NodeId, was: Option<Owned>, now: Option<Owned>) {
        if was == now || !self.counts_for_owners(node) {
            return;
        }
        let pending = self.st.pending_of(node).map(|pending| pending.allocated);
        let with_pending = |owned: Owned| pending.map_or(owned, |bytes| owned.with_bytes(bytes));
        if let Some(was) = was {
            self.add_owned(node.volume(), was, was.usage.negated(), with_pending(was).usage.negated());
        }
        if let Some(now) = now {
            self.add_owned(node.volume(), now, now.usage, with_pending(now).usage);
        }
    }

    /// An inode is found that was not counted before, see `space/census.rs`.
    pub(crate) fn count_found(&mut self, node: NodeId, owned: Option<Owned>) {
        let Some(owned) = owned else { return };
        let pending = self.st.pending_of(node).map(|pending| pending.allocated);
        let used = pending.map_or(owned, |bytes| owned.with_bytes(bytes)).usage;
        self.add_owned(node.volume(), owned, owned.usage, used);
    }

    /// Pending content of the inode allocates so many bytes more.
    pub(crate) fn count_pending(&mut self, node: NodeId, inode: &Inode, grows: i64) {
        if let Some(owned) = Owned::of(inode).filter(|_| grows != 0 && self.counts_for_owners(node)) {
            let used = Stats { bytes: grows, ..Stats::default() };
            self.add_owned(node.volume(), owned, Stats::default(), used);
        }
    }

    /// What is left of a removed volume counts no more.
    fn counts_for_owners(&self, node: NodeId) -> bool {
        self.st.owners.counts(node) && self.st.volumes.get(&node.volume()).is_some_and(|v| !v.removing)
    }

    fn add_owned(&mut self, volume: u32, owned: Owned, recorded: Stats, used: Stats) {
        for who in owned.owners() {
            match self.owned.iter_mut().find(|by| (by.volume, by.who) == (volume, who)) {
                Some(by) => (by.recorded, by.used) = (by.recorded.plus(recorded), by.used.plus(used)),
                None => self.owned.push(OwnedChange { volume, who, recorded, used }),
            }
        }
    }

    /// Checks what the operation adds against the limits of its owners. What was promised before
    /// counts whether it fits or not, and so does background work.
    pub(crate) fn check_owners(&mut self) -> TxResult<()> {
        let is_bound = self.ctx.again.is_none() && self.ctx.flow.work().is_none();
        if !is_bound || self.st.owners.are_unlimited() {
            return Ok(());
        }
        let grows = |by: &&OwnedChange| by.used.bytes > 0 || by.used.inodes() > 0;
        let growing: Vec<OwnedChange> = self.owned.iter().filter(grows).copied().collect();
        for OwnedChange { volume, who, used, .. } in growing {
            let foretold = self.ctx.foretold.is_some();
            if !foretold && !self.st.owners.fits(volume, who, used) {
                return Err(Fail::Owner(Over { volume, who, by: used }));
            }
            let owners = self.owners();
            if !self.st.owners.fits(volume, who, used.plus(room_for(owners.max(1)))) {
                self.st.owners.note_tight(volume, who, self.now);
                if foretold {
                    self.is_tight = true;
                } else if owners > 0 {
                    return Err(Fail::Clients(None));
                }
            }
        }
        Ok(())
    }

    /// Whether so many bytes more of an inode to be fit the limits of its owners now.
    pub(crate) fn check_owners_room(&self, volume: u32, inode: &Inode, bytes: u64) -> TxResult<()> {
        let by = Stats { bytes: i64::try_from(bytes).unwrap_or(i64::MAX), files: 1, dirs: 0 };
        for who in [UserOrGroup::User(inode.uid), UserOrGroup::Group(inode.gid)] {
            if !self.st.owners.fits(volume, who, by) {
                return Err(Fail::Owner(Over { volume, who, by }));
            }
        }
        Ok(())
    }
}
