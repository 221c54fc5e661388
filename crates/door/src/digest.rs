//! Checksums of content on its way in, beside its being written: a piece is hashed on another thread while the same one is written and the next one
//! comes in, if a thread is free for that; else where it is, as then no processor is idle.
//!
//! A few pieces of an upload are with such a thread or wait for it, and count as memory of its user until they are done.

use bytes::Bytes;
use leeward_env::Env;
use leeward_volume::{Error, Result};
use parking_lot::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::{RecvError, TryRecvError};

/// A piece of this size is hashed at once: to hand it over takes as long.
const EASY_BYTES: usize = 32 << 10;
/// Pieces of an upload that wait while those before them are hashed: more are handed over at a time then.
const AHEAD: usize = 2;
/// Most threads that hash.
const HANDS_MAX: usize = 8;

/// What is made of content while it is written.
pub trait Digest: Send + 'static {
    /// The next bytes.
    fn add(&mut self, bytes: &[u8]);
}

/// Nothing is.
impl Digest for () {
    fn add(&mut self, _: &[u8]) {}
}

/// Threads that hash: as many as there are processors, at least two, begun when there is something to hash.
pub(crate) struct Hands {
    env: Env,
    /// Takes what a thread is waiting for, and nothing else.
    work: OnceLock<SyncSender<Work>>,
}

type Work = Box<dyn FnOnce() + Send>;

impl Hands {
    pub(crate) fn new(env: &Env) -> Hands {
        Hands { env: env.clone(), work: OnceLock::new() }
    }

    /// Has pieces hashed by a thread that is free, else here.
    fn hash<D: Digest>(&self, mut digest: D, pieces: Vec<Bytes>) -> oneshot::Receiver<D> {
        let (give, given) = oneshot::channel();
        let work = Box::new(move || {
            pieces.into_iter().for_each(|piece| digest.add(&piece));
            // who has gone away needs none
            let _ = give.send(digest);
        });
        let hands = self.work.get_or_init(|| self.begin());
        if let Err(TrySendError::Full(work) | TrySendError::Disconnected(work)) = hands.try_send(work) {
            work();
        }
        given
    }

    fn begin(&self) -> SyncSender<Work> {
        let (work, inbox) = sync_channel::<Work>(0);
        let inbox = Arc::new(Mutex::new(inbox));
        let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, HANDS_MAX);
        for n in 0..threads {
            let inbox: Arc<Mutex<Receiver<Work>>> = inbox.clone();
            self.env.spawn(&format!("lee-hash-{n}"), move || {
                loop {
                    // a statement of its own: the next one waits for work while this one is done
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

/// A digest that is made of pieces that come one after the other.
pub(crate) struct Running<D> {
    at: At<D>,
    /// Pieces that come after what it is of.
    queued: Vec<Bytes>,
}

enum At<D> {
    Here(D),
    /// A thread has it, with the pieces before the queued ones.
    Away(oneshot::Receiver<D>),
}

impl<D: Digest> Running<D> {
    pub(crate) fn new(digest: D) -> Running<D> {
        Running { at: At::Here(digest), queued: Vec::new() }
    }

    /// The next bytes, on this thread.
    pub(crate) async fn add_here(self, bytes: &[u8]) -> Result<Running<D>> {
        let mut digest = self.end().await?;
        digest.add(bytes);
        Ok(Running::new(digest))
    }

    /// The next bytes, on another thread if one is free. Waits only where [`AHEAD`] pieces do.
    pub(crate) async fn add(mut self, hands: &Hands, piece: Bytes) -> Result<Running<D>> {
        if piece.len() <= EASY_BYTES {
            return self.add_here(&piece).await;
        }
        self.queued.push(piece);
        let digest = match self.at {
            At::Here(digest) => digest,
            At::Away(mut given) => match given.try_recv() {
                Ok(digest) => digest,
                Err(TryRecvError::Empty) if self.queued.len() < AHEAD => {
                    return Ok(Running { at: At::Away(given), ..self });
                }
                Err(_) => given.await.map_err(dead)?,
            },
        };
        Ok(Running { at: At::Away(hands.hash(digest, self.queued)), queued: Vec::new() })
    }

    /// The digest of all that came.
    pub(crate) async fn end(self) -> Result<D> {
        let mut digest = match self.at {
            At::Here(digest) => digest,
            At::Away(given) => given.await.map_err(dead)?,
        };
        self.queued.iter().for_each(|piece| digest.add(piece));
        Ok(digest)
    }
}

fn dead(_: RecvError) -> Error {
    Error::Io("a thread that hashes has died: see the log".into())
}
