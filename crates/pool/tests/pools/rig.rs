//! Pools over stores in memory that fail and lie as told.

use leeward_env::disk::real::ALIGN;
use leeward_env::{Activity, Ctx, Env};
use leeward_pool::contract::body;
use leeward_pool::{
    FaultyStore, Layout, MemStore, Member, ObjectId, Pool, PoolSpec, Store, StoreSpec, StoreState, assemble,
};
use std::sync::Arc;

/// Length of the objects whose bodies are made of their segment's number.
pub fn length(id: ObjectId) -> usize {
    ALIGN * (1 + 7 * (id.segment as usize % 16))
}

/// Whether these bytes are such an object.
pub fn is_whole(id: ObjectId, bytes: &[u8]) -> bool {
    bytes.len() == length(id) && bytes == &body(id.segment, length(id))[..]
}

/// A pool, the stores below it, and what makes them fail.
pub struct Rig {
    pub env: Env,
    pub layout: Layout,
    pub inner: Vec<Arc<MemStore>>,
    pub faulty: Vec<Arc<FaultyStore>>,
    pub pool: Arc<dyn Pool>,
}

pub const LAYOUTS: [&str; 6] =
    ["replica(2)", "replica(3)", "erasure(2+1)", "erasure(4+2)", "erasure(5+3)", "erasure(11+3)"];

pub fn spec(layout: Layout) -> PoolSpec {
    let store = |slot: usize| StoreSpec {
        slot: slot as u16,
        id: format!("{slot:032x}"),
        url: format!("mem://{slot}"),
        state: StoreState::Active,
    };
    PoolSpec { id: 3, name: "test".into(), layout, stores: (0..layout.pieces()).map(store).collect() }
}

pub fn over(env: &Env, layout: Layout, stores: &[Arc<dyn Store>]) -> Arc<dyn Pool> {
    beside(env, &Arc::default(), layout, stores)
}

/// The same beside users.
pub fn beside(env: &Env, users: &Arc<Activity>, layout: Layout, stores: &[Arc<dyn Store>]) -> Arc<dyn Pool> {
    let members = stores.iter().map(|store| Member::Open(store.clone())).collect();
    assemble(env, users, &spec(layout), members, is_whole).unwrap()
}

impl Rig {
    pub fn new(env: &Env, layout: &str) -> Rig {
        let layout: Layout = layout.parse().unwrap();
        let inner: Vec<Arc<MemStore>> = (0..layout.pieces()).map(|_| Arc::default()).collect();
        Rig::on(env, layout, inner)
    }

    pub fn on(env: &Env, layout: Layout, inner: Vec<Arc<MemStore>>) -> Rig {
        let faulty: Vec<Arc<FaultyStore>> =
            inner.iter().map(|store| Arc::new(FaultyStore::new(store.clone()))).collect();
        let stores: Vec<Arc<dyn Store>> = faulty.iter().map(|store| store.clone() as _).collect();
        Rig { env: env.clone(), layout, inner, pool: over(env, layout, &stores), faulty }
    }

    /// The same stores, healthy, in another process.
    pub fn reopened(&self) -> Rig {
        Rig::on(&self.env, self.layout, self.inner.clone())
    }

    /// Slot of a piece.
    pub fn slot(&self, id: ObjectId, piece: usize) -> usize {
        let n = self.layout.pieces();
        (id.segment % n as u64) as usize + piece
            - if (id.segment % n as u64) as usize + piece >= n { n } else { 0 }
    }

    /// Steps of repair until there is nothing to do now; how many pieces were put in order.
    pub fn repair(&self) -> u64 {
        let mut pieces = 0;
        loop {
            let step = self.pool.repair_step(&Ctx::system()).unwrap();
            pieces += step.pieces;
            if !step.more {
                return pieces;
            }
        }
    }

    /// One pass of scrubbing; how many pieces were found bad or missing.
    pub fn scrub(&self) -> u64 {
        let mut pieces = 0;
        loop {
            let step = self.pool.scrub().unwrap().step(&Ctx::system()).unwrap();
            pieces += step.pieces;
            if !step.more {
                return pieces;
            }
        }
    }
}
