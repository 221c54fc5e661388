//! What server, daemons and kernels hold.

use super::DIRS;

/// How far a program's change is. The numbers count its directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// The next step looks a name up.
    LookUp(u8),
    /// The answer is on its way into the kernel: the version of the directory, if there is a lease.
    Looking(u8, Option<u8>),
    /// The next step takes a lock.
    Lock(u8),
    /// The request is on its way.
    Sent,
    /// The server has it.
    Queued,
    /// The answer is on its way.
    Answered,
    /// ESTALE is on its way.
    Bounced,
    /// The program got ESTALE.
    Failed,
}

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Program {
    /// Which change of the script.
    pub op: u8,
    /// How far that is.
    pub stage: Stage,
    /// The kernel has tried it again.
    pub retried: bool,
}

/// How far a recall of a directory's names from a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Recall {
    /// There is none.
    None,
    /// The daemon has it.
    Down,
    /// The daemon waits for the kernel.
    Invalidating,
    /// The answer is on its way.
    Up,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Machine {
    /// Its programs.
    pub programs: Vec<Program>,
    /// The program that holds a directory's lock.
    pub locks: [Option<usize>; DIRS],
    /// The version of a directory whose names the kernel knows.
    pub knows: [Option<u8>; DIRS],
    /// The machine has a lease on a directory's names.
    pub leased: [bool; DIRS],
    /// Recalls.
    pub recalls: [Recall; DIRS],
}

/// The state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// The versions of the directories.
    pub versions: [u8; DIRS],
    /// Requests at the server in the order in which they came: machine and program.
    pub queue: Vec<(usize, usize)>,
    /// The machines.
    pub machines: Vec<Machine>,
}

impl State {
    pub(crate) fn new(scripts: &[Vec<Vec<Vec<usize>>>]) -> State {
        let program = Program { op: 0, stage: Stage::LookUp(0), retried: false };
        let machine = |programs: &Vec<Vec<Vec<usize>>>| Machine {
            programs: vec![program; programs.len()],
            locks: [None; DIRS],
            knows: [None; DIRS],
            leased: [false; DIRS],
            recalls: [Recall::None; DIRS],
        };
        State { versions: [0; DIRS], queue: Vec::new(), machines: scripts.iter().map(machine).collect() }
    }

    pub(crate) fn program(&mut self, machine: usize, program: usize) -> &mut Program {
        &mut self.machines[machine].programs[program]
    }

    pub(crate) fn deliver(&mut self, machine: usize, program: usize) {
        self.program(machine, program).stage = Stage::Queued;
        self.queue.push((machine, program));
    }
}

impl Machine {
    pub(crate) fn names_are_gone(&mut self, dir: usize) {
        self.knows[dir] = None;
        self.recalls[dir] = Recall::Up;
    }

    pub(crate) fn note_recalled(&mut self, dir: usize) {
        self.recalls[dir] = Recall::None;
        self.leased[dir] = false;
    }

    pub(crate) fn unlock(&mut self, program: usize) {
        for lock in &mut self.locks {
            *lock = lock.filter(|holder| *holder != program);
        }
    }
}
