//! Answers of stores' threads on their way to the one who waits for them.
//!
//! Who needs several answers sleeps until they are all there, or one is a failure: to be woken for each costs more than most reads take.
//! What a call waited for its turn at its store was noted on the store's thread, where no operation is accounted for; so the answer says it.

use crate::AlignedBuf;
use leeward_env::waits::{self, Cause};
use leeward_env::{Env, Flow, Nanos};
use parking_lot::{Condvar, Mutex};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// The longest that anything waits for stores that do not answer.
pub(super) const PATIENCE: Nanos = 60_000_000_000;

/// What is wrong with a piece.
#[derive(Debug)]
pub(super) enum Fault {
    /// It is not there.
    Missing,
    /// It is not what was written; what it is.
    Bad(String),
    /// It is of a later put than what is known of the object.
    Newer,
    /// The store does not answer, or not now.
    Away(String),
}

/// Verified blocks of a piece.
pub(super) type Blocks = std::result::Result<AlignedBuf, Fault>;

/// How long a call waited until it was its turn, and behind whom.
#[derive(Clone, Copy, Default)]
pub(super) struct ForTurn {
    nanos: Nanos,
    behind: Option<Flow>,
}

impl ForTurn {
    /// Does what was asked for then.
    pub(super) fn of<T>(env: &Env, asked: Nanos, call: impl FnOnce() -> T) -> (T, ForTurn) {
        let for_thread = env.now().saturating_sub(asked);
        let before = waits::noted().of(Cause::Store);
        let done = call();
        let noted = waits::noted();
        let at_gate = noted.of(Cause::Store) - before;
        let behind = noted.behind(Cause::Store).filter(|_| at_gate > 0);
        (done, ForTurn { nanos: for_thread + at_gate, behind })
    }

    /// Notes it for the operation of this thread, which waited so long for the answer.
    pub(super) fn note(self, waited: Nanos) {
        waits::note(Cause::Store, self.behind, self.nanos.min(waited));
    }
}

/// The answer to a request of this number.
pub(super) struct Answer {
    pub(super) request: usize,
    pub(super) blocks: Blocks,
    pub(super) for_turn: ForTurn,
}

/// Where answers arrive.
#[derive(Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    enough: Condvar,
}

#[derive(Default)]
struct State {
    answers: Vec<Answer>,
    /// So many are waited for.
    wanted: usize,
}

impl State {
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

    /// What has come, when it is so many, or a failure, or so late. In a simulation all have answered when they were asked.
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

/// Waits for an answer until some time; for ever is not long here.
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
