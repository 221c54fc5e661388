//! The environment of a running process, and one that tests drive by hand.

use crate::Term;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Nanoseconds; on the monotonic clock since an arbitrary start, on the wall clock since 1970
/// (UTC).
pub type Nanos = u64;

/// Clock, randomness and threads. Cheap to clone.
#[derive(Clone)]
pub struct Env(Arc<Source>);

enum Source {
    Real {
        /// When it began, by the same clock.
        start: Nanos,
        /// Threads still to be refused, in tests.
        refused: AtomicU64,
        awake: Mutex<Awake>,
    },
    /// Time moves only when a test moves it; randomness comes from the seed.
    Sim {
        now: AtomicU64,
        /// Difference of the wall clock from the monotonic one, nanoseconds.
        set_by: AtomicI64,
        rng: Mutex<u64>,
    },
}

/// When a process was stopped is seen by that it did not ask.
#[derive(Default)]
struct Awake {
    asked: Nanos,
    /// Nanoseconds that do not count.
    stopped: Nanos,
    /// Out of this nothing counts.
    term: Term,
}

impl Awake {
    fn at(&mut self, now: Nanos) -> Nanos {
        let passed = now.saturating_sub(self.asked);
        self.stopped += if self.term.holds(now) { passed.saturating_sub(AWAKE_FOR) } else { passed };
        self.asked = self.asked.max(now);
        now - self.stopped
    }
}

/// Of a time in which nobody asked [`Env::awake`] so much counts, at most.
const AWAKE_FOR: Nanos = 1_000_000_000;

/// Nanoseconds since the machine was started, those included for which it was suspended.
fn boot_time() -> Nanos {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid structure; the clock exists since Linux 2.6.39.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    now.tv_sec as Nanos * 1_000_000_000 + now.tv_nsec as Nanos
}

impl Env {
    /// The machine's clock and threads.
    pub fn real() -> Env {
        let (start, refused) = (boot_time(), AtomicU64::new(0));
        Env(Arc::new(Source::Real { start, refused, awake: Mutex::default() }))
    }

    /// A clock that starts at 10^18 ns (2001) and moves by [`Env::advance`]; randomness from
    /// `seed`.
    pub fn sim(seed: u64) -> Env {
        Env(Arc::new(Source::Sim {
            now: AtomicU64::new(1_000_000_000_000_000_000),
            set_by: AtomicI64::new(0),
            rng: Mutex::new(seed | 1),
        }))
    }

    /// Monotonic time. The machine's goes on while it is suspended: others do not wait for it
    /// meanwhile.
    pub fn now(&self) -> Nanos {
        match &*self.0 {
            Source::Real { start, .. } => boot_time() - start,
            Source::Sim { now, .. } => now.load(Ordering::Relaxed),
        }
    }

    /// Monotonic time in which this process has run: [`Env::now`] without the time in which it was
    /// stopped, or got no processor. Who waits for signs of life by this clock does not take others
    /// for silent that it could not hear itself. To be asked at least once a second.
    pub fn awake(&self) -> Nanos {
        match &*self.0 {
            Source::Real { start, awake, .. } => {
                let mut awake = awake.lock();
                awake.at(boot_time() - start)
            }
            Source::Sim { .. } => self.now(),
        }
    }

    /// From now on time counts in [`Env::awake`] while this term lasts: who may not answer does not
    /// hear either. No effect on a simulated clock.
    pub fn count_within(&self, term: &Term) {
        if let Source::Real { awake, .. } = &*self.0 {
            awake.lock().term = term.clone();
        }
    }

    /// Wall clock, nanoseconds since 1970. The simulated one moves on by 1 ns a call, so that the
    /// order of calls shows.
    #[allow(clippy::disallowed_methods)] // the one place
    pub fn wall(&self) -> Nanos {
        match &*self.0 {
            Source::Real { .. } => std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |d| d.as_nanos() as u64),
            Source::Sim { now, set_by, .. } => {
                now.fetch_add(1, Ordering::Relaxed).saturating_add_signed(set_by.load(Ordering::Relaxed))
            }
        }
    }

    /// Moves a simulated clock; no effect on a real one.
    pub fn advance(&self, by: Duration) {
        if let Source::Sim { now, .. } = &*self.0 {
            now.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// Sets a simulated wall clock forward (or back, below zero), as an operator may; no effect on
    /// a real one.
    pub fn set_wall_by(&self, secs: i64) {
        if let Source::Sim { set_by, .. } = &*self.0 {
            set_by.fetch_add(secs * 1_000_000_000, Ordering::Relaxed);
        }
    }

    /// 64 random bits. Not for secrets.
    pub fn random(&self) -> u64 {
        match &*self.0 {
            Source::Real { .. } => {
                let mut b = [0u8; 8];
                // SAFETY: the buffer is valid for its length; a short read leaves zeros, which is
                // harmless here.
                unsafe { libc::getrandom(b.as_mut_ptr().cast(), b.len(), 0) };
                u64::from_ne_bytes(b)
            }
            Source::Sim { rng, .. } => {
                let mut x = rng.lock();
                *x ^= *x << 13;
                *x ^= *x >> 7;
                *x ^= *x << 17;
                *x
            }
        }
    }

    /// Bytes for secrets: from the system; in a simulation from the seed.
    ///
    /// # Panics
    /// When the system has none: nothing could be kept secret then.
    pub fn secret<const N: usize>(&self) -> [u8; N] {
        let mut out = [0; N];
        match &*self.0 {
            Source::Real { .. } => {
                for piece in out.chunks_mut(256) {
                    // SAFETY: the buffer is valid for its length. Up to 256 bytes come whole or not
                    // at all.
                    let got = unsafe { libc::getrandom(piece.as_mut_ptr().cast(), piece.len(), 0) };
                    assert_eq!(got, piece.len() as isize, "the system has no random bytes");
                }
            }
            Source::Sim { .. } => {
                out.chunks_mut(8).for_each(|piece| {
                    piece.copy_from_slice(&self.random().to_be_bytes()[..piece.len()]);
                });
            }
        }
        out
    }

    /// Refuses the next `count` threads, like a system at its limit; of a real environment, in
    /// tests.
    pub fn refuse_threads(&self, count: u64) {
        if let Source::Real { refused, .. } = &*self.0 {
            refused.store(count, Ordering::Relaxed);
        }
    }

    /// Starts a named thread, while a cell is opened: nothing is served without it. Once the cell
    /// is served use [`Env::try_spawn`].
    ///
    /// # Panics
    /// When the system refuses a thread.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        self.try_spawn(name, f).expect("the system refused a thread")
    }

    /// Starts a named thread.
    ///
    /// # Errors
    /// When the system refuses it, because a limit is reached (`TasksMax`, `RLIMIT_NPROC`) or
    /// memory is short. It may work a moment later.
    pub fn try_spawn<T: Send + 'static>(
        &self,
        name: &str,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<JoinHandle<T>> {
        if let Source::Real { refused, .. } = &*self.0
            && refused.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
        {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        std::thread::Builder::new().name(name.to_string()).spawn(f)
    }

    /// Runs a job that may hang on a thread of its own, and waits for its end for at most `wait`.
    /// Says whether it has ended. A simulation has no threads, and waits.
    ///
    /// # Errors
    /// As those of [`Env::try_spawn`].
    pub fn run_apart(
        &self,
        name: &str,
        wait: Duration,
        job: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<bool> {
        if self.is_sim() {
            job();
            return Ok(true);
        }
        let (sender, ended) = std::sync::mpsc::channel();
        drop(self.try_spawn(name, move || {
            job();
            let _ = sender.send(()); // or nobody waits any more
        })?);
        Ok(ended.recv_timeout(wait).is_ok())
    }

    /// Sleeps (real) or moves the clock (simulated).
    #[allow(clippy::disallowed_methods)] // the one place
    pub fn sleep(&self, d: Duration) {
        match &*self.0 {
            Source::Real { .. } => std::thread::sleep(d),
            Source::Sim { .. } => self.advance(d),
        }
    }

    /// Whether this is a simulation: background threads are then not started; tests call their
    /// steps.
    pub fn is_sim(&self) -> bool {
        matches!(&*self.0, Source::Sim { .. })
    }
}

/// What all threads of this process have had of the processors.
pub fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid pointer; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_time_in_which_a_process_was_stopped_little_counts() {
        let mut awake = Awake::default();
        assert_eq!(awake.at(AWAKE_FOR), AWAKE_FOR);
        assert_eq!(awake.at(AWAKE_FOR + 5), AWAKE_FOR + 5);
        assert_eq!(awake.at(12 * AWAKE_FOR + 5), 2 * AWAKE_FOR + 5);
        assert_eq!(awake.at(12 * AWAKE_FOR + 7), 2 * AWAKE_FOR + 7);
    }

    #[test]
    fn out_of_a_term_no_time_counts() {
        let term = Term::not_begun();
        term.extend(100);
        let mut awake = Awake { term: term.clone(), ..Awake::default() };
        assert_eq!([awake.at(50), awake.at(99), awake.at(150), awake.at(200)], [50, 99, 99, 99]);
        term.extend(300);
        assert_eq!(awake.at(210), 109);
    }
}
