//! Whose request a door works on next, and who is told to come back later.
//!
//! Before a request is worked on it takes a turn in its user's name. While fewer than a bound are at work it has one at once; else users take turns, each in
//! the order of his own. Who would have to wait too long, going by how fast requests are done now and by how many of his own are before him, is told
//! so at once: the user over his share hears it first, others need not.

use crate::limits::{AT_WORK_MAX, TURN_MS_MAX};
use leeward_env::{Ctx, Env, Nanos};
use leeward_gate::{FairQueue, Line, Share, Turn as Place};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Requests a second that are believed to be done before any was measured.
const RATE_AT_FIRST: f64 = 1000.0;
/// How long is measured, nanoseconds.
const WINDOW: Nanos = 1_000_000_000;

/// The turns of a door. Cheap to clone.
#[derive(Clone)]
pub struct Turns(Arc<Shared>);

struct Shared {
    env: Env,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: FairQueue<oneshot::Sender<Turn>>,
    waiting: FxHashMap<u32, usize>,
    at_work: usize,
    /// Requests a second, as last measured.
    rate: f64,
    since: Nanos,
    done: u64,
}

/// A request's turn, until it is dropped.
pub struct Turn {
    turns: Turns,
    place: Option<Place>,
    begun: Nanos,
}

/// There is too much to do for this user's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// When to come back, seconds.
    pub retry_after_secs: u64,
}

impl Turns {
    /// Nobody is at work.
    pub fn new(env: &Env) -> Turns {
        let state = State { rate: RATE_AT_FIRST, since: env.now(), ..State::default() };
        Turns(Arc::new(Shared { env: env.clone(), state: Mutex::new(state) }))
    }

    /// Requests that wait for their turn.
    pub fn waiting(&self) -> usize {
        self.0.state.lock().queue.len()
    }

    /// Takes a turn for a request.
    ///
    /// # Errors
    /// [`Busy`], at once.
    pub async fn take(&self, ctx: &Ctx) -> Result<Turn, Busy> {
        let line = Line { flow: ctx.flow, class: ctx.class };
        let wait = {
            let state = &mut *self.0.state.lock();
            if state.at_work < AT_WORK_MAX && state.queue.is_empty() {
                state.at_work += 1;
                let place = state.queue.pass(line, Share::USUAL);
                return Ok(self.turn(place));
            }
            state.check(line.flow.uid)?;
            let (give, given) = oneshot::channel();
            state.queue.push(line, Share::USUAL, give);
            *state.waiting.entry(line.flow.uid).or_default() += 1;
            given
        };
        // the queue is never dropped with somebody in it
        wait.await.map_err(|_| Busy { retry_after_secs: 1 })
    }

    fn turn(&self, place: Place) -> Turn {
        Turn { turns: self.clone(), place: Some(place), begun: self.0.env.now() }
    }

    /// Ends a turn and gives out what is free.
    fn end(&self, place: Place, begun: Nanos) {
        let now = self.0.env.now();
        {
            let mut state = self.0.state.lock();
            state.queue.done(place, now.saturating_sub(begun));
            state.at_work -= 1;
            state.count(now);
        }
        loop {
            // a statement of its own: the lock is not held while somebody is given his turn
            let next = self.0.state.lock().next();
            let Some((place, give)) = next else { return };
            if let Err(mut turn) = give.send(self.turn(place)) {
                // its client has gone
                let place = turn.place.take().expect("just made");
                let mut state = self.0.state.lock();
                state.queue.done(place, 0);
                state.at_work -= 1;
            }
        }
    }
}

impl State {
    /// Who is next, if there is room.
    fn next(&mut self) -> Option<(Place, oneshot::Sender<Turn>)> {
        if self.at_work >= AT_WORK_MAX {
            return None;
        }
        let (place, give) = self.queue.pop()?;
        let uid = place.line.flow.uid;
        if let Some(waiting) = self.waiting.get_mut(&uid) {
            *waiting -= 1;
            if *waiting == 0 {
                self.waiting.remove(&uid);
            }
        }
        self.at_work += 1;
        Some((place, give))
    }

    fn count(&mut self, now: Nanos) {
        self.done += 1;
        let passed = now.saturating_sub(self.since);
        if passed >= WINDOW {
            let measured = self.done as f64 * 1e9 / passed as f64;
            self.rate = (self.rate + measured) / 2.0;
            (self.since, self.done) = (now, 0);
        }
    }

    /// Whether one more of this user would have its turn in time.
    fn check(&self, uid: u32) -> Result<(), Busy> {
        let mine = self.waiting.get(&uid).copied().unwrap_or(0);
        let users = self.waiting.len() + usize::from(mine == 0);
        let wait_secs = (mine + 1) as f64 * users as f64 / self.rate.max(1.0);
        if mine < AT_WORK_MAX || wait_secs * 1e3 <= TURN_MS_MAX as f64 {
            return Ok(());
        }
        Err(Busy { retry_after_secs: (wait_secs.ceil() as u64).clamp(1, 60) })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.turns.end(place, self.begun);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_env::Door;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    fn ctx(uid: u32) -> Ctx {
        crate::Who::new("u", uid, uid, &[]).ctx(Door::S3)
    }

    fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_user_over_his_share_is_sent_away_and_another_is_not() {
        let env = Env::sim(1);
        let turns = Turns::new(&env);
        let mut held: Vec<Turn> = (0..AT_WORK_MAX)
            .map(|_| poll(pin!(turns.take(&ctx(1)))).expect("a turn").expect("free"))
            .collect();
        // all that one user may have waiting at the rate that is believed in
        let mut waiting = Vec::new();
        let refused = loop {
            let context = ctx(1);
            let mut one = Box::pin({
                let turns = turns.clone();
                async move { turns.take(&context).await }
            });
            match poll(one.as_mut()) {
                Some(answer) => break answer.err().expect("no turn is free"),
                None => waiting.push(one),
            }
        };
        assert!((1..=60).contains(&refused.retry_after_secs), "{refused:?}");
        assert_eq!(waiting.len() as u64, TURN_MS_MAX);
        let second = ctx(2);
        let mut other = Box::pin(turns.take(&second));
        assert!(poll(other.as_mut()).is_none(), "he waits, but is not refused");
        held.pop();
        assert!(poll(other.as_mut()).is_some_and(|turn| turn.is_ok()), "and is the next");
        // clients that go away leave no gap
        drop(waiting);
        drop(other);
        drop(held);
        let state = turns.0.state.lock();
        assert_eq!((state.at_work, state.queue.len(), state.waiting.len()), (0, 0, 0));
    }
}
