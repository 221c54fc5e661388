//! A hot pool in front of a cold one.
//!
//! A put lands on the hot pool, which acknowledges it. Background steps *flush* objects, oldest
//! first: they copy them to the cold pool, from the time when the hot pool is filled to some share.
//! From a higher share on, flushed objects are *evicted*: deleted from the hot pool. A read goes to
//! the hot pool if that has the object, else to the cold one.
//!
//! **A full hot pool.** Between that higher share and [`PUT_PERCENT_MAX`] each writer does a
//! growing part of the flushing itself, in proportion to the bytes that it puts. At
//! [`PUT_PERCENT_MAX`] it flushes as much as it puts, so it puts at the speed of the cold pool.
//! Before that it is slowed a little, then more: nobody has to guess a rate. Writers that fill
//! memory for us are slowed meanwhile, too ([`Store::is_pressed`]), so that each of their writes
//! takes a little longer, and not one in sixteen the whole time. While the cold pool fails, the hot
//! pool takes all it can. When it is full to the last byte the error is `Full`.
//!
//! **Where objects are.** The first step lists the hot pool; from then on the tier knows. Until
//! then both pools are asked. An object on the cold pool when the tier is opened proves nothing: a
//! flush may have been interrupted, and its copy may be torn, or not durable yet. So everything
//! that is on the hot pool then is flushed (again), and an object is evicted only after a put to
//! the cold pool has returned.
//!
//! **The end of a tier** ([`TierOptions::ending`]): puts go to the cold pool, and the hot one is
//! emptied. Once the tier has ended ([`Tier::end`]) nothing is put to the hot pool, whatever fails:
//! its owner may be recording that it has none of the data.
//!
//! Lock order: `tier_index`, never held over a call of a pool.

use super::Pool;
use super::health::{Health, Step, TierHealth};
use super::spec::PoolSpec;
use super::tier_index::{Hot, TierIndex};
use crate::{AlignedBuf, Error, ObjectId, Result, Store};
use leeward_env::disk::Space;
use leeward_env::{Ctx, Env};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// From this share of the hot pool on a put flushes as much as it brings.
pub const PUT_PERCENT_MAX: u8 = 95;

/// Shares are computed in thousandths.
const WHOLE: u64 = 1000;

/// From which fill on objects are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierOptions {
    /// From this share of the hot pool on objects are copied to the cold one, percent.
    pub flush_percent: u8,
    /// From this share on copied objects are deleted from the hot pool, and writers are slowed,
    /// percent.
    pub evict_percent: u8,
    /// The hot pool is to become empty.
    pub ending: bool,
}

impl Default for TierOptions {
    fn default() -> TierOptions {
        TierOptions { flush_percent: 40, evict_percent: 80, ending: false }
    }
}

impl TierOptions {
    /// Whether the shares are in order: flush, evict, [`PUT_PERCENT_MAX`].
    pub fn is_sound(self) -> bool {
        self.flush_percent <= self.evict_percent && self.evict_percent < PUT_PERCENT_MAX
    }

    fn flush(self) -> u64 {
        if self.ending { 0 } else { u64::from(self.flush_percent) * WHOLE / 100 }
    }

    fn evict(self) -> u64 {
        u64::from(self.evict_percent) * WHOLE / 100
    }

    fn put_limit() -> u64 {
        u64::from(PUT_PERCENT_MAX) * WHOLE / 100
    }

    /// The part of a put, in thousandths, that its writer has to flush at this fill.
    fn part(self, fill: u64) -> u64 {
        let (evict, put_limit) = (self.evict(), TierOptions::put_limit());
        fill.min(put_limit).saturating_sub(evict) * WHOLE / (put_limit - evict)
    }
}

/// A pool that puts to a hot one and keeps objects in a cold one.
pub struct Tier {
    env: Env,
    hot: Arc<dyn Pool>,
    cold: Arc<dyn Pool>,
    /// Shared by all tiers over the same two pools: one may be used while the next one is made.
    tier_index: Arc<Mutex<TierIndex>>,
}

impl Tier {
    /// A tier over these pools. This reads and writes nothing.
    ///
    /// # Panics
    /// When the options are not sound.
    pub fn new(env: &Env, hot: Arc<dyn Pool>, cold: Arc<dyn Pool>, options: TierOptions) -> Arc<Tier> {
        Tier::over(env, hot, cold, options, Arc::default())
    }

    /// The same tier after its pools were assembled anew, or with other options. The options hold
    /// for the old tier, too.
    ///
    /// # Panics
    /// When the options are not sound.
    pub fn anew(&self, hot: Arc<dyn Pool>, cold: Arc<dyn Pool>, options: TierOptions) -> Arc<Tier> {
        self.tier_index.lock().retry();
        Tier::over(&self.env, hot, cold, options, self.tier_index.clone())
    }

    fn over(
        env: &Env,
        hot: Arc<dyn Pool>,
        cold: Arc<dyn Pool>,
        options: TierOptions,
        tier_index: Arc<Mutex<TierIndex>>,
    ) -> Arc<Tier> {
        assert!(options.is_sound(), "shares of a tier: {options:?}");
        tier_index.lock().set_options(options);
        Arc::new(Tier { env: env.clone(), hot, cold, tier_index })
    }

    /// The hot pool.
    pub fn hot(&self) -> &Arc<dyn Pool> {
        &self.hot
    }

    /// The cold pool.
    pub fn cold(&self) -> &Arc<dyn Pool> {
        &self.cold
    }

    /// Whether the tier has ended: the hot pool is empty, and stays so.
    pub fn is_drained(&self) -> bool {
        let tier_index = self.tier_index.lock();
        tier_index.options.ending && tier_index.is_empty()
    }

    /// Ends the tier if the hot pool is empty and nothing is on its way there. From then on nothing
    /// is put there, so the caller that gets `true` may remove the hot pool.
    pub fn end(&self) -> bool {
        self.tier_index.lock().end()
    }

    /// Lists the hot pool.
    fn learn(&self, ctx: &Ctx) -> Result<()> {
        if self.tier_index.lock().is_known() {
            return Ok(());
        }
        let hot = self.hot.list(ctx)?;
        self.tier_index.lock().learn(hot);
        Ok(())
    }

    /// How full the hot pool is with `more_bytes` more, in thousandths.
    fn fill(&self, more_bytes: u64) -> u64 {
        let Ok(space) = self.hot.space() else { return 0 };
        let used = space.total_bytes.saturating_sub(space.available_bytes).saturating_add(more_bytes);
        (u128::from(used) * u128::from(WHOLE) / u128::from(space.total_bytes.max(1))) as u64
    }

    /// Copies the oldest object that only the hot pool has, if there is one, and returns its bytes;
    /// 0 when the copy was skipped.
    fn flush_one(&self, ctx: &Ctx) -> Result<Option<u64>> {
        let Some((id, hot)) = self.tier_index.lock().begin_flush(self.env.now()) else { return Ok(None) };
        let body = self.read_hot(ctx, id, hot);
        let copied = match &body {
            Ok(body) => self.put_cold(ctx, id, body),
            Err(_) => Ok(()),
        };
        let now = self.env.now();
        let mut tier_index = self.tier_index.lock();
        let (disturbed, wanted) = tier_index.end_flush(id);
        match (body, copied) {
            (Ok(_), Ok(())) if disturbed => {
                drop(tier_index);
                if !wanted {
                    self.cold.delete(ctx, id)?;
                }
            }
            _ if disturbed => {}
            (Ok(body), Ok(())) => {
                tier_index.is_flushed(id, body.len() as u64);
                return Ok(Some(body.len() as u64));
            }
            (Err(Error::NotFound(_)), _) => tier_index.is_gone(id),
            (Err(e), _) => tier_index.set_aside(id, now, e.to_string()),
            (Ok(_), Err(e)) => {
                tier_index.refused(now, e.to_string());
                return Err(e);
            }
        }
        Ok(Some(0))
    }

    /// An object of this name on the cold pool is of an earlier put, or of a flush that a crash
    /// ended. In a store that keeps existing objects it is replaced in one step, so a store that
    /// cannot delete now holds nothing up.
    fn put_cold(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        match self.cold.put(ctx, id, body) {
            Err(Error::Exists(_)) => self.cold.replace(ctx, id, body),
            other => other,
        }
    }

    fn read_hot(&self, ctx: &Ctx, id: ObjectId, hot: Hot) -> Result<AlignedBuf> {
        // a listing may be wrong about an object that not all stores have whole
        let len = hot.len.map_or_else(|| self.hot.len(ctx, id), Ok)? as usize;
        let mut body = AlignedBuf::zeroed(len);
        body.set_len(len);
        self.hot.get(ctx, id, 0, &mut body)?;
        Ok(body)
    }

    /// Deletes from the hot pool the oldest object that both pools have. False when there is none.
    fn evict_one(&self, ctx: &Ctx) -> Result<bool> {
        let Some((id, bytes)) = self.tier_index.lock().begin_evict() else { return Ok(false) };
        self.hot.delete(ctx, id).inspect_err(|_| self.tier_index.lock().not_evicted(id, bytes))?;
        Ok(true)
    }

    /// Evicts until this many bytes fit below the share from which on objects are evicted.
    fn evict_for(&self, ctx: &Ctx, bytes: u64) {
        let evict = self.options().evict();
        while self.fill(bytes) > evict && matches!(self.evict_one(ctx), Ok(true)) {}
    }

    /// What a put does before it brings `bytes`: nothing, or a part of the flushing.
    fn help(&self, ctx: &Ctx, bytes: u64) {
        if self.fill(bytes) <= self.options().evict() {
            return;
        }
        self.evict_for(ctx, bytes);
        let part = self.options().part(self.fill(bytes));
        {
            let mut tier_index = self.tier_index.lock();
            if !tier_index.takes_help(self.env.now()) {
                return; // the cold pool fails: that is ridden out
            }
            tier_index.add_debt(bytes * part / WHOLE);
        }
        while let Some(claimed) = self.claim() {
            match self.flush_one(ctx) {
                Ok(Some(0)) => self.tier_index.lock().add_debt(claimed),
                Ok(Some(_)) => self.evict_for(ctx, bytes),
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn claim(&self) -> Option<u64> {
        self.tier_index.lock().claim()
    }

    /// Evicts an object, or flushes one so that it can be evicted. False when neither can be done.
    fn make_room(&self, ctx: &Ctx) -> bool {
        self.learn(ctx).is_ok()
            && (matches!(self.evict_one(ctx), Ok(true)) || matches!(self.flush_one(ctx), Ok(Some(_))))
    }

    fn options(&self) -> TierOptions {
        self.tier_index.lock().options
    }

    fn may_be_hot(&self, id: ObjectId) -> bool {
        self.tier_index.lock().may_be_hot(id)
    }

    /// Asks the hot pool if it may have the object, else or then the cold one.
    fn find<T>(&self, id: ObjectId, mut ask: impl FnMut(&dyn Pool) -> Result<T>) -> Result<T> {
        let hot_error = match self.may_be_hot(id).then(|| ask(&*self.hot)) {
            None | Some(Err(Error::NotFound(_))) => None,
            Some(Err(e)) if !matches!(e, Error::Short(_)) => Some(e),
            Some(answer) => return answer,
        };
        match (ask(&*self.cold), hot_error) {
            (Err(Error::NotFound(_)), Some(e)) => Err(e),
            // put meanwhile, or on a store that was not listed
            (Err(e), None) => match ask(&*self.hot) {
                Ok(answer) => {
                    self.tier_index.lock().found(id);
                    Ok(answer)
                }
                Err(_) => Err(e),
            },
            (answer, _) => answer,
        }
    }

    /// Puts to the hot pool, which makes room as long as it can.
    fn put_hot(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        self.help(ctx, body.len() as u64);
        loop {
            match self.hot.put(ctx, id, body) {
                Err(Error::Full) if self.make_room(ctx) => {}
                other => return other,
            }
        }
    }

    /// Deletes what a failed earlier put of this name left on the hot pool, so that it is not taken
    /// for the object that goes to the cold pool. If it cannot be deleted now, this put fails, and
    /// is repeated. A put to the hot pool instead might meet a delete that is carried out late.
    fn clear_hot(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        let may_be_left = self.tier_index.lock().may_be_left(id);
        if may_be_left { self.hot.delete(ctx, id) } else { Ok(()) }
    }

    /// Flushes or evicts one object, if it is time to. Errors go to the health.
    fn move_down(&self, ctx: &Ctx) -> Option<Step> {
        let (options, fill) = (self.options(), self.fill(0));
        let one = Step { more: true, pieces: 1, ..Step::default() };
        if (options.ending || fill > options.evict()) && matches!(self.evict_one(ctx), Ok(true)) {
            return Some(one);
        }
        if fill >= options.flush()
            && let Ok(Some(bytes)) = self.flush_one(ctx)
        {
            return Some(Step { read_bytes: bytes, written_bytes: bytes, ..one });
        }
        None
    }
}

impl Store for Tier {
    fn put(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        if self.tier_index.lock().begin_put(id) {
            let put = self.put_hot(ctx, id, body);
            self.tier_index.lock().end_hot_put(id, put.is_ok().then_some(body.len() as u64));
            return put;
        }
        let put = self.clear_hot(ctx, id).and_then(|()| self.cold.put(ctx, id, body));
        self.tier_index.lock().end_cold_put(id, put.is_ok());
        put
    }

    fn get(&self, ctx: &Ctx, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.find(id, |pool| pool.get(ctx, id, offset, buf))
    }

    fn len(&self, ctx: &Ctx, id: ObjectId) -> Result<u64> {
        self.find(id, |pool| pool.len(ctx, id))
    }

    fn settle(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        self.find(id, |pool| pool.settle(ctx, id))
    }

    /// An object that is surely on the hot pool only is deleted there only: that works while the
    /// cold pool is away.
    fn delete(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        let may_be_cold = self.tier_index.lock().forget(id);
        let hot = self.hot.delete(ctx, id);
        let cold = if may_be_cold { self.cold.delete(ctx, id) } else { Ok(()) };
        hot.and(cold)
    }

    /// Lists the hot pool first: an object that is evicted meanwhile is listed twice, not missed.
    fn list(&self, ctx: &Ctx) -> Result<Vec<(ObjectId, u64)>> {
        let hot: BTreeMap<ObjectId, u64> = self.hot.list(ctx)?.into_iter().collect();
        let mut all: BTreeMap<ObjectId, u64> = self.cold.list(ctx)?.into_iter().collect();
        all.extend(hot);
        Ok(all.into_iter().collect())
    }

    /// The space of the cold pool, as everything goes there in the end. While it does not answer,
    /// the space of the hot one.
    fn space(&self) -> Result<Space> {
        let mut space = match self.cold.space() {
            Ok(space) if space.total_bytes > 0 => space,
            _ => return self.hot.space(),
        };
        let coming = self.tier_index.lock().unflushed().1;
        space.available_bytes = space.available_bytes.saturating_sub(coming);
        Ok(space)
    }

    fn is_stuck(&self) -> bool {
        self.hot.is_stuck() || self.cold.is_stuck()
    }

    fn is_pressed(&self) -> bool {
        let (options, helps) = {
            let tier_index = self.tier_index.lock();
            (tier_index.options, tier_index.takes_help(self.env.now()))
        };
        helps && !options.ending && self.fill(0) > options.evict()
    }
}

impl Pool for Tier {
    fn spec(&self) -> &PoolSpec {
        self.cold.spec()
    }

    fn health(&self) -> Health {
        let (space, fill) = (self.hot.space().unwrap_or_default(), self.fill(0));
        let tier_index = self.tier_index.lock();
        let (options, (unflushed_objects, unflushed_bytes)) = (tier_index.options, tier_index.unflushed());
        let slows = !options.ending && tier_index.takes_help(self.env.now());
        let tier = TierHealth {
            hot_total_bytes: space.total_bytes,
            hot_available_bytes: space.available_bytes,
            hot_used_percent: fill * 100 / WHOLE,
            pressure_percent: if slows { options.part(fill) * 100 / WHOLE } else { 0 },
            searched: tier_index.is_known(),
            unflushed_objects,
            unflushed_bytes,
            flushed_bytes: tier_index.flushed_bytes(),
            evictable_bytes: tier_index.evictable_bytes(),
            last_error: tier_index.last_error().to_string(),
            hot: self.hot.health(),
        };
        drop(tier_index);
        Health { tier: Some(Box::new(tier)), ..self.cold.health() }
    }

    fn lacking(&self, ctx: &Ctx, expected: &[(ObjectId, u64)]) -> Result<Vec<(ObjectId, u64)>> {
        // first the cold pool: what is flushed meanwhile is on both, not on neither
        let not_cold = self.cold.lacking(ctx, expected)?;
        let nowhere = if not_cold.is_empty() { not_cold } else { self.hot.lacking(ctx, &not_cold)? };
        // or flushed and evicted in between
        if nowhere.is_empty() { Ok(nowhere) } else { self.cold.lacking(ctx, &nowhere) }
    }

    fn note_lost(&self, objects: Vec<ObjectId>) {
        self.cold.note_lost(objects);
    }

    /// Flushes or evicts one object, else does a repair step of the pools.
    fn repair_step(&self, ctx: &Ctx) -> Result<Step> {
        let learned = self.learn(ctx);
        if let Some(step) = self.move_down(ctx) {
            return Ok(step);
        }
        let hot = self.hot.repair_step(ctx);
        if let Ok(step) = &hot
            && step.more
        {
            return hot;
        }
        let cold = self.cold.repair_step(ctx)?;
        if cold.more { Ok(cold) } else { learned.and(hot) }
    }
}
