//! A store in memory with faults on command, a catalog, and deterministic bytes.

use leeward_data::{Addr, Catalog, Compression, DataLog, Object, Options, Owner, PoolId, SegmentInfo};
use leeward_env::disk::Space;
use leeward_env::{Ctx, Env, Flow};
use leeward_pool::{AlignedBuf, Error, ObjectId, Result, Store};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// How the next puts end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Puts {
    Work,
    Full,
    Fail,
    /// Wait until this changes.
    Hang,
}

pub struct TestStore {
    pub objects: Mutex<BTreeMap<(u64, u32), Vec<u8>>>,
    pub puts: Mutex<Puts>,
    pub changed: Condvar,
    pub gets: AtomicUsize,
    /// Reads that touch this range of any object fail with EIO.
    pub unreadable: Mutex<std::ops::Range<u64>>,
    /// They fail as in a pool that lost too many stores.
    pub lost: AtomicBool,
    pub order: Mutex<Vec<(u64, u32)>>,
}

impl TestStore {
    pub fn new() -> Arc<TestStore> {
        Arc::new(TestStore {
            objects: Mutex::default(),
            puts: Mutex::new(Puts::Work),
            changed: Condvar::new(),
            gets: AtomicUsize::new(0),
            unreadable: Mutex::new(0..0),
            lost: AtomicBool::new(false),
            order: Mutex::default(),
        })
    }

    pub fn set(&self, puts: Puts) {
        *self.puts.lock().unwrap() = puts;
        self.changed.notify_all();
    }

    pub fn bytes(&self, id: Object) -> Vec<u8> {
        self.objects.lock().unwrap()[&(id.segment, id.generation)].clone()
    }

    pub fn replace(&self, id: Object, bytes: Vec<u8>) {
        self.objects.lock().unwrap().insert((id.segment, id.generation), bytes);
    }
}

impl Store for TestStore {
    fn put(&self, _: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        let mut puts = self.puts.lock().unwrap();
        while *puts == Puts::Hang {
            puts = self.changed.wait(puts).unwrap();
        }
        match *puts {
            Puts::Full => return Err(Error::Full),
            Puts::Fail => return Err(std::io::Error::from_raw_os_error(5).into()),
            _ => {}
        }
        drop(puts);
        self.order.lock().unwrap().push((id.segment, id.generation));
        self.replace(Object { pool: 0, segment: id.segment, generation: id.generation }, body.to_vec());
        Ok(())
    }

    fn get(&self, _: &Ctx, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        let bad = self.unreadable.lock().unwrap().clone();
        if offset < bad.end && bad.start < offset + buf.len() as u64 {
            return Err(match self.lost.load(Ordering::Relaxed) {
                false => std::io::Error::from_raw_os_error(5).into(),
                true => Error::Unavailable { id, have: 0, need: 1, why: String::new() },
            });
        }
        let objects = self.objects.lock().unwrap();
        let o = objects.get(&(id.segment, id.generation)).ok_or(Error::NotFound(id))?;
        let from = offset as usize;
        let part = o.get(from..from + buf.len()).ok_or(Error::Short(id))?;
        buf.copy_from_slice(part);
        Ok(())
    }

    fn len(&self, _: &Ctx, id: ObjectId) -> Result<u64> {
        let objects = self.objects.lock().unwrap();
        objects.get(&(id.segment, id.generation)).map(|o| o.len() as u64).ok_or(Error::NotFound(id))
    }

    fn settle(&self, ctx: &Ctx, id: ObjectId) -> Result<()> {
        self.len(ctx, id).map(drop)
    }

    fn delete(&self, _: &Ctx, id: ObjectId) -> Result<()> {
        self.objects.lock().unwrap().remove(&(id.segment, id.generation));
        Ok(())
    }

    fn list(&self, _: &Ctx) -> Result<Vec<(ObjectId, u64)>> {
        let objects = self.objects.lock().unwrap();
        let id = |&(segment, generation): &(u64, u32)| ObjectId { segment, generation };
        Ok(objects.iter().map(|(k, o)| (id(k), o.len() as u64)).collect())
    }

    fn space(&self) -> Result<Space> {
        Ok(Space::default())
    }
}

#[derive(Default)]
pub struct TestCatalog {
    next: AtomicU64,
    /// No numbers are given out.
    pub broken: AtomicBool,
    pub sealed: Mutex<BTreeMap<u64, SegmentInfo>>,
}

impl Catalog for TestCatalog {
    fn allocate_segment(&self, _: u32, _: PoolId) -> leeward_data::Result<u64> {
        match self.broken.load(Ordering::Relaxed) {
            false => Ok(self.next.fetch_add(1, Ordering::Relaxed) + 1),
            true => Err(leeward_data::Error::Store(Error::Full)),
        }
    }

    fn object(&self, segment: u64) -> Option<Object> {
        let sealed = self.sealed.lock().unwrap();
        sealed.get(&segment).filter(|i| i.object_bytes > 0).map(|i| i.object)
    }

    fn unused(&self, _: u64) {}
    fn goes_elsewhere(&self, _: u64, _: u64) -> bool {
        false
    }

    fn sealed(&self, info: SegmentInfo) {
        self.sealed.lock().unwrap().insert(info.object.segment, info);
    }
}

/// What an owner does that takes note of an append at once.
pub trait Appends {
    fn write(&self, ctx: &Ctx, owner: Owner, bytes: &[u8]) -> leeward_data::Result<Addr>;
}

impl Appends for DataLog {
    fn write(&self, ctx: &Ctx, owner: Owner, bytes: &[u8]) -> leeward_data::Result<Addr> {
        let addr = self.append(ctx, 0, owner, bytes)?;
        self.unhold(addr.segment);
        Ok(addr)
    }
}

pub struct Rig {
    pub env: Env,
    pub store: Arc<TestStore>,
    pub catalog: Arc<TestCatalog>,
    pub log: Arc<DataLog>,
}

pub fn options() -> Options {
    Options {
        segment_bytes: 1 << 20,
        compression: Compression::Lz4,
        dirty_bytes: 16 << 20,
        cache_bytes: 4 << 20,
        put_threads: 0,
    }
}

impl Rig {
    pub fn new(options: Options) -> Rig {
        Rig::over(TestStore::new(), options)
    }

    pub fn over(store: Arc<TestStore>, options: Options) -> Rig {
        let env = if options.put_threads == 0 { Env::sim(1) } else { Env::real() };
        let catalog = Arc::new(TestCatalog::default());
        let log = DataLog::new(env.clone(), store.clone(), options);
        let weak: std::sync::Weak<dyn Catalog> = Arc::downgrade(&(catalog.clone() as Arc<dyn Catalog>));
        log.attach(weak);
        Rig { env, store, catalog, log }
    }

    /// The same store and catalog, nothing cached.
    pub fn reopened(&self, options: Options) -> Rig {
        let log = DataLog::new(self.env.clone(), self.store.clone(), options);
        let weak: std::sync::Weak<dyn Catalog> = Arc::downgrade(&(self.catalog.clone() as Arc<dyn Catalog>));
        log.attach(weak);
        Rig { env: self.env.clone(), store: self.store.clone(), catalog: self.catalog.clone(), log }
    }

    pub fn id(&self, segment: u64) -> Object {
        self.catalog.object(segment).expect("a durable segment")
    }
}

pub fn ctx(uid: u32) -> Ctx {
    Ctx::user(uid, uid)
}

pub fn flow(uid: u32) -> Flow {
    ctx(uid).flow
}

pub fn owner(inode: u64, offset: u64) -> Owner {
    Owner { volume: 1, inode, offset }
}

/// xorshift.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }

    pub fn noise(&mut self, len: usize) -> Vec<u8> {
        let mut v = vec![0; len];
        for c in v.chunks_mut(8) {
            let b = self.next().to_le_bytes();
            c.copy_from_slice(&b[..c.len()]);
        }
        v
    }

    pub fn text(&mut self, len: usize) -> Vec<u8> {
        const WORDS: [&str; 8] =
            ["calm ", "weather ", "sheltered ", "side ", "of ", "a ", "ship ", "storm\n"];
        let mut v = Vec::with_capacity(len + 16);
        while v.len() < len {
            v.extend_from_slice(WORDS[self.below(8) as usize].as_bytes());
            if self.below(4) == 0 {
                v.extend_from_slice(self.next().to_string().as_bytes());
            }
        }
        v.truncate(len);
        v
    }
}
