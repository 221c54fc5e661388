//! A store that is slow, fails and lies, for tests of the layers above. A decorator; without faults
//! set it only counts.
//!
//! A seed and the order of the calls decide which faults happen, so a test with one thread replays
//! exactly. Lock order: its own state, never held over a call of the inner store.

use crate::{AlignedBuf, Error, ObjectId, Result, Store};
use leeward_env::disk::Space;
use leeward_env::{Ctx, Env};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What can happen to a call. Failures are `Error::Io` with EIO unless said otherwise.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum StoreFault {
            $($(#[$doc])* $name,)*
        }

        impl StoreFault {
            /// All faults.
            pub const ALL: &'static [StoreFault] = &[$(StoreFault::$name,)*];
        }
    };
}

faults! {
    /// A put fails and stores nothing.
    PutFails,
    /// A put fails and leaves the first part of the object.
    PutTorn,
    /// A put fails with `Error::Full` and stores nothing.
    PutFull,
    /// A put stores the object with one bit flipped and says that all is well.
    PutLies,
    /// A put stores the object and then fails.
    PutFailsAfter,
    /// A put stores nothing and says that all is well: what was there before stays.
    PutForgets,
    /// A put fails with `Error::Busy` and stores nothing.
    PutBusy,
    /// A put fails with `Error::Away` and is carried out later: see [`FaultyStore::land`].
    PutLate,
    /// A put fails with `Error::Refused` and stores nothing.
    PutRefused,
    /// A get fails.
    GetFails,
    /// A get fails with `Error::Short`.
    GetShort,
    /// A get fails with `Error::NotFound`.
    GetMissing,
    /// A get fails with `Error::Busy`.
    GetBusy,
    /// A get fails with `Error::Away`.
    GetAway,
    /// A get flips one bit and says that all is well.
    GetLies,
    /// A get gives the bytes of another object, if there is one that is long enough, and says that
    /// all is well.
    GetForeign,
    /// A delete fails and deletes nothing.
    DeleteFails,
    /// A delete deletes and then fails.
    DeleteFailsAfter,
    /// A delete fails with `Error::Busy` and deletes nothing.
    DeleteBusy,
    /// A delete fails with `Error::Away` and is carried out later: see [`FaultyStore::land`].
    DeleteLate,
    /// The length cannot be had.
    LenFails,
    /// The length cannot be had, with `Error::Away`.
    LenAway,
    /// Asked for its length, an object is said to be missing.
    LenMissing,
    /// A list fails.
    ListFails,
    /// A list fails with `Error::Away`.
    ListAway,
    /// The free space cannot be had.
    SpaceFails,
    /// An object cannot be made safe against a power cut.
    SettleFails,
}

/// How often a fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chance {
    /// Not at all.
    Never,
    /// At this many calls from now on, then not any more.
    Next(u32),
    /// At this many of a thousand calls, by the seed.
    PerMille(u16),
}

/// Calls made so far, and how many of them met a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCalls {
    /// Puts.
    pub puts: u64,
    /// Gets.
    pub gets: u64,
    /// Deletes.
    pub deletes: u64,
    /// Calls for a length.
    pub lens: u64,
    /// Bytes that gets asked for.
    pub get_bytes: u64,
    /// Faults of any kind.
    pub faults: u64,
}

/// A store with faults in front of another store.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    state: Mutex<FaultyState>,
}

struct FaultyState {
    chances: BTreeMap<StoreFault, Chance>,
    delay: Option<(Env, Duration)>,
    random: Env,
    calls: StoreCalls,
    /// Calls that were answered with an error and are carried out later.
    late: Vec<LateCall>,
}

/// A call whose answer was lost, and that is still under way.
enum LateCall {
    Put(ObjectId, AlignedBuf),
    Delete(ObjectId),
}

impl FaultyStore {
    /// Passes every call on until a fault is set. The seed is 1.
    pub fn new(inner: Arc<dyn Store>) -> FaultyStore {
        let state = FaultyState {
            chances: BTreeMap::new(),
            delay: None,
            random: Env::sim(1),
            calls: StoreCalls::default(),
            late: Vec::new(),
        };
        FaultyStore { inner, state: Mutex::new(state) }
    }

    /// Restarts the random choices with this seed.
    pub fn set_seed(&self, seed: u64) {
        self.state.lock().random = Env::sim(seed);
    }

    /// From now on this fault happens this often.
    pub fn set(&self, fault: StoreFault, chance: Chance) {
        self.state.lock().chances.insert(fault, chance);
    }

    /// From now on each put, get, delete and list first sleeps for `delay` on this clock.
    pub fn set_delay(&self, env: &Env, delay: Duration) {
        self.state.lock().delay = Some((env.clone(), delay));
    }

    /// Removes all faults and delays.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.chances.clear();
        state.delay = None;
    }

    /// Carries out the calls that have not arrived yet, in an order that the seed gives.
    pub fn land(&self, ctx: &Ctx) {
        loop {
            let next = {
                let mut state = self.state.lock();
                let n = state.late.len() as u64;
                if n == 0 {
                    return;
                }
                let at = (state.random.random() % n) as usize;
                state.late.swap_remove(at)
            };
            // nobody waits for an answer any more
            let _ = match next {
                // a late call never replaces what is there
                LateCall::Put(id, body) => match self.inner.len(ctx, id) {
                    Err(Error::NotFound(_)) => self.inner.put(ctx, id, &body),
                    other => other.map(drop),
                },
                LateCall::Delete(id) => self.inner.delete(ctx, id),
            };
        }
    }

    /// Calls and faults so far.
    pub fn calls(&self) -> StoreCalls {
        self.state.lock().calls
    }

    fn begin(&self, count: impl FnOnce(&mut StoreCalls)) {
        let delay = {
            let mut state = self.state.lock();
            count(&mut state.calls);
            state.delay.clone()
        };
        if let Some((env, delay)) = delay {
            env.sleep(delay);
        }
    }

    fn happens(&self, fault: StoreFault) -> bool {
        self.state.lock().happens(fault)
    }

    /// Another object that has this range; the same object if there is none.
    fn another(&self, ctx: &Ctx, id: ObjectId, offset: u64, buf: &[u8]) -> Result<ObjectId> {
        let end = offset + buf.len() as u64;
        let fits = |(other, len): &(ObjectId, u64)| *other != id && *len >= end;
        Ok(self.inner.list(ctx)?.into_iter().find(fits).map_or(id, |(other, _)| other))
    }

    fn faulty_put(
        &self,
        id: ObjectId,
        body: &AlignedBuf,
        put: &dyn Fn(&AlignedBuf) -> Result<()>,
    ) -> Result<()> {
        self.begin(|calls| calls.puts += 1);
        if self.happens(StoreFault::PutBusy) {
            return Err(busy());
        }
        if self.happens(StoreFault::PutRefused) {
            return Err(Error::Refused("it refuses".into()));
        }
        if self.happens(StoreFault::PutLate) {
            self.state.lock().late.push(LateCall::Put(id, copy_of(body)));
            return Err(away());
        }
        if self.happens(StoreFault::PutFails) {
            return Err(eio());
        }
        if self.happens(StoreFault::PutFull) {
            return Err(Error::Full);
        }
        if self.happens(StoreFault::PutTorn) {
            put(&copy_of(&body[..body.len() / 2]))?;
            return Err(eio());
        }
        if self.happens(StoreFault::PutLies) {
            let mut copy = copy_of(body);
            self.flip_one_bit(&mut copy);
            return put(&copy);
        }
        if self.happens(StoreFault::PutForgets) {
            return Ok(());
        }
        put(body)?;
        if self.happens(StoreFault::PutFailsAfter) { Err(eio()) } else { Ok(()) }
    }

    fn flip_one_bit(&self, bytes: &mut [u8]) {
        if bytes.is_empty() {
            return;
        }
        let bit = self.state.lock().random.random() % (bytes.len() as u64 * 8);
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

impl FaultyState {
    fn happens(&mut self, fault: StoreFault) -> bool {
        let happens = match self.chances.get_mut(&fault) {
            None | Some(Chance::Never | Chance::Next(0)) => false,
            Some(Chance::Next(left)) => {
                *left -= 1;
                true
            }
            Some(Chance::PerMille(share)) => self.random.random() % 1000 < u64::from(*share),
        };
        self.calls.faults += u64::from(happens);
        happens
    }
}

fn eio() -> Error {
    // 5 is EIO on every system that this runs on
    Error::Io(io::Error::from_raw_os_error(5))
}

fn busy() -> Error {
    Error::Busy("it has too much to do".into())
}

fn away() -> Error {
    Error::Away("it does not answer".into())
}

fn copy_of(body: &[u8]) -> AlignedBuf {
    let mut copy = AlignedBuf::zeroed(body.len());
    copy[..body.len()].copy_from_slice(body);
    copy
}

impl Store for FaultyStore {
    fn put(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        self.faulty_put(id, body, &|body| self.inner.put(ctx, id, body))
    }

    fn replace(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        self.faulty_put(id, body, &|body| self.inner.replace(ctx, id, body))
    }

    fn get(&self, ctx: &Ctx, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.begin(|calls| {
            calls.gets += 1;
            calls.get_bytes += buf.len() as u64;
        });
        if self.happens(StoreFault::GetFails) {
            return Err(eio());
        }
        if self.happens(StoreFault::GetBusy) {
            return Err(busy());
        }
        if self.happens(StoreFault::GetAway) {
            return Err(away());
        }
        if self.happens(StoreFault::GetShort) {
            return Err(Error::Short(id));
        }
        if self.happens(StoreFault::GetMissing) {
            return Err(Error::NotFound(id));
        }
        let id = if self.happens(StoreFault::GetForeign) { self.another(ctx, id, offset, buf)? } else { id };
        self.inner.get(ctx, id, offset, buf)?;
        if self.happens(StoreFault::GetLies) {
            self.flip_one_bit(buf);
        }
        Ok(())
    }

    fn len(&self, ctx: &Ctx, id: ObjectId) -> Result<u64> {
        self.begin(|calls| calls.lens += 1);
        if self.happens(StoreFault::LenFails) {
            return Err(eio());
        }
        if self.happens(StoreFault::LenAway) {
            return Err(away());
        }
        if self.happens(StoreFault::LenMissing) {
            return Err(Error::NotFound(id));
        }
        self.inner.len(ctx, id)
    }

    fn settle(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        if self.happens(StoreFault::SettleFails) {
            return Err(eio());
        }
        self.inner.settle(ctx, id)
    }

    fn delete(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        self.begin(|calls| calls.deletes += 1);
        if self.happens(StoreFault::DeleteFails) {
            return Err(eio());
        }
        if self.happens(StoreFault::DeleteBusy) {
            return Err(busy());
        }
        if self.happens(StoreFault::DeleteLate) {
            self.state.lock().late.push(LateCall::Delete(id));
            return Err(away());
        }
        self.inner.delete(ctx, id)?;
        if self.happens(StoreFault::DeleteFailsAfter) { Err(eio()) } else { Ok(()) }
    }

    fn list(&self, ctx: &Ctx) -> Result<Vec<(ObjectId, u64)>> {
        self.begin(|_| ());
        if self.happens(StoreFault::ListFails) {
            return Err(eio());
        }
        if self.happens(StoreFault::ListAway) {
            return Err(away());
        }
        self.inner.list(ctx)
    }

    fn space(&self) -> Result<Space> {
        if self.happens(StoreFault::SpaceFails) {
            return Err(eio());
        }
        self.inner.space()
    }
}
