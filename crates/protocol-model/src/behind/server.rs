//! The server's side.

use super::state::{INODES, places};
use super::{Action, Behind, Call, Kind, Lease, Made, Numbers, Record, Room, Rule, Stage, State};

impl Behind {
    pub(crate) fn server_actions(&self, state: &State, client: usize, actions: &mut Vec<Action>) {
        for call in self.calls(client).filter(|call| self.has_its_turn(state, *call)) {
            let conflicts = self.conflicts(state, call);
            if conflicts.is_empty() && !self.waits_for_commit(state, call) {
                actions.push(Action::Serve(call));
            }
            let asks = conflicts.into_iter().filter(|(other, inode)| state.asked[*other] >> inode & 1 == 0);
            actions.extend(asks.map(|(other, inode)| Action::AskBack(other, inode)));
        }
        let session = state.session(client);
        if state.clients[client].silent && !session.away && !session.closed && !state.recovering {
            actions.push(Action::NoteAway(client));
        }
        if state.is_to_be_taken(client) {
            actions.push(Action::Take(client));
        }
    }

    fn has_its_turn(&self, state: &State, call: Call) -> bool {
        let client = self.client_of(call);
        let its = &state.clients[client];
        let serves = !state.recovering || state.told_again && !self.keeps(Rule::BehindBeforeRequests);
        let is_back = !state.is_just_back(client) || !self.keeps(Rule::BackDurably);
        let is_noted = state.session(client).away || state.is_to_be_taken(client);
        let is_here = !is_noted || !self.keeps(Rule::AwayRunsNothing);
        let fifo = &its.fifos[self.user_of(call)];
        let mut before = fifo.iter().take_while(|other| **other != call);
        let holds = |other: &Call| {
            let holds = self.op(*other).kind.is_change() || !self.keeps(Rule::ReadsHoldNothing);
            holds && state.stage(*other).is_sent()
        };
        let waits = fifo.contains(&call) && self.keeps(Rule::Fifo) && before.any(holds);
        its.connected && serves && is_back && is_here && !waits && state.stage(call).is_sent()
    }

    /// Who must give back what, before a call runs.
    fn conflicts(&self, state: &State, call: Call) -> Vec<(usize, usize)> {
        let is_over = matches!(state.stage(call), Stage::Behind { .. })
            || state.made_by(call).is_some()
            || self.op(call).kind == Kind::Sync
            || !self.keeps(Rule::RecallFirst);
        if is_over {
            return Vec::new();
        }
        let op = self.op(call);
        let others = (0..self.clients).filter(|other| *other != self.client_of(call));
        let conflicts = |other: usize, inode: usize| match state.leases[other][inode] {
            Lease::None => false,
            Lease::R => op.kind.is_change(),
            Lease::W => true,
        };
        let all = others.flat_map(|other| places(op.inodes).map(move |inode| (other, inode)));
        let mut conflicts: Vec<_> = all.filter(|(other, inode)| conflicts(*other, *inode)).collect();
        if op.kind == Kind::Names && self.is_near(state, 1) && self.keeps(Rule::NearRecallsAll) {
            let spares = |other| other == self.client_of(call) && !self.keeps(Rule::NearRecallsOwn);
            conflicts.extend(self.all_alone(state).filter(|(other, _)| !spares(*other)));
            conflicts.sort_unstable();
            conflicts.dedup();
        }
        conflicts
    }

    /// Who has W, and on what.
    fn all_alone(&self, state: &State) -> impl Iterator<Item = (usize, usize)> {
        let all = (0..self.clients).flat_map(|client| (0..INODES).map(move |inode| (client, inode)));
        all.filter(|(client, inode)| state.leases[*client][*inode] == Lease::W)
    }

    fn has_taken(&self, state: &State) -> u8 {
        let is_names = |made: &&Made| made.client < self.clients && self.op(made.call).kind == Kind::Names;
        state.made().filter(is_names).fold(0, |count, _| count + 1)
    }

    /// Whether so many more changes of names would leave no more room than what may be predicted.
    fn is_near(&self, state: &State, more: u8) -> bool {
        self.room.is_some_and(|room| self.has_taken(state) + more + room.margin > room.limit)
    }

    fn is_full(&self, state: &State, call: Call) -> bool {
        let is_full = |room: Room| self.has_taken(state) >= room.limit;
        self.op(call).kind == Kind::Names && self.room.is_some_and(is_full)
    }

    /// Whether a change of names builds on another client's that is not durable. An fsync waits,
    /// too.
    fn waits_for_commit(&self, state: &State, call: Call) -> bool {
        let op = self.op(call);
        if op.kind == Kind::Sync {
            return !state.history.is_empty();
        }
        op.kind == Kind::Names
            && state.made_by(call).is_none()
            && matches!(state.stage(call), Stage::Sent { .. })
            && places(op.inodes).any(|inode| self.is_shared(state, self.client_of(call), inode))
    }

    pub(crate) fn somebody_waits_for_commit(&self, state: &State) -> bool {
        let waits = |call: Call| self.has_its_turn(state, call) && self.waits_for_commit(state, call);
        let is_back = |client| state.is_just_back(client) || state.session(client).away;
        state.recovering || (0..self.clients).any(|n| is_back(n) || self.calls(n).any(waits))
    }

    /// Whether another client has changed an inode, and that is not durable.
    fn is_shared(&self, state: &State, client: usize, inode: usize) -> bool {
        state.history.iter().any(|record| match record {
            Record::Made(made) => made.client != client && made.numbers[inode] > 0,
            _ => false,
        })
    }

    pub(crate) fn serve(&self, state: &mut State, call: Call) {
        let known = state.made_by(call).filter(|_| self.keeps(Rule::Once)).copied();
        let next = match (state.stage(call), known) {
            (Stage::Behind { numbers, term }, Some(made)) => {
                Stage::BehindRan { numbers, term, lsn: Some(made.lsn) }
            }
            (Stage::Behind { numbers, term }, None) => {
                let lsn = self.may_run_behind(state, call, term).then(|| self.run(state, call, numbers));
                if lsn.is_some() && self.keeps(Rule::MadeIsAlone) {
                    self.grant(state, call, self.op(call).makes, Lease::W);
                }
                Stage::BehindRan { numbers, term, lsn }
            }
            (Stage::Sent { floor, void }, Some(made)) => {
                Stage::Ran { floor, void, numbers: made.numbers, lsn: made.lsn, granted: 0 }
            }
            (Stage::Sent { floor, void }, None) if self.op(call).kind.is_change() => {
                self.change(state, call, floor, void)
            }
            (Stage::Sent { floor, void }, None) if self.op(call).kind == Kind::Sync => {
                Stage::Ran { floor, void, numbers: Numbers::default(), lsn: 0, granted: 0 }
            }
            (Stage::Sent { floor, void }, None) => self.read(state, call, floor, void),
            (other, _) => other,
        };
        *state.stage_mut(call) = next;
    }

    fn may_run_behind(&self, state: &State, call: Call, term: u8) -> bool {
        let client = self.client_of(call);
        let op = self.op(call);
        let is_alone = places(op.inodes & !op.makes).all(|inode| state.leases[client][inode] == Lease::W);
        let is_of_now = term >= state.session(client).term || !self.keeps(Rule::SameTerm);
        (is_alone || !self.keeps(Rule::AloneOrRefused)) && is_of_now
    }

    /// Makes a change with these numbers.
    pub(crate) fn run(&self, state: &mut State, call: Call, numbers: Numbers) -> u8 {
        let client = self.client_of(call);
        for inode in places(self.op(call).inodes) {
            let is_newer = |made: &&Made| made.client != client && made.numbers[inode] >= numbers[inode];
            let overwrites = state.made().any(|made| is_newer(&made));
            state.overwrote |= overwrites;
            state.surprised |= self.is_surprise(state, call, inode, numbers[inode]);
        }
        state.surprised |= self.is_full(state, call);
        state.last_lsn += 1;
        let lsn = state.last_lsn;
        state.history.push(Record::Made(Made { call, client, numbers, lsn }));
        if self.is_near(state, 0) && self.keeps(Rule::NearAsks) {
            let asked: Vec<_> = self.all_alone(state).collect();
            asked.into_iter().for_each(|(client, inode)| state.asked[client] |= 1 << inode);
        }
        lsn
    }

    /// A change of names needs what it builds on. One of attributes may come after a gap, where a
    /// crash took a change that nobody was told of, or that of a closed session.
    pub(crate) fn is_surprise(&self, state: &State, call: Call, inode: usize, number: u8) -> bool {
        let value = state.value(inode);
        match self.op(call).kind {
            Kind::Names => value + 1 != number || self.builds_on_lost(state, inode, number),
            _ => value >= number,
        }
    }

    /// Whether names were changed before that number by a client with which that is lost.
    fn builds_on_lost(&self, state: &State, inode: usize, number: u8) -> bool {
        let is_lost = |call: Call| match state.stage(call) {
            Stage::Told { numbers, .. } => {
                let is_before = (1..number).contains(&numbers[inode]);
                self.op(call).kind == Kind::Names && is_before && state.made_by(call).is_none()
            }
            _ => false,
        };
        let mut closed = (0..self.clients).filter(|client| state.sessions[*client].closed);
        closed.any(|client| self.calls(client).any(is_lost))
    }

    fn change(&self, state: &mut State, call: Call, floor: Numbers, void: bool) -> Stage {
        let client = self.client_of(call);
        let op = self.op(call);
        let is_there = |inode: usize| (state.value(inode) > 0) != (op.makes >> inode & 1 == 1);
        if !places(op.inodes).all(is_there) || self.is_full(state, call) {
            return Stage::Ran { floor, void, numbers: Numbers::default(), lsn: 0, granted: 0 };
        }
        let mut numbers = Numbers::default();
        places(op.inodes).for_each(|inode| numbers[inode] = state.value(inode) + 1);
        let lsn = self.run(state, call, numbers);
        for inode in places(op.inodes) {
            state.latest[inode] = state.latest[inode].max(numbers[inode]);
        }
        let may = |inode: &usize| {
            let is_shared = self.is_shared(state, client, *inode) && self.keeps(Rule::GrantOnCommitted);
            let has_room = !self.is_near(state, 0) || !self.keeps(Rule::GrantWithRoom);
            !is_shared && has_room && self.may_grant(state, *inode)
        };
        let granted = places(op.inodes).filter(may).fold(0, |bits, inode| bits | 1 << inode);
        self.grant(state, call, granted, Lease::W);
        Stage::Ran { floor, void, numbers, lsn, granted }
    }

    fn read(&self, state: &mut State, call: Call, floor: Numbers, void: bool) -> Stage {
        let mut numbers = Numbers::default();
        let mut granted = 0;
        for inode in places(self.op(call).inodes) {
            numbers[inode] = state.value(inode);
            state.stale |= numbers[inode] < floor[inode];
            if numbers[inode] > 0 && self.may_grant(state, inode) {
                granted |= 1 << inode;
            }
        }
        self.grant(state, call, granted, Lease::R);
        Stage::Ran { floor, void, numbers, lsn: 0, granted }
    }

    /// While somebody waits for an inode nothing is granted on it.
    fn may_grant(&self, state: &State, inode: usize) -> bool {
        let is_asked = state.asked.iter().any(|asked| asked >> inode & 1 == 1);
        !is_asked || !self.keeps(Rule::NoneWhileAsked)
    }

    fn grant(&self, state: &mut State, call: Call, inodes: u8, lease: Lease) {
        let its = &mut state.leases[self.client_of(call)];
        places(inodes).for_each(|inode| its[inode] = its[inode].max(lease));
    }

    pub(crate) fn note_away(&self, state: &mut State, client: usize) {
        state.history.push(Record::Away(client));
        if !self.keeps(Rule::AwayBeforeTaken) {
            self.take(state, client);
        }
    }

    /// All leases of a session are taken, and what it predicted and the server has not run is lost.
    pub(crate) fn take(&self, state: &mut State, client: usize) {
        state.leases[client] = Default::default();
        state.asked[client] = 0;
        state.taken[client] = state.session(client).term;
        self.end_connection(state, client);
        for call in self.calls(client) {
            if state.stage(call).is_behind() && state.made_by(call).is_none() {
                places(self.op(call).inodes).for_each(|inode| state.lower(inode));
            }
        }
    }

    /// What is under way on a connection is lost with it.
    pub(crate) fn end_connection(&self, state: &mut State, client: usize) {
        for call in self.calls(client) {
            let stage = state.stage_mut(call);
            *stage = match *stage {
                Stage::Ran { floor, void, .. } => Stage::Sent { floor, void },
                Stage::BehindRan { numbers, term, .. } => Stage::Behind { numbers, term },
                other => other,
            };
        }
        let its = &mut state.clients[client];
        (its.connected, its.giving, its.sharing) = (false, 0, Default::default());
        if !self.keeps(Rule::SentAgainInOrder) {
            its.fifos.iter_mut().for_each(|fifo| fifo.reverse());
        }
    }
}

impl State {
    /// It is durable that a session is or was away, and it has its leases.
    fn is_to_be_taken(&self, client: usize) -> bool {
        self.taken[client] < self.sessions[client].term && !self.recovering
    }

    pub(crate) fn give_back(&mut self, client: usize, inode: usize) {
        self.leases[client][inode] = Lease::None;
        self.asked[client] &= !(1 << inode);
        self.clients[client].giving &= !(1 << inode);
    }

    pub(crate) fn hear_shared(&mut self, client: usize, inode: usize) {
        let lease = &mut self.leases[client][inode];
        *lease = (*lease).min(Lease::R);
        self.clients[client].sharing[inode] = Some(true);
    }

    /// Programs know no more of an inode than the server: what was predicted is lost.
    pub(crate) fn lower(&mut self, inode: usize) {
        let value = self.value(inode);
        self.latest[inode] = self.latest[inode].min(value);
        for stage in self.stages.iter_mut().flatten() {
            if let Stage::Sent { floor, .. } | Stage::Ran { floor, .. } = stage {
                floor[inode] = floor[inode].min(value);
            }
        }
    }
}
