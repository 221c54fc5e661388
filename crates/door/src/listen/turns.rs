//! Which request a door works on next, and which clients are told to come back later.
//!
//! Before a request is worked on it takes a turn in its user's name. The number of turns is
//! limited, and users share them ([`FairSemaphore`]). Waiting is cheap: as many requests may wait
//! as there are connections, each for a bounded time. While requests wait, the door measures how
//! many are done in a second. From that, and from the number of the user's own requests that wait
//! already, it computes whether a request would get its turn in time. If not, the client is told so
//! at once. So a user over the share is told, and others need not be.

use crate::limits::{AT_WORK_MAX, TURN_SECS_MAX};
use crate::semaphore::{FairPermit, FairSemaphore};
use leeward_env::{Ctx, Env, Nanos};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Length of a measurement, nanoseconds.
const WINDOW: Nanos = 1_000_000_000;

/// The turns of a door. Cheap to clone.
#[derive(Clone)]
pub struct Turns(Arc<Shared>);

struct Shared {
    env: Env,
    semaphore: FairSemaphore,
    /// How long a request waits.
    patience: Duration,
    pace: Mutex<Pace>,
}

/// How fast requests are done while others wait: the capacity, not the demand.
#[derive(Default)]
struct Pace {
    /// Requests a second, if that was measured since requests began to wait.
    rate: Option<f64>,
    /// Start of the measurement, and requests done since.
    window: Option<(Nanos, u64)>,
}

/// A request's turn, until it is dropped.
pub struct Turn {
    turns: Turns,
    _share: FairPermit,
}

/// The door is too busy for this user's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// When to come back, seconds.
    pub retry_after_secs: u64,
}

impl Turns {
    /// Turns without any request at work.
    pub fn new(env: &Env) -> Turns {
        Turns::with(env, Duration::from_secs(TURN_SECS_MAX))
    }

    fn with(env: &Env, patience: Duration) -> Turns {
        let semaphore = FairSemaphore::new(AT_WORK_MAX);
        Turns(Arc::new(Shared { env: env.clone(), semaphore, patience, pace: Mutex::default() }))
    }

    /// Requests that wait for their turn.
    pub fn waiting(&self) -> usize {
        self.0.semaphore.waiting()
    }

    /// Takes a turn for a request.
    ///
    /// # Errors
    /// [`Busy`]: at once when there would be none in time, else when there was none.
    pub async fn take(&self, ctx: &Ctx) -> Result<Turn, Busy> {
        let uid = ctx.flow.uid;
        let wait_secs = self.wait_secs(uid);
        if wait_secs.is_some_and(|secs| secs > self.0.patience.as_secs_f64()) {
            return Err(busy(wait_secs));
        }
        let share = self.0.semaphore.take_within(uid, 1, self.0.patience).await;
        let share = share.ok_or_else(|| busy(self.wait_secs(uid)))?;
        Ok(Turn { turns: self.clone(), _share: share })
    }

    /// How long one more request of this user would wait, as far as that is known.
    fn wait_secs(&self, uid: u32) -> Option<f64> {
        let rate = self.0.pace.lock().rate?;
        let (mine, users) = self.0.semaphore.waiting_of(uid);
        (mine > 0).then(|| (mine + 1) as f64 * users as f64 / rate.max(0.001))
    }
}

fn busy(wait_secs: Option<f64>) -> Busy {
    let secs = wait_secs.map_or(TURN_SECS_MAX, |secs| secs.ceil() as u64);
    Busy { retry_after_secs: secs.clamp(1, 60) }
}

impl Pace {
    /// Counts a request that was done at this time, while `waiting` waited.
    fn count(&mut self, now: Nanos, waiting: usize) {
        if waiting == 0 {
            *self = Pace::default();
            return;
        }
        let (since, done) = self.window.get_or_insert((now, 0));
        *done += 1;
        let passed = now.saturating_sub(*since);
        if passed >= WINDOW {
            let measured = *done as f64 * 1e9 / passed as f64;
            self.rate = Some(self.rate.map_or(measured, |rate| (rate + measured) / 2.0));
            self.window = Some((now, 0));
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // before the next request has this turn
        let shared = &self.turns.0;
        shared.pace.lock().count(shared.env.now(), shared.semaphore.waiting());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use leeward_env::Door;
    use std::pin::Pin;

    fn ctx(uid: u32) -> Ctx {
        crate::Principal::new("u", uid, uid, &[]).ctx(Door::S3)
    }

    type Taking = Pin<Box<dyn Future<Output = Result<Turn, Busy>>>>;

    fn take(turns: &Turns, uid: u32) -> Taking {
        let (turns, ctx) = (turns.clone(), ctx(uid));
        Box::pin(async move { turns.take(&ctx).await })
    }

    /// All turns that one user may have, and `more` that the user asks for.
    fn crowd(turns: &Turns, uid: u32, more: usize) -> (Vec<Turn>, Vec<Taking>) {
        let mut at_work = Vec::new();
        let mut waiting = Vec::new();
        while waiting.len() < more {
            let mut one = take(turns, uid);
            match one.as_mut().now_or_never() {
                Some(turn) => at_work.push(turn.expect("a turn")),
                None => waiting.push(one),
            }
        }
        (at_work, waiting)
    }

    #[tokio::test]
    async fn many_wait_and_one_of_another_user_does_not() {
        let turns = Turns::new(&Env::sim(1));
        let (at_work, waiting) = crowd(&turns, 1, 10_000);
        assert_eq!((at_work.len(), turns.waiting()), (512, 10_000));
        let other = take(&turns, 2).now_or_never();
        assert!(other.is_some_and(|turn| turn.is_ok()), "there is always a turn for who has none");
        drop((at_work, waiting));
        assert_eq!((turns.waiting(), turns.0.semaphore.taken()), (0, 0));
    }

    #[tokio::test]
    async fn a_user_over_his_share_is_sent_away_and_another_is_not() {
        let env = Env::sim(1);
        let turns = Turns::new(&env);
        let (mut at_work, mut waiting) = crowd(&turns, 1, 5000);
        // a hundred in a second are done: more wait than can be done in time
        for _ in 0..201 {
            env.advance(Duration::from_millis(10));
            drop(at_work.pop());
            let turn = waiting.remove(0).await;
            at_work.push(turn.expect("his turn"));
        }
        let refused = take(&turns, 1).await.err().expect("he would wait for too long");
        assert_eq!(refused.retry_after_secs, 48);
        assert!(take(&turns, 2).await.is_ok(), "another is not refused");
        // when nobody waits there is no measurement: a rate of demand says nothing about capacity
        drop(waiting);
        drop(at_work.pop());
        env.advance(Duration::from_secs(3600));
        drop(at_work.pop());
        let (_, waiting) = crowd(&turns, 1, 10_000);
        assert_eq!(waiting.len(), 10_000, "none of a burst is refused");
    }

    #[tokio::test]
    async fn who_waits_in_vain_is_told_so() {
        let turns = Turns::with(&Env::sim(1), Duration::ZERO);
        let at_work: Vec<Turn> = std::iter::from_fn(|| take(&turns, 1).now_or_never()?.ok()).collect();
        let refused = take(&turns, 1).await.err().expect("no turn was given back");
        assert_eq!((at_work.len(), refused.retry_after_secs, turns.waiting()), (512, TURN_SECS_MAX, 0));
    }
}
