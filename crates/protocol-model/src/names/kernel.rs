//! Programs, their kernel, and the daemon.

use super::{Action, Machine, Names, Recall, Stage, State, Way};

impl Names {
    pub(crate) fn program_actions(
        &self,
        state: &State,
        machine: usize,
        program: usize,
        actions: &mut Vec<Action>,
    ) {
        let its = &state.machines[machine].programs[program];
        let Some(dirs) = self.dirs(machine, its, program) else { return };
        let is_free = |n: u8| state.machines[machine].locks[dirs[usize::from(n)]].is_none();
        match its.stage {
            Stage::LookUp(n) if is_free(n) => actions.push(Action::LookUp(machine, program)),
            Stage::Lock(n) if is_free(n) => actions.push(Action::Lock(machine, program)),
            Stage::LookUp(_) | Stage::Lock(_) | Stage::Failed => {}
            Stage::Looking(..) => actions.push(Action::Enter(machine, program)),
            Stage::Sent => actions.push(Action::Deliver(machine, program)),
            Stage::Queued => self.server_actions(state, machine, program, actions),
            Stage::Answered | Stage::Bounced => actions.push(Action::Receive(machine, program)),
        }
    }

    pub(crate) fn look_up(&self, state: &mut State, machine: usize, program: usize) {
        let its = state.machines[machine].programs[program];
        let Stage::LookUp(n) = its.stage else { return };
        let Some(dirs) = self.dirs(machine, &its, program) else { return };
        let dir = dirs[usize::from(n)];
        let leased = self.grant(state, machine, dir);
        state.machines[machine].locks[dir] = Some(program);
        state.program(machine, program).stage = Stage::Looking(n, leased.then_some(state.versions[dir]));
    }

    pub(crate) fn enter(&self, state: &mut State, machine: usize, program: usize) {
        let its = state.machines[machine].programs[program];
        let Stage::Looking(n, version) = its.stage else { return };
        let Some(dirs) = self.dirs(machine, &its, program) else { return };
        let machine = &mut state.machines[machine];
        let dir = dirs[usize::from(n)];
        machine.knows[dir] = version.or(machine.knows[dir]);
        machine.unlock(program);
        let last = usize::from(n) + 1 == dirs.len();
        machine.programs[program].stage = if last { Stage::Lock(0) } else { Stage::LookUp(n + 1) };
    }

    pub(crate) fn lock(&self, state: &mut State, machine: usize, program: usize) {
        let its = state.machines[machine].programs[program];
        let Stage::Lock(n) = its.stage else { return };
        let Some(dirs) = self.dirs(machine, &its, program) else { return };
        state.machines[machine].locks[dirs[usize::from(n)]] = Some(program);
        let last = usize::from(n) + 1 == dirs.len();
        state.program(machine, program).stage = if last { Stage::Sent } else { Stage::Lock(n + 1) };
    }

    /// The kernel tries a system call again once after ESTALE.
    pub(crate) fn receive(&self, state: &mut State, machine: usize, program: usize) {
        state.machines[machine].unlock(program);
        let its = state.program(machine, program);
        match its.stage {
            Stage::Bounced if its.retried => its.stage = Stage::Failed,
            Stage::Bounced => {
                its.stage = Stage::LookUp(0);
                its.retried = true;
            }
            _ => {
                its.op += 1;
                its.stage = Stage::LookUp(0);
                its.retried = false;
            }
        }
    }

    pub(crate) fn recall_actions(
        &self,
        state: &State,
        machine: usize,
        dir: usize,
        actions: &mut Vec<Action>,
    ) {
        let its = &state.machines[machine];
        match its.recalls[dir] {
            Recall::None if self.must_recall(state, machine, dir) => {
                actions.push(Action::Recall(machine, dir))
            }
            Recall::None => {}
            Recall::Down => actions.push(Action::Drop(machine, dir)),
            Recall::Invalidating if its.locks[dir].is_none() => {
                actions.push(Action::Invalidate(machine, dir))
            }
            Recall::Invalidating if self.may_run_out(its, dir) => actions.push(Action::RunOut(machine, dir)),
            Recall::Invalidating => {}
            Recall::Up => actions.push(Action::Recalled(machine, dir)),
        }
    }

    pub(crate) fn drop_names(&self, machine: &mut Machine, dir: usize) {
        match self.way {
            Way::Nothing => machine.recalls[dir] = Recall::Up,
            Way::Epoch | Way::EpochReadLate => {
                machine.knows = [None; super::DIRS];
                if self.way == Way::Epoch {
                    machine.void_look_ups();
                }
                machine.recalls[dir] = Recall::Up;
            }
            _ => machine.recalls[dir] = Recall::Invalidating,
        }
    }

    /// Whether a daemon may answer a recall because time-outs have run out, although a lock keeps
    /// it from invalidating.
    fn may_run_out(&self, machine: &Machine, dir: usize) -> bool {
        let holder = machine.locks[dir].map(|program| machine.programs[program].stage);
        let looks_up = matches!(holder, Some(Stage::Looking(..)));
        let is_known = matches!(holder, Some(Stage::Sent | Stage::Queued));
        match self.way {
            Way::TimeOut => !looks_up,
            Way::TimeOutBehindKnown => is_known,
            Way::TimeOutOverLookUps => true,
            _ => false,
        }
    }
}

impl Machine {
    /// What was asked for before the epoch changed is entered with the old epoch: void.
    fn void_look_ups(&mut self) {
        for program in &mut self.programs {
            if let Stage::Looking(n, _) = program.stage {
                program.stage = Stage::Looking(n, None);
            }
        }
    }
}
