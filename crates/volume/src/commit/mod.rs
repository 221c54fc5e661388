//! Commit of the running transaction: frozen, written as one batch, published.
//!
//! One thread at a time leads (the first that needs a commit: an fsync commits by itself, without a
//! hand-over). Others wait, and their changes are committed with it. When the batch is durable,
//! waiting threads are told, and the next one may lead. Then the transaction is *published*:
//! readers find its records in the engine and in the cache. Publishing goes in order; a separate
//! thread publishes large transactions, as no user waits for that. Records point to durable data
//! only, so a commit waits for no data. A batch that did not fit the store is kept and tried again
//! before anything newer.

pub(crate) mod committer;

use crate::commit::committer::{DurableTx, FrozenTx, Lead};
use crate::format::inode::{Counters, Openings, Pair, Stats};
use crate::format::keys::{self};
use crate::shard::Shard;
use crate::state::owners::OwnerWrites;
use crate::state::segments::Fate;
use crate::state::{Frozen, RecordCache, State};
use leeward_env::Ctx;
use leeward_env::waits::{self, Cause};
use leeward_fs::{Error, Result};
use leeward_meta::{Appended, Batch};
use parking_lot::MutexGuard;
use std::sync::atomic::Ordering;

/// If this many durable transactions wait to be published, the leader publishes first: this limits
/// memory.
const UNPUBLISHED_MAX: usize = 2;
/// A transaction with no more records is published by the thread that committed it: that takes less
/// time than waking another thread.
const PUBLISHED_AT_ONCE: usize = 64;

impl State {
    /// Whether there is nothing to commit.
    pub fn is_clean(&self) -> bool {
        self.running.records.is_empty()
            && self.running.inline_data.is_empty()
            && !self.unfolded.is_dirty()
            && !self.owners.is_dirty()
            && !self.events.is_dirty()
            && self.volumes_dirty.is_empty()
            && !self.segments.is_dirty()
            && !self.snapshots.is_dirty()
            && !self.clock_due
            && !self.sessions.is_dirty()
            && self.replaced.is_empty()
            && self.released.is_empty()
    }

    /// Moves the state beside records into records, and makes the running transaction the
    /// committing one. `clock`: the time for locks of snapshots, if there are any.
    fn freeze(&mut self, cache: &RecordCache, clock: Option<i64>) -> FrozenTx {
        self.clock_due = false;
        if let Some(now) = clock {
            self.clock_stored = Some(now);
            self.enter(keys::clock(), Some(Pair(now as u64, 0).encode()), false, cache);
        }
        for id in std::mem::take(&mut self.volumes_dirty) {
            let value = self.volumes.get(&id).map(|v| v.encode(self.format));
            self.enter(keys::volume(id), value, false, cache);
        }
        for (dir, by) in self.unfolded.freeze() {
            self.enter(keys::unfolded(dir), by.map(|by| by.encode()), false, cache);
        }
        self.enter_owners(cache);
        for (key, record) in self.events.freeze() {
            self.enter(key, Some(record), false, cache);
        }
        self.enter_told(cache);
        self.enter_snapshots(cache);
        self.list_the_dead(cache);
        let mut garbage = std::mem::take(&mut self.replaced);
        let in_use = &self.by_segment;
        for (segment, record, fate) in self.segments.freeze(|s| in_use.contains_key(&s)) {
            let value = (fate == Fate::Kept).then(|| record.encode());
            if fate == Fate::Condemned && record.sealed {
                garbage.push(record.object(segment));
            }
            self.enter(keys::segment(segment), value, false, cache);
        }
        // names are reserved by the same commit, and used after it
        if let Some(openings) = self.segments.unstored_openings().map(Openings::encode) {
            self.enter(keys::openings(), Some(openings), false, cache);
        }
        if self.segments.reserve() || self.counters_dirty {
            self.counters_dirty = false;
            let counters = Counters { next_volume: self.next_volume, reserved: self.segments.reserved() };
            self.enter(keys::cell(), Some(counters.encode()), false, cache);
        }
        let running = std::mem::take(&mut self.running);
        let most = running.by_flow.iter().max_by_key(|(_, records)| **records).map(|(flow, _)| *flow);
        let records: Frozen = running.records.into();
        self.committing.push_back(records.clone());
        let id = self.running_id;
        self.running_id += 1;
        let (released, reserved) = (std::mem::take(&mut self.released), self.segments.reserved());
        FrozenTx { id, records, inline_data: running.inline_data, garbage, released, reserved, most }
    }
}

impl State {
    fn enter_owners(&mut self, cache: &RecordCache) {
        let OwnerWrites { owned, uncounted, begins } = self.owners.freeze();
        for (volume, who, stats) in owned {
            self.enter(keys::owned(volume, who), stats.map(Stats::encode), false, cache);
        }
        for (volume, from) in uncounted {
            let value = from.map(|from| Pair(from, 0).encode());
            self.enter(keys::uncounted(volume), value, false, cache);
        }
        if begins {
            self.enter(keys::owners_counted(), Some(Pair(1, 0).encode()), false, cache);
        }
    }

    fn enter_snapshots(&mut self, cache: &RecordCache) {
        if !self.snapshots.is_dirty() {
            return;
        }
        let files = &self.files;
        let oldest = |volume: u32| {
            let of_volume = files.iter().filter(|(node, _)| node.volume() == volume);
            of_volume.map(|(_, p)| p.epoch).min().unwrap_or(u32::MAX)
        };
        let writes = self.snapshots.freeze(oldest);
        for (volume, epoch, record) in writes.snapshots {
            self.enter(keys::snapshot(volume, epoch), record.map(|r| r.encode()), false, cache);
        }
        for (volume, pair, tally) in writes.tallies {
            let value = tally.map(|t| Pair(t.records as u64, t.bytes as u64).encode());
            self.enter(keys::tally(volume, pair), value, false, cache);
        }
    }
}

/// A panic while this is held stops all changes of the cell: the frozen transaction is lost, and
/// later transactions would claim that it is durable.
struct BreakOnPanic<'a>(&'a Shard);

impl Drop for BreakOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.break_down("a commit panicked");
        }
    }
}

impl Shard {
    /// Returns when every change is durable whose operation had returned before the call.
    pub(crate) fn commit_now(&self, ctx: &Ctx) -> Result<()> {
        let (done, waited) = self.timed(|| self.commit_up_to_now(ctx));
        let most = self.committer.progress.lock().most;
        waits::note(Cause::Commit, most, waited);
        done
    }

    fn commit_up_to_now(&self, ctx: &Ctx) -> Result<()> {
        let target = {
            let st = self.lock();
            if st.is_clean() { st.running_id - 1 } else { st.running_id }
        };
        let c = &self.committer;
        let mut p = c.progress.lock();
        while p.committed < target {
            Self::may_wait(ctx)?;
            if p.led {
                c.changed.wait(&mut p);
                continue;
            }
            let lead = c.lead(p);
            let (done, took) = self.timed(|| self.commit_one(lead));
            self.counters.commit_took.add(took);
            self.counters.commit_errors.fetch_add(u64::from(done.is_err()), Ordering::Relaxed);
            done?;
            p = c.progress.lock();
        }
        Ok(())
    }

    /// Commits if there is anything to commit, and returns when the work after the commit is done
    /// too.
    pub(crate) fn commit_if_dirty(&self) -> Result<()> {
        let dirty = {
            let st = self.lock();
            !st.is_clean() || !st.committing.is_empty()
        };
        if dirty { self.commit_whole() } else { Ok(()) }
    }

    /// [`Shard::commit_now`], and publishes: readers of the engine see the commit, and the garbage
    /// that it makes is known.
    pub(crate) fn commit_whole(&self) -> Result<()> {
        self.commit_now(&Ctx::system())?;
        self.publish_all();
        Ok(())
    }

    /// Commits one transaction, until it is durable. `Committer::durable` has it then.
    fn commit_one(&self, lead: Lead<'_>) -> Result<()> {
        let _no_other = BreakOnPanic(self);
        let c = &self.committer;
        if let Some(why) = &self.lock().broken {
            return Err(Error::Io(why.clone()));
        }
        if c.durable.lock().len() >= UNPUBLISHED_MAX || self.kv.wants_room() {
            self.publish_all();
        }
        let unwritten = c.unwritten.lock().take();
        let tx = unwritten.unwrap_or_else(|| self.freeze());
        c.progress.lock().most = tx.most;
        let batch = tx.batch();
        match self.append_batch(&batch) {
            Ok(appended) => {
                let (id, records) = (tx.id, batch.writes.len());
                c.durable.lock().push_back(DurableTx { tx, batch, appended });
                lead.ends_with(id);
                self.publish_soon(records);
                Ok(())
            }
            Err(e) => {
                *c.unwritten.lock() = Some(tx);
                Err(e)
            }
        }
    }

    /// Publishes durable transactions, on this thread if that is quick.
    fn publish_soon(&self, records: usize) {
        let c = &self.committer;
        if self.env.is_sim() {
            return self.publish_all();
        }
        match c.publishing.try_lock() {
            Some(turn) if records <= PUBLISHED_AT_ONCE => self.publish_in(turn),
            _ => c.unpublished.wake(),
        }
    }

    /// Publishes all that is durable.
    pub(crate) fn publish_all(&self) {
        self.publish_in(self.committer.publishing.lock());
    }

    fn publish_in(&self, _turn: MutexGuard<'_, ()>) {
        loop {
            let next = self.committer.durable.lock().pop_front();
            let Some(next) = next else { return };
            self.publish(next);
        }
    }

    /// Publishes a transaction: readers find its records where clean ones are.
    fn publish(&self, DurableTx { tx, batch, appended }: DurableTx) {
        self.kv.insert(appended, &batch);
        let records = batch.writes.len() as u64;
        for (key, value) in batch.writes.into_iter().filter(|(key, _)| !keys::is_scanned(key)) {
            self.cache.insert(key, value);
        }
        let mut st = self.lock();
        st.committing.pop_front();
        st.publish_seq += 1;
        st.segments.reserved_durably(tx.reserved);
        drop(st);
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        self.counters.committed_records.fetch_add(records, Ordering::Relaxed);
        self.committer.garbage.lock().extend(tx.garbage);
        tx.released.into_iter().for_each(|segment| self.kv.release_inline(segment));
    }

    /// Keeps others from committing while `f` runs, with everything published: the committed state
    /// does not change.
    pub(crate) fn with_commits_paused<T>(&self, f: impl FnOnce() -> T) -> T {
        let _lead = self.committer.lead(self.committer.progress.lock());
        self.publish_all();
        f()
    }

    /// Freezes, in one hold of the lock.
    fn freeze(&self) -> FrozenTx {
        let mut st = self.lock();
        self.committer.large.store(false, Ordering::Relaxed);
        self.committer.behind.store(false, Ordering::Relaxed);
        let locked_until = st.snapshots.locked_until();
        let clock = self.clock.look(&self.env, locked_until).now;
        st.freeze(&self.cache, (clock < locked_until).then_some(clock))
    }

    /// Makes a batch durable; when the disk is full, with the help of the space reserve.
    fn append_batch(&self, batch: &Batch) -> Result<Appended> {
        let result = match self.kv.append(batch) {
            Err(leeward_meta::Error::Full) => {
                self.release_reserve()?;
                self.kv.append(batch)
            }
            other => other,
        };
        result.map_err(|e| {
            if !matches!(e, leeward_meta::Error::Full) {
                self.break_down(&format!("a commit failed: {e}"));
            }
            e.into()
        })
    }
}
