//! Write-behind: a client with W leases tells its programs the result of a change, and sends it
//! behind.
//!
//! **Modelled.** A few inodes, each as a number that every change raises. Programs of users on some
//! clients, each with a script. A client with W on all that a change touches predicts it: the
//! program is answered, and the change follows in the FIFO of its user. `latest` is what programs
//! know: a predicted change counts at once, any other when the server runs it. Copies that a client
//! may use must be that; what a read returns is no older than what was `latest` when it began.
//! Connections break, clients are silent for so long that the server notes them as away and takes
//! what they have, and the server crashes: then what was told is done again in the order of its
//! numbers, and after it what was predicted. Room for changes may be short.
//!
//! What is under way is not kept in queues: a request was sent, or ran and its answer is on its
//! way. Answers of a client's changes come in the order in which those ran. A recall and its answer
//! take any time. What is durable has no order any more, and no numbers.
//!
//! **Left out.** Time: a client is silent for longer than its leases count, or not at all; whether
//! a server is slow or a client silent. Content, which enters files later, and how the replays of
//! sessions wait for each other: module [`replay`](crate::replay). Numbers of new inodes: module
//! [`sessions`](crate::sessions). What a change touches that its client does not name. Dead
//! clients: one that is silent during a crash is closed.

mod client;
pub mod properties;
mod recovery;
mod server;
mod state;

pub use state::{Call, Client, Lease, Made, Numbers, Record, Session, Stage, State};
use stateright::{Model, Property};

/// A rule of the protocol that a mutant leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Who reads or changes what another client has W on recalls it first.
    RecallFirst,
    /// Nothing is granted on an inode while somebody waits for it.
    NoneWhileAsked,
    /// A client keeps nothing of what is under way when a recall comes.
    RecallVoids,
    /// What a predicted change makes is W at the server, too.
    MadeIsAlone,
    /// W is granted where no other client's change is uncommitted.
    GrantOnCommitted,
    /// The server runs what is in a FIFO in its order.
    Fifo,
    /// A read that touches what is predicted and not answered goes through the FIFO.
    ReadsInOrder,
    /// A change that is not predicted waits at the client for such answers. Without it: goes
    /// through the FIFO.
    ChangesWait,
    /// So does what another user calls. Without it: is sent beside the FIFO.
    OtherUserWaits,
    /// A read in a FIFO holds up nothing while it waits for recalls.
    ReadsHoldNothing,
    /// Without `ChangesWait`: nothing is predicted for a user behind such a change.
    NothingAfterInOrder,
    /// A client drops its copies before it sends a change that is not predicted, and keeps nothing
    /// of what is under way at the same time. So it predicts nothing there until it was answered.
    OwnChangeVoids,
    /// Nothing is kept of a read that was under way when a change was predicted.
    PredictionVoidsReads,
    /// A predicted change runs only under W.
    AloneOrRefused,
    /// It runs only in the term in which it was predicted.
    SameTerm,
    /// The same after a crash.
    SameTermAfterCrash,
    /// A recall is answered when all that was predicted on the inode is answered.
    AnswersFirst,
    /// What was answered, or ran, does not run again.
    Once,
    /// A connection that comes back brings the FIFOs in their order.
    SentAgainInOrder,
    /// After a crash predicted changes run without W.
    BehindAfterCrash,
    /// They run when all is done again that clients were told.
    ToldFirst,
    /// They run before any other request.
    BehindBeforeRequests,
    /// What ran after a crash is durable before any other request runs.
    DurableBeforeRequests,
    /// What a session has sent to a new process stays there when its connection breaks.
    CaughtUpStays,
    /// W of a silent client is taken when it is durable that it is away.
    AwayBeforeTaken,
    /// From the note that a session is away on, nothing of it runs, until it is durably back.
    AwayRunsNothing,
    /// A client that was away uses leases when it is durable that it is back.
    BackDurably,
    /// A client drops all leases before it goes on with a new process.
    NewProcessVoids,
    /// A client that was told that its leases were taken drops them.
    TakenVoids,
    /// A client uses leases only as long as they count.
    InTime,
    /// A client shares an inode that it has W on when what it predicted there is answered.
    ShareAfterAnswers,
    /// Nothing is kept of what is under way when it says so, and of what it sends until that is
    /// answered.
    ShareVoids,
    /// An fsync is answered after what was predicted before it.
    SyncAnsweredInOrder,
    /// W is granted where nothing can be short of room.
    GrantWithRoom,
    /// Who takes what is near the limit recalls all W first.
    NearRecallsAll,
    /// Its own client's, too.
    NearRecallsOwn,
    /// A client has only so many predicted changes that are not answered.
    Bounded,
    /// When predicted changes come near the limit, all W is recalled.
    NearAsks,
    /// Such a recall comes before the answers of what ran after it.
    RecallBeforeAnswers,
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Changes names: waits for the commit of what another client changed.
    Names,
    /// Changes attributes, which needs no such wait.
    Attributes,
    /// Reads.
    Read,
    /// Waits until all is durable.
    Sync,
}

/// A call of a script. Inodes are bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Op {
    /// What it does.
    pub kind: Kind,
    /// The inodes that it reads or changes, with those that it makes.
    pub inodes: u8,
    /// The inodes that it makes, which must not be there.
    pub makes: u8,
}

/// A program: it goes on when it was answered.
#[derive(Clone, Debug)]
pub struct Program {
    /// Where it runs.
    pub client: usize,
    /// For whom: 0 or 1.
    pub user: usize,
    /// What it does.
    pub script: Vec<Op>,
}

/// How many changes of names have room.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// All in all.
    pub limit: u8,
    /// Where so many are left, nothing is predicted.
    pub margin: u8,
    /// How many may be predicted and not answered, of each client.
    pub bound: usize,
}

/// A configuration: who does what, how much may go wrong, and by which rules.
#[derive(Clone, Debug)]
pub struct Behind {
    /// How many clients there are.
    pub clients: usize,
    /// The inodes that are there from the start, as bits.
    pub old: u8,
    /// The inodes on which the first client has W from the start, the second, and so on.
    pub alone: Vec<u8>,
    /// The programs.
    pub programs: Vec<Program>,
    /// The room for changes of names, if that is bounded.
    pub room: Option<Room>,
    /// For fewer states: what can be predicted is, and nothing is committed that nobody waits for.
    pub brisk: bool,
    /// How often the server may crash.
    pub crashes: u8,
    /// How often a connection may break while both ends live.
    pub breaks: u8,
    /// How often a client may be silent.
    pub silences: u8,
    /// How often one may share what it has W on.
    pub shares: u8,
    /// The rules that this mutant leaves out.
    pub without: &'static [Rule],
}

/// A step. A number is the client's, if nothing else is said; an inode is a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A program is answered from copies.
    UseCopy(Call),
    /// A change is predicted and sent.
    Predict(Call),
    /// A call is sent, and its program waits.
    Send(Call),
    /// The server runs a call, or refuses it.
    Serve(Call),
    /// The client gets the answer.
    Receive(Call),
    /// The server asks a client for an inode.
    AskBack(usize, usize),
    /// The client hears it.
    HearRecall(usize, usize),
    /// It gives the inode back.
    GiveBack(usize, usize),
    /// It says that others may read an inode, without being asked.
    Share(usize, usize),
    /// The server hears it.
    HearShared(usize, usize),
    /// The client hears that it did.
    Shared(usize, usize),
    /// All that the server has done becomes durable.
    Commit,
    /// The connection of a client breaks.
    Break(usize),
    /// A client connects again.
    Connect(usize),
    /// Nothing is heard of a client any more.
    FallSilent(usize),
    /// It is there again.
    Wake(usize),
    /// The server notes that it is away.
    NoteAway(usize),
    /// It takes its leases.
    Take(usize),
    /// A new process stops waiting for it.
    Close(usize),
    /// The server crashes and starts again.
    Crash,
    /// A new process does again what clients were told.
    DoAgain,
    /// It runs a predicted change.
    RunBehind(Call),
    /// It takes other requests.
    EndRecovery,
}

impl Behind {
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        !self.without.contains(&rule)
    }

    pub(crate) fn op(&self, call: Call) -> Op {
        self.programs[call.program].script[call.op]
    }

    pub(crate) fn client_of(&self, call: Call) -> usize {
        self.programs[call.program].client
    }

    pub(crate) fn user_of(&self, call: Call) -> usize {
        self.programs[call.program].user
    }

    /// All calls of a client.
    pub(crate) fn calls(&self, client: usize) -> impl Iterator<Item = Call> {
        let its = self.programs.iter().enumerate().filter(move |(_, program)| program.client == client);
        its.flat_map(|(program, its)| (0..its.script.len()).map(move |op| Call { program, op }))
    }

    /// The steps that are no faults: what must go on when nothing more goes wrong.
    pub(crate) fn progress(&self, state: &State, actions: &mut Vec<Action>) {
        for client in 0..self.clients {
            self.client_actions(state, client, actions);
            self.server_actions(state, client, actions);
        }
        if !state.history.is_empty() && (!self.brisk || self.somebody_waits_for_commit(state)) {
            actions.push(Action::Commit);
        }
        if state.recovering {
            self.recovery_actions(state, actions);
        }
    }

    fn faults(&self, state: &State, actions: &mut Vec<Action>) {
        if state.crashes < self.crashes {
            actions.push(Action::Crash);
        }
        for (client, its) in state.clients.iter().enumerate() {
            if its.connected && state.breaks < self.breaks {
                actions.push(Action::Break(client));
            }
            if its.silent {
                actions.push(Action::Wake(client));
            } else if state.silences < self.silences && !its.expelled {
                actions.push(Action::FallSilent(client));
            }
        }
    }
}

impl Model for Behind {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.progress(state, actions);
        self.faults(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::UseCopy(call) => *state.stage_mut(call) = Stage::Read,
            Action::Predict(call) => self.predict(&mut state, call),
            Action::Send(call) => self.send(&mut state, call),
            Action::Serve(call) => self.serve(&mut state, call),
            Action::Receive(call) => self.receive(&mut state, call),
            Action::AskBack(client, inode) => state.asked[client] |= 1 << inode,
            Action::HearRecall(client, inode) => self.hear_recall(&mut state, client, inode),
            Action::GiveBack(client, inode) => state.give_back(client, inode),
            Action::Share(client, inode) => self.share(&mut state, client, inode),
            Action::HearShared(client, inode) => state.hear_shared(client, inode),
            Action::Shared(client, inode) => state.clients[client].sharing[inode] = None,
            Action::Commit => state.make_durable(),
            Action::Break(client) => {
                state.breaks += 1;
                self.end_connection(&mut state, client);
                if state.recovering && !self.keeps(Rule::CaughtUpStays) {
                    state.listed[client] = false;
                }
            }
            Action::Connect(client) => self.connect(&mut state, client),
            Action::FallSilent(client) => {
                state.silences += 1;
                state.clients[client].silent = true;
            }
            Action::Wake(client) => state.wake(client),
            Action::NoteAway(client) => self.note_away(&mut state, client),
            Action::Take(client) => self.take(&mut state, client),
            Action::Close(client) => state.history.push(Record::Closed(client)),
            Action::Crash => self.crash(&mut state),
            Action::DoAgain => self.do_again(&mut state),
            Action::RunBehind(call) => self.run_behind(&mut state, call),
            Action::EndRecovery => self.end_recovery(&mut state),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
