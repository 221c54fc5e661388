//! What server, clients and connections hold.

/// What a change does to its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Makes an inode under the name, which must not be there.
    Create,
    /// Removes the name, which must be there.
    Remove,
}

/// A change of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Op {
    /// What it does.
    pub kind: Kind,
    /// The name that it changes.
    pub name: u8,
    /// The name of the directory in which it is, if that is not the root. The client looks it up
    /// and sends its inode number.
    pub under: Option<u8>,
    /// The slot in which it is sent.
    pub slot: u8,
}

/// What a change built on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Saw {
    /// LSN of the last change of the name before; 0: there was none.
    pub name_version: u8,
    /// Inode number of the directory; 0: the root.
    pub parent: u8,
}

/// A change that was made, as the server's reply states it and as a replay repeats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    /// Whose.
    pub client: usize,
    /// Its sequence number.
    pub op: usize,
    /// Its place in the order of commits.
    pub lsn: u8,
    /// The inode that it made: the result that the program was told.
    pub inode: u8,
    /// What it built on.
    pub saw: Saw,
}

/// An entry of the server's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// A change, with the outcome in the same transaction.
    Made(Change),
    /// A replay that could not run.
    Lost {
        /// Whose.
        client: usize,
        /// Its sequence number.
        op: usize,
    },
    /// A session was given up.
    Closed(usize),
    /// A session was silent for long: recovery does not wait for it.
    Away(usize),
    /// It is back.
    Back(usize),
}

/// From client to server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// Begins a connection.
    Hello,
    /// A change that the client was told and does not know to be durable.
    Replay(Change),
    /// All replays were sent.
    ReplayDone,
    /// A change, for the first time or because it was not answered.
    Request {
        /// Its sequence number.
        op: usize,
        /// Inode number of the directory; 0: the root.
        parent: u8,
    },
}

/// From server to client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The change was made: now, or before as its outcome says.
    Done(Change),
    /// An ordinary error: the name is there already, or is not.
    Refused(usize),
    /// A replay could not run.
    Lost(usize),
    /// All changes up to this LSN are durable.
    Durable(u8),
    /// The session was given up.
    Expelled,
}

/// What a client knows of a change of its script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpState {
    /// Not sent yet.
    Todo,
    /// Sent and not answered.
    Sent {
        /// Inode number of the directory; 0: the root.
        parent: u8,
    },
    /// Done, and not known to be durable.
    Told(Change),
    /// Durable.
    Durable(Change),
    /// An ordinary error.
    Refused,
    /// The program is told EIO.
    Lost,
}

/// A client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// It did not die.
    pub alive: bool,
    /// It has a connection, as far as it knows.
    pub connected: bool,
    /// It was told that its session was given up.
    pub expelled: bool,
    /// Its script.
    pub ops: Vec<OpState>,
}

/// What a server's process knows of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It did not come back since the restart.
    Absent,
    /// Its connection has not finished its replay.
    Replaying,
    /// It has replayed.
    Ready,
}

/// The state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// All that the server did, in order.
    pub history: Vec<Record>,
    /// How much of it is durable.
    pub durable: usize,
    /// How much of it was there before this process of the server.
    pub inherited: usize,
    /// How much of it was there when recovery ended; `None`: recovery goes on.
    pub recovered: Option<usize>,
    /// The last number given out, LSN or inode.
    pub last_number: u8,
    /// The sessions as this process of the server knows them.
    pub sessions: Vec<Status>,
    /// The clients.
    pub clients: Vec<Client>,
    /// What is under way to the server, on each client's connection.
    pub up: Vec<Vec<Message>>,
    /// What is under way to the server on the connection before that one.
    pub old: Vec<Vec<Message>>,
    /// What is under way to each client.
    pub down: Vec<Vec<Reply>>,
    /// Crashes so far.
    pub crashes: u8,
    /// Broken connections so far.
    pub breaks: u8,
    /// Deaths so far.
    pub deaths: u8,
    /// Living clients given up so far.
    pub late: u8,
    /// Sessions noted as away so far.
    pub aways: u8,
}

impl State {
    pub(crate) fn new(scripts: &[Vec<Op>]) -> State {
        let client = |script: &Vec<Op>| Client {
            alive: true,
            connected: true,
            expelled: false,
            ops: vec![OpState::Todo; script.len()],
        };
        let count = scripts.len();
        State {
            history: Vec::new(),
            durable: 0,
            inherited: 0,
            recovered: Some(0),
            last_number: 0,
            sessions: vec![Status::Ready; count],
            clients: scripts.iter().map(client).collect(),
            up: vec![Vec::new(); count],
            old: vec![Vec::new(); count],
            down: vec![Vec::new(); count],
            crashes: 0,
            breaks: 0,
            deaths: 0,
            late: 0,
            aways: 0,
        }
    }

    pub(crate) fn changes(&self) -> impl DoubleEndedIterator<Item = &Change> {
        self.history.iter().filter_map(|record| match record {
            Record::Made(change) => Some(change),
            _ => None,
        })
    }

    pub(crate) fn change_of(&self, client: usize, op: usize) -> Option<&Change> {
        self.changes().rfind(|change| change.client == client && change.op == op)
    }

    pub(crate) fn is_lost(&self, client: usize, op: usize) -> bool {
        self.history.contains(&Record::Lost { client, op })
    }

    pub(crate) fn is_closed(&self, client: usize) -> bool {
        self.history.contains(&Record::Closed(client))
    }

    pub(crate) fn is_closed_durably(&self, client: usize) -> bool {
        self.history[..self.durable].contains(&Record::Closed(client))
    }

    /// Whether a part of the history leaves a session away.
    pub(crate) fn is_away(history: &[Record], client: usize) -> bool {
        let last = history
            .iter()
            .rfind(|record| matches!(record, Record::Away(whose) | Record::Back(whose) if *whose == client));
        matches!(last, Some(Record::Away(_)))
    }

    pub(crate) fn break_connection(&mut self, client: usize) {
        self.breaks += 1;
        self.old[client] = std::mem::take(&mut self.up[client]);
        self.down[client].clear();
        self.clients[client].connected = false;
    }

    pub(crate) fn die(&mut self, client: usize) {
        self.deaths += 1;
        self.clients[client].alive = false;
        self.clients[client].connected = false;
        self.down[client].clear();
    }
}
