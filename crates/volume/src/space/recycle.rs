//! The recycle bin of a volume: removed files stay for some days, and go earlier when their space
//! is needed.
//!
//! An inode that loses its last name stays as it is, with 0 links and the mark
//! [`Inode::binned`](crate::format::inode::Inode), and a record in the bin's table has its last
//! name. It still counts in the directory that it was in. Removed directories stay for that, too: a
//! directory is removed when it is empty, so everything below it has an earlier stamp, and
//! *purging* (counting it no longer, freeing it) begins with the oldest. No operation can reach
//! anything in the bin, except files that are still open.
//!
//! Operations know nothing of the bin: one that does not fit a quota ends with
//! [`Fail::Quota`](crate::tx::Fail) (or that of an owner, with `Fail::Owner`), the shard purges
//! entries that count there, and runs it again. For a full disk, entries are purged before the
//! operation begins.

mod restore;

use crate::format::inode::{BinRecord, Inode, Pair, Stats, time};
use crate::format::keys::{self, Key};
use crate::format::owned::Owned;
use crate::shard::Shard;
use crate::state::Effect;
use crate::state::bins::Bin;
use crate::state::owners::Over;
use crate::state::quota::QuotaOf;
use crate::tx::{Fail, Tx, TxResult};
use leeward_data::PoolId;
use leeward_env::{Ctx, Work};
use leeward_fs::flows::UserOrGroup;
use leeward_fs::{Error, Kind, NodeId, Result, Time};

pub(crate) use restore::{Binned, RestoreBin};

/// Entries that one step handles.
const STEP_ENTRIES: usize = 64;
/// The least to purge at once when the disk is full: freeing space takes a commit and more.
const STEP_BYTES: i64 = 4 << 20;
/// Steps of housekeeping that a write on a full disk waits for.
const HOUSEKEEPING_STEPS: usize = 1024;
const DAY_NANOS: u64 = 86_400_000_000_000;

/// Nanoseconds since 1970.
fn nanos(time: Time) -> u64 {
    u64::try_from(time.secs).unwrap_or(0) * 1_000_000_000 + u64::from(time.nanos)
}

impl Tx<'_> {
    /// Whether an inode that loses its last name, which was in `dir`, goes to the bin.
    pub(crate) fn is_for_bin(&self, dir: NodeId, node: NodeId, inode: &Inode) -> TxResult<bool> {
        let volume = dir.volume();
        let properties = self.properties(volume)?;
        let kept = match properties.bin_days {
            // what a stream removes was removed elsewhere
            _ if properties.copy.is_some() => false,
            // entries of the bin may be below it
            0 => inode.is_dir() && self.st.bins.holds(volume),
            _ => !self.is_passing(node, inode),
        };
        Ok(kept && self.has_place(dir)?)
    }

    /// Whether a file never had content and is removed at once: a lock, a probe, a name for a file
    /// without one.
    fn is_passing(&self, node: NodeId, inode: &Inode) -> bool {
        let age = nanos(self.now).saturating_sub(nanos(inode.times[time::B]));
        inode.kind == Kind::File && self.size_of(node, inode) == (0, 0) && age < 1_000_000_000
    }

    /// Whether a directory is in its volume's tree, and not in one that a restore has replaced.
    fn has_place(&self, dir: NodeId) -> TxResult<bool> {
        match self.is_below(dir, NodeId::new(dir.volume(), 1)) {
            Err(Fail::Error(Error::Stale)) => Ok(false),
            other => other,
        }
    }

    /// Moves an inode that has just lost its last name to the bin.
    pub(crate) fn put_in_bin(&mut self, node: NodeId, mut inode: Inode, name: &[u8]) -> TxResult<()> {
        inode.binned = true;
        self.put_inode(node, &inode)?;
        // unique, and later than all before, whatever the clock does
        let newest = self.st.bins.volumes.get(&node.volume()).map_or(0, |bin| bin.newest);
        let stamp = nanos(self.now).max(newest + 1).max(self.last_stamp + 1);
        self.last_stamp = stamp;
        self.then(Effect::Binned { volume: node.volume(), stamp });
        let record = BinRecord { uid: self.ctx.uid, name: name.into() };
        self.put_new(keys::binned(node, stamp), record.encode());
        Ok(())
    }

    /// Purges an entry of the bin, if it still exists. The operation's only step: it may belong to
    /// an earlier epoch.
    fn purge(&mut self, key: &Key) -> TxResult<Option<Stats>> {
        let entry = self.get(key)?;
        let (Some(_), Some((_, node))) = (entry, keys::parse_binned(key)) else { return Ok(None) };
        self.remove(key.clone());
        // a file that was removed before a snapshot was taken is not in it
        self.as_of_last_change(node)?;
        let mut inode = match self.inode(node) {
            Err(Fail::Error(Error::Stale)) => {
                tracing::error!("{node:?} is in the recycle bin, but not there; run lee fsck");
                return Ok(Some(Stats::default()));
            }
            other => other?,
        };
        let by = if inode.is_dir() {
            self.uncount_dir(Self::counted_in(node, &inode), node)?;
            Stats { dirs: 1, ..Stats::default() }
        } else {
            let by = self.usage_of(node, &inode);
            self.uncount(node, &inode, by)?;
            by.view
        };
        inode.binned = false;
        self.put_inode(node, &inode)?;
        self.release(node, &inode)?;
        Ok(Some(by))
    }

    /// [`Tx::purge`] of an entry below `dir`.
    fn purge_below(&mut self, key: &Key, dir: NodeId) -> TxResult<Option<Stats>> {
        let (Some(_), Some((_, node))) = (self.get(key)?, keys::parse_binned(key)) else { return Ok(None) };
        match self.is_below(node, dir) {
            Ok(true) => self.purge(key),
            Ok(false) | Err(Fail::Error(Error::Stale)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// [`Tx::purge`] of an entry that counts for `who`.
    fn purge_owned(&mut self, key: &Key, who: UserOrGroup) -> TxResult<Option<Stats>> {
        let (Some(_), Some((_, node))) = (self.get(key)?, keys::parse_binned(key)) else { return Ok(None) };
        let record = self.get(&keys::inode(node))?;
        match record.and_then(|record| Owned::of_record(&record)) {
            Some(owned) if owned.owners().contains(&who) => self.purge(key),
            _ => Ok(None),
        }
    }

    /// `dir` goes away with everything below it: nothing that counts there may be in the bin.
    pub(crate) fn need_no_bin_below(&self, dir: NodeId) -> TxResult<()> {
        match self.st.bins.is_searched(dir) {
            true => Ok(()),
            false => Err(Fail::Bin(dir)),
        }
    }

    /// Finds the oldest entry of the bin.
    fn look_for_oldest(&mut self, volume: u32) -> TxResult<()> {
        let (from, to) = keys::bin_range(volume, 0);
        // damaged entries stay in front
        let first = self.scan(&from, &to, self.st.unreadable.count() as usize + 1, false)?;
        let stamp = |key: &Key| keys::parse_binned(key).map(|(stamp, _)| stamp);
        let readable = first.iter().find(|(key, _)| !self.st.unreadable.has(key));
        let due = readable.and_then(|(key, _)| stamp(key));
        match first.first().map(|(key, _)| stamp(key).unwrap_or(0)) {
            None => self.st.bins.drop_volume(volume),
            Some(oldest) => {
                if let Some(bin) = self.st.bins.volumes.get_mut(&volume) {
                    (bin.oldest, bin.due) = (oldest, due);
                }
            }
        }
        Ok(())
    }
}

impl Shard {
    /// Purges entries of bins that count for a quota, oldest first, until `by` more fits it.
    /// `false`: it does not help.
    pub(crate) fn make_room_in_quota(&self, ctx: &Ctx, of: QuotaOf, by: Stats) -> Result<bool> {
        let fits = || {
            let st = self.lock();
            st.quotas.check(of, by, st.held_in_quota(of)).is_ok()
        };
        {
            let st = self.lock();
            let limit = st.quotas.of(of).map_or(Pair::default(), |quota| quota.limit);
            let is_over = |most: u64, more: i64| most > 0 && more > 0 && more as u64 > most;
            if is_over(limit.0, by.bytes) || is_over(limit.1, by.inodes()) {
                return Ok(false); // whatever is purged
            }
        }
        let Some(mut next) = self.next_bin(of) else { return Ok(false) };
        Self::may_wait(ctx)?;
        let mut helped = false;
        while !fits() {
            let (dir, until) = next;
            // others have older entries then
            let is_behind = {
                let st = self.lock();
                st.bins.is_searched(dir) || st.bins.search_from(dir) > until
            };
            if !is_behind {
                helped |= self.purge_next_below(dir)?;
                continue;
            }
            match self.next_bin(of) {
                Some(other) => next = other,
                None => return Ok(helped && fits()),
            }
        }
        Ok(true)
    }

    /// The directory below which the oldest entry is that counts for a quota, as far as is known,
    /// and the stamp up to which no other has an older one; `None`: there is none.
    fn next_bin(&self, of: QuotaOf) -> Option<(NodeId, u64)> {
        let st = self.lock();
        let dirs: Vec<NodeId> = match of {
            QuotaOf::Dir(dir) => vec![dir],
            QuotaOf::Volume(_) => Vec::new(),
            QuotaOf::Project(id) => {
                let holding = st.projects.volumes_in(id).filter(|volume| st.bins.holds(*volume));
                holding.map(|volume| NodeId::new(volume, 1)).collect()
            }
        };
        let held = dirs.into_iter().filter(|dir| !st.bins.is_searched(*dir));
        let mut stamps: Vec<(u64, NodeId)> = held.map(|dir| (st.bins.search_from(dir), dir)).collect();
        stamps.sort_unstable();
        let (_, dir) = *stamps.first()?;
        Some((dir, stamps.get(1).map_or(u64::MAX, |(stamp, _)| *stamp)))
    }

    /// Purges entries of the volume's bin that count for an owner, oldest first, until what is over
    /// the owner's limits fits. `false`: it does not help.
    pub(crate) fn make_room_for_owner(&self, ctx: &Ctx, over: Over) -> Result<bool> {
        let fits = || self.lock().owners.fits(over.volume, over.who, over.by);
        if !self.lock().bins.holds(over.volume) {
            return Ok(false);
        }
        Self::may_wait(ctx)?;
        let mut helped = false;
        while !fits() {
            if !self.purge_next_of(over.volume, over.who)? {
                return Ok(helped && fits());
            }
            helped = true;
        }
        Ok(true)
    }

    /// Purges the oldest entry of a volume's bin that counts for `who`; `false`: there is none.
    fn purge_next_of(&self, volume: u32, who: UserOrGroup) -> Result<bool> {
        let (from, newest) = {
            let st = self.lock();
            let newest = st.bins.volumes.get(&volume).map_or(0, |bin| bin.newest);
            (st.owners.bin_search_from(volume, who), newest)
        };
        let (mut from, to) = keys::bin_range(volume, from);
        loop {
            let (page, next) = self.scan(&from, &to, STEP_ENTRIES)?;
            for (key, _) in &page {
                let purged = self.transact(&Ctx::system(), |tx| tx.purge_owned(key, who));
                if self.left_out(key, purged)?.is_some() {
                    let stamp = keys::parse_binned(key).map_or(0, |(stamp, _)| stamp);
                    self.lock().owners.note_bin_searched(volume, who, stamp);
                    return Ok(true);
                }
            }
            match next {
                Some(next) => from = next,
                None => break,
            }
        }
        self.lock().owners.note_bin_searched(volume, who, newest);
        Ok(false)
    }

    /// Purges all entries of the bin below `dir`.
    pub(crate) fn empty_bin_below(&self, dir: NodeId) -> Result<()> {
        while self.purge_next_below(dir)? {}
        Ok(())
    }

    /// Purges the oldest entry of the bin below `dir`; `false`: there is none.
    pub(crate) fn purge_next_below(&self, dir: NodeId) -> Result<bool> {
        let (moves, from, newest) = {
            let st = self.lock();
            let Some(bin) = st.bins.volumes.get(&dir.volume()) else { return Ok(false) };
            (bin.moves, st.bins.search_from(dir), bin.newest)
        };
        let (mut from, to) = keys::bin_range(dir.volume(), from);
        loop {
            let (page, next) = self.scan(&from, &to, STEP_ENTRIES)?;
            for (key, _) in &page {
                let purged = self.transact(&Ctx::system(), |tx| tx.purge_below(key, dir));
                if self.left_out(key, purged)?.is_some() {
                    let stamp = keys::parse_binned(key).map_or(0, |(stamp, _)| stamp);
                    self.lock().bins.note_searched(dir, moves, stamp);
                    return Ok(true);
                }
            }
            match next {
                Some(next) => from = next,
                None => break,
            }
        }
        self.lock().bins.note_searched(dir, moves, newest);
        Ok(false)
    }

    /// [`Shard::need_space`] in a pool, purging the oldest entries of bins when there is not
    /// enough: of this volume, else of others.
    pub(crate) fn need_room(&self, ctx: &Ctx, volume: u32, pool: PoolId, bytes: u64) -> Result<()> {
        if ctx.again.is_some() {
            return Ok(());
        }
        loop {
            match self.need_space(pool, bytes) {
                Err(Error::NoSpace) if self.lock().bins.volumes().next().is_some() => Self::may_wait(ctx)?,
                other => return other,
            }
            let _hurry = self.gate.activity().hurry();
            let purged = self.purge_for_space(volume, bytes as i64)?;
            self.give_back(pool, bytes)?;
            if !purged {
                return self.need_space(pool, bytes);
            }
        }
    }

    fn purge_for_space(&self, volume: u32, bytes: i64) -> Result<bool> {
        let mut order = vec![volume];
        order.extend(self.lock().bins.volumes().filter(|v| *v != volume));
        for volume in order.into_iter().filter(|v| *v < leeward_fs::VIEW_FIRST) {
            if self.purge_oldest(volume, u64::MAX, bytes.max(STEP_BYTES))? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Purges some entries with stamps up to `upto`, oldest first, until `bytes` are no longer
    /// counted. Returns how many.
    fn purge_oldest(&self, volume: u32, upto: u64, bytes: i64) -> Result<usize> {
        let from = self.lock().bins.volumes.get(&volume).and_then(|bin| bin.due).unwrap_or(0);
        let (from, to) = keys::bin_range(volume, from);
        let ctx = self.work_ctx(Work::Purge, Some(volume));
        let (page, _) = self.scan(&from, &to, STEP_ENTRIES)?;
        let (mut purged, mut freed) = (0, 0);
        for (key, _) in &page {
            if keys::parse_binned(key).is_some_and(|(stamp, _)| stamp > upto) || freed >= bytes {
                break;
            }
            let by = self.in_turn(&ctx, volume, || self.transact(&ctx, |tx| tx.purge(key)));
            let by = self.left_out(key, by)?;
            purged += usize::from(by.is_some());
            freed += by.map_or(0, |by| by.bytes);
        }
        self.transact(&ctx, |tx| tx.look_for_oldest(volume))?;
        Ok(purged)
    }

    /// Leaves out an entry that cannot be purged because it is damaged: it holds up no other.
    fn left_out(&self, key: &Key, purged: Result<Option<Stats>>) -> Result<Option<Stats>> {
        match purged {
            Err(Error::Corrupt(why)) => {
                self.lock().unreadable.note("the recycle bin", key, &why);
                Ok(None)
            }
            other => other,
        }
    }

    /// Frees and cleans until `bytes` fit or there is nothing to do.
    fn give_back(&self, pool: PoolId, bytes: u64) -> Result<()> {
        let _alone = self.housekeeping.lock();
        for _ in 0..HOUSEKEEPING_STEPS {
            let mut busy = self.reclaim_step()?;
            self.commit_if_dirty()?;
            busy |= self.delete_garbage()?;
            self.look_at_space(pool);
            if self.space(pool).1 >= bytes.max(1) || !(busy || self.clean_step()?) {
                break;
            }
        }
        Ok(())
    }

    /// Purges entries that are too old for their bin: one step; `true` when there was something to
    /// do.
    pub(crate) fn bin_step(&self) -> Result<bool> {
        let now = nanos(self.now());
        let due = {
            let st = self.lock();
            if st.sessions.are_awaited() {
                return Ok(false);
            }
            st.bins.volumes.iter().find_map(|(volume, bin)| {
                let upto = match st.volumes.get(volume)?.properties.bin_days {
                    0 => u64::MAX,
                    days => now.saturating_sub(u64::from(days) * DAY_NANOS),
                };
                (bin.due? <= upto).then_some((*volume, upto))
            })
        };
        let Some((volume, upto)) = due else { return Ok(false) };
        self.purge_oldest(volume, upto, i64::MAX)?;
        Ok(true)
    }

    /// Purges everything that is in a volume's bin now. Returns the number of entries.
    pub(crate) fn empty_bin(&self, volume: u32, mut each: impl FnMut(u64)) -> Result<u64> {
        let upto = nanos(self.now());
        let mut all = 0;
        let is_due = |bin: &Bin| bin.due.is_some_and(|due| due <= upto);
        while self.lock().bins.volumes.get(&volume).is_some_and(is_due) {
            all += self.purge_oldest(volume, upto, i64::MAX)? as u64;
            each(all);
        }
        Ok(all)
    }

    /// At open: finds the bins that have entries.
    pub(crate) fn find_bins(&self) -> Result<()> {
        let (mut from, to) = keys::table_range(keys::Table::Bin);
        loop {
            let page = self.kv.scan(&from, &to, 1, false)?;
            let Some((oldest, node)) = page.first().and_then(|(key, _)| keys::parse_binned(key)) else {
                return Ok(());
            };
            let (first, end) = keys::bin_range(node.volume(), 0);
            let last = self.kv.scan(&first, &end, 1, true)?;
            let newest = last.first().and_then(|(key, _)| keys::parse_binned(key)).map_or(oldest, |l| l.0);
            let st = &mut *self.lock();
            if st.volumes.get(&node.volume()).is_some_and(|v| !v.removing) {
                st.bins.load(node.volume(), oldest, newest);
            }
            from = end;
        }
    }
}
