//! The objects of a bucket for a library that retries by itself and for ever: logs when the store
//! goes away, and when it is back.

use crate::{Error, Location};
use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A decorator that logs the state of the store.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    inner: Arc<T>,
    health: Arc<Health>,
}

#[derive(Debug)]
struct Health {
    place: Location,
    away: AtomicBool,
}

impl Health {
    fn note<R>(&self, name: &str, result: Result<R>) -> Result<R> {
        match &result {
            Ok(_) => self.back(),
            Err(e) => match Error::of(&self.place, name, e) {
                Error::Missing(_) | Error::Exists(_) => self.back(),
                e if !self.away.swap(true, Ordering::Relaxed) => {
                    tracing::warn!("{e}; what must be stored waits for it");
                }
                _ => (),
            },
        }
        result
    }

    fn back(&self) {
        if self.away.load(Ordering::Relaxed) && self.away.swap(false, Ordering::Relaxed) {
            tracing::warn!("{} answers again", self.place);
        }
    }
}

impl<T> Watched<T> {
    pub(crate) fn new(inner: Arc<T>, place: &Location) -> Watched<T> {
        Watched { inner, health: Arc::new(Health { place: place.clone(), away: AtomicBool::new(false) }) }
    }
}

impl<T> std::fmt::Display for Watched<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.health.place.fmt(f)
    }
}

#[async_trait]
impl<T: ObjectStore> ObjectStore for Watched<T> {
    async fn put_opts(&self, at: &Path, body: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.health.note(at.as_ref(), self.inner.put_opts(at, body, options).await)
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.health.note(at.as_ref(), self.inner.put_multipart_opts(at, options).await)
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        self.health.note(at.as_ref(), self.inner.get_opts(at, options).await)
    }

    fn delete_stream(&self, at: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let health = self.health.clone();
        self.inner.delete_stream(at).map(move |done| health.note("", done)).boxed()
    }

    fn list(&self, below: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let health = self.health.clone();
        self.inner.list(below).map(move |found| health.note("", found)).boxed()
    }

    async fn list_with_delimiter(&self, below: Option<&Path>) -> Result<ListResult> {
        self.health.note("", self.inner.list_with_delimiter(below).await)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.health.note(to.as_ref(), self.inner.copy_opts(from, to, options).await)
    }
}
