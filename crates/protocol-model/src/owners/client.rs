//! Clients: sessions, which follow the owner, and users of doors, who ask any server.

use super::serving::bit;
use super::{Action, Answer, Op, Owners, Rule, Stage, State, Writes};

impl Owners {
    /// The clients with a session on a shard, one bit each.
    pub(crate) fn sessions(&self, shard: usize) -> u8 {
        let its =
            self.clients.iter().enumerate().filter(|(_, script)| script.session && script.shard == shard);
        its.fold(0, |bits, (client, _)| bits | bit(client))
    }

    pub(crate) fn next_op(&self, done: usize, client: usize) -> Option<Op> {
        self.clients[client].ops.get(done).copied()
    }

    /// What a client waits for.
    pub(crate) fn asked(&self, state: &State, client: usize) -> Option<Op> {
        state.clients[client].asked.and_then(|_| self.next_op(state.clients[client].done, client))
    }

    /// The writes of a client that were acknowledged.
    pub(crate) fn acknowledged_to(&self, state: &State, client: usize) -> Writes {
        self.clients[client].ops[..state.clients[client].done].iter().fold(0, |writes, op| match op {
            Op::Write(write) => writes | 1 << write,
            Op::Read => writes,
        })
    }

    /// The writes of a shard that were acknowledged and are not known to be lost.
    pub(crate) fn acknowledged(&self, state: &State, shard: usize) -> Writes {
        let counts = |client: usize| match state.clients[client].closed {
            true => self.acknowledged_to(state, client) & state.logs[shard].writes,
            false => self.acknowledged_to(state, client),
        };
        let its = (0..self.clients.len()).filter(|client| self.clients[*client].shard == shard);
        its.fold(0, |writes, client| writes | counts(client))
    }

    pub(crate) fn client_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (client, its) in state.clients.iter().enumerate() {
            if its.silent {
                actions.push(Action::Speak(client));
                continue;
            }
            let is_over = its.closed || its.done == self.clients[client].ops.len();
            if its.asked.is_none() && !is_over {
                actions.push(Action::Ask(client));
            }
            let servers = (0..self.servers).filter(|server| self.may_come(state, *server, client));
            actions.extend(servers.map(|server| Action::Come(server, client)));
        }
        for (n, answer) in state.answers.iter().enumerate() {
            if !state.clients[answer.client].silent {
                actions.push(Action::Receive(n));
            }
        }
    }

    fn may_come(&self, state: &State, server: usize, client: usize) -> bool {
        let script = &self.clients[client];
        let its = &state.servers[server].shards[script.shard];
        let client_epoch = state.clients[client].epoch;
        let is_later = match self.keeps(Rule::EpochOpenedOnce) {
            true => its.epoch > client_epoch,
            false => its.epoch >= client_epoch && its.came & bit(client) == 0,
        };
        script.session
            && state.runs(server)
            && matches!(its.stage, Stage::Recovering | Stage::Ready)
            && is_later
            && !state.clients[client].closed
    }

    /// The client brings what it was told; what is in the log already is not made again. The new
    /// owner takes it that the client has leases.
    pub(crate) fn come(&self, state: &mut State, server: usize, client: usize) {
        let told = self.acknowledged_to(state, client);
        let its = &mut state.servers[server].shards[self.clients[client].shard];
        its.came |= bit(client);
        if self.keeps(Rule::WaitForSessions) {
            its.has |= told;
        }
        if self.times.is_some_and(|times| times.client > 0) {
            its.granted |= bit(client);
        }
        state.clients[client].epoch = its.epoch;
        if self.keeps(Rule::OldOwnerIgnored) {
            let epoch = its.epoch;
            state.answers.retain(|answer| answer.client != client || answer.epoch == epoch);
        }
    }

    pub(crate) fn ask(&self, state: &mut State, client: usize) {
        let acknowledged = self.acknowledged(state, self.clients[client].shard);
        let its = &mut state.clients[client];
        match self.next_op(its.done, client) {
            Some(Op::Read) => its.asked = Some(acknowledged),
            _ => {
                its.asked = Some(0);
                its.copy = None;
            }
        }
    }

    pub(crate) fn receive(&self, state: &mut State, n: usize) {
        let answer = state.answers.remove(n);
        self.take_answer(state, answer);
    }

    pub(crate) fn take_answer(&self, state: &mut State, answer: Answer) {
        let its = &mut state.clients[answer.client];
        let Some(asked) = its.asked else { return };
        if its.done != answer.op {
            return;
        }
        if let Some(value) = answer.value {
            state.wrong.stale |= asked & !value != 0;
        }
        let may_keep = self.times.is_some_and(|times| its.age < times.client);
        its.copy = answer.value.filter(|_| answer.granted && may_keep);
        its.done += 1;
        its.asked = None;
        state.answers.retain(|other| other.client != answer.client || other.op > answer.op);
    }
}
