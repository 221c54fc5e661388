//! What server and clients have.

use super::{Behind, Kind};

/// How many inodes there may be.
pub const INODES: usize = 4;

/// A number for each inode; 0: not touched, or not there.
pub type Numbers = [u8; INODES];

/// A call: which program's, and which of its script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Call {
    /// The program.
    pub program: usize,
    /// Its place in the script.
    pub op: usize,
}

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// The program has not come to it.
    Todo,
    /// It was sent and has not run; its program waits.
    Sent {
        /// What was the latest then.
        floor: Numbers,
        /// Nothing of its answer is kept.
        void: bool,
    },
    /// It ran; the answer is on its way.
    Ran {
        /// See `Sent`.
        floor: Numbers,
        /// See `Sent`.
        void: bool,
        /// What it read or made; nothing: it was refused.
        numbers: Numbers,
        /// The number of the change.
        lsn: u8,
        /// The inodes on which it gets a lease.
        granted: u8,
    },
    /// It was predicted and sent, and has not run, or the server has not said so.
    Behind {
        /// What it makes.
        numbers: Numbers,
        /// The term of the session then.
        term: u8,
    },
    /// It ran, or was refused; the answer is on its way.
    BehindRan {
        /// See `Behind`.
        numbers: Numbers,
        /// See `Behind`.
        term: u8,
        /// The number of the change; `None`: refused.
        lsn: Option<u8>,
    },
    /// The client knows that it was done.
    Told {
        /// What it made.
        numbers: Numbers,
        /// The number of the change.
        lsn: u8,
    },
    /// It read, or synced.
    Read,
    /// An ordinary error.
    Refused,
    /// The program is told EIO, if it was predicted at the next fsync.
    Lost,
}

impl Stage {
    /// It was predicted, and the client does not know that it was done.
    pub(crate) fn is_behind(self) -> bool {
        matches!(self, Stage::Behind { .. } | Stage::BehindRan { .. })
    }

    /// It was not predicted, and was not answered.
    pub(crate) fn is_asked(self) -> bool {
        matches!(self, Stage::Sent { .. } | Stage::Ran { .. })
    }

    /// The server has not run it on this connection.
    pub(crate) fn is_sent(self) -> bool {
        matches!(self, Stage::Sent { .. } | Stage::Behind { .. })
    }

    pub(crate) fn make_void(&mut self) {
        if let Stage::Sent { void, .. } | Stage::Ran { void, .. } = self {
            *void = true;
        }
    }
}

/// A lease as the server knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lease {
    /// None.
    #[default]
    None,
    /// To keep copies.
    R,
    /// To predict changes.
    W,
}

/// A change that the server has made, with its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Made {
    /// Of which call.
    pub call: Call,
    /// Of which client.
    pub client: usize,
    /// What it made of the inodes.
    pub numbers: Numbers,
    /// Its number; 0 when it is durable.
    pub lsn: u8,
}

/// What the server has done and a crash takes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Record {
    /// A change.
    Made(Made),
    /// A session is away: its leases are taken, and its term ends.
    Away(usize),
    /// It is back.
    Back(usize),
    /// It is closed.
    Closed(usize),
}

/// What is durable of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Session {
    /// It is away.
    pub away: bool,
    /// How often it was.
    pub term: u8,
    /// It is closed.
    pub closed: bool,
}

impl Session {
    fn note(&mut self, client: usize, record: &Record) {
        match record {
            Record::Away(whose) if *whose == client => (self.away, self.term) = (true, self.term + 1),
            Record::Back(whose) if *whose == client => self.away = false,
            Record::Closed(whose) if *whose == client => self.closed = true,
            _ => (),
        }
    }
}

/// A client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Client {
    /// What it keeps of inodes.
    pub copies: [Option<u8>; INODES],
    /// The inodes on which it has W, as bits.
    pub alone: u8,
    /// The inodes that it is about to give back.
    pub giving: u8,
    /// Those that it shares: whether the server has heard it.
    pub sharing: [Option<bool>; INODES],
    /// What it sent in order and was not answered, of each user.
    pub fifos: [Vec<Call>; 2],
    /// Its connection is up, and the server has greeted it.
    pub connected: bool,
    /// It spoke with this process of the server.
    pub is_known: bool,
    /// Nothing is heard of it, for longer than its leases count.
    pub silent: bool,
    /// The term that it knows.
    pub term: u8,
    /// It was told that its session is closed.
    pub expelled: bool,
}

/// The state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// What programs know of each inode.
    pub latest: Numbers,
    /// How far each program's calls are.
    pub stages: Vec<Vec<Stage>>,
    /// The clients.
    pub clients: Vec<Client>,
    /// The leases of each client.
    pub leases: Vec<[Lease; INODES]>,
    /// The inodes that each is asked for.
    pub asked: Vec<u8>,
    /// The term in which the leases of each were taken last.
    pub taken: Vec<u8>,
    /// The changes that are durable.
    pub durable: Vec<Made>,
    /// What is durable of each session.
    pub sessions: Vec<Session>,
    /// What is not durable.
    pub history: Vec<Record>,
    /// The last number that was given out.
    pub last_lsn: u8,
    /// A new process: what clients were told and predicted has not all been done again.
    pub recovering: bool,
    /// What they were told has.
    pub told_again: bool,
    /// The sessions that have caught up with the new process.
    pub caught_up: Vec<bool>,
    /// Those of which it has what they predicted.
    pub listed: Vec<bool>,
    /// A read returned what was older than what programs knew when it began.
    pub stale: bool,
    /// A change came over a newer one of another client.
    pub overwrote: bool,
    /// A predicted change did something else than was predicted.
    pub surprised: bool,
    /// An fsync was answered, and not all was durable that was predicted before.
    pub lied: bool,
    /// A change was lost of a client that was not silent.
    pub harmed: bool,
    /// Crashes so far.
    pub crashes: u8,
    /// Broken connections so far.
    pub breaks: u8,
    /// Silences so far.
    pub silences: u8,
    /// So often something was shared.
    pub shares: u8,
}

impl State {
    pub(crate) fn new(model: &Behind) -> State {
        let latest = std::array::from_fn(|inode| model.old >> inode & 1);
        let client = |alone: &u8| Client {
            copies: std::array::from_fn(|inode| (alone >> inode & 1 == 1).then_some(latest[inode])),
            alone: *alone,
            giving: 0,
            sharing: [None; INODES],
            fifos: [Vec::new(), Vec::new()],
            connected: true,
            is_known: true,
            silent: false,
            term: 0,
            expelled: false,
        };
        let lease =
            |alone: &u8| std::array::from_fn(|n| [Lease::None, Lease::W][usize::from(alone >> n & 1)]);
        let count = model.clients;
        let nobody = Call { program: usize::MAX, op: 0 };
        State {
            latest,
            stages: model.programs.iter().map(|its| vec![Stage::Todo; its.script.len()]).collect(),
            clients: model.alone.iter().map(client).collect(),
            leases: model.alone.iter().map(lease).collect(),
            asked: vec![0; count],
            taken: vec![0; count],
            durable: vec![Made { call: nobody, client: usize::MAX, numbers: latest, lsn: 0 }],
            sessions: vec![Session::default(); count],
            history: Vec::new(),
            last_lsn: 0,
            recovering: false,
            told_again: false,
            caught_up: vec![true; count],
            listed: vec![true; count],
            stale: false,
            overwrote: false,
            surprised: false,
            lied: false,
            harmed: false,
            crashes: 0,
            breaks: 0,
            silences: 0,
            shares: 0,
        }
    }

    pub(crate) fn stage(&self, call: Call) -> Stage {
        self.stages[call.program][call.op]
    }

    pub(crate) fn stage_mut(&mut self, call: Call) -> &mut Stage {
        &mut self.stages[call.program][call.op]
    }

    /// All changes that the server has made.
    pub(crate) fn made(&self) -> impl Iterator<Item = &Made> {
        let recent = self.history.iter().filter_map(|record| match record {
            Record::Made(made) => Some(made),
            _ => None,
        });
        self.durable.iter().chain(recent)
    }

    pub(crate) fn made_by(&self, call: Call) -> Option<&Made> {
        self.made().find(|made| made.call == call)
    }

    /// What the server has of an inode.
    pub(crate) fn value(&self, inode: usize) -> u8 {
        self.made().map(|made| made.numbers[inode]).max().unwrap_or(0)
    }

    /// A session with what is not durable of it.
    pub(crate) fn session(&self, client: usize) -> Session {
        let mut session = self.sessions[client];
        self.history.iter().for_each(|record| session.note(client, record));
        session
    }

    /// That it is back is not durable.
    pub(crate) fn is_just_back(&self, client: usize) -> bool {
        self.history.contains(&Record::Back(client))
    }

    /// Makes all durable. The order of what is durable does not matter any more.
    pub(crate) fn make_durable(&mut self) {
        for client in 0..self.sessions.len() {
            self.sessions[client] = self.session(client);
        }
        for record in std::mem::take(&mut self.history) {
            if let Record::Made(made) = record {
                self.durable.push(Made { lsn: 0, ..made });
            }
        }
        self.durable.sort_unstable();
        let durable = std::mem::take(&mut self.durable);
        let is_durable = |call| durable.iter().any(|made| made.call == call);
        for (program, stages) in self.stages.iter_mut().enumerate() {
            for (op, stage) in stages.iter_mut().enumerate() {
                if is_durable(Call { program, op })
                    && let Stage::Told { lsn, .. } = stage
                {
                    *lsn = 0;
                }
            }
        }
        self.durable = durable;
    }
}

impl Kind {
    pub(crate) fn is_change(self) -> bool {
        matches!(self, Kind::Names | Kind::Attributes)
    }
}

/// The places of bits.
pub(crate) fn places(bits: u8) -> impl Iterator<Item = usize> {
    (0..INODES).filter(move |inode| bits >> inode & 1 == 1)
}
