//! A client's side.

use super::state::{INODES, places};
use super::{Action, Behind, Call, Client, Kind, Numbers, Record, Rule, Stage, State};

impl Client {
    fn drop_all(&mut self) {
        self.copies = Default::default();
        self.alone = 0;
    }

    fn drop_copies(&mut self, inodes: u8) {
        places(inodes).for_each(|inode| self.copies[inode] = None);
    }

    pub(crate) fn has_copies(&self, inodes: u8) -> bool {
        places(inodes).all(|inode| self.copies[inode].is_some())
    }

    fn was_answered(&mut self, call: Call) {
        self.fifos.iter_mut().for_each(|fifo| fifo.retain(|other| *other != call));
    }
}

impl Behind {
    /// Whether a client may use its leases now.
    pub(crate) fn is_in_time(&self, state: &State, client: usize) -> bool {
        let its = &state.clients[client];
        let is_renewed = its.connected && !its.silent && its.term == state.sessions[client].term;
        let counts = is_renewed || !self.keeps(Rule::InTime);
        counts && !its.expelled && (!state.is_just_back(client) || !self.keeps(Rule::BackDurably))
    }

    pub(crate) fn client_actions(&self, state: &State, client: usize, actions: &mut Vec<Action>) {
        let its = &state.clients[client];
        if its.expelled {
            return;
        }
        for call in self.calls(client).filter(|call| is_next(state, *call)) {
            self.ways_to_begin(state, call, actions);
        }
        if its.silent {
            return;
        }
        if !its.connected {
            actions.push(Action::Connect(client));
            return;
        }
        let comes = |call: &Call| self.comes_next(state, *call);
        actions.extend(self.calls(client).filter(comes).map(Action::Receive));
        actions
            .extend(places(state.asked[client] & !its.giving).map(|inode| Action::HearRecall(client, inode)));
        let is_answered = |inode: usize| {
            let is_on = |call: Call| self.op(call).inodes >> inode & 1 == 1 && state.stage(call).is_behind();
            !self.calls(client).any(is_on)
        };
        let given = places(its.giving).filter(|inode| is_answered(*inode) || !self.keeps(Rule::AnswersFirst));
        actions.extend(given.map(|inode| Action::GiveBack(client, inode)));
        for inode in 0..INODES {
            match its.sharing[inode] {
                Some(false) => actions.push(Action::HearShared(client, inode)),
                Some(true) => actions.push(Action::Shared(client, inode)),
                None => {
                    let may = is_answered(inode) || !self.keeps(Rule::ShareAfterAnswers);
                    if its.alone >> inode & 1 == 1 && may && state.shares < self.shares {
                        actions.push(Action::Share(client, inode));
                    }
                }
            }
        }
    }

    fn ways_to_begin(&self, state: &State, call: Call, actions: &mut Vec<Action>) {
        let client = &state.clients[self.client_of(call)];
        let op = self.op(call);
        let in_time = self.is_in_time(state, self.client_of(call));
        if op.kind == Kind::Read && in_time && client.has_copies(op.inodes) {
            actions.push(Action::UseCopy(call));
            return;
        }
        if self.waits_for_other_user(state, call) {
            return;
        }
        if in_time && self.may_predict(state, call) {
            actions.push(Action::Predict(call));
            if self.brisk {
                return;
            }
        }
        if client.connected && !client.silent && !self.waits_for_own_user(state, call) {
            actions.push(Action::Send(call));
        }
    }

    /// Calls of the same client on the same inodes.
    fn touching(&self, call: Call) -> impl Iterator<Item = Call> {
        let touches =
            move |other: &Call| self.op(*other).inodes & self.op(call).inodes != 0 && *other != call;
        self.calls(self.client_of(call)).filter(touches)
    }

    /// Whether predicted changes of another user must be answered first.
    fn waits_for_other_user(&self, state: &State, call: Call) -> bool {
        let is_others = |other: &Call| self.user_of(*other) != self.user_of(call);
        let mut others = self.touching(call).filter(is_others);
        self.keeps(Rule::OtherUserWaits) && others.any(|other| state.stage(other).is_behind())
    }

    /// Whether those of its own user must be.
    fn waits_for_own_user(&self, state: &State, call: Call) -> bool {
        let is_own = |other: &Call| self.user_of(*other) == self.user_of(call);
        let mut own = self.touching(call).filter(is_own);
        let waits = self.op(call).kind.is_change() && self.keeps(Rule::ChangesWait);
        waits && own.any(|other| state.stage(other).is_behind())
    }

    fn may_predict(&self, state: &State, call: Call) -> bool {
        let client = &state.clients[self.client_of(call)];
        let op = self.op(call);
        let known = op.inodes & !op.makes;
        let is_changed = |other: Call| self.op(other).kind.is_change() && state.stage(other).is_asked();
        let mut in_order = client.fifos[self.user_of(call)].iter();
        let after_in_order = in_order.any(|other| is_changed(*other));
        let mut unanswered = self.calls(self.client_of(call)).filter(|call| state.stage(*call).is_behind());
        let bound = self.room.filter(|_| self.keeps(Rule::Bounded)).map_or(usize::MAX, |room| room.bound);
        op.kind.is_change()
            && client.alone & known == known
            && client.has_copies(known)
            && unanswered.nth(bound - 1).is_none()
            && places(op.makes).all(|inode| state.latest[inode] == 0)
            && !(after_in_order && self.keeps(Rule::NothingAfterInOrder))
    }

    pub(crate) fn predict(&self, state: &mut State, call: Call) {
        let op = self.op(call);
        let mut numbers = Numbers::default();
        for inode in places(op.inodes) {
            state.latest[inode] += 1;
            numbers[inode] = state.latest[inode];
        }
        for other in self.touching(call) {
            if !self.op(other).kind.is_change() && self.keeps(Rule::PredictionVoidsReads) {
                state.stage_mut(other).make_void();
            }
        }
        let client = &mut state.clients[self.client_of(call)];
        places(op.inodes).for_each(|inode| client.copies[inode] = Some(numbers[inode]));
        client.alone |= op.makes;
        client.fifos[self.user_of(call)].push(call);
        let term = client.term;
        *state.stage_mut(call) = Stage::Behind { numbers, term };
    }

    pub(crate) fn send(&self, state: &mut State, call: Call) {
        let op = self.op(call);
        let is_own = |other: &Call| self.user_of(*other) == self.user_of(call);
        let is_behind = |other: Call| state.stage(other).is_behind();
        let in_order = self.touching(call).filter(is_own).any(is_behind);
        let sharing = &state.clients[self.client_of(call)].sharing;
        let shares = places(op.inodes).any(|inode| sharing[inode].is_some());
        let mut void = shares && self.keeps(Rule::ShareVoids);
        for other in self.touching(call) {
            let is_change = self.op(other).kind.is_change() && state.stage(other).is_asked();
            void |= is_change && self.keeps(Rule::OwnChangeVoids);
        }
        if op.kind.is_change() && self.keeps(Rule::OwnChangeVoids) {
            state.clients[self.client_of(call)].drop_copies(op.inodes);
            self.touching(call).for_each(|other| state.stage_mut(other).make_void());
        }
        let client = &mut state.clients[self.client_of(call)];
        if in_order && (op.kind.is_change() || self.keeps(Rule::ReadsInOrder)) {
            client.fifos[self.user_of(call)].push(call);
        }
        *state.stage_mut(call) = Stage::Sent { floor: state.latest, void };
    }

    /// Answers of changes come in the order in which those ran.
    fn comes_next(&self, state: &State, call: Call) -> bool {
        let (Stage::Ran { lsn, .. } | Stage::BehindRan { lsn: Some(lsn), .. }) = state.stage(call) else {
            return matches!(state.stage(call), Stage::BehindRan { .. }) && self.is_first(state, call);
        };
        let asked = state.asked[self.client_of(call)] & !state.clients[self.client_of(call)].giving;
        if self.room.is_some() && self.keeps(Rule::RecallBeforeAnswers) && asked != 0 {
            return false;
        }
        if self.op(call).kind == Kind::Sync && self.keeps(Rule::SyncAnsweredInOrder) {
            return self.all_before_are_answered(state, call);
        }
        let is_before = |other: Call| match state.stage(other) {
            Stage::Ran { lsn: its, .. } | Stage::BehindRan { lsn: Some(its), .. } => its > 0 && its < lsn,
            _ => false,
        };
        !self.calls(self.client_of(call)).any(is_before)
    }

    /// Whether no change before it in its FIFO has an answer under way.
    fn is_first(&self, state: &State, call: Call) -> bool {
        let fifo = &state.clients[self.client_of(call)].fifos[self.user_of(call)];
        let before = fifo.iter().take_while(|other| **other != call);
        before.copied().all(|other| !self.op(other).kind.is_change() || state.stage(other).is_sent())
    }

    fn all_before_are_answered(&self, state: &State, call: Call) -> bool {
        let fifo = &state.clients[self.client_of(call)].fifos[self.user_of(call)];
        let mut before = fifo.iter().take_while(|other| **other != call);
        !fifo.contains(&call) || before.all(|other| !self.op(*other).kind.is_change())
    }

    /// EIO if a change was lost. Else all must be durable that was predicted before.
    fn synced(&self, state: &mut State, call: Call) -> Stage {
        if self.touching(call).any(|other| state.stage(other) == Stage::Lost) {
            return Stage::Refused;
        }
        state.lied |= !self.all_before_are_answered(state, call)
            || self.touching(call).any(|other| {
                let is_told = matches!(state.stage(other), Stage::Told { .. });
                is_told && !state.durable.iter().any(|made| made.call == other)
            });
        Stage::Read
    }

    pub(crate) fn receive(&self, state: &mut State, call: Call) {
        let number = self.client_of(call);
        let op = self.op(call);
        let synced = (op.kind == Kind::Sync).then(|| self.synced(state, call));
        state.clients[number].was_answered(call);
        let next = match state.stage(call) {
            Stage::Ran { void, numbers, granted, .. } => {
                if op.kind.is_change() && self.keeps(Rule::OwnChangeVoids) {
                    self.touching(call).for_each(|other| state.stage_mut(other).make_void());
                }
                let client = &mut state.clients[number];
                let kept = if void { 0 } else { granted };
                places(kept).for_each(|inode| client.copies[inode] = Some(numbers[inode]));
                match state.made_by(call) {
                    _ if !op.kind.is_change() => Stage::Read,
                    Some(made) => {
                        let lsn = made.lsn;
                        state.clients[number].alone |= kept;
                        Stage::Told { numbers, lsn }
                    }
                    None => Stage::Refused,
                }
            }
            Stage::BehindRan { numbers, lsn: Some(_), .. } => {
                Stage::Told { numbers, lsn: state.made_by(call).map_or(0, |made| made.lsn) }
            }
            Stage::BehindRan { term, .. } => {
                state.harmed |= term == state.session(number).term;
                state.clients[number].drop_copies(op.inodes);
                state.clients[number].alone &= !op.inodes;
                Stage::Lost
            }
            other => other,
        };
        *state.stage_mut(call) = synced.unwrap_or(next);
    }

    pub(crate) fn hear_recall(&self, state: &mut State, client: usize, inode: usize) {
        let its = &mut state.clients[client];
        its.giving |= 1 << inode;
        its.alone &= !(1 << inode);
        its.copies[inode] = None;
        if self.keeps(Rule::RecallVoids) {
            self.void(state, client, inode);
        }
    }

    /// Nothing is kept of what is under way.
    fn void(&self, state: &mut State, client: usize, inode: usize) {
        for call in self.calls(client).filter(|call| self.op(*call).inodes >> inode & 1 == 1) {
            state.stage_mut(call).make_void();
        }
    }

    /// W becomes R.
    pub(crate) fn share(&self, state: &mut State, client: usize, inode: usize) {
        state.shares += 1;
        state.clients[client].alone &= !(1 << inode);
        state.clients[client].sharing[inode] = Some(false);
        if self.keeps(Rule::ShareVoids) {
            self.void(state, client, inode);
        }
    }

    pub(crate) fn connect(&self, state: &mut State, client: usize) {
        let session = state.session(client);
        if session.closed {
            self.give_all_up(state, client);
            return;
        }
        if session.away {
            state.history.push(Record::Back(client));
        }
        let its = &mut state.clients[client];
        if !its.is_known && self.keeps(Rule::NewProcessVoids)
            || its.term != session.term && self.keeps(Rule::TakenVoids)
        {
            its.drop_all();
        }
        (its.connected, its.is_known, its.term) = (true, true, session.term);
        (state.caught_up[client], state.listed[client]) = (true, true);
    }

    /// The session is closed: programs are told EIO for all that is not known to be done.
    fn give_all_up(&self, state: &mut State, client: usize) {
        for call in self.calls(client) {
            let stage = state.stage_mut(call);
            if *stage == Stage::Todo || stage.is_sent() {
                *stage = Stage::Lost;
            }
        }
        let its = &mut state.clients[client];
        its.drop_all();
        its.fifos = Default::default();
        its.expelled = true;
    }
}

/// Whether the program has come to this call.
fn is_next(state: &State, call: Call) -> bool {
    let is_answered = |stage: &Stage| !matches!(stage, Stage::Todo | Stage::Sent { .. } | Stage::Ran { .. });
    state.stage(call) == Stage::Todo && state.stages[call.program][..call.op].iter().all(is_answered)
}

impl State {
    pub(crate) fn wake(&mut self, client: usize) {
        self.clients[client].silent = false;
        if self.clients[client].connected && self.session(client).away {
            self.history.push(Record::Back(client));
        }
    }
}
