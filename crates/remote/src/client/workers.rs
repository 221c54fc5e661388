//! Threads for what has to wait.

use leeward_env::Env;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How long one waits for work before it ends.
const IDLE: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

/// See the module's head.
pub(super) struct Workers {
    env: Env,
    name: &'static str,
    threads_max: usize,
    queue: Arc<(Mutex<Queue>, Condvar)>,
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    threads: usize,
    idle: usize,
}

impl Workers {
    /// Threads of this name, and how many there may be.
    pub(super) fn new(env: &Env, name: &'static str, threads_max: usize) -> Workers {
        Workers { env: env.clone(), name, threads_max, queue: Arc::default() }
    }

    /// Does it on another thread.
    pub(super) fn run(&self, work: impl FnOnce() + Send + 'static) {
        let (lock, more) = &*self.queue;
        let mut queue = lock.lock();
        queue.work.push_back(Box::new(work));
        if queue.idle >= queue.work.len() {
            more.notify_one();
        } else if queue.threads < self.threads_max {
            let shared = self.queue.clone();
            // where the system refuses a thread, those that there are go on
            let begun = self.env.try_spawn(self.name, move || serve(&shared)).is_ok();
            queue.threads += usize::from(begun);
            if queue.threads == 0 {
                let work = queue.work.pop_back();
                drop(queue);
                // dropped: whoever asked is told that it failed
                drop(work);
            }
        }
    }
}

fn serve(queue: &(Mutex<Queue>, Condvar)) {
    let (lock, more) = queue;
    let mut state = lock.lock();
    loop {
        if let Some(work) = state.work.pop_front() {
            drop(state);
            work();
            state = lock.lock();
            continue;
        }
        state.idle += 1;
        let timed_out = more.wait_for(&mut state, IDLE).timed_out();
        state.idle -= 1;
        if timed_out && state.work.is_empty() {
            state.threads -= 1;
            return;
        }
    }
}
