//! Steps of background work at the gate.
//!
//! While a slot is free a step runs on its own thread, in addition to the slots: it is short, and
//! requests that arrive meanwhile need not wait for it here. While no slot is free, the step waits
//! in line. The thread whose slot it gets stands by while the step runs.

use crate::gate::{Gate, Job, Shared};
use leeward_env::Ctx;
use leeward_fs::Turns;
use parking_lot::{Condvar, Mutex};
use std::sync::{Arc, Weak};

/// Gives turns at a gate; does not keep it alive.
pub(crate) struct Background(pub(crate) Weak<Shared>);

impl Turns for Background {
    fn in_turn(&self, ctx: &Ctx, volume: u32, step: &mut dyn FnMut()) {
        match self.0.upgrade() {
            Some(shared) => Gate::of(shared).background(ctx, volume, step),
            None => step(),
        }
    }
}

/// Where the thread of a step and that of its slot meet.
#[derive(Default)]
pub(crate) struct Meeting {
    at: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Waiting,
    Running,
    Over,
}

/// The step runs; it has ended when this is dropped.
pub(crate) struct Running(Arc<Meeting>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.set(Stage::Over);
    }
}

impl Meeting {
    fn set(&self, stage: Stage) {
        *self.at.lock() = stage;
        self.changed.notify_all();
    }

    fn wait_for(&self, stage: Stage) {
        let mut at = self.at.lock();
        while *at != stage {
            self.changed.wait(&mut at);
        }
    }

    /// For the thread of the step: returns when it may run.
    pub(crate) fn wait_for_turn(self: Arc<Self>) -> Running {
        self.wait_for(Stage::Running);
        Running(self)
    }

    /// The job of the slot's thread: lets the step run, and waits for its end.
    pub(crate) fn slot_job(meeting: &Arc<Meeting>) -> Job {
        let meeting = meeting.clone();
        Box::new(move |_, _| {
            meeting.set(Stage::Running);
            meeting.wait_for(Stage::Over);
            None
        })
    }
}
