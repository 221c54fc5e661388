//! The daemon of the client, and its kernel.

use super::{Action, Clocks, Copy, Flush, FlushAt, Keepalive, KeepaliveAt, Recall, Right, Rule, State};

const KEEPALIVES_UNDER_WAY_MAX: usize = 2;

impl Clocks {
    /// Whether the daemon may use its lease now.
    pub(crate) fn is_in_time(&self, state: &State) -> bool {
        state.age < self.client_limit
    }

    pub(crate) fn client_actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.keepalives.len() < KEEPALIVES_UNDER_WAY_MAX {
            actions.push(Action::SendKeepalive);
        }
        for (n, keepalive) in state.keepalives.iter().enumerate() {
            if keepalive.at != KeepaliveAt::Up {
                actions.push(Action::ReceiveKeepalive(n));
            }
        }
        if state.recall == Some(Recall::Down) {
            actions.push(Action::ReceiveRecall);
        }
        match state.flush {
            None if state.dirty => actions.push(Action::SendFlush),
            Some(flush) if flush.at != FlushAt::Up => actions.push(Action::ReceiveFlush),
            _ => {}
        }
        if self.is_in_time(state) {
            self.uses_of_lease(state, actions);
        }
        if state.recovering {
            actions.push(Action::Tell);
        }
        if state.prepared.is_some() {
            actions.push(Action::HandToKernel);
        }
    }

    fn uses_of_lease(&self, state: &State, actions: &mut Vec<Action>) {
        let free = !state.recovering
            && state.known_term == state.term
            && state.wait.is_none()
            && !state.dirty
            && state.flush.is_none();
        if free && state.lease.is_none() {
            actions.push(Action::Acquire(Right::R));
        }
        if free && state.lease != Some(Right::W) && state.own_writes < self.own_writes {
            actions.push(Action::Acquire(Right::W));
        }
        if state.lease == Some(Right::W) && state.recall.is_none() && state.own_writes < self.own_writes {
            actions.push(Action::Write);
        }
        if state.lease.is_some() && state.prepared.is_none() {
            actions.push(Action::PrepareKernel);
        }
    }

    pub(crate) fn client_step(&self, state: &mut State, action: Action) {
        match action {
            Action::SendKeepalive => {
                state.keepalives.push(Keepalive { age: 0, term: state.known_term, at: KeepaliveAt::Up });
            }
            Action::ReceiveKeepalive(n) => self.receive_keepalive(state, n),
            Action::Acquire(right) => state.acquire(right),
            Action::Write => state.write(),
            Action::PrepareKernel => self.prepare(state),
            Action::HandToKernel => state.kernel = state.prepared.take(),
            Action::SendFlush => state.send_flush(),
            Action::ReceiveFlush => self.receive_flush(state),
            Action::ReceiveRecall => self.receive_recall(state),
            Action::Tell => self.tell(state),
            _ => {}
        }
    }

    fn receive_keepalive(&self, state: &mut State, n: usize) {
        let youngest = state.keepalives.iter().map(|keepalive| keepalive.age).min().unwrap_or(0);
        let keepalive = state.keepalives.remove(n);
        if keepalive.at == KeepaliveAt::Taken {
            if keepalive.term > state.known_term && self.keeps(Rule::DropWhenTold) {
                state.drop_copies();
            }
            state.known_term = state.known_term.max(keepalive.term);
            return;
        }
        let age = match () {
            () if !self.keeps(Rule::TimeBeginsAtSending) => 0,
            () if !self.keeps(Rule::AnswerNamesItsKeepalive) => youngest,
            () => keepalive.age,
        };
        state.age = state.age.min(age);
    }

    fn prepare(&self, state: &mut State) {
        let left = match self.keeps(Rule::TimeoutIsWhatIsLeft) {
            true => self.client_limit - state.age,
            false => self.client_limit,
        };
        let copy = Copy { value: state.copy, left };
        if self.keeps(Rule::HandOverAtOnce) {
            state.kernel = Some(copy);
        } else {
            state.prepared = Some(copy);
        }
    }

    fn receive_recall(&self, state: &mut State) {
        if state.dirty || state.flush.is_some() {
            state.recall = Some(Recall::Flushing);
            if state.flush.is_none() {
                state.send_flush();
            }
        } else {
            self.answer_recall(state);
        }
    }

    fn answer_recall(&self, state: &mut State) {
        state.recall = Some(Recall::Up);
        state.lease = None;
        if self.keeps(Rule::KernelFirst) {
            state.drop_copies();
        }
    }

    /// What a daemon has is what the new server goes by: W, or else R on everything.
    fn tell(&self, state: &mut State) {
        if !self.is_in_time(state) && self.keeps(Rule::LateForNewServerDrops) {
            state.drop_copies();
        }
        let at_least = self.keeps(Rule::KnownSessionHasR).then_some(Right::R);
        let w = state.lease.filter(|right| *right == Right::W);
        state.silence = 0;
        state.end_recovery(w.or(at_least));
    }

    fn receive_flush(&self, state: &mut State) {
        let Some(flush) = state.flush.take() else { return };
        if flush.at == FlushAt::Refused {
            state.told = true;
            state.dirty = false;
            state.drop_copies();
        }
        state.dirty &= state.copy != flush.value;
        if state.recall == Some(Recall::Flushing) {
            match state.dirty {
                true => state.send_flush(),
                false => self.answer_recall(state),
            }
        }
    }

    pub(crate) fn tick_machine(&self, state: &mut State) {
        state.age = (state.age + 1).min(self.client_limit);
        for keepalive in &mut state.keepalives {
            keepalive.age = (keepalive.age + 1).min(self.client_limit);
        }
        if let Some(copy) = &mut state.kernel {
            copy.left -= 1;
        }
        state.kernel = state.kernel.filter(|copy| copy.left > 0);
    }
}

impl State {
    fn acquire(&mut self, right: Right) {
        self.granted = Some(right);
        self.lease = Some(right);
        self.copy = self.value;
        self.copy_version = self.version;
    }

    /// The kernel's copy, if it has one, takes part in its own program's write.
    fn write(&mut self) {
        self.own_writes += 1;
        self.copy = self.next_write();
        self.latest = self.copy;
        self.dirty = true;
        self.prepared = None;
        if let Some(kernel) = &mut self.kernel {
            kernel.value = self.copy;
        }
    }

    fn send_flush(&mut self) {
        self.flush = Some(Flush { value: self.copy, version: self.copy_version, at: FlushAt::Up });
    }

    pub(crate) fn drop_copies(&mut self) {
        self.lease = None;
        self.kernel = None;
        self.prepared = None;
    }
}
