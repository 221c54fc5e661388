//! Checksums of incoming content, computed while it is written. A free thread hashes one piece
//! after the other of an upload while they are written and the next ones arrive. If no thread is
//! free the caller's thread hashes, as then no processor is idle.
//!
//! A few pieces of an upload wait in line for that thread, and count as memory of its user until
//! they are done.

use bytes::Bytes;
use leeward_env::Env;
use leeward_fs::{Error, Result};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// A piece up to this size is hashed at once: to hand it over takes as long.
const EASY_BYTES: usize = 32 << 10;
/// An upload waits when this many of its pieces are in line.
const LINE_MAX: usize = 4;
/// It waits until only this many are left: to be woken for each piece takes longer than to hash it.
const LINE_SHORT: usize = 2;
/// Most threads that hash.
const HANDS_MAX: usize = 8;

/// A digest of content, computed while the content is written.
pub trait Digest: Send + 'static {
    /// Adds the next bytes.
    fn add(&mut self, bytes: &[u8]);
}

/// Computes nothing.
impl Digest for () {
    fn add(&mut self, _: &[u8]) {}
}

/// Threads that hash: as many as there are processors, at least two, started when there is
/// something to hash.
pub(crate) struct HashThreads {
    env: Env,
    /// Takes one job for a waiting thread, and queues none.
    work: OnceLock<SyncSender<Work>>,
}

type Work = Box<dyn FnOnce() + Send>;

impl HashThreads {
    pub(crate) fn new(env: &Env) -> HashThreads {
        HashThreads { env: env.clone(), work: OnceLock::new() }
    }

    /// Runs the work on a free thread, else on this one.
    fn give(&self, work: impl FnOnce() + Send + 'static) {
        let hash_threads = self.work.get_or_init(|| self.begin());
        if let Err(TrySendError::Full(work) | TrySendError::Disconnected(work)) =
            hash_threads.try_send(Box::new(work))
        {
            work();
        }
    }

    fn begin(&self) -> SyncSender<Work> {
        let (work, inbox) = sync_channel::<Work>(0);
        let inbox = Arc::new(Mutex::new(inbox));
        let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, HANDS_MAX);
        for n in 0..threads {
            let inbox: Arc<Mutex<Receiver<Work>>> = inbox.clone();
            self.env.spawn(&format!("lee-hash-{n}"), move || {
                loop {
                    // a statement of its own: the next thread waits for work while this job runs
                    let next = inbox.lock().recv();
                    match next {
                        Ok(work) => work(),
                        Err(_) => return,
                    }
                }
            });
        }
        work
    }
}

/// A digest of pieces that arrive one after the other.
pub(crate) struct Running<D> {
    line: Arc<DigestQueue<D>>,
}

/// The digest, and the pieces that it still needs.
struct DigestQueue<D> {
    state: Mutex<DigestState<D>>,
    /// Wakes the upload that may wait: there is room, or nothing is left, or it is broken.
    changed: Notify,
}

struct DigestState<D> {
    /// `None` while a thread hashes.
    digest: Option<D>,
    pieces: VecDeque<Bytes>,
    /// Whether the thread has died.
    is_broken: bool,
}

/// A thread's hold on the digest. If it is dropped with the digest in it, the digest was not put
/// back.
struct Hold<'a, D>(&'a DigestQueue<D>, Option<D>);

impl<D> Drop for Hold<'_, D> {
    fn drop(&mut self) {
        if self.1.is_some() {
            self.0.state.lock().is_broken = true;
            self.0.changed.notify_one();
        }
    }
}

impl<D: Digest> DigestQueue<D> {
    /// Hashes until no piece is left.
    fn hash(&self, digest: D) {
        let mut hold = Hold(self, Some(digest));
        while let Some(piece) = self.next(&mut hold.1) {
            hold.1.iter_mut().for_each(|digest| digest.add(&piece));
        }
    }

    /// The next piece; if there is none the digest is put back.
    fn next(&self, digest: &mut Option<D>) -> Option<Bytes> {
        let mut st = self.state.lock();
        let piece = st.pieces.pop_front();
        if piece.is_none() {
            st.digest = digest.take();
        }
        let tell = piece.is_none() || st.pieces.len() == LINE_SHORT;
        drop(st);
        if tell {
            self.changed.notify_one();
        }
        piece
    }

    /// Waits until `find` returns something.
    async fn wait<R>(&self, mut find: impl FnMut(&mut DigestState<D>) -> Option<R>) -> Result<R> {
        loop {
            {
                let mut st = self.state.lock();
                if st.is_broken {
                    return Err(Error::Io("a thread that hashes has died: see the log".into()));
                }
                if let Some(found) = find(&mut st) {
                    return Ok(found);
                }
            }
            self.changed.notified().await;
        }
    }
}

impl<D: Digest> Running<D> {
    pub(crate) fn new(digest: D) -> Running<D> {
        let state = DigestState { digest: Some(digest), pieces: VecDeque::new(), is_broken: false };
        Running { line: Arc::new(DigestQueue { state: Mutex::new(state), changed: Notify::new() }) }
    }

    /// Adds the next bytes, on this thread.
    pub(crate) async fn add_here(&self, bytes: &[u8]) -> Result<()> {
        self.line.wait(|st| st.digest.as_mut().map(|digest| digest.add(bytes))).await
    }

    /// Adds the next bytes, on another thread if one is free. Waits only where [`LINE_MAX`] pieces
    /// do.
    pub(crate) async fn add(&self, hash_threads: &HashThreads, piece: Bytes) -> Result<()> {
        if piece.len() <= EASY_BYTES {
            return self.add_here(&piece).await;
        }
        let (idle, is_long) = {
            let mut st = self.line.state.lock();
            st.pieces.push_back(piece);
            (st.digest.take(), st.pieces.len() >= LINE_MAX)
        };
        if let Some(digest) = idle {
            let line = self.line.clone();
            hash_threads.give(move || line.hash(digest));
        }
        if is_long {
            self.line.wait(|st| (st.pieces.len() <= LINE_SHORT).then_some(())).await?;
        }
        Ok(())
    }

    /// The digest of all bytes.
    pub(crate) async fn end(self) -> Result<D> {
        self.line.wait(|st| st.digest.take()).await
    }
}
