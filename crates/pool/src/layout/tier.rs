//! A hot pool in front of a cold one.
//!
//! What is put lands on the hot pool and is acknowledged by it. Steps in the background *flush* it, oldest first: copy
//! it to the cold pool, from the time when the hot one is filled to some share; from a higher share on what was flushed
//! is *evicted*: deleted from the hot pool. Reads go to the hot pool if it has the object, else to the cold one.
//!
//! **A full hot pool.** Between that higher share and [`BRIM_PERCENT`] who puts something does a growing part of the
//! flushing himself: of each byte that he puts, so much. At the brim that is all of it, so what is put is put at the
//! speed of the cold pool; before it he is slowed a little, then more: nobody has to guess a rate. Who fills memory
//! for us is slowed meanwhile, too ([`Store::is_pressed`]), so that each of his writes takes its time and not one in sixteen all of it. While the cold pool
//! fails the hot one takes all it can; when it is full to the last byte the error is `Full`.
//!
//! **What is where** is found by listing the hot pool, in the first step, and known from then on. Until then both pools are
//! asked. What the cold pool has under a name when the tier is opened proves nothing: a flush may have been interrupted, and
//! what it left may be torn, or not be durable yet. So all that is on the hot pool then is flushed (again), and only what a
//! put to the cold pool has returned for is evicted.
//!
//! **The end of a tier** ([`TierOptions::ending`]): what is put goes to the cold pool, and the hot one is emptied. Once it has
//! ended ([`Tier::end`]) nothing is put to the hot pool, whatever fails: its owner may be writing down that it has none of the data.
//!
//! Lock order: `books`, never held over a call of a pool.

use super::Pool;
use super::books::{Books, Hot};
use super::health::{Health, Step, TierHealth};
use super::spec::PoolSpec;
use crate::{AlignedBuf, Error, ObjectId, Result, Store};
use leeward_env::disk::Space;
use leeward_env::{Ctx, Env};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// From this share of the hot pool on a put flushes as much as it brings.
pub const BRIM_PERCENT: u8 = 95;

/// Shares are reckoned in thousandths.
const WHOLE: u64 = 1000;

/// When what is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierOptions {
    /// From this share of the hot pool on objects are copied to the cold one.
    pub flush_percent: u8,
    /// From this share on those that were copied are deleted from the hot pool, and who puts more is slowed.
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
    /// Whether the shares are in order: flush, evict, the brim.
    pub fn is_sound(self) -> bool {
        self.flush_percent <= self.evict_percent && self.evict_percent < BRIM_PERCENT
    }

    fn flush(self) -> u64 {
        if self.ending { 0 } else { u64::from(self.flush_percent) * WHOLE / 100 }
    }

    fn evict(self) -> u64 {
        u64::from(self.evict_percent) * WHOLE / 100
    }

    fn brim() -> u64 {
        u64::from(BRIM_PERCENT) * WHOLE / 100
    }

    /// Which part of what is put, in thousandths, is to be flushed by who puts it, at such a fill.
    fn part(self, fill: u64) -> u64 {
        let (evict, brim) = (self.evict(), TierOptions::brim());
        fill.min(brim).saturating_sub(evict) * WHOLE / (brim - evict)
    }
}

/// A pool that puts to a hot one and keeps in a cold one.
pub struct Tier {
    env: Env,
    hot: Arc<dyn Pool>,
    cold: Arc<dyn Pool>,
    /// Those of all tiers over the same two pools: one may be used while the next one is made.
    books: Arc<Mutex<Books>>,
}

impl Tier {
    /// A tier over these pools. Nothing is read or written by this.
    ///
    /// # Panics
    /// When the options are not sound.
    pub fn new(env: &Env, hot: Arc<dyn Pool>, cold: Arc<dyn Pool>, options: TierOptions) -> Arc<Tier> {
        Tier::over(env, hot, cold, options, Arc::default())
    }

    /// The same tier after its pools were assembled anew, or with other options, which hold for the old one, too.
    ///
    /// # Panics
    /// When the options are not sound.
    pub fn anew(&self, hot: Arc<dyn Pool>, cold: Arc<dyn Pool>, options: TierOptions) -> Arc<Tier> {
        self.books.lock().look_again();
        Tier::over(&self.env, hot, cold, options, self.books.clone())
    }

    fn over(
        env: &Env,
        hot: Arc<dyn Pool>,
        cold: Arc<dyn Pool>,
        options: TierOptions,
        books: Arc<Mutex<Books>>,
    ) -> Arc<Tier> {
        assert!(options.is_sound(), "shares of a tier: {options:?}");
        books.lock().set_options(options);
        Arc::new(Tier { env: env.clone(), hot, cold, books })
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
        let books = self.books.lock();
        books.options.ending && books.is_empty()
    }

    /// Ends the tier if the hot pool is empty and nothing is on its way there. From then on nothing is put there, so that
    /// whoever was told so may take the hot pool away.
    pub fn end(&self) -> bool {
        self.books.lock().end()
    }

    /// Learns which objects are on the hot pool.
    fn learn(&self, ctx: &Ctx) -> Result<()> {
        if self.books.lock().is_known() {
            return Ok(());
        }
        let hot = self.hot.list(ctx)?;
        self.books.lock().learn(hot);
        Ok(())
    }

    /// How full the hot pool is with so many bytes more, in thousandths.
    fn fill(&self, more_bytes: u64) -> u64 {
        let Ok(space) = self.hot.space() else { return 0 };
        let used = space.total_bytes.saturating_sub(space.available_bytes).saturating_add(more_bytes);
        (u128::from(used) * u128::from(WHOLE) / u128::from(space.total_bytes.max(1))) as u64
    }

    /// Copies the oldest object that is only hot, if there is one, and gives its bytes; 0 when it was left as it is.
    fn flush_one(&self, ctx: &Ctx) -> Result<Option<u64>> {
        let Some((id, hot)) = self.books.lock().begin_flush(self.env.now()) else { return Ok(None) };
        let body = self.read_hot(ctx, id, hot);
        let copied = match &body {
            Ok(body) => self.put_cold(ctx, id, body),
            Err(_) => Ok(()),
        };
        let now = self.env.now();
        let mut books = self.books.lock();
        let (disturbed, wanted) = books.end_flush(id);
        match (body, copied) {
            (Ok(_), Ok(())) if disturbed => {
                drop(books);
                if !wanted {
                    self.cold.delete(ctx, id)?;
                }
            }
            _ if disturbed => {}
            (Ok(body), Ok(())) => {
                books.is_flushed(id, body.len() as u64);
                return Ok(Some(body.len() as u64));
            }
            (Err(Error::NotFound(_)), _) => books.is_gone(id),
            (Err(e), _) => books.set_aside(id, now, e.to_string()),
            (Ok(_), Err(e)) => {
                books.refused(now, e.to_string());
                return Err(e);
            }
        }
        Ok(Some(0))
    }

    /// What has this name already is of an earlier put, or of a flush that a crash ended: in a store that keeps what it has it is replaced
    /// in one step, so that a store that does not delete now holds nothing up.
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

    /// Deletes the oldest object from the hot pool that is on both. False when there is none.
    fn evict_one(&self, ctx: &Ctx) -> Result<bool> {
        let Some((id, bytes)) = self.books.lock().begin_evict() else { return Ok(false) };
        self.hot.delete(ctx, id).inspect_err(|_| self.books.lock().not_evicted(id, bytes))?;
        Ok(true)
    }

    /// Evicts until there is room for so many bytes below the share from which on that is done.
    fn evict_for(&self, ctx: &Ctx, bytes: u64) {
        let evict = self.options().evict();
        while self.fill(bytes) > evict && matches!(self.evict_one(ctx), Ok(true)) {}
    }

    /// What a put does before it brings so many bytes: nothing, or a part of the flushing.
    fn help(&self, ctx: &Ctx, bytes: u64) {
        if self.fill(bytes) <= self.options().evict() {
            return;
        }
        self.evict_for(ctx, bytes);
        let part = self.options().part(self.fill(bytes));
        {
            let mut books = self.books.lock();
            if !books.takes_help(self.env.now()) {
                return; // the cold pool fails: that is ridden out
            }
            books.owe(bytes * part / WHOLE);
        }
        while let Some(claimed) = self.claim() {
            match self.flush_one(ctx) {
                Ok(Some(0)) => self.books.lock().owe(claimed),
                Ok(Some(_)) => self.evict_for(ctx, bytes),
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn claim(&self) -> Option<u64> {
        self.books.lock().claim()
    }

    /// Evicts something, or flushes something so that it can be. False when neither can be done.
    fn make_room(&self, ctx: &Ctx) -> bool {
        self.learn(ctx).is_ok()
            && (matches!(self.evict_one(ctx), Ok(true)) || matches!(self.flush_one(ctx), Ok(Some(_))))
    }

    fn options(&self) -> TierOptions {
        self.books.lock().options
    }

    fn may_be_hot(&self, id: ObjectId) -> bool {
        self.books.lock().may_be_hot(id)
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
                    self.books.lock().found(id);
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

    /// What an earlier put of this name left on the hot pool, which failed, must not be taken for one that goes to the cold
    /// pool. Where it cannot be deleted now the put fails, and is repeated: put to the hot pool it might be what a delete
    /// meets that is carried out late.
    fn clear_hot(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        let may_be_left = self.books.lock().may_be_left(id);
        if may_be_left { self.hot.delete(ctx, id) } else { Ok(()) }
    }

    /// Flushes or evicts one object, if it is time to. What goes wrong is in the health.
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
        if self.books.lock().begin_put(id) {
            let put = self.put_hot(ctx, id, body);
            self.books.lock().end_hot_put(id, put.is_ok().then_some(body.len() as u64));
            return put;
        }
        let put = self.clear_hot(ctx, id).and_then(|()| self.cold.put(ctx, id, body));
        self.books.lock().end_cold_put(id, put.is_ok());
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

    /// What is surely on the hot pool only is deleted there only: that works while the cold one is away.
    fn delete(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        let may_be_cold = self.books.lock().forget(id);
        let hot = self.hot.delete(ctx, id);
        let cold = if may_be_cold { self.cold.delete(ctx, id) } else { Ok(()) };
        hot.and(cold)
    }

    /// First the hot pool: what is evicted meanwhile is listed twice, not missed.
    fn list(&self, ctx: &Ctx) -> Result<Vec<(ObjectId, u64)>> {
        let hot: BTreeMap<ObjectId, u64> = self.hot.list(ctx)?.into_iter().collect();
        let mut all: BTreeMap<ObjectId, u64> = self.cold.list(ctx)?.into_iter().collect();
        all.extend(hot);
        Ok(all.into_iter().collect())
    }

    /// That of the cold pool, as all is to go there; while it does not say, that of the hot one.
    fn space(&self) -> Result<Space> {
        let mut space = match self.cold.space() {
            Ok(space) if space.total_bytes > 0 => space,
            _ => return self.hot.space(),
        };
        let coming = self.books.lock().unflushed().1;
        space.available_bytes = space.available_bytes.saturating_sub(coming);
        Ok(space)
    }

    fn is_pressed(&self) -> bool {
        let (options, helps) = {
            let books = self.books.lock();
            (books.options, books.takes_help(self.env.now()))
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
        let books = self.books.lock();
        let (options, (unflushed_objects, unflushed_bytes)) = (books.options, books.unflushed());
        let slows = !options.ending && books.takes_help(self.env.now());
        let tier = TierHealth {
            hot_total_bytes: space.total_bytes,
            hot_available_bytes: space.available_bytes,
            hot_used_percent: fill * 100 / WHOLE,
            pressure_percent: if slows { options.part(fill) * 100 / WHOLE } else { 0 },
            searched: books.is_known(),
            unflushed_objects,
            unflushed_bytes,
            flushed_bytes: books.flushed_bytes(),
            evictable_bytes: books.evictable_bytes(),
            last_error: books.last_error().to_string(),
            hot: self.hot.health(),
        };
        drop(books);
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

    /// Flushes or evicts one object, else what the pools have to do.
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
