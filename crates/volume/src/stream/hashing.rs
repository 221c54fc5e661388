//! The SHA-256 of a stream, computed beside the reading of what comes next: of a large file each
//! takes about as long.

use leeward_env::Env;
use ring::digest::{Context, Digest, SHA256};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Portions that wait for the thread.
const WAITING: usize = 2;

/// See the module's head. What comes in one portion has no thread, nor has anything where the
/// system has none to spare.
pub(super) struct Hashing {
    env: Env,
    portions: u64,
    sum: Sum,
}

enum Sum {
    Here(Context),
    OfThread(SyncSender<Arc<Vec<u8>>>, JoinHandle<Digest>),
}

impl Hashing {
    pub(super) fn new(env: &Env) -> Hashing {
        Hashing { env: env.clone(), portions: 0, sum: Sum::Here(Context::new(&SHA256)) }
    }

    /// Adds a portion.
    pub(super) fn add(&mut self, portion: Arc<Vec<u8>>) {
        if self.portions == 1 {
            self.start_thread();
        }
        self.portions += 1;
        match &mut self.sum {
            Sum::Here(sum) => sum.update(&portion),
            // it takes all until this is gone
            Sum::OfThread(give, _) => drop(give.send(portion)),
        }
    }

    fn start_thread(&mut self) {
        let Sum::Here(sum) = &self.sum else { return };
        let (sum, (give, portions)) = (sum.clone(), sync_channel(WAITING));
        if let Ok(thread) = self.env.try_spawn("stream-sum", move || sum_of(sum, &portions)) {
            self.sum = Sum::OfThread(give, thread);
        }
    }

    /// The digest of all portions, in their order.
    pub(super) fn finish(self) -> Vec<u8> {
        let digest = match self.sum {
            Sum::Here(sum) => sum.finish(),
            Sum::OfThread(give, thread) => {
                drop(give);
                thread.join().expect("hashing does not panic")
            }
        };
        digest.as_ref().to_vec()
    }
}

fn sum_of(mut sum: Context, portions: &Receiver<Arc<Vec<u8>>>) -> Digest {
    portions.iter().for_each(|portion| sum.update(&portion));
    sum.finish()
}
