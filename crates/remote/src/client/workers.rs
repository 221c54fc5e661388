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

/// Counts a thread that ends in a panic of its work: others may begin in its place.
struct Working<'a>(&'a Mutex<Queue>);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().threads -= 1;
        }
    }
}

fn serve(queue: &(Mutex<Queue>, Condvar)) {
    let (lock, more) = queue;
    let mut state = lock.lock();
    loop {
        if let Some(work) = state.work.pop_front() {
            drop(state);
            let working = Working(lock);
            work();
            drop(working);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn work_that_panics_does_not_use_up_the_threads() {
        let workers = Workers::new(&Env::real(), "test", 2);
        let (send, done) = channel();
        for _ in 0..5 {
            workers.run(|| panic!("as the test wants"));
        }
        workers.run(move || send.send(()).expect("heard"));
        // a thread that panics takes nothing more: another request has it begun again
        for _ in 0..100 {
            if done.recv_timeout(Duration::from_millis(50)).is_ok() {
                return;
            }
            workers.run(|| ());
        }
        panic!("no thread is left");
    }
}
