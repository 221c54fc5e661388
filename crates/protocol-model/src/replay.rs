//! Replay as the code has it: numbers say what is durable, content enters its file after its record
//! was committed, and the replays of all sessions run in one order.
//!
//! **Modelled.** One server and some clients, each with a script of changes to names, to the
//! content of files and to their attributes. A commit makes all records durable; the content of
//! each file enters later, in the order of its changes, each in a transaction of its own.
//! Connections break with what is under way on them, the server crashes, clients die, come too
//! late, or are noted as away.
//!
//! **Left out.** What [`sessions`](crate::sessions) has: late duplicates on an old connection,
//! versions in place of commits before sharing. Reads, and time.

mod client;
pub mod properties;
mod server;
mod state;

pub use state::{Change, Client, Kind, Message, OLD, Op, OpState, Record, Reply, State, Status};
use stateright::{Model, Property};

/// A rule of the protocol that a mutant leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A client replays what it was told.
    Replay,
    /// No number is given out by two processes.
    FreshNumbers,
    /// A record is replayed only if its number is above the last committed one.
    RecordsByCommitted,
    /// Content is replayed only if its number is above that of its file's last content.
    ContentByFile,
    /// It is that number of the file, and not the last committed one, that says whether content is
    /// in.
    ContentNotByCommitted,
    /// A replay that ran in this process does not run again when its connection broke.
    ReplayOnce,
    /// The replays of all sessions run in the order of their numbers.
    MergedReplay,
    /// Requests wait until recovery is over.
    ReplayBeforeNew,
    /// An append is replayed at the offset that was told.
    AppendAtOffset,
    /// The outcome is entered in the transaction of the change.
    OutcomeInTransaction,
    /// Not only appends and changes of names have one: writes and truncates, too.
    ContentHasOutcome,
    /// A change that was not answered, but has an outcome, is replayed in its place.
    UnansweredInPlace,
    /// A replay leaves a newer outcome in its slot alone.
    NewerOutcomeStays,
    /// A replay of content whose record is committed leaves attributes alone.
    NewerAttributesStay,
    /// A replay of content whose file is gone counts as done.
    GoneIsDone,
    /// A change of names waits for a commit of what another session changed.
    CommitBeforeSharing,
    /// So does a change of the content of a file that another session made.
    BirthsBeforeContent,
    /// The answers of a session leave in the order of their numbers.
    AnswersInOrder,
    /// What is durable is told only after recovery and a commit of all replays.
    DurableAfterRecovery,
    /// A number counts as durable when all content up to it is in.
    DurableCoversContent,
    /// A session is noted as away when all that it changed is durable, content too.
    AwayWhenDurable,
    /// A session that was away is answered when it is durable that it is back.
    BackDurably,
    /// A session that does not come back is closed.
    Close,
    /// That a session is closed is durable before recovery ends.
    ClosedDurably,
    /// It is durable no later than any replay that did not wait for this session.
    ClosedBeforeReplays,
    /// The same for content, which enters without a record.
    ClosedBeforeContent,
    /// What arrives of a closed session is refused.
    ClosedIsFinal,
}

/// A configuration: who does what, how much may go wrong, and by which rules.
#[derive(Clone, Debug)]
pub struct Replays {
    /// The changes of each client. The place of a change is its sequence number.
    pub scripts: Vec<Vec<Op>>,
    /// How often the server may crash.
    pub crashes: u8,
    /// How often a connection may break while both ends live.
    pub breaks: u8,
    /// How many clients may die.
    pub deaths: u8,
    /// How many living clients may be closed because they come back too late.
    pub late: u8,
    /// How often a silent session may be noted as away.
    pub aways: u8,
    /// The rules that this mutant leaves out.
    pub without: &'static [Rule],
}

/// A step. The number is the client's, if nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A client sends a change for the first time.
    Send(usize, usize),
    /// A client connects again: greeting, replay, what was never answered.
    Connect(usize),
    /// The server takes the next message of a connection.
    Serve(usize),
    /// A client takes a reply; the second number is its place.
    Receive(usize, usize),
    /// All records become durable.
    Commit,
    /// The next content of a file, which has this inode number, becomes durable.
    Enter(u8),
    /// The server says what is durable.
    TellDurable(usize),
    /// The server stops waiting for a session.
    Close(usize),
    /// In a mutant: the server notes that it did.
    NoteClosed(usize),
    /// The server notes that a session is away.
    NoteAway(usize),
    /// A connection breaks.
    Break(usize),
    /// The server crashes and starts again.
    Crash,
    /// A client dies.
    Die(usize),
}

impl Replays {
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        !self.without.contains(&rule)
    }

    pub(crate) fn op(&self, client: usize, op: usize) -> Op {
        self.scripts[client][op]
    }

    pub(crate) fn op_of(&self, change: &Change) -> Op {
        self.op(change.client, change.op)
    }

    /// The steps that are no faults: what must go on when nothing more goes wrong.
    pub(crate) fn progress(&self, state: &State, actions: &mut Vec<Action>) {
        for client in 0..self.scripts.len() {
            let ops = 0..self.scripts[client].len();
            actions.extend(
                ops.filter(|op| self.may_send(state, client, *op)).map(|op| Action::Send(client, op)),
            );
            self.progress_of_connection(state, client, actions);
        }
        if state.durable < state.history.len() {
            actions.push(Action::Commit);
        }
        for (n, change) in state.pending.iter().enumerate() {
            let is_first = state.pending[..n].iter().all(|before| before.inode != change.inode);
            if is_first && state.is_committed(change) && self.may_enter(state) {
                actions.push(Action::Enter(change.inode));
            }
        }
    }

    fn progress_of_connection(&self, state: &State, client: usize, actions: &mut Vec<Action>) {
        if state.clients[client].may_connect() {
            actions.push(Action::Connect(client));
        }
        if state.up[client].first().is_some_and(|message| self.may_serve(state, client, message)) {
            actions.push(Action::Serve(client));
        }
        let readable = if self.keeps(Rule::AnswersInOrder) { 1 } else { usize::MAX };
        let replies = 0..state.down[client].len().min(readable);
        actions.extend(replies.map(|n| Action::Receive(client, n)));
        if self.may_tell_durable(state, client) {
            actions.push(Action::TellDurable(client));
        }
        if self.may_close(state, client) {
            actions.push(Action::Close(client));
        }
        if state.closing[client] && !state.history.contains(&Record::Closed(client)) {
            actions.push(Action::NoteClosed(client));
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

impl Model for Replays {
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
            Action::Serve(client) => self.serve(&mut state, client),
            Action::Receive(client, n) => state.receive(client, n),
            Action::Commit => self.commit(&mut state),
            Action::Enter(inode) => state.enter(inode),
            Action::TellDurable(client) => {
                let watermark = self.watermark(&state);
                state.down[client].push(Reply::Durable(watermark));
            }
            Action::Close(client) => self.close(&mut state, client),
            Action::NoteClosed(client) => state.history.push(Record::Closed(client)),
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
