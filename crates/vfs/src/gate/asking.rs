//! What the gate asks about users and processes: in the background, while requests go on with what
//! is known.

use super::Gate;
use leeward_env::{Class, Ctx, Flow, Nanos};
use leeward_gate::{Line, Share};

/// The line of the questions: they are small and rare, and come before what others wait for.
const LINE: Line = Line { flow: Flow::SYSTEM, class: Class::Interactive };

impl Gate {
    /// Weight and ceilings of a user, as far as they are known.
    pub fn share_of(&self, uid: u32) -> Share {
        let mut state = self.0.state.lock();
        let owner = state.owners.of(uid);
        let (share, ask) = state.shares.of(owner, self.0.env.now());
        drop(state);
        if ask {
            self.find_groups();
        }
        share
    }

    /// The job of the caller, as far as it is known.
    pub(super) fn job_of(&self, ctx: &Ctx, now: Nanos) -> u32 {
        if !self.0.options.jobs || ctx.pid == 0 {
            return 0;
        }
        let (job, ask) = self.0.jobs.lock().of((ctx.uid, ctx.pid), now);
        if ask {
            self.find_jobs();
        }
        job
    }

    fn find_jobs(&self) {
        let gate = self.clone();
        self.0.waiting.submit(LINE, Line::USUAL, move || {
            loop {
                let wanted = gate.0.jobs.lock().wanted();
                if wanted.is_empty() {
                    return;
                }
                for (uid, pid) in wanted {
                    let name = gate.0.people.job_of(pid);
                    gate.0.jobs.lock().found((uid, pid), name.as_deref(), gate.0.env.now());
                }
            }
        });
    }

    pub(super) fn find_groups(&self) {
        let gate = self.clone();
        self.0.waiting.submit(LINE, Line::USUAL, move || {
            loop {
                let wanted = gate.0.state.lock().shares.wanted();
                if wanted.is_empty() {
                    return;
                }
                for uid in wanted {
                    let gids = gate.0.people.groups_of(uid);
                    gate.0.state.lock().shares.found(uid, &gids, gate.0.env.now());
                }
            }
        });
    }

    pub(super) fn find_owners(&self) {
        let gate = self.clone();
        self.0.waiting.submit(LINE, Line::USUAL, move || {
            if let Some(ranges) = gate.0.people.subordinates() {
                gate.0.state.lock().owners.set(ranges);
            }
        });
    }
}
