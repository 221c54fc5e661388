//! Pools keep **segments**: immutable objects that the data log packs and names. Nothing else is stored here.
//!
//! A [`Store`] is one place (a directory, a bucket of an object store). A [`Pool`] is several stores under a [`Layout`], and a
//! [`Store`] again ([`layout`](assemble)). A store knows nothing of what is inside an object: its checksums are the
//! data log's, verified end to end; those of pieces are the layouts', which thereby know whom not to believe.
//! Before each store stands a gate ([`GatedStore`]): who is next, and how much at once.

pub mod contract;
mod counted;
mod dir;
mod error;
mod faulty;
mod gated;
mod hooked;
pub mod label;
mod layout;
mod mem;
pub mod place;
mod resting;
mod s3;

pub use counted::{CallFigures, CountedStore, StoreFigures};
pub use dir::DirStore;
pub use error::{Error, Result};
pub use faulty::{Chance, FaultyStore, StoreCalls, StoreFault};
pub use gated::{GateFigures, GatedStore};
pub use hooked::HookedStore;
pub use layout::{
    BRIM_PERCENT, COPIES_MAX, Condition, Health, IsWhole, Layout, Member, Pool, PoolSpec, Progress,
    STORES_MAX, Scrub, SpecError, Step, StoreHealth, StoreSpec, StoreState, Tier, TierHealth, TierOptions,
    assemble, bench,
};
pub use mem::MemStore;
pub use resting::RestingStore;
pub use s3::S3Store;

use leeward_env::Ctx;
use leeward_env::disk::Space;

/// Name of an object: a segment, and which rewriting of it (0: as first sealed).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    /// Segment number, never reused in a cell.
    pub segment: u64,
    /// Generation: higher at each rewriting by cleaning. A name is given out once, see decision 24.
    pub generation: u32,
}

/// A page-aligned, page-padded buffer, so that a store can write it around the page cache without a copy.
pub use leeward_env::disk::real::AlignedBuf;

/// Runs a piece of a transfer, of so many bytes, when it is its turn.
pub type Pace<'a> = &'a dyn Fn(usize, &mut dyn FnMut() -> Result<()>) -> Result<()>;

/// One place where objects are kept.
///
/// Contract (run [`contract::run`] on every implementation and decorator):
/// * `put` is durable and whole when it returns; before that the object may be absent or torn, never under another's
///   name. An existing object of that name and content is fine. One of other content is replaced (it can only be a torn
///   leftover), or, in a store that has no torn objects, kept: then the answer is `Exists` (a pool of such stores may say so of an
///   object of the same content, too). Where several processes reach
///   a store it must be the latter: so nothing that one writes late ever replaces what another one relies on.
/// * `get` fills the whole buffer or fails: `NotFound`, `Short` (object ends before the range), or as the store does.
/// * `delete` of an absent object is no error.
/// * all calls may be made from several threads at once.
pub trait Store: Send + Sync {
    /// Stores an object. `body.len()` is a multiple of 4096.
    fn put(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()>;
    /// Stores an object in place of another of this name that must not stay, as it is damaged or of an earlier put. A store that
    /// keeps what is there replaces just what it has looked at: who was faster wins, and the answer is `Exists`.
    fn replace(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf) -> Result<()> {
        self.put(ctx, id, body)
    }
    /// As `put`, each piece within a call of `pace`. A store that cannot transfer in pieces does it all in one.
    fn put_paced(&self, ctx: &Ctx, id: ObjectId, body: &AlignedBuf, pace: Pace<'_>) -> Result<()> {
        pace(body.len(), &mut || self.put(ctx, id, body))
    }
    /// Bytes that are best transferred at once where others wait.
    fn slice_bytes(&self) -> usize {
        leeward_env::limits::SEGMENT_BYTES_MAX
    }
    /// Reads `buf.len()` bytes at `offset`. Around the page cache where offset, length and address are aligned to 4096.
    fn get(&self, ctx: &Ctx, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// Length in bytes.
    fn len(&self, ctx: &Ctx, id: ObjectId) -> Result<u64>;
    /// Makes durable what is there under this name, whoever put it: a process that was killed may have written it, and not synced it.
    fn settle(&self, ctx: &Ctx, id: ObjectId) -> Result<()>;
    /// Removes an object.
    fn delete(&self, ctx: &Ctx, id: ObjectId) -> Result<()>;
    /// All objects with their lengths, in order. For fsck and for leftovers at start, never on a hot path.
    fn list(&self, ctx: &Ctx) -> Result<Vec<(ObjectId, u64)>>;
    /// Whether it takes what is put more slowly than it could for a while, as it is nearly full and has to be emptied: who has
    /// much to put had better slow down.
    fn is_pressed(&self) -> bool {
        false
    }
    /// Free space; of a store without a known end some large number, always the same.
    fn space(&self) -> Result<Space>;
}
