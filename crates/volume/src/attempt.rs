//! How an operation is tried until all that it needs is at hand: [`Shard::transact`].
//!
//! An attempt holds the lock and does no I/O. Where it needs a record that is not in memory, or
//! more steps than the lock should be held for, it ends with a [`Fail`] that says what. That is
//! done without the lock, and the next attempt finds the record in the cache, or what was found out
//! in [`Before`].

use crate::agreed::{Agreed, First};
use crate::before::Before;
use crate::format::keys::{self, Key};
use crate::shard::Shard;
use crate::tx::{Fail, Tx, TxResult};
use leeward_env::Ctx;
use leeward_env::waits::{self, Cause};
use leeward_fs::{Error, Result};

/// What must be done before an operation can be tried again. It may wait for others.
pub(crate) enum Unmet {
    /// Leases must come back, or a commit is needed.
    First(First),
    /// What the attempt said.
    Fail(Fail),
}

impl Shard {
    /// Runs `f` until all that it needs is at hand, and makes its changes part of the running
    /// transaction.
    pub fn transact<T>(&self, ctx: &Ctx, mut f: impl FnMut(&mut Tx<'_>) -> TxResult<T>) -> Result<T> {
        let mut before = Before::default();
        loop {
            match self.attempt(ctx, &mut f, &before)? {
                Ok(value) => return Ok(value),
                Err(unmet) => self.meet(ctx, unmet, &mut before)?,
            }
        }
    }

    /// [`Shard::transact`], except that the caller does what must be done before the next attempt
    /// ([`Shard::meet`]): it holds something that this may wait for. Records are loaded.
    pub(crate) fn attempt<T>(
        &self,
        ctx: &Ctx,
        f: &mut impl FnMut(&mut Tx<'_>) -> TxResult<T>,
        before: &Before,
    ) -> Result<std::result::Result<T, Unmet>> {
        let leases = self.leases.are_used();
        loop {
            let mut st = self.lock();
            // each time anew: what others saw until a moment ago has not changed before that
            let (now, clock) = self.times_for(ctx);
            let seq = st.publish_seq;
            let mut tx = Tx::new(&mut st, &self.cache, &*self.kv, (ctx, now), before);
            if leases && self.leases.are_exclusive() {
                tx.lets_clients_be(if before.have_sent { 0 } else { self.leases.owners() });
                if ctx.is_for_somebody() {
                    tx.note_what_is_seen();
                }
            }
            let result = f(&mut tx).and_then(|value| tx.conclude(clock).map(|()| value));
            let agreed = if leases { self.agree(ctx, &tx, result.is_ok()) } else { Agreed::default() };
            if let Some(first) = agreed.first {
                return Ok(Err(Unmet::First(first)));
            }
            match result {
                Ok(value) => {
                    let changed = if self.tells_others(ctx) { tx.changed_inodes() } else { Vec::new() };
                    let is_tight = tx.is_tight;
                    let dead = tx.finish();
                    let (records, bytes) = (st.running.records.len(), st.running.records.bytes());
                    drop(st);
                    self.tell_later(ctx, &agreed.told_later, is_tight);
                    changed.into_iter().for_each(|node| self.invalidate_known_inode(ctx, node));
                    dead.into_iter().for_each(|(addr, len)| self.log.dead(addr, len));
                    self.committer.hint((records, bytes), self.kv.batch_records());
                    return Ok(Ok(value));
                }
                Err(Fail::Error(e)) => return Err(e),
                Err(Fail::Miss(key)) => {
                    drop(st);
                    self.load(key, seq)?;
                }
                Err(Fail::MissAll(keys)) => {
                    drop(st);
                    self.load_all(keys, seq)?;
                }
                Err(fail) => return Ok(Err(Unmet::Fail(fail))),
            }
        }
    }

    /// Does what an attempt has ended for.
    pub(crate) fn meet(&self, ctx: &Ctx, unmet: Unmet, before: &mut Before) -> Result<()> {
        let fail = match unmet {
            Unmet::First(first) => {
                before.has_recalled(self.do_first(ctx, first)?);
                return Ok(());
            }
            Unmet::Fail(fail) => fail,
        };
        if matches!(fail, Fail::Fold(_) | Fail::Climb(_) | Fail::Scan(_)) {
            Self::may_wait(ctx)?;
        }
        match fail {
            Fail::Error(e) => return Err(e),
            // the attempt itself has loaded them
            Fail::Miss(_) | Fail::MissAll(_) => (),
            Fail::Stage(node) => self.stage(ctx, node)?,
            Fail::Clients(of) => {
                let volumes = self.lock().volumes_of_quota(of);
                before.has_recalled(self.recall_exclusive_in(ctx, volumes)?);
                before.have_sent = true;
            }
            Fail::Quota { of, by } if self.make_room_in_quota(ctx, of, by)? => (),
            Fail::Owner(over) if self.make_room_for_owner(ctx, over)? => (),
            Fail::Quota { .. } | Fail::Owner(_) => return Err(Error::Quota),
            Fail::Bin(dir) => drop(self.empty_bin_below(dir)?),
            Fail::Fold(volume) => {
                before.is_tried_again()?;
                self.fold_all(volume)?;
            }
            Fail::Climb(dir) => {
                let chain = self.climb(dir)?;
                before.knows_above(chain)?;
            }
            Fail::Scan(scan) => {
                let changed = self.lock().views_changed;
                let found = self.scan_all_of_view(&scan)?;
                before.knows_of_snapshot(scan, changed, found)?;
            }
        }
        Ok(())
    }

    /// Loads a record into the cache. `seq`: [`State::publish_seq`] before the key was missed.
    ///
    /// [`State::publish_seq`]: crate::state::State::publish_seq
    fn load(&self, key: Key, mut seq: u64) -> Result<()> {
        if let Some(view) = keys::view_of(&key) {
            return self.load_view(&key, view);
        }
        loop {
            let (value, waited) = self.timed(|| self.kv.get(&key));
            waits::note(Cause::Records, None, waited);
            self.counters.loads.add(waited);
            let value = value?;
            let st = self.lock();
            if st.overlay(&key).is_some() {
                return Ok(());
            }
            if st.publish_seq == seq {
                self.cache.insert(key, value);
                return Ok(());
            }
            seq = st.publish_seq;
        }
    }

    /// Loads several records into the cache.
    pub fn load_all(&self, keys: Vec<Key>, seq: u64) -> Result<()> {
        keys.into_iter().try_for_each(|key| self.load(key, seq))
    }
}
