//! Leases and time: keepalives, clocks that differ, a client that freezes and comes back.
//!
//! **Modelled.** One inode; one client with R or W on it, its daemon and its kernel; others, whose
//! write waits until the client gave its lease back or the server may take it. A tick of the
//! server's clock is a tick of the client's machine, but a slow machine may miss one in as many
//! ticks as the server waits. Keepalives, recalls and flushes take any time in any order. A daemon
//! freezes and thaws at any moment; its kernel serves what it was handed until the time-out runs
//! out. The server acts at once when its clock says so.
//!
//! The server may also be replaced by a new process, which knows sessions and files and no leases.
//! Each client tells it what it has; until it did, or the server's limit is over, nothing runs.
//!
//! **Left out.** How requests and recalls overtake each other: module `recalls`; here a client gets
//! a lease in one step. A fast clock of the client: it only gives up earlier. A machine that stops
//! as a whole with its kernel (suspend, a paused virtual machine): the clocks must count that time,
//! which `CLOCK_BOOTTIME` does and the kernel's own time-outs do not; decision 30 says what
//! follows.

mod client;
pub mod properties;
mod server;
mod state;

pub use state::{Copy, Flush, FlushAt, Keepalive, KeepaliveAt, Recall, Right, State};
use stateright::{Model, Property};

/// A rule of the protocol that a mutant leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A client's time begins when it sends the keepalive, not when the answer comes.
    TimeBeginsAtSending,
    /// An answer counts for the keepalive that it answers.
    AnswerNamesItsKeepalive,
    /// Clocks differ by less than the difference of the two limits allows.
    ClocksDifferLittle,
    /// The time-out that a kernel is given is what is left of the lease.
    TimeoutIsWhatIsLeft,
    /// Between looking at the clock and handing a time-out to the kernel a daemon does not freeze.
    HandOverAtOnce,
    /// A recall is answered when the kernel has dropped its copy.
    KernelFirst,
    /// A session whose lease was taken is told so, not renewed.
    TakenIsTold,
    /// It is told so until a keepalive says that it knows: each carries the client's term.
    ToldUntilHeard,
    /// A client that was told so drops its copies.
    DropWhenTold,
    /// A flush is refused when others changed the file since the client got W.
    FlushIsFenced,
    /// A session that does not answer a recall is not renewed.
    SuspendStopsRenewal,
    /// A new server waits for what its clients have, or its whole limit.
    NewServerWaits,
    /// A new server takes it that a session it knows has R on everything.
    KnownSessionHasR,
    /// A client whose time is over drops its copies before it goes on with a new server.
    LateForNewServerDrops,
}

/// A configuration, with times in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// A client stops this long after it sent the last keepalive that was answered.
    pub client_limit: u8,
    /// The server takes leases this long after it received the last keepalive that it answered.
    pub server_limit: u8,
    /// A session is suspended when a recall is not answered for so long.
    pub recall_limit: u8,
    /// Writes of others.
    pub foreign_writes: u8,
    /// Writes of the client.
    pub own_writes: u8,
    /// How often the daemon freezes.
    pub freezes: u8,
    /// How often a new server takes over.
    pub restarts: u8,
    /// The rules that this mutant leaves out.
    pub without: &'static [Rule],
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes; the client's machine may miss it.
    Tick {
        /// It does.
        missed: bool,
    },
    /// The daemon stops.
    Freeze,
    /// It goes on.
    Thaw,
    /// The daemon sends a keepalive.
    SendKeepalive,
    /// The server gets one.
    ServeKeepalive(usize),
    /// The daemon gets the answer.
    ReceiveKeepalive(usize),
    /// The daemon gets a lease and a copy.
    Acquire(Right),
    /// A program writes.
    Write,
    /// The daemon looks at the clock for a time-out of the kernel's copy.
    PrepareKernel,
    /// It hands copy and time-out to the kernel.
    HandToKernel,
    /// The daemon flushes.
    SendFlush,
    /// The server gets it.
    ServeFlush,
    /// The daemon gets the answer.
    ReceiveFlush,
    /// Somebody else wants to write.
    ForeignWrite,
    /// The daemon gets a recall.
    ReceiveRecall,
    /// The server gets the answer.
    ServeRecalled,
    /// A new server takes over.
    Restart,
    /// The daemon tells it what it has.
    Tell,
}

impl Clocks {
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        !self.without.contains(&rule)
    }

    /// The longest that anybody waits for this client.
    pub fn longest_wait(&self) -> u8 {
        self.recall_limit + self.server_limit
    }

    fn environment(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Tick { missed: false });
        if self.may_miss_tick(state) {
            actions.push(Action::Tick { missed: true });
        }
        if state.frozen {
            actions.push(Action::Thaw);
        } else if state.freezes < self.freezes {
            actions.push(Action::Freeze);
        }
        if state.restarts < self.restarts {
            actions.push(Action::Restart);
        }
        if state.wait.is_none() && state.foreign_writes < self.foreign_writes {
            actions.push(Action::ForeignWrite);
        }
    }

    /// At most one tick is missed in as many as the server waits; in a mutant two.
    fn may_miss_tick(&self, state: &State) -> bool {
        let between = if self.keeps(Rule::ClocksDifferLittle) { self.server_limit } else { 2 };
        state.since_missed >= between
    }
}

impl Model for Clocks {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State { since_missed: self.server_limit, ..State::default() }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.environment(state, actions);
        self.server_actions(state, actions);
        if !state.frozen {
            self.client_actions(state, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick { missed } => self.tick(&mut state, missed),
            Action::Freeze => {
                state.frozen = true;
                state.freezes += 1;
            }
            Action::Thaw => state.frozen = false,
            Action::ForeignWrite => {
                state.foreign_writes += 1;
                state.begin_wait();
            }
            Action::ServeKeepalive(n) => self.serve_keepalive(&mut state, n),
            Action::ServeFlush => self.serve_flush(&mut state),
            Action::ServeRecalled => state.note_recalled(),
            Action::Restart => self.restart(&mut state),
            client => self.client_step(&mut state, client),
        }
        self.act_by_clock(&mut state);
        state.keepalives.sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
