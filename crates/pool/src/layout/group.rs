//! `replica(n)` and `erasure(k+m)`: a group of stores, each of which has one piece of each object.
//!
//! Piece `p` of segment `s` is on the store of slot `(s + p) % n`, so that load and parity go
//! round. Every call of a store goes through its lane (its threads). So a caller waits for the
//! slowest store only where it needs that store. The parts: [`read`](super::read) (ranges, with
//! reconstruction and hedging), [`write`](super::write) (puts and deletes),
//! [`survey`](super::survey) (which versions of an object there are), [`repair`](super::repair) and
//! [`scrub`](super::scrub).
//!
//! Lock order: `steps` (a step in the background), then any one of the others. None of the others
//! is held over a call of a store.

use super::answers::Fault;
use super::code::Code;
use super::health::{Condition, Health, Progress, Step};
use super::known::{Info, PieceCache};
use super::lane::{CallGuard, Takes};
use super::notes::Notes;
use super::piece::{self, Cut, Head, Name};
use super::pool_store::PoolStore;
use super::rebuilt::Rebuilt;
use super::repairs::Repairs;
use super::spec::{PoolSpec, StoreState};
use super::write::FailedPuts;
use super::{Member, Pool, Scrub};
use crate::{AlignedBuf, Error, ObjectId, Result, Store};
use leeward_env::disk::Space;
use leeward_env::{Activity, Ctx, Env, Nanos};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;

/// Memory for pieces that is kept for the next put.
const SPARE_BYTES_MAX: usize = 48 << 20;
/// Smaller buffers are not worth keeping.
const SPARE_BYTES_MIN: usize = 256 << 10;
/// The spare memory is given back to the system after this time without a put.
const IDLE: Nanos = 30_000_000_000;

pub(crate) struct Group(pub(super) Arc<Core>);

pub(super) struct Core {
    pub(super) env: Env,
    activity: Arc<Activity>,
    pub(super) spec: PoolSpec,
    pub(super) code: Code,
    pub(super) slots: Vec<Slot>,
    pub(super) known: PieceCache,
    pub(super) rebuilt: Rebuilt,
    pub(super) notes: Mutex<Notes>,
    pub(super) steps: Mutex<Repairs>,
    pub(super) figures: Mutex<Figures>,
    stamp: AtomicU64,
    pub(super) failed: FailedPuts,
    /// Time of the last put.
    pub(super) put_at: AtomicU64,
    spare: Mutex<Vec<AlignedBuf>>,
    /// Whether a caller calls a store on its own thread now.
    calls_here: AtomicBool,
}

/// Permission to call a store on the caller's thread.
pub(super) struct CallOnThisThread<'a> {
    calls_here: &'a AtomicBool,
    _here: CallGuard<'a>,
}

impl Drop for CallOnThisThread<'_> {
    fn drop(&mut self) {
        self.calls_here.store(false, Ordering::Release);
    }
}

/// A position in the group.
pub(super) struct Slot {
    pub(super) home: Arc<PoolStore>,
    /// The store that is being emptied into `home`.
    pub(super) old: Option<Arc<PoolStore>>,
}

#[derive(Default)]
pub(super) struct Figures {
    pub(super) repair: Progress,
    pub(super) scrub: Progress,
    pub(super) searched: bool,
    /// Pieces still on stores that are being emptied.
    pub(super) moves_waiting: u64,
}

impl Slot {
    pub(super) fn pool_stores(&self) -> impl Iterator<Item = &Arc<PoolStore>> {
        std::iter::once(&self.home).chain(&self.old)
    }

    /// Asks the store where the piece belongs, then the one where it may still be, then the first
    /// again: the piece may have been moved in between.
    pub(super) fn find<T>(&self, mut ask: impl FnMut(&dyn Store) -> Result<T>) -> Result<T> {
        let Some(old) = &self.old else { return self.home.read(ask) };
        match self.home.read(&mut ask) {
            Err(Error::NotFound(_)) => {}
            Err(e) if e.is_failure() => {}
            other => return other,
        }
        match old.read(&mut ask) {
            Err(Error::NotFound(_)) => self.home.read(&mut ask),
            other => other,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.pool_stores().any(|pool_store| pool_store.is_open())
    }

    pub(super) fn may_ask(&self) -> bool {
        self.pool_stores().any(|pool_store| pool_store.may_ask())
    }
}

impl Core {
    pub(super) fn data(&self) -> usize {
        self.spec.layout.data()
    }

    pub(super) fn parity(&self) -> usize {
        self.spec.layout.parity()
    }

    pub(super) fn cut(&self, object_bytes: u64) -> Cut {
        Cut { data: self.data(), parity: self.parity(), object_bytes }
    }

    pub(super) fn name(&self, id: ObjectId, piece: usize) -> Name {
        let (data, parity) = (self.data() as u8, self.parity() as u8);
        Name { pool: self.spec.id, id, data, parity, piece: piece as u16 }
    }

    /// The slot where a piece belongs.
    pub(super) fn slot(&self, id: ObjectId, piece: usize) -> &Slot {
        &self.slots[self.slot_number(id, piece)]
    }

    pub(super) fn slot_number(&self, id: ObjectId, piece: usize) -> usize {
        let n = self.slots.len();
        ((id.segment % n as u64) as usize + piece) % n
    }

    /// The number of the piece that a slot has of an object.
    pub(super) fn piece_in(&self, id: ObjectId, slot: usize) -> usize {
        let n = self.slots.len();
        (slot + n - (id.segment % n as u64) as usize) % n
    }

    /// A new stamp. It is higher than any before and any that was read. It is higher than those of
    /// earlier runs unless the clock went back.
    pub(super) fn next_stamp(&self) -> u64 {
        let wall = self.env.wall();
        let next = |last: u64| Some(wall.max(last + 1));
        let last = self.stamp.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        wall.max(last.unwrap_or_default() + 1)
    }

    /// Permission to read a piece on this thread. A pool gives it to one user's read at a time, so
    /// a store that hangs holds up no other read.
    pub(super) fn call_here<'a>(&'a self, ctx: &Ctx, slot: &'a Slot) -> Option<CallOnThisThread<'a>> {
        if slot.old.is_some() || ctx.flow.work().is_some() || self.env.is_sim() {
            return None;
        }
        if self.calls_here.swap(true, Ordering::Acquire) {
            return None;
        }
        let here = slot.home.call_here();
        if here.is_none() {
            self.calls_here.store(false, Ordering::Release);
        }
        Some(CallOnThisThread { calls_here: &self.calls_here, _here: here? })
    }

    /// Whether stores are asked one after the other. This is so for background work while users
    /// make requests: all stores at once would take all processors.
    pub(super) fn in_turn(&self, ctx: &Ctx) -> bool {
        ctx.flow.work().is_some() && self.activity.is_busy(self.env.now())
    }

    /// Memory for a piece, of any content.
    pub(super) fn take_buffer(&self, bytes: usize) -> AlignedBuf {
        let mut spare = self.spare.lock();
        let fits = spare.iter().position(|buf| (bytes..=2 * bytes).contains(&buf.capacity()));
        let mut buf = match fits {
            Some(n) => spare.swap_remove(n),
            None => AlignedBuf::zeroed(bytes),
        };
        buf.set_len(bytes);
        buf
    }

    pub(super) fn give_buffer(&self, buf: AlignedBuf) {
        let mut spare = self.spare.lock();
        let kept: usize = spare.iter().map(AlignedBuf::capacity).sum();
        if buf.capacity() >= SPARE_BYTES_MIN && kept + buf.capacity() <= SPARE_BYTES_MAX {
            spare.push(buf);
        }
    }

    /// Frees the spare memory when it was not used for a while.
    pub(super) fn give_back_spare(&self) {
        self.rebuilt.give_back(self.env.now());
        if self.env.now().saturating_sub(self.put_at.load(Ordering::Relaxed)) > IDLE {
            let spare = std::mem::take(&mut *self.spare.lock());
            drop(spare); // not under the lock
        }
    }

    /// Reads the head of a piece.
    pub(super) fn read_head(
        &self,
        ctx: &Ctx,
        id: ObjectId,
        piece: usize,
    ) -> std::result::Result<Head, Fault> {
        let slot = self.slot(id, piece);
        let bad = |why: String| self.bad(slot, why);
        let mut head = AlignedBuf::zeroed(piece::BLOCK);
        slot.find(|store| store.get(ctx, id, 0, &mut head)).map_err(|e| self.fault(slot, e))?;
        let length = Head::length(&head).map_err(bad)?;
        if length > head.len() {
            head = AlignedBuf::zeroed(length);
            slot.find(|store| store.get(ctx, id, 0, &mut head)).map_err(|e| self.fault(slot, e))?;
        }
        let head = Head::decode(&self.name(id, piece), &mut head).map_err(bad)?;
        self.stamp.fetch_max(head.stamp, Ordering::Relaxed);
        Ok(head)
    }

    pub(super) fn bad(&self, slot: &Slot, why: String) -> Fault {
        slot.home.bad_pieces.fetch_add(1, Ordering::Relaxed);
        Fault::Bad(why)
    }

    pub(super) fn fault(&self, slot: &Slot, e: Error) -> Fault {
        match e {
            Error::NotFound(_) => Fault::Missing,
            Error::Short(_) => self.bad(slot, "it is too short".into()),
            e => Fault::Away(e.to_string()),
        }
    }

    /// The error when an object cannot be read: `have` good pieces were found; the faults say what
    /// is wrong with the others.
    pub(super) fn unreadable(
        &self,
        id: ObjectId,
        have: usize,
        need: usize,
        faults: &BTreeMap<usize, Fault>,
    ) -> Error {
        let may_be = faults.values().filter(|fault| !matches!(fault, Fault::Missing)).count();
        if have + may_be < need {
            return Error::NotFound(id);
        }
        let told = |(piece, fault): (&usize, &Fault)| {
            let at = self.slot(id, *piece).home.url();
            match fault {
                Fault::Missing => format!("{at}: it is missing"),
                Fault::Bad(why) | Fault::Away(why) => format!("{at}: {why}"),
                Fault::Newer => format!("{at}: it is of a later put"),
            }
        };
        let why = faults.iter().map(told).collect::<Vec<_>>().join("; ");
        Error::Unavailable { id, have, need, why }
    }

    /// Calls a store on its own threads, and waits for it no longer than for any answer.
    pub(super) fn through<T: Send + 'static>(
        &self,
        ctx: &Ctx,
        pool_store: &PoolStore,
        patience: Nanos,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, answers) = channel();
        let job = move || {
            let _ = sender.send(job()); // or nobody waits
        };
        pool_store.hand_over(ctx, Takes::Short, job).ok()?;
        super::answers::next_answer(&self.env, &answers, self.env.now() + patience).ok()
    }

    /// Makes the same call of all stores that can be asked, at once, and waits for all answers.
    /// Stores that rest or hang are not asked and give an error.
    pub(super) fn ask_all<T: Send + 'static>(
        self: &Arc<Self>,
        ctx: &Ctx,
        pool_stores: &[Arc<PoolStore>],
        takes: Takes,
        ask: impl Fn(&dyn Store) -> Result<T> + Clone + Send + 'static,
    ) -> Vec<Result<T>> {
        let (sender, answers) = channel();
        for (n, pool_store) in pool_stores.iter().enumerate().filter(|(_, pool_store)| pool_store.may_ask()) {
            let (ask, sender, asked) = (ask.clone(), sender.clone(), pool_store.clone());
            let job = move || {
                let _ = sender.send((n, asked.call(ask))); // nobody may wait any more
            };
            // a busy store gives no answer
            let _ = pool_store.hand_over(ctx, takes, job);
        }
        drop(sender);
        let away = || Err(Error::Io(std::io::Error::other("it does not answer")));
        let mut all: Vec<Result<T>> = pool_stores.iter().map(|_| away()).collect();
        let patience =
            if takes == Takes::Long { super::answers::PATIENCE_LONG } else { super::answers::PATIENCE };
        let until = self.env.now() + patience;
        while let Ok((n, answer)) = super::answers::next_answer(&self.env, &answers, until) {
            all[n] = answer;
        }
        all
    }

    /// Makes durable at least as many pieces as are needed to read the object.
    fn settle(self: &Arc<Self>, ctx: &Ctx, id: ObjectId) -> Result<()> {
        let pool_stores: Vec<Arc<PoolStore>> =
            self.slots.iter().flat_map(Slot::pool_stores).cloned().collect();
        let asker = *ctx;
        let answers = self.ask_all(ctx, &pool_stores, Takes::Short, move |store| store.settle(&asker, id));
        let settled = answers.iter().filter(|answer| answer.is_ok()).count();
        match answers.into_iter().find_map(Result::err) {
            Some(e) if settled < self.data() => Err(e),
            _ => Ok(()),
        }
    }

    fn may_lose(&self) -> u16 {
        let lost = self.slots.iter().filter(|slot| slot.home.is_failing()).count();
        let worst = self.notes.lock().worst() as usize;
        self.parity().saturating_sub(lost.max(worst)) as u16
    }
}

impl Group {
    /// A group of these stores. The spec is checked, and has as many stores as there are members.
    pub(crate) fn new(
        env: &Env,
        activity: &Arc<Activity>,
        spec: &PoolSpec,
        members: Vec<Member>,
        failed: &FailedPuts,
    ) -> Group {
        let mut homes: BTreeMap<u16, Arc<PoolStore>> = BTreeMap::new();
        let mut old: BTreeMap<u16, Arc<PoolStore>> = BTreeMap::new();
        for (store, member) in spec.stores.iter().zip(members) {
            let of_kind = if store.state == StoreState::Draining { &mut old } else { &mut homes };
            of_kind.insert(store.slot, Arc::new(PoolStore::new(env, store, member)));
        }
        let slots = homes.into_iter().map(|(slot, home)| Slot { home, old: old.remove(&slot) }).collect();
        Group(Arc::new(Core {
            env: env.clone(),
            activity: activity.clone(),
            spec: spec.clone(),
            code: Code::new(spec.layout.data(), spec.layout.parity()),
            slots,
            known: PieceCache::new(),
            rebuilt: Rebuilt::default(),
            notes: Mutex::default(),
            steps: Mutex::default(),
            figures: Mutex::default(),
            stamp: AtomicU64::new(0),
            failed: failed.clone(),
            put_at: AtomicU64::new(0),
            spare: Mutex::default(),
            calls_here: AtomicBool::new(false),
        }))
    }
}

impl Store for Group {
    fn put(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        self.0.put(ctx, id, body, false)
    }

    fn replace(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        self.0.put(ctx, id, body, true)
    }

    fn get(&self, ctx: &Ctx, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.get(ctx, id, offset, buf)
    }

    fn len(&self, ctx: &Ctx, id: ObjectId) -> Result<u64> {
        Ok(self.0.info(ctx, id)?.object_bytes)
    }

    fn settle(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        self.0.settle(ctx, id)
    }

    fn delete(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        self.0.delete(ctx, id)
    }

    fn is_stuck(&self) -> bool {
        let stuck = self.0.slots.iter().filter(|slot| slot.home.hangs()).count();
        stuck > self.0.parity()
    }

    /// Lists also objects with too few pieces to be read, with a length that means nothing:
    /// leftovers. Objects whose pieces are all on stores that do not answer are left out. It is an
    /// error only when no store answers.
    fn list(&self, ctx: &Ctx) -> Result<Vec<(ObjectId, u64)>> {
        let found = self.0.list_pieces(ctx)?;
        let mut all = Vec::with_capacity(found.pieces.len());
        for (id, pieces) in &found.pieces {
            if !self.0.notes.lock().is_deleted(*id) {
                all.push((*id, self.0.length_by_list(ctx, *id, pieces)));
            }
        }
        Ok(all)
    }

    fn space(&self) -> Result<Space> {
        let good: Vec<_> =
            self.0.slots.iter().map(|slot| &slot.home).filter(|home| !home.is_failing()).collect();
        good.iter().for_each(|home| home.ask_for_space());
        let mut answers = good.iter().map(|home| home.known_space());
        let mut least: Option<Space> = None;
        let mut error = None;
        for answer in &mut answers {
            match (answer, &mut least) {
                (Ok(space), None) => least = Some(space),
                (Ok(space), Some(least)) => {
                    least.total_bytes = least.total_bytes.min(space.total_bytes);
                    least.available_bytes = least.available_bytes.min(space.available_bytes);
                    least.total_files = least.total_files.min(space.total_files);
                    least.available_files = least.available_files.min(space.available_files);
                }
                (Err(e), _) => error = Some(e),
            }
        }
        let data = self.0.data() as u64;
        match (least, error) {
            (Some(least), _) => Ok(Space {
                total_bytes: least.total_bytes.saturating_mul(data),
                available_bytes: least.available_bytes.saturating_mul(data),
                ..least
            }),
            (None, Some(e)) => Err(e),
            (None, None) => Ok(Space::default()),
        }
    }
}

impl Pool for Group {
    fn spec(&self) -> &PoolSpec {
        &self.0.spec
    }

    fn health(&self) -> Health {
        let core = &self.0;
        let mut stores: Vec<_> =
            core.slots.iter().flat_map(Slot::pool_stores).map(|pool_store| pool_store.health()).collect();
        mark_slow(&mut stores);
        let may_lose = core.may_lose();
        let (degraded_objects, lost_objects) = {
            let notes = core.notes.lock();
            (notes.degraded(), notes.lost())
        };
        let figures = core.figures.lock();
        let objects_waiting = degraded_objects + figures.moves_waiting;
        Health {
            layout: core.spec.layout,
            stores,
            may_lose,
            degraded_objects,
            lost_objects,
            searched: figures.searched,
            repair: Progress { objects_waiting, ..figures.repair },
            scrub: figures.scrub,
            tier: None,
        }
    }

    fn lacking(&self, ctx: &Ctx, expected: &[(ObjectId, u64)]) -> Result<Vec<(ObjectId, u64)>> {
        self.0.lacking(ctx, expected)
    }

    fn note_lost(&self, objects: Vec<ObjectId>) {
        self.0.notes.lock().misses(objects);
    }

    fn scrub(&self) -> Option<&dyn Scrub> {
        Some(self)
    }

    fn repair_step(&self, ctx: &Ctx) -> Result<Step> {
        self.0.repair_step(ctx)
    }
}

impl Scrub for Group {
    fn begin(&self, after: Option<ObjectId>) {
        self.0.steps.lock().begin_scrub(after);
    }

    fn step(&self, ctx: &Ctx) -> Result<Step> {
        self.0.scrub_step(ctx)
    }

    fn reached(&self) -> Option<ObjectId> {
        self.0.steps.lock().scrubbed
    }
}

/// Marks stores as slow whose reads take long, and many times as long as those of the others.
fn mark_slow(stores: &mut [super::StoreHealth]) {
    const TIMES: u64 = 4;
    const NANOS_MIN: u64 = 10_000_000;
    let mut known: Vec<u64> = stores.iter().map(|s| s.get_p95_nanos).filter(|nanos| *nanos > 0).collect();
    known.sort_unstable();
    let Some(middle) = known.get(known.len().saturating_sub(1) / 2).copied() else { return };
    for store in stores {
        let p95 = store.get_p95_nanos;
        if store.condition == Condition::Ok && p95 > NANOS_MIN && p95 > TIMES * middle {
            store.condition = Condition::Slow;
            store.why =
                format!("95 of 100 reads take {} ms, elsewhere {}", p95 / 1_000_000, middle / 1_000_000);
        }
    }
}

/// The fields that both have.
impl From<&Head> for Info {
    fn from(head: &Head) -> Info {
        Info { object_bytes: head.object_bytes, stamp: head.stamp }
    }
}
