//! Checksums of content on its way in, beside its being written: a piece is hashed on another thread while the same one is written and the next one
//! comes in, if a thread is free for that; else where it is, as then no processor is idle.
//!
//! At most one piece of an upload is with such a thread, and counts as memory of its user until it is done.

use bytes::Bytes;
use leeward_env::Env;
use leeward_volume::{Error, Result};
use parking_lot::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use tokio::sync::oneshot;

/// A piece of this size is hashed at once: to hand it over takes as long.
const EASY_BYTES: usize = 32 << 10;
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

    /// Has it done by a thread that is free; what is given back is to be done here.
    fn give(&self, work: Work) -> std::result::Result<(), Work> {
        let hands = self.work.get_or_init(|| self.begin());
        hands.try_send(work).map_err(|e| match e {
            std::sync::mpsc::TrySendError::Full(work) => work,
            std::sync::mpsc::TrySendError::Disconnected(work) => work,
        })
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
pub(crate) enum Running<D> {
    Here(D),
    /// A thread has it, with a piece.
    Away(oneshot::Receiver<D>),
}

impl<D: Digest> Running<D> {
    /// The next bytes, on this thread.
    pub(crate) async fn add_here(self, bytes: &[u8]) -> Result<Running<D>> {
        let mut digest = self.end().await?;
        digest.add(bytes);
        Ok(Running::Here(digest))
    }

    /// The next bytes, on another thread if one is free.
    pub(crate) async fn add(self, hands: &Hands, piece: Bytes) -> Result<Running<D>> {
        if piece.len() <= EASY_BYTES {
            return self.add_here(&piece).await;
        }
        let mut digest = self.end().await?;
        let (give, given) = oneshot::channel();
        let work = Box::new(move || {
            digest.add(&piece);
            drop(piece);
            // who has gone away needs none
            let _ = give.send(digest);
        });
        if let Err(work) = hands.give(work) {
            work();
        }
        Ok(Running::Away(given))
    }

    /// The digest of all that came.
    pub(crate) async fn end(self) -> Result<D> {
        match self {
            Running::Here(digest) => Ok(digest),
            Running::Away(given) => {
                given.await.map_err(|_| Error::Io("a thread that hashes has died: see the log".into()))
            }
        }
    }
}
