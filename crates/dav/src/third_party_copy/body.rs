//! An outgoing body to another server, which counts the bytes sent.

use bytes::Bytes;
use futures_util::Stream;
use futures_util::future::BoxFuture;
use http_body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

/// Counts the bytes sent. Cheap to clone.
#[derive(Clone, Default)]
pub struct Sent(Arc<(AtomicU64, AtomicBool)>);

impl Sent {
    /// Bytes handed to the connection.
    pub fn bytes(&self) -> u64 {
        self.0.0.load(Ordering::Relaxed)
    }

    /// Whether all bytes were sent.
    pub fn ended(&self) -> bool {
        self.0.1.load(Ordering::Relaxed)
    }

    /// Counts more bytes.
    pub fn add(&self, bytes: u64) {
        self.0.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Starts counting again: the body is sent from the beginning.
    pub fn reset(&self) {
        self.0.0.store(0, Ordering::Relaxed);
        self.0.1.store(false, Ordering::Relaxed);
    }

    fn end(&self) {
        self.0.1.store(true, Ordering::Relaxed);
    }
}

type Chunks = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// An outgoing body.
pub struct Outgoing {
    /// Until when nothing is sent.
    held: Option<BoxFuture<'static, ()>>,
    chunks: Option<Chunks>,
    left: u64,
    sent: Sent,
}

impl Outgoing {
    /// An empty body.
    pub fn empty() -> Outgoing {
        let sent = Sent::default();
        sent.end();
        Outgoing { held: None, chunks: None, left: 0, sent }
    }

    /// A body of these chunks, `size` bytes in all, counted in `sent`.
    pub fn new(
        chunks: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        size: u64,
        sent: Sent,
    ) -> Outgoing {
        Outgoing { held: None, chunks: Some(Box::pin(chunks)), left: size, sent }
    }

    /// Sends nothing before `until` is done.
    pub fn hold_until(&mut self, until: impl Future<Output = ()> + Send + 'static) {
        self.held = Some(Box::pin(until));
    }

    /// The counter of bytes sent.
    pub fn sent(&self) -> Sent {
        self.sent.clone()
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(held) = &mut self.held {
            ready!(held.as_mut().poll(cx));
            self.held = None;
        }
        let Some(chunks) = &mut self.chunks else { return Poll::Ready(None) };
        let next = ready!(chunks.as_mut().poll_next(cx));
        match &next {
            Some(Ok(chunk)) => {
                self.sent.add(chunk.len() as u64);
                self.left = self.left.saturating_sub(chunk.len() as u64);
            }
            None => self.sent.end(),
            Some(Err(_)) => {}
        }
        Poll::Ready(next.map(|chunk| chunk.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
