//! Leaves the processor to the program that is answered.
//!
//! Linux puts a woken program on an idle processor in preference to one on which a thread runs, as
//! the thread that answers does. So a program that asks one thing after the other would change
//! processors at each answer. To wake a processor costs several times what the request does, most
//! of all on a virtual machine: 15 us rather than 4. A processor that runs nothing but threads of
//! the policy `SCHED_IDLE` counts as idle. So the thread of a ring takes that policy for the system
//! call that hands answers over ([`Yielding`]).
//!
//! Two programs that ask in turn on one processor would both stay on it. So the thread does so only
//! for a program that has been the only one to ask there for a moment ([`ALONE`]); otherwise Linux
//! spreads them. While all other processors have requests to answer, too, there is none to go to,
//! and the thread saves itself the effort.
//!
//! With that policy any busy program on the processor keeps the thread from running. So a thread of
//! the normal policy ([`Watch`]) looks on while there are requests. A ring's thread that is too
//! long in that call gets the normal policy back from it, and does without the other one for a
//! while.
//!
//! Source: `select_idle_sibling` and `sched_idle_cpu` in `kernel/sched/fair.c` of Linux 6.18; the
//! rule is there since 5.4.

use leeward_env::{Env, Nanos};
use leeward_vfs::processors::as_the_process;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

/// How often the watch looks.
const STEP: Duration = Duration::from_millis(1);
/// A thread that is in the call for longer waits for a processor.
const LONG: Nanos = 1_000_000;
/// It does without for this time then.
const PAUSE: Nanos = 500_000_000;
/// Another program that asked so long ago counts as gone.
const ALONE: Nanos = 1_000_000;
/// A processor on which nothing was answered for so long may be idle.
const BUSY: Nanos = 200_000;
/// The watch ends after so many looks at which there was nothing new.
const QUIET_STEPS: u32 = 1_000;

/// What the threads of all rings of a mount share.
pub(crate) struct Watch {
    env: Env,
    rings: Vec<Looked>,
    /// Whether its thread runs.
    is_on: Mutex<bool>,
}

/// The thread of one ring, as the watch and other rings see it. Each has a line of the cache to
/// itself.
#[derive(Default)]
#[repr(align(128))]
struct Looked {
    /// When it had something to answer.
    answered: AtomicU64,
    /// Its number, while it serves.
    thread: Mutex<Option<libc::pid_t>>,
    /// When it began the call that it is in; 0: it is in none.
    since: AtomicU64,
    /// Whether it was in one since the watch looked.
    was_used: AtomicBool,
    /// Until when it does without.
    not_before: AtomicU64,
}

impl Watch {
    /// For so many rings; `None` where there is nothing to gain, or policies may not be changed.
    pub(crate) fn new(env: &Env, rings: usize) -> Option<Arc<Watch>> {
        let tried = || env.try_spawn("fuse-policy", may_change).ok()?.join().ok();
        let is_usable = rings > 1 && tried().unwrap_or(false);
        let rings = (0..rings).map(|_| Looked::default()).collect();
        is_usable.then(|| Arc::new(Watch { env: env.clone(), rings, is_on: Mutex::new(false) }))
    }

    /// Sees to it that its thread runs. Where it cannot be started, false.
    fn turn_on(self: &Arc<Watch>) -> bool {
        let mut is_on = self.is_on.lock();
        if !*is_on {
            let watch = self.clone();
            let look_on = move || {
                as_the_process();
                watch.look_on();
            };
            *is_on = self.env.try_spawn("fuse-watch", look_on).is_ok();
        }
        *is_on
    }

    /// Whether there may be an idle processor besides that of this ring.
    fn may_be_idle(&self, ring: usize, now: Nanos) -> bool {
        let is_idle = |other: &Looked| now.saturating_sub(other.answered.load(Relaxed)) > BUSY;
        self.rings.iter().enumerate().any(|(number, other)| number != ring && is_idle(other))
    }

    fn look_on(&self) {
        loop {
            self.look_until_quiet();
            let mut is_on = self.is_on.lock();
            // a ring that has found it on just before relies on it
            if !self.rings.iter().any(|ring| ring.was_used.load(SeqCst)) {
                *is_on = false;
                return;
            }
        }
    }

    fn look_until_quiet(&self) {
        let mut quiet = 0;
        while quiet < QUIET_STEPS {
            self.env.sleep(STEP);
            let now = self.env.now();
            // each of them is to be looked at
            let used = self.rings.iter().filter(|ring| ring.look(now)).count();
            quiet = if used > 0 { 0 } else { quiet + 1 };
        }
    }
}

impl Looked {
    /// Returns whether there was anything new.
    fn look(&self, now: Nanos) -> bool {
        let since = self.since.load(SeqCst);
        if since == 0 {
            return self.was_used.swap(false, SeqCst);
        }
        if now.saturating_sub(since) >= LONG {
            self.not_before.fetch_max(now + PAUSE, SeqCst);
            if let Some(thread) = *self.thread.lock() {
                set_policy(thread, libc::SCHED_OTHER);
            }
        }
        true
    }
}

/// The side of one ring's thread.
pub(crate) struct Yielding {
    watch: Option<Arc<Watch>>,
    ring: usize,
    /// Number of the thread that asked last.
    client: u32,
    /// Whether that was another one than before, since an answer.
    has_changed: bool,
    /// Until when others than the last one count.
    shared_until: Nanos,
}

impl Yielding {
    /// For a thread, which calls [`Yielding::enter`] first.
    pub(crate) fn new(watch: Option<Arc<Watch>>, ring: usize) -> Yielding {
        Yielding { watch, ring, client: 0, has_changed: false, shared_until: 0 }
    }

    /// This is the thread.
    pub(crate) fn enter(&self) {
        if let Some(watch) = &self.watch {
            // SAFETY: no arguments, cannot fail.
            *watch.rings[self.ring].thread.lock() = Some(unsafe { libc::gettid() });
        }
    }

    /// This thread asks; 0: nobody that could be named.
    pub(crate) fn note_client(&mut self, client: u32) {
        if client != 0 && client != self.client {
            (self.client, self.has_changed) = (client, true);
        }
    }

    /// Takes the policy for what wakes programs: a system call, nothing that holds a lock. Where
    /// that is not worth it, false; else [`Yielding::end`] follows.
    pub(crate) fn begin(&mut self) -> bool {
        let Some(watch) = &self.watch else { return false };
        let looked = &watch.rings[self.ring];
        let now = watch.env.now();
        looked.answered.store(now, Relaxed);
        if std::mem::take(&mut self.has_changed) {
            self.shared_until = now + ALONE;
        }
        if now < self.shared_until.max(looked.not_before.load(SeqCst)) || !watch.may_be_idle(self.ring, now) {
            return false;
        }
        looked.was_used.store(true, SeqCst);
        if !watch.turn_on() {
            looked.not_before.store(now + PAUSE, SeqCst);
            return false;
        }
        looked.since.store(now.max(1), SeqCst);
        let has_begun = set_policy(0, libc::SCHED_IDLE);
        if !has_begun {
            looked.since.store(0, SeqCst);
        }
        has_begun
    }

    /// Takes the normal policy again.
    pub(crate) fn end(&self) {
        let Some(watch) = &self.watch else { return };
        let looked = &watch.rings[self.ring];
        if set_policy(0, libc::SCHED_OTHER) {
            looked.since.store(0, SeqCst);
        } else {
            // the right to it was taken away: the watch has it, too, or nobody
            looked.not_before.store(Nanos::MAX, SeqCst);
            tracing::error!("a thread of the mount cannot have its usual scheduling policy again");
        }
    }
}

impl Drop for Yielding {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            let looked = &watch.rings[self.ring];
            *looked.thread.lock() = None;
            looked.since.store(0, SeqCst);
        }
    }
}

/// Whether this thread has the normal policy, and may leave it and come back.
fn may_change() -> bool {
    // SAFETY: only asks.
    let is_normal = unsafe { libc::sched_getscheduler(0) } == libc::SCHED_OTHER;
    is_normal && set_policy(0, libc::SCHED_IDLE) && set_policy(0, libc::SCHED_OTHER)
}

/// Gives a thread, 0 for this one, a policy; returns whether that was allowed.
fn set_policy(thread: libc::pid_t, policy: libc::c_int) -> bool {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: reads the structure.
    unsafe { libc::sched_setscheduler(thread, policy, &raw const none) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> libc::c_int {
        // SAFETY: only asks.
        unsafe { libc::sched_getscheduler(0) }
    }

    /// The policy while programs are woken.
    fn during(yielding: &mut Yielding) -> libc::c_int {
        let has_begun = yielding.begin();
        let policy = policy();
        if has_begun {
            yielding.end();
        }
        policy
    }

    /// Needs the right to come back from `SCHED_IDLE`, which root has.
    fn watched() -> Option<(Env, Arc<Watch>, Yielding)> {
        let env = Env::real();
        let watch = Watch::new(&env, 2)?;
        let yielding = Yielding::new(Some(watch.clone()), 1);
        yielding.enter();
        Some((env, watch, yielding))
    }

    #[test]
    fn who_waits_for_a_processor_gets_the_normal_policy_back() {
        let Some((env, _, mut yielding)) = watched() else { return eprintln!("needs root") };
        // on a busy machine this thread may wait before it is asked
        while !yielding.begin() {
            env.sleep(Duration::from_nanos(PAUSE));
        }
        while policy() != libc::SCHED_OTHER {
            env.sleep(STEP);
        }
        yielding.end();
        assert_eq!(during(&mut yielding), libc::SCHED_OTHER, "it does without for a while");
        assert_eq!(policy(), libc::SCHED_OTHER);
    }

    #[test]
    fn who_is_not_alone_is_spread() {
        let Some((env, _, mut yielding)) = watched() else { return eprintln!("needs root") };
        let mut answered = |client| {
            yielding.note_client(client);
            during(&mut yielding)
        };
        assert_eq!([7, 8, 7].map(&mut answered), [libc::SCHED_OTHER; 3]);
        // on a busy machine the watch may be faster
        while answered(7) != libc::SCHED_IDLE && answered(0) != libc::SCHED_IDLE {
            env.sleep(Duration::from_nanos(ALONE));
        }
        assert_eq!(answered(8), libc::SCHED_OTHER);
    }

    #[test]
    fn where_all_are_busy_there_is_nowhere_to_go() {
        let Some((env, watch, mut yielding)) = watched() else { return eprintln!("needs root") };
        let mut busy = Yielding::new(Some(watch), 0);
        busy.has_changed = true;
        busy.begin();
        let now = env.now();
        assert!(!yielding.watch.as_ref().is_some_and(|watch| watch.may_be_idle(1, now)));
        assert!(yielding.watch.as_ref().is_some_and(|watch| watch.may_be_idle(1, now + 2 * BUSY)));
        env.sleep(Duration::from_nanos(2 * BUSY));
        while during(&mut yielding) != libc::SCHED_IDLE {
            env.sleep(Duration::from_nanos(ALONE));
        }
    }

    #[test]
    fn the_watch_ends_when_there_is_nothing_to_look_at() {
        let Some((env, watch, mut yielding)) = watched() else { return eprintln!("needs root") };
        for _ in 0..2 {
            during(&mut yielding);
            while *watch.is_on.lock() {
                env.sleep(STEP);
            }
        }
    }

    #[test]
    fn one_ring_has_nobody_to_yield_to() {
        assert!(Watch::new(&Env::real(), 1).is_none());
    }
}
