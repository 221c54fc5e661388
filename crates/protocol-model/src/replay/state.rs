//! What server, clients and connections hold.

/// The name of a file that is there from the start. Its inode number is 0.
pub const OLD: u8 = u8::MAX;

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Makes an inode under the name, which must not be there.
    Create,
    /// Removes the name, which must be there.
    Remove,
    /// Writes one byte at an offset of the file with this name.
    Write(u8),
    /// Writes one byte at its end.
    Append,
    /// Makes the file empty.
    Truncate,
    /// Sets its attributes.
    SetAttributes,
}

impl Kind {
    pub(crate) fn is_content(self) -> bool {
        matches!(self, Kind::Write(_) | Kind::Append | Kind::Truncate)
    }

    pub(crate) fn is_name(self) -> bool {
        matches!(self, Kind::Create | Kind::Remove)
    }
}

/// A change of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Op {
    /// What it does.
    pub kind: Kind,
    /// The name that it changes, or that of the file.
    pub name: u8,
    /// The name of the directory of a new or removed name; `None`: the root.
    pub under: Option<u8>,
    /// The slot in which it is sent.
    pub slot: u8,
}

/// A change that was made, as the server's reply states it and as a replay repeats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    /// Whose.
    pub client: usize,
    /// Its sequence number.
    pub op: usize,
    /// Its place in the order of changes.
    pub lsn: u8,
    /// The inode that it made or changed.
    pub inode: u8,
    /// The inode of the directory of its name; 0: the root.
    pub parent: u8,
    /// The offset of the byte that it wrote.
    pub offset: u8,
}

/// An entry of the server's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// A change (of content: its attributes), with the outcome in the same transaction.
    Made(Change),
    /// In a mutant: a replay of content set attributes again.
    Attributes(Change),
    /// In a mutant: a replay entered its outcome again.
    Outcome(Change),
    /// A replay that could not run.
    Lost {
        /// Whose.
        client: usize,
        /// Its sequence number.
        op: usize,
    },
    /// A session was closed.
    Closed(usize),
    /// A session was silent for long: recovery does not wait for it.
    Away(usize),
    /// It is back.
    Back(usize),
}

/// From client to server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// Begins a connection. Says which requests were never answered.
    Hello,
    /// A change that the client was told and does not know to be durable.
    Replay(Change),
    /// All replays were sent.
    ReplayDone,
    /// A change, for the first time or because it was not answered.
    Request {
        /// Its sequence number.
        op: usize,
        /// Inode number of the directory of a name, or of a file.
        target: u8,
    },
}

/// From server to client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The change was made: now, or before as its outcome says.
    Done(Change),
    /// An ordinary error.
    Refused(usize),
    /// A replay could not run.
    Lost(usize),
    /// All changes up to this number are durable.
    Durable(u8),
    /// The session was closed.
    Expelled,
}

/// What a client knows of a change of its script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpState {
    /// Not sent yet.
    Todo,
    /// Sent and not answered.
    Sent {
        /// Inode number of the directory of a name, or of a file.
        target: u8,
    },
    /// Done, and not known to be durable.
    Told(Change),
    /// Durable: an fsync may be answered.
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
    /// It was told that its session was closed.
    pub expelled: bool,
    /// Its script.
    pub ops: Vec<OpState>,
}

/// What a server's process knows of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It did not come back since the restart.
    Absent,
    /// It has not finished its replay.
    Replaying,
    /// It has replayed.
    Ready,
}

/// The state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The records that the server wrote, in order.
    pub history: Vec<Record>,
    /// How many of them are durable.
    pub durable: usize,
    /// How many of them were there before this process of the server.
    pub inherited: usize,
    /// How many were there when recovery ended; `None`: recovery goes on.
    pub recovered: Option<usize>,
    /// The content that is in, in order: durable.
    pub entered: Vec<Change>,
    /// The content that is only in memory, in the order in which it was changed.
    pub pending: Vec<Change>,
    /// The last number given out, of a change or of an inode.
    pub last_number: u8,
    /// The sessions as this process of the server knows them.
    pub sessions: Vec<Status>,
    /// In a mutant: sessions that are closed in memory.
    pub closing: Vec<bool>,
    /// The clients.
    pub clients: Vec<Client>,
    /// What is under way to the server, on each client's connection.
    pub up: Vec<Vec<Message>>,
    /// What is under way to each client.
    pub down: Vec<Vec<Reply>>,
    /// Crashes so far.
    pub crashes: u8,
    /// Broken connections so far.
    pub breaks: u8,
    /// Deaths so far.
    pub deaths: u8,
    /// Living clients closed so far.
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
            entered: Vec::new(),
            pending: Vec::new(),
            last_number: 0,
            sessions: vec![Status::Ready; count],
            closing: vec![false; count],
            clients: scripts.iter().map(client).collect(),
            up: vec![Vec::new(); count],
            down: vec![Vec::new(); count],
            crashes: 0,
            breaks: 0,
            deaths: 0,
            late: 0,
            aways: 0,
        }
    }

    /// The changes among some records.
    pub(crate) fn changes(records: &[Record]) -> impl DoubleEndedIterator<Item = &Change> {
        records.iter().filter_map(|record| match record {
            Record::Made(change) => Some(change),
            _ => None,
        })
    }

    /// The content that is in or will be, in order.
    pub(crate) fn content(&self) -> impl DoubleEndedIterator<Item = &Change> {
        self.entered.iter().chain(&self.pending)
    }

    pub(crate) fn is_committed(&self, change: &Change) -> bool {
        State::changes(&self.history[..self.durable]).any(|made| made.is(change))
    }

    /// The number of the last change that is committed.
    pub(crate) fn committed(&self) -> u8 {
        State::changes(&self.history[..self.durable]).map(|change| change.lsn).max().unwrap_or(0)
    }

    /// The number of the last content that is in a file.
    pub(crate) fn content_lsn(&self, inode: u8) -> u8 {
        let its = self.entered.iter().filter(|change| change.inode == inode);
        its.map(|change| change.lsn).max().unwrap_or(0)
    }

    pub(crate) fn is_closed(&self, client: usize) -> bool {
        self.closing[client] || self.history.contains(&Record::Closed(client))
    }

    /// Whether a part of the history leaves a session away.
    pub(crate) fn is_away(history: &[Record], client: usize) -> bool {
        let last = history
            .iter()
            .rfind(|record| matches!(record, Record::Away(whose) | Record::Back(whose) if *whose == client));
        matches!(last, Some(Record::Away(_)))
    }

    pub(crate) fn enter(&mut self, inode: u8) {
        if let Some(first) = self.pending.iter().position(|change| change.inode == inode) {
            let change = self.pending.remove(first);
            self.entered.push(change);
        }
    }

    pub(crate) fn break_connection(&mut self, client: usize) {
        self.breaks += 1;
        self.up[client].clear();
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

impl Change {
    /// Whether this is the same change of the same client.
    pub(crate) fn is(&self, other: &Change) -> bool {
        (self.client, self.op) == (other.client, other.op)
    }
}
