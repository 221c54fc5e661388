//! Repairs pools in the background: tries to open pools that are away, and rebuilds missing pieces.
//!
//! One thread for all pools, so that neither cleaning nor the engine waits for a slow store. It
//! rests after each step while users make requests ([`crate::cell::turns`]).

use crate::format::inode::{PoolRecord, SegmentRecord};
use crate::pools::stores;
use crate::pools::{OpenPool, Parts, Pool};
use crate::shard::Shard;
use crate::state::State;
use leeward_data::{Object, PoolId};
use leeward_env::{Class, Ctx, Nanos, Work};
use leeward_fs::Result;
use leeward_pool::{ObjectId, Pool as Layered, Step, Store};
use std::time::Duration;

/// Time until the next check when nothing was left to repair, and when repairing failed.
const LOOK_EVERY_NS: Nanos = 5_000_000_000;
/// Longest sleep of the searching thread; it is woken when there is something to search.
const SEARCH_LOOK: Duration = Duration::from_secs(60);

/// Pools that go away and come back.
impl Shard {
    /// Opens all pools of the cell's records. A pool that cannot be opened is away.
    pub(crate) fn open_pools(&self) {
        let all: Vec<Parts> = {
            let st = self.lock();
            st.pools
                .keys()
                .filter(|id| st.cold_of(**id).is_none())
                .filter_map(|id| st.parts_of(*id))
                .collect()
        };
        for parts in all {
            let (id, name, opened) = (parts.id, &parts.record.name, self.pools.open(&parts));
            match &opened {
                Err(why) => {
                    tracing::error!(
                        "pool {name} is away, and so is all data in it: {why}; it is tried again"
                    );
                }
                Ok(opened) => {
                    for why in &opened.missing {
                        tracing::error!("pool {name} does without a store: {why}; it is tried again");
                    }
                }
            }
            self.set_pool(id, opened);
        }
    }

    /// Sets the stores of a pool.
    pub(crate) fn set_pool(&self, id: PoolId, opened: std::result::Result<OpenPool, String>) {
        let (store, remote) = (opened.as_ref().ok().map(|o| o.store.clone() as _), self.is_remote(id));
        self.log.set_pool(id, store, stores::put_threads(remote));
        self.pools.set(id, opened);
        self.log.disk_cache().inspect(|cache| cache.serve(id, remote));
        self.look_at_space(id);
    }

    /// Whether a pool has stores that are not on disks of this machine.
    pub(crate) fn is_remote(&self, pool: PoolId) -> bool {
        let is = |record: &PoolRecord| record.stores.iter().any(|store| stores::is_remote(&store.url));
        self.lock().pools.get(&pool).is_some_and(is)
    }

    /// Whether a pool is away.
    pub(crate) fn is_away(&self, pool: PoolId) -> bool {
        self.pools.get(pool).is_none_or(|p| p.why_away().is_some())
    }

    /// Tries to open pools that are away, every few seconds. A pool that is back is searched for
    /// leftovers of a crash.
    pub(crate) fn open_away(&self) -> Result<()> {
        if !self.pools.is_time_to_open(self.env.now()) {
            return Ok(());
        }
        for (id, pool) in self.pools.all().into_iter().filter(|(_, pool)| pool.missing() > 0) {
            let Some(parts) = self.lock().parts_of(id) else { continue };
            let Ok(opened) = self.pools.open(&parts) else { continue };
            let alone = self.alone(); // and nobody changes the pool's stores
            if opened.missing.len() >= pool.missing() || self.lock().parts_of(id).as_ref() != Some(&parts) {
                continue;
            }
            tracing::warn!("pool {}: stores are there again", parts.record.name);
            let was_short = pool.is_short();
            self.set_pool(id, Ok(opened));
            drop(alone);
            if was_short {
                self.adopt_after_absence(id)?;
            }
            // objects deleted while a store was away are still there
            self.search_later([id]);
        }
        Ok(())
    }

    /// Takes the object of a segment that was put without being recorded. If it cannot be read, the
    /// segment stays as it is: reads of its data answer EIO and fsck finds them; everything else
    /// works.
    pub(crate) fn adopt(&self, ctx: &Ctx, pool: PoolId, segment: u64) {
        match self.log.adopt(ctx, pool, segment) {
            Ok(info) => self.lock().is_stored_now(info),
            Err(e) => tracing::error!(
                "segment {segment} cannot be read in pool {pool}, files with data in it are damaged (lee fsck names them): {e}"
            ),
        }
    }

    /// A pool has come back: takes the objects of its segments that a crash kept from being
    /// recorded; leftovers become garbage.
    fn adopt_after_absence(&self, pool: PoolId) -> Result<()> {
        let _alone = self.housekeeping.lock(); // nothing is being rewritten
        let ctx = Ctx::system();
        let unsealed: Vec<u64> = {
            let st = self.lock();
            let here = |(segment, r): &(u64, &SegmentRecord)| {
                !r.sealed && r.pool == pool && !st.segments.is_open(*segment)
            };
            st.segments.iter().filter(here).map(|(segment, _)| segment).collect()
        };
        unsealed.into_iter().for_each(|segment| self.adopt(&ctx, pool, segment));
        self.lock().moves.recheck();
        self.search_later([pool]);
        Ok(())
    }

    /// Adds pools to be searched for leftovers.
    pub(crate) fn search_later(&self, pools: impl IntoIterator<Item = PoolId>) {
        self.unsearched.lock().extend(pools);
        self.search.wake();
    }

    /// One turn of the search thread. Closing the cell does not wait for its end: it changes
    /// nothing by itself.
    pub(crate) fn search_turn(&self) {
        if !self.search_step() {
            self.search.wait(SEARCH_LOOK);
        }
    }

    /// Searches one pool that was not searched yet. `true`: there may be more. One search at a
    /// time: after `false` all are done.
    pub(crate) fn search_step(&self) -> bool {
        let _alone = self.searching.lock();
        let next = self.unsearched.lock().pop_first();
        next.is_some_and(|pool| {
            self.find_leftovers(&Ctx::system(), pool);
            if pool == 0
                && let Err(e) = self.forget_stray_backrefs()
            {
                tracing::warn!("back references of segments that are gone stay until the next start: {e}");
            }
            true
        })
    }

    /// Finds objects that no record knows, from puts and rewritings that were not committed. A
    /// listing takes time in proportion to the objects. Nobody waits for it, and objects that were
    /// put or rewritten meanwhile are excluded.
    fn find_leftovers(&self, ctx: &Ctx, pool: PoolId) {
        let Some(Ok(store)) = self.pools.get(pool).map(|p| p.store()) else { return };
        // numbers from here on were used since
        let next = self.lock().segments.next();
        let objects = match store.list(ctx) {
            Ok(objects) => objects,
            Err(e) => {
                let name = self.pool_name(pool);
                tracing::error!(
                    "pool {name} cannot be searched for what a crash left: {e}; the next start does"
                );
                return;
            }
        };
        let alone = self.housekeeping.lock(); // nothing is being rewritten: what is known is all there is
        let mut leftovers: Vec<Object> = {
            let st = self.lock();
            let of_pool =
                |(id, _): (ObjectId, u64)| Object { pool, segment: id.segment, generation: id.generation };
            let is_unknown = |object: &Object| st.segments.is_unknown(*object, next);
            objects.into_iter().map(of_pool).filter(is_unknown).collect()
        };
        leftovers.retain(|object| !self.is_last_copy(ctx, *object));
        self.lock().replaced.extend(leftovers);
        drop(alone);
        match self.find_lost(ctx, pool) {
            Ok(0) => {}
            Ok(lost) => tracing::error!(
                "pool {}: {lost} objects cannot be read: lee fsck names the files",
                self.pool_name(pool)
            ),
            Err(e) => {
                tracing::warn!("pool {} cannot be searched for what is lost: {e}", self.pool_name(pool))
            }
        }
    }

    /// Whether an object that no record names is the last copy of one that a record names, in
    /// another pool. The same name is in two pools only where a tier ended, or a pool did not take
    /// inline data at opening. An object in doubt is not deleted.
    pub(crate) fn is_last_copy(&self, ctx: &Ctx, object: Object) -> bool {
        let record = self.lock().segments.get(object.segment).copied();
        let Some(record) = record.filter(|r| r.sealed && r.object_bytes > 0) else { return false };
        let named = record.object(object.segment);
        if named.pool == object.pool || named.generation != object.generation {
            return false;
        }
        let Err(e) = self.log.index(ctx, named) else { return false };
        tracing::error!(
            "segment {} cannot be read in pool {}, where it belongs: {e}; what pool {} has of it stays",
            object.segment,
            self.pool_name(named.pool),
            self.pool_name(object.pool)
        );
        true
    }

    /// Number of objects of a pool that cannot be read, though records name them. The pool counts
    /// them as lost from now on.
    pub(crate) fn find_lost(&self, ctx: &Ctx, pool: PoolId) -> leeward_pool::Result<u64> {
        let Some(layout) = self.pools.get(pool).and_then(|p| p.layout()) else { return Ok(0) };
        let is_here = |st: &State, id: &ObjectId| {
            let here = |r: &&SegmentRecord| r.sealed && r.pool == pool && r.object_bytes > 0;
            st.segments.get(id.segment).filter(here).is_some_and(|r| r.generation == id.generation)
        };
        let expected: Vec<(ObjectId, u64)> = {
            let st = self.lock();
            let all = st.segments.iter();
            let all = all.map(|(segment, r)| (r.object(segment).id(), r.object_bytes));
            all.filter(|(id, _)| is_here(&st, id)).collect()
        };
        let lacking = layout.lacking(ctx, &expected)?;
        let lost: Vec<ObjectId> = {
            // others were rewritten or removed meanwhile
            let st = self.lock();
            lacking.into_iter().map(|(id, _)| id).filter(|id| is_here(&st, id)).collect()
        };
        let count = lost.len() as u64;
        layout.note_lost(lost);
        Ok(count)
    }
}

/// Repair.
impl Shard {
    /// One turn of the thread.
    pub(crate) fn pool_repair_turn(&self) {
        if let Err(e) = self.open_away() {
            tracing::warn!("opening pools: {e}");
        }
        if !self.pool_repair_step() {
            self.pool_repair.wait(Duration::from_secs(1));
        }
    }

    /// One step of repair in each pool; `true` when there is more to do.
    pub(crate) fn pool_repair_step(&self) -> bool {
        let now = self.env.now();
        let mut more = false;
        for (id, pool) in self.pools.all() {
            more |= pool.is_time_to_repair(now) && self.repair_step(&pool, now);
            if let Err(e) = self.end_if_drained(id) {
                tracing::warn!("pool {} keeps its hot pool: {e}", self.pool_name(id));
            }
        }
        more
    }

    fn repair_step(&self, pool: &Pool, now: Nanos) -> bool {
        let Some(layout) = pool.layout() else { return false };
        let more = match self.repair(&*layout) {
            Ok(step) => step.more,
            Err(e) => {
                tracing::warn!("repairing pool {}: {e}", layout.spec().name);
                false
            }
        };
        if !more {
            pool.repair_after(now + LOOK_EVERY_NS);
        }
        more
    }

    /// One step of repair. It is more urgent than other background work: until it is done, fewer
    /// stores may be lost than the layout promises.
    pub(crate) fn repair(&self, layout: &dyn Layered) -> leeward_pool::Result<Step> {
        let ctx = Ctx { class: Class::Batch, ..self.work_ctx(Work::Repair, None) };
        self.rested(&ctx, || layout.repair_step(&ctx))
    }
}
