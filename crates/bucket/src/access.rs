//! The objects of a bucket, for threads that wait.

use crate::client::Connector;
use crate::location::Profile;
use crate::watched::Watched;
use crate::{Error, Location, Result, runtime};
use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{
    BackoffConfig, ClientOptions, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    PutPayload, RetryConfig, UpdateVersion,
};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time limit for making a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(4);
/// Time limit for one request and its answer.
const REQUEST_WAIT: Duration = Duration::from_secs(20);
/// Time limit for a call with its retries.
const CALL_WAIT: Duration = Duration::from_secs(40);
/// Time limit for the first call: an operator waits for it.
const FIRST_WAIT: Duration = Duration::from_secs(8);
/// Time limit for a list, which is many requests.
const LIST_WAIT: Duration = Duration::from_secs(3600);
/// No retry begins later than this.
const RETRY_WAIT: Duration = Duration::from_secs(10);
const RETRIES_MAX: usize = 5;
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// Time limit for a call of one who asks again soon anyway.
const IMPATIENT_WAIT: Duration = Duration::from_millis(1000);

/// The version of an object that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Tag(UpdateVersion);

impl Tag {
    /// The same without quotation marks: Ceph's gateway (16.2) compares what it is sent with that.
    fn bare(&self) -> Option<Tag> {
        let bare = self.0.e_tag.as_ref()?.strip_prefix('"')?.strip_suffix('"')?;
        Some(Tag(UpdateVersion { e_tag: Some(bare.into()), version: self.0.version.clone() }))
    }
}

/// A bucket below a prefix. Cheap to clone.
#[derive(Clone)]
pub struct Bucket {
    place: Arc<Location>,
    objects: Arc<PrefixStore<AmazonS3>>,
    call_wait: Duration,
    /// The store wants tags without quotation marks.
    wants_bare_tags: Arc<AtomicBool>,
}

impl Bucket {
    /// The bucket at this location, with the credentials of the environment. Makes no request.
    ///
    /// # Errors
    /// Wrong: the environment or a profile has unusable values.
    pub fn new(place: &Location) -> Result<Bucket> {
        Self::build(place, with_credentials(builder(place), place.url.profile.as_deref())?)
    }

    /// The same with calls of one attempt, which end within a second: for one who asks again soon
    /// anyway.
    ///
    /// # Errors
    /// Wrong.
    pub fn impatient(place: &Location) -> Result<Bucket> {
        let once = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let builder = within(builder(place).with_retry(once), place, IMPATIENT_WAIT);
        let bucket = Self::build(place, with_credentials(builder, place.url.profile.as_deref())?)?;
        Ok(Bucket { call_wait: IMPATIENT_WAIT, ..bucket })
    }

    /// The same, and every object is sent with its checksum: buckets that lock objects take no
    /// others.
    ///
    /// # Errors
    /// Wrong.
    pub fn with_checksums(place: &Location) -> Result<Bucket> {
        Self::build(place, with_credentials(checked(builder(place)), place.url.profile.as_deref())?)
    }

    /// The bucket with these keys. For tests.
    ///
    /// # Errors
    /// Wrong.
    pub fn with_keys(place: &Location, id: &str, secret: &str) -> Result<Bucket> {
        Self::build(place, builder(place).with_access_key_id(id).with_secret_access_key(secret))
    }

    fn build(place: &Location, builder: AmazonS3Builder) -> Result<Bucket> {
        let s3 = runtime().enter(|| builder.build()).map_err(|e| Error::Wrong(format!("{place}: {e}")))?;
        let objects = Arc::new(PrefixStore::new(s3, place.url.prefix.as_str()));
        Ok(Bucket {
            place: Arc::new(place.clone()),
            objects,
            call_wait: CALL_WAIT,
            wants_bare_tags: Arc::default(),
        })
    }

    /// Location of the bucket.
    pub fn place(&self) -> &Location {
        &self.place
    }

    /// The objects, for a library that retries by itself: logs when the store goes away and comes
    /// back.
    pub fn objects(&self) -> Arc<dyn ObjectStore> {
        Arc::new(Watched::new(self.objects.clone(), &self.place))
    }

    /// The first call: an object, or none. Answers within seconds, also if the store does not
    /// answer.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn look(&self, name: &str) -> Result<Option<Bytes>> {
        self.optional(self.within(FIRST_WAIT, name, self.read(name)))
    }

    /// An object, or none.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn get(&self, name: &str) -> Result<Option<Bytes>> {
        self.optional(self.within(self.call_wait, name, self.read(name)))
    }

    fn optional(&self, read: Result<Bytes>) -> Result<Option<Bytes>> {
        match read {
            Err(Error::Missing(_)) => Ok(None),
            other => other.map(Some),
        }
    }

    async fn read(&self, name: &str) -> object_store::Result<Bytes> {
        self.objects.get(&Path::from(name)).await?.bytes().await
    }

    /// An object with its tag, or none. For [`Bucket::swap`].
    ///
    /// # Errors
    /// See [`Error`].
    pub fn get_tagged(&self, name: &str) -> Result<Option<(Bytes, Tag)>> {
        let read = self.within(self.call_wait, name, async {
            let got = self.objects.get(&Path::from(name)).await?;
            let tag = Tag(UpdateVersion { e_tag: got.meta.e_tag.clone(), version: got.meta.version.clone() });
            Ok((got.bytes().await?, tag))
        });
        match read {
            Err(Error::Missing(_)) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Replaces the object that has this tag (`If-Match`); the tag of what is there then.
    ///
    /// # Errors
    /// Exists, when another object or none is there by now. As with [`Bucket::create`], that may be
    /// what an earlier attempt of this call stored.
    pub fn swap(&self, name: &str, body: Bytes, tag: &Tag) -> Result<Tag> {
        let put = |tag: Tag| self.put(name, body.clone(), PutMode::Update(tag.0));
        let bare = tag.bare();
        if let Some(bare) = bare.clone().filter(|_| self.wants_bare_tags.load(Ordering::Relaxed)) {
            return put(bare);
        }
        match (put(tag.clone()), bare) {
            (Err(Error::Exists(_)), Some(bare)) => {
                let put = put(bare)?;
                self.wants_bare_tags.store(true, Ordering::Relaxed);
                Ok(put)
            }
            (put, _) => put,
        }
    }

    /// Up to `len` bytes of an object from `offset`, fewer only at its end.
    ///
    /// # Errors
    /// See [`Error`]; Failed also where the object ends before `offset`.
    pub fn get_range(&self, name: &str, offset: u64, len: u64) -> Result<Bytes> {
        self.within(self.call_wait, name, async {
            let range = Some(GetRange::Bounded(offset..offset + len));
            let options = GetOptions { range, ..GetOptions::default() };
            self.objects.get_opts(&Path::from(name), options).await?.bytes().await
        })
    }

    /// Length of an object.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn len(&self, name: &str) -> Result<u64> {
        self.within(self.call_wait, name, async { Ok(self.objects.head(&Path::from(name)).await?.size) })
    }

    /// Stores an object that must not exist yet.
    ///
    /// # Errors
    /// Exists, also where an earlier attempt of this call succeeded though no answer came: compare.
    pub fn create(&self, name: &str, body: Bytes) -> Result<()> {
        self.put(name, body, PutMode::Create).map(drop)
    }

    /// Stores an object, replacing an existing one.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn replace(&self, name: &str, body: Bytes) -> Result<()> {
        self.put(name, body, PutMode::Overwrite).map(drop)
    }

    fn put(&self, name: &str, body: Bytes, mode: PutMode) -> Result<Tag> {
        self.within(self.call_wait, name, async {
            let options = PutOptions { mode, ..PutOptions::default() };
            let put = self.objects.put_opts(&Path::from(name), PutPayload::from(body), options).await?;
            Ok(Tag(UpdateVersion { e_tag: put.e_tag, version: put.version }))
        })
    }

    /// Removes an object; a missing one is no error.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn delete(&self, name: &str) -> Result<()> {
        match self.within(self.call_wait, name, self.objects.delete(&Path::from(name))) {
            Err(Error::Missing(_)) => Ok(()),
            other => other,
        }
    }

    /// Names and lengths of all objects below `dir`, in no order. One request for each thousand
    /// objects.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn list(&self, dir: &str) -> Result<Vec<(String, u64)>> {
        // who is impatient lists little
        let wait = if self.call_wait < CALL_WAIT { self.call_wait } else { LIST_WAIT };
        self.within(wait, dir, async {
            let below = Path::from(dir);
            let found = self.objects.list(Some(&below)).map_ok(|o| (o.location.to_string(), o.size));
            found.try_collect().await
        })
    }

    /// The names directly below the prefix: objects and, with a slash, prefixes of objects.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn names(&self) -> Result<Vec<String>> {
        self.within(self.call_wait, "", async {
            let found = self.objects.list_with_delimiter(None).await?;
            let dirs = found.common_prefixes.iter().map(|p| format!("{p}/"));
            Ok(dirs.chain(found.objects.iter().map(|o| o.location.to_string())).collect())
        })
    }

    fn within<T>(
        &self,
        deadline: Duration,
        name: &str,
        what: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        let done = runtime().wait(async { tokio::time::timeout(deadline, what).await });
        match done {
            Ok(done) => done.map_err(|e| Error::of(&self.place, name, &e)),
            Err(_) => Err(Error::away(&self.place, &format!("not within {} s", deadline.as_secs()))),
        }
    }
}

/// The builder, for requests that take at most `wait`.
fn within(builder: AmazonS3Builder, place: &Location, wait: Duration) -> AmazonS3Builder {
    let plain = place.endpoint.as_ref().is_some_and(|e| e.starts_with("http://"));
    let connect_wait = CONNECT_WAIT.min(wait);
    let options = ClientOptions::new().with_allow_http(plain);
    builder
        .with_client_options(options.with_connect_timeout(connect_wait).with_timeout(wait))
        .with_http_connector(Connector { connect_wait, wait })
}

fn builder(place: &Location) -> AmazonS3Builder {
    let backoff = BackoffConfig { init_backoff: BACKOFF_FIRST, max_backoff: BACKOFF_MAX, base: 2.0 };
    let retry = RetryConfig { backoff, max_retries: RETRIES_MAX, retry_timeout: RETRY_WAIT };
    // a profile that the URL names is used alone
    let from = if place.url.profile.is_some() { AmazonS3Builder::new() } else { AmazonS3Builder::from_env() };
    let mut builder = within(from, place, REQUEST_WAIT)
        .with_retry(retry)
        // one by one: not every store supports bulk deletes
        .with_disable_bulk_delete(true)
        .with_bucket_name(&place.url.bucket);
    if let Some(endpoint) = &place.endpoint {
        // of the two variables for the endpoint the client library would prefer the other one
        builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint).with_endpoint(endpoint);
    }
    match &place.region {
        Some(region) => builder.with_region(region),
        None => builder,
    }
}

/// Every object is sent with its checksum.
fn checked(builder: AmazonS3Builder) -> AmazonS3Builder {
    builder.with_checksum_algorithm(Checksum::SHA256)
}

/// Keys of the profile, where the environment has none.
fn with_credentials(builder: AmazonS3Builder, profile: Option<&str>) -> Result<AmazonS3Builder> {
    let has = |key| builder.get_config_value(&key).is_some();
    if has(AmazonS3ConfigKey::AccessKeyId) || has(AmazonS3ConfigKey::WebIdentityTokenFile) {
        return Ok(builder);
    }
    let profile = Profile::load(profile)?;
    let mut builder = builder;
    for (key, name) in [
        (AmazonS3ConfigKey::AccessKeyId, "aws_access_key_id"),
        (AmazonS3ConfigKey::SecretAccessKey, "aws_secret_access_key"),
        (AmazonS3ConfigKey::Token, "aws_session_token"),
    ] {
        if let Some(value) = profile.get(name) {
            builder = builder.with_config(key, value);
        }
    }
    Ok(builder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{KEY, Server};

    #[test]
    fn a_bucket_that_locks_objects_takes_those_with_a_checksum() {
        let server = Server::start("b");
        let place = server.place("vault");
        let with_keys = |b: AmazonS3Builder| b.with_access_key_id(KEY).with_secret_access_key("secret");
        let plain = Bucket::build(&place, with_keys(builder(&place))).expect("a bucket");
        let checking = Bucket::build(&place, with_keys(checked(builder(&place)))).expect("a bucket");
        server.set_locks_objects(true);
        let refused = plain.replace("x", "plain".into());
        assert!(refused.is_err_and(|e| e.to_string().contains("InvalidRequest")));
        assert_eq!(checking.replace("x", "checked".into()), Ok(()));
        assert_eq!(checking.create("y", "checked".into()), Ok(()));
        assert_eq!(plain.get("x"), Ok(Some("checked".into())));
    }
}
