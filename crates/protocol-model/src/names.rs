//! The locks of the kernel: a recall of names that needs a directory's lock, which a request that
//! waits for another recall holds.
//!
//! **Modelled.** Some machines with some programs, each with a script of changes in one directory
//! (create, unlink) or two (rename). A program looks its names up, then takes the locks of its
//! directories one after the other in its kernel, sends its request, and holds the locks until the
//! answer is there. A look-up holds the lock, too, until the kernel has entered the answer. The
//! server runs a change when no older change in the same directories waits and no other machine has
//! a lease on their names. How a daemon makes its kernel drop names is the `Way`.
//!
//! **Left out.** Which names: a kernel knows names of a directory or does not, which is as bad as
//! one name that all use. That look-ups share a lock: one at a time per directory is here enough.
//! Lost messages and time: a time-out runs out at any moment.
//!
//! From Linux: `fuse_reverse_inval_entry` takes the directory's lock, also with `FUSE_EXPIRE_ONLY`;
//! `FUSE_NOTIFY_INC_EPOCH` takes none, and a look-up enters its answer with the epoch of the time
//! before its request; `retry_estale` tries a system call again once, and a second ESTALE goes to
//! the program.

mod kernel;
pub mod properties;
mod server;
mod state;

pub use state::{Machine, Program, Recall, Stage, State};
use stateright::{Model, Property};

/// Directories in the model.
pub const DIRS: usize = 2;

/// How a daemon makes its kernel drop the names of a directory, and answers a recall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It invalidates names under the directory's lock, and answers when that is done.
    Invalidate,
    /// The same; behind a request of its own that holds the lock, it says so, and the server
    /// answers that request with ESTALE.
    Bounce,
    /// The same; a request that was answered so gets no leases on its directories until it is done.
    BounceThenShare,
    /// It invalidates, but answers at the latest when the time-outs of all names have run out.
    TimeOut,
    /// The same, but only if a request that it knows holds the lock.
    TimeOutBehindKnown,
    /// The same, but also while the answer to a look-up is on its way into the kernel.
    TimeOutOverLookUps,
    /// It makes all names of the mount void by the epoch, without any lock.
    Epoch,
    /// The same, and answers that were on their way count for the new epoch (READDIRPLUS).
    EpochReadLate,
    /// It answers and leaves the kernel as it is.
    Nothing,
}

/// A configuration.
#[derive(Clone, Debug)]
pub struct Names {
    /// Of each machine, of each program, the changes: the directories of each, in the order in
    /// which the kernel locks them.
    pub scripts: Vec<Vec<Vec<Vec<usize>>>>,
    /// How daemons answer recalls.
    pub way: Way,
}

/// A step. The first number is the machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A program begins its next look-up, which the server answers.
    LookUp(usize, usize),
    /// The kernel enters the answer.
    Enter(usize, usize),
    /// A program takes the next lock.
    Lock(usize, usize),
    /// The server gets its request.
    Deliver(usize, usize),
    /// The server runs it.
    Run(usize, usize),
    /// The server answers it with ESTALE.
    Bounce(usize, usize),
    /// The kernel gets the answer and drops the locks.
    Receive(usize, usize),
    /// The server recalls the names of a directory from a machine.
    Recall(usize, usize),
    /// The daemon makes its kernel drop them, or begins to.
    Drop(usize, usize),
    /// The kernel drops them under the directory's lock.
    Invalidate(usize, usize),
    /// The time-outs of the names have run out.
    RunOut(usize, usize),
    /// The server gets the answer.
    Recalled(usize, usize),
}

impl Names {
    /// The directories of a program's change at hand.
    pub(crate) fn dirs(&self, machine: usize, program: &Program, which: usize) -> Option<&[usize]> {
        self.scripts[machine][which].get(usize::from(program.op)).map(Vec::as_slice)
    }

    /// Whether all programs have come to the end of their scripts.
    pub fn is_done(&self, state: &State) -> bool {
        state.machines.iter().enumerate().all(|(machine, its)| {
            its.programs.iter().enumerate().all(|(which, program)| {
                program.stage == Stage::Failed || self.dirs(machine, program, which).is_none()
            })
        })
    }
}

impl Model for Names {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(&self.scripts)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for machine in 0..self.scripts.len() {
            for program in 0..self.scripts[machine].len() {
                self.program_actions(state, machine, program, actions);
            }
            for dir in 0..DIRS {
                self.recall_actions(state, machine, dir, actions);
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::LookUp(machine, program) => self.look_up(&mut state, machine, program),
            Action::Enter(machine, program) => self.enter(&mut state, machine, program),
            Action::Lock(machine, program) => self.lock(&mut state, machine, program),
            Action::Deliver(machine, program) => state.deliver(machine, program),
            Action::Run(machine, program) => self.run(&mut state, machine, program),
            Action::Bounce(machine, program) => self.bounce(&mut state, machine, program),
            Action::Receive(machine, program) => self.receive(&mut state, machine, program),
            Action::Recall(machine, dir) => state.machines[machine].recalls[dir] = Recall::Down,
            Action::Drop(machine, dir) => self.drop_names(&mut state.machines[machine], dir),
            Action::Invalidate(machine, dir) | Action::RunOut(machine, dir) => {
                state.machines[machine].names_are_gone(dir);
            }
            Action::Recalled(machine, dir) => state.machines[machine].note_recalled(dir),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
