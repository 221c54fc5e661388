//! One request: its sender, its bucket, and its turn.

use crate::access::{self, Certified, Keys};
use crate::buckets::{Bucket, Buckets};
use crate::error;
use crate::uploads::Uploads;
use leeward_door::listen::{RequestLabels, Turn, Turns};
use leeward_door::{Files, Path, Principal, Tree};
use leeward_env::Door;
use parking_lot::Mutex;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result};
use std::sync::Arc;

/// Where a request leaves the labels for the door's log and figures.
pub(crate) type Slot = Arc<Mutex<RequestLabels>>;

/// Where a form's request leaves the key that it has made.
pub(crate) type Posted = Arc<Mutex<Option<String>>>;

/// The state that all requests share.
#[derive(Clone)]
pub(crate) struct Shared(pub(crate) Arc<Parts>);

pub(crate) struct Parts {
    pub(crate) files: Files,
    pub(crate) keys: Arc<dyn Keys>,
    pub(crate) buckets: Arc<dyn Buckets>,
    pub(crate) turns: Turns,
    pub(crate) uploads: Uploads,
    pub(crate) region: String,
}

/// A request whose sender and bucket are known.
pub(crate) struct Call {
    pub(crate) who: Principal,
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) tree: Tree,
}

impl Shared {
    /// The sender.
    ///
    /// # Errors
    /// `AccessDenied` for a client with neither a key nor a certificate.
    pub(crate) async fn who<T>(&self, request: &S3Request<T>) -> S3Result<Principal> {
        let who = match (&request.credentials, request.extensions.get::<Certified>()) {
            (Some(credentials), _) => access::find(&*self.0.keys, &credentials.access_key).await?.who,
            (None, Some(Certified(Ok(who)))) => who.clone(),
            (None, _) => return Err(access::no_key()),
        };
        note(request, |told| told.user = Some(who.name.clone()));
        Ok(who)
    }

    /// The sender and the bucket. A client without a key that comes here only reads: see
    /// `access::Checks`.
    ///
    /// # Errors
    /// `NoSuchBucket`, `AccessDenied`.
    pub(crate) async fn call<T>(&self, request: &S3Request<T>, bucket: &str) -> S3Result<Call> {
        let bucket = self.bucket(bucket)?;
        note(request, |told| told.bucket = Some(bucket.name.clone()));
        let who = match request.credentials {
            None if bucket.public && request.extensions.get::<Certified>().is_none() => nobody(),
            _ => self.who(request).await?,
        };
        let tree = self.0.files.tree(&who, Door::S3, &bucket.path);
        let call = Call { who, bucket, tree };
        if let Some(owner) = request.headers.get("x-amz-expected-bucket-owner") {
            let _turn = self.turn(&call).await?;
            call.expect_owner(&call.tree, Some(owner.to_str().unwrap_or_default())).await?;
        }
        Ok(call)
    }

    /// Compares a bucket's owner with the one that the client expects.
    ///
    /// # Errors
    /// As of [`Call::expect_owner`].
    pub(crate) async fn expect_owner<T>(
        &self,
        request: &S3Request<T>,
        bucket: &str,
        owner: Option<&str>,
    ) -> S3Result<()> {
        if owner.is_none() {
            return Ok(());
        }
        let call = self.call(request, bucket).await?;
        let _turn = self.turn(&call).await?;
        call.expect_owner(&call.tree, owner).await
    }

    /// A bucket.
    pub(crate) fn bucket(&self, name: &str) -> S3Result<Arc<Bucket>> {
        self.0.buckets.get(name).ok_or_else(error::no_such_bucket)
    }

    /// Takes a turn of the user.
    ///
    /// # Errors
    /// `SlowDown`, at once.
    pub(crate) async fn turn(&self, call: &Call) -> S3Result<Turn> {
        self.0.turns.take(call.tree.ctx()).await.map_err(error::busy)
    }

    /// The time of the wall clock.
    pub(crate) fn wall(&self) -> u64 {
        self.0.files.env().wall()
    }
}

impl Call {
    /// Another bucket's files as the same user.
    pub(crate) fn tree_of(&self, shared: &Shared, bucket: &Bucket) -> Tree {
        shared.0.files.tree(&self.who, Door::S3, &bucket.path)
    }

    /// Compares the owner of a bucket with the one that the client expects: a name, which is the
    /// client's own, or a user id.
    ///
    /// # Errors
    /// `AccessDenied`: the owner is another one.
    pub(crate) async fn expect_owner(&self, tree: &Tree, owner: Option<&str>) -> S3Result<()> {
        let Some(owner) = owner else { return Ok(()) };
        let is = tree.access(&Call::root(), 0).await.map_err(error::of_root)?.uid;
        if owner == is.to_string() || owner == &*self.who.name && is == self.who.uid {
            return Ok(());
        }
        Err(S3Error::with_message(
            S3ErrorCode::AccessDenied,
            "The bucket is not of the owner who is expected.",
        ))
    }

    /// The bucket itself.
    pub(crate) fn root() -> Path {
        Path::default()
    }
}

fn nobody() -> Principal {
    Principal::new("nobody", 65534, 65534, &[])
}

fn note<T>(request: &S3Request<T>, f: impl FnOnce(&mut RequestLabels)) {
    if let Some(slot) = request.extensions.get::<Slot>() {
        f(&mut slot.lock());
    }
}
