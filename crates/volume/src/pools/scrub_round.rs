//! One scrub of a pool: what it reads, what it found, and its position. The position is kept in the
//! cell's records about once a minute, so that a scrub continues there after the process has ended.
//!
//! Pools with redundancy are read object by object by their layouts ([`leeward_pool::Scrub`]).
//! Pools without a second copy are read segment by segment, with the checksums of the data log. A
//! position is kept only if everything before it is good: damage that was found and not repaired is
//! known in memory only, and has to be found again.

use crate::admin::{Progress, ScrubInfo, ScrubRun};
use crate::format::keys;
use crate::format::scrub::Reached;
use crate::shard::Shard;
use crate::state::Effect;
use leeward_data::PoolId;
use leeward_env::{Ctx, Nanos, Work};
use leeward_fs::{Error, Result};
use leeward_pool::{ObjectId, Pool as Layered};

/// How often the position is kept.
const KEEP_EVERY: Nanos = 60_000_000_000;
/// In place of a pool's number: what the data log verifies.
const SEGMENTS: PoolId = PoolId::MAX;

fn failed(e: leeward_pool::Error) -> Error {
    leeward_data::Error::from(e).into()
}

/// A running scrub.
pub(crate) struct Round<'a> {
    shard: &'a Shard,
    pool: PoolId,
    pub(crate) begun_secs: i64,
    /// The position where it continues, until it is reached.
    from: Option<Reached>,
    found: ScrubInfo,
    reached: Option<Reached>,
    kept_at: Nanos,
    progress: &'a mut dyn FnMut(Progress),
}

impl<'a> Round<'a> {
    /// A scrub of a pool: all of it, or the rest of an unfinished one.
    pub(crate) fn new(
        shard: &'a Shard,
        pool: PoolId,
        from: Option<Reached>,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Round<'a> {
        let mut found = ScrubInfo { pool: shard.pool_name(pool), ..ScrubInfo::default() };
        if let Some(Reached { bytes, bad_pieces, repaired_objects, .. }) = from {
            found = ScrubInfo { bytes, bad_pieces, repaired_objects, ..found };
        }
        let begun_secs = from.map_or_else(|| shard.now().secs, |from| from.begun_secs);
        let kept_at = shard.env.now();
        Round { shard, pool, begun_secs, from, found, reached: None, kept_at, progress }
    }

    /// Reads and verifies everything in the pool, and repairs what it can; of a tier in both pools.
    pub(crate) fn run(&mut self) -> Result<ScrubInfo> {
        let Some(pool) = self.shard.pools.get(self.pool) else {
            return Err(Error::Io(format!("pool {} is gone", self.pool)));
        };
        if let Some(why) = pool.why_away() {
            return Err(Error::Io(why));
        }
        let layouts = match pool.tier() {
            Some(tier) => vec![tier.hot().clone(), tier.cold().clone()],
            None => pool.layout().into_iter().collect(),
        };
        let (pieces, whole): (Vec<_>, Vec<_>) =
            layouts.into_iter().partition(|layout| layout.scrub().is_some());
        let mut stages: Vec<PoolId> = pieces.iter().map(|layout| layout.spec().id).collect();
        if pieces.is_empty() || !whole.is_empty() {
            stages.push(SEGMENTS);
        }
        // a position in a tier that has ended, or the like, means nothing
        self.from = self.from.filter(|from| stages.contains(&from.stage));
        for layout in &pieces {
            self.scrub_pieces(&**layout)?;
        }
        if stages.last() == Some(&SEGMENTS) {
            self.scrub_segments()?;
        } else {
            // a layout cannot know of objects that too few stores have, or none
            let ctx = self.shard.work_ctx(Work::Scrub, None);
            self.shard.find_lost(&ctx, self.pool).map_err(failed)?;
            self.found.lost_objects = pieces.iter().map(|layout| layout.health().lost_objects).sum();
        }
        Ok(self.found.clone())
    }

    /// Whether a stage has to be read, and from where on.
    fn enter(&mut self, stage: PoolId) -> Option<Option<ObjectId>> {
        match self.from {
            Some(from) if from.stage != stage => None, // that was read before
            from => {
                self.from = None;
                Some(from.map(|from| from.after))
            }
        }
    }

    fn scrub_pieces(&mut self, layout: &dyn Layered) -> Result<()> {
        let Some(scrub) = layout.scrub() else { return Ok(()) };
        let stage = layout.spec().id;
        let (name, repaired) = (&layout.spec().name, layout.health().repair.objects_done);
        if let Some(after) = self.enter(stage) {
            scrub.begin(after);
            let ctx = self.shard.work_ctx(Work::Scrub, None);
            loop {
                self.shard.scrubbing.go_on()?;
                let step = self.shard.rested(&ctx, || scrub.step(&ctx)).map_err(failed)?;
                self.found.bytes += step.read_bytes;
                self.found.bad_pieces += step.pieces;
                self.is_at(stage, scrub.reached());
                let h = layout.health().scrub;
                self.report(format!("scrubbing {name}"), h.objects_done, h.objects_done + h.objects_waiting);
                if !step.more {
                    break;
                }
            }
        }
        let before = self.found.repaired_objects;
        loop {
            self.shard.scrubbing.go_on()?;
            let step = self.shard.repair(layout).map_err(failed)?;
            let health = layout.health();
            // background repair may have done some of it
            let done = health.repair.objects_done.saturating_sub(repaired);
            self.found.repaired_objects = before + done;
            self.report(format!("repairing {name}"), done, done + health.degraded_objects);
            if !step.more {
                break;
            }
        }
        let health = layout.health();
        self.found.degraded_objects += health.degraded_objects;
        self.found.lost_objects += health.lost_objects;
        Ok(())
    }

    /// Reads segments without a second copy: the checksums of the data log say what is lost.
    fn scrub_segments(&mut self) -> Result<()> {
        let (shard, pool) = (self.shard, self.pool);
        let Some(after) = self.enter(SEGMENTS) else { return Ok(()) };
        let mut all: Vec<u64> = {
            let st = shard.lock();
            let here = st.segments.iter().filter(|(_, r)| r.sealed && r.pool == pool && r.object_bytes > 0);
            here.map(|(segment, _)| segment).collect()
        };
        all.retain(|segment| after.is_none_or(|after| *segment > after.segment));
        all.sort_unstable();
        let ctx = shard.work_ctx(Work::Scrub, None);
        for (done, segment) in all.iter().enumerate() {
            shard.scrubbing.go_on()?;
            self.report(format!("scrubbing {}", self.found.pool), done as u64, all.len() as u64);
            let object =
                || shard.lock().segments.get(*segment).filter(|r| r.pool == pool).map(|r| r.object(*segment));
            let Some(before) = object() else { continue };
            match shard.log.verify(&ctx, before) {
                Ok(found) => {
                    self.found.bytes += found.bytes;
                    self.found.lost_objects += u64::from(!found.damaged.is_empty());
                }
                // that says nothing of the object
                Err(leeward_data::Error::Store(e)) if e.is_passing() => return Err(Error::Io(e.to_string())),
                // it may have been rewritten or removed meanwhile
                Err(_) => self.found.lost_objects += u64::from(object() == Some(before)),
            }
            let here = ObjectId { segment: *segment, generation: before.generation };
            self.is_at(SEGMENTS, Some(here));
        }
        Ok(())
    }

    fn report(&mut self, phase: String, done: u64, total: u64) {
        let run = ScrubRun { begun_secs: self.begun_secs, phase: phase.clone(), done, total };
        self.shard.scrubbing.runs(self.pool, run);
        (self.progress)(Progress { phase, done, total });
    }

    /// Everything up to this object was read, and is good unless something was found before.
    fn is_at(&mut self, stage: PoolId, after: Option<ObjectId>) {
        let is_new = |after: &ObjectId| self.reached.is_none_or(|r| (r.stage, r.after) != (stage, *after));
        let in_order = self.found.degraded_objects + self.found.lost_objects == 0;
        let Some(after) = after.filter(|after| in_order && is_new(after)) else { return };
        let ScrubInfo { bytes, bad_pieces, repaired_objects, .. } = self.found;
        let begun_secs = self.begun_secs;
        self.reached = Some(Reached { begun_secs, stage, after, bytes, bad_pieces, repaired_objects });
        if self.shard.env.now().saturating_sub(self.kept_at) >= KEEP_EVERY {
            self.keep();
        }
    }

    /// Keeps the position. If that fails, a later scrub has more to read.
    pub(crate) fn keep(&mut self) {
        self.kept_at = self.shard.env.now();
        let Some(reached) = self.reached else { return };
        let pool = self.pool;
        let kept = self.shard.transact(&Ctx::system(), |tx| {
            if tx.st.has_pool(pool) {
                tx.put(keys::scrub_place(pool), reached.encode());
                tx.then(Effect::ScrubPlace(pool, Some(reached)));
            }
            Ok(())
        });
        if let Err(e) = kept {
            tracing::warn!("how far the scrub of pool {} is cannot be kept: {e}", self.found.pool);
        }
    }
}
