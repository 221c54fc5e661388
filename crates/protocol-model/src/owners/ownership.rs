//! What a server does about who owns a shard: mark, take over, open, move.

use super::{Action, Entry, Owners, Put, PutAt, Rule, Run, Shard, Stage, State, What};

impl Owners {
    pub(crate) fn ownership_actions(&self, state: &State, server: usize, actions: &mut Vec<Action>) {
        let may_swap = self.may_swap(state, server);
        if may_swap {
            let others = (0..self.faulty).filter(|other| *other != server);
            let suspects =
                others.filter(|other| !state.records[*other].marked && self.may_mark(state, *other));
            actions.extend(suspects.map(|other| Action::Mark(server, other)));
        }
        for shard in 0..self.shards {
            self.opening_actions(state, server, shard, may_swap, actions);
            self.moving_actions(state, server, shard, may_swap, actions);
        }
    }

    /// A server sends one swap at a time, and none when its time is over: two that are marked and
    /// do not know it would take a shard from each other for ever.
    fn may_swap(&self, state: &State, server: usize) -> bool {
        let is_in_time = self.is_in_time(state, server) || !self.keeps(Rule::SwapInTime);
        is_in_time && !state.is_swapping(server)
    }

    /// Without clocks, whether it lives is known, but for some false suspicions.
    fn may_mark(&self, state: &State, other: usize) -> bool {
        match self.times {
            Some(times) => state.records[other].quiet >= times.mark,
            None => !state.runs(other) || state.counts.suspicions < self.limits.suspicions,
        }
    }

    fn opening_actions(
        &self,
        state: &State,
        server: usize,
        shard: usize,
        may_swap: bool,
        actions: &mut Vec<Action>,
    ) {
        let Entry { owner, epoch } = state.map.shards[shard];
        let its = &state.servers[server].shards[shard];
        if owner != server {
            let may_take = state.records[owner].marked
                || !self.keeps(Rule::MarkBeforeTake) && owner < self.faulty && self.may_mark(state, owner);
            if may_take && may_swap {
                actions.push(Action::Take(server, shard));
            }
        } else if its.stage == Stage::Idle && epoch > its.epoch {
            actions.push(Action::Open(server, shard));
        } else if its.stage == Stage::Idle && self.opens_again() && may_swap {
            let again = if self.keeps(Rule::EpochOpenedOnce) { Action::SwapAgain } else { Action::Open };
            actions.push(again(server, shard));
        }
        match its.stage {
            Stage::Opening => actions.push(Action::Fence(server, shard)),
            Stage::Recovering if self.may_end_recovery(state, its, shard) => {
                actions.push(Action::EndRecovery(server, shard));
            }
            _ => {}
        }
    }

    /// In one mutant a server looks at the map only when it hears that it won.
    fn opens_again(&self) -> bool {
        self.keeps(Rule::OpenAgain) && self.keeps(Rule::MapIsTruth)
    }

    fn may_end_recovery(&self, state: &State, its: &Shard, shard: usize) -> bool {
        let is_over = self.times.is_some_and(|times| its.waited >= times.sessions);
        let missing = self.missing(state, its, shard);
        if !self.are_marked_silent(state) {
            return false;
        }
        is_over
            || !self.keeps(Rule::WaitForSessions)
            || missing.iter().all(|client| self.times.is_none() && state.clients[*client].silent)
    }

    /// Whether the time of all servers that are marked is over.
    pub(crate) fn are_marked_silent(&self, state: &State) -> bool {
        let mut marked = state.records.iter().filter(|record| record.marked);
        self.times.is_none_or(|times| marked.all(|record| record.quiet >= times.answer))
    }

    /// The sessions that are known and did not come.
    fn missing(&self, state: &State, its: &Shard, shard: usize) -> Vec<usize> {
        let sessions = self.sessions(shard);
        let is_missing = |client: &usize| sessions & !its.came & (1 << client) != 0;
        (0..self.clients.len()).filter(is_missing).filter(|client| !state.clients[*client].closed).collect()
    }

    fn moving_actions(
        &self,
        state: &State,
        server: usize,
        shard: usize,
        may_swap: bool,
        actions: &mut Vec<Action>,
    ) {
        let its = &state.servers[server].shards[shard];
        let is_committed = its.has == its.saved && state.commit_of(server, shard).is_none();
        match its.stage {
            Stage::Ready if state.counts.moves < self.limits.moves => {
                actions.push(Action::Drain(server, shard));
            }
            Stage::Draining if may_swap && (is_committed || !self.keeps(Rule::CommitBeforeMove)) => {
                let others = (0..self.servers).filter(|other| *other != server);
                let is_owner = state.map.shards[shard].owner == server;
                actions
                    .extend(others.filter(|_| is_owner).map(|other| Action::HandOver(server, shard, other)));
            }
            Stage::Handing if may_swap && state.map.shards[shard].owner == server => {
                actions.push(Action::Resume(server, shard));
            }
            _ => {}
        }
    }

    pub(crate) fn ownership_step(&self, state: &mut State, action: Action) {
        match action {
            Action::Mark(server, target) => {
                if self.times.is_none() && state.servers[target].run == Run::Runs {
                    state.counts.suspicions += 1;
                }
                send(state, server, What::Mark { target });
            }
            Action::Take(server, shard) | Action::SwapAgain(server, shard) => {
                send_swap(state, server, shard, server);
            }
            Action::Open(server, shard) => self.open(state, server, shard),
            Action::Fence(server, shard) => self.fence(state, server, shard),
            Action::EndRecovery(server, shard) => self.end_recovery(state, server, shard),
            Action::Drain(server, shard) => {
                state.servers[server].shards[shard].stage = Stage::Draining;
                state.counts.moves += 1;
            }
            Action::HandOver(server, shard, to) => self.hand_over(state, server, shard, to),
            Action::Resume(server, shard) => state.servers[server].shards[shard].stage = Stage::Ready,
            _ => {}
        }
    }

    fn open(&self, state: &mut State, server: usize, shard: usize) {
        let waited = match self.times {
            Some(times) if !self.keeps(Rule::WaitFromTakeOver) => times.sessions,
            _ => 0,
        };
        // in a mutant the log is read here
        let has = if self.keeps(Rule::ReadAfterFence) { 0 } else { state.logs[shard].writes };
        let epoch = state.map.shards[shard].epoch;
        state.servers[server].shards[shard] =
            Shard { stage: Stage::Opening, epoch, waited, has, ..Shard::default() };
    }

    fn fence(&self, state: &mut State, server: usize, shard: usize) {
        let its = &mut state.servers[server].shards[shard];
        let log = &mut state.logs[shard];
        log.opener = its.epoch;
        if self.keeps(Rule::Fence) {
            let is_before = |what| matches!(what, What::Commit { shard: its, .. } if its == shard);
            let before = state.puts.iter_mut().filter(|put| put.at == PutAt::Up && is_before(put.what));
            before.for_each(|put| put.at = PutAt::Void);
        }
        if log.epoch > its.epoch && self.keeps(Rule::LaterEpochWins) {
            state.close_shard(server, shard);
            return;
        }
        its.has = if self.keeps(Rule::ReadAfterFence) { log.writes } else { its.has };
        its.saved = its.has;
        let answers_at_once = !self.keeps(Rule::EpochBeforeAnswers);
        its.stage = if answers_at_once { Stage::Recovering } else { Stage::Opened };
    }

    /// Sessions that did not come are closed, durably. What they were told and is not in the log is
    /// lost.
    fn end_recovery(&self, state: &mut State, server: usize, shard: usize) {
        if self.keeps(Rule::WaitForSessions) {
            for client in self.missing(state, &state.servers[server].shards[shard], shard) {
                state.clients[client].closed = true;
                let lost = self.acknowledged_to(state, client) & !state.logs[shard].writes;
                state
                    .clients
                    .iter_mut()
                    .for_each(|other| other.asked = other.asked.map(|asked| asked & !lost));
            }
        }
        let its = &mut state.servers[server].shards[shard];
        its.stage = Stage::Ready;
        its.waited = 0;
        let log = &mut state.logs[shard];
        log.served = log.served.max(its.epoch);
    }

    fn hand_over(&self, state: &mut State, server: usize, shard: usize, to: usize) {
        send_swap(state, server, shard, to);
        if !self.keeps(Rule::TakeBackBySwap) {
            state.servers[server].shards[shard].stage = Stage::Handing;
        } else if self.keeps(Rule::SilentFromSwap) {
            state.close_shard(server, shard);
        }
    }
}

fn send(state: &mut State, from: usize, what: What) {
    state.puts.push(Put { from, what, at: PutAt::Up, given_up: false });
}

fn send_swap(state: &mut State, from: usize, shard: usize, owner: usize) {
    let before = state.map.shards[shard];
    send(state, from, What::Own { shard, owner, before, version: state.map.version });
}
