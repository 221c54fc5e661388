//! A store during whose puts other threads go on: between the moment at which an object is there
//! and the one at which anybody knows, there are commits, flushes of the tables and other files'
//! fsyncs, as the seed chooses.

use leeward_env::Env;
use leeward_pool::{HookedStore, Store};
use leeward_volume::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// The cell's other threads, which go on during puts.
pub struct Others {
    env: Env,
    cell: OnceLock<Weak<Cell>>,
    are_busy: AtomicBool,
}

impl Others {
    /// A store during whose puts they go on, once there is a cell.
    pub fn beside(env: &Env, inner: Arc<dyn Store>) -> (Arc<Others>, Arc<dyn Store>) {
        let (env, cell, are_busy) = (env.clone(), OnceLock::new(), AtomicBool::new(false));
        let others = Arc::new(Others { env, cell, are_busy });
        let during = others.clone();
        let store = HookedStore::new(inner, move |_, put| {
            during.go_on();
            put()?;
            during.go_on();
            Ok(())
        });
        (others, Arc::new(store))
    }

    /// From now on they go on.
    pub fn serve(&self, cell: &Arc<Cell>) {
        let _ = self.cell.set(Arc::downgrade(cell));
    }

    fn go_on(&self) {
        let Some(cell) = self.cell.get().and_then(Weak::upgrade) else { return };
        if self.are_busy.swap(true, Ordering::Relaxed) {
            return;
        }
        for _ in 0..self.env.random() % 6 {
            let _ = cell.step_other_threads(self.env.random()); // it fails when the disk has died
        }
        self.are_busy.store(false, Ordering::Relaxed);
    }
}
