//! Answers about a directory of any size: written page by page as the client takes them.

use crate::asked::Place;
use crate::body::{Body, BoxError, full, stream};
use crate::oops::Result;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use leeward_volume::op::Entry;
use std::future::Future;

/// Names in a page.
const NAMES: usize = 200;

/// Writes entries of a directory.
pub(crate) trait Page: Send + 'static {
    /// These entries come next.
    fn write(&mut self, dir: &Place, entries: &[Entry], out: &mut String) -> impl Future<Output = ()> + Send;
}

/// `begin`, all entries of a directory, `end`. The first page is there when this returns: so who may not list is told so.
///
/// # Errors
/// As a listing gives them.
pub(crate) async fn pages(dir: Place, begin: String, page: impl Page, end: &'static str) -> Result<Body> {
    let mut turning = Turning { dir, page, after: Vec::new(), ended: false, end };
    let first = turning.next(begin).await.map_err(|e| turning.dir.oops(&e))?;
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
    dir: Place,
    page: P,
    after: Vec<u8>,
    ended: bool,
    end: &'static str,
}

impl<P: Page> Turning<P> {
    async fn next(&mut self, mut out: String) -> leeward_volume::Result<Bytes> {
        let (entries, at_end) = self.dir.tree.list(&self.dir.path, &self.after, NAMES).await?;
        self.page.write(&self.dir, &entries, &mut out).await;
        match entries.last() {
            Some(last) => self.after = last.name.to_vec(),
            None => self.ended = true,
        }
        if at_end {
            self.ended = true;
        }
        if self.ended {
            out.push_str(self.end);
        }
        Ok(out.into())
    }
}
