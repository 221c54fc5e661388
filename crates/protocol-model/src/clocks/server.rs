//! The server, and time.

use super::{Action, Clocks, FlushAt, KeepaliveAt, Recall, Right, Rule, State};

impl Clocks {
    pub(crate) fn server_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (n, keepalive) in state.keepalives.iter().enumerate() {
            if keepalive.at == KeepaliveAt::Up {
                actions.push(Action::ServeKeepalive(n));
            }
        }
        if state.flush.is_some_and(|flush| flush.at == FlushAt::Up) && !state.recovering {
            actions.push(Action::ServeFlush);
        }
        if state.recall == Some(Recall::Up) {
            actions.push(Action::ServeRecalled);
        }
    }

    pub(crate) fn tick(&self, state: &mut State, missed: bool) {
        state.silence = (state.silence + 1).min(self.server_limit);
        state.wait = state.wait.map(|wait| (wait + 1).min(self.longest_wait() + 1));
        if missed {
            state.since_missed = 1;
        } else {
            state.since_missed = (state.since_missed + 1).min(self.server_limit);
            self.tick_machine(state);
        }
    }

    pub(crate) fn serve_keepalive(&self, state: &mut State, n: usize) {
        let known = match self.keeps(Rule::ToldUntilHeard) {
            true => state.keepalives[n].term,
            false => state.told_term,
        };
        if known != state.term && self.keeps(Rule::TakenIsTold) {
            state.keepalives[n].at = KeepaliveAt::Taken;
            state.keepalives[n].term = state.term;
            state.told_term = state.term;
        } else if state.recovering || state.suspended && self.keeps(Rule::SuspendStopsRenewal) {
            state.keepalives.remove(n);
        } else {
            state.silence = 0;
            state.renewed_in_wait = true;
            state.keepalives[n].at = KeepaliveAt::Renewed;
        }
    }

    pub(crate) fn serve_flush(&self, state: &mut State) {
        let Some(flush) = &mut state.flush else { return };
        let changed = flush.version != state.version;
        if changed && self.keeps(Rule::FlushIsFenced) {
            flush.at = FlushAt::Refused;
            return;
        }
        state.overwrote |= changed;
        state.value = flush.value;
        flush.at = FlushAt::Taken;
    }

    /// What is under way to the old server is lost, and with it what it knew of leases and terms.
    pub(crate) fn restart(&self, state: &mut State) {
        state.restarts += 1;
        state.granted = None;
        state.keepalives.retain(|keepalive| keepalive.at != KeepaliveAt::Up);
        state.recall = None;
        state.suspended = false;
        state.silence = 0;
        state.term = state.known_term;
        state.told_term = state.known_term;
        state.wait = state.wait.map(|_| 0);
        if self.keeps(Rule::NewServerWaits) {
            state.recovering = true;
        } else {
            state.end_recovery(None);
        }
    }

    /// What the server does as soon as its clock says so: suspend, take the lease, run what waits.
    pub(crate) fn act_by_clock(&self, state: &mut State) {
        if state.recovering && state.silence >= self.server_limit {
            state.term += 1;
            state.end_recovery(None);
        }
        let Some(wait) = state.wait else { return };
        if state.recovering {
            return;
        }
        if state.granted.is_some() && state.silence >= self.server_limit {
            state.granted = None;
            state.term += 1;
            state.recall = None;
            state.suspended = false;
        }
        if state.granted.is_none() {
            state.run_foreign_write();
        } else if wait >= self.recall_limit {
            state.suspended = true;
        }
    }
}

impl State {
    pub(crate) fn begin_wait(&mut self) {
        self.wait = Some(0);
        self.renewed_in_wait = false;
        if self.granted.is_some() {
            self.recall = Some(Recall::Down);
        }
    }

    pub(crate) fn end_recovery(&mut self, granted: Option<Right>) {
        self.recovering = false;
        self.granted = granted;
        if self.wait.is_some() {
            self.begin_wait();
        }
    }

    pub(crate) fn note_recalled(&mut self) {
        self.recall = None;
        self.granted = None;
        self.suspended = false;
    }

    fn run_foreign_write(&mut self) {
        self.value = self.next_write();
        self.latest = self.value;
        self.version += 1;
        self.wait = None;
    }
}
