//! Carries answers from the stores' threads to the thread that waits for them.
//!
//! A caller that needs several answers sleeps until all are there, or one is a failure. A wake-up
//! for each answer would cost more than most reads take. A call may have waited for its turn at its
//! store. That wait is noted on the store's thread, where no operation is accounted for, so the
//! answer carries it.

use crate::AlignedBuf;
use leeward_env::waits::{self, Cause};
use leeward_env::{Env, Flow, Nanos};
use parking_lot::{Condvar, Mutex};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// The longest time that anything waits for stores that do not answer.
pub(super) const PATIENCE: Nanos = 60_000_000_000;
/// The longest time to wait for a listing.
pub(super) const PATIENCE_LONG: Nanos = 900_000_000_000;

/// What is wrong with a piece.
#[derive(Debug)]
pub(super) enum Fault {
    /// The store does not have it.
    Missing,
    /// The content is not what was written; the text says what it is.
    Bad(String),
    /// It is of a later put than the known one.
    Newer,
    /// The store does not answer, or not now.
    Away(String),
}

/// Verified blocks of a piece.
pub(super) type Blocks = std::result::Result<AlignedBuf, Fault>;

/// How long a call waited for its turn, and behind which flow.
#[derive(Clone, Copy, Default)]
pub(super) struct TurnTime {
    nanos: Nanos,
    behind: Option<Flow>,
}

impl TurnTime {
    /// Makes the call; `asked` is when it was requested.
    pub(super) fn of<T>(env: &Env, asked: Nanos, call: impl FnOnce() -> T) -> (T, TurnTime) {
        let for_thread = env.now().saturating_sub(asked);
        let before = waits::noted().of(Cause::Store);
        let done = call();
        let noted = waits::noted();
        let at_gate = noted.of(Cause::Store) - before;
        let behind = noted.behind(Cause::Store).filter(|_| at_gate > 0);
        (done, TurnTime { nanos: for_thread + at_gate, behind })
    }

    /// Notes the wait for the operation of this thread, which waited `waited` for the answer.
    pub(super) fn note(self, waited: Nanos) {
        waits::note(Cause::Store, self.behind, self.nanos.min(waited));
    }
}

/// The answer to the request of this number.
pub(super) struct Answer {
    pub(super) request: usize,
    pub(super) blocks: Blocks,
    pub(super) for_turn: TurnTime,
}

/// Receives the answers of threads.
#[derive(Default)]
pub(super) struct Inbox {
    state: Mutex<InboxState>,
    enough: Condvar,
}

#[derive(Default)]
struct InboxState {
    answers: Vec<Answer>,
    /// Number of answers that the reader waits for.
    wanted: usize,
}

impl InboxState {
    fn is_enough(&self) -> bool {
        self.answers.len() >= self.wanted || self.answers.iter().any(|answer| answer.blocks.is_err())
    }
}

impl Inbox {
    pub(super) fn send(&self, answer: Answer) {
        let mut state = self.state.lock();
        state.answers.push(answer);
        if state.is_enough() {
            self.enough.notify_one();
        }
    }

    /// The answers so far, as soon as there are `wanted`, or one is a failure, or it is `until`. In
    /// a simulation every store answers within the request.
    pub(super) fn take(&self, env: &Env, wanted: usize, until: Nanos) -> Vec<Answer> {
        let mut state = self.state.lock();
        state.wanted = wanted;
        let asked = env.now();
        let mut now = asked;
        while !state.is_enough() && now < until && !env.is_sim() {
            self.enough.wait_for(&mut state, Duration::from_nanos(until - now));
            now = env.now();
        }
        let answers = std::mem::take(&mut state.answers);
        drop(state);
        if let Some(last) = answers.last() {
            last.for_turn.note(now - asked);
        }
        answers
    }
}

/// Waits for an answer until `until`.
pub(super) fn next_answer<T>(
    env: &Env,
    answers: &Receiver<T>,
    until: Nanos,
) -> std::result::Result<T, RecvTimeoutError> {
    if env.is_sim() {
        return answers.try_recv().map_err(|_| RecvTimeoutError::Timeout); // all was done when it was handed over
    }
    answers.recv_timeout(Duration::from_nanos(until.saturating_sub(env.now())))
}
