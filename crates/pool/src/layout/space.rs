//! The free space of a store, as it has said last.
//!
//! Whoever writes or looks at a file system wants it, on threads that must not wait for a store. So
//! a store is asked on a thread of its own, once at a time, and the answer is waited for only a
//! moment after the question. After that the last answer serves, until there is a new one.

use crate::{Error, Result};
use leeward_env::disk::Space;
use leeward_env::{Env, Nanos};
use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// How long after the question anybody waits for the answer. A store that works needs a small part
/// of it.
const WAIT: Nanos = 20_000_000;

#[derive(Default)]
pub(super) struct KnownSpace {
    state: Mutex<SpaceState>,
    answered: Condvar,
}

#[derive(Default)]
struct SpaceState {
    /// The last answer; the error as text.
    last: Option<std::result::Result<Space, String>>,
    /// Since when the store is being asked.
    asked: Option<Nanos>,
}

impl KnownSpace {
    /// Whether the caller is to ask the store. Then it calls `end`.
    pub(super) fn begin(&self, now: Nanos) -> bool {
        let mut state = self.state.lock();
        let is_idle = state.asked.is_none();
        if is_idle {
            state.asked = Some(now);
        }
        is_idle
    }

    /// The store has answered; `None`: it could not be asked.
    pub(super) fn end(&self, answer: Option<&Result<Space>>) {
        let mut state = self.state.lock();
        state.asked = None;
        if let Some(answer) = answer {
            state.last = Some(answer.as_ref().copied().map_err(ToString::to_string));
        }
        self.answered.notify_all();
    }

    /// The answer, waited for as long as anybody waits for it, or the one before.
    pub(super) fn get(&self, env: &Env) -> Result<Space> {
        let mut state = self.state.lock();
        while let Some(asked) = state.asked {
            let left = (asked + WAIT).saturating_sub(env.now());
            if left == 0 {
                break;
            }
            self.answered.wait_for(&mut state, Duration::from_nanos(left));
        }
        match &state.last {
            Some(Ok(space)) => Ok(*space),
            Some(Err(why)) => Err(Error::Away(why.clone())),
            None => Err(Error::Away("it does not say how much space it has".into())),
        }
    }

    /// Since when the store is being asked.
    pub(super) fn asked(&self) -> Option<Nanos> {
        self.state.lock().asked
    }
}
