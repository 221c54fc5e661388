//! The server.

use super::{Action, Names, Recall, Stage, State, Way};

impl Names {
    fn dirs_at_hand(&self, state: &State, (machine, program): (usize, usize)) -> &[usize] {
        self.dirs(machine, &state.machines[machine].programs[program], program).unwrap_or_default()
    }

    fn is_queued_for(&self, state: &State, request: (usize, usize), dir: usize) -> bool {
        self.dirs_at_hand(state, request).contains(&dir)
    }

    /// Whether no older change in its directories waits.
    fn is_next(&self, state: &State, request: (usize, usize)) -> bool {
        let dirs = self.dirs_at_hand(state, request);
        let older = state.queue.iter().take_while(|other| **other != request);
        older.into_iter().all(|other| !dirs.iter().any(|dir| self.is_queued_for(state, *other, *dir)))
    }

    /// A look-up is always answered; with a lease only if no change waits for the directory.
    pub(crate) fn grant(&self, state: &mut State, machine: usize, dir: usize) -> bool {
        let awaited = state.queue.iter().any(|request| self.is_queued_for(state, *request, dir));
        let shared = self.way == Way::BounceThenShare && self.has_bounced(state, machine, dir);
        let leased = !awaited && !shared && state.machines[machine].recalls[dir] == Recall::None;
        state.machines[machine].leased[dir] |= leased;
        leased
    }

    fn has_bounced(&self, state: &State, machine: usize, dir: usize) -> bool {
        let programs = &state.machines[machine].programs;
        (0..programs.len())
            .any(|program| programs[program].retried && self.is_queued_for(state, (machine, program), dir))
    }

    pub(crate) fn must_recall(&self, state: &State, machine: usize, dir: usize) -> bool {
        let wants = |request: &(usize, usize)| {
            request.0 != machine && self.is_queued_for(state, *request, dir) && self.is_next(state, *request)
        };
        state.machines[machine].leased[dir] && state.queue.iter().any(wants)
    }

    pub(crate) fn server_actions(
        &self,
        state: &State,
        machine: usize,
        program: usize,
        actions: &mut Vec<Action>,
    ) {
        let request = (machine, program);
        let held_elsewhere = |dir: &usize| {
            state.machines.iter().enumerate().any(|(other, its)| other != machine && its.leased[*dir])
        };
        if self.is_next(state, request) && !self.dirs_at_hand(state, request).iter().any(held_elsewhere) {
            actions.push(Action::Run(machine, program));
        }
        if self.blocks_recall(state, machine, program) {
            actions.push(Action::Bounce(machine, program));
        }
    }

    /// Whether the machine has said that this request of its own keeps it from following a recall.
    fn blocks_recall(&self, state: &State, machine: usize, program: usize) -> bool {
        let its = &state.machines[machine];
        let waits =
            |dir: &usize| its.recalls[*dir] == Recall::Invalidating && its.locks[*dir] == Some(program);
        let bounces = matches!(self.way, Way::Bounce | Way::BounceThenShare);
        bounces && self.dirs_at_hand(state, (machine, program)).iter().any(waits)
    }

    pub(crate) fn run(&self, state: &mut State, machine: usize, program: usize) {
        for dir in self.dirs_at_hand(state, (machine, program)).to_vec() {
            state.versions[dir] += 1;
            let knows = &mut state.machines[machine].knows[dir];
            *knows = knows.map(|_| state.versions[dir]);
        }
        state.queue.retain(|request| *request != (machine, program));
        state.program(machine, program).stage = Stage::Answered;
    }

    pub(crate) fn bounce(&self, state: &mut State, machine: usize, program: usize) {
        state.queue.retain(|request| *request != (machine, program));
        state.program(machine, program).stage = Stage::Bounced;
    }
}
