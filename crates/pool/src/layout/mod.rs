//! Pools: several stores as one, under a [`Layout`].
//!
//! [`assemble`] makes a [`Pool`], which is a [`Store`], from a [`PoolSpec`] and its opened stores.
//! This reads and writes nothing: a pool with missing stores works as far as the others allow.
//!
//! A pool never changes its shape. To replace, drain or add a store, or when a missing one is back,
//! the owner assembles the changed spec anew and drops the old pool. A listing (the first
//! [`Pool::repair_step`]) finds again what the old pool knew to be missing. What no listing tells,
//! the owner hands over ([`FailedPuts`]).

mod answers;
pub mod bench;
mod code;
mod field;
mod group;
mod health;
mod known;
mod lane;
mod notes;
mod patient;
mod piece;
mod pool_store;
mod read;
mod rebuilt;
mod repair;
mod repairs;
mod scrub;
mod single;
mod space;
mod spec;
mod survey;
mod tier;
mod tier_index;
mod write;

pub use health::{Condition, Health, Progress, Step, StoreHealth, TierHealth};
pub use spec::{COPIES_MAX, Layout, PoolSpec, STORES_MAX, SpecError, StoreSpec, StoreState};
pub use tier::{PUT_PERCENT_MAX, Tier, TierOptions};
pub use write::FailedPuts;

use crate::{ObjectId, Result, Store};
use leeward_env::{Activity, Ctx, Env};
use std::sync::Arc;

/// One store of a pool, if it could be opened. See [`label::check`](crate::label) for what to check
/// before.
pub enum Member {
    /// It is open.
    Open(Arc<dyn Store>),
    /// It could not be opened; why.
    Missing(String),
}

/// Several stores as one.
///
/// In addition to the contract of a [`Store`]: acknowledged data is on as many stores as its layout
/// needs to read it, and everything that could not be written is known as missing until it is
/// repaired. The owner calls the steps in the background, with a context of that class, for as long
/// as they say that there is more. Steps may be called at any time and from any thread; one step of
/// each kind runs at a time.
pub trait Pool: Store {
    /// What the pool is made of.
    fn spec(&self) -> &PoolSpec;

    /// State of the pool. Calls no store.
    fn health(&self) -> Health;

    /// Which of these objects, given with their lengths, cannot be read now because too few pieces
    /// are left or reachable. A pool cannot know that an object is missing that was never put, or
    /// is on fewer stores than needed. Lists all stores, and looks closer at objects of which not
    /// all pieces are there. Contents are not verified.
    ///
    /// # Errors
    /// When not even a listing can be had.
    fn lacking(&self, ctx: &Ctx, expected: &[(ObjectId, u64)]) -> Result<Vec<(ObjectId, u64)>>;

    /// These objects ought to exist and do not; the list replaces the one given before. They count
    /// as lost ([`Health::lost_objects`]) until they are put, deleted or read whole.
    fn note_lost(&self, objects: Vec<ObjectId>);

    /// The scrub that reads and verifies all objects. `None` where the layout has no checksums, as
    /// in `single`: there the owner of the objects verifies. Each pool of a tier has its own.
    fn scrub(&self) -> Option<&dyn Scrub> {
        None
    }

    /// Repairs the next object that lacks pieces, or moves the next piece off a store that is
    /// draining. The first step finds both by a listing.
    ///
    /// # Errors
    /// When not even a listing can be had. What cannot be repaired now stays waiting.
    fn repair_step(&self, ctx: &Ctx) -> Result<Step>;
}

/// Reads and verifies all objects of a pool in order, again and again. Once through is a pass.
pub trait Scrub {
    /// The next step begins a pass, over all objects or those after `after`. An unfinished pass
    /// before it is dropped.
    fn begin(&self, after: Option<ObjectId>);

    /// Reads and verifies the next object. Missing or bad pieces wait for repair. After the last
    /// object `more` is false, and a new pass begins with the next step.
    ///
    /// # Errors
    /// When not even a listing can be had. Stores that fail are skipped, and shown in the health.
    fn step(&self, ctx: &Ctx) -> Result<Step>;

    /// The object up to which this pass has read everything and found it good. A later process need
    /// not begin before it.
    fn reached(&self) -> Option<ObjectId>;
}

/// Says by checksums within them whether these bytes are the whole object of that name. The layer
/// that puts objects knows.
pub type IsWhole = fn(ObjectId, &[u8]) -> bool;

/// A pool of these stores, in the order of `spec.stores`. While users are active, background work
/// asks stores one after the other. `is_whole` decides between two different objects of one name,
/// on a store that is emptied and on its successor. A layout with checksums of its own does not
/// need it.
///
/// # Errors
/// When no such pool can be, which [`PoolSpec::check`] would have said, or the numbers differ.
pub fn assemble(
    env: &Env,
    activity: &Arc<Activity>,
    spec: &PoolSpec,
    members: Vec<Member>,
    is_whole: IsWhole,
) -> std::result::Result<Arc<dyn Pool>, SpecError> {
    assemble_anew(env, activity, spec, members, is_whole, &FailedPuts::default())
}

/// As [`assemble`], in place of a pool that was given the same `failed`: a put that failed there
/// may be repeated here.
///
/// # Errors
/// As those of [`assemble`].
pub fn assemble_anew(
    env: &Env,
    activity: &Arc<Activity>,
    spec: &PoolSpec,
    members: Vec<Member>,
    is_whole: IsWhole,
    failed: &FailedPuts,
) -> std::result::Result<Arc<dyn Pool>, SpecError> {
    spec.check()?;
    if members.len() != spec.stores.len() {
        let (have, need) = (members.len(), spec.stores.len());
        return Err(SpecError(format!("pool {}: {have} stores were opened, it has {need}", spec.name)));
    }
    match spec.layout {
        Layout::Single => Ok(Arc::new(single::Single::new(env, spec, members, is_whole))),
        Layout::Replica { .. } | Layout::Erasure { .. } => {
            Ok(Arc::new(group::Group::new(env, activity, spec, members, failed)))
        }
    }
}
