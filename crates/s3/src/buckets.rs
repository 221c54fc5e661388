//! The buckets: names for directories of the cell.

use leeward_door::{Path, Principal};
use std::sync::Arc;

/// A directory that was published under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Its name.
    pub name: Arc<str>,
    /// The directory.
    pub path: Path,
    /// When it was published, seconds since 1970.
    pub created_secs: i64,
    /// Whether a client without a key may read what user `nobody` may read.
    pub public: bool,
    /// Rules for browsers as JSON, see `cors.rs`; empty: none.
    pub cors: Arc<str>,
}

/// The one thing that a bucket's policy can express here: that anybody may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublicPolicy {
    /// `nobody` may read what its mode lets others read.
    Read,
    /// No one without a key.
    None,
}

/// Why a bucket was not made or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketError {
    /// The name is taken.
    Taken,
    /// The user has this bucket already.
    Yours,
    /// There is no bucket of this name.
    Unknown,
    /// The user may not; the reason.
    Refused(String),
    /// An error; its text.
    Failed(String),
}

/// Looks buckets up, and changes them.
#[async_trait::async_trait]
pub trait Buckets: Send + Sync + 'static {
    /// The bucket of this name.
    fn get(&self, name: &str) -> Option<Arc<Bucket>>;
    /// All buckets, by name.
    fn all(&self) -> Vec<Arc<Bucket>>;
    /// Makes a bucket on a user's request. The operator's rule says where, and whether at all.
    /// Durable when it returns.
    async fn create(&self, who: &Principal, name: &str) -> Result<(), BucketError>;
    /// Unpublishes an empty bucket on a user's request, and removes its directory. Durable when it
    /// returns.
    async fn remove(&self, who: &Principal, name: &str) -> Result<(), BucketError>;
    /// Sets whether clients without a key may read. Durable when it returns.
    async fn set_public(&self, who: &Principal, name: &str, policy: PublicPolicy) -> Result<(), BucketError>;
    /// Sets the rules for browsers. Durable when it returns.
    async fn set_cors(&self, who: &Principal, name: &str, cors: &str) -> Result<(), BucketError>;
}
