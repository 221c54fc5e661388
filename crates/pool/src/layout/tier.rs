//! A hot pool in front of a cold one.
//!
//! What is put lands on the hot pool and is acknowledged by it. Steps in the background *flush* it, oldest first: copy
//! it to the cold pool, from the time when the hot one is filled to some share; from a higher share on what was flushed
//! is *evicted*: deleted from the hot pool. Reads go to the hot pool if it has the object, else to the cold one.
//!
//! **A full hot pool.** Between that higher share and [`BRIM_PERCENT`] who puts something does a growing part of the
//! flushing himself: of each byte that he puts, so much. At the brim that is all of it, so what is put is put at the
//! speed of the cold pool; before it he is slowed a little, then more: nobody has to guess a rate. While the cold pool
//! fails the hot one takes all it can; when it is full to the last byte the error is `Full`.
//!
//! Which objects are where is found by listing both pools, in the first step, and known from then on. Until then both
//! pools are asked.
//!
//! Lock order: `books`, never held over a call of a pool.

use super::Pool;
use super::health::{Health, Step, TierHealth};
use super::spec::PoolSpec;
use crate::{AlignedBuf, Error, ObjectId, Result, Store};
use leeward_env::Ctx;
use leeward_env::disk::Space;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// From this share of the hot pool on a put flushes as much as it brings.
pub const BRIM_PERCENT: u64 = 95;

/// When what is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierOptions {
    /// From this share of the hot pool on objects are copied to the cold one.
    pub flush_percent: u8,
    /// From this share on those that were copied are deleted from the hot pool, and who puts more is slowed.
    pub evict_percent: u8,
}

impl Default for TierOptions {
    fn default() -> TierOptions {
        TierOptions { flush_percent: 40, evict_percent: 80 }
    }
}

struct Tier {
    hot: Arc<dyn Pool>,
    cold: Arc<dyn Pool>,
    options: TierOptions,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    /// Both pools were listed.
    known: bool,
    /// On the hot pool only, with their lengths.
    unflushed: BTreeMap<ObjectId, u64>,
    /// On both.
    flushed: BTreeMap<ObjectId, u64>,
    /// Being flushed, and whether it was put or deleted meanwhile.
    flushing: BTreeMap<ObjectId, bool>,
    /// Bytes that puts owe to flushing.
    owed: u64,
    flushed_bytes: u64,
    last_error: String,
}

/// A pool that puts to `hot` and keeps in `cold`. Nothing is read or written by this.
///
/// # Panics
/// When the shares are not in order: flush, evict, the brim.
pub fn tier(hot: Arc<dyn Pool>, cold: Arc<dyn Pool>, options: TierOptions) -> Arc<dyn Pool> {
    let (flush, evict) = (u64::from(options.flush_percent), u64::from(options.evict_percent));
    assert!(flush <= evict && evict < BRIM_PERCENT, "shares of a tier: {options:?}");
    Arc::new(Tier { hot, cold, options, books: Mutex::default() })
}

impl Books {
    fn disturb(&mut self, id: ObjectId) {
        self.unflushed.remove(&id);
        self.flushed.remove(&id);
        self.flushing.entry(id).and_modify(|disturbed| *disturbed = true);
    }
}

impl Tier {
    /// Which objects are on which pool.
    fn learn(&self, ctx: &Ctx) -> Result<()> {
        if self.books.lock().known {
            return Ok(());
        }
        let hot = self.hot.list(ctx)?;
        let cold: BTreeMap<ObjectId, u64> = self.cold.list(ctx)?.into_iter().collect();
        let mut books = self.books.lock();
        if !std::mem::replace(&mut books.known, true) {
            for (id, len) in hot {
                if books.unflushed.contains_key(&id) {
                    continue; // put since
                }
                // one of another length there is what an interrupted flush left
                let of = if cold.get(&id) == Some(&len) { &mut books.flushed } else { &mut books.unflushed };
                of.insert(id, len);
            }
        }
        Ok(())
    }

    /// How full the hot pool is, in percent.
    fn fill(&self, more_bytes: u64) -> u64 {
        let Ok(space) = self.hot.space() else { return 0 };
        let used = space.total_bytes.saturating_sub(space.available_bytes).saturating_add(more_bytes);
        (u128::from(used) * 100 / u128::from(space.total_bytes.max(1))) as u64
    }

    /// Copies the oldest object that is only hot. Nothing when there is none.
    fn flush_one(&self, ctx: &Ctx) -> Result<Option<u64>> {
        let next = {
            let mut books = self.books.lock();
            let idle = |id: &ObjectId| !books.flushing.contains_key(id);
            let next = books.unflushed.iter().find(|(id, _)| idle(id)).map(|(id, len)| (*id, *len));
            if let Some((id, _)) = next {
                books.flushing.insert(id, false);
            }
            next
        };
        let Some((id, len)) = next else { return Ok(None) };
        let mut body = AlignedBuf::zeroed(len as usize);
        body.set_len(len as usize);
        let copied = self.hot.get(ctx, id, 0, &mut body).and_then(|()| self.cold.put(ctx, id, &body));
        let mut books = self.books.lock();
        let disturbed = books.flushing.remove(&id).unwrap_or_default();
        match copied {
            Ok(()) if disturbed => {
                let deleted = !books.unflushed.contains_key(&id);
                drop(books);
                if deleted {
                    self.cold.delete(ctx, id)?;
                }
            }
            Ok(()) => {
                books.unflushed.remove(&id);
                books.flushed.insert(id, len);
                books.flushed_bytes += len;
                books.last_error.clear();
            }
            Err(Error::NotFound(_)) if !disturbed => drop(books.unflushed.remove(&id)), // deleted before it was known
            Err(_) if disturbed => {}
            Err(e) => {
                books.last_error = e.to_string();
                return Err(e);
            }
        }
        Ok(Some(len))
    }

    /// Deletes the oldest object from the hot pool that is on both. False when there is none.
    fn evict_one(&self, ctx: &Ctx) -> Result<bool> {
        let next = self.books.lock().flushed.pop_first();
        let Some((id, len)) = next else { return Ok(false) };
        let evicted = self.hot.delete(ctx, id);
        if let Err(e) = evicted {
            self.books.lock().flushed.insert(id, len);
            return Err(e);
        }
        Ok(true)
    }

    /// What a put does before it brings so many bytes: nothing, or a part of the flushing.
    fn help(&self, ctx: &Ctx, bytes: u64) {
        let evict = u64::from(self.options.evict_percent);
        let fill = self.fill(bytes);
        if fill <= evict {
            return;
        }
        while self.fill(bytes) > evict && matches!(self.evict_one(ctx), Ok(true)) {}
        let fill = self.fill(bytes).min(BRIM_PERCENT);
        {
            let mut books = self.books.lock();
            books.owed += bytes * fill.saturating_sub(evict) / (BRIM_PERCENT - evict);
            let all: u64 = books.unflushed.values().sum();
            books.owed = books.owed.min(all);
        }
        loop {
            let owed = self.books.lock().owed;
            let next = self.books.lock().unflushed.first_key_value().map_or(u64::MAX, |(_, len)| *len);
            if owed < next {
                return;
            }
            match self.flush_one(ctx) {
                Ok(Some(len)) => {
                    let mut books = self.books.lock();
                    books.owed = books.owed.saturating_sub(len);
                }
                // the cold pool fails: that is ridden out
                Ok(None) | Err(_) => return self.books.lock().owed = 0,
            }
            while self.fill(bytes) > evict && matches!(self.evict_one(ctx), Ok(true)) {}
        }
    }

    /// Evicts something, or flushes something so that it can be. False when neither can be done.
    fn make_room(&self, ctx: &Ctx) -> bool {
        self.learn(ctx).is_ok()
            && (matches!(self.evict_one(ctx), Ok(true)) || matches!(self.flush_one(ctx), Ok(Some(_))))
    }

    fn is_hot(&self, id: ObjectId) -> bool {
        let books = self.books.lock();
        !books.known || books.unflushed.contains_key(&id) || books.flushed.contains_key(&id)
    }

    /// Asks the hot pool if it may have the object, else or then the cold one.
    fn find<T>(&self, id: ObjectId, mut ask: impl FnMut(&dyn Pool) -> Result<T>) -> Result<T> {
        if self.is_hot(id) {
            match ask(&*self.hot) {
                Err(Error::NotFound(_) | Error::Unavailable { .. } | Error::Io(_)) => {}
                other => return other,
            }
        }
        match ask(&*self.cold) {
            // put meanwhile, or the cold pool fails and nobody knows yet what is hot
            Err(_) if self.is_hot(id) => ask(&*self.hot),
            other => other,
        }
    }
}

impl Store for Tier {
    fn put(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        let bytes = body.len() as u64;
        self.help(ctx, bytes);
        loop {
            match self.hot.put(ctx, id, body) {
                Err(Error::Full) if self.make_room(ctx) => {}
                Ok(()) => break,
                other => return other,
            }
        }
        let mut books = self.books.lock();
        books.disturb(id);
        books.unflushed.insert(id, bytes);
        Ok(())
    }

    fn get(&self, ctx: &Ctx, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.find(id, |pool| pool.get(ctx, id, offset, buf))
    }

    fn len(&self, ctx: &Ctx, id: ObjectId) -> Result<u64> {
        self.find(id, |pool| pool.len(ctx, id))
    }

    fn delete(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        self.books.lock().disturb(id);
        let hot = self.hot.delete(ctx, id);
        let cold = self.cold.delete(ctx, id);
        hot.and(cold)
    }

    fn list(&self, ctx: &Ctx) -> Result<Vec<(ObjectId, u64)>> {
        let mut all: BTreeMap<ObjectId, u64> = self.cold.list(ctx)?.into_iter().collect();
        all.extend(self.hot.list(ctx)?);
        Ok(all.into_iter().collect())
    }

    /// That of the cold pool: all is to go there.
    fn space(&self) -> Result<Space> {
        let mut space = self.cold.space()?;
        let coming: u64 = self.books.lock().unflushed.values().sum();
        space.available_bytes = space.available_bytes.saturating_sub(coming);
        Ok(space)
    }
}

impl Pool for Tier {
    fn spec(&self) -> &PoolSpec {
        self.cold.spec()
    }

    fn health(&self) -> Health {
        let hot_used_percent = self.fill(0);
        let books = self.books.lock();
        let tier = TierHealth {
            hot_used_percent,
            unflushed_objects: books.unflushed.len() as u64,
            unflushed_bytes: books.unflushed.values().sum(),
            flushed_bytes: books.flushed_bytes,
            evictable_bytes: books.flushed.values().sum(),
            last_error: books.last_error.clone(),
            hot: self.hot.health(),
        };
        Health { tier: Some(Box::new(tier)), ..self.cold.health() }
    }

    fn scrub_step(&self, ctx: &Ctx) -> Result<Step> {
        let hot = self.hot.scrub_step(ctx)?;
        if hot.more { Ok(hot) } else { self.cold.scrub_step(ctx) }
    }

    /// Flushes or evicts one object, else what the pools have to do.
    fn repair_step(&self, ctx: &Ctx) -> Result<Step> {
        self.learn(ctx)?;
        let fill = self.fill(0);
        if fill > u64::from(self.options.evict_percent) && self.evict_one(ctx)? {
            return Ok(Step { more: true, pieces: 1, ..Step::default() });
        }
        if fill >= u64::from(self.options.flush_percent) {
            // what goes wrong is in the health, and what the pools have to do goes on
            if let Ok(Some(bytes)) = self.flush_one(ctx) {
                return Ok(Step { more: true, read_bytes: bytes, written_bytes: bytes, pieces: 1 });
            }
        }
        let hot = self.hot.repair_step(ctx)?;
        if hot.more { Ok(hot) } else { self.cold.repair_step(ctx) }
    }
}
