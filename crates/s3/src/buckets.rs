//! Which buckets there are: names for directories of the cell.

use leeward_door::{Path, Who};
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
    /// Whether anybody may read without a key what user `nobody` may.
    pub public: bool,
    /// Rules for browsers as JSON, see `cors.rs`; empty: none.
    pub cors: Arc<str>,
}

/// What a bucket's policy can say here: that anybody may read.
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
    /// The user has it already.
    Yours,
    /// There is none of this name.
    Unknown,
    /// The user may not: why.
    Refused(String),
    /// It went wrong: how.
    Failed(String),
}

/// Who knows the buckets.
#[async_trait::async_trait]
pub trait Buckets: Send + Sync + 'static {
    /// One of them.
    fn get(&self, name: &str) -> Option<Arc<Bucket>>;
    /// All of them by name.
    fn all(&self) -> Vec<Arc<Bucket>>;
    /// Makes one by the wish of a user: where, and whether at all, is the operator's rule. Durable when it returns.
    async fn create(&self, who: &Who, name: &str) -> Result<(), BucketError>;
    /// Unpublishes an empty one by the wish of a user, and removes its directory. Durable when it returns.
    async fn remove(&self, who: &Who, name: &str) -> Result<(), BucketError>;
    /// Says who may read without a key. Durable when it returns.
    async fn set_public(&self, who: &Who, name: &str, policy: PublicPolicy) -> Result<(), BucketError>;
    /// Sets the rules for browsers. Durable when it returns.
    async fn set_cors(&self, who: &Who, name: &str, cors: &str) -> Result<(), BucketError>;
}
