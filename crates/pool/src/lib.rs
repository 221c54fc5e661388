//! Pools keep **segments**: immutable objects that the data log packs and names. Nothing else is
//! stored here.
//!
//! A [`Store`] is one directory, or one prefix of a bucket. A [`Pool`] is several stores under a
//! [`Layout`], and is a [`Store`] itself ([`layout`](assemble)). A store knows nothing of an
//! object's content. The checksums of content belong to the data log, which verifies them end to
//! end. The checksums of pieces belong to the layouts, which use them to find out which store is
//! wrong. Before each store stands a gate ([`GatedStore`]): it decides which transfer is next, and
//! how much is in flight at once.

pub mod contract;
mod counted;
mod dir;
mod error;
mod faulty;
mod gated;
mod hooked;
pub mod label;
mod layout;
pub mod location;
mod mem;
mod resting;
mod s3;

pub use counted::{CallFigures, CountedStore, StoreFigures};
pub use dir::DirStore;
pub use error::{Error, Result};
pub use faulty::{Chance, FaultyStore, StoreCalls, StoreFault};
pub use gated::{GateFigures, GatedStore};
pub use hooked::HookedStore;
pub use layout::{
    COPIES_MAX, Condition, FailedPuts, Health, IsWhole, Layout, Member, PUT_PERCENT_MAX, Pool, PoolSpec,
    Progress, STORES_MAX, Scrub, SpecError, Step, StoreHealth, StoreSpec, StoreState, Tier, TierHealth,
    TierOptions, assemble, assemble_anew, bench,
};
pub use mem::MemStore;
pub use resting::RestingStore;
pub use s3::S3Store;

use leeward_env::Ctx;
use leeward_env::disk::Space;

/// Name of an object: a segment, and a generation (0: as first sealed).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    /// Segment number, never reused in a cell.
    pub segment: u64,
    /// Generation: higher at each rewriting by cleaning. Each name is used once, see decision 24.
    pub generation: u32,
}

/// A page-aligned, page-padded buffer, so that a store can write it around the page cache without a
/// copy.
pub use leeward_env::disk::real::AlignedBuf;

/// Runs one piece of a transfer, with its length in bytes, when it is its turn.
pub type Pace<'a> = &'a dyn Fn(usize, &mut dyn FnMut() -> Result<()>) -> Result<()>;

/// A place where objects are kept.
///
/// Contract (run [`contract::run`] on every implementation and decorator):
/// * `put` is durable and whole when it returns. Before that the object may be absent or torn, but
///   never under another object's name. An existing object of that name and content is fine. An
///   object of other content is replaced (it can only be a torn leftover), or kept in a store that
///   has no torn objects: then the answer is `Exists`. (A pool of such stores may answer `Exists`
///   for an object of the same content, too.) A store that several processes reach must keep it, so
///   that a late write of one process never replaces what another one relies on.
/// * `get` fills the whole buffer or fails: `NotFound`, `Short` (the object ends before the range
///   ends), or an error of the store.
/// * `delete` of an absent object is no error.
/// * All calls may be made from several threads at once.
pub trait Store: Send + Sync {
    /// Stores an object. `body.len()` is a multiple of 4096.
    fn put(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()>;
    /// Stores an object in place of another one of this name that must not stay, because it is
    /// damaged or of an earlier put. A store that keeps existing objects replaces only the object
    /// that it has looked at. If another writer was faster, that object stays and the answer is
    /// `Exists`.
    fn replace(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        self.put(ctx, id, body)
    }
    /// As `put`, each piece within a call of `pace`. A store that cannot transfer in pieces makes
    /// one call.
    fn put_paced(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf, pace: Pace<'_>) -> Result<()> {
        pace(body.len(), &mut || self.put(ctx, id, body))
    }
    /// The best number of bytes per slice while others wait.
    fn slice_bytes(&self) -> usize {
        leeward_env::limits::SEGMENT_BYTES_MAX
    }
    /// Reads `buf.len()` bytes at `offset`. Goes around the page cache where offset, length and
    /// address are aligned to 4096.
    fn get(&self, ctx: &Ctx, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// Length in bytes.
    fn len(&self, ctx: &Ctx, id: ObjectId) -> Result<u64>;
    /// Makes the object of this name durable, whoever put it: a process that was killed may have
    /// written it and not synced it.
    fn settle(&self, ctx: &Ctx, id: ObjectId) -> Result<()>;
    /// Removes an object.
    fn delete(&self, ctx: &Ctx, id: ObjectId) -> Result<()>;
    /// All objects with their lengths, in order. For fsck and for leftovers at start, never on a
    /// hot path.
    fn list(&self, ctx: &Ctx) -> Result<Vec<(ObjectId, u64)>>;
    /// Whether the store takes puts more slowly than it could for a while, because it is nearly
    /// full and has to be emptied. Callers with much to put should slow down.
    fn is_pressed(&self) -> bool {
        false
    }
    /// Whether calls of the store have not returned for long. Work that can wait should leave it
    /// alone.
    fn is_stuck(&self) -> bool {
        false
    }
    /// Free space. A store of unknown size gives some large number, always the same.
    fn space(&self) -> Result<Space>;
}
