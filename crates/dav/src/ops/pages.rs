//! Answers about a directory of any size: written page by page as the client takes them.

use crate::body::{Body, BoxError, full, stream};
use crate::error::Result;
use crate::request::Resource;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use leeward_fs::Entry;
use std::future::Future;

/// Names that are listed at a time.
const NAMES: usize = 200;
/// Entries that are written at a time.
const WRITTEN: usize = 16;
/// A page ends at this length, bytes: the remaining names are listed again for the next.
const PAGE_BYTES: usize = 64 << 10;

/// Writes entries of a directory.
pub(crate) trait Page: Send + 'static {
    /// Writes these entries, which come next.
    fn write(
        &mut self,
        dir: &Resource,
        entries: &[Entry],
        out: &mut String,
    ) -> impl Future<Output = ()> + Send;
}

/// `begin`, all entries of a directory, `end`. The first page is ready when this returns, so a
/// client that may not list gets an error.
///
/// # Errors
/// As for a listing.
pub(crate) async fn pages(dir: Resource, begin: String, page: impl Page, end: &'static str) -> Result<Body> {
    let mut turning = Turning { dir, page, after: Vec::new(), ended: false, end };
    let first = turning.next(begin).await.map_err(|e| turning.dir.error(&e))?;
    if turning.ended {
        return Ok(full(first));
    }
    let rest = stream::unfold(Some(turning), |turning| async move {
        let mut turning = turning.filter(|turning| !turning.ended)?;
        match turning.next(String::new()).await {
            Ok(bytes) => Some((Ok(bytes), Some(turning))),
            Err(e) => Some((Err(BoxError::from(e)), None)),
        }
    });
    Ok(stream(stream::once(async { Ok::<_, BoxError>(first) }).chain(rest)))
}

struct Turning<P> {
    dir: Resource,
    page: P,
    after: Vec<u8>,
    ended: bool,
    end: &'static str,
}

impl<P: Page> Turning<P> {
    async fn next(&mut self, mut out: String) -> leeward_fs::Result<Bytes> {
        let (entries, at_end) = self.dir.tree.list(&self.dir.path, &self.after, NAMES).await?;
        let mut left = entries.as_slice();
        while let Some(last) = left.get(WRITTEN.min(left.len()).wrapping_sub(1))
            && out.len() < PAGE_BYTES
        {
            let (now, later) = left.split_at(WRITTEN.min(left.len()));
            self.page.write(&self.dir, now, &mut out).await;
            self.after = last.name.to_vec();
            left = later;
        }
        self.ended = left.is_empty() && (at_end || entries.is_empty());
        if self.ended {
            out.push_str(self.end);
        }
        Ok(out.into())
    }
}
