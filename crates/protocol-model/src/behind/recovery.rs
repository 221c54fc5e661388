//! A new process of the server.

use super::state::{INODES, places};
use super::{Action, Behind, Call, Made, Record, Rule, Stage, State};

impl Behind {
    pub(crate) fn recovery_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for client in 0..self.clients {
            let is_closed = state.session(client).closed;
            let its = &state.clients[client];
            // one that the process before has told that it is closed, which the crash undid, does
            // not come
            if (its.silent || its.expelled) && !self.is_settled(state, client) && !is_closed {
                actions.push(Action::Close(client));
            }
        }
        if !state.told_again && (0..self.clients).all(|client| self.is_settled(state, client)) {
            actions.push(Action::DoAgain);
        }
        let left: Vec<Call> = (0..self.clients).flat_map(|client| self.next_behind(state, client)).collect();
        let is_durable = state.history.is_empty() || !self.keeps(Rule::DurableBeforeRequests);
        if state.told_again && left.is_empty() && is_durable {
            actions.push(Action::EndRecovery);
        }
        if state.told_again || !self.keeps(Rule::ToldFirst) {
            actions.extend(left.into_iter().map(Action::RunBehind));
        }
    }

    /// Whether recovery has nothing to wait for from a session.
    fn is_settled(&self, state: &State, client: usize) -> bool {
        let durable = state.sessions[client];
        state.caught_up[client] || durable.away || durable.closed
    }

    /// The next predicted change of each user that is to run.
    fn next_behind(&self, state: &State, client: usize) -> Vec<Call> {
        let its = &state.clients[client];
        let has_sent = state.listed[client] && self.keeps(Rule::BehindAfterCrash);
        if !has_sent || state.session(client).closed {
            return Vec::new();
        }
        let term_now = state.session(client).term;
        let is_left = |call: &&Call| match state.stage(**call) {
            Stage::Behind { term, .. } => {
                let is_of_now = term >= term_now || !self.keeps(Rule::SameTermAfterCrash);
                is_of_now && state.made_by(**call).is_none()
            }
            _ => false,
        };
        its.fifos.iter().filter_map(|fifo| fifo.iter().find(is_left)).copied().collect()
    }

    /// What clients were told is done again, in the order of its numbers.
    pub(crate) fn do_again(&self, state: &mut State) {
        let mut told: Vec<Made> = Vec::new();
        for client in (0..self.clients).filter(|client| state.caught_up[*client]) {
            for call in self.calls(client) {
                if let Stage::Told { numbers, lsn } = state.stage(call)
                    && state.made_by(call).is_none()
                {
                    told.push(Made { call, client, numbers, lsn });
                }
            }
        }
        told.sort_unstable_by_key(|made| made.lsn);
        // of others, too, what was not answered is missing, as module `replay` has it
        let is_closed = state.sessions.iter().any(|session| session.closed);
        for made in told {
            for inode in places(self.op(made.call).inodes) {
                state.surprised |=
                    is_closed && self.is_surprise(state, made.call, inode, made.numbers[inode]);
            }
            state.history.push(Record::Made(made));
        }
        state.told_again = true;
    }

    pub(crate) fn run_behind(&self, state: &mut State, call: Call) {
        if let Stage::Behind { numbers, .. } = state.stage(call) {
            self.run(state, call, numbers);
        }
    }

    pub(crate) fn end_recovery(&self, state: &mut State) {
        state.recovering = false;
        state.told_again = false;
        state.caught_up.fill(true);
        state.listed.fill(true);
        (0..INODES).for_each(|inode| state.lower(inode));
        let closed: Vec<usize> = (0..self.clients).filter(|client| state.sessions[*client].closed).collect();
        for client in closed {
            for call in self.calls(client) {
                if matches!(state.stage(call), Stage::Told { .. }) && state.made_by(call).is_none() {
                    *state.stage_mut(call) = Stage::Lost;
                }
            }
        }
    }

    pub(crate) fn crash(&self, state: &mut State) {
        state.crashes += 1;
        state.history.clear();
        state.leases.fill(Default::default());
        state.asked.fill(0);
        state.taken = state.sessions.iter().map(|session| session.term).collect();
        state.recovering = true;
        state.told_again = false;
        state.caught_up.fill(false);
        state.listed.fill(false);
        for client in 0..self.clients {
            self.end_connection(state, client);
            state.clients[client].is_known = false;
        }
    }
}
