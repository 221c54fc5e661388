//! Exactly once: numbered requests, replies that get lost, a server that crashes, and the replay of
//! what clients were told and was not durable yet.
//!
//! **Modelled.** One server and some clients, each with a script of changes to names. A connection
//! is in order both ways and breaks at any time, with the loss of what is under way; the server may
//! still read what it received on the old one. The server may crash (and is there again at once),
//! commits at any moment, and loses what it had not committed. Clients may die. The server may give
//! up a session that does not come back in time, of a dead client or of a slow one. A slot holds
//! one request at a time, and the number of a request is its place in the script.
//!
//! **Left out.** Reads, which change nothing: a client may have read what a crash then undoes.
//! Time: "in time" is any time, so what holds here holds for each limit. An old server that does
//! not know that it was replaced: its commits fail (the fence of the KV), so it is a network that
//! loses everything. The opening of a session: it is durable before its first answer.

mod client;
pub mod properties;
mod server;
mod state;

pub use state::{Change, Client, Kind, Message, Op, OpState, Record, Reply, Saw, State, Status};
use stateright::{Model, Property};

/// A rule of the protocol that a mutant leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The outcome is entered in the transaction of the change.
    OutcomeInTransaction,
    /// A slot keeps its last number when the client has confirmed the outcome.
    NumberOutlivesOutcome,
    /// A client keeps what it was told until that is durable, and replays it.
    Replay,
    /// A replayed change gets the inode number of its first run.
    RecordedOutcome,
    /// A session replays in the order in which its changes were made.
    ReplayInOrder,
    /// A server gives out no number (LSN, inode) that an earlier process may have given out.
    FreshNumbers,
    /// New requests wait until all known sessions have replayed or were given up.
    ReplayBeforeNew,
    /// A session that does not come back is given up.
    GiveUp,
    /// That a session was given up is durable before new requests run.
    GivenUpDurably,
    /// Whatever still arrives of a session that was given up is refused.
    GivenUpIsFinal,
    /// The server says what is durable only when all that was replayed is.
    WatermarkAfterReplay,
    /// The server says what is durable only on a connection whose replay it has read.
    WatermarkAfterReplayOfConnection,
    /// A replay runs only on the versions on which the change first ran.
    VersionCheck,
    /// A replay waits while a session may still bring the version that it needs.
    WaitForVersion,
    /// It waits only for sessions whose next replay is not younger than that version.
    WaitForOlderOnly,
    /// That a directory is empty counts as something that its removal builds on.
    EmptinessIsShared,
    /// A session that was noted as away is answered when it is durable that it is back.
    BackDurably,
    /// The server drops what it received on the connection that a new one replaces.
    DropOldConnection,
}

/// A configuration: who does what, how much may go wrong, and by which rules.
#[derive(Clone, Debug)]
pub struct Sessions {
    /// The changes that each client makes. The place of a change is its sequence number.
    pub scripts: Vec<Vec<Op>>,
    /// How often the server may crash.
    pub crashes: u8,
    /// How often a connection may break while both ends live.
    pub breaks: u8,
    /// How many clients may die.
    pub deaths: u8,
    /// How many living clients may be given up because they come back too late.
    pub late: u8,
    /// How often the server may note that a silent session is away.
    pub aways: u8,
    /// A change that builds on another session's change waits until that one is durable.
    pub commit_before_sharing: bool,
    /// The rules that this mutant leaves out.
    pub without: &'static [Rule],
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A client sends a change for the first time.
    Send(usize, usize),
    /// A client connects again: greeting, replay, what was never answered.
    Connect(usize),
    /// The server takes the next message of a connection.
    Serve(usize),
    /// The server takes the next message of a connection that the client has given up already.
    ServeOld(usize),
    /// A client takes the next reply.
    Receive(usize),
    /// All that was done becomes durable.
    Commit,
    /// The server says what is durable.
    TellDurable(usize),
    /// The server stops waiting for a session.
    GiveUp(usize),
    /// The server notes that a session is away.
    NoteAway(usize),
    /// A connection breaks.
    Break(usize),
    /// The server crashes and starts again.
    Crash,
    /// A client dies.
    Die(usize),
}

impl Sessions {
    /// Whether the protocol follows a rule.
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        !self.without.contains(&rule)
    }

    pub(crate) fn op(&self, client: usize, op: usize) -> Op {
        self.scripts[client][op]
    }

    /// The steps that are no faults: what must go on when nothing more goes wrong.
    pub(crate) fn progress(&self, state: &State, actions: &mut Vec<Action>) {
        for client in 0..self.scripts.len() {
            for op in 0..self.scripts[client].len() {
                if self.may_send(state, client, op) {
                    actions.push(Action::Send(client, op));
                }
            }
            self.progress_of_connection(state, client, actions);
        }
        if state.durable < state.history.len() {
            actions.push(Action::Commit);
        }
    }

    fn progress_of_connection(&self, state: &State, client: usize, actions: &mut Vec<Action>) {
        if state.may_connect(client) {
            actions.push(Action::Connect(client));
        }
        if state.up[client].first().is_some_and(|message| self.may_serve(state, client, message)) {
            actions.push(Action::Serve(client));
        }
        if state.old[client].first().is_some_and(|message| self.may_serve(state, client, message)) {
            actions.push(Action::ServeOld(client));
        }
        if !state.down[client].is_empty() {
            actions.push(Action::Receive(client));
        }
        if self.may_tell_durable(state, client) {
            actions.push(Action::TellDurable(client));
        }
        if self.may_give_up(state, client) {
            actions.push(Action::GiveUp(client));
        }
    }

    fn faults(&self, state: &State, actions: &mut Vec<Action>) {
        if state.crashes < self.crashes {
            actions.push(Action::Crash);
        }
        for (client, its) in state.clients.iter().enumerate() {
            if self.may_note_away(state, client) {
                actions.push(Action::NoteAway(client));
            }
            if its.alive && its.connected && state.breaks < self.breaks {
                actions.push(Action::Break(client));
            }
            if its.alive && state.deaths < self.deaths {
                actions.push(Action::Die(client));
            }
        }
    }
}

impl Model for Sessions {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(&self.scripts)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.progress(state, actions);
        self.faults(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Send(client, op) => self.send(&mut state, client, op),
            Action::Connect(client) => self.connect(&mut state, client),
            Action::Serve(client) => {
                let message = state.up[client].remove(0);
                self.serve(&mut state, client, message, true);
            }
            Action::ServeOld(client) => {
                let message = state.old[client].remove(0);
                self.serve(&mut state, client, message, false);
            }
            Action::Receive(client) => self.receive(&mut state, client),
            Action::Commit => self.commit(&mut state),
            Action::TellDurable(client) => {
                let watermark = self.watermark(&state);
                state.down[client].push(Reply::Durable(watermark));
            }
            Action::GiveUp(client) => self.give_up(&mut state, client),
            Action::NoteAway(client) => {
                state.aways += 1;
                state.history.push(Record::Away(client));
            }
            Action::Break(client) => state.break_connection(client),
            Action::Crash => self.crash(&mut state),
            Action::Die(client) => state.die(client),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
