//! What server and clients hold, and what is under way between them.

use stateright::Representative;

/// What a lease allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Right {
    /// To use a copy.
    R,
    /// To change it, too: no other client has a lease.
    W,
}

/// A right with the number of the last grant of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lease {
    /// What it allows.
    pub right: Right,
    /// The number of its grant.
    pub number: u8,
}

/// A request that a client waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pending {
    /// Grants up to this number are void, if its answer brings one.
    pub void_up_to: u8,
}

/// What a request wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Want {
    /// Read the value.
    Read,
    /// Make this the value.
    Write(u8),
}

/// From client to server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FromClient {
    /// A read or a write.
    Request(Want),
    /// What was written under W.
    Flush(u8),
    /// A recall was followed.
    Recalled,
    /// The grant with this number is given back.
    Release(u8),
}

/// From server to client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ToClient {
    /// The value, with a lease if nothing waits for recalls.
    Value(u8, Option<Lease>),
    /// A write was run, with a lease. The value is as the client wrote it.
    Written(u8, Lease),
    /// A flush was taken.
    Flushed(u8),
    /// Leases with grants up to a number are void, or only R from now on.
    Recall {
        /// The last number given to this session.
        up_to: u8,
        /// The client keeps R.
        keeps_r: bool,
    },
}

/// A client, and what the server and the network hold of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer {
    /// The lease as the client knows it.
    pub lease: Option<Lease>,
    /// The client's copy, if it has a lease.
    pub copy: u8,
    /// The copy has to be flushed.
    pub dirty: bool,
    /// A read that is not answered.
    pub read: Option<Pending>,
    /// A write that is not answered.
    pub write: Option<Pending>,
    /// A flush that is not answered, with its value.
    pub flushing: Option<u8>,
    /// A recall that is not answered: whether the client keeps R.
    pub recall: Option<bool>,
    /// The lease as the server knows it.
    pub granted: Option<Lease>,
    /// The last number that the server used in this session.
    pub last_number: u8,
    /// The server waits for the answer to a recall; whether the client keeps R.
    pub recalling: Option<bool>,
    /// The request that waits for recalls at the server.
    pub waiting: Option<Want>,
    /// Under way to the server.
    pub up: Vec<FromClient>,
    /// Under way to the client.
    pub down: Vec<ToClient>,
    /// Reads begun.
    pub reads: u8,
    /// Writes begun.
    pub writes: u8,
    /// Releases sent.
    pub releases: u8,
}

/// The state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// The value as the server has it.
    pub value: u8,
    /// The value that the last write made. Values are numbers of writes.
    pub latest: u8,
    /// The last number of a write.
    pub last_write: u8,
    /// The server answered a read with an old value.
    pub stale_answer: bool,
    /// The clients.
    pub peers: Vec<Peer>,
}

impl State {
    pub(crate) fn new(clients: usize) -> State {
        State {
            value: 0,
            latest: 0,
            last_write: 0,
            stale_answer: false,
            peers: vec![Peer::default(); clients],
        }
    }

    /// Whether no program, flush or request waits.
    pub fn is_quiet(&self) -> bool {
        self.peers.iter().all(|peer| {
            peer.read.is_none() && peer.write.is_none() && peer.flushing.is_none() && peer.waiting.is_none()
        })
    }

    pub(crate) fn next_write(&mut self) -> u8 {
        self.last_write += 1;
        self.last_write
    }
}

/// Clients differ in nothing but their place.
impl Representative for State {
    fn representative(&self) -> State {
        let mut sorted = self.clone();
        sorted.peers.sort_unstable();
        sorted
    }
}
