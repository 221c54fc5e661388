//! Gives memory of connections back to the system.
//!
//! hyper has some 16 KiB for each connection that is held. The memory that it frees when
//! connections rest or end lies between memory in use, and there glibc keeps it: after 8,000
//! connections that each asked once, 130 MB for as long as the process lives. [`give_back`] checks
//! now and then how many fewer connections are open or in use than before. If they are many fewer,
//! it asks glibc to free all whole pages that nobody uses. Where as many connections come as go
//! there is nothing to do.
//!
//! That walks through free memory, arena by arena, under the arena's lock: some 0.2 ms for each MB.
//! So it runs on a thread that may wait, with pauses in proportion.

use super::over;
use crate::limits::{GIVE_BACK_LEAST, GIVE_BACK_SECS};
use leeward_env::{Env, give_memory_back};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// The pause after a run is at least this many times the time of the run.
const PAUSE_TIMES: u32 = 50;

/// Counts of the connections of all doors of the process: they share an allocator.
static HELD: GuardCount = GuardCount { now: AtomicU64::new(0), most: AtomicU64::new(0) };

/// Number of guards: one for each connection, of some 5 KiB, and one for its buffers.
struct GuardCount {
    now: AtomicU64,
    /// The highest number since memory was given back.
    most: AtomicU64,
}

impl GuardCount {
    fn add(&self) {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
    }

    fn sub(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether the number has fallen much; counts from now on if so.
    fn fell(&self) -> bool {
        let now = self.now.load(Ordering::Relaxed);
        let fell = self.most.load(Ordering::Relaxed).saturating_sub(now) >= GIVE_BACK_LEAST;
        if fell {
            self.most.store(now, Ordering::Relaxed);
        }
        fell
    }
}

/// A connection is open, or has buffers, until this is dropped.
pub(super) struct MemoryGuard(());

impl MemoryGuard {
    pub(super) fn new() -> MemoryGuard {
        HELD.add();
        MemoryGuard(())
    }
}

impl Drop for MemoryGuard {
    fn drop(&mut self) {
        HELD.sub();
    }
}

/// Gives memory back now and then, until the door closes.
pub(super) async fn give_back(env: Env, mut ended: watch::Receiver<bool>) {
    let least = Duration::from_secs(GIVE_BACK_SECS);
    let mut pause = least;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = over(&mut ended) => return,
        }
        pause = least;
        if HELD.fell() {
            let began = env.now();
            // at worst the runtime ends meanwhile
            let _ = tokio::task::spawn_blocking(give_memory_back).await;
            let took = Duration::from_nanos(env.now().saturating_sub(began));
            tracing::debug!("memory that connections had was given back in {took:?}");
            pause = least.max(took * PAUSE_TIMES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_fall_counts() {
        let held = GuardCount { now: AtomicU64::new(0), most: AtomicU64::new(0) };
        (0..GIVE_BACK_LEAST).for_each(|_| held.add());
        for _ in 0..3 * GIVE_BACK_LEAST {
            held.sub();
            held.add();
        }
        assert!(!held.fell(), "as many come as go");
        (0..GIVE_BACK_LEAST - 1).for_each(|_| held.sub());
        assert!(!held.fell(), "a few are not worth it");
        held.sub();
        assert!(held.fell());
        assert!(!held.fell(), "once is enough");
        (0..GIVE_BACK_LEAST / 2).for_each(|_| held.add());
        (0..GIVE_BACK_LEAST / 2).for_each(|_| held.sub());
        assert!(!held.fell());
    }
}
