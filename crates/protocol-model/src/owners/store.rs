//! Time, the records of servers, and what happens to puts.

use super::{
    Action, Client, Counts, Entry, Log, Map, Owners, PutAt, Record, Rule, Run, Server, Shard, Stage, State,
    Times, What, Wrong,
};

impl Owners {
    pub(crate) fn first_state(&self) -> State {
        let serves =
            |shard| Shard { stage: Stage::Ready, epoch: 1, came: self.sessions(shard), ..Shard::default() };
        let server = |n| Server {
            run: Run::Runs,
            age: 0,
            renewal: None,
            shards: (0..self.shards)
                .map(|shard| if n == 0 { serves(shard) } else { Shard::default() })
                .collect(),
        };
        let log = Log { opener: 1, epoch: 1, served: 1, ..Log::default() };
        State {
            map: Map { version: 1, shards: vec![Entry { owner: 0, epoch: 1 }; self.shards] },
            records: vec![Record::default(); self.servers],
            logs: vec![log; self.shards],
            puts: Vec::new(),
            servers: (0..self.servers).map(server).collect(),
            clients: vec![Client { epoch: 1, ..Client::default() }; self.clients.len()],
            answers: Vec::new(),
            since_missed: self.quiet_max(),
            counts: Counts::default(),
            wrong: Wrong::default(),
        }
    }

    pub(crate) fn store_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (n, put) in state.puts.iter().enumerate() {
            if matches!(put.at, PutAt::Up | PutAt::Void) {
                actions.push(Action::Land(n));
            }
        }
        for server in (0..self.faulty).filter(|server| state.runs(*server)) {
            let is_marked = state.records[server].marked;
            if is_marked && self.keeps(Rule::RenewIfMatch) {
                actions.push(Action::FindMarked(server));
            } else if self.times.is_some() {
                let is_waiting = state.servers[server].renewal.is_some();
                actions.push(if is_waiting { Action::Renewed(server) } else { Action::Renew(server) });
            }
        }
        if self.times.is_some() {
            actions.push(Action::Tick { missed: false });
            let between = if self.keeps(Rule::ClocksDifferLittle) { self.quiet_max() } else { 1 };
            if state.since_missed >= between {
                actions.push(Action::Tick { missed: true });
            }
        }
    }

    /// How long a server must be quiet until peers go on without it.
    fn quiet_max(&self) -> u8 {
        self.times.map_or(0, |times| times.mark.max(times.answer))
    }

    pub(crate) fn store_step(&self, state: &mut State, action: Action) {
        match action {
            Action::Tick { missed } => self.tick(state, missed),
            Action::Land(put) => self.land(state, put),
            Action::Renew(server) => self.renew(state, server),
            Action::Renewed(server) => {
                let its = &mut state.servers[server];
                let sent = if self.keeps(Rule::TimeBeginsAtSending) { its.renewal } else { Some(0) };
                its.age = its.age.min(sent.unwrap_or(its.age));
                its.renewal = None;
            }
            Action::FindMarked(server) => state.end_server(server),
            Action::KeeperMarks(server) => {
                self.mark(state, server);
                state.records[server].quiet = self.quiet_max();
            }
            _ => {}
        }
    }

    fn tick(&self, state: &mut State, missed: bool) {
        let Some(times) = self.times else { return };
        let are_silent = self.are_marked_silent(state) || !self.keeps(Rule::WaitAfterPredecessor);
        state.since_missed = if missed { 1 } else { (state.since_missed + 1).min(self.quiet_max()) };
        for (n, server) in state.servers.iter_mut().enumerate() {
            let counts =
                server.run == Run::Runs || server.run == Run::Frozen && self.keeps(Rule::LookAtEachAnswer);
            if n < self.faulty && counts && !(missed && n == 0) {
                server.age = (server.age + 1).min(times.owner);
                server.renewal = server.renewal.map(|age| (age + 1).min(times.owner));
            }
            for shard in &mut server.shards {
                if are_silent && matches!(shard.stage, Stage::Opening | Stage::Opened | Stage::Recovering) {
                    shard.waited = (shard.waited + 1).min(times.sessions);
                }
            }
        }
        for record in state.records.iter_mut().take(self.faulty) {
            record.quiet = (record.quiet + 1).min(self.quiet_max());
        }
        for client in &mut state.clients {
            client.age = (client.age + 1).min(times.client);
        }
        self.drop_late_copies(state, times);
    }

    /// A copy that may not be used again until its client went to another owner is as good as none.
    fn drop_late_copies(&self, state: &mut State, times: Times) {
        if times.client == 0 {
            return;
        }
        state
            .clients
            .iter_mut()
            .filter(|client| client.age >= times.client)
            .for_each(|client| client.copy = None);
    }

    /// The put takes effect at once. That it may do so late is as if it had been sent late by a
    /// slower clock, except for the answer, which is a step of its own.
    fn renew(&self, state: &mut State, server: usize) {
        state.records[server] = Record::default();
        state.servers[server].renewal = Some(0);
        for put in &mut state.puts {
            if put.at == PutAt::Up && put.what == (What::Mark { target: server }) {
                put.at = PutAt::Void;
            }
        }
        if self.keeps(Rule::MarkIfMatch) {
            state.puts.retain(|put| !matches!(put.what, What::Mark { .. }) || put.at == PutAt::Up);
        }
    }

    fn mark(&self, state: &mut State, server: usize) {
        state.records[server].marked = true;
        state.puts.retain(|put| put.what != What::Mark { target: server });
    }

    fn land(&self, state: &mut State, n: usize) {
        let put = state.puts[n];
        match put.what {
            What::Mark { target } => self.mark(state, target),
            What::Own { shard, owner, before, version } => {
                state.puts.remove(n);
                let matches = match self.keeps(Rule::VersionsDiffer) {
                    true => version == state.map.version,
                    false => before.owner == state.map.shards[shard].owner,
                };
                if matches || !self.keeps(Rule::SwapIfMatch) {
                    let version = if self.keeps(Rule::SwapIfMatch) { state.map.version } else { version };
                    self.swap(state, shard, owner, version + 1);
                    if put.given_up && !self.keeps(Rule::MapIsTruth) {
                        // the owner never learns that it is
                        state.servers[owner].shards[shard].epoch = version + 1;
                    }
                }
            }
            What::Commit { shard, epoch, writes } => {
                let is_free = put.at == PutAt::Up;
                if is_free {
                    append(state, shard, put.from, epoch, writes);
                }
                state.puts[n].at = if is_free { PutAt::Done } else { PutAt::Refused };
                if put.given_up {
                    state.puts.remove(n);
                }
            }
        }
    }

    fn swap(&self, state: &mut State, shard: usize, owner: usize, version: u8) {
        state.map.version = version;
        state.map.shards[shard] = Entry { owner, epoch: version };
        if self.keeps(Rule::SwapIfMatch) && self.keeps(Rule::VersionsDiffer) {
            // all that were sent before are going to be refused
            state.puts.retain(|put| !matches!(put.what, What::Own { .. }));
        }
    }
}

fn append(state: &mut State, shard: usize, from: usize, epoch: u8, writes: u8) {
    let log = &mut state.logs[shard];
    state.wrong.twice |= log.writes & writes != 0;
    state.wrong.two_commit |= epoch < log.epoch || epoch == log.epoch && from != log.writer;
    log.writes |= writes;
    log.epoch = epoch;
    log.writer = from;
}
