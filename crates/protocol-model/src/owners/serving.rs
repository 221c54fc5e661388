//! What a server does for clients, and its commits.

use super::{Action, Answer, Op, Owners, Put, PutAt, Rule, Shard, Stage, State, What};

impl Owners {
    /// Whether a server may answer from memory: by its clock, or until it is marked.
    pub(crate) fn is_in_time(&self, state: &State, server: usize) -> bool {
        match self.times {
            Some(times) => server >= self.faulty || state.servers[server].age < times.owner,
            None => !state.records[server].marked,
        }
    }

    pub(crate) fn serving_actions(&self, state: &State, server: usize, actions: &mut Vec<Action>) {
        for shard in 0..self.shards {
            let its = &state.servers[server].shards[shard];
            match state.commit_of(server, shard) {
                Some(commit) if matches!(state.puts[commit].at, PutAt::Done | PutAt::Refused) => {
                    actions.push(Action::Committed(server, shard));
                }
                Some(_) => {}
                None => {
                    let has_more =
                        its.has != its.saved && matches!(its.stage, Stage::Ready | Stage::Draining);
                    if its.stage == Stage::Opened || has_more {
                        actions.push(Action::Commit(server, shard));
                    }
                    let is_open = !matches!(its.stage, Stage::Idle | Stage::Opening | Stage::Handing);
                    if is_open && state.logs[shard].opener != its.epoch {
                        actions.push(Action::FindFenced(server, shard));
                    }
                }
            }
        }
        for client in 0..self.clients.len() {
            let its = &state.servers[server].shards[self.clients[client].shard];
            self.client_serving_actions(state, server, client, its, actions);
        }
    }

    fn client_serving_actions(
        &self,
        state: &State,
        server: usize,
        client: usize,
        its: &Shard,
        actions: &mut Vec<Action>,
    ) {
        let may_make = its.stage == Stage::Ready && self.is_heard(its, client);
        if may_make && self.unmade(state, its, client).is_some() && its.granted & !bit(client) == 0 {
            actions.push(Action::Make(server, client));
        }
        if self.may_answer(state, server, client, its) {
            actions.push(Action::Answer(server, client));
        }
        if self.must_recall(state, its, client) {
            actions.push(Action::Recall(server, client));
        }
        if self.may_keep_alive(state, server, client, its) {
            actions.push(Action::Keepalive(server, client));
        }
    }

    /// A session is heard once it came to this opening, also when it has gone to a later owner
    /// since.
    fn is_heard(&self, its: &Shard, client: usize) -> bool {
        !self.clients[client].session || its.came & bit(client) != 0
    }

    /// The write that a client has asked for and a server has not made.
    fn unmade(&self, state: &State, its: &Shard, client: usize) -> Option<u8> {
        match self.asked(state, client) {
            Some(Op::Write(write)) if its.has & (1 << write) == 0 => Some(write),
            _ => None,
        }
    }

    fn may_answer(&self, state: &State, server: usize, client: usize, its: &Shard) -> bool {
        if !matches!(its.stage, Stage::Ready | Stage::Draining) || !self.is_heard(its, client) {
            return false;
        }
        match self.asked(state, client) {
            Some(Op::Read) => self.is_in_time(state, server) || !self.keeps(Rule::ReadInTime),
            Some(Op::Write(write)) => {
                let may_tell = self.clients[client].session
                    && (self.is_in_time(state, server) || !self.keeps(Rule::TellInTime));
                let counts = if may_tell { its.has } else { its.saved };
                counts & (1 << write) != 0
            }
            None => false,
        }
    }

    /// Whether another client's write waits for this one's lease.
    fn must_recall(&self, state: &State, its: &Shard, client: usize) -> bool {
        let shard = self.clients[client].shard;
        let reached = state.clients[client].epoch == its.epoch && !state.clients[client].silent;
        let mut others =
            (0..self.clients.len()).filter(|other| *other != client && self.clients[*other].shard == shard);
        let waits = |other: usize| self.is_heard(its, other) && self.unmade(state, its, other).is_some();
        its.stage == Stage::Ready && its.granted & bit(client) != 0 && reached && others.any(waits)
    }

    fn may_keep_alive(&self, state: &State, server: usize, client: usize, its: &Shard) -> bool {
        let Some(times) = self.times else { return false };
        let can_hear = self.clients[client].session && !state.clients[client].silent && times.client > 0;
        let is_owner = matches!(its.stage, Stage::Ready | Stage::Draining)
            && its.came & bit(client) != 0
            && state.clients[client].epoch == its.epoch;
        can_hear
            && state.clients[client].age > 0
            && (is_owner || !self.keeps(Rule::KeepaliveOfOwner))
            && (self.is_in_time(state, server) || !self.keeps(Rule::KeepaliveInTime))
    }

    pub(crate) fn serving_step(&self, state: &mut State, action: Action) {
        match action {
            Action::Commit(server, shard) => self.commit(state, server, shard),
            Action::Committed(server, shard) => self.committed(state, server, shard),
            Action::FindFenced(server, shard) => state.close_shard(server, shard),
            Action::Make(server, client) => {
                let its = &mut state.servers[server].shards[self.clients[client].shard];
                if let Some(Op::Write(write)) = self.next_op(state.clients[client].done, client) {
                    its.has |= 1 << write;
                }
            }
            Action::Answer(server, client) => self.answer(state, server, client),
            Action::Recall(server, client) => {
                let its = &mut state.servers[server].shards[self.clients[client].shard];
                its.granted &= !bit(client);
                state.clients[client].copy = None;
                let epoch = its.epoch;
                let mut under_way = state.answers.iter_mut();
                if let Some(answer) = under_way.find(|it| it.client == client && it.epoch == epoch) {
                    answer.granted = false;
                }
            }
            Action::Keepalive(_, client) => state.clients[client].age = 0,
            _ => {}
        }
    }

    fn commit(&self, state: &mut State, server: usize, shard: usize) {
        let its = state.servers[server].shards[shard];
        let is_free = state.logs[shard].opener == its.epoch || !self.keeps(Rule::Fence);
        state.puts.push(Put {
            from: server,
            what: What::Commit { shard, epoch: its.epoch, writes: its.has & !its.saved },
            at: if is_free { PutAt::Up } else { PutAt::Void },
            given_up: false,
        });
    }

    fn committed(&self, state: &mut State, server: usize, shard: usize) {
        let Some(commit) = state.commit_of(server, shard) else { return };
        let put = state.puts.remove(commit);
        if put.at == PutAt::Refused {
            state.close_shard(server, shard);
            return;
        }
        let its = &mut state.servers[server].shards[shard];
        if its.stage == Stage::Opened {
            its.stage = Stage::Recovering;
        }
        if let What::Commit { writes, .. } = put.what {
            its.saved |= writes;
        }
    }

    /// Users of doors are answered at once: that an answer is late changes nothing for them.
    fn answer(&self, state: &mut State, server: usize, client: usize) {
        let script = &self.clients[client];
        let Some(op) = self.asked(state, client) else { return };
        let its = &mut state.servers[server].shards[script.shard];
        let is_durable = matches!(op, Op::Write(write) if its.saved & (1 << write) != 0);
        state.wrong.two_answer |= !is_durable && its.epoch < state.logs[script.shard].served;
        let grants = op == Op::Read && script.session && self.times.is_some_and(|times| times.client > 0);
        let answer = Answer {
            client,
            op: state.clients[client].done,
            epoch: its.epoch,
            value: (op == Op::Read).then_some(its.has),
            granted: grants && its.stage == Stage::Ready,
        };
        if !script.session {
            self.take_answer(state, answer);
            return;
        }
        if answer.epoch < state.clients[client].epoch && self.keeps(Rule::OldOwnerIgnored) {
            return;
        }
        if answer.granted {
            its.granted |= bit(client);
        }
        let is_same =
            |other: &Answer| (other.client, other.op, other.epoch) == (client, answer.op, answer.epoch);
        if !state.answers.iter().any(is_same) {
            state.answers.push(answer);
        }
    }
}

/// The place of a client in a set of clients.
pub(crate) fn bit(client: usize) -> u8 {
    1 << client
}
