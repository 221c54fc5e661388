//! Bodies that hold memory which users share must arrive at a minimum speed, or are ended. Time
//! counts only while the server waits for the client.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use leeward_door::listen::{Body, BodyError};
use leeward_env::{Env, Nanos};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

/// Time that the server waits in addition, nanoseconds.
const GRACE: Nanos = 20_000_000_000;
/// Minimum speed, bytes a second.
const BYTES_PER_SEC: u64 = 64 << 10;

/// Whether memory is held for a body: an odd number, another one each time.
#[derive(Clone, Default)]
pub(crate) struct Holding(Arc<AtomicU64>);

impl Holding {
    /// Memory is held from now on, until [`Holding::end`] or the body's end.
    pub(crate) fn begin(&self) {
        self.0.fetch_or(1, Ordering::Relaxed);
    }

    /// Memory is no longer held.
    pub(crate) fn end(&self) {
        if !self.now().is_multiple_of(2) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A body with a minimum speed while memory is held for it.
pub(crate) fn paced(env: &Env, body: Body, holding: &Holding) -> Body {
    let (env, holding) = (env.clone(), holding.clone());
    let paced = Paced { body, env, holding, of: 0, since: None, waited: 0, bytes: 0, limit: None };
    paced.boxed_unsync()
}

struct Paced {
    body: Body,
    env: Env,
    holding: Holding,
    /// The value of `holding` for which time and bytes are counted.
    of: u64,
    /// Since when the server waits for the client.
    since: Option<Nanos>,
    waited: Nanos,
    bytes: u64,
    limit: Option<Pin<Box<Sleep>>>,
}

impl Paced {
    /// Waits for the client; `true`: time is over.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let of = self.holding.now();
        if of != self.of {
            (self.of, self.since, self.waited, self.bytes) = (of, None, 0, 0);
        }
        if of.is_multiple_of(2) {
            return false;
        }
        let now = self.env.now();
        let since = *self.since.get_or_insert(now);
        let may = GRACE + self.bytes * 1_000_000_000 / BYTES_PER_SEC;
        let Some(left) = may.checked_sub(self.waited + now.saturating_sub(since)) else { return true };
        let mut limit = Box::pin(tokio::time::sleep(Duration::from_nanos(left)));
        let late = limit.as_mut().poll(cx).is_ready();
        self.limit = Some(limit);
        late
    }
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
            return match this.is_late(cx) {
                true => Poll::Ready(Some(Err("it comes too slowly for the memory that it takes".into()))),
                false => Poll::Pending,
            };
        };
        this.limit = None;
        if let Some(since) = this.since.take() {
            this.waited += this.env.now().saturating_sub(since);
        }
        if let Some(Ok(frame)) = &frame {
            this.bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, stream};
    use http_body_util::StreamBody;
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn what_memory_is_held_for_comes_at_a_least_speed() {
        let (env, holding) = (Env::sim(1), Holding::default());
        let (send, come) = mpsc::unbounded_channel::<Bytes>();
        let pieces = stream::unfold(come, |mut come| async {
            come.recv().await.map(|piece| (Ok::<_, BodyError>(Frame::data(piece)), come))
        });
        let mut body = paced(&env, StreamBody::new(pieces).boxed_unsync(), &holding);
        let hours = |n: u64| env.advance(Duration::from_secs(3600 * n));
        assert!(body.frame().now_or_never().is_none());
        hours(1);
        assert!(body.frame().now_or_never().is_none(), "nothing is held for it");
        holding.begin();
        assert!(body.frame().now_or_never().is_none());
        env.advance(Duration::from_secs(19));
        send.send(Bytes::from(vec![0; 10 * BYTES_PER_SEC as usize])).expect("it is there");
        assert!(body.frame().now_or_never().is_some_and(|frame| frame.is_some_and(|frame| frame.is_ok())));
        hours(1);
        assert!(body.frame().now_or_never().is_none(), "nobody waited for it");
        env.advance(Duration::from_secs(10));
        assert!(body.frame().now_or_never().is_none(), "it has come fast enough for that");
        holding.end();
        hours(1);
        assert!(body.frame().now_or_never().is_none());
        holding.begin();
        assert!(body.frame().now_or_never().is_none(), "another time");
        env.advance(Duration::from_secs(21));
        let late = body.frame().now_or_never().flatten();
        assert!(late.is_some_and(|frame| frame.is_err()));
    }
}
