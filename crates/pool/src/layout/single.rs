//! `single`: one store keeps each object as it is, without any additions. A store from the time
//! before layouts is a `single` pool.
//!
//! Reads verify nothing here: an object's checksums belong to the data log, and there is no second
//! copy to turn to. While a draining store is being emptied into the active one, objects are looked
//! for on both.
//!
//! **Emptying a store** deletes the only other copy of each object. So an object is deleted there
//! only after the same bytes, or another whole object of its name ([`IsWhole`]), were read back
//! from the active store. Whatever else a store answers leaves both copies as they are. An error
//! says nothing about an object, and a length says little, as an interrupted put may have left a
//! torn object under its name. An object that is damaged is moved like others, so that a store can
//! be emptied, but only when it reads the same after [`DOUBT`]: a store that gives other bytes than
//! it has, such as another object's, may do so again and again for a while.
//!
//! Lock order: `drain`, held during a step (and a delete while a store is draining), then `figures`
//! and those of the stores.

use super::health::{Health, Progress, Step};
use super::patient::Patient;
use super::pool_store::PoolStore;
use super::spec::{Layout, PoolSpec, StoreState};
use super::{IsWhole, Member, Pool};
use crate::{AlignedBuf, Error, ObjectId, Result, Store};
use leeward_env::disk::Space;
use leeward_env::{Ctx, Env, Nanos};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A damaged object is moved when it reads the same after this time.
const DOUBT: Nanos = 3_600_000_000_000;

pub(crate) struct Single {
    env: Env,
    spec: PoolSpec,
    home: Patient,
    /// The store that is being emptied into `home`.
    old: Option<Patient>,
    /// Objects still to be moved, the last one first.
    drain: Mutex<Vec<(ObjectId, u64)>>,
    /// Damaged objects: what they were read as, and since when.
    doubted: Mutex<BTreeMap<ObjectId, (u32, Nanos)>>,
    figures: Mutex<Figures>,
    is_whole: IsWhole,
}

#[derive(Default)]
struct Figures {
    repair: Progress,
    searched: bool,
    /// Objects that the owner misses.
    missed: BTreeSet<ObjectId>,
}

impl Single {
    /// A pool of these stores. The spec is checked, and has as many stores as there are members.
    pub(crate) fn new(env: &Env, spec: &PoolSpec, members: Vec<Member>, is_whole: IsWhole) -> Single {
        let (mut home, mut old) = (None, None);
        for (store, member) in spec.stores.iter().zip(members) {
            let pool_store = Some(Patient(Arc::new(PoolStore::new(env, store, member))));
            *(if store.state == StoreState::Draining { &mut old } else { &mut home }) = pool_store;
        }
        Single {
            env: env.clone(),
            spec: spec.clone(),
            home: home.expect("a checked spec has a home in each slot"),
            old,
            drain: Mutex::default(),
            doubted: Mutex::default(),
            figures: Mutex::default(),
            is_whole,
        }
    }

    /// Asks the store where the object belongs, then the one where it may still be, then the first
    /// again: the object may have been moved in between.
    fn find<T>(&self, mut ask: impl FnMut(&Patient) -> Result<T>) -> Result<T> {
        let missing = match (ask(&self.home), &self.old) {
            // an interrupted copy is short
            (Err(e @ (Error::NotFound(_) | Error::Short(_))), Some(_)) => e,
            (other, _) => return other,
        };
        let Some(old) = &self.old else { return Err(missing) };
        match ask(old) {
            Err(Error::NotFound(_)) => ask(&self.home),
            other => other,
        }
    }

    /// Moves an object from the old store, unless it is here already.
    fn take_over(&self, ctx: &Ctx, old: &Patient, id: ObjectId) -> Result<Step> {
        let mut step = Step { more: true, ..Step::default() };
        let Some(body) = old.read_all(ctx, id)? else { return Ok(step) }; // deleted meanwhile
        let there = self.home.read_all(ctx, id)?;
        if there.as_deref() != Some(&*body) {
            match self.judge(ctx, old, id, &body, there.as_deref())? {
                Counts::Home => {}
                Counts::Unclear => return Ok(step),
                Counts::Old => {
                    if there.is_none() {
                        self.home.put(ctx, id, body.buffer())?;
                    } else {
                        self.home.replace(ctx, id, body.buffer())?;
                    }
                    if self.home.read_all(ctx, id)?.as_deref() != Some(&*body) {
                        return Err(doubt(format!("{}: {id:?} is not what was put", self.home.url())));
                    }
                    let len = body.len() as u64;
                    (step.read_bytes, step.written_bytes, step.pieces) = (len, len, 1);
                }
            }
        }
        if step.pieces == 0 {
            // the object here may be of a process that was killed before it synced it
            self.home.settle(ctx, id)?;
        }
        old.delete(ctx, id)?;
        self.doubted.lock().remove(&id);
        Ok(step)
    }

    /// Which of two different objects of one name counts. `there`: what the active store has.
    fn judge(
        &self,
        ctx: &Ctx,
        old: &Patient,
        id: ObjectId,
        body: &[u8],
        there: Option<&[u8]>,
    ) -> Result<Counts> {
        if there.is_some_and(|there| (self.is_whole)(id, there)) {
            return Ok(Counts::Home); // put since
        }
        if (self.is_whole)(id, body) {
            return Ok(Counts::Old);
        }
        if there.is_some() {
            let (here, old) = (self.home.url(), old.url());
            return Err(doubt(format!("{id:?} is damaged on {here}, and otherwise on {old}: both stay")));
        }
        if old.read_all(ctx, id)?.as_deref() != Some(body) {
            return Err(doubt(format!("{}: {id:?} is not the same when read again", old.url())));
        }
        Ok(if self.was_so_for_long(old, id, body) { Counts::Old } else { Counts::Unclear })
    }

    /// Whether a damaged object has read the same for [`DOUBT`].
    fn was_so_for_long(&self, old: &Patient, id: ObjectId, body: &[u8]) -> bool {
        let (now, sum) = (self.env.now(), super::piece::crc(body));
        let mut doubted = self.doubted.lock();
        match doubted.get(&id) {
            Some((before, since)) if *before == sum => now - since >= DOUBT,
            _ => {
                doubted.insert(id, (sum, now));
                tracing::warn!(
                    "{}: {id:?} is damaged; it is moved if it still reads so in an hour (lee fsck names its files)",
                    old.url()
                );
                false
            }
        }
    }
}

/// Which of two objects of one name is kept.
enum Counts {
    Home,
    Old,
    /// That is not known yet: both stay.
    Unclear,
}

fn doubt(what: String) -> Error {
    Error::Io(std::io::Error::other(what))
}

impl Store for Single {
    fn put(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        self.home.put(ctx, id, body)?;
        self.home.has_room();
        Ok(())
    }

    fn replace(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        self.home.replace(ctx, id, body)?;
        self.home.has_room();
        Ok(())
    }

    fn get(&self, ctx: &Ctx, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.find(|store| store.get(ctx, id, offset, buf))
    }

    fn len(&self, ctx: &Ctx, id: ObjectId) -> Result<u64> {
        self.find(|store| store.len(ctx, id))
    }

    fn settle(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        self.find(|store| store.settle(ctx, id))
    }

    fn delete(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        let mut _moving = None;
        if let Some(old) = &self.old {
            _moving = Some(self.drain.lock()); // or a step might bring back what is deleted here
            old.delete(ctx, id)?;
        }
        self.home.delete(ctx, id)
    }

    fn list(&self, ctx: &Ctx) -> Result<Vec<(ObjectId, u64)>> {
        let mut all: BTreeMap<ObjectId, u64> = match &self.old {
            Some(old) => old.list(ctx)?.into_iter().collect(),
            None => BTreeMap::new(),
        };
        all.extend(self.home.list(ctx)?);
        all.remove(&crate::label::LABEL);
        Ok(all.into_iter().collect())
    }

    fn is_stuck(&self) -> bool {
        std::iter::once(&self.home).chain(&self.old).any(Patient::is_stuck)
    }

    fn space(&self) -> Result<Space> {
        self.home.space()
    }
}

impl Pool for Single {
    fn spec(&self) -> &PoolSpec {
        &self.spec
    }

    fn health(&self) -> Health {
        let pool_stores = std::iter::once(&self.home).chain(&self.old);
        let figures = self.figures.lock();
        Health {
            layout: Layout::Single,
            stores: pool_stores.map(|store| store.health()).collect(),
            may_lose: 0,
            degraded_objects: 0,
            lost_objects: figures.missed.len() as u64,
            searched: figures.searched,
            repair: figures.repair,
            scrub: Progress::default(),
            tier: None,
        }
    }

    fn lacking(&self, ctx: &Ctx, expected: &[(ObjectId, u64)]) -> Result<Vec<(ObjectId, u64)>> {
        let listed: BTreeSet<ObjectId> = self.list(ctx)?.into_iter().map(|(id, _)| id).collect();
        let is_missing = |(id, _): &(ObjectId, u64)| !listed.contains(id) && self.len(ctx, *id).is_err();
        Ok(expected.iter().copied().filter(is_missing).collect())
    }

    fn note_lost(&self, objects: Vec<ObjectId>) {
        self.figures.lock().missed = objects.into_iter().collect();
    }

    fn repair_step(&self, ctx: &Ctx) -> Result<Step> {
        let Some(old) = &self.old else {
            self.figures.lock().searched = true;
            return Ok(Step::default());
        };
        let mut drain = self.drain.lock();
        if drain.is_empty() {
            *drain = old.list(ctx)?;
            drain.retain(|(id, _)| *id != crate::label::LABEL);
            drain.reverse();
            self.figures.lock().searched = true;
        }
        let Some((id, _)) = drain.pop() else { return Ok(Step::default()) };
        self.figures.lock().repair.objects_waiting = drain.len() as u64 + 1;
        let step = self.take_over(ctx, old, id)?;
        let mut figures = self.figures.lock();
        figures.repair.objects_waiting -= 1;
        figures.repair.objects_done += 1;
        figures.repair.read_bytes += step.read_bytes;
        figures.repair.written_bytes += step.written_bytes;
        Ok(step)
    }
}
