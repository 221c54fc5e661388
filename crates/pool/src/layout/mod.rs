//! Pools: several stores as one, under a [`Layout`].
//!
//! [`assemble`] makes a [`Pool`], which is a [`Store`], of a [`PoolSpec`] and its opened stores. Nothing is read or
//! written by that: a pool of which stores are missing is as usable as what is left of it allows.
//!
//! A pool never changes its shape. To replace, drain or add a store, or when a missing one is back, the owner
//! assembles the changed spec anew and drops the old pool; what the old one knew to be missing is found again by a
//! listing (the first [`Pool::repair_step`]).

mod answers;
pub mod bench;
mod books;
mod code;
mod field;
mod group;
mod health;
mod known;
mod lane;
mod notes;
mod piece;
mod read;
mod rebuilt;
mod repair;
mod repairs;
mod scrub;
mod seat;
mod single;
mod spec;
mod survey;
mod tier;
mod write;

pub use health::{Condition, Health, Progress, Step, StoreHealth, TierHealth};
pub use spec::{COPIES_MAX, Layout, PoolSpec, STORES_MAX, SpecError, StoreSpec, StoreState};
pub use tier::{BRIM_PERCENT, Tier, TierOptions};

use crate::{ObjectId, Result, Store};
use leeward_env::{Activity, Ctx, Env};
use std::sync::Arc;

/// One store of a pool, as far as it could be had. See [`label::check`](crate::label) for what to check before.
pub enum Member {
    /// It is open.
    Open(Arc<dyn Store>),
    /// It could not be opened; why.
    Missing(String),
}

/// Several stores as one.
///
/// Besides what a [`Store`] promises: what is acknowledged is on as many stores as its layout needs to read it, and
/// everything that could not be written is known as missing until it is repaired. The steps are to be called in the
/// background, with a context of that class, for as long as they say that there is more; they may be called at any
/// time and from any thread, one at a time of each kind runs.
pub trait Pool: Store {
    /// What it is made of.
    fn spec(&self) -> &PoolSpec;

    /// How it is. Touches no store.
    fn health(&self) -> Health;

    /// Which of these objects, given with their lengths, cannot be read now, as too little is left of them or can be had: of what was never put, or is on
    /// fewer stores than it takes, a pool cannot know that it is missed. Asks all stores for what they have, and looks closer at
    /// objects of which not all is there; contents are not verified.
    ///
    /// # Errors
    /// When not even a listing can be had.
    fn lacking(&self, ctx: &Ctx, expected: &[(ObjectId, u64)]) -> Result<Vec<(ObjectId, u64)>>;

    /// These objects, and no others that were said before, ought to be there and are not: they count as lost
    /// ([`Health::lost_objects`]) until they are put, deleted or read whole.
    fn note_lost(&self, objects: Vec<ObjectId>);

    /// What reads and verifies all that is there; nothing where nothing is known of what is right, as in `single`: that is up to
    /// who put it there. Each pool of a tier has its own.
    fn scrub(&self) -> Option<&dyn Scrub> {
        None
    }

    /// Puts the next object in order that lacks pieces, or moves the next piece off a store that is draining. The
    /// first step searches for both by a listing.
    ///
    /// # Errors
    /// When not even a listing can be had. What cannot be repaired now stays waiting.
    fn repair_step(&self, ctx: &Ctx) -> Result<Step>;
}

/// Reads and verifies all that is in a pool, in the order of objects, again and again: in passes.
pub trait Scrub {
    /// The next step begins a pass, over all objects or those after this one; what was left of the one before is not done.
    fn begin(&self, after: Option<ObjectId>);

    /// Reads and verifies the next object; what is found missing or bad waits for repair. After the last one `more` is false, and
    /// a new pass begins with the next step.
    ///
    /// # Errors
    /// When not even a listing can be had. Stores that fail are skipped, and said in the health.
    fn step(&self, ctx: &Ctx) -> Result<Step>;

    /// The object up to which this pass read all and all is in order: a later process need not begin before it.
    fn reached(&self) -> Option<ObjectId>;
}

/// Says whether these bytes are the whole object of that name, by checksums in it. What puts objects into a pool knows.
pub type IsWhole = fn(ObjectId, &[u8]) -> bool;

/// A pool of these stores, which are in the order of `spec.stores`. Beside users who are active, work of ours asks stores one after the
/// other. `is_whole`: of two different objects of one name on a store that is emptied and on the one that follows it, it says
/// which one counts; a layout with checksums of its own does not need it.
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
    spec.check()?;
    if members.len() != spec.stores.len() {
        let (have, need) = (members.len(), spec.stores.len());
        return Err(SpecError(format!("pool {}: {have} stores were opened, it has {need}", spec.name)));
    }
    match spec.layout {
        Layout::Single => Ok(Arc::new(single::Single::new(env, spec, members, is_whole))),
        Layout::Replica { .. } | Layout::Erasure { .. } => {
            Ok(Arc::new(group::Group::new(env, activity, spec, members)))
        }
    }
}
