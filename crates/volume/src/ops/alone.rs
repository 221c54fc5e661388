//! What clients on other machines may change by themselves, under exclusive leases, and tell the
//! server later.
//!
//! What they tell their programs must come true. So they may only change what nothing refuses: no
//! flags, ACLs or other attributes with rules of their own, and quotas that are far from their
//! limits. Whoever takes a quota near its limit has them send what they have first.

use crate::format::inode::{Inode, Properties, Stats};
use crate::format::keys;
use crate::state::quota::QuotaOf;
use crate::tx::{Fail, Tx, TxResult};
use leeward_data::PoolId;
use leeward_env::limits::{BEHIND_BYTES_MAX, BEHIND_CHANGES_MAX, BEHIND_MOVED_BYTES_MAX};
use leeward_fs::{InodeFlags, NodeId};

/// Names that are looked at before an inode is left alone.
const LOOKS_MAX: usize = 1024;

impl Tx<'_> {
    /// Whether a client may have an exclusive lease on an inode.
    pub(crate) fn may_be_left_alone(&self, node: NodeId) -> TxResult<bool> {
        self.unseen(|tx| {
            let inode = tx.inode(node)?;
            let has_rules = inode.xattrs > 0
                || inode.binned
                || inode.flags.has(InodeFlags::IMMUTABLE.or(InodeFlags::APPEND_ONLY));
            // another name of it may be known to its client under which it looks it up
            let has_names = !inode.is_dir() && inode.nlink > 1;
            if inode.nlink == 0 || has_names || has_rules || tx.st.is_known_here(node) {
                return Ok(false);
            }
            if !tx.is_plain_volume(node.volume()) || !tx.is_changed_by_caller_only(node) {
                return Ok(false);
            }
            if inode.is_dir() && !tx.is_plain_dir(node) {
                return Ok(false);
            }
            let dir = if inode.is_dir() { node } else { Self::counted_in(node, &inode) };
            Ok(tx.has_room_in_quotas(dir)? && !tx.st.owners.is_tight(node.volume(), tx.now))
        })
    }

    /// Whether what others have changed of an inode and its names is durable: what the client tells
    /// its programs builds on it. What was changed often since the last commit is not looked at.
    fn is_changed_by_caller_only(&self, node: NodeId) -> bool {
        let client = self.ctx.client;
        let (from, to) = keys::tag_range(node, keys::tag::DENTRY);
        let mut looks = 0;
        let mut is_own = true;
        for overlay in self.st.overlays() {
            is_own &= overlay.get(&keys::inode(node)).is_none_or(|slot| slot.by == client);
            overlay.scan(&from, &to, |_, slot| {
                looks += 1;
                is_own &= slot.by == client && looks < LOOKS_MAX;
                is_own
            });
        }
        is_own
    }

    /// Whether names in a volume are just what is stored, and what is removed is gone.
    fn is_plain_volume(&self, volume: u32) -> bool {
        let volume = self.st.volumes.get(&volume);
        let is_plain = |properties: &Properties| !properties.snapshot_dir_visible && properties.bin_days == 0;
        volume.is_some_and(|v| !v.removing && is_plain(&v.properties))
    }

    /// Whether nothing but names is known of a directory.
    fn is_plain_dir(&self, dir: NodeId) -> bool {
        self.st.quotas.get(dir).is_none()
            && self.st.schedules.get(dir).is_none()
            && self.st.projects.at_place(dir).is_none()
            && self.st.snapshots.of_dir(dir.volume(), dir.inode()).is_none()
    }

    /// Whether quotas have room for what all clients can have told and not sent, one more among
    /// them.
    fn has_room_in_quotas(&self, dir: NodeId) -> TxResult<bool> {
        let room = room_for(self.owners() + 1);
        Ok(self.quotas_above(dir)?.into_iter().all(|of| self.fits(of, room)))
    }

    fn fits(&self, of: QuotaOf, by: Stats) -> bool {
        !self.binds(of) || self.st.quotas.check(of, by, self.st.held_in_quota(of)).is_ok()
    }

    /// What a client has told its programs counts, however near the limit is; then clients are to
    /// tell no more.
    pub(crate) fn charge_foretold(&mut self, of: QuotaOf, by: Stats) {
        self.is_tight |= !self.fits(of, by.plus(room_for(self.owners())));
    }

    /// What is charged to a quota must leave room for what clients have told their programs.
    pub(crate) fn leave_room_for_clients(&self, of: QuotaOf, by: Stats) -> TxResult<()> {
        if self.owners() > 0 && !self.fits(of, by.plus(room_for(self.owners()))) {
            return Err(Fail::Clients(Some(of)));
        }
        Ok(())
    }

    /// The pool that new data of an inode goes to.
    pub(crate) fn pool_of(&self, node: NodeId) -> PoolId {
        let pool = self.unseen(|tx| tx.inode(node).map(|inode: Inode| inode.pool));
        self.st.pool_for(node.volume(), pool.unwrap_or_default())
    }
}

/// What so many clients can have told their programs and not sent.
pub(super) fn room_for(clients: usize) -> Stats {
    let clients = clients as i64;
    let moved = BEHIND_CHANGES_MAX as u64 * BEHIND_MOVED_BYTES_MAX;
    let bytes = (BEHIND_BYTES_MAX + moved) as i64;
    Stats { bytes: clients * bytes, files: clients * BEHIND_CHANGES_MAX as i64, dirs: 0 }
}
